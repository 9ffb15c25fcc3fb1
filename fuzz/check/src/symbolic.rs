//! Trackers whose sizes have variables, against the model at several values of the variables.
//!
//! A plain sequence is lifted: up to two sizes of its buffer become variables, and every argument
//! that follows from them becomes an expression. What cannot be lifted ends the sequence.

use std::sync::Arc;

use gradiff::graph::{SInt, Variable};
use gradiff::view::{Dim, DimAlgebra, IndexAlgebra, Movement, ShapeTracker};
use gradiff_corpus::{ViewOp, ViewOps};

use crate::model::{Look, Looked, Model};
use crate::spans::{Column, Columns};

/// The sequence with variables, as far as it can be lifted.
struct Lifted {
    shape: Vec<SInt>,
    ops: Vec<Movement<SInt>>,
}

/// Checks trackers with variables in their sizes: merged, unmerged, simplified, minified, and put
/// together of two, at the lowest, highest and other values of the variables.
///
/// # Errors
/// What differs, in one line.
pub fn check_symbolic_views(case: &ViewOps) -> Result<(), String> {
    look_at(case).map(drop)
}

/// Checks, and says how much was looked at.
pub(crate) fn look_at(case: &ViewOps) -> Result<Looked, String> {
    let lifted = lift(case);
    let mut looked = Looked::default();
    if lifted.shape.iter().all(|size| size.as_number().is_some()) {
        return Ok(looked);
    }
    let text = |error: gradiff::view::Error| format!("with variables, {error}");
    let start = ShapeTracker::from_shape(&lifted.shape).map_err(text)?;
    let (mut merged, mut unmerged) = (start.clone(), start);
    let mut halves = None;
    for (number, movement) in lifted.ops.iter().enumerate() {
        if number == lifted.ops.len() / 2 {
            let top = ShapeTracker::from_shape(merged.shape()).map_err(text)?;
            halves = Some((merged.clone(), top));
        }
        merged = merged.apply(movement, true).map_err(text)?;
        unmerged = unmerged.apply(movement, false).map_err(text)?;
        if let Some((_, top)) = &mut halves {
            *top = top.apply(movement, true).map_err(text)?;
        }
    }
    let mut trackers = vec![unmerged.simplify(), merged, unmerged];
    if let Some((base, top)) = halves {
        trackers.push(base.compose(&top).map_err(text)?);
    }
    trackers.sort();
    trackers.dedup();
    // Which variables are at their highest value; the plain sequence's own values come first.
    for corner in [None, Some(0), Some(1), Some(2)] {
        let value = |variable: &Variable| {
            let place = variable.name.len() - 1;
            let own = || (variable.min + variable.max) / 2;
            let at_end =
                |corner: i32| if corner >> place & 1 == 1 { variable.max } else { variable.min };
            corner.map_or_else(own, at_end)
        };
        let shape = lifted.shape.iter().map(|size| size.bind(value) as usize);
        let mut model = Model::new(&shape.collect::<Vec<_>>());
        for movement in &lifted.ops {
            model = model.moved(&bound(movement, &value));
        }
        let mut look = Look::new(&value);
        for tracker in &trackers {
            agrees(&mut look, &model, tracker, &value)
                .map_err(|e| format!("with variables, {e}: {tracker}"))?;
        }
        looked.add(look.looked);
    }
    Ok(looked)
}

fn agrees(
    look: &mut Look,
    model: &Model,
    tracker: &ShapeTracker<SInt>,
    value: &dyn Fn(&Variable) -> i64,
) -> Result<(), String> {
    let number = |size: &SInt| size.bind(value);
    look.flat_places(&model.shape, &model.origin, tracker, number)?;
    let small = tracker.minify();
    let flat: Vec<usize> = small.shape().iter().map(|size| number(size) as usize).collect();
    let placed = look.flat_places(&flat, &model.origin, &small, number);
    placed.map_err(|e| format!("minified to {small}, {e}"))?;
    if number(&tracker.real_size()) < model.reached() {
        return Err(format!(
            "real_size {}, but {} is reached",
            tracker.real_size(),
            model.reached()
        ));
    }
    look.axes_agree(model, &tracker.steps(), number)
}

impl DimAlgebra<SInt> for Columns<'_> {
    fn dim(&mut self, size: &SInt) -> Column {
        self.constant(size.bind(self.variable()))
    }
}

fn lift(case: &ViewOps) -> Lifted {
    let mut shape: Vec<SInt> = case.shape.iter().map(|size| SInt::number(*size as i64)).collect();
    let axes = (0..shape.len()).rev().filter(|axis| case.shape[*axis] > 1);
    for (place, axis) in axes.take(2).enumerate() {
        let size = case.shape[axis] as i64;
        // Every other variable counts pairs, so that its axis can be split. The plain size is in
        // the middle of the range.
        let unit = if size % 2 == 0 && (place + case.ops.len()).is_multiple_of(2) { 2 } else { 1 };
        let (count, name) = (size / unit, "n".repeat(place + 1));
        let reach = count / 2;
        let variable = Variable { name, min: count - reach, max: count + reach };
        let count = SInt::variable(Arc::new(variable));
        shape[axis] = count.times(&SInt::number(unit)).unwrap_or(count);
    }
    let mut lifted = Lifted { shape: shape.clone(), ops: Vec::new() };
    let mut plain = case.shape.clone();
    for op in &case.ops {
        let Some(movement) = lifted_op(op, &plain, &shape) else { break };
        let moved = ShapeTracker::from_shape(&shape).and_then(|t| t.apply(&movement, true));
        let (Ok(moved), Ok(next)) = (moved, op.shape(&plain)) else { break };
        (shape, plain) = (moved.shape().to_vec(), next);
        lifted.ops.push(movement);
    }
    lifted
}

