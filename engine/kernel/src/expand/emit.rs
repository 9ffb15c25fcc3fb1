//! Emits the expanded kernel.

use gradiff_graph::target::Vectors;
use gradiff_graph::{Arg, AxisKind, Constant, DType, Instruction, Linear, Op, evaluate};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::dims::Dims;
use super::known::{Known, Value};
use super::lanes::{FIRST, Lanes, ROW, SCALARS, SPLAT, VECTOR, VectorAxis};

/// Emits the kernel with its ranges expanded.
pub(super) fn emit(dims: &Dims<'_>, vectors: Vectors) -> Linear {
    let varies = dims.varies();
    let linear = dims.linear;
    let mut emitter = Emitter {
        linear,
        lanes: Lanes::of(dims, &varies, vectors),
        rows: None,
        varies,
        counters: vec![0; dims.ranges.len()],
        dims,
        emitted: FxHashMap::default(),
        uops: Vec::with_capacity(linear.uops.len() * 4),
        constants: Vec::new(),
        constant_numbers: FxHashMap::default(),
        splats: Vec::new(),
        known: Known::of(dims),
        has_alu: vectors.alu,
        deferred: Vec::new(),
    };
    emitter.walk(0, linear.uops.len(), 0);
    emitter.finish()
}

/// The counter that stands for all lanes at once.
const ALL: i64 = -1;

/// A uop at certain counters of the ranges that it varies along.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    position: u32,
    /// The number of lanes of a broadcast; else 0.
    splat_lanes: u32,
    /// The counters as digits of one number.
    counters: u64,
}

struct Emitter<'a> {
    linear: &'a Linear,
    dims: &'a Dims<'a>,
    lanes: Option<Lanes>,
    /// The rows, while vectors along them are emitted.
    rows: Option<VectorAxis>,
    /// For each uop of the old kernel the ranges (bits) that it varies along.
    varies: Vec<u64>,
    /// The current counter of each expanded range.
    counters: Vec<i64>,
    emitted: FxHashMap<Key, Value>,
    uops: Vec<(Instruction, SmallVec<[Value; 4]>)>,
    constants: Vec<Constant>,
    /// The number of each constant in `constants`.
    constant_numbers: FxHashMap<Constant, u32>,
    /// Broadcasts of constants: the number of the constant, and the number of lanes.
    splats: Vec<(u32, u8)>,
    known: Known,
    /// True if the target computes with vectors, and does not only load and store them.
    has_alu: bool,
    /// The loads that wait for their first use, each with the counters of all ranges.
    deferred: Vec<(usize, SmallVec<[i64; 8]>)>,
}

