//! The six movement ops as plain data.

/// One movement op with its arguments; [`crate::ShapeTracker::apply`] carries it out.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Movement {
    /// The same elements in row-major order under another shape.
    Reshape(Vec<i64>),
    /// Axis `i` of the result is axis `order[i]` of the source.
    Permute(Vec<usize>),
    /// Repeats axes of size 1; the result's shape.
    Expand(Vec<i64>),
    /// Zeros (before, after) each axis.
    Pad(Vec<(i64, i64)>),
    /// The half-open (begin, end) kept of each axis.
    Shrink(Vec<(i64, i64)>),
    /// Whether each axis is turned around.
    Flip(Vec<bool>),
}
