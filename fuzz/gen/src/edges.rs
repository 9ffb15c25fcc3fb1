//! Draws boundary values of conversions: first a path of dtypes, then data at which one of its
//! conversions is decided (ties between neighbours, ends of ranges, NaN payloads, signs of zero),
//! then the conversions themselves, with movement and selections in between.

use gradiff_corpus::{
    BinaryOp, DType, Distribution, Fill, Literal, Operand, Shape, Statement, UnaryOp, ValueId,
    literal_bits,
};

use crate::fact::{self, Fact, least_exponent, mantissa_bits, power};
use crate::programs::Builder;
use crate::values::layout;
use crate::{Choices, Op, SeedChoices, shapes};

/// Sizes of the last axis: vector widths and their neighbours.
const ROWS: [usize; 12] = [4, 16, 17, 8, 3, 32, 15, 33, 31, 64, 1, 63];

/// Conversion paths that round more than once or that end ranges; others are drawn dtype by dtype.
const PATHS: &[&[DType]] = &[
    &[DType::F64, DType::F32, DType::F16],
    &[DType::F64, DType::F32, DType::BF16],
    &[DType::F64, DType::F16],
    &[DType::F64, DType::BF16],
    &[DType::F32, DType::F16],
    &[DType::F32, DType::BF16, DType::F16],
    &[DType::I64, DType::F32, DType::BF16],
    &[DType::I64, DType::F16],
    &[DType::U64, DType::F32],
    &[DType::U64, DType::F64, DType::F32],
    &[DType::U64, DType::BF16],
    &[DType::I64, DType::BF16],
    &[DType::I32, DType::F32, DType::I32],
    &[DType::U32, DType::F32, DType::U32],
    &[DType::U32, DType::F16],
    &[DType::F64, DType::I64, DType::F32],
    &[DType::F64, DType::U64],
    &[DType::F32, DType::I64, DType::I32],
    &[DType::F32, DType::U32, DType::U8],
    &[DType::F64, DType::U32, DType::I32],
    &[DType::F16, DType::I8],
    &[DType::BF16, DType::F64, DType::I16],
    &[DType::I64, DType::I32, DType::F32],
    &[DType::U64, DType::I64, DType::F64],
];

/// Ends of integer types, and of the integers that floats represent exactly, as exponents of two.
const ENDS: [u32; 14] = [7, 8, 11, 15, 16, 24, 31, 32, 53, 63, 12, 23, 33, 62];

/// Significant bits of floats that may be intermediate types of integer conversions.
const PRECISIONS: [i32; 4] = [53, 24, 53, 11];

/// Maximum number of elements of inputs that [`Builder::sharpen_conversions`] replaces.
const MAX_SHARPENED_ELEMENTS: usize = 64;

/// Bounds of the elements for which no conversion of a path is undefined.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    lo: f64,
    hi: f64,
    is_finite: bool,
}

impl Bounds {
    /// Computes the bounds of a path. A conversion from a float to an integer needs values in the
    /// integer's range, less than its end by what earlier conversions to floats may round up.
    fn of(path: &[DType]) -> Bounds {
        let mut bounds = Bounds { lo: f64::MIN, hi: f64::MAX, is_finite: false };
        for (index, pair) in path.windows(2).enumerate() {
            if !pair[0].is_float() || !pair[1].is_int() {
                continue;
            }
            let floats = || path[..=index].iter().copied().filter(|dtype| dtype.is_float());
            let bits = floats().map(mantissa_bits).min().unwrap_or(53);
            let max = floats().map(fact::largest).fold(f64::MAX, f64::min);
            let (lo, hi) = fact::range(pair[1]);
            let below = |end: f64| end * (1.0 - power(-bits));
            bounds.lo = bounds.lo.max(if lo == 0.0 { below(-1.0) } else { lo }).max(-max);
            bounds.hi = bounds.hi.min(below((hi + 1.0).log2().round().exp2())).min(max);
            bounds.is_finite = true;
        }
        bounds
    }

    fn allow(&self, value: f64) -> bool {
        (self.lo <= value && value <= self.hi) || (!self.is_finite && !value.is_finite())
    }
}

/// A path of conversions, and the bounds of its data.
struct Path<'a> {
    dtypes: &'a [DType],
    bounds: Bounds,
}

