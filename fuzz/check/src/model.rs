//! A tensor that moves real elements: the model that trackers are held against.
//!
//! It is a list of where each element came from, moved by copying; it shares nothing with the
//! engine's view algebra. Every judgement of a tracker against it is here, and is counted.

use gradiff::graph::Variable;
use gradiff::view::{AxisStrides, Dim, DimAlgebra, ShapeTracker};
use gradiff_corpus::ViewOp;

use crate::spans::{Column, Columns};

/// How much was looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Looked {
    /// Elements whose index and validity expressions were compared with the model.
    pub(crate) placed: usize,
    /// Elements located one by one.
    pub(crate) located: usize,
    /// Elements that an axis with its stride and mask was compared over.
    pub(crate) stepped: usize,
}

impl Looked {
    pub(crate) fn add(&mut self, more: Looked) {
        self.placed += more.placed;
        self.located += more.located;
        self.stepped += more.stepped;
    }
}

/// Evaluates trackers, and counts what it has looked at.
pub(crate) struct Look<'a> {
    columns: Columns<'a>,
    pub(crate) looked: Looked,
}

/// A tensor whose elements, at most 2^24, say where in the buffer they came from; -1 is padding.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Model {
    pub(crate) shape: Vec<usize>,
    pub(crate) origin: Vec<i32>,
}

/// So far below 0 that no sum of places makes up for it.
const NOWHERE: i32 = i32::MIN / 64;

/// For each index of the moved axis, the index it had on the old axis of this size, times `step`;
/// `NOWHERE` where there was none.
fn column(op: &ViewOp, axis: usize, size: usize, step: i32, column: &mut Vec<i32>) {
    let places = |range: std::ops::Range<usize>| range.map(move |at| at as i32 * step);
    column.clear();
    match op {
        ViewOp::Expand(shape) if size == 1 => column.resize(shape[axis], 0),
        ViewOp::Pad(pads) => {
            let (before, after) = pads[axis];
            column.resize(before, NOWHERE);
            column.extend(places(0..size));
            column.resize(before + size + after, NOWHERE);
        }
        ViewOp::Shrink(ranges) => column.extend(places(ranges[axis].0..ranges[axis].1)),
        ViewOp::Flip(axes) if axes.contains(&axis) => column.extend(places(0..size).rev()),
        _ => column.extend(places(0..size)),
    }
}

impl Model {
    pub(crate) fn new(shape: &[usize]) -> Model {
        let count: usize = shape.iter().product();
        Model { shape: shape.to_vec(), origin: (0..count as i32).collect() }
    }

    /// Whether an operation leaves everything where it is.
    pub(crate) fn is_idle(&self, op: &ViewOp) -> bool {
        match op {
            ViewOp::Reshape(shape) | ViewOp::Expand(shape) => *shape == self.shape,
            ViewOp::Permute(axes) => axes.iter().enumerate().all(|(place, axis)| place == *axis),
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
        // Where each element comes from: the sum of what its index on each axis says.
        let mut places = Vec::with_capacity(self.origin.len());
        let mut steps = Vec::with_capacity(16);
        places.push(0);
        let mut shape = vec![0; self.shape.len()];
        for (place, moved) in shape.iter_mut().enumerate().rev() {
            let axis = if let ViewOp::Permute(axes) = op { axes[place] } else { place };
            let step: usize = self.shape[axis + 1..].iter().product();
            column(op, axis, self.shape[axis], step as i32, &mut steps);
            add_each(&mut places, &steps);
            *moved = steps.len();
        }
        for place in &mut places {
            // What is below 0 is beyond the end.
            *place = self.origin.get(*place as usize).copied().unwrap_or(-1);
        }
        Model { shape, origin: places }
    }

    /// Whether each element of the buffer is here once.
    pub(crate) fn has_all_once(&self, count: usize) -> bool {
        if self.origin.iter().filter(|place| **place >= 0).count() != count {
            return false;
        }
        let mut seen = vec![false; count];
        let mut real = self.origin.iter().filter(|place| **place >= 0);
        real.all(|place| !std::mem::replace(&mut seen[*place as usize], true))
    }

    /// Place in this tensor of each element of a buffer of this shape, of which all are here.
    pub(crate) fn inverse(&self, shape: &[usize]) -> Model {
        let mut back = Model { shape: shape.to_vec(), origin: vec![-1; shape.iter().product()] };
        for (place, element) in (0..).zip(&self.origin).filter(|(_, element)| **element >= 0) {
            back.origin[*element as usize] = place;
        }
        back
    }

    /// One more than the highest element of the buffer that is here.
    pub(crate) fn reached(&self) -> i64 {
        i64::from(self.origin.iter().fold(-1, |last: i32, place| last.max(*place))) + 1
    }
}

impl<'a> Look<'a> {
    /// With these values of variables.
    pub(crate) fn new(variable: &'a dyn Fn(&Variable) -> i64) -> Look<'a> {
        Look { columns: Columns::new(variable), looked: Looked::default() }
    }

    /// Whether the tracker's shape, index and validity say the same as the model.
    pub(crate) fn places(&mut self, model: &Model, tracker: &ShapeTracker) -> Result<(), String> {
        self.flat_places(&model.shape, &model.origin, tracker, |size| *size)
    }

    /// The same of elements under a shape; `number` is what sizes are here.
    pub(crate) fn flat_places<D: Dim>(
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
            None => index == origin && origin.iter().fold(0, |all, place| all | place) >= 0,
            // Truths and signs spread over all bits: what differs is not 0.
            Some(valid) => {
                0 == origin.iter().zip(index.iter().zip(valid)).fold(
                    0,
                    |all, (origin, (index, valid))| {
                        let (is_real, is_padding) = (-valid, origin >> (i32::BITS - 1));
                        all | is_real ^ !is_padding | is_real & (index ^ origin)
                    },
                )
            }
        };
        let differs = |&at: &usize| {
            let is_real = valid.is_none_or(|valid| valid[at] != 0);
            is_real != (origin[at] >= 0) || is_real && index[at] != origin[at]
        };
        let place = if is_right { None } else { (0..origin.len()).find(differs) };
        self.looked.placed += origin.len();
        match place {
            None => Ok(()),
            Some(element) => Err(format!(
                "element {element} at {} if {}, expected {}",
                index[element],
                valid.map_or(1, |valid| valid[element]),
                origin[element]
            )),
        }
    }

