//! Activation functions.

use gradiff_corpus::DType;

use super::Call;
use super::approximation::{Error, monotone, monotone_with, turning};
use super::elementwise::{between, float, literal, wide, widely};
use crate::arithmetic::{self, undefined};
use crate::cell::{Cell, Real};
use crate::format::{format, pow2};
use crate::infer::Check;
use crate::value::Value;

/// `min(max(x, 0), 6)`.
pub(super) fn relu6(call: Call<'_>) -> Check<Value> {
    float(call, |_, x| between(x, Cell::exact(0.0), Cell::exact(6.0)))
}

/// `slope * x` below 0, else x.
pub(super) fn leaky_relu(call: Call<'_>) -> Check<Value> {
    let slope = literal(call.srcs[0].dtype, call, 0)?;
    float(call, |dtype, x| split(x, |x| arithmetic::mul(dtype, x, slope), |x| x))
}

/// A function that is `below(x)` for x below 0 and `above(x)` for others; both are 0 at 0. Where
/// the sign is unknown, the result is within the bounds of both.
fn split(x: Cell, below: impl Fn(Cell) -> Cell, above: impl Fn(Cell) -> Cell) -> Cell {
    let real = match x {
        Cell::Real(real) => real,
        Cell::Inf { negative: true, .. } => return below(x),
        _ => return undefined(&[x]).unwrap_or_else(|| above(x)),
    };
    if real.is_zero() || 0.0 <= real.lower() {
        return above(Cell::Real(real.leaf()));
    }
    if real.upper() < 0.0 {
        return below(Cell::Real(real.leaf()));
    }
    let size = |cell: Cell| match cell {
        Cell::Real(real) => Ok(real.magnitude()),
        _ => Err(cell),
    };
    let end = Cell::Real(real.leaf());
    match (size(below(end)), size(above(end))) {
        (Ok(low), Ok(high)) => Cell::Real(Real::ball(0.0, 0.0, low.max(high).next_up())),
        (Err(cell), _) | (_, Err(cell)) => cell,
    }
}

fn hard(x: f64) -> f64 {
    (x + 3.0).clamp(0.0, 6.0) / 6.0
}

/// `min(max(x + 3, 0), 6) / 6`.
pub(super) fn hardsigmoid(dtype: DType, x: Cell) -> Cell {
    if is_cut(x) {
        return Cell::zero(None);
    }
    monotone(dtype, x, Error::ulps(2.0), hard).not_negative()
}

/// `x * hardsigmoid(x)`.
pub(super) fn hardswish(dtype: DType, x: Cell) -> Cell {
    if is_cut(x) {
        return Cell::zero(None);
    }
    // Between -3 and 3 the derivative is (2x + 3)/6.
    turning(dtype, x, Error::ulps(3.0), (-1.5, 1.5), |x| x * hard(x), |_| 0.0)
}

/// Returns whether a number is so small that `max(x + 3, 0)` is 0 without any rounding.
fn is_cut(x: Cell) -> bool {
    matches!(x, Cell::Real(real) if real.upper() <= -3.0)
}

/// `x / (1 + |x|)`.
pub(super) fn softsign(dtype: DType, x: Cell) -> Cell {
    monotone(dtype, x, Error::ulps(2.0), |x| x / (1.0 + x.abs()))
}

/// `1 / (1 + e^-x)`, accurate also where it is tiny.
fn logistic(x: f64) -> f64 {
    let small = (-x.abs()).exp();
    if x < 0.0 { small / (1.0 + small) } else { 1.0 / (1.0 + small) }
}

/// `1 / (1 + e^-x)`. The power may overflow where the result is subnormal.
pub(super) fn sigmoid(dtype: DType, x: Cell) -> Cell {
    let least = format(wide(dtype)).exponent_max + 1;
    let extra = |_| if least == 1024 { pow2(-1024) } else { pow2(-least) };
    monotone_with(dtype, x, Error::ulps(3.0), logistic, extra).positive()
}

/// [`sigmoid`] without an overflow of the power.
pub(crate) fn exact_sigmoid(dtype: DType, x: Cell) -> Cell {
    monotone(dtype, x, Error::ulps(3.0), logistic).positive()
}

/// `x * sigmoid(argument(x))`. It is least at `turn`, and its derivative is at most `slope`. The
/// argument is a product with an error of so many roundings, which is one of the power; the sigmoid
/// may be off by the smallest subnormal number.
fn gated(
    dtype: DType,
    x: Cell,
    roundings: f64,
    (turn, slope): (f64, f64),
    argument: impl Fn(f64) -> f64,
) -> Cell {
    let format = format(wide(dtype));
    let extra = |x: f64| {
        let at = argument(x);
        // Far out the gate is 0 or 1, whatever the error of the argument is.
        let change = match at.abs() < 1e4 {
            true => logistic(at) * logistic(-at) * at.abs() * roundings * format.unit * 1.01,
            false => 0.0,
        };
        x.abs() * (change + format.least)
    };
    let f = |x: f64| x * logistic(argument(x));
    let extra = |x: f64| if x.is_finite() { extra(x) } else { 0.0 };
    turning(dtype, x, Error::ulps(4.0), (turn, slope), f, extra)
}

