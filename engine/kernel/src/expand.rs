//! Steps that run at once or in a row, written out: a linear kernel without such ranges.
//!
//! Of an `upcast` range each uop that varies along it is written once for each step, uop after
//! uop, so that the loops inside are shared: steps are independent, any order will do. Of an
//! `unroll` range the steps stand one after the other, as a loop would run them, so that sums keep
//! their order. What does not vary is written once.

use gradiff_graph::fault::{Fault, is_active};
use gradiff_graph::{Arg, Axis, AxisKind, Constant, Instruction, Linear, Op, evaluate};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// The kernel with ranges of the kinds `Upcast` and `Unroll` written out.
pub(crate) fn expand(linear: &Linear) -> Linear {
    let dims = Dims::of(linear);
    if dims.ranges.is_empty() {
        return linear.clone();
    }
    let mut writer = Writer {
        linear,
        varies: dims.varies(),
        steps: vec![0; dims.ranges.len()],
        dims: &dims,
        made: FxHashMap::default(),
        uops: Vec::with_capacity(linear.uops.len() * 4),
        constants: Vec::new(),
    };
    writer.walk(0, linear.uops.len(), 0);
    writer.finish()
}

/// The ranges that are written out, one bit each, and where they are open.
struct Dims<'a> {
    linear: &'a Linear,
    /// Position, position of the end, steps, kind.
    ranges: Vec<(usize, usize, i64, AxisKind)>,
    /// For each uop the ranges around it.
    around: Vec<u64>,
    /// For each uop those of them that a plain loop around it stands in.
    beyond: Vec<u64>,
}

impl<'a> Dims<'a> {
    fn of(linear: &'a Linear) -> Dims<'a> {
        let (mut ranges, mut open) = (Vec::new(), Vec::new());
        let (mut around, mut beyond) = (Vec::new(), Vec::new());
        let (mut inside, mut outside) = (0u64, 0u64);
        for (position, uop) in linear.uops.iter().enumerate() {
            match (uop.op, written_out(linear, uop)) {
                (Op::Range, Some((steps, kind))) => {
                    open.push((inside, outside, Some(ranges.len())));
                    around.push(inside);
                    beyond.push(outside);
                    inside |= 1 << ranges.len();
                    ranges.push((position, position, steps, kind));
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
                        ranges[range].1 = position;
                    }
                    continue;
                }
                _ => {}
            }
            around.push(inside);
            beyond.push(outside);
        }
        Dims { linear, ranges, around, beyond }
    }

    fn of_kind(&self, wanted: AxisKind) -> u64 {
        let bits = self.ranges.iter().enumerate().filter(|(_, (.., kind))| *kind == wanted);
        bits.fold(0, |bits, (bit, _)| bits | 1 << bit)
    }

