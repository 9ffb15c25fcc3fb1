//! The errors of this crate.

use std::fmt::Display;

/// A refused request: what was asked, and what is allowed, with numbers. Shapes and arguments are
/// kept as text. For sizes with variables, each condition must be proven.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A shape has a size that is, or may be, negative.
    #[error("shape {shape}: sizes must be 0 or more")]
    NegativeSize {
        /// The refused shape.
        shape: String,
    },
    /// A size that is 0 for some values of its variables, but not for all.
    #[error("shape {shape}: each size must be 0, or 1 or more, for all values of its variables")]
    MaybeEmpty {
        /// The refused shape.
        shape: String,
    },
    /// The product of the sizes that are not 0, or an index, does not fit in an `i64`.
    #[error("shape {shape}: the product of its nonzero sizes, or its indices, exceed 2^63 - 1")]
    TooLarge {
        /// The refused shape.
        shape: String,
    },
    /// `reshape` to another number of elements.
    #[error("reshape {from} to {to}: {have} elements cannot become {want}")]
    Reshape {
        /// The current shape.
        from: String,
        /// The requested shape.
        to: String,
        /// The current number of elements.
        have: String,
        /// The requested number of elements.
        want: String,
    },
    /// `permute` by something other than a permutation.
    #[error("permute {shape} by {axes:?}: each axis from 0 up to the rank {rank} must appear once")]
    Permute {
        /// The current shape.
        shape: String,
        /// Its rank.
        rank: usize,
        /// The refused order.
        axes: Vec<usize>,
    },
    /// `expand` of an axis that is neither 1 nor equal, or to another rank.
    #[error("expand {from} to {to}: ranks must agree and only axes of size 1 can grow")]
    Expand {
        /// The current shape.
        from: String,
        /// The requested shape.
        to: String,
    },
    /// `pad` by a negative amount, or with another rank.
    #[error("pad {shape} by {amounts}: one (before, after) pair per axis, each 0 or more")]
    Pad {
        /// The current shape.
        shape: String,
        /// The refused amounts.
        amounts: String,
    },
    /// `shrink` to bounds outside the shape, or with another rank.
    #[error("shrink {shape} to {bounds}: one (begin, end) per axis, 0 <= begin <= end <= size")]
    Shrink {
        /// The current shape.
        shape: String,
        /// The refused bounds.
        bounds: String,
    },
    /// `flip` with another rank.
    #[error("flip {shape} by {axes:?}: one flag per axis")]
    Flip {
        /// The current shape.
        shape: String,
        /// The refused flags.
        axes: Vec<bool>,
    },
    /// A view whose strides or mask do not fit its shape.
    #[error("view of {shape}: one stride and one mask pair per axis, 0 <= begin and end <= size")]
    View {
        /// The shape of the refused view.
        shape: String,
    },
    /// A chain of views, one of which reads, or may read, elements that the view below does not
    /// have.
    #[error("views do not stack: one reads elements {low} to {high}, the one below has {size}")]
    Stack {
        /// The lowest element read.
        low: String,
        /// The highest element read.
        high: String,
        /// The number of elements of the view below.
        size: String,
    },
    /// An operation that depends on a comparison which the ranges of the variables do not decide; a
    /// tracker adds another view instead.
    #[error("{operation} of {shape}: depends on sizes that cannot be compared for all values")]
    Undecided {
        /// The operation.
        operation: &'static str,
        /// The current shape.
        shape: String,
    },
    /// A tracker without views.
    #[error("a shape tracker needs at least one view")]
    NoViews,
}

/// Formats a list: `[2, 3]`.
pub(crate) fn list<T: Display>(items: &[T]) -> String {
    let items: Vec<String> = items.iter().map(T::to_string).collect();
    format!("[{}]", items.join(", "))
}

/// Formats a list of pairs: `[(0, 2), (1, 3)]`.
pub(crate) fn pairs<T: Display>(pairs: &[(T, T)]) -> String {
    let items: Vec<String> = pairs.iter().map(|(begin, end)| format!("({begin}, {end})")).collect();
    format!("[{}]", items.join(", "))
}
