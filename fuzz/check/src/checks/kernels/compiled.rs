//! Kernels whose texts a compiler changes if its flags are wrong: of sums that wrap and are
//! compared again, which fold if a signed overflow counts as undefined, and of truth values that
//! are computed side by side, which gcc 12 vectorises wrongly.
//!
//! Expected elements are those of the evaluator, as for other drawn kernels.

use gradiff::graph::{Arg, BoundedLinear, Constant, DType, Global, Instruction, Linear, Op};
use gradiff_eval::{Elements, scalar};

use super::draw::Style;
use super::{Drawn, SAID};
use crate::checks::calls::Draw;

/// Number of values in a kernel that wraps, and of the expressions of each.
const VALUES: usize = 6;
const EXPRESSIONS: usize = 8;
/// Number of kernels that reduce truth values.
const REDUCTIONS: usize = 3;
/// Numbers of truth values in a kernel.
const TRUTHS: [usize; 6] = [4, 4, 8, 16, 9, 25];

/// The kernels of a seed: of each integer type that C computes as a signed one, and of truths.
///
/// # Errors
/// [`BoundedLinear::check`] or the evaluator refuses one.
pub(super) fn compiled(seed: u64, style: &Style) -> Vec<Result<Drawn, String>> {
    let mut draw = Draw::new(seed);
    let dtypes = [DType::I32, DType::I64].into_iter().filter(|dtype| style.dtypes.contains(dtype));
    let mut kernels: Vec<Linear> = dtypes.map(|dtype| wrapping(&mut draw, dtype)).collect();
    kernels.extend((0..REDUCTIONS).map(|_| reduced_truths(&mut draw, style)));
    kernels.push(permuted_truths(&mut draw, style));
    kernels.into_iter().map(|kernel| expected(kernel, &mut draw, seed)).collect()
}

/// Draws the elements of the arrays, and evaluates the kernel.
pub(super) fn expected(kernel: Linear, draw: &mut Draw, seed: u64) -> Result<Drawn, String> {
    let memories: Vec<Elements> = kernel
        .globals()
        .iter()
        .map(|(global, dtype)| match global.slot {
            0 => vec![None; global.size_elements as usize],
            _ => (0..global.size_elements).map(|_| Some(near_ends(draw, *dtype))).collect(),
        })
        .collect();
    let report = |problem: String| format!("{SAID}, of seed {seed}: {problem}\n{kernel}");
    let mut after = memories.clone();
    gradiff_eval::linear::run(&kernel, &mut after).map_err(report)?;
    let bounded = BoundedLinear::check(kernel.clone());
    let bounded = bounded.map_err(|error| report(format!("it is refused: {error}")))?;
    Ok(Drawn { kernel: bounded, memories, expected: after.swap_remove(0), has_bits: false })
}

/// A value near 0 or an end of its type.
fn near_ends(draw: &mut Draw, dtype: DType) -> Constant {
    match scalar::range(dtype) {
        Some((low, high)) if dtype != DType::Bool => {
            let near = draw.pick(&[0, 0, low, high, high / 2]) + draw.pick(&[0, 1, -1, 2, -2]);
            scalar::int(dtype, near.clamp(low, high)).expect("it is an integer's type")
        }
        Some(_) => Constant::bool(draw.one_in(2)),
        None => scalar::float(dtype, draw.below(9) as f64 - 4.0).expect("it is a float's type"),
    }
}

/// The uops of a kernel of single values.
#[derive(Default)]
pub(super) struct Uops(pub(super) Vec<Instruction>);

impl Uops {
    pub(super) fn push(&mut self, op: Op, dtype: DType, src: &[u32], arg: Arg) -> u32 {
        self.0.push(Instruction::new(op, dtype, src.iter().copied(), arg));
        self.0.len() as u32 - 1
    }

    fn alu(&mut self, op: Op, dtype: DType, src: &[u32]) -> u32 {
        self.push(op, dtype, src, Arg::None)
    }

    pub(super) fn array(&mut self, slot: usize, dtype: DType, count: usize) -> u32 {
        let arg = Arg::Global(Global { slot, size_elements: count as i64 });
        self.push(Op::DefineGlobal, dtype, &[], arg)
    }

    fn int(&mut self, dtype: DType, value: i64) -> u32 {
        let value = scalar::int(dtype, value.into()).expect("it is an integer's type");
        self.push(Op::Const, dtype, &[], Arg::Const(value))
    }

    fn index(&mut self, array: u32, dtype: DType, at: usize) -> u32 {
        let at = self.int(DType::I32, at as i64);
        self.push(Op::Index, dtype, &[array, at], Arg::None)
    }

    pub(super) fn load(&mut self, array: u32, dtype: DType, at: usize) -> u32 {
        let index = self.index(array, dtype, at);
        self.push(Op::Load, dtype, &[index], Arg::None)
    }

    fn loads(&mut self, array: u32, dtype: DType, count: usize) -> Vec<u32> {
        (0..count).map(|at| self.load(array, dtype, at)).collect()
    }

    pub(super) fn store(&mut self, array: u32, dtype: DType, at: usize, value: u32) {
        let index = self.index(array, dtype, at);
        self.push(Op::Store, DType::Void, &[index, value], Arg::None);
    }
}

/// A kernel of expressions that are equal to simpler ones as long as nothing wraps.
fn wrapping(draw: &mut Draw, dtype: DType) -> Linear {
    let mut uops = Uops::default();
    let out = uops.array(0, dtype, VALUES * EXPRESSIONS);
    let [first, second] = [1, 2].map(|slot| uops.array(slot, dtype, VALUES));
    for at in 0..VALUES {
        let (x, y) = (uops.load(first, dtype, at), uops.load(second, dtype, at));
        for number in 0..EXPRESSIONS {
            let value = expression(&mut uops, draw, dtype, (x, y));
            uops.store(out, dtype, at * EXPRESSIONS + number, value);
        }
    }
    Linear { name: "wrapping".to_owned(), uops: uops.0 }
}

