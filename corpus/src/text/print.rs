//! Prints cases in the text form. Values are named `a` to `z`, then `v26`, `v27`, ...

use crate::{
    Arg, Arity, Case, CaseFile, DType, Expect, Expr, ExprBinary, ExprCase, ExprUnary, Fill, Method,
    Operand, Program, Statement, ValueId, Var, ViewOp, ViewOps, format_element,
};
use std::fmt::{self, Display, Formatter, Write};

impl Display for ValueId {
    /// Prints the value's name in the text form.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            number @ 0..26 => f.write_char(char::from(b'a' + number as u8)),
            number => write!(f, "v{number}"),
        }
    }
}

impl Display for Operand {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Operand::Value(value) => write!(f, "{value}"),
            Operand::Literal(literal) => write!(f, "{literal}"),
        }
    }
}

/// A list that prints as `[a,b]`; the function prints one item.
struct List<'a, T>(&'a [T], fn(&T, &mut Formatter<'_>) -> fmt::Result);

impl<T> Display for List<'_, T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_char('[')?;
        for (index, item) in self.0.iter().enumerate() {
            if 0 < index {
                f.write_char(',')?;
            }
            self.1(item, f)?;
        }
        f.write_char(']')
    }
}

/// The list of the items as they print.
fn list<T: Display>(items: &[T]) -> List<'_, T> {
    List(items, |item, f| write!(f, "{item}"))
}

/// The list of the pairs, each of which prints as `(a,b)`.
fn pair_list<T: Display>(items: &[(T, T)]) -> List<'_, (T, T)> {
    List(items, |(a, b), f| write!(f, "({a},{b})"))
}

fn write_elements(f: &mut Formatter<'_>, dtype: DType, bits: &[u64]) -> fmt::Result {
    f.write_char('[')?;
    for (index, bits) in bits.iter().enumerate() {
        let separator = if 0 < index { ", " } else { "" };
        write!(f, "{separator}{}", format_element(dtype, *bits))?;
    }
    f.write_char(']')
}

impl Display for Program {
    /// Prints one statement per line, the outputs last; ends with a line feed.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (number, statement) in self.statements.iter().enumerate() {
            writeln!(f, "{} = {statement}", ValueId(number as u32))?;
        }
        for (index, output) in self.outputs.iter().enumerate() {
            let prefix = if index == 0 { "output " } else { ", " };
            write!(f, "{prefix}{output}")?;
        }
        if self.outputs.is_empty() { Ok(()) } else { writeln!(f) }
    }
}

impl Display for Statement {
    /// Prints the right side of the assignment.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Statement::Input { dtype, shape, fill } => {
                write!(f, "input {}{} ", dtype.name(), list(shape))?;
                write_fill(f, *dtype, fill)
            }
            Statement::Const { dtype, shape, value } => {
                write!(f, "const {}{} {value}", dtype.name(), list(shape))
            }
            Statement::Arange { dtype, start, step, count } => {
                write!(f, "arange {}[{count}] start={start} step={step}", dtype.name())
            }
            Statement::Unary { op, src } => write!(f, "{} {src}", op.name()),
            Statement::Binary { op, srcs: [a, b] } => write!(f, "{} {a} {b}", op.name()),
            Statement::Where { srcs: [a, b, c] } => write!(f, "where {a} {b} {c}"),
            Statement::MulAcc { srcs: [a, b, c] } => write!(f, "mulacc {a} {b} {c}"),
            Statement::Cast { src, dtype } => write!(f, "cast {src} {}", dtype.name()),
            Statement::Bitcast { src, dtype } => write!(f, "bitcast {src} {}", dtype.name()),
            Statement::Reduce { op, src, axes } => {
                write!(f, "{} {src} axes={}", op.name(), list(axes))
            }
            Statement::Reshape { src, shape } => write!(f, "reshape {src} {}", list(shape)),
            Statement::Permute { src, axes } => write!(f, "permute {src} axes={}", list(axes)),
            Statement::Expand { src, shape } => write!(f, "expand {src} {}", list(shape)),
            Statement::Pad { src, pads, value } => {
                write!(f, "pad {src} {} {value}", pair_list(pads))
            }
            Statement::Shrink { src, ranges } => write!(f, "shrink {src} {}", pair_list(ranges)),
            Statement::Flip { src, axes } => write!(f, "flip {src} axes={}", list(axes)),
            Statement::Cat { srcs, axis } => write!(f, "cat {} axis={axis}", list(srcs)),
            Statement::Gather { src, axis, index } => {
                write!(f, "gather {src} {index} axis={axis}")
            }
            Statement::Method { method, srcs, args } => write_method(f, *method, srcs, args),
            Statement::Contiguous { src } => write!(f, "contiguous {src}"),
            Statement::Realize { src } => write!(f, "realize {src}"),
            Statement::Detach { src } => write!(f, "detach {src}"),
            Statement::Gradient { of, wrt } => write!(f, "gradient {of} {wrt}"),
        }
    }
}

