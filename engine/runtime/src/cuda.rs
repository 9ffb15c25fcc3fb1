//! The device `cuda`: kernels in CUDA C, compiled by NVRTC and run by NVIDIA's driver. Both are
//! loaded at run time; neither is needed to build.
//!
//! Global ranges are blocks and local ranges threads; the innermost range is x. Memories have a
//! copy on the GPU (see `remote`), allocated from the driver's pool, which keeps freed memory.
//! Everything runs in order in one stream, and the host waits only for copies. Kernels are timed by
//! events before and after them in the stream. `GRADIFF_CUDA_DEVICE` is the index of the GPU; the
//! default is the first.

mod api;
#[cfg(test)]
mod tests;

use std::ffi::{CString, c_void};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use gradiff_graph::{BoundedLinear, DType, Groups, Linear, Target};
use smallvec::SmallVec;

use crate::device::bounded_linears;
use crate::launch::{Launch, Texts};
use crate::memory::{ALIGNMENT, Memory, Signature};
use crate::remote::{self, RemoteBuffer, RemoteDevice};
use crate::{Device, Error, Executable, environment};
use api::{Driver, Handle, Nvrtc};

/// The maximal number of kernels in a module.
const KERNELS_PER_MODULE: usize = 64;

/// The GPU.
pub(crate) struct Cuda {
    opened: Arc<Opened>,
    nvrtc: Nvrtc,
    /// 90 for compute capability 9.0.
    arch: i32,
    include: Vec<String>,
    description: String,
    groups: Groups,
}

/// The open device, shared by kernels and buffers.
struct Opened {
    driver: Driver,
    context: Handle,
    stream: Handle,
}

// SAFETY: any thread may use the driver after making the context current, which `enter` does before
// each use.
unsafe impl Send for Opened {}
// SAFETY: as above.
unsafe impl Sync for Opened {}

/// Constants of the driver API.
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
        // SAFETY: the pointer is to a local integer.
        driver.check("cuDeviceGetCount", unsafe { (driver.device_count)(&mut count) })?;
        let number = environment::selected_device("GRADIFF_CUDA_DEVICE", count.max(0) as usize)
            .map_err(unavailable)?
            .unwrap_or(0) as i32;
        if count <= 0 {
            return Err(unavailable("there is no GPU".into()));
        }
        let mut device = 0;
        // SAFETY: the pointer is to a local integer.
        driver.check("cuDeviceGet", unsafe { (driver.device)(&mut device, number) })?;
        let opened = Opened::new(driver, device)?;
        Ok(Cuda::new(opened, nvrtc, device))
    }

    fn new(opened: Opened, nvrtc: Nvrtc, device: i32) -> Cuda {
        let driver = &opened.driver;
        let attribute = |number| driver.attribute(device, number).max(0) as i64;
        let per_dimension = |first| [0, 1, 2].map(|dimension| attribute(first + dimension));
        let groups = Groups {
            threads: attribute(number::MAX_THREADS_PER_BLOCK),
            sizes: per_dimension(number::MAX_BLOCK_DIM_X),
            counts: per_dimension(number::MAX_GRID_DIM_X),
            local_bytes: attribute(number::MAX_SHARED_MEMORY_PER_BLOCK),
            element_bytes: 1,
        };
        let groups = groups.capped();
        let (major, minor) = (
            attribute(number::COMPUTE_CAPABILITY_MAJOR),
            attribute(number::COMPUTE_CAPABILITY_MINOR),
        );
        let mut version = 0;
        let mut name = [0u8; 128];
        // SAFETY: the pointers are to a local integer and to a buffer of the given length.
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
        Cuda { opened: Arc::new(opened), nvrtc, arch, include: include(), description, groups }
    }
}

/// The include path with the headers of 16-bit floats.
fn include() -> Vec<String> {
    let chosen = ["CUDA_PATH", "CUDA_HOME"].into_iter().filter_map(|name| std::env::var(name).ok());
    let roots = chosen.chain(["/usr/local/cuda".to_string(), "/usr".to_string()]);
    let folders = roots.map(|root| format!("{root}/include"));
    folders.filter(|folder| Path::new(folder).join("cuda_fp16.h").exists()).take(1).collect()
}

