//! Errors of devices, with messages that say what to do.

use std::path::PathBuf;
use std::time::Duration;

use gradiff_graph::{DType, Op};

/// An array of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Array {
    /// The parameter of this slot.
    Data(usize),
    /// The local array of this number.
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

/// The thread that ran a uop of a kernel. Groups and threads are numbered in row-major order of
/// the global and local ranges, innermost fastest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Worker {
    /// The group; `None` for several groups.
    pub group: Option<u32>,
    /// The thread of the group; `None` for several threads.
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

/// The reason why a kernel was not compiled or did not run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An environment variable has an invalid value.
    #[error("{name}={text}: it must be {meaning}, from {min} to {max}")]
    Environment {
        /// The variable.
        name: &'static str,
        /// The value.
        text: String,
        /// The meaning of the variable.
        meaning: &'static str,
        /// The minimal value.
        min: usize,
        /// The maximal value.
        max: usize,
    },
    /// The environment variables that select the default device have no valid values.
    #[error("{settings}: {why}")]
    DefaultDevice {
        /// The variables and their values, such as `C=2`.
        settings: String,
        /// The allowed values.
        why: &'static str,
    },
    /// There is no device of this name.
    #[error("there is no device `{name}`; devices are {}", known.join(", "))]
    NoDevice {
        /// The name.
        name: String,
        /// The names of all devices.
        known: Vec<&'static str>,
    },
    /// This machine does not meet the requirements of the device.
    #[error("device {device} is not available: {why}")]
    Unavailable {
        /// The device.
        device: &'static str,
        /// The missing part, and what to do.
        why: String,
    },
    /// A kernel cannot be rendered in the device's language.
    #[error(transparent)]
    Render(#[from] gradiff_render::Error),
    /// The device does not have this op for this dtype.
    #[error("kernel {kernel}, uop {position}: device {device} has no {op} of {dtype}")]
    Unsupported {
        /// The device.
        device: &'static str,
        /// The kernel.
        kernel: String,
        /// Index of the uop in the list.
        position: usize,
        /// The op.
        op: Op,
        /// The type of the first source; of the uop itself if it has no source.
        dtype: DType,
    },
    /// The uops violate the invariants of `Linear`.
    #[error("kernel {kernel}, uop {position}: {problem}")]
    Malformed {
        /// The kernel.
        kernel: String,
        /// Index of the uop in the list.
        position: usize,
        /// The violated invariant.
        problem: String,
    },
    /// The checked interpreter found an index out of bounds.
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
        /// The index.
        index: i64,
        /// The number of elements of the array.
        size_elements: i64,
    },
    /// The checked interpreter read an element that was never written.
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
        /// The number of elements of the array.
        size_elements: i64,
    },
    /// The checked interpreter found two unordered accesses of an element, at least one of them a
    /// write.
    #[error(
        "kernel {kernel}, uop {position}: a race: {second} {} element {index} of {array} \
         (of {size_elements}), {first} {} it; there is no barrier between",
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
        /// The number of elements of the array.
        size_elements: i64,
        /// The thread of the first access.
        first: Worker,
        /// True if the first access is a store.
        first_writes: bool,
        /// The thread of the second access.
        second: Worker,
        /// True if the second access is a store.
        second_writes: bool,
    },
    /// The checked interpreter found a barrier that not all threads of a group reach.
    #[error(
        "kernel {kernel}, uop {position}: a barrier in divergent flow: {waits} waits at it, \
         {absent} {does}"
    )]
    DivergentBarrier {
        /// The kernel.
        kernel: String,
        /// The barrier.
        position: usize,
        /// The thread that waits.
        waits: Worker,
        /// The thread that does not reach it.
        absent: Worker,
        /// The action of the thread that does not reach it.
        does: String,
    },
    /// The accesses of a kernel that does not come from lowering are not proven to be in bounds.
    #[error("kernel {kernel}: {why}")]
    Unproven {
        /// The kernel.
        kernel: String,
        /// The access and the bound that is not proven.
        why: gradiff_graph::verify::VerifyError,
    },
    /// The memories do not fit the parameters.
    #[error("kernel {kernel}: {problem}")]
    Arguments {
        /// The kernel.
        kernel: String,
        /// The mismatch.
        problem: String,
    },
    /// There is not enough memory, or a size does not fit the dtype.
    #[error("memory for {size_elements} elements of {dtype}: {why}")]
    Memory {
        /// Element type.
        dtype: DType,
        /// The number of elements.
        size_elements: usize,
        /// The reason.
        why: String,
    },
    /// The memory was never written, and cannot be read.
    #[error(
        "read of {size_elements} x {dtype}: nothing was ever written there (device `null` runs \
         nothing)"
    )]
    Unwritten {
        /// Element type.
        dtype: DType,
        /// The number of elements.
        size_elements: usize,
    },
    /// The device cannot launch the kernel: its grid, groups or local memory exceed the limits.
    #[error("kernel {kernel}: device {device} {problem}")]
    Launch {
        /// The device.
        device: &'static str,
        /// The kernel.
        kernel: String,
        /// The limit that is exceeded.
        problem: String,
    },
    /// A call of a driver failed.
    #[error("device {device}: {call} failed: {why}")]
    Driver {
        /// The device.
        device: &'static str,
        /// The function of the driver.
        call: &'static str,
        /// The error of the driver.
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
        /// The source file, if it could be saved.
        source_path: Option<PathBuf>,
        /// The compiler's output.
        stderr: String,
    },
    /// The C compiler was killed because it exceeded the time limit.
    #[error(
        "{compiler} was ended after {:.1} s for kernels {kernels}, which have a limit of {:.1} s: \
         use a larger limit, fewer kernels in one call, or kernels that are unrolled less",
        elapsed.as_secs_f64(), limit.as_secs_f64()
    )]
    CompilerTooSlow {
        /// The command.
        compiler: String,
        /// The names of the kernels in the file.
        kernels: String,
        /// The time since the start of the compile of all files.
        elapsed: Duration,
        /// The time limit.
        limit: Duration,
    },
    /// A compiler fails for any source, or was killed from outside.
    #[error("{compiler} does not work on this machine at present: {why}")]
    CompilerUnusable {
        /// The command.
        compiler: String,
        /// The compiler's output or exit status.
        why: String,
    },
    /// A driver is out of resources, or has lost its device.
    #[error("device {device}: {call} failed: {why}")]
    DeviceUnusable {
        /// The device.
        device: &'static str,
        /// The function of the driver.
        call: &'static str,
        /// The error of the driver.
        why: String,
    },
    /// An object file of a working compiler could not be loaded, or does not have all kernels.
    #[error("{action} {}: {why}", path.display())]
    Object {
        /// The action that failed, as `cannot load`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the system.
        why: String,
    },
    /// A file could not be read, written or loaded, whatever its content.
    #[error("{action} {}: {why}", path.display())]
    File {
        /// The action that failed, as `cannot write`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the system.
        why: String,
    },
    /// The code generator refused a kernel.
    #[error("kernel {kernel}: the code generator says: {why}")]
    Jit {
        /// The kernel, or kernels.
        kernel: String,
        /// The error of the code generator.
        why: String,
    },
}

impl Error {
    /// Returns whether the machine is at fault (its files, compilers, devices and settings) rather
    /// than the engine, the kernel or the caller.
    pub fn is_environment(&self) -> bool {
        match self {
            Error::Environment { .. }
            | Error::DefaultDevice { .. }
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
