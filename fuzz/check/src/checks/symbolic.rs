//! Checks of trackers whose sizes have variables, against the model at several values of these.
//!
//! A plain sequence is lifted: sizes of its buffer become variables, their squares or their
//! products, and every argument that follows from them becomes an expression; so do amounts of
//! padding, which grow with the axis, with another axis or by themselves. An operation that cannot
//! be lifted ends the sequence.

use std::sync::Arc;

use gradiff::graph::Variable;
use gradiff::graph::sint::SInt;
use gradiff::view::{Dim, DimAlgebra, Error, IndexAlgebra, Movement, ShapeTracker};
use gradiff_corpus::{ViewOp, ViewOps};

use crate::checks::calls::Draw;
use crate::models::model::{Checked, Checker, Model};
use crate::models::spans::{Column, Columns};

/// Number of drawn sequences, padded by expressions, that are checked along with each given one.
const GROWN: usize = 4;

/// A sequence with variables, as far as it can be lifted.
struct Lifted {
    shape: Vec<SInt>,
    ops: Vec<Movement<SInt>>,
}

/// Checks trackers with variables in their sizes: merged, unmerged, simplified, minified, and
/// composed of two, at the lowest, highest and other values of the variables.
///
/// # Errors
/// The first difference, in one line.
pub fn check_symbolic_views(case: &ViewOps) -> Result<(), String> {
    check(case)?;
    let mut draw = Draw::new(crate::report::hash(&format!("{case:?}")));
    for _ in 0..GROWN {
        let (grown, turn) = grown(&mut draw);
        check_lifted(&lift(&grown, Some(turn)))
            .map_err(|problem| format!("{grown:?} {problem}"))?;
    }
    Ok(())
}

/// Draws a sequence with an axis that is padded by about its size, then split where the padding
/// begins or elsewhere: whether its views merge depends on what is known about the variables. The
/// second result is the turn by which the padding becomes an expression.
fn grown(draw: &mut Draw) -> (ViewOps, usize) {
    let mut shape: Vec<usize> = (0..1 + draw.below(2)).map(|_| 2 + draw.below(5)).collect();
    let buffer = shape.clone();
    let mut ops = Vec::new();
    let axis = draw.below(shape.len());
    let flip = |draw: &mut Draw, ops: &mut Vec<ViewOp>, rank: usize| {
        if draw.one_in(3) {
            ops.push(ViewOp::Flip(vec![draw.below(rank)]));
        }
    };
    flip(draw, &mut ops, shape.len());
    let before = if draw.one_in(3) { 1 + draw.below(3) } else { 0 };
    let after = shape[axis] / 2 + draw.below(4);
    let mut pads = vec![(0, 0); shape.len()];
    pads[axis] = if draw.one_in(4) { (after, before) } else { (before, after) };
    ops.push(ViewOp::Pad(pads));
    shape[axis] += before + after;
    flip(draw, &mut ops, shape.len());
    if draw.one_in(4) {
        let padding = (axis, before, before + buffer[axis]);
        ops.extend(single(draw, &shape, padding));
        return (ViewOps { shape: buffer, ops }, draw.below(5));
    }
    if draw.one_in(3) && shape.len() == 2 {
        ops.push(ViewOp::Permute(vec![1, 0]));
        shape.swap(0, 1);
    }
    // Splits each axis in two if possible.
    let split: Vec<usize> = shape
        .iter()
        .flat_map(|size| match [2, 3].into_iter().find(|by| size % by == 0 && by < size) {
            Some(by) if draw.one_in(3) => vec![by, size / by],
            Some(by) => vec![size / by, by],
            None => vec![*size],
        })
        .collect();
    ops.push(ViewOp::Reshape(split.clone()));
    flip(draw, &mut ops, split.len());
    if draw.one_in(3) {
        let mut axes: Vec<usize> = (0..split.len()).collect();
        axes.rotate_left(1);
        ops.push(ViewOp::Permute(axes));
    } else if draw.one_in(2) {
        ops.push(ViewOp::Reshape(vec![split.iter().product()]));
    }
    (ViewOps { shape: buffer, ops }, draw.below(5))
}

