//! Pass "push": moves the shrinks, flips and permutations of a reduction's result to its source.
//!
//! A kernel ends before a view that does more than reshape. So a reduction under such a view would
//! be stored as a whole, and another kernel would move its elements. If nothing else uses the
//! reduction, its source is moved instead, as are the sources of elementwise ops in between. The
//! reduced elements stay in order, so that results have the same bits.
//!
//! Only sums of products are flipped or permuted: they read each element of their factors many
//! times. Other reductions would read their source in another order than it is stored. A reduction
//! stays as it is if its source has values of whole rows, such as their maximum: a kernel computes
//! these along with it.

use gradiff_graph::{Arg, Op, Sources, UOp};
use gradiff_view::ShapeTracker;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::realize::is_computed;
use crate::tuning::PUSHED_DEPTH_MAX;
use crate::views::{self, Viewed};
use crate::{rows, shape_of, shaped};

/// Returns the nodes that have exactly one user and need not be in a buffer.
pub(crate) fn used_once(viewed: &Viewed) -> FxHashSet<UOp> {
    let mut counts: FxHashMap<&UOp, u32> = FxHashMap::default();
    for user in &viewed.order {
        for (index, src) in user.src().iter().enumerate() {
            if !user.src()[..index].contains(src) {
                *counts.entry(src).or_default() += 1;
            }
        }
    }
    let is_once = |(node, count): &(&UOp, u32)| *count == 1 && !viewed.forced.contains(*node);
    counts.into_iter().filter(is_once).map(|(node, _)| node.clone()).collect()
}

/// Rewrites a view over reductions as reductions over moved sources, given the node before and
/// after its sources were replaced; `None` for other nodes and where it does not pay. `used_once`
/// are the nodes of [`used_once`].
pub(crate) fn push(node: &UOp, new: &UOp, used_once: &FxHashSet<UOp>) -> Option<UOp> {
    let (Op::View, Arg::View(view)) = (node.op(), node.arg()) else { return None };
    let base = &node.src()[0];
    if !is_over_reduction(base, PUSHED_DEPTH_MAX) || views::is_reshape(view, base) {
        return None;
    }
    Push { view, used_once }.result(base, &new.src()[0], PUSHED_DEPTH_MAX)
}

/// Returns whether a node is a reduction, or computed from one by elementwise ops and reshapes.
fn is_over_reduction(node: &UOp, depth: usize) -> bool {
    match (node.op(), node.arg(), node.src()) {
        (Op::ReduceAxis, ..) => true,
        (Op::View, Arg::View(tracker), [base]) => {
            views::is_reshape(tracker, base) && is_over_reduction(base, depth)
        }
        (op, _, src) => {
            let is_over = |src: &UOp| is_over_reduction(src, depth - 1);
            depth != 0 && op.is_elementwise() && src.iter().any(is_over)
        }
    }
}

/// A view as a shrink, a flip and a permutation of the axes that are left with several elements.
struct Moves {
    bounds: Vec<(i64, i64)>,
    flips: Vec<bool>,
    /// The axes with several elements, in the order of the view.
    order: Vec<usize>,
}

impl Moves {
    /// Returns the moves of a view of a tensor of this shape; `None` if it does anything else, such
    /// as to repeat or pad elements.
    fn of(tracker: &ShapeTracker, shape: &[i64]) -> Option<Moves> {
        let plain = views::plain(shape);
        let ([view], [in_order]) = (tracker.views(), plain.views()) else { return None };
        if view.mask().is_some() {
            return None;
        }
        let mut left = view.offset();
        let mut bounds: Vec<(i64, i64)> = Vec::with_capacity(shape.len());
        for (size, stride) in shape.iter().zip(in_order.strides()) {
            let first = if *size == 1 { 0 } else { left / stride };
            left -= first * stride;
            bounds.push((first, first + 1));
        }
        let (mut flips, mut order) = (vec![false; shape.len()], Vec::new());
        let axes = view.shape().iter().zip(view.strides());
        for (size, stride) in axes.filter(|(size, _)| **size != 1) {
            let is_moved = |axis: &usize| in_order.strides()[*axis] == stride.abs();
            let axis = (0..shape.len()).filter(|axis| shape[*axis] != 1).find(is_moved)?;
            let (first, end) = bounds[axis];
            let is_flipped = *stride < 0;
            bounds[axis] = if is_flipped { (end - size, end) } else { (first, first + size) };
            let is_inside = 0 <= bounds[axis].0 && bounds[axis].1 <= shape[axis];
            if order.contains(&axis) || !is_inside {
                return None;
            }
            flips[axis] = is_flipped;
            order.push(axis);
        }
        Some(Moves { bounds, flips, order })
    }

