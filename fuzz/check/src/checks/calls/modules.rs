//! Layers and their state dicts, against loops over f64.

mod norms;

use std::collections::BTreeMap;
use std::sync::PoisonError;

use gradiff::nn::{
    Conv1d, Conv2d, ConvOptions, ConvTranspose1d, ConvTranspose2d, Embedding, Function, LSTMCell,
    Linear, Module, MultiHeadAttention, load_state_dict,
};
use gradiff::{Engine, Error, Tensor};

use super::Draw;
use super::random::TURN;
use norms::{batch_norm, norm};

/// The largest relative error of layers, which compute in f32.
const TOLERANCE: f64 = 1e-4;

/// Draws a layer and its outputs.
type Layer = fn(&mut Draw) -> Result<Case, Error>;

/// The layers; several are drawn more often.
const LAYERS: [Layer; 9] =
    [linear, sequence, embedding, convolution, convolution, batch_norm, norm, cell, attention];

/// An output of a layer, with its shape and its elements.
type Output = (Tensor, Vec<usize>, Vec<f64>);

/// The outputs of a layer.
struct Case {
    label: String,
    outputs: Vec<Output>,
}

impl Case {
    fn new(label: String, output: Tensor, shape: &[usize], wanted: Vec<f64>) -> Case {
        Case { label, outputs: vec![(output, shape.to_vec(), wanted)] }
    }

    fn check(&self) -> Result<(), String> {
        let problem = |error: Error| format!("{}: {error}", self.label);
        let tensors: Vec<&Tensor> = self.outputs.iter().map(|(tensor, _, _)| tensor).collect();
        Engine::new("interp").and_then(|engine| engine.realize(&tensors)).map_err(problem)?;
        for (number, (tensor, shape, wanted)) in self.outputs.iter().enumerate() {
            let label = format!("{}, output {number}", self.label);
            if !tensor.shape().iter().map(|size| *size as usize).eq(shape.iter().copied()) {
                return Err(format!("{label} is {tensor:?}, not {shape:?}"));
            }
            let found = tensor.to_vec::<f32>().map_err(problem)?;
            let found: Vec<f64> = found.into_iter().map(f64::from).collect();
            agree(&label, &found, wanted, TOLERANCE)?;
        }
        Ok(())
    }
}

/// Draws a layer and an input, and compares the output with that of a loop.
pub(super) fn match_formulas(draw: &mut Draw) -> Result<(), String> {
    let layer = draw.pick(&LAYERS);
    layer(draw).map_err(|error| error.to_string())?.check()
}

/// Draws multiples of 1/8 from -2 to 2.
pub(super) fn eighths(draw: &mut Draw, count: usize) -> Vec<f64> {
    (0..count).map(|_| (draw.below(33) as f64 - 16.0) / 8.0).collect()
}

/// Compares numbers; the error of each may be `tolerance` times 1 plus its magnitude.
pub(super) fn agree(
    label: &str,
    found: &[f64],
    wanted: &[f64],
    tolerance: f64,
) -> Result<(), String> {
    let is_near = |(x, y): (&f64, &f64)| (x - y).abs() <= tolerance * (1.0 + y.abs());
    match found.iter().zip(wanted).position(|pair| !is_near(pair)) {
        Some(at) => Err(format!("{label}: element {at} is {}, not {}", found[at], wanted[at])),
        None if found.len() != wanted.len() => {
            Err(format!("{label}: {} elements, not {}", found.len(), wanted.len()))
        }
        None => Ok(()),
    }
}

/// A tensor of f32 of these elements.
fn tensor(shape: &[usize], values: &[f64]) -> Result<Tensor, Error> {
    let sizes: Vec<i64> = shape.iter().map(|size| *size as i64).collect();
    let elements: Vec<f32> = values.iter().map(|value| *value as f32).collect();
    Tensor::from_slice(&sizes, &elements)
}

