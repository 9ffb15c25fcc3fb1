//! Does a kernel give the same under every legal sequence of optimisations? All short sequences,
//! then random ones, each run as loops, written out and in vectors; or in groups of threads.

use gradiff::UOp;
use gradiff::kernel::{Opt, OptOp, PASSES, Setting, Strategy, Target, apply, draw, legal};
use gradiff::rewrite::{Mode, Trace};
use gradiff_corpus::Program;
use gradiff_oracle::Expected;

use crate::stages::{self, Elements, Level, Way};

/// Which sequences are tried on each kernel.
#[derive(Clone, Debug)]
pub enum Sequences {
    /// These opts, in this order.
    Given(Vec<Opt>),
    /// All legal sequences of at most `depth` opts, then `random` ones of up to eight, drawn from
    /// the seed.
    Legal {
        /// Opts of the sequences that are all tried.
        depth: usize,
        /// How many random ones follow, for each kernel.
        random: u64,
        /// Where they are drawn from.
        seed: u64,
    },
}

/// Opts of the longest random sequence.
const DEEPEST: usize = 8;

/// The targets that a sequence is run for, by name, and how that is told. Sequences are legal for
/// all targets of a list or for none.
const TARGETS: [&[(&str, &str)]; 2] = [
    &[("loops", "as loops"), ("plain", "written out"), ("vectors", "in vectors")],
    &[("groups", "in groups")],
];

/// What was tried.
#[derive(Clone, Debug, Default)]
pub struct OptsTally {
    /// Kernels of the program.
    pub kernels: u64,
    /// Sequences, over all kernels; each is run in one to three ways.
    pub sequences: u64,
    /// Those of them that a kernel runs with other bits than without opts: sums in another order.
    pub reordered: u64,
    /// How often each op was applied, in the order of [`OptOp::ALL`].
    pub ops: [u64; OptOp::ALL.len()],
}

/// A sequence under which a kernel is wrong.
#[derive(Clone, Debug)]
pub struct OptsFailure {
    /// The number of the kernel in the schedule.
    pub kernel: usize,
    /// Whether the schedule is that of rows, in which folds share kernels.
    pub has_rows: bool,
    /// The sequence.
    pub opts: Vec<Opt>,
    /// How it was run.
    pub how: &'static str,
    /// What is wrong.
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

/// Tries the sequences on each kernel of the program; stops at the first one that is wrong, and
/// when `is_over` says so. `seen` is told after each sequence.
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
        let mut way = Way::default();
        way.schedule.rows = has_rows;
        let schedule = stages::scheduled(&outputs, &way)?;
        let count = schedule.items.len() as u64;
        // A given sequence is one for the plain schedule, which commands show.
        let is_other = count != tally.kernels && matches!(sequences, Sequences::Legal { .. });
        if has_rows && !is_other {
            break;
        }
        tally.kernels += count;
        for kernel in 0..schedule.items.len() {
            let of = Kernel { schedule: &schedule, kernel, has_rows };
            let mut trial = Trial { of, expected: &expected, plain: None };
            let failure = trial.all(sequences, is_over, seen, &mut tally)?;
            if failure.is_some() || is_over() {
                return Ok((tally, failure));
            }
        }
    }
    Ok((tally, None))
}

/// What is done with a sequence.
type Each<'a> = &'a mut dyn FnMut(&[Opt]) -> Result<Option<OptsFailure>, String>;

/// Whether a given sequence is one for targets like this.
fn is_for(opts: &[Opt], target: &Target) -> bool {
    let in_groups = [OptOp::Local, OptOp::Group, OptOp::GroupTop, OptOp::NoLocals, OptOp::Tc];
    let wants_groups = opts.iter().any(|opt| in_groups.contains(&opt.op));
    wants_groups == target.groups.is_some()
}

/// How sequences are found.
struct Search<'a> {
    target: &'a Target,
    is_over: &'a dyn Fn() -> bool,
}

