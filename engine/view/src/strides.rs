//! What can be said of an axis without expressions: real strides, and whether it is masked.
//! Cautious: where the walk through several views cannot be followed, an axis has no stride and
//! counts as masked.

use smallvec::SmallVec;

use crate::dim::{Sizes, add_product, zeros};
use crate::merge::Projection;
use crate::{Dim, ShapeTracker, View};

/// How the buffer index and being real depend on each axis of a tracker, all found in one walk.
pub struct Steps<D> {
    strides: Sizes<D>,
    /// The index does not depend on this axis by a stride.
    uneven: SmallVec<[bool; 8]>,
    masked: SmallVec<[bool; 8]>,
}

impl<D: Dim> ShapeTracker<D> {
    /// Buffer elements for one step along each axis. `None` where steps differ or, unless
    /// `ignore_valid`, where being real depends on the axis; also where this cannot be told.
    pub fn real_strides(&self, ignore_valid: bool) -> Vec<Option<D>> {
        let steps = self.steps();
        let stride = |axis| steps.real_stride(axis, ignore_valid).cloned();
        (0..self.shape().len()).map(stride).collect()
    }

    /// The axes whose real stride is 1.
    pub fn unit_stride_axes(&self, ignore_valid: bool) -> Vec<usize> {
        let steps = self.steps();
        let stride = |axis: usize| steps.real_stride(axis, ignore_valid);
        let is_unit = |axis: &usize| stride(*axis).is_some_and(|stride| stride.is(1));
        (0..self.shape().len()).filter(is_unit).collect()
    }

    /// Whether being real may depend on the position along `axis`; never false where it does.
    /// # Panics
    /// If there is no such axis.
    pub fn axis_is_masked(&self, axis: usize) -> bool {
        assert!(axis < self.shape().len(), "axis {axis} of a shape of rank {}", self.shape().len());
        self.steps().is_masked(axis)
    }

    /// What `real_strides` and `axis_is_masked` say of all axes.
    pub fn steps(&self) -> Steps<D> {
        let simple = self.merged();
        let last = simple.last();
        let rank = last.shape.len();
        let mut walk = Steps {
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
        // Only the real part matters: what lies outside it is already told by the mask.
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
                // Nothing is known of the way from here on.
                let masked = below.iter().any(|view| view.mask().is_some());
                (0..rank).for_each(|axis| walk.blur(axis, true, masked));
                return walk;
            }
        }
        walk
    }
}

impl<D: Dim> Steps<D> {
    /// `ShapeTracker::real_strides` of one axis.
    /// # Panics
    /// If there is no such axis.
    pub fn real_stride(&self, axis: usize, ignore_valid: bool) -> Option<&D> {
        let is_known = !self.uneven[axis] && (ignore_valid || !self.masked[axis]);
        is_known.then(|| &self.strides[axis])
    }

    /// `ShapeTracker::axis_is_masked`.
    /// # Panics
    /// If there is no such axis.
    pub fn is_masked(&self, axis: usize) -> bool {
        self.masked[axis]
    }

    /// Follows the walk through the view below; gives the buffer index of the first element there,
    /// or `None` if it cannot be followed.
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
                    let step = &projection.row(base_axis)[axis];
                    let mut group = group.begin..group.end;
                    let is_used = group.any(|other| !projection.row(other)[axis].is(0));
                    if is_even {
                        self.strides[axis] = add_product(&self.strides[axis], step, stride)?;
                        self.masked[axis] |= is_used && is_masked && !is_inside;
                    } else {
                        self.blur(axis, is_used, is_masked);
                    }
                }
            }
        }
        Some(offset)
    }

    fn blur(&mut self, axis: usize, is_used: bool, is_masked: bool) {
        self.uneven[axis] |= is_used;
        self.masked[axis] |= is_used && is_masked;
    }
}
