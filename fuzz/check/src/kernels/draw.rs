//! Draws kernels as lists of uops: well formed, within their arrays, with one meaning.
//!
//! Lowering makes few of the kernels that a list can say: here vectors of each count of lanes meet
//! each type, masks of one width choose between masks of another, loops nest seven deep, a range of
//! threads stands beside a plain loop. Floats are added, multiplied and compared, never
//! contracted, so that every device gives the same bits.

use gradiff::graph::{
    Arg, Axis, AxisKind, Constant, DType, Global, Instruction, Linear, Local, Op,
};
use gradiff::kernel::Target;

use crate::calls::Draw;
use crate::linear::{Rules, target};

/// Steps of a range, at most: where ranges are few, and where they are many.
const STEPS_MOST: [usize; 2] = [3, 2];
/// Ranges that are few.
const RANGES_FEW: usize = 4;
/// Elementwise ops of a kernel, at most.
const OPS_MOST: usize = 12;
/// Dimensions of a launch on devices with groups.
pub(crate) const DIMENSIONS: usize = 3;
/// Slot of the array that is written.
const WRITTEN: usize = 0;

/// What the kernels of a device may hold.
pub(crate) struct Style {
    target: Target,
    /// Groups of threads, local arrays and barriers.
    has_groups: bool,
    /// Ranges of threads of the host.
    has_threads: bool,
    /// Vectors of bools in memory.
    has_bool_vectors: bool,
    /// One of the dialects of WGSL.
    pub(super) is_wgsl: bool,
    /// A type whose NaN has no bits of its own.
    pub(super) free_nan: Option<DType>,
    /// Hints of loads and stores: a distance for prefetches, and stores past the caches.
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
        let is_lacking = |dtype: &DType| match device {
            "metal" => *dtype == DType::F64,
            "wgsl-core" => matches!(dtype, DType::I64 | DType::U64 | DType::F64),
            _ => false,
        };
        let dtypes = DType::ALL.into_iter().filter(|dtype| *dtype != DType::Void);
        Style {
            target: target(name),
            has_groups: rules.map_or(device == "interp", Rules::has_groups),
            has_threads: matches!(device, "c" | "interp" | "jit"),
            has_bool_vectors: device == "c",
            has_hints: device == "c",
            is_wgsl: device.starts_with("wgsl"),
            free_nan: (device == "wgsl").then_some(DType::F16),
            lanes: rules.map_or(vec![2, 4, 8, 16], |rules| rules.lanes().to_vec()),
            dtypes: dtypes.filter(|dtype| !is_lacking(dtype)).collect(),
        }
    }

    /// Returns whether a vector is loaded and stored as one.
    fn has_vector(&self, dtype: DType, lanes: u8) -> bool {
        match dtype {
            // The language has vectors of its own types, of which the target makes no use.
            _ if self.is_wgsl => matches!(dtype, DType::I32 | DType::U32 | DType::F32),
            DType::Bool => self.has_bool_vectors,
            _ => i64::from(lanes) <= self.target.vectors.lanes_of(dtype),
        }
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
    /// Whether the bits are those of memory or of an integer: those of a NaN that was computed
    /// are free.
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
    pub(super) values: Vec<Value>,
}

