//! Parses the `expect` lines of each kind of case.

use super::cursor::{Cursor, ParseError};
use crate::{Array, Expect, TensorType};

/// Name and type of each output that the program has declared above the `expect` line.
pub(super) type Outputs<'a> = [(&'a str, &'a TensorType)];

pub(super) fn parse_program_expect(
    cursor: &mut Cursor<'_>,
    outputs: &Outputs<'_>,
) -> Result<Expect, ParseError> {
    let start = *cursor;
    match cursor.word("`kernels`, `values` or `fires`")? {
        "fires" => parse_fires(cursor),
        "kernels" => Ok(Expect::Kernels(cursor.count("a number of kernels")?)),
        "values" => parse_values(cursor, outputs),
        _ => Err(start.expected("`kernels`, `values` or `fires`")),
    }
}

fn parse_fires(cursor: &mut Cursor<'_>) -> Result<Expect, ParseError> {
    Ok(Expect::Fires(cursor.path("the name of a rule, say `boolean/not-not`")?.to_string()))
}

fn parse_values(cursor: &mut Cursor<'_>, outputs: &Outputs<'_>) -> Result<Expect, ParseError> {
    let start = *cursor;
    let name = cursor.word("the name of an output")?;
    let Some(output) = outputs.iter().position(|(output, _)| *output == name) else {
        return Err(
            start.error(format!("{name} is not an output: add it to an `output` line above"))
        );
    };
    let tensor = outputs[output].1;
    let list_start = *cursor;
    let bits = cursor.list(|cursor| cursor.element(tensor.dtype))?;
    if bits.len() != tensor.count() {
        let (listed, count) = (bits.len(), tensor.count());
        let shape = &tensor.shape;
        return Err(list_start.error(format!(
            "{listed} elements are listed, {name} of shape {shape:?} has {count}"
        )));
    }
    let array = Array { dtype: tensor.dtype, shape: tensor.shape.clone(), bits };
    Ok(Expect::Values { output, array })
}

pub(super) fn parse_expr_expect(cursor: &mut Cursor<'_>) -> Result<Expect, ParseError> {
    let start = *cursor;
    match cursor.word("`text`, `range` or `fires`")? {
        "fires" => parse_fires(cursor),
        "text" => Ok(Expect::Text(cursor.quoted()?)),
        "range" => cursor.range().map(|(min, max)| Expect::Range(min, max)),
        _ => Err(start.expected("`text`, `range` or `fires`")),
    }
}

pub(super) fn parse_views_expect(cursor: &mut Cursor<'_>) -> Result<Expect, ParseError> {
    let start = *cursor;
    match cursor.word(VIEWS_EXPECT)? {
        "fires" => parse_fires(cursor),
        "unmerged" => Ok(Expect::Unmerged(cursor.count("a number of views")?)),
        "real_size" => Ok(Expect::RealSize(cursor.count("a number of elements")?)),
        "real_strides" => {
            let stride = |cursor: &mut Cursor<'_>| {
                if cursor.peek_word() == Some("none") {
                    cursor.word("`none`").map(|_| None)
                } else {
                    cursor.signed("a stride or `none`").map(Some)
                }
            };
            Ok(Expect::RealStrides(cursor.list(stride)?))
        }
        "simplified" => Ok(Expect::Simplified(Box::new(parse_tracker_expect(cursor)?))),
        _ => {
            *cursor = start;
            parse_tracker_expect(cursor)
        }
    }
}

/// The words that may follow `expect` in a case of views.
const VIEWS_EXPECT: &str = "`index`, `valid`, `views`, `view` or `contiguous` (or `simplified` \
    before one of these), `unmerged`, `real_strides`, `real_size` or `fires`";

/// Parses an expectation of a shape tracker, which may stand after `simplified`.
fn parse_tracker_expect(cursor: &mut Cursor<'_>) -> Result<Expect, ParseError> {
    let start = *cursor;
    match cursor.word(VIEWS_EXPECT)? {
        "index" => Ok(Expect::Index(cursor.quoted()?)),
        "valid" => Ok(Expect::Valid(cursor.quoted()?)),
        "views" => Ok(Expect::Views(cursor.count("a number of views")?)),
        "contiguous" => {
            let value_start = *cursor;
            match cursor.word("`true` or `false`")? {
                "true" => Ok(Expect::Contiguous(true)),
                "false" => Ok(Expect::Contiguous(false)),
                _ => Err(value_start.expected("`true` or `false`")),
            }
        }
        "view" => parse_view(cursor),
        _ => Err(start.expected(VIEWS_EXPECT)),
    }
}

fn parse_view(cursor: &mut Cursor<'_>) -> Result<Expect, ParseError> {
    let number = cursor.count("the number of a view")?;
    cursor.need_key("shape")?;
    let shape = cursor.shape()?;
    cursor.need_key("strides")?;
    let strides = cursor.list(|cursor| cursor.signed("a stride"))?;
    cursor.need_key("offset")?;
    let offset = cursor.signed("an offset")?;
    cursor.need_key("mask")?;
    let mask = if cursor.peek_word() == Some("none") {
        cursor.word("`none`")?;
        None
    } else {
        Some(cursor.list(|cursor| cursor.pair(|cursor| cursor.signed("a bound")))?)
    };
    Ok(Expect::View { number, shape, strides, offset, mask })
}