impl Path<'_> {
    /// Draws an element of the first dtype, as bits.
    fn element(&self, random: &mut dyn Choices) -> u64 {
        let from = self.dtypes[0];
        for _ in 0..6 {
            let conversion = random.below(self.dtypes.len() as u32 - 1) as usize;
            let to = self.dtypes[conversion + 1];
            let found = match random.below(8) {
                0 => self.plain(random),
                1 if from.is_float() && !self.bounds.is_finite => Some(pattern(random, from)),
                _ if from.is_float() => self.float_edge(random, to),
                _ => self.int_edge(random, to),
            };
            if let Some(found) = found {
                return found;
            }
        }
        0
    }

    /// Draws a zero of either sign or a small number.
    fn plain(&self, random: &mut dyn Choices) -> Option<u64> {
        if !self.dtypes[0].is_float() {
            return self.int(random.below(3) as i128);
        }
        self.float([0.0, -0.0, 1.0, -1.0, 0.5][random.below(5) as usize])
    }

    fn float(&self, value: f64) -> Option<u64> {
        let allowed = self.bounds.allow(value);
        literal_bits(self.dtypes[0], &Literal::Float(value)).filter(|_| allowed)
    }

    fn int(&self, value: i128) -> Option<u64> {
        let allowed = self.bounds.allow(value as f64);
        literal_bits(self.dtypes[0], &Literal::Int(value)).filter(|_| allowed)
    }

    /// Draws a boundary value of the conversion of a float to `to`; `None` if it is out of bounds.
    fn float_edge(&self, random: &mut dyn Choices, to: DType) -> Option<u64> {
        let from = self.dtypes[0];
        let sign = if random.one_in(2) { -1.0 } else { 1.0 };
        if !to.is_float() {
            let bits = end(random, to);
            let end = power(bits as i32);
            let ulp = power((bits as i32 - mantissa_bits(from)).max(-3));
            let offset = [0.0, -ulp, 2.0 * ulp, -0.5, 0.5, -1.0][random.below(6) as usize];
            let small = [0.5, 0.999, 1.5, 2.5, 127.5, 255.5][random.below(6) as usize];
            return self.float(sign * if random.one_in(4) { small } else { end + offset });
        }
        let kept = mantissa_bits(to).min(mantissa_bits(from) - 1);
        let least = least_exponent(to).max(least_exponent(from) + 1);
        let top = fact::largest(to).min(fact::largest(from)).log2().floor() as i32;
        // The exponent of the last bit that is kept, and the number of bits that are.
        let (last, bits) = match random.below(4) {
            0 => (least, random.below(kept as u32) as i32),
            1 => (top - kept + 1, kept),
            _ => (random.below(8) as i32 - 4 - kept, kept),
        };
        let low_bits = random.bits() & ((1 << bits.max(1)) - 1);
        let top_bit = if bits == kept { 1 << (kept - 1) } else { 0 };
        let ones = (1 << kept) - 1;
        let number = if random.one_in(4) { ones } else { (low_bits & (ones >> 1)) | top_bit };
        let tie = (number as f64 + 0.5) * power(last);
        // Off the tie by a bit that an intermediate dtype may lose.
        let spare = (mantissa_bits(from) - kept - 2).max(0) as u32;
        let depth = 2 + random.below(spare + 1) as i32;
        let offset = power((last - depth).max(least_exponent(from)));
        self.float(sign * [tie, tie + offset, tie - offset, tie][random.below(4) as usize])
    }

    /// Draws a boundary value of the conversion of an integer to `to`; `None` if it is out of
    /// bounds.
    fn int_edge(&self, random: &mut dyn Choices, to: DType) -> Option<u64> {
        let from = self.dtypes[0];
        let width = 8 * from.size_bytes() as u32 - u32::from(from.is_signed());
        let sign = if from.is_signed() && random.one_in(2) { -1 } else { 1 };
        let near = [0, 1, -1, 2][random.below(4) as usize];
        let kept = mantissa_bits(to) as u32;
        if !to.is_float() || width <= kept + 1 || random.one_in(4) {
            let end = 1_i128 << end(random, to).min(width);
            return self.int(sign * end + near);
        }
        // Half of the numbers are as large as the dtype allows, where floats lose the most bits.
        let shift = match random.below(2) {
            0 => width - 1 - kept - random.below(2).min(width - 1 - kept),
            _ => random.below(width - kept),
        };
        let number = (1_i128 << kept) | (random.bits() as i128 & ((1 << kept) - 1)) | 1;
        // The last bit of an intermediate float: lower bits are lost in the first rounding, and
        // must not decide the tie of the second one.
        let top = (kept + shift) as i32;
        let last = top + 1 - random.pick(&PRECISIONS) + random.below(3) as i32 - 1;
        let last = last.clamp(0, shift as i32) as u32;
        let offset = match random.below(6) {
            0 => 0,
            1 => near,
            2 => 1 << random.below(shift + 1),
            3 => 1_i128 << last,
            _ => (1_i128 << last) + (1 << random.below(last + 1)),
        };
        let offset = if random.one_in(2) { offset } else { -offset };
        self.int(sign * ((number << shift) + offset))
    }
}

