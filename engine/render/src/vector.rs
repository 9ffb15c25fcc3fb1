//! Arithmetic of vectors in languages that have it of their own: OpenCL C, Metal and WGSL. What
//! has no operator becomes a named function like `max_f32x4`, written out where it is used.
//!
//! 16-bit floats have arithmetic where the language has the type; elsewhere they are refused.

use gradiff_graph::{Constant, DType, Op};

use crate::dialect::{Alu, Text, Value};
use crate::helpers::parse_vector;
use crate::scalar::{as_unsigned, is_half};

type WriteFunction = fn(&str, &str, &[(&str, &str)], &str) -> String;

/// The words in which these languages differ.
pub(crate) struct Vectors {
    /// The type of a vector; of bools with lanes of so many bytes.
    pub(crate) type_name: fn(DType, u8, u8) -> Option<String>,
    /// A vector of this type of these values, or of one for all lanes.
    pub(crate) make: fn(&str, &str) -> String,
    /// The same bits as this type.
    pub(crate) bitcast: fn(&str, &str) -> String,
    /// The values as this type.
    pub(crate) convert: fn(&str, &str) -> String,
    /// `z` or `y` by the lanes of the mask: y where it is set.
    pub(crate) select: fn(mask: &str, y: &str, z: &str) -> String,
    /// Lane `n` of a value.
    pub(crate) lane: fn(&str, usize) -> String,
    /// A constant of exactly these bits.
    pub(crate) constant: fn(Constant) -> Option<String>,
    /// An op over single values.
    pub(crate) scalar: fn(&Alu) -> Option<String>,
    /// A function: type, name, types and names of the parameters, value.
    pub(crate) function: WriteFunction,
    /// The lanes in which two vectors differ, NaN from all.
    pub(crate) differs: fn(&str, &str) -> String,
    /// Whether bools are masks, integers as wide as what was compared.
    pub(crate) has_masks: bool,
    /// Whether signed arithmetic wraps.
    pub(crate) wraps: bool,
    /// Whether the type is one of the language.
    pub(crate) is_native: fn(DType) -> bool,
}

impl Vectors {
    /// An elementwise op.
    pub(crate) fn alu(&self, alu: &Alu) -> Option<Text> {
        let (src, from, lanes) = (alu.texts(), alu.from(), alu.lanes);
        let kind = (self.type_name)(alu.dtype, lanes, 1)?;
        let is_stored_only = |dtype: DType| is_half(dtype) && !(self.is_native)(dtype);
        if is_stored_only(from) && !matches!(alu.op, Op::Bitcast) {
            return None;
        }
        let text = match alu.op {
            Op::Cast if from == alu.dtype => return Some(self.settled_as(&alu.src[0])),
            Op::Cast if is_stored_only(alu.dtype) => return None,
            Op::Cast => return self.cast(alu),
            Op::Bitcast if from == alu.dtype => src[0].to_string(),
            Op::Bitcast if from.size_bytes() != alu.dtype.size_bytes() => return None,
            Op::Bitcast if [from, alu.dtype].contains(&DType::Bool) => return None,
            Op::Bitcast => (self.bitcast)(&kind, src[0]),
            Op::Where if is_stored_only(alu.dtype) => return None,
            Op::Where => return Some(self.choose(alu)),
            op => match from {
                DType::Bool => return self.bool_op(alu),
                _ if from.is_float() => self.float_op(op, from, lanes, &src)?,
                _ => self.int_op(alu)?,
            },
        };
        let is_mask = alu.op.is_comparison() && self.has_masks;
        Some(Text { text, mask_bytes: if is_mask { from.size_bytes() as u8 } else { 0 } })
    }

    fn settled_as(&self, value: &Value) -> Text {
        Text { text: value.text.to_string(), mask_bytes: value.mask_bytes }
    }

