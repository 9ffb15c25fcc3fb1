//! Pass "realize": chooses the nodes that get a buffer; all others are fused into their users.
//!
//! A node gets a buffer if
//! 1. it is an output, `Contiguous` or a `Copy` (see `views`);
//! 2. a view repeats its elements (expand), unless they are cheaper to compute again, as loaded
//!    values in a wider type ([`Options::widens_again`] for floats) or a few ops of one load that
//!    threads of a group repeat a few times, or are the index of a gather, which is used once for
//!    each element;
//! 3. a view masks it and an op in its chain does not map zero to zero (`Op::is_unsafe_under_pad`);
//! 4. its chain is too long for one kernel ([`crate::MAX_KERNEL_NODES`]), or has too many arrays
//!    ([`Options::arrays_max`]) or views on top of each other ([`MAX_KERNEL_VIEWS`]);
//! 5. it ends the chain of a reduction: the reduction and the elementwise ops of the reduced shape
//!    that follow it. A kernel has one such chain, so it ends at a node that several kernels use,
//!    before another reduction, and before a view that does more than reshape. It ends before a
//!    widening cast rather than after it, since the narrow value takes less memory.
//!
//! With [`Options::rows`] a kernel may have several reductions, if all of them are over the same
//! last axes of one shape. It then computes row by row, and the result of a reduction may be
//! broadcast along its row (softmax, layer norm, variance). `rows.rs` has the conditions. If
//! several kernels use a node that is cheap to compute from a loaded row and one value of this row,
//! such as the distance from the maximum, the value gets the buffer instead of the node.
//!
//! With [`Options::shared_rows`] a large product of matrices shares its kernel with no other
//! reduction; and a costly value of each row, whose reduction turns out to be in another kernel,
//! gets a buffer as rule 2 says, so that it is not computed for each element.
//!
//! An elementwise node that several kernels use is computed in each of them.

use gradiff_graph::target::Thresholds;
use gradiff_graph::{Arg, Constant, DType, Op, UOp};
use gradiff_view::ShapeTracker;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::rows::FusedReductions;
use crate::tuning::{
    CHEAP_NODES, MAX_KERNEL_NODES, MAX_KERNEL_VIEWS, REPEATED_COST, REPEATS_MAX, ROW_VALUE_COST,
    SHIFTED_COST,
};
use crate::views::{Viewed, base_and_tracker, constant_under, is_reshape};
use crate::{Options, size_of};

/// Chooses the nodes that get a buffer; leaves and views never do.
pub(crate) fn choose(viewed: &Viewed, options: &Options) -> FxHashSet<UOp> {
    match options.fuse {
        true => chosen(viewed, options).realized,
        false => {
            let computed = viewed.order.iter().filter(|node| is_computed(node));
            viewed.forced.iter().chain(computed).cloned().collect()
        }
    }
}

/// Returns the views that several kernels would compute, each with its base, where the view is not
/// strided along the axes of these kernels: each load then takes divisions, and is of one element.
/// A view of more elements than any array that it loads is computed again, since a buffer of it
/// could take any multiple of their memory.
pub(crate) fn rearranged_in_several(viewed: &Viewed, options: &Options) -> FxHashSet<UOp> {
    let chooser = chosen(viewed, options);
    let is_rearranged = |node: &&UOp| match (node.op(), node.arg()) {
        (Op::View, Arg::View(tracker)) => {
            let base = &node.src()[0];
            1 < tracker.views().len()
                && tracker.size() <= size_of(base)
                && chooser.is_fused(base)
                && chooser.chains[base].loads != 0
                && chooser.kernels.get(node) == Some(&Kernels::Several)
                && tracker.size() <= chooser.largest_load(base)
        }
        _ => false,
    };
    viewed.order.iter().filter(is_rearranged).cloned().collect()
}

/// Chooses the nodes that get a buffer if kernels are fused.
fn chosen(viewed: &Viewed, options: &Options) -> Chooser {
    let realized = viewed.forced.clone();
    let indices = viewed.order.iter().filter_map(index_of_gather).cloned().collect();
    let mut chooser = Chooser {
        realized,
        rows: options.longest_row(),
        shared_rows: options.shared_rows,
        thresholds: options.thresholds,
        widens_again: options.widens_again,
        arrays_max: options.arrays_max,
        indices,
        ..Chooser::default()
    };
    for node in &viewed.order {
        chooser.apply_chain_rules(node);
    }
    // Rule 5 depends on the kernels that a node is fused into, and these on the buffers so far. The
    // reductions are found again, since more nodes have buffers.
    chooser.find_kernels(&viewed.order);
    chooser.reductions.clear();
    for node in &viewed.order {
        chooser.end_reductions(node);
    }
    // A chain that has ended is a kernel of its own.
    chooser.store_repeated(&viewed.order);
    if options.shared_rows {
        chooser.store_row_values(&viewed.order);
    }
    // So is a node that gets a buffer because of the limit of arrays, and a reduction with a buffer
    // may be one array more of its users.
    while chooser.limit_arrays(&viewed.order) {
        chooser.store_repeated(&viewed.order);
    }
    chooser
}

