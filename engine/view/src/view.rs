//! One view: shape, strides, offset and mask over a flat buffer, kept in one canonical form, and
//! its movement ops.
//!
//! Element `i` lies at `offset + sum(i[a] * strides[a])` where `begin[a] <= i[a] < end[a]` for each
//! axis of the mask, and is padding (zero) elsewhere. It refuses whatever has an element or index
//! that an `i64` cannot hold.

use smallvec::SmallVec;

use crate::Error;
use crate::fault::{self, Fault};

pub(crate) type Sizes = SmallVec<[i64; 4]>;
pub(crate) type Mask = SmallVec<[(i64, i64); 4]>;

/// An immutable view in canonical form: equal meaning mostly gives equal values.
///
/// Axes of size 1 and axes of which one index is real have stride 0; a mask that hides nothing is
/// `None`; a view all of padding has stride 0 and mask (0, 0) everywhere; a view without elements
/// has stride 0, no mask.
#[derive(Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct View {
    pub(crate) shape: Sizes,
    pub(crate) strides: Sizes,
    pub(crate) offset: i64,
    pub(crate) mask: Option<Mask>,
    pub(crate) contiguous: bool,
}

impl Clone for View {
    // `SmallVec::clone` goes element by element; `from_slice` is one copy.
    fn clone(&self) -> View {
        View {
            shape: Sizes::from_slice(&self.shape),
            strides: Sizes::from_slice(&self.strides),
            offset: self.offset,
            mask: self.mask.as_ref().map(|mask| Mask::from_slice(mask)),
            contiguous: self.contiguous,
        }
    }
}

impl View {
    /// A view in canonical form; row-major strides where `strides` is `None`.
    /// # Errors
    /// [`Error::NegativeSize`], [`Error::TooLarge`], or [`Error::View`] if ranks differ or the mask
    /// leaves the shape.
    pub fn create(
        shape: &[i64],
        strides: Option<&[i64]>,
        offset: i64,
        mask: Option<&[(i64, i64)]>,
    ) -> Result<View, Error> {
        let bad_strides = strides.is_some_and(|strides| strides.len() != shape.len());
        let bad_mask = mask.is_some_and(|mask| {
            mask.len() != shape.len()
                || mask.iter().zip(shape).any(|(&(begin, end), &size)| begin < 0 || size < end)
        });
        if bad_strides || bad_mask {
            return Err(Error::View { shape: shape.to_vec() });
        }
        let strides = match strides {
            Some(strides) => Sizes::from_slice(strides),
            None => row_major(shape)?,
        };
        View::build(Sizes::from_slice(shape), strides, offset, mask.map(Mask::from_slice))
    }

    /// Size of each axis.
    pub fn shape(&self) -> &[i64] {
        &self.shape
    }

    /// Elements to move in the buffer for one step along each axis.
    pub fn strides(&self) -> &[i64] {
        &self.strides
    }

    /// Where index (0, 0, ...) would lie in the buffer; negative where that is padding.
    pub fn offset(&self) -> i64 {
        self.offset
    }

    /// The half-open range of each axis that is not padding; `None` where all is real.
    pub fn mask(&self) -> Option<&[(i64, i64)]> {
        self.mask.as_deref()
    }

    /// Whether element `i` in row-major order lies at `i`: offset 0, no mask, row-major strides.
    pub fn is_contiguous(&self) -> bool {
        self.contiguous
    }

    /// Number of elements.
    pub fn size(&self) -> i64 {
        // Beside a 0 the other sizes may be too large to multiply.
        if self.shape.contains(&0) { 0 } else { self.shape.iter().product() }
    }

    /// Puts axis `axes[i]` in place `i`.
    /// # Errors
    /// [`Error::Permute`] unless each axis appears once.
    pub fn permute(&self, axes: &[usize]) -> Result<View, Error> {
        let rank = self.shape.len();
        let mut seen: SmallVec<[bool; 8]> = SmallVec::from_elem(false, rank);
        let once = |&axis: &usize| axis < rank && !std::mem::replace(&mut seen[axis], true);
        if axes.len() != rank || !axes.iter().all(once) {
            return Err(Error::Permute { shape: self.shape.to_vec(), axes: axes.to_vec() });
        }
        View::build(
            axes.iter().map(|&axis| self.shape[axis]).collect(),
            axes.iter().map(|&axis| self.strides[axis]).collect(),
            self.offset,
            self.mask.as_ref().map(|mask| axes.iter().map(|&axis| mask[axis]).collect()),
        )
    }

