//! Kernels as CUDA C, compiled by NVRTC and run by NVIDIA's driver; both are found when the
//! program runs, neither is needed to build.
//!
//! Global ranges number the groups and local ranges the threads of a group, the innermost range
//! as x. Memories have a copy on the GPU (see `remote`), taken from the driver's pool, which keeps
//! what is freed. All is done in one stream, in order, and only copies to the host are waited
//! for. A kernel is timed by events before and behind it in the stream, of which the GPU notes the
//! times. `GRADIFF_CUDA_DEVICE` is the number of the GPU, else the first one is taken.

mod api;
#[cfg(test)]
mod tests;

use std::ffi::{CString, c_void};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use gradiff_graph::{BoundedLinear, DType, Linear};
use smallvec::SmallVec;

use crate::device::plain;
use crate::device::{GroupLimits, Limits};
use crate::launch::{Launch, Texts};
use crate::memory::{ALIGNMENT, Memory, Signature};
use crate::remote::{self, Place};
use crate::{Device, Error, Executable, environment};
use api::{Driver, Handle, Nvrtc};

/// How many kernels stand in one module at most.
const KERNELS_PER_MODULE: usize = 64;

/// The GPU.
pub(crate) struct Cuda {
    opened: Arc<Opened>,
    nvrtc: Nvrtc,
    /// 90 for compute capability 9.0.
    arch: i32,
    include: Vec<String>,
    description: String,
    limits: GroupLimits,
}

/// What kernels and copies hold on to.
struct Opened {
    driver: Driver,
    context: Handle,
    stream: Handle,
}

// SAFETY: the driver may be used by any thread that has made the context current, which `enter`
// does before each use.
unsafe impl Send for Opened {}
// SAFETY: as above.
unsafe impl Sync for Opened {}

/// Numbers of the driver.
mod number {
    pub(super) const MAX_THREADS_PER_BLOCK: i32 = 1;
    pub(super) const MAX_BLOCK_DIM_X: i32 = 2;
    pub(super) const MAX_GRID_DIM_X: i32 = 5;
    pub(super) const MAX_SHARED_MEMORY_PER_BLOCK: i32 = 8;
    pub(super) const COMPUTE_CAPABILITY_MAJOR: i32 = 75;
    pub(super) const COMPUTE_CAPABILITY_MINOR: i32 = 76;
    pub(super) const POOL_RELEASE_THRESHOLD: i32 = 4;
    pub(super) const STREAM_NON_BLOCKING: u32 = 1;
}

impl Cuda {
    /// Finds the driver, a GPU and the compiler.
    pub(crate) fn open() -> Result<Cuda, Error> {
        let unavailable = |why: String| Error::Unavailable { device: "cuda", why };
        let driver = Driver::load().map_err(unavailable)?;
        let nvrtc = Nvrtc::load().map_err(unavailable)?;
        let mut count = 0;
        // SAFETY: a place for a number.
        driver.check("cuDeviceGetCount", unsafe { (driver.device_count)(&mut count) })?;
        let number = environment::chosen("GRADIFF_CUDA_DEVICE", count.max(0) as usize)
            .map_err(unavailable)?
            .unwrap_or(0) as i32;
        if count <= 0 {
            return Err(unavailable("there is no GPU".into()));
        }
        let mut device = 0;
        // SAFETY: a place for a number.
        driver.check("cuDeviceGet", unsafe { (driver.device)(&mut device, number) })?;
        let opened = Opened::new(driver, device)?;
        Ok(Cuda::of(opened, nvrtc, device))
    }

    fn of(opened: Opened, nvrtc: Nvrtc, device: i32) -> Cuda {
        let driver = &opened.driver;
        let attribute = |number| driver.attribute(device, number).max(0) as u64;
        let three = |first| [0, 1, 2].map(|dimension| attribute(first + dimension));
        let limits = GroupLimits {
            threads_max: attribute(number::MAX_THREADS_PER_BLOCK),
            sizes_max: three(number::MAX_BLOCK_DIM_X),
            groups_max: three(number::MAX_GRID_DIM_X),
            local_bytes: attribute(number::MAX_SHARED_MEMORY_PER_BLOCK),
        };
        let (major, minor) = (
            attribute(number::COMPUTE_CAPABILITY_MAJOR),
            attribute(number::COMPUTE_CAPABILITY_MINOR),
        );
        let mut version = 0;
        let mut name = [0u8; 128];
        // SAFETY: a place for a number, and room for as much text as is said.
        unsafe {
            (driver.driver_version)(&mut version);
            (driver.device_name)(name.as_mut_ptr().cast(), name.len() as i32 - 1, device);
        }
        let name = String::from_utf8_lossy(&name);
        let description = format!(
            "{}, compute capability {major}.{minor}, driver for CUDA {}.{}, NVRTC {}",
            name.trim_end_matches('\0'),
            version / 1000,
            version % 1000 / 10,
            nvrtc.version_text()
        );
        let arch = (10 * major + minor) as i32;
        Cuda { opened: Arc::new(opened), nvrtc, arch, include: include(), description, limits }
    }
}

