//! Methods with indices: which element is read or written where.

use gradiff_corpus::{DType, ReduceOp};

use super::Call;
use super::elementwise::wide;
use super::reduction::min;
use crate::arithmetic::{div, max};
use crate::cast::cast;
use crate::cell::{Cell, Reason};
use crate::infer::{Check, limit, reduced, resolve_axis};
use crate::integer;
use crate::movement::{for_each_index, position};
use crate::reduce::{SumDepth, reduce};
use crate::value::Value;

/// The number of an element of an index, or the reason why it is unspecified.
pub(super) type Index = Result<i128, Reason>;

/// Reads an index tensor.
pub(super) fn indices(index: &Value) -> Check<Vec<Index>> {
    if !index.dtype.is_int() {
        return Err(format!("an index of {}, not of integers", index.dtype.name()));
    }
    let number = |cell: &Cell| match cell {
        Cell::Int(bits) => Ok(integer::value(index.dtype, *bits)),
        Cell::Unspecified(reason) => Err(*reason),
        cell => panic!("{cell:?} is not an integer"),
    };
    Ok(index.cells.iter().map(number).collect())
}

/// 1 at the position along a new last axis that the source names, 0 elsewhere.
pub(super) fn one_hot(call: Call<'_>) -> Check<Value> {
    let index = call.srcs[0];
    let classes = call.args.int(0);
    let count = usize::try_from(classes).map_err(|_| format!("{classes} classes"))?;
    let mut shape = index.shape.clone();
    shape.push(count);
    let shape = limit(shape)?;
    let mut cells = Vec::new();
    for number in indices(index)? {
        cells.extend((0..count as i128).map(|class| match number {
            Ok(number) => Cell::Int((number == class).into()),
            Err(reason) => Cell::Unspecified(reason),
        }));
    }
    Ok(Value::new(DType::I32, shape, cells))
}

/// The elements at the indices along an axis; 0 where there is none.
pub(super) fn index_select(call: Call<'_>) -> Check<Value> {
    let (x, index) = (call.srcs[0], call.srcs[1]);
    let axis = resolve_axis(call.args.int(0), x.shape.len())?;
    let numbers = indices(index)?;
    if index.shape.len() != 1 {
        return Err(format!("an index of shape {:?}", index.shape));
    }
    let mut shape = x.shape.clone();
    shape[axis] = numbers.len();
    let mut cells = Vec::new();
    for_each_index(&limit(shape.clone())?, |at| {
        let mut source = at.to_vec();
        cells.push(match numbers[at[axis]].map(usize::try_from) {
            Ok(Ok(number)) if number < x.shape[axis] => {
                source[axis] = number;
                x.cells[position(&source, &x.shape)]
            }
            Ok(_) => Cell::from_bits(x.dtype, 0),
            Err(reason) => Cell::Unspecified(reason),
        });
    });
    Ok(Value::new(x.dtype, shape, cells))
}

/// Computes each element of the first source from itself and the elements of the third source whose
/// index names it, in row-major order.
pub(crate) fn scattered(call: Call<'_>, write: impl Fn(Cell, &[Cell]) -> Cell) -> Check<Value> {
    scattered_in_order(call, false, write)
}

/// As [`scattered`]. If `is_last_alone`, what was written before the last element does not matter,
/// be it in doubt or not.
fn scattered_in_order(
    call: Call<'_>,
    is_last_alone: bool,
    write: impl Fn(Cell, &[Cell]) -> Cell,
) -> Check<Value> {
    let [x, index, src] = call.srcs[..] else { return Err("three sources".to_string()) };
    let axis = resolve_axis(call.args.int(0), x.shape.len())?;
    let fits = index.shape.len() == x.shape.len()
        && (0..x.shape.len()).all(|i| i == axis || index.shape[i] == x.shape[i]);
    if !fits || index.shape != src.shape || x.dtype != src.dtype {
        return Err(format!(
            "{}{:?} at the indices {:?} of {}{:?}",
            src.dtype.name(),
            src.shape,
            index.shape,
            x.dtype.name(),
            x.shape
        ));
    }
    let numbers = indices(index)?;
    let mut written: Vec<Vec<Cell>> = vec![Vec::new(); x.cells.len()];
    let mut doubts: Vec<Option<Reason>> = vec![None; x.cells.len()];
    let mut sources = numbers.into_iter().zip(src.cells.iter());
    for_each_index(&index.shape, |at| {
        let mut target = at.to_vec();
        match sources.next() {
            Some((Ok(number), cell)) if 0 <= number && number < x.shape[axis] as i128 => {
                target[axis] = number as usize;
                let at = position(&target, &x.shape);
                written[at].push(*cell);
                if is_last_alone {
                    doubts[at] = None;
                }
            }
            Some((Err(reason), _)) => (0..x.shape[axis]).for_each(|number| {
                target[axis] = number;
                doubts[position(&target, &x.shape)] = Some(reason);
            }),
            _ => {}
        }
    });
    let cell = |at: usize| match doubts[at] {
        Some(reason) => Cell::Unspecified(reason),
        None => write(x.cells[at], &written[at]),
    };
    Ok(Value::new(x.dtype, x.shape.clone(), (0..x.cells.len()).map(cell).collect()))
}

