//! The engine as backends: each device, and each other way to bring a program to it.

use std::sync::Arc;

use gradiff::graph::{BoundedLinear, Constant, Linear, Thresholds};
use gradiff::kernel::{Strategy, Target};
use gradiff::rewrite::Mode;
use gradiff::runtime::{Device, Executable};
use gradiff::{Engine, Plan, PlannedKernel, Tensor};
use gradiff_corpus::{Array, BinaryOp, DType, Program, Statement, UnaryOp};

use crate::linear::Uops;
use crate::refusal::Refusal;
use crate::session::Session;
use crate::stages::{Elements, Way};
use crate::{Backend, Outcome, translate};

/// Numbers of consecutive programs that take the same turn, so that they share a call of a
/// compiler.
const TURN_PROGRAMS: u64 = 8;

/// Which programs of a hunt a backend runs: of every so many groups of eight, one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    every: u64,
    at: u64,
}

impl Turn {
    /// Every program.
    pub const ALWAYS: Turn = Turn::new(1, 0);
    /// No program: the backend has to be named.
    pub const NEVER: Turn = Turn::new(0, 0);

    const fn new(every: u64, at: u64) -> Turn {
        Turn { every, at }
    }

    /// Whether it is this program's turn.
    pub fn takes(self, program: u64) -> bool {
        self.every != 0 && program / TURN_PROGRAMS % self.every == self.at % self.every
    }
}

/// One row of the table of backends.
#[derive(Debug)]
pub struct BackendRow {
    /// The name: a device, or a device and a mode.
    pub name: &'static str,
    /// The device it runs on.
    pub device: &'static str,
    /// What is special about it.
    pub story: &'static str,
    /// Which programs of a hunt it runs unless backends are named.
    pub turn: Turn,
    fuse: bool,
    merge_views: bool,
    mode: Mode,
    opts: Opts,
    /// The name of the target.
    target: &'static str,
    /// What asks for finite numbers: programs with others are no cases for it.
    finite_for: Option<&'static str>,
    /// Whether a zero keeps its sign.
    zero_signs: bool,
    /// From which sizes on kernels are made in another way.
    thresholds: Thresholds,
    /// Whether tensors are realised, read in parts, kept and dropped as applications do.
    is_session: bool,
}

/// Which optimisations kernels get.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Opts {
    None,
    /// Up to this many, drawn among the legal ones.
    Drawn(usize),
    Heuristic,
}

const fn row(name: &'static str, device: &'static str, story: &'static str) -> BackendRow {
    BackendRow {
        name,
        device,
        story,
        turn: Turn::ALWAYS,
        fuse: true,
        merge_views: true,
        mode: Mode::Default,
        opts: Opts::None,
        target: device,
        finite_for: None,
        zero_signs: true,
        thresholds: Thresholds::USUAL,
        is_session: false,
    }
}

const fn row_with(
    opts: Opts,
    name: &'static str,
    device: &'static str,
    story: &'static str,
) -> BackendRow {
    BackendRow { opts, ..row(name, device, story) }
}

/// Up to five legal optimisations of each kernel, drawn, for a target.
const fn drawn(
    name: &'static str,
    device: &'static str,
    target: &'static str,
    story: &'static str,
) -> BackendRow {
    BackendRow { target, ..row_with(Opts::Drawn(5), name, device, story) }
}

const AS_NEW: &str = "as `Engine::new` makes it: the engine's choice of optimisations";

/// A device as a user of the library has it.
const fn heuristic(name: &'static str, device: &'static str) -> BackendRow {
    row_with(Opts::Heuristic, name, device, AS_NEW)
}

/// The engine's choice where a hundred elements are many, as megabytes are for users.
const fn small(
    name: &'static str,
    device: &'static str,
    target: &'static str,
    turn: Turn,
) -> BackendRow {
    let story = "the engine's choice, its thresholds so low that few elements cross them";
    let row = row_with(Opts::Heuristic, name, device, story);
    BackendRow { target, turn, thresholds: Thresholds::SMALL, ..row }
}

/// A device as applications use it.
const fn session(name: &'static str, device: &'static str, turn: Turn) -> BackendRow {
    let story = "realised step by step, read in parts, kept and dropped, by engines and threads";
    BackendRow { is_session: true, turn, ..row_with(Opts::Heuristic, name, device, story) }
}

