//! An element of a value, as the set of results of its legal computations. Knows no op.

use gradiff_corpus::DType;

use crate::format::{decode, encode, is_nan_bits, lowest_bit};

/// The reason why an element is unspecified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// An integer was divided by zero: undefined.
    DivisionByZero,
    /// A shift by less than 0 or by the width or more: undefined.
    ShiftOutOfRange,
    /// A float outside the integer dtype, or NaN, was cast to it: undefined.
    CastOutOfRange,
    /// Legal computations differ in whether the number overflows.
    Overflow,
    /// A decision (comparison, cast to int or bool, pole) falls within the error bound.
    Straddle,
    /// A decision depends on the sign of a zero, which is free.
    ZeroSign,
    /// The element depends on the bits of an inexact number or of a computed NaN.
    InexactBits,
    /// The error bound is too large to say anything, or infinite.
    Unbounded,
    /// A derivative on the way is infinite or undefined.
    Derivative,
    /// A zero that may be multiplied or left out meets an infinity or a NaN.
    OptionalZero,
}

impl Reason {
    /// All reasons.
    pub const ALL: [Reason; 10] = [
        Reason::DivisionByZero,
        Reason::ShiftOutOfRange,
        Reason::CastOutOfRange,
        Reason::Overflow,
        Reason::Straddle,
        Reason::ZeroSign,
        Reason::InexactBits,
        Reason::Unbounded,
        Reason::Derivative,
        Reason::OptionalZero,
    ];

    /// Returns the name in reports, which is stable: `division-by-zero`, `straddle`, ...
    pub fn name(self) -> &'static str {
        match self {
            Reason::DivisionByZero => "division-by-zero",
            Reason::ShiftOutOfRange => "shift-out-of-range",
            Reason::CastOutOfRange => "cast-out-of-range",
            Reason::Overflow => "overflow",
            Reason::Straddle => "straddle",
            Reason::ZeroSign => "zero-sign",
            Reason::InexactBits => "inexact-bits",
            Reason::Unbounded => "unbounded",
            Reason::Derivative => "derivative",
            Reason::OptionalZero => "optional-zero",
        }
    }

    /// Returns whether the program has undefined behaviour there, as opposed to a result that the
    /// bounds do not determine.
    pub fn is_undefined(self) -> bool {
        matches!(self, Reason::DivisionByZero | Reason::ShiftOutOfRange | Reason::CastOutOfRange)
    }
}

/// An element in the evaluator.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Cell {
    /// A bool or integer: its bit pattern, zero-extended.
    Int(u64),
    /// A finite float within bounds.
    Real(Real),
    /// An infinity; `overflowed` if it would have stayed finite in a wider intermediate type.
    Inf { negative: bool, overflowed: bool },
    /// A NaN: with these bits if it is unchanged data, else with any.
    Nan(Option<u64>),
    /// Any value.
    Unspecified(Reason),
}

/// The kind of op that computes a number, as far as the op may be reordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chain {
    /// Neither a sum nor a product, or one that must not be reordered.
    Leaf,
    /// A sum of `terms` numbers; `is_aligned` if all are on the same side of 0.
    Sum { is_aligned: bool },
    /// A product of `terms` numbers.
    Product,
}

/// A finite float: the result of real arithmetic, and a bound of the error of legal computations.
///
/// The result is `hi + lo` (`lo` is used for f64 only). A `radius` of 0 means that every legal
/// computation gives exactly `hi`. For a chain of `terms` numbers, `mass` and `low` bound the
/// intermediate results of other orders. For a sum, they are the sum of the magnitudes and the
/// exponent of a common grid; for a product, the product of the magnitudes above 1 and the exponent
/// of the product of those below 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Real {
    pub(crate) hi: f64,
    pub(crate) lo: f64,
    pub(crate) radius: f64,
    pub(crate) mass: f64,
    pub(crate) terms: u32,
    /// Number of terms of a sum, including zeros.
    pub(crate) cells: u32,
    /// Maximum number of additions that a term of a sum passes through; the number of factors of a
    /// product other than 1.
    pub(crate) depth: u32,
    pub(crate) low: i16,
    pub(crate) chain: Chain,
    /// The sign of the number if it is a zero: true for a minus; `None` if it may be either.
    pub(crate) zero_sign: Option<bool>,
}