    /// Returns whether elements are only left out.
    fn is_shrink(&self) -> bool {
        self.order.is_sorted() && !self.flips.contains(&true)
    }

    /// Returns the view that moves the source of a reduction over these axes, which keep all of
    /// their elements, in order.
    fn of_source(&self, shape: &[i64], reduced: &[i64]) -> Option<ShapeTracker> {
        let mut bounds = self.bounds.clone();
        for axis in reduced.iter().map(|axis| *axis as usize) {
            bounds[axis] = (0, shape[axis]);
        }
        let mut positions = self.order.clone();
        positions.sort_unstable();
        let mut permuted: Vec<usize> = (0..shape.len()).collect();
        for (position, axis) in positions.into_iter().zip(&self.order) {
            permuted[position] = *axis;
        }
        let shrunk = views::plain(shape).shrink(&bounds).ok()?;
        shrunk.flip(&self.flips).ok()?.permute(&permuted).ok()
    }
}

/// A view that is moved.
struct Push<'a> {
    view: &'a ShapeTracker,
    used_once: &'a FxHashSet<UOp>,
}

impl Push<'_> {
    /// Moves a node that has as many elements as the base of the view, given before and after its
    /// sources were replaced.
    fn result(&self, node: &UOp, new: &UOp, depth: usize) -> Option<UOp> {
        match node.op() {
            Op::Const => Some(new.clone()),
            _ if !is_over_reduction(node, depth) => Some(viewed(new, self.view)),
            _ if !self.used_once.contains(node) => None,
            Op::ReduceAxis => self.reduction(node, new),
            Op::View => self.result(&node.src()[0], &new.src()[0], depth),
            _ => {
                let pairs = node.src().iter().zip(new.src());
                let moved = pairs.map(|(src, new)| self.result(src, new, depth - 1));
                Some(new.with_src(moved.collect::<Option<Sources>>()?))
            }
        }
    }

    /// Returns the reduction of the moved source, in the shape of the view.
    fn reduction(&self, node: &UOp, new: &UOp) -> Option<UOp> {
        let Arg::Reduce(_, axes) = node.arg() else { return None };
        let moves = Moves::of(self.view, shape_of(node))?;
        if !moves.is_shrink() && rows::summed_product(node).is_none() {
            return None;
        }
        let view = moves.of_source(shape_of(&node.src()[0]), axes)?;
        let rows = rows::broadcast_tracker(node);
        let source = source(&node.src()[0], &new.src()[0], &view, rows.as_ref(), PUSHED_DEPTH_MAX)?;
        Some(shaped(new.with_src([source]), self.view.shape()))
    }
}

/// Moves a node of the shape of the reduction's source; `None` if it has a value for each of
/// `rows`.
fn source(
    node: &UOp,
    new: &UOp,
    view: &ShapeTracker,
    rows: Option<&ShapeTracker>,
    depth: usize,
) -> Option<UOp> {
    if node.op() == Op::Const {
        return Some(new.clone());
    }
    // A node that must be in a buffer has become the source of a `Contiguous`.
    if node.op().is_elementwise() && node.op() == new.op() {
        let pairs = node.src().iter().zip(new.src());
        let moved = pairs.map(|(src, new)| source(src, new, view, rows, depth.checked_sub(1)?));
        return Some(new.with_src(moved.collect::<Option<Sources>>()?));
    }
    let is_of_rows = match (node.op(), node.arg(), rows) {
        (Op::View, Arg::View(tracker), Some(rows)) => {
            is_computed(&node.src()[0]) && rows::are_equal(tracker, rows)
        }
        _ => false,
    };
    (!is_of_rows).then(|| viewed(new, view))
}

fn viewed(base: &UOp, tracker: &ShapeTracker) -> UOp {
    UOp::new(Op::View, base.dtype(), [base.clone()], Arg::View(tracker.clone()))
}
