//! The device `wgpu`: kernels in WGSL, run by the crate `wgpu` on Vulkan, whose library is loaded
//! when the device is opened, or on Metal on Apple's systems.
//!
//! Global ranges are workgroups and local ranges invocations; the innermost range is x. Memories
//! have a copy in a buffer of the device (see `remote`), each element in a word of 32 bits; an f16
//! takes half a word if the device has the type, types of 64 bits take two words. Launches are
//! recorded, and submitted together when bytes are read. `GRADIFF_WGPU_DEVICE` is the index of the
//! adapter; the default is the first GPU, or else the first adapter. The device `wgpu-core` is the
//! same without extensions, so without f16 and types of 64 bits: its kernels are in core WGSL.
//!
//! The bounds checks that `wgpu` inserts into kernels are kept, since otherwise kernels would be
//! unsafe code; errors are found by the checked interpreter, not here. Local memory is not cleared,
//! since kernels write it before they read it.

mod copies;
mod opened;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ::wgpu as api;
use gradiff_graph::{Arg, AxisKind, BoundedLinear, Linear, Op, Target};

use crate::device::bounded_linears;
use crate::launch::{Launch, Texts};
use crate::memory::Memory;
use crate::signature::{Parameter, Signature};
use crate::{Device, Error, Executable, environment, locked};
use copies::OnDevice;
use opened::{HALF, Opened, Slot, WIDE_FLOAT, WIDE_INT, Work, block_on};

/// The number of recorded launches at which they are submitted.
const LAUNCHES_MAX: usize = 64;

/// A driver that silently ends the loops of a thread after this many iterations in total. Each
/// entry of a loop counts as one iteration more than it has.
const LOOP_LIMIT: (&str, u64) = ("llvmpipe", 65_535);

/// The device.
pub(crate) struct Wgpu {
    name: &'static str,
    opened: Arc<Opened>,
    description: String,
    target: Target,
    /// The maximal number of iterations of all loops of a thread.
    iterations_max: u64,
}

impl Wgpu {
    /// Opens an adapter with f16 and types of 64 bits, as far as it has them.
    pub(crate) fn open() -> Result<Wgpu, Error> {
        Wgpu::open_with("wgpu", HALF.union(WIDE_INT).union(WIDE_FLOAT))
    }

    /// Opens an adapter without extensions.
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
        let adapters = block_on(instance.enumerate_adapters(backends));
        let chosen = environment::selected_device("GRADIFF_WGPU_DEVICE", adapters.len());
        let is_gpu =
            |adapter: &api::Adapter| adapter.get_info().device_type != api::DeviceType::Cpu;
        let number = chosen
            .map_err(unavailable)?
            .unwrap_or_else(|| adapters.iter().position(is_gpu).unwrap_or(0));
        let adapter = adapters.get(number).ok_or_else(|| {
            unavailable(
                "no adapter was found; install a Vulkan driver and the loader (on Debian \
                 libvulkan1 and mesa-vulkan-drivers, which has a driver that needs no GPU)"
                    .into(),
            )
        })?;
        let opened = Opened::new(adapter, features).map_err(unavailable)?;
        Ok(Wgpu::new(name, opened, &adapter.get_info()))
    }

    fn new(name: &'static str, opened: Opened, info: &api::AdapterInfo) -> Wgpu {
        let limits = &opened.limits;
        let description = format!(
            "{} ({}, {:?}), driver {} {}, {} arrays a kernel, f16 {}",
            info.name,
            info.backend,
            info.device_type,
            info.driver,
            info.driver_info,
            limits.max_storage_buffers_per_shader_stage,
            if opened.has_f16() { "in half a word" } else { "by its bits" },
        );
        let target = opened.target();
        let (driver, limit) = LOOP_LIMIT;
        let iterations_max = if info.driver == driver { limit } else { u64::MAX };
        Wgpu { name, opened: Arc::new(opened), description, target, iterations_max }
    }

    /// Checks the number and the sizes of the arrays of a kernel.
    fn check_arrays(&self, signature: &Signature) -> Result<(), Error> {
        let refuse = |problem: String| {
            Err(Error::Launch { device: self.name, kernel: signature.name.clone(), problem })
        };
        let limits = &self.opened.limits;
        let max = limits.max_storage_buffers_per_shader_stage as usize;
        if max < signature.parameters.len() {
            let count = signature.parameters.len();
            return refuse(format!("takes {max} arrays at most, not {count}"));
        }
        let size = |parameter: &Parameter| {
            (parameter.size_elements.max(0) as u64)
                .saturating_mul(self.opened.stored_bytes(parameter.dtype) as u64)
        };
        let max = limits.max_storage_buffer_binding_size.min(limits.max_buffer_size);
        if let Some(size) = signature.parameters.iter().map(size).find(|size| max < *size) {
            return refuse(format!("takes arrays of {max} bytes at most, not {size}"));
        }
        Ok(())
    }
}

