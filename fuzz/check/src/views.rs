//! ShapeTrackers against a model that moves real elements.
//!
//! The model is a list of where each element came from, moved by copying; it shares nothing with
//! the engine's view algebra. Index expressions are evaluated for all elements at once.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

use gradiff::graph::Variable;
use gradiff::view::{IndexAlgebra, Movement, ShapeTracker};
use gradiff_corpus::{ViewOp, ViewOps};

/// Sequences up to this long are taken apart at every place for `a + b`, longer ones in the middle.
const SPLITS_ALL: usize = 3;
/// One sequence in so many is checked with variables in its sizes, too.
const SYMBOLIC_ONE_IN: u64 = 256;

/// Checks the tracker of a sequence, after every operation, against the model: element positions by
/// the index and validity expressions; at its end also by `locate`, and contiguity, real size, real
/// strides, masked axes, `minify`, `invert` and `a + b`, with views merged, unmerged and simplified.
///
/// # Errors
/// What differs, in one line.
pub fn check_views(case: &ViewOps) -> Result<(), String> {
    let start = |shape: &[usize]| {
        ShapeTracker::from_shape(&signed(shape)).map_err(|error| error.to_string())
    };
    let mut model = Model::new(&case.shape);
    let mut merged = start(&case.shape)?;
    let mut unmerged = merged.clone();
    let count = case.ops.len();
    let is_split = |place: usize| count <= SPLITS_ALL || place == count / 2;
    // The tracker up to a place, and that of the rest.
    let mut halves: Vec<(ShapeTracker, ShapeTracker)> = Vec::new();
    for (number, op) in case.ops.iter().enumerate() {
        let at = |what: String| format!("after {} ({}): {what}", number + 1, op.name());
        if is_split(number) {
            halves.push((merged.clone(), start(&model.shape)?));
        }
        let movement = movement(op, model.shape.len());
        let is_idle = model.is_idle(op);
        model = if is_idle { model } else { model.moved(op) };
        let before = merged.clone();
        merged = merged.apply(&movement, true).map_err(|e| at(e.to_string()))?;
        unmerged = unmerged.apply(&movement, false).map_err(|e| at(e.to_string()))?;
        for (_, top) in &mut halves {
            *top = top.apply(&movement, true).map_err(|e| at(e.to_string()))?;
        }
        // What an idle operation left as it was has been looked at.
        let is_seen = is_idle && number > 0 && merged == before;
        if number + 1 < count && !is_seen {
            model.places(&merged, &model.positions()).map_err(|e| at(format!("{e}: {merged}")))?;
        }
    }
    let simple = simplified(&merged, &unmerged)?;
    let positions = model.positions();
    let check = |what: &str, tracker: &ShapeTracker| {
        let checked = model.agrees(tracker, &positions);
        checked.map_err(|e| format!("at the end, {what}, {e}: {tracker}"))
    };
    check("merged", &merged)?;
    // Equal trackers are looked at once. Strides and masks of a tracker are those of its simplified
    // form, which is looked at below if it is another one.
    if unmerged != merged {
        let placed = model.places(&unmerged, &positions).and_then(|()| model.located(&unmerged));
        placed.map_err(|e| format!("at the end, unmerged, {e}: {unmerged}"))?;
    }
    if simple != merged && simple != unmerged {
        check("simplified", &simple)?;
    }
    for (base, top) in &halves {
        let composed = base.compose(top).map_err(|error| format!("{base} + {top}: {error}"))?;
        if composed != merged && composed != simple {
            let placed = model.places(&composed, &positions);
            placed.map_err(|e| format!("{base} + {top}, {e}: {composed}"))?;
        }
    }
    minified(&model, &merged)?;
    inversion(&model, &case.shape, &merged)?;
    let mut hasher = DefaultHasher::new();
    (&case.shape, &case.ops).hash(&mut hasher);
    if hasher.finish().is_multiple_of(SYMBOLIC_ONE_IN) {
        crate::symbolic::check_symbolic_views(case)?;
    }
    Ok(())
}

