//! Comparison of backends with the oracle. In: programs. Out: counts and failures.

use std::collections::BTreeMap;

use gradiff::graph;
use gradiff_corpus::{
    Array, BinaryOp, DType, Literal, Method, Operand, Program, ReduceOp, Statement, TensorType,
    UnaryOp, ValueId, float_value,
};
use gradiff_oracle::{Element, Expected, Mismatch};

use crate::judge::strict;
use crate::{Backend, Kept, Outcome};

/// Counts of what was run and found. The tallies of parts of a run add up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Programs run (each on every backend).
    pub programs: u64,
    /// Output elements compared, over all backends.
    pub checked_elements: u64,
    /// Further output elements, whose value is undefined or unknown to the oracle.
    pub unspecified_elements: u64,
    /// Elements among those compared whose bound is no less than their magnitude, so that zero was
    /// right, too.
    pub vacuous_elements: u64,
    /// The unspecified elements by origin: the op that introduces the reason, and the reason.
    pub unspecified: BTreeMap<String, u64>,
    /// Programs whose answer was wrong or refused, counted per backend.
    pub mismatches: u64,
    /// Programs that killed a backend.
    pub crashes: u64,
    /// Programs that a backend did not finish.
    pub timeouts: u64,
    /// Programs that a backend could not run here and now, by no fault of the engine, counted per
    /// backend.
    pub environment: u64,
    /// Programs skipped, by backend and reason.
    pub skipped: BTreeMap<String, u64>,
}

impl Tally {
    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Tally) {
        self.programs += other.programs;
        self.checked_elements += other.checked_elements;
        self.unspecified_elements += other.unspecified_elements;
        self.vacuous_elements += other.vacuous_elements;
        self.mismatches += other.mismatches;
        self.crashes += other.crashes;
        self.timeouts += other.timeouts;
        self.environment += other.environment;
        for (origin, count) in &other.unspecified {
            *self.unspecified.entry(origin.clone()).or_default() += count;
        }
        for (reason, count) in &other.skipped {
            *self.skipped.entry(reason.clone()).or_default() += count;
        }
    }

    /// Counts a program that a backend skips.
    fn skip(&mut self, backend: &str, reason: &str) {
        *self.skipped.entry(format!("{backend}: {reason}")).or_default() += 1;
    }

    /// Share of output elements that are unspecified; 0 if there are no elements.
    pub fn unspecified_fraction(&self) -> f64 {
        self.share(self.unspecified_elements)
    }

    /// `count` as a share of all output elements.
    pub fn share(&self, count: u64) -> f64 {
        count as f64 / (self.checked_elements + self.unspecified_elements).max(1) as f64
    }

    /// Returns a message if elements are unspecified more often than allowed; `None` if not, or if
    /// there are too few elements to tell. The less an oracle specifies, the less it finds.
    pub fn unspecified_excess(&self) -> Option<String> {
        if self.checked_elements + self.unspecified_elements < UNSPECIFIED_SAMPLE {
            return None;
        }
        let too_many = |(origin, count): (&str, u64), limit_percent: f64| {
            let share = 100.0 * self.share(count);
            let words = format!("{origin}: {share:.3} % of all elements are unspecified");
            (share > limit_percent).then(|| format!("{words}, at most {limit_percent} % may be"))
        };
        too_many(("all ops", self.unspecified_elements), UNSPECIFIED_LIMIT_PERCENT).or_else(|| {
            self.unspecified.iter().find_map(|(origin, count)| {
                too_many((origin.as_str(), *count), UNSPECIFIED_LIMIT_PERCENT_OF_ORIGIN)
            })
        })
    }
}

/// Percent of all elements that may be unspecified.
const UNSPECIFIED_LIMIT_PERCENT: f64 = 1.0;
/// Percent of all elements that may be unspecified for one reason that one op introduces.
const UNSPECIFIED_LIMIT_PERCENT_OF_ORIGIN: f64 = 0.5;
/// Number of elements from which on these limits apply.
const UNSPECIFIED_SAMPLE: u64 = 100_000;

/// Kind of a backend's failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A wrong element.
    Mismatch,
    /// A well-formed program was refused, or outputs have the wrong number, dtype or shape.
    Refused,
    /// A panic or a dead process.
    Crash,
    /// No answer in time.
    Timeout,
    /// The machine failed, not the engine.
    Environment,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 5] =
        [Kind::Mismatch, Kind::Refused, Kind::Crash, Kind::Timeout, Kind::Environment];

    /// Name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Mismatch => "mismatch",
            Kind::Refused => "refused",
            Kind::Crash => "crash",
            Kind::Timeout => "timeout",
            Kind::Environment => "environment",
        }
    }

    /// The kind of this name, if there is one.
    pub fn from_name(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// One failure of one backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Name of the backend.
    pub backend: String,
    /// Kind of failure.
    pub kind: Kind,
    /// Observed and expected results.
    pub detail: String,
}

