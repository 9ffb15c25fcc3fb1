//! A chain of views. The first one reads the buffer; each of the others reads the elements of the
//! view below it, which it numbers in row-major order.

use smallvec::{SmallVec, smallvec};

use crate::canon::canonicalize;
use crate::view::{Span, count};
use crate::{Dim, Error, Movement, View};

/// The views, starting with the one that reads the buffer; mostly one or two.
type Views<D> = SmallVec<[View<D>; 2]>;

/// A mapping from the elements of a shape to buffer indices or padding. Immutable, cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct ShapeTracker<D: Dim = i64>(Views<D>);

impl<D: Dim> ShapeTracker<D> {
    /// Makes the tracker of a buffer in row-major order.
    /// # Errors
    /// [`Error::NegativeSize`] if a size is, or may be, negative; [`Error::MaybeEmpty`] if one may
    /// be 0, but need not; [`Error::TooLarge`] if the product of the sizes that are not 0 does not
    /// fit in an i64.
    pub fn from_shape(shape: &[D]) -> Result<ShapeTracker<D>, Error> {
        Ok(ShapeTracker(smallvec![View::plain(shape)?]))
    }

    /// Makes a tracker of a chain of views, starting with the one that reads the buffer.
    /// # Errors
    /// [`Error::NoViews`]; [`Error::Stack`] if a view reads elements that the one below does not
    /// have.
    pub fn from_views(views: &[View<D>]) -> Result<ShapeTracker<D>, Error> {
        if views.is_empty() {
            return Err(Error::NoViews);
        }
        for pair in views.windows(2) {
            check_stack(&pair[0], &pair[1])?;
        }
        Ok(ShapeTracker(views.into()))
    }

    /// Returns the views, starting with the one that reads the buffer.
    pub fn views(&self) -> &[View<D>] {
        &self.0
    }

    /// Returns the size of each axis.
    pub fn shape(&self) -> &[D] {
        &self.last().shape
    }

    /// Returns the number of elements.
    pub fn size(&self) -> D {
        self.last().size()
    }

    /// Returns whether element `i` in row-major order is element `i` of the buffer.
    pub fn is_contiguous(&self) -> bool {
        self.0.len() == 1 && self.last().contiguous
    }

    /// Reshapes the tracker: the same elements in row-major order. Adds a view if the last one
    /// cannot be reshaped.
    /// # Errors
    /// Those of [`View::reshape`].
    pub fn reshape(&self, to: &[D]) -> Result<ShapeTracker<D>, Error> {
        match self.last().reshape(to)? {
            Some(view) => Ok(self.with_last(view)),
            None => self.append(to),
        }
    }

    /// Permutes the axes: axis `i` of the result is axis `axes[i]`.
    /// # Errors
    /// Those of [`View::permute`].
    pub fn permute(&self, axes: &[usize]) -> Result<ShapeTracker<D>, Error> {
        Ok(self.with_last(self.last().permute(axes)?))
    }

    /// Repeats axes of size 1, so that the shape becomes `to`, which has the same rank.
    /// # Errors
    /// Those of [`View::expand`].
    pub fn expand(&self, to: &[D]) -> Result<ShapeTracker<D>, Error> {
        Ok(self.with_last(self.last().expand(to)?))
    }

    /// Pads each axis with zeros; `amounts` has their counts (before, after).
    /// # Errors
    /// Those of [`View::pad`].
    pub fn pad(&self, amounts: &[(D, D)]) -> Result<ShapeTracker<D>, Error> {
        Ok(self.with_last(self.last().pad(amounts)?))
    }

    /// Keeps the half-open range (begin, end) of each axis.
    /// # Errors
    /// Those of [`View::shrink`].
    pub fn shrink(&self, bounds: &[(D, D)]) -> Result<ShapeTracker<D>, Error> {
        match self.last().shrink(bounds) {
            Ok(view) => Ok(self.with_last(view)),
            Err(Error::Undecided { .. }) => self.append(self.shape())?.shrink(bounds),
            Err(error) => Err(error),
        }
    }

    /// Reverses the flagged axes.
    /// # Errors
    /// Those of [`View::flip`].
    pub fn flip(&self, axes: &[bool]) -> Result<ShapeTracker<D>, Error> {
        Ok(self.with_last(self.last().flip(axes)?))
    }

    /// Applies a movement op. Without `merge` every reshape adds a view (tinygrad's
    /// `MERGE_VIEW=0`).
    /// # Errors
    /// Those of the op's own method.
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

    /// Composes `top` with `self`: where `top` maps its element `i` to index `j`, the result maps
    /// element `i` to whatever `self` maps its element `j` to.
    /// # Errors
    /// [`Error::Stack`] if `top` reads beyond the elements of `self`.
    pub fn compose(&self, top: &ShapeTracker<D>) -> Result<ShapeTracker<D>, Error> {
        check_stack(self.last(), &top.0[0])?;
        if self.is_contiguous() && top.0.len() == 1 {
            return Ok(top.clone());
        }
        let mut views = self.0.clone();
        for view in &top.0 {
            // Views merge better if they are added one at a time.
            views.push(view.clone());
            merge(&mut views);
        }
        canonicalize_all(&mut views);
        Ok(ShapeTracker(views))
    }

