//! The texts of languages whose devices need not be here, run on this machine.
//!
//! PTX is interpreted. Others are compiled for the host, as what they are (LLVM IR, OpenCL C) or as
//! C++ with stand-ins for what the language has besides (CUDA, Metal), and run in a process of their
//! own: a text that strays or traps ends that process, not this one.

mod device;
mod host;
mod languages;
mod ptx;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use gradiff::runtime::Device;

/// The device that runs texts in a language.
///
/// # Errors
/// A language whose texts nothing runs; no compiler.
pub(crate) fn open(language: &str) -> Result<Arc<dyn Device>, String> {
    match language {
        "ptx" => Ok(Arc::new(ptx::Ptx::open()?)),
        _ => Ok(Arc::new(device::Texts::open(language)?)),
    }
}
