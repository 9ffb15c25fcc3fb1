//! Pass `vectors`: chooses the upcast ranges whose iterations become the lanes of vectors: the one
//! with the most contiguous accesses, and others that no node depends on together with it.

use std::cell::OnceCell;

use gradiff_graph::target::Vectors;
use gradiff_graph::{Arg, Axis, AxisKind, Op, Target, UOp};
use rustc_hash::FxHashSet;

use crate::Error;
use crate::free::Free;
use crate::nodes::map_nodes;
use crate::opt::tuning::LANES_MAX;
use crate::stride::stride;

/// Gives the chosen ranges the kind `Vector`.
pub(crate) fn choose_vectors(root: &UOp, target: &Target) -> Result<UOp, Error> {
    let vectors = target.vectors;
    if vectors.bytes == 0 || !target.unrolls {
        return Ok(root.clone());
    }
    let order = root.toposort();
    if !order.iter().any(is_upcast) {
        return Ok(root.clone());
    }
    let free = Free::of(root)?;
    let candidate = |range: &UOp| Candidate {
        range: range.clone(),
        free: &free,
        vectors,
        aligned: OnceCell::new(),
    };
    let mut candidates: Vec<(i64, Candidate<'_>)> = free
        .ranges()
        .filter(|range| is_upcast(range))
        .map(candidate)
        .filter(|candidate| {
            (2..=LANES_MAX).contains(&candidate.lanes())
                && (candidate.lanes() as u64).is_power_of_two()
        })
        .filter_map(|candidate| Some((candidate.cost()?, candidate)))
        .collect();
    candidates.sort_by_key(|(cost, candidate)| {
        (*cost, std::cmp::Reverse(candidate.lanes()), candidate.number())
    });
    let mut chosen: Vec<Candidate<'_>> = Vec::new();
    for (_, candidate) in candidates {
        let fits = |known: &Candidate<'_>| {
            known.lanes() == candidate.lanes() && known.is_independent(&candidate)
        };
        if chosen.iter().all(fits) {
            chosen.push(candidate);
        }
    }
    map_nodes(&order, |old, node| {
        if !chosen.iter().any(|candidate| candidate.range == *old) {
            return Ok(node);
        }
        let Arg::Axis(Axis { number, .. }) = *old.arg() else { return Ok(node) };
        let arg = Arg::Axis(Axis { kind: AxisKind::Vector, number });
        Ok(UOp::new(Op::Range, node.dtype(), [node.src()[0].clone()], arg))
    })
}

fn is_upcast(node: &UOp) -> bool {
    matches!(node.arg(), Arg::Axis(axis) if axis.kind == AxisKind::Upcast)
}

/// A range that may become the lanes.
struct Candidate<'a> {
    range: UOp,
    free: &'a Free,
    vectors: Vectors,
    /// The integers that are multiples of the number of lanes, if they were asked for.
    aligned: OnceCell<FxHashSet<&'a UOp>>,
}

impl<'a> Candidate<'a> {
    /// Returns the number of lanes; 0 if the range has no constant end.
    fn lanes(&self) -> i64 {
        self.range.trip_count().unwrap_or(0)
    }

    fn number(&self) -> i64 {
        match self.range.arg() {
            Arg::Axis(axis) => axis.number,
            _ => 0,
        }
    }

    fn varies(&self, node: &UOp) -> bool {
        self.free.of_node(node) & self.free.of_node(&self.range) != 0
    }

    /// Returns whether no node depends on both ranges, so that neither is inside the other.
    fn is_independent(&self, other: &Candidate<'_>) -> bool {
        let mut computed = self.free.nodes.iter().filter(|node| node.op() != Op::Sink);
        !computed.any(|node| self.varies(node) && other.varies(node))
    }

