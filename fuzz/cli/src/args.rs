//! The commands and flags of the command line, and their help texts.
//!
//! `gradiff help COMMAND` prints the doc comment of a command line by line: what the command does,
//! the files that it reads and writes, exit codes with a special meaning for it, and an example.

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use gradiff_check::Form;

/// Runs random tensor programs on every backend, judged by an independent reference evaluator.
#[derive(Parser, Debug)]
#[command(name = "gradiff", version, after_help = EXIT_CODES)]
pub(crate) struct Args {
    /// The command.
    #[command(subcommand)]
    pub(crate) command: Command,
    /// Run the same command in an engine with this planted fault; see `gradiff help faults`.
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) fault: Option<String>,
    /// Id of the process that started this one. This process ends when that process does.
    #[arg(long, global = true, hide = true)]
    pub(crate) parent: Option<u32>,
    /// Take planted faults from this file or folder instead of fuzz/faults.
    #[arg(long, global = true, value_name = "PATH")]
    pub(crate) faults_from: Option<PathBuf>,
}

const EXIT_CODES: &str = "\
`gradiff help COMMAND` explains a command, with its files and an example.

Exit codes of every command:
    0  nothing found
    1  usage error: flags, files, or an empty run (see --allow-empty)
    2  findings, even if the run was interrupted or the machine failed as well
    3  no findings, but the machine failed (no space left, a compiler that was killed, ...),
       or a requested backend or device is missing
   70  internal error
   74  standard output cannot be written
  130  interrupted by Ctrl-C (129 by SIGHUP, 143 by SIGTERM) before anything was found
  141  the reader of standard output has closed it";

/// Parses the name of a backend, peer, device or lane; ignores the blanks around it.
fn word(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("a name is missing".to_string()),
        "exec:" => Err("exec: is followed by the command of an engine".to_string()),
        word => Ok(word.to_string()),
    }
}

