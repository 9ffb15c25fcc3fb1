//! Layers against plain loops in f64, optimisers and schedules against their formulas, and state
//! dicts.

// Clippy does not recognise helpers of integration tests as test code.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use gradiff::files::{load_safetensors, save_safetensors};
use gradiff::nn::optim::{
    Adam, AdamW, CosineAnnealingLR, LAMB, LARS, LRScheduler, Metric, MultiStepLR, Muon, OneCycleLR,
    Optimizer, OptimizerGroup, RMSprop, ReduceLROnPlateau, SGD, StepLR,
};
use gradiff::nn::{
    BatchNorm, Conv1d, Conv2d, ConvOptions, ConvTranspose1d, ConvTranspose2d, Dropout, Embedding,
    Function, GRUCell, GroupNorm, InstanceNorm, LSTMCell, LayerNorm, LayerNorm2d, Linear, Module,
    MultiHeadAttention, RMSNorm, State, Visitor, clip_grad_norm, clip_grad_value, get_parameters,
    get_state_dict, load_state_dict, load_state_dict_partial, state,
};
use gradiff::{DType, Error, Tensor};

/// Numbers between -1 and 1 that look random.
fn numbers(count: usize, seed: usize) -> Vec<f64> {
    (0..count).map(|i| ((i * 7919 + seed * 104_729 + 13) % 1009) as f64 / 504.5 - 1.0).collect()
}

fn data(shape: &[i64], elements: &[f64]) -> Tensor {
    let elements: Vec<f32> = elements.iter().map(|x| *x as f32).collect();
    Tensor::from_slice(shape, &elements).unwrap()
}

/// A tensor of this shape and its elements, which f32 has.
fn input(shape: &[i64], seed: usize) -> (Tensor, Vec<f64>) {
    let elements = numbers(shape.iter().product::<i64>() as usize, seed);
    let x = data(shape, &elements);
    let elements = floats(&x);
    (x, elements)
}

fn floats(x: &Tensor) -> Vec<f64> {
    x.cast(DType::F64).unwrap().to_vec().unwrap()
}

fn optional(x: &Option<Tensor>) -> Vec<f64> {
    floats(x.as_ref().unwrap())
}

fn assert_close(name: &str, found: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len(), "{name}");
    for (index, (x, y)) in found.iter().zip(expected).enumerate() {
        let error = (x - y).abs();
        assert!(error <= tolerance * (1.0 + y.abs()), "{name}, {index}: {x}, expected {y}");
    }
}

fn check(name: &str, found: &Tensor, shape: &[i64], expected: &[f64]) {
    assert_eq!(found.shape(), shape, "{name}");
    assert_close(name, &floats(found), expected, 2e-5);
}

