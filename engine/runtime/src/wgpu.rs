//! Kernels as WGSL, run by the crate `wgpu` on what this machine has: Vulkan, whose library is
//! looked for when the device is opened, or Metal on Apple's systems.
//!
//! Global ranges number the groups and local ranges the threads of a group, the innermost range
//! as x. Memories have a copy in a buffer of the device (see `remote`), each element in a word of
//! 32 bits; an f16 takes half a word where the device has that type, types of 64 bits take two.
//! Launches are noted down and handed over together when bytes are asked for. The first GPU is
//! taken, else the first adapter, or the one whose number `GRADIFF_WGPU_DEVICE` gives. The device
//! `wgpu-core` is the same one without extensions, hence without f16 and types of 64 bits: kernels
//! for it are written in the core of WGSL.
//!
//! The checks that `wgpu` writes into kernels stay: without them a kernel is as good as unsafe
//! code, and what strays is found by the checked interpreter, not here. Local memory is not
//! cleared, as kernels write what they read.

mod copies;

use std::borrow::Cow;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use ::wgpu::{self as api, BufferUsages};
use gradiff_graph::{Arg, AxisKind, BoundedLinear, DType, Linear, Op};
use rustc_hash::FxHashMap;

use crate::device::plain;
use crate::device::{GroupLimits, Limits};
use crate::launch::{Launch, Texts};
use crate::memory::{Memory, Parameter, Signature};
use crate::remote;
use crate::{Device, Error, Executable, environment};
use copies::OnDevice;

/// How many launches are noted down at most before they are handed over.
const LAUNCHES_MAX: usize = 64;

/// What an adapter may have: f16, integers of 64 bits, f64.
const HALF: api::Features = api::Features::SHADER_F16;
const WIDE_INT: api::Features = api::Features::SHADER_INT64;
const WIDE_FLOAT: api::Features = api::Features::SHADER_F64;

/// Bytes that an element of local memory is counted with at least, an f16 as well.
const WORD_BYTES: u64 = 4;

/// The driver that ends the loops of a thread, wherever they are, after so many steps in all,
/// without a word. A loop counts one step more than it has, each time that it is entered.
const ENDS_LOOPS: (&str, u64) = ("llvmpipe", 65_535);

/// The device.
pub(crate) struct Wgpu {
    name: &'static str,
    opened: Arc<Opened>,
    description: String,
    groups: GroupLimits,
    /// How many steps the loops of a thread take in all, where there is a limit.
    steps_max: u64,
}

/// What kernels and copies hold on to.
struct Opened {
    device: api::Device,
    queue: api::Queue,
    limits: api::Limits,
    /// What the device complained of since it was last asked.
    said: Arc<Mutex<Vec<String>>>,
    work: Mutex<Work>,
}

/// What changes. Who has it locked has the device for itself, so that complaints are its own.
#[derive(Default)]
struct Work {
    /// Launches that are noted down, and how many.
    encoder: Option<api::CommandEncoder>,
    count: usize,
    /// The number of what is noted down, from 1 on.
    number: u64,
    buffers: Vec<Slot>,
    /// By what is written of the arrays of a kernel.
    layouts: FxHashMap<Vec<bool>, (api::BindGroupLayout, api::PipelineLayout)>,
    /// Where bytes are read by the host.
    landing: Option<api::Buffer>,
}

/// A buffer in the list of buffers, or a part of one.
#[derive(Clone, Default)]
struct Slot {
    buffer: Option<api::Buffer>,
    /// Where in the buffer it begins, in bytes.
    offset: u64,
    /// The number of the work that used the buffer last.
    used: Arc<AtomicU64>,
}

/// The answer of a call that only on the web has to be waited for.
fn ready<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(answer) => return answer,
            Poll::Pending => std::thread::yield_now(),
        }
    }
}

impl Wgpu {
    /// Finds an adapter and opens it, with f16 and types of 64 bits if it has them.
    pub(crate) fn open() -> Result<Wgpu, Error> {
        Wgpu::open_with("wgpu", HALF.union(WIDE_INT).union(WIDE_FLOAT))
    }