/// The commands.
#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Generate programs, run them on every backend, judge, minimise and save failures.
    ///
    /// The same --seed and --programs give the same programs and counts. Without a limit a hunt
    /// takes one minute. Before and after the programs, the oracle judges canaries: answers that
    /// are known to be wrong, or barely right. The exit code is also 2 if the oracle misjudges a
    /// canary, or if it leaves more than 1 % of at least 100,000 elements unspecified, or more than
    /// 0.5 % for the same op and reason.
    ///
    /// Rows of the report:
    ///   backends          `c:144` runs one program in 144; see `gradiff backends`
    ///   checked elements  output elements that the oracle judged, on all backends
    ///   vacuous           elements of those judged whose bound is as large as their magnitude
    ///   unspecified       elements about which the oracle says nothing, with the reasons
    ///   feature pairs     pairs of features that occurred in a statement and its sources
    ///   mismatches        runs with a wrong element, and refusals of a well-formed program
    ///   crashes           panics and deaths of workers
    ///   timeouts          programs that hang even when run alone
    ///   slow              programs, or batches of them, that hung once, but not when run alone
    ///   environment       programs that could not run because the machine failed: no space left, a
    ///                     compiler that is missing, is killed or cannot compile an empty function,
    ///                     a lost device
    ///   not reproduced    deaths of workers that did not recur; they count as findings
    ///   pending           failures that were not examined, and batches that hung when the time was
    ///                     up, in FINDINGS/raw
    ///   missing           devices that hunts use by default and that are not available
    ///   skipped           programs that cannot be judged on a backend, with the reason
    ///
    /// Files, in the folder of --findings:
    ///   fuzz-HASH.case, .rs, .py   a finding: minimised corpus file, and a Rust test or a script
    ///                              for the peer that is wrong
    ///   fuzz-HASH.sequence         the programs before a finding that fails only after them
    ///   death-HASH.sequence        programs that kill a worker if run in turn, but not alone
    ///   raw/                       failing programs as generated, and sequences of those that
    ///                              died or hung together: each is written before it is examined,
    ///                              and removed once it is saved in a smaller form
    ///
    /// Ctrl-C and SIGTERM end a hunt within seconds and keep its findings; a second one ends it at
    /// once. Workers and their compilers end with the hunt, however it ends.
    ///
    /// Examples:
    ///   gradiff hunt --seconds 300 --seed 7 --require c,opencl
    ///   gradiff hunt --backends interp,c/opts --lanes casts,edges --programs 10000
    ///   gradiff hunt --faults                # hunts each planted fault and prints the time taken
    #[command(verbatim_doc_comment)]
    Hunt(Hunt),
    /// Run corpus files and check what they expect.
    ///
    /// Prints a line for each file: `ok`, `FAIL`, or `SICK` if it could not run because the machine
    /// failed; below it, the reasons and the skips. A file is a case (FILE.case), or the programs
    /// that a worker ran before it died or failed in a hunt (FILE.sequence). The latter run on the
    /// backends that the file names, unless --backends is given. A folder stands for all such files
    /// below it. Ctrl-C ends a replay at once.
    ///
    /// Exit codes: 2 if a file failed, 3 if no file failed but one could not run.
    ///
    /// Example:
    ///   gradiff replay corpus/cases corpus/regressions --backends interp,jit
    #[command(verbatim_doc_comment)]
    Replay(Replay),
    /// Minimise a failing corpus file and print the result.
    ///
    /// Prints the smallest program found that fails in the same way, as a corpus file. Hunts do
    /// this themselves. Only programs can be minimised: view sequences and expressions are small.
    ///
    /// Exit codes: 0 if nothing fails, 2 if something was minimised.
    ///
    /// Example:
    ///   gradiff reduce findings/raw/fuzz-b62d1bfc.case --backends interp > small.case
    #[command(verbatim_doc_comment)]
    Reduce(Reduce),
    /// Print one stage of a corpus file.
    ///
    /// Stages of a program:
    ///   program    the corpus text
    ///   graph      the tensor graph, as nodes
    ///   schedule   the kernel trees
    ///   kernel     each kernel after each pass
    ///   uops       linear uops
    ///   a language source text: c, cuda, opencl, metal, wgsl, wgsl-core, llvm or ptx
    /// View sequences and expressions have the stages `program` and `graph` only. No device is
    /// needed. Source text is optimised as the engine does it; --opts "" turns that off.
    ///
    /// Examples:
    ///   gradiff show corpus/cases/softmax.case --stage kernel
    ///   gradiff show corpus/cases/add-add-fuse.case --stage cuda --opts "local 0 4"
    ///   gradiff show corpus/cases/matmul-4x4.case --stage uops --target vectors
    #[command(verbatim_doc_comment)]
    Show(Show),
    /// Name the first stage at which a failing corpus file goes wrong.
    ///
    /// Stages are run one after the other, each by an evaluator that does not use later stages.
    /// If the stage applies rules, prints the application that makes right outputs wrong: the pass,
    /// the node before and after, the rule, values for which it is false, and its verdict. If
    /// rewriting does not end, prints the applications that repeat.
    ///
    /// Exit codes: 0 if nothing fails, 2 if something does.
    ///
    /// Example:
    ///   gradiff blame corpus/cases/cdiv-negative.case --fault rule-cdiv-as-floordiv
    #[command(verbatim_doc_comment)]
    Blame(Blame),
    /// Run each kernel of a program under all short and some long sequences of optimisations.
    ///
    /// No optimisation may change the results. Each kernel, including those with several
    /// reductions, runs under all legal sequences of up to --depth opts and under random ones of up
    /// to eight. They run as plain loops, unrolled and in vectors, or in groups of threads, where
    /// races count as wrong. The first wrong sequence is printed and ends the run. `reordered sums`
    /// counts runs whose bits differ because sums were added in another order; the oracle judges
    /// these.
    ///
    /// An opt is OP AXIS AMOUNT; 0 as AMOUNT means the whole loop:
    ///   upcast    runs AMOUNT iterations at once, where possible as the lanes of a vector
    ///   unroll    unrolls AMOUNT iterations of a reduction, in order
    ///   thread    divides an output loop among AMOUNT CPU threads
    ///   padto     rounds the trip count up to a multiple of AMOUNT; iterations beyond do nothing
    ///   overlap   rounds the trip count up as well, but shifts the last block inwards
    ///   cut       cuts an output loop or a reduction into two at iteration AMOUNT
    ///   swap      exchanges the output loops AXIS and AMOUNT
    ///   local     runs AMOUNT adjacent iterations by as many threads of a group
    ///   group     divides a reduction among AMOUNT threads of a group, interleaved
    ///   grouptop  divides a reduction among AMOUNT threads of a group, in contiguous blocks
    ///   nolocals  makes each iteration of the output loops a group of one thread
    ///   tc        computes a matrix product by tensor cores; AMOUNT chooses core and product
    ///   stage     has a group copy to local memory what AMOUNT iterations of a reduction load
    /// If a sequence given by --opts is not legal, the message says why.
    ///
    /// Examples:
    ///   gradiff opts corpus/cases/softmax.case
    ///   gradiff opts corpus/cases/softmax.case --opts "padto 0 4, upcast 0 4"
    #[command(verbatim_doc_comment)]
    Opts(Opts),
    /// Compare reviewed snapshots with those of a revision or of another folder.
    ///
    /// Snapshots of schedules, uops and source texts of chosen corpus cases are kept in snapshots/
    /// and reviewed; see `gradiff help snap diff`.
    #[command(verbatim_doc_comment)]
    Snap(Snap),
    /// Check shape trackers: all short sequences on small shapes, then random ones.
    ///
    /// They are compared with a model that moves the elements themselves. Sequences are also tried
    /// with variables as sizes. Without --random-only the report ends with a share: of the pairs of
    /// sequences that move all elements to the same positions, those that give different trackers.
    ///
    /// A failing case is minimised, printed and written to the folder of --findings (exit code 2).
    ///
    /// Example:
    ///   gradiff views --cases 100000
    #[command(verbatim_doc_comment)]
    Views(Sweep),
    /// Check index expressions: all small ones, then random ones.
    ///
    /// Checks that simplifying an expression, of any integer type, keeps its value at every point,
    /// that the value is within the bounds, and that simplifying again changes nothing.
    ///
    /// A failing case is minimised, printed and written to the folder of --findings (exit code 2).
    ///
    /// Example:
    ///   gradiff exprs --cases 50000 --random-only
    #[command(verbatim_doc_comment)]
    Exprs(Sweep),
    /// Run corpus files on all installed versions of a framework: which of them fail?
    ///
    /// `gradiff peers install tinygrad==0.10.2` installs a version. Programs, movements and index
    /// expressions are judged.
    ///
    /// Example:
    ///   gradiff bisect corpus/upstream/tinygrad --peer tinygrad --report report.md
    #[command(verbatim_doc_comment)]
    Bisect(Bisect),
    /// Show the kernels of programs beside those that a peer makes of them.
    ///
    /// For each program: the number of kernels, the elements that they load and store, and the
    /// results of elementwise operations, index arithmetic included, here for C and there. For a
    /// single file, also names, optimisations and, with --source, texts.
    ///
    /// Example:
    ///   gradiff compare corpus/cases --with tinygrad@0.10.2
    #[command(verbatim_doc_comment)]
    Compare(Compare),
    /// Change one rewrite rule at a time and count how many changes the harness notices.
    ///
    /// A mutant is a rule with one small edit: a condition is dropped, a constant is off by one, a
    /// division is floored that was truncated, ... It is tried on the corpus files that name the
    /// rule, subjects made for it, reviewed forms, the corpus, expressions and programs. If one of
    /// these shows the mutant, it is blamed. Survivors must be reviewed.
    ///
    /// Files:
    ///   fuzz/survivors.txt  reviewed survivors, each `equivalent` or `harmless` with its reason
    ///   fuzz/forms.txt      small subjects with their rewritten forms, by which mutants are found
    ///                       that keep every value; --forms writes it anew
    ///
    /// Exit codes: 0 if every survivor is reviewed; 2 if one is not, if a review is stale, or if a
    /// mutant reviewed as equivalent gives a different form.
    ///
    /// Example:
    ///   gradiff sabotage divmod/ --seconds 120
    #[command(verbatim_doc_comment)]
    Sabotage(Sabotage),
    /// Prove rewrite rules with z3 and exhaustively on small cases; keep the ledger of verdicts.
    ///
    /// z3 decides over integers of any size (GRADIFF_Z3 names another executable). Every rule is
    /// also tried on small cases, 8-bit types and all values of f16. A rule that changes loses its
    /// verdict, and a test reports it. Without z3, a rule that is false on small cases is still
    /// refuted, and other verdicts come from the ledger.
    ///
    /// File: fuzz/rules/verdicts.txt, the reviewed ledger; --write updates it.
    ///
    /// Exit codes: 2 if a rule is refuted or open, or its verdict differs from the ledger's, or if
    /// --seconds ended the run before all rules were decided.
    ///
    /// Examples:
    ///   gradiff prove divmod/floordiv
    ///   gradiff prove --with 'my/rule: (cdiv x c0) => (floordiv x c0) when c0 > 0'
    #[command(verbatim_doc_comment)]
    Prove(Prove),
    /// List rewrite rules: claim, condition, source, verdict, number of firings in the corpus.
    ///
    /// The language of rules is described in engine/rewrite/src/rules/mod.rs. The page that
    /// --markdown prints is kept as snapshots/rules/rules.md, and a test compares it.
    ///
    /// Examples:
    ///   gradiff rules divmod/floordiv
    ///   gradiff rules --markdown > snapshots/rules/rules.md
    #[command(verbatim_doc_comment)]
    Rules(Rules),
    /// Print generated programs as corpus files, separated by `---`.
    ///
    /// Program NUMBER of a hunt with the same seed is `--seed SEED --first NUMBER`. Lanes: exact,
    /// wrap, negative-index, ill-conditioned, special, casts, movement, state, edges, idioms,
    /// methods, gradients.
    ///
    /// Example:
    ///   gradiff gen --seed 1 --first 199
    #[command(verbatim_doc_comment)]
    Gen(Gen),
    /// Count how often cases fire each rule, and how often each device runs each op for each dtype.
    ///
    /// Each cell of the second table names the devices by their first letters; `-` means that the
    /// op is allowed, but never ran. --holes lists the combinations that are possible but never
    /// occurred. With --pairs, features and their pairs are counted in generated programs instead,
    /// and the pairs that never occurred are listed; with --methods, the methods that they call.
    ///
    /// Exit codes: 2 if a rule never fired; holes and missing pairs are not findings.
    ///
    /// Examples:
    ///   gradiff coverage --holes
    ///   gradiff coverage --pairs 20000
    ///   gradiff coverage --methods 20000
    #[command(verbatim_doc_comment)]
    Coverage(Coverage),
    /// List the planted faults, after a check that each can be applied to the sources.
    ///
    /// A fault is a file in fuzz/faults (see its README): an edit of the sources that is a known
    /// mistake. `--fault NAME` works with every command: the workspace is copied to target/faults,
    /// every fault is put behind a switch there, the copy is built once (a minute or two), and the
    /// same command runs in it. --faults-from takes a file or folder of your own instead.
    ///
    /// Examples:
    ///   gradiff faults
    ///   gradiff hunt --fault tensor-cat-order --max-findings 1
    #[command(verbatim_doc_comment)]
    Faults(Faults),
    /// List the backends and, for those that are not available, the reason and what to install.
    ///
    /// A backend is a device and a way to use it:
    ///   c              a device without optimisations
    ///   c/heuristic    as `Engine::new` makes it
    ///   c/opts         with drawn optimisations
    ///   c/session      as an application uses it: tensors realised one by one, parts read
    ///   c/small        with low thresholds, so that small tensors exceed them
    ///   c/strict       strict mode, bit for bit
    ///   uops/cuda      the uops that the engine makes for a target, which need not be available:
    ///                  an evaluator runs them and checks the rules of the target
    ///   text/ptx       the source text itself, interpreted, or compiled for this machine by clang
    ///
    /// Example:
    ///   gradiff backends
    #[command(verbatim_doc_comment)]
    Backends,
    /// List the frameworks that programs can also run on (NumPy, PyTorch, JAX, tinygrad, ONNX
    /// Runtime), or install versions of them.
    ///
    /// A peer is a backend that hunts run only if it is named. A finding there is a program for
    /// which the framework gives a value beyond the bound that the oracle computes; the script
    /// beside it needs the framework alone. `exec:COMMAND` is an engine of your own that speaks
    /// the protocol of fuzz/peers/README.md.
    ///
    /// `numpy` is what GRADIFF_PYTHON has, or else what was installed here without a version, or
    /// else what python3 has; `tinygrad@0.10.2` is a version that was installed here, and
    /// `tinygrad-python@0.10.2` the same one on another device.
    ///
    /// Examples:
    ///   gradiff peers install numpy tinygrad==0.10.2
    ///   gradiff peers script tinygrad@0.10.2 corpus/upstream/tinygrad/pad-of-bool.case
    ///   gradiff hunt --backends numpy,tinygrad@0.10.2
    ///   gradiff replay --backends exec:./my-engine corpus/cases
    #[command(verbatim_doc_comment)]
    Peers(Peers),
    /// Serves a hunt; not meant for users.
    #[command(hide = true)]
    Worker(Worker),
}

