//! The kernel written out.

use gradiff_graph::{Arg, AxisKind, Constant, Instruction, Linear, Op, evaluate};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::dims::Dims;
use super::known::Known;
use super::lanes::{Axis, FIRST, Lanes, ROW, SINGLES, SPLAT, VECTOR};
use crate::target::Vectors;

/// Writes the kernel out.
pub(super) fn write(dims: &Dims<'_>, vectors: Vectors) -> Linear {
    let varies = dims.varies();
    let linear = dims.linear;
    let mut writer = Writer {
        linear,
        lanes: Lanes::choose(dims, &varies, vectors),
        rows: None,
        varies,
        steps: vec![0; dims.ranges.len()],
        dims,
        made: FxHashMap::default(),
        uops: Vec::with_capacity(linear.uops.len() * 4),
        constants: Vec::new(),
        numbers: FxHashMap::default(),
        splats: Vec::new(),
        known: Known::of(dims),
    };
    writer.walk(0, linear.uops.len(), 0);
    writer.finish()
}

/// The step that stands for all lanes at once.
const ALL: i64 = -1;

/// A uop at some steps of the ranges that it varies along.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    position: u32,
    /// In how many lanes it stands, where it is the same in each; else 0.
    each: u32,
    /// The steps as digits of one number.
    steps: u64,
}

/// Where a value stands: constants come first, then those of them that are in every lane.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Place {
    Constant(u32),
    Splat(u32),
    Uop(u32),
}

struct Writer<'a> {
    linear: &'a Linear,
    dims: &'a Dims<'a>,
    lanes: Option<Lanes>,
    /// The rows, while vectors along them are written.
    rows: Option<Axis>,
    varies: Vec<u64>,
    /// The step of each range that is written out.
    steps: Vec<i64>,
    made: FxHashMap<Key, Place>,
    uops: Vec<(Instruction, SmallVec<[Place; 4]>)>,
    constants: Vec<Constant>,
    /// Where each of them stands.
    numbers: FxHashMap<Constant, u32>,
    /// Numbers of constants that are needed in every lane, and how many lanes there are.
    splats: Vec<(u32, u8)>,
    known: Known,
}

