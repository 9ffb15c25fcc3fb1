//! Symbolic sizes: integer polynomials over variables of known range.
//!
//! They are built from numbers, variables, or integer nodes over both with `+`, `-` and `*`.
//! Comparisons and divisions are proven from the ranges of the variables only, without rewrite
//! rules. Equal polynomials are equal values, in whatever order they were written.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use gradiff_view::{Dim, DimAlgebra, IndexAlgebra};
use rustc_hash::FxHashMap;

use crate::{Arg, DType, Op, UOp, UopAlgebra, Variable};

/// An integer polynomial over [`Variable`]s, or a number. All its values fit an `i64`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SInt {
    /// Highest degree first; no coefficient is 0, and no product occurs twice.
    terms: Vec<Term>,
}

/// A product of variables, sorted and repeated by their powers, and its coefficient.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Term {
    factors: Vec<Arc<Variable>>,
    coefficient: i64,
}

/// Products of variables with their coefficients.
type Products<'a> = BTreeMap<Vec<&'a Variable>, i128>;

/// Most variables of a polynomial whose exact range is found by trying all corners.
const CORNER_VARIABLES_MAX: usize = 8;

/// Most factors of a product that is expanded for its bounds.
const EXPANDED_FACTORS_MAX: usize = 6;

/// The error for a node that is not a polynomial.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{op} is not a size: use integers, variables, +, - and *, and a dtype that has each value")]
pub struct NotASize {
    /// The op of the node that is not supported, or whose value may leave its dtype.
    pub op: Op,
}

impl SInt {
    /// Makes the polynomial of one variable.
    pub fn variable(variable: Arc<Variable>) -> SInt {
        if variable.min == variable.max {
            return SInt::number(variable.min);
        }
        SInt { terms: vec![Term { factors: vec![variable], coefficient: 1 }] }
    }

    /// Returns bounds of its values; exact if no variable is multiplied by itself and there are few
    /// variables.
    pub fn range(&self) -> (i128, i128) {
        // The bounds of a single varying term are exact.
        if self.terms.iter().filter(|term| !term.factors.is_empty()).count() <= 1 {
            return self.range_by_term();
        }
        // The extremes are where each variable of degree 1 has its least or its greatest value.
        let mut linear = self.variables();
        linear.retain(|variable| self.terms.iter().all(|term| term.degree(variable) <= 1));
        linear.truncate(CORNER_VARIABLES_MAX);
        let corners = (0..1usize << linear.len()).map(|corner| {
            let products = self.at_corner(&linear, corner)?;
            let ends = [false, true].into_iter().filter_map(|high| range_from(&products, high));
            ends.reduce(|x, y| (x.0.max(y.0), x.1.min(y.1)))
        });
        let hull = |hull: (i128, i128), corner: Option<(i128, i128)>| {
            let (low, high) = corner?;
            Some((hull.0.min(low), hull.1.max(high)))
        };
        let by_term = self.range_by_term();
        match corners.into_iter().try_fold((i128::MAX, i128::MIN), hull) {
            Some((low, high)) => (by_term.0.max(low), by_term.1.min(high)),
            None => by_term,
        }
    }

    /// Returns the sums of the bounds of the terms.
    fn range_by_term(&self) -> (i128, i128) {
        self.terms.iter().fold((0, 0), |(low, high), term| {
            let (term_low, term_high) = term.range();
            (i128::saturating_add(low, term_low), i128::saturating_add(high, term_high))
        })
    }