/// The product of rows [n, k] with the rows of a weight [m, k], plus a bias.
fn product(x: &[f64], weight: &[f64], bias: &[f64], k: usize) -> Vec<f64> {
    let dot = |row: &[f64], column: &[f64]| row.iter().zip(column).map(|(a, b)| a * b).sum::<f64>();
    let row = |row: &[f64]| -> Vec<f64> {
        weight.chunks(k).zip(bias).map(|(column, bias)| dot(row, column) + bias).collect()
    };
    x.chunks(k).flat_map(row).collect()
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

#[test]
fn linear_is_a_product_and_a_bias() {
    let (x, elements) = input(&[2, 3, 5], 1);
    let layer = Linear::new(5, 4).unwrap();
    let (weight, bias) = (floats(&layer.weight), optional(&layer.bias));
    let y = layer.forward(&x).unwrap();
    check("linear", &y, &[2, 3, 4], &product(&elements, &weight, &bias, 5));
    let layer = Linear::without_bias(5, 4).unwrap();
    let weight = floats(&layer.weight);
    let y = layer.forward(&x).unwrap();
    check("no bias", &y, &[2, 3, 4], &product(&elements, &weight, &[0.0; 4], 5));
}

/// A convolution along two axes.
struct Plane {
    channels: usize,
    out: usize,
    kernel: [usize; 2],
    stride: [usize; 2],
    dilation: [usize; 2],
    padding: [usize; 2],
    groups: usize,
}

impl Plane {
    /// Calls `visit` with the indices of each output, input and weight whose product is added, of
    /// a convolution of images [2, channels, ..] to [2, out, ..].
    fn products(&self, size: [usize; 2], result: [usize; 2], mut visit: impl FnMut([usize; 3])) {
        let inner = self.channels / self.groups;
        for n in 0..2 {
            for k in 0..self.out {
                let group = k / (self.out / self.groups);
                for (y, x) in (0..result[0]).flat_map(|y| (0..result[1]).map(move |x| (y, x))) {
                    for c in 0..inner {
                        for (i, j) in (0..self.kernel[0])
                            .flat_map(|i| (0..self.kernel[1]).map(move |j| (i, j)))
                        {
                            let row = y * self.stride[0] + i * self.dilation[0];
                            let column = x * self.stride[1] + j * self.dilation[1];
                            let (Some(row), Some(column)) = (
                                row.checked_sub(self.padding[0]),
                                column.checked_sub(self.padding[1]),
                            ) else {
                                continue;
                            };
                            if row < size[0] && column < size[1] {
                                let channel = group * inner + c;
                                let image = n * self.channels + channel;
                                visit([
                                    ((n * self.out + k) * result[0] + y) * result[1] + x,
                                    (image * size[0] + row) * size[1] + column,
                                    ((k * inner + c) * self.kernel[0] + i) * self.kernel[1] + j,
                                ]);
                            }
                        }
                    }
                }
            }
        }
    }

    fn options(&self) -> ConvOptions {
        let list = |numbers: [usize; 2]| numbers.map(|number| number as i64);
        let options = ConvOptions::default().stride(list(self.stride));
        let options = options.dilation(list(self.dilation)).groups(self.groups as i64);
        options.padding(list(self.padding))
    }
}

/// Adds the bias of each channel to images [2, channels, size].
fn with_bias(images: &mut [f64], bias: &[f64]) {
    let size = images.len() / 2 / bias.len();
    for (index, element) in images.iter_mut().enumerate() {
        *element += bias[index / size % bias.len()];
    }
}

#[test]
fn convolutions_add_the_products_of_each_window() {
    let plane = Plane {
        channels: 4,
        out: 6,
        kernel: [3, 2],
        stride: [2, 1],
        dilation: [1, 2],
        padding: [1, 2],
        groups: 2,
    };
    let (x, elements) = input(&[2, 4, 7, 5], 2);
    let layer = Conv2d::with(4, 6, [3, 2], plane.options()).unwrap();
    let weight = floats(&layer.weight);
    let mut expected = vec![0.0; 2 * 6 * 4 * 7];
    plane.products([7, 5], [4, 7], |[to, from, factor]| {
        expected[to] += elements[from] * weight[factor];
    });
    with_bias(&mut expected, &optional(&layer.bias));
    check("conv2d", &layer.forward(&x).unwrap(), &[2, 6, 4, 7], &expected);

    let line = Plane { kernel: [1, 4], stride: [1, 1], padding: [0, 3], groups: 1, ..plane };
    let (x, elements) = input(&[2, 4, 9], 3);
    let options = ConvOptions::default().same_padding().dilation(2).bias(false);
    let layer = Conv1d::with(4, 6, 4, options).unwrap();
    let weight = floats(&layer.weight);
    let mut expected = vec![0.0; 2 * 6 * 9];
    line.products([1, 9], [1, 9], |[to, from, factor]| {
        expected[to] += elements[from] * weight[factor];
    });
    check("conv1d", &layer.forward(&x).unwrap(), &[2, 6, 9], &expected);
}

#[test]
fn transposed_convolutions_spread_each_element() {
    // Roles of input and output are exchanged: a convolution from 6 to 4 channels.
    let plane = Plane {
        channels: 6,
        out: 4,
        kernel: [3, 2],
        stride: [2, 3],
        dilation: [1, 1],
        padding: [1, 0],
        groups: 2,
    };
    let (x, elements) = input(&[2, 4, 3, 2], 4);
    let options = plane.options().output_padding([1, 0]);
    let layer = ConvTranspose2d::with(4, 6, [3, 2], options).unwrap();
    let weight = floats(&layer.weight);
    let mut expected = vec![0.0; 2 * 6 * 6 * 5];
    plane.products([6, 5], [3, 2], |[from, to, factor]| {
        expected[to] += elements[from] * weight[factor];
    });
    with_bias(&mut expected, &optional(&layer.bias));
    check("conv_transpose2d", &layer.forward(&x).unwrap(), &[2, 6, 6, 5], &expected);

    let (x, elements) = input(&[2, 1, 4], 5);
    let layer = ConvTranspose1d::new(1, 1, 3).unwrap();
    let (weight, bias) = (floats(&layer.weight), optional(&layer.bias));
    let mut expected = vec![bias[0]; 12];
    for (index, element) in elements.iter().enumerate() {
        for (offset, factor) in weight.iter().enumerate() {
            expected[index / 4 * 6 + index % 4 + offset] += element * factor;
        }
    }
    check("conv_transpose1d", &layer.forward(&x).unwrap(), &[2, 1, 6], &expected);
}

/// Normalizes the elements with the same key.
fn normalized(x: &[f64], eps: f64, key: impl Fn(usize) -> usize) -> Vec<f64> {
    let mut groups: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    x.iter().enumerate().for_each(|(i, x)| groups.entry(key(i)).or_default().push(*x));
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let normalize = |(i, x): (usize, &f64)| {
        let values = &groups[&key(i)];
        let centre = mean(values);
        let squares: Vec<f64> = values.iter().map(|x| (x - centre).powi(2)).collect();
        (x - centre) / (mean(&squares) + eps).sqrt()
    };
    x.iter().enumerate().map(normalize).collect()
}

#[test]
fn norms_have_mean_zero_and_variance_one() {
    // [2, 4, 3, 2]: 24 elements of an image, 6 of a channel.
    let shape = [2, 4, 3, 2];
    let (x, elements) = input(&shape, 6);
    let (weight, w) = input(&[4], 7);
    let (bias, b) = input(&[4], 8);
    let affine = |x: Vec<f64>| -> Vec<f64> {
        let scaled = |(i, x): (usize, f64)| x * w[i / 6 % 4] + b[i / 6 % 4];
        x.into_iter().enumerate().map(scaled).collect()
    };
    let parts = || (Some(weight.clone()), Some(bias.clone()));
    let mut norm = GroupNorm::new(2, 4).unwrap().eps(0.01);
    (norm.weight, norm.bias) = parts();
    let expected = affine(normalized(&elements, 0.01, |i| i / 12));
    check("group", &norm.forward(&x).unwrap(), &shape, &expected);
    let mut norm = InstanceNorm::new(4).unwrap();
    (norm.weight, norm.bias) = parts();
    let expected = affine(normalized(&elements, 1e-5, |i| i / 6));
    check("instance", &norm.forward(&x).unwrap(), &shape, &expected);
    let mut norm = LayerNorm2d::new(4).unwrap();
    (norm.0.weight, norm.0.bias) = parts();
    let expected = affine(normalized(&elements, 1e-5, |i| i / 24 * 6 + i % 6));
    check("layer 2d", &norm.forward(&x).unwrap(), &shape, &expected);

    let norm = LayerNorm::new([3, 2]).unwrap().without_affine();
    let expected = normalized(&elements, 1e-5, |i| i / 6);
    check("layer", &norm.forward(&x).unwrap(), &shape, &expected);
    let mut norm = LayerNorm::new(2).unwrap();
    (norm.weight, norm.bias) = (Some(data(&[2], &[2.0, 3.0])), Some(data(&[2], &[0.5, -0.5])));
    let expected = normalized(&elements, 1e-5, |i| i / 2);
    let expected: Vec<f64> = expected
        .iter()
        .enumerate()
        .map(|(i, x)| if i % 2 == 0 { x * 2.0 + 0.5 } else { x * 3.0 - 0.5 })
        .collect();
    check("layer, affine", &norm.forward(&x).unwrap(), &shape, &expected);

    let mut norm = RMSNorm::new(2).unwrap();
    norm.weight = data(&[2], &[2.0, 3.0]);
    let row = |row: &[f64]| {
        let root = ((row[0].powi(2) + row[1].powi(2)) / 2.0 + 1e-6).sqrt();
        [row[0] / root * 2.0, row[1] / root * 3.0]
    };
    let expected: Vec<f64> = elements.chunks(2).flat_map(row).collect();
    check("rms", &norm.forward(&x).unwrap(), &shape, &expected);
}

#[test]
fn batch_norm_tracks_statistics_while_it_trains() {
    for shape in [vec![5, 3], vec![2, 3, 4], vec![2, 3, 2, 2], vec![2, 3, 2, 1, 2]] {
        let inner: usize = shape[2..].iter().product::<i64>() as usize;
        let channel = |i: usize| i / inner % 3;
        let mut norm = BatchNorm::new(3).unwrap().momentum(0.25);
        let (weight, bias) = ([0.5, 2.0, -1.0], [1.0, 0.0, 3.0]);
        norm.weight = Some(data(&[3], &weight));
        norm.bias = Some(data(&[3], &bias));
        let (mut mean, mut variance) = ([0.0; 3], [1.0; 3]);
        let count = (shape[0] as usize * inner) as f64;
        for seed in 0..2 {
            let (x, elements) = input(&shape, 10 + seed);
            let _training = Tensor::train(true);
            let y = norm.forward(&x).unwrap();
            let expected = normalized(&elements, 1e-5, channel);
            let affine = |(i, x): (usize, &f64)| x * weight[channel(i)] + bias[channel(i)];
            let expected: Vec<f64> = expected.iter().enumerate().map(affine).collect();
            check("batch", &y, &shape, &expected);
            for c in 0..3 {
                let of_channel = |(i, x): (usize, &f64)| (channel(i) == c).then_some(*x);
                let values: Vec<f64> = elements.iter().enumerate().filter_map(of_channel).collect();
                let centre = values.iter().sum::<f64>() / count;
                let squares: f64 = values.iter().map(|x| (x - centre).powi(2)).sum();
                mean[c] = 0.75 * mean[c] + 0.25 * centre;
                variance[c] = 0.75 * variance[c] + 0.25 * squares / (count - 1.0);
            }
        }
        assert_close("mean", &optional(&norm.running_mean), &mean, 1e-5);
        assert_close("variance", &optional(&norm.running_var), &variance, 1e-5);
        assert_eq!(norm.num_batches_tracked.to_vec::<i64>().unwrap(), [2]);
        let (x, elements) = input(&shape, 12);
        let fixed = |(i, x): (usize, &f64)| {
            let c = channel(i);
            (x - mean[c]) / (variance[c] + 1e-5).sqrt() * weight[c] + bias[c]
        };
        let expected: Vec<f64> = elements.iter().enumerate().map(fixed).collect();
        check("fixed", &norm.forward(&x).unwrap(), &shape, &expected);
        assert_eq!(norm.num_batches_tracked.to_vec::<i64>().unwrap(), [2]);
        let plain = norm.without_running_stats().without_affine();
        let expected = normalized(&elements, 1e-5, channel);
        check("plain", &plain.forward(&x).unwrap(), &shape, &expected);
    }
}

#[test]
fn batch_norm_of_no_elements_leaves_the_statistics() {
    let norm = BatchNorm::new(2).unwrap();
    let _training = Tensor::train(true);
    for shape in [[0, 2, 3], [2, 2, 0]] {
        let y = norm.forward(&Tensor::zeros(DType::F32, &shape).unwrap()).unwrap();
        assert_eq!(y.shape(), shape);
    }
    assert_eq!(optional(&norm.running_mean), [0.0; 2]);
    assert_eq!(optional(&norm.running_var), [1.0; 2]);
    assert_eq!(norm.num_batches_tracked.to_text().unwrap(), "[2]");
}

#[test]
fn batch_norm_computes_statistics_that_no_optimiser_has() {
    let norm = BatchNorm::new(1).unwrap().momentum(0.5);
    let x = data(&[2, 1], &[1.0, 5.0]);
    let _training = Tensor::train(true);
    let (mut mean, mut sizes) = (0.0, Vec::new());
    for _ in 0..200 {
        norm.forward(&x).unwrap();
        mean = 0.5 * mean + 1.5;
        sizes.push(norm.running_mean.as_ref().unwrap().uop().order().len());
    }
    let largest = |sizes: &[usize]| *sizes.iter().max().unwrap();
    assert!(largest(&sizes) < 2 * largest(&sizes[..40]), "{sizes:?}");
    assert_close("mean", &optional(&norm.running_mean), &[mean], 1e-6);
    assert_eq!(norm.num_batches_tracked.to_text().unwrap(), "[200]");
}

#[test]
fn embeddings_are_rows() {
    let layer = Embedding::new(4, 3).unwrap();
    let weight = floats(&layer.weight);
    let numbers = Tensor::from_slice(&[2, 3], &[3i64, 0, 3, 1, -1, 4]).unwrap();
    let row = |number: usize| weight[3 * number..3 * number + 3].to_vec();
    let expected = [row(3), row(0), row(3), row(1), vec![0.0; 6]].concat();
    check("embedding", &layer.forward(&numbers).unwrap(), &[2, 3, 3], &expected);
}

#[test]
fn lstm_cells_gate_their_state() {
    let cell = LSTMCell::new(3, 2).unwrap();
    let mut cell = LSTMCell { bias_ih: Some(input(&[8], 20).0), ..cell };
    cell.bias_hh = Some(input(&[8], 21).0);
    let (mut h, mut c): (Vec<f64>, Vec<f64>) = (vec![0.0; 4], vec![0.0; 4]);
    let mut state: Option<(Tensor, Tensor)> = None;
    for seed in 0..3 {
        let (x, elements) = input(&[2, 3], 22 + seed);
        let of_input = product(&elements, &floats(&cell.weight_ih), &optional(&cell.bias_ih), 3);
        let of_hidden = product(&h, &floats(&cell.weight_hh), &optional(&cell.bias_hh), 2);
        for (row, unit) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let gate = |number: usize| {
                let index = row * 8 + number * 2 + unit;
                of_input[index] + of_hidden[index]
            };
            let index = row * 2 + unit;
            c[index] = sigmoid(gate(1)) * c[index] + sigmoid(gate(0)) * gate(2).tanh();
            h[index] = sigmoid(gate(3)) * c[index].tanh();
        }
        let before = state.as_ref().map(|(h, c)| (h, c));
        let after = cell.forward(&x, before).unwrap();
        check("h", &after.0, &[2, 2], &h);
        check("c", &after.1, &[2, 2], &c);
        state = Some(after);
    }
}

#[test]
fn gru_cells_gate_their_state() {
    let cell = GRUCell::new(3, 2).unwrap();
    let names: Vec<String> = get_state_dict(&cell).into_keys().collect();
    assert_eq!(names, ["bias_hh", "bias_ih", "weight_hh", "weight_ih"]);
    let biases = (Some(input(&[6], 24).0), Some(input(&[6], 25).0));
    let cell = GRUCell { bias_ih: biases.0, bias_hh: biases.1, ..cell };
    let mut h: Vec<f64> = vec![0.0; 4];
    let mut state: Option<Tensor> = None;
    for seed in 0..3 {
        let (x, elements) = input(&[2, 3], 26 + seed);
        let of_input = product(&elements, &floats(&cell.weight_ih), &optional(&cell.bias_ih), 3);
        let of_hidden = product(&h, &floats(&cell.weight_hh), &optional(&cell.bias_hh), 2);
        for (row, unit) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let index = |number: usize| row * 6 + number * 2 + unit;
            let gate = |number: usize| sigmoid(of_input[index(number)] + of_hidden[index(number)]);
            let (reset, update) = (gate(0), gate(1));
            let candidate = (of_input[index(2)] + reset * of_hidden[index(2)]).tanh();
            let h = &mut h[row * 2 + unit];
            *h = (1.0 - update) * candidate + update * *h;
        }
        let after = cell.forward(&x, state.as_ref()).unwrap();
        check("h", &after, &[2, 2], &h);
        state = Some(after);
    }
    let (x, _) = input(&[2, 3], 29);
    let error = cell.forward(&x, Some(&x)).unwrap_err().to_string();
    assert!(error.contains("must be [2, 2]"), "{error}");
}

