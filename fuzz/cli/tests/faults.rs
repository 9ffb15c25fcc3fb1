//! The harness can fail: every planted fault is hunted down, made small and blamed on its room.

use std::process::Command;

use gradiff_check::fault;
use serde_json::Value;

#[test]
fn faults_of_views_are_found_by_views() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let views =
        fault::ROWS.iter().filter(|row| row.room == "view" || fault::BY_VIEWS.contains(&row.name));
    for row in views {
        let output = Command::new(env!("CARGO_BIN_EXE_gradiff"))
            .args(["views", "--cases", "2000"])
            .arg(format!("--fault={}", row.name))
            .arg("--findings")
            .arg(folder.path())
            .output()
            .expect("the command starts");
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(2), "{}: {text}", row.name);
        assert!(text.contains("FOUND"), "{}: {text}", row.name);
    }
}

/// One hunt, as a person would start it: on the devices for what bites in their rooms, on the ways of
/// the interpreter, which needs no compiler, for what bites before.
fn hunt(fault: &str, room: &str, folder: &std::path::Path) -> (Option<i32>, Value) {
    let backends = match room {
        "render" | "runtime" => "interp,jit,c,interp/opts",
        _ => "interp,jit,interp/opts,interp/vectors,interp/groups",
    };
    let output = Command::new(env!("CARGO_BIN_EXE_gradiff"))
        .args(["hunt", "--json", "--jobs", "1", "--max-findings", "1", "--seconds", "60"])
        .args(["--backends", backends])
        .arg(format!("--fault={fault}"))
        .arg("--findings")
        .arg(folder.join(fault))
        .output()
        .expect("the command starts");
    let text = String::from_utf8_lossy(&output.stdout);
    let summary = serde_json::from_str(text.trim()).unwrap_or_else(|_| {
        panic!("{fault}: no summary; {}", String::from_utf8_lossy(&output.stderr))
    });
    (output.status.code(), summary)
}

#[test]
fn every_planted_fault_is_found_small_and_blamed() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut problems = Vec::new();
    let mut sizes = Vec::new();
    for row in fault::ROWS.iter().filter(|row| !fault::BY_VIEWS.contains(&row.name)) {
        let (code, summary) = hunt(row.name, row.room, folder.path());
        let finding = &summary["details"][0];
        if code != Some(2) || finding.is_null() {
            problems.push(format!("{}: not found, exit code {code:?}", row.name));
            continue;
        }
        sizes.push(finding["statements"].as_u64().unwrap_or(u64::MAX));
        if row.name.starts_with("rule-") && !finding["rule"].is_string() {
            problems.push(format!("{}: no rule is named: {}", row.name, finding["story"]));
        }
        if finding["room"] != row.room {
            problems.push(format!(
                "{}: bites in {}, blamed on {}: {}",
                row.name, row.room, finding["room"], finding["story"]
            ));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(sizes.len() >= 20, "{} faults", sizes.len());
    sizes.sort_unstable();
    assert!(sizes[sizes.len() / 2] <= 4, "median of statements: {sizes:?}");
}
