//! Files that are written byte by byte, after the definitions of their formats.

use std::collections::BTreeMap;

use gradiff::DType;
use gradiff::files::GgufValue;

use super::{Array, Written, drawn_bytes, names_of, numpy_dtypes, swap};
use crate::checks::calls::Draw;
use crate::checks::calls::values::dtypes;

/// Names of the tensors of a file.
const TENSORS: [&str; 3] = ["w", "layers.0.bias", "x y"];

pub(super) fn npy(draw: &mut Draw) -> Written {
    let array = Array::draw(draw, &numpy_dtypes());
    let bytes = npy_of(draw, &array);
    Written { bytes, tensors: BTreeMap::from([(String::new(), array)]), ..Written::default() }
}

/// The header of `.npy` without its padding.
pub(super) fn npy_text(array: &Array, order: char, is_fortran: bool) -> String {
    let name = names_of(array.dtype).numpy;
    let fortran = if is_fortran { "True" } else { "False" };
    let sizes: Vec<String> = array.shape.iter().map(i64::to_string).collect();
    let comma = if sizes.len() == 1 { "," } else { "" };
    let shape = sizes.join(", ");
    format!("{{'descr': '{order}{name}', 'fortran_order': {fortran}, 'shape': ({shape}{comma}), }}")
}

/// The bytes of `.npy`, of a drawn version, in a drawn order of axes and of bytes.
fn npy_of(draw: &mut Draw, array: &Array) -> Vec<u8> {
    let size = array.dtype.size_bytes();
    let (is_big_endian, is_fortran) = (1 < size && draw.one_in(3), draw.one_in(3));
    let order = match (size, is_big_endian) {
        (1, _) => '|',
        (_, true) => '>',
        (_, false) => '<',
    };
    let version = 1 + draw.below(3) as u8;
    let prefix = if version == 1 { 10 } else { 12 };
    let mut text = npy_text(array, order, is_fortran);
    while !(prefix + text.len() + 1).is_multiple_of(64) {
        text.push(' ');
    }
    text.push('\n');
    let mut bytes = b"\x93NUMPY".to_vec();
    bytes.extend([version, 0]);
    bytes.extend(&(text.len() as u32).to_le_bytes()[..if version == 1 { 2 } else { 4 }]);
    bytes.extend(text.bytes());
    let mut data = if is_fortran { array.column_major() } else { array.bytes.clone() };
    if is_big_endian {
        swap(&mut data, array.dtype);
    }
    bytes.extend(data);
    bytes
}

pub(super) fn npz(draw: &mut Draw) -> Written {
    let tensors = drawn_arrays(draw, &numpy_dtypes());
    let mut entries = Vec::new();
    for (name, array) in ordered(draw, &tensors) {
        entries.push((format!("{name}.npy"), npy_of(draw, array)));
    }
    Written { bytes: zip(&entries), tensors, ..Written::default() }
}

