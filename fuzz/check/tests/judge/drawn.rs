//! Drawn cases of every kind, in rounds. A round is a few of each kind, in the order of how much
//! they find for their time.

use gradiff::graph::DType;
use gradiff::render::LANGUAGES;
use gradiff_check::{Backend, Sequences};
use gradiff_corpus::{Case, Program};
use gradiff_gen::{Config, ExprConfig, SeedChoices, ViewConfig, case_seed};

use crate::corpus::{BATCH, agrees, blamed};
use crate::targets;
use crate::verdict::{Found, Of, Verdict};

/// Programs of a round, each on all configurations.
const PROGRAMS: u64 = 4;
/// View sequences of a round; one in sixteen is checked with variables as well.
const VIEWS: u64 = 16;
const SYMBOLIC_ONE_IN: u64 = 16;
/// Expressions of a round.
const EXPRS: u64 = 16;
/// Calls of the API of a round.
const CALLS: u64 = 16;
/// Random sequences of optimisations on each kernel of one program of the round.
const SEQUENCES: u64 = 6;
/// One program in so many is run stage by stage as well, by the evaluators that blame asks.
const STAGED_ONE_IN: u64 = 8;

/// Drawn kernels of a round, on one device in process.
const KERNELS: u64 = 6;
/// Every so many rounds a batch of drawn kernels goes to a compiler.
const COMPILED_EVERY: u64 = 12;
/// Kernels of such a batch.
const COMPILED: u64 = 12;
/// Of how many cases of ops the compiler has one, each time that it has its turn.
const OPS_EVERY: u64 = 2;

const DTYPES: [DType; 13] = DType::ALL;

/// The checks, and how many there were.
pub(crate) struct Checks {
    seed: u64,
    rounds: u64,
    config: Config,
    /// Configurations in process.
    pub(crate) direct: Vec<Box<dyn Backend>>,
    /// Those that call a compiler, and the programs that wait for them.
    pub(crate) batched: Vec<Box<dyn Backend>>,
    waiting: Vec<Program>,
    /// Where drawn kernels run: in process, and by a compiler.
    kernels: [Vec<&'static str>; 2],
    pub(crate) programs: u64,
    pub(crate) views: u64,
    pub(crate) exprs: u64,
    pub(crate) sequences: u64,
}

impl Checks {
    /// The first round of a seed comes next.
    pub(crate) fn new(seed: u64, devices: &str) -> Checks {
        let open = |devices: &str| -> Vec<Box<dyn Backend>> {
            let opened =
                crate::configurations(devices).into_iter().map(
                    |name| match gradiff_check::backends(&[name]) {
                        Ok(opened) => opened,
                        Err(error) if error.is_unknown_name => panic!("{}", error.message),
                        Err(error) => {
                            println!("skipped: {}", error.message);
                            Vec::new()
                        }
                    },
                );
            opened.flatten().collect()
        };
        let (in_process, others): (Vec<&str>, Vec<&str>) =
            devices.split(',').partition(|device| matches!(*device, "interp" | "jit" | "uops"));
        Checks {
            seed,
            rounds: 0,
            config: Config::default(),
            direct: open(&in_process.join(",")),
            batched: open(&others.join(",")),
            waiting: Vec::new(),
            kernels: kernel_devices(devices),
            programs: 0,
            views: 0,
            exprs: 0,
            sequences: 0,
        }
    }

