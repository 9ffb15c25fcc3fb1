//! Layers that normalise: by the mean and variance of a batch, or of parts of each image.

use gradiff::nn::{BatchNorm, GroupNorm, InstanceNorm, LayerNorm, LayerNorm2d, Module, RMSNorm};
use gradiff::{DType, Error, Tensor};

use super::{Case, data, optional, sizes, tensor};
use crate::checks::calls::Draw;

/// The mean of the elements of each group, and the mean of the squares of their differences from
/// it.
fn moments(x: &[f64], groups: &[usize]) -> (Vec<f64>, Vec<f64>) {
    let count = groups.iter().max().map_or(0, |last| last + 1);
    let mean = |value: &dyn Fn(usize) -> f64| -> Vec<f64> {
        let (mut sums, mut counts) = (vec![0.0; count], vec![0.0; count]);
        for (at, group) in groups.iter().enumerate() {
            sums[*group] += value(at);
            counts[*group] += 1.0;
        }
        sums.iter().zip(&counts).map(|(sum, count)| sum / count).collect()
    };
    let means = mean(&|at| x[at]);
    let variances = mean(&|at| (x[at] - means[groups[at]]).powi(2));
    (means, variances)
}

/// Normalisation of each channel of a batch, while training or not, with running statistics or not.
pub(super) fn batch_norm(draw: &mut Draw) -> Result<Case, Error> {
    let channels = 1 + draw.below(3);
    let shape = [2 + draw.below(2), channels, 1 + draw.below(3)];
    let (eps, momentum) = (draw.pick(&[1e-3, 0.25]), draw.pick(&[0.1, 0.5]));
    let (x, x_values) = data(draw, &shape)?;
    let (weight, mut weights) = optional(draw, &[channels], 1.0)?;
    let (bias, mut biases) = optional(draw, &[channels], 0.0)?;
    let (mean, mut means) = data(draw, &[channels])?;
    let mut variances: Vec<f64> =
        (0..channels).map(|_| (1 + draw.below(16)) as f64 / 8.0).collect();
    let variance = tensor(&[channels], &variances)?;
    let mut norm = BatchNorm::new(channels as i64)?.eps(eps).momentum(momentum);
    (norm.weight, norm.bias) = (weight, bias);
    (norm.running_mean, norm.running_var) = (Some(mean.clone()), Some(variance.clone()));
    let is_training = draw.one_in(2);
    let (has_statistics, is_plain) = (!draw.one_in(4), draw.one_in(4));
    let mut label = format!("batch norm of {shape:?}, eps {eps}, training: {is_training}");
    if !has_statistics {
        norm = norm.without_running_stats();
        label += ", without statistics";
    }
    if is_plain {
        norm = norm.without_affine();
        weights.fill(1.0);
        biases.fill(0.0);
        label += ", without parameters";
    }
    let (y, mode) = {
        let _mode = Tensor::train(is_training);
        (norm.forward(&x)?, Tensor::is_training())
    };
    let number = |truth: bool| f64::from(u8::from(truth));
    let groups: Vec<usize> = (0..x_values.len()).map(|at| at / shape[2] % channels).collect();
    let (of_batch, batch_variances) = moments(&x_values, &groups);
    let (used, used_variances) = match is_training || !has_statistics {
        true => (of_batch.clone(), batch_variances.clone()),
        false => (means.clone(), variances.clone()),
    };
    if is_training && has_statistics {
        let count = (shape[0] * shape[2]) as f64;
        let track = |running: &mut f64, batch: f64| {
            *running = *running * (1.0 - momentum) + batch * momentum;
        };
        means.iter_mut().zip(&of_batch).for_each(|(mean, batch)| track(mean, *batch));
        let unbiased = batch_variances.iter().map(|variance| variance * count / (count - 1.0));
        variances.iter_mut().zip(unbiased).for_each(|(variance, batch)| track(variance, batch));
    }
    let wanted = x_values.iter().zip(&groups).map(|(x, group)| {
        let scale = weights[*group] / (used_variances[*group] + eps).sqrt();
        (x - used[*group]) * scale + biases[*group]
    });
    let batches = norm.num_batches_tracked.cast(DType::F32)?;
    let outputs = vec![
        (y, shape.to_vec(), wanted.collect()),
        (mean, vec![channels], means),
        (variance, vec![channels], variances),
        (batches, vec![1], vec![number(is_training && has_statistics)]),
        (tensor(&[1], &[number(mode)])?, vec![1], vec![number(is_training)]),
    ];
    Ok(Case { label, outputs })
}