/// Kernels as a target that need not be here gets them, held to its promises. Each of the rows
/// takes its turn, so that all together cost what one backend does.
const fn uops(
    at: u64,
    name: &'static str,
    target: &'static str,
    opts: Opts,
    story: &'static str,
) -> BackendRow {
    BackendRow { target, turn: Turn::new(UOPS_COUNT, at), ..row_with(opts, name, UOPS, story) }
}

/// The device that evaluates uops for any target.
const UOPS: &str = "uops";

/// How many rows there are on it.
const UOPS_COUNT: u64 = 13;

/// The text of a language that this machine has no device for, run here.
const fn text(
    turn: Turn,
    name: &'static str,
    target: &'static str,
    opts: Opts,
    story: &'static str,
) -> BackendRow {
    BackendRow { target, turn, ..row_with(opts, name, TEXT, story) }
}

/// What is special about a text that clang compiles.
const COMPILED: &str = "the text that a device would get, compiled for this machine";

/// What is special about a text in WGSL.
const INTERPRETED: &str = "WGSL by an interpreter of the text";

/// The device that runs texts of any language.
const TEXT: &str = "text";

/// A backend of `wgpu`. WGSL lets compilers take either zero for the other, and Mesa makes -0.0 of
/// 0.0 - 0.0; it lets them take all numbers for finite ones, and Mesa makes 0 of x - x.
const fn wgpu(
    name: &'static str,
    device: &'static str,
    opts: Opts,
    story: &'static str,
) -> BackendRow {
    BackendRow {
        opts,
        turn: Turn::NEVER,
        finite_for: Some("WGSL"),
        zero_signs: false,
        target: "wgpu",
        ..row(name, device, story)
    }
}