/// Runs the programs on every backend and judges each output element against the oracle.
/// Failures come with the position of their program, in order of position.
pub fn agree(
    programs: &[&Program],
    backends: &[Box<dyn Backend>],
) -> (Tally, Vec<(usize, Failure)>) {
    agree_in_steps(programs, backends, None, &mut |_| {})
}

/// Does what [`agree`] does. Programs of a hunt come with their numbers: each backend then runs
/// those that it [takes](Backend::takes). `began` is called with "oracle" before the oracle runs,
/// and with the name of each backend before that backend runs.
pub fn agree_in_steps(
    programs: &[&Program],
    backends: &[Box<dyn Backend>],
    numbers: Option<&[u64]>,
    began: &mut dyn FnMut(&str),
) -> (Tally, Vec<(usize, Failure)>) {
    assert!(numbers.is_none_or(|numbers| numbers.len() == programs.len()));
    let mut tally = Tally { programs: programs.len() as u64, ..Tally::default() };
    let mut failures = Vec::new();
    began("oracle");
    let expected: Vec<_> = programs.iter().map(|program| expectation(program)).collect();
    let origins: Vec<_> = programs.iter().zip(&expected).map(|(p, e)| origins(p, e)).collect();
    let mut strict = strict::References::default();
    for backend in backends {
        began(backend.name());
        let takes =
            |position: usize| numbers.is_none_or(|numbers| backend.takes(numbers[position]));
        let mut chosen = Vec::new();
        for (position, program) in programs.iter().enumerate() {
            if expected[position].is_err() || !takes(position) {
                continue;
            }
            match backend.supports(program).or_else(|| lost(backend.kept(), program)) {
                Some(reason) => tally.skip(backend.name(), &reason),
                None => chosen.push(position),
            }
        }
        let batch: Vec<&Program> = chosen.iter().map(|position| programs[*position]).collect();
        let outcomes = backend.run(&batch);
        assert_eq!(outcomes.len(), batch.len(), "one outcome for each program");
        for (position, outcome) in chosen.into_iter().zip(outcomes) {
            let Ok(expected) = &expected[position] else { continue };
            if let Outcome::Skipped(reason) = &outcome {
                tally.skip(backend.name(), reason);
                continue;
            }
            let program = programs[position];
            let before = tally.unspecified_elements;
            let wrong = judge_in_mode(&**backend, program, expected, &outcome, &mut tally);
            let wrong = wrong.or_else(|| {
                let Outcome::Values(values) = &outcome else { return None };
                let reference = backend.is_strict().then(|| strict.of(position, program));
                let difference = reference.flatten()?.difference(values)?;
                tally.mismatches += 1;
                Some((Kind::Mismatch, difference))
            });
            if let Some((kind, detail)) = wrong {
                let backend = backend.name().to_string();
                failures.push((position, Failure { backend, kind, detail }));
            }
            if tally.unspecified_elements > before {
                for (origin, count) in &origins[position] {
                    *tally.unspecified.entry(origin.clone()).or_default() += count;
                }
            }
        }
    }
    for (position, expected) in expected.into_iter().enumerate() {
        if let Err(detail) = expected {
            let backend = "oracle".to_string();
            tally.crashes += 1;
            failures.push((position, Failure { backend, kind: Kind::Crash, detail }));
        }
    }
    failures.sort_by_key(|(position, _)| *position);
    (tally, failures)
}

/// Judges the outcome of a backend and counts it. A long sum of strict mode, which adds in order,
/// may be beyond the usual bounds; if it is, those of a sum in order apply.
fn judge_in_mode(
    backend: &dyn Backend,
    program: &Program,
    expected: &[Expected],
    outcome: &Outcome,
    tally: &mut Tally,
) -> Option<(Kind, String)> {
    let kept = backend.kept();
    if backend.is_strict()
        && judge(expected, outcome, kept, &mut Tally::default()).is_some()
        && let Ok(in_order) = gradiff_oracle::evaluate_in_order(program)
    {
        return judge(&in_order, outcome, kept, tally);
    }
    judge(expected, outcome, kept, tally)
}

