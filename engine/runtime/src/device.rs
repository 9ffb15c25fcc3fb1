//! What a device is, and the table of all devices.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use gradiff_graph::{BoundedLinear, Linear};

use crate::{Error, Memory};

/// Something that kernels run on. Devices share host memory.
pub trait Device: Send + Sync {
    /// Its word on the command line.
    fn name(&self) -> &'static str;

    /// Makes kernels ready to run, in the order given; all of them in one go, which for a
    /// device with a slow compiler is far cheaper than one by one.
    ///
    /// # Errors
    /// The first kernel that cannot be compiled.
    fn compile(&self, kernels: &[&BoundedLinear]) -> Result<Vec<Arc<dyn Executable>>, Error>;

    /// As [`compile`](Device::compile), but given up when it takes longer than the limit, all
    /// kernels together. A compiler that is a program of its own (of `c`) is ended then. The other
    /// devices compile within this process, where nothing can be ended, and pass over the limit:
    /// there, how long it takes is bounded by the uops of the kernels alone.
    ///
    /// # Errors
    /// [`Error::CompilerTooSlow`], and those of `compile`.
    fn compile_within(
        &self,
        kernels: &[&BoundedLinear],
        limit: Duration,
    ) -> Result<Vec<Arc<dyn Executable>>, Error> {
        let _ = limit;
        self.compile(kernels)
    }

    /// As [`compile`](Device::compile), of kernels from anywhere, as text: each must be proven to
    /// keep within its arrays ([`BoundedLinear::check`]). A device that checks each access itself
    /// takes them as they are.
    ///
    /// # Errors
    /// [`Error::Unproven`], and those of `compile`.
    fn compile_checked(&self, kernels: &[&Linear]) -> Result<Vec<Arc<dyn Executable>>, Error> {
        let check = |kernel: &&Linear| {
            let name = kernel.name.clone();
            let unproven = |why| Error::Unproven { kernel: name, why };
            BoundedLinear::check((*kernel).clone()).map_err(unproven)
        };
        let proven = kernels.iter().map(check).collect::<Result<Vec<BoundedLinear>, Error>>()?;
        self.compile(&proven.iter().collect::<Vec<_>>())
    }

    /// The name of the target that kernels are made for.
    fn target(&self) -> &'static str {
        self.name()
    }

    /// What a kernel uses that the device has not, in words, if it lacks any type or op: such a
    /// kernel is not compiled.
    fn lacks(&self, kernel: &Linear) -> Option<String> {
        let _ = kernel;
        None
    }

    /// Version and what is special, in one line for people.
    fn describe(&self) -> String;

    /// Waits until all launches are done; a device may run them after `Executable::run` is back.
    ///
    /// # Errors
    /// What a launch ran into.
    fn wait(&self) -> Result<(), Error> {
        Ok(())
    }

    /// How many compiled kernels an engine keeps at most.
    fn kernels_kept(&self) -> usize {
        4096
    }

    /// Runs a kernel, waits until it is done and says how long that took: by the device's own clock
    /// where it has one (`cuda` and `opencl`), which runs from the kernel's start to its end; else
    /// by the host's, which counts the launch, the wait and the copies that are due as well.
    ///
    /// # Errors
    /// What the launch runs into.
    fn time(&self, executable: &dyn Executable, memories: &[&Memory]) -> Result<Duration, Error> {
        let start = Instant::now();
        if let Some(time) = executable.run_timed(memories)? {
            return Ok(time);
        }
        self.wait()?;
        Ok(start.elapsed())
    }

    /// What kernels must keep within.
    fn limits(&self) -> Limits {
        Limits::default()
    }
}

/// The kernels as plain data, none of which leaves its arrays.
///
/// # Errors
/// [`Error::Unproven`], of a kernel that is doubted.
pub(crate) fn plain<'a>(kernels: &[&'a BoundedLinear]) -> Result<Vec<&'a Linear>, Error> {
    let plain = |kernel: &&'a BoundedLinear| {
        let linear: &'a Linear = kernel;
        kernel.ensure().map_err(|why| Error::Unproven { kernel: linear.name.clone(), why })?;
        Ok(linear)
    };
    kernels.iter().map(plain).collect()
}

/// What a device takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Groups of threads with barriers and local memory; none where there are no groups.
    pub groups: Option<GroupLimits>,
    /// The bytes of the widest vector that one instruction computes with; 0 if unknown.
    pub vector_bytes: u32,
    /// How many threads of the host a `Thread` range is shared out to.
    pub thread_count: u32,
}

/// What a device takes of groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupLimits {
    /// How many threads a group has at most.
    pub threads_max: u64,
    /// How many steps the local ranges have at most, the innermost first.
    pub sizes_max: [u64; 3],
    /// How many steps the global ranges have at most, the innermost first.
    pub groups_max: [u64; 3],
    /// How many bytes of local memory a group has.
    pub local_bytes: u64,
}

impl std::fmt::Display for Limits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.groups {
            None => write!(f, "no groups")?,
            Some(GroupLimits { threads_max, sizes_max: [x, y, z], local_bytes, .. }) => write!(
                f,
                "groups of {threads_max} threads at most ({x} x {y} x {z}) with {local_bytes} \
                 bytes of local memory"
            )?,
        }
        match self.vector_bytes {
            0 => write!(f, ", no vectors"),
            bytes => write!(f, ", vectors of {bytes} bytes"),
        }?;
        match self.thread_count {
            0 | 1 => Ok(()),
            count => write!(f, ", {count} threads"),
        }
    }
}

