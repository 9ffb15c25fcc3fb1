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
