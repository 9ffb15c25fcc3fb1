//! `reshape` of one view: exact where it answers with a view, `None` where one view cannot say it.

use smallvec::SmallVec;

use crate::Error;
use crate::fault::{self, Fault};
use crate::view::{Mask, Sizes, View, count};

/// Neighbouring axes that act as one: `size` elements `stride` apart, of which those from
/// `real_size` on repeat.
struct Block {
    size: i64,
    stride: i64,
    real_size: i64,
}

impl View {
    /// The same elements in row-major order under another shape; `None` where that takes a second
    /// view.
    /// # Errors
    /// [`Error::Reshape`] if the element counts differ; [`Error::NegativeSize`],
    /// [`Error::TooLarge`].
    pub fn reshape(&self, to: &[i64]) -> Result<Option<View>, Error> {
        if self.shape.as_slice() == to {
            return Ok(Some(self.clone()));
        }
        let (have, want) = (self.size(), count(to)?);
        if have != want {
            return Err(Error::Reshape { from: self.shape.to_vec(), to: to.to_vec(), have, want });
        }
        if self.contiguous || have == 0 {
            return View::create(to, None, 0, None).map(Some);
        }
        if self.is_padding() {
            return Ok((!to.is_empty()).then(|| View::padding(Sizes::from_slice(to))));
        }
        let Some(strides) = new_strides(&self.blocks(), to) else { return Ok(None) };
        let Some(mask) = &self.mask else {
            return Ok(View::build(Sizes::from_slice(to), strides, self.offset, None).ok());
        };
        let Some(new_mask) = new_mask(mask, &self.shape, to) else { return Ok(None) };
        let first = dot(mask, &self.strides).and_then(|sum| self.offset.checked_add(sum));
        let loses = fault::is_active(Fault::ViewReshapeMaskLost); // FAULT view-reshape-mask-lost
        if loses {
            let zeros = Sizes::from_elem(0, to.len());
            return View::build(Sizes::from_slice(to), zeros, first.unwrap_or(0), None).map(Some);
        }
        // The first real element stays the first real element.
        let moved = dot(&new_mask, &strides);
        let offset = first.zip(moved).and_then(|(first, moved)| first.checked_sub(moved));
        let Some(offset) = offset else { return Ok(None) };
        Ok(View::build(Sizes::from_slice(to), strides, offset, Some(new_mask)).ok())
    }

    /// The same elements in row-major order with as few axes as one view can have.
    pub fn minify(&self) -> View {
        if self.shape.contains(&0) {
            return View::empty(&[0]);
        }
        let sizes: Sizes = self.blocks().iter().map(|block| block.size).collect();
        self.reshape(&sizes).ok().flatten().unwrap_or_else(|| self.clone())
    }

    /// Merges each axis into the next where strides allow, or where only one of its indices is
    /// real.
    fn blocks(&self) -> SmallVec<[Block; 4]> {
        let mut blocks: SmallVec<[Block; 4]> = SmallVec::new();
        let mut merging = false;
        for (axis, (&size, &stride)) in self.shape.iter().zip(&self.strides).enumerate() {
            if axis > 0 && size == 1 {
                continue;
            }
            match blocks.last_mut() {
                None => {
                    let real_size = if stride == 0 { 0 } else { size };
                    blocks.push(Block { size, stride, real_size });
                }
                Some(last) if merging || size.checked_mul(stride) == Some(last.stride) => {
                    let real_size = if merging { size } else { last.real_size * size };
                    *last = Block { size: last.size * size, stride, real_size };
                }
                Some(_) => blocks.push(Block { size, stride, real_size: size }),
            }
            merging = match &self.mask {
                Some(mask) => mask[axis].1 - mask[axis].0 == 1,
                None => size == 1,
            };
        }
        blocks
    }
}

/// Strides of `to` such that each block is split into whole axes; `None` where an axis would
/// straddle two.
fn new_strides(blocks: &[Block], to: &[i64]) -> Option<Sizes> {
    let mut strides = Sizes::from_elem(0, to.len());
    let mut axis = to.len();
    for block in blocks.iter().rev() {
        let (mut covered, mut stride) = (1i64, block.stride);
        while covered < block.size && axis > 0 {
            axis -= 1;
            strides[axis] = stride.checked_mul(covered)?;
            covered = covered.checked_mul(to[axis])?;
            if covered >= block.real_size {
                stride = 0;
            }
        }
        if covered != block.size {
            return None;
        }
    }
    Some(strides)
}

/// The mask after a reshape, from the innermost axis outwards; `None` where it is no longer one
/// box.
fn new_mask(mask: &[(i64, i64)], from: &[i64], to: &[i64]) -> Option<Mask> {
    let mut old = from.iter().copied().zip(mask.iter().copied()).rev();
    let mut next_old = || old.next().unwrap_or((1, (0, 1)));
    let mut result = Mask::from_elem((0, 1), to.len());
    let mut axis = to.len();
    let (mut size, (mut begin, mut end)) = next_old();
    let mut step = 1;
    while axis > 0 {
        let next_step = to[axis - 1].checked_mul(step)?;
        if size == next_step {
            axis -= 1;
            result[axis] = (begin / step, (end - 1) / step + 1);
            (size, (begin, end)) = next_old();
            step = 1;
        } else if size > next_step {
            let aligned = begin % next_step == 0 && end % next_step == 0;
            if size % next_step != 0 || !aligned && begin / next_step != (end - 1) / next_step {
                return None;
            }
            axis -= 1;
            result[axis] = (begin % next_step / step, (end - 1) % next_step / step + 1);
            step = next_step;
        } else {
            let (outer_size, (outer_begin, outer_end)) = next_old();
            if (begin, end) != (0, size) && outer_end - outer_begin != 1 {
                return None;
            }
            begin += outer_begin * size;
            end += (outer_end - 1) * size;
            size *= outer_size;
        }
    }
    Some(result)
}

fn dot(mask: &[(i64, i64)], strides: &[i64]) -> Option<i64> {
    mask.iter()
        .zip(strides)
        .try_fold(0i64, |sum, (&(begin, _), &stride)| sum.checked_add(begin.checked_mul(stride)?))
}
