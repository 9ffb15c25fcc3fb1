//! A tensor that moves real elements: the model with which trackers are compared.
//!
//! It lists for each element the address that it came from, and moves by copying; it shares nothing
//! with the engine's view algebra. All comparisons of a tracker with it are here, and are counted.

use gradiff::graph::Variable;
use gradiff::view::{AxisStrides, Dim, DimAlgebra, ShapeTracker};
use gradiff_corpus::ViewOp;

use crate::models::spans::{Column, Columns};

/// Counts of the elements that were checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Checked {
    /// Elements whose index and validity expressions were compared with the model.
    pub(crate) indexed: usize,
    /// Elements located one by one.
    pub(crate) located: usize,
    /// Elements over which an axis was compared with its stride and mask.
    pub(crate) strided: usize,
    /// Trackers with variables that were composed of two.
    pub(crate) composed: usize,
    /// Those that were refused, since not all variables are known to keep one inside of the other.
    pub(crate) undecided: usize,
}

impl Checked {
    pub(crate) fn add(&mut self, counts: Checked) {
        self.indexed += counts.indexed;
        self.located += counts.located;
        self.strided += counts.strided;
        self.composed += counts.composed;
        self.undecided += counts.undecided;
    }
}

/// Compares trackers with models, and counts the checked elements.
pub(crate) struct Checker<'a> {
    columns: Columns<'a>,
    pub(crate) checked: Checked,
}

/// A tensor of at most 2^24 elements, each of which is the address in the buffer that it came from;
/// -1 is padding.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Model {
    pub(crate) shape: Vec<usize>,
    pub(crate) origin: Vec<i32>,
}

/// An offset so far below 0 that any sum with it stays negative.
const NOWHERE: i32 = i32::MIN / 64;

/// For each index of the moved axis, the index that it had on the old axis of this size, times
/// `stride`; `NOWHERE` where there was none.
fn offsets(op: &ViewOp, axis: usize, size: usize, stride: i32, offsets: &mut Vec<i32>) {
    let from = |range: std::ops::Range<usize>| range.map(move |at| at as i32 * stride);
    offsets.clear();
    match op {
        ViewOp::Expand(shape) if size == 1 => offsets.resize(shape[axis], 0),
        ViewOp::Pad(pads) => {
            let (before, after) = pads[axis];
            offsets.resize(before, NOWHERE);
            offsets.extend(from(0..size));
            offsets.resize(before + size + after, NOWHERE);
        }
        ViewOp::Shrink(ranges) => offsets.extend(from(ranges[axis].0..ranges[axis].1)),
        ViewOp::Flip(axes) if axes.contains(&axis) => offsets.extend(from(0..size).rev()),
        _ => offsets.extend(from(0..size)),
    }
}

impl Model {
    pub(crate) fn new(shape: &[usize]) -> Model {
        let count: usize = shape.iter().product();
        Model { shape: shape.to_vec(), origin: (0..count as i32).collect() }
    }

    /// Returns whether an operation leaves every element where it is.
    pub(crate) fn is_idle(&self, op: &ViewOp) -> bool {
        match op {
            ViewOp::Reshape(shape) | ViewOp::Expand(shape) => *shape == self.shape,
            ViewOp::Permute(axes) => {
                axes.iter().enumerate().all(|(position, axis)| position == *axis)
            }
            ViewOp::Pad(pads) => pads.iter().all(|pad| *pad == (0, 0)),
            ViewOp::Shrink(ranges) => ranges.iter().zip(&self.shape).all(|(r, s)| *r == (0, *s)),
            ViewOp::Flip(axes) => axes.is_empty(),
        }
    }

    pub(crate) fn moved(mut self, op: &ViewOp) -> Model {
        if let ViewOp::Reshape(shape) = op {
            self.shape.clone_from(shape);
            return self;
        }
        // The address that each element comes from is the sum of the offsets of its indices.
        let mut addresses = Vec::with_capacity(self.origin.len());
        let mut axis_offsets = Vec::with_capacity(16);
        addresses.push(0);
        let mut shape = vec![0; self.shape.len()];
        for (position, size) in shape.iter_mut().enumerate().rev() {
            let axis = if let ViewOp::Permute(axes) = op { axes[position] } else { position };
            let stride: usize = self.shape[axis + 1..].iter().product();
            offsets(op, axis, self.shape[axis], stride as i32, &mut axis_offsets);
            add_each(&mut addresses, &axis_offsets);
            *size = axis_offsets.len();
        }
        for address in &mut addresses {
            // Cast to `usize`, a negative address is beyond the end.
            *address = self.origin.get(*address as usize).copied().unwrap_or(-1);
        }
        Model { shape, origin: addresses }
    }

