//! Drawn cases of every kind, in rounds. A round has a few cases of each kind, ordered by how much
//! they find in their time.

use std::cell::Cell;

use gradiff::graph::DType;
use gradiff::render::LANGUAGES;
use gradiff_check::{Backend, Crate, Sequences, Stage, testing};
use gradiff_corpus::{Case, ExprCase, Program, ViewOps};
use gradiff_gen::{Config, ExprConfig, SeedChoices, ViewConfig, case_seed};
use gradiff_skip::{of_backend, or_skip};

use crate::clock::cpu_seconds;
use crate::corpus::{BATCH, agrees, blamed};
use crate::targets;
use crate::verdict::{Failure, Subject, Verdict};

/// Number of programs of a round, each on all configurations.
const PROGRAMS: u64 = 4;
/// Number of view sequences of a round; one in four is checked with variables as well.
const VIEWS: u64 = 48;
const SYMBOLIC_ONE_IN: u64 = 4;
/// Once in so many rounds, so many sequences are compared with each other; of a thousand pairs that
/// move all elements alike, so many may give different trackers: some ten times as many as do.
const ALIKE_EVERY: u64 = 4;
const ALIKE_VIEWS: u64 = 20_000;
const UNEQUAL_OF_1000: u64 = 1;
/// Number of expressions of a round.
const EXPRS: u64 = 48;
/// Number of API calls of a round.
const CALLS: u64 = 96;
/// Number of rounds in which each call with a source of another dtype or shape is made once.
const SWEEP: u64 = 16;
/// Number of rounds in which each call on sources near the limit of elements is made once.
const LARGE: u64 = 16;
/// Number of rounds in which each program of a method on small sources runs once.
const SMALL: u64 = 8;
/// Number of kernel trees of a round, each with a matrix product and sums.
const TREES: u64 = 2;
/// Number of random sequences of optimisations on each kernel of one program of the round.
const SEQUENCES: u64 = 6;
/// CPU seconds after which no further sequence is tried on a program: a hash of two rows takes
/// seconds for each.
const SEQUENCES_SECONDS: f64 = 3.0;
/// One program in this many is run stage by stage as well, by the evaluators that blame uses.
const STAGED_ONE_IN: u64 = 8;

/// Number of drawn kernels of a round, on one device in process.
const KERNELS: u64 = 6;
/// Number of rounds between batches of drawn kernels that go to a compiler.
const COMPILED_EVERY: u64 = 12;
/// Number of view sequences, and of expressions, that are checked before a program is blamed.
const BLAME_CASES: u64 = 200;
/// Number of kernels of such a batch.
const COMPILED: u64 = 12;
/// Each time it has its turn, the compiler gets one case of ops in this many.
const OPS_EVERY: u64 = 2;

const DTYPES: [DType; 13] = DType::ALL;

/// The checks and their counts.
pub(crate) struct Checks {
    seed: u64,
    rounds: u64,
    config: Config,
    /// Configurations in process.
    pub(crate) direct: Vec<Box<dyn Backend>>,
    /// Configurations that call a compiler, and the programs that wait for them.
    pub(crate) batched: Vec<Box<dyn Backend>>,
    waiting: Vec<Program>,
    /// Devices for drawn kernels: in process, and with a compiler.
    kernels: [Vec<&'static str>; 2],
    pub(crate) programs: u64,
    pub(crate) views: u64,
    pub(crate) exprs: u64,
    pub(crate) sequences: u64,
    /// Drawn kernels for which the compiler took too long.
    pub(crate) skipped: Cell<u64>,
}

impl Checks {
    /// Checks that begin with the first round of a seed.
    pub(crate) fn new(seed: u64, devices: &str) -> Checks {
        let open = |devices: &str| -> Vec<Box<dyn Backend>> {
            let opened = crate::configurations(devices).into_iter().map(|name| {
                let opened = gradiff_check::backends(std::slice::from_ref(&name));
                let opened = opened.map_err(|error| match error.is_unknown_name {
                    true => panic!("{}", error.message),
                    false => error.message,
                });
                or_skip(of_backend(&name), opened).unwrap_or_default()
            });
            opened.flatten().collect()
        };
        let (in_process, compiled): (Vec<&str>, Vec<&str>) =
            devices.split(',').partition(|device| matches!(*device, "interp" | "jit" | "uops"));
        Checks {
            seed,
            rounds: 0,
            config: Config::default(),
            direct: open(&in_process.join(",")),
            batched: open(&compiled.join(",")),
            waiting: Vec::new(),
            kernels: kernel_devices(devices),
            programs: 0,
            views: 0,
            exprs: 0,
            sequences: 0,
            skipped: Cell::new(0),
        }
    }

