//! A canonical form for two views that cannot be merged: the lower one has only the elements that
//! the upper one reads, in a fixed order.
//!
//! The upper view reads row-major elements of the lower one; the order in which it does is called
//! its walk. The axes of the lower view are divided into groups such that the walk never carries
//! from one group into another.
//!
//! A group is *plain* if it is a single axis whose padding is not read. Each axis of the upper view
//! moves in it by a constant stride. So all plain groups together are replaced by one axis for each
//! axis, or piece of one, of the upper view that moves in them, in its order. Every other group
//! becomes a *part*: it is trimmed to the elements that are read, and reversed if the walk
//! descends. Parts are sorted by the first axis of the upper view that uses them.
//!
//! An element that is proven to be padding of the lower view is masked in the upper view instead.

use smallvec::SmallVec;

use crate::dim::{Mask, Sizes, add_product, zeros};
use crate::merge::{Group, Projection, have_signs, padding_around, unravel};
use crate::view::{count, reverse};
use crate::{Dim, View};

/// A group of axes of the lower view that is not plain, and the walk of the upper view over its
/// row-major elements.
struct Part<D> {
    shape: Sizes<D>,
    strides: Sizes<D>,
    mask: Mask<D>,
    /// The buffer index of its first element.
    offset: D,
    /// The row-major index of the first element of the walk.
    first: D,
    /// The row-major stride of the walk along each piece of the upper view's axes.
    walk_strides: Sizes<D>,
}

/// Canonicalizes `top` and `base`; `None` if they are canonical already, or if the order of
/// symbolic sizes is unknown.
pub(crate) fn canonicalize<D: Dim>(top: &View<D>, base: &View<D>) -> Option<(View<D>, View<D>)> {
    canonical(top, base).filter(|pair| (&pair.0, &pair.1) != (top, base))
}

/// The canonical form of two views, which may be what they are already; `None` if it is not found.
fn canonical<D: Dim>(top: &View<D>, base: &View<D>) -> Option<(View<D>, View<D>)> {
    if top.is_empty() || top.is_padding() {
        return None;
    }
    if top.shape.is_empty() && reads_padding(top, base) {
        // The upper view has no axis that could be masked.
        let shape = SmallVec::from_elem(D::number(1), 1);
        return Some((View::plain(&[]).ok()?, View::padding(shape)));
    }
    if base.is_padding() {
        return None;
    }
    // What is padding of the upper view, or is proven to read padding, is cut off and is padded
    // again at the end.
    let base = base.minify();
    let bounds = real_bounds(top, &base)?;
    let real = top.shrink(&bounds).ok()?;
    let flat = real.minify();
    // With split axes more groups are plain.
    let walk = Walk::new(&flat, &base, true).and_then(|walk| walk.canonical(&flat, &base));
    let walk = walk.or_else(|| Walk::new(&flat, &base, false)?.canonical(&flat, &base));
    let (flat, base) = walk?;
    let real = flat.reshape(&real.shape).ok()??;
    Some((real.pad(&padding_around(&bounds, &top.shape)?).ok()?, base))
}

