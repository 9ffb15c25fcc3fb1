//! `gradiff blame` names the rule, not only the crate.

use std::process::Command;

/// Blames a case under a planted fault. Returns the output and its last line.
fn blamed(case: &str, fault: &str) -> (String, String) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("a.case");
    std::fs::write(&path, case).expect("a file in the temporary folder");
    let output = Command::new(env!("CARGO_BIN_EXE_gradiff"))
        .args(["blame", "--backends", "interp,interp/strict", "--fault", fault])
        .arg(&path)
        .output()
        .expect("the command starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{fault}: {text}{errors}");
    let last = text.lines().last().unwrap_or_default().to_string();
    (text, last)
}

fn check(case: &str, fault: &str, start: &str, words: &[&str]) {
    let (text, last) = blamed(case, fault);
    assert!(last.starts_with(start), "{fault}: {text}");
    for word in words {
        assert!(text.contains(word), "{fault} without {word:?}: {text}");
    }
}

#[test]
fn each_fault_of_a_rule_is_named_in_an_expression() {
    let rules = "engine/rewrite/src/rules";
    for (case, fault, rule, table, words) in [
        (
            "var a 0..9\nexpr (a + 3) + 4\n",
            "rule-add-fold-constant",
            "add-add-const",
            "algebra",
            "false for a=0: 7 became -1",
        ),
        (
            "var a 0..20\nexpr (a + 1) % 10\n",
            "rule-mod-condition-dropped",
            "floormod-in-range",
            "divmod",
            "false for a=9: 0 became 10",
        ),
        (
            "var a -9..20\nexpr cdiv(a, 4)\n",
            "rule-cdiv-as-floordiv",
            "cdiv-to-floor",
            "divmod",
            "false for a=-1: 0 became -1",
        ),
        (
            "var a 0..20\nexpr a * 4 < 9\n",
            "rule-cmp-off-by-one",
            "less-factor",
            "compare",
            "false for a=3: false became true",
        ),
    ] {
        let start = format!("rule {table}/{rule} ({rules}/{table}.rs): {words}; verdict: ");
        check(
            case,
            fault,
            &start,
            &["stage symbolic (engine/rewrite)", "pass    symbolic", "\nbefore  ", "\nafter   "],
        );
    }
}

#[test]
fn the_op_whose_bounds_do_not_hold_is_named() {
    let start = "bounds of add (engine/rewrite/src/bounds.rs): add of 0..20 and 2147483647..\
                 2147483647 in i32 is said to be 2147483647..2147483667, but is -2147483648";
    let fault = "bounds-unsigned-wrap-forgotten";
    // The bounds alone, and through a rule that uses them.
    check("var a 0..20\nexpr a + 2147483647\n", fault, start, &["outside its bounds"]);
    check("var a 0..20\nexpr (a + 2147483647) < 3\n", fault, start, &["became False"]);
}

#[test]
fn each_fault_of_a_rule_is_named_in_a_program() {
    let input = "a = input i32[6] [-7, 7, -5, 0, 1, 3]\n";
    for (case, fault, rule) in [
        (
            format!("{input}b = add a 3\nc = add b 4\noutput c\n"),
            "rule-add-fold-constant",
            "algebra/add-add-const",
        ),
        (
            format!("{input}b = floormod a 3\noutput b\n"),
            "rule-mod-condition-dropped",
            "divmod/floormod-in-range",
        ),
        (
            format!("{input}b = cdiv a 3\noutput b\n"),
            "rule-cdiv-as-floordiv",
            "divmod/cdiv-to-floor",
        ),
        (
            "a = input f32[2] [nan, 1.0]\nb = mul a 0.0\noutput b\n".to_string(),
            "rule-mul-zero-float",
            "algebra/mul-zero",
        ),
    ] {
        check(
            &case,
            fault,
            &format!("rule {rule} "),
            &["mismatch on interp", "data1[", "false for"],
        );
    }
}

#[test]
fn views_that_a_kernel_pass_uses_are_blamed_themselves() {
    let case = "a = input i32[1,2] iota\nb = cat [a,a] axis=0\noutput b\n";
    let (text, _) = blamed(case, "view-reshape-mask-lost");
    assert!(text.contains("stage shape (engine/view)"), "{text}");
}

#[test]
fn a_fault_outside_the_rules_names_no_rule() {
    let case = "a = input i32[2,3] iota\nb = flip a axes=[1]\noutput b\n";
    let (text, _) = blamed(case, "view-flip-offset");
    assert!(text.contains("engine/view"), "{text}");
    assert!(!text.contains("rule "), "{text}");
}
