//! The type of sizes, strides and offsets: a number, or an expression over variables of known
//! range.
//!
//! Views depend only on facts that are proven for all values of the variables. An unproven fact is
//! never taken for false: an operation that needs the answer is refused, or adds a view.

use std::cmp::Ordering;
use std::fmt::{Debug, Display};
use std::hash::Hash;

use smallvec::SmallVec;

/// One number per axis.
pub(crate) type Sizes<D> = SmallVec<[D; 4]>;
/// A half-open (begin, end) per axis.
pub(crate) type Mask<D> = SmallVec<[(D, D); 4]>;

/// A size, stride or index: an `i64`, or an expression over variables. Expressions are equal only
/// if they are the same number for all values of the variables.
///
/// Arithmetic returns `None` if a result may not fit in an `i64`.
pub trait Dim: Clone + Eq + Ord + Hash + Debug + Display {
    /// Makes a number.
    fn number(value: i64) -> Self;
    /// Returns the number, if this is the same number for all values of the variables.
    fn as_number(&self) -> Option<i64>;
    /// Returns `self + other`.
    fn plus(&self, other: &Self) -> Option<Self>;
    /// Returns `self - other`.
    fn minus(&self, other: &Self) -> Option<Self>;
    /// Returns `self * other`.
    fn times(&self, other: &Self) -> Option<Self>;
    /// Returns quotient and remainder of floor division by `divisor` > 0; `None` if they cannot be
    /// expressed, or are not proven.
    fn div_rem(&self, divisor: &Self) -> Option<(Self, Self)>;
    /// Returns whether `self <= other` is proven.
    fn at_most(&self, other: &Self) -> bool;

    /// Returns whether this is the number `value` for all values of the variables.
    fn is(&self, value: i64) -> bool {
        self.as_number() == Some(value)
    }

    /// Returns whether `self < other` is proven.
    fn below(&self, other: &Self) -> bool {
        self.plus(&Self::number(1)).is_some_and(|next| next.at_most(other))
    }

    /// Compares the two; `None` unless the result is the same for all values of the variables.
    fn compare(&self, other: &Self) -> Option<Ordering> {
        if self == other {
            Some(Ordering::Equal)
        } else if self.below(other) {
            Some(Ordering::Less)
        } else if other.below(self) {
            Some(Ordering::Greater)
        } else {
            None
        }
    }

    /// Returns whether a stride descends: false if `0 <= self` is proven, true if `self <= 0` is.
    fn is_descending(&self) -> Option<bool> {
        let zero = Self::number(0);
        if zero.at_most(self) { Some(false) } else { self.at_most(&zero).then_some(true) }
    }

    /// Copies a slice; overridden by types that can be copied as memory.
    fn copied(slice: &[Self]) -> SmallVec<[Self; 4]> {
        slice.iter().cloned().collect()
    }

    /// Copies pairs; overridden by types that can be copied as memory.
    fn copied_pairs(slice: &[(Self, Self)]) -> SmallVec<[(Self, Self); 4]> {
        slice.iter().cloned().collect()
    }
}

impl Dim for i64 {
    #[inline]
    fn number(value: i64) -> i64 {
        value
    }

    #[inline]
    fn as_number(&self) -> Option<i64> {
        Some(*self)
    }

    #[inline]
    fn plus(&self, other: &i64) -> Option<i64> {
        self.checked_add(*other)
    }

    #[inline]
    fn minus(&self, other: &i64) -> Option<i64> {
        self.checked_sub(*other)
    }

    #[inline]
    fn times(&self, other: &i64) -> Option<i64> {
        self.checked_mul(*other)
    }

    #[inline]
    fn div_rem(&self, divisor: &i64) -> Option<(i64, i64)> {
        // The divisor is positive, so neither division can fail; both are one instruction.
        let (quotient, rest) = (self / divisor, self % divisor);
        Some(if rest < 0 { (quotient - 1, rest + divisor) } else { (quotient, rest) })
    }

    #[inline]
    fn at_most(&self, other: &i64) -> bool {
        self <= other
    }

    #[inline]
    fn is(&self, value: i64) -> bool {
        *self == value
    }

    #[inline]
    fn below(&self, other: &i64) -> bool {
        self < other
    }

    #[inline]
    fn compare(&self, other: &i64) -> Option<Ordering> {
        Some(self.cmp(other))
    }

    #[inline]
    fn copied(slice: &[i64]) -> SmallVec<[i64; 4]> {
        // Collecting would copy element by element; this is one copy.
        SmallVec::from_slice(slice)
    }

    #[inline]
    fn copied_pairs(slice: &[(i64, i64)]) -> SmallVec<[(i64, i64); 4]> {
        SmallVec::from_slice(slice)
    }
}

/// Returns `sum + factor * by`.
pub(crate) fn add_product<D: Dim>(sum: &D, factor: &D, by: &D) -> Option<D> {
    if factor.is(0) || by.is(0) {
        return Some(sum.clone());
    }
    sum.plus(&factor.times(by)?)
}

/// Returns zeros, one per axis.
pub(crate) fn zeros<D: Dim>(rank: usize) -> Sizes<D> {
    match rank {
        0..=4 => SmallVec::from_buf_and_len(std::array::from_fn(|_| D::number(0)), rank),
        _ => SmallVec::from_elem(D::number(0), rank),
    }
}

/// Returns the smaller of the two, if that is decided for all values of the variables.
pub(crate) fn min<D: Dim>(left: D, right: D) -> Option<D> {
    Some(if left.compare(&right)? == Ordering::Greater { right } else { left })
}

/// Returns the larger of the two, if that is decided for all values of the variables.
pub(crate) fn max<D: Dim>(left: D, right: D) -> Option<D> {
    Some(if left.compare(&right)? == Ordering::Less { right } else { left })
}
