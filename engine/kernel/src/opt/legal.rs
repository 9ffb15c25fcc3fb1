//! The loops of a kernel, and which opts they allow.

use gradiff_graph::{Arg, Axis, AxisKind, DType, Op, UOp};
use gradiff_rewrite::Mode;
use rustc_hash::{FxHashMap, FxHashSet, FxHasher};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

use super::tensor_cores::{self, Matmul};
use super::{Opt, OptOp, Setting, apply};
use crate::Error;
use crate::error::malformed;
use crate::keep;
use crate::linearize::Free;
use crate::target::Groups;
use crate::transcendental;

/// A loop of a lowered kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loop {
    /// The range.
    pub range: UOp,
    /// How its steps are run.
    pub axis: Axis,
    /// How many steps it has.
    pub size: i64,
    /// Whether a fold runs over it.
    pub is_reduced: bool,
    /// Whether a store runs over it.
    pub is_output: bool,
    /// Whether a fold over it stands in the loops of another fold.
    pub is_nested: bool,
    /// The number and the type of each fold over it.
    pub folds: SmallVec<[(usize, DType); 2]>,
    /// Whether some of its steps store where others do.
    is_overlapped: bool,
    /// Whether each of its steps keeps a row of its own in an array.
    has_rows: bool,
    /// Its own bit among the loops of the kernel.
    bit: u64,
    /// The loops that something depends on together with it.
    meets: u64,
}

impl Loop {
    /// Whether nothing depends on both, so that neither loop need stand in the other.
    pub(super) fn is_apart(&self, other: &Loop) -> bool {
        self.meets & other.bit == 0
    }
}

/// The loops of a lowered kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loops {
    /// Plain ones first, so that opts change the places of few; among them output loops outermost
    /// first, then those that are only reduced.
    pub list: Vec<Loop>,
    /// Whether the kernel stores once, so that all loops of the output stand in one nest.
    pub is_one_store: bool,
    /// Whether it loads from an array that it stores to.
    is_in_place: bool,
    /// What tensor cores may compute.
    pub matmuls: Vec<Matmul>,
    /// About how many uops compute what is stored, in each step of the loops of these bits.
    uops: Vec<(u64, i64)>,
    /// Bytes of the arrays in which rows are kept; steps of the output that run at once have their
    /// own.
    kept_bytes: i64,
}

/// The loops of a lowered kernel.
///
/// # Errors
/// A range without a constant end.
pub fn loops(root: &UOp) -> Result<Loops, Error> {
    let free = Free::of(root)?;
    let bits = |node: &UOp| free.of_node(node);
    let outputs = root.src().iter().fold(0, |all, store| all | bits(store));
    let folds: Vec<&UOp> = free.nodes.iter().filter(|node| node.op() == Op::Reduce).collect();
    let over = |fold: &UOp| fold.src()[1..].iter().fold(0, |all, range| all | bits(range));
    let reduced = folds.iter().fold(0, |all, fold| all | over(fold));
    let rows = keep::rows(&free);
    let overlapped = overlapped(&free);
    let mut together: Vec<u64> = free.nodes.iter().map(bits).collect();
    together.sort_unstable();
    together.dedup();
    let loop_of = |range: &UOp| {
        let size = range.src()[0].as_int().and_then(|end| i64::try_from(end).ok());
        let (Some(size), Arg::Axis(axis)) = (size, range.arg()) else {
            return Err(malformed("a range without an end or a number"));
        };
        let bit = bits(range);
        let own = folds.iter().enumerate().filter(|(_, fold)| over(fold) & bit != 0);
        Ok(Loop {
            range: range.clone(),
            axis: *axis,
            size,
            is_reduced: reduced & bit != 0,
            is_output: outputs & bit != 0,
            is_nested: own.clone().any(|(_, fold)| bits(fold) & reduced != 0),
            folds: own.map(|(number, fold)| (number, fold.dtype())).collect(),
            is_overlapped: overlapped & bit != 0,
            has_rows: rows & bit != 0,
            bit,
            meets: together
                .iter()
                .filter(|with| *with & bit != 0)
                .fold(bit, |all, with| all | with),
        })
    };
    let mut list: Vec<Loop> = free.ranges().map(loop_of).collect::<Result<_, Error>>()?;
    list.sort_by_key(|one| (one.axis.kind != AxisKind::Loop, !one.is_output, one.axis));
    let matmuls = tensor_cores::matmuls(&free, &list);
    let (is_one_store, kept_bytes) = (root.src().len() == 1, keep::bytes(&free));
    let is_in_place = is_in_place(&free);
    Ok(Loops { list, is_one_store, is_in_place, matmuls, uops: uops(&free), kept_bytes })
}

