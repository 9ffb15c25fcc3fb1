//! Kernels as OpenCL C, compiled by the driver that is found when the program runs.
//!
//! Global ranges number the groups and local ranges the threads of a group, the innermost range as
//! dimension 0. Memories have a copy in a buffer of the device (see `remote`), parts of them one in
//! a sub-buffer. The queue notes the times at which kernels start and end. Of several devices the
//! first GPU is taken, else the first one, or the one whose number in the order of the drivers
//! `GRADIFF_OPENCL_DEVICE` gives.

mod api;

use std::ffi::CString;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gradiff_graph::{BoundedLinear, DType, Linear};

use crate::device::plain;
use crate::device::{GroupLimits, Limits};
use crate::launch::{Launch, Texts, executed};
use crate::memory::{ALIGNMENT, Memory, Signature};
use crate::remote::{self, Place};
use crate::{Device, Error, Executable, environment};
use api::{Api, Handle, check};

/// How many kernels stand in one program at most: PoCL takes 0.3 s for any program.
const KERNELS_PER_PROGRAM: usize = 64;

/// How many uops a kernel executes before a CPU's driver has to optimise it. That is most of the
/// time a driver takes: of Intel's 40 ms a kernel 5 are left, of PoCL's 90 some 45.
const HEAVY_UOPS: i128 = 2_000_000;

/// The device, with its one context and its one queue, in which all is done in order.
pub(crate) struct OpenCl {
    opened: Arc<Opened>,
    description: String,
    limits: GroupLimits,
    vector_bytes: u32,
    /// Of light kernels and of heavy ones.
    build_options: [CString; 2],
}

/// What kernels and copies hold on to.
struct Opened {
    api: Api,
    device: Handle,
    context: Handle,
    queue: Handle,
    /// Parts of memories begin at multiples of this.
    align_bytes: usize,
}

/// Drivers are asked one thing at a time: the arguments of a kernel belong to its next launch, and
/// PoCL 3.1 crashes where one thread builds and another one launches.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

// SAFETY: OpenCL handles may be used by any thread; `turn` sees to the exceptions.
unsafe impl Send for Opened {}
// SAFETY: as above.
unsafe impl Sync for Opened {}

/// Numbers of the standard.
mod number {
    pub(super) const PLATFORM_VERSION: u32 = 0x0901;
    pub(super) const PLATFORM_NAME: u32 = 0x0902;
    pub(super) const DEVICE_TYPE_ALL: u64 = 0xffff_ffff;
    pub(super) const DEVICE_TYPE_CPU: u64 = 2;
    pub(super) const DEVICE_TYPE_GPU: u64 = 4;
    pub(super) const DEVICE_TYPE: u32 = 0x1000;
    pub(super) const MAX_WORK_GROUP_SIZE: u32 = 0x1004;
    pub(super) const MAX_WORK_ITEM_SIZES: u32 = 0x1005;
    pub(super) const PREFERRED_VECTOR_WIDTH_FLOAT: u32 = 0x100a;
    pub(super) const SINGLE_FP_CONFIG: u32 = 0x101b;
    pub(super) const MEM_BASE_ADDR_ALIGN: u32 = 0x1019;
    pub(super) const LOCAL_MEM_SIZE: u32 = 0x1023;
    pub(super) const DEVICE_NAME: u32 = 0x102b;
    pub(super) const DRIVER_VERSION: u32 = 0x102d;
    pub(super) const DEVICE_VERSION: u32 = 0x102f;
    pub(super) const PROGRAM_BUILD_LOG: u32 = 0x1183;
    pub(super) const BUFFER_CREATE_TYPE_REGION: u32 = 0x1220;
    pub(super) const QUEUE_PROFILING_ENABLE: u64 = 2;
    pub(super) const PROFILING_COMMAND_START: u32 = 0x1282;
    pub(super) const PROFILING_COMMAND_END: u32 = 0x1283;
    pub(super) const CORRECTLY_ROUNDED_DIVIDE_SQRT: u64 = 1 << 7;
}

