//! The reader of the texts of rules, token by token.

/// The rest of a text, which is read token by token.
pub(crate) struct Lexer<'t>(&'t str);

impl<'t> Lexer<'t> {
    pub(crate) fn new(text: &'t str) -> Lexer<'t> {
        Lexer(text.trim())
    }

    /// Reads `token` if it comes next.
    pub(crate) fn take(&mut self, token: &str) -> bool {
        match self.0.strip_prefix(token) {
            Some(rest) => {
                self.0 = rest.trim_start();
                true
            }
            None => false,
        }
    }

    /// Reads `token`, which must come next.
    pub(crate) fn expect(&mut self, token: &str) -> Result<(), String> {
        if self.take(token) { Ok(()) } else { Err(format!("expected {token} before {:?}", self.0)) }
    }

    /// Reads a name or an unsigned number.
    pub(crate) fn word(&mut self) -> Result<&'t str, String> {
        let is_part = |letter: char| letter.is_ascii_alphanumeric() || "_.".contains(letter);
        let end = self.0.find(|letter| !is_part(letter)).unwrap_or(self.0.len());
        if end == 0 {
            return Err(format!("expected a name before {:?}", self.0));
        }
        let (word, rest) = self.0.split_at(end);
        self.0 = rest.trim_start();
        Ok(word)
    }

    /// Checks that nothing is left to read.
    pub(crate) fn end(&self) -> Result<(), String> {
        if self.0.is_empty() { Ok(()) } else { Err(format!("{:?} is left over", self.0)) }
    }
}
