//! Bounded integer expressions as plain data: cases for the index algebra.

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
    /// A word of letters, digits and `_` that is not reserved in the text form.
    pub name: String,
    /// An integer type or bool.
    pub dtype: DType,
    /// Smallest value.
    pub min: i64,
    /// Largest value (inclusive), at least `min`.
    pub max: i64,
}

/// An expression over integers and bools. All operands of a function have the same dtype; an
/// integer literal takes the dtype of the other operands, or i32 if all are literals. Results wrap
/// at the width of their dtype.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Expr {
    /// The variable with this number.
    Var(usize),
    /// An integer literal.
    Int(i64),
    /// A bool literal.
    Bool(bool),
    /// A function of one expression.
    Unary(ExprUnary, Box<Expr>),
    /// A function of two expressions.
    Binary(ExprBinary, Box<Expr>, Box<Expr>),
    /// Condition, value where true, value where false.
    Where(Box<[Expr; 3]>),
    /// A conversion to an integer type, which keeps the low bits, or to bool, which is `x != 0`.
    Cast(DType, Box<Expr>),
}

/// Functions of one expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ExprUnary {
    /// `-x` of an integer.
    Neg,
    /// `!x`: logical complement of a bool, bitwise complement of an integer.
    Not,
}

/// Functions of two expressions. `Lt Ne Eq` give bools; `Lt Ne Eq And Or Xor` take two bools or two
/// integers; all others take and give integers.
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
    /// `x % y`, with the sign of y; undefined for y = 0.
    FloorMod,
    /// `cdiv(x, y)`, truncated toward zero; undefined for y = 0.
    CDiv,
    /// `cmod(x, y)`, with the sign of x; undefined for y = 0.
    CMod,
    /// `max(x, y)`.
    Max,
    /// `min(x, y)`.
    Min,
    /// `x < y`; false is less than true.
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
    /// All functions.
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

    /// Returns the operator (`//`) or the function's name (`cdiv`) in the text form.
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

    /// Returns whether the function is a comparison, which gives a bool.
    pub fn is_comparison(self) -> bool {
        matches!(self, ExprBinary::Lt | ExprBinary::Ne | ExprBinary::Eq)
    }

    /// Returns whether the function takes bools as well as integers.
    pub fn takes_bool(self) -> bool {
        self.is_comparison() || matches!(self, ExprBinary::And | ExprBinary::Or | ExprBinary::Xor)
    }

    /// Returns whether the text form writes the function as a call.
    pub fn is_call(self) -> bool {
        matches!(self, ExprBinary::CDiv | ExprBinary::CMod | ExprBinary::Max | ExprBinary::Min)
    }
}

/// Maximum nesting of an expression; a variable has depth 1.
pub const MAX_EXPR_DEPTH: usize = 128;

/// Maximum number of variables.
const MAX_VARS: usize = 64;

impl ExprCase {
    /// Returns the dtype of the expression, an integer type or bool.
    ///
    /// # Errors
    /// A variable with `max < min`, with bounds out of range of its dtype, or with an illegal or
    /// repeated name; an unknown variable, operands of different dtypes, floats, or nesting deeper
    /// than [`MAX_EXPR_DEPTH`].
    pub fn dtype(&self) -> Result<DType, TypeError> {
        for (number, var) in self.vars.iter().enumerate() {
            var.check(&self.vars[..number])?;
        }
        Ok(self.expr.check(&self.vars, MAX_EXPR_DEPTH)?.unwrap_or(DType::I32))
    }
}

impl Var {
    /// Creates a variable whose range is that of its dtype, as far as it fits in an i64.
    pub(crate) fn full_range(name: String, dtype: DType) -> Var {
        let bits = if dtype == DType::Bool { 1 } else { 8 * dtype.size_bytes() as u32 };
        let (min, max) = match dtype.is_signed() {
            true => (i64::MIN >> (64 - bits), i64::MAX >> (64 - bits)),
            false => (0, (u64::MAX >> (64 - bits)).min(i64::MAX as u64) as i64),
        };
        Var { name, dtype, min, max }
    }

    /// Checks this variable, which follows those in `earlier`.
    pub(crate) fn check(&self, earlier: &[Var]) -> Result<(), TypeError> {
        let Var { name, dtype, min, max } = self;
        if max < min {
            return Err(TypeError::new(format!("variable {name}: {min}..{max} is empty")));
        }
        check_not_float(*dtype)?;
        let full = Var::full_range(String::new(), *dtype);
        if *min < full.min || full.max < *max {
            let (low, high, dtype) = (full.min, full.max, dtype.name());
            let message = format!("variable {name}: {min}..{max} is not in {low}..{high}, {dtype}");
            return Err(TypeError::new(message));
        }
        if !crate::text::is_expr_name(name) {
            return Err(TypeError::new(format!("{name:?} cannot name a variable")));
        }
        if earlier.iter().any(|var| var.name == *name) {
            return Err(TypeError::new(format!("variable {name} is defined twice")));
        }
        if MAX_VARS <= earlier.len() {
            return Err(TypeError::new(format!(
                "{name}: at most {MAX_VARS} variables are allowed"
            )));
        }
        Ok(())
    }
}

fn check_not_float(dtype: DType) -> Result<(), TypeError> {
    if dtype.is_float() {
        let dtype = dtype.name();
        let message = format!("{dtype} in an expression: only integers and bool are allowed");
        return Err(TypeError::new(message));
    }
    Ok(())
}

