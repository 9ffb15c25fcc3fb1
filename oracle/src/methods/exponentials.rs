//! Logarithms and shares of sums of powers of e. Powers are those of the differences from the
//! largest exponent, so that the largest power is 1 and no error grows with the exponents.

use gradiff_corpus::DType;

use super::Call;
use super::approximation::{Error, result};
use super::cumulative::along_lines;
use super::elementwise::{require, wide};
use super::reduction::over_axes;
use super::statistics::groups;
use crate::arithmetic::{limited, neg, propagated, reduction_depth};
use crate::cell::Cell;
use crate::format::{format, pow2};
use crate::infer::{Check, resolve_axis};
use crate::reduce::SumDepth;
use crate::value::Value;

/// Errors of a power and of a logarithm in roundings, which are half an ulp: 2 and 3 ulps.
const POWER: f64 = 4.0;
const LOGARITHM: f64 = 6.0;
/// Largest distance of an exponent above that which powers are relative to.
const ANCHOR_REACH: f64 = 32.0;

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
    let next = |line: &mut Sums, cell| {
        line.push(cell);
        line.powers(call.sums, x.dtype).map_or_else(|cell| cell, |powers| powers.log())
    };
    let cells = along_lines(x, call.args.int(0), Sums::new, next)?;
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
    /// Error of the logarithm of the sum that those of the exponents make.
    spread: f64,
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

/// A sum of powers, and the error of its roundings.
#[derive(Clone, Copy)]
struct Sum {
    /// The powers are those of the differences from this exponent.
    anchor: f64,
    sum: f64,
    rest: f64,
}

impl Sum {
    /// Adds the power of an exponent, which is finite.
    fn add(&mut self, exponent: f64) {
        // Few powers are rounded again before they vanish beside the next ones.
        if self.anchor + ANCHOR_REACH < exponent {
            let factor = (self.anchor - exponent).exp();
            self.sum *= factor;
            self.rest *= factor;
            self.anchor = exponent;
        }
        let term = (exponent - self.anchor).exp();
        let next = self.sum + term;
        let part = next - self.sum;
        self.rest += (self.sum - (next - part)) + (term - part);
        self.sum = next;
    }

    fn value(&self) -> f64 {
        self.sum + self.rest
    }

    /// The logarithm of the quotient of two sums.
    fn above(&self, other: &Sum) -> f64 {
        (self.anchor - other.anchor) + (self.value() / other.value()).ln()
    }
}

/// Sums of the powers of the exponents so far.
struct Sums {
    /// NaN, an element that is unspecified, or the reason of one: the result of any function.
    decisive: Option<Cell>,
    largest: f64,
    /// The sums for exponents that are as small as they may be, as they are, and as large.
    sums: [Sum; 3],
    /// The largest error of an exponent.
    radius: f64,
    count: usize,
}

impl Sums {
    /// The sums of no powers.
    fn new() -> Sums {
        let largest = f64::NEG_INFINITY;
        let sums = [Sum { anchor: largest, sum: 0.0, rest: 0.0 }; 3];
        Sums { decisive: None, largest, sums, radius: 0.0, count: 0 }
    }

    fn push(&mut self, cell: Cell) {
        self.count += 1;
        if let Some(found) = propagated(&[cell]) {
            self.decisive = propagated(&[self.decisive.unwrap_or(found), found]);
            return;
        }
        let (x, radius) = exponent(cell);
        self.largest = self.largest.max(x);
        if x.is_infinite() {
            return;
        }
        self.radius = self.radius.max(radius);
        for (sum, errors) in self.sums.iter_mut().zip([-1.0, 0.0, 1.0]) {
            sum.add(x + errors * radius);
        }
    }

    /// The error of the logarithm of the sum that those of the exponents make: each counts as much
    /// as its power does.
    fn spread(&self) -> f64 {
        let [low, sum, high] = &self.sums;
        if self.radius == 0.0 {
            return self.radius;
        }
        // The mean rounding of the differences is that of the logarithm of their number.
        let noise = pow2(-49) * (1.0 + (self.count as f64).ln()) + pow2(-50) * sum.anchor.abs();
        self.radius.min(high.above(sum).max(sum.above(low)) + noise)
    }

    /// Returns the sum of the powers.
    ///
    /// # Errors
    /// The result of any function of exponents some of which are NaN or unspecified.
    fn powers(&self, depth: SumDepth, dtype: DType) -> Result<Powers, Cell> {
        if let Some(cell) = self.decisive {
            return Err(cell);
        }
        let largest = self.largest;
        let (sum, spread) = match largest.is_finite() {
            true => (self.sums[1].value() * (self.sums[1].anchor - largest).exp(), self.spread()),
            false => (0.0, 0.0),
        };
        let count = self.count.max(1);
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
        Ok(Powers { dtype, largest, sum, spread, error, unit })
    }
}

