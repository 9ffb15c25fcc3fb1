//! The errors of this crate.

use gradiff_graph::Op;

/// A reason why a graph cannot be scheduled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A node that is not of tensor level.
    #[error("schedule: a `{0}` node, which is not of tensor level")]
    NotTensorLevel(Op),
    /// A value that is too large for a buffer, or, where it is only reduced, for a view.
    #[error("schedule: {elements} elements of shape {shape:?}; at most {limit} are allowed")]
    TooLarge {
        /// The sizes of its axes.
        shape: Vec<i64>,
        /// The product of the sizes that are not 0.
        elements: i64,
        /// The maximum number of elements of a buffer or of a view.
        limit: i64,
    },
    /// The sources of a node are on different devices.
    #[error(
        "{op} of tensors on {first} and {second}: copy one to the device of the other, as with \
         `.to(\"{first}\")`"
    )]
    Devices {
        /// The op of the node.
        op: Op,
        /// The device of a source.
        first: &'static str,
        /// The device of another source.
        second: &'static str,
    },
    /// A movement op with an argument that does not fit its source.
    #[error("schedule: {0}")]
    Movement(String),
}
