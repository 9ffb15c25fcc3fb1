//! The loops of a kernel, and the legality of opts.

use gradiff_graph::target::Groups;
use gradiff_graph::{Arg, Axis, AxisKind, DType, Op, UOp};
use gradiff_rewrite::Mode;
use rustc_hash::{FxHashMap, FxHashSet, FxHasher};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

use super::tensor_cores::{self, Matmul};
use super::tuning::{DRAWN_UOPS_MAX, THREADS_MAX, UNROLL_MAX, UOPS_MAX, UPCAST_MAX};
use super::{Opt, OptOp, Setting, apply};
use crate::Error;
use crate::cache_inputs;
use crate::error::malformed;
use crate::linearize::{Free, MAX_RANGES};
use crate::transcendental;

/// A loop of a lowered kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loop {
    /// The range.
    pub range: UOp,
    /// Its kind and number.
    pub axis: Axis,
    /// The trip count.
    pub size: i64,
    /// True if a reduction runs over it.
    pub is_reduced: bool,
    /// True if a store is inside it.
    pub is_output: bool,
    /// True if a reduction over it is inside a loop of another reduction.
    pub is_nested: bool,
    /// The number and the type of each reduction over it.
    pub reductions: SmallVec<[(usize, DType); 2]>,
    /// True if several of its iterations store the same element.
    repeats_stores: bool,
    /// True if each of its iterations caches a row of its own.
    has_cached_rows: bool,
    /// Its bit in sets of loops.
    bit: u64,
    /// The loops (bits) that some node depends on together with it.
    related: u64,
}

impl Loop {
    /// Returns whether no node depends on both loops, so that neither has to be inside the other.
    pub(super) fn is_independent(&self, other: &Loop) -> bool {
        self.related & other.bit == 0
    }
}

/// The loops of a lowered kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loops {
    /// Plain loops first, so that an opt changes the indices of few others; among them output
    /// loops, outermost first, then those that are only reduced.
    pub list: Vec<Loop>,
    /// True if the kernel has one store, so that all output loops are in one nest.
    pub has_one_store: bool,
    /// True if it loads from an array that it stores to.
    is_in_place: bool,
    /// The candidates for tensor cores.
    pub matmuls: Vec<Matmul>,
    /// Estimated number of uops for the stored values, by the set of loops (bits) that they vary
    /// in.
    uop_counts: Vec<(u64, i64)>,
    /// Bytes of the arrays that cache a row; upcast iterations of the output need one each.
    cache_bytes: i64,
}

/// Returns the loops of a lowered kernel.
///
/// # Errors
/// If the end of a range is not constant.
pub fn loops(root: &UOp) -> Result<Loops, Error> {
    let free = Free::of(root)?;
    let bits = |node: &UOp| free.of_node(node);
    let outputs = root.src().iter().fold(0, |set, store| set | bits(store));
    let reductions: Vec<&UOp> = free.nodes.iter().filter(|node| node.op() == Op::Reduce).collect();
    let reduced = reductions.iter().fold(0, |set, reduction| set | free.of_loops(reduction));
    let cached_rows = cache_inputs::row_ranges(&free);
    let repeating = store_repeating(&free);
    let mut together: Vec<u64> = free.nodes.iter().map(bits).collect();
    together.sort_unstable();
    together.dedup();
    let loop_of = |range: &UOp| {
        let size = range.src()[0].as_int().and_then(|end| i64::try_from(end).ok());
        let (Some(size), Arg::Axis(axis)) = (size, range.arg()) else {
            return Err(malformed("a range without an end or a number"));
        };
        let bit = bits(range);
        let over_it = reductions
            .iter()
            .enumerate()
            .filter(|(_, reduction)| free.of_loops(reduction) & bit != 0);
        Ok(Loop {
            range: range.clone(),
            axis: *axis,
            size,
            is_reduced: reduced & bit != 0,
            is_output: outputs & bit != 0,
            is_nested: over_it.clone().any(|(_, reduction)| bits(reduction) & reduced != 0),
            reductions: over_it.map(|(number, reduction)| (number, reduction.dtype())).collect(),
            repeats_stores: repeating & bit != 0,
            has_cached_rows: cached_rows & bit != 0,
            bit,
            related: together.iter().filter(|set| *set & bit != 0).fold(bit, |all, set| all | set),
        })
    };
    let mut list: Vec<Loop> = free.ranges().map(loop_of).collect::<Result<_, Error>>()?;
    list.sort_by_key(|info| (info.axis.kind != AxisKind::Loop, !info.is_output, info.axis));
    let matmuls = tensor_cores::matmuls(&free, &list);
    let (has_one_store, cache_bytes) = (root.src().len() == 1, cache_inputs::cache_bytes(&free));
    let (is_in_place, uop_counts) = (is_in_place(&free), uop_counts(&free));
    Ok(Loops { list, has_one_store, is_in_place, matmuls, uop_counts, cache_bytes })
}

