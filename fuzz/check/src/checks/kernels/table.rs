//! Checks every op of every type and number of lanes that a language supports: its text must give
//! the same results as the evaluator, also on edge values and on constants.
//!
//! Drawn kernels contain a given op of a given type by chance only, and never arithmetic of 16-bit
//! floats. Here each pair of an op and a type occurs. A kernel has all ops of a type and a number
//! of lanes, on operands that are loaded, constant, or all the same.

use gradiff::graph::op::OPS;
use gradiff::graph::{
    Arg, Axis, AxisKind, BoundedLinear, Constant, DType, Global, Instruction, Linear, Op,
};
use gradiff::render::{LANGUAGES, Language};
use gradiff::runtime::Executable;
use gradiff_eval::{Elements, scalar};

use super::draw::{Builder, Form, Style, Value};
use super::{SAID, is_same, open, products};
use crate::checks::calls::Draw;

/// The number of elements on which each op is tried, a multiple of the lanes of every vector.
const ELEMENTS: i64 = 64;

/// The number of variants of each op, in a kernel of single values and in a kernel of vectors.
const VARIANTS: [i64; 2] = [4, 2];

/// The numbers of lanes for which texts are rendered: those around the limits of all languages.
const LANES_TRIED: [u8; 12] = [1, 2, 3, 4, 5, 8, 16, 32, 63, 64, 65, 128];

/// The elementwise ops that are not tried alone: casts and bitcasts have rows of their own, the
/// error of functions depends on the language, and no language has Threefry.
const NOT_EXACT: [Op; 7] =
    [Op::Cast, Op::Bitcast, Op::Exp2, Op::Log2, Op::Sin, Op::Pow, Op::Threefry];

/// The elementwise ops of a type that give the same bits everywhere.
fn exact_ops(from: DType) -> impl Iterator<Item = Op> {
    let rows = OPS.iter().filter(move |row| row.op.is_elementwise() && row.operands.contains(from));
    rows.map(|row| row.op).filter(|op| !NOT_EXACT.contains(op))
}

/// A kernel, and the elements of its arrays before and after it runs.
pub(super) type Case = (BoundedLinear, Vec<Elements>, Vec<Elements>);

/// An op and the type of its result.
type Row = (Op, DType);

/// The ops on `lanes` lanes of a type, with the types of their results.
fn rows(style: &Style, from: DType, lanes: u8) -> Vec<Row> {
    let to = |op: Op| if op.is_comparison() { DType::Bool } else { from };
    let plain = exact_ops(from).map(|op| (op, to(op)));
    let other_types = || style.dtypes.iter().copied().filter(move |to| *to != from);
    let casts = style.dtypes.iter().map(|to| (Op::Cast, *to));
    let is_as_wide = move |to: &DType| {
        let is_bool = [from, *to].contains(&DType::Bool);
        !is_bool && to.size_bytes() == from.size_bytes()
    };
    let bitcasts = other_types().filter(is_as_wide).map(|to| (Op::Bitcast, to));
    let has = |row: &Row| lanes == 1 || style.computes(row.1, lanes);
    plain.chain(casts).chain(bitcasts).filter(has).collect()
}

/// The types and numbers of lanes of a language, in a fixed order.
fn cases(style: &Style) -> Vec<(DType, u8)> {
    let lanes = |dtype: DType| {
        let vectors = style.lanes.iter().filter(move |lanes| style.computes(dtype, **lanes));
        std::iter::once(1).chain(vectors.copied()).map(move |lanes| (dtype, lanes))
    };
    style.dtypes.iter().flat_map(|dtype| lanes(*dtype)).collect()
}

/// Returns the number of cases of a device or language.
pub fn count_of_cases(device: &str) -> u64 {
    cases(&Style::of(device)).len() as u64
}