/// The loops of which some steps store where others do: those whose places stop at a bound, as
/// `overlap` makes them.
fn overlapped(free: &Free) -> u64 {
    let mut places: FxHashSet<&UOp> = FxHashSet::default();
    let mut loops = 0;
    for node in free.nodes.iter().rev() {
        match node.op() {
            Op::Store => places.extend(node.src()[0].src().get(1)),
            _ if !places.contains(node) => {}
            Op::Min => loops |= free.of_node(node),
            _ => places.extend(node.src()),
        }
    }
    loops
}

/// Whether a kernel loads from an array that it stores to.
fn is_in_place(free: &Free) -> bool {
    let arrays = |op: Op| {
        let accesses = free.nodes.iter().filter(move |node| node.op() == op);
        accesses.map(|access| &access.src()[0].src()[0])
    };
    let stored: FxHashSet<&UOp> = arrays(Op::Store).collect();
    arrays(Op::Load).any(|array| stored.contains(array))
}

/// About how many uops compute what is stored, by the loops that they vary in. Places and gates do
/// not count: they are few when they are written out.
fn uops(free: &Free) -> Vec<(u64, i64)> {
    let mut values: FxHashSet<&UOp> = FxHashSet::default();
    let mut uops: FxHashMap<u64, i64> = FxHashMap::default();
    for node in free.nodes.iter().rev() {
        match node.op() {
            Op::Store => values.extend(&node.src()[1..2]),
            _ if !values.contains(node) => {}
            Op::Reduce => values.extend(&node.src()[..1]),
            op if op.is_elementwise() => {
                values.extend(node.src());
                *uops.entry(free.of_node(node)).or_default() += transcendental::uops(node).max(1);
            }
            _ => {}
        }
    }
    uops.into_iter().collect()
}

/// Most steps that run at once, over all loops that stand in each other.
pub(super) const UPCAST_MOST: i64 = 512;
/// Most steps in a row, likewise.
const UNROLL_MOST: i64 = 32;
/// Most uops that steps of loops are written out to, so that compilers take seconds.
const UOPS_MOST: i64 = 1 << 13;
/// Most uops that a drawn opt writes out, but for one in eight.
const DRAWN_UOPS_MOST: i64 = 1 << 10;
/// Most threads.
const THREAD_MOST: i64 = 64;

impl Loops {
    /// The steps of all loops of a kind.
    pub(super) fn count(&self, kind: AxisKind) -> i64 {
        let sizes = self.list.iter().filter(|one| one.axis.kind == kind).map(|one| one.size);
        sizes.product()
    }

    /// The same of those that do not stand apart from a loop.
    fn count_with(&self, kind: AxisKind, one: &Loop) -> i64 {
        let is_with = |other: &&Loop| other.axis.kind == kind && !one.is_apart(other);
        self.list.iter().filter(is_with).map(|other| other.size).product()
    }

    /// About how many uops are written out if so many steps of a loop are as well.
    fn uops_written(&self, one: &Loop, amount: i64) -> i64 {
        let is_written = |one: &&Loop| matches!(one.axis.kind, AxisKind::Upcast | AxisKind::Unroll);
        let written = |(bits, count): &(u64, i64)| {
            let loops = self.list.iter().filter(is_written).filter(|other| bits & other.bit != 0);
            let steps = loops.map(|other| other.size).fold(*count, i64::saturating_mul);
            if bits & one.bit != 0 { steps.saturating_mul(amount) } else { steps }
        };
        self.uops.iter().map(written).fold(0, i64::saturating_add)
    }

