//! Sums of integers in one form: coefficients of nodes plus a constant, modulo the dtype's width.

use gradiff_graph::{Arg, Constant, DType, Op, UOp};
use smallvec::SmallVec;

use crate::bounds::{Bounds, Interval};

/// `sum of coefficient * node, + constant`, equal modulo 2^bits to what it was read from.
/// Coefficients are kept as small numbers of either sign, whatever the dtype's sign.
#[derive(Clone, Debug)]
pub(crate) struct Sum {
    pub(crate) dtype: DType,
    pub(crate) terms: SmallVec<[(UOp, i128); 6]>,
    pub(crate) constant: i128,
}

/// How many terms a sum may have: each level of a chain reads all terms below it.
const TERMS_LIMIT: usize = 32;

impl Sum {
    /// Reads a node of an integer dtype; sums, differences, negations and products with constants
    /// are opened. `None` if there are more terms than are worth sorting.
    pub(crate) fn read(uop: &UOp) -> Option<Sum> {
        let mut sum = Sum::of_constant(uop.dtype(), 0);
        let mut pending: SmallVec<[(&UOp, i128); 12]> = SmallVec::new();
        pending.push((uop, 1));
        while let Some((node, factor)) = pending.pop() {
            if sum.terms.len() + pending.len() > TERMS_LIMIT {
                return None;
            }
            match (node.op(), node.src()) {
                (Op::Const, _) => {
                    let value = node.as_int().unwrap_or_default();
                    sum.constant = sum.centered(sum.constant + sum.centered(value) * factor);
                }
                (Op::Add, [x, y]) => pending.extend([(y, factor), (x, factor)]),
                (Op::Sub, [x, y]) => pending.extend([(y, sum.centered(-factor)), (x, factor)]),
                (Op::Neg, [x]) => pending.push((x, sum.centered(-factor))),
                (Op::Mul, [x, c]) | (Op::Mul, [c, x]) if c.op() == Op::Const => {
                    let value = sum.centered(c.as_int().unwrap_or_default());
                    pending.push((x, sum.centered(value * factor)));
                }
                _ => sum.add(node.clone(), factor),
            }
        }
        Some(sum)
    }

    /// Whether reading and building would give this very node: a chain of distinct terms in order,
    /// factors and constant where they belong. Saves building it to see.
    pub(crate) fn is_canonical(uop: &UOp) -> bool {
        let centered = |uop: &UOp| {
            let shift = 128 - uop.dtype().bits();
            uop.as_int().map(|value| (value << shift) >> shift)
        };
        let is_atom =
            |uop: &UOp| !matches!(uop.op(), Op::Const | Op::Add | Op::Sub | Op::Neg | Op::Mul);
        let mut atoms: SmallVec<[&UOp; 12]> = SmallVec::new();
        let mut rest = match uop.src() {
            [x, c] if uop.op() == Op::Add && c.op() == Op::Const && centered(c) != Some(0) => x,
            _ => uop,
        };
        let mut above: Option<&UOp> = None;
        loop {
            let (next, term) = match rest.src() {
                [x, y] if rest.op() == Op::Add => (Some(x), y),
                _ => (None, rest),
            };
            let atom = match term.src() {
                [x, c] if term.op() == Op::Mul && !matches!(centered(c), None | Some(0 | 1)) => x,
                _ => term,
            };
            if !is_atom(atom) || atoms.contains(&atom) {
                return false;
            }
            if above.is_some_and(|above| canonical_cmp(term, above).is_gt()) {
                return false;
            }
            atoms.push(atom);
            above = Some(term);
            match next {
                Some(next) => rest = next,
                None => return true,
            }
        }
    }

    /// Adds a term; its own term vanishes if it comes to 0.
    pub(crate) fn add(&mut self, node: UOp, factor: i128) {
        let position = self.terms.iter().position(|(known, _)| *known == node);
        let Some(position) = position else {
            if factor != 0 {
                self.terms.push((node, factor));
            }
            return;
        };
        let factor = self.centered(self.terms[position].1 + factor);
        if factor == 0 {
            self.terms.remove(position);
        } else {
            self.terms[position].1 = factor;
        }
    }

    /// The representative of `value` modulo 2^bits that is nearest to 0.
    fn centered(&self, value: i128) -> i128 {
        let bits = self.dtype.bits();
        let shift = 128 - bits;
        (value << shift) >> shift
    }

    /// A constant alone.
    pub(crate) fn of_constant(dtype: DType, constant: i128) -> Sum {
        Sum { dtype, terms: SmallVec::new(), constant }
    }

    /// One node, once.
    pub(crate) fn of_node(node: UOp) -> Sum {
        let mut sum = Sum::of_constant(node.dtype(), 0);
        sum.terms.push((node, 1));
        sum
    }

    /// The same dtype, no terms.
    pub(crate) fn empty(&self) -> Sum {
        Sum::of_constant(self.dtype, 0)
    }

    /// The interval of the exact sum; `None` if it leaves the dtype's range, so that it may wrap.
    pub(crate) fn interval(&self, known: &mut Bounds) -> Option<Interval> {
        let (min, max) = self.exact(known)?;
        let (low, high) = self.dtype.int_range()?;
        (low <= min && max <= high).then_some((min, max))
    }

    /// The interval of the exact sum, whatever the dtype's range.
    pub(crate) fn exact(&self, known: &mut Bounds) -> Option<Interval> {
        let (mut min, mut max) = (self.constant, self.constant);
        for (node, factor) in &self.terms {
            let (low, high) = known.of(node);
            let ends = (low.checked_mul(*factor)?, high.checked_mul(*factor)?);
            min = min.checked_add(ends.0.min(ends.1))?;
            max = max.checked_add(ends.0.max(ends.1))?;
        }
        Some((min, max))
    }

    /// The node of this sum: terms in canonical order, the constant last.
    pub(crate) fn build(&self) -> UOp {
        let constant = |value| UOp::constant(Constant::int(self.dtype, value));
        let mut products: SmallVec<[UOp; 6]> = SmallVec::new();
        for (node, factor) in &self.terms {
            products.push(match factor {
                1 => node.clone(),
                _ => UOp::binary(Op::Mul, node.clone(), constant(*factor)),
            });
        }
        products.sort_by(canonical_cmp);
        let is_constant_shown = self.constant != 0 || products.is_empty();
        products.extend(is_constant_shown.then(|| constant(self.constant)));
        let sum = products.into_iter().reduce(|sum, term| UOp::binary(Op::Add, sum, term));
        sum.expect("a sum without terms is its constant")
    }
}

/// The order of the operands of a commutative op: variables, then nodes by op and what they say,
/// constants last.
pub(crate) fn canonical_cmp(x: &UOp, y: &UOp) -> std::cmp::Ordering {
    let rank = |uop: &UOp| match uop.arg() {
        Arg::Var(_) => 0,
        Arg::Const(_) => 2,
        _ => 1,
    };
    rank(x).cmp(&rank(y)).then_with(|| x.structural_cmp(y))
}
