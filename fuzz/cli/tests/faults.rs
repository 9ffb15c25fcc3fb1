//! The harness can fail: every planted fault is found, minimised and blamed on its crate. Those
//! that take thousands of programs are hunted by the ignored test, which `.ci/nightly` runs.

mod common;

use std::path::Path;

use common::{both, gradiff};
use rayon::prelude::*;
use serde_json::Value;

/// A planted fault, as `gradiff faults` lists it.
struct Row {
    name: String,
    crate_name: String,
    /// The check that finds it: `hunt`, `views` or `canaries`.
    by: String,
    /// The backends on which it shows; empty if hunts may run on any.
    backends: Vec<String>,
    /// Number of programs that a hunt may need.
    programs: u64,
}

fn rows() -> Vec<Row> {
    let output = gradiff(&["faults", "--json"], Path::new("."));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let list: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let word = |value: &Value| value.as_str().expect("a text").to_string();
    let row = |row: &Value| Row {
        name: word(&row["name"]),
        crate_name: word(&row["crate"]),
        by: word(&row["by"]),
        backends: row["backends"].as_array().expect("a list").iter().map(word).collect(),
        programs: row["programs"].as_u64().expect("a number"),
    };
    let rows: Vec<Row> = list["faults"].as_array().expect("a list").iter().map(row).collect();
    assert!(rows.len() >= 70, "{text}{errors}");
    rows
}

#[test]
fn faults_of_views_are_found_by_views() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let is_by_views = |row: &Row| row.crate_name == "view" || row.by == "views";
    for row in rows().into_iter().filter(is_by_views) {
        let fault = format!("--fault={}", row.name);
        let output = gradiff(&["views", "--cases", "2000", &fault], folder.path());
        let text = both(&output);
        assert_eq!(output.status.code(), Some(2), "{}: {text}", row.name);
        assert!(text.contains("FOUND"), "{}: {text}", row.name);
    }
}

#[test]
fn faults_of_the_oracle_are_found_by_canaries() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let case = format!("{}/../../corpus/cases/add-add-fuse.case", env!("CARGO_MANIFEST_DIR"));
    let of_oracle: Vec<Row> = rows().into_iter().filter(|row| row.by == "canaries").collect();
    assert!(of_oracle.len() >= 4);
    for row in of_oracle {
        let fault = format!("--fault={}", row.name);
        for command in
            [&["hunt", "--programs", "1"][..], &["replay", "--backends", "interp", &case]]
        {
            let output = gradiff(&[command, &[&fault]].concat(), folder.path());
            let text = both(&output);
            assert_eq!(output.status.code(), Some(2), "{} {command:?}: {text}", row.name);
            assert!(text.contains("oracle"), "{}: {text}", row.name);
        }
    }
}

/// Each fault makes at least one chain of movements in a hundred fail.
#[test]
fn faults_of_views_show_often() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for row in rows().into_iter().filter(|row| row.crate_name == "view") {
        let fault = format!("--fault={}", row.name);
        for seed in ["1", "2", "3", "4", "5"] {
            let flags = ["views", "--random-only", "--cases", "400", "--seed", seed, &fault];
            let output = gradiff(&flags, folder.path());
            assert_eq!(output.status.code(), Some(2), "{} {seed}: {}", row.name, both(&output));
        }
    }
}

/// The fault that was hunted when an end was requested is not missed.
#[cfg(unix)]
#[test]
fn an_interrupted_measurement_of_faults_misses_none() {
    use std::process::{Command, Stdio};

    let folder = tempfile::tempdir().expect("a temporary folder");
    // The engine with the faults is built before they are hunted.
    let built = gradiff(&["backends", "--fault", "view-pad-mask-wide"], folder.path());
    assert!(built.status.success(), "{}", both(&built));
    let mut command = Command::new(env!("CARGO_BIN_EXE_gradiff"));
    command.args(["hunt", "--faults", "--json", "--backends", "interp"]);
    let command = command.current_dir(folder.path()).stdout(Stdio::piped());
    let child = command.spawn().expect("the command starts");
    let has_begun = || std::fs::read_dir(folder.path().join("findings")).is_ok();
    let pause = || std::thread::sleep(std::time::Duration::from_millis(50));
    (0..1200).take_while(|_| !has_begun()).for_each(|_| pause());
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(killed.expect("kill starts").success());
    let output = child.wait_with_output().expect("it ends");
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(130), "{text}");
    assert!(text.contains("\"missed\":0"), "{text}");
}

