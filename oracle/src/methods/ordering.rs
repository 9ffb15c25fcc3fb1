//! Methods that compare elements with each other. NaN is above all numbers, and equal to NaN.

use std::cmp::Ordering;

use gradiff_corpus::DType;

use super::Call;
use super::reduction::{min, over_axes};
use crate::arithmetic::{order, within};
use crate::cast::cast;
use crate::cell::{Cell, Reason};
use crate::infer::{Check, resolve_axis};
use crate::integer;
use crate::value::Value;

/// Compares two elements in the order that has NaN last.
fn compare(dtype: DType, a: Cell, b: Cell) -> Result<Ordering, Reason> {
    match (a, b) {
        (Cell::Unspecified(reason), _) | (_, Cell::Unspecified(reason)) => Err(reason),
        (Cell::Int(a), Cell::Int(b)) => Ok(integer::value(dtype, a).cmp(&integer::value(dtype, b))),
        (Cell::Nan(_), Cell::Nan(_)) => Ok(Ordering::Equal),
        (Cell::Nan(_), _) => Ok(Ordering::Greater),
        (_, Cell::Nan(_)) => Ok(Ordering::Less),
        _ => Ok(order(a, b)?.expect("neither is NaN")),
    }
}

/// Returns the position of the first element that is NaN or, if none is, of the first extreme one;
/// `better` says how that compares with the rest. The line has an element.
pub(super) fn extreme(dtype: DType, line: &[Cell], better: Ordering) -> Result<usize, Reason> {
    for (i, cell) in line.iter().enumerate() {
        match cell {
            Cell::Unspecified(reason) => return Err(*reason),
            Cell::Nan(_) => return Ok(i),
            _ => {}
        }
    }
    // Elements may straddle each other if one is certainly the best. That one replaces any
    // before it, and none after it replaces it, even if it is equal.
    let beats = |i: usize, j: usize| match (line[i], line[j]) {
        (Cell::Real(x), Cell::Real(y)) if i < j => match better {
            Ordering::Less => x.upper() <= y.lower(),
            _ => y.upper() <= x.lower(),
        },
        (x, y) => match compare(dtype, x, y) {
            Ok(order) => order == better || order == Ordering::Equal && i < j,
            Err(_) => false,
        },
    };
    let best = (1..line.len()).fold(0, |best, i| if beats(best, i) { best } else { i });
    let is_best = (0..line.len()).all(|j| best == j || beats(best, j));
    is_best.then_some(best).ok_or(Reason::Straddle)
}

/// Replaces the elements of each line along an axis by `size` others, which `f` returns.
fn along(
    x: &Value,
    axis: usize,
    (dtype, size): (DType, usize),
    f: impl Fn(&[Cell]) -> Vec<Cell>,
) -> Value {
    let mut shape = x.shape.clone();
    shape[axis] = size;
    let inner: usize = x.shape[axis + 1..].iter().product();
    let outer: usize = x.shape[..axis].iter().product();
    let mut cells = vec![Cell::Int(0); outer * size * inner];
    for line in 0..outer * inner {
        let (block, offset) = (line / inner, line % inner);
        let at = |i: usize, count: usize| (block * count + i) * inner + offset;
        let elements: Vec<Cell> =
            (0..x.shape[axis]).map(|i| x.cells[at(i, x.shape[axis])]).collect();
        for (i, cell) in f(&elements).into_iter().enumerate() {
            cells[at(i, size)] = cell;
        }
    }
    Value::new(dtype, shape, cells)
}

/// The bounds of an element: true for NaN, the smallest and the largest number.
type Bounds = (bool, f64, f64);

fn bounds(cell: Cell) -> Result<Bounds, Reason> {
    match cell {
        Cell::Unspecified(reason) => Err(reason),
        // In a wider type the number would be finite, but beyond those of its own.
        Cell::Inf { overflowed: true, negative: false } => Ok((false, f64::MAX, f64::INFINITY)),
        Cell::Inf { overflowed: true, negative: true } => Ok((false, f64::NEG_INFINITY, f64::MIN)),
        Cell::Inf { negative, .. } => {
            let infinity = if negative { f64::NEG_INFINITY } else { f64::INFINITY };
            Ok((false, infinity, infinity))
        }
        // Bounds are rounded outwards; infinite ones are those of numbers that overflowed.
        Cell::Real(real) => Ok((false, real.lower().max(f64::MIN), real.upper().min(f64::MAX))),
        Cell::Nan(_) => Ok((true, 0.0, 0.0)),
        Cell::Int(_) => panic!("{cell:?} is no float"),
    }
}

