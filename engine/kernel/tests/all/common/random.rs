//! Random kernel trees with their memories.

use gradiff_graph::{Arg, Constant, DType, Dims, Global, Op, UOp};
use gradiff_view::ShapeTracker;

use super::Memories;

/// A random number generator: splitmix64.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// Returns any number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// Returns a number from 0 to `count` (exclusive).
    pub(crate) fn below(&mut self, count: usize) -> usize {
        (self.next() % count as u64) as usize
    }

    /// Returns true once in `count` times.
    pub(crate) fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

/// A kernel tree and its memories.
pub(crate) struct Case {
    /// The sink.
    pub(crate) ast: UOp,
    /// Sizes of the axes before reduction.
    pub(crate) sizes: Vec<i64>,
    /// The arrays by slot; slot 0 is the output.
    pub(crate) memories: Memories,
}

struct Maker<'a> {
    random: &'a mut Random,
    memories: Memories,
}

/// Makes the tracker of a whole array.
pub(crate) fn plain(shape: &[i64]) -> ShapeTracker {
    ShapeTracker::from_shape(shape).expect("a small shape")
}

/// Makes a parameter.
pub(crate) fn global(dtype: DType, slot: usize, size_elements: i64) -> UOp {
    UOp::new(Op::DefineGlobal, dtype, [], Arg::Global(Global { slot, size_elements }))
}

/// Makes a load of a kernel tree.
pub(crate) fn load(dtype: DType, slot: usize, size_elements: i64, tracker: ShapeTracker) -> UOp {
    UOp::new(Op::Load, dtype, [global(dtype, slot, size_elements)], Arg::View(tracker))
}

/// Makes the sink of one store of the value to slot 0, in row-major order.
pub(crate) fn sink(value: UOp, shape: &[i64]) -> UOp {
    let size = shape.iter().product();
    let tracker = plain(shape);
    let target = global(value.dtype(), 0, size);
    let store = UOp::new(Op::Store, DType::Void, [target, value], Arg::View(tracker));
    UOp::new(Op::Sink, DType::Void, [store], Arg::None)
}

/// Makes a reduction over the axes.
pub(crate) fn reduce(op: Op, value: UOp, axes: &[i64]) -> UOp {
    let arg = Arg::Reduce(op, Dims::from_slice(axes));
    UOp::new(Op::ReduceAxis, value.dtype(), [value], arg)
}

/// Makes `exp2(x) * sum(exp2(x))` for rows of slot 1, in which exp2 is worth caching.
pub(crate) fn exp2_times_its_sum(rows: i64, columns: i64) -> UOp {
    let x = load(DType::F32, 1, rows * columns, plain(&[rows, columns]));
    let value = UOp::unary(Op::Exp2, DType::F32, x);
    let broadcast = plain(&[rows, 1]).expand(&[rows, columns]).expect("rows");
    let sum = reduce(Op::Add, value.clone(), &[1]);
    let sum = UOp::new(Op::View, DType::F32, [sum], Arg::View(broadcast));
    UOp::binary(Op::Mul, value, sum)
}

const TYPES: [DType; 8] = [
    DType::I32,
    DType::F32,
    DType::I8,
    DType::U8,
    DType::I64,
    DType::F16,
    DType::BF16,
    DType::Bool,
];

/// Draws a case of rank 0 to 4, with or without a reduction.
pub(crate) fn case(random: &mut Random) -> Case {
    let sizes: Vec<i64> = (0..random.below(5)).map(|_| random.pick(&[1, 2, 2, 3, 4])).collect();
    let axes: Vec<i64> = (0..sizes.len() as i64).filter(|_| random.one_in(3)).collect();
    let dtype = random.pick(&TYPES);
    let mut maker = Maker { random, memories: vec![Vec::new()] };
    let mut value = maker.tree(&sizes, dtype, 3);
    let mut shape = sizes.clone();
    if !axes.is_empty() {
        let wide = dtype.accumulator();
        if wide != dtype {
            value = UOp::unary(Op::Cast, wide, value);
        }
        let ops: &[Op] =
            if wide.is_float() { &[Op::Add, Op::Max] } else { &[Op::Add, Op::Mul, Op::Max] };
        value = reduce(maker.random.pick(ops), value, &axes);
        axes.iter().for_each(|axis| shape[*axis as usize] = 1);
        if maker.random.one_in(2) {
            let addend = maker.tree(&shape, wide, 1);
            value = UOp::binary(Op::Add, value, addend);
        } else if maker.random.one_in(2) {
            // Broadcast along the reduced axes, and perhaps reduced again.
            let tracker = plain(&shape).expand(&sizes).expect("reduced axes have size 1");
            value = UOp::new(Op::View, wide, [value], Arg::View(tracker));
            value = UOp::binary(Op::Add, maker.tree(&sizes, wide, 1), value);
            if maker.random.one_in(2) {
                value = reduce(maker.random.pick(ops), value, &axes);
            } else {
                shape.clone_from(&sizes);
            }
        }
    }
    let ast = sink(value, &shape);
    let mut memories = maker.memories;
    memories[0] = vec![None; shape.iter().product::<i64>() as usize];
    Case { ast, sizes, memories }
}