    pub(super) fn has(&self, kind: AxisKind) -> bool {
        self.list.iter().any(|one| one.axis.kind == kind)
    }

    /// The number of the next new range.
    pub(super) fn fresh(&self) -> i64 {
        1 + self.list.iter().map(|one| one.axis.number).max().unwrap_or(0)
    }
}

/// Whether the opt may be applied to a kernel with these loops.
///
/// # Errors
/// Why not, and what is allowed.
pub fn check(loops: &Loops, opt: Opt, setting: Setting<'_>) -> Result<(), String> {
    allowed(loops, opt, setting).map_err(|why| format!("{opt}: {why}"))
}

fn allowed(loops: &Loops, opt: Opt, setting: Setting<'_>) -> Result<(), String> {
    let ensure = |is_so: bool, why: &dyn Fn() -> String| if is_so { Ok(()) } else { Err(why()) };
    if opt.op == OptOp::NoLocals {
        let is_plain = |one: &Loop| one.axis.kind == AxisKind::Loop && one.is_output;
        groups_of(loops, setting)?;
        ensure(!loops.has(AxisKind::Local), &|| "the kernel has local loops already".to_owned())?;
        return ensure(loops.list.iter().any(is_plain), &|| {
            "the kernel has no plain output loop".to_owned()
        });
    }
    let one = loops.list.get(opt.axis).ok_or_else(|| match loops.list.len() {
        0 => "the kernel has no loops".to_owned(),
        count => format!("the kernel has loops 0 to {}", count - 1),
    })?;
    let Loop { axis, size, is_reduced, is_output, .. } = one;
    ensure(axis.kind == AxisKind::Loop, &|| format!("loop {} is split already", opt.axis))?;
    if opt.op == OptOp::Tc {
        return tensor_cores::check(loops, one, opt.amount, setting).map(drop);
    }
    if opt.op == OptOp::Swap {
        let other = usize::try_from(opt.amount).ok().and_then(|other| loops.list.get(other));
        let is_right = other.is_some_and(|other| {
            other.is_output && other.axis.kind == AxisKind::Loop && other.axis != *axis
        });
        return ensure(is_right && *is_output, &|| "swap takes two output loops".to_owned());
    }
    let amount = if opt.amount == 0 { *size } else { opt.amount };
    ensure(2 <= amount && 2 <= *size, &|| {
        format!("{size} steps by {amount}: both must be 2 or more")
    })?;
    if opt.op == OptOp::PadTo {
        let padded = apply::padded_size(*size, amount);
        ensure(padded != *size, &|| format!("{size} is a multiple of {amount}"))?;
        return ensure(padded / 4 < *size, &|| format!("{padded} steps for {size} are too many"));
    }
    let (is_only_output, is_only_reduced) = (*is_output && !is_reduced, *is_reduced && !is_output);
    if opt.op == OptOp::Overlap {
        ensure(setting.target.groups.is_none(), &|| "the device has groups".to_owned())?;
        ensure(is_only_output, &|| "overlap takes an output loop".to_owned())?;
        ensure(!loops.is_in_place, &|| "the kernel loads from what it stores to".to_owned())?;
        return ensure(amount < *size && size % amount != 0, &|| {
            format!("{size} steps are fewer than {amount}, or a multiple of it")
        });
    }
    ensure(size % amount == 0, &|| {
        format!("{amount} does not divide the {size} steps; see padto and overlap")
    })?;
    let (is_right, word) = match opt.op {
        OptOp::Upcast => (is_only_output || is_only_reduced, "an output or a reduced loop"),
        OptOp::Unroll | OptOp::Group | OptOp::GroupTop => (is_only_reduced, "a reduced loop"),
        _ => (is_only_output, "an output loop"),
    };
    ensure(is_right, &|| format!("{} takes {word}", opt.op.name()))?;
    if matches!(opt.op, OptOp::Upcast | OptOp::Unroll) {
        let uops = loops.uops_written(one, amount);
        ensure(uops <= UOPS_MOST, &|| {
            format!("{uops} uops would be written out, at most {UOPS_MOST} are possible")
        })?;
    }
    match opt.op {
        OptOp::Local => fits(loops, one, amount, AxisKind::Local, setting),
        OptOp::Group | OptOp::GroupTop => {
            in_another_order(opt, setting)?;
            fits(loops, one, amount, AxisKind::Group, setting)
        }
        OptOp::Thread => {
            ensure(setting.target.groups.is_none(), &|| "the device has groups".to_owned())?;
            ensure(loops.is_one_store, &|| "the kernel stores twice".to_owned())?;
            ensure(!one.is_overlapped, &|| "two threads would store in one place".to_owned())?;
            ensure(!loops.has(AxisKind::Thread), &|| "the kernel has threads already".to_owned())?;
            at_most(THREAD_MOST, 1, amount)
        }
        OptOp::Unroll => {
            at_most(UNROLL_MOST, loops.count_with(AxisKind::Unroll, one), amount)?;
            // In strict mode sums keep their order: only the innermost loop can be unrolled.
            let is_last = loops.list.iter().all(|other| !other.is_reduced || other.axis <= *axis);
            ensure(setting.mode != Mode::Strict || is_last, &|| {
                "in strict mode only the innermost reduced loop can be unrolled".to_owned()
            })
        }
        _ => {
            at_most(UPCAST_MOST, loops.count_with(AxisKind::Upcast, one), amount)?;
            if is_only_reduced {
                in_another_order(opt, setting)?;
                return ensure(!loops.has(AxisKind::Group), &|| {
                    "a fold is divided among threads already".to_owned()
                });
            }
            if loops.has(AxisKind::Group) {
                return fits(loops, one, amount, AxisKind::Upcast, setting);
            }
            let is_beside = |one: &&Loop| one.has_rows && one.axis.kind == AxisKind::Upcast;
            let beside = loops.list.iter().filter(is_beside).map(|one| one.size);
            let rows = beside.product::<i64>() * amount;
            let (bytes, most) =
                (loops.kept_bytes.saturating_mul(rows), setting.target.thresholds.keep_bytes);
            ensure(!one.has_rows || bytes <= most, &|| {
                format!("{rows} rows that are kept take {bytes} bytes, at most {most} are possible")
            })
        }
    }
}

