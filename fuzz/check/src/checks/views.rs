//! Checks of shape trackers against a model that moves real elements.

use std::hash::{DefaultHasher, Hash, Hasher};

use gradiff::view::{Movement, ShapeTracker};
use gradiff_corpus::{ViewOp, ViewOps};

use crate::models::model::{Checked, Checker, Model};

/// Sequences up to this length are split at every position for `a + b`, longer ones in the middle.
const SPLITS_ALL: usize = 3;
/// One sequence in this many is checked with variables in its sizes as well.
const SYMBOLIC_ONE_IN: u64 = 256;

/// Checks the tracker of a sequence, after every operation, against the model: element positions by
/// the index and validity expressions; at its end also by `locate`, and contiguity, real size, real
/// strides, masked axes, `minify`, `invert`, `a + b`, with views merged, unmerged, simplified.
///
/// # Errors
/// The first difference, in one line.
pub fn check_views(case: &ViewOps) -> Result<(), String> {
    check(case).map(drop)
}

/// Checks a sequence. Returns the counts of checked elements.
fn check(case: &ViewOps) -> Result<Checked, String> {
    let mut checker = Checker::new(&|_| 0);
    Walked::new(&mut checker, case)?.check(&mut checker, case)?;
    let mut hasher = DefaultHasher::new();
    (&case.shape, &case.ops).hash(&mut hasher);
    if hasher.finish().is_multiple_of(SYMBOLIC_ONE_IN) {
        checker.checked.add(crate::checks::symbolic::check(case)?);
    }
    Ok(checker.checked)
}

/// The trackers and the model at the end of a sequence.
struct Walked {
    model: Model,
    merged: ShapeTracker,
    unmerged: ShapeTracker,
    /// The trackers of the operations before and after each split.
    halves: Vec<(ShapeTracker, ShapeTracker)>,
}

impl Walked {
    /// Applies the operations and checks the tracker between them.
    fn new(checker: &mut Checker, case: &ViewOps) -> Result<Walked, String> {
        let mut model = Model::new(&case.shape);
        let mut merged = start(&case.shape)?;
        let mut unmerged = merged.clone();
        let count = case.ops.len();
        let is_split = |position: usize| count <= SPLITS_ALL || position == count / 2;
        let mut halves: Vec<(ShapeTracker, ShapeTracker)> = Vec::new();
        for (number, op) in case.ops.iter().enumerate() {
            let at = |problem: String| format!("after {} ({}): {problem}", number + 1, op.name());
            if is_split(number) {
                let top = if number == 0 { merged.clone() } else { start(&model.shape)? };
                halves.push((merged.clone(), top));
            }
            let movement = movement(op, model.shape.len());
            let is_idle = model.is_idle(op);
            model = if is_idle { model } else { model.moved(op) };
            let after = merged.apply(&movement, true).map_err(|e| at(e.to_string()))?;
            // Equal trackers move alike; whether they reshape alike without merging is checked.
            let is_reshape = matches!(op, ViewOp::Reshape(_));
            let moved = |tracker: &ShapeTracker, is_merged: bool| {
                if *tracker == merged && (is_merged || !is_reshape) {
                    return Ok(after.clone());
                }
                tracker.apply(&movement, is_merged).map_err(|e| at(e.to_string()))
            };
            unmerged = moved(&unmerged, false)?;
            for (_, top) in &mut halves {
                *top = moved(top, true)?;
            }
            // A tracker that an idle operation left unchanged has been checked already.
            let is_checked = is_idle && number > 0 && merged == after;
            merged = after;
            if number + 1 < count && !is_checked {
                checker.index(&model, &merged).map_err(|e| at(format!("{e}: {merged}")))?;
            }
        }
        Ok(Walked { model, merged, unmerged, halves })
    }

