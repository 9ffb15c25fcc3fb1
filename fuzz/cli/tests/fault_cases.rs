//! Planted faults in small cases: without the fault nothing fails, with it the right stage is
//! named.

use std::path::Path;
use std::process::Command;

use gradiff_skip::{of_backend, skip};

/// Runs a command on a case, under a fault if one is named. Returns the exit code and the output.
fn run(arguments: &[&str], case: &str, fault: Option<&str>) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("a.case");
    std::fs::write(&path, case).expect("a file in the temporary folder");
    let mut command = Command::new(env!("CARGO_BIN_EXE_gradiff"));
    command.args(arguments).arg(&path).current_dir(folder.path());
    if let Some(name) = fault {
        command.args(["--fault", name]);
    }
    let output = command.output().expect("the command starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    (output.status.code(), text)
}

/// Checks that the case does not fail, but does so under the fault, with these words in the output.
fn check(arguments: &[&str], case: &str, fault: &str, words: &str) {
    let (code, text) = run(arguments, case, None);
    assert_eq!(code, Some(0), "{fault} is not planted: {text}");
    let (code, text) = run(arguments, case, Some(fault));
    assert_eq!(code, Some(2), "{fault}: {text}");
    assert!(text.contains(words), "{fault} without {words:?}: {text}");
}

const ROWS: &str = "a = input i32[2,3] [1, 2, 3, 4, 5, 6]\nb = sum a axes=[1]\noutput b\n";
const MAX: &str = "a = input i32[3] [-3, -2, -5]\nb = max a axes=[0]\noutput b\n";
const COPY: &str = "a = input i32[6] iota\nb = neg a\noutput b\n";

#[test]
fn the_pass_of_a_kernel_is_named() {
    for (fault, pass, backend, case) in [
        (
            "reassociate-term-lost",
            "reassociate",
            "interp",
            "a = input i32[2,3] iota\nb = permute a axes=[1,0]\noutput b\n",
        ),
        (
            "sin-reduction-short",
            "legalize",
            "interp/groups",
            "a = input f32[3] [3.0, 100.0, 1e10]\nb = sin a\noutput b\n",
        ),
        (
            "exp2-coefficient",
            "legalize",
            "interp/groups",
            "a = input f32[3] [0.5, 0.25, 0.75]\nb = exp2 a\noutput b\n",
        ),
        (
            "log2-scale-forgotten",
            "legalize",
            "interp/groups",
            "a = input f32[3] [1e-45, 7.17465e-43, 2.0]\nb = log2 a\noutput b\n",
        ),
        (
            "legalize-bf16-truncates",
            "legalize",
            "interp",
            "a = input bf16[3] [5, 7, 11]\nb = mul a 0.33333\noutput b\n",
        ),
        ("lower-reduce-identity", "lower", "interp", MAX),
        (
            "lower-rows-share-range",
            "lower",
            "interp/opts",
            "a = input i32[3] [1, 2, 4]\nb = sum a axes=[0]\nc = expand b [3]\nd = sub a c\n\
             output d\n",
        ),
        (
            "lower-gate-lost",
            "lower",
            "interp",
            "a = input i32[3] [7, 8, 9]\nb = pad a [(1,1)] 0\noutput b\n",
        ),
        (
            "lower-accumulator-narrow",
            "lower",
            "interp",
            "a = input i8[3] [100, 100, 100]\nb = cast a i32\nc = sum b axes=[0]\noutput c\n",
        ),
        ("linearize-accumulator-not-reset", "linearize", "interp", ROWS),
    ] {
        let words = format!("stage {pass} (engine/kernel)");
        check(&["blame", "--backends", backend], case, fault, &words);
    }
}

/// Mistakes of `optimize` show in plain loops already, those of later passes in unrolled loops.
#[test]
fn optimisations_go_wrong_from_their_pass_on() {
    for (fault, opts, from, case) in [
        ("opt-split-stride", "upcast 0 3", "as loops", COPY),
        ("opt-overlap-short", "overlap 0 4", "as loops", COPY),
        ("opt-pad-gate-lost", "padto 0 4", "as loops", COPY),
        ("opt-pad-fold-wrong", "padto 0 4", "as loops", MAX),
        ("expand-choice-turned", "padto 0 4, upcast 0 4", "unrolled", MAX),
        ("expand-remainder-lost", "unroll 1 3", "unrolled", ROWS),
        ("expand-accumulator-shared", "upcast 0 2", "unrolled", ROWS),
        (
            "expand-constant-forgotten",
            "upcast 1 3",
            "unrolled",
            "a = input i32[2,4] iota\nb = shrink a [(0,2),(1,4)]\noutput b\n",
        ),
        (
            "rows-turned",
            "upcast 1 4, upcast 0 8",
            "in vectors",
            "a = input i32[4,8] iota\nb = permute a axes=[1,0]\noutput b\n",
        ),
    ] {
        let words = format!("opts \"{opts}\", {from}: ");
        check(&["opts", "--opts", opts], case, fault, &words);
    }
    let softmax = "a = input f32[2,3] [1, 3, 2, 0, 5, 4]\nb = exp2 a\nc = sum b axes=[1]\n\
                   d = expand c [2,3]\ne = div b d\noutput e\n";
    let arguments = ["opts", "--depth", "1", "--random", "0"];
    check(&arguments, softmax, "cache-upcast-shared", "of rows, opts \"upcast");
}

