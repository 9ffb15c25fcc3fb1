//! Pass `lower`: axes become ranges, trackers become index arithmetic and gates.
//!
//! An axis is one range, unless it is folded more than once, or folded and stored along: then each
//! fold runs over a range of its own, and is a loop that stands by itself.

use gradiff_graph::{Arg, Constant, DType, Op, UOp, UopAlgebra};
use gradiff_view::ShapeTracker;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::Error;
use crate::error::malformed;
use crate::extent::{Axes, tracker};
use crate::linearize::folding;
use crate::pass::Context;
use crate::shape::map_nodes;

/// The pass. Output axes get the first ranges, reduced axes the following ones. Indices are i32
/// unless one of them, or a value on the way to it, may leave i32.
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

/// Whether the numbers of each view, and the positions it can reach, can be written in i32, so
/// that constants of this type say what they should. What is computed from them on the way is
/// looked at later.
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

/// A place and whether it is there at all.
type Place = (UOp, Option<UOp>);

struct Lowering {
    dtype: DType,
    /// The counter of each axis: a range, or 0 for an axis of size 1.
    counters: SmallVec<[UOp; 4]>,
    /// The axes (bits) of which each fold has a range of its own.
    is_shared: u64,
    /// The number of the next range.
    fresh: i64,
    /// One tracker often serves several loads.
    places: Vec<(ShapeTracker, Place)>,
}

