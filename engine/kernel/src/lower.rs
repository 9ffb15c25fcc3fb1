//! Pass `lower`: axes become ranges, trackers become index arithmetic and gates.
//!
//! An axis is one range, unless several reductions run over it, or a reduction and a store: then
//! each of these reductions gets a range of its own, and with it a separate loop.

use gradiff_graph::{Arg, Constant, DType, Op, UOp, UopAlgebra};
use gradiff_view::ShapeTracker;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::Error;
use crate::context::Context;
use crate::error::malformed;
use crate::extent::{Axes, is_broadcast, tracker};
use crate::nodes::{map_nodes, reduce_arg};

/// Lowers a kernel tree. Output axes get the first ranges, reduced axes the following ones. Indices
/// are i32, unless an index or an intermediate value of one may exceed i32.
pub(crate) fn to_indices(root: &UOp, _ctx: &mut Context<'_>) -> Result<UOp, Error> {
    let order = root.toposort();
    let axes = Axes::of(&order)?;
    if axes.sizes.len() > 64 {
        return Err(Error::TooManyLoops(axes.sizes.len()));
    }
    if order.iter().filter_map(tracker).all(fits_i32) {
        let mut lowering = Lowering::new(&axes, &order, DType::I32);
        let lowered = lowering.run(&order)?;
        if lowering.widest() <= i128::from(i32::MAX) {
            return Ok(lowered);
        }
    }
    let mut lowering = Lowering::new(&axes, &order, DType::I64);
    let lowered = lowering.run(&order)?;
    match lowering.widest() {
        widest if widest <= i128::from(i64::MAX) => Ok(lowered),
        widest => Err(Error::IndexTooWide(widest)),
    }
}

/// Returns whether the numbers of each view, and the offsets it can reach, fit i32, so that they
/// can be constants of this type. [`Lowering::widest`] checks the intermediate values.
fn fits_i32(tracker: &ShapeTracker) -> bool {
    tracker.views().iter().all(|view| {
        let sizes = view.shape().iter().map(|size| i128::from((*size).max(1)));
        let reach = sizes.clone().zip(view.strides());
        let reach = reach.map(|(size, stride)| size.saturating_mul(i128::from(*stride).abs()));
        let reach = reach.fold(i128::from(view.offset()).abs(), i128::saturating_add);
        let count = sizes.fold(1, i128::saturating_mul);
        reach.max(count) <= i128::from(i32::MAX)
    })
}

/// An index into an array, and the gate that tells whether the element is real.
type GatedIndex = (UOp, Option<UOp>);

struct Lowering {
    dtype: DType,
    /// The counter of each axis: a range, or 0 for an axis of size 1.
    counters: SmallVec<[UOp; 4]>,
    /// The axes (bits) for which each reduction has a range of its own.
    shared: u64,
    /// The number of the next range.
    next_number: i64,
    /// The indices so far; several loads often have the same tracker.
    indices: Vec<(ShapeTracker, GatedIndex)>,
}

impl Lowering {
    fn new(axes: &Axes, order: &[UOp], dtype: DType) -> Lowering {
        let stores = order.iter().filter(|node| node.op() == Op::Store).filter_map(tracker);
        let stored = stores.fold(0, |bits, tracker| bits | extent(tracker));
        let is_shared = |axis: usize| match axes.reductions[axis].len() {
            0 => false,
            1 => stored >> axis & 1 == 1,
            _ => true,
        };
        let shared = (0..axes.sizes.len()).filter(|axis| is_shared(*axis));
        let shared = shared.fold(0, |bits, axis| bits | 1 << axis);
        let zero = UOp::int(dtype, 0);
        let mut counters: SmallVec<[UOp; 4]> = SmallVec::from_elem(zero, axes.sizes.len());
        let mut next_number = 0;
        for axis in axes.order().filter(|axis| axes.sizes[*axis] != 1) {
            let end = UOp::int(dtype, axes.sizes[axis]);
            counters[axis] = UOp::new(Op::Range, dtype, [end], Arg::plain_axis(next_number));
            next_number += 1;
        }
        Lowering { dtype, counters, shared, next_number, indices: Vec::new() }
    }

    fn run(&mut self, order: &[UOp]) -> Result<UOp, Error> {
        let mut new: FxHashMap<&UOp, (UOp, u64)> = FxHashMap::default();
        new.reserve(order.len());
        for node in order {
            let lowered = self.node(node, &new)?;
            new.insert(node, lowered);
        }
        let last = order.last().ok_or_else(|| malformed("an empty graph"))?;
        Ok(new[last].0.clone())
    }

