//! The compact binary form of a program.
//!
//! Layout: version byte 1; count of statements; the statements (operation byte, then fields); count
//! of outputs; their value numbers; FNV-1a checksum of everything before, 4 bytes little endian.
//! Numbers are LEB128 varints (zigzag if signed), a source is a distance in statements backwards,
//! explicit data are packed elements.
//!
//! The decoder is total. Bytes with the right version and checksum come from [`encode`] and give
//! that program, however large. Any other bytes (a fuzzer's, a damaged file's) give a program
//! within small limits: 64 statements, 4,096 elements of a value, 65,536 in total. An ill-typed
//! statement is repaired or, failing that, dropped; there is always an output.

use crate::element::mask;
use crate::repair::repair;
use crate::{
    Arg, ArgKind, Arity, BinaryOp, DType, Distribution, Fill, Index, Literal, MAX_ELEMENTS,
    MAX_RANK, Method, Operand, Program, ReduceOp, Shape, Statement, TensorType, UnaryOp, ValueId,
    statement_type,
};

const VERSION: u8 = 1;

/// Encodes `program`; `decode` returns every well-typed program unchanged.
pub fn encode(program: &Program) -> Vec<u8> {
    let mut writer = Writer { bytes: vec![VERSION], current: 0 };
    writer.count(program.statements.len());
    for statement in &program.statements {
        writer.statement(statement);
        writer.current += 1;
    }
    writer.count(program.outputs.len());
    for output in &program.outputs {
        writer.count(output.0 as usize);
    }
    let sum = checksum(&writer.bytes);
    writer.bytes.extend_from_slice(&sum.to_le_bytes());
    writer.bytes
}

/// Decodes any bytes to a well-typed program: the encoded one, or a small one.
pub fn decode(bytes: &[u8]) -> Program {
    if let (Some(&VERSION), Some((body, sum))) = (bytes.first(), bytes.split_last_chunk())
        && checksum(body) == u32::from_le_bytes(*sum)
        && !body.is_empty()
    {
        return Reader::new(&body[1..], &WIDE).program();
    }
    Reader::new(bytes.get(1..).unwrap_or_default(), &NARROW).program()
}

