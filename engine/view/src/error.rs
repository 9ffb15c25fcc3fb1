//! What a caller can ask of a view that no view can give.

/// A refused request: what was asked, and what stands against it, with numbers.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A shape has a negative size.
    #[error("shape {shape:?}: sizes must be 0 or more")]
    NegativeSize {
        /// The refused shape.
        shape: Vec<i64>,
    },
    /// The number of elements, or an index into them, does not fit in an `i64`.
    #[error("shape {shape:?}: its element count or indices exceed 2^63 - 1")]
    TooLarge {
        /// The refused shape.
        shape: Vec<i64>,
    },
    /// `reshape` to another number of elements.
    #[error("reshape {from:?} to {to:?}: {have} elements cannot become {want}")]
    Reshape {
        /// The shape as it is.
        from: Vec<i64>,
        /// The shape asked for.
        to: Vec<i64>,
        /// Elements there are.
        have: i64,
        /// Elements asked for.
        want: i64,
    },
    /// `permute` by something other than each axis once.
    #[error(
        "permute {shape:?} by {axes:?}: each axis from 0 up to the rank {} must appear once",
        shape.len()
    )]
    Permute {
        /// The shape as it is.
        shape: Vec<i64>,
        /// The refused order.
        axes: Vec<usize>,
    },
    /// `expand` of an axis that is neither 1 nor equal, or to another rank.
    #[error("expand {from:?} to {to:?}: ranks must agree and only axes of size 1 can grow")]
    Expand {
        /// The shape as it is.
        from: Vec<i64>,
        /// The shape asked for.
        to: Vec<i64>,
    },
    /// `pad` by a negative amount, or with another rank.
    #[error("pad {shape:?} by {amounts:?}: one (before, after) pair per axis, each 0 or more")]
    Pad {
        /// The shape as it is.
        shape: Vec<i64>,
        /// The refused amounts.
        amounts: Vec<(i64, i64)>,
    },
    /// `shrink` to bounds outside the shape, or with another rank.
    #[error("shrink {shape:?} to {bounds:?}: one (begin, end) per axis, 0 <= begin <= end <= size")]
    Shrink {
        /// The shape as it is.
        shape: Vec<i64>,
        /// The refused bounds.
        bounds: Vec<(i64, i64)>,
    },
    /// `flip` with another rank.
    #[error("flip {shape:?} by {axes:?}: one flag per axis")]
    Flip {
        /// The shape as it is.
        shape: Vec<i64>,
        /// The refused flags.
        axes: Vec<bool>,
    },
    /// A view whose strides or mask do not fit its shape.
    #[error("view of {shape:?}: one stride and one mask pair per axis, 0 <= begin and end <= size")]
    View {
        /// The shape of the refused view.
        shape: Vec<i64>,
    },
    /// A chain of views in which one reads what the view below it does not have.
    #[error("views do not stack: one reads elements {low} to {high}, the one below has {size}")]
    Stack {
        /// The lowest element read.
        low: i64,
        /// The highest element read.
        high: i64,
        /// Elements of the view below.
        size: i64,
    },
    /// A tracker of no views.
    #[error("a shape tracker needs at least one view")]
    NoViews,
}
