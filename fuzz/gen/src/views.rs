//! Draws sequences of movement operations on one buffer.

use gradiff_corpus::{Shape, ViewOp, ViewOps};

use crate::Choices;
use crate::shapes::{self, Palette};

/// Limits of the view generator.
#[derive(Clone, Debug, PartialEq)]
pub struct ViewConfig {
    /// Buffers to start from; if empty, the shape is drawn.
    pub shapes: Vec<Shape>,
    /// Operations, at most.
    pub max_ops: usize,
    /// Axes, at most; at least 1.
    pub max_rank: usize,
    /// Elements, at most; at least 1.
    pub max_elements: usize,
    /// Padding on each side of an axis, at most.
    pub max_pad: usize,
    /// Size that an axis of size 1 is repeated to, at most; at least 1.
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
    /// Few elements and up to 6 operations, so that different sequences often place all elements
    /// alike.
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

    /// Few and small enough that all sequences of up to `max_ops` operations can be enumerated
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

/// A sequence of movement operations that fit one another.
///
/// Reads only `choices`, so `Exhaustive` enumerates all sequences of a configuration.
pub fn views<C: Choices>(choices: &mut C, config: &ViewConfig) -> ViewOps {
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

/// An operation on a buffer of these sizes, which become those that it gives.
fn view_op<C: Choices>(choices: &mut C, shape: &mut Shape, config: &ViewConfig) -> ViewOp {
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
            // An enumeration spends no choice on this, and so keeps elements.
            let empty = config.shapes.is_empty() && choices.one_in(64);
            let ranges = shapes::ranges(choices, shape, empty);
            shape.iter_mut().zip(&ranges).for_each(|(size, (start, end))| *size = end - start);
            ViewOp::Shrink(ranges)
        }
        _ => ViewOp::Flip(shapes::axes(choices, shape.len())),
    }
}
