//! Strides of indices along ranges.

use gradiff_graph::{Op, UOp};

use crate::free::Free;

/// Returns the stride of an integer along a range, if that is constant.
pub(crate) fn stride(node: &UOp, range: &UOp, free: &Free) -> Option<i64> {
    if node == range {
        return Some(1);
    }
    if free.of_node(node) & free.of_node(range) == 0 {
        return Some(0);
    }
    let of = |source: usize| stride(&node.src()[source], range, free);
    let constant =
        |source: usize| node.src()[source].as_int().and_then(|value| i64::try_from(value).ok());
    match node.op() {
        Op::Add => of(0)?.checked_add(of(1)?),
        Op::Sub => of(0)?.checked_sub(of(1)?),
        Op::Mul => match (constant(0), constant(1)) {
            (Some(factor), _) => of(1)?.checked_mul(factor),
            (_, Some(factor)) => of(0)?.checked_mul(factor),
            _ => None,
        },
        Op::Shl => of(0)?.checked_mul(1 << constant(1).filter(|n| (0..32).contains(n))?),
        Op::Cast if node.src()[0].dtype().is_int() => of(0),
        _ => None,
    }
}