impl Real {
    /// Creates a number that every legal computation gives.
    pub(crate) fn exact(value: f64) -> Real {
        Real { zero_sign: Some(value.is_sign_negative()), ..Real::ball(value, 0.0, 0.0) }
    }

    /// Creates a number with an error of at most `radius`; if it is a zero, of either sign.
    pub(crate) fn ball(hi: f64, lo: f64, radius: f64) -> Real {
        let chain = Chain::Leaf;
        let (terms, cells, depth) = (1, 1, 0);
        Real { hi, lo, radius, mass: 0.0, terms, cells, depth, low: 0, chain, zero_sign: None }
    }

    /// Creates a number from 0 to `upper`.
    pub(crate) fn up_to(upper: f64) -> Real {
        // A bound rounded outwards may be infinite, but the number is not.
        let upper = upper.min(f64::MAX);
        let half = upper / 2.0;
        let half = if half + half < upper { half.next_up() } else { half };
        Real::ball(half, 0.0, half)
    }

    /// Narrows the bounds of a number that no legal computation makes negative.
    pub(crate) fn not_negative(self) -> Real {
        let is_open = !self.is_exact() && self.lower() < 0.0;
        if !is_open {
            return self;
        }
        let Real { hi, lo, radius, .. } = Real::up_to(self.upper().max(0.0));
        Real { hi, lo, radius, ..self }
    }

    /// Returns the number with the same bounds as a leaf, which must not be reordered.
    pub(crate) fn leaf(self) -> Real {
        Real { mass: 0.0, terms: 1, cells: 1, depth: 0, low: 0, chain: Chain::Leaf, ..self }
    }

    /// Returns the maximum number of additions that the terms of the number pass through.
    pub(crate) fn additions(&self) -> u32 {
        if self.is_sum() { self.depth } else { 0 }
    }

    pub(crate) fn is_sum(&self) -> bool {
        matches!(self.chain, Chain::Sum { .. })
    }

    pub(crate) fn is_exact(&self) -> bool {
        self.radius == 0.0
    }

    /// Returns whether the number is exactly zero, of either sign.
    pub(crate) fn is_zero(&self) -> bool {
        self.hi == 0.0 && self.radius == 0.0
    }

    /// Returns whether the number is exactly zero, whose sign may be either.
    pub(crate) fn is_sign_free(&self) -> bool {
        self.is_zero() && self.zero_sign.is_none()
    }

    /// Returns the largest magnitude within the bounds, rounded up.
    pub(crate) fn magnitude(&self) -> f64 {
        if self.radius == 0.0 {
            return self.hi.abs();
        }
        (self.hi.abs() + (self.lo.abs() + self.radius)).next_up()
    }

    /// Returns the smallest number within the bounds, rounded down.
    pub(crate) fn lower(&self) -> f64 {
        if self.radius == 0.0 {
            return self.hi;
        }
        // The difference is exact: rounded down, 0 would be a negative number.
        if self.radius == self.hi && self.lo == 0.0 {
            return 0.0;
        }
        (self.hi - (self.lo.abs() + self.radius).next_up()).next_down()
    }

    /// Returns the largest number within the bounds, rounded up.
    pub(crate) fn upper(&self) -> f64 {
        if self.radius == 0.0 {
            return self.hi;
        }
        if self.radius == -self.hi && self.lo == 0.0 {
            return 0.0;
        }
        (self.hi + (self.lo.abs() + self.radius).next_up()).next_up()
    }

    /// Returns whether zero is within the bounds.
    pub(crate) fn may_be_zero(&self) -> bool {
        self.lower() <= 0.0 && 0.0 <= self.upper()
    }

    /// Returns whether the number is negative, be it a zero or not; `None` if the bounds, or a zero
    /// of free sign, allow both.
    pub(crate) fn sign(&self) -> Option<bool> {
        if !self.may_be_zero() {
            return Some(self.hi.is_sign_negative());
        }
        let is_on_side = |negative: &bool| match *negative {
            true => self.upper() <= 0.0,
            false => 0.0 <= self.lower(),
        };
        self.zero_sign.filter(is_on_side)
    }

    /// Returns the side of 0 that no legal computation leaves, which is that of a zero, too: true
    /// for negative numbers. The sign of a zero is another question.
    pub(crate) fn side(&self) -> Option<bool> {
        if 0.0 <= self.lower() {
            return Some(false);
        }
        (self.upper() <= 0.0).then_some(true)
    }

