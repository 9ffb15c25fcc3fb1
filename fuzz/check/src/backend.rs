//! The one door to everything that can run a program.

use gradiff_corpus::{Array, Program};

/// What came of one program on one backend.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The outputs, in order.
    Values(Vec<Array>),
    /// The program was left out, and why: a skip that only its kernels tell.
    Skipped(String),
    /// The backend said no to a well-formed program, and why.
    Refused(String),
    /// It panicked or died, with what it said last.
    Crash(String),
    /// It could not run here and now, for reasons that say nothing of the engine: no space left, a
    /// compiler that is killed, a device that is lost.
    Environment(String),
    /// It gave no answer within this many seconds.
    Timeout(u64),
}

/// Something that runs programs. Every way to run the one engine is a backend of its own.
pub trait Backend {
    /// The name, unique among the backends at hand: `interp`, `jit`, `c`, `interp/unfused`, ...
    fn name(&self) -> &str;

    /// Why this program cannot be run here; `None` if it can. A skip, not a failure.
    fn supports(&self, program: &Program) -> Option<String>;

    /// Whether it runs this program of a hunt, given by its number; the others are other backends'.
    fn takes(&self, program: u64) -> bool {
        let _ = program;
        true
    }

    /// Whether zeros keep their sign. Without it either zero is right where one of them is.
    fn keeps_zero_signs(&self) -> bool {
        true
    }

    /// Whether results are those of strict mode, which are the same bits everywhere.
    fn is_strict(&self) -> bool {
        false
    }

    /// Runs the programs, one outcome each. Together, so that a compiler can be called once.
    fn run(&self, programs: &[&Program]) -> Vec<Outcome>;
}
