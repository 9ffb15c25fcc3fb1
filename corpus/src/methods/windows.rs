//! Typing of products and of methods over windows.

use super::Args;
use crate::{DType, Shape, TensorType, geometry, promote};

/// The promoted dtype of both sources, which must be numbers.
fn product_dtype(srcs: &[&TensorType]) -> Result<DType, String> {
    match promote(srcs[0].dtype, srcs[1].dtype) {
        DType::Bool => Err("bool has no products: use `cast` before it".into()),
        dtype => Ok(dtype),
    }
}

/// The type of a matrix product.
pub(super) fn matmul(srcs: &[&TensorType], _: Args<'_>) -> Result<TensorType, String> {
    let (x, y) = (&srcs[0].shape, &srcs[1].shape);
    let dtype = product_dtype(srcs)?;
    let refused = || format!("{x:?} and {y:?} are not [.., m, k] and [.., k, n]");
    let (Some((k, rows)), false) = (x.split_last(), y.is_empty()) else { return Err(refused()) };
    let inner = y.len().saturating_sub(2);
    if *k != y[inner] {
        return Err(refused());
    }
    let outer = |shape: &[usize]| shape[..shape.len().saturating_sub(2)].to_vec();
    let mut shape = outer(x);
    geometry::broadcast("matmul", &mut shape, &outer(y))?;
    let columns = if y.len() == 1 { None } else { y.last().copied() };
    // The products, before they are summed, must not be too many either.
    let m = if x.len() == 1 { None } else { rows.last().copied() };
    let mut products = shape.clone();
    products.extend([m.unwrap_or(1), columns.unwrap_or(1), *k]);
    geometry::check_size(&products)?;
    shape.extend(m.into_iter().chain(columns));
    Ok(TensorType { dtype, shape })
}

/// The type of a product with a weight, plus a bias.
pub(super) fn linear(srcs: &[&TensorType], args: Args<'_>) -> Result<TensorType, String> {
    srcs.iter().try_for_each(|src| super::reduction::check_float(src.dtype))?;
    let (x, weight) = (srcs[0], srcs[1]);
    let mut shape = match weight.shape.len() {
        1 => {
            let mut shape = x.shape.clone();
            geometry::broadcast("x and weight", &mut shape, &weight.shape)?;
            shape
        }
        _ => matmul(&[x, weight], args)?.shape,
    };
    if let Some(bias) = srcs.get(2) {
        geometry::broadcast("product and bias", &mut shape, &bias.shape)?;
    }
    let dtype = srcs.iter().fold(x.dtype, |dtype, src| promote(dtype, src.dtype));
    Ok(TensorType { dtype, shape })
}

/// Returns the numbers of an argument, one for each of `rank` axes and none below `least`.
fn numbers(list: &[i64], rank: usize, least: i64) -> Result<Vec<usize>, String> {
    if list.len() != rank || list.iter().any(|number| *number < least) {
        return Err(format!("{list:?}: it takes {rank} numbers, {least} or more"));
    }
    list.iter().map(|number| usize::try_from(*number).map_err(|why| why.to_string())).collect()
}

/// The options of a convolution, for each axis of space.
struct Space {
    stride: Vec<usize>,
    dilation: Vec<usize>,
    /// Before and after each axis.
    padding: Vec<(usize, usize)>,
}

impl Space {
    fn of(stride: &[i64], dilation: &[i64], padding: &[i64], rank: usize) -> Result<Space, String> {
        // One number for each axis, or two: before and after.
        let padding = match padding.len() == rank {
            true => numbers(padding, rank, 0)?.into_iter().map(|count| (count, count)).collect(),
            false => {
                let padding = numbers(padding, 2 * rank, 0)?;
                padding.chunks(2).map(|pair| (pair[0], pair[1])).collect()
            }
        };
        Ok(Space {
            stride: numbers(stride, rank, 1)?,
            dilation: numbers(dilation, rank, 1)?,
            padding,
        })
    }

    /// Returns the number of elements from the first to the last of a window, and the padded size.
    fn lengths(&self, axis: usize, size: usize, kernel: usize) -> Option<(usize, usize)> {
        let reach = kernel.checked_sub(1)?.checked_mul(self.dilation[axis])?.checked_add(1)?;
        let (before, after) = self.padding[axis];
        Some((reach, size.checked_add(before)?.checked_add(after)?))
    }

    /// Returns the number of windows along each axis.
    fn windows(&self, sizes: &[usize], kernel: &[usize], is_ceil: bool) -> Result<Shape, String> {
        let count = |axis: usize| -> Option<usize> {
            let (reach, total) = self.lengths(axis, sizes[axis], kernel[axis])?;
            let rest = total.checked_sub(reach)?;
            let stride = self.stride[axis];
            if !is_ceil {
                return Some(rest / stride + 1);
            }
            let mut steps = rest.div_ceil(stride);
            let start = steps.checked_mul(stride);
            let end = sizes[axis] + self.padding[axis].0;
            if 0 < steps && start.is_none_or(|start| end <= start) {
                steps -= 1;
            }
            Some(steps + 1)
        };
        let counts = (0..sizes.len()).map(count).collect::<Option<Shape>>();
        counts.ok_or_else(|| format!("windows of {kernel:?} do not fit into {sizes:?}"))
    }
}

