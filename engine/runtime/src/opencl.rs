//! The device `opencl`: kernels in OpenCL C, compiled by the driver, which is loaded at run time.
//!
//! Global ranges are work-groups and local ranges work-items; the innermost range is dimension 0.
//! Memories have a copy in a buffer of the device (see `remote`), parts of memories in a
//! sub-buffer. The queue records the times at which kernels start and end. `GRADIFF_OPENCL_DEVICE`
//! is the index of the device in the order of the drivers; the default is the first GPU, or else
//! the first device. A device whose f32 has no NaN is refused; one with other results than those of
//! IEEE 754 says so in its description.

mod api;

use std::ffi::CString;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gradiff_graph::target::Groups;
use gradiff_graph::{BoundedLinear, DType, Linear, Target};
use opencl_sys::*;

use crate::data::ALIGNMENT;
use crate::device::bounded_linears;
use crate::launch::{Launch, Texts, executed_uops};
use crate::locked;
use crate::memory::Memory;
use crate::remote::{RemoteBuffer, RemoteDevice};
use crate::signature::Signature;
use crate::{Device, Error, Executable, environment};
use api::{Api, Handle, check};

/// The maximal number of kernels in a program. PoCL takes 0.3 s for any program.
const KERNELS_PER_PROGRAM: usize = 64;

/// The number of executed uops from which the driver of a CPU optimises a kernel. Optimisation is
/// most of the compile time: without it Intel's driver takes 5 ms instead of 40 for a kernel, PoCL
/// some 45 instead of 90.
const HEAVY_UOPS: i128 = 2_000_000;

/// The device, with one context and one in-order queue.
pub(crate) struct OpenCl {
    opened: Arc<Opened>,
    description: String,
    target: Target,
    /// The build options of light and of heavy kernels.
    build_options: [CString; 2],
}

/// The open device, shared by kernels and buffers.
struct Opened {
    api: Api,
    device: Handle,
    context: Handle,
    queue: Handle,
    /// The alignment of sub-buffers.
    align_bytes: usize,
}

/// Locks the driver. Setting the arguments of a kernel and launching it must not interleave with
/// another launch, and PoCL 3.1 crashes if one thread builds while another launches.
fn lock_driver() -> MutexGuard<'static, ()> {
    static DRIVER: Mutex<()> = Mutex::new(());
    DRIVER.lock().unwrap_or_else(PoisonError::into_inner)
}

// SAFETY: any thread may use OpenCL handles; `lock_driver` serialises the exceptions.
unsafe impl Send for Opened {}
// SAFETY: as above.
unsafe impl Sync for Opened {}

impl OpenCl {
    /// Finds a driver and a device.
    pub(crate) fn open() -> Result<OpenCl, Error> {
        let unavailable = |why: String| Error::Unavailable { device: "opencl", why };
        let api = Api::load().map_err(unavailable)?;
        let found = devices(&api).map_err(|code| unavailable(api::name_of(code)))?;
        let is_gpu = |(_, device): &(Handle, Handle)| {
            let [kind] = api.device_numbers(*device, CL_DEVICE_TYPE);
            kind & CL_DEVICE_TYPE_GPU != 0
        };
        let number = environment::selected_device("GRADIFF_OPENCL_DEVICE", found.len())
            .map_err(unavailable)?
            .unwrap_or_else(|| found.iter().position(is_gpu).unwrap_or(0));
        let Some((platform, device)) = found.get(number).copied() else {
            return Err(unavailable(
                "an OpenCL library was found, but no driver has a device".into(),
            ));
        };
        let [config] = api.device_numbers(device, CL_DEVICE_SINGLE_FP_CONFIG);
        let inexact = inexact_floats(config).map_err(unavailable)?;
        let opened = open_device(api, device)?;
        Ok(OpenCl::new(opened, platform, device, &inexact))
    }

