//! A lazy tensor library and kernel compiler after tinygrad's architecture.
//!
//! The crates, in the order in which a program passes through them:
//!
//! | crate | in | out |
//! |---|---|---|
//! | [`tensor`] | calls of methods of `Tensor` | a graph of nodes; at `realize`, kernels that run |
//! | [`schedule`] | a graph | kernel trees in order, and their buffers |
//! | [`kernel`] | a kernel tree | linear uops |
//! | [`render`] | linear uops | source text |
//! | [`runtime`] | linear uops, bytes | executables, bytes |
//!
//! [`files`] reads and writes tensors in files, [`nn`] has layers and optimisers. Below the crates
//! of the table are [`graph`] (the nodes), [`view`] (index algebra) and [`rewrite`] (rules).
//! `README.md` in the folder of this crate lists the environment variables and the devices, and
//! says how to add an op, a rule, a pass, a language, a device or a method.
//!
//! ```
//! use gradiff::Tensor;
//!
//! # fn main() -> Result<(), gradiff::Error> {
//! let a = Tensor::new([[1, 2, 3], [4, 5, 6]])?;
//! let moved = a.flip(&[1])?.reshape(&[3, 2])?.flip(&[0])?;
//! assert_eq!(moved.to_text()?, "[[5, 4], [1, 6], [3, 2]]");
//! # Ok(())
//! # }
//! ```

pub use gradiff_tensor::{
    Axes, Conv, Element, Ellipsis, Engine, Error, Index, Indexing, Indices, Interpolation, Keccak,
    Mode, Nested, NewAxis, Operand, PerAxis, Plan, PlannedKernel, Pool, RandomOn, Reduction,
    Scalar, Scattered, Tensor, default_device, half, keepdim, realize, stepped,
};

/// The lazy tensor, and the engines that compute it.
pub use gradiff_tensor as tensor;

/// Tensors in files: safetensors, NumPy, PyTorch, GGUF.
pub use gradiff_files as files;

/// Layers, optimisers, learning-rate schedules, state dicts.
pub use gradiff_nn as nn;

/// From a tensor graph to ordered kernels and buffers.
pub use gradiff_schedule as schedule;

/// From a kernel tree to linear uops.
pub use gradiff_kernel as kernel;

/// From linear uops to source text.
pub use gradiff_render as render;

/// Devices, memory, compilers, launches.
pub use gradiff_runtime as runtime;

/// The nodes of the graph, on which all crates but `view` build.
pub use gradiff_graph as graph;

pub use gradiff_graph::{DType, UOp};

/// Views and shape trackers.
pub use gradiff_view as view;

/// Rewrite rules, the driver that applies them, and bounds of nodes.
pub use gradiff_rewrite as rewrite;

/// The programs of `nn/README.md`.
#[cfg(doctest)]
#[doc = include_str!("../nn/README.md")]
pub struct ProgramsOfNn;