impl OpenCl {
    /// Finds a driver and a device.
    pub(crate) fn open() -> Result<OpenCl, Error> {
        let unavailable = |why: String| Error::Unavailable { device: "opencl", why };
        let api = Api::load().map_err(unavailable)?;
        let found = devices(&api).map_err(|code| unavailable(api::name_of(code)))?;
        let is_gpu = |(_, device): &(Handle, Handle)| {
            let [kind] = api.device_numbers(*device, number::DEVICE_TYPE);
            kind & number::DEVICE_TYPE_GPU != 0
        };
        let number = environment::chosen("GRADIFF_OPENCL_DEVICE", found.len())
            .map_err(unavailable)?
            .unwrap_or_else(|| found.iter().position(is_gpu).unwrap_or(0));
        let Some((platform, device)) = found.get(number).copied() else {
            return Err(unavailable(
                "an OpenCL library is there, but no driver has a device".into(),
            ));
        };
        let opened = open_device(api, device)?;
        Ok(OpenCl::of(opened, platform, device))
    }

    fn of(opened: Opened, platform: Handle, device: Handle) -> OpenCl {
        let api = &opened.api;
        let of_platform = |name| {
            // SAFETY: the platform is one that the driver gave; sizes and room belong together.
            Api::text(|size, room, wanted| unsafe {
                (api.get_platform_info)(platform, name, size, room, wanted)
            })
        };
        let description = format!(
            "{} ({}), driver {}; {} ({})",
            api.device_text(device, number::DEVICE_NAME),
            api.device_text(device, number::DEVICE_VERSION),
            api.device_text(device, number::DRIVER_VERSION),
            of_platform(number::PLATFORM_NAME),
            of_platform(number::PLATFORM_VERSION),
        );
        let [threads_max] = api.device_numbers(device, number::MAX_WORK_GROUP_SIZE);
        let [x, y, z, ..] = api.device_numbers::<8>(device, number::MAX_WORK_ITEM_SIZES);
        let [local_bytes] = api.device_numbers(device, number::LOCAL_MEM_SIZE);
        let [lanes] = api.device_numbers(device, number::PREFERRED_VECTOR_WIDTH_FLOAT);
        let [config] = api.device_numbers(device, number::SINGLE_FP_CONFIG);
        let is_exact = config & number::CORRECTLY_ROUNDED_DIVIDE_SQRT != 0;
        let exact = if is_exact { " -cl-fp32-correctly-rounded-divide-sqrt" } else { "" };
        let [kind] = api.device_numbers(device, number::DEVICE_TYPE);
        let quick = if kind & number::DEVICE_TYPE_CPU != 0 { " -cl-opt-disable" } else { "" };
        let build_options = [quick, ""].map(|quick| {
            let options = CString::new(format!("-cl-std=CL1.2{exact}{quick}"));
            options.expect("no zero byte stands in it")
        });
        OpenCl {
            limits: GroupLimits {
                threads_max,
                sizes_max: [x, y, z],
                groups_max: [u32::MAX.into(); 3],
                local_bytes,
            },
            vector_bytes: 4 * lanes as u32,
            description,
            build_options,
            opened: Arc::new(opened),
        }
    }

    /// Compiles a file of kernels.
    fn program(&self, (text, kernels): (String, String), is_heavy: bool) -> Result<Program, Error> {
        let Opened { api, device, context, .. } = &*self.opened;
        let (pointer, length) = (text.as_ptr().cast(), text.len());
        let _turn = turn();
        let mut code = 0;
        // SAFETY: one text of this length, which the driver copies.
        let handle =
            unsafe { (api.create_program_with_source)(*context, 1, &pointer, &length, &mut code) };
        check("clCreateProgramWithSource", code)?;
        let program = Program { handle, opened: self.opened.clone() };
        let options = self.build_options[usize::from(is_heavy)].as_ptr();
        // SAFETY: the program and the device are of this context; the options end with 0.
        let code =
            unsafe { (api.build_program)(handle, 1, device, options, None, std::ptr::null_mut()) };
        if code == 0 {
            return Ok(program);
        }
        // SAFETY: as above; sizes and room belong together.
        let log = Api::text(|size, room, wanted| unsafe {
            let name = number::PROGRAM_BUILD_LOG;
            (api.get_program_build_info)(handle, *device, name, size, room, wanted)
        });
        Err(Error::CompilerFailed {
            compiler: format!("the OpenCL driver ({})", api::name_of(code)),
            kernels,
            source_path: None,
            stderr: log,
        })
    }
}

