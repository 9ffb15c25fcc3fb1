//! The value of a statement: all its elements.

use std::rc::Rc;

use gradiff_corpus::{DType, Shape};

use crate::cell::Cell;
use crate::infer::count;

/// The elements of a statement, in row-major order.
#[derive(Clone)]
pub(crate) struct Value {
    pub(crate) dtype: DType,
    pub(crate) shape: Shape,
    pub(crate) cells: Rc<Vec<Cell>>,
}

impl Value {
    /// Creates a value of these elements.
    ///
    /// # Panics
    /// If there are not as many as the shape has.
    pub(crate) fn new(dtype: DType, shape: Shape, cells: Vec<Cell>) -> Value {
        assert_eq!(count(&shape), cells.len(), "elements of shape {shape:?}");
        Value { dtype, shape, cells: Rc::new(cells) }
    }

    /// Applies a function to each element; `dtype` is that of the results.
    pub(crate) fn map(&self, dtype: DType, f: impl Fn(Cell) -> Cell) -> Value {
        Value::new(dtype, self.shape.clone(), self.cells.iter().map(|cell| f(*cell)).collect())
    }

    /// Creates a value of this shape whose elements are those at these row-major positions.
    pub(crate) fn moved(&self, (shape, positions): (Shape, Vec<usize>)) -> Value {
        let cells = positions.into_iter().map(|at| self.cells[at]).collect();
        Value::new(self.dtype, shape, cells)
    }
}
