//! Failures that are reviewed: they are counted, and reported no more.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use gradiff_check::Kind;
use gradiff_corpus::{Case, CaseFile, DType, Operand, Program, Statement};

use crate::Failure;

/// A failure that is reviewed.
pub(crate) struct Known {
    /// Equal for failures that most likely have one cause.
    signature: String,
    kind: String,
    /// The peers that fail; `None` for the engine.
    peers: Vec<Option<String>>,
    /// Further cases that fail for the same cause.
    includes: Vec<Pattern>,
    /// The versions of which `bisect` has written that they are right.
    right_in: Vec<String>,
    /// The file that shows it.
    pub(crate) path: PathBuf,
    /// Number of cases that led to it.
    pub(crate) count: u64,
}

impl Known {
    /// A failure of this kind that a file shows, with the patterns that its comments name.
    ///
    /// # Errors
    /// A pattern with words that are no operation or dtype.
    pub(crate) fn new(
        path: PathBuf,
        file: &CaseFile,
        signature: String,
        kind: &str,
    ) -> Result<Known, Failure> {
        let includes = file.description.iter().filter_map(|line| Pattern::read(line));
        let includes: Result<Vec<Pattern>, String> = includes.collect();
        let includes =
            includes.map_err(|error| Failure::Usage(format!("{}: {error}", path.display())))?;
        let versions = file.description.iter().filter_map(|line| {
            line.split("; ").find_map(|part| part.strip_prefix(RIGHT)?.strip_prefix(' '))
        });
        let right_in = versions.flat_map(|list| list.split(", ")).map(str::to_string).collect();
        let peers = headline(file).map_or_else(|| vec![None], |(_, backends)| peers_of(backends));
        let kind = kind.to_string();
        Ok(Known { signature, kind, peers, includes, right_in, path, count: 0 })
    }
}

/// The kind of failure and the backend that the first line of a file names, as in
/// `# mismatch on torch: ...`.
pub(crate) fn headline(file: &CaseFile) -> Option<(&str, &str)> {
    let (kind, rest) = file.description.first()?.split_once(" on ")?;
    Kind::from_name(kind)?;
    Some((kind, rest.split_once(": ").map_or(rest, |(backend, _)| backend)))
}

/// Checks the backends that a file names: failures of a peer whose name is misspelt would be taken
/// for those of the engine.
///
/// # Errors
/// There is no such backend.
pub(crate) fn check_backends(path: &Path, backends: &str) -> Result<(), Failure> {
    let is_backend = |word: &str| {
        let is_of_engine = gradiff_check::device_of(word).is_some() || word == "oracle";
        is_of_engine || gradiff_check::is_peer(word)
    };
    match backends.split(',').find(|word| !is_backend(word)) {
        None => Ok(()),
        Some(word) => {
            let message = format!("{}: no backend is called `{word}`", path.display());
            Err(Failure::Usage(message))
        }
    }
}

/// The peer that a backend is, `None` for backends of the engine. Versions of a framework are one
/// peer, and so are commands that differ by folders and flags.
pub(crate) fn peer_of(backend: &str) -> Option<String> {
    if !gradiff_check::is_peer(backend) {
        return None;
    }
    let Some(command) = backend.strip_prefix("exec:") else {
        return backend.split('@').next().map(str::to_string);
    };
    let words = command.split_whitespace().filter(|word| !word.starts_with('-'));
    let names: Vec<&str> = words.map(|word| word.rsplit('/').next().unwrap_or(word)).collect();
    Some(format!("exec:{}", names.join(" ")))
}

/// The peers that backends separated by commas are, `None` for one of the engine.
fn peers_of(backends: &str) -> Vec<Option<String>> {
    backends.split(',').map(peer_of).collect()
}

/// Peers that judge the oracle. They are written in a framework, whose failures are not theirs.
const SECOND_ORACLES: [&str; 2] = ["numpy-definitions", "torch-gradients"];

/// Returns whether a peer has no variants, and is none.
fn is_single(peer: &str) -> bool {
    peer.starts_with("exec:") || SECOND_ORACLES.contains(&peer)
}

/// The peer without the variant: `torch` for `torch-compile`, which most likely has its failures.
pub(crate) fn framework_of(backend: &str) -> Option<String> {
    let peer = peer_of(backend)?;
    let is_whole = is_single(&peer);
    Some(if is_whole { peer } else { peer.split('-').next().unwrap_or_default().to_string() })
}

