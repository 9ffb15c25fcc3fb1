//! Checks that a kernel gives the same result under every legal sequence of optimisations: all
//! short sequences, then random ones, each run as loops, unrolled and in vectors, or in groups of
//! threads.

use gradiff::UOp;
use gradiff::graph::Target;
use gradiff::kernel::{Opt, OptOp, Setting, Strategy, apply, draw, legal};
use gradiff::rewrite::{Mode, Trace};
use gradiff_corpus::Program;
use gradiff_eval::Elements;
use gradiff_oracle::Expected;

use crate::models::stages::{self, Configuration, Level};

/// The sequences that are tried on each kernel.
#[derive(Clone, Debug)]
pub enum Sequences {
    /// These opts, in this order.
    Given(Vec<Opt>),
    /// All legal sequences of at most `depth` opts, then `random` ones of up to eight, drawn from
    /// the seed.
    Legal {
        /// Length in opts up to which all sequences are tried.
        depth: usize,
        /// Number of random sequences that follow, for each kernel.
        random: u64,
        /// Seed of the random sequences.
        seed: u64,
    },
}

/// Length in opts of the longest random sequence.
const RANDOM_DEPTH_MAX: usize = 8;

/// The targets that a sequence is run for, by name, with the words for them in reports. A sequence
/// is legal for all targets of a list or for none.
const TARGETS: [&[(&str, &str)]; 2] = [
    &[("loops", "as loops"), ("plain", "unrolled"), ("vectors", "in vectors")],
    &[("groups", "in groups")],
];

/// Counts of what was tried.
#[derive(Clone, Debug, Default)]
pub struct OptsTally {
    /// Kernels of the program.
    pub kernels: u64,
    /// Sequences, over all kernels; each is run for one to three targets.
    pub sequences: u64,
    /// Runs whose bits differ from those without opts: sums in another order.
    pub reordered: u64,
    /// Number of applications of each op, in the order of [`OptOp::ALL`].
    pub ops: [u64; OptOp::ALL.len()],
}

/// A sequence under which a kernel is wrong.
#[derive(Clone, Debug)]
pub struct OptsFailure {
    /// Number of the kernel in the schedule.
    pub kernel: usize,
    /// True if the schedule has `rows`, so that reductions share kernels.
    pub has_rows: bool,
    /// The sequence.
    pub opts: Vec<Opt>,
    /// The words for the target it was run for.
    pub how: &'static str,
    /// A description of what is wrong.
    pub detail: String,
}

impl std::fmt::Display for OptsFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let opts: Vec<String> = self.opts.iter().map(Opt::to_string).collect();
        let (opts, OptsFailure { kernel, how, detail, .. }) = (opts.join(", "), self);
        let rows = if self.has_rows { " of rows" } else { "" };
        write!(f, "kernel {kernel}{rows}, opts \"{opts}\", {how}: {detail}")
    }
}

/// Tries the sequences on each kernel of the program. Stops at the first wrong result, and when
/// `is_over` returns true. `seen` is called after each sequence.
///
/// # Errors
/// A program that the oracle or the engine refuses; an opt of a given sequence that is not legal
/// for some kernel.
pub fn opts(
    program: &Program,
    sequences: &Sequences,
    is_over: &dyn Fn() -> bool,
    seen: &mut dyn FnMut(&OptsTally),
) -> Result<(OptsTally, Option<OptsFailure>), String> {
    let expected = gradiff_oracle::evaluate(program).map_err(|error| error.to_string())?;
    let outputs = stages::graph(program)?;
    let mut tally = OptsTally::default();
    for has_rows in [false, true] {
        let mut configuration = Configuration::default();
        configuration.schedule.rows = has_rows;
        let schedule = stages::scheduled(&outputs, &configuration)?;
        let count = schedule.items.len() as u64;
        // A given sequence refers to the plain schedule, which commands show.
        let is_new = count != tally.kernels && matches!(sequences, Sequences::Legal { .. });
        if has_rows && !is_new {
            break;
        }
        tally.kernels += count;
        for kernel in 0..schedule.items.len() {
            let kernel = Kernel { schedule: &schedule, number: kernel, has_rows };
            let mut trial = Trial { kernel, expected: &expected, plain: None };
            let failure = trial.all(sequences, is_over, seen, &mut tally)?;
            if failure.is_some() || is_over() {
                return Ok((tally, failure));
            }
        }
    }
    Ok((tally, None))
}

