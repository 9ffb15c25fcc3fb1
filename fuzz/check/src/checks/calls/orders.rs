//! Sorts, first elements and comparisons of all types, against a stable sort and the order of
//! numbers.

use std::cmp::Ordering;

use gradiff::graph::Constant;
use gradiff::{DType, Error, Operand, Tensor};
use gradiff_corpus::Literal;
use gradiff_eval::scalar;

use super::Draw;
use super::values::{
    Wanted, bytes_of, compare, compare_computed, converted, dtypes, engine_on, special,
};
use crate::backends::translate;

/// The order of two elements of a type: NaN is above all numbers, zeros of both signs are equal.
fn order(x: Constant, y: Constant) -> Ordering {
    match (scalar::to_float(x), scalar::to_float(y)) {
        (Some(x), Some(y)) => match (x.is_nan(), y.is_nan()) {
            (false, false) => x.partial_cmp(&y).expect("neither is NaN"),
            (x, y) => x.cmp(&y),
        },
        _ => scalar::to_int(x).cmp(&scalar::to_int(y)),
    }
}

/// An element: one of `kinds` small numbers from 0 on or from the largest down, or a special one.
fn element(draw: &mut Draw, dtype: DType, kinds: usize) -> Constant {
    let number = draw.below(kinds) as i128;
    let largest = scalar::range(dtype).map_or(kinds as i128 / 2, |range| range.1);
    let number = if draw.one_in(3) { largest - number } else { number };
    let special = match draw.one_in(16) {
        true => Some(special(draw, dtype)),
        false => scalar::number(dtype, number),
    };
    special.expect("it has numbers")
}

/// Draws a tensor, and compares its order along an axis with a stable sort.
pub(super) fn orders(draw: &mut Draw) -> Result<(), String> {
    let problem = |error: Error| error.to_string();
    let dtype = draw.pick(&dtypes());
    let descending = draw.one_in(2);
    // Few elements, or axes of which blocks are sorted or chosen: a long one, or many short ones.
    let kind = draw.below(4);
    let (length, rows) = match kind {
        0 => (512 + draw.pick(&[0, 1, 7, 129, 200]) + draw.below(100), 1),
        1 => {
            // So many rows that blocks are chosen, rather than all pairs compared.
            let length = 64 + 16 * draw.below(5);
            (length, 540_000usize.div_ceil(length * length))
        }
        _ => (1 + draw.below(12), 1 + draw.below(4)),
    };
    let k = match kind {
        0 | 1 => draw.pick(&[1, 2, 3, length / 16, length / 8, length / 8 + 1]),
        _ => draw.below(length + 1),
    };
    // So many that the first elements have about two equal ones each, or very few or many.
    let kinds = draw.pick(&[2, 5, 2 * length / k.max(1) + 1, 2 * length / k.max(1) + 1, 1 << 20]);
    let axis = draw.below(2);
    let shape = if axis == 1 { [rows, length] } else { [length, rows] };
    let elements: Vec<Constant> = (0..rows * length).map(|_| element(draw, dtype, kinds)).collect();
    let at = |row: usize, position: usize| match axis {
        1 => elements[row * length + position],
        _ => elements[position * rows + row],
    };
    let sorted = |row: usize| {
        let mut positions: Vec<usize> = (0..length).collect();
        positions.sort_by(|x, y| {
            let order = order(at(row, *x), at(row, *y));
            if descending { order.reverse() } else { order }
        });
        positions
    };
    let sorted: Vec<Vec<usize>> = (0..rows).map(sorted).collect();
    // The elements and the positions of the first `count` along the axis.
    let first = |count: usize| -> (Vec<Wanted>, Vec<i32>) {
        let number = |number: usize| match axis {
            1 => (number / count, number % count),
            _ => (number % rows, number / rows),
        };
        let pairs = (0..rows * count).map(number);
        let places = pairs.map(|(row, number)| (row, sorted[row][number]));
        places.map(|(row, place)| (Wanted::Bits(at(row, place)), place as i32)).unzip()
    };
    let sizes = shape.map(|size| size as i64);
    let x = Tensor::from_bytes(dtype, &sizes, &bytes_of(&elements)).map_err(problem)?;
    let number = axis as i64 - if draw.one_in(2) { 2 } else { 0 };
    let label = format!("{dtype}{shape:?} along {number}, descending: {descending}");
    let method = if kind == 1 { 0 } else { draw.pick(&[0, 0, 1, 2]) };
    let (values, positions, count) = match method {
        0 => {
            let (values, positions) = x.topk(k as i64, number, descending).map_err(problem)?;
            (Some(values), Some(positions), k)
        }
        1 => (Some(x.sort(number, descending).map_err(problem)?), None, length),
        _ => (None, Some(x.argsort(number, descending).map_err(problem)?), length),
    };
    let label = format!("the first {count} of {label}, method {method}");
    let (wanted, places) = first(count);
    let wanted_places: Vec<Wanted> = places
        .iter()
        .map(|place| scalar::int(DType::I32, i128::from(*place)).map_or(Wanted::Free, Wanted::Bits))
        .collect();
    let mut shape = sizes;
    shape[axis] = count as i64;
    for (found, dtype, wanted) in [(values, dtype, wanted), (positions, DType::I32, wanted_places)]
    {
        let Some(found) = found else { continue };
        if found.shape() != shape || found.dtype() != dtype {
            return Err(format!("{label}: {found:?}, expected {dtype}{shape:?}"));
        }
        if 1 < kind {
            compare(draw, &format!("{label} of {elements:?}"), &found, &wanted)?;
            continue;
        }
        // The evaluator of graphs would compare all pairs of long axes, as would the interpreter.
        let label = format!("{label}, {kinds} kinds of elements");
        compare_computed(&engine_on("jit", draw), &label, &found, &wanted)?;
    }
    Ok(())
}