    /// Replaces these variables by one end of their ranges each: bit `i` of `corner` says whether
    /// the one with index `i` has its greatest value. `None` if a coefficient does not fit.
    fn at_corner(&self, variables: &[&Variable], corner: usize) -> Option<Products<'_>> {
        let mut products = Products::new();
        for term in &self.terms {
            let (mut factors, mut coefficient) = (Vec::new(), i128::from(term.coefficient));
            for factor in &term.factors {
                match variables.iter().position(|variable| **variable == **factor) {
                    None => factors.push(&**factor),
                    Some(bit) => {
                        let is_high = corner >> bit & 1 == 1;
                        let end = if is_high { factor.max } else { factor.min };
                        coefficient = coefficient.checked_mul(end.into())?;
                    }
                }
            }
            let sum = products.entry(factors).or_default();
            *sum = sum.checked_add(coefficient)?;
        }
        Some(products)
    }

    /// Evaluates the polynomial for these values of the variables.
    pub fn bind(&self, value: impl Fn(&Variable) -> i64) -> i64 {
        let value = self.value(|variable| i128::from(value(variable)));
        i64::try_from(value).expect("every value of a size fits 64 bits")
    }

    /// Builds the node of this polynomial.
    pub fn to_uop(&self, dtype: DType) -> UOp {
        let mut algebra = UopAlgebra { dtype };
        let product = |term: &Term| {
            let factors = term
                .factors
                .iter()
                .map(|variable| UOp::new(Op::DefineVar, dtype, [], Arg::Var(variable.clone())));
            let coefficient = algebra.constant(term.coefficient);
            match factors.reduce(|x, y| algebra.mul(x, y)) {
                None => coefficient,
                Some(product) => algebra.mul(product, coefficient),
            }
        };
        let products: Vec<UOp> = self.terms.iter().map(product).collect();
        let sum = products.into_iter().reduce(|x, y| algebra.add(x, y));
        sum.unwrap_or_else(|| algebra.constant(0))
    }

    /// Returns both numbers if neither has variables, which is by far the most frequent case.
    fn numbers(&self, other: &SInt) -> Option<(i64, i64)> {
        self.as_number().zip(other.as_number())
    }

    fn variables(&self) -> Vec<&Variable> {
        let mut found: Vec<&Variable> = Vec::new();
        for variable in self.terms.iter().flat_map(|term| &term.factors) {
            if !found.contains(&&**variable) {
                found.push(variable);
            }
        }
        found
    }

    fn value(&self, value: impl Fn(&Variable) -> i128) -> i128 {
        self.terms.iter().fold(0, |sum: i128, term| {
            let product =
                |product: i128, variable: &Arc<Variable>| product.saturating_mul(value(variable));
            let product = term.factors.iter().fold(i128::from(term.coefficient), product);
            sum.saturating_add(product)
        })
    }

    /// Returns `self + sign * other * factor`, whose values may exceed an `i64`.
    fn add_times(&self, other: &SInt, factor: &Term, sign: i128) -> Option<SInt> {
        let mut terms = self.terms.clone();
        for term in &other.terms {
            let mut factors = [&term.factors[..], &factor.factors[..]].concat();
            factors.sort();
            // The product may exceed 64 bits where the sum does not.
            let product = sign * i128::from(term.coefficient) * i128::from(factor.coefficient);
            match terms.binary_search_by(|old| order(&old.factors, &factors)) {
                Err(index) => {
                    let coefficient = i64::try_from(product).ok()?;
                    terms.insert(index, Term { factors, coefficient });
                }
                Ok(index) => {
                    let sum = i128::from(terms[index].coefficient) + product;
                    terms[index].coefficient = i64::try_from(sum).ok()?;
                    if sum == 0 {
                        terms.remove(index);
                    }
                }
            }
        }
        Some(SInt { terms })
    }

    fn fitting(self) -> Option<SInt> {
        let (low, high) = self.range();
        (i64::try_from(low).is_ok() && i64::try_from(high).is_ok()).then_some(self)
    }

    /// Returns quotient and remainder by polynomial division; the remainder may have any value.
    fn divided(&self, divisor: &SInt) -> Option<(SInt, SInt)> {
        let (mut quotient, mut rest) = (SInt::number(0), self.clone());
        let leading = divisor.terms.first()?;
        if leading.factors.is_empty() {
            let number = leading.coefficient;
            for term in &self.terms {
                let part = Term {
                    factors: term.factors.clone(),
                    coefficient: term.coefficient.div_euclid(number),
                };
                quotient = quotient.add_times(&SInt::number(1), &part, 1)?;
                rest = rest.add_times(divisor, &part, -1)?;
            }
            return Some((quotient, rest));
        }
        // Each iteration eliminates the highest term that is divisible.
        for _ in 0..16 {
            let Some(part) = rest.terms.iter().find_map(|term| term.over(leading)) else { break };
            quotient = quotient.add_times(&SInt::number(1), &part, 1)?;
            rest = rest.add_times(divisor, &part, -1)?;
        }
        Some((quotient, rest))
    }
}

