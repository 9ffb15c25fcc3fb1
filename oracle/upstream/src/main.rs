//! tinygrad in a Python interpreter within this process, as an engine that gradiff judges: lines of
//! JSON on standard input, answers on standard output, as `fuzz/peers/README.md` describes.
//!
//! The adapter is the one of the peer `tinygrad`.

use std::error::Error;
use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::{Parser, ValueEnum};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// The texts of the adapter, in the order in which they run.
const ADAPTER: [&str; 5] = [
    include_str!("../../../fuzz/peers/peer.py"),
    include_str!("../../../fuzz/peers/on_tinygrad.py"),
    include_str!("../../../fuzz/peers/tinygrad_index.py"),
    include_str!("../../../fuzz/peers/tinygrad_kernels.py"),
    "serve(ADAPTER)",
];

/// Prints the version of an interpreter and the folders that it takes modules from.
const DESCRIPTION: &str =
    "import sys; print('%d.%d' % sys.version_info[:2], *sys.path[1:], sep='\\n')";

/// Runs programs on tinygrad, in a Python within this process, for gradiff.
#[derive(Parser)]
#[command(version)]
struct Options {
    /// The interpreter whose packages are taken, tinygrad and NumPy; without it those of the Python
    /// that this program was built with
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

impl Device {
    /// The name that the adapter takes.
    fn name(self) -> &'static str {
        match self {
            Device::Cpu => "CPU",
            Device::Llvm => "LLVM",
            Device::Python => "PYTHON",
        }
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    Python::initialize();
    match Python::attach(|python| serve(python, &options)) {
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
/// An interpreter that does not fit, a Python without tinygrad, a request that is no JSON, or a
/// standard output that is closed.
fn serve(python: Python<'_>, options: &Options) -> Result<(), Box<dyn Error>> {
    if let Some(interpreter) = &options.python {
        take_packages(python, interpreter)?;
    }
    let names = PyDict::new(python);
    names.set_item("DEVICE", options.device.name())?;
    ADAPTER.iter().try_for_each(|text| {
        // An error with its traceback, which names the line of the adapter.
        let ran = python.run(&CString::new(*text)?, Some(&names), None);
        ran.map_err(|error| {
            error.print(python);
            error.into()
        })
    })
}

/// Imports modules from where this interpreter does.
///
/// # Errors
/// If it does not run, or is of another version than the Python in this process.
fn take_packages(python: Python<'_>, interpreter: &Path) -> Result<(), Box<dyn Error>> {
    let name = interpreter.display();
    let output = Command::new(interpreter)
        .args(["-c", DESCRIPTION])
        .output()
        .map_err(|error| format!("{name}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{name} describes no Python: {}", output.status).into());
    }
    let text = String::from_utf8(output.stdout)?;
    let mut lines = text.lines();
    let info = python.version_info();
    let (version, found) = (format!("{}.{}", info.major, info.minor), lines.next().unwrap_or(""));
    if found != version {
        return Err(format!(
            "{name} is Python {found}, but this program was built with Python {version}: \
             PYO3_PYTHON names the one to build it with"
        )
        .into());
    }
    let system = python.import("sys")?;
    system.setattr("path", lines.collect::<Vec<&str>>())?;
    system.setattr("executable", std::path::absolute(interpreter)?.into_os_string())?;
    Ok(())
}
