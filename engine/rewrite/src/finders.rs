//! Heuristics that split sums: the finders named after `by` in the equations of rules.
//!
//! A finder proposes, [`crate::given`] checks. So nothing here can make a rule wrong; a finder that
//! proposes less makes it weaker. Sums and constants come in the order in which the rule names
//! them, and so do the parts that are proposed.

use std::rc::Rc;

use gradiff_graph::{Op, UOp};
use smallvec::SmallVec;

use crate::bounds::Bounds;
use crate::condition::gcd;
use crate::sum::Sum;
use gradiff_graph::interval::{floor_div, floor_rem};

/// Input of a finder: the sums on the left sides of the equations, and the constants that the left
/// side of the rule binds, both in order.
pub(crate) struct Input<'a> {
    /// The node that the rule is tried on.
    pub(crate) root: &'a UOp,
    pub(crate) sums: SmallVec<[Rc<Sum>; 2]>,
    pub(crate) constants: SmallVec<[i128; 2]>,
}

/// Tries a proposal: sums for the new names in the order in which the equations name them.
pub(crate) type Attempt<'a> = &'a mut dyn FnMut(&[Sum], &mut Bounds) -> Option<UOp>;

/// Proposes parts until an attempt succeeds.
pub(crate) type Find = fn(&Input<'_>, &mut Bounds, Attempt<'_>) -> Option<UOp>;

/// The finders, with the names that follow `by`.
pub(crate) const FINDERS: [(&str, Find); 22] = [
    ("linear", linear),
    ("multiples", multiples),
    ("remainder", remainder),
    ("residue", |input, bounds, attempt| reduced(false, input, bounds, attempt)),
    ("factor", factor),
    ("gcd", |input, bounds, attempt| common_divisor(input.constants[0], input, bounds, attempt)),
    ("divisor", |input, bounds, attempt| common_divisor(0, input, bounds, attempt)),
    ("exact", exact),
    ("affine", affine),
    ("scale", scale),
    ("simplex", simplex),
    ("common", common),
    ("quotient", |input, bounds, attempt| quotients(Op::FloorMod, &[], input, bounds, attempt)),
    ("quotient_mod", |input, bounds, attempt| {
        quotients(Op::FloorMod, &[Shape::Modulus], input, bounds, attempt)
    }),
    ("quotient_nested", |input, bounds, attempt| {
        quotients(Op::FloorMod, &[Shape::Nested], input, bounds, attempt)
    }),
    ("quotient_nested_mod", |input, bounds, attempt| {
        quotients(Op::FloorMod, &[Shape::Nested, Shape::Modulus], input, bounds, attempt)
    }),
    ("cquotient", |input, bounds, attempt| quotients(Op::CMod, &[], input, bounds, attempt)),
    ("cquotient_nested", |input, bounds, attempt| {
        quotients(Op::CMod, &[Shape::Nested], input, bounds, attempt)
    }),
    ("halves", |input, bounds, attempt| unrolled(2, input, bounds, attempt)),
    ("thirds", |input, bounds, attempt| unrolled(3, input, bounds, attempt)),
    ("opposite", opposite),
    ("over_range", over_range),
];

fn number(sum: &Sum, value: i128) -> Sum {
    Sum::of_constant(sum.dtype, value)
}

/// `x = s`: the sum itself, if the node is not its canonical form yet.
fn linear(input: &Input<'_>, bounds: &mut Bounds, attempt: Attempt<'_>) -> Option<UOp> {
    // A shared value that is a sum is one term, which a canonical chain does not show.
    let is_sum = |(node, _): &(UOp, i128)| node.op() == Op::Add;
    if !input.sums[0].terms.iter().any(is_sum) && Sum::is_canonical(input.root) {
        return None;
    }
    attempt(&[(*input.sums[0]).clone()], bounds)
}

/// `x = w * c0 + r`: w has the terms that c0 divides, and the quotient of the constant.
fn multiples(input: &Input<'_>, bounds: &mut Bounds, attempt: Attempt<'_>) -> Option<UOp> {
    let (sum, divisor) = (&*input.sums[0], input.constants[0]);
    let (mut whole, mut rest) = (sum.empty(), sum.empty());
    for (node, coefficient) in &sum.terms {
        match coefficient.checked_rem(divisor)? {
            0 => whole.terms.push((node.clone(), coefficient / divisor)),
            _ => rest.terms.push((node.clone(), *coefficient)),
        }
    }
    whole.constant = sum.constant.checked_div(divisor)?;
    rest.constant = sum.constant % divisor;
    let is_something = !whole.terms.is_empty() || whole.constant != 0;
    is_something.then(|| attempt(&[whole, rest], bounds)).flatten()
}

