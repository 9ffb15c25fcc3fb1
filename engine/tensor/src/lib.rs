//! The lazy Tensor, and the engine that computes it.
//!
//! A [`Tensor`] is a node of the graph, and its methods add nodes. Dtypes are promoted and shapes
//! broadcast here, so that in all later crates the sources of an op have the same dtype and shape.
//! An [`Engine`] turns nodes into kernels for a device, caches the compiled kernels, and runs them.
//! This crate knows no index, no loop and no particular device.

mod cache;
mod compose;
mod debug;
mod element;
mod elementwise;
mod engine;
mod error;
mod movement;
mod operand;
mod promotion;
mod read;
mod reduce;
mod search;
mod tensor;

pub use element::Element;
pub use engine::{Engine, Plan, PlannedKernel};
pub use error::Error;
pub use operand::{Operand, Scalar};
pub use promotion::promote;
pub use tensor::{MAX_ELEMENTS, Tensor};
