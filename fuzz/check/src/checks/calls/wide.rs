//! Indices near the limit of 32 bits: no part of an index may exceed its type, also where the gate
//! is false, since overflow is undefined in some languages.
//!
//! Kernels that copy a moved view are lowered and simplified, never run: the arrays are too large.

use std::collections::HashMap;

use gradiff::UOp;
use gradiff::graph::{Arg, DType, Global, Op, Target};
use gradiff::kernel::Options;
use gradiff::kernel::passes::{Context, PASSES};
use gradiff::rewrite::Trace;
use gradiff::view::ShapeTracker;

use super::{Draw, OF_ENGINE};
use crate::blame::Crate;

/// Number of views of a call, of movements of a view, and of points at which indices are evaluated.
const VIEWS: usize = 4;
const MOVEMENTS: usize = 5;
const POINTS: usize = 12;
/// Sizes of axes.
const SIZES: [i64; 9] = [2, 3, 5, 1 << 8, 1000, 1 << 15, (1 << 16) + 1, 1 << 20, (1 << 31) - 1];
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
    let count = |shape: &[i64]| shape.iter().product::<i64>();
    let global = |slot: usize, size_elements: i64| {
        let arg = Arg::Global(Global { slot, size_elements });
        UOp::new(Op::DefineGlobal, DType::F32, [], arg)
    };
    // The elements that the lowest view addresses.
    let below = tracker.views().first().map_or(1, |view| {
        let reach = view.shape().iter().zip(view.strides());
        reach.fold(1 + view.offset().abs(), |reach, (size, stride)| reach + size * stride.abs())
    });
    let whole = ShapeTracker::from_shape(tracker.shape()).map_err(|error| error.to_string())?;
    let load = [global(1, below)];
    let load = UOp::new(Op::Load, DType::F32, load, Arg::View(tracker.clone()));
    let store = [global(0, count(tracker.shape())), load];
    let store = UOp::new(Op::Store, DType::Void, store, Arg::View(whole));
    let mut root = UOp::new(Op::Sink, DType::Void, [store], Arg::None);
    let (target, options) = (Target::of("plain"), Options::default());
    let mut trace = Trace::default();
    let mut context = Context::new(&root, &target, &options, &mut trace);
    let mut is_lowered = false;
    for pass in PASSES.iter().take_while(|pass| pass.name != "collapse") {
        root = crate::catch(|| (pass.run)(&root, &mut context))?
            .map_err(|error| format!("{}: {error}", pass.name))?;
        is_lowered |= pass.name == "lower";
        if is_lowered {
            for _ in 0..POINTS {
                check_point(&root, draw)
                    .map_err(|problem| format!("after {}: {problem}", pass.name))?;
            }
        }
    }
    if is_lowered { Ok(()) } else { Err("it is not lowered".to_string()) }
}

/// Evaluates all parts of indices, exactly, where each range is at an end or anywhere.
fn check_point(root: &UOp, draw: &mut Draw) -> Result<(), String> {
    let mut values: HashMap<UOp, i128> = HashMap::new();
    for node in root.toposort() {
        let src: Option<Vec<i128>> =
            node.src().iter().map(|source| values.get(source).copied()).collect();
        let value = match (node.op(), src) {
            (Op::Const, _) => node.as_const().and_then(|value| value.to_int()),
            (Op::Range, Some(end)) => {
                let last = (end[0] - 1).max(0);
                let any = i128::from(draw.bits()) % (last + 1);
                Some(draw.pick(&[0, last, last, any]))
            }
            (op, Some(src)) => exact(op, &src),
            _ => None,
        };
        let Some(value) = value else { continue };
        if let Some((low, high)) = gradiff_eval::scalar::range(node.dtype())
            && !(low..=high).contains(&value)
        {
            return Err(format!("{} of {} reaches {value}", node.op(), node.dtype()));
        }
        values.insert(node.clone(), value);
    }
    Ok(())
}

/// The exact value of an op of integers and truth values.
fn exact(op: Op, src: &[i128]) -> Option<i128> {
    Some(match (op, src) {
        (Op::Neg, [x]) => -x,
        (Op::Cast, [x]) => *x,
        (Op::Add, [x, y]) => x + y,
        (Op::Sub, [x, y]) => x - y,
        (Op::Mul, [x, y]) => x * y,
        // Divisors of indices are positive.
        (Op::FloorDiv, [x, y]) if 0 < *y => x.div_euclid(*y),
        (Op::FloorMod, [x, y]) if 0 < *y => x.rem_euclid(*y),
        (Op::CDiv, [x, y]) => x.checked_div(*y)?,
        (Op::CMod, [x, y]) => x.checked_rem(*y)?,
        (Op::Max, [x, y]) => *x.max(y),
        (Op::Min, [x, y]) => *x.min(y),
        (Op::CmpLt, [x, y]) => (x < y).into(),
        (Op::CmpNe, [x, y]) => (x != y).into(),
        (Op::And, [x, y]) => x & y,
        (Op::Or, [x, y]) => x | y,
        (Op::Where, [test, x, y]) => {
            if *test != 0 {
                *x
            } else {
                *y
            }
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_part_of_an_index_exceeds_its_type() {
        for seed in 0..3_000 {
            indices(&mut Draw::new(seed)).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        }
    }

    /// Under its gate, i // 5 + 2 (i % 5) is 2 i - 9, whose product exceeds 32 bits beyond it.
    #[test]
    fn what_a_gate_allows_does_not_exceed_its_type_behind_it() {
        let tracker = ShapeTracker::from_shape(&[5, 2]).and_then(|x| x.permute(&[1, 0]));
        let tracker = tracker.and_then(|x| x.reshape(&[10])?.shrink(&[(5, 10)]));
        let tracker = tracker.and_then(|x| x.pad(&[(5, 1 << 30)])).expect("movements");
        for seed in 0..20 {
            check(&tracker, &mut Draw::new(seed)).unwrap_or_else(|why| panic!("{why}"));
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