/// Flags of `hunt`.
#[derive(clap::Args, Debug, Clone)]
pub(crate) struct Hunt {
    /// Stop after this many seconds (60 unless --programs is given).
    #[arg(long)]
    pub(crate) seconds: Option<u64>,
    /// Stop after this many programs.
    #[arg(long)]
    pub(crate) programs: Option<u64>,
    /// The seed; the same seed and count give the same programs.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Backends, separated by commas; `c/opts:16` runs one of 16 programs (default: those that are
    /// available, each as often as `gradiff backends` says).
    #[arg(long, value_delimiter = ',', value_parser = word)]
    pub(crate) backends: Vec<String>,
    /// Draw from these lanes only, separated by commas.
    #[arg(long, value_delimiter = ',', value_parser = word)]
    pub(crate) lanes: Vec<String>,
    /// Parallel worker processes (default: one for each core).
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=256))]
    pub(crate) jobs: Option<u64>,
    /// Folder that findings are written to.
    #[arg(long, default_value = "findings")]
    pub(crate) findings: PathBuf,
    /// Files that earlier hunts wrote, or folders of such: the same failures, of the same peer in
    /// any version, are counted, and reported no more.
    #[arg(long, value_name = "PATH")]
    pub(crate) known: Vec<PathBuf>,
    /// Stop after this many different findings.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_findings: u64,
    /// Seconds of processor time after which a program counts as hung.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) timeout: u64,
    /// Seconds of wall time after which a program, or a batch of them, counts as hung (default: 10
    /// times --timeout, at least 120).
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) wall_timeout: Option<u64>,
    /// Backends, or devices with all their backends, separated by commas: fail with exit code 3
    /// unless they are available.
    #[arg(long, value_delimiter = ',', value_parser = word, value_name = "DEVICE")]
    pub(crate) require: Vec<String>,
    /// Allow a run of no programs.
    #[arg(long)]
    pub(crate) allow_empty: bool,
    /// Print a summary as one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
    /// Hunt every planted fault in turn and print the time to find each.
    #[arg(long, conflicts_with_all = [
        "programs", "lanes", "jobs", "known", "max_findings", "timeout", "wall_timeout", "require",
    ])]
    pub(crate) faults: bool,
}