impl Writer<'_> {
    /// Writes the uops from `start` to `end`, inside of the open `upcast` ranges.
    fn walk(&mut self, start: usize, end: usize, upcast: u64) {
        let mut position = start;
        while position < end {
            let Some(bit) = self.dims.opened_at(position) else {
                let count = if self.dims.accumulation(position).is_some() { 2 } else { 1 };
                self.write_all(position..position + count, upcast & self.varies[position]);
                position += count;
                continue;
            };
            let (last, steps) = (self.dims.ranges[bit].end, self.dims.ranges[bit].steps);
            if self.dims.ranges[bit].kind == AxisKind::Upcast {
                if let Some(lanes) = self.lanes.as_mut().filter(|lanes| lanes.bits >> bit & 1 == 1)
                {
                    lanes.axis.bit = bit;
                }
                self.count_lanes(bit);
                self.walk(position + 1, last, upcast | 1 << bit);
            } else {
                for step in 0..steps {
                    self.steps[bit] = step;
                    self.walk(position + 1, last, upcast);
                }
            }
            position = last + 1;
        }
    }

    /// The numbers of the lanes, where the range itself is needed as a vector.
    fn count_lanes(&mut self, bit: usize) {
        let Some(lanes) = self.lanes.as_ref().filter(|lanes| lanes.axis.bit == bit) else { return };
        let (count, start) = (lanes.axis.count, self.dims.ranges[bit].start);
        if lanes.wants[start] & VECTOR == 0 {
            return;
        }
        let dtype = self.linear.uops[start].dtype;
        let numbers = (0..count).map(|lane| self.constant(Constant::int(dtype, lane.into())));
        let numbers = numbers.collect();
        let counted = Instruction::new(Op::Vectorize, dtype, [], Arg::None);
        let place = self.push_lanes(counted, numbers);
        self.steps[bit] = ALL;
        let key = self.key(start);
        self.made.insert(key, place);
    }

    /// Writes uops for each step of these ranges.
    fn write_all(&mut self, positions: std::ops::Range<usize>, bits: u64) {
        let start = positions.start;
        let lane_bit = bits & self.lanes.as_ref().map_or(0, |lanes| 1 << lanes.axis.bit);
        self.each_step(bits & !lane_bit, &mut |writer| {
            if lane_bit == 0 {
                positions.clone().for_each(|position| writer.write(position));
            } else if positions.len() == 2 {
                writer.fold(start);
            } else {
                writer.forms(start);
            }
        });
        let Some(lanes) = self.lanes.as_ref().filter(|lanes| lanes.wants[start] & ROW != 0) else {
            return;
        };
        self.rows = lanes.rows;
        let Some(rows) = self.rows else { return };
        self.steps[rows.bit] = ALL;
        self.each_step(bits & !(1 << rows.bit), &mut |writer| writer.write(start));
        self.rows = None;
    }

    /// Does something at each step of these ranges.
    fn each_step(&mut self, bits: u64, write: &mut dyn FnMut(&mut Self)) {
        if bits == 0 {
            return write(self);
        }
        let bit = bits.trailing_zeros() as usize;
        for step in 0..self.dims.ranges[bit].steps {
            self.steps[bit] = step;
            self.each_step(bits & (bits - 1), write);
        }
    }

    /// What the vectors that are being written go along.
    fn axis(&self) -> Option<Axis> {
        self.rows.or(self.lanes.as_ref().map(|lanes| lanes.axis))
    }

    /// Writes a uop along the lanes in each form in which it is needed.
    fn forms(&mut self, position: usize) {
        let Some(lanes) = &self.lanes else { return };
        let (Axis { bit, count }, forms) = (lanes.axis, lanes.wants[position]);
        let is_native = lanes.is_native[position];
        let is_variable = matches!(self.linear.uops[position].op, Op::DefineAcc | Op::Assign);
        if forms & VECTOR != 0 && is_native {
            self.steps[bit] = ALL;
            self.write(position);
        }
        let singles = if forms & SINGLES != 0 { count } else { i64::from(forms & FIRST != 0) };
        for lane in 0..singles {
            self.steps[bit] = lane;
            if is_variable && is_native {
                // Its lanes are taken where they are read.
                break;
            }
            if forms & VECTOR != 0 && is_native {
                let place = self.taken(position, lane);
                let key = self.key(position);
                self.made.insert(key, place);
            } else {
                self.write(position);
            }
        }
        if forms & VECTOR != 0 && !is_native && !is_variable {
            let place = self.joined(position);
            let key = self.key(position);
            self.made.insert(key, place);
        }
    }

    /// A step of a fold along the lanes: lane by lane into as many variables; or the lanes are
    /// folded in pairs, and what comes out into the one variable.
    fn fold(&mut self, position: usize) {
        let Some(lanes) = &self.lanes else { return };
        let (Axis { bit, count }, form) = (lanes.axis, lanes.wants[position]);
        let uop = self.linear.uops[position].clone();
        let Some((variable, value)) = self.dims.accumulation(position) else { return };
        let along = |source: u32| self.varies[source as usize] >> bit & 1 == 1;
        let (is_one, is_same) = (!along(variable), !along(value));
        if !is_one && form & VECTOR != 0 {
            self.steps[bit] = ALL;
            self.write(position);
            self.write(position + 1);
            return;
        }
        let mut values: SmallVec<[Place; 16]> = SmallVec::new();
        for lane in 0..count {
            self.steps[bit] = lane;
            if !is_one {
                self.write(position);
                self.write(position + 1);
            } else if form & VECTOR != 0 && !is_same {
                values.push(self.taken(value as usize, lane));
            } else {
                values.push(self.source(value as usize));
            }
        }
        if !is_one {
            return;
        }
        while let [_, _, ..] = values.as_slice() {
            let pairs = values.chunks(2).map(<[Place]>::to_vec).collect::<Vec<_>>();
            let fold = |pair: Vec<Place>| match pair.as_slice() {
                [x, y] => self.push(Instruction { src: SmallVec::new(), ..uop.clone() }, &[*x, *y]),
                _ => pair[0],
            };
            values = pairs.into_iter().map(fold).collect();
        }
        self.steps[bit] = 0;
        let is_first = uop.src[0] == variable;
        let variable = self.source(variable as usize);
        let src = if is_first { [variable, values[0]] } else { [values[0], variable] };
        let next = self.push(Instruction { src: SmallVec::new(), ..uop }, &src);
        let key = self.key(position);
        self.made.insert(key, next);
        self.write(position + 1);
    }

    /// A lane of the vector of a uop.
    fn taken(&mut self, position: usize, lane: i64) -> Place {
        let bit = self.lanes.as_ref().map_or(0, |lanes| lanes.axis.bit);
        let before = std::mem::replace(&mut self.steps[bit], ALL);
        let vector = self.made[&self.key(position)];
        self.steps[bit] = before;
        let dtype = self.linear.uops[position].dtype;
        self.push(Instruction::new(Op::Lane, dtype, [], Arg::Int(lane)), &[vector])
    }

    /// The vector of a uop, put together; leaves the step of the axis at `ALL`.
    fn joined(&mut self, position: usize) -> Place {
        let Axis { bit, count } = self.axis().unwrap_or(Axis { bit: 0, count: 0 });
        let mut values: SmallVec<[Place; 4]> = SmallVec::new();
        for step in 0..count {
            self.steps[bit] = step;
            values.push(self.source(position));
        }
        self.steps[bit] = ALL;
        let dtype = self.linear.uops[position].dtype;
        self.push_lanes(Instruction::new(Op::Vectorize, dtype, [], Arg::None), values)
    }

    fn key(&self, position: usize) -> Key {
        let (mut bits, mut steps) = (self.varies[position], 0u64);
        while bits != 0 {
            let bit = bits.trailing_zeros() as usize;
            // `ALL` is the digit 0.
            steps = steps * (self.dims.ranges[bit].steps as u64 + 1) + (self.steps[bit] + 1) as u64;
            bits &= bits - 1;
        }
        Key { position: position as u32, each: 0, steps }
    }

    /// The key of what does not vary along the axis, in each lane.
    fn key_of_each(&self, position: usize) -> Key {
        let each = self.axis().map_or(1, |axis| axis.count as u32);
        Key { each, ..self.key(position) }
    }

    /// Writes a uop at the present steps.
    fn write(&mut self, position: usize) {
        let key = self.key(position);
        if self.made.contains_key(&key) {
            return;
        }
        let uop = &self.linear.uops[position];
        let is_vector = self.is_vector(position);
        let place = match &uop.arg {
            Arg::Const(value) => self.constant(*value),
            _ => {
                let mut src: SmallVec<[Place; 4]> = SmallVec::new();
                for (number, source) in uop.src.iter().enumerate() {
                    let is_gone = uop.op == Op::DefineAcc && 0 < number;
                    if is_gone && self.dims.own_bit(*source as usize) != 0 {
                        continue;
                    }
                    let is_address = matches!(uop.op, Op::Load | Op::Store) && number == 0;
                    src.push(match is_vector && !is_gone {
                        true if is_address => self.first(*source as usize),
                        true => self.vector(*source as usize),
                        false => self.source(*source as usize),
                    });
                }
                if uop.op == Op::Index && src.get(2).is_some_and(|gate| self.is(*gate, true)) {
                    src.truncate(2);
                }
                let folded = match (uop.op, src.as_slice()) {
                    (Op::Load, [address, ..]) if self.is_shut(*address) => {
                        let zero = self.constant(Constant::zero(uop.dtype));
                        Some(if is_vector { self.in_each(uop.dtype, zero) } else { zero })
                    }
                    _ if is_vector => None,
                    _ => self.folded(uop, &src),
                };
                folded.unwrap_or_else(|| match (is_vector, uop.op) {
                    (true, op) if op != Op::Store => self.push_lanes(uop.clone(), src),
                    _ => self.push(uop.clone(), &src),
                })
            }
        };
        self.made.insert(key, place);
        self.splat(position, place);
    }

    /// What does not vary along the lanes and is needed in each of them.
    fn splat(&mut self, position: usize, place: Place) {
        let Some(lanes) = &self.lanes else { return };
        let uop = &self.linear.uops[position];
        let is_kept = !matches!(uop.op, Op::DefineAcc | Op::Assign | Op::Const);
        if lanes.wants[position] & SPLAT != 0 && is_kept {
            let place = self.in_each(uop.dtype, place);
            let key = self.key_of_each(position);
            self.made.insert(key, place);
        }
    }

    fn in_each(&mut self, dtype: gradiff_graph::DType, place: Place) -> Place {
        match place {
            Place::Constant(number) => {
                let splat = (number, self.axis().map_or(1, |axis| axis.count as u8));
                let known = self.splats.iter().position(|known| *known == splat);
                Place::Splat(known.unwrap_or_else(|| {
                    self.splats.push(splat);
                    self.splats.len() - 1
                }) as u32)
            }
            place => {
                let uop = Instruction::new(Op::Vectorize, dtype, [], Arg::None);
                self.push_lanes(uop, SmallVec::from_slice(&[place]))
            }
        }
    }

    /// Whether the uop is to be written as a vector at the present steps.
    fn is_vector(&self, position: usize) -> bool {
        self.axis().is_some_and(|axis| {
            self.varies[position] >> axis.bit & 1 == 1 && self.steps[axis.bit] == ALL
        })
    }

    /// What stands for a source at the present steps.
    fn source(&mut self, position: usize) -> Place {
        match self.dims.opened_at(position) {
            Some(bit) => {
                let dtype = self.linear.uops[position].dtype;
                self.constant(Constant::int(dtype, i128::from(self.steps[bit])))
            }
            None => match (self.made.get(&self.key(position)).copied(), &self.lanes) {
                (Some(made), _) => made,
                (None, lanes) => {
                    let lane = lanes.as_ref().map_or(0, |lanes| self.steps[lanes.axis.bit]);
                    self.taken(position, lane)
                }
            },
        }
    }

    /// What stands for a source in all lanes.
    fn vector(&mut self, position: usize) -> Place {
        let uop = &self.linear.uops[position];
        if self.is_vector(position) {
            let known = self.made.get(&self.key(position)).copied();
            // A variable that is not kept as a vector is put together where it is read.
            return known.unwrap_or_else(|| self.joined(position));
        }
        if let Some(known) = self.made.get(&self.key_of_each(position)) {
            return *known;
        }
        let dtype = uop.dtype;
        let place = self.source(position);
        self.in_each(dtype, place)
    }

    /// What stands for an address at lane 0.
    fn first(&mut self, position: usize) -> Place {
        let Some(Axis { bit, .. }) = self.axis() else { return self.source(position) };
        let before = std::mem::replace(&mut self.steps[bit], 0);
        let place = self.source(position);
        self.steps[bit] = before;
        place
    }

    fn push(&mut self, uop: Instruction, src: &[Place]) -> Place {
        let place = Place::Uop(self.uops.len() as u32);
        if let Some(known) = self.known.meet(&uop, src, place, &self.constants) {
            return known;
        }
        self.uops.push((uop, SmallVec::from_slice(src)));
        place
    }

    fn push_lanes(&mut self, mut uop: Instruction, src: SmallVec<[Place; 4]>) -> Place {
        uop.lanes = self.axis().map_or(1, |axis| axis.count as u8);
        self.push(uop, &src)
    }

    /// Whether a place is this truth value.
    fn is(&self, place: Place, value: bool) -> bool {
        let constant = |number: u32| self.constants[number as usize];
        matches!(place, Place::Constant(number) if constant(number) == Constant::bool(value))
    }

    /// Whether nothing is loaded from or stored to an address: its gate is shut.
    fn is_shut(&self, address: Place) -> bool {
        let Place::Uop(number) = address else { return false };
        let gate = self.uops[number as usize].1.get(2);
        gate.is_some_and(|gate| self.is(*gate, false))
    }

    fn constant(&mut self, value: Constant) -> Place {
        let number = *self.numbers.entry(value).or_insert_with(|| {
            self.constants.push(value);
            self.constants.len() as u32 - 1
        });
        Place::Constant(number)
    }

    /// The value of a uop that a step of a range has decided: an op of constants, `x+0`, `x*1`, a
    /// choice that is made.
    fn folded(&mut self, uop: &Instruction, src: &[Place]) -> Option<Place> {
        if !uop.op.is_elementwise() {
            return None;
        }
        let value = |place: &Place| match place {
            Place::Constant(number) => Some(self.constants[*number as usize]),
            Place::Splat(_) | Place::Uop(_) => None,
        };
        let values: SmallVec<[Option<Constant>; 3]> = src.iter().map(value).collect();
        if values.iter().all(Option::is_some) {
            let values: SmallVec<[Constant; 3]> = values.into_iter().flatten().collect();
            let folded = evaluate(uop.op, uop.dtype, &values)?;
            return Some(self.constant(folded));
        }
        let is = |number: usize, wanted: i128| {
            uop.dtype.is_int() && values[number].is_some_and(|value| value.to_int() == Some(wanted))
        };
        if let Some(truth) = self.known.decided(uop.op, src, &self.constants) {
            return Some(self.constant(Constant::bool(truth)));
        }
        match uop.op {
            Op::Add if is(0, 0) => Some(src[1]),
            Op::Add | Op::Sub if is(1, 0) => Some(src[0]),
            Op::Add if uop.dtype.is_int() => self.added_at_once(uop, src[0], values[1]?),
            Op::Mul if is(0, 1) => Some(src[1]),
            Op::Mul if is(1, 1) => Some(src[0]),
            Op::And if self.is(src[0], true) || self.is(src[1], false) => Some(src[1]),
            Op::And if self.is(src[1], true) || self.is(src[0], false) => Some(src[0]),
            Op::Or if self.is(src[0], false) || self.is(src[1], true) => Some(src[1]),
            Op::Or if self.is(src[1], false) || self.is(src[0], true) => Some(src[0]),
            Op::Where if self.is(src[0], true) => Some(src[1]),
            Op::Where if self.is(src[0], false) => Some(src[2]),
            _ => None,
        }
    }

    /// `(x + constant) + more` with one constant.
    fn added_at_once(&mut self, uop: &Instruction, sum: Place, more: Constant) -> Option<Place> {
        let Place::Uop(number) = sum else { return None };
        let (Op::Add, [x, Place::Constant(known)]) =
            (self.uops[number as usize].0.op, self.uops[number as usize].1.as_slice())
        else {
            return None;
        };
        let (x, known) = (*x, self.constants[*known as usize]);
        if let Place::Uop(number) = x
            && self.uops[number as usize].0.op == Op::DefineAcc
        {
            // It may have changed since.
            return None;
        }
        let constant = evaluate(Op::Add, uop.dtype, &[known, more])?;
        if constant == Constant::zero(uop.dtype) {
            return Some(x);
        }
        let constant = self.constant(constant);
        Some(self.push(uop.clone(), &[x, constant]))
    }

    /// What something comes of.
    fn needed(&self) -> Needed {
        let mut needed = Needed {
            constants: vec![false; self.constants.len()],
            splats: vec![false; self.splats.len()],
            uops: vec![false; self.uops.len()],
        };
        for (number, (uop, src)) in self.uops.iter().enumerate().rev() {
            let is_value =
                uop.op.is_elementwise() || matches!(uop.op, Op::Vectorize | Op::Lane | Op::Index);
            let is_idle = match uop.op {
                Op::Load => true,
                Op::Store => self.is_shut(src[0]),
                _ => is_value,
            };
            needed.uops[number] |= !is_idle;
            if needed.uops[number] {
                for place in src {
                    match *place {
                        Place::Constant(number) => needed.constants[number as usize] = true,
                        Place::Splat(number) => needed.splats[number as usize] = true,
                        Place::Uop(number) => needed.uops[number as usize] = true,
                    }
                }
            }
        }
        for ((constant, _), is_needed) in self.splats.iter().zip(&needed.splats) {
            needed.constants[*constant as usize] |= is_needed;
        }
        needed
    }

    /// The constants, then those in every lane, then the uops; of each those that are used.
    fn finish(self) -> Linear {
        let needed = self.needed();
        let mut uops: Vec<Instruction> = Vec::with_capacity(self.uops.len());
        let mut constants = vec![0; self.constants.len()];
        for (number, value) in self.constants.iter().enumerate() {
            if needed.constants[number] {
                constants[number] = uops.len() as u32;
                uops.push(Instruction::new(Op::Const, value.dtype(), [], Arg::Const(*value)));
            }
        }
        let mut splats = vec![0; self.splats.len()];
        for (number, (constant, lanes)) in self.splats.iter().enumerate() {
            if needed.splats[number] {
                let dtype = self.constants[*constant as usize].dtype();
                let src = [constants[*constant as usize]];
                splats[number] = uops.len() as u32;
                let splat = Instruction::new(Op::Vectorize, dtype, src, Arg::None);
                uops.push(Instruction { lanes: *lanes, ..splat });
            }
        }
        let mut places = vec![0; self.uops.len()];
        for (number, (mut uop, src)) in self.uops.into_iter().enumerate() {
            if !needed.uops[number] {
                continue;
            }
            let position = |place: &Place| match *place {
                Place::Constant(number) => constants[number as usize],
                Place::Splat(number) => splats[number as usize],
                Place::Uop(number) => places[number as usize],
            };
            uop.src = src.iter().map(position).collect();
            places[number] = uops.len() as u32;
            uops.push(uop);
        }
        Linear { name: self.linear.name.clone(), uops }
    }
}

/// Of which constants, constants in every lane and uops something comes.
struct Needed {
    constants: Vec<bool>,
    splats: Vec<bool>,
    uops: Vec<bool>,
}
