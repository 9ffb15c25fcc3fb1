//! The device `cuda`: kernels in CUDA C, compiled by NVRTC and run by NVIDIA's driver. Both are
//! called through cudarc, which loads them at run time; neither is needed to build.
//!
//! Global ranges are blocks and local ranges threads; the innermost range is x. Memories have a
//! copy on the GPU (see `remote`), allocated from the driver's pool, which keeps freed memory.
//! Everything runs in order in one stream, and the host waits only for copies. Kernels are timed by
//! events before and after them in the stream. `GRADIFF_CUDA_DEVICE` is the index of the GPU; the
//! default is the first.

mod driver;
mod nvrtc;
use std::ffi::{CString, c_void};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cudarc::driver::result;
use cudarc::driver::sys::{
    CUcontext, CUdevice, CUdevice_attribute, CUevent, CUevent_flags, CUfunction,
    CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
    CUmemPool_attribute, CUmodule, CUstream,
};
use gradiff_graph::target::Groups;
use gradiff_graph::{BoundedLinear, DType, Linear, Target};
use gradiff_render::Code;
use smallvec::SmallVec;

use crate::data::ALIGNMENT;
use crate::device::bounded_linears;
use crate::launch::{Launch, Texts};
use crate::locked;
use crate::memory::Memory;
use crate::remote::{RemoteBuffer, RemoteDevice};
use crate::signature::Signature;
use crate::{Device, Error, Executable, environment};
use driver::check;

/// The maximal number of kernels in a module.
const KERNELS_PER_MODULE: usize = 64;

/// The GPU.
pub(crate) struct Cuda {
    opened: Arc<Opened>,
    /// 90 for compute capability 9.0.
    arch: i32,
    include: Vec<String>,
    description: String,
    groups: Groups,
}

/// The open device, shared by kernels and buffers.
struct Opened {
    context: CUcontext,
    stream: CUstream,
}

// SAFETY: any thread may use the driver after making the context current, which `enter` does before
// each use.
unsafe impl Send for Opened {}
// SAFETY: as above.
unsafe impl Sync for Opened {}

impl Cuda {
    /// Finds the driver, a GPU and the compiler.
    pub(crate) fn open() -> Result<Cuda, Error> {
        let unavailable = |why: String| Error::Unavailable { device: "cuda", why };
        let version = driver::load().map_err(unavailable)?;
        nvrtc::load().map_err(unavailable)?;
        let count = check("cuDeviceGetCount", result::device::get_count())?;
        let number = environment::selected_device("GRADIFF_CUDA_DEVICE", count.max(0) as usize)
            .map_err(unavailable)?
            .unwrap_or(0) as i32;
        if count <= 0 {
            return Err(unavailable("there is no GPU".into()));
        }
        let device = check("cuDeviceGet", result::device::get(number))?;
        Ok(Cuda::new(Opened::new(device)?, version, device))
    }

    fn new(opened: Opened, version: i32, device: CUdevice) -> Cuda {
        use CUdevice_attribute::*;
        let attribute = |attribute| {
            // SAFETY: the device comes from the driver.
            let value = unsafe { result::device::get_attribute(device, attribute) };
            i64::from(value.unwrap_or(0).max(0))
        };
        let groups = Groups {
            threads: attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
            sizes: [
                CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X,
                CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y,
                CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z,
            ]
            .map(attribute),
            counts: [
                CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X,
                CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y,
                CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z,
            ]
            .map(attribute),
            local_bytes: attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK)
                .max(attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)),
            element_bytes: 1,
        };
        let [major, minor] = [
            CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
            CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
        ]
        .map(attribute);
        let description = format!(
            "{}, compute capability {major}.{minor}, driver for CUDA {}, NVRTC {}",
            result::device::get_name(device).unwrap_or_default(),
            driver::version_text(version),
            nvrtc::version_text()
        );
        let arch = (10 * major + minor) as i32;
        Cuda { opened: Arc::new(opened), arch, include: include(), description, groups }
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
    fn new(device: CUdevice) -> Result<Opened, Error> {
        // SAFETY: the device comes from the driver.
        let context = unsafe { result::primary_ctx::retain(device) };
        let context = check("cuDevicePrimaryCtxRetain", context)?;
        // SAFETY: the context was just retained.
        check("cuCtxSetCurrent", unsafe { result::ctx::set_current(context) })?;
        let stream = result::stream::create(result::stream::StreamKind::NonBlocking);
        let stream = check("cuStreamCreate", stream)?;
        // SAFETY: the device comes from the driver; the attribute is a 64-bit integer.
        unsafe {
            if let Ok(pool) = result::device::get_default_mem_pool(device) {
                let mut threshold = u64::MAX;
                let value = (&raw mut threshold).cast::<c_void>();
                let attribute = CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
                // Without it, freed memory is allocated anew.
                let _ = result::mem_pool::set_attribute(pool, attribute, value);
            }
        }
        Ok(Opened { context, stream })
    }

    /// Makes the context current in this thread.
    fn enter(&self) -> Result<(), Error> {
        // SAFETY: the context lives as long as the process.
        check("cuCtxSetCurrent", unsafe { result::ctx::set_current(self.context) })
    }

    /// Allocates bytes on the GPU; their content is unspecified.
    fn allocate(&self, size_bytes: usize) -> Result<u64, Error> {
        self.enter()?;
        // SAFETY: the stream lives as long as the process; whoever reads the bytes writes them
        // first.
        check("cuMemAllocAsync", unsafe { result::malloc_async(self.stream, size_bytes) })
    }

    /// Waits until the stream is idle.
    fn wait(&self) -> Result<(), Error> {
        self.enter()?;
        // SAFETY: the stream lives as long as the process.
        check("cuStreamSynchronize", unsafe { result::stream::synchronize(self.stream) })
    }
}

