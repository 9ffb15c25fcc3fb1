//! Arithmetic in 64 bits on values of 32, as flat indices, counters and hashes are computed: near
//! the ends of the narrow type, so that the results need the wide one.

use gradiff_corpus::{BinaryOp::*, DType, Distribution, ReduceOp, ValueId};

use crate::programs::Builder;
use crate::{Choices, edges};

/// Pairs of a dtype and the one that its values are widened to.
const WIDENINGS: [[DType; 2]; 6] = [
    [DType::I32, DType::I64],
    [DType::I32, DType::I64],
    [DType::U32, DType::I64],
    [DType::U32, DType::U64],
    [DType::I32, DType::I64],
    [DType::I16, DType::I32],
];

impl<C: Choices> Builder<'_, C> {
    /// Large values, widened, in one operation or two whose results leave the narrow type.
    pub(crate) fn widened(&mut self) -> Option<ValueId> {
        let [narrow, wide] = self.choices.pick(&WIDENINGS);
        if ![narrow, wide].iter().all(|dtype| self.config.dtypes.contains(dtype)) {
            return None;
        }
        let shape = self.flat_shape();
        let x = self.large(narrow, wide, &shape)?;
        let x = self.to(x, wide)?;
        let op = self.choices.pick(&[Mul, Add, Sub]);
        let made = match self.choices.below(4) {
            0 => self.both(op, x, x)?,
            1 => {
                let y = self.large(narrow, wide, &shape)?;
                let y = self.to(y, wide)?;
                self.both(op, x, y)?
            }
            2 => self.both(Mul, x, x)?,
            _ => {
                let value = self.choices.pick(&[2.0, 3.0, 7.0, 100.0, 1000.0, 65_536.0]);
                self.with(op, x, value)?
            }
        };
        let value = self.choices.pick(&[2.0, 3.0, 8.0, 10.0, 127.0, 1_048_576.0]);
        match self.choices.below(8) {
            0 => self.with(FloorDiv, made, value),
            1 => self.with(FloorMod, made, value),
            2 => {
                let test = self.choices.pick(&[CmpLt, CmpEq, CmpNe]);
                self.with(test, made, 2_147_483_647.0)
            }
            3 => self.folded(ReduceOp::Sum, made, vec![shape.len() - 1]),
            4 => self.to(made, narrow),
            5 => self.with(Max, made, value),
            _ => Some(made),
        }
    }

    /// Data over the whole range of a dtype, or next to the values at which conversions and
    /// arithmetic are decided.
    fn large(&mut self, dtype: DType, wide: DType, shape: &[usize]) -> Option<ValueId> {
        let (statement, fact) = match self.choices.below(4) {
            0 => self.seeded(dtype, shape.to_vec(), Distribution::Wide),
            1 => self.seeded(dtype, shape.to_vec(), Distribution::Special),
            _ => edges::data(self.choices, &[dtype, wide], shape.to_vec()),
        };
        self.add(statement, fact)
    }
}
