//! Opts drawn at random, for tests.

use std::hash::{Hash, Hasher};

use gradiff_graph::UOp;
use rustc_hash::FxHasher;

use super::apply::apply;
use super::legal::legal;
use super::loop_info::Loop;
use super::loops::loops;
use super::tuning::DRAWN_UOPS_MAX;
use super::{Opt, OptOp, Setting};
use crate::Error;

/// Draws up to `limit` opts, each legal after those before it. Half of the draws are `tc`, if that
/// is legal, or else `upcast` on a CPU with vector arithmetic. Only the last one may be `stage`,
/// after which no other is legal; half are, if they can.
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
    let count = dice(limit.saturating_add(1).min(u32::MAX as usize));
    for step in 1..=count {
        let legal = legal(&root, setting)?;
        let is_legal = |op: &OptOp| legal.iter().any(|opt| opt.op == *op);
        let is_possible = |op: &OptOp| is_legal(op) && (*op != OptOp::Stage || step == count);
        let ops: Vec<OptOp> = OptOp::ALL.into_iter().filter(is_possible).collect();
        if ops.is_empty() {
            break;
        }
        // `tc` is seldom legal, and stays legal after few other opts; vectors of several rows need
        // several upcasts.
        let has_vectors = setting.target.vectors.alu && setting.target.groups.is_none();
        let preferred = [(OptOp::Stage, true), (OptOp::Tc, true), (OptOp::Upcast, has_vectors)];
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
