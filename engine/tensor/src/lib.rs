//! The lazy Tensor, and the engine that computes it.
//!
//! A [`Tensor`] is a node of the graph, and its methods add nodes. Dtypes are promoted and shapes
//! broadcast here, so that in all later crates the sources of an op have the same dtype and shape.
//! A tensor is on a device, where reads compute it; [`Tensor::to`] copies it to another one. An
//! [`Engine`] turns nodes into kernels for a device, caches the compiled kernels, and runs them.
//! Reads use one for each device; a program may also make engines with options of its choice.
//! This crate knows no index, no loop and no particular device.

mod assign;
mod axes;
mod cache;
mod comparison;
mod compose;
mod convert;
mod debug;
mod device;
mod display;
mod element;
mod elementwise;
mod engine;
mod environment;
mod error;
mod from_uop;
mod gradient;
mod index;
mod methods;
mod modes;
mod movement;
mod operand;
mod operators;
mod parameters;
mod placement;
mod plan;
mod promotion;
mod random;
mod read;
mod reduce;
mod scalar;
mod search;
mod slices;
mod state;
mod templates;
mod tensor;

pub use axes::{Axes, keepdim};
pub use convert::Nested;
pub use device::realize;
pub use element::Element;
pub use engine::Engine;
pub use error::Error;
pub use gradiff_runtime::default_device;
/// The crate of [`half::f16`] and [`half::bf16`], in the version of which they are an [`Element`].
pub use half;
pub use index::{Ellipsis, Index, Indices, NewAxis, Position, PositionRange, stepped};
pub use methods::{Conv, Indexing, Interpolation, Keccak, PerAxis, Pool, Reduction, Scattered};
pub use modes::Mode;
pub use operand::Operand;
pub use plan::{Plan, PlannedKernel};
pub use promotion::promote;
pub use random::RandomOn;
pub use scalar::Scalar;
pub use tensor::{MAX_ELEMENTS, Tensor};