/// A comparison: its name, the method, and the orders of two numbers for which it is true.
type Comparison =
    (&'static str, fn(&Tensor, Operand) -> Result<Tensor, Error>, fn(Ordering) -> bool);

const COMPARISONS: [Comparison; 6] = [
    ("lt", |x, y| x.lt(y), Ordering::is_lt),
    ("le", |x, y| x.le(y), Ordering::is_le),
    ("eq", |x, y| x.eq(y), Ordering::is_eq),
    ("ne", |x, y| x.ne(y), Ordering::is_ne),
    ("ge", |x, y| x.ge(y), Ordering::is_ge),
    ("gt", |x, y| x.gt(y), Ordering::is_gt),
];

/// The element of a tensor's type that a literal is converted to; `None` if it must be refused.
fn element_of(literal: Literal, dtype: DType) -> Option<Constant> {
    match literal {
        Literal::Bool(value) => scalar::int(dtype, value.into()).filter(|_| dtype == DType::Bool),
        Literal::Float(value) => scalar::float(dtype, value),
        Literal::Int(value) => {
            let fits = scalar::range(dtype).is_none_or(|(low, high)| low <= value && value <= high);
            scalar::number(dtype, value).filter(|_| fits && dtype != DType::Bool)
        }
    }
}

/// Draws two operands of any types, and compares a comparison with the order of the numbers in the
/// common type.
pub(super) fn comparisons(draw: &mut Draw) -> Result<(), String> {
    let problem = |error: Error| error.to_string();
    let [from, to] = [(); 2].map(|()| draw.pick(&gradiff_corpus::DType::ALL));
    let common = translate::dtype(gradiff_corpus::promote(from, to));
    let [from, to] = [from, to].map(translate::dtype);
    // A column and a row, a single element for all, or one for each.
    let (is_column, is_single) = (draw.one_in(4), draw.one_in(4));
    let count = 1 + draw.below(8);
    let columns = match is_column {
        true => 1 + draw.below(8),
        false if is_single => 1,
        false => count,
    };
    let mut elements = |dtype: DType, count: usize| -> Vec<Constant> {
        let element = |_| match draw.below(3) {
            0 => special(draw, dtype),
            _ => scalar::number(dtype, draw.below(3) as i128).expect("it has numbers"),
        };
        (0..count).map(element).collect()
    };
    let (x, mut y) = (elements(from, count), elements(to, columns));
    if from == to {
        // Some are equal.
        y.iter_mut().zip(&x).step_by(3).for_each(|(y, x)| *y = *x);
    }
    let mut shape = if is_column { vec![count as i64, 1] } else { vec![count as i64] };
    let first = Tensor::from_bytes(from, &shape, &bytes_of(&x)).map_err(problem)?;
    // A number takes the type of the tensor.
    let literal = draw.one_in(4).then(|| draw.literal());
    let (operand, common, y) = match literal {
        Some(literal) => {
            let number = element_of(literal, from);
            (Operand::Scalar(translate::scalar(&literal)), from, number.into_iter().collect())
        }
        None => {
            let second = Tensor::from_bytes(to, &[columns as i64], &bytes_of(&y));
            (Operand::from(second.map_err(problem)?), common, y)
        }
    };
    let (name, comparison, is_met) = draw.pick(&COMPARISONS);
    let label = format!("{name} of {x:?} and {operand:?}, which is {y:?}");
    let found = match comparison(&first, operand) {
        Err(Error::Invalid(message)) if y.is_empty() && !message.is_empty() => return Ok(()),
        found if y.is_empty() => return Err(format!("{label} gives {found:?}, not a refusal")),
        found => found.map_err(|error| format!("{label}: {error}"))?,
    };
    if is_column {
        shape[1] = y.len() as i64;
    }
    if found.dtype() != DType::Bool || found.shape() != shape {
        return Err(format!("{label} gives {found:?}, expected bool{shape:?}"));
    }
    let wanted = |at: usize| {
        let x = x[if is_column { at / y.len() } else { at }];
        let (Some(x), Some(y)) = (converted(x, common), converted(y[at % y.len()], common)) else {
            return Wanted::Free;
        };
        let is_nan = |x: Constant| scalar::to_float(x).is_some_and(f64::is_nan);
        let is_true = if is_nan(x) || is_nan(y) { name == "ne" } else { is_met(order(x, y)) };
        Wanted::Bits(Constant::from_bits(DType::Bool, is_true.into()))
    };
    let wanted: Vec<Wanted> = (0..shape.iter().product::<i64>() as usize).map(wanted).collect();
    compare(draw, &label, &found, &wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_and_comparisons_are_right() {
        for seed in 0..80 {
            orders(&mut Draw::new(seed)).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
            comparisons(&mut Draw::new(seed)).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        }
    }
}