/// Every backend: a new device or mode is one line.
pub const BACKENDS: &[BackendRow] = &[
    row("interp", "interp", "checked interpreter: stray and uninitialised reads are errors"),
    row("jit", "jit", "machine code by Cranelift, in process"),
    BackendRow { turn: Turn::new(12, 0), ..row("c", "c", "C source by the system's compiler") },
    BackendRow {
        turn: Turn::NEVER,
        ..row("opencl", "opencl", "OpenCL C by the driver that is there")
    },
    BackendRow { fuse: false, ..row("interp/unfused", "interp", "every node realised") },
    BackendRow { merge_views: false, ..row("interp/unmerged", "interp", "views never merged") },
    BackendRow {
        mode: Mode::Strict,
        ..row("interp/strict", "interp", "only rules that keep every bit")
    },
    BackendRow {
        mode: Mode::Fast,
        finite_for: Some("fast mode"),
        ..row("interp/fast", "interp", "also rules that hold of finite numbers alone")
    },
    drawn("interp/opts", "interp", "loops", "legal optimisations, drawn for each kernel"),
    drawn("interp/vectors", "interp", "vectors", "the same, unrolled, in vectors"),
    drawn("interp/groups", "interp", "groups", "the same in groups of threads, limits drawn"),
    BackendRow { turn: Turn::new(2, 1), ..drawn("jit/opts", "jit", "plain", "the same, unrolled") },
    BackendRow {
        turn: Turn::new(4, 0),
        ..drawn("jit/vectors", "jit", "vectors", "the same, unrolled, in vectors")
    },
    heuristic("interp/heuristic", "interp"),
    BackendRow {
        target: "groups",
        ..row_with(
            Opts::Heuristic,
            "interp/groups-heuristic",
            "interp",
            "the engine's choice for groups, limits drawn",
        )
    },
    heuristic("jit/heuristic", "jit"),
    BackendRow { turn: Turn::new(4, 1), ..heuristic("c/heuristic", "c") },
    BackendRow {
        turn: Turn::new(32, 1),
        ..drawn("c/opts", "c", "c", "legal optimisations, in the vectors of this machine")
    },
    BackendRow {
        turn: Turn::NEVER,
        ..drawn("opencl/opts", "opencl", "opencl", "legal optimisations, drawn for each kernel")
    },
    BackendRow { turn: Turn::new(128, 3), ..heuristic("opencl/heuristic", "opencl") },
    small("interp/groups-small", "interp", "groups", Turn::new(2, 0)),
    small("jit/small", "jit", "jit", Turn::new(2, 1)),
    small("c/small", "c", "c", Turn::new(64, 18)),
    session("interp/session", "interp", Turn::ALWAYS),
    session("jit/session", "jit", Turn::new(2, 0)),
    session("c/session", "c", Turn::new(64, 9)),
    session("opencl/session", "opencl", Turn::NEVER),
    session("cuda/session", "cuda", Turn::NEVER),
    BackendRow {
        is_session: true,
        turn: Turn::new(128, 21),
        ..wgpu("wgpu/session", "wgpu", Opts::Heuristic, "used as applications do")
    },
    uops(0, "uops/cuda", "cuda", Opts::Heuristic, "what the engine chooses for CUDA"),
    uops(1, "uops/cuda-opts", "cuda", Opts::Drawn(5), "legal optimisations for CUDA"),
    uops(2, "uops/tf32", "cuda-tf32", Opts::Heuristic, "CUDA's products of f32, exact here"),
    uops(3, "uops/tf32-opts", "cuda-tf32", Opts::Drawn(5), "the same, drawn"),
    uops(4, "uops/ptx", "ptx", Opts::Drawn(5), "legal optimisations for PTX"),
    uops(5, "uops/opencl", "opencl", Opts::Heuristic, "what the engine chooses for OpenCL"),
    uops(6, "uops/opencl-opts", "opencl", Opts::Drawn(5), "legal optimisations for OpenCL"),
    uops(7, "uops/metal", "metal", Opts::Heuristic, "what the engine chooses for Metal"),
    uops(8, "uops/wgsl", "wgsl", Opts::Heuristic, "what the engine chooses for WGSL"),
    uops(9, "uops/cpu", "cpu", Opts::Heuristic, "its choice for threads and long vectors"),
    uops(10, "uops/small", "small", Opts::Drawn(5), "a device whose limits small kernels meet"),
    uops(12, "uops/small-usual", "small", Opts::Heuristic, "what the engine chooses for it"),
    BackendRow {
        mode: Mode::Strict,
        ..uops(11, "uops/strict", "cpu", Opts::Drawn(5), "strict mode where FMA is fast")
    },
    text(Turn::new(8, 5), "text/ptx", "ptx", Opts::Heuristic, "PTX by an interpreter of the text"),
    text(Turn::new(8, 1), "text/ptx-opts", "ptx", Opts::Drawn(5), "the same, optimisations drawn"),
    BackendRow {
        finite_for: Some("f16 in WGSL"),
        ..text(Turn::new(8, 3), "text/wgsl", "wgsl", Opts::Heuristic, INTERPRETED)
    },
    text(Turn::new(8, 6), "text/wgsl-core", "wgsl-core", Opts::Drawn(5), "the same, no extensions"),
    BackendRow {
        mode: Mode::Strict,
        opts: Opts::Drawn(5),
        target: "vectors",
        turn: Turn::new(8, 2),
        ..row("jit/strict", "jit", "strict mode in vectors, bit for bit")
    },
    BackendRow {
        mode: Mode::Strict,
        opts: Opts::Drawn(5),
        turn: Turn::new(64, 17),
        ..row("c/strict", "c", "the same, in the vectors of this machine")
    },
    text(Turn::new(32, 0), "text/cuda", "cuda", Opts::Drawn(5), COMPILED),
    text(Turn::new(32, 9), "text/metal", "metal", Opts::Drawn(5), COMPILED),
    text(Turn::new(32, 18), "text/opencl", "opencl", Opts::Drawn(5), COMPILED),
    text(Turn::new(32, 27), "text/llvm", "llvm", Opts::Drawn(5), COMPILED),
    wgpu("wgpu", "wgpu", Opts::None, "WGSL by the crate wgpu: Vulkan, Metal"),
    wgpu("wgpu/core", "wgpu-core", Opts::None, "the same without extensions: f16 by its bits"),
    wgpu("wgpu/opts", "wgpu", Opts::Drawn(5), "legal optimisations, drawn for each kernel"),
    BackendRow {
        turn: Turn::new(64, 5),
        ..wgpu("wgpu/heuristic", "wgpu", Opts::Heuristic, AS_NEW)
    },
    BackendRow {
        turn: Turn::new(64, 37),
        ..wgpu("wgpu/core-heuristic", "wgpu-core", Opts::Heuristic, AS_NEW)
    },
    BackendRow { turn: Turn::NEVER, ..row("cuda", "cuda", "CUDA C++ by NVRTC") },
    BackendRow {
        turn: Turn::NEVER,
        ..drawn("cuda/opts", "cuda", "cuda", "legal optimisations, drawn for each kernel")
    },
    BackendRow { turn: Turn::new(16, 7), ..heuristic("cuda/heuristic", "cuda") },
];

