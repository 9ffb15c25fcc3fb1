//! `reshape` of a view: exact if it returns a view; `None` if the result is not a single view, or
//! is not proven to be one.

use std::cmp::Ordering;

use smallvec::SmallVec;

use crate::dim::{Mask, Sizes, add_product, zeros};
use crate::error::list;
use crate::view::{View, count};
use crate::{Dim, Error};

/// Adjacent axes that act as one: `size` elements `stride` apart, of which those from `real_size`
/// on repeat.
struct Block<D> {
    size: D,
    stride: D,
    real_size: D,
}

impl<D: Dim> View<D> {
    /// Reshapes the view: the same elements in row-major order; `None` if that takes a second view.
    /// # Errors
    /// [`Error::Reshape`] if the element counts differ (for some values of the variables);
    /// [`Error::NegativeSize`], [`Error::TooLarge`].
    pub fn reshape(&self, to: &[D]) -> Result<Option<View<D>>, Error> {
        if self.shape.as_slice() == to {
            return Ok(Some(self.clone()));
        }
        let count = self.reshapes_to(to)?;
        if self.contiguous || count.is(0) {
            return View::plain(to).map(Some);
        }
        if self.is_padding() {
            return Ok((!to.is_empty()).then(|| View::padding(D::copied(to))));
        }
        let Some(strides) = self.blocks(false).and_then(|blocks| new_strides(&blocks, to)) else {
            return Ok(None);
        };
        let Some(mask) = self.mask() else {
            return Ok(View::build(D::copied(to), strides, self.offset.clone(), Mask::new()).ok());
        };
        let Some(new_mask) = new_mask(mask, &self.shape, to) else { return Ok(None) };
        let first = dot(self.offset.clone(), mask, &self.strides);
        // The first real element stays the first one.
        let moved = dot(D::number(0), &new_mask, &strides);
        let offset = first.zip(moved).and_then(|(first, moved)| first.minus(&moved));
        let Some(offset) = offset else { return Ok(None) };
        Ok(View::build(D::copied(to), strides, offset, new_mask).ok())
    }

    /// Checks that another shape has as many elements; returns their number.
    /// # Errors
    /// Those of `reshape`.
    pub(crate) fn reshapes_to(&self, to: &[D]) -> Result<D, Error> {
        let (have, want) = (self.size(), count(to)?);
        if have == want {
            return Ok(have);
        }
        let (from, to) = (list(&self.shape), list(to));
        Err(Error::Reshape { from, to, have: have.to_string(), want: want.to_string() })
    }

    /// Returns a view of the same elements in row-major order with as few axes as possible.
    pub fn minify(&self) -> View<D> {
        if self.is_empty() {
            return View::empty(&[D::number(0)]);
        }
        if self.is_padding() {
            return View::padding(SmallVec::from_elem(self.size(), 1));
        }
        let sizes = self
            .blocks(true)
            .map(|blocks| blocks.into_iter().map(|block| block.size).collect::<Sizes<D>>());
        let minified = sizes.and_then(|sizes| self.reshape(&sizes).ok().flatten());
        minified.unwrap_or_else(|| self.clone())
    }

    /// Merges each axis into the next if the strides allow it, or if only one of its indices is
    /// real; if `is_boxed`, only if the mask remains a box.
    fn blocks(&self, is_boxed: bool) -> Option<SmallVec<[Block<D>; 4]>> {
        let mut blocks: SmallVec<[Block<D>; 4]> = SmallVec::new();
        let mut is_merging = false;
        for (axis, (size, stride)) in self.shape.iter().zip(&self.strides).enumerate() {
            if axis > 0 && size.is(1) {
                continue;
            }
            let is_whole = match self.mask() {
                Some(mask) if is_boxed => mask[axis].0.is(0) && mask[axis].1 == *size,
                _ => true,
            };
            let (size, stride, real_size) = (size.clone(), stride.clone(), size.clone());
            let fits = |last: &Block<D>| {
                is_merging || is_whole && size.times(&stride).as_ref() == Some(&last.stride)
            };
            match blocks.last_mut() {
                None => {
                    let real_size = if stride.is(0) { D::number(0) } else { real_size };
                    blocks.push(Block { size, stride, real_size });
                }
                Some(last) if fits(last) => {
                    let real_size = match is_merging {
                        true => real_size,
                        false => last.real_size.times(&size)?,
                    };
                    *last = Block { size: last.size.times(&size)?, stride, real_size };
                }
                Some(_) => blocks.push(Block { size, stride, real_size }),
            }
            is_merging = match self.mask() {
                Some(mask) => mask[axis].1.minus(&mask[axis].0)?.is(1),
                None => self.shape[axis].is(1),
            };
        }
        Some(blocks)
    }
}

