//! Shape trackers near the limits of 64-bit integers, against arithmetic in 128 bits.
//!
//! Shapes have up to 2^63 elements and more, so that no element is visited: the coordinates of
//! drawn and of extreme elements are followed back through the operations to an address.

use gradiff::view::{Error, Movement, ShapeTracker, View};

use super::Draw;

/// Sequences of a check, operations of a sequence, and points at its end besides the corners.
const SEQUENCES: usize = 6;
const OPERATIONS_MAX: usize = 6;
const POINTS: usize = 12;
/// Number of calls before a crate is blamed.
const CALLS_OF_BLAME: usize = 60;
/// Maximal rank of a shape.
const RANK_MAX: usize = 5;

/// Sizes that are drawn.
const SIZES: [i64; 14] = [
    0,
    1,
    1,
    2,
    3,
    5,
    8,
    (1 << 16) + 1,
    1 << 20,
    (1 << 31) - 1,
    (1 << 31) + 1,
    1 << 40,
    i64::MAX / 2,
    i64::MAX,
];

/// The first wrong view of many: if there is one, nothing that relies on views can be judged.
pub(crate) fn wrong_view() -> Option<String> {
    let mut draw = Draw::new(0);
    (0..CALLS_OF_BLAME).find_map(|_| match crate::catch(|| views(&mut draw)) {
        Ok(checked) => checked.err(),
        Err(panic) => Some(panic),
    })
}

/// Draws sequences of operations and checks the trackers that they give.
pub(super) fn views(draw: &mut Draw) -> Result<(), String> {
    limits(draw)?;
    (0..SEQUENCES).try_for_each(|_| {
        let mut ops = Vec::new();
        sequence(draw, &mut ops).map_err(|problem| format!("{problem}, after {ops:?}"))
    })
}

/// Pads parts of an array until the lowest or the highest address, padding included, is the last
/// one that is allowed, or the first that is not: the negated lowest one and the highest one plus
/// one are 64-bit integers, too.
fn limits(draw: &mut Draw) -> Result<(), String> {
    let outer = 34 + draw.below(7);
    let inner = 62 - outer + draw.below(2 * outer - 62);
    // The products of an amount and a stride are half of the limit.
    let [rows, columns] = [outer, inner].map(|exponent| 1i64 << (62 - exponent));
    let [width, depth] = [1i64 << (outer - inner), 1i64 << inner];
    let (whole, matrix) = ([2, width, depth], [2, 1, 1i64 << outer]);
    let before = [(rows, 0), (columns, 0), (0, 0)];
    let after = [(0, 2 * rows - 2), (0, 0), (0, 0)];
    // Padding of an array of this shape, of which these columns and elements are kept.
    let cases = [
        (before, whole, 2, (0, 1), false),
        (before, whole, 2, (1, 2), true),
        (after, whole, width, (depth - 1, depth), false),
        (after, whole, width, (depth - 2, depth - 1), true),
        (after, matrix, 1, (1, matrix[2]), false),
        (after, matrix, 1, (0, matrix[2] - 1), true),
    ];
    for (amounts, shape, columns, elements, is_legal) in cases {
        let part = Movement::Shrink(vec![(0, 2), (0, columns), elements]);
        let padding = Movement::Pad(amounts.to_vec());
        for is_merged in [true, false] {
            let part = from_shape(&shape)?.apply(&part, is_merged);
            let part = part.map_err(|error| error.to_string())?;
            let found = crate::catch(|| part.apply(&padding, is_merged))?;
            if matches!(found, Err(Error::TooLarge { .. })) == is_legal {
                return Err(format!("{padding:?} of {part} gives {found:?}"));
            }
        }
    }
    Ok(())
}

/// An operation, and the shape that it is applied to.
type Applied = (Movement, Vec<i64>);

