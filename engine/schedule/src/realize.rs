//! Pass "realize": which nodes get a buffer; all others are fused into those that use them.
//!
//! A node gets a buffer if
//! 1. it is an output or `Contiguous` (settled in `views`);
//! 2. a view makes more of it than there is (expand), unless that is cheaper to compute again;
//! 3. a view masks it and something in its chain is not zero at zero (`Op::is_unsafe_under_pad`);
//! 4. its chain is too long for one kernel ([`crate::MAX_KERNEL_NODES`]);
//! 5. it is the end of a fold's chain: a kernel has one fold, and runs what follows the fold at
//!    the folded shape. So the chain ends where several kernels need it, where another fold takes
//!    part, where it is folded again, and where a view does more than reshape it. It ends before
//!    a widening cast rather than after it, because the narrow value is the smaller one to store.
//!
//! With [`Options::rows`] a kernel may have several folds, if all of them fold the same last axes
//! of one shape: it then takes row after row, and what a fold made of a row may be spread over the
//! row again (softmax, layer norm, a variance). `rows.rs` says what may meet in such a kernel.
//!
//! What is elementwise and needed by several kernels is computed in each of them.

use gradiff_graph::{Arg, Op, UOp};
use gradiff_view::ShapeTracker;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::rows::Carried;
use crate::views::{Viewed, split};
use crate::{MAX_KERNEL_NODES, Options, size_of};

/// Nodes that are cheaper to compute for each repetition than to store: no loads, few ops.
const CHEAP_NODES: u32 = 8;

/// The nodes that get a buffer; leaves and views are never among them.
pub(crate) fn choose(viewed: &Viewed, options: &Options) -> FxHashSet<UOp> {
    let realized = viewed.forced.clone();
    let mut chooser = Chooser { realized, rows: options.rows, ..Chooser::default() };
    if !options.fuse {
        let all = viewed.order.iter().filter(|node| is_computed(node)).cloned();
        chooser.realized.extend(all);
        return chooser.realized;
    }
    for node in &viewed.order {
        chooser.weigh(node);
    }
    chooser.find_sinks(&viewed.order);
    chooser.carried.clear();
    for node in &viewed.order {
        chooser.carry_folds(node);
    }
    chooser.find_sinks(&viewed.order);
    for node in &viewed.order {
        if node.op() == Op::ReduceAxis && chooser.sinks.get(node) == Some(&Sink::Many) {
            chooser.realized.insert(node.clone());
        }
    }
    chooser.realized
}

/// The graph with `Contiguous` around every node that gets a buffer.
pub(crate) fn mark(viewed: &Viewed, realized: &FxHashSet<UOp>) -> Vec<UOp> {
    let mut marked: FxHashMap<UOp, UOp> = FxHashMap::default();
    for node in &viewed.order {
        let mut new = node.with_src(node.src().iter().map(|src| marked[src].clone()));
        assert_eq!(new.shape(), node.shape(), "marking keeps shapes");
        if realized.contains(node) && node.op() != Op::Contiguous {
            new = UOp::unary(Op::Contiguous, node.dtype(), new);
            assert_eq!(new.shape(), node.shape(), "marking keeps shapes");
        }
        marked.insert(node.clone(), new);
    }
    viewed.outputs.iter().map(|output| marked[output].clone()).collect()
}

/// Whether the node is neither leaf nor view.
pub(crate) fn is_computed(node: &UOp) -> bool {
    !matches!(node.op(), Op::Buffer | Op::Const | Op::Iota | Op::View)
}

/// What is fused below and with a node.
#[derive(Clone, Copy, Default)]
struct Chain {
    /// How many nodes, each counted once for each path that leads to it.
    nodes: u32,
    /// Whether any of them reads a buffer.
    loads: bool,
    /// Whether any of them may turn zeros into something else.
    is_unsafe_under_pad: bool,
    /// Whether there is a view between them that does more than spread rows (not only over what is
    /// loaded).
    has_view: bool,
}

