//! Pass `shape`: reduces the tree to as few axes as its trackers allow, reduced axes last.
//!
//! Fewer axes give fewer loops and shorter indices. Axes of size 1 are removed, adjacent axes are
//! merged if no tracker needs another view for that, and a sum of sums becomes one sum. Rows that
//! masks tell apart stay an axis where threads divide them.

use std::collections::BTreeSet;

use gradiff_graph::{Arg, DType, Dims, Op, Target, UOp};
use gradiff_rewrite::Mode;
use gradiff_view::ShapeTracker;
use smallvec::SmallVec;

use crate::Error;
use crate::context::Context;
use crate::error::malformed;
use crate::extent::{Axes, is_broadcast, tracker};
use crate::globals::globals;
use crate::nodes::map_nodes;
use crate::opt::tuning::{CUTS_MAX, MASKED_ROW_MIN};

/// Simplifies the axes of a kernel tree.
pub(crate) fn simplify(root: &UOp, ctx: &mut Context<'_>) -> Result<UOp, Error> {
    globals(root)?;
    let root = merge_reductions(root, ctx.options.rewrite.mode);
    let order = root.toposort();
    let axes = Axes::of(&order)?;
    let groups = Groups::find(&axes, &order, &ctx.target)?;
    rebuild(&order, &axes, &groups)
}

