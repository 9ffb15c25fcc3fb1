//! The words and flags of the command line.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

/// Random tensor programs on every backend, judged by an independent reference evaluator.
#[derive(Parser, Debug)]
#[command(name = "gradiff", version, about, after_help = EXIT_CODES)]
pub(crate) struct Args {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
    /// Run an engine with this planted fault; see `gradiff faults`.
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) fault: Option<String>,
    /// The process that started it, with which it ends.
    #[arg(long, global = true, hide = true)]
    pub(crate) parent: Option<u32>,
    /// Take planted faults from this file or folder, not from fuzz/faults.
    #[arg(long, global = true, value_name = "PATH")]
    pub(crate) faults_from: Option<PathBuf>,
}

const EXIT_CODES: &str = "\
Exit codes:
    0  nothing found
    1  usage: flags, files, or a run of nothing (see --allow-empty)
    2  findings, also if the run was interrupted or the machine failed besides
    3  no findings, but the machine failed (no space left, a compiler that is killed, ...),
       or a backend or device that was asked for is not there
   70  internal error
   74  standard output cannot be written
  130  interrupted by Ctrl-C (129 by SIGHUP, 143 by SIGTERM), nothing found until then
  141  standard output is no longer read";

/// One name of a list that is separated by commas; blanks around it do not count.
fn word(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("a name is missing".to_string()),
        word => Ok(word.to_string()),
    }
}

/// What to do.
#[derive(Subcommand, Debug)]
pub(crate) enum Command {
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
    /// Run each kernel of a program under all short and some long sequences of optimisations.
    Opts(Opts),
    /// Compare reviewed snapshots with those of a revision or of another folder.
    Snap(Snap),
    /// Check shape trackers: all short sequences on small shapes, then random ones.
    Views(Sweep),
    /// Check index expressions: all small ones, then random ones.
    Exprs(Sweep),
    /// Change one rewrite rule at a time and count how many changes the harness notices.
    Sabotage(Sabotage),
    /// Settle rewrite rules: proofs by z3, small cases by exhaustion; keeps the ledger.
    Prove(Prove),
    /// List rewrite rules: claim, condition, source, verdict, how often the corpus fires them.
    Rules(Rules),
    /// Print generated programs as corpus files, separated by `---`.
    Gen(Gen),
    /// Count which rules cases fire and which device ran which op at which dtype; list the holes.
    Coverage(Coverage),
    /// List the planted faults, after checking that each fits the sources.
    Faults(Faults),
    /// List the backends: there or not, why, and what to install.
    Backends,
    /// Serves a hunt; not for people.
    #[command(hide = true)]
    Worker(Worker),
}

/// Flags of `hunt`.
#[derive(clap::Args, Debug, Clone)]
pub(crate) struct Hunt {
    /// Stop after so many seconds (60 unless --programs is given).
    #[arg(long)]
    pub(crate) seconds: Option<u64>,
    /// Stop after so many programs.
    #[arg(long)]
    pub(crate) programs: Option<u64>,
    /// The seed; the same seed and count give the same programs.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Backends, separated by commas; `c/opts:16` runs one of 16 programs (default: those that are
    /// there, each as often as `gradiff backends` says).
    #[arg(long, value_delimiter = ',', value_parser = word)]
    pub(crate) backends: Vec<String>,
    /// Draw from these lanes only, separated by commas.
    #[arg(long, value_delimiter = ',', value_parser = word)]
    pub(crate) lanes: Vec<String>,
    /// Processes side by side (default: one for each core).
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=256))]
    pub(crate) jobs: Option<u64>,
    /// Where findings are written.
    #[arg(long, default_value = "findings")]
    pub(crate) findings: PathBuf,
    /// Stop after so many different findings.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_findings: u64,
    /// Seconds of processor time after which one program counts as hung.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) timeout: u64,
    /// Seconds after which it does whatever it used (default: 10 times --timeout, at least 120).
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) wall_timeout: Option<u64>,
    /// Fail (exit code 3) unless all backends of these devices are there, separated by commas; also
    /// names of backends.
    #[arg(long, value_delimiter = ',', value_parser = word, value_name = "DEVICE")]
    pub(crate) require: Vec<String>,
    /// Let a run that runs no program pass.
    #[arg(long)]
    pub(crate) allow_empty: bool,
    /// Print a summary as one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
    /// Hunt every planted fault in turn and print the time to find each.
    #[arg(long)]
    pub(crate) faults: bool,
}

