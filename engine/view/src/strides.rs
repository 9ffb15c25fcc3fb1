//! What can be said of an axis without expressions: real strides, and whether it is masked.
//! Cautious: where the walk through several views cannot be followed, an axis has no stride and
//! counts as masked.

use smallvec::SmallVec;

use crate::merge::Projection;
use crate::view::Sizes;
use crate::{ShapeTracker, View};

/// How the buffer index depends on each axis of a tracker.
struct Walk {
    strides: Sizes,
    /// The index does not depend on this axis by a stride.
    uneven: SmallVec<[bool; 8]>,
    masked: SmallVec<[bool; 8]>,
}

impl ShapeTracker {
    /// Buffer elements for one step along each axis. `None` where steps differ or, unless
    /// `ignore_valid`, where being real depends on the axis; also where this cannot be told.
    pub fn real_strides(&self, ignore_valid: bool) -> Vec<Option<i64>> {
        let walk = self.walk();
        let known = |axis: usize| !walk.uneven[axis] && (ignore_valid || !walk.masked[axis]);
        walk.strides.iter().enumerate().map(|(axis, &s)| known(axis).then_some(s)).collect()
    }

    /// The axes whose real stride is 1.
    pub fn unit_stride_axes(&self, ignore_valid: bool) -> Vec<usize> {
        let strides = self.real_strides(ignore_valid).into_iter().enumerate();
        strides.filter(|&(_, stride)| stride == Some(1)).map(|(axis, _)| axis).collect()
    }

    /// Whether being real may depend on the position along `axis`; never false where it does.
    /// # Panics
    /// If there is no such axis.
    pub fn axis_is_masked(&self, axis: usize) -> bool {
        assert!(axis < self.shape().len(), "axis {axis} of a shape of rank {}", self.shape().len());
        self.walk().masked[axis]
    }

    fn walk(&self) -> Walk {
        let simple = self.simplify();
        let last = simple.last();
        let rank = last.shape.len();
        let mut walk = Walk {
            strides: Sizes::from_slice(&last.strides),
            uneven: SmallVec::from_elem(false, rank),
            masked: SmallVec::from_elem(false, rank),
        };
        // Only the real part matters: what lies outside it is already told by the mask.
        let bounds: SmallVec<[(i64, i64); 4]> = match &last.mask {
            None => last.shape.iter().map(|&size| (0, size)).collect(),
            Some(mask) => mask.clone(),
        };
        if simple.views().iter().any(|view| view.span().is_none()) {
            walk.strides.fill(0);
            return walk;
        }
        for (axis, &pair) in bounds.iter().enumerate() {
            walk.masked[axis] = pair != (0, last.shape[axis]);
        }
        let counts: Sizes = bounds.iter().map(|&(begin, end)| end - begin).collect();
        let first = bounds.iter().zip(&last.strides).map(|(&(begin, _), &stride)| begin * stride);
        let mut first = last.offset + first.sum::<i64>();
        let below = &simple.views()[..simple.views().len() - 1];
        for view in below.iter().rev().filter(|view| !view.is_contiguous()) {
            first = walk.through(&view.minify(), first, &counts);
        }
        walk
    }
}

impl Walk {
    /// Follows the walk through the view below; gives the buffer index of the first element there.
    fn through(&mut self, view: &View, first: i64, counts: &[i64]) -> i64 {
        let masked = view.mask.is_some();
        if self.uneven.contains(&true) {
            for axis in 0..counts.len() {
                self.blur(axis, self.strides[axis] != 0 || self.uneven[axis], masked);
            }
            return first;
        }
        let moving: Sizes = self
            .strides
            .iter()
            .zip(counts)
            .map(|(&s, &count)| if count > 1 { s } else { 0 })
            .collect();
        let projection = Projection::new(&view.shape, first, &moving);
        self.strides.fill(0);
        let mut offset = view.offset;
        for (begin, end, whole) in projection.groups(&view.shape, counts) {
            for base_axis in begin..end {
                let stride = view.strides[base_axis];
                let pair = view.mask.as_ref().map(|mask| mask[base_axis]);
                offset += projection.origin[base_axis] * stride;
                let even = whole && end - begin == 1;
                let (low, high) = projection.extent(base_axis, counts);
                let inside =
                    even && pair.is_some_and(|(b, e)| i128::from(b) <= low && high < i128::from(e));
                for axis in 0..counts.len() {
                    let step = projection.row(base_axis)[axis];
                    let used = (begin..end).any(|other| projection.row(other)[axis] != 0);
                    if even {
                        self.strides[axis] += step * stride;
                        self.masked[axis] |= used && masked && !inside;
                    } else {
                        self.blur(axis, used, masked);
                    }
                }
            }
        }
        offset
    }

    fn blur(&mut self, axis: usize, used: bool, masked: bool) {
        self.uneven[axis] |= used;
        self.masked[axis] |= used && masked;
    }
}
