//! The trait of everything that can run a program.

use gradiff_corpus::{Array, Program};

/// Result of one program on one backend.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The outputs, in order.
    Values(Vec<Array>),
    /// The program was skipped, for this reason, which only its kernels reveal.
    Skipped(String),
    /// The backend refused a well-formed program, for this reason.
    Refused(String),
    /// It panicked or died, with its last message.
    Crash(String),
    /// It could not run here and now, for reasons that say nothing about the engine: no space left,
    /// a compiler that was killed, a device that was lost.
    Environment(String),
    /// It gave no answer within this many seconds.
    Timeout(u64),
}

impl Outcome {
    /// Returns in words why there is no `thing`, such as an answer.
    pub(crate) fn reason(self, thing: &str) -> String {
        match self {
            Outcome::Timeout(seconds) => format!("no {thing} within {seconds} s"),
            Outcome::Crash(reason) | Outcome::Environment(reason) => reason,
            Outcome::Skipped(reason) => format!("skipped: {reason}"),
            Outcome::Refused(reason) => format!("refused: {reason}"),
            Outcome::Values(_) => format!("values in place of the {thing}"),
        }
    }
}

/// The bits of floats that a backend keeps where it moves and computes them, and what it defines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// If not, a zero of either sign is right where one is expected.
    pub zero_signs: bool,
    /// If not, any NaN is right where one is expected.
    pub nan_bits: bool,
    /// If not, a zero is right where a subnormal number is expected.
    pub subnormals: bool,
    /// If not, an integer divided by zero may give anything.
    pub zero_divisors: bool,
}

impl Kept {
    /// Everything.
    pub const ALL: Kept =
        Kept { zero_signs: true, nan_bits: true, subnormals: true, zero_divisors: true };
}

/// Something that runs programs. Each configuration of the engine is a backend of its own.
pub trait Backend {
    /// The name, unique among all backends: `interp`, `jit`, `c`, `interp/unfused`, ...
    fn name(&self) -> &str;

    /// Returns the reason why this program cannot be run here; `None` if it can. That is a skip,
    /// not a failure.
    fn supports(&self, program: &Program) -> Option<String>;

    /// Returns whether it runs the program of this number in a hunt; other backends run the others.
    fn takes(&self, program: u64) -> bool {
        let _ = program;
        true
    }

    /// Returns the bits of floats that the backend keeps.
    fn kept(&self) -> Kept {
        Kept::ALL
    }

    /// Returns whether results are those of strict mode, which are the same bits everywhere.
    fn is_strict(&self) -> bool {
        false
    }

    /// Runs the programs and returns one outcome for each. It takes many, so that a compiler can be
    /// called once for them.
    fn run(&self, programs: &[&Program]) -> Vec<Outcome>;
}
