//! A chain of views: the first reads the buffer, each further one reads the row-major elements of
//! the one below.

use std::sync::Arc;

use crate::view::count;
use crate::{Error, Movement, View};

/// Where each element of a shape lies in a buffer, or that it is padding. Immutable, cheap to
/// clone.
#[derive(Clone, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct ShapeTracker(Arc<[View]>);

impl ShapeTracker {
    /// The buffer itself under a shape, in row-major order.
    /// # Errors
    /// [`Error::NegativeSize`] and [`Error::TooLarge`].
    pub fn from_shape(shape: &[i64]) -> Result<ShapeTracker, Error> {
        Ok(ShapeTracker(Arc::new([View::create(shape, None, 0, None)?])))
    }

    /// A chain of views, the one that reads the buffer first.
    /// # Errors
    /// [`Error::NoViews`]; [`Error::Stack`] if a view reads what the one below does not have.
    pub fn from_views(views: &[View]) -> Result<ShapeTracker, Error> {
        if views.is_empty() {
            return Err(Error::NoViews);
        }
        for pair in views.windows(2) {
            check_stack(&pair[0], &pair[1])?;
        }
        Ok(ShapeTracker(views.into()))
    }

    /// The views, the one that reads the buffer first.
    pub fn views(&self) -> &[View] {
        &self.0
    }

    /// Size of each axis.
    pub fn shape(&self) -> &[i64] {
        &self.last().shape
    }

    /// Number of elements.
    pub fn size(&self) -> i64 {
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
    pub fn reshape(&self, to: &[i64]) -> Result<ShapeTracker, Error> {
        match self.last().reshape(to)? {
            Some(view) => Ok(self.with_last(view)),
            None => self.append(to),
        }
    }

    /// Puts axis `axes[i]` in place `i`.
    /// # Errors
    /// As [`View::permute`].
    pub fn permute(&self, axes: &[usize]) -> Result<ShapeTracker, Error> {
        Ok(self.with_last(self.last().permute(axes)?))
    }

    /// Repeats axes of size 1.
    /// # Errors
    /// As [`View::expand`].
    pub fn expand(&self, to: &[i64]) -> Result<ShapeTracker, Error> {
        Ok(self.with_last(self.last().expand(to)?))
    }

    /// Puts zeros (before, after) each axis.
    /// # Errors
    /// As [`View::pad`].
    pub fn pad(&self, amounts: &[(i64, i64)]) -> Result<ShapeTracker, Error> {
        Ok(self.with_last(self.last().pad(amounts)?))
    }

    /// Keeps the half-open (begin, end) of each axis.
    /// # Errors
    /// As [`View::shrink`].
    pub fn shrink(&self, bounds: &[(i64, i64)]) -> Result<ShapeTracker, Error> {
        Ok(self.with_last(self.last().shrink(bounds)?))
    }

    /// Turns the flagged axes around.
    /// # Errors
    /// As [`View::flip`].
    pub fn flip(&self, axes: &[bool]) -> Result<ShapeTracker, Error> {
        Ok(self.with_last(self.last().flip(axes)?))
    }

    /// Carries out one movement op. Without `merge` every reshape adds a view (tinygrad's
    /// `MERGE_VIEW=0`).
    /// # Errors
    /// As the op's own method.
    pub fn apply(&self, movement: &Movement, merge: bool) -> Result<ShapeTracker, Error> {
        match movement {
            Movement::Reshape(to) if !merge => {
                self.last().reshape(to)?;
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
    pub fn compose(&self, top: &ShapeTracker) -> Result<ShapeTracker, Error> {
        check_stack(self.last(), &top.0[0])?;
        let mut views = self.0.to_vec();
        for view in top.views() {
            // One view at a time merges better.
            views.push(view.clone());
            simplify(&mut views);
        }
        Ok(ShapeTracker(views.into()))
    }

    /// Merges neighbouring views for as long as any two can be one.
    pub fn simplify(&self) -> ShapeTracker {
        if self.0.len() == 1 {
            return self.clone();
        }
        let mut views = self.0.to_vec();
        if simplify(&mut views) { ShapeTracker(views.into()) } else { self.clone() }
    }

    /// The way back: a tracker of shape `to` over this one's elements that puts each buffer element
    /// in place. `None` unless every element of a buffer of that shape appears exactly once.
    pub fn invert(&self, to: &[i64]) -> Option<ShapeTracker> {
        let mut inverted = Vec::with_capacity(self.0.len());
        for (position, view) in self.0.iter().enumerate().rev() {
            let below = if position == 0 { to } else { &self.0[position - 1].shape };
            inverted.push(view.invert(below)?);
        }
        ShapeTracker(inverted.into()).reshape(to).ok()
    }

    /// The same elements in row-major order with as few axes as the last view can have.
    pub fn minify(&self) -> ShapeTracker {
        self.with_last(self.last().minify())
    }

    /// Number of buffer elements from the first up to the highest that the first view reads.
    pub fn real_size(&self) -> i64 {
        if self.size() == 0 {
            return 0;
        }
        self.0[0].span().map_or(0, |(_, high)| high + 1)
    }

    pub(crate) fn last(&self) -> &View {
        &self.0[self.0.len() - 1]
    }

    fn with_last(&self, view: View) -> ShapeTracker {
        let below = &self.0[..self.0.len() - 1];
        if below.is_empty() {
            return ShapeTracker(Arc::new([view]));
        }
        ShapeTracker(below.iter().cloned().chain(std::iter::once(view)).collect())
    }

    fn append(&self, shape: &[i64]) -> Result<ShapeTracker, Error> {
        let view = View::create(shape, None, 0, None)?;
        assert!(count(shape)? == self.size(), "the view on top has the elements of the one below");
        Ok(ShapeTracker(self.0.iter().cloned().chain(std::iter::once(view)).collect()))
    }
}

/// Merges pairs, the last first, until none can; whether any did. Each merge takes one view away.
fn simplify(views: &mut Vec<View>) -> bool {
    let mut changed = false;
    let mut top = views.len();
    while top > 1 {
        top -= 1;
        if let Some(merged) = views[top].merge(&views[top - 1]) {
            views[top - 1] = merged;
            views.remove(top);
            changed = true;
            top = views.len();
        }
    }
    changed
}

fn check_stack(below: &View, above: &View) -> Result<(), Error> {
    let size = below.size();
    match above.span() {
        Some((low, high)) if low < 0 || size <= high => Err(Error::Stack { low, high, size }),
        _ => Ok(()),
    }
}

impl std::fmt::Display for ShapeTracker {
    /// tinygrad's spelling: `ShapeTracker(views=(View(...), View(...)))`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ShapeTracker(views=")?;
        crate::view::tuple(f, &self.0, |f, view| write!(f, "{view}"))?;
        write!(f, ")")
    }
}
