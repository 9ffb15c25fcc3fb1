//! Kernels that take row after row: which folds and what else may meet in one.
//!
//! All folds of such a kernel fold the last axes of one shape, its rows. Every other node either
//! has one value for each row, as a fold has, or is *spread*: it has the shape of the rows. A view
//! leads from one to the other only, by repeating the value of each row along it.

use gradiff_graph::{Arg, UOp};
use gradiff_view::ShapeTracker;
use smallvec::SmallVec;

use crate::{shape_of, size_of, views};

/// Most folds of one kernel: each computes anew what it folds.
const MOST_FOLDS: usize = 4;
/// Most loops that they may open.
const MOST_LOOPS: usize = 16;

/// The folds that are fused with a node, one or more; all of them fold the same rows.
#[derive(Clone, Debug)]
pub(crate) struct Carried {
    folds: SmallVec<[UOp; 2]>,
    /// Whether the node has the shape of what is folded.
    is_spread: bool,
}

impl Carried {
    /// What a fold that is the first of its kernel carries.
    pub(crate) fn of(fold: &UOp) -> Carried {
        Carried { folds: SmallVec::from_iter([fold.clone()]), is_spread: false }
    }

    /// Seen through a view, if the kernel may go on there.
    pub(crate) fn seen_through(&self, tracker: &ShapeTracker, rows: bool) -> Option<Carried> {
        if !self.is_spread && views::is_reshape(tracker, &self.folds[0]) {
            return Some(self.clone());
        }
        let is_spread = rows && self.is_spread_by(tracker);
        is_spread.then(|| Carried { is_spread: true, ..self.clone() })
    }

    /// Whether a view of a value for each row repeats it along the row.
    pub(crate) fn is_spread_by(&self, tracker: &ShapeTracker) -> bool {
        !self.is_spread && spread(&self.folds[0]).is_some_and(|wanted| is_same(tracker, &wanted))
    }

    /// Folded once more, if the kernel may go on there.
    pub(crate) fn folded_by(&self, fold: &UOp) -> Option<Carried> {
        let row = Carried { is_spread: false, ..self.clone() };
        if self.is_spread { row.beside(Some(&Carried::of(fold)), true) } else { None }
    }

    /// Together with what another source of a node carries, if one kernel may hold both.
    pub(crate) fn beside(&self, other: Option<&Carried>, rows: bool) -> Option<Carried> {
        let Some(other) = other else { return Some(self.clone()) };
        let mut both = self.clone();
        let new = other.folds.iter().filter(|fold| !self.folds.contains(fold)).cloned();
        both.folds.extend(new);
        let is_one = both.folds.len() == 1;
        let is_row = || rows && is_alike(&self.folds[0], &other.folds[0]) && both.fits();
        (self.is_spread == other.is_spread && (is_one || is_row())).then_some(both)
    }

    /// Whether a kernel may hold so many folds.
    fn fits(&self) -> bool {
        let shape = shape_of(&self.folds[0].src()[0]);
        let loops = axes(&self.folds[0]).iter().filter(|axis| shape[**axis as usize] != 1).count();
        self.folds.len() <= MOST_FOLDS && self.folds.len() * loops <= MOST_LOOPS
    }
}

/// The axes that a fold folds.
fn axes(fold: &UOp) -> &[i64] {
    match fold.arg() {
        Arg::Reduce(_, axes) => axes,
        _ => &[],
    }
}

/// Whether two folds fold the same rows.
pub(crate) fn is_alike(one: &UOp, other: &UOp) -> bool {
    let shape = |fold: &UOp| shape_of(&fold.src()[0]).to_vec();
    has_rows(one) && shape(one) == shape(other) && axes(one) == axes(other)
}

/// Whether a fold folds the last of all axes that have more than one step, and no other ones.
fn has_rows(fold: &UOp) -> bool {
    let (shape, axes) = (shape_of(&fold.src()[0]), axes(fold));
    let first = axes.iter().copied().min().unwrap_or(0);
    let is_row = |axis: usize| shape[axis] == 1 || axes.contains(&(axis as i64));
    (first as usize..shape.len()).all(is_row)
}

/// The view that repeats the values of a fold along its rows; none if they are no rows.
pub(crate) fn spread(fold: &UOp) -> Option<ShapeTracker> {
    let whole = shape_of(&fold.src()[0]);
    let is_any = has_rows(fold) && size_of(fold) != size_of(&fold.src()[0]);
    is_any.then(|| views::plain(shape_of(fold)).expand(whole).expect("a fold keeps its axes as 1"))
}

/// Whether two trackers of the same shape send each element to the same place, as far as they say
/// it in the same way once they are simplified.
pub(crate) fn is_same(one: &ShapeTracker, other: &ShapeTracker) -> bool {
    one == other || one.shape() == other.shape() && one.simplify() == other.simplify()
}
