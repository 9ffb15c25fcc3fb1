//! The ranges that are expanded, and the uops that vary along each of them.

use gradiff_graph::{Arg, Axis, AxisKind, Instruction, Linear, Op};

use crate::free::MAX_RANGES;

/// A range that is expanded.
pub(super) struct Dim {
    /// The position of its `Range`.
    pub(super) start: usize,
    /// The position of its `EndRange`.
    pub(super) end: usize,
    /// The trip count.
    pub(super) count: i64,
    /// [`AxisKind::Upcast`], [`AxisKind::Vector`] or [`AxisKind::Unroll`].
    pub(super) kind: AxisKind,
}

/// The ranges that are expanded, one bit each, and where they are open. A range that several
/// reductions or stores run over is opened in each of them, so there may be more than bits; those
/// after the first [`MAX_RANGES`] remain loops.
pub(super) struct Dims<'a> {
    pub(super) linear: &'a Linear,
    pub(super) ranges: Vec<Dim>,
    /// For each uop the range that it opens, if that is expanded.
    opened: Vec<Option<u8>>,
    /// For each uop the ranges (bits) around it.
    around: Vec<u64>,
    /// For each uop the ranges (bits) around the innermost plain loop that it is in.
    around_loop: Vec<u64>,
}

impl<'a> Dims<'a> {
    pub(super) fn of(linear: &'a Linear) -> Dims<'a> {
        let (mut ranges, mut open) = (Vec::<Dim>::new(), Vec::new());
        let mut opened = vec![None; linear.uops.len()];
        let (mut around, mut around_loop) = (Vec::new(), Vec::new());
        let (mut inside, mut outside) = (0u64, 0u64);
        for (position, uop) in linear.uops.iter().enumerate() {
            match (uop.op, expanded(linear, uop)) {
                (Op::Range, Some((count, kind))) if ranges.len() < MAX_RANGES => {
                    open.push((inside, outside, Some(ranges.len())));
                    around.push(inside);
                    around_loop.push(outside);
                    inside |= 1 << ranges.len();
                    opened[position] = Some(ranges.len() as u8);
                    ranges.push(Dim { start: position, end: position, count, kind });
                    continue;
                }
                (Op::Range, _) => {
                    open.push((inside, outside, None));
                    outside = inside;
                }
                (Op::EndRange, _) => {
                    around.push(inside);
                    around_loop.push(outside);
                    let (outer_inside, outer_outside, range) =
                        open.pop().expect("loops are nested");
                    (inside, outside) = (outer_inside, outer_outside);
                    if let Some(range) = range {
                        ranges[range].end = position;
                    }
                    continue;
                }
                _ => {}
            }
            around.push(inside);
            around_loop.push(outside);
        }
        Dims { linear, ranges, opened, around, around_loop }
    }

    /// Returns the ranges (bits) of a kind.
    pub(super) fn of_kind(&self, wanted: AxisKind) -> u64 {
        let bits = self.ranges.iter().enumerate().filter(|(_, range)| range.kind == wanted);
        bits.fold(0, |bits, (bit, _)| bits | 1 << bit)
    }

    /// Returns the ranges (bits) whose iterations are independent.
    pub(super) fn upcast(&self) -> u64 {
        self.of_kind(AxisKind::Upcast) | self.of_kind(AxisKind::Vector)
    }

    /// Returns for each uop the ranges (bits) that it varies along: a fixed point, since values
    /// depend on accumulators, and these on the values assigned to them.
    pub(super) fn varies(&self) -> Vec<u64> {
        let (upcast, unroll) = (self.upcast(), self.of_kind(AxisKind::Unroll));
        let mut varies = vec![0u64; self.linear.uops.len()];
        for (bit, range) in self.ranges.iter().enumerate() {
            varies[range.start] = 1 << bit;
        }
        loop {
            let before = varies.clone();
            for (position, uop) in self.linear.uops.iter().enumerate() {
                let around = self.around[position];
                // An accumulator varies only along the ranges in which it is assigned.
                let count = if uop.op == Op::DefineAcc { 1 } else { uop.src.len() };
                let sources = uop.src[..count].iter().map(|source| *source as usize);
                let mut bits = varies[position] | self.around_loop[position] & unroll;
                for source in sources {
                    bits |= varies[source];
                    if self.linear.uops[source].op == Op::DefineAcc {
                        // An accumulator has another value in each iteration that assigns it.
                        bits |= around & unroll & !self.around[source];
                    }
                }
                if let Some(accumulator) = self.accumulation(position) {
                    // A loop-invariant value is still accumulated once per iteration.
                    bits |= around & upcast & !self.around[accumulator as usize];
                }
                match uop.op {
                    Op::DefineAcc | Op::Range => bits |= around & unroll,
                    Op::EndRange => bits = varies[uop.src[0] as usize],
                    Op::Barrier => bits = 0,
                    Op::Assign => {
                        let accumulator = uop.src[0] as usize;
                        varies[accumulator] |= bits & upcast & self.around[accumulator];
                    }
                    _ => {}
                }
                varies[position] = bits & (around | bits & self.opened_bit(position));
            }
            if varies == before {
                return varies;
            }
        }
    }

    /// Returns the range that a uop opens, if that is expanded.
    pub(super) fn opened_at(&self, position: usize) -> Option<usize> {
        self.opened[position].map(usize::from)
    }

    /// Returns the bit of the range that a uop opens, if that is expanded; else 0.
    pub(super) fn opened_bit(&self, position: usize) -> u64 {
        self.opened_at(position).map_or(0, |bit| 1 << bit)
    }

    /// Returns the accumulator of an accumulation: this uop reads it, and the next one assigns it
    /// the result. Both are emitted together for each iteration, since the next one reads the new
    /// value.
    pub(super) fn accumulation(&self, position: usize) -> Option<u32> {
        let uop = &self.linear.uops[position];
        let next = self.linear.uops.get(position + 1)?;
        if next.op != Op::Assign || next.src[1] != position as u32 {
            return None;
        }
        uop.src.iter().copied().find(|source| *source == next.src[0])
    }
}

/// Returns the trip count and the kind of a range, if it is expanded.
fn expanded(linear: &Linear, uop: &Instruction) -> Option<(i64, AxisKind)> {
    use AxisKind::{Unroll, Upcast, Vector};
    let Arg::Axis(Axis { kind: kind @ (Upcast | Vector | Unroll), .. }) = uop.arg else {
        return None;
    };
    match linear.uops[*uop.src.first()? as usize].arg {
        Arg::Const(end) => Some((i64::try_from(end.to_int()?).ok()?, kind)),
        _ => None,
    }
}