/// A kernel made ready.
pub trait Executable: Send + Sync {
    /// Runs the kernel over `memories`, given by slot. What it writes is locked against all
    /// others meanwhile; what it reads is locked against writers.
    ///
    /// The checked interpreter reports an index out of bounds. Compiled devices trust the kernel:
    /// that its indices are within its parameters was proven of it, or is the promise of lowering
    /// ([`BoundedLinear`]), which the checked interpreter tests.
    ///
    /// # Errors
    /// [`Error::Arguments`] if dtypes or sizes do not fit or a memory that is written stands in
    /// two slots; what the checked interpreter finds.
    fn run(&self, memories: &[&Memory]) -> Result<(), Error>;

    /// Runs the kernel as [`run`](Executable::run) does. Where the device has a clock of its own
    /// it waits, and says how long the kernel took by that clock; else it gives `None`, and
    /// [`Device::time`] is who looks at a clock.
    ///
    /// # Errors
    /// As `run`.
    fn run_timed(&self, memories: &[&Memory]) -> Result<Option<Duration>, Error> {
        self.run(memories).map(|()| None)
    }
}

/// One device in the listing of devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceRow {
    /// Its name.
    pub name: &'static str,
    /// Version and limits, or why it is not there and what to do.
    pub status: Result<String, String>,
    /// Its limits, if it is there.
    pub limits: Option<Limits>,
}

/// A row of the table: a name and how to open the device.
struct Row {
    name: &'static str,
    open: fn() -> Result<Arc<dyn Device>, Error>,
    opened: Mutex<Option<Arc<dyn Device>>>,
}

const fn row(name: &'static str, open: fn() -> Result<Arc<dyn Device>, Error>) -> Row {
    Row { name, open, opened: Mutex::new(None) }
}

/// All devices, the one that needs nothing first.
static DEVICES: [Row; 8] = [
    row("interp", || Ok(Arc::new(crate::interp::Interpreter))),
    row("jit", || Ok(Arc::new(crate::jit::Jit::open()?))),
    row("c", || Ok(Arc::new(crate::c::Compiler::open()?))),
    row("opencl", || Ok(Arc::new(crate::opencl::OpenCl::open()?))),
    row("cuda", || Ok(Arc::new(crate::cuda::Cuda::open()?))),
    row("wgpu", wgpu::open),
    row("wgpu-core", wgpu::open_core),
    row("null", || Ok(Arc::new(crate::null::Null))),
];

#[cfg(feature = "wgpu")]
mod wgpu {
    use super::{Arc, Device, Error};
    use crate::wgpu::Wgpu;

    pub(super) fn open() -> Result<Arc<dyn Device>, Error> {
        Ok(Arc::new(Wgpu::open()?))
    }

    pub(super) fn open_core() -> Result<Arc<dyn Device>, Error> {
        Ok(Arc::new(Wgpu::open_core()?))
    }
}

#[cfg(not(feature = "wgpu"))]
mod wgpu {
    use super::{Arc, Device, Error};

    fn absent(device: &'static str) -> Result<Arc<dyn Device>, Error> {
        let why = "this was built without it; build with the feature `wgpu`".into();
        Err(Error::Unavailable { device, why })
    }

    pub(super) fn open() -> Result<Arc<dyn Device>, Error> {
        absent("wgpu")
    }

    pub(super) fn open_core() -> Result<Arc<dyn Device>, Error> {
        absent("wgpu-core")
    }
}

impl Row {
    /// The device, opened once; a device that was not there is looked for anew.
    fn device(&self) -> Result<Arc<dyn Device>, Error> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(device) = &*opened {
            return Ok(device.clone());
        }
        Ok(opened.insert((self.open)()?).clone())
    }
}

/// The device of this name: `interp`, `jit`, `c`, `opencl`, `cuda`, `wgpu`, `wgpu-core` or `null`.
///
/// # Errors
/// [`Error::NoDevice`] if no device has the name, [`Error::Unavailable`] if this machine lacks
/// what it needs.
pub fn device(name: &str) -> Result<Arc<dyn Device>, Error> {
    crate::environment::check()?;
    let row = DEVICES.iter().find(|row| row.name == name);
    let known = || DEVICES.iter().map(|row| row.name).collect();
    row.ok_or_else(|| Error::NoDevice { name: name.to_string(), known: known() })?.device()
}

/// All devices and how they stand.
pub fn devices() -> Vec<DeviceRow> {
    let stand = |row: &Row| match row.device() {
        Ok(device) => {
            let limits = device.limits();
            let status = Ok(format!("{}; {limits}", device.describe()));
            DeviceRow { name: row.name, status, limits: Some(limits) }
        }
        Err(error) => DeviceRow { name: row.name, status: Err(error.to_string()), limits: None },
    };
    DEVICES.iter().map(stand).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT: Duration = Duration::from_millis(20);

    /// Launches that are done when they are waited for.
    struct Late;

    /// A launch, and what the clock of the device says of it.
    struct Launched(Option<Duration>);

    impl Device for Late {
        fn name(&self) -> &'static str {
            "late"
        }

        fn compile(&self, _: &[&BoundedLinear]) -> Result<Vec<Arc<dyn Executable>>, Error> {
            Ok(Vec::new())
        }

        fn describe(&self) -> String {
            String::new()
        }

        fn wait(&self) -> Result<(), Error> {
            std::thread::sleep(WAIT);
            Ok(())
        }
    }

    impl Executable for Launched {
        fn run(&self, _: &[&Memory]) -> Result<(), Error> {
            Ok(())
        }

        fn run_timed(&self, _: &[&Memory]) -> Result<Option<Duration>, Error> {
            Ok(self.0)
        }
    }

    #[test]
    fn time_is_of_the_device_or_counts_the_wait() {
        assert!(WAIT <= Late.time(&Launched(None), &[]).unwrap());
        let own = Duration::from_nanos(7);
        assert_eq!(Late.time(&Launched(Some(own)), &[]).unwrap(), own);
    }
}