    /// Finds an adapter and opens it without extensions.
    pub(crate) fn open_core() -> Result<Wgpu, Error> {
        Wgpu::open_with("wgpu-core", api::Features::empty())
    }

    fn open_with(name: &'static str, features: api::Features) -> Result<Wgpu, Error> {
        let unavailable = |why: String| Error::Unavailable { device: name, why };
        let backends = api::Backends::VULKAN | api::Backends::METAL;
        let mut options = api::InstanceDescriptor::new_without_display_handle();
        options.backends = backends;
        options.flags = api::InstanceFlags::empty();
        let instance = api::Instance::new(options);
        let adapters = ready(instance.enumerate_adapters(backends));
        let chosen = environment::chosen("GRADIFF_WGPU_DEVICE", adapters.len());
        let is_gpu =
            |adapter: &api::Adapter| adapter.get_info().device_type != api::DeviceType::Cpu;
        let number = chosen
            .map_err(unavailable)?
            .unwrap_or_else(|| adapters.iter().position(is_gpu).unwrap_or(0));
        let adapter = adapters.get(number).ok_or_else(|| {
            unavailable(
                "no adapter was found; install a driver for Vulkan and its loader (on Debian \
                 libvulkan1 and mesa-vulkan-drivers, which has one that needs no GPU)"
                    .into(),
            )
        })?;
        let opened = Opened::new(adapter, features).map_err(unavailable)?;
        Ok(Wgpu::of(name, opened, &adapter.get_info()))
    }

    fn of(name: &'static str, opened: Opened, info: &api::AdapterInfo) -> Wgpu {
        let limits = &opened.limits;
        let description = format!(
            "{} ({}, {:?}), driver {} {}, {} arrays a kernel, f16 {}, {}",
            info.name,
            info.backend,
            info.device_type,
            info.driver,
            info.driver_info,
            limits.max_storage_buffers_per_shader_stage,
            if opened.has_f16() { "in half a word" } else { "by its bits" },
            match [DType::I64, DType::F64].map(|dtype| opened.has(dtype)) {
                [true, true] => "types of 64 bits",
                [true, false] => "integers of 64 bits",
                _ => "no type of 64 bits",
            }
        );
        let groups = GroupLimits {
            threads_max: limits.max_compute_invocations_per_workgroup.into(),
            sizes_max: [
                limits.max_compute_workgroup_size_x.into(),
                limits.max_compute_workgroup_size_y.into(),
                limits.max_compute_workgroup_size_z.into(),
            ],
            groups_max: [limits.max_compute_workgroups_per_dimension.into(); 3],
            local_bytes: limits.max_compute_workgroup_storage_size.into(),
        };
        let (driver, most) = ENDS_LOOPS;
        let steps_max = if info.driver == driver { most } else { u64::MAX };
        Wgpu { name, opened: Arc::new(opened), description, groups, steps_max }
    }

    /// Whether the device takes the arrays of a kernel.
    fn check_arrays(&self, signature: &Signature) -> Result<(), Error> {
        let refuse = |what: String| {
            Err(Error::Launch { device: self.name, kernel: signature.name.clone(), what })
        };
        let limits = &self.opened.limits;
        let most = limits.max_storage_buffers_per_shader_stage as usize;
        if most < signature.parameters.len() {
            let count = signature.parameters.len();
            return refuse(format!("takes {most} arrays at most, not {count}"));
        }
        let size = |parameter: &Parameter| {
            (parameter.size_elements.max(0) as u64)
                .saturating_mul(self.opened.stored_bytes(parameter.dtype) as u64)
        };
        let most = limits.max_storage_buffer_binding_size.min(limits.max_buffer_size);
        if let Some(size) = signature.parameters.iter().map(size).find(|size| most < *size) {
            return refuse(format!("takes arrays of {most} bytes at most, not {size}"));
        }
        Ok(())
    }
}

