//! The texts of languages, run on this machine without their devices.
//!
//! PTX and WGSL are interpreted. Others are compiled for the host, LLVM IR and OpenCL C directly,
//! CUDA and Metal as C++ with stand-ins for their other features, and run in a process of their
//! own: a text that crashes or traps ends that process, not this one.

mod assembly;
mod device;
mod host;
mod languages;
mod ptx;
mod races;
#[cfg(test)]
mod tests;
mod wgsl;

pub(crate) use languages::COMPILED;

use std::sync::Arc;

use gradiff::graph::Linear;
use gradiff::render::Code;
use gradiff::runtime::{Device, Error, Executable};

/// The device that runs texts in a language.
///
/// # Errors
/// A language whose texts cannot run here; a missing compiler.
pub(crate) fn open(language: &str) -> Result<Arc<dyn Device>, String> {
    match language {
        "ptx" => Ok(Arc::new(ptx::Ptx::open()?)),
        "wgsl" | "wgsl-core" => Ok(Arc::new(wgsl::Wgsl::open(language)?)),
        _ => Ok(Arc::new(device::Texts::open(language)?)),
    }
}

/// Returns whether a C compiler accepts the text of a kernel, and finds the kernel in it; `None` if
/// there is no compiler, or no text.
pub(crate) fn is_c(kernel: &Linear) -> Option<bool> {
    let language = gradiff::render::LANGUAGES.iter().find(|language| language.name == "c")?;
    let code = (language.render)(kernel).ok()?;
    let kernel = format!("const void *kernel_of_text = (const void *){};\n", kernel.name);
    host::is_valid_c(&((language.prelude)(&code.helpers) + &code.text + &kernel))
}

/// The reason why a text was not compiled.
pub(crate) enum Uncompiled {
    /// It cannot run here: an unknown language, a missing compiler, a kernel that is unsupported.
    NotHere(String),
    /// The text is wrong.
    Wrong(String),
}

/// Compiles texts in a language, each of which is to be the text of its kernel.
///
/// # Errors
/// See [`Uncompiled`].
pub(crate) fn compile(
    language: &str,
    kernels: &[(&Linear, &Code)],
) -> Result<Vec<Arc<dyn Executable>>, Uncompiled> {
    let classify = |error: Error| match error {
        Error::CompilerUnusable { .. } => Uncompiled::NotHere(error.to_string()),
        _ => Uncompiled::Wrong(error.to_string()),
    };
    if language == "ptx" {
        let ptx = ptx::Ptx::open().map_err(Uncompiled::NotHere)?;
        let compile = |(kernel, code): &(&Linear, &Code)| ptx.compile_text(kernel, code);
        return kernels.iter().map(compile).collect::<Result<_, _>>().map_err(classify);
    }
    if let "wgsl" | "wgsl-core" = language {
        let wgsl = wgsl::Wgsl::open(language).map_err(Uncompiled::NotHere)?;
        if let Some(reason) = kernels.iter().find_map(|(kernel, _)| wgsl.unsupported(kernel)) {
            return Err(Uncompiled::NotHere(reason));
        }
        let compile = |(kernel, code): &(&Linear, &Code)| wgsl.compile_text(kernel, code);
        return kernels.iter().map(compile).collect::<Result<_, _>>().map_err(classify);
    }
    let texts = device::Texts::open(language).map_err(Uncompiled::NotHere)?;
    match kernels.iter().find_map(|(kernel, _)| texts.unsupported(kernel)) {
        Some(reason) => Err(Uncompiled::NotHere(reason)),
        None => texts.compile_texts(kernels).map_err(classify),
    }
}