/// Checks the [cases](count_of_cases) with these numbers on a device or in a language, and a
/// product of its tensor cores. Elements and constants follow from the seed.
///
/// # Errors
/// An op of the language that has no text, or that gives another result than the evaluator.
pub fn check_cases(device: &str, seed: u64, numbers: &[u64]) -> Result<(), String> {
    let style = Style::of(device);
    let pairs = cases(&style);
    let mut drawn = Vec::new();
    for number in numbers {
        let (from, lanes) = pairs[(*number % pairs.len() as u64) as usize];
        let mut draw = Draw::new(seed ^ number << 32);
        let rows = rows(&style, from, lanes);
        let kernel = kernel(&mut draw, &style, &rows, from, lanes);
        let case =
            expected(kernel, &mut draw, &style).map_err(|problem| format!("{SAID}: {problem}"));
        drawn.push(case?);
    }
    let product = products::case(device, &mut Draw::new(seed));
    drawn.extend(product.map_err(|problem| format!("{SAID}: {problem}"))?);
    let opened = open(device)?;
    let kernels: Vec<&BoundedLinear> = drawn.iter().map(|(kernel, ..)| kernel).collect();
    let compiled =
        opened.compile(&kernels).map_err(|error| format!("{SAID} on {device}: {error}"))?;
    for ((kernel, before, after), executable) in drawn.iter().zip(compiled) {
        compare(&*executable, kernel, before, after)
            .map_err(|problem| report(device, kernel, &problem))?;
    }
    Ok(())
}

/// Checks that rendering each op of a type, with each number of lanes, gives a text or an error;
/// that it gives a text if the language supports the op, and an error for vectors that it does not
/// have; and that the language has the vectors that its row claims.
///
/// # Errors
/// A panic, an op or a vector that should have a text and has none, or the other way round.
///
/// # Panics
/// If there is no such language.
pub fn check_texts(language: &str, from: DType) -> Result<(), String> {
    let language = LANGUAGES.iter().find(|row| row.name == language).expect("a language");
    let style = Style::of(language.name);
    // Those have vectors of any number of lanes, or registers for each lane.
    let has_all_vectors = matches!(language.name, "llvm" | "ptx");
    for lanes in LANES_TRIED {
        let has_lanes = lanes == 1 || has_all_vectors || style.lanes.contains(&lanes);
        for op in OPS.iter().map(|row| row.op).filter(|op| op.is_elementwise()) {
            let result_types =
                if matches!(op, Op::Cast | Op::Bitcast) { &DType::ALL[..] } else { &[] };
            for to in [from, DType::Bool].iter().chain(result_types) {
                let kernel = single_op_kernel(op, from, *to, lanes);
                if gradiff::graph::verify::verify_kernel(&kernel).is_ok() {
                    let rendered = crate::catch(|| (language.render)(&kernel));
                    let rendered =
                        rendered.map_err(|panic| report(language.name, &kernel, &panic))?;
                    if let Some(line) = rendered.as_ref().ok().and_then(|code| hole(&code.text)) {
                        let problem = format!("an operand is missing in `{line}`");
                        return Err(report(language.name, &kernel, &problem));
                    }
                    let has_text = rendered.is_ok();
                    if has_text && !has_lanes {
                        let problem = format!("it has a text with vectors of {lanes} lanes");
                        return Err(report(language.name, &kernel, &problem));
                    }
                }
            }
        }
        if cases(&style).contains(&(from, lanes)) {
            for (op, to) in rows(&style, from, lanes) {
                let kernel = single_op_kernel(op, from, to, lanes);
                check_text(language, &kernel)
                    .map_err(|problem| report(language.name, &kernel, &problem))?;
            }
        }
        let has_vector = lanes <= (language.lanes_max)(from) && lanes.is_power_of_two();
        if has_vector && style.dtypes.contains(&from) {
            let copy = copy(from, lanes);
            check_text(language, &copy)
                .map_err(|problem| report(language.name, &copy, &problem))?;
        }
    }
    Ok(())
}

/// A kernel of a single op on values that are the same in all lanes; it stores one lane.
pub(super) fn single_op_kernel(op: Op, from: DType, to: DType, lanes: u8) -> Linear {
    let mut uops = Vec::new();
    let mut push = |op: Op, dtype: DType, lanes: u8, src: &[u32], arg: Arg| {
        uops.push(Instruction { lanes, ..Instruction::new(op, dtype, src.iter().copied(), arg) });
        uops.len() as u32 - 1
    };
    let types = [to, from, DType::Bool];
    let arrays = [0, 1, 2].map(|slot| {
        let arg = Arg::Global(Global { slot, size_elements: 1 });
        push(Op::DefineGlobal, types[slot], 1, &[], arg)
    });
    let zero = Arg::Const(Constant::int(DType::I32, 0));
    let position = push(Op::Const, DType::I32, 1, &[], zero);
    let indices =
        [0, 1, 2].map(|slot| push(Op::Index, types[slot], 1, &[arrays[slot], position], Arg::None));
    let [value, gate] = [1, 2].map(|slot| {
        let single = push(Op::Load, types[slot], 1, &[indices[slot]], Arg::None);
        match lanes {
            1 => single,
            _ => push(Op::Vectorize, types[slot], lanes, &[single], Arg::None),
        }
    });
    let src: Vec<u32> = match op {
        Op::Where => vec![gate, value, value],
        _ => vec![value; op.row().arity.0],
    };
    let mut result = push(op, to, lanes, &src, Arg::None);
    if lanes != 1 {
        result = push(Op::Lane, to, 1, &[result], Arg::Int(0));
    }
    push(Op::Store, DType::Void, 1, &[indices[0], result], Arg::None);
    Linear { name: "one".to_owned(), uops }
}

