//! Methods that reduce axes to one element.

use gradiff_corpus::DType;

use super::Call;
use crate::arithmetic::{max, neg};
use crate::cell::Cell;
use crate::infer::{Check, resolve_axes};
use crate::integer;
use crate::movement;
use crate::value::Value;

/// The smallest element along axes.
pub(super) fn smallest(call: Call<'_>) -> Check<Value> {
    let x = call.srcs[0];
    let dtype = x.dtype;
    over_axes(x, call.args.ints(0), call.args.flag(1), |group| {
        let (first, rest) = group.split_first().ok_or("there is no element")?;
        Ok(rest.iter().fold(*first, |least, cell| min(dtype, least, *cell)))
    })
}

pub(super) fn min(dtype: DType, a: Cell, b: Cell) -> Cell {
    match (a, b) {
        (Cell::Int(x), Cell::Int(y)) => {
            if integer::value(dtype, y) < integer::value(dtype, x) {
                b
            } else {
                a
            }
        }
        _ if dtype.is_float() => neg(max(neg(a), neg(b))),
        (Cell::Unspecified(_), _) => a,
        _ => b,
    }
}

/// Reduces the elements of each group along `axes`. The axes are kept with size 1 or removed.
pub(crate) fn over_axes(
    x: &Value,
    axes: &[i64],
    keepdim: bool,
    f: impl Fn(&[Cell]) -> Check<Cell>,
) -> Check<Value> {
    let mut axes = resolve_axes(axes, x.shape.len())?;
    axes.sort_unstable();
    let (mut shape, targets) = movement::reduce(&x.shape, &axes)?;
    let mut groups = vec![Vec::new(); shape.iter().product()];
    for (cell, target) in x.cells.iter().zip(targets) {
        groups[target].push(*cell);
    }
    let cells = groups.iter().map(|group| f(group)).collect::<Check<Vec<_>>>()?;
    if !keepdim {
        axes.iter().rev().for_each(|axis| {
            shape.remove(*axis);
        });
    }
    Ok(Value::new(x.dtype, shape, cells))
}