/// Checks the channels, and returns the number of axes of space.
fn channels(
    srcs: &[&TensorType],
    groups: i64,
    is_transposed: bool,
) -> Result<(usize, usize), String> {
    let (x, w) = (&srcs[0].shape, &srcs[1].shape);
    let refused = || format!("{x:?} with weights {w:?} in {groups} groups does not fit");
    let groups = usize::try_from(groups).ok().filter(|groups| *groups != 0).ok_or_else(refused)?;
    if w.len() < 3 || x.len() != w.len() {
        return Err(refused());
    }
    let matched =
        if is_transposed { w[0] } else { w[1].checked_mul(groups).ok_or_else(refused)? };
    if matched != x[1] || x[1] % groups != 0 || w[0] % groups != 0 {
        return Err(refused());
    }
    Ok((groups, w.len() - 2))
}

/// The type of a convolution.
pub(super) fn conv(srcs: &[&TensorType], args: Args<'_>) -> Result<TensorType, String> {
    let dtype = product_dtype(srcs)?;
    let (_, rank) = channels(srcs, args.int(0), false)?;
    let (x, w) = (&srcs[0].shape, &srcs[1].shape);
    let space = Space::of(args.ints(1), args.ints(2), args.ints(3), rank)?;
    let mut shape = vec![x[0], w[0]];
    shape.extend(space.windows(&x[2..], &w[2..], false)?);
    geometry::check_size(&[&shape[..], &w[1..]].concat())?;
    Ok(TensorType { dtype, shape })
}

/// The type of a transposed convolution.
pub(super) fn conv_transpose(srcs: &[&TensorType], args: Args<'_>) -> Result<TensorType, String> {
    let dtype = product_dtype(srcs)?;
    let (groups, rank) = channels(srcs, args.int(0), true)?;
    let (x, w) = (&srcs[0].shape, &srcs[1].shape);
    let space = Space::of(args.ints(1), args.ints(2), args.ints(3), rank)?;
    let added = numbers(args.ints(4), rank, 0)?;
    let outputs = w[1].checked_mul(groups).ok_or("too many channels")?;
    let mut shape = vec![x[0], outputs];
    for axis in 0..rank {
        let (size, kernel, stride) = (x[2 + axis], w[2 + axis], space.stride[axis]);
        let length = || {
            let last = size.checked_sub(1)?.checked_mul(stride)?;
            let reach = kernel.checked_sub(1)?.checked_mul(space.dilation[axis])?;
            let (before, after) = space.padding[axis];
            let total = last.checked_add(reach)?.checked_add(added[axis])?.checked_add(1)?;
            total.checked_sub(before)?.checked_sub(after).filter(|length| 0 < *length)
        };
        shape.push(length().ok_or_else(|| format!("{x:?} with {w:?}: nothing is left"))?);
    }
    geometry::check_size(&[&shape[..], &w[1..]].concat())?;
    Ok(TensorType { dtype, shape })
}

/// The type of the selection from windows over the last axes.
pub(super) fn pool(srcs: &[&TensorType], args: Args<'_>) -> Result<TensorType, String> {
    let TensorType { dtype, shape } = srcs[0];
    let rank = args.ints(0).len();
    if rank == 0 || shape.len() < rank {
        return Err(format!("windows of {rank} axes of {} axes", shape.len()));
    }
    let kernel = numbers(args.ints(0), rank, 1)?;
    let space = Space::of(args.ints(1), args.ints(2), args.ints(3), rank)?;
    let (outer, sizes) = shape.split_at(shape.len() - rank);
    let counts = space.windows(sizes, &kernel, args.flag(4))?;
    let shape = [outer, &counts].concat();
    geometry::check_size(&[&shape[..], &kernel].concat())?;
    Ok(TensorType { dtype: *dtype, shape })
}

/// The type of the means of windows.
pub(super) fn mean_pool(srcs: &[&TensorType], args: Args<'_>) -> Result<TensorType, String> {
    match srcs[0].dtype.is_float() {
        true => pool(srcs, args),
        false => Err(format!("it takes floats, not {}", srcs[0].dtype.name())),
    }
}

/// The type of the positions of the elements that are selected from windows.
pub(super) fn pool_positions(srcs: &[&TensorType], args: Args<'_>) -> Result<TensorType, String> {
    Ok(TensorType { dtype: DType::I32, ..pool(srcs, args)? })
}

/// The type of a tensor whose elements are written at positions within the last axes.
pub(super) fn unpool(srcs: &[&TensorType], args: Args<'_>) -> Result<TensorType, String> {
    let (x, positions) = (srcs[0], srcs[1]);
    if !positions.dtype.is_int() || positions.shape != x.shape {
        return Err(format!("{x:?} at the positions {positions:?}"));
    }
    let rank = args.ints(0).len();
    if rank == 0 || x.shape.len() < rank {
        return Err(format!("sizes of {rank} axes of {} axes", x.shape.len()));
    }
    let sizes = numbers(args.ints(0), rank, 0)?;
    let shape = [&x.shape[..x.shape.len() - rank], &sizes].concat();
    Ok(TensorType { dtype: x.dtype, shape })
}
