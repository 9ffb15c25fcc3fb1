//! Tests of peers that have shape trackers and index expressions of their own.

mod common;

use std::path::Path;
use std::process::Command;

use common::{both, gradiff};

/// A peer in Python. It moves the numbers of elements instead of computing addresses, and evaluates
/// expressions as they are. With `--wrong`, it flips the first axis alone and takes cdiv for a
/// division that rounds down; with `--dies`, it dies of an expression with `max`; with `--strict`,
/// it refuses one with `cmod`. With `--once`, it answers one request, and never starts again.
const PEER: &str = r#"
import itertools, json, os, sys
MODES = ("wrong", "dies", "strict", "once")
WRONG, DIES, STRICT, ONCE = (f"--{mode}" in sys.argv for mode in MODES)
if ONCE and os.path.exists("answered"):
    sys.exit("no space left on device")

def moved(shape, at, name, arg):
    if name == "reshape":
        new, elements = arg, list(at.values())
        return new, dict(zip(itertools.product(*map(range, new)), elements))
    new = {"permute": lambda: [shape[axis] for axis in arg], "expand": lambda: arg,
           "pad": lambda: [a + size + b for (a, b), size in zip(arg, shape)],
           "shrink": lambda: [b - a for a, b in arg], "flip": lambda: shape}[name]()
    def source(to):
        if name == "permute":
            return tuple(to[arg.index(axis)] for axis in range(len(shape)))
        if name == "expand":
            return tuple(0 if size == 1 else i for i, size in zip(to, shape))
        if name == "pad":
            return tuple(i - a for i, (a, _) in zip(to, arg))
        if name == "shrink":
            return tuple(i + a for i, (a, _) in zip(to, arg))
        axes = arg[:1] if WRONG else arg
        return tuple(shape[k] - 1 - i if k in axes else i for k, i in enumerate(to))
    return new, {to: at.get(source(to), -1) for to in itertools.product(*map(range, new))}

def view(case):
    shape = case["shape"]
    at = {to: i for i, to in enumerate(itertools.product(*map(range, shape)))}
    for name, arg in case["ops"]:
        shape, at = moved(shape, at, name, arg)
    none = [None] * len(shape)
    return {"shape": shape, "index": {"merged": list(at.values())}, "strides": [none, none],
            "masked": [True] * len(shape), "inverse": None}

def value(tree, point):
    if not isinstance(tree, list):
        return int(tree)
    name, *args = tree
    if name == "var":
        return point[args[0]]
    if DIES and name == "max":
        sys.exit("no max today")
    x, y, z = ([value(arg, point) for arg in args] + [0, 0, 0])[:3]
    if name in ("floordiv", "floormod", "cdiv", "cmod") and y == 0:
        return 0
    cdiv = lambda: x // y if WRONG else abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
    logical = "cmp" in str(args[0]) or isinstance(args[0], bool)
    return int({"add": lambda: x + y, "sub": lambda: x - y, "mul": lambda: x * y, "neg": lambda: -x,
        "not": lambda: 1 - x if isinstance(args[0], bool) or args[0][0] in TRUTHS else ~x,
        "floordiv": lambda: x // y, "floormod": lambda: x % y, "cdiv": cdiv,
        "cmod": lambda: x - y * (abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)),
        "max": lambda: max(x, y), "min": lambda: min(x, y), "cmplt": lambda: x < y,
        "cmpne": lambda: x != y, "cmpeq": lambda: x == y, "and": lambda: x & y,
        "or": lambda: x | y, "xor": lambda: x ^ y, "where": lambda: y if x else z,
        "shl": lambda: x << min(max(y, 0), 40), "shr": lambda: x >> min(max(y, 0), 40)}[name]())

TRUTHS = ("cmplt", "cmpne", "cmpeq")

def expr(case):
    if "not" in json.dumps(case["expr"]):
        return {"skipped": "it has no not"}
    if STRICT and "cmod" in json.dumps(case["expr"]):
        return {"refused": "TypeError: expected an int, got a modulus"}
    values = [value(case["expr"], point) for point in case["points"]]
    return {"values": values, "bounds": [], "text": "as written", "ops": 1}

for line in sys.stdin:
    request = json.loads(line)
    if ONCE and "gradiff" not in request:
        os.mkdir("answered")
    answer = {"gradiff": 1, "name": "doors", "requests": ["views", "exprs"]}
    if "script" in request:
        shown = {key: request[key] for key in ("about", "expected")}
        answer = {"script": f"{request['script']} {shown}"}
    for name, function in (("views", view), ("exprs", expr)):
        if name in request:
            answer = {name: [function(case) for case in request[name]]}
    print(json.dumps(answer), flush=True)
"#;

/// Runs `gradiff views` or `gradiff exprs` on the peer, and gives its exit code and output.
fn sweep(folder: &Path, command: &str, flags: &[&str], mode: &str) -> (Option<i32>, String) {
    let peer = format!("exec:python3 doors.py {mode}");
    let common = [command, "--peer", &peer, "--seed", "7", "--findings", "findings"];
    let output = gradiff(&[&common[..], flags].concat(), folder);
    (output.status.code(), both(&output))
}

