//! Tests of `fuzz/mutants.py`: which runs of mutants count, and in which score.

use std::path::Path;
use std::process::Command;

/// Runs Python code that has imported the script, and returns its output; `None` if there is no
/// Python.
fn python(code: &str) -> Option<String> {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let head = "import json, pathlib, sys, tempfile\nimport mutants\n";
    let output = Command::new("python3")
        .args(["-B", "-c", &format!("{head}{code}")])
        .env("PYTHONPATH", fuzz)
        .output();
    let output = gradiff_skip::or_skip("python3", output)?;
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Twenty mutants: ten that are killed in time, eight that are killed late, and two survivors, of
/// which the tests of a crate kill the first.
#[test]
fn late_kills_are_survivors_in_each_score() {
    let code = r#"
with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    part = {"file": "engine/view/src/lib.rs", "item_path": "x", "mutator": "x", "original": "a",
            "replacement": "b", "line": 1, "end_line": 1, "span": [0, 1]}
    plan = [dict(part, id=f"m{n}", key=f"k{n}", occurrence=n, ordinal=n) for n in range(20)]
    killed = [{"id": f"m{n}", "seed": 1, "verdict": "killed", "by": "program:3",
               "at": 5.0 if n < 10 else 100.0} for n in range(18)]
    alive = [{"id": f"m{n}", "seed": 1, "verdict": "survived", "at": 60.0} for n in (18, 19)]
    (folder / "plan.json").write_text(json.dumps({"mutants": plan}))
    (folder / "results.jsonl").write_text("".join(json.dumps(r) + "\n" for r in killed + alive))
    (folder / "tests.json").write_text(json.dumps({"m18": "Killed", "m19": "Survived"}))
    mutants.report(folder)
    survived = {"id": "m19", "seed": 2, "verdict": "survived", "at": 600.0}
    (folder / "longer.jsonl").write_text(json.dumps(survived) + "\n")
    mutants.report(folder)
"#;
    let Some(text) = python(code) else { return };
    assert!(text.contains("with the crates' tests: 11 of 20, 55.0 %"), "{text}");
    // Ten within the bound, eight later, one by tests.
    assert!(text.contains("with all tools: 19 of 20, 95.0 %"), "{text}");
    let row = text.lines().find(|line| line.starts_with("all ")).expect("a row");
    assert!(row.contains(" 50.0 %"), "{row}");
}

/// A full disk kills no mutant; a mutant that is killed by what looks like it, is killed.
#[test]
fn failures_of_the_machine_are_no_kills() {
    let code = r#"
said = "KILLED\tby=corpus:c\tat=3\tdetail=a: environment on c: no space left on device"
killed = dict(mutants.judged(1, said, 3), seed=1)
for answer in ((1, said, 3), (0, "PASSED\t", 3)):
    mutants.launch = lambda *arguments: answer
    try:
        print(mutants.is_false_alarm(None, killed, "c"))
    except InterruptedError as problem:
        print(problem)
"#;
    let Some(text) = python(code) else { return };
    let expected = "the machine failed: a: environment on c: no space left on device\nFalse\n";
    assert_eq!(text, expected);
}
