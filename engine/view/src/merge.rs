//! Merges two views (`merge`), and inverts a view (`invert`). `None` if that is impossible or not
//! proven to be possible.

use std::cmp::Ordering;

use smallvec::SmallVec;

use crate::dim::{Mask, Sizes, add_product, max, min, zeros};
use crate::view::{Span, count};
use crate::{Dim, View};

/// Limit of the number of times that a merge narrows the upper view, each time one level deeper in
/// the recursion. Two are nearly always enough; views that need more are not merged.
const NARROWINGS_LIMIT: usize = 8;

/// The axes of the outer view in terms of the axes of the base.
pub(crate) struct Projection<D> {
    /// The index on each base axis of the outer view's first element.
    pub(crate) origin: Sizes<D>,
    /// `strides[base_axis * rank + axis]`: the stride of the outer axis on the base axis.
    strides: SmallVec<[D; 16]>,
    rank: usize,
}

/// Adjacent base axes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Group {
    pub(crate) begin: usize,
    pub(crate) end: usize,
    /// True if the outer view is proven never to carry beyond them.
    pub(crate) is_closed: bool,
}

impl<D: Dim> Projection<D> {
    /// `first` is the flat base index of the first element, `strides` those of the outer view.
    pub(crate) fn new(base: &[D], first: &D, strides: &[D]) -> Option<Projection<D>> {
        let rank = strides.len();
        let origin = unravel(base, first)?;
        let mut base_strides = SmallVec::from_elem(D::number(0), base.len() * rank);
        for (axis, stride) in strides.iter().enumerate().filter(|(_, stride)| !stride.is(0)) {
            let mut rest = first.plus(stride)?;
            for (base_axis, size) in base.iter().enumerate().rev() {
                let position;
                (rest, position) = rest.div_rem(size)?;
                base_strides[base_axis * rank + axis] = position.minus(&origin[base_axis])?;
            }
        }
        Some(Projection { origin, strides: base_strides, rank })
    }

    /// Returns the strides of all outer axes on a base axis.
    pub(crate) fn row(&self, base_axis: usize) -> &[D] {
        &self.strides[base_axis * self.rank..(base_axis + 1) * self.rank]
    }

    /// Returns the lowest and highest index on a base axis, if nothing carries.
    pub(crate) fn extent(&self, base_axis: usize, counts: &[D]) -> Option<(D, D)> {
        range(&self.origin[base_axis], self.row(base_axis), counts)
    }

    /// Returns the box of an outer view of sizes `counts` outside of which all is padding. It is
    /// found by intervals: for each axis the indices that can be inside the base's mask for some
    /// indices of the other axes.
    pub(crate) fn visible(&self, mask: &[(D, D)], counts: &[D]) -> Option<Mask<D>> {
        let whole = |count: &D| (D::number(0), count.clone());
        let mut visible: Mask<D> = counts.iter().map(whole).collect();
        // Each iteration only shrinks the box; nearly always the second changes nothing.
        for _ in 0..4 {
            let before = visible.clone();
            for (base_axis, pair) in mask.iter().enumerate() {
                self.cut(base_axis, pair, &mut visible)?;
                if visible.iter().any(|(begin, end)| end.at_most(begin)) {
                    return Some(Mask::from_elem((D::number(0), D::number(0)), counts.len()));
                }
            }
            if visible == before {
                break;
            }
        }
        Some(visible)
    }

