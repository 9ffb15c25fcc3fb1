//! The thirteen element types of programs, in promotion order. Knows nothing of values.

/// The type of a tensor element. The order of the variants is tinygrad's priority order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum DType {
    /// Truth value; stored as one byte, 0 or 1.
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
    /// IEEE 754 binary16: 11 significant bits.
    F16,
    /// bfloat16: 8 significant bits, the exponents of binary32.
    BF16,
    /// IEEE 754 binary32: 24 significant bits.
    F32,
    /// IEEE 754 binary64: 53 significant bits.
    F64,
}

impl DType {
    /// All dtypes, in priority order.
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

    /// Returns the name in the text form: `bool`, `i8`, ... `f64`.
    pub fn name(self) -> &'static str {
        match self {
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

    /// Returns the dtype of this name, if there is one.
    pub fn from_name(name: &str) -> Option<DType> {
        DType::ALL.into_iter().find(|dtype| dtype.name() == name)
    }

    /// Returns the size of an element in memory, in bytes.
    pub fn size_bytes(self) -> usize {
        match self {
            DType::Bool | DType::I8 | DType::U8 => 1,
            DType::I16 | DType::U16 | DType::F16 | DType::BF16 => 2,
            DType::I32 | DType::U32 | DType::F32 => 4,
            DType::I64 | DType::U64 | DType::F64 => 8,
        }
    }

    /// Returns whether this is one of the four floating-point types.
    pub fn is_float(self) -> bool {
        self >= DType::F16
    }

    /// Returns whether this is one of the eight integer types, to which `bool` does not belong.
    pub fn is_int(self) -> bool {
        DType::I8 <= self && self <= DType::U64
    }

    /// Returns whether this is a signed integer type.
    pub fn is_signed(self) -> bool {
        matches!(self, DType::I8 | DType::I16 | DType::I32 | DType::I64)
    }
}
