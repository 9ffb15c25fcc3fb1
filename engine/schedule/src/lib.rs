//! From a tensor graph to ordered kernels and their buffers.
//!
//! In: tensor-level nodes that are asked for. Out: a list of kernels in the order in which they
//! run, each a tree over views (`Sink(Store(..))`) with the buffers of its parameters, and for each
//! node that was asked for the buffer that will hold it. Nothing is computed or compiled here.
//!
//! Five passes, see [`PASSES`]: movement ops become views; nodes that need a buffer are chosen;
//! each of them becomes a kernel tree; the kernels are ordered; intermediate buffers are shared.
//! What decides about fusion is written down in `realize`.

// A buffer is hashed and compared by its serial number, whatever memory it is given.
#![allow(clippy::mutable_key_type)]

mod error;
mod kernels;
mod memory;
mod realize;
mod views;

use gradiff_graph::{Arg, Buffer, Dims, Op, UOp};

pub use error::Error;

/// Most elements that one buffer may hold.
pub const MAX_BUFFER_ELEMENTS: i64 = 1 << 32;

/// Most nodes that are fused into one kernel, so that the time to compile it stays bounded.
pub const MAX_KERNEL_NODES: u32 = 256;

/// How to schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Options {
    /// Whether several nodes may share a kernel; if not, each has a buffer of its own.
    pub fuse: bool,
    /// Whether views are merged as movement ops are applied (tinygrad's `MERGE_VIEW`).
    pub merge_views: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options { fuse: true, merge_views: true }
    }
}

/// One kernel to be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The kernel as a tree: `Sink(Store(DefineGlobal(slot 0), value))`.
    pub ast: UOp,
    /// Its parameters in the order of their slots; the first one is written.
    pub buffers: Vec<Buffer>,
}

/// Kernels in the order in which they run, and where their results are.
#[derive(Clone, Debug)]
pub struct Schedule {
    /// The kernels; each reads only data and what earlier ones wrote.
    pub items: Vec<Item>,
    /// For each node that was asked for, in the same order: `Reshape(Buffer)` or `Buffer`.
    pub outputs: Vec<UOp>,
}

/// A pass: its name and what it promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pass {
    /// One word.
    pub name: &'static str,
    /// What holds after it.
    pub promise: &'static str,
}

/// The passes in the order in which they run.
pub const PASSES: [Pass; 5] = [
    Pass { name: "views", promise: "movement ops are one View node over what they move" },
    Pass { name: "realize", promise: "each node that gets a buffer is marked Contiguous" },
    Pass { name: "kernels", promise: "one tree for each buffer, views at its leaves, one reduce" },
    Pass { name: "order", promise: "every kernel stands after those that write what it reads" },
    Pass { name: "memory", promise: "intermediate buffers share memory when their life is over" },
];

/// The kernels that compute `outputs`, and the buffers that will hold them.
///
/// Every output gets a buffer of its own size, row-major; one that is a whole buffer already
/// (reshaped or not) costs no kernel. Equal outputs share a buffer.
/// # Errors
/// [`Error`] if a node is none of tensor level, or too large to be held.
pub fn schedule(outputs: &[UOp], options: &Options) -> Result<Schedule, Error> {
    let viewed = views::fold(outputs, options)?;
    let realized = realize::choose(&viewed, options);
    let kernels = kernels::split(&viewed, &realized, options)?;
    let mut items = kernels::order(kernels.items);
    let outputs = kernels.outputs;
    let kept: Vec<Buffer> = outputs.iter().map(|output| buffer_of(output).clone()).collect();
    memory::plan(&mut items, &kept);
    assert_eq!(viewed.outputs.len(), outputs.len(), "each output has a buffer");
    Ok(Schedule { items, outputs })
}

/// The graphs after each pass, by the name of the pass: tensor level for "views" and "realize",
/// kernel trees after that.
/// # Errors
/// As [`schedule`].
pub fn stages(outputs: &[UOp], options: &Options) -> Result<Vec<(&'static str, Vec<UOp>)>, Error> {
    let viewed = views::fold(outputs, options)?;
    let realized = realize::choose(&viewed, options);
    let marked = realize::mark(&viewed, &realized);
    let kernels = kernels::split(&viewed, &realized, options)?;
    let trees = |items: &[Item]| items.iter().map(|item| item.ast.clone()).collect::<Vec<_>>();
    let split = trees(&kernels.items);
    let kept: Vec<Buffer> = kernels.outputs.iter().map(|out| buffer_of(out).clone()).collect();
    let mut items = kernels::order(kernels.items);
    let ordered = trees(&items);
    memory::plan(&mut items, &kept);
    let graphs = [viewed.outputs, marked, split, ordered, trees(&items)];
    Ok(PASSES.iter().map(|pass| pass.name).zip(graphs).collect())
}

/// The buffer under an output of a schedule.
fn buffer_of(output: &UOp) -> &Buffer {
    let node = if output.op() == Op::Reshape { &output.src()[0] } else { output };
    match node.arg() {
        Arg::Buffer(buffer) => buffer,
        _ => panic!("an output is a buffer or the reshape of one"),
    }
}

/// `Buffer` under the sizes of `shape`.
fn shaped(buffer: UOp, shape: &[i64]) -> UOp {
    if buffer.shape() == Some(shape) {
        return buffer;
    }
    let dtype = buffer.dtype();
    let reshaped = UOp::new(Op::Reshape, dtype, [buffer], Arg::Dims(Dims::from_slice(shape)));
    assert_eq!(reshaped.shape(), Some(shape), "a reshape has the shape of its arg");
    reshaped
}

/// The sizes of a tensor-level node.
fn shape_of(node: &UOp) -> &[i64] {
    node.shape().expect("a node of tensor level has a shape")
}

/// How many elements a tensor-level node has.
fn size_of(node: &UOp) -> i64 {
    shape_of(node).iter().product()
}
