//! Arithmetic on widened integers, as in flat indices, counters and hashes. The values are near the
//! ends of the narrow dtype, so that the results need the wide one. Also integers near the end of
//! those that a float represents exactly.

use gradiff_corpus::{
    BinaryOp::*, DType, Distribution, Literal, Operand, ReduceOp, Statement, ValueId,
};

use crate::edges;
use crate::fact::{self, Fact};
use crate::programs::Builder;

/// Pairs of a narrow and a wide dtype.
const WIDENINGS: [[DType; 2]; 6] = [
    [DType::I32, DType::I64],
    [DType::I32, DType::I64],
    [DType::U32, DType::I64],
    [DType::U32, DType::U64],
    [DType::I32, DType::I64],
    [DType::I16, DType::I32],
];

impl Builder<'_> {
    /// Adds large values, widened, and one or two ops on them with results outside the narrow
    /// dtype.
    pub(crate) fn widened(&mut self) -> Option<ValueId> {
        let [narrow, wide] = self.choices.pick(&WIDENINGS);
        if ![narrow, wide].iter().all(|dtype| self.config.dtypes.contains(dtype)) {
            return None;
        }
        let shape = self.flat_shape();
        let x = self.large(narrow, wide, &shape)?;
        let x = self.cast_to(x, wide)?;
        let op = self.choices.pick(&[Mul, Add, Sub]);
        let result = match self.choices.below(5) {
            4 => x,
            0 => self.binary_of(op, x, x)?,
            1 => {
                let y = self.large(narrow, wide, &shape)?;
                let y = self.cast_to(y, wide)?;
                self.binary_of(op, x, y)?
            }
            2 => self.binary_of(Mul, x, x)?,
            _ => {
                let value = self.choices.pick(&[2.0, 3.0, 7.0, 100.0, 1000.0, 65_536.0]);
                self.binary_with(op, x, value)?
            }
        };
        let value = self.choices.pick(&[2.0, 3.0, 8.0, 10.0, 127.0, 1_048_576.0]);
        let amount = self.choices.pick(&[1.0, 7.0, 15.0, 16.0, 31.0, 32.0, 33.0, 40.0, 63.0]);
        let is_amount = amount < 8.0 * wide.size_bytes() as f64;
        match self.choices.below(11) {
            8 | 9 if is_amount => {
                // Widened values alone fit the narrow dtype, but not an amount of its size.
                let shifted = if self.choices.one_in(2) { x } else { result };
                self.binary_with(Shr, shifted, amount)
            }
            10 if is_amount => self.binary_with(Shl, result, amount),
            0 => self.binary_with(FloorDiv, result, value),
            1 => self.binary_with(FloorMod, result, value),
            2 => {
                let test = self.choices.pick(&[CmpLt, CmpEq, CmpNe]);
                self.binary_with(test, result, 2_147_483_647.0)
            }
            3 => self.reduced(ReduceOp::Sum, result, vec![shape.len() - 1]),
            4 => self.cast_to(result, narrow),
            5 => self.binary_with(Max, result, value),
            _ => Some(result),
        }
    }

    /// Adds integers of a known range, about as large as those that a float represents exactly,
    /// converts them to it, and mostly back. As exponents, their parity decides a sign.
    pub(super) fn bounded(&mut self) -> Option<ValueId> {
        let float = self.choices.pick(&[DType::F32, DType::F16, DType::BF16]);
        let dtype = self.choices.pick(&[DType::I32, DType::I64, DType::U32, DType::U64]);
        if ![float, dtype].iter().all(|dtype| self.config.dtypes.contains(dtype)) {
            return None;
        }
        let power = fact::mantissa_bits(float) + 1 + self.choices.pick(&[1, 0, 2]);
        let limit = f64::from(power).exp2();
        let shape = self.flat_shape();
        let (statement, fact) = self.seeded(dtype, shape, Distribution::Wide);
        let x = self.add(statement, fact)?;
        let x = match self.choices.below(4) {
            0 | 1 => self.binary_with(And, x, limit - 1.0)?,
            2 => self.binary_with(FloorMod, x, limit)?,
            _ => {
                let x = self.binary_with(Min, x, limit - 1.0)?;
                self.binary_with(Max, x, 0.0)?
            }
        };
        self.assume_range(x, 0.0, limit - 1.0);
        let converted = self.cast_to(x, float)?;
        match self.choices.below(6) {
            0 | 1 => self.cast_to(converted, dtype),
            5 => {
                let base = Operand::Literal(Literal::Float(-1.0));
                let srcs = [base, Operand::Value(converted)];
                let signs = Fact::exact(-1.0, 1.0, 0);
                self.add(Statement::Binary { op: Pow, srcs }, signs)
            }
            2 => self.binary_with(CmpLt, converted, limit / 2.0 + 1.0),
            3 => self.cast_to(converted, DType::F64),
            _ => Some(converted),
        }
    }

    /// Adds data over the whole range of a dtype, or next to boundary values.
    fn large(&mut self, dtype: DType, wide: DType, shape: &[usize]) -> Option<ValueId> {
        let (statement, fact) = match self.choices.below(4) {
            0 => self.seeded(dtype, shape.to_vec(), Distribution::Wide),
            1 => self.seeded(dtype, shape.to_vec(), Distribution::Special),
            _ => edges::data(self.choices, &[dtype, wide], shape.to_vec()),
        };
        self.add(statement, fact)
    }
}