    /// Runs one round.
    pub(crate) fn round(&mut self, verdict: &Verdict) {
        for _ in 0..PROGRAMS {
            self.program(verdict);
        }
        for _ in 0..VIEWS {
            self.view(verdict);
        }
        for _ in 0..EXPRS {
            self.expr(verdict);
        }
        let first = case_seed(self.seed, self.rounds);
        verdict.check(&format!("calls:{}", self.rounds), || {
            testing::check_calls(first, CALLS).map_err(|detail| {
                let crate_name = testing::crate_of_calls(&detail);
                Failure { detail, subject: Subject::Crate(crate_name, Stage::Calls) }
            })
        });
        verdict.check(&format!("sweep:{}", self.rounds), || {
            testing::check_damaged(self.seed.wrapping_add(self.rounds), SWEEP).map_err(|detail| {
                let crate_name = testing::crate_of_calls(&detail);
                Failure { detail, subject: Subject::Crate(crate_name, Stage::Calls) }
            })
        });
        verdict.check(&format!("large:{}", self.rounds), || {
            testing::check_large(self.seed.wrapping_add(self.rounds), LARGE).map_err(|detail| {
                let crate_name = testing::crate_of_calls(&detail);
                Failure { detail, subject: Subject::Crate(crate_name, Stage::Calls) }
            })
        });
        verdict.check(&format!("small:{}", self.rounds), || {
            let programs = testing::small_programs(self.seed.wrapping_add(self.rounds), SMALL);
            let direct = &self.direct[..self.direct.len().min(1)];
            programs.iter().try_for_each(|program| agrees(program, direct, None))
        });
        self.kernels(verdict, first);
        verdict.check(&format!("trees:{}", self.rounds), || trees(first, TREES));
        if self.rounds % ALIKE_EVERY == ALIKE_EVERY / 2 {
            verdict.check(&format!("alike:{}", self.rounds), || alike(first));
        }
        self.rounds += 1;
    }

    /// Checks drawn kernels of one device.
    fn drawn_kernels(&self, device: &str, seed: u64, count: u64) -> Result<(), String> {
        let skipped = testing::check_kernels(device, seed, count)?;
        self.skipped.set(self.skipped.get() + skipped);
        Ok(())
    }

    /// Checks drawn kernels; devices take turns.
    fn kernels(&self, verdict: &Verdict, seed: u64) {
        let [direct, compiled] = &self.kernels;
        let turn = |devices: &[&'static str], turn: u64| {
            let at = turn as usize % devices.len().max(1);
            devices.get(at).copied()
        };
        let failure = |detail: String| {
            let crate_name = testing::crate_of_kernels(&detail);
            Failure { detail, subject: Subject::Crate(crate_name, Stage::Drawn) }
        };
        if let Some(device) = turn(direct, self.rounds) {
            verdict.check(&format!("kernels:{device}:{}", self.rounds), || {
                self.drawn_kernels(device, seed, KERNELS).map_err(failure)
            });
        }
        let is_due = self.rounds % COMPILED_EVERY == COMPILED_EVERY / 2;
        if let Some(device) = turn(compiled, self.rounds / COMPILED_EVERY).filter(|_| is_due) {
            verdict.check_batch(&format!("kernels:{device}:{}", self.rounds), || {
                self.drawn_kernels(device, seed, COMPILED).map_err(failure)
            });
            verdict.check_batch(&format!("ops:{device}:{}", self.rounds), || {
                // Visits of a device take every other case, alternately.
                let visit = self.rounds / COMPILED_EVERY / compiled.len().max(1) as u64;
                let first = self.seed.wrapping_add(visit) % OPS_EVERY;
                let count = testing::count_of_cases(device);
                let numbers: Vec<u64> = (first..count).step_by(OPS_EVERY as usize).collect();
                testing::check_cases(device, seed, &numbers).map_err(failure)
            });
        }
        let number = self.seed.wrapping_add(self.rounds / 2);
        if self.rounds.is_multiple_of(2) {
            let count = direct.len().max(1) as u64;
            let Some(device) = turn(direct, self.rounds / 2) else { return };
            verdict.check(&format!("ops:{device}:{}", self.rounds), || {
                // Every number has its turn; the first one depends on the seed.
                let number = self.seed.wrapping_add(self.rounds / 2 / count);
                testing::check_cases(device, seed, &[number]).map_err(failure)
            });
        } else {
            let language = &LANGUAGES[number as usize % LANGUAGES.len()];
            let dtype = DTYPES[number as usize % DTYPES.len()];
            verdict.check(&format!("texts:{}:{}", language.name, self.rounds), || {
                testing::check_texts(language.name, dtype).map_err(failure)
            });
        }
    }

