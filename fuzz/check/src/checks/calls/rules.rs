//! Texts of rewrite rules that are damaged: each is refused or is a rule, and nothing panics.

use gradiff::rewrite::{Rule, RuleSet, rules};

use super::Draw;

/// Number of damaged rules of a check.
const RULES: usize = 12;

/// Pieces of text that occur in no rule, or are empty.
const PIECES: [&str; 6] = ["9223372036854775808", "@", "?", "\u{e9}", "", "("];

/// A text of a rule, by its number.
fn field(rule: &mut Rule, number: usize) -> &mut &'static str {
    match number {
        0 => &mut rule.lhs,
        1 => &mut rule.rhs,
        2 => &mut rule.when,
        _ => &mut rule.given,
    }
}

/// Splits a text after words and brackets.
fn words(text: &str) -> Vec<&str> {
    text.split_inclusive([' ', '(', ')', ',']).collect()
}

/// Changes a text of each drawn rule and loads the rule.
pub(super) fn texts(draw: &mut Draw) -> Result<(), String> {
    let rows = rules::rows();
    for round in 0..RULES {
        let number = draw.below(4);
        let mut rule: Rule = rows[draw.below(rows.len())];
        // The same text of all rules that have one: words of one of these are put into the text.
        let donors = rows.iter().copied().filter_map(|mut rule| {
            let text = *field(&mut rule, number);
            (!text.is_empty()).then_some(text)
        });
        let donors: Vec<&str> = donors.collect();
        let donor = donors[draw.below(donors.len())];
        let text = damaged(field(&mut rule, number), donor, draw);
        // Texts of rules are static.
        *field(&mut rule, number) = Box::leak(text.into_boxed_str());
        let row = format!("{rule:?}");
        match crate::catch(|| RuleSet::load(&[&[rule]])) {
            Ok(Err(error)) if error.to_string().is_empty() => {
                return Err(format!("it is refused without a reason: {row}"));
            }
            Ok(_) => {}
            Err(panic) => return Err(format!("{panic}, when this is loaded: {row}")),
        }
        if round == 0 {
            replaced(rule)?;
        }
    }
    let row = rows[draw.below(rows.len())];
    computed_on_the_left(draw, row)?;
    reversed(row)
}

/// A rule takes the place of the one of its name while a function runs, or is refused.
fn replaced(rule: Rule) -> Result<(), String> {
    let in_use = || format!("{:?}", rules::row(rule.name));
    let before = in_use();
    let problem = match crate::catch(|| rules::with_rows(&[rule], in_use)) {
        Ok(Ok(row)) if row != format!("{:?}", Some(rule)) => format!("{row} is in use"),
        Ok(Err(error)) if RuleSet::load(&[&[rule]]).is_ok() => format!("it is refused: {error}"),
        Ok(_) if in_use() != before => format!("{} is in use afterwards", in_use()),
        Ok(_) => return Ok(()),
        Err(panic) => panic,
    };
    Err(format!("{problem}, with this in place of {before}: {rule:?}"))
}

/// A computed value is refused on the left side, where it would match nothing.
fn computed_on_the_left(draw: &mut Draw, row: Rule) -> Result<(), String> {
    let op = draw.pick(&["add", "mul", "cdiv", "xor", "max"]);
    let lhs = format!("({op} x {{{} + 1}})", draw.below(9));
    let row = Rule { lhs: Box::leak(lhs.into_boxed_str()), rhs: "x", when: "", given: "", ..row };
    match RuleSet::load(&[&[row]]) {
        Err(_) => Ok(()),
        Ok(_) => Err(format!("a computed value on the left is taken: {row:?}")),
    }
}

/// A rule that is cheaper on the right is refused when its sides are exchanged: rewriting with both
/// would not end.
fn reversed(row: Rule) -> Result<(), String> {
    let row = Rule { lhs: row.rhs, rhs: row.lhs, ..row };
    let is_permutation = row.when.contains("before(");
    if is_permutation || row.is_single || !row.given.is_empty() || row.lhs.starts_with('@') {
        return Ok(());
    }
    match crate::catch(|| RuleSet::load(&[&[row]]).map(|_| ())) {
        Ok(Err(_)) => Ok(()),
        Ok(Ok(())) => Err(format!("a rule is accepted both ways: {row:?}")),
        Err(panic) => Err(format!("{panic}, when this is loaded: {row:?}")),
    }
}

/// The text with words of another one, or with a piece added, removed or replaced.
fn damaged(text: &str, donor: &str, draw: &mut Draw) -> String {
    let mut parts = words(text);
    let donors = words(donor);
    let first = draw.below(donors.len());
    let inserted = &donors[first..][..1 + draw.below(donors.len() - first)];
    let at = draw.below(parts.len() + 1);
    match draw.below(6) {
        0 => parts.insert(at, draw.pick(&PIECES)),
        1 => parts.truncate(at),
        2 if at < parts.len() => drop(parts.remove(at)),
        3 if at < parts.len() => drop(parts.splice(at..=at, inserted.iter().copied())),
        4 => parts = inserted.to_vec(),
        _ => drop(parts.splice(at..at, inserted.iter().copied())),
    }
    parts.concat()
}
