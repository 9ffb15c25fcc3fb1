//! The cell of an LSTM.

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
        check_sizes("LSTMCell", &[("input_size", input_size), ("hidden_size", hidden_size)])?;
        let bound = 1.0 / (hidden_size as f64).sqrt();
        let rows = hidden_size.saturating_mul(4);
        Ok(LSTMCell {
            weight_ih: uniform(&[rows, input_size], bound)?,
            weight_hh: uniform(&[rows, hidden_size], bound)?,
            bias_ih: Some(filled(&[rows], 0.0)?),
            bias_hh: Some(filled(&[rows], 0.0)?),
        })
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
        let (input, hidden) = (self.weight_ih.shape()[1], self.weight_hh.shape()[1]);
        let zeros = |rows: i64| Tensor::zeros(DType::F32, &[rows, hidden])?.cast(x.dtype());
        let rows = match *x.shape() {
            [rows, size] if size == input => rows,
            _ => return invalid(format!("LSTMCell of {x:?}: it takes [n, {input}]")),
        };
        let (h, c) = match state {
            Some((h, c)) => (h.clone(), c.clone()),
            None => (zeros(rows)?, zeros(rows)?),
        };
        if let Some(part) = [&h, &c].into_iter().find(|part| part.shape() != [rows, hidden]) {
            return invalid(format!(
                "LSTMCell with the state {part:?}: for {x:?} it must be [{rows}, {hidden}]"
            ));
        }
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