/// Where the headers of 16-bit floats are.
fn include() -> Vec<String> {
    let chosen = ["CUDA_PATH", "CUDA_HOME"].into_iter().filter_map(|name| std::env::var(name).ok());
    let roots = chosen.chain(["/usr/local/cuda".to_string(), "/usr".to_string()]);
    let folders = roots.map(|root| format!("{root}/include"));
    folders.filter(|folder| Path::new(folder).join("cuda_fp16.h").exists()).take(1).collect()
}

impl Opened {
    fn new(driver: Driver, device: i32) -> Result<Opened, Error> {
        let [mut context, mut stream, mut pool] = [std::ptr::null_mut(); 3];
        // SAFETY: a place for a handle; the device is one that the driver gave.
        let code = unsafe { (driver.retain_context)(&mut context, device) };
        driver.check("cuDevicePrimaryCtxRetain", code)?;
        // SAFETY: the context was just given.
        driver.check("cuCtxSetCurrent", unsafe { (driver.set_context)(context) })?;
        // SAFETY: a place for a handle.
        let code = unsafe { (driver.stream_create)(&mut stream, number::STREAM_NON_BLOCKING) };
        driver.check("cuStreamCreate", code)?;
        // SAFETY: a place for a handle; then the address of a number of 64 bits, as is asked for.
        unsafe {
            if (driver.device_pool)(&mut pool, device) == 0 {
                let mut keep = u64::MAX;
                let value = (&raw mut keep).cast::<c_void>();
                (driver.pool_set)(pool, number::POOL_RELEASE_THRESHOLD, value);
            }
        }
        Ok(Opened { driver, context, stream })
    }

    /// The driver, for use by this thread.
    fn enter(&self) -> Result<&Driver, Error> {
        // SAFETY: the context lives as long as the process.
        let code = unsafe { (self.driver.set_context)(self.context) };
        self.driver.check("cuCtxSetCurrent", code)?;
        Ok(&self.driver)
    }

    /// Bytes on the GPU; what they are is open.
    fn allocate(&self, size_bytes: usize) -> Result<u64, Error> {
        let driver = self.enter()?;
        let mut address = 0;
        // SAFETY: a place for an address.
        let code = unsafe { (driver.allocate)(&mut address, size_bytes, self.stream) };
        driver.check("cuMemAllocAsync", code)?;
        Ok(address)
    }

    /// Waits until all is done.
    fn wait(&self) -> Result<(), Error> {
        let driver = self.enter()?;
        // SAFETY: the stream lives as long as the process.
        let code = unsafe { (driver.stream_synchronize)(self.stream) };
        driver.check("cuStreamSynchronize", code)
    }
}

/// Compiled kernels on the GPU.
struct Module {
    handle: Handle,
    opened: Arc<Opened>,
}

// SAFETY: as of `Opened`.
unsafe impl Send for Module {}
// SAFETY: as of `Opened`.
unsafe impl Sync for Module {}

impl Drop for Module {
    fn drop(&mut self) {
        // A kernel of it may still run. What fails here has failed before, and was said then.
        if self.opened.wait().is_ok() {
            // SAFETY: it was made by this driver and nobody else has it.
            unsafe { (self.opened.driver.module_unload)(self.handle) };
        }
    }
}

impl Module {
    fn new(opened: &Arc<Opened>, code: &[u8]) -> Result<Module, Error> {
        let driver = opened.enter()?;
        // Text must end with 0; behind machine code it does no harm.
        let code = [code, b"\0"].concat();
        let mut handle = std::ptr::null_mut();
        // SAFETY: a place for a handle, and code that NVRTC made.
        let result = unsafe { (driver.module_load)(&mut handle, code.as_ptr().cast()) };
        driver.check("cuModuleLoadData", result)?;
        Ok(Module { handle, opened: opened.clone() })
    }

    fn function(&self, name: &str) -> Result<Handle, Error> {
        let driver = self.opened.enter()?;
        let name = CString::new(name).unwrap_or_default();
        let mut function = std::ptr::null_mut();
        // SAFETY: a place for a handle; the name ends with 0.
        let code = unsafe { (driver.module_function)(&mut function, self.handle, name.as_ptr()) };
        driver.check("cuModuleGetFunction", code)?;
        Ok(function)
    }
}

struct Kernel {
    signature: Signature,
    launch: Launch,
    function: Handle,
    module: Arc<Module>,
}