/// All devices of all drivers with their platforms, or the code of what failed.
fn devices(api: &Api) -> Result<Vec<(Handle, Handle)>, i32> {
    // SAFETY: room for as many handles as is said, and a place for the count.
    let platforms =
        Api::list(|count, room, wanted| unsafe { (api.get_platform_ids)(count, room, wanted) })?;
    let mut found = Vec::new();
    for platform in platforms {
        // SAFETY: as above; the platform is one that the driver gave.
        let devices = Api::list(|count, room, wanted| unsafe {
            (api.get_device_ids)(platform, number::DEVICE_TYPE_ALL, count, room, wanted)
        });
        // A driver without a device says so by an error.
        found.extend(devices.into_iter().flatten().map(|device| (platform, device)));
    }
    Ok(found)
}

fn open_device(api: Api, device: Handle) -> Result<Opened, Error> {
    let (null, mut code) = (std::ptr::null_mut(), 0);
    // SAFETY: one device that the driver gave; no properties, no callback.
    let context =
        unsafe { (api.create_context)(std::ptr::null(), 1, &device, None, null, &mut code) };
    check("clCreateContext", code)?;
    let properties = number::QUEUE_PROFILING_ENABLE;
    // SAFETY: the device is the one of the context.
    let queue = unsafe { (api.create_command_queue)(context, device, properties, &mut code) };
    check("clCreateCommandQueue", code)?;
    let [align_bits] = api.device_numbers(device, number::MEM_BASE_ADDR_ALIGN);
    let align_bytes = (align_bits as usize / 8).max(ALIGNMENT);
    Ok(Opened { api, device, context, queue, align_bytes })
}

/// A program that was built.
struct Program {
    handle: Handle,
    opened: Arc<Opened>,
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: it was made by this driver and nobody else has it; kernels count on their own.
        unsafe { (self.opened.api.release_program)(self.handle) };
    }
}

impl Program {
    fn kernel(&self, name: &str) -> Result<Handle, Error> {
        let name = CString::new(name).unwrap_or_default();
        let mut code = 0;
        // SAFETY: the program is built and the name ends with 0.
        let kernel =
            unsafe { (self.opened.api.create_kernel)(self.handle, name.as_ptr(), &mut code) };
        check("clCreateKernel", code)?;
        Ok(kernel)
    }
}

struct Kernel {
    signature: Signature,
    launch: Launch,
    handle: Handle,
    opened: Arc<Opened>,
}

// SAFETY: as of `Opened`.
unsafe impl Send for Kernel {}
// SAFETY: as of `Opened`.
unsafe impl Sync for Kernel {}

impl Drop for Kernel {
    fn drop(&mut self) {
        // SAFETY: the kernel was made by this driver and nobody else has it.
        unsafe { (self.opened.api.release_kernel)(self.handle) };
    }
}

impl Device for OpenCl {
    fn name(&self) -> &'static str {
        "opencl"
    }

    fn compile(&self, kernels: &[&BoundedLinear]) -> Result<Vec<Arc<dyn Executable>>, Error> {
        let kernels = plain(kernels)?;
        let texts = Texts::new("opencl", "opencl", &kernels)?;
        let launches: Vec<Launch> = kernels
            .iter()
            .map(|kernel| Launch::new("opencl", &self.limits, 1, kernel))
            .collect::<Result<_, _>>()?;
        let mut heavy = vec![false; texts.named.len()];
        for (kernel, number) in kernels.iter().zip(&texts.number_of) {
            heavy[*number] = HEAVY_UOPS < executed(kernel);
        }
        let mut programs: Vec<Option<Rc<Program>>> = vec![None; texts.named.len()];
        for is_heavy in [false, true] {
            let numbers: Vec<usize> = (0..heavy.len()).filter(|n| heavy[*n] == is_heavy).collect();
            for numbers in numbers.chunks(KERNELS_PER_PROGRAM) {
                let part: Vec<_> = numbers.iter().map(|n| texts.named[*n].clone()).collect();
                let program = Rc::new(self.program(texts.file(&part), is_heavy)?);
                numbers.iter().for_each(|number| programs[*number] = Some(program.clone()));
            }
        }
        let make = |((kernel, launch), number): ((&&Linear, Launch), &usize)| {
            let signature = Signature::of(kernel)?;
            let program = programs[*number].as_ref().expect("all are built");
            let handle = program.kernel(&texts.named[*number].0)?;
            let opened = self.opened.clone();
            let kernel: Arc<dyn Executable> =
                Arc::new(Kernel { signature, launch, handle, opened });
            Ok(kernel)
        };
        kernels.iter().zip(launches).zip(&texts.number_of).map(make).collect()
    }

    fn describe(&self) -> String {
        self.description.clone()
    }

    fn limits(&self) -> Limits {
        let (groups, vector_bytes) = (Some(self.limits), self.vector_bytes);
        Limits { groups, vector_bytes, thread_count: 0 }
    }
}

