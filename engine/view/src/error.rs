//! What can be wrong with a movement: always what was asked and what is allowed.

/// A movement that its shape does not allow.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A negative size.
    #[error("size {size} of axis {axis} in {shape:?}: sizes are 0 or more")]
    NegativeSize {
        /// The sizes asked for.
        shape: Vec<i64>,
        /// Which axis.
        axis: usize,
        /// Its size.
        size: i64,
    },
    /// More elements, or positions further from the start, than 64 bits can count.
    #[error("shape {shape:?}: its positions do not fit 64 bits")]
    TooLarge {
        /// The sizes asked for.
        shape: Vec<i64>,
    },
    /// A reshape that would change the number of elements.
    #[error("reshape {from:?} to {to:?}: {} elements cannot become {}",
        from.iter().product::<i64>(), to.iter().product::<i64>())]
    Reshape {
        /// The sizes before.
        from: Vec<i64>,
        /// The sizes asked for.
        to: Vec<i64>,
    },
    /// An argument list of another length than the rank.
    #[error("{movement} of {shape:?}: {found} axes given, it has {}", shape.len())]
    Rank {
        /// The movement.
        movement: &'static str,
        /// The sizes before.
        shape: Vec<i64>,
        /// How many entries were given.
        found: usize,
    },
    /// Axes that are no permutation.
    #[error("permute {shape:?} by {axes:?}: each axis below {} is to be there once", shape.len())]
    Permute {
        /// The sizes before.
        shape: Vec<i64>,
        /// The axes asked for.
        axes: Vec<usize>,
    },
    /// An axis that is neither 1 nor the size asked for.
    #[error("expand {from:?} to {to:?}: axis {axis} is {}, only 1 can become {}",
        from[*axis], to[*axis])]
    Expand {
        /// The sizes before.
        from: Vec<i64>,
        /// The sizes asked for.
        to: Vec<i64>,
        /// The first axis that does not fit.
        axis: usize,
    },
    /// A negative count of padding.
    #[error("pad {shape:?} by {pads:?}: counts are 0 or more; use shrink to cut")]
    Pad {
        /// The sizes before.
        shape: Vec<i64>,
        /// The counts asked for.
        pads: Vec<(i64, i64)>,
    },
    /// A range that is not inside its axis.
    #[error("shrink {shape:?} to {ranges:?}: a range of axis {axis} is 0 <= start <= end <= {}",
        shape[*axis])]
    Shrink {
        /// The sizes before.
        shape: Vec<i64>,
        /// The ranges asked for.
        ranges: Vec<(i64, i64)>,
        /// The first axis that does not fit.
        axis: usize,
    },
}
