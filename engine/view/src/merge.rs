//! Two views as one (`merge`), and the view that undoes a view (`invert`). Unsure means `None`.

use smallvec::SmallVec;

use crate::View;
use crate::fault::{self, Fault};
use crate::view::{Mask, Sizes, count};

/// How the outer view's axes walk over the axes of the base.
pub(crate) struct Projection {
    /// Position on each base axis of the outer view's first element.
    pub(crate) origin: Sizes,
    /// `steps[base_axis * rank + axis]`: steps on the base axis for one step on the outer axis.
    pub(crate) steps: SmallVec<[i64; 16]>,
    rank: usize,
}

impl Projection {
    /// `first` is the flat base index of the first element, `strides` those of the outer view.
    pub(crate) fn new(base: &[i64], first: i64, strides: &[i64]) -> Projection {
        let rank = strides.len();
        let origin = unravel(base, first);
        let mut steps = SmallVec::from_elem(0, base.len() * rank);
        for (axis, &stride) in strides.iter().enumerate().filter(|&(_, &stride)| stride != 0) {
            for (base_axis, position) in unravel(base, first + stride).into_iter().enumerate() {
                steps[base_axis * rank + axis] = position - origin[base_axis];
            }
        }
        Projection { origin, steps, rank }
    }

    pub(crate) fn row(&self, base_axis: usize) -> &[i64] {
        &self.steps[base_axis * self.rank..(base_axis + 1) * self.rank]
    }

    /// Lowest and highest position on one base axis, where no walk carries.
    pub(crate) fn extent(&self, base_axis: usize, counts: &[i64]) -> (i128, i128) {
        let factors: SmallVec<[i128; 8]> = self.row(base_axis).iter().map(|&s| s.into()).collect();
        range(self.origin[base_axis].into(), &factors, counts)
    }

    /// Groups of neighbouring base axes, innermost first, over which the walk never carries: half-open ranges
    /// of base axes with `true`. Axes left over, if any, come last with `false`. `counts`: outer sizes.
    pub(crate) fn groups(
        &self,
        base: &[i64],
        counts: &[i64],
    ) -> SmallVec<[(usize, usize, bool); 4]> {
        let mut groups = SmallVec::new();
        let mut end = base.len();
        let (mut size, mut constant) = (1i128, 0i128);
        let mut factors: SmallVec<[i128; 8]> = SmallVec::from_elem(0, self.rank);
        for base_axis in (0..base.len()).rev() {
            constant += i128::from(self.origin[base_axis]) * size;
            for (factor, &step) in factors.iter_mut().zip(self.row(base_axis)) {
                *factor += i128::from(step) * size;
            }
            size *= i128::from(base[base_axis]);
            let (low, high) = range(constant, &factors, counts);
            if 0 <= low && high < size {
                groups.push((base_axis, end, true));
                end = base_axis;
                (size, constant) = (1, 0);
                factors.fill(0);
            }
        }
        if end > 0 {
            groups.push((0, end, false));
        }
        groups
    }
}

fn range(constant: i128, factors: &[i128], counts: &[i64]) -> (i128, i128) {
    let (mut low, mut high) = (constant, constant);
    for (&factor, &count) in factors.iter().zip(counts) {
        let extent = factor.saturating_mul(i128::from(count - 1));
        low = low.saturating_add(extent.min(0));
        high = high.saturating_add(extent.max(0));
    }
    (low, high)
}

/// Position of element `flat` on each axis.
fn unravel(shape: &[i64], flat: i64) -> Sizes {
    let mut positions = Sizes::from_elem(0, shape.len());
    let mut rest = flat;
    for (position, &size) in positions.iter_mut().zip(shape).rev() {
        *position = rest.rem_euclid(size);
        rest = rest.div_euclid(size);
    }
    positions
}

impl View {
    /// One view for `self` on top of `base`, whose row-major elements `self` reads; `None` if there is none
    /// or none was found.
    pub fn merge(&self, base: &View) -> Option<View> {
        if base.contiguous || self.shape.contains(&0) || self.is_padding() {
            return Some(self.clone());
        }
        if base.is_padding() {
            return (!self.shape.is_empty()).then(|| View::padding(self.shape.clone()));
        }
        if self.contiguous && self.shape == base.shape {
            return Some(base.clone());
        }
        if self.contiguous
            && self.size() == base.size()
            && let Some(view) = base.reshape(&self.shape).ok()?
        {
            return Some(view);
        }
        if let Some(mask) = &self.mask {
            let amounts: Mask =
                mask.iter().zip(&self.shape).map(|(&(b, e), &size)| (b, size - e)).collect();
            return self.shrink(mask).ok()?.merge(base)?.pad(&amounts).ok();
        }
        let first = self.offset + misplaced(self, base); // FAULT view-merge-off-by-one
        self.project(base, first)
    }