/// A sum, product or difference of x, y or a constant, which is compared or divided.
fn expression(uops: &mut Uops, draw: &mut Draw, dtype: DType, (x, y): (u32, u32)) -> u32 {
    let constant = draw.pick(&[1, 2, 3, 7, 100, 1 << 30]);
    let [c, twice, zero] = [constant, 2 * constant, 0].map(|value| uops.int(dtype, value));
    let [left, right] = match draw.below(8) {
        // A sum is larger, a difference smaller.
        0 => [x, uops.alu(Op::Add, dtype, &[x, c])],
        1 => [uops.alu(Op::Sub, dtype, &[x, c]), x],
        // Both sides of a comparison are moved or scaled.
        2 => [uops.alu(Op::Add, dtype, &[x, c]), twice],
        3 => [uops.alu(Op::Sub, dtype, &[x, y]), zero],
        4 => [x, y].map(|side| uops.alu(Op::Mul, dtype, &[side, c])),
        // A square and an absolute value are not negative.
        5 => [uops.alu(Op::Mul, dtype, &[x, x]), zero],
        6 => {
            let opposite = uops.alu(Op::Neg, dtype, &[x]);
            [uops.alu(Op::Max, dtype, &[x, opposite]), zero]
        }
        // A factor is divided out again.
        _ => {
            let product = uops.alu(Op::Mul, dtype, &[x, c]);
            return uops.alu(draw.pick(&[Op::CDiv, Op::CMod]), dtype, &[product, c]);
        }
    };
    let is_less = uops.push(Op::CmpLt, DType::Bool, &[left, right], Arg::None);
    uops.push(Op::Cast, dtype, &[is_less], Arg::None)
}

/// A drawn type, mostly of 8 or 16 bits, and a type of integers that is as wide or not.
fn types(draw: &mut Draw, style: &Style) -> (DType, DType) {
    let is_narrow = |dtype: &DType| dtype.size_bytes() <= 2 && *dtype != DType::Bool;
    let narrow: Vec<DType> = style.dtypes.iter().copied().filter(is_narrow).collect();
    let candidates = if draw.one_in(3) { &style.dtypes } else { &narrow };
    let from = draw.pick(candidates);
    let ints: Vec<DType> = style.dtypes.iter().copied().filter(|dtype| dtype.is_int()).collect();
    let as_wide: Vec<DType> =
        ints.iter().copied().filter(|to| to.size_bytes() == from.size_bytes()).collect();
    let to =
        if as_wide.is_empty() || draw.one_in(4) { draw.pick(&ints) } else { draw.pick(&as_wide) };
    (from, to)
}

/// A kernel that reduces comparisons of elements, as integers, to one.
fn reduced_truths(draw: &mut Draw, style: &Style) -> Linear {
    let (from, to) = types(draw, style);
    let count = draw.pick(&TRUTHS);
    let op = draw.pick(&[Op::Max, Op::Max, Op::Min, Op::Add, Op::Or, Op::Xor]);
    let mut uops = Uops::default();
    let out = uops.array(0, to, 1);
    let [first, second] = [1, 2].map(|slot| uops.array(slot, from, count));
    let elements = uops.loads(first, from, count);
    // All are compared with the same value, or each with another one.
    let limits = match draw.below(3) {
        0 => uops.loads(second, from, count),
        1 => vec![uops.load(second, from, 0); count],
        _ => vec![uops.push(Op::Const, from, &[], Arg::Const(scalar::zero(from))); count],
    };
    let (test, is_swapped) = (draw.pick(&[Op::CmpLt, Op::CmpNe]), draw.one_in(2));
    let truths: Vec<u32> = elements
        .into_iter()
        .zip(limits)
        .map(|(x, y)| {
            let src = if is_swapped { [y, x] } else { [x, y] };
            let truth = uops.push(test, DType::Bool, &src, Arg::None);
            uops.push(Op::Cast, to, &[truth], Arg::None)
        })
        .collect();
    let reduced = truths.into_iter().reduce(|x, y| uops.push(op, to, &[x, y], Arg::None));
    uops.store(out, to, 0, reduced.expect("there are truths"));
    Linear { name: "reduced".to_owned(), uops: uops.0 }
}

/// A kernel that compares the elements of a square, or of a row, with those of a permutation of it.
fn permuted_truths(draw: &mut Draw, style: &Style) -> Linear {
    let (from, int) = types(draw, style);
    let to = if draw.one_in(2) { DType::Bool } else { int };
    let count = draw.pick(&TRUTHS);
    let side = count.isqrt();
    let is_square = side * side == count && draw.one_in(2);
    let permuted = |at: usize| match is_square {
        true => at % side * side + at / side,
        false => count - 1 - at,
    };
    let mut uops = Uops::default();
    let out = uops.array(0, to, count);
    let elements = uops.array(1, from, count);
    let elements = uops.loads(elements, from, count);
    let test = draw.pick(&[Op::CmpLt, Op::CmpNe]);
    for at in 0..count {
        let src = [elements[at], elements[permuted(at)]];
        let truth = uops.push(test, DType::Bool, &src, Arg::None);
        let value = match to {
            DType::Bool => truth,
            _ => uops.push(Op::Cast, to, &[truth], Arg::None),
        };
        uops.store(out, to, at, value);
    }
    Linear { name: "permuted".to_owned(), uops: uops.0 }
}
