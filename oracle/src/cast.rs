//! Conversions between dtypes. Unlike the result of other float ops, that of a cast is always
//! rounded: it is the nearest number of the new dtype, and no legal computation keeps a higher
//! precision.

use gradiff_corpus::DType;

use crate::arithmetic::{with_sign, within};
use crate::cell::{Cell, Real, Reason};
use crate::format::{decode, encode, format};
use crate::integer::{in_range, value, wrap};

/// Converts `x` of dtype `from` to dtype `to`.
pub(crate) fn cast(from: DType, to: DType, x: Cell) -> Cell {
    if from == to {
        return x;
    }
    match x {
        Cell::Unspecified(_) => x,
        Cell::Int(bits) if to.is_float() => int_to_float(to, value(from, bits)),
        Cell::Int(bits) if to == DType::Bool => Cell::bool(bits != 0),
        Cell::Int(bits) => Cell::Int(wrap(to, value(from, bits))),
        _ if to.is_float() => float_to_float(from, to, x),
        _ if to == DType::Bool => float_to_bool(x),
        _ => float_to_int(to, x),
    }
}

fn int_to_float(to: DType, number: i128) -> Cell {
    let magnitude = number.unsigned_abs() as u64;
    Cell::from_bits(to, format(to).round(number < 0, magnitude, 0))
}

fn float_to_float(from: DType, to: DType, x: Cell) -> Cell {
    let (source, target) = (format(from), format(to));
    // The largest f32 is beyond the largest bf16, whose exponents are the same.
    let wider_range = target.overflow > source.overflow;
    let real = match x {
        Cell::Real(real) => real.leaf(),
        Cell::Inf { overflowed: true, .. } if wider_range => {
            return Cell::Unspecified(Reason::Overflow);
        }
        Cell::Nan(_) => return Cell::nan(),
        _ => return x,
    };
    if real.is_exact() {
        let rounded = decode(to, encode(to, real.hi));
        return if rounded.is_infinite() {
            Cell::infinity(rounded < 0.0)
        } else {
            Cell::Real(Real { hi: rounded, zero_sign: real.sign(), ..real })
        };
    }
    if target.precision >= source.precision && wider_range {
        // `lo` is used for f64 only; for other dtypes the radius of the ball must cover it.
        return Cell::Real(Real { lo: 0.0, radius: real.radius + real.lo.abs(), ..real });
    }
    // Rounding is monotone: the result is between what the ends of the bounds are rounded to.
    let [low, high] = [real.lower(), real.upper()].map(|end| decode(to, encode(to, end)));
    match (low == high, low.is_infinite() || high.is_infinite()) {
        (true, true) => Cell::infinity(low < 0.0),
        (false, true) => Cell::Unspecified(Reason::Overflow),
        (true, false) if low == 0.0 => Cell::zero(real.sign()),
        (true, false) => Cell::exact(low),
        (false, false) => with_sign(real.sign(), within(low, high)),
    }
}

/// Converts a float to a bool: `x != 0`, which is true for NaN.
fn float_to_bool(x: Cell) -> Cell {
    match x {
        Cell::Real(real) if real.is_zero() => Cell::bool(false),
        Cell::Real(real) if real.may_be_zero() => Cell::Unspecified(Reason::Straddle),
        Cell::Unspecified(_) => x,
        Cell::Real(_) | Cell::Inf { .. } | Cell::Nan(_) | Cell::Int(_) => Cell::bool(true),
    }
}

/// Converts a float to an integer, truncating toward zero.
fn float_to_int(to: DType, x: Cell) -> Cell {
    let Cell::Real(real) = x else {
        return match x {
            Cell::Inf { overflowed: true, .. } => Cell::Unspecified(Reason::Overflow),
            Cell::Unspecified(_) => x,
            _ => Cell::Unspecified(Reason::CastOutOfRange),
        };
    };
    // `as` saturates at the ends of i128, which are out of range for every dtype.
    let (low, high) = (real.lower().trunc() as i128, real.upper().trunc() as i128);
    if !in_range(to, low) || !in_range(to, high) {
        Cell::Unspecified(Reason::CastOutOfRange)
    } else if low != high {
        Cell::Unspecified(Reason::Straddle)
    } else {
        Cell::Int(wrap(to, low))
    }
}

