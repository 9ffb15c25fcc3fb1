//! Kernel trees whose reduction compares the index of each element with the indices of the output,
//! of which the pass `scatter` makes updates.
//!
//! The output has the axes batch, position, column; the reduction runs over the elements.

use gradiff::UOp;
use gradiff::graph::target::Thresholds;
use gradiff::graph::{Arg, BoundedLinear, Constant, DType, Dims, Op, Target};
use gradiff::kernel::{Options, Strategy, lower};
use gradiff::rewrite::Trace;
use gradiff::view::ShapeTracker;
use gradiff_eval::Elements;

use crate::checks::calls::Draw;
use crate::checks::nests::{array, constant, elements, judge};
use crate::checks::trees::PREFIX;

/// The axes of a tree, in this order.
const BATCH: usize = 0;
const POSITION: usize = 1;
const COLUMN: usize = 2;
const ELEMENT: usize = 3;

/// Checks a tree that the draw gives.
///
/// # Errors
/// The tree and what is wrong with it.
pub(crate) fn check(draw: &mut Draw) -> Result<(), String> {
    let sizes = [
        draw.pick(&[1, 1, 2, 3]),
        draw.pick(&[2, 3, 4, 5, 8, 17, 33, 130, 300]),
        draw.pick(&[1, 1, 2, 4, 7, 16, 17]),
        draw.pick(&[1, 2, 3, 4, 8, 16, 24]),
    ];
    let op = draw.pick(&[Op::Add, Op::Add, Op::Max]);
    let dtype = match op {
        Op::Add => draw.pick(&[DType::F32, DType::F32, DType::I32, DType::I64, DType::U8]),
        _ => draw.pick(&[DType::I32, DType::I64]),
    };
    let index_dtype = draw.pick(&[
        DType::I32,
        DType::I32,
        DType::I64,
        DType::I8,
        DType::U8,
        DType::U64,
        DType::F32,
    ]);
    // The axes that indices and elements vary along.
    let indexed = [draw.one_in(2), false, draw.one_in(4), !draw.one_in(8)];
    let varying = [true, draw.one_in(6), !draw.one_in(8), !draw.one_in(8)];
    // A maximum starts from the least number of its type, or from one that no element is below.
    let lowest = if dtype == DType::I32 { i64::from(i32::MIN) } else { i64::MIN };
    // A sum has the other elements as well, if these are not 0.
    let least = match op {
        Op::Max => draw.pick(&[0, 0, 3, lowest]),
        _ => draw.pick(&[0, 0, 0, 2]),
    };
    // The elements are loaded, or are their numbers, counted from 1.
    let is_numbered = op == Op::Max && draw.one_in(2);
    let is_turned = draw.one_in(2);
    let count_of = |axes: [bool; 4]| axes_of(&sizes, axes).iter().product::<usize>();
    // Any of the positions, or none; or all elements at two of them, or at one.
    let (lowest_index, span) = match draw.below(4) {
        0 => (0, 1 + draw.below(2)),
        _ => (-2, sizes[POSITION] + 4),
    };
    let indices: Vec<i64> = (0..count_of(indexed))
        .map(|_| in_range(index_dtype, lowest_index + draw.below(span) as i64))
        .collect();
    let lowest_value = if dtype == DType::U8 { 0 } else { -3 };
    let values: Vec<i64> =
        (0..count_of(varying)).map(|_| lowest_value + draw.below(7) as i64).collect();

    let outputs = sizes[BATCH] * sizes[POSITION] * sizes[COLUMN];
    let expected: Vec<i64> = (0..outputs)
        .map(|output| {
            let (batch, position, column) = (
                output / sizes[COLUMN] / sizes[POSITION],
                output / sizes[COLUMN] % sizes[POSITION],
                output % sizes[COLUMN],
            );
            let chosen = (0..sizes[ELEMENT]).map(|element| {
                let at = [batch, position, column, element];
                // A narrow type cannot tell all positions apart.
                let is_named =
                    indices[offset(&sizes, indexed, at)] == in_range(index_dtype, position as i64);
                match is_named {
                    true if is_numbered => element as i64 + 1,
                    true => values[offset(&sizes, varying, at)],
                    false => least,
                }
            });
            if op == Op::Add { chosen.sum() } else { chosen.max().unwrap_or(0) }
        })
        .collect();

    let wide: Dims = sizes.iter().map(|size| *size as i64).collect();
    let view = |op: Op, source: UOp, axes: [bool; 4], dtype: DType| {
        let shape: Vec<i64> = axes_of(&sizes, axes).into_iter().map(|size| size as i64).collect();
        let tracker = ShapeTracker::from_shape(&shape).expect("a small shape");
        let tracker = tracker.expand(&wide).expect("axes of one element");
        UOp::new(op, dtype, [source], Arg::View(tracker))
    };
    let numbers = |axis: usize, dtype: DType| {
        let iota = UOp::new(Op::Iota, dtype, [], Arg::Int(wide[axis]));
        view(Op::View, iota, std::array::from_fn(|known| known == axis), dtype)
    };
    let position = numbers(POSITION, index_dtype);
    let index = view(Op::Load, array(index_dtype, 1, indices.len()), indexed, index_dtype);
    let differs = match is_turned {
        true => UOp::binary(Op::CmpNe, index, position),
        false => UOp::binary(Op::CmpNe, position, index),
    };
    let value = match is_numbered {
        true => UOp::binary(Op::Add, numbers(ELEMENT, dtype), UOp::int(dtype, 1)),
        false => view(Op::Load, array(dtype, 2, values.len()), varying, dtype),
    };
    let nothing = match constant(dtype, least).expect("a number") {
        _ if dtype == DType::F32 && least == 0 && draw.one_in(2) => Constant::float(dtype, -0.0),
        number => number,
    };
    let nothing = UOp::constant(nothing);
    let chosen = UOp::select(differs, nothing, value);
    let axes = [ELEMENT as i64].into_iter().collect();
    let reduction = UOp::new(Op::ReduceAxis, dtype, [chosen], Arg::Reduce(op, axes));
    let stored = Dims::from_slice(&[wide[BATCH], wide[POSITION], wide[COLUMN], 1]);
    let tracker = ShapeTracker::from_shape(&stored).expect("a small shape");
    let store = [array(dtype, 0, outputs), reduction];
    let store = UOp::new(Op::Store, DType::Void, store, Arg::View(tracker));
    let tree = UOp::new(Op::Sink, DType::Void, [store], Arg::None);
    let memories: Vec<Elements> =
        vec![vec![None; outputs], elements(index_dtype, &indices), elements(dtype, &values)];
    judge(&tree, &memories, &[(0, elements(dtype, &expected))], sizes.len(), draw)
        .and_then(|()| keeps_within_arrays(&tree))
        .map_err(|problem| format!("{PREFIX}: {problem} of\n{}", tree.to_text()))
}

