//! Methods that move elements: each says where an element of the result comes from.

use gradiff_corpus::Shape;

use super::Call;
use crate::cell::Cell;
use crate::infer::{Check, limit, resolve_axes, resolve_axis};
use crate::movement::{broadcast_positions, for_each_index, gather_positions, position};
use crate::value::Value;

/// Rotates elements along axes.
pub(super) fn roll(call: Call<'_>) -> Check<Value> {
    let x = call.srcs[0];
    let (shifts, axes) = (call.args.ints(0), resolve_axes(call.args.ints(1), x.shape.len())?);
    if shifts.len() != axes.len() {
        return Err(format!("{} shifts for {} axes", shifts.len(), axes.len()));
    }
    Ok(from_indices(x, x.shape.clone(), |index, source| {
        source.copy_from_slice(index);
        for (axis, shift) in axes.iter().zip(shifts) {
            let size = x.shape[*axis] as i128;
            source[*axis] = (index[*axis] as i128 - i128::from(*shift)).rem_euclid(size) as usize;
        }
    }))
}

/// Creates the value of this shape whose element at each index is that at the source index that
/// `map` computes.
fn from_indices(x: &Value, shape: Shape, map: impl FnMut(&[usize], &mut [usize])) -> Value {
    let positions = gather_positions(&x.shape, &shape, map);
    x.moved((shape, positions))
}

/// Creates the value of this shape whose element at each index is that at the source index that
/// `map` computes, or 0 where it computes none.
fn from_some_indices(
    x: &Value,
    shape: Shape,
    map: impl Fn(&[usize]) -> Option<Vec<usize>>,
) -> Value {
    let mut cells = Vec::new();
    for_each_index(&shape, |index| {
        let source = map(index).map(|source| x.cells[position(&source, &x.shape)]);
        cells.push(source.unwrap_or(Cell::from_bits(x.dtype, 0)));
    });
    Value::new(x.dtype, shape, cells)
}

/// The same elements with other sizes.
fn with_shape(x: &Value, shape: Shape) -> Check<Value> {
    Ok(Value { shape: limit(shape)?, ..x.clone() })
}

fn natural(number: i64) -> Check<usize> {
    number.try_into().map_err(|_| format!("{number} is negative"))
}

pub(super) fn squeeze(call: Call<'_>) -> Check<Value> {
    let mut shape = call.srcs[0].shape.clone();
    let axis = resolve_axis(call.args.int(0), shape.len())?;
    if shape[axis] != 1 {
        return Err(format!("axis {axis} of {shape:?} does not have size 1"));
    }
    shape.remove(axis);
    with_shape(call.srcs[0], shape)
}

pub(super) fn unsqueeze(call: Call<'_>) -> Check<Value> {
    let mut shape = call.srcs[0].shape.clone();
    let axis = resolve_axis(call.args.int(0), shape.len() + 1)?;
    shape.insert(axis, 1);
    with_shape(call.srcs[0], shape)
}

pub(super) fn transpose(call: Call<'_>) -> Check<Value> {
    let x = call.srcs[0];
    let rank = x.shape.len();
    let (a, b) = (resolve_axis(call.args.int(0), rank)?, resolve_axis(call.args.int(1), rank)?);
    let mut shape = x.shape.clone();
    shape.swap(a, b);
    Ok(from_indices(x, shape, |index, source| {
        source.copy_from_slice(index);
        source.swap(a, b);
    }))
}

pub(super) fn flatten(call: Call<'_>) -> Check<Value> {
    let x = call.srcs[0];
    let sizes = if x.shape.is_empty() { vec![1] } else { x.shape.clone() };
    let start = resolve_axis(call.args.int(0), sizes.len())?;
    let end = resolve_axis(call.args.int(1), sizes.len())?;
    if start > end {
        return Err(format!("the first axis, {start}, is after the last, {end}"));
    }
    let merged = sizes[start..=end].iter().product();
    with_shape(x, [&sizes[..start], &[merged], &sizes[end + 1..]].concat())
}

