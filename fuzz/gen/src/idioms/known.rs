//! Computation on elements that the compiler knows: constants and counters, moved, as either
//! operand. Rules that fold constants, and bounds, decide about them before anything runs.

use gradiff_corpus::{
    BinaryOp::{self, *},
    DType, Fill, Literal, Operand, ReduceOp, Statement, UnaryOp, ValueId,
};

use crate::fact::{self, Fact};
use crate::programs::Builder;
use crate::{Op, edges};

/// Starts of counters: small numbers, and those just below the ends of integer types.
const STARTS: [i64; 9] = [0, 0, 1, 0, -3, 120, 32_760, 65_530, 2_147_483_640];
/// Starts just below the ends of the integers that bf16, f16 and f32 represent exactly.
const LARGE_STARTS: [i64; 9] = [250, 2040, 250, 2040, 250, 16_777_210, 250, 2040, 16_777_210];
/// Values of constants: identities and absorbing elements of operations, and numbers that a
/// conversion rounds.
const FLOATS: [f64; 10] = [0.0, -0.0, 1.0, -1.0, 2.0, -2.5, 0.5, 100.0, 0.1, -0.0];
const INTS: [i128; 8] = [0, 1, -1, 0, 2, 255, 7, -128];
/// The operations on integers and floats, and those on integers alone.
const ARITHMETIC: [BinaryOp; 10] = [Sub, Add, Mul, Sub, Max, Min, CmpLt, CmpEq, CmpNe, Div];
const BITWISE: [BinaryOp; 8] = [And, Or, Xor, Shl, Shr, FloorDiv, FloorMod, Sub];

