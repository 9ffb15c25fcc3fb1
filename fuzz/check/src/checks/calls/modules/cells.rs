//! Cells of recurrent networks: LSTM and GRU.

use gradiff::nn::{GRUCell, LSTMCell};
use gradiff::{DType, Error};

use super::{Case, Output, SINGLE, affine, scaled_data};
use crate::checks::calls::Draw;

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// The next state of a cell, with a state before it or none, which is zeros. The sums of halves are
/// small, since their errors are errors of the exponents of powers.
pub(super) fn cell(draw: &mut Draw) -> Result<Case, Error> {
    let [rows, inputs, hidden] = [(); 3].map(|()| 1 + draw.below(3));
    let is_long = draw.one_in(2);
    let (typed, scale) = draw.pick(&[
        (SINGLE, 1.0),
        (SINGLE, 1.0),
        ((DType::F64, 1e-9), 1.0),
        ((DType::F16, 2e-2), 0.125),
        ((DType::BF16, 8e-2), 0.125),
    ]);
    let (dtype, _) = typed;
    let gates = if is_long { 4 * hidden } else { 3 * hidden };
    let mut of_layer = |shape: &[usize]| scaled_data(draw, dtype, shape, scale);
    let (weight_ih, of_input) = of_layer(&[gates, inputs])?;
    let (weight_hh, of_hidden) = of_layer(&[gates, hidden])?;
    let (bias_ih, mut input_biases) = of_layer(&[gates])?;
    let (bias_hh, mut hidden_biases) = of_layer(&[gates])?;
    let (x, x_values) = scaled_data(draw, dtype, &[rows, inputs], 1.0)?;
    let (h, mut h_values) = scaled_data(draw, dtype, &[rows, hidden], 1.0)?;
    let (c, mut c_values) = scaled_data(draw, dtype, &[rows, hidden], 1.0)?;
    let [has_state, has_bias_ih, has_bias_hh] = [(); 3].map(|()| draw.one_in(2));
    let is_unbiased = draw.one_in(4);
    if !has_state {
        h_values.fill(0.0);
        c_values.fill(0.0);
    }
    if is_unbiased || !has_bias_ih {
        input_biases.fill(0.0);
    }
    if is_unbiased || !has_bias_hh {
        hidden_biases.fill(0.0);
    }
    let (bias_ih, bias_hh) = (has_bias_ih.then_some(bias_ih), has_bias_hh.then_some(bias_hh));
    let input_sums = affine(&x_values, &of_input, &input_biases, inputs);
    let hidden_sums = affine(&h_values, &of_hidden, &hidden_biases, hidden);
    let at =
        |element: usize, gate: usize| element / hidden * gates + gate * hidden + element % hidden;
    let shape = [rows, hidden];
    let name = if is_long { "LSTM" } else { "GRU" };
    let mut label =
        format!("{name} cell of {inputs} and {hidden} {dtype}, with a state: {has_state}");
    if is_unbiased {
        label += ", without biases";
    }
    if !is_long {
        let mut layer = GRUCell { weight_ih, weight_hh, bias_ih, bias_hh };
        if is_unbiased {
            layer = layer.without_bias();
        }
        let y = layer.forward(&x, has_state.then_some(&h))?;
        let next = |(element, h): (usize, &f64)| {
            let parts =
                |gate: usize| (input_sums[at(element, gate)], hidden_sums[at(element, gate)]);
            let gate = |number: usize| sigmoid(parts(number).0 + parts(number).1);
            let (of_input, of_hidden) = parts(2);
            let candidate = (of_input + gate(0) * of_hidden).tanh();
            (1.0 - gate(1)) * candidate + gate(1) * h
        };
        let wanted = h_values.iter().enumerate().map(next).collect();
        return Ok(Case::new(label, typed, y, &shape, wanted));
    }
    let mut layer = LSTMCell { weight_ih, weight_hh, bias_ih, bias_hh };
    if is_unbiased {
        layer = layer.without_bias();
    }
    let (h, c) = layer.forward(&x, has_state.then_some((&h, &c)))?;
    let (mut next_h, mut next_c) = (Vec::new(), Vec::new());
    for (element, c) in c_values.iter().enumerate() {
        let gate =
            |number: usize| input_sums[at(element, number)] + hidden_sums[at(element, number)];
        let c = sigmoid(gate(1)) * c + sigmoid(gate(0)) * gate(2).tanh();
        next_h.push(sigmoid(gate(3)) * c.tanh());
        next_c.push(c);
    }
    let mut case = Case::new(label, typed, h, &shape, next_h);
    case.outputs.push(Output::new(typed, c, &shape, next_c));
    Ok(case)
}
