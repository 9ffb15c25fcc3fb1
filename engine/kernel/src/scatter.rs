//! Pass `scatter`: a reduction of choices that compare an index of each element with the position
//! in the output becomes updates. Each element is then loaded once and changes the element of the
//! output that it names; before, each pair of them was compared.
//!
//! ```text
//! for p:  out[p] = sum over j of (i[j] != p ? 0 : x[j])
//!
//! for p:  out[p] = 0
//! for j:  if 0 <= i[j] < size(p):  out[i[j]] += x[j]
//! ```
//!
//! An update is a store whose arg is an op. Its iterations run one after the other, in the order of
//! those of the reduction. What they leave out are ops with its identity, or with the constant that
//! a maximum starts from, so the result is the same, bit by bit.

use gradiff_graph::{Arg, AxisKind, Constant, DType, Op, Target, UOp};
use gradiff_rewrite::{Mode, substitute};

use crate::Error;
use crate::context::Context;
use crate::free::Free;
use crate::nodes::{cast, gated_address, map_nodes, number, range, reduce_arg};
use crate::stride::stride;

/// Replaces the reduction that a kernel stores by updates, if it has this form and updates take
/// less time on the target.
pub(crate) fn scatter(root: &UOp, ctx: &mut Context<'_>) -> Result<UOp, Error> {
    let [store] = root.src() else { return Ok(root.clone()) };
    let Some(choices) = Choices::of(store) else { return Ok(root.clone()) };
    let free = Free::of(root)?;
    let limit = match ctx.options.rewrite.mode {
        Mode::Strict => i64::MAX,
        _ => ctx.target.thresholds.accumulator_additions,
    };
    let found = Scatter::find(choices, &free, limit);
    match found.filter(|scatter| scatter.is_faster(&ctx.target)) {
        Some(scatter) => scatter.apply(root, &free, &ctx.target),
        None => Ok(root.clone()),
    }
}

/// A store of a reduction of choices between a value and what stands for others.
struct Choices<'a> {
    store: &'a UOp,
    op: Op,
    /// The ranges of the reduction.
    reduced: &'a [UOp],
    /// The value is chosen where these are equal.
    compared: [&'a UOp; 2],
    neutral: &'a UOp,
    value: &'a UOp,
}

impl<'a> Choices<'a> {
    fn of(store: &'a UOp) -> Option<Choices<'a>> {
        let [_, reduction] = store.src() else { return None };
        let (Op::Reduce, Arg::Reduce(op, _), [choice, reduced @ ..]) =
            (reduction.op(), reduction.arg(), reduction.src())
        else {
            return None;
        };
        let (Op::Where, [differs, neutral, value]) = (choice.op(), choice.src()) else {
            return None;
        };
        let (Op::CmpNe, [x, y]) = (differs.op(), differs.src()) else { return None };
        Some(Choices { store, op: *op, reduced, compared: [x, y], neutral, value })
    }
}

/// A store of a reduction, each element of which goes to one index along a range of the output.
struct Scatter<'a> {
    /// The address that is stored to.
    address: &'a UOp,
    op: Op,
    /// The value of each element of the output before the first update.
    start: Constant,
    /// The ranges of the reduction.
    reduced: &'a [UOp],
    /// The range of the output whose index is compared.
    position: UOp,
    /// The index that an element goes to.
    index: UOp,
    /// The element.
    value: &'a UOp,
    /// The ranges of the output but for that, with the strides along them.
    output_ranges: Vec<(&'a UOp, Option<i64>)>,
}

impl<'a> Scatter<'a> {
    /// Finds such choices. Sums of more than `limit` floats are left to `cascade`, unless what is
    /// not chosen is -0.0.
    fn find(choices: Choices<'a>, free: &'a Free, limit: i64) -> Option<Scatter<'a>> {
        let Choices { store, op, reduced, compared: [x, y], neutral, value } = choices;
        let address = &store.src()[0];
        let counts = reduced.iter().map(|range| range.trip_count().unwrap_or(i64::MAX));
        let is_long = limit < counts.fold(1, i64::saturating_mul);
        let start = start(op, neutral, value, is_long)?;
        let outputs = free.of_node(store);
        let range_of = |node: &UOp| match node.op() {
            Op::Cast if node.src()[0].op() == Op::Range => node.src()[0].clone(),
            _ => node.clone(),
        };
        let (position, index) = [(x, y), (y, x)].into_iter().map(|(x, y)| (range_of(x), y)).find(
            |(range, index)| {
                let is_output = range.op() == Op::Range && outputs & free.of_node(range) != 0;
                is_output && free.of_node(index) & free.of_node(range) == 0
            },
        )?;
        // Its type tells all positions apart.
        let (_, high) = index.dtype().int_range().filter(|_| index.dtype().is_int())?;
        if high < i128::from(position.trip_count()?) {
            return None;
        }
        // An index that is loaded cannot turn out to be the same in all iterations.
        let loads = index.toposort().into_iter().filter(|node| node.op() == Op::Load);
        let loaded = loads.fold(0, |bits, load| bits | free.of_node(&load));
        let is_loaded = reduced.iter().all(|range| loaded & free.of_node(range) != 0);
        let is_update = is_loaded && stride(&address.src()[1], &position, free)? != 0;
        let output_ranges = free.ranges().filter(|range| {
            let is_output = outputs & free.of_node(range) != 0;
            is_output && **range != position
        });
        let output_ranges =
            output_ranges.map(|range| (range, stride(&address.src()[1], range, free)));
        let (output_ranges, index) = (output_ranges.collect(), index.clone());
        is_update.then(|| Scatter {
            address,
            op,
            start,
            reduced,
            position,
            index,
            value,
            output_ranges,
        })
    }

