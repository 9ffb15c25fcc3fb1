//! Operands of elementwise ops: tensors, and scalars that adopt their dtype.

use crate::{Scalar, Tensor};

/// An operand of an elementwise op.
#[derive(Clone, Debug)]
pub enum Operand {
    /// A tensor; it is broadcast and promoted.
    Tensor(Tensor),
    /// A scalar; it takes the dtype of the op's tensors.
    Scalar(Scalar),
}

impl From<&Tensor> for Operand {
    fn from(tensor: &Tensor) -> Operand {
        Operand::Tensor(tensor.clone())
    }
}

impl From<Tensor> for Operand {
    fn from(tensor: Tensor) -> Operand {
        Operand::Tensor(tensor)
    }
}

impl<T: Into<Scalar>> From<T> for Operand {
    fn from(scalar: T) -> Operand {
        Operand::Scalar(scalar.into())
    }
}
