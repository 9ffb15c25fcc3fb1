//! The engine as backends: each device, and each other way to bring a program to it.

use std::sync::Arc;

use gradiff::graph::{Constant, Linear};
use gradiff::kernel::{Strategy, Target};
use gradiff::rewrite::Mode;
use gradiff::{Engine, Plan, Tensor};
use gradiff_corpus::{Array, BinaryOp, DType, Program, Statement, UnaryOp};

use crate::stages::{Elements, Way};
use crate::{Backend, Outcome, translate};

/// One row of the table of backends.
#[derive(Debug)]
pub struct BackendRow {
    /// The name: a device, or a device and a mode.
    pub name: &'static str,
    /// The device it runs on.
    pub device: &'static str,
    /// What is special about it.
    pub story: &'static str,
    /// Whether a hunt uses it unless told otherwise.
    pub is_default: bool,
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
        is_default: true,
        fuse: true,
        merge_views: true,
        mode: Mode::Default,
        opts: Opts::None,
        target: device,
        finite_for: None,
        zero_signs: true,
    }
}

/// A way of `wgpu`. WGSL lets compilers take either zero for the other, and Mesa makes -0.0 of
/// 0.0 - 0.0; it lets them take all numbers for finite ones, and Mesa makes 0 of x - x.
const fn wgpu(
    name: &'static str,
    device: &'static str,
    opts: Opts,
    story: &'static str,
) -> BackendRow {
    BackendRow {
        opts,
        is_default: false,
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
    row("c", "c", "C source by the system's compiler"),
    BackendRow {
        is_default: false,
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
    BackendRow {
        opts: Opts::Drawn(5),
        target: "loops",
        ..row("interp/opts", "interp", "legal optimisations, drawn for each kernel; all are loops")
    },
    BackendRow {
        opts: Opts::Drawn(5),
        target: "vectors",
        ..row("interp/vectors", "interp", "the same, written out in vectors")
    },
    BackendRow {
        opts: Opts::Drawn(5),
        target: "groups",
        ..row("interp/groups", "interp", "the same in groups of threads, limits drawn as well")
    },
    BackendRow {
        opts: Opts::Drawn(5),
        target: "plain",
        ..row("jit/opts", "jit", "the same, written out")
    },
    BackendRow {
        opts: Opts::Drawn(5),
        target: "vectors",
        ..row("jit/vectors", "jit", "the same, written out in vectors")
    },
    BackendRow {
        opts: Opts::Heuristic,
        target: "groups",
        is_default: false,
        ..row("interp/heuristic", "interp", "what the engine chooses for groups, limits drawn")
    },
    BackendRow {
        opts: Opts::Heuristic,
        is_default: false,
        ..row("jit/heuristic", "jit", "the optimisations that the engine chooses")
    },
    BackendRow {
        opts: Opts::Drawn(5),
        is_default: false,
        ..row("c/opts", "c", "the same, in the vectors of this machine")
    },
    BackendRow {
        opts: Opts::Heuristic,
        is_default: false,
        ..row("c/heuristic", "c", "the optimisations that the engine chooses")
    },
    BackendRow {
        opts: Opts::Drawn(5),
        is_default: false,
        ..row("opencl/opts", "opencl", "legal optimisations, drawn for each kernel")
    },
    BackendRow {
        opts: Opts::Heuristic,
        is_default: false,
        ..row("opencl/heuristic", "opencl", "the optimisations that the engine chooses")
    },
    wgpu("wgpu", "wgpu", Opts::None, "WGSL by the crate wgpu: Vulkan, Metal"),
    wgpu("wgpu/core", "wgpu-core", Opts::None, "the same without extensions: f16 by its bits"),
    wgpu("wgpu/opts", "wgpu", Opts::Drawn(5), "legal optimisations, drawn for each kernel"),
    wgpu("wgpu/heuristic", "wgpu", Opts::Heuristic, "the optimisations that the engine chooses"),
    BackendRow {
        opts: Opts::Drawn(5),
        is_default: false,
        ..row("cuda/opts", "cuda", "legal optimisations, drawn for each kernel")
    },
    BackendRow {
        opts: Opts::Heuristic,
        is_default: false,
        ..row("cuda/heuristic", "cuda", "the optimisations that the engine chooses")
    },
];

impl BackendRow {
    /// The device's version, or why it is not there.
    ///
    /// # Errors
    /// It is not there.
    pub fn status(&self) -> Result<String, String> {
        let device = gradiff::runtime::device(self.device).map_err(|error| error.to_string())?;
        Ok(format!("{}; {}", device.describe(), device.limits()))
    }

    fn way(&self) -> Way {
        let mut way = Way::default();
        way.schedule.fuse = self.fuse;
        way.schedule.merge_views = self.merge_views;
        way.kernel.rewrite.mode = self.mode;
        way.kernel.opts = match self.opts {
            Opts::None => Strategy::None,
            Opts::Drawn(most) => Strategy::Drawn { seed: 0, most },
            Opts::Heuristic => Strategy::Heuristic,
        };
        way.kernel.limits = (self.target == "groups").then_some(0);
        let target = Target::of(self.target);
        way.target = match self.opts {
            // Functions that the device lacks are written out all the same.
            Opts::None => Target { lacks: target.lacks, ..way.target },
            _ => target,
        };
        if self.opts == Opts::Heuristic {
            let target = way.target;
            way.schedule = way.schedule.suited(target.is_vector_cpu());
        }
        // Drawn optimisations meet kernels of several folds on every device.
        way.schedule.rows |= matches!(self.opts, Opts::Drawn(_));
        way
    }

    fn open(&'static self) -> Result<EngineBackend, String> {
        let mut engine = Engine::new(self.device).map_err(|error| error.to_string())?;
        Way { schedule: engine.schedule, kernel: engine.kernel, target: engine.target } =
            self.way();
        Ok(EngineBackend { row: self, engine })
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

/// Opens backends by name, in order.
///
/// # Errors
/// A name that is no backend's; a device that is not there.
pub fn backends(names: &[String]) -> Result<Vec<Box<dyn Backend>>, OpenError> {
    let mut found: Vec<Box<dyn Backend>> = Vec::new();
    for name in names {
        let Some(row) = BACKENDS.iter().find(|row| row.name == name) else {
            let all: Vec<&str> = BACKENDS.iter().map(|row| row.name).collect();
            let message = format!("no backend is called {name}; there are: {}", all.join(", "));
            return Err(OpenError { message, is_unknown_name: true });
        };
        let backend = row.open().map_err(|reason| OpenError {
            message: format!("backend {name} is not available: {reason}"),
            is_unknown_name: false,
        })?;
        found.push(Box::new(backend));
    }
    Ok(found)
}

/// The engine on one device in one mode.
pub struct EngineBackend {
    row: &'static BackendRow,
    engine: Engine,
}

impl Backend for EngineBackend {
    fn name(&self) -> &str {
        self.row.name
    }

    /// Devices that lack types or ops say so of the kernels that a program takes.
    fn supports(&self, program: &Program) -> Option<String> {
        if let Some(asking) = self.row.finite_for
            && gradiff_oracle::is_finite(program) == Ok(false)
        {
            return Some(format!("a value may not be finite, which {asking} asks for"));
        }
        if self.keeps_zero_signs() {
            return None;
        }
        if program.statements.iter().any(reads_zero_signs) {
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

    /// Plans all programs, compiles all their kernels at once, then runs one after the other.
    fn run(&self, programs: &[&Program]) -> Vec<Outcome> {
        let planned: Vec<Result<Planned, Outcome>> =
            programs.iter().map(|program| caught(|| self.plan(program))).collect();
        let mut plans: Vec<Plan> = planned.iter().flatten().map(|(plan, _)| plan.clone()).collect();
        let compiled = caught(|| self.engine.compile(&mut plans).map_err(|e| e.to_string()));
        let mut plans = plans.into_iter();
        planned
            .into_iter()
            .map(|planned| {
                let answer = planned.and_then(|(_, outputs)| {
                    let mut plan = [plans.next().expect("a plan for each planned program")];
                    if compiled.is_err() {
                        // One kernel spoils the lot: say which by compiling each on its own.
                        caught(|| self.engine.compile(&mut plan).map_err(|e| e.to_string()))?;
                    }
                    caught(|| self.launch(&plan[0], &outputs))
                });
                answer.map_or_else(|outcome| outcome, Outcome::Values)
            })
            .collect()
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
fn caught<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, Outcome> {
    match crate::catch(work) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(refusal)) => Err(Outcome::Refused(refusal)),
        Err(panic) => Err(Outcome::Crash(panic)),
    }
}

impl EngineBackend {
    fn plan(&self, program: &Program) -> Result<Planned, String> {
        let mut plan = Plan::default();
        let outputs = translate::outputs(program, &mut |tensor| {
            plan.append(self.engine.plan(&[tensor]).map_err(|error| error.to_string())?);
            Ok(())
        })?;
        let all: Vec<&Tensor> = outputs.iter().collect();
        plan.append(self.engine.plan(&all).map_err(|error| error.to_string())?);
        match plan.items.iter().find(|item| item.is_endless) {
            Some(item) => Err(format!("rewriting kernel {} does not end", item.linear.name)),
            None => Ok((plan, outputs)),
        }
    }

    fn launch(&self, plan: &Plan, outputs: &[Tensor]) -> Result<Vec<Array>, String> {
        self.engine.run(plan).map_err(|error| error.to_string())?;
        outputs
            .iter()
            .map(|output| {
                let bytes = output.to_bytes(&self.engine).map_err(|error| error.to_string())?;
                let dtype = DType::from_name(output.dtype().name()).ok_or("an unknown dtype")?;
                let shape = output.shape().iter().map(|size| *size as usize).collect();
                Array::from_bytes(dtype, shape, &bytes).ok_or(format!(
                    "{} bytes for {:?}",
                    bytes.len(),
                    output.shape()
                ))
            })
            .collect()
    }
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
    Ok(row.open()?.plan(program)?.0.kernel_count())
}

/// Runs one kernel on a device, with memories of its own.
pub(crate) fn run_alone(
    device: &str,
    kernel: &Linear,
    memories: &mut [Elements],
) -> Result<(), String> {
    let device = gradiff::runtime::device(device).map_err(|error| error.to_string())?;
    let compiled = device.compile(&[kernel]).map_err(|error| error.to_string())?;
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
    compiled[0].run(&references).map_err(|error| error.to_string())?;
    let (_, dtype) = kernel.globals()[0];
    let bytes = held[0].read().map_err(|error| error.to_string())?;
    memories[0] = bytes
        .chunks_exact(dtype.size_bytes())
        .map(|bytes| {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            Some(Constant::from_bits(dtype, u64::from_le_bytes(word)))
        })
        .collect();
    Ok(())
}
