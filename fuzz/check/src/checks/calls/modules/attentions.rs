//! Attention with several heads: of the rows of images to themselves, and to keys and values.

use std::sync::PoisonError;

use gradiff::nn::{Linear, Module, MultiHeadAttention};
use gradiff::{DType, Error, Tensor};

use super::{Case, Output, SINGLE, affine, data, optional, small_data};
use crate::checks::calls::Draw;
use crate::checks::calls::random::TURN;

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
fn mask(
    draw: &mut Draw,
    dtype: DType,
    shape: [usize; 3],
) -> Result<(Option<Tensor>, Vec<f64>), Error> {
    let count: usize = shape.iter().product();
    match draw.below(3) {
        0 => Ok((None, vec![0.0; count])),
        1 => {
            let (mask, values) = data(draw, dtype, &shape)?;
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
pub(super) fn attention(draw: &mut Draw) -> Result<Case, Error> {
    let [heads, depth, images] = [(); 3].map(|()| 1 + draw.below(2));
    let (size, length) = (heads * depth, 1 + draw.below(4));
    let typed @ (dtype, _) = draw.pick(&[SINGLE, (DType::F64, 1e-9)]);
    let is_causal = draw.one_in(2);
    let (in_proj_weight, weights) = data(draw, dtype, &[3 * size, size])?;
    let (in_proj_bias, mut biases) = small_data(draw, dtype, &[3 * size])?;
    let has_bias = draw.one_in(2);
    if !has_bias {
        biases.fill(0.0);
    }
    let (weight, out_weights) = data(draw, dtype, &[size, size])?;
    let (bias, mut out_biases) = optional(draw, dtype, &[size], 0.0)?;
    let (is_training, p) = (draw.one_in(2), draw.pick(&[0.0, 1.0, 0.0]));
    let is_dropped = is_training && p == 1.0;
    // Weights of a new layer and dropout are random numbers.
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut layer = MultiHeadAttention::new(size as i64, heads as i64)?;
    // Without these options, it is not causal, and nothing is dropped.
    if is_causal {
        layer = layer.causal(true);
    }
    if p != 0.0 {
        layer = layer.dropout(p);
    }
    (layer.in_proj_weight, layer.in_proj_bias) = (in_proj_weight, has_bias.then_some(in_proj_bias));
    layer.out_proj = Linear { weight, bias };
    let shape = [images, length, size];
    let (x, x_values) = small_data(draw, dtype, &shape)?;
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
    let output = |mut mixed: Vec<f64>| {
        if is_dropped {
            mixed.fill(0.0);
        }
        affine(&mixed, &out_weights, &out_biases, size)
    };
    let rows = projected(&x_values);
    let sizes = [length, length, size, depth];
    let mixed = attended(sizes, [&rows[..]; 3], &|[_, query, key]| hidden(query, key));
    let mut label = format!("attention of {dtype}{shape:?}, {heads} heads, causal: {is_causal}");
    label += &format!(", training: {is_training}");
    if is_unbiased {
        label += ", without biases";
    }
    if is_dropped {
        label += ", all dropped";
    }
    let _mode = Tensor::train(is_training);
    let mut case = Case::new(label, typed, layer.forward(&x)?, &shape, output(mixed));
    if draw.one_in(2) {
        let count = 1 + draw.below(4);
        let (keys, key_values) = small_data(draw, dtype, &[images, count, size])?;
        let (values, value_values) = small_data(draw, dtype, &[images, count, size])?;
        let (mask, added) = mask(draw, dtype, [heads, length, count])?;
        let y = layer.attend(&x, &keys, &values, mask.as_ref())?;
        let added = |[head, query, key]: [usize; 3]| {
            added[(head * length + query) * count + key] + hidden(query, key)
        };
        let parts = [&rows, &projected(&key_values), &projected(&value_values)];
        let sizes = [length, count, size, depth];
        let mixed = attended(sizes, parts.map(|part| &part[..]), &added);
        case.outputs.push(Output::new(typed, y, &shape, output(mixed)));
        case.label += &format!(", also to {count} keys, with a mask: {}", mask.is_some());
    }
    drop(turn);
    Ok(case)
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
