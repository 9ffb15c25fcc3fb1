//! What a device refuses and what went wrong, in words that say what to do.

use std::path::PathBuf;
use std::time::Duration;

use gradiff_graph::{DType, Op};

/// An array of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Array {
    /// The parameter of this slot.
    Data(usize),
    /// The array of this number that the threads of a group share.
    Local(usize),
}

impl std::fmt::Display for Array {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Array::Data(slot) => write!(f, "data{slot}"),
            Array::Local(number) => write!(f, "local{number}"),
        }
    }
}

/// Who ran a uop of a launched kernel. Numbers count the steps of the launched ranges, the
/// innermost range fastest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Worker {
    /// The group; none if it is several.
    pub group: Option<u32>,
    /// The thread of the group; none if it is several.
    pub thread: Option<u32>,
}

impl std::fmt::Display for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.group, self.thread) {
            (Some(group), Some(thread)) => write!(f, "thread {thread} of group {group}"),
            (Some(group), None) => write!(f, "more than one thread of group {group}"),
            (None, _) => write!(f, "more than one group"),
        }
    }
}

/// Why a kernel was not compiled or did not run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An environment variable says what it may not.
    #[error("{name}={text}: it says {what}, from {least} to {most}")]
    Environment {
        /// The variable.
        name: &'static str,
        /// What it says.
        text: String,
        /// What it is for.
        what: &'static str,
        /// The least it may say.
        least: usize,
        /// The most it may say.
        most: usize,
    },
    /// There is no device of this name.
    #[error("there is no device `{name}`; devices are {}", known.join(", "))]
    NoDevice {
        /// What was asked for.
        name: String,
        /// What there is.
        known: Vec<&'static str>,
    },
    /// The device exists but this machine lacks what it needs.
    #[error("device {device} is not available: {why}")]
    Unavailable {
        /// The device.
        device: &'static str,
        /// What is missing and what to do.
        why: String,
    },
    /// A kernel cannot be written in the device's language.
    #[error(transparent)]
    Render(#[from] gradiff_render::Error),
    /// The device has no such op for this dtype.
    #[error("kernel {kernel}, uop {position}: device {device} has no {op} of {dtype}")]
    Unsupported {
        /// The device.
        device: &'static str,
        /// The kernel.
        kernel: String,
        /// The uop's place in the list.
        position: usize,
        /// What it does.
        op: Op,
        /// The type of its first source, or its own.
        dtype: DType,
    },
    /// The uops do not keep the invariants of `Linear`.
    #[error("kernel {kernel}, uop {position}: {what}")]
    Malformed {
        /// The kernel.
        kernel: String,
        /// The uop's place in the list.
        position: usize,
        /// What is wrong.
        what: String,
    },
    /// The checked interpreter met an index outside an array.
    #[error(
        "kernel {kernel}, uop {position}: index {index} of {array} is out of bounds, \
         which are 0..{size_elements}"
    )]
    OutOfBounds {
        /// The kernel.
        kernel: String,
        /// The load or store.
        position: usize,
        /// The array.
        array: Array,
        /// The index met.
        index: i64,
        /// How many elements the array holds.
        size_elements: i64,
    },
    /// The checked interpreter read an element that nobody has written.
    #[error(
        "kernel {kernel}, uop {position}: element {index} of {array} \
         (of {size_elements}) is read before it is written"
    )]
    Uninitialised {
        /// The kernel.
        kernel: String,
        /// The load.
        position: usize,
        /// The array.
        array: Array,
        /// The element.
        index: i64,
        /// How many elements the array holds.
        size_elements: i64,
    },
    /// The checked interpreter saw two threads touch one element in no order, one of them writing.
    #[error(
        "kernel {kernel}, uop {position}: a race: {second} {} element {index} of {array} \
         (of {size_elements}), {first} {} it; no barrier stands between",
        if *second_writes { "writes" } else { "reads" },
        if *first_writes { "writes" } else { "reads" },
    )]
    Race {
        /// The kernel.
        kernel: String,
        /// The load or store of the second thread.
        position: usize,
        /// The array.
        array: Array,
        /// The element.
        index: i64,
        /// How many elements the array holds.
        size_elements: i64,
        /// Who touched it first.
        first: Worker,
        /// Whether by a store.
        first_writes: bool,
        /// Who touched it then.
        second: Worker,
        /// Whether by a store.
        second_writes: bool,
    },
    /// The checked interpreter saw a thread wait at a barrier that another one does not come to.
    #[error(
        "kernel {kernel}, uop {position}: a barrier in divergent flow: {waits} waits at it, \
         {other} {does}"
    )]
    DivergentBarrier {
        /// The kernel.
        kernel: String,
        /// The barrier.
        position: usize,
        /// Who waits.
        waits: Worker,
        /// Who does not come.
        other: Worker,
        /// What the other one does instead.
        does: String,
    },
    /// A kernel that does not come from lowering, and that is not proven to keep within its arrays.
    #[error("kernel {kernel}: {why}")]
    Unproven {
        /// The kernel.
        kernel: String,
        /// Where, and what is not proven.
        why: gradiff_graph::VerifyError,
    },
    /// The memories given do not fit the parameters.
    #[error("kernel {kernel}: {what}")]
    Arguments {
        /// The kernel.
        kernel: String,
        /// What does not fit.
        what: String,
    },
    /// Too much memory was asked for, or a size does not fit the dtype.
    #[error("memory for {size_elements} elements of {dtype}: {why}")]
    Memory {
        /// Element type.
        dtype: DType,
        /// How many were asked for.
        size_elements: usize,
        /// What is wrong.
        why: String,
    },
    /// What was never computed cannot be read.
    #[error(
        "read of {size_elements} x {dtype}: nothing was ever written there (device `null` runs \
         nothing)"
    )]
    Unwritten {
        /// Element type.
        dtype: DType,
        /// How many elements there are.
        size_elements: usize,
    },
    /// A device does not take a kernel that is launched in this way.
    #[error("kernel {kernel}: device {device} {what}")]
    Launch {
        /// The device.
        device: &'static str,
        /// The kernel.
        kernel: String,
        /// What it does not take.
        what: String,
    },
    /// A driver said no.
    #[error("device {device}: {call} failed: {why}")]
    Driver {
        /// The device.
        device: &'static str,
        /// What was asked of it.
        call: &'static str,
        /// What it said.
        why: String,
    },
    /// The C compiler refused a kernel.
    #[error(
        "{compiler} refused kernels {kernels}: {stderr}{}",
        source_path.as_ref().map_or(String::new(), |p| format!("\nthe source is {}", p.display()))
    )]
    CompilerFailed {
        /// The command.
        compiler: String,
        /// The names of the kernels in the file.
        kernels: String,
        /// The file, where it could be kept.
        source_path: Option<PathBuf>,
        /// What the compiler said.
        stderr: String,
    },
    /// The C compiler was ended, as it took longer than it was given.
    #[error(
        "{compiler} was ended after {:.1} s over kernels {kernels}, for which it was given {:.1} \
         s: give it more time, fewer kernels in one go, or kernels with fewer steps written out",
        taken.as_secs_f64(), limit.as_secs_f64()
    )]
    CompilerTooSlow {
        /// The command.
        compiler: String,
        /// The names of the kernels in the file.
        kernels: String,
        /// How long the compile took, of all files that were compiled together.
        taken: Duration,
        /// How long it might have taken.
        limit: Duration,
    },
    /// A compiler fails whatever it is given, or something else has ended it.
    #[error("{compiler} does not work on this machine at present: {why}")]
    CompilerUnusable {
        /// The command.
        compiler: String,
        /// What it said, or how it ended.
        why: String,
    },
    /// A driver has run out of something, or has lost its device.
    #[error("device {device}: {call} failed: {why}")]
    DeviceUnusable {
        /// The device.
        device: &'static str,
        /// What was asked of it.
        call: &'static str,
        /// What it said.
        why: String,
    },
    /// The system does not load what a working compiler has made of kernels, or has not all of them.
    #[error("{what} {}: {why}", path.display())]
    Object {
        /// What was attempted.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        why: String,
    },
    /// A file could not be read, written or loaded, whatever is in it.
    #[error("{what} {}: {why}", path.display())]
    File {
        /// What was attempted.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        why: String,
    },
    /// The code generator refused a kernel.
    #[error("kernel {kernel}: the code generator says: {why}")]
    Jit {
        /// The kernel, or kernels.
        kernel: String,
        /// What it said.
        why: String,
    },
}

impl Error {
    /// Returns whether the machine is at fault (its files, compilers, devices and settings) rather
    /// than the kernel or what was asked of it. Such an error says nothing of the engine.
    pub fn is_environment(&self) -> bool {
        match self {
            Error::Environment { .. }
            | Error::Unavailable { .. }
            | Error::CompilerUnusable { .. }
            | Error::DeviceUnusable { .. }
            | Error::File { .. } => true,
            Error::NoDevice { .. }
            | Error::Render(_)
            | Error::Unsupported { .. }
            | Error::Malformed { .. }
            | Error::OutOfBounds { .. }
            | Error::Uninitialised { .. }
            | Error::Race { .. }
            | Error::DivergentBarrier { .. }
            | Error::Unproven { .. }
            | Error::Arguments { .. }
            | Error::Memory { .. }
            | Error::Unwritten { .. }
            | Error::Launch { .. }
            | Error::Driver { .. }
            | Error::CompilerFailed { .. }
            | Error::CompilerTooSlow { .. }
            | Error::Object { .. }
            | Error::Jit { .. } => false,
        }
    }
}