/// Returns the strides of the shape `to`, in which each block is split into axes; `None` if an axis
/// is in two blocks.
fn new_strides<D: Dim>(blocks: &[Block<D>], to: &[D]) -> Option<Sizes<D>> {
    let mut strides = zeros(to.len());
    let mut axis = to.len();
    for block in blocks.iter().rev() {
        let (mut covered, mut stride) = (D::number(1), block.stride.clone());
        while covered != block.size {
            axis = axis.checked_sub(1)?;
            strides[axis] = stride.times(&covered)?;
            covered = covered.times(&to[axis])?;
            if block.real_size.compare(&covered)? != Ordering::Greater {
                stride = D::number(0);
            }
        }
    }
    Some(strides)
}

/// Returns the mask after a reshape, computed from the innermost axis outwards; `None` if it is not
/// a box.
fn new_mask<D: Dim>(mask: &[(D, D)], from: &[D], to: &[D]) -> Option<Mask<D>> {
    let (zero, unit) = (D::number(0), D::number(1));
    let mut old = from.iter().cloned().zip(mask.iter().cloned()).rev();
    let mut next_old = || old.next().unwrap_or((D::number(1), (D::number(0), D::number(1))));
    let mut result = Mask::from_elem((zero.clone(), unit.clone()), to.len());
    let mut axis = to.len();
    let (mut size, (mut begin, mut end)) = next_old();
    let mut stride = unit.clone();
    while axis > 0 {
        // The formulas below hold for non-empty ranges.
        if !begin.below(&end) {
            return None;
        }
        let next_stride = to[axis - 1].times(&stride)?;
        let last = end.minus(&unit)?;
        match size.compare(&next_stride)? {
            Ordering::Equal => {
                axis -= 1;
                let last = last.div_rem(&stride)?.0;
                result[axis] = (begin.div_rem(&stride)?.0, last.plus(&unit)?);
                (size, (begin, end)) = next_old();
                stride = unit.clone();
            }
            Ordering::Greater => {
                let (outer, inner) = begin.div_rem(&next_stride)?;
                let (last_outer, last_inner) = last.div_rem(&next_stride)?;
                let is_aligned = inner.is(0) && end.div_rem(&next_stride)?.1.is(0);
                if !size.div_rem(&next_stride)?.1.is(0) || !is_aligned && outer != last_outer {
                    return None;
                }
                axis -= 1;
                let last = last_inner.div_rem(&stride)?.0;
                result[axis] = (inner.div_rem(&stride)?.0, last.plus(&unit)?);
                stride = next_stride;
            }
            Ordering::Less => {
                let (outer_size, (outer_begin, outer_end)) = next_old();
                let outer_last = outer_end.minus(&unit)?;
                if !(begin.is(0) && end == size) && outer_last != outer_begin {
                    return None;
                }
                begin = add_product(&begin, &outer_begin, &size)?;
                end = add_product(&end, &outer_last, &size)?;
                size = size.times(&outer_size)?;
            }
        }
    }
    Some(result)
}

/// Adds the offset of the first element of the mask to `sum`.
fn dot<D: Dim>(sum: D, mask: &[(D, D)], strides: &[D]) -> Option<D> {
    mask.iter()
        .zip(strides)
        .try_fold(sum, |sum, ((begin, _), stride)| add_product(&sum, begin, stride))
}