    /// Returns whether each element of the buffer occurs exactly once.
    pub(crate) fn has_all_once(&self, count: usize) -> bool {
        if self.origin.iter().filter(|address| **address >= 0).count() != count {
            return false;
        }
        let mut seen = vec![false; count];
        let mut real = self.origin.iter().filter(|address| **address >= 0);
        real.all(|address| !std::mem::replace(&mut seen[*address as usize], true))
    }

    /// For a buffer of this shape, all of whose elements occur here: the position of each.
    pub(crate) fn inverse(&self, shape: &[usize]) -> Model {
        let mut back = Model { shape: shape.to_vec(), origin: vec![-1; shape.iter().product()] };
        for (position, address) in (0..).zip(&self.origin).filter(|(_, address)| **address >= 0) {
            back.origin[*address as usize] = position;
        }
        back
    }

    /// One more than the highest address of the buffer that occurs.
    pub(crate) fn extent(&self) -> i64 {
        i64::from(self.origin.iter().fold(-1, |last: i32, address| last.max(*address))) + 1
    }
}

impl<'a> Checker<'a> {
    /// A checker with these values of variables.
    pub(crate) fn new(variable: &'a dyn Fn(&Variable) -> i64) -> Checker<'a> {
        Checker { columns: Columns::new(variable), checked: Checked::default() }
    }

    /// Checks that the tracker's shape, index and validity agree with the model.
    pub(crate) fn index(&mut self, model: &Model, tracker: &ShapeTracker) -> Result<(), String> {
        self.index_under(&model.shape, &model.origin, tracker, |size| *size)
    }

    /// As [`index`](Checker::index), for elements under another shape; `number` gives the values of
    /// sizes.
    pub(crate) fn index_under<D: Dim>(
        &mut self,
        shape: &[usize],
        origin: &[i32],
        tracker: &ShapeTracker<D>,
        number: impl Fn(&D) -> i64,
    ) -> Result<(), String>
    where
        Columns<'a>: DimAlgebra<D, Expr = Column>,
    {
        let is_size = |(size, found): (&usize, &D)| *size as i64 == number(found);
        let found = tracker.shape();
        if found.len() != shape.len() || !shape.iter().zip(found).all(is_size) {
            let found: Vec<i64> = found.iter().map(number).collect();
            return Err(format!("shape {found:?}, expected {shape:?}"));
        }
        let index = |columns: &mut Columns<'a>, at: &[Column]| tracker.index(columns, at);
        let (index, valid) = self.columns.evaluate(shape, index);
        assert!(index.len() == origin.len(), "each element has an index");
        let is_right = match valid {
            None => index == origin && origin.iter().fold(0, |signs, address| signs | address) >= 0,
            // Validity and sign are spread over all bits; a difference is not 0.
            Some(valid) => {
                0 == origin.iter().zip(index.iter().zip(valid)).fold(
                    0,
                    |difference, (origin, (index, valid))| {
                        let (is_real, is_padding) = (-valid, origin >> (i32::BITS - 1));
                        difference | is_real ^ !is_padding | is_real & (index ^ origin)
                    },
                )
            }
        };
        let differs = |&at: &usize| {
            let is_real = valid.is_none_or(|valid| valid[at] != 0);
            is_real != (origin[at] >= 0) || is_real && index[at] != origin[at]
        };
        let position = if is_right { None } else { (0..origin.len()).find(differs) };
        self.checked.indexed += origin.len();
        match position {
            None => Ok(()),
            Some(element) => Err(format!(
                "element {element} at {} if {}, expected {}",
                index[element],
                valid.map_or(1, |valid| valid[element]),
                origin[element]
            )),
        }
    }

    /// Checks that `locate` gives the address of each single element.
    pub(crate) fn located(&mut self, model: &Model, tracker: &ShapeTracker) -> Result<(), String> {
        let mut index = vec![0; model.shape.len()];
        for origin in &model.origin {
            let located = tracker.locate(&index);
            if located.unwrap_or(-1) != i64::from(*origin) {
                return Err(format!("element {index:?} at {located:?}, expected {origin}"));
            }
            advance(&model.shape, &mut index);
        }
        self.checked.located += model.origin.len();
        Ok(())
    }

    /// Checks all properties of the tracker.
    pub(crate) fn agrees(&mut self, model: &Model, tracker: &ShapeTracker) -> Result<(), String> {
        self.index(model, tracker)?;
        self.located(model, tracker)?;
        let is_identity = || (0..).zip(&model.origin).all(|(element, address)| element == *address);
        if tracker.is_contiguous() && !is_identity() {
            return Err("is_contiguous, but elements are moved".to_string());
        }
        let extent = model.extent();
        let (size, is_single) = (tracker.real_size(), tracker.views().len() == 1);
        let is_exact = is_single || model.origin.is_empty();
        if size < extent || is_exact && size != extent {
            return Err(format!("real_size is {size}, but the elements need {extent}"));
        }
        self.axes_agree(model, &tracker.axis_strides(), |stride| *stride)
    }

    /// Checks the strides and masks of all axes; `number` gives the values of strides.
    pub(crate) fn axes_agree<D: Dim>(
        &mut self,
        model: &Model,
        strides: &AxisStrides<D>,
        number: impl Fn(&D) -> i64,
    ) -> Result<(), String> {
        for axis in 0..model.shape.len() {
            let stride = |ignore_valid| strides.real_stride(axis, ignore_valid).map(&number);
            self.axis_agrees(model, axis, [stride(true), stride(false)], strides.is_masked(axis))?;
        }
        Ok(())
    }

    /// Checks the stride and the mask of one axis; `strides` has validity ignored first, then not.
    pub(crate) fn axis_agrees(
        &mut self,
        model: &Model,
        axis: usize,
        strides: [Option<i64>; 2],
        claims_masked: bool,
    ) -> Result<(), String> {
        let inner: usize = model.shape[axis + 1..].iter().product();
        // The distance of two elements fits an `i32`.
        let stride = strides[0].or(strides[1]).unwrap_or(0);
        let stride = i32::try_from(stride).unwrap_or(i32::MAX);
        // The first is negative if one of two elements is real and the other is not; the second is
        // not 0 if both are real and their distance is not the stride.
        let (mut masked, mut uneven) = (0, 0);
        let row = inner * model.shape[axis];
        for row in model.origin.chunks_exact(row.max(1)).filter(|row| row.len() > inner) {
            for (here, next) in row.iter().zip(&row[inner..]) {
                masked |= here ^ next;
                uneven |= ((next - here) ^ stride) & !((here | next) >> (i32::BITS - 1));
            }
        }
        let (is_masked, is_even) = (masked < 0, uneven == 0);
        self.checked.strided += model.origin.len();
        if is_masked && (!claims_masked || strides[1].is_some()) {
            return Err(format!("axis {axis} is masked, but is_masked or real_stride denies it"));
        }
        if strides != [None; 2] && !is_even || strides[1].is_some_and(|s| Some(s) != strides[0]) {
            return Err(format!(
                "real strides {strides:?} of axis {axis}, but elements are spaced differently"
            ));
        }
        Ok(())
    }
}

/// Replaces the sums by, for each offset in turn, its sum with each of them.
fn add_each(sums: &mut Vec<i32>, offsets: &[i32]) {
    let count = sums.len();
    sums.resize(count * offsets.len(), 0);
    let Some((first, rest)) = offsets.split_first() else { return };
    let (row, rows) = sums.split_at_mut(count);
    for (here, offset) in rows.chunks_exact_mut(count.max(1)).zip(rest) {
        here.iter_mut().zip(&*row).for_each(|(here, sum)| *here = sum + offset);
    }
    row.iter_mut().for_each(|here| *here += first);
}

/// Advances to the next index in row-major order.
fn advance(shape: &[usize], index: &mut [i64]) {
    for (at, size) in index.iter_mut().zip(shape).rev() {
        *at += 1;
        if *at < *size as i64 {
            return;
        }
        *at = 0;
    }
}