/// A kernel that copies one vector.
fn copy(dtype: DType, lanes: u8) -> Linear {
    let style = Style::of("interp");
    let mut draw = Draw::new(0);
    let (draw, style, values) = (&mut draw, &style, Vec::new());
    let mut builder = Builder { draw, style, uops: Vec::new(), lanes, offset: 0, values };
    let arrays = [0, 1].map(|slot| {
        let arg = Arg::Global(Global { slot, size_elements: lanes.into() });
        builder.push(Op::DefineGlobal, dtype, 1, &[], arg)
    });
    let position = builder.int(0);
    let [to, from] =
        arrays.map(|array| builder.push(Op::Index, dtype, 1, &[array, position], Arg::None));
    let value = builder.push(Op::Load, dtype, lanes, &[from], Arg::None);
    builder.push(Op::Store, DType::Void, 1, &[to, value], Arg::None);
    Linear { name: "copy".to_owned(), uops: builder.uops }
}

/// The first line of a text in which an operand is missing.
fn hole(text: &str) -> Option<&str> {
    const HOLES: [&str; 8] = ["=;", "=.", "(,", ",,", ",)", "(.", ",;", "+;"];
    // In PTX, lines that begin with a dot are directives.
    let lines = text.lines().filter(|line| !line.trim_start().starts_with(['/', '#', '.']));
    lines.map(str::trim).find(|line| {
        let code = line.split("//").next().unwrap_or("");
        let dense: String = code.split_whitespace().collect();
        HOLES.iter().any(|hole| dense.contains(hole)) || dense.ends_with('=')
    })
}

/// The message about a problem with a kernel.
fn report(device: &str, kernel: &Linear, problem: &str) -> String {
    format!("{SAID} on {device}: {problem}\n{kernel}")
}

/// Checks that the language has a text for the kernel.
fn check_text(language: &Language, kernel: &Linear) -> Result<(), String> {
    match crate::catch(|| (language.render)(kernel)) {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(format!("it has no text: {error}")),
        Err(panic) => Err(format!("it has no text: {panic}")),
    }
}

/// A kernel that applies each of these ops to the elements of its inputs, and again in variants:
/// with a constant in place of an operand, to constants only, or to equal operands. All results of
/// a type are in the same array, one after the other.
fn kernel(draw: &mut Draw, style: &Style, rows: &[Row], from: DType, lanes: u8) -> Linear {
    let offset = i64::from(lanes != 1 && !style.aligns_vectors());
    let mut builder = Builder { draw, style, uops: Vec::new(), lanes, offset, values: Vec::new() };
    let mut types: Vec<DType> = rows.iter().map(|(_, to)| *to).collect();
    types.sort_unstable();
    types.dedup();
    let trip_count = ELEMENTS / i64::from(lanes);
    let variants = VARIANTS[usize::from(lanes != 1)];
    let result_count =
        |to: DType| -> i64 { variants * rows.iter().filter(|row| row.1 == to).count() as i64 };
    let array = |builder: &mut Builder<'_>, slot: usize, dtype: DType, size_elements: i64| {
        let arg = Arg::Global(Global { slot, size_elements });
        builder.push(Op::DefineGlobal, dtype, 1, &[], arg)
    };
    let outputs: Vec<u32> = (0..)
        .zip(&types)
        .map(|(slot, to)| array(&mut builder, slot, *to, offset + result_count(*to) * ELEMENTS))
        .collect();
    let inputs: Vec<(u32, DType)> = (types.len()..)
        .zip([from, from, from, DType::Bool])
        .map(|(slot, dtype)| (array(&mut builder, slot, dtype, offset + ELEMENTS), dtype))
        .collect();
    let end = builder.int(trip_count);
    let arg = Arg::Axis(Axis { kind: AxisKind::Loop, number: 0 });
    let position = builder.push(Op::Range, DType::I32, 1, &[end], arg);
    for (input, dtype) in inputs {
        builder.load((input, dtype, trip_count), position);
    }
    let mut next = vec![0; types.len()];
    for (op, to) in rows {
        let to_number = types.binary_search(to).expect("it is one of the types");
        let arity = op.row().arity.0;
        let first = builder.draw.below(arity + 2);
        for number in 0..variants {
            let drawn = (first + number as usize) % (arity + 2);
            // WGSL folds an op on vectors of constants, and refuses it if it overflows.
            let is_constant = drawn == arity + 1 || drawn == 1 && arity == 1;
            let is_refused = style.is_wgsl && is_constant && lanes != 1;
            let variant = if number == 0 || is_refused { arity + 2 } else { drawn };
            let src = builder.sources(*op, from, variant);
            let value = builder.apply_to_all_lanes(*op, *to, &src.iter().collect::<Vec<_>>());
            builder.store(outputs[to_number], &value, position, next[to_number] * trip_count);
            next[to_number] += 1;
        }
    }
    builder.push(Op::EndRange, DType::Void, 1, &[position], Arg::None);
    Linear { name: "table".to_owned(), uops: builder.uops }
}

