//! GGUF, the format of llama.cpp: metadata, descriptions of tensors, aligned data.

use std::collections::BTreeMap;
use std::io::{BufReader, Read};
use std::path::Path;

use gradiff_graph::DType;
use gradiff_tensor::Tensor;

use crate::Error;
use crate::error::{Problem, broken};
use crate::layout::Layout;
use crate::quantized::{FORMATS, Format, decode};
use crate::source::{Budget, ENTRY_BYTES, Source, TENSOR_BYTES, check_name, read_exactly, reserve};

/// The maximal size of metadata and descriptions. Those of large models have a few ten MiB.
const MAX_HEADER_BYTES: u64 = 64 << 20;

/// The factor by which the memory of metadata may be larger than the file. An array of 4-byte
/// numbers takes 8 times its bytes.
const MEMORY_FACTOR: u64 = 8;

/// The maximal nesting of arrays in the metadata.
const MAX_DEPTH: usize = 8;

/// The maximal number of axes; llama.cpp has 4.
const MAX_RANK: u32 = 8;

/// The alignment of data if the metadata does not say another.
const DEFAULT_ALIGNMENT: u64 = 32;

/// Types of elements that are read as they are: the number of the type in GGUF, and its dtype.
const PLAIN: [(u32, DType); 8] = [
    (0, DType::F32),
    (1, DType::F16),
    (24, DType::I8),
    (25, DType::I16),
    (26, DType::I32),
    (27, DType::I64),
    (28, DType::F64),
    (30, DType::BF16),
];

/// Names of types that are not supported, for messages.
const UNSUPPORTED: [(u32, &str); 17] = [
    (9, "Q8_1"),
    (10, "Q2_K"),
    (11, "Q3_K"),
    (15, "Q8_K"),
    (16, "IQ2_XXS"),
    (17, "IQ2_XS"),
    (18, "IQ3_XXS"),
    (19, "IQ1_S"),
    (20, "IQ4_NL"),
    (21, "IQ3_S"),
    (22, "IQ2_S"),
    (23, "IQ4_XS"),
    (29, "IQ1_M"),
    (34, "TQ1_0"),
    (35, "TQ2_0"),
    (39, "MXFP4"),
    (40, "NVFP4"),
];

/// A value of the metadata of a GGUF file.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "each variant is the type of its value")]
pub enum GgufValue {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    Text(String),
    Array(Vec<GgufValue>),
    U64(u64),
    I64(i64),
    F64(f64),
}

impl GgufValue {
    /// The value of an integer of any type that i64 can represent.
    pub fn as_i64(&self) -> Option<i64> {
        match self {
            GgufValue::U8(value) => Some(i64::from(*value)),
            GgufValue::I8(value) => Some(i64::from(*value)),
            GgufValue::U16(value) => Some(i64::from(*value)),
            GgufValue::I16(value) => Some(i64::from(*value)),
            GgufValue::U32(value) => Some(i64::from(*value)),
            GgufValue::I32(value) => Some(i64::from(*value)),
            GgufValue::U64(value) => i64::try_from(*value).ok(),
            GgufValue::I64(value) => Some(*value),
            _ => None,
        }
    }

    /// The value of a text.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            GgufValue::Text(text) => Some(text),
            _ => None,
        }
    }
}

/// The metadata and the tensors of a GGUF file, by name.
pub type GgufContents = (BTreeMap<String, GgufValue>, BTreeMap<String, Tensor>);

/// Reads the metadata and the tensors of a GGUF file, version 2 or 3, little endian. Sizes are
/// outermost first, as the engine's. Quantised tensors (`Q4_0`, `Q4_1`, `Q5_0`, `Q5_1`, `Q8_0`,
/// `Q4_K`, `Q5_K`, `Q6_K`) become f32.
///
/// ```no_run
/// let (metadata, tensors) = gradiff_files::load_gguf("model.gguf")?;
/// let architecture = metadata.get("general.architecture").and_then(|value| value.as_str());
/// println!("{architecture:?}: {} tensors", tensors.len());
/// # Ok::<(), gradiff_files::Error>(())
/// ```
/// # Errors
/// If the file cannot be read, is broken, or has tensors of other types.
pub fn load_gguf(path: impl AsRef<Path>) -> Result<GgufContents, Error> {
    let path = path.as_ref();
    load(path).map_err(|problem| problem.at(path))
}