/// Flags of the commands that run programs from files.
#[derive(clap::Args, Debug)]
pub(crate) struct RunFlags {
    /// Backends, separated by commas (default: all that are available).
    #[arg(long, value_delimiter = ',', value_parser = word)]
    pub(crate) backends: Vec<String>,
    /// Seconds of processor time after which a program counts as hung.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) timeout: u64,
    /// Seconds of wall time after which a program, or a batch of them, counts as hung (default: 10
    /// times --timeout, at least 120).
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) wall_timeout: Option<u64>,
}

/// Flags of `replay`.
#[derive(clap::Args, Debug)]
pub(crate) struct Replay {
    /// Corpus files, sequences that a hunt has saved, or folders of them.
    #[arg(required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// Backends, or devices with all their backends, separated by commas: fail with exit code 3
    /// unless they are available.
    #[arg(long, value_delimiter = ',', value_parser = word, value_name = "DEVICE")]
    pub(crate) require: Vec<String>,
    /// Allow folders without cases.
    #[arg(long)]
    pub(crate) allow_empty: bool,
    /// Backends and time limits.
    #[command(flatten)]
    pub(crate) run: RunFlags,
}

/// Flags of `reduce`.
#[derive(clap::Args, Debug)]
pub(crate) struct Reduce {
    /// A corpus file that fails.
    pub(crate) file: PathBuf,
    /// Backends and time limits.
    #[command(flatten)]
    pub(crate) run: RunFlags,
}

