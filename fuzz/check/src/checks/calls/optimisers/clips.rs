//! Clipped gradients: by the norm of all of them, and by the value of each element.

use gradiff::nn::{clip_grad_norm, clip_grad_value};
use gradiff::{DType, Error, Tensor};

use super::{DTYPES, agree, eighths, numbers, scaled, tensor};
use crate::checks::calls::Draw;

/// The summand of the norm that gradients are divided by, as documented.
const EPS: f64 = 1e-6;
/// The relative error of numbers that are computed in f32.
const SINGLE: f64 = 2e-4;
/// A factor that makes gradients as small as the summand of the norm.
const SMALL: f64 = 1.0 / 1_048_576.0;
/// Factors of gradients; the norm of large ones, or its square, is beyond the range of f16.
const SCALES: [f64; 4] = [1.0, 256.0, 8192.0, SMALL];

/// A parameter with the gradient that it must have.
struct Part {
    typed: (DType, f64),
    shape: &'static [i64],
    tensor: Tensor,
    gradient: Option<Vec<f64>>,
}

impl Part {
    /// Adds a gradient of weights, of which the first may be a special number.
    fn backward(&mut self, draw: &mut Draw, scale: f64, special: Option<f64>) -> Result<(), Error> {
        let count = self.shape.iter().product::<i64>() as usize;
        let mut weights = scaled(&eighths(draw, count), scale);
        if let Some(special) = special {
            weights[0] = special;
        }
        self.tensor.mul(1)?.backward_by(&tensor(self.typed.0, self.shape, &weights)?)?;
        let gradient = self.gradient.get_or_insert_with(|| vec![0.0; count]);
        gradient.iter_mut().zip(&weights).for_each(|(sum, weight)| *sum += weight);
        Ok(())
    }

    fn check(&self, label: &str, scale: f64, tolerance: f64) -> Result<(), String> {
        let label = format!("{label}: the gradient of {}{:?}", self.typed.0, self.shape);
        match (&self.gradient, self.tensor.grad()) {
            (None, None) => Ok(()),
            (Some(wanted), Some(found)) if found.dtype() == self.typed.0 => {
                let found = numbers(&found).map_err(|error| format!("{label}: {error}"))?;
                let (found, wanted) = (scaled(&found, 1.0 / scale), scaled(wanted, 1.0 / scale));
                agree(&label, &found, &wanted, tolerance.max(self.typed.1))
            }
            (wanted, found) => Err(format!("{label} is {found:?}, not {wanted:?}")),
        }
    }
}

/// The product of each gradient with the factor that gives them at most this norm. Returns the
/// norm of all before.
fn clip(parts: &mut [Part], max_norm: f64) -> f64 {
    let gradients = || parts.iter().flat_map(|part| &part.gradient).flatten();
    let norm = gradients().map(|x| x * x).sum::<f64>().sqrt();
    let factor = max_norm / (norm + EPS);
    // A norm that is NaN has no factor that is a number.
    let factor = if 1.0 < factor { 1.0 } else { factor };
    parts.iter_mut().flat_map(|part| &mut part.gradient).flatten().for_each(|x| *x *= factor);
    norm
}

/// Draws parameters, some of them without gradients, and clips the gradients by their norm, by
/// value, or by both; between that, gradients may be added.
pub(in crate::checks::calls) fn clipped_gradients(draw: &mut Draw) -> Result<(), String> {
    let problem = |error: Error| error.to_string();
    let scale = draw.pick(&SCALES);
    // In halves, small gradients have few digits.
    let dtypes = if scale == SMALL { &DTYPES[..3] } else { &DTYPES[..] };
    let shapes: [&'static [i64]; 5] = [&[3], &[2, 3], &[1], &[], &[2, 1, 2]];
    let special = draw.pick(&[f64::INFINITY, f64::NEG_INFINITY, f64::NAN]);
    let special = draw.one_in(6).then_some(special);
    let mut parts = Vec::new();
    for _ in 0..1 + draw.below(3) {
        let (typed, shape) = (draw.pick(dtypes), draw.pick(&shapes));
        let values = eighths(draw, shape.iter().product::<i64>() as usize);
        let parameter = tensor(typed.0, shape, &values).and_then(|x| x.requires_grad_(true));
        let tensor = parameter.map_err(problem)?;
        let mut part = Part { typed, shape, tensor, gradient: None };
        if !draw.one_in(4) {
            let special = special.filter(|_| parts.is_empty());
            part.backward(draw, scale, special).map_err(problem)?;
        }
        parts.push(part);
    }
    // A tensor that is given twice counts once.
    let mut given: Vec<Tensor> = parts.iter().map(|part| part.tensor.clone()).collect();
    if draw.one_in(3) {
        given.push(given[0].clone());
    }
    let types: Vec<DType> = parts.iter().map(|part| part.typed.0).collect();
    let mut label = format!("clipped gradients of {types:?}, times {scale}, with {special:?}");
    let counts = |part: &&Part| part.gradient.is_some();
    let is_wide = parts.iter().filter(counts).any(|part| part.typed.0 == DType::F64);
    let is_narrow = parts.iter().filter(counts).any(|part| part.typed.0 != DType::F64);
    let tolerance = if is_narrow { SINGLE } else { DTYPES[1].1 };
    let by_norm = !draw.one_in(3);
    if by_norm {
        let max_norm = scale * draw.pick(&[0.0, 0.5, 2.5, 1000.0]);
        label += &format!(", by the norm {max_norm}");
        let norm = clip_grad_norm(&given, max_norm).map_err(problem)?;
        let wanted = clip(&mut parts, max_norm);
        let dtype = if is_wide { DType::F64 } else { DType::F32 };
        if norm.dtype() != dtype || norm.rank() != 0 {
            return Err(format!("{label}: the norm is {norm:?}, not a scalar of {dtype}"));
        }
        let found = numbers(&norm).map_err(|error| format!("{label}: {error}"))?;
        let label = format!("{label}: the norm");
        agree(&label, &scaled(&found, 1.0 / scale), &[wanted / scale], tolerance)?;
    }
    if draw.one_in(3) {
        label += ", with more gradients";
        for part in &mut parts {
            part.backward(draw, scale, None).map_err(problem)?;
        }
    }
    let is_number = |x: &f64| !x.is_nan();
    let has_numbers = parts.iter().flat_map(|part| &part.gradient).flatten().all(is_number);
    if has_numbers && (!by_norm || draw.one_in(2)) {
        // Each is a number of f16, and no gradient is above the last.
        let max_value = scale * draw.pick(&[0.0, 0.5, 1.0, 4.0]);
        label += &format!(", by the value {max_value}");
        clip_grad_value(&given, max_value).map_err(problem)?;
        let gradients = parts.iter_mut().flat_map(|part| &mut part.gradient).flatten();
        gradients.for_each(|x| *x = x.clamp(-max_value, max_value));
    }
    parts.iter().try_for_each(|part| part.check(&label, scale, tolerance))
}