fn load(path: &Path) -> Result<GgufContents, Problem> {
    let mut source = Source::open(path)?;
    let mut header = Header {
        left: source.size_bytes.min(MAX_HEADER_BYTES),
        position: 0,
        memory: Budget::new(source.size_bytes, MEMORY_FACTOR),
        reader: BufReader::new(&source.file),
    };
    if header.array::<4>()? != *b"GGUF" {
        return broken("this is no GGUF file: it does not begin with GGUF");
    }
    match header.u32()? {
        2 | 3 => {}
        version if version.swap_bytes() <= 3 => return broken("big-endian GGUF is not supported"),
        version => return broken(format!("version {version} of GGUF; 2 and 3 are supported")),
    }
    let (tensor_count, value_count) = (header.u64()?, header.u64()?);
    // A description has 24 bytes at least, a value of the metadata 13.
    header.check_count(tensor_count, 24)?;
    header.check_count(value_count, 13)?;
    let mut metadata = BTreeMap::new();
    for _ in 0..value_count {
        header.spend(ENTRY_BYTES)?;
        let key = header.name()?;
        let kind = header.u32()?;
        let value = header.value(kind, 0)?;
        if metadata.insert(key.clone(), value).is_some() {
            return broken(format!("the key {key:?} is there twice"));
        }
    }
    let mut descriptions = BTreeMap::new();
    for _ in 0..tensor_count {
        header.spend(TENSOR_BYTES)?;
        let name = header.name()?;
        let description = header.description().map_err(|problem| problem.of_tensor(&name))?;
        if descriptions.insert(name.clone(), description).is_some() {
            return broken(format!("the name {name:?} is there twice"));
        }
    }
    let alignment = alignment_of(&metadata)?;
    let data = header.position.next_multiple_of(alignment);
    check_disjoint(&descriptions, alignment)?;
    let mut tensors = BTreeMap::new();
    for (name, description) in descriptions {
        let tensor = description.read(&mut source, data);
        tensors.insert(name.clone(), tensor.map_err(|problem| problem.of_tensor(&name))?);
    }
    Ok((metadata, tensors))
}

fn alignment_of(metadata: &BTreeMap<String, GgufValue>) -> Result<u64, Problem> {
    match metadata.get("general.alignment") {
        None => Ok(DEFAULT_ALIGNMENT),
        Some(GgufValue::U32(value)) if *value != 0 && value.is_multiple_of(8) => {
            Ok(u64::from(*value))
        }
        Some(value) => {
            let text = value.as_i64().map_or("no integer".to_string(), |value| value.to_string());
            broken(format!("general.alignment is {text}; it must be a u32 that is a multiple of 8"))
        }
    }
}

/// Checks that the data of tensors is aligned, and that no two have a byte in common.
fn check_disjoint(
    descriptions: &BTreeMap<String, Description>,
    alignment: u64,
) -> Result<(), Problem> {
    let mut ranges: Vec<_> = descriptions
        .iter()
        .map(|(name, description)| (description.offset, description.size_bytes, name))
        .collect();
    ranges.sort_unstable();
    let mut end = 0u64;
    for (offset, size_bytes, name) in ranges {
        if !offset.is_multiple_of(alignment) || (offset < end && size_bytes != 0) {
            return broken(format!(
                "its data at {offset} is not aligned to {alignment}, or overlaps the data before it"
            ))
            .map_err(|problem| problem.of_tensor(name));
        }
        end = end.max(offset.saturating_add(size_bytes));
    }
    Ok(())
}

/// The description of a tensor.
struct Description {
    /// The shape, and the dtype that the tensor is read as.
    layout: Layout,
    /// The format of the blocks of a quantised tensor.
    format: Option<&'static Format>,
    /// The offset from the start of the data of all tensors.
    offset: u64,
    size_bytes: u64,
}

impl Description {
    fn new(sizes: &[u64], kind: u32, offset: u64) -> Result<Description, Problem> {
        if let Some((_, dtype)) = PLAIN.iter().find(|(known, _)| *known == kind) {
            let layout = Layout::new(*dtype, sizes)?;
            let size_bytes = layout.size_bytes();
            return Ok(Description { layout, format: None, offset, size_bytes });
        }
        let Some(format) = FORMATS.iter().find(|format| format.id == kind) else {
            let known = UNSUPPORTED.iter().find(|(known, _)| *known == kind);
            let name = known.map_or_else(|| kind.to_string(), |(_, name)| name.to_string());
            return broken(format!("its type {name} is not supported"));
        };
        let layout = Layout::new(DType::F32, sizes)?;
        let row = sizes.last().copied().unwrap_or(1);
        if !row.is_multiple_of(format.block_elements) {
            return broken(format!(
                "its rows have {row} elements, and {} has blocks of {}",
                format.name, format.block_elements
            ));
        }
        let size_bytes = layout.size_elements / format.block_elements * format.block_bytes;
        Ok(Description { layout, format: Some(format), offset, size_bytes })
    }

    /// Reads the tensor from the data of all tensors, which begins at `data`.
    fn read(&self, source: &mut Source, data: u64) -> Result<Tensor, Problem> {
        let start = data.saturating_add(self.offset);
        let bytes = source.read_at(start, self.size_bytes)?;
        let Some(format) = self.format else {
            return self.layout.tensor(bytes);
        };
        let mut elements = reserve(self.layout.size_bytes())?;
        decode(format, &bytes, &mut elements);
        self.layout.tensor(elements)
    }
}

