//! Vector arithmetic of the languages with built-in vectors: OpenCL C, Metal and WGSL. Ops without
//! an operator become helpers like `max_f32x4`, which the prelude defines if they are used.
//!
//! Arithmetic of 16-bit floats is supported only if the language has the type.

use gradiff_graph::{Constant, DType, Op};

use crate::code::{Code, code, join};
use crate::dialect::{Alu, Text, Value};
use crate::helpers::parse_vector;

type WriteFunction = fn(&Code, &str, &[(&Code, &str)], &Code) -> Code;

/// The vector syntax in which these languages differ.
pub(crate) struct VectorSyntax {
    /// The name of the vector type of a dtype and number of lanes; a mask has this number of bytes
    /// per lane.
    pub(crate) type_name: fn(DType, u8, u8) -> Option<Code>,
    /// A vector of this type with these lanes, or the splat of a single value.
    pub(crate) make: fn(&Code, &Code) -> Code,
    /// A bit cast to this type.
    pub(crate) bitcast: fn(&Code, &Code) -> Code,
    /// A conversion of the lanes to this type.
    pub(crate) convert: fn(&Code, &Code) -> Code,
    /// Returns whether conversions between these types are casts in every implementation.
    pub(crate) converts: fn(from: DType, to: DType) -> bool,
    /// Selects per lane: `y` where the mask is set, else `z`.
    pub(crate) select: fn(mask: &Code, y: &Code, z: &Code) -> Code,
    /// Lane `n` of a vector.
    pub(crate) lane: fn(&Code, usize) -> Code,
    /// A constant of exactly these bits.
    pub(crate) constant: fn(Constant) -> Option<Code>,
    /// A scalar op.
    pub(crate) scalar: fn(&Alu) -> Option<Code>,
    /// A function definition: return type, name, types and names of the parameters, result.
    pub(crate) function: WriteFunction,
    /// The lanes in which two vectors are not equal; true for NaN.
    pub(crate) not_equal: fn(&Code, &Code) -> Code,
    /// True if vectors of bools are masks: integers as wide as the compared type.
    pub(crate) has_masks: bool,
    /// True if signed arithmetic wraps.
    pub(crate) wraps: bool,
    /// True if shift amounts are vectors of u32.
    pub(crate) has_unsigned_amounts: bool,
    /// Returns whether the language has the type.
    pub(crate) is_native: fn(DType) -> bool,
}

impl VectorSyntax {
    /// Renders an elementwise op.
    pub(crate) fn alu(&self, alu: &Alu) -> Option<Text> {
        let (src, from, lanes) = (alu.codes(), alu.from(), alu.lanes);
        let kind = (self.type_name)(alu.dtype, lanes, 1)?;
        let is_storage_only = |dtype: DType| dtype.is_half() && !(self.is_native)(dtype);
        if is_storage_only(from) && !matches!(alu.op, Op::Bitcast) {
            return None;
        }
        let code = match alu.op {
            Op::Cast if from == alu.dtype => return Some(unchanged(&alu.src[0])),
            Op::Cast if is_storage_only(alu.dtype) => return None,
            Op::Cast => return self.cast(alu),
            Op::Bitcast if from == alu.dtype => src[0].clone(),
            Op::Bitcast if from.size_bytes() != alu.dtype.size_bytes() => return None,
            Op::Bitcast if [from, alu.dtype].contains(&DType::Bool) => return None,
            Op::Bitcast => (self.bitcast)(&kind, src[0]),
            Op::Where if is_storage_only(alu.dtype) => return None,
            Op::Where => return Some(self.where_op(alu)),
            op => match from {
                DType::Bool => return self.bool_op(alu),
                _ if from.is_float() => self.float_op(op, from, lanes, &src)?,
                _ => self.int_op(alu)?,
            },
        };
        let is_mask = alu.op.is_comparison() && self.has_masks;
        Some(Text { code, mask_bytes: if is_mask { from.size_bytes() as u8 } else { 0 } })
    }