/// Callback for a sequence.
type Each<'a> = &'a mut dyn FnMut(&[Opt]) -> Result<Option<OptsFailure>, String>;

/// Returns whether a given sequence can be for this target.
fn is_for(opts: &[Opt], target: &Target) -> bool {
    let in_groups = [OptOp::Local, OptOp::Group, OptOp::GroupTop, OptOp::NoLocals, OptOp::Tc];
    let requires_groups = opts.iter().any(|opt| in_groups.contains(&opt.op));
    requires_groups == target.groups.is_some()
}

/// Enumerates and draws sequences for a target.
struct Search<'a> {
    target: &'a Target,
    is_over: &'a dyn Fn() -> bool,
}

impl Search<'_> {
    fn setting(&self) -> Setting<'_> {
        Setting { mode: Mode::Default, target: self.target }
    }

    /// Visits every legal sequence of at most `depth` more opts after `before`.
    fn all(
        &self,
        root: &UOp,
        depth: usize,
        before: &mut Vec<Opt>,
        each: Each<'_>,
    ) -> Result<Option<OptsFailure>, String> {
        let failure = each(before)?;
        if failure.is_some() || depth == 0 {
            return Ok(failure);
        }
        for opt in legal(root, self.setting()).map_err(|error| error.to_string())? {
            if (self.is_over)() {
                break;
            }
            let next = apply(root, opt, self.setting()).map_err(|error| error.to_string())?;
            before.push(opt);
            let failure = self.all(&next, depth - 1, before, each)?;
            before.pop();
            if failure.is_some() {
                return Ok(failure);
            }
        }
        Ok(None)
    }

    /// Visits `random` drawn sequences.
    fn drawn(
        &self,
        root: &UOp,
        random: u64,
        seed: u64,
        each: Each<'_>,
    ) -> Result<Option<OptsFailure>, String> {
        for number in (0..random).take_while(|_| !(self.is_over)()) {
            let opts = draw(root, seed.wrapping_add(number), RANDOM_DEPTH_MAX, self.setting());
            let failure = each(&opts.map_err(|error| error.to_string())?)?;
            if failure.is_some() {
                return Ok(failure);
            }
        }
        Ok(None)
    }
}

/// The kernel as the pass that applies opts receives it.
pub(crate) fn optimizable(ast: &UOp, target: Target) -> Result<UOp, String> {
    let before = crate::checks::lowering::pass("optimize")?;
    let configuration = Configuration { target, ..Configuration::default() };
    crate::blame::passed(ast, &configuration, before - 1, &mut Trace::default(), &mut "")
}

/// A kernel of a schedule.
#[derive(Clone, Copy)]
struct Kernel<'a> {
    schedule: &'a gradiff::schedule::Schedule,
    number: usize,
    has_rows: bool,
}

/// The runs of one kernel of a schedule.
struct Trial<'a> {
    kernel: Kernel<'a>,
    expected: &'a [Expected],
    /// The kernel's memories before it runs, and its result without opts.
    plain: Option<(Vec<Elements>, Elements)>,
}

