//! Values of WGSL, and the meanings of its operators and functions.

use gradiff::graph::{Constant, DType, Op};
use gradiff_eval::scalar;
use naga::{BinaryOperator, MathFunction, Scalar, ScalarKind, UnaryOperator};

/// A scalar, or a vector of up to four.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Lanes {
    lanes: [Constant; 4],
    count: usize,
}

impl Lanes {
    /// A scalar.
    pub(super) fn one(value: Constant) -> Lanes {
        Lanes { lanes: [value; 4], count: 1 }
    }

    /// A vector of these values.
    ///
    /// # Errors
    /// If there are none, or more than four.
    pub(super) fn of(values: &[Constant]) -> Result<Lanes, String> {
        let first =
            values.first().filter(|_| values.len() <= 4).ok_or("a vector of a wrong width")?;
        let mut lanes = [*first; 4];
        lanes[..values.len()].copy_from_slice(values);
        Ok(Lanes { lanes, count: values.len() })
    }

    /// A vector of equal values.
    pub(super) fn splat(value: Constant, count: usize) -> Lanes {
        Lanes { lanes: [value; 4], count }
    }

    pub(super) fn values(&self) -> &[Constant] {
        &self.lanes[..self.count]
    }

    /// The value of a lane.
    ///
    /// # Errors
    /// If there are fewer lanes.
    pub(super) fn lane(&self, number: usize) -> Result<Constant, String> {
        self.values().get(number).copied().ok_or_else(|| format!("lane {number} of {}", self.count))
    }

    /// The vector with another value in a lane.
    ///
    /// # Errors
    /// If there are fewer lanes.
    pub(super) fn with_lane(mut self, number: usize, value: Constant) -> Result<Lanes, String> {
        self.lane(number)?;
        self.lanes[number] = value;
        Ok(self)
    }

    /// The scalar.
    ///
    /// # Errors
    /// If it is a vector.
    pub(super) fn scalar(&self) -> Result<Constant, String> {
        if self.count == 1 {
            Ok(self.lanes[0])
        } else {
            Err("a vector in place of a scalar".to_string())
        }
    }

    /// The scalar as an integer.
    ///
    /// # Errors
    /// If it is a vector, or a float.
    pub(super) fn int(&self) -> Result<i64, String> {
        let value = scalar::to_int(self.scalar()?).and_then(|value| i64::try_from(value).ok());
        value.ok_or_else(|| format!("{:?} as an index", self.lanes[0]))
    }

    /// The scalar as a bool.
    ///
    /// # Errors
    /// If it is not a bool.
    pub(super) fn truth(&self) -> Result<bool, String> {
        let value = self.scalar()?;
        if value.dtype() == DType::Bool {
            Ok(scalar::is_true(value))
        } else {
            Err("not a bool".into())
        }
    }

    fn zip(
        operands: &[&Lanes],
        function: impl Fn(&[Constant]) -> Result<Constant, String>,
    ) -> Result<Lanes, String> {
        let count = operands.iter().map(|lanes| lanes.count).max().unwrap_or(1);
        if operands.iter().any(|lanes| lanes.count != 1 && lanes.count != count) {
            return Err("vectors of different widths".to_string());
        }
        let lane = |number: usize| {
            let values: Vec<Constant> = operands
                .iter()
                .map(|lanes| lanes.lanes[if lanes.count == 1 { 0 } else { number }])
                .collect();
            function(&values)
        };
        Lanes::of(&(0..count).map(lane).collect::<Result<Vec<_>, _>>()?)
    }
}

/// The type of a scalar.
///
/// # Errors
/// If the engine has no such type.
pub(super) fn dtype_of(scalar: Scalar) -> Result<DType, String> {
    Ok(match (scalar.kind, scalar.width) {
        (ScalarKind::Bool, _) => DType::Bool,
        (ScalarKind::Sint, 4) => DType::I32,
        (ScalarKind::Uint, 4) => DType::U32,
        (ScalarKind::Sint, 8) => DType::I64,
        (ScalarKind::Uint, 8) => DType::U64,
        (ScalarKind::Float, 2) => DType::F16,
        (ScalarKind::Float, 4) => DType::F32,
        (ScalarKind::Float, 8) => DType::F64,
        _ => return Err(format!("the scalar {scalar:?}")),
    })
}

fn bool_of(value: bool) -> Constant {
    Constant::from_bits(DType::Bool, value.into())
}

fn undefined(function: &str, src: &[Constant]) -> String {
    format!("{function} of {src:?}")
}

pub(super) fn unary(op: UnaryOperator, x: &Lanes) -> Result<Lanes, String> {
    Lanes::zip(&[x], |src| {
        let x = src[0];
        let value = match op {
            UnaryOperator::Negate => scalar::evaluate(Op::Neg, x.dtype(), src),
            UnaryOperator::LogicalNot => Some(bool_of(!scalar::is_true(x))),
            UnaryOperator::BitwiseNot => {
                scalar::to_int(x).and_then(|int| scalar::int(x.dtype(), !int))
            }
        };
        value.ok_or_else(|| undefined(&format!("{op:?}"), src))
    })
}

