//! The pickle of a PyTorch checkpoint, as plain data.
//!
//! A pickle is a program for a stack machine that may call any Python function. This machine knows
//! the opcodes and the functions that `torch.save` writes for tensors in dicts, lists and tuples;
//! anything else is an error. Nothing is called: each function stands for a kind of value.

use std::collections::BTreeMap;

use gradiff_graph::DType;

use crate::error::{Problem, broken};
use crate::layout::MAX_RANK;

/// The maximal length of the key of a storage. PyTorch's are numbers.
const MAX_KEY: usize = 256;

/// The index of a value in [`Pickle::values`]. Values may refer to each other, also in a circle.
pub(crate) type ValueId = usize;

/// The values that a pickle builds.
pub(crate) struct Pickle {
    pub(crate) values: Vec<Value>,
    pub(crate) root: ValueId,
}

#[derive(Clone, Debug)]
pub(crate) enum Value {
    /// A value that no tensor depends on, such as a float.
    Opaque,
    None,
    Int(i64),
    Text(String),
    Tuple(Vec<ValueId>),
    List(Vec<ValueId>),
    Dict(Vec<(ValueId, ValueId)>),
    Function(Function),
    /// A class of storages or a dtype.
    Kind(Kind),
    Storage(Storage),
    Tensor(View),
}

/// The functions that a pickle may refer to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Function {
    OrderedDict,
    RebuildTensor,
    RebuildTypedTensor,
    RebuildParameter,
    Size,
}

/// The type of the elements of a storage or a tensor.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Known(DType),
    /// Bytes, to which each tensor gives a dtype.
    Untyped,
    /// A type of PyTorch that the engine has not.
    Unsupported(String),
}

/// A reference to a storage: a file of the archive.
#[derive(Clone, Debug)]
pub(crate) struct Storage {
    pub(crate) key: String,
    pub(crate) kind: Kind,
    pub(crate) size_elements: u64,
}

/// A tensor: a view of a storage. Offset and strides are in elements.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) storage: Storage,
    pub(crate) kind: Kind,
    pub(crate) offset: u64,
    pub(crate) sizes: Vec<u64>,
    pub(crate) strides: Vec<u64>,
}

/// Runs a pickle.
pub(crate) fn parse(bytes: &[u8]) -> Result<Pickle, Problem> {
    let mut machine = Machine { rest: bytes, ..Machine::default() };
    while let Some(opcode) = machine.take(1)?.first() {
        // STOP
        if *opcode == b'.' {
            let root = machine.pop()?;
            return Ok(Pickle { values: machine.values, root });
        }
        machine.run(*opcode)?;
    }
    broken("the pickle has no end")
}

#[derive(Default)]
struct Machine<'a> {
    rest: &'a [u8],
    values: Vec<Value>,
    stack: Vec<ValueId>,
    /// Heights of the stack where a list of items begins.
    marks: Vec<usize>,
    /// Values by the number that later opcodes refer to.
    memo: BTreeMap<u32, ValueId>,
}

