//! Methods that compare elements with each other. A sort counts, for each element of a block, those
//! that come before it there, which is its position, and then merges the blocks in pairs: each
//! position of a merged run finds by bisection how many elements of the first run precede it. The
//! `k` first of many elements are in the `k` blocks whose first elements come first, so that only
//! the first elements of blocks are ordered, and then the elements of those blocks.

use gradiff_graph::{DType, Op};

use crate::axes::resolve_axis;
use crate::error::invalid;
use crate::methods::movement::ceil_div;
use crate::tensor::{MAX_ELEMENTS, check_reduced};
use crate::{Axes, Error, Scalar, Tensor, keepdim};

/// Maximum size of an axis that is sorted by counting alone, whose work grows with its square.
const COUNTED_MAX: i64 = 512;
/// Size of the blocks of a longer axis that are sorted by counting, and then merged.
const SORTED_BLOCK: i64 = 128;
/// The number of comparisons of a sort by counting from which on choosing blocks takes less time,
/// in spite of its launches.
const CHOSEN_COMPARISONS: i64 = 1 << 19;
/// Minimum size of an axis of which blocks are chosen, whatever the number of rows.
const CHOSEN_AXIS_MIN: i64 = 64;
/// Minimum number of elements for each that is looked for, so that the chosen blocks have few.
const CHOSEN_RATIO: i64 = 8;