pub(super) fn scatter(call: Call<'_>) -> Check<Value> {
    scattered_in_order(call, true, |old, written| *written.last().unwrap_or(&old))
}

/// Adds the elements to what is there, one after the other. Integers wrap at their own width.
pub(super) fn scatter_add(call: Call<'_>) -> Check<Value> {
    let dtype = call.srcs[0].dtype;
    if dtype == DType::Bool {
        return Err("bools are not added".to_string());
    }
    scattered(call, |old, written| {
        let terms = [&[old], written].concat();
        let total = reduce(ReduceOp::Sum, SumDepth::Sequential, dtype, &terms);
        cast(reduced(ReduceOp::Sum, dtype), dtype, total)
    })
}

/// Returns the elements that a position gets a function of.
pub(crate) fn scattered_elements(call: Call<'_>, old: Cell, written: &[Cell]) -> Vec<Cell> {
    let is_included = call.args.flag(2) || written.is_empty();
    if is_included { [&[old], written].concat() } else { written.to_vec() }
}

/// The sum, product, mean, largest or smallest of the elements, and of what is there; sums take one
/// after the other.
pub(super) fn scatter_reduce(call: Call<'_>) -> Check<Value> {
    let (dtype, reduce_by) = (call.srcs[0].dtype, call.args.word(1));
    let is_taken = match reduce_by {
        "mean" => dtype.is_float(),
        "sum" | "prod" => dtype != DType::Bool,
        _ => true,
    };
    if !is_taken {
        return Err(format!("there is no {reduce_by} of {}", dtype.name()));
    }
    scattered(call, |old, written| {
        let group = scattered_elements(call, old, written);
        let sums = SumDepth::Sequential;
        let total = |op| cast(reduced(op, dtype), dtype, reduce(op, sums, dtype, &group));
        match reduce_by {
            "sum" => total(ReduceOp::Sum),
            "prod" => total(ReduceOp::Prod),
            "mean" => {
                let wide = wide(dtype);
                let group: Vec<Cell> = group.iter().map(|cell| cast(dtype, wide, *cell)).collect();
                let sum = reduce(ReduceOp::Sum, sums, wide, &group);
                cast(wide, dtype, div(wide, sum, Cell::exact(group.len() as f64)))
            }
            _ => {
                let pick = if reduce_by == "amax" { greater } else { min };
                let (first, rest) = group.split_first().expect("a position has an element");
                let extreme = rest.iter().fold(*first, |found, cell| pick(dtype, found, *cell));
                if matches!(extreme, Cell::Nan(_)) { Cell::nan() } else { extreme }
            }
        }
    })
}

fn greater(dtype: DType, a: Cell, b: Cell) -> Cell {
    match (a, b) {
        (Cell::Int(x), Cell::Int(y)) => {
            if integer::value(dtype, x) < integer::value(dtype, y) {
                b
            } else {
                a
            }
        }
        _ if dtype.is_float() => max(a, b),
        (Cell::Unspecified(_), _) => a,
        _ => b,
    }
}

/// The largest of the elements and what is there.
pub(super) fn scatter_amax(call: Call<'_>) -> Check<Value> {
    let dtype = call.srcs[0].dtype;
    scattered(call, |old, written| {
        let largest = written.iter().fold(old, |largest, cell| greater(dtype, largest, *cell));
        if matches!(largest, Cell::Nan(_)) { Cell::nan() } else { largest }
    })
}