/// The number of iterations of all loops of a thread, plus one for each entry of a loop.
fn loop_iterations(kernel: &Linear) -> u64 {
    let (mut total, mut open) = (0u64, vec![1u64]);
    for uop in &kernel.uops {
        let entered = open.last().copied().unwrap_or(1);
        match (uop.op, &uop.arg) {
            (Op::Range, Arg::Axis(axis)) => {
                let is_launched = matches!(axis.kind, AxisKind::Global | AxisKind::Local);
                let end = match kernel.uops[uop.src[0] as usize].arg {
                    Arg::Const(end) => end.to_int().and_then(|end| u64::try_from(end).ok()),
                    _ => None,
                };
                let iterations = if is_launched { 1 } else { end.unwrap_or(1) };
                if !is_launched {
                    total =
                        total.saturating_add(entered.saturating_mul(iterations.saturating_add(1)));
                }
                open.push(entered.saturating_mul(iterations));
            }
            (Op::EndRange, _) => drop(open.pop()),
            _ => {}
        }
    }
    total
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

    fn has_memory(&self) -> bool {
        true
    }

    fn target(&self) -> Target {
        self.target
    }

    fn compile(&self, kernels: &[&BoundedLinear]) -> Result<Vec<Arc<dyn Executable>>, Error> {
        let kernels = bounded_linears(kernels)?;
        for kernel in &kernels {
            if let Some(problem) = self.unsupported(kernel) {
                let kernel = kernel.name.clone();
                return Err(Error::Launch { device: self.name, kernel, problem });
            }
        }
        let texts = Texts::new(self.name, self.opened.language(), &kernels)?;
        let mut pipelines: Vec<Option<api::ComputePipeline>> = vec![None; texts.named.len()];
        let mut executables: Vec<Arc<dyn Executable>> = Vec::with_capacity(kernels.len());
        for (kernel, number) in kernels.iter().zip(&texts.number_of) {
            let signature = Signature::of(kernel)?;
            let launch = Launch::new(self.name, &self.target, kernel)?;
            let pipeline = match &mut pipelines[*number] {
                Some(pipeline) => pipeline.clone(),
                missing => {
                    let (text, name) = texts.file(std::slice::from_ref(&texts.named[*number]));
                    self.check_arrays(&signature)?;
                    let work = &mut *self.opened.lock();
                    let pipeline = self.opened.pipeline(work, &signature, (&name, text))?;
                    missing.insert(pipeline).clone()
                }
            };
            executables.push(Arc::new(Kernel {
                signature,
                launch,
                pipeline,
                opened: self.opened.clone(),
            }));
        }
        Ok(executables)
    }

    fn supports_all(&self) -> bool {
        false
    }

    fn unsupported(&self, kernel: &Linear) -> Option<String> {
        self.target.find_unsupported(kernel).or_else(|| {
            let problem = format!("ends loops after {} iterations in total", self.iterations_max);
            (self.iterations_max < loop_iterations(kernel)).then_some(problem)
        })
    }

    fn describe(&self) -> String {
        self.description.clone()
    }

    /// A pipeline of llvmpipe takes 130 KiB for a small kernel, and 300 KiB on average in hunts.
    fn kernel_cache_capacity(&self) -> usize {
        256
    }

    fn wait(&self) -> Result<(), Error> {
        let work = &mut *self.opened.lock();
        self.opened.submit(work)?;
        self.opened.wait()
    }
}

impl Executable for Kernel {
    fn run(&self, memories: &[&Memory]) -> Result<(), Error> {
        locked::run_on(&OnDevice(&self.opened), &self.signature, memories, |handles| {
            if self.launch.is_empty() {
                return Ok(());
            }
            let opened = &*self.opened;
            let work = &mut *opened.lock();
            let mut arrays = handles.iter().zip(&self.signature.parameters);
            let is_lost = |(handle, parameter): (&usize, &Parameter)| match parameter.is_read {
                true => work.check(*handle),
                false => Ok(()),
            };
            arrays.try_for_each(is_lost)?;
            opened.checked("dispatch_workgroups", || self.record(work, handles))?;
            if LAUNCHES_MAX <= work.count { opened.submit(work) } else { Ok(()) }
        })
    }
}

impl Kernel {
    /// Records a launch with the buffers of these handles.
    fn record(&self, work: &mut Work, handles: &[usize]) {
        let arrays = handles.iter().zip(&self.signature.parameters);
        for (handle, parameter) in arrays.clone() {
            let Slot { last_use, last_write, loss, .. } = &mut work.buffers[*handle];
            last_use.store(work.number, Ordering::Relaxed);
            if parameter.is_written {
                last_write.store(work.number, Ordering::Relaxed);
            }
            // A kernel that does not read an array computes its elements anew.
            if !parameter.is_read {
                *loss = None;
            }
        }
        let entry = |(binding, (handle, parameter)): (u32, (&usize, &Parameter))| {
            let size =
                parameter.size_elements as u64 * self.opened.stored_bytes(parameter.dtype) as u64;
            let Slot { buffer, offset, .. } = &work.buffers[*handle];
            let (buffer, offset) = (buffer.as_ref().expect("the buffer is in use"), *offset);
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