impl BackendRow {
    /// The device's version, or why it is not there.
    ///
    /// # Errors
    /// It is not there.
    pub fn status(&self) -> Result<String, String> {
        let device = self.device()?;
        Ok(format!("{}; {}", device.describe(), device.limits()))
    }

    fn device(&self) -> Result<Arc<dyn Device>, String> {
        match (self.device, self.target) {
            (UOPS, target) => Ok(Arc::new(Uops::open(target)?)),
            (TEXT, target) => crate::texts::open(target),
            (device, _) => gradiff::runtime::device(device).map_err(|error| error.to_string()),
        }
    }

    /// Returns whether the device is one of this crate, which stands for its target.
    fn is_of_harness(&self) -> bool {
        matches!(self.device, UOPS | TEXT)
    }

    /// The command that installs on Debian what the backend needs, as root; `None` if it needs
    /// nothing that Debian has.
    pub fn install(&self) -> Option<&'static str> {
        match (self.device, self.target) {
            (TEXT, "ptx") => None,
            (TEXT, _) => Some("apt-get install clang-16"),
            ("c", _) => Some("apt-get install gcc libc6-dev"),
            ("opencl", _) => Some("apt-get install ocl-icd-libopencl1 pocl-opencl-icd"),
            ("wgpu" | "wgpu-core", _) => Some("apt-get install libvulkan1 mesa-vulkan-drivers"),
            ("cuda", _) => Some(
                "apt-get install nvidia-driver nvidia-cuda-toolkit (component non-free; with a GPU of NVIDIA)",
            ),
            _ => None,
        }
    }

    fn is_strict(&self) -> bool {
        self.mode == Mode::Strict
    }

    fn way(&self) -> Way {
        let mut way = Way::default();
        way.schedule.fuse = self.fuse;
        way.schedule.merge_views = self.merge_views;
        way.kernel.rewrite.mode = self.mode;
        way.kernel.opts = match self.opts {
            Opts::None => Strategy::None,
            Opts::Drawn(most) => Strategy::Drawn { seed: 0, limit: most },
            Opts::Heuristic => Strategy::Heuristic,
        };
        way.kernel.limits = self.draws_limits().then_some(0);
        let target = crate::linear::target(self.target);
        way.target = match self.opts {
            // Functions that the device lacks are written out all the same.
            Opts::None => Target { unsupported: target.unsupported, ..way.target },
            _ => target,
        };
        if self.opts == Opts::Heuristic {
            let target = way.target;
            way.schedule = way.schedule.suited(target.is_vector_cpu());
        }
        way.target.thresholds = self.thresholds;
        way.schedule.thresholds = self.thresholds;
        // Drawn optimisations meet kernels of several folds on every device.
        way.schedule.rows |= matches!(self.opts, Opts::Drawn(_));
        way
    }

    /// The word for it in a list of backends that a hunt runs by default: its name, behind it of
    /// how many programs it runs one, if not all. None if it has to be named.
    pub fn default_word(&self) -> Option<String> {
        match self.turn.every {
            0 => None,
            1 => Some(self.name.to_string()),
            every => Some(format!("{}:{every}", self.name)),
        }
    }

    /// Whether this is the device as a user of the library has it.
    fn is_as_new(&self) -> bool {
        let is_usual = self.thresholds == Thresholds::USUAL;
        self.opts == Opts::Heuristic && !self.draws_limits() && is_usual && !self.is_of_harness()
    }

    /// Whether the limits of groups are drawn for each kernel.
    fn draws_limits(&self) -> bool {
        self.target == "groups"
    }

    fn open(&'static self, turn: Turn) -> Result<EngineBackend, String> {
        // Of a target, the way sets all.
        let device = if self.is_of_harness() { "interp" } else { self.device };
        let mut engine = Engine::new(device).map_err(|error| error.to_string())?;
        engine.device = self.device()?;
        gradiff::runtime::set_poison(true);
        if !self.is_as_new() {
            Way { schedule: engine.schedule, kernel: engine.kernel, target: engine.target } =
                self.way();
        }
        let session = self.is_session.then(|| Session::open(self.device)).transpose()?;
        Ok(EngineBackend { row: self, turn, engine, session })
    }
}