impl Tensor {
    /// Elements along `axis` in ascending or descending order. Equal elements, such as zeros of
    /// both signs, keep their order; NaN is above all numbers. All dtypes; elements are copied bit
    /// by bit.
    /// # Errors
    /// If the axis does not exist, or the number of elements times the size of the axis is 2^48 or
    /// more.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[3], &[2.0, f32::NAN, 1.0])?;
    /// assert_eq!(x.sort(0, false)?.to_text()?, "[1.0, 2.0, NaN]");
    /// assert_eq!(x.sort(0, true)?.to_text()?, "[NaN, 2.0, 1.0]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn sort(&self, axis: i64, descending: bool) -> Result<Tensor, Error> {
        let axis = self.sorted_axis("sort", axis)?;
        let x = self.contiguous();
        x.gather(axis as i64, &x.positions_in_order(axis, descending, self.shape()[axis])?)
    }

    /// Positions (i32) along `axis` of the elements in the order of [`sort`](Tensor::sort).
    /// # Errors
    /// As `sort`.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[4], &[3, 1, 3, 2])?;
    /// assert_eq!(x.argsort(0, false)?.to_text()?, "[1, 3, 0, 2]");
    /// assert_eq!(x.argsort(0, true)?.to_text()?, "[0, 2, 3, 1]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn argsort(&self, axis: i64, descending: bool) -> Result<Tensor, Error> {
        let axis = self.sorted_axis("argsort", axis)?;
        self.contiguous().positions_in_order(axis, descending, self.shape()[axis])
    }

    /// The `k` largest or smallest elements along `axis` and their positions (i32), both in the
    /// order of [`sort`](Tensor::sort): descending for the largest.
    /// # Errors
    /// As `sort`, and if `k` is negative or above the size of the axis.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let (values, positions) = Tensor::from_slice(&[4], &[3, 1, 4, 2])?.topk(2, 0, true)?;
    /// assert_eq!(values.to_text()?, "[4, 3]");
    /// assert_eq!(positions.to_text()?, "[2, 0]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn topk(&self, k: i64, axis: i64, largest: bool) -> Result<(Tensor, Tensor), Error> {
        let axis = self.sorted_axis("topk", axis)?;
        if !(0..=self.shape()[axis]).contains(&k) {
            return invalid(format!(
                "topk of {:?}: {k} of {} elements along axis {axis}",
                self.shape(),
                self.shape()[axis]
            ));
        }
        let x = self.contiguous();
        let positions = x.positions_in_order(axis, largest, k)?;
        Ok((x.gather(axis as i64, &positions)?, positions))
    }

    /// Position (i32) of the largest element along an axis, or in row-major order for all axes: the
    /// first of equal ones, and of the first NaN if there is one. All dtypes.
    /// # Errors
    /// If the axes are neither one nor all, the axis does not exist, or there is no element.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[2, 2], &[1, 2, 4, 3])?;
    /// assert_eq!(x.argmax(1)?.to_text()?, "[1, 0]");
    /// assert_eq!(x.argmax(..)?.to_text()?, "2");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn argmax(&self, axis: impl Into<Axes>) -> Result<Tensor, Error> {
        self.reduced("argmax", axis.into(), |x, axes| {
            x.extreme_position("argmax", axes, |x, axis| Ok(x.max_kept(&[axis])))
        })
    }

    /// Position (i32) of the smallest element, as [`argmax`](Tensor::argmax).
    /// # Errors
    /// As `argmax`.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[2, 2], &[1, 2, 4, 3])?;
    /// assert_eq!(x.argmin(-1)?.to_text()?, "[0, 1]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn argmin(&self, axis: impl Into<Axes>) -> Result<Tensor, Error> {
        self.reduced("argmin", axis.into(), |x, axes| {
            x.extreme_position("argmin", axes, |x, axis| x.min(keepdim(axis as i64)))
        })
    }

    /// Smallest element up to each position along `axis`; NaN from the first NaN on.
    /// # Errors
    /// If the axis does not exist.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[4], &[3, 1, 2, 0])?;
    /// assert_eq!(x.cummin(0)?.to_text()?, "[3, 1, 1, 0]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn cummin(&self, axis: i64) -> Result<Tensor, Error> {
        resolve_axis("cummin", axis, self.shape())?;
        // The complement turns the order of integers and bools, and never overflows.
        match self.dtype().is_float() {
            true => self.neg()?.cummax(axis)?.neg(),
            false => self.not()?.cummax(axis)?.not(),
        }
    }

    /// Returns whether an element along `axes` is not 0 (true for bool; NaN is not 0); false if
    /// there are none. All dtypes.
    /// # Errors
    /// If an axis does not exist or appears twice.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[2, 2], &[0, 0, 4, 0])?;
    /// assert_eq!(x.any(1)?.to_text()?, "[false, true]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn any(&self, axes: impl Into<Axes>) -> Result<Tensor, Error> {
        self.reduced("any", axes.into(), |x, axes| Ok(x.cast(DType::Bool)?.max_kept(axes)))
    }

    /// Returns whether all elements along `axes` are not 0 (true for bool; NaN is not 0); true if
    /// there are none. All dtypes.
    /// # Errors
    /// If an axis does not exist or appears twice.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[2, 2], &[1, 2, 4, 0])?;
    /// assert_eq!(x.all(1)?.to_text()?, "[true, false]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn all(&self, axes: impl Into<Axes>) -> Result<Tensor, Error> {
        self.reduced("all", axes.into(), |x, axes| x.cast(DType::Bool)?.not()?.max_kept(axes).not())
    }

    /// Number (i32) of elements along `axes` that are not 0; NaN is not 0. All dtypes.
    /// # Errors
    /// If an axis does not exist or appears twice.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[2, 2], &[1, 2, 4, 0])?;
    /// assert_eq!(x.count_nonzero(..)?.to_text()?, "3");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn count_nonzero(&self, axes: impl Into<Axes>) -> Result<Tensor, Error> {
        self.reduced("count_nonzero", axes.into(), |x, axes| x.cast(DType::Bool)?.sum_kept(axes))
    }

    /// The number of an axis that can be sorted.
    fn sorted_axis(&self, name: &str, axis: i64) -> Result<usize, Error> {
        let axis = resolve_axis(name, axis, self.shape())?;
        let size = self.shape()[axis];
        if size <= i64::from(i32::MAX) && check_reduced(&[self.shape(), &[size]].concat()).is_ok() {
            return Ok(axis);
        }
        invalid(format!(
            "{name} along axis {axis} of {:?}: the elements times the size of the axis are 2^48 or \
             more",
            self.shape()
        ))
    }

    /// Returns the positions of the `k` first elements in order; a buffer of its own.
    fn positions_in_order(&self, axis: usize, descending: bool, k: i64) -> Result<Tensor, Error> {
        let keys = self.transpose(axis as i64, -1)?.sort_keys(descending)?;
        let positions = first_positions(&keys, k)?;
        Ok(positions.transpose(axis as i64, -1)?.contiguous())
    }

    /// Integers in the order of the elements, or in the reverse order: equal for equal elements, as
    /// zeros of both signs are, and the largest one for NaN.
    fn sort_keys(&self, descending: bool) -> Result<Tensor, Error> {
        let keys = match self.dtype() {
            DType::Bool => self.cast(DType::U8)?,
            dtype if dtype.is_float() => {
                let bits = self.bitcast(dtype.signed())?;
                let dtype = bits.dtype();
                let largest = dtype.int_range().map_or(0, |range| range.1 as i64);
                // The bits of negative numbers increase with their magnitude.
                let is_negative = bits.cmplt(0)?;
                let keys = is_negative.where_(&bits.xor(largest)?, &bits)?;
                let keys = self.cmpeq(0)?.where_(&Tensor::scalar(dtype, 0)?, &keys)?;
                self.cmpne(self)?.where_(&Tensor::scalar(dtype, largest)?, &keys)?
            }
            _ => self.unchanged(),
        };
        // The complement turns the order of integers, and never overflows.
        if descending { keys.not() } else { Ok(keys) }
    }

    /// The position of the first element that is NaN or, if none is, that equals the extreme one.
    /// The axes, one or all, get size 1.
    fn extreme_position(
        &self,
        name: &str,
        axes: &[usize],
        extreme: impl Fn(&Tensor, usize) -> Result<Tensor, Error>,
    ) -> Result<Tensor, Error> {
        // Computed once, so that the extreme element equals one of those that it is compared with.
        let (x, axis) = match axes[..] {
            [axis] => (self.contiguous(), axis),
            _ if axes.len() == self.rank() => (self.contiguous().flatten(0, -1)?, 0),
            _ => {
                return invalid(format!(
                    "{name} along axes {axes:?} of shape {:?}: one axis, or all",
                    self.shape()
                ));
            }
        };
        let size = x.shape()[axis];
        if !(1..=i64::from(i32::MAX)).contains(&size) {
            return invalid(format!(
                "{name} along axes {axes:?} of shape {:?}: 1 to {} elements",
                self.shape(),
                i32::MAX
            ));
        }
        let mut is_found = x.cmpeq(&extreme(&x, axis)?)?;
        if x.dtype().is_float() {
            is_found = is_found.or(&x.cmpne(&x)?)?;
        }
        let mut shape = vec![1; x.rank()];
        shape[axis] = size;
        // The first position has the largest distance from the end.
        let from_end = Tensor::arange(DType::I32, size, -1, size)?.reshape(&shape)?;
        let nothing = Tensor::scalar(DType::I32, 0)?;
        let distance = is_found.where_(&from_end, &nothing)?.max_kept(&[axis]);
        let first = distance.neg()?.add(size)?;
        let mut kept = self.shape().to_vec();
        axes.iter().for_each(|axis| kept[*axis] = 1);
        first.reshape(&kept)
    }
}

