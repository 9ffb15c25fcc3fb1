//! Parts of buffers: those that tensors share without a kernel, and slices that kernels read. A
//! slice becomes a buffer of its own, so that a kernel depends on the size of a batch of a data
//! set, but not on where it begins.

use std::sync::Arc;

use gradiff_graph::{Arg, Buffer, DType, Op, UOp};
use gradiff_runtime::Memory;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::Error;
use crate::tensor::reshape_node;

/// A slice has at most the elements of its buffer divided by this. Larger parts are read beside the
/// rest as a rule, as in `x[1:] - x[:-1]`, by kernels that have one array for all.
const MIN_RATIO: i64 = 4;
/// Most movements between a slice and its buffer.
const MAX_MOVEMENTS: usize = 8;

/// Returns a buffer node for a node that needs no kernel: a whole buffer, or a contiguous part of
/// one that shares that part of the memory in a new buffer. `None` for other nodes, for buffers
/// without data, and if the bytes are only on a device that does not allow a part to begin there.
pub(crate) fn in_place(node: &UOp) -> Result<Option<UOp>, Error> {
    located(node, Memory::part_in_place)
}

/// As [`in_place`], for a part that is dropped after a few kernels.
fn temporary_part(node: &UOp) -> Result<Option<UOp>, Error> {
    located(node, Memory::temporary_part)
}

/// Takes a part of a memory, given its first element and its size.
type TakePart = fn(&Memory, usize, usize) -> Result<Option<Memory>, gradiff_runtime::Error>;

fn located(node: &UOp, part: TakePart) -> Result<Option<UOp>, Error> {
    let Some((buffer, start)) = gradiff_schedule::part_of(node) else { return Ok(None) };
    let shape = node.shape().expect("a node of tensor level has a shape");
    let size_elements: i64 = shape.iter().product();
    let placement = node.device();
    if size_elements == buffer.size_elements() && placement == buffer.placement() {
        let whole = UOp::new(Op::Buffer, buffer.dtype(), [], Arg::Buffer(buffer));
        return Ok(Some(reshape_node(whole, shape)));
    }
    if buffer.memory().is_none() {
        return Ok(None);
    }
    let memory = gradiff_runtime::memory_of(&buffer)?;
    let range = [start, size_elements].map(usize::try_from);
    let ([Ok(start), Ok(size)], true) = (range, memory.is_initialised()) else { return Ok(None) };
    let Some(memory) = part(&memory, start, size)?.map(Arc::new) else { return Ok(None) };
    let part = Buffer::on(placement.cloned(), buffer.dtype(), size_elements);
    part.memory_or_init(|| memory);
    let node = UOp::new(Op::Buffer, part.dtype(), [], Arg::Buffer(part));
    Ok(Some(reshape_node(node, shape)))
}

/// Replaces slices of buffers by buffers that share their bytes; of a slice of a slice, the upper
/// one. Returns the nodes as they are if there are more than `limit` slices.
///
/// # Errors
/// There is no memory for a slice that has to be copied.
pub(crate) fn bound(nodes: Vec<UOp>, limit: usize) -> Result<Vec<UOp>, Error> {
    let sink = UOp::new(Op::Sink, DType::Void, nodes.iter().cloned(), Arg::None);
    let order = sink.value_order();
    if !order.iter().any(|node| is_slice(node)) {
        return Ok(nodes);
    }
    let mut reached: FxHashSet<&UOp> = FxHashSet::from_iter([&sink]);
    let mut replaced: FxHashMap<&UOp, UOp> = FxHashMap::default();
    // The users of a node come before it.
    for node in order.iter().rev() {
        if !reached.contains(node) {
            continue;
        }
        let slice = if is_slice(node) { temporary_part(node)? } else { None };
        match slice {
            Some(slice) => drop(replaced.insert(node, slice)),
            None => reached.extend(node.value_src()),
        }
    }
    if replaced.is_empty() || limit < replaced.len() {
        return Ok(nodes);
    }
    let (_, below) = order.split_last().expect("the sink is the last node");
    for node in below {
        if replaced.contains_key(node) {
            continue;
        }
        let new = match node.op() {
            // Whether gradients flow makes no difference.
            Op::Parameter | Op::Function | Op::Detach => replaced[&node.src()[0]].clone(),
            _ => node.with_src(node.src().iter().map(|src| replaced[src].clone())),
        };
        replaced.insert(node, new);
    }
    Ok(nodes.iter().map(|node| replaced[node].clone()).collect())
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
    elements <= buffer.size_elements() / MIN_RATIO
}
