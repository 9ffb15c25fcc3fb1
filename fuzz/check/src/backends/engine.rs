//! The engine as backends: each device, in each of its configurations.

use std::sync::Arc;

use gradiff::graph::target::Thresholds;
use gradiff::graph::{BoundedLinear, Constant, Linear, Target};
use gradiff::kernel::Strategy;
use gradiff::rewrite::Mode;
use gradiff::runtime::{Device, Executable};
use gradiff::schedule::Split;
use gradiff::{Engine, Plan, PlannedKernel, Tensor, UOp};
use gradiff_corpus::{Array, DType, Program};
use gradiff_eval::Elements;

use crate::backends::peer::{self, Peer};
use crate::backends::refusal::Refusal;
use crate::backends::session::Session;
use crate::backends::translate;
use crate::models::linear::Uops;
use crate::models::stages::Configuration;
use crate::{Backend, Kept, Outcome};

/// The report of a kernel that rewriting makes longer for ever, in part.
pub(crate) const ENDLESS: &str = "does not end";
/// The report of an output that changes after its launch, in part.
pub(crate) const CHANGED: &str = "an output changed after its launch";

/// Number of consecutive programs that take the same turn, so that they share a call of a
/// compiler.
const TURN_PROGRAMS: u64 = 8;

/// The programs of a hunt that a backend runs: one group of eight programs out of `every`.
///
/// Each program runs on few backends, since the oracle judges each result by itself. What is wrong
/// on all of them is found sooner if more programs run, and what is wrong on one as soon as it is
/// where each program runs on all. On one core of a server a program takes 1 ms on `interp`, 1 to
/// 7 ms on `jit` and 30 to 150 ms on `c`, so most programs run on `interp` alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    every: u64,
    at: u64,
}

impl Turn {
    /// Every program.
    pub(crate) const ALWAYS: Turn = Turn::new(1, 0);
    /// No program: the backend has to be named.
    pub(crate) const NEVER: Turn = Turn::new(0, 0);

    const fn new(every: u64, at: u64) -> Turn {
        Turn { every, at }
    }

    /// Returns whether it is this program's turn.
    pub(crate) fn takes(self, program: u64) -> bool {
        self.every != 0 && program / TURN_PROGRAMS % self.every == self.at % self.every
    }
}

/// One row of the table of backends.
#[derive(Debug)]
pub struct BackendRow {
    /// The name: a device, or a device and a mode.
    pub name: &'static str,
    /// Name of the device that it runs on.
    pub device: &'static str,
    /// Description of what distinguishes it.
    pub description: &'static str,
    /// The programs of a hunt that it runs unless backends are named.
    pub(crate) turn: Turn,
    fuse: bool,
    merge_views: bool,
    mode: Mode,
    opts: Opts,
    /// Name of the target that kernels are lowered for. `None`: that of the device, as it is
    /// opened.
    target: Option<&'static str>,
    /// The feature that requires finite values, if any: programs with other values are skipped.
    finite_for: Option<&'static str>,
    /// True if a zero keeps its sign.
    zero_signs: bool,
    /// The sizes above which kernels are made differently.
    thresholds: Thresholds,
    /// True if tensors are realised, read in parts, kept and dropped as applications do it.
    is_session: bool,
}

/// The optimisations that kernels get.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Opts {
    None,
    /// Up to this many, drawn among the legal ones.
    Drawn(usize),
    Heuristic,
}

