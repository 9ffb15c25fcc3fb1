//! Sums of products: the matrix product and convolutions.

use gradiff_corpus::{DType, ReduceOp, Shape};

use super::Call;
use super::elementwise::{require, wide};
use crate::arithmetic;
use crate::cast::cast;
use crate::cell::{Cell, Real, Reason};
use crate::infer::{Check, broadcast, count, limit, promote, reduced};
use crate::integer;
use crate::movement::{broadcast_positions, for_each_index, position};
use crate::reduce::{SumDepth, reduce};
use crate::value::Value;

/// Two sources in their promoted dtype, which has products.
fn factors(call: Call<'_>) -> Check<(DType, Value, Value)> {
    let (x, y) = (call.srcs[0], call.srcs[1]);
    let dtype = promote(x.dtype, y.dtype);
    if dtype == DType::Bool {
        return Err("bool has no products".into());
    }
    let promoted = |value: &Value| value.map(dtype, |cell| cast(value.dtype, dtype, cell));
    Ok((dtype, promoted(x), promoted(y)))
}

/// The product of two elements of a dtype.
pub(super) fn product(dtype: DType, x: Cell, y: Cell) -> Cell {
    match (x, y) {
        _ if dtype.is_float() => arithmetic::mul(dtype, x, y),
        (Cell::Int(x), Cell::Int(y)) => Cell::Int(integer::wrap(
            dtype,
            integer::value(dtype, x).wrapping_mul(integer::value(dtype, y)),
        )),
        // An undefined integer is any integer.
        (Cell::Int(0), _) | (_, Cell::Int(0)) => Cell::Int(0),
        (Cell::Unspecified(_), _) => x,
        _ => y,
    }
}

/// The function of the pairs of factors that makes an element of the result, in their dtype.
type Combine<'a> = &'a dyn Fn(DType, &[(Cell, Cell)]) -> Cell;

/// The same; the last argument are the weights of the pairs whose other factor is a zero that may
/// be left out.
type CombineWithZeros<'a> = &'a dyn Fn(DType, &[(Cell, Cell)], &[Cell]) -> Cell;

/// The sum of the products of pairs, cast back to their dtype.
fn dot(sums: SumDepth) -> impl Fn(DType, &[(Cell, Cell)]) -> Cell {
    move |dtype, pairs| {
        let products: Vec<Cell> = pairs.iter().map(|(x, y)| product(dtype, *x, *y)).collect();
        let sum = reduce(ReduceOp::Sum, sums, dtype, &products);
        cast(reduced(ReduceOp::Sum, dtype), dtype, sum)
    }
}

/// The matrix product.
pub(super) fn matmul(call: Call<'_>) -> Check<Value> {
    matmul_by(call, &dot(call.sums))
}

/// The product with a weight, plus a bias: computed in the wide dtype and rounded once.
pub(super) fn linear(call: Call<'_>) -> Check<Value> {
    let [x, weight, ref bias @ ..] = call.srcs[..] else { return Err("two sources".to_string()) };
    let mut dtype = x.dtype;
    for src in call.srcs {
        require(src.dtype.is_float(), src.dtype, "floats")?;
        dtype = promote(dtype, src.dtype);
    }
    let wide_dtype = wide(dtype);
    let widened = |src: &Value| {
        src.map(wide_dtype, |cell| cast(dtype, wide_dtype, cast(src.dtype, dtype, cell)))
    };
    let (x, weight) = (widened(x), widened(weight));
    let product = match weight.shape.len() {
        1 => elementwise(&[&x, &weight], |cells| arithmetic::mul(wide_dtype, cells[0], cells[1]))?,
        _ => matmul(Call { srcs: &[&x, &weight], ..call })?,
    };
    let sum = match bias {
        [] => product,
        [bias] => elementwise(&[&product, &widened(bias)], |cells| {
            arithmetic::add(wide_dtype, cells[0], cells[1])
        })?,
        _ => return Err("more than one bias".to_string()),
    };
    Ok(sum.map(dtype, |cell| cast(wide_dtype, dtype, cell)))
}

/// Applies a function to the elements of two sources of one dtype, which are broadcast.
fn elementwise(srcs: &[&Value; 2], f: impl Fn([Cell; 2]) -> Cell) -> Check<Value> {
    let [x, y] = srcs;
    let shape = broadcast(&x.shape, &y.shape)?;
    let positions = broadcast_positions(&x.shape, &shape)
        .into_iter()
        .zip(broadcast_positions(&y.shape, &shape));
    let cells = positions.map(|(a, b)| f([x.cells[a], y.cells[b]])).collect();
    Ok(Value::new(x.dtype, shape, cells))
}