impl Opened {
    fn new(adapter: &api::Adapter, features: api::Features) -> Result<Opened, String> {
        let limits = adapter.limits();
        let (device, queue) = ready(adapter.request_device(&api::DeviceDescriptor {
            required_features: adapter.features() & features,
            required_limits: limits.clone(),
            memory_hints: api::MemoryHints::MemoryUsage,
            ..Default::default()
        }))
        .map_err(|error| error.to_string())?;
        let said: Arc<Mutex<Vec<String>>> = Arc::default();
        let (complaints, loss) = (said.clone(), said.clone());
        device.on_uncaptured_error(Arc::new(move |error: api::Error| {
            note(&complaints, error.to_string());
        }));
        device.set_device_lost_callback(move |_, why| note(&loss, format!("it is lost: {why}")));
        let work = Mutex::new(Work { number: 1, ..Work::default() });
        Ok(Opened { device, queue, limits, said, work })
    }

    fn has_f16(&self) -> bool {
        self.device.features().contains(HALF)
    }

    /// Whether there is a type, or one that holds it; the core of WGSL has none of 64 bits.
    fn has(&self, dtype: DType) -> bool {
        let needed = match dtype {
            DType::I64 | DType::U64 => HALF.union(WIDE_INT),
            // Its bits are an integer.
            DType::F64 => HALF.union(WIDE_INT).union(WIDE_FLOAT),
            _ => api::Features::empty(),
        };
        self.device.features().contains(needed)
    }

    /// How many bytes an element takes on the device.
    fn stored_bytes(&self, dtype: DType) -> usize {
        let is_half = dtype == DType::F16 && self.has_f16();
        if is_half { 2 } else { dtype.size_bytes().max(4) }
    }

    fn lock(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a call gives, unless the device complains.
    fn checked<T>(&self, call: &'static str, work: impl FnOnce() -> T) -> Result<T, Error> {
        let answer = work();
        let said = std::mem::take(&mut *self.said.lock().unwrap_or_else(PoisonError::into_inner));
        match said.is_empty() {
            true => Ok(answer),
            false => Err(Error::Driver { device: "wgpu", call, why: said.join("; ") }),
        }
    }

    /// A kernel made ready.
    fn pipeline(
        &self,
        work: &mut Work,
        signature: &Signature,
        (name, text): (&str, String),
    ) -> Result<api::ComputePipeline, Error> {
        let source = api::ShaderSource::Wgsl(Cow::Owned(text));
        let refused = |error: Error| Error::CompilerFailed {
            compiler: "wgpu".into(),
            kernels: name.to_string(),
            source_path: None,
            stderr: error.to_string(),
        };
        let module = self
            .checked("create_shader_module", || {
                let label = Some(name);
                self.device.create_shader_module(api::ShaderModuleDescriptor { label, source })
            })
            .map_err(refused)?;
        let written = signature.parameters.iter().map(|parameter| parameter.is_written).collect();
        let (_, layout) = work.layouts.entry(written).or_insert_with_key(|key| self.layout(key));
        let compilation_options = api::PipelineCompilationOptions {
            zero_initialize_workgroup_memory: false,
            ..Default::default()
        };
        self.checked("create_compute_pipeline", || {
            self.device.create_compute_pipeline(&api::ComputePipelineDescriptor {
                label: Some(name),
                layout: Some(layout),
                module: &module,
                entry_point: Some(name),
                compilation_options,
                cache: None,
            })
        })
        .map_err(refused)
    }

    /// The arrays of kernels that write these of them.
    fn layout(&self, written: &[bool]) -> (api::BindGroupLayout, api::PipelineLayout) {
        let entry = |(binding, is_written): (u32, &bool)| api::BindGroupLayoutEntry {
            binding,
            visibility: api::ShaderStages::COMPUTE,
            ty: api::BindingType::Buffer {
                ty: api::BufferBindingType::Storage { read_only: !is_written },
                has_dynamic_offset: false,
                min_binding_size: None,
            },
            count: None,
        };
        let entries: Vec<_> = (0..).zip(written).map(entry).collect();
        let descriptor = api::BindGroupLayoutDescriptor { label: None, entries: &entries };
        let group = self.device.create_bind_group_layout(&descriptor);
        let pipeline = self.device.create_pipeline_layout(&api::PipelineLayoutDescriptor {
            label: None,
            bind_group_layouts: &[Some(&group)],
            immediate_size: 0,
        });
        (group, pipeline)
    }

    /// Hands over what is noted down.
    fn submit(&self, work: &mut Work) -> Result<(), Error> {
        work.number += 1;
        work.count = 0;
        let Some(encoder) = work.encoder.take() else { return Ok(()) };
        self.checked("submit", || {
            self.queue.submit([encoder.finish()]);
        })
    }

    /// Where the next command is noted down.
    fn encoder<'a>(&self, work: &'a mut Work) -> &'a mut api::CommandEncoder {
        let start = || self.device.create_command_encoder(&Default::default());
        work.encoder.get_or_insert_with(start)
    }

    fn wait(&self) -> Result<(), Error> {
        let waited =
            self.checked("poll", || self.device.poll(api::PollType::wait_indefinitely()))?;
        let failed = |error: api::PollError| Error::Driver {
            device: "wgpu",
            call: "poll",
            why: error.to_string(),
        };
        waited.map(drop).map_err(failed)
    }

    fn buffer(&self, size_bytes: usize, usage: BufferUsages) -> Result<api::Buffer, Error> {
        let size = size_bytes as u64;
        if self.limits.max_buffer_size < size {
            let why = format!("{size} bytes are more than it takes");
            return Err(Error::Driver { device: "wgpu", call: "create_buffer", why });
        }
        self.checked("create_buffer", || {
            self.device.create_buffer(&api::BufferDescriptor {
                label: None,
                size,
                usage,
                mapped_at_creation: false,
            })
        })
    }
}