/// Flags of `show`.
#[derive(clap::Args, Debug)]
pub(crate) struct Show {
    /// A corpus file.
    pub(crate) file: PathBuf,
    /// The stage, or the language.
    #[arg(long, default_value = "c")]
    pub(crate) stage: Form,
    /// Optimisations of each kernel, as in "upcast 0 4, unroll 1 2"; "" for none. Default: for a
    /// language or a target, those that the engine chooses; otherwise none.
    #[arg(long)]
    pub(crate) opts: Option<String>,
    /// The target (default: that of the language). loops, vectors, groups, cuda and others are the
    /// same on every machine; c, jit and device:opencl describe that device of this machine.
    #[arg(long)]
    pub(crate) target: Option<String>,
}

/// Flags of `blame`.
#[derive(clap::Args, Debug)]
pub(crate) struct Blame {
    /// A corpus file that fails.
    pub(crate) file: PathBuf,
    /// Backends and time limits.
    #[command(flatten)]
    pub(crate) run: RunFlags,
}

/// Flags of `opts`.
#[derive(clap::Args, Debug)]
pub(crate) struct Opts {
    /// A corpus file that holds a program.
    pub(crate) file: PathBuf,
    /// Try only this sequence, as in "padto 0 4, upcast 0 4".
    #[arg(long, conflicts_with_all = ["depth", "random", "seed"])]
    pub(crate) opts: Option<String>,
    /// Length up to which all legal sequences are tried.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(0..=4))]
    pub(crate) depth: u8,
    /// Number of random sequences of up to eight opts that are tried after these, for each kernel.
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
    /// The command on snapshots.
    #[command(subcommand)]
    pub(crate) action: SnapAction,
}

