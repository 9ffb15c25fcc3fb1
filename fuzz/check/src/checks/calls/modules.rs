//! Layers and their state dicts, against loops over f64.

mod attentions;
mod cells;
mod convolutions;
mod initial;
mod models;
mod norms;
mod refusals;

use std::sync::PoisonError;

use gradiff::half::{bf16, f16};
use gradiff::nn::{Dropout, Embedding, Linear, Module};
use gradiff::{DType, Engine, Error, Tensor};

use super::Draw;
use super::random::TURN;
use attentions::attention;
use cells::cell;
use convolutions::{convolution, same};
use norms::{batch_norm, norm, tracked};

pub(super) use initial::initial_values;
pub(super) use models::state_dicts;
pub(super) use refusals::{Attempt, Kind, attempts, refusals};

#[cfg(test)]
pub(super) use refusals::assert_both;

/// A dtype, and the largest relative error of an output that is rounded to it once.
type Typed = (DType, f64);

/// The dtype of a new layer.
const SINGLE: Typed = (DType::F32, 1e-4);

/// Dtypes of layers and inputs.
const TYPES: [Typed; 5] =
    [SINGLE, SINGLE, (DType::F64, 1e-9), (DType::F16, 2e-3), (DType::BF16, 1e-2)];

/// Draws a layer and its outputs.
type Layer = fn(&mut Draw) -> Result<Case, Error>;

/// The layers that have no row of their own.
const LAYERS: [Layer; 4] = [linear, embedding, dropout, attention];
const CONVOLUTIONS: [Layer; 3] = [convolution, convolution, same];
const NORMS: [Layer; 7] = [batch_norm, norm, batch_norm, norm, batch_norm, norm, tracked];
const CELLS: [Layer; 1] = [cell];

/// An output of a layer, with its dtype, shape and elements.
struct Output {
    tensor: Tensor,
    typed: Typed,
    shape: Vec<usize>,
    wanted: Vec<f64>,
    /// Elements are divided by it before they are compared.
    unit: f64,
}

impl Output {
    fn new(typed: Typed, tensor: Tensor, shape: &[usize], wanted: Vec<f64>) -> Output {
        Output { tensor, typed, shape: shape.to_vec(), wanted, unit: 1.0 }
    }

    /// A number that is known when the output is drawn.
    fn number(found: f64, tolerance: f64, wanted: f64) -> Result<Output, Error> {
        let found = tensor(DType::F64, &[1], &[found])?;
        Ok(Output::new((DType::F64, tolerance), found, &[1], vec![wanted]))
    }

    fn check(&self, label: &str) -> Result<(), String> {
        let (dtype, tolerance) = self.typed;
        let found = &self.tensor;
        let shape = found.shape().iter().map(|size| *size as usize);
        if found.dtype() != dtype || !shape.eq(self.shape.iter().copied()) {
            return Err(format!("{label} is {found:?}, not {dtype}{:?}", self.shape));
        }
        let found = numbers(found).map_err(|error| format!("{label}: {error}"))?;
        let scaled = |x: &[f64]| -> Vec<f64> { x.iter().map(|x| x / self.unit).collect() };
        agree(label, &scaled(&found), &scaled(&self.wanted), tolerance)
    }
}

/// The outputs of a layer.
struct Case {
    label: String,
    outputs: Vec<Output>,
}

impl Case {
    fn new(label: String, typed: Typed, output: Tensor, shape: &[usize], wanted: Vec<f64>) -> Case {
        Case { label, outputs: vec![Output::new(typed, output, shape, wanted)] }
    }

    fn check(&self) -> Result<(), String> {
        let tensors: Vec<&Tensor> = self.outputs.iter().map(|output| &output.tensor).collect();
        Engine::new("interp")
            .and_then(|engine| engine.realize(&tensors))
            .map_err(|error| format!("{}: {error}", self.label))?;
        for (number, output) in self.outputs.iter().enumerate() {
            output.check(&format!("{}, output {number}", self.label))?;
        }
        Ok(())
    }
}

/// Draws one of the layers and an input, and compares the outputs with those of a loop.
fn matched(layers: &[Layer], draw: &mut Draw) -> Result<(), String> {
    let layer = draw.pick(layers);
    layer(draw).map_err(|error| error.to_string())?.check()
}

/// Draws a layer that has no row of its own.
pub(super) fn match_formulas(draw: &mut Draw) -> Result<(), String> {
    matched(&LAYERS, draw)
}

