//! Hand-written linear kernels: each op over each type, reductions, gates, groups, vectors.

use gradiff_graph::tensor_core::TensorCore;
use gradiff_graph::verify::verify_linear;
use gradiff_graph::{Arg, Axis, AxisKind, Constant, DType, Global, Instruction, Linear, Local, Op};

/// Builder of a linear kernel.
pub(crate) struct Builder {
    uops: Vec<Instruction>,
    /// The number of lanes of elementwise ops, loads and accumulators.
    lanes: u8,
    ranges: i64,
    accs: i64,
}

impl Builder {
    pub(crate) fn new(lanes: u8) -> Builder {
        Builder { uops: Vec::new(), lanes, ranges: 0, accs: 0 }
    }

    pub(crate) fn push(&mut self, op: Op, dtype: DType, src: &[u32], arg: Arg) -> u32 {
        self.uops.push(Instruction::new(op, dtype, src.iter().copied(), arg));
        self.uops.len() as u32 - 1
    }

    /// Appends a uop with the builder's number of lanes.
    pub(crate) fn push_vector(&mut self, op: Op, dtype: DType, src: &[u32], arg: Arg) -> u32 {
        let position = self.push(op, dtype, src, arg);
        self.uops[position as usize].lanes = self.lanes;
        position
    }

    pub(crate) fn global(&mut self, slot: usize, dtype: DType, size_elements: i64) -> u32 {
        let arg = Arg::Global(Global { slot, size_elements });
        self.push(Op::DefineGlobal, dtype, &[], arg)
    }

    pub(crate) fn local(&mut self, dtype: DType, size_elements: i64) -> u32 {
        let arg = Arg::Local(Local { number: 0, size_elements });
        self.push(Op::DefineLocal, dtype, &[], arg)
    }

    pub(crate) fn constant(&mut self, value: Constant) -> u32 {
        self.push(Op::Const, value.dtype(), &[], Arg::Const(value))
    }

    pub(crate) fn int(&mut self, value: i128) -> u32 {
        self.constant(Constant::int(DType::I32, value))
    }

    pub(crate) fn range(&mut self, kind: AxisKind, size: i128) -> u32 {
        let end = self.int(size);
        let arg = Arg::Axis(Axis { kind, number: self.ranges });
        self.ranges += 1;
        self.push(Op::Range, DType::I32, &[end], arg)
    }

    pub(crate) fn end(&mut self, range: u32) {
        self.push(Op::EndRange, DType::Void, &[range], Arg::None);
    }

    pub(crate) fn index(&mut self, array: u32, index: u32, gate: Option<u32>) -> u32 {
        let src: Vec<u32> = [array, index].into_iter().chain(gate).collect();
        self.push(Op::Index, self.uops[array as usize].dtype, &src, Arg::None)
    }

    pub(crate) fn load(&mut self, array: u32, index: u32, gate: Option<u32>) -> u32 {
        let index = self.index(array, index, gate);
        self.push_vector(Op::Load, self.uops[array as usize].dtype, &[index], Arg::None)
    }

    pub(crate) fn store(&mut self, array: u32, index: u32, value: u32, gate: Option<u32>) -> u32 {
        let index = self.index(array, index, gate);
        self.push(Op::Store, DType::Void, &[index, value], Arg::None)
    }

    /// A value in all lanes.
    pub(crate) fn splat(&mut self, value: u32) -> u32 {
        match self.lanes {
            1 => value,
            _ => self.push_vector(
                Op::Vectorize,
                self.uops[value as usize].dtype,
                &[value],
                Arg::None,
            ),
        }
    }

    pub(crate) fn acc(&mut self, start: u32) -> u32 {
        self.accs += 1;
        let arg = Arg::Int(self.accs - 1);
        self.push_vector(Op::DefineAcc, self.uops[start as usize].dtype, &[start], arg)
    }

    pub(crate) fn alu(&mut self, op: Op, dtype: DType, src: &[u32]) -> u32 {
        self.push_vector(op, dtype, src, Arg::None)
    }

    /// Verifies and returns the kernel.
    pub(crate) fn finish(self, name: &str) -> Linear {
        let linear = Linear { name: name.to_string(), uops: self.uops };
        if let Err(error) = verify_linear(&linear) {
            panic!("{error}\n{linear}");
        }
        linear
    }
}

