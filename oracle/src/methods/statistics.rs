//! Means, variances and what is normalised by them, of floats. Computed in the wide dtype and
//! rounded once.

use gradiff_corpus::{DType, Literal, ReduceOp, literal_bits};

use super::Call;
use super::elementwise::{magnitude, require, wide};
use super::reduction::over_axes;
use crate::arithmetic::{
    add, div, half_ulp, max, mul, neg, rounding_error, rounding_unit, size_of, sqrt,
};
use crate::cast::cast;
use crate::cell::{Cell, Real};
use crate::format::{format, pow2};
use crate::infer::{Check, resolve_axes};
use crate::movement;
use crate::reduce::{SumDepth, reduce};
use crate::transcendental::pow;
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
    let eps = wide_number(dtype, &call.args.number(1))?;
    if !matches!(eps, Cell::Real(real) if 0.0 <= real.hi) {
        return Err(format!("eps is {}", call.args.number(1)));
    }
    let mut axes = resolve_axes(call.args.ints(0), x.shape.len())?;
    axes.sort_unstable();
    let mut cells = x.cells.to_vec();
    for group in groups(x, &axes)? {
        let elements: Vec<Cell> =
            group.iter().map(|at| cast(x.dtype, dtype, x.cells[*at])).collect();
        let (mean, differences) = differences(call.sums, dtype, &elements);
        let squares = sum_of_squares(call.sums, dtype, mean, &differences);
        let mean = div(dtype, squares, Cell::exact(group.len() as f64));
        let factor =
            div(dtype, Cell::exact(1.0), sqrt(dtype, add(dtype, mean.not_negative(), eps)));
        for (at, difference) in group.into_iter().zip(differences) {
            cells[at] = cast(dtype, x.dtype, mul(dtype, difference, factor));
        }
    }
    Ok(Value::new(x.dtype, x.shape.clone(), cells))
}

/// The elements along an axis, divided by the root of the sum of powers of their magnitudes.
pub(super) fn of_norm_1(call: Call<'_>) -> Check<Value> {
    let x = call.srcs[0];
    require(x.dtype.is_float(), x.dtype, "floats")?;
    let dtype = wide(x.dtype);
    let (p, eps) = (&call.args.number(0), &call.args.number(2));
    let Norm { power, exponent, root } = Norm::new(dtype, p)?;
    let limit = wide_number(dtype, eps)?;
    if !matches!(limit, Cell::Real(real) if 0.0 <= real.hi) {
        return Err(format!("eps is {eps}"));
    }
    let mut cells = x.cells.to_vec();
    for group in groups(x, &resolve_axes(&[call.args.int(1)], x.shape.len())?)? {
        let elements: Vec<Cell> =
            group.iter().map(|at| cast(x.dtype, dtype, x.cells[*at])).collect();
        let power_of = |cell: &Cell| match power {
            1.0 => magnitude(*cell),
            2.0 => mul(dtype, *cell, *cell),
            _ => pow(dtype, magnitude(*cell), exponent),
        };
        let powers: Vec<Cell> = elements.iter().map(power_of).collect();
        let sum = reduce(ReduceOp::Sum, call.sums, dtype, &powers).not_negative();
        let norm = match power {
            1.0 => sum,
            2.0 => sqrt(dtype, sum),
            _ => pow(dtype, sum, root),
        };
        let divisor = max(norm, limit);
        for (at, element) in group.into_iter().zip(elements) {
            cells[at] = cast(dtype, x.dtype, div(dtype, element, divisor));
        }
    }
    Ok(Value::new(x.dtype, x.shape.clone(), cells))
}

/// The exponents of a norm, in the dtype that it is computed in.
pub(crate) struct Norm {
    pub(crate) power: f64,
    pub(crate) exponent: Cell,
    /// The inverse of the power.
    pub(crate) root: Cell,
}