/// Returns the positions (i32) of the `k` first keys along the last axis in ascending order; of
/// equal keys, the earlier come before.
fn first_positions(keys: &Tensor, k: i64) -> Result<Tensor, Error> {
    if let Some(size) = chosen_block(keys, k) {
        return first_in_chosen(keys, k, size);
    }
    let (axis, keys) = (keys.rank() - 1, keys.contiguous());
    if keys.shape()[axis] <= COUNTED_MAX {
        return first_counted(&keys, k);
    }
    let mut runs = Runs::of_blocks(&keys)?;
    while runs.size < runs.count {
        runs = runs.merged()?;
    }
    runs.positions.range(axis, 0, k)
}

/// Returns the size of the blocks of which those with the `k` first keys are chosen; `None` if
/// sorting all keys takes less time.
fn chosen_block(keys: &Tensor, k: i64) -> Option<i64> {
    let (elements, count) = (keys.size_elements(), keys.shape()[keys.rank() - 1]);
    let is_slow = CHOSEN_AXIS_MIN <= count && CHOSEN_COMPARISONS <= elements * count;
    let is_few = 0 < k && k <= count / CHOSEN_RATIO;
    // Padding adds half of the elements at most.
    if !is_few || !(is_slow || COUNTED_MAX < count) || MAX_ELEMENTS / 2 < elements {
        return None;
    }
    // There are about as many first keys as keys in the chosen blocks. If `k` is so small that
    // these have a quarter of the keys at most, the first keys are few enough to be counted.
    let balanced = (k * count).isqrt();
    let blocks = if 4 * k <= COUNTED_MAX { balanced.min(COUNTED_MAX) } else { balanced };
    Some(ceil_div(count, blocks))
}