/// Wraps every node that gets a buffer in `Contiguous`.
pub(crate) fn mark(viewed: &Viewed, realized: &FxHashSet<UOp>) -> Vec<UOp> {
    let mut marked: FxHashMap<UOp, UOp> = FxHashMap::default();
    for node in &viewed.order {
        let mut new = node.with_src(node.src().iter().map(|src| marked[src].clone()));
        assert_eq!(new.shape(), node.shape(), "marking keeps shapes");
        if realized.contains(node) && !matches!(node.op(), Op::Contiguous | Op::Copy) {
            new = UOp::unary(Op::Contiguous, node.dtype(), new);
            assert_eq!(new.shape(), node.shape(), "marking keeps shapes");
        }
        marked.insert(node.clone(), new);
    }
    viewed.outputs.iter().map(|output| marked[output].clone()).collect()
}

/// Returns whether the node is neither a leaf nor a view.
pub(crate) fn is_computed(node: &UOp) -> bool {
    !matches!(node.op(), Op::Buffer | Op::Const | Op::Iota | Op::View)
}

/// Returns the index of a reduction that adds up one element of each row, that at the index: in a
/// kernel, it is a single load.
pub(crate) fn index_of_gather(reduction: &UOp) -> Option<&UOp> {
    let Arg::Reduce(Op::Add, axes) = reduction.arg() else { return None };
    let (Op::ReduceAxis, [axis], [choice]) = (reduction.op(), &axes[..], reduction.src()) else {
        return None;
    };
    let (Op::Where, [is_other, zero, _]) = (choice.op(), choice.src()) else { return None };
    let (Op::CmpNe, [index, counter]) = (is_other.op(), is_other.src()) else { return None };
    let (Arg::View(index_tracker), Arg::View(counter_tracker)) = (index.arg(), counter.arg())
    else {
        return None;
    };
    let strides_of = |tracker: &ShapeTracker| match tracker.views() {
        [view] if view.mask().is_none() => Some(view.strides().to_vec()),
        _ => None,
    };
    let axis = *axis as usize;
    let counts = |(at, stride): (usize, &i64)| *stride == i64::from(at == axis);
    let is_gather = counter.src()[0].op() == Op::Iota
        && strides_of(counter_tracker)?.iter().enumerate().all(counts)
        && strides_of(index_tracker)?[axis] == 0
        && constant_under(zero).is_some_and(|zero| zero == Constant::zero(zero.dtype()));
    is_gather.then_some(index)
}

/// The chain of a node: the node and the nodes below it that are fused with it.
#[derive(Clone, Copy, Default)]
struct Chain {
    /// Number of nodes, each counted once for each path to it.
    nodes: u32,
    /// Number of buffers that they read, each counted once for each path to it.
    loads: u32,
    /// True if any of them may map zeros to other values.
    is_unsafe_under_pad: bool,
    /// True if the chain has a view of a fused node that does not just reshape or broadcast rows.
    has_view: bool,
    /// Most views on a path to a leaf or a reduction, whose source has no view above it.
    views: u32,
}

/// The kernels that a node is fused into.
#[derive(Clone, PartialEq, Eq)]
enum Kernels {
    /// Only the kernel whose result is this node.
    One(UOp),
    /// More than one kernel.
    Several,
}

/// The choice of the nodes that get a buffer, so far.
#[derive(Default)]
struct Chooser {
    /// The nodes that get a buffer.
    realized: FxHashSet<UOp>,
    /// The most elements of a row of a row kernel, if they are enabled.
    rows: Option<i64>,
    /// [`Options::shared_rows`].
    shared_rows: bool,
    /// [`Options::thresholds`].
    thresholds: Thresholds,
    /// [`Options::widens_again`].
    widens_again: bool,
    /// [`Options::arrays_max`].
    arrays_max: u32,
    /// The indices of gathers, each a view that repeats them along the gathered axis.
    indices: FxHashSet<UOp>,
    /// The chain of each node.
    chains: FxHashMap<UOp, Chain>,
    /// The kernels that each node is fused into, by the buffers so far.
    kernels: FxHashMap<UOp, Kernels>,
    /// The number of nodes that have the node as a source.
    user_counts: FxHashMap<UOp, u32>,
    /// The reductions that are fused with a node; nodes with none are absent.
    reductions: FxHashMap<UOp, FusedReductions>,
}

