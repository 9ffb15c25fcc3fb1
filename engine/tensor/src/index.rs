//! Indices: elements, slices and rows of a tensor, read with `get` and assigned with `set`.

use std::ops::{
    Bound, Range, RangeBounds, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive,
};

use gradiff_graph::DType;

use crate::elementwise::common_shape;
use crate::error::invalid;
use crate::methods::movement::steps_of;
use crate::placement::name_of;
use crate::tensor::broadcast;
use crate::{Error, Operand, Tensor};

/// A new axis of size 1, as an index.
#[derive(Clone, Copy, Debug)]
pub struct NewAxis;

/// All axes that the other indices leave, as an index.
#[derive(Clone, Copy, Debug)]
pub struct Ellipsis;

/// An index along an axis. Made from an integer or a range of integers, which are i64, i32 or
/// usize ([`Position`]), a range with a step ([`stepped`]), [`NewAxis`], [`Ellipsis`], or a tensor
/// of integers or bools.
#[derive(Clone, Debug)]
pub enum Index {
    /// A position, from the end if it is negative. The axis is removed.
    Position(i64),
    /// The positions from `start` to `stop`, which is excluded, as in Python: ends that are
    /// missing are those of the axis, negative ones count from its end, and ends outside the axis
    /// are moved to it.
    Slice {
        /// The first position.
        start: Option<i64>,
        /// The end, which is excluded.
        stop: Option<i64>,
        /// The distance of two positions; the axis is reversed if it is negative.
        step: i64,
    },
    /// A new axis of size 1.
    NewAxis,
    /// As many whole axes as the other indices leave.
    Ellipsis,
    /// Positions along an axis, if the tensor is of integers; if it is of bools, the elements to
    /// select along as many axes as it has.
    Elements(Tensor),
}

/// Indices along several axes, from the first one on: an [`Index`], or a tuple, an array or a
/// vector of them.
#[derive(Clone, Debug)]
pub struct Indices(Vec<Index>);

/// An integer that is a position along an axis: i64, i32 or usize.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no position along an axis",
    label = "no position along an axis",
    note = "positions are i64, i32 or usize"
)]
pub trait Position: Copy {
    /// Returns the position. One that is beyond i64 is the largest, which no axis has either.
    fn position(self) -> i64;
}

impl Position for i64 {
    fn position(self) -> i64 {
        self
    }
}

impl Position for i32 {
    fn position(self) -> i64 {
        i64::from(self)
    }
}

impl Position for usize {
    fn position(self) -> i64 {
        i64::try_from(self).unwrap_or(i64::MAX)
    }
}

/// A range of positions along an axis: a range of Rust, or a pair of bounds.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no range of positions along an axis",
    label = "no range of positions",
    note = "ranges are those of Rust, of i64, i32 or usize, such as `1..`"
)]
pub trait PositionRange {
    /// Returns the bounds at the start and at the end.
    fn bounds(self) -> (Bound<i64>, Bound<i64>);
}

/// Returns an index for every `step`th position from the start of a range on, down to its end if
/// the step is negative; as `start:stop:step` in Python, but that an inclusive range has its end.
///
/// ```
/// # use gradiff_tensor::{Tensor, stepped};
/// let x = Tensor::from_slice(&[5], &[0, 1, 2, 3, 4])?;
/// assert_eq!(x.get(stepped(1.., 2))?.to_text()?, "[1, 3]");
/// assert_eq!(x.get(stepped(.., -2))?.to_text()?, "[4, 2, 0]");
/// assert_eq!(x.get(stepped(3..=1, -1))?.to_text()?, "[3, 2, 1]");
/// # Ok::<(), gradiff_tensor::Error>(())
/// ```
pub fn stepped(range: impl PositionRange, step: i64) -> Index {
    let next = |position: i64| if step < 0 { before(position) } else { after(position) };
    let (start, stop) = range.bounds();
    let start = match start {
        Bound::Included(position) => Some(position),
        Bound::Excluded(position) => match next(position) {
            None => return Index::Slice { start: Some(0), stop: Some(0), step },
            start => start,
        },
        Bound::Unbounded => None,
    };
    let stop = match stop {
        Bound::Included(position) => next(position),
        Bound::Excluded(position) => Some(position),
        Bound::Unbounded => None,
    };
    Index::Slice { start, stop, step }
}