/// Compiled kernels on the GPU.
struct Module {
    handle: CUmodule,
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
            // SAFETY: the driver created the module, and this is its only owner.
            let _ = unsafe { result::module::unload(self.handle) };
        }
    }
}

impl Module {
    fn new(opened: &Arc<Opened>, code: &[u8]) -> Result<Module, Error> {
        opened.enter()?;
        // PTX must be terminated by 0; after machine code it is harmless.
        let code = [code, b"\0"].concat();
        // SAFETY: this is code of NVRTC.
        let handle = unsafe { result::module::load_data(code.as_ptr().cast()) };
        Ok(Module { handle: check("cuModuleLoadData", handle)?, opened: opened.clone() })
    }

    /// Returns the function of a kernel, which may be launched with so many bytes of local memory.
    fn function(&self, name: &str, dynamic_bytes: u32) -> Result<CUfunction, Error> {
        self.opened.enter()?;
        let name = CString::new(name).unwrap_or_default();
        // SAFETY: the module is loaded.
        let function = unsafe { result::module::get_function(self.handle, name) };
        let function = check("cuModuleGetFunction", function)?;
        if dynamic_bytes != 0 {
            let attribute = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            let bytes = i32::try_from(dynamic_bytes).unwrap_or(i32::MAX);
            // SAFETY: the function was found above.
            let set =
                unsafe { result::function::set_function_attribute(function, attribute, bytes) };
            check("cuFuncSetAttribute", set)?;
        }
        Ok(function)
    }
}

struct Kernel {
    signature: Signature,
    launch: Launch,
    /// Bytes of local memory that the launch adds to what the kernel declares.
    dynamic_bytes: u32,
    function: CUfunction,
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
        let module = |part: &[(String, Code)]| {
            let (text, kernels) = texts.file(part);
            let code = nvrtc::code(&text, self.arch, &self.include);
            let code = code.map_err(|stderr| Error::CompilerFailed {
                compiler: format!("NVRTC {}", nvrtc::version_text()),
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
            let dynamic_bytes = gradiff_render::cuda_dynamic_bytes(kernel);
            let function = module.function(&texts.named[*number].0, dynamic_bytes)?;
            let signature = Signature::of(kernel)?;
            let kernel: Arc<dyn Executable> =
                Arc::new(Kernel { signature, launch, dynamic_bytes, function, module });
            Ok(kernel)
        };
        kernels.iter().zip(launches).zip(&texts.number_of).map(make).collect()
    }

    fn describe(&self) -> String {
        self.description.clone()
    }

    fn has_memory(&self) -> bool {
        true
    }

    fn target(&self) -> Target {
        let target = Target::of(if self.arch < 80 { "cuda-old" } else { "cuda" });
        Target { groups: target.groups.map(|limits| self.groups.at_most(limits)), ..target }
    }

    fn wait(&self) -> Result<(), Error> {
        self.opened.wait()
    }
}

impl Kernel {
    /// Enqueues a launch in the stream. The context must be current.
    fn launch(&self, handles: &[usize]) -> Result<(), Error> {
        let mut addresses: SmallVec<[u64; 6]> =
            handles.iter().map(|handle| *handle as u64).collect();
        let mut arguments: SmallVec<[*mut c_void; 6]> =
            addresses.iter_mut().map(|address| (&raw mut *address).cast()).collect();
        let [groups, group] =
            [self.launch.groups, self.launch.group].map(|[x, y, z]| (x as u32, y as u32, z as u32));
        let stream = self.module.opened.stream;
        // SAFETY: there is an argument for each parameter, an address of at least as many elements
        // as the kernel declares; it accesses only elements of its parameters (the promise of
        // lowering, see `Executable::run`). The driver copies the arguments.
        check("cuLaunchKernel", unsafe {
            let bytes = self.dynamic_bytes;
            result::launch_kernel(self.function, groups, group, bytes, stream, &mut arguments)
        })
    }
}

impl Executable for Kernel {
    fn run(&self, memories: &[&Memory]) -> Result<(), Error> {
        let opened = &self.module.opened;
        locked::run_on(&OnDevice(opened), &self.signature, memories, |handles| {
            if self.launch.is_empty() {
                return Ok(());
            }
            opened.enter()?;
            self.launch(handles)
        })
    }