/// Finds bounds of a sum by writing each variable as one end of its range and the distance from
/// it. If the sum grows with its variables, all terms in the distances have the same sign, so that
/// the bounds are exact. `None` if that takes too many terms.
fn range_from(sum: &Products, high: bool) -> Option<(i128, i128)> {
    let mut terms = Products::new();
    for (factors, coefficient) in sum {
        if factors.len() > EXPANDED_FACTORS_MAX {
            return None;
        }
        let mut parts = vec![(Vec::new(), *coefficient)];
        for variable in factors {
            let (end, sign) = if high { (variable.max, -1) } else { (variable.min, 1) };
            for at in 0..parts.len() {
                let (mut distances, part) = parts[at].clone();
                parts[at].1 = part.checked_mul(end.into())?;
                distances.push(*variable);
                parts.push((distances, part * sign));
            }
        }
        for (distances, part) in parts {
            let sum = terms.entry(distances).or_default();
            *sum = sum.checked_add(part)?;
        }
    }
    let (mut lower, mut upper) = (0_i128, 0_i128);
    for (distances, coefficient) in terms {
        let width = |product: i128, v: &&Variable| {
            product.checked_mul(i128::from(v.max) - i128::from(v.min))
        };
        let end = distances.iter().try_fold(coefficient, width)?;
        // A constant is part of both bounds.
        let is_fixed = distances.is_empty();
        lower = lower.checked_add(if is_fixed { end } else { end.min(0) })?;
        upper = upper.checked_add(if is_fixed { end } else { end.max(0) })?;
    }
    Some((lower, upper))
}

impl Term {
    /// The factor 1.
    fn one() -> Term {
        Term { factors: Vec::new(), coefficient: 1 }
    }

    /// Returns how often the variable is a factor.
    fn degree(&self, variable: &Variable) -> usize {
        self.factors.iter().filter(|factor| ***factor == *variable).count()
    }

    fn range(&self) -> (i128, i128) {
        let mut range = (i128::from(self.coefficient), i128::from(self.coefficient));
        for variable in &self.factors {
            let (min, max) = (i128::from(variable.min), i128::from(variable.max));
            let ends =
                [range.0, range.1].map(|end| (end.saturating_mul(min), end.saturating_mul(max)));
            let ordered = ends.map(|(a, b)| (a.min(b), a.max(b)));
            range = (ordered[0].0.min(ordered[1].0), ordered[0].1.max(ordered[1].1));
        }
        range
    }

    /// Divides this product by another, if the quotient is exact.
    fn over(&self, divisor: &Term) -> Option<Term> {
        if self.coefficient.checked_rem(divisor.coefficient)? != 0 {
            return None;
        }
        let mut factors = self.factors.clone();
        for factor in &divisor.factors {
            factors.remove(factors.iter().position(|candidate| candidate == factor)?);
        }
        Some(Term { factors, coefficient: self.coefficient / divisor.coefficient })
    }
}

/// Higher degree first, then by the variables.
fn order(left: &[Arc<Variable>], right: &[Arc<Variable>]) -> Ordering {
    right.len().cmp(&left.len()).then_with(|| left.cmp(right))
}

impl Dim for SInt {
    fn number(value: i64) -> SInt {
        let term = Term { factors: Vec::new(), coefficient: value };
        SInt { terms: if value == 0 { Vec::new() } else { vec![term] } }
    }

