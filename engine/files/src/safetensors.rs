//! Safetensors: the length of a header, the header in JSON, the data of the tensors without gaps.
//!
//! The header is read here, not by the crate `safetensors`: that needs all bytes in memory, takes
//! the last of two equal names, and writes metadata in the order of a hash map. Tests compare both.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;
use std::io::Write;
use std::path::Path;

use gradiff_graph::DType;
use gradiff_tensor::Tensor;
use serde::Deserialize;
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, Visitor};

use crate::Error;
use crate::error::{Problem, broken};
use crate::layout::{Layout, check_rank};
use crate::output::write_atomically;
use crate::source::{Budget, ENTRY_BYTES, MAX_NAME_BYTES, Source, TENSOR_BYTES, check_name};

/// The maximal length of a header, that of the format's definition.
const MAX_HEADER_BYTES: u64 = 100_000_000;

/// The factor by which the memory of the header may be larger than the file. A description of a
/// tensor without elements has about 50 bytes, and the tensor takes 1 KiB.
const MEMORY_FACTOR: u64 = 8;

/// The key of the metadata, which no tensor may have.
const METADATA: &str = "__metadata__";

/// Dtypes and their names, in the order of the crate `safetensors`, in which files are sorted.
const NAMES: [(DType, &str); 13] = [
    (DType::Bool, "BOOL"),
    (DType::U8, "U8"),
    (DType::I8, "I8"),
    (DType::I16, "I16"),
    (DType::U16, "U16"),
    (DType::F16, "F16"),
    (DType::BF16, "BF16"),
    (DType::I32, "I32"),
    (DType::U32, "U32"),
    (DType::F32, "F32"),
    (DType::F64, "F64"),
    (DType::I64, "I64"),
    (DType::U64, "U64"),
];

/// Reads all tensors of a safetensors file.
/// # Errors
/// If the file cannot be read, breaks a rule of the format, has a dtype that is not the engine's,
/// or needs much more memory than a file of its size should.
pub fn load_safetensors(path: impl AsRef<Path>) -> Result<BTreeMap<String, Tensor>, Error> {
    let path = path.as_ref();
    load(path).map_err(|problem| problem.at(path))
}

/// Reads the metadata of a safetensors file: texts by name.
/// # Errors
/// If the file cannot be read, or its header is broken.
pub fn load_safetensors_metadata(
    path: impl AsRef<Path>,
) -> Result<BTreeMap<String, String>, Error> {
    let path = path.as_ref();
    let header = Source::open(path).and_then(|mut source| Ok(read_header(&mut source)?.0));
    Ok(header.map_err(|problem| problem.at(path))?.metadata)
}

/// Writes tensors to a safetensors file, with the given metadata, if any. Computes the tensors
/// first. The file is replaced at once, and its bytes depend on the arguments alone.
///
/// ```
/// # use std::collections::BTreeMap;
/// # use gradiff_tensor::Tensor;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("model.safetensors");
/// let bias = Tensor::from_slice(&[3], &[0.5f32, 1.0, 1.5])?;
/// let tensors = BTreeMap::from([("bias".to_string(), bias)]);
/// let metadata = BTreeMap::from([("format".to_string(), "pt".to_string())]);
/// gradiff_files::save_safetensors(&tensors, &path, Some(&metadata))?;
/// assert_eq!(gradiff_files::load_safetensors_metadata(&path)?, metadata);
/// # Ok(())
/// # }
/// ```
/// # Errors
/// If a tensor cannot be computed, has more than 64 axes or a name of more than 4096 bytes, or is
/// called `__metadata__`, or the file cannot be written.
pub fn save_safetensors(
    tensors: &BTreeMap<String, Tensor>,
    path: impl AsRef<Path>,
    metadata: Option<&BTreeMap<String, String>>,
) -> Result<(), Error> {
    let path = path.as_ref();
    save(tensors, path, metadata).map_err(|problem| problem.at(path))
}