impl Builder<'_> {
    /// Returns the sources of an op in one of its variants, which are numbered from 0: all sources
    /// are the same value; for each source, it alone is a constant; all are constants; all are
    /// loaded.
    fn sources(&mut self, op: Op, from: DType, variant: usize) -> Vec<Value> {
        let arity = op.row().arity.0;
        let mut src: Vec<Value> = match op {
            Op::Where => [3, 0, 1].map(|at: usize| self.values[at].clone()).to_vec(),
            _ => self.values[..arity].to_vec(),
        };
        if variant == 0 {
            let first = src[arity - 1].clone();
            for value in &mut src {
                if value.dtype == first.dtype {
                    *value = first.clone();
                }
            }
        } else if variant <= arity {
            let dtype = src[variant - 1].dtype;
            let value = edge(self.draw, self.style, dtype);
            src[variant - 1] = self.number(value);
        } else if variant == arity + 1 {
            for value in &mut src {
                let edge = edge(self.draw, self.style, value.dtype);
                *value = self.number(edge);
            }
        }
        // A factor of 1 or -1 makes the product exact, so its rounding before the sum does not
        // matter.
        if op == Op::MulAcc && from.is_float() {
            let sign = if self.draw.one_in(2) { 1.0 } else { -1.0 };
            let factor = self.draw.below(2);
            src[factor] = self.number(scalar::float(from, sign).expect("a float"));
        }
        src
    }

    /// Applies an op to all lanes of its sources.
    fn apply_to_all_lanes(&mut self, op: Op, dtype: DType, src: &[&Value]) -> Value {
        let src: Vec<u32> = match self.lanes {
            1 => src.iter().map(|value| self.lanes(value)[0]).collect(),
            _ => src.iter().map(|value| self.vector(value)).collect(),
        };
        let result = self.push(op, dtype, self.lanes, &src, Arg::None);
        let form = if self.lanes == 1 { Form::Lanes(vec![result]) } else { Form::Vector(result) };
        Value { dtype, form, has_bits: false }
    }
}

/// An edge value of a type, or one with random bits; but no NaN if the language gives NaNs of this
/// type any payload.
pub(super) fn edge(draw: &mut Draw, style: &Style, dtype: DType) -> Constant {
    let value = any_edge(draw, dtype);
    let is_nan = scalar::to_float(value).is_some_and(f64::is_nan);
    if is_nan && style.free_nan == Some(dtype) { scalar::zero(dtype) } else { value }
}

/// An edge value of a type, or one with random bits.
fn any_edge(draw: &mut Draw, dtype: DType) -> Constant {
    if dtype == DType::Bool {
        return Constant::bool(draw.one_in(2));
    }
    let bits = scalar::bits(dtype);
    if bits == 0 {
        let value = draw.pick(&FLOAT_EDGES);
        return match draw.below(5) {
            4 => scalar::float(dtype, draw.near_tie()).expect("a float"),
            0 => Constant::from_bits(dtype, draw.bits()),
            // The smallest subnormals.
            1 if draw.one_in(4) => Constant::from_bits(dtype, 1 + draw.below(2) as u64),
            // A quiet NaN with any payload.
            1 if draw.one_in(3) => {
                let nan = scalar::float(dtype, f64::NAN).expect("a float");
                Constant::from_bits(dtype, nan.bits() | draw.bits())
            }
            _ => scalar::float(dtype, value).expect("a float"),
        };
    }
    let top = 1i128 << (bits - 1);
    let value = match draw.below(if bits == 64 { 12 } else { 9 }) {
        8.. => near_halfway(draw, bits),
        0 => -top,
        1 => top - 1,
        2 => 2 * top - 1,
        3 | 4 => draw.below(9) as i128 - 3,
        5 => (1 << draw.below(bits as usize)) - draw.below(2) as i128,
        _ => return Constant::from_bits(dtype, draw.bits()),
    };
    scalar::int(dtype, value).expect("an integer")
}

