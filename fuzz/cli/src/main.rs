//! The `gradiff` command: what each word does, and the exit codes.

// All output passes through `out`.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod args;
mod case;
mod coverage;
mod cpu;
mod faults;
mod findings;
mod hunt;
mod interrupt;
mod opts;
mod orphan;
mod out;
mod pool;
mod progress;
mod prove;
mod replay;
mod rules;
mod sabotage;
mod sequence;
mod snap;
mod sweep;
mod whole;
mod worker;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

use args::{Args, Command};
use out::errln;

/// Checks allocate small things by the million; this allocator gives them out faster.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How a run ended; the numbers are the exit codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Status {
    /// Nothing was found.
    Clean = 0,
    /// Something was found.
    Findings = 2,
    /// Nothing was found, but not all could run: the machine failed.
    Environment = 3,
}

/// Why a run did not take place or did not end.
#[derive(Debug)]
pub(crate) enum Failure {
    /// What was asked for cannot be done: flags, files, cases.
    Usage(String),
    /// The machine fails, or has no such backend; it says nothing of the engine.
    Environment(String),
    /// The oracle fails on a canary: nothing that it says counts.
    Oracle(String),
    /// It was asked to end before it was done.
    Interrupted,
    /// gradiff itself failed.
    Internal(String),
}

impl Failure {
    fn code(&self) -> u8 {
        match self {
            Failure::Usage(_) => 1,
            Failure::Oracle(_) => 2,
            Failure::Environment(_) => 3,
            Failure::Interrupted => interrupt::code().unwrap_or(130),
            Failure::Internal(_) => 70,
        }
    }

    fn message(&self) -> &str {
        match self {
            Failure::Usage(text)
            | Failure::Environment(text)
            | Failure::Oracle(text)
            | Failure::Internal(text) => text,
            Failure::Interrupted => "interrupted",
        }
    }
}

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) if error.use_stderr() => {
            // Nothing is left to say if even this cannot be written.
            let _ = error.print();
            return ExitCode::from(1);
        }
        Err(help) => match help.print().and_then(|()| std::io::stdout().flush()) {
            Ok(()) => return ExitCode::SUCCESS,
            Err(error) => out::end(&error),
        },
    };
    let run = std::panic::catch_unwind(|| match &args.fault {
        Some(name) => faults::rerun(name, &args),
        None => run(args).map(|status| status as u8),
    });
    match run {
        // What was found stands; all else of a run that was interrupted is not the whole.
        Ok(Ok(code)) if code == Status::Findings as u8 => ExitCode::from(code),
        Ok(Ok(code)) => ExitCode::from(interrupt::code().unwrap_or(code)),
        Ok(Err(failure)) => {
            errln!("gradiff: {}", failure.message());
            ExitCode::from(failure.code())
        }
        Err(_) => {
            errln!("gradiff: internal error (the panic above); please report it with the seed");
            ExitCode::from(70)
        }
    }
}

fn run(args: Args) -> Result<Status, Failure> {
    let faults_from = args.faults_from.as_deref();
    if let (Some(parent), false) = (args.parent, matches!(args.command, Command::Worker(_))) {
        orphan::end_with(parent);
    }
    match args.command {
        Command::Hunt(options) if options.faults => faults::measure::measure(&options, faults_from),
        Command::Hunt(options) => hunt::hunt(&options),
        Command::Replay(options) => replay::replay(&options),
        Command::Reduce(options) => replay::reduce(&options),
        Command::Show(options) => replay::show(&options),
        Command::Blame(options) => replay::blame(&options),
        Command::Opts(options) => opts::measure(&options),
        Command::Snap(options) => snap::snap(&options),
        Command::Views(options) => sweep::views(&options),
        Command::Exprs(options) => sweep::exprs(&options),
        Command::Sabotage(options) => sabotage::measure(&options),
        Command::Prove(options) => prove::prove(&options),
        Command::Rules(options) => rules::rules(&options),
        Command::Gen(options) => sweep::generate(&options),
        Command::Coverage(options) => coverage::measure(&options),
        Command::Faults(options) => faults::list(&options, faults_from),
        Command::Backends => replay::backends(),
        Command::Worker(options) => worker::serve(&options, args.parent),
    }
}