/// Returns the positions of [`first_positions`]. They are in the `k` blocks whose first keys come
/// first: before a key of another block come these `k`.
fn first_in_chosen(keys: &Tensor, k: i64, size: i64) -> Result<Tensor, Error> {
    let blocks = in_blocks(keys, size)?;
    let first_keys = blocks.min(-1)?.contiguous();
    // In the order of their positions, so that of equal keys the earlier come before.
    let chosen = first_positions(&first_keys, k)?.sort(-1, false)?.contiguous();
    let outer = &keys.shape()[..keys.rank() - 1];
    let index = chosen.unsqueeze(-1)?.expand(&[outer, &[k, size]].concat())?;
    let kept = blocks.gather(-2, &index)?.reshape(&[outer, &[k * size]].concat())?;
    let found = first_positions(&kept.contiguous(), k)?.contiguous();
    let block = chosen.gather(-1, &found.floordiv(size)?)?;
    block.mul(size)?.add(&found.floormod(size)?)
}

/// Divides the last axis into blocks, along a new axis before it. Padding comes last: no key is
/// larger, and of equal ones the earlier come before.
fn in_blocks(keys: &Tensor, size: i64) -> Result<Tensor, Error> {
    let (rank, count) = (keys.rank(), keys.shape()[keys.rank() - 1]);
    let blocks = ceil_div(count, size);
    let mut pads = vec![(0, 0); rank];
    pads[rank - 1] = (0, blocks * size - count);
    let largest = Scalar::from(keys.dtype().int_range().map_or(0, |range| range.1));
    let shape = [&keys.shape()[..rank - 1], &[blocks, size]].concat();
    Ok(keys.pad(&pads, largest)?.reshape(&shape)?.contiguous())
}

/// Returns [`first_positions`] of keys in a buffer: the number of keys that come before a key is
/// its position.
fn first_counted(keys: &Tensor, k: i64) -> Result<Tensor, Error> {
    let size = keys.shape()[keys.rank() - 1];
    let position = Tensor::arange(DType::I32, 0, 1, size)?;
    let along = position.reshape(&[size, 1])?;
    // Each key along the last axis but one is compared with each along the last.
    let (key, each) = (keys.unsqueeze(-1)?, keys.unsqueeze(-2)?);
    let is_earlier = position.cmplt(&along)?;
    let is_less = |x: &Tensor, y: &Tensor| x.combined(Op::CmpLt, y);
    let comes_before = is_earlier.where_(&is_less(&key, &each)?.not()?, &is_less(&each, &key)?)?;
    let target = comes_before.sum(-1)?.contiguous();
    // The inverse permutation: the position whose target this is.
    let number = Tensor::arange(DType::I32, 0, 1, k)?.reshape(&[k, 1])?;
    let is_target = target.unsqueeze(-2)?.combined(Op::CmpNe, &number)?.not()?;
    let found = is_target.where_(&position, &Tensor::scalar(DType::I32, 0)?)?.sum(-1)?;
    // A kernel of its own stores each number at its target.
    Ok(found.contiguous())
}