/// The commands on snapshots.
#[derive(Subcommand, Debug)]
pub(crate) enum SnapAction {
    /// Classify each changed snapshot: same program, cheaper, dearer, other bits, other meaning.
    ///
    /// Compares the snapshots with those of a git revision or of another folder. A snapshot that
    /// tests left pending (.snap.new) replaces the reviewed one. Linear uops are parsed, verified,
    /// counted and run on seeded data; floats may differ as far as other roundings explain.
    /// Texts in C, CUDA, Metal, OpenCL, LLVM IR (with clang 16 or later), PTX and WGSL are run on
    /// the same data as their uops; other texts are compared up to names. `cargo insta review`
    /// accepts or rejects pending snapshots one by one.
    ///
    /// Exit codes: 1 if a snapshot is broken, 2 if one has a different meaning.
    ///
    /// Examples:
    ///   gradiff snap diff
    ///   gradiff snap diff HEAD~3
    #[command(verbatim_doc_comment)]
    Diff(SnapDiff),
}

/// Flags of `snap diff`.
#[derive(clap::Args, Debug)]
pub(crate) struct SnapDiff {
    /// A folder of snapshots, or a git revision.
    #[arg(default_value = "HEAD")]
    pub(crate) before: String,
    /// The folder of the current snapshots.
    #[arg(long, default_value = "snapshots")]
    pub(crate) snapshots: PathBuf,
    /// Print the report as one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Flags of `views` and `exprs`.
#[derive(clap::Args, Debug)]
pub(crate) struct Sweep {
    /// Number of random cases.
    #[arg(long, default_value_t = 100_000)]
    pub(crate) cases: u64,
    /// Skip the enumeration of all small cases.
    #[arg(long)]
    pub(crate) random_only: bool,
    /// The seed of the random cases.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Folder that findings are written to.
    #[arg(long, default_value = "findings")]
    pub(crate) findings: PathBuf,
    /// Allow a run of no cases.
    #[arg(long)]
    pub(crate) allow_empty: bool,
    /// Judge the shape trackers or expressions of this peer, such as tinygrad@0.10.2, instead, on
    /// random cases.
    #[arg(long, value_name = "PEER", value_parser = word)]
    pub(crate) peer: Option<String>,
    /// End after this many distinct failures of the peer.
    #[arg(long, default_value_t = 8, requires = "peer",
          value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_findings: u64,
    /// Print this many expressions that have more operations here than on the peer.
    #[arg(long, default_value_t = 0, requires = "peer")]
    pub(crate) larger: u64,
    /// Files, or folders of files, with reviewed failures of the peer: they are counted.
    #[arg(long, requires = "peer")]
    pub(crate) known: Vec<PathBuf>,
}

/// Flags of `compare`.
#[derive(clap::Args, Debug)]
pub(crate) struct Compare {
    /// Corpus files, or folders of them.
    #[arg(required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// The peer, such as tinygrad@0.10.2.
    #[arg(long, value_name = "PEER", value_parser = word)]
    pub(crate) with: String,
    /// For a single file, also print the source texts of its kernels.
    #[arg(long)]
    pub(crate) source: bool,
}

/// Flags of `bisect`.
#[derive(clap::Args, Debug)]
pub(crate) struct Bisect {
    /// Corpus files, or folders of them.
    #[arg(required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// The framework, whose installed versions are tried.
    #[arg(long)]
    pub(crate) peer: String,
    /// Write the versions into the files, as a comment line.
    #[arg(long)]
    pub(crate) write: bool,
    /// Write a report in Markdown to this file: for each case a script and the versions.
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
}

/// Flags of `coverage`.
#[derive(clap::Args, Debug)]
pub(crate) struct Coverage {
    /// Corpus files, or folders of them (default: the corpus).
    pub(crate) files: Vec<PathBuf>,
    /// Print all counts as one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
    /// List combinations that are possible but never occurred.
    #[arg(long)]
    pub(crate) holes: bool,
    /// Count features and their pairs in this many generated programs instead, and list the pairs
    /// that never occurred in a statement and its sources.
    #[arg(long, conflicts_with_all = ["files", "holes"])]
    pub(crate) pairs: Option<u64>,
    /// Count the methods that this many generated programs call instead, by dtype, and list the
    /// dtypes that a method takes but that never occurred.
    #[arg(long, conflicts_with_all = ["files", "holes", "pairs"])]
    pub(crate) methods: Option<u64>,
    /// The seed of the generated programs.
    #[arg(long, default_value_t = 1, conflicts_with = "files")]
    pub(crate) seed: u64,
    /// Allow folders without cases, or no programs.
    #[arg(long)]
    pub(crate) allow_empty: bool,
}

/// Flags of `sabotage`.
#[derive(clap::Args, Debug)]
pub(crate) struct Sabotage {
    /// Only rules whose names start with one of these (default: all).
    pub(crate) prefixes: Vec<String>,
    /// CPU seconds to spend, over all threads.
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) seconds: u64,
    /// The seed of generated cases.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Parallel threads (default: one for each core).
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=256))]
    pub(crate) jobs: Option<u64>,
    /// Write this file of forms anew, with a line for each survivor that gives a different form.
    #[arg(long)]
    pub(crate) forms: Option<PathBuf>,
    /// Only mutants that this file names, such as a report of survivors.
    #[arg(long)]
    pub(crate) only: Option<PathBuf>,
    /// Print the report as one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Flags of `prove`.