/// The simplified tracker: no more views than before, and simplifying it again changes nothing.
fn simplified(merged: &ShapeTracker, unmerged: &ShapeTracker) -> Result<ShapeTracker, String> {
    let simple = unmerged.simplify();
    let views = (simple.views().len(), unmerged.views().len());
    if views.0 > views.1 {
        return Err(format!("simplify made {} views of {}: {merged}", views.0, views.1));
    }
    if let again = simple.simplify()
        && again != simple
    {
        return Err(format!("simplify made {simple}, then {again} of that"));
    }
    Ok(simple)
}

/// `minify` keeps the elements in order and leaves no axis that could be dropped.
fn minified(model: &Model, tracker: &ShapeTracker) -> Result<(), String> {
    let small = tracker.minify();
    let shape: Vec<usize> = small.shape().iter().map(|size| *size as usize).collect();
    let is_smaller = shape.len() <= model.shape.len().max(1);
    if !is_smaller || shape.iter().product::<usize>() != model.origin.len() {
        return Err(format!("minify made {shape:?} of {:?}: {tracker}", model.shape));
    }
    if shape.len() > 1 && shape.contains(&1) {
        return Err(format!("minify kept an axis of size 1: {small}"));
    }
    if small == *tracker {
        return Ok(());
    }
    let flat = model.reshaped(shape);
    flat.places(&small, &flat.positions()).map_err(|e| format!("minified, {e}: {small}"))
}

/// The tracker of a whole sequence.
///
/// # Errors
/// An operation that the engine refuses.
pub(crate) fn tracker(case: &ViewOps) -> Result<ShapeTracker, String> {
    tracker_with(case, true)
}

/// The tracker of a whole sequence, views merged as they come or not.
pub(crate) fn tracker_with(case: &ViewOps, is_merged: bool) -> Result<ShapeTracker, String> {
    let mut tracker = ShapeTracker::from_shape(&signed(&case.shape)).map_err(|e| e.to_string())?;
    for op in &case.ops {
        let movement = movement(op, tracker.shape().len());
        tracker = tracker.apply(&movement, is_merged).map_err(|error| error.to_string())?;
    }
    Ok(tracker)
}

fn signed(shape: &[usize]) -> Vec<i64> {
    shape.iter().map(|size| *size as i64).collect()
}

fn pairs(pairs: &[(usize, usize)]) -> Vec<(i64, i64)> {
    pairs.iter().map(|(a, b)| (*a as i64, *b as i64)).collect()
}

/// The engine's word for an operation on a tensor of this rank.
fn movement(op: &ViewOp, rank: usize) -> Movement {
    match op {
        ViewOp::Reshape(shape) => Movement::Reshape(signed(shape)),
        ViewOp::Permute(axes) => Movement::Permute(axes.clone()),
        ViewOp::Expand(shape) => Movement::Expand(signed(shape)),
        ViewOp::Pad(pads) => Movement::Pad(pairs(pads)),
        ViewOp::Shrink(ranges) => Movement::Shrink(pairs(ranges)),
        ViewOp::Flip(axes) => Movement::Flip((0..rank).map(|axis| axes.contains(&axis)).collect()),
    }
}