    fn as_number(&self) -> Option<i64> {
        match &self.terms[..] {
            [] => Some(0),
            [term] if term.factors.is_empty() => Some(term.coefficient),
            _ => None,
        }
    }

    fn plus(&self, other: &SInt) -> Option<SInt> {
        if let Some((x, y)) = self.numbers(other) {
            return x.checked_add(y).map(SInt::number);
        }
        self.add_times(other, &Term::one(), 1)?.fitting()
    }

    fn minus(&self, other: &SInt) -> Option<SInt> {
        if let Some((x, y)) = self.numbers(other) {
            return x.checked_sub(y).map(SInt::number);
        }
        self.add_times(other, &Term::one(), -1)?.fitting()
    }

    fn times(&self, other: &SInt) -> Option<SInt> {
        if let Some((x, y)) = self.numbers(other) {
            return x.checked_mul(y).map(SInt::number);
        }
        let mut products = self.terms.iter();
        products.try_fold(SInt::number(0), |sum, term| sum.add_times(other, term, 1))?.fitting()
    }

    fn div_rem(&self, divisor: &SInt) -> Option<(SInt, SInt)> {
        if let Some((x, y)) = self.numbers(divisor) {
            let (quotient, rest) = (x.checked_div_euclid(y)?, x.checked_rem_euclid(y)?);
            return Some((SInt::number(quotient), SInt::number(rest)));
        }
        let is_remainder = |rest: &SInt| SInt::number(0).at_most(rest) && rest.below(divisor);
        if is_remainder(self) {
            return Some((SInt::number(0), self.clone()));
        }
        let (quotient, rest) = self.divided(divisor)?;
        // Polynomial division is off by one if the remainder is negative or too large.
        [0, -1, 1].into_iter().find_map(|correction| {
            let quotient = quotient.plus(&SInt::number(correction))?;
            let rest = rest.minus(&divisor.times(&SInt::number(correction))?)?;
            is_remainder(&rest).then_some((quotient, rest))
        })
    }

    fn at_most(&self, other: &SInt) -> bool {
        if let Some((x, y)) = self.numbers(other) {
            return x <= y;
        }
        let difference = other.add_times(self, &Term::one(), -1);
        difference.is_some_and(|difference| difference.range().0 >= 0)
    }
}

impl DimAlgebra<SInt> for UopAlgebra {
    fn dim(&mut self, value: &SInt) -> UOp {
        value.to_uop(self.dtype)
    }
}

impl From<i64> for SInt {
    fn from(value: i64) -> SInt {
        SInt::number(value)
    }
}

impl TryFrom<&UOp> for SInt {
    type Error = NotASize;

    fn try_from(node: &UOp) -> Result<SInt, NotASize> {
        let order = node.toposort();
        let mut sizes: FxHashMap<&UOp, SInt> = FxHashMap::default();
        for node in &order {
            let sources: Vec<&SInt> = node.src().iter().map(|source| &sizes[source]).collect();
            let size = match (node.op(), node.arg(), &sources[..]) {
                (_, Arg::Const(value), _) => {
                    value.to_int().and_then(|value| i64::try_from(value).ok()).map(SInt::number)
                }
                (_, Arg::Var(variable), _) => Some(SInt::variable(variable.clone())),
                (Op::Add, _, [x, y]) => x.plus(y),
                (Op::Sub, _, [x, y]) => x.minus(y),
                (Op::Mul, _, [x, y]) => x.times(y),
                (Op::Neg, _, [x]) => SInt::number(0).minus(x),
                _ => None,
            };
            let size = size.filter(|size| is_within(size, node.dtype()));
            sizes.insert(node, size.ok_or(NotASize { op: node.op() })?);
        }
        sizes.remove(node).ok_or(NotASize { op: node.op() })
    }
}

/// Returns whether all values of the polynomial are values of an integer dtype, so that a node of
/// this dtype never wraps.
fn is_within(size: &SInt, dtype: DType) -> bool {
    let ((low, high), range) = (size.range(), dtype.int_range());
    dtype.is_int() && range.is_some_and(|(min, max)| min <= low && high <= max)
}

