//! Pass `shape`: a tree over as few axes as its trackers allow, reduced axes last.
//!
//! Fewer axes make fewer loops and shorter indices. Axes of size 1 go; neighbours become one
//! where no tracker needs another view for it; a sum of sums becomes one sum.

use gradiff_graph::{Arg, DType, Dims, Op, UOp};
use gradiff_rewrite::Mode;
use gradiff_view::ShapeTracker;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::error::malformed;
use crate::extent::{Axes, tracker};
use crate::pass::Context;
use crate::{Error, linearize};

/// The pass. See the head of this file.
pub(crate) fn simplify(root: &UOp, ctx: &mut Context<'_>) -> Result<UOp, Error> {
    linearize::globals(root)?;
    let root = merge_reductions(root, ctx.options.rewrite.mode);
    let order = root.toposort();
    let axes = Axes::of(&order)?;
    let groups = Groups::find(&axes, &order)?;
    rebuild(&order, &axes, &groups)
}

/// One reduction in place of a reduction of a reduction by the same op. Floats are then taken in
/// another order, which strict mode does not allow: it decides the sign of a maximum that is zero.
fn merge_reductions(root: &UOp, mode: Mode) -> UOp {
    let inner = |node: &UOp| match (node.op(), node.arg(), node.src()) {
        (Op::ReduceAxis, Arg::Reduce(op, axes), [source]) => match (source.op(), source.arg()) {
            (Op::ReduceAxis, Arg::Reduce(same, more)) if same == op => {
                let may = !node.dtype().is_float() || mode != Mode::Strict;
                may.then(|| {
                    let mut all: Dims = axes.iter().chain(more).copied().collect();
                    all.sort_unstable();
                    all.dedup();
                    (source.src()[0].clone(), Arg::Reduce(*op, all))
                })
            }
            _ => None,
        },
        _ => None,
    };
    let order = root.toposort();
    if !order.iter().any(|node| inner(node).is_some()) {
        return root.clone();
    }
    map_nodes(&order, |_, node| {
        let mut node = node;
        while let Some((source, arg)) = inner(&node) {
            node = UOp::new(Op::ReduceAxis, node.dtype(), [source], arg);
        }
        Ok(node)
    })
    .expect("merging fails nowhere")
}

/// Rebuilds a graph from its nodes in order: each gets its new sources, then `change` has a say.
pub(crate) fn map_nodes(
    order: &[UOp],
    mut change: impl FnMut(&UOp, UOp) -> Result<UOp, Error>,
) -> Result<UOp, Error> {
    let mut new: FxHashMap<&UOp, UOp> = FxHashMap::default();
    new.reserve(order.len());
    for node in order {
        let is_same = node.src().iter().all(|source| new[source] == *source);
        let with_src = if is_same {
            node.clone()
        } else {
            node.with_src(node.src().iter().map(|source| new[source].clone()))
        };
        let changed = change(node, with_src)?;
        new.insert(node, changed);
    }
    let last = order.last().ok_or_else(|| malformed("an empty graph"))?;
    Ok(new[last].clone())
}

/// Which old axes each new axis is made of, in order; old axes of size 1 are in none.
struct Groups {
    axes: SmallVec<[SmallVec<[usize; 4]>; 4]>,
}

impl Groups {
    fn find(axes: &Axes, order: &[UOp]) -> Result<Groups, Error> {
        let kept: SmallVec<[usize; 8]> =
            axes.order().filter(|axis| axes.sizes[*axis] != 1).collect();
        let mut groups =
            Groups { axes: kept.iter().map(|axis| SmallVec::from_slice(&[*axis])).collect() };
        if groups.axes.len() < 2 {
            return Ok(groups);
        }
        let mut trackers: Vec<ShapeTracker> = Vec::new();
        for old in order.iter().filter_map(tracker) {
            let new = groups.apply(old, axes)?;
            if !trackers.contains(&new) {
                trackers.push(new);
            }
        }
        let mut left = 0;
        while left + 1 < groups.axes.len() {
            let (one, other) = (groups.axes[left][0], groups.axes[left + 1][0]);
            let merged = (axes.folds[one] == axes.folds[other])
                .then(|| trackers.iter().map(|tracker| merge(tracker, left)).collect())
                .flatten();
            if let Some(merged) = merged {
                trackers = merged;
                let right = groups.axes.remove(left + 1);
                groups.axes[left].extend(right);
            } else {
                left += 1;
            }
        }
        Ok(groups)
    }

    /// The tracker over the new axes.
    fn apply(&self, tracker: &ShapeTracker, axes: &Axes) -> Result<ShapeTracker, Error> {
        let fault = |error| malformed(format!("{tracker}: {error}"));
        let order: SmallVec<[usize; 8]> = axes.order().collect();
        let is_in_order = order.windows(2).all(|pair| pair[0] < pair[1]);
        let moved =
            if is_in_order { tracker.clone() } else { tracker.permute(&order).map_err(fault)? };
        let size = |group: &SmallVec<[usize; 4]>| -> i64 {
            group.iter().map(|axis| tracker.shape()[*axis]).product()
        };
        let shape: Dims = self.axes.iter().map(size).collect();
        if moved.shape() == shape.as_slice() {
            return Ok(moved);
        }
        moved.reshape(&shape).map_err(fault)
    }
}

/// The tracker with axes `left` and `left + 1` as one, if that takes no further view and the
/// size is one that indices can count.
fn merge(tracker: &ShapeTracker, left: usize) -> Option<ShapeTracker> {
    let mut shape = Dims::from_slice(tracker.shape());
    let right = shape.remove(left + 1);
    let is_whole = (shape[left] == 1) == (right == 1);
    shape[left] = shape[left].checked_mul(right)?;
    let merged = tracker.reshape(&shape).ok()?;
    (is_whole && merged.views().len() <= tracker.views().len()).then_some(merged)
}

/// The tree over the new axes.
fn rebuild(order: &[UOp], axes: &Axes, groups: &Groups) -> Result<UOp, Error> {
    let is_same = groups.axes.len() == axes.sizes.len()
        && groups.axes.iter().enumerate().all(|(new, old)| old.as_slice() == [new]);
    if is_same {
        return Ok(order[order.len() - 1].clone());
    }
    let is_fold = |view: &UOp| view.src()[0].op() == Op::ReduceAxis;
    map_nodes(order, |old, node| match old.arg() {
        // Spread over axes of one step, which are gone.
        Arg::View(_) if old.op() == Op::View && is_fold(old) && !is_fold(&node) => {
            Ok(node.src()[0].clone())
        }
        Arg::View(tracker) => {
            let arg = Arg::View(groups.apply(tracker, axes)?);
            Ok(UOp::new(node.op(), node.dtype(), node.src().iter().cloned(), arg))
        }
        Arg::Reduce(op, reduced) => {
            let is_reduced = |group: &SmallVec<[usize; 4]>| reduced.contains(&(group[0] as i64));
            let new: Dims = (0..groups.axes.len())
                .filter(|new| is_reduced(&groups.axes[*new]))
                .map(|new| new as i64)
                .collect();
            Ok(reduce_axis(node.dtype(), node.src()[0].clone(), *op, new))
        }
        _ => Ok(node),
    })
}

fn reduce_axis(dtype: DType, source: UOp, op: Op, axes: Dims) -> UOp {
    if axes.is_empty() {
        return source;
    }
    UOp::new(Op::ReduceAxis, dtype, [source], Arg::Reduce(op, axes))
}
