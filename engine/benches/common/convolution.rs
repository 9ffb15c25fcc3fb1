//! Convolutions for benches.

use gradiff::{Error, Tensor, keepdim};

/// A convolution of `[n, c, h, w]` with `[k, c, f, f]`, with a stride and padding `f / 2`, as a sum
/// of products over windows.
///
/// # Errors
/// If the shapes do not fit.
pub(crate) fn convolution(images: &Tensor, weights: &Tensor, stride: i64) -> Result<Tensor, Error> {
    let &[n, c, h, w] = images.shape() else { return Err(Error::Invalid("rank 4".to_owned())) };
    let (k, f) = (weights.shape()[0], weights.shape()[2]);
    let pad = (f / 2, f / 2);
    let padded = images.pad(&[(0, 0), (0, 0), pad, pad], 0.0)?;
    let [height, width] = [h, w].map(|size| size + 2 * (f / 2));
    let [rows, columns] = [height, width].map(|size| (size - f) / stride + 1);
    // Each axis is repeated and reshaped so that element `j` of window `i` is at `i*stride + j`.
    let repeats = |size: i64| (f * (size + 1) + size - 1) / size;
    let (height_repeats, width_repeats) = (repeats(height), repeats(width));
    let repeated = padded.reshape(&[n, c, 1, height, 1, width])?;
    let repeated = repeated.expand(&[n, c, height_repeats, height, width_repeats, width])?;
    let row_elements = |size: i64| f * (size + 1);
    let repeated = repeated.reshape(&[n, c, height_repeats * height, width_repeats * width])?;
    let repeated =
        repeated.shrink(&[(0, n), (0, c), (0, row_elements(height)), (0, row_elements(width))])?;
    let windows = repeated.reshape(&[n, c, f, height + 1, f, width + 1])?;
    let extents = [rows * stride, columns * stride];
    let windows = windows.pad(
        &[
            (0, 0),
            (0, 0),
            (0, 0),
            (0, (extents[0] - height - 1).max(0)),
            (0, 0),
            (0, (extents[1] - width - 1).max(0)),
        ],
        0.0,
    )?;
    let windows =
        windows.shrink(&[(0, n), (0, c), (0, f), (0, extents[0]), (0, f), (0, extents[1])])?;
    let windows = windows.reshape(&[n, c, f, rows, stride, f, columns, stride])?;
    let window = (0, f);
    let windows = windows.shrink(&[
        (0, n),
        (0, c),
        window,
        (0, rows),
        (0, 1),
        window,
        (0, columns),
        (0, 1),
    ])?;
    let windows = windows.reshape(&[n, c, f, rows, f, columns])?.permute(&[0, 3, 5, 1, 2, 4])?;
    let windows = windows.reshape(&[n, 1, rows, columns, c, f, f])?;
    let product_shape = [n, k, rows, columns, c, f, f];
    let weights = weights.reshape(&[1, k, 1, 1, c, f, f])?.expand(&product_shape)?;
    let sums = windows.expand(&product_shape)?.mul(&weights)?.sum(keepdim([4, 5, 6]))?;
    sums.reshape(&[n, k, rows, columns])
}
