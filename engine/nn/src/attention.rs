//! Multi-head attention.

use gradiff_graph::DType;
use gradiff_tensor::{Error, Tensor};

use crate::functional::{check_sizes, filled, invalid, linear};
use crate::{Linear, Module, state};

/// Scaled dot-product attention with several heads, with the tensors of PyTorch's layer.
///
/// Queries [n, l, size], keys and values [n, s, size] give [n, l, size]. As a [`Module`] it is
/// self-attention, causal if that is set.
///
/// ```
/// # use gradiff_nn::{Module, MultiHeadAttention};
/// # use gradiff_tensor::Tensor;
/// # use gradiff_graph::DType;
/// let layer = MultiHeadAttention::new(8, 2)?.causal(true);
/// let x = Tensor::ones(DType::F32, &[1, 5, 8])?;
/// assert_eq!(layer.forward(&x)?.shape(), [1, 5, 8]);
/// # Ok::<(), gradiff_tensor::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct MultiHeadAttention {
    /// The weight [3 * size, size] of the projections of queries, keys and values.
    pub in_proj_weight: Tensor,
    /// The bias `[3 * size]` of these projections.
    pub in_proj_bias: Option<Tensor>,
    /// The projection of the result.
    pub out_proj: Linear,
    heads: i64,
    is_causal: bool,
    dropout: f64,
}
state!(MultiHeadAttention { in_proj_weight, in_proj_bias, out_proj });

impl MultiHeadAttention {
    /// Creates a layer. The weight of the inputs is drawn by
    /// [`glorot_uniform`](Tensor::glorot_uniform), that of the result as [`Linear`]'s; biases
    /// are 0.
    /// # Errors
    /// If a number is not positive, or `embed_size` is no multiple of `num_heads`.
    pub fn new(embed_size: i64, num_heads: i64) -> Result<MultiHeadAttention, Error> {
        let sizes = [("embed_size", embed_size), ("num_heads", num_heads)];
        check_sizes("MultiHeadAttention", &sizes)?;
        if embed_size % num_heads != 0 {
            return invalid(format!(
                "MultiHeadAttention of embed_size {embed_size} with {num_heads} heads: the size \
                 must be a multiple of the heads"
            ));
        }
        let rows = embed_size.saturating_mul(3);
        let out_proj = Linear::without_bias(embed_size, embed_size)?;
        Ok(MultiHeadAttention {
            in_proj_weight: Tensor::glorot_uniform(DType::F32, &[rows, embed_size])?,
            in_proj_bias: Some(filled(&[rows], 0.0)?),
            out_proj: Linear { bias: Some(filled(&[embed_size], 0.0)?), ..out_proj },
            heads: num_heads,
            is_causal: false,
            dropout: 0.0,
        })
    }

    /// Returns the layer without biases.
    ///
    /// ```
    /// # use gradiff_nn::{MultiHeadAttention, get_state_dict};
    /// let layer = MultiHeadAttention::new(8, 2)?.without_bias();
    /// assert!(get_state_dict(&layer).keys().eq(["in_proj_weight", "out_proj.weight"]));
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    #[must_use]
    pub fn without_bias(self) -> MultiHeadAttention {
        let out_proj = Linear { bias: None, ..self.out_proj };
        MultiHeadAttention { in_proj_bias: None, out_proj, ..self }
    }

    /// Sets whether a query sees only the keys up to its position.
    ///
    /// ```
    /// # use gradiff_nn::{Module, MultiHeadAttention};
    /// # use gradiff_tensor::Tensor;
    /// let layer = MultiHeadAttention::new(2, 1)?.causal(true);
    /// let x = Tensor::from_slice(&[1, 2, 2], &[1.0f32, 2.0, 3.0, 4.0])?;
    /// let first = |x: &Tensor| layer.forward(x)?.slice(&[(0, 1, 1), (0, 1, 1)])?.to_vec::<f32>();
    /// let alone = first(&x.slice(&[(0, 1, 1), (0, 1, 1)])?)?;
    /// assert!(first(&x)?.iter().zip(&alone).all(|(x, y)| (x - y).abs() < 1e-5));
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    #[must_use]
    pub fn causal(self, is_causal: bool) -> MultiHeadAttention {
        MultiHeadAttention { is_causal, ..self }
    }

    /// Sets the probability that a weight of a value becomes 0 while training; 0 if it is not set.
    ///
    /// ```
    /// # use gradiff_nn::{Module, MultiHeadAttention};
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[1, 1, 2], &[1.0f32, 2.0])?;
    /// let layer = MultiHeadAttention::new(2, 1)?.dropout(1.0);
    /// let _training = Tensor::train(true);
    /// assert_eq!(layer.forward(&x)?.to_text()?, "[[[0.0, 0.0]]]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    #[must_use]
    pub fn dropout(self, dropout: f64) -> MultiHeadAttention {
        MultiHeadAttention { dropout, ..self }
    }

    /// Returns the attention of the queries to keys and values. The mask broadcasts to [n, heads,
    /// l, s]: bool, true for the keys that a query sees, or floats that are added to the scores.
    ///
    /// ```
    /// # use gradiff_nn::MultiHeadAttention;
    /// # use gradiff_tensor::Tensor;
    /// # use gradiff_graph::DType;
    /// let layer = MultiHeadAttention::new(8, 2)?;
    /// let queries = Tensor::ones(DType::F32, &[1, 3, 8])?;
    /// let keys = Tensor::ones(DType::F32, &[1, 5, 8])?;
    /// let mask = Tensor::from_slice(&[5], &[true, true, true, false, false])?;
    /// assert_eq!(layer.attend(&queries, &keys, &keys, Some(&mask))?.shape(), [1, 3, 8]);
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    /// # Errors
    /// If shapes do not fit, or dropout is not a probability.
    pub fn attend(
        &self,
        queries: &Tensor,
        keys: &Tensor,
        values: &Tensor,
        mask: Option<&Tensor>,
    ) -> Result<Tensor, Error> {
        let size = self.in_proj_weight.shape()[1];
        let fits = |x: &Tensor| x.rank() == 3 && x.shape()[2] == size;
        let is_paired = keys.shape() == values.shape() && fits(keys) && fits(queries);
        if !is_paired || queries.shape()[0] != keys.shape()[0] {
            return invalid(format!(
                "MultiHeadAttention of {queries:?} to {keys:?} and {values:?}: it takes [n, l, \
                 {size}], [n, s, {size}] and [n, s, {size}]"
            ));
        }
        let weights = self.in_proj_weight.chunk(3, 0)?;
        let biases = self.in_proj_bias.as_ref().map(|bias| bias.chunk(3, 0)).transpose()?;
        let projected = |x: &Tensor, number: usize| {
            let bias = biases.as_ref().map(|biases| &biases[number]);
            let (n, count) = (x.shape()[0], x.shape()[1]);
            let y = linear(x, &weights[number], bias)?;
            y.reshape(&[n, count, self.heads, size / self.heads])?.transpose(1, 2)
        };
        let (query, key, value) =
            (projected(queries, 0)?, projected(keys, 1)?, projected(values, 2)?);
        let mixed =
            query.scaled_dot_product_attention(&key, &value, mask, self.dropout, self.is_causal)?;
        self.out_proj.forward(&mixed.transpose(1, 2)?.reshape(queries.shape())?)
    }
}

impl Module for MultiHeadAttention {
    fn forward(&self, x: &Tensor) -> Result<Tensor, Error> {
        self.attend(x, x, x, None)
    }
}
