//! Pass `keep`: what a fold computes at some cost of each element of a row, and a later loop over
//! the same row computes again, is kept in an array of the thread.
//!
//! ```text
//! s = sum over r of exp2(x[r])              s = sum over r of (t[r] = exp2(x[r]))
//! y[q] = exp2(x[q]) / s                     y[q] = t[q] / s,  behind the loop of s
//! ```
//!
//! In the graph a load says by its second source behind what it comes: in the loop of the fold
//! behind the store of the same step, in other loops behind the fold.

use gradiff_graph::{Arg, AxisKind, DType, Local, Op, Thresholds, UOp};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::Error;
use crate::linearize::Free;
use crate::pass::Context;
use crate::shape::map_nodes;
use crate::transcendental::uops;

/// Arrays of a kernel.
const ARRAYS_MOST: usize = 4;

/// The pass. See the head of this file. Devices with groups share their arrays among threads.
pub(crate) fn keep(root: &UOp, ctx: &mut Context<'_>) -> Result<UOp, Error> {
    let mut root = root.clone();
    if ctx.target.groups.is_some() {
        return Ok(root);
    }
    for number in 0..ARRAYS_MOST {
        match kept_once(&root, number, &ctx.target.thresholds)? {
            Some(kept) => root = kept,
            None => break,
        }
    }
    Ok(root)
}

/// The kernel with one more array; none if nothing is worth it.
fn kept_once(root: &UOp, number: usize, thresholds: &Thresholds) -> Result<Option<UOp>, Error> {
    let costs = root.toposort().iter().map(cost).sum::<i64>();
    if costs < 2 * thresholds.keep_additions {
        return Ok(None);
    }
    let free = Free::of(root)?;
    let folds: Vec<&UOp> = free.nodes.iter().filter(|node| node.op() == Op::Reduce).collect();
    let over = |fold: &UOp| fold.src()[1..].iter().fold(0, |all, range| all | free.of_node(range));
    let reduced = folds.iter().fold(0, |all, fold| all | over(fold));
    for fold in folds.iter().filter(|fold| free.of_node(fold) & reduced == 0) {
        let row = Row { free: &free, ranges: &fold.src()[1..], bits: over(fold) };
        let Some(size) = row.size().filter(|_| row.has_like()) else { continue };
        let before: FxHashSet<UOp> = fold.toposort().into_iter().collect();
        let data = data_of(&fold.src()[0]);
        for value in fold.src()[0].toposort().iter().rev().filter(|value| data.contains(*value)) {
            let bytes = size.saturating_mul(value.dtype().size_bytes() as i64);
            if thresholds.keep_row_bytes < bytes || !row.is_worth_keeping(value, thresholds) {
                continue;
            }
            let others = free.nodes.iter().filter(|other| !before.contains(other));
            let twins: FxHashMap<UOp, Places> =
                others.filter_map(|other| Some((other.clone(), row.twin(value, other)?))).collect();
            if !twins.is_empty() {
                let array = Local { number, size_elements: size };
                return row.kept(root, (fold, value), &twins, array).map(Some);
            }
        }
    }
    Ok(None)
}

/// The values that a value is made of: no addresses, and nothing of the rows that are kept already.
fn data_of(value: &UOp) -> FxHashSet<UOp> {
    let mut found: FxHashSet<UOp> = FxHashSet::default();
    let mut seen: FxHashSet<UOp> = FxHashSet::default();
    let mut pending = vec![value.clone()];
    while let Some(node) = pending.pop() {
        if !seen.insert(node.clone()) {
            continue;
        }
        let is_kept = node.op() == Op::Load && node.src()[0].src()[0].op() == Op::DefineLocal;
        if is_kept {
            // What is stored may hold other values; its address and its load are none.
            pending.extend(node.src()[1..].iter().filter_map(|store| store.src().get(1).cloned()));
            continue;
        }
        // What an address is made of is asked for by rules of indices, which know no memory.
        if node.op() != Op::Index {
            pending.extend(node.src().iter().cloned());
            found.insert(node);
        }
    }
    found
}

/// What stands in the place of each range of a row.
type Places = SmallVec<[UOp; 2]>;