fn load(path: &Path) -> Result<BTreeMap<String, Tensor>, Problem> {
    let mut source = Source::open(path)?;
    let (header, data) = read_header(&mut source)?;
    let mut tensors = BTreeMap::new();
    let mut parts = Vec::new();
    for (name, entry) in header.entries {
        let (layout, begin, end) = entry.layout().map_err(|problem| problem.of_tensor(&name))?;
        parts.push((begin, end, name, layout));
    }
    parts.sort_by(|a, b| (a.0, a.1, &a.2).cmp(&(b.0, b.1, &b.2)));
    let size_bytes = source.size_bytes - data;
    let mut expected = 0;
    for (begin, end, name, _) in &parts {
        if *begin != expected || size_bytes < *end {
            return broken(format!(
                "its data is {begin}..{end} of {size_bytes} bytes, and must begin at {expected}, \
                 the end of the data before it"
            ))
            .map_err(|problem| problem.of_tensor(name));
        }
        expected = *end;
    }
    if expected != size_bytes {
        return broken(format!("the tensors end at {expected} of {size_bytes} bytes of data"));
    }
    for (begin, end, name, layout) in parts {
        let bytes = source.read_at(data + begin, end - begin)?;
        let tensor = layout.tensor(bytes).map_err(|problem| problem.of_tensor(&name))?;
        tensors.insert(name, tensor);
    }
    Ok(tensors)
}

/// Reads the header, and returns it with the offset of the data.
fn read_header(source: &mut Source) -> Result<(Header, u64), Problem> {
    let length = source.read_at(0, 8)?;
    let length = u64::from_le_bytes(length.try_into().expect("8 bytes were read"));
    if MAX_HEADER_BYTES < length {
        return broken(format!("a header of {length} bytes; {MAX_HEADER_BYTES} are allowed"));
    }
    let text = source.read_at(8, length)?;
    let mut json = serde_json::Deserializer::from_slice(&text);
    let visitor = HeaderVisitor { memory: Budget::new(source.size_bytes, MEMORY_FACTOR) };
    let header = json.deserialize_map(visitor).and_then(|header| json.end().map(|()| header));
    match header {
        Ok(header) => Ok((header, 8 + length)),
        Err(error) => broken(format!("the header: {error}")),
    }
}

/// The header of a file.
#[derive(Default)]
struct Header {
    metadata: BTreeMap<String, String>,
    entries: BTreeMap<String, Entry>,
}

/// The description of a tensor.
#[derive(Deserialize)]
struct Entry {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: (u64, u64),
}

impl Entry {
    /// Checks the description, and returns it with the range of the data.
    fn layout(&self) -> Result<(Layout, u64, u64), Problem> {
        let Some((dtype, _)) = NAMES.iter().find(|(_, name)| *name == self.dtype) else {
            let known: Vec<_> = NAMES.iter().map(|(_, name)| *name).collect();
            return broken(format!(
                "its dtype is {:?}; supported are {}",
                self.dtype,
                known.join(", ")
            ));
        };
        let layout = Layout::new(*dtype, &self.shape)?;
        let (begin, end) = self.data_offsets;
        if begin.checked_add(layout.size_bytes()) != Some(end) {
            return broken(format!(
                "{dtype}{:?} needs {} bytes, and its data is {begin}..{end}",
                self.shape,
                layout.size_bytes()
            ));
        }
        Ok((layout, begin, end))
    }
}

struct HeaderVisitor {
    /// The memory that the header may still take.
    memory: Budget,
}

impl<'de> Visitor<'de> for HeaderVisitor {
    type Value = Header;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of tensors by name")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Header, A::Error> {
        let mut header = Header::default();
        let mut has_metadata = false;
        while let Some(name) = map.next_key::<String>()? {
            if MAX_NAME_BYTES < name.len() as u64 {
                return Err(de::Error::custom(format!(
                    "a name of {} bytes; {MAX_NAME_BYTES} are allowed",
                    name.len()
                )));
            }
            let is_new = if name == METADATA {
                header.metadata = map.next_value_seed(Metadata(&mut self.memory))?;
                !std::mem::replace(&mut has_metadata, true)
            } else {
                let entry: Entry = map
                    .next_value()
                    .map_err(|error| de::Error::custom(format!("tensor {name:?}: {error}")))?;
                let size_bytes = name.len() + size_of_val(&entry.shape[..]);
                spend::<A::Error>(&mut self.memory, TENSOR_BYTES + size_bytes as u64)?;
                header.entries.insert(name.clone(), entry).is_none()
            };
            if !is_new {
                return Err(de::Error::custom(format!("the name {name:?} is there twice")));
            }
        }
        Ok(header)
    }
}

