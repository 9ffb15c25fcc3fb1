//! Kernel trees that load by an index of a narrow integer type, which wraps, or by one that is
//! undefined for some data.
//!
//! A tree sums, over a table of 256 elements, those whose number is the index. Passes make of it a
//! load at the index, whose address from one iteration to the next has no constant stride where the
//! narrow value wraps.

use std::collections::BTreeSet;

use gradiff::UOp;
use gradiff::graph::{Arg, BoundedLinear, Constant, DType, Dims, Op, Target};
use gradiff::kernel::{Options, Strategy, lower};
use gradiff::rewrite::Trace;
use gradiff::view::ShapeTracker;
use gradiff_eval::{Elements, scalar};

use crate::checks::calls::Draw;
use crate::checks::nests::{array, constant, elements, judge};
use crate::checks::trees::PREFIX;

/// Number of values of the narrow types.
const TABLE_SIZE: usize = 256;
/// Largest number of elements of a table that an undefined op indexes.
const TABLE_MAX: usize = 1 << 20;

/// Checks a tree that the draw gives.
///
/// # Errors
/// The tree and what is wrong with it.
pub(crate) fn check(draw: &mut Draw) -> Result<(), String> {
    let count = draw.pick(&[2, 3, 4, 8, 8, 12, 16]);
    let narrow = draw.pick(&[DType::U8, DType::I8]);
    let factor = draw.pick(&[1, 1, 1, 2, 3, 255]);
    // Indices wrap among the first ones, or anywhere.
    let half = if narrow == DType::I8 { TABLE_SIZE / 2 } else { 0 };
    let addend = match draw.one_in(4) {
        true => draw.below(TABLE_SIZE),
        false => TABLE_SIZE + half - draw.below(count + 2),
    };
    let dtype = draw.pick(&[DType::F32, DType::I32]);
    let mut values =
        |count: usize| -> Vec<i64> { (0..count).map(|_| draw.below(9) as i64 - 3).collect() };
    let (table, added) = (values(TABLE_SIZE), values(count));
    // A signed index counts from the middle of the table.
    let index = |at: usize| (at * factor + addend + half) % TABLE_SIZE;
    let expected: Vec<i64> = (0..count).map(|at| table[index(at)] + added[at]).collect();

    let (wide, row): (Dims, Dims) = (
        Dims::from_slice(&[count as i64, TABLE_SIZE as i64]),
        Dims::from_slice(&[count as i64, 1]),
    );
    let iota = |size: usize, shape: [i64; 2]| {
        let numbers = UOp::new(Op::Iota, DType::I32, [], Arg::Int(size as i64));
        view(Op::View, numbers, shape, &wide, DType::I32)
    };
    let number = |value: usize| {
        let value = value as i128 % TABLE_SIZE as i128;
        let is_negative = narrow == DType::I8 && TABLE_SIZE as i128 / 2 <= value;
        let value = if is_negative { value - TABLE_SIZE as i128 } else { value };
        UOp::constant(Constant::int(narrow, value))
    };
    let at = UOp::unary(Op::Cast, narrow, iota(count, [count as i64, 1]));
    let at = if factor == 1 { at } else { UOp::binary(Op::Mul, at, number(factor)) };
    let at = UOp::unary(Op::Cast, DType::I32, UOp::binary(Op::Add, at, number(addend)));
    let at = match half {
        0 => at,
        half => UOp::binary(Op::Add, at, UOp::int(DType::I32, half as i64)),
    };
    let is_other = UOp::binary(Op::CmpNe, iota(TABLE_SIZE, [1, TABLE_SIZE as i64]), at);
    let load = array(dtype, 1, TABLE_SIZE);
    let load = view(Op::Load, load, [1, TABLE_SIZE as i64], &wide, dtype);
    // The sum of the elements is a load where the rest is 0.
    let rest = if draw.one_in(4) { 1 + draw.below(3) as i64 } else { 0 };
    let sum_of_rest = rest * (TABLE_SIZE as i64 - 1);
    let expected: Vec<i64> = expected.into_iter().map(|value| value + sum_of_rest).collect();
    let rest = UOp::constant(constant(dtype, rest).expect("a number"));
    let chosen = UOp::select(is_other, rest, load);
    let axes = [1].into_iter().collect();
    let sum = UOp::new(Op::ReduceAxis, dtype, [chosen], Arg::Reduce(Op::Add, axes));
    let tracker = ShapeTracker::from_shape(&row).expect("a small shape");
    let add = UOp::new(Op::Load, dtype, [array(dtype, 2, count)], Arg::View(tracker.clone()));
    let value = UOp::binary(Op::Add, sum, add);
    let store =
        UOp::new(Op::Store, DType::Void, [array(dtype, 0, count), value], Arg::View(tracker));
    let tree = UOp::new(Op::Sink, DType::Void, [store], Arg::None);
    let memories: Vec<Elements> =
        vec![vec![None; count], elements(dtype, &table), elements(dtype, &added)];
    let expected = [(0, elements(dtype, &expected))];
    judge(&tree, &memories, &expected, 2, draw)
        .map_err(|problem| format!("{PREFIX}: {problem} of\n{}", tree.to_text()))
}