    /// Repeats axes of size 1: [a, 1, c] to [a, b, c] with stride 0.
    /// # Errors
    /// [`Error::Expand`] if ranks differ or an axis is neither 1 nor equal;
    /// [`Error::NegativeSize`], [`Error::TooLarge`].
    pub fn expand(&self, to: &[i64]) -> Result<View, Error> {
        let fits = |(&have, &want): (&i64, &i64)| have == want || have == 1;
        if to.len() != self.shape.len() || !self.shape.iter().zip(to).all(fits) {
            return Err(Error::Expand { from: self.shape.to_vec(), to: to.to_vec() });
        }
        let mask = self.mask.as_ref().map(|mask| {
            let pairs = mask.iter().zip(&self.shape).zip(to);
            pairs.map(|((&pair, &have), &want)| expanded(pair, have, want)).collect()
        });
        let mask = kept(self).or(mask); // FAULT view-expand-mask-kept
        let strides = Sizes::from_slice(&self.strides);
        View::build(Sizes::from_slice(to), strides, self.offset, mask)
    }

    /// Puts zeros (before, after) each axis.
    /// # Errors
    /// [`Error::Pad`] if ranks differ or an amount is negative; [`Error::TooLarge`].
    pub fn pad(&self, amounts: &[(i64, i64)]) -> Result<View, Error> {
        let rank = self.shape.len();
        if amounts.len() != rank || amounts.iter().any(|&(before, after)| before < 0 || after < 0) {
            return Err(Error::Pad { shape: self.shape.to_vec(), amounts: amounts.to_vec() });
        }
        if amounts.iter().all(|&pair| pair == (0, 0)) {
            return Ok(self.clone());
        }
        let (mut shape, mut offset, mut mask) = (Sizes::new(), Some(self.offset), Mask::new());
        for (axis, &(before, after)) in amounts.iter().enumerate() {
            let size = self.shape[axis];
            let total = size.checked_add(before).and_then(|sum| sum.checked_add(after));
            shape.push(total.ok_or_else(|| too_large(&self.shape))?);
            let moved = self.strides[axis].checked_mul(before);
            offset = offset.zip(moved).and_then(|(offset, moved)| offset.checked_sub(moved));
            let (begin, end) = self.mask.as_ref().map_or((0, size), |mask| mask[axis]);
            mask.push((begin + before, end + before));
        }
        widen(self, amounts, &mut mask); // FAULT view-pad-mask-wide
        let offset = offset.ok_or_else(|| too_large(&shape))?;
        View::build(shape, Sizes::from_slice(&self.strides), offset, Some(mask))
    }

    /// Keeps the half-open (begin, end) of each axis.
    /// # Errors
    /// [`Error::Shrink`] if ranks differ or a bound leaves the axis.
    pub fn shrink(&self, bounds: &[(i64, i64)]) -> Result<View, Error> {
        let inside =
            |(&(begin, end), &size): (&(i64, i64), &i64)| 0 <= begin && begin <= end && end <= size;
        if bounds.len() != self.shape.len() || !bounds.iter().zip(&self.shape).all(inside) {
            return Err(Error::Shrink { shape: self.shape.to_vec(), bounds: bounds.to_vec() });
        }
        let shape: Sizes = bounds.iter().map(|&(begin, end)| end - begin).collect();
        let pairs = bounds.iter().zip(&self.strides);
        // `build` saw that every index of this view fits; an empty result may stand one step
        // outside.
        let offset = pairs.fold(self.offset, |sum, (&(begin, _), &stride)| {
            sum.wrapping_add(stride.wrapping_mul(begin))
        });
        let mask = self.mask.as_ref().map(|mask| {
            let pairs = mask.iter().zip(bounds);
            let cut = |at: i64, (begin, end): (i64, i64)| (at - begin).clamp(0, end - begin);
            pairs.map(|(&(begin, end), &bound)| (cut(begin, bound), cut(end, bound))).collect()
        });
        View::build(shape, Sizes::from_slice(&self.strides), offset, mask)
    }

