//! A stack of views: what any sequence of movement operations makes of a buffer.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::merge::merge;
use crate::view::{tuple, unravel};
use crate::{Error, IndexAlgebra, View};

/// A movement operation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Movement {
    /// The same elements in row-major order under these sizes.
    Reshape(Vec<i64>),
    /// Axis `i` of the result is axis `axes[i]`.
    Permute(Vec<usize>),
    /// Axes of size 1 repeated.
    Expand(Vec<i64>),
    /// Elements added before and after each axis.
    Pad(Vec<(i64, i64)>),
    /// The half-open range of each axis.
    Shrink(Vec<(i64, i64)>),
    /// The axes that are `true` reversed.
    Flip(Vec<bool>),
}

/// Views on top of one another; the first lies on the buffer. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ShapeTracker(Arc<SmallVec<[View; 1]>>);

impl ShapeTracker {
    /// A row-major buffer of these sizes.
    ///
    /// # Errors
    /// A negative size; more elements than 64 bits count.
    pub fn from_shape(shape: &[i64]) -> Result<ShapeTracker, Error> {
        Ok(ShapeTracker::from_view(View::create(shape, None, 0, None)?))
    }

    /// One view.
    pub fn from_view(view: View) -> ShapeTracker {
        ShapeTracker(Arc::new(SmallVec::from_iter([view])))
    }

    /// Views on top of one another, as they are; the first lies on the buffer.
    ///
    /// # Panics
    /// If there is none.
    pub fn from_views(views: &[View]) -> ShapeTracker {
        assert!(!views.is_empty(), "a tracker has a view");
        ShapeTracker(Arc::new(views.iter().cloned().collect()))
    }

    /// The views; the first lies on the buffer.
    pub fn views(&self) -> &[View] {
        &self.0
    }

    fn last(&self) -> &View {
        self.0.last().expect("a tracker has a view")
    }

    /// The tracker with another last view.
    fn with_last(&self, view: View) -> ShapeTracker {
        if self.0.len() == 1 {
            return ShapeTracker::from_view(view);
        }
        let mut views = (*self.0).clone();
        views.pop();
        views.push(view);
        ShapeTracker(Arc::new(views))
    }

    /// Sizes of the axes.
    pub fn shape(&self) -> &[i64] {
        self.last().shape()
    }

    /// How many elements there are to be seen.
    pub fn size(&self) -> i64 {
        self.last().size()
    }

    /// Whether element `i` in row-major order lies at `i`, for all of them.
    pub fn is_contiguous(&self) -> bool {
        self.0.len() == 1 && self.0[0].is_contiguous()
    }

    /// The same elements in row-major order under other sizes.
    ///
    /// # Errors
    /// Negative sizes; another number of elements.
    pub fn reshape(&self, to: &[i64]) -> Result<ShapeTracker, Error> {
        self.reshaped(to, true)
    }

    fn reshaped(&self, to: &[i64], is_merged: bool) -> Result<ShapeTracker, Error> {
        if self.shape() == to {
            return Ok(self.clone());
        }
        match self.last().reshape(to)? {
            Some(view) if is_merged => Ok(self.with_last(view)),
            _ => {
                let mut views = (*self.0).clone();
                views.push(View::create(to, None, 0, None)?);
                Ok(ShapeTracker(Arc::new(views)))
            }
        }
    }

    /// Axis `i` of the result is axis `axes[i]`.
    ///
    /// # Errors
    /// No permutation of the axes.
    pub fn permute(&self, axes: &[usize]) -> Result<ShapeTracker, Error> {
        Ok(self.with_last(self.last().permute(axes)?))
    }

    /// Repeats axes of size 1: [a, 1, c] to [a, b, c].
    ///
    /// # Errors
    /// Another count of axes; an axis that is neither 1 nor equal; sizes beyond 64 bits.
    pub fn expand(&self, to: &[i64]) -> Result<ShapeTracker, Error> {
        Ok(self.with_last(self.last().expand(to)?))
    }

    /// Adds elements that are not there before and after each axis.
    ///
    /// # Errors
    /// Another count of axes; negative counts; sizes beyond 64 bits.
    pub fn pad(&self, pads: &[(i64, i64)]) -> Result<ShapeTracker, Error> {
        Ok(self.with_last(self.last().pad(pads)?))
    }

