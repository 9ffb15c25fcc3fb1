//! Engines in other processes. A peer gets programs in JSON on its standard input and answers on
//! its standard output, a line for each; `fuzz/peers/README.md` describes the protocol.
//!
//! A peer that dies, answers no JSON or gives no answer is a failure of one program; the next one
//! gets a new process.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use gradiff_corpus::{Array, DType, Program};
use serde_json::{Value, json};

use crate::backends::engine::Turn;
use crate::backends::exchange::{Process, cut};
use crate::{Backend, Kept, Outcome};

/// A framework that is a peer by an adapter of the harness, a text in Python.
#[derive(Debug)]
pub struct PeerRow {
    /// The name. Its package has the same one, up to a hyphen.
    pub name: &'static str,
    /// Description of how programs run there.
    pub description: &'static str,
    /// Packages that the adapter requires beside it.
    pub packages: &'static [&'static str],
    /// Modules that the adapter imports: their names and texts.
    modules: &'static [(&'static str, &'static str)],
    /// Texts in Python, the last of which defines the adapter.
    adapter: &'static [&'static str],
}

/// The frameworks: a new one is a line here and an adapter.
pub const PEERS: &[PeerRow] = &[
    PeerRow {
        name: "numpy",
        description: "each operation by NumPy, in its dtype",
        packages: &["ml_dtypes"],
        modules: &[],
        adapter: &[NUMPY],
    },
    PeerRow {
        name: "torch",
        description: "PyTorch, eager, on the CPU",
        packages: &["numpy"],
        modules: &[],
        adapter: &[TORCH],
    },
    PeerRow {
        name: "torch-compile",
        description: "PyTorch, each program compiled as one function by Inductor",
        packages: &["numpy"],
        modules: &[],
        adapter: &[TORCH, include_str!("../../../peers/on_torch_compile.py")],
    },
    PeerRow {
        name: "jax",
        description: "JAX, each program compiled as one function by XLA for the CPU",
        packages: &["numpy", "ml_dtypes"],
        modules: &[],
        adapter: &[NUMPY, include_str!("../../../peers/on_jax.py")],
    },
    PeerRow {
        name: "tinygrad",
        description: "tinygrad on its device CPU or CLANG",
        packages: &["numpy"],
        modules: &[],
        adapter: &["DEVICE = 'CPU'", TINYGRAD, TINYGRAD_INDEX, TINYGRAD_KERNELS],
    },
    PeerRow {
        name: "tinygrad-llvm",
        description: "tinygrad on the CPU by LLVM (from 0.10.1; needs libLLVM)",
        packages: &["numpy"],
        modules: &[],
        adapter: &["DEVICE = 'LLVM'", TINYGRAD, TINYGRAD_INDEX, TINYGRAD_KERNELS],
    },
    PeerRow {
        name: "tinygrad-python",
        description: "tinygrad on its device PYTHON, which interprets uops",
        packages: &["numpy"],
        modules: &[],
        adapter: &["DEVICE = 'PYTHON'", TINYGRAD, TINYGRAD_INDEX, TINYGRAD_KERNELS],
    },
    PeerRow {
        name: "onnxruntime",
        description: "ONNX Runtime, each program one model, on the CPU",
        packages: &["onnx", "numpy"],
        modules: &[],
        adapter: &[include_str!("../../../peers/on_onnxruntime.py")],
    },
    PeerRow {
        name: "numpy-definitions",
        description: "each operation and method by its definition, in NumPy: a second oracle",
        packages: &["ml_dtypes"],
        modules: &[METHODS, DEFINITIONS],
        adapter: &[include_str!("../../../peers/on_numpy_definitions.py")],
    },
    PeerRow {
        name: "torch-gradients",
        description: "programs with gradients in f64, by PyTorch's autograd",
        packages: &["numpy", "ml_dtypes"],
        modules: &[
            METHODS,
            DEFINITIONS,
            ("torch_methods", include_str!("../../../peers/torch_methods.py")),
        ],
        adapter: &[include_str!("../../../peers/on_torch_gradients.py")],
    },
];

const METHODS: (&str, &str) = ("numpy_methods", include_str!("../../../peers/numpy_methods.py"));
const DEFINITIONS: (&str, &str) =
    ("numpy_definitions", include_str!("../../../peers/numpy_definitions.py"));