impl fmt::Display for SInt {
    /// `n*m*2+n-1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.terms.is_empty() {
            return write!(f, "0");
        }
        for (place, term) in self.terms.iter().enumerate() {
            let sign = match term.coefficient {
                ..0 => "-",
                _ if place > 0 => "+",
                _ => "",
            };
            let names: Vec<&str> = term.factors.iter().map(|v| v.name.as_str()).collect();
            match (term.coefficient.unsigned_abs(), names.is_empty()) {
                (number, true) => write!(f, "{sign}{number}")?,
                (1, _) => write!(f, "{sign}{}", names.join("*"))?,
                (number, _) => write!(f, "{sign}{}*{number}", names.join("*"))?,
            }
        }
        Ok(())
    }
}

impl fmt::Debug for SInt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::infix;
    use gradiff_view::ShapeTracker;

    fn var(name: &str, min: i64, max: i64) -> SInt {
        SInt::variable(Arc::new(Variable { name: name.to_string(), min, max }))
    }

    fn num(value: i64) -> SInt {
        SInt::number(value)
    }

    #[test]
    fn range_of_monotone_polynomial_is_exact() {
        let n = var("n", 2, 6);
        let power = |count: usize| (0..count).fold(num(1), |x, _| x.times(&n).unwrap());
        let rest = power(3).plus(&power(2)).unwrap().plus(&n.times(&num(2)).unwrap()).unwrap();
        let difference = power(4).minus(&rest).unwrap().plus(&num(1)).unwrap();
        assert_eq!(difference.range(), (1, 1033));
        assert!(rest.minus(&num(1)).unwrap().at_most(&power(4)));
        // Two variables, one of which may be negative.
        let m = var("m", -3, 5);
        let mixed = power(2).minus(&n).unwrap().plus(&m.times(&m).unwrap()).unwrap();
        let values = (2..=6).flat_map(|n| (-3..=5).map(move |m| n * n - n + m * m));
        let (min, max) = (values.clone().min().unwrap(), values.max().unwrap());
        let (low, high) = mixed.range();
        assert!((-17..=min).contains(&low) && (max..=59).contains(&high), "{low} {high}");
    }

    #[test]
    fn equal_polynomials_are_equal_values() {
        let (n, m) = (var("n", 1, 9), var("m", 0, 5));
        let left = n.plus(&m).unwrap().times(&n.minus(&m).unwrap()).unwrap();
        let right = n.times(&n).unwrap().minus(&m.times(&m).unwrap()).unwrap();
        assert_eq!(left, right);
        assert_eq!(left.to_string(), "-m*m+n*n");
        assert_eq!(left.minus(&right).unwrap(), num(0));
        assert_eq!(left.bind(|v| if v.name == "n" { 7 } else { 2 }), 45);
        let node = left.to_uop(DType::I64);
        assert_eq!(SInt::try_from(&node).as_ref(), Ok(&left));
        assert_eq!(infix(&num(3).times(&n).unwrap().to_uop(DType::I32)), "(n*3)");
    }

    #[test]
    fn deep_and_shared_nodes_are_sizes() {
        let node = var("n", 0, 1).to_uop(DType::I64);
        let doubled = |node: UOp, _| UOp::binary(Op::Add, node.clone(), node);
        let many = (0..60).fold(node.clone(), doubled);
        assert_eq!(SInt::try_from(&many).ok(), var("n", 0, 1).times(&num(1 << 60)));
        let step = UOp::int(node.dtype(), 1);
        let deep = (0..100_000).fold(node, |sum, _| UOp::binary(Op::Add, sum, step.clone()));
        assert_eq!(SInt::try_from(&deep).ok(), var("n", 0, 1).plus(&num(100_000)));
    }

    #[test]
    fn nodes_that_may_wrap_are_not_sizes() {
        let node = |dtype| var("n", 0, 65536).to_uop(dtype);
        let square = |dtype| UOp::binary(Op::Mul, node(dtype), node(dtype));
        assert_eq!(SInt::try_from(&square(DType::I32)), Err(NotASize { op: Op::Mul }));
        assert!(SInt::try_from(&square(DType::I64)).is_ok());
        let rest = |dtype| UOp::binary(Op::Sub, UOp::int(dtype, 3), node(dtype));
        assert_eq!(SInt::try_from(&rest(DType::U32)), Err(NotASize { op: Op::Sub }));
        assert!(SInt::try_from(&rest(DType::I32)).is_ok());
        let wide = SInt::try_from(&node(DType::I16));
        assert_eq!(wide, Err(NotASize { op: Op::DefineVar }));
        let truth = UOp::constant(crate::Constant::bool(true));
        assert_eq!(SInt::try_from(&truth), Err(NotASize { op: Op::Const }));
    }

    #[test]
    fn comparisons_are_proven_from_ranges() {
        let (n, m) = (var("n", 2, 9), var("m", 0, 5));
        assert!(num(2).at_most(&n));
        assert!(!num(3).at_most(&n));
        assert_eq!(n.compare(&num(1)), Some(Ordering::Greater));
        assert_eq!(n.compare(&m), None);
        // n*m + n <= n*6, exactly at the corner m = 5.
        let product = n.times(&m).unwrap().plus(&n).unwrap();
        assert!(product.at_most(&n.times(&num(6)).unwrap()));
        assert_eq!(product.range(), (2, 54));
        // n*n*m <= n*n*5, exactly where m = 5.
        let square = n.times(&n).unwrap();
        let less = square.times(&num(5)).unwrap().minus(&square.times(&m).unwrap()).unwrap();
        assert_eq!(less.range(), (0, 405));
        assert_eq!(var("k", 4, 4), num(4));
        assert!(var("k", 0, i64::MAX).plus(&num(1)).is_none());
    }

    #[test]
    fn division_is_exact_or_unknown() {
        let (n, m) = (var("n", 1, 9), var("m", 0, 5));
        let product = n.times(&m).unwrap();
        assert_eq!(product.div_rem(&n), Some((m.clone(), num(0))));
        let before = product.minus(&num(1)).unwrap();
        let expected = (m.minus(&num(1)).unwrap(), n.minus(&num(1)).unwrap());
        assert_eq!(before.div_rem(&n), Some(expected));
        let four = n.times(&num(4)).unwrap().plus(&num(7)).unwrap();
        assert_eq!(four.div_rem(&num(4)), Some((n.plus(&num(1)).unwrap(), num(3))));
        assert_eq!(n.div_rem(&num(4)), None);
        assert_eq!(m.div_rem(&num(6)), Some((num(0), m.clone())));
    }

    #[test]
    fn symbolic_reshape_and_index() {
        let n = var("n", 1, 9);
        let rows = n.times(&num(6)).unwrap();
        let tracker = ShapeTracker::from_shape(&[rows.clone(), num(4)]).unwrap();
        let moved = tracker.reshape(&[n.clone(), num(2), num(3), num(4)]).unwrap();
        let moved =
            moved.permute(&[2, 0, 1, 3]).unwrap().reshape(&[num(3), num(8).times(&n).unwrap()]);
        let moved = moved.unwrap();
        assert_eq!(moved.views().len(), 2);
        let back = moved.reshape(&[num(3), n.clone(), num(2), num(4)]).unwrap();
        let back = back.permute(&[1, 2, 0, 3]).unwrap().reshape(&[rows, num(4)]).unwrap();
        assert!(back.simplify().is_contiguous(), "{}", back.simplify());
        let flipped = tracker.flip(&[true, false]).unwrap();
        let ranges = [var("i", 0, 53).to_uop(DType::I32), var("j", 0, 3).to_uop(DType::I32)];
        let (index, valid) = flipped.index(&mut UopAlgebra { dtype: DType::I32 }, &ranges);
        assert_eq!(infix(&index), "(((i*-4)+j)+((n*24)+-4))");
        assert_eq!(valid, None);
    }
}
