//! Typing of methods that move elements.

use super::{Args, Typed, axes, axis, size};
use crate::{Shape, TensorType};

/// Maximum number of parts of an axis.
const MAX_PARTS: usize = 1 << 16;

/// The type of rotated elements: that of the source.
pub(super) fn roll(srcs: &[&TensorType], args: Args<'_>) -> Typed {
    let (shifts, list) = (args.ints(0), args.ints(1));
    axes(list, srcs[0].shape.len())?;
    match shifts.len() == list.len() {
        true => Ok(srcs[0].clone()),
        false => Err(format!("{} shifts for {} axes", shifts.len(), list.len())),
    }
}

/// The source's dtype with this shape.
fn shaped(srcs: &[&TensorType], shape: Shape) -> Typed {
    Ok(TensorType { dtype: srcs[0].dtype, shape })
}

pub(super) fn squeeze(srcs: &[&TensorType], args: Args<'_>) -> Typed {
    let mut shape = srcs[0].shape.clone();
    let at = axis(args.int(0), shape.len())?;
    match shape.remove(at) {
        1 => shaped(srcs, shape),
        size => Err(format!("axis {at} has size {size}, it must be 1")),
    }
}

pub(super) fn unsqueeze(srcs: &[&TensorType], args: Args<'_>) -> Typed {
    let mut shape = srcs[0].shape.clone();
    shape.insert(axis(args.int(0), shape.len() + 1)?, 1);
    shaped(srcs, shape)
}

pub(super) fn transpose(srcs: &[&TensorType], args: Args<'_>) -> Typed {
    let mut shape = srcs[0].shape.clone();
    let rank = shape.len();
    shape.swap(axis(args.int(0), rank)?, axis(args.int(1), rank)?);
    shaped(srcs, shape)
}

pub(super) fn flatten(srcs: &[&TensorType], args: Args<'_>) -> Typed {
    let mut shape = srcs[0].shape.clone();
    let rank = shape.len().max(1);
    let (start, end) = (axis(args.int(0), rank)?, axis(args.int(1), rank)?);
    if end < start {
        return Err(format!("axis {end}, the last, is before axis {start}, the first"));
    }
    if shape.is_empty() {
        return shaped(srcs, vec![1]);
    }
    let merged = shape[start..=end].iter().product();
    shape.splice(start..=end, [merged]);
    shaped(srcs, shape)
}

pub(super) fn unflatten(srcs: &[&TensorType], args: Args<'_>) -> Typed {
    let mut shape = srcs[0].shape.clone();
    let at = axis(args.int(0), shape.len())?;
    let (total, list) = (shape[at], args.ints(1));
    let inferred = list.iter().filter(|number| **number == -1).count();
    let known: Vec<usize> =
        list.iter().filter(|number| **number != -1).map(|n| size(*n)).collect::<Result<_, _>>()?;
    let product = known.iter().fold(1usize, |product, size| product.saturating_mul(*size));
    let rest = match inferred {
        0 if product == total => 1,
        1 if product != 0 && total.is_multiple_of(product) => total / product,
        _ => return Err(format!("an axis of size {total} cannot become {list:?}")),
    };
    shape.splice(at..=at, list.iter().map(|number| usize::try_from(*number).unwrap_or(rest)));
    shaped(srcs, shape)
}

pub(super) fn repeat(srcs: &[&TensorType], args: Args<'_>) -> Typed {
    let counts = args.ints(0);
    let Some(added) = counts.len().checked_sub(srcs[0].shape.len()) else {
        return Err(format!("{} counts for {} axes", counts.len(), srcs[0].shape.len()));
    };
    let sizes = std::iter::repeat_n(&1, added).chain(&srcs[0].shape);
    let shape = sizes.zip(counts).map(|(old, count)| Ok(old.saturating_mul(size(*count)?)));
    shaped(srcs, shape.collect::<Result<_, String>>()?)
}

pub(super) fn repeat_interleave(srcs: &[&TensorType], args: Args<'_>) -> Typed {
    let mut shape = srcs[0].shape.clone();
    let at = axis(args.int(1), shape.len())?;
    shape[at] = shape[at].saturating_mul(size(args.int(0))?);
    shaped(srcs, shape)
}