fn sequence(draw: &mut Draw, ops: &mut Vec<Applied>) -> Result<(), String> {
    let shape: Vec<i64> = (0..1 + draw.below(4)).map(|_| draw.pick(&SIZES)).collect();
    let start = crate::catch(|| ShapeTracker::from_shape(&shape))?;
    let Some(start) = judge("from_shape", &shape, start, false)? else { return Ok(()) };
    let (mut merged, mut unmerged) = (start.clone(), start.clone());
    // The operations after a split are applied to a tracker of their own as well.
    let (split, mut halves) = (draw.below(3), None);
    for number in 0..1 + draw.below(OPERATIONS_MAX) {
        let shape = merged.shape().to_vec();
        if number == split {
            halves = Some((merged.clone(), from_shape(&shape)?));
        }
        let Some((op, to)) = operation(&shape, draw) else { continue };
        if let Some(illegal) = illegal(&op, &shape, draw) {
            for (tracker, is_merged) in [(&merged, true), (&unmerged, false)] {
                let found = crate::catch(|| tracker.apply(&illegal, is_merged))?;
                if let Ok(found) = found {
                    return Err(format!("{illegal:?} of {shape:?} gives {found}"));
                }
            }
        }
        // Padding makes offsets that may be too large for the index.
        let may_exceed = ops.iter().any(|(op, _)| matches!(op, Movement::Pad(_)))
            || matches!(op, Movement::Pad(_));
        let name = format!("{op:?} of {shape:?}");
        let results = [(&merged, true), (&unmerged, false)].map(|(tracker, is_merged)| {
            let after = crate::catch(|| tracker.apply(&op, is_merged))?;
            judge(&name, &to, after, may_exceed)
        });
        let [new_merged, new_unmerged] = results;
        let (Some(new_merged), Some(new_unmerged)) = (new_merged?, new_unmerged?) else {
            return Ok(());
        };
        (merged, unmerged) = (new_merged, new_unmerged);
        if let Some((_, top)) = &mut halves {
            let after = crate::catch(|| top.apply(&op, true))?;
            match judge(&name, &to, after, may_exceed)? {
                Some(after) => *top = after,
                None => halves = None,
            }
        }
        ops.push((op, shape));
    }
    let mut trackers = vec![("merged", merged.clone()), ("unmerged", unmerged.clone())];
    for (name, tracker) in [("merged", &merged), ("unmerged", &unmerged)] {
        let called = crate::catch(|| {
            let _ = (tracker.real_size(), tracker.minify(), tracker.is_contiguous());
            let _ = tracker.invert(start.shape());
            tracker.simplify()
        });
        trackers.push(("simplified", called.map_err(|panic| format!("{name}, {panic}"))?));
    }
    if let Some((base, top)) = &halves {
        match crate::catch(|| base.compose(top))? {
            Ok(composed) => trackers.push(("composed", composed)),
            Err(Error::TooLarge { .. }) => {}
            Err(error) => return Err(format!("{base} + {top}: {error}")),
        }
    }
    trackers.iter().try_for_each(|(name, tracker)| {
        let is_inside = tracker.views().iter().all(addresses_fit);
        is_inside.then_some(()).ok_or_else(|| format!("{name}, addresses exceed i64: {tracker}"))
    })?;
    check_points(start.shape(), ops, &trackers, draw)
}

/// Returns whether the address of each element of the view, padding included, is an `i64`.
fn addresses_fit(view: &View) -> bool {
    let (mut low, mut high) = (i128::from(view.offset()), i128::from(view.offset()));
    for (size, stride) in view.shape().iter().zip(view.strides()) {
        let extent = i128::from(*stride) * (i128::from(*size) - 1).max(0);
        low += extent.min(0);
        high += extent.max(0);
    }
    i64::try_from(low).is_ok() && i64::try_from(high).is_ok()
}

fn from_shape(shape: &[i64]) -> Result<ShapeTracker, String> {
    ShapeTracker::from_shape(shape).map_err(|error| error.to_string())
}

/// Returns the tracker that a call gave, which must have this shape; `None` if the call was refused
/// because a number is too large. That is right if the elements are too many or, for some calls, if
/// the index is too large.
fn judge(
    call: &str,
    shape: &[i64],
    found: Result<ShapeTracker, Error>,
    may_exceed: bool,
) -> Result<Option<ShapeTracker>, String> {
    let is_too_large = i128::from(i64::MAX) < count(shape);
    match found {
        Ok(tracker) if !is_too_large && tracker.shape() == shape => Ok(Some(tracker)),
        Err(Error::TooLarge { .. }) if is_too_large || may_exceed => Ok(None),
        found => Err(format!("{call} to {shape:?} gives {found:?}")),
    }
}

/// The product of the sizes that are not 0, or a number beyond 2^64.
fn count(shape: &[i64]) -> i128 {
    shape.iter().filter(|size| **size != 0).fold(1i128, |product, size| {
        if product <= i128::from(u64::MAX) { product * i128::from(*size) } else { product }
    })
}

