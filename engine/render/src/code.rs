//! Rendered text, and the helpers that it names. A helper is recorded where it is named, so every
//! text is made by [`code!`] of the texts that it contains.

use std::borrow::Borrow;
use std::fmt::{Display, Write};
use std::sync::Arc;

/// The names of helpers: functions and types that the prelude of a file defines. A set, in the
/// order in which a text names them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Helpers(Vec<Arc<str>>);

impl Helpers {
    /// Adds the helpers of another text.
    pub fn extend(&mut self, other: &Helpers) {
        for name in &other.0 {
            if !self.contains(name) {
                self.0.push(name.clone());
            }
        }
    }

    /// Returns whether a helper of this name is in the set.
    pub fn contains(&self, name: &str) -> bool {
        self.0.iter().any(|known| **known == *name)
    }

    /// Iterates over the names.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|name| &**name)
    }
}

impl<'a> FromIterator<&'a str> for Helpers {
    fn from_iter<I: IntoIterator<Item = &'a str>>(names: I) -> Helpers {
        let mut helpers = Helpers::default();
        for name in names {
            if !helpers.contains(name) {
                helpers.0.push(name.into());
            }
        }
        helpers
    }
}

/// A text and the helpers that it names. It has no `Display`, so that no text is formatted into
/// another without its helpers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Code {
    /// The text.
    pub text: String,
    /// The helpers, in the order in which the text names them.
    pub helpers: Helpers,
}

impl Code {
    /// The name of a helper.
    pub(crate) fn helper(name: impl Into<String>) -> Code {
        let text = name.into();
        Code { helpers: Helpers(vec![text.as_str().into()]), text }
    }

    /// The call of a helper.
    pub(crate) fn call(name: impl Into<String>, arguments: &[&Code]) -> Code {
        let mut call = Code::helper(name);
        call.text.push('(');
        call.push(&join(arguments, ", "));
        call.text.push(')');
        call
    }

    /// A text of a table, and the helpers that it names.
    pub(crate) fn naming(text: &str, helpers: &[&str]) -> Code {
        Code { text: text.to_string(), helpers: helpers.iter().copied().collect() }
    }

    /// Appends a piece of text.
    pub(crate) fn write(&mut self, piece: &(impl Piece + ?Sized)) {
        let shown = piece.record(&mut self.helpers);
        write!(self.text, "{shown}").expect("a string takes any text");
    }

    /// Appends another text.
    pub fn push(&mut self, other: &Code) {
        self.text.push_str(&other.text);
        self.helpers.extend(&other.helpers);
    }
}

impl From<String> for Code {
    fn from(text: String) -> Code {
        Code { text, helpers: Helpers::default() }
    }
}

impl From<&str> for Code {
    fn from(text: &str) -> Code {
        Code::from(text.to_string())
    }
}

/// The concatenation of the texts.
impl<'a> FromIterator<&'a Code> for Code {
    fn from_iter<I: IntoIterator<Item = &'a Code>>(parts: I) -> Code {
        let mut whole = Code::default();
        parts.into_iter().for_each(|part| whole.push(part));
        whole
    }
}

/// Texts with a separator between them.
pub(crate) fn join(parts: &[impl Borrow<Code>], separator: &str) -> Code {
    let mut whole = Code::default();
    for (number, part) in parts.iter().enumerate() {
        if number > 0 {
            whole.text.push_str(separator);
        }
        whole.push(part.borrow());
    }
    whole
}

/// A part of a text: a text with helpers, or anything that is displayed and names none.
pub(crate) trait Piece {
    type Shown: Display + ?Sized;

    /// Records the helpers and returns what to write.
    fn record(&self, helpers: &mut Helpers) -> &Self::Shown;
}

impl Piece for Code {
    type Shown = str;

    fn record(&self, helpers: &mut Helpers) -> &str {
        helpers.extend(&self.helpers);
        &self.text
    }
}

impl<T: Display + ?Sized> Piece for T {
    type Shown = T;

    fn record(&self, _helpers: &mut Helpers) -> &T {
        self
    }
}

/// Formats a text of pieces that may name helpers: `code!("{} {}", a, b)` or
/// `code!("{a} {b}"; a, b)`, with the pieces in the order of the text. A name in braces that is not
/// listed must be that of a piece without helpers.
macro_rules! code {
    ($format:literal; $($name:ident),+ $(,)?) => {{
        use $crate::code::Piece;
        let mut helpers = $crate::code::Helpers::default();
        $(let $name = $name.record(&mut helpers);)+
        $crate::code::Code { text: format!($format), helpers }
    }};
    ($format:literal $(, $piece:expr)+ $(,)?) => {{
        use $crate::code::Piece;
        let mut helpers = $crate::code::Helpers::default();
        let text = format!($format $(, $piece.record(&mut helpers))+);
        $crate::code::Code { text, helpers }
    }};
}
pub(crate) use code;