    /// Returns whether updates take less time than comparisons. A comparison is an op of a vector,
    /// an update takes several, unless the elements of a vector go to the same index. Groups of
    /// threads compare all pairs at once, where an update waits for the one before it.
    fn is_faster(&self, target: &Target) -> bool {
        let count = |range: &UOp| range.trip_count().unwrap_or(1);
        let positions = count(&self.position);
        if target.groups.is_some() {
            // Those that the index varies along are not launched.
            let output_ranges = self
                .output_ranges
                .iter()
                .filter(|(range, _)| !self.index.toposort().contains(range));
            let outputs =
                output_ranges.map(|(range, _)| count(range)).fold(positions, i64::saturating_mul);
            return target.thresholds.group_scatter_outputs <= outputs;
        }
        let lanes = i64::from(target.vectors.bytes) / self.value.dtype().size_bytes() as i64;
        let is_row =
            |(range, stride): &(&UOp, Option<i64>)| *stride == Some(1) && lanes <= count(range);
        let lanes = if self.output_ranges.iter().any(is_row) { 1 } else { lanes.max(1) };
        target.thresholds.scatter_positions.saturating_mul(lanes) <= positions
    }

    fn apply(&self, root: &UOp, free: &Free, target: &Target) -> Result<UOp, Error> {
        let index = cast(self.index.clone(), self.position.dtype());
        let at_index = |node: &UOp| substitute(node, &self.position, &index);
        let int = |value: i64| UOp::int(self.index.dtype(), value);
        let size = self.position.trip_count().unwrap_or(0);
        let mut is_inside = UOp::binary(Op::CmpLt, self.index.clone(), int(size));
        if self.index.dtype().is_signed() {
            let is_positive = UOp::binary(Op::CmpLt, int(-1), self.index.clone());
            is_inside = UOp::binary(Op::And, is_positive, is_inside);
        }
        let start = UOp::constant(self.start);
        let initial = UOp::new(Op::Store, DType::Void, [self.address.clone(), start], Arg::None);
        let address = gated_address(&at_index(self.address), &is_inside);
        // Nor is anything loaded at an index that is not inside.
        let value = map_nodes(&self.value.toposort(), |old, node| {
            let is_at_position = old.op() == Op::Index && old.toposort().contains(&self.position);
            Ok(if is_at_position { gated_address(&node, &is_inside) } else { node })
        })?;
        let update = [address, at_index(&value)];
        let update = UOp::new(Op::Store, DType::Void, update, reduce_arg(self.op));
        if target.groups.is_some() {
            return Ok(root.with_src([initial, update]));
        }
        // The loop over adjacent elements is inside of those of the reduction, others are outside.
        let (inside, outside): (Vec<_>, Vec<_>) =
            self.output_ranges.iter().copied().partition(|(_, stride)| *stride == Some(1));
        let ranges = |list: Vec<(&'a UOp, _)>| list.into_iter().map(|(range, _)| range);
        let order = ranges(outside).chain(self.reduced).chain(ranges(inside));
        let next = 1 + free.ranges().map(number).max().unwrap_or(0);
        let new: Vec<(&UOp, UOp)> = order
            .zip(next..)
            .map(|(old, number)| {
                let size = old.trip_count().unwrap_or(0);
                (old, range(size, old.dtype(), AxisKind::Loop, number))
            })
            .collect();
        let update = map_nodes(&update.toposort(), |old, node| {
            Ok(new.iter().find(|(known, _)| *known == old).map_or(node, |(_, new)| new.clone()))
        })?;
        Ok(root.with_src([initial, update]))
    }
}

/// Returns the value that a reduction of a choice between a constant and a value may start from, in
/// place of the choices that are the constant: the identity, or the constant of a maximum if no
/// value is below it. A sum of floats is one of several sums if it is long, unless what is not
/// chosen is -0.0: this permits to add the chosen values one after the other.
fn start(op: Op, neutral: &UOp, value: &UOp, is_long: bool) -> Option<Constant> {
    let (constant, dtype) = (neutral.as_const()?, value.dtype());
    let identity = op.identity(dtype)?;
    let is_least = || gradiff_rewrite::bounds(value).0 >= constant.to_int().unwrap_or(i128::MAX);
    match op {
        Op::Add if dtype.is_float() && constant == Constant::float(dtype, -0.0) => Some(identity),
        Op::Add if dtype.is_float() && is_long => None,
        Op::Add if constant == identity => Some(identity),
        Op::Max if dtype.is_int() && is_least() => Some(constant),
        _ => None,
    }
}

/// Returns the ranges (bits) whose iterations may update the same element, so that they keep their
/// order: those along which the address has no constant stride other than 0.
pub(crate) fn ordered_ranges(free: &Free) -> u64 {
    let updates = free.nodes.iter().filter(|node| is_update(node));
    updates.fold(0, |bits, update| {
        let index = &update.src()[0].src()[1];
        let advances = |range: &&UOp| stride(index, range, free).is_some_and(|stride| stride != 0);
        let separate = free.ranges().filter(advances);
        let separate = separate.fold(0, |bits, range| bits | free.of_node(range));
        bits | free.of_node(update) & !separate
    })
}

/// Returns whether a node is a store that changes elements by an op.
pub(crate) fn is_update(node: &UOp) -> bool {
    node.op() == Op::Store && matches!(node.arg(), Arg::Reduce(..))
}

/// Makes updates loads, ops and stores, for the linear form.
pub(crate) fn explicit(root: &UOp) -> Result<UOp, Error> {
    let order = root.toposort();
    if !order.iter().any(is_update) {
        return Ok(root.clone());
    }
    map_nodes(&order, |_, node| {
        let (Op::Store, Arg::Reduce(op, _)) = (node.op(), node.arg()) else { return Ok(node) };
        let [address, value] = [&node.src()[0], &node.src()[1]];
        // It depends on the value, so that it is loaded in all loops of the value.
        let load = [address.clone(), value.clone()];
        let before = UOp::new(Op::Load, value.dtype(), load, Arg::None);
        let next = match op {
            // The target may have no `max`, and legalisation is over.
            Op::Max => {
                let is_less = UOp::binary(Op::CmpLt, before.clone(), value.clone());
                UOp::select(is_less, value.clone(), before)
            }
            _ => UOp::binary(*op, before, value.clone()),
        };
        Ok(UOp::new(Op::Store, DType::Void, [address.clone(), next], Arg::None))
    })
}
