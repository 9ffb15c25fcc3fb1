//! Translation of a corpus program into calls of the engine's tensors, statement by statement.

use std::collections::HashSet;

use gradiff::graph::Placement;
use gradiff::{DType, Operand, Scalar, Tensor, keepdim};
use gradiff_corpus as corpus;
use gradiff_corpus::{BinaryOp, Literal, Program, ReduceOp, Statement, UnaryOp, ValueId, fill};

use crate::backends::methods;
use crate::backends::refusal::Refusal;

/// The words of a panic if a dtype of one side has no name on the other.
pub(crate) const SAME_DTYPES: &str = "both sides have the same thirteen dtypes";

/// Callback for the tensor of a `realize` statement.
pub(crate) type OnRealize<'a> = &'a mut dyn FnMut(&Tensor) -> Result<(), Refusal>;

/// Callback that makes the tensor of an `input` statement, from dtype, shape and bytes.
pub(crate) type OnInput<'a> =
    &'a mut dyn FnMut(DType, &[i64], &[u8]) -> Result<Tensor, gradiff::Error>;

/// The tensors of a program's outputs.
///
/// # Errors
/// The engine's message if it refuses a statement, with the statement's number.
pub(crate) fn outputs(program: &Program, realize: OnRealize<'_>) -> Result<Vec<Tensor>, Refusal> {
    outputs_with(program, &mut Tensor::from_bytes, &Ok, realize)
}

/// The tensors of a program's outputs; `input` makes its inputs, and `place` puts data on a device:
/// inputs, and what a method makes of data of its own (`keccak` of constants).
///
/// # Errors
/// As [`outputs`].
pub(crate) fn outputs_with(
    program: &Program,
    input: OnInput<'_>,
    place: &dyn Fn(Tensor) -> Result<Tensor, gradiff::Error>,
    realize: OnRealize<'_>,
) -> Result<Vec<Tensor>, Refusal> {
    let mut values: Vec<Tensor> = Vec::with_capacity(program.statements.len());
    let targets = targets(program);
    // For each value the first one that is the same tensor: realising returns its source.
    let mut firsts: Vec<usize> = Vec::with_capacity(program.statements.len());
    for (number, statement) in program.statements.iter().enumerate() {
        let at = |refusal: Refusal| refusal.at(&format!("statement {number}"));
        let before = assigned(statement, &values).map_err(|error| at(error.into()))?;
        let value = value(statement, &values, input).map_err(|error| at(error.into()))?;
        let value = match value.uop().device() {
            Some(Placement::Default) => place(value).map_err(|error| at(error.into()))?,
            _ => value,
        };
        if let Some((target, before)) = before {
            let is_changed = |(_, first): &(_, &usize)| **first == firsts[target];
            values.iter_mut().zip(&firsts).filter(is_changed).for_each(|(value, _)| {
                *value = before.clone();
            });
        }
        firsts.push(match statement {
            Statement::Realize { src } => firsts[src.0 as usize],
            _ => number,
        });
        let value = match targets.contains(&ValueId(number as u32)) {
            true => target(&value).map_err(|error| at(error.into()))?,
            false => value,
        };
        if let Statement::Realize { .. } = statement {
            realize(&value).map_err(at)?;
        }
        values.push(value);
    }
    Ok(program.outputs.iter().map(|id| values[id.0 as usize].clone()).collect())
}

/// The number of the tensor that the statement changes in place, and a tensor of its elements
/// before that, which later statements use instead. The statement changes the tensor that an
/// earlier one returned, so a tensor that shares its state by mistake changes with it.
fn assigned(
    statement: &Statement,
    values: &[Tensor],
) -> Result<Option<(usize, Tensor)>, gradiff::Error> {
    match statement {
        Statement::Method { method, srcs, .. } if method.is_in_place() => {
            let target = srcs[0].0 as usize;
            Ok(Some((target, values[target].reshape(values[target].shape())?)))
        }
        _ => Ok(None),
    }
}

/// The values that gradients are taken with respect to.
pub(crate) fn targets(program: &Program) -> HashSet<ValueId> {
    let targets = program.statements.iter().filter_map(|statement| match statement {
        Statement::Gradient { wrt, .. } => Some(*wrt),
        _ => None,
    });
    targets.collect()
}

/// A tensor of its own for a value that gradients are taken with respect to: without it, values
/// that are computed alike would be the same.
///
/// # Errors
/// The value is not of floats.
pub(crate) fn target(value: &Tensor) -> Result<Tensor, gradiff::Error> {
    value.reshape(value.shape())?.requires_grad_(true)
}

/// The engine's dtype of the same name.
pub(crate) fn dtype(dtype: gradiff_corpus::DType) -> DType {
    DType::from_name(dtype.name()).expect(SAME_DTYPES)
}

fn numbers(shape: &[usize]) -> Vec<i64> {
    shape.iter().map(|size| *size as i64).collect()
}

fn pairs(pairs: &[(usize, usize)]) -> Vec<(i64, i64)> {
    pairs.iter().map(|(a, b)| (*a as i64, *b as i64)).collect()
}

/// A literal as the engine's scalar.
pub(crate) fn scalar(literal: &Literal) -> Scalar {
    match literal {
        Literal::Bool(value) => Scalar::Bool(*value),
        Literal::Int(value) => Scalar::Int(*value),
        Literal::Float(value) => Scalar::Float(*value),
    }
}

