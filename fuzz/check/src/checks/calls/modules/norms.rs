//! Layers that normalise: by the mean and variance of a batch, or of parts of each image.

use gradiff::nn::{BatchNorm, GroupNorm, InstanceNorm, LayerNorm, LayerNorm2d, Module, RMSNorm};
use gradiff::{DType, Error, Tensor};

use super::{Case, Output, SINGLE, TYPES, data, eighths, optional, promoted, scaled_data, sizes};
use super::{tensor, typed};
use crate::checks::calls::Draw;

/// The summand of a variance, `None` for that of a new layer, and the factor of the input. A small
/// input shows a small summand; the squares of a large one are beyond the range of f16.
const EPS: [(Option<f64>, f64); 5] =
    [(Some(1e-3), 1.0), (Some(0.25), 1.0), (None, SMALL), (Some(4096.0), 256.0), (Some(1e-3), 1.0)];

/// The factor of inputs whose variances are about as large as the summands of new layers.
const SMALL: f64 = 1.0 / 256.0;

/// The summand of a variance that a new layer adds, and that of a mean square.
const NEW_EPS: [f64; 2] = [1e-5, 1e-6];

/// Limit of the number of batches, more than wait until they are computed.
const BATCHES: usize = 40;

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

/// The gradient of the elements with respect to the inputs, where `factors` are those of the
/// normalised elements; the mean is that of the group if `has_mean`, else 0.
fn gradient(
    normalised: &[f64],
    roots: &[f64],
    factors: &[f64],
    groups: &[usize],
    has_mean: bool,
) -> Vec<f64> {
    let products: Vec<f64> = normalised.iter().zip(factors).map(|(x, y)| x * y).collect();
    let (means, slopes) = (moments(factors, groups).0, moments(&products, groups).0);
    let element = |(at, group): (usize, &usize)| {
        let mean = if has_mean { means[*group] } else { 0.0 };
        (factors[at] - mean - normalised[at] * slopes[*group]) / roots[*group]
    };
    groups.iter().enumerate().map(element).collect()
}

/// Adds the gradient of the input to the outputs: drawn weights times the factors of elements.
fn push_gradient(
    draw: &mut Draw,
    case: &mut Case,
    x: &Tensor,
    wanted: impl FnOnce(&[f64]) -> Vec<f64>,
) -> Result<(), Error> {
    let Output { tensor: y, typed: (dtype, tolerance), shape, .. } = &case.outputs[0];
    let weights = eighths(draw, shape.iter().product());
    y.backward_by(&tensor(*dtype, shape, &weights)?)?;
    let (typed, shape) = ((*dtype, 10.0 * tolerance), shape.clone());
    let found = x.grad().expect("backward gives it a gradient");
    case.outputs.push(Output::new(typed, found, &shape, wanted(&weights)));
    case.label += ", with a gradient";
    Ok(())
}