impl Opened {
    fn new(driver: Driver, device: i32) -> Result<Opened, Error> {
        let [mut context, mut stream, mut pool] = [std::ptr::null_mut(); 3];
        // SAFETY: the pointer is to a local handle; the device comes from the driver.
        let code = unsafe { (driver.retain_context)(&mut context, device) };
        driver.check("cuDevicePrimaryCtxRetain", code)?;
        // SAFETY: the context was just retained.
        driver.check("cuCtxSetCurrent", unsafe { (driver.set_context)(context) })?;
        // SAFETY: the pointer is to a local handle.
        let code = unsafe { (driver.stream_create)(&mut stream, number::STREAM_NON_BLOCKING) };
        driver.check("cuStreamCreate", code)?;
        // SAFETY: the pointers are to a local handle and to a 64-bit integer, as the attribute
        // requires.
        unsafe {
            if (driver.device_pool)(&mut pool, device) == 0 {
                let mut threshold = u64::MAX;
                let value = (&raw mut threshold).cast::<c_void>();
                (driver.pool_set)(pool, number::POOL_RELEASE_THRESHOLD, value);
            }
        }
        Ok(Opened { driver, context, stream })
    }

    /// Makes the context current in this thread and returns the driver.
    fn enter(&self) -> Result<&Driver, Error> {
        // SAFETY: the context lives as long as the process.
        let code = unsafe { (self.driver.set_context)(self.context) };
        self.driver.check("cuCtxSetCurrent", code)?;
        Ok(&self.driver)
    }

    /// Allocates bytes on the GPU; their content is unspecified.
    fn allocate(&self, size_bytes: usize) -> Result<u64, Error> {
        let driver = self.enter()?;
        let mut address = 0;
        // SAFETY: the pointer is to a local address.
        let code = unsafe { (driver.allocate)(&mut address, size_bytes, self.stream) };
        driver.check("cuMemAllocAsync", code)?;
        Ok(address)
    }

    /// Waits until the stream is idle.
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
        // A kernel of the module may still run. An error was reported by an earlier call.
        if self.opened.wait().is_ok() {
            // SAFETY: this driver created the module, and this is its only owner.
            unsafe { (self.opened.driver.module_unload)(self.handle) };
        }
    }
}

impl Module {
    fn new(opened: &Arc<Opened>, code: &[u8]) -> Result<Module, Error> {
        let driver = opened.enter()?;
        // PTX must be terminated by 0; after machine code it is harmless.
        let code = [code, b"\0"].concat();
        let mut handle = std::ptr::null_mut();
        // SAFETY: the pointers are to a local handle and to code of NVRTC.
        let result = unsafe { (driver.module_load)(&mut handle, code.as_ptr().cast()) };
        driver.check("cuModuleLoadData", result)?;
        Ok(Module { handle, opened: opened.clone() })
    }

    fn function(&self, name: &str) -> Result<Handle, Error> {
        let driver = self.opened.enter()?;
        let name = CString::new(name).unwrap_or_default();
        let mut function = std::ptr::null_mut();
        // SAFETY: the pointer is to a local handle; the name is terminated by 0.
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

// SAFETY: as of `Opened`; `module` keeps the function loaded.
unsafe impl Send for Kernel {}
// SAFETY: as above.
unsafe impl Sync for Kernel {}

impl Device for Cuda {
    fn name(&self) -> &'static str {
        "cuda"
    }

    fn compile(&self, kernels: &[&BoundedLinear]) -> Result<Vec<Arc<dyn Executable>>, Error> {
        let kernels = bounded_linears(kernels)?;
        let target = self.target();
        let launches: Vec<Launch> = kernels
            .iter()
            .map(|kernel| Launch::new("cuda", &target, kernel))
            .collect::<Result<_, _>>()?;
        let texts = Texts::new("cuda", "cuda", &kernels)?;
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

    fn target(&self) -> Target {
        let name = if self.arch < 80 { "cuda-old" } else { "cuda" };
        Target { groups: Some(self.groups), ..Target::of(name) }
    }

    fn wait(&self) -> Result<(), Error> {
        self.opened.wait()
    }
}

impl Kernel {
    /// Enqueues a launch in the stream.
    fn launch(&self, driver: &Driver, handles: &[usize]) -> Result<(), Error> {
        let mut addresses: SmallVec<[u64; 6]> =
            handles.iter().map(|handle| *handle as u64).collect();
        let mut arguments: SmallVec<[*mut c_void; 6]> =
            addresses.iter_mut().map(|address| (&raw mut *address).cast()).collect();
        let Launch { groups, group } = &self.launch;
        let [x, y, z] = groups.map(|count| count as u32);
        let [threads_x, threads_y, threads_z] = group.map(|count| count as u32);
        // SAFETY: there is an argument for each parameter, an address of at least as many elements
        // as the kernel declares; it accesses only elements of its parameters (the promise of
        // lowering, see `Executable::run`). The driver copies the arguments.
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
            // The kernel was launched even if the events fail.
            time = end.record(opened.stream).and_then(|()| end.since(&start));
            Ok(())
        })?;
        time.map(Some)
    }
}

/// A point in the stream, whose time the GPU records.
struct Event<'a> {
    driver: &'a Driver,
    handle: Handle,
}