    fn new(opened: Opened, platform: Handle, device: Handle, inexact: &str) -> OpenCl {
        let api = &opened.api;
        let platform_text = |name| {
            // SAFETY: the platform comes from the driver; `size` is that of `buffer`.
            Api::text(|size, buffer, required| unsafe {
                (api.get_platform_info)(platform, name, size, buffer, required)
            })
        };
        let description = format!(
            "{} ({}), driver {}; {} ({}){inexact}",
            api.device_text(device, CL_DEVICE_NAME),
            api.device_text(device, CL_DEVICE_VERSION),
            api.device_text(device, CL_DRIVER_VERSION),
            platform_text(CL_PLATFORM_NAME),
            platform_text(CL_PLATFORM_VERSION),
        );
        let [config] = api.device_numbers(device, CL_DEVICE_SINGLE_FP_CONFIG);
        let is_exact = config & CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT != 0;
        let exact = if is_exact { " -cl-fp32-correctly-rounded-divide-sqrt" } else { "" };
        let [kind] = api.device_numbers(device, CL_DEVICE_TYPE);
        let light = if kind & CL_DEVICE_TYPE_CPU != 0 { " -cl-opt-disable" } else { "" };
        let build_options = [light, ""].map(|optimization| {
            let options = CString::new(format!("-cl-std=CL1.2{exact}{optimization}"));
            options.expect("the options contain no zero byte")
        });
        OpenCl { target: target(api, device), description, build_options, opened: Arc::new(opened) }
    }

    /// Compiles a file of kernels.
    fn program(&self, (text, kernels): (String, String), is_heavy: bool) -> Result<Program, Error> {
        let Opened { api, device, context, .. } = &*self.opened;
        let (mut pointer, length) = (text.as_ptr().cast(), text.len());
        let _driver = lock_driver();
        let mut code = 0;
        // SAFETY: the pointers are to one text and its length; the driver copies the text.
        let handle = unsafe {
            (api.create_program_with_source)(*context, 1, &mut pointer, &length, &mut code)
        };
        check("clCreateProgramWithSource", code)?;
        let program = Program { handle, opened: self.opened.clone() };
        let options = self.build_options[usize::from(is_heavy)].as_ptr();
        // SAFETY: the program and the device are of this context; the options are terminated by 0.
        let code =
            unsafe { (api.build_program)(handle, 1, device, options, None, std::ptr::null_mut()) };
        if code == CL_SUCCESS {
            return Ok(program);
        }
        // SAFETY: as above; `size` is that of `buffer`.
        let log = Api::text(|size, buffer, required| unsafe {
            let name = CL_PROGRAM_BUILD_LOG;
            (api.get_program_build_info)(handle, *device, name, size, buffer, required)
        });
        Err(Error::CompilerFailed {
            compiler: format!("the OpenCL driver ({})", api::name_of(code)),
            kernels,
            source_path: None,
            stderr: log,
        })
    }
}

/// Lists all devices of all drivers with their platforms; the error is an OpenCL error code.
fn devices(api: &Api) -> Result<Vec<(Handle, Handle)>, i32> {
    // SAFETY: the pointers are to `count` handles and to an integer.
    let platforms = Api::list(|count, buffer, required| unsafe {
        (api.get_platform_ids)(count, buffer, required)
    })?;
    let mut found = Vec::new();
    for platform in platforms {
        // SAFETY: as above; the platform comes from the driver.
        let devices = Api::list(|count, buffer, required| unsafe {
            (api.get_device_ids)(platform, CL_DEVICE_TYPE_ALL, count, buffer, required)
        });
        // A driver without a device returns an error.
        found.extend(devices.into_iter().flatten().map(|device| (platform, device)));
    }
    Ok(found)
}

/// Returns a text on the results of f32 that are not those of IEEE 754 on a device with this
/// configuration; an empty one if there are none.
///
/// # Errors
/// The reason why kernels do not have their meaning on it.
fn inexact_floats(config: u64) -> Result<String, String> {
    let is_missing = |bit: u64| config & bit == 0;
    if is_missing(CL_FP_INF_NAN) || is_missing(CL_FP_ROUND_TO_NEAREST) {
        return Err("its f32 has no infinities and NaN, or does not round to the nearest".into());
    }
    let notes = [
        (CL_FP_DENORM, "; denormals of f32 are zeros"),
        (CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT, "; f32 has / within 2.5 ulp and sqrt within 3"),
    ];
    Ok(notes.into_iter().filter(|(bit, _)| is_missing(*bit)).map(|(_, note)| note).collect())
}

