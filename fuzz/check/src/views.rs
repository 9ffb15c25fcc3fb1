//! ShapeTrackers against a model that moves real elements.
//!
//! The model is a list of where each element came from, moved by copying; it shares nothing with
//! the engine's view algebra.

use gradiff::view::{IndexAlgebra, Movement, ShapeTracker};
use gradiff_corpus::{ViewOp, ViewOps};

/// A tensor whose elements say where in the buffer they came from; `None` is padding.
struct Model {
    shape: Vec<usize>,
    origin: Vec<Option<usize>>,
}

/// Checks the tracker of a sequence, after every operation, against the model: shape, element
/// positions, index and validity expressions, contiguity, size, strides, masks, inversion and
/// simplification, with views merged and unmerged.
///
/// # Errors
/// What differs, in one line.
pub fn check_views(case: &ViewOps) -> Result<(), String> {
    let size: usize = case.shape.iter().product();
    let mut model = Model { shape: case.shape.clone(), origin: (0..size).map(Some).collect() };
    let mut merged = ShapeTracker::from_shape(&signed(&case.shape)).map_err(|e| e.to_string())?;
    let mut unmerged = merged.clone();
    for (number, op) in case.ops.iter().enumerate() {
        let at = |what: String| format!("after {} ({}): {what}", number + 1, op.name());
        model = model.moved(op);
        let movement = movement(op, model.shape.len());
        merged = merged.apply(&movement, true).map_err(|e| at(e.to_string()))?;
        unmerged = unmerged.apply(&movement, false).map_err(|e| at(e.to_string()))?;
        let is_last = number + 1 == case.ops.len();
        model.agrees(&merged, is_last).map_err(|e| at(format!("{e}: {merged}")))?;
        if is_last {
            let what = |e| at(format!("unmerged, {e}: {unmerged}"));
            // Equal trackers were looked at already.
            if unmerged != merged {
                model.agrees(&unmerged, true).map_err(what)?;
            }
            let simple = unmerged.simplify();
            if simple != merged && simple != unmerged {
                let what = |e| at(format!("simplified, {e}: {simple}"));
                model.agrees(&simple, true).map_err(what)?;
            }
            let views = (simple.views().len(), unmerged.views().len());
            if views.0 > views.1 {
                return Err(at(format!("simplify made {} views of {}", views.0, views.1)));
            }
        }
    }
    inversion(case, &merged)
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

/// Where a sequence of permutes and flips can be undone, undoing it gives the buffer back.
fn inversion(case: &ViewOps, tracker: &ShapeTracker) -> Result<(), String> {
    let Some(inverse) = tracker.invert(&signed(&case.shape)) else { return Ok(()) };
    let there_and_back = tracker.compose(&inverse).map_err(|error| error.to_string())?;
    let mut index = vec![0; case.shape.len()];
    let size: usize = case.shape.iter().product();
    for element in 0..size {
        if let Some(found) = there_and_back.locate(&index)
            && found != element as i64
        {
            return Err(format!(
                "inverse {inverse} brings element {element} to {found}: {tracker}"
            ));
        }
        advance(&case.shape, &mut index);
    }
    Ok(())
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

/// For each index of the moved axis, the index it had on the old axis of this size; `None` where
/// there was none.
fn column(op: &ViewOp, axis: usize, size: usize) -> Vec<Option<usize>> {
    match op {
        ViewOp::Reshape(_) | ViewOp::Permute(_) => (0..size).map(Some).collect(),
        ViewOp::Expand(shape) if size == 1 => vec![Some(0); shape[axis]],
        ViewOp::Expand(_) => (0..size).map(Some).collect(),
        ViewOp::Pad(pads) => {
            let (before, after) = pads[axis];
            let outside = |count| std::iter::repeat_n(None, count);
            outside(before).chain((0..size).map(Some)).chain(outside(after)).collect()
        }
        ViewOp::Shrink(ranges) => (ranges[axis].0..ranges[axis].1).map(Some).collect(),
        ViewOp::Flip(axes) if axes.contains(&axis) => (0..size).rev().map(Some).collect(),
        ViewOp::Flip(_) => (0..size).map(Some).collect(),
    }
}

impl Model {
    fn moved(&self, op: &ViewOp) -> Model {
        if let ViewOp::Reshape(shape) = op {
            return Model { shape: shape.clone(), origin: self.origin.clone() };
        }
        let rank = self.shape.len();
        let axes: Vec<usize> = match op {
            ViewOp::Permute(axes) => axes.clone(),
            _ => (0..rank).collect(),
        };
        let columns: Vec<Vec<Option<usize>>> = axes
            .iter()
            .map(|axis| {
                let step: usize = self.shape[axis + 1..].iter().product();
                let column = column(op, *axis, self.shape[*axis]);
                column.into_iter().map(|from| from.map(|from| from * step)).collect()
            })
            .collect();
        // Where each element comes from: the sum of what its index on each axis says.
        let mut places = vec![Some(0)];
        for column in &columns {
            let longer = |place: &Option<usize>| {
                let place = *place;
                column.iter().map(move |step| Some(place? + (*step)?))
            };
            places = places.iter().flat_map(longer).collect();
        }
        let origin = places.into_iter().map(|place| self.origin[place?]).collect();
        Model { shape: columns.iter().map(Vec::len).collect(), origin }
    }

    /// Whether the tracker says the same; index expressions and the derived properties too if
    /// `is_thorough`.
    fn agrees(&self, tracker: &ShapeTracker, is_thorough: bool) -> Result<(), String> {
        if tracker.shape() != signed(&self.shape) {
            return Err(format!("shape {:?}, expected {:?}", tracker.shape(), self.shape));
        }
        let mut index = vec![0; self.shape.len()];
        for origin in &self.origin {
            let expected = origin.map(|origin| origin as i64);
            let located = tracker.locate(&index);
            if located != expected {
                return Err(format!("element {index:?} at {located:?}, expected {expected:?}"));
            }
            if is_thorough {
                let (position, validity) = tracker.index(&mut Numbers, &index);
                let indexed = validity.is_none_or(|v| v != 0).then_some(position);
                if indexed != expected {
                    return Err(format!(
                        "index of {index:?} is {indexed:?}, expected {expected:?}"
                    ));
                }
            }
            advance(&self.shape, &mut index);
        }
        if is_thorough { self.properties_agree(tracker) } else { Ok(()) }
    }

    fn properties_agree(&self, tracker: &ShapeTracker) -> Result<(), String> {
        let is_identity =
            self.origin.iter().enumerate().all(|(element, from)| *from == Some(element));
        if tracker.is_contiguous() && !is_identity {
            return Err("called contiguous, but elements are moved".to_string());
        }
        let reached = self.origin.iter().flatten().max().map_or(0, |last| *last as i64 + 1);
        if tracker.real_size() < reached {
            return Err(format!("real_size {}, but {reached} is reached", tracker.real_size()));
        }
        let strides = tracker.real_strides(true);
        let mut index = vec![0; self.shape.len()];
        for (axis, stride) in strides.iter().enumerate() {
            let is_masked = self.is_masked(axis);
            if is_masked && !tracker.axis_is_masked(axis) {
                return Err(format!("axis {axis} is masked, axis_is_masked says no"));
            }
            let Some(stride) = stride else { continue };
            let step: usize = self.shape[axis + 1..].iter().product();
            for element in 0..self.origin.len() {
                let here = index[axis];
                advance(&self.shape, &mut index);
                if here + 1 < self.shape[axis] as i64
                    && let (Some(a), Some(b)) = (self.origin[element], self.origin[element + step])
                    && b as i64 - a as i64 != *stride
                {
                    return Err(format!("stride {stride} of axis {axis}, but {a} then {b}"));
                }
            }
        }
        Ok(())
    }

    /// Whether validity changes along the axis anywhere.
    fn is_masked(&self, axis: usize) -> bool {
        let step: usize = self.shape[axis + 1..].iter().product();
        let mut index = vec![0; self.shape.len()];
        (0..self.origin.len()).any(|element| {
            let here = index[axis];
            advance(&self.shape, &mut index);
            here + 1 < self.shape[axis] as i64
                && self.origin[element].is_some() != self.origin[element + step].is_some()
        })
    }
}

/// Index expressions evaluated at once: expressions are numbers, truth is 1.
struct Numbers;

impl IndexAlgebra for Numbers {
    type Expr = i64;

    fn constant(&mut self, value: i64) -> i64 {
        value
    }

    fn add(&mut self, x: i64, y: i64) -> i64 {
        x + y
    }

    fn mul(&mut self, x: i64, y: i64) -> i64 {
        x * y
    }

    fn floordiv(&mut self, x: i64, y: i64) -> i64 {
        x.div_euclid(y)
    }

    fn floormod(&mut self, x: i64, y: i64) -> i64 {
        x.rem_euclid(y)
    }

    fn lt(&mut self, x: i64, y: i64) -> i64 {
        i64::from(x < y)
    }

    fn ge(&mut self, x: i64, y: i64) -> i64 {
        i64::from(x >= y)
    }

    fn and(&mut self, x: i64, y: i64) -> i64 {
        x & y
    }
}
