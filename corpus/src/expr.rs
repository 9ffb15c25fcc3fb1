//! A bounded integer expression as plain data: a case for the index algebra.

use crate::{DType, TypeError};

/// Variables and an expression over them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExprCase {
    /// The variables; `Expr::Var(i)` is number `i`.
    pub vars: Vec<Var>,
    /// The expression.
    pub expr: Expr,
}

/// A variable and its bounds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Var {
    /// A word of letters, digits and `_` that is none of the text form's own.
    pub name: String,
    /// An integer type or bool.
    pub dtype: DType,
    /// Smallest value.
    pub min: i64,
    /// Largest value (inclusive), at least `min`.
    pub max: i64,
}

/// An expression over integers and truth values. Operands of one function have one dtype; the
/// integers written in it take the dtype of what stands beside them, i32 if that says nothing.
/// Results wrap at the width of their dtype.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Expr {
    /// The variable of this number.
    Var(usize),
    /// An integer.
    Int(i64),
    /// A truth value.
    Bool(bool),
    /// A function of one expression.
    Unary(ExprUnary, Box<Expr>),
    /// A function of two expressions.
    Binary(ExprBinary, Box<Expr>, Box<Expr>),
    /// Condition, value where true, value where false.
    Where(Box<[Expr; 3]>),
    /// The value in another dtype, an integer type or bool: its low bits, or whether it is not 0.
    Cast(DType, Box<Expr>),
}

/// Functions of one expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ExprUnary {
    /// `-x` of an integer.
    Neg,
    /// `!x`: complement of a truth value, or of an integer bit by bit.
    Not,
}

/// Functions of two expressions. `Lt Ne Eq` give truth values; `Lt Ne Eq And Or Xor` take two truth
/// values or two integers; all others take and give integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ExprBinary {
    /// `x + y`.
    Add,
    /// `x - y`.
    Sub,
    /// `x * y`.
    Mul,
    /// `x // y`, rounded down; undefined for y = 0.
    FloorDiv,
    /// `x % y`, sign of y; undefined for y = 0.
    FloorMod,
    /// `cdiv(x, y)`, cut toward zero; undefined for y = 0.
    CDiv,
    /// `cmod(x, y)`, sign of x; undefined for y = 0.
    CMod,
    /// `max(x, y)`.
    Max,
    /// `min(x, y)`.
    Min,
    /// `x < y`; of truth values, false is less than true.
    Lt,
    /// `x != y`.
    Ne,
    /// `x == y`.
    Eq,
    /// `x & y`.
    And,
    /// `x | y`.
    Or,
    /// `x ^ y`.
    Xor,
    /// `x << y`; undefined unless 0 <= y < bits.
    Shl,
    /// `x >> y`, rounded down; undefined unless 0 <= y < bits.
    Shr,
}

impl ExprBinary {
    /// All of them.
    pub const ALL: [ExprBinary; 17] = [
        ExprBinary::Add,
        ExprBinary::Sub,
        ExprBinary::Mul,
        ExprBinary::FloorDiv,
        ExprBinary::FloorMod,
        ExprBinary::CDiv,
        ExprBinary::CMod,
        ExprBinary::Max,
        ExprBinary::Min,
        ExprBinary::Lt,
        ExprBinary::Ne,
        ExprBinary::Eq,
        ExprBinary::And,
        ExprBinary::Or,
        ExprBinary::Xor,
        ExprBinary::Shl,
        ExprBinary::Shr,
    ];

    /// The operator (`//`) or the function's name (`cdiv`) in the text form.
    pub fn symbol(self) -> &'static str {
        match self {
            ExprBinary::Add => "+",
            ExprBinary::Sub => "-",
            ExprBinary::Mul => "*",
            ExprBinary::FloorDiv => "//",
            ExprBinary::FloorMod => "%",
            ExprBinary::CDiv => "cdiv",
            ExprBinary::CMod => "cmod",
            ExprBinary::Max => "max",
            ExprBinary::Min => "min",
            ExprBinary::Lt => "<",
            ExprBinary::Ne => "!=",
            ExprBinary::Eq => "==",
            ExprBinary::And => "&",
            ExprBinary::Or => "|",
            ExprBinary::Xor => "^",
            ExprBinary::Shl => "<<",
            ExprBinary::Shr => ">>",
        }
    }

    /// Whether it compares, so that it gives a truth value.
    pub fn is_comparison(self) -> bool {
        matches!(self, ExprBinary::Lt | ExprBinary::Ne | ExprBinary::Eq)
    }

    /// Whether it takes truth values as well as integers.
    pub fn takes_truth(self) -> bool {
        self.is_comparison() || matches!(self, ExprBinary::And | ExprBinary::Or | ExprBinary::Xor)
    }

    /// Whether the text form writes it as a call.
    pub fn is_call(self) -> bool {
        matches!(self, ExprBinary::CDiv | ExprBinary::CMod | ExprBinary::Max | ExprBinary::Min)
    }
}

/// Deepest nesting of an expression; a variable has depth 1.
pub const MAX_EXPR_DEPTH: usize = 128;

/// Largest number of variables.
const MAX_VARS: usize = 64;

impl ExprCase {
    /// The dtype of the expression, an integer type or bool.
    ///
    /// # Errors
    /// A variable with `max < min`, with bounds that its dtype does not have, with a bad or
    /// repeated name; an unknown variable, operands that do not fit one another, floats, or
    /// nesting deeper than [`MAX_EXPR_DEPTH`].
    pub fn dtype(&self) -> Result<DType, TypeError> {
        for (number, var) in self.vars.iter().enumerate() {
            var.check(&self.vars[..number])?;
        }
        Ok(self.expr.check(&self.vars, MAX_EXPR_DEPTH)?.unwrap_or(DType::I32))
    }
}

