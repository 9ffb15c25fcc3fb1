//! An independent model of the movement ops: the elements themselves, moved one by one.
#![allow(unreachable_pub)]

use gradiff_view::{IndexAlgebra, Movement, ShapeTracker};

/// A shape and, in row-major order, which buffer element stands where; `None` is padding.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    pub shape: Vec<i64>,
    pub elements: Vec<Option<usize>>,
}

pub fn indices(shape: &[i64]) -> Vec<Vec<i64>> {
    let mut all = vec![vec![]];
    for &size in shape {
        let longer = |index: &Vec<i64>| {
            let index = index.clone();
            (0..size).map(move |position| [&index[..], &[position]].concat()).collect::<Vec<_>>()
        };
        all = all.iter().flat_map(longer).collect();
    }
    all
}

impl Model {
    pub fn new(shape: &[i64]) -> Model {
        let count = shape.iter().product::<i64>() as usize;
        Model { shape: shape.to_vec(), elements: (0..count).map(Some).collect() }
    }

    fn get(&self, index: &[i64]) -> Option<usize> {
        let mut flat = 0;
        for (&position, &size) in index.iter().zip(&self.shape) {
            if position < 0 || size <= position {
                return None;
            }
            flat = flat * size + position;
        }
        self.elements[flat as usize]
    }

    fn moved(&self, shape: Vec<i64>, source: impl Fn(&[i64]) -> Vec<i64>) -> Model {
        let elements = indices(&shape).iter().map(|index| self.get(&source(index))).collect();
        Model { shape, elements }
    }

    pub fn apply(&self, movement: &Movement) -> Model {
        let zip = |index: &[i64], by: &[(i64, i64)], sign: i64| {
            index.iter().zip(by).map(|(i, b)| i + sign * b.0).collect()
        };
        match movement {
            Movement::Reshape(to) => Model { shape: to.clone(), elements: self.elements.clone() },
            Movement::Permute(order) => {
                let shape = order.iter().map(|&axis| self.shape[axis]).collect();
                self.moved(shape, |index| {
                    let mut source = vec![0; index.len()];
                    order.iter().zip(index).for_each(|(&axis, &i)| source[axis] = i);
                    source
                })
            }
            Movement::Expand(to) => self.moved(to.clone(), |index| {
                index.iter().zip(&self.shape).map(|(&i, &s)| if s == 1 { 0 } else { i }).collect()
            }),
            Movement::Pad(by) => {
                let shape = self.shape.iter().zip(by).map(|(s, b)| s + b.0 + b.1).collect();
                self.moved(shape, |index| zip(index, by, -1))
            }
            Movement::Shrink(to) => {
                self.moved(to.iter().map(|b| b.1 - b.0).collect(), |index| zip(index, to, 1))
            }
            Movement::Flip(axes) => self.moved(self.shape.clone(), |index| {
                let turned = index.iter().zip(&self.shape).zip(axes);
                turned.map(|((&i, &s), &flip)| if flip { s - 1 - i } else { i }).collect()
            }),
        }
    }
}

/// Expressions that are numbers already; truths are 0 and 1.
struct Numbers;

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

/// Compares every element with the model, by `locate` and by the index expressions.
/// # Errors
/// The first difference, in words.
pub fn compare(tracker: &ShapeTracker, model: &Model) -> Result<(), String> {
    if tracker.shape() != model.shape {
        return Err(format!("{tracker} has not the shape {:?}", model.shape));
    }
    for (index, &element) in indices(&model.shape).iter().zip(&model.elements) {
        let element = element.map(|at| at as i64);
        let located = tracker.locate(index);
        if located != element {
            return Err(format!("{tracker} locates {index:?} at {located:?}, not {element:?}"));
        }
        let (at, valid) = tracker.index(&mut Numbers, index);
        let at = (valid != Some(0)).then_some(at);
        if at != element {
            return Err(format!("{tracker} indexes {index:?} at {at:?}, not {element:?}"));
        }
    }
    Ok(())
}
