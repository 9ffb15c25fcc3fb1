//! Indices near the limit of 32 bits: each element of a copy comes from the address that its view
//! says, though parts of the index may wrap, as all integers do.
//!
//! Kernels that copy a moved view go through the passes and are evaluated at a few points, never
//! run: the arrays are too large.

use gradiff::UOp;
use gradiff::graph::{Arg, DType, Global, Op, Target};
use gradiff::kernel::Options;
use gradiff::kernel::passes::{Context, PASSES};
use gradiff::rewrite::Trace;
use gradiff::view::ShapeTracker;
use gradiff_eval::point::{Limits, Tape, Value};
use gradiff_eval::scalar;

use super::{Draw, OF_ENGINE};
use crate::blame::Crate;

/// Number of views of a call, of movements of a view, and of points at which indices are evaluated.
const VIEWS: usize = 4;
const MOVEMENTS: usize = 5;
const POINTS: usize = 12;
/// Sizes of axes.
const SIZES: [i64; 9] = [2, 3, 5, 1 << 8, 1000, 1 << 15, (1 << 16) + 1, 1 << 20, (1 << 31) - 1];
/// The arrays of a kernel: their type, which holds each address, and their slots.
const DTYPE: DType = DType::I64;
const STORED: usize = 0;
const LOADED: usize = 1;
/// Limit of the elements of a view.
const ELEMENTS_MAX: i128 = 1 << 36;

/// Draws views and checks the indices of kernels that copy them.
pub(super) fn indices(draw: &mut Draw) -> Result<(), String> {
    (0..VIEWS).try_for_each(|_| {
        let tracker = moved(draw);
        check(&tracker, draw).map_err(|problem| {
            format!("a copy of {tracker:?}: {problem} {OF_ENGINE}{})", Crate::Kernel)
        })
    })
}

/// A tensor's view after some movements.
fn moved(draw: &mut Draw) -> ShapeTracker {
    let mut shape = vec![draw.pick(&SIZES)];
    for _ in 0..draw.below(3) {
        let longer = [&shape[..], &[draw.pick(&SIZES)]].concat();
        shape = if is_small(&longer) { longer } else { shape };
    }
    let mut tracker = ShapeTracker::from_shape(&shape).expect("it is small");
    // A few columns of long rows, one after the other: their addresses are far apart.
    let columns = 2 + draw.below(4) as i64;
    if let [rows @ 2..=1000, length] = shape[..]
        && columns < length
        && draw.one_in(2)
    {
        let few = tracker.shrink(&[(0, rows), (0, columns)]);
        let merged = few.and_then(|few| few.reshape(&[rows * columns]));
        tracker = merged.expect("it is part of a view");
    }
    for _ in 0..MOVEMENTS {
        let shape = tracker.shape().to_vec();
        let axis = draw.below(shape.len());
        let size = shape[axis];
        let with = |sizes: &[i64]| [&shape[..axis], sizes, &shape[axis + 1..]].concat();
        let pairs = |of: &dyn Fn(usize) -> (i64, i64)| (0..shape.len()).map(of).collect();
        let next = match draw.below(6) {
            0 => {
                let order: Vec<usize> = (0..shape.len()).rev().collect();
                tracker.permute(&order).ok()
            }
            1 => {
                let (before, after) =
                    (draw.pick(&[0, 1, 3, size, 1 << 30]), draw.pick(&[0, 1, 1 << 20, 1 << 30]));
                let pads: Vec<(i64, i64)> =
                    pairs(&|at| if at == axis { (before, after) } else { (0, 0) });
                is_small(&with(&[before + size + after])).then(|| tracker.pad(&pads).ok()).flatten()
            }
            2 => {
                let first = draw.pick(&[0, 1, size / 2]).min(size - 1);
                let ranges: Vec<(i64, i64)> =
                    pairs(&|at| (if at == axis { first } else { 0 }, shape[at]));
                tracker.shrink(&ranges).ok()
            }
            3 => {
                let flips: Vec<bool> = (0..shape.len()).map(|at| at == axis).collect();
                tracker.flip(&flips).ok()
            }
            // Splits an axis.
            4 => {
                let part = draw.pick(&[2, 3, 5, 7, 1 << 4]);
                (size % part == 0)
                    .then(|| tracker.reshape(&with(&[size / part, part])).ok())
                    .flatten()
            }
            // Merges two axes.
            _ if axis + 1 < shape.len() => {
                let mut merged = shape.clone();
                merged[axis] *= merged.remove(axis + 1);
                tracker.reshape(&merged).ok()
            }
            _ => None,
        };
        tracker = next.unwrap_or(tracker);
    }
    tracker
}

fn is_small(shape: &[i64]) -> bool {
    shape.iter().map(|size| i128::from(*size)).product::<i128>() <= ELEMENTS_MAX
}

fn check(tracker: &ShapeTracker, draw: &mut Draw) -> Result<(), String> {
    let global = |slot: usize, size_elements: i64| {
        let arg = Arg::Global(Global { slot, size_elements });
        UOp::new(Op::DefineGlobal, DTYPE, [], arg)
    };
    // The elements that the lowest view addresses.
    let below = tracker.views().first().map_or(1, |view| {
        let reach = view.shape().iter().zip(view.strides());
        reach.fold(1 + view.offset().abs(), |reach, (size, stride)| reach + size * stride.abs())
    });
    let whole = ShapeTracker::from_shape(tracker.shape()).map_err(|error| error.to_string())?;
    let load = [global(LOADED, below)];
    let load = UOp::new(Op::Load, DTYPE, load, Arg::View(tracker.clone()));
    let store = [global(STORED, tracker.shape().iter().product()), load];
    let store = UOp::new(Op::Store, DType::Void, store, Arg::View(whole));
    let mut root = UOp::new(Op::Sink, DType::Void, [store], Arg::None);
    let (target, options) = (Target::of("plain"), Options::default());
    let mut trace = Trace::default();
    let mut context = Context::new(&root, &target, &options, &mut trace);
    let mut is_lowered = false;
    for pass in PASSES {
        root = crate::catch(|| (pass.run)(&root, &mut context))?
            .map_err(|error| format!("{}: {error}", pass.name))?;
        is_lowered |= pass.name == "lower";
        if is_lowered {
            check_points(&root, tracker, draw)
                .map_err(|problem| format!("after {}: {problem}", pass.name))?;
        }
    }
    if is_lowered { Ok(()) } else { Err("it is not lowered".to_string()) }
}