pub(super) fn unflatten(call: Call<'_>) -> Check<Value> {
    let x = call.srcs[0];
    let axis = resolve_axis(call.args.int(0), x.shape.len())?;
    let size = x.shape[axis] as i128;
    let refused = || format!("{:?} are no sizes of an axis of {size}", call.args.ints(1));
    let mut sizes: Vec<i128> = call.args.ints(1).iter().map(|size| i128::from(*size)).collect();
    let unknown: Vec<usize> = (0..sizes.len()).filter(|at| sizes[*at] == -1).collect();
    let product = |sizes: &[i128]| {
        sizes.iter().try_fold(1i128, |product, size| match *size {
            ..0 => None,
            size => product.checked_mul(size),
        })
    };
    match unknown[..] {
        [] => {}
        [at] => {
            sizes[at] = 1;
            let known = product(&sizes).filter(|known| *known != 0).ok_or_else(refused)?;
            sizes[at] = size / known;
        }
        _ => return Err(refused()),
    }
    if product(&sizes) != Some(size) {
        return Err(refused());
    }
    let mut shape = x.shape.clone();
    shape.splice(axis..=axis, sizes.iter().map(|size| *size as usize));
    with_shape(x, shape)
}

pub(super) fn repeat(call: Call<'_>) -> Check<Value> {
    let (x, counts) = (call.srcs[0], call.args.ints(0));
    if counts.len() < x.shape.len() {
        return Err(format!("{} counts for shape {:?}", counts.len(), x.shape));
    }
    let added = counts.len() - x.shape.len();
    let mut shape = Shape::new();
    for (axis, count) in counts.iter().enumerate() {
        let size = if axis < added { 1 } else { x.shape[axis - added] };
        shape.push(natural(*count)?.checked_mul(size).ok_or("too many elements")?);
    }
    Ok(from_indices(x, limit(shape)?, |index, source| {
        for axis in 0..source.len() {
            source[axis] = index[added + axis] % x.shape[axis];
        }
    }))
}

pub(super) fn repeat_interleave(call: Call<'_>) -> Check<Value> {
    let x = call.srcs[0];
    let (count, axis) =
        (natural(call.args.int(0))?, resolve_axis(call.args.int(1), x.shape.len())?);
    let mut shape = x.shape.clone();
    shape[axis] = shape[axis].checked_mul(count).ok_or("too many elements")?;
    Ok(from_indices(x, limit(shape)?, |index, source| {
        source.copy_from_slice(index);
        source[axis] = index[axis] / count;
    }))
}

pub(super) fn stack(call: Call<'_>) -> Check<Value> {
    let first = call.srcs.first().ok_or("there is no source")?;
    for src in call.srcs {
        if src.shape != first.shape || src.dtype != first.dtype {
            return Err(format!(
                "{}{:?} and {}{:?} differ",
                first.dtype.name(),
                first.shape,
                src.dtype.name(),
                src.shape
            ));
        }
    }
    let axis = resolve_axis(call.args.int(0), first.shape.len() + 1)?;
    let mut shape = first.shape.clone();
    shape.insert(axis, call.srcs.len());
    let mut cells = Vec::new();
    for_each_index(&limit(shape.clone())?, |index| {
        let mut source = index.to_vec();
        let number = source.remove(axis);
        cells.push(call.srcs[number].cells[position(&source, &first.shape)]);
    });
    Ok(Value::new(first.dtype, shape, cells))
}

/// The element of a grid is that of the vector at the grid's index on the vector's axis.
pub(super) fn meshgrid(call: Call<'_>) -> Check<Value> {
    if call.srcs.iter().any(|src| src.shape.len() > 1) {
        return Err("a source has more than one axis".to_string());
    }
    let part = natural(call.args.int(1))?;
    let x = *call.srcs.get(part).ok_or_else(|| format!("there is no part {part}"))?;
    let is_exchanged = call.args.word(0) == "xy" && call.srcs.len() > 1;
    // The axis of the grid that runs along source `number`.
    let axis_of = |number: usize| match (is_exchanged, number) {
        (true, 0 | 1) => 1 - number,
        _ => number,
    };
    let mut shape = vec![0; call.srcs.len()];
    for (number, src) in call.srcs.iter().enumerate() {
        shape[axis_of(number)] = src.cells.len();
    }
    let mut cells = Vec::new();
    for_each_index(&limit(shape.clone())?, |index| cells.push(x.cells[index[axis_of(part)]]));
    Ok(Value::new(x.dtype, shape, cells))
}