const fn row(name: &'static str, device: &'static str, description: &'static str) -> BackendRow {
    BackendRow {
        name,
        device,
        description,
        turn: Turn::ALWAYS,
        fuse: true,
        merge_views: true,
        mode: Mode::Default,
        opts: Opts::None,
        target: None,
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
    description: &'static str,
) -> BackendRow {
    BackendRow { opts, ..row(name, device, description) }
}

/// A row with up to five legal optimisations of each kernel, drawn, for a target or the device's
/// own.
const fn drawn(
    name: &'static str,
    device: &'static str,
    target: Option<&'static str>,
    description: &'static str,
) -> BackendRow {
    BackendRow { target, ..row_with(Opts::Drawn(5), name, device, description) }
}

const AS_NEW: &str = "as `Engine::new` makes it: the engine's choice of optimisations";

/// A row for a device as a user of the library has it.
const fn heuristic(name: &'static str, device: &'static str) -> BackendRow {
    row_with(Opts::Heuristic, name, device, AS_NEW)
}

/// A row with the engine's choice under thresholds that a hundred elements cross, as megabytes do
/// for users.
const fn small(
    name: &'static str,
    device: &'static str,
    target: Option<&'static str>,
    turn: Turn,
) -> BackendRow {
    let description = "the engine's choice, its thresholds so low that few elements cross them";
    let row = row_with(Opts::Heuristic, name, device, description);
    BackendRow { target, turn, thresholds: Thresholds::SMALL, ..row }
}

/// A row for a device as applications use it.
const fn session(name: &'static str, device: &'static str, turn: Turn) -> BackendRow {
    let description =
        "realised step by step, read in parts, kept and dropped, by engines and threads";
    BackendRow { is_session: true, turn, ..row_with(Opts::Heuristic, name, device, description) }
}

/// A row that evaluates kernels for a target, which need not be present, and checks its promises.
/// These rows take turns: together they run a quarter of the programs.
const fn uops(
    at: u64,
    name: &'static str,
    target: &'static str,
    opts: Opts,
    description: &'static str,
) -> BackendRow {
    let turn = Turn::new(4 * UOPS_COUNT, at);
    BackendRow { target: Some(target), turn, ..row_with(opts, name, UOPS, description) }
}

/// The device that evaluates uops for any target.
pub(crate) const UOPS: &str = "uops";

/// Number of rows on it.
const UOPS_COUNT: u64 = 13;

/// A row that runs the text of a language here, for which this machine has no device.
const fn text(
    turn: Turn,
    name: &'static str,
    target: &'static str,
    opts: Opts,
    description: &'static str,
) -> BackendRow {
    BackendRow { target: Some(target), turn, ..row_with(opts, name, TEXT, description) }
}

/// Description of rows whose text is compiled by clang.
const COMPILED: &str = "the text that a device would get, compiled for this machine";

/// Description of rows whose text is WGSL.
const INTERPRETED: &str = "WGSL by an interpreter of the text";

/// The device that runs texts of any language.
const TEXT: &str = "text";

/// A row for `wgpu`. WGSL lets compilers ignore the sign of zeros, and Mesa turns 0.0 - 0.0 into
/// -0.0; it lets them assume that all values are finite, and Mesa turns x - x into 0.
const fn wgpu(
    name: &'static str,
    device: &'static str,
    opts: Opts,
    description: &'static str,
) -> BackendRow {
    BackendRow {
        opts,
        turn: Turn::NEVER,
        finite_for: Some("WGSL"),
        zero_signs: false,
        ..row(name, device, description)
    }
}

/// All backends: a new device or mode is one line.
pub const BACKENDS: &[BackendRow] = &[
    row("interp", "interp", "checked interpreter: stray and uninitialised reads are errors"),
    BackendRow {
        turn: Turn::new(12, 0),
        ..row("jit", "jit", "machine code by Cranelift, in process")
    },
    BackendRow { turn: Turn::new(144, 0), ..row("c", "c", "C source by the system's compiler") },
    BackendRow {
        turn: Turn::NEVER,
        ..row("opencl", "opencl", "OpenCL C by the driver that is there")
    },
    BackendRow {
        fuse: false,
        turn: Turn::new(16, 0),
        ..row("interp/unfused", "interp", "every node realised")
    },
    BackendRow {
        merge_views: false,
        turn: Turn::new(16, 1),
        ..row("interp/unmerged", "interp", "views never merged")
    },
    BackendRow {
        mode: Mode::Strict,
        turn: Turn::new(32, 2),
        ..row("interp/strict", "interp", "only rules that keep every bit")
    },
    BackendRow {
        mode: Mode::Strict,
        turn: Turn::new(32, 6),
        ..drawn("interp/strict-groups", "interp", Some("groups"), "the same in groups, drawn")
    },
    BackendRow {
        mode: Mode::Fast,
        finite_for: Some("fast mode"),
        turn: Turn::new(16, 3),
        ..row("interp/fast", "interp", "also rules that hold of finite numbers alone")
    },
    BackendRow {
        turn: Turn::new(12, 0),
        ..drawn(
            "interp/opts",
            "interp",
            Some("loops"),
            "legal optimisations, drawn for each kernel",
        )
    },
    BackendRow {
        turn: Turn::new(12, 1),
        ..drawn("interp/vectors", "interp", Some("vectors"), "the same, unrolled, in vectors")
    },
    BackendRow {
        turn: Turn::new(12, 2),
        ..drawn("interp/groups", "interp", Some("groups"), "the same in groups, limits drawn")
    },
    BackendRow {
        turn: Turn::new(24, 1),
        ..drawn("jit/opts", "jit", Some("plain"), "the same, unrolled")
    },
    BackendRow {
        turn: Turn::new(48, 0),
        ..drawn("jit/vectors", "jit", Some("vectors"), "the same, unrolled, in vectors")
    },
    BackendRow { turn: Turn::new(8, 0), ..heuristic("interp/heuristic", "interp") },
    BackendRow {
        target: Some("groups"),
        turn: Turn::new(12, 0),
        ..row_with(
            Opts::Heuristic,
            "interp/groups-heuristic",
            "interp",
            "the engine's choice for groups, limits drawn",
        )
    },
    BackendRow { turn: Turn::new(12, 1), ..heuristic("jit/heuristic", "jit") },
    BackendRow { turn: Turn::new(48, 1), ..heuristic("c/heuristic", "c") },
    BackendRow {
        turn: Turn::new(384, 1),
        ..drawn("c/opts", "c", None, "legal optimisations, in the vectors of this machine")
    },
    BackendRow {
        turn: Turn::NEVER,
        ..drawn("opencl/opts", "opencl", None, "legal optimisations, drawn for each kernel")
    },
    BackendRow { turn: Turn::new(1536, 3), ..heuristic("opencl/heuristic", "opencl") },
    small("interp/groups-small", "interp", Some("groups"), Turn::new(16, 2)),
    small("jit/small", "jit", None, Turn::new(24, 3)),
    small("c/small", "c", None, Turn::new(768, 18)),
    session("interp/session", "interp", Turn::new(12, 1)),
    session("jit/session", "jit", Turn::new(24, 0)),
    session("c/session", "c", Turn::new(768, 9)),
    session("opencl/session", "opencl", Turn::NEVER),
    session("cuda/session", "cuda", Turn::NEVER),
    BackendRow {
        is_session: true,
        turn: Turn::new(1536, 21),
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
    uops(10, "uops/small", "small", Opts::Drawn(5), "a device whose limits small kernels reach"),
    uops(12, "uops/small-usual", "small", Opts::Heuristic, "what the engine chooses for it"),
    BackendRow {
        mode: Mode::Strict,
        ..uops(11, "uops/strict", "cpu", Opts::Drawn(5), "strict mode where FMA is fast")
    },
    text(Turn::new(32, 5), "text/ptx", "ptx", Opts::Heuristic, "PTX by an interpreter of the text"),
    text(Turn::new(32, 1), "text/ptx-opts", "ptx", Opts::Drawn(5), "the same, optimisations drawn"),
    BackendRow {
        finite_for: Some("f16 in WGSL"),
        ..text(Turn::new(32, 3), "text/wgsl", "wgsl", Opts::Heuristic, INTERPRETED)
    },
    text(
        Turn::new(32, 6),
        "text/wgsl-core",
        "wgsl-core",
        Opts::Drawn(5),
        "the same, no extensions",
    ),
    BackendRow {
        mode: Mode::Strict,
        opts: Opts::Drawn(5),
        target: Some("vectors"),
        turn: Turn::new(48, 2),
        ..row("jit/strict", "jit", "strict mode in vectors, bit for bit")
    },
    BackendRow {
        mode: Mode::Fast,
        finite_for: Some("fast mode"),
        opts: Opts::Drawn(5),
        target: Some("vectors"),
        turn: Turn::new(48, 7),
        ..row("jit/fast", "jit", "fast mode in vectors")
    },
    BackendRow {
        mode: Mode::Strict,
        opts: Opts::Drawn(5),
        turn: Turn::new(768, 17),
        ..row("c/strict", "c", "the same, in the vectors of this machine")
    },
    text(Turn::new(384, 0), "text/cuda", "cuda", Opts::Drawn(5), COMPILED),
    text(Turn::new(384, 9), "text/metal", "metal", Opts::Drawn(5), COMPILED),
    text(Turn::new(384, 18), "text/opencl", "opencl", Opts::Drawn(5), COMPILED),
    text(Turn::new(384, 27), "text/llvm", "llvm", Opts::Drawn(5), COMPILED),
    wgpu("wgpu", "wgpu", Opts::None, "WGSL by the crate wgpu: Vulkan, Metal"),
    wgpu("wgpu/core", "wgpu-core", Opts::None, "the same without extensions: f16 by its bits"),
    wgpu("wgpu/opts", "wgpu", Opts::Drawn(5), "legal optimisations, drawn for each kernel"),
    BackendRow {
        turn: Turn::new(768, 5),
        ..wgpu("wgpu/heuristic", "wgpu", Opts::Heuristic, AS_NEW)
    },
    BackendRow {
        turn: Turn::new(768, 37),
        ..wgpu("wgpu/core-heuristic", "wgpu-core", Opts::Heuristic, AS_NEW)
    },
    BackendRow { turn: Turn::NEVER, ..row("cuda", "cuda", "CUDA C++ by NVRTC") },
    BackendRow {
        turn: Turn::NEVER,
        ..drawn("cuda/opts", "cuda", None, "legal optimisations, drawn for each kernel")
    },
    BackendRow { turn: Turn::new(96, 7), ..heuristic("cuda/heuristic", "cuda") },
];

impl BackendRow {
    /// The device's version and limits.
    ///
    /// # Errors
    /// Why the device is not available.
    pub fn status(&self) -> Result<String, String> {
        let device = self.device()?;
        Ok(format!("{}; {}", device.describe(), device.target()))
    }

    fn device(&self) -> Result<Arc<dyn Device>, String> {
        match (self.device, self.target) {
            (UOPS, Some(target)) => Ok(Arc::new(Uops::open(target)?)),
            (TEXT, Some(target)) => crate::backends::texts::open(target),
            (device, _) => gradiff::runtime::device(device).map_err(|error| error.to_string()),
        }
    }

    /// Returns whether the device is one of this crate, which takes the place of the target.
    fn is_of_harness(&self) -> bool {
        matches!(self.device, UOPS | TEXT)
    }

    /// The command, for root, that installs the requirements of the backend on Debian; `None` if
    /// Debian has none of them.
    pub fn install(&self) -> Option<&'static str> {
        match (self.device, self.target) {
            (TEXT, Some("ptx")) => None,
            (TEXT, _) => Some("apt-get install clang-16"),
            ("c", _) => Some("apt-get install gcc libc6-dev"),
            ("opencl", _) => Some("apt-get install ocl-icd-libopencl1 pocl-opencl-icd"),
            ("wgpu" | "wgpu-core", _) => Some("apt-get install libvulkan1 mesa-vulkan-drivers"),
            ("cuda", _) => Some(
                "apt-get install nvidia-driver nvidia-cuda-toolkit (component non-free; with a GPU \
                 of NVIDIA)",
            ),
            _ => None,
        }
    }

    fn is_strict(&self) -> bool {
        self.mode == Mode::Strict
    }

    /// The options with which programs are compiled.
    ///
    /// # Errors
    /// Why the device, whose target is to be known, is not available.
    fn configuration(&self) -> Result<Configuration, String> {
        let mut configuration = Configuration::default();
        configuration.schedule.fuse = self.fuse;
        configuration.schedule.merge_views = self.merge_views;
        configuration.schedule.wide_products = !self.is_strict();
        configuration.kernel.rewrite.mode = self.mode;
        configuration.kernel.opts = match self.opts {
            Opts::None => Strategy::None,
            Opts::Drawn(limit) => Strategy::Drawn { seed: 0, limit },
            Opts::Heuristic => Strategy::Heuristic,
        };
        configuration.kernel.limits = self.draws_limits().then_some(0);
        let target = match self.target {
            Some(name) => crate::models::linear::target(name)?,
            None => self.device()?.target(),
        };
        configuration.target = match self.opts {
            // Functions that the device does not support are still expanded, as its compiler needs.
            Opts::None => Target {
                unsupported: target.unsupported,
                reassociates: target.reassociates,
                ..configuration.target
            },
            _ => target,
        };
        if self.opts == Opts::Heuristic {
            configuration.schedule = configuration.schedule.suited(&configuration.target);
            let is_strict = self.mode == Mode::Strict;
            if is_strict {
                configuration.schedule.split = Split::Never;
            }
            configuration.schedule.rows &= !is_strict || configuration.target.groups.is_none();
        }
        configuration.target.thresholds = self.thresholds;
        configuration.schedule.thresholds = self.thresholds;
        // Drawn optimisations are applied to kernels of several reductions on every device.
        configuration.schedule.rows |= matches!(self.opts, Opts::Drawn(_));
        Ok(configuration)
    }

    /// Its word in the list of backends that a hunt runs by default: the name, followed by `:N` if
    /// it runs one program in N. `None` if it has to be named.
    pub fn default_word(&self) -> Option<String> {
        match self.turn.every {
            0 => None,
            1 => Some(self.name.to_string()),
            every => Some(format!("{}:{every}", self.name)),
        }
    }

    /// Returns whether this is the device as a user of the library has it.
    fn is_as_new(&self) -> bool {
        let is_usual = self.thresholds == Thresholds::USUAL;
        self.opts == Opts::Heuristic && !self.draws_limits() && is_usual && !self.is_of_harness()
    }

    /// Returns whether the limits of groups are drawn for each kernel.
    fn draws_limits(&self) -> bool {
        self.target == Some("groups")
    }

    /// The lines of a Rust test that make an engine with the options of [`Self::configuration`];
    /// `None` if no engine of the library alone runs programs as this backend does.
    fn engine_text(&self) -> Option<String> {
        if self.is_of_harness() || self.is_session {
            return None;
        }
        let device = self.device;
        if self.is_as_new() {
            return Some(format!("    let engine = Engine::new({device:?})?;\n"));
        }
        let (fuse, merge_views, is_strict) = (self.fuse, self.merge_views, self.is_strict());
        let (mode, limits) = (self.mode, self.draws_limits().then_some(0));
        let opts = match self.opts {
            Opts::None => "None".to_string(),
            Opts::Drawn(limit) => format!("Drawn {{ seed: 0, limit: {limit} }}"),
            Opts::Heuristic => "Heuristic".to_string(),
        };
        let target = self.target.map(|name| format!("gradiff::graph::Target::of({name:?})"));
        let target = target.unwrap_or("engine.device.target()".to_string());
        let mut lines = vec![
            format!("let mut engine = Engine::new({device:?})?;"),
            "engine.schedule = Default::default();".to_string(),
            format!("engine.schedule.fuse = {fuse};"),
            format!("engine.schedule.merge_views = {merge_views};"),
            format!("engine.schedule.wide_products = {};", !is_strict),
            "engine.kernel = Default::default();".to_string(),
            format!("engine.kernel.rewrite.mode = gradiff::rewrite::Mode::{mode:?};"),
            format!("engine.kernel.opts = gradiff::kernel::Strategy::{opts};"),
            format!("engine.kernel.limits = {limits:?};"),
            format!("engine.target = {target};"),
        ];
        let rest = match self.opts {
            Opts::None => {
                "let unsupported = engine.target.unsupported;\n    \
                 let reassociates = engine.target.reassociates;\n    \
                 engine.target = Default::default();\n    \
                 engine.target.unsupported = unsupported;\n    \
                 engine.target.reassociates = reassociates;"
            }
            Opts::Drawn(_) => "engine.schedule.rows = true;",
            Opts::Heuristic if is_strict => return None,
            Opts::Heuristic => "engine.schedule = engine.schedule.suited(&engine.target);",
        };
        lines.push(rest.to_string());
        if self.thresholds == Thresholds::SMALL {
            for options in ["schedule", "target"] {
                let small = "gradiff::graph::target::Thresholds::SMALL";
                lines.push(format!("engine.{options}.thresholds = {small};"));
            }
        }
        Some(lines.iter().map(|line| format!("    {line}\n")).collect())
    }

    fn open(&'static self, turn: Turn) -> Result<EngineBackend, String> {
        // The configuration below sets everything that depends on the target.
        let device = if self.is_of_harness() { "interp" } else { self.device };
        let mut engine = Engine::new(device).map_err(|error| error.to_string())?;
        engine.device = self.device()?;
        gradiff::runtime::set_poison(true);
        if !self.is_as_new() {
            Configuration {
                schedule: engine.schedule,
                kernel: engine.kernel,
                target: engine.target,
            } = self.configuration()?;
        }
        let session = self.is_session.then(|| Session::open(self.device)).transpose()?;
        Ok(EngineBackend { row: self, turn, engine, session })
    }
}

/// The reason why backends cannot be opened.
#[derive(Debug)]
pub struct OpenError {
    /// Message for the user.
    pub message: String,
    /// True if a name is unknown or malformed; false if the backend is not available.
    pub is_unknown_name: bool,
}

/// Opens backends by name, in order. A name may be followed by a number: `c/opts:16` runs one
/// program in 16 of a hunt.
///
/// # Errors
/// A name of no backend, a malformed number after it, a device that is not available.
pub fn backends(names: &[String]) -> Result<Vec<Box<dyn Backend>>, OpenError> {
    let mut backends: Vec<Box<dyn Backend>> = Vec::new();
    for word in names {
        let unknown = |message| OpenError { message, is_unknown_name: true };
        let missing = |name: &str, reason: String| OpenError {
            message: format!("backend {name} is not available: {reason}"),
            is_unknown_name: false,
        };
        backends.push(match peer::named(word) {
            Some((name, every)) => {
                let turn = Turn::new(parsed_every(word, every).map_err(unknown)?, 0);
                Box::new(Peer::open(name, turn).map_err(|reason| missing(name, reason))?)
            }
            None => {
                let (row, turn) = parsed(word).map_err(unknown)?;
                Box::new(row.open(turn).map_err(|reason| missing(row.name, reason))?)
            }
        });
    }
    Ok(backends)
}

/// The name of the backend that a word names, as in [`backends`]: without the number after it.
pub fn name_of(word: &str) -> &str {
    match peer::named(word) {
        Some((name, _)) => name,
        None => word.split(':').next().unwrap_or(word),
    }
}

/// The device of the backend that a word names, as in [`backends`].
pub fn device_of(word: &str) -> Option<&'static str> {
    parsed(word).ok().map(|(row, _)| row.device)
}