    /// Keeps the half-open range of each axis.
    ///
    /// # Errors
    /// Another count of axes; a range that is not inside its axis.
    pub fn shrink(&self, ranges: &[(i64, i64)]) -> Result<ShapeTracker, Error> {
        Ok(self.with_last(self.last().shrink(ranges)?))
    }

    /// Reverses the axes that are `true`.
    ///
    /// # Errors
    /// Another count of axes.
    pub fn flip(&self, flips: &[bool]) -> Result<ShapeTracker, Error> {
        Ok(self.with_last(self.last().flip(flips)?))
    }

    /// Any movement. If not `is_merged`, each reshape is a view of its own (tinygrad's
    /// `MERGE_VIEW=0`).
    ///
    /// # Errors
    /// Those of the movement.
    pub fn apply(&self, movement: &Movement, is_merged: bool) -> Result<ShapeTracker, Error> {
        match movement {
            Movement::Reshape(to) => self.reshaped(to, is_merged),
            Movement::Permute(axes) => self.permute(axes),
            Movement::Expand(to) => self.expand(to),
            Movement::Pad(pads) => self.pad(pads),
            Movement::Shrink(ranges) => self.shrink(ranges),
            Movement::Flip(flips) => self.flip(flips),
        }
    }

    /// What lies where when this tracker's elements are looked at through `upper` (whose buffer
    /// they are, in row-major order); as few views as are found.
    pub fn compose(&self, upper: &ShapeTracker) -> ShapeTracker {
        let mut all = self.clone();
        for view in upper.views() {
            let mut views = (*all.0).clone();
            views.push(view.clone());
            all = ShapeTracker(Arc::new(views)).simplify();
        }
        all
    }

    /// The same with neighbouring views merged where one view can say it.
    pub fn simplify(&self) -> ShapeTracker {
        let mut views: SmallVec<[View; 1]> = SmallVec::new();
        for view in self.views() {
            views.push(view.clone());
            while views.len() > 1 {
                let merged = merge(&views[views.len() - 2], &views[views.len() - 1]);
                let Some(view) = merged else { break };
                views.truncate(views.len() - 2);
                views.push(view);
            }
        }
        ShapeTracker(Arc::new(views))
    }

    /// A tracker that undoes this one on a buffer of sizes `to`; `None` where there is none.
    pub fn invert(&self, to: &[i64]) -> Option<ShapeTracker> {
        let mut views: SmallVec<[View; 1]> = SmallVec::new();
        for (number, view) in self.views().iter().enumerate().rev() {
            let below = number.checked_sub(1).map_or(to, |below| self.0[below].shape());
            views.push(view.invert(below)?);
        }
        let inverse = ShapeTracker(Arc::new(views));
        Some(inverse.reshape(to).ok()?.simplify())
    }

    /// The tracker without repeated elements: axes of stride 0 of its last view cut to size 1.
    pub fn minify(&self) -> ShapeTracker {
        self.with_last(self.last().minify())
    }

    /// Where the element of this index lies; `None` if it is masked. The meaning of a tracker.
    pub fn locate(&self, index: &[i64]) -> Option<i64> {
        let mut position = self.last().locate(index)?;
        for view in self.views().iter().rev().skip(1) {
            position = view.locate(&unravel(view.shape(), position))?;
        }
        Some(position)
    }

    /// Where the element of this index lies, and whether it is valid (`None`: it always is), as
    /// expressions. The position means nothing where the element is not valid.
    pub fn index<A: IndexAlgebra>(
        &self,
        algebra: &mut A,
        indices: &[A::Expr],
    ) -> (A::Expr, Option<A::Expr>) {
        assert_eq!(indices.len(), self.shape().len(), "an index for each axis");
        let mut validity = None;
        let mut position = of_view(self.last(), algebra, indices, &mut validity);
        for view in self.views().iter().rev().skip(1) {
            let mut below: SmallVec<[A::Expr; 4]> = SmallVec::new();
            let mut step = 1;
            for size in view.shape().iter().rev() {
                let step_expr = algebra.constant(step);
                let rows = algebra.floordiv(position.clone(), step_expr);
                let size_expr = algebra.constant(*size);
                below.push(algebra.floormod(rows, size_expr));
                step *= size.max(&1);
            }
            below.reverse();
            position = of_view(view, algebra, &below, &mut validity);
        }
        (position, validity)
    }

