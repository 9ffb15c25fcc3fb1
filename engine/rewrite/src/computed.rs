//! The right sides that are computed: what no pattern of fixed shape can say.

use gradiff_graph::{Constant, DType, Op, Sources, UOp, evaluate};
use smallvec::SmallVec;

use crate::bounds::{Bounds, floor_rem};
use crate::condition::gcd;
use crate::divmod;
use crate::sum::{Sum, canonical_cmp};
use crate::validity;

/// A right side: the node to rewrite, what is known of bounds; `None` if there is nothing to do.
pub(crate) type Compute = fn(&UOp, &mut Bounds) -> Option<UOp>;

/// The names that a rule may use after `@`.
pub(crate) const FUNCTIONS: [(&str, Compute); 11] = [
    ("fold", fold),
    ("sum", sum),
    ("order", order),
    ("chain", chain),
    ("compare_sums", compare_sums),
    ("divide_sum", divmod::divide_sum),
    ("divide_sum_c", divmod::divide_sum_c),
    ("valid_index", validity::index),
    ("valid_clauses", validity::clauses),
    ("drop_stores", drop_stores),
    ("recombine", recombine),
];

/// The value of an op over constants.
fn fold(uop: &UOp, _: &mut Bounds) -> Option<UOp> {
    let mut src: SmallVec<[Constant; 3]> = SmallVec::new();
    for source in uop.src() {
        src.push(source.as_const()?);
    }
    evaluate(uop.op(), uop.dtype(), &src).map(UOp::constant)
}

/// The canonical form of a sum of integers, if this is not it.
fn sum(uop: &UOp, _: &mut Bounds) -> Option<UOp> {
    if Sum::is_canonical(uop) {
        return None;
    }
    let built = Sum::read(uop)?.build();
    (built != *uop).then_some(built)
}

/// The operands of a commutative op in canonical order.
fn order(uop: &UOp, _: &mut Bounds) -> Option<UOp> {
    let [x, y] = uop.src() else { return None };
    let is_swapped = y.op() != Op::Const && canonical_cmp(y, x).is_lt();
    is_swapped.then(|| uop.with_src([y.clone(), x.clone()]))
}

/// A chain of one associative and commutative op over integers: operands in canonical order,
/// constants last, so that they meet.
fn chain(uop: &UOp, _: &mut Bounds) -> Option<UOp> {
    let op = uop.op();
    let mut operands: SmallVec<[UOp; CHAIN_LIMIT]> = SmallVec::new();
    let mut pending: SmallVec<[&UOp; CHAIN_LIMIT]> = SmallVec::new();
    pending.push(uop);
    while let Some(node) = pending.pop() {
        if operands.len() + pending.len() > CHAIN_LIMIT {
            return None;
        }
        match node.src() {
            [x, y] if node.op() == op => pending.extend([y, x]),
            _ => operands.push(node.clone()),
        }
    }
    let is_constant = |uop: &UOp| uop.op() == Op::Const;
    operands.sort_by(|x, y| is_constant(x).cmp(&is_constant(y)).then_with(|| canonical_cmp(x, y)));
    if matches!(op, Op::Max | Op::Min | Op::And | Op::Or) {
        operands.dedup();
    }
    let built = operands.into_iter().reduce(|chain, operand| UOp::binary(op, chain, operand))?;
    (built != *uop).then_some(built)
}

/// How many operands of a chain are put in order: a product of products of one node doubles with
/// each level.
const CHAIN_LIMIT: usize = 16;

/// A sum whose parts are a quotient and a remainder of one node: they are put together again.
fn recombine(uop: &UOp, _: &mut Bounds) -> Option<UOp> {
    let mut sum = Sum::read(uop)?;
    for index in 0..sum.terms.len() {
        if !matches!(sum.terms[index].0.op(), Op::FloorMod | Op::CMod) {
            continue;
        }
        let (rest, factor) = sum.terms[index].clone();
        let [base, divisor] = rest.src() else { continue };
        let Some(modulus) = divisor.as_int() else { continue };
        for other in 0..sum.terms.len() {
            if modulus <= 0 || sum.terms[other].1 != factor * modulus {
                continue;
            }
            let node = sum.terms[other].0.clone();
            let Some(whole) = whole(&rest, base, modulus, &node) else { continue };
            sum.terms.retain(|(term, _)| *term != rest && *term != node);
            sum.add(whole, factor);
            return Some(sum.build());
        }
    }
    None
}

