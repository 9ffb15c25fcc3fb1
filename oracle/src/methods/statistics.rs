//! Means, variances and what is normalised by them, of floats. Computed in the wide dtype and
//! rounded once.

use gradiff_corpus::{DType, Literal, ReduceOp, literal_bits};

use super::Call;
use super::elementwise::{require, wide};
use super::reduction::over_axes;
use crate::arithmetic::{add, div, mul, neg, sqrt};
use crate::cast::cast;
use crate::cell::Cell;
use crate::infer::{Check, resolve_axes};
use crate::movement;
use crate::reduce::{SumDepth, reduce};
use crate::value::Value;

/// The mean along axes.
pub(super) fn mean(call: Call<'_>) -> Check<Value> {
    widely(call, |wide, group| mean_of(call.sums, wide, group))
}

/// The variance along axes.
pub(super) fn variance(call: Call<'_>) -> Check<Value> {
    let correction = call.args.int(2);
    widely(call, |wide, group| variance_of(call.sums, wide, group, correction))
}

/// The square root of the variance along axes.
pub(super) fn deviation(call: Call<'_>) -> Check<Value> {
    let correction = call.args.int(2);
    widely(call, |wide, group| sqrt(wide, variance_of(call.sums, wide, group, correction)))
}

/// The differences from the mean along axes, divided by the root of the mean of their squares.
pub(super) fn normalized(call: Call<'_>) -> Check<Value> {
    let x = call.srcs[0];
    require(x.dtype.is_float(), x.dtype, "floats")?;
    let dtype = wide(x.dtype);
    let eps = number(dtype, &call.args.number(1))?;
    if !matches!(eps, Cell::Real(real) if 0.0 <= real.hi) {
        return Err(format!("eps is {}", call.args.number(1)));
    }
    let mut axes = resolve_axes(call.args.ints(0), x.shape.len())?;
    axes.sort_unstable();
    let mut cells = x.cells.to_vec();
    for group in groups(x, &axes)? {
        let elements: Vec<Cell> =
            group.iter().map(|at| cast(x.dtype, dtype, x.cells[*at])).collect();
        let differences = differences(call.sums, dtype, &elements);
        let squares = sum_of_squares(call.sums, dtype, &differences);
        let mean = div(dtype, squares, Cell::exact(group.len() as f64));
        let factor =
            div(dtype, Cell::exact(1.0), sqrt(dtype, add(dtype, mean.not_negative(), eps)));
        for (at, difference) in group.into_iter().zip(differences) {
            cells[at] = cast(dtype, x.dtype, mul(dtype, difference, factor));
        }
    }
    Ok(Value::new(x.dtype, x.shape.clone(), cells))
}

/// Returns the positions of the elements of each group along axes, which ascend.
pub(crate) fn groups(x: &Value, axes: &[usize]) -> Check<Vec<Vec<usize>>> {
    let (shape, targets) = movement::reduce(&x.shape, axes)?;
    let mut groups = vec![Vec::new(); shape.iter().product()];
    targets.into_iter().enumerate().for_each(|(at, target)| groups[target].push(at));
    Ok(groups)
}

/// Returns the number of degrees of freedom of `count` elements.
pub(crate) fn degrees(count: usize, correction: i64) -> i128 {
    (count as i128 - i128::from(correction)).max(0)
}

fn number(dtype: DType, literal: &Literal) -> Check<Cell> {
    let bits = literal_bits(dtype, literal)
        .ok_or_else(|| format!("{literal} is not representable in {}", dtype.name()))?;
    Ok(Cell::from_bits(dtype, bits))
}

/// Reduces groups along axes by a function of the wide dtype.
fn widely(call: Call<'_>, f: impl Fn(DType, &[Cell]) -> Cell) -> Check<Value> {
    let x = call.srcs[0];
    let (dtype, wide) = (x.dtype, wide(x.dtype));
    require(dtype.is_float(), dtype, "floats")?;
    over_axes(x, call.args.ints(0), call.args.flag(1), |group| {
        let elements: Vec<Cell> = group.iter().map(|cell| cast(dtype, wide, *cell)).collect();
        Ok(cast(wide, dtype, f(wide, &elements)))
    })
}

fn mean_of(sums: SumDepth, dtype: DType, group: &[Cell]) -> Cell {
    let sum = reduce(ReduceOp::Sum, sums, dtype, group);
    div(dtype, sum, Cell::exact(group.len() as f64))
}

fn variance_of(sums: SumDepth, dtype: DType, group: &[Cell], correction: i64) -> Cell {
    let squares = sum_of_squares(sums, dtype, &differences(sums, dtype, group));
    let degrees = Literal::Int(degrees(group.len(), correction));
    let degrees = literal_bits(dtype, &degrees).map(|bits| Cell::from_bits(dtype, bits));
    div(dtype, squares, degrees.unwrap_or(Cell::nan())).not_negative()
}

/// The differences from the mean.
fn differences(sums: SumDepth, dtype: DType, group: &[Cell]) -> Vec<Cell> {
    let mean = neg(mean_of(sums, dtype, group));
    group.iter().map(|cell| add(dtype, *cell, mean)).collect()
}

fn sum_of_squares(sums: SumDepth, dtype: DType, group: &[Cell]) -> Cell {
    let squares: Vec<Cell> = group.iter().map(|cell| mul(dtype, *cell, *cell)).collect();
    reduce(ReduceOp::Sum, sums, dtype, &squares).not_negative()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn degrees_of_freedom_are_not_negative() {
        assert_eq!(degrees(3, 5), 0);
        assert_eq!(degrees(3, -2), 5);
    }
}