/// The kernels that a node is fused into.
#[derive(Clone, PartialEq, Eq)]
enum Sink {
    One(UOp),
    Many,
}

#[derive(Default)]
struct Chooser {
    realized: FxHashSet<UOp>,
    rows: bool,
    chains: FxHashMap<UOp, Chain>,
    sinks: FxHashMap<UOp, Sink>,
    user_counts: FxHashMap<UOp, u32>,
    carried: FxHashMap<UOp, Carried>,
}

impl Chooser {
    /// Rules 2 to 4.
    fn weigh(&mut self, node: &UOp) {
        if let (Op::View, Arg::View(tracker)) = (node.op(), node.arg()) {
            let base = &node.src()[0];
            if is_computed(base) && self.must_store_before(tracker, base) {
                self.realized.insert(base.clone());
            }
        }
        let mut chain = self.chain_of(node);
        if MAX_KERNEL_NODES < chain.nodes && self.count_nodes(node, &chain) {
            self.cut_heaviest(node);
            chain = self.chain_of(node);
        }
        self.chains.insert(node.clone(), chain);
        if let Some(carried) = self.joined(node).0 {
            self.carried.insert(node.clone(), carried);
        }
    }

    fn must_store_before(&self, tracker: &ShapeTracker, base: &UOp) -> bool {
        let chain = self.seen_from_above(base);
        let is_masked = tracker.views().iter().any(|view| view.mask().is_some());
        if is_masked && chain.is_unsafe_under_pad {
            return true;
        }
        if is_simple_pad(tracker, size_of(base)) || self.is_spread(tracker, base) {
            return false;
        }
        let is_cheap = !chain.loads && chain.nodes <= CHEAP_NODES;
        size_of(base) < tracker.size() && !is_cheap
    }

    /// Whether a view does nothing but repeat what a fold made of each row along the row.
    fn is_spread(&self, tracker: &ShapeTracker, base: &UOp) -> bool {
        self.rows && self.carried.get(base).is_some_and(|carried| carried.is_spread_by(tracker))
    }

    /// The chain of a source as its user sees it: a load if it has a buffer.
    fn seen_from_above(&self, src: &UOp) -> Chain {
        if src.op() == Op::Buffer || self.realized.contains(src) {
            return Chain { nodes: 1, loads: true, ..Chain::default() };
        }
        self.chains[src]
    }

    fn is_fused(&self, node: &UOp) -> bool {
        is_computed(node) && !self.realized.contains(node)
    }

    fn chain_of(&self, node: &UOp) -> Chain {
        let turns = |node: &UOp| match (node.op(), node.arg()) {
            (Op::View, Arg::View(tracker)) => {
                let base = &node.src()[0];
                self.is_fused(base) && !self.is_spread(tracker, base)
            }
            _ => false,
        };
        let mut chain = Chain {
            nodes: 1,
            loads: node.op() == Op::Buffer,
            is_unsafe_under_pad: node.op().is_unsafe_under_pad(),
            has_view: turns(node),
        };
        for (index, src) in node.src().iter().enumerate() {
            let below = self.seen_from_above(src);
            if !node.src()[..index].contains(src) {
                chain.nodes = chain.nodes.saturating_add(below.nodes);
            }
            chain.loads |= below.loads;
            chain.is_unsafe_under_pad |= below.is_unsafe_under_pad;
            chain.has_view |= below.has_view;
        }
        chain
    }

    /// Whether the chain of `node` is too long. Paths through views count each, since each may
    /// need nodes of its own; without views, nodes that paths share count once.
    fn count_nodes(&self, node: &UOp, chain: &Chain) -> bool {
        if chain.has_view {
            return true;
        }
        let mut seen = FxHashSet::default();
        let mut pending = vec![node.clone()];
        while let Some(next) = pending.pop() {
            if seen.insert(next.clone()) && (next == *node || !self.realized.contains(&next)) {
                pending.extend(next.src().iter().cloned());
            }
            if MAX_KERNEL_NODES as usize <= seen.len() {
                return true;
            }
        }
        false
    }

