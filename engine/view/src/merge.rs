//! Two views as one (`merge`), and the view that undoes a view (`invert`). Unsure means `None`.

use std::cmp::Ordering;

use smallvec::SmallVec;

use crate::dim::{Mask, Sizes, add_product, least, most, zeros};
use crate::view::{Reads, count};
use crate::{Dim, View};

/// How the outer view's axes walk over the axes of the base.
pub(crate) struct Projection<D> {
    /// Position on each base axis of the outer view's first element.
    pub(crate) origin: Sizes<D>,
    /// `steps[base_axis * rank + axis]`: steps on the base axis for one step on the outer axis.
    steps: SmallVec<[D; 16]>,
    rank: usize,
}

/// Neighbouring base axes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Group {
    pub(crate) begin: usize,
    pub(crate) end: usize,
    /// Whether a walk is proven never to carry over their outer end.
    pub(crate) is_closed: bool,
}

impl<D: Dim> Projection<D> {
    /// `first` is the flat base index of the first element, `strides` those of the outer view.
    pub(crate) fn new(base: &[D], first: &D, strides: &[D]) -> Option<Projection<D>> {
        let rank = strides.len();
        let origin = unravel(base, first)?;
        let mut steps = SmallVec::from_elem(D::number(0), base.len() * rank);
        for (axis, stride) in strides.iter().enumerate().filter(|(_, stride)| !stride.is(0)) {
            let mut rest = first.plus(stride)?;
            for (base_axis, size) in base.iter().enumerate().rev() {
                let position;
                (rest, position) = rest.div_rem(size)?;
                steps[base_axis * rank + axis] = position.minus(&origin[base_axis])?;
            }
        }
        Some(Projection { origin, steps, rank })
    }

    pub(crate) fn row(&self, base_axis: usize) -> &[D] {
        &self.steps[base_axis * self.rank..(base_axis + 1) * self.rank]
    }

    /// Lowest and highest position on one base axis, where no walk carries.
    pub(crate) fn extent(&self, base_axis: usize, counts: &[D]) -> Option<(D, D)> {
        range(&self.origin[base_axis], self.row(base_axis), counts)
    }

