//! One form for two views that cannot be one: what the upper one reads of the lower one, and no
//! more, in one order.
//!
//! The lower view falls into groups of axes over whose borders the upper view's walk never carries.
//! A group of one axis, all of it real, is a plain stride: it becomes one axis for each axis of the
//! upper view, in their order. Every other group is cut down to what is read, turned so that the
//! walk ascends, and the groups are put in the order in which the upper view's axes use them. What
//! the lower view hides for sure becomes the upper view's mask.

use smallvec::SmallVec;

use crate::dim::{Mask, Sizes, add_product, zeros};
use crate::merge::{Group, Projection, around, unravel};
use crate::view::{count, turn};
use crate::{Dim, View};

/// Axes of the lower view and how the upper view walks over their row-major elements.
struct Part<D> {
    shape: Sizes<D>,
    strides: Sizes<D>,
    mask: Mask<D>,
    /// Buffer index of its first element.
    offset: D,
    first: D,
    steps: Sizes<D>,
}

/// `top` and `base` in canonical form; `None` where they are already, or it cannot be told.
pub(crate) fn settle<D: Dim>(top: &View<D>, base: &View<D>) -> Option<(View<D>, View<D>)> {
    settled(top, base).filter(|pair| (&pair.0, &pair.1) != (top, base))
}

fn settled<D: Dim>(top: &View<D>, base: &View<D>) -> Option<(View<D>, View<D>)> {
    if top.is_empty() || top.is_padding() {
        return None;
    }
    if top.shape.is_empty() && reads_padding(top, base) {
        // There is no mask to say it in the upper view.
        let one = SmallVec::from_elem(D::number(1), 1);
        return Some((View::plain(&[]).ok()?, View::padding(one)));
    }
    if base.is_padding() {
        return None;
    }
    let base = base.minify();
    let bounds = real_bounds(top, &base)?;
    let real = top.shrink(&bounds).ok()?;
    let flat = real.minify();
    let walk = Walk::new(&flat, &base, true).and_then(|walk| walk.settled(&flat, &base));
    let walk = walk.or_else(|| Walk::new(&flat, &base, false)?.settled(&flat, &base));
    let (flat, base) = walk?;
    let real = flat.reshape(&real.shape).ok()??;
    Some((real.pad(&around(&bounds, &top.shape)?).ok()?, base))
}

/// The range of each axis of `top` that may be real, judged by its mask and by what `base` hides.
fn real_bounds<D: Dim>(top: &View<D>, base: &View<D>) -> Option<Mask<D>> {
    let mut bounds = top.real_box();
    // Each round can only take away.
    for _ in 0..4 {
        let Some(mask) = base.mask() else { return Some(bounds) };
        let real = top.shrink(&bounds).ok()?;
        let projection = Projection::new(&base.shape, &real.offset, &real.strides)?;
        let groups = projection.groups(&base.shape, &real.shape);
        // One range for each group of axes that the walk carries over.
        let (shape, hull) = (base.merged_shape(&groups)?, base.hull(&groups)?);
        let is_joined = shape.len() < mask.len();
        let joined = is_joined.then(|| Projection::new(&shape, &real.offset, &real.strides));
        let projection = joined.unwrap_or(Some(projection))?;
        let visible = projection.visible(&hull, &real.shape)?;
        if visible.iter().zip(&real.shape).all(|((begin, end), size)| begin.is(0) && end == size) {
            return Some(bounds);
        }
        for (pair, (begin, end)) in bounds.iter_mut().zip(visible) {
            *pair = (pair.0.plus(&begin)?, pair.0.plus(&end)?);
        }
        if bounds.iter().any(|(begin, end)| end.at_most(begin)) {
            return None;
        }
    }
    None
}

/// Whether the one element that a view of rank 0 reads is hidden.
fn reads_padding<D: Dim>(top: &View<D>, base: &View<D>) -> bool {
    let Some(mask) = base.mask() else { return false };
    let Some(place) = unravel(&base.shape, &top.offset) else { return false };
    let is_hidden = |(at, (begin, end)): (&D, &(D, D))| at.below(begin) || end.at_most(at);
    place.iter().zip(mask).any(is_hidden)
}

/// Of which axis, how many, how far apart.
type Pieces<D> = SmallVec<[(usize, D, D); 4]>;

/// How an upper view, all of it real, walks over the lower one.
struct Walk<D> {
    /// The axes of the upper view, split where a border of the lower one's axes falls between.
    pieces: Pieces<D>,
    counts: Sizes<D>,
    projection: Projection<D>,
}