/// Names of the kinds of normalisation of parts of each image.
const KINDS: [&str; 5] = ["group", "instance", "layer", "layer of images", "root mean square"];

/// Normalisation of parts of each image: groups of channels, channels, last axes, elements of all
/// channels; or by the root of the mean square.
pub(super) fn norm(draw: &mut Draw) -> Result<Case, Error> {
    let kind = draw.below(KINDS.len());
    let eps = draw.pick(&[1e-3, 0.25]);
    let groups = 1 + draw.below(2);
    let rank = if kind == 3 { 4 } else { 3 };
    let mut shape = sizes(draw, rank);
    shape[1] *= groups;
    let (x, x_values) = data(draw, &shape)?;
    let inner: usize = shape[2..].iter().product();
    let (channels, last) = (shape[1], shape[rank - 1]);
    // Last axes that are normalised: one, or two.
    let axes = 1 + draw.below(2);
    let size: usize = match kind {
        2 => shape[rank - axes..].iter().product(),
        4 => last,
        _ => channels,
    };
    let (weight, mut weights) = optional(draw, &[size], 1.0)?;
    let (bias, mut biases) = optional(draw, &[size], 0.0)?;
    let is_plain = kind != 4 && draw.one_in(4);
    if is_plain {
        weights.fill(1.0);
        biases.fill(0.0);
    }
    let (y, biases) = match kind {
        0 => {
            let mut norm = GroupNorm::new(groups as i64, channels as i64)?.eps(eps);
            (norm.weight, norm.bias) = (weight, bias);
            let norm = if is_plain { norm.without_affine() } else { norm };
            (norm.forward(&x)?, biases)
        }
        1 => {
            let mut norm = InstanceNorm::new(channels as i64)?.eps(eps);
            (norm.weight, norm.bias) = (weight, bias);
            let norm = if is_plain { norm.without_affine() } else { norm };
            (norm.forward(&x)?, biases)
        }
        2 => {
            let sizes: Vec<i64> = shape[rank - axes..].iter().map(|size| *size as i64).collect();
            let shaped = |x: Option<Tensor>| x.map(|x| x.reshape(&sizes)).transpose();
            let mut norm = LayerNorm::new(&sizes[..])?.eps(eps);
            (norm.weight, norm.bias) = (shaped(weight)?, shaped(bias)?);
            let norm = if is_plain { norm.without_affine() } else { norm };
            (norm.forward(&x)?, biases)
        }
        3 => {
            let mut norm = LayerNorm::new(channels as i64)?.eps(eps);
            (norm.weight, norm.bias) = (weight, bias);
            let norm = if is_plain { norm.without_affine() } else { norm };
            (LayerNorm2d(norm).forward(&x)?, biases)
        }
        _ => {
            let mut norm = RMSNorm::new(last as i64)?.eps(eps);
            if let Some(weight) = weight {
                norm.weight = weight;
            }
            (norm.forward(&x)?, vec![0.0; last])
        }
    };
    let group = |at: usize| match kind {
        0 => at / inner / (channels / groups),
        1 => at / inner,
        2 => at / size,
        3 => at / inner / channels * inner + at % inner,
        _ => at / last,
    };
    let part = |at: usize| match kind {
        2 | 4 => at % size,
        _ => at / inner % channels,
    };
    let numbers: Vec<usize> = (0..x_values.len()).map(group).collect();
    let (mut means, mut variances) = moments(&x_values, &numbers);
    if kind == 4 {
        let squares: Vec<f64> = x_values.iter().map(|x| x * x).collect();
        variances = moments(&squares, &numbers).0;
        means.fill(0.0);
    }
    let element = |(at, x): (usize, &f64)| {
        let scale = weights[part(at)] / (variances[numbers[at]] + eps).sqrt();
        (x - means[numbers[at]]) * scale + biases[part(at)]
    };
    let wanted = x_values.iter().enumerate().map(element).collect();
    let kind = KINDS[kind];
    let mut label = format!("{kind} norm of {shape:?}, {groups} groups, {axes} axes, eps {eps}");
    if is_plain {
        label += ", without parameters";
    }
    Ok(Case::new(label, y, &shape, wanted))
}