    /// Gives the longest chain below `node` a buffer.
    fn cut_heaviest(&mut self, node: &UOp) {
        let sources = node.src().iter().map(|src| split(src).0);
        let fused = sources.filter(|src| self.is_fused(src));
        if let Some(heaviest) = fused.max_by_key(|src| self.chains[src].nodes) {
            self.realized.insert(heaviest.clone());
            for src in node.src().iter().filter(|src| src.op() == Op::View) {
                let chain = self.chain_of(src);
                self.chains.insert(src.clone(), chain);
            }
        }
    }

    /// Into which kernels each node goes, and how many users it has.
    fn find_sinks(&mut self, order: &[UOp]) {
        self.sinks.clear();
        self.user_counts.clear();
        for user in order.iter().rev() {
            let sink = if self.realized.contains(user) {
                Some(Sink::One(user.clone()))
            } else {
                self.sinks.get(user).cloned()
            };
            for (index, src) in user.src().iter().enumerate() {
                if user.src()[..index].contains(src) {
                    continue;
                }
                *self.user_counts.entry(src.clone()).or_default() += 1;
                let merged = match (self.sinks.get(src), &sink) {
                    (None, sink) => sink.clone(),
                    (Some(one), Some(other)) if one == other => sink.clone(),
                    (Some(one), None) => Some(one.clone()),
                    _ => Some(Sink::Many),
                };
                if let Some(merged) = merged {
                    self.sinks.insert(src.clone(), merged);
                }
            }
        }
    }

    /// Rule 5: ends the chains of folds that cannot go on in a node, or that several kernels need.
    fn carry_folds(&mut self, node: &UOp) {
        let (carried, ended) = self.joined(node);
        ended.iter().for_each(|src| self.cut(src));
        let Some(carried) = carried else { return };
        self.carried.insert(node.clone(), carried);
        let is_shared = self.sinks.get(node) == Some(&Sink::Many);
        if is_shared && self.user_counts.get(node) != Some(&1) {
            self.cut(node);
        }
    }

    /// The folds, if any, that are fused with a node, and the sources whose folds cannot be.
    fn joined(&self, node: &UOp) -> (Option<Carried>, SmallVec<[UOp; 3]>) {
        let (mut joined, mut ended): (Option<Carried>, _) = (None, SmallVec::new());
        for src in node.src() {
            let Some(below) = self.folds_below(src) else { continue };
            let next = match (node.op(), node.arg()) {
                (Op::View, Arg::View(tracker)) => below.seen_through(tracker, self.rows),
                (Op::ReduceAxis, _) => below.folded_by(node).filter(|_| self.rows),
                _ => below.beside(joined.as_ref(), self.rows),
            };
            match next {
                Some(next) => joined = Some(next),
                None => ended.push(src.clone()),
            }
        }
        let joined = match node.op() {
            Op::ReduceAxis => joined.or_else(|| Some(Carried::of(node))),
            _ => joined,
        };
        (joined, ended)
    }

    fn folds_below(&self, src: &UOp) -> Option<&Carried> {
        let (base, _) = split(src);
        if self.realized.contains(&base) { None } else { self.carried.get(src) }
    }

    /// Ends the chain of a fold at `src`, or at what it widens.
    fn cut(&mut self, src: &UOp) {
        let (mut base, _) = split(src);
        while base.op() == Op::Cast && self.carried.contains_key(&base.src()[0]) {
            let narrow = &base.src()[0];
            let widens = narrow.dtype().size_bytes() < base.dtype().size_bytes();
            if !widens || !is_computed(narrow) {
                break;
            }
            self.carried.remove(&base);
            base = narrow.clone();
        }
        self.realized.insert(base);
    }
}

/// Whether the view is one that pads and repeats nothing: what it shows is at most what is there.
fn is_simple_pad(tracker: &ShapeTracker, base_size: i64) -> bool {
    let [view] = tracker.views() else { return false };
    view.mask().is_some_and(|mask| {
        let shown: i64 = mask.iter().map(|(start, end)| end - start).product();
        shown <= base_size
    })
}