/// What `rest + modulus * node` is, `rest` being `base` mod `modulus`: `base` if `node` is the
/// quotient; for floors, `base % (modulus*d)` if `node` is `quotient % d`.
fn whole(rest: &UOp, base: &UOp, modulus: i128, node: &UOp) -> Option<UOp> {
    let division = if rest.op() == Op::CMod { Op::CDiv } else { Op::FloorDiv };
    if is_quotient(division, node, base, modulus) {
        return Some(base.clone());
    }
    let (Op::FloorMod, Op::FloorMod) = (rest.op(), node.op()) else { return None };
    let inner = node.src()[1].as_int()?;
    if inner <= 0 || !is_quotient(division, &node.src()[0], base, modulus) {
        return None;
    }
    let (_, high) = base.dtype().int_range()?;
    let product = modulus.checked_mul(inner).filter(|product| *product <= high)?;
    let product = UOp::constant(Constant::int(base.dtype(), product));
    Some(UOp::binary(Op::FloorMod, base.clone(), product))
}

/// Whether `node` is `base / modulus`, also where `base` is a division itself.
fn is_quotient(division: Op, node: &UOp, base: &UOp, modulus: i128) -> bool {
    if node.op() != division {
        return false;
    }
    let divided = (&node.src()[0], node.src()[1].as_int());
    let is_direct = divided == (base, Some(modulus));
    is_direct
        || base.op() == division && {
            let inner = base.src()[1].as_int();
            let product = inner.filter(|inner| *inner > 0).and_then(|x| x.checked_mul(modulus));
            product.is_some() && divided == (&base.src()[0], product)
        }
}

/// `x < y` or `x != y` of sums that cannot wrap: common terms cancel, constants go to the right,
/// common factors are divided out.
fn compare_sums(uop: &UOp, known: &mut Bounds) -> Option<UOp> {
    let [x, y] = uop.src() else { return None };
    let (mut left, mut right) = (Sum::read(x)?, Sum::read(y)?);
    left.interval(known)?;
    right.interval(known)?;
    for (node, factor) in right.terms.clone() {
        let shared = left.terms.iter().find(|(known, _)| *known == node);
        if shared.is_some_and(|(_, other)| *other == factor) {
            left.add(node.clone(), -factor);
            right.add(node, -factor);
        }
    }
    if !right.terms.is_empty() {
        return compared(uop, left, right, known);
    }
    right.constant -= left.constant;
    left.constant = 0;
    if left.terms.is_empty() {
        let is_true = if uop.op() == Op::CmpLt { 0 < right.constant } else { right.constant != 0 };
        return Some(UOp::constant(Constant::bool(is_true)));
    }
    match uop.op() {
        Op::CmpLt => divide_less(&mut left, &mut right.constant, known),
        _ => {
            let factor = common_factor(&left);
            if floor_rem(right.constant, factor) != 0 {
                return Some(UOp::constant(Constant::bool(true)));
            }
            left.terms.iter_mut().for_each(|(_, coefficient)| *coefficient /= factor);
            right.constant /= factor;
        }
    }
    compared(uop, left, right, known)
}

fn common_factor(sum: &Sum) -> i128 {
    sum.terms.iter().fold(0, |factor, (_, coefficient)| gcd(factor, *coefficient))
}

/// `g*S + R < c` is `S < t` if `ceil((c - R) / g)` is `t` for every value of R.
fn divide_less(left: &mut Sum, limit: &mut i128, known: &mut Bounds) {
    let mut factors: SmallVec<[i128; 6]> =
        left.terms.iter().map(|(_, coefficient)| coefficient.abs()).collect();
    factors.push(common_factor(left));
    factors.sort_unstable_by(|x, y| y.cmp(x));
    for factor in factors.into_iter().filter(|factor| *factor > 1) {
        let (mut whole, mut rest) = (left.empty(), left.empty());
        for (node, coefficient) in &left.terms {
            let part = if coefficient % factor == 0 { &mut whole } else { &mut rest };
            part.terms.push((node.clone(), *coefficient));
        }
        let Some((min, max)) = rest.interval(known) else { continue };
        let ceil = |rest: i128| -crate::bounds::floor_div(-(*limit - rest), factor);
        if ceil(min) == ceil(max) {
            *limit = ceil(min);
            whole.terms.iter_mut().for_each(|(_, coefficient)| *coefficient /= factor);
            *left = whole;
            return;
        }
    }
}

/// The comparison of two sums, if it differs from the node and neither side may wrap.
fn compared(uop: &UOp, left: Sum, right: Sum, known: &mut Bounds) -> Option<UOp> {
    left.interval(known)?;
    right.interval(known)?;
    let built = UOp::new(uop.op(), DType::Bool, [left.build(), right.build()], uop.arg().clone());
    (built != *uop).then_some(built)
}

/// A sink without the stores whose gate is never true.
fn drop_stores(uop: &UOp, _: &mut Bounds) -> Option<UOp> {
    let is_idle = |store: &UOp| {
        let gate = (store.op() == Op::Store).then(|| store.src()[0].src().get(2)).flatten();
        gate.is_some_and(|gate| gate.as_const() == Some(Constant::bool(false)))
    };
    if !uop.src().iter().any(is_idle) {
        return None;
    }
    let kept: Sources = uop.src().iter().filter(|source| !is_idle(source)).cloned().collect();
    Some(uop.with_src(kept))
}