/// How the programs of files are run.
#[derive(clap::Args, Debug)]
pub(crate) struct On {
    /// Backends, separated by commas (default: all that are there).
    #[arg(long, value_delimiter = ',', value_parser = word)]
    pub(crate) backends: Vec<String>,
    /// Seconds of processor time after which one program counts as hung.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) timeout: u64,
    /// Seconds after which it does whatever it used (default: 10 times --timeout, at least 120).
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) wall_timeout: Option<u64>,
}

/// Flags of `replay`.
#[derive(clap::Args, Debug)]
pub(crate) struct Replay {
    /// Corpus files, sequences that a hunt has kept, or folders of them.
    #[arg(required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// Fail (exit code 3) unless all backends of these devices are there, separated by commas; also
    /// names of backends.
    #[arg(long, value_delimiter = ',', value_parser = word, value_name = "DEVICE")]
    pub(crate) require: Vec<String>,
    /// Let folders without cases pass.
    #[arg(long)]
    pub(crate) allow_empty: bool,
    /// How programs are run.
    #[command(flatten)]
    pub(crate) on: On,
}

/// Flags of `reduce`.
#[derive(clap::Args, Debug)]
pub(crate) struct Reduce {
    /// A corpus file that fails.
    pub(crate) file: PathBuf,
    /// How programs are run.
    #[command(flatten)]
    pub(crate) on: On,
}

/// Flags of `show`.
#[derive(clap::Args, Debug)]
pub(crate) struct Show {
    /// A corpus file.
    pub(crate) file: PathBuf,
    /// Which stage: program, graph, schedule, kernel, uops; or a language: c, cuda, opencl, metal,
    /// wgsl, wgsl-core, llvm or ptx.
    #[arg(long, default_value = "c")]
    pub(crate) stage: String,
    /// With these optimisations of each kernel, as in "upcast 0 4, unroll 1 2"; "" for none. If it
    /// is not given: in a language, or for a target, those that the engine chooses; else none.
    #[arg(long)]
    pub(crate) opts: Option<String>,
    /// For this target, as in vectors, groups or cuda (default: that of the language).
    #[arg(long)]
    pub(crate) target: Option<String>,
}

/// Flags of `blame`.
#[derive(clap::Args, Debug)]
pub(crate) struct Blame {
    /// A corpus file that fails.
    pub(crate) file: PathBuf,
    /// How programs are run.
    #[command(flatten)]
    pub(crate) on: On,
}

