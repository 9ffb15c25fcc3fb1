//! Fault files: parses the text of a known mistake.
//!
//! ```text
//! crate: kernel
//! description: A reduction starts from the wrong identity.
//!
//! file: engine/kernel/src/lower.rs
//! before:
//!     identity(op)
//! after:
//!     zero()
//! ```
//!
//! The value of a key is the rest of its line, or the indented block below it. Lines that begin
//! with `#` are comments. Several edits follow each other; `file:` is valid until the next one.

use gradiff_check::{Crate, device_of};
use serde_json::{Value, json};

/// Number of programs within which a hunt finds most faults.
const PROGRAMS: u64 = 4096;

/// A known mistake that can be planted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// The name of its file, without the extension.
    pub(crate) name: String,
    /// The crate that `blame` must name, under the key `crate`.
    pub(crate) crate_name: Crate,
    /// The mistake, in one sentence.
    pub(crate) description: String,
    /// The check that finds it.
    pub(crate) found_by: FoundBy,
    /// The backends on which it shows; empty if hunts may run on any.
    pub(crate) backends: Vec<String>,
    /// Number of programs that a hunt may need: [`PROGRAMS`], or more under the key `programs`.
    pub(crate) programs: u64,
    /// The edits, at least one.
    pub(crate) edits: Vec<Edit>,
}

impl Fault {
    /// The facts of its file but for the edits.
    pub(crate) fn to_json(&self) -> Value {
        json!({"name": self.name, "crate": self.crate_name.name(), "by": self.found_by.word(),
               "backends": self.backends, "programs": self.programs,
               "description": self.description})
    }
}

/// Check that finds a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FoundBy {
    /// The programs of `gradiff hunt`.
    Hunt,
    /// `gradiff views`, since no program reaches the fault.
    Views,
    /// The wrong answers that the oracle judges in each run, for a fault of the oracle.
    Canaries,
}

impl FoundBy {
    pub(crate) fn word(self) -> &'static str {
        match self {
            FoundBy::Hunt => "hunt",
            FoundBy::Views => "views",
            FoundBy::Canaries => "canaries",
        }
    }

    fn from_word(word: &str) -> Option<FoundBy> {
        let ways = [FoundBy::Hunt, FoundBy::Views, FoundBy::Canaries];
        ways.into_iter().find(|found_by| found_by.word() == word)
    }
}

/// One change of a source file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Edit {
    /// The source file, relative to the root of the repository.
    pub(crate) file: String,
    /// A text that occurs once in it, however its lines are indented.
    pub(crate) before: String,
    /// The text in its place if the fault is on.
    pub(crate) after: String,
    /// The line of `before:` in the fault file, counted from 1.
    pub(crate) line: usize,
}

/// Error in a fault file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    /// The line, counted from 1.
    pub(crate) line: usize,
    /// The error and what is expected instead.
    pub(crate) message: String,
}

/// A key and its value.
struct Entry<'a> {
    line: usize,
    key: &'a str,
    value: String,
}

