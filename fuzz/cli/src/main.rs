//! The `gradiff` command: what each word does, and the exit codes.

mod args;
mod case;
mod coverage;
mod cpu;
mod faults;
mod findings;
mod hunt;
mod interrupt;
mod opts;
mod pool;
mod progress;
mod prove;
mod replay;
mod rules;
mod sabotage;
mod snap;
mod sweep;
mod worker;

use std::process::ExitCode;

use clap::Parser;

use args::{Args, Command};

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
}

/// Why a run did not take place or did not end.
#[derive(Debug)]
pub(crate) enum Failure {
    /// What was asked for cannot be done: flags, files, cases.
    Usage(String),
    /// A backend that was asked for is not to be had.
    Backend(String),
    /// The oracle fails on a canary: nothing that it says counts.
    Oracle(String),
    /// gradiff itself failed.
    Internal(String),
}

impl Failure {
    fn code(&self) -> u8 {
        match self {
            Failure::Usage(_) => 1,
            Failure::Oracle(_) => 2,
            Failure::Backend(_) => 3,
            Failure::Internal(_) => 70,
        }
    }

    fn message(&self) -> &str {
        match self {
            Failure::Usage(text)
            | Failure::Backend(text)
            | Failure::Oracle(text)
            | Failure::Internal(text) => text,
        }
    }
}

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            let code = if error.use_stderr() { 1 } else { 0 };
            // Nothing is left to say if even this cannot be written.
            let _ = error.print();
            return ExitCode::from(code);
        }
    };
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !is_unread(panic.payload()) {
            hook(panic);
        }
    }));
    let run = std::panic::catch_unwind(|| match &args.fault {
        Some(name) => faults::rerun(name, &args),
        None => run(args).map(|status| status as u8),
    });
    match run {
        Ok(Ok(code)) => ExitCode::from(code),
        Ok(Err(failure)) => {
            eprintln!("gradiff: {}", failure.message());
            ExitCode::from(failure.code())
        }
        Err(panic) if is_unread(&*panic) => ExitCode::from(UNREAD),
        Err(_) => {
            eprintln!("gradiff: internal error (the panic above); please report it with the seed");
            ExitCode::from(70)
        }
    }
}

/// The exit code of a run whose output nobody reads any more: that of a program ended by SIGPIPE.
const UNREAD: u8 = 141;

/// Whether a panic says that standard output was closed, as `gradiff rules | head` does.
fn is_unread(payload: &(dyn std::any::Any + Send)) -> bool {
    let text = payload.downcast_ref::<String>();
    text.is_some_and(|text| {
        text.starts_with("failed printing to stdout") && text.contains("Broken pipe")
    })
}

fn run(args: Args) -> Result<Status, Failure> {
    let faults_from = args.faults_from.as_deref();
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
        Command::Worker(options) => worker::serve(&options),
    }
}
