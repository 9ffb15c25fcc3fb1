//! Optimisers and learning-rate schedules, with the formulas and defaults of tinygrad, or, of
//! [`RMSprop`], those of PyTorch.
//!
//! | optimiser | update |
//! |---|---|
//! | [`SGD`] | the gradient, with momentum |
//! | [`LARS`] | that, scaled by the ratio of the norms of parameter and gradient |
//! | [`Muon`] | an orthogonal matrix near the momentum |
//! | [`RMSprop`] | the gradient divided by the root of the mean square |
//! | [`Adam`], [`AdamW`] | the mean gradient divided by the root of the mean square |
//! | [`LAMB`] | that, scaled by the ratio of the norms of parameter and update |
//!
//! A step replaces the parameters by [`assign`](gradiff_tensor::Tensor::assign), and computes them
//! in one run with the state of the optimiser and the buffers of the model, so that no graph grows
//! from step to step.

pub(crate) mod clip;
mod lamb;
mod lars;
mod optimizer;
mod rmsprop;
mod schedules;

pub use lamb::{Adam, AdamW, LAMB};
pub use lars::{LARS, Muon, SGD};
pub use optimizer::{Optimizer, OptimizerGroup};
pub use rmsprop::RMSprop;
pub use schedules::{
    CosineAnnealingLR, LRScheduler, Metric, MultiStepLR, OneCycleLR, ReduceLROnPlateau, StepLR,
};
