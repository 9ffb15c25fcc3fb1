//! Interval analysis: the smallest and largest value an integer or bool node can take.
//!
//! Sound with wrapping known: where the exact interval leaves the dtype's range, the answer is the
//! whole range, and also where a value may be undefined (a division by zero): devices compute some
//! value of the dtype, with which they may index arrays.

use std::rc::Rc;

use gradiff_graph::interval::Interval;
use gradiff_graph::interval::{binary, hull, unary};
use gradiff_graph::{Arg, Op, UOp};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::shared::is_chain;
use crate::sum::Sum;

/// The interval of nodes that have no integer value.
const ANYTHING: Interval = (i128::MIN, i128::MAX);

/// Limit of the depth of recursion; below it a node has the dtype's range.
const DEPTH_LIMIT: u32 = 256;

/// Limit of the nested readings of sums; each starts at depth 0.
const SUMS_LIMIT: u32 = 4;

/// The smallest and largest value of an integer or bool node, both included; sound with respect
/// to wrapping, not always tight. For nodes of other types, the range of `i128`.
pub fn bounds(uop: &UOp) -> Interval {
    Bounds::default().of(uop)
}

/// Intervals of nodes, cached from one call to the next.
#[derive(Default)]
pub struct Bounds {
    known: FxHashMap<UOp, Interval>,
    /// The node that was last read as a sum: the rules of an op ask for the same one in turn.
    sum: Option<(UOp, Rc<Sum>)>,
    /// Depth of the nested readings of sums.
    sums: u32,
    /// The values that [`crate::shared`] finds in the root of a rewrite, and their results.
    pub(crate) shared: FxHashSet<UOp>,
}

impl Bounds {
    /// Returns what [`bounds`] returns.
    pub fn of(&mut self, uop: &UOp) -> Interval {
        self.at_depth(uop, 0)
    }

    /// Records the result of a node: that of a shared value is shared, too.
    pub(crate) fn replaced(&mut self, node: &UOp, result: &UOp) {
        if node != result && is_chain(result) && self.shared.contains(node) {
            self.shared.insert(result.clone());
        }
    }

    /// The node read as a sum; `None` if it has too many terms.
    pub(crate) fn sum(&mut self, uop: &UOp) -> Option<Rc<Sum>> {
        if let Some((known, sum)) = &self.sum
            && known == uop
        {
            return Some(Rc::clone(sum));
        }
        let sum = Rc::new(Sum::read(uop)?);
        self.sum = Some((uop.clone(), Rc::clone(&sum)));
        Some(sum)
    }

    /// The node read as a sum in which each shared value is one term; or the same as
    /// [`Bounds::sum`], if that has no more operands, as terms may cancel.
    pub(crate) fn sum_of_shared(&mut self, uop: &UOp) -> Option<Rc<Sum>> {
        let whole = self.sum(uop);
        if self.shared.is_empty() {
            return whole;
        }
        let Some(parts) = Sum::read_around(uop, &self.shared) else { return whole };
        let is_short = |whole: &Rc<Sum>| whole.operand_count() <= parts.operand_count();
        whole.filter(is_short).or_else(|| Some(Rc::new(parts)))
    }

    /// The interval of the exact sum; `None` if it leaves the dtype's range, so that it may wrap.
    pub(crate) fn of_sum(&mut self, sum: &Sum) -> Option<Interval> {
        let (min, max) = self.of_exact_sum(sum)?;
        let (low, high) = sum.dtype.int_range()?;
        (low <= min && max <= high).then_some((min, max))
    }

    /// The interval of the exact sum, whatever the dtype's range.
    pub(crate) fn of_exact_sum(&mut self, sum: &Sum) -> Option<Interval> {
        let (mut min, mut max) = (sum.constant, sum.constant);
        for (node, factor) in &sum.terms {
            let (low, high) = self.of(node);
            let ends = (low.checked_mul(*factor)?, high.checked_mul(*factor)?);
            min = min.checked_add(ends.0.min(ends.1))?;
            max = max.checked_add(ends.0.max(ends.1))?;
        }
        Some((min, max))
    }