impl Lowering {
    fn new(axes: &Axes, order: &[UOp], dtype: DType) -> Lowering {
        let stores = order.iter().filter(|node| node.op() == Op::Store).filter_map(tracker);
        let stored = stores.fold(0, |all, tracker| all | extent(tracker));
        let is_shared = |axis: usize| match axes.folds[axis].len() {
            0 => false,
            1 => stored >> axis & 1 == 1,
            _ => true,
        };
        let shared = (0..axes.sizes.len()).filter(|axis| is_shared(*axis));
        let is_shared = shared.fold(0, |all, axis| all | 1 << axis);
        let zero = UOp::int(dtype, 0);
        let mut counters: SmallVec<[UOp; 4]> = SmallVec::from_elem(zero, axes.sizes.len());
        let mut fresh = 0;
        for axis in axes.order().filter(|axis| axes.sizes[*axis] != 1) {
            let end = UOp::int(dtype, axes.sizes[axis]);
            counters[axis] = UOp::new(Op::Range, dtype, [end], Arg::plain_axis(fresh));
            fresh += 1;
        }
        Lowering { dtype, counters, is_shared, fresh, places: Vec::new() }
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

    /// The lowered node and the axes (bits) along which it varies or could vary.
    fn node(&mut self, node: &UOp, new: &FxHashMap<&UOp, (UOp, u64)>) -> Result<(UOp, u64), Error> {
        let source = |position: usize| new[&node.src()[position]].0.clone();
        let along = || node.src().iter().fold(0, |axes, source| axes | new[source].1);
        match (node.op(), node.arg()) {
            (Op::Load, Arg::View(tracker)) => {
                let (place, gate) = self.place(tracker);
                Ok((load(node.dtype(), source(0), place, gate), extent(tracker)))
            }
            (Op::View, Arg::View(tracker)) if node.src()[0].op() == Op::ReduceAxis => {
                if !is_spread(tracker, &node.src()[0]) {
                    return Err(malformed(format!("a fold seen through {tracker}")));
                }
                Ok((source(0), along() | extent(tracker)))
            }
            (Op::View, Arg::View(tracker)) => {
                let value = self.leaf(&node.src()[0], tracker)?;
                Ok((value, extent(tracker)))
            }
            (Op::Store, Arg::View(tracker)) => {
                if new[&node.src()[1]].1 & !extent(tracker) != 0 {
                    return Err(malformed(format!("several values for each element of {tracker}")));
                }
                let (place, gate) = self.place(tracker);
                let target = index(source(0), place, gate);
                let store = UOp::new(Op::Store, DType::Void, [target, source(1)], Arg::None);
                Ok((store, 0))
            }
            (Op::ReduceAxis, Arg::Reduce(op, axes)) => {
                let mut along = along();
                let mut value = source(0);
                let mut ranges: SmallVec<[UOp; 4]> = SmallVec::new();
                for axis in axes.iter().map(|axis| *axis as usize) {
                    if along >> axis & 1 == 1 {
                        let (moved, range) = self.own_range(value, axis)?;
                        value = moved;
                        ranges.push(range);
                        along &= !(1 << axis);
                    }
                }
                Ok((reduce(*op, value, &ranges), along))
            }
            (Op::Const | Op::DefineGlobal | Op::DefineVar, _) => Ok((node.clone(), 0)),
            // An iota is lowered with the view above it.
            (Op::Iota, _) => Ok((node.clone(), 0)),
            (Op::Sink, _) => Ok((node.with_src((0..node.src().len()).map(source)), 0)),
            (op, _) if op.is_elementwise() => {
                Ok((node.with_src((0..node.src().len()).map(source)), along()))
            }
            (op, _) => Err(malformed(format!("{op} in a kernel tree"))),
        }
    }

    /// The range of a fold over an axis, and what is folded, in terms of that range.
    fn own_range(&mut self, value: UOp, axis: usize) -> Result<(UOp, UOp), Error> {
        let counter = self.counters[axis].clone();
        if self.is_shared >> axis & 1 == 0 {
            return Ok((value, counter));
        }
        let own = UOp::new(Op::Range, self.dtype, [counter.src()[0].clone()], {
            Arg::plain_axis(self.fresh)
        });
        self.fresh += 1;
        let moved = map_nodes(&value.toposort(), |old, node| {
            Ok(if *old == counter { own.clone() } else { node })
        })?;
        Ok((moved, own))
    }

    /// What a view shows of a constant or an iota.
    fn leaf(&mut self, leaf: &UOp, tracker: &ShapeTracker) -> Result<UOp, Error> {
        let (place, gate) = self.place(tracker);
        let value = match leaf.op() {
            Op::Const => leaf.clone(),
            Op::Iota if leaf.dtype() == self.dtype => place,
            Op::Iota => UOp::unary(Op::Cast, leaf.dtype(), place),
            op => return Err(malformed(format!("a view of {op}"))),
        };
        let zero = UOp::constant(Constant::zero(leaf.dtype()));
        Ok(match gate {
            Some(gate) => UOp::select(gate, value, zero),
            None => value,
        })
    }

    /// Where the tracker sends the counters.
    fn place(&mut self, tracker: &ShapeTracker) -> Place {
        if let Some((_, place)) = self.places.iter().find(|(known, _)| known == tracker) {
            return place.clone();
        }
        let mut algebra = UopAlgebra { dtype: self.dtype };
        let counter = |(axis, size): (usize, &i64)| match size {
            1 => UOp::int(self.dtype, 0),
            _ => self.counters[axis].clone(),
        };
        let counters: SmallVec<[UOp; 4]> =
            tracker.shape().iter().enumerate().map(counter).collect();
        let place = match tracker.shape().contains(&0) {
            // No loop is sure to stand around an access of no element: its index knows no axis.
            true => (UOp::int(self.dtype, 0), Some(UOp::constant(Constant::bool(false)))),
            false => tracker.index(&mut algebra, &counters),
        };
        self.places.push((tracker.clone(), place.clone()));
        place
    }

    /// The largest magnitude (less one below zero) that any value of any place may reach.
    fn widest(&self) -> i128 {
        let mut intervals = crate::interval::Intervals::default();
        let places = self.places.iter().flat_map(|(_, (place, gate))| [Some(place), gate.as_ref()]);
        places.flatten().for_each(|place| intervals.add(place));
        intervals.widest()
    }
}

/// Whether a view repeats a fold along axes that are folded, and does nothing else.
fn is_spread(tracker: &ShapeTracker, fold: &UOp) -> bool {
    let ([view], Some(shape)) = (tracker.views(), fold.shape()) else { return false };
    let mut stride = 1;
    view.offset() == 0
        && view.mask().is_none()
        && view.shape().len() == shape.len()
        && (0..shape.len()).rev().all(|axis| {
            let own = if shape[axis] == 1 { 0 } else { stride };
            stride *= shape[axis];
            view.strides()[axis] == own && (shape[axis] == 1 || view.shape()[axis] == shape[axis])
        })
}

/// The axes of a tracker that are more (or less) than one element, as bits.
fn extent(tracker: &ShapeTracker) -> u64 {
    let axes = tracker.shape().iter().enumerate().filter(|(_, size)| **size != 1);
    axes.fold(0, |bits, (axis, _)| bits | 1 << axis)
}

fn index(global: UOp, place: UOp, gate: Option<UOp>) -> UOp {
    let dtype = global.dtype();
    UOp::new(Op::Index, dtype, [global, place].into_iter().chain(gate), Arg::None)
}

fn load(dtype: DType, global: UOp, place: UOp, gate: Option<UOp>) -> UOp {
    UOp::new(Op::Load, dtype, [index(global, place, gate)], Arg::None)
}

fn reduce(op: Op, value: UOp, ranges: &[UOp]) -> UOp {
    if ranges.is_empty() {
        return value;
    }
    let dtype = value.dtype();
    let sources = std::iter::once(value).chain(ranges.iter().cloned());
    UOp::new(Op::Reduce, dtype, sources, folding(op))
}
