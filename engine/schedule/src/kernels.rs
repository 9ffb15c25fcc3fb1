//! Passes "kernels" and "order": every node that gets a buffer becomes a tree over views.
//!
//! All nodes of a tree have the shape of the output; with a reduction, the reduced shape above it
//! and the full shape below it. In a row kernel there is a view above each reduction that is
//! broadcast along its rows. Other views are pushed down to the leaves, where they are composed
//! with the view of the load. Buffers are numbered by slots in order of appearance, so that equal
//! kernels are the same node.

use gradiff_graph::{Arg, Buffer, DType, Global, Op, UOp};
use gradiff_view::ShapeTracker;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::realize::is_computed;
use crate::views::{self, Viewed};
use crate::{Error, Item, MAX_BUFFER_ELEMENTS, Options, fold, rows, shape_of, shaped, size_of};

/// Kernels in no guaranteed order, and the buffers or constants of the outputs.
pub(crate) struct Trees {
    pub(crate) items: Vec<Item>,
    pub(crate) outputs: Vec<UOp>,
}

/// Makes a kernel of each node in `realized`.
pub(crate) fn trees(
    viewed: &Viewed,
    realized: &FxHashSet<UOp>,
    options: &Options,
) -> Result<Trees, Error> {
    let mut buffers: FxHashMap<UOp, Buffer> = FxHashMap::default();
    for node in viewed.order.iter().filter(|node| realized.contains(*node)) {
        let size_elements = size_of(node);
        if MAX_BUFFER_ELEMENTS < size_elements {
            return Err(Error::TooLarge {
                shape: shape_of(node).to_vec(),
                elements: size_elements,
                limit: MAX_BUFFER_ELEMENTS,
            });
        }
        let placement = node.device().cloned();
        buffers.insert(node.clone(), Buffer::on(placement, node.dtype(), size_elements));
    }
    let has_kernel = |node: &&UOp| buffers.contains_key(*node) && size_of(node) != 0;
    let items = viewed
        .order
        .iter()
        .filter(has_kernel)
        .map(|node| kernel(node, &buffers, options.merge_views))
        .collect();
    let outputs = viewed.outputs.iter().map(|output| result_of(output, &buffers)).collect();
    Ok(Trees { items, outputs })
}

/// Returns the buffer of an output, or its constant, in the output's shape.
fn result_of(output: &UOp, buffers: &FxHashMap<UOp, Buffer>) -> UOp {
    if let Some(value) = views::constant_under(output) {
        return fold::uniform(value, shape_of(output));
    }
    let (base, _) = views::base_and_tracker(output);
    let node = match buffers.get(&base) {
        Some(buffer) => UOp::new(Op::Buffer, buffer.dtype(), [], Arg::Buffer(buffer.clone())),
        None => base,
    };
    assert_eq!(node.op(), Op::Buffer, "every output is in a buffer");
    shaped(node, shape_of(output))
}

/// Makes the kernel that fills the buffer of `node`.
fn kernel(node: &UOp, realized: &FxHashMap<UOp, Buffer>, merge: bool) -> Item {
    let is_marker = matches!(node.op(), Op::Contiguous | Op::Copy);
    let value = if is_marker { &node.src()[0] } else { node };
    let shape = match reduction_within(value, node, realized) {
        Some((reduction, true)) => shape_of(&reduction.src()[0]).to_vec(),
        Some((reduction, false)) => shape_of(&reduction).to_vec(),
        None => shape_of(node).to_vec(),
    };
    let tracker = views::plain(&shape);
    assert_eq!(tracker.size(), size_of(node), "a kernel stores each element of its output");
    let slots = vec![realized[node].clone()];
    let mut tree = Tree { realized, merge, root: node, slots, reduction: None };
    let value = tree.build(value.clone(), tracker.clone());
    assert_eq!(value.dtype(), node.dtype(), "a kernel stores elements of its output's dtype");
    let output = global(&realized[node], 0);
    let store = UOp::new(Op::Store, DType::Void, [output, value], Arg::View(tracker));
    Item { ast: UOp::new(Op::Sink, DType::Void, [store], Arg::None), buffers: tree.slots }
}

