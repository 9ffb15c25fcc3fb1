//! The `gradiff` command: dispatches to the commands and gives the exit codes.

// All output passes through `out`.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod args;
mod bisect;
mod case;
mod compare;
mod coverage;
mod cpu;
mod faults;
mod findings;
mod hunt;
mod interrupt;
mod known;
mod opts;
mod orphan;
mod out;
mod peers;
mod pool;
mod progress;
mod prove;
mod replay;
mod rules;
mod sabotage;
mod sequence;
mod snap;
mod sweep;
mod upstream;
mod whole;
mod worker;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

use args::{Args, Command};
use out::errln;

/// Checks allocate millions of small objects, for which this allocator is faster.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Result of a run; the numbers are the exit codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Status {
    /// Nothing was found.
    Clean = 0,
    /// Something was found.
    Findings = 2,
    /// Nothing was found, but some programs could not run: the machine failed.
    Environment = 3,
}

/// Reason why a run did not start or did not finish.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The request cannot be carried out: flags, files, cases.
    Usage(String),
    /// The machine fails, or has no such backend; this says nothing about the engine.
    Environment(String),
    /// The oracle fails on a canary: none of its judgements count.
    Oracle(String),
    /// An end was requested before the run was done.
    Interrupted,
    /// gradiff itself failed.
    Internal(String),
}

impl Failure {
    fn code(&self) -> u8 {
        match self {
            Failure::Usage(_) => 1,
            Failure::Oracle(_) => 2,
            // Peers that the request to end has ended are not the machine's fault.
            Failure::Environment(_) => interrupt::code().unwrap_or(3),
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
            // A failure to write this cannot be reported.
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
    gradiff_check::close_peers();
    match run {
        // Findings count even in an interrupted run; its other results are incomplete.
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
        Command::Compare(options) => compare::compare(&options),
        Command::Bisect(options) => bisect::bisect(&options),
        Command::Sabotage(options) => sabotage::measure(&options),
        Command::Prove(options) => prove::prove(&options),
        Command::Rules(options) => rules::rules(&options),
        Command::Gen(options) => sweep::generate(&options),
        Command::Coverage(options) => coverage::measure(&options),
        Command::Faults(options) => faults::list(&options, faults_from),
        Command::Backends => replay::backends(),
        Command::Peers(options) => peers::peers(&options),
        Command::Worker(options) => worker::serve(&options, args.parent),
    }
}
