//! The legality of opts.

use gradiff_graph::{AxisKind, UOp};
use gradiff_rewrite::Mode;

use super::limits::{at_most, fits, groups_of};
use super::loop_info::{Loop, array_count};
use super::loops::{Loops, loops};
use super::tuning::{PARTS_PER_THREAD, STORES_MAX, THREADS_MAX, UNROLL_MAX, UOPS_MAX, UPCAST_MAX};
use super::{Opt, OptOp, Setting, stage, tensor_cores};
use crate::Error;

/// Checks that an opt is legal for a kernel with these loops.
///
/// # Errors
/// The reason why it is illegal, and what is legal.
pub fn check(loops: &Loops, opt: Opt, setting: Setting<'_>) -> Result<(), String> {
    check_opt(loops, opt, setting).map_err(|why| format!("{opt}: {why}"))
}

fn ensure(holds: bool, why: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(why()) }
}

fn check_opt(loops: &Loops, opt: Opt, setting: Setting<'_>) -> Result<(), String> {
    if opt.op == OptOp::NoLocals {
        return check_no_locals(loops, setting);
    }
    ensure(!loops.is_staged, || "the operands of the kernel are staged".to_owned())?;
    let info = loops.list.get(opt.axis).ok_or_else(|| match loops.list.len() {
        0 => "the kernel has no loops".to_owned(),
        count => format!("the kernel has loops 0 to {}", count - 1),
    })?;
    let kind = info.axis.kind;
    ensure(kind == AxisKind::Loop, || {
        format!("loop {} is of kind {kind:?}, not a plain loop", opt.axis)
    })?;
    match opt.op {
        OptOp::Tc => return tensor_cores::check(loops, info, opt.amount, setting).map(drop),
        OptOp::Swap => return check_swap(loops, info, opt.amount),
        OptOp::Cut => return check_cut(loops, info, opt, setting),
        _ => {}
    }
    let amount = if opt.amount == 0 { info.size } else { opt.amount };
    ensure(2 <= amount && 2 <= info.size, || {
        format!("{} iterations by {amount}: both must be 2 or more", info.size)
    })?;
    match opt.op {
        OptOp::Stage => {
            let size = info.size;
            ensure(size % amount == 0, || format!("{size} is not a multiple of {amount}"))?;
            stage::check(loops, info, amount, setting)
        }
        OptOp::PadTo => check_padding(info, amount),
        OptOp::Overlap => check_overlap(loops, info, amount, setting),
        _ => check_split(loops, info, Opt { amount, ..opt }, setting),
    }
}

fn check_no_locals(loops: &Loops, setting: Setting<'_>) -> Result<(), String> {
    let is_plain = |info: &Loop| info.axis.kind == AxisKind::Loop && info.is_output;
    groups_of(loops, setting)?;
    ensure(!loops.has(AxisKind::Local), || "the kernel already has local loops".to_owned())?;
    ensure(loops.list.iter().any(is_plain), || "the kernel has no plain output loop".to_owned())
}

fn check_swap(loops: &Loops, info: &Loop, index: i64) -> Result<(), String> {
    let second = usize::try_from(index).ok().and_then(|index| loops.list.get(index));
    let is_plain_output = second.is_some_and(|second| {
        second.is_output && second.axis.kind == AxisKind::Loop && second.axis != info.axis
    });
    ensure(is_plain_output && info.is_output, || "swap takes two plain output loops".to_owned())?;
    // Other loops of these iterations may be between the two.
    ensure(!info.is_ordered && second.is_none_or(|second| !second.is_ordered), || {
        "its iterations update the same elements".to_owned()
    })
}