/// Returns a reduction that is fused into the kernel of `root`, if there is one, and whether it is
/// broadcast on the way to the root.
fn reduction_within(
    value: &UOp,
    root: &UOp,
    realized: &FxHashMap<UOp, Buffer>,
) -> Option<(UOp, bool)> {
    let mut seen = FxHashSet::default();
    let mut pending = vec![(value.clone(), false)];
    while let Some((node, is_broadcast)) = pending.pop() {
        if (realized.contains_key(&node) && node != *root) || !seen.insert(node.clone()) {
            continue;
        }
        if node.op() == Op::ReduceAxis {
            return Some((node, is_broadcast));
        }
        let repeats = node.op() == Op::View && size_of(&node) != size_of(&node.src()[0]);
        pending.extend(node.src().iter().map(|src| (src.clone(), is_broadcast || repeats)));
    }
    None
}

fn global(buffer: &Buffer, slot: usize) -> UOp {
    let arg = Arg::Global(Global { slot, size_elements: buffer.size_elements() });
    UOp::new(Op::DefineGlobal, buffer.dtype(), [], arg)
}

/// A node and the view that the kernel has of it: element i of the kernel is element tracker(i) of
/// the node.
type NodeView = (UOp, ShapeTracker);

/// A task of the work list, which replaces recursion, as graphs may be deep.
enum Task {
    Enter(NodeView),
    Leave(NodeView, SmallVec<[NodeView; 3]>),
}

struct Tree<'a> {
    realized: &'a FxHashMap<UOp, Buffer>,
    merge: bool,
    root: &'a UOp,
    slots: Vec<Buffer>,
    /// The last reduction that was entered.
    reduction: Option<UOp>,
}

