//! Which ranges are written out, and which uops vary along which of them.

use gradiff_graph::{Arg, Axis, AxisKind, Instruction, Linear, Op};

/// A range that is written out.
pub(super) struct Dim {
    /// Where it is opened.
    pub(super) start: usize,
    /// Where it ends.
    pub(super) end: usize,
    /// How many steps it has.
    pub(super) steps: i64,
    /// [`AxisKind::Upcast`] or [`AxisKind::Unroll`].
    pub(super) kind: AxisKind,
}

/// The ranges that are written out, one bit each, and where they are open.
pub(super) struct Dims<'a> {
    pub(super) linear: &'a Linear,
    pub(super) ranges: Vec<Dim>,
    /// For each uop the range that it opens, if that is written out.
    opened: Vec<Option<u8>>,
    /// For each uop the ranges around it.
    around: Vec<u64>,
    /// For each uop those of them that a plain loop around it stands in.
    beyond: Vec<u64>,
}

impl<'a> Dims<'a> {
    pub(super) fn of(linear: &'a Linear) -> Dims<'a> {
        let (mut ranges, mut open) = (Vec::<Dim>::new(), Vec::new());
        let mut opened = vec![None; linear.uops.len()];
        let (mut around, mut beyond) = (Vec::new(), Vec::new());
        let (mut inside, mut outside) = (0u64, 0u64);
        for (position, uop) in linear.uops.iter().enumerate() {
            match (uop.op, written_out(linear, uop)) {
                (Op::Range, Some((steps, kind))) => {
                    open.push((inside, outside, Some(ranges.len())));
                    around.push(inside);
                    beyond.push(outside);
                    inside |= 1 << ranges.len();
                    opened[position] = Some(ranges.len() as u8);
                    ranges.push(Dim { start: position, end: position, steps, kind });
                    continue;
                }
                (Op::Range, None) => {
                    open.push((inside, outside, None));
                    outside = inside;
                }
                (Op::EndRange, _) => {
                    around.push(inside);
                    beyond.push(outside);
                    let (before, former, range) = open.pop().expect("loops are nested");
                    (inside, outside) = (before, former);
                    if let Some(range) = range {
                        ranges[range].end = position;
                    }
                    continue;
                }
                _ => {}
            }
            around.push(inside);
            beyond.push(outside);
        }
        Dims { linear, ranges, opened, around, beyond }
    }

    /// The bits of the ranges of a kind.
    pub(super) fn of_kind(&self, wanted: AxisKind) -> u64 {
        let bits = self.ranges.iter().enumerate().filter(|(_, range)| range.kind == wanted);
        bits.fold(0, |bits, (bit, _)| bits | 1 << bit)
    }

    /// For each uop the ranges that it varies along.
    pub(super) fn varies(&self) -> Vec<u64> {
        let (upcast, unroll) = (self.of_kind(AxisKind::Upcast), self.of_kind(AxisKind::Unroll));
        let mut varies = vec![0u64; self.linear.uops.len()];
        for (bit, range) in self.ranges.iter().enumerate() {
            varies[range.start] = 1 << bit;
        }
        loop {
            let before = varies.clone();
            for (position, uop) in self.linear.uops.iter().enumerate() {
                let around = self.around[position];
                // A variable lives in ranges, but varies along those alone that change it.
                let count = if uop.op == Op::DefineAcc { 1 } else { uop.src.len() };
                let sources = uop.src[..count].iter().map(|source| *source as usize);
                let mut own = varies[position] | self.beyond[position] & unroll;
                for source in sources {
                    own |= varies[source];
                    if self.linear.uops[source].op == Op::DefineAcc {
                        // A variable has another value in each step that changes it.
                        own |= around & unroll & !self.around[source];
                    }
                }
                if let Some((variable, _)) = self.accumulation(position) {
                    // A loop-invariant value is still accumulated once per iteration.
                    own |= around & upcast & !self.around[variable as usize];
                }
                match uop.op {
                    Op::DefineAcc | Op::Range => own |= around & unroll,
                    Op::EndRange => own = varies[uop.src[0] as usize],
                    Op::Barrier => own = 0,
                    Op::Assign => {
                        let variable = uop.src[0] as usize;
                        varies[variable] |= own & upcast & self.around[variable];
                    }
                    _ => {}
                }
                varies[position] = own & (around | own & self.own_bit(position));
            }
            if varies == before {
                return varies;
            }
        }
    }

    /// Which range opens here, if it is written out.
    pub(super) fn opened_at(&self, position: usize) -> Option<usize> {
        self.opened[position].map(usize::from)
    }

    /// The bit of a range that is written out; 0 for other uops.
    pub(super) fn own_bit(&self, position: usize) -> u64 {
        self.opened_at(position).map_or(0, |bit| 1 << bit)
    }

    /// The variable and the value of an accumulation: this uop is `op(variable, value)`, in either
    /// order, and the next one assigns it to the variable. Both are written at once for each
    /// iteration, since the next iteration reads what this one assigned.
    pub(super) fn accumulation(&self, position: usize) -> Option<(u32, u32)> {
        let uop = &self.linear.uops[position];
        let next = self.linear.uops.get(position + 1)?;
        if next.op != Op::Assign || next.src[1] != position as u32 {
            return None;
        }
        match uop.src[..] {
            [x, y] if x == next.src[0] => Some((x, y)),
            [x, y] if y == next.src[0] => Some((y, x)),
            _ => None,
        }
    }
}

/// The steps and the kind of a range that is written out.
fn written_out(linear: &Linear, uop: &Instruction) -> Option<(i64, AxisKind)> {
    let Arg::Axis(Axis { kind: kind @ (AxisKind::Upcast | AxisKind::Unroll), .. }) = uop.arg else {
        return None;
    };
    match linear.uops[*uop.src.first()? as usize].arg {
        Arg::Const(end) => Some((i64::try_from(end.to_int()?).ok()?, kind)),
        _ => None,
    }
}