const NUMPY: &str = include_str!("../../../peers/on_numpy.py");
const TORCH: &str = include_str!("../../../peers/on_torch.py");
const TINYGRAD: &str = include_str!("../../../peers/on_tinygrad.py");
const TINYGRAD_INDEX: &str = include_str!("../../../peers/tinygrad_index.py");
const TINYGRAD_KERNELS: &str = include_str!("../../../peers/tinygrad_kernels.py");

/// The part that all adapters share.
const ADAPTERS: &str = include_str!("../../../peers/peer.py");

/// The first word of a backend that is a command: `exec:./my-engine --flag`.
const COMMAND: &str = "exec:";

/// Why the rest of a batch does not run: each program could take as long.
const AFTER_TIMEOUT: &str = "the program before it had no answer";

/// The peer that a word names, as `numpy`, `torch@2.9.1:4` and `exec:COMMAND` do: its name, and the
/// number after the colon. A command may have colons, so it has no such number.
pub(crate) fn named(word: &str) -> Option<(&str, Option<&str>)> {
    if word.starts_with(COMMAND) {
        return Some((word, None));
    }
    let (name, every) = match word.split_once(':') {
        Some((name, every)) => (name, Some(every)),
        None => (word, None),
    };
    row(name).map(|_| (name, every))
}

/// Returns whether a backend is a peer, which has no stages.
pub fn is_peer(backend: &str) -> bool {
    named(backend).is_some()
}

/// The row of a framework, and its version if one is named.
fn row(word: &str) -> Option<(&'static PeerRow, Option<&str>)> {
    let (name, version) = match word.split_once('@') {
        Some((name, version)) => (name, Some(version)),
        None => (word, None),
    };
    PEERS.iter().find(|row| row.name == name).map(|row| (row, version))
}

/// The program and the arguments that start a peer.
///
/// # Errors
/// No command, or a version that is not installed.
fn command(word: &str) -> Result<Vec<String>, String> {
    if let Some(command) = word.strip_prefix(COMMAND) {
        let words: Vec<String> = command.split_whitespace().map(str::to_string).collect();
        return match words.is_empty() {
            true => Err(format!("{COMMAND} is followed by the command of an engine")),
            false => Ok(words),
        };
    }
    let (row, version) = row(word).ok_or("an unknown peer")?;
    let installed = environment(row.package(), version).join("bin/python");
    let python = match (std::env::var_os("GRADIFF_PYTHON"), version) {
        (Some(named), None) => PathBuf::from(named),
        _ if installed.exists() => installed,
        (None, None) => PathBuf::from("python3"),
        (_, Some(version)) => {
            let package = format!("{}=={version}", row.package());
            return Err(format!(
                "{package} is not installed for gradiff; `gradiff peers install {package}` does \
                 that"
            ));
        }
    };
    Ok(vec![python.to_string_lossy().into_owned(), "-c".to_string(), row.text()])
}

/// The folder of the Python environment in which `gradiff peers install` puts a version, or the
/// newest one at that time.
pub fn environment(package: &str, version: Option<&str>) -> PathBuf {
    let version = version.map_or(String::new(), |version| format!("=={version}"));
    environments().join(format!("{package}{version}"))
}

fn environments() -> PathBuf {
    gradiff::runtime::cache_folder().unwrap_or_else(std::env::temp_dir).join("peers")
}

/// An engine in another process, as a backend.
pub(crate) struct Peer {
    word: String,
    command: Vec<String>,
    turn: Turn,
    greeting: Greeting,
    /// `None` after a failure, until the next program.
    process: RefCell<Option<Process>>,
}

/// The description that a peer gives of itself.
#[derive(Clone, Debug)]
struct Greeting {
    name: String,
    /// The operations and dtypes that it has; `None` for all.
    ops: Option<Vec<String>>,
    dtypes: Option<Vec<String>>,
    zero_signs: bool,
    subnormals: bool,
    zero_divisors: bool,
    /// The requests that it answers.
    requests: Vec<String>,
}

/// Processes between two uses: starting one takes long, and minimising a program opens its backend
/// for each attempt.
static IDLE: Mutex<Option<HashMap<String, (Process, Greeting)>>> = Mutex::new(None);

/// Ends the processes that are idle.
pub fn close_peers() {
    IDLE.lock().unwrap_or_else(PoisonError::into_inner).take();
}

