//! The open device: its state, and calls whose errors are checked.

use std::borrow::Cow;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use ::wgpu::{self as api, BufferUsages};
use gradiff_graph::target::Groups;
use gradiff_graph::{DType, Target};
use rustc_hash::FxHashMap;

use crate::Error;
use crate::signature::Signature;

/// Optional features of adapters: f16, integers of 64 bits, f64.
pub(super) const HALF: api::Features = api::Features::SHADER_F16;
pub(super) const WIDE_INT: api::Features = api::Features::SHADER_INT64;
pub(super) const WIDE_FLOAT: api::Features = api::Features::SHADER_F64;

/// The open device, shared by kernels and buffers.
pub(super) struct Opened {
    pub(super) device: api::Device,
    pub(super) queue: api::Queue,
    pub(super) limits: api::Limits,
    errors: Arc<Mutex<Errors>>,
    work: Mutex<Work>,
}

/// The errors of the device since the last check.
#[derive(Default)]
struct Errors {
    texts: Vec<String>,
    is_out_of_memory: bool,
    /// The reason why the device is lost. Calls then do nothing, and report no errors.
    loss: Option<String>,
}

impl Errors {
    fn note(&mut self, error: &api::Error) {
        self.is_out_of_memory |= matches!(error, api::Error::OutOfMemory { .. });
        self.texts.push(error.to_string());
    }

    fn note_loss(&mut self, why: &str) {
        self.loss = Some(format!("it is lost: {why}"));
    }

    /// Returns the errors of a call, and forgets them unless the device is lost.
    fn take(&mut self, call: &'static str) -> Result<(), Error> {
        let mut texts = std::mem::take(&mut self.texts);
        let is_out_of_memory = std::mem::take(&mut self.is_out_of_memory);
        texts.extend(self.loss.clone());
        let (device, why) = ("wgpu", texts.join("; "));
        match is_out_of_memory || self.loss.is_some() {
            _ if texts.is_empty() => Ok(()),
            true => Err(Error::DeviceUnusable { device, call, why }),
            false => Err(Error::Driver { device, call, why }),
        }
    }
}

/// The mutable state. While it is locked the device is used exclusively, so that errors can be
/// attributed to the call.
#[derive(Default)]
pub(super) struct Work {
    /// The recorded launches, and their number.
    pub(super) encoder: Option<api::CommandEncoder>,
    pub(super) count: usize,
    /// The number of the current submission, from 1.
    pub(super) number: u64,
    pub(super) buffers: Vec<Slot>,
    /// Layouts, by whether each array of a kernel is written.
    pub(super) layouts: FxHashMap<Vec<bool>, (api::BindGroupLayout, api::PipelineLayout)>,
    /// The staging buffer from which the host reads.
    pub(super) staging: Option<api::Buffer>,
}

/// A buffer in the list of buffers, or a part of one.
#[derive(Clone, Default)]
pub(super) struct Slot {
    pub(super) buffer: Option<api::Buffer>,
    /// The offset in the buffer in bytes.
    pub(super) offset: u64,
    /// The number of the last submission that uses the buffer.
    pub(super) last_use: Arc<AtomicU64>,
    /// The number of the last submission that writes the buffer.
    pub(super) last_write: Arc<AtomicU64>,
    /// The reason why the bytes are lost, until they are uploaded again.
    pub(super) loss: Option<Loss>,
}

/// The error of a submission.
#[derive(Clone)]
pub(super) struct Loss {
    why: Arc<str>,
    is_environment: bool,
}

impl Work {
    /// Marks the bytes that a failed submission should have written as lost.
    fn lose(&mut self, submission: u64, error: &Error) {
        let loss = Loss { why: error.to_string().into(), is_environment: error.is_environment() };
        for slot in &mut self.buffers {
            if slot.last_write.load(Ordering::Relaxed) == submission {
                slot.loss = Some(loss.clone());
            }
        }
    }

