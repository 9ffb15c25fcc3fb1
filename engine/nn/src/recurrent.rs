//! Cells of recurrent networks: LSTM and GRU.

use gradiff_graph::DType;
use gradiff_tensor::{Error, Tensor};

use crate::functional::{check_sizes, filled, invalid, linear, uniform};
use crate::state;

/// A cell of a long short-term memory: for an input [n, in] and a state, a pair of [n, hidden],
/// the next state.
///
/// ```
/// # use gradiff_nn::LSTMCell;
/// # use gradiff_tensor::Tensor;
/// let cell = LSTMCell::new(2, 5)?;
/// let x = Tensor::from_slice(&[3, 2], &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0])?;
/// let (h, c) = cell.forward(&x, None)?;
/// let (h, _) = cell.forward(&x, Some((&h, &c)))?;
/// assert_eq!(h.shape(), [3, 5]);
/// # Ok::<(), gradiff_tensor::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct LSTMCell {
    /// The weight of the input [4 * hidden, in]: those of the input gate, the forget gate, the
    /// candidate and the output gate.
    pub weight_ih: Tensor,
    /// The weight of the hidden state [4 * hidden, hidden].
    pub weight_hh: Tensor,
    /// The bias beside the input `[4 * hidden]`.
    pub bias_ih: Option<Tensor>,
    /// The bias beside the hidden state `[4 * hidden]`.
    pub bias_hh: Option<Tensor>,
}
state!(LSTMCell { weight_ih, weight_hh, bias_ih, bias_hh });

impl LSTMCell {
    /// Creates a cell. Weights are uniform in `±1 / sqrt(hidden_size)`, biases are 0.
    /// # Errors
    /// If a size is not positive, or a weight would be too large.
    pub fn new(input_size: i64, hidden_size: i64) -> Result<LSTMCell, Error> {
        let sizes = [input_size, hidden_size];
        let [weight_ih, weight_hh, bias_ih, bias_hh] = gate_parameters("LSTMCell", 4, sizes)?;
        Ok(LSTMCell { weight_ih, weight_hh, bias_ih: Some(bias_ih), bias_hh: Some(bias_hh) })
    }

    /// Returns the cell without biases.
    ///
    /// ```
    /// # use gradiff_nn::{LSTMCell, get_parameters};
    /// assert_eq!(get_parameters(&LSTMCell::new(2, 5)?.without_bias()).len(), 2);
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn without_bias(self) -> LSTMCell {
        LSTMCell { bias_ih: None, bias_hh: None, ..self }
    }

    /// Returns the next hidden state and cell state. Without a state, both are zeros before.
    /// # Errors
    /// If the shapes do not fit.
    pub fn forward(
        &self,
        x: &Tensor,
        state: Option<(&Tensor, &Tensor)>,
    ) -> Result<(Tensor, Tensor), Error> {
        let sizes = [self.weight_ih.shape()[1], self.weight_hh.shape()[1]];
        let h = checked_state("LSTMCell", x, sizes, state.map(|(h, _)| h))?;
        let c = checked_state("LSTMCell", x, sizes, state.map(|(_, c)| c))?;
        let of_input = linear(x, &self.weight_ih, self.bias_ih.as_ref())?;
        let of_hidden = linear(&h, &self.weight_hh, self.bias_hh.as_ref())?;
        // A buffer of its own: each of the four gates would compute the sums anew.
        let gates = of_input.add(of_hidden)?.contiguous().chunk(4, 1)?;
        let (input, forget) = (gates[0].sigmoid()?, gates[1].sigmoid()?);
        let (candidate, output) = (gates[2].tanh()?, gates[3].sigmoid()?);
        let c = forget.mul(&c)?.add(input.mul(candidate)?)?;
        let h = output.mul(c.tanh()?)?;
        Ok((h.contiguous(), c.contiguous()))
    }
}

