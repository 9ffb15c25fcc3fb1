//! A position in a line of text, and the parsers of tokens and lists.

use crate::{DType, Literal, Shape, element};

/// A syntax or type error of a case file, and its position.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {message}")]
pub struct ParseError {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// The description: what was expected and what was found.
    pub message: String,
}

/// A position in a line; `#` ends the line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'a> {
    line: &'a str,
    line_number: usize,
    offset_bytes: usize,
}

impl<'a> Cursor<'a> {
    /// Creates a cursor at the start of line `line_number` (from 1).
    pub(super) fn new(line: &'a str, line_number: usize) -> Cursor<'a> {
        let mut cursor = Cursor { line, line_number, offset_bytes: 0 };
        cursor.skip_space();
        cursor
    }

    pub(super) fn rest(&self) -> &'a str {
        &self.line[self.offset_bytes..]
    }

    pub(super) fn at_end(&self) -> bool {
        self.rest().is_empty() || self.rest().starts_with('#')
    }

    fn advance(&mut self, bytes: usize) -> &'a str {
        let taken = &self.rest()[..bytes];
        self.offset_bytes += bytes;
        self.skip_space();
        taken
    }

    fn skip_space(&mut self) {
        let rest = self.rest();
        self.offset_bytes += rest.len() - rest.trim_start().len();
    }

    /// Returns an error at this position.
    pub(super) fn error(&self, message: impl Into<String>) -> ParseError {
        let column = self.line[..self.offset_bytes].chars().count() + 1;
        ParseError { line: self.line_number, column, message: message.into() }
    }

    /// Returns the error that `expectation` was not found at this position.
    pub(super) fn expected(&self, expectation: &str) -> ParseError {
        let found = if self.at_end() {
            "the end of the line".to_string()
        } else {
            let length = self.literal_length().max(self.word_length());
            let first = self.rest().chars().next().map_or(0, char::len_utf8);
            let mut end = length.max(first).min(40);
            while !self.rest().is_char_boundary(end) {
                end -= 1;
            }
            format!("`{}`", &self.rest()[..end])
        };
        self.error(format!("expected {expectation}, found {found}"))
    }

    pub(super) fn need_end(&self) -> Result<(), ParseError> {
        if self.at_end() { Ok(()) } else { Err(self.expected("the end of the line")) }
    }

    /// Consumes `text` if it is next; returns whether it was.
    pub(super) fn take(&mut self, text: &str) -> bool {
        let is_next = self.rest().starts_with(text);
        if is_next {
            self.advance(text.len());
        }
        is_next
    }

    pub(super) fn need(&mut self, text: &str) -> Result<(), ParseError> {
        if self.take(text) { Ok(()) } else { Err(self.expected(&format!("`{text}`"))) }
    }

    /// Consumes `key=`, with or without spaces around.
    pub(super) fn need_key(&mut self, key: &str) -> Result<(), ParseError> {
        if self.peek_word() != Some(key) {
            return Err(self.expected(&format!("`{key}=`")));
        }
        self.advance(key.len());
        self.need("=")
    }

    fn word_length(&self) -> usize {
        let rest = self.rest();
        let inside = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if rest.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
            rest.find(|c| !inside(c)).unwrap_or(rest.len())
        } else {
            0
        }
    }

    /// Returns the next token if it is a word of letters, digits and `_`.
    pub(super) fn peek_word(&self) -> Option<&'a str> {
        let length = self.word_length();
        (0 < length).then(|| &self.rest()[..length])
    }

    /// Consumes a word; `expectation` describes it in errors.
    pub(super) fn word(&mut self, expectation: &str) -> Result<&'a str, ParseError> {
        let word = self.peek_word().ok_or_else(|| self.expected(expectation))?;
        Ok(self.advance(word.len()))
    }

    /// Consumes a name such as `divmod/floor-of-sum`.
    pub(super) fn path(&mut self, expectation: &str) -> Result<&'a str, ParseError> {
        let inside = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '/');
        let length = self.rest().find(|c| !inside(c)).unwrap_or(self.rest().len());
        if length == 0 {
            return Err(self.expected(expectation));
        }
        Ok(self.advance(length))
    }

    /// Returns the length of a token that may be a literal: a sign, then letters, digits, points
    /// and colons; a sign also after the `e` of a number.
    fn literal_length(&self) -> usize {
        let bytes = self.rest().as_bytes();
        let sign = usize::from(bytes.first() == Some(&b'-'));
        let numeric = bytes.get(sign).is_some_and(u8::is_ascii_digit);
        let mut end = sign;
        while let Some(byte) = bytes.get(end) {
            let after_e = numeric && sign < end && matches!(bytes[end - 1], b'e' | b'E');
            let inside = byte.is_ascii_alphanumeric()
                || matches!(byte, b'.' | b':' | b'_')
                || (after_e && matches!(byte, b'+' | b'-'));
            if !inside {
                break;
            }
            end += 1;
        }
        end
    }

    /// Consumes a literal if it is next.
    pub(super) fn literal(&mut self) -> Option<Literal> {
        let length = self.literal_length();
        let literal = element::parse_literal(&self.rest()[..length])?;
        self.advance(length);
        Some(literal)
    }

    pub(super) fn need_literal(&mut self) -> Result<Literal, ParseError> {
        self.literal().ok_or_else(|| self.expected("a literal, say `4`, `4.0`, `nan` or `true`"))
    }

    /// Consumes an element of `dtype`; returns its bit pattern.
    pub(super) fn element(&mut self, dtype: DType) -> Result<u64, ParseError> {
        let length = self.literal_length();
        let Some(bits) = element::parse_element(dtype, &self.rest()[..length]) else {
            return Err(self.expected(&format!("an element of {}", dtype.name())));
        };
        self.advance(length);
        Ok(bits)
    }

    fn integer<T: std::str::FromStr>(
        &mut self,
        expectation: &str,
        is_signed: bool,
    ) -> Result<T, ParseError> {
        let rest = self.rest();
        let sign = usize::from(is_signed && rest.starts_with('-'));
        let digits = rest[sign..].bytes().take_while(u8::is_ascii_digit).count();
        if digits == 0 {
            return Err(self.expected(expectation));
        }
        let text = &rest[..sign + digits];
        let value = text
            .parse()
            .map_err(|_| self.error(format!("expected {expectation}, {text} is too large")))?;
        self.advance(text.len());
        Ok(value)
    }

    /// Consumes a count or an index.
    pub(super) fn count(&mut self, expectation: &str) -> Result<usize, ParseError> {
        self.integer(expectation, false)
    }

    /// Consumes an unsigned 64-bit number.
    pub(super) fn unsigned(&mut self, expectation: &str) -> Result<u64, ParseError> {
        self.integer(expectation, false)
    }

    /// Consumes a signed number; there is no space after the sign.
    pub(super) fn signed(&mut self, expectation: &str) -> Result<i64, ParseError> {
        self.integer(expectation, true)
    }

    /// Consumes `[item, item, ...]`, which may be empty.
    pub(super) fn list<T>(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<T, ParseError>,
    ) -> Result<Vec<T>, ParseError> {
        let mut items = Vec::new();
        self.need("[")?;
        if self.take("]") {
            return Ok(items);
        }
        loop {
            items.push(item(self)?);
            if self.take("]") {
                return Ok(items);
            }
            if !self.take(",") {
                return Err(self.expected("`,` or `]`"));
            }
        }
    }

    pub(super) fn shape(&mut self) -> Result<Shape, ParseError> {
        self.list(|cursor| cursor.count("the size of an axis"))
    }

    pub(super) fn axes(&mut self) -> Result<Vec<usize>, ParseError> {
        self.need_key("axes")?;
        self.list(|cursor| cursor.count("the number of an axis"))
    }

    /// Consumes `axes=[0,1]`, or `[0,1]`, the form of older texts.
    pub(super) fn movement_axes(&mut self) -> Result<Vec<usize>, ParseError> {
        if self.rest().starts_with('[') {
            return self.list(|cursor| cursor.count("the number of an axis"));
        }
        self.axes()
    }

    /// Consumes `[(a,b), ...]` of counts.
    pub(super) fn pairs(&mut self) -> Result<Vec<(usize, usize)>, ParseError> {
        self.list(|cursor| cursor.pair(|cursor| cursor.count("a number of elements")))
    }

    /// Consumes `(a,b)`.
    pub(super) fn pair<T>(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<T, ParseError>,
    ) -> Result<(T, T), ParseError> {
        self.need("(")?;
        let first = item(self)?;
        self.need(",")?;
        let second = item(self)?;
        self.need(")")?;
        Ok((first, second))
    }

    /// Consumes `min..max`, both inclusive.
    pub(super) fn range(&mut self) -> Result<(i64, i64), ParseError> {
        let min = self.signed("the smallest value")?;
        self.need("..")?;
        Ok((min, self.signed("the largest value")?))
    }

    /// Consumes `"text"`, in which `\"` is a quote and `\\` a backslash.
    pub(super) fn quoted(&mut self) -> Result<String, ParseError> {
        let mut text = String::new();
        let mut chars = self.rest().char_indices();
        if chars.next().is_none_or(|(_, first)| first != '"') {
            return Err(self.expected("text in double quotes"));
        }
        while let Some((at, next)) = chars.next() {
            match next {
                '"' => {
                    self.advance(at + 1);
                    return Ok(text);
                }
                '\\' => match chars.next() {
                    Some((_, escaped @ ('"' | '\\'))) => text.push(escaped),
                    _ => return Err(self.error("in this text, `\\` must come before `\"` or `\\`")),
                },
                char => text.push(char),
            }
        }
        Err(self.error("this text has no closing `\"` on its line"))
    }
}