    /// Checks that the bytes of a buffer are not lost.
    ///
    /// # Errors
    /// The reason why they are.
    pub(super) fn check(&self, handle: usize) -> Result<(), Error> {
        let Some(Loss { why, is_environment }) = &self.buffers[handle].loss else { return Ok(()) };
        let why = format!("the launches that write these bytes did not run: {why}");
        let (device, call) = ("wgpu", "submit");
        Err(match is_environment {
            true => Error::DeviceUnusable { device, call, why },
            false => Error::Driver { device, call, why },
        })
    }
}

/// Polls a future of `wgpu` to completion; except on the web it is ready at once.
pub(super) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(answer) => return answer,
            Poll::Pending => std::thread::yield_now(),
        }
    }
}

impl Opened {
    pub(super) fn new(adapter: &api::Adapter, features: api::Features) -> Result<Opened, String> {
        let limits = adapter.limits();
        let (device, queue) = block_on(adapter.request_device(&api::DeviceDescriptor {
            required_features: adapter.features() & features,
            required_limits: limits.clone(),
            memory_hints: api::MemoryHints::MemoryUsage,
            ..Default::default()
        }))
        .map_err(|error| error.to_string())?;
        let errors: Arc<Mutex<Errors>> = Arc::default();
        let (uncaptured, loss) = (errors.clone(), errors.clone());
        device
            .on_uncaptured_error(Arc::new(move |error: api::Error| lock(&uncaptured).note(&error)));
        device.set_device_lost_callback(move |_, why| lock(&loss).note_loss(&why));
        let work = Mutex::new(Work { number: 1, ..Work::default() });
        Ok(Opened { device, queue, limits, errors, work })
    }

    pub(super) fn has_f16(&self) -> bool {
        self.device.features().contains(HALF)
    }

