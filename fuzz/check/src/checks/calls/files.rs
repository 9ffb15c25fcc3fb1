//! Files of tensors. Those that are written here, byte by byte after the definitions of the
//! formats, are read; those that are saved are read here, after the same definitions.

mod written;

use std::collections::BTreeMap;
use std::path::Path;

use gradiff::files::{
    Error, GgufValue, load_gguf, load_npy, load_npz, load_safetensors, load_safetensors_metadata,
    load_torch, save_npy, save_npz, save_safetensors,
};
use gradiff::{DType, Tensor};

use super::Draw;
use super::values::dtypes;
use written::{crc, drawn_arrays, gguf, npy, npy_text, npz, safetensors, torch};

/// A file that is saved is synchronised with the disk, so only one call in this many saves one.
const SAVES_ONE_IN: usize = 4;

const FORMATS: [Format; 5] =
    [Format::Npy, Format::Npz, Format::Safetensors, Format::Gguf, Format::Torch];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Format {
    Npy,
    Npz,
    Safetensors,
    Gguf,
    Torch,
}

/// The names of a dtype in the formats; empty where there is none.
struct Names {
    dtype: DType,
    /// Without the order of bytes.
    numpy: &'static str,
    safetensors: &'static str,
    torch: &'static str,
    /// The class of PyTorch's storages.
    storage: &'static str,
}

const NAMES: [Names; 13] = [
    names(DType::Bool, "b1", "BOOL", "bool", "BoolStorage"),
    names(DType::I8, "i1", "I8", "int8", "CharStorage"),
    names(DType::U8, "u1", "U8", "uint8", "ByteStorage"),
    names(DType::I16, "i2", "I16", "int16", "ShortStorage"),
    names(DType::U16, "u2", "U16", "uint16", ""),
    names(DType::I32, "i4", "I32", "int32", "IntStorage"),
    names(DType::U32, "u4", "U32", "uint32", ""),
    names(DType::I64, "i8", "I64", "int64", "LongStorage"),
    names(DType::U64, "u8", "U64", "uint64", ""),
    names(DType::F16, "f2", "F16", "float16", "HalfStorage"),
    names(DType::BF16, "", "BF16", "bfloat16", "BFloat16Storage"),
    names(DType::F32, "f4", "F32", "float32", "FloatStorage"),
    names(DType::F64, "f8", "F64", "float64", "DoubleStorage"),
];

const fn names(
    dtype: DType,
    numpy: &'static str,
    safetensors: &'static str,
    torch: &'static str,
    storage: &'static str,
) -> Names {
    Names { dtype, numpy, safetensors, torch, storage }
}

/// The names of a dtype.
fn names_of(dtype: DType) -> &'static Names {
    NAMES.iter().find(|names| names.dtype == dtype).expect("every dtype of data has a row")
}

/// The dtypes of NumPy.
fn numpy_dtypes() -> Vec<DType> {
    dtypes().into_iter().filter(|dtype| !names_of(*dtype).numpy.is_empty()).collect()
}

/// A tensor: its bytes are those of the elements, row-major and little endian.
#[derive(Clone, Debug, PartialEq)]
struct Array {
    dtype: DType,
    shape: Vec<i64>,
    bytes: Vec<u8>,
}

impl Array {
    /// Draws any bits of one of these dtypes.
    fn draw(draw: &mut Draw, dtypes: &[DType]) -> Array {
        let dtype = draw.pick(dtypes);
        let rank = draw.below(4);
        let shape: Vec<i64> = (0..rank).map(|_| draw.pick(&[2, 3, 1, 4, 5, 0])).collect();
        let count = shape.iter().product::<i64>() as usize;
        Array { dtype, shape, bytes: drawn_bytes(draw, dtype, count) }
    }

    /// Reads a tensor.
    fn read(tensor: &Tensor) -> Result<Array, String> {
        let bytes = tensor.to_bytes().map_err(|error| error.to_string())?;
        Ok(Array { dtype: tensor.dtype(), shape: tensor.shape().to_vec(), bytes })
    }

    fn count(&self) -> usize {
        self.bytes.len() / self.dtype.size_bytes()
    }

    /// The bytes of the elements in the order in which the first axis varies fastest.
    fn column_major(&self) -> Vec<u8> {
        let size = self.dtype.size_bytes();
        let mut found = Vec::with_capacity(self.bytes.len());
        for number in 0..self.count() {
            let (mut rest, mut address, mut stride) = (number, 0, self.count());
            for axis_size in &self.shape {
                let axis_size = *axis_size as usize;
                stride /= axis_size;
                address += rest % axis_size * stride;
                rest /= axis_size;
            }
            found.extend(&self.bytes[address * size..][..size]);
        }
        found
    }
}

