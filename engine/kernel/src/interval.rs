//! Intervals of index expressions, over unbounded integers.
//!
//! The bounds of the rewrite crate hold for arithmetic that wraps; here the question is whether it
//! would wrap, so nothing does. A node without a known interval counts as unbounded.

use gradiff_graph::UOp;
use gradiff_graph::interval::Interval;
use gradiff_graph::interval::unwrapped;
use rustc_hash::FxHashMap;

/// Intervals of nodes, each computed once.
#[derive(Default)]
pub(crate) struct Intervals {
    known: FxHashMap<UOp, Interval>,
    widest: i128,
}

/// Beyond every index, yet a product of two such values still fits i128.
const UNBOUNDED: i128 = 1 << 63;

impl Intervals {
    /// Computes the intervals of an expression and of all its parts.
    pub(crate) fn add(&mut self, root: &UOp) {
        let mut stack = vec![(root.clone(), false)];
        while let Some((node, are_sources_done)) = stack.pop() {
            if self.known.contains_key(&node) {
                continue;
            }
            if !are_sources_done {
                let sources: Vec<UOp> = node.src().to_vec();
                stack.push((node, true));
                stack.extend(sources.into_iter().map(|source| (source, false)));
                continue;
            }
            let (low, high) = self.of(&node);
            self.widest = self.widest.max(high).max(-1 - low);
            self.known.insert(
                node,
                (low.clamp(-UNBOUNDED, UNBOUNDED), high.clamp(-UNBOUNDED, UNBOUNDED)),
            );
        }
    }

    /// Returns the largest magnitude so far: all values are within `-widest - 1 ..= widest`.
    pub(crate) fn widest(&self) -> i128 {
        self.widest
    }

    fn of(&self, node: &UOp) -> Interval {
        let source = |number: usize| Some(self.known[node.src().get(number)?]);
        let interval = unwrapped((node.op(), node.dtype(), node.arg()), &source);
        interval.unwrap_or((-UNBOUNDED, UNBOUNDED))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradiff_graph::{Arg, DType, Op};

    #[test]
    fn widest_includes_large_intermediate_product() {
        let end = UOp::int(DType::I64, 1 << 20);
        let range = UOp::new(Op::Range, DType::I64, [end], Arg::plain_axis(0));
        let product = UOp::binary(Op::Mul, range, UOp::int(DType::I64, 1 << 20));
        let remainder = UOp::binary(Op::FloorMod, product, UOp::int(DType::I64, 7));
        let mut intervals = Intervals::default();
        intervals.add(&remainder);
        assert_eq!(intervals.known[&remainder], (0, 6));
        assert_eq!(intervals.widest(), ((1 << 20) - 1) << 20);
    }

    #[test]
    fn widest_of_negative_bound_is_one_less() {
        let mut intervals = Intervals::default();
        intervals.add(&UOp::int(DType::I64, i64::from(i32::MIN)));
        assert_eq!(intervals.widest(), i128::from(i32::MAX));
    }
}
