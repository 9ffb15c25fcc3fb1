//! The real stride of each axis, and whether it is masked, without index expressions. The result is
//! conservative: if the composition of several views is not decided, an axis has no stride and
//! counts as masked.

use smallvec::SmallVec;

use crate::dim::{Sizes, add_product, zeros};
use crate::merge::Projection;
use crate::{Dim, ShapeTracker, View};

/// The strides and masks of all axes of a tracker, computed at once.
pub struct AxisStrides<D> {
    strides: Sizes<D>,
    /// True if the index does not depend on the axis by a constant stride.
    uneven: SmallVec<[bool; 8]>,
    masked: SmallVec<[bool; 8]>,
}

impl<D: Dim> ShapeTracker<D> {
    /// Returns the stride of each axis in the buffer. `None` if it is not constant or not decided
    /// or, unless `ignore_valid`, if the axis is masked.
    pub fn real_strides(&self, ignore_valid: bool) -> Vec<Option<D>> {
        let strides = self.axis_strides();
        let stride = |axis| strides.real_stride(axis, ignore_valid).cloned();
        (0..self.shape().len()).map(stride).collect()
    }

    /// Returns the axes whose real stride is 1.
    pub fn unit_stride_axes(&self, ignore_valid: bool) -> Vec<usize> {
        let strides = self.axis_strides();
        let stride = |axis: usize| strides.real_stride(axis, ignore_valid);
        let is_unit = |axis: &usize| stride(*axis).is_some_and(|stride| stride.is(1));
        (0..self.shape().len()).filter(is_unit).collect()
    }

    /// Returns whether an axis may be masked: whether an element is real may depend on its index
    /// there. Never false if it does.
    /// # Panics
    /// If there is no such axis.
    pub fn axis_is_masked(&self, axis: usize) -> bool {
        assert!(axis < self.shape().len(), "axis {axis} of a shape of rank {}", self.shape().len());
        self.axis_strides().is_masked(axis)
    }

    /// Computes the results of `real_strides` and `axis_is_masked` for all axes.
    pub fn axis_strides(&self) -> AxisStrides<D> {
        let simple = self.merged();
        let last = simple.last();
        let rank = last.shape.len();
        let mut walk = AxisStrides {
            strides: D::copied(&last.strides),
            uneven: SmallVec::from_elem(false, rank),
            masked: SmallVec::from_elem(false, rank),
        };
        if simple.views().iter().any(|view| view.is_padding() || view.is_empty()) {
            walk.strides.fill(D::number(0));
            return walk;
        }
        if let Some(mask) = last.mask() {
            for ((masked, (begin, end)), size) in walk.masked.iter_mut().zip(mask).zip(&last.shape)
            {
                *masked = !(begin.is(0) && end == size);
            }
        }
        let below = &simple.views()[..simple.views().len() - 1];
        if below.is_empty() {
            return walk;
        }
        // Only the real part matters, as the mask covers the other elements.
        let bounds = last.real_box();
        let counts = bounds.iter().map(|(begin, end)| end.minus(begin)).collect();
        let mut first = bounds
            .iter()
            .zip(&last.strides)
            .try_fold(last.offset.clone(), |sum, (pair, stride)| {
                add_product(&sum, &pair.0, stride)
            });
        let counts: Option<Sizes<D>> = counts;
        for view in below.iter().rev().filter(|view| !view.is_contiguous()) {
            let known = first.as_ref().zip(counts.as_ref());
            first = known.and_then(|(first, counts)| walk.through(&view.minify(), first, counts));
            if first.is_none() {
                // Nothing is known of the views below.
                let masked = below.iter().any(|view| view.mask().is_some());
                (0..rank).for_each(|axis| walk.blur(axis, true, masked));
                return walk;
            }
        }
        walk
    }
}

impl<D: Dim> AxisStrides<D> {
    /// Returns [`ShapeTracker::real_strides`] of one axis.
    /// # Panics
    /// If there is no such axis.
    pub fn real_stride(&self, axis: usize, ignore_valid: bool) -> Option<&D> {
        let is_known = !self.uneven[axis] && (ignore_valid || !self.masked[axis]);
        is_known.then(|| &self.strides[axis])
    }

    /// Returns [`ShapeTracker::axis_is_masked`].
    /// # Panics
    /// If there is no such axis.
    pub fn is_masked(&self, axis: usize) -> bool {
        self.masked[axis]
    }

    /// Composes the strides with the view below; returns the buffer index of the first element
    /// there, or `None` if that is not decided.
    fn through(&mut self, view: &View<D>, first: &D, counts: &[D]) -> Option<D> {
        let is_masked = view.mask().is_some();
        if self.uneven.contains(&true) {
            for axis in 0..counts.len() {
                self.blur(axis, !self.strides[axis].is(0) || self.uneven[axis], is_masked);
            }
            return Some(first.clone());
        }
        let moves = |(stride, count): (&D, &D)| {
            if count.is(1) { D::number(0) } else { stride.clone() }
        };
        let moving: Sizes<D> = self.strides.iter().zip(counts).map(moves).collect();
        let projection = Projection::new(&view.shape, first, &moving)?;
        self.strides = zeros(counts.len());
        let mut offset = view.offset.clone();
        for group in projection.groups(&view.shape, counts) {
            let is_even = group.is_closed && group.end - group.begin == 1;
            for base_axis in group.begin..group.end {
                let stride = &view.strides[base_axis];
                offset = add_product(&offset, &projection.origin[base_axis], stride)?;
                let is_inside = is_even
                    && view.mask().is_some_and(|mask| {
                        let (begin, end) = &mask[base_axis];
                        let extent = projection.extent(base_axis, counts);
                        extent.is_some_and(|(low, high)| begin.at_most(&low) && high.below(end))
                    });
                for axis in 0..counts.len() {
                    let base_stride = &projection.row(base_axis)[axis];
                    let mut axes_of_group = group.begin..group.end;
                    let is_used = axes_of_group.any(|row| !projection.row(row)[axis].is(0));
                    if is_even {
                        self.strides[axis] = add_product(&self.strides[axis], base_stride, stride)?;
                        self.masked[axis] |= is_used && is_masked && !is_inside;
                    } else {
                        self.blur(axis, is_used, is_masked);
                    }
                }
            }
        }
        Some(offset)
    }

    /// Marks an axis as uneven, if it is used, and as masked, if the view is.
    fn blur(&mut self, axis: usize, is_used: bool, is_masked: bool) {
        self.uneven[axis] |= is_used;
        self.masked[axis] |= is_used && is_masked;
    }
}
