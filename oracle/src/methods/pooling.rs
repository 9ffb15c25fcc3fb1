//! Pooling: the largest element and the mean of each window.

use std::cmp::Ordering;

use gradiff_corpus::{DType, ReduceOp};

use super::Call;
use super::elementwise::wide;
use super::indexing::indices;
use super::ordering::extreme;
use crate::arithmetic::div;
use crate::cast::cast;
use crate::cell::Cell;
use crate::infer::{Check, count, limit};
use crate::movement::{for_each_index, position};
use crate::reduce::reduce;
use crate::value::Value;

/// An element of a window.
#[derive(Clone, Copy)]
pub(crate) enum Part {
    /// An element, and its position within the axes of the window in row-major order.
    Element(Cell, usize),
    Padding,
}

/// The elements of a window, without the padding.
pub(crate) fn elements(parts: &[Part]) -> Vec<Cell> {
    let element = |part: &Part| match part {
        Part::Element(cell, _) => Some(*cell),
        Part::Padding => None,
    };
    parts.iter().filter_map(element).collect()
}

/// The largest element of each window, without the padding.
pub(super) fn largest(call: Call<'_>) -> Check<Value> {
    let dtype = call.srcs[0].dtype;
    over_windows(call, |parts| reduce(ReduceOp::Max, call.sums, dtype, &elements(parts)))
}

/// The mean of each window; with the padding as zeros, or without.
pub(super) fn mean(call: Call<'_>) -> Check<Value> {
    let dtype = call.srcs[0].dtype;
    let counts_padding = call.args.flag(5);
    if !dtype.is_float() {
        return Err(format!("{} has no means", dtype.name()));
    }
    // Halves are computed in f32 and rounded once.
    let wide = wide(dtype);
    over_windows(call, |parts| {
        let terms: Vec<Cell> = parts
            .iter()
            .filter_map(|part| match part {
                Part::Element(cell, _) => Some(cast(dtype, wide, *cell)),
                Part::Padding => counts_padding.then_some(Cell::exact(0.0)),
            })
            .collect();
        // Zeros that do not count may still be added, which frees the sign of a zero.
        let sum = match terms.len() == parts.len() {
            true => reduce(ReduceOp::Sum, call.sums, wide, &terms),
            false => {
                reduce(ReduceOp::Sum, call.sums, wide, &[&terms[..], &[Cell::zero(None)]].concat())
            }
        };
        cast(wide, dtype, div(wide, sum, Cell::exact(terms.len() as f64)))
    })
}

/// Applies a function to the parts of each window over the last axes: those within the padding.
pub(crate) fn over_windows(call: Call<'_>, f: impl Fn(&[Part]) -> Cell) -> Check<Value> {
    let (x, args) = (call.srcs[0], call.args);
    let rank = args.ints(0).len();
    if rank == 0 || x.shape.len() < rank {
        return Err(format!("windows of {rank} axes in shape {:?}", x.shape));
    }
    let kernel = super::counts(args.ints(0), rank, 1)?;
    let stride = super::counts(args.ints(1), rank, 1)?;
    let dilation = super::counts(args.ints(2), rank, 1)?;
    let padding = super::padding(args.ints(3), rank)?;
    let outer = x.shape.len() - rank;
    let (mut shape, mut padded) = (x.shape[..outer].to_vec(), Vec::new());
    for axis in 0..rank {
        let size = x.shape[outer + axis];
        let (before, after) = (padding[2 * axis], padding[2 * axis + 1]);
        let total = size.checked_add(before).and_then(|sum| sum.checked_add(after));
        let last = (kernel[axis] - 1).checked_mul(dilation[axis]);
        let rest = || total?.checked_sub(last?)?.checked_sub(1);
        let rest = rest().ok_or_else(|| format!("a window of {kernel:?} does not fit"))?;
        let mut steps = rest / stride[axis];
        if args.flag(4) {
            // One more window may reach beyond the padding; the last one must begin before the
            // padding at the end.
            steps = rest.div_ceil(stride[axis]);
            let start = steps.checked_mul(stride[axis]);
            if 0 < steps && start.is_none_or(|start| size + before <= start) {
                steps -= 1;
            }
        }
        shape.push(steps + 1);
        padded.push(size + before + after);
    }
    limit([&shape[..], &kernel].concat())?;
    let mut cells = Vec::with_capacity(count(&shape));
    for_each_index(&shape, |out| {
        let mut parts = Vec::new();
        for_each_index(&kernel, |at| {
            let mut source = out[..outer].to_vec();
            let (mut is_element, mut is_padding) = (true, true);
            for axis in 0..rank {
                let place = out[outer + axis] * stride[axis] + at[axis] * dilation[axis];
                is_padding &= place < padded[axis];
                let place = place.wrapping_sub(padding[2 * axis]);
                is_element &= place < x.shape[outer + axis];
                source.push(place);
            }
            if is_element {
                let cell = x.cells[position(&source, &x.shape)];
                parts.push(Part::Element(cell, position(&source[outer..], &x.shape[outer..])));
            } else if is_padding {
                parts.push(Part::Padding);
            }
        });
        cells.push(f(&parts));
    });
    Ok(Value::new(x.dtype, shape, cells))
}

/// The position of the largest element of each window, within the axes of windows.
pub(super) fn positions_of_largest(call: Call<'_>) -> Check<Value> {
    let dtype = call.srcs[0].dtype;
    let position_of = |part: &Part| match part {
        Part::Element(_, at) => Some(*at),
        Part::Padding => None,
    };
    let value = over_windows(call, |parts| {
        let positions: Vec<usize> = parts.iter().filter_map(position_of).collect();
        if positions.is_empty() {
            return Cell::Int((-1i32 as u32).into());
        }
        extreme(dtype, &elements(parts), Ordering::Greater)
            .map_or_else(Cell::Unspecified, |at| Cell::Int(positions[at] as u64))
    })?;
    Ok(Value { dtype: DType::I32, ..value })
}

/// Zeros, with the elements written at their positions within the last axes.
pub(super) fn unpool(call: Call<'_>) -> Check<Value> {
    let (x, positions) = (call.srcs[0], call.srcs[1]);
    let numbers = indices(positions)?;
    let rank = call.args.ints(0).len();
    if rank == 0 || x.shape.len() < rank || positions.shape != x.shape {
        return Err(format!("{rank} sizes, positions {:?} of {:?}", positions.shape, x.shape));
    }
    let sizes = super::counts(call.args.ints(0), rank, 0)?;
    let (outer, inner) = x.shape.split_at(x.shape.len() - rank);
    let shape = limit([outer, &sizes].concat())?;
    let (block, written) = (count(&sizes), count(inner));
    let mut cells = vec![Cell::from_bits(x.dtype, 0); count(&shape)];
    for (at, number) in numbers.into_iter().enumerate() {
        let first = at / written * block;
        match number {
            Ok(number) if 0 <= number && number < block as i128 => {
                cells[first + number as usize] = x.cells[at];
            }
            Ok(_) => {}
            Err(reason) => cells[first..first + block].fill(Cell::Unspecified(reason)),
        }
    }
    Ok(Value::new(x.dtype, shape, cells))
}