/// `x = w * c0 + r`: the coefficients of r are those of x modulo c0, with the signs that they have
/// in x, or, as a second attempt, as near to 0 as possible.
fn remainder(input: &Input<'_>, bounds: &mut Bounds, attempt: Attempt<'_>) -> Option<UOp> {
    reduced(false, input, bounds, attempt).or_else(|| reduced(true, input, bounds, attempt))
}

fn reduced(
    is_nearest: bool,
    input: &Input<'_>,
    bounds: &mut Bounds,
    attempt: Attempt<'_>,
) -> Option<UOp> {
    let (sum, divisor) = (&*input.sums[0], input.constants[0]);
    if divisor == 0 {
        return None;
    }
    let (mut whole, mut rest) = (sum.empty(), sum.empty());
    for (node, coefficient) in &sum.terms {
        let mut remainder = coefficient % divisor;
        if is_nearest && divisor.abs() < 2 * remainder.abs() {
            remainder -= divisor.abs() * remainder.signum();
        }
        let quotient = (coefficient - remainder) / divisor;
        if remainder != 0 {
            rest.terms.push((node.clone(), remainder));
        }
        if quotient != 0 {
            whole.terms.push((node.clone(), quotient));
        }
    }
    rest.constant = floor_rem(sum.constant, divisor);
    whole.constant = floor_div(sum.constant, divisor);
    let is_something = !whole.terms.is_empty() || whole.constant != 0;
    is_something.then(|| attempt(&[whole, rest], bounds)).flatten()
}

/// Candidates for a common factor, one from each coefficient, largest first.
fn factors(sum: &Sum, factor_of: impl Fn(i128) -> i128) -> SmallVec<[i128; 6]> {
    let mut candidates: SmallVec<[i128; 6]> = SmallVec::new();
    candidates.extend(sum.terms.iter().map(|(_, coefficient)| factor_of(*coefficient)));
    candidates.sort_unstable_by(|x, y| y.cmp(x));
    candidates.dedup();
    candidates.retain(|factor| *factor > 1);
    candidates
}

/// The terms whose coefficient `factor` divides, divided by it; and the other terms.
fn parted(sum: &Sum, factor: i128) -> (Sum, Sum) {
    let (mut whole, mut rest) = (sum.empty(), sum.empty());
    for (node, coefficient) in &sum.terms {
        if coefficient % factor == 0 {
            whole.terms.push((node.clone(), coefficient / factor));
        } else {
            rest.terms.push((node.clone(), *coefficient));
        }
    }
    (whole, rest)
}

/// `x = w * c1 + r`, c1 a proper divisor of c0 that some coefficients have.
fn factor(input: &Input<'_>, bounds: &mut Bounds, attempt: Attempt<'_>) -> Option<UOp> {
    let (sum, divisor) = (&*input.sums[0], input.constants[0]);
    for factor in factors(sum, |coefficient| gcd(coefficient, divisor)) {
        if divisor <= factor {
            continue;
        }
        let (mut whole, mut rest) = parted(sum, factor);
        rest.constant = floor_rem(sum.constant, factor);
        whole.constant = floor_div(sum.constant, factor);
        if let Some(found) = attempt(&[whole, number(sum, factor), rest], bounds) {
            return Some(found);
        }
    }
    None
}

/// `x = w * c1`: c1 is the greatest common divisor of all coefficients and of `start`.
fn common_divisor(
    start: i128,
    input: &Input<'_>,
    bounds: &mut Bounds,
    attempt: Attempt<'_>,
) -> Option<UOp> {
    let sum = &*input.sums[0];
    let terms = sum.terms.iter().map(|(_, coefficient)| *coefficient);
    let factor = terms.chain([sum.constant]).fold(start, gcd);
    if factor <= 1 {
        return None;
    }
    let (mut whole, _) = parted(sum, factor);
    whole.constant = sum.constant / factor;
    attempt(&[whole, number(sum, factor)], bounds)
}

/// `x = w * c0`.
fn exact(input: &Input<'_>, bounds: &mut Bounds, attempt: Attempt<'_>) -> Option<UOp> {
    let (sum, divisor) = (&*input.sums[0], input.constants[0]);
    let terms = sum.terms.iter().map(|(_, coefficient)| *coefficient);
    if divisor == 0 || terms.chain([sum.constant]).any(|part| part % divisor != 0) {
        return None;
    }
    let (mut whole, _) = parted(sum, divisor);
    whole.constant = sum.constant / divisor;
    attempt(&[whole], bounds)
}

/// `x = n * c1 + c2`: one term.
fn affine(input: &Input<'_>, bounds: &mut Bounds, attempt: Attempt<'_>) -> Option<UOp> {
    let sum = &*input.sums[0];
    let [(node, coefficient)] = sum.terms.as_slice() else { return None };
    let parts = [Sum::of_node(node.clone()), number(sum, *coefficient), number(sum, sum.constant)];
    attempt(&parts, bounds)
}

