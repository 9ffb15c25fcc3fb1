//! Folding: ops over constants, against the scalar meanings of this crate.

use gradiff::graph::op::OPS;
use gradiff::graph::{Constant, DType, Op, evaluate};
use gradiff_eval::scalar;

use super::Draw;
use super::values::special;

/// Number of folds of a call.
const FOLDS: usize = 200;
/// Number of folds that are tried before a crate is blamed.
const FOLDS_OF_BLAME: usize = 40_000;

/// Checks drawn folds.
pub(super) fn folds(draw: &mut Draw) -> Result<(), String> {
    (0..FOLDS).try_for_each(|_| fold(draw))
}

/// The first wrong fold among many: if there is one, nothing that relies on folds can be judged.
pub(crate) fn wrong_fold() -> Option<String> {
    let mut draw = Draw::new(0);
    (0..FOLDS_OF_BLAME).find_map(|_| fold(&mut draw).err())
}

fn fold(draw: &mut Draw) -> Result<(), String> {
    let ops: Vec<Op> = OPS.iter().map(|row| row.op).filter(|op| op.is_elementwise()).collect();
    let dtypes: Vec<DType> = DType::ALL.into_iter().filter(|dtype| *dtype != DType::Void).collect();
    // There are as many casts as pairs of types.
    let op = if draw.one_in(4) { Op::Cast } else { draw.pick(&ops) };
    let dtype = draw.pick(&dtypes);
    let (to, count) = match op {
        Op::Cast | Op::Bitcast => (draw.pick(&dtypes), 1),
        Op::CmpLt | Op::CmpNe => (DType::Bool, 2),
        op => (dtype, op.row().arity.0),
    };
    let mut src: Vec<Constant> = (0..count).map(|_| special(draw, dtype)).collect();
    match op {
        Op::Where => src[0] = special(draw, DType::Bool),
        // Most numbers are no valid shift.
        Op::Shl | Op::Shr if !draw.one_in(4) => {
            let by = draw.below(scalar::bits(dtype).max(1) as usize + 1);
            src[1] = scalar::int(dtype, by as i128).unwrap_or(src[1]);
        }
        _ if draw.one_in(6) => src.iter_mut().skip(1).for_each(|x| *x = special(draw, dtype)),
        _ if draw.one_in(6) => src = vec![src[0]; count],
        _ => {}
    }
    let wanted = scalar::evaluate(op, to, &src);
    let found = crate::catch(|| evaluate(op, to, &src));
    let found = found.map_err(|panic| format!("{op} of {src:?} as {to}: {panic}"))?;
    match wanted {
        Some(wanted) if !found.is_some_and(|found| is_same(op, found, wanted)) => {
            Err(format!("{op} of {src:?} is folded to {found:?}, expected {wanted:?}"))
        }
        _ => Ok(()),
    }
}

/// Returns whether two values are equal, or nearly equal if the op is not rounded once.
fn is_same(op: Op, found: Constant, wanted: Constant) -> bool {
    if found == wanted {
        return true;
    }
    let (Some(found), Some(wanted)) = (scalar::to_float(found), scalar::to_float(wanted)) else {
        return false;
    };
    if found.is_nan() && wanted.is_nan() {
        return true;
    }
    match op {
        // Libraries differ in the last digits, most of all where a value overflows its type.
        Op::Exp2 | Op::Log2 | Op::Sin | Op::Pow => {
            let off = (found - wanted).abs() / wanted.abs().max(1e-30);
            off < 2f64.powi(-6) || !wanted.is_finite() || !found.is_finite()
        }
        // The sum may be rounded with the product or after it.
        Op::MulAcc => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folds_are_right() {
        assert_eq!(wrong_fold(), None);
    }

    #[test]
    fn wrong_folds_are_said() {
        let int = |value| Constant::int(DType::I32, value);
        assert!(is_same(Op::Add, int(2), int(2)) && !is_same(Op::Add, int(2), int(3)));
        let float = |value| Constant::float(DType::F32, value);
        assert!(!is_same(Op::Mul, float(0.0), float(-0.0)));
        assert!(is_same(Op::Max, Constant::from_bits(DType::F32, 0x7f80_0001), float(f64::NAN)));
        assert!(is_same(Op::Sin, float(0.5), float(0.500_001)));
        assert!(!is_same(Op::Sin, float(0.5), float(0.6)));
    }
}