/// The positions of elements in order; equal ones keep theirs.
fn stable_order(dtype: DType, line: &[Cell], descending: bool) -> Result<Vec<usize>, Reason> {
    let mut positions: Vec<usize> = (0..line.len()).collect();
    if line.len() < 2 {
        return Ok(positions);
    }
    let turned = |order: Ordering| if descending { order.reverse() } else { order };
    if !dtype.is_float() {
        let number = |cell: &Cell| match cell {
            Cell::Int(bits) => Ok(integer::value(dtype, *bits)),
            Cell::Unspecified(reason) => Err(*reason),
            cell => panic!("{cell:?} is no integer"),
        };
        let numbers = line.iter().map(number).collect::<Result<Vec<i128>, Reason>>()?;
        positions.sort_by(|a, b| turned(numbers[*a].cmp(&numbers[*b])));
        return Ok(positions);
    }
    let bounds = line.iter().map(|cell| bounds(*cell)).collect::<Result<Vec<Bounds>, Reason>>()?;
    positions.sort_by(|a, b| {
        let ((a_nan, a, ..), (b_nan, b, ..)) = (bounds[*a], bounds[*b]);
        turned(a_nan.cmp(&b_nan).then(a.partial_cmp(&b).expect("bounds are no NaN")))
    });
    // In the order of their smallest numbers, bounds that overlap any overlap the next ones. Those
    // that touch are in order if elements that are equal are.
    let is_decided = positions.windows(2).all(|pair| {
        let (first, second) = (bounds[pair[0]], bounds[pair[1]]);
        let ((is_nan, _, upper), (next_nan, lower, _)) =
            if descending { (second, first) } else { (first, second) };
        is_nan != next_nan || upper < lower || upper == lower && pair[0] < pair[1]
    });
    is_decided.then_some(positions).ok_or(Reason::Straddle)
}

/// Most elements of a line whose ranks are found if some elements straddle.
const RANKED_MAX: usize = 1024;

/// The first `count` positions in order: those of elements whose rank the bounds decide.
fn certain_positions(
    dtype: DType,
    line: &[Cell],
    descending: bool,
    count: usize,
) -> Result<Vec<Cell>, Reason> {
    let mut positions = vec![Cell::Unspecified(Reason::Straddle); count];
    // All pairs are compared.
    if RANKED_MAX < line.len() {
        return Ok(positions);
    }
    for (i, cell) in line.iter().enumerate() {
        let mut rank = Some(0);
        for (j, second) in line.iter().enumerate().filter(|(j, _)| *j != i) {
            let order = match compare(dtype, *second, *cell) {
                Ok(order) if descending => order.reverse(),
                Ok(order) => order,
                Err(Reason::Straddle | Reason::Overflow) => {
                    rank = None;
                    continue;
                }
                Err(reason) => return Err(reason),
            };
            let is_before = order == Ordering::Less || order == Ordering::Equal && j < i;
            rank = rank.map(|rank| rank + usize::from(is_before));
        }
        if let Some(position) = rank.and_then(|rank: usize| positions.get_mut(rank)) {
            *position = Cell::Int(i as u64);
        }
    }
    Ok(positions)
}

/// The first `count` floats in order, some of which the bounds do not decide: the k-th one is
/// between the k-th lower and the k-th upper bound.
fn ordered_bounds(line: &[Cell], descending: bool, count: usize) -> Result<Vec<Cell>, Reason> {
    let (mut lower, mut upper, mut nans) = (Vec::new(), Vec::new(), Vec::new());
    for cell in line {
        let (is_nan, low, high) = bounds(*cell)?;
        if is_nan {
            nans.push(*cell);
            continue;
        }
        lower.push(low);
        upper.push(high);
    }
    lower.sort_by(f64::total_cmp);
    upper.sort_by(f64::total_cmp);
    let number = |(lower, upper): (f64, f64)| match lower == upper {
        true if lower.is_infinite() => Cell::infinity(lower < 0.0),
        true if lower == 0.0 => Cell::zero(None),
        true => Cell::exact(lower),
        false if f64::MAX <= lower => Cell::Inf { negative: false, overflowed: true },
        false if upper <= f64::MIN => Cell::Inf { negative: true, overflowed: true },
        false if lower.is_infinite() || upper.is_infinite() => Cell::Unspecified(Reason::Straddle),
        false => within(lower, upper),
    };
    let numbers: Vec<Cell> = lower.into_iter().zip(upper).map(number).collect();
    let mut found = match descending {
        false => [numbers, nans].concat(),
        true => nans.into_iter().chain(numbers.into_iter().rev()).collect(),
    };
    found.truncate(count);
    Ok(found)
}