    /// Turns the flagged axes around: index `i` reads what `size - 1 - i` read.
    /// # Errors
    /// [`Error::Flip`] if ranks differ.
    pub fn flip(&self, axes: &[bool]) -> Result<View, Error> {
        if axes.len() != self.shape.len() {
            return Err(Error::Flip { shape: self.shape.to_vec(), axes: axes.to_vec() });
        }
        let (mut strides, mut offset) = (Sizes::from_slice(&self.strides), self.offset);
        let mut mask = self.mask.as_ref().map(|mask| Mask::from_slice(mask));
        let keeps = fault::is_active(Fault::ViewFlipOffset); // FAULT view-flip-offset
        let turned = axes.len() - usize::from(keeps && !axes.is_empty());
        for axis in (0..turned).filter(|&axis| axes[axis]) {
            let size = self.shape[axis];
            offset += (size - 1) * strides[axis];
            strides[axis] = -strides[axis];
            if let Some(pair) = mask.as_mut().map(|mask| &mut mask[axis]) {
                *pair = (size - pair.1, size - pair.0);
            }
        }
        View::build(Sizes::from_slice(&self.shape), strides, offset, mask)
    }

    /// Makes the canonical form; every view comes from here. Ranks agree and the mask lies in the
    /// shape.
    pub(crate) fn build(
        shape: Sizes,
        mut strides: Sizes,
        mut offset: i64,
        mut mask: Option<Mask>,
    ) -> Result<View, Error> {
        assert!(strides.len() == shape.len(), "one stride per axis");
        if count(&shape)? == 0 {
            return Ok(View::empty(&shape));
        }
        for (stride, &size) in strides.iter_mut().zip(&shape) {
            if size == 1 {
                *stride = 0;
            }
        }
        if let Some(pairs) = &mask {
            assert!(pairs.len() == shape.len(), "one mask pair per axis");
            if pairs.iter().zip(&shape).all(|(&pair, &size)| pair == (0, size)) {
                mask = None;
            } else if pairs.iter().any(|&(begin, end)| end <= begin) {
                return Ok(View::padding(shape));
            } else {
                for (stride, &(begin, end)) in strides.iter_mut().zip(pairs) {
                    if end - begin == 1 {
                        let moved = stride.checked_mul(begin);
                        let sum = moved.and_then(|moved| offset.checked_add(moved));
                        offset = sum.ok_or_else(|| too_large(&shape))?;
                        *stride = 0;
                    }
                }
            }
        }
        if reach(&shape, &strides, offset).is_none() {
            return Err(too_large(&shape));
        }
        let contiguous = offset == 0 && mask.is_none() && is_row_major(&shape, &strides);
        Ok(View { shape, strides, offset, mask, contiguous })
    }

    /// A view without elements: some size is 0.
    pub(crate) fn empty(shape: &[i64]) -> View {
        assert!(shape.contains(&0), "a view without elements has a size 0");
        let (shape, strides) = (Sizes::from_slice(shape), Sizes::from_elem(0, shape.len()));
        View { shape, strides, offset: 0, mask: None, contiguous: true }
    }

    /// A view all of padding: rank 1 or more, no size 0.
    pub(crate) fn padding(shape: Sizes) -> View {
        assert!(!shape.is_empty(), "a rank 0 view has no mask to hide its element");
        let (strides, mask) =
            (Sizes::from_elem(0, shape.len()), Some(Mask::from_elem((0, 0), shape.len())));
        View { shape, strides, offset: 0, mask, contiguous: false }
    }

    /// Whether there are elements and all are padding.
    pub(crate) fn is_padding(&self) -> bool {
        self.mask.as_ref().is_some_and(|mask| mask.contains(&(0, 0)))
    }

    /// The lowest and highest buffer index of a real element; `None` where there is none.
    pub(crate) fn span(&self) -> Option<(i64, i64)> {
        if self.is_padding() || self.shape.contains(&0) {
            return None;
        }
        let (mut low, mut high) = (self.offset, self.offset);
        for (axis, &stride) in self.strides.iter().enumerate() {
            let (begin, end) = self.mask.as_ref().map_or((0, self.shape[axis]), |mask| mask[axis]);
            let (first, last) = (begin * stride, (end - 1) * stride);
            low += first.min(last);
            high += first.max(last);
        }
        Some((low, high))
    }
}