/// Evaluates a program with the oracle. A panic of the oracle becomes an error message, as its
/// errors do.
pub(crate) fn expectation(program: &Program) -> Result<Vec<Expected>, String> {
    crate::catch(|| gradiff_oracle::evaluate(program))
        .and_then(|result| result.map_err(|error| error.to_string()))
}

/// Number of unspecified elements of the outputs, by the op that introduces the reason and the
/// reason.
fn origins(program: &Program, expected: &Result<Vec<Expected>, String>) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    let Ok(expected) = expected else { return counts };
    if expected.iter().all(|output| output.reasons().next().is_none()) {
        return counts;
    }
    let origins = gradiff_oracle::origins(program).unwrap_or_default();
    for (output, origins) in expected.iter().zip(&origins) {
        for reason in output.reasons() {
            let statement = origins.get(&reason).map(|number| &program.statements[*number]);
            let line = statement.map(ToString::to_string).unwrap_or_default();
            let op = line.split_whitespace().next().unwrap_or("input");
            *counts.entry(format!("{op} {}", reason.name())).or_default() += 1;
        }
    }
    counts
}

/// Describes a wrong element.
pub(crate) fn difference(output: usize, dtype: gradiff_corpus::DType, at: &Mismatch) -> String {
    let found = gradiff_corpus::format_element(dtype, at.got_bits);
    format!("element {} of output {output} is {found}, expected {}", at.index, at.expected)
}

/// Copies the values, with the expected bits for what the backend does not keep: the sign of a zero
/// that has the wrong one, the bits of a NaN where one is expected, a subnormal number where a zero
/// takes its place.
fn with_bits_of(expected: &Expected, value: &Array, kept: Kept) -> Array {
    let mut value = value.clone();
    if !value.dtype.is_float() {
        return value;
    }
    let sign = sign(value.dtype);
    let is_nan = |bits| Element::Nan.admits(value.dtype, bits);
    for (bits, element) in value.bits.iter_mut().zip(expected.elements()) {
        let is_free_zero = !kept.zero_signs && *bits & !sign == 0;
        if is_free_zero && !element.admits(value.dtype, *bits) {
            *bits ^= sign;
        }
        let is_flushed = !kept.subnormals && *bits & !sign == 0;
        match element {
            Element::Exact(nan) if !kept.nan_bits && is_nan(*bits) && is_nan(nan) => *bits = nan,
            Element::Exact(small) if is_flushed && is_subnormal(value.dtype, small) => {
                *bits = small;
            }
            Element::Ball { center, radius, .. }
                if is_flushed && has_subnormal(value.dtype, center, radius) =>
            {
                *bits = nearest(value.dtype, center);
            }
            _ => {}
        }
    }
    value
}

/// Returns the bits of the nearest float of this type.
pub(crate) fn nearest(dtype: DType, number: f64) -> u64 {
    let dtype = match dtype {
        DType::F16 => graph::DType::F16,
        DType::BF16 => graph::DType::BF16,
        DType::F32 => graph::DType::F32,
        _ => graph::DType::F64,
    };
    gradiff_eval::scalar::float(dtype, number).map_or(0, |number| number.bits())
}

/// Returns the bits of the smallest normal number of a float dtype.
fn least_normal(dtype: DType) -> u64 {
    match dtype {
        DType::F16 => 1 << 10,
        DType::BF16 => 1 << 7,
        DType::F32 => 1 << 23,
        _ => 1 << 52,
    }
}

/// Returns whether the bits of a float are those of a number below the smallest normal one.
fn is_subnormal(dtype: DType, bits: u64) -> bool {
    (1..least_normal(dtype)).contains(&(bits & !sign(dtype)))
}

/// Returns whether the nearest float to the center of a ball is subnormal, or a number within the
/// ball is below the smallest normal one although zero is not within.
fn has_subnormal(dtype: DType, center: f64, radius: f64) -> bool {
    let least = center.abs() - radius;
    let is_below = least < float_value(dtype, least_normal(dtype));
    is_subnormal(dtype, nearest(dtype, center)) || 0.0 < least && is_below
}

/// The bit of a float that is its sign.
fn sign(dtype: DType) -> u64 {
    1 << (8 * dtype.size_bytes() - 1)
}

/// A property that some elements of an operand have, and that a backend need not keep or define.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Loss {
    SignOfZero,
    NanBits,
    Subnormal,
    ZeroDivisor,
}