    /// The box of an outer view of sizes `counts` outside which all is padding, judged by
    /// intervals: along each axis, what can be inside the base's mask wherever the other axes
    /// stand.
    pub(crate) fn visible(&self, mask: &[(D, D)], counts: &[D]) -> Option<Mask<D>> {
        let whole = |count: &D| (D::number(0), count.clone());
        let mut visible: Mask<D> = counts.iter().map(whole).collect();
        // Each round can only take away; nearly always the second takes nothing more.
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

    /// Takes from each axis of `visible` what is below or above the half-open range of positions
    /// allowed on one base axis.
    fn cut(&self, base_axis: usize, allowed: &(D, D), visible: &mut Mask<D>) -> Option<()> {
        let (zero, one) = (D::number(0), D::number(1));
        let ends = |step: &D, pair: &(D, D)| {
            let (near, far) = (step.times(&pair.0)?, step.times(&pair.1.minus(&one)?)?);
            Some(if step.is_down()? { (far, near) } else { (near, far) })
        };
        let row = self.row(base_axis);
        let (mut low, mut high) = (self.origin[base_axis].clone(), self.origin[base_axis].clone());
        for (step, pair) in row.iter().zip(visible.iter()).filter(|(step, _)| !step.is(0)) {
            let (least, most) = ends(step, pair)?;
            (low, high) = (low.plus(&least)?, high.plus(&most)?);
        }
        let (first, last) = (&allowed.0, &allowed.1.minus(&one)?);
        if high.below(first) || last.below(&low) {
            visible.fill((zero.clone(), zero));
            return Some(());
        }
        for (pair, step) in visible.iter_mut().zip(row).filter(|(_, step)| !step.is(0)) {
            let (under, over) = ends(step, pair)?;
            // Where the others help most: step * i is at least `from` and at most `to`.
            let from = first.minus(&high.minus(&over)?)?;
            let to = last.minus(&low.minus(&under)?)?;
            // Turned around, a negative step is a positive one.
            let (begin, end) = if !step.is_down()? {
                (ceil_div(&from, step)?, to.div_rem(step)?.0)
            } else {
                let back = zero.minus(step)?;
                (ceil_div(&zero.minus(&to)?, &back)?, zero.minus(&from)?.div_rem(&back)?.0)
            };
            let begin = most(pair.0.clone(), begin)?;
            let end = most(begin.clone(), least(pair.1.clone(), end.plus(&one)?)?)?;
            *pair = (begin, end);
            if pair.0 == pair.1 {
                return Some(());
            }
            let (new_under, new_over) = ends(step, pair)?;
            low = low.minus(&under)?.plus(&new_under)?;
            high = high.minus(&over)?.plus(&new_over)?;
        }
        Some(())
    }

    /// Groups of neighbouring base axes, innermost first, over which the walk never carries. Axes
    /// left over, if any, come last as a group that is not closed. `counts`: outer sizes.
    pub(crate) fn groups(&self, base: &[D], counts: &[D]) -> SmallVec<[Group; 4]> {
        let mut groups = SmallVec::new();
        let mut end = base.len();
        let mut factors = zeros(self.rank);
        let (mut size, mut constant) = (Some(D::number(1)), Some(D::number(0)));
        for begin in (0..base.len()).rev() {
            let is_closed = (|| {
                let (whole, start) = (size.take()?, constant.take()?);
                let start = add_product(&start, &self.origin[begin], &whole)?;
                for (factor, step) in factors.iter_mut().zip(self.row(begin)) {
                    *factor = add_product(factor, step, &whole)?;
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

fn range<D: Dim>(constant: &D, factors: &[D], counts: &[D]) -> Option<(D, D)> {
    let (mut low, mut high) = (constant.clone(), constant.clone());
    for (factor, count) in factors.iter().zip(counts).filter(|(factor, _)| !factor.is(0)) {
        let extent = factor.times(&count.minus(&D::number(1))?)?;
        let end = if factor.is_down()? { &mut low } else { &mut high };
        *end = end.plus(&extent)?;
    }
    Some((low, high))
}

fn ceil_div<D: Dim>(dividend: &D, divisor: &D) -> Option<D> {
    let (quotient, rest) = dividend.div_rem(divisor)?;
    if rest.is(0) { Some(quotient) } else { quotient.plus(&D::number(1)) }
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
    /// One view for `self` on top of `base`, whose row-major elements `self` reads; `None` if there
    /// is none or none was found.
    pub fn merge(&self, base: &View<D>) -> Option<View<D>> {
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
            return self.shrink(mask).ok()?.merge(base)?.pad(&around(mask, &self.shape)?).ok();
        }
        self.project(base, &self.offset)
    }

    /// `merge` of an unmasked view whose first element is `first` of the base.
    fn project(&self, base: &View<D>, first: &D) -> Option<View<D>> {
        let projection = Projection::new(&base.shape, first, &self.strides)?;
        let groups = projection.groups(&base.shape, &self.shape);
        if groups.iter().any(|group| !group.is_closed) {
            return None;
        }
        if groups.len() < base.shape.len() {
            let merged = base.merged_shape(&groups)?;
            // Fewer axes each time, so this ends.
            return match base.reshape(&merged).ok()? {
                Some(base) => self.project(&base, first),
                None => {
                    let projection = Projection::new(&merged, first, &self.strides)?;
                    self.narrowed(&projection, &base.hull(&groups)?)?.merge(base)
                }
            };
        }
        if let Some(mask) = base.mask() {
            if let Some(narrowed) = self.narrowed(&projection, mask) {
                return narrowed.merge(base);
            }
            if !self.all_inside(mask, &projection) {
                return None;
            }
        }
        let mut strides = zeros(self.shape.len());
        let mut offset = base.offset.clone();
        for (base_axis, stride) in base.strides.iter().enumerate() {
            offset = add_product(&offset, &projection.origin[base_axis], stride)?;
            for (sum, step) in strides.iter_mut().zip(projection.row(base_axis)) {
                *sum = add_product(sum, step, stride)?;
            }
        }
        View::build(D::copied(&self.shape), strides, offset, Mask::new()).ok()
    }

    /// `self` masked to what can be real where a base that it walks over so has this mask; `None`
    /// where that is all of it. Fewer elements are real each time, so repeating it ends.
    fn narrowed(&self, projection: &Projection<D>, mask: &[(D, D)]) -> Option<View<D>> {
        let visible = projection.visible(mask, &self.shape)?;
        if visible.iter().zip(&self.shape).all(|((begin, end), size)| begin.is(0) && end == size) {
            return None;
        }
        let (shape, strides) = (D::copied(&self.shape), D::copied(&self.strides));
        View::build(shape, strides, self.offset.clone(), visible).ok()
    }

    /// The size of each group of axes, outermost first.
    pub(crate) fn merged_shape(&self, groups: &[Group]) -> Option<Sizes<D>> {
        let product = |group: &Group| count(&self.shape[group.begin..group.end]).ok();
        groups.iter().rev().map(product).collect()
    }

    /// For each group of axes the half-open range of row-major elements outside which all is
    /// padding.
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

    /// Whether every element of `self` lies inside the base's mask.
    fn all_inside(&self, mask: &[(D, D)], projection: &Projection<D>) -> bool {
        mask.iter().enumerate().all(|(base_axis, (begin, end))| {
            let extent = projection.extent(base_axis, &self.shape);
            extent.is_some_and(|(low, high)| begin.at_most(&low) && high.below(end))
        })
    }

    /// The view of shape `to` over this one's elements that puts each buffer element back in its
    /// place. `None` unless every element of a buffer of that shape appears exactly once. Its own
    /// shape holds the axes of `self`, padding cut off, in the order of the buffer.
    pub fn invert(&self, to: &[D]) -> Option<View<D>> {
        let bounds = self.real_box();
        let size = count(to).ok()?;
        let inner = self.shrink(&bounds).ok()?;
        if inner.size() != size {
            return None;
        }
        let zero = D::number(0);
        let up =
            |stride: &D| if stride.is_down()? { zero.minus(stride) } else { Some(stride.clone()) };
        let lengths = inner.strides.iter().map(up).collect::<Option<Sizes<D>>>()?;
        let mut order: SmallVec<[usize; 4]> = (0..self.shape.len()).collect();
        let mut is_told = true;
        order.sort_by(|&left, &right| {
            let ordering = lengths[right].compare(&lengths[left]);
            is_told &= ordering.is_some();
            ordering.unwrap_or(Ordering::Equal)
        });
        if !is_told {
            return None;
        }
        if !size.is(0) {
            let mut step = D::number(1);
            for &axis in order.iter().rev().filter(|&&axis| !inner.shape[axis].is(1)) {
                if lengths[axis] != step {
                    return None;
                }
                step = step.times(&inner.shape[axis])?;
            }
            if !matches!(inner.span(), Reads::From(low, _) if low.is(0)) {
                return None;
            }
        }
        let turned = self.strides.iter().map(|stride| stride.is_down());
        let turned = turned.collect::<Option<SmallVec<[bool; 4]>>>()?;
        let way_back = View::plain(&self.shape).ok()?.shrink(&bounds).ok()?;
        way_back.flip(&turned).ok()?.permute(&order).ok()
    }
}

/// What to pad the real part with to have the masked whole.
pub(crate) fn around<D: Dim>(mask: &[(D, D)], shape: &[D]) -> Option<Mask<D>> {
    let after = |((begin, end), size): (&(D, D), &D)| Some((begin.clone(), size.minus(end)?));
    mask.iter().zip(shape).map(after).collect()
}
