//! Losses of samples, and their reduction to one. Computed in the wide dtype and rounded once.

use gradiff_corpus::{DType, Literal, Method, ReduceOp};

use super::Call;
use super::elementwise::{each, require, wide};
use super::indexing::{Index, indices};
use super::statistics::groups;
use super::{activation, elementary, exponentials};
use crate::arithmetic::{add, div, max, mul, neg};
use crate::cast::cast;
use crate::cell::{Cell, Real};
use crate::format::format;
use crate::infer::Check;
use crate::reduce::reduce;
use crate::value::Value;

/// A sample: the positions of the elements of its classes, and its class.
pub(crate) struct Sample {
    pub(crate) positions: Vec<usize>,
    pub(crate) class: Index,
}

impl Sample {
    /// Returns the number of the class, if it is in range.
    pub(crate) fn known_class(&self) -> Option<usize> {
        let class = self.class.ok()?;
        usize::try_from(class).ok().filter(|class| *class < self.positions.len())
    }
}

/// Returns the samples of x, whose classes are along an axis.
pub(crate) fn samples(x: &Value, axis: usize, classes: &Value) -> Check<Vec<Sample>> {
    let positions = groups(x, &[axis])?;
    let mut shape = x.shape.clone();
    shape.remove(axis);
    if classes.shape != shape {
        return Err(format!("classes of shape {:?} for {:?}", classes.shape, x.shape));
    }
    let classes = indices(classes)?;
    Ok(positions
        .into_iter()
        .zip(classes)
        .map(|(positions, class)| Sample { positions, class })
        .collect())
}

/// Returns the value of a literal.
pub(crate) fn real(literal: Literal) -> f64 {
    match literal {
        Literal::Bool(value) => u8::from(value).into(),
        Literal::Int(value) => value as f64,
        Literal::Float(value) => value,
    }
}

/// Cross entropy of the class, or of the probabilities of classes.
pub(super) fn cross_entropy(call: Call<'_>) -> Check<Value> {
    let (x, target) = (call.srcs[0], call.srcs[1]);
    let axis = usize::from(x.shape.len() > 1);
    let smoothing = real(call.args.number(0));
    check(x, axis, smoothing)?;
    let dtype = wide(x.dtype);
    let mut losses = Vec::new();
    if target.dtype.is_int() {
        for sample in samples(x, axis, target)? {
            losses.push(of_class(call, x, &sample, smoothing));
        }
    } else {
        if target.dtype != x.dtype || target.shape != x.shape {
            return Err("the probabilities do not fit".to_string());
        }
        for positions in groups(x, &[axis])? {
            let logs = logs(call, x, &positions);
            let part = constant(dtype, smoothing / positions.len() as f64);
            let rest = constant(dtype, 1.0 - smoothing);
            let term = |(log, at): (&Cell, &usize)| {
                let probability = cast(x.dtype, dtype, target.cells[*at]);
                mul(dtype, *log, add(dtype, mul(dtype, probability, rest), part))
            };
            let terms: Vec<Cell> = logs.iter().zip(&positions).map(term).collect();
            losses.push(neg(reduce(ReduceOp::Sum, call.sums, dtype, &terms)));
        }
    }
    let count = losses.len() as f64;
    finish(call, x, axis, losses, call.args.word(1), Cell::exact(count))
}

/// Cross entropy of the class along the last axis, but for those that are ignored.
pub(super) fn sparse_categorical(call: Call<'_>) -> Check<Value> {
    let (x, classes) = (call.srcs[0], call.srcs[1]);
    let axis = x.shape.len().saturating_sub(1);
    let smoothing = real(call.args.number(1));
    check(x, axis, smoothing)?;
    let ignored = call.args.int(0);
    let (mut losses, mut count, mut doubt) = (Vec::new(), 0.0, None);
    for sample in samples(x, axis, classes)? {
        losses.push(match sample.class {
            Ok(class) if ignored != -1 && class == i128::from(ignored) => Cell::exact(0.0),
            Ok(_) => {
                count += 1.0;
                of_class(call, x, &sample, smoothing)
            }
            Err(reason) => {
                doubt = Some(Cell::Unspecified(reason));
                Cell::Unspecified(reason)
            }
        });
    }
    finish(call, x, axis, losses, call.args.word(2), doubt.unwrap_or(Cell::exact(count)))
}

/// The negative elements of the classes, times the weights of the classes.
pub(super) fn negative_log_likelihood(call: Call<'_>) -> Check<Value> {
    let (x, classes) = (call.srcs[0], call.srcs[1]);
    check(x, 1, 0.0)?;
    let given = call.srcs.get(2);
    if given.is_some_and(|weight| weight.dtype != x.dtype || weight.shape[..] != x.shape[1..2]) {
        return Err("a weight for each class".to_string());
    }
    let (dtype, ignored) = (wide(x.dtype), i128::from(call.args.int(0)));
    let (mut losses, mut weights) = (Vec::new(), Vec::new());
    for sample in samples(x, 1, classes)? {
        let zero = Cell::exact(0.0);
        let (loss, weight) = match (sample.class, sample.known_class()) {
            (Err(reason), _) => (Cell::Unspecified(reason), Cell::Unspecified(reason)),
            (Ok(class), _) if class == ignored => (zero, zero),
            (Ok(_), None) => (neg(mul(dtype, zero, zero)), zero),
            (Ok(_), Some(number)) => {
                let element = cast(x.dtype, dtype, x.cells[sample.positions[number]]);
                let weight = given
                    .map_or(Cell::exact(1.0), |weight| cast(x.dtype, dtype, weight.cells[number]));
                (neg(mul(dtype, element, weight)), weight)
            }
        };
        losses.push(loss);
        weights.push(weight);
    }
    let total = reduce(ReduceOp::Sum, call.sums, dtype, &weights);
    finish(call, x, 1, losses, call.args.word(1), total)
}