/// Returns for each axis of `top` a range outside of which all elements are padding, by the mask of
/// `top` or by that of `base`.
fn real_bounds<D: Dim>(top: &View<D>, base: &View<D>) -> Option<Mask<D>> {
    let mut bounds = top.real_box();
    // Each iteration shrinks the ranges, which may show that more elements are padding. Views for
    // which four iterations are not enough are left as they are.
    for _ in 0..4 {
        let Some(mask) = base.mask() else { return Some(bounds) };
        let real = top.shrink(&bounds).ok()?;
        let projection = Projection::new(&base.shape, &real.offset, &real.strides)?;
        let groups = projection.groups(&base.shape, &real.shape);
        // The elements of a group that are not padding lie within one range, its hull. A range for
        // each axis would not do, since the walk may carry within a group.
        let (shape, hull) = (base.merged_shape(&groups)?, base.hull(&groups)?);
        let is_merged = shape.len() < mask.len();
        let merged = is_merged.then(|| Projection::new(&shape, &real.offset, &real.strides));
        let projection = merged.unwrap_or(Some(projection))?;
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

/// Returns whether the element that `top`, a view of rank 0, reads is padding of `base`.
fn reads_padding<D: Dim>(top: &View<D>, base: &View<D>) -> bool {
    let Some(mask) = base.mask() else { return false };
    let Some(position) = unravel(&base.shape, &top.offset) else { return false };
    let is_hidden = |(at, (begin, end)): (&D, &(D, D))| at.below(begin) || end.at_most(at);
    position.iter().zip(mask).any(is_hidden)
}

/// Pieces of axes: the axis, the number of iterations and the row-major stride of each.
type Pieces<D> = SmallVec<[(usize, D, D); 4]>;

/// The walk of an upper view without padding over the lower one.
struct Walk<D> {
    /// The axes of the upper view, split at the boundaries of the lower view's axes.
    pieces: Pieces<D>,
    /// The number of iterations of each piece.
    counts: Sizes<D>,
    projection: Projection<D>,
}

impl<D: Dim> Walk<D> {
    /// Makes a walk. If `splits` is set, axes are split, and the result is `None` if no axis can
    /// be. It is also `None` if the walk depends on an unknown order of symbolic sizes.
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

    /// The canonical form of the two views; `None` if it was not found.
    fn canonical(&self, top: &View<D>, base: &View<D>) -> Option<(View<D>, View<D>)> {
        let (projection, counts) = (&self.projection, &self.counts);
        let (mut offset, mut plain_strides) = (base.offset.clone(), zeros(counts.len()));
        let mut parts = Vec::new();
        for group in projection.groups(&base.shape, counts) {
            if !group.is_closed {
                return None;
            }
            let axis = group.begin;
            if group.end - axis == 1 && is_inside(base, projection, axis, counts) {
                offset = add_product(&offset, &projection.origin[axis], &base.strides[axis])?;
                for (sum, stride) in plain_strides.iter_mut().zip(projection.row(axis)) {
                    *sum = add_product(sum, stride, &base.strides[axis])?;
                }
            } else {
                let mut part = Part::new(base, projection, group)?;
                part.trim(counts)?;
                if part.walk_strides.iter().find(|stride| !stride.is(0))?.is_descending()? {
                    part.reverse()?;
                }
                offset = offset.plus(&part.offset)?;
                parts.push(part);
            }
        }
        parts.sort_by(|a, b| a.key().cmp(&b.key()));
        have_signs(&plain_strides).then_some(())?;
        self.assemble(top, (offset, plain_strides), &parts)
    }

    /// Assembles the two views from the groups that are plain, by their offset and the stride of
    /// each piece, and from the parts.
    fn assemble(
        &self,
        top: &View<D>,
        (offset, plain_strides): (D, Sizes<D>),
        parts: &[Part<D>],
    ) -> Option<(View<D>, View<D>)> {
        let mut is_plain: SmallVec<[bool; 8]> = SmallVec::from_elem(false, top.shape.len());
        for ((axis, ..), stride) in self.pieces.iter().zip(&plain_strides) {
            is_plain[*axis] |= !stride.is(0);
        }
        let base = self.lower_view(&is_plain, (offset, &plain_strides), parts)?;
        let (first, walk_strides) = self.walk_over(&is_plain, parts)?;
        let strides = self.merged_strides(&walk_strides, top.shape.len())?;
        let top = View::build(D::copied(&top.shape), strides, first, Mask::new()).ok()?;
        Some((top, base.minify()))
    }

    /// Builds the new lower view: an axis for each piece of the plain axes of the upper view, then
    /// the axes of each part.
    fn lower_view(
        &self,
        is_plain: &[bool],
        (offset, plain_strides): (D, &[D]),
        parts: &[Part<D>],
    ) -> Option<View<D>> {
        let (mut shape, mut strides, mut mask) = (Sizes::new(), Sizes::new(), Mask::new());
        for ((axis, count, _), stride) in self.pieces.iter().zip(plain_strides) {
            if is_plain[*axis] {
                shape.push(count.clone());
                strides.push(stride.clone());
                mask.push((D::number(0), count.clone()));
            }
        }
        for part in parts {
            shape.extend(part.shape.iter().cloned());
            strides.extend(part.strides.iter().cloned());
            mask.extend(part.mask.iter().cloned());
        }
        View::build(shape, strides, offset, mask).ok()
    }

    /// Returns the walk over the new lower view: the row-major index of its first element, and its
    /// row-major stride along each piece.
    fn walk_over(&self, is_plain: &[bool], parts: &[Part<D>]) -> Option<(D, Sizes<D>)> {
        // From the innermost axes outwards. `weight` is the number of elements of the axes so far:
        // the row-major stride of the next axis.
        let (mut first, mut weight) = (D::number(0), D::number(1));
        let mut strides = zeros(self.pieces.len());
        for part in parts.iter().rev() {
            first = add_product(&first, &part.first, &weight)?;
            for (sum, stride) in strides.iter_mut().zip(&part.walk_strides) {
                *sum = add_product(sum, stride, &weight)?;
            }
            weight = weight.times(&count(&part.shape).ok()?)?;
        }
        for (stride, (axis, count, _)) in strides.iter_mut().zip(&self.pieces).rev() {
            if is_plain[*axis] {
                *stride = stride.plus(&weight)?;
                weight = weight.times(count)?;
            }
        }
        Some((first, strides))
    }

    /// Merges the strides of pieces to those of axes; `None` if the pieces of an axis have no
    /// common stride.
    fn merged_strides(&self, walk_strides: &[D], rank: usize) -> Option<Sizes<D>> {
        let mut strides = zeros(rank);
        for (index, (axis, count, _)) in self.pieces.iter().enumerate() {
            let inner = self.pieces.get(index + 1).filter(|inner| inner.0 == *axis);
            if inner.is_none() {
                strides[*axis] = walk_strides[index].clone();
            } else if !count.is(1)
                && walk_strides[index] != walk_strides[index + 1].times(&inner?.1)?
            {
                return None;
            }
        }
        Some(strides)
    }
}

/// Splits an axis of (count, stride) of the upper view where the walk along it reaches the end of
/// an axis of the lower view, and appends the pieces, the outermost first.
fn split<D: Dim>(
    axis: usize,
    (mut count, mut stride): (D, D),
    base_shape: &[D],
    pieces: &mut Pieces<D>,
) -> Option<()> {
    let index = pieces.len();
    let mut boundary = D::number(1);
    for size in base_shape.iter().rev() {
        boundary = boundary.times(size)?;
        let magnitude =
            if stride.is_descending()? { D::number(0).minus(&stride)? } else { stride.clone() };
        let exact = |(quotient, remainder): (D, D)| remainder.is(0).then_some(quotient);
        let Some(inner) = boundary.div_rem(&magnitude).and_then(exact) else { continue };
        let Some(outer) = count.div_rem(&inner).and_then(exact) else { continue };
        if D::number(1).below(&inner) && D::number(1).below(&outer) {
            pieces.insert(index, (axis, inner.clone(), stride.clone()));
            (count, stride) = (outer, stride.times(&inner)?);
        }
    }
    pieces.insert(index, (axis, count, stride));
    Some(())
}

/// Returns whether no padding of a base axis is read.
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
        let mut walk_strides = zeros(projection.row(group.begin).len());
        let mut first = D::number(0);
        for axis in axes.clone() {
            let size = &base.shape[axis];
            first = add_product(&projection.origin[axis], &first, size)?;
            for (sum, stride) in walk_strides.iter_mut().zip(projection.row(axis)) {
                *sum = add_product(stride, sum, size)?;
            }
        }
        Some(Part {
            shape: D::copied(&base.shape[axes.clone()]),
            strides: D::copied(&base.strides[axes.clone()]),
            mask: axes.map(|axis| base.real(axis)).collect(),
            offset: D::number(0),
            first,
            walk_strides,
        })
    }

    /// Removes the rows of the outermost axis that are not read.
    fn trim(&mut self, counts: &[D]) -> Option<()> {
        let row_size = count(&self.shape[1..]).ok()?;
        // The row-major indices of the first and the last element that is read.
        let (mut low, mut high) = (self.first.clone(), self.first.clone());
        for (stride, count) in
            self.walk_strides.iter().zip(counts).filter(|(stride, _)| !stride.is(0))
        {
            let extent = stride.times(&count.minus(&D::number(1))?)?;
            let end = if stride.is_descending()? { &mut low } else { &mut high };
            *end = end.plus(&extent)?;
        }
        let (begin, last) = (low.div_rem(&row_size)?.0, high.div_rem(&row_size)?.0);
        let end = last.plus(&D::number(1))?;
        self.first = self.first.minus(&begin.times(&row_size)?)?;
        self.offset = add_product(&self.offset, &begin, &self.strides[0])?;
        self.shape[0] = end.minus(&begin)?;
        let clamped = |at: &D| {
            let at = crate::dim::max(at.minus(&begin)?, D::number(0))?;
            crate::dim::min(at, self.shape[0].clone())
        };
        let pair = (clamped(&self.mask[0].0)?, clamped(&self.mask[0].1)?);
        self.mask[0] = pair;
        Some(())
    }

    /// Reverses the order of the elements and the direction of the walk.
    fn reverse(&mut self) -> Option<()> {
        let last = count(&self.shape).ok()?.minus(&D::number(1))?;
        self.first = last.minus(&self.first)?;
        for stride in &mut self.walk_strides {
            *stride = D::number(0).minus(stride)?;
        }
        let axes = self.shape.iter().zip(&mut self.strides).zip(&mut self.mask);
        for ((size, stride), pair) in axes {
            reverse(size, stride, &mut self.offset, Some(pair))?;
        }
        Some(())
    }

    /// Returns the sort key: the first upper axis that uses the part, then the strides.
    fn key(&self) -> impl Ord {
        let first_use = self.walk_strides.iter().position(|stride| !stride.is(0));
        (
            first_use,
            self.walk_strides.clone(),
            self.strides.clone(),
            self.shape.clone(),
            self.mask.clone(),
        )
    }
}
