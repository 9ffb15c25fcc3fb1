//! `gradiff prove` and `gradiff rules`: false rows are refuted, true ones proved, verdicts
//! recorded.

use std::process::Command;

use gradiff_check::{Rule, rows};
use gradiff_rules::proof;
use gradiff_skip::skip;
use rayon::prelude::*;

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

/// Rows that are false.
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
        return skip("z3", &"no row is proved");
    }
    for row in [
        "test/associative: (add (add x c0) c1) => (add x (add c0 c1))",
        "test/nested: (floordiv (floordiv x c0) c1) => (floordiv x {c0 * c1}) \
         when c0 > 0 && c1 > 0 && fits(c0 * c1, x)",
        "test/one: (cmod x 1) => 0",
        "test/limit: (cmplt (floordiv x c0) c1) => (cmplt x {c1 * c0}) \
         when c0 > 0 && fits(c1 * c0, x)",
    ] {
        let (code, text) = prove(&["prove", "--with", row], "");
        assert_eq!(code, Some(0), "{row}: {text}");
        assert!(text.contains("1 proved"), "{row}: {text}");
    }
}

/// Returns z3's answers to the queries, in one process; `None` if z3 is not available.
fn z3(queries: &[String]) -> Option<Vec<String>> {
    let mut child = Command::new("z3")
        .arg("-in")
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .ok()?;
    let mut input = child.stdin.take()?;
    let text: String = queries.iter().map(|query| format!("(reset)\n{query}")).collect();
    let writer = std::thread::spawn(move || std::io::Write::write_all(&mut input, text.as_bytes()));
    let output = child.wait_with_output().expect("z3 ends");
    writer.join().expect("it ends").expect("z3 reads");
    Some(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect())
}

#[test]
fn lemmas_hold_for_all_integers() {
    if !has_solver() {
        return skip("z3", &"the lemmas are not proved");
    }
    for lemma in proof::LEMMAS {
        let query = |lemma: &str| {
            let names = ["Y", "A", "B", "D", "R", "S"];
            let names = names.map(|name| format!("(declare-const {name} Int)")).concat();
            format!("{names}(assert (not {lemma}))(push)(check-sat)")
        };
        // A lemma that claims too much is refuted.
        let too_strong = query(&format!("(and {lemma} (<= (* Y A) (* Y B)))"));
        let answers = z3(&[query(lemma), too_strong]).expect("z3 is available");
        assert_eq!(answers, ["unsat", "sat"], "{lemma}");
    }
}

#[test]
fn floats_hold_integers_and_narrower_floats() {
    for fact in proof::whole_floats() {
        // Without the limit there are integers between two floats; only a NaN differs from itself.
        let (first, _) = fact.premises.split_once('\n').expect("a declaration");
        let for_nan =
            format!("{first}\n(assert (not (and {} (fp.eq x x))))\n(check-sat)\n", fact.goal);
        let unlimited = format!("{first}\n(assert (not {}))\n(check-sat)\n", fact.goal);
        let is_limited = fact.premises.lines().count() > 1;
        let too_strong = if is_limited { unlimited } else { for_nan };
        let Some(answers) = z3(&[fact.smt(), too_strong]) else { return };
        assert_eq!(answers, ["unsat", "sat"], "{}", fact.label);
    }
}

fn reductions() -> Vec<Rule> {
    rows().into_iter().filter(|rule| rule.name.starts_with("reduce/")).collect()
}

/// Returns rows about reductions, each made false by a change of its condition or right side.
fn false_reductions() -> Vec<Rule> {
    let without = [
        ("sum-of-same", "free(v, r)"),
        ("max-of-same", "0 < size(r)"),
        ("max-of-same", "free(v, r)"),
        ("product-of-two", "size(r) == 2"),
        ("max-of-steps", "0 < size(r)"),
        ("max-of-sum", "nowrap(s)"),
        ("max-of-sum", "free(y, r)"),
        ("max-of-product", "c0 > 0"),
        ("max-of-product", "nowrap(s)"),
        ("sum-of-product", "free(y, r)"),
        ("sum-of-chosen", "free(s, r)"),
        ("max-of-chosen", "free(w, r)"),
        ("count-below", "free(v, r)"),
        ("count-below", "free(w, r)"),
        ("count-below", "fits(max(x) + 1, x)"),
        ("count-below", "fits(max(x) - min(w) + c0, x)"),
        ("count-below-falling", "fits(min(w) - max(x) - 1, x)"),
        ("count-true-below", "fits(min(x) - max(w), x)"),
        ("count-between", "max(y) <= min(z)"),
    ];
    let changed = [
        ("sum-of-same", "size(r)", "size(r) + 1"),
        ("sum-of-steps", "size(r) - 1", "size(r) + 1"),
        ("max-of-steps", "- 1", "- 2"),
        ("product-of-three", "(mul v v)", "v"),
        ("sum-of-masked", "v 0", "0 v"),
        ("sum-of-chosen", "(reduce.add v r) 0", "0 (reduce.add v r)"),
        ("count-below", "{c0 - 1}", "0"),
        ("count-from", "{size(r)}", "{size(r) + 1}"),
        ("count-below-falling", "{-c0}) {-c0}", "{-c0 - 1}) {-c0}"),
    ];
    let reductions = reductions();
    let named = |name: &str| {
        let row = reductions.iter().find(|rule| rule.name.strip_prefix("reduce/") == Some(name));
        *row.unwrap_or_else(|| panic!("no row {name}"))
    };
    let without = without.iter().map(|(name, part)| {
        let when = named(name).when.replace(part, "0 == 0");
        Rule { when: when.leak(), ..named(name) }
    });
    let changed = changed.iter().map(|(name, part, replacement)| {
        let rhs = named(name).rhs.replace(part, replacement);
        Rule { rhs: rhs.leak(), ..named(name) }
    });
    let rows: Vec<Rule> = without.chain(changed).collect();
    assert!(rows.iter().all(|rule| proof::verdict(rule).is_none()), "each is changed");
    rows
}