/// Why backends cannot be opened.
#[derive(Debug)]
pub struct OpenError {
    /// What to tell the user.
    pub message: String,
    /// Whether a name is none; else the backend is not there.
    pub is_unknown_name: bool,
}

/// Opens backends by name, in order. Behind a name may stand of how many programs of a hunt it runs
/// one: `c/opts:16`.
///
/// # Errors
/// A name that is no backend's, or no number behind it; a device that is not there.
pub fn backends(names: &[String]) -> Result<Vec<Box<dyn Backend>>, OpenError> {
    let mut found: Vec<Box<dyn Backend>> = Vec::new();
    for word in names {
        let (row, turn) =
            parsed(word).map_err(|message| OpenError { message, is_unknown_name: true })?;
        let name = row.name;
        let backend = row.open(turn).map_err(|reason| OpenError {
            message: format!("backend {name} is not available: {reason}"),
            is_unknown_name: false,
        })?;
        found.push(Box::new(backend));
    }
    Ok(found)
}

/// The device of the backend that a word names, as in [`backends`].
pub fn device_of(word: &str) -> Option<&'static str> {
    parsed(word).ok().map(|(row, _)| row.device)
}

/// The row and the turn that a word names.
fn parsed(word: &str) -> Result<(&'static BackendRow, Turn), String> {
    let (name, every) = match word.split_once(':') {
        None => (word, 1),
        Some((name, every)) => match every.parse() {
            Ok(every @ 1..) => (name, every),
            _ => {
                let wanted = "one of how many programs it runs, 1 or more, is due behind the colon";
                return Err(format!("backend {word}: {wanted}"));
            }
        },
    };
    let row = BACKENDS.iter().find(|row| row.name == name).ok_or_else(|| {
        let all: Vec<&str> = BACKENDS.iter().map(|row| row.name).collect();
        format!("no backend is called {name}; there are: {}", all.join(", "))
    })?;
    Ok((row, Turn::new(every, row.turn.at)))
}

/// Lanes of uops that the kernels of a program may execute where they are evaluated: some ten
/// seconds of the device `interp`. Drawn optimisations are legal, not sensible, and can make work
/// many times as long.
const EVALUATED_LANES_MAX: u64 = 1 << 29;

/// The engine on one device in one mode.
pub struct EngineBackend {
    row: &'static BackendRow,
    turn: Turn,
    engine: Engine,
    session: Option<Session>,
}

impl Backend for EngineBackend {
    fn name(&self) -> &str {
        self.row.name
    }

    fn takes(&self, program: u64) -> bool {
        self.turn.takes(program)
    }

    /// Devices that lack types or ops say so of the kernels that a program takes.
    fn supports(&self, program: &Program) -> Option<String> {
        if let Some(asking) = self.row.finite_for
            && gradiff_oracle::is_finite(program) == Ok(false)
        {
            return Some(format!("a value may not be finite, which {asking} asks for"));
        }
        if self.keeps_zero_signs() && self.row.device != TEXT {
            return None;
        }
        if !self.keeps_zero_signs() && program.statements.iter().any(reads_zero_signs) {
            return Some(String::from("the sign of a zero may decide, and WGSL promises none"));
        }
        let device = &self.engine.device;
        let (plan, _) = caught(|| self.plan(program)).ok()?;
        let lacks = plan.items.iter().find_map(|item| device.lacks(&item.linear))?;
        Some(format!("device {} {lacks}", device.name()))
    }

    fn keeps_zero_signs(&self) -> bool {
        self.row.zero_signs
    }

    fn is_strict(&self) -> bool {
        self.row.is_strict()
    }

