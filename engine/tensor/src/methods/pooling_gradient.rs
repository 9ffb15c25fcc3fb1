//! Gradients of pooling: what windows give to their elements.
//!
//! Windows begin a stride apart, so an axis is divided into blocks of that size. A window has
//! elements in the block where it begins and in some that follow. For each number of blocks between
//! them there is a term: the windows, moved by that number, give to the elements of the blocks.

use gradiff_graph::DType;

use super::windows::{Extent, Pooling};
use crate::gradient::{divided, shared};
use crate::{Error, Scalar, Tensor};

/// Most terms of a gradient.
const MAX_TERMS: i64 = 64;

/// The windows along an axis of an image, in blocks of a stride.
struct Blocks {
    /// The number of the axis.
    axis: usize,
    /// The size of the axis.
    size: i64,
    /// The number of elements before it in the first block.
    before: i64,
    windows: Extent,
}

impl Blocks {
    /// The number of terms: blocks in which a window has elements.
    fn terms(&self) -> i64 {
        let Extent { kernel, stride, dilation, .. } = self.windows;
        (kernel - 1) * dilation / stride + 1
    }

    fn count(&self) -> i64 {
        self.windows.count + self.terms() - 1
    }

    /// The mask of the elements of a block that a window has that begins `distance` blocks before;
    /// `None` if it has all of them.
    fn mask(&self, distance: i64) -> Result<Option<Tensor>, Error> {
        let Extent { kernel, stride, dilation, .. } = self.windows;
        let first = distance * stride;
        if dilation == 1 && first + stride <= kernel {
            return Ok(None);
        }
        let position = Tensor::arange(DType::I64, first, 1, stride)?;
        let is_within = position.cmplt((kernel - 1) * dilation + 1)?;
        if dilation == 1 {
            return Ok(Some(is_within));
        }
        Ok(Some(is_within.and(&position.floormod(dilation)?.cmpeq(0)?)?))
    }

    /// Moves windows by `distance` blocks: those of each block, 0 where there is none.
    fn windows_of(&self, x: &Tensor, distance: i64) -> Result<Tensor, Error> {
        x.placed(self.axis, distance, self.count())
    }

    /// The elements of the axis in a row of blocks; 0 around them.
    fn row_of(&self, x: &Tensor) -> Result<Tensor, Error> {
        x.placed(self.axis, self.before, self.count() * self.windows.stride)
    }

    /// The elements of the axis from a row of blocks.
    fn out_of_row(&self, x: &Tensor) -> Result<Tensor, Error> {
        x.placed(self.axis, -self.before, self.size)
    }
}

impl Pooling {
    /// The blocks of the last axes of an image; `None` if a window does not fit.
    fn blocks(&self, shape: &[i64]) -> Option<Vec<Blocks>> {
        let first = shape.len().checked_sub(self.kernel.len())?;
        let blocks = (0..self.kernel.len()).map(|axis| {
            let (size, (before, after)) = (shape[first + axis], self.padding[axis]);
            let padded = size.checked_add(before)?.checked_add(after)?;
            let total = padded.checked_add(self.beyond[axis])?;
            let windows =
                Extent::within(total, self.kernel[axis], self.stride[axis], self.dilation[axis])?;
            Some(Blocks { axis: first + axis, size, before, windows })
        });
        blocks.collect()
    }

    /// Returns whether the gradient of the windows has few enough terms.
    pub(super) fn has_few_terms(&self, shape: &[i64]) -> bool {
        let Some(blocks) = self.blocks(shape) else { return false };
        let terms = blocks.iter().map(Blocks::terms);
        terms.fold(1, i64::saturating_mul) <= MAX_TERMS
    }

    /// The numbers as sources of a function: kernels, strides, dilations, the padding before and
    /// after each axis, and what is beyond it.
    pub(super) fn sources(&self) -> Result<Vec<Tensor>, Error> {
        let padding = |side: fn(&(i64, i64)) -> i64| self.padding.iter().map(side);
        let numbers = self.kernel.iter().chain(&self.stride).chain(&self.dilation).copied();
        let numbers = numbers.chain(padding(|pads| pads.0)).chain(padding(|pads| pads.1));
        numbers
            .chain(self.beyond.iter().copied())
            .map(|number| Tensor::full(DType::I64, &[], number))
            .collect()
    }

    /// The pooling of an image of this shape with such sources; `None` if there is none with few
    /// enough terms whose result has this shape.
    pub(crate) fn of_sources(numbers: &[i64], image: &[i64], result: &[i64]) -> Option<Pooling> {
        let axes = numbers.len() / 6;
        let part = |number: usize| numbers[number * axes..(number + 1) * axes].to_vec();
        let fits = 0 < axes
            && 6 * axes == numbers.len()
            && numbers[..3 * axes].iter().all(|number| 1 <= *number)
            && numbers[3 * axes..5 * axes].iter().all(|number| 0 <= *number);
        let pooling = fits.then(|| Pooling {
            kernel: part(0),
            stride: part(1),
            dilation: part(2),
            padding: part(3).into_iter().zip(part(4)).collect(),
            beyond: part(5),
        })?;
        let blocks = pooling.blocks(image)?;
        let outer = &image[..image.len() - axes];
        let counts: Vec<i64> = blocks.iter().map(|blocks| blocks.windows.count).collect();
        let has_shape = [outer, &counts].concat() == result;
        (has_shape && pooling.has_few_terms(image)).then_some(pooling)
    }