impl Tree<'_> {
    fn build(&mut self, value: UOp, tracker: ShapeTracker) -> UOp {
        let whole = (value, tracker);
        let mut done: FxHashMap<NodeView, UOp> = FxHashMap::default();
        let mut tasks = vec![Task::Enter(whole.clone())];
        while let Some(task) = tasks.pop() {
            match task {
                Task::Enter(node_view) if done.contains_key(&node_view) => {}
                Task::Enter(node_view) => match self.leaf(&node_view) {
                    Some(leaf) => {
                        done.insert(node_view, leaf);
                    }
                    None => {
                        let below = self.below(&node_view);
                        let enter = below.iter().rev().cloned().map(Task::Enter);
                        let enter: SmallVec<[Task; 3]> = enter.collect();
                        tasks.push(Task::Leave(node_view, below));
                        tasks.extend(enter);
                    }
                },
                Task::Leave(node_view, below) => {
                    let mut sources = below.iter().map(|source| done[source].clone());
                    let node = match node_view.0.op() {
                        Op::View => sources.next().expect("a view has one source"),
                        _ => node_view.0.with_src(sources),
                    };
                    let is_broadcast =
                        node.op() == Op::ReduceAxis && node_view.1.size() != size_of(&node);
                    let node = if is_broadcast { broadcast(&node) } else { node };
                    assert!(node.shape().is_some(), "the nodes of a tree have shapes");
                    done.insert(node_view, node);
                }
            }
        }
        done[&whole].clone()
    }

    /// Makes a load, constant or counter under its view; `None` if the node is not a leaf.
    fn leaf(&mut self, (node, tracker): &NodeView) -> Option<UOp> {
        let buffer = match (node.op(), node.arg()) {
            (Op::Const | Op::Iota, _) => {
                let arg = Arg::View(tracker.clone());
                return Some(UOp::new(Op::View, node.dtype(), [node.clone()], arg));
            }
            (Op::Buffer, Arg::Buffer(buffer)) => buffer.clone(),
            _ if node == self.root => return None,
            _ => self.realized.get(node)?.clone(),
        };
        let slot = self.slots.iter().position(|known| *known == buffer).unwrap_or_else(|| {
            self.slots.push(buffer.clone());
            self.slots.len() - 1
        });
        assert!(slot != 0, "a kernel does not read what it writes");
        let arg = Arg::View(tracker.clone());
        Some(UOp::new(Op::Load, node.dtype(), [global(&buffer, slot)], arg))
    }

    /// Returns whether a node is computed in this kernel rather than read.
    fn is_fused(&self, node: &UOp) -> bool {
        is_computed(node) && (node == self.root || !self.realized.contains_key(node))
    }

    /// Returns the sources of a node, and the kernel's views of them.
    fn below(&mut self, (node, tracker): &NodeView) -> SmallVec<[NodeView; 3]> {
        if node.op() == Op::View {
            let (base, view) = views::base_and_tracker(node);
            let is_plain = views::is_whole(tracker, view.shape());
            let mut composed =
                if is_plain { view } else { views::composed(&view, tracker, self.merge) };
            if self.is_fused(&base) && views::is_reshape(&composed, &base) {
                // A canonical form for stacks of reshapes: the nodes around a reduction are reached
                // on many paths, but must be computed once.
                composed = views::plain(composed.shape());
            }
            assert_eq!(composed.shape(), tracker.shape(), "a composed view has the kernel's shape");
            return SmallVec::from_iter([(base, composed)]);
        }
        if node.op() == Op::ReduceAxis {
            let before = self.reduction.replace(node.clone());
            let is_legal =
                before.is_none_or(|before| before == *node || rows::have_same_rows(&before, node));
            assert!(is_legal, "all reductions of a kernel are over the same rows");
            let src = &node.src()[0];
            if tracker.size() == size_of(node) {
                assert!(views::is_reshape(tracker, node), "a reduction is used in order");
                assert_eq!(tracker.shape(), shape_of(node), "the shape is that of the reduction");
            } else {
                let expected = rows::broadcast_tracker(node).expect("only rows are broadcast");
                assert!(
                    rows::are_equal(tracker, &expected),
                    "a reduction is broadcast along its rows"
                );
            }
            return SmallVec::from_iter([(src.clone(), views::plain(shape_of(src)))]);
        }
        assert!(node.op().is_elementwise(), "{} inside a kernel", node.op());
        node.src().iter().map(|src| (src.clone(), tracker.clone())).collect()
    }
}

/// Broadcasts a reduction along its rows.
fn broadcast(reduction: &UOp) -> UOp {
    let tracker = rows::broadcast_tracker(reduction).expect("only rows are broadcast");
    UOp::new(Op::View, reduction.dtype(), [reduction.clone()], Arg::View(tracker))
}

/// Orders the kernels so that each is after those that write what it reads; the sort is stable.
pub(crate) fn order(items: Vec<Item>) -> Vec<Item> {
    let count = items.len();
    let writers: FxHashMap<Buffer, usize> =
        items.iter().enumerate().map(|(index, item)| (item.buffers[0].clone(), index)).collect();
    assert_eq!(writers.len(), count, "every buffer is written by one kernel");
    let mut pending: Vec<Option<Item>> = items.into_iter().map(Some).collect();
    let mut ordered = Vec::with_capacity(count);
    for first in 0..count {
        let mut stack = vec![first];
        while let Some(index) = stack.last().copied() {
            let Some(item) = &pending[index] else {
                stack.pop();
                continue;
            };
            let reads = item.buffers[1..].iter().filter_map(|buffer| writers.get(buffer));
            let pending_writer = reads.copied().find(|writer| pending[*writer].is_some());
            assert!(stack.len() <= count, "kernels do not wait for themselves");
            match pending_writer {
                Some(writer) => stack.push(writer),
                None => ordered.extend(pending[index].take()),
            }
        }
    }
    assert_eq!(ordered.len(), count, "ordering keeps every kernel");
    ordered
}