pub(super) fn meshgrid(srcs: &[&TensorType], args: Args<'_>) -> Typed {
    if let Some(src) = srcs.iter().find(|src| 1 < src.shape.len()) {
        return Err(format!("{:?} is neither a vector nor a scalar", src.shape));
    }
    let part = usize::try_from(args.int(1)).ok().and_then(|part| srcs.get(part));
    let part = part.ok_or_else(|| format!("part {} of {}", args.int(1), srcs.len()))?;
    let mut shape: Shape = srcs.iter().map(|src| src.shape.first().copied().unwrap_or(1)).collect();
    if args.word(0) == "xy" && 1 < shape.len() {
        shape.swap(0, 1);
    }
    Ok(TensorType { dtype: part.dtype, shape })
}

pub(super) fn stack(srcs: &[&TensorType], args: Args<'_>) -> Typed {
    if let Some(src) = srcs.iter().find(|src| *src != &srcs[0]) {
        return Err(format!("{:?} and {src:?} differ", srcs[0]));
    }
    let mut shape = srcs[0].shape.clone();
    shape.insert(axis(args.int(0), shape.len() + 1)?, srcs.len());
    shaped(srcs, shape)
}

/// The type of one of the parts of these sizes.
fn part(srcs: &[&TensorType], at: usize, sizes: &[usize], number: i64) -> Typed {
    let mut shape = srcs[0].shape.clone();
    let found = usize::try_from(number).ok().and_then(|number| sizes.get(number));
    shape[at] = *found.ok_or_else(|| format!("there is no part {number} of {}", sizes.len()))?;
    shaped(srcs, shape)
}

pub(super) fn split(srcs: &[&TensorType], args: Args<'_>) -> Typed {
    let shape = &srcs[0].shape;
    let at = axis(args.int(1), shape.len())?;
    let sizes: Vec<usize> = args.ints(0).iter().map(|n| size(*n)).collect::<Result<_, _>>()?;
    let total = sizes.iter().fold(0usize, |sum, size| sum.saturating_add(*size));
    if total != shape[at] {
        return Err(format!("parts of {sizes:?} of an axis of size {}", shape[at]));
    }
    part(srcs, at, &sizes, args.int(2))
}

pub(super) fn chunk(srcs: &[&TensorType], args: Args<'_>) -> Typed {
    let shape = &srcs[0].shape;
    let (count, at) = (args.int(0), axis(args.int(1), shape.len())?);
    let count = size(count)?;
    if count == 0 || MAX_PARTS < count {
        return Err(format!("{count} parts: 1 to {MAX_PARTS} are allowed"));
    }
    let total = shape[at];
    let chunk = total.div_ceil(count);
    let sizes = match chunk {
        0 => vec![0; count],
        _ => (0..total).step_by(chunk).map(|start| chunk.min(total - start)).collect(),
    };
    part(srcs, at, &sizes, args.int(2))
}

pub(super) fn unfold(srcs: &[&TensorType], args: Args<'_>) -> Typed {
    let mut shape = srcs[0].shape.clone();
    let at = axis(args.int(0), shape.len())?;
    let (window, step) = (size(args.int(1))?, size(args.int(2))?);
    if step == 0 || shape[at] < window {
        return Err(format!(
            "windows of {window} elements, {step} apart, of an axis of size {}",
            shape[at]
        ));
    }
    shape[at] = (shape[at] - window) / step + 1;
    shape.push(window);
    shaped(srcs, shape)
}

pub(super) fn diagonal(srcs: &[&TensorType], args: Args<'_>) -> Typed {
    let mut shape = srcs[0].shape.clone();
    let pair = axes(&[args.int(1), args.int(2)], shape.len())?;
    let length = diagonal_size(shape[pair[0]], shape[pair[1]], args.int(0));
    shape.remove(pair[0].max(pair[1]));
    shape.remove(pair[0].min(pair[1]));
    shape.push(length);
    shaped(srcs, shape)
}

