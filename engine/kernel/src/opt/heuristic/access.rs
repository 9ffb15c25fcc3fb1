//! The memory accesses of a kernel, and their strides along its loops.

use std::cmp::Reverse;

use gradiff_graph::{AxisKind, DType, Op, UOp};
use gradiff_rewrite::Mode;

use super::optimizer::Optimizer;
use crate::Error;
use crate::free::Free;
use crate::opt::legal::padded_size;
use crate::opt::tuning::{BETWEEN_MAX, LANES_MAX, SHIFTED_LANES_MIN, SHIFTED_MAX};
use crate::opt::{Loop, Loops, Setting};
use crate::stride::stride;

/// A load or store.
pub(super) struct Access {
    pub(super) is_store: bool,
    /// The type of the element.
    dtype: DType,
    /// The number of times it runs, in terms of those of nodes outside of reductions.
    weight: i64,
    /// The stride of the index along each range that it depends on, if that is constant.
    strides: Vec<(UOp, Option<i64>)>,
    /// The ranges that its gate depends on.
    gates: Vec<UOp>,
    /// The ranges by whose iterations the index is divided, and the divisors.
    divided: Vec<(UOp, i64)>,
}

impl Access {
    /// Returns the stride along a range in elements; `None` if it is not constant, or the gate
    /// depends on the range.
    pub(super) fn stride(&self, range: &UOp) -> Option<i64> {
        match self.strides.iter().find(|(known, _)| known == range) {
            Some((_, stride)) => stride.filter(|_| !self.is_gated(range)),
            None => Some(0),
        }
    }

    /// Returns the stride along a range in elements, where the gate holds; `None` if it is not
    /// constant.
    pub(super) fn index_stride(&self, range: &UOp) -> Option<i64> {
        let found = self.strides.iter().find(|(known, _)| known == range);
        found.map_or(Some(0), |(_, stride)| *stride)
    }

    /// Returns whether it is of 16-bit floats.
    pub(super) fn is_of_halves(&self) -> bool {
        self.dtype.is_half()
    }

    /// Returns whether its gate depends on a range.
    pub(super) fn is_gated(&self, range: &UOp) -> bool {
        self.gates.contains(range)
    }

    /// Returns whether its index changes only from one block of so many iterations of a range to
    /// another.
    pub(super) fn is_repeated(&self, range: &UOp, block: i64) -> bool {
        self.divided.iter().any(|(known, divisor)| known == range && divisor % block == 0)
    }

    /// Returns whether the elements along a range are two apart, and those between them are
    /// accessed along another range.
    pub(super) fn is_interleaved(&self, range: &UOp, between: &Loop) -> bool {
        let has_stride = |range: &UOp, stride: i64| {
            let is_gated = self.is_gated(range);
            !is_gated && self.stride(range).is_some_and(|known| known.abs() == stride)
        };
        let is_plain = between.axis.kind == AxisKind::Loop && 1 < between.size;
        is_plain
            && between.size <= BETWEEN_MAX
            && has_stride(range, 2)
            && has_stride(&between.range, 1)
    }

    /// Returns the cost of this access for each iteration of a range, with so many vector lanes
    /// along it, and what very many would save. The lanes of two vectors may be permuted, so that
    /// they are of elements in reverse order, or two apart.
    fn cost(&self, range: &UOp, lanes: i64, permutes: bool, loops: &Loops) -> LaneCost {
        let is_interleaved = || loops.list.iter().any(|info| self.is_interleaved(range, info));
        let (cost, saving) = match self.stride(range) {
            Some(1) => (LANES_MAX / lanes, LANES_MAX),
            Some(0) => (LANES_MAX / lanes, 0),
            Some(-1) if permutes => (2 * LANES_MAX / lanes, LANES_MAX),
            Some(2 | -2) if permutes && is_interleaved() => (2 * LANES_MAX / lanes, LANES_MAX),
            // An access for each lane, and its move into the vector or out of it.
            _ => (5 * LANES_MAX / 2, -3 * LANES_MAX / 2),
        };
        LaneCost { cost: self.weight * cost, saving: self.weight * saving }
    }
}

/// The cost of accesses with vector lanes, in terms of a scalar access, of which it is
/// [`LANES_MAX`].
#[derive(Clone, Copy)]
struct LaneCost {
    cost: i64,
    saving: i64,
}

/// Returns the ranges along which a part of an index advances by 1 and is divided by a constant,
/// and the constants.
fn divided(address: &UOp, ranges: &[UOp], free: &Free) -> Vec<(UOp, i64)> {
    let parts = address.src()[1].toposort();
    let divisor = |part: &UOp| match part.op() {
        Op::FloorDiv => part.src()[1].as_int().and_then(|divisor| i64::try_from(divisor).ok()),
        _ => None,
    };
    let of_part = |part: &UOp| {
        let divisor = divisor(part)?;
        let advances = |range: &&UOp| stride(&part.src()[0], range, free) == Some(1);
        Some((ranges.iter().find(advances)?.clone(), divisor))
    };
    parts.iter().filter_map(of_part).collect()
}

