//! GGUF files that are written byte by byte, after the definition in ggml's `gguf.md`.

use std::collections::BTreeMap;

use gradiff::DType;
use gradiff::files::GgufValue;

use super::{Array, Written, blocks, shuffled};
use crate::checks::calls::Draw;

/// Names of the tensors of a file.
const TENSORS: [&str; 4] = ["w", "layers.0.bias", "x y", "größe"];

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

/// Number of types of metadata.
const VALUE_TYPES: usize = 13;

/// A file, from which its bytes are written.
#[derive(Clone)]
pub(super) struct Gguf {
    pub(super) start: [u8; 4],
    pub(super) version: u32,
    /// Numbers that are added to the counts of tensors and of values.
    pub(super) surplus_counts: [u64; 2],
    /// Keys, numbers of types, and bytes of values.
    pub(super) values: Vec<(String, u32, Vec<u8>)>,
    pub(super) tensors: Vec<Described>,
    pub(super) alignment: usize,
}

/// The description of a tensor, and its bytes.
#[derive(Clone)]
pub(super) struct Described {
    pub(super) name: String,
    /// Sizes, of the innermost axis first.
    pub(super) sizes: Vec<u64>,
    pub(super) kind: u32,
    /// From the start of the data of all tensors.
    pub(super) offset: u64,
    pub(super) data: Vec<u8>,
}

impl Described {
    /// The description of an array whose elements these bytes are.
    pub(super) fn of(name: &str, array: &Array, kind: u32, data: Vec<u8>) -> Described {
        let sizes = array.shape.iter().rev().map(|size| *size as u64).collect();
        Described { name: name.to_string(), sizes, kind, offset: 0, data }
    }
}

impl Default for Gguf {
    fn default() -> Gguf {
        Gguf {
            start: *b"GGUF",
            version: 3,
            surplus_counts: [0; 2],
            values: Vec::new(),
            tensors: Vec::new(),
            alignment: 32,
        }
    }
}

impl Gguf {
    /// Gives the tensors their offsets, in any order and with gaps.
    pub(super) fn arrange(&mut self, draw: &mut Draw) {
        let mut end = 0usize;
        for at in shuffled(draw, (0..self.tensors.len()).collect()) {
            let gap = if draw.one_in(4) { self.alignment } else { 0 };
            let start = end.next_multiple_of(self.alignment) + gap;
            self.tensors[at].offset = start as u64;
            end = start + self.tensors[at].data.len();
        }
    }

    /// The bytes of the file, which ends with the last tensor.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.start.to_vec();
        bytes.extend(self.version.to_le_bytes());
        let counts = [self.tensors.len(), self.values.len()];
        for (count, surplus) in counts.iter().zip(self.surplus_counts) {
            bytes.extend((*count as u64).wrapping_add(surplus).to_le_bytes());
        }
        for (key, kind, value) in &self.values {
            gguf_text(&mut bytes, key);
            bytes.extend(kind.to_le_bytes());
            bytes.extend(value);
        }
        for tensor in &self.tensors {
            gguf_text(&mut bytes, &tensor.name);
            bytes.extend((tensor.sizes.len() as u32).to_le_bytes());
            tensor.sizes.iter().for_each(|size| bytes.extend(size.to_le_bytes()));
            bytes.extend(tensor.kind.to_le_bytes());
            bytes.extend(tensor.offset.to_le_bytes());
        }
        let start = bytes.len().next_multiple_of(self.alignment);
        for tensor in &self.tensors {
            let at = start + tensor.offset as usize;
            let end = bytes.len().max(at + tensor.data.len());
            bytes.resize(end, 0);
            bytes[at..][..tensor.data.len()].copy_from_slice(&tensor.data);
        }
        bytes
    }
}

pub(super) fn gguf(draw: &mut Draw) -> Written {
    let mut file = Gguf { version: 2 + draw.below(2) as u32, ..Gguf::default() };
    if draw.one_in(8) {
        // A value of few bytes is all that the file has.
        let value = drawn_value(draw, 0);
        let values = BTreeMap::from([(String::new(), value)]);
        file.values = encoded(draw, &values);
        return Written { bytes: file.bytes(), values, ..Written::default() };
    }
    let values = drawn_values(draw, &mut file.alignment);
    file.values = encoded(draw, &values);
    let mut tensors = BTreeMap::new();
    for name in &shuffled(draw, TENSORS.to_vec())[..draw.below(4)] {
        let (kind, stored, array) = gguf_tensor(draw);
        file.tensors.push(Described::of(name, &array, kind, stored));
        tensors.insert(name.to_string(), array);
    }
    file.arrange(draw);
    let mut bytes = file.bytes();
    if draw.one_in(2) {
        // Writers add the padding of a next tensor.
        bytes.resize(bytes.len().next_multiple_of(file.alignment), 0);
    }
    Written { bytes, tensors, values, ..Written::default() }
}

