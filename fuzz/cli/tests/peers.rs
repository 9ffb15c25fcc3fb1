//! Tests of peers: engines in other processes, well and badly behaved.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::{both, gradiff};
use gradiff_corpus::{Case, Fill, Program, Statement};
use serde_json::Value;

/// A folder with a case of one input of two elements, and with a shell script that is a peer: it
/// greets and then answers each program with `body`.
fn peer(body: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let write = |name: &str, text: &str| {
        std::fs::write(folder.path().join(name), text).expect("a file in the temporary folder");
    };
    write("a.case", "# two elements\na = input f32[2] [1.0, nan]\noutput a\n");
    let greeting = r#"read line; echo '{"gradiff": 1, "name": "test"}'"#;
    write("peer.sh", &format!("{greeting}\nwhile read line; do\n{body}\ndone\n"));
    (folder, "exec:sh peer.sh".to_string())
}

/// Replays the case on the peer, and checks the exit code and a part of the output.
fn check(body: &str, code: i32, word: &str) {
    let (folder, backend) = peer(body);
    let output = gradiff(&["replay", "--backends", &backend, "a.case"], folder.path());
    let text = both(&output);
    assert_eq!(output.status.code(), Some(code), "{body}: {text}");
    assert!(text.contains(word), "{body} does not say {word:?}: {text}");
}