/// Operations that keep a single element of a padded shape, as a shape without axes: an element
/// next to an end of the axis or of its padding. The padding is the axis, the index at which it
/// ends and that at which it begins again.
fn single(
    draw: &mut Draw,
    shape: &[usize],
    (axis, end, begin): (usize, usize, usize),
) -> [ViewOp; 3] {
    let (mut shape, mut near) = (shape.to_vec(), vec![end, begin, shape[axis]]);
    if draw.one_in(3) {
        let inner: usize = shape[axis + 1..].iter().product();
        near.iter_mut().for_each(|at| *at *= inner);
        shape = vec![shape.iter().product()];
    }
    let element = |at: usize, size: usize| (at.min(size - 1), at.min(size - 1) + 1);
    let mut ranges = Vec::new();
    for (number, size) in shape.iter().enumerate() {
        let at = match number == axis || shape.len() == 1 {
            true => (draw.pick(&near) + draw.below(3)).saturating_sub(1),
            false => draw.below(*size),
        };
        ranges.push(element(at, *size));
    }
    [ViewOp::Reshape(shape), ViewOp::Shrink(ranges), ViewOp::Reshape(Vec::new())]
}

/// Checks a lifted sequence with padding by numbers, and by expressions if there is padding.
/// Returns the counts of checked elements.
pub(crate) fn check(case: &ViewOps) -> Result<Checked, String> {
    let mut checked = check_lifted(&lift(case, None))?;
    if case.ops.iter().any(|op| matches!(op, ViewOp::Pad(_))) {
        checked.add(check_lifted(&lift(case, Some(case.shape.iter().sum())))?);
    }
    Ok(checked)
}

fn check_lifted(lifted: &Lifted) -> Result<Checked, String> {
    let mut checked = Checked::default();
    if lifted.shape.iter().all(|size| size.as_number().is_some()) {
        return Ok(checked);
    }
    let text = |error: Error| format!("with variables, {error}");
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
        match base.compose(&top) {
            Ok(tracker) => {
                checked.composed += 1;
                trackers.push(tracker);
            }
            // It may read outside, as far as the ranges of the variables tell.
            Err(Error::Stack { .. }) => checked.undecided += 1,
            Err(error) => return Err(text(error)),
        }
    }
    trackers.sort();
    trackers.dedup();
    // The bits of a corner say which variables have their highest value; the values of the plain
    // sequence come first.
    for corner in [None, Some(0), Some(0b0101), Some(0b1010)] {
        let value = |variable: &Variable| {
            let bit = variable.name.len() - 1;
            let plain = || (variable.min + variable.max) / 2;
            let at_end =
                |corner: i32| if corner >> bit & 1 == 1 { variable.max } else { variable.min };
            corner.map_or_else(plain, at_end)
        };
        let shape = lifted.shape.iter().map(|size| size.bind(value) as usize);
        let mut model = Model::new(&shape.collect::<Vec<_>>());
        for movement in &lifted.ops {
            model = model.moved(&bound(movement, &value));
        }
        let mut checker = Checker::new(&value);
        for tracker in &trackers {
            agrees(&mut checker, &model, tracker, &value)
                .map_err(|e| format!("with variables, {e}: {tracker}"))?;
        }
        checked.add(checker.checked);
    }
    Ok(checked)
}

fn agrees(
    checker: &mut Checker,
    model: &Model,
    tracker: &ShapeTracker<SInt>,
    value: &dyn Fn(&Variable) -> i64,
) -> Result<(), String> {
    let number = |size: &SInt| size.bind(value);
    checker.index_under(&model.shape, &model.origin, tracker, number)?;
    let small = tracker.minify();
    let flat: Vec<usize> = small.shape().iter().map(|size| number(size) as usize).collect();
    let checked = checker.index_under(&flat, &model.origin, &small, number);
    checked.map_err(|e| format!("minified to {small}, {e}"))?;
    if number(&tracker.real_size()) < model.extent() {
        return Err(format!(
            "real_size is {}, but the elements need {}",
            tracker.real_size(),
            model.extent()
        ));
    }
    checker.axes_agree(model, &tracker.axis_strides(), number)
}

