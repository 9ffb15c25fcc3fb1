//! What a rewrite rule is: a row of data.

use gradiff_graph::DType;

/// How much a rule may change, strongest claim first.
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
    /// The same bits where the left side is defined; anything elsewhere, and that is made use of.
    Refines,
}

/// Which rules may run.
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
    /// Whether a rule of this claim may run.
    pub fn allows(self, claim: Claim) -> bool {
        match claim {
            Claim::Bits | Claim::Refines => true,
            Claim::Value | Claim::Ulp(_) => self != Mode::Strict,
            Claim::Finite => self == Mode::Fast,
        }
    }
}

/// The dtypes that a rule is for: those of the last source of the node it starts from (of the
/// values in a comparison or a choice, of the source of a cast).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Types {
    /// All.
    Any,
    /// Integers, without bool.
    Ints,
    /// Bool alone.
    Bool,
    /// Integers and bool.
    Bits,
    /// Floats.
    Floats,
    /// Floats of 32 and 64 bits: an op of shorter ones is rounded once, whatever it is made of.
    LongFloats,
}

impl Types {
    /// Whether they are floats alone.
    pub fn are_floats(self) -> bool {
        matches!(self, Types::Floats | Types::LongFloats)
    }
}

impl Types {
    /// Whether `dtype` is one of them.
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

/// A row. The language of `lhs`, `rhs`, `when` and `given` is told in [`crate::rules`].
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// `<table>/<what>`: unique, stable.
    pub name: &'static str,
    /// The dtypes it is for.
    pub types: Types,
    /// What it promises.
    pub claim: Claim,
    /// The pattern.
    pub lhs: &'static str,
    /// What comes in its place: a pattern, or `@name` for a computed one.
    pub rhs: &'static str,
    /// The condition; empty if there is none.
    pub when: &'static str,
    /// Equations between sums, and who finds them; empty if there are none.
    pub given: &'static str,
    /// Why it holds, and why it helps where that is not plain.
    pub why: &'static str,
    /// Where it comes from.
    pub from: &'static str,
}

/// A row, its fields in order.
pub(crate) const fn row(
    name: &'static str,
    (types, claim): (Types, Claim),
    lhs: &'static str,
    rhs: &'static str,
    when: &'static str,
    why: &'static str,
    from: &'static str,
) -> Rule {
    Rule { name, types, claim, lhs, rhs, when, given: "", why, from }
}

impl Rule {
    /// The row with equations: `x = w * c0 + r by multiples`.
    pub(crate) const fn given(self, given: &'static str) -> Rule {
        Rule { given, ..self }
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