    /// A mask with lanes of this width; where there are no masks, the bools.
    pub(crate) fn mask(&self, value: &Value, bytes: u8) -> String {
        if !self.has_masks || value.mask_bytes == bytes {
            return value.text.to_string();
        }
        let kind = (self.type_name)(DType::Bool, value.lanes, bytes).unwrap_or_default();
        (self.convert)(&kind, value.text)
    }

    fn choose(&self, alu: &Alu) -> Text {
        let [gate, x, y] = [&alu.src[0], &alu.src[1], &alu.src[2]];
        let is_bool = alu.dtype == DType::Bool;
        let bytes = if is_bool { x.mask_bytes } else { alu.dtype.size_bytes() as u8 };
        let other = if is_bool { self.mask(y, bytes) } else { y.text.to_string() };
        let text = (self.select)(&self.mask(gate, bytes), x.text, &other);
        Text { text, mask_bytes: if is_bool { bytes } else { 0 } }
    }

    fn bool_op(&self, alu: &Alu) -> Option<Text> {
        let first = alu.src.first()?;
        let other = alu.src.get(1).map(|value| self.mask(value, first.mask_bytes));
        let (x, y) = (first.text, other.unwrap_or_default());
        let not = if self.has_masks { "~" } else { "!" };
        let text = match (alu.op, self.has_masks) {
            (Op::Neg, _) => x.to_string(),
            (Op::Add | Op::Max | Op::Or, _) => format!("({x}|{y})"),
            (Op::Mul | Op::Min | Op::And, _) => format!("({x}&{y})"),
            (Op::CmpLt, _) => format!("({not}{x}&{y})"),
            (Op::Sub | Op::CmpNe | Op::Xor, true) => format!("({x}^{y})"),
            (Op::Sub | Op::CmpNe | Op::Xor, false) => format!("({x}!={y})"),
            _ => return None,
        };
        Some(Text { text, mask_bytes: first.mask_bytes })
    }

    /// All lanes the same constant.
    fn all(&self, value: Constant, lanes: u8) -> Option<String> {
        let kind = (self.type_name)(value.dtype(), lanes, 1)?;
        Some((self.make)(&kind, &(self.constant)(value)?))
    }

    fn float_op(&self, op: Op, dtype: DType, lanes: u8, src: &[&str]) -> Option<String> {
        let own = || format!("{op}_{}x{lanes}({})", dtype.name(), src.join(", "));
        let sign = match op {
            Op::Neg => return Some(format!("(-{})", src[0])),
            Op::Recip => {
                return Some(format!("({}/{})", self.all(Constant::one(dtype), lanes)?, src[0]));
            }
            Op::Exp2 | Op::Log2 | Op::Sin | Op::Sqrt | Op::Pow | Op::MulAcc => return Some(own()),
            Op::Max | Op::Min => return Some(own()),
            Op::FDiv if is_half(dtype) => return Some(own()),
            Op::Add => "+",
            Op::Sub => "-",
            Op::Mul => "*",
            Op::FDiv => "/",
            Op::CmpLt => "<",
            Op::CmpNe => return Some((self.differs)(src[0], src[1])),
            _ => return None,
        };
        Some(format!("({}{sign}{})", src[0], src[1]))
    }