impl Chooser {
    /// Applies rules 2 to 4.
    fn apply_chain_rules(&mut self, node: &UOp) {
        if let (Op::View, Arg::View(tracker)) = (node.op(), node.arg()) {
            let base = &node.src()[0];
            let is_index = self.indices.contains(node);
            if is_computed(base) && !is_index && self.must_realize(tracker, base) {
                self.realized.insert(base.clone());
            }
        }
        let mut chain = self.chain_of(node);
        if MAX_KERNEL_NODES < chain.nodes && self.is_too_long(node, &chain) {
            self.realize_longest(node, |chain| chain.nodes);
            chain = self.chain_of(node);
        }
        if MAX_KERNEL_VIEWS < chain.views as usize {
            self.realize_longest(node, |chain| chain.views);
            chain = self.chain_of(node);
        }
        self.chains.insert(node.clone(), chain);
        self.limit_arrays_of(node);
        if let Some(reductions) = self.fused_reductions(node).0 {
            self.reductions.insert(node.clone(), reductions);
        }
    }

    /// Applies the limit of arrays of rule 4 again, as long as nodes get buffers: a node that ends
    /// by rule 5 may be one array more of its user. Returns whether any did.
    fn limit_arrays(&mut self, order: &[UOp]) -> bool {
        if self.arrays_max == u32::MAX {
            return false;
        }
        let before = self.realized.len();
        loop {
            let count = self.realized.len();
            for node in order {
                let chain = self.chain_of(node);
                self.chains.insert(node.clone(), chain);
                self.limit_arrays_of(node);
            }
            if self.realized.len() == count {
                return before < count;
            }
        }
    }

    /// Gives buffers to reductions that several kernels would compute.
    fn store_repeated(&mut self, order: &[UOp]) {
        self.find_kernels(order);
        let kernels = &self.kernels;
        let is_repeated = |node: &&UOp| {
            node.op() == Op::ReduceAxis && kernels.get(*node) == Some(&Kernels::Several)
        };
        self.realized.extend(order.iter().filter(is_repeated).cloned());
    }

    /// Gives sources of a node buffers until a kernel of its chain has no more arrays than are
    /// possible.
    fn limit_arrays_of(&mut self, node: &UOp) {
        // The result is an array, too.
        while self.arrays_max <= self.chains[node].loads
            && self.has_too_many_arrays(node)
            && self.realize_longest(node, |chain| chain.loads)
        {
            let chain = self.chain_of(node);
            self.chains.insert(node.clone(), chain);
        }
    }

    /// Returns whether the base of a view must get a buffer because of the view (rules 2 and 3).
    fn must_realize(&self, tracker: &ShapeTracker, base: &UOp) -> bool {
        let chain = self.source_chain(base);
        let is_masked = tracker.views().iter().any(|view| view.mask().is_some());
        if is_masked && chain.is_unsafe_under_pad {
            return true;
        }
        if is_simple_pad(tracker, size_of(base)) || self.is_broadcast(tracker, base) {
            return false;
        }
        let is_cheap = chain.loads == 0 && chain.nodes <= CHEAP_NODES
            || self.is_widened_load(base)
            || self.is_repeated(tracker, base);
        size_of(base) < tracker.size() && !is_cheap
    }

    /// Returns whether threads of a group repeat few ops that follow a load a few times, as in a
    /// padded pool: a buffer would take more time.
    fn is_repeated(&self, tracker: &ShapeTracker, base: &UOp) -> bool {
        self.shared_rows
            && self.source_chain(base).loads <= 1
            && tracker.size() <= size_of(base).saturating_mul(REPEATS_MAX)
            && !self.reductions.contains_key(base)
            && self.cost(base) <= REPEATED_COST
    }

