//! Kernels beside the limits of the machine (`limits.c`).

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

/// The quantile `part` of `values`.
pub(crate) fn quantile(values: impl Iterator<Item = f64>, part: f64) -> f64 {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    sorted[((sorted.len() - 1) as f64 * part).round() as usize]
}

/// The resource that limits a kernel.
#[derive(Clone, Copy)]
pub(crate) enum Unit {
    MultiplyAdd,
    ByteRead,
    /// A byte read or written.
    ByteMoved,
}

impl Unit {
    /// The name in `limits.c`.
    fn name(self) -> &'static str {
        match self {
            Unit::MultiplyAdd => "multiply-add",
            Unit::ByteRead => "read",
            Unit::ByteMoved => "moved",
        }
    }

    /// Formats the rate of a limit, from the seconds for one unit.
    pub(crate) fn rate(self, seconds: f64) -> String {
        match self {
            Unit::MultiplyAdd => format!("{:.1} GFLOP/s", 2e-9 / seconds),
            Unit::ByteRead => format!("{:.1} GB/s read", 1e-9 / seconds),
            Unit::ByteMoved => format!("{:.1} GB/s moved", 1e-9 / seconds),
        }
    }
}

/// The running program `limits.c`, compiled for this machine.
pub(crate) struct Meter {
    program: Child,
    answers: BufReader<ChildStdout>,
    _folder: tempfile::TempDir,
}

impl Meter {
    pub(crate) fn new() -> Result<Meter, Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let [source, program] = ["limits.c", "limits"].map(|name| folder.path().join(name));
        std::fs::write(&source, include_str!("../limits.c"))?;
        let mut compiler = Command::new(std::env::var("CC").unwrap_or("cc".to_owned()));
        compiler.args(["-O3", "-march=native", "-o"]).arg(&program).arg(&source);
        let status = compiler.status()?;
        if !status.success() {
            return Err(format!("the C compiler ended with {status} for limits.c").into());
        }
        let mut program =
            Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let answers = BufReader::new(program.stdout.take().ok_or("no pipe")?);
        Ok(Meter { program, answers, _folder: folder })
    }

    /// Measures the seconds for one unit.
    pub(crate) fn measure(&mut self, unit: Unit) -> Result<f64, Box<dyn std::error::Error>> {
        let input = self.program.stdin.as_mut().ok_or("no pipe")?;
        writeln!(input, "{}", unit.name())?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer)?;
        Ok(answer.trim().parse().map_err(|_| format!("limits.c printed {answer:?}"))?)
    }
}
