//! Pass `contract`: makes multiply-adds of sums and products of floats, by the rules of
//! [`gradiff_rewrite::contract`], where the target has them fast.
//!
//! The rules say what may be contracted, and the mode whether. This pass chooses where that saves
//! an op: the product must have no other user, and be computed in the loop of the sum. In a sum
//! over a loop the product is added to the accumulator; but not in lanes, whose products are
//! computed in vectors and added up in pairs.

use gradiff_graph::{Arg, AxisKind, Op, Target, UOp};
use gradiff_rewrite::{Options, Trace};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::Error;
use crate::accumulators;
use crate::free::Free;
use crate::nodes::map_nodes;

/// Contracts products and sums.
pub(crate) fn contract(
    root: &UOp,
    target: &Target,
    options: &Options,
    trace: &mut Trace,
) -> Result<UOp, Error> {
    let is_product = |node: &UOp| node.op() == Op::Mul && node.dtype().is_float();
    if !target.fma || !root.toposort().iter().any(is_product) {
        return Ok(root.clone());
    }
    let is_vector =
        |range: &UOp| matches!(range.arg(), Arg::Axis(axis) if axis.kind == AxisKind::Vector);
    let is_ordered = |reduction: &UOp| !reduction.src()[1..].iter().any(is_vector);
    let root = accumulators::explicit(root, is_ordered)?;
    let rules = gradiff_rewrite::contract();
    let free = Free::of(&root)?;
    let order = &free.nodes;
    let mut users: FxHashMap<&UOp, u32> = FxHashMap::default();
    for source in order.iter().flat_map(UOp::src).filter(|source| is_product(source)) {
        *users.entry(source).or_default() += 1;
    }
    // The sums that are assigned to an accumulator.
    let assigned: FxHashSet<&UOp> =
        order.iter().filter(|node| node.op() == Op::Assign).map(|node| &node.src()[1]).collect();
    let is_contracted = |sum: &UOp, source: &UOp| match assigned.contains(sum) {
        // Each loop computes products of its own.
        true => {
            let loops = sum.src().iter().find(|before| before.op() == Op::DefineAcc);
            let innermost = loops.and_then(|before| before.src().last());
            innermost.is_some_and(|range| free.of_node(range) & free.of_node(source) != 0)
        }
        false => users.get(source) == Some(&1),
    };
    map_nodes(order, |old, node| {
        if old.op() != Op::Add {
            return Ok(node);
        }
        let is_contracted = |number: &usize| {
            is_product(&old.src()[*number]) && is_contracted(old, &old.src()[*number])
        };
        let Some(number) = [1, 0].into_iter().find(is_contracted) else { return Ok(node) };
        let sum = UOp::binary(Op::Add, node.src()[1 - number].clone(), node.src()[number].clone());
        Ok(gradiff_rewrite::apply(&sum, &rules, options, trace).unwrap_or(node))
    })
}