/// Merges a reduction of a reduction by the same op into one. That changes the order of the
/// elements, so strict mode forbids it for floats: the order decides the sign of a zero maximum.
fn merge_reductions(root: &UOp, mode: Mode) -> UOp {
    let inner = |node: &UOp| match (node.op(), node.arg(), node.src()) {
        (Op::ReduceAxis, Arg::Reduce(op, axes), [source]) => match (source.op(), source.arg()) {
            (Op::ReduceAxis, Arg::Reduce(same, more)) if same == op => {
                let may = !node.dtype().is_float() || mode != Mode::Strict;
                may.then(|| {
                    let mut merged: Dims = axes.iter().chain(more).copied().collect();
                    merged.sort_unstable();
                    merged.dedup();
                    (source.src()[0].clone(), Arg::Reduce(*op, merged))
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
    .expect("merging cannot fail")
}

/// For each new axis the old axes that it merges, in order; old axes of size 1 are in none.
#[derive(Clone)]
struct Groups {
    axes: SmallVec<[SmallVec<[usize; 4]>; 4]>,
}

impl Groups {
    fn find(axes: &Axes, order: &[UOp], target: &Target) -> Result<Groups, Error> {
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
        if let Some(rows) = groups.with_masked_rows(&trackers, axes, target) {
            return Ok(rows);
        }
        groups.merge_where(trackers, axes, |_, _| true);
        Ok(groups)
    }

    /// Merges adjacent axes where `may_merge` allows it, given the trackers and the first of the
    /// axes, and no tracker needs another view. Returns the trackers over the new axes.
    fn merge_where(
        &mut self,
        mut trackers: Vec<ShapeTracker>,
        axes: &Axes,
        may_merge: impl Fn(&[ShapeTracker], usize) -> bool,
    ) -> Vec<ShapeTracker> {
        let mut left = 0;
        while left + 1 < self.axes.len() {
            let [first, second] = [left, left + 1].map(|axis| self.axes[axis][0]);
            let is_allowed =
                axes.reductions[first] == axes.reductions[second] && may_merge(&trackers, left);
            let merged = is_allowed
                .then(|| trackers.iter().map(|tracker| merge(tracker, left)).collect())
                .flatten();
            if let Some(merged) = merged {
                trackers = merged;
                let right = self.axes.remove(left + 1);
                self.axes[left].extend(right);
            } else {
                left += 1;
            }
        }
        trackers
    }

    /// Merges the axes, except the innermost with that before it, if only the latter is masked, as
    /// concatenated rows are, and threads divide the kernel, which reduces nothing. A merged axis
    /// would be cut where masks change, so that no loop has each store. `None` for other kernels.
    fn with_masked_rows(
        &self,
        trackers: &[ShapeTracker],
        axes: &Axes,
        target: &Target,
    ) -> Option<Groups> {
        let iterations = axes.sizes.iter().copied().fold(1, i64::saturating_mul);
        let is_divided = 1 < target.threads
            && target.groups.is_none()
            && target.thresholds.thread_iterations <= iterations
            && axes.reductions.iter().all(SmallVec::is_empty);
        if !is_divided {
            return None;
        }
        let mut groups = self.clone();
        let trackers = groups.merge_where(trackers.to_vec(), axes, |trackers, left| {
            mask_ends(trackers, left).is_empty() || !mask_ends(trackers, left + 1).is_empty()
        });
        let row = groups.axes.len().checked_sub(1)?;
        let rows = row.checked_sub(1)?;
        let shape = groups.shape(&axes.sizes);
        let outer = shape[..rows].iter().copied().fold(1, i64::saturating_mul);
        let is_cut = (1..=CUTS_MAX).contains(&mask_ends(&trackers, rows).len());
        let is_whole = mask_ends(&trackers, row).is_empty();
        let is_long = MASKED_ROW_MIN <= shape[row];
        (is_cut && is_whole && is_long && outer < target.threads).then_some(groups)
    }

    /// Returns the shape over the new axes.
    fn shape(&self, shape: &[i64]) -> Dims {
        let size = |group: &SmallVec<[usize; 4]>| group.iter().map(|axis| shape[*axis]).product();
        self.axes.iter().map(size).collect()
    }

    /// Returns the tracker over the new axes.
    fn apply(&self, tracker: &ShapeTracker, axes: &Axes) -> Result<ShapeTracker, Error> {
        let error_at = |error| malformed(format!("{tracker}: {error}"));
        let order: SmallVec<[usize; 8]> = axes.order().collect();
        let is_in_order = order.windows(2).all(|pair| pair[0] < pair[1]);
        let moved = if is_in_order {
            tracker.clone()
        } else {
            tracker.permute(&order).map_err(error_at)?
        };
        let shape = self.shape(tracker.shape());
        if moved.shape() == shape.as_slice() {
            return Ok(moved);
        }
        moved.reshape(&shape).map_err(error_at)
    }
}

/// Returns the positions within an axis at which masks begin or end.
fn mask_ends(trackers: &[ShapeTracker], axis: usize) -> BTreeSet<i64> {
    let views = trackers.iter().filter_map(|tracker| tracker.views().last());
    let masks = views.filter_map(|view| Some((view.mask()?[axis], view.shape()[axis])));
    let ends = masks.flat_map(|((start, end), size)| {
        [start, end].into_iter().filter(move |position| (1..size).contains(position))
    });
    ends.collect()
}

/// Merges the axes `left` and `left + 1` of a tracker, if that needs no further view and the size
/// fits an index.
fn merge(tracker: &ShapeTracker, left: usize) -> Option<ShapeTracker> {
    let mut shape = Dims::from_slice(tracker.shape());
    let right = shape.remove(left + 1);
    let is_whole = (shape[left] == 1) == (right == 1);
    shape[left] = shape[left].checked_mul(right)?;
    let merged = tracker.reshape(&shape).ok()?;
    (is_whole && merged.views().len() <= tracker.views().len()).then_some(merged)
}

/// Rebuilds the tree over the new axes.
fn rebuild(order: &[UOp], axes: &Axes, groups: &Groups) -> Result<UOp, Error> {
    let is_same = groups.axes.len() == axes.sizes.len()
        && groups.axes.iter().enumerate().all(|(new, old)| old.as_slice() == [new]);
    if is_same {
        return Ok(order[order.len() - 1].clone());
    }
    let views_reduction = |view: &UOp| view.src()[0].op() == Op::ReduceAxis;
    let is_broadcast = |tracker: &ShapeTracker, view: &UOp| {
        view.op() == Op::View && views_reduction(view) && is_broadcast(tracker, &view.src()[0])
    };
    map_nodes(order, |old, node| match old.arg() {
        // The reduction was over axes of size 1 only, which are removed.
        Arg::View(_) if old.op() == Op::View && views_reduction(old) && !views_reduction(&node) => {
            Ok(node.src()[0].clone())
        }
        // The elements of the reduction are in the order of its new axes.
        Arg::View(tracker) if is_broadcast(tracker, old) => {
            let narrow =
                node.src()[0].shape().ok_or_else(|| malformed("a node without a shape"))?;
            let error = |error| malformed(format!("{tracker}: {error}"));
            let wide = groups.shape(tracker.shape());
            let tracker = ShapeTracker::from_shape(narrow).map_err(error)?;
            let arg = Arg::View(tracker.expand(&wide).map_err(error)?);
            Ok(UOp::new(node.op(), node.dtype(), node.src().iter().cloned(), arg))
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
