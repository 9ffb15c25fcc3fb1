//! Draws data for the conversions that follow them: a path of dtypes first, then values at which
//! one of its steps is decided (ties between neighbours, ends of ranges, payloads, signs of zero),
//! then the path itself, with movement and selections between its steps.

use gradiff_corpus::{
    BinaryOp, DType, Distribution, Fill, Literal, Operand, Shape, Statement, UnaryOp, ValueId,
    literal_bits,
};

use crate::fact::{self, Fact, least_exponent, mantissa_bits, power};
use crate::programs::Builder;
use crate::values::layout;
use crate::{Choices, Op, SeedChoices, shapes};

/// Sizes of the last axis: around the widths of vectors.
const ROWS: [usize; 12] = [4, 16, 17, 8, 3, 32, 15, 33, 31, 64, 1, 63];

/// Paths that lose bits more than once, or where ranges end; others are drawn dtype by dtype.
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

/// Ends of integer types and of the integers that floats hold, as exponents of two.
const ENDS: [u32; 14] = [7, 8, 11, 15, 16, 24, 31, 32, 53, 63, 12, 23, 33, 62];

/// Significant bits of the floats by way of which integers are converted.
const PRECISIONS: [i32; 4] = [53, 24, 53, 11];

/// Most elements of data that are listed for conversions which a program happens to have.
const SHARPENED_MOST: usize = 64;

/// Between which numbers the elements of a path must lie, and whether they must be finite, so that
/// no conversion is undefined.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    lo: f64,
    hi: f64,
    is_finite: bool,
}

impl Bounds {
    /// The bounds of a path: a conversion from a float to an integer asks for the integer's range,
    /// less what the floats before it may round up.
    fn of(path: &[DType]) -> Bounds {
        let mut bounds = Bounds { lo: f64::MIN, hi: f64::MAX, is_finite: false };
        for (at, pair) in path.windows(2).enumerate() {
            if !pair[0].is_float() || !pair[1].is_int() {
                continue;
            }
            let floats = || path[..=at].iter().copied().filter(|dtype| dtype.is_float());
            let bits = floats().map(mantissa_bits).min().unwrap_or(53);
            let most = floats().map(fact::largest).fold(f64::MAX, f64::min);
            let (lo, hi) = fact::range(pair[1]);
            let below = |end: f64| end * (1.0 - power(-bits));
            bounds.lo = bounds.lo.max(if lo == 0.0 { below(-1.0) } else { lo }).max(-most);
            bounds.hi = bounds.hi.min(below((hi + 1.0).log2().round().exp2())).min(most);
            bounds.is_finite = true;
        }
        bounds
    }

    fn allow(&self, value: f64) -> bool {
        (self.lo <= value && value <= self.hi) || (!self.is_finite && !value.is_finite())
    }
}

/// What a path's data may be drawn for.
struct Path<'a> {
    dtypes: &'a [DType],
    bounds: Bounds,
}