#[derive(clap::Args, Debug)]
pub(crate) struct Prove {
    /// Names of rules, or their beginnings (default: all).
    pub(crate) rules: Vec<String>,
    /// Prove this row as well: `name [types] [claim]: left => right [given ..] [when ..]`.
    #[arg(long)]
    pub(crate) with: Vec<String>,
    /// Write the verdicts into the ledger.
    #[arg(long)]
    pub(crate) write: bool,
    /// Print the SMT-LIB queries and do not run the solver.
    #[arg(long)]
    pub(crate) smt: bool,
    /// Start no further rule after this many seconds.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) seconds: Option<u64>,
}

/// Flags of `rules`.
#[derive(clap::Args, Debug)]
pub(crate) struct Rules {
    /// Only rules whose names begin with this (default: all).
    pub(crate) prefix: Option<String>,
    /// Print a page of documentation in Markdown.
    #[arg(long)]
    pub(crate) markdown: bool,
}

/// Flags of `gen`.
#[derive(clap::Args, Debug)]
pub(crate) struct Gen {
    /// Number of programs.
    #[arg(long, default_value_t = 1)]
    pub(crate) count: u64,
    /// The seed.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// The number of the first program.
    #[arg(long, default_value_t = 0)]
    pub(crate) first: u64,
    /// Allow a run of no programs.
    #[arg(long)]
    pub(crate) allow_empty: bool,
    /// Draw from these lanes only, separated by commas.
    #[arg(long, value_delimiter = ',', value_parser = word)]
    pub(crate) lanes: Vec<String>,
}

