//! The same kernels on every device.

mod common;
mod groups;
mod kernels;
mod ops;
mod vectors;