    /// `merge` of an unmasked view whose first element is `first` of the base.
    fn project(&self, base: &View, first: i64) -> Option<View> {
        let projection = Projection::new(&base.shape, first, &self.strides);
        let groups = projection.groups(&base.shape, &self.shape);
        if groups.iter().any(|group| !group.2) {
            return None;
        }
        let merged = groups.iter().rev().map(|&(begin, end, _)| &base.shape[begin..end]);
        let merged: Sizes = merged.map(|sizes| sizes.iter().product()).collect();
        if merged != base.shape {
            // Fewer axes each time, so this ends.
            return self.project(&base.reshape(&merged).ok()??, first);
        }
        if let Some(mask) = &base.mask {
            let visible = self.visible(mask, &projection)?;
            if visible.iter().zip(&self.shape).any(|(&pair, &size)| pair != (0, size)) {
                if visible.iter().any(|&(begin, end)| end <= begin) {
                    return Some(View::padding(self.shape.clone()));
                }
                let masked = View::build(
                    self.shape.clone(),
                    self.strides.clone(),
                    self.offset,
                    Some(visible),
                );
                return masked.ok()?.merge(base);
            }
            if !self.all_inside(mask, &projection) {
                return None;
            }
        }
        let mut strides = Sizes::from_elem(0, self.shape.len());
        let mut offset = base.offset;
        for (base_axis, &stride) in base.strides.iter().enumerate() {
            offset = offset.checked_add(projection.origin[base_axis].checked_mul(stride)?)?;
            for (sum, &step) in strides.iter_mut().zip(projection.row(base_axis)) {
                *sum = sum.checked_add(step.checked_mul(stride)?)?;
            }
        }
        View::build(self.shape.clone(), strides, offset, None).ok()
    }

    /// The box of `self` that can lie inside the base's mask, judged axis by axis.
    fn visible(&self, mask: &[(i64, i64)], projection: &Projection) -> Option<Mask> {
        let mut visible: Mask = self.shape.iter().map(|&size| (0, size)).collect();
        for (base_axis, &(begin, end)) in mask.iter().enumerate() {
            let origin = projection.origin[base_axis];
            let mut steps =
                projection.row(base_axis).iter().enumerate().filter(|step| *step.1 != 0);
            match (steps.next(), steps.next()) {
                // Every element has the same position here: all are real or none is.
                (None, _) if origin < begin || end <= origin => visible.first_mut()?.1 = 0,
                (Some((axis, &step)), None) => {
                    let (low, high) = if step > 0 { (begin, end - 1) } else { (end - 1, begin) };
                    let from = -floor_div(origin - low, step);
                    let to = floor_div(high - origin, step) + 1;
                    let pair = &mut visible[axis];
                    *pair = (pair.0.max(from), pair.1.min(to));
                }
                _ => {}
            }
        }
        Some(visible)
    }

    /// Whether every element of `self` lies inside the base's mask.
    fn all_inside(&self, mask: &[(i64, i64)], projection: &Projection) -> bool {
        mask.iter().enumerate().all(|(base_axis, &(begin, end))| {
            let (low, high) = projection.extent(base_axis, &self.shape);
            i128::from(begin) <= low && high < i128::from(end)
        })
    }

    /// The view of shape `to` over this one's elements that puts each buffer element back in its place.
    /// `None` unless every element of a buffer of that shape appears exactly once. Its own shape holds the
    /// axes of `self`, padding cut off, in the order of the buffer.
    pub fn invert(&self, to: &[i64]) -> Option<View> {
        let bounds: Mask = match &self.mask {
            Some(mask) => mask.clone(),
            None => self.shape.iter().map(|&size| (0, size)).collect(),
        };
        let size = count(to).ok()?;
        let inner = self.shrink(&bounds).ok()?;
        let way_back = View::create(&self.shape, None, 0, None).ok()?.shrink(&bounds).ok()?;
        if inner.size() != size {
            return None;
        }
        let mut order: SmallVec<[usize; 4]> = (0..self.shape.len()).collect();
        order.sort_by_key(|&axis| std::cmp::Reverse(self.strides[axis].unsigned_abs()));
        if size > 0 {
            let mut step = 1;
            for &axis in order.iter().rev().filter(|&&axis| inner.shape[axis] != 1) {
                if inner.strides[axis].abs() != step {
                    return None;
                }
                step *= inner.shape[axis];
            }
            if inner.span()?.0 != 0 {
                return None;
            }
        }
        let turned: SmallVec<[bool; 4]> = self.strides.iter().map(|&stride| stride < 0).collect();
        way_back.flip(&turned).ok()?.permute(&order).ok()
    }
}

/// The planted fault of `merge`: one element early, or late where the view starts at the first but ends before
/// the last, so that all it reads is there.
fn misplaced(view: &View, base: &View) -> i64 {
    match view.span() {
        _ if !fault::is_active(Fault::ViewMergeOffByOne) => 0,
        Some((low, _)) if low > 0 => -1,
        Some((_, high)) if high + 1 < base.size() => 1,
        _ => 0,
    }
}

fn floor_div(dividend: i64, divisor: i64) -> i64 {
    let quotient = dividend / divisor;
    quotient - i64::from(dividend % divisor != 0 && (dividend < 0) != (divisor < 0))
}
