//! What can be wrong with a kernel that is handed to this room.

/// Why a kernel could not be lowered or interpreted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The kernel is no tree of the form that the schedule promises, or no lowered form of one.
    #[error("not a kernel: {0}")]
    Malformed(String),
    /// More loops than this room can tell apart.
    #[error("a kernel of {0} loops: at most 64 are possible")]
    TooManyLoops(usize),
    /// An optimisation that this kernel does not allow, and why.
    #[error("{0}")]
    Illegal(String),
    /// An index that even 64 bits do not hold.
    #[error("an index of the kernel reaches {0}, beyond 64 bits")]
    IndexTooWide(i128),
    /// Arrays too large for the interpreter, which writes every value of every loop down.
    #[error("a value of {elements} elements: the interpreter takes at most {limit}")]
    TooLarge {
        /// How many elements the value has.
        elements: i128,
        /// How many the interpreter takes.
        limit: usize,
    },
    /// A place outside of an array was read or written.
    #[error("{what} element {index} of data{slot}, which has {size}")]
    OutOfBounds {
        /// `load` or `store`.
        what: &'static str,
        /// The array.
        slot: usize,
        /// The place.
        index: i128,
        /// How many elements the array has.
        size: usize,
    },
    /// A place was computed from an undefined value.
    #[error("{what} at an undefined element of data{slot}")]
    UndefinedIndex {
        /// `load` or `store`.
        what: &'static str,
        /// The array.
        slot: usize,
    },
}

/// The error for a kernel that is not what it should be.
pub(crate) fn malformed(what: impl Into<String>) -> Error {
    Error::Malformed(what.into())
}