/// Returns the loops (bits) several iterations of which store the same element: those whose store
/// indices are clamped by `min`, as blocks shifted inwards are.
fn store_repeating(free: &Free) -> u64 {
    let mut indices: FxHashSet<&UOp> = FxHashSet::default();
    let mut loops = 0;
    for node in free.nodes.iter().rev() {
        match node.op() {
            Op::Store => indices.extend(node.src()[0].src().get(1)),
            _ if !indices.contains(node) => {}
            Op::Min => loops |= free.of_node(node),
            _ => indices.extend(node.src()),
        }
    }
    loops
}

/// Returns whether a kernel loads from an array that it stores to.
fn is_in_place(free: &Free) -> bool {
    let arrays = |op: Op| {
        let accesses = free.nodes.iter().filter(move |node| node.op() == op);
        accesses.map(|access| &access.src()[0].src()[0])
    };
    let stored: FxHashSet<&UOp> = arrays(Op::Store).collect();
    arrays(Op::Load).any(|array| stored.contains(array))
}

/// Estimates the number of uops for the stored values, by the set of loops that they vary in.
/// Indices and gates do not count: few are left after unrolling.
fn uop_counts(free: &Free) -> Vec<(u64, i64)> {
    let mut values: FxHashSet<&UOp> = FxHashSet::default();
    let mut counts: FxHashMap<u64, i64> = FxHashMap::default();
    for node in free.nodes.iter().rev() {
        match node.op() {
            Op::Store => values.extend(&node.src()[1..2]),
            _ if !values.contains(node) => {}
            Op::Reduce => values.extend(&node.src()[..1]),
            op if op.is_elementwise() => {
                values.extend(node.src());
                *counts.entry(free.of_node(node)).or_default() += transcendental::uops(node).max(1);
            }
            _ => {}
        }
    }
    counts.into_iter().collect()
}

impl Loops {
    /// Returns the number of iterations of all loops of a kind.
    pub(super) fn count(&self, kind: AxisKind) -> i64 {
        let sizes = self.list.iter().filter(|info| info.axis.kind == kind).map(|info| info.size);
        sizes.product()
    }

    /// Returns the number of iterations of the loops of a kind that depend on a loop.
    fn count_with(&self, kind: AxisKind, info: &Loop) -> i64 {
        let is_with = |other: &&Loop| other.axis.kind == kind && !info.is_independent(other);
        self.list.iter().filter(is_with).map(|other| other.size).product()
    }

    /// Estimates the number of uops after unrolling, if `amount` iterations of a loop are unrolled,
    /// too.
    fn unrolled_uops(&self, info: &Loop, amount: i64) -> i64 {
        let is_unrolled =
            |other: &&Loop| matches!(other.axis.kind, AxisKind::Upcast | AxisKind::Unroll);
        let unrolled = |(bits, count): &(u64, i64)| {
            let loops = self.list.iter().filter(is_unrolled).filter(|other| bits & other.bit != 0);
            let copies = loops.map(|other| other.size).fold(*count, i64::saturating_mul);
            if bits & info.bit != 0 { copies.saturating_mul(amount) } else { copies }
        };
        self.uop_counts.iter().map(unrolled).fold(0, i64::saturating_add)
    }

    pub(super) fn has(&self, kind: AxisKind) -> bool {
        self.list.iter().any(|info| info.axis.kind == kind)
    }

    /// Checks that the kernel may get this many loops more, beside those over the threads of groups
    /// that pass `groups` adds: one for each reduction that is divided.
    pub(super) fn have_room(&self, added: usize) -> Result<(), String> {
        let divided = self.list.iter().filter(|info| info.axis.kind == AxisKind::Group);
        let over_threads: usize = divided.map(|info| info.reductions.len()).sum();
        match self.list.len() + over_threads + added {
            count if count <= MAX_RANGES => Ok(()),
            count => Err(format!("{count} loops, at most {MAX_RANGES} are possible")),
        }
    }

    /// Returns the number of the next new range.
    pub(super) fn next_number(&self) -> i64 {
        1 + self.list.iter().map(|info| info.axis.number).max().unwrap_or(0)
    }
}

