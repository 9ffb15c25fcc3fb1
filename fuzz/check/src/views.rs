//! ShapeTrackers against a model that moves real elements.

use std::hash::{DefaultHasher, Hash, Hasher};

use gradiff::view::{Movement, ShapeTracker};
use gradiff_corpus::{ViewOp, ViewOps};

use crate::model::{Look, Looked, Model};

/// Sequences up to this long are taken apart at every place for `a + b`, longer ones in the middle.
const SPLITS_ALL: usize = 3;
/// One sequence in so many is checked with variables in its sizes, too.
const SYMBOLIC_ONE_IN: u64 = 256;

/// Checks the tracker of a sequence, after every operation, against the model: element positions by
/// the index and validity expressions; at its end also by `locate`, and contiguity, real size, real
/// strides, masked axes, `minify`, `invert`, `a + b`, with views merged, unmerged, simplified.
///
/// # Errors
/// What differs, in one line.
pub fn check_views(case: &ViewOps) -> Result<(), String> {
    look_at(case).map(drop)
}

/// Checks, and says how much was looked at.
fn look_at(case: &ViewOps) -> Result<Looked, String> {
    let mut look = Look::new(&|_| 0);
    Walked::new(&mut look, case)?.check(&mut look, case)?;
    let mut hasher = DefaultHasher::new();
    (&case.shape, &case.ops).hash(&mut hasher);
    if hasher.finish().is_multiple_of(SYMBOLIC_ONE_IN) {
        look.looked.add(crate::symbolic::look_at(case)?);
    }
    Ok(look.looked)
}

/// The end of a sequence.
struct Walked {
    model: Model,
    merged: ShapeTracker,
    unmerged: ShapeTracker,
    /// The tracker up to a place, and that of the rest.
    halves: Vec<(ShapeTracker, ShapeTracker)>,
}

impl Walked {
    /// Goes through the operations and looks at the tracker between them.
    fn new(look: &mut Look, case: &ViewOps) -> Result<Walked, String> {
        let mut model = Model::new(&case.shape);
        let mut merged = start(&case.shape)?;
        let mut unmerged = merged.clone();
        let count = case.ops.len();
        let is_split = |place: usize| count <= SPLITS_ALL || place == count / 2;
        let mut halves: Vec<(ShapeTracker, ShapeTracker)> = Vec::new();
        for (number, op) in case.ops.iter().enumerate() {
            let at = |what: String| format!("after {} ({}): {what}", number + 1, op.name());
            if is_split(number) {
                let top = if number == 0 { merged.clone() } else { start(&model.shape)? };
                halves.push((merged.clone(), top));
            }
            let movement = movement(op, model.shape.len());
            let is_idle = model.is_idle(op);
            model = if is_idle { model } else { model.moved(op) };
            let after = merged.apply(&movement, true).map_err(|e| at(e.to_string()))?;
            // Equal trackers move alike; that they reshape alike without merging is to be seen.
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
            // What an idle operation left as it was has been looked at.
            let is_seen = is_idle && number > 0 && merged == after;
            merged = after;
            if number + 1 < count && !is_seen {
                look.places(&model, &merged).map_err(|e| at(format!("{e}: {merged}")))?;
            }
        }
        Ok(Walked { model, merged, unmerged, halves })
    }

    /// Everything that is looked at in the end.
    fn check(&self, look: &mut Look, case: &ViewOps) -> Result<(), String> {
        let Walked { model, merged, unmerged, halves } = self;
        let simple = simplified(merged, unmerged)?;
        let check = |look: &mut Look, what: &str, tracker: &ShapeTracker| {
            let checked = look.agrees(model, tracker);
            checked.map_err(|e| format!("at the end, {what}, {e}: {tracker}"))
        };
        check(look, "merged", merged)?;
        // Equal trackers are looked at once. Strides and masks of a tracker are those of its
        // simplified form, which is looked at below if it is another one.
        if unmerged != merged {
            let placed = look.places(model, unmerged).and_then(|()| look.located(model, unmerged));
            placed.map_err(|e| format!("at the end, unmerged, {e}: {unmerged}"))?;
        }
        if simple != *merged && simple != *unmerged {
            check(look, "simplified", &simple)?;
        }
        for (base, top) in halves {
            let composed = base.compose(top).map_err(|error| format!("{base} + {top}: {error}"))?;
            if composed != *merged && composed != simple {
                let placed = look.places(model, &composed);
                placed.map_err(|e| format!("{base} + {top}, {e}: {composed}"))?;
            }
        }
        minified(look, model, merged)?;
        inversion(look, model, &case.shape, merged)?;
        // Each view of it keeps all elements of the one below, whatever stands around them.
        let keeps = |op: &ViewOp| {
            matches!(op, ViewOp::Reshape(_) | ViewOp::Permute(_) | ViewOp::Flip(_) | ViewOp::Pad(_))
        };
        if case.ops.iter().all(keeps) && unmerged != merged {
            if unmerged.invert(&signed(&case.shape)).is_none() {
                return Err(format!("no inverse of what keeps all elements: {unmerged}"));
            }
            inversion(look, model, &case.shape, unmerged)?;
        }
        Ok(())
    }
}

fn start(shape: &[usize]) -> Result<ShapeTracker, String> {
    ShapeTracker::from_shape(&signed(shape)).map_err(|error| error.to_string())
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
fn minified(look: &mut Look, model: &Model, tracker: &ShapeTracker) -> Result<(), String> {
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
    let placed = look.flat_places(&shape, &model.origin, &small, |size| *size);
    placed.map_err(|e| format!("minified, {e}: {small}"))
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
fn inversion(
    look: &mut Look,
    model: &Model,
    from: &[usize],
    tracker: &ShapeTracker,
) -> Result<(), String> {
    let is_once = model.has_all_once(from.iter().product());
    let inverse = tracker.invert(&signed(from));
    // A single view of every element once is made of permutes, flips and pads.
    if inverse.is_some() != is_once && (inverse.is_some() || tracker.views().len() == 1) {
        return Err(format!("every element once: {is_once}, inverse {inverse:?}: {tracker}"));
    }
    let Some(inverse) = inverse else { return Ok(()) };
    let back = model.inverse(from);
    look.places(&back, &inverse).map_err(|e| format!("inverse, {e}: {inverse}"))?;
    let there_and_back = tracker.compose(&inverse).map_err(|error| error.to_string())?;
    let placed = look.places(&Model::new(from), &there_and_back);
    placed.map_err(|e| format!("there and back, {e}: {there_and_back}"))
}

#[cfg(test)]
mod tests {
    use gradiff_gen::{SeedChoices, ViewConfig, case_seed};

    use super::*;

    /// Whoever makes the checks faster finds as much looked at as before.
    #[test]
    fn as_much_is_looked_at_as_ever() {
        let counts = [(1_505_749, 407_787, 1_012_258), (69_811, 20_896, 28_470)];
        let configs = [ViewConfig::default(), ViewConfig::small(3)];
        for (config, (placed, located, stepped)) in configs.iter().zip(counts) {
            let mut looked = Looked::default();
            for index in 0..4096 {
                let mut choices = SeedChoices::new(case_seed(1, index));
                let case = gradiff_gen::views(&mut choices, config);
                looked.add(look_at(&case).expect("trackers agree with the model"));
            }
            assert_eq!(looked, Looked { placed, located, stepped });
        }
    }
}