    /// Removes from each axis of `visible` the indices for which the index on a base axis is below
    /// or above its allowed half-open range.
    fn cut(&self, base_axis: usize, allowed: &(D, D), visible: &mut Mask<D>) -> Option<()> {
        let (zero, unit) = (D::number(0), D::number(1));
        let ends = |stride: &D, pair: &(D, D)| {
            let (first_end, last_end) =
                (stride.times(&pair.0)?, stride.times(&pair.1.minus(&unit)?)?);
            Some(if stride.is_descending()? {
                (last_end, first_end)
            } else {
                (first_end, last_end)
            })
        };
        let row = self.row(base_axis);
        let (mut low, mut high) = (self.origin[base_axis].clone(), self.origin[base_axis].clone());
        for (stride, pair) in row.iter().zip(visible.iter()).filter(|(stride, _)| !stride.is(0)) {
            let (lowest, highest) = ends(stride, pair)?;
            (low, high) = (low.plus(&lowest)?, high.plus(&highest)?);
        }
        let (first, last) = (&allowed.0, &allowed.1.minus(&unit)?);
        if high.below(first) || last.below(&low) {
            visible.fill((zero.clone(), zero));
            return Some(());
        }
        for (pair, stride) in visible.iter_mut().zip(row).filter(|(_, stride)| !stride.is(0)) {
            let (lowest, highest) = ends(stride, pair)?;
            // With the best values of the other terms, stride * i is from `from` to `to`.
            let from = first.minus(&high.minus(&highest)?)?;
            let to = last.minus(&low.minus(&lowest)?)?;
            // For a negative stride, both sides are negated.
            let (begin, end) = if !stride.is_descending()? {
                (ceil_div(&from, stride)?, to.div_rem(stride)?.0)
            } else {
                let negated = zero.minus(stride)?;
                (ceil_div(&zero.minus(&to)?, &negated)?, zero.minus(&from)?.div_rem(&negated)?.0)
            };
            let begin = max(pair.0.clone(), begin)?;
            let end = max(begin.clone(), min(pair.1.clone(), end.plus(&unit)?)?)?;
            *pair = (begin, end);
            if pair.0 == pair.1 {
                return Some(());
            }
            let (new_lowest, new_highest) = ends(stride, pair)?;
            low = low.minus(&lowest)?.plus(&new_lowest)?;
            high = high.minus(&highest)?.plus(&new_highest)?;
        }
        Some(())
    }

    /// Returns groups of adjacent base axes, innermost first, beyond which the outer view of sizes
    /// `counts` never carries. Remaining axes, if any, come last as a group that is not closed.
    pub(crate) fn groups(&self, base: &[D], counts: &[D]) -> SmallVec<[Group; 4]> {
        let mut groups = SmallVec::new();
        let mut end = base.len();
        let mut factors = zeros(self.rank);
        let (mut size, mut constant) = (Some(D::number(1)), Some(D::number(0)));
        for begin in (0..base.len()).rev() {
            let is_closed = (|| {
                let (whole, start) = (size.take()?, constant.take()?);
                let start = add_product(&start, &self.origin[begin], &whole)?;
                for (factor, stride) in factors.iter_mut().zip(self.row(begin)) {
                    *factor = add_product(factor, stride, &whole)?;
                }
                let whole = whole.times(&base[begin])?;
                let range = range(&start, &factors, counts);
                let inside = |(low, high): (D, D)| D::number(0).at_most(&low) && high.below(&whole);
                let is_closed = range.is_some_and(inside);
                (size, constant) = (Some(whole), Some(start));
                Some(is_closed)
            })();
            if is_closed == Some(true) {
                groups.push(Group { begin, end, is_closed: true });
                end = begin;
                (size, constant) = (Some(D::number(1)), Some(D::number(0)));
                factors.fill(D::number(0));
            }
        }
        if end > 0 {
            groups.push(Group { begin: 0, end, is_closed: false });
        }
        groups
    }
}

/// Returns whether the signs of sums of strides are known. The stride between two elements of a
/// base may ascend for some values of the variables and descend for others: the range of the
/// elements of a view with such a stride would be unknown.
pub(crate) fn have_signs<D: Dim>(strides: &[D]) -> bool {
    strides.iter().all(|stride| stride.is_descending().is_some())
}

fn range<D: Dim>(constant: &D, factors: &[D], counts: &[D]) -> Option<(D, D)> {
    let (mut low, mut high) = (constant.clone(), constant.clone());
    for (factor, count) in factors.iter().zip(counts).filter(|(factor, _)| !factor.is(0)) {
        let extent = factor.times(&count.minus(&D::number(1))?)?;
        let end = if factor.is_descending()? { &mut low } else { &mut high };
        *end = end.plus(&extent)?;
    }
    Some((low, high))
}