impl DimAlgebra<SInt> for Columns<'_> {
    fn dim(&mut self, size: &SInt) -> Column {
        self.constant(size.bind(self.variable()))
    }
}

/// The form of the expressions that the sizes of a buffer become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// Up to two axes have a variable each, which counts single elements or pairs.
    Separate,
    /// One variable is in all axes.
    Shared,
    /// `n * n + c` in one axis, n in the others.
    Square,
    /// `n * m + c` in one axis, n in the others.
    Product,
    /// `2 * n * m + c` in one axis, n in the others.
    Twice,
}

impl Form {
    /// The form for a case: half of all cases have a variable for each axis.
    fn of(case: &ViewOps) -> Form {
        let sizes = case.shape.iter().zip(1..).map(|(size, axis)| axis * size).sum::<usize>();
        match (sizes + 3 * case.ops.len()) % 8 {
            4 => Form::Shared,
            5 => Form::Square,
            6 => Form::Product,
            7 => Form::Twice,
            _ => Form::Separate,
        }
    }
}

/// A variable with this value in the middle of its range.
fn around(name: &str, value: i64) -> SInt {
    let radius = value / 2;
    let name = name.to_string();
    SInt::variable(Arc::new(Variable { name, min: value - radius, max: value + radius }))
}

/// The sizes of the buffer as expressions; if each variable is in the middle of its range, their
/// values are the plain sizes. The second result is the variables of products.
fn lifted_sizes(case: &ViewOps) -> (Vec<SInt>, Vec<SInt>) {
    let mut shape: Vec<SInt> = case.shape.iter().map(|size| SInt::number(*size as i64)).collect();
    let mut axes = (0..shape.len()).rev().filter(|axis| case.shape[*axis] > 1);
    let form = Form::of(case);
    if form == Form::Separate {
        for (number, axis) in axes.take(2).enumerate() {
            let size = case.shape[axis] as i64;
            // Every other variable counts pairs, so that its axis can be split.
            let pairs = size % 2 == 0 && (number + case.ops.len()).is_multiple_of(2);
            let unit = if pairs { 2 } else { 1 };
            let count = around(&"n".repeat(number + 1), size / unit);
            shape[axis] = count.times(&SInt::number(unit)).unwrap_or(count);
        }
        return (shape, Vec::new());
    }
    let Some(first) = axes.next() else { return (shape, Vec::new()) };
    let size = case.shape[first] as i64;
    let root = match form {
        Form::Shared => size,
        Form::Twice => (size / 2).isqrt().max(1),
        _ => size.isqrt(),
    };
    let unit = if form == Form::Twice { 2 } else { 1 };
    let (n, cofactor) = (around("n", root), size / unit / root);
    let m = around("nn", cofactor);
    let (first_size, value) = match form {
        Form::Shared => (Some(n.clone()), size),
        Form::Square => (n.times(&n), root * root),
        _ => {
            let product = n.times(&m).and_then(|product| product.times(&SInt::number(unit)));
            (product, unit * root * cofactor)
        }
    };
    let shifted = |size: SInt, by: i64| {
        size.plus(&SInt::number(by)).filter(|size| SInt::number(1).at_most(size))
    };
    let first_size = first_size.and_then(|first_size| shifted(first_size, size - value));
    shape[first] = first_size.unwrap_or(SInt::number(size));
    for axis in axes {
        let size = case.shape[axis] as i64;
        shape[axis] = shifted(n.clone(), size - root).unwrap_or(SInt::number(size));
    }
    (shape, vec![n, m])
}

