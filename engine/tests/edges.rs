//! Tidy test: the crates of the workspace depend on each other only along the allowed edges.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// The allowed edges: a crate and its dependencies. A crate without a row may have none.
const EDGES: &[(&str, &[&str])] = &[
    ("gradiff-view", &[]),
    ("gradiff-graph", &["gradiff-view"]),
    ("gradiff-rewrite", &["gradiff-graph"]),
    ("gradiff-schedule", &["gradiff-graph", "gradiff-view", "gradiff-rewrite"]),
    ("gradiff-kernel", &["gradiff-graph", "gradiff-view", "gradiff-rewrite"]),
    ("gradiff-render", &["gradiff-graph", "gradiff-rewrite"]),
    ("gradiff-runtime", &["gradiff-graph", "gradiff-render"]),
    (
        "gradiff-tensor",
        &[
            "gradiff-graph",
            "gradiff-kernel",
            "gradiff-render",
            "gradiff-rewrite",
            "gradiff-runtime",
            "gradiff-schedule",
            "gradiff-view",
        ],
    ),
    ("gradiff-files", &["gradiff-graph", "gradiff-tensor"]),
    ("gradiff-nn", &["gradiff-graph", "gradiff-tensor"]),
    (
        "gradiff",
        &[
            "gradiff-files",
            "gradiff-graph",
            "gradiff-kernel",
            "gradiff-nn",
            "gradiff-render",
            "gradiff-rewrite",
            "gradiff-runtime",
            "gradiff-schedule",
            "gradiff-tensor",
            "gradiff-view",
        ],
    ),
    ("gradiff-skip", &[]),
    ("gradiff-corpus", &[]),
    ("gradiff-oracle", &["gradiff-corpus"]),
    ("gradiff-eval", &["gradiff-graph", "gradiff-view"]),
    ("gradiff-gen", &["gradiff-corpus"]),
    ("gradiff-strategies", &["gradiff-corpus", "gradiff-gen"]),
    ("gradiff-rules", &["gradiff-graph", "gradiff-rewrite", "gradiff-eval"]),
    (
        "gradiff-check",
        &["gradiff-corpus", "gradiff", "gradiff-eval", "gradiff-oracle", "gradiff-rules"],
    ),
    ("gradiff-cli", &["gradiff-gen", "gradiff-check", "gradiff-corpus", "gradiff-rules"]),
    ("gradiff-fuzz", &["gradiff-corpus", "gradiff-gen", "gradiff-check"]),
];

/// The crates of the workspace, each with its dependencies in the workspace. Dev-dependencies do
/// not count.
fn edges() -> BTreeMap<String, BTreeSet<String>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs, since it runs this test");
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo metadata: {message}");
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    let packages = json["packages"].as_array().expect("a list of packages");
    let name = |value: &serde_json::Value| value["name"].as_str().expect("a name").to_string();
    let known: BTreeSet<String> = packages.iter().map(name).collect();
    packages
        .iter()
        .map(|package| {
            let dependencies = package["dependencies"].as_array().expect("a list");
            let internal = dependencies
                .iter()
                .filter(|dependency| dependency["kind"].as_str() != Some("dev"))
                .map(name)
                .filter(|dependency| known.contains(dependency));
            (name(package), internal.collect())
        })
        .collect()
}

#[test]
fn crates_depend_only_along_the_allowed_edges() {
    let edges = edges();
    assert!(edges.len() >= 16, "crates of the workspace: {:?}", edges.keys());
    let mut bad = Vec::new();
    for (package, dependencies) in &edges {
        let allowed = EDGES.iter().find(|(name, _)| name == package).map_or(&[][..], |row| row.1);
        for dependency in dependencies {
            if !allowed.contains(&dependency.as_str()) {
                bad.push(format!("{package} -> {dependency}"));
            }
        }
    }
    assert!(bad.is_empty(), "edges that the architecture does not have: {bad:?}");
}

#[test]
fn table_has_a_row_for_every_crate() {
    let edges = edges();
    let unlisted: Vec<_> =
        edges.keys().filter(|package| EDGES.iter().all(|(name, _)| name != package)).collect();
    assert!(unlisted.is_empty(), "crates without a row: {unlisted:?}");
    let stale: Vec<_> = EDGES.iter().filter(|(name, _)| !edges.contains_key(*name)).collect();
    assert!(stale.is_empty(), "rows without a crate: {stale:?}");
}
