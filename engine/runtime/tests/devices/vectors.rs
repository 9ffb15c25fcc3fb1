//! Values of several lanes: vector ops give the same as scalar ones.

use crate::common::{Builder, ints, memory_of, values_of};
use gradiff_graph::{Arg, Constant, DType, Linear, Op};
use gradiff_runtime::{Array, Error, Memory, device};

const DEVICES: [&str; 2] = ["interp", "jit"];

fn run(name: &str, kernel: &Linear, count: usize, inputs: &[&Memory]) -> Result<Memory, Error> {
    let output = Memory::new(kernel.globals()[0].1, count)?;
    let memories: Vec<&Memory> = std::iter::once(&output).chain(inputs.iter().copied()).collect();
    device(name)?.compile_checked(&[kernel])?.remove(0).run(&memories)?;
    Ok(output)
}

/// `data0[4 * i + j] = data1[4 * i + j + shift] * 3 + j` where `i < 2`, by vectors of 4, for i
/// below 3.
fn scaled(dtype: DType, shift: i64) -> Linear {
    let mut b = Builder::default();
    let output = b.global(0, dtype, 12);
    let input = b.global(1, dtype, 8);
    let [four, two, shift] = [4, 2, shift].map(|value| b.int(value));
    let three = b.constant(Constant::int(dtype, 3));
    let lanes: Vec<u32> = (0..4).map(|lane| b.constant(Constant::int(dtype, lane))).collect();
    let range = b.range(3);
    let index = b.binary(Op::Mul, DType::I32, range, four);
    let shifted = b.binary(Op::Add, DType::I32, index, shift);
    let gate = b.binary(Op::CmpLt, DType::Bool, range, two);
    let value = b.load_lanes(input, shifted, Some(gate), 4);
    let three = b.vector(Op::Vectorize, dtype, 4, &[three]);
    let lane_numbers = b.vector(Op::Vectorize, dtype, 4, &lanes);
    let product = b.vector(Op::Mul, dtype, 4, &[value, three]);
    let sum = b.vector(Op::Add, dtype, 4, &[product, lane_numbers]);
    b.store(output, index, None, sum);
    b.end(range);
    b.verified("E_3_4")
}

#[test]
fn vectors_compute_lane_by_lane() {
    let input = ints(DType::I16, &[1, 2, 3, 4, 5, 6, 7, -8]);
    let expected = [3, 7, 11, 15, 15, 19, 23, -21, 0, 1, 2, 3];
    for name in DEVICES {
        let output = run(name, &scaled(DType::I16, 0), 12, &[&memory_of(&input)]).unwrap();
        assert_eq!(values_of(&output), ints(DType::I16, &expected), "{name}");
    }
}

#[test]
fn interp_checks_each_lane() {
    let input = memory_of(&ints(DType::I32, &[1; 8]));
    match run("interp", &scaled(DType::I32, 2), 12, &[&input]) {
        Err(Error::OutOfBounds { array: Array::Data(1), index: 8, size_elements: 8, .. }) => {}
        result => panic!("{result:?}"),
    }
    match run("interp", &scaled(DType::I32, -1), 12, &[&input]) {
        Err(Error::OutOfBounds { array: Array::Data(1), index: -1, size_elements: 8, .. }) => {}
        result => panic!("{result:?}"),
    }
    match run("interp", &scaled(DType::I32, 0), 12, &[&Memory::new(DType::I32, 8).unwrap()]) {
        Err(Error::Uninitialised { array: Array::Data(1), index: 0, size_elements: 8, .. }) => {}
        result => panic!("{result:?}"),
    }
}

/// Column sums in an accumulator of two lanes; lanes are extracted before and after the last
/// assignment.
fn column_sums() -> Linear {
    let mut b = Builder::default();
    let output = b.global(0, DType::I32, 4);
    let input = b.global(1, DType::I32, 6);
    let [zero, one, two, three] = [0, 1, 2, 3].map(|value| b.int(value));
    let start = b.vector(Op::Vectorize, DType::I32, 2, &[zero]);
    let sum = b.push(Op::DefineAcc, DType::I32, &[start], Arg::Int(0));
    b.uops[sum as usize].lanes = 2;
    let before = b.push(Op::Lane, DType::I32, &[sum], Arg::Int(1));
    let pair = b.vector(Op::Vectorize, DType::I32, 2, &[before, before]);
    let range = b.range(3);
    let index = b.binary(Op::Mul, DType::I32, range, two);
    let value = b.load_lanes(input, index, None, 2);
    let next = b.vector(Op::Add, DType::I32, 2, &[sum, value]);
    b.vector(Op::Assign, DType::I32, 2, &[sum, next]);
    b.end(range);
    let after: Vec<u32> =
        (0..2).map(|lane| b.push(Op::Lane, DType::I32, &[sum], Arg::Int(lane))).collect();
    let old = b.push(Op::Lane, DType::I32, &[pair], Arg::Int(0));
    for (index, value) in [zero, one, two, three].into_iter().zip([after[0], after[1], before, old])
    {
        b.store(output, index, None, value);
    }
    b.verified("r_3_2")
}

