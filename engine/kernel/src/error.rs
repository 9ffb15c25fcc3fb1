//! The errors of this crate.

/// A reason why a kernel could not be lowered.
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
}

/// Makes the error for a malformed kernel.
pub(crate) fn malformed(problem: impl Into<String>) -> Error {
    Error::Malformed(problem.into())
}
