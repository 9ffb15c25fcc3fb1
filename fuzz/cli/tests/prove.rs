//! `gradiff prove` and `gradiff rules`: false rows are refuted, true ones proved, verdicts kept.

use std::process::Command;

fn prove(arguments: &[&str], solver: &str) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gradiff"));
    command.args(arguments);
    if !solver.is_empty() {
        command.env("GRADIFF_Z3", solver);
    }
    let output = command.output().expect("the command starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    (output.status.code(), text + &String::from_utf8_lossy(&output.stderr))
}

fn has_solver() -> bool {
    Command::new("z3").arg("--version").output().is_ok()
}

/// Rows that are false, and a part of what is said of them.
const FALSE: [&str; 10] = [
    "test/constant: (add (add x c0) c1) => (add x c0)",
    "test/dropped: (floormod x y) => x when min(x) >= 0",
    "test/floor-for-c: (cdiv x c0) => (floordiv x c0) when c0 > 0",
    "test/wrap: (cmplt (add x c0) c1) => (cmplt x {c1 - c0}) when fits(c1 - c0, x)",
    "test/nan floats: (mul x 0.0) => 0.0",
    "test/zero floats: (add x 0.0) => x",
    "test/unsigned: (cmplt (sub x y) 0) => (cmplt x y)",
    "test/off-by-one: (cmplt x y) => true when max(x) <= min(y)",
    "test/absorb bits: (and x (or x y)) => y",
    "test/sign: (floordiv (neg x) c0) => (neg (floordiv x c0)) when c0 > 0",
];

#[test]
fn false_rows_are_refuted_with_a_counter_example() {
    for solver in ["", "/nonexistent/z3"] {
        for row in FALSE {
            let (code, text) = prove(&["prove", "--with", row], solver);
            assert_eq!(code, Some(2), "{row}: {text}");
            assert!(text.contains("refuted") && text.contains("false for"), "{row}: {text}");
            assert!(text.contains(" became "), "{row}: {text}");
        }
    }
}

#[test]
fn true_rows_are_proved_and_need_no_ledger() {
    if !has_solver() {
        return;
    }
    for row in [
        "test/associative: (add (add x c0) c1) => (add x (add c0 c1))",
        "test/nested: (floordiv (floordiv x c0) c1) => (floordiv x {c0 * c1}) when c0 > 0 && c1 > 0 && fits(c0 * c1, x)",
        "test/one: (cmod x 1) => 0",
        "test/limit: (cmplt (floordiv x c0) c1) => (cmplt x {c1 * c0}) when c0 > 0 && fits(c1 * c0, x)",
    ] {
        let (code, text) = prove(&["prove", "--with", row], "");
        assert_eq!(code, Some(0), "{row}: {text}");
        assert!(text.contains("1 proved"), "{row}: {text}");
    }
}

#[test]
fn lemmas_hold_for_all_integers() {
    if !has_solver() {
        eprintln!("skipped: z3 is not there, so the lemmas for it are not proved");
        return;
    }
    for lemma in gradiff_check::proof::LEMMAS {
        let query = |lemma: &str| {
            let names = "(declare-const Y Int)(declare-const A Int)(declare-const B Int)";
            let text = format!("{names}(assert (not {lemma}))(check-sat)");
            let mut child = Command::new("z3")
                .arg("-in")
                .stdin(std::process::Stdio::piped())
                .stdout(std::process::Stdio::piped())
                .spawn()
                .expect("z3 starts");
            let mut input = child.stdin.take().expect("a pipe");
            std::io::Write::write_all(&mut input, text.as_bytes()).expect("z3 reads");
            drop(input);
            let output = child.wait_with_output().expect("z3 ends");
            String::from_utf8_lossy(&output.stdout).trim().to_owned()
        };
        assert_eq!(query(lemma), "unsat", "{lemma}");
        // A lemma that says too much is found out.
        assert_eq!(query(&format!("(and {lemma} (<= (* Y A) (* Y B)))")), "sat", "{lemma}");
    }
}

#[test]
fn without_solver_verdicts_are_those_of_the_ledger() {
    let (code, text) = prove(&["prove", "divmod/floordiv-nested"], "/nonexistent/z3");
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("z3 is not there"), "{text}");
    assert!(text.contains("those of the ledger"), "{text}");
    let (code, text) = prove(&["prove", "--write", "divmod/floordiv-one"], "/nonexistent/z3");
    assert_eq!(code, Some(1), "{text}");
}

#[test]
fn usage_is_told() {
    for (arguments, words) in [
        (["prove", "nothing/at-all"].as_slice(), "no rule begins with"),
        (&["prove", "--with", "(add x 0) => x"], "expected `name:"),
        (&["rules", "nothing/"], "the tables are"),
    ] {
        let (code, text) = prove(arguments, "");
        assert_eq!(code, Some(1), "{text}");
        assert!(text.contains(words), "{text}");
    }
    let (code, text) = prove(&["prove", "--smt", "divmod/cmod-exact"], "");
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("(check-sat)"), "{text}");
    let (code, text) = prove(&["rules", "divmod/floordiv-one"], "");
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("proved") && text.contains("fires"), "{text}");
}