/// Outputs and gradients of PyTorch's `nn.GRUCell(1, 1)` with the weights 1, 2, 3 and 4, 5, 6, the
/// biases 0.1, 0.2, 0.3 and 0.4, 0.5, 0.6, the input 0.5 and the state -0.25.
#[test]
fn gru_cells_agree_with_pytorch() {
    let column = |elements: [f64; 3]| data(&[3, 1], &elements);
    let cell = GRUCell {
        weight_ih: column([1.0, 2.0, 3.0]),
        weight_hh: column([4.0, 5.0, 6.0]),
        bias_ih: Some(data(&[3], &[0.1, 0.2, 0.3])),
        bias_hh: Some(data(&[3], &[0.4, 0.5, 0.6])),
    };
    let (x, h) = (data(&[1, 1], &[0.5]), data(&[1, 1], &[-0.25]));
    x.requires_grad_(true).unwrap();
    h.requires_grad_(true).unwrap();
    let next = cell.forward(&x, Some(&h)).unwrap();
    next.sum(..).unwrap().backward().unwrap();
    let found = [next, x.grad().unwrap(), h.grad().unwrap()].map(|x| floats(&x)[0]);
    assert_close("h, dx, dh", &found, &[0.187_662_25, -0.279_481_79, -0.532_637_06], 5e-6);
}

#[test]
fn dropout_is_a_module_that_trains() {
    let layer = Dropout::new(0.25).unwrap();
    assert!(get_parameters(&layer).is_empty());
    let (x, _) = input(&[1000], 34);
    let x = x.add(2).unwrap();
    let elements = floats(&x);
    assert_eq!(floats(&layer.forward(&x).unwrap()), elements);
    let _training = Tensor::train(true);
    let found = floats(&layer.forward(&x).unwrap());
    // That all of 1000 are kept, or fewer than 500, has a probability below 10^-50.
    let kept = found.iter().filter(|x| **x != 0.0).count();
    assert!((500..1000).contains(&kept), "{kept}");
    let expected = found.iter().zip(&elements);
    let expected = expected.map(|(found, x)| if *found == 0.0 { 0.0 } else { x / 0.75 });
    assert_close("dropout", &found, &expected.collect::<Vec<_>>(), 1e-6);
    for p in [-0.5, 1.5, f64::NAN] {
        let error = Dropout::new(p).unwrap_err().to_string();
        assert!(error.contains(&format!("probability {p}")), "{error}");
    }
}

#[test]
fn attention_mixes_the_values_that_a_query_sees() {
    let (size, heads, n, l, s) = (4usize, 2usize, 2usize, 3usize, 3usize);
    let mut layer = MultiHeadAttention::new(4, 2).unwrap();
    layer.in_proj_bias = Some(input(&[12], 30).0);
    let (queries, q) = input(&[2, 3, 4], 31);
    let (keys, k) = input(&[2, 3, 4], 32);
    let (values, v) = input(&[2, 3, 4], 33);
    let (weight, bias) = (floats(&layer.in_proj_weight), optional(&layer.in_proj_bias));
    let part = |x: &[f64], number: usize| {
        let (rows, area) = (number * size..(number + 1) * size, size * size);
        product(x, &weight[number * area..(number + 1) * area], &bias[rows], size)
    };
    let expected = |is_seen: &dyn Fn(usize, usize) -> bool, q: &[f64], k: &[f64], v: &[f64]| {
        let (q, k, v) = (part(q, 0), part(k, 1), part(v, 2));
        let width = size / heads;
        let mut mixed = vec![0.0; n * l * size];
        for (image, head, i) in (0..n)
            .flat_map(|n| (0..heads).map(move |head| (n, head)))
            .flat_map(|(n, head)| (0..l).map(move |i| (n, head, i)))
        {
            let at = |row: usize, unit: usize| (image * l + row) * size + head * width + unit;
            let score = |j: usize| {
                let dot: f64 = (0..width).map(|u| q[at(i, u)] * k[at(j, u)]).sum();
                if is_seen(i, j) { (dot / (width as f64).sqrt()).exp() } else { 0.0 }
            };
            let total: f64 = (0..s).map(score).sum();
            for unit in 0..width {
                let sum: f64 = (0..s).map(|j| score(j) * v[at(j, unit)]).sum();
                mixed[at(i, unit)] = sum / total;
            }
        }
        let bias = optional(&layer.out_proj.bias);
        product(&mixed, &floats(&layer.out_proj.weight), &bias, size)
    };
    let shape = [2, 3, 4];
    let found = layer.attend(&queries, &keys, &values, None).unwrap();
    check("attention", &found, &shape, &expected(&|_, _| true, &q, &k, &v));
    let mask = Tensor::from_slice(&[3], &[true, false, true]).unwrap();
    let found = layer.attend(&queries, &keys, &values, Some(&mask)).unwrap();
    check("mask", &found, &shape, &expected(&|_, j| j != 1, &q, &k, &v));
    let mask = data(&[3], &[0.0, f64::NEG_INFINITY, 0.0]);
    let found = layer.attend(&queries, &keys, &values, Some(&mask)).unwrap();
    check("added mask", &found, &shape, &expected(&|_, j| j != 1, &q, &k, &v));
    let found = layer.clone().causal(true).forward(&queries).unwrap();
    check("causal", &found, &shape, &expected(&|i, j| j <= i, &q, &q, &q));
}

#[test]
fn initial_values_have_the_bounds_of_tinygrad() {
    let within = |name: &str, x: &Tensor, bound: f64| {
        let largest = floats(x).into_iter().map(f64::abs).fold(0.0, f64::max);
        assert!(largest <= bound * 1.000001, "{name}: {largest} above {bound}");
        assert!(bound * 0.8 < largest, "{name}: {largest} far below {bound}");
    };
    // Of so many numbers, drawn from a seed that is the time, the largest is near the bound: that
    // all 256 are below 0.8 of it has a probability of 10^-25.
    let layer = Linear::new(64, 256).unwrap();
    within("linear", &layer.weight, 0.125);
    within("linear", layer.bias.as_ref().unwrap(), 0.125);
    // The groups do not change the bound.
    let layer = Conv2d::with(16, 32, 2, ConvOptions::default().groups(2)).unwrap();
    assert_eq!(layer.weight.shape(), [32, 8, 2, 2]);
    within("conv", &layer.weight, 0.125);
    let layer = ConvTranspose2d::with(16, 32, 2, ConvOptions::default().groups(2)).unwrap();
    assert_eq!(layer.weight.shape(), [16, 16, 2, 2]);
    within("transposed", &layer.weight, 0.125);
    within("embedding", &Embedding::new(20, 4).unwrap().weight, 0.5);
    let cell = LSTMCell::new(8, 16).unwrap();
    within("lstm", &cell.weight_ih, 0.25);
    within("lstm", &cell.weight_hh, 0.25);
    assert_eq!(optional(&cell.bias_ih), [0.0; 64]);
}

/// The parameters that optimisers move: a matrix and a vector.
fn parameters() -> Vec<Tensor> {
    vec![input(&[2, 3], 40).0, input(&[3], 41).0]
}

/// A loss whose gradient is `p + 0.5 * p^2 - 1`, and that gradient.
fn loss(parameters: &[Tensor]) -> Tensor {
    let term = |p: &Tensor| {
        let p = p.flatten(0, -1).unwrap();
        let (square, cube) = (&p * &p, &p * &p * &p);
        (square * 0.5 + cube * (1.0 / 6.0) - &p).sum(..).unwrap()
    };
    term(&parameters[0]) + term(&parameters[1])
}

fn gradient(parameter: &[f64]) -> Vec<f64> {
    parameter.iter().map(|p| p + 0.5 * p * p - 1.0).collect()
}

/// Compares four steps of an optimiser with a rule that changes the values of each parameter; it
/// gets the number of the parameter, the values, the gradient and the number of the step, from 1.
fn check_steps<O: Optimizer>(
    name: &str,
    new: impl Fn(Vec<Tensor>) -> Result<O, Error>,
    mut rule: impl FnMut(usize, &mut Vec<f64>, &[f64], i32),
) {
    let tensors = parameters();
    let mut expected: Vec<Vec<f64>> = tensors.iter().map(floats).collect();
    let mut optimizer = new(tensors.clone()).unwrap();
    let _training = Tensor::train(true);
    for step in 1..=4 {
        optimizer.zero_grad();
        loss(&tensors).backward().unwrap();
        optimizer.step().unwrap();
        for (number, values) in expected.iter_mut().enumerate() {
            let gradient = gradient(values);
            rule(number, values, &gradient, step);
            let label = format!("{name}, step {step}, parameter {number}");
            assert_close(&label, &floats(&tensors[number]), values, 2e-5);
        }
    }
}

fn norm(x: &[f64]) -> f64 {
    x.iter().map(|x| x * x).sum::<f64>().sqrt()
}

