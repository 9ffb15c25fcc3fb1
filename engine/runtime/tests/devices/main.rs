//! The same kernels on every device.

mod common;
mod kernels;
mod ops;