    /// Plans all programs, compiles all their kernels at once, then runs one after the other.
    fn run(&self, programs: &[&Program]) -> Vec<Outcome> {
        if let Some(session) = &self.session {
            return session.run(programs);
        }
        let planned: Vec<Result<Planned, Outcome>> =
            programs.iter().map(|program| caught(|| self.plan(program))).collect();
        let mut plans: Vec<Plan> = planned.iter().flatten().map(|(plan, _)| plan.clone()).collect();
        let compiled = caught(|| Ok(self.engine.compile(&mut plans)?));
        let mut plans = plans.into_iter();
        // Outputs are alive until all are looked at once more.
        let mut outputs_of = Vec::with_capacity(planned.len());
        let mut outcomes: Vec<Outcome> = planned
            .into_iter()
            .map(|planned| {
                let outputs = planned.as_ref().map_or_else(|_| Vec::new(), |(_, all)| all.clone());
                outputs_of.push(outputs);
                let answer = planned.and_then(|(_, outputs)| {
                    let mut plan = [plans.next().expect("a plan for each planned program")];
                    self.check_length(&plan[0])?;
                    if compiled.is_err() {
                        // One kernel spoils the lot: say which by compiling each on its own.
                        caught(|| Ok(self.engine.compile(&mut plan)?))?;
                    }
                    caught(|| self.launch(&plan[0], &outputs))
                });
                answer.map_or_else(|outcome| outcome, Outcome::Values)
            })
            .collect();
        for (outcome, outputs) in outcomes.iter_mut().zip(&outputs_of) {
            if let Some(problem) = self.changed(outcome, outputs) {
                *outcome = Outcome::Refused(problem);
            }
        }
        outcomes
    }
}

/// Whether more than the sign of a zero may follow from the sign of a zero.
fn reads_zero_signs(statement: &Statement) -> bool {
    match statement {
        Statement::Unary { op, .. } => *op == UnaryOp::Recip,
        Statement::Binary { op, .. } => matches!(op, BinaryOp::Div | BinaryOp::Pow),
        Statement::Bitcast { .. } => true,
        _ => false,
    }
}

type Planned = (Plan, Vec<Tensor>);

/// A refusal or a panic as the outcome it is.
pub(crate) fn caught<T>(work: impl FnOnce() -> Result<T, Refusal>) -> Result<T, Outcome> {
    match crate::catch(work) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(refusal)) => Err(refusal.outcome()),
        Err(panic) => Err(Outcome::Crash(panic)),
    }
}

impl EngineBackend {
    fn plan(&self, program: &Program) -> Result<Planned, Refusal> {
        let mut plan = Plan::default();
        let outputs = translate::outputs(program, &mut |tensor| {
            plan.append(self.engine.plan(&[tensor])?);
            Ok(())
        })?;
        let all: Vec<&Tensor> = outputs.iter().collect();
        plan.append(self.engine.plan(&all)?);
        if self.row.is_strict() {
            let each = |item: &PlannedKernel| crate::strict::check(&item.ast, &item.linear);
            plan.items.iter().try_for_each(each)?;
        }
        match plan.items.iter().find(|item| item.is_endless) {
            Some(item) => Err(format!("rewriting kernel {} does not end", item.linear.name).into()),
            None => Ok((plan, outputs)),
        }
    }

    /// Leaves out what drawn optimisations make too long where kernels are evaluated, not compiled.
    fn check_length(&self, plan: &Plan) -> Result<(), Outcome> {
        let is_evaluated = self.row.device == "interp" || self.row.is_of_harness();
        if !is_evaluated || !matches!(self.row.opts, Opts::Drawn(_)) {
            return Ok(());
        }
        let lanes = plan.items.iter().map(|item| crate::linear::executed(&item.linear));
        match lanes.fold(0, u64::saturating_add) {
            ..=EVALUATED_LANES_MAX => Ok(()),
            _ => Err(Outcome::Skipped(format!(
                "its kernels execute more than {EVALUATED_LANES_MAX} lanes of uops"
            ))),
        }
    }

    fn launch(&self, plan: &Plan, outputs: &[Tensor]) -> Result<Vec<Array>, Refusal> {
        self.engine.run(plan)?;
        let values = self.values(outputs)?;
        gradiff::runtime::check_freed()?;
        Ok(values)
    }

    /// What is wrong with outputs some time after they were read: a launch is over when it
    /// returns, so nothing of it writes any more. The checked devices run in this very thread.
    fn changed(&self, outcome: &Outcome, outputs: &[Tensor]) -> Option<String> {
        let Outcome::Values(before) = outcome else { return None };
        if self.row.device == "interp" || self.row.is_of_harness() {
            return None;
        }
        let after = self.values(outputs);
        (after.as_ref() != Ok(before))
            .then(|| String::from("an output has changed since its launch was over"))
    }

