//! Logarithms and shares of sums of powers of e. Powers are those of the differences from the
//! largest exponent, so that the largest power is 1 and no error grows with the exponents.

use gradiff_corpus::DType;

use super::Call;
use super::approximation::{Error, result};
use super::elementwise::{require, wide};
use super::reduction::over_axes;
use super::statistics::groups;
use crate::arithmetic::{neg, propagated, reduction_depth};
use crate::cell::Cell;
use crate::format::format;
use crate::infer::{Check, resolve_axis};
use crate::movement::for_each_index;
use crate::reduce::SumDepth;
use crate::value::Value;

/// Errors of a power and of a logarithm in roundings, which are half an ulp: 2 and 3 ulps.
const POWER: f64 = 4.0;
const LOGARITHM: f64 = 6.0;

/// The logarithm of the sum of powers along axes.
pub(super) fn log_of_sum(call: Call<'_>) -> Check<Value> {
    let x = call.srcs[0];
    require(x.dtype.is_float(), x.dtype, "floats")?;
    over_axes(x, call.args.ints(0), call.args.flag(1), |group| Ok(log(call.sums, x.dtype, group)))
}

/// The logarithm of the sum of powers up to each position along an axis.
pub(super) fn log_of_running_sum(call: Call<'_>) -> Check<Value> {
    let x = call.srcs[0];
    require(x.dtype.is_float(), x.dtype, "floats")?;
    let axis = resolve_axis(call.args.int(0), x.shape.len())?;
    let stride: usize = x.shape[axis + 1..].iter().product();
    let mut cells = Vec::with_capacity(x.cells.len());
    for_each_index(&x.shape, |index| {
        let first = cells.len() - index[axis] * stride;
        let so_far: Vec<Cell> = (0..=index[axis]).map(|i| x.cells[first + i * stride]).collect();
        cells.push(log(call.sums, x.dtype, &so_far));
    });
    Ok(Value::new(x.dtype, x.shape.clone(), cells))
}

/// The share of each power in their sum along an axis.
pub(super) fn softmax(call: Call<'_>) -> Check<Value> {
    each(call, |sums, x| sums.share(x))
}

/// The logarithm of each share.
pub(super) fn log_softmax(call: Call<'_>) -> Check<Value> {
    each(call, |sums, x| sums.log_share(x))
}

/// Returns the share of each power of a group.
pub(super) fn shares(sums: SumDepth, dtype: DType, group: &[Cell]) -> Vec<Cell> {
    match Powers::of(sums, dtype, group) {
        Ok(powers) => group.iter().map(|cell| powers.share(*cell)).collect(),
        Err(cell) => vec![cell; group.len()],
    }
}

/// Returns the logarithm of the share of each power of a group.
pub(super) fn log_shares(sums: SumDepth, dtype: DType, group: &[Cell]) -> Vec<Cell> {
    match Powers::of(sums, dtype, group) {
        Ok(powers) => group.iter().map(|cell| powers.log_share(*cell)).collect(),
        Err(cell) => vec![cell; group.len()],
    }
}

/// The share of each power of the negative elements.
pub(super) fn softmin(call: Call<'_>) -> Check<Value> {
    let turned = call.srcs[0].map(call.srcs[0].dtype, |cell| match cell {
        Cell::Int(_) => cell,
        _ => neg(cell),
    });
    each(Call { srcs: &[&turned], ..call }, |sums, x| sums.share(x))
}

/// A sum of powers.
struct Powers {
    dtype: DType,
    /// The largest exponent.
    largest: f64,
    /// The sum of the powers of the differences from the largest exponent.
    sum: f64,
    /// Largest error of an exponent.
    radius: f64,
    /// Relative error of the sum of an engine, without that of the exponents.
    error: f64,
    /// Largest relative error of a rounding.
    unit: f64,
}

/// An exponent as a number, and its error.
fn exponent(cell: Cell) -> (f64, f64) {
    match cell {
        Cell::Real(real) if real.lo == 0.0 => (real.hi, real.radius),
        Cell::Real(real) => (real.hi + real.lo, real.radius + real.hi.abs() * f64::EPSILON),
        Cell::Inf { negative: true, .. } => (f64::NEG_INFINITY, 0.0),
        _ => (f64::INFINITY, 0.0),
    }
}

impl Powers {
    /// Returns the sum of the powers of a group.
    ///
    /// # Errors
    /// The result of any function of a group that has NaN or elements that are unspecified.
    fn of(depth: SumDepth, dtype: DType, group: &[Cell]) -> Result<Powers, Cell> {
        if let Some(cell) = propagated(group) {
            return Err(cell);
        }
        let exponents: Vec<(f64, f64)> = group.iter().map(|cell| exponent(*cell)).collect();
        let largest = exponents.iter().map(|(x, _)| *x).fold(f64::NEG_INFINITY, f64::max);
        let radius = exponents.iter().map(|(_, radius)| *radius).fold(0.0, f64::max);
        // The sum of the powers, and its rounding error.
        let (mut sum, mut rest) = (0.0, 0.0);
        if largest.is_finite() {
            for (x, _) in &exponents {
                let power = (x - largest).exp();
                let next: f64 = sum + power;
                let part = next - sum;
                rest += (sum - (next - part)) + (power - part);
                sum = next;
            }
        }
        let count = group.len().max(1);
        let additions = match depth {
            SumDepth::Cascaded => reduction_depth(count as u32),
            SumDepth::Sequential => count as u32 - 1,
        };
        // The mean of t, weighted by e^-t, is at most the logarithm of their number.
        let roundings = POWER + f64::from(additions) + (count as f64).ln();
        // In f64 the oracle's sum is no better than an engine's powers.
        let twice = if dtype == DType::F64 { 2.0 } else { 1.0 };
        let unit = twice * format(wide(dtype)).unit;
        let error = 1.01 * roundings * unit;
        Ok(Powers { dtype, largest, sum: sum + rest, radius, error, unit })
    }