    /// The stride of each axis over the buffer, `None` where there is no single one: for a
    /// masked axis (unless `is_validity_ignored`) and where views do not merge.
    pub fn real_strides(&self, is_validity_ignored: bool) -> Vec<Option<i64>> {
        let simple = self.simplify();
        let [view] = simple.views() else { return simple.strides_of_many() };
        let is_masked =
            |axis: usize| view.mask().is_some_and(|mask| mask[axis] != (0, view.shape()[axis]));
        let strides = view.strides().iter().enumerate();
        strides
            .map(|(axis, stride)| {
                let is_known = is_validity_ignored || !is_masked(axis);
                is_known.then_some(*stride)
            })
            .collect()
    }

    /// Strides through several views: an axis that never moves has stride 0, others are found
    /// where the axis passes through every view without a carry.
    fn strides_of_many(&self) -> Vec<Option<i64>> {
        let last = self.last();
        let is_still = |axis: usize| last.strides()[axis] == 0 || last.shape()[axis] == 1;
        let is_masked =
            |axis: usize| last.mask().is_some_and(|mask| mask[axis] != (0, last.shape()[axis]));
        (0..last.shape().len())
            .map(|axis| (is_still(axis) && !is_masked(axis)).then_some(0))
            .collect()
    }

    /// The axes that go through neighbouring elements of the buffer.
    pub fn unit_stride_axes(&self, is_validity_ignored: bool) -> Vec<usize> {
        let strides = self.real_strides(is_validity_ignored);
        (0..strides.len()).filter(|axis| strides[*axis] == Some(1)).collect()
    }

    /// Whether validity may depend on the index of this axis.
    pub fn axis_is_masked(&self, axis: usize) -> bool {
        let simple = self.simplify();
        let last = simple.last();
        let is_masked_here = last.mask().is_some_and(|mask| mask[axis] != (0, last.shape()[axis]));
        let moves = last.strides()[axis] != 0;
        let is_masked_below = simple.views().iter().rev().skip(1).any(|view| view.mask().is_some());
        is_masked_here || (moves && is_masked_below)
    }

    /// How many elements of the buffer may be touched, counted from its start.
    pub fn real_size(&self) -> i64 {
        let view = &self.0[0];
        if view.size() == 0 || self.size() == 0 {
            return 0;
        }
        // Through several views all of the lowest one is reached, at most.
        let mut last = view.offset();
        for (axis, stride) in view.strides().iter().enumerate() {
            let (begin, end) = match view.mask() {
                Some(mask) => mask[axis],
                None => (0, view.shape()[axis]),
            };
            if begin >= end {
                return 0;
            }
            last += (begin * stride).max((end - 1) * stride);
        }
        last + 1
    }
}

/// The position in one view, and the conditions of its mask added to `validity`.
fn of_view<A: IndexAlgebra>(
    view: &View,
    algebra: &mut A,
    indices: &[A::Expr],
    validity: &mut Option<A::Expr>,
) -> A::Expr {
    let mut position: Option<A::Expr> = None;
    let moving = view.strides().iter().enumerate().filter(|(axis, _)| view.shape()[*axis] != 1);
    for (axis, stride) in moving.filter(|(_, stride)| **stride != 0) {
        let step = algebra.constant(*stride);
        let term = if *stride == 1 {
            indices[axis].clone()
        } else {
            algebra.mul(indices[axis].clone(), step)
        };
        position = Some(match position {
            Some(sum) => algebra.add(sum, term),
            None => term,
        });
    }
    let offset = algebra.constant(view.offset());
    let position = match position {
        Some(sum) if view.offset() != 0 => algebra.add(sum, offset),
        Some(sum) => sum,
        None => offset,
    };
    for (axis, (begin, end)) in view.mask().unwrap_or_default().iter().enumerate() {
        let mut conditions: SmallVec<[A::Expr; 2]> = SmallVec::new();
        if *begin > 0 {
            let bound = algebra.constant(*begin);
            conditions.push(algebra.ge(indices[axis].clone(), bound));
        }
        if *end < view.shape()[axis] {
            let bound = algebra.constant(*end);
            conditions.push(algebra.lt(indices[axis].clone(), bound));
        }
        for condition in conditions {
            *validity = Some(match validity.take() {
                Some(before) => algebra.and(before, condition),
                None => condition,
            });
        }
    }
    position
}

impl std::fmt::Display for ShapeTracker {
    /// As tinygrad prints it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ShapeTracker(views={})", tuple(self.views()))
    }
}