    fn run_timed(&self, memories: &[&Memory]) -> Result<Option<Duration>, Error> {
        let opened = &self.module.opened;
        let mut time = Ok(Duration::ZERO);
        locked::run_on(&OnDevice(opened), &self.signature, memories, |handles| {
            if self.launch.is_empty() {
                return Ok(());
            }
            opened.enter()?;
            let [start, end] = [Event::new()?, Event::new()?];
            start.record(opened.stream)?;
            self.launch(handles)?;
            // The kernel was launched even if the events fail.
            time = end.record(opened.stream).and_then(|()| end.since(&start));
            Ok(())
        })?;
        time.map(Some)
    }
}

/// A point in the stream, whose time the GPU records.
struct Event(CUevent);

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: the driver created the event, and this is its only owner. Pending records still
        // complete.
        let _ = unsafe { result::event::destroy(self.0) };
    }
}

impl Event {
    /// Creates an event that is not recorded yet, for times.
    fn new() -> Result<Event, Error> {
        let event = result::event::create(CUevent_flags::CU_EVENT_DEFAULT);
        check("cuEventCreate", event).map(Event)
    }

    /// Records the event after everything in the stream.
    fn record(&self, stream: CUstream) -> Result<(), Error> {
        // SAFETY: the event is alive; the stream lives as long as the process.
        check("cuEventRecord", unsafe { result::event::record(self.0, stream) })
    }

    /// Waits for the event and returns the time since an earlier one.
    fn since(&self, start: &Event) -> Result<Duration, Error> {
        const ELAPSED: &str = "cuEventElapsedTime";
        // SAFETY: the event is alive and was recorded.
        check("cuEventSynchronize", unsafe { result::event::synchronize(self.0) })?;
        // SAFETY: both events are alive and complete, since `start` precedes this one in the
        // stream.
        let millis = check(ELAPSED, unsafe { driver::elapsed(start.0, self.0) })?;
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
        if self.opened.enter().is_ok() {
            // SAFETY: the driver allocated it, and all uses precede the free in the stream.
            let _ = unsafe { result::free_async(self.address, self.opened.stream) };
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
        opened.enter()?;
        // SAFETY: the buffer has as many bytes as its memory; `wait` keeps `bytes` alive until the
        // copy is done.
        check("cuMemcpyHtoDAsync", unsafe {
            result::memcpy_htod_async(self.address(), bytes, opened.stream)
        })?;
        opened.wait()
    }

    fn download(&self, bytes: &mut [u8]) -> Result<(), Error> {
        let opened = &self.allocation.opened;
        opened.enter()?;
        // SAFETY: as above.
        check("cuMemcpyDtoHAsync", unsafe {
            result::memcpy_dtoh_async(bytes, self.address(), opened.stream)
        })?;
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
        opened.enter()?;
        let (to, from, size) = (copy.handle() as u64, self.address(), self.size_bytes);
        // SAFETY: both buffers have this many bytes.
        check("cuMemcpyDtoDAsync", unsafe {
            result::memcpy_dtod_async(to, from, size, opened.stream)
        })?;
        Ok(copy)
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests;