/// The line that answers a program with two elements of f32.
fn values(bytes: &str) -> String {
    format!(r#"echo '{{"values": [{{"dtype": "f32", "shape": [2], "bytes": "{bytes}"}}]}}'"#)
}

#[test]
fn answers_of_peers_are_judged() {
    // The bits of a NaN are not judged.
    check(&values("0000803f0000c0ff"), 0, "1 of 1 cases replayed, 0 failed");
    check(&values("0000803f00000040"), 2, "element 1 of output 0 is 2.0, expected nan");
    check(&values("0100803f0000c07f"), 2, "element 0 of output 0 is 1.0000001");
    check(&values("0000803f"), 2, "value 0 of its answer: 4 bytes are not the elements of f32");
    check(&values("0000803f000"), 2, "value 0 of its answer: the bytes 0000803f000");
    let value = r#"echo '{"values": [{"dtype": "float", "shape": [2], "bytes": ""}]}'"#;
    check(value, 2, "no dtype is called float");
    check(r#"echo '{"values": [{"dtype": "f32", "shape": [-2]}]}'"#, 2, "the shape [-2]");
    let value = r#"echo '{"values": [{"dtype": "bool", "shape": [1], "bytes": "02"}]}'"#;
    check(value, 2, "the byte 02 is no bool, which is 00 or 01");
    check(r#"echo '{"value": []}'"#, 2, "an answer without values");
    check(r#"echo '{"values": []}'"#, 2, "0 outputs, expected 1");
    check(r#"echo '{"refused": "not today"}'"#, 2, "not today");
    check(r#"echo '{"skipped": "no NaN here"}'"#, 0, "skipped on exec:sh peer.sh: no NaN here");
}

/// A peer says in its greeting what it does not promise.
#[test]
fn what_a_peer_does_not_promise_is_skipped() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let write = |name: &str, text: &str| {
        std::fs::write(folder.path().join(name), text).expect("a file in the temporary folder");
    };
    write(
        "peer.sh",
        r#"read line
           echo '{"gradiff": 1, "zero_divisors": false, "zero_signs": false, "subnormals": false}'
           while read line; do echo '{"refused": "as always"}'; done"#,
    );
    let zero = "it does not define the division of an integer by zero";
    let tiny = "it may take zeros for the subnormal numbers inside";
    let sign = "the result may depend on the sign of a zero";
    for (program, skipped) in [
        ("a = input i32[2] [1, 0]\nb = floordiv 7 a\noutput b\n", Some(zero)),
        ("a = input i32[2] [1, 0]\nb = cmod a 0\noutput b\n", Some(zero)),
        ("a = input i32[2] [1, 0]\nb = add a 2\nc = cdiv a b\noutput c\n", None),
        ("a = input f32[2] [1.0, 1e-40]\nb = exp2 a\noutput b\n", Some(tiny)),
        ("a = input f32[1] [1e30]\nb = pow a -1.3\nc = sqrt b\noutput c\n", Some(tiny)),
        ("a = input f32[1] [1e30]\nb = pow a -1.3\noutput b\n", None),
        ("a = input f32[2] [1.0, -0.0]\nb = recip a\noutput b\n", Some(sign)),
        ("a = input f16[1] [5.0]\nb = sub a 5.0\nc = rsqrt b\noutput c\n", Some(sign)),
        ("a = input f32[2] [1.0, -0.0]\nb = exp2 a\nc = recip b\noutput c\n", None),
    ] {
        write("a.case", program);
        let output = gradiff(&["replay", "--backends", "exec:sh peer.sh", "a.case"], folder.path());
        let text = both(&output);
        let word = skipped.unwrap_or("refused on exec:sh peer.sh: as always");
        assert!(text.contains(word), "{program}: {text}");
        assert_eq!(output.status.code(), Some(if skipped.is_some() { 0 } else { 2 }), "{text}");
    }
}

/// So are dtypes that it does not list, wherever a program names them: of u64 and i64 it is f16.
#[test]
fn dtypes_in_which_operands_are_taken_are_those_of_a_program() {
    let (folder, backend) = peer(r#"echo '{"refused": "no f16 here"}'"#);
    let write = |name: &str, text: &str| {
        std::fs::write(folder.path().join(name), text).expect("a file in the temporary folder");
    };
    let script = std::fs::read_to_string(folder.path().join("peer.sh")).expect("the script");
    let greeting = r#""name": "test", "dtypes": ["bool", "i64", "u64"]"#;
    write("peer.sh", &script.replace(r#""name": "test""#, greeting));
    let program = "a = input u64[2] iota\nb = input i64[2] iota\nc = cmplt a b\noutput c\n";
    for (text, code, word) in [
        (program.to_string(), 0, "it has no f16"),
        (program.replace("i64", "u64"), 2, "refused on exec:sh peer.sh: no f16 here"),
    ] {
        write("a.case", &text);
        let output = gradiff(&["replay", "--backends", &backend, "a.case"], folder.path());
        assert_eq!(output.status.code(), Some(code), "{text}: {}", both(&output));
        assert!(both(&output).contains(word), "{text}: {}", both(&output));
    }
}

#[test]
fn peers_that_fail_are_findings_in_one_line() {
    check("echo the sum is 3", 2, "an answer that is no JSON object: the sum is 3");
    check("echo '[1]'", 2, "an answer that is no JSON object: [1]");
    check(r"printf '\377\n'", 2, "an answer that is no UTF-8");
    check("printf unfinished; exit 0", 2, "an answer that does not end: unfinished");
    check("echo out of cheese >&2; exit 7", 2, "it ended (exit status: 7): out of cheese");
    check("kill -9 $$", 2, "signal: 9");
    check("exec >&-; sleep 60", 2, "it closed its standard output");
    // A child that lives on holds the output of the dead peer.
    check("sleep 60 & exit 5", 2, "it ended (exit status: 5)");
}

/// An answer that is too many is seen before the next request, or else by its number: however slow
/// the peer is, it is not taken for the answer to another program.
#[test]
fn answers_that_are_too_many_are_findings() {
    let hunted = |body: &str| {
        let (folder, backend) = peer(body);
        let flags = ["hunt", "--programs", "64", "--jobs", "1", "--backends", &backend];
        both(&gradiff(&flags, folder.path()))
    };
    let answers = "for i in 1 2 3 4 5 6 7 8; do echo '{\"skipped\": \"again\"}'; done";
    let text = hunted(answers);
    assert!(text.contains("a line that was not asked for: {\"skipped\":"), "{text}");
    // The second answer to the first request comes after the second request.
    let late = r#"echo '{"skipped": "first", "id": 1}'; read line
                  echo '{"skipped": "second", "id": 1}'; sleep 60"#;
    let text = hunted(late);
    assert!(text.contains("the answer to request 1 in place of 2: {\"skipped\":"), "{text}");
}

/// Deaths under trackers are crashes, and of all of them one is minimised; of kernels, rows.
#[test]
fn peers_that_die_of_other_requests_are_counted() {
    let (folder, _) = peer("");
    let script = r#"read line
        echo '{"gradiff": 1, "requests": ["run", "views", "kernels"]}'
        while read line; do echo "at 0x12" >&2; exit 3; done"#;
    std::fs::write(folder.path().join("dies.sh"), script).expect("a file");
    let peer = "exec:sh dies.sh";
    let output = gradiff(&["views", "--peer", peer, "--cases", "8"], folder.path());
    let text = both(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("FOUND: crash on exec:sh dies.sh: it ended (exit status: 3)"), "{text}");
    assert!(text.contains("1 distinct failures, in 8 cases"), "{text}");
    let output = gradiff(&["compare", "a.case", "a.case", "--with", peer], folder.path());
    let text = both(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("failed: it ended (exit status: 3): at 0x12"), "{text}");
    assert!(text.contains("0 programs compared, 0 skipped, 2 failed"), "{text}");
    // So is a refusal.
    let script = r#"read line; echo '{"gradiff": 1, "requests": ["kernels"]}'
        while read line; do echo '{"kernels": {"refused": "CompileError: bad C"}}'; done"#;
    std::fs::write(folder.path().join("refuses.sh"), script).expect("a file");
    let compare = ["compare", "a.case", "a.case", "--with", "exec:sh refuses.sh"];
    let output = gradiff(&compare, folder.path());
    let text = both(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("failed: refused: CompileError: bad C"), "{text}");
    assert!(text.contains("0 programs compared, 0 skipped, 2 failed"), "{text}");
}

/// A peer may be required, as a device may; nobody is to blame within it.
#[test]
fn peers_are_required_and_have_no_stages() {
    let (folder, backend) = peer(&values("0000803f00000040"));
    for (backends, code) in [(backend.as_str(), 2), ("interp", 1)] {
        let flags = ["replay", "--backends", backends, "--require", &backend, "a.case"];
        let output = gradiff(&flags, folder.path());
        assert_eq!(output.status.code(), Some(code), "{}", both(&output));
    }
    let text = both(&gradiff(&["blame", "--backends", &backend, "a.case"], folder.path()));
    assert!(text.contains("mismatch on exec:sh peer.sh: a peer has no stages"), "{text}");
}

/// The answer of a peer that the request to end has ended says nothing about its version.
#[cfg(unix)]
#[test]
fn an_interrupted_bisection_writes_nothing() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let case = "# mismatch on numpy@1.0: x\na = input f32[] iota\noutput a\n";
    std::fs::write(folder.path().join("a.case"), case).expect("a file");
    // An installed version that never greets.
    let bin = folder.path().join("cache/peers/numpy==1.0/bin");
    std::fs::create_dir_all(&bin).expect("a folder");
    std::fs::write(bin.join("python"), "#!/bin/sh\nread line\nsleep 600\n").expect("a file");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(bin.join("python"), mode).expect("permissions");
    let mut command = Command::new(env!("CARGO_BIN_EXE_gradiff"));
    command.args(["bisect", "a.case", "--peer", "numpy", "--write"]).current_dir(folder.path());
    command.env("GRADIFF_CACHE_DIR", folder.path().join("cache")).env_remove("GRADIFF_PYTHON");
    let mut child = command.spawn().expect("gradiff");
    std::thread::sleep(std::time::Duration::from_millis(1500));
    let number = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &number]).status().expect("kill").success());
    let start = std::time::Instant::now();
    let status = child.wait().expect("its end");
    assert_eq!(status.code(), Some(130));
    assert!(start.elapsed() < std::time::Duration::from_secs(20), "{:?}", start.elapsed());
    assert_eq!(std::fs::read_to_string(folder.path().join("a.case")).expect("the case"), case);
}

#[test]
fn peers_that_cannot_start_are_errors_in_one_line() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let case = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../corpus/cases/add-add-fuse.case");
    let case = case.to_string_lossy().into_owned();
    for (name, rest) in [
        ("ops", r#""ops": ["add", "frobnicate"]"#),
        ("dtypes", r#""dtypes": "f32""#),
        ("signs", r#""zero_signs": 0"#),
    ] {
        let greeting = format!("{{\"gradiff\": 1, {rest}}}\n");
        std::fs::write(folder.path().join(name), greeting).expect("a file");
    }
    for (backend, code, word) in [
        ("exec:./no-such-engine", 3, "no-such-engine"),
        ("exec:", 1, "is followed by the command"),
        ("exec:true", 3, "it ended (exit status: 0)"),
        ("exec:echo {}", 3, "it speaks no protocol 1"),
        ("exec:echo hello", 3, "no JSON object: hello"),
        ("exec:cat ops", 3, "its greeting: ops has \"frobnicate\", which there is not"),
        ("exec:cat dtypes", 3, "its greeting: dtypes is no list: \"f32\""),
        ("exec:cat signs", 3, "its greeting: zero_signs is neither true nor false: 0"),
        ("numpy@0.0.0", 3, "`gradiff peers install numpy==0.0.0` does that"),
        ("no-such-peer", 1, "numpy"),
    ] {
        let output = gradiff(&["replay", "--backends", backend, &case], folder.path());
        let text = both(&output);
        assert_eq!(output.status.code(), Some(code), "{backend}: {text}");
        assert!(text.contains(word), "{backend} does not say {word:?}: {text}");
        assert!(!text.contains("panicked"), "{backend}: {text}");
    }
}

/// A peer is started by a shell, whose lack is not the peer's.
#[cfg(unix)]
#[test]
fn a_missing_shell_is_named() {
    let (folder, _) = peer("");
    let output = Command::new(env!("CARGO_BIN_EXE_gradiff"))
        .args(["replay", "--backends", "exec:/bin/cat", "a.case"])
        .current_dir(folder.path())
        .env("PATH", folder.path())
        .output()
        .expect("the command starts");
    let text = both(&output);
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(text.contains("sh cannot be started"), "{text}");
}

/// A run that compares nothing would pass for a clean one.
#[test]
fn empty_runs_of_peers_are_usage_errors() {
    let (folder, _) = peer("");
    let script = r#"read line
        echo '{"gradiff": 1, "requests": ["run", "views", "kernels"]}'
        while read line; do echo '{"views": [{"skipped": "not today"}]}'; done"#;
    std::fs::write(folder.path().join("skips.sh"), script).expect("a file");
    std::fs::write(folder.path().join("v.case"), "view [2]\nflip axes=[0]\n").expect("a file");
    let peer = "exec:sh skips.sh";
    for (arguments, word) in [
        (&["views", "--peer", peer, "--cases", "0"][..], "a run of 0 cases"),
        (&["views", "--peer", peer, "--cases", "1"], "a run of 0 judged cases"),
        (&["views", "--peer", peer, "--max-findings", "0"], "--max-findings"),
        (&["views", "--peer", "exec:"], "is followed by the command"),
        (&["compare", "v.case", "--with", peer], "none of the files has a program to compare"),
        (&["compare", "v.case", "--with", "exec: "], "is followed by the command"),
    ] {
        let output = gradiff(arguments, folder.path());
        let text = both(&output);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {text}");
        assert!(text.contains(word), "{arguments:?} does not say {word:?}: {text}");
    }
}

/// Two peers that fail on one program are two findings, and a file of one excuses it alone.
#[test]
fn failures_of_two_peers_are_found_apart() {
    let (folder, first) = peer(r#"echo '{"refused": "as always"}'"#);
    std::fs::copy(folder.path().join("peer.sh"), folder.path().join("next.sh")).expect("a copy");
    let backends = format!("{first},exec:sh next.sh");
    let flags = ["hunt", "--json", "--programs", "1", "--lanes", "exact", "--backends", &backends];
    let hunt = |more: &[&str]| {
        let output = gradiff(&[&flags[..], more].concat(), folder.path());
        assert_eq!(output.status.code(), Some(2), "{}", both(&output));
        let summary: Value = serde_json::from_slice(&output.stdout).expect("a summary");
        assert_eq!(summary["mismatches"], 2, "{summary}");
        let files = summary["findings"].as_array().expect("a list").iter();
        files.map(|file| file.as_str().expect("a path").to_string()).collect::<Vec<String>>()
    };
    let text = |file: &str| std::fs::read_to_string(folder.path().join(file)).expect("a finding");
    let mut files = hunt(&[]);
    files.sort_by_key(|file| text(file));
    let is_of = |file: &String, name: &str| {
        text(file).starts_with(&format!("# refused on exec:sh {name}.sh: as always\n"))
    };
    let is_right = matches!(&files[..], [x, y] if is_of(x, "next") && is_of(y, "peer"));
    assert!(is_right, "{files:?}");
    let files = hunt(&["--findings", "again", "--known", &files[1]]);
    assert!(matches!(&files[..], [x] if is_of(x, "next")), "{files:?}");
}

/// A failure that the machine prevents from being examined is neither slow nor one of earlier
/// programs.
#[test]
fn failures_that_cannot_be_examined_are_pending() {
    // It starts for the command, for the hunt, and again after the first hang; then no more.
    for (body, starts, wall) in
        [("exec sleep 100", 3, "2"), (r#"echo '{"refused": "as always"}'"#, 2, "100")]
    {
        let (folder, backend) = peer(body);
        let path = folder.path().join("peer.sh");
        let script = std::fs::read_to_string(&path).expect("the script");
        let fails = format!("echo >> starts; [ $(wc -l < starts) -le {starts} ] || exit 1\n");
        std::fs::write(&path, fails + &script).expect("a file");
        let flags = ["hunt", "--json", "--programs", "1", "--lanes", "exact", "--jobs", "1"];
        let limits = ["--wall-timeout", wall, "--backends", &backend];
        let output = gradiff(&[&flags[..], &limits].concat(), folder.path());
        let text = both(&output);
        assert_eq!(output.status.code(), Some(2), "{body}: {text}");
        assert!(text.contains("a failure could not be examined: exec:sh peer.sh"), "{text}");
        let summary: Value = serde_json::from_slice(&output.stdout).expect("a summary");
        assert_eq!((&summary["pending"], &summary["slow"]), (&1.into(), &Value::Array(vec![])));
        assert_eq!(summary["details"], Value::Array(vec![]), "{summary}");
        let raw = std::fs::read_dir(folder.path().join("findings/raw")).expect("a folder");
        assert_eq!(raw.count(), 1, "{body}");
    }
}

/// The minimisation of a hang ends after a few runs: what is left may have any operation.
#[test]
fn patterns_of_known_failures_excuse_no_program_that_is_not_minimal() {
    // It hangs at the first program alone.
    let body = "[ -e first ] || echo \"$line\" > first\n\
                [ \"$line\" != \"$(cat first)\" ] || exec sleep 100\n\
                echo '{\"skipped\": \"only a test\"}'";
    let (folder, backend) = peer(body);
    let drawn = ["--seed", "1", "--lanes", "idioms"];
    let generated = gradiff(&[&["gen", "--count", "1"][..], &drawn].concat(), folder.path());
    let generated = String::from_utf8_lossy(&generated.stdout).into_owned();
    let ops = generated.lines().filter_map(|line| line.split(" = ").nth(1)?.split(' ').next());
    let is_leaf = |op: &&str| ["input", "const", "arange"].contains(op);
    let ops: Vec<&str> = ops.filter(|op| !is_leaf(op)).collect();
    // Those that have this name in patterns, too.
    let usual = ["add", "sub", "mul", "neg", "cast", "reshape", "expand", "permute", "shrink"];
    let first = ops.iter().find(|op| usual.contains(op)).expect("a usual operation");
    assert!(ops.iter().any(|op| op != first), "{generated}");
    let known = "a = input i32[] iota\nb = floordiv a a\noutput b\n";
    let known = format!("# timeout on {backend}: x\n# includes {first}\n{known}");
    std::fs::write(folder.path().join("known.case"), known).expect("a file");
    let flags = ["hunt", "--json", "--programs", "1", "--jobs", "1", "--wall-timeout", "1"];
    let more = ["--known", "known.case", "--backends", &backend];
    let output = gradiff(&[&flags[..], &drawn, &more].concat(), folder.path());
    let text = both(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    let summary: Value = serde_json::from_slice(&output.stdout).expect("a summary");
    assert_eq!(summary["known"]["known.case"], 0, "{summary}");
    assert!(summary["details"][0]["story"].to_string().contains("timeout on exec"), "{summary}");
}

/// A program is reduced to any of its failures; the others are found without the operations of one
/// that is known, whichever it is.
#[test]
fn failures_beside_a_known_one_are_found() {
    let usual = ["add", "sub", "mul", "neg", "cast", "reshape", "permute", "flip"];
    // The operations that the program has if others are inputs.
    let left = |program: &Program, without: &str| {
        let types = program.typing().expect("a well-formed program");
        let mut rest = program.clone();
        for (statement, of) in rest.statements.iter_mut().zip(types) {
            if gradiff_corpus::name(statement) == without {
                let (dtype, shape, fill) = (of.dtype, of.shape, Fill::Iota);
                *statement = Statement::Input { dtype, shape, fill };
            }
        }
        let rest = rest.without_dead();
        rest.statements.iter().map(gradiff_corpus::name).collect::<Vec<&str>>()
    };
    let (folder, _) = peer("");
    let drawn = |seed: u64| {
        let seed = seed.to_string();
        let drawn = ["gen", "--count", "1", "--lanes", "exact", "--seed", &seed];
        let text = gradiff(&drawn, folder.path()).stdout;
        let text = String::from_utf8(text).expect("a text");
        let Case::Program(program) = gradiff_corpus::parse(&text).expect("a case").case else {
            panic!("{text}");
        };
        let mut pairs = usual.iter().flat_map(|x| usual.iter().map(move |y| (*x, *y)));
        let (x, y) = pairs.find(|(x, y)| {
            x != y && left(&program, x).contains(y) && left(&program, y).contains(x)
        })?;
        Some((seed, x, y))
    };
    let (seed, x, y) = (0..500).find_map(drawn).expect("a program of two operations");
    for (known, new) in [(x, y), (y, x)] {
        let refused =
            |op: &str| format!("*'\"{op}\"'*) echo '{{\"refused\": \"KeyError: {op}\"}}';;");
        let skipped = r#"*) echo '{"skipped": "only a test"}';;"#;
        let body = format!("case $line in {} {} {skipped} esac", refused(x), refused(y));
        let (folder, backend) = peer(&body);
        let text = "a = input i32[] iota\nb = floordiv a a\noutput b\n";
        let text = format!("# refused on {backend}: x\n# includes {known}\n{text}");
        std::fs::write(folder.path().join("known.case"), text).expect("a file");
        let flags = ["hunt", "--json", "--programs", "1", "--jobs", "1", "--seed", &seed];
        let more = ["--lanes", "exact", "--known", "known.case", "--backends", &backend];
        let output = gradiff(&[&flags[..], &more].concat(), folder.path());
        let text = both(&output);
        assert_eq!(output.status.code(), Some(2), "{known} beside {new}: {text}");
        let summary: Value = serde_json::from_slice(&output.stdout).expect("a summary");
        let story = summary["details"][0]["story"].to_string();
        assert!(story.contains(&format!("KeyError: {new}")), "{known} beside {new}: {text}");
    }
}

/// A known failure of a peer whose name is misspelt would be taken for one of the engine.
#[test]
fn known_failures_name_backends_that_there_are() {
    let (folder, _) = peer("");
    let program = "a = input i32[] iota\nb = cdiv a a\noutput b\n";
    for (line, word) in [
        ("mismatch on tinygard@0.10.2: x", "no backend is called `tinygard@0.10.2`"),
        ("The mean on torch", "the first line of a known failure begins as in"),
    ] {
        let text = format!("# {line}\n# includes cdiv\n{program}");
        std::fs::write(folder.path().join("known.case"), text).expect("a file");
        let flags = ["hunt", "--programs", "1", "--backends", "interp", "--known", "known.case"];
        let output = gradiff(&flags, folder.path());
        assert_eq!(output.status.code(), Some(1), "{line}: {}", both(&output));
        assert!(both(&output).contains(word), "{line}: {}", both(&output));
    }
}

/// Failures of two peers that need earlier programs are two, and both can be run again.
#[test]
fn failures_after_other_programs_are_kept_for_each_backend_with_these_programs() {
    let body = "count=$((count + 1))\nif [ $count = $1 ]; then\n\
                echo '{\"refused\": \"StaleCacheError: of an earlier program\"}'\n\
                else echo '{\"skipped\": \"only a test\"}'; fi";
    let (folder, backend) = peer(body);
    let backends = format!("{backend} 5,{backend} 9");
    let flags = ["hunt", "--json", "--programs", "32", "--jobs", "1", "--backends", &backends];
    let output = gradiff(&flags, folder.path());
    let text = both(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    let summary: Value = serde_json::from_slice(&output.stdout).expect("a summary");
    let details = summary["details"].as_array().expect("a list");
    for number in [5, 9] {
        let start = format!("refused on {backend} {number}: StaleCacheError");
        let is_of_peer = |detail: &&Value| {
            let story = detail["story"].as_str().expect("a story");
            story.starts_with(&start) && story.contains("only after the programs before it")
        };
        assert_eq!(details.iter().filter(is_of_peer).count(), 1, "{summary}");
    }
    for file in summary["findings"].as_array().expect("a list") {
        let case = PathBuf::from(file.as_str().expect("a path"));
        let sequence = case.with_extension("sequence").to_string_lossy().into_owned();
        let output = gradiff(&["replay", &sequence], folder.path());
        assert_eq!(output.status.code(), Some(2), "{}", both(&output));
    }
}

/// The same peer may refuse a smaller program for another reason.
#[test]
fn reduced_programs_are_refused_for_the_same_reason() {
    let refused = |reason: &str| format!("echo '{{\"refused\": \"{reason}\"}}'");
    let body = format!(
        "case $line in *'\"sin\"'*'\"neg\"'*|*'\"neg\"'*'\"sin\"'*) {};; *'\"neg\"'*) {};;\n\
         *) echo '{{\"skipped\": \"only a test\"}}';; esac",
        refused("CompileError: the loop nest of a sine has no end"),
        refused("KeyError: a negative key is missing")
    );
    let (folder, backend) = peer(&body);
    let program = "a = input f32[2] iota\nb = neg a\nc = sin b\nd = add c 1.0\noutput d\n";
    std::fs::write(folder.path().join("b.case"), program).expect("a file");
    let output = gradiff(&["reduce", "b.case", "--backends", &backend], folder.path());
    let text = both(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("# refused on exec:sh peer.sh: CompileError: the loop"), "{text}");
    let has = |op: &str| text.contains(&format!(" = {op} "));
    assert!(has("neg") && has("sin") && !has("add"), "{text}");
}

/// A program that another peer refuses is not a smaller form of the failure.
#[test]
fn reduced_programs_fail_on_the_backend_that_is_named() {
    let body = |word: &str| {
        format!(
            "case $line in *{word}*) echo '{{\"refused\": \"no {word}\"}}';; \
             *) echo '{{\"skipped\": \"only a test\"}}';; esac"
        )
    };
    let (folder, first) = peer(&body("neg"));
    let (second, _) = peer(&body("input"));
    std::fs::copy(second.path().join("peer.sh"), folder.path().join("next.sh")).expect("a copy");
    let program = "a = input i32[2] iota\nb = neg a\nc = add b 1\noutput c\n";
    std::fs::write(folder.path().join("b.case"), program).expect("a file");
    let backends = format!("{first},exec:sh next.sh");
    let output = gradiff(&["reduce", "b.case", "--backends", &backends], folder.path());
    let text = both(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("# refused on exec:sh peer.sh: no neg\n"), "{text}");
    assert!(text.contains(" = neg ") && !text.contains(" = add "), "{text}");
}

/// Sleeping takes no processor time.
#[test]
fn a_limit_of_wall_time_may_be_below_that_of_processor_time() {
    let (folder, backend) = peer("sleep 100");
    let flags = ["replay", "a.case", "--wall-timeout", "1", "--backends", &backend];
    let output = gradiff(&flags, folder.path());
    let text = both(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("timeout on exec:sh peer.sh: no answer within 1 s"), "{text}");
}

/// A batch that hangs when the time is up is no slow one: some programs have not run alone.
#[test]
fn a_batch_that_hangs_at_the_end_of_a_hunt_is_pending() {
    let body = "mkdir again 2>/dev/null && sleep 100\nsleep 0.2\n\
                echo '{\"skipped\": \"only a test\"}'";
    let (folder, backend) = peer(body);
    let flags = ["hunt", "--json", "--seconds", "1", "--jobs", "1", "--backends", &backend];
    let limits = ["--timeout", "1", "--wall-timeout", "5"];
    let output = gradiff(&[&flags[..], &limits].concat(), folder.path());
    let text = both(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    let summary: Value = serde_json::from_slice(&output.stdout).expect("a summary");
    assert_eq!(summary["pending"], 1, "{summary}");
    assert!(!summary["slow"].to_string().contains("0-63"), "{summary}");
    let raw = std::fs::read_dir(folder.path().join("findings/raw")).expect("a folder");
    let raw: Vec<PathBuf> = raw.flatten().map(|entry| entry.path()).collect();
    assert_eq!(raw.len(), 1, "{raw:?}");
    let raw = std::fs::read_to_string(&raw[0]).expect("a file");
    assert!(raw.starts_with("# timeout on exec:sh peer.sh: no answer within 5 s"), "{raw}");
    assert!(raw.contains("\nrun 0-63\n"), "{raw}");
}

#[test]
fn hunts_go_on_when_a_peer_dies() {
    // It dies of every tenth program, and skips the others.
    let body = "count=$((count + 1)); if [ $((count % 10)) = 0 ]; then exit 3; fi\n\
                echo '{\"skipped\": \"only a test\"}'";
    let (folder, backend) = peer(body);
    let flags = ["hunt", "--json", "--programs", "64", "--jobs", "1", "--backends", &backend];
    let output = gradiff(&flags, folder.path());
    let text = both(&output);
    let summary: Value = serde_json::from_slice(&output.stdout).expect("a summary");
    assert_eq!(summary["programs"], 64, "{text}");
    assert!(summary["crashes"].as_u64().is_some_and(|count| (5..=7).contains(&count)), "{text}");
    // Alone, no program kills it.
    assert_eq!(summary["skipped"]["exec:sh peer.sh: only a test"], 58, "{text}");
}

/// Errors with the same message, but for its numbers, are one finding, whatever the operation.
#[test]
fn errors_of_a_peer_are_one_finding_by_their_message() {
    for (error, is_one) in [("ValueError: no axis $count", true), ("no axis", false)] {
        let body = format!(
            "count=$((count + 1)); case $line in *flip*|*permute*)\n\
             echo \"{{\\\"refused\\\": \\\"{error}\\\"}}\";; *)\n\
             echo '{{\"skipped\": \"only a test\"}}';; esac"
        );
        let (folder, backend) = peer(&body);
        let flags = ["hunt", "--json", "--programs", "128", "--jobs", "1", "--backends", &backend];
        let output = gradiff(&flags, folder.path());
        let summary: Value = serde_json::from_slice(&output.stdout).expect("a summary");
        let findings = summary["details"].as_array().expect("a list").len();
        assert_eq!(findings == 1, is_one, "{error}: {findings} findings: {}", both(&output));
        assert_eq!(output.status.code(), Some(2));
    }
}

/// Returns whether there is a Python; if not, the test is skipped.
fn has_python() -> bool {
    let python = Command::new("python3").arg("--version").output();
    gradiff_skip::or_skip("python3", python).is_some()
}

/// Runs the complete example.
#[test]
fn the_example_engine_is_right_and_its_mistake_is_found() {
    if !has_python() {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let engine = Path::new(env!("CARGO_MANIFEST_DIR")).join("../peers/example.py");
    let engine = format!("exec:python3 {}", engine.display());
    let flags = |backend| ["hunt", "--json", "--jobs", "1", "--seed", "3", "--backends", backend];
    let right = gradiff(&[&flags(&engine)[..], &["--programs", "4000"]].concat(), folder.path());
    let text = both(&right);
    assert_eq!(right.status.code(), Some(0), "{text}");
    let summary: Value = serde_json::from_slice(&right.stdout).expect("a summary");
    assert!(summary["checked_elements"].as_u64().is_some_and(|count| count > 5000), "{text}");

    let wrong = format!("{engine} --wrong");
    let more = ["--seconds", "60", "--max-findings", "1", "--findings", "findings"];
    let found = gradiff(&[&flags(&wrong)[..], &more].concat(), folder.path());
    assert_eq!(found.status.code(), Some(2), "{}", both(&found));
    let summary: Value = serde_json::from_slice(&found.stdout).expect("a summary");
    let detail = &summary["details"][0];
    assert!(detail["statements"].as_u64().is_some_and(|count| count <= 3), "{summary}");
    assert!(detail["crate"].is_null(), "no crate of the engine is to blame: {summary}");
    let path = summary["findings"][0].as_str().expect("a file");
    let case = std::fs::read_to_string(folder.path().join(path)).expect("the finding");
    assert!(case.contains("flip"), "{case}");
    // What is known is not reported again.
    let known = PathBuf::from(path);
    let programs = summary["programs"].to_string();
    let known =
        ["--known", &known.to_string_lossy(), "--programs", &programs, "--findings", "again"];
    let again = gradiff(&[&flags(&wrong)[..], &known].concat(), folder.path());
    let summary: Value = serde_json::from_slice(&again.stdout).expect("a summary");
    let count = summary["known"].as_object().and_then(|known| known.values().next()?.as_u64());
    assert!(count.is_some_and(|count| count > 0), "{summary}");
}

/// Hunts on NumPy, if it is there: what it gives for programs without 16-bit floats, whose casts
/// round twice in its package ml_dtypes, is what the oracle expects. So is what the definitions of
/// all operations in NumPy give.
#[test]
fn numpy_agrees_with_the_oracle() {
    let python = std::env::var("GRADIFF_PYTHON").unwrap_or_else(|_| "python3".to_string());
    let check = Command::new(&python).args(["-c", "import numpy, ml_dtypes"]).output();
    let check = check
        .map_err(|error| error.to_string())
        .and_then(|output| if output.status.success() { Ok(()) } else { Err(both(&output)) });
    if gradiff_skip::or_skip("numpy", check).is_none() {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let known = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../corpus/upstream/numpy");
    let known = known.to_string_lossy().into_owned();
    let flags = ["hunt", "--json", "--jobs", "1", "--seed", "6", "--programs", "2000"];
    let lanes = ["--lanes", "exact,wrap,movement,special", "--known", &known];
    for (backend, more) in [("numpy", &lanes[..]), ("numpy-definitions", &[])] {
        let backend = ["--backends", backend];
        let output = gradiff(&[&flags[..], &backend, more].concat(), folder.path());
        let text = both(&output);
        assert_eq!(output.status.code(), Some(0), "{text}");
        let summary: Value = serde_json::from_slice(&output.stdout).expect("a summary");
        assert!(summary["checked_elements"].as_u64().is_some_and(|count| count > 50_000), "{text}");
    }
}

/// The script of a finding fails for a wrong element, for one too many or too few, and for another
/// shape or dtype.
#[test]
fn scripts_of_peers_fail_for_whatever_is_not_expected() {
    if !has_python() {
        return;
    }
    let adapters = Path::new(env!("CARGO_MANIFEST_DIR")).join("../peers/peer.py");
    let shared = std::fs::read_to_string(adapters).expect("the shared part of the adapters");
    for (got, expected, code) in [
        ("[1, 2]", "'1', 'None'", 0),
        ("[1, 2.5]", "'1', '(2, 3)'", 0),
        ("[]", "", 0),
        ("[1, 3.5]", "'1', '(2, 3)'", 1),
        ("[1]", "", 1),
        ("[]", "'1'", 1),
        // A zero between the bounds has a sign.
        ("[0.0]", r#"'(-1, 0, "-0.0")'"#, 1),
        ("[-0.0]", r#"'(-1, 0, "-0.0")'"#, 0),
        ("[-0.5]", r#"'(-1, 0, "-0.0")'"#, 0),
        ("[0.0]", r#"'(-1, 0, "-0.0")'], has_zero_signs=False, types=["#, 0),
    ] {
        let text = format!("{shared}\nexec(script([], [{got:?}], [{expected}]))\n");
        let output = Command::new("python3").args(["-c", &text]).output().expect("python3 starts");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{got} for {expected}: {stderr}");
    }
    let lines = r#""from types import SimpleNamespace as V", "v = V(dtype='i32', shape=(3, 1))""#;
    for (types, code) in [
        ("('i32', (3, 1))", 0),
        ("('i32', (3,))", 1),
        ("('i64', (3, 1))", 1),
        ("('i32', (3, 1)), ('i32', (3, 1))", 1),
    ] {
        let call = format!("script([{lines}], ['[-0.0]'], ['0.0'], ['v'], [{types}], False)");
        let text = format!("{shared}\nexec({call})\n");
        let output = Command::new("python3").args(["-c", &text]).output().expect("python3 starts");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{types}: {stderr}");
    }
}

/// tinygrad, as far as its adapter needs it to start.
const TINYGRAD: &str = r#"
import os

def is_on(name):
    return int(os.environ.get(name, 0)) == 1

class Device:
    DEFAULT = next((name for name in ("PYTHON", "GPU", "CPU") if is_on(name)), "GPU")

class Tensor:
    def __init__(self, *data):
        pass

    def __add__(self, other):
        return self

    def realize(self):
        return self

NAMES = ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
         "float16", "float32", "float64")
dtypes = type("dtypes", (), {name: name for name in NAMES})
"#;

/// The text of an expression in Python, as the adapter of tinygrad prints it, which runs with these
/// variables on a stand-in of tinygrad 0.10.2 without a device CLANG.
fn tinygrad_prints(expression: &str, variables: &[(&str, &str)]) -> String {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(path, text).expect("a file in the temporary folder");
    };
    write("tinygrad/__init__.py", TINYGRAD);
    for device in ["cpu", "gpu", "python"] {
        write(&format!("tinygrad/runtime/ops_{device}.py"), "");
    }
    let about = "Metadata-Version: 2.1\nName: tinygrad\nVersion: 0.10.2\n";
    write("tinygrad-0.10.2.dist-info/METADATA", about);
    let adapters = Path::new(env!("CARGO_MANIFEST_DIR")).join("../peers");
    let text = ["peer.py", "on_tinygrad.py"]
        .map(|name| std::fs::read_to_string(adapters.join(name)).expect("a part of the adapter"));
    let text = format!("DEVICE = 'CPU'\n{}\nprint({expression})\n", text.join("\n\n"));
    let mut command = Command::new("python3");
    command.args(["-c", &text]).env("PYTHONPATH", folder.path());
    for name in ["CPU", "CLANG", "GPU", "PYTHON", "DEV"] {
        command.env_remove(name);
    }
    let output = command.envs(variables.iter().copied()).output().expect("python3 starts");
    both(&output)
}

/// Only what tinygrad reads as the choice of a device is one; scripts run on the same device.
#[test]
fn variables_of_other_programs_choose_no_device_of_tinygrad() {
    if !has_python() {
        return;
    }
    for (variable, device) in [
        (("UNRELATED", "1"), "CPU"),
        (("GPU", "1"), "GPU"),
        (("GPU", "0"), "CPU"),
        (("CLANG", "1"), "CPU"),
        (("PYTHON", "/usr/bin/python3"), "CPU"),
        (("DEV", "GPU"), "CPU"),
    ] {
        let text = tinygrad_prints("ADAPTER.NAME, ADAPTER.PRELUDE", &[variable]);
        assert!(text.contains(&format!("tinygrad 0.10.2 on {device}")), "{variable:?}: {text}");
        let update = format!("import os; os.environ.update({{'{device}': '1'");
        assert!(text.contains(&update), "{variable:?}: {text}");
    }
}

/// A script reads elements as the adapter does, which works for f16 in any Python. A name that is
/// missing in a result that is no tensor is no missing operation.
#[test]
fn scripts_of_tinygrad_read_arrays_and_lack_names_of_tensors_alone() {
    if !has_python() {
        return;
    }
    let statement = r#"{"op": "input", "dtype": "f16", "shape": [1], "bytes": "003c"}"#;
    let program = format!(r#"{{"statements": [{statement}], "outputs": [0]}}"#);
    let text = tinygrad_prints(&format!("ADAPTER.script({program}, ['1.0'])"), &[]);
    assert!(text.contains("v0.numpy().flatten().tolist()"), "{text}");
    for (line, key) in [
        ("Tensor().nothing()", "skipped"),
        ("Tensor.nothing()", "skipped"),
        ("Tensor().realize().flags", "skipped"),
        ("(3).nothing()", "refused"),
        ("None.nothing()", "refused"),
    ] {
        let run = format!("setattr(ADAPTER, 'run', lambda program: exec({line:?}))");
        let text = tinygrad_prints(&format!("{run} or answer(ADAPTER, {{'run': {{}}}})"), &[]);
        assert!(text.contains(&format!("{{'{key}': \"AttributeError: ")), "{line}: {text}");
    }
}
