//! Float ops as SMT-LIB floating-point terms.
//!
//! Sums, products, quotients and roots of 16-bit floats are computed in f32 and rounded once more,
//! which is the correctly rounded result (f32 has more than twice the bits and two to spare), so the
//! theory's own ops are what is computed. Functions without a fixed result have no terms.

use gradiff_graph::{Constant, DType, Op};

use super::Unsupported;
use super::encode::{Type, Value, float_literal, float_shape};
use super::number::{Number, Script, Theory};

/// An elementwise op over floats.
pub(super) fn op(op: Op, src: &[Value]) -> Result<Value, Unsupported> {
    let mut texts = Vec::new();
    let mut dtype = DType::F32;
    for value in src {
        let Value::Float(text, own) = value else {
            return Err(Unsupported::new("a float op over something else"));
        };
        texts.push(text.as_str());
        dtype = *own;
    }
    // Both are commutative by definition; in one order they are one term.
    if matches!(op, Op::Add | Op::Mul) {
        texts.sort_unstable();
    }
    let one = float_literal(Constant::one(dtype));
    let float = |text: String| Ok(Value::Float(text, dtype));
    match (op, texts.as_slice()) {
        (Op::Neg, [x]) => float(format!("(fp.neg {x})")),
        (Op::Sqrt, [x]) => float(format!("(fp.sqrt RNE {x})")),
        (Op::Recip, [x]) => float(format!("(fp.div RNE {one} {x})")),
        (Op::Add, [x, y]) => float(format!("(fp.add RNE {x} {y})")),
        // IEEE 754 defines x - y as x + (-y).
        (Op::Sub, [x, y]) => {
            let y = format!("(fp.neg {y})");
            let (first, second) = if *x < y.as_str() { (*x, y.as_str()) } else { (y.as_str(), *x) };
            float(format!("(fp.add RNE {first} {second})"))
        }
        (Op::Mul, [x, y]) => float(format!("(fp.mul RNE {x} {y})")),
        (Op::FDiv, [x, y]) => float(format!("(fp.div RNE {x} {y})")),
        (Op::Max, [x, y]) => float(format!("(ite (or (fp.gt {x} {y}) (fp.isNaN {x})) {x} {y})")),
        (Op::Min, [x, y]) => float(format!("(ite (or (fp.lt {x} {y}) (fp.isNaN {x})) {x} {y})")),
        (Op::CmpLt, [x, y]) => Ok(Value::Truth(format!("(fp.lt {x} {y})"))),
        (Op::CmpNe, [x, y]) => Ok(Value::Truth(format!("(not (fp.eq {x} {y}))"))),
        _ => Err(Unsupported(format!("{op} of floats has no terms"))),
    }
}

/// A cast from bool or float.
pub(super) fn cast(x: &Value, to: Type) -> Result<Value, Unsupported> {
    match (x, to) {
        (Value::Truth(x), Type::Float(dtype)) => {
            let [one, zero] = [Constant::one(dtype), Constant::zero(dtype)].map(float_literal);
            Ok(Value::Float(format!("(ite {x} {one} {zero})"), dtype))
        }
        // A NaN is not 0, so it is true.
        (Value::Float(x, _), Type::Bool) => Ok(Value::Truth(format!("(not (fp.isZero {x}))"))),
        (Value::Float(text, from), Type::Float(dtype)) => {
            if *from == dtype {
                return Ok(x.clone());
            }
            let (exponent, mantissa) = float_shape(dtype);
            Ok(Value::Float(format!("((_ to_fp {exponent} {mantissa}) RNE {text})"), dtype))
        }
        _ => Err(Unsupported::new("a cast of floats to integers")),
    }
}

/// A cast from an integer, rounded once.
pub(super) fn of_int(
    script: &Script,
    number: &Number,
    from: DType,
    to: DType,
) -> Result<Value, Unsupported> {
    if script.theory == Theory::Unbounded {
        return Err(Unsupported::new("a cast to float needs bit-vectors"));
    }
    let (exponent, mantissa) = float_shape(to);
    let name = if from.is_signed() { "to_fp" } else { "to_fp_unsigned" };
    let cut = format!("((_ extract {} 0) {})", from.bits() - 1, number.text);
    Ok(Value::Float(format!("((_ {name} {exponent} {mantissa}) RNE {cut})"), to))
}
