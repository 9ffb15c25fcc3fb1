//! The same kernels on every device.

mod common;
mod drawn;
mod drivers;
mod groups;
mod kernels;
mod ops;
mod parts;
mod products;
mod small_types;
#[cfg(target_os = "linux")]
mod stack;
mod vectors;
