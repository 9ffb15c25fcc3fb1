//! Two views as one: what lies where when a view is looked at through another.

use smallvec::SmallVec;

use crate::View;
use crate::fault::{Fault, is_active};
use crate::view::{Axes, Ranges, unravel};

/// A sum of indices of the upper view times steps, plus a start; and its smallest and largest
/// value over all indices.
#[derive(Clone)]
struct Linear {
    start: i64,
    terms: SmallVec<[(usize, i64); 4]>,
}

impl Linear {
    fn bounds(&self, shape: &[i64]) -> (i64, i64) {
        let mut bounds = (self.start, self.start);
        for (axis, step) in &self.terms {
            let reach = step * (shape[*axis] - 1);
            bounds = (bounds.0 + reach.min(0), bounds.1 + reach.max(0));
        }
        bounds
    }

    /// `self + other * factor`.
    fn plus(mut self, other: &Linear, factor: i64) -> Linear {
        self.start += other.start * factor;
        for (axis, step) in &other.terms {
            match self.terms.iter_mut().find(|(known, _)| known == axis) {
                Some((_, known)) => *known += step * factor,
                None => self.terms.push((*axis, step * factor)),
            }
        }
        self.terms.retain(|(_, step)| *step != 0);
        self
    }
}

/// `upper` seen through `base`: element `i` of the result is the element of the buffer under
/// `base` that the flat position of element `i` of `upper` names. `None` where one view cannot
/// say it, or where it was not found.
pub(crate) fn merge(base: &View, upper: &View) -> Option<View> {
    if base.is_contiguous() {
        return Some(upper.clone());
    }
    if upper.is_contiguous() {
        if upper.shape() == base.shape() {
            return Some(base.clone());
        }
        if upper.size() == base.size()
            && let Ok(Some(view)) = base.reshape(upper.shape())
        {
            return Some(view);
        }
    }
    if base.size() == 0 || upper.size() == 0 {
        return None;
    }
    if let Some(mask) = upper.mask() {
        return merge_masked(base, upper, mask);
    }
    let steps = steps(base, upper);
    let extents = extents(base.shape(), &steps, upper.shape())?;
    let shape: Axes = extents.iter().map(|(size, _)| *size).collect();
    if shape.as_slice() != base.shape() {
        // Axes of the base that only make sense together become one.
        let view = base.reshape(&shape).ok().flatten()?;
        return if view.shape() == base.shape() { None } else { merge(&view, upper) };
    }
    if let Some(mask) = base.mask() {
        match masked_by(upper, mask, &steps)? {
            Some(narrow) => return merge(base, &narrow),
            None => {}
        }
    }
    let mut strides: Axes = SmallVec::from_elem(0, upper.shape().len());
    let mut offset = base.offset();
    for (linear, stride) in steps.iter().zip(base.strides()) {
        offset += linear.start * stride;
        for (axis, step) in &linear.terms {
            strides[*axis] += step * stride;
        }
    }
    // FAULT view-merge-off-by-one
    if is_active(Fault::ViewMergeOffByOne) && strides.iter().any(|stride| *stride < 0) {
        offset -= 1;
    }
    View::create(upper.shape(), Some(&strides), offset, None).ok()
}

/// The valid part is merged, then padded back.
fn merge_masked(base: &View, upper: &View, mask: &[(i64, i64)]) -> Option<View> {
    if mask.iter().any(|(begin, end)| begin >= end) {
        return Some(upper.clone());
    }
    let valid = upper.shrink(mask).ok()?;
    assert!(valid.mask().is_none(), "the valid part is valid");
    let merged = merge(base, &valid)?;
    let sizes = upper.shape().iter();
    let pads: Ranges = mask.iter().zip(sizes).map(|((b, e), size)| (*b, size - e)).collect();
    merged.pad(&pads).ok()
}

/// Each index of the base as a function of the indices of `upper`, as far as no carry from one
/// axis to the next happens; [`extents`] looks whether one does.
fn steps(base: &View, upper: &View) -> SmallVec<[Linear; 4]> {
    let origin = unravel(base.shape(), upper.offset());
    let mut steps: SmallVec<[Linear; 4]> =
        origin.iter().map(|start| Linear { start: *start, terms: SmallVec::new() }).collect();
    for (axis, stride) in upper.strides().iter().enumerate().filter(|(_, stride)| **stride != 0) {
        let next = unravel(base.shape(), upper.offset() + stride);
        for (linear, (to, from)) in steps.iter_mut().zip(next.iter().zip(&origin)) {
            if to != from {
                linear.terms.push((axis, to - from));
            }
        }
    }
    steps
}

/// The axes of the base, neighbours merged until each stays inside its size: sizes and indices.
/// `None` if the outermost does not.
fn extents(base: &[i64], steps: &[Linear], upper: &[i64]) -> Option<SmallVec<[(i64, Linear); 4]>> {
    let mut extents = SmallVec::new();
    let nothing = Linear { start: 0, terms: SmallVec::new() };
    let (mut size, mut sum) = (1, nothing.clone());
    for (axis_size, linear) in base.iter().zip(steps).rev() {
        sum = sum.plus(linear, size);
        size *= axis_size;
        let (low, high) = sum.bounds(upper);
        if 0 <= low && high < size {
            extents.push((size, std::mem::replace(&mut sum, nothing.clone())));
            size = 1;
        }
    }
    if sum.start != 0 || !sum.terms.is_empty() || size != 1 {
        return None;
    }
    extents.reverse();
    Some(extents)
}

/// `upper` under the mask of the base: `Some(None)` if the mask hides nothing of it, `None` if
/// half-open ranges cannot say what it hides.
fn masked_by(upper: &View, mask: &[(i64, i64)], steps: &[Linear]) -> Option<Option<View>> {
    let mut ranges: Ranges = upper.shape().iter().map(|size| (0, *size)).collect();
    for ((begin, end), linear) in mask.iter().zip(steps) {
        let (low, high) = linear.bounds(upper.shape());
        if *begin <= low && high < *end {
            continue;
        }
        if high < *begin || *end <= low {
            ranges.iter_mut().for_each(|range| *range = (0, 0));
            break;
        }
        let [(axis, step)] = linear.terms[..] else { return None };
        // begin <= start + i * step < end, solved for i.
        let (first, last) = (begin - linear.start, end - 1 - linear.start);
        let (from, to) = match step > 0 {
            true => (ceil_div(first, step), last.div_euclid(step)),
            false => (ceil_div(-last, -step), (-first).div_euclid(-step)),
        };
        let range = &mut ranges[axis];
        *range = (range.0.max(from), range.1.min(to + 1));
        if range.0 >= range.1 {
            ranges.iter_mut().for_each(|range| *range = (0, 0));
            break;
        }
    }
    let is_whole = ranges.iter().zip(upper.shape()).all(|(range, size)| *range == (0, *size));
    if is_whole {
        return Some(None);
    }
    let view = View::create(upper.shape(), Some(upper.strides()), upper.offset(), Some(&ranges));
    view.ok().map(Some)
}

/// x / y rounded up, y > 0.
fn ceil_div(x: i64, y: i64) -> i64 {
    -(-x).div_euclid(y)
}