fn folder() -> Option<tempfile::TempDir> {
    let python = Command::new("python3").arg("--version").output();
    gradiff_skip::or_skip("python3", python)?;
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(folder.path().join("doors.py"), PEER).expect("a file");
    Some(folder)
}

#[test]
fn trackers_of_peers_are_judged_by_real_elements() {
    let Some(folder) = folder() else { return };
    let (code, text) = sweep(folder.path(), "views", &["--cases", "1000"], "");
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("1000 view sequences at random (seed 7)"), "{text}");
    let flags = ["--cases", "1000", "--max-findings", "1"];
    let (code, text) = sweep(folder.path(), "views", &flags, "--wrong");
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("FOUND: mismatch on exec:python3 doors.py --wrong: merged: "), "{text}");
    assert!(text.contains("\nflip axes=["), "{text}");
    // A script lies beside the case.
    let files = std::fs::read_dir(folder.path().join("findings")).expect("the findings");
    let mut files = files.flatten().map(|entry| entry.path());
    let script = files.find(|path| path.extension().is_some_and(|ending| ending == "py"));
    let script = std::fs::read_to_string(script.expect("a script")).expect("it can be read");
    assert!(script.contains("'about': 'merged', 'expected': ["), "{script}");
    // What is known is counted.
    let known = ["--cases", "64", "--max-findings", "9", "--known", "findings"];
    let (_, text) = sweep(folder.path(), "views", &known, "--wrong");
    assert!(text.contains("\nknown "), "{text}");
}

#[test]
fn expressions_of_peers_are_judged_by_their_meaning() {
    let Some(folder) = folder() else { return };
    let (code, text) = sweep(folder.path(), "exprs", &["--cases", "1000"], "");
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains(", it has no not"), "{text}");
    let flags = ["--cases", "2000", "--max-findings", "20"];
    let (code, text) = sweep(folder.path(), "exprs", &flags, "--wrong");
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("expr cdiv("), "{text}");
    // A death is a failure of the one case that causes it.
    let flags = ["--cases", "64", "--max-findings", "1"];
    let (code, text) = sweep(folder.path(), "exprs", &flags, "--dies");
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("it ended (exit status: 1): no max today"), "{text}");
}

/// Whatever words a refusal has, a wrong value is another failure.
#[test]
fn known_wrong_values_excuse_no_refusal() {
    let Some(folder) = folder() else { return };
    let known = "# mismatch on exec:python3 doors.py --strict: x\n\
                 # mod(a, 2) is 1, expected -1, at a=1\n# includes cmod\n\
                 var a -3..3\nexpr cmod(a, 2)\n";
    std::fs::write(folder.path().join("known.case"), known).expect("a file");
    let flags = ["--cases", "64", "--max-findings", "1", "--known", "known.case"];
    let (code, text) = sweep(folder.path(), "exprs", &flags, "--strict");
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("FOUND: refused on exec:python3 doors.py --strict: refused: "), "{text}");
    let misspelt = known.replace("exec:python3 doors.py --strict", "tinygard");
    std::fs::write(folder.path().join("known.case"), misspelt).expect("a file");
    let (code, text) = sweep(folder.path(), "exprs", &flags, "--strict");
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("no backend is called `tinygard`"), "{text}");
}

/// A failure that was found counts, although the peer cannot be started any more.
#[test]
fn a_peer_that_does_not_start_again_hides_no_failure() {
    let Some(folder) = folder() else { return };
    let (code, text) = sweep(folder.path(), "views", &["--cases", "640"], "--wrong --once");
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("no space left on device"), "{text}");
    assert!(text.contains("1 distinct failures, in 1 cases"), "{text}");
    // Without a failure before, the machine is at fault.
    std::fs::remove_dir(folder.path().join("answered")).expect("it is there");
    let (code, text) = sweep(folder.path(), "views", &["--cases", "66"], "--once");
    assert_eq!(code, Some(3), "{text}");
}

#[test]
fn replays_judge_movements_and_expressions_on_peers() {
    let Some(folder) = folder() else { return };
    let write = |name: &str, text: &str| {
        std::fs::write(folder.path().join(name), text).expect("a file");
    };
    write("flip.case", "view [2,3]\nflip axes=[0,1]\n");
    write("cdiv.case", "var a -7..7\nexpr cdiv(a, 2)\n");
    for (file, word) in [("flip.case", "of the buffer, expected"), ("cdiv.case", "at a=-7")] {
        for (backend, code) in [("exec:python3 doors.py", 0), ("exec:python3 doors.py --wrong", 2)]
        {
            let output = gradiff(&["replay", "--backends", backend, file], folder.path());
            assert_eq!(output.status.code(), Some(code), "{}", both(&output));
            assert_eq!(both(&output).contains(word), code == 2, "{}", both(&output));
        }
    }
    // Scripts show points that fail first.
    let script = ["peers", "script", "exec:python3 doors.py --wrong", "cdiv.case"];
    let output = gradiff(&script, folder.path());
    let text = both(&output);
    assert!(text.contains("'points': [[-7], [-5], [-3], [-1]]"), "{text}");
    assert!(text.contains("'expected': [-3, -2, -1, 0]"), "{text}");
    // Of a case that is right there is none.
    let script = ["peers", "script", "exec:python3 doors.py", "cdiv.case"];
    let output = gradiff(&script, folder.path());
    assert_eq!(output.status.code(), Some(3), "{}", both(&output));
    assert!(both(&output).contains("nothing is wrong"), "{}", both(&output));
}

