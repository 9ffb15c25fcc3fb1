//! Parts of buffers: those that tensors share without a kernel, and slices that kernels read. A
//! slice becomes a buffer of its own, so that a kernel depends on the size of a batch of a data
//! set, but not on where it begins.

use std::sync::Arc;

use gradiff_graph::{Arg, Buffer, DType, Op, UOp};
use gradiff_runtime::Memory;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::Error;
use crate::templates::rebuild;
use crate::tensor::reshape_node;

/// A slice has at most the elements of its buffer divided by this. Larger parts are read beside the
/// rest as a rule, as in `x[1:] - x[:-1]`, by kernels that have one array for all.
const MIN_BUFFER_RATIO: i64 = 4;
/// Maximum number of movements between a slice and its buffer.
const MAX_MOVEMENTS: usize = 8;
/// Maximum number of slices of a computation.
const MAX_SLICES: usize = 1024;
/// Maximum size in bytes of a slice that has to be copied, since it is not aligned, and of all that
/// a computation copies. Kernels read the others in their buffers.
const MAX_COPIED_BYTES: i64 = 1 << 20;
const MAX_COPIED_BYTES_TOTAL: i64 = 64 << 20;
/// Alignment of parts that share bytes, as that of a [`Memory`].
const ALIGNMENT_BYTES: i64 = 64;

/// Returns a buffer node for a node that needs no kernel: a whole buffer, or a contiguous part of
/// one that shares that part of the memory in a new buffer. `None` for other nodes, for buffers
/// without data, and if the bytes are only on a device that does not allow a part to begin there.
pub(crate) fn in_place(node: &UOp) -> Result<Option<UOp>, Error> {
    let Some((buffer, start)) = gradiff_schedule::part_of(node) else { return Ok(None) };
    let shape = node.shape().expect("a node of tensor level has a shape");
    let size_elements: i64 = shape.iter().product();
    if size_elements == buffer.size_elements() && node.device() == buffer.placement() {
        let whole = UOp::new(Op::Buffer, buffer.dtype(), [], Arg::Buffer(buffer));
        return Ok(Some(reshape_node(whole, shape)));
    }
    in_buffer(node, &buffer, |memory| {
        let range = [start, size_elements].map(usize::try_from);
        let ([Ok(start), Ok(size)], true) = (range, memory.is_initialised()) else {
            return Ok(None);
        };
        memory.part_in_place(start, size)
    })
}

/// Returns a node equal to `node`: a new buffer whose memory is the part that is taken of the
/// memory of a buffer. `None` if there is none.
fn in_buffer(
    node: &UOp,
    buffer: &Buffer,
    part: impl FnOnce(&Memory) -> Result<Option<Memory>, gradiff_runtime::Error>,
) -> Result<Option<UOp>, Error> {
    if buffer.memory().is_none() {
        return Ok(None);
    }
    let memory = gradiff_runtime::memory_of(buffer)?;
    let Some(memory) = part(&memory)?.map(Arc::new) else { return Ok(None) };
    let shape = node.shape().expect("a node of tensor level has a shape");
    let part = Buffer::on(node.device().cloned(), buffer.dtype(), shape.iter().product());
    part.memory_or_init(|| memory);
    let node = UOp::new(Op::Buffer, part.dtype(), [], Arg::Buffer(part));
    Ok(Some(reshape_node(node, shape)))
}

/// Replaces slices of buffers by buffers that share their bytes, or have copies of them; of a slice
/// of a slice, the upper one. At most `limit` are replaced: a kernel has an array for each. For a
/// device with memory of its own (`on_device`) those are replaced whose bytes are there.
///
/// # Errors
/// Those of devices that have the bytes; there is no memory for a copy.
pub(crate) fn replaced(nodes: Vec<UOp>, limit: usize, on_device: bool) -> Result<Vec<UOp>, Error> {
    let sink = UOp::new(Op::Sink, DType::Void, nodes.iter().cloned(), Arg::None);
    let order = sink.value_order();
    if !order.iter().any(|node| is_slice(node)) {
        return Ok(nodes);
    }
    let limit = limit.min(MAX_SLICES);
    let mut visited: FxHashSet<&UOp> = FxHashSet::from_iter([&sink]);
    let mut slices: FxHashMap<&UOp, UOp> = FxHashMap::default();
    let mut left_bytes = MAX_COPIED_BYTES_TOTAL;
    // The users of a node come before it.
    for node in order.iter().rev() {
        if slices.len() == limit {
            break;
        }
        if !visited.contains(node) {
            continue;
        }
        let slice = match is_slice(node) {
            true => in_own_buffer(node, on_device, &mut left_bytes)?,
            false => None,
        };
        match slice {
            Some(slice) => drop(slices.insert(node, slice)),
            None => visited.extend(node.value_src()),
        }
    }
    if slices.is_empty() {
        return Ok(nodes);
    }
    let (_, below) = order.split_last().expect("the sink is the last node");
    rebuild(below, &mut slices);
    Ok(nodes.iter().map(|node| slices[node].clone()).collect())
}

/// Returns whether a node is a small part of a buffer, cut out of it by a few movements.
fn is_slice(node: &UOp) -> bool {
    let (Op::Shrink, Some(shape)) = (node.op(), node.shape()) else { return false };
    let mut base = node;
    for _ in 0..MAX_MOVEMENTS {
        if !base.op().is_movement() && !base.op().is_marker() {
            break;
        }
        base = &base.src()[0];
    }
    let Arg::Buffer(buffer) = base.arg() else { return false };
    let elements: i64 = shape.iter().product();
    elements <= buffer.size_elements() / MIN_BUFFER_RATIO
}

/// Returns a slice as a buffer of its own, if its elements are contiguous and need no copy, or one
/// within the limits; its size is subtracted from `left_bytes`.
fn in_own_buffer(node: &UOp, on_device: bool, left_bytes: &mut i64) -> Result<Option<UOp>, Error> {
    let Some((buffer, start)) = gradiff_schedule::part_of(node) else { return Ok(None) };
    let shape = node.shape().expect("a node of tensor level has a shape");
    let elements: i64 = shape.iter().product();
    let [start_bytes, size_bytes] =
        [start, elements].map(|count| count * buffer.dtype().size_bytes() as i64);
    if start_bytes % ALIGNMENT_BYTES != 0 && !on_device {
        if MAX_COPIED_BYTES.min(*left_bytes) < size_bytes {
            return Ok(None);
        }
        *left_bytes -= size_bytes;
    }
    in_buffer(node, &buffer, |memory| {
        let [Ok(start), Ok(size)] = [start, elements].map(usize::try_from) else { return Ok(None) };
        memory.temporary_part(start, size, on_device)
    })
}