/// Sorted runs along the last axis.
struct Runs {
    /// The keys, ascending within each run.
    keys: Tensor,
    /// Their positions (i32) before.
    positions: Tensor,
    /// The number of elements along the axis.
    count: i64,
    /// The number of elements of each run; the last run may have fewer.
    size: i64,
}

impl Runs {
    /// Sorts blocks of the last axis by counting.
    fn of_blocks(keys: &Tensor) -> Result<Runs, Error> {
        let (axis, count) = (keys.rank() - 1, keys.shape()[keys.rank() - 1]);
        let blocks = in_blocks(keys, SORTED_BLOCK)?;
        let number = blocks.shape()[axis];
        let start = Tensor::arange(DType::I32, 0, SORTED_BLOCK, number)?.reshape(&[number, 1])?;
        let mut shape = keys.shape().to_vec();
        shape[axis] = number * SORTED_BLOCK;
        let positions = first_counted(&blocks, SORTED_BLOCK)?.add(&start)?.reshape(&shape)?;
        let positions = positions.range(axis, 0, count)?.contiguous();
        let keys = keys.gather(-1, &positions)?.contiguous();
        Ok(Runs { keys, positions, count, size: SORTED_BLOCK })
    }

    /// Merges pairs of runs. Of equal keys, those of the first run come before.
    fn merged(self) -> Result<Runs, Error> {
        let Runs { keys, positions, count, size } = self;
        let mut shape = vec![1; keys.rank() - 1];
        shape.push(count);
        let number = Tensor::arange(DType::I32, 0, 1, count)?.reshape(&shape)?;
        // The starts of the runs of a pair, the place in the merged run, and the sizes of the runs.
        let first = number.floordiv(2 * size)?.mul(2 * size)?;
        let second = first.add(size)?;
        let place = number.sub(&first)?;
        let first_size = first.neg()?.add(count)?.minimum(size)?;
        let second_size = second.neg()?.add(count)?.clamp(0, size)?;
        // The number of keys of the first run before a place, by bisection.
        let largest = place.minimum(&first_size)?;
        let smallest = place.sub(&second_size)?.maximum(0)?;
        let mut taken = smallest.expand(keys.shape())?.contiguous();
        let mut step = size;
        while 0 < step {
            let candidate = taken.add(step)?;
            let key = keys.gather(-1, &first.add(&candidate)?.sub(1)?)?;
            let second_key = keys.gather(-1, &second.add(&place)?.sub(&candidate)?)?;
            let is_taken = largest.cmplt(&candidate)?.or(&second_key.cmplt(&key)?)?.not()?;
            taken = is_taken.where_(&candidate, &taken)?.contiguous();
            step /= 2;
        }
        let (of_first, of_second) = (first.add(&taken)?, second.add(&place)?.sub(&taken)?);
        let (key, second_key) = (keys.gather(-1, &of_first)?, keys.gather(-1, &of_second)?);
        let is_second_over = second.add(&second_size)?.cmplt(&of_second.add(1)?)?;
        let is_first =
            taken.cmplt(&first_size)?.and(&is_second_over.or(&second_key.cmplt(&key)?.not()?)?)?;
        let next = is_first.where_(&of_first, &of_second)?.contiguous();
        let [keys, positions] = [keys, positions].map(|x| x.gather(-1, &next));
        let (keys, positions) = (keys?.contiguous(), positions?.contiguous());
        Ok(Runs { keys, positions, count, size: 2 * size })
    }
}