/// Draws a convolution; every third one keeps the size of the image.
pub(super) fn match_convolutions(draw: &mut Draw) -> Result<(), String> {
    matched(&CONVOLUTIONS, draw)
}

/// Draws a layer that normalises.
pub(super) fn match_norms(draw: &mut Draw) -> Result<(), String> {
    matched(&NORMS, draw)
}

/// Draws a cell of a recurrent network.
pub(super) fn match_cells(draw: &mut Draw) -> Result<(), String> {
    matched(&CELLS, draw)
}

/// Draws multiples of 1/8 from -2 to 2.
pub(super) fn eighths(draw: &mut Draw, count: usize) -> Vec<f64> {
    (0..count).map(|_| (draw.below(33) as f64 - 16.0) / 8.0).collect()
}

/// Compares numbers; the error of each may be `tolerance` times 1 plus its magnitude. Infinities
/// must be equal, and NaN must be NaN.
pub(super) fn agree(
    label: &str,
    found: &[f64],
    wanted: &[f64],
    tolerance: f64,
) -> Result<(), String> {
    let is_near = |(x, y): (&f64, &f64)| match y.is_finite() {
        true => (x - y).abs() <= tolerance * (1.0 + y.abs()),
        false => x == y || x.is_nan() && y.is_nan(),
    };
    match found.iter().zip(wanted).position(|pair| !is_near(pair)) {
        Some(at) => Err(format!("{label}: element {at} is {}, not {}", found[at], wanted[at])),
        None if found.len() != wanted.len() => {
            Err(format!("{label}: {} elements, not {}", found.len(), wanted.len()))
        }
        None => Ok(()),
    }
}

/// A tensor of these elements, rounded to a float type.
fn tensor(dtype: DType, shape: &[usize], values: &[f64]) -> Result<Tensor, Error> {
    let sizes: Vec<i64> = shape.iter().map(|size| *size as i64).collect();
    let values = values.iter().copied();
    match dtype {
        DType::F64 => Tensor::from_slice(&sizes, &values.collect::<Vec<f64>>()),
        DType::F16 => Tensor::from_slice(&sizes, &values.map(f16::from_f64).collect::<Vec<_>>()),
        DType::BF16 => Tensor::from_slice(&sizes, &values.map(bf16::from_f64).collect::<Vec<_>>()),
        _ => Tensor::from_slice(&sizes, &values.map(|value| value as f32).collect::<Vec<_>>()),
    }
}

/// The elements of a tensor of floats.
pub(super) fn numbers(tensor: &Tensor) -> Result<Vec<f64>, Error> {
    Ok(match tensor.dtype() {
        DType::F64 => tensor.to_vec::<f64>()?,
        DType::F16 => tensor.to_vec::<f16>()?.into_iter().map(f64::from).collect(),
        DType::BF16 => tensor.to_vec::<bf16>()?.into_iter().map(f64::from).collect(),
        _ => tensor.to_vec::<f32>()?.into_iter().map(f64::from).collect(),
    })
}

/// The dtype of an op on two float types.
fn promoted(first: DType, second: DType) -> DType {
    match (first, second) {
        _ if first == second => first,
        (DType::F64, _) | (_, DType::F64) => DType::F64,
        _ => DType::F32,
    }
}

/// The relative error of an output of this dtype, rounded to it so many times.
fn typed(dtype: DType, roundings: f64) -> Typed {
    let known = TYPES.into_iter().find(|(known, _)| *known == dtype);
    let (_, tolerance) = known.unwrap_or(SINGLE);
    (dtype, tolerance * roundings)
}

/// Draws a tensor together with its elements, which each float type has.
fn data(draw: &mut Draw, dtype: DType, shape: &[usize]) -> Result<(Tensor, Vec<f64>), Error> {
    scaled_data(draw, dtype, shape, 1.0)
}

/// Draws a tensor together with its elements, of which none is above 1/4.
fn small_data(draw: &mut Draw, dtype: DType, shape: &[usize]) -> Result<(Tensor, Vec<f64>), Error> {
    scaled_data(draw, dtype, shape, 0.125)
}

/// Draws a tensor together with its elements, each times a power of 2.
fn scaled_data(
    draw: &mut Draw,
    dtype: DType,
    shape: &[usize],
    scale: f64,
) -> Result<(Tensor, Vec<f64>), Error> {
    let values = eighths(draw, shape.iter().product());
    let values: Vec<f64> = values.into_iter().map(|value| value * scale).collect();
    Ok((tensor(dtype, shape, &values)?, values))
}