impl Search<'_> {
    fn setting(&self) -> Setting<'_> {
        Setting { mode: Mode::Default, target: self.target }
    }

    /// Every legal sequence of at most `depth` more opts.
    fn all(
        &self,
        root: &UOp,
        depth: usize,
        before: &mut Vec<Opt>,
        each: Each<'_>,
    ) -> Result<Option<OptsFailure>, String> {
        let found = each(before)?;
        if found.is_some() || depth == 0 {
            return Ok(found);
        }
        for opt in legal(root, self.setting()).map_err(|error| error.to_string())? {
            if (self.is_over)() {
                break;
            }
            let next = apply(root, opt, self.setting()).map_err(|error| error.to_string())?;
            before.push(opt);
            let found = self.all(&next, depth - 1, before, each)?;
            before.pop();
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    fn drawn(
        &self,
        root: &UOp,
        random: u64,
        seed: u64,
        each: Each<'_>,
    ) -> Result<Option<OptsFailure>, String> {
        for number in (0..random).take_while(|_| !(self.is_over)()) {
            let opts = draw(root, seed.wrapping_add(number), DEEPEST, self.setting());
            let found = each(&opts.map_err(|error| error.to_string())?)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }
}

/// The kernel as the pass that applies opts gets it.
fn optimizable(ast: &UOp, target: Target) -> Result<UOp, String> {
    let before = PASSES.iter().take_while(|pass| pass.name != "optimize").count();
    let way = Way { target, ..Way::default() };
    crate::blame::passed(ast, &way, before - 1, &mut Trace::default(), &mut "")
}

/// A kernel of a schedule.
#[derive(Clone, Copy)]
struct Kernel<'a> {
    schedule: &'a gradiff::schedule::Schedule,
    kernel: usize,
    has_rows: bool,
}

/// One kernel of a schedule, run again and again.
struct Trial<'a> {
    of: Kernel<'a>,
    expected: &'a [Expected],
    /// What the kernel reads, and what it writes without opts.
    plain: Option<(Vec<Elements>, Elements)>,
}

impl Trial<'_> {
    /// Tries the sequences in all ways.
    fn all(
        &mut self,
        sequences: &Sequences,
        is_over: &dyn Fn() -> bool,
        seen: &mut dyn FnMut(&OptsTally),
        tally: &mut OptsTally,
    ) -> Result<Option<OptsFailure>, String> {
        for targets in TARGETS {
            let target = Target::of(targets[0].0);
            let root = optimizable(&self.of.schedule.items[self.of.kernel].ast, target)?;
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
                        found => found,
                    }
                }
            };
            if failure.is_some() || is_over() {
                return Ok(failure);
            }
        }
        Ok(None)
    }

    /// Runs the kernel under the opts for each of the targets. Where its bits are those without
    /// opts nothing can be wrong; else the program is judged.
    fn run(
        &mut self,
        opts: &[Opt],
        targets: &[(&str, &'static str)],
        reordered: &mut u64,
    ) -> Result<Option<OptsFailure>, String> {
        for (target, how) in targets {
            let mut way = Way { target: Target::of(target), ..Way::default() };
            way.kernel.opts = Strategy::Fixed(opts.to_vec());
            let fail = |detail| {
                let (Kernel { kernel, has_rows, .. }, opts) = (self.of, opts.to_vec());
                OptsFailure { kernel, has_rows, opts, how, detail }
            };
            let ast = &self.of.schedule.items[self.of.kernel].ast;
            let linear = match crate::catch(|| stages::lowered(ast, &way)) {
                Ok(lowered) => lowered?,
                Err(panic) => return Ok(Some(fail(panic))),
            };
            if self.plain.is_none() {
                self.plain = Some(self.without()?);
            }
            let Some((memories, plain)) = &self.plain else { continue };
            let mut memories = memories.clone();
            if let Err(problem) = crate::engine::run_alone("interp", &linear, &mut memories) {
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

    /// What the kernel reads, and what it writes without opts.
    fn without(&self) -> Result<(Vec<Elements>, Elements), String> {
        let (mut number, mut found) = (0, None);
        self.each_kernel(&mut |ast, memories| {
            let before = memories.to_vec();
            plainly(ast, memories)?;
            if number == self.of.kernel {
                found = Some((before, memories[0].clone()));
            }
            number += 1;
            Ok(())
        })?;
        found.ok_or_else(|| String::from("the kernel was not run"))
    }

    /// What is wrong with the program if the kernel writes this.
    fn judged(&self, written: &Elements) -> Result<Option<String>, String> {
        let mut number = 0;
        let outputs = self.each_kernel(&mut |ast, memories| {
            if number == self.of.kernel {
                memories[0].clone_from(written);
            } else {
                plainly(ast, memories)?;
            }
            number += 1;
            Ok(())
        })?;
        Ok(stages::judge(self.expected, &outputs))
    }

    fn each_kernel(&self, run: stages::RunKernel<'_>) -> Result<Vec<Elements>, String> {
        stages::run(self.of.schedule, &mut Level::With(run))
    }
}

fn plainly(ast: &UOp, memories: &mut [Elements]) -> Result<(), String> {
    let linear = stages::lowered(ast, &Way::default())?;
    crate::engine::run_alone("interp", &linear, memories)
}