/// The `size` elements along an axis from `start` on.
fn part(x: &Value, axis: usize, start: usize, size: usize) -> Value {
    let mut shape = x.shape.clone();
    shape[axis] = size;
    from_indices(x, shape, |index, source| {
        source.copy_from_slice(index);
        source[axis] += start;
    })
}

pub(super) fn split(call: Call<'_>) -> Check<Value> {
    let x = call.srcs[0];
    let axis = resolve_axis(call.args.int(1), x.shape.len())?;
    let mut sizes = Vec::new();
    let mut end = 0usize;
    for size in call.args.ints(0) {
        let size = natural(*size)?;
        sizes.push((end, size));
        end = end.checked_add(size).ok_or("the parts are too large")?;
    }
    if end != x.shape[axis] {
        return Err(format!("the parts have {end} elements, axis {axis} has {}", x.shape[axis]));
    }
    let number = natural(call.args.int(2))?;
    let (start, size) = sizes.get(number).ok_or_else(|| format!("there is no part {number}"))?;
    Ok(part(x, axis, *start, *size))
}

pub(super) fn chunk(call: Call<'_>) -> Check<Value> {
    let x = call.srcs[0];
    let (count, number) = (natural(call.args.int(0))?, natural(call.args.int(2))?);
    let axis = resolve_axis(call.args.int(1), x.shape.len())?;
    if !(1..=65536).contains(&count) {
        return Err(format!("{count} parts are not 1 to 65536"));
    }
    let size = x.shape[axis];
    if size == 0 && number < count {
        return Ok(x.clone());
    }
    let chunk = size.div_ceil(count);
    let start = number.checked_mul(chunk).filter(|start| *start < size);
    let start = start.ok_or_else(|| format!("there is no part {number}"))?;
    Ok(part(x, axis, start, chunk.min(size - start)))
}

pub(super) fn unfold(call: Call<'_>) -> Check<Value> {
    let x = call.srcs[0];
    let axis = resolve_axis(call.args.int(0), x.shape.len())?;
    let (size, step) = (natural(call.args.int(1))?, natural(call.args.int(2))?);
    if step == 0 || size > x.shape[axis] {
        return Err(format!("windows of {size}, {step} apart, of {} elements", x.shape[axis]));
    }
    let starts = (0..).map(|number: usize| number.saturating_mul(step));
    let count = starts.take_while(|start| *start <= x.shape[axis] - size).count();
    let mut shape = x.shape.clone();
    shape[axis] = count;
    shape.push(size);
    Ok(from_indices(x, limit(shape)?, |index, source| {
        source.copy_from_slice(&index[..index.len() - 1]);
        source[axis] = index[axis] * step + index[index.len() - 1];
    }))
}

pub(super) fn diagonal(call: Call<'_>) -> Check<Value> {
    let x = call.srcs[0];
    let axes = resolve_axes(&[call.args.int(1), call.args.int(2)], x.shape.len())?;
    Ok(diagonal_of(x, axes[0], axes[1], call.args.int(0)))
}

fn diagonal_of(x: &Value, rows: usize, columns: usize, offset: i64) -> Value {
    let column_of = |row: usize| {
        let column = usize::try_from(row as i128 + i128::from(offset)).ok();
        column.filter(|column| *column < x.shape[columns])
    };
    let entries: Vec<(usize, usize)> =
        (0..x.shape[rows]).filter_map(|row| Some((row, column_of(row)?))).collect();
    let outer_axes: Vec<usize> =
        (0..x.shape.len()).filter(|axis| *axis != rows && *axis != columns).collect();
    let mut shape: Shape = outer_axes.iter().map(|axis| x.shape[*axis]).collect();
    shape.push(entries.len());
    from_indices(x, shape, |index, source| {
        for (at, axis) in outer_axes.iter().enumerate() {
            source[*axis] = index[at];
        }
        (source[rows], source[columns]) = entries[index[index.len() - 1]];
    })
}