/// Describes a device by what it answers to queries. Kernels hold the number of a group in an
/// `int`.
fn target(api: &Api, device: Handle) -> Target {
    let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let [threads] = api.device_numbers(device, CL_DEVICE_MAX_WORK_GROUP_SIZE);
    let [x, y, z, ..] = api.device_numbers::<8>(device, CL_DEVICE_MAX_WORK_ITEM_SIZES);
    let [local_bytes] = api.device_numbers(device, CL_DEVICE_LOCAL_MEM_SIZE);
    let [f64_config] = api.device_numbers(device, CL_DEVICE_DOUBLE_FP_CONFIG);
    let groups = Groups {
        threads: signed(threads),
        sizes: [x, y, z].map(signed),
        counts: [i32::MAX.into(); 3],
        local_bytes: signed(local_bytes),
        element_bytes: 1,
    };
    let unsupported_types = if f64_config == 0 { &[DType::F64][..] } else { &[] };
    Target { groups: Some(groups.capped()), unsupported_types, ..Target::of("opencl") }
}

fn open_device(api: Api, device: Handle) -> Result<Opened, Error> {
    let (null, mut code) = (std::ptr::null_mut(), 0);
    // SAFETY: the pointer is to one device of the driver; there are no properties and no callback.
    let context =
        unsafe { (api.create_context)(std::ptr::null(), 1, &device, None, null, &mut code) };
    check("clCreateContext", code)?;
    let properties = CL_QUEUE_PROFILING_ENABLE;
    // SAFETY: the device is that of the context.
    let queue = unsafe { (api.create_command_queue)(context, device, properties, &mut code) };
    check("clCreateCommandQueue", code)?;
    let [align_bits] = api.device_numbers(device, CL_DEVICE_MEM_BASE_ADDR_ALIGN);
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
        // SAFETY: this driver created the program, and this is its only owner; kernels hold
        // references of their own.
        unsafe { (self.opened.api.release_program)(self.handle) };
    }
}

impl Program {
    fn kernel(&self, name: &str) -> Result<Handle, Error> {
        let name = CString::new(name).unwrap_or_default();
        let mut code = 0;
        // SAFETY: the program is built and the name is terminated by 0.
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
        // SAFETY: this driver created the kernel, and this is its only owner.
        unsafe { (self.opened.api.release_kernel)(self.handle) };
    }
}

impl Device for OpenCl {
    fn name(&self) -> &'static str {
        "opencl"
    }

    fn compile(&self, kernels: &[&BoundedLinear]) -> Result<Vec<Arc<dyn Executable>>, Error> {
        let kernels = bounded_linears(kernels)?;
        let launches: Vec<Launch> = kernels
            .iter()
            .map(|kernel| Launch::new("opencl", &self.target, kernel))
            .collect::<Result<_, _>>()?;
        let texts = Texts::new("opencl", "opencl", &kernels)?;
        let mut heavy = vec![false; texts.named.len()];
        for (kernel, number) in kernels.iter().zip(&texts.number_of) {
            heavy[*number] = HEAVY_UOPS < executed_uops(kernel);
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

    fn has_memory(&self) -> bool {
        true
    }

    fn target(&self) -> Target {
        self.target
    }
}

impl Kernel {
    /// Launches the kernel and waits. The driver must be locked.
    fn launch(&self, handles: &[usize]) -> Result<Event<'_>, Error> {
        let Opened { api, queue, .. } = &*self.opened;
        for (number, handle) in (0..).zip(handles) {
            let handle = *handle as Handle;
            let (size, pointer) = (size_of::<Handle>(), (&raw const handle).cast());
            // SAFETY: this parameter of the kernel is a pointer, and the buffer is of its context
            // and has at least as many elements as the kernel declares.
            let code = unsafe { (api.set_kernel_arg)(self.handle, number, size, pointer) };
            check("clSetKernelArg", code)?;
        }
        let group = self.launch.group.map(|size| size as usize);
        let total =
            [0, 1, 2].map(|dimension| self.launch.groups[dimension] as usize * group[dimension]);
        let (null, mut event) = (std::ptr::null(), std::ptr::null_mut());
        // SAFETY: all arguments are set; the kernel accesses only elements of its parameters (the
        // promise of lowering, see `Executable::run`), which are locked during the launch.
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
        locked::run_on(&OnDevice(&self.opened), &self.signature, memories, |handles| {
            let _driver = lock_driver();
            match self.launch.is_empty() {
                true => Ok(()),
                false => self.launch(handles).map(drop),
            }
        })
    }

    fn run_timed(&self, memories: &[&Memory]) -> Result<Option<Duration>, Error> {
        let mut time = Ok(Duration::ZERO);
        locked::run_on(&OnDevice(&self.opened), &self.signature, memories, |handles| {
            let _driver = lock_driver();
            if !self.launch.is_empty() {
                // The kernel ran even if the event fails.
                time = self.launch(handles)?.time();
            }
            Ok(())
        })?;
        time.map(Some)
    }
}