    fn values(&self, outputs: &[Tensor]) -> Result<Vec<Array>, Refusal> {
        let value = |output: &Tensor| Ok(array(output, &output.to_bytes(&self.engine)?)?);
        outputs.iter().map(value).collect()
    }
}

/// What was read of a tensor.
///
/// # Errors
/// There are not as many bytes as the tensor has.
pub(crate) fn array(tensor: &Tensor, bytes: &[u8]) -> Result<Array, String> {
    let dtype = DType::from_name(tensor.dtype().name()).ok_or("an unknown dtype")?;
    let shape = tensor.shape().iter().map(|size| *size as usize).collect();
    Array::from_bytes(dtype, shape, bytes).ok_or(format!(
        "{} bytes for {:?}",
        bytes.len(),
        tensor.shape()
    ))
}

/// The options of a backend; those of the first one if there is none of this name.
pub(crate) fn way(backend: &str) -> Way {
    BACKENDS.iter().find(|row| row.name == backend).map_or_else(Way::default, BackendRow::way)
}

/// How many kernels a program takes, `realize` statements included.
///
/// # Errors
/// What the engine says to a program that it refuses.
pub(crate) fn kernel_count(program: &Program) -> Result<usize, String> {
    let row = &BACKENDS[0];
    Ok(row.open(Turn::ALWAYS)?.plan(program)?.0.kernel_count())
}

/// Runs one kernel from anywhere on the device of this name, or that of a backend, with memories of
/// its own.
pub(crate) fn run_alone(
    device: &str,
    kernel: &Linear,
    memories: &mut [Elements],
) -> Result<(), String> {
    let compiled = opened(device)?.compile_checked(&[kernel]);
    run_compiled(&*compiled.map_err(|error| error.to_string())?[0], kernel, memories)
}

/// As [`run_alone`], of a kernel that was lowered; `is_compiled` is called before it runs.
pub(crate) fn run_alone_in_steps(
    device: &str,
    kernel: &BoundedLinear,
    memories: &mut [Elements],
    is_compiled: &mut dyn FnMut(),
) -> Result<(), String> {
    let compiled = opened(device)?.compile(&[kernel]).map_err(|error| error.to_string())?;
    is_compiled();
    run_compiled(&*compiled[0], kernel, memories)
}

/// Compiles the kernels of a schedule together and runs each on the memories of its buffers.
///
/// # Errors
/// What the device says.
pub(crate) fn run_in_order(
    device: &str,
    schedule: &gradiff::schedule::Schedule,
    kernels: &[BoundedLinear],
) -> Result<(), String> {
    let kernels: Vec<&BoundedLinear> = kernels.iter().collect();
    let compiled = opened(device)?.compile(&kernels).map_err(|error| error.to_string())?;
    for (item, executable) in schedule.items.iter().zip(&compiled) {
        let memories = item.buffers.iter().map(gradiff::runtime::memory_of);
        let memories = memories.collect::<Result<Vec<_>, _>>().map_err(|e| e.to_string())?;
        let memories: Vec<&gradiff::runtime::Memory> = memories.iter().map(Arc::as_ref).collect();
        executable.run(&memories).map_err(|error| error.to_string())?;
    }
    Ok(())
}

fn opened(device: &str) -> Result<Arc<dyn Device>, String> {
    match BACKENDS.iter().find(|row| row.name == device) {
        Some(row) => row.device(),
        None => gradiff::runtime::device(device).map_err(|error| error.to_string()),
    }
}