impl Loss {
    fn has(self, dtype: DType, element: Element) -> bool {
        let bits = match element {
            Element::Exact(bits) => bits,
            // A zero among the numbers within the bound.
            Element::Ball { center, radius, .. }
                if self == Loss::SignOfZero && center.abs() <= radius =>
            {
                return true;
            }
            Element::Ball { center, radius, .. } if self == Loss::Subnormal => {
                return dtype.is_float() && has_subnormal(dtype, center, radius);
            }
            Element::Ball { center, .. } => nearest(dtype, center),
            Element::Zero => 0,
            Element::Nan => return false,
            // An unknown divisor may be zero.
            Element::Unspecified(_) => return self == Loss::ZeroDivisor,
        };
        match self {
            Loss::SignOfZero => dtype.is_float() && bits & !sign(dtype) == 0,
            Loss::NanBits => dtype.is_float() && Element::Nan.admits(dtype, bits),
            Loss::Subnormal => dtype.is_float() && is_subnormal(dtype, bits),
            Loss::ZeroDivisor => bits == 0,
        }
    }

    /// The reason to skip a program.
    fn reason(self) -> &'static str {
        match self {
            Loss::SignOfZero => "the result may depend on the sign of a zero",
            Loss::NanBits => "the result may depend on the bits of a NaN",
            Loss::Subnormal => "it may take zeros for the subnormal numbers inside",
            Loss::ZeroDivisor => "it does not define the division of an integer by zero",
        }
    }
}

/// The reason to skip a program on a backend that does not keep or define what the program computes
/// with: the oracle does not know what may come of it.
fn lost(kept: Kept, program: &Program) -> Option<String> {
    if kept == Kept::ALL {
        return None;
    }
    let types = program.typing().ok()?;
    let mut read: Vec<(ValueId, Loss)> = Vec::new();
    for (statement, of) in program.statements.iter().zip(&types) {
        if !kept.zero_signs {
            read.extend(sign_operands(statement).into_iter().map(|id| (id, Loss::SignOfZero)));
        }
        if !kept.nan_bits {
            read.extend(bit_operands(statement).into_iter().map(|id| (id, Loss::NanBits)));
        }
        if !kept.subnormals {
            statement.for_each_source(|id| read.push((id, Loss::Subnormal)));
            if has_subnormal_literal(statement, &types, of.dtype) {
                return Some(Loss::Subnormal.reason().to_string());
            }
        }
        if !kept.zero_divisors && of.dtype.is_int() {
            match divisor(statement) {
                Some(Operand::Value(id)) => read.push((id, Loss::ZeroDivisor)),
                Some(Operand::Literal(Literal::Int(0))) => {
                    return Some(Loss::ZeroDivisor.reason().to_string());
                }
                _ => {}
            }
        }
    }
    if read.is_empty() {
        return None;
    }
    let outputs = read.iter().map(|(id, _)| *id).collect();
    let values = expectation(&Program { outputs, ..program.clone() }).ok()?;
    let found = values
        .iter()
        .zip(&read)
        .find(|(value, (_, loss))| value.elements().any(|element| loss.has(value.dtype, element)));
    let found = found.map(|(_, (_, loss))| *loss).or_else(|| {
        // Where subnormal numbers are not kept, all sources are read.
        let value_of = |id: ValueId| {
            let number = read.iter().position(|(read, _)| *read == id)?;
            values.get(number)
        };
        let mut typed = program.statements.iter().zip(&types);
        let is_small = |(statement, of): (&Statement, &TensorType)| {
            has_small_product(&factors(statement, &types), of.dtype, &value_of)
        };
        (!kept.subnormals && typed.any(is_small)).then_some(Loss::Subnormal)
    });
    found.map(|loss| loss.reason().to_string())
}

/// Returns whether a statement that computes has a subnormal number as a literal, which takes the
/// promoted dtype of the values among the operands, or that of the result.
fn has_subnormal_literal(statement: &Statement, types: &[TensorType], result: DType) -> bool {
    let operands: &[Operand] = match statement {
        Statement::Binary { srcs, .. } => srcs,
        Statement::MulAcc { srcs } => srcs,
        _ => return false,
    };
    let values = operands.iter().filter_map(|operand| match operand {
        Operand::Value(id) => Some(types[id.0 as usize].dtype),
        Operand::Literal(_) => None,
    });
    let dtype = values.reduce(gradiff_corpus::promote).unwrap_or(result);
    let is_small = |operand: &Operand| match operand {
        Operand::Literal(Literal::Float(x)) => is_subnormal(dtype, nearest(dtype, *x)),
        _ => false,
    };
    dtype.is_float() && operands.iter().any(is_small)
}