#[test]
fn sgd_and_lars_follow_their_formulas() {
    for (momentum, decay, nesterov, classic) in [
        (0.0, 0.0, false, false),
        (0.0, 0.1, false, true),
        (0.9, 0.0, false, false),
        (0.9, 0.1, true, false),
        (0.9, 0.1, true, true),
    ] {
        for tcoef in [0.0, 0.02] {
            let name = format!("{momentum} {decay} {nesterov} {classic} {tcoef}");
            let mut b: [Vec<f64>; 2] = [vec![0.0; 6], vec![0.0; 3]];
            let rule = |number: usize, values: &mut Vec<f64>, gradient: &[f64], _: i32| {
                let (p, q) = (norm(values), norm(gradient));
                let ratio = if tcoef == 0.0 { 1.0 } else { tcoef * p / (q + decay * p) };
                let factor = ratio * 0.3;
                for (index, value) in values.iter_mut().enumerate() {
                    let mut g = gradient[index] + decay * *value;
                    if classic {
                        g *= factor;
                    }
                    if momentum != 0.0 {
                        let b = &mut b[number][index];
                        *b = momentum * *b + g;
                        g = if nesterov { g + momentum * *b } else { *b };
                    }
                    *value -= if classic { g } else { g * factor };
                }
            };
            if tcoef == 0.0 {
                let new = |tensors: Vec<Tensor>| {
                    let optimizer = SGD::new(tensors, 0.3)?.momentum(momentum);
                    Ok(optimizer.weight_decay(decay).nesterov(nesterov).classic(classic))
                };
                check_steps(&name, new, rule);
            } else {
                let new = |tensors: Vec<Tensor>| {
                    let optimizer = LARS::new(tensors, 0.3)?.tcoef(tcoef).momentum(momentum);
                    Ok(optimizer.weight_decay(decay).nesterov(nesterov).classic(classic))
                };
                check_steps(&name, new, rule);
            }
        }
    }
}

#[test]
fn adam_adamw_and_lamb_follow_their_formulas() {
    for (kind, decay, eps) in [("Adam", 0.0, 1e-8), ("AdamW", 0.1, 1e-4), ("LAMB", 0.1, 1e-6)] {
        let (b1, b2, lr) = (0.8, 0.95, 0.1);
        let mut moments = [vec![[0.0; 2]; 6], vec![[0.0; 2]; 3]];
        let rule = |number: usize, values: &mut Vec<f64>, gradient: &[f64], step: i32| {
            let update = |(index, value): (usize, &f64)| {
                let ([m, v], g) = (&mut moments[number][index], gradient[index]);
                *m = b1 * *m + (1.0 - b1) * g;
                *v = b2 * *v + (1.0 - b2) * g * g;
                let (m, v) = (*m / (1.0 - b1.powi(step)), *v / (1.0 - b2.powi(step)));
                m / (v.sqrt() + eps) + decay * value
            };
            let update: Vec<f64> = values.iter().enumerate().map(update).collect();
            let ratio = if kind == "LAMB" { norm(values) / norm(&update) } else { 1.0 };
            values.iter_mut().zip(update).for_each(|(value, u)| *value -= lr * ratio * u);
        };
        match kind {
            "Adam" => check_steps(kind, |x| Adam::new(x, lr)?.betas(b1, b2), rule),
            "AdamW" => {
                let new = |x: Vec<Tensor>| AdamW::new(x, lr)?.betas(b1, b2);
                check_steps(kind, |x| Ok(new(x)?.eps(eps).weight_decay(decay)), rule);
            }
            _ => {
                let new = |x: Vec<Tensor>| LAMB::new(x, lr)?.betas(b1, b2);
                check_steps(kind, |x| Ok(new(x)?.weight_decay(decay)), rule);
            }
        }
    }
}

#[test]
fn rmsprop_follows_its_formula() {
    for (alpha, eps, decay) in [(0.99, 1e-8, 0.0), (0.5, 1e-2, 0.1)] {
        let mut v = [vec![0.0; 6], vec![0.0; 3]];
        let rule = |number: usize, values: &mut Vec<f64>, gradient: &[f64], _: i32| {
            for (index, value) in values.iter_mut().enumerate() {
                let (g, v) = (gradient[index] + decay * *value, &mut v[number][index]);
                *v = alpha * *v + (1.0 - alpha) * g * g;
                *value -= 0.1 * g / (v.sqrt() + eps);
            }
        };
        let new = |tensors: Vec<Tensor>| {
            Ok(RMSprop::new(tensors, 0.1)?.alpha(alpha)?.eps(eps).weight_decay(decay))
        };
        check_steps(&format!("RMSprop {alpha}"), new, rule);
    }
    for alpha in [-0.1, 1.1, f64::NAN] {
        let error = RMSprop::new(parameters(), 0.1).unwrap().alpha(alpha).err().unwrap();
        assert!(error.to_string().contains(&format!("alpha {alpha}")), "{error}");
    }
}

/// Two parameters whose gradients are 3 and 4, -12.
fn with_gradients() -> [Tensor; 2] {
    let tensors = [data(&[1], &[1.0]), data(&[2], &[2.0, 5.0])];
    for (tensor, factors) in tensors.iter().zip([data(&[1], &[3.0]), data(&[2], &[4.0, -12.0])]) {
        tensor.requires_grad_(true).unwrap();
        tensor.mul(&factors).unwrap().sum(..).unwrap().backward().unwrap();
    }
    tensors
}

fn gradients(tensors: &[Tensor]) -> Vec<f64> {
    tensors.iter().flat_map(|x| floats(&x.grad().unwrap())).collect()
}

#[test]
fn gradients_are_clipped_by_their_norm() {
    let tensors = with_gradients();
    assert_eq!(clip_grad_norm(&tensors, 20.0).unwrap().item::<f32>().unwrap(), 13.0);
    assert_eq!(gradients(&tensors), [3.0, 4.0, -12.0]);
    // A tensor that is named twice counts once, and others do not count.
    let [x, y] = tensors.clone();
    let given = [x.clone(), y, x, data(&[1], &[7.0])];
    assert_eq!(clip_grad_norm(&given, 6.5).unwrap().item::<f32>().unwrap(), 13.0);
    assert_close("6.5", &gradients(&tensors), &[1.5, 2.0, -6.0], 1e-6);
    assert_close("norm", &[floats(&clip_grad_norm(&tensors, 0.0).unwrap())[0]], &[6.5], 1e-6);
    assert_eq!(gradients(&tensors), [0.0, 0.0, 0.0]);
    for max_norm in [-1.0, f64::INFINITY, f64::NAN] {
        let error = clip_grad_norm(&tensors, max_norm).unwrap_err().to_string();
        assert!(error.contains(&format!("max_norm {max_norm}")), "{error}");
    }
}

#[test]
fn gradients_are_clipped_by_value() {
    let tensors = with_gradients();
    clip_grad_value(&tensors, 3.5).unwrap();
    assert_eq!(gradients(&tensors), [3.0, 3.5, -3.5]);
    assert!(clip_grad_value(&tensors, -1.0).unwrap_err().to_string().contains("max_value -1"));
}

#[test]
fn clipping_passes_over_parameters_without_gradients() {
    let x = data(&[1], &[1.0]).requires_grad_(true).unwrap();
    for given in [&[x.clone()][..], &[]] {
        assert_eq!(clip_grad_norm(given, 1.0).unwrap().item::<f32>().unwrap(), 0.0);
        clip_grad_value(given, 1.0).unwrap();
    }
    assert!(x.grad().is_none());
    let [first, second] = with_gradients();
    assert_eq!(clip_grad_norm(&[x, first, second], 1.0).unwrap().item::<f32>().unwrap(), 13.0);
}

#[test]
fn an_infinite_norm_is_returned_and_clips_to_zeros() {
    let x = data(&[2], &[1.0, 1.0]).requires_grad_(true).unwrap();
    let factors = data(&[2], &[f64::INFINITY, 2.0]);
    x.mul(&factors).unwrap().sum(..).unwrap().backward().unwrap();
    let norm = clip_grad_norm(std::slice::from_ref(&x), 1.0).unwrap();
    assert_eq!(norm.item::<f32>().unwrap(), f32::INFINITY);
    let found = gradients(&[x]);
    assert!(found[0].is_nan() && found[1] == 0.0, "{found:?}");
}

#[test]
fn norms_of_halves_and_doubles_are_wide() {
    // The norm is 50000, and the largest number of f16 65504; a square is beyond it.
    let half = data(&[2], &[1.0, 1.0]).cast(DType::F16).unwrap().requires_grad_(true).unwrap();
    let factors = data(&[2], &[30000.0, 40000.0]).cast(DType::F16).unwrap();
    half.mul(&factors).unwrap().sum(..).unwrap().backward().unwrap();
    let norm = clip_grad_norm(std::slice::from_ref(&half), 5.0).unwrap();
    assert_close("norm", &floats(&norm), &[50000.0], 1e-3);
    assert_close("f16", &gradients(std::slice::from_ref(&half)), &[3.0, 4.0], 1e-3);
    // One more than 3 would be lost in f32.
    let double = Tensor::from_slice(&[1], &[1.0f64]).unwrap().requires_grad_(true).unwrap();
    double.mul(3.0 + 1e-9).unwrap().sum(..).unwrap().backward().unwrap();
    half.zero_grad();
    let norm = clip_grad_norm(&[half, double.clone()], 5.0).unwrap();
    assert_close("f64", &[norm.item::<f64>().unwrap()], &[3.0 + 1e-9], 1e-12);
    assert_close("f64", &gradients(&[double]), &[3.0 + 1e-9], 1e-12);
}

#[test]
fn the_next_step_uses_clipped_gradients() {
    let _training = Tensor::train(true);
    let step = |clip: &dyn Fn(&[Tensor])| {
        let tensors = with_gradients();
        let mut optimizer = SGD::new(tensors.clone(), 1.0).unwrap();
        clip(optimizer.parameters());
        optimizer.step().unwrap();
        // What backward adds afterwards is added to the clipped gradient.
        tensors[0].sum(..).unwrap().backward().unwrap();
        (tensors.iter().flat_map(floats).collect::<Vec<_>>(), gradients(&tensors)[0])
    };
    let (values, gradient) = step(&|given| drop(clip_grad_norm(given, 6.5).unwrap()));
    assert_close("norm", &values, &[-0.5, 0.0, 11.0], 1e-5);
    assert_close("norm, later", &[gradient], &[2.5], 1e-5);
    let (values, gradient) = step(&|given| clip_grad_value(given, 2.0).unwrap());
    assert_eq!((values, gradient), (vec![-1.0, 0.0, 7.0], 3.0));
}