// SAFETY: as of `Opened`; `module` keeps the function.
unsafe impl Send for Kernel {}
// SAFETY: as above.
unsafe impl Sync for Kernel {}

impl Device for Cuda {
    fn name(&self) -> &'static str {
        "cuda"
    }

    fn compile(&self, kernels: &[&BoundedLinear]) -> Result<Vec<Arc<dyn Executable>>, Error> {
        let kernels = plain(kernels)?;
        let texts = Texts::new("cuda", "cuda", &kernels)?;
        let launches: Vec<Launch> = kernels
            .iter()
            .map(|kernel| Launch::new("cuda", &self.limits, 1, kernel))
            .collect::<Result<_, _>>()?;
        let module = |part: &[(String, String)]| {
            let (text, kernels) = texts.file(part);
            let code = self.nvrtc.code(&text, self.arch, &self.include);
            let code = code.map_err(|stderr| Error::CompilerFailed {
                compiler: format!("NVRTC {}", self.nvrtc.version_text()),
                kernels,
                source_path: None,
                stderr,
            })?;
            Module::new(&self.opened, &code).map(Arc::new)
        };
        let modules: Vec<Arc<Module>> =
            texts.named.chunks(KERNELS_PER_MODULE).map(module).collect::<Result<_, _>>()?;
        let make = |((kernel, launch), number): ((&&Linear, Launch), &usize)| {
            let module = modules[number / KERNELS_PER_MODULE].clone();
            let function = module.function(&texts.named[*number].0)?;
            let signature = Signature::of(kernel)?;
            let kernel: Arc<dyn Executable> =
                Arc::new(Kernel { signature, launch, function, module });
            Ok(kernel)
        };
        kernels.iter().zip(launches).zip(&texts.number_of).map(make).collect()
    }

    fn describe(&self) -> String {
        self.description.clone()
    }

    fn target(&self) -> &'static str {
        if self.arch < 80 { "cuda-old" } else { "cuda" }
    }

    fn limits(&self) -> Limits {
        Limits { groups: Some(self.limits), vector_bytes: 16, thread_count: 1 }
    }

    fn wait(&self) -> Result<(), Error> {
        self.opened.wait()
    }
}

impl Kernel {
    /// Puts a launch into the stream.
    fn launch(&self, driver: &Driver, handles: &[usize]) -> Result<(), Error> {
        let mut addresses: SmallVec<[u64; 6]> =
            handles.iter().map(|handle| *handle as u64).collect();
        let mut arguments: SmallVec<[*mut c_void; 6]> =
            addresses.iter_mut().map(|address| (&raw mut *address).cast()).collect();
        let Launch { groups, group } = &self.launch;
        let [x, y, z] = groups.map(|count| count as u32);
        let [threads_x, threads_y, threads_z] = group.map(|count| count as u32);
        // SAFETY: as many arguments as the kernel has parameters, all of them addresses of at
        // least as many elements as it declares; it touches elements of its parameters only
        // (the promise of lowering, see `Executable::run`). The driver copies the arguments.
        let code = unsafe {
            (driver.launch)(
                self.function,
                x,
                y,
                z,
                threads_x,
                threads_y,
                threads_z,
                0,
                self.module.opened.stream,
                arguments.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        };
        driver.check("cuLaunchKernel", code)
    }
}

impl Executable for Kernel {
    fn run(&self, memories: &[&Memory]) -> Result<(), Error> {
        let opened = &self.module.opened;
        remote::run_on(&OnDevice(opened), &self.signature, memories, |handles| {
            match self.launch.is_empty() {
                true => Ok(()),
                false => self.launch(opened.enter()?, handles),
            }
        })
    }

    fn run_timed(&self, memories: &[&Memory]) -> Result<Option<Duration>, Error> {
        let opened = &self.module.opened;
        let mut time = Ok(Duration::ZERO);
        remote::run_on(&OnDevice(opened), &self.signature, memories, |handles| {
            if self.launch.is_empty() {
                return Ok(());
            }
            let driver = opened.enter()?;
            let [start, end] = [Event::new(driver)?, Event::new(driver)?];
            start.record(opened.stream)?;
            self.launch(driver, handles)?;
            // Whatever the events say, the kernel was launched.
            time = end.record(opened.stream).and_then(|()| end.since(&start));
            Ok(())
        })?;
        time.map(Some)
    }
}

/// A point in the stream. The GPU notes the time when it comes to it.
struct Event<'a> {
    driver: &'a Driver,
    handle: Handle,
}

impl Drop for Event<'_> {
    fn drop(&mut self) {
        // SAFETY: it was made by this driver and nobody else has it. What was recorded and has not
        // come yet comes nevertheless.
        unsafe { (self.driver.event_destroy)(self.handle) };
    }
}

