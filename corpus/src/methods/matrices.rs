//! Typing of functions of matrices, which are the last two axes, and of digests.

use super::Args;
use super::reduction::{check_float, wide};
use crate::{DType, TensorType, float_value, literal_bits};

type Typed = Result<TensorType, String>;

/// The numbers of rows and columns of the matrices.
fn sizes(src: &TensorType) -> Result<[usize; 2], String> {
    check_float(src.dtype)?;
    match src.shape.last_chunk::<2>() {
        Some(sizes) => Ok(*sizes),
        None => Err(format!("{:?} has fewer than two axes", src.shape)),
    }
}

/// The type of matrices whose singular values are brought near 1.
pub(super) fn newton_schulz(srcs: &[&TensorType], args: Args<'_>) -> Typed {
    let dtype = wide(srcs[0].dtype);
    sizes(srcs[0])?;
    if args.int(0) < 0 {
        return Err(format!("{} steps", args.int(0)));
    }
    for number in 1..5 {
        let literal = args.number(number);
        let value = literal_bits(dtype, &literal).map(|bits| float_value(dtype, bits));
        if !value.is_some_and(|value| value.is_finite() && (number < 4 || 0.0 <= value)) {
            return Err(format!("number {literal}: it must be finite, and eps not negative"));
        }
    }
    Ok(srcs[0].clone())
}

/// The type of the orthogonal factor.
pub(super) fn qr_q(srcs: &[&TensorType], _: Args<'_>) -> Typed {
    let [rows, _] = sizes(srcs[0])?;
    let mut q = srcs[0].clone();
    *q.shape.last_mut().expect("a matrix has columns") = rows;
    Ok(q)
}

/// The type of the triangular factor.
pub(super) fn qr_r(srcs: &[&TensorType], _: Args<'_>) -> Typed {
    sizes(srcs[0])?;
    Ok(srcs[0].clone())
}

/// The type of digests.
pub(super) fn keccak(srcs: &[&TensorType], args: Args<'_>) -> Typed {
    let mut shape = srcs[0].shape.clone();
    let last = shape.last_mut().ok_or("a scalar has no last axis")?;
    *last = match args.word(0) {
        "sha3_224" => 28,
        "sha3_256" => 32,
        _ => 16,
    };
    Ok(TensorType { dtype: DType::U8, shape })
}
