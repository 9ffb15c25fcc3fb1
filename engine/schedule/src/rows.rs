//! Row kernels: kernels that compute several reductions, row by row.
//!
//! All reductions of such a kernel are over the last axes of the same shape; a row is the elements
//! along these axes. Every other node either has one value for each row, as a reduction has, or is
//! *broadcast*: it has the full shape. The only views between the two kinds broadcast the value of
//! each row along the row.

use gradiff_graph::target::Thresholds;
use gradiff_graph::{Arg, Op, UOp};
use gradiff_view::ShapeTracker;
use smallvec::SmallVec;

use crate::pack::{is_contiguous_along, is_invariant};
use crate::tuning::{MAX_LOOPS, MAX_REDUCTIONS};
use crate::{shape_of, size_of, views};

/// The reductions, at least one, that are fused with a node. All of them are over the same rows.
#[derive(Clone, Debug)]
pub(crate) struct FusedReductions {
    reductions: SmallVec<[UOp; 2]>,
    /// True if the node has the full shape, which is that of the sources of the reductions.
    is_broadcast: bool,
}

impl FusedReductions {
    /// Returns the set of a single reduction, fused with itself.
    pub(crate) fn of(reduction: &UOp) -> FusedReductions {
        let reductions = SmallVec::from_iter([reduction.clone()]);
        FusedReductions { reductions, is_broadcast: false }
    }

    /// Returns the reductions that are fused with a view of the node; `None` if the view cannot be
    /// in the same kernel. `rows` are the most elements of a row in row kernels, if they are
    /// enabled.
    pub(crate) fn viewed(
        &self,
        tracker: &ShapeTracker,
        rows: Option<i64>,
    ) -> Option<FusedReductions> {
        if !self.is_broadcast && views::is_reshape(tracker, &self.reductions[0]) {
            return Some(self.clone());
        }
        let is_broadcast = self.are_short(rows) && self.is_broadcast_by(tracker);
        is_broadcast.then(|| FusedReductions { is_broadcast: true, ..self.clone() })
    }

    /// Returns whether a view broadcasts the value of each row along the row.
    pub(crate) fn is_broadcast_by(&self, tracker: &ShapeTracker) -> bool {
        let expected = || broadcast_tracker(&self.reductions[0]);
        !self.is_broadcast && expected().is_some_and(|expected| are_equal(tracker, &expected))
    }

    /// Returns the reductions that are fused with a reduction of the node; `None` if that reduction
    /// cannot be in the same kernel.
    pub(crate) fn reduced_by(&self, reduction: &UOp, rows: Option<i64>) -> Option<FusedReductions> {
        if !self.is_broadcast {
            return None;
        }
        let row = FusedReductions { is_broadcast: false, ..self.clone() };
        row.union(Some(&FusedReductions::of(reduction)), rows)
    }

    /// Returns the union with the reductions that are fused with another source of the same node;
    /// `None` if they cannot be in the same kernel.
    pub(crate) fn union(
        &self,
        sibling: Option<&FusedReductions>,
        rows: Option<i64>,
    ) -> Option<FusedReductions> {
        let Some(sibling) = sibling else { return Some(self.clone()) };
        let mut union = self.clone();
        let is_new = |reduction: &&UOp| !self.reductions.contains(reduction);
        union.reductions.extend(sibling.reductions.iter().filter(is_new).cloned());
        let is_single = union.reductions.len() == 1;
        let has_same_rows = || have_same_rows(&self.reductions[0], &sibling.reductions[0]);
        let is_row_kernel = || union.are_short(rows) && has_same_rows() && union.fits();
        let fits = self.is_broadcast == sibling.is_broadcast && (is_single || is_row_kernel());
        fits.then_some(union)
    }

    /// Returns whether rows have at most so many elements; false if row kernels are disabled.
    pub(crate) fn are_short(&self, limit: Option<i64>) -> bool {
        let row = || {
            let shape = shape_of(&self.reductions[0].src()[0]);
            axes(&self.reductions[0]).iter().map(|axis| shape[*axis as usize])
        };
        limit.is_some_and(|limit| row().fold(1, i64::saturating_mul) <= limit)
    }

    /// Returns whether the union with the reductions of another source has a large product of
    /// matrices and another reduction, so that a device with groups would not tile the product.
    pub(crate) fn would_share_product(
        &self,
        sibling: Option<&FusedReductions>,
        thresholds: &Thresholds,
    ) -> bool {
        let Some(sibling) = sibling else { return false };
        let is_part = |part: &FusedReductions, whole: &FusedReductions| {
            part.reductions.iter().all(|reduction| whole.reductions.contains(reduction))
        };
        let has_more = !is_part(self, sibling) && !is_part(sibling, self);
        let mut united = self.reductions.iter().chain(&sibling.reductions);
        !self.is_broadcast
            && has_more
            && united.any(|reduction| is_large_product(reduction, thresholds))
    }

