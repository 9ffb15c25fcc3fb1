//! New layers: names, order, shapes, dtypes and initial values of their tensors.

use std::sync::PoisonError;

use gradiff::nn::{
    BatchNorm, Conv1d, Conv2d, ConvOptions, ConvTranspose1d, ConvTranspose2d, Dropout, Embedding,
    GRUCell, GroupNorm, InstanceNorm, LSTMCell, LayerNorm, LayerNorm2d, Linear, MultiHeadAttention,
    RMSNorm, State, get_parameters, get_state_dict,
};
use gradiff::{DType, Engine, Error, Tensor};

use super::numbers;
use crate::checks::calls::Draw;
use crate::checks::calls::random::TURN;

/// Initial elements.
#[derive(Clone, Copy, Debug)]
enum Initial {
    /// Uniform random numbers, up to so much from 0.
    Uniform(f64),
    /// A parameter of equal elements.
    Filled(f64),
    /// A buffer of equal elements, for which gradients are not required.
    Buffer(f64),
    /// A count in i64.
    Count,
}

use Initial::{Buffer, Count, Filled, Uniform};

/// A name, a shape, and initial elements.
type Part = (&'static str, Vec<i64>, Initial);
/// A layer and its parts, in the order of declaration.
type Layer = (Box<dyn State>, Vec<Part>);

/// The parts of these names.
fn of_names(parts: Vec<Part>, names: &[&str]) -> Vec<Part> {
    parts.into_iter().filter(|(name, _, _)| names.contains(name)).collect()
}

/// Draws a new layer. Weights have some dozens of elements or more, so that the largest shows the
/// bound.
type Kind = fn(&mut Draw) -> Result<Layer, Error>;

/// Names and kinds of layers; those with more variants are there twice.
const KINDS: [(&str, Kind); 10] = [
    ("linear", linear),
    ("linear", linear),
    ("convolution", convolution),
    ("convolution", convolution),
    ("embedding", embedding),
    ("cell", cell),
    ("cell", cell),
    ("attention", attention),
    ("batch norm", batch_norm),
    ("norm", norm),
];

/// Random numbers up to the root of a quotient.
fn up_to_root(of: f64, count: i64) -> Initial {
    Uniform((of / count as f64).sqrt())
}

/// A weight and a bias, where each output is a sum of so many products.
fn with_bias(shape: Vec<i64>, outputs: i64, inputs: i64) -> Vec<Part> {
    let bound = up_to_root(1.0, inputs);
    vec![("weight", shape, bound), ("bias", vec![outputs], bound)]
}

/// A small size.
fn small_size(draw: &mut Draw) -> i64 {
    1 + draw.below(4) as i64
}

fn linear(draw: &mut Draw) -> Result<Layer, Error> {
    let small = small_size(draw);
    let (inputs, outputs) = draw.pick(&[(small, 60), (20 * small, 3)]);
    let parts = with_bias(vec![outputs, inputs], outputs, inputs);
    Ok(match draw.one_in(4) {
        true => {
            let layer = Linear::without_bias(inputs, outputs)?;
            (Box::new(layer), of_names(parts, &["weight"]))
        }
        false => (Box::new(Linear::new(inputs, outputs)?), parts),
    })
}

/// Convolutions of images and rows, transposed or not, in groups or not.
fn convolution(draw: &mut Draw) -> Result<Layer, Error> {
    let (groups, inputs) = (draw.pick(&[1, 2]), draw.pick(&[2, 4]));
    let (outputs, kernel) = (12, [3, 2]);
    let options = ConvOptions::default().groups(groups);
    let (rows, area) = (inputs * 3, inputs * 6);
    let (forth, back) = ([outputs, inputs / groups], [inputs, outputs / groups]);
    let of = |channels: [i64; 2], kernel: &[i64]| [&channels[..], kernel].concat();
    Ok(match (draw.below(4), groups) {
        (0, _) => {
            let layer = Conv2d::with(inputs, outputs, kernel, options)?;
            (Box::new(layer), with_bias(of(forth, &kernel), outputs, area))
        }
        (1, _) => {
            let layer = ConvTranspose2d::with(inputs, outputs, kernel, options)?;
            (Box::new(layer), with_bias(of(back, &kernel), outputs, area))
        }
        (2, 1) => {
            let parts = with_bias(of(forth, &[3]), outputs, rows);
            (Box::new(Conv1d::new(inputs, outputs, 3)?), parts)
        }
        (2, _) => {
            let layer = Conv1d::with(inputs, outputs, 3, options.bias(false))?;
            let parts = with_bias(of(forth, &[3]), outputs, rows);
            (Box::new(layer), of_names(parts, &["weight"]))
        }
        (_, 1) => {
            let parts = with_bias(of(back, &[3]), outputs, rows);
            (Box::new(ConvTranspose1d::new(inputs, outputs, 3)?), parts)
        }
        _ => {
            let layer = ConvTranspose1d::with(inputs, outputs, 3, options.bias(false))?;
            let parts = with_bias(of(back, &[3]), outputs, rows);
            (Box::new(layer), of_names(parts, &["weight"]))
        }
    })
}

fn embedding(draw: &mut Draw) -> Result<Layer, Error> {
    let small = small_size(draw);
    let (rows, size) = draw.pick(&[(small, 60), (20, 3 * small)]);
    let bound = up_to_root(6.0, rows + size);
    Ok((Box::new(Embedding::new(rows, size)?), vec![("weight", vec![rows, size], bound)]))
}

fn cell(draw: &mut Draw) -> Result<Layer, Error> {
    let small = small_size(draw);
    let (inputs, hidden) = draw.pick(&[(5, 3 + small), (small, 6)]);
    let (is_long, has_biases) = (draw.one_in(2), draw.one_in(2));
    let rows = if is_long { 4 * hidden } else { 3 * hidden };
    let bound = up_to_root(1.0, hidden);
    let mut parts = vec![
        ("weight_ih", vec![rows, inputs], bound),
        ("weight_hh", vec![rows, hidden], bound),
        ("bias_ih", vec![rows], Filled(0.0)),
        ("bias_hh", vec![rows], Filled(0.0)),
    ];
    if !has_biases {
        parts = of_names(parts, &["weight_ih", "weight_hh"]);
    }
    let layer: Box<dyn State> = match (is_long, has_biases) {
        (true, true) => Box::new(LSTMCell::new(inputs, hidden)?),
        (true, false) => Box::new(LSTMCell::new(inputs, hidden)?.without_bias()),
        (false, true) => Box::new(GRUCell::new(inputs, hidden)?),
        (false, false) => Box::new(GRUCell::new(inputs, hidden)?.without_bias()),
    };
    Ok((layer, parts))
}

fn attention(draw: &mut Draw) -> Result<Layer, Error> {
    let size = 8;
    let layer = MultiHeadAttention::new(size, draw.pick(&[1, 2, 4, 8]))?;
    let parts = vec![
        // The bound is that of all three projections together.
        ("in_proj_weight", vec![3 * size, size], up_to_root(6.0, 4 * size)),
        ("in_proj_bias", vec![3 * size], Filled(0.0)),
        ("out_proj.weight", vec![size, size], up_to_root(1.0, size)),
        ("out_proj.bias", vec![size], Filled(0.0)),
    ];
    Ok(match draw.one_in(4) {
        true => {
            let parts = of_names(parts, &["in_proj_weight", "out_proj.weight"]);
            (Box::new(layer.without_bias()), parts)
        }
        false => (Box::new(layer), parts),
    })
}

fn batch_norm(draw: &mut Draw) -> Result<Layer, Error> {
    let size = small_size(draw);
    let parts = vec![
        ("weight", vec![size], Filled(1.0)),
        ("bias", vec![size], Filled(0.0)),
        ("num_batches_tracked", vec![1], Count),
        ("running_mean", vec![size], Buffer(0.0)),
        ("running_var", vec![size], Buffer(1.0)),
    ];
    let layer = BatchNorm::new(size)?;
    Ok(match draw.below(4) {
        0 => {
            let names = ["num_batches_tracked", "running_mean", "running_var"];
            (Box::new(layer.without_affine()), of_names(parts, &names))
        }
        1 => {
            let names = ["weight", "bias", "num_batches_tracked"];
            (Box::new(layer.without_running_stats()), of_names(parts, &names))
        }
        _ => (Box::new(layer), parts),
    })
}

fn norm(draw: &mut Draw) -> Result<Layer, Error> {
    let small = small_size(draw);
    let of = |shape: Vec<i64>| -> Vec<Part> {
        vec![("weight", shape.clone(), Filled(1.0)), ("bias", shape, Filled(0.0))]
    };
    Ok(match draw.below(7) {
        0 => (Box::new(GroupNorm::new(small, 2 * small)?), of(vec![2 * small])),
        1 => (Box::new(InstanceNorm::new(small)?), of(vec![small])),
        2 => (Box::new(LayerNorm::new([2, small])?), of(vec![2, small])),
        3 => (Box::new(LayerNorm::new(small)?), of(vec![small])),
        4 => (Box::new(Dropout::new(0.5)?), vec![]),
        5 => (Box::new(LayerNorm2d::new(small)?), of(vec![small])),
        _ => (Box::new(RMSNorm::new(small)?), of_names(of(vec![small]), &["weight"])),
    })
}

/// Draws a new layer, and checks its tensors.
pub(in crate::checks::calls) fn initial_values(draw: &mut Draw) -> Result<(), String> {
    let problem = |error: Error| error.to_string();
    let seed = draw.bits();
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    Tensor::manual_seed(seed);
    let (name, kind) = draw.pick(&KINDS);
    let (layer, parts) = kind(draw).map_err(problem)?;
    drop(turn);
    let label = format!("new {name}, {parts:?}, seed {seed}");
    let tensors = get_parameters(&*layer);
    let shapes: Vec<&[i64]> = tensors.iter().map(Tensor::shape).collect();
    if !parts.iter().map(|(_, shape, _)| &shape[..]).eq(shapes.iter().copied()) {
        return Err(format!("{label} has the shapes {shapes:?}"));
    }
    let mut names: Vec<&str> = parts.iter().map(|(name, _, _)| *name).collect();
    names.sort_unstable();
    let found: Vec<String> = get_state_dict(&*layer).into_keys().collect();
    if names != found {
        return Err(format!("{label} has the names {found:?}, not {names:?}"));
    }
    let computed: Vec<&Tensor> = tensors.iter().collect();
    let engine = Engine::new("interp").map_err(problem)?;
    engine.realize(&computed).map_err(problem)?;
    for ((name, _, initial), tensor) in parts.iter().zip(&tensors) {
        let said = || format!("{label}: {name}, {initial:?}");
        let (dtype, is_buffer) = match initial {
            Count => (DType::I64, true),
            Buffer(_) => (DType::F32, true),
            Uniform(_) | Filled(_) => (DType::F32, false),
        };
        if tensor.dtype() != dtype || is_buffer != (tensor.requires_grad() == Some(false)) {
            let requires = tensor.requires_grad();
            return Err(format!("{}, is {tensor:?} that requires {requires:?}", said()));
        }
        let found = match initial {
            Count => tensor.item::<i64>().map(|count| vec![count as f64]),
            _ => numbers(tensor),
        };
        let found = found.map_err(problem)?;
        if !fits(*initial, &found) {
            return Err(format!("{}: {found:?}", said()));
        }
    }
    Ok(())
}

/// Returns whether numbers are the initial ones. Random numbers differ; the largest is so near the
/// bound, and the mean so near 0, that other numbers have a probability below 10^-15.
fn fits(initial: Initial, found: &[f64]) -> bool {
    let count = found.len() as f64;
    match initial {
        Count => found == [0.0],
        Filled(value) | Buffer(value) => found.iter().all(|x| *x == value),
        Uniform(bound) => {
            let largest = found.iter().map(|x| x.abs()).fold(0.0, f64::max);
            let mean = found.iter().sum::<f64>() / count;
            let is_within = largest <= bound * (1.0 + 1e-6);
            let is_random = found.iter().any(|x| *x != found[0]);
            // A share s of the bound is the largest with the probability s to the power of count.
            is_within
                && is_random
                && bound * (-37.0 / count).exp() <= largest
                && mean.abs() <= 9.0 * bound / (3.0 * count).sqrt()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_another_bound_are_noticed() {
        let numbers: Vec<f64> = (0..120).map(|at| f64::from(at % 11) / 5.0 - 1.0).collect();
        assert!(fits(Uniform(1.0), &numbers) && fits(Uniform(1.2), &numbers));
        assert!(!fits(Uniform(0.9), &numbers) && !fits(Uniform(1.5), &numbers));
        let positive: Vec<f64> = numbers.iter().map(|x| x.abs()).collect();
        assert!(!fits(Uniform(1.0), &positive));
        assert!(!fits(Uniform(1.0), &[0.5; 3]));
        assert!(fits(Filled(1.0), &[1.0; 2]) && !fits(Buffer(0.0), &[0.0, 1.0]));
    }
}
