//! Transcendental functions in terms of arithmetic, for targets that call a library for each value
//! otherwise: vectors compute these at once.

use gradiff_graph::{Arg, Constant, DType, Op, UOp};

/// `2^f` for `f` from -0.5 to 0.5, constant first: least squares of the relative error over
/// Chebyshev nodes, the constant held at 1 so that powers of integers are exact. Off by less than
/// 0.04 units of half an ulp before it is rounded.
const EXP2: [f64; 7] = [
    1.0,
    0.693_147_182_464_599_6,
    0.240_226_477_384_567_26,
    0.055_503_290_146_589_28,
    0.009_618_373_587_727_547,
    0.001_339_984_824_880_957_6,
    0.000_153_707_049_320_623_3,
];

/// Added to a number of small magnitude it leaves no fraction: 1.5 * 2^23.
const NO_FRACTION: f64 = 12_582_912.0;

/// `2^x` of f32: a polynomial of what is left of `x` when it is rounded, times two powers of two, so
/// that results below the normal ones are rounded once. Within 2 ulp; exact for integers.
pub(crate) fn exp2(x: &UOp) -> UOp {
    let float = |value: f64| UOp::constant(Constant::float(DType::F32, value));
    let int = |value: i64| UOp::int(DType::I32, value);
    let [add, sub, mul] = [Op::Add, Op::Sub, Op::Mul]
        .map(|op| move |x: &UOp, y: &UOp| UOp::binary(op, x.clone(), y.clone()));
    let below =
        |x: &UOp, y: &UOp| UOp::new(Op::CmpLt, DType::Bool, [x.clone(), y.clone()], Arg::None);
    // Beyond these the result is infinite or zero; NaN stays as it is.
    let (high, low) = (float(129.0), float(-151.0));
    let x = UOp::select(below(&high, x), high, x.clone());
    let x = UOp::select(below(&x, &low), low, x);
    let shifted = add(&x, &float(NO_FRACTION));
    let rest = sub(&x, &sub(&shifted, &float(NO_FRACTION)));
    let power = EXP2.iter().rev().map(|factor| float(*factor));
    let power = power.reduce(|sum, factor| add(&mul(&sum, &rest), &factor)).unwrap_or(rest);
    let bits = |value: UOp, dtype| UOp::new(Op::Bitcast, dtype, [value], Arg::None);
    let zero = i64::from((NO_FRACTION as f32).to_bits());
    let exponent = sub(&bits(shifted, DType::I32), &int(zero));
    let half = UOp::binary(Op::Shr, exponent.clone(), int(1));
    let scale = |exponent: &UOp| {
        let biased = add(exponent, &int(127));
        bits(UOp::binary(Op::Shl, biased, int(23)), DType::F32)
    };
    mul(&mul(&power, &scale(&half)), &scale(&sub(&exponent, &half)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradiff_graph::{Variable, evaluate};
    use rustc_hash::FxHashMap;

    /// The value of a graph of scalars.
    fn value(root: &UOp, x: &UOp, at: f32) -> f32 {
        let mut values: FxHashMap<UOp, Constant> = FxHashMap::default();
        for node in root.toposort() {
            let value = if node == *x {
                Constant::from_bits(DType::F32, at.to_bits().into())
            } else if let Some(value) = node.as_const() {
                value
            } else {
                let src: Vec<Constant> = node.src().iter().map(|src| values[src]).collect();
                evaluate(node.op(), node.dtype(), &src).unwrap_or(Constant::zero(node.dtype()))
            };
            values.insert(node, value);
        }
        f32::from_bits(values[root].bits() as u32)
    }

    #[test]
    fn exp2_is_within_two_ulp() {
        let name = Variable { name: "x".to_owned(), min: 0, max: 0 };
        let x = UOp::new(Op::DefineVar, DType::F32, [], Arg::Var(std::sync::Arc::new(name)));
        let root = exp2(&x);
        let mut worst: f64 = 0.0;
        let inputs = (0..=u32::MAX / 99_991).map(|step| f32::from_bits(step * 99_991));
        for at in inputs.filter(|at| -160.0 < *at && *at < 128.0) {
            let (exact, found) = (f64::from(at).exp2(), f64::from(value(&root, &x, at)));
            let ulp =
                f64::from(f32::from_bits((exact as f32).to_bits() + 1)) - f64::from(exact as f32);
            worst = worst.max((found - exact).abs() / ulp);
        }
        assert!(0.4 < worst && worst < 2.0, "{worst}");
        for at in [-149.0f32, -126.0, -3.0, 0.0, -0.0, 5.0, 127.0] {
            assert_eq!(value(&root, &x, at), at.exp2(), "{at}");
        }
        assert_eq!(value(&root, &x, f32::INFINITY), f32::INFINITY);
        assert_eq!(value(&root, &x, 128.0), f32::INFINITY);
        assert_eq!(value(&root, &x, f32::NEG_INFINITY), 0.0);
        assert_eq!(value(&root, &x, -1e30), 0.0);
        assert!(value(&root, &x, f32::NAN).is_nan());
    }
}
