//! Pass `reassociate`: reassociates sums of integers, so that loop-invariant parts can be hoisted.
//!
//! Rewriting orders the terms of a sum by their text. Here they are ordered by the innermost loop
//! that they vary in, outermost first, so that the part which is invariant in an inner loop is
//! added up outside of it. Unrolled ranges come after all loops, so that each of their iterations
//! leaves one constant, and constants come last. Integer addition is modulo a power of two, so any
//! order gives the same bits.
//!
//! A partial sum with other users is one term, or it would be computed twice. Sums of ranges and
//! constants alone, which most indices are, are taken apart all the same, if they have few terms:
//! each is cheapest where it is used.

use gradiff_graph::{Arg, Axis, Op, UOp};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::Error;
use crate::context::Context;
use crate::nodes::map_nodes;

/// Most terms of a partial sum with other users that is taken apart: more than an index has loops.
/// Sums of sums of sums would have exponentially many.
const SHARED_TERMS_MAX: u32 = 256;

/// Reassociates all sums of integers of a kernel.
pub(crate) fn reassociate(root: &UOp, _ctx: &mut Context<'_>) -> Result<UOp, Error> {
    let order = root.toposort();
    let is_sum = |node: &UOp| node.op() == Op::Add && node.dtype().is_int();
    if !order.iter().any(is_sum) {
        return Ok(root.clone());
    }
    // For each sum, how many users it has, and whether a sum is among them.
    let mut users: FxHashMap<&UOp, (u32, bool)> = FxHashMap::default();
    for node in &order {
        for source in node.src().iter().filter(|source| is_sum(source)) {
            let (count, in_sum) = users.entry(source).or_default();
            (*count, *in_sum) = (*count + 1, *in_sum || is_sum(node));
        }
    }
    let mut facts_of: FxHashMap<UOp, Facts> = FxHashMap::default();
    facts_of.reserve(order.len());
    map_nodes(&order, |old, node| {
        let (count, in_sum) = users.get(old).copied().unwrap_or_default();
        // A partial sum with no user but one sum is ordered as part of that sum.
        let is_whole = is_sum(&node) && !(count == 1 && in_sum);
        let node = if is_whole { sum(&node, &mut facts_of) } else { node };
        let facts = Facts::of(&node, 1 < count, &facts_of);
        facts_of.insert(node.clone(), facts);
        Ok(node)
    })
}

/// Facts about a node.
#[derive(Clone, Copy)]
struct Facts {
    /// The innermost loop that it varies in.
    varies_in: Option<Axis>,
    /// True if it is a sum that may be taken apart into its terms.
    is_open: bool,
    /// The number of these terms; 1 if it is not taken apart.
    terms: u32,
    /// True if it is computed from ranges and constants alone.
    is_cheap: bool,
}

impl Facts {
    fn of(node: &UOp, is_shared: bool, facts_of: &FxHashMap<UOp, Facts>) -> Facts {
        let sources = || node.src().iter().map(|source| facts_of[source]);
        let varies_in = match node.arg() {
            Arg::Axis(axis) => Some(*axis),
            _ => sources().filter_map(|source| source.varies_in).max(),
        };
        let is_cheap = match node.op() {
            Op::Range | Op::Const => true,
            Op::Add | Op::Sub | Op::Mul | Op::Shl | Op::Min => {
                sources().all(|source| source.is_cheap)
            }
            _ => false,
        };
        let terms = sources().fold(0, |terms: u32, source| terms.saturating_add(source.terms));
        let may_repeat = is_cheap && terms <= SHARED_TERMS_MAX;
        let is_open = node.op() == Op::Add && (may_repeat || !is_shared);
        Facts { varies_in, is_open, terms: if is_open { terms } else { 1 }, is_cheap }
    }
}

/// Returns the sum with its terms in order.
fn sum(node: &UOp, facts_of: &mut FxHashMap<UOp, Facts>) -> UOp {
    let mut terms: SmallVec<[UOp; 8]> = SmallVec::new();
    let mut pending: SmallVec<[&UOp; 8]> = node.src().iter().rev().collect();
    while let Some(term) = pending.pop() {
        match facts_of[term].is_open {
            true => pending.extend(term.src().iter().rev()),
            false => terms.push(term.clone()),
        }
    }
    let key = |term: &UOp| (term.op() == Op::Const, facts_of[term].varies_in);
    if terms.is_sorted_by_key(key) {
        return node.clone();
    }
    terms.sort_by_key(key);
    let mut terms = terms.into_iter();
    let Some(mut total) = terms.next() else { return node.clone() };
    for term in terms {
        total = UOp::binary(Op::Add, total, term);
        let facts = Facts::of(&total, false, facts_of);
        facts_of.insert(total.clone(), facts);
    }
    total
}