/// Checks that an opt is legal for a kernel with these loops.
///
/// # Errors
/// The reason why it is illegal, and what is legal.
pub fn check(loops: &Loops, opt: Opt, setting: Setting<'_>) -> Result<(), String> {
    check_opt(loops, opt, setting).map_err(|why| format!("{opt}: {why}"))
}

fn check_opt(loops: &Loops, opt: Opt, setting: Setting<'_>) -> Result<(), String> {
    let ensure = |holds: bool, why: &dyn Fn() -> String| if holds { Ok(()) } else { Err(why()) };
    if opt.op == OptOp::NoLocals {
        let is_plain = |info: &Loop| info.axis.kind == AxisKind::Loop && info.is_output;
        groups_of(loops, setting)?;
        ensure(!loops.has(AxisKind::Local), &|| "the kernel already has local loops".to_owned())?;
        return ensure(loops.list.iter().any(is_plain), &|| {
            "the kernel has no plain output loop".to_owned()
        });
    }
    let info = loops.list.get(opt.axis).ok_or_else(|| match loops.list.len() {
        0 => "the kernel has no loops".to_owned(),
        count => format!("the kernel has loops 0 to {}", count - 1),
    })?;
    let Loop { axis, size, is_reduced, is_output, .. } = info;
    ensure(axis.kind == AxisKind::Loop, &|| {
        format!("loop {} is of kind {:?}, not a plain loop", opt.axis, axis.kind)
    })?;
    if opt.op == OptOp::Tc {
        return tensor_cores::check(loops, info, opt.amount, setting).map(drop);
    }
    if opt.op == OptOp::Swap {
        let other = usize::try_from(opt.amount).ok().and_then(|other| loops.list.get(other));
        let is_plain_output = other.is_some_and(|other| {
            other.is_output && other.axis.kind == AxisKind::Loop && other.axis != *axis
        });
        return ensure(is_plain_output && *is_output, &|| {
            "swap takes two plain output loops".to_owned()
        });
    }
    let amount = if opt.amount == 0 { *size } else { opt.amount };
    ensure(2 <= amount && 2 <= *size, &|| {
        format!("{size} iterations by {amount}: both must be 2 or more")
    })?;
    if opt.op == OptOp::PadTo {
        let padded = apply::padded_size(*size, amount);
        ensure(padded != *size, &|| format!("{size} is a multiple of {amount}"))?;
        return ensure(padded / 4 < *size, &|| {
            format!("{size} iterations padded to {padded}, which is 4 times as many or more")
        });
    }
    let (is_only_output, is_only_reduced) = (*is_output && !is_reduced, *is_reduced && !is_output);
    if opt.op == OptOp::Overlap {
        ensure(setting.target.groups.is_none(), &|| "the device has groups".to_owned())?;
        ensure(is_only_output, &|| "overlap takes an output loop".to_owned())?;
        ensure(!loops.is_in_place, &|| {
            "the kernel loads from an array that it stores to".to_owned()
        })?;
        return ensure(amount < *size && size % amount != 0, &|| {
            format!("{size} iterations are not more than {amount}, or a multiple of it")
        });
    }
    ensure(size % amount == 0, &|| {
        format!("{size} iterations are not a multiple of {amount}; see padto and overlap")
    })?;
    let (is_allowed, kinds) = match opt.op {
        OptOp::Upcast => (is_only_output || is_only_reduced, "an output or a reduced loop"),
        OptOp::Unroll | OptOp::Group | OptOp::GroupTop => (is_only_reduced, "a reduced loop"),
        _ => (is_only_output, "an output loop"),
    };
    ensure(is_allowed, &|| format!("{} takes {kinds}", opt.op.name()))?;
    let is_group = matches!(opt.op, OptOp::Group | OptOp::GroupTop);
    let over_threads = if is_group { info.reductions.len() } else { 0 };
    loops.have_room(usize::from(amount < *size) + over_threads)?;
    if matches!(opt.op, OptOp::Upcast | OptOp::Unroll) {
        let uops = loops.unrolled_uops(info, amount);
        ensure(uops <= UOPS_MAX, &|| {
            format!("{uops} uops after unrolling, at most {UOPS_MAX} are possible")
        })?;
    }
    match opt.op {
        OptOp::Local => fits(loops, info, amount, AxisKind::Local, setting),
        OptOp::Group | OptOp::GroupTop => {
            check_reordering(opt, setting)?;
            fits(loops, info, amount, AxisKind::Group, setting)
        }
        OptOp::Thread => {
            ensure(setting.target.groups.is_none(), &|| "the device has groups".to_owned())?;
            ensure(loops.has_one_store, &|| "the kernel has several stores".to_owned())?;
            ensure(!info.repeats_stores, &|| {
                "two threads would store the same element".to_owned()
            })?;
            ensure(!loops.has(AxisKind::Thread), &|| "the kernel already has threads".to_owned())?;
            at_most(THREADS_MAX, 1, amount)
        }
        OptOp::Unroll => {
            at_most(UNROLL_MAX, loops.count_with(AxisKind::Unroll, info), amount)?;
            // In strict mode sums keep their order: only the innermost loop can be unrolled.
            let is_last = loops.list.iter().all(|other| !other.is_reduced || other.axis <= *axis);
            ensure(setting.mode != Mode::Strict || is_last, &|| {
                "in strict mode only the innermost reduced loop can be unrolled".to_owned()
            })
        }
        _ => {
            at_most(UPCAST_MAX, loops.count_with(AxisKind::Upcast, info), amount)?;
            if is_only_reduced {
                check_reordering(opt, setting)?;
                return ensure(!loops.has(AxisKind::Group), &|| {
                    "a reduction is already divided among threads".to_owned()
                });
            }
            if loops.has(AxisKind::Group) {
                return fits(loops, info, amount, AxisKind::Upcast, setting);
            }
            let is_upcast =
                |other: &&Loop| other.has_cached_rows && other.axis.kind == AxisKind::Upcast;
            let upcast = loops.list.iter().filter(is_upcast).map(|other| other.size);
            let rows = upcast.product::<i64>() * amount;
            let bytes = loops.cache_bytes.saturating_mul(rows);
            let limit = setting.target.thresholds.cache_total_bytes;
            ensure(!info.has_cached_rows || bytes <= limit, &|| {
                format!("{rows} cached rows take {bytes} bytes, at most {limit} are possible")
            })
        }
    }
}