#[test]
fn lane_of_an_accumulator_is_its_value_at_that_time() {
    let input = memory_of(&ints(DType::I32, &[1, 20, 300, 4000, 50000, 600000]));
    for name in DEVICES {
        let output = run(name, &column_sums(), 4, &[&input]).unwrap();
        assert_eq!(values_of(&output), ints(DType::I32, &[50301, 604020, 0, 0]), "{name}");
    }
}

#[test]
fn inconsistent_lanes_are_refused() {
    for (position, lanes) in [(14, 3), (15, 2), (17, 1)] {
        let mut kernel = scaled(DType::I32, 0);
        kernel.uops[position].lanes = lanes;
        for name in DEVICES {
            let refused = device(name).unwrap().compile_checked(&[&kernel]);
            let is_refused =
                matches!(refused, Err(Error::Malformed { .. } | Error::Unproven { .. }));
            assert!(is_refused, "{name} {position}\n{kernel}");
        }
    }
}

/// `data0[3 - i] = data1[i] * 2` through a local array of `size_elements`, in pairs.
fn reversed(size_elements: i64) -> Linear {
    let mut b = Builder::default();
    let (output, input) = (b.global(0, DType::I32, 4), b.global(1, DType::I32, 4));
    let array = b.local(0, DType::I32, size_elements);
    let [two, three, last] = [2, 3, size_elements - 4].map(|value| b.int(value));
    let pairs = b.range(2);
    let index = b.binary(Op::Mul, DType::I32, pairs, two);
    let value = b.load_lanes(input, index, None, 2);
    let factor = b.vector(Op::Vectorize, DType::I32, 2, &[two]);
    let product = b.vector(Op::Mul, DType::I32, 2, &[value, factor]);
    let index = b.binary(Op::Add, DType::I32, index, last);
    b.store(array, index, None, product);
    b.end(pairs);
    let range = b.range(4);
    let index = b.binary(Op::Add, DType::I32, range, last);
    let value = b.load(array, index, None);
    let index = b.binary(Op::Sub, DType::I32, three, range);
    b.store(output, index, None, value);
    b.end(range);
    b.verified("r_4")
}

#[test]
fn local_arrays_without_groups_are_private() {
    let input = ints(DType::I32, &[1, 2, 3, 4]);
    for (name, size) in ["interp", "jit", "c"].into_iter().zip([4, 5000, 16384]) {
        for size in [4, size] {
            let output = run(name, &reversed(size), 4, &[&memory_of(&input)]).unwrap();
            assert_eq!(values_of(&output), ints(DType::I32, &[8, 6, 4, 2]), "{name} {size}");
        }
    }
    let Err(error) = run("jit", &reversed(1 << 20), 4, &[&memory_of(&input)]) else {
        panic!("4 MiB on the stack")
    };
    assert!(error.to_string().contains("array is too large"), "{error}");
}

/// Large arrays are stored non-temporally, in whole cache lines; the elements around do not change.
#[test]
fn large_arrays_are_stored_like_small_ones() {
    for (shift, size) in [(0, 2 << 20), (1, 2 << 20), (3, 1 << 10)] {
        let mut b = Builder::default();
        let output = b.global(0, DType::F32, size);
        let [lanes, first] = [16, shift].map(|value| b.int(value));
        let half = b.constant(Constant::float(DType::F32, 0.5));
        let range = b.range((size - 16) / 16);
        let index = b.binary(Op::Mul, DType::I32, range, lanes);
        let index = b.binary(Op::Add, DType::I32, index, first);
        let value = b.push(Op::Cast, DType::F32, &[range], Arg::None);
        let sum = b.binary(Op::Add, DType::F32, value, half);
        let sums = b.vector(Op::Vectorize, DType::F32, 16, &[sum]);
        b.store(output, index, None, sums);
        b.end(range);
        let kernel = b.verified("E_16");
        let bytes: Vec<u8> =
            (0..size as usize).flat_map(|index| (-(index as f32)).to_le_bytes()).collect();
        let memory = Memory::from_bytes(DType::F32, &bytes).unwrap();
        device("c")
            .unwrap()
            .compile_checked(&[&kernel])
            .unwrap()
            .remove(0)
            .run(&[&memory])
            .unwrap();
        let found = memory.read().unwrap();
        for (index, bytes) in found.chunks(4).enumerate() {
            let iteration = (index as i64 - shift).div_euclid(16);
            let is_stored = (0..(size - 16) / 16).contains(&iteration);
            let expected = if is_stored { iteration as f32 + 0.5 } else { -(index as f32) };
            assert_eq!(bytes, expected.to_le_bytes(), "element {index}, shifted by {shift}");
        }
    }
}