impl Expr {
    /// Returns the dtype of a well-formed expression; `None` if it consists of integer literals
    /// only, which take the dtype of the other operands.
    pub fn dtype(&self, vars: &[Var]) -> Option<DType> {
        match self {
            Expr::Var(number) => vars.get(*number).map(|var| var.dtype),
            Expr::Int(_) => None,
            Expr::Bool(_) => Some(DType::Bool),
            Expr::Unary(_, x) => x.dtype(vars),
            Expr::Binary(op, ..) if op.is_comparison() => Some(DType::Bool),
            Expr::Binary(_, x, y) => x.dtype(vars).or_else(|| y.dtype(vars)),
            Expr::Where(srcs) => srcs[1].dtype(vars).or_else(|| srcs[2].dtype(vars)),
            Expr::Cast(dtype, _) => Some(*dtype),
        }
    }

    /// Returns the operands, in order; none of a variable or a literal.
    pub fn operands(&self) -> Vec<&Expr> {
        match self {
            Expr::Var(_) | Expr::Int(_) | Expr::Bool(_) => Vec::new(),
            Expr::Unary(_, x) | Expr::Cast(_, x) => vec![x],
            Expr::Binary(_, x, y) => vec![x, y],
            Expr::Where(parts) => parts.iter().collect(),
        }
    }

    /// Rebuilds the expression with `map(index, operand)` in place of each operand.
    #[must_use]
    pub fn map_operands(&self, map: &mut dyn FnMut(usize, &Expr) -> Expr) -> Expr {
        match self {
            Expr::Var(_) | Expr::Int(_) | Expr::Bool(_) => self.clone(),
            Expr::Unary(op, x) => Expr::Unary(*op, Box::new(map(0, x))),
            Expr::Cast(dtype, x) => Expr::Cast(*dtype, Box::new(map(0, x))),
            Expr::Binary(op, x, y) => Expr::Binary(*op, Box::new(map(0, x)), Box::new(map(1, y))),
            Expr::Where(parts) => {
                let [condition, yes, no] = &**parts;
                Expr::Where(Box::new([map(0, condition), map(1, yes), map(2, no)]))
            }
        }
    }

    /// Calls `visit` for this expression and for each one that it has.
    pub fn visit<'a>(&'a self, visit: &mut dyn FnMut(&'a Expr)) {
        visit(self);
        self.operands().into_iter().for_each(|operand| operand.visit(visit));
    }

    /// Returns what [`Expr::dtype`] returns, after a check that the expression is well formed and
    /// has at most `max_depth` levels.
    fn check(&self, vars: &[Var], max_depth: usize) -> Result<Option<DType>, TypeError> {
        if max_depth == 0 {
            let message = format!("the expression is nested deeper than {MAX_EXPR_DEPTH}");
            return Err(TypeError::new(message));
        }
        let dtype_of = |expr: &Expr| expr.check(vars, max_depth - 1);
        match self {
            Expr::Var(var) if *var < vars.len() => Ok(Some(vars[*var].dtype)),
            Expr::Var(var) => {
                let count = vars.len();
                let message = format!("there is no variable number {var}: the case has {count}");
                Err(TypeError::new(message))
            }
            Expr::Int(_) => Ok(None),
            Expr::Bool(_) => Ok(Some(DType::Bool)),
            Expr::Unary(ExprUnary::Neg, src) => check_not_bool("-", dtype_of(src)?),
            Expr::Unary(ExprUnary::Not, src) => dtype_of(src),
            Expr::Binary(op, a, b) => {
                let (a, b) = (dtype_of(a)?, dtype_of(b)?);
                let symbol = op.symbol();
                if !op.takes_bool() {
                    check_not_bool(symbol, a)?;
                    check_not_bool(symbol, b)?;
                }
                let dtype = common_dtype(symbol, a, b)?;
                Ok(if op.is_comparison() { Some(DType::Bool) } else { dtype })
            }
            Expr::Where(srcs) => {
                let condition = dtype_of(&srcs[0])?;
                if condition != Some(DType::Bool) {
                    return Err(mismatch("where's condition", Some(DType::Bool), condition));
                }
                let (if_true, if_false) = (dtype_of(&srcs[1])?, dtype_of(&srcs[2])?);
                common_dtype("where's third operand", if_true, if_false)
            }
            Expr::Cast(dtype, src) => {
                dtype_of(src)?;
                check_not_float(*dtype)?;
                Ok(Some(*dtype))
            }
        }
    }
}

/// Returns `dtype`, or an error if it is bool.
fn check_not_bool(op: &str, dtype: Option<DType>) -> Result<Option<DType>, TypeError> {
    if dtype == Some(DType::Bool) { Err(mismatch(op, None, dtype)) } else { Ok(dtype) }
}

/// Returns the dtype that both operands of `op` have, or an error if they differ. `None` stands for
/// an operand of integer literals only, which takes the other operand's dtype.
fn common_dtype(
    op: &str,
    expected: Option<DType>,
    found: Option<DType>,
) -> Result<Option<DType>, TypeError> {
    match (expected, found) {
        _ if expected == found => Ok(found),
        (None, Some(dtype)) | (Some(dtype), None) if dtype != DType::Bool => Ok(Some(dtype)),
        _ => Err(mismatch(op, expected, found)),
    }
}

/// The error that an operand of `op` has another dtype than expected; `None` stands for any
/// integer.
fn mismatch(op: &str, expected: Option<DType>, found: Option<DType>) -> TypeError {
    let has_bool = [expected, found].contains(&Some(DType::Bool));
    let name = |dtype: Option<DType>| match dtype {
        Some(DType::Bool) => "a bool",
        Some(dtype) if !has_bool => dtype.name(),
        _ => "an integer",
    };
    let (expected, found) = (name(expected), name(found));
    TypeError::new(format!("{op} takes {expected} here, not {found}"))
}
