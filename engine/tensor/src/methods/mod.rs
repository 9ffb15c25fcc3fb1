//! Methods that are composed of others, a file for each family. The harness judges each by its
//! definition in the oracle; a row of `corpus/src/methods` says what it takes.

pub(crate) mod activation;
mod attention;
mod creation;
mod cumulative;
mod einsum;
mod elementary;
mod elementwise;
mod fmod;
mod indexing;
mod interpolation;
mod keccak;
mod losses;
mod matrices;
pub(crate) mod movement;
mod ordering;
mod pooling_gradient;
mod rearrange;
mod reduction;
mod selection;
mod softmax;
mod sums_by_index;
mod transposed;
pub(crate) mod windows;

pub use indexing::Scattered;
pub use interpolation::Interpolation;
pub use keccak::Keccak;
pub use losses::Reduction;
pub use movement::Indexing;
pub use windows::{Conv, PerAxis, Pool};