/// The operands whose elements are multiplied within a statement, each with the number of its
/// elements that a product has at most. These products are no values of the program.
fn factors(statement: &Statement, types: &[TensorType]) -> Vec<(Operand, usize)> {
    let once = |srcs: &[ValueId]| srcs.iter().map(|id| (Operand::Value(*id), 1)).collect();
    let type_of = |id: &ValueId| &types[id.0 as usize];
    match statement {
        Statement::MulAcc { srcs: [x, y, _] } => vec![(*x, 1), (*y, 1)],
        Statement::Reduce { op: ReduceOp::Prod, src, axes } => {
            let count = axes.iter().map(|axis| type_of(src).shape[*axis]).product();
            vec![(Operand::Value(*src), count)]
        }
        Statement::Method { method, srcs, .. } => match (method, &srcs[..]) {
            (
                Method::Matmul
                | Method::Dot
                | Method::Conv2d
                | Method::ConvTranspose2d
                | Method::Einsum,
                srcs,
            ) => once(srcs),
            (Method::Linear, [x, weight, ..]) => once(&[*x, *weight]),
            (Method::Cumprod, [src]) => vec![(Operand::Value(*src), type_of(src).count())],
            // Of squares.
            (Method::Var | Method::Std | Method::LayerNorm | Method::Normalize, [src]) => {
                once(&[*src, *src])
            }
            _ => Vec::new(),
        },
        _ => Vec::new(),
    }
}

/// Returns whether a product of elements of these factors may be less than the least normal number
/// of a dtype, but not 0. A product of two operands has an element of each; with more factors, any
/// of them may be multiplied first.
fn has_small_product<'a>(
    factors: &[(Operand, usize)],
    dtype: DType,
    value_of: &dyn Fn(ValueId) -> Option<&'a Expected>,
) -> bool {
    // The exponents of the least normal numbers.
    let least = match dtype {
        DType::F16 => -14.0,
        DType::BF16 | DType::F32 => -126.0,
        DType::F64 => -1022.0,
        _ => return false,
    };
    let mut product = 0.0;
    for (operand, count) in factors {
        let logarithms = logarithms(operand, value_of);
        let Some(first) = logarithms.first() else { return false };
        let several: f64 = logarithms.iter().take(*count).filter(|log| **log < 0.0).sum();
        product += if *count == 1 && factors.len() == 2 { *first } else { several };
    }
    !factors.is_empty() && product < least
}

/// The binary logarithms of the magnitudes of an operand's elements, the least first. Zeros, and
/// elements that are no numbers, have none.
fn logarithms<'a>(
    operand: &Operand,
    value_of: &dyn Fn(ValueId) -> Option<&'a Expected>,
) -> Vec<f64> {
    let numbers: Vec<f64> = match operand {
        Operand::Literal(Literal::Float(x)) => vec![*x],
        Operand::Literal(Literal::Int(x)) => vec![*x as f64],
        Operand::Literal(Literal::Bool(x)) => vec![f64::from(u8::from(*x))],
        Operand::Value(id) => value_of(*id).map_or_else(Vec::new, |value| {
            let number = |element| match element {
                Element::Exact(bits) if value.dtype.is_float() => {
                    gradiff_corpus::float_value(value.dtype, bits)
                }
                Element::Ball { center, .. } => center,
                _ => 0.0,
            };
            value.elements().map(number).collect()
        }),
    };
    let finite = numbers.into_iter().filter(|number| number.is_finite() && *number != 0.0);
    let mut logarithms: Vec<f64> = finite.map(|number| number.abs().log2()).collect();
    logarithms.sort_by(f64::total_cmp);
    logarithms
}

/// The operands whose sign, if they are zeros, affects more than the sign of a zero.
fn sign_operands(statement: &Statement) -> Vec<ValueId> {
    match statement {
        Statement::Unary { op: UnaryOp::Recip, .. }
        | Statement::Bitcast { .. }
        | Statement::Method { method: Method::Rsqrt | Method::CopySign | Method::Keccak, .. } => {
            statement.sources()
        }
        Statement::Binary { op: BinaryOp::Div, srcs: [_, Operand::Value(divisor)] } => {
            vec![*divisor]
        }
        Statement::Binary { op: BinaryOp::Pow, srcs: [Operand::Value(base), _] } => vec![*base],
        _ => Vec::new(),
    }
}