/// Returns whether a known failure of a peer, or of the engine, excuses a failure: one of the same,
/// or of a variant of it.
fn excuses(known: Option<&str>, failed: Option<&str>) -> bool {
    let is_variant = |known: &str, failed: &str| {
        let variant = failed.strip_prefix(known).is_some_and(|rest| rest.starts_with('-'));
        variant && !is_single(known) && !is_single(failed)
    };
    known == failed || known.zip(failed).is_some_and(|(known, failed)| is_variant(known, failed))
}

/// The word before the versions that are right with a case.
pub(crate) const RIGHT: &str = "right in";

/// A failure of a backend, as it is compared with the known ones.
pub(crate) struct Failed<'a> {
    /// Equal for failures that most likely have one cause.
    pub(crate) signature: &'a str,
    /// The way in which it is wrong, in a word or two.
    pub(crate) kind: &'a str,
    /// The case, as small as it was found.
    pub(crate) case: &'a Case,
    /// False if the search for a smaller case did not come to its end.
    pub(crate) is_minimal: bool,
    /// The backend, or several separated by commas if it is not known which of them fails.
    pub(crate) backend: &'a str,
    /// The version of the framework that the backend is, if it says one.
    pub(crate) version: Option<&'a str>,
}

/// Counts a failure for the known one that [`number`] gives. Returns whether there is one.
pub(crate) fn count(known: &mut [Known], failed: &Failed<'_>) -> bool {
    let number = number(known, failed);
    number.into_iter().for_each(|number| known[number].count += 1);
    number.is_some()
}

/// The number of the known failure of the same peer, or of the one that it is a variant of, and
/// signature; or else of the first one of the same peer whose patterns include the case. One of
/// those with which the version was right is not known.
fn number(known: &[Known], failed: &Failed<'_>) -> Option<usize> {
    // A package may say after a plus sign how it was built.
    let version = failed.version.and_then(|version| version.split('+').next());
    let versions = [failed.version, version];
    let is_new =
        |of: &Known| of.right_in.iter().any(|right| versions.contains(&Some(right.as_str())));
    let peers = peers_of(failed.backend);
    let is_excused = |of: &Known, failed: &Option<String>| {
        of.peers.iter().any(|known| excuses(known.as_deref(), failed.as_deref()))
    };
    let has_signature = |of: &Known| {
        !is_new(of)
            && peers.iter().all(|failed| is_excused(of, failed))
            && of.signature == failed.signature
    };
    // A variant has a code generator of its own: what a pattern says of a cause is not reviewed.
    let includes = |of: &Known| {
        !is_new(of)
            && peers.iter().all(|failed| of.peers.contains(failed))
            && of.kind == failed.kind
            && of.includes.iter().any(|pattern| pattern.matches(failed.case, failed.is_minimal))
    };
    let number = known.iter().position(has_signature);
    number.or_else(|| known.iter().position(includes))
}

/// Operations, one of which the minimal cases of a known cause have.
struct Pattern {
    ops: Vec<String>,
    /// The dtypes of its result; empty if any will do.
    dtypes: Vec<String>,
    /// The dtypes, one of which a source has before it is promoted; empty if any will do.
    from: Vec<String>,
}

/// An operation of a case.
struct Operation {
    name: &'static str,
    /// The dtype of its result, if it has one.
    dtype: Option<DType>,
    /// The dtypes of its sources that are values, without the condition of `where`.
    from: Vec<DType>,
}

/// Operations that a case has for those that compute.
const LEAVES: [&str; 4] = ["input", "const", "arange", "var"];

/// Returns whether an operation of this name computes nothing.
pub(crate) fn is_leaf(name: &str) -> bool {
    LEAVES.contains(&name)
}

/// The beginning of a comment line with a pattern.
const INCLUDES: &str = "includes ";
/// The words in it before dtypes of results, and before those of sources.
const OF: &str = "of";
const FROM: &str = "from";