/// Normalisation of each channel of a batch, while training or not, with running statistics or not.
pub(super) fn batch_norm(draw: &mut Draw) -> Result<Case, Error> {
    let channels = 1 + draw.below(3);
    let rank = draw.pick(&[3, 3, 2, 4, 5]);
    let mut shape = [vec![2 + draw.below(2), channels], sizes(draw, rank - 2)].concat();
    let ((given_eps, scale), momentum) = (draw.pick(&EPS), draw.pick(&[0.1, 0.5]));
    let eps = given_eps.unwrap_or(NEW_EPS[0]);
    let (dtype, _) = draw.pick(&TYPES);
    let of_layer = if draw.one_in(2) { DType::F32 } else { dtype };
    let is_training = draw.one_in(2);
    let (has_statistics, is_plain) = (!draw.one_in(4), draw.one_in(4));
    let uses_batch = is_training || !has_statistics;
    if draw.one_in(12) {
        shape[0] = 0;
    }
    let (mut x, x_values) = scaled_data(draw, dtype, &shape, scale)?;
    let is_integer = !uses_batch && scale == 1.0 && draw.one_in(6);
    if is_integer {
        x = Tensor::from_slice(
            &shape.iter().map(|size| *size as i64).collect::<Vec<_>>(),
            &x_values.iter().map(|x| (x * 8.0) as i32).collect::<Vec<_>>(),
        )?;
    }
    let unit = if is_integer { 8.0 } else { 1.0 };
    // Statistics of f32 make floats of integers.
    let dtype = if is_integer { DType::F32 } else { dtype };
    let x_values: Vec<f64> = x_values.into_iter().map(|x| x * unit).collect();
    let requires_gradient = !is_integer && shape[0] != 0 && draw.one_in(2);
    if requires_gradient {
        x = x.requires_grad_(true)?;
    }
    let (weight, mut weights) = optional(draw, of_layer, &[channels], 1.0)?;
    let (bias, mut biases) = optional(draw, of_layer, &[channels], 0.0)?;
    let has_parameters = !is_plain && (weight.is_some() || bias.is_some());
    let (mean, mut means) = scaled_data(draw, DType::F32, &[channels], scale)?;
    let mut variances: Vec<f64> =
        (0..channels).map(|_| (1 + draw.below(16)) as f64 / 8.0 * scale * scale).collect();
    let variance = tensor(DType::F32, &[channels], &variances)?;
    let mut norm = BatchNorm::new(channels as i64)?;
    if let Some(eps) = given_eps {
        norm = norm.eps(eps);
    }
    if momentum != 0.1 {
        norm = norm.momentum(momentum);
    }
    (norm.weight, norm.bias) = (weight, bias);
    (norm.running_mean, norm.running_var) = (Some(mean.clone()), Some(variance.clone()));
    let mut label = format!("batch norm of {dtype}{shape:?} in {of_layer}, eps {given_eps:?}");
    label += &format!(", times {scale}, integers: {is_integer}, training: {is_training}");
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
    let inner: usize = shape[2..].iter().product();
    let groups: Vec<usize> = (0..x_values.len()).map(|at| at / inner % channels).collect();
    let (of_batch, batch_variances) = moments(&x_values, &groups);
    let (used, used_variances) = match uses_batch {
        true => (of_batch.clone(), batch_variances.clone()),
        false => (means.clone(), variances.clone()),
    };
    if is_training && has_statistics {
        // Those of no elements change nothing.
        let count = (shape[0] * inner) as f64;
        let track = |running: &mut f64, batch: f64| {
            *running = *running * (1.0 - momentum) + batch * momentum;
        };
        means.iter_mut().zip(&of_batch).for_each(|(mean, batch)| track(mean, *batch));
        let unbiased = batch_variances.iter().map(|variance| variance * count / (count - 1.0));
        variances.iter_mut().zip(unbiased).for_each(|(variance, batch)| track(variance, batch));
    }
    let roots: Vec<f64> = used_variances.iter().map(|variance| (variance + eps).sqrt()).collect();
    let normalised: Vec<f64> =
        x_values.iter().zip(&groups).map(|(x, group)| (x - used[*group]) / roots[*group]).collect();
    let part = |(x, group): (&f64, &usize)| x * weights[*group] + biases[*group];
    let wanted = normalised.iter().zip(&groups).map(part).collect();
    // Halves are rounded if the parameters are halves, too, or if there are none.
    let result = match has_parameters {
        true if of_layer == dtype => dtype,
        true => promoted(promoted(dtype, of_layer), DType::F32),
        false => dtype,
    };
    let (_, tolerance) = typed(result, 1.0);
    // Running statistics are of f32, also for inputs of f64.
    let tolerance = if uses_batch { tolerance } else { tolerance.max(SINGLE.1) };
    let mut case = Case::new(label, (result, tolerance), y, &shape, wanted);
    if requires_gradient && dtype == result && [DType::F32, DType::F64].contains(&dtype) {
        push_gradient(draw, &mut case, &x, |factors| {
            let scaled = factors.iter().zip(&groups).map(|(x, group)| x * weights[*group]);
            let scaled: Vec<f64> = scaled.collect();
            match uses_batch {
                true => gradient(&normalised, &roots, &scaled, &groups, true),
                false => scaled.iter().zip(&groups).map(|(x, at)| x / roots[*at]).collect(),
            }
        })?;
        // The gradient is as large as the elements are small.
        case.outputs[1].unit = 1.0 / scale;
    }
    let batches = norm.num_batches_tracked.cast(DType::F64)?;
    let counted = number(is_training && has_statistics);
    case.outputs.extend([
        Output { unit: scale, ..Output::new(SINGLE, mean, &[channels], means) },
        Output { unit: scale * scale, ..Output::new(SINGLE, variance, &[channels], variances) },
        Output::new((DType::F64, 0.0), batches, &[1], vec![counted]),
        Output::number(number(mode), 0.0, number(is_training))?,
    ]);
    Ok(case)
}