/// The checksum of zip.
pub(super) fn crc(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
    !bytes.iter().fold(u32::MAX, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}

/// A zip archive of entries without compression.
pub(super) fn zip(entries: &[(String, Vec<u8>)]) -> Vec<u8> {
    let (mut bytes, mut directory): (Vec<u8>, Vec<u8>) = Default::default();
    for (name, data) in entries {
        let offset = bytes.len() as u32;
        // From the version that is needed to the length of extra fields.
        let mut common = [20u16, 0, 0, 0, 0x21].map(u16::to_le_bytes).concat();
        let size = data.len() as u32;
        common.extend([crc(data), size, size].map(u32::to_le_bytes).concat());
        common.extend([name.len() as u16, 0].map(u16::to_le_bytes).concat());
        bytes.extend([b"PK\x03\x04".as_slice(), &common, name.as_bytes(), data].concat());
        directory.extend([b"PK\x01\x02\x14\x00".as_slice(), &common].concat());
        // No comment, on the first disk, without attributes.
        directory.extend([0u8; 10]);
        directory.extend(offset.to_le_bytes());
        directory.extend(name.bytes());
    }
    let (start, count) = (bytes.len() as u32, entries.len() as u16);
    bytes.extend(&directory);
    bytes.extend(b"PK\x05\x06\x00\x00\x00\x00");
    bytes.extend([count, count].map(u16::to_le_bytes).concat());
    bytes.extend([directory.len() as u32, start].map(u32::to_le_bytes).concat());
    bytes.extend([0u8; 2]);
    bytes
}

pub(super) fn safetensors(draw: &mut Draw) -> Written {
    let tensors = drawn_arrays(draw, &dtypes());
    let (mut items, mut texts) = (Vec::new(), BTreeMap::new());
    let mut data: Vec<u8> = Vec::new();
    if draw.one_in(2) {
        texts.insert("format".to_string(), "pt".to_string());
        items.push(r#""__metadata__":{"format":"pt"}"#.to_string());
    }
    for (name, array) in ordered(draw, &tensors) {
        let start = data.len();
        data.extend(&array.bytes);
        items.push(format!(
            r#""{name}": {{"shape": {:?}, "data_offsets":[{start}, {}],"dtype":"{}"}}"#,
            array.shape,
            data.len(),
            names_of(array.dtype).safetensors
        ));
    }
    let text = format!("{{{}}}{}", items.join(","), " ".repeat(draw.below(9)));
    let bytes = [&(text.len() as u64).to_le_bytes()[..], text.as_bytes(), &data].concat();
    Written { bytes, tensors, texts, ..Written::default() }
}

/// Numbers of GGUF for types of elements.
const GGUF_TYPES: [(DType, u32); 8] = [
    (DType::F32, 0),
    (DType::F16, 1),
    (DType::I8, 24),
    (DType::I16, 25),
    (DType::I32, 26),
    (DType::I64, 27),
    (DType::F64, 28),
    (DType::BF16, 30),
];

/// Numbers of GGUF for quantised types: those of 4 bits without and with a minimum, of 8 bits.
const Q4_0: u32 = 2;
const Q4_1: u32 = 3;
const Q8_0: u32 = 8;
/// Number of elements of a block.
const BLOCK: usize = 32;

pub(super) fn gguf(draw: &mut Draw) -> Written {
    let mut values = BTreeMap::from([(
        "general.architecture".to_string(),
        GgufValue::Text("llama".to_string()),
    )]);
    let alignment = draw.pick(&[0u32, 8, 16, 64]);
    if alignment != 0 {
        values.insert("general.alignment".to_string(), GgufValue::U32(alignment));
    }
    if draw.one_in(2) {
        let sizes = [-3, 7, i32::MIN].map(GgufValue::I32).to_vec();
        values.insert("sizes".to_string(), GgufValue::Array(sizes));
        values.insert("rate".to_string(), GgufValue::F64(0.125));
        values.insert("is_causal".to_string(), GgufValue::Bool(true));
    } else {
        values.extend(rest_of_values().map(|(key, value)| (key.to_string(), value)));
    }
    let alignment = if alignment == 0 { 32 } else { alignment as usize };
    let count = draw.below(4).min(TENSORS.len());
    let mut bytes = b"GGUF".to_vec();
    bytes.extend((2 + draw.below(2) as u32).to_le_bytes());
    bytes.extend([count as u64, values.len() as u64].map(u64::to_le_bytes).concat());
    for (key, value) in &values {
        gguf_text(&mut bytes, key);
        let (kind, payload) = gguf_value(value);
        bytes.extend(kind.to_le_bytes());
        bytes.extend(payload);
    }
    let (mut tensors, mut data): (BTreeMap<String, Array>, Vec<u8>) = Default::default();
    for name in &TENSORS[..count] {
        let (kind, stored, array) = gguf_tensor(draw);
        gguf_text(&mut bytes, name);
        bytes.extend((array.shape.len() as u32).to_le_bytes());
        // The innermost axis is the first.
        array.shape.iter().rev().for_each(|size| bytes.extend(size.to_le_bytes()));
        data.resize(data.len().next_multiple_of(alignment), 0);
        bytes.extend(kind.to_le_bytes());
        bytes.extend((data.len() as u64).to_le_bytes());
        data.extend(stored);
        tensors.insert(name.to_string(), array);
    }
    bytes.resize(bytes.len().next_multiple_of(alignment), 0);
    bytes.extend(data);
    Written { bytes, tensors, values, ..Written::default() }
}

/// Metadata as real files have it: texts and scores of a vocabulary, nested and empty arrays, and
/// numbers of the remaining types.
fn rest_of_values() -> [(&'static str, GgufValue); 11] {
    use GgufValue::{Array, F32, I8, I16, I64, Text, U8, U16, U64};
    let tokens = ["<s>", "", "\u{2581}the"].map(|token| Text(token.to_string()));
    let nested = [vec![U8(0), U8(255)], Vec::new()].map(Array);
    [
        ("tokenizer.ggml.tokens", Array(tokens.to_vec())),
        ("tokenizer.ggml.scores", Array([-1.5, 0.0, 1e-20].map(F32).to_vec())),
        ("empty", Array(Vec::new())),
        ("nested", Array(nested.to_vec())),
        ("general.parameter_count", U64(u64::MAX)),
        ("u8", U8(200)),
        ("i8", I8(-100)),
        ("u16", U16(60_000)),
        ("i16", I16(i16::MIN)),
        ("i64", I64(i64::MIN)),
        ("f32", F32(0.1)),
    ]
}

fn gguf_text(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend((text.len() as u64).to_le_bytes());
    bytes.extend(text.bytes());
}

/// The number of the type of a value, and its bytes.
fn gguf_value(value: &GgufValue) -> (u32, Vec<u8>) {
    match value {
        GgufValue::U8(value) => (0, value.to_le_bytes().to_vec()),
        GgufValue::I8(value) => (1, value.to_le_bytes().to_vec()),
        GgufValue::U16(value) => (2, value.to_le_bytes().to_vec()),
        GgufValue::I16(value) => (3, value.to_le_bytes().to_vec()),
        GgufValue::U32(value) => (4, value.to_le_bytes().to_vec()),
        GgufValue::I32(value) => (5, value.to_le_bytes().to_vec()),
        GgufValue::F32(value) => (6, value.to_le_bytes().to_vec()),
        GgufValue::Bool(value) => (7, vec![u8::from(*value)]),
        GgufValue::U64(value) => (10, value.to_le_bytes().to_vec()),
        GgufValue::I64(value) => (11, value.to_le_bytes().to_vec()),
        GgufValue::F64(value) => (12, value.to_le_bytes().to_vec()),
        GgufValue::Text(text) => {
            let mut bytes = Vec::new();
            gguf_text(&mut bytes, text);
            (8, bytes)
        }
        GgufValue::Array(items) => {
            // An empty array has a type, too: that of texts.
            let kind = items.first().map_or(8, |item| gguf_value(item).0);
            let mut bytes = kind.to_le_bytes().to_vec();
            bytes.extend((items.len() as u64).to_le_bytes());
            items.iter().for_each(|item| bytes.extend(gguf_value(item).1));
            (9, bytes)
        }
    }
}

/// Draws a tensor: the number of its type, its bytes in the file, and the tensor that it is read
/// as.
fn gguf_tensor(draw: &mut Draw) -> (u32, Vec<u8>, Array) {
    if draw.one_in(2) {
        let array = Array::draw(draw, &GGUF_TYPES.map(|(dtype, _)| dtype));
        let row = GGUF_TYPES.iter().find(|(dtype, _)| *dtype == array.dtype);
        let (_, kind) = row.expect("it was drawn from the rows");
        return (*kind, array.bytes.clone(), array);
    }
    let kind = draw.pick(&[Q4_0, Q4_1, Q8_0]);
    let (rows, blocks) = (draw.below(3), 1 + draw.below(2));
    let (mut stored, mut elements) = (Vec::new(), Vec::new());
    for _ in 0..rows * blocks {
        elements.extend(quantised(draw, kind, &mut stored));
    }
    let shape = vec![rows as i64, (blocks * BLOCK) as i64];
    let bytes = elements.iter().flat_map(|element: &f32| element.to_le_bytes()).collect();
    (kind, stored, Array { dtype: DType::F32, shape, bytes })
}

/// Draws a block, appends its bytes, and returns its elements. The scale is a power of 2.
fn quantised(draw: &mut Draw, kind: u32, stored: &mut Vec<u8>) -> Vec<f32> {
    let half = |exponent: i32| (((exponent + 15) as u16) << 10).to_le_bytes();
    let exponent = draw.below(8) as i32 - 4;
    let scale = 2f32.powi(exponent);
    stored.extend(half(exponent));
    if kind == Q4_1 {
        // The minimum is 1.
        stored.extend(half(0));
    }
    let bound = if kind == Q8_0 { 256 } else { 16 };
    let quants: Vec<u8> = (0..BLOCK).map(|_| draw.below(bound) as u8).collect();
    match kind {
        Q8_0 => stored.extend(&quants),
        // The first half of the elements is in the low bits.
        _ => {
            let (low, high) = quants.split_at(BLOCK / 2);
            stored.extend(low.iter().zip(high).map(|(low, high)| low | high << 4));
        }
    }
    let element = |quant: u8| match kind {
        Q8_0 => f32::from(i8::from_le_bytes([quant])) * scale,
        Q4_1 => f32::from(quant) * scale + 1.0,
        _ => (f32::from(quant) - 8.0) * scale,
    };
    quants.into_iter().map(element).collect()
}

pub(super) fn torch(draw: &mut Draw) -> Written {
    let tensors = drawn_arrays(draw, &dtypes());
    let is_big_endian = draw.one_in(4);
    let mut entries = Vec::new();
    // Protocol 2, an empty dict.
    let mut pickle = b"\x80\x02}".to_vec();
    for (key, (name, array)) in ordered(draw, &tensors).into_iter().enumerate() {
        let (before, after) = (draw.below(3), draw.below(3));
        let is_transposed = draw.one_in(3);
        pickle_tensor(&mut pickle, name, &key.to_string(), array, [before, after], is_transposed);
        let elements = if is_transposed { array.column_major() } else { array.bytes.clone() };
        let [before, after] = [before, after].map(|count| drawn_bytes(draw, array.dtype, count));
        let mut data = [before, elements, after].concat();
        if is_big_endian {
            swap(&mut data, array.dtype);
        }
        entries.push((format!("model/data/{key}"), data));
    }
    pickle.push(b'.');
    entries.insert(0, ("model/data.pkl".to_string(), pickle));
    if is_big_endian || draw.one_in(2) {
        let order: &[u8] = if is_big_endian { b"big" } else { b"little" };
        entries.push(("model/byteorder".to_string(), order.to_vec()));
    }
    Written { bytes: zip(&entries), tensors, ..Written::default() }
}

/// Appends the item of a tensor: a view of a storage that has elements before and after it.
fn pickle_tensor(
    pickle: &mut Vec<u8>,
    name: &str,
    key: &str,
    array: &Array,
    [before, after]: [usize; 2],
    is_transposed: bool,
) {
    let names = names_of(array.dtype);
    let is_typed = !names.storage.is_empty();
    let count = before + array.count() + after;
    let (function, class, size) = match is_typed {
        true => ("_rebuild_tensor_v2", format!("ctorch\n{}\n", names.storage), count),
        // A storage of bytes, to which the tensor gives the dtype.
        false => {
            let size_bytes = count * array.dtype.size_bytes();
            ("_rebuild_tensor_v3", "ctorch.storage\nUntypedStorage\n".to_string(), size_bytes)
        }
    };
    pickle_text(pickle, name);
    pickle.extend(format!("ctorch._utils\n{function}\n((").bytes());
    pickle_text(pickle, "storage");
    pickle.extend(class.bytes());
    pickle_text(pickle, key);
    pickle_text(pickle, "cpu");
    pickle_int(pickle, size as i64);
    pickle.extend(b"tQ");
    pickle_int(pickle, before as i64);
    let mut stride = 1;
    let mut next = |size: &i64| {
        let found = stride;
        stride *= (*size).max(1);
        found
    };
    let strides: Vec<i64> = match is_transposed {
        true => array.shape.iter().map(&mut next).collect(),
        false => {
            let reversed: Vec<i64> = array.shape.iter().rev().map(&mut next).collect();
            reversed.into_iter().rev().collect()
        }
    };
    for numbers in [&array.shape, &strides] {
        pickle.push(b'(');
        numbers.iter().for_each(|number| pickle_int(pickle, *number));
        pickle.push(b't');
    }
    // False, and an ordered dict of hooks.
    pickle.extend(b"\x89ccollections\nOrderedDict\n)R");
    if !is_typed {
        pickle.extend(format!("ctorch\n{}\n", names.torch).bytes());
    }
    pickle.extend(b"tRs");
}

fn pickle_text(pickle: &mut Vec<u8>, text: &str) {
    pickle.push(b'X');
    pickle.extend((text.len() as u32).to_le_bytes());
    pickle.extend(text.bytes());
}

fn pickle_int(pickle: &mut Vec<u8>, number: i64) {
    pickle.push(b'J');
    pickle.extend((number as i32).to_le_bytes());
}

/// Draws some tensors by name.
pub(super) fn drawn_arrays(draw: &mut Draw, dtypes: &[DType]) -> BTreeMap<String, Array> {
    let count = 1 + draw.below(TENSORS.len());
    TENSORS[..count].iter().map(|name| (name.to_string(), Array::draw(draw, dtypes))).collect()
}

/// The tensors in the order of their data in the file: that of their names, or its reverse.
fn ordered<'a>(
    draw: &mut Draw,
    tensors: &'a BTreeMap<String, Array>,
) -> Vec<(&'a String, &'a Array)> {
    let mut found: Vec<_> = tensors.iter().collect();
    if draw.one_in(2) {
        found.reverse();
    }
    found
}