impl<'a> Machine<'a> {
    fn run(&mut self, opcode: u8) -> Result<(), Problem> {
        match opcode {
            // PROTO, FRAME: nothing depends on them.
            0x80 => drop(self.take(1)?),
            0x95 => drop(self.take(8)?),
            b'(' => self.marks.push(self.stack.len()),
            b'0' => drop(self.pop()?),
            b'N' => self.push(Value::None),
            0x88 => self.push(Value::Int(1)),
            0x89 => self.push(Value::Int(0)),
            b'J' => {
                let int = i32::from_le_bytes(self.array()?);
                self.push(Value::Int(i64::from(int)));
            }
            b'K' => {
                let [int] = self.array()?;
                self.push(Value::Int(i64::from(int)));
            }
            b'M' => {
                let int = u16::from_le_bytes(self.array()?);
                self.push(Value::Int(i64::from(int)));
            }
            // LONG1
            0x8a => {
                let size = self.size::<1>()?;
                let int = int_of(self.take(size)?);
                self.push(int);
            }
            // BINFLOAT
            b'G' => {
                self.take(8)?;
                self.push(Value::Opaque);
            }
            // BINUNICODE, SHORT_BINUNICODE, BINUNICODE8
            b'X' => self.text::<4>()?,
            0x8c => self.text::<1>()?,
            0x8d => self.text::<8>()?,
            // BINBYTES, SHORT_BINBYTES
            b'B' => self.bytes::<4>()?,
            b'C' => self.bytes::<1>()?,
            b')' => self.push(Value::Tuple(Vec::new())),
            b']' => self.push(Value::List(Vec::new())),
            b'}' => self.push(Value::Dict(Vec::new())),
            b't' => {
                let items = self.pop_items()?;
                self.push(Value::Tuple(items));
            }
            0x85..=0x87 => {
                let count = usize::from(opcode - 0x84);
                let items = self.pop_count(count)?;
                self.push(Value::Tuple(items));
            }
            b'a' => {
                let items = self.pop_count(1)?;
                self.append(&items)?;
            }
            b'e' => {
                let items = self.pop_items()?;
                self.append(&items)?;
            }
            b's' => {
                let items = self.pop_count(2)?;
                self.set_items(&items)?;
            }
            b'u' => {
                let items = self.pop_items()?;
                self.set_items(&items)?;
            }
            // BINPUT, LONG_BINPUT, MEMOIZE
            b'q' => {
                let [index] = self.array()?;
                self.put(u32::from(index))?;
            }
            b'r' => {
                let index = u32::from_le_bytes(self.array()?);
                self.put(index)?;
            }
            0x94 => self.put(self.memo.len() as u32)?,
            // BINGET, LONG_BINGET
            b'h' => {
                let [index] = self.array()?;
                self.get(u32::from(index))?;
            }
            b'j' => {
                let index = u32::from_le_bytes(self.array()?);
                self.get(index)?;
            }
            // GLOBAL, STACK_GLOBAL
            b'c' => {
                let (module, name) = (self.line()?, self.line()?);
                let value = global(module, name)?;
                self.push(value);
            }
            0x93 => {
                let (name, module) = (self.pop()?, self.pop()?);
                let value = global(self.text_of(module)?, self.text_of(name)?)?;
                self.push(value);
            }
            // BINPERSID
            b'Q' => {
                let id = self.pop()?;
                let storage = self.storage_of(id)?;
                self.push(Value::Storage(storage));
            }
            b'R' => self.reduce()?,
            // BUILD sets attributes. Those of an ordered dict of tensors are versions of modules.
            b'b' => {
                self.pop()?;
                let target = *self.stack.last().ok_or_else(underflow)?;
                if !matches!(self.values[target], Value::Dict(_)) {
                    return broken("the pickle sets attributes of an object that is no dict");
                }
            }
            opcode => {
                return broken(format!(
                    "the pickle has the opcode {opcode:#04x}, which tensors do not need"
                ));
            }
        }
        Ok(())
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], Problem> {
        let Some((bytes, rest)) = self.rest.split_at_checked(count) else {
            return broken("the pickle ends within an opcode");
        };
        self.rest = rest;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Problem> {
        Ok(self.take(N)?.try_into().expect("as many bytes as were asked for"))
    }

    /// Reads a size of N bytes.
    fn size<const N: usize>(&mut self) -> Result<usize, Problem> {
        let mut word = [0; 8];
        word[..N].copy_from_slice(self.take(N)?);
        Ok(usize::try_from(u64::from_le_bytes(word)).unwrap_or(usize::MAX))
    }

    /// Pushes a string after its size of N bytes.
    fn text<const N: usize>(&mut self) -> Result<(), Problem> {
        let size = self.size::<N>()?;
        match std::str::from_utf8(self.take(size)?) {
            Ok(text) => {
                self.push(Value::Text(text.to_string()));
                Ok(())
            }
            Err(_) => broken("the pickle has a string that is no UTF-8"),
        }
    }

    fn bytes<const N: usize>(&mut self) -> Result<(), Problem> {
        let size = self.size::<N>()?;
        self.take(size)?;
        self.push(Value::Opaque);
        Ok(())
    }

    /// Reads up to the end of the line.
    fn line(&mut self) -> Result<&'a str, Problem> {
        let end = self.rest.iter().position(|byte| *byte == b'\n');
        let line = self.take(end.unwrap_or(self.rest.len()))?;
        self.take(1)?;
        std::str::from_utf8(line).or_else(|_| broken("the pickle has a name that is no UTF-8"))
    }

    fn push(&mut self, value: Value) {
        self.values.push(value);
        self.stack.push(self.values.len() - 1);
    }

    fn pop(&mut self) -> Result<ValueId, Problem> {
        self.stack.pop().ok_or_else(underflow)
    }

    fn pop_count(&mut self, count: usize) -> Result<Vec<ValueId>, Problem> {
        let start = self.stack.len().checked_sub(count).ok_or_else(underflow)?;
        Ok(self.stack.split_off(start))
    }

