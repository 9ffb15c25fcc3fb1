//! A view: shape, strides, offset and mask over a flat buffer, in a canonical form, and its
//! movement ops.
//!
//! Element `i` is at `offset + sum(i[a] * strides[a])` if `begin[a] <= i[a] < end[a]` for each axis
//! of the mask, and is padding (zero) otherwise. Views whose element count or indices do not fit an
//! `i64` are refused.

use std::ops::Deref;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::dim::{Mask, Sizes, add_product, max, min, zeros};
use crate::error::{list, pairs};
use crate::{Dim, Error};

/// An immutable view in canonical form: views with the same elements are mostly equal.
///
/// Axes of size 1 and axes with one real index have stride 0; a mask that hides nothing is `None`;
/// a view of padding only has stride 0 and mask (0, 0) on each axis; a view without elements has
/// stride 0 and no mask. With variables this holds as far as it is proven for all their values.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct View<D: Dim = i64>(Arc<Parts<D>>);

/// The content of a view, which all copies share.
#[derive(Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Parts<D> {
    pub(crate) shape: Sizes<D>,
    pub(crate) strides: Sizes<D>,
    pub(crate) offset: D,
    /// Empty if nothing is hidden.
    pub(crate) mask: Mask<D>,
    pub(crate) contiguous: bool,
}

impl<D: Dim> Deref for View<D> {
    type Target = Parts<D>;

    fn deref(&self) -> &Parts<D> {
        &self.0
    }
}

impl<D: Dim> View<D> {
    /// Makes a view in canonical form, with row-major strides if `strides` is `None`.
    /// # Errors
    /// [`Error::NegativeSize`], [`Error::MaybeEmpty`], [`Error::TooLarge`], or [`Error::View`] if
    /// ranks differ or the mask exceeds the shape.
    pub fn create(
        shape: &[D],
        strides: Option<&[D]>,
        offset: D,
        mask: Option<&[(D, D)]>,
    ) -> Result<View<D>, Error> {
        let bad_strides = strides.is_some_and(|strides| strides.len() != shape.len());
        let inside =
            |((begin, end), size): (&(D, D), &D)| D::number(0).at_most(begin) && end.at_most(size);
        let bad_mask = mask
            .is_some_and(|mask| mask.len() != shape.len() || !mask.iter().zip(shape).all(inside));
        if bad_strides || bad_mask {
            return Err(Error::View { shape: list(shape) });
        }
        let strides = match strides {
            Some(strides) => D::copied(strides),
            None => row_major(shape)?,
        };
        View::build(D::copied(shape), strides, offset, D::copied_pairs(mask.unwrap_or_default()))
    }

    /// Makes the view of a buffer in row-major order.
    pub(crate) fn plain(shape: &[D]) -> Result<View<D>, Error> {
        let strides = row_major(shape)?;
        if shape.iter().any(|size| size.is(0)) {
            return Ok(View::empty(shape));
        }
        // Indices are less than the count, which fits.
        let (shape, offset) = (D::copied(shape), D::number(0));
        Ok(View::of(Parts { shape, strides, offset, mask: Mask::new(), contiguous: true }))
    }

    /// Returns the size of each axis.
    pub fn shape(&self) -> &[D] {
        &self.shape
    }

    /// Returns the stride of each axis in elements.
    pub fn strides(&self) -> &[D] {
        &self.strides
    }

    /// Returns the buffer index of element (0, 0, ...); it may be outside the buffer if that
    /// element is padding.
    pub fn offset(&self) -> D {
        self.offset.clone()
    }

    /// Returns the half-open range of each axis that is not padding; `None` if nothing is padding.
    pub fn mask(&self) -> Option<&[(D, D)]> {
        (!self.mask.is_empty()).then_some(&self.mask)
    }

    /// Returns whether element `i` in row-major order is at `i`: offset 0, no mask, row-major
    /// strides.
    pub fn is_contiguous(&self) -> bool {
        self.contiguous
    }

    /// Returns the number of elements.
    pub fn size(&self) -> D {
        count(&self.shape).expect("the elements were counted when the view was made")
    }