    /// Returns the lowered node and the axes (bits) that it may depend on.
    fn node(&mut self, node: &UOp, new: &FxHashMap<&UOp, (UOp, u64)>) -> Result<(UOp, u64), Error> {
        let source = |position: usize| new[&node.src()[position]].0.clone();
        let axes_of_sources = || node.src().iter().fold(0, |axes, source| axes | new[source].1);
        match (node.op(), node.arg()) {
            (Op::Load, Arg::View(tracker)) => {
                let (index, gate) = self.index(tracker);
                Ok((load(node.dtype(), source(0), index, gate), extent(tracker)))
            }
            (Op::View, Arg::View(tracker)) if node.src()[0].op() == Op::ReduceAxis => {
                if !is_broadcast(tracker, &node.src()[0]) {
                    return Err(malformed(format!(
                        "a view of a reduction that is not a broadcast: {tracker}"
                    )));
                }
                Ok((source(0), axes_of_sources() | extent(tracker)))
            }
            (Op::View, Arg::View(tracker)) => {
                let value = self.leaf(&node.src()[0], tracker)?;
                Ok((value, extent(tracker)))
            }
            (Op::Store, Arg::View(tracker)) => {
                if new[&node.src()[1]].1 & !extent(tracker) != 0 {
                    return Err(malformed(format!("several values for each element of {tracker}")));
                }
                let (index, gate) = self.index(tracker);
                let address = address(source(0), index, gate);
                let store = UOp::new(Op::Store, DType::Void, [address, source(1)], Arg::None);
                Ok((store, 0))
            }
            (Op::ReduceAxis, Arg::Reduce(op, axes)) => {
                let mut varying = axes_of_sources();
                let mut value = source(0);
                let mut ranges: SmallVec<[UOp; 4]> = SmallVec::new();
                for axis in axes.iter().map(|axis| *axis as usize) {
                    if varying >> axis & 1 == 1 {
                        let (over_range, range) = self.reduction_range(value, axis)?;
                        value = over_range;
                        ranges.push(range);
                        varying &= !(1 << axis);
                    }
                }
                Ok((reduce(*op, value, &ranges), varying))
            }
            (Op::Const | Op::DefineGlobal | Op::DefineVar, _) => Ok((node.clone(), 0)),
            // Lowered together with the view of it.
            (Op::Iota, _) => Ok((node.clone(), 0)),
            (Op::Sink, _) => Ok((node.with_src((0..node.src().len()).map(source)), 0)),
            (op, _) if op.is_elementwise() => {
                Ok((node.with_src((0..node.src().len()).map(source)), axes_of_sources()))
            }
            (op, _) => Err(malformed(format!("{op} in a kernel tree"))),
        }
    }

    /// Returns the range of a reduction over an axis, and the reduced value over that range.
    fn reduction_range(&mut self, value: UOp, axis: usize) -> Result<(UOp, UOp), Error> {
        let counter = self.counters[axis].clone();
        if self.shared >> axis & 1 == 0 {
            return Ok((value, counter));
        }
        let range = UOp::new(Op::Range, self.dtype, [counter.src()[0].clone()], {
            Arg::plain_axis(self.next_number)
        });
        self.next_number += 1;
        let over_range = map_nodes(&value.toposort(), |old, node| {
            Ok(if *old == counter { range.clone() } else { node })
        })?;
        Ok((over_range, range))
    }

    /// Lowers a view of a constant or an iota.
    fn leaf(&mut self, leaf: &UOp, tracker: &ShapeTracker) -> Result<UOp, Error> {
        let (index, gate) = self.index(tracker);
        let value = match leaf.op() {
            Op::Const => leaf.clone(),
            Op::Iota if leaf.dtype() == self.dtype => index,
            Op::Iota => UOp::unary(Op::Cast, leaf.dtype(), index),
            op => return Err(malformed(format!("a view of {op}"))),
        };
        let zero = UOp::constant(Constant::zero(leaf.dtype()));
        Ok(match gate {
            Some(gate) => UOp::select(gate, value, zero),
            None => value,
        })
    }

    /// Returns the index and gate of a tracker at the counters.
    fn index(&mut self, tracker: &ShapeTracker) -> GatedIndex {
        if let Some((_, index)) = self.indices.iter().find(|(known, _)| known == tracker) {
            return index.clone();
        }
        let mut algebra = UopAlgebra { dtype: self.dtype };
        let counter = |(axis, size): (usize, &i64)| match size {
            1 => UOp::int(self.dtype, 0),
            _ => self.counters[axis].clone(),
        };
        let counters: SmallVec<[UOp; 4]> =
            tracker.shape().iter().enumerate().map(counter).collect();
        let index = match tracker.shape().contains(&0) {
            // The index of an empty view depends on no axis, as the access may be in no loop.
            true => (UOp::int(self.dtype, 0), Some(UOp::constant(Constant::bool(false)))),
            false => tracker.index(&mut algebra, &counters),
        };
        self.indices.push((tracker.clone(), index.clone()));
        index
    }

    /// Returns the largest magnitude (less one below zero) that any part of an index may reach.
    fn widest(&self) -> i128 {
        let mut intervals = crate::interval::Intervals::default();
        let roots = self.indices.iter().flat_map(|(_, (index, gate))| [Some(index), gate.as_ref()]);
        roots.flatten().for_each(|root| intervals.add(root));
        intervals.widest()
    }
}

/// Returns the axes of a tracker whose size is not 1, as bits.
fn extent(tracker: &ShapeTracker) -> u64 {
    let axes = tracker.shape().iter().enumerate().filter(|(_, size)| **size != 1);
    axes.fold(0, |bits, (axis, _)| bits | 1 << axis)
}

fn address(global: UOp, index: UOp, gate: Option<UOp>) -> UOp {
    let dtype = global.dtype();
    UOp::new(Op::Index, dtype, [global, index].into_iter().chain(gate), Arg::None)
}

fn load(dtype: DType, global: UOp, index: UOp, gate: Option<UOp>) -> UOp {
    UOp::new(Op::Load, dtype, [address(global, index, gate)], Arg::None)
}

fn reduce(op: Op, value: UOp, ranges: &[UOp]) -> UOp {
    if ranges.is_empty() {
        return value;
    }
    let dtype = value.dtype();
    let sources = std::iter::once(value).chain(ranges.iter().cloned());
    UOp::new(Op::Reduce, dtype, sources, reduce_arg(op))
}
