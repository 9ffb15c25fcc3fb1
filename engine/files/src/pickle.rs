//! The pickle of a PyTorch checkpoint, as plain data.
//!
//! A pickle is a program for a stack machine that may call any Python function. This machine knows
//! the opcodes and the functions that `torch.save` writes for tensors in dicts, lists and tuples;
//! anything else is an error. Nothing is called: each function stands for a kind of value. Each
//! value takes memory from a budget, as a byte of a pickle can stand for a value of many bytes.

use std::collections::HashMap;

use gradiff_graph::DType;

use crate::error::{Problem, broken};
use crate::layout::MAX_RANK;
use crate::source::{Budget, reserve, try_push};

/// The maximal length of the key of a storage. PyTorch's are numbers.
const MAX_KEY: usize = 256;

/// The maximal number of entries in the metadata of a tensor. PyTorch writes 2.
const MAX_METADATA: usize = 16;

/// The memory of an entry of the memo.
const MEMO_BYTES: usize = 32;

/// The maximal length of the name of a dtype.
const MAX_TYPE: usize = 32;

/// Classes of storages of dtypes that are not the engine's.
const UNSUPPORTED_STORAGES: [&str; 7] = [
    "ComplexFloatStorage",
    "ComplexDoubleStorage",
    "QInt8Storage",
    "QUInt8Storage",
    "QInt32Storage",
    "QUInt4x2Storage",
    "QUInt2x4Storage",
];

/// The beginnings of the names of dtypes, which the number of bits follows.
const DTYPES: [&str; 7] = ["int", "uint", "float", "bits", "qint", "quint", "complex"];

/// The index of a value in [`Pickle::values`]. Values may refer to each other, also in a circle.
pub(crate) type ValueId = usize;

/// The values that a pickle builds. Texts are those of the pickle.
pub(crate) struct Pickle<'a> {
    pub(crate) values: Vec<Value<'a>>,
    pub(crate) root: ValueId,
}

