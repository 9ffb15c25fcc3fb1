//! A chain of views: the first reads the buffer, each further one reads the row-major elements of
//! the one below.

use smallvec::{SmallVec, smallvec};

use crate::canon::settle;
use crate::view::{Reads, count};
use crate::{Dim, Error, Movement, View};

/// The one that reads the buffer first; mostly one or two.
type Views<D> = SmallVec<[View<D>; 2]>;

/// Where each element of a shape lies in a buffer, or that it is padding. Immutable, cheap to
/// clone.
#[derive(Clone, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct ShapeTracker<D: Dim = i64>(Views<D>);

impl<D: Dim> ShapeTracker<D> {
    /// The buffer itself under a shape, in row-major order.
    /// # Errors
    /// [`Error::NegativeSize`] and [`Error::TooLarge`].
    pub fn from_shape(shape: &[D]) -> Result<ShapeTracker<D>, Error> {
        Ok(ShapeTracker(smallvec![View::plain(shape)?]))
    }

    /// A chain of views, the one that reads the buffer first.
    /// # Errors
    /// [`Error::NoViews`]; [`Error::Stack`] if a view reads what the one below does not have.
    pub fn from_views(views: &[View<D>]) -> Result<ShapeTracker<D>, Error> {
        if views.is_empty() {
            return Err(Error::NoViews);
        }
        for pair in views.windows(2) {
            check_stack(&pair[0], &pair[1])?;
        }
        Ok(ShapeTracker(views.into()))
    }

    /// The views, the one that reads the buffer first.
    pub fn views(&self) -> &[View<D>] {
        &self.0
    }

    /// Size of each axis.
    pub fn shape(&self) -> &[D] {
        &self.last().shape
    }

    /// Number of elements.
    pub fn size(&self) -> D {
        self.last().size()
    }

    /// Whether element `i` in row-major order is element `i` of the buffer.
    pub fn is_contiguous(&self) -> bool {
        self.0.len() == 1 && self.last().contiguous
    }

    /// The same elements in row-major order under another shape; adds a view where the last cannot
    /// say it.
    /// # Errors
    /// As [`View::reshape`].
    pub fn reshape(&self, to: &[D]) -> Result<ShapeTracker<D>, Error> {
        match self.last().reshape(to)? {
            Some(view) => Ok(self.with_last(view)),
            None => self.append(to),
        }
    }

    /// Puts axis `axes[i]` in place `i`.
    /// # Errors
    /// As [`View::permute`].
    pub fn permute(&self, axes: &[usize]) -> Result<ShapeTracker<D>, Error> {
        Ok(self.with_last(self.last().permute(axes)?))
    }

    /// Repeats axes of size 1.
    /// # Errors
    /// As [`View::expand`].
    pub fn expand(&self, to: &[D]) -> Result<ShapeTracker<D>, Error> {
        Ok(self.with_last(self.last().expand(to)?))
    }

    /// Puts zeros (before, after) each axis.
    /// # Errors
    /// As [`View::pad`].
    pub fn pad(&self, amounts: &[(D, D)]) -> Result<ShapeTracker<D>, Error> {
        Ok(self.with_last(self.last().pad(amounts)?))
    }

    /// Keeps the half-open (begin, end) of each axis.
    /// # Errors
    /// As [`View::shrink`].
    pub fn shrink(&self, bounds: &[(D, D)]) -> Result<ShapeTracker<D>, Error> {
        match self.last().shrink(bounds) {
            Ok(view) => Ok(self.with_last(view)),
            Err(Error::Undecided { .. }) => self.append(self.shape())?.shrink(bounds),
            Err(error) => Err(error),
        }
    }

    /// Turns the flagged axes around.
    /// # Errors
    /// As [`View::flip`].
    pub fn flip(&self, axes: &[bool]) -> Result<ShapeTracker<D>, Error> {
        Ok(self.with_last(self.last().flip(axes)?))
    }

    /// Carries out one movement op. Without `merge` every reshape adds a view (tinygrad's
    /// `MERGE_VIEW=0`).
    /// # Errors
    /// As the op's own method.
    pub fn apply(&self, movement: &Movement<D>, merge: bool) -> Result<ShapeTracker<D>, Error> {
        match movement {
            Movement::Reshape(to) if !merge => {
                self.last().reshapes_to(to)?;
                self.append(to)
            }
            Movement::Reshape(to) => self.reshape(to),
            Movement::Permute(axes) => self.permute(axes),
            Movement::Expand(to) => self.expand(to),
            Movement::Pad(amounts) => self.pad(amounts),
            Movement::Shrink(bounds) => self.shrink(bounds),
            Movement::Flip(axes) => self.flip(axes),
        }
    }

    /// `top` read through `self`: element `i` of the result is the element of `self` that `top`
    /// names.
    /// # Errors
    /// [`Error::Stack`] if `top` reads beyond the elements of `self`.
    pub fn compose(&self, top: &ShapeTracker<D>) -> Result<ShapeTracker<D>, Error> {
        check_stack(self.last(), &top.0[0])?;
        if self.is_contiguous() && top.0.len() == 1 {
            return Ok(top.clone());
        }
        let mut views = self.0.clone();
        for view in &top.0 {
            // One view at a time merges better.
            views.push(view.clone());
            merge(&mut views);
        }
        canonize(&mut views);
        Ok(ShapeTracker(views))
    }

