//! The words and flags of the command line.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

/// Random tensor programs on every backend, judged by an independent reference evaluator.
#[derive(Parser, Debug)]
#[command(name = "gradiff", version, about, after_help = EXIT_CODES)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const EXIT_CODES: &str = "Exit codes: 0 nothing found, 1 usage, 2 findings, \
                          3 a backend that was asked for is not available, 70 internal error.";

/// What to do.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Generate programs, run them on every backend, judge, minimise and keep what differs.
    Hunt(Hunt),
    /// Run corpus files and check what they expect.
    Replay(Replay),
    /// Make a failing corpus file smaller; prints the result.
    Reduce(Reduce),
    /// Print what becomes of a corpus file at one stage.
    Show(Show),
    /// Name the first stage at which a failing corpus file goes wrong.
    Blame(Blame),
    /// Check shape trackers: all short sequences on small shapes, then random ones.
    Views(Sweep),
    /// Check index expressions: all small ones, then random ones.
    Exprs(Sweep),
    /// Print generated programs as corpus files, separated by `---`.
    Gen(Gen),
    /// List the backends: there or not, and why.
    Backends,
    /// Serves a hunt; not for people.
    #[command(hide = true)]
    Worker(Worker),
}

/// Flags of `hunt`.
#[derive(clap::Args, Debug, Clone)]
pub struct Hunt {
    /// Stop after so many seconds (60 unless --programs is given).
    #[arg(long)]
    pub seconds: Option<u64>,
    /// Stop after so many programs.
    #[arg(long)]
    pub programs: Option<u64>,
    /// The seed; the same seed and count give the same programs.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Backends, separated by commas (default: all that are there); see `gradiff backends`.
    #[arg(long, value_delimiter = ',')]
    pub backends: Vec<String>,
    /// Draw from these lanes only, separated by commas.
    #[arg(long, value_delimiter = ',')]
    pub lanes: Vec<String>,
    /// Processes side by side (default: one for each core).
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=256))]
    pub jobs: Option<u64>,
    /// Where findings are written.
    #[arg(long, default_value = "findings")]
    pub findings: PathBuf,
    /// Stop after so many different findings.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    pub max_findings: u64,
    /// Seconds after which one program counts as hung.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    pub timeout: u64,
    /// Print a summary as one JSON object.
    #[arg(long)]
    pub json: bool,
    /// Switch a planted fault on: the hunt must find it.
    #[arg(long)]
    pub fault: Option<String>,
    /// Hunt every planted fault in turn and print the time to find each.
    #[arg(long, conflicts_with = "fault")]
    pub faults: bool,
}

/// Flags of `replay`.
#[derive(clap::Args, Debug)]
pub struct Replay {
    /// Corpus files, or folders of them.
    #[arg(required = true)]
    pub files: Vec<PathBuf>,
    /// Backends, separated by commas (default: all that are there).
    #[arg(long, value_delimiter = ',')]
    pub backends: Vec<String>,
    /// Switch a planted fault on.
    #[arg(long)]
    pub fault: Option<String>,
    /// Seconds after which one program counts as hung.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    pub timeout: u64,
}

/// Flags of `reduce`.
#[derive(clap::Args, Debug)]
pub struct Reduce {
    /// A corpus file that fails.
    pub file: PathBuf,
    /// Backends, separated by commas (default: all that are there).
    #[arg(long, value_delimiter = ',')]
    pub backends: Vec<String>,
    /// Switch a planted fault on.
    #[arg(long)]
    pub fault: Option<String>,
    /// Seconds after which one program counts as hung.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    pub timeout: u64,
}

/// Flags of `show`.
#[derive(clap::Args, Debug)]
pub struct Show {
    /// A corpus file.
    pub file: PathBuf,
    /// Which stage: program, graph, schedule, kernel, uops or c.
    #[arg(long, default_value = "c")]
    pub stage: String,
}

/// Flags of `blame`.
#[derive(clap::Args, Debug)]
pub struct Blame {
    /// A corpus file that fails.
    pub file: PathBuf,
    /// Backends, separated by commas (default: all that are there).
    #[arg(long, value_delimiter = ',')]
    pub backends: Vec<String>,
    /// Switch a planted fault on.
    #[arg(long)]
    pub fault: Option<String>,
    /// Seconds after which one program counts as hung.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    pub timeout: u64,
}

/// Flags of `views` and `exprs`.
#[derive(clap::Args, Debug)]
pub struct Sweep {
    /// How many random cases.
    #[arg(long, default_value_t = 100_000)]
    pub cases: u64,
    /// Skip the enumeration of all small cases.
    #[arg(long)]
    pub random_only: bool,
    /// The seed of the random cases.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Where findings are written.
    #[arg(long, default_value = "findings")]
    pub findings: PathBuf,
    /// Switch a planted fault on.
    #[arg(long)]
    pub fault: Option<String>,
}

/// Flags of `gen`.
#[derive(clap::Args, Debug)]
pub struct Gen {
    /// How many programs.
    #[arg(long, default_value_t = 1)]
    pub count: u64,
    /// The seed.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// The number of the first one.
    #[arg(long, default_value_t = 0)]
    pub first: u64,
    /// Draw from these lanes only, separated by commas.
    #[arg(long, value_delimiter = ',')]
    pub lanes: Vec<String>,
}

/// Flags of a worker, set by its parent.
#[derive(clap::Args, Debug)]
pub struct Worker {
    /// The seed of the hunt.
    #[arg(long)]
    pub seed: u64,
    /// Backends.
    #[arg(long, value_delimiter = ',')]
    pub backends: Vec<String>,
    /// Lanes; none means all.
    #[arg(long, value_delimiter = ',')]
    pub lanes: Vec<String>,
    /// A planted fault.
    #[arg(long)]
    pub fault: Option<String>,
}