    fn at_depth(&mut self, uop: &UOp, depth: u32) -> Interval {
        let Some(range) = uop.dtype().int_range() else { return ANYTHING };
        match (uop.op(), uop.arg()) {
            (_, Arg::Const(value)) => {
                let value = value.to_int().unwrap_or_default();
                return (value, value);
            }
            (_, Arg::Var(variable)) => {
                let (min, max) = (i128::from(variable.min), i128::from(variable.max));
                return within(range, min, max);
            }
            _ => {}
        }
        if depth == DEPTH_LIMIT {
            return range;
        }
        if let Some(known) = self.known.get(uop) {
            return *known;
        }
        let interval = self.compute(uop, range, depth + 1);
        assert!(interval.0 <= interval.1, "an empty interval {interval:?} for {uop:?}");
        self.known.insert(uop.clone(), interval);
        interval
    }

    fn compute(&mut self, uop: &UOp, range: Interval, depth: u32) -> Interval {
        if uop.op() == Op::Where {
            let x = self.at_depth(&uop.src()[1], depth);
            let y = self.at_depth(&uop.src()[2], depth);
            return match self.at_depth(&uop.src()[0], depth) {
                (1, _) => x,
                (_, 0) => y,
                _ => hull(x, y),
            };
        }
        let exact = match uop.src() {
            [x] => {
                let interval = self.at_depth(x, depth);
                unary(uop.op(), x.dtype(), uop.dtype(), interval)
            }
            [x, y] if x.dtype().int_range().is_some() && uop.op().is_elementwise() => {
                let left = self.at_depth(x, depth);
                // A node is neither less than itself nor different from itself.
                if x == y && uop.op().is_comparison() {
                    return (0, 0);
                }
                let right = self.at_depth(y, depth);
                binary(uop.op(), x.dtype(), left, right)
            }
            [x, y, z] if uop.op() == Op::MulAcc && x.dtype().is_int() => {
                let (x, y) = (self.at_depth(x, depth), self.at_depth(y, depth));
                let z = self.at_depth(z, depth);
                let product = binary(Op::Mul, uop.dtype(), x, y);
                product.and_then(|product| binary(Op::Add, uop.dtype(), product, z))
            }
            [_, ..] if uop.op() == Op::Reduce => reduce(uop, self, depth),
            _ => None,
        };
        let is_inside = |(min, max): Interval| range.0 <= min && max <= range.1;
        match exact {
            // Parts of a sum may wrap where the whole does not.
            Some(exact) if is_sum(uop) && !is_inside(exact) && self.sums < SUMS_LIMIT => {
                self.sums += 1;
                let whole = Sum::read(uop).and_then(|sum| self.of_sum(&sum));
                self.sums -= 1;
                whole.unwrap_or_else(|| within(range, exact.0, exact.1))
            }
            Some((min, max)) => within(range, min, max),
            None => range,
        }
    }
}

fn is_sum(uop: &UOp) -> bool {
    uop.dtype().is_int() && matches!(uop.op(), Op::Add | Op::Sub)
}

/// Returns the interval if it lies in the dtype's range, else the range: values wrap.
fn within(range: Interval, min: i128, max: i128) -> Interval {
    let is_inside = range.0 <= min && max <= range.1;
    if is_inside { (min, max) } else { range }
}

fn reduce(uop: &UOp, bounds: &mut Bounds, depth: u32) -> Option<Interval> {
    let Arg::Reduce(op, _) = uop.arg() else { return None };
    let value = bounds.at_depth(&uop.src()[0], depth);
    let mut count = 1i128;
    let is_counted = |range: &UOp| range.src().first().is_some_and(|end| end.as_int() > Some(0));
    let is_maybe_empty = !uop.src()[1..].iter().all(is_counted);
    for range in &uop.src()[1..] {
        let last = bounds.at_depth(range, depth).1;
        count = count.checked_mul(last.checked_add(1)?)?;
    }
    match op {
        // An empty reduction gives 0.
        Op::Add => {
            let ends = (value.0.checked_mul(count)?, value.1.checked_mul(count)?);
            Some((ends.0.min(0), ends.1.max(0)))
        }
        // The maximum of an empty reduction is the smallest value of the dtype.
        Op::Max if !is_maybe_empty => Some(value),
        _ => None,
    }
}
