//! From a tensor graph to ordered kernels and their buffers.
//!
//! In: the requested nodes of tensor level. Out: the kernels in the order in which they run, each a
//! tree over views (`Sink(Store(..))`) with the buffers of its parameters; and for each requested
//! node the buffer that will hold it, or the constant that it is. Nothing is computed or compiled
//! here.
//!
//! The passes are those of [`PASSES`]: constants are folded; movement ops become views; those of
//! reductions are moved to their sources; operands of large contractions are packed into panels, if
//! that is enabled; the nodes that need a buffer are chosen; each of them becomes a kernel tree;
//! the kernels are ordered; intermediate buffers are shared. The rules of fusion are in `realize`.
//!
//! A schedule is for one device. A graph on several is cut into [`Parts`], which are scheduled one
//! after the other. A `copy` that is scheduled, as all are for an engine that computes everything
//! on its device, gives its source a buffer of its own on the device of the copy.

mod error;
mod fold;
mod kernels;
mod memory;
mod pack;
mod parts;
mod pass;
mod push;
mod realize;
mod rows;
mod split;
mod tuning;
mod views;

use gradiff_graph::target::Thresholds;
use gradiff_graph::{Arg, Buffer, Constant, Dims, Op, Target, UOp};

pub use error::Error;
pub use parts::{Part, Parts};
pub use pass::{PASSES, Pass, schedule, stages};
pub use tuning::MAX_KERNEL_NODES;
pub use views::{MAX_VIEW_ELEMENTS, part_of};

/// The maximum number of elements of a buffer.
pub const MAX_BUFFER_ELEMENTS: i64 = 1 << 32;

/// Reductions that are divided into two kernels, which sums floats in another order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Split {
    /// None.
    Never,
    /// Long ones to few elements.
    FewOutputs,
    /// Long sums of products.
    Products,
}

/// Options of the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Options {
    /// True if several nodes may be computed by one kernel. If not, each node has a buffer.
    pub fuse: bool,
    /// True if views are merged as movement ops are applied (tinygrad's `MERGE_VIEW`).
    pub merge_views: bool,
    /// True if operands of large contractions are packed into panels, of which vectors read
    /// contiguous elements.
    pub pack: bool,
    /// True if reductions over the same rows share a kernel, together with the elementwise ops that
    /// combine their results with the rows.
    pub rows: bool,
    /// True if the threads of a group share a row of such a kernel, which must not be long then. A
    /// large product of matrices then has a kernel of its own, and few ops of a load are repeated.
    pub shared_rows: bool,
    /// The reductions that are divided into two kernels.
    pub split: Split,
    /// True if products of 16-bit floats need not be rounded before they are summed in f32; false
    /// in strict mode.
    pub wide_products: bool,
    /// True if 16-bit floats that are cast to f32 are loaded and cast again where a view repeats
    /// them; false if they are cast once, to a buffer.
    pub widens_again: bool,
    /// The minimum sizes of operands that are packed, and of reductions that are split.
    pub thresholds: Thresholds,
    /// Maximal number of arrays of a kernel, the result included; a node with three sources has
    /// four in any case.
    pub arrays_max: u32,
}

impl Options {
    /// Returns these options with packing enabled if the target is a CPU with vectors, repeated
    /// casts if it has groups of threads, row kernels for both, and the split that suits it;
    /// disabled otherwise.
    pub fn suited(self, target: &Target) -> Options {
        let (has_vectors, has_groups) = (target.is_vector_cpu(), target.groups.is_some());
        let (pack, rows) = (has_vectors, has_vectors || has_groups);
        let split = match (has_groups, has_vectors) {
            (true, _) => Split::FewOutputs,
            (_, true) => Split::Products,
            _ => Split::Never,
        };
        Options { pack, rows, shared_rows: has_groups, split, widens_again: has_groups, ..self }
    }

    /// Returns the most elements of a row of a kernel of several reductions, if they are enabled.
    pub(crate) fn longest_row(&self) -> Option<i64> {
        let longest = match self.shared_rows {
            true => self.thresholds.shared_row_elements,
            false => i64::MAX,
        };
        self.rows.then_some(longest)
    }
}

impl Default for Options {
    fn default() -> Options {
        Options {
            fuse: true,
            merge_views: true,
            pack: false,
            rows: false,
            shared_rows: false,
            split: Split::Never,
            wide_products: true,
            widens_again: false,
            thresholds: Thresholds::USUAL,
            arrays_max: u32::MAX,
        }
    }
}

/// One kernel and its buffers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The kernel as a tree: `Sink(Store(DefineGlobal(slot 0), value))`.
    pub ast: UOp,
    /// The buffers of its parameters in the order of their slots; the first one is written.
    pub buffers: Vec<Buffer>,
}

/// Kernels in execution order, and the buffers of their results.
#[derive(Clone, Debug)]
pub struct Schedule {
    /// The kernels; each reads only inputs and buffers that earlier kernels write.
    pub items: Vec<Item>,
    /// For each requested node, in the same order, `Buffer` or `Reshape(Buffer)`. If all its
    /// elements are the same constant, that constant, reshaped and expanded (see [`constant_of`]).
    pub outputs: Vec<UOp>,
}

/// Returns the constant that an output of a schedule is: a `Const` under any number of `Reshape`,
/// `Expand`, `Copy`, `Parameter` and `Function`. `None` if the output is in a buffer.
pub fn constant_of(node: &UOp) -> Option<Constant> {
    let mut node = node;
    use Op::{Copy, Expand, Function, Parameter, Reshape};
    while matches!(node.op(), Reshape | Expand | Copy | Parameter | Function) {
        node = &node.src()[0];
    }
    node.as_const()
}

/// Returns the buffer of an output of a schedule; `None` for a constant.
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

/// Reshapes a `Buffer` node to `shape`, if it does not have that shape.
fn shaped(buffer: UOp, shape: &[i64]) -> UOp {
    if buffer.shape() == Some(shape) {
        return buffer;
    }
    let dtype = buffer.dtype();
    let reshaped = UOp::new(Op::Reshape, dtype, [buffer], Arg::Dims(Dims::from_slice(shape)));
    assert_eq!(reshaped.shape(), Some(shape), "a reshape has the shape of its arg");
    reshaped
}

/// Returns the shape of a tensor-level node.
fn shape_of(node: &UOp) -> &[i64] {
    node.shape().expect("a node of tensor level has a shape")
}

/// Returns the number of elements of a tensor-level node; the largest number if that is too small
/// for them.
fn size_of(node: &UOp) -> i64 {
    shape_of(node).iter().fold(1, |count: i64, size| count.saturating_mul(*size))
}