    /// Pops the values above the last mark, and the mark.
    fn pop_items(&mut self) -> Result<Vec<ValueId>, Problem> {
        match self.marks.pop() {
            Some(start) if start <= self.stack.len() => Ok(self.stack.split_off(start)),
            _ => Err(underflow()),
        }
    }

    fn append(&mut self, new: &[ValueId]) -> Result<(), Problem> {
        let target = *self.stack.last().ok_or_else(underflow)?;
        match &mut self.values[target] {
            Value::List(items) => items.extend_from_slice(new),
            _ => return broken("the pickle appends to a value that is no list"),
        }
        Ok(())
    }

    fn set_items(&mut self, new: &[ValueId]) -> Result<(), Problem> {
        let target = *self.stack.last().ok_or_else(underflow)?;
        match &mut self.values[target] {
            Value::Dict(items) if new.len().is_multiple_of(2) => {
                items.extend(new.chunks_exact(2).map(|pair| (pair[0], pair[1])));
            }
            _ => return broken("the pickle sets items of a value that is no dict"),
        }
        Ok(())
    }

    fn put(&mut self, index: u32) -> Result<(), Problem> {
        let value = *self.stack.last().ok_or_else(underflow)?;
        self.memo.insert(index, value);
        Ok(())
    }

    fn get(&mut self, index: u32) -> Result<(), Problem> {
        match self.memo.get(&index) {
            Some(value) => self.stack.push(*value),
            None => return broken(format!("the pickle reads the memo {index}, which is empty")),
        }
        Ok(())
    }

    /// Calls a function with a tuple of arguments.
    fn reduce(&mut self) -> Result<(), Problem> {
        let (arguments, function) = (self.pop()?, self.pop()?);
        let Value::Tuple(arguments) = &self.values[arguments] else {
            return broken("the pickle calls a function without a tuple of arguments");
        };
        let Value::Function(function) = self.values[function] else {
            return broken("the pickle calls a value that is no function");
        };
        match (function, arguments.as_slice()) {
            (Function::OrderedDict, []) => self.push(Value::Dict(Vec::new())),
            (Function::Size, [sizes]) => self.stack.push(*sizes),
            (Function::RebuildParameter, [data, ..])
                if matches!(self.values[*data], Value::Tensor(_)) =>
            {
                self.stack.push(*data);
            }
            (Function::RebuildTensor, [storage, offset, sizes, strides, ..]) => {
                let view = self.view(*storage, None, *offset, *sizes, *strides)?;
                self.push(Value::Tensor(view));
            }
            (Function::RebuildTypedTensor, [storage, offset, sizes, strides, _, _, kind, ..]) => {
                let view = self.view(*storage, Some(*kind), *offset, *sizes, *strides)?;
                self.push(Value::Tensor(view));
            }
            (function, arguments) => {
                return broken(format!(
                    "the pickle calls {function:?} with {} arguments that do not fit",
                    arguments.len()
                ));
            }
        }
        Ok(())
    }

    /// The view of a storage, of its kind or of a given kind.
    fn view(
        &self,
        storage: ValueId,
        kind: Option<ValueId>,
        offset: ValueId,
        sizes: ValueId,
        strides: ValueId,
    ) -> Result<View, Problem> {
        let Value::Storage(storage) = &self.values[storage] else {
            return broken("the pickle has a tensor without a storage");
        };
        let kind = match kind.map(|kind| &self.values[kind]) {
            None => storage.kind.clone(),
            Some(Value::Kind(kind)) => kind.clone(),
            Some(_) => return broken("the pickle has a tensor without a dtype"),
        };
        let (sizes, strides) = (self.sizes_of(sizes)?, self.sizes_of(strides)?);
        if sizes.len() != strides.len() {
            return broken("the pickle has a tensor with more sizes than strides, or fewer");
        }
        let offset = self.size_of(offset)?;
        Ok(View { storage: storage.clone(), kind, offset, sizes, strides })
    }

    /// The storage of a persistent id: `('storage', class, key, location, size)`.
    fn storage_of(&self, id: ValueId) -> Result<Storage, Problem> {
        let Value::Tuple(items) = &self.values[id] else {
            return broken("the pickle has a persistent id that is no tuple");
        };
        let [tag, kind, key, _, size] = items.as_slice() else {
            return broken("the pickle has a persistent id that is no storage");
        };
        let key = self.text_of(*key)?;
        match &self.values[*kind] {
            Value::Kind(kind) if self.text_of(*tag)? == "storage" && key.len() <= MAX_KEY => {
                Ok(Storage {
                    key: key.to_string(),
                    kind: kind.clone(),
                    size_elements: self.size_of(*size)?,
                })
            }
            _ => broken("the pickle has a persistent id that is no storage"),
        }
    }