/// `x * sigmoid(x)`.
pub(super) fn silu(dtype: DType, x: Cell) -> Cell {
    gated(dtype, x, 0.0, (-1.2785, 1.1), |x| x)
}

/// `x * sigmoid(1.702 * x)`.
pub(super) fn quick_gelu(dtype: DType, x: Cell) -> Cell {
    gated(dtype, x, 3.0, (-0.7512, 1.1), |x| 1.702 * x)
}

/// `x / 2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3)))`, which is a sigmoid of twice the argument.
pub(super) fn gelu(dtype: DType, x: Cell) -> Cell {
    let scale = (2.0 / std::f64::consts::PI).sqrt();
    gated(dtype, x, 6.0, (-0.7525, 1.13), |x| 2.0 * scale * (x + 0.044715 * x * x * x))
}

/// `x * tanh(softplus(x))`.
pub(super) fn mish(dtype: DType, x: Cell) -> Cell {
    let least = format(wide(dtype)).least;
    let f = |x: f64| {
        // With n = e^x the gate is ((1 + n)^2 - 1) / ((1 + n)^2 + 1).
        let n = (-x.abs()).exp();
        x * if x < 0.0 {
            n * (n + 2.0) / (n * (n + 2.0) + 2.0)
        } else {
            (1.0 + 2.0 * n) / (1.0 + 2.0 * n + 2.0 * n * n)
        }
    };
    let extra = |x: f64| if x.is_finite() { x.abs() * 2.0 * least } else { 0.0 };
    turning(dtype, x, Error::ulps(5.0), (-1.1924, 1.1), f, extra)
}

fn log_of_one_and_power(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

/// `log(1 + e^x)`.
pub(crate) fn log_of_power_and_one(dtype: DType, x: Cell) -> Cell {
    let f = |x: f64| if x.is_nan() { x } else { log_of_one_and_power(x) };
    monotone(dtype, x, Error::ulps(4.0), f).not_negative()
}

/// `log(1 + e^(beta * x)) / beta`: the product is rounded first.
pub(super) fn softplus(call: Call<'_>) -> Check<Value> {
    let beta = positive(call)?;
    float(call, |dtype, x| {
        widely(dtype, x, |dtype, x| {
            let scaled = arithmetic::mul(dtype, x, beta);
            arithmetic::div(dtype, log_of_power_and_one(dtype, scaled), beta)
        })
    })
}

/// `log(sigmoid(x))`.
pub(super) fn logsigmoid(dtype: DType, x: Cell) -> Cell {
    monotone(dtype, x, Error::ulps(4.0), |x| -log_of_one_and_power(-x))
}

/// The parameter, which must be finite and above 0.
fn positive(call: Call<'_>) -> Check<Cell> {
    let value = literal(call.srcs[0].dtype, call, 0)?;
    match value {
        Cell::Real(real) if 0.0 < real.hi => Ok(value),
        _ => Err(format!("a parameter of {value:?}: it must be finite and above 0")),
    }
}

/// `e^x - 1`.
fn power_less_one(dtype: DType, x: Cell) -> Cell {
    monotone(dtype, x, Error::ulps(3.0), f64::exp_m1)
}

/// `alpha * (e^x - 1)` below 0, else x.
pub(super) fn elu(call: Call<'_>) -> Check<Value> {
    let alpha = literal(call.srcs[0].dtype, call, 0)?;
    float(call, |dtype, x| {
        widely(dtype, x, |dtype, x| {
            split(x, |x| arithmetic::mul(dtype, alpha, power_less_one(dtype, x)), |x| x)
        })
    })
}

/// `alpha * (e^(x / alpha) - 1)` below 0, else x.
pub(super) fn celu(call: Call<'_>) -> Check<Value> {
    let alpha = positive(call)?;
    float(call, |dtype, x| {
        widely(dtype, x, |dtype, x| {
            let below = |x| power_less_one(dtype, arithmetic::div(dtype, x, alpha));
            split(x, |x| arithmetic::mul(dtype, alpha, below(x)), |x| x)
        })
    })
}

/// `gamma * alpha * (e^x - 1)` below 0, else `gamma * x`.
pub(super) fn selu(dtype: DType, x: Cell) -> Cell {
    widely(dtype, x, |dtype, x| {
        // Constants may be rounded to the dtype.
        let constant =
            |value: f64| Cell::Real(Real::ball(value, 0.0, value * 1.01 * format(dtype).unit));
        let (alpha, gamma) = (constant(1.67326), constant(1.0507));
        let below = |x| {
            arithmetic::mul(dtype, gamma, arithmetic::mul(dtype, alpha, power_less_one(dtype, x)))
        };
        split(x, below, |x| arithmetic::mul(dtype, gamma, x))
    })
}
