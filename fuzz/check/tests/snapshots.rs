//! Reviewed snapshots of what telling corpus cases become: schedule, uops and C source as they are
//! without optimisations, and the source in every language with those that the engine chooses. The
//! page of rules among them is what the command line prints; its own tests hold it to that.
//!
//! A run names every snapshot that differs and writes what it found beside it (`.snap.new`), unless
//! `INSTA_UPDATE=no` or `CI` is set: `gradiff snap diff` judges what is pending, `cargo insta
//! review` takes it. A snapshot without a case is an error as well.

use std::collections::BTreeSet;
use std::path::PathBuf;

use gradiff::kernel::Opt;
use gradiff_check::Shown;
use gradiff_corpus::{Case, embedded, parse};

/// What is kept of each case: the folder, and what is shown there.
const KINDS: [(&str, Shown<'_>); 3] = [
    ("schedule", shown("schedule", "plain", Some(&[]))),
    ("uops", shown("uops", "plain", Some(&[]))),
    ("kernels/c", shown("c", "plain", Some(&[]))),
];

/// The languages, for their own targets and optimised as the engine would; C for one machine.
const LANGUAGES: [(&str, Shown<'_>); 7] = [
    ("kernels/c-vectors", shown("c", "vectors", None)),
    ("kernels/cuda", shown("cuda", "cuda", None)),
    ("kernels/llvm", shown("llvm", "llvm", None)),
    ("kernels/metal", shown("metal", "metal", None)),
    ("kernels/opencl", shown("opencl", "opencl", None)),
    ("kernels/ptx", shown("ptx", "ptx", None)),
    ("kernels/wgsl", shown("wgsl", "wgsl", None)),
];

const fn shown<'a>(stage: &'a str, target: &'a str, opts: Option<&'a [Opt]>) -> Shown<'a> {
    Shown { stage, opts, target: Some(target) }
}

/// The cases that are kept: one for each feature, not every case.
const STEMS: &[&str] = &[
    "add-add-fuse",
    "arange-step",
    "bf16-cast",
    "bitcast-f32",
    "bitwise-and-or-xor-not",
    "broadcast-row-column",
    "cast-float-to-int",
    "cat-two",
    "cdiv-negative",
    "compare-mixed-sign",
    "collapse-count-step",
    "collapse-unparented",
    "contiguous-between",
    "f16-chain",
    "flip-reshape-flip",
    "gather-axis",
    "gather-rows",
    "i8-wrap",
    "matmul-4x4",
    "matmul-f16-tc",
    "matmul-transposed",
    "max-nan",
    "mean-rows",
    "min-max-integers",
    "mod-floor-negative",
    "pad-then-exp2",
    "pad-value",
    "pow-div-f64",
    "prod-f64",
    "promote-i8-u8",
    "rank-0",
    "realize-between",
    "reshape-pad-reshape",
    "s15-diagonal-values",
    "s22-fused-add",
    "s31-contiguous-of-view",
    "s32-identities",
    "s33-reduce-then-expand",
    "s33-two-reduces",
    "s33-unsafe-pad",
    "s39-mulacc",
    "shift-arithmetic",
    "shrink-flip-permute",
    "softmax",
    "sum-i8-wide",
    "threefry-counter",
    "u8-wrap",
    "unary-floats",
    "where-mask",
];

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
    for stem in STEMS {
        let found = embedded().iter().find(|(name, _)| name == stem);
        let (_, text) = found.unwrap_or_else(|| panic!("no corpus case is called {stem}"));
        let file = parse(text).unwrap_or_else(|error| panic!("{stem}: {error}"));
        assert!(matches!(file.case, Case::Program(_)), "{stem} is a program");
        for (kind, shown) in KINDS {
            let text = gradiff_check::show(&file.case, shown)
                .unwrap_or_else(|problem| panic!("{stem} as {kind}: {problem}"));
            differences.check(kind, stem, &text);
        }
        for (kind, shown) in LANGUAGES {
            // What a language lacks is kept as well.
            let text = gradiff_check::show(&file.case, shown);
            let text = text.unwrap_or_else(|problem| format!("refused: {problem}\n"));
            differences.check(kind, stem, &text);
        }
    }
    differences.report();
}

/// Cases with optimisations: one for each op and for what they do to each other.
const OPTED: &[(&str, &str, &str)] = &[
    ("opt-padto", "add-add-fuse", "padto 0 5, upcast 0 5"),
    ("opt-overlap", "add-add-fuse", "overlap 0 3, upcast 0 3"),
    ("opt-padto-prod", "prod-f64", "padto 0 5, unroll 0 5"),
    ("opt-swap", "broadcast-row-column", "swap 0 1"),
    ("opt-thread", "add-add-fuse", "thread 0 4, upcast 0 4"),
    ("opt-unroll", "matmul-4x4", "unroll 2 2"),
    ("opt-upcast", "add-add-fuse", "upcast 0 4"),
    ("opt-upcast-unroll", "matmul-4x4", "upcast 0 2, upcast 1 2, unroll 2 2"),
];

#[test]
fn optimised_kernels_are_as_reviewed() {
    let mut differences = Differences::default();
    for (name, stem, opts) in OPTED {
        let found = embedded().iter().find(|(case, _)| case == stem);
        let (_, text) = found.unwrap_or_else(|| panic!("no corpus case is called {stem}"));
        let file = parse(text).unwrap_or_else(|error| panic!("{stem}: {error}"));
        let opts: Vec<_> = opts.split(", ").map(|opt| opt.parse().expect("an opt")).collect();
        for (kind, shown) in KINDS.into_iter().filter(|(kind, _)| *kind != "schedule") {
            let shown = Shown { opts: Some(&opts), ..shown };
            let text = gradiff_check::show(&file.case, shown)
                .unwrap_or_else(|problem| panic!("{name} as {kind}: {problem}"));
            differences.check(kind, name, &text);
        }
    }
    differences.report();
}

#[test]
fn every_snapshot_has_its_case() {
    let mut expected: BTreeSet<String> =
        ["rules/rules.md", "rules/quality.txt"].map(String::from).into();
    for (kind, _) in LANGUAGES {
        expected.extend(STEMS.iter().map(|stem| format!("{kind}/{stem}.snap")));
    }
    for (kind, _) in KINDS {
        expected.extend(STEMS.iter().map(|stem| format!("{kind}/{stem}.snap")));
        let opted = OPTED.iter().filter(|_| kind != "schedule");
        expected.extend(opted.map(|(name, ..)| format!("{kind}/{name}.snap")));
    }
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
