//! Pass `split-axes`: splits axes of a kernel tree where that saves views. Of a tensor that was
//! repeated along two axes and then reshaped to one, as the gradient of a pool or an image at twice
//! its size, the sizes before the reshape become loops, so that its index needs no division.

use std::collections::BTreeSet;

use gradiff_graph::{Arg, Dims, Op, UOp};
use gradiff_view::ShapeTracker;
use smallvec::SmallVec;

use crate::Error;
use crate::context::Context;
use crate::error::malformed;
use crate::extent::{Axes, tracker};
use crate::nodes::map_nodes;

/// Most axes of a kernel with axes that are split.
const AXES_MAX: usize = 16;

/// The sizes into which each axis is split, outermost first.
type Parts = SmallVec<[Dims; 8]>;

/// Splits the axes of a kernel tree where that leaves fewer views, and more of none. Not for
/// devices with groups, which are filled best by long axes.
pub(crate) fn split_axes(root: &UOp, ctx: &mut Context<'_>) -> Result<UOp, Error> {
    if ctx.target.groups.is_some() {
        return Ok(root.clone());
    }
    let order = root.toposort();
    let has_views = |tracker: &ShapeTracker| 1 < tracker.views().len();
    if !order.iter().filter_map(tracker).any(has_views) {
        return Ok(root.clone());
    }
    let axes = Axes::of(&order)?;
    let whole: Parts = axes.sizes.iter().map(|size| Dims::from_slice(&[*size])).collect();
    let mut trackers: Vec<&ShapeTracker> = Vec::new();
    for tracker in order.iter().filter_map(tracker) {
        if !trackers.contains(&tracker) {
            trackers.push(tracker);
        }
    }
    let mut parts = whole.clone();
    for tracker in trackers.iter().filter(|tracker| tracker.shape() == axes.sizes.as_slice()) {
        let Some(finer) = with_sizes_of(tracker, &parts) else { continue };
        let views = |tracker: &ShapeTracker, parts: &Parts| {
            split(tracker, parts).map_or(usize::MAX, |tracker| tracker.views().len())
        };
        let is_worse = |tracker: &&ShapeTracker| views(tracker, &parts) < views(tracker, &finer);
        let is_better = views(tracker, &finer) < views(tracker, &parts);
        if is_better && !trackers.iter().any(is_worse) {
            parts = finer;
        }
    }
    if parts == whole { Ok(root.clone()) } else { rebuild(&order, &parts) }
}

/// Returns the parts of axes, split further at the sizes of the view that the last view of a
/// tracker reshapes; `None` if it does not, or the sizes do not fit.
fn with_sizes_of(tracker: &ShapeTracker, parts: &Parts) -> Option<Parts> {
    let [.., reshaped, last] = tracker.views() else { return None };
    if !last.is_contiguous() || reshaped.size() != last.size() || last.size() == 0 {
        return None;
    }
    // The numbers of elements inside of an iteration of each part.
    let mut inside: BTreeSet<i64> = BTreeSet::from([1]);
    for sizes in [parts.concat().as_slice(), reshaped.shape()] {
        let mut elements = 1i64;
        for size in sizes.iter().rev() {
            elements = elements.checked_mul(*size)?;
            inside.insert(elements);
        }
    }
    let inside: Vec<i64> = inside.into_iter().collect();
    if inside.windows(2).any(|pair| pair[1] % pair[0] != 0) {
        return None;
    }
    let mut elements = 1i64;
    let mut finer: Parts = parts
        .iter()
        .rev()
        .map(|axis| {
            let end = axis.iter().product::<i64>() * elements;
            let ends = inside.iter().filter(|inside| elements < **inside && **inside <= end);
            let (mut sizes, mut start) = (Dims::new(), elements);
            for inside in ends {
                sizes.push(inside / start);
                start = *inside;
            }
            if sizes.is_empty() {
                sizes.push(1);
            }
            sizes.reverse();
            elements = end;
            sizes
        })
        .collect();
    finer.reverse();
    (finer.iter().map(|axis| axis.len()).sum::<usize>() <= AXES_MAX).then_some(finer)
}

/// Returns a tracker over the parts of its axes; an axis of size 1 has parts of size 1.
fn split(tracker: &ShapeTracker, parts: &Parts) -> Option<ShapeTracker> {
    let mut shape = Dims::new();
    for (size, axis) in tracker.shape().iter().zip(parts) {
        shape.extend(axis.iter().map(|part| if *size == 1 { 1 } else { *part }));
    }
    Some(tracker.reshape(&shape).ok()?.simplify())
}

/// Rebuilds the tree over the parts of its axes.
fn rebuild(order: &[UOp], parts: &Parts) -> Result<UOp, Error> {
    map_nodes(order, |_, node| match node.arg() {
        Arg::View(tracker) => {
            let split = split(tracker, parts);
            let arg = Arg::View(split.ok_or_else(|| malformed(format!("{tracker} is not split")))?);
            Ok(UOp::new(node.op(), node.dtype(), node.src().iter().cloned(), arg))
        }
        Arg::Reduce(op, reduced) if node.op() == Op::ReduceAxis => {
            let (mut first, mut new) = (0, Dims::new());
            for (axis, parts) in parts.iter().enumerate() {
                let next = first + parts.len() as i64;
                if reduced.contains(&(axis as i64)) {
                    new.extend(first..next);
                }
                first = next;
            }
            let arg = Arg::Reduce(*op, new);
            Ok(UOp::new(node.op(), node.dtype(), node.src().iter().cloned(), arg))
        }
        _ => Ok(node),
    })
}