/// The loops of a fold.
struct Row<'a> {
    free: &'a Free,
    ranges: &'a [UOp],
    bits: u64,
}

impl Row<'_> {
    /// Its elements; none if its sources are no ranges of constant size.
    fn size(&self) -> Option<i64> {
        let size = |range: &UOp| i64::try_from(range.src().first()?.as_int()?).ok();
        let is_plain = |range: &UOp| matches!(range.arg(), Arg::Axis(_));
        let mut sizes = self.ranges.iter().map(|range| size(range).filter(|_| is_plain(range)));
        sizes.try_fold(1i64, |all, size| all.checked_mul(size?))
    }

    /// Whether there may be another loop over the row.
    fn has_like(&self) -> bool {
        let is_other = |range: &UOp| !self.ranges.contains(range);
        let others: Vec<&UOp> = self.free.ranges().filter(|range| is_other(range)).collect();
        self.ranges.iter().all(|range| others.iter().any(|other| other.src() == range.src()))
    }

    /// Whether a value has an element for each of the row, and is dear.
    fn is_worth_keeping(&self, value: &UOp, thresholds: &Thresholds) -> bool {
        let varies = |node: &UOp| self.free.of_node(node) & self.bits;
        let is_data = !matches!(value.dtype(), DType::Bool | DType::Void);
        if !is_data || varies(value) != self.bits || value.op() == Op::Reduce {
            return false;
        }
        let nodes = value.toposort();
        let costs = nodes.iter().filter(|node| varies(node) != 0).map(cost);
        thresholds.keep_additions <= costs.sum::<i64>()
    }

    /// What stands for the ranges of the row in a node that is otherwise the same as a value.
    fn twin(&self, value: &UOp, other: &UOp) -> Option<Places> {
        let mut places: SmallVec<[Option<UOp>; 2]> = SmallVec::from_elem(None, self.ranges.len());
        let mut pending = vec![(value, other)];
        let mut seen: FxHashSet<(&UOp, &UOp)> = FxHashSet::default();
        while let Some((one, other)) = pending.pop() {
            if let Some(at) = self.ranges.iter().position(|range| range == one) {
                let is_known = places[at].as_ref().is_some_and(|known| known != other);
                let is_taken = places.iter().flatten().any(|known| known == other);
                let is_new = places[at].is_none();
                let is_alike = other.op() == Op::Range && other.src() == one.src();
                if is_known || is_new && is_taken || !is_alike || other == one {
                    return None;
                }
                places[at] = Some(other.clone());
                continue;
            }
            if one == other {
                if self.free.of_node(one) & self.bits != 0 {
                    return None;
                }
                continue;
            }
            let is_alike = one.op() == other.op()
                && one.dtype() == other.dtype()
                && one.arg() == other.arg()
                && one.src().len() == other.src().len();
            if !is_alike {
                return None;
            }
            if seen.insert((one, other)) {
                pending.extend(one.src().iter().zip(other.src()));
            }
        }
        places.into_iter().collect()
    }

    /// The kernel in which the fold stores the value and the twins are loaded.
    fn kept(
        &self,
        root: &UOp,
        (fold, value): (&UOp, &UOp),
        twins: &FxHashMap<UOp, Places>,
        local: Local,
    ) -> Result<UOp, Error> {
        let dtype = value.dtype();
        let array = UOp::new(Op::DefineLocal, dtype, [], Arg::Local(local));
        let index = |places: &[UOp]| {
            let place = self.place(places);
            UOp::new(Op::Index, dtype, [array.clone(), place], Arg::None)
        };
        let load = |places: &[UOp], behind: UOp| {
            UOp::new(Op::Load, dtype, [index(places), behind], Arg::None)
        };
        let store = [index(self.ranges), value.clone()];
        let store = UOp::new(Op::Store, DType::Void, store, Arg::None);
        let stored = load(self.ranges, store);
        let fold_order = fold.toposort();
        let keeping = map_nodes(&fold_order, |old, node| {
            Ok(if old == value { stored.clone() } else { node })
        })?;
        map_nodes(&root.toposort(), |old, node| {
            if old == fold {
                return Ok(keeping.clone());
            }
            Ok(twins.get(old).map_or(node, |places| load(places, keeping.clone())))
        })
    }

    /// Where the element at some steps lies.
    fn place(&self, places: &[UOp]) -> UOp {
        let mut all = places.iter().zip(self.ranges);
        let (first, _) = all.next().expect("a fold has ranges");
        all.fold(first.clone(), |place, (next, range)| {
            let scaled = UOp::binary(Op::Mul, place, range.src()[0].clone());
            UOp::binary(Op::Add, scaled, next.clone())
        })
    }
}