    /// Returns the cost of an element of a node, in additions, down to what is loaded.
    fn cost(&self, node: &UOp) -> i64 {
        let (mut seen, mut pending) = (FxHashSet::default(), vec![node.clone()]);
        let mut cost = 0;
        while let Some(next) = pending.pop() {
            if !self.realized.contains(&next) && seen.insert(next.clone()) {
                cost += next.op().row().cost;
                pending.extend(next.src().iter().cloned());
            }
        }
        cost
    }

    /// Returns whether a node is nothing but a loaded integer in the widest type, that of indices,
    /// or a 16-bit float in f32, if the options say so: to load the narrower one again takes less
    /// memory, and tensor cores multiply it.
    fn is_widened_load(&self, node: &UOp) -> bool {
        let is_widened = |from: DType| match node.dtype() {
            DType::I64 => from.is_int() && from != DType::I64,
            DType::F32 => self.widens_again && from.is_half(),
            _ => false,
        };
        node.op() == Op::Cast
            && is_widened(node.src()[0].dtype())
            && self.chains.get(node).is_some_and(|chain| chain.nodes <= 3)
    }

    /// Returns whether row kernels are enabled and the view does nothing but broadcast the result
    /// of a reduction along its rows.
    fn is_broadcast(&self, tracker: &ShapeTracker, base: &UOp) -> bool {
        let reductions = self.reductions.get(base);
        reductions.is_some_and(|reductions| {
            reductions.are_short(self.rows) && reductions.is_broadcast_by(tracker)
        })
    }

    /// Returns the chain that a source adds to its user: a single load if the source has a buffer.
    fn source_chain(&self, src: &UOp) -> Chain {
        if src.op() == Op::Buffer || self.realized.contains(src) {
            return Chain { nodes: 1, loads: 1, ..Chain::default() };
        }
        self.chains[src]
    }

    fn is_fused(&self, node: &UOp) -> bool {
        is_computed(node) && !self.realized.contains(node)
    }

    /// Computes the chain of a node from those of its sources.
    fn chain_of(&self, node: &UOp) -> Chain {
        let has_view = |node: &UOp| match (node.op(), node.arg()) {
            (Op::View, Arg::View(tracker)) => {
                let base = &node.src()[0];
                let is_plain = is_reshape(tracker, base) || self.is_broadcast(tracker, base);
                self.is_fused(base) && !is_plain
            }
            _ => false,
        };
        let mut chain = Chain {
            nodes: 1,
            loads: u32::from(node.op() == Op::Buffer),
            is_unsafe_under_pad: node.op().is_unsafe_under_pad(),
            has_view: has_view(node),
            views: 0,
        };
        for (index, src) in node.src().iter().enumerate() {
            let below = self.source_chain(src);
            if !node.src()[..index].contains(src) {
                chain.nodes = chain.nodes.saturating_add(below.nodes);
                chain.loads = chain.loads.saturating_add(below.loads);
            }
            chain.is_unsafe_under_pad |= below.is_unsafe_under_pad;
            chain.has_view |= below.has_view;
            chain.views = chain.views.max(below.views);
        }
        chain.views = match (node.op(), node.arg()) {
            (Op::View, Arg::View(tracker)) => {
                chain.views.saturating_add(tracker.views().len() as u32)
            }
            // A kernel has the source of a reduction in its own shape.
            (Op::ReduceAxis, _) => 0,
            _ => chain.views,
        };
        chain
    }

    /// Returns whether a chain is too long for a kernel. [`Chain::nodes`] says so, but it counts a
    /// node once for each path to it. With views this is the right count, since each path may need
    /// nodes of its own. Without views a kernel has each node once.
    fn is_too_long(&self, node: &UOp, chain: &Chain) -> bool {
        if chain.has_view {
            return true;
        }
        let mut seen = FxHashSet::default();
        let mut pending = vec![node.clone()];
        while let Some(next) = pending.pop() {
            if seen.insert(next.clone()) && (next == *node || !self.realized.contains(&next)) {
                pending.extend(next.src().iter().cloned());
            }
            if (MAX_KERNEL_NODES as usize) < seen.len() {
                return true;
            }
        }
        false
    }

    /// Returns whether a kernel of the chain of a node has more arrays than are possible.
    /// [`Chain::loads`] is at least their number.
    fn has_too_many_arrays(&self, node: &UOp) -> bool {
        let (mut seen, mut pending) = (FxHashSet::default(), vec![node.clone()]);
        let mut arrays = 1;
        while let Some(next) = pending.pop() {
            if !seen.insert(next.clone()) {
                continue;
            }
            if next.op() == Op::Buffer || (next != *node && self.realized.contains(&next)) {
                arrays += 1;
            } else {
                pending.extend(next.src().iter().cloned());
            }
        }
        self.arrays_max < arrays
    }