/// Draws a kernel that a device of this style runs; equal draws give equal kernels.
pub(crate) fn draw_kernel(draw: &mut Draw, style: &Style) -> Linear {
    let lanes = match draw.below(3) {
        0 => 1,
        _ => draw.pick(&style.lanes),
    };
    let fits = |dtype: &DType| lanes == 1 || style.has_vector(*dtype, lanes);
    let stored: Vec<DType> = style.dtypes.iter().copied().filter(fits).collect();
    let written = if stored.is_empty() { DType::I32 } else { draw.pick(&stored) };
    let name = draw.pick(&["k", "_", "E_3_4", "r_2n1", "K9_", "a_long_name_of_a_kernel_0"]);
    let mut builder = Builder { draw, style, uops: Vec::new(), lanes, values: Vec::new() };
    builder.kernel(written);
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

    fn kernel(&mut self, written: DType) {
        let lanes = i64::from(self.lanes);
        let kinds = self.kinds();
        let most = STEPS_MOST[usize::from(RANGES_FEW < kinds.len())];
        let steps: Vec<i64> = kinds.iter().map(|_| 1 + self.draw.below(most) as i64).collect();
        let has_sum = kinds.last() == Some(&AxisKind::Loop) && self.draw.one_in(3);
        let outer = kinds.len() - usize::from(has_sum);
        let count: i64 = steps[..outer].iter().product();
        // A range of threads that does not stand around all stores is a plain loop.
        let parts = match kinds.first() {
            Some(AxisKind::Thread) | None if self.style.has_threads && self.draw.one_in(3) => 2,
            _ => 1,
        };
        let global = |slot, size_elements| Arg::Global(Global { slot, size_elements });
        let size = parts * count * lanes;
        let out = self.push(Op::DefineGlobal, written, 1, &[], global(WRITTEN, size));
        let mut inputs = Vec::new();
        for slot in 1..=1 + self.draw.below(3) {
            let dtype = if self.draw.one_in(3) { written } else { self.dtype() };
            let is_shorter = self.draw.one_in(3);
            let shown = if is_shorter { 1 + self.draw.below(count as usize) as i64 } else { count };
            let arg = global(slot, shown * lanes);
            inputs.push((self.push(Op::DefineGlobal, dtype, 1, &[], arg), dtype, shown));
        }
        for part in 0..parts {
            let kinds: Vec<AxisKind> = match (part, parts) {
                (0, 2) => vec![AxisKind::Loop; kinds.len()],
                _ => kinds.clone(),
            };
            let first = part * kinds.len() as i64;
            self.values.clear();
            self.nest(&kinds, &steps, first, outer, (out, written), &inputs, part * count);
        }
    }

    fn dtype(&mut self) -> DType {
        self.draw.pick(&self.style.dtypes)
    }

    /// Kinds of the ranges, outermost first.
    fn kinds(&mut self) -> Vec<AxisKind> {
        let mut kinds = Vec::new();
        if self.style.has_groups && !self.draw.one_in(4) {
            let most = if self.draw.one_in(8) { DIMENSIONS + 2 } else { DIMENSIONS + 1 };
            let (groups, threads) = (self.draw.below(most), self.draw.below(most));
            kinds.extend(std::iter::repeat_n(AxisKind::Global, groups));
            kinds.extend(std::iter::repeat_n(AxisKind::Local, threads));
        } else if self.style.has_threads && self.draw.one_in(2) {
            kinds.push(AxisKind::Thread);
        }
        let loops = self.draw.below(if kinds.len() < 2 { 7 } else { 3 });
        kinds.extend(std::iter::repeat_n(AxisKind::Loop, loops));
        kinds
    }

    /// One nest of ranges around one store. The ranges from `outer` on are summed over.
    #[allow(clippy::too_many_arguments, reason = "what a nest is made of, and no type besides")]
    fn nest(
        &mut self,
        kinds: &[AxisKind],
        steps: &[i64],
        first: i64,
        outer: usize,
        (out, written): (u32, DType),
        inputs: &[(u32, DType, i64)],
        part: i64,
    ) {
        let ends: Vec<u32> = steps.iter().map(|steps| self.int(*steps)).collect();
        let mut ranges = Vec::new();
        let is_launched = kinds.iter().filter(|kind| kind.is_launched()).count();
        let range = |builder: &mut Self, at: usize| {
            let arg = Arg::Axis(Axis { kind: kinds[at], number: first + at as i64 });
            builder.push(Op::Range, DType::I32, 1, &[ends[at]], arg)
        };
        for at in 0..is_launched {
            ranges.push(range(self, at));
        }
        if kinds.contains(&AxisKind::Local) && self.draw.one_in(2) {
            self.exchange(kinds, steps, &ranges, inputs[0]);
        }
        for at in is_launched..outer {
            ranges.push(range(self, at));
        }
        let place = self.place(&ranges, steps);
        let sum = (outer < kinds.len()).then(|| self.accumulator(written));
        if sum.is_some() {
            let last = range(self, outer);
            ranges.push(last);
        }
        for input in inputs {
            self.load(*input, place);
        }
        for _ in 0..1 + self.draw.below(OPS_MOST) {
            self.op();
        }
        let mut value = self.value_of(written);
        if let Some(sum) = sum {
            value = self.add_to(&sum, &value);
            let last = ranges.pop().expect("the range of the sum");
            self.push(Op::EndRange, DType::Void, 1, &[last], Arg::None);
        }
        self.store(out, &value, place, part);
        for range in ranges.into_iter().rev() {
            self.push(Op::EndRange, DType::Void, 1, &[range], Arg::None);
        }
    }

    /// Row-major number of the iteration of these ranges.
    fn place(&mut self, ranges: &[u32], steps: &[i64]) -> u32 {
        let mut place = None;
        for (at, range) in ranges.iter().enumerate() {
            place = Some(match place {
                None => *range,
                Some(place) => {
                    let steps = self.int(steps[at]);
                    let scaled = self.scalar(Op::Mul, &[place, steps]);
                    self.scalar(Op::Add, &[scaled, *range])
                }
            });
        }
        place.unwrap_or_else(|| self.int(0))
    }

    /// A value that each thread of a group stores and another one loads.
    fn exchange(
        &mut self,
        kinds: &[AxisKind],
        steps: &[i64],
        ranges: &[u32],
        (input, dtype, shown): (u32, DType, i64),
    ) {
        let groups = kinds.iter().filter(|kind| **kind == AxisKind::Global).count();
        let sizes = &steps[groups..ranges.len()];
        let threads: i64 = sizes.iter().product();
        let place = self.place(&ranges[groups..], sizes);
        let arg = Arg::Local(Local { number: 0, size_elements: threads });
        let array = self.push(Op::DefineLocal, dtype, 1, &[], arg);
        let end = self.int(shown);
        let gate = self.scalar(Op::CmpLt, &[place, end]);
        let from = self.push(Op::Index, dtype, 1, &[input, place, gate], Arg::None);
        let value = self.push(Op::Load, dtype, 1, &[from], Arg::None);
        let to = self.push(Op::Index, dtype, 1, &[array, place], Arg::None);
        let store = self.push(Op::Store, DType::Void, 1, &[to, value], Arg::None);
        let barrier = self.push(Op::Barrier, DType::Void, 1, &[store], Arg::None);
        let last = self.int(threads - 1);
        let turned = self.scalar(Op::Sub, &[last, place]);
        let from = self.push(Op::Index, dtype, 1, &[array, turned], Arg::None);
        let value = self.push(Op::Load, dtype, 1, &[from, barrier], Arg::None);
        let form = Form::Lanes(vec![value; self.lanes.into()]);
        let has_bits = self.style.free_nan != Some(dtype);
        self.values.push(Value { dtype, form, has_bits });
    }

    /// The elements of an input at the place of the iteration, zeros where the input is shorter.
    pub(super) fn load(&mut self, (array, dtype, shown): (u32, DType, i64), place: u32) {
        let lanes = i64::from(self.lanes);
        let limit = self.int(shown);
        let gate = self.scalar(Op::CmpLt, &[place, limit]);
        let scale = self.int(lanes);
        let first = self.scalar(Op::Mul, &[place, scale]);
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
                // The gate in terms of what stands in the index.
                let end = builder.int(shown * lanes);
                let gate = builder.scalar(Op::CmpLt, &[at, end]);
                let index = builder.push(Op::Index, dtype, 1, &[array, at, gate], Arg::None);
                builder.push(Op::Load, dtype, 1, &[index], Arg::None)
            };
            Form::Lanes((0..lanes).map(|lane| load(self, lane)).collect())
        };
        let has_bits = self.style.free_nan != Some(dtype);
        self.values.push(Value { dtype, form, has_bits });
    }

    pub(super) fn store(&mut self, out: u32, value: &Value, place: u32, part: i64) {
        let lanes = i64::from(self.lanes);
        let (scale, offset) = (self.int(lanes), self.int(part * lanes));
        let first = self.scalar(Op::Mul, &[place, scale]);
        let first = self.scalar(Op::Add, &[first, offset]);
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

    /// The value as one vector, put together if need be.
    pub(super) fn vector(&mut self, value: &Value) -> u32 {
        match &value.form {
            Form::Vector(vector) => *vector,
            Form::Lanes(lanes) => {
                let is_one = lanes.iter().all(|lane| *lane == lanes[0]);
                let src = if is_one { &lanes[..1] } else { &lanes[..] };
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

    /// An op of some values, on whole vectors or lane by lane.
    fn apply(&mut self, op: Op, dtype: DType, src: &[&Value]) -> Value {
        let is_possible = |dtype| self.style.computes(dtype, self.lanes);
        let fits = is_possible(dtype) && src.iter().all(|value| is_possible(value.dtype));
        let form = if 1 < self.lanes && fits && !self.draw.one_in(6) {
            let src: Vec<u32> = src.iter().map(|value| self.vector(value)).collect();
            Form::Vector(self.push(op, dtype, self.lanes, &src, Arg::None))
        } else {
            let src: Vec<Vec<u32>> = src.iter().map(|value| self.lanes(value)).collect();
            let lane = |lane: usize| -> Vec<u32> { src.iter().map(|all| all[lane]).collect() };
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

    /// Any value that was made.
    fn any(&mut self) -> Value {
        let at = self.draw.below(self.values.len());
        self.values[at].clone()
    }

    /// A value of this type: one that was made, the cast of one, or a constant.
    fn value_of(&mut self, dtype: DType) -> Value {
        let made: Vec<usize> = (0..self.values.len())
            .rev()
            .filter(|at| self.values[*at].dtype == dtype)
            .take(3)
            .collect();
        if !made.is_empty() && !self.draw.one_in(6) {
            let at = self.draw.pick(&made);
            return self.values[at].clone();
        }
        let value = self.any();
        if may_cast(value.dtype, dtype) {
            return self.apply(Op::Cast, dtype, &[&value]);
        }
        let constant = constant(self.draw, dtype);
        self.number(constant)
    }

    /// One more value.
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
                let of = |dtype: &DType| dtype.size_bytes() == x.dtype.size_bytes();
                let is_bits = |dtype: &DType| of(dtype) && *dtype != DType::Bool;
                let alike: Vec<DType> = self.style.dtypes.iter().copied().filter(is_bits).collect();
                if x.dtype == DType::Bool || !x.has_bits {
                    x
                } else {
                    let to = self.draw.pick(&alike);
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
                let divisor = self.draw.pick(&[1, 2, 3, 5, 8, 16, 100]);
                self.number(Constant::int(dtype, divisor))
            }
            Shl | Shr => {
                let bits = self.draw.below(dtype.bits() as usize) as i128;
                self.number(Constant::int(dtype, bits))
            }
            _ => self.value_of(dtype),
        };
        self.apply(op, dtype, &[&x, &y])
    }

    /// Variables that are 0 before the loop of a sum; of one for all lanes, or of one for each.
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

    /// Assigns the sum of the variables and a value; of types that are only moved, the value.
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

/// Returns whether every value of a type has one meaning as another: floats may leave integers,
/// and lowering takes halves to f32 and back alone.
fn may_cast(from: DType, to: DType) -> bool {
    let is_moved = |half: DType, other: DType| is_half(half) && other != DType::F32;
    let is_cut = from.is_float() && to.is_int();
    from != to && !is_cut && !is_moved(from, to) && !is_moved(to, from)
}

/// A constant of a type: an edge, or a small number.
fn constant(draw: &mut Draw, dtype: DType) -> Constant {
    match draw.below(4) {
        0 => Constant::smallest(dtype),
        1 => Constant::one(dtype),
        2 => Constant::from_bits(dtype, draw.bits()),
        _ => Constant::zero(dtype),
    }
}

/// An element of an input: any bits of integers; of floats mostly a value that sums keep.
pub(crate) fn element(draw: &mut Draw, dtype: DType) -> Constant {
    const FLOATS: [f64; 10] = [0.0, -0.0, 1.0, -1.5, 3.0, 0.1, 1e4, -7.25, f64::INFINITY, f64::NAN];
    match dtype {
        DType::Bool => Constant::bool(draw.one_in(2)),
        _ if dtype.is_float() => {
            let value = draw.pick(&FLOATS);
            crate::scalar::float(dtype, value).expect("a float")
        }
        _ if draw.one_in(3) => Constant::int(dtype, draw.below(5) as i128),
        _ => Constant::from_bits(dtype, draw.bits()),
    }
}