/// The metadata, whose items take memory from a budget.
struct Metadata<'a>(&'a mut Budget);

impl<'de> DeserializeSeed<'de> for Metadata<'_> {
    type Value = BTreeMap<String, String>;

    fn deserialize<D: Deserializer<'de>>(
        self,
        deserializer: D,
    ) -> Result<BTreeMap<String, String>, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Metadata<'_> {
    type Value = BTreeMap<String, String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of texts by name")
    }

    fn visit_map<A: MapAccess<'de>>(
        self,
        mut map: A,
    ) -> Result<BTreeMap<String, String>, A::Error> {
        let mut metadata = BTreeMap::new();
        while let Some((name, text)) = map.next_entry::<String, String>()? {
            spend::<A::Error>(self.0, ENTRY_BYTES + (name.len() + text.len()) as u64)?;
            metadata.insert(name, text);
        }
        Ok(metadata)
    }
}

/// Takes memory from the budget of a header.
fn spend<E: de::Error>(memory: &mut Budget, size_bytes: u64) -> Result<(), E> {
    match memory.take(size_bytes) {
        true => Ok(()),
        false => Err(E::custom("it needs too much memory for a file of this size")),
    }
}

fn save(
    tensors: &BTreeMap<String, Tensor>,
    path: &Path,
    metadata: Option<&BTreeMap<String, String>>,
) -> Result<(), Problem> {
    if tensors.contains_key(METADATA) {
        return broken("a tensor may not have the name of the metadata; rename it")
            .map_err(|problem| problem.of_tensor(METADATA));
    }
    // The order of the crate `safetensors`: the largest elements first, so that all are aligned.
    let mut ordered: Vec<_> = tensors.iter().collect();
    ordered.sort_by_key(|(name, tensor)| (Reverse(order_of(tensor.dtype())), *name));
    let header = header_text(&ordered, metadata)?;
    gradiff_tensor::realize(&tensors.values().collect::<Vec<_>>())?;
    write_atomically(path, |writer| {
        writer.write_all(&(header.len() as u64).to_le_bytes())?;
        writer.write_all(header.as_bytes())?;
        for (name, tensor) in &ordered {
            let bytes = tensor.to_bytes().map_err(|error| Problem::from(error).of_tensor(name))?;
            writer.write_all(&bytes)?;
        }
        Ok(())
    })
}

/// The row of a dtype in [`NAMES`].
fn order_of(dtype: DType) -> usize {
    let row = NAMES.iter().position(|(known, _)| *known == dtype);
    row.expect("a tensor has a dtype of data")
}

fn header_text(
    tensors: &[(&String, &Tensor)],
    metadata: Option<&BTreeMap<String, String>>,
) -> Result<String, Problem> {
    let mut items = Vec::new();
    if let Some(metadata) = metadata {
        items.push(format!("{}:{}", quote(METADATA), serde_json::json!(metadata)));
    }
    let mut offset = 0u64;
    for (name, tensor) in tensors {
        check_name(name)?;
        check_rank(tensor.rank()).map_err(|problem| problem.of_tensor(name))?;
        let (dtype, dtype_name) = NAMES[order_of(tensor.dtype())];
        let size_bytes = tensor.size_elements() as u64 * dtype.size_bytes() as u64;
        let end = offset.checked_add(size_bytes);
        let end = end.ok_or_else(|| Problem::File("the tensors are too large".to_string()))?;
        let shape: Vec<String> = tensor.shape().iter().map(i64::to_string).collect();
        items.push(format!(
            "{}:{{\"dtype\":\"{dtype_name}\",\"shape\":[{}],\"data_offsets\":[{offset},{end}]}}",
            quote(name),
            shape.join(",")
        ));
        offset = end;
    }
    let mut text = format!("{{{}}}", items.join(","));
    text.push_str(&" ".repeat(text.len().next_multiple_of(8) - text.len()));
    if MAX_HEADER_BYTES < text.len() as u64 {
        return broken(format!(
            "the header has {} bytes; {MAX_HEADER_BYTES} are allowed",
            text.len()
        ));
    }
    Ok(text)
}

/// The JSON text of a string.
fn quote(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