/// The first `count` elements in order, or their positions.
fn ordered(
    call: Call<'_>,
    (number, descending): (i64, bool),
    count: Option<i64>,
    is_positions: bool,
) -> Check<Value> {
    let x = call.srcs[0];
    let axis = resolve_axis(number, x.shape.len())?;
    let size = x.shape[axis];
    let count = count.unwrap_or(size as i64);
    let found = usize::try_from(count).ok().filter(|count| *count <= size);
    let count = found.ok_or_else(|| format!("the first {count} of {size} elements"))?;
    let dtype = if is_positions { DType::I32 } else { x.dtype };
    let found = |line: &[Cell]| match stable_order(x.dtype, line, descending) {
        Err(Reason::Straddle) if is_positions => {
            certain_positions(x.dtype, line, descending, count)
        }
        // Integers have no bounds: one that follows from an undecided comparison may be any.
        Err(Reason::Straddle) if x.dtype.is_float() => ordered_bounds(line, descending, count),
        Err(reason) => Err(reason),
        Ok(positions) => {
            let cell = |at: &usize| if is_positions { Cell::Int(*at as u64) } else { line[*at] };
            Ok(positions[..count].iter().map(cell).collect())
        }
    };
    Ok(along(x, axis, (dtype, count), |line| {
        found(line).unwrap_or_else(|reason| vec![Cell::Unspecified(reason); count])
    }))
}

pub(super) fn sort(call: Call<'_>) -> Check<Value> {
    ordered(call, (call.args.int(0), call.args.flag(1)), None, false)
}

pub(super) fn argsort(call: Call<'_>) -> Check<Value> {
    ordered(call, (call.args.int(0), call.args.flag(1)), None, true)
}

pub(super) fn topk(call: Call<'_>) -> Check<Value> {
    ordered(call, (call.args.int(1), call.args.flag(2)), Some(call.args.int(0)), false)
}

pub(super) fn topk_indices(call: Call<'_>) -> Check<Value> {
    ordered(call, (call.args.int(1), call.args.flag(2)), Some(call.args.int(0)), true)
}

/// The position of the first element that is NaN or, if none is, of the first extreme one.
fn extreme_position(call: Call<'_>, better: Ordering) -> Check<Value> {
    let x = call.srcs[0];
    let axis = resolve_axis(call.args.int(0), x.shape.len())?;
    if x.shape[axis] == 0 {
        return Err(format!("axis {axis} of {:?} has no element", x.shape));
    }
    let mut found = along(x, axis, (DType::I32, 1), |line| {
        let found = extreme(x.dtype, line, better);
        vec![found.map_or_else(Cell::Unspecified, |at| Cell::Int(at as u64))]
    });
    if !call.args.flag(1) {
        found.shape.remove(axis);
    }
    Ok(found)
}

pub(super) fn argmax(call: Call<'_>) -> Check<Value> {
    extreme_position(call, Ordering::Greater)
}

pub(super) fn argmin(call: Call<'_>) -> Check<Value> {
    extreme_position(call, Ordering::Less)
}

/// The smallest elements so far along an axis.
pub(super) fn cummin(call: Call<'_>) -> Check<Value> {
    let x = call.srcs[0];
    let axis = resolve_axis(call.args.int(0), x.shape.len())?;
    Ok(along(x, axis, (x.dtype, x.shape[axis]), |line| {
        let running = line.iter().scan(None, |least, cell| {
            let next = least.map_or(*cell, |least| min(x.dtype, least, *cell));
            *least = Some(next);
            Some(if matches!(next, Cell::Nan(_)) { Cell::nan() } else { next })
        });
        running.collect()
    }))
}

/// A truth of the elements along axes, which one element may decide: if it is not 0, and
/// `decisive`, or if it is 0, and not.
fn truth(call: Call<'_>, decisive: bool) -> Check<Value> {
    let x = call.srcs[0];
    let found = over_axes(x, call.args.ints(0), call.args.flag(1), |group| {
        let truths = group.iter().map(|cell| cast(x.dtype, DType::Bool, *cell));
        let mut result = Cell::bool(!decisive);
        for truth in truths {
            match truth {
                Cell::Int(bits) if (bits != 0) == decisive => return Ok(truth),
                Cell::Unspecified(_) => result = truth,
                _ => {}
            }
        }
        Ok(result)
    })?;
    Ok(Value { dtype: DType::Bool, ..found })
}