/// The steps of all loops of a thread, with one more for each time that a loop is entered.
fn loop_steps(kernel: &Linear) -> u64 {
    let (mut all, mut open) = (0u64, vec![1u64]);
    for uop in &kernel.uops {
        let entered = open.last().copied().unwrap_or(1);
        match (uop.op, &uop.arg) {
            (Op::Range, Arg::Axis(axis)) => {
                let is_launched = matches!(axis.kind, AxisKind::Global | AxisKind::Local);
                let end = match kernel.uops[uop.src[0] as usize].arg {
                    Arg::Const(end) => end.to_int().and_then(|end| u64::try_from(end).ok()),
                    _ => None,
                };
                let steps = if is_launched { 1 } else { end.unwrap_or(1) };
                if !is_launched {
                    all = all.saturating_add(entered.saturating_mul(steps.saturating_add(1)));
                }
                open.push(entered.saturating_mul(steps));
            }
            (Op::EndRange, _) => drop(open.pop()),
            _ => {}
        }
    }
    all
}

fn note(list: &Mutex<Vec<String>>, text: String) {
    list.lock().unwrap_or_else(PoisonError::into_inner).push(text);
}

struct Kernel {
    signature: Signature,
    launch: Launch,
    pipeline: api::ComputePipeline,
    opened: Arc<Opened>,
}