/// The number of elements on a diagonal of a matrix.
pub(crate) fn diagonal_size(rows: usize, columns: usize, offset: i64) -> usize {
    let skipped = usize::try_from(offset.unsigned_abs()).unwrap_or(usize::MAX);
    match offset < 0 {
        true => rows.saturating_sub(skipped).min(columns),
        false => columns.saturating_sub(skipped).min(rows),
    }
}

pub(super) fn diag(srcs: &[&TensorType], args: Args<'_>) -> Typed {
    match srcs[0].shape[..] {
        [size] => {
            let skipped = usize::try_from(args.int(0).unsigned_abs()).unwrap_or(usize::MAX);
            let side = size.saturating_add(skipped);
            shaped(srcs, vec![side; 2])
        }
        [rows, columns] => shaped(srcs, vec![diagonal_size(rows, columns, args.int(0))]),
        _ => Err(format!("{:?} is neither a vector nor a matrix", srcs[0].shape)),
    }
}

pub(super) fn triangle(srcs: &[&TensorType], _: Args<'_>) -> Typed {
    match srcs[0].shape.len() {
        0 | 1 => Err(format!("{:?} is no matrix", srcs[0].shape)),
        _ => Ok(srcs[0].clone()),
    }
}

pub(super) fn slice(srcs: &[&TensorType], args: Args<'_>) -> Typed {
    let mut shape = srcs[0].shape.clone();
    let (starts, stops, steps) = (args.ints(0), args.ints(1), args.ints(2));
    let count = starts.len();
    if shape.len() < count || stops.len() != count || steps.len() != count {
        return Err(format!(
            "{count} starts, {} stops and {} steps for {} axes",
            stops.len(),
            steps.len(),
            shape.len()
        ));
    }
    for (at, size) in shape.iter_mut().take(count).enumerate() {
        if steps[at] == 0 {
            return Err(format!("the step of axis {at} is 0"));
        }
        *size = range_size(*size, starts[at], stops[at], steps[at]);
    }
    shaped(srcs, shape)
}

pub(super) fn assign(srcs: &[&TensorType], _: Args<'_>) -> Typed {
    assigned(srcs, srcs[0].shape.clone())
}

pub(super) fn assign_slice(srcs: &[&TensorType], args: Args<'_>) -> Typed {
    let part = slice(srcs, args)?;
    assigned(srcs, part.shape)
}

/// The type of the first source, if the second one can be assigned to a part of this shape.
pub(super) fn assigned(srcs: &[&TensorType], part: Shape) -> Typed {
    let (target, value) = (srcs[0], srcs[1]);
    let mut both = part.clone();
    crate::geometry::broadcast("assign", &mut both, &value.shape)?;
    if value.dtype != target.dtype || both != part {
        return Err(format!(
            "{}{:?} to {}{part:?}: the dtypes must be equal, and the shape must broadcast",
            value.dtype.name(),
            value.shape,
            target.dtype.name()
        ));
    }
    Ok(target.clone())
}

/// The number of indices of `range(size)[start:stop:step]`.
pub(super) fn range_size(size: usize, start: i64, stop: i64, step: i64) -> usize {
    let size = size as i128;
    let (low, high) = if step > 0 { (0, size) } else { (-1, size - 1) };
    let clip = |bound: i64| {
        let bound = i128::from(bound);
        (if bound < 0 { bound + size } else { bound }).clamp(low, high)
    };
    let distance = (clip(stop) - clip(start)) * i128::from(step.signum());
    let stride = i128::from(step.unsigned_abs());
    usize::try_from((distance + stride - 1).div_euclid(stride)).unwrap_or(0)
}

pub(super) fn pad_reflect(srcs: &[&TensorType], args: Args<'_>) -> Typed {
    padded(srcs, args, |size| size.saturating_sub(1))
}

pub(super) fn pad_replicate(srcs: &[&TensorType], args: Args<'_>) -> Typed {
    padded(srcs, args, |size| if size == 0 { 0 } else { usize::MAX })
}

pub(super) fn pad_circular(srcs: &[&TensorType], args: Args<'_>) -> Typed {
    padded(srcs, args, |size| size)
}