pub(super) fn any(call: Call<'_>) -> Check<Value> {
    truth(call, true)
}

pub(super) fn all(call: Call<'_>) -> Check<Value> {
    truth(call, false)
}

/// The number of elements other than 0; NaN is one.
pub(super) fn count_nonzero(call: Call<'_>) -> Check<Value> {
    let x = call.srcs[0];
    let found = over_axes(x, call.args.ints(0), call.args.flag(1), |group| {
        let mut count = 0;
        for cell in group {
            match cast(x.dtype, DType::Bool, *cell) {
                Cell::Int(bits) => count += bits,
                cell => return Ok(cell),
            }
        }
        Ok(Cell::Int(count))
    })?;
    Ok(Value { dtype: DType::I32, ..found })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::Real;

    fn order(line: &[Cell], descending: bool) -> Result<Vec<usize>, Reason> {
        stable_order(DType::F32, line, descending)
    }

    #[test]
    fn equal_elements_keep_their_order_and_nan_is_above_all() {
        let line = [2.0, f64::NAN, 0.0, -0.0, 2.0, f64::INFINITY, -1.0].map(|x| match x {
            x if x.is_nan() => Cell::nan(),
            x if x.is_infinite() => Cell::infinity(x < 0.0),
            x => Cell::exact(x),
        });
        assert_eq!(order(&line, false), Ok(vec![6, 2, 3, 0, 4, 5, 1]));
        assert_eq!(order(&line, true), Ok(vec![1, 5, 0, 4, 2, 3, 6]));
        let bits = [3u64, 0xffff_ffff, 3, 1].map(Cell::Int);
        assert_eq!(stable_order(DType::I32, &bits, false), Ok(vec![1, 3, 0, 2]));
        assert_eq!(stable_order(DType::U32, &bits, true), Ok(vec![1, 0, 2, 3]));
    }

    #[test]
    fn overlapping_bounds_have_no_order() {
        let ball = |center, radius| Cell::Real(Real::ball(center, 0.0, radius));
        for descending in [false, true] {
            let apart = [ball(3.0, 0.5), Cell::exact(1.0), ball(2.0, 0.25)];
            let expected = if descending { vec![0, 2, 1] } else { vec![1, 2, 0] };
            assert_eq!(order(&apart, descending), Ok(expected));
            for overlapping in [
                vec![ball(3.0, 2.5), Cell::exact(4.0), ball(2.0, 0.25)],
                vec![Cell::exact(1.0), ball(1.5, 0.5), Cell::exact(9.0)],
                vec![ball(1.0, 1e-6), Cell::exact(5.0), ball(1.0, 1e-6)],
            ] {
                assert_eq!(order(&overlapping, descending), Err(Reason::Straddle));
            }
        }
    }

    #[test]
    fn bounds_that_touch_are_in_order_if_equal_elements_are() {
        let (zero, small) = (Cell::exact(0.0), Cell::Real(Real::up_to(1e-9)));
        let straddle = Reason::Straddle;
        assert_eq!(order(&[zero, small], false), Ok(vec![0, 1]));
        assert_eq!(order(&[small, zero], false), Err(straddle));
        assert_eq!(order(&[small, zero], true), Ok(vec![0, 1]));
        assert_eq!(order(&[zero, small], true), Err(straddle));
        let extreme = |line: &[Cell], better| extreme(DType::F32, line, better);
        assert_eq!(extreme(&[zero, small], Ordering::Less), Ok(0));
        assert_eq!(extreme(&[small, zero], Ordering::Less), Err(straddle));
        assert_eq!(extreme(&[small, zero], Ordering::Greater), Ok(0));
    }

    #[test]
    fn overflowed_elements_are_beyond_the_finite_ones() {
        let overflowed = Cell::Inf { negative: false, overflowed: true };
        let line = [Cell::exact(1.0), overflowed, Cell::exact(2.0)];
        assert_eq!(order(&line, false), Ok(vec![0, 2, 1]));
        assert_eq!(extreme(DType::F32, &line, Ordering::Greater), Ok(1));
        let line = [overflowed, Cell::exact(1.0), overflowed];
        assert_eq!(order(&line, false), Err(Reason::Straddle));
        assert_eq!(
            ordered_bounds(&line, false, 3),
            Ok(vec![Cell::exact(1.0), overflowed, overflowed])
        );
        assert_eq!(extreme(DType::F32, &line, Ordering::Greater), Err(Reason::Straddle));
    }
}