/// The reader of everything before the data.
struct Header<'a> {
    reader: BufReader<&'a std::fs::File>,
    position: u64,
    /// The number of bytes that may still be read.
    left: u64,
    /// The memory that metadata and descriptions may still take.
    memory: Budget,
}

impl Header<'_> {
    fn bytes(&mut self, size_bytes: u64) -> Result<Vec<u8>, Problem> {
        let Some(left) = self.left.checked_sub(size_bytes) else {
            return broken(format!(
                "{size_bytes} bytes at offset {} reach beyond the file, or beyond the \
                 {MAX_HEADER_BYTES} bytes that are allowed before the data",
                self.position
            ));
        };
        self.left = left;
        self.position += size_bytes;
        read_exactly(&mut self.reader, size_bytes, size_bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Problem> {
        let Some(left) = self.left.checked_sub(N as u64) else {
            return broken("it ends before its data");
        };
        let mut bytes = [0; N];
        self.reader.read_exact(&mut bytes)?;
        self.left = left;
        self.position += N as u64;
        Ok(bytes)
    }

    fn u32(&mut self) -> Result<u32, Problem> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64, Problem> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// Checks that as many items, each of a minimal size, may follow.
    fn check_count(&self, count: u64, item_bytes: u64) -> Result<(), Problem> {
        match count.checked_mul(item_bytes) {
            Some(size_bytes) if size_bytes <= self.left => Ok(()),
            _ => {
                broken(format!("{count} items do not fit in the {} bytes that are left", self.left))
            }
        }
    }

    /// Takes memory from the budget.
    fn spend(&mut self, size_bytes: u64) -> Result<(), Problem> {
        if self.memory.take(size_bytes) {
            return Ok(());
        }
        broken(format!(
            "the metadata needs too much memory: more than {MEMORY_FACTOR} times the file's size"
        ))
    }

    fn text(&mut self) -> Result<String, Problem> {
        let size_bytes = self.u64()?;
        let bytes = self.bytes(size_bytes)?;
        String::from_utf8(bytes).or_else(|_| broken("a text is no UTF-8"))
    }

    fn name(&mut self) -> Result<String, Problem> {
        let name = self.text()?;
        check_name(&name)?;
        Ok(name)
    }

    /// Reads a value of the type that GGUF gives the number `kind`.
    fn value(&mut self, kind: u32, depth: usize) -> Result<GgufValue, Problem> {
        Ok(match kind {
            0 => GgufValue::U8(u8::from_le_bytes(self.array()?)),
            1 => GgufValue::I8(i8::from_le_bytes(self.array()?)),
            2 => GgufValue::U16(u16::from_le_bytes(self.array()?)),
            3 => GgufValue::I16(i16::from_le_bytes(self.array()?)),
            4 => GgufValue::U32(self.u32()?),
            5 => GgufValue::I32(i32::from_le_bytes(self.array()?)),
            6 => GgufValue::F32(f32::from_le_bytes(self.array()?)),
            7 => match self.array()? {
                [0] => GgufValue::Bool(false),
                [1] => GgufValue::Bool(true),
                [byte] => return broken(format!("a bool of the metadata is {byte}")),
            },
            8 => GgufValue::Text(self.text()?),
            9 if depth < MAX_DEPTH => {
                let (kind, count) = (self.u32()?, self.u64()?);
                let item_bytes = match kind {
                    0 | 1 | 7 => 1,
                    2 | 3 => 2,
                    4..=6 => 4,
                    _ => 8,
                };
                self.check_count(count, item_bytes)?;
                self.spend(count.saturating_mul(size_of::<GgufValue>() as u64))?;
                let mut items = reserve(count)?;
                for _ in 0..count {
                    items.push(self.value(kind, depth + 1)?);
                }
                GgufValue::Array(items)
            }
            9 => return broken(format!("arrays are nested more than {MAX_DEPTH} times")),
            10 => GgufValue::U64(self.u64()?),
            11 => GgufValue::I64(i64::from_le_bytes(self.array()?)),
            12 => GgufValue::F64(f64::from_le_bytes(self.array()?)),
            kind => return broken(format!("the metadata has a value of the unknown type {kind}")),
        })
    }

    /// Reads the description of a tensor after its name.
    fn description(&mut self) -> Result<Description, Problem> {
        let rank = self.u32()?;
        if MAX_RANK < rank {
            return broken(format!("{rank} axes; {MAX_RANK} are allowed"));
        }
        let mut sizes = Vec::new();
        for _ in 0..rank {
            sizes.push(self.u64()?);
        }
        // The innermost axis is first in the file.
        sizes.reverse();
        let (kind, offset) = (self.u32()?, self.u64()?);
        Description::new(&sizes, kind, offset)
    }
}