/// Running statistics of many batches, some of which are computed before they are read.
pub(super) fn tracked(draw: &mut Draw) -> Result<Case, Error> {
    let shape = [2, 1 + draw.below(2)];
    let (count, momentum) = (1 + draw.below(BATCHES), draw.pick(&[0.125, 0.5]));
    let (x, x_values) = data(draw, DType::F32, &shape)?;
    let x = x.to("interp")?;
    let mut norm = BatchNorm::new(shape[1] as i64)?.momentum(momentum);
    norm = norm.without_affine();
    let on_device = |numbers: &[f64]| tensor(DType::F32, &[shape[1]], numbers)?.to("interp");
    let (mean, variance) = (on_device(&[0.0; 2][..shape[1]])?, on_device(&[1.0; 2][..shape[1]])?);
    (norm.running_mean, norm.running_var) = (Some(mean.clone()), Some(variance.clone()));
    norm.num_batches_tracked = norm.num_batches_tracked.to("interp")?;
    let _mode = Tensor::train(true);
    for _ in 0..count {
        norm.forward(&x)?;
    }
    let groups: Vec<usize> = (0..x_values.len()).map(|at| at % shape[1]).collect();
    let (of_batch, variances) = moments(&x_values, &groups);
    let share = (1.0 - momentum).powi(count as i32);
    let mixed = |first: f64, batch: f64| first * share + batch * (1.0 - share);
    let means = of_batch.iter().map(|batch| mixed(0.0, *batch)).collect();
    // Twice the mean square of two elements is the unbiased variance.
    let variances = variances.iter().map(|batch| mixed(1.0, 2.0 * batch)).collect();
    let label = format!("{count} batches of {shape:?}, momentum {momentum}");
    gradiff::realize(&[&mean, &variance, &norm.num_batches_tracked])?;
    let mut case = Case::new(label, SINGLE, mean, &shape[1..], means);
    case.outputs.push(Output::new(SINGLE, variance, &shape[1..], variances));
    let batches = norm.num_batches_tracked.item::<i64>()?;
    case.outputs.push(Output::number(batches as f64, 0.0, count as f64)?);
    Ok(case)
}

/// Names of the kinds of normalisation of parts of each image.
const KINDS: [&str; 5] = ["group", "instance", "layer", "layer of images", "root mean square"];