/// Checks that `count * amount` iterations are within a limit.
pub(super) fn at_most(limit: i64, count: i64, amount: i64) -> Result<(), String> {
    if amount <= limit / count {
        return Ok(());
    }
    Err(format!("{count} x {amount} iterations, at most {limit} are possible"))
}

/// Checks that floats may be summed in another order.
fn check_reordering(opt: Opt, setting: Setting<'_>) -> Result<(), String> {
    if setting.mode != Mode::Strict {
        return Ok(());
    }
    Err(format!("in strict mode sums keep their order, which {} changes", opt.op.name()))
}

/// Returns the group limits of the device, if the kernel can be divided among groups.
fn groups_of(loops: &Loops, setting: Setting<'_>) -> Result<Groups, String> {
    let groups = setting.target.groups.ok_or("the device has no groups of threads")?;
    if loops.has_one_store { Ok(groups) } else { Err("the kernel has several stores".to_owned()) }
}

/// Checks that `amount` iterations of a loop may get this kind within the group limits.
pub(super) fn fits(
    loops: &Loops,
    info: &Loop,
    amount: i64,
    kind: AxisKind,
    setting: Setting<'_>,
) -> Result<(), String> {
    let groups = groups_of(loops, setting)?;
    if kind == AxisKind::Group {
        // All threads of a group load what the first one stores.
        if loops.is_in_place {
            return Err("the kernel loads from an array that it stores to".to_owned());
        }
        if info.is_nested {
            return Err("the reduction is inside the loop of another one".to_owned());
        }
        if loops.list.iter().any(|info| info.axis.kind == AxisKind::Upcast && info.is_reduced) {
            return Err("a reduction is already upcast".to_owned());
        }
    }
    let is_thread =
        |kind: AxisKind| matches!(kind, AxisKind::Local | AxisKind::Group | AxisKind::Warp);
    let threads = loops.list.iter().filter(|info| is_thread(info.axis.kind));
    // The threads of a warp are adjacent: it is the innermost dimension.
    let order = |kind: AxisKind, number: i64| (kind == AxisKind::Warp, number);
    let mut sizes: Vec<((bool, i64), i64)> =
        threads.map(|info| (order(info.axis.kind, info.axis.number), info.size)).collect();
    sizes.extend(is_thread(kind).then_some((order(kind, loops.next_number()), amount)));
    sizes.sort_unstable();
    let count: i64 = sizes.iter().map(|(_, size)| size).product();
    if groups.threads < count {
        return Err(format!("{count} threads in a group, at most {} are possible", groups.threads));
    }
    let dims = sizes.iter().rev().enumerate();
    if let Some((dim, (_, size))) = dims
        .clone()
        .find(|(dim, (_, size))| groups.sizes.get(*dim).is_none_or(|limit| limit < size))
    {
        return Err(format!(
            "{size} threads in dimension {dim}, at most {:?} are possible",
            groups.sizes
        ));
    }
    // Each reduction that is divided, over one loop or several, has a local array.
    let divided = loops.list.iter().filter(|info| info.axis.kind == AxisKind::Group);
    let divided = divided.chain((kind == AxisKind::Group).then_some(info));
    let arrays: BTreeMap<usize, DType> = divided.flat_map(|info| info.reductions.clone()).collect();
    let element_bytes = |dtype: &DType| (dtype.size_bytes() as i64).max(groups.element_bytes);
    let upcast = loops.count(AxisKind::Upcast) * if kind == AxisKind::Upcast { amount } else { 1 };
    let bytes = count * upcast * arrays.values().map(element_bytes).sum::<i64>();
    if groups.local_bytes < bytes {
        let limit = groups.local_bytes;
        return Err(format!("{bytes} bytes of local memory, at most {limit} are possible"));
    }
    Ok(())
}