impl<D: Dim> Walk<D> {
    /// `None` also if `splits` is asked for and there is nothing to split.
    fn new(top: &View<D>, base: &View<D>, splits: bool) -> Option<Walk<D>> {
        let mut pieces = Pieces::new();
        for (axis, (count, stride)) in top.shape.iter().zip(&top.strides).enumerate() {
            match splits && !stride.is(0) {
                true => split(axis, (count.clone(), stride.clone()), &base.shape, &mut pieces)?,
                false => pieces.push((axis, count.clone(), stride.clone())),
            }
        }
        if splits && pieces.len() == top.shape.len() {
            return None;
        }
        let counts: Sizes<D> = pieces.iter().map(|(_, count, _)| count.clone()).collect();
        let strides: Sizes<D> = pieces.iter().map(|(.., stride)| stride.clone()).collect();
        let projection = Projection::new(&base.shape, &top.offset, &strides)?;
        Some(Walk { pieces, counts, projection })
    }

    fn settled(&self, top: &View<D>, base: &View<D>) -> Option<(View<D>, View<D>)> {
        let (projection, counts) = (&self.projection, &self.counts);
        let (mut offset, mut plain) = (base.offset.clone(), zeros(counts.len()));
        let mut parts = Vec::new();
        for group in projection.groups(&base.shape, counts) {
            if !group.is_closed {
                return None;
            }
            let axis = group.begin;
            if group.end - axis == 1 && is_inside(base, projection, axis, counts) {
                offset = add_product(&offset, &projection.origin[axis], &base.strides[axis])?;
                for (sum, step) in plain.iter_mut().zip(projection.row(axis)) {
                    *sum = add_product(sum, step, &base.strides[axis])?;
                }
            } else {
                let mut part = Part::new(base, projection, group)?;
                part.trim(counts)?;
                if part.steps.iter().find(|step| !step.is(0))?.is_down()? {
                    part.turn()?;
                }
                offset = offset.plus(&part.offset)?;
                parts.push(part);
            }
        }
        parts.sort_by(|a, b| a.key().cmp(&b.key()));
        self.assemble(top, (offset, plain), &parts)
    }

    /// The two views of a plain walk (offset and a stride for each piece) and of parts.
    fn assemble(
        &self,
        top: &View<D>,
        (offset, plain): (D, Sizes<D>),
        parts: &[Part<D>],
    ) -> Option<(View<D>, View<D>)> {
        let zero = D::number(0);
        let (mut shape, mut strides, mut mask) = (Sizes::new(), Sizes::new(), Mask::new());
        let mut is_plain: SmallVec<[bool; 8]> = SmallVec::from_elem(false, top.shape.len());
        for ((axis, ..), stride) in self.pieces.iter().zip(&plain) {
            is_plain[*axis] |= !stride.is(0);
        }
        for ((axis, count, _), stride) in self.pieces.iter().zip(&plain) {
            if is_plain[*axis] {
                shape.push(count.clone());
                strides.push(stride.clone());
                mask.push((zero.clone(), count.clone()));
            }
        }
        for part in parts {
            shape.extend(part.shape.iter().cloned());
            strides.extend(part.strides.iter().cloned());
            mask.extend(part.mask.iter().cloned());
        }
        let base = View::build(shape, strides, offset, mask).ok()?;
        // From the innermost part outwards: `weight` elements of the base are one of the part.
        let (mut first, mut weight) = (zero.clone(), D::number(1));
        let mut steps = zeros(self.pieces.len());
        for part in parts.iter().rev() {
            first = add_product(&first, &part.first, &weight)?;
            for (sum, step) in steps.iter_mut().zip(&part.steps) {
                *sum = add_product(sum, step, &weight)?;
            }
            weight = weight.times(&count(&part.shape).ok()?)?;
        }
        for (step, (axis, count, _)) in steps.iter_mut().zip(&self.pieces).rev() {
            if is_plain[*axis] {
                *step = step.plus(&weight)?;
                weight = weight.times(count)?;
            }
        }
        let steps = self.joined(&steps, top.shape.len())?;
        let top = View::build(D::copied(&top.shape), steps, first, Mask::new()).ok()?;
        Some((top, base.minify()))
    }

    /// The stride of each axis whose pieces have these; `None` if pieces of one axis do not go
    /// together.
    fn joined(&self, steps: &[D], rank: usize) -> Option<Sizes<D>> {
        let mut strides = zeros(rank);
        for (place, (axis, count, _)) in self.pieces.iter().enumerate() {
            let inner = self.pieces.get(place + 1).filter(|inner| inner.0 == *axis);
            if inner.is_none() {
                strides[*axis] = steps[place].clone();
            } else if !count.is(1) && steps[place] != steps[place + 1].times(&inner?.1)? {
                return None;
            }
        }
        Some(strides)
    }
}