/// The convolution.
pub(super) fn convolution(call: Call<'_>) -> Check<Value> {
    convolution_by(call, &dot(call.sums))
}

/// The transposed convolution.
pub(super) fn transposed_convolution(call: Call<'_>) -> Check<Value> {
    let dot = dot(call.sums);
    transposed_convolution_by(call, &|dtype, pairs, weights_of_zeros| {
        let sum = dot(dtype, pairs);
        let is_finite = |weight: &Cell| matches!(weight, Cell::Int(_) | Cell::Real(_));
        match sum {
            Cell::Unspecified(_) => sum,
            _ if !weights_of_zeros.iter().all(is_finite) => Cell::Unspecified(Reason::OptionalZero),
            Cell::Real(real) if real.is_zero() && !weights_of_zeros.is_empty() => {
                Cell::Real(Real { zero_sign: None, ..real })
            }
            _ => sum,
        }
    })
}

/// The matrix product, whose sums of products are `combine`.
pub(crate) fn matmul_by(call: Call<'_>, combine: Combine<'_>) -> Check<Value> {
    let (dtype, x, y) = factors(call)?;
    let refused = || format!("{:?} and {:?} do not fit", x.shape, y.shape);
    // A vector is a row on the left, a column on the right.
    let (left, right): (Shape, Shape) = match (&x.shape[..], &y.shape[..]) {
        ([], _) | (_, []) => return Err(refused()),
        ([k], [n]) => (vec![1, *k], vec![*n, 1]),
        ([k], _) => (vec![1, *k], y.shape.clone()),
        (_, [n]) => (x.shape.clone(), vec![*n, 1]),
        _ => (x.shape.clone(), y.shape.clone()),
    };
    let (outer_left, matrix_left) = left.split_at(left.len() - 2);
    let (outer_right, matrix_right) = right.split_at(right.len() - 2);
    let (&[m, k], &[inner, n]) = (matrix_left, matrix_right) else { return Err(refused()) };
    if k != inner {
        return Err(refused());
    }
    let outer = broadcast(outer_left, outer_right)?;
    limit([&outer[..], &[m, n, k]].concat())?;
    let firsts_left = broadcast_positions(outer_left, &outer);
    let firsts_right = broadcast_positions(outer_right, &outer);
    let (x_cells, y_cells) = (&x.cells, &y.cells);
    let mut cells = Vec::with_capacity(count(&outer) * m * n);
    for (a, b) in firsts_left.into_iter().zip(firsts_right) {
        for row in 0..m {
            for column in 0..n {
                let pairs: Vec<(Cell, Cell)> = (0..k)
                    .map(|i| {
                        let at = ((a * m + row) * k + i, (b * k + i) * n + column);
                        (x_cells[at.0], y_cells[at.1])
                    })
                    .collect();
                cells.push(combine(dtype, &pairs));
            }
        }
    }
    let rows = (x.shape.len() > 1).then_some(m);
    let columns = (y.shape.len() > 1).then_some(n);
    let shape = outer.into_iter().chain(rows).chain(columns).collect();
    Ok(Value::new(dtype, shape, cells))
}

/// The options of a convolution.
struct Options {
    groups: usize,
    stride: Vec<usize>,
    dilation: Vec<usize>,
    before: Vec<usize>,
    after: Vec<usize>,
}

/// Reads the options that both kinds of convolutions begin with, for `rank` axes of space.
fn options(call: Call<'_>, rank: usize) -> Check<Options> {
    let groups = usize::try_from(call.args.int(0)).unwrap_or(0);
    if groups == 0 {
        return Err("there is no group".into());
    }
    let padding = super::padding(call.args.ints(3), rank)?;
    Ok(Options {
        groups,
        stride: super::counts(call.args.ints(1), rank, 1)?,
        dilation: super::counts(call.args.ints(2), rank, 1)?,
        before: padding.iter().copied().step_by(2).collect(),
        after: padding.iter().copied().skip(1).step_by(2).collect(),
    })
}