impl Var {
    /// A variable with all values of its dtype that fit 64 signed bits.
    pub(crate) fn whole(name: String, dtype: DType) -> Var {
        let bits = if dtype == DType::Bool { 1 } else { 8 * dtype.size_bytes() as u32 };
        let (min, max) = match dtype.is_signed() {
            true => (i64::MIN >> (64 - bits), i64::MAX >> (64 - bits)),
            false => (0, (u64::MAX >> (64 - bits)).min(i64::MAX as u64) as i64),
        };
        Var { name, dtype, min, max }
    }

    /// Whether this variable may follow those `before`.
    pub(crate) fn check(&self, before: &[Var]) -> Result<(), TypeError> {
        let Var { name, dtype, min, max } = self;
        if max < min {
            return Err(TypeError::new(format!("variable {name}: {min}..{max} is empty")));
        }
        no_float(*dtype)?;
        let whole = Var::whole(String::new(), *dtype);
        if *min < whole.min || whole.max < *max {
            let (low, high, dtype) = (whole.min, whole.max, dtype.name());
            let message = format!("variable {name}: {min}..{max} is not in {low}..{high}, {dtype}");
            return Err(TypeError::new(message));
        }
        if !crate::text::is_expr_name(name) {
            return Err(TypeError::new(format!("{name:?} cannot name a variable")));
        }
        if before.iter().any(|before| before.name == *name) {
            return Err(TypeError::new(format!("variable {name} is defined twice")));
        }
        if MAX_VARS <= before.len() {
            return Err(TypeError::new(format!("{name}: at most {MAX_VARS} variables")));
        }
        Ok(())
    }
}

fn no_float(dtype: DType) -> Result<(), TypeError> {
    if dtype.is_float() {
        let message = format!("expressions have integers and bool, not {}", dtype.name());
        return Err(TypeError::new(message));
    }
    Ok(())
}

impl Expr {
    /// The dtype of a well-formed expression; `None` if integers that are written out alone
    /// decide, which take the dtype of what stands beside the expression.
    pub fn dtype(&self, vars: &[Var]) -> Option<DType> {
        match self {
            Expr::Var(number) => vars.get(*number).map(|var| var.dtype),
            Expr::Int(_) => None,
            Expr::Bool(_) => Some(DType::Bool),
            Expr::Unary(_, x) => x.dtype(vars),
            Expr::Binary(op, ..) if op.is_comparison() => Some(DType::Bool),
            Expr::Binary(_, x, y) => x.dtype(vars).or_else(|| y.dtype(vars)),
            Expr::Where(parts) => parts[1].dtype(vars).or_else(|| parts[2].dtype(vars)),
            Expr::Cast(dtype, _) => Some(*dtype),
        }
    }

    /// As `dtype`, and whether the expression is well formed and at most so deep.
    fn check(&self, vars: &[Var], depth: usize) -> Result<Option<DType>, TypeError> {
        if depth == 0 {
            let message = format!("the expression is nested deeper than {MAX_EXPR_DEPTH}");
            return Err(TypeError::new(message));
        }
        let of = |expr: &Expr| expr.check(vars, depth - 1);
        match self {
            Expr::Var(var) if *var < vars.len() => Ok(Some(vars[*var].dtype)),
            Expr::Var(var) => Err(TypeError::new(format!("variable {var} of {}", vars.len()))),
            Expr::Int(_) => Ok(None),
            Expr::Bool(_) => Ok(Some(DType::Bool)),
            Expr::Unary(ExprUnary::Neg, src) => no_truth("-", of(src)?),
            Expr::Unary(ExprUnary::Not, src) => of(src),
            Expr::Binary(op, a, b) => {
                let (a, b) = (of(a)?, of(b)?);
                let symbol = op.symbol();
                if !op.takes_truth() {
                    no_truth(symbol, a)?;
                    no_truth(symbol, b)?;
                }
                let one = one_dtype(symbol, a, b)?;
                Ok(if op.is_comparison() { Some(DType::Bool) } else { one })
            }
            Expr::Where(srcs) => {
                let condition = of(&srcs[0])?;
                if condition != Some(DType::Bool) {
                    return Err(mismatch("where's condition", Some(DType::Bool), condition));
                }
                one_dtype("where's third operand", of(&srcs[1])?, of(&srcs[2])?)
            }
            Expr::Cast(dtype, src) => {
                of(src)?;
                no_float(*dtype)?;
                Ok(Some(*dtype))
            }
        }
    }
}

/// `found` unless it is bool.
fn no_truth(what: &str, found: Option<DType>) -> Result<Option<DType>, TypeError> {
    if found == Some(DType::Bool) { Err(mismatch(what, None, found)) } else { Ok(found) }
}

/// The dtype of both operands.
fn one_dtype(
    what: &str,
    wanted: Option<DType>,
    found: Option<DType>,
) -> Result<Option<DType>, TypeError> {
    match (wanted, found) {
        _ if wanted == found => Ok(found),
        (None, Some(dtype)) | (Some(dtype), None) if dtype != DType::Bool => Ok(Some(dtype)),
        _ => Err(mismatch(what, wanted, found)),
    }
}

fn mismatch(what: &str, wanted: Option<DType>, found: Option<DType>) -> TypeError {
    let is_truth = [wanted, found].contains(&Some(DType::Bool));
    let name = |dtype: Option<DType>| match dtype {
        Some(DType::Bool) => "a truth value",
        Some(dtype) if !is_truth => dtype.name(),
        _ => "an integer",
    };
    let (wanted, found) = (name(wanted), name(found));
    TypeError::new(format!("{what} takes {wanted} here, not {found}"))
}