pub(super) fn diag(call: Call<'_>) -> Check<Value> {
    let (x, offset) = (call.srcs[0], i128::from(call.args.int(0)));
    match x.shape[..] {
        [_, _] => Ok(diagonal_of(x, 0, 1, call.args.int(0))),
        [size] => {
            let side = size as u128 + offset.unsigned_abs();
            let side = usize::try_from(side).map_err(|_| "too many elements")?;
            Ok(from_some_indices(x, limit(vec![side; 2])?, |index| {
                let is_on = index[1] as i128 - index[0] as i128 == offset;
                is_on.then(|| vec![index[0].min(index[1])])
            }))
        }
        _ => Err(format!("shape {:?} is of no vector or matrix", x.shape)),
    }
}

/// Keeps the elements of matrices for whose row, column and diagonal `keeps` holds.
fn triangle(call: Call<'_>, keeps: fn(i128, i128, i128) -> bool) -> Check<Value> {
    let x = call.srcs[0];
    let rank = x.shape.len();
    if rank < 2 {
        return Err(format!("shape {:?} has no matrices", x.shape));
    }
    Ok(from_some_indices(x, x.shape.clone(), |index| {
        let (row, column) = (index[rank - 2] as i128, index[rank - 1] as i128);
        keeps(row, column, call.args.int(0).into()).then(|| index.to_vec())
    }))
}

pub(super) fn triu(call: Call<'_>) -> Check<Value> {
    triangle(call, |row, column, diagonal| column >= row + diagonal)
}

pub(super) fn tril(call: Call<'_>) -> Check<Value> {
    triangle(call, |row, column, diagonal| column <= row + diagonal)
}

/// The indices of `range(size)[start:stop:step]`, as Python's `slice.indices` gives them.
pub(super) fn python_range(size: usize, start: i64, stop: i64, step: i64) -> Check<Vec<usize>> {
    let size = size as i128;
    let from_end = |bound: i64| {
        let bound = i128::from(bound);
        if bound < 0 { bound + size } else { bound }
    };
    let (start, stop, step) = (from_end(start), from_end(stop), i128::from(step));
    let mut indices = Vec::new();
    if step == 0 {
        return Err("a step is 0".to_string());
    }
    // A start outside of the axis is moved to its nearest end.
    let mut at = if step > 0 { start.max(0) } else { start.min(size - 1) };
    while (step > 0 && at < stop.min(size)) || (step < 0 && at > stop.max(-1)) {
        indices.push(at as usize);
        at += step;
    }
    Ok(indices)
}

/// The indices of each axis that a slice keeps.
fn kept_indices(call: Call<'_>) -> Check<Vec<Vec<usize>>> {
    let x = call.srcs[0];
    let lists = [0, 1, 2].map(|number| call.args.ints(number));
    let count = lists[0].len();
    if lists.iter().any(|list| list.len() != count) || count > x.shape.len() {
        return Err(format!("starts, stops and steps {lists:?} for shape {:?}", x.shape));
    }
    let mut kept: Vec<Vec<usize>> = x.shape.iter().map(|size| (0..*size).collect()).collect();
    for (axis, kept) in kept.iter_mut().enumerate().take(count) {
        let [start, stop, step] = lists.map(|list| list[axis]);
        *kept = python_range(x.shape[axis], start, stop, step)?;
    }
    Ok(kept)
}

pub(super) fn slice(call: Call<'_>) -> Check<Value> {
    let (x, kept) = (call.srcs[0], kept_indices(call)?);
    let shape = kept.iter().map(Vec::len).collect();
    Ok(from_indices(x, shape, |index, source| {
        for (axis, kept) in kept.iter().enumerate() {
            source[axis] = kept[index[axis]];
        }
    }))
}

