//! Rules that fire in the corpus, and what is said of those that do not.

use gradiff_check::{check_expects, fired};
use gradiff_corpus::parse;

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
    assert_eq!(problems(program), [String::new(); 0]);
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
