//! Reasons why a kernel cannot be rendered.

use gradiff_graph::{DType, Op};

/// The reason why a kernel cannot be rendered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The op is not an op of linear kernels, or the language does not have it for this dtype.
    #[error("kernel {kernel}, uop {position}: {language} has no {op}{}", typed(*.dtype, *.lanes))]
    Unsupported {
        /// The language.
        language: &'static str,
        /// The name of the kernel.
        kernel: String,
        /// Index of the uop in the list.
        position: usize,
        /// The op of the uop.
        op: Op,
        /// The type of the uop's first source; of the uop itself if it has no source.
        dtype: DType,
        /// The number of lanes.
        lanes: u8,
    },
    /// The language does not have this type, or not as an element type of arrays.
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
    /// The name of the kernel is not an identifier.
    #[error(
        "kernel name `{0}` is not an identifier: only letters, digits and _, and no digit first"
    )]
    Name(String),
}

/// Operand type for the message, as ` of f32x4`; empty for void.
fn typed(dtype: DType, lanes: u8) -> String {
    match (dtype, lanes) {
        (DType::Void, _) => String::new(),
        (_, 1) => format!(" of {dtype}"),
        _ => format!(" of {dtype}x{lanes}"),
    }
}