impl Kernel {
    /// Launches the kernel and waits. It has the turn.
    fn launch(&self, handles: &[usize]) -> Result<Event<'_>, Error> {
        let Opened { api, queue, .. } = &*self.opened;
        for (number, handle) in (0..).zip(handles) {
            let handle = *handle as Handle;
            let (size, pointer) = (size_of::<Handle>(), (&raw const handle).cast());
            // SAFETY: the kernel has a pointer at this place, and the buffer is of its
            // context and holds at least as many elements as the kernel declares.
            let code = unsafe { (api.set_kernel_arg)(self.handle, number, size, pointer) };
            check("clSetKernelArg", code)?;
        }
        let group = self.launch.group.map(|size| size as usize);
        let total = [0, 1, 2].map(|along| self.launch.groups[along] as usize * group[along]);
        let (null, mut event) = (std::ptr::null(), std::ptr::null_mut());
        // SAFETY: all arguments are set; the kernel touches elements of its parameters only
        // (the promise of lowering, see `Executable::run`), which are locked meanwhile.
        let code = unsafe {
            (api.enqueue_nd_range_kernel)(
                *queue,
                self.handle,
                3,
                null,
                total.as_ptr(),
                group.as_ptr(),
                0,
                std::ptr::null(),
                &mut event,
            )
        };
        check("clEnqueueNDRangeKernel", code)?;
        let event = Event { api, handle: event };
        // SAFETY: the queue lives as long as the process.
        check("clFinish", unsafe { (api.finish)(*queue) })?;
        Ok(event)
    }
}

impl Executable for Kernel {
    fn run(&self, memories: &[&Memory]) -> Result<(), Error> {
        remote::run_on(&OnDevice(&self.opened), &self.signature, memories, |handles| {
            let _turn = turn();
            match self.launch.is_empty() {
                true => Ok(()),
                false => self.launch(handles).map(drop),
            }
        })
    }

    fn run_timed(&self, memories: &[&Memory]) -> Result<Option<Duration>, Error> {
        let mut time = Ok(Duration::ZERO);
        remote::run_on(&OnDevice(&self.opened), &self.signature, memories, |handles| {
            let _turn = turn();
            if !self.launch.is_empty() {
                // Whatever the event says, the kernel ran.
                time = self.launch(handles)?.time();
            }
            Ok(())
        })?;
        time.map(Some)
    }
}

/// A launch that is over.
struct Event<'a> {
    api: &'a Api,
    handle: Handle,
}

impl Drop for Event<'_> {
    fn drop(&mut self) {
        // SAFETY: the event was made by this driver and nobody else has it.
        unsafe { (self.api.release_event)(self.handle) };
    }
}

impl Event<'_> {
    /// How long it took by the clock of the device.
    fn time(&self) -> Result<Duration, Error> {
        let [start, end] = [number::PROFILING_COMMAND_START, number::PROFILING_COMMAND_END];
        let at = |name: u32| {
            let mut nanos = 0u64;
            let (size, room) = (size_of_val(&nanos), (&raw mut nanos).cast());
            let none = std::ptr::null_mut();
            // SAFETY: the event lives; room for a number of 64 bits, as is asked for.
            let code =
                unsafe { (self.api.get_event_profiling_info)(self.handle, name, size, room, none) };
            check("clGetEventProfilingInfo", code).map(|()| nanos)
        };
        Ok(Duration::from_nanos(at(end)?.saturating_sub(at(start)?)))
    }
}

impl Opened {
    /// Memory of the device's own, for reading and writing.
    fn buffer(&self, size_bytes: usize) -> Result<Handle, Error> {
        let mut code = 0;
        // SAFETY: no memory of the host is given.
        let buffer = unsafe {
            let null = std::ptr::null_mut();
            (self.api.create_buffer)(self.context, 1, size_bytes, null, &mut code)
        };
        check("clCreateBuffer", code)?;
        Ok(buffer)
    }
}

/// The device as a place of memory.
struct OnDevice<'a>(&'a Arc<Opened>);

