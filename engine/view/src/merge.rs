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

    /// The box of an outer view of sizes `counts` outside which all is padding, judged by
    /// intervals: along each axis, what can be inside the base's mask wherever the other axes
    /// stand.
    fn visible(&self, mask: &[(i64, i64)], counts: &[i64]) -> Mask {
        let mut visible: Mask = counts.iter().map(|&count| (0, count)).collect();
        // Each round can only take away; nearly always the second takes nothing more.
        for _ in 0..4 {
            let before = visible.clone();
            for (base_axis, &(begin, end)) in mask.iter().enumerate() {
                self.cut(base_axis, (begin.into(), i128::from(end) - 1), &mut visible);
                if visible.iter().any(|&(begin, end)| end <= begin) {
                    return Mask::from_elem((0, 0), counts.len());
                }
            }
            if visible == before {
                break;
            }
        }
        visible
    }

    /// Takes from each axis of `visible` what is below or above the positions allowed on one base
    /// axis.
    fn cut(&self, base_axis: usize, allowed: (i128, i128), visible: &mut [(i64, i64)]) {
        let ends = |step: i64, pair: (i64, i64)| {
            let (first, last) = (i128::from(pair.0) * i128::from(step), i128::from(pair.1 - 1));
            let last = last * i128::from(step);
            (first.min(last), first.max(last))
        };
        let origin = i128::from(self.origin[base_axis]);
        let row = self.row(base_axis);
        let (mut low, mut high) = (origin, origin);
        for (&step, &pair) in row.iter().zip(visible.iter()) {
            let (least, most) = ends(step, pair);
            (low, high) = (low + least, high + most);
        }
        if high < allowed.0 || allowed.1 < low {
            visible.fill((0, 0));
            return;
        }
        for (pair, &step) in visible.iter_mut().zip(row).filter(|(_, step)| **step != 0) {
            let (least, most) = ends(step, *pair);
            // Where the others help most: step * i is at least `from` and at most `to`.
            let (from, to) = (allowed.0 - (high - most), allowed.1 - (low - least));
            let (near, far) = if step > 0 { (from, to) } else { (to, from) };
            let step = i128::from(step);
            let begin = i128::from(pair.0).max(-floor_div(-near, step));
            let end = i128::from(pair.1).min(floor_div(far, step) + 1);
            // Both lie between the old ends unless nothing is left.
            *pair = (begin as i64, end.max(begin) as i64);
            if pair.0 == pair.1 {
                return;
            }
            let (new_least, new_most) = ends(step as i64, *pair);
            (low, high) = (low - least + new_least, high - most + new_most);
        }
    }

    /// Groups of neighbouring base axes, innermost first, over which the walk never carries:
    /// half-open ranges of base axes with `true`. Axes left over, if any, come last with `false`.
    /// `counts`: outer sizes.
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
    /// One view for `self` on top of `base`, whose row-major elements `self` reads; `None` if there
    /// is none or none was found.
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
            return match base.reshape(&merged).ok()? {
                Some(base) => self.project(&base, first),
                None => self.narrowed(&base.hull(&groups)?, &merged, first)?.merge(base),
            };
        }
        if let Some(mask) = &base.mask {
            if let Some(narrowed) = self.narrowed(mask, &base.shape, first) {
                return narrowed.merge(base);
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

    /// `self` masked to what can be real in a base of shape `base_shape` and this mask; `None`
    /// where that is all of it. Fewer elements are real each time, so repeating it ends.
    fn narrowed(&self, mask: &[(i64, i64)], base_shape: &[i64], first: i64) -> Option<View> {
        let projection = Projection::new(base_shape, first, &self.strides);
        let visible = projection.visible(mask, &self.shape);
        if visible.iter().zip(&self.shape).all(|(&pair, &size)| pair == (0, size)) {
            return None;
        }
        let (shape, strides) = (self.shape.clone(), self.strides.clone());
        View::build(shape, strides, self.offset, Some(visible)).ok()
    }

    /// For each group of axes the half-open range of row-major elements outside which all is
    /// padding.
    fn hull(&self, groups: &[(usize, usize, bool)]) -> Option<Mask> {
        let mask = self.mask.as_ref()?;
        let range = |&(first, last, _): &(usize, usize, bool)| {
            let (mut begin, mut end) = (0, 0);
            for axis in first..last {
                begin = begin * self.shape[axis] + mask[axis].0;
                end = end * self.shape[axis] + mask[axis].1 - 1;
            }
            (begin, end + 1)
        };
        Some(groups.iter().rev().map(range).collect())
    }

    /// Whether every element of `self` lies inside the base's mask.
    fn all_inside(&self, mask: &[(i64, i64)], projection: &Projection) -> bool {
        mask.iter().enumerate().all(|(base_axis, &(begin, end))| {
            let (low, high) = projection.extent(base_axis, &self.shape);
            i128::from(begin) <= low && high < i128::from(end)
        })
    }

    /// The view of shape `to` over this one's elements that puts each buffer element back in its
    /// place. `None` unless every element of a buffer of that shape appears exactly once. Its own
    /// shape holds the axes of `self`, padding cut off, in the order of the buffer.
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

/// The planted fault of `merge`: one element early, or late where the view starts at the first but
/// ends before the last, so that all it reads is there.
fn misplaced(view: &View, base: &View) -> i64 {
    match view.span() {
        _ if !fault::is_active(Fault::ViewMergeOffByOne) => 0,
        Some((low, _)) if low > 0 => -1,
        Some((_, high)) if high + 1 < base.size() => 1,
        _ => 0,
    }
}

fn floor_div(dividend: i128, divisor: i128) -> i128 {
    let quotient = dividend / divisor;
    quotient - i128::from(dividend % divisor != 0 && (dividend < 0) != (divisor < 0))
}
