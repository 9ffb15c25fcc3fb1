//! Scalars, which adopt the dtype of the tensors that they are combined with.

use gradiff_graph::{Constant, DType};

use crate::Error;
use crate::error::invalid;

/// A literal number; it is converted to the dtype of the op's tensors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar {
    /// For bool tensors only.
    Bool(bool),
    /// For integer tensors whose dtype can represent it, and for float tensors.
    Int(i128),
    /// For float tensors only; rounded to nearest even.
    Float(f64),
}

impl Scalar {
    /// Converts to an element of this dtype.
    /// # Errors
    /// If the dtype cannot represent the scalar.
    pub fn element(self, dtype: DType) -> Result<Constant, Error> {
        match self {
            Scalar::Bool(value) if dtype == DType::Bool => Ok(Constant::bool(value)),
            Scalar::Float(value) if dtype.is_float() => Ok(Constant::float(dtype, value)),
            Scalar::Int(value) if dtype.is_float() => Ok(Constant::int(dtype, value)),
            Scalar::Int(value) if dtype.is_int() => match dtype.int_range() {
                Some((low, high)) if low <= value && value <= high => {
                    Ok(Constant::int(dtype, value))
                }
                _ => invalid(format!(
                    "scalar {value} with a tensor of {dtype}: it does not fit; cast the tensor to \
                     a wider dtype"
                )),
            },
            _ => invalid(format!(
                "scalar {self:?} with a tensor of {dtype}: bool tensors take true and false, \
                 integer tensors integers, float tensors numbers; cast the tensor"
            )),
        }
    }
}

macro_rules! scalars {
    ($($kind:ident($wide:ty): $($rust:ty)*;)*) => {$($(
        impl From<$rust> for Scalar {
            fn from(value: $rust) -> Scalar {
                Scalar::$kind(<$wide>::from(value))
            }
        }
    )*)*};
}

scalars! {
    Bool(bool): bool;
    Int(i128): i8 u8 i16 u16 i32 u32 i64 u64 i128;
    Float(f64): f32 f64;
}

impl From<usize> for Scalar {
    fn from(value: usize) -> Scalar {
        Scalar::Int(value as i128)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tensor;

    #[test]
    fn sizes_are_integers_that_take_the_dtype() -> Result<(), Error> {
        let count = [1, 2, 3].len();
        let x = Tensor::from_slice(&[2], &[6u8, 9])?.to("interp")?;
        assert_eq!((&x * count).to_text()?, "[18, 27]");
        assert_eq!(x.div(count)?.to_text()?, "[2.0, 3.0]");
        let halves = Tensor::from_slice(&[1], &[1.5f32])?.to("interp")?;
        assert_eq!((&halves + count).dtype(), DType::F32);
        assert!(x.add(256usize).is_err());
        assert_eq!(Tensor::scalar(DType::U64, usize::MAX)?.to_text()?, usize::MAX.to_string());
        Ok(())
    }
}
