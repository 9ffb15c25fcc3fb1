//! Functions that layers share, composed of methods of `Tensor`, and their checks.

use gradiff_graph::DType;
use gradiff_tensor::{Error, Tensor};

/// The error for invalid arguments.
pub(crate) fn invalid<T>(message: impl Into<String>) -> Result<T, Error> {
    Err(Error::Invalid(message.into()))
}

/// Refuses sizes of a layer that are not positive.
pub(crate) fn check_sizes(layer: &str, sizes: &[(&str, i64)]) -> Result<(), Error> {
    match sizes.iter().find(|(_, size)| *size < 1) {
        Some((name, size)) => invalid(format!("{layer} with {name} {size}: it must be 1 or more")),
        None => Ok(()),
    }
}

/// Creates a parameter of uniform numbers between `-bound` and `bound`.
pub(crate) fn uniform(shape: &[i64], bound: f64) -> Result<Tensor, Error> {
    Tensor::uniform(DType::F32, shape, -bound, bound)
}

/// Creates a tensor of equal elements in a buffer. A constant would be part of the kernels, which
/// would change when the first step replaces it.
pub(crate) fn filled(shape: &[i64], value: f32) -> Result<Tensor, Error> {
    let count = Tensor::full(DType::F32, shape, value)?.size_elements();
    Tensor::from_slice(shape, &vec![value; count as usize])
}

/// Creates a tensor of equal elements that no optimiser changes.
pub(crate) fn buffer(shape: &[i64], value: f32) -> Result<Tensor, Error> {
    filled(shape, value)?.requires_grad_(false)
}

/// `x` [.., in] by the weight [out, in], transposed, plus the bias `[out]`: [.., out].
pub(crate) fn linear(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor, Error> {
    x.linear(&weight.transpose(0, 1)?, bias)
}

/// Returns a tensor with an element for each channel in the shape that broadcasts with images
/// [n, c, ..] of this rank.
pub(crate) fn per_channel(x: &Tensor, rank: usize) -> Result<Tensor, Error> {
    let mut shape = vec![1; rank];
    shape[1] = x.size_elements();
    x.reshape(&shape)
}

/// Multiplies by the weight and adds the bias, those that there are.
pub(crate) fn affine(
    x: Tensor,
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
) -> Result<Tensor, Error> {
    let x = match weight {
        Some(weight) => x.mul(weight)?,
        None => x,
    };
    match bias {
        Some(bias) => x.add(bias),
        None => Ok(x),
    }
}
