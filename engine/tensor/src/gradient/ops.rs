//! The derivatives of the ops of tensor level: a row for each op.

use std::f64::consts::{LN_2, LOG2_E};

use gradiff_graph::{Arg, Constant, Op, UOp};

use super::buffered::buffered;
use super::functions;
use super::shares::{divided, shared};
use crate::methods::movement::inverse;
use crate::tensor::{broadcast, reshape_node, with_shape};
use crate::{Error, Scalar, Tensor};

/// The gradients with respect to the sources of a node; `None` for a source that has none.
type Gradients = Result<Vec<Option<Tensor>>, Error>;

/// Returns the gradients with respect to the sources of `node`, given that with respect to itself.
/// Those that are not needed may be left out.
pub(super) fn gradients(node: &UOp, g: &Tensor, is_needed: &[bool]) -> Gradients {
    let source = |index: usize| Tensor::from_valid(node.src()[index].clone());
    let value = || Tensor::from_valid(node.clone());
    let only = |gradient: Tensor| Ok(vec![Some(gradient)]);
    // One gradient for each source, if it is needed.
    let each = |functions: &[&dyn Fn() -> Result<Tensor, Error>]| -> Gradients {
        let needed = functions.iter().zip(is_needed);
        needed.map(|(function, is_needed)| is_needed.then(function).transpose()).collect()
    };
    match node.op() {
        op if op.is_movement() => only(moved_back(node, g)?),
        Op::Contiguous | Op::Parameter => only(g.clone()),
        Op::Copy => only(copied_back(&node.src()[0], g)),
        Op::Function => functions::gradients(node, g, is_needed),
        Op::ReduceAxis => only(reduced(node, g)?),
        Op::Cast => only(g.cast(node.src()[0].dtype())?),
        Op::Neg => only(g.neg()?),
        Op::Exp2 => only(g.mul(&value().mul(LN_2)?)?),
        Op::Log2 => only(g.mul(LOG2_E)?.div(source(0))?),
        Op::Sin => only(g.mul(&source(0).cos()?)?),
        Op::Sqrt => only(g.mul(0.5)?.div(value())?),
        Op::Recip => only(g.neg()?.mul(value())?.mul(value())?),
        Op::Add => each(&[&|| Ok(g.clone()), &|| Ok(g.clone())]),
        Op::Sub => each(&[&|| Ok(g.clone()), &|| g.neg()]),
        Op::Mul => each(&[&|| g.mul(source(1)), &|| g.mul(source(0))]),
        Op::FDiv => each(&[&|| g.div(source(1)), &|| g.neg()?.mul(value())?.div(source(1))]),
        Op::Max => {
            each(&[&|| extreme(g, &source(1), &source(0)), &|| extreme(g, &source(0), &source(1))])
        }
        Op::Min => {
            each(&[&|| extreme(g, &source(0), &source(1)), &|| extreme(g, &source(1), &source(0))])
        }
        Op::Pow => each(&[&|| g.mul(&slope_of_base(&source(0), &source(1))?), &|| {
            g.mul(&slope_of_exponent(&source(0), &source(1), &value())?)
        }]),
        Op::Where => {
            let zero = Tensor::zeros(g.dtype(), &[])?;
            each(&[&|| Ok(zero.clone()), &|| source(0).where_(g, &zero), &|| {
                source(0).where_(&zero, g)
            }])
        }
        Op::MulAcc => each(&[&|| g.mul(source(1)), &|| g.mul(source(0)), &|| Ok(g.clone())]),
        op => panic!("{op} of floats has a derivative, which no row gives"),
    }
}

/// The gradient with respect to the source of a movement op.
fn moved_back(node: &UOp, g: &Tensor) -> Result<Tensor, Error> {
    let from = node.src()[0].shape().expect("a node of tensor level has a shape");
    match (node.op(), node.arg()) {
        (Op::Reshape, _) => Ok(Tensor::from_valid(reshape_node(g.uop(), from))),
        (Op::Permute, Arg::Dims(axes)) => {
            let order: Vec<usize> = axes.iter().map(|axis| *axis as usize).collect();
            Ok(g.permuted(&inverse(&order)))
        }
        (Op::Expand, Arg::Dims(to)) => {
            let axes: Vec<usize> =
                (0..from.len()).filter(|axis| from[*axis] != to[*axis]).collect();
            if axes.is_empty() { Ok(g.clone()) } else { g.sum_kept(&axes) }
        }
        (Op::Pad, Arg::Pairs(pads)) => {
            let kept = pads.iter().zip(from).map(|((before, _), size)| (*before, before + size));
            g.shrink(&kept.collect::<Vec<_>>())
        }
        (Op::Shrink, Arg::Pairs(ranges)) => {
            let pads = ranges.iter().zip(from).map(|((start, end), size)| (*start, size - end));
            g.pad(&pads.collect::<Vec<_>>(), 0)
        }
        (Op::Flip, Arg::Dims(axes)) => g.flip(axes),
        (op, _) => panic!("{op} is not a movement of tensor level"),
    }
}