/// `data0[i] = op(data1[i], data2[i], ...)` for all i below 64, `lanes` at a time.
pub(crate) fn elementwise(op: Op, from: &[DType], to: DType, lanes: u8) -> Linear {
    let mut b = Builder::new(lanes);
    let out = b.global(0, to, 64);
    let arrays: Vec<u32> =
        from.iter().enumerate().map(|(slot, dtype)| b.global(slot + 1, *dtype, 64)).collect();
    let count = b.int(i128::from(lanes));
    let range = b.range(AxisKind::Loop, 64 / i128::from(lanes));
    let index = b.push(Op::Mul, DType::I32, &[range, count], Arg::None);
    let values: Vec<u32> = arrays.into_iter().map(|array| b.load(array, index, None)).collect();
    let value = b.alu(op, to, &values);
    b.store(out, index, value, None);
    b.end(range);
    let types: Vec<&str> = from.iter().map(|dtype| dtype.name()).collect();
    b.finish(&format!("E_{op}_{}_{to}_{lanes}", types.join("_")))
}

/// A tile of a matrix product: 8 rows by 2 vectors, over 512 iterations.
pub(crate) fn tile() -> Linear {
    let mut b = Builder::new(16);
    let [out, left, right] = [0, 1, 2].map(|slot| b.global(slot, DType::F32, 512 * 512));
    let zero = b.constant(Constant::zero(DType::F32));
    let zeros = b.splat(zero);
    let accs: Vec<u32> = (0..16).map(|_| b.acc(zeros)).collect();
    let range = b.range(AxisKind::Loop, 512);
    let width = b.int(512);
    let row = b.push(Op::Mul, DType::I32, &[range, width], Arg::None);
    let half = b.int(16);
    let second = b.push(Op::Add, DType::I32, &[row, half], Arg::None);
    let columns = [b.load(right, row, None), b.load(right, second, None)];
    for line in 0..8u32 {
        let offset = b.int(i128::from(line) * 512);
        let position = b.push(Op::Add, DType::I32, &[range, offset], Arg::None);
        let index = b.index(left, position, None);
        let element = b.push(Op::Load, DType::F32, &[index], Arg::None);
        let factor = b.splat(element);
        for (number, column) in columns.iter().enumerate() {
            let acc = accs[line as usize * 2 + number];
            let next = b.alu(Op::MulAcc, DType::F32, &[factor, *column, acc]);
            b.push_vector(Op::Assign, DType::F32, &[acc, next], Arg::None);
        }
    }
    b.end(range);
    for (number, acc) in accs.iter().enumerate() {
        let index = b.int((number as i128 / 2) * 512 + (number as i128 % 2) * 16);
        b.store(out, index, *acc, None);
    }
    b.finish("r_8_2_16_512")
}

/// Each elementwise op with each type that it takes: op, types of the sources, type of the result.
pub(crate) fn signatures() -> Vec<(Op, Vec<DType>, DType)> {
    let mut list = Vec::new();
    let ops = gradiff_graph::op::OPS.iter().map(|row| row.op).filter(|op| op.is_elementwise());
    for op in ops.filter(|op| *op != Op::Threefry) {
        for dtype in DType::ALL {
            let arity = op.row().arity.0;
            match op {
                Op::Cast => {
                    list.extend(DType::ALL.map(|to| (op, vec![dtype], to)));
                }
                Op::Bitcast => {
                    let fits = |to: &DType| to.size_bytes() == dtype.size_bytes();
                    let targets = DType::ALL.into_iter().filter(fits);
                    let targets = targets.filter(|to| ![dtype, *to].contains(&DType::Bool));
                    list.extend(targets.map(|to| (op, vec![dtype], to)));
                }
                Op::Where => list.push((op, vec![DType::Bool, dtype, dtype], dtype)),
                Op::CmpLt | Op::CmpNe => list.push((op, vec![dtype; 2], DType::Bool)),
                _ if !op.row().operands.contains(dtype) => {}
                _ => list.push((op, vec![dtype; arity], dtype)),
            }
        }
    }
    list
}

