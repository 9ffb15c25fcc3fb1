//! Blocks of transposed elements: a kernel that loads along one loop and stores along another moves
//! whole cache lines if it takes a square of both at once.

use gradiff_graph::AxisKind;

use super::access::{Access, Accesses};
use super::optimizer::Optimizer;
use crate::Error;
use crate::opt::tuning::{TRANSPOSED, TRANSPOSED_STRIDE_MAX};
use crate::opt::{Loop, OptOp};

/// Upcasts the loop of contiguous stores and that of loads with a short stride, if these differ and
/// nothing is reduced; returns whether it did.
pub(super) fn block_transposed(optimizer: &mut Optimizer<'_>) -> Result<bool, Error> {
    let list = &optimizer.loops.list;
    let is_plain = |info: &&Loop| info.axis.kind == AxisKind::Loop && info.is_output;
    if list.iter().any(|info| info.is_reduced) || list.iter().filter(is_plain).count() < 2 {
        return Ok(false);
    }
    let accesses = Accesses::of(&optimizer.root)?;
    let is_stored = |info: &Loop| {
        let mut stores = accesses.list.iter().filter(|access| access.is_store);
        stores.all(|store| store.stride(&info.range) == Some(1))
    };
    let Some(stored) = list.iter().filter(is_plain).find(|info| is_stored(info)) else {
        return Ok(false);
    };
    let is_apart =
        |load: &Access| load.stride(&stored.range).is_some_and(|stride| 1 < stride.abs());
    let is_loaded = |info: &&Loop| {
        let mut loads = accesses.list.iter().filter(|access| !access.is_store);
        info.range != stored.range
            && loads.any(|load| {
                let stride = load.stride(&info.range).map(i64::abs);
                matches!(stride, Some(1..=TRANSPOSED_STRIDE_MAX)) && is_apart(load)
            })
    };
    let Some(loaded) = list.iter().filter(is_plain).find(is_loaded) else { return Ok(false) };
    for info in [loaded.clone(), stored.clone()] {
        let amount = info.size.min(TRANSPOSED);
        let number = info.axis.number;
        if info.size % amount == 0 || optimizer.add(OptOp::Overlap, number, amount)? {
            optimizer.add(OptOp::Upcast, number, amount)?;
        }
    }
    Ok(true)
}