    /// For each uop the ranges that it varies along.
    fn varies(&self) -> Vec<u64> {
        let (upcast, unroll) = (self.of_kind(AxisKind::Upcast), self.of_kind(AxisKind::Unroll));
        let mut varies = vec![0u64; self.linear.uops.len()];
        for (bit, (position, ..)) in self.ranges.iter().enumerate() {
            varies[*position] = 1 << bit;
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
                match uop.op {
                    Op::DefineAcc | Op::Range => own |= around & unroll,
                    Op::EndRange => own = varies[uop.src[0] as usize],
                    Op::Assign => {
                        let variable = uop.src[0] as usize;
                        // fault: expand-accumulator-shared
                        let is_shared = is_active(Fault::ExpandAccumulatorShared);
                        let lanes = if is_shared { 0 } else { upcast };
                        varies[variable] |= own & lanes & self.around[variable];
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

    /// The bit of a range that is written out; 0 for other uops.
    fn own_bit(&self, position: usize) -> u64 {
        self.ranges.iter().position(|range| range.0 == position).map_or(0, |bit| 1 << bit)
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

/// A uop at some steps of the ranges that it varies along.
type Key = (u32, SmallVec<[i64; 4]>);

/// A position of the result, or of a constant: those come first.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Place {
    Constant(u32),
    Uop(u32),
}

struct Writer<'a> {
    linear: &'a Linear,
    dims: &'a Dims<'a>,
    varies: Vec<u64>,
    /// The step of each range that is written out.
    steps: Vec<i64>,
    made: FxHashMap<Key, Place>,
    uops: Vec<(Instruction, SmallVec<[Place; 4]>)>,
    constants: Vec<Constant>,
}

impl Writer<'_> {
    /// Writes the uops from `start` to `end`, inside of the open `upcast` ranges.
    fn walk(&mut self, start: usize, end: usize, upcast: u64) {
        let mut position = start;
        while position < end {
            let range = self.dims.ranges.iter().position(|range| range.0 == position);
            let Some(bit) = range else {
                self.each_step(position, upcast & self.varies[position]);
                position += 1;
                continue;
            };
            let (_, last, steps, kind) = self.dims.ranges[bit];
            if kind == AxisKind::Upcast {
                self.walk(position + 1, last, upcast | 1 << bit);
            } else {
                // fault: expand-remainder-lost
                let is_short = is_active(Fault::ExpandRemainderLost) && 2 < steps;
                for step in 0..steps - i64::from(is_short) {
                    self.steps[bit] = step;
                    self.walk(position + 1, last, upcast);
                }
            }
            position = last + 1;
        }
    }

    /// Writes a uop for each step of these ranges.
    fn each_step(&mut self, position: usize, bits: u64) {
        let Some(bit) = (0..self.steps.len()).find(|bit| bits >> bit & 1 == 1) else {
            return self.write(position);
        };
        for step in 0..self.dims.ranges[bit].2 {
            self.steps[bit] = step;
            self.each_step(position, bits & !(1 << bit));
        }
    }

    fn key(&self, position: usize) -> Key {
        let bits = self.varies[position];
        let steps = (0..self.steps.len()).filter(|bit| bits >> bit & 1 == 1);
        (position as u32, steps.map(|bit| self.steps[bit]).collect())
    }

    fn write(&mut self, position: usize) {
        let key = self.key(position);
        if self.made.contains_key(&key) {
            return;
        }
        let uop = &self.linear.uops[position];
        let place = match &uop.arg {
            Arg::Const(value) => self.constant(*value),
            _ => {
                let mut src: SmallVec<[Place; 4]> = SmallVec::new();
                for (number, source) in uop.src.iter().enumerate() {
                    let is_gone = uop.op == Op::DefineAcc && 0 < number;
                    if !(is_gone && self.dims.own_bit(*source as usize) != 0) {
                        src.push(self.source(*source as usize));
                    }
                }
                if uop.op == Op::Index && src.get(2).is_some_and(|gate| self.is_true(*gate)) {
                    src.truncate(2);
                }
                self.folded(uop, &src).unwrap_or_else(|| {
                    self.uops.push((uop.clone(), src));
                    Place::Uop(self.uops.len() as u32 - 1)
                })
            }
        };
        self.made.insert(key, place);
    }

    /// What stands for a source at the present steps.
    fn source(&mut self, position: usize) -> Place {
        match self.dims.ranges.iter().position(|range| range.0 == position) {
            Some(bit) => {
                let dtype = self.linear.uops[position].dtype;
                self.constant(Constant::int(dtype, i128::from(self.steps[bit])))
            }
            None => self.made[&self.key(position)],
        }
    }

    fn is_true(&self, place: Place) -> bool {
        let constant = |number: u32| self.constants[number as usize];
        matches!(place, Place::Constant(number) if constant(number) == Constant::bool(true))
    }

    fn constant(&mut self, value: Constant) -> Place {
        let known = self.constants.iter().position(|known| *known == value);
        let number = known.unwrap_or_else(|| {
            self.constants.push(value);
            self.constants.len() - 1
        });
        Place::Constant(number as u32)
    }

    /// The value of a uop that a step of a range has decided: an op of constants, `x+0`, `x*1`.
    fn folded(&mut self, uop: &Instruction, src: &[Place]) -> Option<Place> {
        if !uop.op.is_elementwise() {
            return None;
        }
        let value = |place: &Place| match place {
            Place::Constant(number) => Some(self.constants[*number as usize]),
            Place::Uop(_) => None,
        };
        let values: SmallVec<[Option<Constant>; 3]> = src.iter().map(value).collect();
        if let Some(values) = values.iter().copied().collect::<Option<Vec<Constant>>>() {
            let folded = evaluate(uop.op, uop.dtype, &values)?;
            return Some(self.constant(folded));
        }
        let is = |number: usize, wanted: i128| {
            uop.dtype.is_int() && values[number].is_some_and(|value| value.to_int() == Some(wanted))
        };
        match uop.op {
            Op::Add if is(0, 0) => Some(src[1]),
            Op::Add | Op::Sub if is(1, 0) => Some(src[0]),
            Op::Mul if is(0, 1) => Some(src[1]),
            Op::Mul if is(1, 1) => Some(src[0]),
            Op::And if values[0] == Some(Constant::bool(true)) => Some(src[1]),
            Op::And if values[1] == Some(Constant::bool(true)) => Some(src[0]),
            _ => None,
        }
    }

    /// The constants, then the uops.
    fn finish(self) -> Linear {
        let count = self.constants.len() as u32;
        let constant =
            |value: &Constant| Instruction::new(Op::Const, value.dtype(), [], Arg::Const(*value));
        let mut uops: Vec<Instruction> = self.constants.iter().map(constant).collect();
        for (mut uop, src) in self.uops {
            let position = |place: &Place| match place {
                Place::Constant(number) => *number,
                Place::Uop(number) => count + number,
            };
            uop.src = src.iter().map(position).collect();
            uops.push(uop);
        }
        Linear { name: self.linear.name.clone(), uops }
    }
}