    /// Permutes the axes: axis `i` of the result is axis `axes[i]`.
    /// # Errors
    /// [`Error::Permute`] unless each axis appears once.
    pub fn permute(&self, axes: &[usize]) -> Result<View<D>, Error> {
        let rank = self.shape.len();
        let mut seen: SmallVec<[bool; 8]> = SmallVec::from_elem(false, rank);
        let once = |&axis: &usize| axis < rank && !std::mem::replace(&mut seen[axis], true);
        if axes.len() != rank || !axes.iter().all(once) {
            return Err(Error::Permute { shape: list(&self.shape), rank, axes: axes.to_vec() });
        }
        View::build(
            axes.iter().map(|&axis| self.shape[axis].clone()).collect(),
            axes.iter().map(|&axis| self.strides[axis].clone()).collect(),
            self.offset.clone(),
            self.mask().map_or_else(Mask::new, |mask| {
                axes.iter().map(|&axis| mask[axis].clone()).collect()
            }),
        )
    }

    /// Repeats axes of size 1: [a, 1, c] to [a, b, c] with stride 0.
    /// # Errors
    /// [`Error::Expand`] if ranks differ or an axis is neither 1 nor equal;
    /// [`Error::NegativeSize`], [`Error::MaybeEmpty`], [`Error::TooLarge`].
    pub fn expand(&self, to: &[D]) -> Result<View<D>, Error> {
        let fits = |(have, want): (&D, &D)| have == want || have.is(1);
        if to.len() != self.shape.len() || !self.shape.iter().zip(to).all(fits) {
            return Err(Error::Expand { from: list(&self.shape), to: list(to) });
        }
        let pairs = self.mask.iter().zip(&self.shape).zip(to);
        let mask = pairs.map(|((pair, have), want)| expanded(pair, have, want)).collect();
        let strides = D::copied(&self.strides);
        View::build(D::copied(to), strides, self.offset.clone(), mask)
    }

    /// Pads each axis with zeros (before, after).
    /// # Errors
    /// [`Error::Pad`] if ranks differ or an amount is negative; [`Error::TooLarge`].
    pub fn pad(&self, amounts: &[(D, D)]) -> Result<View<D>, Error> {
        let (rank, zero) = (self.shape.len(), D::number(0));
        let fits = |(before, after): &(D, D)| zero.at_most(before) && zero.at_most(after);
        if amounts.len() != rank || !amounts.iter().all(fits) {
            return Err(Error::Pad { shape: list(&self.shape), amounts: pairs(amounts) });
        }
        if amounts.iter().all(|(before, after)| before.is(0) && after.is(0)) {
            return Ok(self.clone());
        }
        let (mut shape, mut offset) = (Sizes::new(), Some(self.offset.clone()));
        let mut mask = Mask::new();
        for (axis, (before, after)) in amounts.iter().enumerate() {
            let size = &self.shape[axis];
            let total = size.plus(before).and_then(|sum| sum.plus(after));
            shape.push(total.ok_or_else(|| too_large(&self.shape))?);
            let moved = self.strides[axis].times(before);
            offset = offset.zip(moved).and_then(|(offset, moved)| offset.minus(&moved));
            let pair = match self.mask() {
                Some(mask) => mask[axis].0.plus(before).zip(mask[axis].1.plus(before)),
                None => size.plus(before).map(|end| (before.clone(), end)),
            };
            mask.push(pair.ok_or_else(|| too_large(&self.shape))?);
        }
        let offset = offset.ok_or_else(|| too_large(&shape))?;
        View::build(shape, D::copied(&self.strides), offset, mask)
    }