/// The event of a finished launch.
struct Event<'a> {
    api: &'a Api,
    handle: Handle,
}

impl Drop for Event<'_> {
    fn drop(&mut self) {
        // SAFETY: this driver created the event, and this is its only owner.
        unsafe { (self.api.release_event)(self.handle) };
    }
}

impl Event<'_> {
    /// The time of the launch by the clock of the device.
    fn time(&self) -> Result<Duration, Error> {
        let [start, end] = [CL_PROFILING_COMMAND_START, CL_PROFILING_COMMAND_END];
        let profiling_time = |name: u32| {
            let mut nanos = 0u64;
            let (size, buffer) = (size_of_val(&nanos), (&raw mut nanos).cast());
            let none = std::ptr::null_mut();
            // SAFETY: the event is alive; the pointer is to a 64-bit integer, as required.
            let code = unsafe {
                (self.api.get_event_profiling_info)(self.handle, name, size, buffer, none)
            };
            check("clGetEventProfilingInfo", code).map(|()| nanos)
        };
        Ok(Duration::from_nanos(profiling_time(end)?.saturating_sub(profiling_time(start)?)))
    }
}

impl Opened {
    /// Allocates a buffer on the device, for reading and writing.
    fn buffer(&self, size_bytes: usize) -> Result<Handle, Error> {
        let mut code = 0;
        // SAFETY: no host pointer is passed.
        let buffer = unsafe {
            let null = std::ptr::null_mut();
            (self.api.create_buffer)(self.context, CL_MEM_READ_WRITE, size_bytes, null, &mut code)
        };
        check("clCreateBuffer", code)?;
        Ok(buffer)
    }
}

/// The allocator of device memory.
struct OnDevice<'a>(&'a Arc<Opened>);

impl RemoteDevice for OnDevice<'_> {
    fn id(&self) -> usize {
        Arc::as_ptr(self.0).addr()
    }

    fn allocate(&self, _: DType, size_bytes: usize) -> Result<Box<dyn RemoteBuffer>, Error> {
        let handle = self.0.buffer(size_bytes)?;
        let allocation = Arc::new(Allocation { handle, opened: self.0.clone() });
        Ok(Box::new(Buffer { handle, allocation, offset_bytes: 0, size_bytes }))
    }
}

/// A buffer of the device that is not a sub-buffer.
struct Allocation {
    handle: Handle,
    opened: Arc<Opened>,
}

// SAFETY: any thread may use OpenCL buffers.
unsafe impl Send for Allocation {}
// SAFETY: as above.
unsafe impl Sync for Allocation {}

impl Drop for Allocation {
    fn drop(&mut self) {
        // SAFETY: this driver created the buffer, and this is its only owner.
        unsafe { (self.opened.api.release_mem_object)(self.handle) };
    }
}

/// An allocation or a part of one.
struct Buffer {
    /// The handle of the allocation, or of a sub-buffer.
    handle: Handle,
    allocation: Arc<Allocation>,
    offset_bytes: usize,
    size_bytes: usize,
}

