//! Dropout.

use gradiff_tensor::{Error, Tensor};

use crate::functional::invalid;
use crate::{Module, state};

/// A layer that drops elements during training ([`Tensor::train`]): each is 0 with probability p,
/// and otherwise multiplied by `1 / (1 - p)`. Without training, the output is the input. It has no
/// tensors.
///
/// ```
/// # use gradiff_nn::{Dropout, Linear, Module};
/// # use gradiff_tensor::Tensor;
/// let model = (Linear::new(2, 8)?, Dropout::new(0.5)?, Linear::new(8, 3)?);
/// let x = Tensor::from_slice(&[1, 2], &[1.0f32, 2.0])?;
/// let _training = Tensor::train(true);
/// assert_eq!(model.forward(&x)?.shape(), [1, 3]);
/// # Ok::<(), gradiff_tensor::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Dropout {
    p: f64,
}
state!(Dropout {});

impl Dropout {
    /// Creates a layer; 0.5 is a usual probability.
    /// # Errors
    /// If p is not from 0 to 1.
    pub fn new(p: f64) -> Result<Dropout, Error> {
        if !(0.0..=1.0).contains(&p) {
            return invalid(format!("Dropout with probability {p}: it must be from 0 to 1"));
        }
        Ok(Dropout { p })
    }
}

impl Module for Dropout {
    fn forward(&self, x: &Tensor) -> Result<Tensor, Error> {
        x.dropout(self.p)
    }
}