/// The type of a source whose axes are extended by no more than `limit` of their size at each end.
fn padded(srcs: &[&TensorType], args: Args<'_>, limit: fn(usize) -> usize) -> Typed {
    let (mut shape, before, after) = (srcs[0].shape.clone(), args.ints(0), args.ints(1));
    if before.len() != shape.len() || after.len() != shape.len() {
        return Err(format!("{} and {} counts for {shape:?}", before.len(), after.len()));
    }
    for (at, total) in shape.iter_mut().enumerate() {
        let (first, last) = (size(before[at])?, size(after[at])?);
        if limit(*total) < first.max(last) {
            return Err(format!(
                "axis {at} of size {total} extended by {first} and {last}: at most {}",
                limit(*total)
            ));
        }
        *total = total.saturating_add(first).saturating_add(last);
    }
    shaped(srcs, shape)
}

pub(super) fn shrink_to(srcs: &[&TensorType], args: Args<'_>) -> Typed {
    resized(srcs, args, |from, to| to <= from)
}

pub(super) fn pad_to(srcs: &[&TensorType], args: Args<'_>) -> Typed {
    resized(srcs, args, |from, to| from <= to)
}

fn resized(srcs: &[&TensorType], args: Args<'_>, fits: fn(usize, usize) -> bool) -> Typed {
    let from = &srcs[0].shape;
    let to: Shape = args.ints(0).iter().map(|n| size(*n)).collect::<Result<_, _>>()?;
    let all_fit = from.len() == to.len() && from.iter().zip(&to).all(|(a, b)| fits(*a, *b));
    if all_fit { shaped(srcs, to) } else { Err(format!("shape {from:?} to {to:?}")) }
}

pub(super) fn movedim(srcs: &[&TensorType], args: Args<'_>) -> Typed {
    let shape = &srcs[0].shape;
    let (from, to) = (axes(args.ints(0), shape.len())?, axes(args.ints(1), shape.len())?);
    if from.len() != to.len() {
        return Err(format!("{} axes to {} numbers", from.len(), to.len()));
    }
    let mut rest = (0..shape.len()).filter(|axis| !from.contains(axis));
    let source = |number: usize| match to.iter().position(|target| *target == number) {
        Some(at) => from[at],
        None => rest.next().expect("as many axes are left as numbers"),
    };
    shaped(srcs, (0..shape.len()).map(source).map(|axis| shape[axis]).collect())
}

/// The type of a source whose axes are split, permuted and merged.
pub(super) fn rearrange(srcs: &[&TensorType], args: Args<'_>) -> Typed {
    let shape = &srcs[0].shape;
    let sizes = args.ints(0).iter().map(|number| size(*number)).collect::<Result<Shape, _>>()?;
    let parts = runs(args.ints(1), sizes.len())?;
    let groups = runs(args.ints(3), sizes.len())?;
    let order = axes(args.ints(2), sizes.len())?;
    let product = |mut sizes: std::slice::Iter<'_, usize>| {
        sizes.try_fold(1usize, |product, size| product.checked_mul(*size))
    };
    let is_split = parts.len() == shape.len()
        && parts
            .iter()
            .zip(shape)
            .all(|(part, size)| product(sizes[part.clone()].iter()) == Some(*size));
    if !is_split || order.len() != sizes.len() {
        return Err(format!("sizes {sizes:?}, of {parts:?} and in order {order:?}, of {shape:?}"));
    }
    let permuted: Shape = order.iter().map(|axis| sizes[*axis]).collect();
    let merged = groups.iter().map(|group| product(permuted[group.clone()].iter()));
    let merged = merged.collect::<Option<Shape>>();
    shaped(srcs, merged.ok_or("an axis is too large")?)
}

/// The ranges of runs of these lengths, which are `count` numbers together.
fn runs(lengths: &[i64], count: usize) -> Result<Vec<std::ops::Range<usize>>, String> {
    let mut found = Vec::with_capacity(lengths.len());
    let mut start = 0usize;
    for length in lengths {
        let end = start.checked_add(size(*length)?).filter(|end| *end <= count);
        let end = end.ok_or_else(|| format!("runs {lengths:?} of {count} axes"))?;
        found.push(start..end);
        start = end;
    }
    match start == count {
        true => Ok(found),
        false => Err(format!("runs {lengths:?} of {count} axes")),
    }
}
