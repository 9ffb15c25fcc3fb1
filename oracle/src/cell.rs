//! One element of a value: what every legal computation of it may give. Knows no op.

use gradiff_corpus::DType;

use crate::format::{decode, encode, is_nan_bits, lowest_bit};

/// Why no value can be demanded of an element.
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
    /// A decision hangs on the sign of a zero, which is free.
    ZeroSign,
    /// The bits of a number that is known only within bounds, or of a computed NaN.
    InexactBits,
    /// The error bound is as large as the number, or larger than any.
    Unbounded,
}

impl Reason {
    /// All of them.
    pub const ALL: [Reason; 8] = [
        Reason::DivisionByZero,
        Reason::ShiftOutOfRange,
        Reason::CastOutOfRange,
        Reason::Overflow,
        Reason::Straddle,
        Reason::ZeroSign,
        Reason::InexactBits,
        Reason::Unbounded,
    ];

    /// A stable word for reports: `division-by-zero`, `straddle`, ...
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
        }
    }

    /// Whether the program itself is undefined there, as opposed to merely not pinned down.
    pub fn is_undefined(self) -> bool {
        matches!(self, Reason::DivisionByZero | Reason::ShiftOutOfRange | Reason::CastOutOfRange)
    }
}

/// An element within the evaluator.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Cell {
    /// A bool or integer: its bit pattern, zero-extended.
    Int(u64),
    /// A finite float within bounds.
    Real(Real),
    /// An infinity; `overflowed` if a wider intermediate would have stayed finite.
    Inf { negative: bool, overflowed: bool },
    /// A NaN: of these bits if it is data moved untouched, else of any.
    Nan(Option<u64>),
    /// Nothing is known.
    Unspecified(Reason),
}

/// How a number came about, as far as it may be computed in another order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chain {
    /// Neither a sum nor a product, or one that may not be taken apart.
    Leaf,
    /// A sum of `terms` numbers.
    Sum,
    /// A product of `terms` numbers.
    Product,
}

/// A finite float: the number that real arithmetic gives, and how far legal ones may be off.
///
/// `hi + lo` is the number (`lo` is used for f64 only); `radius` 0 means that every legal
/// computation gives exactly `hi`. For a chain of `terms` numbers, `mass` and `low` bound what
/// other orders can meet on the way: sums: the sum of magnitudes, and the exponent of a common
/// grid; products: the product of the magnitudes above 1, and the exponent of that of those below.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Real {
    pub(crate) hi: f64,
    pub(crate) lo: f64,
    pub(crate) radius: f64,
    pub(crate) mass: f64,
    pub(crate) terms: u32,
    /// Of a sum: how many numbers were added up, zeros among them.
    pub(crate) cells: u32,
    /// Of a sum: the most roundings that a term passes through.
    pub(crate) depth: u32,
    pub(crate) low: i16,
    pub(crate) chain: Chain,
    /// The number is an exact zero whose sign may be either.
    pub(crate) sign_free: bool,
}

impl Real {
    /// A number that every legal computation gives.
    pub(crate) fn exact(value: f64) -> Real {
        Real::ball(value, 0.0, 0.0)
    }

    /// A number known within `radius`.
    pub(crate) fn ball(hi: f64, lo: f64, radius: f64) -> Real {
        let chain = Chain::Leaf;
        let (terms, cells, depth) = (1, 1, 0);
        Real { hi, lo, radius, mass: 0.0, terms, cells, depth, low: 0, chain, sign_free: false }
    }

    /// The same bounds, no longer to be taken apart.
    pub(crate) fn leaf(self) -> Real {
        Real { mass: 0.0, terms: 1, cells: 1, depth: 0, low: 0, chain: Chain::Leaf, ..self }
    }

    pub(crate) fn is_exact(&self) -> bool {
        self.radius == 0.0
    }

    /// Whether it is exactly zero, of whatever sign.
    pub(crate) fn is_zero(&self) -> bool {
        self.hi == 0.0 && self.radius == 0.0
    }

    /// The largest magnitude within the bounds, rounded up.
    pub(crate) fn magnitude(&self) -> f64 {
        if self.radius == 0.0 {
            return self.hi.abs();
        }
        (self.hi.abs() + (self.lo.abs() + self.radius)).next_up()
    }

    /// The least number within the bounds, rounded down.
    pub(crate) fn least(&self) -> f64 {
        if self.radius == 0.0 {
            return self.hi;
        }
        (self.hi - (self.lo.abs() + self.radius).next_up()).next_down()
    }

    /// The largest number within the bounds, rounded up.
    pub(crate) fn most(&self) -> f64 {
        if self.radius == 0.0 {
            return self.hi;
        }
        (self.hi + (self.lo.abs() + self.radius).next_up()).next_up()
    }

    /// Whether zero lies within the bounds.
    pub(crate) fn may_be_zero(&self) -> bool {
        self.least() <= 0.0 && 0.0 <= self.most()
    }

    /// Whether it is negative, if all within the bounds agree; zeros of a known sign do.
    pub(crate) fn sign(&self) -> Option<bool> {
        let unknown = self.sign_free || (!self.is_exact() && self.may_be_zero());
        (!unknown).then(|| self.hi.is_sign_negative())
    }

    /// Exponent of the grid it lies on, as a term of a sum; large for zero.
    pub(crate) fn grid(&self) -> i16 {
        if self.chain == Chain::Sum {
            self.low
        } else {
            lowest_bit(self.hi).map_or(i16::MAX, |exponent| exponent as i16)
        }
    }
}

impl Cell {
    /// The element of this bit pattern.
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

    /// A float that every legal computation gives.
    pub(crate) fn exact(value: f64) -> Cell {
        Cell::Real(Real::exact(value))
    }

    /// A true infinity: not a number that grew too large.
    pub(crate) fn infinity(negative: bool) -> Cell {
        Cell::Inf { negative, overflowed: false }
    }

    /// An exact zero whose sign is `negative`, or free.
    pub(crate) fn zero(negative: Option<bool>) -> Cell {
        let value = if negative == Some(true) { -0.0 } else { 0.0 };
        Cell::Real(Real { sign_free: negative.is_none(), ..Real::exact(value) })
    }

    /// A computed NaN.
    pub(crate) fn nan() -> Cell {
        Cell::Nan(None)
    }

    pub(crate) fn bool(value: bool) -> Cell {
        Cell::Int(value.into())
    }

    /// The bit pattern, if every legal computation gives the same.
    pub(crate) fn bits(&self, dtype: DType) -> Option<u64> {
        match self {
            Cell::Int(bits) => Some(*bits),
            Cell::Real(real) if real.is_exact() && !real.sign_free => Some(encode(dtype, real.hi)),
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
        assert!(real.least() < 1.0 && 1.0 < real.most() && real.magnitude() > 1.0);
        assert_eq!(Real::exact(-0.0).sign(), Some(true));
        assert_eq!(Real::ball(1.0, 0.0, 2.0).sign(), None);
    }
}