/// Where a sequence can be undone, undoing it puts each element back.
fn inversion(model: &Model, from: &[usize], tracker: &ShapeTracker) -> Result<(), String> {
    let count: usize = from.iter().product();
    let mut seen = vec![false; count];
    let is_once = model.origin.iter().filter(|place| **place >= 0).count() == count
        && model
            .origin
            .iter()
            .all(|place| *place < 0 || !std::mem::replace(&mut seen[*place as usize], true));
    let inverse = tracker.invert(&signed(from));
    // A single view of every element once is made of permutes, flips and pads.
    if inverse.is_some() != is_once && (inverse.is_some() || tracker.views().len() == 1) {
        return Err(format!("every element once: {is_once}, inverse {inverse:?}: {tracker}"));
    }
    let Some(inverse) = inverse else { return Ok(()) };
    let identity = Model::new(from);
    // Place in the moved tensor of each element of the buffer.
    let mut back = Model { shape: from.to_vec(), origin: vec![-1; count] };
    for (place, element) in (0..).zip(&model.origin).filter(|(_, element)| **element >= 0) {
        back.origin[*element as usize] = place;
    }
    let positions = identity.positions();
    back.places(&inverse, &positions).map_err(|e| format!("inverse, {e}: {inverse}"))?;
    let there_and_back = tracker.compose(&inverse).map_err(|error| error.to_string())?;
    identity
        .places(&there_and_back, &positions)
        .map_err(|e| format!("there and back, {e}: {there_and_back}"))
}

/// The next index in row-major order; after the last one, the first.
fn advance(shape: &[usize], index: &mut [i64]) {
    for axis in (0..shape.len()).rev() {
        index[axis] += 1;
        if index[axis] < shape[axis] as i64 {
            return;
        }
        index[axis] = 0;
    }
}

/// So far below 0 that no sum of places makes up for it.
const NOWHERE: i64 = i64::MIN / 64;

/// For each index of the moved axis, the index it had on the old axis of this size, times `step`;
/// `NOWHERE` where there was none.
fn column(op: &ViewOp, axis: usize, size: usize, step: i64) -> Vec<i64> {
    let places = |range: std::ops::Range<usize>| range.map(move |at| at as i64 * step);
    let outside = |count| std::iter::repeat_n(NOWHERE, count);
    match op {
        ViewOp::Expand(shape) if size == 1 => vec![0; shape[axis]],
        ViewOp::Pad(pads) => {
            let (before, after) = pads[axis];
            outside(before).chain(places(0..size)).chain(outside(after)).collect()
        }
        ViewOp::Shrink(ranges) => places(ranges[axis].0..ranges[axis].1).collect(),
        ViewOp::Flip(axes) if axes.contains(&axis) => places(0..size).rev().collect(),
        _ => places(0..size).collect(),
    }
}

/// A tensor whose elements say where in the buffer they came from; -1 is padding.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Model {
    shape: Vec<usize>,
    origin: Vec<i64>,
}

impl Model {
    pub(crate) fn new(shape: &[usize]) -> Model {
        let count: usize = shape.iter().product();
        Model { shape: shape.to_vec(), origin: (0..count as i64).collect() }
    }

    /// Whether an operation leaves everything where it is.
    fn is_idle(&self, op: &ViewOp) -> bool {
        match op {
            ViewOp::Reshape(shape) | ViewOp::Expand(shape) => *shape == self.shape,
            ViewOp::Permute(axes) => axes.iter().enumerate().all(|(place, axis)| place == *axis),
            ViewOp::Pad(pads) => pads.iter().all(|pad| *pad == (0, 0)),
            ViewOp::Shrink(ranges) => ranges.iter().zip(&self.shape).all(|(r, s)| *r == (0, *s)),
            ViewOp::Flip(axes) => axes.is_empty(),
        }
    }

    pub(crate) fn moved(self, op: &ViewOp) -> Model {
        if let ViewOp::Reshape(shape) = op {
            return Model { shape: shape.clone(), origin: self.origin };
        }
        let rank = self.shape.len();
        let mut steps = vec![1; rank];
        for axis in (1..rank).rev() {
            steps[axis - 1] = steps[axis] * self.shape[axis] as i64;
        }
        // Where each element comes from: the sum of what its index on each axis says.
        let (mut places, mut shape) = (vec![0], Vec::with_capacity(rank));
        for place in 0..rank {
            let axis = if let ViewOp::Permute(axes) = op { axes[place] } else { place };
            let column = column(op, axis, self.shape[axis], steps[axis]);
            let mut longer = Vec::with_capacity(places.len() * column.len());
            for place in &places {
                longer.extend(column.iter().map(|step| place + step));
            }
            places = longer;
            shape.push(column.len());
        }
        for place in &mut places {
            *place = if *place < 0 { -1 } else { self.origin[*place as usize] };
        }
        Model { shape, origin: places }
    }