#[test]
fn moments_of_halves_are_computed_in_f32() {
    // In f16, a thousandth of the square is 0 for the first two, and the others have no square.
    let factors = data(&[4], &[1e-3, -1e-3, 1e3, -1e3]).cast(DType::F16).unwrap();
    let _training = Tensor::train(true);
    for kind in ["Adam", "AdamW", "LAMB"] {
        let w = data(&[4], &[1.0; 4]).cast(DType::F16).unwrap();
        let mut optimizer: Box<dyn Optimizer> = match kind {
            "Adam" => Box::new(Adam::new([w.clone()], 0.1).unwrap()),
            "AdamW" => Box::new(AdamW::new([w.clone()], 0.1).unwrap().weight_decay(0.0)),
            _ => Box::new(LAMB::new([w.clone()], 0.1).unwrap()),
        };
        w.mul(&factors).unwrap().sum(..).unwrap().backward().unwrap();
        optimizer.step().unwrap();
        assert_close(kind, &floats(&w), &[0.9, 1.1, 0.9, 1.1], 2e-3);
    }
}

#[test]
fn momenta_and_decays_of_halves_are_computed_in_f32() {
    let _training = Tensor::train(true);
    let step = |optimizer: &mut dyn Optimizer, w: &Tensor, factors: &Tensor| {
        optimizer.zero_grad();
        w.mul(factors).unwrap().sum(..).unwrap().backward().unwrap();
        optimizer.step().unwrap();
    };
    let halves = |shape: &[i64], x: &[f64]| data(shape, x).cast(DType::F16).unwrap();
    // The second momentum is 76000, and the largest number of f16 65504.
    let (w, factors) = (halves(&[1], &[1.0]), halves(&[1], &[40000.0]));
    let mut optimizer = SGD::new([w.clone()], 1e-5).unwrap().momentum(0.9);
    (0..2).for_each(|_| step(&mut optimizer, &w, &factors));
    assert_close("momentum", &floats(&w), &[-0.16], 1e-3);
    // In f16, 1000 plus a decay of 0.1 is 1000.
    let (w, factors) = (halves(&[1], &[1.0]), halves(&[1], &[1000.0]));
    let mut optimizer = SGD::new([w.clone()], 1.0 / 1024.0).unwrap().weight_decay(0.1);
    step(&mut optimizer, &w, &factors);
    assert_close("decay", &floats(&w), &[1.0 - 1000.1 / 1024.0], 3e-5);
    // Nesterov's momentum is 78000.
    let (w, factors) = (halves(&[2, 2], &[0.25; 4]), [40000.0, 0.0, 0.0, 40000.0]);
    let mut optimizer = Muon::new([w.clone()], 0.1).unwrap();
    step(&mut optimizer, &w, &halves(&[2, 2], &factors));
    let found = floats(&w);
    assert!(0.1 < found[0] && found[0] < 0.2, "{found:?}");
    assert_close("Muon", &found[1..3], &[0.2475; 2], 1e-3);
}

#[test]
fn adam_of_doubles_corrects_its_bias_in_f64() {
    let _training = Tensor::train(true);
    // The difference of the second number from 1 is lost in f32.
    let cases: [(f64, f64); 2] = [(0.999, 1e-10), (0.999_999_99, 1e-7)];
    for (b2, tolerance) in cases {
        let b1 = 0.9f64;
        let mut expected = numbers(3, 43);
        let w = Tensor::from_slice(&[3], &expected).unwrap();
        let mut moments = [[0.0f64; 2]; 3];
        let mut optimizer = Adam::new([w.clone()], 0.125).unwrap().betas(b1, b2).unwrap();
        for step in 1..=3 {
            optimizer.zero_grad();
            w.square().unwrap().sum(..).unwrap().backward().unwrap();
            optimizer.step().unwrap();
            for (value, [m, v]) in expected.iter_mut().zip(&mut moments) {
                let g = 2.0 * *value;
                *m = b1 * *m + (1.0 - b1) * g;
                *v = b2 * *v + (1.0 - b2) * g * g;
                let (m, v) = (*m / (1.0 - b1.powi(step)), *v / (1.0 - b2.powi(step)));
                *value -= 0.125 * m / (v.sqrt() + 1e-8);
            }
            assert_close(&format!("{b2}, step {step}"), &floats(&w), &expected, tolerance);
        }
    }
}

#[test]
fn one_optimiser_has_parameters_of_several_dtypes() {
    let _training = Tensor::train(true);
    let single = data(&[2], &[1.0, -2.0]);
    let double = Tensor::from_slice(&[1], &[3.0f64]).unwrap();
    let mut optimizer = Adam::new([single.clone(), double.clone()], 0.5).unwrap();
    let squares = single.square().unwrap().sum(..).unwrap();
    squares.add(double.square().unwrap().sum(..).unwrap()).unwrap().backward().unwrap();
    optimizer.step().unwrap();
    assert_close("f32", &floats(&single), &[0.5, -1.5], 1e-6);
    // The learning rate is exact in f32, and eps is 1e-8 of which a sixth counts.
    assert_close("f64", &floats(&double), &[2.5 + 0.5e-8 / 6.0], 1e-12);
    let names: Vec<String> = get_state_dict(&optimizer).into_keys().collect();
    assert_eq!(names, ["b1_t", "b2_t", "lr", "m.0", "m.1", "v.0", "v.1"]);
}

#[test]
fn rates_of_doubles_are_doubles() {
    let _training = Tensor::train(true);
    let (x, y) = (Tensor::from_slice(&[1], &[1.0f64]).unwrap(), data(&[1], &[1.0]));
    let mut optimizer = SGD::new([x.clone(), y.clone()], 0.1).unwrap();
    x.sum(0).unwrap().add(y.sum(0).unwrap()).unwrap().backward().unwrap();
    optimizer.step().unwrap();
    assert_eq!((x.to_text().unwrap(), y.to_text().unwrap()), ("[0.9]".into(), "[0.9]".into()));
    assert_eq!(StepLR::new(&optimizer, 1, 0.5).unwrap().lr_after(0), 0.1);
    optimizer.set_lr(0.3).unwrap();
    assert_eq!(optimizer.lr().unwrap(), 0.3);
    optimizer.step().unwrap();
    assert_close("f64", &floats(&x), &[0.6], 1e-15);
}

#[test]
fn momenta_that_were_not_computed_are_kept() {
    let _training = Tensor::train(true);
    let new = |x: &Tensor| SGD::new([x.clone()], 0.5).unwrap().momentum(0.5);
    let backward = |x: &Tensor| x.sum(0).unwrap().backward().unwrap();
    let x = data(&[1], &[2.0]);
    let mut optimizer = new(&x);
    backward(&x);
    for expected in ["[1.5]", "[0.75]"] {
        optimizer.schedule_step().unwrap();
        assert_eq!(x.to_text().unwrap(), expected);
    }
    // The first optimiser of a group has assigned its values when the second fails.
    let (x, y) = (data(&[1], &[2.0]), data(&[1], &[1.0]));
    let mut group = OptimizerGroup::new(vec![Box::new(new(&x)), Box::new(new(&y))]);
    backward(&x);
    assert!(group.step().is_err());
    backward(&y);
    group.step().unwrap();
    assert_eq!((x.to_text().unwrap(), y.to_text().unwrap()), ("[0.75]".into(), "[0.5]".into()));
    // A constant that is loaded is a momentum like any.
    let x = data(&[1], &[2.0]);
    let mut optimizer = new(&x);
    let mut tensors = get_state_dict(&optimizer);
    tensors.insert("b.0".into(), Tensor::ones(DType::F32, &[1]).unwrap());
    load_state_dict(&optimizer, &tensors).unwrap();
    backward(&x);
    optimizer.step().unwrap();
    assert_eq!(x.to_text().unwrap(), "[1.25]");
}

#[test]
fn betas_are_below_1_in_the_dtype_of_the_moments() {
    for [b1, b2] in [[1.0, 0.9], [0.9, -0.1], [f64::NAN, 0.9], [0.9, 0.999_999_99]] {
        let optimizer = Adam::new(parameters(), 0.1).unwrap();
        let error = optimizer.betas(b1, b2).err().unwrap().to_string();
        assert!(error.contains(&format!("betas of {b1} and {b2}")), "{error}");
        assert!(error.contains("f32"), "{error}");
    }
    let double = || Tensor::from_slice(&[1], &[3.0f64]).unwrap();
    let adam = |tensors: Vec<Tensor>| Adam::new(tensors, 0.1).unwrap();
    assert!(adam(vec![double()]).betas(0.0, 0.999_999_99).is_ok());
    assert!(adam(vec![double()]).betas(0.9, 1.0).is_err());
    assert!(adam(vec![double(), data(&[1], &[1.0])]).betas(0.0, 0.999_999_99).is_err());
}

/// The product of matrices [n, k] and [k, m].
fn matmul(x: &[f64], y: &[f64], k: usize) -> Vec<f64> {
    let m = y.len() / k;
    let columns: Vec<f64> = (0..m).flat_map(|c| (0..k).map(move |r| y[r * m + c])).collect();
    product(x, &columns, &vec![0.0; m], k)
}

fn transposed(x: &[f64], columns: usize) -> Vec<f64> {
    (0..columns).flat_map(|c| x.chunks(columns).map(move |row| row[c])).collect()
}