/// Draws a tensor, or none, for which there are `neutral` elements.
fn optional(
    draw: &mut Draw,
    dtype: DType,
    shape: &[usize],
    neutral: f64,
) -> Result<(Option<Tensor>, Vec<f64>), Error> {
    let (tensor, values) = data(draw, dtype, shape)?;
    Ok(match draw.one_in(2) {
        true => (Some(tensor), values),
        false => (None, vec![neutral; values.len()]),
    })
}

/// Draws so many sizes.
fn sizes(draw: &mut Draw, count: usize) -> Vec<usize> {
    (0..count).map(|_| 1 + draw.below(3)).collect()
}

/// Rows of `size` elements by the rows of a weight, plus a bias.
fn affine(x: &[f64], weight: &[f64], bias: &[f64], size: usize) -> Vec<f64> {
    let row = |x: &[f64]| -> Vec<f64> {
        let dot = |y: &[f64]| x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>();
        weight.chunks(size).zip(bias).map(|(y, bias)| dot(y) + bias).collect()
    };
    x.chunks(size).flat_map(row).collect()
}

fn linear(draw: &mut Draw) -> Result<Case, Error> {
    let (inputs, outputs, rank) = (1 + draw.below(5), 1 + draw.below(4), draw.below(3));
    let (dtype, _) = draw.pick(&TYPES);
    let of_layer = if draw.one_in(3) { DType::F32 } else { dtype };
    let mut shape = [sizes(draw, rank), vec![inputs]].concat();
    if rank != 0 && draw.one_in(12) {
        shape[0] = 0;
    }
    let (x, x_values) = data(draw, dtype, &shape)?;
    let (weight, weights) = data(draw, of_layer, &[outputs, inputs])?;
    let (bias, biases) = optional(draw, of_layer, &[outputs], 0.0)?;
    let bias_word = if bias.is_some() { "" } else { ", without a bias" };
    let layer = match bias {
        Some(bias) => Linear { weight, bias: Some(bias) },
        None => {
            let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
            Linear { weight, ..Linear::without_bias(inputs as i64, outputs as i64)? }
        }
    };
    let y = layer.forward(&x)?;
    shape[rank] = outputs;
    let wanted = affine(&x_values, &weights, &biases, inputs);
    let label = format!("linear {inputs} to {outputs} in {of_layer} of {dtype}{bias_word}");
    Ok(Case::new(label, typed(promoted(dtype, of_layer), 1.0), y, &shape, wanted))
}

/// Rows of a table, which are not rounded; numbers of no row give zeros.
fn embedding(draw: &mut Draw) -> Result<Case, Error> {
    let (rows, size, rank) = (1 + draw.below(5), 1 + draw.below(4), draw.below(3));
    let (dtype, _) = draw.pick(&TYPES);
    let mut shape = sizes(draw, rank);
    if rank != 0 && draw.one_in(12) {
        shape[0] = 0;
    }
    let (weight, table) = data(draw, dtype, &[rows, size])?;
    let count: usize = shape.iter().product();
    let is_unsigned = draw.one_in(4);
    let least = if is_unsigned { 0 } else { -1 };
    let numbers: Vec<i64> = (0..count).map(|_| draw.below(rows + 2) as i64 + least).collect();
    let row = |number: &i64| {
        let found = usize::try_from(*number).ok().and_then(|row| table.chunks(size).nth(row));
        found.map_or_else(|| vec![0.0; size], <[f64]>::to_vec)
    };
    let wanted = numbers.iter().flat_map(row).collect();
    let axes: Vec<i64> = shape.iter().map(|size| *size as i64).collect();
    // All of the numbers are small.
    let given = match (is_unsigned, draw.below(3)) {
        (true, _) => {
            let bytes: Vec<u8> = numbers.iter().map(|number| *number as u8).collect();
            Tensor::from_slice(&axes, &bytes)?
        }
        (false, 0) => Tensor::from_slice(&axes, &numbers)?,
        (false, _) => {
            let narrow: Vec<i32> = numbers.iter().map(|number| *number as i32).collect();
            Tensor::from_slice(&axes, &narrow)?
        }
    };
    let y = Embedding { weight }.forward(&given)?;
    shape.push(size);
    let label = format!("rows {numbers:?} of {rows} of {size} {dtype}, as {}", given.dtype());
    Ok(Case::new(label, (dtype, 0.0), y, &shape, wanted))
}

