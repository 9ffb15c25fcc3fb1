//! An independent model of the movement ops, which moves the elements one by one.
#![allow(unreachable_pub)]

use gradiff_view::{IndexAlgebra, Movement, ShapeTracker};

/// A shape and, in row-major order, the buffer index of each element; `None` is padding.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    pub shape: Vec<i64>,
    pub elements: Vec<Option<usize>>,
}

/// Calls `visit` with every index of a shape, in row-major order.
pub fn each_index(shape: &[i64], mut visit: impl FnMut(&[i64])) {
    let mut index = vec![0; shape.len()];
    for _ in 0..shape.iter().product() {
        visit(&index);
        for axis in (0..shape.len()).rev() {
            index[axis] += 1;
            if index[axis] < shape[axis] {
                break;
            }
            index[axis] = 0;
        }
    }
}

impl Model {
    pub fn new(shape: &[i64]) -> Model {
        let count = shape.iter().product::<i64>() as usize;
        Model { shape: shape.to_vec(), elements: (0..count).map(Some).collect() }
    }

    /// Builds a model whose element at `index` is at `source(index, axis)` on each axis of this
    /// one.
    fn moved(&self, shape: Vec<i64>, source: impl Fn(&[i64], usize) -> i64) -> Model {
        let mut elements = vec![];
        each_index(&shape, |index| {
            let mut flat = Some(0);
            for (axis, &size) in self.shape.iter().enumerate() {
                let position = source(index, axis);
                let inside = 0 <= position && position < size;
                flat = flat.filter(|_| inside).map(|flat| flat * size + position);
            }
            elements.push(flat.and_then(|flat| self.elements[flat as usize]));
        });
        Model { shape, elements }
    }

    pub fn apply(&self, movement: &Movement) -> Model {
        let shape = &self.shape;
        match movement {
            Movement::Reshape(to) => Model { shape: to.clone(), elements: self.elements.clone() },
            Movement::Permute(order) => {
                let source_of = |axis| order.iter().position(|&from| from == axis);
                let to = order.iter().map(|&axis| shape[axis]).collect();
                self.moved(to, |index, axis| index[source_of(axis).expect("each axis once")])
            }
            Movement::Expand(to) => {
                self.moved(to.clone(), |index, axis| if shape[axis] == 1 { 0 } else { index[axis] })
            }
            Movement::Pad(by) => {
                let to = shape.iter().zip(by).map(|(size, by)| size + by.0 + by.1).collect();
                self.moved(to, |index, axis| index[axis] - by[axis].0)
            }
            Movement::Shrink(bounds) => {
                let to = bounds.iter().map(|(begin, end)| end - begin).collect();
                self.moved(to, |index, axis| index[axis] + bounds[axis].0)
            }
            Movement::Flip(axes) => self.moved(shape.clone(), |index, axis| {
                if axes[axis] { shape[axis] - 1 - index[axis] } else { index[axis] }
            }),
        }
    }
}

/// An algebra whose expressions are numbers; booleans are 0 and 1.
pub struct Numbers;

impl IndexAlgebra for Numbers {
    type Expr = i64;
    fn constant(&mut self, value: i64) -> i64 {
        value
    }
    fn add(&mut self, left: i64, right: i64) -> i64 {
        left + right
    }
    fn mul(&mut self, left: i64, right: i64) -> i64 {
        left * right
    }
    fn floordiv(&mut self, left: i64, right: i64) -> i64 {
        left.div_euclid(right)
    }
    fn floormod(&mut self, left: i64, right: i64) -> i64 {
        left.rem_euclid(right)
    }
    fn lt(&mut self, left: i64, right: i64) -> i64 {
        i64::from(left < right)
    }
    fn ge(&mut self, left: i64, right: i64) -> i64 {
        i64::from(left >= right)
    }
    fn and(&mut self, left: i64, right: i64) -> i64 {
        left & right
    }
}

/// Compares every element with the model, with `locate` and with the index expressions.
/// # Errors
/// A description of the first difference.
pub fn compare(tracker: &ShapeTracker, model: &Model) -> Result<(), String> {
    if tracker.shape() != model.shape {
        return Err(format!("{tracker} does not have the shape {:?}", model.shape));
    }
    let (mut flat, mut result) = (0, Ok(()));
    each_index(&model.shape, |index| {
        let element = model.elements[flat].map(|at| at as i64);
        flat += 1;
        let located = tracker.locate(index);
        let (at, valid) = tracker.index(&mut Numbers, index);
        let indexed = (valid != Some(0)).then_some(at);
        if result.is_ok() && (located != element || indexed != element) {
            result = Err(format!(
                "{tracker} has {element:?} at {index:?}; locate says {located:?}, index {indexed:?}"
            ));
        }
    });
    result
}
