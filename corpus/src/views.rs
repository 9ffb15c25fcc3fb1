//! A sequence of movement operations on one buffer, as plain data: a case for the view algebra.

use crate::{Shape, TypeError, geometry};

/// A row-major buffer of sizes `shape` and the operations applied to it, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ViewOps {
    /// Sizes of the buffer.
    pub shape: Shape,
    /// The operations, first one first.
    pub ops: Vec<ViewOp>,
}

/// One movement operation; the same meanings and limits as the statements of a program.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ViewOp {
    /// The same elements in row-major order under these sizes.
    Reshape(Shape),
    /// Axis `i` of the result is axis `axes[i]`.
    Permute(Vec<usize>),
    /// Repeats axes of size 1 up to these sizes.
    Expand(Shape),
    /// Invalid elements before and after each axis.
    Pad(Vec<(usize, usize)>),
    /// Keeps the half-open range of each axis.
    Shrink(Vec<(usize, usize)>),
    /// Reverses these axes, ascending, without repeats.
    Flip(Vec<usize>),
}

impl ViewOp {
    /// The word in the text form.
    pub fn name(&self) -> &'static str {
        match self {
            ViewOp::Reshape(_) => "reshape",
            ViewOp::Permute(_) => "permute",
            ViewOp::Expand(_) => "expand",
            ViewOp::Pad(_) => "pad",
            ViewOp::Shrink(_) => "shrink",
            ViewOp::Flip(_) => "flip",
        }
    }

    /// The sizes that this operation makes of `from`.
    ///
    /// # Errors
    /// Arguments that do not fit `from`, or a result over `MAX_ELEMENTS` or `MAX_RANK`.
    pub fn shape(&self, from: &[usize]) -> Result<Shape, TypeError> {
        let to = match self {
            ViewOp::Reshape(shape) => geometry::reshape(from, shape),
            ViewOp::Permute(axes) => geometry::permute(from, axes),
            ViewOp::Expand(shape) => geometry::expand(from, shape),
            ViewOp::Pad(pads) => geometry::pad(from, pads),
            ViewOp::Shrink(ranges) => geometry::shrink(from, ranges),
            ViewOp::Flip(axes) => geometry::flip(from, axes),
        };
        Ok(to?)
    }
}

impl ViewOps {
    /// The sizes before any operation and after each: one more than there are operations.
    ///
    /// # Errors
    /// The first operation whose arguments do not fit (`statement` is its number).
    pub fn shapes(&self) -> Result<Vec<Shape>, TypeError> {
        geometry::check_size(&self.shape)?;
        let mut shapes = Vec::with_capacity(self.ops.len() + 1);
        shapes.push(self.shape.clone());
        for (number, op) in self.ops.iter().enumerate() {
            shapes.push(op.shape(&shapes[number]).map_err(|error| error.at(number))?);
        }
        Ok(shapes)
    }
}
