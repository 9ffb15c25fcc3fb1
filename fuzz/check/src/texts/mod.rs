//! The texts of languages whose devices need not be here, run on this machine.
//!
//! A text is compiled for the host as what it is (LLVM IR, OpenCL C) or as C++ with stand-ins for
//! what the language has besides (CUDA, Metal), and runs in a process of its own: a text that
//! strays or traps ends that process, not this one.

mod device;
mod host;
mod languages;
#[cfg(test)]
mod tests;

pub(crate) use device::Texts;