/// Normalisation of parts of each image: groups of channels, channels, last axes, elements of all
/// channels; or by the root of the mean square.
pub(super) fn norm(draw: &mut Draw) -> Result<Case, Error> {
    let kind = draw.below(KINDS.len());
    let (given_eps, scale) = draw.pick(&EPS);
    let eps = given_eps.unwrap_or(NEW_EPS[usize::from(kind == 4)]);
    let (dtype, _) = draw.pick(&TYPES);
    let of_layer = if draw.one_in(3) { DType::F32 } else { dtype };
    let groups = 1 + draw.below(2);
    let rank = match kind {
        3 => 4,
        _ => draw.pick(&[3, 3, 2, 4]),
    };
    let mut shape = sizes(draw, rank);
    shape[1] *= groups;
    let (mut x, x_values) = scaled_data(draw, dtype, &shape, scale)?;
    let requires_gradient = draw.one_in(2);
    if requires_gradient {
        x = x.requires_grad_(true)?;
    }
    let inner: usize = shape[2..].iter().product();
    let (channels, last) = (shape[1], shape[rank - 1]);
    // Last axes that are normalised: one, or two.
    let axes = 1 + draw.below(2);
    let size: usize = match kind {
        2 => shape[rank - axes..].iter().product(),
        4 => last,
        _ => channels,
    };
    let (weight, mut weights) = optional(draw, of_layer, &[size], 1.0)?;
    let (bias, mut biases) = optional(draw, of_layer, &[size], 0.0)?;
    let is_plain = kind != 4 && draw.one_in(4);
    if is_plain {
        weights.fill(1.0);
        biases.fill(0.0);
    }
    let result = match kind {
        // A new weight is of f32.
        4 if weight.is_none() => promoted(dtype, DType::F32),
        4 => promoted(dtype, of_layer),
        _ if is_plain || weight.is_none() && bias.is_none() => dtype,
        _ => promoted(dtype, of_layer),
    };
    // Completes a new norm, and calls it.
    macro_rules! forward {
        ($norm:expr, $weight:expr, $bias:expr, $wrap:expr) => {{
            let mut norm = $norm;
            if let Some(eps) = given_eps {
                norm = norm.eps(eps);
            }
            (norm.weight, norm.bias) = ($weight, $bias);
            let norm = if is_plain { norm.without_affine() } else { norm };
            $wrap(norm).forward(&x)?
        }};
    }
    let y = match kind {
        0 => {
            let norm = GroupNorm::new(groups as i64, channels as i64)?;
            forward!(norm, weight, bias, std::convert::identity)
        }
        1 => {
            let norm = InstanceNorm::new(channels as i64)?;
            forward!(norm, weight, bias, std::convert::identity)
        }
        2 => {
            let sizes: Vec<i64> = shape[rank - axes..].iter().map(|size| *size as i64).collect();
            let shaped = |x: Option<Tensor>| x.map(|x| x.reshape(&sizes)).transpose();
            let norm = match sizes[..] {
                [size] => LayerNorm::new(size)?,
                _ => LayerNorm::new(&sizes[..])?,
            };
            forward!(norm, shaped(weight)?, shaped(bias)?, std::convert::identity)
        }
        3 => {
            let LayerNorm2d(norm) = LayerNorm2d::new(channels as i64)?;
            forward!(norm, weight, bias, LayerNorm2d)
        }
        _ => {
            let mut norm = RMSNorm::new(last as i64)?;
            if let Some(eps) = given_eps {
                norm = norm.eps(eps);
            }
            if let Some(weight) = weight {
                norm.weight = weight;
            }
            biases = vec![0.0; last];
            norm.forward(&x)?
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
    let roots: Vec<f64> = variances.iter().map(|variance| (variance + eps).sqrt()).collect();
    let normalised: Vec<f64> =
        x_values.iter().zip(&numbers).map(|(x, at)| (x - means[*at]) / roots[*at]).collect();
    let element = |(at, x): (usize, &f64)| x * weights[part(at)] + biases[part(at)];
    let wanted = normalised.iter().enumerate().map(element).collect();
    let name = KINDS[kind];
    let mut label = format!("{name} norm of {dtype}{shape:?} in {of_layer}, {groups} groups");
    label += &format!(", {axes} axes, eps {given_eps:?}, times {scale}");
    if is_plain {
        label += ", without parameters";
    }
    // Halves are rounded after each of three steps, and sums may be nearer 0 than their summands.
    let roundings = if dtype == DType::F32 || dtype == DType::F64 { 1.0 } else { 4.0 };
    let rounded = typed(dtype, roundings).1.max(typed(result, roundings).1);
    let mut case = Case::new(label, (result, rounded), y, &shape, wanted);
    if requires_gradient && dtype == result && [DType::F32, DType::F64].contains(&dtype) {
        push_gradient(draw, &mut case, &x, |factors| {
            let scaled = factors.iter().enumerate().map(|(at, factor)| factor * weights[part(at)]);
            let scaled: Vec<f64> = scaled.collect();
            gradient(&normalised, &roots, &scaled, &numbers, kind != 4)
        })?;
        case.outputs[1].unit = 1.0 / scale;
    }
    Ok(case)
}
