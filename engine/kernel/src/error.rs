//! The errors of this crate.

/// A reason why a kernel could not be lowered or interpreted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The graph is neither a kernel tree as the schedule makes them, nor a lowered form of one.
    #[error("not a kernel: {0}")]
    Malformed(String),
    /// More loops than a set of loops can hold: sets are the bits of a word.
    #[error("a kernel of {0} loops: at most 64 are possible")]
    TooManyLoops(usize),
    /// An optimisation that is illegal for this kernel, and the reason.
    #[error("{0}")]
    Illegal(String),
    /// An index that does not fit 64 bits.
    #[error("an index of the kernel reaches {0}, beyond 64 bits")]
    IndexTooWide(i128),
    /// Values too large for the interpreter, which holds the values of all iterations at once.
    #[error("a value of {elements} elements: the interpreter takes at most {limit}")]
    TooLarge {
        /// Number of elements of the value.
        elements: i128,
        /// Most elements that the interpreter takes.
        limit: usize,
    },
    /// An element outside of its array was read or written.
    #[error("{access} element {index} of data{slot}, which has {size}")]
    OutOfBounds {
        /// `load` or `store`.
        access: &'static str,
        /// The slot of the array.
        slot: usize,
        /// The index.
        index: i128,
        /// Number of elements of the array.
        size: usize,
    },
    /// An index was computed from an undefined value.
    #[error("{access} at an undefined element of data{slot}")]
    UndefinedIndex {
        /// `load` or `store`.
        access: &'static str,
        /// The slot of the array.
        slot: usize,
    },
}

/// Makes the error for a malformed kernel.
pub(crate) fn malformed(problem: impl Into<String>) -> Error {
    Error::Malformed(problem.into())
}