impl PeerRow {
    /// The program in Python that is the peer.
    fn text(&self) -> String {
        // A string in JSON is one in Python.
        let module = |(name, text): &(&str, &str)| format!("module({name:?}, {})\n", json!(text));
        let modules: String = self.modules.iter().map(module).collect();
        format!("{ADAPTERS}\n\n{modules}\n{}\n\nserve(ADAPTER)\n", self.adapter.join("\n\n"))
    }

    /// The name of the package.
    pub fn package(&self) -> &'static str {
        self.name.split('-').next().unwrap_or(self.name)
    }

    /// The name and version that the framework says.
    ///
    /// # Errors
    /// Why it is not available.
    pub fn status(&self) -> Result<String, String> {
        Peer::open(self.name, Turn::ALWAYS).map(|peer| peer.greeting.name.clone())
    }

    /// The versions that are installed for gradiff, beside the one without a number.
    pub fn versions(&self) -> Vec<String> {
        let entries = std::fs::read_dir(environments()).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let start = format!("{}==", self.package());
        let mut versions: Vec<String> =
            names.filter_map(|name| name.strip_prefix(&start).map(str::to_string)).collect();
        let numbers = |version: &String| -> Vec<u64> {
            version.split(['.', '+']).map_while(|part| part.parse().ok()).collect()
        };
        versions.sort_by_cached_key(numbers);
        versions
    }
}

impl Peer {
    /// Starts the peer of this word, or takes one that is idle.
    ///
    /// # Errors
    /// Why there is none: no such program, a broken environment, an answer that is no greeting.
    pub(crate) fn open(word: &str, turn: Turn) -> Result<Peer, String> {
        let command = command(word)?;
        let idle = IDLE
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .as_mut()
            .and_then(|idle| idle.remove(word));
        let (process, greeting) = match idle {
            Some(idle) => idle,
            None => greeted(&command).map_err(|reason| match row(word) {
                // A named version is there, as `command` has found.
                Some((row, None)) if !environment(row.package(), None).exists() => {
                    let package = row.package();
                    let hint =
                        format!("`gradiff peers install {package}` makes an environment for it");
                    format!("{}: {reason}; {hint}", command[0])
                }
                Some(_) => format!("{}: {reason}", command[0]),
                None => reason,
            })?,
        };
        let process = RefCell::new(Some(process));
        Ok(Peer { word: word.to_string(), command, turn, greeting, process })
    }

    fn run_one(&self, program: &Program) -> Outcome {
        let request = match gradiff_corpus::to_json(program) {
            Ok(program) => json!({ "run": program }),
            Err(error) => return Outcome::Skipped(error.to_string()),
        };
        self.ask(request).and_then(|answer| outcome(&answer)).unwrap_or_else(|failure| failure)
    }

    /// The version of the framework: that of its name, or else the one that it says.
    fn version(&self) -> Option<&str> {
        let (_, version) = row(&self.word)?;
        version.or_else(|| version_in(&self.greeting.name))
    }

    /// Returns whether it answers requests of this name.
    pub(crate) fn answers(&self, request: &str) -> bool {
        self.greeting.requests.iter().any(|known| known == request)
    }

    /// The answer to a request, from a new process if the last one failed.
    pub(crate) fn ask(&self, request: Value) -> Result<Value, Outcome> {
        let mut process = match self.process.take() {
            Some(process) => process,
            None => greeted(&self.command).map_err(Outcome::Environment)?.0,
        };
        let answer = process.ask(request)?;
        *self.process.borrow_mut() = Some(process);
        Ok(answer)
    }

    /// The answer to a request for a script.
    ///
    /// # Errors
    /// The peer writes no scripts, or none for this case.
    pub(crate) fn script(&self, request: Value) -> Result<String, String> {
        let answer = self.ask(request).map_err(|outcome| outcome.reason("answer"))?;
        let none = || format!("the peer writes no scripts: {}", cut(&answer.to_string()));
        answer["script"].as_str().map(str::to_string).ok_or_else(none)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        if let Some(process) = self.process.take() {
            let mut idle = IDLE.lock().unwrap_or_else(PoisonError::into_inner);
            let value = (process, self.greeting.clone());
            idle.get_or_insert_default().insert(self.word.clone(), value);
        }
    }
}

impl Backend for Peer {
    fn name(&self) -> &str {
        &self.word
    }