#[test]
fn what_a_peer_does_not_have_is_said_in_one_line() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(folder.path().join("peer.sh"), "read x; echo '{\"gradiff\": 1}'; read x")
        .expect("a file");
    for (arguments, code, word) in [
        (&["views", "--peer", "exec:sh peer.sh"][..], 1, "it has no shape trackers"),
        (&["exprs", "--peer", "exec:sh peer.sh"], 1, "it has no index expressions"),
        (&["exprs", "--peer", "exec:./none"], 3, "./none"),
        (&["exprs", "--peer", "nothing"], 3, "nothing"),
        (&["bisect", "a.case", "--peer", "nothing"], 1, "no peer is called nothing"),
    ] {
        let output = gradiff(arguments, folder.path());
        assert_eq!(output.status.code(), Some(code), "{}", both(&output));
        assert!(both(&output).contains(word), "{}", both(&output));
        assert_eq!(both(&output).trim().lines().count(), 1, "{}", both(&output));
    }
}

/// Versions of a framework are environments in gradiff's cache; here each Python is a shell script.
#[cfg(unix)]
#[test]
fn versions_that_fail_are_listed_with_a_report() {
    use std::os::unix::fs::PermissionsExt;

    let folder = tempfile::tempdir().expect("a temporary folder");
    for (version, byte) in [("1.9", "02"), ("1.10", "01"), ("2.0", "")] {
        let bin = folder.path().join(format!("cache/peers/numpy=={version}/bin"));
        std::fs::create_dir_all(&bin).expect("a folder");
        let answer = match byte {
            "" => r#"{"skipped": "it has no i8"}"#.to_string(),
            _ => format!(r#"{{"values": [{{"dtype": "i8", "shape": [1], "bytes": "{byte}"}}]}}"#),
        };
        let greeting = r#"read x; echo '{"gradiff": 1}'"#;
        let shown = r#"echo '{"script": "print(1)"}'"#;
        let script = format!(
            "#!/bin/sh\n{greeting}\nwhile read x; do\n\
             case $x in *script*) {shown};; *) echo '{answer}';; esac\ndone\n"
        );
        let python = bin.join("python");
        std::fs::write(&python, script).expect("a file");
        std::fs::set_permissions(&python, std::fs::Permissions::from_mode(0o755)).expect("a mode");
    }
    let case = "# mismatch on numpy@1.9: one is two\na = input i8[1] [1]\noutput a\n";
    std::fs::write(folder.path().join("a.case"), case).expect("a file");
    let output = Command::new(env!("CARGO_BIN_EXE_gradiff"))
        .args(["bisect", "a.case", "--peer", "numpy", "--write", "--report", "report.md"])
        .env("GRADIFF_CACHE_DIR", folder.path().join("cache"))
        .current_dir(folder.path())
        .output()
        .expect("the command starts");
    let text = both(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("fails in 1.9; right in 1.10; not judged in 2.0"), "{text}");
    let report = std::fs::read_to_string(folder.path().join("report.md")).expect("a report");
    assert!(report.starts_with("## one is two\n\nnumpy: fails in 1.9;"), "{report}");
    let case = std::fs::read_to_string(folder.path().join("a.case")).expect("the case");
    assert!(
        case.contains("is two\n# fails in 1.9; right in 1.10; not judged in 2.0\na ="),
        "{case}"
    );
    assert!(report.contains("```python\nprint(1)\n```"), "{report}");
}

#[test]
fn kernels_are_shown_beside_those_of_a_peer() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let kernel = r#"{"name": "E_4", "opts": "upcast 0 4", "source": "void E_4();", "loads": 8,
                     "stores": 4, "alu": 4}"#;
    let peer = format!(
        "read x; echo '{{\"gradiff\": 1, \"requests\": [\"kernels\"]}}'\nwhile read x; do echo \
         '{{\"kernels\": {{\"list\": [{}]}}}}'; done\n",
        kernel.replace('\n', " ")
    );
    std::fs::write(folder.path().join("peer.sh"), peer).expect("a file");
    let case = "a = input f32[4] iota\nb = add a 1\noutput b\n";
    std::fs::write(folder.path().join("sum.case"), case).expect("a file");
    let arguments = ["compare", "sum.case", "--source", "--with", "exec:sh peer.sh"];
    let output = gradiff(&arguments, folder.path());
    let text = both(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("4 / 8"), "{text}");
    assert!(text.contains("  E_4  [upcast 0 4]  8 loads, 4 stores, 4 alu\nvoid E_4();"), "{text}");
    assert!(text.contains("kernels   fewer here in 0, as many in 1, more in 0"), "{text}");
    assert!(text.contains("loads     fewer here in 1, as many in 0, more in 0"), "{text}");
}
