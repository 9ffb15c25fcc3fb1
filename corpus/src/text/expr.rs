//! Parses an expression case: `var a 0..10`, `var b u8 0..9` or `var c i64` lines, an `expr ...`
//! line, `expect` lines. A variable without a dtype is an i32; one without bounds has all values of
//! its dtype. `i64(a)` is a cast.
//!
//! Precedence is that of Python, lowest first: comparisons (which do not chain), `|`, `^`, `&`,
//! shifts, `+ -`, `* // %`, then the prefixes `-` and `!`.

use super::cursor::{Cursor, ParseError};
use super::expects;
use crate::{Case, DType, Expr, ExprBinary, ExprCase, ExprUnary, MAX_EXPR_DEPTH, Var};

/// Returns whether a variable of an expression may have this name.
pub(crate) fn is_expr_name(name: &str) -> bool {
    let reserved = ["cdiv", "cmod", "max", "min", "where", "true", "false"];
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && !reserved.contains(&name)
        && DType::from_name(name).is_none()
}

pub(super) fn parse_expr_case(lines: &[Cursor<'_>]) -> Result<super::Parsed, ParseError> {
    let mut vars: Vec<Var> = Vec::new();
    let mut expr = None;
    let mut expects = Vec::new();
    for line in lines {
        let mut cursor = *line;
        match cursor.word("`var`, `expr` or `expect`")? {
            "var" if expr.is_none() => {
                let at = cursor;
                let name = cursor.word("the name of a variable")?.to_string();
                let var = variable(name, &mut cursor)?;
                var.check(&vars).map_err(|error| at.error(error.message))?;
                vars.push(var);
            }
            "expr" if expr.is_none() => {
                let at = cursor;
                let (found, _) = Reader { vars: &vars }.binary(&mut cursor, 0, 0)?;
                let case = ExprCase { vars: vars.clone(), expr: found };
                case.dtype().map_err(|error| at.error(error.message))?;
                expr = Some(case);
            }
            "expect" => expects.push(expects::parse_expr_expect(&mut cursor)?),
            _ if expr.is_some() => return Err(line.expected("`expect` after the `expr` line")),
            _ => return Err(line.expected("`var`, `expr` or `expect`")),
        }
        cursor.need_end()?;
    }
    match (expr, lines.last()) {
        (Some(case), _) => Ok((Case::Expr(case), expects)),
        (None, Some(last)) => Err(last.error("expected an `expr` line after this one")),
        (None, None) => unreachable!("the caller passes at least one line"),
    }
}

/// Parses the rest of a `var` line: a dtype, bounds, or both.
fn variable(name: String, cursor: &mut Cursor<'_>) -> Result<Var, ParseError> {
    let dtype = cursor.peek_word().and_then(DType::from_name);
    if dtype.is_some() {
        cursor.word("a dtype")?;
    }
    let var = Var::full_range(name, dtype.unwrap_or(DType::I32));
    if dtype.is_some() && cursor.at_end() {
        return Ok(var);
    }
    let (min, max) = cursor.range()?;
    Ok(Var { min, max, ..var })
}

/// An expression and its depth.
type Parsed = (Expr, usize);

struct Reader<'v> {
    vars: &'v [Var],
}

/// Maximum recursion: each level of an expression has at most a sign and a parenthesis.
const MAX_NESTING: usize = 2 * MAX_EXPR_DEPTH;

/// Operators by precedence, lowest first; an operator comes before its prefixes.
const LEVELS: [&[ExprBinary]; 7] = [
    &[ExprBinary::Lt, ExprBinary::Ne, ExprBinary::Eq],
    &[ExprBinary::Or],
    &[ExprBinary::Xor],
    &[ExprBinary::And],
    &[ExprBinary::Shl, ExprBinary::Shr],
    &[ExprBinary::Add, ExprBinary::Sub],
    &[ExprBinary::Mul, ExprBinary::FloorDiv, ExprBinary::FloorMod],
];

