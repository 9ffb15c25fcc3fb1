//! Slow evaluators of the IR, one for each level: scalars, nodes at a point, tensor graphs, kernel
//! trees and graphs, linear uops.
//!
//! In: nodes or instructions of `gradiff-graph`, and the elements of their buffers. Out: elements,
//! or what is wrong with an access. Tests of the engine's passes, proofs of rules and blame compare
//! the levels with each other. From the engine they take the nodes and the index algebra of views,
//! and no meaning: the scalar meanings, the identities of reductions and the ranges of types are
//! stated in [`scalar`] again. `gradiff-oracle` evaluates programs and knows no IR.

pub mod graph;
pub mod kernel;
pub mod linear;
pub mod point;
mod product;
pub mod scalar;

use gradiff_graph::Constant;

/// Elements of a tensor or of a parameter; `None` is undefined or not written yet.
pub type Elements = Vec<Option<Constant>>;