/// Draws the bytes of so many elements.
fn drawn_bytes(draw: &mut Draw, dtype: DType, count: usize) -> Vec<u8> {
    let bound = if dtype == DType::Bool { 2 } else { 256 };
    (0..count * dtype.size_bytes()).map(|_| draw.below(bound) as u8).collect()
}

/// Reverses the bytes of each element.
fn swap(bytes: &mut [u8], dtype: DType) {
    bytes.chunks_exact_mut(dtype.size_bytes()).for_each(<[u8]>::reverse);
}

/// A file that was written here, and its contents.
#[derive(Default)]
struct Written {
    bytes: Vec<u8>,
    tensors: BTreeMap<String, Array>,
    /// The metadata of safetensors.
    texts: BTreeMap<String, String>,
    /// The metadata of GGUF.
    values: BTreeMap<String, GgufValue>,
}

/// Draws a file of some format, and reads it; or tensors, and saves them.
pub(super) fn round_trips(draw: &mut Draw) -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let path = folder.path().join("tensors");
    if draw.one_in(SAVES_ONE_IN) {
        return saved(draw, &path);
    }
    let format = draw.pick(&FORMATS);
    let mut written = match format {
        Format::Npy => npy(draw),
        Format::Npz => npz(draw),
        Format::Safetensors => safetensors(draw),
        Format::Gguf => gguf(draw),
        Format::Torch => torch(draw),
    };
    std::fs::write(&path, &written.bytes).map_err(|error| error.to_string())?;
    let problem = |problem: String| format!("{format:?}: {problem}");
    agrees(format, &path, &written).map_err(problem)?;
    if draw.one_in(4) && !written.bytes.is_empty() {
        // Whatever it is now, reading it does not panic.
        let at = draw.below(written.bytes.len());
        written.bytes[at] ^= 1 << draw.below(8);
        std::fs::write(&path, &written.bytes).map_err(|error| error.to_string())?;
        drop(loaded(format, &path));
    }
    Ok(())
}

/// Reads the tensors of a file; the single one of `.npy` has no name.
fn loaded(format: Format, path: &Path) -> Result<BTreeMap<String, Tensor>, Error> {
    match format {
        Format::Npy => Ok(BTreeMap::from([(String::new(), load_npy(path)?)])),
        Format::Npz => load_npz(path),
        Format::Safetensors => load_safetensors(path),
        Format::Gguf => Ok(load_gguf(path)?.1),
        Format::Torch => load_torch(path),
    }
}

/// Reads a file, and compares what it has with what was written.
fn agrees(format: Format, path: &Path, written: &Written) -> Result<(), String> {
    let problem = |error: Error| error.to_string();
    let tensors = loaded(format, path).map_err(problem)?;
    let mut found = BTreeMap::new();
    for (name, tensor) in &tensors {
        found.insert(name.clone(), Array::read(tensor)?);
    }
    if found != written.tensors {
        return Err(format!("it has {found:?}, not {:?}", written.tensors));
    }
    if format == Format::Safetensors {
        let texts = load_safetensors_metadata(path).map_err(problem)?;
        if texts != written.texts {
            return Err(format!("its metadata is {texts:?}, not {:?}", written.texts));
        }
    }
    if format == Format::Gguf {
        let (values, _) = load_gguf(path).map_err(problem)?;
        if values != written.values {
            return Err(format!("its metadata is {values:?}, not {:?}", written.values));
        }
    }
    Ok(())
}

/// Draws tensors, of which some are not computed yet, saves them and reads the file.
fn saved(draw: &mut Draw, path: &Path) -> Result<(), String> {
    let format = draw.pick(&[Format::Npy, Format::Npz, Format::Safetensors]);
    let dtypes = if format == Format::Safetensors { dtypes() } else { numpy_dtypes() };
    let mut arrays = drawn_arrays(draw, &dtypes);
    let mut tensors = BTreeMap::new();
    for (name, array) in &mut arrays {
        tensors.insert(name.clone(), tensor(draw, array).map_err(|error| error.to_string())?);
    }
    let texts = BTreeMap::from([("format".to_string(), "pt \"2\"".to_string())]);
    let texts = Some(texts).filter(|_| draw.one_in(2));
    let (name, array) = arrays.first_key_value().expect("there are some");
    let written = match format {
        Format::Npy => save_npy(&tensors[name], path),
        Format::Npz => save_npz(&tensors, path),
        _ => save_safetensors(&tensors, path, texts.as_ref()),
    };
    let problem = |problem: String| format!("saved {format:?}: {problem}");
    written.map_err(|error| problem(error.to_string()))?;
    let bytes = std::fs::read(path).map_err(|error| error.to_string())?;
    let is_right = match format {
        Format::Npy => is_npy(&bytes, array),
        Format::Npz => is_npz(&bytes, &arrays),
        _ => is_safetensors(&bytes, &arrays, texts.as_ref()).unwrap_or(false),
    };
    if !is_right {
        return Err(problem(format!("{bytes:?} is not the file of {arrays:?}")));
    }
    let tensors = match format {
        Format::Npy => BTreeMap::from([(String::new(), array.clone())]),
        _ => arrays,
    };
    let texts = texts.unwrap_or_default();
    agrees(format, path, &Written { tensors, texts, ..Written::default() }).map_err(problem)
}

