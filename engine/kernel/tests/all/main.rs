//! The tests of this room in one binary.

mod common;
mod faults;
mod heuristics;
mod kernels;
mod random_kernels;
mod tensor_cores;