#[derive(Debug)]
pub(crate) enum Value<'a> {
    /// A value that no tensor depends on, such as a float.
    Opaque,
    None,
    Int(i64),
    Text(&'a str),
    Tuple(Vec<ValueId>),
    List(Vec<ValueId>),
    Dict(Vec<(ValueId, ValueId)>),
    Function(Function),
    /// A class of storages or a dtype.
    Kind(Kind<'a>),
    Storage(Box<Storage<'a>>),
    Tensor(Box<View<'a>>),
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
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind<'a> {
    Known(DType),
    /// Bytes, to which each tensor gives a dtype.
    Untyped,
    /// A type of PyTorch that the engine does not have.
    Unsupported(&'a str),
}

/// A reference to a storage: a file of the archive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Storage<'a> {
    pub(crate) key: &'a str,
    pub(crate) kind: Kind<'a>,
    pub(crate) size_elements: u64,
}

/// A tensor: a view of a storage. Offset and strides are in elements.
#[derive(Debug)]
pub(crate) struct View<'a> {
    pub(crate) storage: Storage<'a>,
    pub(crate) kind: Kind<'a>,
    /// PyTorch's negative bit: the elements are those of the storage, negated.
    pub(crate) is_negative: bool,
    pub(crate) offset: u64,
    pub(crate) sizes: Vec<u64>,
    pub(crate) strides: Vec<u64>,
}

/// Runs a pickle. Its values take their memory from a budget.
pub(crate) fn parse<'a>(bytes: &'a [u8], memory: &mut Budget) -> Result<Pickle<'a>, Problem> {
    let mut machine = Machine {
        rest: bytes,
        memory,
        values: Vec::new(),
        stack: Vec::new(),
        marks: Vec::new(),
        memo: HashMap::new(),
    };
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

struct Machine<'a, 'b> {
    rest: &'a [u8],
    /// The memory that values may still take.
    memory: &'b mut Budget,
    values: Vec<Value<'a>>,
    stack: Vec<ValueId>,
    /// Heights of the stack where a list of items begins.
    marks: Vec<usize>,
    /// Values by the number that later opcodes refer to.
    memo: HashMap<u32, ValueId>,
}

impl<'a> Machine<'a, '_> {
    fn run(&mut self, opcode: u8) -> Result<(), Problem> {
        match opcode {
            // PROTO, FRAME: nothing depends on them.
            0x80 => drop(self.take(1)?),
            0x95 => drop(self.take(8)?),
            b'(' => {
                self.spend(size_of::<usize>())?;
                try_push(&mut self.marks, self.stack.len())?;
            }
            b'0' => drop(self.pop()?),
            b'N' => self.push(Value::None)?,
            0x88 => self.push(Value::Int(1))?,
            0x89 => self.push(Value::Int(0))?,
            b'J' => {
                let int = i32::from_le_bytes(self.array()?);
                self.push(Value::Int(i64::from(int)))?;
            }
            b'K' => {
                let [int] = self.array()?;
                self.push(Value::Int(i64::from(int)))?;
            }
            b'M' => {
                let int = u16::from_le_bytes(self.array()?);
                self.push(Value::Int(i64::from(int)))?;
            }
            // LONG1
            0x8a => {
                let size = self.size::<1>()?;
                let int = int_of(self.take(size)?);
                self.push(int)?;
            }
            // BINFLOAT
            b'G' => {
                self.take(8)?;
                self.push(Value::Opaque)?;
            }
            // BINUNICODE, SHORT_BINUNICODE, BINUNICODE8
            b'X' => self.text::<4>()?,
            0x8c => self.text::<1>()?,
            0x8d => self.text::<8>()?,
            // BINBYTES, SHORT_BINBYTES
            b'B' => self.bytes::<4>()?,
            b'C' => self.bytes::<1>()?,
            b')' => self.push(Value::Tuple(Vec::new()))?,
            b']' => self.push(Value::List(Vec::new()))?,
            b'}' => self.push(Value::Dict(Vec::new()))?,
            b't' => {
                let items = self.pop_items()?;
                self.push(Value::Tuple(items))?;
            }
            0x85..=0x87 => {
                let count = usize::from(opcode - 0x84);
                let items = self.pop_count(count)?;
                self.push(Value::Tuple(items))?;
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
                self.push(value)?;
            }
            0x93 => {
                let (name, module) = (self.pop()?, self.pop()?);
                let value = global(self.text_of(module)?, self.text_of(name)?)?;
                self.push(value)?;
            }
            // BINPERSID
            b'Q' => {
                let id = self.pop()?;
                let storage = self.storage_of(id)?;
                self.spend(size_of::<Storage>())?;
                self.push(Value::Storage(Box::new(storage)))?;
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
            Ok(text) => self.push(Value::Text(text)),
            Err(_) => broken("the pickle has a string that is no UTF-8"),
        }
    }

    fn bytes<const N: usize>(&mut self) -> Result<(), Problem> {
        let size = self.size::<N>()?;
        self.take(size)?;
        self.push(Value::Opaque)
    }

    /// Reads up to the end of the line.
    fn line(&mut self) -> Result<&'a str, Problem> {
        let end = self.rest.iter().position(|byte| *byte == b'\n');
        let line = self.take(end.unwrap_or(self.rest.len()))?;
        self.take(1)?;
        std::str::from_utf8(line).or_else(|_| broken("the pickle has a name that is no UTF-8"))
    }

    /// Takes memory from the budget.
    fn spend(&mut self, size_bytes: usize) -> Result<(), Problem> {
        if self.memory.take(size_bytes as u64) {
            return Ok(());
        }
        broken("the values of the pickle need too much memory for a file of this size")
    }

    fn push(&mut self, value: Value<'a>) -> Result<(), Problem> {
        self.spend(size_of::<Value>())?;
        try_push(&mut self.values, value)?;
        self.push_id(self.values.len() - 1)
    }

    /// Pushes a value that is known already.
    fn push_id(&mut self, id: ValueId) -> Result<(), Problem> {
        self.spend(size_of::<ValueId>())?;
        try_push(&mut self.stack, id)
    }

    fn pop(&mut self) -> Result<ValueId, Problem> {
        self.stack.pop().ok_or_else(underflow)
    }

    fn pop_count(&mut self, count: usize) -> Result<Vec<ValueId>, Problem> {
        let start = self.stack.len().checked_sub(count).ok_or_else(underflow)?;
        self.pop_above(start)
    }

    /// Pops the values above a height of the stack.
    fn pop_above(&mut self, height: usize) -> Result<Vec<ValueId>, Problem> {
        // Not `split_off`, which may allocate as much as the stack once had.
        let mut items: Vec<ValueId> = reserve((self.stack.len() - height) as u64)?;
        items.extend(self.stack.drain(height..));
        Ok(items)
    }

    /// Pops the values above the last mark, and the mark.
    fn pop_items(&mut self) -> Result<Vec<ValueId>, Problem> {
        match self.marks.pop() {
            Some(start) if start <= self.stack.len() => self.pop_above(start),
            _ => Err(underflow()),
        }
    }

    fn append(&mut self, new: &[ValueId]) -> Result<(), Problem> {
        let target = *self.stack.last().ok_or_else(underflow)?;
        let Value::List(items) = &mut self.values[target] else {
            return broken("the pickle appends to a value that is no list");
        };
        new.iter().try_for_each(|item| try_push(items, *item))
    }

    fn set_items(&mut self, new: &[ValueId]) -> Result<(), Problem> {
        let target = *self.stack.last().ok_or_else(underflow)?;
        match &mut self.values[target] {
            Value::Dict(items) if new.len().is_multiple_of(2) => {
                new.chunks_exact(2).try_for_each(|pair| try_push(items, (pair[0], pair[1])))
            }
            _ => broken("the pickle sets items of a value that is no dict"),
        }
    }

    fn put(&mut self, index: u32) -> Result<(), Problem> {
        let value = *self.stack.last().ok_or_else(underflow)?;
        self.spend(MEMO_BYTES)?;
        if self.memo.try_reserve(1).is_err() {
            return broken("the memo of the pickle does not fit in memory");
        }
        self.memo.insert(index, value);
        Ok(())
    }

    fn get(&mut self, index: u32) -> Result<(), Problem> {
        match self.memo.get(&index).copied() {
            Some(value) => self.push_id(value),
            None => broken(format!("the pickle reads the memo {index}, which is empty")),
        }
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
            (Function::Size, [sizes]) => {
                let sizes = *sizes;
                self.push_id(sizes)
            }
            (Function::RebuildParameter, [data, ..])
                if matches!(self.values[*data], Value::Tensor(_)) =>
            {
                let data = *data;
                self.push_id(data)
            }
            // The fifth and the sixth are about gradients.
            (Function::RebuildTensor, [storage, offset, sizes, strides, _, _, metadata @ ..])
                if metadata.len() <= 1 =>
            {
                let mut view = self.view(*storage, None, *offset, *sizes, *strides)?;
                view.is_negative = self.is_negative(metadata)?;
                self.push_tensor(view)
            }
            (
                Function::RebuildTypedTensor,
                [storage, offset, sizes, strides, _, _, kind, metadata @ ..],
            ) if metadata.len() <= 1 => {
                let mut view = self.view(*storage, Some(*kind), *offset, *sizes, *strides)?;
                view.is_negative = self.is_negative(metadata)?;
                self.push_tensor(view)
            }
            (function, arguments) => broken(format!(
                "the pickle calls {function:?} with {} arguments that do not fit",
                arguments.len()
            )),
        }
    }

    fn push_tensor(&mut self, view: View<'a>) -> Result<(), Problem> {
        let axes = view.sizes.len() + view.strides.len();
        self.spend(size_of::<View>() + axes * size_of::<u64>())?;
        self.push(Value::Tensor(Box::new(view)))
    }

    /// The negative bit in the metadata of a tensor: a dict of flags, `None`, or absent.
    fn is_negative(&self, metadata: &[ValueId]) -> Result<bool, Problem> {
        let items = match metadata.first().map(|metadata| &self.values[*metadata]) {
            None | Some(Value::None) => return Ok(false),
            Some(Value::Dict(items)) if items.len() <= MAX_METADATA => items,
            Some(_) => return broken("the pickle has a tensor whose metadata is no dict of flags"),
        };
        let mut is_negative = false;
        for (key, value) in items {
            match (self.text_of(*key)?, &self.values[*value]) {
                ("neg", Value::Int(flag)) => is_negative = *flag != 0,
                // A flag that is not set.
                (_, Value::Int(0)) => {}
                (key, _) => {
                    let key: String = key.chars().take(100).collect();
                    return broken(format!(
                        "the pickle has a tensor whose metadata {key:?} is not supported; save a \
                         clone of the tensor, without it"
                    ));
                }
            }
        }
        Ok(is_negative)
    }

    /// The view of a storage, of its kind or of a given kind.
    fn view(
        &self,
        storage: ValueId,
        kind: Option<ValueId>,
        offset: ValueId,
        sizes: ValueId,
        strides: ValueId,
    ) -> Result<View<'a>, Problem> {
        let Value::Storage(storage) = &self.values[storage] else {
            return broken("the pickle has a tensor without a storage");
        };
        let kind = match kind.map(|kind| &self.values[kind]) {
            None => storage.kind,
            Some(Value::Kind(kind)) => *kind,
            Some(_) => return broken("the pickle has a tensor without a dtype"),
        };
        let (sizes, strides) = (self.sizes_of(sizes)?, self.sizes_of(strides)?);
        if sizes.len() != strides.len() {
            return broken("the pickle has a tensor with more sizes than strides, or fewer");
        }
        let offset = self.size_of(offset)?;
        Ok(View { storage: **storage, kind, is_negative: false, offset, sizes, strides })
    }

    /// The storage of a persistent id: `('storage', class, key, location, size)`.
    fn storage_of(&self, id: ValueId) -> Result<Storage<'a>, Problem> {
        let Value::Tuple(items) = &self.values[id] else {
            return broken("the pickle has a persistent id that is no tuple");
        };
        let [tag, kind, key, _, size] = items.as_slice() else {
            return broken("the pickle has a persistent id that is no storage");
        };
        let key = self.text_of(*key)?;
        match &self.values[*kind] {
            Value::Kind(kind) if self.text_of(*tag)? == "storage" && key.len() <= MAX_KEY => {
                Ok(Storage { key, kind: *kind, size_elements: self.size_of(*size)? })
            }
            _ => broken("the pickle has a persistent id that is no storage"),
        }
    }

    fn text_of(&self, id: ValueId) -> Result<&'a str, Problem> {
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
fn int_of(bytes: &[u8]) -> Value<'static> {
    if 8 < bytes.len() {
        return Value::Opaque;
    }
    let is_negative = bytes.last().is_some_and(|byte| 0x80 <= *byte);
    let mut word = if is_negative { [0xff; 8] } else { [0; 8] };
    word[..bytes.len()].copy_from_slice(bytes);
    Value::Int(i64::from_le_bytes(word))
}

/// The meaning of a name of Python's.
fn global<'a>(module: &str, name: &'a str) -> Result<Value<'a>, Problem> {
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

fn refused(module: &str, name: &str) -> Result<Value<'static>, Problem> {
    let name: String = format!("{module}.{name}").chars().take(100).collect();
    broken(format!(
        "the pickle refers to {name}, and only tensors in dicts, lists and tuples are read; save \
         the state dict"
    ))
}

/// The type of a class of storages, or of a dtype.
fn kind_of(name: &str) -> Option<Kind<'_>> {
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
        _ => return is_unsupported(name).then_some(Kind::Unsupported(name)),
    }))
}

/// Returns whether the name is of a class of storages or a dtype that is not the engine's.
fn is_unsupported(name: &str) -> bool {
    let is_dtype = |start: &&str| {
        let bits = name.strip_prefix(*start);
        bits.is_some_and(|bits| bits.starts_with(|c: char| c.is_ascii_digit()))
    };
    let is_short = name.len() <= MAX_TYPE;
    UNSUPPORTED_STORAGES.contains(&name) || is_short && DTYPES.iter().any(is_dtype)
}
