//! tinygrad in a Python interpreter within this process, as an engine that gradiff judges: lines of
//! JSON on standard input, answers on standard output, as `fuzz/peers/README.md` describes.
//!
//! The adapter is the one of the peer `tinygrad`. Requests become Python objects here, so that
//! Python neither reads nor writes JSON.

use std::error::Error;
use std::ffi::CString;
use std::fs::File;
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde_json::Value;

/// The texts of the adapter, in the order in which they run.
const ADAPTER: [&str; 4] = [
    include_str!("../../../fuzz/peers/peer.py"),
    include_str!("../../../fuzz/peers/on_tinygrad.py"),
    include_str!("../../../fuzz/peers/tinygrad_index.py"),
    include_str!("../../../fuzz/peers/tinygrad_kernels.py"),
];

/// Runs programs on tinygrad, in a Python within this process, for gradiff.
#[derive(Parser)]
struct Options {
    /// The interpreter of the environment that has tinygrad and NumPy; without it, those of the
    /// Python that this program was built with
    #[arg(long, value_name = "PATH", env = "GRADIFF_PYTHON")]
    python: Option<PathBuf>,
    /// The device that tinygrad runs on
    #[arg(long, value_enum, default_value = "cpu")]
    device: Device,
}

#[derive(Clone, Copy, ValueEnum)]
enum Device {
    Cpu,
    Llvm,
    Python,
}

fn main() -> ExitCode {
    match serve(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("gradiff-upstream: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Answers requests until standard input ends.
///
/// # Errors
/// An environment that does not fit, a Python without tinygrad, or a request that is no JSON.
fn serve(options: &Options) -> Result<(), Box<dyn Error>> {
    // The answers have standard output for themselves: what tinygrad prints goes to standard error.
    let mut answers = File::from(rustix::io::dup(rustix::stdio::stdout())?);
    Python::initialize();
    Python::attach(|python| {
        if let Some(interpreter) = &options.python {
            enter(python, interpreter)?;
        }
        let names = adapter(python, options.device)?;
        let respond = names.get_item("respond")?.ok_or("the adapter has no function `respond`")?;
        let adapter = names.get_item("ADAPTER")?.ok_or("the adapter defines no ADAPTER")?;
        for line in std::io::stdin().lock().lines() {
            let request: Value = serde_json::from_str(&line?)?;
            let request = pythonize::pythonize(python, &request)?;
            let answer = respond.call1((&adapter, request))?;
            let answer: Value = pythonize::depythonize(&answer)?;
            writeln!(answers, "{answer}")?;
        }
        Ok(())
    })
}

/// Runs the adapter's text; gives the names that it defines.
fn adapter(python: Python<'_>, device: Device) -> Result<Bound<'_, PyDict>, Box<dyn Error>> {
    let device = match device {
        Device::Cpu => "CPU",
        Device::Llvm => "LLVM",
        Device::Python => "PYTHON",
    };
    let names = PyDict::new(python);
    names.set_item("DEVICE", device)?;
    for text in ADAPTER {
        python.run(&CString::new(text)?, Some(&names), None)?;
    }
    Ok(names)
}

/// Takes the packages of the environment of this interpreter.
///
/// # Errors
/// If it is of no environment, or of one of another version of Python than the one in this process.
fn enter(python: Python<'_>, interpreter: &Path) -> Result<(), Box<dyn Error>> {
    let environment = interpreter.parent().and_then(Path::parent);
    let settings = environment.map(|folder| folder.join("pyvenv.cfg"));
    let (Some(environment), Some(Ok(settings))) =
        (environment, settings.map(std::fs::read_to_string))
    else {
        let path = interpreter.display();
        return Err(format!("{path} is not the interpreter of a Python environment").into());
    };
    let version = python.version_info();
    let version = format!("{}.{}", version.major, version.minor);
    // `version = 3.11.7`, or `version_info` of environments that other tools make.
    let is_same = settings.lines().filter_map(|line| line.split_once('=')).any(|(key, value)| {
        key.trim().starts_with("version") && value.trim().starts_with(&format!("{version}."))
    });
    if !is_same {
        return Err(format!(
            "{} is an environment of another Python than {version}, which this program was built \
             with; PYO3_PYTHON chooses another one for building it",
            environment.display()
        )
        .into());
    }
    let packages = environment.join("lib").join(format!("python{version}")).join("site-packages");
    python.import("site")?.call_method1("addsitedir", (packages,))?;
    python.import("sys")?.setattr("executable", interpreter)?;
    Ok(())
}