    /// Converts a mask to this number of bytes per lane; the bools themselves if the language has
    /// no masks.
    pub(crate) fn mask(&self, value: &Value, bytes: u8) -> Code {
        if !self.has_masks || value.mask_bytes == bytes {
            return value.code.clone();
        }
        let kind = (self.type_name)(DType::Bool, value.lanes, bytes).unwrap_or_default();
        (self.convert)(&kind, value.code)
    }

    fn where_op(&self, alu: &Alu) -> Text {
        let [gate, x, y] = [&alu.src[0], &alu.src[1], &alu.src[2]];
        let is_bool = alu.dtype == DType::Bool;
        let bytes = if is_bool { x.mask_bytes } else { alu.dtype.size_bytes() as u8 };
        let no = if is_bool { self.mask(y, bytes) } else { y.code.clone() };
        let code = (self.select)(&self.mask(gate, bytes), x.code, &no);
        Text { code, mask_bytes: if is_bool { bytes } else { 0 } }
    }

    fn bool_op(&self, alu: &Alu) -> Option<Text> {
        let first = alu.src.first()?;
        let second = alu.src.get(1).map(|value| self.mask(value, first.mask_bytes));
        let (x, y) = (first.code, second.unwrap_or_default());
        let not = if self.has_masks { "~" } else { "!" };
        let code = match (alu.op, self.has_masks) {
            (Op::Neg, _) => x.clone(),
            (Op::Add | Op::Max | Op::Or, _) => code!("({}|{})", x, y),
            (Op::Mul | Op::Min | Op::And, _) => code!("({}&{})", x, y),
            (Op::CmpLt, _) => code!("({not}{}&{})", x, y),
            (Op::Sub | Op::CmpNe | Op::Xor, true) => code!("({}^{})", x, y),
            (Op::Sub | Op::CmpNe | Op::Xor, false) => code!("({}!={})", x, y),
            _ => return None,
        };
        Some(Text { code, mask_bytes: first.mask_bytes })
    }

    /// A constant in all lanes.
    fn splat(&self, value: Constant, lanes: u8) -> Option<Code> {
        let kind = (self.type_name)(value.dtype(), lanes, 1)?;
        Some((self.make)(&kind, &(self.constant)(value)?))
    }

    fn float_op(&self, op: Op, dtype: DType, lanes: u8, src: &[&Code]) -> Option<Code> {
        let helper = || Code::call(format!("{op}_{dtype}x{lanes}"), src);
        let sign = match op {
            Op::Neg => return Some(code!("(-{})", src[0])),
            Op::Exp2 | Op::Log2 | Op::Sin | Op::Sqrt | Op::Pow | Op::MulAcc => {
                return Some(helper());
            }
            // Only WGSL keeps them; they are legalised for the other languages.
            Op::Max | Op::Min => return Some(helper()),
            Op::Add => "+",
            Op::Sub => "-",
            Op::Mul => "*",
            Op::FDiv => "/",
            Op::CmpLt => "<",
            Op::CmpNe => return Some((self.not_equal)(src[0], src[1])),
            _ => return None,
        };
        Some(code!("({}{}{})", src[0], sign, src[1]))
    }

