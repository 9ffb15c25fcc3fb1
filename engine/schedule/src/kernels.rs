//! Passes "kernels" and "order": every node that gets a buffer becomes a tree over views.
//!
//! A tree has one shape in all of its nodes: that of the output, or, with a fold, the folded
//! shape above it and the full shape below it; in a kernel that takes row after row a view stands
//! above each fold that is spread over its row. Views are pushed down to the leaves, where they
//! are composed with the view of the load. Buffers are named by slots in order of appearance, so
//! that kernels that do the same are the same node.

use gradiff_graph::{Arg, Buffer, DType, Global, Op, UOp};
use gradiff_view::ShapeTracker;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::realize::is_computed;
use crate::views::{self, Viewed};
use crate::{Error, Item, MAX_BUFFER_ELEMENTS, Options, fold, rows, shape_of, shaped, size_of};

/// Kernels, not ordered by contract, and where the outputs are.
pub(crate) struct Split {
    pub(crate) items: Vec<Item>,
    pub(crate) outputs: Vec<UOp>,
}

/// Makes a kernel of each node in `realized`.
pub(crate) fn split(
    viewed: &Viewed,
    realized: &FxHashSet<UOp>,
    options: &Options,
) -> Result<Split, Error> {
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
        buffers.insert(node.clone(), Buffer::new(node.dtype(), size_elements));
    }
    let filled = |node: &&UOp| buffers.contains_key(*node) && size_of(node) != 0;
    let items = viewed
        .order
        .iter()
        .filter(filled)
        .map(|node| kernel(node, &buffers, options.merge_views))
        .collect();
    let outputs = viewed.outputs.iter().map(|output| stand_in(output, &buffers)).collect();
    Ok(Split { items, outputs })
}

/// The buffer that holds an output, or the constant it is, under the output's shape.
fn stand_in(output: &UOp, buffers: &FxHashMap<UOp, Buffer>) -> UOp {
    if let Some(value) = views::constant_under(output) {
        return fold::uniform(value, shape_of(output));
    }
    let (base, _) = views::split(output);
    let node = match buffers.get(&base) {
        Some(buffer) => UOp::new(Op::Buffer, buffer.dtype(), [], Arg::Buffer(buffer.clone())),
        None => base,
    };
    assert_eq!(node.op(), Op::Buffer, "every output is in a buffer");
    shaped(node, shape_of(output))
}

/// The kernel that fills the buffer of `node`.
fn kernel(node: &UOp, realized: &FxHashMap<UOp, Buffer>, merge: bool) -> Item {
    let value = if node.op() == Op::Contiguous { &node.src()[0] } else { node };
    let shape = match fold_within(value, node, realized) {
        Some((fold, true)) => shape_of(&fold.src()[0]).to_vec(),
        Some((fold, false)) => shape_of(&fold).to_vec(),
        None => shape_of(node).to_vec(),
    };
    let tracker = views::plain(&shape);
    assert_eq!(tracker.size(), size_of(node), "a kernel stores each element of its output");
    let mut tree =
        Tree { realized, merge, root: node, slots: vec![realized[node].clone()], fold: None };
    let value = tree.build(value.clone(), tracker.clone());
    assert_eq!(value.dtype(), node.dtype(), "a kernel stores elements of its output's dtype");
    let output = global(&realized[node], 0);
    let store = UOp::new(Op::Store, DType::Void, [output, value], Arg::View(tracker));
    Item { ast: UOp::new(Op::Sink, DType::Void, [store], Arg::None), buffers: tree.slots }
}

/// A fold that is fused into the kernel of `root`, and whether the root sees it spread.
fn fold_within(value: &UOp, root: &UOp, realized: &FxHashMap<UOp, Buffer>) -> Option<(UOp, bool)> {
    let mut seen = FxHashSet::default();
    let mut pending = vec![(value.clone(), false)];
    while let Some((node, is_spread)) = pending.pop() {
        if (realized.contains_key(&node) && node != *root) || !seen.insert(node.clone()) {
            continue;
        }
        if node.op() == Op::ReduceAxis {
            return Some((node, is_spread));
        }
        let repeats = node.op() == Op::View && size_of(&node) != size_of(&node.src()[0]);
        pending.extend(node.src().iter().map(|src| (src.clone(), is_spread || repeats)));
    }
    None
}

fn global(buffer: &Buffer, slot: usize) -> UOp {
    let arg = Arg::Global(Global { slot, size_elements: buffer.size_elements() });
    UOp::new(Op::DefineGlobal, buffer.dtype(), [], arg)
}

/// A node seen through a view: element i of the kernel is element tracker(i) of the node.
type Seen = (UOp, ShapeTracker);

/// What is left to do, on a stack of its own: graphs may be deep.
enum Step {
    Enter(Seen),
    Leave(Seen, SmallVec<[Seen; 3]>),
}

struct Tree<'a> {
    realized: &'a FxHashMap<UOp, Buffer>,
    merge: bool,
    root: &'a UOp,
    slots: Vec<Buffer>,
    /// The last fold that was met.
    fold: Option<UOp>,
}