/// The tensor of a statement whose sources are among `values`.
///
/// # Errors
/// The engine's error if it refuses the statement.
pub(crate) fn value(
    statement: &Statement,
    values: &[Tensor],
    input: OnInput<'_>,
) -> Result<Tensor, gradiff::Error> {
    let source = |id: &ValueId| &values[id.0 as usize];
    let operand = |operand: &corpus::Operand| match operand {
        corpus::Operand::Value(id) => Operand::Tensor(source(id).clone()),
        corpus::Operand::Literal(literal) => Operand::Scalar(scalar(literal)),
    };
    match statement {
        Statement::Input { dtype: of, shape, fill: data } => {
            let data = fill(*of, shape, data);
            input(dtype(*of), &numbers(shape), &data.to_bytes())
        }
        Statement::Const { dtype: of, shape, value } => {
            Tensor::full(dtype(*of), &numbers(shape), scalar(value))
        }
        Statement::Arange { dtype: of, start, step, count } => {
            Tensor::arange(dtype(*of), *start, *step, *count as i64)
        }
        Statement::Unary { op, src } => unary(*op, source(src)),
        Statement::Binary { op, srcs } => binary(*op, operand(&srcs[0]), operand(&srcs[1])),
        Statement::Where { srcs: [condition, x, y] } => {
            Tensor::select(operand(condition), operand(x), operand(y))
        }
        Statement::MulAcc { srcs: [x, y, z] } => {
            Tensor::multiply_accumulate(operand(x), operand(y), operand(z))
        }
        Statement::Cast { src, dtype: to } => source(src).cast(dtype(*to)),
        Statement::Bitcast { src, dtype: to } => source(src).bitcast(dtype(*to)),
        Statement::Reduce { op, src, axes } => {
            let axes = keepdim(&numbers(axes)[..]);
            match op {
                ReduceOp::Sum => source(src).sum(axes),
                ReduceOp::Prod => source(src).prod(axes),
                ReduceOp::Max => source(src).max(axes),
            }
        }
        Statement::Reshape { src, shape } => source(src).reshape(&numbers(shape)),
        Statement::Permute { src, axes } => source(src).permute(&numbers(axes)),
        Statement::Expand { src, shape } => source(src).expand(&numbers(shape)),
        Statement::Pad { src, pads, value } => source(src).pad(&pairs(pads), scalar(value)),
        Statement::Shrink { src, ranges } => source(src).shrink(&pairs(ranges)),
        Statement::Flip { src, axes } => source(src).flip(&numbers(axes)),
        Statement::Cat { srcs, axis } => {
            let srcs: Vec<&Tensor> = srcs.iter().map(source).collect();
            Tensor::cat(&srcs, *axis as i64)
        }
        Statement::Gather { src, axis, index } => source(src).gather(*axis as i64, source(index)),
        Statement::Method { method, srcs, args } => {
            let srcs: Vec<&Tensor> = srcs.iter().map(source).collect();
            methods::call(*method, &srcs, args)
        }
        Statement::Contiguous { src } => Ok(source(src).contiguous()),
        Statement::Realize { src } => Ok(source(src).clone()),
        Statement::Detach { src } => Ok(source(src).detach()),
        Statement::Gradient { of, wrt } => {
            let (of, wrt) = (source(of), source(wrt));
            let weights = Tensor::ones(of.dtype(), of.shape())?;
            let found = of.gradients_if_used(&weights, &[wrt])?.remove(0);
            found.map_or_else(|| Tensor::zeros(wrt.dtype(), wrt.shape()), Ok)
        }
    }
}

fn unary(op: UnaryOp, x: &Tensor) -> Result<Tensor, gradiff::Error> {
    match op {
        UnaryOp::Neg => x.neg(),
        UnaryOp::Exp2 => x.exp2(),
        UnaryOp::Log2 => x.log2(),
        UnaryOp::Sin => x.sin(),
        UnaryOp::Sqrt => x.sqrt(),
        UnaryOp::Recip => x.recip(),
        UnaryOp::Not => x.not(),
    }
}

/// Calls a binary method, whose first operand must be a tensor: a scalar becomes a tensor of the
/// other operand's dtype, which is the dtype that it would take.
fn binary(op: BinaryOp, x: Operand, y: Operand) -> Result<Tensor, gradiff::Error> {
    let x = match (x, &y) {
        (Operand::Tensor(x), _) => x,
        (Operand::Scalar(x), Operand::Tensor(y)) => Tensor::scalar(y.dtype(), x)?,
        (Operand::Scalar(_), Operand::Scalar(_)) => {
            unreachable!("a well-typed statement has a value among its operands")
        }
    };
    match op {
        BinaryOp::Add => x.add(y),
        BinaryOp::Sub => x.sub(y),
        BinaryOp::Mul => x.mul(y),
        BinaryOp::Div => x.div(y),
        BinaryOp::CDiv => x.cdiv(y),
        BinaryOp::CMod => x.cmod(y),
        BinaryOp::FloorDiv => x.floordiv(y),
        BinaryOp::FloorMod => x.floormod(y),
        BinaryOp::Max => x.maximum(y),
        BinaryOp::Min => x.minimum(y),
        BinaryOp::Pow => x.pow(y),
        BinaryOp::CmpLt => x.cmplt(y),
        BinaryOp::CmpNe => x.cmpne(y),
        BinaryOp::CmpEq => x.cmpeq(y),
        BinaryOp::And => x.and(y),
        BinaryOp::Or => x.or(y),
        BinaryOp::Xor => x.xor(y),
        BinaryOp::Shl => x.shl(y),
        BinaryOp::Shr => x.shr(y),
        BinaryOp::Threefry => x.threefry(y),
    }
}
