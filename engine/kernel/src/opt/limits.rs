//! The limits of a device and of its groups of threads, which opts must keep.

use std::collections::BTreeMap;

use gradiff_graph::target::Groups;
use gradiff_graph::{AxisKind, DType};

use super::Setting;
use super::loop_info::{Loop, array_count};
use super::loops::Loops;

/// Checks that `count * amount` iterations are within a limit.
pub(super) fn at_most(limit: i64, count: i64, amount: i64) -> Result<(), String> {
    if amount <= limit / count {
        return Ok(());
    }
    Err(format!("{count} x {amount} iterations, at most {limit} are possible"))
}

/// Returns the group limits of the device, if the kernel can be divided among groups.
pub(super) fn groups_of(loops: &Loops, setting: Setting<'_>) -> Result<Groups, String> {
    let groups = setting.target.groups.ok_or("the device has no groups of threads")?;
    if loops.stores == 1 { Ok(groups) } else { Err("the kernel has several stores".to_owned()) }
}

/// Returns the group loop whose threads can also run `amount` iterations of this loop: it has as
/// many iterations and the same dtype, and nothing depends on both. So the same threads compute
/// several reductions of a row, and the elements of the row that the results are broadcast to.
pub(super) fn shared_threads<'a>(loops: &'a Loops, info: &Loop, amount: i64) -> Option<&'a Loop> {
    loops.list.iter().find(|threads| {
        threads.axis.kind == AxisKind::Group
            && threads.size == amount
            && threads.range.dtype() == info.range.dtype()
            && threads.is_independent(info)
    })
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
    let is_new = !matches!(kind, AxisKind::Local | AxisKind::Group)
        || shared_threads(loops, info, amount).is_none();
    let added = (order(kind, loops.next_number()), amount);
    sizes.extend((is_thread(kind) && is_new).then_some(added));
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
    let group_amount = if kind == AxisKind::Group { amount } else { 1 };
    let group = loops.list.iter().filter(|info| info.axis.kind == AxisKind::Group);
    let group = group.map(|info| info.size).chain([group_amount]).max().unwrap_or(1);
    let bytes = count
        * upcast
        * array_count(group, &setting.target.thresholds)
        * arrays.values().map(element_bytes).sum::<i64>();
    if groups.local_bytes < bytes {
        let limit = groups.local_bytes;
        return Err(format!("{bytes} bytes of local memory, at most {limit} are possible"));
    }
    Ok(())
}