impl Tree<'_> {
    fn build(&mut self, value: UOp, tracker: ShapeTracker) -> UOp {
        let whole = (value, tracker);
        let mut done: FxHashMap<Seen, UOp> = FxHashMap::default();
        let mut steps = vec![Step::Enter(whole.clone())];
        while let Some(step) = steps.pop() {
            match step {
                Step::Enter(seen) if done.contains_key(&seen) => {}
                Step::Enter(seen) => match self.leaf(&seen) {
                    Some(leaf) => {
                        done.insert(seen, leaf);
                    }
                    None => {
                        let below = self.below(&seen);
                        let enter = below.iter().rev().cloned().map(Step::Enter);
                        let enter: SmallVec<[Step; 3]> = enter.collect();
                        steps.push(Step::Leave(seen, below));
                        steps.extend(enter);
                    }
                },
                Step::Leave(seen, below) => {
                    let mut sources = below.iter().map(|source| done[source].clone());
                    let node = match seen.0.op() {
                        Op::View => sources.next().expect("a view has one source"),
                        _ => seen.0.with_src(sources),
                    };
                    let is_spread = node.op() == Op::ReduceAxis && seen.1.size() != size_of(&node);
                    let node = if is_spread { spread(&node) } else { node };
                    assert!(node.shape().is_some(), "the nodes of a tree have shapes");
                    done.insert(seen, node);
                }
            }
        }
        done[&whole].clone()
    }

    /// Loads, constants and counters under their view.
    fn leaf(&mut self, (node, tracker): &Seen) -> Option<UOp> {
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

    /// Whether a node is computed in this kernel rather than read.
    fn is_fused(&self, node: &UOp) -> bool {
        is_computed(node) && (node == self.root || !self.realized.contains_key(node))
    }

    /// The sources of a node, seen as the node is seen.
    fn below(&mut self, (node, tracker): &Seen) -> SmallVec<[Seen; 3]> {
        if node.op() == Op::View {
            let (base, view) = views::split(node);
            let is_plain = views::is_whole(tracker, view.shape());
            let mut composed =
                if is_plain { view } else { views::composed(&view, tracker, self.merge) };
            if self.is_fused(&base) && views::is_reshape(&composed, &base) {
                // Stacks of views that all say "in order" are one way to see a node, not several:
                // the nodes around a fold are reached along many paths and computed once.
                composed = views::plain(composed.shape());
            }
            assert_eq!(composed.shape(), tracker.shape(), "a composed view has the kernel's shape");
            return SmallVec::from_iter([(base, composed)]);
        }
        if node.op() == Op::ReduceAxis {
            let before = self.fold.replace(node.clone());
            let is_right = before.is_none_or(|fold| fold == *node || rows::is_alike(&fold, node));
            assert!(is_right, "all folds of a kernel fold the same rows");
            let src = &node.src()[0];
            if tracker.size() == size_of(node) {
                assert!(views::is_reshape(tracker, node), "what follows a fold sees it in order");
                assert_eq!(tracker.shape(), shape_of(node), "a kernel has the shape of its fold");
            } else {
                let spread = rows::spread(node).expect("only rows are spread");
                assert!(rows::is_same(tracker, &spread), "a fold is spread over its rows");
            }
            return SmallVec::from_iter([(src.clone(), views::plain(shape_of(src)))]);
        }
        assert!(node.op().is_elementwise(), "{} inside a kernel", node.op());
        node.src().iter().map(|src| (src.clone(), tracker.clone())).collect()
    }
}

/// A fold, repeated along its rows.
fn spread(fold: &UOp) -> UOp {
    let tracker = rows::spread(fold).expect("only rows are spread");
    UOp::new(Op::View, fold.dtype(), [fold.clone()], Arg::View(tracker))
}

/// The kernels such that each stands after those that write what it reads, else as they stood.
pub(crate) fn order(items: Vec<Item>) -> Vec<Item> {
    let count = items.len();
    let writers: FxHashMap<Buffer, usize> =
        items.iter().enumerate().map(|(index, item)| (item.buffers[0].clone(), index)).collect();
    assert_eq!(writers.len(), count, "every buffer is written by one kernel");
    let mut pending: Vec<Option<Item>> = items.into_iter().map(Some).collect();
    let mut ordered = Vec::with_capacity(count);
    for first in 0..count {
        let mut steps = vec![first];
        while let Some(index) = steps.last().copied() {
            let Some(item) = &pending[index] else {
                steps.pop();
                continue;
            };
            let reads = item.buffers[1..].iter().filter_map(|buffer| writers.get(buffer));
            let unmet = reads.copied().find(|writer| pending[*writer].is_some());
            assert!(steps.len() <= count, "kernels do not wait for themselves");
            match unmet {
                Some(writer) => steps.push(writer),
                None => ordered.extend(pending[index].take()),
            }
        }
    }
    assert_eq!(ordered.len(), count, "ordering keeps every kernel");
    ordered
}