/// About how many additions an op takes.
fn cost(node: &UOp) -> i64 {
    match node.op() {
        _ if 0 < uops(node) => uops(node),
        Op::FDiv | Op::Recip | Op::Sqrt => 4,
        Op::CDiv | Op::CMod | Op::FloorDiv | Op::FloorMod => 8,
        op if op.is_elementwise() => 1,
        _ => 0,
    }
}

/// Whether a kernel keeps rows.
pub(crate) fn has_rows(nodes: &[UOp]) -> bool {
    nodes.iter().any(|node| node.op() == Op::DefineLocal)
}

/// The stores by which a kernel keeps rows.
pub(crate) fn stores(free: &Free) -> impl Iterator<Item = &UOp> {
    let is_kept = |node: &UOp| array_of(node).op() == Op::DefineLocal;
    free.nodes.iter().filter(move |node| node.op() == Op::Store && is_kept(node))
}

fn array_of(store: &UOp) -> &UOp {
    &store.src()[0].src()[0]
}

/// The ranges (bits) along which a kept row is another one, not another of its elements.
pub(crate) fn rows_of(store: &UOp, free: &Free) -> u64 {
    let [index, value] = [0, 1].map(|source| free.of_node(&store.src()[source]));
    value & !index
}

/// The ranges (bits) of which each step keeps rows of its own.
pub(crate) fn rows(free: &Free) -> u64 {
    stores(free).fold(0, |all, store| all | rows_of(store, free))
}

/// Bytes of the arrays in which a kernel keeps rows.
pub(crate) fn bytes(free: &Free) -> i64 {
    let bytes = |store: &UOp| match array_of(store).arg() {
        Arg::Local(local) => local.size_elements * array_of(store).dtype().size_bytes() as i64,
        _ => 0,
    };
    stores(free).map(bytes).sum()
}

/// The kernel in which rows that are computed at once have an array each.
pub(crate) fn set_apart(root: &UOp) -> Result<UOp, Error> {
    let order = root.toposort();
    let free = Free::of(root)?;
    let is_upcast =
        |range: &&UOp| matches!(range.arg(), Arg::Axis(axis) if axis.kind == AxisKind::Upcast);
    let upcast: Vec<&UOp> = free.ranges().filter(is_upcast).collect();
    let beside: FxHashMap<UOp, Vec<&UOp>> = stores(&free)
        .map(|store| {
            let rows = rows_of(store, &free);
            let has_rows = |range: &&UOp| rows & free.of_node(range) != 0;
            (array_of(store).clone(), upcast.iter().copied().filter(has_rows).collect())
        })
        .collect();
    let count = |range: &UOp| range.src()[0].as_int().map_or(1, |size| size as i64);
    map_nodes(&order, |old, node| match (old.op(), old.arg()) {
        (Op::DefineLocal, Arg::Local(local)) => {
            let copies = beside[old].iter().map(|range| count(range)).product::<i64>();
            let size_elements = local.size_elements * copies;
            let arg = Arg::Local(Local { size_elements, ..*local });
            Ok(UOp::new(Op::DefineLocal, old.dtype(), [], arg))
        }
        (Op::Index, _) if let Arg::Local(local) = old.src()[0].arg() => {
            let dtype = old.src()[1].dtype();
            let mut size = local.size_elements;
            let mut place = node.src()[1].clone();
            for range in &beside[&old.src()[0]] {
                let start = UOp::binary(Op::Mul, (*range).clone(), UOp::int(dtype, size));
                place = UOp::binary(Op::Add, start, place);
                size *= count(range);
            }
            let src = node.src().iter().enumerate();
            Ok(node.with_src(
                src.map(|(at, source)| if at == 1 { place.clone() } else { source.clone() }),
            ))
        }
        _ => Ok(node),
    })
}