    /// Returns whether there are few enough reductions, with few enough loops, for a kernel.
    fn fits(&self) -> bool {
        let shape = shape_of(&self.reductions[0].src()[0]);
        let axes = axes(&self.reductions[0]);
        let loops = axes.iter().filter(|axis| shape[**axis as usize] != 1).count();
        let count = self.reductions.len();
        count <= MAX_REDUCTIONS && count * loops <= MAX_LOOPS
    }
}

/// Returns the product that a reduction adds up, which may be rounded to another type first.
pub(crate) fn summed_product(reduction: &UOp) -> Option<&UOp> {
    let Arg::Reduce(Op::Add, _) = reduction.arg() else { return None };
    let source = &reduction.src()[0];
    let product = if source.op() == Op::Cast { &source.src()[0] } else { source };
    (product.op() == Op::Mul).then_some(product)
}

/// Returns the axes of a reduction.
fn axes(reduction: &UOp) -> &[i64] {
    match reduction.arg() {
        Arg::Reduce(_, axes) => axes,
        _ => &[],
    }
}

/// Returns whether a reduction is a large sum of products, a factor of which is read often, and the
/// other one again or with large strides.
fn is_large_product(reduction: &UOp, thresholds: &Thresholds) -> bool {
    let Some(product) = summed_product(reduction) else { return false };
    let shape = shape_of(product);
    let has_shape = |factor: &UOp| shape_of(factor) == shape;
    let is_product = product.src().iter().all(has_shape);
    if !is_product || size_of(product) < thresholds.tiled_products {
        return false;
    }
    let reduced: Vec<usize> = axes(reduction).iter().map(|axis| *axis as usize).collect();
    let outputs = || (0..shape.len()).filter(|axis| shape[*axis] != 1 && !reduced.contains(axis));
    let is_tiled = |x: &UOp, y: &UOp| {
        let is_strided = is_strided_along(y, &reduced);
        let is_read_again = |axis: usize| {
            outputs().any(|output| output != axis && is_invariant(y, output)) || is_strided
        };
        let is_read_often =
            |axis: usize| thresholds.tile_reads <= shape[axis] && is_invariant(x, axis);
        outputs().any(|axis| is_read_often(axis) && is_read_again(axis))
    };
    let [x, y] = [0, 1].map(|factor: usize| &product.src()[factor]);
    is_tiled(x, y) || is_tiled(y, x)
}

/// Returns whether the elements of an operand along these axes are known not to be adjacent.
fn is_strided_along(operand: &UOp, axes: &[usize]) -> bool {
    let (_, tracker) = views::base_and_tracker(operand);
    let is_single = matches!(tracker.views(), [view] if view.mask().is_none());
    is_single && !is_contiguous_along(operand, axes)
}

/// Returns whether two reductions are over the same rows.
pub(crate) fn have_same_rows(x: &UOp, y: &UOp) -> bool {
    let shape = |reduction: &UOp| shape_of(&reduction.src()[0]).to_vec();
    is_over_rows(x) && shape(x) == shape(y) && axes(x) == axes(y)
}

/// Returns whether a reduction is over the last axes of its source, where axes of size 1 do not
/// count.
fn is_over_rows(reduction: &UOp) -> bool {
    let (shape, axes) = (shape_of(&reduction.src()[0]), axes(reduction));
    let first = axes.iter().copied().min().unwrap_or(0);
    let is_row = |axis: usize| shape[axis] == 1 || axes.contains(&(axis as i64));
    (first as usize..shape.len()).all(is_row)
}

/// Returns the view that broadcasts a reduction along its rows; `None` if it is not over rows, or
/// if each row is a single element.
pub(crate) fn broadcast_tracker(reduction: &UOp) -> Option<ShapeTracker> {
    let source = &reduction.src()[0];
    let has_rows = is_over_rows(reduction) && size_of(reduction) != size_of(source);
    let plain = || views::plain(shape_of(reduction));
    has_rows.then(|| plain().expand(shape_of(source)).expect("reduced axes have size 1"))
}

/// Returns whether two trackers are equal, or become equal by simplification. Trackers for which
/// this is false may still have the same elements.
pub(crate) fn are_equal(x: &ShapeTracker, y: &ShapeTracker) -> bool {
    x == y || x.shape() == y.shape() && x.simplify() == y.simplify()
}