    fn text_of(&self, id: ValueId) -> Result<&str, Problem> {
        match &self.values[id] {
            Value::Text(text) => Ok(text),
            _ => broken("the pickle has another value where a string belongs"),
        }
    }

    fn size_of(&self, id: ValueId) -> Result<u64, Problem> {
        match &self.values[id] {
            Value::Int(int) if 0 <= *int => Ok(*int as u64),
            _ => broken("the pickle has another value where a size, a stride or an offset belongs"),
        }
    }

    fn sizes_of(&self, id: ValueId) -> Result<Vec<u64>, Problem> {
        match &self.values[id] {
            Value::Tuple(items) if MAX_RANK < items.len() => {
                broken(format!("the pickle has a tensor of {} axes", items.len()))
            }
            Value::Tuple(items) => items.iter().map(|item| self.size_of(*item)).collect(),
            _ => broken("the pickle has another value where a tuple of sizes belongs"),
        }
    }
}

fn underflow() -> Problem {
    Problem::File("the pickle takes more values than are there".to_string())
}

/// The value of a little-endian two's complement integer of any size.
fn int_of(bytes: &[u8]) -> Value {
    if 8 < bytes.len() {
        return Value::Opaque;
    }
    let is_negative = bytes.last().is_some_and(|byte| 0x80 <= *byte);
    let mut word = if is_negative { [0xff; 8] } else { [0; 8] };
    word[..bytes.len()].copy_from_slice(bytes);
    Value::Int(i64::from_le_bytes(word))
}

/// The meaning of a name of Python's.
fn global(module: &str, name: &str) -> Result<Value, Problem> {
    let function = match (module, name) {
        ("collections", "OrderedDict") => Function::OrderedDict,
        ("torch._utils", "_rebuild_tensor_v2") => Function::RebuildTensor,
        ("torch._utils", "_rebuild_tensor_v3") => Function::RebuildTypedTensor,
        ("torch._utils", "_rebuild_parameter") => Function::RebuildParameter,
        ("torch", "Size") => Function::Size,
        ("torch" | "torch.storage", _) => {
            return match kind_of(name) {
                Some(kind) => Ok(Value::Kind(kind)),
                None => refused(module, name),
            };
        }
        _ => return refused(module, name),
    };
    Ok(Value::Function(function))
}

fn refused(module: &str, name: &str) -> Result<Value, Problem> {
    let name: String = format!("{module}.{name}").chars().take(100).collect();
    broken(format!(
        "the pickle refers to {name}, and only tensors in dicts, lists and tuples are read; save \
         the state dict"
    ))
}

/// The type of a class of storages, or of a dtype.
fn kind_of(name: &str) -> Option<Kind> {
    Some(Kind::Known(match name {
        "BoolStorage" | "bool" => DType::Bool,
        "CharStorage" | "int8" => DType::I8,
        "ByteStorage" | "uint8" => DType::U8,
        "ShortStorage" | "int16" => DType::I16,
        "uint16" => DType::U16,
        "IntStorage" | "int32" => DType::I32,
        "uint32" => DType::U32,
        "LongStorage" | "int64" => DType::I64,
        "uint64" => DType::U64,
        "HalfStorage" | "float16" => DType::F16,
        "BFloat16Storage" | "bfloat16" => DType::BF16,
        "FloatStorage" | "float32" => DType::F32,
        "DoubleStorage" | "float64" => DType::F64,
        "UntypedStorage" => return Some(Kind::Untyped),
        "ComplexFloatStorage"
        | "ComplexDoubleStorage"
        | "QInt8Storage"
        | "QUInt8Storage"
        | "QInt32Storage"
        | "QUInt4x2Storage"
        | "QUInt2x4Storage"
        | "complex32"
        | "complex64"
        | "complex128"
        | "float8_e4m3fn"
        | "float8_e5m2"
        | "float8_e4m3fnuz"
        | "float8_e5m2fnuz"
        | "float8_e8m0fnu"
        | "float4_e2m1fn_x2"
        | "qint8"
        | "quint8"
        | "qint32" => {
            return Some(Kind::Unsupported(name.to_string()));
        }
        _ => return None,
    }))
}
