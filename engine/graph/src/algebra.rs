//! The index arithmetic of views, as nodes of the graph.

use gradiff_view::IndexAlgebra;

use crate::{Constant, DType, Op, UOp};

/// Builds the index expressions of a [`gradiff_view::ShapeTracker`] as nodes of one integer
/// dtype. `x + 0`, `x * 1`, `x * 0` and ops over constants are folded; `x >= y` is written as
/// `(x < y) != true`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UopAlgebra {
    /// The dtype of the index: `I32`, or `I64` if a value may exceed the range of i32.
    pub dtype: DType,
}

impl UopAlgebra {
    /// The node of a binary op, folded if both operands are constants.
    fn binary(op: Op, x: UOp, y: UOp) -> UOp {
        let dtype = if op.is_comparison() { DType::Bool } else { x.dtype() };
        let constants = x.as_const().zip(y.as_const());
        let folded = constants.and_then(|(a, b)| crate::evaluate(op, dtype, &[a, b]));
        folded.map_or_else(|| UOp::binary(op, x, y), UOp::constant)
    }
}

impl IndexAlgebra for UopAlgebra {
    type Expr = UOp;

    fn constant(&mut self, value: i64) -> UOp {
        UOp::int(self.dtype, value)
    }

    fn add(&mut self, x: UOp, y: UOp) -> UOp {
        match (x.as_int(), y.as_int()) {
            (Some(0), _) => y,
            (_, Some(0)) => x,
            _ => UopAlgebra::binary(Op::Add, x, y),
        }
    }

    fn mul(&mut self, x: UOp, y: UOp) -> UOp {
        match (x.as_int(), y.as_int()) {
            (Some(0), _) | (_, Some(1)) => x,
            (_, Some(0)) | (Some(1), _) => y,
            _ => UopAlgebra::binary(Op::Mul, x, y),
        }
    }

    fn floordiv(&mut self, x: UOp, y: UOp) -> UOp {
        if y.as_int() == Some(1) { x } else { UopAlgebra::binary(Op::FloorDiv, x, y) }
    }

    fn floormod(&mut self, x: UOp, y: UOp) -> UOp {
        if y.as_int() == Some(1) {
            return UOp::constant(Constant::zero(self.dtype));
        }
        UopAlgebra::binary(Op::FloorMod, x, y)
    }

    fn lt(&mut self, x: UOp, y: UOp) -> UOp {
        UopAlgebra::binary(Op::CmpLt, x, y)
    }

    fn ge(&mut self, x: UOp, y: UOp) -> UOp {
        let less = self.lt(x, y);
        UopAlgebra::binary(Op::CmpNe, less, UOp::constant(Constant::bool(true)))
    }

    fn and(&mut self, x: UOp, y: UOp) -> UOp {
        match (x.as_const(), y.as_const()) {
            (Some(known), _) => {
                if known.is_true() {
                    y
                } else {
                    x
                }
            }
            (_, Some(known)) => {
                if known.is_true() {
                    x
                } else {
                    y
                }
            }
            _ => UOp::binary(Op::And, x, y),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Arg;
    use crate::text::infix;
    use gradiff_view::ShapeTracker;

    #[test]
    fn index_of_flipped_padded_view_matches_tinygrad() {
        let tracker = ShapeTracker::from_shape(&[3, 2]).unwrap().reshape(&[2, 3]).unwrap();
        let tracker = tracker.flip(&[true, false]).unwrap().pad(&[(1, 1), (1, 1)]).unwrap();
        let ranges: Vec<UOp> = tracker
            .shape()
            .iter()
            .zip(0..)
            .map(|(size, axis)| {
                let end = UOp::int(DType::I32, *size);
                UOp::new(Op::Range, DType::I32, [end], Arg::plain_axis(axis))
            })
            .collect();
        let (index, valid) = tracker.index(&mut UopAlgebra { dtype: DType::I32 }, &ranges);
        assert_eq!(infix(&index), "(((ridx0*-3)+ridx1)+5)");
        assert_eq!(
            valid.map(|valid| infix(&valid)).as_deref(),
            Some("(((((ridx0<1)!=True)&(ridx0<3))&((ridx1<1)!=True))&(ridx1<4))")
        );
    }
}