/// The row and the turn that a word names.
fn parsed(word: &str) -> Result<(&'static BackendRow, Turn), String> {
    let name = name_of(word);
    let every = parsed_every(word, word.split_once(':').map(|(_, every)| every))?;
    let row = BACKENDS.iter().find(|row| row.name == name).ok_or_else(|| {
        let names = BACKENDS.iter().map(|row| row.name);
        let names: Vec<&str> = names.chain(peer::PEERS.iter().map(|row| row.name)).collect();
        format!("no backend is called {name}; there are: {}, exec:COMMAND", names.join(", "))
    })?;
    Ok((row, Turn::new(every, row.turn.at)))
}

/// The promises of a backend: that it is strict, and that it keeps the signs of zeros.
pub(crate) fn promises(word: &str) -> Option<(bool, bool)> {
    parsed(word).ok().map(|(row, _)| (row.is_strict(), row.zero_signs))
}

/// One of how many programs a backend runs, from the number after the colon of its word.
fn parsed_every(word: &str, every: Option<&str>) -> Result<u64, String> {
    match every.map(str::parse) {
        None => Ok(1),
        Some(Ok(every @ 1..)) => Ok(every),
        Some(_) => Err(format!(
            "backend {word}: a number of at least 1 must follow the colon; the backend runs one \
             program in that many"
        )),
    }
}