/// Draws a tensor of f32 together with its elements.
fn data(draw: &mut Draw, shape: &[usize]) -> Result<(Tensor, Vec<f64>), Error> {
    let values = eighths(draw, shape.iter().product());
    Ok((tensor(shape, &values)?, values))
}

/// Draws a tensor of f32 together with its elements, of which none is above 1/4.
fn small_data(draw: &mut Draw, shape: &[usize]) -> Result<(Tensor, Vec<f64>), Error> {
    let values = eighths(draw, shape.iter().product());
    let values: Vec<f64> = values.into_iter().map(|value| value / 8.0).collect();
    Ok((tensor(shape, &values)?, values))
}

/// Draws a tensor, or none, for which there are `neutral` elements.
fn optional(
    draw: &mut Draw,
    shape: &[usize],
    neutral: f64,
) -> Result<(Option<Tensor>, Vec<f64>), Error> {
    let (tensor, values) = data(draw, shape)?;
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
    let mut shape = [sizes(draw, rank), vec![inputs]].concat();
    let (x, x_values) = data(draw, &shape)?;
    let (weight, weights) = data(draw, &[outputs, inputs])?;
    let (bias, biases) = optional(draw, &[outputs], 0.0)?;
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
    let label = format!("linear {inputs} to {outputs}{bias_word}");
    Ok(Case::new(label, y, &shape, wanted))
}

/// Two linear layers with a function between them, whose tensors are loaded by name.
fn sequence(draw: &mut Draw) -> Result<Case, Error> {
    let [inputs, hidden, outputs, rows] = [(); 4].map(|()| 1 + draw.below(4));
    let zeros = |shape: &[usize]| tensor(shape, &vec![0.0; shape.iter().product()]);
    let empty = |inputs: usize, outputs: usize| -> Result<Linear, Error> {
        Ok(Linear { weight: zeros(&[outputs, inputs])?, bias: Some(zeros(&[outputs])?) })
    };
    let model = (empty(inputs, hidden)?, Function(Tensor::relu), empty(hidden, outputs)?);
    let (mut tensors, mut values) = (BTreeMap::new(), Vec::new());
    for (name, shape) in [
        ("0.weight", vec![hidden, inputs]),
        ("0.bias", vec![hidden]),
        ("2.weight", vec![outputs, hidden]),
        ("2.bias", vec![outputs]),
    ] {
        let (tensor, elements) = data(draw, &shape)?;
        tensors.insert(name.to_string(), tensor);
        values.push(elements);
    }
    load_state_dict(&model, &tensors)?;
    let (x, x_values) = data(draw, &[rows, inputs])?;
    let first = affine(&x_values, &values[0], &values[1], inputs);
    let first: Vec<f64> = first.into_iter().map(|x| x.max(0.0)).collect();
    let wanted = affine(&first, &values[2], &values[3], hidden);
    let label = format!("{inputs} to {hidden} to {outputs}");
    Ok(Case::new(label, model.forward(&x)?, &[rows, outputs], wanted))
}

/// Rows of a table; numbers of no row give zeros.
fn embedding(draw: &mut Draw) -> Result<Case, Error> {
    let (rows, size, rank) = (1 + draw.below(5), 1 + draw.below(4), draw.below(3));
    let mut shape = sizes(draw, rank);
    let (weight, table) = data(draw, &[rows, size])?;
    let count: usize = shape.iter().product();
    let numbers: Vec<i32> = (0..count).map(|_| draw.below(rows + 2) as i32 - 1).collect();
    let row = |number: &i32| {
        let found = usize::try_from(*number).ok().and_then(|row| table.chunks(size).nth(row));
        found.map_or_else(|| vec![0.0; size], <[f64]>::to_vec)
    };
    let wanted = numbers.iter().flat_map(row).collect();
    let axes: Vec<i64> = shape.iter().map(|size| *size as i64).collect();
    let y = Embedding { weight }.forward(&Tensor::from_slice(&axes, &numbers)?)?;
    shape.push(size);
    Ok(Case::new(format!("rows {numbers:?} of {rows} of {size}"), y, &shape, wanted))
}