/// `x = w * c1 + r`: c1 is the magnitude of a coefficient.
fn scale(input: &Input<'_>, bounds: &mut Bounds, attempt: Attempt<'_>) -> Option<UOp> {
    let sum = &*input.sums[0];
    for factor in factors(sum, i128::abs) {
        let (whole, mut rest) = parted(sum, factor);
        rest.constant = sum.constant;
        if let Some(found) = attempt(&[whole, number(sum, factor), rest], bounds) {
            return Some(found);
        }
    }
    None
}

/// `x = w * c1 + r, x = w * c2 - t`: w has each node once; c1 is the smallest coefficient, c2 the
/// largest, all of them positive. Only for variables and limit 1: elsewhere the sum often occurs in
/// other clauses and in the index as well, so that a second sum costs more than the clause saves.
fn simplex(input: &Input<'_>, bounds: &mut Bounds, attempt: Attempt<'_>) -> Option<UOp> {
    let sum = &*input.sums[0];
    let smallest = sum.terms.iter().map(|(_, coefficient)| *coefficient).min()?;
    let largest = sum.terms.iter().map(|(_, coefficient)| *coefficient).max()?;
    let is_variable = |(node, _): &(UOp, i128)| matches!(node.op(), Op::DefineVar | Op::Range);
    let is_plain = input.constants[0] == 1 && sum.terms.iter().all(is_variable);
    if smallest < 1 || largest < 2 || sum.constant != 0 || !is_plain {
        return None;
    }
    let (mut whole, mut above, mut below) = (sum.empty(), sum.empty(), sum.empty());
    for (node, coefficient) in &sum.terms {
        whole.terms.push((node.clone(), 1));
        above.terms.push((node.clone(), coefficient - smallest));
        below.terms.push((node.clone(), largest - coefficient));
    }
    above.terms.retain(|(_, coefficient)| *coefficient != 0);
    below.terms.retain(|(_, coefficient)| *coefficient != 0);
    attempt(&[whole, number(sum, smallest), above, number(sum, largest), below], bounds)
}

/// `x = a + s, y = b + s`: s has the terms that both sums share, and the constant of x if y has no
/// other terms.
fn common(input: &Input<'_>, bounds: &mut Bounds, attempt: Attempt<'_>) -> Option<UOp> {
    let (x, y) = (&*input.sums[0], &*input.sums[1]);
    let (mut left, mut right, mut shared) = (x.clone(), y.clone(), x.empty());
    shared.terms.extend(x.terms.iter().filter(|term| y.terms.contains(term)).cloned());
    left.terms.retain(|term| !shared.terms.contains(term));
    right.terms.retain(|term| !shared.terms.contains(term));
    if right.terms.is_empty() {
        shared.constant = left.constant;
        left.constant = 0;
        right.constant -= shared.constant;
    }
    let is_something = !shared.terms.is_empty() || shared.constant != 0;
    is_something.then(|| attempt(&[left, shared, right], bounds)).flatten()
}

/// `x = r * c0 + w, z = r * c1 + s`, r the range of the root, a reduction.
fn over_range(input: &Input<'_>, bounds: &mut Bounds, attempt: Attempt<'_>) -> Option<UOp> {
    let range = input.root.src().get(1)?;
    let mut parts: SmallVec<[Sum; 4]> = SmallVec::new();
    for sum in &input.sums {
        let (_, coefficient) = sum.terms.iter().find(|(node, _)| node == range)?;
        let mut rest = (**sum).clone();
        rest.terms.retain(|(node, _)| node != range);
        parts.extend([number(sum, *coefficient), rest]);
    }
    attempt(&parts, bounds)
}

/// Variants of a quotient that is added to its remainder.
#[derive(Clone, Copy, PartialEq)]
enum Shape {
    /// The remainder is that of a quotient, and the quotient one by the product.
    Nested,
    /// The quotient is taken modulo c3.
    Modulus,
}

