//! The real compilers: finds them, and checks whether they accept a text.

use std::io::Write;
use std::process::{Command, Output};

use gradiff_skip::or_skip;
use naga::valid::{Capabilities, ValidationFlags, Validator};

/// A compiler that checks the texts of a language.
pub(crate) struct Compiler {
    /// The language, as in the table of languages.
    pub(crate) language: &'static str,
    /// The name in reports.
    pub(crate) name: &'static str,
    /// Returns the program, or `None`, which is counted as a skip.
    pub(crate) find: fn() -> Option<String>,
    check: Check,
}

enum Check {
    /// The command that checks a file of all kernels: program as found, path of the file.
    Command(fn(&str, &str) -> Command),
    /// Each kernel alone, in process.
    InProcess(fn(&str) -> Result<(), String>),
}

/// All compilers.
pub(crate) const COMPILERS: &[Compiler] = &[
    Compiler {
        language: "c",
        name: "gcc",
        find: || first("gcc", &["gcc"]),
        check: Check::Command(c_command),
    },
    Compiler { language: "c", name: "clang", find: find_clang, check: Check::Command(c_command) },
    Compiler {
        language: "cuda",
        name: "NVRTC for sm_80",
        find: || nvidia("nvrtc"),
        check: Check::Command(|_, file| python(&[SCRIPT, "nvrtc", "80", file])),
    },
    Compiler {
        language: "cuda",
        name: "NVRTC for sm_90",
        find: || nvidia("nvrtc"),
        check: Check::Command(|_, file| python(&[SCRIPT, "nvrtc", "90", file])),
    },
    Compiler {
        language: "opencl",
        name: "clang for OpenCL C",
        find: find_clang,
        check: Check::Command(|program, file| {
            let flags = ["-x", "cl", "-cl-std=CL1.2", "-fsyntax-only", "-Xclang"];
            with(
                program,
                &[&flags[..], &["-finclude-default-header", "-Werror", "-w", file]].concat(),
            )
        }),
    },
    Compiler {
        language: "metal",
        name: "clang++ with stand-ins for Metal",
        find: find_clang,
        check: Check::Command(|program, file| {
            let flags = ["-x", "c++", "-std=c++17", "-fsyntax-only", "-w"];
            with(program, &[&flags[..], &[STAND_INS, file]].concat())
        }),
    },
    Compiler {
        language: "llvm",
        name: "LLVM's opt",
        find: || first("opt", &["opt-19", "opt-18", "opt-17", "opt-16", "opt-15"]),
        check: Check::Command(|program, file| {
            with(program, &["-passes=verify,default<O1>", "-o", "/dev/null", file])
        }),
    },
    Compiler {
        language: "ptx",
        name: "ptxas for sm_80",
        find: || nvidia("ptxas"),
        check: Check::Command(|program, file| {
            with(program, &["-arch=sm_80", "-O0", "-o", "/dev/null", file])
        }),
    },
    Compiler {
        language: "ptx",
        name: "ptxas for sm_90",
        find: || nvidia("ptxas"),
        check: Check::Command(|program, file| {
            with(program, &["-arch=sm_90", "-O0", "-o", "/dev/null", file])
        }),
    },
    Compiler {
        language: "wgsl",
        name: "naga",
        find: || Some("naga".into()),
        check: Check::InProcess(|text| naga_check(text, EXTENDED)),
    },
    Compiler {
        language: "wgsl-core",
        name: "naga without extensions",
        find: || Some("naga".into()),
        check: Check::InProcess(|text| naga_check(text, Capabilities::empty())),
    },
];

/// The capabilities of the devices that the extended dialect is for.
const EXTENDED: Capabilities =
    Capabilities::SHADER_FLOAT16.union(Capabilities::SHADER_INT64).union(Capabilities::FLOAT64);

fn naga_check(text: &str, capabilities: Capabilities) -> Result<(), String> {
    let module = naga::front::wgsl::parse_str(text).map_err(|why| why.emit_to_string(text))?;
    let mut validator = Validator::new(ValidationFlags::all(), capabilities);
    validator.validate(&module).map(drop).map_err(|why| why.emit_to_string(text))
}

/// The include flag for the harness's host versions of the headers of CUDA and Metal.
pub(crate) const STAND_INS: &str =
    concat!("-I", env!("CARGO_MANIFEST_DIR"), "/../../fuzz/check/src/backends/texts/stand_ins");

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/accept/nvidia.py");

fn with(program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments);
    command
}

/// Warnings about invalid C are errors.
fn c_command(program: &str, file: &str) -> Command {
    let errors = ["implicit-function-declaration", "int-conversion", "incompatible-pointer-types"];
    let errors = errors.map(|name| format!("-Werror={name}"));
    let mut command = with(program, &["-std=c99", "-march=native", "-fsyntax-only", "-fwrapv"]);
    command.args(errors).arg(file);
    command
}

/// Returns the first program that can be run.
pub(crate) fn first(requirement: &str, programs: &[&str]) -> Option<String> {
    let runs = |program: &&str| Command::new(program).arg("--version").output().is_ok();
    let found = programs.iter().find(|program| runs(program));
    let found = found.map(|program| program.to_string());
    or_skip(requirement, found.ok_or(format!("none of {}", programs.join(", "))))
}

/// Finds a clang that supports opaque pointers and `_Float16`.
pub(crate) fn find_clang() -> Option<String> {
    let version = |program: &str| {
        let output = Command::new(program).arg("--version").output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let number = text.split_once("clang version ")?.1.split('.').next()?;
        number.parse::<u32>().ok()
    };
    let programs = ["clang", "clang-19", "clang-18", "clang-17", "clang-16"];
    let found = programs.into_iter().find(|program| version(program) >= Some(16));
    or_skip("clang", found.map(String::from).ok_or("no clang of version 16 or later"))
}

/// A command of the Python that has NVIDIA's wheels: `GRADIFF_PYTHON`, or python3.
fn python(arguments: &[&str]) -> Command {
    let program = std::env::var("GRADIFF_PYTHON").unwrap_or("python3".into());
    with(&program, arguments)
}

fn nvidia(tool: &str) -> Option<String> {
    let find = || -> Result<String, String> {
        let output = python(&[SCRIPT, "find", tool]).output().map_err(|error| error.to_string())?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_string()),
            false => Err(message(&output)),
        }
    };
    or_skip(tool, find())
}

fn message(output: &Output) -> String {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&text).trim().to_string()
}

impl Compiler {
    /// Returns whether kernels are checked one by one.
    pub(crate) fn takes_single_kernels(&self) -> bool {
        matches!(self.check, Check::InProcess(_))
    }

    /// Checks a text; returns the compiler's message if it refuses it.
    pub(crate) fn check(&self, program: &str, text: &str, extension: &str) -> Result<(), String> {
        let command = match self.check {
            Check::InProcess(check) => return check(text),
            Check::Command(command) => command,
        };
        let suffix = format!(".{extension}");
        let mut file = tempfile::Builder::new().suffix(&suffix).tempfile().expect("a file");
        file.write_all(text.as_bytes()).expect("the text is written");
        let path = file.path().to_string_lossy().into_owned();
        let output = command(program, &path).output().map_err(|error| error.to_string())?;
        if output.status.success() { Ok(()) } else { Err(message(&output)) }
    }
}