    /// Returns the number of elements of the largest array that the chain of a node loads.
    fn largest_load(&self, node: &UOp) -> i64 {
        let (mut seen, mut pending) = (FxHashSet::default(), vec![node.clone()]);
        let mut largest = 0;
        while let Some(next) = pending.pop() {
            if !seen.insert(next.clone()) {
                continue;
            }
            if next.op() == Op::Buffer || self.realized.contains(&next) {
                largest = largest.max(size_of(&next));
            } else {
                pending.extend(next.src().iter().cloned());
            }
        }
        largest
    }

    /// Gives a buffer to that source of `node` whose chain has the greatest length. Returns whether
    /// there is a source that can get one.
    fn realize_longest(&mut self, node: &UOp, length: fn(&Chain) -> u32) -> bool {
        let sources = node.src().iter().map(|src| base_and_tracker(src).0);
        let fused = sources.filter(|src| self.is_fused(src));
        let Some(longest) = fused.max_by_key(|src| length(&self.chains[src])) else {
            return false;
        };
        self.realized.insert(longest.clone());
        for src in node.src().iter().filter(|src| src.op() == Op::View) {
            let chain = self.chain_of(src);
            self.chains.insert(src.clone(), chain);
        }
        true
    }

    /// Finds the kernels that each node is fused into, and counts its users. Users come before
    /// their sources, so the kernels of a user are known.
    fn find_kernels(&mut self, order: &[UOp]) {
        self.kernels.clear();
        self.user_counts.clear();
        for user in order.iter().rev() {
            let kernels = if self.realized.contains(user) {
                Some(Kernels::One(user.clone()))
            } else {
                self.kernels.get(user).cloned()
            };
            for (index, src) in user.src().iter().enumerate() {
                if user.src()[..index].contains(src) {
                    continue;
                }
                *self.user_counts.entry(src.clone()).or_default() += 1;
                let merged = match (self.kernels.get(src), &kernels) {
                    (None, kernels) => kernels.clone(),
                    (Some(known), Some(kernels)) if known == kernels => Some(kernels.clone()),
                    (Some(known), None) => Some(known.clone()),
                    _ => Some(Kernels::Several),
                };
                if let Some(merged) = merged {
                    self.kernels.insert(src.clone(), merged);
                }
            }
        }
    }

    /// Applies rule 5 to a node. Ends the chains of those sources in whose chains `node` cannot be,
    /// and its own chain if several kernels use it: at `node`, or at the value of each row below.
    fn end_reductions(&mut self, node: &UOp) {
        let (reductions, ended) = self.fused_reductions(node);
        ended.iter().for_each(|src| self.end_chain(src));
        let Some(reductions) = reductions else { return };
        self.reductions.insert(node.clone(), reductions);
        let is_shared = self.kernels.get(node) == Some(&Kernels::Several);
        if is_shared && self.user_counts.get(node) != Some(&1) {
            match self.row_value(node) {
                Some((view, above)) => {
                    self.end_chain(&view);
                    for fused in above.iter().filter(|node| !self.realized.contains(*node)) {
                        self.reductions.remove(fused);
                    }
                }
                None => self.end_chain(node),
            }
        }
    }

    /// Returns the view of the only value of each row that a node is computed from, and the nodes
    /// above it; `None` if the node is costly to compute from this value, or from more bytes than
    /// it has.
    fn row_value(&self, node: &UOp) -> Option<(UOp, FxHashSet<UOp>)> {
        let (mut seen, mut pending) = (FxHashSet::default(), vec![node.clone()]);
        let (mut cost, mut loaded_bytes) = (0, 0);
        let mut value: Option<UOp> = None;
        while let Some(next) = pending.pop() {
            if !seen.insert(next.clone()) {
                continue;
            }
            if next.op() == Op::Buffer || self.realized.contains(&next) {
                let is_full = size_of(node) <= size_of(&next);
                loaded_bytes += if is_full { next.dtype().size_bytes() } else { 0 };
                continue;
            }
            match (next.op(), next.arg(), next.src()) {
                (Op::View, Arg::View(tracker), [base])
                    if self.is_fused(base) && self.is_broadcast(tracker, base) =>
                {
                    if value.as_ref().is_some_and(|known| known.src()[0] != *base) {
                        return None;
                    }
                    value = Some(next.clone());
                    continue;
                }
                (Op::ReduceAxis, ..) => return None,
                _ => cost += next.op().row().cost,
            }
            if SHIFTED_COST < cost {
                return None;
            }
            pending.extend(next.src().iter().cloned());
        }
        let view = value.filter(|_| loaded_bytes <= node.dtype().size_bytes())?;
        Some((view, seen))
    }

