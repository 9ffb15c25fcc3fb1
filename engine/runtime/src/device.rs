//! The traits of devices and of compiled kernels.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gradiff_graph::{BoundedLinear, Linear, Target};

use crate::{Error, Memory};

/// A device that compiles and runs kernels. Memories are on the host; devices with memory of their
/// own copy them on demand.
pub trait Device: Send + Sync {
    /// The name of the device on the command line.
    fn name(&self) -> &'static str;

    /// Compiles kernels; the executables are in the same order. For a device with a slow compiler
    /// one call for many kernels is much cheaper than a call for each.
    ///
    /// # Errors
    /// The first kernel that cannot be compiled.
    fn compile(&self, kernels: &[&BoundedLinear]) -> Result<Vec<Arc<dyn Executable>>, Error>;

    /// As [`compile`](Device::compile), with a time limit for all kernels together. A compiler in a
    /// process of its own (of device `c`) is killed at the limit. The other devices compile within
    /// this process, where a compile cannot be stopped, and ignore the limit; there, only the
    /// number of uops bounds the time.
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

    /// As [`compile`](Device::compile), for kernels of any origin, such as text: all accesses must
    /// be proven to be within bounds ([`BoundedLinear::check`]). A device that checks each access
    /// itself takes kernels without a proof.
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

    /// The description of the device as it was opened: what kernels may use, and their limits.
    /// Kernels are lowered for it, and those beyond it are refused.
    fn target(&self) -> Target;

    /// Returns whether kernels run in memory of the device, to which bytes of the host are copied.
    fn has_memory(&self) -> bool {
        false
    }

    /// Returns whether [`unsupported`](Device::unsupported) is `None` for all kernels.
    fn supports_all(&self) -> bool {
        self.target().unsupported_types.is_empty()
    }

    /// Describes what a kernel uses and the device does not support; `None` if there is nothing. A
    /// kernel that uses it cannot be compiled.
    fn unsupported(&self, kernel: &Linear) -> Option<String> {
        self.target().find_unsupported(kernel)
    }

    /// A one-line description for people: version and special features.
    fn describe(&self) -> String;

    /// Returns the text of the machine code of a kernel, which is compiled again for it; `None` if
    /// the device does not show it.
    ///
    /// # Errors
    /// Those of [`compile`](Device::compile).
    fn assembly(&self, kernel: &BoundedLinear) -> Result<Option<String>, Error> {
        let _ = kernel;
        Ok(None)
    }

    /// Waits until all launches are done; a device may run them after `Executable::run` returns.
    ///
    /// # Errors
    /// The error of a launch.
    fn wait(&self) -> Result<(), Error> {
        Ok(())
    }

    /// The maximal number of compiled kernels in the cache of an engine.
    fn kernel_cache_capacity(&self) -> usize {
        4096
    }

    /// Runs a kernel, waits for it and returns the time. A device with a clock of its own (`cuda`
    /// and `opencl`) measures from the kernel's start to its end. For the others the time is that
    /// of the host, and includes the launch, the wait and pending copies.
    ///
    /// # Errors
    /// The error of the launch.
    fn time(&self, executable: &dyn Executable, memories: &[&Memory]) -> Result<Duration, Error> {
        let start = Instant::now();
        if let Some(time) = executable.run_timed(memories)? {
            return Ok(time);
        }
        self.wait()?;
        Ok(start.elapsed())
    }
}

/// The uops of kernels, whose accesses are within bounds.
///
/// # Errors
/// [`Error::Unproven`] for a kernel that is marked as doubtful and cannot be proven.
pub(crate) fn bounded_linears<'a>(kernels: &[&'a BoundedLinear]) -> Result<Vec<&'a Linear>, Error> {
    let linear = |kernel: &&'a BoundedLinear| {
        let linear: &'a Linear = kernel;
        kernel.ensure().map_err(|why| Error::Unproven { kernel: linear.name.clone(), why })?;
        Ok(linear)
    };
    kernels.iter().map(linear).collect()
}

/// A compiled kernel.
pub trait Executable: Send + Sync {
    /// Runs the kernel on `memories`, given by slot. Memories that it writes are locked exclusively
    /// during the run, those that it only reads are locked against writers.
    ///
    /// The checked interpreter reports indices out of bounds. Compiled devices trust the kernel:
    /// its indices are proven to be in bounds, or that is the promise of lowering
    /// ([`BoundedLinear`]), which the checked interpreter tests.
    ///
    /// # Errors
    /// [`Error::Arguments`] if dtypes or sizes do not fit or a memory that is written is given for
    /// two slots; the errors that the checked interpreter finds.
    fn run(&self, memories: &[&Memory]) -> Result<(), Error>;

    /// Runs the kernel as [`run`](Executable::run) does. If the device has a clock of its own, it
    /// waits for the kernel and returns its time; otherwise it returns `None`, and
    /// [`Device::time`] uses the host's clock.
    ///
    /// # Errors
    /// As `run`.
    fn run_timed(&self, memories: &[&Memory]) -> Result<Option<Duration>, Error> {
        self.run(memories).map(|()| None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT: Duration = Duration::from_millis(20);

    /// A device whose launches are done when they are waited for.
    struct Late;

    /// An executable, and its time by the device's clock.
    struct Launched(Option<Duration>);

    impl Device for Late {
        fn name(&self) -> &'static str {
            "late"
        }

        fn compile(&self, _: &[&BoundedLinear]) -> Result<Vec<Arc<dyn Executable>>, Error> {
            Ok(Vec::new())
        }

        fn target(&self) -> Target {
            Target::PLAIN
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
    fn time_is_by_the_device_clock_or_includes_the_wait() {
        assert!(WAIT <= Late.time(&Launched(None), &[]).unwrap());
        let device_time = Duration::from_nanos(7);
        assert_eq!(Late.time(&Launched(Some(device_time)), &[]).unwrap(), device_time);
    }
}