impl Emitter<'_> {
    /// Emits the uops from `start` to `end`, inside the open `upcast` ranges (bits).
    fn walk(&mut self, start: usize, end: usize, upcast: u64) {
        let mut position = start;
        while position < end {
            let Some(bit) = self.dims.opened_at(position) else {
                let count = if self.dims.accumulation(position).is_some() { 2 } else { 1 };
                self.emit_all(position..position + count, upcast & self.varies[position]);
                position += count;
                continue;
            };
            let (last, trip_count) = (self.dims.ranges[bit].end, self.dims.ranges[bit].count);
            if self.dims.ranges[bit].kind != AxisKind::Unroll {
                let around = self.lanes.as_ref().map(|lanes| lanes.axis.bit);
                if let Some(lanes) = self.lanes.as_mut().filter(|lanes| lanes.bits >> bit & 1 == 1)
                {
                    lanes.axis.bit = bit;
                }
                self.emit_lane_numbers(bit);
                self.walk(position + 1, last, upcast | 1 << bit);
                if let (Some(lanes), Some(around)) = (self.lanes.as_mut(), around) {
                    lanes.axis.bit = around;
                }
            } else {
                for counter in 0..trip_count {
                    self.counters[bit] = counter;
                    self.walk(position + 1, last, upcast);
                }
            }
            position = last + 1;
        }
    }

    /// Emits the vector of the lane numbers, if the range itself is required as a vector.
    fn emit_lane_numbers(&mut self, bit: usize) {
        let Some(lanes) = self.lanes.as_ref().filter(|lanes| lanes.axis.bit == bit) else { return };
        let (count, start) = (lanes.axis.count, self.dims.ranges[bit].start);
        if lanes.required[start] & VECTOR == 0 {
            return;
        }
        let dtype = self.linear.uops[start].dtype;
        let numbers = (0..count).map(|lane| self.constant(Constant::int(dtype, lane.into())));
        let numbers = numbers.collect();
        let vectorize = Instruction::new(Op::Vectorize, dtype, [], Arg::None);
        let value = self.push_lanes(vectorize, numbers);
        self.counters[bit] = ALL;
        let key = self.key(start);
        self.emitted.insert(key, value);
    }

    /// Emits uops for each iteration of these ranges (bits).
    fn emit_all(&mut self, positions: std::ops::Range<usize>, bits: u64) {
        let start = positions.start;
        if self.ends_block(start) {
            self.emit_deferred();
        }
        if self.is_deferred(start) {
            self.for_each_iteration(bits, &mut |emitter| {
                emitter.deferred.push((start, SmallVec::from_slice(&emitter.counters)));
            });
            return;
        }
        let lane_bit = bits & self.lanes.as_ref().map_or(0, |lanes| 1 << lanes.axis.bit);
        self.for_each_iteration(bits & !lane_bit, &mut |emitter| {
            if lane_bit == 0 {
                positions.clone().for_each(|position| emitter.emit(position));
            } else if positions.len() == 2 {
                emitter.emit_accumulation(start);
            } else {
                emitter.emit_forms(start);
            }
        });
        let Some(lanes) = self.lanes.as_ref().filter(|lanes| lanes.required[start] & ROW != 0)
        else {
            return;
        };
        self.rows = lanes.rows;
        let Some(rows) = self.rows else { return };
        self.counters[rows.bit] = ALL;
        self.for_each_iteration(bits & !(1 << rows.bit), &mut |emitter| emitter.emit(start));
        self.rows = None;
    }

    /// Returns whether a uop waits for its first use: a load of a scalar that is broadcast, so that
    /// the registers hold the accumulators of a tile.
    fn is_deferred(&self, position: usize) -> bool {
        let is_broadcast = |lanes: &Lanes| lanes.required[position] == SPLAT;
        self.linear.uops[position].op == Op::Load && self.lanes.as_ref().is_some_and(is_broadcast)
    }

    /// Returns whether deferred loads must be emitted before a uop, since it changes memory or
    /// begins or ends a loop.
    fn ends_block(&self, position: usize) -> bool {
        let op = self.linear.uops[position].op;
        matches!(op, Op::Range | Op::EndRange | Op::Store | Op::Barrier)
    }

    /// Emits the loads that still wait for a use.
    fn emit_deferred(&mut self) {
        for (position, counters) in std::mem::take(&mut self.deferred) {
            let before = std::mem::replace(&mut self.counters, counters.into_vec());
            self.emit(position);
            self.counters = before;
        }
    }

    /// Emits a deferred load at the current counters, if it still waits.
    fn emit_if_deferred(&mut self, position: usize) {
        if self.is_deferred(position) {
            let rows = self.rows.take();
            self.emit(position);
            self.rows = rows;
        }
    }

    /// Calls `emit` at each iteration of these ranges (bits).
    fn for_each_iteration(&mut self, bits: u64, emit: &mut dyn FnMut(&mut Self)) {
        if bits == 0 {
            return emit(self);
        }
        let bit = bits.trailing_zeros() as usize;
        for counter in 0..self.dims.ranges[bit].count {
            self.counters[bit] = counter;
            self.for_each_iteration(bits & (bits - 1), emit);
        }
    }

    /// Returns the axis of the vectors that are being emitted.
    fn axis(&self) -> Option<VectorAxis> {
        self.rows.or(self.lanes.as_ref().map(|lanes| lanes.axis))
    }

    /// Emits a uop along the lanes in each required form.
    fn emit_forms(&mut self, position: usize) {
        let Some(lanes) = &self.lanes else { return };
        let (VectorAxis { bit, count }, forms) = (lanes.axis, lanes.required[position]);
        let is_native = lanes.is_native[position];
        let is_accumulator = matches!(self.linear.uops[position].op, Op::DefineAcc | Op::Assign);
        if forms & VECTOR != 0 && is_native {
            self.counters[bit] = ALL;
            self.emit(position);
        }
        let scalars = if forms & SCALARS != 0 { count } else { i64::from(forms & FIRST != 0) };
        for lane in 0..scalars {
            self.counters[bit] = lane;
            if is_accumulator && is_native {
                // Its lanes are extracted where they are read.
                break;
            }
            if forms & VECTOR != 0 && is_native {
                let value = self.extract_lane(position, lane);
                let key = self.key(position);
                self.emitted.insert(key, value);
            } else {
                self.emit(position);
            }
        }
        if forms & VECTOR != 0 && !is_native && !is_accumulator {
            let value = self.gather(position);
            let key = self.key(position);
            self.emitted.insert(key, value);
        }
    }

    /// Emits an accumulation along the lanes. With an accumulator for each lane it is a vector op
    /// or an op for each lane; else the lanes are reduced in halves or pairs and accumulated once.
    fn emit_accumulation(&mut self, position: usize) {
        let Some(lanes) = &self.lanes else { return };
        let (VectorAxis { bit, count }, form) = (lanes.axis, lanes.required[position]);
        let uop = self.linear.uops[position].clone();
        let Some(accumulator) = self.dims.accumulation(position) else { return };
        let Some(value) = uop.src.iter().copied().find(|source| *source != accumulator) else {
            return;
        };
        let varies = |source: u32| self.varies[source as usize] >> bit & 1 == 1;
        let (is_shared, is_invariant) = (!varies(accumulator), !varies(value));
        if !is_shared && form & VECTOR != 0 {
            self.counters[bit] = ALL;
            self.emit(position);
            self.emit(position + 1);
            return;
        }
        let is_vector = is_shared && form & VECTOR != 0 && !is_invariant;
        let mut values: SmallVec<[Value; 16]> = SmallVec::new();
        if is_vector {
            values = self.reduce_halves(&uop, value as usize, count);
        } else {
            for lane in 0..count {
                self.counters[bit] = lane;
                if is_shared {
                    values.push(self.source(value as usize));
                } else {
                    self.emit(position);
                    self.emit(position + 1);
                }
            }
        }
        if !is_shared {
            return;
        }
        while let [_, _, ..] = values.as_slice() {
            let pairs = values.chunks(2).map(<[Value]>::to_vec).collect::<Vec<_>>();
            let reduce = |pair: Vec<Value>| match pair.as_slice() {
                [x, y] => self.push(Instruction { src: SmallVec::new(), ..uop.clone() }, &[*x, *y]),
                _ => pair[0],
            };
            values = pairs.into_iter().map(reduce).collect();
        }
        self.counters[bit] = 0;
        let is_first = uop.src[0] == accumulator;
        let accumulator = self.source(accumulator as usize);
        let src = if is_first { [accumulator, values[0]] } else { [values[0], accumulator] };
        let next = self.push(Instruction { src: SmallVec::new(), ..uop }, &src);
        let key = self.key(position);
        self.emitted.insert(key, next);
        self.emit(position + 1);
    }

    /// Reduces the lower and the upper half of a vector by an op, again and again, and returns the
    /// two lanes that are left; all lanes of bools, which are masks, and where vectors are only
    /// loaded and stored.
    fn reduce_halves(
        &mut self,
        op: &Instruction,
        position: usize,
        count: i64,
    ) -> SmallVec<[Value; 16]> {
        let (mut vector, mut lanes, dtype) = (self.emitted_vector(position), count, op.dtype);
        while 2 < lanes && dtype != DType::Bool && self.has_alu {
            lanes /= 2;
            let halves = [0, lanes].map(|first| {
                let parts: SmallVec<[Value; 16]> =
                    (first..first + lanes).map(|lane| self.lane(vector, dtype, lane)).collect();
                let half = Instruction::new(Op::Vectorize, dtype, [], Arg::None);
                self.push(Instruction { lanes: lanes as u8, ..half }, &parts)
            });
            let reduced = Instruction { src: SmallVec::new(), lanes: lanes as u8, ..op.clone() };
            vector = self.push(reduced, &halves);
        }
        (0..lanes).map(|lane| self.lane(vector, dtype, lane)).collect()
    }

    /// Extracts a lane of the vector of a uop.
    fn extract_lane(&mut self, position: usize, lane: i64) -> Value {
        let vector = self.emitted_vector(position);
        self.lane(vector, self.linear.uops[position].dtype, lane)
    }

    /// Returns the vector along the lanes of a uop, which has been emitted.
    fn emitted_vector(&mut self, position: usize) -> Value {
        let bit = self.lanes.as_ref().map_or(0, |lanes| lanes.axis.bit);
        let before = std::mem::replace(&mut self.counters[bit], ALL);
        let vector = self.emitted[&self.key(position)];
        self.counters[bit] = before;
        vector
    }

    /// Extracts a lane of a vector.
    fn lane(&mut self, vector: Value, dtype: DType, lane: i64) -> Value {
        self.push(Instruction::new(Op::Lane, dtype, [], Arg::Int(lane)), &[vector])
    }

    /// Gathers the vector of a uop from its scalars; leaves the counter of the axis at `ALL`.
    fn gather(&mut self, position: usize) -> Value {
        let VectorAxis { bit, count } = self.axis().unwrap_or(VectorAxis { bit: 0, count: 0 });
        let mut values: SmallVec<[Value; 4]> = SmallVec::new();
        for lane in 0..count {
            self.counters[bit] = lane;
            values.push(self.source(position));
        }
        self.counters[bit] = ALL;
        let dtype = self.linear.uops[position].dtype;
        self.push_lanes(Instruction::new(Op::Vectorize, dtype, [], Arg::None), values)
    }

    fn key(&self, position: usize) -> Key {
        let (mut bits, mut counters) = (self.varies[position], 0u64);
        while bits != 0 {
            let bit = bits.trailing_zeros() as usize;
            let base = self.dims.ranges[bit].count as u64 + 1;
            // `ALL` is the digit 0.
            counters = counters * base + (self.counters[bit] + 1) as u64;
            bits &= bits - 1;
        }
        Key { position: position as u32, splat_lanes: 0, counters }
    }

    /// Returns the key of the broadcast of a uop that does not vary along the axis.
    fn splat_key(&self, position: usize) -> Key {
        let splat_lanes = self.axis().map_or(1, |axis| axis.count as u32);
        Key { splat_lanes, ..self.key(position) }
    }

    /// Emits a uop at the current counters.
    fn emit(&mut self, position: usize) {
        let key = self.key(position);
        if self.emitted.contains_key(&key) {
            return;
        }
        let uop = &self.linear.uops[position];
        let is_vector = self.is_vector(position);
        let value = match &uop.arg {
            Arg::Const(value) => self.constant(*value),
            _ => {
                let mut src: SmallVec<[Value; 4]> = SmallVec::new();
                for (number, source) in uop.src.iter().enumerate() {
                    let is_range = uop.op == Op::DefineAcc && 0 < number;
                    if is_range && self.dims.opened_bit(*source as usize) != 0 {
                        continue;
                    }
                    let is_address = matches!(uop.op, Op::Load | Op::Store) && number == 0;
                    src.push(match is_vector && !is_range {
                        true if is_address => self.first(*source as usize),
                        true => self.vector(*source as usize),
                        false => self.source(*source as usize),
                    });
                }
                if uop.op == Op::Index && src.get(2).is_some_and(|gate| self.is(*gate, true)) {
                    src.truncate(2);
                }
                let folded = match (uop.op, src.as_slice()) {
                    (Op::Load, [address, ..]) if self.is_gated_off(*address) => {
                        let zero = self.constant(Constant::zero(uop.dtype));
                        Some(if is_vector { self.broadcast(uop.dtype, zero) } else { zero })
                    }
                    _ if is_vector => None,
                    _ => self.fold(uop, &src),
                };
                folded.unwrap_or_else(|| match (is_vector, uop.op) {
                    (true, op) if op != Op::Store => self.push_lanes(uop.clone(), src),
                    _ => self.push(uop.clone(), &src),
                })
            }
        };
        self.emitted.insert(key, value);
        self.emit_splat(position, value);
    }

    /// Emits the broadcast of a value, if it is required and the value does not change.
    fn emit_splat(&mut self, position: usize, value: Value) {
        let Some(lanes) = &self.lanes else { return };
        let uop = &self.linear.uops[position];
        let is_value = !matches!(uop.op, Op::DefineAcc | Op::Assign | Op::Const);
        if lanes.required[position] & SPLAT != 0 && is_value {
            let splat = self.broadcast(uop.dtype, value);
            let key = self.splat_key(position);
            self.emitted.insert(key, splat);
        }
    }

    fn broadcast(&mut self, dtype: gradiff_graph::DType, value: Value) -> Value {
        match value {
            Value::Constant(number) => {
                let splat = (number, self.axis().map_or(1, |axis| axis.count as u8));
                let known = self.splats.iter().position(|known| *known == splat);
                Value::Splat(known.unwrap_or_else(|| {
                    self.splats.push(splat);
                    self.splats.len() - 1
                }) as u32)
            }
            value => {
                let uop = Instruction::new(Op::Vectorize, dtype, [], Arg::None);
                self.push_lanes(uop, SmallVec::from_slice(&[value]))
            }
        }
    }

    /// Returns whether the uop is emitted as a vector at the current counters.
    fn is_vector(&self, position: usize) -> bool {
        self.axis().is_some_and(|axis| {
            self.varies[position] >> axis.bit & 1 == 1 && self.counters[axis.bit] == ALL
        })
    }

    /// Returns the value of a source at the current counters.
    fn source(&mut self, position: usize) -> Value {
        self.emit_if_deferred(position);
        match self.dims.opened_at(position) {
            Some(bit) => {
                let dtype = self.linear.uops[position].dtype;
                self.constant(Constant::int(dtype, i128::from(self.counters[bit])))
            }
            None => match (self.emitted.get(&self.key(position)).copied(), &self.lanes) {
                (Some(emitted), _) => emitted,
                (None, lanes) => {
                    let lane = lanes.as_ref().map_or(0, |lanes| self.counters[lanes.axis.bit]);
                    self.extract_lane(position, lane)
                }
            },
        }
    }

    /// Returns the value of a source in all lanes.
    fn vector(&mut self, position: usize) -> Value {
        let uop = &self.linear.uops[position];
        if self.is_vector(position) {
            let known = self.emitted.get(&self.key(position)).copied();
            // An accumulator with a scalar for each lane is gathered where it is read.
            return known.unwrap_or_else(|| self.gather(position));
        }
        self.emit_if_deferred(position);
        if let Some(known) = self.emitted.get(&self.splat_key(position)) {
            return *known;
        }
        let dtype = uop.dtype;
        let value = self.source(position);
        self.broadcast(dtype, value)
    }

    /// Returns the value of an address at lane 0.
    fn first(&mut self, position: usize) -> Value {
        let Some(VectorAxis { bit, .. }) = self.axis() else { return self.source(position) };
        let before = std::mem::replace(&mut self.counters[bit], 0);
        let value = self.source(position);
        self.counters[bit] = before;
        value
    }

    fn push(&mut self, uop: Instruction, src: &[Value]) -> Value {
        let value = Value::Uop(self.uops.len() as u32);
        if let Some(known) = self.known.get_or_insert(&uop, src, value, &self.constants) {
            return known;
        }
        self.uops.push((uop, SmallVec::from_slice(src)));
        value
    }

    fn push_lanes(&mut self, mut uop: Instruction, src: SmallVec<[Value; 4]>) -> Value {
        uop.lanes = self.axis().map_or(1, |axis| axis.count as u8);
        self.push(uop, &src)
    }

    /// Returns whether a value is this truth value.
    fn is(&self, value: Value, truth: bool) -> bool {
        let constant = |number: u32| self.constants[number as usize];
        matches!(value, Value::Constant(number) if constant(number) == Constant::bool(truth))
    }

    /// Returns whether the gate of an address is known to be false.
    fn is_gated_off(&self, address: Value) -> bool {
        let Value::Uop(number) = address else { return false };
        let gate = self.uops[number as usize].1.get(2);
        gate.is_some_and(|gate| self.is(*gate, false))
    }

    fn constant(&mut self, value: Constant) -> Value {
        let number = *self.constant_numbers.entry(value).or_insert_with(|| {
            self.constants.push(value);
            self.constants.len() as u32 - 1
        });
        Value::Constant(number)
    }

    /// Folds a uop that constant counters decide: an op of constants, `x+0`, `x*1`, or a choice
    /// with a known condition.
    fn fold(&mut self, uop: &Instruction, src: &[Value]) -> Option<Value> {
        if !uop.op.is_elementwise() {
            return None;
        }
        let constant = |value: &Value| match value {
            Value::Constant(number) => Some(self.constants[*number as usize]),
            Value::Splat(_) | Value::Uop(_) => None,
        };
        let values: SmallVec<[Option<Constant>; 3]> = src.iter().map(constant).collect();
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
            Op::Add if uop.dtype.is_int() => self.add_constants(uop, src[0], values[1]?),
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

    /// Folds `(x + constant) + more` to a sum with one constant.
    fn add_constants(&mut self, uop: &Instruction, sum: Value, more: Constant) -> Option<Value> {
        let Value::Uop(number) = sum else { return None };
        let (Op::Add, [x, Value::Constant(known)]) =
            (self.uops[number as usize].0.op, self.uops[number as usize].1.as_slice())
        else {
            return None;
        };
        let (x, known) = (*x, self.constants[*known as usize]);
        if let Value::Uop(number) = x
            && self.uops[number as usize].0.op == Op::DefineAcc
        {
            // It may have been assigned since.
            return None;
        }
        let constant = evaluate(Op::Add, uop.dtype, &[known, more])?;
        if constant == Constant::zero(uop.dtype) {
            return Some(x);
        }
        let constant = self.constant(constant);
        Some(self.push(uop.clone(), &[x, constant]))
    }

    /// Finds the constants, broadcasts and uops on which a live uop depends.
    fn needed(&self) -> Needed {
        let mut needed = Needed {
            constants: vec![false; self.constants.len()],
            splats: vec![false; self.splats.len()],
            uops: vec![false; self.uops.len()],
        };
        for (number, (uop, src)) in self.uops.iter().enumerate().rev() {
            let is_value =
                uop.op.is_elementwise() || matches!(uop.op, Op::Vectorize | Op::Lane | Op::Index);
            let may_be_dead = match uop.op {
                Op::Load => true,
                Op::Store => self.is_gated_off(src[0]),
                _ => is_value,
            };
            needed.uops[number] |= !may_be_dead;
            if needed.uops[number] {
                for value in src {
                    match *value {
                        Value::Constant(number) => needed.constants[number as usize] = true,
                        Value::Splat(number) => needed.splats[number as usize] = true,
                        Value::Uop(number) => needed.uops[number as usize] = true,
                    }
                }
            }
        }
        for ((constant, _), is_needed) in self.splats.iter().zip(&needed.splats) {
            needed.constants[*constant as usize] |= is_needed;
        }
        needed
    }

    /// Assembles the kernel from the needed constants, their broadcasts and the uops, in this
    /// order.
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
        let mut positions = vec![0; self.uops.len()];
        for (number, (mut uop, src)) in self.uops.into_iter().enumerate() {
            if !needed.uops[number] {
                continue;
            }
            let position = |value: &Value| match *value {
                Value::Constant(number) => constants[number as usize],
                Value::Splat(number) => splats[number as usize],
                Value::Uop(number) => positions[number as usize],
            };
            uop.src = src.iter().map(position).collect();
            positions[number] = uops.len() as u32;
            uops.push(uop);
        }
        Linear { name: self.linear.name.clone(), uops }
    }
}

/// For each constant, broadcast and uop, whether a live uop depends on it.
struct Needed {
    constants: Vec<bool>,
    splats: Vec<bool>,
    uops: Vec<bool>,
}
