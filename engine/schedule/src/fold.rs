//! Pass "fold": constant folding, and removal of identities such as `x * 1`.
//!
//! It maps a graph of tensor level to another one with the same bits. So the factor 1 and a
//! subtracted zero are removed from floats, but an added zero is not: -0.0 + 0.0 is 0.0. The
//! reduction of one element is this element. Undefined results are not folded. A copy is removed if
//! its source can be computed on any device, or is on the same one; an output keeps its device.
//! `Contiguous` is not folded, as it requests a buffer. Markers for gradients, which do nothing
//! here, are removed.
//! Values without elements and reductions over no elements become constants, too, so that later
//! passes need not handle them.

use gradiff_graph::{Arg, Constant, DType, Dims, Op, Sources, UOp, evaluate};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::{Error, constant_of, shape_of, shaped};

/// Folds constants and identities in a graph.
pub(crate) fn constants(outputs: &[UOp]) -> Result<Vec<UOp>, Error> {
    let roots = UOp::new(Op::Sink, DType::Void, outputs.iter().cloned(), Arg::None);
    let mut folder = Folder::default();
    for node in roots.value_order() {
        if *node != roots {
            let folded = folder.fold_node(node)?;
            assert_eq!(folded.shape(), node.shape(), "folding keeps the shape of {}", node.op());
            assert_eq!(folded.dtype(), node.dtype(), "folding keeps the dtype of {}", node.op());
            folder.folded.insert(node.clone(), folded);
        }
    }
    Ok(outputs.iter().map(|output| placed(&folder.folded[output], output)).collect())
}

/// Returns a folded output on the device of the output as it was, unless it is a constant.
fn placed(folded: &UOp, output: &UOp) -> UOp {
    match output.device() {
        Some(device) if folded.device() != Some(device) && constant_of(folded).is_none() => {
            let arg = Arg::Device(device.clone());
            let copy = UOp::new(Op::Copy, folded.dtype(), [folded.clone()], arg);
            assert_eq!(copy.shape(), output.shape(), "a copy has the shape of its source");
            copy
        }
        _ => folded.clone(),
    }
}

/// Makes a tensor of equal elements: `Const`, reshaped and expanded if necessary.
pub(crate) fn uniform(value: Constant, shape: &[i64]) -> UOp {
    let ones = shaped(UOp::constant(value), &vec![1; shape.len()]);
    if ones.shape() == Some(shape) {
        return ones;
    }
    let node = UOp::new(Op::Expand, value.dtype(), [ones], Arg::Dims(Dims::from_slice(shape)));
    assert_eq!(node.shape(), Some(shape), "an expand has the shape of its arg");
    node
}

#[derive(Default)]
struct Folder {
    folded: FxHashMap<UOp, UOp>,
    /// The value of each folded node that has one value in all of its elements.
    values: FxHashMap<UOp, Constant>,
}

impl Folder {
    fn fold_node(&mut self, node: &UOp) -> Result<UOp, Error> {
        let shape = node.shape().ok_or(Error::NotTensorLevel(node.op()))?;
        if matches!(node.op(), Op::Detach | Op::Parameter | Op::Function) {
            return Ok(self.folded[&node.src()[0]].clone());
        }
        let src: Sources = node.src().iter().map(|src| self.folded[src].clone()).collect();
        if let Some(value) = self.value_of(node, &src) {
            let folded = uniform(value, shape);
            self.values.insert(folded.clone(), value);
            return Ok(folded);
        }
        if let Some(same) = self.unchanged(node, &src) {
            return Ok(same);
        }
        let is_same = src[..] == *node.src();
        Ok(if is_same { node.clone() } else { node.with_src(src) })
    }

