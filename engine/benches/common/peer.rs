//! PyTorch as a peer of benches, in a process of its own (`suite.py`).

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

/// The running `suite.py`.
pub(crate) struct Python {
    program: Child,
    answers: BufReader<ChildStdout>,
}

impl Python {
    /// Starts it with tensors on this device of PyTorch, if `GRADIFF_PYTHON` names a Python that
    /// has PyTorch.
    pub(crate) fn new(device: &str) -> Option<Python> {
        let python = std::env::var("GRADIFF_PYTHON").ok()?;
        let has_torch = Command::new(&python).args(["-c", "import torch"]).output().ok()?;
        if !has_torch.status.success() {
            println!("{python} has no PyTorch");
            return None;
        }
        let mut command = Command::new(python);
        command.args(["-c", include_str!("../suite.py"), device]);
        let mut program = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().ok()?;
        let answers = BufReader::new(program.stdout.take()?);
        Some(Python { program, answers })
    }

    /// Sends a line; returns the numbers of the answer.
    ///
    /// # Errors
    /// The text that it answers instead.
    pub(crate) fn ask(&mut self, line: &str) -> Result<Vec<f64>, String> {
        let input = self.program.stdin.as_mut().ok_or("no pipe")?;
        writeln!(input, "{line}").map_err(|error| error.to_string())?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer).map_err(|error| error.to_string())?;
        let numbers = answer.split_whitespace().map(str::parse).collect::<Result<Vec<f64>, _>>();
        numbers.ok().filter(|numbers| !numbers.is_empty()).ok_or(answer.trim().to_owned())
    }
}
