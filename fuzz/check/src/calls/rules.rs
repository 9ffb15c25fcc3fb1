//! Texts of rewrite rules that are damaged: each is refused or is a rule, and nothing panics.

use gradiff::rewrite::{Rule, RuleSet, rules};

use super::Draw;

/// Damaged rules of a check.
const RULES: usize = 12;

/// Pieces of the language of rules.
const PIECES: [&str; 24] = [
    "(",
    ")",
    "c0",
    "x",
    " ",
    "add",
    "where",
    "-",
    "9223372036854775808",
    "=>",
    "@",
    "and",
    "|",
    "?",
    "%",
    "==",
    "min",
    "max",
    ",",
    ":",
    "nonzero",
    "*",
    "\u{e9}",
    "",
];

/// Changes one text of drawn rules and loads them.
pub(super) fn texts(draw: &mut Draw) -> Result<(), String> {
    let rows = rules::rows();
    for _ in 0..RULES {
        let mut rule: Rule = rows[draw.below(rows.len())];
        let number = draw.below(4);
        let field = match number {
            0 => &mut rule.lhs,
            1 => &mut rule.rhs,
            2 => &mut rule.when,
            _ => &mut rule.given,
        };
        // Texts of rules live as long as the program.
        *field = Box::leak(damaged(field, draw).into_boxed_str());
        let said = format!("{rule:?}");
        match crate::catch(|| RuleSet::load(&[&[rule]])) {
            Ok(Err(error)) if error.to_string().is_empty() => {
                return Err(format!("it is refused without a reason: {said}"));
            }
            Ok(_) => {}
            Err(panic) => return Err(format!("{panic}, where this is loaded: {said}")),
        }
    }
    Ok(())
}

/// The text with a piece more, less or other, or cut off.
fn damaged(text: &str, draw: &mut Draw) -> String {
    let mut words: Vec<&str> = text.split_inclusive([' ', '(', ')']).collect();
    let at = draw.below(words.len() + 1);
    let piece = PIECES[draw.below(PIECES.len())];
    match draw.below(4) {
        0 => words.insert(at, piece),
        1 => words.truncate(at),
        2 if at < words.len() => words[at] = piece,
        _ if at < words.len() => drop(words.remove(at)),
        _ => words.push(piece),
    }
    words.concat()
}