/// The movement on the sizes with variables that is `op` on the plain ones.
fn lifted_op(op: &ViewOp, plain: &[usize], sizes: &[SInt]) -> Option<Movement<SInt>> {
    let number = |size: usize| SInt::number(size as i64);
    Some(match op {
        ViewOp::Reshape(to) => Movement::Reshape(lifted_shape(plain, sizes, to)?),
        ViewOp::Permute(axes) => Movement::Permute(axes.clone()),
        ViewOp::Expand(to) => {
            let axes = sizes.iter().zip(to);
            Movement::Expand(
                axes.map(|(s, to)| if s.is(1) { number(*to) } else { s.clone() }).collect(),
            )
        }
        ViewOp::Pad(pads) => {
            Movement::Pad(pads.iter().map(|(a, b)| (number(*a), number(*b))).collect())
        }
        ViewOp::Shrink(ranges) => {
            let bound =
                |((begin, range_end), (size, whole)): (&(usize, usize), (&SInt, &usize))| {
                    // Ends near the end of the axis move with it.
                    let from_end = size.minus(&number(whole - range_end))?;
                    let is_near = whole - range_end < *range_end && number(0).at_most(&from_end);
                    let is_inside = number(*range_end).at_most(size);
                    let end = if is_near || !is_inside { from_end } else { number(*range_end) };
                    if begin == range_end {
                        return Some((end.clone(), end));
                    }
                    // Never empty for some values only.
                    let begins = [number(*begin), size.minus(&number(whole - begin))?, number(0)];
                    let fits = |at: &&SInt| number(0).at_most(at) && at.below(&end);
                    Some((begins.iter().find(fits)?.clone(), end))
                };
            let axes = ranges.iter().zip(sizes.iter().zip(plain));
            Movement::Shrink(axes.map(bound).collect::<Option<_>>()?)
        }
        ViewOp::Flip(axes) => {
            Movement::Flip((0..plain.len()).map(|axis| axes.contains(&axis)).collect())
        }
    })
}

/// The sizes of a reshape to `to`: neighbouring axes with equal products go together, and one axis
/// of each such group takes what the others leave.
fn lifted_shape(plain: &[usize], sizes: &[SInt], to: &[usize]) -> Option<Vec<SInt>> {
    let one = SInt::number(1);
    let (mut from, mut result) = (0, Vec::new());
    while result.len() < to.len() || from < plain.len() {
        let first = result.len();
        let (mut have, mut want, mut until) = (1, 1, first);
        let mut product = one.clone();
        loop {
            if have <= want && from < plain.len() && (have < want || until == first) {
                have *= plain[from];
                product = product.times(&sizes[from])?;
                from += 1;
            } else if until < to.len() {
                want *= to[until];
                until += 1;
            } else if from < plain.len() {
                have *= plain[from];
                product = product.times(&sizes[from])?;
                from += 1;
            } else {
                break;
            }
            if have == want && until > first {
                break;
            }
        }
        let group = &to[first..until];
        let numbers = || group.iter().map(|size| SInt::number(*size as i64));
        if product.as_number().is_some() {
            result.extend(numbers());
            continue;
        }
        let rest = |taker: usize| {
            let others: usize =
                (0..group.len()).filter(|i| *i != taker).map(|i| group[i]).product();
            let (rest, none) = product.div_rem(&SInt::number(others as i64))?;
            none.is(0).then_some((taker, rest))
        };
        let (taker, rest) = (0..group.len()).find_map(rest)?;
        result.extend(numbers());
        result[first + taker] = rest;
    }
    Some(result)
}

/// The movement where the variables have these values.
fn bound(movement: &Movement<SInt>, value: &dyn Fn(&Variable) -> i64) -> ViewOp {
    let number = |size: &SInt| size.bind(value) as usize;
    let sizes = |sizes: &[SInt]| sizes.iter().map(number).collect();
    let pairs =
        |pairs: &[(SInt, SInt)]| pairs.iter().map(|(a, b)| (number(a), number(b))).collect();
    match movement {
        Movement::Reshape(to) => ViewOp::Reshape(sizes(to)),
        Movement::Permute(axes) => ViewOp::Permute(axes.clone()),
        Movement::Expand(to) => ViewOp::Expand(sizes(to)),
        Movement::Pad(amounts) => ViewOp::Pad(pairs(amounts)),
        Movement::Shrink(bounds) => ViewOp::Shrink(pairs(bounds)),
        Movement::Flip(axes) => ViewOp::Flip((0..axes.len()).filter(|axis| axes[*axis]).collect()),
    }
}