/// Evaluates a kernel that copies a view, where each range is at an end, at an edge of a mask or
/// anywhere: it stores what the view says.
fn check_points(root: &UOp, tracker: &ShapeTracker, draw: &mut Draw) -> Result<(), String> {
    let mut tape = Tape::new(&[root], Limits::default());
    let leaves = tape.leaves();
    let end = |tape: &Tape, leaf: usize| {
        tape.nodes()[leaf].src().first().and_then(UOp::as_const).and_then(|end| end.to_int())
    };
    let ends: Option<Vec<i128>> = leaves.iter().map(|leaf| end(&tape, *leaf)).collect();
    let ends = ends.ok_or("a range has no constant end")?;
    for _ in 0..POINTS {
        let mut rest = near_edge(tracker, draw);
        let at_edge = draw.one_in(2);
        for (leaf, end) in leaves.iter().zip(&ends).rev() {
            let last = end - 1;
            let any = i128::from(draw.bits()) % end;
            let value = if at_edge { rest % end } else { draw.pick(&[0, last, last, any]) };
            rest /= end;
            let value = scalar::int(tape.nodes()[*leaf].dtype(), value);
            tape.set(*leaf, Some(value.ok_or("a range exceeds its type")?));
        }
        // Each element is one more than its number, so that it differs from padding.
        tape.run(&|dtype, _, index| scalar::int(dtype, index + 1).expect("it is an index"));
        let Some(Value::Stores(stores)) = tape.values().last() else {
            return Err("the address that is stored to or loaded from is undefined".to_string());
        };
        if stores.is_empty() {
            return Err("nothing is stored".to_string());
        }
        for (slot, index, value) in stores {
            let expected = source(tracker, *index).map_or(0, |source| source + 1);
            if *slot != STORED || value.and_then(scalar::to_int) != Some(expected) {
                let value = Value::from(*value);
                return Err(format!("element {index} is {value}, not {expected}"));
            }
        }
    }
    Ok(())
}

/// The number of an element whose coordinates are at edges of the view's mask, if it has one.
fn near_edge(tracker: &ShapeTracker, draw: &mut Draw) -> i128 {
    let view = tracker.views().last().expect("a tracker has a view");
    let whole: Vec<(i64, i64)> = view.shape().iter().map(|size| (0, *size)).collect();
    let mask = view.mask().unwrap_or(&whole);
    mask.iter().zip(view.shape()).fold(0, |flat, ((begin, end), size)| {
        let edge = draw.pick(&[begin - 1, *begin, begin + 1, end - 1, end - 1, *end]);
        flat * i128::from(*size) + i128::from(edge.clamp(0, size - 1))
    })
}

/// The element of memory that an element of the tracker shows; `None` for padding.
fn source(tracker: &ShapeTracker, element: i128) -> Option<i128> {
    tracker.views().iter().rev().try_fold(element, |element, view| {
        let (mut rest, mut below) = (element, i128::from(view.offset()));
        for (axis, size) in view.shape().iter().enumerate().rev() {
            let coordinate = rest % i128::from(*size);
            rest /= i128::from(*size);
            let (begin, end) = view.mask().map_or((0, *size), |mask| mask[axis]);
            if coordinate < i128::from(begin) || i128::from(end) <= coordinate {
                return None;
            }
            below += coordinate * i128::from(view.strides()[axis]);
        }
        Some(below)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_element_is_copied_from_where_its_view_says() {
        for seed in 0..3_000 {
            indices(&mut Draw::new(seed)).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        }
    }

    /// Under its gate, i // 5 + 2 (i % 5) is 2 i - 9, whose product exceeds 32 bits beyond it.
    #[test]
    fn an_index_that_wraps_behind_its_gate_is_right() {
        let tracker = ShapeTracker::from_shape(&[5, 2]).and_then(|x| x.permute(&[1, 0]));
        let tracker = tracker.and_then(|x| x.reshape(&[10])?.shrink(&[(5, 10)]));
        let tracker = tracker.and_then(|x| x.pad(&[(5, 1 << 30)])).expect("movements");
        for seed in 0..20 {
            check(&tracker, &mut Draw::new(seed)).unwrap_or_else(|why| panic!("{why}"));
        }
    }

    /// Multiplied out, the parts of these indices exceed 32 and 64 bits, their sums do not.
    #[test]
    fn an_index_whose_parts_wrap_is_right() {
        for seed in [68_316_269_885_208_468, 1_080_210_277_814_396_898] {
            // The first draw was of the row.
            let mut draw = Draw::new(seed);
            draw.bits();
            indices(&mut draw).unwrap_or_else(|why| panic!("{why}"));
        }
    }

    #[test]
    fn indices_of_both_types_are_drawn() {
        let trackers = (0..400).map(|seed| moved(&mut Draw::new(seed)));
        let large = trackers
            .filter(|tracker| i64::from(i32::MAX) < tracker.shape().iter().product::<i64>());
        assert!((40..360).contains(&large.count()));
    }
}
