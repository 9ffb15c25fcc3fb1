//! Hand-written kernels for the tests of devices.

use gradiff_graph::verify::verify_linear;
use gradiff_graph::{
    Arg, Axis, AxisKind, Constant, DType, Global, Instruction, Linear, Local, Op, evaluate,
};
use gradiff_runtime::Memory;

/// An elementwise expression over the inputs of a kernel.
#[derive(Clone, Debug)]
pub(crate) enum Expression {
    /// The element of this input.
    Input(usize, DType),
    /// A constant.
    Const(Constant),
    /// An op that gives this dtype.
    Apply(Op, DType, Vec<Expression>),
}

impl Expression {
    pub(crate) fn dtype(&self) -> DType {
        match self {
            Expression::Input(_, dtype) | Expression::Apply(_, dtype, _) => *dtype,
            Expression::Const(value) => value.dtype(),
        }
    }

    /// Evaluates by the meaning of the ops; `None` if the value is undefined.
    pub(crate) fn evaluate(&self, inputs: &[Constant]) -> Option<Constant> {
        match self {
            Expression::Input(number, _) => Some(inputs[*number]),
            Expression::Const(value) => Some(*value),
            Expression::Apply(op, dtype, sources) => {
                let values: Option<Vec<Constant>> =
                    sources.iter().map(|source| source.evaluate(inputs)).collect();
                evaluate(*op, *dtype, &values?)
            }
        }
    }
}

/// Builder of a linear kernel.
#[derive(Default)]
pub(crate) struct Builder {
    pub(crate) uops: Vec<Instruction>,
}

impl Builder {
    pub(crate) fn push(&mut self, op: Op, dtype: DType, src: &[u32], arg: Arg) -> u32 {
        self.uops.push(Instruction::new(op, dtype, src.iter().copied(), arg));
        self.uops.len() as u32 - 1
    }

    pub(crate) fn global(&mut self, slot: usize, dtype: DType, size_elements: i64) -> u32 {
        self.push(Op::DefineGlobal, dtype, &[], Arg::Global(Global { slot, size_elements }))
    }

    pub(crate) fn constant(&mut self, value: Constant) -> u32 {
        self.push(Op::Const, value.dtype(), &[], Arg::Const(value))
    }

    pub(crate) fn int(&mut self, value: i64) -> u32 {
        self.constant(Constant::int(DType::I32, value.into()))
    }

    pub(crate) fn range(&mut self, count: i64) -> u32 {
        let end = self.int(count);
        self.push(Op::Range, DType::I32, &[end], Arg::plain_axis(0))
    }

    /// A range of any kind.
    pub(crate) fn range_of(&mut self, kind: AxisKind, count: i64) -> u32 {
        let end = self.int(count);
        let number = self.uops.len() as i64;
        self.push(Op::Range, DType::I32, &[end], Arg::Axis(Axis { kind, number }))
    }

    pub(crate) fn local(&mut self, number: usize, dtype: DType, size_elements: i64) -> u32 {
        self.push(Op::DefineLocal, dtype, &[], Arg::Local(Local { number, size_elements }))
    }

    pub(crate) fn barrier(&mut self) {
        self.push(Op::Barrier, DType::Void, &[], Arg::None);
    }

    /// A uop of several lanes.
    pub(crate) fn vector(&mut self, op: Op, dtype: DType, lanes: u8, src: &[u32]) -> u32 {
        let position = self.push(op, dtype, src, Arg::None);
        self.uops[position as usize].lanes = lanes;
        position
    }

    /// Loads `lanes` elements of a global from `index`.
    pub(crate) fn load_lanes(
        &mut self,
        array: u32,
        index: u32,
        gate: Option<u32>,
        lanes: u8,
    ) -> u32 {
        let load = self.load(array, index, gate);
        self.uops[load as usize].lanes = lanes;
        load
    }

    pub(crate) fn end(&mut self, range: u32) {
        self.push(Op::EndRange, DType::Void, &[range], Arg::None);
    }

    pub(crate) fn binary(&mut self, op: Op, dtype: DType, x: u32, y: u32) -> u32 {
        self.push(op, dtype, &[x, y], Arg::None)
    }