pub(super) fn at_most(most: i64, taken: i64, amount: i64) -> Result<(), String> {
    if amount <= most / taken {
        return Ok(());
    }
    Err(format!("{taken} x {amount} steps, at most {most} are possible"))
}

/// Whether sums may be added in another order.
fn in_another_order(opt: Opt, setting: Setting<'_>) -> Result<(), String> {
    if setting.mode != Mode::Strict {
        return Ok(());
    }
    Err(format!("in strict mode sums keep their order, which {} changes", opt.op.name()))
}

/// The groups of the device, if the kernel can be divided among them.
fn groups_of(loops: &Loops, setting: Setting<'_>) -> Result<Groups, String> {
    let groups = setting.target.groups.ok_or("the device has no groups of threads")?;
    if loops.is_one_store { Ok(groups) } else { Err("the kernel stores twice".to_owned()) }
}

/// Whether a group is large enough when `amount` steps of a loop get this kind.
pub(super) fn fits(
    loops: &Loops,
    one: &Loop,
    amount: i64,
    kind: AxisKind,
    setting: Setting<'_>,
) -> Result<(), String> {
    let groups = groups_of(loops, setting)?;
    if kind == AxisKind::Group {
        if one.is_nested {
            return Err("the fold stands in the loop of another one".to_owned());
        }
        if loops.list.iter().any(|one| one.axis.kind == AxisKind::Upcast && one.is_reduced) {
            return Err("a fold is upcast already".to_owned());
        }
    }
    let is_thread =
        |kind: AxisKind| matches!(kind, AxisKind::Local | AxisKind::Group | AxisKind::Warp);
    let threads = loops.list.iter().filter(|one| is_thread(one.axis.kind));
    // The threads of a warp are neighbours: it is the innermost dimension.
    let order = |kind: AxisKind, number: i64| (kind == AxisKind::Warp, number);
    let mut sizes: Vec<((bool, i64), i64)> =
        threads.map(|one| (order(one.axis.kind, one.axis.number), one.size)).collect();
    sizes.extend(is_thread(kind).then_some((order(kind, loops.fresh()), amount)));
    sizes.sort_unstable();
    let count: i64 = sizes.iter().map(|(_, size)| size).product();
    if groups.threads < count {
        return Err(format!("{count} threads in a group, at most {} are possible", groups.threads));
    }
    let dims = sizes.iter().rev().enumerate();
    if let Some((dim, (_, size))) =
        dims.clone().find(|(dim, (_, size))| groups.sizes.get(*dim).is_none_or(|most| most < size))
    {
        return Err(format!(
            "{size} threads in dimension {dim}, at most {:?} are possible",
            groups.sizes
        ));
    }
    // Each reduction that is divided, over one loop or several, has a local array.
    let divided = loops.list.iter().filter(|one| one.axis.kind == AxisKind::Group);
    let divided = divided.chain((kind == AxisKind::Group).then_some(one));
    let arrays: BTreeMap<usize, DType> = divided.flat_map(|one| one.folds.clone()).collect();
    let element_bytes = |dtype: &DType| (dtype.size_bytes() as i64).max(groups.element_bytes);
    let upcast = loops.count(AxisKind::Upcast) * if kind == AxisKind::Upcast { amount } else { 1 };
    let bytes = count * upcast * arrays.values().map(element_bytes).sum::<i64>();
    if groups.local_bytes < bytes {
        let most = groups.local_bytes;
        return Err(format!("{bytes} bytes shared by a group, at most {most} are possible"));
    }
    Ok(())
}