/// The tensor of an array; or, if its elements are integers, at times a tensor of them in reverse
/// that is not computed yet, to which the array is changed.
fn tensor(draw: &mut Draw, array: &mut Array) -> Result<Tensor, gradiff::Error> {
    let data = Tensor::from_bytes(array.dtype, &array.shape, &array.bytes)?;
    if array.dtype.is_float() || array.count() == 0 || array.shape.is_empty() || draw.one_in(2) {
        return Ok(data);
    }
    let row_bytes = array.bytes.len() / array.shape[0] as usize;
    array.bytes = array.bytes.chunks_exact(row_bytes).rev().flatten().copied().collect();
    data.to("interp")?.flip(&[0])
}

/// Returns whether this is version 1 of the `.npy` file of an array, as NumPy writes it.
fn is_npy(bytes: &[u8], array: &Array) -> bool {
    let rest = bytes.strip_prefix(b"\x93NUMPY\x01\x00".as_slice());
    let Some((length, rest)) = rest.and_then(|rest| rest.split_first_chunk::<2>()) else {
        return false;
    };
    let length = usize::from(u16::from_le_bytes(*length));
    let Some((text, data)) = rest.split_at_checked(length) else { return false };
    let order = if array.dtype.size_bytes() == 1 { '|' } else { '<' };
    let is_padded = (10 + length).is_multiple_of(64) && text.ends_with(b"\n");
    is_padded
        && text.trim_ascii_end() == npy_text(array, order, false).as_bytes()
        && data == array.bytes
}

/// Returns whether this is a zip archive, without compression, of the `.npy` files of arrays.
fn is_npz(bytes: &[u8], arrays: &BTreeMap<String, Array>) -> bool {
    let Some(entries) = unzipped(bytes) else { return false };
    let has = |(name, array): (&String, &Array)| {
        entries.get(&format!("{name}.npy")).is_some_and(|entry| is_npy(entry, array))
    };
    entries.len() == arrays.len() && arrays.iter().all(has)
}

/// The entries of a zip archive without compression and comments; `None` if it is none.
fn unzipped(bytes: &[u8]) -> Option<BTreeMap<String, &[u8]>> {
    let word = |at: usize, size: usize| {
        let bytes = bytes.get(at..at + size)?;
        Some(bytes.iter().rev().fold(0, |word, byte| word << 8 | usize::from(*byte)))
    };
    let end = bytes.len().checked_sub(22)?;
    let mut at = word(end + 16, 4)?;
    let mut entries = BTreeMap::new();
    for _ in 0..word(end + 10, 2)? {
        let is_stored = bytes.get(at..)?.starts_with(b"PK\x01\x02") && word(at + 10, 2)? == 0;
        let (crc_here, size, name_size) = (word(at + 16, 4)?, word(at + 24, 4)?, word(at + 28, 2)?);
        let name = std::str::from_utf8(bytes.get(at + 46..at + 46 + name_size)?).ok()?;
        let local = word(at + 42, 4)?;
        let is_local = bytes.get(local..)?.starts_with(b"PK\x03\x04");
        let start = local + 30 + word(local + 26, 2)? + word(local + 28, 2)?;
        let data = bytes.get(start..start + size)?;
        if !is_stored || !is_local || crc(data) as usize != crc_here {
            return None;
        }
        entries.insert(name.to_string(), data);
        at += 46 + name_size + word(at + 30, 2)? + word(at + 32, 2)?;
    }
    (at == end).then_some(entries)
}