/// `root = (u % c0) * c1 + (u // c0) * (c0 * c1) + r`, with `v // c2` for u if it is nested, and
/// the second quotient modulo c3.
fn quotients(
    modulo: Op,
    shapes: &[Shape],
    input: &Input<'_>,
    bounds: &mut Bounds,
    attempt: Attempt<'_>,
) -> Option<UOp> {
    let sum = &*input.sums[0];
    let division = if modulo == Op::CMod { Op::CDiv } else { Op::FloorDiv };
    for (remainder, coefficient) in &sum.terms {
        let Some((base, modulus)) = by_constant(remainder, modulo) else { continue };
        for (node, factor) in &sum.terms {
            if coefficient.checked_mul(modulus) != Some(*factor) {
                continue;
            }
            let (quotient, outer) = match shapes.contains(&Shape::Modulus) {
                true => match by_constant(node, modulo) {
                    Some((quotient, outer)) => (quotient, Some(outer)),
                    None => continue,
                },
                false => (node, None),
            };
            let Some((divided, divisor)) = by_constant(quotient, division) else { continue };
            let mut parts: SmallVec<[Sum; 6]> = SmallVec::new();
            if shapes.contains(&Shape::Nested) {
                let Some((inner, first)) = by_constant(base, division) else { continue };
                if inner != divided || first.checked_mul(modulus) != Some(divisor) {
                    continue;
                }
                parts.extend([Sum::of_node(inner.clone()), number(sum, first)]);
            } else if divided == base && divisor == modulus {
                parts.push(Sum::of_node(base.clone()));
            } else {
                continue;
            }
            parts.extend([number(sum, modulus), number(sum, *coefficient)]);
            parts.extend(outer.map(|outer| number(sum, outer)));
            let mut rest = sum.clone();
            rest.terms.retain(|(term, _)| term != remainder && term != node);
            parts.push(rest);
            if let Some(found) = attempt(&parts, bounds) {
                return Some(found);
            }
        }
    }
    None
}

/// The source and the constant of `op(x, c)`.
fn by_constant(node: &UOp, op: Op) -> Option<(&UOp, i128)> {
    match node.src() {
        [x, c] if node.op() == op => c.as_int().map(|value| (x, value)),
        _ => None,
    }
}

/// `root = (u // c0) * c1 + (t // c0) * c1 + r, t = u + c2`: c0 is `count` times c2. If there are
/// three quotients, the third one is that of `v = u + 2 * c2`.
fn unrolled(
    count: i128,
    input: &Input<'_>,
    bounds: &mut Bounds,
    attempt: Attempt<'_>,
) -> Option<UOp> {
    let sum = &*input.sums[0];
    let quotients = sum.terms.iter().filter(|(node, _)| node.op() == Op::FloorDiv);
    let quotients: SmallVec<[_; 6]> = quotients.collect();
    if (quotients.len() as i128) < count {
        return None;
    }
    for (node, coefficient) in &quotients {
        let Some((base, divisor)) = by_constant(node, Op::FloorDiv) else { continue };
        let offset = divisor / count;
        if offset == 0 || offset * count != divisor {
            continue;
        }
        let Some(first) = Sum::read(base) else { continue };
        let shifted = |number: i128| {
            let mut sum = first.clone();
            sum.constant = sum.constant.checked_add(number * offset)?;
            Some(sum)
        };
        let Some(second) = shifted(1) else { continue };
        let mut used: SmallVec<[&UOp; 3]> = SmallVec::new();
        used.push(node);
        let quotient_of = |dividend: &Sum| {
            let is_quotient = |term: &&&(UOp, i128)| {
                let division = by_constant(&term.0, Op::FloorDiv);
                term.1 == *coefficient
                    && division.is_some_and(|(x, by)| by == divisor && *x == dividend.build())
            };
            quotients.iter().find(is_quotient).map(|term| &term.0)
        };
        let Some(quotient) = quotient_of(&second) else { continue };
        used.push(quotient);
        let mut parts: SmallVec<[Sum; 6]> = SmallVec::new();
        parts.extend([first.clone(), number(sum, offset), number(sum, *coefficient), second]);
        if count == 3 {
            let Some(third) = shifted(2) else { continue };
            let Some(quotient) = quotient_of(&third) else { continue };
            used.push(quotient);
            parts.push(third);
        }
        let mut rest = sum.clone();
        rest.terms.retain(|(term, _)| !used.contains(&&*term));
        parts.push(rest);
        if let Some(found) = attempt(&parts, bounds) {
            return Some(found);
        }
    }
    None
}

/// `x = 0 - w`: every coefficient is negative, and none is -2^(bits - 1), which is its own negative
/// modulo 2^bits.
fn opposite(input: &Input<'_>, bounds: &mut Bounds, attempt: Attempt<'_>) -> Option<UOp> {
    let sum = &*input.sums[0];
    sum.dtype.int_range()?;
    let smallest = -(1i128 << (sum.dtype.bits() - 1));
    let is_refused = |coefficient: i128| coefficient > 0 || coefficient == smallest;
    if sum.terms.is_empty() || sum.terms.iter().any(|(_, factor)| is_refused(*factor)) {
        return None;
    }
    let mut whole = sum.clone();
    whole.terms.iter_mut().for_each(|(_, coefficient)| *coefficient = -*coefficient);
    whole.constant = -whole.constant;
    attempt(&[whole], bounds)
}