macro_rules! from_position {
    ($($integer:ty)*) => {$(
        impl From<$integer> for Index {
            fn from(position: $integer) -> Index {
                Index::Position(position.position())
            }
        }
    )*};
}

from_position!(i64 i32 usize);

macro_rules! from_range {
    ($($range:ident)*) => {$(
        impl<P: Position> PositionRange for $range<P> {
            fn bounds(self) -> (Bound<i64>, Bound<i64>) {
                positions((self.start_bound(), self.end_bound()))
            }
        }

        impl<P: Position> From<$range<P>> for Index {
            fn from(range: $range<P>) -> Index {
                stepped(range, 1)
            }
        }
    )*};
}

from_range!(Range RangeFrom RangeTo RangeInclusive RangeToInclusive);

impl<P: Position> PositionRange for (Bound<P>, Bound<P>) {
    fn bounds(self) -> (Bound<i64>, Bound<i64>) {
        positions((self.0.as_ref(), self.1.as_ref()))
    }
}

impl PositionRange for RangeFull {
    fn bounds(self) -> (Bound<i64>, Bound<i64>) {
        (Bound::Unbounded, Bound::Unbounded)
    }
}

impl From<RangeFull> for Index {
    fn from(range: RangeFull) -> Index {
        stepped(range, 1)
    }
}

fn positions<P: Position>((start, stop): (Bound<&P>, Bound<&P>)) -> (Bound<i64>, Bound<i64>) {
    (start.map(|start| start.position()), stop.map(|stop| stop.position()))
}

/// The position after another, as the end of a slice: after the last one there is none.
fn after(position: i64) -> Option<i64> {
    position.checked_add(1).filter(|stop| *stop != 0)
}

/// The position before another, as the end of a slice: before the first one there is none.
fn before(position: i64) -> Option<i64> {
    position.checked_sub(1).filter(|stop| *stop != -1)
}

impl From<NewAxis> for Index {
    fn from(_: NewAxis) -> Index {
        Index::NewAxis
    }
}

impl From<Ellipsis> for Index {
    fn from(_: Ellipsis) -> Index {
        Index::Ellipsis
    }
}

impl From<Tensor> for Index {
    fn from(tensor: Tensor) -> Index {
        Index::Elements(tensor)
    }
}

impl From<&Tensor> for Index {
    fn from(tensor: &Tensor) -> Index {
        Index::Elements(tensor.clone())
    }
}

impl<T: Into<Index>> From<T> for Indices {
    fn from(index: T) -> Indices {
        Indices(vec![index.into()])
    }
}

impl From<Vec<Index>> for Indices {
    fn from(indices: Vec<Index>) -> Indices {
        Indices(indices)
    }
}

impl<T: Into<Index>, const COUNT: usize> From<[T; COUNT]> for Indices {
    fn from(indices: [T; COUNT]) -> Indices {
        Indices(indices.into_iter().map(Into::into).collect())
    }
}

macro_rules! from_tuple {
    ($($name:ident)*) => {
        impl<$($name: Into<Index>),*> From<($($name,)*)> for Indices {
            #[allow(non_snake_case, reason = "a variable for each type")]
            fn from(($($name,)*): ($($name,)*)) -> Indices {
                Indices(vec![$($name.into()),*])
            }
        }
    };
}

from_tuple!(A);
from_tuple!(A B);
from_tuple!(A B C);
from_tuple!(A B C D);
from_tuple!(A B C D E);
from_tuple!(A B C D E F);
from_tuple!(A B C D E F G);
from_tuple!(A B C D E F G H);