impl Pattern {
    /// Reads a line of the form `includes add sub of u8 u16`, `includes flip` or
    /// `includes max of bf16 from i64`; `None` if it is another line.
    fn read(line: &str) -> Option<Result<Pattern, String>> {
        let text = line.strip_prefix(INCLUDES)?;
        let mut lists = BTreeMap::from([("", Vec::new())]);
        let mut list = "";
        for word in text.split_whitespace() {
            if word == OF || word == FROM {
                list = word;
                lists.entry(list).or_default();
            } else {
                lists.entry(list).or_default().push(word.to_string());
            }
        }
        if lists.values().any(Vec::is_empty) {
            let parts = format!("dtypes after `{OF}` and `{FROM}`");
            return Some(Err(format!("`{line}` names operations, and {parts}")));
        }
        let ops = lists.remove("").unwrap_or_default();
        let unknown = |name: &&String| !gradiff_corpus::names().any(|known| known == **name);
        if let Some(name) = ops.iter().find(unknown) {
            return Some(Err(format!("`{line}`: no operation is called {name}")));
        }
        if let Some(name) = lists.values().flatten().find(|name| DType::from_name(name).is_none()) {
            return Some(Err(format!("`{line}`: no dtype is called {name}")));
        }
        let mut dtypes = |word: &str| lists.remove(word).unwrap_or_default();
        Some(Ok(Pattern { ops, dtypes: dtypes(OF), from: dtypes(FROM) }))
    }

    /// Returns whether an operation of a minimal case is of the pattern. A larger case has
    /// operations without a part in its failure, so that all of them have to be.
    fn matches(&self, case: &Case, is_minimal: bool) -> bool {
        let has = |found: &[DType], wanted: &[String]| {
            let is_wanted = |dtype: &DType| wanted.iter().any(|name| name == dtype.name());
            wanted.is_empty() || found.iter().any(is_wanted)
        };
        let is_of_pattern = |operation: &Operation| {
            self.ops.iter().any(|op| op == operation.name)
                && has(operation.dtype.as_slice(), &self.dtypes)
                && has(&operation.from, &self.from)
        };
        let mut operations = operations(case);
        if is_minimal {
            return operations.iter().any(is_of_pattern);
        }
        operations.retain(|operation| !is_leaf(operation.name));
        !operations.is_empty() && operations.iter().all(is_of_pattern)
    }
}

/// The operations of a case.
fn operations(case: &Case) -> Vec<Operation> {
    match case {
        Case::Program(program) => operations_of_program(program),
        Case::Views(views) => {
            let operation = |name| Operation { name, dtype: None, from: Vec::new() };
            views.ops.iter().map(|op| operation(op.name())).collect()
        }
        Case::Expr(case) => {
            let mut found = Vec::new();
            case.expr.visit(&mut |node| {
                let name = gradiff_corpus::expr_name(node);
                let dtype = Some(node.dtype(&case.vars).unwrap_or(DType::I32));
                let operands = node.operands();
                let is_condition = usize::from(name == "where");
                let operands = operands.iter().skip(is_condition);
                let from = operands.filter_map(|operand| operand.dtype(&case.vars)).collect();
                found.push(Operation { name, dtype, from });
            });
            found
        }
    }
}

