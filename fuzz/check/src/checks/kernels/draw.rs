//! Draws kernels as lists of uops: well formed, within their arrays, with one meaning.
//!
//! Lowering makes few of the kernels that a list can express: here vectors have any number of lanes
//! and any type, masks of one width select between masks of another, loops nest seven deep, a range
//! of threads is adjacent to a plain loop. Floats are added, multiplied and compared, never
//! contracted, so that every device gives the same bits.

use gradiff::graph::{
    Arg, Axis, AxisKind, Constant, DType, Global, Instruction, Linear, Local, Op, Target,
};

use crate::checks::calls::Draw;
use crate::models::linear::{Rules, target};

/// Limit of the trip count of a range: where ranges are few, and where they are many.
const TRIP_COUNT_LIMITS: [usize; 2] = [3, 2];
/// Number of ranges up to which they are few.
const RANGES_FEW: usize = 4;
/// Limit of the elementwise ops of a kernel.
const OP_LIMIT: usize = 12;
/// Number of dimensions of a launch on devices with groups.
pub(crate) const DIMENSIONS: usize = 3;
/// Slot of the array that is written.
const OUTPUT_SLOT: usize = 0;

/// The features that kernels of a device may use.
pub(crate) struct Style {
    target: Target,
    /// True if there are groups of threads, local arrays and barriers.
    has_groups: bool,
    /// True if a thread has local arrays of its own.
    has_own_arrays: bool,
    /// Limit of the bytes of local arrays, and the least number of bytes of an element there.
    pub(super) local_bytes: i64,
    pub(super) local_element_bytes: i64,
    /// True if there are ranges of threads of the host.
    has_threads: bool,
    /// True if vectors of bools are loaded and stored.
    has_bool_vectors: bool,
    /// True for the dialects of WGSL.
    pub(super) is_wgsl: bool,
    /// A type whose NaN may have any payload.
    pub(super) free_nan: Option<DType>,
    /// True if loads and stores have hints: a distance for prefetches, and stores past the caches.
    has_hints: bool,
    pub(super) lanes: Vec<u8>,
    pub(super) dtypes: Vec<DType>,
}

impl Style {
    /// Style of a device of the runtime, or of a language.
    ///
    /// # Panics
    /// If there is no such device and no such language.
    pub(crate) fn of(device: &str) -> Style {
        let (name, rules) = match device {
            "c" => ("cpu", Some("cpu")),
            "interp" => ("groups", None),
            "jit" => ("jit", None),
            language => (language, Some(language)),
        };
        let rules = rules.map(|name| Rules::of(name).expect("a target with rules"));
        let is_unsupported = |dtype: &DType| match device {
            "metal" => *dtype == DType::F64,
            "wgsl-core" => matches!(dtype, DType::I64 | DType::U64 | DType::F64),
            _ => false,
        };
        let dtypes = DType::ALL.into_iter().filter(|dtype| *dtype != DType::Void);
        let has_groups = rules.map_or(device == "interp", Rules::has_groups);
        Style {
            target: target(name).expect("a target with rules, or a device"),
            has_groups,
            has_own_arrays: !has_groups,
            local_bytes: rules.map_or(i64::MAX, |rules| rules.local_bytes),
            local_element_bytes: rules.map_or(1, |rules| rules.local_element_bytes),
            has_threads: matches!(device, "c" | "interp" | "jit"),
            has_bool_vectors: device == "c",
            has_hints: device == "c",
            is_wgsl: device.starts_with("wgsl"),
            free_nan: (device == "wgsl").then_some(DType::F16),
            lanes: rules.map_or(vec![2, 4, 8, 16], |rules| rules.lanes().to_vec()),
            dtypes: dtypes.filter(|dtype| !is_unsupported(dtype)).collect(),
        }
    }

    /// Style of the kernels that passes over linear uops take for the target of this name: without
    /// vectors, which these passes make, and without arrays of a thread's own, which unrolled
    /// iterations would share.
    pub(super) fn of_passes(name: &str) -> Style {
        let target = Target::of(name);
        Style {
            has_groups: target.groups.is_some(),
            has_own_arrays: false,
            lanes: vec![1],
            target,
            ..Style::of("interp")
        }
    }

