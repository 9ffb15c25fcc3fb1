//! Sequences of movement operations on a buffer, as plain data: cases for the view algebra.

use crate::{Shape, TypeError, geometry};

/// A row-major buffer of shape `shape`, and the operations applied to it, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ViewOps {
    /// Sizes of the buffer.
    pub shape: Shape,
    /// The operations, in order.
    pub ops: Vec<ViewOp>,
}

/// A movement operation, with the semantics and limits of the statement of the same name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ViewOp {
    /// The same elements in row-major order with these sizes.
    Reshape(Shape),
    /// Axis `i` of the result is axis `axes[i]`.
    Permute(Vec<usize>),
    /// Repeats axes of size 1 up to these sizes.
    Expand(Shape),
    /// Adds invalid elements before and after each axis.
    Pad(Vec<(usize, usize)>),
    /// Keeps the half-open range of each axis.
    Shrink(Vec<(usize, usize)>),
    /// Reverses these axes, ascending, without repeats.
    Flip(Vec<usize>),
}

impl ViewOp {
    /// Returns the keyword in the text form.
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

    /// Returns the shape of the result on a source of shape `from`.
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
    /// Returns the shapes before the first operation and after each.
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