    /// Checks everything at the end of the sequence.
    fn check(&self, checker: &mut Checker, case: &ViewOps) -> Result<(), String> {
        let Walked { model, merged, unmerged, halves } = self;
        let simple = simplified(merged, unmerged)?;
        let check = |checker: &mut Checker, kind: &str, tracker: &ShapeTracker| {
            let checked = checker.agrees(model, tracker);
            checked.map_err(|e| format!("at the end, {kind}, {e}: {tracker}"))
        };
        check(checker, "merged", merged)?;
        // Equal trackers are checked once. Strides and masks of a tracker are those of its
        // simplified form, which is checked below if it differs.
        if unmerged != merged {
            let checked =
                checker.index(model, unmerged).and_then(|()| checker.located(model, unmerged));
            checked.map_err(|e| format!("at the end, unmerged, {e}: {unmerged}"))?;
        }
        if simple != *merged && simple != *unmerged {
            check(checker, "simplified", &simple)?;
        }
        for (base, top) in halves {
            let composed = base.compose(top).map_err(|error| format!("{base} + {top}: {error}"))?;
            if composed != *merged && composed != simple {
                let checked = checker.index(model, &composed);
                checked.map_err(|e| format!("{base} + {top}, {e}: {composed}"))?;
            }
        }
        minified(checker, model, merged)?;
        inversion(checker, model, &case.shape, merged)?;
        // Each of its views keeps all elements of the view below, whatever padding surrounds them.
        let keeps = |op: &ViewOp| {
            matches!(op, ViewOp::Reshape(_) | ViewOp::Permute(_) | ViewOp::Flip(_) | ViewOp::Pad(_))
        };
        if case.ops.iter().all(keeps) && unmerged != merged {
            if unmerged.invert(&signed(&case.shape)).is_none() {
                return Err(format!("no inverse, although all elements are kept: {unmerged}"));
            }
            inversion(checker, model, &case.shape, unmerged)?;
        }
        Ok(())
    }
}

fn start(shape: &[usize]) -> Result<ShapeTracker, String> {
    ShapeTracker::from_shape(&signed(shape)).map_err(|error| error.to_string())
}

/// Simplifies the tracker and checks that it has no more views than before, and that simplifying
/// it again changes nothing.
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

/// Checks that `minify` keeps the elements in order and leaves no axis that could be dropped.
fn minified(checker: &mut Checker, model: &Model, tracker: &ShapeTracker) -> Result<(), String> {
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
    let checked = checker.index_under(&shape, &model.origin, &small, |size| *size);
    checked.map_err(|e| format!("minified, {e}: {small}"))
}

/// The tracker of a whole sequence.
///
/// # Errors
/// An operation that the engine refuses.
pub(crate) fn tracker(case: &ViewOps) -> Result<ShapeTracker, String> {
    tracker_with(case, true)
}

/// The tracker of a whole sequence; views are merged after each operation if `is_merged`.
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

/// The engine's form of an operation on a tensor of this rank.
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

/// Checks that the inverse of a sequence, if it has one, puts each element back.
fn inversion(
    checker: &mut Checker,
    model: &Model,
    from: &[usize],
    tracker: &ShapeTracker,
) -> Result<(), String> {
    let is_once = model.has_all_once(from.iter().product());
    let inverse = tracker.invert(&signed(from));
    // A single view of every element once is made of permutes, flips and pads.
    if inverse.is_some() != is_once && (inverse.is_some() || tracker.views().len() == 1) {
        return Err(format!(
            "every element occurs once: {is_once}, but the inverse is {inverse:?}: {tracker}"
        ));
    }
    let Some(inverse) = inverse else { return Ok(()) };
    let back = model.inverse(from);
    checker.index(&back, &inverse).map_err(|e| format!("inverse, {e}: {inverse}"))?;
    let round_trip = tracker.compose(&inverse).map_err(|error| error.to_string())?;
    let checked = checker.index(&Model::new(from), &round_trip);
    checked.map_err(|e| format!("composed with its inverse, {e}: {round_trip}"))
}

#[cfg(test)]
mod tests {
    use gradiff_gen::{SeedChoices, ViewConfig, case_seed};

    use super::*;

    /// A faster check must still check as many elements.
    #[test]
    fn counts_of_checked_elements_stay_the_same() {
        let counts = [(1_505_749, 407_787, 1_012_258), (69_811, 20_896, 28_470)];
        let configs = [ViewConfig::default(), ViewConfig::small(3)];
        for (config, counts) in configs.iter().zip(counts) {
            let mut checked = Checked::default();
            for index in 0..4096 {
                let mut choices = SeedChoices::new(case_seed(1, index));
                let case = gradiff_gen::views(&mut choices, config);
                checked.add(check(&case).expect("trackers agree with the model"));
            }
            assert_eq!((checked.indexed, checked.located, checked.strided), counts);
        }
    }
}
