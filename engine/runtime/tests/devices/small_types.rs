//! Types smaller than a word, which WGSL represents in words: conversions of all 16-bit floats,
//! rounding to them, all pairs of 8-bit integers. Runs if there is an adapter.

use gradiff_graph::{Constant, DType, Op};
use gradiff_runtime::{Memory, device};
use gradiff_skip::{or_skip, skip};

use crate::common::{Expression, elementwise, memory_of, values_of};

/// The number of elements of a kernel: llvmpipe ends loops after 65,535 iterations.
const COUNT: usize = 1 << 15;

/// Runs an expression over lists and compares every element with its meaning: the same bits, or any
/// NaN for NaN.
fn check(device_name: &str, expression: &Expression, inputs: &[Vec<Constant>]) {
    let Some(device) = or_skip(device_name, device(device_name)) else { return };
    let dtypes: Vec<DType> = inputs.iter().map(|list| list[0].dtype()).collect();
    let kernel = elementwise("E_all", expression, &dtypes, COUNT as i64);
    let executable = device.compile_checked(&[&kernel]).expect("the kernel compiles").remove(0);
    let is_nan = |value: Constant| value.to_float().is_some_and(f64::is_nan);
    for start in (0..inputs[0].len()).step_by(COUNT) {
        let part = |list: &Vec<Constant>| {
            let mut part: Vec<Constant> = list.iter().skip(start).take(COUNT).copied().collect();
            part.resize(COUNT, list[0]);
            part
        };
        let lists: Vec<Vec<Constant>> = inputs.iter().map(part).collect();
        let output = Memory::new(expression.dtype(), COUNT).expect("a little memory");
        let inputs: Vec<Memory> = lists.iter().map(|list| memory_of(list)).collect();
        let memories: Vec<&Memory> = std::iter::once(&output).chain(&inputs).collect();
        executable.run(&memories).expect("the kernel runs");
        for (number, value) in values_of(&output).into_iter().enumerate() {
            let src: Vec<Constant> = lists.iter().map(|list| list[number]).collect();
            let Some(expected) = expression.evaluate(&src) else { continue };
            let is_right = value == expected || is_nan(value) && is_nan(expected);
            let name = device_name;
            assert!(is_right, "{name}: {expression:?} of {src:?} is {value:?}, not {expected:?}");
        }
    }
}

fn cast(to: DType, source: Expression) -> Expression {
    Expression::Apply(Op::Cast, to, vec![source])
}

/// All values of a type of at most 16 bits.
fn all_values(dtype: DType) -> Vec<Constant> {
    (0..1u64 << dtype.bits()).map(|bits| Constant::from_bits(dtype, bits)).collect()
}

/// For each 16-bit float, the f32 half way to the next one and its two neighbours.
fn half_way(dtype: DType) -> Vec<Constant> {
    let pairs = (0..0xffffu64).map(|bits| [bits, bits + 1]);
    let middle = |pair: [u64; 2]| {
        let [low, high] =
            pair.map(|bits| Constant::from_bits(dtype, bits).to_float().expect("a float"));
        (low + (high - low) / 2.0) as f32
    };
    let middles = pairs.map(middle).filter(|middle| middle.is_finite());
    let near = middles.flat_map(|x| [x.next_down(), x, x.next_up()]);
    near.map(|x| Constant::from_bits(DType::F32, x.to_bits().into())).collect()
}

/// bf16, and f16 if it is held as its bits. The rounding of a native f16 is the driver's.
const HALVES: [(&str, DType); 3] =
    [("wgpu-core", DType::F16), ("wgpu-core", DType::BF16), ("wgpu", DType::BF16)];

#[test]
fn all_halves_round_trip() {
    for (device, dtype) in HALVES {
        let wide = cast(DType::F32, Expression::Input(0, dtype));
        check(device, &wide, &[all_values(dtype)]);
        check(device, &cast(dtype, wide), &[all_values(dtype)]);
        check(device, &cast(DType::Bool, Expression::Input(0, dtype)), &[all_values(dtype)]);
        let bits = Expression::Apply(Op::Bitcast, DType::I16, vec![Expression::Input(0, dtype)]);
        check(device, &bits, &[all_values(dtype)]);
    }
}

#[test]
fn halves_are_rounded_to_nearest_even() {
    for (device, dtype) in HALVES {
        let values = half_way(dtype);
        assert!(values.len() > 180_000, "{} values", values.len());
        check(device, &cast(dtype, Expression::Input(0, DType::F32)), &[values]);
    }
}

/// Not all of them are exact in f32, so that double rounding would be detected.
#[test]
fn integers_of_32_bits_are_rounded_once() {
    for (device, to) in HALVES {
        for dtype in [DType::I32, DType::U32] {
            let near = |power: u32| {
                let values = [0i128, 1, 1 << 9, 3 << 9].map(|n| (1i128 << power) + (n << 7));
                values.into_iter().flat_map(|value| [value - 1, value, value + 1])
            };
            let values = (16..32).flat_map(near).flat_map(|value| [value, -value]);
            let values: Vec<Constant> = values.map(|value| Constant::int(dtype, value)).collect();
            check(device, &cast(to, Expression::Input(0, dtype)), &[values]);
        }
    }
}

#[test]
fn ops_on_all_pairs_of_bytes_have_their_meaning() {
    use Op::{Add, CDiv, CMod, CmpLt, FloorDiv, FloorMod, Max, Min, Mul, Shl, Shr, Sub};
    for dtype in [DType::I8, DType::U8] {
        let bytes = all_values(dtype);
        let pairs = bytes.iter().flat_map(|x| bytes.iter().map(move |y| (*x, *y)));
        let (left, right): (Vec<Constant>, Vec<Constant>) = pairs.unzip();
        for op in [Add, Sub, Mul, CDiv, CMod, FloorDiv, FloorMod, Max, Min, Shl, Shr, CmpLt] {
            let to = if op.is_comparison() { DType::Bool } else { dtype };
            let sources = [0, 1].map(|number| Expression::Input(number, dtype)).to_vec();
            let expression = Expression::Apply(op, to, sources);
            check("wgpu", &expression, &[left.clone(), right.clone()]);
            // The result is used by an op that would see bits beyond the width.
            let wide = cast(DType::I32, expression);
            check("wgpu", &wide, &[left.clone(), right.clone()]);
        }
    }
}

#[test]
fn more_iterations_than_llvmpipe_runs_are_refused() {
    for name in ["wgpu", "wgpu-core"] {
        let Some(device) = or_skip(name, device(name)) else { continue };
        if !device.describe().contains("llvmpipe") {
            skip("llvmpipe", &device.describe());
            continue;
        }
        let kernel =
            |count| elementwise("E_many", &Expression::Input(0, DType::I32), &[DType::I32], count);
        // Each entry of a loop counts as one more iteration.
        assert_eq!(device.unsupported(&kernel(65_534)), None);
        let refusal = "ends loops after 65535 iterations in total";
        assert_eq!(device.unsupported(&kernel(65_535)).as_deref(), Some(refusal));
        let error = device.compile_checked(&[&kernel(65_535)]).err().map(|error| error.to_string());
        assert!(error.is_some_and(|error| error.contains(refusal)));
        let input: Vec<Constant> =
            (0..65_534).map(|number| Constant::int(DType::I32, number)).collect();
        let executable = device.compile_checked(&[&kernel(65_534)]).expect("it compiles").remove(0);
        let (output, input) = (Memory::new(DType::I32, 65_534).expect("room"), memory_of(&input));
        executable.run(&[&output, &input]).expect("it runs");
        assert_eq!(values_of(&output), values_of(&input));
    }
}