impl Place for OnDevice<'_> {
    fn number(&self) -> usize {
        Arc::as_ptr(self.0).addr()
    }

    fn allocate(&self, _: DType, size_bytes: usize) -> Result<Box<dyn remote::Copy>, Error> {
        let handle = self.0.buffer(size_bytes)?;
        let whole = Arc::new(Whole { handle, opened: self.0.clone() });
        Ok(Box::new(Buffer { handle, whole, offset_bytes: 0, size_bytes }))
    }
}

/// A memory of the device.
struct Whole {
    handle: Handle,
    opened: Arc<Opened>,
}

// SAFETY: OpenCL memories may be used by any thread.
unsafe impl Send for Whole {}
// SAFETY: as above.
unsafe impl Sync for Whole {}

impl Drop for Whole {
    fn drop(&mut self) {
        // SAFETY: the buffer was made by this driver and nobody else has it.
        unsafe { (self.opened.api.release_mem_object)(self.handle) };
    }
}

/// A memory of the device, or a part of one.
struct Buffer {
    /// That of the whole, or a sub-buffer.
    handle: Handle,
    whole: Arc<Whole>,
    offset_bytes: usize,
    size_bytes: usize,
}

// SAFETY: as of `Whole`.
unsafe impl Send for Buffer {}
// SAFETY: as of `Whole`.
unsafe impl Sync for Buffer {}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.handle != self.whole.handle {
            // SAFETY: the sub-buffer was made by this driver and nobody else has it.
            unsafe { (self.whole.opened.api.release_mem_object)(self.handle) };
        }
    }
}

impl remote::Copy for Buffer {
    fn place(&self) -> usize {
        Arc::as_ptr(&self.whole.opened).addr()
    }

    fn handle(&self) -> usize {
        self.handle.addr()
    }

    fn upload(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let Opened { api, queue, .. } = &*self.whole.opened;
        let _turn = turn();
        let (from, none) = (bytes.as_ptr().cast(), std::ptr::null_mut());
        // SAFETY: the buffer holds as many bytes as its memory; the call waits until it is done.
        let code = unsafe {
            let (size, list) = (bytes.len(), std::ptr::null());
            (api.enqueue_write_buffer)(*queue, self.handle, 1, 0, size, from, 0, list, none)
        };
        check("clEnqueueWriteBuffer", code)
    }

    fn download(&self, bytes: &mut [u8]) -> Result<(), Error> {
        let Opened { api, queue, .. } = &*self.whole.opened;
        let _turn = turn();
        let (to, none) = (bytes.as_mut_ptr().cast(), std::ptr::null_mut());
        // SAFETY: as above.
        let code = unsafe {
            let (size, list) = (bytes.len(), std::ptr::null());
            (api.enqueue_read_buffer)(*queue, self.handle, 1, 0, size, to, 0, list, none)
        };
        check("clEnqueueReadBuffer", code)
    }

    fn part(
        &self,
        offset_bytes: usize,
        size_bytes: usize,
    ) -> Result<Option<Box<dyn remote::Copy>>, Error> {
        let Opened { api, align_bytes, .. } = &*self.whole.opened;
        let offset_bytes = self.offset_bytes + offset_bytes;
        if !offset_bytes.is_multiple_of(*align_bytes) {
            return Ok(None);
        }
        let region = [offset_bytes, size_bytes];
        let mut code = 0;
        // SAFETY: a buffer that is no sub-buffer, and a region of it: its start and its size.
        let handle = unsafe {
            let kind = number::BUFFER_CREATE_TYPE_REGION;
            let region = region.as_ptr().cast();
            (api.create_sub_buffer)(self.whole.handle, 0, kind, region, &mut code)
        };
        check("clCreateSubBuffer", code)?;
        let whole = self.whole.clone();
        Ok(Some(Box::new(Buffer { handle, whole, offset_bytes, size_bytes })))
    }

    fn duplicate(&self) -> Result<Box<dyn remote::Copy>, Error> {
        let Opened { api, queue, .. } = &*self.whole.opened;
        let place = OnDevice(&self.whole.opened);
        let made = place.allocate(DType::U8, self.size_bytes)?;
        let _turn = turn();
        // SAFETY: both hold so many bytes. The queue is in order.
        let code = unsafe {
            let (to, size) = (made.handle() as Handle, self.size_bytes);
            let (list, none) = (std::ptr::null(), std::ptr::null_mut());
            (api.enqueue_copy_buffer)(*queue, self.handle, to, 0, 0, size, 0, list, none)
        };
        check("clEnqueueCopyBuffer", code)?;
        Ok(made)
    }
}