    /// Prints each stage of the program of a check, on each configuration, before it is evaluated;
    /// ends with the first one that is wrong.
    pub(crate) fn blame_in_steps(&self, check: &str) {
        let program = match check.split_once(':') {
            Some(("corpus", stem)) => crate::corpus::program(stem),
            Some(("program", number)) => number
                .parse()
                .ok()
                .map(|number| gradiff_gen::program_at(self.seed, number, &self.config).program),
            _ => None,
        };
        let print =
            |stage: Stage, crate_name: Crate| println!("BEGAN\tcrate={crate_name}\tstage={stage}");
        // What most stages rely on comes first, since a stage that dies in it is not to blame.
        print(Stage::Calls, Crate::Runtime);
        if testing::check_runtime().is_err() {
            return;
        }
        print(Stage::Fold, Crate::Graph);
        if let Some(suspect) = testing::suspect("") {
            return print(suspect.stage, suspect.crate_name);
        }
        print(Stage::Movements, Crate::View);
        if let Some(("views", number)) = check.split_once(':') {
            let views = number.parse().map(|number| views(self.seed, number));
            if views.is_ok_and(|views| gradiff_check::check_views(&views).is_err()) {
                return;
            }
        }
        if (0..BLAME_CASES).any(|number| gradiff_check::check_views(&views(1, number)).is_err()) {
            return;
        }
        print(Stage::Rules, Crate::Rewrite);
        if (0..BLAME_CASES).any(|number| gradiff_check::check_expr(&expr(1, number)).is_err()) {
            return;
        }
        let Some(program) = program else {
            // Texts run in other processes: this one dies in what the runtime has compiled.
            return print(Stage::Launch, Crate::Runtime);
        };
        for backend in self.direct.iter().filter(|backend| backend.supports(&program).is_none()) {
            let blame =
                gradiff_check::blame_in_steps(&program, backend.name(), &mut |s, r| print(s, r));
            if let Some(blame) = blame {
                return print(blame.stage, blame.crate_name);
            }
        }
        // Nothing in process is wrong: a text, or what runs the compiled ones.
        print(Stage::Render, Crate::Render);
        for number in 0..LANGUAGES.len() as u64 {
            if targets::check(&program, number).is_err() {
                return;
            }
        }
        print(Stage::Launch, Crate::Runtime);
    }

    /// Runs the programs that still wait for a compiler.
    pub(crate) fn finish(&mut self, verdict: &Verdict) {
        self.compile(verdict);
    }

    fn program(&mut self, verdict: &Verdict) {
        let number = self.programs;
        let program = gradiff_gen::program_at(self.seed, number, &self.config).program;
        self.programs += 1;
        verdict
            .check(&format!("program:{number}"), || agrees(&program, &self.direct, Some(number)));
        verdict.check(&format!("targets:{number}"), || {
            targets::check(&program, number).map_err(|detail| {
                let (crate_name, stage) = crate_of_target(&detail);
                Failure { detail, subject: Subject::Crate(crate_name, stage) }
            })
        });
        if number.is_multiple_of(STAGED_ONE_IN) && !self.direct.is_empty() {
            verdict.check(&format!("stages:{number}"), || self.stages(&program));
        }
        if number.is_multiple_of(PROGRAMS) {
            verdict.check(&format!("opts:{number}"), || {
                self.sequences += opts(&program, self.seed.wrapping_add(number))?;
                Ok(())
            });
        }
        if !self.batched.is_empty() {
            self.waiting.push(program);
            if self.waiting.len() == BATCH {
                self.compile(verdict);
            }
        }
    }

    /// Checks that every stage of a right program is right.
    fn stages(&self, program: &Program) -> Result<(), Failure> {
        let turn = (self.programs / STAGED_ONE_IN) as usize % self.direct.len();
        let backend = &self.direct[turn];
        if backend.supports(program).is_some() {
            return Ok(());
        }
        match gradiff_check::blame(program, backend.name()) {
            None => Ok(()),
            Some(blame) => {
                let subject =
                    Subject::Program(Box::new(program.clone()), backend.name().to_string());
                Err(Failure { detail: format!("{}: {blame}", backend.name()), subject })
            }
        }
    }

    fn compile(&mut self, verdict: &Verdict) {
        let waiting = std::mem::take(&mut self.waiting);
        let (batched, programs) = (&self.batched, self.programs);
        if waiting.is_empty() {
            return;
        }
        verdict.check_batch(&format!("batch:{programs}"), || {
            let first = programs - waiting.len() as u64;
            let waiting: Vec<&Program> = waiting.iter().collect();
            let numbers: Vec<u64> = (first..programs).collect();
            let (_, failures) =
                gradiff_check::agree_in_steps(&waiting, batched, Some(&numbers), &mut |_| {});
            let Some((position, failure)) = failures.into_iter().next() else { return Ok(()) };
            let kind = failure.kind.name();
            Err(Failure {
                detail: format!("{kind} on {}: {}", failure.backend, failure.detail),
                subject: Subject::Program(Box::new((*waiting[position]).clone()), failure.backend),
            })
        });
    }