/// Returns whether a backend is available.
fn is_available(backend: &str) -> bool {
    let output = Command::new(env!("CARGO_BIN_EXE_gradiff")).arg("backends").output();
    let output = output.expect("the command starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    lines.any(|words| matches!(words[..], [name, "found", ..] if name == backend))
}

#[test]
fn single_ops_of_devices_are_blamed() {
    for (fault, backend, stage, case) in [
        (
            "render-shift-arithmetic-lost",
            "c",
            "render (engine/render)",
            "a = input i32[2] [-8, 8]\nb = shr a 1\noutput b\n",
        ),
        (
            "jit-unsigned-divide-as-signed",
            "jit",
            "run (engine/runtime)",
            "a = input u32[2] [4294967295, 7]\nb = input u32[2] [3, 2]\nc = cdiv a b\noutput c\n",
        ),
        (
            "jit-narrow-not-extended",
            "jit",
            "run (engine/runtime)",
            "a = input i8[2] [-3, 3]\nb = cast a i32\noutput b\n",
        ),
        (
            "interp-max-drops-nan",
            "interp",
            "run (engine/runtime)",
            "a = input f32[2] [nan, 1.0]\nb = input f32[2] [1.0, nan]\nc = max a b\noutput c\n",
        ),
    ] {
        match is_available(backend) {
            true => {
                check(&["blame", "--backends", backend], case, fault, &format!("stage {stage}"))
            }
            false => skip(of_backend(backend), &format!("{fault} on {backend}")),
        }
    }
}

/// A text that computes something else, and one that no compiler takes, in each language: by the
/// devices that take it, where they are, and on this machine.
#[test]
fn wrong_texts_are_blamed_on_the_renderer() {
    let cut_back = (
        "render-no-cut-back",
        "a = input u8[3] [200, 100, 7]\nb = add a a\nc = cdiv b 3\noutput c\n",
    );
    let unsigned = (
        "render-compare-unsigned-as-signed",
        "a = input u32[3] [4294967295, 1, 7]\nb = cmplt a 5\noutput b\n",
    );
    let undefined = (
        "render-helper-undefined",
        "a = input i32[3] [-7, 7, 9]\nb = input i32[3] [2, 2, -4]\nc = max a b\noutput c\n",
    );
    for (backend, faults) in [
        ("c", &[cut_back, unsigned, undefined][..]),
        ("c/session", &[unsigned, undefined]),
        ("opencl", &[unsigned, undefined]),
        ("cuda", &[unsigned, undefined]),
        ("wgpu", &[cut_back, undefined]),
        ("wgpu/core", &[cut_back, undefined]),
        ("text/cuda", &[unsigned, undefined]),
        ("text/metal", &[unsigned, undefined]),
        ("text/opencl", &[unsigned, undefined]),
        ("text/wgsl", &[cut_back, undefined]),
        ("text/wgsl-core", &[cut_back, undefined]),
        ("text/llvm", &[unsigned]),
        ("text/ptx", &[unsigned]),
    ] {
        if !is_available(backend) {
            skip(of_backend(backend), &format!("wrong texts on {backend}"));
            continue;
        }
        for (fault, case) in faults {
            let arguments = ["blame", "--backends", backend];
            check(&arguments, case, fault, "stage render (engine/render)");
        }
    }
}

/// Each row that a fault changes is in the tables, and its changed version is false.
#[test]
fn rules_that_faults_change_are_refuted() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (fault, rules) in [
        ("rule-add-fold-constant", &["algebra/add-add-const", "algebra/add-add-const-float"][..]),
        ("rule-mod-condition-dropped", &["divmod/floormod-in-range"]),
        ("rule-cdiv-as-floordiv", &["divmod/cdiv-to-floor", "divmod/cmod-to-floor"]),
        ("rule-cmp-off-by-one", &["compare/less-factor"]),
        ("rule-mul-zero-float", &["algebra/mul-zero"]),
        (
            "collapse-count-off-by-one",
            &[
                "reduce/count-below",
                "reduce/count-from",
                "reduce/count-true-below",
                "reduce/count-true-from",
                "reduce/count-between",
                "reduce/count-between-swapped",
            ],
        ),
    ] {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../faults");
        let text = std::fs::read_to_string(root.join(fault).with_extension("fault"));
        let text = text.expect("the file of the fault");
        let named = text.split('"').filter(|word| word.contains('/') && !word.contains(' '));
        assert_eq!(named.collect::<Vec<_>>(), rules, "{fault}");
        let output = Command::new(env!("CARGO_BIN_EXE_gradiff"))
            .arg("prove")
            .args(rules)
            .args(["--fault", fault])
            .env("GRADIFF_Z3", "no solver is needed")
            .current_dir(folder.path())
            .output()
            .expect("the command starts");
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(2), "{fault}: {text}");
        for rule in rules {
            let is_refuted = |line: &str| {
                let mut words = line.split_whitespace();
                words.next() == Some(rule) && words.next() == Some("refuted")
            };
            assert!(text.lines().any(is_refuted), "{rule} stays sound: {text}");
        }
    }
}
