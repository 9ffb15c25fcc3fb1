//! What a renderer refuses.

use gradiff_graph::{DType, Op};

/// Why a kernel has no text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The op is not one of a linear kernel, or the language lacks it for this dtype.
    #[error("kernel {kernel}, uop {position}: {language} has no {op}{}", of(*.dtype, *.lanes))]
    Unsupported {
        /// The language.
        language: &'static str,
        /// The name of the kernel.
        kernel: String,
        /// The uop's place in the list.
        position: usize,
        /// What it does.
        op: Op,
        /// The type of its first source, or its own.
        dtype: DType,
        /// How many lanes of it.
        lanes: u8,
    },
    /// The language has no such type of values, or none that arrays may have.
    #[error(
        "kernel {kernel}: {language} has no arrays or values of {dtype}; cast to a type that it \
         has, or choose another device"
    )]
    Type {
        /// The language.
        language: &'static str,
        /// The name of the kernel.
        kernel: String,
        /// The type.
        dtype: DType,
    },
    /// The name of the kernel is no identifier.
    #[error("kernel name `{0}` is no identifier: letters, digits and _ only, no digit first")]
    Name(String),
}

/// ` of f32x4`; nothing for what is of no value.
fn of(dtype: DType, lanes: u8) -> String {
    match (dtype, lanes) {
        (DType::Void, _) => String::new(),
        (_, 1) => format!(" of {dtype}"),
        _ => format!(" of {dtype}x{lanes}"),
    }
}