fn checksum(bytes: &[u8]) -> u32 {
    let update = |sum: u32, byte: &u8| (sum ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    bytes.iter().fold(0x811c_9dc5, update)
}

struct Writer {
    bytes: Vec<u8>,
    current: u32,
}

impl Writer {
    fn varint(&mut self, mut value: u128) {
        while 0x80 <= value {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }

    fn count(&mut self, value: usize) {
        self.varint(value as u128);
    }

    fn signed(&mut self, value: i128) {
        self.varint(((value << 1) ^ (value >> 127)) as u128);
    }

    fn counts(&mut self, values: &[usize]) {
        self.count(values.len());
        values.iter().for_each(|value| self.count(*value));
    }

    fn pairs(&mut self, pairs: &[(usize, usize)]) {
        self.count(pairs.len());
        for (first, second) in pairs {
            self.count(*first);
            self.count(*second);
        }
    }

    fn value(&mut self, value: ValueId) {
        self.count(self.current.wrapping_sub(value.0).wrapping_sub(1) as usize);
    }

    fn values(&mut self, values: &[ValueId]) {
        self.count(values.len());
        values.iter().for_each(|value| self.value(*value));
    }

    fn literal(&mut self, literal: &Literal) {
        match literal {
            Literal::Bool(value) => self.bytes.push(u8::from(*value)),
            Literal::Int(value) => {
                self.bytes.push(2);
                self.signed(*value);
            }
            Literal::Float(value) => {
                self.bytes.push(3);
                self.bytes.extend_from_slice(&value.to_bits().to_le_bytes());
            }
        }
    }

    fn operands(&mut self, operands: &[Operand]) {
        for operand in operands {
            match operand {
                Operand::Value(value) => {
                    self.bytes.push(0);
                    self.value(*value);
                }
                Operand::Literal(literal) => {
                    self.bytes.push(1);
                    self.literal(literal);
                }
            }
        }
    }

    fn fill(&mut self, dtype: DType, fill: &Fill) {
        match fill {
            Fill::Iota => self.bytes.push(0),
            Fill::Seeded { seed, distribution } => {
                self.bytes.push(1);
                self.varint(u128::from(*seed));
                self.bytes.push(*distribution as u8);
            }
            Fill::Explicit(elements) => {
                self.bytes.push(2);
                for bits in elements {
                    self.bytes.extend_from_slice(&bits.to_le_bytes()[..dtype.size_bytes()]);
                }
            }
        }
    }

    fn head(&mut self, opcode: Opcode, parameter: u8) {
        self.bytes.extend_from_slice(&[opcode as u8, parameter]);
    }

    fn source(&mut self, opcode: Opcode, src: ValueId) {
        self.bytes.push(opcode as u8);
        self.value(src);
    }

    fn statement(&mut self, statement: &Statement) {
        match statement {
            Statement::Input { dtype, shape, fill } => {
                self.head(Opcode::Input, *dtype as u8);
                self.counts(shape);
                self.fill(*dtype, fill);
            }
            Statement::Const { dtype, shape, value } => {
                self.head(Opcode::Const, *dtype as u8);
                self.counts(shape);
                self.literal(value);
            }
            Statement::Arange { dtype, start, step, count } => {
                self.head(Opcode::Arange, *dtype as u8);
                self.signed(i128::from(*start));
                self.signed(i128::from(*step));
                self.count(*count);
            }
            Statement::Unary { op, src } => {
                self.head(Opcode::Unary, *op as u8);
                self.value(*src);
            }
            Statement::Binary { op, srcs } => {
                self.head(Opcode::Binary, *op as u8);
                self.operands(srcs);
            }
            Statement::Where { srcs } => {
                self.bytes.push(Opcode::Where as u8);
                self.operands(srcs);
            }
            Statement::MulAcc { srcs } => {
                self.bytes.push(Opcode::MulAcc as u8);
                self.operands(srcs);
            }
            Statement::Cast { src, dtype } => {
                self.head(Opcode::Cast, *dtype as u8);
                self.value(*src);
            }
            Statement::Bitcast { src, dtype } => {
                self.head(Opcode::Bitcast, *dtype as u8);
                self.value(*src);
            }
            Statement::Reduce { op, src, axes } => {
                self.head(Opcode::Reduce, *op as u8);
                self.value(*src);
                self.counts(axes);
            }
            Statement::Cat { srcs, axis } => {
                self.bytes.push(Opcode::Cat as u8);
                self.values(srcs);
                self.count(*axis);
            }
            Statement::Gather { src, axis, index } => {
                self.source(Opcode::Gather, *src);
                self.value(*index);
                self.count(*axis);
            }
            Statement::Method { method, srcs, args } => {
                self.head(Opcode::Method, *method as u8);
                self.values(srcs);
                let kinds = method.row().parameters.iter().map(|(_, kind)| *kind);
                args.iter().zip(kinds).for_each(|(arg, kind)| self.arg(arg, kind));
            }
            Statement::Contiguous { src } => self.source(Opcode::Contiguous, *src),
            Statement::Realize { src } => self.source(Opcode::Realize, *src),
            Statement::Detach { src } => self.source(Opcode::Detach, *src),
            Statement::Gradient { of, wrt } => {
                self.source(Opcode::Gradient, *of);
                self.value(*wrt);
            }
            Statement::Reshape { .. }
            | Statement::Permute { .. }
            | Statement::Expand { .. }
            | Statement::Pad { .. }
            | Statement::Shrink { .. }
            | Statement::Flip { .. } => self.movement(statement),
        }
    }

    fn arg(&mut self, arg: &Arg, kind: ArgKind) {
        match arg {
            Arg::Int(value) => self.signed(i128::from(*value)),
            Arg::Ints(values) => {
                self.count(values.len());
                values.iter().for_each(|value| self.signed(i128::from(*value)));
            }
            Arg::Flag(value) => self.bytes.push(u8::from(*value)),
            Arg::Number(value) => self.literal(value),
            Arg::DType(dtype) => self.bytes.push(*dtype as u8),
            Arg::Word(word) => {
                let ArgKind::Word(words) = kind else { panic!("{word} where {kind:?} is due") };
                let number = words.iter().position(|listed| listed == word);
                self.bytes.push(number.expect("the row lists the word") as u8);
            }
            Arg::Indices(indices) => {
                self.count(indices.len());
                indices.iter().for_each(|index| self.index(*index));
            }
        }
    }

    fn index(&mut self, index: Index) {
        match index {
            Index::Position(position) => {
                self.bytes.push(0);
                self.signed(position.into());
            }
            Index::Slice { start, stop, step } => {
                self.bytes.push(1);
                for end in [start, stop] {
                    self.bytes.push(end.is_some().into());
                    end.into_iter().for_each(|end| self.signed(end.into()));
                }
                self.signed(step.into());
            }
            Index::NewAxis => self.bytes.push(2),
            Index::Ellipsis => self.bytes.push(3),
            Index::Source => self.bytes.push(4),
        }
    }

    fn movement(&mut self, statement: &Statement) {
        let (opcode, src, list) = match statement {
            Statement::Reshape { src, shape } => (Opcode::Reshape, src, shape),
            Statement::Permute { src, axes } => (Opcode::Permute, src, axes),
            Statement::Expand { src, shape } => (Opcode::Expand, src, shape),
            Statement::Flip { src, axes } => (Opcode::Flip, src, axes),
            Statement::Pad { src, pads, value } => {
                self.source(Opcode::Pad, *src);
                self.pairs(pads);
                return self.literal(value);
            }
            Statement::Shrink { src, ranges } => {
                self.source(Opcode::Shrink, *src);
                return self.pairs(ranges);
            }
            _ => unreachable!("the caller passes movement statements only"),
        };
        self.source(opcode, *src);
        self.counts(list);
    }
}

/// The operation byte. New opcodes must be added at the end, so that encodings never change.
#[derive(Clone, Copy)]
#[repr(u8)]
enum Opcode {
    Input,
    Const,
    Arange,
    Unary,
    Binary,
    Where,
    MulAcc,
    Cast,
    Bitcast,
    Reduce,
    Reshape,
    Permute,
    Expand,
    Pad,
    Shrink,
    Flip,
    Cat,
    Gather,
    Contiguous,
    Realize,
    Detach,
    Method,
    Gradient,
}

impl Opcode {
    const ALL: [Opcode; 23] = [
        Opcode::Input,
        Opcode::Const,
        Opcode::Arange,
        Opcode::Unary,
        Opcode::Binary,
        Opcode::Where,
        Opcode::MulAcc,
        Opcode::Cast,
        Opcode::Bitcast,
        Opcode::Reduce,
        Opcode::Reshape,
        Opcode::Permute,
        Opcode::Expand,
        Opcode::Pad,
        Opcode::Shrink,
        Opcode::Flip,
        Opcode::Cat,
        Opcode::Gather,
        Opcode::Contiguous,
        Opcode::Realize,
        Opcode::Detach,
        Opcode::Method,
        Opcode::Gradient,
    ];
}

/// Limits of the decoded numbers; larger ones are reduced modulo the limit plus one.
struct Limits {
    statements: usize,
    rank: usize,
    axis_size: usize,
    value_elements: usize,
    total_elements: usize,
    list: usize,
}

/// Limits for bytes with a right checksum: those of typing.
const WIDE: Limits = Limits {
    statements: u32::MAX as usize,
    rank: MAX_RANK,
    axis_size: MAX_ELEMENTS,
    value_elements: MAX_ELEMENTS,
    total_elements: usize::MAX,
    list: u32::MAX as usize,
};

/// Limits for all other bytes.
const NARROW: Limits = Limits {
    statements: 64,
    rank: 6,
    axis_size: 64,
    value_elements: 4096,
    total_elements: 65_536,
    list: 8,
};

/// Decodes numbers from the bytes; after the end, all bytes are 0.
struct Reader<'a> {
    bytes: &'a [u8],
    limits: &'static Limits,
    types: Vec<TensorType>,
    statements: Vec<Statement>,
    elements: usize,
}

impl<'a> Reader<'a> {
    fn new(bytes: &'a [u8], limits: &'static Limits) -> Reader<'a> {
        Reader { bytes, limits, types: Vec::new(), statements: Vec::new(), elements: 0 }
    }

    fn program(mut self) -> Program {
        let count = self.count(self.limits.statements);
        for _ in 0..count {
            if self.bytes.is_empty() {
                break;
            }
            if let Some(statement) = self.statement() {
                self.push(statement);
            }
        }
        if self.statements.is_empty() {
            let value = Literal::Int(0);
            self.push(Statement::Const { dtype: DType::F32, shape: Shape::new(), value });
        }
        let mut outputs = Vec::new();
        let defined = self.statements.len();
        for _ in 0..self.list_length(self.limits.list) {
            outputs.push(ValueId((self.count(usize::MAX) % defined) as u32));
        }
        if outputs.is_empty() {
            outputs.push(ValueId(defined as u32 - 1));
        }
        Program { statements: self.statements, outputs }
    }

    /// Adds the statement, repaired if necessary; drops it if it still is ill-typed or too large.
    fn push(&mut self, mut statement: Statement) {
        let mut result = statement_type(&statement, &self.types);
        if result.is_err() {
            repair(&mut statement, &self.types);
            result = statement_type(&statement, &self.types);
        }
        let Ok(tensor) = result else { return };
        let total = self.elements.saturating_add(tensor.count());
        if tensor.count() <= self.limits.value_elements && total <= self.limits.total_elements {
            self.elements = total;
            self.statements.push(statement);
            self.types.push(tensor);
        }
    }

    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.bytes.split_first() else { return 0 };
        self.bytes = rest;
        *first
    }

    /// Reads a byte as an index of `items`, modulo their count.
    fn choice<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.byte() as usize % items.len()]
    }

    fn varint(&mut self) -> u128 {
        let mut value = 0;
        for shift in (0..126).step_by(7) {
            let byte = self.byte();
            value |= u128::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        value
    }

    fn signed(&mut self) -> i128 {
        let value = self.varint();
        (value >> 1) as i128 ^ -((value & 1) as i128)
    }

    fn count(&mut self, limit: usize) -> usize {
        let value = self.varint();
        if value <= limit as u128 { value as usize } else { (value % (limit as u128 + 1)) as usize }
    }

    /// Reads a length. Every item takes a byte or more, so the remaining bytes limit it: a forged
    /// length costs no more than these.
    fn list_length(&mut self, limit: usize) -> usize {
        self.count(limit).min(self.bytes.len())
    }

    fn counts(&mut self, limit: usize) -> Vec<usize> {
        (0..self.list_length(self.limits.rank)).map(|_| self.count(limit)).collect()
    }

    fn sizes(&mut self) -> Shape {
        self.counts(self.limits.axis_size)
    }

    fn pairs(&mut self) -> Vec<(usize, usize)> {
        let limit = self.limits.axis_size;
        let length = self.list_length(self.limits.rank);
        (0..length).map(|_| (self.count(limit), self.count(limit))).collect()
    }

    /// Reads an earlier value; `None` if there is none yet.
    fn value(&mut self) -> Option<ValueId> {
        let distance = self.count(u32::MAX as usize);
        let defined = self.types.len();
        let distance = distance.checked_rem(defined)?;
        Some(ValueId((defined - 1 - distance) as u32))
    }

    fn literal(&mut self) -> Literal {
        match self.byte() % 4 {
            2 => {
                let value = self.signed();
                if crate::element::INT_LITERALS.contains(&value) {
                    Literal::Int(value)
                } else {
                    Literal::Int(i128::from(value as i64))
                }
            }
            3 => {
                let bytes: [u8; 8] = std::array::from_fn(|_| self.byte());
                Literal::Float(f64::from_bits(u64::from_le_bytes(bytes)))
            }
            choice => Literal::Bool(choice == 1),
        }
    }

    fn operand(&mut self) -> Option<Operand> {
        Some(match self.byte() % 2 {
            0 => Operand::Value(self.value()?),
            _ => Operand::Literal(self.literal()),
        })
    }

    fn fill(&mut self, dtype: DType, shape: &[usize]) -> Option<Fill> {
        match self.byte() % 3 {
            0 => Some(Fill::Iota),
            1 => {
                let seed = self.varint() as u64;
                Some(Fill::Seeded { seed, distribution: self.choice(&Distribution::ALL) })
            }
            _ => {
                let count = crate::geometry::check_size(shape).ok()?;
                let size_bytes = dtype.size_bytes();
                let is_truncated = self.bytes.len() < count * size_bytes;
                if self.limits.value_elements < count || (is_truncated && 4096 < count) {
                    return None;
                }
                let limit = if dtype == DType::Bool { 1 } else { mask(dtype) };
                let mut element = || {
                    let mut padded = [0; 8];
                    padded[..size_bytes].fill_with(|| self.byte());
                    u64::from_le_bytes(padded) & limit
                };
                Some(Fill::Explicit((0..count).map(|_| element()).collect()))
            }
        }
    }

    /// Reads a statement; `None` if it needs a value and there is none.
    fn statement(&mut self) -> Option<Statement> {
        Some(match self.choice(&Opcode::ALL) {
            Opcode::Input => {
                let (dtype, shape) = (self.choice(&DType::ALL), self.sizes());
                Statement::Input { dtype, fill: self.fill(dtype, &shape)?, shape }
            }
            Opcode::Const => {
                let (dtype, shape) = (self.choice(&DType::ALL), self.sizes());
                Statement::Const { dtype, shape, value: self.literal() }
            }
            Opcode::Arange => Statement::Arange {
                dtype: self.choice(&DType::ALL),
                start: self.signed() as i64,
                step: self.signed() as i64,
                count: self.count(self.limits.axis_size),
            },
            Opcode::Unary => {
                Statement::Unary { op: self.choice(&UnaryOp::ALL), src: self.value()? }
            }
            Opcode::Binary => Statement::Binary {
                op: self.choice(&BinaryOp::ALL),
                srcs: [self.operand()?, self.operand()?],
            },
            Opcode::Where => {
                Statement::Where { srcs: [self.operand()?, self.operand()?, self.operand()?] }
            }
            Opcode::MulAcc => {
                Statement::MulAcc { srcs: [self.operand()?, self.operand()?, self.operand()?] }
            }
            Opcode::Cast => Statement::Cast { dtype: self.choice(&DType::ALL), src: self.value()? },
            Opcode::Bitcast => {
                Statement::Bitcast { dtype: self.choice(&DType::ALL), src: self.value()? }
            }
            Opcode::Reduce => Statement::Reduce {
                op: self.choice(&ReduceOp::ALL),
                src: self.value()?,
                axes: self.counts(MAX_RANK),
            },
            Opcode::Cat => {
                let length = self.list_length(self.limits.list);
                let srcs = (0..length).map(|_| self.value()).collect::<Option<_>>()?;
                Statement::Cat { srcs, axis: self.count(MAX_RANK) }
            }
            Opcode::Contiguous => Statement::Contiguous { src: self.value()? },
            Opcode::Realize => Statement::Realize { src: self.value()? },
            Opcode::Detach => Statement::Detach { src: self.value()? },
            Opcode::Method => self.method()?,
            Opcode::Gradient => Statement::Gradient { of: self.value()?, wrt: self.value()? },
            opcode => self.movement(opcode)?,
        })
    }

    fn method(&mut self) -> Option<Statement> {
        let method = self.choice(&Method::ALL);
        let row = method.row();
        let length = self.list_length(self.limits.list);
        let count = match row.arity {
            Arity::Exactly(count) => count,
            Arity::Between(least, limit) => length.clamp(least, limit),
            Arity::List => length,
        };
        let srcs = (0..count).map(|_| self.value()).collect::<Option<_>>()?;
        let args = row.parameters.iter().map(|(_, kind)| self.arg(*kind)).collect();
        Some(Statement::Method { method, srcs, args })
    }

    fn arg(&mut self, kind: ArgKind) -> Arg {
        match kind {
            ArgKind::Int => Arg::Int(self.signed() as i64),
            ArgKind::Ints => {
                let length = self.list_length(self.limits.list);
                Arg::Ints((0..length).map(|_| self.signed() as i64).collect())
            }
            ArgKind::Flag => Arg::Flag(self.byte() % 2 == 1),
            ArgKind::Number => Arg::Number(self.literal()),
            ArgKind::DType => Arg::DType(self.choice(&DType::ALL)),
            ArgKind::Word(words) => Arg::Word(self.choice(words)),
            ArgKind::Indices => {
                let length = self.list_length(self.limits.list);
                Arg::Indices((0..length).map(|_| self.index()).collect())
            }
        }
    }

    fn index(&mut self) -> Index {
        match self.byte() % 5 {
            0 => Index::Position(self.signed() as i64),
            1 => {
                let mut end = || (self.byte() % 2 == 1).then(|| self.signed() as i64);
                let (start, stop) = (end(), end());
                Index::Slice { start, stop, step: self.signed() as i64 }
            }
            2 => Index::NewAxis,
            3 => Index::Ellipsis,
            _ => Index::Source,
        }
    }

    fn movement(&mut self, opcode: Opcode) -> Option<Statement> {
        let src = self.value()?;
        Some(match opcode {
            Opcode::Reshape => Statement::Reshape { src, shape: self.sizes() },
            Opcode::Permute => Statement::Permute { src, axes: self.counts(MAX_RANK) },
            Opcode::Expand => Statement::Expand { src, shape: self.sizes() },
            Opcode::Pad => Statement::Pad { src, pads: self.pairs(), value: self.literal() },
            Opcode::Shrink => Statement::Shrink { src, ranges: self.pairs() },
            Opcode::Gather => {
                Statement::Gather { src, index: self.value()?, axis: self.count(MAX_RANK) }
            }
            _ => Statement::Flip { src, axes: self.counts(MAX_RANK) },
        })
    }
}