impl Maker<'_> {
    fn tree(&mut self, shape: &[i64], dtype: DType, depth: usize) -> UOp {
        if depth == 0 || self.random.one_in(5) {
            return self.leaf(shape, dtype);
        }
        let x = self.tree(shape, dtype, depth - 1);
        match self.random.below(7) {
            0 => {
                let from = self.random.pick(&[DType::I32, DType::I8, DType::Bool]);
                let source = self.tree(shape, from, depth - 1);
                if from == dtype { source } else { UOp::unary(Op::Cast, dtype, source) }
            }
            1 => {
                let y = self.tree(shape, dtype, depth - 1);
                UOp::select(UOp::binary(Op::CmpLt, x.clone(), y.clone()), y, x)
            }
            2 if dtype != DType::Bool => UOp::unary(Op::Neg, dtype, x),
            3 if dtype.is_int() => {
                let y = self.tree(shape, dtype, depth - 1);
                let ops = [Op::FloorDiv, Op::CMod, Op::Xor, Op::CDiv, Op::FloorMod, Op::Min];
                UOp::binary(self.random.pick(&ops), x, y)
            }
            _ => {
                let y = self.tree(shape, dtype, depth - 1);
                let ops = [Op::Add, Op::Mul, Op::Max, Op::Sub];
                let bools = [Op::And, Op::Or, Op::CmpNe, Op::Xor];
                UOp::binary(
                    self.random.pick(if dtype == DType::Bool { &bools } else { &ops }),
                    x,
                    y,
                )
            }
        }
    }

    fn leaf(&mut self, shape: &[i64], dtype: DType) -> UOp {
        let (tracker, size) = self.tracker(shape, true);
        match self.random.below(6) {
            0 => {
                let value = UOp::constant(Constant::int(dtype, self.random.below(7) as i128 - 3));
                UOp::new(Op::View, dtype, [value], Arg::View(tracker))
            }
            1 if dtype.is_int() => {
                let iota = UOp::new(Op::Iota, dtype, [], Arg::Int(size));
                UOp::new(Op::View, dtype, [iota], Arg::View(tracker))
            }
            _ => {
                let slot = self.memories.len();
                let element = |random: &mut Random| {
                    let value = random.below(9) as i128 - 4;
                    (!random.one_in(40)).then(|| Constant::int(dtype, value))
                };
                let memory = (0..size).map(|_| element(self.random)).collect();
                self.memories.push(memory);
                load(dtype, slot, size, tracker)
            }
        }
    }

    /// Draws a tracker of the shape; returns it and the number of elements of its array.
    fn tracker(&mut self, shape: &[i64], may_nest: bool) -> (ShapeTracker, i64) {
        let count: i64 = shape.iter().product();
        if may_nest && self.random.one_in(4) {
            let factor = (2..=4).rev().find(|factor| count % factor == 0).unwrap_or(1);
            let (tracker, size) = self.tracker(&[factor, count / factor], false);
            return (tracker.reshape(shape).expect("as many elements"), size);
        }
        let rank = shape.len();
        let (mut pads, mut cuts, mut flips) = (Vec::new(), Vec::new(), Vec::new());
        let (mut small, mut base) = (Vec::new(), Vec::new());
        for size in shape.iter().copied() {
            let kind = self.random.below(5);
            small.push(if kind == 1 { 1 } else { size });
            flips.push(kind != 1 && self.random.one_in(3));
            let (pad, cut) = match kind {
                2 if size > 1 => ((self.random.below(2) as i64, 1), (0, 0)),
                3 => ((0, 0), (1, self.random.below(2) as i64)),
                _ => ((0, 0), (0, 0)),
            };
            let pad = if pad.0 + pad.1 < size { pad } else { (0, 0) };
            let inner = small[small.len() - 1] - pad.0 - pad.1;
            base.push(inner + cut.0 + cut.1);
            pads.push(pad);
            cuts.push((cut.0, cut.0 + inner));
        }
        let mut order: Vec<usize> = (0..rank).collect();
        if self.random.one_in(2) {
            (1..rank).for_each(|last| order.swap(last, self.random.below(last + 1)));
        }
        // Axis i of the view is axis order[i] of the memory.
        let mut memory = vec![0; rank];
        order.iter().zip(&base).for_each(|(axis, size)| memory[*axis] = *size);
        let tracker = plain(&memory)
            .permute(&order)
            .and_then(|tracker| tracker.shrink(&cuts))
            .and_then(|tracker| tracker.flip(&flips))
            .and_then(|tracker| tracker.pad(&pads))
            .and_then(|tracker| tracker.expand(shape))
            .expect("sizes that fit");
        (tracker, memory.iter().product())
    }
}