/// `data0[i] = (data1[i] < data2[i] or data3[i] != data4[i]) ? data5[i] : data6[i]`.
pub(crate) fn choice(left: DType, right: DType, dtype: DType, lanes: u8) -> Linear {
    let mut b = Builder::new(lanes);
    let types = [dtype, left, left, right, right, dtype, dtype];
    let arrays: Vec<u32> =
        types.iter().enumerate().map(|(slot, dtype)| b.global(slot, *dtype, 64)).collect();
    let count = b.int(i128::from(lanes));
    let range = b.range(AxisKind::Loop, 64 / i128::from(lanes));
    let index = b.push(Op::Mul, DType::I32, &[range, count], Arg::None);
    let values: Vec<u32> = arrays[1..].iter().map(|array| b.load(*array, index, None)).collect();
    let less = b.alu(Op::CmpLt, DType::Bool, &[values[0], values[1]]);
    let unequal = b.alu(Op::CmpNe, DType::Bool, &[values[2], values[3]]);
    let either = b.alu(Op::Or, DType::Bool, &[less, unequal]);
    let value = b.alu(Op::Where, dtype, &[either, values[4], values[5]]);
    b.store(arrays[0], index, value, None);
    b.end(range);
    b.finish(&format!("E_choice_{left}_{right}_{dtype}_{lanes}"))
}

/// `data0[i] = data1[i] < data2[i] ? data1[i] : data2[i]`, or with `>` for `Max`.
pub(crate) fn compare_select(op: Op, dtype: DType, lanes: u8) -> Linear {
    let mut b = Builder::new(lanes);
    let arrays = [0, 1, 2].map(|slot| b.global(slot, dtype, 64));
    let count = b.int(i128::from(lanes));
    let range = b.range(AxisKind::Loop, 64 / i128::from(lanes));
    let index = b.push(Op::Mul, DType::I32, &[range, count], Arg::None);
    let [x, y] = [1, 2].map(|slot| b.load(arrays[slot], index, None));
    let compared = if op == Op::Min { [x, y] } else { [y, x] };
    let gate = b.alu(Op::CmpLt, DType::Bool, &compared);
    let value = b.alu(Op::Where, dtype, &[gate, x, y]);
    b.store(arrays[0], index, value, None);
    b.end(range);
    b.finish(&format!("E_extreme_{op}_{dtype}_{lanes}"))
}

/// 4 groups of 16 threads; each group sums 16 values through local memory.
pub(crate) fn group() -> Linear {
    let mut b = Builder::new(1);
    let [out, input] = [(0, 4), (1, 64)].map(|(slot, size)| b.global(slot, DType::F32, size));
    let local = b.local(DType::F32, 16);
    let zero = b.constant(Constant::zero(DType::F32));
    let group = b.range(AxisKind::Global, 4);
    let thread = b.range(AxisKind::Local, 16);
    let sixteen = b.int(16);
    let row = b.push(Op::Mul, DType::I32, &[group, sixteen], Arg::None);
    let index = b.push(Op::Add, DType::I32, &[row, thread], Arg::None);
    let value = b.load(input, index, None);
    let stored = b.store(local, thread, value, None);
    let barrier = b.push(Op::Barrier, DType::Void, &[stored], Arg::None);
    let sum = b.acc(zero);
    let range = b.range(AxisKind::Loop, 16);
    let index = b.index(local, range, None);
    let element = b.push(Op::Load, DType::F32, &[index, barrier], Arg::None);
    let next = b.push(Op::Add, DType::F32, &[sum, element], Arg::None);
    b.push(Op::Assign, DType::F32, &[sum, next], Arg::None);
    b.end(range);
    let first = b.int(1);
    let is_first = b.push(Op::CmpLt, DType::Bool, &[thread, first], Arg::None);
    b.store(out, group, sum, Some(is_first));
    b.end(thread);
    b.end(group);
    b.finish("r_4_16")
}