impl Drop for Event<'_> {
    fn drop(&mut self) {
        // SAFETY: this driver created the event, and this is its only owner. Pending records still
        // complete.
        unsafe { (self.driver.event_destroy)(self.handle) };
    }
}

impl Event<'_> {
    /// Creates an event that is not recorded yet.
    fn new(driver: &Driver) -> Result<Event<'_>, Error> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: the pointer is to a local handle; the flags 0 mean an event with a time.
        driver.check("cuEventCreate", unsafe { (driver.event_create)(&mut handle, 0) })?;
        Ok(Event { driver, handle })
    }

    /// Records the event after everything in the stream.
    fn record(&self, stream: Handle) -> Result<(), Error> {
        // SAFETY: the event is alive; the stream lives as long as the process.
        let code = unsafe { (self.driver.event_record)(self.handle, stream) };
        self.driver.check("cuEventRecord", code)
    }

    /// Waits for the event and returns the time since an earlier one.
    fn since(&self, start: &Event<'_>) -> Result<Duration, Error> {
        const ELAPSED: &str = "cuEventElapsedTime";
        // SAFETY: the event is alive and was recorded.
        let code = unsafe { (self.driver.event_synchronize)(self.handle) };
        self.driver.check("cuEventSynchronize", code)?;
        let mut millis = 0f32;
        // SAFETY: the pointer is to a local float; both events are complete, since `start` precedes
        // this one in the stream.
        let code = unsafe { (self.driver.event_elapsed)(&mut millis, start.handle, self.handle) };
        self.driver.check(ELAPSED, code)?;
        Duration::try_from_secs_f64(f64::from(millis) / 1e3).map_err(|_| Error::Driver {
            device: "cuda",
            call: ELAPSED,
            why: format!("it reports that a kernel took {millis} ms"),
        })
    }
}

/// The allocator of device memory.
struct OnDevice<'a>(&'a Arc<Opened>);

impl RemoteDevice for OnDevice<'_> {
    fn id(&self) -> usize {
        Arc::as_ptr(self.0).addr()
    }

    fn allocate(&self, _: DType, size_bytes: usize) -> Result<Box<dyn RemoteBuffer>, Error> {
        let address = self.0.allocate(size_bytes)?;
        let allocation = Arc::new(Allocation { address, opened: self.0.clone() });
        Ok(Box::new(Buffer { allocation, offset_bytes: 0, size_bytes }))
    }
}

/// An allocation on the GPU.
struct Allocation {
    address: u64,
    opened: Arc<Opened>,
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if let Ok(driver) = self.opened.enter() {
            // SAFETY: this driver allocated it, and all uses precede the free in the stream.
            unsafe { (driver.free)(self.address, self.opened.stream) };
        }
    }
}

/// An allocation or a contiguous part of one.
struct Buffer {
    allocation: Arc<Allocation>,
    offset_bytes: usize,
    size_bytes: usize,
}

impl Buffer {
    fn address(&self) -> u64 {
        self.allocation.address + self.offset_bytes as u64
    }
}

impl RemoteBuffer for Buffer {
    fn device_id(&self) -> usize {
        Arc::as_ptr(&self.allocation.opened).addr()
    }

    fn handle(&self) -> usize {
        self.address() as usize
    }

    fn upload(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let opened = &self.allocation.opened;
        let driver = opened.enter()?;
        let from = bytes.as_ptr().cast();
        // SAFETY: the buffer has as many bytes as its memory; `wait` keeps `bytes` alive until the
        // copy is done.
        let code = unsafe { (driver.upload)(self.address(), from, bytes.len(), opened.stream) };
        driver.check("cuMemcpyHtoDAsync", code)?;
        opened.wait()
    }

    fn download(&self, bytes: &mut [u8]) -> Result<(), Error> {
        let opened = &self.allocation.opened;
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
    ) -> Result<Option<Box<dyn RemoteBuffer>>, Error> {
        let (allocation, offset_bytes) =
            (self.allocation.clone(), self.offset_bytes + offset_bytes);
        Ok(match offset_bytes.is_multiple_of(ALIGNMENT) {
            true => Some(Box::new(Buffer { allocation, offset_bytes, size_bytes })),
            false => None,
        })
    }

    fn duplicate(&self) -> Result<Box<dyn RemoteBuffer>, Error> {
        let opened = &self.allocation.opened;
        let copy = OnDevice(opened).allocate(DType::U8, self.size_bytes)?;
        let driver = opened.enter()?;
        let (to, from, size) = (copy.handle() as u64, self.address(), self.size_bytes);
        // SAFETY: both buffers have this many bytes.
        let code = unsafe { (driver.copy)(to, from, size, opened.stream) };
        driver.check("cuMemcpyDtoDAsync", code)?;
        Ok(copy)
    }
}