fn operations_of_program(program: &Program) -> Vec<Operation> {
    let types = program.typing().unwrap_or_default();
    let operation = |(statement, result): (&Statement, &gradiff_corpus::TensorType)| {
        let has_condition = matches!(statement, Statement::Where { srcs: [Operand::Value(_), ..] });
        let sources = statement.sources().into_iter().skip(usize::from(has_condition));
        let from = sources.map(|id| types[id.0 as usize].dtype).collect();
        Operation { name: gradiff_corpus::name(statement), dtype: Some(result.dtype), from }
    };
    program.statements.iter().zip(&types).map(operation).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_that_were_right_make_a_failure_new() {
        let text = "# mismatch on tinygrad@0.10.2: x\n# x\n# fails in 0.9.2, 0.10.2; right in \
                    0.10.3, 0.14.0\n# includes pad\nview [2,3]\nflip axes=[1]";
        let file = gradiff_corpus::parse(text).unwrap();
        let known = || vec![Known::new(PathBuf::new(), &file, "flip".into(), "merged").unwrap()];
        let is_known = |backend: &str, signature: &str, kind: &str, text: &str| {
            let case = &gradiff_corpus::parse(text).unwrap().case;
            let version = backend.split_once('@').map(|(_, version)| version);
            let failed = Failed { signature, kind, case, is_minimal: true, backend, version };
            count(&mut known(), &failed)
        };
        let flip = "view [2]\nflip axes=[0]";
        let padded = "view [2]\nflip axes=[0]\npad [(1,0)]";
        assert!(is_known("tinygrad@0.10.2", "flip", "merged", flip));
        assert!(is_known("tinygrad", "flip", "merged", flip));
        assert!(is_known("tinygrad@0.10.0", "flip pad", "merged", padded));
        assert!(!is_known("tinygrad@0.10.0", "flip pad", "strides", padded));
        assert!(!is_known("tinygrad@0.14.0", "flip", "merged", flip));
        assert!(!is_known("tinygrad@0.10.3", "flip pad", "merged", padded));
        // So is one of the installation without a number, which says its version.
        let case = &gradiff_corpus::parse(flip).unwrap().case;
        for (version, is_expected) in [
            (Some("0.14.0"), false),
            (Some("0.14.0+cpu"), false),
            (Some("0.14"), true),
            (None, true),
        ] {
            let (backend, is_minimal) = ("tinygrad", true);
            let (signature, kind) = ("flip", "merged");
            let failed = Failed { signature, kind, case, is_minimal, backend, version };
            assert_eq!(count(&mut known(), &failed), is_expected, "{version:?}");
        }
        // Files of a peer excuse its variants, but neither another one nor the engine; patterns
        // excuse the peer alone.
        assert!(is_known("tinygrad-llvm@0.10.2", "flip", "merged", flip));
        assert!(!is_known("tinygrad-llvm@0.10.2", "flip pad", "merged", padded));
        assert!(!excuses(Some("tinygrad-llvm"), Some("tinygrad")));
        assert!(!is_known("exec:python3 tinygrad", "flip pad", "merged", padded));
        assert!(!is_known("interp", "flip", "merged", flip));
        // A second oracle is no variant of the framework that it is written in.
        assert!(!excuses(Some("numpy"), Some("numpy-definitions")));
        assert!(!excuses(Some("torch"), Some("torch-gradients")));
        assert!(excuses(Some("torch-gradients"), Some("torch-gradients")));
        for (backend, framework) in [
            ("torch-compile@2.9.1", "torch"),
            ("torch-gradients", "torch-gradients"),
            ("numpy-definitions", "numpy-definitions"),
        ] {
            assert_eq!(framework_of(backend).as_deref(), Some(framework));
        }
        let names = gradiff_check::PEERS.iter().map(|row| row.name);
        assert_eq!(names.filter(|name| SECOND_ORACLES.contains(name)).count(), 2);
    }

    #[test]
    fn a_file_of_several_backends_excuses_each_of_them_and_no_other() {
        let program = "a = input i32[] iota\nb = add a a\noutput b";
        let case = &gradiff_corpus::parse(program).unwrap().case;
        let is_known = |backends: &str, backend: &str| {
            let text = format!("# mismatch on {backends}: x\n# includes add\n{program}");
            let file = gradiff_corpus::parse(&text).unwrap();
            let known = Known::new(PathBuf::new(), &file, "of the file".into(), "mismatch");
            let (signature, kind, version) = ("another", "mismatch", None);
            let failed = Failed { signature, kind, case, is_minimal: true, backend, version };
            count(&mut [known.unwrap()], &failed)
        };
        for (backends, backend, is_expected) in [
            ("torch,numpy", "torch", true),
            ("torch,numpy", "numpy@2.0", true),
            ("torch,numpy", "interp", false),
            ("torch,numpy", "jax", false),
            ("torch,interp", "c/opts", true),
            ("torch", "torch,numpy", false),
            ("torch,numpy", "torch,numpy", true),
            ("torch,numpy", "torch,interp", false),
        ] {
            assert_eq!(is_known(backends, backend), is_expected, "{backends} {backend}");
        }
    }

    /// Hunts can be given all files of known failures.
    #[test]
    fn known_failures_have_patterns_that_can_be_read() {
        let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../corpus/upstream"));
        let mut patterns = 0;
        for path in crate::case::cases(&[folder], false).unwrap() {
            let file = crate::case::read(&path).unwrap();
            let (_, backends) = headline(&file).unwrap_or_else(|| panic!("{path:?}"));
            check_backends(&path, backends).unwrap();
            patterns += Known::new(path, &file, String::new(), "").unwrap().includes.len();
        }
        assert!(patterns > 0);
    }

    #[test]
    fn peers_are_told_apart_by_names_without_versions_folders_and_flags() {
        for (backend, peer) in [
            ("interp", None),
            ("c/opts", None),
            ("torch@2.9.1", Some("torch")),
            ("torch-compile", Some("torch-compile")),
            ("exec:../bin/candle-peer --wrong", Some("exec:candle-peer")),
            ("exec:python3 fuzz/peers/example.py", Some("exec:python3 example.py")),
        ] {
            assert_eq!(peer_of(backend).as_deref(), peer, "{backend}");
        }
        for (line, named) in [
            ("mismatch on exec:candle-peer: a NaN is lost", Some(("mismatch", "exec:candle-peer"))),
            ("crash on torch", Some(("crash", "torch"))),
            ("element 0 is 1", None),
            ("The mean on torch", None),
        ] {
            let file = gradiff_corpus::parse(&format!("# {line}\nview [2]\nflip axes=[0]"));
            let file = file.unwrap();
            assert_eq!(headline(&file), named, "{line}");
        }
        let path = Path::new("a.case");
        for backends in ["torch@2.9.1", "interp,c:12", "oracle", "exec:candle-peer --wrong"] {
            assert!(check_backends(path, backends).is_ok(), "{backends}");
        }
        for backends in ["tinygard@0.10.2", "interp,gpu", ""] {
            assert!(check_backends(path, backends).is_err(), "{backends}");
        }
    }

    #[test]
    fn patterns_name_operations_and_dtypes() {
        let matches = |line: &str, text: &str| {
            let pattern = Pattern::read(line).unwrap().unwrap();
            pattern.matches(&gradiff_corpus::parse(text).unwrap().case, true)
        };
        let of_narrow = "includes add neg of u8 u16";
        let narrow = "a = input u8[] iota\nb = neg a\nc = cast b i32\noutput c";
        assert!(matches(of_narrow, narrow));
        assert!(!matches(of_narrow, "a = input i8[] iota\nb = neg a\noutput b"));
        assert!(!matches(of_narrow, "a = input u8[] iota\nb = mul a a\noutput b"));
        assert!(matches("includes cast", narrow));
        assert!(matches("includes pad flip", "view [2,3]\nflip axes=[1]\nreshape [6]"));
        assert!(!matches("includes flip of f32", "view [2,3]\nflip axes=[1]"));
        // A source has the dtype before it is promoted; the condition of `where` is no source.
        let converted = "includes max where of f16 from i64 bool";
        let max_of = |dtype: &str| {
            format!("a = input {dtype}[] iota\nb = input f16[] iota\nc = max a b\noutput c")
        };
        assert!(matches(converted, &max_of("i64")) && !matches(converted, &max_of("f16")));
        assert!(!matches("includes max of i64 from i64", &max_of("i64")));
        assert!(matches("includes max from i64", &max_of("i64")));
        let chosen = "a = input bool[] iota\nb = input f16[] iota\nc = where a b 1.0\noutput c";
        assert!(!matches(converted, chosen) && matches("includes where from f16", chosen));
        let remainder = "var a -3..3\nexpr cmod(a, 2) + 1";
        assert!(matches("includes cmod from i32", remainder));
        assert!(!matches("includes cmod from i64", remainder));
        assert!(matches("includes cmod of i32", remainder));
        assert!(!matches("includes cdiv", remainder));
        // A case that is not minimal is of the pattern as a whole.
        let covers = |line: &str, text: &str| {
            let pattern = Pattern::read(line).unwrap().unwrap();
            pattern.matches(&gradiff_corpus::parse(text).unwrap().case, false)
        };
        assert!(!covers(of_narrow, narrow) && covers("includes add neg cast", narrow));
        assert!(!covers("includes input", "a = input u8[] iota\noutput a"));
        assert!(covers("includes cmod add", remainder) && !covers("includes cmod", remainder));
        assert!(Pattern::read("fails in 1.2").is_none());
        for line in [
            "includes addd",
            "includes add of u7",
            "includes add from u7",
            "includes  of u8",
            "includes add of ",
            "includes add from",
            "includes add of from u8",
        ] {
            assert!(Pattern::read(line).unwrap().is_err(), "{line}");
        }
    }
}
