//! `gradiff snap diff` as a user sees it: folders, revisions, exit codes, messages.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

const KERNEL: &str = "---
source: here
---
# kernel 0
kernel E_4
   0 const          i32   []           4
   1 const          f32   []           7.0
   2 define_global  f32   []           data0 4
   3 define_global  f32   []           data1 4
   4 range          i32   [0]          0
   5 index          f32   [2, 4]
   6 index          f32   [3, 4]
   7 load           f32   [6]
   8 add            f32   [7, 1]
   9 store          void  [5, 8]
  10 endrange       void  [4]
";

fn snap(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gradiff"));
    command.args(["snap", "diff"]).args(arguments).current_dir(folder);
    command.output().expect("the command starts")
}

/// Runs the command and checks its exit code and that the output contains the words. Returns the
/// output.
fn check(folder: &Path, arguments: &[&str], code: i32, words: &[&str]) -> String {
    let output = snap(folder, arguments);
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?} printed {text}");
    for word in words {
        assert!(text.contains(word), "{arguments:?} does not say {word:?}: {text}");
    }
    assert!(!text.contains("panicked"), "{arguments:?} panicked: {text}");
    text
}

fn git(folder: &Path, arguments: &[&str]) {
    let mut command = Command::new("git");
    command.arg("-C").arg(folder).args(["-c", "user.name=a", "-c", "user.email=a@b"]);
    let output = command.args(arguments).output().expect("git is there");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn write(folder: &Path, name: &str, text: &str) {
    let path = folder.join(name);
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
    std::fs::write(path, text).expect("a file");
}

/// Returns a project one folder below its repository, with a snapshot of uops and one of source.
fn project() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let inside = folder.path().join("in side");
    write(&inside, "snapshots/uops/a.snap", KERNEL);
    write(&inside, "snapshots/kernels/c/a.snap", "---\nsource: here\n---\nval0 = 1;\n");
    git(folder.path(), &["init", "-q"]);
    git(folder.path(), &["add", "."]);
    git(folder.path(), &["commit", "-qm", "first"]);
    (folder, inside)
}

#[test]
fn nothing_changed_exits_0() {
    let (_held, folder) = project();
    check(&folder, &[], 0, &["2 snapshots, none changed"]);
    // A refactoring may change only names and positions.
    write(&folder, "snapshots/uops/a.snap", &KERNEL.replace("E_4", "E_4n1"));
    write(&folder, "snapshots/kernels/c/a.snap", "---\nsource: here\n---\nval1 =  1;\n");
    let words =
        ["same program", "same text up to names", "uops: same program", "loads 4, stores 4"];
    check(&folder, &["HEAD"], 0, &words);
}

#[test]
fn a_different_meaning_exits_2_in_words_and_json() {
    let (_held, folder) = project();
    write(&folder, "snapshots/uops/a.snap", &KERNEL.replace("7.0", "8.0"));
    write(&folder, "snapshots/uops/b.snap", KERNEL);
    let words = ["different meaning", "uops/a.snap", "element 0 of data0", "added", "1 unchanged"];
    check(&folder, &[], 2, &words);
    let output = snap(&folder, &["HEAD", "--json"]);
    assert_eq!(output.status.code(), Some(2));
    let report: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert_eq!(report["unchanged"], 1);
    assert_eq!(report["counts"]["different meaning"], 1);
    assert_eq!(report["changes"][0]["class"], "different meaning");
    assert_eq!(report["changes"][0]["before"]["loads"], 4);
    assert_eq!(report["changes"][1]["class"], "added");
    // Once it is committed, it differs from the previous revision only.
    git(&folder, &["add", "."]);
    git(&folder, &["commit", "-qm", "second"]);
    check(&folder, &[], 0, &["none changed"]);
    check(&folder, &["HEAD~1"], 2, &["different meaning"]);
}

