//! What a schedule can refuse.

use gradiff_graph::Op;

/// Why there is no schedule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A node that no tensor is made of.
    #[error("schedule: a `{0}` node, which no tensor is made of")]
    NotTensorLevel(Op),
    /// A value that would need more memory than any machine here has.
    #[error("schedule: {elements} elements of shape {shape:?}; a buffer holds at most {limit}")]
    TooLarge {
        /// Sizes of its axes.
        shape: Vec<i64>,
        /// The product of those that are not 0.
        elements: i64,
        /// The limit.
        limit: i64,
    },
    /// A movement op with an argument that does not fit its source.
    #[error("schedule: {0}")]
    Movement(String),
}