/// The mask pair of an axis of size `have` after `expand` to `want`.
fn expanded(pair: (i64, i64), have: i64, want: i64) -> (i64, i64) {
    if have == want {
        return pair;
    }
    if pair == (0, 1) { (0, want) } else { (0, 0) }
}

/// The planted fault of `expand`: the mask from before, also the one that hides nothing of an axis
/// of size 1 and that a view starting at the first buffer element without padding does not write
/// down.
fn kept(view: &View) -> Option<Mask> {
    if !fault::is_active(Fault::ViewExpandMaskKept) || view.mask.is_none() && view.offset == 0 {
        return None;
    }
    Some(view.mask.clone().unwrap_or_else(|| view.shape.iter().map(|&size| (0, size)).collect()))
}

/// The planted fault of `pad`: the mask of one axis lets one element too many through, where that
/// lies inside the buffer: what `shrink` had cut off, or one more of what repeats.
fn widen(view: &View, amounts: &[(i64, i64)], mask: &mut [(i64, i64)]) {
    if !fault::is_active(Fault::ViewPadMaskWide) {
        return;
    }
    let Some((low, _)) = view.span() else { return };
    for (axis, &(before, after)) in amounts.iter().enumerate() {
        let stride = view.strides[axis];
        if 0 < before && 0 <= stride && stride <= low {
            mask[axis].0 -= 1;
            return;
        }
        if 0 < after && stride < 0 && -stride <= low {
            mask[axis].1 += 1;
            return;
        }
    }
}

/// Number of elements of a shape. 0 where any size is 0, however large the others are.
pub(crate) fn count(shape: &[i64]) -> Result<i64, Error> {
    if shape.iter().any(|&size| size < 0) {
        return Err(Error::NegativeSize { shape: shape.to_vec() });
    }
    if shape.contains(&0) {
        return Ok(0);
    }
    let product = shape.iter().try_fold(1i64, |product, &size| product.checked_mul(size));
    product.ok_or_else(|| too_large(shape))
}

/// Row-major strides, 0 for axes of size 1.
pub(crate) fn row_major(shape: &[i64]) -> Result<Sizes, Error> {
    let mut strides = Sizes::from_elem(0, shape.len());
    if count(shape)? == 0 {
        return Ok(strides);
    }
    let mut step = 1;
    for (stride, &size) in strides.iter_mut().zip(shape).rev() {
        *stride = if size == 1 { 0 } else { step };
        step *= size;
    }
    Ok(strides)
}

fn is_row_major(shape: &[i64], strides: &[i64]) -> bool {
    let mut step = 1;
    shape.iter().zip(strides).rev().all(|(&size, &stride)| {
        let wanted = if size == 1 { 0 } else { step };
        step *= size;
        stride == wanted
    })
}

/// Lowest and highest index over the whole shape, padding too; `None` on overflow.
fn reach(shape: &[i64], strides: &[i64], offset: i64) -> Option<(i64, i64)> {
    let (mut low, mut high) = (offset, offset);
    for (&size, &stride) in shape.iter().zip(strides) {
        let extent = stride.checked_mul(size - 1)?;
        low = low.checked_add(extent.min(0))?;
        high = high.checked_add(extent.max(0))?;
    }
    // One beyond the highest is asked for as a size, and the lowest turned around.
    high.checked_add(1).and(low.checked_neg()).map(|_| (low, high))
}

pub(crate) fn too_large(shape: &[i64]) -> Error {
    Error::TooLarge { shape: shape.to_vec() }
}

impl std::fmt::Display for View {
    /// tinygrad's spelling: `View(shape=(4, 8), strides=(8, 1), offset=0, mask=None,
    /// contiguous=True)`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "View(shape=")?;
        tuple(f, &self.shape, |f, size| write!(f, "{size}"))?;
        write!(f, ", strides=")?;
        tuple(f, &self.strides, |f, stride| write!(f, "{stride}"))?;
        write!(f, ", offset={}, mask=", self.offset)?;
        match &self.mask {
            None => write!(f, "None")?,
            Some(mask) => tuple(f, mask, |f, (begin, end)| write!(f, "({begin}, {end})"))?,
        }
        write!(f, ", contiguous={})", if self.contiguous { "True" } else { "False" })
    }
}

/// Python's spelling of a tuple: `()`, `(5,)`, `(4, 8)`.
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
