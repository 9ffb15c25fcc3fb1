//! The six movement ops as plain data.

/// A movement op with its arguments; see [`crate::ShapeTracker::apply`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Movement<D = i64> {
    /// The same elements in row-major order, in this shape.
    Reshape(Vec<D>),
    /// Axis `i` of the result is axis `order[i]` of the source.
    Permute(Vec<usize>),
    /// Axes of size 1 are repeated so that the shape becomes this one.
    Expand(Vec<D>),
    /// Zeros are added before and after each axis: the counts (before, after).
    Pad(Vec<(D, D)>),
    /// The half-open range (begin, end) of each axis is kept.
    Shrink(Vec<(D, D)>),
    /// The flagged axes are reversed.
    Flip(Vec<bool>),
}