impl Tensor {
    /// Returns the elements at indices, as `x[...]` in PyTorch: an integer removes its axis, a
    /// range keeps a part of it, `NewAxis` adds one, `Ellipsis` stands for whole axes, as do the
    /// axes after the last index.
    ///
    /// A tensor of integers gives an axis the elements at its positions, and its own shape; several
    /// are broadcast, and their shape takes the place of their axes, or comes first if these are
    /// not next to each other. Negative positions count from the end; **where a position is
    /// outside the axis, the element is 0**. A tensor of bools, which is computed first, selects
    /// the elements along its axes where it is true.
    ///
    /// ```
    /// # use gradiff_tensor::{Ellipsis, NewAxis, Tensor};
    /// let x = Tensor::from_slice(&[2, 3], &[1, 2, 3, 4, 5, 6])?;
    /// assert_eq!(x.get((1, 0))?.to_text()?, "4");
    /// assert_eq!(x.get((.., 1..))?.to_text()?, "[[2, 3], [5, 6]]");
    /// assert_eq!(x.get((Ellipsis, -1, NewAxis))?.to_text()?, "[[3], [6]]");
    /// let columns = Tensor::from_slice(&[2], &[2, -3])?;
    /// assert_eq!(x.get((.., &columns))?.to_text()?, "[[3, 1], [6, 4]]");
    /// assert_eq!(x.get(x.cmplt(3)?)?.to_text()?, "[1, 2]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    /// # Errors
    /// If a position is outside its axis, there are more indices than axes, a step is 0, tensors
    /// of indices do not broadcast or are of floats, a mask has another shape than its axes, or it
    /// cannot be computed.
    pub fn get(&self, indices: impl Into<Indices>) -> Result<Tensor, Error> {
        let found = self.resolved(indices.into())?;
        let sliced = self.slice(&found.ranges)?.reshape(&found.shape)?;
        if found.elements.is_empty() {
            return Ok(sliced);
        }
        let selected = sliced.selected(&found.elements)?;
        let Some((axis, mask)) = &found.mask else { return Ok(selected) };
        let axis = Tensor::scalar(DType::I64, *axis as i64)?;
        Ok(selected.as_function("masked_select", &[&sliced, mask, &axis]))
    }