/// The operands whose bits, if they are NaN, affect more than the bits of a NaN.
fn bit_operands(statement: &Statement) -> Vec<ValueId> {
    match statement {
        Statement::Bitcast { .. }
        | Statement::Method { method: Method::CopySign | Method::Keccak, .. } => {
            statement.sources()
        }
        _ => Vec::new(),
    }
}

/// The divisor of a quotient or remainder of integers.
fn divisor(statement: &Statement) -> Option<Operand> {
    use BinaryOp::{CDiv, CMod, FloorDiv, FloorMod};
    match statement {
        Statement::Binary { op: CDiv | CMod | FloorDiv | FloorMod, srcs: [_, divisor] } => {
            Some(*divisor)
        }
        _ => None,
    }
}

/// Compares an outcome with the expected outputs and counts it. Returns what is wrong, if anything.
pub(crate) fn judge(
    expected: &[Expected],
    outcome: &Outcome,
    kept: Kept,
    tally: &mut Tally,
) -> Option<(Kind, String)> {
    let values = match outcome {
        Outcome::Values(values) => values,
        Outcome::Skipped(_) => return None,
        Outcome::Refused(reason) => {
            tally.mismatches += 1;
            return Some((Kind::Refused, reason.clone()));
        }
        Outcome::Crash(message) => {
            tally.crashes += 1;
            return Some((Kind::Crash, message.clone()));
        }
        Outcome::Environment(reason) => {
            tally.environment += 1;
            return Some((Kind::Environment, reason.clone()));
        }
        Outcome::Timeout(seconds) => {
            tally.timeouts += 1;
            return Some((Kind::Timeout, format!("no answer within {seconds} s")));
        }
    };
    if values.len() != expected.len() {
        tally.mismatches += 1;
        let detail = format!("{} outputs, expected {}", values.len(), expected.len());
        return Some((Kind::Refused, detail));
    }
    let mut first = None;
    for (number, (expected, value)) in expected.iter().zip(values).enumerate() {
        if (value.dtype, &value.shape) != (expected.dtype, &expected.shape) {
            let described = |dtype: gradiff_corpus::DType, shape: &[usize]| {
                format!("{}{shape:?}", dtype.name())
            };
            let detail = format!(
                "output {number} is {}, expected {}",
                described(value.dtype, &value.shape),
                described(expected.dtype, &expected.shape)
            );
            first.get_or_insert((Kind::Refused, detail));
            continue;
        }
        let verdict = match kept == Kept::ALL {
            true => expected.judge(value),
            false => expected.judge(&with_bits_of(expected, value, kept)),
        };
        tally.checked_elements += verdict.checked as u64;
        tally.unspecified_elements += verdict.unspecified as u64;
        tally.vacuous_elements += verdict.vacuous as u64;
        if let Some(mismatch) = verdict.mismatch {
            let detail = difference(number, value.dtype, &mismatch);
            first.get_or_insert((Kind::Mismatch, detail));
        }
    }
    tally.mismatches += u64::from(first.is_some());
    first
}

#[cfg(test)]
mod tests {
    use gradiff_corpus::{Case, DType, parse};

    use super::*;

    struct Echo;

    impl Backend for Echo {
        fn name(&self) -> &str {
            "echo"
        }

        fn run(&self, programs: &[&Program]) -> Vec<Outcome> {
            let expected = programs.iter().map(|program| expectation(program).unwrap());
            let array = |output: &Expected| {
                let bits = output.elements().map(|element| match element {
                    gradiff_oracle::Element::Exact(bits) => bits,
                    _ => 0,
                });
                Array { dtype: output.dtype, shape: output.shape.clone(), bits: bits.collect() }
            };
            expected.map(|outputs| Outcome::Values(outputs.iter().map(array).collect())).collect()
        }

        fn supports(&self, _: &Program) -> Option<String> {
            None
        }
    }