/// The first source, whose elements at these indices of each axis are those of the second one.
fn assigned(call: Call<'_>, kept: &[Vec<usize>]) -> Check<Value> {
    let (x, value) = (call.srcs[0], call.srcs[1]);
    let part: Shape = kept.iter().map(Vec::len).collect();
    let missing = part.len().checked_sub(value.shape.len());
    let fits = missing.is_some_and(|missing| {
        let mut pairs = value.shape.iter().zip(&part[missing..]);
        pairs.all(|(from, to)| from == to || *from == 1)
    });
    if x.dtype != value.dtype || !fits {
        return Err(format!("{:?} does not fit {part:?}, or the dtypes differ", value.shape));
    }
    let mut cells = x.cells.to_vec();
    let mut sources = broadcast_positions(&value.shape, &part).into_iter();
    let mut target = vec![0; part.len()];
    for_each_index(&part, |index| {
        for (axis, kept) in kept.iter().enumerate() {
            target[axis] = kept[index[axis]];
        }
        let source = sources.next().expect("one for each index");
        cells[position(&target, &x.shape)] = value.cells[source];
    });
    Ok(Value::new(x.dtype, x.shape.clone(), cells))
}

pub(super) fn assign(call: Call<'_>) -> Check<Value> {
    let shape = &call.srcs[0].shape;
    assigned(call, &shape.iter().map(|size| (0..*size).collect()).collect::<Vec<_>>())
}

pub(super) fn assign_slice(call: Call<'_>) -> Check<Value> {
    assigned(call, &kept_indices(call)?)
}

/// Extends axes: the element at index `i - before` of an axis, which may be outside of it, is that
/// at the index that `inside` returns. The counts are at most `limit_of` the size.
fn extended(
    call: Call<'_>,
    limit_of: fn(i128) -> i128,
    inside: fn(i128, i128) -> i128,
) -> Check<Value> {
    let x = call.srcs[0];
    let (before, after) = (call.args.ints(0), call.args.ints(1));
    if before.len() != x.shape.len() || after.len() != x.shape.len() {
        return Err(format!("counts {before:?} and {after:?} for shape {:?}", x.shape));
    }
    let mut shape = Shape::new();
    for (axis, size) in x.shape.iter().enumerate() {
        let (first, last) = (natural(before[axis])?, natural(after[axis])?);
        if first.max(last) as i128 > limit_of(*size as i128) {
            return Err(format!("{first} and {last} more elements of an axis of {size}"));
        }
        let total = first.checked_add(last).and_then(|total| total.checked_add(*size));
        shape.push(total.ok_or("too many elements")?);
    }
    Ok(from_indices(x, limit(shape)?, |index, source| {
        for axis in 0..source.len() {
            let at = index[axis] as i128 - i128::from(before[axis]);
            source[axis] = inside(at, x.shape[axis] as i128) as usize;
        }
    }))
}

pub(super) fn pad_reflect(call: Call<'_>) -> Check<Value> {
    extended(
        call,
        |size| (size - 1).max(0),
        |at, size| if at >= size { 2 * (size - 1) - at } else { at.abs() },
    )
}

pub(super) fn pad_replicate(call: Call<'_>) -> Check<Value> {
    let limit_of = |size| if size == 0 { 0 } else { i128::MAX };
    extended(call, limit_of, |at, size| at.clamp(0, size - 1))
}

pub(super) fn pad_circular(call: Call<'_>) -> Check<Value> {
    extended(call, |size| size, |at, size| at.rem_euclid(size))
}

pub(super) fn shrink_to(call: Call<'_>) -> Check<Value> {
    let x = call.srcs[0];
    let shape = call.args.ints(0).iter().map(|size| natural(*size)).collect::<Check<Shape>>()?;
    let fits = shape.len() == x.shape.len() && shape.iter().zip(&x.shape).all(|(to, of)| to <= of);
    match fits {
        true => Ok(from_indices(x, shape, |index, source| source.copy_from_slice(index))),
        false => Err(format!("shape {:?} cannot shrink to {shape:?}", x.shape)),
    }
}