    /// Keeps the half-open range (begin, end) of each axis.
    /// # Errors
    /// [`Error::Shrink`] if ranks differ or a bound exceeds the axis; [`Error::Undecided`] if the
    /// order of a bound and the mask depends on variables.
    pub fn shrink(&self, bounds: &[(D, D)]) -> Result<View<D>, Error> {
        let inside = |((begin, end), size): (&(D, D), &D)| {
            D::number(0).at_most(begin) && begin.at_most(end) && end.at_most(size)
        };
        if bounds.len() != self.shape.len() || !bounds.iter().zip(&self.shape).all(inside) {
            return Err(Error::Shrink { shape: list(&self.shape), bounds: pairs(bounds) });
        }
        if bounds.iter().zip(&self.shape).all(|((begin, end), size)| begin.is(0) && end == size) {
            return Ok(self.clone());
        }
        // `build` checked that every index of this view fits; the offset of an empty result, which
        // has no index, may be outside.
        let large = || too_large(&self.shape);
        let is_empty = bounds.iter().any(|(begin, end)| begin == end);
        let mut offset = self.offset.clone();
        let mut shape = Sizes::new();
        for ((begin, end), stride) in bounds.iter().zip(&self.strides) {
            shape.push(end.minus(begin).ok_or_else(large)?);
            match add_product(&offset, begin, stride) {
                Some(sum) => offset = sum,
                None if is_empty => {}
                None => return Err(large()),
            }
        }
        let cut = |axis: usize| {
            let ((begin, end), bound, size) = (&self.mask[axis], &bounds[axis], &shape[axis]);
            Some((inner(begin, bound, size)?, inner(end, bound, size)?))
        };
        let mask = (0..self.mask.len()).map(cut).collect::<Option<Mask<D>>>();
        let undecided = || Error::Undecided { operation: "shrink", shape: list(&self.shape) };
        let mask = mask.ok_or_else(undecided)?;
        View::build(shape, D::copied(&self.strides), offset, mask)
    }

    /// Reverses the flagged axes: index `i` of the result is index `size - 1 - i`.
    /// # Errors
    /// [`Error::Flip`] if ranks differ.
    pub fn flip(&self, axes: &[bool]) -> Result<View<D>, Error> {
        if axes.len() != self.shape.len() {
            return Err(Error::Flip { shape: list(&self.shape), axes: axes.to_vec() });
        }
        let (mut offset, mut strides) = (self.offset.clone(), D::copied(&self.strides));
        let mut mask = D::copied_pairs(&self.mask);
        for axis in (0..axes.len()).filter(|&axis| axes[axis]) {
            let (size, stride, pair) = (&self.shape[axis], &mut strides[axis], mask.get_mut(axis));
            reverse(size, stride, &mut offset, pair).ok_or_else(|| too_large(&self.shape))?;
        }
        View::build(D::copied(&self.shape), strides, offset, mask)
    }

    fn of(parts: Parts<D>) -> View<D> {
        View(Arc::new(parts))
    }

    /// Builds the canonical form; ranks must agree and the mask must be within the shape.
    pub(crate) fn build(
        shape: Sizes<D>,
        mut strides: Sizes<D>,
        mut offset: D,
        mut mask: Mask<D>,
    ) -> Result<View<D>, Error> {
        assert!(strides.len() == shape.len(), "one stride per axis");
        if count(&shape)?.is(0) {
            return Ok(View::empty(&shape));
        }
        for (stride, size) in strides.iter_mut().zip(&shape) {
            if size.is(1) {
                *stride = D::number(0);
            }
        }
        if !mask.is_empty() {
            assert!(mask.len() == shape.len(), "one mask pair per axis");
            if mask.iter().zip(&shape).all(|((begin, end), size)| begin.is(0) && end == size) {
                mask.clear();
            } else if mask.iter().any(|(begin, end)| end.at_most(begin)) {
                return Ok(View::padding(shape));
            } else {
                for (stride, (begin, end)) in strides.iter_mut().zip(&mask) {
                    if end.minus(begin).is_some_and(|width| width.is(1)) {
                        let sum = add_product(&offset, stride, begin);
                        offset = sum.ok_or_else(|| too_large(&shape))?;
                        *stride = D::number(0);
                    }
                }
            }
        }
        if !fits(&shape, &strides, &offset) {
            return Err(too_large(&shape));
        }
        let contiguous = offset.is(0) && mask.is_empty() && is_row_major(&shape, &strides);
        Ok(View::of(Parts { shape, strides, offset, mask, contiguous }))
    }

    /// Makes a view without elements: some size is 0.
    pub(crate) fn empty(shape: &[D]) -> View<D> {
        assert!(shape.iter().any(|size| size.is(0)), "a view without elements has a size 0");
        let strides = zeros(shape.len());
        let offset = D::number(0);
        let shape = D::copied(shape);
        View::of(Parts { shape, strides, offset, mask: Mask::new(), contiguous: true })
    }

