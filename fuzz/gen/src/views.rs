//! Draws sequences of movement operations on one buffer.

use gradiff_corpus::{Shape, ViewOp, ViewOps};

use crate::Choices;
use crate::shapes::{self, Palette};

/// Limits of the view generator.
#[derive(Clone, Debug, PartialEq)]
pub struct ViewConfig {
    /// Shapes of buffers to start from; if empty, the shape is drawn.
    pub shapes: Vec<Shape>,
    /// Maximum number of operations.
    pub max_ops: usize,
    /// Maximum number of axes; at least 1.
    pub max_rank: usize,
    /// Maximum number of elements; at least 1.
    pub max_elements: usize,
    /// Maximum padding on each side of an axis.
    pub max_pad: usize,
    /// Maximum size that an axis of size 1 is repeated to; at least 1.
    pub max_expand: usize,
}

impl Default for ViewConfig {
    /// Up to 8 operations, rank 5, 256 elements.
    fn default() -> ViewConfig {
        ViewConfig {
            shapes: Vec::new(),
            max_ops: 8,
            max_rank: 5,
            max_elements: 256,
            max_pad: 3,
            max_expand: 4,
        }
    }
}

impl ViewConfig {
    /// Few elements and up to 6 operations, so that different sequences often give equal views.
    pub fn alike() -> ViewConfig {
        ViewConfig {
            shapes: vec![vec![6], vec![2, 3], vec![4], vec![2, 4], vec![2, 2, 3], vec![3, 4]],
            max_ops: 6,
            max_rank: 3,
            max_elements: 24,
            max_pad: 2,
            max_expand: 3,
        }
    }

    /// Shapes few and small enough to enumerate all sequences of up to `max_ops` operations
    /// (2: 6,350, 3: 309,430).
    pub fn small(max_ops: usize) -> ViewConfig {
        ViewConfig {
            shapes: vec![vec![2, 3], vec![1, 2], vec![4]],
            max_ops,
            max_rank: 2,
            max_elements: 12,
            max_pad: 1,
            max_expand: 2,
        }
    }
}

/// Draws a well-formed sequence of movement operations.
///
/// Reads only `choices`, so `Exhaustive` enumerates all sequences of a configuration.
pub fn views(choices: &mut dyn Choices, config: &ViewConfig) -> ViewOps {
    let shape = if config.shapes.is_empty() {
        let zero = choices.one_in(64);
        let palette = Palette::draw(choices, zero);
        palette.shape(choices, config.max_rank, config.max_elements)
    } else {
        let nth = choices.below(config.shapes.len() as u32) as usize;
        config.shapes[nth].clone()
    };
    let count = choices.below(config.max_ops as u32 + 1) as usize;
    let mut ops = Vec::with_capacity(count);
    let mut current = shape.clone();
    for _ in 0..count {
        ops.push(view_op(choices, &mut current, config));
    }
    ViewOps { shape, ops }
}

/// Draws an operation on a buffer of this shape, and updates the shape to that of the result.
fn view_op(choices: &mut dyn Choices, shape: &mut Shape, config: &ViewConfig) -> ViewOp {
    let limit = config.max_elements;
    match choices.below(6) {
        0 => {
            *shape = shapes::reshape(choices, shape, config.max_rank);
            ViewOp::Reshape(shape.clone())
        }
        1 => {
            let axes = shapes::permutation(choices, shape.len());
            *shape = axes.iter().map(|axis| shape[*axis]).collect();
            ViewOp::Permute(axes)
        }
        2 => {
            *shape = shapes::expansion(choices, shape, config.max_expand, limit);
            ViewOp::Expand(shape.clone())
        }
        3 => {
            let pads = shapes::pads(choices, shape, config.max_pad, limit);
            shape.iter_mut().zip(&pads).for_each(|(size, (a, b))| *size += a + b);
            ViewOp::Pad(pads)
        }
        4 => {
            // An enumeration makes no choice here, and so never shrinks to an empty range.
            let empty = config.shapes.is_empty() && choices.one_in(64);
            let ranges = shapes::ranges(choices, shape, empty);
            shape.iter_mut().zip(&ranges).for_each(|(size, (start, end))| *size = end - start);
            ViewOp::Shrink(ranges)
        }
        _ => ViewOp::Flip(shapes::axes(choices, shape.len())),
    }
}
