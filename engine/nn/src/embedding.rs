//! Embeddings.

use gradiff_graph::DType;
use gradiff_tensor::{Error, Tensor};

use crate::functional::{check_sizes, invalid};
use crate::{Module, state};

/// A table with a row for each number below the size of the vocabulary: integers [..] give [..,
/// embed_size]. A number that is negative or too large gives zeros.
///
/// ```
/// # use gradiff_nn::{Embedding, Module};
/// # use gradiff_tensor::Tensor;
/// let layer = Embedding::new(10, 3)?;
/// let numbers = Tensor::from_slice(&[4], &[1, 2, 3, 1])?;
/// assert_eq!(layer.forward(&numbers)?.shape(), [4, 3]);
/// # Ok::<(), gradiff_tensor::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Embedding {
    /// The table [vocab_size, embed_size].
    pub weight: Tensor,
}
state!(Embedding { weight });

impl Embedding {
    /// Creates a table by [`glorot_uniform`](Tensor::glorot_uniform).
    /// # Errors
    /// If a size is not positive, or the table would be too large.
    pub fn new(vocab_size: i64, embed_size: i64) -> Result<Embedding, Error> {
        check_sizes("Embedding", &[("vocab_size", vocab_size), ("embed_size", embed_size)])?;
        Ok(Embedding { weight: Tensor::glorot_uniform(DType::F32, &[vocab_size, embed_size])? })
    }
}

impl Module for Embedding {
    fn forward(&self, numbers: &Tensor) -> Result<Tensor, Error> {
        if !numbers.dtype().is_int() {
            return invalid(format!("Embedding of {numbers:?}: it takes integers"));
        }
        let count = numbers.size_elements();
        let rows = self.weight.index_select(&numbers.reshape(&[count])?, 0)?;
        let mut shape = numbers.shape().to_vec();
        shape.push(self.weight.shape()[1]);
        rows.reshape(&shape)
    }
}