#[test]
fn folders_are_compared_without_git() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let load = KERNEL
        .replace("   8 add            f32   [7, 1]\n", "   8 load f32 [6]\n   9 add f32 [8, 1]\n")
        .replace("   9 store          void  [5, 8]", "  10 store void [5, 9]")
        .replace("  10 endrange", "  11 endrange");
    write(folder.path(), "old/uops/a.snap", KERNEL);
    write(folder.path(), "new/uops/a.snap", &load);
    let forward = ["old", "--snapshots", "new"];
    check(folder.path(), &forward, 0, &["same meaning, dearer", "loads 4 -> 8"]);
    let backward = ["new", "--snapshots", "old"];
    check(folder.path(), &backward, 0, &["same meaning, cheaper", "loads 8 -> 4"]);
}

#[test]
fn pending_snapshots_are_compared_with_accepted_ones() {
    let (_held, folder) = project();
    write(&folder, "snapshots/uops/a.snap.new", &KERNEL.replace("add            f32", "mul f32"));
    let pending = "1 of them pending";
    let text = check(&folder, &[], 2, &["different meaning", "uops/a.snap", pending]);
    assert!(!text.contains("a.snap.new"), "{text}");
    let printed = snap(&folder, &["--json"]);
    let report: serde_json::Value = serde_json::from_slice(&printed.stdout).expect("JSON");
    assert_eq!(report["pending"], 1);
    // A pending snapshot of a new case, and one that is broken.
    write(&folder, "snapshots/uops/a.snap.new", KERNEL);
    write(&folder, "snapshots/uops/b.snap.new", KERNEL);
    check(&folder, &[], 0, &["added", "uops/b.snap", "2 of them pending"]);
    write(&folder, "snapshots/uops/b.snap.new", "anything");
    check(&folder, &[], 1, &["broken", "uops/b.snap"]);
}

#[test]
fn impossible_comparisons_exit_1_and_say_why() {
    let (_held, folder) = project();
    check(&folder, &["nowhere"], 1, &["nowhere is neither a folder nor a revision"]);
    check(&folder, &["--", "--upload"], 1, &["--upload is neither a folder nor a revision"]);
    check(&folder, &["HEAD", "--snapshots", "none"], 1, &["none: "]);
    std::fs::create_dir(folder.join("empty")).expect("a folder");
    check(&folder, &["empty"], 1, &["empty: no snapshots (.snap files)"]);
    check(&folder, &["HEAD", "--snapshots", "empty"], 1, &["no snapshots (.snap files)"]);
    write(&folder, "other/a.snap", KERNEL);
    check(&folder, &["HEAD", "--snapshots", "other"], 1, &["other at HEAD: no snapshots"]);
    for (text, words) in [
        ("", "uops/a.snap: the file is empty"),
        ("kernel E", "the header of a snapshot is missing"),
        (&KERNEL.replace("add  ", "plus "), "uops/a.snap: line 14: there is no op \"plus\""),
    ] {
        write(&folder, "snapshots/uops/a.snap", text);
        check(&folder, &[], 1, &["1 broken", words]);
        let output = snap(&folder, &["--json"]);
        let report: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
        assert_eq!(report["counts"]["broken"], 1);
    }
}

#[test]
fn without_git_the_message_says_what_to_do() {
    let (_held, folder) = project();
    let outside = tempfile::tempdir().expect("a temporary folder");
    write(outside.path(), "snapshots/uops/a.snap", KERNEL);
    let run = |folder: &Path, path: &str, words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gradiff"));
        command.args(["snap", "diff"]).env("GIT_CEILING_DIRECTORIES", outside.path());
        if !path.is_empty() {
            command.env("PATH", path);
        }
        let output = command.current_dir(folder).output().expect("the command starts");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{text}");
        words.iter().for_each(|word| assert!(text.contains(word), "{word}: {text}"));
    };
    run(&folder, "/nonexistent", &["git cannot be run", "name a folder instead"]);
    run(outside.path(), "", &["git rev-parse --show-prefix failed", "repository"]);
}

#[test]
fn the_snapshots_of_this_repository_are_their_own() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    check(&root, &["snapshots"], 0, &["none changed"]);
}
