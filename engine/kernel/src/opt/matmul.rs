//! The matrix products of a kernel.
//!
//! A sum over products of two values is a matrix product, if each value depends on an output loop
//! on which the other does not depend.

use gradiff_graph::{Arg, AxisKind, Constant, DType, Op, UOp};

use super::loop_info::Loop;
use crate::free::Free;

/// A sum of products that is a matrix product.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matmul {
    /// The sum.
    pub(super) sum: UOp,
    /// The ranges of m, n and k.
    pub(super) ranges: [UOp; 3],
    /// The sizes of m, n and k.
    pub(super) sizes: [i64; 3],
    /// A value over m and k, and one over n and k.
    pub(super) operands: [UOp; 2],
}

impl Matmul {
    /// Returns the numbers of the loops of m, n and k.
    pub(super) fn numbers(&self) -> [i64; 3] {
        [0, 1, 2].map(|dim| match self.ranges[dim].arg() {
            Arg::Axis(axis) => axis.number,
            _ => -1,
        })
    }
}

/// Returns the matrix products of a kernel, each also as the product of the transposed matrices.
pub(super) fn matmuls(free: &Free, list: &[Loop]) -> Vec<Matmul> {
    let sums: Vec<&UOp> = free.nodes.iter().filter(|node| node.op() == Op::Reduce).collect();
    let mut found = Vec::new();
    for sum in &sums {
        let is_sum = matches!(sum.arg(), Arg::Reduce(Op::Add, _)) && sum.dtype() == DType::F32;
        let Some(operands) = is_sum.then(|| operands(&sum.src()[0])).flatten() else { continue };
        let varies = |operand: usize, info: &Loop| {
            ranges_of(free, &operands[operand]) & free.of_node(&info.range) != 0
        };
        let plain = || list.iter().filter(|info| info.axis.kind == AxisKind::Loop);
        let output = || plain().filter(|info| info.is_output && !info.is_reduced);
        let is_k = |info: &&Loop| {
            let is_over = |sum: &UOp| sum.src()[1..].contains(&info.range);
            let has_one_sum = is_over(sum) && sums.iter().filter(|sum| is_over(sum)).count() == 1;
            has_one_sum && !info.is_output && varies(0, info) && varies(1, info)
        };
        for k in plain().filter(is_k) {
            for m in output().filter(|info| varies(0, info) && !varies(1, info)) {
                for n in output().filter(|info| varies(1, info) && !varies(0, info)) {
                    let transposed = ([n, m, k], [1, 0]);
                    for (loops, order) in [([m, n, k], [0, 1]), transposed] {
                        found.push(Matmul {
                            sum: (*sum).clone(),
                            ranges: loops.map(|info| info.range.clone()),
                            sizes: loops.map(|info| info.size),
                            operands: order.map(|number: usize| operands[number].clone()),
                        });
                    }
                }
            }
        }
    }
    found
}

/// Returns the ranges (bits) of an operand, which may be a new node over known ones.
fn ranges_of(free: &Free, operand: &UOp) -> u64 {
    match operand.op() {
        Op::Where if !free.contains(operand) => {
            operand.src().iter().fold(0, |bits, source| bits | ranges_of(free, source))
        }
        _ => free.of_node(operand),
    }
}

/// Returns the two factors of a product, of the same type. A factor that is cast from a 16-bit
/// float is taken without the cast, and a gate of the product becomes a gate of both factors.
fn operands(value: &UOp) -> Option<[UOp; 2]> {
    match (value.op(), value.src()) {
        (Op::Mul, [x, y]) if value.dtype() == DType::F32 => {
            let narrow = |factor: &UOp| {
                let source = factor.src().first().filter(|_| factor.op() == Op::Cast)?;
                source.dtype().is_half().then(|| source.clone())
            };
            match [narrow(x), narrow(y)] {
                [Some(a), Some(b)] if a.dtype() == b.dtype() => Some([a, b]),
                _ => Some([x.clone(), y.clone()]),
            }
        }
        (Op::Mul, [x, y]) if value.dtype().is_half() => Some([x.clone(), y.clone()]),
        // The product need not be rounded to 16 bits before it is added.
        (Op::Cast, [x]) if x.dtype().is_half() => operands(x),
        (Op::Where, [gate, x, zero]) if zero.as_const()?.to_float() == Some(0.0) => {
            let zero = |factor: &UOp| UOp::constant(Constant::zero(factor.dtype()));
            let gated = |factor: UOp| UOp::select(gate.clone(), factor.clone(), zero(&factor));
            operands(x).map(|both| both.map(gated))
        }
        _ => None,
    }
}