pub(super) fn pad_to(call: Call<'_>) -> Check<Value> {
    let x = call.srcs[0];
    let shape = call.args.ints(0).iter().map(|size| natural(*size)).collect::<Check<Shape>>()?;
    let fits = shape.len() == x.shape.len() && shape.iter().zip(&x.shape).all(|(to, of)| to >= of);
    if !fits {
        return Err(format!("shape {:?} cannot be padded to {shape:?}", x.shape));
    }
    let is_inside = |index: &[usize]| index.iter().zip(&x.shape).all(|(at, size)| at < size);
    Ok(from_some_indices(x, limit(shape)?, |index| is_inside(index).then(|| index.to_vec())))
}

pub(super) fn movedim(call: Call<'_>) -> Check<Value> {
    let x = call.srcs[0];
    let rank = x.shape.len();
    let from = resolve_axes(call.args.ints(0), rank)?;
    let to = resolve_axes(call.args.ints(1), rank)?;
    if from.len() != to.len() {
        return Err(format!("axes {from:?} to numbers {to:?}"));
    }
    // The axes that are not moved, in order, with those that are inserted where they belong.
    let mut axes: Vec<usize> = (0..rank).filter(|axis| !from.contains(axis)).collect();
    let mut moved: Vec<(usize, usize)> = to.iter().copied().zip(from).collect();
    moved.sort_unstable();
    moved.iter().for_each(|(number, axis)| axes.insert(*number, *axis));
    let shape = axes.iter().map(|axis| x.shape[*axis]).collect();
    Ok(from_indices(x, shape, |index, source| {
        for (number, axis) in axes.iter().enumerate() {
            source[*axis] = index[number];
        }
    }))
}

/// The elements by the coordinates of the parts of axes: those of an element are the digits of its
/// index in the source, and in the result.
pub(super) fn rearrange(call: Call<'_>) -> Check<Value> {
    let x = call.srcs[0];
    let sizes = call.args.ints(0).iter().map(|size| natural(*size)).collect::<Check<Shape>>()?;
    let order = resolve_axes(call.args.ints(2), sizes.len())?;
    let lists = [1, 3].map(|number| {
        call.args.ints(number).iter().map(|count| natural(*count)).collect::<Check<Vec<usize>>>()
    });
    let [parts, groups] = lists;
    let (parts, groups) = (parts?, groups?);
    let covers = |runs: &[usize]| {
        runs.iter().try_fold(0usize, |sum, run| sum.checked_add(*run)) == Some(sizes.len())
    };
    if !covers(&parts) || !covers(&groups) || order.len() != sizes.len() {
        return Err(format!("parts {parts:?}, order {order:?}, groups {groups:?} of {sizes:?}"));
    }
    let permuted: Shape = order.iter().map(|axis| sizes[*axis]).collect();
    if merged(&sizes, &parts).as_ref() != Some(&x.shape) {
        return Err(format!("{sizes:?} in {parts:?} are not {:?}", x.shape));
    }
    let shape = limit(merged(&permuted, &groups).ok_or("an axis is too large")?)?;
    Ok(from_indices(x, shape, |index, source| {
        let coordinates = digits(index, &permuted, &groups);
        let mut split = vec![0; sizes.len()];
        for (coordinate, axis) in coordinates.iter().zip(&order) {
            split[*axis] = *coordinate;
        }
        let mut at = 0;
        for (axis, count) in parts.iter().enumerate() {
            source[axis] = position(&split[at..at + count], &sizes[at..at + count]);
            at += count;
        }
    }))
}

/// The products of runs of sizes.
fn merged(sizes: &[usize], runs: &[usize]) -> Option<Shape> {
    let mut rest = sizes;
    let mut product = |run: &usize| {
        let (first, after) = rest.split_at(*run);
        rest = after;
        first.iter().try_fold(1usize, |product, size| product.checked_mul(*size))
    };
    runs.iter().map(&mut product).collect()
}

/// The coordinates within runs of sizes that an index along each of the runs is made of.
fn digits(index: &[usize], sizes: &[usize], runs: &[usize]) -> Vec<usize> {
    let mut found = vec![0; sizes.len()];
    let mut end = 0;
    for (index, run) in index.iter().zip(runs) {
        let start = end;
        end += run;
        let mut rest = *index;
        for axis in (start..end).rev() {
            found[axis] = rest % sizes[axis];
            rest /= sizes[axis];
        }
    }
    found
}