/// `data0 = data1 * data2 + data3` by a warp. Each array holds the fragments of the threads, one
/// after the other.
pub(crate) fn product(core: &'static TensorCore) -> Linear {
    let mut b = Builder::new(1);
    let types = [DType::F32, core.operand_dtype, core.operand_dtype, DType::F32];
    let counts = [2, 0, 1, 2].map(|matrix| core.elements(matrix) as i64);
    let array =
        |b: &mut Builder, slot: usize| b.global(slot, types[slot], core.threads * counts[slot]);
    let arrays = [0, 1, 2, 3].map(|slot| array(&mut b, slot));
    let thread = b.range(AxisKind::Local, core.threads.into());
    let index = |b: &mut Builder, slot: usize| {
        let count = b.int(counts[slot].into());
        b.push(Op::Mul, DType::I32, &[thread, count], Arg::None)
    };
    let mut src = Vec::new();
    for slot in 1..4 {
        b.lanes = counts[slot] as u8;
        let index = index(&mut b, slot);
        src.push(b.load(arrays[slot], index, None));
    }
    src.push(thread);
    let product = b.push_vector(Op::Wmma, DType::F32, &src, Arg::TensorCore(core));
    let index = index(&mut b, 0);
    b.store(arrays[0], index, product, None);
    b.end(thread);
    b.finish(&format!("r_wmma_{}", core.name))
}

/// `data0[i] = data1[i]` by vectors, twice: with a gate on the loads and with one on the stores.
pub(crate) fn copy(dtype: DType, lanes: u8) -> Linear {
    let mut b = Builder::new(lanes);
    let [out, input] = [0, 1].map(|slot| b.global(slot, dtype, 64));
    let count = b.int(i128::from(lanes));
    let range = b.range(AxisKind::Local, 64 / i128::from(lanes));
    let index = b.push(Op::Mul, DType::I32, &[range, count], Arg::None);
    let half = b.int(32);
    let gate = b.push(Op::CmpLt, DType::Bool, &[index, half], Arg::None);
    let value = b.load(input, index, Some(gate));
    b.store(out, index, value, None);
    let value = b.load(input, index, None);
    b.store(out, index, value, Some(gate));
    b.end(range);
    b.finish(&format!("E_copy_{dtype}_{lanes}"))
}

/// Doubles the lanes of a vector one by one.
pub(crate) fn lanes(dtype: DType, lanes: u8) -> Linear {
    let mut b = Builder::new(lanes);
    let [out, input] = [0, 1].map(|slot| b.global(slot, dtype, 64));
    let zero = b.int(0);
    let value = b.load(input, zero, None);
    let sums: Vec<u32> = (0..i64::from(lanes))
        .map(|lane| {
            let lane = b.push(Op::Lane, dtype, &[value], Arg::Int(lane));
            b.push(Op::Add, dtype, &[lane, lane], Arg::None)
        })
        .collect();
    let value = b.push_vector(Op::Vectorize, dtype, &sums, Arg::None);
    b.store(out, zero, value, None);
    b.finish(&format!("E_apart_{dtype}_{lanes}"))
}

/// A reduction in a grid of three dimensions, with a vector accumulator.
pub(crate) fn reduction(dtype: DType, lanes: u8) -> Linear {
    let mut b = Builder::new(lanes);
    let [out, input] = [0, 1].map(|slot| b.global(slot, dtype, 4096));
    let start = b.constant(Constant::one(dtype));
    let groups: Vec<u32> = (2..5).map(|size| b.range(AxisKind::Global, size)).collect();
    let start = b.splat(start);
    let acc = b.acc(start);
    let range = b.range(AxisKind::Loop, 8);
    let mut index = b.push(Op::Add, DType::I32, &[range, groups[0]], Arg::None);
    for group in &groups[1..] {
        index = b.push(Op::Add, DType::I32, &[index, *group], Arg::None);
    }
    let width = b.int(i128::from(lanes));
    let index = b.push(Op::Mul, DType::I32, &[index, width], Arg::None);
    let value = b.load(input, index, None);
    let op = if lanes == 1 || dtype == DType::Bool { Op::Max } else { Op::Mul };
    let next = b.alu(op, dtype, &[acc, value]);
    b.push_vector(Op::Assign, dtype, &[acc, next], Arg::None);
    b.end(range);
    b.store(out, groups[2], acc, None);
    for group in groups.into_iter().rev() {
        b.end(group);
    }
    b.finish(&format!("r_fold_{dtype}_{lanes}"))
}