/// All loads and stores of a kernel.
pub(super) struct Accesses {
    pub(super) list: Vec<Access>,
    /// Bytes of the widest type in which a loaded, stored or reduced value is computed.
    pub(super) widest_bytes: i64,
    /// The same of the values that vary along each range.
    widest_along: Vec<(UOp, i64)>,
    /// True if 16-bit floats are loaded or stored.
    pub(super) has_halves: bool,
    /// The ranges that each comparison of integers depends on.
    compared: Vec<Vec<UOp>>,
}

impl Accesses {
    pub(super) fn of(root: &UOp) -> Result<Accesses, Error> {
        let free = Free::of(root)?;
        let ranges: Vec<UOp> = free.ranges().cloned().collect();
        let is_access = |node: &&UOp| matches!(node.op(), Op::Load | Op::Store);
        // Where a loop is cut, gates of some parts are known to be false.
        let is_never = |node: &UOp| {
            let gate = node.src()[0].src().get(2..).unwrap_or_default();
            parts(gate).iter().any(|part| gradiff_rewrite::bounds(part) == (0, 0))
        };
        let access = |node: &UOp| {
            let index = &node.src()[0];
            let varies = |part: &UOp, range: &UOp| free.of_node(part) & free.of_node(range) != 0;
            let varies_along =
                |parts: &[UOp], range: &UOp| parts.iter().any(|part| varies(part, range));
            let gate = undecided(index.src().get(2..).unwrap_or_default());
            let gate = gate.as_slice();
            let gates: Vec<UOp> =
                ranges.iter().filter(|range| varies_along(gate, range)).cloned().collect();
            let stride = |range: &UOp| stride(&index.src()[1], range, &free);
            let index_ranges = ranges.iter().filter(|range| varies_along(&index.src()[1..], range));
            let strides = index_ranges.map(|range| (range.clone(), stride(range))).collect();
            let divided = divided(index, &ranges, &free);
            let is_store = node.op() == Op::Store;
            let weight = if is_store { 1 } else { free.weight(index) };
            Access { is_store, dtype: index.dtype(), weight, strides, gates, divided }
        };
        let list = free.nodes.iter().filter(|node| is_access(node) && !is_never(node));
        let list = list.map(access).collect();
        let is_wide = |node: &&UOp| matches!(node.op(), Op::Load | Op::Index | Op::Reduce);
        let is_half = |node: &UOp| node.dtype().is_half();
        // 16-bit floats are computed with as f32.
        let bytes = |node: &UOp| if is_half(node) { 4 } else { node.dtype().size_bytes() as i64 };
        let wide = || free.nodes.iter().filter(is_wide);
        let widest_bytes = wide().map(bytes).max().unwrap_or(1).max(1);
        let varying = |node: &UOp| match node.op() {
            Op::Reduce => free.of_node(node) | free.of_loops(node),
            _ => free.of_node(node),
        };
        let widest_along = |range: &UOp| {
            let varies = |node: &&UOp| varying(node) & free.of_node(range) != 0;
            wide().filter(varies).map(bytes).max().unwrap_or(widest_bytes)
        };
        let widest_along = ranges.iter().map(|range| (range.clone(), widest_along(range)));
        let widest_along = widest_along.collect();
        let has_halves = free.nodes.iter().any(|node| node.op() == Op::Index && is_half(node));
        let is_compared = |node: &&UOp| node.op() == Op::CmpLt && node.src()[0].dtype().is_int();
        let compared = |node: &UOp| {
            let varies = |range: &&UOp| free.of_node(node) & free.of_node(range) != 0;
            ranges.iter().filter(varies).cloned().collect()
        };
        let compared = free.nodes.iter().filter(is_compared).map(compared).collect();
        Ok(Accesses { list, widest_bytes, widest_along, has_halves, compared })
    }

    /// Returns whether some comparison depends on these two ranges and on no others.
    pub(super) fn compares(&self, first: &UOp, second: &UOp) -> bool {
        let are_both = |ranges: &Vec<UOp>| {
            ranges.len() == 2 && ranges.contains(first) && ranges.contains(second)
        };
        self.compared.iter().any(are_both)
    }

    /// Returns the most lanes that a vector of each type that is accessed along a range can have,
    /// of those that have any; 1 if none has.
    pub(super) fn lanes(&self, optimizer: &Optimizer<'_>, range: &UOp) -> i64 {
        let vectors = optimizer.setting.target.vectors;
        let along = self.list.iter().filter(|access| access.index_stride(range) != Some(0));
        let lanes = along.map(|access| vectors.lanes_of(access.dtype));
        lanes.filter(|lanes| 2 <= *lanes).min().unwrap_or(1)
    }
}

