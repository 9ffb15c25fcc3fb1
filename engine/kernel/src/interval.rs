//! Intervals of index expressions, over unbounded integers.
//!
//! The bounds of the rewrite crate hold for arithmetic that wraps; here the question is whether it
//! would wrap, so nothing does. Only the ops of which views make indices and gates are known; any
//! other node counts as unbounded.

use gradiff_graph::{Op, UOp};
use rustc_hash::FxHashMap;

type Interval = (i128, i128);

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
        let source = |position: usize| self.known[&node.src()[position]];
        match node.op() {
            Op::Const => node.as_int().map_or((-UNBOUNDED, UNBOUNDED), |value| (value, value)),
            Op::Range => (0, (source(0).1 - 1).max(0)),
            Op::CmpLt | Op::CmpNe | Op::And => (0, 1),
            Op::Add => (source(0).0 + source(1).0, source(0).1 + source(1).1),
            Op::Mul => hull(source(0), source(1), |x, y| x * y),
            Op::FloorDiv if source(1).0 > 0 => hull(source(0), source(1), i128::div_euclid),
            Op::FloorMod if source(1).0 > 0 => (0, source(1).1 - 1),
            _ => (-UNBOUNDED, UNBOUNDED),
        }
    }
}

/// Returns the interval of a function that is monotone in each argument, from its corners.
fn hull(x: Interval, y: Interval, of: impl Fn(i128, i128) -> i128) -> Interval {
    let corners = [of(x.0, y.0), of(x.0, y.1), of(x.1, y.0), of(x.1, y.1)];
    (corners.into_iter().fold(i128::MAX, i128::min), corners.into_iter().fold(i128::MIN, i128::max))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradiff_graph::{Arg, DType};

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