    /// Loads element `index` of a global, 0 where the gate is false.
    pub(crate) fn load(&mut self, global: u32, index: u32, gate: Option<u32>) -> u32 {
        let dtype = self.uops[global as usize].dtype;
        let src: Vec<u32> = [global, index].into_iter().chain(gate).collect();
        let address = self.push(Op::Index, dtype, &src, Arg::None);
        self.push(Op::Load, dtype, &[address], Arg::None)
    }

    pub(crate) fn store(&mut self, global: u32, index: u32, gate: Option<u32>, value: u32) {
        let dtype = self.uops[global as usize].dtype;
        let src: Vec<u32> = [global, index].into_iter().chain(gate).collect();
        let address = self.push(Op::Index, dtype, &src, Arg::None);
        self.push(Op::Store, DType::Void, &[address, value], Arg::None);
    }

    pub(crate) fn finish(self, name: &str) -> Linear {
        Linear { name: name.to_string(), uops: self.uops }
    }

    /// Verifies and returns the kernel.
    pub(crate) fn verified(self, name: &str) -> Linear {
        let kernel = self.finish(name);
        assert_eq!(verify_linear(&kernel), Ok(()), "{kernel}");
        kernel
    }

    fn expression(&mut self, expression: &Expression, loads: &[u32], lanes: u8) -> u32 {
        match expression {
            Expression::Input(number, _) => loads[*number],
            Expression::Const(value) => {
                let constant = self.constant(*value);
                match lanes {
                    1 => constant,
                    _ => self.vector(Op::Vectorize, value.dtype(), lanes, &[constant]),
                }
            }
            Expression::Apply(op, dtype, sources) => {
                let src: Vec<u32> =
                    sources.iter().map(|source| self.expression(source, loads, lanes)).collect();
                self.vector(*op, *dtype, lanes, &src)
            }
        }
    }
}

/// One loop: `data0[i] = expression(data1[i], data2[i], ...)`.
pub(crate) fn elementwise(
    name: &str,
    expression: &Expression,
    inputs: &[DType],
    count: i64,
) -> Linear {
    repeated(name, expression, inputs, count, (None, 1))
}

/// As [`elementwise`], repeated in an outer loop, by vectors of this number of lanes.
pub(crate) fn repeated(
    name: &str,
    expression: &Expression,
    inputs: &[DType],
    count: i64,
    (repeats, lanes): (Option<i64>, u8),
) -> Linear {
    assert_eq!(count % i64::from(lanes), 0, "whole vectors");
    let mut builder = Builder::default();
    let output = builder.global(0, expression.dtype(), count);
    let globals: Vec<u32> =
        (1..).zip(inputs).map(|(slot, dtype)| builder.global(slot, *dtype, count)).collect();
    let outer = repeats.map(|repeats| builder.range(repeats));
    let range = builder.range(count / i64::from(lanes));
    let index = match lanes {
        1 => range,
        _ => {
            let stride = builder.int(lanes.into());
            builder.binary(Op::Mul, DType::I32, range, stride)
        }
    };
    let loads: Vec<u32> =
        globals.iter().map(|global| builder.load_lanes(*global, index, None, lanes)).collect();
    let value = builder.expression(expression, &loads, lanes);
    builder.store(output, index, None, value);
    builder.end(range);
    outer.into_iter().for_each(|outer| builder.end(outer));
    builder.finish(name)
}

pub(crate) fn memory_of(values: &[Constant]) -> Memory {
    let dtype = values[0].dtype();
    let size = dtype.size_bytes();
    let bytes: Vec<u8> =
        values.iter().flat_map(|value| value.bits().to_le_bytes()[..size].to_vec()).collect();
    Memory::from_bytes(dtype, &bytes).expect("whole elements")
}

pub(crate) fn values_of(memory: &Memory) -> Vec<Constant> {
    let size = memory.dtype().size_bytes();
    let value = |bytes: &[u8]| {
        let mut word = [0; 8];
        word[..size].copy_from_slice(bytes);
        Constant::from_bits(memory.dtype(), u64::from_le_bytes(word))
    };
    memory.read().expect("it was written").chunks(size).map(value).collect()
}

pub(crate) fn ints(dtype: DType, values: &[i128]) -> Vec<Constant> {
    values.iter().map(|value| Constant::int(dtype, *value)).collect()
}
