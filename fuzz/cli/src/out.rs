//! Printing. All output of the command passes through here: to standard output, where a failure to
//! write ends the command, and to standard error, where it cannot be reported.
//!
//! Text from outside (messages of compilers, names and contents of files) may contain escape
//! sequences that a terminal obeys. They are made visible instead.

use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write};

/// The exit code if the reader of standard output has closed it: that of a program that SIGPIPE
/// ends.
const UNREAD: i32 = 141;
/// The exit code if standard output cannot be written (EX_IOERR).
const UNWRITTEN: i32 = 74;

/// Prints like `print!`, but a failure to write ends the command with its exit code.
macro_rules! out {
    ($($part:tt)*) => { $crate::out::print(format_args!($($part)*)) };
}

/// Prints like `println!`; see `out!`.
macro_rules! outln {
    () => { $crate::out::print(format_args!("\n")) };
    ($($part:tt)*) => { $crate::out::print(format_args!("{}\n", format_args!($($part)*))) };
}

/// Prints like `eprintln!`, but ignores a failure to write.
macro_rules! errln {
    ($($part:tt)*) => { $crate::out::print_error(format_args!("{}\n", format_args!($($part)*))) };
}

pub(crate) use {errln, out, outln};

/// Writes to standard output, or ends the command.
pub(crate) fn print(text: Arguments<'_>) {
    let text = clean(&text.to_string());
    let mut out = io::stdout().lock();
    if let Err(error) = out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        end(&error);
    }
}

/// Ends a command that cannot write to standard output. Its workers notice this and end as well.
pub(crate) fn end(error: &io::Error) -> ! {
    if error.kind() == ErrorKind::BrokenPipe {
        std::process::exit(UNREAD);
    }
    errln!("gradiff: standard output cannot be written: {error}");
    std::process::exit(UNWRITTEN);
}

/// Writes to standard error.
pub(crate) fn print_error(text: Arguments<'_>) {
    let text = clean(&text.to_string());
    // A failure to write this cannot be reported.
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// Replaces control characters, except for newlines and tabs, by their numbers, as in `<1b>`.
pub(crate) fn clean(text: &str) -> String {
    let is_plain = |c: char| matches!(c, '\n' | '\t') || !(c.is_control() || is_direction(c));
    let mut cleaned = String::with_capacity(text.len());
    for c in text.chars() {
        match is_plain(c) {
            true => cleaned.push(c),
            false => cleaned.push_str(&format!("<{:02x}>", u32::from(c))),
        }
    }
    cleaned
}

/// Returns whether a character changes the writing direction of the text after it.
fn is_direction(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_shown_as_numbers() {
        for (text, cleaned) in [
            ("plain\ttext\n", "plain\ttext\n"),
            ("\x1b]0;title\x07", "<1b>]0;title<07>"),
            ("a\rb\x7f", "a<0d>b<7f>"),
            ("\u{9b}31m \u{202e}x", "<9b>31m <202e>x"),
            ("Übergröße \u{1f600}", "Übergröße \u{1f600}"),
        ] {
            assert_eq!(clean(text), cleaned);
        }
    }
}