/// Runs what was compiled of a kernel and reads the array of the first slot.
pub(crate) fn run_compiled(
    compiled: &dyn Executable,
    kernel: &Linear,
    memories: &mut [Elements],
) -> Result<(), String> {
    let mut held = Vec::with_capacity(memories.len());
    for (elements, (_, dtype)) in memories.iter().zip(kernel.globals()) {
        let size = dtype.size_bytes();
        let is_written = elements.iter().any(Option::is_some);
        let bytes: Vec<u8> = elements
            .iter()
            .flat_map(|element| {
                let word = element.map_or(0, Constant::bits).to_le_bytes();
                word.into_iter().take(size)
            })
            .collect();
        let memory = if is_written {
            gradiff::runtime::Memory::from_bytes(dtype, &bytes)
        } else {
            gradiff::runtime::Memory::new(dtype, elements.len())
        };
        held.push(Arc::new(memory.map_err(|error| error.to_string())?));
    }
    let references: Vec<&gradiff::runtime::Memory> = held.iter().map(Arc::as_ref).collect();
    compiled.run(&references).map_err(|error| error.to_string())?;
    for (slot, (_, dtype)) in kernel.globals().into_iter().enumerate() {
        if slot != 0 && !crate::linear::is_stored(kernel, slot) {
            continue;
        }
        let bytes = held[slot].read().map_err(|error| error.to_string())?;
        memories[slot] = bytes
            .chunks_exact(dtype.size_bytes())
            .map(|bytes| {
                let mut word = [0; 8];
                word[..bytes.len()].copy_from_slice(bytes);
                Some(Constant::from_bits(dtype, u64::from_le_bytes(word)))
            })
            .collect();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What an engine does with a graph besides the device that it runs on.
    fn configuration(engine: &Engine) -> String {
        format!(
            "{:?} {:?} {:?} beam {}",
            engine.schedule, engine.kernel, engine.target, engine.beam
        )
    }

    /// `BEAM` in the environment searches among the optimisations that the `opts` rows draw.
    #[test]
    fn each_device_is_hunted_by_default_as_engine_new_makes_it() {
        for device in gradiff::runtime::devices().iter().filter(|row| row.name != "null") {
            let is_hunted = |row: &&BackendRow| row.device == device.name && row.turn.every != 0;
            let mut rows = BACKENDS.iter().filter(is_hunted).filter(|row| row.is_as_new());
            let row = rows.next();
            let row = row.unwrap_or_else(|| panic!("no hunt runs {} as users do", device.name));
            assert!(row.default_word().is_some());
            if device.status.is_ok() {
                let engine = Engine::new(device.name).expect("it is there");
                let opened = row.open(row.turn).expect("it is there").engine;
                assert_eq!(configuration(&opened), configuration(&engine), "{}", row.name);
            }
            let way = row.way();
            let mut suited = Engine::new("interp").expect("it needs nothing");
            suited.set_target(Target::of(row.target));
            let Engine { schedule, kernel, target, .. } = &suited;
            assert_eq!(
                format!("{:?} {:?} {:?}", way.schedule, way.kernel, way.target),
                format!("{schedule:?} {kernel:?} {target:?}"),
                "blame goes the way of {}",
                row.name
            );
        }
    }

    #[test]
    fn drawn_optimisations_are_left_out_where_they_take_too_long() {
        let mut text = String::from(
            "a = input f32[4096] seeded(0, unit)\nb = reshape a [4096,1]\nc = expand b [4096,4096]\n",
        );
        let ops = ["mul", "add", "sub", "max", "cmplt", "cmpne"];
        for (op, names) in ops.iter().zip(["d e", "f g", "h i", "j k", "l m", "n o"]) {
            let (pair, sum) = names.split_once(' ').expect("two names");
            text += &format!("{pair} = {op} c a\n{sum} = sum {pair} axes=[1]\n");
        }
        text += "output e, g, i, k, m, o\n";
        let Ok(file) = gradiff_corpus::parse(&text) else { panic!("{text}") };
        let gradiff_corpus::Case::Program(program) = file.case else { panic!("{text}") };
        let open = |name: &str| backends(&[name.to_string()]).expect("it is there").remove(0);
        let outcome = open("interp/opts").run(&[&program]).remove(0);
        assert!(matches!(&outcome, Outcome::Skipped(why) if why.contains("lanes")), "{outcome:?}");
    }

    #[test]
    fn turns_take_one_group_of_so_many() {
        let taken = |turn: Turn| (0..4096).filter(|program| turn.takes(*program)).count();
        assert_eq!(taken(Turn::ALWAYS), 4096);
        assert_eq!(taken(Turn::NEVER), 0);
        assert_eq!(taken(Turn::new(64, 3)), 64);
        let both = |program| Turn::new(2, 0).takes(program) && Turn::new(2, 1).takes(program);
        assert!(!(0..4096).any(both));
        for row in BACKENDS {
            let Some(word) = row.default_word() else { continue };
            let (named, turn) = parsed(&word).expect("the word of a row");
            assert_eq!((named.name, turn), (row.name, row.turn));
        }
        for word in ["c:0", "c:", "c:x", "c:-1", "d:2"] {
            assert!(parsed(word).is_err(), "{word}");
        }
    }
}