    fn blocks_of(&self, image: &Tensor) -> Result<Vec<Blocks>, Error> {
        let why = || Error::Invalid(format!("pooling of {image:?}: a window does not fit"));
        self.blocks(image.shape()).ok_or_else(why)
    }
}

impl Tensor {
    /// The gradient with respect to an image of the largest elements of its windows, which are
    /// `value`, given that with respect to them. Elements that are equally large have equal shares.
    pub(crate) fn gradient_of_largest(
        &self,
        value: &Tensor,
        g: &Tensor,
        pooling: &Pooling,
    ) -> Result<Tensor, Error> {
        let blocks = pooling.blocks_of(self)?;
        let (axes, first) = (blocks.len(), self.rank() - blocks.len());
        let wide = g.dtype().accumulator();
        // NaN equals nothing, so that the padding has no share.
        let windows = self.pooled_windows("max_pool2d", pooling, Scalar::Float(f64::NAN))?;
        let each = value.reshape(&[value.shape(), &vec![1; axes]].concat())?;
        let count = windows.cmpeq(&each)?.cast(wide)?;
        let count = count.reduced_windows(axes, |x, axes| x.sum_kept(axes))?;
        let share = divided(g, &count)?.cast(wide)?.contiguous();
        let mut row = self.clone();
        let (mut split, mut narrow) =
            (self.shape()[..first].to_vec(), self.shape()[..first].to_vec());
        for blocks in &blocks {
            row = blocks.row_of(&row)?;
            split.extend([blocks.count(), blocks.windows.stride]);
            narrow.extend([blocks.count(), 1]);
        }
        let image = row.reshape(&split)?;
        let mut sum = Tensor::zeros(wide, &split)?;
        for distances in products(&blocks.iter().map(Blocks::terms).collect::<Vec<_>>()) {
            let (mut largest, mut part) = (value.clone(), share.clone());
            for (blocks, distance) in blocks.iter().zip(&distances) {
                largest = blocks.windows_of(&largest, *distance)?;
                part = blocks.windows_of(&part, *distance)?;
            }
            let mut is_given = image.cmpeq(&largest.reshape(&narrow)?)?;
            for (number, (blocks, distance)) in blocks.iter().zip(&distances).enumerate() {
                if let Some(mask) = blocks.mask(*distance)? {
                    let mut shape = vec![1; split.len()];
                    shape[first + 2 * number + 1] = blocks.windows.stride;
                    is_given = is_given.and(&mask.reshape(&shape)?)?;
                }
            }
            sum = sum.add(&shared(&is_given, &part.reshape(&narrow)?)?)?;
        }
        let rows = blocks.iter().map(|blocks| blocks.count() * blocks.windows.stride);
        let rows: Vec<i64> = self.shape()[..first].iter().copied().chain(rows).collect();
        let mut image = sum.contiguous().reshape(&rows)?;
        for blocks in &blocks {
            image = blocks.out_of_row(&image)?;
        }
        image.cast(g.dtype())
    }

    /// The gradient with respect to an image of this shape of the sums of its windows, given that
    /// with respect to them, `self`: axis by axis.
    pub(crate) fn gradient_of_sums(
        &self,
        image: &Tensor,
        pooling: &Pooling,
    ) -> Result<Tensor, Error> {
        let wide = self.dtype().accumulator();
        let mut found = self.cast(wide)?;
        for blocks in pooling.blocks_of(image)? {
            let axis = blocks.axis;
            let mut split = found.shape().to_vec();
            split.splice(axis..=axis, [blocks.count(), blocks.windows.stride]);
            let mut sum = Tensor::zeros(wide, &split)?;
            for distance in 0..blocks.terms() {
                let part = blocks.windows_of(&found, distance)?.unsqueeze(axis as i64 + 1)?;
                let part = match blocks.mask(distance)? {
                    Some(mask) => {
                        let mut shape = vec![1; split.len()];
                        shape[axis + 1] = blocks.windows.stride;
                        shared(&mask.reshape(&shape)?, &part)?
                    }
                    None => part,
                };
                sum = sum.add(&part)?;
            }
            split.splice(axis..axis + 2, [blocks.count() * blocks.windows.stride]);
            found = blocks.out_of_row(&sum.contiguous().reshape(&split)?)?;
        }
        found.cast(self.dtype())
    }

    /// Moves the elements along an axis by `distance` into an axis of `size`: 0 where there is none
    /// of them, and those that do not fit are left out.
    fn placed(&self, axis: usize, distance: i64, size: i64) -> Result<Tensor, Error> {
        let (first, end) = ((-distance).max(0), (size - distance).min(self.shape()[axis]));
        if end <= first {
            let mut shape = self.shape().to_vec();
            shape[axis] = size;
            return Tensor::zeros(self.dtype(), &shape);
        }
        self.range(axis, first, end)?.padded(axis, first + distance, size - end - distance)
    }
}

/// All lists of numbers below these, the last number first.
fn products(limits: &[i64]) -> Vec<Vec<i64>> {
    limits.iter().fold(vec![Vec::new()], |lists, limit| {
        let longer = |list: &Vec<i64>| -> Vec<Vec<i64>> {
            (0..*limit).map(|number| [&list[..], &[number]].concat()).collect()
        };
        lists.iter().flat_map(longer).collect()
    })
}