/// Splits an axis of (count, stride) where its steps fall on borders of the lower view's axes.
fn split<D: Dim>(
    axis: usize,
    (mut count, mut stride): (D, D),
    base: &[D],
    pieces: &mut Pieces<D>,
) -> Option<()> {
    let place = pieces.len();
    let mut border = D::number(1);
    for size in base.iter().rev() {
        border = border.times(size)?;
        let length = if stride.is_down()? { D::number(0).minus(&stride)? } else { stride.clone() };
        let whole = |(quotient, rest): (D, D)| rest.is(0).then_some(quotient);
        let Some(inner) = border.div_rem(&length).and_then(whole) else { continue };
        let Some(outer) = count.div_rem(&inner).and_then(whole) else { continue };
        if D::number(1).below(&inner) && D::number(1).below(&outer) {
            pieces.insert(place, (axis, inner.clone(), stride.clone()));
            (count, stride) = (outer, stride.times(&inner)?);
        }
    }
    pieces.insert(place, (axis, count, stride));
    Some(())
}

/// Whether all that is read of a base axis is real.
fn is_inside<D: Dim>(
    base: &View<D>,
    projection: &Projection<D>,
    axis: usize,
    counts: &[D],
) -> bool {
    let (begin, end) = base.real(axis);
    let extent = projection.extent(axis, counts);
    extent.is_some_and(|(low, high)| begin.at_most(&low) && high.below(&end))
}

impl<D: Dim> Part<D> {
    fn new(base: &View<D>, projection: &Projection<D>, group: Group) -> Option<Part<D>> {
        let axes = group.begin..group.end;
        let mut steps = zeros(projection.row(group.begin).len());
        let mut first = D::number(0);
        for axis in axes.clone() {
            let size = &base.shape[axis];
            first = add_product(&projection.origin[axis], &first, size)?;
            for (sum, step) in steps.iter_mut().zip(projection.row(axis)) {
                *sum = add_product(step, sum, size)?;
            }
        }
        Some(Part {
            shape: D::copied(&base.shape[axes.clone()]),
            strides: D::copied(&base.strides[axes.clone()]),
            mask: axes.map(|axis| base.real(axis)).collect(),
            offset: D::number(0),
            first,
            steps,
        })
    }

    /// Cuts rows off the outermost axis that are not read.
    fn trim(&mut self, counts: &[D]) -> Option<()> {
        let one = D::number(1);
        let row = count(&self.shape[1..]).ok()?;
        let (mut low, mut high) = (self.first.clone(), self.first.clone());
        for (step, count) in self.steps.iter().zip(counts).filter(|(step, _)| !step.is(0)) {
            let extent = step.times(&count.minus(&one)?)?;
            let end = if step.is_down()? { &mut low } else { &mut high };
            *end = end.plus(&extent)?;
        }
        let (begin, last) = (low.div_rem(&row)?.0, high.div_rem(&row)?.0);
        let end = last.plus(&one)?;
        self.first = self.first.minus(&begin.times(&row)?)?;
        self.offset = add_product(&self.offset, &begin, &self.strides[0])?;
        self.shape[0] = end.minus(&begin)?;
        let inside = |at: &D| {
            let at = crate::dim::most(at.minus(&begin)?, D::number(0))?;
            crate::dim::least(at, self.shape[0].clone())
        };
        let pair = (inside(&self.mask[0].0)?, inside(&self.mask[0].1)?);
        self.mask[0] = pair;
        Some(())
    }

    /// The same elements from the last to the first, and the walk turned around.
    fn turn(&mut self) -> Option<()> {
        let (zero, one) = (D::number(0), D::number(1));
        self.first = count(&self.shape).ok()?.minus(&one)?.minus(&self.first)?;
        for step in &mut self.steps {
            *step = zero.minus(step)?;
        }
        let axes = self.shape.iter().zip(&mut self.strides).zip(&mut self.mask);
        for ((size, stride), pair) in axes {
            turn(size, stride, &mut self.offset, Some(pair))?;
        }
        Some(())
    }

    /// Parts stand in the order of the upper axes that use them, the largest strides first.
    fn key(&self) -> impl Ord {
        let uses = self.steps.iter().position(|step| !step.is(0));
        (uses, self.steps.clone(), self.strides.clone(), self.shape.clone(), self.mask.clone())
    }
}