/// The axes of a convolution, from large images to small ones, or of a transposed convolution,
/// from small images to large ones.
#[derive(Debug)]
struct Plane {
    images: usize,
    groups: usize,
    /// Channels and sizes of small images.
    small: [usize; 3],
    large: [usize; 3],
    kernel: [usize; 2],
    stride: [usize; 2],
    dilation: [usize; 2],
    padding: [usize; 2],
}

impl Plane {
    /// Calls `visit` with the numbers of the elements of the small image, the large image and the
    /// weight of each product.
    fn products(&self, mut visit: impl FnMut([usize; 3])) {
        let [small_channels, rows, columns] = self.small;
        let large_channels = self.large[0] / self.groups;
        let [high, wide] = self.kernel;
        let count = self.images * small_channels * rows * columns * large_channels * high * wide;
        for number in 0..count {
            let (rest, j) = (number / wide, number % wide);
            let (rest, i) = (rest / high, rest % high);
            let (small, channel) = (rest / large_channels, rest % large_channels);
            let (rest, x) = (small / columns, small % columns);
            let (rest, y) = (rest / rows, rest % rows);
            let (image, small_channel) = (rest / small_channels, rest % small_channels);
            let group = small_channel / (small_channels / self.groups);
            let position = |axis: usize, small: usize, of_kernel: usize| {
                let at = small * self.stride[axis] + of_kernel * self.dilation[axis];
                at.checked_sub(self.padding[axis]).filter(|at| *at < self.large[1 + axis])
            };
            let (Some(y), Some(x)) = (position(0, y, i), position(1, x, j)) else { continue };
            let image = image * self.large[0] + group * large_channels + channel;
            let large = (image * self.large[1] + y) * self.large[2] + x;
            let weight = ((small_channel * large_channels + channel) * high + i) * wide + j;
            visit([small, large, weight]);
        }
    }

    /// The elements of the output: the small images, or the large ones if it is transposed.
    fn outputs(
        &self,
        is_transposed: bool,
        image: &[f64],
        weights: &[f64],
        biases: &[f64],
    ) -> Vec<f64> {
        let [channels, rows, columns] = if is_transposed { self.large } else { self.small };
        let area = rows * columns;
        let bias = |at: usize| biases[at / area % channels];
        let mut outputs: Vec<f64> = (0..self.images * channels * area).map(bias).collect();
        self.products(|[small, large, weight]| match is_transposed {
            true => outputs[large] += image[small] * weights[weight],
            false => outputs[small] += image[large] * weights[weight],
        });
        outputs
    }
}