    /// Makes a view of padding only: rank 1 or more, no size 0.
    pub(crate) fn padding(shape: Sizes<D>) -> View<D> {
        assert!(!shape.is_empty(), "a rank 0 view has no mask to hide its element");
        let hidden = (D::number(0), D::number(0));
        let (strides, mask) = (zeros(shape.len()), Mask::from_elem(hidden, shape.len()));
        View::of(Parts { shape, strides, offset: D::number(0), mask, contiguous: false })
    }

    /// Returns whether there are elements and all are padding.
    pub(crate) fn is_padding(&self) -> bool {
        let hidden = |(begin, end): &(D, D)| begin.is(0) && end.is(0);
        self.mask.iter().any(hidden)
    }

    /// Returns whether there are no elements.
    pub(crate) fn is_empty(&self) -> bool {
        self.shape.iter().any(|size| size.is(0))
    }

    /// Returns the half-open range of an axis that is real.
    pub(crate) fn real(&self, axis: usize) -> (D, D) {
        match self.mask() {
            Some(mask) => mask[axis].clone(),
            None => (D::number(0), self.shape[axis].clone()),
        }
    }

    /// Returns the half-open range of each axis that is real.
    pub(crate) fn real_box(&self) -> Mask<D> {
        match self.mask() {
            Some(mask) => D::copied_pairs(mask),
            None => self.shape.iter().map(|size| (D::number(0), size.clone())).collect(),
        }
    }

    /// Returns the lowest and highest buffer index of a real element.
    pub(crate) fn span(&self) -> Span<D> {
        if self.is_padding() || self.is_empty() {
            return Span::Empty;
        }
        let (mut low, mut high) = (self.offset.clone(), self.offset.clone());
        for (axis, stride) in self.strides.iter().enumerate().filter(|(_, stride)| !stride.is(0)) {
            let (begin, end) = self.real(axis);
            let ends = || {
                let last = end.minus(&D::number(1))?;
                let is_up = !stride.is_descending()?;
                let (lowest, highest) = if is_up { (&begin, &last) } else { (&last, &begin) };
                Some((add_product(&low, lowest, stride)?, add_product(&high, highest, stride)?))
            };
            let Some(ends) = ends() else { return Span::Unknown };
            (low, high) = ends;
        }
        Span::Range(low, high)
    }
}

/// Reverses an axis.
pub(crate) fn reverse<D: Dim>(
    size: &D,
    stride: &mut D,
    offset: &mut D,
    pair: Option<&mut (D, D)>,
) -> Option<()> {
    *offset = add_product(offset, &size.minus(&D::number(1))?, stride)?;
    *stride = D::number(0).minus(stride)?;
    if let Some(pair) = pair {
        *pair = (size.minus(&pair.1)?, size.minus(&pair.0)?);
    }
    Some(())
}

/// The range of the elements of its base that a view reads.
pub(crate) enum Span<D> {
    /// It reads none.
    Empty,
    /// The lowest and the highest one.
    Range(D, D),
    /// Unknown, since the sign of a stride depends on variables.
    Unknown,
}

/// Returns `at` relative to the range `bound` of `size` elements, clamped to its ends.
fn inner<D: Dim>(at: &D, bound: &(D, D), size: &D) -> Option<D> {
    min(max(at.minus(&bound.0)?, D::number(0))?, size.clone())
}

/// Returns the mask pair of an axis of size `from` after `expand` to `to`.
fn expanded<D: Dim>(pair: &(D, D), from: &D, to: &D) -> (D, D) {
    if from == to {
        return pair.clone();
    }
    let is_real = pair.0.is(0) && pair.1.is(1);
    (D::number(0), if is_real { to.clone() } else { D::number(0) })
}