/// Flags of `faults`.
#[derive(clap::Args, Debug)]
pub(crate) struct Faults {
    /// Write the sources with all faults in them, and print their folder. In a binary built from
    /// them, the environment variable GRADIFF_FAULT switches a fault on.
    #[arg(long)]
    pub(crate) copy: bool,
    /// Print them as JSON, with the check that finds each, the backends on which it shows (none if
    /// hunts may run on any), and the number of programs that a hunt may need.
    #[arg(long, conflicts_with = "copy")]
    pub(crate) json: bool,
}

/// Flags of `peers`.
#[derive(clap::Args, Debug)]
pub(crate) struct Peers {
    #[command(subcommand)]
    pub(crate) action: Option<PeersAction>,
}

/// Actions of `peers` beside the list.
#[derive(clap::Subcommand, Debug)]
pub(crate) enum PeersAction {
    /// Make a Python environment for each package in gradiff's cache, and install it there by pip.
    Install {
        /// Packages, each with or without a version: numpy, torch==2.9.1, tinygrad==0.10.2.
        #[arg(required = true)]
        packages: Vec<String>,
    },
    /// Print a corpus file as a script for a peer, with what is expected: a program, or movements
    /// or an expression that the peer gets wrong.
    Script {
        /// The peer, as in --backends.
        #[arg(value_parser = word)]
        peer: String,
        /// A corpus file.
        file: PathBuf,
    },
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
