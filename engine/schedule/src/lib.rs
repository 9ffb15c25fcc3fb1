//! From a tensor graph to ordered kernels and their buffers.
//!
//! In: tensor-level nodes that are asked for. Out: a list of kernels in the order in which they
//! run, each a tree over views (`Sink(Store(..))`) with the buffers of its parameters, and for each
//! node that was asked for the buffer that will hold it, or the constant that it is. Nothing is
//! computed or compiled here.
//!
//! Seven passes, see [`PASSES`]: constants fold; movement ops become views; operands of large
//! contractions are laid out as panels, if that is asked for; nodes that need a buffer are chosen;
//! each of them becomes a kernel tree; the kernels are ordered; intermediate buffers are shared.
//! What decides about fusion is written down in `realize`.

mod error;
mod fold;
mod kernels;
mod memory;
mod pack;
mod realize;
mod rows;
mod views;

use gradiff_graph::{Arg, Buffer, Constant, Dims, Op, Thresholds, UOp};

pub use error::Error;
pub use views::part_of;

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
    /// Whether operands of large contractions are laid out as panels, which vectors read well.
    pub pack: bool,
    /// Whether folds of the same rows, and what is made of them along the rows, share a kernel.
    pub rows: bool,
    /// From which sizes on operands are laid out as panels.
    pub thresholds: Thresholds,
}

impl Options {
    /// With what suits a CPU with vectors, or without it.
    pub fn suited(self, has_vectors: bool) -> Options {
        Options { pack: has_vectors, rows: has_vectors, ..self }
    }
}

impl Default for Options {
    fn default() -> Options {
        Options {
            fuse: true,
            merge_views: true,
            pack: false,
            rows: false,
            thresholds: Thresholds::USUAL,
        }
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
    /// For each node that was asked for, in the same order: `Reshape(Buffer)` or `Buffer`; where
    /// all elements are one constant, that constant under the shape (see [`constant_of`]).
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
pub const PASSES: [Pass; 7] = [
    Pass { name: "fold", promise: "known constants are constants, identities are gone" },
    Pass { name: "views", promise: "movement ops are one View node over what they move" },
    Pass { name: "pack", promise: "operands that are read often lie in the order of the reading" },
    Pass { name: "realize", promise: "each node that gets a buffer is marked Contiguous" },
    Pass {
        name: "kernels",
        promise: "one tree for each buffer, views at its leaves and above folds of rows",
    },
    Pass { name: "order", promise: "every kernel stands after those that write what it reads" },
    Pass { name: "memory", promise: "intermediate buffers share memory when their life is over" },
];

/// The kernels that compute `outputs`, and the buffers that will hold them.
///
/// Every output gets a buffer of its own size, row-major; one that is a whole buffer already
/// (reshaped or not) costs no kernel. Equal outputs share a buffer. An output that is the same
/// constant everywhere, or has no elements, needs neither buffer nor kernel.
/// # Errors
/// [`Error`] if a node is none of tensor level, or too large to be held.
pub fn schedule(outputs: &[UOp], options: &Options) -> Result<Schedule, Error> {
    let viewed = packed(views::fold(&fold::constants(outputs)?, options)?, options)?;
    let realized = realize::choose(&viewed, options);
    let kernels = kernels::split(&viewed, &realized, options)?;
    let mut items = kernels::order(kernels.items);
    let outputs = kernels.outputs;
    let kept: Vec<Buffer> = outputs.iter().filter_map(buffer_of).collect();
    memory::plan(&mut items, &kept);
    assert_eq!(viewed.outputs.len(), outputs.len(), "each output has a place or is a constant");
    Ok(Schedule { items, outputs })
}

/// The graphs after each pass, by the name of the pass: tensor level for "fold", "views" and
/// "realize", kernel trees after that.
/// # Errors
/// As [`schedule`].
pub fn stages(outputs: &[UOp], options: &Options) -> Result<Vec<(&'static str, Vec<UOp>)>, Error> {
    let folded = fold::constants(outputs)?;
    let plain = views::fold(&folded, options)?;
    let unpacked = plain.outputs.clone();
    let viewed = packed(plain, options)?;
    let realized = realize::choose(&viewed, options);
    let marked = realize::mark(&viewed, &realized);
    let kernels = kernels::split(&viewed, &realized, options)?;
    let trees = |items: &[Item]| items.iter().map(|item| item.ast.clone()).collect::<Vec<_>>();
    let split = trees(&kernels.items);
    let kept: Vec<Buffer> = kernels.outputs.iter().filter_map(buffer_of).collect();
    let mut items = kernels::order(kernels.items);
    let ordered = trees(&items);
    memory::plan(&mut items, &kept);
    let graphs = [folded, unpacked, viewed.outputs, marked, split, ordered, trees(&items)];
    Ok(PASSES.iter().map(|pass| pass.name).zip(graphs).collect())
}

/// The graph with panels, if they are asked for.
fn packed(viewed: views::Viewed, options: &Options) -> Result<views::Viewed, Error> {
    let panels = if options.pack { pack::pack(&viewed, &options.thresholds) } else { None };
    panels.map_or(Ok(viewed), |outputs| views::fold(&outputs, options))
}

/// The value of a node that says "this constant under that shape", as outputs of a schedule do:
/// `Const` under any number of `Reshape` and `Expand`.
pub fn constant_of(node: &UOp) -> Option<Constant> {
    let mut node = node;
    while matches!(node.op(), Op::Reshape | Op::Expand) {
        node = &node.src()[0];
    }
    node.as_const()
}

/// The buffer under an output of a schedule; none under a constant.
fn buffer_of(output: &UOp) -> Option<Buffer> {
    let node = if output.op() == Op::Reshape { &output.src()[0] } else { output };
    match node.arg() {
        Arg::Buffer(buffer) => Some(buffer.clone()),
        _ => {
            assert!(constant_of(output).is_some(), "an output is in a buffer or a constant");
            None
        }
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