/// Returns the parts of gates, each of which must hold.
fn parts(gates: &[UOp]) -> Vec<UOp> {
    let (mut open, mut found) = (gates.to_vec(), Vec::new());
    while let Some(part) = open.pop() {
        match part.op() {
            Op::And => open.extend(part.src().iter().cloned()),
            _ => found.push(part),
        }
    }
    found
}

/// Returns the parts of gates that do not always hold.
fn undecided(gates: &[UOp]) -> Vec<UOp> {
    let mut parts = parts(gates);
    parts.retain(|part| gradiff_rewrite::bounds(part) != (1, 1));
    parts
}

/// Returns the index of the plain loop that is best for vector lanes: the accesses cost least.
/// Among output loops, those count as well that a reduction makes outside of the loop.
pub(super) fn best_lane_loop(optimizer: &Optimizer<'_>, accesses: &Accesses) -> Option<usize> {
    let list = &optimizer.loops.list;
    let costs: Vec<(usize, i64)> = (0..list.len())
        .filter_map(|index| Some((index, lane_cost(optimizer, accesses, &list[index])?)))
        .collect();
    let key = |index: usize, cost: i64| {
        (Reverse(cost), list[index].is_output, list[index].axis.number, index)
    };
    let best = costs.iter().map(|(index, cost)| key(*index, *cost)).max()?.3;
    if !list[best].is_output {
        return Some(best);
    }
    let outputs = costs.iter().filter(|(index, _)| list[*index].is_output);
    let outputs = outputs.map(|(index, cost)| {
        let outside = outside_cost(optimizer, accesses, &list[*index]);
        key(*index, cost.saturating_add(outside))
    });
    outputs.max().map(|best| best.3)
}

/// Returns the cost of scalar accesses in the reductions outside of an output loop.
fn outside_cost(optimizer: &Optimizer<'_>, accesses: &Accesses, info: &Loop) -> i64 {
    let reduced = optimizer.loops.list.iter().filter(|known| known.is_reduced);
    let outside: Vec<&Loop> = reduced.filter(|known| known.is_independent(info)).collect();
    let is_outside =
        |access: &&Access| outside.iter().any(|known| access.index_stride(&known.range) != Some(0));
    let weights = accesses.list.iter().filter(is_outside).map(|access| access.weight);
    weights.fold(0, |sum, weight| sum.saturating_add(weight.saturating_mul(LANES_MAX)))
}

/// Returns the number of lanes that vectors along a loop have, so that there are few vectors.
/// `None` if no number fits.
pub(super) fn lanes(optimizer: &Optimizer<'_>, accesses: &Accesses, info: &Loop) -> Option<i64> {
    let along = accesses.widest_along.iter().find(|(range, _)| *range == info.range);
    let widest_bytes = along.map_or(accesses.widest_bytes, |(_, bytes)| *bytes);
    let limit = i64::from(optimizer.setting.target.vectors.bytes) / widest_bytes;
    let powers = std::iter::successors(Some(limit.min(LANES_MAX)), |power| Some(power / 2));
    let divides = |count: i64| info.size % count == 0;
    let fits = |count: &i64| {
        divides(*count) || SHIFTED_LANES_MIN <= *count && optimizer.may_shift(info, *count)
    };
    let powers = powers.take_while(|power| 2 <= *power).filter(fits);
    powers.min_by_key(|count| (padded_size(info.size, *count) / count, !divides(*count)))
}

/// Returns the cost of the accesses with vector lanes along a loop; `None` if they are illegal or
/// gain nothing.
pub(super) fn lane_cost(
    optimizer: &Optimizer<'_>,
    accesses: &Accesses,
    info: &Loop,
) -> Option<i64> {
    let Setting { mode, target } = optimizer.setting;
    let may_reorder = mode != Mode::Strict && target.groups.is_none();
    let is_plain = info.axis.kind == AxisKind::Loop && !info.is_ordered;
    let is_candidate = is_plain && info.is_output != info.is_reduced;
    if !is_candidate || info.is_reduced && !may_reorder {
        return None;
    }
    let lanes = lanes(optimizer, accesses, info)?;
    let permutes = target.vectors.may_interleave();
    let cost = |access: &Access| access.cost(&info.range, lanes, permutes, &optimizer.loops);
    let costs = accesses.list.iter().map(cost);
    let add = |a: LaneCost, b: LaneCost| LaneCost {
        cost: a.cost.saturating_add(b.cost),
        saving: a.saving.saturating_add(b.saving),
    };
    let total = costs.fold(LaneCost { cost: 0, saving: 0 }, add);
    // The last vector repeats elements where the lanes do not divide the loop.
    let padded = padded_size(info.size, lanes);
    let (over, under) = SHIFTED_MAX;
    let repeats = info.size.saturating_mul(over) / under < padded;
    let padded = if repeats { padded } else { info.size };
    let cost = i128::from(total.cost) * i128::from(padded) / i128::from(info.size.max(1));
    (0 < total.saving).then_some(i64::try_from(cost).unwrap_or(i64::MAX))
}
