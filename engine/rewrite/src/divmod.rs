//! Division of sums by positive constants, floor and C apart.
//!
//! All of it needs a sum that cannot wrap: then the node's value is the exact sum.

use gradiff_graph::{Constant, Op, UOp};
use smallvec::SmallVec;

use crate::bounds::{Bounds, Interval, floor_div, floor_rem};
use crate::condition::gcd;
use crate::sum::Sum;

/// `sum // c` and `sum % c`, floored, c > 0.
pub(crate) fn divide_sum(uop: &UOp, known: &mut Bounds) -> Option<UOp> {
    let division = Division::read(uop, known)?;
    division
        .by_range()
        .or_else(|| division.by_remainder(known))
        .or_else(|| division.by_factor(known))
        .or_else(|| division.by_two_values(known))
        .or_else(|| division.by_multiples(known))
        .filter(|built| built != uop)
}

/// `cdiv(sum, c)` and `cmod(sum, c)`, c > 0, where every part is a multiple of c: the division is
/// exact, so that rounding does not matter.
pub(crate) fn divide_sum_c(uop: &UOp, known: &mut Bounds) -> Option<UOp> {
    let division = Division::read(uop, known)?;
    let (mut sum, divisor) = (division.sum, division.divisor);
    let is_multiple = |value: i128| value % divisor == 0;
    if !is_multiple(sum.constant) || !sum.terms.iter().all(|(_, factor)| is_multiple(*factor)) {
        return None;
    }
    if uop.op() == Op::CMod {
        return Some(UOp::constant(Constant::zero(uop.dtype())));
    }
    sum.constant /= divisor;
    sum.terms.iter_mut().for_each(|(_, factor)| *factor /= divisor);
    Some(sum.build())
}

struct Division {
    is_quotient: bool,
    sum: Sum,
    /// Of the sum, exact.
    interval: Interval,
    divisor: i128,
}

impl Division {
    fn read(uop: &UOp, known: &mut Bounds) -> Option<Division> {
        let [x, divisor] = uop.src() else { return None };
        let divisor = divisor.as_int().filter(|divisor| *divisor > 0)?;
        let sum = Sum::read(x)?;
        let interval = sum.interval(known)?;
        let is_quotient = matches!(uop.op(), Op::FloorDiv | Op::CDiv);
        Some(Division { is_quotient, sum, interval, divisor })
    }

    fn build(&self, sum: &Sum, divisor: i128) -> UOp {
        let op = if self.is_quotient { Op::FloorDiv } else { Op::FloorMod };
        let divisor = UOp::constant(Constant::int(sum.dtype, divisor));
        UOp::binary(op, sum.build(), divisor)
    }

    /// The quotient is the same over the whole range.
    fn by_range(&self) -> Option<UOp> {
        let (min, max) = self.interval;
        let quotient = floor_div(min, self.divisor);
        if quotient != floor_div(max, self.divisor) {
            return None;
        }
        if self.is_quotient {
            return Some(UOp::constant(Constant::int(self.sum.dtype, quotient)));
        }
        let mut rest = self.sum.clone();
        rest.constant -= quotient * self.divisor;
        Some(rest.build())
    }

    /// `sum = c*Q + R` with R within one multiple of c: the quotient is Q plus that multiple. Each
    /// coefficient is taken modulo c, nearest to 0 or of its own sign.
    fn by_remainder(&self, known: &mut Bounds) -> Option<UOp> {
        for is_nearest in [false, true] {
            let (mut whole, mut rest) = (self.sum.empty(), self.sum.empty());
            for (node, factor) in &self.sum.terms {
                let mut remainder = factor % self.divisor;
                if is_nearest && self.divisor < 2 * remainder.abs() {
                    remainder -= self.divisor * remainder.signum();
                }
                rest.add(node.clone(), remainder);
                whole.add(node.clone(), (factor - remainder) / self.divisor);
            }
            if whole.terms.is_empty() {
                continue;
            }
            rest.constant = floor_rem(self.sum.constant, self.divisor);
            whole.constant = floor_div(self.sum.constant, self.divisor);
            let Some((min, max)) = rest.interval(known) else { continue };
            let multiple = floor_div(min, self.divisor);
            if multiple != floor_div(max, self.divisor) {
                continue;
            }
            whole.constant += multiple;
            rest.constant -= multiple * self.divisor;
            let result = if self.is_quotient { whole } else { rest };
            if result.interval(known).is_some() {
                return Some(result.build());
            }
        }
        None
    }

    /// `f*S + R` over c with f dividing c and R in 0..f: `S // (c/f)`, and `(S % (c/f))*f + R`.
    fn by_factor(&self, known: &mut Bounds) -> Option<UOp> {
        let mut factors: SmallVec<[i128; 6]> = SmallVec::new();
        factors.extend(self.sum.terms.iter().map(|(_, factor)| gcd(*factor, self.divisor)));
        factors.sort_unstable_by(|x, y| y.cmp(x));
        factors.dedup();
        for factor in factors.into_iter().filter(|factor| 1 < *factor && *factor < self.divisor) {
            let (mut whole, mut rest) = (self.sum.empty(), self.sum.empty());
            for (node, coefficient) in &self.sum.terms {
                if coefficient % factor == 0 {
                    whole.terms.push((node.clone(), coefficient / factor));
                } else {
                    rest.terms.push((node.clone(), *coefficient));
                }
            }
            rest.constant = floor_rem(self.sum.constant, factor);
            whole.constant = floor_div(self.sum.constant, factor);
            let is_inside = |(min, max)| 0 <= min && max < factor;
            if !rest.interval(known).is_some_and(is_inside) || whole.interval(known).is_none() {
                continue;
            }
            let inner = self.build(&whole, self.divisor / factor);
            if self.is_quotient {
                return Some(inner);
            }
            rest.add(inner, factor);
            return Some(rest.build());
        }
        None
    }

    /// One node with two neighbouring values: a straight line goes through both results.
    fn by_two_values(&self, known: &mut Bounds) -> Option<UOp> {
        let [(node, factor)] = self.sum.terms.as_slice() else { return None };
        let (min, max) = known.of(node);
        if max - min != 1 {
            return None;
        }
        let at = |value: i128| {
            let sum = value * factor + self.sum.constant;
            let divide = if self.is_quotient { floor_div } else { floor_rem };
            divide(sum, self.divisor)
        };
        let slope = at(max) - at(min);
        let mut line = self.sum.empty();
        line.add(node.clone(), slope);
        line.constant = at(min) - slope * min;
        line.interval(known)?;
        Some(line.build())
    }

    /// Exact multiples of c leave the division; they vanish from a remainder.
    fn by_multiples(&self, known: &mut Bounds) -> Option<UOp> {
        let (mut whole, mut rest) = (self.sum.empty(), self.sum.empty());
        for (node, factor) in &self.sum.terms {
            let remainder = factor % self.divisor;
            if self.is_quotient && remainder != 0 {
                rest.add(node.clone(), *factor);
            } else {
                rest.add(node.clone(), remainder);
                whole.add(node.clone(), (factor - remainder) / self.divisor);
            }
        }
        rest.constant = self.sum.constant % self.divisor;
        whole.constant = self.sum.constant / self.divisor;
        let is_unchanged = whole.terms.is_empty() && whole.constant == 0;
        if is_unchanged || rest.interval(known).is_none() || whole.interval(known).is_none() {
            return None;
        }
        let inner = self.build(&rest, self.divisor);
        if !self.is_quotient {
            return Some(inner);
        }
        whole.add(inner, 1);
        Some(whole.build())
    }
}