impl Norm {
    pub(crate) fn new(dtype: DType, p: &Literal) -> Check<Norm> {
        let exponent = wide_number(dtype, p)?;
        match exponent {
            Cell::Real(real) if 0.0 < real.hi => {
                let root = wide_number(dtype, &Literal::Float(1.0 / real.hi))?;
                Ok(Norm { power: real.hi, exponent, root })
            }
            _ => Err(format!("p is {p}")),
        }
    }
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

pub(crate) fn wide_number(dtype: DType, literal: &Literal) -> Check<Cell> {
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
    let (mean, differences) = differences(sums, dtype, group);
    let squares = sum_of_squares(sums, dtype, mean, &differences);
    let degrees = Literal::Int(degrees(group.len(), correction));
    let degrees = literal_bits(dtype, &degrees).map(|bits| Cell::from_bits(dtype, bits));
    div(dtype, squares, degrees.unwrap_or(Cell::nan())).not_negative()
}

/// The mean, and the differences from it.
fn differences(sums: SumDepth, dtype: DType, group: &[Cell]) -> (Cell, Vec<Cell>) {
    let mean = mean_of(sums, dtype, group);
    (mean, group.iter().map(|cell| add(dtype, *cell, neg(mean))).collect())
}

fn sum_of_squares(sums: SumDepth, dtype: DType, mean: Cell, differences: &[Cell]) -> Cell {
    let squares: Vec<Cell> = differences.iter().map(|cell| mul(dtype, *cell, *cell)).collect();
    let found = reduce(ReduceOp::Sum, sums, dtype, &squares).not_negative();
    match (found, mean) {
        (Cell::Real(sum), Cell::Real(mean)) if !sum.is_exact() => {
            let second = sum_of_squares_by_mean(sums, dtype, mean, differences);
            second.filter(|second| second.radius < sum.radius).map_or(found, Cell::Real)
        }
        _ => found,
    }
}

/// The sum of the squares of differences from a mean, with bounds that know that these have its
/// error c in common. The differences d add up to 0. If each is off by an error e, and by c, too,
/// then its square is off by `2 d e + 2 c d + (e + c)^2`; the second of these terms add up to 0.
fn sum_of_squares_by_mean(
    sums: SumDepth,
    dtype: DType,
    mean: Real,
    differences: &[Cell],
) -> Option<Real> {
    let format = format(dtype);
    let (mut inherited, mut excess, mut total, mut mass) = (0.0, 0.0, 0.0, 0.0);
    let mut squares = Vec::with_capacity(differences.len());
    for cell in differences {
        let Cell::Real(x) = cell else { return None };
        let center = Cell::Real(Real { radius: 0.0, ..x.leaf() });
        let Cell::Real(square) = mul(dtype, center, center) else { return None };
        let separate = (x.radius - mean.radius).max(0.0);
        inherited += 2.0 * x.hi.abs() * separate + (separate + mean.radius).powi(2);
        total += x.hi + x.lo;
        mass += x.hi.abs();
        // An engine squares a difference that may be larger than the center.
        let largest = x.magnitude().powi(2).next_up();
        excess += (largest - square.hi).max(0.0);
        let rounding = rounding_error(format, largest);
        squares.push(Cell::Real(Real::ball(square.hi, square.lo, rounding)));
    }
    let Cell::Real(sum) = reduce(ReduceOp::Sum, sums, dtype, &squares) else { return None };
    let count = differences.len() as f64;
    // The centers add up to 0 but for the roundings of f64.
    inherited += 2.0 * mean.radius * (f64::abs(total) + pow2(-50) * count * mass);
    // The additions round the larger squares, too, and the last one their sum.
    let last = half_ulp(format, size_of(sum.hi, 0.0, sum.radius + inherited));
    let last = last - half_ulp(format, sum.hi.abs());
    let roundings = 2.0 * count * rounding_unit(format) * excess + last;
    let radius = (sum.radius + inherited + roundings) * (1.0 + pow2(-40));
    Some(Real::ball(sum.hi, sum.lo, radius).not_negative())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds(cell: Cell) -> (f64, f64) {
        match cell {
            Cell::Real(real) => (real.lower(), real.upper()),
            cell => panic!("{cell:?} is no number"),
        }
    }

    fn variance(values: &[f32]) -> (f64, f64) {
        let group: Vec<Cell> = values.iter().map(|x| Cell::exact(f64::from(*x))).collect();
        bounds(variance_of(SumDepth::Cascaded, DType::F32, &group, 0))
    }

    #[test]
    fn the_error_of_the_mean_hardly_matters_to_the_variance() {
        let numbers = [100_000, 100_001, 100_000, 100_002, 100_000, 100_001, 100_004];
        let (low, high) = variance(&numbers.map(|x| x as f32));
        let exact = 90.0 / 49.0;
        assert!(low <= exact && exact <= high, "{low} {exact} {high}");
        assert!(high - low < 2e-4, "{low} {high}");
    }

    /// As an engine computes it: in f32, in an order, and rounded after each op.
    fn rounded_variance(values: &[f32], backwards: bool) -> f32 {
        let sum = |values: &[f32]| -> f32 {
            if backwards { values.iter().rev().sum() } else { values.iter().sum() }
        };
        let count = values.len() as f32;
        let mean = sum(values) / count;
        let squares: Vec<f32> = values.iter().map(|x| (x - mean) * (x - mean)).collect();
        sum(&squares) / count
    }

    #[test]
    fn variances_that_an_engine_computes_are_within_the_bounds() {
        let mut state = 1u64;
        let mut next = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 40) as f32 / 16_777_216.0
        };
        let mut largest: f64 = 0.0;
        for _ in 0..500 {
            let (offset, scale) = (next() * 1000.0, next() * 8.0);
            let values: Vec<f32> = (0..12).map(|_| offset + scale * next()).collect();
            let (low, high) = variance(&values);
            for backwards in [false, true] {
                let found = f64::from(rounded_variance(&values, backwards));
                assert!(low <= found && found <= high, "{low} {found} {high}: {values:?}");
                let center = low / 2.0 + high / 2.0;
                largest = largest.max((found - center).abs() / (high - center));
            }
        }
        assert!(largest > 0.05, "the bounds are loose: {largest}");
    }

    #[test]
    fn degrees_of_freedom_are_not_negative() {
        assert_eq!(degrees(3, 5), 0);
        assert_eq!(degrees(3, -2), 5);
    }
}