// SAFETY: as of `Allocation`.
unsafe impl Send for Buffer {}
// SAFETY: as of `Allocation`.
unsafe impl Sync for Buffer {}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.handle != self.allocation.handle {
            // SAFETY: this driver created the sub-buffer, and this is its only owner.
            unsafe { (self.allocation.opened.api.release_mem_object)(self.handle) };
        }
    }
}

impl RemoteBuffer for Buffer {
    fn device_id(&self) -> usize {
        Arc::as_ptr(&self.allocation.opened).addr()
    }

    fn handle(&self) -> usize {
        self.handle.addr()
    }

    fn upload(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let Opened { api, queue, .. } = &*self.allocation.opened;
        let _driver = lock_driver();
        let (from, none) = (bytes.as_ptr().cast(), std::ptr::null_mut());
        // SAFETY: the buffer has as many bytes as its memory; the call blocks until the copy is
        // done.
        let code = unsafe {
            let (size, list) = (bytes.len(), std::ptr::null());
            (api.enqueue_write_buffer)(*queue, self.handle, CL_TRUE, 0, size, from, 0, list, none)
        };
        check("clEnqueueWriteBuffer", code)
    }

    fn download(&self, bytes: &mut [u8]) -> Result<(), Error> {
        let Opened { api, queue, .. } = &*self.allocation.opened;
        let _driver = lock_driver();
        let (to, none) = (bytes.as_mut_ptr().cast(), std::ptr::null_mut());
        // SAFETY: as above.
        let code = unsafe {
            let (size, list) = (bytes.len(), std::ptr::null());
            (api.enqueue_read_buffer)(*queue, self.handle, CL_TRUE, 0, size, to, 0, list, none)
        };
        check("clEnqueueReadBuffer", code)
    }

    fn part(
        &self,
        offset_bytes: usize,
        size_bytes: usize,
    ) -> Result<Option<Box<dyn RemoteBuffer>>, Error> {
        let Opened { api, align_bytes, .. } = &*self.allocation.opened;
        let offset_bytes = self.offset_bytes + offset_bytes;
        if !offset_bytes.is_multiple_of(*align_bytes) {
            return Ok(None);
        }
        let region = cl_buffer_region { origin: offset_bytes, size: size_bytes };
        let mut code = 0;
        // SAFETY: the allocation is not a sub-buffer, and the region is within it.
        let handle = unsafe {
            let kind = CL_BUFFER_CREATE_TYPE_REGION;
            let region = (&raw const region).cast();
            (api.create_sub_buffer)(self.allocation.handle, 0, kind, region, &mut code)
        };
        check("clCreateSubBuffer", code)?;
        let allocation = self.allocation.clone();
        Ok(Some(Box::new(Buffer { handle, allocation, offset_bytes, size_bytes })))
    }

    fn duplicate(&self) -> Result<Box<dyn RemoteBuffer>, Error> {
        let Opened { api, queue, .. } = &*self.allocation.opened;
        let copy = OnDevice(&self.allocation.opened).allocate(DType::U8, self.size_bytes)?;
        let _driver = lock_driver();
        // SAFETY: both buffers have this many bytes. The queue is in order.
        let code = unsafe {
            let (to, size) = (copy.handle() as Handle, self.size_bytes);
            let (list, none) = (std::ptr::null(), std::ptr::null_mut());
            (api.enqueue_copy_buffer)(*queue, self.handle, to, 0, 0, size, 0, list, none)
        };
        check("clEnqueueCopyBuffer", code)?;
        Ok(copy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_says_what_its_floats_lack() {
        let least = CL_FP_INF_NAN | CL_FP_ROUND_TO_NEAREST;
        let exact = least | CL_FP_DENORM | CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT;
        assert_eq!(inexact_floats(exact).as_deref(), Ok(""));
        let text = inexact_floats(least).unwrap();
        assert!(text.contains("denormals") && text.contains("2.5 ulp"), "{text}");
        for bit in [CL_FP_INF_NAN, CL_FP_ROUND_TO_NEAREST] {
            assert!(inexact_floats(exact & !bit).is_err());
        }
    }
}