/// The gradient on the device that the source is on.
fn copied_back(source: &UOp, g: &Tensor) -> Tensor {
    match source.device() {
        Some(device) => {
            let arg = Arg::Device(device.clone());
            Tensor::from_valid(with_shape(UOp::new(Op::Copy, g.dtype(), [g.uop()], arg)))
        }
        None => g.clone(),
    }
}

/// The gradient with respect to the source of a reduction.
fn reduced(node: &UOp, g: &Tensor) -> Result<Tensor, Error> {
    let Arg::Reduce(op, axes) = node.arg() else { panic!("{node:?} reduces by an op") };
    let axes: Vec<usize> = axes.iter().map(|axis| *axis as usize).collect();
    let x_of = |node: &UOp| Tensor::from_valid(node.src()[0].clone());
    let x = x_of(node);
    match op {
        Op::Add => Ok(Tensor::from_valid(broadcast(g.uop(), x.shape()))),
        Op::Max => {
            let largest = buffered(node, &[0]);
            let is_largest = x_of(&largest).cmpeq(Tensor::from_valid(largest))?;
            let count = is_largest.cast(g.dtype().accumulator())?.sum_kept(&axes)?;
            shared(&is_largest, &divided(g, &count)?)
        }
        Op::Mul => g.mul(&product_of_rest(&x, &axes)?),
        op => panic!("there is no reduction by {op}"),
    }
}

/// The product of all elements along `axes` but the one at each position, without a division.
fn product_of_rest(x: &Tensor, axes: &[usize]) -> Result<Tensor, Error> {
    let rest = (0..x.rank()).filter(|axis| !axes.contains(axis));
    let order: Vec<usize> = rest.chain(axes.iter().copied()).collect();
    let moved = x.permuted(&order);
    let count: i64 = axes.iter().map(|axis| x.shape()[*axis]).product();
    let mut rows = moved.shape()[..x.rank() - axes.len()].to_vec();
    rows.push(count);
    let row = moved.reshape(&rows)?;
    let last = rows.len() - 1;
    // The products of the elements before each, and of those after it.
    let before = |row: &Tensor| -> Result<Tensor, Error> {
        row.delayed(last, Scalar::Int(1))?.cumprod(last as i64)
    };
    let product = before(&row)?.mul(&before(&row.flip(&[-1])?)?.flip(&[-1])?)?;
    Ok(product.reshape(moved.shape())?.permuted(&inverse(&order)))
}

/// The gradient with respect to `greater` of the larger of two tensors, or with respect to `less`
/// of the lesser of them: half of it where they are equal.
fn extreme(g: &Tensor, less: &Tensor, greater: &Tensor) -> Result<Tensor, Error> {
    let zero = Tensor::zeros(g.dtype(), &[])?;
    let unless_equal = less.cmplt(greater)?.where_(g, &zero)?;
    less.cmpeq(greater)?.where_(&g.mul(0.5)?, &unless_equal)
}

/// The derivative of `x^y` with respect to x: `y * x^(y - 1)`, 0 where y is 0.
fn slope_of_base(x: &Tensor, y: &Tensor) -> Result<Tensor, Error> {
    let is_constant = y.cmpeq(0)?;
    // Where the slope is not chosen, its own derivative must be finite: it is multiplied by 0.
    let less = is_constant.where_(1, y)?.sub(1)?;
    let slope = y.mul(&x.pow(&less)?)?;
    is_constant.where_(&Tensor::zeros(x.dtype(), &[])?, &slope)
}

/// The derivative of `value = x^y` with respect to y: `value * log(x)`, 0 where x is 0 and y is not
/// negative. The constant nearest to e stands for e itself.
fn slope_of_exponent(x: &Tensor, y: &Tensor, value: &Tensor) -> Result<Tensor, Error> {
    let e = Constant::float(x.dtype(), std::f64::consts::E);
    if x.constant() == Some(e) || gradiff_schedule::constant_of(&x.uop()) == Some(e) {
        return Ok(value.clone());
    }
    let is_flat = x.cmpeq(0)?.and(&y.cmplt(0)?.not()?)?;
    let slope = value.mul(&is_flat.where_(1, x)?.log()?)?;
    is_flat.where_(&Tensor::zeros(x.dtype(), &[])?, &slope)
}
