//! Rewrite rules as rows of data.

use gradiff_graph::DType;

/// Promise of a rule about the values of both sides, strongest claim first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// The same bits (but for the payload of a NaN) wherever the left side is defined.
    Bits,
    /// The same value: the sign of a zero may change.
    Value,
    /// Within this many units in the last place of the exact result.
    Ulp(u32),
    /// The same bits if nothing is NaN or infinite.
    Finite,
    /// The same bits where the left side is defined; any value elsewhere, which the rule makes use
    /// of.
    Refines,
}

/// Mode of rewriting: the claims whose rules may run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Claims `Bits` and `Refines`.
    Strict,
    /// `Value` and `Ulp` as well.
    #[default]
    Default,
    /// `Finite` as well.
    Fast,
}

impl Mode {
    /// Returns whether a rule of this claim may run.
    pub fn allows(self, claim: Claim) -> bool {
        match claim {
            Claim::Bits | Claim::Refines => true,
            Claim::Value | Claim::Ulp(_) => self != Mode::Strict,
            Claim::Finite => self == Mode::Fast,
        }
    }
}

/// The dtypes that a rule applies to. They are compared with the dtype of the last source of the
/// matched node: of the values in a comparison or a choice, of the source of a cast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Types {
    /// All dtypes.
    Any,
    /// Integers, without bool.
    Ints,
    /// Bool alone.
    Bool,
    /// Integers and bool.
    Bits,
    /// Floats.
    Floats,
    /// Floats of 32 and 64 bits. An op over shorter floats is rounded once, however it is computed.
    LongFloats,
}

impl Types {
    /// Returns whether only floats are among them.
    pub fn are_floats(self) -> bool {
        matches!(self, Types::Floats | Types::LongFloats)
    }
}

impl Types {
    /// Returns whether `dtype` is one of them.
    pub fn has(self, dtype: DType) -> bool {
        match self {
            Types::Any => true,
            Types::Ints => dtype.is_int(),
            Types::Bool => dtype == DType::Bool,
            Types::Bits => dtype.is_int() || dtype == DType::Bool,
            Types::Floats => dtype.is_float(),
            Types::LongFloats => matches!(dtype, DType::F32 | DType::F64),
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Types::Any => "any",
            Types::Ints => "ints",
            Types::Bool => "bool",
            Types::Bits => "bits",
            Types::Floats => "floats",
            Types::LongFloats => "longfloats",
        }
    }
}

/// A row. [`crate::rules`] describes the language of `lhs`, `rhs`, `when` and `given`.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// Name, `<table>/<what>`: unique, stable.
    pub name: &'static str,
    /// The dtypes it applies to.
    pub types: Types,
    /// Its promise.
    pub claim: Claim,
    /// The pattern.
    pub lhs: &'static str,
    /// The replacement: a pattern, or `@name` for a computed one.
    pub rhs: &'static str,
    /// The condition; empty if there is none.
    pub when: &'static str,
    /// Equations between sums, and the finder that solves them; empty if there are none.
    pub given: &'static str,
    /// The reason why it holds, and why it helps where that is not obvious.
    pub why: &'static str,
    /// Its source.
    pub from: &'static str,
    /// True if its result is not rewritten again, so that it need not be cheaper or smaller.
    pub is_single: bool,
}

/// Makes a row of its fields, in order.
pub(crate) const fn row(
    name: &'static str,
    (types, claim): (Types, Claim),
    lhs: &'static str,
    rhs: &'static str,
    when: &'static str,
    why: &'static str,
    from: &'static str,
) -> Rule {
    Rule { name, types, claim, lhs, rhs, when, given: "", why, from, is_single: false }
}

impl Rule {
    /// The row with equations: `x = w * c0 + r by multiples`.
    pub(crate) const fn given(self, given: &'static str) -> Rule {
        Rule { given, ..self }
    }

    /// The row with a result that is not rewritten again.
    pub(crate) const fn single(self) -> Rule {
        Rule { is_single: true, ..self }
    }
}

impl std::fmt::Display for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let claim = format!("{:?}", self.claim);
        write!(f, "{:36} {:6} {claim:8} ", self.name, self.types.name())?;
        write!(f, "{} => {}", self.lhs, self.rhs)?;
        if !self.given.is_empty() {
            write!(f, " given {}", self.given)?;
        }
        if !self.when.is_empty() {
            write!(f, " when {}", self.when)?;
        }
        Ok(())
    }
}