    /// Returns whether such a vector is loaded and stored as a whole.
    fn has_vector(&self, dtype: DType, lanes: u8) -> bool {
        match dtype {
            // The language has vectors of these types, which the target does not use.
            _ if self.is_wgsl => matches!(dtype, DType::I32 | DType::U32 | DType::F32),
            DType::Bool => self.has_bool_vectors,
            _ => i64::from(lanes) <= self.target.vectors.lanes_of(dtype),
        }
    }

    /// Returns whether the address of a vector must be a multiple of more than its elements' size.
    pub(super) fn aligns_vectors(&self) -> bool {
        self.target.vectors.aligned || self.is_wgsl
    }

    /// Returns whether ops take such a vector.
    pub(super) fn computes(&self, dtype: DType, lanes: u8) -> bool {
        let is_possible = dtype == DType::Bool || self.has_vector(dtype, lanes);
        (self.target.vectors.alu || self.is_wgsl) && is_possible
    }
}

/// A value of as many lanes as the kernel's vectors have.
#[derive(Clone)]
pub(super) struct Value {
    pub(super) dtype: DType,
    pub(super) form: Form,
    /// True if the bits are those of memory or of an integer; a computed NaN may have any payload.
    pub(super) has_bits: bool,
}

#[derive(Clone)]
pub(super) enum Form {
    Vector(u32),
    Lanes(Vec<u32>),
}

/// A kernel that is being drawn.
pub(super) struct Builder<'a> {
    pub(super) draw: &'a mut Draw,
    pub(super) style: &'a Style,
    pub(super) uops: Vec<Instruction>,
    /// Lanes of each value.
    pub(super) lanes: u8,
    /// Elements of each array before its first vector.
    pub(super) offset: i64,
    pub(super) values: Vec<Value>,
}

/// Draws a kernel that devices of this style run; equal draws give equal kernels.
pub(crate) fn draw_kernel(draw: &mut Draw, style: &Style) -> Linear {
    let lanes = match draw.below(3) {
        0 => 1,
        _ => draw.pick(&style.lanes),
    };
    let fits = |dtype: &DType| lanes == 1 || style.has_vector(*dtype, lanes);
    let stored: Vec<DType> = style.dtypes.iter().copied().filter(fits).collect();
    let stored_type = if stored.is_empty() { DType::I32 } else { draw.pick(&stored) };
    let name = draw.pick(&["k", "_", "E_3_4", "r_2n1", "K9_", "a_long_name_of_a_kernel_0"]);
    let is_offset = lanes != 1 && !style.aligns_vectors() && draw.one_in(2);
    let offset = if is_offset { 1 + draw.below(lanes.into()) as i64 } else { 0 };
    let mut builder = Builder { draw, style, uops: Vec::new(), lanes, offset, values: Vec::new() };
    builder.kernel(stored_type);
    Linear { name: name.to_owned(), uops: builder.uops }
}