/// Parses the text of the fault file `NAME.fault`.
///
/// # Errors
/// The first line that is not as expected.
pub(crate) fn parse(name: &str, text: &str) -> Result<Fault, Problem> {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if name.is_empty() || !name.chars().all(is_plain) {
        let message = format!("the name {name:?} must consist of a-z, 0-9 and -");
        return Err(Problem { line: 1, message });
    }
    let (mut crate_name, mut description, mut found_by) = (None, None, FoundBy::Hunt);
    let (mut file, mut before, mut edits, mut backends) = (None, None, Vec::new(), Vec::new());
    let mut programs = PROGRAMS;
    for Entry { line, key, value } in entries(text)? {
        let fail = |message: &str| Err(Problem { line, message: message.to_string() });
        if before.is_some() && key != "after" {
            return fail("expected `after:` with the text that replaces `before:`");
        }
        if value.is_empty() && key != "after" {
            return fail(&format!("`{key}:` has no value"));
        }
        match key {
            "crate" if crate_name.is_none() => match Crate::named(&value) {
                Some(known) => crate_name = Some(known),
                None => {
                    let names = Crate::ALL.map(Crate::name).join(", ");
                    return fail(&format!("no crate is called {value}; there are {names}"));
                }
            },
            "description" if description.is_none() => description = Some(value),
            "by" => match FoundBy::from_word(&value) {
                Some(word) => found_by = word,
                None => return fail("a fault is found by `hunt`, `views` or `canaries`"),
            },
            "backends" if backends.is_empty() => {
                backends = value.split(',').map(|word| word.trim().to_string()).collect();
                if let Some(word) = backends.iter().find(|word| device_of(word).is_none()) {
                    return fail(&format!("no backend is called {word}"));
                }
            }
            "programs" => match value.parse() {
                Ok(number) if PROGRAMS < number => programs = number,
                _ => return fail(&format!("expected a number of programs above {PROGRAMS}")),
            },
            "file" => file = Some(value),
            "before" if file.is_none() => return fail("expected `file:` before the first edit"),
            "before" => before = Some((value, line)),
            "after" => match (before.take(), &file) {
                (Some((before, line)), Some(file)) if before != value => {
                    edits.push(Edit { file: file.clone(), before, after: value, line });
                }
                (Some(_), _) => return fail("`after` is the same as `before`"),
                (None, _) => return fail("expected `before:` with the text that changes"),
            },
            "crate" | "description" | "backends" => {
                return fail(&format!("`{key}:` is given twice"));
            }
            _ => {
                return fail(&format!(
                    "no key is called {key}; keys are crate, description, by, backends, \
                     programs, file, before, after"
                ));
            }
        }
    }
    let line = text.lines().count().max(1);
    let missing = |key: &str| Problem { line, message: format!("`{key}:` is missing") };
    match (before, edits.is_empty()) {
        (Some(_), _) => return Err(missing("after")),
        (None, true) => return Err(missing("before")),
        _ => {}
    }
    Ok(Fault {
        name: name.to_string(),
        crate_name: crate_name.ok_or_else(|| missing("crate"))?,
        description: description.ok_or_else(|| missing("description"))?,
        found_by,
        backends,
        programs,
        edits,
    })
}

fn entries(text: &str) -> Result<Vec<Entry<'_>>, Problem> {
    let mut entries: Vec<Entry<'_>> = Vec::new();
    let mut lines = text.lines().enumerate().peekable();
    while let Some((number, line)) = lines.next() {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let line_number = number + 1;
        let fail = |message: &str| Problem { line: line_number, message: message.to_string() };
        if line.starts_with([' ', '\t']) {
            return Err(fail("this line is indented, but no key precedes it"));
        }
        let (key, rest) =
            line.split_once(':').ok_or_else(|| fail("expected `key: value` or `key:`"))?;
        let mut block = Vec::new();
        let is_of_block = |line: &str| line.trim().is_empty() || line.starts_with([' ', '\t']);
        while let Some((_, line)) = lines.next_if(|(_, line)| is_of_block(line)) {
            block.push(line);
        }
        let block = unindented(&block);
        let value = match (rest.trim(), block.as_str()) {
            (rest, "") => rest.to_string(),
            ("", block) => block.to_string(),
            _ => return Err(fail("the value is in this line or indented below it, not both")),
        };
        entries.push(Entry { line: line_number, key: key.trim_end(), value });
    }
    Ok(entries)
}