    /// For each axis, the index on it of every element.
    pub(crate) fn positions(&self) -> Vec<Column> {
        let (count, mut step) = (self.origin.len(), self.origin.len());
        let column = |size: &usize| {
            step /= (*size).max(1);
            let mut column = Vec::with_capacity(count);
            while column.len() < count {
                for at in 0..*size as i64 {
                    column.resize(column.len() + step, at);
                }
            }
            Column::Each(column.into())
        };
        self.shape.iter().map(column).collect()
    }

    /// Whether the tracker's shape, index and validity say the same.
    fn places(&self, tracker: &ShapeTracker, positions: &[Column]) -> Result<(), String> {
        let found = tracker.index(&mut Columns(&|_| 0), positions);
        self.is_placed(tracker.shape(), found)
    }

    /// Whether a shape, index and validity say the same.
    pub(crate) fn is_placed(
        &self,
        shape: &[i64],
        (index, valid): (Column, Option<Column>),
    ) -> Result<(), String> {
        let is_size = |(size, found): (&usize, &i64)| *size as i64 == *found;
        if shape.len() != self.shape.len() || !self.shape.iter().zip(shape).all(is_size) {
            return Err(format!("shape {shape:?}, expected {:?}", self.shape));
        }
        let valid = valid.unwrap_or(Column::Number(1));
        let differs = |element: usize| {
            let expected = self.origin[element];
            let is_real = valid.at(element) != 0;
            is_real != (expected >= 0) || is_real && index.at(element) != expected
        };
        match (0..self.origin.len()).find(|element| differs(*element)) {
            None => Ok(()),
            Some(element) => Err(format!(
                "element {element} at {} if {}, expected {}",
                index.at(element),
                valid.at(element),
                self.origin[element]
            )),
        }
    }

    /// Whether each element alone is found where it is.
    fn located(&self, tracker: &ShapeTracker) -> Result<(), String> {
        let mut index = vec![0; self.shape.len()];
        for origin in &self.origin {
            let located = tracker.locate(&index);
            if located.unwrap_or(-1) != *origin {
                return Err(format!("element {index:?} at {located:?}, expected {origin}"));
            }
            advance(&self.shape, &mut index);
        }
        Ok(())
    }

    /// Whether everything the tracker says is so.
    fn agrees(&self, tracker: &ShapeTracker, positions: &[Column]) -> Result<(), String> {
        self.places(tracker, positions)?;
        self.located(tracker)?;
        let is_identity = (0..).zip(&self.origin).all(|(element, from)| element == *from);
        if tracker.is_contiguous() && !is_identity {
            return Err("called contiguous, but elements are moved".to_string());
        }
        let reached = self.reached();
        let (size, is_one) = (tracker.real_size(), tracker.views().len() == 1);
        if size < reached || is_one && !self.origin.is_empty() && size != reached {
            return Err(format!("real_size {size}, but {reached} is reached"));
        }
        let strides = tracker.real_strides(true).into_iter().zip(tracker.real_strides(false));
        for (axis, strides) in strides.enumerate() {
            self.axis_agrees(axis, strides.into(), || tracker.axis_is_masked(axis))?;
        }
        Ok(())
    }

    /// One more than the highest element of the buffer that is here.
    pub(crate) fn reached(&self) -> i64 {
        self.origin.iter().max().map_or(0, |last| last + 1)
    }

    /// The same elements under another shape.
    pub(crate) fn reshaped(&self, shape: Vec<usize>) -> Model {
        Model { shape, origin: self.origin.clone() }
    }

