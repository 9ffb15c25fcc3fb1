//! The text form of a case: one statement per line, `#` comments, `expect` lines at the end.
//!
//! In: any text. Out: a well-formed case, or the line, the column and what was expected there.
//! `parse(&file.to_string())` returns `file`.

mod cursor;
mod expects;
mod expr;
mod print;
mod program;

use crate::{Case, CaseFile, ViewOp, ViewOps};
use cursor::Cursor;

pub use cursor::ParseError;
pub(crate) use expr::is_expr_name;

/// Parses a case file.
///
/// The first statement determines the kind: `view [4,4]` begins a view sequence, `var` or `expr` an
/// expression, anything else a program. The comment lines before it are the description.
///
/// ```
/// let file = gradiff_corpus::parse("# one add\na = input f32[4] iota\nb = add a 1.0\noutput b")?;
/// assert_eq!(file.description, ["one add"]);
/// let error = gradiff_corpus::parse("a = input f32[2] iota\nb = exp3 a").unwrap_err();
/// assert_eq!((error.line, error.column), (2, 5));
/// # Ok::<(), gradiff_corpus::ParseError>(())
/// ```
///
/// # Errors
/// The first position with an error: syntax, an unknown name, shapes and dtypes that do not fit, or
/// an incomplete case.
pub fn parse(text: &str) -> Result<CaseFile, ParseError> {
    let mut description = Vec::new();
    let mut lines = Vec::new();
    let mut line_count = 0;
    for (index, line) in text.lines().enumerate() {
        line_count = index + 1;
        let cursor = Cursor::new(line, line_count);
        if !cursor.at_end() {
            lines.push(cursor);
        } else if let Some(comment) = cursor.rest().strip_prefix('#')
            && lines.is_empty()
        {
            description.push(comment.strip_prefix(' ').unwrap_or(comment).trim_end().to_string());
        }
    }
    let Some(first) = lines.first() else {
        let end = Cursor::new("", line_count + 1);
        return Err(end.error("expected a program, `view [..]` or `expr ..`, found no statement"));
    };
    let (case, expects) = match first.peek_word() {
        Some("view") => parse_views(&lines)?,
        Some("var" | "expr") => expr::parse_expr_case(&lines)?,
        _ => program::parse_program(&lines)?,
    };
    Ok(CaseFile { description, case, expects })
}

type Parsed = (Case, Vec<crate::Expect>);

fn parse_views(lines: &[Cursor<'_>]) -> Result<Parsed, ParseError> {
    let mut views = ViewOps::default();
    let mut expects = Vec::new();
    let mut shape = Vec::new();
    for (index, start) in lines.iter().enumerate() {
        let mut cursor = *start;
        let word = cursor.word("a movement operation or `expect`")?;
        if index == 0 {
            views.shape = cursor.shape()?;
            shape = views.shape.clone();
            views.shapes().map_err(|error| start.error(error.message))?;
        } else if word == "expect" {
            expects.push(expects::parse_views_expect(&mut cursor)?);
        } else {
            let op = parse_view_op(start, word, &mut cursor)?;
            shape = op.shape(&shape).map_err(|error| start.error(error.message))?;
            views.ops.push(op);
        }
        cursor.need_end()?;
    }
    Ok((Case::Views(views), expects))
}

fn parse_view_op(
    start: &Cursor<'_>,
    word: &str,
    cursor: &mut Cursor<'_>,
) -> Result<ViewOp, ParseError> {
    Ok(match word {
        "reshape" => ViewOp::Reshape(cursor.shape()?),
        "permute" => ViewOp::Permute(cursor.movement_axes()?),
        "expand" => ViewOp::Expand(cursor.shape()?),
        "pad" => ViewOp::Pad(cursor.pairs()?),
        "shrink" => ViewOp::Shrink(cursor.pairs()?),
        "flip" => ViewOp::Flip(cursor.movement_axes()?),
        _ => {
            let allowed = "`reshape`, `permute`, `expand`, `pad`, `shrink`, `flip` or `expect`";
            return Err(start.expected(allowed));
        }
    })
}
