//! What sizes, strides and offsets are made of: a plain number, or an expression over variables of
//! known range.
//!
//! Views decide by what is proven for all values of the variables. Unproven is never taken for
//! false: an operation that needs the answer is refused, or adds a view.

use std::cmp::Ordering;
use std::fmt::{Debug, Display};
use std::hash::Hash;

use smallvec::SmallVec;

/// One number per axis.
pub(crate) type Sizes<D> = SmallVec<[D; 4]>;
/// A half-open (begin, end) per axis.
pub(crate) type Mask<D> = SmallVec<[(D, D); 4]>;

/// A size, stride or index. `i64` is the plain one; symbolic ones are expressions over variables,
/// and equal only where they are the same number for all values of these.
///
/// Arithmetic answers `None` where a result may not fit in an `i64`.
pub trait Dim: Clone + Eq + Ord + Hash + Debug + Display {
    /// A plain number.
    fn number(value: i64) -> Self;
    /// The number that this is for all values of the variables.
    fn as_number(&self) -> Option<i64>;
    /// `self + other`.
    fn plus(&self, other: &Self) -> Option<Self>;
    /// `self - other`.
    fn minus(&self, other: &Self) -> Option<Self>;
    /// `self * other`.
    fn times(&self, other: &Self) -> Option<Self>;
    /// Quotient and remainder of flooring division by `divisor` > 0; `None` where no expression of
    /// this kind is proven to be them.
    fn div_rem(&self, divisor: &Self) -> Option<(Self, Self)>;
    /// Whether `self <= other` is proven.
    fn at_most(&self, other: &Self) -> bool;

    /// Whether this is the number `value` for all values of the variables.
    fn is(&self, value: i64) -> bool {
        self.as_number() == Some(value)
    }

    /// Whether `self < other` is proven.
    fn below(&self, other: &Self) -> bool {
        self.plus(&Self::number(1)).is_some_and(|next| next.at_most(other))
    }

    /// How the two compare, where that is the same for all values of the variables.
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

    /// Whether this is negative: false where `0 <= self` is proven, true where `self <= 0` is.
    fn is_down(&self) -> Option<bool> {
        let zero = Self::number(0);
        if zero.at_most(self) { Some(false) } else { self.at_most(&zero).then_some(true) }
    }

    /// Copies a slice; a type that is plain memory says how faster.
    fn copied(slice: &[Self]) -> SmallVec<[Self; 4]> {
        slice.iter().cloned().collect()
    }

    /// Copies pairs; a type that is plain memory says how faster.
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
        // The divisor is positive: no division by 0 or -1. Both come of one division.
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
        // Collecting goes element by element; this is one copy.
        SmallVec::from_slice(slice)
    }

    #[inline]
    fn copied_pairs(slice: &[(i64, i64)]) -> SmallVec<[(i64, i64); 4]> {
        SmallVec::from_slice(slice)
    }
}

/// `sum + factor * by`.
pub(crate) fn add_product<D: Dim>(sum: &D, factor: &D, by: &D) -> Option<D> {
    if factor.is(0) || by.is(0) {
        return Some(sum.clone());
    }
    sum.plus(&factor.times(by)?)
}

/// Zeros, one per axis.
pub(crate) fn zeros<D: Dim>(rank: usize) -> Sizes<D> {
    match rank {
        0..=4 => SmallVec::from_buf_and_len(std::array::from_fn(|_| D::number(0)), rank),
        _ => SmallVec::from_elem(D::number(0), rank),
    }
}

/// The smaller of the two, where it is told.
pub(crate) fn least<D: Dim>(left: D, right: D) -> Option<D> {
    Some(if left.compare(&right)? == Ordering::Greater { right } else { left })
}

/// The larger of the two, where it is told.
pub(crate) fn most<D: Dim>(left: D, right: D) -> Option<D> {
    Some(if left.compare(&right)? == Ordering::Less { right } else { left })
}
