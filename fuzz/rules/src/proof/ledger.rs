//! The ledger: the reviewed file of verdicts, `verdicts.txt` of this crate.
//!
//! It has a line for each rule: name, fingerprint, verdict, and the reason if it is not proved. A
//! rule whose text changes has another fingerprint, so it has no verdict until one is written by
//! `gradiff prove --write`.

use std::sync::OnceLock;

use gradiff_rewrite::Rule;
use rustc_hash::FxHashMap;

use super::Verdict;

const TEXT: &str = include_str!("../../verdicts.txt");

const HEAD: &str = "\
# Verdicts on rules; written by `gradiff prove --write`, reviewed line by line.
# name, fingerprint of the rule's text, verdict, why it is not proved
";

/// A line of the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The rule.
    pub name: String,
    /// The fingerprint of the rule's text when it was decided.
    pub fingerprint: String,
    /// `proved` or `exhausted`.
    pub verdict: String,
    /// The reason why it is exhausted and not proved.
    pub note: String,
}

/// Returns the entry of a rule; `None` if there is none, or if the rule has changed since.
pub fn entry(rule: &Rule) -> Option<&'static Entry> {
    static ENTRIES: OnceLock<FxHashMap<String, Entry>> = OnceLock::new();
    let entries = ENTRIES.get_or_init(|| {
        let entries = entries(TEXT).expect("a test reads the ledger");
        entries.into_iter().map(|entry| (entry.name.clone(), entry)).collect()
    });
    entries.get(rule.name).filter(|entry| entry.fingerprint == fingerprint(rule))
}

/// Returns the verdict of the ledger on a rule; `None` if there is none, or if the rule has changed
/// since.
pub fn verdict(rule: &Rule) -> Option<Verdict> {
    entry(rule).map(|entry| match entry.verdict.as_str() {
        "proved" => Verdict::Proved,
        _ => Verdict::Exhausted,
    })
}

/// Returns the text of a ledger with these entries.
pub fn ledger(entries: &[Entry]) -> String {
    let line = |entry: &Entry| {
        let Entry { name, fingerprint, verdict, note } = entry;
        format!("{name:40} {fingerprint} {verdict:9} {note}").trim_end().to_owned() + "\n"
    };
    HEAD.to_owned() + &entries.iter().map(line).collect::<String>()
}

/// Returns a hash of the rule's types, claim, sides, condition and equations (FNV-1a, 64 bits), in
/// hexadecimal.
pub fn fingerprint(rule: &Rule) -> String {
    let Rule { types, claim, lhs, rhs, when, given, .. } = rule;
    let text = format!("{types:?}|{claim:?}|{lhs}|{rhs}|{when}|{given}");
    let add_byte = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    format!("{:016x}", text.bytes().fold(0xcbf2_9ce4_8422_2325, add_byte))
}

/// Returns the entries of a ledger.
///
/// # Errors
/// The first line that is not an entry, and what is wrong with it.
pub fn entries(text: &str) -> Result<Vec<Entry>, String> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let mut words = line.split_whitespace();
            let mut word = || words.next().map(str::to_owned);
            let (name, fingerprint, verdict) = (word(), word(), word());
            let (Some(name), Some(fingerprint), Some(verdict)) = (name, fingerprint, verdict)
            else {
                return Err(format!("{line:?} has fewer than 3 words"));
            };
            if verdict != "proved" && verdict != "exhausted" {
                return Err(format!("{line:?}: the verdict must be proved or exhausted"));
            }
            let note = words.collect::<Vec<_>>().join(" ");
            if verdict == "exhausted" && note.is_empty() {
                return Err(format!("{line:?} does not say why it is not proved"));
            }
            Ok(Entry { name, fingerprint, verdict, note })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proof::parse_row;
    use gradiff_rewrite::{Claim, Types};

    #[test]
    fn a_changed_word_changes_the_fingerprint() {
        let rule = parse_row("a/b: (add x 0) => x when min(x) > 0").expect("a row");
        let same = Rule { why: "other", from: "other", ..rule };
        assert_eq!(fingerprint(&same), fingerprint(&rule));
        let changed = [
            Rule { types: Types::Bits, ..rule },
            Rule { claim: Claim::Value, ..rule },
            Rule { lhs: "(add x 1)", ..rule },
            Rule { rhs: "0", ..rule },
            Rule { when: "min(x) >= 0", ..rule },
            Rule { given: "x = w by linear", ..rule },
        ];
        for row in changed {
            assert_ne!(fingerprint(&row), fingerprint(&rule), "{row}");
        }
    }

    #[test]
    fn lines_without_verdict_or_reason_are_refused() {
        assert!(entries("a/b 0123 proved").is_ok());
        for line in ["a/b 0123", "a/b 0123 waived", "a/b 0123 refuted x=1", "a/b 0123 exhausted"] {
            assert!(entries(line).is_err(), "{line}");
        }
        let list = entries("a/b 0123 exhausted computed, as it is").expect("a line");
        assert_eq!(entries(&ledger(&list)), Ok(list));
    }

    #[test]
    fn every_rule_has_a_verdict_and_every_verdict_a_rule() {
        let rules = gradiff_rewrite::rules::rows();
        let changed = rules.iter().filter(|rule| verdict(rule).is_none()).map(|rule| {
            format!("rule {} changed since it was proved: run `gradiff prove --write`", rule.name)
        });
        let changed: Vec<String> = changed.collect();
        assert!(changed.is_empty(), "{}", changed.join("\n"));
        let names = entries(TEXT).expect("a ledger").into_iter().map(|entry| entry.name);
        let stale = names.filter(|name| rules.iter().all(|rule| rule.name != name));
        assert_eq!(stale.collect::<Vec<String>>(), Vec::<String>::new());
    }
}