    /// Returns the cost of the accesses for each lane, as the heuristics count it, or how little is
    /// saved if only loads and stores have lanes; `None` if the lanes gain nothing.
    fn cost(&self) -> Option<i64> {
        let accesses =
            self.free.nodes.iter().filter(|node| matches!(node.op(), Op::Load | Op::Store));
        let (mut cost, mut saving) = (0i64, 0i64);
        for access in accesses {
            let address = &access.src()[0];
            let weight = if access.op() == Op::Load { self.free.weight(access) } else { 1 };
            let part = LANES_MAX / self.lanes();
            let (each, saved) = match self.varies(access) {
                true if self.is_contiguous(address) => (part, LANES_MAX),
                true if self.is_permuted(address) => (2 * part, LANES_MAX),
                true => (5 * LANES_MAX / 2, -LANES_MAX / 2),
                false => (part, 0),
            };
            cost = cost.saturating_add(weight * each);
            saving = saving.saturating_add(weight * saved);
        }
        (0 < saving).then_some(if self.vectors.alu { cost } else { -saving })
    }

    /// Returns whether an access of all lanes at an address is that of a vector: contiguous,
    /// aligned if necessary, and with the same gate in all lanes.
    fn is_contiguous(&self, address: &UOp) -> bool {
        let index = &address.src()[1];
        self.lanes() <= self.vectors.lanes_of(address.dtype())
            && address.src().get(2).is_none_or(|gate| !self.varies(gate))
            && stride(index, &self.range, self.free) == Some(1)
            && (!self.vectors.aligned
                || self.aligned.get_or_init(|| self.find_aligned()).contains(index))
    }

    /// Returns whether an access of all lanes at an address is one of vectors whose lanes are
    /// permuted: in reverse order, or two elements apart while those between are accessed along
    /// another expanded range. The gate is the same for all of them.
    fn is_permuted(&self, address: &UOp) -> bool {
        let (index, gate) = (&address.src()[1], address.src().get(2));
        let has_same_gate = |range: &UOp| {
            gate.is_none_or(|gate| self.free.of_node(gate) & self.free.of_node(range) == 0)
        };
        let stride = |range: &UOp| stride(index, range, self.free).map(i64::abs);
        let is_between = |range: &UOp| {
            let is_expanded = matches!(range.arg(), Arg::Axis(axis)
                if matches!(axis.kind, AxisKind::Upcast | AxisKind::Unroll));
            is_expanded && stride(range) == Some(1) && has_same_gate(range)
        };
        self.vectors.may_interleave()
            && self.lanes() <= self.vectors.lanes_of(address.dtype())
            && has_same_gate(&self.range)
            && match stride(&self.range) {
                Some(1) => true,
                Some(2) => self.free.ranges().any(is_between),
                _ => false,
            }
    }

    /// Returns the integers that at lane 0 are multiples of the number of lanes for all other
    /// counters. Wrapping keeps the divisibility by powers of two.
    fn find_aligned(&self) -> FxHashSet<&'a UOp> {
        let mut aligned: FxHashSet<&'a UOp> = FxHashSet::default();
        for node in &self.free.nodes {
            let is_multiple = |number: i128| number % i128::from(self.lanes()) == 0;
            let is_aligned = |source: usize| aligned.contains(&node.src()[source]);
            let is_int = node.dtype().is_int();
            let is_found = match node.op() {
                _ if *node == self.range => true,
                Op::Const if is_int => node.as_int().is_some_and(is_multiple),
                Op::Add | Op::Sub if is_int => is_aligned(0) && is_aligned(1),
                Op::Mul if is_int => is_aligned(0) || is_aligned(1),
                Op::Shl if is_int => {
                    let shift = node.src()[1].as_int().filter(|n| (0..31).contains(n));
                    is_aligned(0) || shift.is_some_and(|shift| is_multiple(1 << shift))
                }
                Op::Cast if is_int => is_aligned(0),
                _ => false,
            };
            if is_found {
                aligned.insert(node);
            }
        }
        aligned
    }
}