/// The legal opts of a kernel, in order: all amounts that loops of these sizes make sense of.
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

/// Counts the uops that an opt which unrolls writes out; 0 of others.
fn written(root: &UOp, opt: Opt) -> Result<i64, Error> {
    if !matches!(opt.op, OptOp::Upcast | OptOp::Unroll) {
        return Ok(0);
    }
    let loops = loops(root)?;
    let written =
        |one: &Loop| loops.uops_written(one, if opt.amount == 0 { one.size } else { opt.amount });
    Ok(loops.list.get(opt.axis).map_or(0, written))
}

/// Up to `most` opts, each legal after those before it; every other time `tc`, if that is legal, or
/// else `upcast` on a CPU that computes with vectors.
///
/// # Errors
/// Those of [`loops`].
pub fn draw(root: &UOp, seed: u64, most: usize, setting: Setting<'_>) -> Result<Vec<Opt>, Error> {
    let mut hasher = FxHasher::default();
    loops(root)?.list.iter().for_each(|one| (one.size, one.is_reduced).hash(&mut hasher));
    let mut state = seed ^ hasher.finish();
    let mut dice = |count: usize| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (((mixed >> 32) * count as u64) >> 32) as usize
    };
    let (mut root, mut opts) = (root.clone(), Vec::new());
    for _ in 0..dice(most + 1) {
        let legal = legal(&root, setting)?;
        let is_legal = |op: &OptOp| legal.iter().any(|opt| opt.op == *op);
        let ops: Vec<OptOp> = OptOp::ALL.into_iter().filter(is_legal).collect();
        if ops.is_empty() {
            break;
        }
        // Rare, and the others can wait; lanes and rows come of several.
        let has_vectors = setting.target.vectors.alu && setting.target.groups.is_none();
        let first = [(OptOp::Tc, true), (OptOp::Upcast, has_vectors)];
        let first = first.iter().find(|(op, is_wanted)| *is_wanted && ops.contains(op));
        let first = first.filter(|_| dice(2) == 0);
        let op = first.map_or_else(|| ops[dice(ops.len())], |(op, _)| *op);
        let some: Vec<Opt> = legal.into_iter().filter(|opt| opt.op == op).collect();
        let opt = some[dice(some.len())];
        // Compilers take seconds for so many uops: they are drawn, but seldom.
        if DRAWN_UOPS_MOST < written(&root, opt)? && dice(8) != 0 {
            continue;
        }
        root = apply(&root, opt, setting)?;
        opts.push(opt);
    }
    Ok(opts)
}