/// Returns the number of elements of a shape, which is 0 if any size is. The product of the other
/// sizes must fit in that case, too, so that no reduction or reshape of them can overflow.
pub(crate) fn count<D: Dim>(shape: &[D]) -> Result<D, Error> {
    let (mut product, mut is_empty) = (Some(D::number(1)), false);
    for size in shape {
        if size.is(0) {
            is_empty = true;
        } else if D::number(1).at_most(size) {
            product = product.and_then(|product| product.times(size));
        } else {
            return Err(bad_size(shape));
        }
    }
    let product = product.ok_or_else(|| too_large(shape))?;
    Ok(if is_empty { D::number(0) } else { product })
}

/// Returns the error for a shape without a count.
#[cold]
fn bad_size<D: Dim>(shape: &[D]) -> Error {
    match shape.iter().all(|size| D::number(0).at_most(size)) {
        true => Error::MaybeEmpty { shape: list(shape) },
        false => Error::NegativeSize { shape: list(shape) },
    }
}

/// Returns row-major strides, 0 for axes of size 1.
pub(crate) fn row_major<D: Dim>(shape: &[D]) -> Result<Sizes<D>, Error> {
    let mut strides = zeros(shape.len());
    if count(shape)?.is(0) {
        return Ok(strides);
    }
    let mut next_stride = D::number(1);
    for (stride, size) in strides.iter_mut().zip(shape).rev().filter(|(_, size)| !size.is(1)) {
        *stride = next_stride.clone();
        next_stride = next_stride.times(size).ok_or_else(|| too_large(shape))?;
    }
    Ok(strides)
}

fn is_row_major<D: Dim>(shape: &[D], strides: &[D]) -> bool {
    let mut next_stride = Some(D::number(1));
    shape.iter().zip(strides).rev().all(|(size, stride)| {
        if size.is(1) {
            return stride.is(0);
        }
        let is_equal = next_stride.as_ref() == Some(stride);
        next_stride = next_stride.as_ref().and_then(|next_stride| next_stride.times(size));
        is_equal
    })
}

/// Returns whether all indices over the whole shape fit, including those of padding, the highest
/// one plus one (a size), and the negated lowest one.
fn fits<D: Dim>(shape: &[D], strides: &[D], offset: &D) -> bool {
    let (mut low, mut high) = (offset.clone(), offset.clone());
    for (size, stride) in shape.iter().zip(strides).filter(|(_, stride)| !stride.is(0)) {
        let Some(extent) = size.minus(&D::number(1)).and_then(|last| stride.times(&last)) else {
            return false;
        };
        let is_up = stride.is_descending() == Some(false);
        let end = if is_up { &mut high } else { &mut low };
        let Some(moved) = end.plus(&extent) else { return false };
        *end = moved;
    }
    high.plus(&D::number(1)).is_some() && D::number(0).minus(&low).is_some()
}

#[cold]
pub(crate) fn too_large<D: Dim>(shape: &[D]) -> Error {
    Error::TooLarge { shape: list(shape) }
}

impl<D: Dim> std::fmt::Display for View<D> {
    /// Formats the view like tinygrad: `View(shape=(4, 8), strides=(8, 1), offset=0, mask=None,
    /// contiguous=True)`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "View(shape=")?;
        tuple(f, &self.shape, |f, size| write!(f, "{size}"))?;
        write!(f, ", strides=")?;
        tuple(f, &self.strides, |f, stride| write!(f, "{stride}"))?;
        write!(f, ", offset={}, mask=", self.offset)?;
        match self.mask() {
            None => write!(f, "None")?,
            Some(mask) => tuple(f, mask, |f, (begin, end)| write!(f, "({begin}, {end})"))?,
        }
        write!(f, ", contiguous={})", if self.contiguous { "True" } else { "False" })
    }
}

/// Formats a tuple like Python: `()`, `(5,)`, `(4, 8)`.
pub(crate) fn tuple<T>(
    f: &mut std::fmt::Formatter<'_>,
    items: &[T],
    item: impl Fn(&mut std::fmt::Formatter<'_>, &T) -> std::fmt::Result,
) -> std::fmt::Result {
    write!(f, "(")?;
    for (position, value) in items.iter().enumerate() {
        if position > 0 {
            write!(f, ", ")?;
        }
        item(f, value)?;
    }
    write!(f, "{}", if items.len() == 1 { ",)" } else { ")" })
}
