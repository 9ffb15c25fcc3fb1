//! Random shapes and movements that fit them.
#![allow(unreachable_pub)]

use gradiff_view::Movement;

/// xorshift64*: the same seed gives the same cases.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(0x9E37_79B9_7F4A_7C15u64.wrapping_mul(seed))
    }

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
            let position = self.below(shape.len() as i64 + 1) as usize;
            shape.insert(position, size);
            count /= size;
        }
        while self.below(3) == 0 {
            let position = self.below(shape.len() as i64 + 1) as usize;
            shape.insert(position, 1);
        }
        if count == 0 {
            let position = self.below(shape.len() as i64 + 1) as usize;
            shape.insert(position, 0);
        }
        shape
    }

    /// Draws a legal movement of a shape, with at most about 300 elements.
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
