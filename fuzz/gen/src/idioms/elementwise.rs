//! Elementwise idioms: optimiser updates, activations, padded functions, and chains of values that
//! are used twice.

use std::f64::consts::LOG2_E;

use gradiff_corpus::{BinaryOp::*, DType, Operand, ReduceOp, Shape, UnaryOp, ValueId};

use super::statements::scalar_literal;
use crate::programs::Builder;

/// Maximum length of a chain of values that are used twice: 2^24 paths lead to its first value.
const MAX_CHAIN: u32 = 24;

impl Builder<'_> {
    /// Draws a shape of one or two axes.
    pub(super) fn flat_shape(&mut self) -> Shape {
        let outer = self.size_up_to(8);
        let inner = self.size_up_to((self.limit / outer).max(1));
        if self.choices.one_in(2) { vec![outer, inner] } else { vec![inner] }
    }

    /// Adds an optimiser update of a parameter: momentum or Adam, with weight decay or without.
    pub(super) fn optimizer(&mut self) -> Option<ValueId> {
        let dtype = self.float()?;
        let shape = self.flat_shape();
        let [parameter, gradient, momentum] = [(); 3].map(|()| self.data(dtype, &shape));
        let (parameter, gradient, momentum) = (parameter?, gradient?, momentum?);
        let gradient = if self.choices.one_in(3) {
            let decay = self.binary_with(Mul, parameter, 0.01)?;
            self.binary_of(Add, gradient, decay)?
        } else {
            gradient
        };
        let old = self.binary_with(Mul, momentum, 0.9)?;
        let new = self.binary_with(Mul, gradient, 0.1)?;
        let momentum = self.binary_of(Add, old, new)?;
        if self.choices.one_in(2) {
            let update = self.binary_with(Mul, momentum, 0.05)?;
            return self.binary_of(Sub, parameter, update);
        }
        // Adam divides by the root of the mean square of the gradient.
        let mean_square = self.positive_data(dtype, &shape)?;
        let square = self.binary_of(Mul, gradient, gradient)?;
        let old = self.binary_with(Mul, mean_square, 0.99)?;
        let new = self.binary_with(Mul, square, 0.01)?;
        let mean_square = self.binary_of(Add, old, new)?;
        self.assume_range(mean_square, 0.5, f64::MAX);
        let root = self.unary_of(UnaryOp::Sqrt, mean_square)?;
        let root = self.binary_with(Add, root, 1e-2)?;
        let direction = self.binary_of(Div, momentum, root)?;
        let update = self.binary_with(Mul, direction, 0.05)?;
        self.binary_of(Sub, parameter, update)
    }

    /// Adds `1 / (1 + 2^(-x * scale))`.
    fn sigmoid(&mut self, x: ValueId, scale: f64) -> Option<ValueId> {
        let scaled = self.binary_with(Mul, x, -scale)?;
        let power = self.unary_of(UnaryOp::Exp2, scaled)?;
        let denominator = self.binary_with(Add, power, 1.0)?;
        self.assume_range(denominator, 1.0, f64::MAX);
        let sigmoid = self.unary_of(UnaryOp::Recip, denominator)?;
        self.assume_range(sigmoid, 0.0, 1.0);
        Some(sigmoid)
    }

    /// Adds an activation function, or a relu together with its gradient.
    pub(super) fn activation_idiom(&mut self) -> Option<ValueId> {
        let dtype = self.float()?;
        let shape = self.flat_shape();
        let x = self.data(dtype, &shape)?;
        let zero = Operand::Literal(scalar_literal(dtype, 0.0));
        match self.choices.below(8) {
            0 => self.sigmoid(x, LOG2_E),
            1 => {
                // Swish.
                let gate = self.sigmoid(x, LOG2_E)?;
                self.binary_of(Mul, x, gate)
            }
            2 => {
                // tanh(x) = 2 * sigmoid(2x) - 1.
                let sigmoid = self.sigmoid(x, 2.885)?;
                let twice = self.binary_with(Mul, sigmoid, 2.0)?;
                self.binary_with(Sub, twice, 1.0)
            }
            3 => {
                // Gelu's approximation by a cubic polynomial, with a sigmoid instead of tanh.
                let square = self.binary_of(Mul, x, x)?;
                let cube = self.binary_of(Mul, square, x)?;
                let correction = self.binary_with(Mul, cube, 0.044715)?;
                let inner = self.binary_of(Add, x, correction)?;
                let gate = self.sigmoid(inner, 1.125)?;
                self.binary_of(Mul, x, gate)
            }
            4 => {
                // Leaky relu.
                let is_negative = self.binary_with(CmpLt, x, 0.0)?;
                let leak = self.binary_with(Mul, x, 0.01)?;
                self.selected(is_negative, Operand::Value(leak), Operand::Value(x))
            }
            5 => {
                let clamped = self.binary_with(Max, x, -1.0)?;
                self.binary_with(Min, clamped, 1.0)
            }
            6 => {
                // Relu and its gradient.
                let relu = self.binary_with(Max, x, 0.0)?;
                let is_negative = self.binary_with(CmpLt, x, 0.0)?;
                let gradient = self.data(dtype, &shape)?;
                let masked = self.selected(is_negative, zero, Operand::Value(gradient))?;
                self.binary_of(Add, relu, masked)
            }
            _ => {
                // Relu after dropout.
                let mask = self.bool_data(&shape)?;
                let masked = self.selected(mask, Operand::Value(x), zero)?;
                self.binary_with(Max, masked, 0.0)
            }
        }
    }

    /// Adds a chain in which each value is the previous one times itself or plus itself.
    pub(super) fn squares(&mut self) -> Option<ValueId> {
        let is_float = self.choices.one_in(2);
        let dtype = if is_float { self.float()? } else { self.integer()? };
        let shape = self.flat_shape();
        let mut x = self.data(dtype, &shape)?;
        let op = self.choices.pick(&[Mul, Add]);
        let length = 2 + self.choices.below(MAX_CHAIN - 1);
        for _ in 0..length {
            let Some(next) = self.binary_of(op, x, x) else { break };
            x = next;
        }
        Some(x)
    }

    /// Adds a chain in which each value is a function of the previous two, or of the previous one
    /// twice, or of two functions of it.
    pub(super) fn diamonds(&mut self) -> Option<ValueId> {
        let is_float = self.choices.one_in(3);
        let dtype = if is_float { self.float()? } else { self.integer()? };
        let shape = self.flat_shape();
        let mut previous = self.data(dtype, &shape)?;
        let mut x = self.data(dtype, &shape)?;
        let kind = self.choices.below(3);
        let op = match is_float {
            true => self.choices.pick(&[Add, Max, Min]),
            false => self.choices.pick(&[Add, Mul, Max, Min, And, Or, Xor]),
        };
        let length = 2 + self.choices.below(MAX_CHAIN - 1);
        for _ in 0..length {
            let (left, right) = match kind {
                0 => (previous, x),
                1 => (x, x),
                _ => (self.binary_with(Max, x, 1.0)?, self.binary_with(Mul, x, 2.0)?),
            };
            let Some(next) = self.binary_of(op, left, right) else { break };
            previous = x;
            x = next;
        }
        if dtype != DType::Bool && self.choices.one_in(2) {
            return self.binary_of(Max, x, previous);
        }
        Some(x)
    }

    /// Adds a function that is not 0 of 0, and pads its result, mostly with zeros: a kernel that
    /// pads its argument instead is wrong.
    pub(super) fn padded_function(&mut self) -> Option<ValueId> {
        let dtype = self.float()?;
        let shape = self.flat_shape();
        let x = match self.choices.below(6) {
            0 | 1 => {
                let x = self.data(dtype, &shape)?;
                self.unary_of(UnaryOp::Exp2, x)?
            }
            2 => {
                let x = self.data(dtype, &shape)?;
                self.binary_with(Add, x, 1.0)?
            }
            3 => {
                let x = self.data(dtype, &shape)?;
                self.binary_with(Max, x, 0.5)?
            }
            4 => {
                let x = self.positive_data(dtype, &shape)?;
                self.unary_of(UnaryOp::Recip, x)?
            }
            _ => {
                let x = self.positive_data(dtype, &shape)?;
                self.unary_of(UnaryOp::Log2, x)?
            }
        };
        let mut pads = vec![(0, 0); shape.len()];
        let axis = self.choices.below(shape.len() as u32) as usize;
        pads[axis] = (self.choices.below(3) as usize, 1 + self.choices.below(2) as usize);
        let value = self.choices.pick(&[0.0, 0.0, 1.0, -0.0]);
        let padded = self.padded(x, pads, value)?;
        match self.choices.below(4) {
            0 => self.reduced(ReduceOp::Sum, padded, vec![axis]),
            1 => {
                let factors = self.data(dtype, &self.shape_of(padded))?;
                self.binary_of(Mul, padded, factors)
            }
            2 => self.binary_with(Mul, padded, 2.0),
            _ => Some(padded),
        }
    }
}
