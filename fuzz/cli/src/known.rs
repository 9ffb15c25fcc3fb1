//! Failures that are reviewed: they are counted, and reported no more.

use std::path::{Path, PathBuf};

use gradiff_check::Kind;
use gradiff_corpus::{Case, CaseFile, DType};

use crate::Failure;

/// A failure that is reviewed.
pub(crate) struct Known {
    /// Equal for failures that most likely have one cause.
    signature: String,
    kind: String,
    /// The peer that fails; `None` for the engine.
    peer: Option<String>,
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
        let (kind, peer) = (kind.to_string(), headline(file).and_then(|(_, name)| peer_of(name)));
        Ok(Known { signature, kind, peer, includes, right_in, path, count: 0 })
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
    /// The backend; of a peer with its version, as in `tinygrad@0.14.0`.
    pub(crate) backend: &'a str,
}

/// Counts a failure for the known one of the same peer, or of the one that it is a variant of, and
/// signature, or else for the first one whose patterns include its case; of those with which its
/// version was right, for none. Returns whether it is known.
pub(crate) fn count(known: &mut [Known], failed: &Failed<'_>) -> bool {
    let version = failed.backend.split_once('@').map_or("", |(_, version)| version);
    let peer = peer_of(failed.backend);
    let is_due = |of: &Known| {
        let is_right = of.right_in.iter().any(|right| right == version);
        excuses(of.peer.as_deref(), peer.as_deref()) && !is_right
    };
    let has_signature = |of: &Known| is_due(of) && of.signature == failed.signature;
    let includes = |of: &Known| {
        is_due(of)
            && of.kind == failed.kind
            && of.includes.iter().any(|pattern| pattern.matches(failed.case, failed.is_minimal))
    };
    let number = known.iter().position(has_signature);
    match number.or_else(|| known.iter().position(includes)) {
        Some(number) => {
            known[number].count += 1;
            true
        }
        None => false,
    }
}

/// Operations, one of which the minimal cases of a known cause have.
struct Pattern {
    ops: Vec<String>,
    /// The dtypes of its result; empty if any will do.
    dtypes: Vec<String>,
}

/// Operations that a case has for those that compute.
const LEAVES: [&str; 4] = ["input", "const", "arange", "var"];

/// The beginning of a comment line with a pattern.
const INCLUDES: &str = "includes ";

impl Pattern {
    /// Reads a line of the form `includes add sub of u8 u16` or `includes flip`; `None` if it is
    /// another line.
    fn read(line: &str) -> Option<Result<Pattern, String>> {
        let text = line.strip_prefix(INCLUDES)?;
        let words = |text: &str| text.split_whitespace().map(str::to_string).collect();
        let (ops, dtypes): (Vec<String>, Option<Vec<String>>) = match text.split_once(" of ") {
            Some((ops, dtypes)) => (words(ops), Some(words(dtypes))),
            None => (words(text), None),
        };
        let is_empty = ops.is_empty() || dtypes.as_ref().is_some_and(Vec::is_empty);
        let unknown = |name: &&String| !gradiff_corpus::names().any(|known| known == **name);
        if is_empty {
            return Some(Err(format!("`{line}` names operations, and dtypes after `of`")));
        }
        if let Some(name) = ops.iter().find(unknown) {
            return Some(Err(format!("`{line}`: no operation is called {name}")));
        }
        let dtypes = dtypes.unwrap_or_default();
        Some(match dtypes.iter().find(|name| DType::from_name(name).is_none()) {
            Some(name) => Err(format!("`{line}`: no dtype is called {name}")),
            None => Ok(Pattern { ops, dtypes }),
        })
    }

    /// Returns whether an operation of a minimal case is of the pattern. A larger case has
    /// operations without a part in its failure, so that all of them have to be.
    fn matches(&self, case: &Case, is_minimal: bool) -> bool {
        let is_of_pattern = |(name, dtype): &(&'static str, Option<DType>)| {
            let is_of = |wanted: &String| dtype.is_some_and(|dtype| dtype.name() == wanted);
            self.ops.iter().any(|op| op == name)
                && (self.dtypes.is_empty() || self.dtypes.iter().any(is_of))
        };
        let mut operations = operations(case);
        if is_minimal {
            return operations.iter().any(is_of_pattern);
        }
        operations.retain(|(name, _)| !LEAVES.contains(name));
        !operations.is_empty() && operations.iter().all(is_of_pattern)
    }
}

/// The operations of a case and the dtypes of their results, if they have one.
fn operations(case: &Case) -> Vec<(&'static str, Option<DType>)> {
    match case {
        Case::Program(program) => {
            let types = program.typing().unwrap_or_default();
            let dtypes = types.iter().map(|of| Some(of.dtype));
            program.statements.iter().map(gradiff_corpus::name).zip(dtypes).collect()
        }
        Case::Views(views) => views.ops.iter().map(|op| (op.name(), None)).collect(),
        Case::Expr(case) => {
            let mut found = Vec::new();
            case.expr.visit(&mut |node| {
                let dtype = node.dtype(&case.vars).unwrap_or(DType::I32);
                found.push((gradiff_corpus::expr_name(node), Some(dtype)));
            });
            found
        }
    }
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
            count(&mut known(), &Failed { signature, kind, case, is_minimal: true, backend })
        };
        let flip = "view [2]\nflip axes=[0]";
        let padded = "view [2]\nflip axes=[0]\npad [(1,0)]";
        assert!(is_known("tinygrad@0.10.2", "flip", "merged", flip));
        assert!(is_known("tinygrad", "flip", "merged", flip));
        assert!(is_known("tinygrad@0.10.0", "flip pad", "merged", padded));
        assert!(!is_known("tinygrad@0.10.0", "flip pad", "strides", padded));
        assert!(!is_known("tinygrad@0.14.0", "flip", "merged", flip));
        assert!(!is_known("tinygrad@0.10.3", "flip pad", "merged", padded));
        // Files of a peer excuse its variants, but neither another one nor the engine.
        assert!(is_known("tinygrad-llvm@0.10.2", "flip", "merged", flip));
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
        let remainder = "var a -3..3\nexpr cmod(a, 2) + 1";
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
        for line in ["includes addd", "includes add of u7", "includes  of u8", "includes add of "] {
            assert!(Pattern::read(line).unwrap().is_err(), "{line}");
        }
    }
}