    /// Replaces the elements at indices, as [`get`](Tensor::get) selects them, by those of `value`,
    /// which is broadcast; a scalar takes the dtype. Returns the tensor. Where an element is
    /// selected several times the last value stays; positions outside an axis are ignored.
    /// Otherwise as [`assign_slice`](Tensor::assign_slice).
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[2, 3], &[1, 2, 3, 4, 5, 6])?;
    /// x.set((.., 0), 0)?;
    /// x.set(&x.cmplt(3)?, 9)?;
    /// assert_eq!(x.to_text()?, "[[9, 9, 3], [9, 5, 6]]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    /// # Errors
    /// Those of `get` and of `assign_slice`.
    pub fn set(
        &self,
        indices: impl Into<Indices>,
        value: impl Into<Operand>,
    ) -> Result<Tensor, Error> {
        self.check_parts("set")?;
        let found = self.resolved(indices.into())?;
        if found.elements.is_empty() {
            let value = self.assigned("set", value.into(), &found.shape)?;
            let steps = steps_of("set", self.shape(), &found.ranges)?;
            let sizes: Vec<i64> = steps.iter().map(|steps| steps.count).collect();
            return self.assign_slice(&found.ranges, value.reshape(&sizes)?);
        }
        if let Some((axis, mask)) = &found.mask {
            return self.set_by_mask(&found, *axis, mask, value.into());
        }
        // The positions of all elements, from 1 on, so that 0 stands for those outside.
        let positions = Tensor::arange(DType::I64, 1, 1, self.size_elements())?;
        let sliced = positions.reshape(self.shape())?.slice(&found.ranges)?;
        let positions = sliced.reshape(&found.shape)?.selected(&found.elements)?;
        let value = self.assigned("set", value.into(), positions.shape())?;
        let count = [positions.size_elements()];
        let (positions, value) = (positions.sub(1)?.reshape(&count)?, value.reshape(&count)?);
        self.update(|current| {
            current.flatten(0, -1)?.scatter(&positions, &value, 0)?.reshape(self.shape())
        })?;
        Ok(self.clone())
    }

    /// Replaces the elements that a mask selects; its axes are those from `axis` on.
    fn set_by_mask(
        &self,
        found: &Resolved,
        axis: usize,
        mask: &Tensor,
        value: Operand,
    ) -> Result<Tensor, Error> {
        let (before, after) = (&found.shape[..axis], &found.shape[axis + mask.rank()..]);
        // The axis of the selected elements.
        let size = match &value {
            Operand::Scalar(_) => None,
            Operand::Tensor(value) => value.shape().iter().nth_back(after.len()).copied(),
        };
        let is_broadcast = size.is_none_or(|size| size == 1);
        let count = if is_broadcast { 1 } else { found.elements[0].1.size_elements() };
        let value = self.assigned("set", value, &[before, &[count], after].concat())?;
        let value = match is_broadcast {
            true => value.unflatten(axis as i64, &vec![1; mask.rank()])?,
            false => value.spread_by_mask(mask, axis)?,
        };
        let mask = mask.reshape(&[mask.shape(), &vec![1; after.len()]].concat())?;
        let steps = steps_of("set", self.shape(), &found.ranges)?;
        let sizes: Vec<i64> = steps.iter().map(|steps| steps.count).collect();
        let [mask, value] = [mask, value]
            .map(|x| Tensor::from_valid(broadcast(x.uop(), &found.shape)).reshape(&sizes));
        self.assign_where(&steps, &mask?, &value?)
    }

    /// Divides indices into ranges along the axes, and elements along those that are left.
    fn resolved(&self, indices: Indices) -> Result<Resolved, Error> {
        let refused = |why: String| invalid(format!("index of {self:?}: {why}"));
        let axes_of = |index: &Index| match index {
            Index::NewAxis | Index::Ellipsis => 0,
            Index::Elements(mask) if mask.dtype() == DType::Bool => mask.rank(),
            _ => 1,
        };
        let mut indices = indices.0;
        let used: usize = indices.iter().map(axes_of).sum();
        let Some(rest) = self.rank().checked_sub(used) else {
            return refused(format!("{used} axes have an index, of {}", self.rank()));
        };
        let is_ellipsis = |index: &Index| matches!(index, Index::Ellipsis);
        let at = indices.iter().position(is_ellipsis).unwrap_or(indices.len());
        let whole = Index::from(..);
        indices.splice(at..(at + 1).min(indices.len()), std::iter::repeat_n(whole, rest));
        if indices.iter().any(is_ellipsis) {
            return refused("there is more than one ellipsis".to_string());
        }
        let mut found = Resolved::default();
        for index in indices {
            let axis = found.ranges.len();
            let size = self.shape().get(axis).copied().unwrap_or(0);
            match index {
                Index::Position(position) => {
                    let first = if position < 0 { position.saturating_add(size) } else { position };
                    if !(0..size).contains(&first) {
                        return refused(format!("{position} along axis {axis}, which has {size}"));
                    }
                    found.ranges.push((first, first + 1, 1));
                }
                Index::Slice { step: 0, .. } => return refused("a step is 0".to_string()),
                Index::Slice { start, stop, step } => {
                    let (first, end) = if 0 < step { (0, size) } else { (size - 1, i64::MIN) };
                    let range = (start.unwrap_or(first), stop.unwrap_or(end), step);
                    let steps = steps_of("index", &[size], &[range])?;
                    found.ranges.push(range);
                    found.shape.push(steps[0].count);
                }
                Index::NewAxis => found.shape.push(1),
                Index::Ellipsis => {}
                Index::Elements(mask) if mask.dtype() == DType::Bool => {
                    let axes = axis..axis + mask.rank();
                    if mask.rank() == 0 || self.shape()[axes.clone()] != *mask.shape() {
                        return refused(format!("the mask has shape {:?}", mask.shape()));
                    }
                    let is_first = found.elements.is_empty();
                    let first = found.shape.len();
                    for (axis, positions) in axes.zip(true_positions(&mask, self)?) {
                        found.add_elements(self.shape()[axis], positions);
                    }
                    let mask = match self.uop().device() {
                        Some(device) => mask.to(name_of(device)?)?,
                        None => mask,
                    };
                    found.mask = is_first.then_some((first, mask));
                }
                Index::Elements(positions) if positions.dtype().is_int() => {
                    found.add_elements(size, positions);
                    found.mask = None;
                }
                Index::Elements(tensor) => {
                    return refused(format!("{tensor:?} is neither of integers nor of bools"));
                }
            }
        }
        Ok(found)
    }

    /// Selects the elements at positions along some axes, each given with its number.
    fn selected(&self, elements: &[(usize, Tensor)]) -> Result<Tensor, Error> {
        let axes: Vec<usize> = elements.iter().map(|(axis, _)| *axis).collect();
        let operands: Vec<Operand> =
            elements.iter().map(|(_, positions)| Operand::from(positions)).collect();
        let shape = common_shape("index", &operands.iter().collect::<Vec<_>>())?;
        let mut flat = Tensor::zeros(DType::I64, &shape)?;
        let mut is_inside = Tensor::full(DType::Bool, &shape, true)?;
        let mut total = 1;
        for (axis, positions) in elements {
            let size = self.shape()[*axis];
            total *= size;
            // Of 64 bits without a sign, the upper half is outside, not negative.
            let is_high = match positions.dtype() {
                DType::U64 => positions.cmplt(i64::MAX)?.not()?,
                _ => Tensor::full(DType::Bool, &[], false)?,
            };
            let wide = positions.cast(DType::I64)?;
            let from_start = wide.cmplt(0)?.where_(&wide.add(size)?, &wide)?;
            let is_outside = from_start.cmplt(0)?.or(&from_start.cmplt(size)?.not()?)?;
            is_inside = is_inside.and(&is_outside.or(&is_high)?.not()?)?;
            flat = flat.mul(size)?.add(&from_start)?;
        }
        let flat = is_inside.where_(&flat, -1)?.reshape(&[shape.iter().product()])?;
        // The axes next to each other, at the first of them or before all remaining.
        let are_adjacent = axes.windows(2).all(|pair| pair[1] == pair[0] + 1);
        let at = if are_adjacent { axes[0] } else { 0 };
        let remaining: Vec<usize> = (0..self.rank()).filter(|axis| !axes.contains(axis)).collect();
        let order = [&remaining[..at], &axes, &remaining[at..]].concat();
        let moved = self.permuted(&order);
        let (before, after) =
            (&moved.shape()[..at].to_vec(), &moved.shape()[at + axes.len()..].to_vec());
        let rows = moved.reshape(&[&before[..], &[total], after].concat())?;
        rows.index_select(&flat, at as i64)?.reshape(&[&before[..], &shape, after].concat())
    }
}

