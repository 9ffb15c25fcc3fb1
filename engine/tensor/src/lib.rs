//! The lazy Tensor, and the engine that computes it.
//!
//! A [`Tensor`] is a node of the graph; its methods build more of the graph: dtypes are promoted
//! and shapes broadcast here, so that below this room both are equal wherever an op has several
//! sources. An [`Engine`] turns nodes into kernels of one device, keeps compiled ones, and runs
//! them. This room knows no index, no loop and no device's ways.

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
