//! Neural networks: layers, optimisers, learning-rate schedules, and state dicts.
//!
//! Layers have the names, arguments, defaults and initial values of tinygrad 0.10.2, or follow
//! PyTorch where it has none, and their tensors the names of its state dicts, which are PyTorch's.
//! A layer is a struct of tensors; a model is a struct of layers, for which [`state!`] writes
//! [`State`]: the single way in which parameters and buffers are found. Layers are on the default
//! device.
//!
//! Nothing here computes, but for an optimiser: it computes the parameters when it is created, and
//! in each step all parameters, buffers and its state in one run. An update is an
//! [`assign`](gradiff_tensor::Tensor::assign). A [`BatchNorm`] computes its buffers when more than
//! 30 batches wait for a step.
//!
//! ```
//! use gradiff_nn::optim::{Optimizer, SGD};
//! use gradiff_nn::{Linear, Module, get_parameters, state};
//! use gradiff_tensor::{Error, Tensor};
//!
//! struct Net {
//!     l1: Linear,
//!     l2: Linear,
//! }
//! state!(Net { l1, l2 });
//!
//! impl Module for Net {
//!     fn forward(&self, x: &Tensor) -> Result<Tensor, Error> {
//!         self.l2.forward(&self.l1.forward(x)?.relu()?)
//!     }
//! }
//!
//! # fn main() -> Result<(), Error> {
//! let net = Net { l1: Linear::new(2, 8)?, l2: Linear::new(8, 1)? };
//! let mut optimizer = SGD::new(get_parameters(&net), 0.1)?;
//! let (x, y) = (Tensor::ones(gradiff_graph::DType::F32, &[4, 2])?, 3.0);
//! let mut losses = Vec::new();
//! let _training = Tensor::train(true);
//! for _ in 0..10 {
//!     optimizer.zero_grad();
//!     let loss = net.forward(&x)?.sub(y)?.square()?.mean(..)?;
//!     loss.backward()?;
//!     optimizer.step_with(&[&loss])?;
//!     losses.push(loss.item::<f32>()?);
//! }
//! assert!(losses[9] < losses[0]);
//! # Ok(())
//! # }
//! ```

mod attention;
mod convolution;
mod dropout;
mod embedding;
mod functional;
mod linear;
mod module;
mod normalization;
mod recurrent;
mod state;

pub mod optim;

pub use attention::MultiHeadAttention;
pub use convolution::{
    Conv1d, Conv2d, ConvNd, ConvOptions, ConvTranspose1d, ConvTranspose2d, ConvTransposeNd,
};
pub use dropout::Dropout;
pub use embedding::Embedding;
pub use linear::Linear;
pub use module::{Function, Module};
pub use normalization::{
    BatchNorm, BatchNorm2d, BatchNorm3d, GroupNorm, InstanceNorm, LayerNorm, LayerNorm2d, RMSNorm,
    Shape,
};
pub use optim::clip::{clip_grad_norm, clip_grad_value};
pub use recurrent::{GRUCell, LSTMCell};
pub use state::{
    State, Unmatched, Visitor, get_parameters, get_state_dict, load_state_dict,
    load_state_dict_partial,
};