impl Builder<'_> {
    pub(super) fn push(&mut self, op: Op, dtype: DType, lanes: u8, src: &[u32], arg: Arg) -> u32 {
        let uop = Instruction { lanes, ..Instruction::new(op, dtype, src.iter().copied(), arg) };
        self.uops.push(uop);
        self.uops.len() as u32 - 1
    }

    fn constant(&mut self, value: Constant) -> u32 {
        self.push(Op::Const, value.dtype(), 1, &[], Arg::Const(value))
    }

    pub(super) fn int(&mut self, value: i64) -> u32 {
        self.constant(Constant::int(DType::I32, value.into()))
    }

    fn scalar(&mut self, op: Op, src: &[u32]) -> u32 {
        let dtype = if matches!(op, Op::CmpLt | Op::CmpNe) { DType::Bool } else { DType::I32 };
        self.push(op, dtype, 1, src, Arg::None)
    }

    fn kernel(&mut self, stored_type: DType) {
        let lanes = i64::from(self.lanes);
        let kinds = self.kinds();
        let limit = TRIP_COUNT_LIMITS[usize::from(RANGES_FEW < kinds.len())];
        let trip_counts: Vec<i64> =
            kinds.iter().map(|_| 1 + self.draw.below(limit) as i64).collect();
        let has_sum = kinds.last() == Some(&AxisKind::Loop) && self.draw.one_in(3);
        let outer = kinds.len() - usize::from(has_sum);
        let count: i64 = trip_counts[..outer].iter().product();
        // A range of threads that does not contain all stores is a plain loop.
        let parts = match kinds.first() {
            Some(AxisKind::Thread) | None if self.style.has_threads && self.draw.one_in(3) => 2,
            _ => 1,
        };
        let global = |slot, size_elements| Arg::Global(Global { slot, size_elements });
        let size = self.offset + parts * count * lanes;
        let out = self.push(Op::DefineGlobal, stored_type, 1, &[], global(OUTPUT_SLOT, size));
        let mut inputs = Vec::new();
        for slot in 1..=1 + self.draw.below(3) {
            let dtype = if self.draw.one_in(3) { stored_type } else { self.dtype() };
            let is_shorter = self.draw.one_in(3);
            let covered =
                if is_shorter { 1 + self.draw.below(count as usize) as i64 } else { count };
            let arg = global(slot, self.offset + covered * lanes);
            inputs.push((self.push(Op::DefineGlobal, dtype, 1, &[], arg), dtype, covered));
        }
        for part in 0..parts {
            let kinds: Vec<AxisKind> = match (part, parts) {
                (0, 2) => vec![AxisKind::Loop; kinds.len()],
                _ => kinds.clone(),
            };
            let first = part * kinds.len() as i64;
            self.values.clear();
            self.nest(
                &kinds,
                &trip_counts,
                first,
                outer,
                (out, stored_type),
                &inputs,
                part * count,
            );
        }
    }

    fn dtype(&mut self) -> DType {
        self.draw.pick(&self.style.dtypes)
    }

    /// Kinds of the ranges, outermost first.
    fn kinds(&mut self) -> Vec<AxisKind> {
        let mut kinds = Vec::new();
        if self.style.has_groups && !self.draw.one_in(4) {
            let limit = if self.draw.one_in(8) { DIMENSIONS + 2 } else { DIMENSIONS + 1 };
            let (groups, threads) = (self.draw.below(limit), self.draw.below(limit));
            kinds.extend(std::iter::repeat_n(AxisKind::Global, groups));
            kinds.extend(std::iter::repeat_n(AxisKind::Local, threads));
        } else if self.style.has_threads && self.draw.one_in(2) {
            kinds.push(AxisKind::Thread);
        }
        let loops = self.draw.below(if kinds.len() < 2 { 7 } else { 3 });
        kinds.extend(std::iter::repeat_n(AxisKind::Loop, loops));
        kinds
    }

    /// A nest of ranges around a store. The ranges from `outer` on are summed over.
    #[allow(
        clippy::too_many_arguments,
        reason = "the parts of a nest, which have no type in common"
    )]
    fn nest(
        &mut self,
        kinds: &[AxisKind],
        trip_counts: &[i64],
        first: i64,
        outer: usize,
        (out, stored_type): (u32, DType),
        inputs: &[(u32, DType, i64)],
        part: i64,
    ) {
        let ends: Vec<u32> = trip_counts.iter().map(|count| self.int(*count)).collect();
        let mut ranges = Vec::new();
        let launched_count = kinds.iter().filter(|kind| kind.is_launched()).count();
        let range = |builder: &mut Self, at: usize| {
            let arg = Arg::Axis(Axis { kind: kinds[at], number: first + at as i64 });
            builder.push(Op::Range, DType::I32, 1, &[ends[at]], arg)
        };
        for at in 0..launched_count {
            ranges.push(range(self, at));
        }
        if kinds.contains(&AxisKind::Local) && self.draw.one_in(2) {
            self.exchange(kinds, trip_counts, &ranges, inputs[0]);
        }
        for at in launched_count..outer {
            ranges.push(range(self, at));
        }
        let position = self.position(&ranges, trip_counts);
        let sum = (outer < kinds.len()).then(|| self.accumulator(stored_type));
        if sum.is_some() {
            let last = range(self, outer);
            ranges.push(last);
        }
        for input in inputs {
            self.load(*input, position);
        }
        if self.style.has_own_arrays && self.draw.one_in(3) {
            self.keep();
        }
        for _ in 0..1 + self.draw.below(OP_LIMIT) {
            self.op();
        }
        let mut value = self.value_of(stored_type);
        if let Some(sum) = sum {
            value = self.add_to(&sum, &value);
            let last = ranges.pop().expect("the range of the sum");
            self.push(Op::EndRange, DType::Void, 1, &[last], Arg::None);
        }
        self.store(out, &value, position, part);
        for range in ranges.into_iter().rev() {
            self.push(Op::EndRange, DType::Void, 1, &[range], Arg::None);
        }
    }

    /// Row-major number of the iteration of these ranges.
    fn position(&mut self, ranges: &[u32], trip_counts: &[i64]) -> u32 {
        let mut position = None;
        for (at, range) in ranges.iter().enumerate() {
            position = Some(match position {
                None => *range,
                Some(position) => {
                    let trip_count = self.int(trip_counts[at]);
                    let scaled = self.scalar(Op::Mul, &[position, trip_count]);
                    self.scalar(Op::Add, &[scaled, *range])
                }
            });
        }
        position.unwrap_or_else(|| self.int(0))
    }

    /// Draws a value that each thread of a group stores and another one loads.
    fn exchange(
        &mut self,
        kinds: &[AxisKind],
        trip_counts: &[i64],
        ranges: &[u32],
        (input, dtype, covered): (u32, DType, i64),
    ) {
        let groups = kinds.iter().filter(|kind| **kind == AxisKind::Global).count();
        let sizes = &trip_counts[groups..ranges.len()];
        let threads: i64 = sizes.iter().product();
        let position = self.position(&ranges[groups..], sizes);
        let arg = Arg::Local(Local { number: 0, size_elements: threads });
        let array = self.push(Op::DefineLocal, dtype, 1, &[], arg);
        let end = self.int(covered);
        let gate = self.scalar(Op::CmpLt, &[position, end]);
        let from = self.push(Op::Index, dtype, 1, &[input, position, gate], Arg::None);
        let value = self.push(Op::Load, dtype, 1, &[from], Arg::None);
        let to = self.push(Op::Index, dtype, 1, &[array, position], Arg::None);
        let store = self.push(Op::Store, DType::Void, 1, &[to, value], Arg::None);
        let barrier = self.push(Op::Barrier, DType::Void, 1, &[store], Arg::None);
        let last = self.int(threads - 1);
        let reversed = self.scalar(Op::Sub, &[last, position]);
        let from = self.push(Op::Index, dtype, 1, &[array, reversed], Arg::None);
        let value = self.push(Op::Load, dtype, 1, &[from, barrier], Arg::None);
        let form = Form::Lanes(vec![value; self.lanes.into()]);
        let has_bits = self.style.free_nan != Some(dtype);
        self.values.push(Value { dtype, form, has_bits });
    }

    /// Stores a value into a local array of the thread's own, and loads it again.
    fn keep(&mut self) {
        let kept = self.any();
        let number = self.uops.iter().filter(|uop| uop.op == Op::DefineLocal).count();
        let arg = Arg::Local(Local { number, size_elements: self.lanes.into() });
        let array = self.push(Op::DefineLocal, kept.dtype, 1, &[], arg);
        let mut form = Vec::new();
        for (lane, value) in (0..).zip(self.lanes(&kept)) {
            let at = self.int(lane);
            let index = self.push(Op::Index, kept.dtype, 1, &[array, at], Arg::None);
            let store = self.push(Op::Store, DType::Void, 1, &[index, value], Arg::None);
            form.push(self.push(Op::Load, kept.dtype, 1, &[index, store], Arg::None));
        }
        self.values.push(Value { form: Form::Lanes(form), ..kept });
    }

    /// Loads the elements of an input at an iteration, zeros where the input is shorter. The input
    /// has elements for the first `covered` iterations.
    pub(super) fn load(&mut self, (array, dtype, covered): (u32, DType, i64), position: u32) {
        let lanes = i64::from(self.lanes);
        let limit = self.int(covered);
        let gate = self.scalar(Op::CmpLt, &[position, limit]);
        let first = self.first(position, 0);
        let hint = match self.style.has_hints && self.draw.one_in(3) {
            true => Arg::Int(lanes),
            false => Arg::None,
        };
        let form = if 1 < self.lanes && self.style.has_vector(dtype, self.lanes) {
            let index = self.push(Op::Index, dtype, 1, &[array, first, gate], Arg::None);
            Form::Vector(self.push(Op::Load, dtype, self.lanes, &[index], hint))
        } else {
            let load = |builder: &mut Self, lane| {
                let offset = builder.int(lane);
                let at = builder.scalar(Op::Add, &[first, offset]);
                // The gate in terms of the index itself.
                let end = builder.int(builder.offset + covered * lanes);
                let gate = builder.scalar(Op::CmpLt, &[at, end]);
                let index = builder.push(Op::Index, dtype, 1, &[array, at, gate], Arg::None);
                builder.push(Op::Load, dtype, 1, &[index], Arg::None)
            };
            Form::Lanes((0..lanes).map(|lane| load(self, lane)).collect())
        };
        let has_bits = self.style.free_nan != Some(dtype);
        self.values.push(Value { dtype, form, has_bits });
    }

    /// The index of the first lane of an iteration, after `before` others.
    fn first(&mut self, position: u32, before: i64) -> u32 {
        let lanes = i64::from(self.lanes);
        let (scale, offset) = (self.int(lanes), self.offset + before * lanes);
        let first = self.scalar(Op::Mul, &[position, scale]);
        let offset = self.int(offset);
        self.scalar(Op::Add, &[first, offset])
    }

    pub(super) fn store(&mut self, out: u32, value: &Value, position: u32, part: i64) {
        let first = self.first(position, part);
        let is_vector = self.style.has_vector(value.dtype, self.lanes) && self.lanes != 1;
        if is_vector && !self.draw.one_in(8) {
            let vector = self.vector(value);
            let index = self.push(Op::Index, value.dtype, 1, &[out, first], Arg::None);
            let hint = match self.style.has_hints && self.draw.one_in(2) {
                true => Arg::Int(0),
                false => Arg::None,
            };
            self.push(Op::Store, DType::Void, 1, &[index, vector], hint);
            return;
        }
        for (lane, single) in (0..).zip(self.lanes(value)) {
            let offset = self.int(lane);
            let at = self.scalar(Op::Add, &[first, offset]);
            let index = self.push(Op::Index, value.dtype, 1, &[out, at], Arg::None);
            self.push(Op::Store, DType::Void, 1, &[index, single], Arg::None);
        }
    }

    /// The value as a vector.
    pub(super) fn vector(&mut self, value: &Value) -> u32 {
        match &value.form {
            Form::Vector(vector) => *vector,
            Form::Lanes(lanes) => {
                let is_uniform = lanes.iter().all(|lane| *lane == lanes[0]);
                let src = if is_uniform { &lanes[..1] } else { &lanes[..] };
                self.push(Op::Vectorize, value.dtype, self.lanes, src, Arg::None)
            }
        }
    }

    /// The lanes of the value, one by one.
    pub(super) fn lanes(&mut self, value: &Value) -> Vec<u32> {
        match &value.form {
            Form::Lanes(lanes) => lanes.clone(),
            Form::Vector(vector) => (0..self.lanes)
                .map(|lane| self.push(Op::Lane, value.dtype, 1, &[*vector], Arg::Int(lane.into())))
                .collect(),
        }
    }

    /// Applies an op to values, as whole vectors or lane by lane.
    fn apply(&mut self, op: Op, dtype: DType, src: &[&Value]) -> Value {
        let is_possible = |dtype| self.style.computes(dtype, self.lanes);
        let fits = is_possible(dtype) && src.iter().all(|value| is_possible(value.dtype));
        let form = if 1 < self.lanes && fits && !self.draw.one_in(6) {
            let src: Vec<u32> = src.iter().map(|value| self.vector(value)).collect();
            Form::Vector(self.push(op, dtype, self.lanes, &src, Arg::None))
        } else {
            let src: Vec<Vec<u32>> = src.iter().map(|value| self.lanes(value)).collect();
            let lane = |lane: usize| -> Vec<u32> { src.iter().map(|lanes| lanes[lane]).collect() };
            let each = (0..self.lanes.into()).map(lane).collect::<Vec<_>>();
            let push = |src: &Vec<u32>| self.push(op, dtype, 1, src, Arg::None);
            Form::Lanes(each.iter().map(push).collect())
        };
        Value { dtype, form, has_bits: !dtype.is_float() }
    }

    /// A constant in every lane.
    pub(super) fn number(&mut self, value: Constant) -> Value {
        let single = self.constant(value);
        let form = Form::Lanes(vec![single; self.lanes.into()]);
        Value { dtype: value.dtype(), form, has_bits: false }
    }

    /// A drawn value of the kernel.
    fn any(&mut self) -> Value {
        let at = self.draw.below(self.values.len());
        self.values[at].clone()
    }

    /// A value of this type: one of the last values of the kernel, the cast of a value, or a
    /// constant.
    fn value_of(&mut self, dtype: DType) -> Value {
        let latest: Vec<usize> = (0..self.values.len())
            .rev()
            .filter(|at| self.values[*at].dtype == dtype)
            .take(3)
            .collect();
        if !latest.is_empty() && !self.draw.one_in(6) {
            let at = self.draw.pick(&latest);
            return self.values[at].clone();
        }
        let value = self.any();
        if may_cast(value.dtype, dtype) {
            return self.apply(Op::Cast, dtype, &[&value]);
        }
        let constant = constant(self.draw, dtype);
        self.number(constant)
    }

    /// Draws another value.
    fn op(&mut self) {
        let x = self.any();
        let value = match self.draw.below(10) {
            0 | 1 => {
                let gate = self.value_of(DType::Bool);
                let y = self.value_of(x.dtype);
                self.apply(Op::Where, x.dtype, &[&gate, &x, &y])
            }
            2 | 3 if !is_half(x.dtype) => {
                let y = self.value_of(x.dtype);
                let op = self.draw.pick(&[Op::CmpLt, Op::CmpNe]);
                self.apply(op, DType::Bool, &[&x, &y])
            }
            4 => {
                let to = self.dtype();
                let is_cast = may_cast(x.dtype, to);
                if is_cast { self.apply(Op::Cast, to, &[&x]) } else { x }
            }
            5 => {
                let is_as_wide = |dtype: &DType| dtype.size_bytes() == x.dtype.size_bytes();
                let is_bits = |dtype: &DType| is_as_wide(dtype) && *dtype != DType::Bool;
                let types: Vec<DType> = self.style.dtypes.iter().copied().filter(is_bits).collect();
                if x.dtype == DType::Bool || !x.has_bits {
                    x
                } else {
                    let to = self.draw.pick(&types);
                    let has_bits = self.style.free_nan != Some(to);
                    Value { has_bits, ..self.apply(Op::Bitcast, to, &[&x]) }
                }
            }
            _ => self.arithmetic(x),
        };
        self.values.push(value);
    }

    fn arithmetic(&mut self, x: Value) -> Value {
        use Op::{Add, And, CDiv, CMod, FloorDiv, FloorMod, Max, Min, Mul, Neg, Or, Shl, Shr};
        let dtype = x.dtype;
        if is_half(dtype) {
            return x;
        }
        if dtype == DType::Bool {
            let y = self.value_of(dtype);
            let op = self.draw.pick(&[And, Or, Op::Xor, Op::CmpNe, Op::CmpLt]);
            return self.apply(op, dtype, &[&x, &y]);
        }
        if self.draw.one_in(8) {
            return self.apply(Neg, dtype, &[&x]);
        }
        if dtype.is_float() {
            let y = self.value_of(dtype);
            let op = self.draw.pick(&[Add, Op::Sub, Mul, Max, Min, Op::FDiv]);
            return self.apply(op, dtype, &[&x, &y]);
        }
        if self.draw.one_in(8) {
            let factor = self.draw.pick(&[-1, 2, 3, -4]);
            let factor = match self.draw.one_in(2) {
                true => self.number(Constant::int(dtype, factor)),
                false => self.value_of(dtype),
            };
            let addend = match self.draw.one_in(3) {
                true => factor.clone(),
                false => self.value_of(dtype),
            };
            return self.apply(Op::MulAcc, dtype, &[&factor, &x, &addend]);
        }
        let op = self.draw.pick(&[
            Add,
            Op::Sub,
            Mul,
            Max,
            Min,
            And,
            Or,
            Op::Xor,
            CDiv,
            CMod,
            FloorDiv,
            FloorMod,
            Shl,
            Shr,
        ]);
        let y = match op {
            CDiv | CMod | FloorDiv | FloorMod => {
                let divisor = |builder: &mut Self| {
                    let number = builder.draw.pick(&[1, 2, 3, 5, 8, 16, 100]);
                    let is_negated = dtype.is_signed() && number != 1 && builder.draw.one_in(3);
                    let number = if is_negated { -number } else { number };
                    builder.number(Constant::int(dtype, number))
                };
                let known = divisor(self);
                if self.draw.one_in(3) {
                    let gate = self.value_of(DType::Bool);
                    let second = divisor(self);
                    self.apply(Op::Where, dtype, &[&gate, &known, &second])
                } else {
                    known
                }
            }
            Shl | Shr => {
                let bits = self.draw.below(dtype.bits() as usize) as i128;
                self.number(Constant::int(dtype, bits))
            }
            _ => self.value_of(dtype),
        };
        self.apply(op, dtype, &[&x, &y])
    }

    /// Variables that are 0 before the loop of a sum: one for all lanes, or one for each.
    fn accumulator(&mut self, dtype: DType) -> Value {
        let zero = Constant::zero(dtype);
        let zero = self.number(zero);
        let lanes = self.lanes;
        let form = if 1 < lanes && self.style.computes(dtype, lanes) {
            let zero = self.vector(&zero);
            Form::Vector(self.push(Op::DefineAcc, dtype, lanes, &[zero], Arg::Int(0)))
        } else {
            let zeros = self.lanes(&zero);
            let define = |(number, zero): (i64, u32)| {
                self.push(Op::DefineAcc, dtype, 1, &[zero], Arg::Int(number))
            };
            Form::Lanes((0..).zip(zeros).map(define).collect())
        };
        Value { dtype, form, has_bits: false }
    }

    /// Assigns the sum of the variables and a value, or the value itself if its type is only moved.
    fn add_to(&mut self, sum: &Value, value: &Value) -> Value {
        let is_moved = is_half(sum.dtype) || sum.dtype == DType::Bool;
        let pairs: Vec<(u32, u32)> = match &sum.form {
            Form::Vector(variable) => vec![(*variable, self.vector(value))],
            Form::Lanes(variables) => variables.iter().copied().zip(self.lanes(value)).collect(),
        };
        for (variable, value) in pairs {
            let lanes = self.uops[variable as usize].lanes;
            let next = match is_moved {
                true => value,
                false => self.push(Op::Add, sum.dtype, lanes, &[variable, value], Arg::None),
            };
            self.push(Op::Assign, sum.dtype, lanes, &[variable, next], Arg::None);
        }
        sum.clone()
    }
}

