//! An independent model of the movement ops: the elements themselves, moved one by one.
#![allow(unreachable_pub)]

use gradiff_view::{Movement, ShapeTracker};

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

/// The elements as the tracker locates them.
pub fn located(tracker: &ShapeTracker) -> Model {
    let at = |index: &Vec<i64>| tracker.locate(index).map(|at| at as usize);
    let elements = indices(tracker.shape()).iter().map(at).collect();
    Model { shape: tracker.shape().to_vec(), elements }
}

/// xorshift64*: the same seed gives the same cases.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, bound: i64) -> i64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        ((self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % bound.max(1) as u64) as i64
    }

    pub fn shape(&mut self) -> Vec<i64> {
        (0..self.below(4)).map(|_| [1, 2, 3, 4, 6][self.below(5) as usize]).collect()
    }

    fn factored(&mut self, mut count: i64) -> Vec<i64> {
        let mut shape = vec![];
        while count > 1 {
            let divisors: Vec<i64> = (2..=count).filter(|d| count % d == 0).collect();
            let size = divisors[self.below(divisors.len() as i64) as usize];
            let place = self.below(shape.len() as i64 + 1) as usize;
            shape.insert(place, size);
            count /= size;
        }
        while self.below(3) == 0 {
            let place = self.below(shape.len() as i64 + 1) as usize;
            shape.insert(place, 1);
        }
        if count == 0 {
            let place = self.below(shape.len() as i64 + 1) as usize;
            shape.insert(place, 0);
        }
        shape
    }

    /// A legal movement on a shape, of at most some 300 elements.
    pub fn movement(&mut self, shape: &[i64]) -> Movement {
        let count: i64 = shape.iter().product();
        match self.below(7) {
            0 | 1 => Movement::Reshape(self.factored(count)),
            2 => {
                let mut order: Vec<usize> = vec![];
                for axis in 0..shape.len() {
                    order.insert(self.below(axis as i64 + 1) as usize, axis);
                }
                Movement::Permute(order)
            }
            3 if count < 100 => Movement::Expand(
                shape.iter().map(|&s| if s == 1 { 1 + self.below(3) } else { s }).collect(),
            ),
            4 if count < 100 => Movement::Pad(
                shape
                    .iter()
                    .map(|_| [(0, 0), (1, 0), (0, 2), (1, 1)][self.below(4) as usize])
                    .collect(),
            ),
            5 => Movement::Shrink(
                shape
                    .iter()
                    .map(|&s| {
                        let begin = if self.below(2) == 0 { 0 } else { self.below(s) };
                        let rest = s - begin;
                        let keep = if self.below(2) == 0 { rest } else { self.below(rest) + 1 };
                        let keep = if self.below(60) == 0 { 0 } else { keep.min(rest) };
                        (begin, begin + keep)
                    })
                    .collect(),
            ),
            _ => Movement::Flip(shape.iter().map(|_| self.below(2) == 0).collect()),
        }
    }
}