/// Maximal number of uop lanes that the kernels of a program may execute where they are evaluated:
/// some ten seconds of the device `interp`. Drawn optimisations are legal, not sensible, and can
/// make a kernel take many times as long.
const EVALUATED_LANES_MAX: u64 = 1 << 29;

/// The engine on one device in one configuration.
struct EngineBackend {
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

    /// Asks the device whether it supports the types and ops of the program's kernels.
    fn supports(&self, program: &Program) -> Option<String> {
        if let Some(feature) = self.row.finite_for
            && gradiff_oracle::is_finite(program) == Ok(false)
        {
            return Some(format!(
                "{feature} requires finite values, and one may be infinite or NaN"
            ));
        }
        let device = &self.engine.device;
        if device.supports_all() {
            return None;
        }
        let (plan, _) = caught(|| self.plan(program)).ok()?;
        let reason = plan.items.iter().find_map(|item| device.unsupported(&item.linear))?;
        Some(format!("device {} {reason}", device.name()))
    }

    fn kept(&self) -> Kept {
        Kept { zero_signs: self.row.zero_signs, ..Kept::ALL }
    }

    fn is_strict(&self) -> bool {
        self.row.is_strict()
    }

    /// Plans all programs, compiles all their kernels at once, then runs the programs one by one.
    fn run(&self, programs: &[&Program]) -> Vec<Outcome> {
        if let Some(session) = &self.session {
            return session.run(programs);
        }
        let planned: Vec<Result<Planned, Outcome>> =
            programs.iter().map(|program| caught(|| self.plan(program))).collect();
        let mut plans: Vec<Plan> = planned.iter().flatten().map(|(plan, _)| plan.clone()).collect();
        let compiled = caught(|| Ok(self.engine.compile(&mut plans)?));
        let mut plans = plans.into_iter();
        // Outputs stay alive until all are read once more.
        let mut outputs_of = Vec::with_capacity(planned.len());
        let mut outcomes: Vec<Outcome> = planned
            .into_iter()
            .map(|planned| {
                let outputs =
                    planned.as_ref().map_or_else(|_| Vec::new(), |(_, outputs)| outputs.clone());
                outputs_of.push(outputs);
                let answer = planned.and_then(|(_, outputs)| {
                    let mut plan = [plans.next().expect("a plan for each planned program")];
                    self.check_length(&plan[0])?;
                    if compiled.is_err() {
                        // One kernel makes the batch fail: compiling each program alone finds it.
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

type Planned = (Plan, Vec<Tensor>);

/// Runs `work`; a refusal or a panic becomes the matching outcome.
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
        let outputs_by_reference: Vec<&Tensor> = outputs.iter().collect();
        // Once a plan is made, a tensor is the buffer that the plan will write.
        let roots: Vec<UOp> = outputs.iter().map(Tensor::uop).collect();
        let last = self.engine.plan(&outputs_by_reference)?;
        crate::judge::requested::check(&roots, &self.engine.schedule, &last)?;
        plan.append(last);
        if self.row.is_strict() {
            let check = |item: &PlannedKernel| crate::judge::strict::check(&item.ast, &item.linear);
            plan.items.iter().try_for_each(check)?;
        }
        match plan.items.iter().find(|item| item.is_endless) {
            Some(item) => Err(format!("rewriting kernel {} {ENDLESS}", item.linear.name).into()),
            None => Ok((plan, outputs)),
        }
    }

    /// Skips a plan that drawn optimisations make too slow where kernels are evaluated, not
    /// compiled.
    fn check_length(&self, plan: &Plan) -> Result<(), Outcome> {
        let is_evaluated = self.row.device == "interp" || self.row.is_of_harness();
        if !is_evaluated || !matches!(self.row.opts, Opts::Drawn(_)) {
            return Ok(());
        }
        let lanes = plan.items.iter().map(|item| crate::models::linear::executed(&item.linear));
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

    /// Reads outputs again and reports a change: a launch is over when it returns, so it must not
    /// write any more. The checked devices run in this thread and need no such check.
    fn changed(&self, outcome: &Outcome, outputs: &[Tensor]) -> Option<String> {
        let Outcome::Values(before) = outcome else { return None };
        if self.row.device == "interp" || self.row.is_of_harness() {
            return None;
        }
        let after = self.values(outputs);
        (after.as_ref() != Ok(before)).then(|| format!("{CHANGED} had returned"))
    }

    fn values(&self, outputs: &[Tensor]) -> Result<Vec<Array>, Refusal> {
        let value = |output: &Tensor| Ok(array(output, &output.to_bytes()?)?);
        outputs.iter().map(value).collect()
    }
}

/// The array of the bytes that were read from a tensor.
///
/// # Errors
/// There are not as many bytes as the tensor has, or a bool is neither 0 nor 1.
pub(crate) fn array(tensor: &Tensor, bytes: &[u8]) -> Result<Array, String> {
    let dtype = DType::from_name(tensor.dtype().name()).ok_or("an unknown dtype")?;
    let shape = tensor.shape().iter().map(|size| *size as usize).collect();
    Array::from_bytes(dtype, shape, bytes).ok_or_else(|| {
        let (name, shape) = (dtype.name(), tensor.shape());
        format!("{name}{shape:?} has {} bytes, or a bool is neither 0 nor 1", bytes.len())
    })
}

/// The lines of a Rust test that make an engine which runs programs as the backend of this name;
/// `None` if there is no such engine.
pub(crate) fn engine_text(backend: &str) -> Option<String> {
    BACKENDS.iter().find(|row| row.name == backend)?.engine_text()
}

/// The options of a backend; the default ones if there is no backend of this name, or its device is
/// not available.
pub(crate) fn configuration(backend: &str) -> Configuration {
    let row = BACKENDS.iter().find(|row| row.name == backend);
    row.and_then(|row| row.configuration().ok()).unwrap_or_default()
}

/// The options that programs may be run with on a backend: those of [`configuration`] and, for a
/// session, those of its other engines.
pub(crate) fn configurations(backend: &str) -> Vec<Configuration> {
    let count = if backend.ends_with("/session") { crate::backends::session::ENGINES } else { 1 };
    let changed = |number: usize| {
        let mut configuration = configuration(backend);
        let Configuration { kernel, schedule, .. } = &mut configuration;
        crate::backends::session::change_options(number, kernel, schedule);
        configuration
    };
    (0..count).map(changed).collect()
}

/// Number of kernels that a program takes, including those of `realize` statements.
///
/// # Errors
/// The engine's message if it refuses the program.
pub(crate) fn kernel_count(program: &Program) -> Result<usize, String> {
    let row = &BACKENDS[0];
    Ok(row.open(Turn::ALWAYS)?.plan(program)?.0.kernel_count())
}

/// Runs one kernel of any origin on the device of this name, or on that of the backend of this
/// name, with memories of its own.
pub(crate) fn run_alone(
    device: &str,
    kernel: &Linear,
    memories: &mut [Elements],
) -> Result<(), String> {
    let compiled = opened(device)?.compile_checked(&[kernel]);
    run_compiled(&*compiled.map_err(|error| error.to_string())?[0], kernel, memories)
}

/// As [`run_alone`], for a lowered kernel; `is_compiled` is called before it runs.
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
/// The device's message.
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

/// The words about an element that is neither true nor false.
pub(crate) const NO_BOOL: &str = " is a bool of the byte";

/// Runs a compiled kernel and reads the array of the first slot and of each slot that it stores to.
pub(crate) fn run_compiled(
    compiled: &dyn Executable,
    kernel: &Linear,
    memories: &mut [Elements],
) -> Result<(), String> {
    let mut arrays = Vec::with_capacity(memories.len());
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
        arrays.push(Arc::new(memory.map_err(|error| error.to_string())?));
    }
    let references: Vec<&gradiff::runtime::Memory> = arrays.iter().map(Arc::as_ref).collect();
    compiled.run(&references).map_err(|error| error.to_string())?;
    for (slot, (_, dtype)) in kernel.globals().into_iter().enumerate() {
        if slot != 0 && !crate::models::linear::is_stored(kernel, slot) {
            continue;
        }
        let bytes = arrays[slot].read().map_err(|error| error.to_string())?;
        let is_wrong = |byte: &u8| dtype == gradiff::DType::Bool && *byte > 1;
        if let Some(at) = bytes.iter().position(is_wrong) {
            return Err(format!("element {at} of output {slot}{NO_BOOL} {}", bytes[at]));
        }
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

    /// Text of all options of an engine, for comparison.
    fn options_of(engine: &Engine) -> String {
        format!(
            "{:?} {:?} {:?} beam {}",
            engine.schedule, engine.kernel, engine.target, engine.beam
        )
    }

    /// With `BEAM` in the environment, the engine searches among the optimisations that the `opts`
    /// rows draw.
    #[test]
    fn each_device_is_hunted_by_default_as_engine_new_makes_it() {
        for device in gradiff::runtime::devices().iter().filter(|row| row.name != "null") {
            let is_hunted = |row: &&BackendRow| row.device == device.name && row.turn.every != 0;
            let mut rows = BACKENDS.iter().filter(is_hunted).filter(|row| row.is_as_new());
            let row = rows.next();
            let row = row.unwrap_or_else(|| panic!("no hunt runs {} as users do", device.name));
            assert!(row.default_word().is_some());
            if device.status.is_err() {
                continue;
            }
            let engine = Engine::new(device.name).expect("it is there");
            let opened = row.open(row.turn).expect("it is there").engine;
            assert_eq!(options_of(&opened), options_of(&engine), "{}", row.name);
            let Configuration { schedule, kernel, target } = configuration(row.name);
            let Engine { schedule: new_schedule, kernel: new_kernel, target: new, .. } = &engine;
            assert_eq!(
                format!("{schedule:?} {kernel:?} {target:?}"),
                format!("{new_schedule:?} {new_kernel:?} {new:?}"),
                "blame uses the options of {}",
                row.name
            );
            let shown = crate::models::linear::target(&format!("device:{}", device.name));
            assert_eq!(shown.as_ref(), Ok(new), "`show` lowers for {}", device.name);
            let listed = row.status().expect("it is there");
            assert!(listed.ends_with(&new.to_string()), "`backends` lists {listed}");
            println!("{}: {new}", device.name);
        }
    }

    /// The test above with a compiler without AVX-512 and with three threads. A process opens a
    /// device once, so it takes another one.
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn device_c_is_what_the_compiler_and_the_threads_are() {
        let path = std::env::current_exe().expect("the path of the tests");
        let (_, module) = module_path!().split_once("::").expect("a module of a crate");
        let test = format!("{module}::each_device_is_hunted_by_default_as_engine_new_makes_it");
        let mut command = std::process::Command::new(path);
        command.args(["--exact", &test, "--nocapture"]);
        command.envs([("CC", "cc -mno-avx512f -mavx2"), ("GRADIFF_THREADS", "3")]);
        let output = command.output().expect("the tests start");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{text}");
        assert!(text.contains("c: no groups, vectors of 32 bytes, 3 threads\n"), "{text}");
    }

    #[test]
    fn drawn_optimisations_that_take_too_long_are_skipped() {
        let mut text = String::from(
            "a = input f32[4096] seeded(0, unit)\nb = reshape a [4096,1]\n\
             c = expand b [4096,4096]\n",
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