fn check_cut(loops: &Loops, info: &Loop, opt: Opt, setting: Setting<'_>) -> Result<(), String> {
    let at = opt.amount;
    ensure(setting.target.groups.is_none(), || "the device has groups".to_owned())?;
    let Loop { size, is_reduced, is_output, .. } = *info;
    ensure(is_output != is_reduced, || "cut takes an output or a reduced loop".to_owned())?;
    ensure((1..size).contains(&at), || format!("{at} is not between 1 and {}", size - 1))?;
    if is_reduced {
        check_reordering(opt, setting)?;
        let uops = loops.reduced_uops(info);
        ensure(uops <= UOPS_MAX, || {
            format!("{uops} uops in its reductions, at most {UOPS_MAX} can be copied")
        })?;
        return loops.check_loop_count(1, &setting.target.thresholds);
    }
    ensure(!loops.is_in_place, || "the kernel loads from an array that it stores to".to_owned())?;
    ensure(loops.cache_bytes == 0, || "the kernel caches rows".to_owned())?;
    ensure(loops.stores < STORES_MAX, || {
        format!("the kernel has {} stores, at most {STORES_MAX} are possible", loops.stores)
    })?;
    loops.check_loop_count(1, &setting.target.thresholds)
}

fn check_padding(info: &Loop, amount: i64) -> Result<(), String> {
    let (size, padded) = (info.size, padded_size(info.size, amount));
    check_end(info, padded)?;
    ensure(padded != size, || format!("{size} is a multiple of {amount}"))?;
    ensure(padded / 4 < size, || {
        format!("{size} iterations padded to {padded}, which is 4 times as many or more")
    })
}

fn check_overlap(
    loops: &Loops,
    info: &Loop,
    amount: i64,
    setting: Setting<'_>,
) -> Result<(), String> {
    let Loop { size, is_reduced, is_output, .. } = *info;
    ensure(setting.target.groups.is_none(), || "the device has groups".to_owned())?;
    ensure(is_output != is_reduced, || "overlap takes an output or a reduced loop".to_owned())?;
    ensure(!loops.is_in_place, || "the kernel loads from an array that it stores to".to_owned())?;
    check_end(info, padded_size(size, amount))?;
    ensure(amount < size && size % amount != 0, || {
        format!("{size} iterations are not more than {amount}, or a multiple of it")
    })
}

/// Checks that a loop of so many iterations can have a counter of the same type.
fn check_end(info: &Loop, size: i64) -> Result<(), String> {
    let dtype = info.range.dtype();
    let fits = dtype.int_range().is_some_and(|(_, max)| i128::from(size) <= max);
    ensure(fits, || format!("{size} iterations, which {dtype} does not hold"))
}

/// Checks an opt that splits the loop into two, one of them of `opt.amount` iterations.
fn check_split(loops: &Loops, info: &Loop, opt: Opt, setting: Setting<'_>) -> Result<(), String> {
    let (size, amount) = (info.size, opt.amount);
    ensure(size % amount == 0, || {
        format!("{size} iterations are not a multiple of {amount}; see padto and overlap")
    })?;
    let is_only_output = info.is_output && !info.is_reduced;
    let is_only_reduced = info.is_reduced && !info.is_output;
    let (is_allowed, kinds) = match opt.op {
        OptOp::Upcast => (is_only_output || is_only_reduced, "an output or a reduced loop"),
        OptOp::Unroll | OptOp::Group | OptOp::GroupTop => (is_only_reduced, "a reduced loop"),
        _ => (is_only_output, "an output loop"),
    };
    ensure(is_allowed, || format!("{} takes {kinds}", opt.op.name()))?;
    ensure(!info.is_ordered, || "its iterations update the same elements".to_owned())?;
    let is_group = matches!(opt.op, OptOp::Group | OptOp::GroupTop);
    let loops_of_each = array_count(amount, &setting.target.thresholds) as usize;
    let over_threads = if is_group { loops_of_each * info.reductions.len() } else { 0 };
    loops
        .check_loop_count(usize::from(amount < size) + over_threads, &setting.target.thresholds)?;
    if matches!(opt.op, OptOp::Upcast | OptOp::Unroll) {
        let uops = loops.unrolled_uops(info, amount);
        ensure(uops <= UOPS_MAX, || {
            format!("{uops} uops after unrolling, at most {UOPS_MAX} are possible")
        })?;
    }
    match opt.op {
        OptOp::Local => fits(loops, info, amount, AxisKind::Local, setting),
        OptOp::Group | OptOp::GroupTop => {
            check_reordering(opt, setting)?;
            fits(loops, info, amount, AxisKind::Group, setting)
        }
        OptOp::Thread => check_threads(loops, info, amount, setting),
        OptOp::Unroll => check_unroll(loops, info, amount, setting),
        _ => check_upcast(loops, info, opt, setting),
    }
}