impl Path<'_> {
    /// An element of the first dtype, as bits.
    fn element(&self, own: &mut SeedChoices) -> u64 {
        let from = self.dtypes[0];
        for _ in 0..6 {
            let step = own.below(self.dtypes.len() as u32 - 1) as usize;
            let to = self.dtypes[step + 1];
            let found = match own.below(8) {
                0 => self.plain(own),
                1 if from.is_float() && !self.bounds.is_finite => Some(pattern(own, from)),
                _ if from.is_float() => self.float_edge(own, to),
                _ => self.int_edge(own, to),
            };
            if let Some(found) = found {
                return found;
            }
        }
        0
    }

    /// A zero of either sign, or a small number.
    fn plain(&self, own: &mut SeedChoices) -> Option<u64> {
        if !self.dtypes[0].is_float() {
            return self.int(own.below(3) as i128);
        }
        self.float([0.0, -0.0, 1.0, -1.0, 0.5][own.below(5) as usize])
    }

    fn float(&self, value: f64) -> Option<u64> {
        let allowed = self.bounds.allow(value);
        literal_bits(self.dtypes[0], &Literal::Float(value)).filter(|_| allowed)
    }

    fn int(&self, value: i128) -> Option<u64> {
        let allowed = self.bounds.allow(value as f64);
        literal_bits(self.dtypes[0], &Literal::Int(value)).filter(|_| allowed)
    }

    fn float_edge(&self, own: &mut SeedChoices, to: DType) -> Option<u64> {
        let from = self.dtypes[0];
        let sign = if own.one_in(2) { -1.0 } else { 1.0 };
        if !to.is_float() {
            let bits = ENDS[own.below(ENDS.len() as u32) as usize];
            let end = power(bits as i32);
            let ulp = power((bits as i32 - mantissa_bits(from)).max(-3));
            let off = [0.0, -ulp, 2.0 * ulp, -0.5, 0.5, -1.0][own.below(6) as usize];
            let small = [0.5, 0.999, 1.5, 2.5, 127.5, 255.5][own.below(6) as usize];
            return self.float(sign * if own.one_in(4) { small } else { end + off });
        }
        let kept = mantissa_bits(to).min(mantissa_bits(from) - 1);
        let least = least_exponent(to).max(least_exponent(from) + 1);
        let top = fact::largest(to).min(fact::largest(from)).log2().floor() as i32;
        // The exponent of the last bit that is kept, and how many bits are.
        let (last, bits) = match own.below(4) {
            0 => (least, own.below(kept as u32) as i32),
            1 => (top - kept + 1, kept),
            _ => (own.below(8) as i32 - 4 - kept, kept),
        };
        let random = own.bits() & ((1 << bits.max(1)) - 1);
        let top_bit = if bits == kept { 1 << (kept - 1) } else { 0 };
        let all = (1 << kept) - 1;
        let number = if own.one_in(4) { all } else { (random & (all >> 1)) | top_bit };
        let tie = (number as f64 + 0.5) * power(last);
        // Beyond the tie by a bit that a dtype on the way may lose.
        let spare = (mantissa_bits(from) - kept - 2).max(0) as u32;
        let depth = 2 + own.below(spare + 1) as i32;
        let off = power((last - depth).max(least_exponent(from)));
        self.float(sign * [tie, tie + off, tie - off, tie][own.below(4) as usize])
    }

    fn int_edge(&self, own: &mut SeedChoices, to: DType) -> Option<u64> {
        let from = self.dtypes[0];
        let width = 8 * from.size_bytes() as u32 - u32::from(from.is_signed());
        let sign = if from.is_signed() && own.one_in(2) { -1 } else { 1 };
        let near = [0, 1, -1, 2][own.below(4) as usize];
        let kept = mantissa_bits(to) as u32;
        if !to.is_float() || width <= kept + 1 || own.one_in(4) {
            let bits = ENDS[own.below(ENDS.len() as u32) as usize].min(width);
            let end = 1_i128 << bits;
            return self.int(sign * end + near);
        }
        // Half of the numbers are as large as the type allows, where floats lose the most bits.
        let shift = match own.below(2) {
            0 => width - 1 - kept - own.below(2).min(width - 1 - kept),
            _ => own.below(width - kept),
        };
        let number = (1_i128 << kept) | (own.bits() as i128 & ((1 << kept) - 1)) | 1;
        // Where the last bit of a float on the way lies: what is beyond it is lost on the way, and
        // must not decide the tie.
        let top = (kept + shift) as i32;
        let last = top + 1 - own.pick(&PRECISIONS) + own.below(3) as i32 - 1;
        let last = last.clamp(0, shift as i32) as u32;
        let off = match own.below(6) {
            0 => 0,
            1 => near,
            2 => 1 << own.below(shift + 1),
            3 => 1_i128 << last,
            _ => (1_i128 << last) + (1 << own.below(last + 1)),
        };
        let off = if own.one_in(2) { off } else { -off };
        self.int(sign * ((number << shift) + off))
    }
}