/// Lifts a sequence. With a turn, amounts of padding become expressions, too.
fn lift(case: &ViewOps, turn: Option<usize>) -> Lifted {
    let (mut shape, variables) = lifted_sizes(case);
    let mut lifted = Lifted { shape: shape.clone(), ops: Vec::new() };
    let mut plain = case.shape.clone();
    for (number, op) in case.ops.iter().enumerate() {
        let turn = turn.map(|turn| turn + number);
        let Some(movement) = lifted_op(op, &plain, &shape, &variables, turn) else { break };
        let moved = ShapeTracker::from_shape(&shape).and_then(|t| t.apply(&movement, true));
        let (Ok(moved), Ok(next)) = (moved, op.shape(&plain)) else { break };
        (shape, plain) = (moved.shape().to_vec(), next);
        lifted.ops.push(movement);
    }
    lifted
}

/// Padding whose amounts are expressions where possible: the size of an axis plus or minus a
/// number, or a variable of their own, depending on the turn.
fn lifted_pads(
    pads: &[(usize, usize)],
    plain: &[usize],
    sizes: &[SInt],
    turn: usize,
) -> Movement<SInt> {
    let zero = SInt::number(0);
    let amount = |axis: usize, side: usize, amount: usize| {
        let number = SInt::number(amount as i64);
        let as_size_of = |axis: usize| {
            let difference = SInt::number(amount as i64 - plain[axis] as i64);
            let expression = sizes[axis].plus(&difference).filter(|amount| zero.at_most(amount));
            expression.unwrap_or(number.clone())
        };
        match (turn + axis + 2 * side) % 5 {
            _ if amount == 0 => number,
            0 => as_size_of(axis),
            1 => as_size_of((axis + 1) % plain.len()),
            2 => {
                let (name, max) = ("n".repeat(3 + side), 2 * amount as i64);
                SInt::variable(Arc::new(Variable { name, min: 0, max }))
            }
            _ => number,
        }
    };
    let pair =
        |(axis, (a, b)): (usize, &(usize, usize))| (amount(axis, 0, *a), amount(axis, 1, *b));
    Movement::Pad(pads.iter().enumerate().map(pair).collect())
}