/// Dropout: outside of training nothing changes; in training, elements become 0 with a probability,
/// and the rest is divided by that of the rest. The number of zeros is within 8 deviations, so that
/// neither none nor all may be zeros.
fn dropout(draw: &mut Draw) -> Result<Case, Error> {
    let p = draw.pick(&[0.25, 0.75, 0.25, 0.75, 0.0, 1.0]);
    let is_training = !draw.one_in(3);
    let (dtype, tolerance) = draw.pick(&TYPES);
    let shape = [8, 25];
    let values: Vec<f64> =
        eighths(draw, 200).into_iter().map(|x| if x == 0.0 { 0.5 } else { x }).collect();
    let x = tensor(dtype, &shape, &values)?;
    let seed = draw.bits();
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    Tensor::manual_seed(seed);
    let y = {
        let _mode = Tensor::train(is_training);
        Dropout::new(p)?.forward(&x)?
    };
    drop(turn);
    Engine::new("interp")?.realize(&[&y])?;
    let found = numbers(&y)?;
    let p = if is_training { p } else { 0.0 };
    let is_zero = |at: usize| found.get(at).is_some_and(|x| *x == 0.0);
    let element = |(at, x): (usize, &f64)| if is_zero(at) { 0.0 } else { x / (1.0 - p) };
    let wanted = values.iter().enumerate().map(element).collect();
    let zeros = found.iter().filter(|x| **x == 0.0).count() as f64;
    let deviation = (200.0 * p * (1.0 - p)).sqrt();
    let label = format!("dropout with {p} of {dtype}, training: {is_training}, seed {seed}");
    let mut case = Case::new(label, (dtype, tolerance), y, &shape, wanted);
    // The tolerance is relative to 1 plus the wanted number.
    let wanted = 200.0 * p;
    case.outputs.push(Output::number(zeros, 8.0 * deviation / (1.0 + wanted), wanted)?);
    Ok(case)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_drawn_with_each_option() {
        let options: [(Layer, &str); 16] = [
            (linear, "without a bias"),
            (linear, "in f32 of f16"),
            (convolution, "also of rows"),
            (same, "unequal: true"),
            (cell, "without biases"),
            (cell, "GRU cell"),
            (cell, "LSTM cell"),
            (dropout, "with 0.75"),
            (attention, "without biases"),
            (attention, "with a mask: true"),
            (attention, "all dropped"),
            (batch_norm, "without statistics"),
            (batch_norm, "without parameters"),
            (batch_norm, "with a gradient"),
            (norm, "without parameters"),
            (norm, "with a gradient"),
        ];
        for (layer, option) in options {
            let label = |seed| layer(&mut Draw::new(seed)).expect("it is legal").label;
            assert!((0..200).any(|seed| label(seed).contains(option)), "{option}");
        }
    }

    #[test]
    fn wrong_outputs_are_noticed() {
        let case = |typed: Typed, element: f64, shape: &[usize]| {
            let output = tensor(DType::F32, &[2], &[1.0, 2.0]).expect("a tensor");
            Case::new("x".to_string(), typed, output, shape, vec![1.0, element])
        };
        assert_eq!(case(SINGLE, 2.0, &[2]).check(), Ok(()));
        assert!(case(SINGLE, 2.001, &[2]).check().is_err());
        assert!(case(SINGLE, 2.0, &[1, 2]).check().is_err());
        assert!(case((DType::F64, 1e-4), 2.0, &[2]).check().is_err());
        let small = |unit: f64| {
            let output = tensor(DType::F32, &[1], &[1e-6]).expect("a tensor");
            Output { unit, ..Output::new(SINGLE, output, &[1], vec![2e-6]) }.check("x")
        };
        assert!(small(1.0).is_ok() && small(1e-6).is_err());
        assert!(agree("x", &[0.0], &[0.0, 1.0], 1.0).is_err());
        let numbers = [1.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN];
        assert_eq!(agree("x", &numbers, &numbers, 0.0), Ok(()));
        for (found, wanted) in numbers.into_iter().zip([f64::INFINITY, f64::NAN, 1.0, 1.0]) {
            assert!(agree("x", &[found], &[wanted], 1.0).is_err(), "{found} {wanted}");
        }
    }
}