/// A positive integer of at most this many bits that is halfway between two adjacent floats of some
/// type, or next to that; 1 if all integers of this many bits are floats.
fn near_halfway(draw: &mut Draw, bits: u32) -> i128 {
    // Bits of the significands of bf16, f16, f32 and f64.
    let significand: u32 = draw.pick(&[8, 11, 24, 53]);
    if bits <= significand + 1 {
        return 1;
    }
    let dropped = match draw.below(2) {
        0 => bits - significand - 1,
        _ => 1 + draw.below((bits - significand - 1) as usize) as u32,
    };
    let kept = 1i128 << (significand - 1) | draw.below(1 << (significand - 1).min(16)) as i128;
    (kept << dropped) + (1i128 << (dropped - 1)) + draw.below(3) as i128 - 1
}

const FLOAT_EDGES: [f64; 32] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -1.5,
    2.5,
    3.0,
    0.1,
    -7.25,
    127.5,
    -128.5,
    255.5,
    1e4,
    65504.0,
    65520.0,
    -32769.0,
    2147483648.0,
    -2147483904.0,
    4294967040.0,
    1.8e19,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::NAN,
    f32::MAX as f64,
    f64::MAX,
    -f64::MAX,
    // The smallest normal numbers of f16, f32 and f64.
    0.00006103515625,
    f32::MIN_POSITIVE as f64,
    f64::MIN_POSITIVE,
    // The ends of i64.
    9223372036854775808.0,
    -9223372036854775808.0,
];

/// Returns the kernel, random elements of its arrays before it runs, and the elements after it, by
/// the evaluator.
fn expected(kernel: Linear, draw: &mut Draw, style: &Style) -> Result<Case, String> {
    let before: Vec<Elements> = (0..)
        .zip(kernel.globals())
        .map(|(slot, (global, dtype))| match crate::models::linear::is_stored(&kernel, slot) {
            true => vec![None; global.size_elements as usize],
            false => (0..global.size_elements).map(|_| Some(edge(draw, style, dtype))).collect(),
        })
        .collect();
    let mut after = before.clone();
    gradiff_eval::linear::run(&kernel, &mut after)
        .map_err(|problem| format!("{problem}\n{kernel}"))?;
    let bounded = BoundedLinear::check(kernel.clone());
    let bounded = bounded.map_err(|error| format!("it is refused: {error}\n{kernel}"))?;
    Ok((bounded, before, after))
}

/// Runs the kernel, and compares its results with those expected values that are defined.
fn compare(
    executable: &dyn Executable,
    kernel: &Linear,
    before: &[Elements],
    expected: &[Elements],
) -> Result<(), String> {
    let mut after = before.to_vec();
    crate::backends::engine::run_compiled(executable, kernel, &mut after)?;
    for (slot, (found, expected)) in after.iter().zip(expected).enumerate() {
        for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
            let (Some(found), Some(expected)) = (found, expected) else { continue };
            if !is_same(*found, *expected) {
                let element = at as i64 % ELEMENTS;
                let inputs = before[before.len().saturating_sub(4)..].iter();
                let inputs: Vec<Option<Constant>> =
                    inputs.filter_map(|input| input.get(element as usize).copied()).collect();
                return Err(format!(
                    "element {at} of data{slot} is {found:?}, expected {expected:?}, \
                     for the inputs {inputs:?}"
                ));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_have_the_ends_of_floats() {
        let mut draw = Draw::new(0);
        let mut found = |dtype: DType| -> Vec<f64> {
            let edges = (0..4000).map(|_| scalar::to_float(any_edge(&mut draw, dtype)));
            edges.map(|edge| edge.expect("a float")).collect()
        };
        let (single, double) = (found(DType::F32), found(DType::F64));
        for end in [f32::MAX, f32::MIN_POSITIVE] {
            assert!(single.contains(&f64::from(end)), "no {end}");
        }
        for end in [f64::MAX, f64::MIN_POSITIVE, 2f64.powi(63), -(2f64.powi(63))] {
            assert!(double.contains(&end), "no {end}");
        }
    }
}