    /// Merges neighbouring views for as long as any two can be one, and brings those that remain
    /// into one form: trackers that place all elements alike become equal, nearly always.
    pub fn simplify(&self) -> ShapeTracker<D> {
        let mut simple = self.merged();
        canonize(&mut simple.0);
        simple
    }

    /// `simplify` as far as merging goes.
    pub(crate) fn merged(&self) -> ShapeTracker<D> {
        let mut merged = self.clone();
        merge(&mut merged.0);
        merged
    }

    /// The way back: a tracker of shape `to` over this one's elements that puts each buffer element
    /// in place. `None` unless every element of a buffer of that shape appears exactly once.
    pub fn invert(&self, to: &[D]) -> Option<ShapeTracker<D>> {
        let mut inverted = Views::with_capacity(self.0.len());
        for (position, view) in self.0.iter().enumerate().rev() {
            let below = if position == 0 { to } else { &self.0[position - 1].shape };
            inverted.push(view.invert(below)?);
        }
        ShapeTracker(inverted).reshape(to).ok()
    }

    /// The same elements in row-major order with as few axes as the last view can have.
    pub fn minify(&self) -> ShapeTracker<D> {
        self.with_last(self.last().minify())
    }

    /// Number of buffer elements from the first up to the highest that the first view reads.
    ///
    /// # Panics
    /// If a stride of the first view may be of either sign: movements make none such.
    pub fn real_size(&self) -> D {
        if self.last().is_empty() {
            return D::number(0);
        }
        match self.0[0].span() {
            Reads::Nothing => D::number(0),
            Reads::From(_, high) => high.plus(&D::number(1)).expect("room was left for this"),
            Reads::Unknown => panic!("the direction of a stride of {self} is not known"),
        }
    }

    /// Whether the first view is proven to read no element before or behind a buffer of so many.
    pub fn is_inside(&self, size: &D) -> bool {
        match self.0[0].span() {
            Reads::Nothing => true,
            Reads::From(low, high) => D::number(0).at_most(&low) && high.below(size),
            Reads::Unknown => false,
        }
    }

    pub(crate) fn last(&self) -> &View<D> {
        &self.0[self.0.len() - 1]
    }

    fn with_last(&self, view: View<D>) -> ShapeTracker<D> {
        let mut views = Views::new();
        self.0[..self.0.len() - 1].iter().for_each(|below| views.push(below.clone()));
        views.push(view);
        ShapeTracker(views)
    }

    fn append(&self, shape: &[D]) -> Result<ShapeTracker<D>, Error> {
        let view = View::plain(shape)?;
        assert!(count(shape)? == self.size(), "the view on top has the elements of the one below");
        let mut views = self.0.clone();
        views.push(view);
        Ok(ShapeTracker(views))
    }
}

/// Merges pairs, the last first, until none can. Each merge takes one view away.
fn merge<D: Dim>(views: &mut Views<D>) {
    let mut top = views.len();
    while top > 1 {
        top -= 1;
        if let Some(merged) = views[top].merge(&views[top - 1]) {
            views[top - 1] = merged;
            views.remove(top);
            top = views.len();
        }
    }
}

/// Brings views that do not merge into one form.
fn canonize<D: Dim>(views: &mut Views<D>) {
    if views.len() == 1 {
        return;
    }
    // Pairs that settling leaves alone, by the place of the lower view.
    let mut settled: SmallVec<[Views<D>; 2]> = SmallVec::from_elem(Views::new(), views.len());
    // Each round but the last changes a view.
    for _ in 0..2 * views.len() {
        let mut is_settled = true;
        for low in (0..views.len() - 1).rev() {
            // Parts that came to lie side by side may be one; nearly always the second try
            // changes nothing.
            for _ in 0..4 {
                let pair = &mut views[low..low + 2];
                if *settled[low] == *pair {
                    break;
                }
                match settle(&pair[1], &pair[0]) {
                    Some((top, base)) => {
                        (pair[1], pair[0]) = (top, base);
                        is_settled = false;
                    }
                    None => settled[low] = Views::from(&*pair),
                }
            }
        }
        if is_settled {
            break;
        }
        merge(views);
    }
}

fn check_stack<D: Dim>(below: &View<D>, above: &View<D>) -> Result<(), Error> {
    let size = below.size();
    let error = |low: &str, high: &str| {
        Err(Error::Stack { low: low.to_string(), high: high.to_string(), size: size.to_string() })
    };
    match above.span() {
        Reads::Nothing => Ok(()),
        Reads::From(low, high) if D::number(0).at_most(&low) && high.below(&size) => Ok(()),
        Reads::From(low, high) => error(&low.to_string(), &high.to_string()),
        Reads::Unknown => error("unknown", "unknown"),
    }
}

impl<D: Dim> std::fmt::Display for ShapeTracker<D> {
    /// tinygrad's spelling: `ShapeTracker(views=(View(...), View(...)))`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ShapeTracker(views=")?;
        crate::view::tuple(f, &self.0, |f, view| write!(f, "{view}"))?;
        write!(f, ")")
    }
}
