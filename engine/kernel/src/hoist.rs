//! Pass `hoist`: sums of integers add up what stands in outer loops first.
//!
//! The canonical order of a sum is one of its terms' words. Here its terms are put in the order of
//! the loops that they vary in, outermost first: what inner loops share is summed up outside of
//! them, once. Ranges that are written out stand behind all loops, so that of each of their steps
//! there remains one constant, and constants stand last. Integers are sums modulo a power of two,
//! whatever the order.
//!
//! A part that others use as well is one term, lest it be computed twice; but for sums of ranges
//! alone, as places are: those are summed up anew, each where it costs least.

use gradiff_graph::{Arg, Axis, Op, UOp};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::Error;
use crate::pass::Context;
use crate::shape::map_nodes;

/// The pass. See the head of this file.
pub(crate) fn hoist(root: &UOp, _ctx: &mut Context<'_>) -> Result<UOp, Error> {
    let order = root.toposort();
    let is_sum = |node: &UOp| node.op() == Op::Add && node.dtype().is_int();
    if !order.iter().any(is_sum) {
        return Ok(root.clone());
    }
    // How many use each sum, and whether a sum does.
    let mut users: FxHashMap<&UOp, (u32, bool)> = FxHashMap::default();
    for node in &order {
        for source in node.src().iter().filter(|source| is_sum(source)) {
            let (count, in_sum) = users.entry(source).or_default();
            (*count, *in_sum) = (*count + 1, *in_sum || is_sum(node));
        }
    }
    let mut known: FxHashMap<UOp, Known> = FxHashMap::default();
    known.reserve(order.len());
    map_nodes(&order, |old, node| {
        let (count, in_sum) = users.get(old).copied().unwrap_or_default();
        // A part of one sum alone gets its order there.
        let is_whole = is_sum(&node) && !(count == 1 && in_sum);
        let node = if is_whole { sum(&node, &mut known) } else { node };
        let made = Known::of(&node, 1 < count, &known);
        known.insert(node.clone(), made);
        Ok(node)
    })
}

/// What is known of a node.
#[derive(Clone, Copy)]
struct Known {
    /// The innermost loop that it varies in.
    varies_in: Option<Axis>,
    /// Whether a sum may take it apart.
    is_open: bool,
    /// Whether it is made of ranges and constants alone.
    is_cheap: bool,
}

impl Known {
    fn of(node: &UOp, is_shared: bool, known: &FxHashMap<UOp, Known>) -> Known {
        let sources = || node.src().iter().map(|source| known[source]);
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
        Known { varies_in, is_open: node.op() == Op::Add && (is_cheap || !is_shared), is_cheap }
    }
}

/// A sum with its terms in order.
fn sum(node: &UOp, known: &mut FxHashMap<UOp, Known>) -> UOp {
    let mut terms: SmallVec<[UOp; 8]> = SmallVec::new();
    let mut pending: SmallVec<[&UOp; 8]> = node.src().iter().rev().collect();
    while let Some(term) = pending.pop() {
        match known[term].is_open {
            true => pending.extend(term.src().iter().rev()),
            false => terms.push(term.clone()),
        }
    }
    let key = |term: &UOp| (term.op() == Op::Const, known[term].varies_in);
    if terms.is_sorted_by_key(key) {
        return node.clone();
    }
    terms.sort_by_key(key);
    let mut terms = terms.into_iter();
    let Some(mut total) = terms.next() else { return node.clone() };
    for term in terms {
        total = UOp::binary(Op::Add, total, term);
        let made = Known::of(&total, false, known);
        known.insert(total.clone(), made);
    }
    total
}