    /// Whether each element alone is found where it is.
    pub(crate) fn located(&mut self, model: &Model, tracker: &ShapeTracker) -> Result<(), String> {
        let mut index = vec![0; model.shape.len()];
        for origin in &model.origin {
            let located = tracker.locate(&index);
            if located.unwrap_or(-1) != i64::from(*origin) {
                return Err(format!("element {index:?} at {located:?}, expected {origin}"));
            }
            advance(&model.shape, &mut index);
        }
        self.looked.located += model.origin.len();
        Ok(())
    }

    /// Whether everything the tracker says is so.
    pub(crate) fn agrees(&mut self, model: &Model, tracker: &ShapeTracker) -> Result<(), String> {
        self.places(model, tracker)?;
        self.located(model, tracker)?;
        let is_identity = || (0..).zip(&model.origin).all(|(element, from)| element == *from);
        if tracker.is_contiguous() && !is_identity() {
            return Err("called contiguous, but elements are moved".to_string());
        }
        let reached = model.reached();
        let (size, is_one) = (tracker.real_size(), tracker.views().len() == 1);
        if size < reached || is_one && !model.origin.is_empty() && size != reached {
            return Err(format!("real_size {size}, but {reached} is reached"));
        }
        self.axes_agree(model, &tracker.axis_strides(), |stride| *stride)
    }

    /// Whether elements are as far apart along each axis, and as real, as is said of it; `number`
    /// is what strides are here.
    pub(crate) fn axes_agree<D: Dim>(
        &mut self,
        model: &Model,
        steps: &AxisStrides<D>,
        number: impl Fn(&D) -> i64,
    ) -> Result<(), String> {
        for axis in 0..model.shape.len() {
            let stride = |ignore_valid| steps.real_stride(axis, ignore_valid).map(&number);
            self.axis_agrees(model, axis, [stride(true), stride(false)], steps.is_masked(axis))?;
        }
        Ok(())
    }

    /// The same of one axis; `strides` with validity ignored and not.
    fn axis_agrees(
        &mut self,
        model: &Model,
        axis: usize,
        strides: [Option<i64>; 2],
        says_masked: bool,
    ) -> Result<(), String> {
        let step: usize = model.shape[axis + 1..].iter().product();
        // No two elements are farther apart than an `i32` says.
        let stride = strides[0].or(strides[1]).unwrap_or(0);
        let stride = i32::try_from(stride).unwrap_or(i32::MAX);
        // In the sign of the first: whether one is real and the other is not. Not 0 in the second:
        // both are real, and further apart or nearer.
        let (mut masked, mut uneven) = (0, 0);
        let row = step * model.shape[axis];
        for row in model.origin.chunks_exact(row.max(1)).filter(|row| row.len() > step) {
            for (here, next) in row.iter().zip(&row[step..]) {
                masked |= here ^ next;
                uneven |= ((next - here) ^ stride) & !((here | next) >> (i32::BITS - 1));
            }
        }
        let (is_masked, is_even) = (masked < 0, uneven == 0);
        self.looked.stepped += model.origin.len();
        if is_masked && (!says_masked || strides[1].is_some()) {
            return Err(format!("axis {axis} is masked, axis_is_masked or real_strides says no"));
        }
        if strides != [None; 2] && !is_even || strides[1].is_some_and(|s| Some(s) != strides[0]) {
            return Err(format!("real strides {strides:?} of axis {axis}, steps are not"));
        }
        Ok(())
    }
}

/// Of each step, in turn, its sum with each of these.
fn add_each(sums: &mut Vec<i32>, steps: &[i32]) {
    let count = sums.len();
    sums.resize(count * steps.len(), 0);
    let Some((first, others)) = steps.split_first() else { return };
    let (row, rows) = sums.split_at_mut(count);
    for (here, step) in rows.chunks_exact_mut(count.max(1)).zip(others) {
        here.iter_mut().zip(&*row).for_each(|(here, sum)| *here = sum + step);
    }
    row.iter_mut().for_each(|here| *here += first);
}

/// The next index in row-major order.
fn advance(shape: &[usize], index: &mut [i64]) {
    for (at, size) in index.iter_mut().zip(shape).rev() {
        *at += 1;
        if *at < *size as i64 {
            return;
        }
        *at = 0;
    }
}