    /// Gives buffers to costly values of rows whose reduction is in another kernel by now, so that
    /// they need not be in the kernel that broadcasts them (rule 2).
    fn store_row_values(&mut self, order: &[UOp]) {
        let repeated = self.computed_in_loops(order);
        self.reductions.clear();
        for node in order {
            if let (Op::View, Arg::View(tracker)) = (node.op(), node.arg()) {
                let base = &node.src()[0];
                if repeated.contains(node)
                    && self.is_fused(base)
                    && !self.indices.contains(node)
                    && !self.reductions.contains_key(base)
                    && self.must_realize(tracker, base)
                    && ROW_VALUE_COST <= self.cost(base)
                {
                    self.realized.insert(base.clone());
                }
            }
            let chain = self.chain_of(node);
            self.chains.insert(node.clone(), chain);
            if let Some(reductions) = self.fused_reductions(node).0 {
                self.reductions.insert(node.clone(), reductions);
            }
        }
    }

    /// Returns the nodes that kernels compute for each element: all but those of which a gather
    /// takes a single element of each row.
    fn computed_in_loops(&self, order: &[UOp]) -> FxHashSet<UOp> {
        let gathers = order.iter().filter(|node| index_of_gather(node).is_some());
        let choices: FxHashSet<&UOp> = gathers.map(|gather| &gather.src()[0]).collect();
        let mut computed = FxHashSet::default();
        for user in order.iter().rev() {
            if self.realized.contains(user) || computed.contains(user) {
                // The last source of a choice is the value of which the gather takes elements.
                let count = if choices.contains(user) { 2 } else { user.src().len() };
                computed.extend(user.src()[..count].iter().cloned());
            }
        }
        computed
    }

    /// Returns the reductions that are fused with a node, if there are any, and the sources at
    /// which the chain of a reduction must end, since the node cannot be in it.
    fn fused_reductions(&self, node: &UOp) -> (Option<FusedReductions>, SmallVec<[UOp; 3]>) {
        let (mut fused, mut ended): (Option<FusedReductions>, _) = (None, SmallVec::new());
        for src in node.src() {
            let Some(below) = self.reductions_below(src) else { continue };
            let next = match (node.op(), node.arg()) {
                (Op::View, Arg::View(tracker)) => below.viewed(tracker, self.rows),
                (Op::ReduceAxis, _) => below.reduced_by(node, self.rows),
                _ if self.shared_rows
                    && below.would_share_product(fused.as_ref(), &self.thresholds) =>
                {
                    None
                }
                _ => below.union(fused.as_ref(), self.rows),
            };
            match next {
                Some(next) => fused = Some(next),
                None => ended.push(src.clone()),
            }
        }
        let fused = match node.op() {
            Op::ReduceAxis => fused.or_else(|| Some(FusedReductions::of(node))),
            _ => fused,
        };
        (fused, ended)
    }

    /// Returns the reductions that are fused with a source, unless it has a buffer.
    fn reductions_below(&self, src: &UOp) -> Option<&FusedReductions> {
        let (base, _) = base_and_tracker(src);
        if self.realized.contains(&base) { None } else { self.reductions.get(src) }
    }

    /// Ends the chain of a reduction at `src`: gives a buffer to its base or, if that is one or
    /// more widening casts, to the source of the first cast.
    fn end_chain(&mut self, src: &UOp) {
        let (mut base, _) = base_and_tracker(src);
        while base.op() == Op::Cast && self.reductions.contains_key(&base.src()[0]) {
            let narrow = &base.src()[0];
            let widens = narrow.dtype().size_bytes() < base.dtype().size_bytes();
            if !widens || !is_computed(narrow) {
                break;
            }
            self.reductions.remove(&base);
            base = narrow.clone();
        }
        self.realized.insert(base);
    }
}

/// Returns whether the view pads its base and repeats no elements.
fn is_simple_pad(tracker: &ShapeTracker, base_size: i64) -> bool {
    let [view] = tracker.views() else { return false };
    view.mask().is_some_and(|mask| {
        let real_count: i64 = mask.iter().map(|(start, end)| end - start).product();
        real_count <= base_size
    })
}