/// Indices, divided by kinds.
#[derive(Default)]
struct Resolved {
    /// The range (start, stop, step) along each axis.
    ranges: Vec<(i64, i64, i64)>,
    /// The shape after these, without the axes of positions, with the new axes.
    shape: Vec<i64>,
    /// Positions along axes of this shape.
    elements: Vec<(usize, Tensor)>,
    /// The mask that all positions are of, and its first axis in this shape, if there is one.
    mask: Option<(usize, Tensor)>,
}

impl Resolved {
    /// Adds positions along the next axis, of this size.
    fn add_elements(&mut self, size: i64, positions: Tensor) {
        self.elements.push((self.shape.len(), positions));
        self.ranges.push((0, size, 1));
        self.shape.push(size);
    }
}

/// Returns the positions along each axis where a mask is true, in row-major order, on the device of
/// the tensor that they are for, or else of the mask.
pub(crate) fn true_positions(mask: &Tensor, of: &Tensor) -> Result<Vec<Tensor>, Error> {
    let mut positions: Vec<Vec<i64>> = vec![Vec::new(); mask.rank()];
    for (flat, is_true) in mask.to_vec::<bool>()?.into_iter().enumerate() {
        if is_true {
            let mut rest = flat as i64;
            for (axis, size) in mask.shape().iter().enumerate().rev() {
                positions[axis].push(rest % size);
                rest /= size;
            }
        }
    }
    let nodes = [of, mask].map(Tensor::uop);
    let device = nodes.iter().find_map(|node| node.device());
    let placed = |found: &Vec<i64>| {
        let list = Tensor::from_slice(&[found.len() as i64], found)?;
        device.map_or(Ok(list.clone()), |device| list.to(name_of(device)?))
    };
    positions.iter().map(placed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    // A position below 0 counts from the end.
    #[allow(clippy::reversed_empty_ranges)]
    fn positions_are_integers_of_three_types() -> Result<(), Error> {
        let x = Tensor::from_slice(&[4], &[10, 11, 12, 13])?.to("interp")?;
        let text = |index: Index| x.get(index)?.to_text();
        for (index, wanted) in [
            (Index::from(2usize), "12"),
            (Index::from(-1i32), "13"),
            (Index::from(1usize..3), "[11, 12]"),
            (Index::from(1i32..3), "[11, 12]"),
            (Index::from(2usize..), "[12, 13]"),
            (Index::from(..=1usize), "[10, 11]"),
            (Index::from(..-1i32), "[10, 11, 12]"),
            (Index::from(1usize..=2), "[11, 12]"),
            (Index::from(2i32..=-1), "[12, 13]"),
            (stepped(2usize..=0, -1), "[12, 11, 10]"),
            (stepped(..-3i32, -1), "[13, 12]"),
            (stepped((Bound::Excluded(0usize), Bound::Unbounded), 2), "[11, 13]"),
        ] {
            assert_eq!(text(index.clone())?, wanted, "{index:?}");
        }
        // No axis has positions beyond i64.
        assert_eq!(text((1..usize::MAX).into())?, "[11, 12, 13]");
        assert_eq!(text((1..=usize::MAX).into())?, "[11, 12, 13]");
        assert!(x.get(usize::MAX).is_err());
        let sizes = [1usize, 3];
        for (number, size) in sizes.iter().enumerate() {
            assert_eq!(x.get((number..*size, NewAxis))?.shape()[1], 1);
            x.set(number, *size)?;
        }
        assert_eq!(x.to_text()?, "[1, 3, 12, 13]");
        Ok(())
    }

    #[test]
    fn a_part_that_requires_a_gradient_is_assigned_as_a_whole() -> Result<(), Error> {
        let w = Tensor::from_slice(&[2], &[1f32, 2.0])?.requires_grad_(true)?;
        let position = Tensor::from_slice(&[1], &[0])?;
        for refused in [w.set(0, 0), w.set(&position, 0), w.set(w.cmplt(2)?, 0)] {
            let error = refused.expect_err("a part of a parameter").to_string();
            assert!(error.contains("set of Tensor(f32[2]): it requires a gradient"), "{error}");
            assert!(error.contains("assign all of it"), "{error}");
        }
        let x = Tensor::zeros(DType::F32, &[2])?;
        let error = x.set(0, w.get(1)?).expect_err("a value with a gradient").to_string();
        assert!(error.contains("stack"), "{error}");
        Ok(())
    }
}