impl Builder<'_> {
    /// Adds a constant or a counter, up to two movements, an operation, and at times another one
    /// that depends on the signs of zeros or on bounds.
    pub(super) fn known(&mut self) -> Option<ValueId> {
        let mut x = if self.choices.one_in(2) { self.counter()? } else { self.constant()? };
        for _ in 0..self.choices.below(3) {
            x = self.moved(x).unwrap_or(x);
        }
        let dtype = self.dtype_of(x);
        x = match self.choices.below(8) {
            0..=3 if dtype != DType::Bool => self.operated(x),
            0..=6 => self.converted(x),
            _ => None,
        }
        .unwrap_or(x);
        let (dtype, rank) = (self.dtype_of(x), self.shape_of(x).len());
        let last = match self.choices.below(6) {
            0 if rank != 0 => self.reduced(ReduceOp::Sum, x, vec![rank - 1]),
            1 if dtype.is_float() => self.unary_of(UnaryOp::Recip, x),
            2 if dtype.is_int() => self.binary_with(CmpLt, x, 4.0),
            3 => self.moved(x),
            _ => None,
        };
        Some(last.unwrap_or(x))
    }

    /// Adds a constant: often of 64 or 32 bits, at a boundary value of its conversion to a float.
    fn constant(&mut self) -> Option<ValueId> {
        let dtype = self.dtype();
        let shape = self.flat_shape();
        let value = if dtype.is_float() {
            Literal::Float(self.choices.pick(&FLOATS))
        } else if dtype == DType::Bool {
            Literal::Bool(self.choices.one_in(2))
        } else if dtype.size_bytes() >= 4 && self.choices.one_in(2) {
            let to = self.float().unwrap_or(DType::F32);
            let Statement::Input { fill: Fill::Explicit(bits), .. } =
                edges::data(self.choices, &[dtype, to], vec![1]).0
            else {
                return None;
            };
            let unused = 64 - 8 * dtype.size_bytes() as u32;
            Literal::Int(match dtype.is_signed() {
                true => i128::from(((bits[0] << unused) as i64) >> unused),
                false => i128::from(bits[0]),
            })
        } else {
            let value = self.choices.pick(&INTS);
            let (lo, hi) = fact::range(dtype);
            Literal::Int(if (lo..=hi).contains(&(value as f64)) { value } else { 1 })
        };
        let fact = fact::of_literal(dtype, &value);
        self.add(Statement::Const { dtype, shape, value }, fact)
    }

    /// Adds a counter whose numbers fit in its dtype.
    fn counter(&mut self) -> Option<ValueId> {
        let dtype = self.integer()?;
        let count = self.size_up_to(self.limit.min(24));
        let step = self.choices.pick(&[1, 1, 2, -1, 3, 0]);
        let is_large = self.choices.one_in(3);
        let start = self.choices.pick(&if is_large { LARGE_STARTS } else { STARTS });
        let (lo, hi) = fact::range(dtype);
        let ends = |start: i64, step: i64| {
            let last = start + step * (count as i64 - 1);
            [start.min(last) as f64, start.max(last) as f64]
        };
        let fits = |[least, largest]: [f64; 2]| lo <= least && largest <= hi;
        let (start, step) = if fits(ends(start, step)) { (start, step) } else { (0, 1) };
        let [least, largest] = ends(start, step);
        self.add(Statement::Arange { dtype, start, step, count }, Fact::exact(least, largest, 0))
    }

    /// Adds a movement: mostly a pad, with zeros of both signs.
    fn moved(&mut self, x: ValueId) -> Option<ValueId> {
        let shape = self.shape_of(x);
        if shape.is_empty() || self.choices.one_in(2) {
            let op = self.choices.pick(&[Op::Reshape, Op::Flip, Op::Expand, Op::Shrink, Op::Cat]);
            return self.apply_to(op, x);
        }
        let mut pads = vec![(0, 0); shape.len()];
        let axis = self.choices.below(shape.len() as u32) as usize;
        pads[axis] = (self.choices.below(3) as usize, self.choices.below(3) as usize);
        let value = match self.dtype_of(x) {
            dtype if dtype.is_float() => self.choices.pick(&[0.0, -0.0, 1.0, 0.0]),
            _ => self.choices.pick(&[0.0, 1.0, 0.0]),
        };
        self.padded(x, pads, value)
    }

    /// Adds an operation with data as the other operand, on either side.
    fn operated(&mut self, x: ValueId) -> Option<ValueId> {
        let (dtype, shape) = (self.dtype_of(x), self.shape_of(x));
        let op = match dtype.is_int() && self.choices.one_in(2) {
            true => self.choices.pick(&BITWISE),
            false => self.choices.pick(&ARITHMETIC),
        };
        let y = match op {
            Shl | Shr => {
                let amounts = self.indices(&shape, 8 * dtype.size_bytes())?;
                self.cast_to(amounts, dtype)?
            }
            FloorDiv | FloorMod | Div => self.positive_data(dtype, &shape)?,
            _ => self.data(dtype, &shape)?,
        };
        // A divisor or an amount has to be on the right.
        let is_free = !matches!(op, Shl | Shr | FloorDiv | FloorMod | Div);
        let [x, y] = if is_free && self.choices.one_in(2) { [y, x] } else { [x, y] };
        let result = self.binary_of(op, x, y)?;
        if matches!(op, CmpLt | CmpEq | CmpNe) && self.choices.one_in(2) {
            return self.selected(result, Operand::Value(x), Operand::Value(y));
        }
        Some(result)
    }

    /// Adds a conversion, and at times one back.
    fn converted(&mut self, x: ValueId) -> Option<ValueId> {
        let dtype = self.dtype_of(x);
        let to = match (self.choices.below(4), self.rounding_float(x)) {
            (0, _) => self.dtype(),
            (1 | 2, Some(float)) => float,
            _ => self.float()?,
        };
        let result = self.cast_to(x, to)?;
        match self.choices.below(4) {
            0 | 1 => self.cast_to(result, dtype),
            2 => self.cast_to(result, DType::F32),
            _ => Some(result),
        }
    }

    /// The float type whose exact integers end near the largest element of the value, if any.
    fn rounding_float(&self, x: ValueId) -> Option<DType> {
        let Fact { lo, hi, .. } = self.facts[x.0 as usize];
        let largest = lo.abs().max(hi.abs());
        let is_near = |dtype: &DType| {
            let limit = 2f64.powi(fact::mantissa_bits(*dtype) + 1);
            (limit / 2.0..=limit * 4.0).contains(&largest)
        };
        let mut floats = self.config.dtypes.iter().copied().filter(|dtype| dtype.is_float());
        floats.find(is_near)
    }

    /// Adds a sum of products and movements of the result, which a scheduler may apply to the
    /// factors instead.
    pub(super) fn moved_sum(&mut self) -> Option<ValueId> {
        let dtype = self.float()?;
        let [m, n] = [(); 2].map(|()| self.size_up_to(6));
        let k = self.size_up_to((self.limit / (m * n)).clamp(1, 9));
        let x = self.data(dtype, &[m, 1, k])?;
        let y = self.data(dtype, &[1, n, k])?;
        let product = self.binary_of(Mul, x, y)?;
        let sum = self.reduced(ReduceOp::Sum, product, vec![2])?;
        let mut result = self.reshaped(sum, vec![m, n])?;
        let mut axis = 0;
        for _ in 0..1 + self.choices.below(3) {
            let shape = self.shape_of(result);
            // Often the same axis is moved once more.
            if self.choices.one_in(2) {
                axis = 1 - axis;
            }
            let moved = match self.choices.below(5) {
                0 | 1 => self.flipped(result, vec![axis]),
                2 | 3 => {
                    let mut ranges: Vec<_> = shape.iter().map(|size| (0, *size)).collect();
                    let start = self.choices.below(shape[axis].max(1) as u32) as usize;
                    let rest = shape[axis] - start;
                    let size = 1 + self.choices.below(rest.max(1) as u32) as usize;
                    ranges[axis] = (start, start + size.min(rest));
                    self.shrunk(result, ranges)
                }
                _ => self.permuted(result, vec![1, 0]),
            };
            result = moved?;
        }
        match self.choices.below(3) {
            0 => self.unary_of(UnaryOp::Neg, result),
            1 => self.binary_with(Add, result, 1.0),
            _ => Some(result),
        }
    }
}