    /// Absolute error of the logarithm of the sum.
    fn log_error(&self) -> f64 {
        1.01 * (self.error + LOGARITHM * self.unit * self.sum.ln())
    }

    fn log(&self) -> Cell {
        if self.largest.is_infinite() {
            return Cell::infinity(self.largest < 0.0);
        }
        let value = self.largest + self.sum.ln();
        result(self.dtype, value, self.radius + self.log_error(), Error::ulps(1.0))
    }

    /// The power of an element, divided by the sum.
    fn share(&self, x: Cell) -> Cell {
        if self.largest.is_infinite() {
            return Cell::nan();
        }
        let distance = exponent(x).0 - self.largest;
        if distance == f64::NEG_INFINITY {
            return Cell::zero(Some(false));
        }
        let value = distance.exp() / self.sum;
        let error = (2.0 * self.radius + distance.abs() * self.unit + self.error).exp_m1();
        let inherited = if value == 0.0 { 0.0 } else { value * error };
        result(self.dtype, value, inherited, Error::ulps(4.0))
    }

    fn log_share(&self, x: Cell) -> Cell {
        let distance = exponent(x).0 - self.largest;
        if self.largest.is_infinite() {
            return Cell::nan();
        }
        if distance == f64::NEG_INFINITY {
            return Cell::infinity(true);
        }
        let value = distance - self.sum.ln();
        let error = 2.0 * self.radius + distance.abs() * self.unit * 1.01 + self.log_error();
        result(self.dtype, value, error, Error::ulps(1.0))
    }
}

fn log(sums: SumDepth, dtype: DType, group: &[Cell]) -> Cell {
    Powers::of(sums, dtype, group).map_or_else(|cell| cell, |powers| powers.log())
}

/// Applies a function of the sum of powers along an axis to each element.
fn each(call: Call<'_>, f: impl Fn(&Powers, Cell) -> Cell) -> Check<Value> {
    let x = call.srcs[0];
    require(x.dtype.is_float(), x.dtype, "floats")?;
    let axis = resolve_axis(call.args.int(0), x.shape.len())?;
    let mut cells = x.cells.to_vec();
    for group in groups(x, &[axis])? {
        let elements: Vec<Cell> = group.iter().map(|at| x.cells[*at]).collect();
        let powers = Powers::of(call.sums, x.dtype, &elements);
        for (at, element) in group.into_iter().zip(elements) {
            cells[at] = match &powers {
                Ok(powers) => f(powers, element),
                Err(cell) => *cell,
            };
        }
    }
    Ok(Value::new(x.dtype, x.shape.clone(), cells))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(values: &[f64]) -> Vec<Cell> {
        values.iter().map(|value| Cell::from_bits(DType::F64, value.to_bits())).collect()
    }

    fn powers(values: &[f64]) -> Powers {
        Powers::of(SumDepth::Cascaded, DType::F32, &cells(values)).unwrap_or_else(|cell| {
            panic!("{values:?}: {cell:?}");
        })
    }

    fn center(cell: Cell) -> f64 {
        match cell {
            Cell::Real(real) => real.hi,
            cell => panic!("{cell:?} is no number"),
        }
    }

    #[test]
    fn large_exponents_do_not_overflow() {
        let powers = powers(&[1000.0, 1000.0]);
        let log = center(powers.log());
        assert!((log - (1000.0 + std::f64::consts::LN_2)).abs() < 1e-12);
        assert!((center(powers.share(Cell::exact(1000.0))) - 0.5).abs() < 1e-15);
        let log_share = center(powers.log_share(Cell::exact(0.0)));
        assert!((log_share + 1000.0 + std::f64::consts::LN_2).abs() < 1e-12);
    }

    #[test]
    fn infinities_are_limits() {
        let inf = f64::INFINITY;
        assert_eq!(powers(&[-inf, -inf]).log(), Cell::infinity(true));
        assert_eq!(powers(&[]).log(), Cell::infinity(true));
        assert_eq!(powers(&[inf, 0.0]).log(), Cell::infinity(false));
        assert_eq!(powers(&[-inf, 0.0]).share(Cell::infinity(true)), Cell::zero(Some(false)));
        assert_eq!(powers(&[-inf, 0.0]).log_share(Cell::infinity(true)), Cell::infinity(true));
        assert!(Powers::of(SumDepth::Cascaded, DType::F32, &cells(&[f64::NAN])).is_err());
    }
}