impl Device for Wgpu {
    fn name(&self) -> &'static str {
        self.name
    }

    fn target(&self) -> &'static str {
        "wgpu"
    }

    fn compile(&self, kernels: &[&BoundedLinear]) -> Result<Vec<Arc<dyn Executable>>, Error> {
        let kernels = plain(kernels)?;
        for kernel in &kernels {
            if let Some(what) = self.lacks(kernel) {
                let kernel = kernel.name.clone();
                return Err(Error::Launch { device: self.name, kernel, what });
            }
        }
        let language = if self.opened.has_f16() { "wgsl" } else { "wgsl-core" };
        let texts = Texts::new(self.name, language, &kernels)?;
        let mut pipelines: Vec<Option<api::ComputePipeline>> = vec![None; texts.named.len()];
        let mut made: Vec<Arc<dyn Executable>> = Vec::with_capacity(kernels.len());
        for (kernel, number) in kernels.iter().zip(&texts.number_of) {
            let signature = Signature::of(kernel)?;
            let launch = Launch::new(self.name, &self.groups, WORD_BYTES, kernel)?;
            let pipeline = match &mut pipelines[*number] {
                Some(pipeline) => pipeline.clone(),
                none => {
                    let (text, name) = texts.file(std::slice::from_ref(&texts.named[*number]));
                    self.check_arrays(&signature)?;
                    let work = &mut *self.opened.lock();
                    let pipeline = self.opened.pipeline(work, &signature, (&name, text))?;
                    none.insert(pipeline).clone()
                }
            };
            made.push(Arc::new(Kernel {
                signature,
                launch,
                pipeline,
                opened: self.opened.clone(),
            }));
        }
        Ok(made)
    }

    /// How exact functions are WGSL leaves open, and drivers take that: log2 of the smallest
    /// numbers is off by 22 on Mesa 22.3. Kernels for the target `wgpu` have them written out.
    fn lacks(&self, kernel: &Linear) -> Option<String> {
        let is_type = |dtype| self.opened.has(dtype);
        let is_function = |op| matches!(op, Op::Exp2 | Op::Log2 | Op::Sin | Op::Pow);
        let missing = kernel.uops.iter().find(|uop| !is_type(uop.dtype) || is_function(uop.op));
        match missing {
            Some(uop) if is_type(uop.dtype) => {
                Some(format!("has no exact {} of {}", uop.op, uop.dtype))
            }
            Some(uop) => Some(format!("has no {}", uop.dtype)),
            None if self.steps_max < loop_steps(kernel) => {
                Some(format!("ends loops after {} steps in all", self.steps_max))
            }
            None => None,
        }
    }

    fn describe(&self) -> String {
        self.description.clone()
    }

    /// A pipeline of llvmpipe takes 130 KiB if the kernel is small, and 300 as hunts go.
    fn kernels_kept(&self) -> usize {
        256
    }

    fn limits(&self) -> Limits {
        Limits { groups: Some(self.groups), vector_bytes: 0, thread_count: 0 }
    }

    fn wait(&self) -> Result<(), Error> {
        let work = &mut *self.opened.lock();
        self.opened.submit(work)?;
        self.opened.wait()
    }
}

impl Executable for Kernel {
    fn run(&self, memories: &[&Memory]) -> Result<(), Error> {
        let place = OnDevice(&self.opened);
        remote::run_on(&place, &self.signature, memories, |handles| {
            if self.launch.is_empty() {
                return Ok(());
            }
            let opened = &*self.opened;
            let work = &mut *opened.lock();
            opened.checked("dispatch_workgroups", || self.note_down(work, handles))?;
            if LAUNCHES_MAX <= work.count { opened.submit(work) } else { Ok(()) }
        })
    }
}

impl Kernel {
    /// Notes down a launch over the buffers of these numbers.
    fn note_down(&self, work: &mut Work, handles: &[usize]) {
        let arrays = handles.iter().zip(&self.signature.parameters);
        for handle in handles {
            work.buffers[*handle].used.store(work.number, Ordering::Relaxed);
        }
        let entry = |(binding, (handle, parameter)): (u32, (&usize, &Parameter))| {
            let size =
                parameter.size_elements as u64 * self.opened.stored_bytes(parameter.dtype) as u64;
            let Slot { buffer, offset, .. } = &work.buffers[*handle];
            let (buffer, offset) = (buffer.as_ref().expect("it is in use"), *offset);
            let size = std::num::NonZeroU64::new(size.next_multiple_of(4).max(4));
            let resource = api::BufferBinding { buffer, offset, size };
            api::BindGroupEntry { binding, resource: api::BindingResource::Buffer(resource) }
        };
        let entries: Vec<_> = (0..).zip(arrays).map(entry).collect();
        let written: Vec<bool> = self.signature.parameters.iter().map(|p| p.is_written).collect();
        let bound = self.opened.device.create_bind_group(&api::BindGroupDescriptor {
            label: None,
            layout: &work.layouts[&written].0,
            entries: &entries,
        });
        let mut pass = self.opened.encoder(work).begin_compute_pass(&Default::default());
        pass.set_pipeline(&self.pipeline);
        pass.set_bind_group(0, &bound, &[]);
        let [x, y, z] = self.launch.groups.map(|count| count as u32);
        pass.dispatch_workgroups(x, y, z);
        drop(pass);
        work.count += 1;
    }
}