/// Binary cross entropy of probabilities or logits.
pub(super) fn binary(method: Method, call: Call<'_>) -> Check<Value> {
    let losses = binary_losses(method, call)?;
    let count = Cell::exact(losses.cells.len() as f64);
    let cells = losses.cells.to_vec();
    reduced(call, losses.dtype, losses.shape, cells, call.args.word(0), count)
}

/// Returns the losses of the samples, in the wide dtype.
pub(crate) fn binary_losses(method: Method, call: Call<'_>) -> Check<Value> {
    each(call, |narrow, cells| {
        let dtype = wide(narrow);
        let [x, y] = [0, 1].map(|i| cast(narrow, dtype, cells[i]));
        match method {
            Method::BinaryCrossEntropy => {
                let less = |x| add(dtype, Cell::exact(1.0), neg(x));
                let first = mul(dtype, neg(y), elementary::log(dtype, x));
                let second = mul(dtype, less(y), elementary::log(dtype, less(x)));
                add(dtype, first, neg(second))
            }
            _ => {
                let product = mul(dtype, y, x);
                let log =
                    activation::log_of_power_and_one(dtype, neg(super::elementwise::magnitude(x)));
                add(dtype, add(dtype, max(x, Cell::exact(0.0)), neg(product)), log)
            }
        }
    })
}

fn check(x: &Value, axis: usize, smoothing: f64) -> Check<()> {
    require(x.dtype.is_float(), x.dtype, "floats")?;
    match axis < x.shape.len() && (0.0..=1.0).contains(&smoothing) {
        true => Ok(()),
        false => Err(format!("shape {:?}, axis {axis}, smoothing {smoothing}", x.shape)),
    }
}

/// The logarithms of the shares of the classes.
fn logs(call: Call<'_>, x: &Value, positions: &[usize]) -> Vec<Cell> {
    let elements: Vec<Cell> =
        positions.iter().map(|at| cast(x.dtype, wide(x.dtype), x.cells[*at])).collect();
    exponentials::log_shares(call.sums, wide(x.dtype), &elements)
}

fn of_class(call: Call<'_>, x: &Value, sample: &Sample, smoothing: f64) -> Cell {
    if let Err(reason) = sample.class {
        return Cell::Unspecified(reason);
    }
    let dtype = wide(x.dtype);
    let logs = logs(call, x, &sample.positions);
    let loss = neg(sample.known_class().map_or(Cell::exact(0.0), |class| logs[class]));
    if smoothing == 0.0 {
        return loss;
    }
    let sum = reduce(ReduceOp::Sum, call.sums, dtype, &logs);
    let part = mul(dtype, sum, constant(dtype, smoothing / logs.len() as f64));
    add(dtype, mul(dtype, loss, constant(dtype, 1.0 - smoothing)), neg(part))
}

/// A number that is rounded to the dtype.
fn constant(dtype: DType, value: f64) -> Cell {
    let format = format(dtype);
    if !value.is_finite() {
        return if value.is_nan() { Cell::nan() } else { Cell::infinity(value < 0.0) };
    }
    match format.holds(value) {
        true => Cell::exact(value),
        false => {
            let radius = value.abs() * format.unit * 1.01 + format.floor;
            Cell::Real(Real::ball(value, 0.0, radius))
        }
    }
}

fn finish(
    call: Call<'_>,
    x: &Value,
    axis: usize,
    losses: Vec<Cell>,
    reduction: &str,
    count: Cell,
) -> Check<Value> {
    let mut shape = x.shape.clone();
    shape.remove(axis);
    reduced(call, x.dtype, shape, losses, reduction, count)
}

/// Reduces losses; the mean is their sum divided by `count`.
fn reduced(
    call: Call<'_>,
    dtype: DType,
    shape: Vec<usize>,
    losses: Vec<Cell>,
    reduction: &str,
    count: Cell,
) -> Check<Value> {
    let wide = wide(dtype);
    let rounded = |cell| cast(wide, dtype, cell);
    if reduction == "none" {
        return Ok(Value::new(dtype, shape, losses.into_iter().map(rounded).collect()));
    }
    let sum = reduce(ReduceOp::Sum, call.sums, wide, &losses);
    let found = if reduction == "sum" { sum } else { div(wide, sum, count) };
    Ok(Value::new(dtype, Vec::new(), vec![rounded(found)]))
}