    /// The language of kernels, and the name of its target.
    pub(super) fn language(&self) -> &'static str {
        if self.has_f16() { "wgsl" } else { "wgsl-core" }
    }

    /// Describes the device: WGSL's types as far as it has them, the limits that were requested. An
    /// element of local memory, also an f16, takes a word or more.
    ///
    /// WGSL does not specify the accuracy of functions, and drivers make use of that: log2 of the
    /// smallest numbers has an error of 22 on Mesa 22.3. So none of them is supported.
    pub(super) fn target(&self) -> Target {
        let limits = &self.limits;
        let groups = Groups {
            threads: limits.max_compute_invocations_per_workgroup.into(),
            sizes: [
                limits.max_compute_workgroup_size_x.into(),
                limits.max_compute_workgroup_size_y.into(),
                limits.max_compute_workgroup_size_z.into(),
            ],
            counts: [limits.max_compute_workgroups_per_dimension.into(); 3],
            local_bytes: limits.max_compute_workgroup_storage_size.into(),
            element_bytes: 4,
        };
        let target = Target::of(self.language());
        let has = |features| self.device.features().contains(features);
        let unsupported_types = match (has(WIDE_INT), has(WIDE_FLOAT)) {
            _ if !self.has_f16() => target.unsupported_types,
            (true, true) => &[],
            (true, false) => &[DType::F64],
            // f64 also needs integers for its bits.
            (false, _) => Target::of("wgsl-core").unsupported_types,
        };
        let arrays_max = limits.max_storage_buffers_per_shader_stage;
        Target { groups: Some(groups.capped()), unsupported_types, arrays_max, ..target }
    }

    /// The size of an element on the device in bytes.
    pub(super) fn stored_bytes(&self, dtype: DType) -> usize {
        let is_half = dtype == DType::F16 && self.has_f16();
        if is_half { 2 } else { dtype.size_bytes().max(4) }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Work> {
        lock(&self.work)
    }

    /// Makes a call and checks for errors of the device.
    pub(super) fn checked<T>(
        &self,
        call: &'static str,
        work: impl FnOnce() -> T,
    ) -> Result<T, Error> {
        let answer = work();
        lock(&self.errors).take(call).map(|()| answer)
    }

    /// Compiles a kernel.
    pub(super) fn pipeline(
        &self,
        work: &mut Work,
        signature: &Signature,
        (name, text): (&str, String),
    ) -> Result<api::ComputePipeline, Error> {
        let source = api::ShaderSource::Wgsl(Cow::Owned(text));
        let refused = |error: Error| match error {
            Error::DeviceUnusable { .. } => error,
            error => Error::CompilerFailed {
                compiler: "wgpu".into(),
                kernels: name.to_string(),
                source_path: None,
                stderr: error.to_string(),
            },
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

    /// Creates the layouts for kernels with these arrays; `written` says which ones are written.
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

    /// Submits the recorded launches. If that fails, none of them runs: what they should have
    /// written is lost.
    pub(super) fn submit(&self, work: &mut Work) -> Result<(), Error> {
        let submission = work.number;
        work.number += 1;
        work.count = 0;
        let Some(encoder) = work.encoder.take() else { return Ok(()) };
        let submitted = self.checked("submit", || {
            self.queue.submit([encoder.finish()]);
        });
        if let Err(error) = &submitted {
            work.lose(submission, error);
        }
        submitted
    }

    /// The encoder for the next command.
    pub(super) fn encoder<'a>(&self, work: &'a mut Work) -> &'a mut api::CommandEncoder {
        let start = || self.device.create_command_encoder(&Default::default());
        work.encoder.get_or_insert_with(start)
    }

    pub(super) fn wait(&self) -> Result<(), Error> {
        let waited =
            self.checked("poll", || self.device.poll(api::PollType::wait_indefinitely()))?;
        let failed = |error: api::PollError| Error::Driver {
            device: "wgpu",
            call: "poll",
            why: error.to_string(),
        };
        waited.map(drop).map_err(failed)
    }

    /// Creates a buffer. The state shows that the device is locked.
    pub(super) fn buffer(
        &self,
        _: &Work,
        size: u64,
        usage: BufferUsages,
    ) -> Result<api::Buffer, Error> {
        if self.limits.max_buffer_size < size {
            let max = self.limits.max_buffer_size;
            let why = format!("{size} bytes are more than the maximum of {max}");
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The next read gave the old bytes.
    #[test]
    fn results_of_a_failed_submission_are_lost() {
        let slot =
            |last_write: u64| Slot { last_write: Arc::new(last_write.into()), ..Slot::default() };
        let mut work = Work { buffers: [0, 1, 2].map(slot).into(), ..Work::default() };
        // A part shares the numbers of its buffer.
        work.buffers.push(work.buffers[2].clone());
        let (device, call, why) = ("wgpu", "submit", "as requested".to_string());
        for is_environment in [false, true] {
            let why = why.clone();
            let error = match is_environment {
                true => Error::DeviceUnusable { device, call, why },
                false => Error::Driver { device, call, why },
            };
            work.lose(2, &error);
            let errors = [0, 1, 2, 3].map(|handle| work.check(handle).err());
            assert!(errors[0].is_none() && errors[1].is_none());
            for error in errors.into_iter().skip(2) {
                let error = error.expect("the bytes are lost");
                assert_eq!(error.is_environment(), is_environment);
                assert!(error.to_string().contains("did not run"), "{error}");
                assert!(error.to_string().contains("as requested"), "{error}");
            }
        }
    }

    #[test]
    fn loss_and_lack_of_memory_are_environment_errors() {
        let mut errors = Errors::default();
        assert!(errors.take("submit").is_ok());
        let description = "wrong".to_string();
        errors.note(&api::Error::Validation { source: "text".into(), description });
        let error = errors.take("submit").unwrap_err();
        assert!(!error.is_environment() && error.to_string().contains("wrong"), "{error}");
        errors.note(&api::Error::OutOfMemory { source: "text".into() });
        assert!(errors.take("create_buffer").unwrap_err().is_environment());
        assert!(errors.take("submit").is_ok(), "errors are reported once");
        errors.note_loss("it was reset");
        for call in ["submit", "poll"] {
            let error = errors.take(call).unwrap_err();
            assert!(error.is_environment() && error.to_string().contains("reset"), "{error}");
        }
    }
}