    fn int_op(&self, alu: &Alu) -> Option<String> {
        let (op, dtype, lanes, src) = (alu.op, alu.from(), alu.lanes, alu.texts());
        let own = |op: Op| Some(format!("{op}_{}x{lanes}({})", dtype.name(), src.join(", ")));
        let infix = |sign: &str| Some(format!("({}{sign}{})", src[0], src[1]));
        let sign = match op {
            Op::CDiv | Op::CMod | Op::Max | Op::Min => return own(op),
            Op::FloorDiv | Op::FloorMod if dtype.is_signed() => return own(op),
            Op::FloorDiv => return own(Op::CDiv),
            Op::FloorMod => return own(Op::CMod),
            Op::Shl | Op::Shr => return own(op),
            Op::Neg if !dtype.is_signed() => {
                return Some(format!("({}-{})", self.all(Constant::zero(dtype), lanes)?, src[0]));
            }
            Op::CmpLt => return infix("<"),
            Op::CmpNe => return infix("!="),
            Op::And => return infix("&"),
            Op::Or => return infix("|"),
            Op::Xor => return infix("^"),
            Op::Neg => "-",
            Op::Add => "+",
            Op::Sub => "-",
            Op::Mul | Op::MulAcc => "*",
            _ => return None,
        };
        // What may leave a signed type is computed in the unsigned one.
        let is_detour = alu.may_wrap && dtype.is_signed() && !self.wraps;
        let unsigned = (self.type_name)(as_unsigned(dtype), lanes, 1)?;
        let src: Vec<String> = match is_detour {
            true => src.iter().map(|source| (self.bitcast)(&unsigned, source)).collect(),
            false => src.iter().map(|source| source.to_string()).collect(),
        };
        let text = match op {
            Op::Neg => format!("(-{})", src[0]),
            Op::MulAcc => format!("({}*{}+{})", src[0], src[1], src[2]),
            _ => format!("({}{sign}{})", src[0], src[1]),
        };
        let kind = (self.type_name)(dtype, lanes, 1)?;
        Some(if is_detour { (self.bitcast)(&kind, &text) } else { text })
    }

    fn cast(&self, alu: &Alu) -> Option<Text> {
        let (value, to, lanes) = (alu.src.first()?, alu.dtype, alu.lanes);
        let from = value.dtype;
        let kind = (self.type_name)(to, lanes, 1)?;
        Some(match (from, to) {
            (DType::Bool, _) => {
                let one = self.all(Constant::one(to), lanes)?;
                let zero = self.all(Constant::zero(to), lanes)?;
                let mask = self.mask(value, to.size_bytes() as u8);
                (self.select)(&mask, &one, &zero).into()
            }
            (_, DType::Bool) => {
                let zero = self.all(Constant::zero(from), lanes)?;
                let mask_bytes = if self.has_masks { from.size_bytes() as u8 } else { 0 };
                Text { text: (self.differs)(value.text, &zero), mask_bytes }
            }
            _ if from.is_float() && to.is_int() || is_half(from) || is_half(to) => {
                format!("cast_{}_{}x{lanes}({})", from.name(), to.name(), value.text).into()
            }
            _ => (self.convert)(&kind, value.text).into(),
        })
    }

    /// The function of this name: lane by lane what single values give.
    pub(crate) fn definition(&self, word: &str) -> Option<String> {
        let (function, dtype, lanes) = parse_vector(word)?;
        let (op, from) = match function.split_once('_') {
            Some(("cast", from)) => (Op::Cast, DType::from_name(from)?),
            _ => (Op::from_name(function)?, dtype),
        };
        let kind = (self.type_name)(dtype, lanes, 1)?;
        let source = (self.type_name)(from, lanes, 1)?;
        let names: Vec<&str> = ["x", "y", "z"].into_iter().take(op.row().arity.0).collect();
        let values = (0..usize::from(lanes)).map(|lane| {
            let texts: Vec<String> = names.iter().map(|name| (self.lane)(name, lane)).collect();
            let value = |text| Value { text, dtype: from, lanes: 1, mask_bytes: 0, known: None };
            let src = texts.iter().map(|text| value(text.as_str())).collect();
            (self.scalar)(&Alu { op, dtype, lanes: 1, src, may_wrap: true, extreme: None })
        });
        let values: Vec<String> = values.collect::<Option<_>>()?;
        let parameters: Vec<(&str, &str)> =
            names.iter().map(|name| (source.as_str(), *name)).collect();
        let value = (self.make)(&kind, &values.join(", "));
        Some((self.function)(&kind, word, &parameters, &value))
    }
}
