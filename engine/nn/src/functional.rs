//! Functions that layers share, composed of methods of `Tensor`, and their checks.

use gradiff_graph::DType;
use gradiff_tensor::{Error, Tensor};

/// The maximal number of elements of a parameter: a kernel stores no more.
const MAX_ELEMENTS: i64 = 1 << 32;

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

/// Refuses options of a layer or an optimiser that are negative or not finite.
pub(crate) fn check_options(user: &str, options: &[(&str, f64)]) -> Result<(), Error> {
    match options.iter().find(|(_, value)| !(0.0..f64::INFINITY).contains(value)) {
        Some((name, value)) => {
            invalid(format!("{user} with {name} {value}: it must be finite, and 0 or more"))
        }
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
    if MAX_ELEMENTS < count {
        return invalid(format!(
            "a parameter of shape {shape:?}: it may have {MAX_ELEMENTS} elements at most"
        ));
    }
    let mut bytes = zeroed(count, size_of::<f32>())?;
    for element in bytes.chunks_exact_mut(size_of::<f32>()) {
        element.copy_from_slice(&value.to_le_bytes());
    }
    Tensor::from_bytes(DType::F32, shape, &bytes)
}

/// Returns the bytes of so many zeros, if there is memory for them.
pub(crate) fn zeroed(count: i64, size_bytes: usize) -> Result<Vec<u8>, Error> {
    let size_bytes = usize::try_from(count).unwrap_or(usize::MAX).saturating_mul(size_bytes);
    let mut bytes = Vec::new();
    if bytes.try_reserve_exact(size_bytes).is_err() {
        return invalid(format!("a tensor of {size_bytes} bytes: they do not fit in memory"));
    }
    bytes.resize(size_bytes, 0);
    Ok(bytes)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_do_not_fit_in_memory_are_an_error() {
        assert_eq!(zeroed(3, 2).expect("six bytes"), [0; 6]);
        for count in [i64::MAX, -1] {
            let error = zeroed(count, 8).expect_err("too many").to_string();
            assert!(error.contains("do not fit in memory"), "{error}");
        }
    }
}
