//! Texts of rewrite rules that are damaged: each is refused or is a rule, and nothing panics.

use gradiff::rewrite::{Rule, RuleSet, rules};

use super::Draw;

/// Damaged rules of a check.
const RULES: usize = 12;

/// Pieces that stand in no rule, or are nothing.
const PIECES: [&str; 6] = ["9223372036854775808", "@", "?", "\u{e9}", "", "("];

/// The text of a rule by its number.
fn field(rule: &mut Rule, number: usize) -> &mut &'static str {
    match number {
        0 => &mut rule.lhs,
        1 => &mut rule.rhs,
        2 => &mut rule.when,
        _ => &mut rule.given,
    }
}

/// A text in words and brackets.
fn words(text: &str) -> Vec<&str> {
    text.split_inclusive([' ', '(', ')', ',']).collect()
}

/// Changes one text of drawn rules and loads them.
pub(super) fn texts(draw: &mut Draw) -> Result<(), String> {
    let rows = rules::rows();
    for _ in 0..RULES {
        let number = draw.below(4);
        let mut rule: Rule = rows[draw.below(rows.len())];
        // Another rule with such a text, whose words come into this one.
        let donors = rows.iter().copied().filter_map(|mut rule| {
            let text = *field(&mut rule, number);
            (!text.is_empty()).then_some(text)
        });
        let donors: Vec<&str> = donors.collect();
        let donor = donors[draw.below(donors.len())];
        let text = damaged(field(&mut rule, number), donor, draw);
        // Texts of rules live as long as the program.
        *field(&mut rule, number) = Box::leak(text.into_boxed_str());
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

/// The text with words of another one, or a piece more, less or other.
fn damaged(text: &str, donor: &str, draw: &mut Draw) -> String {
    let mut parts = words(text);
    let donors = words(donor);
    let first = draw.below(donors.len());
    let taken = &donors[first..][..1 + draw.below(donors.len() - first)];
    let at = draw.below(parts.len() + 1);
    match draw.below(6) {
        0 => parts.insert(at, draw.pick(&PIECES)),
        1 => parts.truncate(at),
        2 if at < parts.len() => drop(parts.remove(at)),
        3 if at < parts.len() => drop(parts.splice(at..=at, taken.iter().copied())),
        4 => parts = taken.to_vec(),
        _ => drop(parts.splice(at..at, taken.iter().copied())),
    }
    parts.concat()
}