#[test]
fn muon_follows_its_formula() {
    for (momentum, nesterov, decay) in [(0.95, true, 0.1), (0.5, false, 0.0), (0.0, true, 0.1)] {
        let tensors = || vec![input(&[2, 3], 40).0, input(&[3, 1, 2], 42).0];
        let shared = tensors();
        let mut optimizer = Muon::new(shared.clone(), 0.1).unwrap().momentum(momentum);
        optimizer = optimizer.nesterov(nesterov).weight_decay(decay);
        let mut expected: Vec<Vec<f64>> = shared.iter().map(floats).collect();
        let mut b = [vec![0.0; 6], vec![0.0; 6]];
        let _training = Tensor::train(true);
        for step in 0..3 {
            optimizer.zero_grad();
            loss(&shared).backward().unwrap();
            optimizer.step().unwrap();
            for (number, (values, columns)) in expected.iter_mut().zip([3, 2]).enumerate() {
                let g = gradient(values);
                let mix = |(b, g): (&f64, &f64)| momentum * b + g;
                b[number] = b[number].iter().zip(&g).map(mix).collect();
                let mut x = match nesterov {
                    true => b[number].iter().zip(&g).map(mix).collect(),
                    false => b[number].clone(),
                };
                let size = norm(&x) + 1e-7;
                x.iter_mut().for_each(|x| *x /= size);
                // Fewer rows than columns, [2, 3].
                x = if columns == 2 { transposed(&x, 2) } else { x };
                for _ in 0..5 {
                    let a = matmul(&x, &transposed(&x, 3), 3);
                    let square = matmul(&a, &a, 2);
                    let factor: Vec<f64> =
                        a.iter().zip(&square).map(|(a, s)| -4.775 * a + 2.0315 * s).collect();
                    let moved = matmul(&factor, &x, 2);
                    x = x.iter().zip(moved).map(|(x, moved)| 3.4445 * x + moved).collect();
                }
                x = if columns == 2 { transposed(&x, 3) } else { x };
                for (value, x) in values.iter_mut().zip(x) {
                    *value = *value * (1.0 - 0.1 * decay) - 0.1 * x;
                }
                let label = format!("{momentum} {nesterov}, step {step}, parameter {number}");
                assert_close(&label, &floats(&shared[number]), values, 2e-4);
            }
        }
    }
}

struct Net {
    conv: Conv2d,
    norm: BatchNorm,
    layers: Vec<Linear>,
    scale: Option<Tensor>,
    pair: (Linear, [Linear; 1]),
}
state!(Net { conv, norm, layers, scale, pair });

impl Net {
    fn new() -> Net {
        Net {
            conv: Conv2d::new(1, 2, 3).unwrap(),
            norm: BatchNorm::new(2).unwrap(),
            layers: vec![Linear::new(2, 4).unwrap(), Linear::without_bias(4, 4).unwrap()],
            scale: None,
            pair: (Linear::new(4, 2).unwrap(), [Linear::without_bias(2, 1).unwrap()]),
        }
    }
}

impl Module for Net {
    fn forward(&self, x: &Tensor) -> Result<Tensor, Error> {
        let x = self.norm.forward(&self.conv.forward(x)?)?.relu()?.mean([2, 3])?;
        let x = self.layers.forward(&x)?;
        self.pair.forward(&x.tanh()?)
    }
}

/// The bits of all tensors, by name.
fn contents(model: &impl State) -> BTreeMap<String, Vec<u8>> {
    let tensors = get_state_dict(model);
    tensors.into_iter().map(|(name, tensor)| (name, tensor.to_bytes().unwrap())).collect()
}

#[test]
fn halves_have_norms_and_variances_beyond_their_range() {
    // The sum of squares is 4 * 300^2 * 64, and the variance 300^2.
    let wide = |value: f64| Tensor::full(DType::F16, &[256], value).unwrap().contiguous();
    let _training = Tensor::train(true);
    for kind in ["LAMB", "LARS"] {
        let w = wide(300.0).to("jit").unwrap().requires_grad_(true).unwrap();
        w.mul(wide(1.0).to("jit").unwrap()).unwrap().sum(..).unwrap().backward().unwrap();
        let mut optimizer: Box<dyn Optimizer> = match kind {
            "LAMB" => Box::new(LAMB::new([w.clone()], 0.1).unwrap()),
            _ => Box::new(LARS::new([w.clone()], 10.0).unwrap()),
        };
        optimizer.step().unwrap();
        let found = floats(&w);
        assert!(found.iter().all(|x| 0.0 < *x && *x < 300.0), "{kind}: {}", found[0]);
    }
    let rows: Vec<f64> = (0..64).map(|at| if at % 2 == 0 { 300.0 } else { -300.0 }).collect();
    let x = data(&[64, 1], &rows).cast(DType::F16).unwrap();
    let norm = BatchNorm::new(1).unwrap().momentum(1.0);
    let y = floats(&norm.forward(&x).unwrap());
    assert!(y.iter().zip(&rows).all(|(y, x)| (y * x.signum() - 1.0).abs() < 1e-2), "{}", y[0]);
    let found = floats(norm.running_var.as_ref().unwrap())[0];
    assert!((found / (300.0 * 300.0 * 64.0 / 63.0) - 1.0).abs() < 1e-2, "{found}");
}

#[test]
fn state_dicts_pass_through_files() {
    let (first, second) = (Net::new(), Net::new());
    let names: Vec<String> = get_state_dict(&first).into_keys().collect();
    assert_eq!(
        names,
        [
            "conv.bias",
            "conv.weight",
            "layers.0.bias",
            "layers.0.weight",
            "layers.1.weight",
            "norm.bias",
            "norm.num_batches_tracked",
            "norm.running_mean",
            "norm.running_var",
            "norm.weight",
            "pair.0.bias",
            "pair.0.weight",
            "pair.1.0.weight",
        ]
    );
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("net.safetensors");
    save_safetensors(&get_state_dict(&first), &path, None).unwrap();
    assert_ne!(contents(&first), contents(&second));
    load_state_dict(&second, &load_safetensors(&path).unwrap()).unwrap();
    assert_eq!(contents(&first), contents(&second));
    let (x, _) = input(&[2, 1, 5, 5], 50);
    let [y, z] = [&first, &second].map(|net| net.forward(&x).unwrap().to_bytes().unwrap());
    assert_eq!(y, z);
    // A loaded tensor is a copy: an assignment to the one does not change the other.
    load_state_dict(&second, &get_state_dict(&first)).unwrap();
    first.layers[0].weight.assign(0.0).unwrap();
    assert_ne!(contents(&first), contents(&second));
}

#[test]
fn all_mismatches_are_in_one_error_and_nothing_is_loaded() {
    let net = Net::new();
    let before = contents(&net);
    let mut tensors = get_state_dict(&Net::new());
    tensors.remove("conv.bias");
    tensors.insert("extra.weight".into(), data(&[1], &[0.0]));
    tensors.insert("layers.0.weight".into(), data(&[2, 4], &[0.0; 8]));
    let halves = tensors["pair.0.bias"].cast(DType::F16).unwrap();
    tensors.insert("pair.0.bias".into(), halves);
    let error = load_state_dict(&net, &tensors).unwrap_err().to_string();
    for part in [
        "conv.bias is missing",
        "extra.weight is not of the model",
        "layers.0.weight is f32[2, 4], and the model has f32[4, 2]",
        "pair.0.bias is f16[2], and the model has f32[2]",
    ] {
        assert!(error.contains(part), "{error}");
    }
    assert_eq!(error.matches(';').count(), 3, "{error}");
    assert_eq!(contents(&net), before);
    // A tensor with one element may have any number of axes: PyTorch counts batches in a scalar.
    let norm = BatchNorm::new(1).unwrap();
    let mut tensors = get_state_dict(&BatchNorm::new(1).unwrap());
    tensors.insert("num_batches_tracked".into(), Tensor::from_slice(&[], &[7i64]).unwrap());
    load_state_dict(&norm, &tensors).unwrap();
    assert_eq!(norm.num_batches_tracked.to_text().unwrap(), "[7]");
}

#[test]
fn names_that_both_have_are_loaded() {
    let net = Net::new();
    let before = contents(&net);
    let mut tensors = get_state_dict(&Net::new());
    tensors.remove("conv.bias");
    tensors.remove("norm.weight");
    tensors.insert("extra.weight".into(), data(&[1], &[0.0]));
    let unmatched = load_state_dict_partial(&net, &tensors).unwrap();
    assert_eq!(unmatched.missing, ["conv.bias", "norm.weight"]);
    assert_eq!(unmatched.unknown, ["extra.weight"]);
    let after = contents(&net);
    assert_eq!(after["conv.bias"], before["conv.bias"]);
    assert_eq!(after["conv.weight"], tensors["conv.weight"].to_bytes().unwrap());
    assert_ne!(after["conv.weight"], before["conv.weight"]);
    // A tensor that does not fit is an error, and nothing is loaded.
    tensors.insert("conv.weight".into(), data(&[2], &[1.0, 2.0]));
    tensors.insert("layers.0.bias".into(), data(&[4], &[1.0; 4]));
    let error = load_state_dict_partial(&net, &tensors).unwrap_err().to_string();
    assert!(error.contains("conv.weight is f32[2]") && !error.contains("missing"), "{error}");
    assert_eq!(contents(&net), after);
}

/// A part whose state is written by hand.
struct Shared<'a>(&'a Tensor);

impl State for Shared<'_> {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.field("first", self.0);
        visitor.field("second", &Some(self.0));
    }
}

#[test]
fn a_tensor_with_two_names_is_one_parameter() {
    let x = data(&[2], &[1.0, 2.0]);
    let shared = Shared(&x);
    assert_eq!(get_state_dict(&shared).into_keys().collect::<Vec<_>>(), ["first", "second"]);
    let mut optimizer = SGD::new(get_parameters(&shared), 0.5).unwrap();
    assert_eq!(optimizer.parameters().len(), 1);
    let _training = Tensor::train(true);
    x.sum(0).unwrap().backward().unwrap();
    optimizer.step().unwrap();
    assert_eq!(x.to_text().unwrap(), "[0.5, 1.5]");
}