fn is_half(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16)
}

/// Returns whether the cast of every value is defined: floats may be outside of the range of
/// integers, and lowering casts 16-bit floats only from and to f32.
fn may_cast(from: DType, to: DType) -> bool {
    let is_moved = |from: DType, to: DType| is_half(from) && to != DType::F32;
    let is_truncated = from.is_float() && to.is_int();
    from != to && !is_truncated && !is_moved(from, to) && !is_moved(to, from)
}

/// A constant of a type: an extreme, 0, 1, or any bits.
fn constant(draw: &mut Draw, dtype: DType) -> Constant {
    match draw.below(4) {
        0 => Constant::smallest(dtype),
        1 => Constant::one(dtype),
        2 => Constant::from_bits(dtype, draw.bits()),
        _ => Constant::zero(dtype),
    }
}

/// An element of an input: any bits of an integer; of a float a value from a list, most of which
/// sums represent exactly.
pub(crate) fn element(draw: &mut Draw, dtype: DType) -> Constant {
    const FLOATS: [f64; 10] = [0.0, -0.0, 1.0, -1.5, 3.0, 0.1, 1e4, -7.25, f64::INFINITY, f64::NAN];
    match dtype {
        DType::Bool => Constant::bool(draw.one_in(2)),
        _ if dtype.is_float() => {
            let value = draw.pick(&FLOATS);
            gradiff_eval::scalar::float(dtype, value).expect("a float")
        }
        _ if draw.one_in(3) => Constant::int(dtype, draw.below(5) as i128),
        _ => Constant::from_bits(dtype, draw.bits()),
    }
}