/// Draws an operation that is legal for the shape, and the new shape.
fn operation(shape: &[i64], draw: &mut Draw) -> Option<Applied> {
    let axes = 0..shape.len();
    Some(match draw.below(7) {
        0 => {
            let mut order: Vec<usize> = axes.collect();
            (1..order.len()).rev().for_each(|at| order.swap(at, draw.below(at + 1)));
            let to = order.iter().map(|axis| shape[*axis]).collect();
            (Movement::Permute(order), to)
        }
        1 => {
            let grown = |size: &i64| if *size == 1 { draw.pick(&SIZES) } else { *size };
            let to: Vec<i64> = shape.iter().map(grown).collect();
            (Movement::Expand(to.clone()), to)
        }
        2 => {
            let mut amount = || if draw.one_in(2) { 0 } else { draw.pick(&SIZES) / 4 };
            let amounts: Vec<(i64, i64)> = axes.map(|_| (amount(), amount())).collect();
            let sizes = shape.iter().zip(&amounts);
            let to: Option<Vec<i64>> = sizes
                .map(|(size, (before, after))| size.checked_add(*before)?.checked_add(*after))
                .collect();
            (Movement::Pad(amounts), to?)
        }
        3 => {
            let bounds: Vec<(i64, i64)> = shape
                .iter()
                .map(|size| {
                    let near = [0, 1, 2, size / 2, size / 2 + 1, size - 1, *size, *size];
                    let [x, y] = [0, 1].map(|_| draw.pick(&near).clamp(0, *size));
                    if draw.one_in(3) { (0, *size) } else { (x.min(y), x.max(y)) }
                })
                .collect();
            let to = bounds.iter().map(|(begin, end)| end - begin).collect();
            (Movement::Shrink(bounds), to)
        }
        4 => {
            let flags: Vec<bool> = axes.map(|_| draw.one_in(2)).collect();
            (Movement::Flip(flags), shape.to_vec())
        }
        5 if 1 < shape.len() => {
            // Two axes become one.
            let at = draw.below(shape.len() - 1);
            let mut to = shape.to_vec();
            let inner = to.remove(at + 1);
            to[at] = to[at].checked_mul(inner)?;
            (Movement::Reshape(to.clone()), to)
        }
        _ if shape.len() < RANK_MAX && !shape.is_empty() => {
            // An axis becomes two, of which one may have a single element.
            let at = draw.below(shape.len());
            let divisors = [1, 2, 3, 5, 7, 1 << 10, 1 << 20, 1 << 31, shape[at]];
            let divisor = draw.pick(&divisors);
            if divisor == 0 || shape[at] % divisor != 0 {
                return None;
            }
            let mut to = shape.to_vec();
            to.insert(at + 1, divisor);
            to[at] /= divisor;
            (Movement::Reshape(to.clone()), to)
        }
        _ => return None,
    })
}

/// Makes the operation illegal for the shape; `None` if the drawn change leaves it legal.
fn illegal(op: &Movement, shape: &[i64], draw: &mut Draw) -> Option<Movement> {
    let rank = shape.len();
    let at = draw.below(rank.max(1));
    let is_rank_wrong = rank == 0 || draw.one_in(4);
    let mut op = op.clone();
    match &mut op {
        Movement::Reshape(to) => match draw.below(3) {
            0 if !to.contains(&0) => to.push(draw.pick(&[0, 2, -1])),
            1 if 1 < to.len() && !to[..2].contains(&0) => to[..2].iter_mut().for_each(|x| *x = -*x),
            _ if to.contains(&0) => *to = vec![1],
            _ => *to.first_mut()? = to.first()?.checked_add(1)?,
        },
        Movement::Permute(order) if is_rank_wrong => order.push(rank),
        Movement::Permute(order) => match draw.below(3) {
            0 => order[at] = rank,
            1 => drop(order.pop()),
            _ => order[at] = order[(at + 1 < rank).then_some(at + 1)?],
        },
        Movement::Expand(to) if is_rank_wrong => to.push(1),
        Movement::Expand(to) => match shape[at] {
            1 => to[at] = draw.pick(&[-1, i64::MIN]),
            size => to[at] = size.checked_add(draw.pick(&[-1, 1]))?,
        },
        Movement::Pad(amounts) if is_rank_wrong => amounts.push((0, 0)),
        Movement::Pad(amounts) => match draw.one_in(2) {
            true => amounts[at].0 = -1,
            false => amounts[at].1 = -1,
        },
        Movement::Shrink(bounds) if is_rank_wrong => bounds.push((0, 1)),
        Movement::Shrink(bounds) => {
            let (begin, end) = &mut bounds[at];
            match draw.below(4) {
                0 => *begin = draw.pick(&[-1, i64::MIN]),
                1 => *end = shape[at].checked_add(1)?,
                2 => (*begin, *end) = (shape[at].checked_add(1)?, shape[at].checked_add(1)?),
                _ => (*begin, *end) = (end.checked_add(1)?, *begin),
            }
        }
        Movement::Flip(flags) => flags.push(true),
    }
    Some(op)
}