/// NaN of either kind and sign with a payload, an infinity, a zero, the ends of the subnormals.
fn pattern(own: &mut SeedChoices, dtype: DType) -> u64 {
    let (precision, exponent_bits) = layout(dtype);
    let sign = u64::from(own.below(2)) << (precision + exponent_bits - 1);
    let infinity = ((1 << exponent_bits) - 1) << (precision - 1);
    let quiet = 1 << (precision - 2);
    let payload = own.bits() & (quiet - 1);
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
    sign | magnitudes[own.below(8) as usize]
}

/// What is known of these elements.
fn fact_of(dtype: DType, bits: &[u64]) -> Fact {
    let mut joined: Option<Fact> = None;
    for &bits in bits {
        let text = gradiff_corpus::format_element(dtype, bits);
        let value = text.parse::<f64>().unwrap_or(f64::NAN);
        let one = if value.is_finite() {
            Fact { raw: true, ..Fact::exact(value, value, grid_of(dtype)) }
        } else {
            Fact { special: true, raw: true, ..Fact::exact(0.0, 0.0, fact::ROUGH) }
        };
        joined = Some(joined.map_or(one, |before| before.join(&one)));
    }
    joined.unwrap_or_else(|| Fact::exact(0.0, 0.0, 0))
}

fn grid_of(dtype: DType) -> i32 {
    if dtype.is_float() { fact::ROUGH } else { 0 }
}

/// Data for the conversions of a path, and what is known of them.
pub(crate) fn data<C: Choices>(choices: &mut C, path: &[DType], shape: Shape) -> (Statement, Fact) {
    let mut own = SeedChoices::new(choices.below(1 << 16).into());
    let data = Path { dtypes: path, bounds: Bounds::of(path) };
    let count = shapes::count(&shape);
    let bits: Vec<u64> = (0..count).map(|_| data.element(&mut own)).collect();
    let fact = fact_of(path[0], &bits);
    (Statement::Input { dtype: path[0], shape, fill: Fill::Explicit(bits) }, fact)
}

impl<C: Choices> Builder<'_, C> {
    /// Data and the conversions that they are drawn for.
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

    /// Gives some of the integers that are converted to floats the values at which these
    /// conversions are decided: data of 32 bits or more over their whole range, which movement alone
    /// lies between. What is known of such data holds of any.
    pub(crate) fn sharpen_conversions(&mut self) {
        // Where each value comes from, unchanged but for conversions, and by way of which dtypes.
        let mut paths: Vec<Option<(usize, Vec<DType>)>> = Vec::with_capacity(self.statements.len());
        let mut found: Vec<(usize, Vec<DType>)> = Vec::new();
        for (number, statement) in self.statements.iter().enumerate() {
            let path = match statement {
                Statement::Input { dtype, fill: Fill::Seeded { distribution, .. }, shape } => {
                    let is_any = matches!(distribution, Distribution::Wide | Distribution::Special);
                    let is_wide = dtype.is_int() && dtype.size_bytes() >= 4;
                    let count = shapes::count(shape);
                    let is_listed = (1..=SHARPENED_MOST).contains(&count);
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

    /// The dtypes of the data and of the conversions, at least two.
    pub(crate) fn edge_path(&mut self) -> Vec<DType> {
        let known = self.choices.below(PATHS.len() as u32 + 8) as usize;
        let allowed = self.config.dtypes.clone();
        if let Some(path) = PATHS.get(known)
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
        if self.config.max_rank >= 2 && self.choices.one_in(3) && outer * row <= limit {
            return vec![outer, row];
        }
        vec![row]
    }

    /// Something between two conversions that keeps dtype and bits, or selects among them.
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

    /// The larger or smaller of the value and a zero of either sign, by `max`, `min` or `where`, and
    /// what shows the sign that came out: a bitcast or a reciprocal.
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
        let swapped = self.choices.below(2) == 1;
        let pair = if swapped { [zero, x] } else { [x, zero] };
        let op = self.choices.pick(&[BinaryOp::Max, BinaryOp::Min, BinaryOp::CmpLt]);
        let found = if op == BinaryOp::CmpLt {
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
        let show = match self.choices.below(3) {
            0 => return Some(found),
            1 => Op::Bitcast,
            _ => Op::Unary(UnaryOp::Recip),
        };
        self.apply_to(show, found);
        Some(found)
    }
}