/// A gated recurrent unit: for an input [n, in] and a hidden state [n, hidden], the next hidden
/// state.
///
/// With the gates `r` and `z`, each the sigmoid of `W x + b + U h + c`, the candidate is `k =
/// tanh(W x + b + r * (U h + c))`, and the next state `(1 - z) * k + z * h`.
///
/// ```
/// # use gradiff_nn::GRUCell;
/// # use gradiff_tensor::Tensor;
/// let cell = GRUCell::new(2, 5)?;
/// let x = Tensor::from_slice(&[3, 2], &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0])?;
/// let h = cell.forward(&x, None)?;
/// assert_eq!(cell.forward(&x, Some(&h))?.shape(), [3, 5]);
/// # Ok::<(), gradiff_tensor::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct GRUCell {
    /// The weight of the input [3 * hidden, in]: those of the reset gate r, the update gate z and
    /// the candidate.
    pub weight_ih: Tensor,
    /// The weight of the hidden state [3 * hidden, hidden].
    pub weight_hh: Tensor,
    /// The bias beside the input `[3 * hidden]`.
    pub bias_ih: Option<Tensor>,
    /// The bias beside the hidden state `[3 * hidden]`.
    pub bias_hh: Option<Tensor>,
}
state!(GRUCell { weight_ih, weight_hh, bias_ih, bias_hh });

impl GRUCell {
    /// Creates a cell. Weights are uniform in `±1 / sqrt(hidden_size)`, biases are 0.
    /// # Errors
    /// If a size is not positive, or a weight would be too large.
    pub fn new(input_size: i64, hidden_size: i64) -> Result<GRUCell, Error> {
        let sizes = [input_size, hidden_size];
        let [weight_ih, weight_hh, bias_ih, bias_hh] = gate_parameters("GRUCell", 3, sizes)?;
        Ok(GRUCell { weight_ih, weight_hh, bias_ih: Some(bias_ih), bias_hh: Some(bias_hh) })
    }

    /// Returns the cell without biases.
    ///
    /// ```
    /// # use gradiff_nn::{GRUCell, get_parameters};
    /// assert_eq!(get_parameters(&GRUCell::new(2, 5)?.without_bias()).len(), 2);
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn without_bias(self) -> GRUCell {
        GRUCell { bias_ih: None, bias_hh: None, ..self }
    }

    /// Returns the next hidden state. Without a state, it is zeros before.
    /// # Errors
    /// If the shapes do not fit.
    pub fn forward(&self, x: &Tensor, h: Option<&Tensor>) -> Result<Tensor, Error> {
        let sizes = [self.weight_ih.shape()[1], self.weight_hh.shape()[1]];
        let h = checked_state("GRUCell", x, sizes, h)?;
        // Buffers of their own: each part would compute the sums anew.
        let of_input = linear(x, &self.weight_ih, self.bias_ih.as_ref())?.contiguous();
        let of_hidden = linear(&h, &self.weight_hh, self.bias_hh.as_ref())?.contiguous();
        let (of_input, of_hidden) = (of_input.chunk(3, 1)?, of_hidden.chunk(3, 1)?);
        let gate = |number: usize| of_input[number].add(&of_hidden[number])?.sigmoid();
        let (reset, update) = (gate(0)?, gate(1)?);
        let candidate = of_input[2].add(reset.mul(&of_hidden[2])?)?.tanh()?;
        let h = candidate.add(update.mul(h.sub(&candidate)?)?)?;
        Ok(h.contiguous())
    }
}

/// Creates the weights of the input and of the hidden state of a cell with so many gates, and the
/// two biases.
fn gate_parameters(
    cell: &str,
    gates: i64,
    [input_size, hidden_size]: [i64; 2],
) -> Result<[Tensor; 4], Error> {
    check_sizes(cell, &[("input_size", input_size), ("hidden_size", hidden_size)])?;
    let bound = 1.0 / (hidden_size as f64).sqrt();
    let rows = hidden_size.saturating_mul(gates);
    Ok([
        uniform(&[rows, input_size], bound)?,
        uniform(&[rows, hidden_size], bound)?,
        filled(&[rows], 0.0)?,
        filled(&[rows], 0.0)?,
    ])
}

/// Checks an input [n, in] and a state [n, hidden] of a cell, and returns the state; zeros if there
/// is none.
fn checked_state(
    cell: &str,
    x: &Tensor,
    [input, hidden]: [i64; 2],
    state: Option<&Tensor>,
) -> Result<Tensor, Error> {
    let rows = match *x.shape() {
        [rows, size] if size == input => rows,
        _ => return invalid(format!("{cell} of {x:?}: it takes [n, {input}]")),
    };
    match state {
        None => Tensor::zeros(DType::F32, &[rows, hidden])?.cast(x.dtype()),
        Some(state) if state.shape() == [rows, hidden] => Ok(state.clone()),
        Some(state) => invalid(format!(
            "{cell} with the state {state:?}: for {x:?} it must be [{rows}, {hidden}]"
        )),
    }
}
