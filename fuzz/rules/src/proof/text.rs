//! The text form of a row on one line, as the listing shows it.

use gradiff_rewrite::syntax::ParsedRule;
use gradiff_rewrite::{Claim, Rule, Types};

/// Parses `name [types] [claim]: lhs => rhs [given equations] [when condition]`. Without types it
/// is a rule for integers, without a claim its claim is `Bits`. The texts live as long as the
/// process.
///
/// # Errors
/// The missing part, or the part that is not in the language of rules.
pub fn parse_row(text: &str) -> Result<Rule, String> {
    let usage = "expected `name: left => right when condition`";
    let (head, body) = text.split_once(':').ok_or(usage)?;
    let (lhs, rest) = body.split_once("=>").ok_or(usage)?;
    let (rest, when) = rest.split_once(" when ").unwrap_or((rest, ""));
    let (rhs, given) = rest.split_once(" given ").unwrap_or((rest, ""));
    let mut words = head.split_whitespace();
    let name = words.next().ok_or(usage)?;
    let (mut types, mut claim) = (Types::Ints, Claim::Bits);
    for word in words {
        match word {
            "any" => types = Types::Any,
            "ints" => types = Types::Ints,
            "bool" => types = Types::Bool,
            "bits" => types = Types::Bits,
            "floats" => types = Types::Floats,
            "longfloats" => types = Types::LongFloats,
            "Bits" => claim = Claim::Bits,
            "Value" => claim = Claim::Value,
            "Finite" => claim = Claim::Finite,
            "Refines" => claim = Claim::Refines,
            _ => match word.strip_prefix("Ulp(").and_then(|rest| rest.strip_suffix(')')) {
                Some(count) => {
                    claim = Claim::Ulp(count.parse().map_err(|_| format!("{word} is no claim"))?);
                }
                None => return Err(format!("{word} is neither a class of dtypes nor a claim")),
            },
        }
    }
    let keep = |text: &str| -> &'static str { String::leak(text.trim().to_owned()) };
    let rule = Rule {
        name: keep(name),
        types,
        claim,
        lhs: keep(lhs),
        rhs: keep(rhs),
        when: keep(when),
        given: keep(given),
        why: "",
        from: "",
        is_single: false,
    };
    ParsedRule::new(rule).map(|_| rule)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_reads_back_from_its_listing() {
        for rule in gradiff_rewrite::rules::rows() {
            let shown = rule.to_string();
            let (name, rest) = shown.split_once(' ').expect("a name");
            let at = rest.find('(').filter(|at| !rest[..*at].contains("=>")).unwrap_or(0);
            let ulp = rest.find("Ulp(").map(|at| at + rest[at..].find(')').unwrap_or(0) + 1);
            let at = match ulp {
                Some(end) => end,
                None if rest.split_whitespace().nth(2) == Some("x") => {
                    rest.find(" x ").unwrap_or(at)
                }
                None => at,
            };
            let text = format!("{name} {}: {}", &rest[..at], &rest[at..]);
            let read = parse_row(&text).expect("a row");
            assert_eq!(read.to_string(), shown);
        }
    }

    #[test]
    fn texts_that_are_no_rows_are_refused() {
        for (text, problem) in [
            ("(add x 0) => x", "expected"),
            ("a/b: (add x 0)", "expected"),
            ("a/b some: (add x 0) => x", "some is neither"),
            ("a/b: (add x 0) => y", "y is not bound"),
            ("a/b: (plus x 0) => x", "no op plus"),
            ("a/b Ulp(x): (add x 0) => x", "no claim"),
        ] {
            let error = parse_row(text).expect_err("no row");
            assert!(error.contains(problem), "{text}: {error}");
        }
    }
}
