//! Files that are written byte by byte, after the definitions of their formats.

use std::collections::BTreeMap;

use gradiff::DType;

use super::zips::{Entry, archive};
use super::{Array, Written, names_of, numpy_dtypes, shuffled, swap};
use crate::checks::calls::Draw;
use crate::checks::calls::values::dtypes;

/// Names of the tensors of a file.
const TENSORS: [&str; 5] = ["w", "layers.0.bias", "x y", "größe \"q\"\t", "W"];
/// The maximal length of a name, in bytes.
pub(super) const NAME_MAX: usize = 4096;
/// The maximal number of axes.
pub(super) const RANK_MAX: usize = 64;

pub(super) fn npy(draw: &mut Draw) -> Written {
    let array = Array::draw(draw, &numpy_dtypes()).with_axes(draw);
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

/// The same header in another text: in another order, with other quotes, spaces and commas, or with
/// the long integers of Python 2, which NumPy knows in versions 1 and 2.
fn varied_npy_text(
    draw: &mut Draw,
    array: &Array,
    order: char,
    is_fortran: bool,
    version: u8,
) -> String {
    let name = names_of(array.dtype).numpy;
    let (quote, space) = (draw.pick(&['\'', '"']), draw.pick(&["", " ", "  "]));
    let suffix = if version < 3 { draw.pick(&["", "", "L"]) } else { "" };
    let separator = format!(",{space}");
    let sizes: Vec<String> = array.shape.iter().map(|size| format!("{size}{suffix}")).collect();
    let has_comma = sizes.len() == 1 || (1 < sizes.len() && draw.one_in(2));
    let comma = if has_comma { "," } else { "" };
    let pairs = [
        ("descr", format!("{quote}{order}{name}{quote}")),
        ("fortran_order", if is_fortran { "True" } else { "False" }.to_string()),
        ("shape", format!("({}{comma})", sizes.join(&separator))),
    ];
    let item = |(key, value): (&str, String)| format!("{quote}{key}{quote}{space}:{space}{value}");
    let items = shuffled(draw, pairs.map(item).to_vec());
    let end = draw.pick(&["", ",", ", "]);
    format!("{{{space}{}{end}}}", items.join(&separator))
}

/// The bytes of `.npy`, of a drawn version, in a drawn order of axes and of bytes.
fn npy_of(draw: &mut Draw, array: &Array) -> Vec<u8> {
    let size = array.dtype.size_bytes();
    let (is_big_endian, is_fortran) = (1 < size && draw.one_in(3), draw.one_in(3));
    let order = match (size, is_big_endian) {
        (1, _) => draw.pick(&['|', '<', '>']),
        (_, true) => '>',
        (_, false) => '<',
    };
    let version = 1 + draw.below(3) as u8;
    let prefix = if version == 1 { 10 } else { 12 };
    let mut text = match draw.one_in(2) {
        true => npy_text(array, order, is_fortran),
        false => varied_npy_text(draw, array, order, is_fortran, version),
    };
    // NumPy's alignment, that of old versions, none, and those for which a length needs two bytes.
    let alignment = draw.pick(&[64, 64, 16, 1, 512, 4096]);
    while !(prefix + text.len() + 1).is_multiple_of(alignment) {
        text.push(' ');
    }
    text.push('\n');
    let mut bytes = b"\x93NUMPY".to_vec();
    bytes.extend([version, 0]);
    bytes.extend(&(text.len() as u32).to_le_bytes()[..if version == 1 { 2 } else { 4 }]);
    bytes.extend(text.bytes());
    let stored = array.stored(draw);
    let mut data = if is_fortran { stored.column_major() } else { stored.bytes };
    if is_big_endian {
        swap(&mut data, array.dtype);
    }
    bytes.extend(data);
    bytes
}

pub(super) fn npz(draw: &mut Draw) -> Written {
    let tensors = with_axes(draw, &numpy_dtypes());
    let mut entries = Vec::new();
    for (name, array) in ordered(draw, &tensors) {
        let data = npy_of(draw, array);
        entries.push(Entry::drawn(draw, &format!("{name}.npy"), data));
    }
    Written { bytes: archive(&entries), tensors, ..Written::default() }
}

pub(super) fn safetensors(draw: &mut Draw) -> Written {
    let tensors = with_axes(draw, &dtypes());
    let (mut items, mut texts) = (Vec::new(), BTreeMap::new());
    let mut data: Vec<u8> = Vec::new();
    if draw.one_in(2) {
        texts = drawn_texts(draw);
        let mut pairs = Vec::new();
        for (key, text) in &texts {
            pairs.push(format!("{}:{}", json_text(draw, key), json_text(draw, text)));
        }
        let pairs = shuffled(draw, pairs);
        items.push(format!("\"__metadata__\":{{{}}}", pairs.join(", ")));
    }
    for (name, array) in ordered(draw, &tensors) {
        let start = data.len();
        data.extend(array.stored(draw).bytes);
        let pairs = vec![
            format!("\"shape\": {:?}", array.shape),
            format!("\"data_offsets\":[{start}, {}]", data.len()),
            format!("\"dtype\":\"{}\"", names_of(array.dtype).safetensors),
        ];
        let pairs = shuffled(draw, pairs);
        items.push(format!("{}: {{{}}}", json_text(draw, name), pairs.join(",")));
    }
    // In another order than the data.
    let items = shuffled(draw, items);
    let text = format!("{{{}}}{}", items.join(","), " ".repeat(draw.below(9)));
    let bytes = [&(text.len() as u64).to_le_bytes()[..], text.as_bytes(), &data].concat();
    Written { bytes, tensors, texts, ..Written::default() }
}

/// Draws metadata of safetensors.
pub(super) fn drawn_texts(draw: &mut Draw) -> BTreeMap<String, String> {
    let pairs = [("format", "pt"), ("größe \"\n", "pt \"2\"\\\u{1}"), ("", "\u{1d11e}"), ("a", "")];
    let count = draw.below(pairs.len() + 1);
    let pairs = shuffled(draw, pairs.to_vec());
    pairs[..count].iter().map(|(key, text)| (key.to_string(), text.to_string())).collect()
}

/// The JSON text of a string, with or without escapes for all characters.
fn json_text(draw: &mut Draw, text: &str) -> String {
    if draw.one_in(2) {
        return serde_json::json!(text).to_string();
    }
    let units: String = text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect();
    format!("\"{units}\"")
}

/// Draws some tensors by name.
pub(super) fn drawn_arrays(draw: &mut Draw, dtypes: &[DType]) -> BTreeMap<String, Array> {
    let count = 1 + draw.below(3);
    let mut names = shuffled(draw, TENSORS.map(str::to_string).to_vec());
    if draw.one_in(16) {
        names[0] = "n".repeat(NAME_MAX);
    }
    names.into_iter().take(count).map(|name| (name, Array::draw(draw, dtypes))).collect()
}

/// Draws some tensors by name, of which some have further axes.
fn with_axes(draw: &mut Draw, dtypes: &[DType]) -> BTreeMap<String, Array> {
    let arrays = drawn_arrays(draw, dtypes);
    arrays.into_iter().map(|(name, array)| (name, array.with_axes(draw))).collect()
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