    /// Returns the value of all elements of `node` over the folded sources `src`, if they are equal
    /// and known.
    fn value_of(&self, node: &UOp, src: &[UOp]) -> Option<Constant> {
        if let Some(value) = node.as_const() {
            return Some(value);
        }
        if shape_of(node).contains(&0) {
            // Any value will do if there are no elements.
            return (node.op() != Op::Buffer).then(|| Constant::zero(node.dtype()));
        }
        let value = |index: usize| src.get(index).and_then(|src| self.values.get(src)).copied();
        match (node.op(), node.arg()) {
            (Op::Reshape | Op::Permute | Op::Expand | Op::Shrink | Op::Flip, _) => value(0),
            (Op::Copy, _) => value(0),
            (Op::Pad, _) => value(0).filter(|value| {
                *value == Constant::zero(node.dtype()) || src[0].shape() == node.shape()
            }),
            (Op::ReduceAxis, Arg::Reduce(reduce_op, axes)) => {
                let from = shape_of(&src[0]);
                if from.contains(&0) {
                    return reduce_op.identity(node.dtype());
                }
                let mut sizes = axes.iter().map(|axis| from[*axis as usize]);
                let count = sizes.try_fold(1i64, |count, size| count.checked_mul(size))?;
                repeated(*reduce_op, value(0)?, count)
            }
            (Op::Where, _) => value(if value(0)?.is_true() { 1 } else { 2 }),
            (op @ (Op::Mul | Op::And), _) if !node.dtype().is_float() => {
                let zero = Constant::zero(node.dtype());
                if value(0) == Some(zero) || value(1) == Some(zero) {
                    return Some(zero);
                }
                evaluate(op, node.dtype(), &[value(0)?, value(1)?])
            }
            (op, _) if op.is_elementwise() => {
                let values: Option<SmallVec<[Constant; 3]>> = (0..src.len()).map(value).collect();
                evaluate(op, node.dtype(), &values?)
            }
            _ => None,
        }
    }

    /// Returns the source that `node` is equal to in every bit.
    fn unchanged(&self, node: &UOp, src: &[UOp]) -> Option<UOp> {
        let value = |index: usize| src.get(index).and_then(|src| self.values.get(src)).copied();
        let op = node.op();
        if let (Op::ReduceAxis, Arg::Reduce(_, axes)) = (op, node.arg()) {
            let shape = shape_of(&src[0]);
            let is_single = axes.iter().all(|axis| shape[*axis as usize] == 1);
            return is_single.then(|| src[0].clone());
        }
        if op == Op::Copy {
            let source = src[0].device();
            let is_idle = source.is_none() || source == node.device();
            return is_idle.then(|| src[0].clone());
        }
        if op == Op::Where {
            return value(0).map(|condition| src[if condition.is_true() { 1 } else { 2 }].clone());
        }
        let is_neutral = |value: Constant| match op {
            Op::Mul => value == Constant::one(value.dtype()),
            Op::Sub => value == Constant::zero(value.dtype()),
            Op::Add | Op::Or | Op::Xor | Op::Shl | Op::Shr => {
                !value.dtype().is_float() && value == Constant::zero(value.dtype())
            }
            _ => false,
        };
        if value(1).is_some_and(is_neutral) {
            return Some(src[0].clone());
        }
        let is_neutral_first = op.is_commutative() && value(0).is_some_and(is_neutral);
        is_neutral_first.then(|| src[1].clone())
    }
}

/// Returns the reduction by `op` of `count` equal values. Sums and products of floats are left to a
/// kernel, since they are rounded at each addition or multiplication.
fn repeated(op: Op, value: Constant, count: i64) -> Option<Constant> {
    let dtype = value.dtype();
    match op {
        Op::Max => Some(value),
        // Or and and of equal values.
        Op::Add | Op::Mul if dtype == DType::Bool => Some(value),
        Op::Add if dtype.is_int() => {
            Some(Constant::int(dtype, value.to_int()?.wrapping_mul(i128::from(count))))
        }
        Op::Mul if dtype.is_int() => {
            let (mut power, mut base, mut left) = (1i128, value.to_int()?, count);
            while left != 0 {
                if left % 2 == 1 {
                    power = power.wrapping_mul(base);
                }
                base = base.wrapping_mul(base);
                left /= 2;
            }
            Some(Constant::int(dtype, power))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_values_wrap_like_the_reduction() {
        for dtype in [DType::I8, DType::U8, DType::I32, DType::U64, DType::Bool] {
            for value in [-128, -3, -1, 0, 1, 2, 3, 127] {
                let value = Constant::int(dtype, value);
                for op in [Op::Add, Op::Mul, Op::Max] {
                    let mut reduced = value;
                    for count in 1..80 {
                        assert_eq!(repeated(op, value, count), Some(reduced), "{op} {count}");
                        reduced = evaluate(op, dtype, &[reduced, value]).unwrap();
                    }
                }
            }
        }
        assert_eq!(repeated(Op::Add, Constant::float(DType::F32, 0.1), 3), None);
    }
}
