//! The variance or the standard deviation of a tensor with its mean, against a loop.

use gradiff::{Axes, DType, Error, Tensor, keepdim};

use super::Draw;
use super::values::{Wanted, compare};

/// Draws a tensor and axes, and compares both results with those of a loop.
pub(super) fn statistics(draw: &mut Draw) -> Result<(), String> {
    let problem = |error: Error| error.to_string();
    let (dtype, tolerance) = draw.pick(&[(DType::F32, 1e-5), (DType::F64, 1e-12)]);
    let shape: Vec<usize> = (0..1 + draw.below(3)).map(|_| 1 + draw.below(4)).collect();
    let count: usize = shape.iter().product();
    let x: Vec<f64> = (0..count).map(|_| (draw.below(65) as f64 - 32.0) / 8.0).collect();
    let is_reduced: Vec<bool> = shape.iter().map(|_| draw.one_in(2)).collect();
    let axes: Vec<i64> =
        (0i64..).zip(&is_reduced).filter(|(_, is)| **is).map(|(axis, _)| axis).collect();
    // The elements of each result.
    let size = |axis: usize| if is_reduced[axis] { 1 } else { shape[axis] };
    let results: usize = (0..shape.len()).map(size).product();
    let mut groups = vec![Vec::new(); results];
    for (number, element) in x.iter().enumerate() {
        let (mut rest, mut at, mut stride) = (number, 0, 1);
        for axis in (0..shape.len()).rev() {
            if !is_reduced[axis] {
                at += rest % shape[axis] * stride;
                stride *= shape[axis];
            }
            rest /= shape[axis];
        }
        groups[at].push(*element);
    }
    let terms = count / results;
    let correction = draw.below(2).min(terms - 1);
    let is_std = draw.one_in(2);
    let near = |value: f64| Wanted::Near(value, tolerance * (1.0 + value.abs()));
    let (mut means, mut spreads) = (Vec::new(), Vec::new());
    for group in &groups {
        let mean = group.iter().sum::<f64>() / terms as f64;
        let squares: f64 = group.iter().map(|x| (x - mean).powi(2)).sum();
        let variance = squares / (terms - correction) as f64;
        means.push(near(mean));
        // The root of what is almost 0 is far from 0.
        spreads.push(match is_std {
            true if variance == 0.0 => Wanted::Near(0.0, tolerance.sqrt()),
            true => near(variance.sqrt()),
            false => near(variance),
        });
    }
    let sizes: Vec<i64> = shape.iter().map(|size| *size as i64).collect();
    let tensor = Tensor::from_slice(&sizes, &x).and_then(|x| x.cast(dtype)).map_err(problem)?;
    let has_axes = draw.one_in(2);
    let chosen = if has_axes { keepdim(&axes[..]) } else { Axes::from(&axes[..]) };
    let label = format!("std: {is_std}, of {dtype}{shape:?} along {axes:?} less {correction}");
    let found = match is_std {
        true => tensor.std_mean(chosen, correction as i64),
        false => tensor.var_mean(chosen, correction as i64),
    };
    let (spread, mean) = found.map_err(|error| format!("{label}: {error}"))?;
    let rank = if has_axes { shape.len() } else { shape.len() - axes.len() };
    for (part, wanted) in [(spread, spreads), (mean, means)] {
        if part.dtype() != dtype || part.rank() != rank {
            return Err(format!("{label} gives {part:?}"));
        }
        compare(draw, &label, &part, &wanted)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_match_loops() {
        for seed in 0..60 {
            statistics(&mut Draw::new(seed)).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        }
    }
}