#[test]
fn training_lowers_the_loss_and_graphs_do_not_grow() {
    let net = Net::new();
    let (x, _) = input(&[6, 1, 5, 5], 60);
    let y = data(&[6, 1], &[1.0, -1.0, 0.5, 2.0, 0.0, -0.5]);
    let mut optimizer = Adam::new(get_parameters(&net), 0.03).unwrap();
    let _training = Tensor::train(true);
    let (mut losses, mut sizes) = (Vec::new(), Vec::new());
    for _ in 0..30 {
        optimizer.zero_grad();
        let loss = net.forward(&x).unwrap().sub(&y).unwrap().square().unwrap().mean(..).unwrap();
        loss.backward().unwrap();
        optimizer.step().unwrap();
        losses.push(floats(&loss)[0]);
        let tensors = [get_parameters(&net), get_parameters(&optimizer)].concat();
        sizes.push(tensors.iter().map(|x| x.uop().order().len()).sum::<usize>());
    }
    assert!(losses[29] < losses[0], "{losses:?}");
    assert!(sizes.iter().all(|size| *size == sizes[0]), "{sizes:?}");
    assert_eq!(net.norm.num_batches_tracked.to_text().unwrap(), "[30]");
}

/// The variable that makes [`child`] train on `interp`, in this way.
const CHILD: &str = "GRADIFF_NN_TEST";
/// Printed by the child process before the step, after it, and at the end.
const MARK: &str = "== mark";

/// The test that [`runs_of_a_step`] runs in a child process. With `DEBUG=2`, a line on stderr is
/// printed for each kernel that runs.
#[test]
fn child() {
    let Ok(way) = std::env::var(CHILD) else { return };
    let on_interp = |tensor: Tensor| tensor.to("interp").unwrap();
    let (w1, w2) = (on_interp(input(&[8, 3], 61).0), on_interp(input(&[8, 1], 62).0));
    let x = on_interp(input(&[4, 3], 63).0);
    let mut optimizer = SGD::new([w1.clone(), w2.clone()], 0.1).unwrap();
    let _training = Tensor::train(true);
    let hidden = x.matmul(&w1.transpose(0, 1).unwrap()).unwrap().tanh().unwrap();
    let loss = hidden.matmul(&w2).unwrap().square().unwrap().mean(..).unwrap();
    loss.backward().unwrap();
    eprintln!("{MARK}");
    match way.as_str() {
        "step" => optimizer.step().unwrap(),
        "group" => {
            let mut group = OptimizerGroup::new(vec![Box::new(optimizer)]);
            group.step_with(&[&loss]).unwrap();
        }
        _ => optimizer.step_with(&[&loss]).unwrap(),
    }
    eprintln!("{MARK}");
    assert!(loss.item::<f32>().unwrap().is_finite());
    eprintln!("{MARK}");
}

/// The numbers of kernels that a step runs, and that reading the loss after it runs.
fn runs_of_a_step(way: &str) -> (usize, usize) {
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child", "--nocapture", "--test-threads=1"]);
    let output = command.env(CHILD, way).env("DEBUG", "2").env("BEAM", "0").output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    let parts: Vec<&str> = text.split(MARK).collect();
    assert_eq!(parts.len(), 4, "{text}");
    let count = |text: &str| text.lines().filter(|line| line.starts_with("*** interp")).count();
    (count(parts[1]), count(parts[2]))
}

#[test]
fn a_loss_that_a_step_computes_does_not_run_the_model_again() {
    let (step, read) = runs_of_a_step("step");
    assert!(1 <= step && 1 <= read, "{step} kernels, and {read} for the loss");
    for way in ["step_with", "group"] {
        let (step_with, read_after) = runs_of_a_step(way);
        assert_eq!(read_after, 0, "{way}");
        // The hidden layer is computed once, for the gradients and the loss.
        assert!(step_with < step + read, "{way}: {step_with} kernels, not {step} and {read}");
    }
}

#[test]
fn a_sum_of_losses_that_steps_compute_keeps_no_graph() {
    let x = data(&[2], &[1.0, -2.0]);
    let mut optimizer = SGD::new([x.clone()], 0.1).unwrap();
    let _training = Tensor::train(true);
    let (mut total, mut expected) = (Tensor::scalar(DType::F32, 0).unwrap(), 0.0);
    for _ in 0..20 {
        optimizer.zero_grad();
        let loss = x.square().unwrap().sum(..).unwrap();
        loss.backward().unwrap();
        total = total.add(loss.detach()).unwrap();
        optimizer.step_with(&[&loss, &total]).unwrap();
        expected += f64::from(loss.item::<f32>().unwrap());
        assert!(total.buffer().is_some());
    }
    assert_close("total", &floats(&total), &[expected], 1e-5);
    assert!(total.uop().order().len() < 4, "{}", total.uop().order().len());
}

#[test]
fn an_optimiser_goes_on_from_its_state() {
    let _training = Tensor::train(true);
    let step = |optimizer: &mut dyn Optimizer, tensors: &[Tensor]| {
        optimizer.zero_grad();
        loss(tensors).backward().unwrap();
        optimizer.step().unwrap();
    };
    type New = fn(Vec<Tensor>) -> Box<dyn Optimizer>;
    let kinds: [New; 3] = [
        |x| Box::new(SGD::new(x, 0.1).unwrap().momentum(0.9)),
        |x| Box::new(Adam::new(x, 0.1).unwrap()),
        |x| Box::new(RMSprop::new(x, 0.1).unwrap()),
    ];
    for new in kinds {
        let tensors = parameters();
        let mut optimizer = new(tensors.clone());
        optimizer.set_lr(0.2).unwrap();
        step(&mut *optimizer, &tensors);
        let again = parameters();
        let mut other_optimizer = new(again.clone());
        load_state_dict(&again, &get_state_dict(&tensors)).unwrap();
        load_state_dict(&*other_optimizer, &get_state_dict(&*optimizer)).unwrap();
        step(&mut *optimizer, &tensors);
        step(&mut *other_optimizer, &again);
        assert_eq!(contents(&tensors), contents(&again));
    }
}

#[test]
fn schedules_follow_their_formulas() {
    let mut optimizer = SGD::new(parameters(), 0.5).unwrap();
    let rates = |schedule: &mut dyn LRScheduler, optimizer: &mut SGD| -> Vec<f64> {
        let mut rate = |count: u64| {
            schedule.step(optimizer).unwrap();
            let rate = optimizer.lr().unwrap();
            assert_close("lr_after", &[rate], &[schedule.lr_after(count)], 1e-7);
            rate
        };
        (1..=6).map(&mut rate).collect()
    };
    let mut schedule = StepLR::new(&optimizer, 2, 0.1).unwrap();
    let found = rates(&mut schedule, &mut optimizer);
    assert_close("step", &found, &[0.5, 0.05, 0.05, 0.005, 0.005, 0.0005], 1e-7);
    optimizer.set_lr(0.5).unwrap();
    let mut schedule = MultiStepLR::new(&optimizer, &[2, 5], 0.5).unwrap();
    let found = rates(&mut schedule, &mut optimizer);
    assert_close("multi-step", &found, &[0.5, 0.25, 0.25, 0.25, 0.125, 0.125], 1e-7);
    optimizer.set_lr(0.5).unwrap();
    let mut schedule = CosineAnnealingLR::new(&optimizer, 6, 0.1).unwrap();
    let found = rates(&mut schedule, &mut optimizer);
    let root = 0.75f64.sqrt();
    let expected = [1.0 + root, 1.5, 1.0, 0.5, 1.0 - root, 0.0].map(|x| 0.1 + 0.2 * x);
    assert_close("cosine", &found, &expected, 1e-7);
    let mut schedule = OneCycleLR::new(&mut optimizer, 1.0, 10.0, 10.0, 6, 0.5).unwrap();
    assert_close("one cycle", &[optimizer.lr().unwrap()], &[0.1], 1e-7);
    let found = rates(&mut schedule, &mut optimizer);
    assert_close("one cycle", &found, &[0.4, 0.7, 1.0, 0.67, 0.34, 0.01], 1e-7);
    for (metric, values) in [
        (Metric::MinRelative(0.1), [1.0, 0.95, 0.93, 0.5]),
        (Metric::MinAbsolute(0.1), [-1.0, -1.05, -1.07, -2.0]),
        (Metric::MaxRelative(0.1), [1.0, 1.05, 1.07, 2.0]),
        (Metric::MaxAbsolute(0.1), [-1.0, -0.95, -0.93, 0.0]),
    ] {
        optimizer.set_lr(1.0).unwrap();
        let plateau = ReduceLROnPlateau::default().metric(metric);
        let mut schedule = plateau.factor(0.5).patience(1);
        let step = |value: f64| {
            schedule.step(&mut optimizer, value).unwrap();
            optimizer.lr().unwrap()
        };
        assert_eq!(values.map(step), [1.0, 1.0, 0.5, 0.5], "{metric:?}");
    }
    // The worst metric is no progress, not even at first.
    for (metric, worst) in
        [(Metric::MinRelative(0.1), f64::INFINITY), (Metric::MaxAbsolute(0.1), f64::NEG_INFINITY)]
    {
        optimizer.set_lr(1.0).unwrap();
        let plateau = ReduceLROnPlateau::default().metric(metric);
        let mut schedule = plateau.factor(0.5).patience(0);
        schedule.step(&mut optimizer, worst).unwrap();
        assert_eq!(optimizer.lr().unwrap(), 0.5, "{metric:?}");
    }
}