/// Checks that a kernel keeps within its arrays for all values of what it loads, where the index is
/// the result of an op that is undefined for some of them. Devices compute some number there, and
/// the table has exactly the elements that the defined results need.
///
/// # Errors
/// The tree and the access that may be outside.
pub(crate) fn check_undefined(draw: &mut Draw) -> Result<(), String> {
    let op = draw.pick(&[Op::CDiv, Op::CMod, Op::FloorDiv, Op::FloorMod, Op::Shr, Op::Shl]);
    let is_shift = matches!(op, Op::Shr | Op::Shl);
    let factor = if op == Op::Shl { 1 } else { draw.pick(&[1, 1, 3, 64]) };
    let addend = draw.pick(&[0, 0, 1, 5, 256, -3, -300]);
    // The second operand is made of these bits of a byte.
    let mask = draw.pick(&[0xff, 1, 3, 4, 6, 0xc0]);
    let second = match is_shift {
        true => (1, draw.pick(&[0, 4, 10, 28, -1])),
        false => draw.pick(&[(1, 0), (-1, 0), (32, 0), (-32, 0), (1, -1), (1, -4), (-1, 2)]),
    };
    let sign: i64 = draw.pick(&[1, 1, -1]);
    let operand = |byte: i64, (factor, addend): (i64, i64)| byte * factor + addend;
    let value = |x: i64, y: i64| {
        let operands = [scalar::int(DType::I32, x.into())?, scalar::int(DType::I32, y.into())?];
        scalar::to_int(scalar::evaluate(op, DType::I32, &operands)?)
    };
    let seconds: Vec<i64> = (0..256)
        .map(|byte| operand(byte & mask, second))
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect();
    let firsts = (0..256).map(|byte| operand(byte, (factor, addend)));
    let values: Vec<i128> = firsts
        .flat_map(|x| seconds.iter().filter_map(move |y| value(x, *y)))
        .map(|value| value * i128::from(sign))
        .collect();
    let (Some(least), Some(greatest)) = (values.iter().min(), values.iter().max()) else {
        return Ok(());
    };
    let size = match usize::try_from(greatest - least + 1) {
        Ok(size) if size <= TABLE_MAX => size,
        _ => return Ok(()),
    };
    let count = draw.pick(&[1, 4, 8]);
    let wide = Dims::from_slice(&[count as i64, size as i64]);
    let number = |value: i64| UOp::int(DType::I32, value);
    let affine = |x: UOp, (factor, addend): (i64, i64)| {
        let x = if factor == 1 { x } else { UOp::binary(Op::Mul, x, number(factor)) };
        if addend == 0 { x } else { UOp::binary(Op::Add, x, number(addend)) }
    };
    let byte = |slot: usize| {
        let load =
            view(Op::Load, array(DType::U8, slot, count), [count as i64, 1], &wide, DType::U8);
        UOp::unary(Op::Cast, DType::I32, load)
    };
    let masked = match mask {
        0xff => byte(2),
        mask => UOp::binary(Op::And, byte(2), number(mask)),
    };
    let result = UOp::binary(op, affine(byte(1), (factor, addend)), affine(masked, second));
    let least = i64::try_from(*least).map_err(|error| error.to_string())?;
    let at = affine(affine(result, (sign, 0)), (1, -least));
    let iota = UOp::new(Op::Iota, DType::I32, [], Arg::Int(size as i64));
    let iota = view(Op::View, iota, [1, size as i64], &wide, DType::I32);
    let load = view(Op::Load, array(DType::F32, 3, size), [1, size as i64], &wide, DType::F32);
    let zero = UOp::constant(Constant::zero(DType::F32));
    let chosen = UOp::select(UOp::binary(Op::CmpNe, iota, at), zero, load);
    let axes = [1].into_iter().collect();
    let sum = UOp::new(Op::ReduceAxis, DType::F32, [chosen], Arg::Reduce(Op::Add, axes));
    let row = Dims::from_slice(&[count as i64, 1]);
    let tracker = ShapeTracker::from_shape(&row).expect("a small shape");
    let store =
        UOp::new(Op::Store, DType::Void, [array(DType::F32, 0, count), sum], Arg::View(tracker));
    let tree = UOp::new(Op::Sink, DType::Void, [store], Arg::None);
    let name = draw.pick(&["plain", "vectors", "groups", "opencl"]);
    let report =
        |problem: String| format!("{PREFIX}: for {name}: {problem} of\n{}", tree.to_text());
    let opts = if draw.one_in(2) { Strategy::None } else { Strategy::Heuristic };
    let options = Options { opts, ..Options::default() };
    let lowered = crate::catch(|| lower(&tree, &Target::of(name), &options, &mut Trace::default()));
    let kernel = lowered.map_err(report)?.map_err(|error| report(error.to_string()))?;
    let linear = kernel.into_linear();
    match BoundedLinear::check(linear.clone()) {
        Ok(_) => Ok(()),
        Err(error) => Err(report(format!("{error}\n{linear}"))),
    }
}

/// A node that sees a source of this shape broadcast to another shape.
fn view(op: Op, source: UOp, shape: [i64; 2], wide: &Dims, dtype: DType) -> UOp {
    let tracker = ShapeTracker::from_shape(&shape).expect("a small shape");
    let tracker = tracker.expand(wide).expect("an axis of one element");
    UOp::new(op, dtype, [source], Arg::View(tracker))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_by_undefined_indices_stay_inside() {
        for seed in 0..400 {
            check_undefined(&mut Draw::new(seed))
                .unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        }
    }

    #[test]
    fn loads_by_indices_that_wrap_agree_with_a_naive_evaluation() {
        for seed in 0..400 {
            check(&mut Draw::new(seed)).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        }
    }
}