    fn view(&mut self, verdict: &Verdict) {
        let number = self.views;
        let views = views(self.seed, number);
        self.views += 1;
        verdict.check(&format!("views:{number}"), || {
            let checked = gradiff_check::check_views(&views);
            let symbolic = || match number % SYMBOLIC_ONE_IN {
                0 => gradiff_check::check_symbolic_views(&views),
                _ => Ok(()),
            };
            let subject = || blamed(&Case::Views(views.clone()));
            checked
                .and_then(|()| symbolic())
                .map_err(|detail| Failure { detail, subject: subject() })
        });
    }

    fn expr(&mut self, verdict: &Verdict) {
        let number = self.exprs;
        let expr = expr(self.seed, number);
        self.exprs += 1;
        verdict.check(&format!("exprs:{number}"), || {
            gradiff_check::check_expr(&expr)
                .map_err(|detail| Failure { detail, subject: blamed(&Case::Expr(expr.clone())) })
        });
    }
}

/// Checks that sequences which move all elements alike give equal trackers, nearly all of them.
fn alike(seed: u64) -> Result<(), Failure> {
    let draw = |number| {
        gradiff_gen::views(&mut SeedChoices::new(case_seed(seed, number)), &ViewConfig::alike())
    };
    let fails = |detail| Failure { detail, subject: Subject::Crate(Crate::View, Stage::Movements) };
    let equal = gradiff_check::equal_views((0..ALIKE_VIEWS).map(draw)).map_err(fails)?;
    match equal.unequal * 1000 <= equal.pairs * UNEQUAL_OF_1000 {
        true => Ok(()),
        false => Err(fails(format!(
            "{} of {} pairs of sequences that move all elements alike give different trackers",
            equal.unequal, equal.pairs
        ))),
    }
}

fn views(seed: u64, number: u64) -> ViewOps {
    gradiff_gen::views(&mut SeedChoices::new(case_seed(seed, number)), &ViewConfig::default())
}

fn expr(seed: u64, number: u64) -> ExprCase {
    gradiff_gen::expr(&mut SeedChoices::new(case_seed(seed, number)), &ExprConfig::default())
}

/// The crate and the stage to blame for a problem of a program that is compiled for another target.
fn crate_of_target(problem: &str) -> (Crate, Stage) {
    match () {
        () if problem.contains("reads back as") => (Crate::Graph, Stage::Text),
        // The linear uops break a rule of the target.
        () if problem.starts_with("for ") => (Crate::Kernel, Stage::LINEARIZE),
        () => (Crate::Render, Stage::Render),
    }
}

/// Checks kernel trees that follow from the seed.
pub(crate) fn trees(seed: u64, count: u64) -> Result<(), Failure> {
    testing::check_trees(seed, count).map_err(|detail| {
        let subject = match testing::crate_of_trees(&detail) {
            Crate::Rewrite => Subject::Crate(Crate::Rewrite, Stage::Rules),
            found => Subject::Crate(found, Stage::Drawn),
        };
        Failure { detail, subject }
    })
}

/// The chosen devices for drawn kernels: those in process, and those whose compiler is available.
fn kernel_devices(devices: &str) -> [Vec<&'static str>; 2] {
    let is_chosen = |device: &&str| {
        let word = if matches!(*device, "interp" | "jit" | "c") { device } else { &"text" };
        devices.split(',').any(|chosen| chosen == *word)
    };
    let has_compiler = |device: &&str| testing::check_kernels(device, 0, 0).is_ok();
    let compiled = testing::COMPILED.into_iter().filter(is_chosen);
    [
        testing::DIRECT.into_iter().filter(is_chosen).collect(),
        compiled.filter(has_compiler).collect(),
    ]
}

/// Tries sequences of optimisations on every kernel of the program; returns their number.
fn opts(program: &Program, seed: u64) -> Result<u64, Failure> {
    let sequences = Sequences::Legal { depth: 0, random: SEQUENCES, seed };
    let began = cpu_seconds();
    let is_over = || cpu_seconds() - began > SEQUENCES_SECONDS;
    match gradiff_check::opts(program, &sequences, &is_over, &mut |_| {}) {
        Ok((tally, None)) => Ok(tally.sequences),
        Ok((_, Some(failure))) => Err(Failure {
            detail: failure.to_string(),
            subject: Subject::Crate(Crate::Kernel, Stage::OPTIMIZE),
        }),
        Err(refusal) => Err(Failure { detail: refusal, subject: Subject::Unknown }),
    }
}
