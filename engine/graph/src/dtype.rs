//! Element types of the IR: tinygrad's thirteen, in its priority order, and `void`.

/// The type of an element. `Void` is the type of nodes without a value (stores, sinks).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum DType {
    /// No value.
    Void,
    /// A bool, stored as one byte, 0 or 1.
    Bool,
    /// 8-bit two's complement integer.
    I8,
    /// 8-bit unsigned integer.
    U8,
    /// 16-bit two's complement integer.
    I16,
    /// 16-bit unsigned integer.
    U16,
    /// 32-bit two's complement integer.
    I32,
    /// 32-bit unsigned integer.
    U32,
    /// 64-bit two's complement integer.
    I64,
    /// 64-bit unsigned integer.
    U64,
    /// IEEE 754 binary16.
    F16,
    /// bfloat16.
    BF16,
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary64.
    F64,
}

impl DType {
    /// The thirteen types of data, in priority order; `Void` is not among them.
    pub const ALL: [DType; 13] = [
        DType::Bool,
        DType::I8,
        DType::U8,
        DType::I16,
        DType::U16,
        DType::I32,
        DType::U32,
        DType::I64,
        DType::U64,
        DType::F16,
        DType::BF16,
        DType::F32,
        DType::F64,
    ];

    /// Returns the name in text: `void`, `bool`, `i8`, ... `f64`.
    pub fn name(self) -> &'static str {
        match self {
            DType::Void => "void",
            DType::Bool => "bool",
            DType::I8 => "i8",
            DType::U8 => "u8",
            DType::I16 => "i16",
            DType::U16 => "u16",
            DType::I32 => "i32",
            DType::U32 => "u32",
            DType::I64 => "i64",
            DType::U64 => "u64",
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::F32 => "f32",
            DType::F64 => "f64",
        }
    }

    /// Returns the type of this name, if there is one.
    pub fn from_name(name: &str) -> Option<DType> {
        std::iter::once(DType::Void).chain(DType::ALL).find(|dtype| dtype.name() == name)
    }

    /// Returns the size of an element in memory; 0 for `Void`.
    pub fn size_bytes(self) -> usize {
        match self {
            DType::Void => 0,
            DType::Bool | DType::I8 | DType::U8 => 1,
            DType::I16 | DType::U16 | DType::F16 | DType::BF16 => 2,
            DType::I32 | DType::U32 | DType::F32 => 4,
            DType::I64 | DType::U64 | DType::F64 => 8,
        }
    }

    /// Returns the number of bits of a type; 1 for `Bool`.
    pub fn bits(self) -> u32 {
        if self == DType::Bool { 1 } else { 8 * self.size_bytes() as u32 }
    }

    /// Returns whether this is a floating-point type.
    pub fn is_float(self) -> bool {
        self >= DType::F16
    }

    /// Returns whether this is a floating-point type of 16 bits.
    pub fn is_half(self) -> bool {
        matches!(self, DType::F16 | DType::BF16)
    }

    /// Returns the number of stored bits of the fraction of a floating-point type; 0 for others.
    pub const fn mantissa_bits(self) -> u32 {
        match self {
            DType::F16 => 10,
            DType::BF16 => 7,
            DType::F32 => 23,
            DType::F64 => 52,
            _ => 0,
        }
    }

    /// Returns the stored exponent of 1.0 in a floating-point type; 0 for other types.
    pub const fn exponent_bias(self) -> i64 {
        match self {
            DType::F16 => 15,
            DType::BF16 | DType::F32 => 127,
            DType::F64 => 1023,
            _ => 0,
        }
    }

    /// Returns the signed integer type of the same width; `Void` and `Bool` as they are.
    pub const fn signed(self) -> DType {
        match self {
            DType::Void | DType::Bool => self,
            DType::I8 | DType::U8 => DType::I8,
            DType::I16 | DType::U16 | DType::F16 | DType::BF16 => DType::I16,
            DType::I32 | DType::U32 | DType::F32 => DType::I32,
            DType::I64 | DType::U64 | DType::F64 => DType::I64,
        }
    }

    /// Returns the unsigned integer type of the same width; `Void` and `Bool` as they are.
    pub const fn unsigned(self) -> DType {
        match self {
            DType::Void | DType::Bool => self,
            DType::I8 | DType::U8 => DType::U8,
            DType::I16 | DType::U16 | DType::F16 | DType::BF16 => DType::U16,
            DType::I32 | DType::U32 | DType::F32 => DType::U32,
            DType::I64 | DType::U64 | DType::F64 => DType::U64,
        }
    }

    /// Returns whether this is an integer type; `Bool` is not.
    pub fn is_int(self) -> bool {
        DType::I8 <= self && self <= DType::U64
    }

    /// Returns whether this is an integer type with negative values.
    pub fn is_signed(self) -> bool {
        matches!(self, DType::I8 | DType::I16 | DType::I32 | DType::I64)
    }

    /// Returns whether this is an integer type without negative values.
    pub fn is_unsigned(self) -> bool {
        self.is_int() && !self.is_signed()
    }

    /// Returns the smallest and the largest value of an integer type or `Bool`; `None` for others.
    pub fn int_range(self) -> Option<(i128, i128)> {
        match self {
            DType::Bool => Some((0, 1)),
            _ if self.is_signed() => {
                let half = 1i128 << (self.bits() - 1);
                Some((-half, half - 1))
            }
            _ if self.is_int() => Some((0, (1i128 << self.bits()) - 1)),
            _ => None,
        }
    }

    /// Returns the type in which a sum or product of this type is accumulated: at least 32 bits for
    /// bool and integers, f32 for the 16-bit floats.
    pub fn accumulator(self) -> DType {
        match self {
            DType::Bool | DType::I8 | DType::I16 => DType::I32,
            DType::U8 | DType::U16 => DType::U32,
            DType::F16 | DType::BF16 => DType::F32,
            _ => self,
        }
    }
}

impl std::fmt::Display for DType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Constant;

    /// The bits of 1.0 and 1.5 have the exponent of 1.0, and the highest bit of the fraction.
    #[test]
    fn layouts_of_floats_are_those_of_their_bits() {
        for dtype in DType::ALL.into_iter().filter(|dtype| dtype.is_float()) {
            let mantissa_bits = dtype.mantissa_bits();
            let bits = |value: f64| Constant::float(dtype, value).bits();
            let unit = u64::try_from(dtype.exponent_bias()).unwrap() << mantissa_bits;
            assert_eq!(bits(1.0), unit, "{dtype}");
            assert_eq!(bits(1.5), unit | (1 << (mantissa_bits - 1)), "{dtype}");
            assert_eq!(dtype.is_half(), dtype.bits() == 16, "{dtype}");
        }
    }

    #[test]
    fn integers_of_the_same_width() {
        for dtype in DType::ALL.into_iter().filter(|dtype| *dtype != DType::Bool) {
            assert!(dtype.signed().is_signed() && dtype.signed().bits() == dtype.bits(), "{dtype}");
            assert!(dtype.unsigned().is_unsigned(), "{dtype}");
            assert_eq!(dtype.unsigned().bits(), dtype.bits(), "{dtype}");
        }
    }
}