/// Draws an end of numbers, as an exponent of two: that of the type, if it is one of integers, or
/// any.
fn end(random: &mut dyn Choices, to: DType) -> u32 {
    match random.below(2) {
        0 if to.is_int() => 8 * to.size_bytes() as u32 - u32::from(to.is_signed()),
        _ => ENDS[random.below(ENDS.len() as u32) as usize],
    }
}

/// Draws a quiet or signalling NaN with a payload, an infinity, a zero or an end of the subnormals,
/// of either sign.
fn pattern(random: &mut dyn Choices, dtype: DType) -> u64 {
    let (precision, exponent_bits) = layout(dtype);
    let sign = u64::from(random.below(2)) << (precision + exponent_bits - 1);
    let infinity = ((1 << exponent_bits) - 1) << (precision - 1);
    let quiet = 1 << (precision - 2);
    let payload = random.bits() & (quiet - 1);
    let magnitudes = [
        infinity | quiet | payload,
        infinity | payload.max(1),
        infinity,
        0,
        1,
        (1 << (precision - 1)) - 1,
        1 << (precision - 1),
        infinity - 1,
    ];
    sign | magnitudes[random.below(8) as usize]
}

/// Fact of these elements.
fn fact_of(dtype: DType, bits: &[u64]) -> Fact {
    let mut joined: Option<Fact> = None;
    for &bits in bits {
        let text = gradiff_corpus::format_element(dtype, bits);
        let value = text.parse::<f64>().unwrap_or(f64::NAN);
        let fact = if value.is_finite() {
            Fact { raw: true, ..Fact::exact(value, value, grid_of(dtype)) }
        } else {
            Fact { special: true, raw: true, ..Fact::exact(0.0, 0.0, fact::ROUGH) }
        };
        joined = Some(joined.map_or(fact, |before| before.join(&fact)));
    }
    joined.unwrap_or_else(|| Fact::exact(0.0, 0.0, 0))
}

fn grid_of(dtype: DType) -> i32 {
    if dtype.is_float() { fact::ROUGH } else { 0 }
}

/// Draws data for the conversions of a path, and their fact.
pub(crate) fn data(choices: &mut dyn Choices, path: &[DType], shape: Shape) -> (Statement, Fact) {
    let mut random = SeedChoices::new(choices.below(1 << 16).into());
    let data = Path { dtypes: path, bounds: Bounds::of(path) };
    let count = shapes::count(&shape);
    let bits: Vec<u64> = (0..count).map(|_| data.element(&mut random)).collect();
    let fact = fact_of(path[0], &bits);
    (Statement::Input { dtype: path[0], shape, fill: Fill::Explicit(bits) }, fact)
}