/// The movement on the sizes with variables that corresponds to `op` on the plain sizes.
fn lifted_op(
    op: &ViewOp,
    plain: &[usize],
    sizes: &[SInt],
    variables: &[SInt],
    turn: Option<usize>,
) -> Option<Movement<SInt>> {
    let number = |size: usize| SInt::number(size as i64);
    Some(match op {
        ViewOp::Reshape(to) => {
            let parts = [variables, sizes].concat();
            Movement::Reshape(lifted_shape(plain, sizes, to, &parts)?)
        }
        ViewOp::Permute(axes) => Movement::Permute(axes.clone()),
        ViewOp::Expand(to) => {
            let axes = sizes.iter().zip(to);
            Movement::Expand(
                axes.map(|(s, to)| if s.is(1) { number(*to) } else { s.clone() }).collect(),
            )
        }
        ViewOp::Pad(pads) => match turn {
            Some(turn) => lifted_pads(pads, plain, sizes, turn),
            None => Movement::Pad(pads.iter().map(|(a, b)| (number(*a), number(*b))).collect()),
        },
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
                    // A range must not be empty for some values alone.
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

/// The sizes of a reshape to `to`: neighbouring axes with equal products form a group, and one axis
/// of each group takes the factor that the others leave.
fn lifted_shape(
    plain: &[usize],
    sizes: &[SInt],
    to: &[usize],
    parts: &[SInt],
) -> Option<Vec<SInt>> {
    let (mut from, mut result) = (0, Vec::new());
    while result.len() < to.len() || from < plain.len() {
        let first = result.len();
        let (mut have, mut want, mut until) = (1, 1, first);
        let mut product = SInt::number(1);
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
        result.extend(lifted_group(group, &product, parts)?);
    }
    Some(result)
}

/// The sizes of a group of axes with this product. One axis takes the factor that the others leave;
/// those are numbers, or variables or sizes of the earlier axes if these divide the product and
/// have the same value.
fn lifted_group(group: &[usize], product: &SInt, parts: &[SInt]) -> Option<Vec<SInt>> {
    let middle = |size: &SInt| size.bind(|variable| (variable.min + variable.max) / 2);
    let parts = || parts.iter().filter(|part| part.as_number().is_none()).cloned();
    let without = |rest: &SInt, part: &SInt| {
        let (quotient, remainder) = rest.div_rem(part)?;
        remainder.is(0).then_some(quotient)
    };
    let sizes_with_rest_at = |rest_axis: usize| {
        let mut rest = product.clone();
        let mut sizes = Vec::with_capacity(group.len());
        for (axis, size) in group.iter().enumerate() {
            if axis == rest_axis {
                sizes.push(SInt::number(0));
                continue;
            }
            let candidates = parts().filter(|part| middle(part) == *size as i64);
            let candidates = candidates.chain([SInt::number(*size as i64)]);
            let (part, left) = candidates
                .filter_map(|part| without(&rest, &part).map(|left| (part, left)))
                .next()?;
            rest = left;
            sizes.push(part);
        }
        let fits = middle(&rest) == group[rest_axis] as i64;
        sizes[rest_axis] = rest;
        fits.then_some(sizes)
    };
    (0..group.len()).find_map(sizes_with_rest_at)
}

/// The movement for these values of the variables.
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

#[cfg(test)]
mod tests {
    use super::*;
    use gradiff_gen::{SeedChoices, ViewConfig, views};

    #[test]
    fn padded_sequences_are_moved() {
        let mut draw = Draw::new(0);
        let mut singles = 0;
        for _ in 0..1000 {
            let (case, turn) = grown(&mut draw);
            let lifted = lift(&case, Some(turn));
            check_lifted(&lifted).unwrap_or_else(|why| panic!("{case:?} {why}"));
            let is_variable = |(begin, _): &(SInt, SInt)| begin.as_number().is_none();
            singles += usize::from(match &lifted.ops[..] {
                [.., Movement::Shrink(bounds), Movement::Reshape(to)] => {
                    to.is_empty() && bounds.iter().any(is_variable)
                }
                _ => false,
            });
        }
        assert!(20 < singles, "{singles} of 1000 are single elements at a variable offset");
    }

    /// Sequences that are moved in two halves are composed of these, nearly all of them.
    #[test]
    fn halves_are_composed() {
        let mut checked = Checked::default();
        for index in 0..4096 {
            let mut choices = SeedChoices::new(gradiff_gen::case_seed(1, index));
            let case = views(&mut choices, &ViewConfig::default());
            checked.add(check(&case).expect("trackers agree with the model"));
        }
        let counts = (checked.composed, checked.undecided);
        assert_eq!(counts, (4300, 0), "composed, and not decided");
        let case = ViewOps {
            shape: vec![16, 7, 1],
            ops: vec![
                ViewOp::Reshape(vec![16, 7]),
                ViewOp::Flip(vec![0]),
                ViewOp::Pad(vec![(3, 3), (2, 1)]),
                ViewOp::Shrink(vec![(10, 15), (6, 7)]),
            ],
        };
        assert_eq!(check(&case).map(|checked| checked.undecided), Ok(1));
    }

    /// Squares and products occur in the final sizes of sequences, and most operations are lifted.
    #[test]
    fn squares_and_products_of_variables_are_moved() {
        let mut choices = SeedChoices::new(5);
        let (mut ops, mut lifted, mut squares, mut products) = (0, 0, 0, 0);
        for _ in 0..4_000 {
            let case = views(&mut choices, &ViewConfig::default());
            let Lifted { shape, ops: movements } = lift(&case, None);
            if shape.iter().all(|size| size.as_number().is_some()) {
                continue;
            }
            ops += case.ops.len();
            lifted += movements.len();
            let start = ShapeTracker::from_shape(&shape).expect("sizes are positive");
            let end =
                movements.iter().try_fold(start, |tracker, movement| tracker.apply(movement, true));
            let text = format!("{:?}", end.expect("lifted movements fit").shape());
            squares += usize::from(text.contains("n*n") && !text.contains("nn"));
            products += usize::from(text.contains("n*nn") || text.contains("nn*n"));
        }
        println!("{lifted} of {ops} operations, {squares} squares, {products} products");
        assert!(lifted * 2 > ops, "{lifted} of {ops} operations");
        assert!(squares > 100 && products > 100, "{squares} squares, {products} products");
    }
}
