//! Idioms element by element: optimiser steps, activations, short chains of shared values.

use std::f64::consts::LOG2_E;

use gradiff_corpus::{BinaryOp::*, DType, Operand, Shape, UnaryOp, ValueId};

use super::words::number;
use crate::Choices;
use crate::programs::Builder;

/// How often a chain of shared values is extended, at most: 2^24 paths lead to its first value.
const LINKS: u32 = 24;

impl<C: Choices> Builder<'_, C> {
    /// One axis or two.
    pub(super) fn flat_shape(&mut self) -> Shape {
        let outer = self.size_up_to(8);
        let inner = self.size_up_to((self.limit / outer).max(1));
        if self.choices.one_in(2) { vec![outer, inner] } else { vec![inner] }
    }

    /// Momentum, or Adam, with weight decay or without: the new parameter and its state.
    pub(super) fn optimizer(&mut self) -> Option<ValueId> {
        let dtype = self.float()?;
        let shape = self.flat_shape();
        let [p, g, m] = [(); 3].map(|()| self.data(dtype, &shape));
        let (p, g, m) = (p?, g?, m?);
        let g = if self.choices.one_in(3) {
            let decay = self.with(Mul, p, 0.01)?;
            self.both(Add, g, decay)?
        } else {
            g
        };
        let kept = self.with(Mul, m, 0.9)?;
        let new = self.with(Mul, g, 0.1)?;
        let m = self.both(Add, kept, new)?;
        if self.choices.one_in(2) {
            let step = self.with(Mul, m, 0.05)?;
            return self.both(Sub, p, step);
        }
        let v = self.positive(dtype, &shape)?;
        let squares = self.both(Mul, g, g)?;
        let kept = self.with(Mul, v, 0.99)?;
        let new = self.with(Mul, squares, 0.01)?;
        let v = self.both(Add, kept, new)?;
        self.known(v, 0.5, f64::MAX);
        let root = self.unary_of(UnaryOp::Sqrt, v)?;
        let root = self.with(Add, root, 1e-2)?;
        let direction = self.both(Div, m, root)?;
        let step = self.with(Mul, direction, 0.05)?;
        self.both(Sub, p, step)
    }

    /// `1 / (1 + 2^(-x * scale))`.
    fn sigmoid(&mut self, x: ValueId, scale: f64) -> Option<ValueId> {
        let scaled = self.with(Mul, x, -scale)?;
        let power = self.unary_of(UnaryOp::Exp2, scaled)?;
        let raised = self.with(Add, power, 1.0)?;
        self.known(raised, 1.0, f64::MAX);
        let share = self.unary_of(UnaryOp::Recip, raised)?;
        self.known(share, 0.0, 1.0);
        Some(share)
    }

    pub(super) fn activation_idiom(&mut self) -> Option<ValueId> {
        let dtype = self.float()?;
        let shape = self.flat_shape();
        let x = self.data(dtype, &shape)?;
        let zero = Operand::Literal(number(dtype, 0.0));
        match self.choices.below(8) {
            0 => self.sigmoid(x, LOG2_E),
            1 => {
                let gate = self.sigmoid(x, LOG2_E)?;
                self.both(Mul, x, gate)
            }
            2 => {
                let gate = self.sigmoid(x, 2.885)?;
                let twice = self.with(Mul, gate, 2.0)?;
                self.with(Sub, twice, 1.0)
            }
            3 => {
                // The approximation of gelu by a cube.
                let square = self.both(Mul, x, x)?;
                let cube = self.both(Mul, square, x)?;
                let bent = self.with(Mul, cube, 0.044715)?;
                let inner = self.both(Add, x, bent)?;
                let gate = self.sigmoid(inner, 1.125)?;
                self.both(Mul, x, gate)
            }
            4 => {
                let test = self.with(CmpLt, x, 0.0)?;
                let slow = self.with(Mul, x, 0.01)?;
                self.chosen(test, Operand::Value(slow), Operand::Value(x))
            }
            5 => {
                let least = self.with(Max, x, -1.0)?;
                self.with(Min, least, 1.0)
            }
            6 => {
                // A step's gradient through relu.
                let up = self.with(Max, x, 0.0)?;
                let test = self.with(CmpLt, x, 0.0)?;
                let gradient = self.data(dtype, &shape)?;
                let kept = self.chosen(test, zero, Operand::Value(gradient))?;
                self.both(Add, up, kept)
            }
            _ => {
                let mask = self.truth(&shape)?;
                let kept = self.chosen(mask, Operand::Value(x), zero)?;
                self.with(Max, kept, 0.0)
            }
        }
    }

    /// A value multiplied by or added to itself again and again.
    pub(super) fn squares(&mut self) -> Option<ValueId> {
        let is_float = self.choices.one_in(2);
        let dtype = if is_float { self.float()? } else { self.integer()? };
        let shape = self.flat_shape();
        let mut x = self.data(dtype, &shape)?;
        let op = self.choices.pick(&[Mul, Add]);
        let links = 2 + self.choices.below(LINKS - 1);
        for _ in 0..links {
            let Some(next) = self.both(op, x, x) else { break };
            x = next;
        }
        Some(x)
    }

    /// Each value made of the two before it, or of both branches of the one before.
    pub(super) fn diamonds(&mut self) -> Option<ValueId> {
        let is_float = self.choices.one_in(3);
        let dtype = if is_float { self.float()? } else { self.integer()? };
        let shape = self.flat_shape();
        let mut before = self.data(dtype, &shape)?;
        let mut x = self.data(dtype, &shape)?;
        let kind = self.choices.below(3);
        let op = match is_float {
            true => self.choices.pick(&[Add, Max, Min]),
            false => self.choices.pick(&[Add, Mul, Max, Min, And, Or, Xor]),
        };
        let links = 2 + self.choices.below(LINKS - 1);
        for _ in 0..links {
            let (left, right) = match kind {
                0 => (before, x),
                1 => (x, x),
                _ => (self.with(Max, x, 1.0)?, self.with(Mul, x, 2.0)?),
            };
            let Some(next) = self.both(op, left, right) else { break };
            before = x;
            x = next;
        }
        if dtype != DType::Bool && self.choices.one_in(2) {
            return self.both(Max, x, before);
        }
        Some(x)
    }
}
