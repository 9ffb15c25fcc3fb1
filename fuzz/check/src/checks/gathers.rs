//! Kernel trees that load by an index of a narrow integer type, which wraps.
//!
//! A tree sums, over a table of 256 elements, those whose number is the index. Passes make of it a
//! load at the index, whose address from one iteration to the next has no constant stride where the
//! narrow value wraps.

use gradiff::UOp;
use gradiff::graph::{Arg, Constant, DType, Dims, Op};
use gradiff::view::ShapeTracker;
use gradiff_eval::Elements;

use crate::checks::calls::Draw;
use crate::checks::nests::{array, constant, elements, judge};
use crate::checks::trees::PREFIX;

/// Number of values of the narrow types.
const TABLE_SIZE: usize = 256;

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
    let zero = UOp::constant(constant(dtype, 0).expect("a number"));
    let chosen = UOp::select(is_other, zero, load);
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
    fn loads_by_indices_that_wrap_agree_with_a_naive_evaluation() {
        for seed in 0..400 {
            check(&mut Draw::new(seed)).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        }
    }
}