    /// Returns the exponent of the grid of the number as a term of a sum; a large one for zero.
    pub(crate) fn grid(&self) -> i16 {
        if self.is_sum() {
            self.low
        } else {
            lowest_bit(self.hi).map_or(i16::MAX, |exponent| exponent as i16)
        }
    }
}

impl Cell {
    /// Returns whether this is -0.0, whatever is legal.
    pub(crate) fn is_negative_zero(&self) -> bool {
        matches!(self, Cell::Real(real) if real.is_zero() && real.zero_sign == Some(true))
    }

    /// Creates the element with this bit pattern.
    pub(crate) fn from_bits(dtype: DType, bits: u64) -> Cell {
        if !dtype.is_float() {
            return Cell::Int(bits);
        }
        if is_nan_bits(dtype, bits) {
            return Cell::Nan(Some(bits));
        }
        let value = decode(dtype, bits);
        if value.is_infinite() { Cell::infinity(value < 0.0) } else { Cell::exact(value) }
    }

    /// Creates a float that every legal computation gives.
    pub(crate) fn exact(value: f64) -> Cell {
        Cell::Real(Real::exact(value))
    }

    /// Creates a true infinity, as opposed to an overflow.
    pub(crate) fn infinity(negative: bool) -> Cell {
        Cell::Inf { negative, overflowed: false }
    }

    /// Creates an exact zero that is `negative` or, if `None`, has a free sign.
    pub(crate) fn zero(negative: Option<bool>) -> Cell {
        let value = if negative == Some(true) { -0.0 } else { 0.0 };
        Cell::Real(Real { zero_sign: negative, ..Real::exact(value) })
    }

    /// Narrows the bounds of a number that no legal computation makes negative.
    pub(crate) fn not_negative(self) -> Cell {
        if let Cell::Real(real) = self { Cell::Real(real.not_negative()) } else { self }
    }

    /// Narrows the bounds of a number that no legal computation gives a minus, be it a zero or not.
    pub(crate) fn positive(self) -> Cell {
        match self {
            Cell::Real(real) => Cell::Real(Real { zero_sign: Some(false), ..real.not_negative() }),
            cell => cell,
        }
    }

    /// Creates a computed NaN.
    pub(crate) fn nan() -> Cell {
        Cell::Nan(None)
    }

    pub(crate) fn bool(value: bool) -> Cell {
        Cell::Int(value.into())
    }

    /// Returns the bit pattern, if every legal computation gives the same.
    pub(crate) fn bits(&self, dtype: DType) -> Option<u64> {
        match self {
            Cell::Int(bits) => Some(*bits),
            Cell::Real(real) if real.is_exact() && !real.is_sign_free() => {
                Some(encode(dtype, real.hi))
            }
            Cell::Inf { negative, .. } => {
                Some(encode(dtype, if *negative { f64::NEG_INFINITY } else { f64::INFINITY }))
            }
            Cell::Nan(bits) => *bits,
            Cell::Real(_) | Cell::Unspecified(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cell_stays_small() {
        assert!(size_of::<Cell>() <= 48, "{}", size_of::<Cell>());
    }

    #[test]
    fn reason_names_differ() {
        let mut names: Vec<_> = Reason::ALL.iter().map(|reason| reason.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Reason::ALL.len());
    }

    #[test]
    fn bounds_are_outside_the_ball() {
        let real = Real::ball(1.0, 0.0, 2f64.powi(-54));
        assert!(real.lower() < 1.0 && 1.0 < real.upper() && real.magnitude() > 1.0);
        assert_eq!(Real::exact(-0.0).sign(), Some(true));
        assert_eq!(Real::ball(1.0, 0.0, 2.0).sign(), None);
    }

    #[test]
    fn sides_and_signs_of_numbers_that_may_be_zeros() {
        let real = Real::up_to(1e-40);
        assert_eq!((real.side(), real.sign()), (Some(false), None));
        let positive = Cell::Real(Real::ball(1e-41, 0.0, 1e-40)).positive();
        let Cell::Real(positive) = positive else { panic!("{positive:?}") };
        assert_eq!((positive.side(), positive.sign()), (Some(false), Some(false)));
        // A sign that the bounds do not have says nothing.
        let crossing = Real { zero_sign: Some(false), ..Real::ball(0.0, 0.0, 1.0) };
        assert_eq!((crossing.side(), crossing.sign()), (None, None));
    }
}