#[test]
fn false_reductions_have_a_counter_example_without_small_cases() {
    false_reductions().par_iter().for_each(|rule| {
        let queries = proof::obligations(rule).expect("it has terms");
        let queries: Vec<String> = queries.iter().map(proof::Obligation::smt).collect();
        let Some(answers) = z3(&queries) else { return };
        let is_sat = answers.iter().any(|answer| answer == "sat");
        assert!(is_sat, "{} => {} when {}", rule.lhs, rule.rhs, rule.when);
    });
}

#[test]
fn false_reductions_are_refuted_by_small_cases_or_left_open() {
    let mut ask = |query: &proof::Obligation| match z3(&[query.smt()]).as_deref() {
        Some([answer]) if answer == "unsat" => proof::Answer::Unsat,
        Some([answer]) if answer == "sat" => proof::Answer::Sat(String::new()),
        _ => proof::Answer::Unknown,
    };
    if !has_solver() {
        skip("z3", &"reductions are refuted by small cases alone");
    }
    let mut open = Vec::new();
    for rule in false_reductions() {
        match proof::decide(&rule, has_solver().then_some(&mut ask)).0 {
            proof::Verdict::Refuted(_) => {}
            // Small cases rarely reach counts whose arithmetic wraps.
            proof::Verdict::Open(_) => open.push((rule.name, rule.when)),
            verdict => assert!(!has_solver(), "{}: {verdict:?} when {}", rule.name, rule.when),
        }
    }
    assert!(open.len() <= 2, "{open:#?}");
}

#[test]
fn proofs_of_reductions_assume_nothing_impossible() {
    let is_proved = |rule: &Rule| proof::verdict(rule) == Some(proof::Verdict::Proved);
    let proved: Vec<Rule> = reductions().into_iter().filter(is_proved).collect();
    assert!(proved.len() >= 30, "{}", proved.len());
    proved.par_iter().for_each(|rule| {
        let queries = proof::obligations(rule).expect("it has terms");
        let premises = |query: &proof::Obligation| format!("{}(check-sat)\n", query.premises);
        let premises: Vec<String> = queries.iter().map(premises).collect();
        let Some(answers) = z3(&premises) else { return };
        assert_eq!(answers.len(), queries.len());
        for (query, answer) in queries.iter().zip(answers) {
            // No unsigned constant is below 0.
            let is_impossible = rule.when.contains("c0 < 0") && query.label.contains("unsigned");
            assert!(answer == "sat" || is_impossible, "{} {}: {answer}", rule.name, query.label);
        }
    });
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

/// The solver proves whatever it is asked, but waits for a file before its second answer.
#[cfg(unix)]
#[test]
fn an_interrupted_proof_is_no_finding() {
    use std::os::unix::fs::PermissionsExt;

    let folder = tempfile::tempdir().expect("a temporary folder");
    let script = "#!/bin/sh\n\
        here=$(dirname \"$0\")\n\
        while read -r line; do case $line in\n\
        *check-sat*) if test \"$greeted\"; then touch \"$here/asked\"; \
        until test -e \"$here/go\"; do sleep 0.05; done; fi; greeted=yes; echo unsat ;;\n\
        *echo*) echo 'end of answer' ;;\n\
        esac; done\n";
    let solver = folder.path().join("z3");
    std::fs::write(&solver, script).expect("a file in the temporary folder");
    let may_run = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&solver, may_run).expect("the script may run");
    let mut command = Command::new(env!("CARGO_BIN_EXE_gradiff"));
    command.args(["prove", "divmod/"]).env("GRADIFF_Z3", &solver);
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let child = command.spawn().expect("the command starts");
    let pause = || std::thread::sleep(std::time::Duration::from_millis(100));
    (0..600).take_while(|_| !folder.path().join("asked").exists()).for_each(|_| pause());
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(killed.expect("kill starts").success());
    (0..3).for_each(|_| pause());
    std::fs::write(folder.path().join("go"), "").expect("a file in the temporary folder");
    let output = child.wait_with_output().expect("it ends");
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(130), "{text}");
    assert!(text.contains("stopped: "), "{text}");
}

#[test]
fn usage_errors_say_what_is_allowed() {
    for (arguments, words) in [
        (["prove", "nothing/at-all"].as_slice(), "no rule begins with"),
        (&["prove", "--with", "(add x 0) => x"], "expected `name:"),
        (&["rules", "nothing/"], "the tables are"),
        (&["prove", "--seconds", "0"], "--seconds"),
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