/// Reinterprets the bits of `x` as dtype `to`, which has the same size.
pub(crate) fn bitcast(from: DType, to: DType, x: Cell) -> Cell {
    match x {
        Cell::Unspecified(_) => x,
        Cell::Inf { overflowed: true, .. } => Cell::Unspecified(Reason::Overflow),
        Cell::Real(real) if real.is_sign_free() => Cell::Unspecified(Reason::ZeroSign),
        _ => match x.bits(from) {
            Some(bits) => Cell::from_bits(to, bits),
            None => Cell::Unspecified(Reason::InexactBits),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(from: DType, to: DType, bits: u64, expected: Option<u64>) {
        let got = cast(from, to, Cell::from_bits(from, bits)).bits(to);
        assert_eq!(got, expected, "{} {bits:#x} to {}", from.name(), to.name());
    }

    fn check_real(to: DType, value: f64, expected: Option<i128>) {
        let expected = expected.map(|number| wrap(to, number));
        check(DType::F64, to, value.to_bits(), expected);
    }

    #[test]
    fn ints_wrap_and_bools_are_zero_or_one() {
        check(DType::I32, DType::I8, 0x1ff, Some(0xff));
        check(DType::I8, DType::U64, 0xff, Some(u64::MAX));
        check(DType::U8, DType::I32, 0xff, Some(0xff));
        check(DType::I16, DType::Bool, 0x100, Some(1));
        check(DType::Bool, DType::I64, 1, Some(1));
        check(DType::Bool, DType::F16, 1, Some(0x3c00));
    }

    #[test]
    fn ints_round_once_to_floats() {
        check(DType::I32, DType::F32, (1 << 24) + 1, Some(f32::to_bits(16777216.0).into()));
        check(DType::U64, DType::F32, u64::MAX, Some(f32::to_bits(18446744073709551616.0).into()));
        check(DType::U32, DType::F16, 65520, Some(0x7c00));
        check(DType::U32, DType::F16, 65519, Some(0x7bff));
        check(DType::I64, DType::F64, (1 << 53) + 1, Some(f64::to_bits(9007199254740992.0)));
        check(DType::I8, DType::BF16, 0xff, Some(0xbf80));
    }

    #[test]
    fn floats_truncate_toward_zero_within_range_only() {
        check_real(DType::I8, 127.9, Some(127));
        check_real(DType::I8, -128.9, Some(-128));
        check_real(DType::I8, 128.0, None);
        check_real(DType::U8, -0.9, Some(0));
        check_real(DType::U8, -1.0, None);
        check_real(DType::U64, 18446744073709549568.0, Some(18446744073709549568));
        check_real(DType::I64, 9223372036854775808.0, None);
        check_real(DType::I32, f64::NAN, None);
        check_real(DType::Bool, f64::NAN, Some(1));
        check_real(DType::Bool, -0.0, Some(0));
        check_real(DType::Bool, 5e-324, Some(1));
    }

    #[test]
    fn narrowing_rounds_once() {
        // Rounded to f32 first, this would become a tie and round down to 1.
        let value = 1.0 + 2f64.powi(-11) + 2f64.powi(-40);
        check(DType::F64, DType::F16, value.to_bits(), Some(0x3c01));
        check(DType::F64, DType::F32, 1e300f64.to_bits(), Some(0x7f80_0000));
        check(DType::F64, DType::F16, (-0.0f64).to_bits(), Some(0x8000));
        check(DType::F32, DType::F16, 0x7fc0_0000, None);
    }

    #[test]
    fn casts_are_decided_by_the_bounds() {
        let near = |center, radius| Cell::Real(Real::ball(center, 0.0, radius));
        assert_eq!(cast(DType::F32, DType::I32, near(2.5, 0.25)), Cell::Int(2));
        let straddle = Cell::Unspecified(Reason::Straddle);
        assert_eq!(cast(DType::F32, DType::I32, near(3.0, 0.25)), straddle);
        assert_eq!(cast(DType::F32, DType::Bool, near(0.0, 0.25)), straddle);
        assert_eq!(cast(DType::F32, DType::I32, near(0.0, 0.25)), Cell::Int(0));
    }

    #[test]
    fn computed_numbers_round_to_the_nearest() {
        let near = |center, radius| cast(DType::F32, DType::BF16, ball(center, radius));
        // 0.9090909 is between 0.90625 and 0.91015625, and closer to the latter.
        let unit = 2f64.powi(-24);
        assert_eq!(near(1.0 / 1.1, unit).bits(DType::BF16), Some(0x3f69));
        // Beside a tie both numbers are right, and no third one.
        let Cell::Real(tie) = near(1.0 + 2f64.powi(-8), unit) else { panic!("a number") };
        assert!(tie.lower() <= 1.0 && 1.0 + 2f64.powi(-7) <= tie.upper());
        assert!(1.0 - 2f64.powi(-8) < tie.lower() && tie.upper() < 1.0 + 2f64.powi(-6));
        assert_eq!(near(0.0, 1e-60), Cell::zero(None));
        assert_eq!(near(-1e-50, 1e-60), Cell::zero(Some(true)));
        let edge = format(DType::BF16).overflow;
        assert_eq!(near(edge, 1e30), Cell::Unspecified(Reason::Overflow));
        assert_eq!(near(-2.0 * edge, 1e30), Cell::infinity(true));
    }

    fn ball(center: f64, radius: f64) -> Cell {
        Cell::Real(Real::ball(center, 0.0, radius))
    }

    #[test]
    fn nan_bits_survive_movement_but_no_arithmetic() {
        let nan = Cell::from_bits(DType::F32, 0x7fc0_1234);
        assert_eq!(bitcast(DType::F32, DType::U32, nan), Cell::Int(0x7fc0_1234));
        let inexact = Cell::Unspecified(Reason::InexactBits);
        assert_eq!(bitcast(DType::F32, DType::U32, Cell::nan()), inexact);
        let ball = Cell::Real(Real::ball(1.0, 0.0, 0.25));
        assert_eq!(bitcast(DType::F32, DType::U32, ball), inexact);
        assert_eq!(bitcast(DType::I16, DType::F16, Cell::Int(0x3c00)), Cell::exact(1.0));
    }
}
