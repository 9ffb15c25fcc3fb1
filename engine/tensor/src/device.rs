//! The devices of tensors: where their kernels run, copies from one to another, and the computation
//! of tensors by the engines of the process, one for each device.
//!
//! Memory is coherent between devices, so a device says where kernels run, not where the bytes are.
//! An [`Engine`] that a program makes itself is not used here.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use gradiff_graph::{Arg, Buffer, Op, Placement, UOp};
use gradiff_runtime::{default_device, device_name};
use gradiff_schedule::Parts;

use crate::error::invalid;
use crate::placement::name_of;
use crate::tensor::{buffer_of, constant_node, rebind, reshape_node, with_shape};
use crate::{Engine, Error, Tensor};

impl Tensor {
    /// The device that the tensor is computed on if it is read: that of the data that it is made
    /// of, or that of the last [`to`](Tensor::to). The default device
    /// ([`default_device`](crate::default_device)) for data without a `to`, and for constants and
    /// counters, which combine with tensors of any device and are computed there. Computing a
    /// tensor does not change where it is.
    /// # Errors
    /// If the default device is needed, and the environment variables that select it are wrong.
    pub fn device(&self) -> Result<&'static str, Error> {
        name_of(self.uop().device().unwrap_or(&Placement::Default))
    }

    /// Returns the same elements on another device, on which everything that is made of the result
    /// is computed; the same tensor if it is there already. Like all methods this only builds a
    /// graph. When the result is computed, the source is computed on its device, and its bytes are
    /// moved when a kernel of the other device reads them. A source of constants and counters alone
    /// is computed on `device`.
    ///
    /// `device` is a name that `Engine::new` takes, in lower or upper case, `:0` after it or not.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[2], &[1, 2])?.to("interp")?;
    /// let sum = x.add(&Tensor::from_slice(&[2], &[10, 20])?.to("interp")?)?;
    /// assert_eq!((sum.device()?, sum.to("jit")?.to_vec::<i32>()?), ("interp", vec![11, 22]));
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    /// # Errors
    /// If there is no such device. Whether it can be used is found out when the tensor is computed.
    pub fn to(&self, device: &str) -> Result<Tensor, Error> {
        let Ok(target) = device_name(device) else {
            let known = gradiff_runtime::device_names().join(", ");
            return invalid(format!(
                "to({device:?}): there is no such device; devices are {known}"
            ));
        };
        let node = self.uop();
        match node.device() {
            Some(Placement::Named(name)) if **name == *target => return Ok(self.unchanged()),
            Some(Placement::Default) if default_device()? == target => return Ok(self.unchanged()),
            _ => {}
        }
        let arg = Arg::Device(Placement::Named(target.into()));
        Ok(Tensor::from_valid(with_shape(UOp::new(Op::Copy, self.dtype(), [node], arg))))
    }

    /// Puts data on the device of another tensor.
    pub(crate) fn beside(&self, other: &Tensor) -> Result<Tensor, Error> {
        match other.uop().device() {
            Some(Placement::Named(device)) => self.to(device),
            _ => Ok(self.clone()),
        }
    }

    /// Computes the tensor on its device. Afterwards it is in a buffer, or is a constant. Reads do
    /// this if it is necessary.
    /// # Errors
    /// If a device cannot be opened, or the tensor cannot be scheduled, compiled or run.
    pub fn realize(&self) -> Result<(), Error> {
        realize(&[self])
    }
}

/// Computes tensors, each on its device. Those on the same device are computed together: what they
/// share is computed once.
///
/// Each device has an engine for the whole process, which is made at its first use as
/// [`Engine::new`] does. The calls of all threads share it and its compiled kernels.
/// # Errors
/// If a device cannot be opened, tensors on different devices are operands of an op, or the tensors
/// cannot be scheduled, compiled or run. They are unchanged then.
pub fn realize(tensors: &[&Tensor]) -> Result<(), Error> {
    computed(tensors).map(drop)
}

/// Computes tensors as [`realize`] does. Returns the buffers, reshaped or not, and constants.
pub(crate) fn computed(tensors: &[&Tensor]) -> Result<Vec<UOp>, Error> {
    let nodes: Vec<UOp> = tensors.iter().map(|tensor| tensor.uop()).collect();
    let mut parts = Parts::new(&nodes, name_of)?;
    while let Some(part) = parts.take() {
        let results = match in_place(&part.nodes)? {
            Some(results) => results,
            None => engine(part.device)?.compute(&part.nodes)?,
        };
        parts.finish(part, results, copy)?;
    }
    let outputs = parts.outputs();
    rebind(tensors, &nodes, &outputs);
    Ok(outputs)
}

/// Returns the results of nodes that are all in buffers already, or constants, so that no device is
/// needed; else `None`.
fn in_place(nodes: &[UOp]) -> Result<Option<Vec<UOp>>, Error> {
    let mut results = Vec::with_capacity(nodes.len());
    for node in nodes {
        match crate::slices::in_place(node)? {
            Some(result) => results.push(result),
            None if gradiff_schedule::constant_of(node).is_some() => results.push(node.clone()),
            None => return Ok(None),
        }
    }
    Ok(Some(results))
}

/// Returns a computed node on another device. The buffer is a new one that shares the memory until
/// either is written, so nothing is moved before a kernel of the other device runs.
fn copy(node: &UOp, target: &Placement) -> Result<UOp, Error> {
    let shape = node.shape().expect("a computed node has a shape");
    if let Some(value) = gradiff_schedule::constant_of(node) {
        return Ok(constant_node(value, shape));
    }
    let buffer = buffer_of(node).expect("a computed node is in a buffer or a constant");
    let memory = gradiff_runtime::memory_of(&buffer)?;
    if !memory.is_initialised() {
        return invalid(format!(
            "copy of {buffer:?} to {target}: it has no data, since its plan has not run (device \
             `null` runs nothing)"
        ));
    }
    let part = Arc::new(memory.part(0, memory.size_elements())?);
    let copied = Buffer::on(target.clone(), buffer.dtype(), buffer.size_elements());
    copied.memory_or_init(|| part);
    let copied = UOp::new(Op::Buffer, buffer.dtype(), [], Arg::Buffer(copied));
    Ok(reshape_node(copied, shape))
}

/// The engine of a device, once it could be opened.
type Slot = Arc<Mutex<Option<Arc<Engine>>>>;

/// Returns the engine of a device for the whole process. If the device could not be opened, tries
/// again.
fn engine(device: &'static str) -> Result<Arc<Engine>, Error> {
    if gradiff_rewrite::rules::is_changed() {
        // Kernels that changed rules made are not for later callers.
        return Ok(Arc::new(Engine::new(device)?));
    }
    static ENGINES: Mutex<BTreeMap<&'static str, Slot>> = Mutex::new(BTreeMap::new());
    let slot = {
        let mut engines = ENGINES.lock().unwrap_or_else(PoisonError::into_inner);
        engines.entry(device).or_default().clone()
    };
    // Threads that need another device do not wait for this one.
    let mut opened = slot.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(engine) = &*opened {
        return Ok(engine.clone());
    }
    Ok(opened.insert(Arc::new(Engine::new(device)?)).clone())
}
