//! The axes of a kernel tree: their sizes, and the reductions over them.

use gradiff_graph::{Arg, Dims, Op, UOp};
use gradiff_view::ShapeTracker;
use smallvec::SmallVec;

use crate::Error;
use crate::error::malformed;

/// The loops of a kernel tree.
pub(crate) struct Axes {
    /// The size of each axis before any reduction.
    pub(crate) sizes: Dims,
    /// For each axis the positions (in the given order of nodes) of the reductions over it.
    pub(crate) reductions: SmallVec<[SmallVec<[u32; 2]>; 4]>,
}

impl Axes {
    /// Collects the axes of the tree of these nodes (sources first).
    ///
    /// # Errors
    /// If trackers differ in rank, or in a size that is not 1, or a reduction names no axis of
    /// the kernel.
    pub(crate) fn of(order: &[UOp]) -> Result<Axes, Error> {
        let mut sizes: Option<Dims> = None;
        for shape in order.iter().filter_map(tracker).map(|tracker| tracker.shape()) {
            let sizes = sizes.get_or_insert_with(|| Dims::from_slice(shape));
            if sizes.len() != shape.len() {
                let ranks = (sizes.len(), shape.len());
                return Err(malformed(format!("trackers of rank {} and {}", ranks.0, ranks.1)));
            }
            for (size, other) in sizes.iter_mut().zip(shape) {
                match (*size, *other) {
                    (1, _) => *size = *other,
                    (_, 1) => {}
                    (x, y) if x == y => {}
                    (x, y) => {
                        return Err(malformed(format!("an axis of sizes {x} and {y}")));
                    }
                }
            }
        }
        let sizes = sizes.ok_or_else(|| malformed("no tracker"))?;
        let mut reductions: SmallVec<[SmallVec<[u32; 2]>; 4]> = SmallVec::new();
        reductions.resize(sizes.len(), SmallVec::new());
        for (position, node) in order.iter().enumerate() {
            if let (Op::ReduceAxis, Arg::Reduce(_, axes)) = (node.op(), node.arg()) {
                for axis in axes {
                    let of_axis =
                        usize::try_from(*axis).ok().and_then(|axis| reductions.get_mut(axis));
                    of_axis
                        .ok_or_else(|| {
                            let rank = sizes.len();
                            malformed(format!("a reduction over axis {axis} of {rank}"))
                        })?
                        .push(position as u32);
                }
            }
        }
        Ok(Axes { sizes, reductions })
    }

    /// Iterates over all axes, reduced ones last.
    pub(crate) fn order(&self) -> impl Iterator<Item = usize> + '_ {
        let axes = |is_reduced: bool| {
            (0..self.sizes.len())
                .filter(move |axis| self.reductions[*axis].is_empty() != is_reduced)
        };
        axes(false).chain(axes(true))
    }
}

/// Returns the tracker that a node of the tree carries.
pub(crate) fn tracker(node: &UOp) -> Option<&ShapeTracker> {
    match node.arg() {
        Arg::View(tracker) => Some(tracker),
        _ => None,
    }
}

/// Returns whether a view broadcasts a reduction along its reduced axes and does nothing else.
pub(crate) fn is_broadcast(tracker: &ShapeTracker, reduction: &UOp) -> bool {
    let ([view], Some(shape)) = (tracker.views(), reduction.shape()) else { return false };
    // The strides of a view without elements have no meaning.
    let is_empty = view.shape().contains(&0);
    let mut stride = 1;
    view.offset() == 0
        && view.mask().is_none()
        && view.shape().len() == shape.len()
        && (0..shape.len()).rev().all(|axis| {
            let expected = if shape[axis] == 1 { 0 } else { stride };
            stride *= shape[axis];
            let has_size = shape[axis] == 1 || view.shape()[axis] == shape[axis];
            (is_empty || view.strides()[axis] == expected) && has_size
        })
}