/// Checks that the kernel of a tree keeps within its arrays, whatever indices it loads. Without
/// vectors, of which the bounds are those of all lanes together.
fn keeps_within_arrays(tree: &UOp) -> Result<(), String> {
    let target = Target { thresholds: Thresholds::SMALL, ..Target::of("plain") };
    let options = Options { opts: Strategy::None, ..Options::default() };
    let kernel = crate::catch(|| lower(tree, &target, &options, &mut Trace::default()))?;
    let linear = kernel.map_err(|error| error.to_string())?.into_linear();
    match BoundedLinear::check(linear.clone()) {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("{error}\n{linear}")),
    }
}

/// The value of a number in an integer type, which wraps, or in one of floats.
fn in_range(dtype: DType, value: i64) -> i64 {
    match dtype {
        DType::I8 => i64::from(value as i8),
        DType::U8 => i64::from(value as u8),
        _ => value,
    }
}

/// The sizes of an array that varies along some of the axes.
fn axes_of(sizes: &[usize; 4], axes: [bool; 4]) -> Vec<usize> {
    sizes.iter().zip(axes).map(|(size, varies)| if varies { *size } else { 1 }).collect()
}

/// The number of the element of such an array at these indices.
fn offset(sizes: &[usize; 4], axes: [bool; 4], at: [usize; 4]) -> usize {
    let sizes = axes_of(sizes, axes);
    at.iter()
        .zip(axes)
        .zip(sizes)
        .fold(0, |offset, ((at, varies), size)| offset * size + if varies { *at } else { 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_and_maxima_at_indices_agree_with_a_naive_evaluation() {
        for seed in 0..400 {
            check(&mut Draw::new(seed)).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        }
    }
}