/// Returns the legal opts of a kernel, in a fixed order, for a selection of amounts.
///
/// # Errors
/// Those of [`loops`].
pub fn legal(root: &UOp, setting: Setting<'_>) -> Result<Vec<Opt>, Error> {
    const AMOUNTS: [i64; 9] = [0, 2, 3, 4, 5, 7, 8, 16, 32];
    let loops = loops(root)?;
    let count = loops.list.len();
    let mut found = Vec::new();
    for (axis, op) in (0..count).flat_map(|axis| OptOp::ALL.map(|op| (axis, op))) {
        let amounts: Vec<i64> = match op {
            OptOp::Swap => (axis as i64 + 1..count as i64).collect(),
            OptOp::NoLocals => (axis == 0).then_some(0).into_iter().collect(),
            OptOp::Tc => {
                let choices = tensor_cores::choices(&loops, &loops.list[axis], setting);
                (0..choices.len() as i64).collect()
            }
            _ => AMOUNTS.to_vec(),
        };
        let opts = amounts.into_iter().map(|amount| Opt { op, axis, amount });
        found.extend(opts.filter(|opt| check(&loops, *opt, setting).is_ok()));
    }
    Ok(found)
}

/// Estimates the number of uops after an opt that unrolls; 0 for other opts.
fn unrolled_uops(root: &UOp, opt: Opt) -> Result<i64, Error> {
    if !matches!(opt.op, OptOp::Upcast | OptOp::Unroll) {
        return Ok(0);
    }
    let loops = loops(root)?;
    let count = |info: &Loop| {
        loops.unrolled_uops(info, if opt.amount == 0 { info.size } else { opt.amount })
    };
    Ok(loops.list.get(opt.axis).map_or(0, count))
}

/// Draws up to `limit` opts, each legal after those before it. Half of the draws are `tc`, if that
/// is legal, or else `upcast` on a CPU with vector arithmetic.
///
/// # Errors
/// Those of [`loops`].
pub fn draw(root: &UOp, seed: u64, limit: usize, setting: Setting<'_>) -> Result<Vec<Opt>, Error> {
    let mut hasher = FxHasher::default();
    loops(root)?.list.iter().for_each(|info| (info.size, info.is_reduced).hash(&mut hasher));
    let mut state = seed ^ hasher.finish();
    let mut dice = |count: usize| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (((mixed >> 32) * count as u64) >> 32) as usize
    };
    let (mut root, mut opts) = (root.clone(), Vec::new());
    for _ in 0..dice(limit + 1) {
        let legal = legal(&root, setting)?;
        let is_legal = |op: &OptOp| legal.iter().any(|opt| opt.op == *op);
        let ops: Vec<OptOp> = OptOp::ALL.into_iter().filter(is_legal).collect();
        if ops.is_empty() {
            break;
        }
        // `tc` is seldom legal, and stays legal after few other opts; vectors of several rows need
        // several upcasts.
        let has_vectors = setting.target.vectors.alu && setting.target.groups.is_none();
        let preferred = [(OptOp::Tc, true), (OptOp::Upcast, has_vectors)];
        let preferred = preferred.iter().find(|(op, applies)| *applies && ops.contains(op));
        let preferred = preferred.filter(|_| dice(2) == 0);
        let op = preferred.map_or_else(|| ops[dice(ops.len())], |(op, _)| *op);
        let choices: Vec<Opt> = legal.into_iter().filter(|opt| opt.op == op).collect();
        let opt = choices[dice(choices.len())];
        // Compilers take seconds for so many uops, so these are drawn seldom.
        if DRAWN_UOPS_MAX < unrolled_uops(&root, opt)? && dice(8) != 0 {
            continue;
        }
        root = apply(&root, opt, setting)?;
        opts.push(opt);
    }
    Ok(opts)
}