    #[test]
    fn unspecified_elements_are_counted_by_op_and_reason_and_may_not_be_many() {
        let zeros = |count: usize| {
            let text = format!(
                "a = input i32[200000] seeded(1, small)\nb = arange i32[200000] start=0 step=1\n\
                 c = floordiv b {}\nd = cdiv a c\ne = flip d axes=[0]\noutput e\n",
                count
            );
            let Case::Program(program) = parse(&text).unwrap().case else { panic!("a program") };
            let backends: [Box<dyn Backend>; 1] = [Box::new(Echo)];
            let mut began = Vec::new();
            let (tally, failures) = agree_in_steps(&[&program], &backends, None, &mut |name| {
                began.push(name.to_string())
            });
            assert_eq!((failures, began), (vec![], vec!["oracle".into(), "echo".into()]));
            assert_eq!(tally.unspecified_elements, count as u64);
            let by_op = BTreeMap::from([("cdiv division-by-zero".to_string(), count as u64)]);
            assert_eq!(tally.unspecified, by_op);
            tally
        };
        assert_eq!(zeros(900).unspecified_excess(), None);
        let of_op = zeros(1100).unspecified_excess().expect("0.55 % of one op");
        assert!(of_op.starts_with("cdiv division-by-zero: 0.550 %"), "{of_op}");
        let of_all_ops = zeros(2100).unspecified_excess().expect("1.05 % of all");
        assert!(of_all_ops.starts_with("all ops: 1.050 %"), "{of_all_ops}");
        let few = Tally { unspecified_elements: 9, ..Tally::default() };
        assert_eq!(few.unspecified_excess(), None);
        // 3 * 0.1 - 0.3, of two elements, may have any sign.
        let text = "a = input f32[2] [0.1, 5.0]\nb = mul a 3.0\nc = sub b 0.3\noutput c\n";
        let Case::Program(program) = parse(text).unwrap().case else { panic!("a program") };
        let backends: [Box<dyn Backend>; 1] = [Box::new(Echo)];
        let (tally, _) = agree(&[&program], &backends);
        assert_eq!((tally.checked_elements, tally.vacuous_elements), (2, 1));
        let mut twice = zeros(900);
        twice.add(&zeros(900));
        assert_eq!(twice.unspecified.values().sum::<u64>(), 1800);
    }

    #[test]
    fn signs_of_zeros_alone_are_not_judged_where_none_are_kept() {
        let file = parse("a = input f32[2] [0.0, 1.0]\noutput a\n").unwrap();
        let Case::Program(program) = file.case else { panic!("it is a program") };
        let expected = expectation(&program).unwrap();
        let failure = |values: [f32; 2], zero_signs| {
            let kept = Kept { zero_signs, ..Kept::ALL };
            let bits = values.map(|value| u64::from(value.to_bits())).to_vec();
            let outcome = Outcome::Values(vec![Array { dtype: DType::F32, shape: vec![2], bits }]);
            judge(&expected, &outcome, kept, &mut Tally::default())
        };
        assert_eq!(failure([0.0, 1.0], true), None);
        assert_eq!(failure([-0.0, 1.0], false), None);
        assert!(failure([-0.0, 1.0], true).is_some());
        assert!(failure([-0.0, -1.0], false).is_some() && failure([1e-45, 1.0], false).is_some());
    }

    #[test]
    fn bits_of_nan_and_subnormal_numbers_are_judged_where_they_are_kept() {
        let file = parse("a = input f32[2] [bits:0x7fc00001, 1e-45]\noutput a\n").unwrap();
        let Case::Program(program) = file.case else { panic!("it is a program") };
        let expected = expectation(&program).unwrap();
        let is_right = |bits: [u64; 2], kept| {
            let array = Array { dtype: DType::F32, shape: vec![2], bits: bits.to_vec() };
            let outcome = Outcome::Values(vec![array]);
            judge(&expected, &outcome, kept, &mut Tally::default()).is_none()
        };
        let no_nan_bits = Kept { nan_bits: false, ..Kept::ALL };
        assert!(is_right([0x7fc0_0001, 1], Kept::ALL) && is_right([0xffc0_0000, 1], no_nan_bits));
        assert!(!is_right([0xffc0_0000, 1], Kept::ALL) && !is_right([0x7f80_0000, 1], no_nan_bits));
        let no_subnormals = Kept { subnormals: false, ..Kept::ALL };
        assert!(is_right([0x7fc0_0001, 0], no_subnormals));
        assert!(is_right([0x7fc0_0001, 0x8000_0000], no_subnormals));
        assert!(
            !is_right([0x7fc0_0001, 0], Kept::ALL) && !is_right([0x7fc0_0001, 2], no_subnormals)
        );
        assert!(!is_right([0, 1], no_subnormals));
    }

