//! Typing of functions of matrices, which are the last two axes, and of digests.

use super::Args;
use super::reduction::{check_float, wide};
use crate::{DType, TensorType, float_value, geometry, literal_bits};

/// Maximum number of steps of a polynomial.
const MAX_STEPS: i64 = 64;
/// Maximum number of bytes of a message.
const MAX_MESSAGE: usize = 1 << 16;

type Typed = Result<TensorType, String>;

/// The numbers of rows and columns of the matrices.
fn sizes(src: &TensorType) -> Result<[usize; 2], String> {
    check_float(src.dtype)?;
    match src.shape.last_chunk::<2>() {
        Some(sizes) => Ok(*sizes),
        None => Err(format!("{:?} has fewer than two axes", src.shape)),
    }
}

/// Checks that the products, before they are summed, are not too many: those of each element of
/// matrices of these sizes with `depth` others.
fn check_products(src: &TensorType, sizes: [usize; 2], depth: usize) -> Result<(), String> {
    let outer = &src.shape[..src.shape.len() - 2];
    geometry::check_size(&[outer, &sizes, &[depth]].concat()).map(|_| ())
}

/// The type of matrices whose singular values are brought near 1.
pub(super) fn newton_schulz(srcs: &[&TensorType], args: Args<'_>) -> Typed {
    let dtype = wide(srcs[0].dtype);
    let [rows, columns] = sizes(srcs[0])?;
    check_products(srcs[0], [rows, columns], rows.min(columns))?;
    if !(0..=MAX_STEPS).contains(&args.int(0)) {
        return Err(format!("{} steps: it takes 0 to {MAX_STEPS}", args.int(0)));
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
    let [rows, columns] = sizes(srcs[0])?;
    check_products(srcs[0], [rows, rows.max(columns)], rows.min(columns))?;
    let mut q = srcs[0].clone();
    *q.shape.last_mut().expect("a matrix has columns") = rows;
    Ok(q)
}

/// The type of the triangular factor.
pub(super) fn qr_r(srcs: &[&TensorType], args: Args<'_>) -> Typed {
    qr_q(srcs, args)?;
    Ok(srcs[0].clone())
}

/// Maximum number of singular values.
const MAX_VALUES: usize = 256;

/// The numbers of rows and columns of matrices that are factorized.
fn singular(src: &TensorType) -> Result<[usize; 2], String> {
    let [rows, columns] = sizes(src)?;
    check_products(src, [rows, rows.max(columns)], rows.max(columns))?;
    match rows.min(columns) {
        count if count <= MAX_VALUES => Ok([rows, columns]),
        count => Err(format!("{count} singular values: it takes at most {MAX_VALUES}")),
    }
}

/// Matrices of another size in the place of those of a source.
fn resized(src: &TensorType, sizes: &[usize]) -> TensorType {
    let outer = &src.shape[..src.shape.len() - 2];
    TensorType { dtype: src.dtype, shape: [outer, sizes].concat() }
}

/// The type of singular values.
pub(super) fn svd_s(srcs: &[&TensorType], _: Args<'_>) -> Typed {
    let [rows, columns] = singular(srcs[0])?;
    Ok(resized(srcs[0], &[rows.min(columns)]))
}

/// The type of the product of the factors.
pub(super) fn svd_product(srcs: &[&TensorType], _: Args<'_>) -> Typed {
    singular(srcs[0]).map(|_| srcs[0].clone())
}

/// The type of the products of left vectors.
pub(super) fn svd_u(srcs: &[&TensorType], args: Args<'_>) -> Typed {
    let [rows, columns] = singular(srcs[0])?;
    let size = if args.flag(0) { rows } else { rows.min(columns) };
    Ok(resized(srcs[0], &[size, size]))
}

/// The type of the products of right vectors.
pub(super) fn svd_vt(srcs: &[&TensorType], args: Args<'_>) -> Typed {
    let [rows, columns] = singular(srcs[0])?;
    let size = if args.flag(0) { columns } else { rows.min(columns) };
    Ok(resized(srcs[0], &[size, size]))
}

/// The type of digests.
pub(super) fn keccak(srcs: &[&TensorType], args: Args<'_>) -> Typed {
    let mut shape = srcs[0].shape.clone();
    let last = shape.last_mut().ok_or("a scalar has no last axis")?;
    if MAX_MESSAGE < *last * srcs[0].dtype.size_bytes() {
        return Err(format!("{last} elements: it takes at most {MAX_MESSAGE} bytes"));
    }
    *last = match args.word(0) {
        "sha3_224" => 28,
        "sha3_256" => 32,
        _ => 16,
    };
    Ok(TensorType { dtype: DType::U8, shape })
}
