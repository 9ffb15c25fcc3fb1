//! Instrumentation: puts planted faults into source text, each behind a switch.
//!
//! An edit becomes `if crate::planted_fault::is_on(N) { after } else { before }`, so both texts are
//! expressions or statements from which no binding escapes. If both begin with the same `let` or
//! `match` arm, only the part after `=` or `=>` becomes a choice.
//! Edits of the same text, or of a text within that of another edit, share one `if`; edits that
//! overlap otherwise are refused.

use std::ops::Range;

use super::parse::Edit;

/// An edit and the fault that it belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Planted<'a> {
    /// The number by which the fault is switched on.
    pub(crate) number: usize,
    /// The name of the fault.
    pub(crate) name: &'a str,
    /// The edit.
    pub(crate) edit: &'a Edit,
}

/// Error of an edit that cannot be planted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Misfit {
    /// The index of the edit in the list.
    pub(crate) index: usize,
    /// The reason.
    pub(crate) message: String,
}

/// A part of the source and its replacement.
struct Change<'a> {
    index: usize,
    range: Range<usize>,
    after: &'a str,
}

/// Returns the source with all edits, each behind its switch.
///
/// # Errors
/// An edit whose text does not occur exactly once; two that overlap; an arm whose pattern changes.
pub(crate) fn instrument(source: &str, planted: &[Planted<'_>]) -> Result<String, Misfit> {
    let mut changes = Vec::new();
    for (index, Planted { edit, .. }) in planted.iter().enumerate() {
        let [range] = &find(source, &edit.before)[..] else {
            let count = find(source, &edit.before).len();
            let message = format!("this text occurs {count} times in {}, not once", edit.file);
            return Err(Misfit { index, message });
        };
        let (inner, after) = varying(&source[range.clone()], &edit.after);
        let range = range.start + inner.start..range.start + inner.end;
        if source[range.clone()].ends_with(',') {
            let message = "this ends an arm of `match`, so both texts must begin with the same \
                           `PATTERN =>` and be one arm"
                .to_string();
            return Err(Misfit { index, message });
        }
        changes.push(Change { index, range, after });
    }
    // Of changes with the same start, the longest comes first.
    changes.sort_by_key(|change| (change.range.start, usize::MAX - change.range.end));
    let (mut text, mut end, mut rest) = (String::new(), 0, &changes[..]);
    while let [first, following @ ..] = rest {
        let hull = first.range.clone();
        let is_inside = |change: &&Change<'_>| change.range.start < hull.end;
        let count = 1 + following.iter().take_while(is_inside).count();
        let (cluster, more) = rest.split_at(count);
        if let Some(change) = cluster.iter().find(|change| hull.end < change.range.end) {
            let message =
                format!("this text overlaps one that {} changes", planted[first.index].name);
            return Err(Misfit { index: change.index, message });
        }
        text.push_str(&source[end..hull.start]);
        text.push_str(&choice(source, &hull, cluster, planted)?);
        (end, rest) = (hull.end, more);
    }
    text.push_str(&source[end..]);
    Ok(text)
}

/// Returns a choice between the part of the source and its variant under each fault.
fn choice(
    source: &str,
    hull: &Range<usize>,
    cluster: &[Change<'_>],
    planted: &[Planted<'_>],
) -> Result<String, Misfit> {
    let number_of = |change: &Change<'_>| planted[change.index].number;
    let mut numbers: Vec<usize> = cluster.iter().map(number_of).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let mut text = String::new();
    for number in numbers {
        let (mut variant, mut end, mut name) = (String::new(), hull.start, "");
        for change in cluster.iter().filter(|change| number_of(change) == number) {
            if change.range.start < end {
                let message = "this text overlaps another one of the same fault".to_string();
                return Err(Misfit { index: change.index, message });
            }
            variant.push_str(&source[end..change.range.start]);
            variant.push_str(change.after);
            (end, name) = (change.range.end, planted[change.index].name);
        }
        variant.push_str(&source[end..hull.end]);
        text.push_str(&format!(
            "if crate::planted_fault::is_on({number}) /* {name} */ {{\n{variant}\n}} else "
        ));
    }
    let before = &source[hull.clone()];
    let text = format!("{text}{{\n{before}\n}}");
    Ok(if is_statement(before) { text } else { format!("({text})") })
}

/// Returns whether a text is a sequence of statements, which must not be put in parentheses.
fn is_statement(text: &str) -> bool {
    let words = ["if", "for", "while", "loop", "match"];
    let is_block = words
        .iter()
        .any(|word| text.strip_prefix(word).is_some_and(|rest| rest.starts_with([' ', '\n', '{'])));
    text.ends_with(';') || is_block && text.ends_with('}')
}

/// Returns the ranges where a text occurs, however its lines are indented.
fn find(source: &str, text: &str) -> Vec<Range<usize>> {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let Some(first) = lines.next() else { return Vec::new() };
    let end_of = |start: usize| {
        let mut end = start + first.len();
        for line in lines.clone() {
            let rest = &source[end..];
            let trimmed = rest.trim_start();
            let space = &rest[..rest.len() - trimmed.len()];
            if !space.contains('\n') || !trimmed.starts_with(line) {
                return None;
            }
            end += space.len() + line.len();
        }
        Some(end)
    };
    let starts = source.match_indices(first).map(|(start, _)| start);
    starts.filter_map(|start| end_of(start).map(|end| start..end)).collect()
}

/// Returns the part of `before` that differs in `after`, and its replacement there: the whole
/// texts, or what follows the `=` of a `let` or the `=>` of an arm with which both begin.
fn varying<'a>(before: &str, after: &'a str) -> (Range<usize>, &'a str) {
    let (old, new) = (collapsed(before), collapsed(after));
    let same = |pair: &((usize, char), (usize, char))| pair.0.1 == pair.1.1;
    let prefix = old.iter().copied().zip(new.iter().copied()).take_while(same).count();
    let left = old.len().min(new.len()) - prefix;
    let backward = old.iter().copied().rev().zip(new.iter().copied().rev());
    let suffix = backward.take(left).take_while(same).count();
    let Some((head, mark)) = head(&old[..prefix]) else { return (0..before.len(), after) };
    let depths = depths(&old[head..]);
    let common = old.len() - suffix - head;
    let ends = |at: &usize| depths[*at] == Some(0) && old[head + at].1 == mark;
    let Some(tail) = (common.max(1)..depths.len()).find(ends).map(|at| old.len() - head - at)
    else {
        return (0..before.len(), after);
    };
    let offset = |text: &[(usize, char)], at: usize| text[at].0;
    let old = offset(&old, head)..offset(&old, old.len() - tail);
    (old, &after[offset(&new, head)..offset(&new, new.len() - tail)])
}

/// Returns the length of the text up to the last `=` of a `let` or the last `=>` of an arm outside
/// all brackets, and the character that ends the expression after it.
fn head(text: &[(usize, char)]) -> Option<(usize, char)> {
    let depths = depths(text);
    let (mut head, mut start) = (None, 0);
    for at in 0..text.len() {
        if depths[at] != Some(0) {
            continue;
        }
        let neighbour =
            |by: isize| at.checked_add_signed(by).and_then(|at| text.get(at)).map(|c| c.1);
        match text[at].1 {
            ';' | '}' => start = at + 1,
            '=' if neighbour(1) == Some('>') => head = Some((at + 2, ',')),
            '=' if neighbour(-1) == Some(' ') && neighbour(1) == Some(' ') => {
                let words: String = text[start..at].iter().map(|(_, c)| *c).collect();
                if words.trim_start().starts_with("let ") {
                    head = Some((at + 1, ';'));
                }
            }
            _ => {}
        }
    }
    head
}

/// Returns the characters with their byte offsets, each run of white space as one blank.
fn collapsed(text: &str) -> Vec<(usize, char)> {
    let mut characters: Vec<(usize, char)> = Vec::with_capacity(text.len());
    for (at, c) in text.char_indices() {
        match c.is_whitespace() {
            true if characters.last().is_some_and(|last| last.1 == ' ') => {}
            true => characters.push((at, ' ')),
            false => characters.push((at, c)),
        }
    }
    characters
}

/// Returns the number of brackets open around each character; `None` within a string literal.
fn depths(text: &[(usize, char)]) -> Vec<Option<i32>> {
    let (mut depth, mut is_quoted, mut is_escaped) = (0, false, false);
    let depth_at = |(at, (_, c)): (usize, &(usize, char))| {
        if is_quoted {
            is_quoted = is_escaped || *c != '"';
            is_escaped = !is_escaped && *c == '\\';
            return None;
        }
        // A quote as a character literal begins no string.
        let is_character =
            at > 0 && text[at - 1].1 == '\'' && text.get(at + 1).is_some_and(|c| c.1 == '\'');
        match c {
            _ if is_character => return None,
            '"' => {
                is_quoted = true;
                return None;
            }
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => {
                depth -= 1;
                return Some(depth);
            }
            _ => {}
        }
        Some(depth)
    };
    text.iter().enumerate().map(depth_at).collect()
}

/// Returns the source of the module by which an instrumented crate knows which of its faults is on:
/// the one that the environment variable [`super::FAULT`] names.
pub(crate) fn module(names: &[&str]) -> String {
    let variable = super::FAULT;
    format!(
        "\nmod planted_fault {{\n    const NAMES: &[&str] = &{names:?};\n\
         \n    static ON: std::sync::OnceLock<usize> = std::sync::OnceLock::new();\n\
         \n    #[inline]\n    pub(crate) fn is_on(number: usize) -> bool {{\n        \
         *ON.get_or_init(chosen) == number\n    }}\n\
         \n    #[cold]\n    fn chosen() -> usize {{\n        \
         let name = std::env::var({variable:?}).unwrap_or_default();\n        \
         NAMES.iter().position(|known| *known == name).unwrap_or(usize::MAX)\n    }}\n}}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planted(source: &str, edits: &[(usize, &str, &str)]) -> Result<String, Misfit> {
        let edits: Vec<(usize, Edit)> = edits
            .iter()
            .map(|(number, before, after)| {
                let file = "a.rs".to_string();
                let (before, after) = (before.to_string(), after.to_string());
                (*number, Edit { file, before, after, line: 1 })
            })
            .collect();
        let planted: Vec<Planted<'_>> = edits
            .iter()
            .map(|(number, edit)| Planted { number: *number, name: "f", edit })
            .collect();
        let text = instrument(source, &planted)?;
        let text = text.replace("crate::planted_fault::", "").replace(" /* f */", "");
        Ok(collapsed(&text).into_iter().map(|(_, c)| c).collect())
    }

    #[test]
    fn an_edit_becomes_a_choice() {
        for (source, before, after, wanted) in [
            // An expression, in parentheses.
            ("f(a + 1)", "a + 1", "a", "f((if is_on(3) { a } else { a + 1 }))"),
            // Statements, without.
            ("a(); b();", "a();", "", "if is_on(3) { } else { a(); } b();"),
            (
                "if a {\n    b\n}\nc",
                "if a {\nb\n}",
                "d",
                "if is_on(3) { d } else { if a { b } }\nc",
            ),
            // The value of a `let`, and that of an arm.
            ("let a = 1;", "let a = 1;", "let a = 2;", "let a =(if is_on(3) { 2 } else { 1 });"),
            (
                "let a = f(1);\nlet b = a;",
                "let a = f(1);\n  let b",
                "let a =\n  2; let b",
                "let a =(if is_on(3) { 2 } else { f(1) }); let b = a;",
            ),
            (
                "A => |x, y| x, B",
                "A => |x, y| x,",
                "A => |x, y| y,",
                "A =>(if is_on(3) { |x, y| y } else { |x, y| x }), B",
            ),
            (
                "let a = b == 1;",
                "b == 1",
                "b == 2",
                "let a = (if is_on(3) { b == 2 } else { b == 1 });",
            ),
            // A bracket in a string literal does not count.
            (
                "let a = g(\"(\") + 1;",
                "let a = g(\"(\") + 1;",
                "let a = 0;",
                "let a =(if is_on(3) { 0 } else { g(\"(\") + 1 });",
            ),
        ] {
            let found = planted(source, &[(3, before, after)]).expect(source);
            let plain = |text: &str| text.split_whitespace().collect::<String>();
            assert_eq!(plain(&found), plain(wanted), "{source}");
        }
    }

    #[test]
    fn edits_of_one_text_share_a_choice() {
        let found = planted("f(a + 1)", &[(0, "a + 1", "a"), (1, "a + 1", "b"), (2, "1", "2")]);
        let wanted = "f((if is_on(0) { a } else if is_on(1) { b } else if is_on(2) { a + 2 } else \
                      { a + 1 }))";
        assert_eq!(found.as_deref(), Ok(wanted));
        // Two edits of one fault within that of another one.
        let found = planted("f(a, b)", &[(0, "f(a, b)", "g()"), (1, "a", "c"), (1, "b", "d")]);
        let wanted = "(if is_on(0) { g() } else if is_on(1) { f(c, d) } else { f(a, b) })";
        assert_eq!(found.as_deref(), Ok(wanted));
    }

    #[test]
    fn edits_that_do_not_fit_are_refused() {
        let message = |source: &str, edits: &[(usize, &str, &str)]| {
            planted(source, edits).map_err(|misfit| (misfit.index, misfit.message))
        };
        let refused = |found: Result<String, (usize, String)>, index: usize, words: &str| {
            let (at, text) = found.expect_err(words);
            assert!(at == index && text.contains(words), "{at}: {text}");
        };
        refused(message("a b", &[(0, "c", "d")]), 0, "occurs 0 times in a.rs");
        refused(message("a b a", &[(0, "b", "d"), (1, "a", "c")]), 1, "occurs 2 times");
        refused(message("a b c", &[(0, "a b", "d"), (1, "b c", "e")]), 1, "overlaps one that f");
        refused(message("a b", &[(0, "a b", "d"), (0, "b", "c")]), 1, "of the same fault");
        refused(message("a\n b", &[(0, "a b", "c")]), 0, "occurs 0 times");
        refused(message("A => b, C", &[(0, "A => b,", "A if d => e,")]), 0, "be one arm");
    }

    #[test]
    fn a_module_knows_the_faults_of_its_crate() {
        let text = module(&["one", "two"]);
        assert!(text.contains("&[\"one\", \"two\"]") && text.contains("GRADIFF_FAULT"), "{text}");
    }
}