    #[test]
    fn programs_that_read_bits_of_nan_or_signs_are_skipped_where_these_are_not_kept() {
        let reason = |text: &str| {
            let Case::Program(program) = parse(text).unwrap().case else { panic!("a program") };
            assert_eq!(lost(Kept::ALL, &program), None);
            lost(Kept { nan_bits: false, ..Kept::ALL }, &program)
        };
        let bits = Some(Loss::NanBits.reason().to_string());
        let nan = "a = input f32[2] [1.0, nan]\n";
        assert_eq!(reason(&format!("{nan}b = bitcast a i32\noutput b\n")), bits);
        assert_eq!(reason(&format!("{nan}b = copysign a a\noutput b\n")), bits);
        assert_eq!(reason(&format!("{nan}b = cat [a,a] axis=0\noutput b\n")), None);
        assert_eq!(reason("a = input f32[1] [2.0]\nb = bitcast a i32\noutput b\n"), None);
        let digest = "b = keccak a function=sha3_256\noutput b\n";
        assert_eq!(reason(&format!("{nan}{digest}")), bits);
        let signs = |text: &str| {
            let Case::Program(program) = parse(text).unwrap().case else { panic!("a program") };
            lost(Kept { zero_signs: false, ..Kept::ALL }, &program)
        };
        let sign = Some(Loss::SignOfZero.reason().to_string());
        assert_eq!(signs(&format!("a = input f32[2] [-0.0, 1.0]\n{digest}")), sign);
        assert_eq!(signs(&format!("a = input f32[2] [2.0, 1.0]\n{digest}")), None);
        assert_eq!(signs(&format!("a = input u8[2] [0, 1]\n{digest}")), None);
        // A power that may underflow to a zero, of known sign.
        let copied = "a = input f32[1] [-200.0]\nb = exp a\nc = copysign a b\noutput c\n";
        assert_eq!(signs(copied), sign);
    }

    /// These have no subnormal number as a value, but as a literal or a product within a statement.
    #[test]
    fn programs_with_subnormal_numbers_inside_are_skipped_where_these_are_not_kept() {
        let reason = |text: &str| {
            let Case::Program(program) = parse(text).unwrap().case else { panic!("a program") };
            assert_eq!(lost(Kept::ALL, &program), None);
            lost(Kept { subnormals: false, ..Kept::ALL }, &program)
        };
        let tiny = Some(Loss::Subnormal.reason().to_string());
        for (text, is_skipped) in [
            ("a = input f32[1] [1e10]\nb = mul a 1.0e-40", true),
            ("a = input f32[1] [1e10]\nb = mul a 1.0e-30", false),
            ("a = input f32[1] [1e10]\nb = cmplt a 1.0e-40", true),
            ("a = input f32[1] [1e-20]\nb = mulacc a 1.0e-19 1.2e-38", true),
            ("a = input f32[1] [1e-20]\nb = mulacc a 1.0e-17 1.2e-38", false),
            ("a = input f32[3] [1e-30, 1e-10, 1e30]\nb = prod a axes=[0]", true),
            ("a = input f32[3] [1e-20, 1e-10, 1e30]\nb = prod a axes=[0]", false),
            ("a = input f32[1,1] [1e-20]\nb = matmul a a", true),
            ("a = input f32[1,1] [1e-15]\nb = matmul a a", false),
            ("a = input f32[2] [0.0, 1e-25]\nb = var a axes=[0] keepdim=false correction=0", true),
            ("a = input i32[1] [3]\nb = prod a axes=[0]", false),
        ] {
            let found = reason(&format!("{text}\noutput b\n"));
            assert_eq!(found, tiny.clone().filter(|_| is_skipped), "{text}");
        }
    }

    /// So they do if the number is the smallest normal one, and a result within its bound is not.
    #[test]
    fn zeros_take_the_place_of_computed_subnormal_numbers_of_each_type() {
        for (dtype, number, op) in [
            (DType::F16, "60000.0", "recip"),
            (DType::BF16, "2.0e38", "recip"),
            (DType::F32, "2.0e38", "recip"),
            (DType::F64, "1.0e308", "recip"),
            (DType::F32, "-126.0", "exp2"),
        ] {
            let text = format!("a = input {}[1] [{number}]\nb = {op} a\noutput b\n", dtype.name());
            let Case::Program(program) = parse(&text).unwrap().case else { panic!("a program") };
            let expected = expectation(&program).unwrap();
            let array = Array { dtype, shape: vec![1], bits: vec![0] };
            let is_right = |kept| {
                let outcome = Outcome::Values(vec![array.clone()]);
                judge(&expected, &outcome, kept, &mut Tally::default()).is_none()
            };
            assert!(is_right(Kept { subnormals: false, ..Kept::ALL }), "{dtype:?}");
            assert!(!is_right(Kept::ALL), "{dtype:?}");
        }
    }
}
