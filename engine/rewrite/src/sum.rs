//! Sums of integers in one form: coefficients of nodes plus a constant, modulo the dtype's width.

use gradiff_graph::{Arg, Constant, DType, Op, UOp};
use rustc_hash::FxHashSet;
use smallvec::SmallVec;

/// `sum of coefficient * node, + constant`, equal modulo 2^bits to what it was read from.
/// Coefficients are the numbers nearest to 0, of either sign, also for unsigned dtypes.
#[derive(Clone, Debug)]
pub(crate) struct Sum {
    pub(crate) dtype: DType,
    pub(crate) terms: SmallVec<[(UOp, i128); 6]>,
    pub(crate) constant: i128,
}

/// Limit of the terms of a sum: each level of a chain reads all terms below it.
const TERMS_LIMIT: usize = 32;

/// Limit of the nodes that are read for a sum: a node is read once for each path to it, and
/// `x + x` doubles these.
const READS_LIMIT: usize = 16 * TERMS_LIMIT;

impl Sum {
    /// Reads a node of an integer dtype; sums, differences, negations and products with constants
    /// are opened. `None` if there are more terms than are worth sorting, or too many paths to any.
    pub(crate) fn read(uop: &UOp) -> Option<Sum> {
        Sum::read_around(uop, &FxHashSet::default())
    }

    /// Reads a node like [`Sum::read`], but opens none of these nodes within it.
    pub(crate) fn read_around(uop: &UOp, closed: &FxHashSet<UOp>) -> Option<Sum> {
        let mut sum = Sum::of_constant(uop.dtype(), 0);
        let mut pending: SmallVec<[(&UOp, i128); 12]> = SmallVec::new();
        pending.push((uop, 1));
        let mut reads = 0;
        while let Some((node, factor)) = pending.pop() {
            reads += 1;
            if sum.terms.len() + pending.len() > TERMS_LIMIT || reads > READS_LIMIT {
                return None;
            }
            match (node.op(), node.src()) {
                _ if node != uop && closed.contains(node) => sum.add(node.clone(), factor),
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

    /// The number of the operands of its node.
    pub(crate) fn operand_count(&self) -> usize {
        self.terms.len() + usize::from(self.constant != 0)
    }

    /// Returns whether reading and building would give this very node: a chain of distinct terms in
    /// order, with factors and constant in canonical positions. Cheaper than building it.
    pub(crate) fn is_canonical(uop: &UOp) -> bool {
        let centered = |uop: &UOp| {
            let shift = 128 - uop.dtype().bits();
            uop.as_int().map(|value| (value << shift) >> shift)
        };
        let is_atom =
            |uop: &UOp| !matches!(uop.op(), Op::Const | Op::Add | Op::Sub | Op::Neg | Op::Mul);
        let mut rest = match uop.src() {
            [x, c] if uop.op() == Op::Add && c.op() == Op::Const && centered(c) != Some(0) => x,
            _ => uop,
        };
        let mut products: SmallVec<[&UOp; 12]> = SmallVec::new();
        while let ([next, last], Op::Add) = (rest.src(), rest.op()) {
            products.push(last);
            rest = next;
        }
        products.push(rest);
        products.reverse();
        let factor_of = |product: &UOp| match product.src() {
            [_, c] if product.op() == Op::Mul => centered(c).filter(|c| !matches!(c, 0 | 1)),
            _ => None,
        };
        let term = |product: &&'_ UOp| match factor_of(product) {
            Some(factor) => (product.src()[0].clone(), factor),
            None => ((*product).clone(), 1),
        };
        let terms: SmallVec<[(UOp, i128); 12]> = products.iter().map(term).collect();
        let is_new = |at: usize| terms[..at].iter().all(|(node, _)| *node != terms[at].0);
        let is_after = |at: usize, earlier: usize| term_cmp(&terms[earlier], &terms[at]).is_lt();
        let is_placed = |at: usize| match at {
            0 => true,
            1 => canonical_cmp(products[0], products[1]).is_le(),
            2 => is_after(2, 0) && is_after(2, 1),
            _ => is_after(at, at - 1),
        };
        (0..terms.len()).all(|at| is_atom(&terms[at].0) && is_new(at) && is_placed(at))
    }

    /// Adds a term; the term of the node is removed if its factor becomes 0.
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

    /// The sum of a constant alone.
    pub(crate) fn of_constant(dtype: DType, constant: i128) -> Sum {
        Sum { dtype, terms: SmallVec::new(), constant }
    }

    /// The sum of one node, with factor 1.
    pub(crate) fn of_node(node: UOp) -> Sum {
        let mut sum = Sum::of_constant(node.dtype(), 0);
        sum.terms.push((node, 1));
        sum
    }

    /// The empty sum of the same dtype.
    pub(crate) fn empty(&self) -> Sum {
        Sum::of_constant(self.dtype, 0)
    }

    /// The node of this sum: terms in canonical order, the constant last.
    pub(crate) fn build(&self) -> UOp {
        let constant = |value| UOp::constant(Constant::int(self.dtype, value));
        let mut terms: SmallVec<[&(UOp, i128); 6]> = self.terms.iter().collect();
        terms.sort_by(|x, y| term_cmp(x, y));
        let product = |(node, factor): &(UOp, i128)| match factor {
            1 => node.clone(),
            _ => UOp::binary(Op::Mul, node.clone(), constant(*factor)),
        };
        let mut products: SmallVec<[UOp; 6]> = terms.into_iter().map(product).collect();
        if let [first, second, ..] = products.as_mut_slice()
            && canonical_cmp(first, second).is_gt()
        {
            std::mem::swap(first, second);
        }
        let is_constant_shown = self.constant != 0 || products.is_empty();
        products.extend(is_constant_shown.then(|| constant(self.constant)));
        let sum = products.into_iter().reduce(|sum, term| UOp::binary(Op::Add, sum, term));
        sum.expect("a sum without terms is its constant")
    }
}

/// The order of the terms of a sum: small factors first, which are those of the inner axes. So the
/// sum of an inner axis, which a gate compares, is the beginning of the gated index. The first two
/// terms are in the order of all commutative ops.
fn term_cmp((x, a): &(UOp, i128), (y, b): &(UOp, i128)) -> std::cmp::Ordering {
    a.abs().cmp(&b.abs()).then_with(|| canonical_cmp(x, y))
}

/// The order of the operands of a commutative op: variables, then nodes by op and structure,
/// constants last.
pub(crate) fn canonical_cmp(x: &UOp, y: &UOp) -> std::cmp::Ordering {
    let rank = |uop: &UOp| match uop.arg() {
        Arg::Var(_) => 0,
        Arg::Const(_) => 2,
        _ => 1,
    };
    rank(x).cmp(&rank(y)).then_with(|| x.structural_cmp(y))
}