    /// One round.
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
            gradiff_check::check_calls(first, CALLS).map_err(|detail| {
                let room = gradiff_check::room_of_calls(&detail);
                Found { detail, of: Of::Room(room, "calls") }
            })
        });
        self.kernels(verdict, first);
        if self.rounds.is_multiple_of(2) {
            verdict.check(&format!("trees:{}", self.rounds), || trees(first, 1));
        }
        self.rounds += 1;
    }

    /// Drawn kernels, on one device after the other.
    fn kernels(&self, verdict: &Verdict, seed: u64) {
        let [direct, compiled] = &self.kernels;
        let turn = |devices: &[&'static str], turn: u64| {
            let at = turn as usize % devices.len().max(1);
            devices.get(at).copied()
        };
        let of = |detail: String| {
            let room = gradiff_check::room_of_kernels(&detail);
            Found { detail, of: Of::Room(room, "kernels") }
        };
        if let Some(device) = turn(direct, self.rounds) {
            verdict.check(&format!("kernels:{device}:{}", self.rounds), || {
                gradiff_check::check_kernels(device, seed, KERNELS).map_err(of)
            });
        }
        let is_due = self.rounds % COMPILED_EVERY == COMPILED_EVERY / 2;
        if let Some(device) = turn(compiled, self.rounds / COMPILED_EVERY).filter(|_| is_due) {
            verdict.check_batch(&format!("kernels:{device}:{}", self.rounds), || {
                gradiff_check::check_kernels(device, seed, COMPILED).map_err(of)
            });
            verdict.check_batch(&format!("ops:{device}:{}", self.rounds), || {
                // Each visit of a device has every other case.
                let visit = self.rounds / COMPILED_EVERY / compiled.len().max(1) as u64;
                let first = self.seed.wrapping_add(visit) % OPS_EVERY;
                let count = gradiff_check::count_of_cases(device);
                let numbers: Vec<u64> = (first..count).step_by(OPS_EVERY as usize).collect();
                gradiff_check::check_cases(device, seed, &numbers).map_err(of)
            });
        }
        let number = self.seed.wrapping_add(self.rounds / 2);
        if self.rounds.is_multiple_of(2) {
            let count = direct.len().max(1) as u64;
            let Some(device) = turn(direct, self.rounds / 2) else { return };
            verdict.check(&format!("ops:{device}:{}", self.rounds), || {
                // Every number has its turn, from another one on for each seed.
                let number = self.seed.wrapping_add(self.rounds / 2 / count);
                gradiff_check::check_cases(device, seed, &[number]).map_err(of)
            });
        } else {
            let language = &LANGUAGES[number as usize % LANGUAGES.len()];
            let dtype = DTYPES[number as usize % DTYPES.len()];
            verdict.check(&format!("texts:{}:{}", language.name, self.rounds), || {
                gradiff_check::check_texts(language.name, dtype).map_err(of)
            });
        }
    }

    /// What still waits.
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
                let (room, stage) = room_of_target(&detail);
                Found { detail, of: Of::Room(room, stage) }
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

    /// Every stage of a program that is right is right.
    fn stages(&self, program: &Program) -> Result<(), Found> {
        let turn = (self.programs / STAGED_ONE_IN) as usize % self.direct.len();
        let backend = &self.direct[turn];
        if backend.supports(program).is_some() {
            return Ok(());
        }
        match gradiff_check::blame(program, backend.name()) {
            None => Ok(()),
            Some(blame) => {
                let of = Of::Program(Box::new(program.clone()), backend.name().to_string());
                Err(Found { detail: format!("{}: {blame}", backend.name()), of })
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
            Err(Found {
                detail: format!("{kind} on {}: {}", failure.backend, failure.detail),
                of: Of::Program(Box::new((*waiting[position]).clone()), failure.backend),
            })
        });
    }

    fn view(&mut self, verdict: &Verdict) {
        let number = self.views;
        let mut choices = SeedChoices::new(case_seed(self.seed, number));
        let views = gradiff_gen::views(&mut choices, &ViewConfig::default());
        self.views += 1;
        verdict.check(&format!("views:{number}"), || {
            let checked = gradiff_check::check_views(&views);
            let symbolic = || match number % SYMBOLIC_ONE_IN {
                0 => gradiff_check::check_symbolic_views(&views),
                _ => Ok(()),
            };
            let of = || blamed(&Case::Views(views.clone()));
            checked.and_then(|()| symbolic()).map_err(|detail| Found { detail, of: of() })
        });
    }

    fn expr(&mut self, verdict: &Verdict) {
        let number = self.exprs;
        let mut choices = SeedChoices::new(case_seed(self.seed, number));
        let expr = gradiff_gen::expr(&mut choices, &ExprConfig::default());
        self.exprs += 1;
        verdict.check(&format!("exprs:{number}"), || {
            gradiff_check::check_expr(&expr)
                .map_err(|detail| Found { detail, of: blamed(&Case::Expr(expr.clone())) })
        });
    }
}

/// The crate and the stage to blame for what is wrong with a program as another target has it.
fn room_of_target(problem: &str) -> (&'static str, &'static str) {
    match () {
        () if problem.contains("reads back as") => ("graph", "text"),
        // What a list of uops for a target breaks.
        () if problem.starts_with("for ") => ("kernel", "linearize"),
        () => ("render", "render"),
    }
}

/// Kernel trees that follow from the seed.
pub(crate) fn trees(seed: u64, count: u64) -> Result<(), Found> {
    gradiff_check::check_trees(seed, count)
        .map_err(|detail| Found { detail, of: Of::Room("kernel", "trees") })
}

/// Where drawn kernels run, of the chosen devices: in process, and by a compiler that is here.
fn kernel_devices(devices: &str) -> [Vec<&'static str>; 2] {
    let is_chosen = |device: &&str| {
        let word = if matches!(*device, "interp" | "jit" | "c") { device } else { &"text" };
        devices.split(',').any(|chosen| chosen == *word)
    };
    let has_compiler = |device: &&str| gradiff_check::check_kernels(device, 0, 0).is_ok();
    let compiled = gradiff_check::COMPILED.into_iter().filter(is_chosen);
    [
        gradiff_check::DIRECT.into_iter().filter(is_chosen).collect(),
        compiled.filter(has_compiler).collect(),
    ]
}

/// Sequences of optimisations on every kernel of the program; gives how many.
fn opts(program: &Program, seed: u64) -> Result<u64, Found> {
    let sequences = Sequences::Legal { depth: 0, random: SEQUENCES, seed };
    match gradiff_check::opts(program, &sequences, &|| false, &mut |_| {}) {
        Ok((tally, None)) => Ok(tally.sequences),
        Ok((_, Some(failure))) => {
            Err(Found { detail: failure.to_string(), of: Of::Room("kernel", "optimize") })
        }
        Err(refusal) => Err(Found { detail: refusal, of: Of::Nothing }),
    }
}