impl Reader<'_> {
    fn binary(
        &self,
        cursor: &mut Cursor<'_>,
        level: usize,
        nesting: usize,
    ) -> Result<Parsed, ParseError> {
        let Some(ops) = LEVELS.get(level) else {
            return self.unary(cursor, nesting);
        };
        let (mut expr, mut depth) = self.binary(cursor, level + 1, nesting)?;
        let mut has_comparison = false;
        loop {
            let at = *cursor;
            // `<<` must not be parsed as `<`.
            let is_shift = level == 0 && cursor.rest().starts_with("<<");
            let Some(op) = ops.iter().find(|op| !is_shift && cursor.take(op.symbol())) else {
                return Ok((expr, depth));
            };
            if has_comparison {
                return Err(at.error("comparisons do not chain: use parentheses"));
            }
            has_comparison = level == 0;
            let (right, right_depth) = self.binary(cursor, level + 1, nesting)?;
            depth = deeper(&at, depth.max(right_depth))?;
            expr = Expr::Binary(*op, Box::new(expr), Box::new(right));
        }
    }

    fn unary(&self, cursor: &mut Cursor<'_>, nesting: usize) -> Result<Parsed, ParseError> {
        if nesting == MAX_NESTING {
            return Err(cursor.error(format!("nested deeper than {MAX_NESTING}")));
        }
        let at = *cursor;
        let bytes = cursor.rest().as_bytes();
        let sign_length = usize::from(bytes.first() == Some(&b'-'));
        if bytes.get(sign_length).is_some_and(u8::is_ascii_digit) {
            return Ok((Expr::Int(cursor.signed("a 64-bit integer")?), 1));
        }
        for (sign, op) in [("-", ExprUnary::Neg), ("!", ExprUnary::Not)] {
            if cursor.take(sign) {
                let (src, depth) = self.unary(cursor, nesting + 1)?;
                return Ok((Expr::Unary(op, Box::new(src)), deeper(&at, depth)?));
            }
        }
        if cursor.take("(") {
            let found = self.binary(cursor, 0, nesting + 1)?;
            cursor.need(")")?;
            return Ok(found);
        }
        self.word(cursor, nesting)
    }

    fn word(&self, cursor: &mut Cursor<'_>, nesting: usize) -> Result<Parsed, ParseError> {
        let at = *cursor;
        let word = cursor.word("a variable, a number, a call or `(`")?;
        if let Some(op) = ExprBinary::ALL.into_iter().find(|op| op.symbol() == word) {
            let [a, b] = self.arguments(cursor, nesting)?;
            let depth = deeper(&at, a.1.max(b.1))?;
            return Ok((Expr::Binary(op, Box::new(a.0), Box::new(b.0)), depth));
        }
        if let Some(dtype) = DType::from_name(word) {
            let [(src, depth)] = self.arguments(cursor, nesting)?;
            return Ok((Expr::Cast(dtype, Box::new(src)), deeper(&at, depth)?));
        }
        match word {
            "true" => Ok((Expr::Bool(true), 1)),
            "false" => Ok((Expr::Bool(false), 1)),
            "where" => {
                let [condition, a, b] = self.arguments(cursor, nesting)?;
                let depth = deeper(&at, condition.1.max(a.1).max(b.1))?;
                Ok((Expr::Where(Box::new([condition.0, a.0, b.0])), depth))
            }
            _ => match self.vars.iter().position(|var| var.name == word) {
                Some(var) => Ok((Expr::Var(var), 1)),
                None => Err(at.error(format!("variable {word} is not defined above"))),
            },
        }
    }

    fn arguments<const COUNT: usize>(
        &self,
        cursor: &mut Cursor<'_>,
        nesting: usize,
    ) -> Result<[Parsed; COUNT], ParseError> {
        let mut found = [const { (Expr::Bool(false), 1) }; COUNT];
        for (index, argument) in found.iter_mut().enumerate() {
            cursor.need(if index == 0 { "(" } else { "," })?;
            *argument = self.binary(cursor, 0, nesting + 1)?;
        }
        cursor.need(")")?;
        Ok(found)
    }
}

/// Returns the depth of an expression whose operands have the depth `depth`.
fn deeper(at: &Cursor<'_>, depth: usize) -> Result<usize, ParseError> {
    if depth < MAX_EXPR_DEPTH {
        return Ok(depth + 1);
    }
    Err(at.error(format!("the expression is nested deeper than {MAX_EXPR_DEPTH}")))
}