/// Flags of `opts`.
#[derive(clap::Args, Debug)]
pub(crate) struct Opts {
    /// A corpus file that holds a program.
    pub(crate) file: PathBuf,
    /// Try this sequence alone, as in "padto 0 4, upcast 0 4".
    #[arg(long, conflicts_with_all = ["depth", "random", "seed"])]
    pub(crate) opts: Option<String>,
    /// All legal sequences of so many opts are tried.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(0..=4))]
    pub(crate) depth: u8,
    /// How many random sequences of up to eight opts follow, for each kernel.
    #[arg(long, default_value_t = 500)]
    pub(crate) random: u64,
    /// The seed of the random sequences.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Print the report as one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Flags of `snap`.
#[derive(clap::Args, Debug)]
pub(crate) struct Snap {
    /// What to do with them.
    #[command(subcommand)]
    pub(crate) action: SnapAction,
}

/// What to do with snapshots.
#[derive(Subcommand, Debug)]
pub(crate) enum SnapAction {
    /// Say of each that changed: same program, cheaper, dearer, other bits or different meaning.
    Diff(SnapDiff),
}

/// Flags of `snap diff`.
#[derive(clap::Args, Debug)]
pub(crate) struct SnapDiff {
    /// A folder of snapshots, or a git revision.
    #[arg(default_value = "HEAD")]
    pub(crate) before: String,
    /// The folder of the snapshots of now.
    #[arg(long, default_value = "snapshots")]
    pub(crate) snapshots: PathBuf,
    /// Print the report as one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Flags of `views` and `exprs`.
#[derive(clap::Args, Debug)]
pub(crate) struct Sweep {
    /// How many random cases.
    #[arg(long, default_value_t = 100_000)]
    pub(crate) cases: u64,
    /// Skip the enumeration of all small cases.
    #[arg(long)]
    pub(crate) random_only: bool,
    /// The seed of the random cases.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Where findings are written.
    #[arg(long, default_value = "findings")]
    pub(crate) findings: PathBuf,
    /// Let a run of no cases pass.
    #[arg(long)]
    pub(crate) allow_empty: bool,
}

/// Flags of `coverage`.
#[derive(clap::Args, Debug)]
pub(crate) struct Coverage {
    /// Corpus files, or folders of them (default: the corpus).
    pub(crate) files: Vec<PathBuf>,
    /// Print all counts as one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
    /// List what could occur and never did.
    #[arg(long)]
    pub(crate) holes: bool,
    /// Count features and their pairs in so many generated programs instead, and list the pairs
    /// that never lay close together.
    #[arg(long, conflicts_with_all = ["files", "holes"])]
    pub(crate) pairs: Option<u64>,
    /// The seed of the generated programs.
    #[arg(long, default_value_t = 1, requires = "pairs")]
    pub(crate) seed: u64,
    /// Let folders without cases, or no programs, pass.
    #[arg(long)]
    pub(crate) allow_empty: bool,
}

/// Flags of `sabotage`.
#[derive(clap::Args, Debug)]
pub(crate) struct Sabotage {
    /// Only rules whose names start so (default: all).
    pub(crate) prefixes: Vec<String>,
    /// CPU seconds to spend, over all threads.
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) seconds: u64,
    /// The seed of generated cases.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Threads side by side (default: one for each core).
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=256))]
    pub(crate) jobs: Option<u64>,
    /// Write the list of forms anew, with a line for each survivor that is less simple.
    #[arg(long)]
    pub(crate) forms: Option<PathBuf>,
    /// Only mutants that this file names, such as the survivors of a report.
    #[arg(long)]
    pub(crate) only: Option<PathBuf>,
    /// Print the report as one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Flags of `prove`.
#[derive(clap::Args, Debug)]
pub(crate) struct Prove {
    /// Rules, or how their names begin (default: all).
    pub(crate) rules: Vec<String>,
    /// Settle this row as well: `name [types] [claim]: left => right [given ..] [when ..]`.
    #[arg(long)]
    pub(crate) with: Vec<String>,
    /// Write the verdicts into the ledger.
    #[arg(long)]
    pub(crate) write: bool,
    /// Print the queries and ask nothing.
    #[arg(long)]
    pub(crate) smt: bool,
    /// Start no rule after so many seconds.
    #[arg(long)]
    pub(crate) seconds: Option<u64>,
}

/// Flags of `rules`.
#[derive(clap::Args, Debug)]
pub(crate) struct Rules {
    /// How the names begin.
    pub(crate) prefix: Option<String>,
    /// Print the page of documentation.
    #[arg(long)]
    pub(crate) markdown: bool,
}

/// Flags of `gen`.
#[derive(clap::Args, Debug)]
pub(crate) struct Gen {
    /// How many programs.
    #[arg(long, default_value_t = 1)]
    pub(crate) count: u64,
    /// The seed.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// The number of the first one.
    #[arg(long, default_value_t = 0)]
    pub(crate) first: u64,
    /// Let a run of no programs pass.
    #[arg(long)]
    pub(crate) allow_empty: bool,
    /// Draw from these lanes only, separated by commas.
    #[arg(long, value_delimiter = ',', value_parser = word)]
    pub(crate) lanes: Vec<String>,
}

/// Flags of `faults`.
#[derive(clap::Args, Debug)]
pub(crate) struct Faults {
    /// Write the sources with all faults in them and print their folder; GRADIFF_FAULT names the
    /// one that is on in what is built from them.
    #[arg(long)]
    pub(crate) copy: bool,
}

/// Flags of a worker, set by its parent.
#[derive(clap::Args, Debug)]
pub(crate) struct Worker {
    /// The seed of the hunt.
    #[arg(long)]
    pub(crate) seed: u64,
    /// Backends.
    #[arg(long, value_delimiter = ',', value_parser = word)]
    pub(crate) backends: Vec<String>,
    /// Lanes; none means all.
    #[arg(long, value_delimiter = ',', value_parser = word)]
    pub(crate) lanes: Vec<String>,
}