fn convolution(draw: &mut Draw) -> Result<Case, Error> {
    let is_transposed = draw.one_in(2);
    let groups = 1 + draw.below(2);
    let [small_channels, large_channels] = [(); 2].map(|()| groups * (1 + draw.below(2)));
    let [kernel, stride, dilation] = [(); 3].map(|()| [(); 2].map(|()| 1 + draw.below(3)));
    // The distance from the first to the last element of a window.
    let span = [0, 1].map(|axis| dilation[axis] * (kernel[axis] - 1));
    let padding = span.map(|span| draw.below(span / 2 + 1));
    let sizes = [(); 2].map(|()| 1 + draw.below(3));
    // Elements beyond those that windows reach.
    let added = stride.map(|stride| draw.below(stride));
    let large = [0, 1].map(|axis| {
        (sizes[axis] - 1) * stride[axis] + span[axis] + 1 + added[axis] - 2 * padding[axis]
    });
    let plane = Plane {
        images: 1 + draw.below(2),
        groups,
        small: [small_channels, sizes[0], sizes[1]],
        large: [large_channels, large[0], large[1]],
        kernel,
        stride,
        dilation,
        padding,
    };
    let (from, to) =
        if is_transposed { (plane.small, plane.large) } else { (plane.large, plane.small) };
    let image_shape = [&[plane.images][..], &from].concat();
    let (image, elements) = data(draw, &image_shape)?;
    let weight_shape = [small_channels, large_channels / groups, kernel[0], kernel[1]];
    let (weight, weights) = data(draw, &weight_shape)?;
    let (bias, biases) = optional(draw, &[to[0]], 0.0)?;
    let numbers = |numbers: [usize; 2]| numbers.map(|number| number as i64);
    let options = ConvOptions::default().stride(numbers(stride)).dilation(numbers(dilation));
    let has_bias = bias.is_some();
    let options = options.padding(numbers(padding)).groups(groups as i64).bias(has_bias);
    let (inputs, outputs) = (from[0] as i64, to[0] as i64);
    // Weights of a new layer are random numbers.
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let y = match is_transposed {
        true => {
            let options = options.output_padding(numbers(added));
            let mut layer = ConvTranspose2d::with(inputs, outputs, numbers(kernel), options)?;
            (layer.weight, layer.bias) = (weight, bias);
            layer.forward(&image)?
        }
        false => {
            let mut layer = Conv2d::with(inputs, outputs, numbers(kernel), options)?;
            (layer.weight, layer.bias) = (weight, bias);
            layer.forward(&image)?
        }
    };
    drop(turn);
    let wanted = plane.outputs(is_transposed, &elements, &weights, &biases);
    let shape = [&[plane.images][..], &to].concat();
    let label = format!("transposed: {is_transposed}, {plane:?}");
    let mut case = Case::new(label, y, &shape, wanted);
    let numbers: [&[f64]; 3] = [&elements, &weights, &biases];
    if draw.one_in(3) {
        case.outputs.push(convolution_of_rows(&plane, is_transposed, has_bias, numbers)?);
        case.label += ", also of rows";
    }
    if !is_transposed && draw.one_in(2) {
        case.outputs.push(same_convolution(&plane, has_bias, numbers)?);
        case.label += ", also with same padding";
    }
    Ok(case)
}

/// The first numbers, also as a tensor of this shape.
fn first<'a>(shape: &[usize], numbers: &'a [f64]) -> Result<(Tensor, &'a [f64]), Error> {
    let numbers = &numbers[..shape.iter().product::<usize>()];
    Ok((tensor(shape, numbers)?, numbers))
}

/// The convolution along the last axis alone, of the first elements.
fn convolution_of_rows(
    plane: &Plane,
    is_transposed: bool,
    has_bias: bool,
    [elements, weights, biases]: [&[f64]; 3],
) -> Result<Output, Error> {
    let plane = Plane {
        small: [plane.small[0], 1, plane.small[2]],
        large: [plane.large[0], 1, plane.large[2]],
        kernel: [1, plane.kernel[1]],
        stride: [1, plane.stride[1]],
        dilation: [1, plane.dilation[1]],
        padding: [0, plane.padding[1]],
        ..*plane
    };
    let (from, to) =
        if is_transposed { (plane.small, plane.large) } else { (plane.large, plane.small) };
    let [kernel, stride, dilation, padding] =
        [plane.kernel, plane.stride, plane.dilation, plane.padding].map(|sizes| sizes[1]);
    let (image, elements) = first(&[plane.images, from[0], from[2]], elements)?;
    let weight_shape = [plane.small[0], plane.large[0] / plane.groups, kernel];
    let (weight, weights) = first(&weight_shape, weights)?;
    let bias = has_bias.then(|| tensor(&[to[0]], biases)).transpose()?;
    let options = ConvOptions::default().stride(stride as i64).dilation(dilation as i64);
    let options = options.padding(padding as i64).groups(plane.groups as i64).bias(has_bias);
    let (inputs, outputs, size) = (from[0] as i64, to[0] as i64, kernel as i64);
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let y = match is_transposed {
        true => {
            let reached = (from[2] - 1) * stride + dilation * (kernel - 1) + 1;
            let options = options.output_padding((to[2] + 2 * padding - reached) as i64);
            let mut layer = ConvTranspose1d::with(inputs, outputs, size, options)?;
            (layer.weight, layer.bias) = (weight, bias);
            layer.forward(&image)?
        }
        false => {
            let mut layer = Conv1d::with(inputs, outputs, size, options)?;
            (layer.weight, layer.bias) = (weight, bias);
            layer.forward(&image)?
        }
    };
    drop(turn);
    let wanted = plane.outputs(is_transposed, elements, weights, biases);
    Ok((y, vec![plane.images, to[0], to[2]], wanted))
}