fn check_threads(
    loops: &Loops,
    info: &Loop,
    amount: i64,
    setting: Setting<'_>,
) -> Result<(), String> {
    ensure(setting.target.groups.is_none(), || "the device has groups".to_owned())?;
    ensure(info.is_in_each_store && (loops.stores == 1 || !loops.is_in_place), || {
        "not each store is in the loop, or one may load what another stores".to_owned()
    })?;
    ensure(amount <= info.separate_parts, || {
        "two threads would store the same element".to_owned()
    })?;
    ensure(!loops.has(AxisKind::Thread), || "the kernel already has threads".to_owned())?;
    at_most(THREADS_MAX.max(setting.target.threads.saturating_mul(PARTS_PER_THREAD)), 1, amount)
}

fn check_unroll(
    loops: &Loops,
    info: &Loop,
    amount: i64,
    setting: Setting<'_>,
) -> Result<(), String> {
    at_most(UNROLL_MAX, loops.count_with(AxisKind::Unroll, info), amount)?;
    // In strict mode sums keep their order: only the innermost loop can be unrolled.
    let is_innermost =
        loops.list.iter().all(|listed| !listed.is_reduced || listed.axis <= info.axis);
    ensure(setting.mode != Mode::Strict || is_innermost, || {
        "in strict mode only the innermost reduced loop can be unrolled".to_owned()
    })
}

fn check_upcast(loops: &Loops, info: &Loop, opt: Opt, setting: Setting<'_>) -> Result<(), String> {
    let amount = opt.amount;
    at_most(UPCAST_MAX, loops.count_with(AxisKind::Upcast, info), amount)?;
    if info.is_reduced {
        check_reordering(opt, setting)?;
        return ensure(!loops.has(AxisKind::Group), || {
            "a reduction is already divided among threads".to_owned()
        });
    }
    if loops.has(AxisKind::Group) {
        return fits(loops, info, amount, AxisKind::Upcast, setting);
    }
    let is_upcast = |info: &&Loop| info.has_cached_rows && info.axis.kind == AxisKind::Upcast;
    let upcast = loops.list.iter().filter(is_upcast).map(|info| info.size);
    let rows = upcast.product::<i64>() * amount;
    let bytes = loops.cache_bytes.saturating_mul(rows);
    let limit = setting.target.thresholds.cache_total_bytes;
    ensure(!info.has_cached_rows || bytes <= limit, || {
        format!("{rows} cached rows take {bytes} bytes, at most {limit} are possible")
    })
}

/// Rounds a trip count up to a multiple of `amount`; `i64::MAX` if that overflows.
pub(super) fn padded_size(size: i64, amount: i64) -> i64 {
    size.checked_add(amount - 1).map_or(i64::MAX, |sum| sum / amount * amount)
}

/// Checks that floats may be summed in another order.
fn check_reordering(opt: Opt, setting: Setting<'_>) -> Result<(), String> {
    if setting.mode != Mode::Strict {
        return Ok(());
    }
    Err(format!("in strict mode sums keep their order, which {} changes", opt.op.name()))
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
            OptOp::Cut => {
                let size = loops.list[axis].size;
                let mut points: Vec<i64> = vec![1, 2, 4, size / 2, size - 1];
                points.sort_unstable();
                points.dedup();
                points
            }
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