    fn takes(&self, program: u64) -> bool {
        self.turn.takes(program)
    }

    fn supports(&self, program: &Program) -> Option<String> {
        let Greeting { ops, dtypes, .. } = &self.greeting;
        let ops_of = program.statements.iter().map(gradiff_corpus::name);
        let missing_op = |names: &Vec<String>| {
            ops_of.clone().find(|name| !names.iter().any(|known| known == name))
        };
        let missing_dtype = |names: &Vec<String>| {
            let dtypes = gradiff_corpus::dtypes(program).unwrap_or_default();
            let mut dtypes = dtypes.into_iter().map(DType::name);
            dtypes.find(|name| !names.iter().any(|known| known == name))
        };
        let missing = ops.as_ref().and_then(missing_op);
        let missing = missing.or_else(|| dtypes.as_ref().and_then(missing_dtype))?;
        Some(format!("it has no {missing}"))
    }

    /// No framework promises the bits of a NaN.
    fn kept(&self) -> Kept {
        let Greeting { zero_signs, subnormals, zero_divisors, .. } = self.greeting;
        Kept { zero_signs, nan_bits: false, subnormals, zero_divisors }
    }

    fn run(&self, programs: &[&Program]) -> Vec<Outcome> {
        let mut is_late = false;
        let run = |program: &&Program| match is_late {
            true => Outcome::Skipped(AFTER_TIMEOUT.to_string()),
            false => {
                let outcome = self.run_one(program);
                is_late = matches!(outcome, Outcome::Timeout(_));
                outcome
            }
        };
        programs.iter().map(run).collect()
    }
}

/// The version of the framework that a backend is, which is started if its name has none; `None` if
/// it is no framework, is not available or says none.
pub fn version_of(backend: &str) -> Option<String> {
    let (name, _) = named(backend)?;
    match row(name)? {
        (_, Some(version)) => Some(version.to_string()),
        (_, None) => Peer::open(name, Turn::ALWAYS).ok()?.version().map(str::to_string),
    }
}

/// The version in the name that a framework gives itself, as in `torch.compile of 2.9.1`.
fn version_in(name: &str) -> Option<&str> {
    name.split_whitespace().find(|word| word.starts_with(|c: char| c.is_ascii_digit()))
}

/// The program as a script for the framework of a backend that is a peer; `None` for others.
/// `expected` has an expression in Python for each element of the outputs.
///
/// # Errors
/// The peer is not available, or writes no scripts.
pub(crate) fn script(
    backend: &str,
    program: &Program,
    expected: &[String],
) -> Option<Result<String, String>> {
    let (name, _) = named(backend)?;
    let program = gradiff_corpus::to_json(program).map_err(|error| error.to_string());
    Some(program.and_then(|program| {
        let request = json!({ "script": program, "expected": expected });
        Peer::open(name, Turn::ALWAYS)?.script(request)
    }))
}

/// Starts a process and exchanges greetings.
///
/// # Errors
/// No such program, no greeting, or another protocol, in one line.
fn greeted(command: &[String]) -> Result<(Process, Greeting), String> {
    let mut process = Process::start(command)?;
    let answer =
        process.ask(json!({ "gradiff": 1 })).map_err(|outcome| outcome.reason("greeting"))?;
    if answer["gradiff"] != json!(1) {
        return Err(format!("it speaks no protocol 1: {}", cut(&answer.to_string())));
    }
    let greeting = greeting(&answer, &command[0]).map_err(|why| format!("its greeting: {why}"))?;
    Ok((process, greeting))
}

