//! Convolutions of benches.

use gradiff::{Error, Tensor};

/// A convolution of `[n, c, h, w]` by `[k, c, f, f]` with a stride, padded by `f / 2`, as a product
/// of windows that is summed.
///
/// # Errors
/// Shapes that do not fit.
pub(crate) fn convolution(images: &Tensor, weights: &Tensor, stride: i64) -> Result<Tensor, Error> {
    let &[n, c, h, w] = images.shape() else { return Err(Error::Invalid("rank 4".to_owned())) };
    let (k, f) = (weights.shape()[0], weights.shape()[2]);
    let pad = (f / 2, f / 2);
    let padded = images.pad(&[(0, 0), (0, 0), pad, pad], 0.0)?;
    let [up, across] = [h, w].map(|size| size + 2 * (f / 2));
    let [rows, columns] = [up, across].map(|size| (size - f) / stride + 1);
    // Each axis repeated and cut so that step `i` of window `j` stands at `i*stride + j`.
    let times = |size: i64| (f * (size + 1) + size - 1) / size;
    let (tall, wide) = (times(up), times(across));
    let repeated = padded.reshape(&[n, c, 1, up, 1, across])?;
    let repeated = repeated.expand(&[n, c, tall, up, wide, across])?;
    let rows_of = |size: i64| f * (size + 1);
    let long = repeated.reshape(&[n, c, tall * up, wide * across])?;
    let long = long.shrink(&[(0, n), (0, c), (0, rows_of(up)), (0, rows_of(across))])?;
    let windows = long.reshape(&[n, c, f, up + 1, f, across + 1])?;
    let most = [rows * stride, columns * stride];
    let windows = windows.pad(
        &[
            (0, 0),
            (0, 0),
            (0, 0),
            (0, (most[0] - up - 1).max(0)),
            (0, 0),
            (0, (most[1] - across - 1).max(0)),
        ],
        0.0,
    )?;
    let windows = windows.shrink(&[(0, n), (0, c), (0, f), (0, most[0]), (0, f), (0, most[1])])?;
    let windows = windows.reshape(&[n, c, f, rows, stride, f, columns, stride])?;
    let all = (0, f);
    let windows =
        windows.shrink(&[(0, n), (0, c), all, (0, rows), (0, 1), all, (0, columns), (0, 1)])?;
    let windows = windows.reshape(&[n, c, f, rows, f, columns])?.permute(&[0, 3, 5, 1, 2, 4])?;
    let windows = windows.reshape(&[n, 1, rows, columns, c, f, f])?;
    let whole = [n, k, rows, columns, c, f, f];
    let weights = weights.reshape(&[1, k, 1, 1, c, f, f])?.expand(&whole)?;
    let sums = windows.expand(&whole)?.mul(&weights)?.sum(&[4, 5, 6])?;
    sums.reshape(&[n, k, rows, columns])
}
