//! A bounded integer expression as plain data: a case for the index algebra.

use crate::TypeError;

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
    /// Smallest value.
    pub min: i64,
    /// Largest value (inclusive), at least `min`.
    pub max: i64,
}

/// An expression over 32-bit index integers and truth values.
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
}

/// Functions of one expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ExprUnary {
    /// `-x` of an integer.
    Neg,
    /// `!x`: complement of a truth value, or of an integer bit by bit.
    Not,
}

/// Functions of two expressions. `Lt Ne Eq` give truth values; `Ne Eq And Or Xor` take two truth
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
    /// `x < y`.
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
    /// `x << y`; undefined unless 0 <= y < 32.
    Shl,
    /// `x >> y`, arithmetic; undefined unless 0 <= y < 32.
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

    /// Whether the text form writes it as a call.
    pub fn is_call(self) -> bool {
        matches!(self, ExprBinary::CDiv | ExprBinary::CMod | ExprBinary::Max | ExprBinary::Min)
    }
}

/// What an expression gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExprKind {
    /// A 32-bit integer.
    Int,
    /// A truth value.
    Bool,
}

impl ExprKind {
    fn name(self) -> &'static str {
        match self {
            ExprKind::Int => "an integer",
            ExprKind::Bool => "a truth value",
        }
    }
}

/// Deepest nesting of an expression; a variable has depth 1.
pub const MAX_EXPR_DEPTH: usize = 128;

/// Largest number of variables.
const MAX_VARS: usize = 64;

impl ExprCase {
    /// Whether the variables are well formed and the expression gives an integer or a truth value.
    ///
    /// # Errors
    /// A variable with `max < min`, a bad or repeated name, an unknown variable, operands of the
    /// wrong kind, or nesting deeper than [`MAX_EXPR_DEPTH`].
    pub fn kind(&self) -> Result<ExprKind, TypeError> {
        for (number, var) in self.vars.iter().enumerate() {
            var.check(&self.vars[..number])?;
        }
        self.expr.kind(self.vars.len(), MAX_EXPR_DEPTH)
    }
}

impl Var {
    /// Whether this variable may follow those `before`.
    pub(crate) fn check(&self, before: &[Var]) -> Result<(), TypeError> {
        let Var { name, min, max } = self;
        if max < min {
            return Err(TypeError::new(format!("variable {name}: {min}..{max} is empty")));
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

impl Expr {
    /// The kind, given how many variables there are and how deep the expression may be.
    fn kind(&self, var_count: usize, depth: usize) -> Result<ExprKind, TypeError> {
        if depth == 0 {
            let message = format!("the expression is nested deeper than {MAX_EXPR_DEPTH}");
            return Err(TypeError::new(message));
        }
        let of = |expr: &Expr| expr.kind(var_count, depth - 1);
        match self {
            Expr::Var(var) if *var < var_count => Ok(ExprKind::Int),
            Expr::Var(var) => Err(TypeError::new(format!("variable {var} of {var_count}"))),
            Expr::Int(_) => Ok(ExprKind::Int),
            Expr::Bool(_) => Ok(ExprKind::Bool),
            Expr::Unary(ExprUnary::Neg, src) => expect("-", of(src)?, ExprKind::Int),
            Expr::Unary(ExprUnary::Not, src) => of(src),
            Expr::Binary(op, a, b) => binary_kind(*op, of(a)?, of(b)?),
            Expr::Where(srcs) => {
                expect("where's condition", of(&srcs[0])?, ExprKind::Bool)?;
                expect("where's third operand", of(&srcs[2])?, of(&srcs[1])?)
            }
        }
    }
}

fn binary_kind(op: ExprBinary, a: ExprKind, b: ExprKind) -> Result<ExprKind, TypeError> {
    use ExprBinary::*;
    match op {
        Add | Sub | Mul | FloorDiv | FloorMod | CDiv | CMod | Max | Min | Shl | Shr => {
            expect(op.symbol(), a, ExprKind::Int)?;
            expect(op.symbol(), b, ExprKind::Int)
        }
        Lt => {
            expect("<", a, ExprKind::Int)?;
            expect("<", b, ExprKind::Int).map(|_| ExprKind::Bool)
        }
        Ne | Eq => expect(op.symbol(), b, a).map(|_| ExprKind::Bool),
        And | Or | Xor => expect(op.symbol(), b, a),
    }
}

fn expect(what: &str, found: ExprKind, wanted: ExprKind) -> Result<ExprKind, TypeError> {
    if found == wanted {
        return Ok(found);
    }
    let (found, wanted) = (found.name(), wanted.name());
    Err(TypeError::new(format!("{what} takes {wanted} here, not {found}")))
}