fn write_method(
    f: &mut Formatter<'_>,
    method: Method,
    srcs: &[ValueId],
    args: &[Arg],
) -> fmt::Result {
    let row = method.row();
    write!(f, "{}", row.name)?;
    match row.arity {
        Arity::Exactly(_) | Arity::Between(..) => {
            srcs.iter().try_for_each(|src| write!(f, " {src}"))?
        }
        Arity::List => write!(f, " {}", list(srcs))?,
    }
    for ((name, _), arg) in row.parameters.iter().zip(args) {
        write!(f, " {name}=")?;
        match arg {
            Arg::Int(value) => write!(f, "{value}")?,
            Arg::Ints(values) => write!(f, "{}", list(values))?,
            Arg::Flag(value) => write!(f, "{value}")?,
            Arg::Number(value) => write!(f, "{value}")?,
            Arg::DType(dtype) => write!(f, "{}", dtype.name())?,
            Arg::Word(word) => write!(f, "{word}")?,
            Arg::Indices(indices) => write!(f, "{}", list(indices))?,
        }
    }
    Ok(())
}

fn write_fill(f: &mut Formatter<'_>, dtype: DType, fill: &Fill) -> fmt::Result {
    match fill {
        Fill::Iota => write!(f, "iota"),
        Fill::Seeded { seed, distribution } => write!(f, "seeded({seed}, {})", distribution.name()),
        Fill::Explicit(bits) => write_elements(f, dtype, bits),
    }
}

impl Display for ViewOps {
    /// Prints `view [..]`, then one operation per line.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "view {}", list(&self.shape))?;
        self.ops.iter().try_for_each(|op| writeln!(f, "{op}"))
    }
}

impl Display for ViewOp {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.name())?;
        match self {
            ViewOp::Reshape(sizes) | ViewOp::Expand(sizes) => write!(f, "{}", list(sizes)),
            ViewOp::Permute(axes) | ViewOp::Flip(axes) => write!(f, "axes={}", list(axes)),
            ViewOp::Pad(ranges) | ViewOp::Shrink(ranges) => write!(f, "{}", pair_list(ranges)),
        }
    }
}

impl Display for ExprCase {
    /// Prints the variables, then the `expr` line.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for Var { name, dtype, min, max } in &self.vars {
            let dtype = if *dtype == DType::I32 { "" } else { &format!("{} ", dtype.name()) };
            writeln!(f, "var {name} {dtype}{min}..{max}")?;
        }
        write!(f, "expr ")?;
        write_expr(f, &self.vars, &self.expr)?;
        writeln!(f)
    }
}

fn write_expr(f: &mut Formatter<'_>, vars: &[Var], expr: &Expr) -> fmt::Result {
    match expr {
        Expr::Var(var) => match vars.get(*var) {
            Some(var) => write!(f, "{}", var.name),
            None => write!(f, "?{var}"),
        },
        Expr::Int(value) => write!(f, "{value}"),
        Expr::Bool(value) => write!(f, "{value}"),
        Expr::Unary(op, src) => {
            f.write_char(if *op == ExprUnary::Neg { '-' } else { '!' })?;
            // `-5` would read back as a literal; `-(5)` is the negation of one.
            let is_literal = *op == ExprUnary::Neg && matches!(**src, Expr::Int(0..));
            write_grouped(f, vars, src, is_literal || infix_op(src).is_some())
        }
        Expr::Binary(op, a, b) if op.is_call() => {
            write!(f, "{}(", op.symbol())?;
            write_expr(f, vars, a)?;
            write!(f, ", ")?;
            write_expr(f, vars, b)?;
            write!(f, ")")
        }
        Expr::Binary(op, a, b) => {
            write_grouped(f, vars, a, !is_left_operand_bare(a, *op))?;
            write!(f, " {} ", op.symbol())?;
            let is_grouped = infix_op(b).is_some_and(|inner| !is_product_in_sum(inner, *op));
            write_grouped(f, vars, b, is_grouped)
        }
        Expr::Where(srcs) => {
            write!(f, "where(")?;
            for (index, src) in srcs.iter().enumerate() {
                write!(f, "{}", if 0 < index { ", " } else { "" })?;
                write_expr(f, vars, src)?;
            }
            write!(f, ")")
        }
        Expr::Cast(dtype, src) => {
            write!(f, "{}(", dtype.name())?;
            write_expr(f, vars, src)?;
            write!(f, ")")
        }
    }
}