impl Builder<'_> {
    /// Adds data and the conversions that they are drawn for.
    pub(crate) fn edges(&mut self) {
        let path = self.edge_path();
        let shape = self.edge_shape();
        let (data, fact) = data(self.choices, &path, shape);
        let mut value = self.push(data, fact);
        for &dtype in &path[1..] {
            value = self.edge_between(value);
            let from = self.type_of(value).dtype;
            let Some(fact) = fact::cast(&self.fact(value), from, dtype, self.policy) else {
                return;
            };
            if !self.has_room(1) {
                return;
            }
            value = self.push(Statement::Cast { src: value, dtype }, fact);
        }
        self.edge_between(value);
    }

    /// Replaces some integer inputs that are converted to floats by boundary values of these
    /// conversions. Only integers of 32 bits or more over their whole range are replaced, with only
    /// movement between input and conversions: their facts hold for any data.
    pub(crate) fn sharpen_conversions(&mut self) {
        // For each value that is an input, moved and converted only: the input and the dtypes.
        let mut paths: Vec<Option<(usize, Vec<DType>)>> = Vec::with_capacity(self.statements.len());
        let mut found: Vec<(usize, Vec<DType>)> = Vec::new();
        for (number, statement) in self.statements.iter().enumerate() {
            let path = match statement {
                Statement::Input { dtype, fill: Fill::Seeded { distribution, .. }, shape } => {
                    let is_any = matches!(distribution, Distribution::Wide | Distribution::Special);
                    let is_wide = dtype.is_int() && dtype.size_bytes() >= 4;
                    let count = shapes::count(shape);
                    let is_listed = (1..=MAX_SHARPENED_ELEMENTS).contains(&count);
                    (is_any && is_wide && is_listed).then(|| (number, vec![*dtype]))
                }
                Statement::Cast { src, dtype } => paths[src.0 as usize].clone().map(|mut path| {
                    path.1.push(*dtype);
                    path
                }),
                Statement::Reshape { src, .. }
                | Statement::Permute { src, .. }
                | Statement::Expand { src, .. }
                | Statement::Pad { src, .. }
                | Statement::Shrink { src, .. }
                | Statement::Flip { src, .. }
                | Statement::Contiguous { src }
                | Statement::Realize { src }
                | Statement::Detach { src } => paths[src.0 as usize].clone(),
                _ => None,
            };
            let is_cast = matches!(statement, Statement::Cast { dtype, .. } if dtype.is_float());
            if is_cast && let Some(path) = &path {
                found.retain(|(input, _)| *input != path.0);
                found.push(path.clone());
            }
            paths.push(path);
        }
        for (input, path) in found {
            if self.choices.one_in(2) {
                let shape = self.types[input].shape.clone();
                self.statements[input] = data(self.choices, &path, shape).0;
            }
        }
    }

    /// Draws a path of conversions: the dtype of the data and those that it is converted to.
    pub(crate) fn edge_path(&mut self) -> Vec<DType> {
        let number = self.choices.below(PATHS.len() as u32 + 8) as usize;
        let allowed = self.config.dtypes.clone();
        if let Some(path) = PATHS.get(number)
            && path.iter().all(|dtype| allowed.contains(dtype))
        {
            return path.to_vec();
        }
        let dtypes = if allowed.is_empty() { vec![DType::F32] } else { allowed };
        let count = 2 + self.choices.below(3);
        (0..count).map(|_| self.choices.pick(&dtypes)).collect()
    }

    fn edge_shape(&mut self) -> Shape {
        let limit = self.limit;
        let row = self.choices.pick(&ROWS).min(limit.max(1));
        let outer = self.palette.size(self.choices);
        if self.max_rank >= 2 && self.choices.one_in(3) && outer * row <= limit {
            return vec![outer, row];
        }
        vec![row]
    }

    /// Adds a statement between two conversions that keeps the dtype and moves or selects elements.
    fn edge_between(&mut self, value: ValueId) -> ValueId {
        if !self.has_room(3) || self.type_of(value).dtype == DType::Bool {
            return value;
        }
        let found = match self.choices.below(10) {
            0..=2 => None,
            3 => self.apply_to(Op::Flip, value),
            4 => self.apply_to(Op::Pad, value),
            5 => self.apply_to(Op::Contiguous, value),
            6 => self.apply_to(Op::Realize, value),
            7 => self.apply_to(Op::Cat, value),
            8 => self.rectified(value),
            _ => self.apply_to(Op::Permute, value),
        };
        found.unwrap_or(value)
    }

    /// Adds the maximum or minimum of the value and a zero of either sign, by `max`, `min` or
    /// `where`. A bitcast or a reciprocal may follow, which depends on the sign of the result.
    fn rectified(&mut self, value: ValueId) -> Option<ValueId> {
        let dtype = self.type_of(value).dtype;
        let before = self.fact(value);
        if !self.has_room(4) {
            return None;
        }
        let zero = match dtype.is_float() {
            true => Literal::Float(self.choices.pick(&[0.0, -0.0])),
            false => Literal::Int(0),
        };
        let joined = before.join(&Fact::exact(0.0, 0.0, 0));
        let (x, zero) = (Operand::Value(value), Operand::Literal(zero));
        let is_swapped = self.choices.below(2) == 1;
        let pair = if is_swapped { [zero, x] } else { [x, zero] };
        let op = self.choices.pick(&[BinaryOp::Max, BinaryOp::Min, BinaryOp::CmpLt]);
        let result = if op == BinaryOp::CmpLt {
            if !fact::decided(&before, self.policy) {
                return None;
            }
            let test = self.push(Statement::Binary { op, srcs: pair }, Fact::BOOL);
            let (yes, no) = if self.choices.one_in(2) { (x, zero) } else { (zero, x) };
            let srcs = [Operand::Value(test), yes, no];
            self.push(Statement::Where { srcs }, joined)
        } else {
            self.push(Statement::Binary { op, srcs: pair }, Fact { raw: false, ..joined })
        };
        let sign_op = match self.choices.below(3) {
            0 => return Some(result),
            1 => Op::Bitcast,
            _ => Op::Unary(UnaryOp::Recip),
        };
        self.apply_to(sign_op, result);
        Some(result)
    }
}