#[test]
fn schedules_go_on_from_their_state() {
    let new_optimizer = || SGD::new(parameters(), 0.5).unwrap();
    type New = fn(&mut SGD) -> Box<dyn LRScheduler>;
    let kinds: [New; 4] = [
        |x| Box::new(StepLR::new(x, 2, 0.5).unwrap()),
        |x| Box::new(MultiStepLR::new(x, &[2, 4], 0.5).unwrap()),
        |x| Box::new(CosineAnnealingLR::new(x, 6, 0.1).unwrap()),
        |x| Box::new(OneCycleLR::new(x, 1.0, 10.0, 10.0, 6, 0.5).unwrap()),
    ];
    for (kind, new) in kinds.iter().enumerate() {
        let (mut first, mut second) = (new_optimizer(), new_optimizer());
        let mut schedule = new(&mut first);
        (0..3).for_each(|_| schedule.step(&mut first).unwrap());
        // The rate is another one than at the first creation.
        load_state_dict(&second, &get_state_dict(&first)).unwrap();
        let mut resumed = new(&mut second);
        resumed.load_state_dict(&schedule.state_dict().unwrap()).unwrap();
        for step in 4..7 {
            schedule.step(&mut first).unwrap();
            resumed.step(&mut second).unwrap();
            assert_eq!(second.lr().unwrap(), first.lr().unwrap(), "schedule {kind}, step {step}");
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("schedule.safetensors");
    let metrics = [1.0, 2.0, 2.0, 2.0, 2.0];
    for count in 0..5 {
        let (mut first, mut second) = (new_optimizer(), new_optimizer());
        let new = || ReduceLROnPlateau::default().factor(0.5).patience(1);
        let (mut schedule, mut resumed) = (new(), new());
        for metric in &metrics[..count] {
            schedule.step(&mut first, *metric).unwrap();
        }
        save_safetensors(&schedule.state_dict().unwrap(), &path, None).unwrap();
        load_state_dict(&second, &get_state_dict(&first)).unwrap();
        resumed.load_state_dict(&load_safetensors(&path).unwrap()).unwrap();
        for metric in &metrics[count..] {
            schedule.step(&mut first, *metric).unwrap();
            resumed.step(&mut second, *metric).unwrap();
            assert_eq!(second.lr().unwrap(), first.lr().unwrap(), "{count} steps");
        }
    }
    let mut schedule = StepLR::new(&new_optimizer(), 2, 0.5).unwrap();
    for count in [-1.0, 1.5, f64::NAN, 1e300] {
        let mut tensors = schedule.state_dict().unwrap();
        tensors.insert("count".into(), Tensor::from_slice(&[1], &[count]).unwrap());
        let error = schedule.load_state_dict(&tensors).unwrap_err().to_string();
        assert!(error.contains(&format!("count is {count}")), "{error}");
        tensors.remove("base");
        let error = schedule.load_state_dict(&tensors).unwrap_err().to_string();
        assert!(error.contains("base is missing"), "{error}");
    }
}

#[test]
fn convolutions_refuse_options_of_the_other_kind() {
    let same = ConvOptions::default().same_padding();
    let error = ConvTranspose2d::with(3, 4, 3, same).unwrap_err().to_string();
    assert!(error.contains("same_padding"), "{error}");
    let added = ConvOptions::default().output_padding([0, 1]);
    let error = Conv2d::with(3, 4, 3, added).unwrap_err().to_string();
    assert!(error.contains("output_padding [0, 1]"), "{error}");
    let added = ConvOptions::default().output_padding(2);
    let error = Conv1d::with(3, 4, 3, added).unwrap_err().to_string();
    assert!(error.contains("output_padding [2]"), "{error}");
    assert!(Conv1d::with(3, 4, 3, ConvOptions::default().output_padding(0)).is_ok());
}

#[test]
fn mistakes_are_errors_that_say_why() {
    let text = |result: Result<Tensor, Error>| result.unwrap_err().to_string();
    let (x, _) = input(&[2, 3], 70);
    for (found, part) in [
        (text(Linear::new(4, 2).unwrap().forward(&x)), "in_features, 4"),
        (text(Linear::new(0, 2).map(|layer| layer.weight)), "in_features 0"),
        (text(Conv2d::new(3, -1, 3).map(|layer| layer.weight)), "out_channels -1"),
        (text(Conv2d::new(3, 4, [3]).map(|layer| layer.weight)), "kernel_size [3]"),
        (text(Conv2d::new(3, 4, 3).unwrap().forward(&x)), "[2, 3]"),
        (text(BatchNorm::new(4).unwrap().forward(&x)), "[n, 4, ..]"),
        (text(GroupNorm::new(3, 4).map(|layer| layer.weight.unwrap())), "4 channels in 3"),
        (text(GroupNorm::new(2, 4).unwrap().forward(&x)), "[n, 4, ..]"),
        (text(InstanceNorm::new(2).unwrap().forward(&x)), "[n, 2, ..]"),
        (text(LayerNorm::new(2).unwrap().forward(&x)), "[2]"),
        (text(LayerNorm::new([]).map(|layer| layer.weight.unwrap())), "[]"),
        (text(LayerNorm2d::new(2).unwrap().forward(&x)), "[n, c, h, w]"),
        (text(RMSNorm::new(2).unwrap().forward(&x)), "[.., 2]"),
        (text(Embedding::new(2, 2).unwrap().forward(&x)), "integers"),
        (text(LSTMCell::new(4, 2).unwrap().forward(&x, None).map(|pair| pair.0)), "[n, 4]"),
        (text(GRUCell::new(4, 2).unwrap().forward(&x, None)), "[n, 4]"),
        (text(GRUCell::new(4, 0).map(|layer| layer.weight_ih)), "hidden_size 0"),
        (text(MultiHeadAttention::new(4, 3).map(|layer| layer.in_proj_weight)), "3 heads"),
        (text(MultiHeadAttention::new(4, 2).unwrap().forward(&x)), "[n, l, 4]"),
        (text(BatchNorm::new(1 << 39).map(|layer| layer.num_batches_tracked)), "4294967296"),
        (text(LayerNorm::new([1 << 20, 1 << 19]).map(|layer| layer.bias.unwrap())), "4294967296"),
        (text(BatchNorm::new(3).unwrap().eps(-2.0).forward(&x)), "eps -2"),
        (text(BatchNorm::new(3).unwrap().momentum(f64::NAN).forward(&x)), "momentum NaN"),
        (text(RMSNorm::new(3).unwrap().eps(f64::INFINITY).forward(&x)), "eps inf"),
    ] {
        assert!(found.contains(part), "{found}");
    }
    let groups = ConvOptions::default().groups(2);
    let error = Conv2d::with(3, 4, 3, groups).unwrap_err().to_string();
    assert!(error.contains("groups 2"), "{error}");
    let strided = ConvOptions::default().same_padding().stride(2);
    let error = Conv2d::with(3, 4, 3, strided).unwrap_err().to_string();
    assert!(error.contains("stride [2, 2]"), "{error}");
    let (single, _) = input(&[1, 4], 71);
    let tracking = || BatchNorm::new(4).unwrap();
    assert!(tracking().forward(&single).is_ok());
    for is_training in [false, true] {
        let _mode = Tensor::train(is_training);
        let layer = if is_training { tracking() } else { tracking().without_running_stats() };
        let error = layer.forward(&single).unwrap_err().to_string();
        assert!(error.contains("more than 1 element"), "{error}");
    }
    let new = || [x.clone()];
    let refused: [(Box<dyn Optimizer>, &str); 4] = [
        (Box::new(SGD::new(new(), 0.1).unwrap().momentum(-0.5)), "momentum -0.5"),
        (Box::new(LARS::new(new(), 0.1).unwrap().tcoef(f64::INFINITY)), "tcoef inf"),
        (Box::new(AdamW::new(new(), 0.1).unwrap().weight_decay(f64::NAN)), "weight_decay NaN"),
        (Box::new(Adam::new(new(), 0.1).unwrap().eps(-1.0)), "eps -1"),
    ];
    for (mut optimizer, part) in refused {
        let error = optimizer.step().unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    let error = |result: Result<SGD, Error>| result.err().unwrap().to_string();
    assert!(error(SGD::new([], 0.1)).contains("without parameters"));
    assert!(error(SGD::new([x.clone()], f64::NAN)).contains("learning rate of NaN"));
    assert!(error(SGD::new([x.cast(DType::I32).unwrap()], 0.1)).contains("requires_grad_"));
    let flat = Muon::new([input(&[3], 72).0], 0.1).err().unwrap().to_string();
    assert!(flat.contains("two axes"), "{flat}");
    let mut optimizer = SGD::new([x.clone()], 0.1).unwrap();
    assert!(optimizer.set_lr(-1.0).unwrap_err().to_string().contains("-1"));
    let error = optimizer.step().unwrap_err().to_string();
    assert!(error.contains("outside of training"), "{error}");
    let _training = Tensor::train(true);
    let before = floats(&x);
    let error = optimizer.step().unwrap_err().to_string();
    assert!(error.contains("parameter 0") && error.contains("no gradient"), "{error}");
    assert!(error.contains("requires_grad_(false)"), "{error}");
    assert_eq!(floats(&x), before);
    assert!(StepLR::new(&optimizer, 0, 0.1).is_err());
    assert!(CosineAnnealingLR::new(&optimizer, 0, 0.1).is_err());
    assert!(OneCycleLR::new(&mut optimizer, 1.0, 10.0, 10.0, 6, 1.0).is_err());
    for (max, div, last) in [(1.0, 10.0, 0.0), (1.0, 10.0, -1.0), (-8.0, -8.0, 1.0)] {
        let lr = optimizer.lr().unwrap();
        assert!(OneCycleLR::new(&mut optimizer, max, div, last, 6, 0.5).is_err());
        assert_eq!(optimizer.lr().unwrap(), lr);
    }
}

#[test]
fn functions_are_modules_in_a_sequence() {
    let model = (
        Linear::new(3, 4).unwrap(),
        Function(|x: &Tensor| x.relu()?.mul(2)),
        Box::new(Linear::without_bias(4, 2).unwrap()) as Box<dyn Module>,
    );
    let (x, elements) = input(&[2, 3], 80);
    let hidden = product(&elements, &floats(&model.0.weight), &optional(&model.0.bias), 3);
    let hidden: Vec<f64> = hidden.iter().map(|x| 2.0 * x.max(0.0)).collect();
    let weight = floats(&get_state_dict(&model)["2.weight"]);
    let y = model.forward(&x).unwrap();
    check("sequence", &y, &[2, 2], &product(&hidden, &weight, &[0.0; 2], 4));
}