/// Returns the quotient rounded up; `None` if the remainder is 0 for some values of the variables
/// only.
fn ceil_div<D: Dim>(dividend: &D, divisor: &D) -> Option<D> {
    let (quotient, rest) = dividend.div_rem(divisor)?;
    match rest.is(0) {
        true => Some(quotient),
        false if D::number(1).at_most(&rest) => quotient.plus(&D::number(1)),
        false => None,
    }
}

/// Position of element `flat` on each axis.
pub(crate) fn unravel<D: Dim>(shape: &[D], flat: &D) -> Option<Sizes<D>> {
    let mut positions = zeros(shape.len());
    let mut rest = flat.clone();
    for (position, size) in positions.iter_mut().zip(shape).rev() {
        (rest, *position) = rest.div_rem(size)?;
    }
    Some(positions)
}

impl<D: Dim> View<D> {
    /// Merges `self` with `base`, whose row-major elements `self` reads; `None` if there is no such
    /// view, or none was found.
    pub fn merge(&self, base: &View<D>) -> Option<View<D>> {
        self.merge_within(base, NARROWINGS_LIMIT)
    }

    /// Does what [`View::merge`] does, and narrows the upper view at most `narrowings` times.
    fn merge_within(&self, base: &View<D>, narrowings: usize) -> Option<View<D>> {
        if base.contiguous || self.is_empty() || self.is_padding() {
            return Some(self.clone());
        }
        if base.is_padding() {
            return (!self.shape.is_empty()).then(|| View::padding(D::copied(&self.shape)));
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
        if let Some(mask) = self.mask() {
            return self
                .shrink(mask)
                .ok()?
                .merge_within(base, narrowings)?
                .pad(&padding_around(mask, &self.shape)?)
                .ok();
        }
        self.project(base, &self.offset, narrowings)
    }

    /// Merges an unmasked view whose first element is element `first` of the base.
    fn project(&self, base: &View<D>, first: &D, narrowings: usize) -> Option<View<D>> {
        let projection = Projection::new(&base.shape, first, &self.strides)?;
        let groups = projection.groups(&base.shape, &self.shape);
        if groups.iter().any(|group| !group.is_closed) {
            return None;
        }
        if groups.len() < base.shape.len() {
            let merged = base.merged_shape(&groups)?;
            // The recursion ends, since the number of axes decreases.
            return match base.reshape(&merged).ok()? {
                Some(base) => self.project(&base, first, narrowings),
                None => {
                    let projection = Projection::new(&merged, first, &self.strides)?;
                    let narrowed = self.narrowed(&projection, &base.hull(&groups)?)?;
                    narrowed.merge_within(base, narrowings.checked_sub(1)?)
                }
            };
        }
        if let Some(mask) = base.mask() {
            if let Some(narrowed) = self.narrowed(&projection, mask) {
                return narrowed.merge_within(base, narrowings.checked_sub(1)?);
            }
            if !self.all_inside(mask, &projection) {
                return None;
            }
        }
        let mut strides = zeros(self.shape.len());
        let mut offset = base.offset.clone();
        for (base_axis, stride) in base.strides.iter().enumerate() {
            offset = add_product(&offset, &projection.origin[base_axis], stride)?;
            for (sum, base_stride) in strides.iter_mut().zip(projection.row(base_axis)) {
                *sum = add_product(sum, base_stride, stride)?;
            }
        }
        have_signs(&strides).then_some(())?;
        View::build(D::copied(&self.shape), strides, offset, Mask::new()).ok()
    }

    /// Masks `self` to the elements that can be real if the base has this mask; `None` if these are
    /// all.
    fn narrowed(&self, projection: &Projection<D>, mask: &[(D, D)]) -> Option<View<D>> {
        let visible = projection.visible(mask, &self.shape)?;
        if visible.iter().zip(&self.shape).all(|((begin, end), size)| begin.is(0) && end == size) {
            return None;
        }
        let (shape, strides) = (D::copied(&self.shape), D::copied(&self.strides));
        View::build(shape, strides, self.offset.clone(), visible).ok()
    }

    /// Returns the size of each group of axes, outermost first.
    pub(crate) fn merged_shape(&self, groups: &[Group]) -> Option<Sizes<D>> {
        let product = |group: &Group| count(&self.shape[group.begin..group.end]).ok();
        groups.iter().rev().map(product).collect()
    }

    /// Returns for each group of axes the half-open range of row-major elements outside of which
    /// all is padding.
    pub(crate) fn hull(&self, groups: &[Group]) -> Option<Mask<D>> {
        let mask = self.mask()?;
        let range = |group: &Group| {
            let (mut begin, mut last) = (D::number(0), D::number(0));
            let axes = group.begin..group.end;
            for ((from, to), size) in mask[axes.clone()].iter().zip(&self.shape[axes]) {
                begin = add_product(from, &begin, size)?;
                let end = add_product(to, &last, size)?;
                last = end.minus(&D::number(1))?;
            }
            Some((begin, last.plus(&D::number(1))?))
        };
        groups.iter().rev().map(range).collect()
    }

    /// Returns whether every element of `self` is inside the base's mask.
    fn all_inside(&self, mask: &[(D, D)], projection: &Projection<D>) -> bool {
        mask.iter().enumerate().all(|(base_axis, (begin, end))| {
            let extent = projection.extent(base_axis, &self.shape);
            extent.is_some_and(|(low, high)| begin.at_most(&low) && high.below(end))
        })
    }

    /// Returns the inverse view: over the elements of `self`, it gives a buffer of shape `to`.
    /// `None` unless every element of the buffer appears exactly once. The shape of the result has
    /// the axes of `self`, without padding, in the order of the buffer.
    pub fn invert(&self, to: &[D]) -> Option<View<D>> {
        let bounds = self.real_box();
        let size = count(to).ok()?;
        let inner = self.shrink(&bounds).ok()?;
        if inner.size() != size {
            return None;
        }
        let zero = D::number(0);
        let length = |stride: &D| {
            if stride.is_descending()? { zero.minus(stride) } else { Some(stride.clone()) }
        };
        let lengths = inner.strides.iter().map(length).collect::<Option<Sizes<D>>>()?;
        let mut order: SmallVec<[usize; 4]> = (0..self.shape.len()).collect();
        let mut is_decided = true;
        order.sort_by(|&left, &right| {
            let ordering = lengths[right].compare(&lengths[left]);
            is_decided &= ordering.is_some();
            ordering.unwrap_or(Ordering::Equal)
        });
        if !is_decided {
            return None;
        }
        if !size.is(0) {
            let mut next_stride = D::number(1);
            for &axis in order.iter().rev().filter(|&&axis| !inner.shape[axis].is(1)) {
                if lengths[axis] != next_stride {
                    return None;
                }
                next_stride = next_stride.times(&inner.shape[axis])?;
            }
            if !matches!(inner.span(), Span::Range(low, _) if low.is(0)) {
                return None;
            }
        }
        let reversed = self.strides.iter().map(|stride| stride.is_descending());
        let reversed = reversed.collect::<Option<SmallVec<[bool; 4]>>>()?;
        let inverse = View::plain(&self.shape).ok()?.shrink(&bounds).ok()?;
        inverse.flip(&reversed).ok()?.permute(&order).ok()
    }
}

/// Returns the amounts by which the real part is to be padded to restore the shape.
pub(crate) fn padding_around<D: Dim>(mask: &[(D, D)], shape: &[D]) -> Option<Mask<D>> {
    let after = |((begin, end), size): (&(D, D), &D)| Some((begin.clone(), size.minus(end)?));
    mask.iter().zip(shape).map(after).collect()
}
