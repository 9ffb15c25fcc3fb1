//! The tests of this room in one binary.

mod cascade;
mod common;
mod heuristics;
mod kernels;
mod passes;
mod random_kernels;
mod tensor_cores;
