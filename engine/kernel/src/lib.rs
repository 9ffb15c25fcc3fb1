//! Lowering of a kernel, from its tree over views to linear uops.
//!
//! In: `Sink(Store(data0, value))` whose loads, constants and stores carry shape trackers. Out: a
//! [`Linear`](gradiff_graph::Linear) with loops, addresses and accumulators. First the passes of
//! [`PASSES`](passes::PASSES) run, each from graph to graph, so that the kernel can be printed and
//! evaluated after any of them; then those of [`LINEAR_PASSES`](passes::LINEAR_PASSES). This crate
//! knows no device and no buffer: arrays are slots, and [`Target`](gradiff_graph::Target) says what
//! a device supports.

mod accumulators;
mod cache_inputs;
mod cached_rows;
mod cascade;
mod context;
mod contract;
mod edit;
mod error;
mod expand;
mod extent;
mod fragments;
mod free;
mod globals;
mod interleave;
mod interval;
mod legalize;
mod linearize;
mod lower;
mod merge_loads;
mod name;
mod narrow;
mod nodes;
mod opt;
mod pass;
mod pipeline;
mod prefetch;
mod reassociate;
mod scatter;
mod shape;
mod sink;
mod split_axes;
mod stride;
mod transcendental;

pub use context::Options;
pub use error::Error;
pub use name::name;
pub use opt::{Opt, OptOp, Setting, Strategy, apply, check, draw, heuristic, legal, loops};
pub use pass::{Stages, lower, stages};

/// The passes one by one, for those who look at or check each.
pub mod passes {
    pub use crate::context::Context;
    pub use crate::linearize::linearize;
    pub use crate::pass::{
        GraphPass, LINEAR_PASSES, LINEARIZE, LinearPass, Linearize, PASSES, Pass, before_optimize,
    };
}
