//! The axes of a kernel tree: their sizes, and which reductions fold them.

use gradiff_graph::{Arg, Dims, Op, UOp};
use gradiff_view::ShapeTracker;
use smallvec::SmallVec;

use crate::Error;
use crate::error::malformed;

/// The loops of a kernel tree.
pub(crate) struct Axes {
    /// The size of each axis before any reduction.
    pub(crate) sizes: Dims,
    /// For each axis the positions (in the order given) of the reductions that fold it.
    pub(crate) folds: SmallVec<[SmallVec<[u32; 2]>; 4]>,
}

impl Axes {
    /// The axes of the tree of these nodes (sources first).
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
                    (one, another) if one == another => {}
                    (one, another) => {
                        return Err(malformed(format!("an axis of sizes {one} and {another}")));
                    }
                }
            }
        }
        let sizes = sizes.ok_or_else(|| malformed("no tracker"))?;
        let mut folds: SmallVec<[SmallVec<[u32; 2]>; 4]> = SmallVec::new();
        folds.resize(sizes.len(), SmallVec::new());
        for (position, node) in order.iter().enumerate() {
            if let (Op::ReduceAxis, Arg::Reduce(_, axes)) = (node.op(), node.arg()) {
                for axis in axes {
                    let fold = usize::try_from(*axis).ok().and_then(|axis| folds.get_mut(axis));
                    fold.ok_or_else(|| malformed(format!("reduces axis {axis}")))?
                        .push(position as u32);
                }
            }
        }
        Ok(Axes { sizes, folds })
    }

    /// All axes, those that no reduction folds first.
    pub(crate) fn order(&self) -> impl Iterator<Item = usize> + '_ {
        let axes = |is_folded: bool| {
            (0..self.sizes.len()).filter(move |axis| self.folds[*axis].is_empty() != is_folded)
        };
        axes(false).chain(axes(true))
    }
}

/// The tracker that a node of the tree carries.
pub(crate) fn tracker(node: &UOp) -> Option<&ShapeTracker> {
    match node.arg() {
        Arg::View(tracker) => Some(tracker),
        _ => None,
    }
}
