//! The harness can fail: every planted fault is hunted down, made small and blamed on its room.

use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

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

/// One hunt, as a person would start it: on the devices for what bites in their rooms, on the ways
/// of the interpreter, which needs no compiler, for what bites before.
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
    let rows: Vec<&'static fault::Row> =
        fault::ROWS.iter().filter(|row| !fault::BY_VIEWS.contains(&row.name)).collect();
    // A hunt takes one core.
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicUsize::new(0);
    let hunts = || {
        let more = || rows.get(next.fetch_add(1, Ordering::Relaxed)).copied();
        let hunt = |row: &'static fault::Row| (row, hunt(row.name, row.room, folder.path()));
        std::iter::from_fn(more).map(hunt).collect::<Vec<_>>()
    };
    let found = std::thread::scope(|scope| {
        let hunters: Vec<_> = (0..cores).map(|_| scope.spawn(hunts)).collect();
        hunters.into_iter().flat_map(|hunter| hunter.join().expect("hunts")).collect::<Vec<_>>()
    });
    let mut problems = Vec::new();
    let mut sizes = Vec::new();
    assert_eq!(found.len(), rows.len());
    for (row, (code, summary)) in found {
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
