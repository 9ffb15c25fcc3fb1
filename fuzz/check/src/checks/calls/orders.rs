//! Sorts, first elements and comparisons of all types, against a stable sort and the order of
//! numbers.

use std::cmp::Ordering;

use gradiff::graph::Constant;
use gradiff::{DType, Engine, Error, Tensor};
use gradiff_eval::scalar;

use super::Draw;
use super::values::{self, Wanted, bytes_of, compare, converted, dtypes, special};
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
        1 => (64 + 16 * draw.below(5), 130),
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
        // The evaluator of graphs would compare all pairs of long axes.
        Engine::new("jit").and_then(|engine| engine.realize(&[&found])).map_err(problem)?;
        let bytes = found.to_bytes().map_err(problem)?;
        let elements = bytes.chunks_exact(dtype.size_bytes());
        let is_right =
            |(bytes, wanted): (&[u8], &Wanted)| wanted.is_met(values::element(dtype, bytes));
        let wrong = elements.zip(&wanted).position(|pair| !is_right(pair));
        if wrong.is_some() || bytes.len() != wanted.len() * dtype.size_bytes() {
            let kinds = format!("{kinds} kinds of elements");
            return Err(format!("{label}, {kinds}: {dtype} number {wrong:?} is wrong"));
        }
    }
    Ok(())
}

/// Draws two operands of any types, and compares their comparisons by all names with the order of
/// the numbers in the common type.
pub(super) fn comparisons(draw: &mut Draw) -> Result<(), String> {
    type Comparison = fn(&Tensor, &Tensor) -> Result<Tensor, Error>;
    type Numbered = fn(&Tensor, i32) -> Result<Tensor, Error>;
    let [from, to] = [(); 2].map(|()| draw.pick(&gradiff_corpus::DType::ALL));
    let common = translate::dtype(gradiff_corpus::promote(from, to));
    let [from, to] = [from, to].map(translate::dtype);
    let count = 1 + draw.below(8);
    let mut elements = |dtype: DType, count: usize| -> Vec<Constant> {
        let small = |number: usize| scalar::number(dtype, number as i128).expect("it has numbers");
        let element = |_| match draw.below(3) {
            0 => special(draw, dtype),
            _ => small(draw.below(3)),
        };
        (0..count).map(element).collect()
    };
    let (mut x, mut y) = (elements(from, count), elements(to, count));
    if from == to {
        // Some are equal.
        (0..count).step_by(3).for_each(|at| y[at] = x[at]);
    }
    // A row with all, or a single element for all.
    let is_single = draw.one_in(4);
    if is_single {
        y.truncate(1);
    }
    let tensor = |dtype: DType, elements: &[Constant], is_column: bool| {
        let size = elements.len() as i64;
        let shape: &[i64] = if is_column { &[size, 1] } else { &[size] };
        Tensor::from_bytes(dtype, shape, &bytes_of(elements)).map_err(|error| error.to_string())
    };
    let is_column = draw.one_in(4);
    let first = tensor(from, &x, is_column)?;
    // A number takes the type of the tensor.
    let is_number = from != DType::Bool && draw.one_in(4);
    let pairs: Vec<(Constant, Constant)> = if is_number {
        let number = scalar::number(from, 2).expect("it has numbers");
        x.drain(..).map(|x| (x, number)).collect()
    } else if is_column {
        x.iter().flat_map(|x| y.iter().map(move |y| (*x, *y))).collect()
    } else {
        x.iter().enumerate().map(|(at, x)| (*x, y[if is_single { 0 } else { at }])).collect()
    };
    let names = ["lt", "le", "eq", "ne", "ge", "gt"];
    let number = draw.below(names.len());
    let result = match is_number {
        true => {
            let calls: [Numbered; 6] = [
                |x, y| x.lt(y),
                |x, y| x.le(y),
                |x, y| x.eq(y),
                |x, y| x.ne(y),
                |x, y| x.ge(y),
                |x, y| x.gt(y),
            ];
            calls[number](&first, 2)
        }
        false => {
            let calls: [Comparison; 6] = [
                |x, y| x.lt(y),
                |x, y| x.le(y),
                |x, y| x.eq(y),
                |x, y| x.ne(y),
                |x, y| x.ge(y),
                |x, y| x.gt(y),
            ];
            calls[number](&first, &tensor(to, &y, false)?)
        }
    };
    let label = format!("{} of {from} and {to}, number: {is_number}, {pairs:?}", names[number]);
    let found = result.map_err(|error| format!("{label}: {error}"))?;
    let wanted = |(x, y): &(Constant, Constant)| {
        let common = if is_number { from } else { common };
        let (Some(x), Some(y)) = (converted(*x, common), converted(*y, common)) else {
            return Wanted::Free;
        };
        let is_nan = |x: Constant| scalar::to_float(x).is_some_and(f64::is_nan);
        let order = order(x, y);
        let is_true = match names[number] {
            "ne" => is_nan(x) || is_nan(y) || order.is_ne(),
            _ if is_nan(x) || is_nan(y) => false,
            "lt" => order.is_lt(),
            "le" => order.is_le(),
            "eq" => order.is_eq(),
            "ge" => order.is_ge(),
            _ => order.is_gt(),
        };
        Wanted::Bits(Constant::from_bits(DType::Bool, is_true.into()))
    };
    let wanted: Vec<Wanted> = pairs.iter().map(wanted).collect();
    if found.dtype() != DType::Bool || found.size_elements() != wanted.len() as i64 {
        return Err(format!("{label} gives {found:?}"));
    }
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