/// A binary operator, sections 8.7 to 8.9. Division by 0, and of the smallest value by -1, gives
/// the dividend, with remainder 0; shift amounts are taken modulo the width of the type.
pub(super) fn binary(op: BinaryOperator, x: &Lanes, y: &Lanes) -> Result<Lanes, String> {
    Lanes::zip(&[x, y], |src| {
        let ([x, y], dtype) = ([src[0], src[1]], src[0].dtype());
        let is_shift = matches!(op, BinaryOperator::ShiftLeft | BinaryOperator::ShiftRight);
        if dtype != y.dtype() && !is_shift {
            return Err(format!("{op:?} of {dtype} and {}", y.dtype()));
        }
        let of = |op: Op| scalar::evaluate(op, dtype, src);
        let swapped = |op: Op| scalar::evaluate(op, dtype, &[y, x]);
        let is_nan = |x: Constant| scalar::to_float(x).is_some_and(f64::is_nan);
        let is_ordered = !is_nan(x) && !is_nan(y);
        let is_less = |found: Option<Constant>| found.map(scalar::is_true);
        let shift = |op: Op| {
            let bits = i128::from(scalar::bits(dtype));
            let amount = scalar::int(dtype, scalar::to_int(y)?.rem_euclid(bits))?;
            scalar::evaluate(op, dtype, &[x, amount])
        };
        let is_float = scalar::to_float(x).is_some();
        let divisor = scalar::to_int(y);
        let smallest = -1i128 << (scalar::bits(dtype).max(1) - 1);
        let is_special =
            divisor == Some(0) || divisor == Some(-1) && scalar::to_int(x) == Some(smallest);
        let equal = of(Op::CmpNe).map(|differs| !scalar::is_true(differs));
        let value = match op {
            BinaryOperator::Add => of(Op::Add),
            BinaryOperator::Subtract => of(Op::Sub),
            BinaryOperator::Multiply => of(Op::Mul),
            BinaryOperator::Divide if is_float => of(Op::FDiv),
            BinaryOperator::Divide if is_special => Some(x),
            BinaryOperator::Divide => of(Op::CDiv),
            BinaryOperator::Modulo if is_float => None,
            BinaryOperator::Modulo if is_special => Some(scalar::zero(dtype)),
            BinaryOperator::Modulo => of(Op::CMod),
            BinaryOperator::Equal => equal.map(bool_of),
            BinaryOperator::NotEqual => equal.map(|equal| bool_of(!equal && is_ordered)),
            BinaryOperator::Less => of(Op::CmpLt),
            BinaryOperator::Greater => swapped(Op::CmpLt),
            BinaryOperator::LessEqual => {
                is_less(swapped(Op::CmpLt)).map(|greater| bool_of(!greater && is_ordered))
            }
            BinaryOperator::GreaterEqual => {
                is_less(of(Op::CmpLt)).map(|less| bool_of(!less && is_ordered))
            }
            BinaryOperator::And | BinaryOperator::LogicalAnd => of(Op::And),
            BinaryOperator::ExclusiveOr => of(Op::Xor),
            BinaryOperator::InclusiveOr | BinaryOperator::LogicalOr => of(Op::Or),
            BinaryOperator::ShiftLeft => shift(Op::Shl),
            BinaryOperator::ShiftRight => shift(Op::Shr),
        };
        value.ok_or_else(|| undefined(&format!("{op:?}"), src))
    })
}

pub(super) fn select(condition: &Lanes, accept: &Lanes, reject: &Lanes) -> Result<Lanes, String> {
    Lanes::zip(&[condition, accept, reject], |src| match src[0].dtype() {
        DType::Bool => Ok(if scalar::is_true(src[0]) { src[1] } else { src[2] }),
        dtype => Err(format!("a choice by {dtype}")),
    })
}

pub(super) fn math(function: MathFunction, src: &[&Lanes]) -> Result<Lanes, String> {
    Lanes::zip(src, |src| {
        let dtype = src[0].dtype();
        let value = match (function, src) {
            // If a float operand is NaN, either operand may result: only integers are allowed.
            (MathFunction::Min, [x, _]) if scalar::to_int(*x).is_some() => {
                scalar::evaluate(Op::Min, dtype, src)
            }
            (MathFunction::Max, [x, _]) if scalar::to_int(*x).is_some() => {
                scalar::evaluate(Op::Max, dtype, src)
            }
            (MathFunction::Abs, [x]) => match scalar::to_float(*x) {
                Some(float) => scalar::float(dtype, float.abs()),
                None => scalar::to_int(*x).and_then(|int| scalar::int(dtype, int.abs())),
            },
            (MathFunction::Sqrt, [_]) => scalar::evaluate(Op::Sqrt, dtype, src),
            (MathFunction::Fma, [_, _, _]) => scalar::evaluate(Op::MulAcc, dtype, src),
            (MathFunction::CountLeadingZeros, [x]) => {
                let spare = 64 - scalar::bits(dtype);
                scalar::int(dtype, i128::from(x.bits().leading_zeros() - spare))
            }
            _ => None,
        };
        value.ok_or_else(|| undefined(&format!("{function:?}"), src))
    })
}

/// A conversion to another type, or to the same bits of that type.
pub(super) fn convert(x: &Lanes, kind: ScalarKind, width: Option<u8>) -> Result<Lanes, String> {
    Lanes::zip(&[x], |src| {
        let (x, from) = (src[0], src[0].dtype());
        let Some(width) = width else {
            let width = from.size_bytes() as u8;
            let to = dtype_of(Scalar { kind, width })?;
            return Ok(Constant::from_bits(to, x.bits()));
        };
        let to = dtype_of(Scalar { kind, width })?;
        let changes_sign = from.is_int() && to.is_int() && from.is_signed() != to.is_signed();
        if changes_sign && from.bits() < to.bits() {
            return Err(format!("{to} of {from}, which implementations extend in two ways"));
        }
        // For a float beyond the range of an integer type the result depends on the device.
        let beyond = || scalar::int(to, 0x5a5a_5a5a_5a5a_5a5a);
        let value = scalar::evaluate(Op::Cast, to, src);
        value.or_else(beyond).ok_or_else(|| undefined(to.name(), src))
    })
}