    fn int_op(&self, alu: &Alu) -> Option<Code> {
        let (op, dtype, lanes, src) = (alu.op, alu.from(), alu.lanes, alu.codes());
        let helper = |op: Op| Some(Code::call(format!("{op}_{dtype}x{lanes}"), &src));
        let infix = |sign: &str| Some(code!("({}{}{})", src[0], sign, src[1]));
        let sign = match op {
            Op::Max | Op::Min => return helper(op),
            Op::Shl | Op::Shr if self.has_unsigned_amounts => {
                let kind = (self.type_name)(DType::U32, lanes, 1)?;
                let sign = if op == Op::Shl { "<<" } else { ">>" };
                return Some(code!("({}{}{})", src[0], sign, (self.convert)(&kind, src[1])));
            }
            Op::Shr => return infix(">>"),
            Op::CDiv => return infix("/"),
            Op::CMod => return infix("%"),
            Op::Neg if !dtype.is_signed() => {
                let zero = self.splat(Constant::zero(dtype), lanes)?;
                return Some(code!("({}-{})", zero, src[0]));
            }
            Op::CmpLt => return infix("<"),
            Op::CmpNe => return infix("!="),
            Op::And => return infix("&"),
            Op::Or => return infix("|"),
            Op::Xor => return infix("^"),
            Op::Neg => "-",
            Op::Add => "+",
            Op::Sub => "-",
            Op::Mul => "*",
            Op::Shl => "<<",
            _ => return None,
        };
        // Signed arithmetic that may overflow is done in the unsigned type.
        let is_unsigned = alu.may_wrap && dtype.is_signed() && !self.wraps;
        let unsigned = (self.type_name)(dtype.unsigned(), lanes, 1)?;
        let src: Vec<Code> = match is_unsigned {
            true => src.iter().map(|source| (self.bitcast)(&unsigned, source)).collect(),
            false => src.into_iter().cloned().collect(),
        };
        let code = match op {
            Op::Neg => code!("(-{})", src[0]),
            _ => code!("({}{}{})", src[0], sign, src[1]),
        };
        let kind = (self.type_name)(dtype, lanes, 1)?;
        Some(if is_unsigned { (self.bitcast)(&kind, &code) } else { code })
    }

    fn cast(&self, alu: &Alu) -> Option<Text> {
        let (value, to, lanes) = (alu.src.first()?, alu.dtype, alu.lanes);
        let from = value.dtype;
        let kind = (self.type_name)(to, lanes, 1)?;
        Some(match (from, to) {
            (DType::Bool, _) => {
                let ones = self.splat(Constant::one(to), lanes)?;
                let zero = self.splat(Constant::zero(to), lanes)?;
                let mask = self.mask(value, to.size_bytes() as u8);
                (self.select)(&mask, &ones, &zero).into()
            }
            (_, DType::Bool) => {
                let zero = self.splat(Constant::zero(from), lanes)?;
                let mask_bytes = if self.has_masks { from.size_bytes() as u8 } else { 0 };
                Text { code: (self.not_equal)(value.code, &zero), mask_bytes }
            }
            _ if from.is_float() && to.is_int()
                || from.is_half()
                || to.is_half()
                || !(self.converts)(from, to) =>
            {
                Code::call(format!("cast_{from}_{to}x{lanes}"), &[value.code]).into()
            }
            _ => (self.convert)(&kind, value.code).into(),
        })
    }

    /// Returns the definition of the helper of this name, which computes lane by lane.
    pub(crate) fn definition(&self, word: &str) -> Option<Code> {
        let (function, dtype, lanes) = parse_vector(word)?;
        let (op, from) = match function.split_once('_') {
            Some(("cast", from)) => (Op::Cast, DType::from_name(from)?),
            _ => (Op::from_name(function)?, dtype),
        };
        let kind = (self.type_name)(dtype, lanes, 1)?;
        let source = (self.type_name)(from, lanes, 1)?;
        let names: Vec<&str> = ["x", "y", "z"].into_iter().take(op.row().arity.0).collect();
        let values = (0..usize::from(lanes)).map(|lane| {
            let code = |name: &&str| (self.lane)(&Code::from(*name), lane);
            let codes: Vec<Code> = names.iter().map(code).collect();
            let value = |code| Value { code, dtype: from, lanes: 1, mask_bytes: 0, known: None };
            let src = codes.iter().map(value).collect();
            (self.scalar)(&Alu { op, dtype, lanes: 1, src, may_wrap: true, min_max: None })
        });
        let values: Vec<Code> = values.collect::<Option<_>>()?;
        let parameters: Vec<(&Code, &str)> = names.iter().map(|name| (&source, *name)).collect();
        let value = (self.make)(&kind, &join(&values, ", "));
        Some((self.function)(&kind, word, &parameters, &value))
    }
}

fn unchanged(value: &Value) -> Text {
    Text { code: value.code.clone(), mask_bytes: value.mask_bytes }
}
