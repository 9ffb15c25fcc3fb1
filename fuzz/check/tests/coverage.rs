//! Rules that fire in the corpus, and reports of those that do not.

use gradiff::rewrite::Rule;
use gradiff::rewrite::rules::{rows, with_rows};
use gradiff_check::{check_expects, coverage, embedded_cases, fired};
use gradiff_corpus::{Case, embedded, parse};
use gradiff_gen::{ExprConfig, SeedChoices, case_seed, expr};
use std::collections::{BTreeMap, BTreeSet};

fn problems(text: &str) -> Vec<String> {
    check_expects(&parse(text).expect("a case parses"))
}

#[test]
fn a_rule_that_does_not_fire_or_exist_is_a_problem() {
    let case = "var a 0..9\nexpr !!(a < 5)\nexpect fires ";
    assert!(problems(&format!("{case}boolean/not-not")).is_empty());
    let idle = problems(&format!("{case}boolean/and-true"));
    assert_eq!(idle, ["expected rule boolean/and-true to fire; these did: boolean/not-not"]);
    let unknown = problems(&format!("{case}boolean/no-such-rule"));
    assert_eq!(unknown, ["there is no rule boolean/no-such-rule; `gradiff rules` lists them"]);
}

#[test]
fn rules_fire_in_programs_and_views_as_well() {
    let program = "a = input i32[4] iota\nb = neg a\noutput b\nexpect fires late/neg";
    assert!(problems(program).is_empty());
    let views = "view [4,4]\nreshape [16]\nreshape [4,4]\nexpect fires boolean/not-not";
    assert_eq!(problems(views).len(), 1);
}

#[test]
fn rules_that_never_fire_are_counted_with_0() {
    let file = parse("var a 0..9\nexpr !!(a < 5)").expect("a case parses");
    let counts = fired(&[file.case]);
    assert_eq!(counts["boolean/not-not"], 1);
    assert!(counts.values().filter(|count| **count == 0).count() > 100);
}

/// The rules that never fire.
fn never(counts: BTreeMap<&'static str, u64>) -> Vec<&'static str> {
    counts.into_iter().filter(|(_, count)| *count == 0).map(|(rule, _)| rule).collect()
}

#[test]
fn every_rule_fires_in_the_corpus() {
    assert_eq!(never(fired(&embedded_cases())), [""; 0]);
}

/// Checks that the test above fails as soon as one row does not fire any more.
#[test]
fn a_rule_that_stops_firing_is_detected() {
    for name in ["divmod/floordiv-nested", "late/sub", "validity/index"] {
        let row = rows().into_iter().find(|row| row.name == name).expect("the rule is there");
        let idle = Rule { when: "1 == 2", ..row };
        let counts = with_rows(&[idle], || fired(&embedded_cases())).expect("the row loads");
        assert_eq!(never(counts), [name]);
    }
}

/// Checks that each rule has a file of its own, under its name, that expects it to fire.
#[test]
fn every_rule_has_a_case() {
    let files: BTreeSet<&str> =
        embedded().iter().filter_map(|(stem, _)| stem.strip_prefix("rules/")).collect();
    let rules = rows().into_iter().map(|row| row.name);
    let rules: BTreeSet<&str> = rules.collect();
    let without_case: Vec<_> = rules.difference(&files).collect();
    assert!(without_case.is_empty(), "rules without a case: {without_case:?}");
    let without_rule: Vec<_> = files.difference(&rules).collect();
    assert!(without_rule.is_empty(), "cases without a rule: {without_rule:?}");
    for (stem, text) in embedded() {
        if let Some(rule) = stem.strip_prefix("rules/") {
            assert!(text.contains(&format!("expect fires {rule}\n")), "{stem}");
        }
    }
}

#[test]
fn coverage_counts_by_op_dtype_and_device() {
    let expr = parse("var p bool\nexpr !!p").expect("a case parses").case;
    let program = "a = input u8[4] iota\nb = neg a\noutput b";
    let found = coverage(&[expr, parse(program).expect("a case parses").case]);
    assert_eq!(found.fired("boolean/not-not"), 1);
    let at = |rule: &str| -> Vec<String> {
        let counts = &found.rules[rule];
        counts.keys().map(|((op, dtype), device)| format!("{op} {dtype} {device}")).collect()
    };
    assert_eq!(at("boolean/not-not"), ["cmpne bool "]);
    assert!(at("late/neg").contains(&"mul u8 interp".to_string()), "{:?}", at("late/neg"));
    let neg = found.devices["interp"].iter().find(|((op, _), _)| op.name() == "neg");
    assert_eq!(neg.map(|((_, dtype), count)| (dtype.name(), *count)), Some(("u8", 1)));
    assert!(found.never_fired().contains(&"late/sub"));
    assert!(found.rule_holes()["late/neg"].len() == 7, "all integer types but u8");
    let holes = found.device_holes("interp");
    assert!(holes.iter().any(|(op, dtype)| (op.name(), dtype.name()) == ("neg", "i8")));
    assert!(!holes.iter().any(|(op, dtype)| (op.name(), dtype.name()) == ("neg", "u8")));
}

/// Checks that random expressions fire nearly all rules that expressions can fire; `CASES=1000000`
/// tries more.
#[test]
fn random_expressions_fire_most_rules() {
    let count: u64 =
        std::env::var("CASES").map_or(20_000, |count| count.parse().expect("a number"));
    let expressions = |case: &Case| matches!(case, Case::Expr(_));
    let written: Vec<Case> = embedded_cases().into_iter().filter(expressions).collect();
    let mut waiting = fired(&written);
    waiting.retain(|_, count| *count > 0);
    let (total, config) = (waiting.len(), ExprConfig::default());
    for first in (0..count).step_by(1_000) {
        let random = |index: u64| expr(&mut SeedChoices::new(case_seed(1, first + index)), &config);
        let cases: Vec<Case> = (0..1_000).map(random).map(Case::Expr).collect();
        let counts = fired(&cases);
        waiting.retain(|rule, _| counts[rule] == 0);
    }
    let missed: Vec<_> = waiting.into_keys().collect();
    println!(
        "{} of {total} rules in {count} expressions, all but {missed:?}",
        total - missed.len()
    );
    assert!(missed.len() * 10 <= total, "never fired at random: {missed:?}");
}
