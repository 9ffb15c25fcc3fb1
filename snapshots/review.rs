//! Reviewed snapshots of what telling corpus cases become: schedule, uops and C source as they are
//! without optimisations, and the source in every language with those that the engine chooses. The
//! page of rules among them is what the command line prints; its own tests hold it to that.
//!
//! A run names every snapshot that differs and writes what it found beside it (`.snap.new`), unless
//! `INSTA_UPDATE=no` or `CI` is set: `gradiff snap diff` judges what is pending, `cargo insta
//! review` takes it. A snapshot without a case is an error as well.

use std::collections::BTreeSet;
use std::path::PathBuf;

use gradiff_check::snap::kept;
use gradiff_corpus::Case;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../snapshots")
}

fn settings(kind: &str) -> insta::Settings {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(folder().join(kind));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings
}

/// The snapshots that differ from what was found.
#[derive(Default)]
struct Differences(Vec<String>);

impl Differences {
    /// Compares what is shown now with the snapshot, and goes on if it differs.
    fn check(&mut self, kind: &str, name: &str, text: &str) {
        let compare = || settings(kind).bind(|| insta::assert_snapshot!(name, text));
        if std::panic::catch_unwind(compare).is_err() {
            self.0.push(format!("{kind}/{name}"));
        }
    }

    /// # Panics
    /// If a snapshot differs.
    fn report(self) {
        let Differences(names) = self;
        let count = names.len();
        assert!(
            names.is_empty(),
            "{count} snapshots differ: {}; `gradiff snap diff` says how, and `cargo insta review` \
             takes what is right",
            names.join(", ")
        );
    }
}

#[test]
fn kernels_are_as_reviewed() {
    let mut differences = Differences::default();
    for kept in kept() {
        let program = kept.program().unwrap_or_else(|problem| panic!("{problem}"));
        let text =
            kept.shown().and_then(|shown| gradiff_check::show(&Case::Program(program), shown));
        // What a language lacks is kept as well.
        let text = match text {
            Err(problem) if kept.may_be_refused() => format!("refused: {problem}\n"),
            text => text.unwrap_or_else(|problem| panic!("{}: {problem}", kept.file())),
        };
        differences.check(kept.folder(), kept.name(), &text);
    }
    differences.report();
}

#[test]
fn every_snapshot_has_its_case() {
    let mut expected: BTreeSet<String> =
        ["review.rs", "rules/rules.md", "rules/quality.txt"].map(String::from).into();
    expected.extend(kept().iter().map(|kept| kept.file()));
    let mut found = BTreeSet::new();
    let mut folders = vec![folder()];
    while let Some(inside) = folders.pop() {
        for entry in std::fs::read_dir(&inside).expect("the folder of snapshots") {
            let path = entry.expect("an entry of the folder").path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(folder()).expect("inside the folder");
                found.insert(name.to_string_lossy().into_owned());
            }
        }
    }
    let strays: Vec<_> = found.difference(&expected).collect();
    assert!(strays.is_empty(), "snapshots without a case, or not reviewed: {strays:?}");
    let missing: Vec<_> = expected.difference(&found).collect();
    assert!(missing.is_empty(), "cases without a snapshot: {missing:?}");
}