/// Reads the first answer of a peer.
///
/// # Errors
/// A name that does not exist, or a value of another type.
fn greeting(answer: &Value, command: &str) -> Result<Greeting, String> {
    let names = |key: &str, is_known: &dyn Fn(&str) -> bool| -> Result<_, String> {
        let list = match &answer[key] {
            Value::Null => return Ok(None),
            Value::Array(list) => list,
            value => return Err(format!("{key} is no list: {}", cut(&value.to_string()))),
        };
        let name = |word: &Value| match word.as_str() {
            Some(name) if is_known(name) => Ok(name.to_string()),
            _ => Err(format!("{key} has {}, which there is not", cut(&word.to_string()))),
        };
        list.iter().map(name).collect::<Result<Vec<String>, String>>().map(Some)
    };
    let flag = |key: &str| match &answer[key] {
        Value::Null => Ok(true),
        Value::Bool(flag) => Ok(*flag),
        value => Err(format!("{key} is neither true nor false: {}", cut(&value.to_string()))),
    };
    let is_op = |name: &str| gradiff_corpus::names().any(|known| known == name);
    Ok(Greeting {
        name: answer["name"].as_str().map_or_else(|| command.to_string(), cut),
        ops: names("ops", &is_op)?,
        dtypes: names("dtypes", &|name| DType::from_name(name).is_some())?,
        zero_signs: flag("zero_signs")?,
        subnormals: flag("subnormals")?,
        zero_divisors: flag("zero_divisors")?,
        requests: names("requests", &|_| true)?
            .unwrap_or_else(|| vec!["run".into(), "script".into()]),
    })
}

/// The outcome of a program that an answer says.
fn outcome(answer: &Value) -> Result<Outcome, Outcome> {
    let text = |key: &str| answer[key].as_str().map(str::to_string);
    if let Some(reason) = text("skipped") {
        return Ok(Outcome::Skipped(cut(&reason)));
    }
    if let Some(reason) = text("refused") {
        return Ok(Outcome::Refused(cut(&reason)));
    }
    let values = answer["values"].as_array().ok_or_else(|| {
        Outcome::Crash(format!("an answer without values: {}", cut(&answer.to_string())))
    })?;
    let arrays = values.iter().enumerate().map(|(number, value)| {
        array(value).map_err(|why| Outcome::Crash(format!("value {number} of its answer: {why}")))
    });
    arrays.collect::<Result<Vec<Array>, Outcome>>().map(Outcome::Values)
}

/// Reads one of the values of an answer.
///
/// # Errors
/// A missing key, a dtype that does not exist, bytes that do not fit or are no bools.
fn array(value: &Value) -> Result<Array, String> {
    let missing = |key: &str, kind: &str| format!("no {kind} called {key}");
    let name = value["dtype"].as_str().ok_or_else(|| missing("dtype", "text"))?;
    let dtype =
        DType::from_name(name).ok_or_else(|| format!("no dtype is called {}", cut(name)))?;
    let sizes = value["shape"].as_array().ok_or_else(|| missing("shape", "list"))?;
    let size = |size: &Value| usize::try_from(size.as_u64()?).ok();
    let shape: Option<Vec<usize>> = sizes.iter().map(size).collect();
    let shape = shape.ok_or_else(|| format!("the shape {}", cut(&value["shape"].to_string())))?;
    let digits = value["bytes"].as_str().ok_or_else(|| missing("bytes", "text"))?;
    let bytes = bytes(digits).ok_or_else(|| format!("the bytes {}", cut(digits)))?;
    let is_no_bool = |byte: &&u8| dtype == DType::Bool && 1 < **byte;
    if let Some(byte) = bytes.iter().find(is_no_bool) {
        return Err(format!("the byte {byte:02x} is no bool, which is 00 or 01"));
    }
    let count = bytes.len();
    Array::from_bytes(dtype, shape, &bytes).ok_or_else(|| {
        let (name, shape) = (dtype.name(), cut(&value["shape"].to_string()));
        format!("{count} bytes are not the elements of {name} for the shape {shape}")
    })
}

/// The bytes that hexadecimal digits mean.
fn bytes(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| Some(digit(*pair.first()?)? << 4 | digit(*pair.get(1)?)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frameworks_have_versions() {
        for (name, version) in [
            ("tinygrad 0.10.2 on CPU", Some("0.10.2")),
            ("torch.compile of 2.9.1+cpu", Some("2.9.1+cpu")),
            ("onnxruntime 1.20.1 with onnx 1.17.0", Some("1.20.1")),
            ("an engine", None),
        ] {
            assert_eq!(version_in(name), version, "{name}");
        }
        assert_eq!(version_of("tinygrad-llvm@0.14.0:4").as_deref(), Some("0.14.0"));
        assert_eq!(version_of("interp").or(version_of("exec:engine@1.0")), None);
    }

    /// Linux takes no argument of 128 KiB or more.
    #[test]
    fn programs_of_peers_fit_in_an_argument() {
        for row in PEERS {
            assert!(row.text().len() < 120_000, "{}: {} bytes", row.name, row.text().len());
        }
    }
}
