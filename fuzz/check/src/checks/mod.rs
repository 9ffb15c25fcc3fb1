//! Checks of parts of the engine on drawn subjects: calls of the API, kernels, kernel trees,
//! trackers, index expressions, sequences of optimisations.

pub(crate) mod calls;
pub(crate) mod equal;
pub(crate) mod exprs;
pub(crate) mod gathers;
pub(crate) mod kernels;
pub(crate) mod legality;
pub(crate) mod listing;
pub(crate) mod lowering;
pub(crate) mod matmuls;
pub(crate) mod nests;
pub(crate) mod opts;
pub(crate) mod parts;
pub(crate) mod points;
pub(crate) mod scatters;
pub(crate) mod sums;
pub(crate) mod symbolic;
pub(crate) mod trees;
pub(crate) mod upstream;
pub(crate) mod views;
