//! Folding: ops over constants, against the scalar meanings of this crate.

use gradiff::graph::op::OPS;
use gradiff::graph::{Constant, DType, Op, evaluate};
use gradiff_eval::scalar;

use super::Draw;
use super::values::{largest, special};

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
    let is_right = |found| {
        let mut wanted = wanted.into_iter().chain(contracted(op, to, &src));
        wanted.any(|wanted| is_same(op, found, wanted))
    };
    match wanted {
        Some(wanted) if !found.is_some_and(is_right) => {
            Err(format!("{op} of {src:?} is folded to {found:?}, expected {wanted:?}"))
        }
        _ => Ok(()),
    }
}

/// The values of a multiply-add of floats whose product is not rounded: the sum is rounded at once,
/// or in f32 first. None of another op.
fn contracted(op: Op, dtype: DType, src: &[Constant]) -> Vec<Constant> {
    let numbers: Option<Vec<f64>> = src.iter().map(|x| scalar::to_float(*x)).collect();
    let (Op::MulAcc, Some([x, y, z])) = (op, numbers.as_deref()) else { return Vec::new() };
    let mut sums = vec![x.mul_add(*y, *z)];
    if dtype.bits() == 16 {
        let [x, y, z] = [x, y, z].map(|x| *x as f32);
        sums.push(f64::from(x * y + z));
    }
    sums.into_iter().filter_map(|sum| scalar::float(dtype, sum)).collect()
}

/// Returns whether two values are equal, or nearly equal if the op is not rounded once.
fn is_same(op: Op, found: Constant, wanted: Constant) -> bool {
    if found == wanted {
        return true;
    }
    let dtype = wanted.dtype();
    let (Some(found), Some(wanted)) = (scalar::to_float(found), scalar::to_float(wanted)) else {
        return false;
    };
    if found.is_nan() && wanted.is_nan() {
        return true;
    }
    // Libraries differ in the last digits, so that a value near the largest may overflow.
    let [found, wanted] = [found, wanted].map(|x| x.clamp(-largest(dtype), largest(dtype)));
    let off = (found - wanted).abs();
    let is_near = |error: f64| off < 2f64.powi(-6) * wanted.abs().max(1e-30) && off <= error;
    allowed(op, dtype, wanted).is_some_and(is_near)
}

/// The error that the fold of a function may have; `None` for an op that is rounded once. The
/// oracle allows 4 ulps of f32 or 5 of f64, and for a power 4 more for each doubling of its value;
/// those of a sine may be ulps of 1. The expected value comes from a library, too, so that 8 are
/// allowed here. 16 bits are then rounded once.
fn allowed(op: Op, dtype: DType, wanted: f64) -> Option<f64> {
    let (unit, rounding, least) = match dtype {
        DType::F16 => (2f64.powi(-23), 2f64.powi(-10), 2f64.powi(-24)),
        DType::BF16 => (2f64.powi(-23), 2f64.powi(-7), 2f64.powi(-133)),
        DType::F32 => (2f64.powi(-23), 0.0, 2f64.powi(-149)),
        _ => (2f64.powi(-52), 0.0, f64::from_bits(1)),
    };
    let (count, scale) = match op {
        Op::Exp2 | Op::Log2 => (8.0, wanted.abs()),
        Op::Sin => (8.0, 1.0),
        Op::Pow => (8.0 + 8.0 * wanted.abs().max(least).log2().abs(), wanted.abs()),
        _ => return None,
    };
    // Near zero, an error is of as many of the smallest numbers.
    Some(count * unit * scale + rounding * wanted.abs() + 8.0 * least)
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
        assert!(is_same(Op::Sin, float(0.5), float(0.500_000_5)));
        assert!(!is_same(Op::Sin, float(0.5), float(0.500_002)));
        assert!(!is_same(Op::Sin, float(0.5), float(0.6)));
        assert!(!is_same(Op::MulAcc, float(1.0), float(2.0)));
        let infinity = float(f64::INFINITY);
        let largest = float(f64::from(f32::MAX));
        assert!(is_same(Op::Exp2, infinity, largest) && is_same(Op::Pow, largest, infinity));
        assert!(!is_same(Op::Exp2, infinity, float(3.4e38)));
        assert!(!is_same(Op::Pow, float(f64::NEG_INFINITY), infinity));
        for special in [float(f64::NAN), infinity] {
            assert!(!is_same(Op::Exp2, special, float(4.0)), "{special:?}");
            assert!(!is_same(Op::Exp2, float(4.0), special), "{special:?}");
        }
    }

    #[test]
    fn folds_have_the_digits_of_their_type() {
        for (dtype, digits) in
            [(DType::F64, 52), (DType::F32, 23), (DType::F16, 10), (DType::BF16, 7)]
        {
            let near = |units: f64| Constant::float(dtype, 1.0 + units * 2f64.powi(-digits));
            for op in [Op::Exp2, Op::Log2, Op::Pow, Op::Sin] {
                let is_near = |units: f64| is_same(op, near(units), near(0.0));
                let far = if digits < 23 { 3.0 } else { 17.0 };
                assert!(is_near(1.0) && !is_near(far), "{op} of {dtype}");
            }
            let double = Constant::float(dtype, 2.0);
            assert!(!is_same(Op::Mul, near(1.0), near(0.0)) && is_same(Op::Mul, double, double));
        }
    }

    #[test]
    fn multiply_adds_round_their_product_or_not() {
        let half = |value| Constant::float(DType::F16, value);
        // The square is 1 + 2^-9 + 2^-20, which f16 rounds to 1 + 2^-9.
        let (x, z) = (1.0 + 2f64.powi(-10), -1.0 - 2f64.powi(-9));
        let sums = contracted(Op::MulAcc, DType::F16, &[half(x), half(x), half(z)]);
        assert_eq!(sums, [half(2f64.powi(-20)); 2]);
        assert!(contracted(Op::Add, DType::F16, &[half(x), half(z)]).is_empty());
    }
}
