//! The six movement ops as plain data.

/// One movement op with its arguments; [`crate::ShapeTracker::apply`] carries it out.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Movement<D = i64> {
    /// The same elements in row-major order under another shape.
    Reshape(Vec<D>),
    /// Axis `i` of the result is axis `order[i]` of the source.
    Permute(Vec<usize>),
    /// Repeats axes of size 1; the result's shape.
    Expand(Vec<D>),
    /// Zeros (before, after) each axis.
    Pad(Vec<(D, D)>),
    /// The half-open (begin, end) kept of each axis.
    Shrink(Vec<(D, D)>),
    /// Whether each axis is turned around.
    Flip(Vec<bool>),
}