    /// Whether elements are as far apart along an axis, and as real, as is said of it; `strides`
    /// with validity ignored and not.
    pub(crate) fn axis_agrees(
        &self,
        axis: usize,
        strides: [Option<i64>; 2],
        says_masked: impl FnOnce() -> bool,
    ) -> Result<(), String> {
        let step: usize = self.shape[axis + 1..].iter().product();
        let stride = strides[0].or(strides[1]).unwrap_or(0);
        let (mut is_masked, mut is_even) = (false, true);
        let row = step * self.shape[axis];
        for row in self.origin.chunks_exact(row.max(1)).filter(|row| row.len() > step) {
            for (here, next) in row.iter().zip(&row[step..]) {
                is_masked |= (*here < 0) != (*next < 0);
                is_even &= (*here < 0) | (*next < 0) | (next - here == stride);
            }
        }
        if is_masked && (!says_masked() || strides[1].is_some()) {
            return Err(format!("axis {axis} is masked, axis_is_masked or real_strides says no"));
        }
        if strides != [None; 2] && !is_even || strides[1].is_some_and(|s| Some(s) != strides[0]) {
            return Err(format!("real strides {strides:?} of axis {axis}, steps are not"));
        }
        Ok(())
    }
}

/// A value for every element at once; truth is 1.
#[derive(Clone)]
pub(crate) enum Column {
    Number(i64),
    Each(Rc<[i64]>),
}

impl Column {
    fn at(&self, element: usize) -> i64 {
        match self {
            Column::Number(value) => *value,
            Column::Each(values) => values[element],
        }
    }

    fn with(self, other: Column, op: impl Fn(i64, i64) -> i64) -> Column {
        match (self, other) {
            (Column::Number(x), Column::Number(y)) => Column::Number(op(x, y)),
            (Column::Each(values), Column::Number(y)) => Column::each(values, |x| op(x, y)),
            (Column::Number(x), Column::Each(values)) => Column::each(values, |y| op(x, y)),
            (Column::Each(mut values), Column::Each(others)) => {
                let pairs = Rc::make_mut(&mut values).iter_mut().zip(others.iter());
                pairs.for_each(|(x, y)| *x = op(*x, *y));
                Column::Each(values)
            }
        }
    }

    fn each(mut values: Rc<[i64]>, op: impl Fn(i64) -> i64) -> Column {
        match Rc::get_mut(&mut values) {
            Some(values) => values.iter_mut().for_each(|value| *value = op(*value)),
            None => values = values.iter().map(|value| op(*value)).collect(),
        }
        Column::Each(values)
    }
}

/// Index expressions evaluated at once, for all elements, with these values of variables.
pub(crate) struct Columns<'a>(pub(crate) &'a dyn Fn(&Variable) -> i64);

impl IndexAlgebra for Columns<'_> {
    type Expr = Column;

    fn constant(&mut self, value: i64) -> Column {
        Column::Number(value)
    }

    fn add(&mut self, x: Column, y: Column) -> Column {
        x.with(y, |x, y| x + y)
    }

    fn mul(&mut self, x: Column, y: Column) -> Column {
        x.with(y, |x, y| x * y)
    }

    fn floordiv(&mut self, x: Column, y: Column) -> Column {
        x.with(y, |x, y| x.div_euclid(y))
    }

    fn floormod(&mut self, x: Column, y: Column) -> Column {
        x.with(y, |x, y| x.rem_euclid(y))
    }

    fn lt(&mut self, x: Column, y: Column) -> Column {
        x.with(y, |x, y| i64::from(x < y))
    }

    fn ge(&mut self, x: Column, y: Column) -> Column {
        x.with(y, |x, y| i64::from(x >= y))
    }

    fn and(&mut self, x: Column, y: Column) -> Column {
        x.with(y, |x, y| x & y)
    }
}
