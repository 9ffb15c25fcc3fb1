//! The same kernels on every device.

mod common;
mod groups;
mod kernels;
mod opencl;
mod ops;
mod products;
mod vectors;