/// The convolution whose output has the size of the image. Of an odd number of zeros, the larger
/// part is at the end.
fn same_convolution(
    plane: &Plane,
    has_bias: bool,
    [elements, weights, biases]: [&[f64]; 3],
) -> Result<Output, Error> {
    let [channels, rows, columns] = plane.large;
    let plane = Plane {
        small: [plane.small[0], rows, columns],
        stride: [1; 2],
        padding: [0, 1].map(|axis| plane.dilation[axis] * (plane.kernel[axis] - 1) / 2),
        ..*plane
    };
    let numbers = |numbers: [usize; 2]| numbers.map(|number| number as i64);
    let options = ConvOptions::default().dilation(numbers(plane.dilation)).same_padding();
    let options = options.groups(plane.groups as i64).bias(has_bias);
    let (inputs, outputs) = (channels as i64, plane.small[0] as i64);
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut layer = Conv2d::with(inputs, outputs, numbers(plane.kernel), options)?;
    drop(turn);
    let [high, wide] = plane.kernel;
    layer.weight = tensor(&[plane.small[0], channels / plane.groups, high, wide], weights)?;
    layer.bias = has_bias.then(|| tensor(&[plane.small[0]], biases)).transpose()?;
    let y = layer.forward(&tensor(&[plane.images, channels, rows, columns], elements)?)?;
    let shape = vec![plane.images, plane.small[0], rows, columns];
    Ok((y, shape, plane.outputs(false, elements, weights, biases)))
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// The next state of a cell of a long short-term memory.
fn cell(draw: &mut Draw) -> Result<Case, Error> {
    let [rows, inputs, hidden] = [(); 3].map(|()| 1 + draw.below(3));
    let gates = 4 * hidden;
    let (weight_ih, of_input) = data(draw, &[gates, inputs])?;
    let (weight_hh, of_hidden) = data(draw, &[gates, hidden])?;
    let (bias_ih, mut input_biases) = optional(draw, &[gates], 0.0)?;
    let (bias_hh, mut hidden_biases) = optional(draw, &[gates], 0.0)?;
    let (x, x_values) = data(draw, &[rows, inputs])?;
    let ((h, mut h_values), (c, mut c_values)) =
        (data(draw, &[rows, hidden])?, data(draw, &[rows, hidden])?);
    let has_state = draw.one_in(2);
    if !has_state {
        h_values.fill(0.0);
        c_values.fill(0.0);
    }
    let mut layer = LSTMCell { weight_ih, weight_hh, bias_ih, bias_hh };
    let is_unbiased = draw.one_in(4);
    if is_unbiased {
        layer = layer.without_bias();
        input_biases.fill(0.0);
        hidden_biases.fill(0.0);
    }
    let (h, c) = layer.forward(&x, has_state.then_some((&h, &c)))?;
    let sums = affine(&x_values, &of_input, &input_biases, inputs);
    let hidden_sums = affine(&h_values, &of_hidden, &hidden_biases, hidden);
    let sums: Vec<f64> = sums.iter().zip(&hidden_sums).map(|(x, y)| x + y).collect();
    let (mut next_h, mut next_c) = (Vec::new(), Vec::new());
    for (at, c) in c_values.iter().enumerate() {
        let gate = |number: usize| sums[at / hidden * gates + number * hidden + at % hidden];
        let c = sigmoid(gate(1)) * c + sigmoid(gate(0)) * gate(2).tanh();
        next_h.push(sigmoid(gate(3)) * c.tanh());
        next_c.push(c);
    }
    let shape = vec![rows, hidden];
    let mut label = format!("cell of {inputs} and {hidden}, with a state: {has_state}");
    if is_unbiased {
        label += ", without biases";
    }
    Ok(Case { label, outputs: vec![(h, shape.clone(), next_h), (c, shape, next_c)] })
}

/// Attention of the rows of images, before the last projection. All are projected to a query, a key
/// and a value each: `length` rows of an image are queries, `count` rows are keys and values. The
/// sum `added` of an image's head, query and key is part of the score.
fn attended(
    [length, count, size, depth]: [usize; 4],
    [queries, keys, values]: [&[f64]; 3],
    added: &dyn Fn([usize; 3]) -> f64,
) -> Vec<f64> {
    let part = |rows: &[f64], row: usize, kind: usize, column: usize| {
        rows[(row * 3 + kind) * size + column]
    };
    let row_count = queries.len() / (3 * size);
    let mut mixed: Vec<f64> = Vec::with_capacity(row_count * size);
    for (row, column) in (0..row_count).flat_map(|row| (0..size).map(move |column| (row, column))) {
        let (head, first_key) = (column / depth, row / length * count);
        let score = |key: usize| {
            let products = (head * depth..(head + 1) * depth)
                .map(|at| part(queries, row, 0, at) * part(keys, first_key + key, 1, at));
            let scaled = products.sum::<f64>() / (depth as f64).sqrt();
            (scaled + added([head, row % length, key])).exp()
        };
        let total: f64 = (0..count).map(score).sum();
        let share = |key: usize| score(key) / total * part(values, first_key + key, 2, column);
        mixed.push((0..count).map(share).sum());
    }
    mixed
}

/// Summands of scores that a drawn mask stands for, of each head, query and key, and the mask. No
/// query is without its first key.
fn mask(draw: &mut Draw, shape: [usize; 3]) -> Result<(Option<Tensor>, Vec<f64>), Error> {
    let count: usize = shape.iter().product();
    match draw.below(3) {
        0 => Ok((None, vec![0.0; count])),
        1 => {
            let (mask, values) = data(draw, &shape)?;
            Ok((Some(mask), values))
        }
        _ => {
            let seen: Vec<bool> =
                (0..count).map(|at| at % shape[2] == 0 || !draw.one_in(3)).collect();
            let mask = Tensor::from_slice(&shape.map(|size| size as i64), &seen)?;
            let added = |seen: &bool| if *seen { 0.0 } else { f64::NEG_INFINITY };
            Ok((Some(mask), seen.iter().map(added).collect()))
        }
    }
}

/// Self-attention with several heads, and attention to keys and values of their own. Its scores are
/// small, since their errors are relative errors of their powers.
fn attention(draw: &mut Draw) -> Result<Case, Error> {
    let [heads, depth, images] = [(); 3].map(|()| 1 + draw.below(2));
    let (size, length) = (heads * depth, 1 + draw.below(4));
    let is_causal = draw.one_in(2);
    let (in_proj_weight, weights) = data(draw, &[3 * size, size])?;
    let (in_proj_bias, mut biases) = small_data(draw, &[3 * size])?;
    let has_bias = draw.one_in(2);
    if !has_bias {
        biases.fill(0.0);
    }
    let (weight, out_weights) = data(draw, &[size, size])?;
    let (bias, mut out_biases) = optional(draw, &[size], 0.0)?;
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut layer = MultiHeadAttention::new(size as i64, heads as i64)?.causal(is_causal);
    drop(turn);
    (layer.in_proj_weight, layer.in_proj_bias) = (in_proj_weight, has_bias.then_some(in_proj_bias));
    layer.out_proj = Linear { weight, bias };
    let shape = [images, length, size];
    let (x, x_values) = small_data(draw, &shape)?;
    let is_unbiased = draw.one_in(4);
    if is_unbiased {
        layer = layer.without_bias();
        biases.fill(0.0);
        out_biases.fill(0.0);
    }
    let hidden = |query: usize, key: usize| match is_causal && query < key {
        true => f64::NEG_INFINITY,
        false => 0.0,
    };
    let projected = |x: &[f64]| affine(x, &weights, &biases, size);
    let output = |mixed: &[f64]| affine(mixed, &out_weights, &out_biases, size);
    let rows = projected(&x_values);
    let sizes = [length, length, size, depth];
    let mixed = attended(sizes, [&rows[..]; 3], &|[_, query, key]| hidden(query, key));
    let mut label = format!("attention of {shape:?}, {heads} heads, causal: {is_causal}");
    if is_unbiased {
        label += ", without biases";
    }
    let mut case = Case::new(label, layer.forward(&x)?, &shape, output(&mixed));
    if draw.one_in(2) {
        let count = 1 + draw.below(4);
        let (keys, key_values) = small_data(draw, &[images, count, size])?;
        let (values, value_values) = small_data(draw, &[images, count, size])?;
        let (mask, added) = mask(draw, [heads, length, count])?;
        let y = layer.attend(&x, &keys, &values, mask.as_ref())?;
        let added = |[head, query, key]: [usize; 3]| {
            added[(head * length + query) * count + key] + hidden(query, key)
        };
        let parts = [&rows, &projected(&key_values), &projected(&value_values)];
        let sizes = [length, count, size, depth];
        let mixed = attended(sizes, parts.map(|part| &part[..]), &added);
        case.outputs.push((y, shape.to_vec(), output(&mixed)));
        case.label += &format!(", also to {count} keys, with a mask: {}", mask.is_some());
    }
    Ok(case)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_match_formulas() {
        for seed in 0..150 {
            let checked = match_formulas(&mut Draw::new(seed));
            checked.unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        }
    }

    #[test]
    fn layers_are_drawn_with_each_option() {
        let options: [(Layer, &str); 9] = [
            (linear, "without a bias"),
            (convolution, "also of rows"),
            (convolution, "also with same padding"),
            (cell, "without biases"),
            (attention, "without biases"),
            (attention, "with a mask: true"),
            (batch_norm, "without statistics"),
            (batch_norm, "without parameters"),
            (norm, "without parameters"),
        ];
        for (layer, option) in options {
            let label = |seed| layer(&mut Draw::new(seed)).expect("it is legal").label;
            assert!((0..40).any(|seed| label(seed).contains(option)), "{option}");
        }
    }

    #[test]
    fn masks_hide_keys_and_change_scores() {
        // A head of depth 1: one query, two keys.
        let (queries, keys) = ([1.0, 0.0, 0.0], [0.0, 1.0, 10.0, 0.0, 1.0, 30.0]);
        let output = |mask: [f64; 2]| {
            attended([1, 2, 1, 1], [&queries, &keys, &keys], &|[_, _, key]| mask[key])[0]
        };
        assert_eq!(output([0.0, 0.0]), 20.0);
        assert_eq!(output([0.0, f64::NEG_INFINITY]), 10.0);
        assert!((output([0.0, 3f64.ln()]) - 25.0).abs() < 1e-9);
    }

    #[test]
    fn wrong_outputs_are_noticed() {
        let case = |element: f64, shape: &[usize]| {
            let output = tensor(&[2], &[1.0, 2.0]).expect("a tensor");
            Case::new("x".to_string(), output, shape, vec![1.0, element])
        };
        assert_eq!(case(2.0, &[2]).check(), Ok(()));
        assert!(case(2.001, &[2]).check().is_err() && case(2.0, &[1, 2]).check().is_err());
        assert!(agree("x", &[f64::NAN], &[0.0], 1.0).is_err());
        assert!(agree("x", &[0.0], &[0.0, 1.0], 1.0).is_err());
    }
}