/// Joins the lines without their common indentation and without blank lines around them.
fn unindented(lines: &[&str]) -> String {
    let indent = |line: &&str| line.len() - line.trim_start().len();
    let nonblank = lines.iter().filter(|line| !line.trim().is_empty());
    let common = nonblank.map(indent).min().unwrap_or(0);
    let dedented = |line: &&str| line.get(common..).unwrap_or_default().trim_end().to_string();
    lines.iter().map(dedented).collect::<Vec<_>>().join("\n").trim_matches('\n').to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "crate: kernel\ndescription: One is two.\n";

    #[test]
    fn a_file_has_a_head_and_edits() {
        let text = "# why\ncrate: kernel\ndescription: One is two.\nby: views\n\
                    backends: jit, c/opts:4\nprograms: 8192\n\n\
                    file: engine/a.rs\n\
                    before: 1\nafter: 2\n\nbefore:\n      let x = 1;\n\n        y\nafter:\n\
                    # done\nfile: engine/b.rs\nbefore: f(x)\nafter:\n    g(x)\n";
        let fault = parse("one-is-2", text).expect("it is well formed");
        assert_eq!((fault.crate_name, fault.found_by), (Crate::Kernel, FoundBy::Views));
        assert_eq!(fault.description, "One is two.");
        assert_eq!(
            (fault.backends, fault.programs),
            (["jit", "c/opts:4"].map(String::from).into(), 8192)
        );
        let edit = |file: &str, before: &str, after: &str, line| Edit {
            file: file.to_string(),
            before: before.to_string(),
            after: after.to_string(),
            line,
        };
        let wanted = [
            edit("engine/a.rs", "1", "2", 9),
            edit("engine/a.rs", "let x = 1;\n\n  y", "", 12),
            edit("engine/b.rs", "f(x)", "g(x)", 19),
        ];
        assert_eq!(fault.edits, wanted);
    }

    #[test]
    fn errors_are_reported_with_their_lines() {
        for (rest, line, words) in [
            ("crate: view\n", 3, "twice"),
            ("file: a.rs\nbefore: 1\n", 4, "`after:` is missing"),
            ("file: a.rs\nbefore: 1\nafter: 1\n", 5, "the same"),
            ("file: a.rs\nafter: 1\n", 4, "expected `before:`"),
            ("file: a.rs\nbefore: 1\nbefore: 2\n", 5, "expected `after:`"),
            ("before: 1\nafter: 2\n", 3, "expected `file:`"),
            ("file: a.rs\nbefore:\nafter: 2\n", 4, "`before:` has no value"),
            ("    1\n", 2, "`before:` is missing"),
            ("\n\nonly words\n", 5, "key: value"),
            ("why: 1\n", 3, "no key is called why"),
            ("backends: jit,abacus\n", 3, "no backend is called abacus"),
            ("backends: jit\nbackends: jit\n", 4, "twice"),
            ("programs: many\n", 3, "above 4096"),
            ("programs: 4096\n", 3, "above 4096"),
            ("by: luck\n", 3, "`views` or `canaries`"),
            ("file: a.rs\nbefore: 1\n    2\nafter:\n", 4, "not both"),
            ("", 2, "`before:` is missing"),
        ] {
            let found = match rest {
                "    1\n" => parse("a", &format!("{HEAD}\n")),
                rest => parse("a", &format!("{HEAD}{rest}")),
            };
            let problem = found.expect_err(rest);
            assert!(problem.message.contains(words), "{rest}: {problem:?}");
            assert!(problem.line == line || rest.starts_with(' '), "{rest}: {problem:?}");
        }
        let is_stray = |problem: Problem| problem.message.contains("no key precedes");
        assert!(parse("a", "  indented\n").is_err_and(is_stray));
        assert!(parse("A b", HEAD).is_err_and(|problem| problem.message.contains("a-z")));
        assert!(parse("a", "file: x\nbefore: 1\nafter: 2").is_err());
    }

    #[test]
    fn no_text_makes_the_parser_panic() {
        let whole = format!("{HEAD}by: hunt\nfile: ä.rs\nbefore:\n    ü\n  x\nafter: \t\u{a0}ß\n");
        for (end, _) in whole.char_indices() {
            for (start, _) in whole[..end].char_indices().step_by(3) {
                let _ = parse("a", &whole[start..end]);
                let _ = parse("a", &format!("{}{}", &whole[end..], &whole[..start]));
            }
        }
    }
}
