//! Fundamental and alternate types of PTX, and the registers that an operand of a type may be.

/// A type of an instruction, a register or a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Type {
    /// The type without its dot.
    pub(super) name: &'static str,
    pub(super) class: Class,
    pub(super) bits: u32,
}

/// The interpretation of a type's bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Predicate,
    Bits,
    Unsigned,
    Signed,
    Float,
    /// `bf16` and `tf32`: their registers are declared as bits.
    Alternate,
}

const fn row(name: &'static str, class: Class, bits: u32) -> Type {
    Type { name, class, bits }
}

const TYPES: [Type; 18] = [
    row("pred", Class::Predicate, 1),
    row("b8", Class::Bits, 8),
    row("b16", Class::Bits, 16),
    row("b32", Class::Bits, 32),
    row("b64", Class::Bits, 64),
    row("u8", Class::Unsigned, 8),
    row("u16", Class::Unsigned, 16),
    row("u32", Class::Unsigned, 32),
    row("u64", Class::Unsigned, 64),
    row("s8", Class::Signed, 8),
    row("s16", Class::Signed, 16),
    row("s32", Class::Signed, 32),
    row("s64", Class::Signed, 64),
    row("f16", Class::Float, 16),
    row("f32", Class::Float, 32),
    row("f64", Class::Float, 64),
    row("bf16", Class::Alternate, 16),
    row("tf32", Class::Alternate, 32),
];

impl Type {
    /// The type of this name, without its dot.
    pub(super) fn named(name: &str) -> Option<Type> {
        TYPES.iter().find(|row| row.name == name).copied()
    }

    pub(super) fn size_bytes(self) -> usize {
        self.bits as usize / 8
    }

    pub(super) fn is_integer(self) -> bool {
        matches!(self.class, Class::Signed | Class::Unsigned)
    }

    pub(super) fn is_float(self) -> bool {
        matches!(self.class, Class::Float | Class::Alternate)
    }

    /// Returns whether an operand of this type may be a register declared with another one: bits
    /// agree with any type of their size, signed integers with unsigned ones. `ld`, `st` and `cvt`
    /// are relaxed: for them a register of bits or integers may be wider than the operand.
    pub(super) fn accepts(self, register: Type, is_relaxed: bool) -> bool {
        let has_size = register.bits == self.bits
            || is_relaxed && self.bits < register.bits && !self.is_float() && !register.is_float();
        let agrees = match (self.class, register.class) {
            (Class::Predicate, class) | (class, Class::Predicate) => class == Class::Predicate,
            (Class::Bits, _) | (_, Class::Bits) => true,
            (Class::Alternate, _) => false,
            (Class::Float, class) => class == Class::Float,
            (Class::Unsigned | Class::Signed, _) => register.is_integer(),
        };
        has_size && agrees
    }
}