/// Prints an expression, in parentheses if `is_grouped`.
fn write_grouped(
    f: &mut Formatter<'_>,
    vars: &[Var],
    expr: &Expr,
    is_grouped: bool,
) -> fmt::Result {
    if !is_grouped {
        return write_expr(f, vars, expr);
    }
    write!(f, "(")?;
    write_expr(f, vars, expr)?;
    write!(f, ")")
}

/// Returns the operator of an infix expression, which may need parentheses.
fn infix_op(expr: &Expr) -> Option<ExprBinary> {
    match expr {
        Expr::Binary(op, _, _) if !op.is_call() => Some(*op),
        _ => None,
    }
}

/// Returns whether the left operand of `op` is printed without parentheses: an operand that is no
/// infix expression, a product in a sum, a sum in a sum, or an expression with the same operator
/// `*`, `//` or `%`. Others have parentheses even where precedence does not require them.
fn is_left_operand_bare(left: &Expr, op: ExprBinary) -> bool {
    infix_op(left).is_none_or(|inner| {
        is_product_in_sum(inner, op)
            || (is_sum(inner) && is_sum(op))
            || (is_product(inner) && inner == op)
    })
}

fn is_product_in_sum(inner: ExprBinary, outer: ExprBinary) -> bool {
    is_product(inner) && is_sum(outer)
}

fn is_sum(op: ExprBinary) -> bool {
    matches!(op, ExprBinary::Add | ExprBinary::Sub)
}

fn is_product(op: ExprBinary) -> bool {
    matches!(op, ExprBinary::Mul | ExprBinary::FloorDiv | ExprBinary::FloorMod)
}

impl Display for CaseFile {
    /// Prints the file: description, case, expectations.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for line in self.description.iter().flat_map(|line| line.split('\n')) {
            writeln!(f, "{}", format!("# {line}").trim_end())?;
        }
        match &self.case {
            Case::Program(program) => write!(f, "{program}")?,
            Case::Views(views) => write!(f, "{views}")?,
            Case::Expr(expr) => write!(f, "{expr}")?,
        }
        for expect in &self.expects {
            write!(f, "expect ")?;
            write_expect(f, &self.case, expect)?;
            writeln!(f)?;
        }
        Ok(())
    }
}

fn write_expect(f: &mut Formatter<'_>, case: &Case, expect: &Expect) -> fmt::Result {
    match expect {
        Expect::Kernels(count) => write!(f, "kernels {count}"),
        Expect::Values { output, array } => {
            match case {
                Case::Program(program) if *output < program.outputs.len() => {
                    write!(f, "values {} ", program.outputs[*output])?;
                }
                _ => write!(f, "values ?{output} ")?,
            }
            write_elements(f, array.dtype, &array.bits)
        }
        Expect::Index(text) => write_quoted(f, "index", text),
        Expect::Valid(text) => write_quoted(f, "valid", text),
        Expect::Text(text) => write_quoted(f, "text", text),
        Expect::Views(count) => write!(f, "views {count}"),
        Expect::Unmerged(count) => write!(f, "unmerged {count}"),
        Expect::Contiguous(contiguous) => write!(f, "contiguous {contiguous}"),
        Expect::View { number, shape, strides, offset, mask } => {
            let (shape, strides) = (list(shape), list(strides));
            write!(f, "view {number} shape={shape} strides={strides} offset={offset} mask=")?;
            match mask {
                Some(mask) => write!(f, "{}", pair_list(mask)),
                None => write!(f, "none"),
            }
        }
        Expect::RealStrides(strides) => {
            let item = |stride: &Option<i64>, f: &mut Formatter<'_>| match stride {
                Some(stride) => write!(f, "{stride}"),
                None => write!(f, "none"),
            };
            write!(f, "real_strides {}", List(strides, item))
        }
        Expect::RealSize(count) => write!(f, "real_size {count}"),
        Expect::Simplified(inner) => {
            write!(f, "simplified ")?;
            write_expect(f, case, inner)
        }
        Expect::Range(min, max) => write!(f, "range {min}..{max}"),
        Expect::Fires(rule) => write!(f, "fires {rule}"),
    }
}

fn write_quoted(f: &mut Formatter<'_>, word: &str, text: &str) -> fmt::Result {
    write!(f, "{word} \"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}