impl Event<'_> {
    /// An event that was not recorded.
    fn new(driver: &Driver) -> Result<Event<'_>, Error> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: a place for a handle; 0 asks for an event with a time.
        driver.check("cuEventCreate", unsafe { (driver.event_create)(&mut handle, 0) })?;
        Ok(Event { driver, handle })
    }

    /// Puts it behind all that is in the stream.
    fn record(&self, stream: Handle) -> Result<(), Error> {
        // SAFETY: the event lives; the stream lives as long as the process.
        let code = unsafe { (self.driver.event_record)(self.handle, stream) };
        self.driver.check("cuEventRecord", code)
    }

    /// Waits for it, and says how much later than another one it came.
    fn since(&self, start: &Event<'_>) -> Result<Duration, Error> {
        const ELAPSED: &str = "cuEventElapsedTime";
        // SAFETY: the event lives and was recorded.
        let code = unsafe { (self.driver.event_synchronize)(self.handle) };
        self.driver.check("cuEventSynchronize", code)?;
        let mut millis = 0f32;
        // SAFETY: a place for a number; both events have come, as the other one stands before.
        let code = unsafe { (self.driver.event_elapsed)(&mut millis, start.handle, self.handle) };
        self.driver.check(ELAPSED, code)?;
        Duration::try_from_secs_f64(f64::from(millis) / 1e3).map_err(|_| Error::Driver {
            device: "cuda",
            call: ELAPSED,
            why: format!("it says that a kernel took {millis} ms"),
        })
    }
}

/// The GPU as a place of memory.
struct OnDevice<'a>(&'a Arc<Opened>);

impl Place for OnDevice<'_> {
    fn number(&self) -> usize {
        Arc::as_ptr(self.0).addr()
    }

    fn allocate(&self, _: DType, size_bytes: usize) -> Result<Box<dyn remote::Copy>, Error> {
        let address = self.0.allocate(size_bytes)?;
        let whole = Arc::new(Whole { address, opened: self.0.clone() });
        Ok(Box::new(Block { whole, offset_bytes: 0, size_bytes }))
    }
}

/// Bytes on the GPU.
struct Whole {
    address: u64,
    opened: Arc<Opened>,
}

impl Drop for Whole {
    fn drop(&mut self) {
        if let Ok(driver) = self.opened.enter() {
            // SAFETY: it was given by this driver, and what uses it stands before in the stream.
            unsafe { (driver.free)(self.address, self.opened.stream) };
        }
    }
}

/// Such bytes, or some of them in a row.
struct Block {
    whole: Arc<Whole>,
    offset_bytes: usize,
    size_bytes: usize,
}

impl Block {
    fn address(&self) -> u64 {
        self.whole.address + self.offset_bytes as u64
    }
}

impl remote::Copy for Block {
    fn place(&self) -> usize {
        Arc::as_ptr(&self.whole.opened).addr()
    }

    fn handle(&self) -> usize {
        self.address() as usize
    }

    fn upload(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let opened = &self.whole.opened;
        let driver = opened.enter()?;
        let from = bytes.as_ptr().cast();
        // SAFETY: the block holds as many bytes as its memory; `wait` stands before their end.
        let code = unsafe { (driver.upload)(self.address(), from, bytes.len(), opened.stream) };
        driver.check("cuMemcpyHtoDAsync", code)?;
        opened.wait()
    }

    fn download(&self, bytes: &mut [u8]) -> Result<(), Error> {
        let opened = &self.whole.opened;
        let driver = opened.enter()?;
        let to = bytes.as_mut_ptr().cast();
        // SAFETY: as above.
        let code = unsafe { (driver.download)(to, self.address(), bytes.len(), opened.stream) };
        driver.check("cuMemcpyDtoHAsync", code)?;
        opened.wait()
    }

    fn part(
        &self,
        offset_bytes: usize,
        size_bytes: usize,
    ) -> Result<Option<Box<dyn remote::Copy>>, Error> {
        let (whole, offset_bytes) = (self.whole.clone(), self.offset_bytes + offset_bytes);
        Ok(match offset_bytes.is_multiple_of(ALIGNMENT) {
            true => Some(Box::new(Block { whole, offset_bytes, size_bytes })),
            false => None,
        })
    }

    fn duplicate(&self) -> Result<Box<dyn remote::Copy>, Error> {
        let opened = &self.whole.opened;
        let made = OnDevice(opened).allocate(DType::U8, self.size_bytes)?;
        let driver = opened.enter()?;
        let (to, from, size) = (made.handle() as u64, self.address(), self.size_bytes);
        // SAFETY: both hold so many bytes.
        let code = unsafe { (driver.copy)(to, from, size, opened.stream) };
        driver.check("cuMemcpyDtoDAsync", code)?;
        Ok(made)
    }
}