/// Runs one hunt: on the backends that the fault names; else on devices for faults of their crates,
/// on those that draw optimisations for faults of kernels, and for faults of earlier crates on the
/// plain ones, which run many programs in little time.
fn hunt(row: &Row, folder: &Path) -> (Option<i32>, Value, String) {
    let usual = match row.crate_name.as_str() {
        "render" | "runtime" => "interp,jit,c,interp/opts",
        "kernel" => "interp,jit,interp/opts,interp/vectors,interp/groups",
        _ => "interp,jit",
    };
    let backends = match row.backends.is_empty() {
        true => usual.to_string(),
        false => row.backends.join(","),
    };
    let programs = row.programs.to_string();
    let (fault, findings) = (format!("--fault={}", row.name), folder.join(&row.name));
    let findings = findings.to_string_lossy();
    let flags = ["hunt", "--json", "--jobs", "1", "--max-findings", "1", "--programs", &programs];
    let more = ["--backends", &backends, "--findings", &findings, &fault];
    let output = gradiff(&[&flags[..], &more].concat(), folder);
    let text = String::from_utf8_lossy(&output.stdout);
    let messages = String::from_utf8_lossy(&output.stderr).into_owned();
    let summary = serde_json::from_str(text.trim())
        .unwrap_or_else(|_| panic!("{}: no summary; {messages}", row.name));
    (output.status.code(), summary, messages)
}

/// Number of programs within which most faults are found.
const FEW: u64 = 4096;

#[test]
fn planted_faults_are_found_minimised_and_blamed() {
    let rows = hunted(|programs| programs <= FEW);
    assert!(rows.len() >= 100, "{} faults", rows.len());
    check(&rows);
}

#[test]
#[ignore = "hunts for minutes; .ci/nightly runs it"]
fn rare_faults_are_found_minimised_and_blamed() {
    let rows = hunted(|programs| FEW < programs);
    assert!(rows.len() >= 10, "{} faults", rows.len());
    check(&rows);
}

/// Returns the faults that hunts find, within such a number of programs.
fn hunted(is_chosen: impl Fn(u64) -> bool) -> Vec<Row> {
    let mut rows = rows();
    rows.retain(|row| row.by == "hunt" && is_chosen(row.programs));
    rows
}

/// Hunts each fault: it must be found, be minimised and be blamed on its crate.
fn check(rows: &[Row]) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    // A hunt takes one core.
    let hunts = rows.par_iter().with_max_len(1);
    let found: Vec<_> = hunts.map(|row| (row, hunt(row, folder.path()))).collect();
    let mut problems = Vec::new();
    let mut sizes = Vec::new();
    assert_eq!(found.len(), rows.len());
    for (row, (code, summary, messages)) in found {
        let finding = &summary["details"][0];
        if code != Some(2) || finding.is_null() {
            let name = &row.name;
            problems.push(format!("{name}: not found, exit code {code:?}: {messages}{summary}"));
            continue;
        }
        sizes.push(finding["statements"].as_u64().unwrap_or(u64::MAX));
        if row.name.starts_with("rule-") && !finding["rule"].is_string() {
            problems.push(format!("{}: no rule is named: {}", row.name, finding["story"]));
        }
        if finding["crate"] != row.crate_name.as_str() {
            problems.push(format!(
                "{}: is in {}, blamed on {}: {}",
                row.name, row.crate_name, finding["crate"], finding["story"]
            ));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    sizes.sort_unstable();
    assert!(sizes[sizes.len() / 2] <= 4, "median of statements: {sizes:?}");
}
