//! The Rust types of elements.

use gradiff_graph::DType;
use half::{bf16, f16};

/// A Rust type that corresponds to a dtype of the engine.
///
/// ```
/// # use gradiff_tensor::{Tensor, half::f16};
/// let x = Tensor::from_slice(&[2], &[f16::ONE, f16::from_f32(0.5)])?;
/// assert_eq!(x.to_vec::<f16>()?, [f16::ONE, f16::from_f32(0.5)]);
/// # Ok::<(), gradiff_tensor::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "tensors have no elements of the type `{Self}`",
    label = "no type of elements",
    note = "types of elements are bool, i8 to i64, u8 to u64, f32, f64, and `f16` and `bf16` of \
            `gradiff::half`; usize is converted to i64 first"
)]
pub trait Element: Copy + Send + Sync + 'static {
    /// The dtype.
    const DTYPE: DType;

    /// Decodes an element from its bytes: little endian, as many as the dtype has.
    fn from_bytes(bytes: &[u8]) -> Self;

    /// Appends the element's bytes, little endian.
    fn push_bytes(self, bytes: &mut Vec<u8>);
}

macro_rules! elements {
    ($($rust:ty => $dtype:ident,)*) => {$(
        impl Element for $rust {
            const DTYPE: DType = DType::$dtype;

            fn from_bytes(bytes: &[u8]) -> $rust {
                <$rust>::from_le_bytes(bytes.try_into().expect("as many bytes as the dtype has"))
            }

            fn push_bytes(self, bytes: &mut Vec<u8>) {
                bytes.extend_from_slice(&self.to_le_bytes());
            }
        }
    )*};
}

elements! {
    i8 => I8, u8 => U8, i16 => I16, u16 => U16, i32 => I32, u32 => U32, i64 => I64, u64 => U64,
    f16 => F16, bf16 => BF16, f32 => F32, f64 => F64,
}

impl Element for bool {
    const DTYPE: DType = DType::Bool;

    fn from_bytes(bytes: &[u8]) -> bool {
        bytes[0] != 0
    }

    fn push_bytes(self, bytes: &mut Vec<u8>) {
        bytes.push(u8::from(self));
    }
}