/// The constants of a type that renderers are likely to get wrong.
pub(crate) fn constant_values(dtype: DType) -> Vec<Constant> {
    let mut values = vec![Constant::zero(dtype), Constant::one(dtype), Constant::smallest(dtype)];
    if dtype.is_float() {
        let floats = [-0.0, 0.1, -1.5, f64::NAN, f64::INFINITY, 1e-45, 6e-8, 65504.0];
        values.extend(floats.map(|value| Constant::float(dtype, value)));
        let quiet = Constant::float(dtype, f64::NAN).bits();
        values.push(Constant::from_bits(dtype, quiet | 1));
    } else {
        values.push(Constant::from_bits(dtype, u64::MAX));
        values.push(Constant::int(dtype, 77));
    }
    values
}

/// Stores [`constant_values`].
pub(crate) fn constants(dtype: DType) -> Linear {
    let mut b = Builder::new(1);
    let out = b.global(0, dtype, 16);
    for (number, value) in constant_values(dtype).into_iter().enumerate() {
        let (index, value) = (b.int(number as i128), b.constant(value));
        b.store(out, index, value, None);
    }
    b.finish(&format!("E_constants_{dtype}"))
}

/// A kernel with an integer parameter.
fn variables(dtype: DType) -> Linear {
    let mut b = Builder::new(1);
    let out = b.global(0, DType::F32, 1024);
    let variable = gradiff_graph::Variable { name: "start".into(), min: 0, max: 9 };
    let start = b.push(Op::DefineVar, dtype, &[], Arg::Var(variable.into()));
    let range = b.range(AxisKind::Global, 4);
    let index = b.push(Op::Cast, DType::I32, &[start], Arg::None);
    let position = b.push(Op::Add, DType::I32, &[range, index], Arg::None);
    let value = b.push(Op::Cast, DType::F32, &[position], Arg::None);
    b.store(out, position, value, None);
    b.end(range);
    b.finish(&format!("E_variable_{dtype}"))
}

/// `data0[0] = c * c + data1[0]` for a constant whose square overflows.
fn square_of_literal(dtype: DType) -> Linear {
    let mut b = Builder::new(1);
    let [out, from] = [0, 1].map(|slot| b.global(slot, dtype, 1));
    let large = b.constant(Constant::int(dtype, 1 << 20));
    let index = b.int(0);
    let value = b.load(from, index, None);
    let sum = b.alu(Op::MulAcc, dtype, &[large, large, value]);
    b.store(out, index, sum, None);
    b.finish(&format!("E_square_of_literal_{dtype}"))
}

/// The representative kernels: each op over each type, scalar and, if the language has them, with
/// vectors; loads, stores, gates, reductions, groups, constants, parameters.
pub(crate) fn representative(language: &gradiff_render::Language) -> Vec<Linear> {
    let mut list = vec![group(), variables(DType::I32), variables(DType::I64)];
    list.extend([DType::I32, DType::U32].map(square_of_literal));
    list.extend(crate::products::cores().map(product));
    for (number, (op, from, to)) in signatures().into_iter().enumerate() {
        list.push(elementwise(op, &from, to, 1));
        let types = || from.iter().chain([&to]);
        let lanes_max = types().map(|dtype| (language.lanes_max)(*dtype)).min().unwrap_or(1);
        let lanes = [4, 2, 8, 16][number % 4].min(lanes_max);
        if lanes > 1 && types().all(|dtype| (language.has_vector_alu)(*dtype)) {
            list.push(elementwise(op, &from, to, lanes));
        }
    }
    for (number, dtype) in DType::ALL.into_iter().enumerate() {
        let lanes_max = (language.lanes_max)(dtype);
        list.push(constants(dtype));
        list.push(reduction(dtype, 1));
        list.push(copy(dtype, 1));
        let counts = [2, 4, 8, 16, 32, 64].into_iter().filter(|count| *count <= lanes_max);
        list.extend(counts.flat_map(|count| [copy(dtype, count), lanes(dtype, count)]));
        let dtype_after = |by: usize| DType::ALL[(number + by) % DType::ALL.len()];
        let is_wide =
            |dtype: DType| (language.has_vector_alu)(dtype) && (language.lanes_max)(dtype) >= 4;
        if is_wide(dtype) {
            list.push(reduction(dtype, 4));
            if is_wide(dtype_after(3)) && is_wide(dtype_after(5)) {
                list.push(choice(dtype_after(3), dtype_after(5), dtype, 4));
            }
        }
        list.push(choice(dtype_after(3), dtype_after(7), dtype, 1));
    }
    list
}
