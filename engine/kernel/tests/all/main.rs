//! The tests of this crate in one binary.

mod cascade;
mod common;
mod heuristics;
mod kernels;
mod limits;
mod passes;
mod random_kernels;
mod stage;
mod tensor_cores;
