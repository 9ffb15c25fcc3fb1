//! Files of tensors. Those that are written here, byte by byte after the definitions of the
//! formats, are read, or refused if they are wrong; those that are saved are read here, after the
//! same definitions.

mod blocks;
mod checkpoints;
mod gguf;
mod pickles;
mod refused;
mod saves;
mod written;
mod zips;

use std::collections::BTreeMap;
use std::path::Path;

use gradiff::files::{
    Error, GgufValue, load_gguf, load_npy, load_npz, load_safetensors, load_safetensors_metadata,
    load_torch,
};
use gradiff::{DType, Tensor};

use super::Draw;
use super::values::dtypes;
use checkpoints::torch;
use gguf::{check_accessors, gguf};
use written::{RANK_MAX, npy, npz, safetensors};

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
    /// Draws any bits of one of these dtypes, or zeros, which compression makes few bytes.
    fn draw(draw: &mut Draw, dtypes: &[DType]) -> Array {
        let dtype = draw.pick(dtypes);
        if draw.one_in(64) {
            return Array { dtype, shape: vec![5000], bytes: vec![0; 5000 * dtype.size_bytes()] };
        }
        let rank = draw.below(4);
        let shape: Vec<i64> = (0..rank).map(|_| draw.pick(&[2, 3, 1, 4, 5, 0])).collect();
        let count = shape.iter().product::<i64>() as usize;
        Array { dtype, shape, bytes: drawn_bytes(draw, dtype, count) }
    }

    /// The array, at times with further axes of size 1, up to as many as there may be.
    fn with_axes(mut self, draw: &mut Draw) -> Array {
        let rank = if draw.one_in(10) { draw.pick(&[4, 7, RANK_MAX]) } else { 0 };
        while self.shape.len() < rank {
            let axis = draw.below(self.shape.len() + 1);
            self.shape.insert(axis, 1);
        }
        self
    }

    /// The array as a file may have it: in place of true, any byte but 0.
    fn stored(&self, draw: &mut Draw) -> Array {
        let mut stored = self.clone();
        if self.dtype == DType::Bool && draw.one_in(2) {
            let set = stored.bytes.iter_mut().filter(|byte| **byte == 1);
            set.for_each(|byte| *byte = 1 + draw.below(255) as u8);
        }
        stored
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

/// The items in any order.
fn shuffled<T>(draw: &mut Draw, mut items: Vec<T>) -> Vec<T> {
    for last in (1..items.len()).rev() {
        items.swap(last, draw.below(last + 1));
    }
    items
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
        return saves::saved(draw, folder.path());
    }
    let format = draw.pick(&FORMATS);
    let mut written = match format {
        Format::Npy => npy(draw),
        Format::Npz => npz(draw),
        Format::Safetensors => safetensors(draw),
        Format::Gguf => gguf(draw),
        Format::Torch => torch(draw),
    };
    check_written(format, &path, &written)?;
    if draw.one_in(4) && !written.bytes.is_empty() {
        // Whatever it is now, reading it does not panic.
        let at = draw.below(written.bytes.len());
        written.bytes[at] ^= 1 << draw.below(8);
        std::fs::write(&path, &written.bytes).map_err(|error| error.to_string())?;
        drop(loaded(format, &path));
    }
    Ok(())
}

/// Draws a file of GGUF that has a tensor of each quantised type, and reads it.
pub(super) fn quantised(draw: &mut Draw) -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    check_written(Format::Gguf, &folder.path().join("tensors"), &blocks::file(draw))
}

/// Draws a checkpoint of PyTorch whose tensors share storages, and reads it.
pub(super) fn checkpoints(draw: &mut Draw) -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    checkpoints::check(draw, &folder.path().join("tensors"))
}

/// Reads files that must be refused; at times saves tensors that must not be saved.
pub(super) fn refusals(draw: &mut Draw) -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    match draw.one_in(6) {
        true => saves::refused(folder.path()),
        false => refused::check(draw, folder.path()),
    }
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

/// Returns whether an error is a refusal of the file at this path that has a reason.
fn is_refusal(error: &Error, at: &Path) -> bool {
    matches!(error, Error::File { path, problem } | Error::Tensor { path, problem, .. }
        if path == at && !problem.is_empty())
}

/// Writes a file, and checks that it is read as it was written.
fn check_written(format: Format, path: &Path, written: &Written) -> Result<(), String> {
    std::fs::write(path, &written.bytes).map_err(|error| error.to_string())?;
    agrees(format, path, written).map_err(|problem| format!("{format:?}: {problem}"))
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
        values.values().try_for_each(check_accessors)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_as_they_were_written() {
        for seed in 0..100 {
            round_trips(&mut Draw::new(seed)).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        }
    }

    #[test]
    fn rows_of_files_hold() {
        for seed in 0..100 {
            for check in [quantised, checkpoints, refusals] {
                check(&mut Draw::new(seed)).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
            }
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
            assert_eq!(check_written(format, &path, written), Ok(()));
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
}