/// The row-major address of the element that these coordinates come from; `None` for padding.
fn origin(base: &[i64], ops: &[Applied], coordinates: &[i128]) -> Option<i128> {
    let mut at = coordinates.to_vec();
    let mut to: Vec<i64>;
    for (number, (op, shape)) in ops.iter().enumerate().rev() {
        let axes = 0..shape.len();
        match op {
            Movement::Permute(order) => {
                let mut before = vec![0; at.len()];
                order.iter().zip(&at).for_each(|(axis, at)| before[*axis] = *at);
                at = before;
            }
            Movement::Expand(_) => {
                axes.filter(|axis| shape[*axis] == 1).for_each(|axis| at[axis] = 0)
            }
            Movement::Pad(amounts) => {
                for axis in axes {
                    at[axis] -= i128::from(amounts[axis].0);
                    if at[axis] < 0 || i128::from(shape[axis]) <= at[axis] {
                        return None;
                    }
                }
            }
            Movement::Shrink(bounds) => {
                axes.for_each(|axis| at[axis] += i128::from(bounds[axis].0))
            }
            Movement::Flip(flags) => axes
                .filter(|axis| flags[*axis])
                .for_each(|axis| at[axis] = i128::from(shape[axis]) - 1 - at[axis]),
            Movement::Reshape(after) => {
                to = after.clone();
                let mut flat = flat(&to, &at);
                at = vec![0; shape.len()];
                for axis in axes.rev() {
                    at[axis] = flat % i128::from(shape[axis]);
                    flat /= i128::from(shape[axis]);
                }
            }
        }
        debug_assert_eq!(at.len(), ops[number].1.len());
    }
    Some(flat(base, &at))
}

/// The row-major number of an element.
fn flat(shape: &[i64], at: &[i128]) -> i128 {
    shape.iter().zip(at).fold(0, |flat, (size, at)| flat * i128::from(*size) + at)
}

fn check_points(
    base: &[i64],
    ops: &[Applied],
    trackers: &[(&str, ShapeTracker)],
    draw: &mut Draw,
) -> Result<(), String> {
    let shape = trackers[0].1.shape().to_vec();
    if shape.contains(&0) {
        return Ok(());
    }
    let mut points: Vec<Vec<i64>> =
        vec![vec![0; shape.len()], shape.iter().map(|size| size - 1).collect()];
    for _ in 0..POINTS {
        let coordinate = |size: &i64| match draw.below(5) {
            0 => 0,
            1 => size - 1,
            2 => size / 2,
            3 => draw.pick(&SIZES).min(size - 1),
            _ => (draw.bits() % *size as u64) as i64,
        };
        points.push(shape.iter().map(coordinate).collect());
    }
    for point in points {
        let wide: Vec<i128> = point.iter().map(|at| i128::from(*at)).collect();
        let expected = origin(base, ops, &wide);
        for (name, tracker) in trackers {
            let found = crate::catch(|| tracker.locate(&point))?.map(i128::from);
            if found != expected {
                return Err(format!(
                    "{name}, {point:?} is at {found:?}, not {expected:?}, by {tracker}"
                ));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_near_the_limit_are_right() {
        for seed in 0..20_000 {
            views(&mut Draw::new(seed)).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        }
    }

    #[test]
    fn wrong_addresses_are_reported() {
        let tracker = ShapeTracker::from_shape(&[1 << 40, 3]).expect("it fits");
        let flipped = tracker.flip(&[true, false]).expect("a flag for each axis");
        let ops = vec![(Movement::Flip(vec![true, false]), vec![1 << 40, 3])];
        let check =
            |tracker| check_points(&[1 << 40, 3], &ops, &[("plain", tracker)], &mut Draw::new(1));
        assert_eq!(check(flipped), Ok(()));
        assert!(check(tracker).expect_err("it is not flipped").contains("plain"));
    }
}