    /// Merges adjacent views while that is possible, and canonicalizes the remaining ones. Trackers
    /// that map the same elements to the same indices nearly always become equal.
    pub fn simplify(&self) -> ShapeTracker<D> {
        let mut simple = self.merged();
        canonicalize_all(&mut simple.0);
        simple
    }

    /// Merges adjacent views like `simplify`, without canonicalizing.
    pub(crate) fn merged(&self) -> ShapeTracker<D> {
        let mut merged = self.clone();
        merge(&mut merged.0);
        merged
    }

    /// Returns the inverse: a tracker of shape `to` that maps each element of the buffer to the
    /// element of `self` that reads it. `None` unless `self` reads every element of the buffer
    /// exactly once.
    pub fn invert(&self, to: &[D]) -> Option<ShapeTracker<D>> {
        let mut inverted = Views::with_capacity(self.0.len());
        for (position, view) in self.0.iter().enumerate().rev() {
            let below = if position == 0 { to } else { &self.0[position - 1].shape };
            inverted.push(view.invert(below)?);
        }
        ShapeTracker(inverted).reshape(to).ok()
    }

    /// Returns a tracker of the same elements in row-major order, whose last view has as few axes
    /// as possible.
    pub fn minify(&self) -> ShapeTracker<D> {
        self.with_last(self.last().minify())
    }

    /// Returns one more than the highest buffer index that the first view reads; 0 if it reads
    /// none.
    ///
    /// # Panics
    /// If the sign of a stride of the first view is unknown, which movements cannot cause.
    pub fn real_size(&self) -> D {
        if self.last().is_empty() {
            return D::number(0);
        }
        match self.0[0].span() {
            Span::Empty => D::number(0),
            Span::Range(_, high) => {
                high.plus(&D::number(1)).expect("the highest index plus one fits")
            }
            Span::Unknown => panic!("the sign of a stride of {self} is unknown"),
        }
    }

    /// Returns whether the first view is proven to read only elements of a buffer of this size.
    pub fn is_inside(&self, size: &D) -> bool {
        match self.0[0].span() {
            Span::Empty => true,
            Span::Range(low, high) => D::number(0).at_most(&low) && high.below(size),
            Span::Unknown => false,
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

    /// Adds a row-major view of this shape, which has as many elements as the last one.
    fn append(&self, shape: &[D]) -> Result<ShapeTracker<D>, Error> {
        let view = View::plain(shape)?;
        assert!(count(shape)? == self.size(), "the view on top has the elements of the one below");
        let mut views = self.0.clone();
        views.push(view);
        Ok(ShapeTracker(views))
    }
}

/// Merges pairs of views, starting with the last one, while that is possible.
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

/// Canonicalizes views that cannot be merged.
fn canonicalize_all<D: Dim>(views: &mut Views<D>) {
    if views.len() == 1 {
        return;
    }
    // Pairs that are canonical, by the index of the lower view.
    let mut canonical: SmallVec<[Views<D>; 2]> = SmallVec::from_elem(Views::new(), views.len());
    // Each iteration but the last changes a view.
    for _ in 0..2 * views.len() {
        let mut is_unchanged = true;
        for low in (0..views.len() - 1).rev() {
            // Canonicalizing may bring axes next to each other that the next attempt merges. Nearly
            // always the second attempt changes nothing.
            for _ in 0..4 {
                let pair = &mut views[low..low + 2];
                if *canonical[low] == *pair {
                    break;
                }
                match canonicalize(&pair[1], &pair[0]) {
                    Some((top, base)) => {
                        (pair[1], pair[0]) = (top, base);
                        is_unchanged = false;
                    }
                    None => canonical[low] = Views::from(&*pair),
                }
            }
        }
        if is_unchanged {
            break;
        }
        merge(views);
    }
}

/// Checks that `above` reads only elements that `below` has.
fn check_stack<D: Dim>(below: &View<D>, above: &View<D>) -> Result<(), Error> {
    let size = below.size();
    let error = |low: &str, high: &str| {
        Err(Error::Stack { low: low.to_string(), high: high.to_string(), size: size.to_string() })
    };
    match above.span() {
        Span::Empty => Ok(()),
        Span::Range(low, high) if D::number(0).at_most(&low) && high.below(&size) => Ok(()),
        Span::Range(low, high) => error(&low.to_string(), &high.to_string()),
        Span::Unknown => error("unknown", "unknown"),
    }
}

impl<D: Dim> std::fmt::Display for ShapeTracker<D> {
    /// Formats the tracker like tinygrad: `ShapeTracker(views=(View(...), View(...)))`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ShapeTracker(views=")?;
        crate::view::tuple(f, &self.0, |f, view| write!(f, "{view}"))?;
        write!(f, ")")
    }
}
