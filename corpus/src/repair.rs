//! Repair of ill-typed statements, so that the binary decoder drops fewer statements of arbitrary
//! bytes. The result may still be ill-typed, which the caller must check. Statements that `encode`
//! wrote need no repair.

use crate::{
    BinaryOp, DType, Literal, Operand, Statement, TensorType, UnaryOp, ValueId, literal_bits,
    promote,
};

/// Changes the arguments of `statement`, and its sources only if necessary.
pub(crate) fn repair(statement: &mut Statement, types: &[TensorType]) {
    let Some(last) = types.len().checked_sub(1) else {
        return repair_source(statement);
    };
    let last = ValueId(last as u32);
    match statement {
        Statement::Unary { op, src } => {
            *op = match types[src.0 as usize].dtype {
                DType::Bool => UnaryOp::Not,
                _ => UnaryOp::Neg,
            };
        }
        Statement::Binary { op, srcs } => {
            let dtype = repair_operands(srcs, last, types);
            let allowed = op.is_comparison() || (*op as u8) <= BinaryOp::Mul as u8;
            if !allowed || dtype == DType::Bool {
                *op = if dtype == DType::Bool { BinaryOp::Xor } else { BinaryOp::Max };
            }
        }
        Statement::MulAcc { srcs } => {
            repair_operands(srcs, last, types);
        }
        Statement::Where { srcs } => {
            let condition = types.iter().rposition(|tensor| tensor.dtype == DType::Bool);
            srcs[0] = match condition {
                Some(value) => Operand::Value(ValueId(value as u32)),
                None => Operand::Literal(Literal::Bool(true)),
            };
            repair_operands(&mut srcs[1..], last, types);
        }
        Statement::Bitcast { src, dtype } => {
            *statement = Statement::Cast { src: *src, dtype: *dtype };
        }
        Statement::Input { .. } | Statement::Const { .. } | Statement::Arange { .. } => {
            repair_source(statement);
        }
        Statement::Cat { srcs, axis } => {
            let first = srcs.first().copied().unwrap_or(last);
            *srcs = vec![first; srcs.len().clamp(1, 3)];
            *axis = axis.checked_rem(types[first.0 as usize].shape.len()).unwrap_or(0);
        }
        Statement::Gather { src, axis, index } => {
            *axis = axis.checked_rem(types[src.0 as usize].shape.len()).unwrap_or(0);
            if !types[index.0 as usize].dtype.is_int() {
                *index = *src;
            }
        }
        _ => repair_movement(statement, types),
    }
}

fn repair_source(statement: &mut Statement) {
    match statement {
        Statement::Const { dtype, shape, value } => {
            shape.iter_mut().for_each(|size| *size %= 5);
            *value = coerced(*dtype, value);
        }
        Statement::Arange { dtype, .. } => *dtype = DType::I32,
        Statement::Input {
            shape, fill: crate::Fill::Iota | crate::Fill::Seeded { .. }, ..
        } => {
            shape.iter_mut().for_each(|size| *size %= 5);
        }
        _ => {}
    }
}

/// Makes at least one operand a value, all shapes equal, and literals representable. Returns the
/// promoted dtype.
fn repair_operands(srcs: &mut [Operand], last: ValueId, types: &[TensorType]) -> DType {
    let values = |srcs: &[Operand]| -> Vec<ValueId> {
        let value = |src: &Operand| match src {
            Operand::Value(value) => Some(*value),
            Operand::Literal(_) => None,
        };
        srcs.iter().filter_map(value).collect()
    };
    if values(srcs).is_empty() {
        srcs[0] = Operand::Value(last);
    }
    let first = values(srcs)[0];
    let shape = &types[first.0 as usize].shape;
    for src in srcs.iter_mut() {
        if let Operand::Value(value) = src
            && types[value.0 as usize].shape != *shape
        {
            *value = first;
        }
    }
    let dtypes = values(srcs).into_iter().map(|value| types[value.0 as usize].dtype);
    let dtype = dtypes.reduce(promote).unwrap_or(DType::Bool);
    for src in srcs {
        if let Operand::Literal(literal) = src {
            *literal = coerced(dtype, literal);
        }
    }
    dtype
}

/// Returns `literal`, or a small number derived from it that is representable in `dtype`.
fn coerced(dtype: DType, literal: &Literal) -> Literal {
    if literal_bits(dtype, literal).is_some() {
        return *literal;
    }
    let low = match literal {
        Literal::Bool(value) => i128::from(*value),
        Literal::Int(value) => value & 7,
        Literal::Float(value) => i128::from((value.to_bits() >> 52) & 7),
    };
    if dtype == DType::Bool { Literal::Bool(low & 1 == 1) } else { Literal::Int(low) }
}

fn repair_axes(axes: &mut Vec<usize>, rank: usize) {
    axes.iter_mut().for_each(|axis| *axis = axis.checked_rem(rank).unwrap_or(0));
    axes.sort_unstable();
    axes.dedup();
    axes.retain(|axis| *axis < rank);
}

fn repair_movement(statement: &mut Statement, types: &[TensorType]) {
    let shape_of = |src: &ValueId| types[src.0 as usize].shape.as_slice();
    match statement {
        Statement::Reduce { src, axes, .. } | Statement::Flip { src, axes } => {
            repair_axes(axes, shape_of(src).len());
        }
        Statement::Reshape { src, shape } => *shape = vec![shape_of(src).iter().product()],
        Statement::Permute { src, axes } => *axes = (0..shape_of(src).len()).rev().collect(),
        Statement::Expand { src, shape } => {
            let from = shape_of(src);
            shape.resize(from.len(), 2);
            for (size, from) in shape.iter_mut().zip(from) {
                *size = if *from == 1 { *size % 5 } else { *from };
            }
        }
        Statement::Pad { src, pads, value } => {
            let tensor = &types[src.0 as usize];
            pads.resize(tensor.shape.len(), (1, 0));
            pads.iter_mut()
                .for_each(|(before, after)| (*before, *after) = (*before % 3, *after % 3));
            *value = coerced(tensor.dtype, value);
        }
        Statement::Shrink { src, ranges } => {
            let from = shape_of(src);
            ranges.resize(from.len(), (0, usize::MAX));
            for ((start, end), size) in ranges.iter_mut().zip(from) {
                *start = (*start).min(*size);
                *end = (*end).clamp(*start, *size);
            }
        }
        _ => {}
    }
}