/// Returns whether this is the safetensors file of arrays, whose data is without gaps and aligned;
/// `None` if it has no header.
fn is_safetensors(
    bytes: &[u8],
    arrays: &BTreeMap<String, Array>,
    texts: Option<&BTreeMap<String, String>>,
) -> Option<bool> {
    let (length, rest) = bytes.split_first_chunk::<8>()?;
    let (text, data) = rest.split_at_checked(u64::from_le_bytes(*length) as usize)?;
    let header: serde_json::Value = serde_json::from_slice(text).ok()?;
    for (name, array) in arrays {
        let entry = &header[name.as_str()];
        let start = entry["data_offsets"][0].as_u64()? as usize;
        let end = start + array.bytes.len();
        let wanted = serde_json::json!({
            "dtype": names_of(array.dtype).safetensors,
            "shape": array.shape,
            "data_offsets": [start, end],
        });
        let is_aligned = (8 + text.len() + start).is_multiple_of(array.dtype.size_bytes());
        if *entry != wanted || !is_aligned || data.get(start..end)? != array.bytes {
            return Some(false);
        }
    }
    let count = arrays.len() + usize::from(texts.is_some());
    let has_texts = texts.is_none_or(|texts| header["__metadata__"] == serde_json::json!(texts));
    let size_bytes: usize = arrays.values().map(|array| array.bytes.len()).sum();
    Some(has_texts && header.as_object()?.len() == count && size_bytes == data.len())
}

#[cfg(test)]
mod tests {
    use super::written::zip;
    use super::*;

    #[test]
    fn files_are_read_as_they_were_written() {
        for seed in 0..100 {
            round_trips(&mut Draw::new(seed)).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        }
    }

    /// Each format is drawn, and an element that is changed in the file is noticed.
    #[test]
    fn changed_elements_are_noticed() {
        let writers = [npy, npz, safetensors, gguf, torch];
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("tensors");
        for (format, writer) in FORMATS.into_iter().zip(writers) {
            let mut written = (0..).map(|seed| writer(&mut Draw::new(seed))).find(has_elements);
            let written = written.as_mut().expect("some seed has elements");
            std::fs::write(&path, &written.bytes).expect("it can be written");
            assert_eq!(agrees(format, &path, written), Ok(()), "{format:?}");
            let array = written.tensors.values_mut().find(|array| array.count() > 0);
            let bytes = &mut array.expect("it has elements").bytes;
            bytes[0] ^= 1;
            assert!(agrees(format, &path, written).is_err(), "{format:?}");
        }
    }

    /// A type that is not read, or as another one, is noticed if it is drawn.
    #[test]
    fn every_type_of_metadata_is_drawn() {
        fn collect(value: &GgufValue, kinds: &mut Vec<std::mem::Discriminant<GgufValue>>) {
            kinds.push(std::mem::discriminant(value));
            if let GgufValue::Array(items) = value {
                items.iter().for_each(|item| collect(item, kinds));
            }
        }
        let (mut kinds, mut empty) = (Vec::new(), 0);
        for file in (0..40).map(|seed| gguf(&mut Draw::new(seed))) {
            file.values.values().for_each(|value| collect(value, &mut kinds));
            let is_empty = |value: &&GgufValue| **value == GgufValue::Array(Vec::new());
            empty += file.values.values().filter(is_empty).count();
        }
        let is_first = |at: &usize| !kinds[..*at].contains(&kinds[*at]);
        assert_eq!((0..kinds.len()).filter(is_first).count(), 13);
        assert!(0 < empty);
    }

    fn has_elements(file: &Written) -> bool {
        file.tensors.values().any(|array| array.count() > 0)
    }

    #[test]
    fn wrong_files_are_refused() {
        let array = Array { dtype: DType::I16, shape: vec![2], bytes: vec![1, 0, 2, 0] };
        let arrays = BTreeMap::from([("w".to_string(), array.clone())]);
        let text = npy_text(&array, '<', false);
        let padded = format!("{text}{}\n", " ".repeat(118 - 1 - text.len()));
        let header = [b"\x93NUMPY\x01\x00".as_slice(), &118u16.to_le_bytes(), padded.as_bytes()];
        let file = [header.concat(), array.bytes.clone()].concat();
        assert!(is_npy(&file, &array) && !is_npy(&file[..file.len() - 1], &array));
        let archive = zip(&[("w.npy".to_string(), file.clone())]);
        assert!(is_npz(&archive, &arrays));
        let mut damaged = archive.clone();
        damaged[40] ^= 1;
        assert!(!is_npz(&damaged, &arrays) && !is_npz(&zip(&[]), &arrays));
        let entry = r#"{"w":{"dtype":"I16","shape":[2],"data_offsets":[0,4]}}  "#;
        let length = (entry.len() as u64).to_le_bytes();
        let file = [&length[..], entry.as_bytes(), &array.bytes].concat();
        assert_eq!(is_safetensors(&file, &arrays, None), Some(true));
        let longer = [&file[..], &[0]].concat();
        assert_eq!(is_safetensors(&longer, &arrays, None), Some(false));
    }
}