/// The convolution: the sums of products over channels and windows are `combine`.
pub(crate) fn convolution_by(call: Call<'_>, combine: Combine<'_>) -> Check<Value> {
    let (dtype, x, w) = factors(call)?;
    let refused = || format!("{:?} with weights {:?} does not fit", x.shape, w.shape);
    let ([n, channels, sizes @ ..], [outputs, inputs, kernel @ ..]) = (&x.shape[..], &w.shape[..])
    else {
        return Err(refused());
    };
    let rank = kernel.len();
    let options = options(call, rank)?;
    let groups = options.groups;
    let is_fit = rank != 0
        && sizes.len() == rank
        && inputs.checked_mul(groups) == Some(*channels)
        && outputs % groups == 0;
    if !is_fit {
        return Err(refused());
    }
    let mut shape = vec![*n, *outputs];
    for axis in 0..rank {
        let padded = sizes[axis]
            .checked_add(options.before[axis])
            .and_then(|size| size.checked_add(options.after[axis]));
        let last = kernel[axis].checked_sub(1).and_then(|k| k.checked_mul(options.dilation[axis]));
        let rest = last.and_then(|last| padded?.checked_sub(last)?.checked_sub(1));
        shape.push(rest.ok_or_else(refused)? / options.stride[axis] + 1);
    }
    limit([&shape[..], &w.shape[1..]].concat())?;
    let zero = Cell::from_bits(dtype, 0);
    let mut cells = Vec::with_capacity(count(&shape));
    for_each_index(&shape, |out| {
        let first_input = out[1] / (outputs / groups) * inputs;
        let mut pairs = Vec::new();
        for_each_index(&w.shape[1..], |at| {
            let weight = w.cells[position(&[&[out[1]], at].concat(), &w.shape)];
            let mut source = vec![out[0], first_input + at[0]];
            let mut is_inside = true;
            for axis in 0..rank {
                let padded =
                    out[2 + axis] * options.stride[axis] + at[1 + axis] * options.dilation[axis];
                let place = padded.wrapping_sub(options.before[axis]);
                is_inside &= place < sizes[axis];
                source.push(place);
            }
            let element = if is_inside { x.cells[position(&source, &x.shape)] } else { zero };
            pairs.push((element, weight));
        });
        cells.push(combine(dtype, &pairs));
    });
    Ok(Value::new(dtype, shape, cells))
}

/// The transposed convolution: each element of the image adds its products to the result. Whether
/// the zeros between and around the elements do is free. The sums of products, those of zeros
/// included, are `combine`, which is told the weights of these zeros.
pub(crate) fn transposed_convolution_by(
    call: Call<'_>,
    combine: CombineWithZeros<'_>,
) -> Check<Value> {
    let (dtype, x, w) = factors(call)?;
    let refused = || format!("{:?} with weights {:?} does not fit", x.shape, w.shape);
    let ([n, channels, sizes @ ..], [inputs, per_group, kernel @ ..]) =
        (&x.shape[..], &w.shape[..])
    else {
        return Err(refused());
    };
    let rank = kernel.len();
    let options = options(call, rank)?;
    let added = super::counts(call.args.ints(4), rank, 0)?;
    let groups = options.groups;
    if rank == 0 || sizes.len() != rank || inputs != channels || inputs % groups != 0 {
        return Err(refused());
    }
    let mut shape = vec![*n, per_group.checked_mul(groups).ok_or_else(refused)?];
    for axis in 0..rank {
        let size = || {
            let last = sizes[axis].checked_sub(1)?.checked_mul(options.stride[axis])?;
            let reach = kernel[axis].checked_sub(1)?.checked_mul(options.dilation[axis])?;
            let whole = last.checked_add(reach)?.checked_add(added[axis])?.checked_add(1)?;
            whole.checked_sub(options.before[axis])?.checked_sub(options.after[axis])
        };
        shape.push(size().filter(|size| *size != 0).ok_or_else(refused)?);
    }
    limit([&shape[..], &w.shape[1..]].concat())?;
    let zero = Cell::from_bits(dtype, 0);
    let mut cells = Vec::with_capacity(count(&shape));
    for_each_index(&shape, |out| {
        let group = out[1] / per_group;
        let (mut pairs, mut weights_of_zeros) = (Vec::new(), Vec::new());
        for_each_index(&[&[inputs / groups], kernel].concat(), |at| {
            let channel = group * (inputs / groups) + at[0];
            // The element of the image whose product with this weight comes here; between and
            // around the elements of the image are zeros.
            let mut source = vec![out[0], channel];
            let mut is_element = true;
            for axis in 0..rank {
                let reach = at[1 + axis] * options.dilation[axis];
                let place = (out[2 + axis] + options.before[axis]).wrapping_sub(reach);
                let stride = options.stride[axis];
                is_element &= place.is_multiple_of(stride) && place / stride < sizes[axis];
                source.push(place / stride);
            }
            let weight = [&[channel, out[1] % per_group], &at[1..]].concat();
            let weight = w.cells[position(&weight, &w.shape)];
            if is_element {
                pairs.push((x.cells[position(&source, &x.shape)], weight));
            } else {
                pairs.push((zero, weight));
                weights_of_zeros.push(weight);
            }
        });
        cells.push(combine(dtype, &pairs, &weights_of_zeros));
    });
    Ok(Value::new(dtype, shape, cells))
}