impl Trial<'_> {
    /// Tries the sequences for all targets.
    fn all(
        &mut self,
        sequences: &Sequences,
        is_over: &dyn Fn() -> bool,
        seen: &mut dyn FnMut(&OptsTally),
        tally: &mut OptsTally,
    ) -> Result<Option<OptsFailure>, String> {
        for targets in TARGETS {
            let target = Target::of(targets[0].0);
            let root = optimizable(&self.kernel.schedule.items[self.kernel.number].ast, target)?;
            let mut each = |opts: &[Opt]| -> Result<Option<OptsFailure>, String> {
                tally.sequences += 1;
                opts.iter().for_each(|opt| tally.ops[opt.op as usize] += 1);
                let failure = self.run(opts, targets, &mut tally.reordered);
                seen(tally);
                failure
            };
            let failure = match sequences {
                Sequences::Given(opts) if !is_for(opts, &target) => None,
                Sequences::Given(opts) => each(opts)?,
                Sequences::Legal { depth, random, seed } => {
                    let search = Search { target: &target, is_over };
                    match search.all(&root, *depth, &mut Vec::new(), &mut each)? {
                        None => search.drawn(&root, *random, *seed, &mut each)?,
                        failure => failure,
                    }
                }
            };
            if failure.is_some() || is_over() {
                return Ok(failure);
            }
        }
        Ok(None)
    }

    /// Runs the kernel under the opts for each of the targets. If its bits are those without opts,
    /// nothing is wrong; else the program is judged.
    fn run(
        &mut self,
        opts: &[Opt],
        targets: &[(&str, &'static str)],
        reordered: &mut u64,
    ) -> Result<Option<OptsFailure>, String> {
        for (target, how) in targets {
            let mut configuration =
                Configuration { target: Target::of(target), ..Configuration::default() };
            configuration.kernel.opts = Strategy::Fixed(opts.to_vec());
            let fail = |detail| {
                let (Kernel { number, has_rows, .. }, opts) = (self.kernel, opts.to_vec());
                OptsFailure { kernel: number, has_rows, opts, how, detail }
            };
            let ast = &self.kernel.schedule.items[self.kernel.number].ast;
            let linear = match crate::catch(|| stages::lowered(ast, &configuration)) {
                Ok(lowered) => lowered?,
                Err(panic) => return Ok(Some(fail(panic))),
            };
            if self.plain.is_none() {
                self.plain = Some(self.without_opts()?);
            }
            let Some((memories, plain)) = &self.plain else { continue };
            let mut memories = memories.clone();
            if let Err(problem) =
                crate::backends::engine::run_alone("interp", &linear, &mut memories)
            {
                return Ok(Some(fail(problem)));
            }
            if memories[0] == *plain {
                continue;
            }
            *reordered += 1;
            if let Some(problem) = self.judged(&memories[0])? {
                return Ok(Some(fail(problem)));
            }
        }
        Ok(None)
    }

    /// The kernel's memories before it runs, and its result without opts.
    fn without_opts(&self) -> Result<(Vec<Elements>, Elements), String> {
        let (mut number, mut plain) = (0, None);
        self.each_kernel(&mut |ast, memories| {
            let before = memories.to_vec();
            run_without_opts(ast, memories)?;
            if number == self.kernel.number {
                plain = Some((before, memories[0].clone()));
            }
            number += 1;
            Ok(())
        })?;
        plain.ok_or_else(|| String::from("the kernel was not run"))
    }

    /// Judges the program as if the kernel had written this. Returns what is wrong.
    fn judged(&self, written: &Elements) -> Result<Option<String>, String> {
        let mut number = 0;
        let outputs = self.each_kernel(&mut |ast, memories| {
            if number == self.kernel.number {
                memories[0].clone_from(written);
            } else {
                run_without_opts(ast, memories)?;
            }
            number += 1;
            Ok(())
        })?;
        Ok(stages::judge(self.expected, &outputs))
    }

    fn each_kernel(&self, run: stages::RunKernel<'_>) -> Result<Vec<Elements>, String> {
        stages::run(self.kernel.schedule, &mut Level::Run(run))
    }
}

fn run_without_opts(ast: &UOp, memories: &mut [Elements]) -> Result<(), String> {
    let linear = stages::lowered(ast, &Configuration::default())?;
    crate::backends::engine::run_alone("interp", &linear, memories)
}