impl Powers {
    /// Returns the sum of the powers of a group.
    ///
    /// # Errors
    /// The result of any function of a group that has NaN or elements that are unspecified.
    fn of(depth: SumDepth, dtype: DType, group: &[Cell]) -> Result<Powers, Cell> {
        let mut sums = Sums::new();
        group.iter().for_each(|cell| sums.push(*cell));
        sums.powers(depth, dtype)
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
        result(self.dtype, value, self.spread + self.log_error(), Error::ulps(1.0))
    }

    /// The power of an element, divided by the sum.
    fn share(&self, x: Cell) -> Cell {
        if self.largest.is_infinite() {
            return Cell::nan();
        }
        let (x, radius) = exponent(x);
        let distance = x - self.largest;
        if distance == f64::NEG_INFINITY {
            return Cell::zero(Some(false));
        }
        let value = distance.exp() / self.sum;
        let error = self.inherited(radius) + distance.abs() * self.unit + self.error;
        let inherited = match value == 0.0 {
            true => (distance + error).exp() / self.sum,
            false => value * error.exp_m1(),
        };
        // A power may be computed twice, of exponents that are rounded or not, so that it exceeds
        // its sum by the errors of both.
        let limit = (1.0 + 2.0 * self.error + 8.0 * self.unit) * (2.0 * radius).exp();
        let limit = limit.min(f64::MAX);
        let share = result(self.dtype, value, inherited.min(limit), Error::ulps(4.0));
        limited(share, 0.0, limit).positive()
    }

    fn log_share(&self, x: Cell) -> Cell {
        let (x, radius) = exponent(x);
        let distance = x - self.largest;
        if self.largest.is_infinite() {
            return Cell::nan();
        }
        if distance == f64::NEG_INFINITY {
            return Cell::infinity(true);
        }
        let value = distance - self.sum.ln();
        let roundings = distance.abs() * self.unit * 1.01 + self.log_error();
        result(self.dtype, value, self.inherited(radius) + roundings, Error::ulps(1.0))
    }

    /// The error of the logarithm of a share that those of the exponents make, if that of its own
    /// exponent is `radius`. The errors are those of differences that are rounded, too.
    fn inherited(&self, radius: f64) -> f64 {
        (radius + self.spread) * (1.0 + pow2(-20))
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
    fn an_uncertain_exponent_counts_as_much_as_its_power() {
        let ball = |center, radius| Cell::Real(crate::cell::Real::ball(center, 0.0, radius));
        let group = [ball(0.0, 1e-6), ball(-1e9, 64.0), ball(-1.0, 1e-3)];
        let powers = Powers::of(SumDepth::Cascaded, DType::F32, &group)
            .unwrap_or_else(|cell| panic!("{cell:?}"));
        let bounds = |cell: Cell| match cell {
            Cell::Real(real) => (real.lower(), real.upper()),
            cell => panic!("{cell:?} is no number"),
        };
        let (low, high) = bounds(powers.log());
        let log = |x: f64| (1.0 + x.exp()).ln();
        assert!(low <= log(-1.001) && log(-0.999) <= high && high - low < 1e-3);
        let (low, high) = bounds(powers.share(group[0]));
        let share = |x: f64, y: f64| 1.0 / (1.0 + (y - x).exp());
        assert!(low <= share(-1e-6, -0.999) && share(1e-6, -1.001) <= high && high - low < 1e-3);
        assert_eq!(bounds(powers.share(group[1])).0, 0.0);
        assert!(bounds(powers.share(group[1])).1 < 1e-40);
        // It is the whole, and more by no more than the errors of its exponent.
        let whole = Powers::of(SumDepth::Cascaded, DType::F32, &[ball(3.0, 1e-3)]);
        let whole = whole.unwrap_or_else(|cell| panic!("{cell:?}"));
        let (low, high) = bounds(whole.share(ball(3.0, 1e-3)));
        assert!(low < 0.999 && (1.001..1.0021).contains(&high));
        // A power that vanishes does so first in line, too.
        let group = [ball(-1e30, 1e22), ball(0.0, 0.0), ball(1.0, 0.0)];
        let powers = Powers::of(SumDepth::Cascaded, DType::F32, &group)
            .unwrap_or_else(|cell| panic!("{cell:?}"));
        let (low, high) = bounds(powers.log());
        assert!(low <= log(1.0) && log(1.0) <= high && high - low < 1e-5);
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