/// Draws metadata, and the alignment, if it has another.
fn drawn_values(draw: &mut Draw, alignment: &mut usize) -> BTreeMap<String, GgufValue> {
    let mut values = BTreeMap::from([(
        "general.architecture".to_string(),
        GgufValue::Text("llama".to_string()),
    )]);
    let drawn = draw.pick(&[0u32, 8, 16, 64, 24, 32, 128]);
    if drawn != 0 {
        *alignment = drawn as usize;
        values.insert("general.alignment".to_string(), GgufValue::U32(drawn));
    }
    if draw.one_in(2) {
        let sizes = [-3, 7, i32::MIN].map(GgufValue::I32).to_vec();
        values.insert("sizes".to_string(), GgufValue::Array(sizes));
        values.insert("rate".to_string(), GgufValue::F64(0.125));
        values.insert("is_causal".to_string(), GgufValue::Bool(true));
    } else {
        values.extend(rest_of_values().map(|(key, value)| (key.to_string(), value)));
    }
    for number in 0..draw.below(4) {
        values.insert(format!("drawn.{number}"), drawn_value(draw, 0));
    }
    values
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

/// Draws a value of any type, in arrays that are nested a little.
fn drawn_value(draw: &mut Draw, depth: usize) -> GgufValue {
    let kind = draw.below(VALUE_TYPES);
    value_of(draw, kind, depth)
}

/// Draws a value of a type.
fn value_of(draw: &mut Draw, kind: usize, depth: usize) -> GgufValue {
    let any = draw.bits();
    let bits = draw.pick(&[any, any, 0, u64::MAX, 1 << 63, i64::MAX as u64]);
    match kind {
        0 => GgufValue::U8(bits as u8),
        1 => GgufValue::I8(bits as i8),
        2 => GgufValue::U16(bits as u16),
        3 => GgufValue::I16(bits as i16),
        4 => GgufValue::U32(bits as u32),
        5 => GgufValue::I32(bits as i32),
        // NaN is not equal to itself, so that an infinity replaces it.
        6 => GgufValue::F32(f32::from_bits(bits as u32).max(f32::NEG_INFINITY)),
        7 => GgufValue::Bool(bits & 1 == 1),
        8 => GgufValue::Text(draw.pick(&["", "a", "Zürich", "a\0b"]).to_string()),
        10 => GgufValue::U64(bits),
        11 => GgufValue::I64(bits as i64),
        12 => GgufValue::F64(f64::from_bits(bits).max(f64::NEG_INFINITY)),
        _ => {
            let kinds = if depth < 3 { VALUE_TYPES } else { 8 };
            let (kind, count) = (draw.below(kinds), draw.below(5));
            GgufValue::Array((0..count).map(|_| value_of(draw, kind, depth + 1)).collect())
        }
    }
}

/// The values in a drawn order, as the file has them.
fn encoded(draw: &mut Draw, values: &BTreeMap<String, GgufValue>) -> Vec<(String, u32, Vec<u8>)> {
    let encoded = values.iter().map(|(key, value)| {
        let (kind, bytes) = gguf_value(value);
        (key.clone(), kind, bytes)
    });
    shuffled(draw, encoded.collect())
}

fn gguf_text(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend((text.len() as u64).to_le_bytes());
    bytes.extend(text.bytes());
}

/// The number of the type of a value, and its bytes.
pub(super) fn gguf_value(value: &GgufValue) -> (u32, Vec<u8>) {
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
            let items: Vec<(u32, Vec<u8>)> = items.iter().map(gguf_value).collect();
            // An empty array has a type, too: that of texts.
            let kind = items.first().map_or(8, |(kind, _)| *kind);
            let mut bytes = kind.to_le_bytes().to_vec();
            bytes.extend((items.len() as u64).to_le_bytes());
            items.iter().for_each(|(_, item)| bytes.extend(item));
            (9, bytes)
        }
    }
}

/// Checks the values that the accessors give for a value.
pub(super) fn check_accessors(value: &GgufValue) -> Result<(), String> {
    let (integer, text) = match value {
        GgufValue::U8(value) => (Some(i128::from(*value)), None),
        GgufValue::I8(value) => (Some(i128::from(*value)), None),
        GgufValue::U16(value) => (Some(i128::from(*value)), None),
        GgufValue::I16(value) => (Some(i128::from(*value)), None),
        GgufValue::U32(value) => (Some(i128::from(*value)), None),
        GgufValue::I32(value) => (Some(i128::from(*value)), None),
        GgufValue::U64(value) => (Some(i128::from(*value)), None),
        GgufValue::I64(value) => (Some(i128::from(*value)), None),
        GgufValue::Text(text) => (None, Some(text.as_str())),
        GgufValue::F32(_) | GgufValue::F64(_) | GgufValue::Bool(_) | GgufValue::Array(_) => {
            (None, None)
        }
    };
    let integer = integer.and_then(|value| i64::try_from(value).ok());
    if (value.as_i64(), value.as_str()) != (integer, text) {
        return Err(format!("{value:?} is {:?} and {:?}", value.as_i64(), value.as_str()));
    }
    match value {
        GgufValue::Array(items) => items.iter().try_for_each(check_accessors),
        _ => Ok(()),
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
    let block = draw.pick(&blocks::BLOCKS);
    let (stored, array) = blocks::tensor(draw, block);
    (block.kind, stored, array)
}
