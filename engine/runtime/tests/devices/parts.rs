//! Parts of memories as arguments of kernels.

use std::sync::Arc;

use crate::common::{Builder, Expression, elementwise, ints, memory_of, repeated, values_of};
use gradiff_graph::{Constant, DType, Linear, Op};
use gradiff_runtime::{Array, Device, Error, Memory, device};

/// The available devices, and the lanes of vectors in kernels for them.
fn devices() -> Vec<(Arc<dyn Device>, u8)> {
    let known = [("interp", 4), ("jit", 4), ("c", 8), ("opencl", 1), ("wgpu", 1)];
    known.into_iter().filter_map(|(name, lanes)| Some((device(name).ok()?, lanes))).collect()
}

/// `data0[i] = data1[i] + data2[i]` where `i < 16`.
fn sum(lanes: u8) -> Linear {
    let inputs = [0, 1].map(|number| Expression::Input(number, DType::I32));
    let expression = Expression::Apply(Op::Add, DType::I32, inputs.to_vec());
    let dtypes = [DType::I32; 2];
    match lanes {
        1 => elementwise("E_16", &expression, &dtypes, 16),
        _ => repeated("E_16", &expression, &dtypes, 16, (None, lanes)),
    }
}

fn numbers(first: i128, count: i128, step: i128) -> Vec<Constant> {
    ints(DType::I32, &(0..count).map(|n| first + n * step).collect::<Vec<_>>())
}

#[test]
fn kernels_take_parts_like_other_memories() {
    for (device, lanes) in devices() {
        let kernel = device.compile_checked(&[&sum(lanes)]).unwrap().remove(0);
        let whole = memory_of(&numbers(0, 64, 1));
        for (first, second) in [(0, 0), (0, 16), (16, 0), (16, 32), (5, 16), (47, 48), (48, 48)] {
            let output = Memory::new(DType::I32, 64).unwrap();
            let [x, y] = [first, second].map(|first| whole.part(first, 16).unwrap());
            kernel.run(&[&output, &x, &y]).unwrap();
            let output = output.part(0, 16).unwrap();
            let expected = numbers((first + second) as i128, 16, 2);
            assert_eq!(values_of(&output), expected, "{}: {first}, {second}", device.name());
        }
        assert!(kernel.run(&[&whole, &whole.part(0, 15).unwrap(), &whole]).is_err());
    }
}

#[test]
fn launch_changes_only_the_memory_that_it_writes() {
    for (device, lanes) in devices() {
        let kernel = device.compile_checked(&[&sum(lanes)]).unwrap().remove(0);
        let whole = memory_of(&numbers(0, 32, 1));
        let [low, high] = [0, 16].map(|first| whole.part(first, 16).unwrap());
        let inner = low.part(0, 8).unwrap();
        let check = |memory: &Memory, expected: Vec<Constant>| {
            assert_eq!(values_of(memory), expected, "{}", device.name());
        };
        // Writes the whole from its own parts, which share its bytes and must not change.
        kernel.run(&[&whole, &low, &high]).unwrap();
        check(&whole, [numbers(16, 16, 2), numbers(16, 16, 1)].concat());
        check(&low, numbers(0, 16, 1));
        check(&high, numbers(16, 16, 1));
        // Writes a part; the whole and the part of the part must not change.
        kernel.run(&[&low, &high, &high]).unwrap();
        check(&low, numbers(32, 16, 2));
        check(&inner, numbers(0, 8, 1));
        check(&whole, [numbers(16, 16, 2), numbers(16, 16, 1)].concat());
        // No two memories share bytes any more.
        kernel.run(&[&high, &low, &whole]).unwrap();
        check(&high, numbers(48, 16, 4));
        check(&low, numbers(32, 16, 2));
        assert!(kernel.run(&[&high, &high, &low]).is_err(), "one memory in two slots");
    }
}

#[test]
fn interp_knows_which_elements_of_a_part_were_written() {
    let interp = device("interp").unwrap();
    // data0[i] = i where i < 16, of 32.
    let mut b = Builder::default();
    let output = b.global(0, DType::I32, 32);
    let range = b.range(16);
    b.store(output, range, None, range);
    b.end(range);
    let fill = interp.compile_checked(&[&b.verified("E_16")]).unwrap().remove(0);
    let sum = interp.compile_checked(&[&sum(1)]).unwrap().remove(0);
    let whole = Memory::new(DType::I32, 32).unwrap();
    fill.run(&[&whole]).unwrap();
    let output = Memory::new(DType::I32, 16).unwrap();
    for first in [0, 8, 16] {
        let part = whole.part(first, 16).unwrap();
        assert_eq!(part.is_initialised(), first == 0);
        match sum.run(&[&output, &part, &part]) {
            Ok(()) => assert_eq!((first, values_of(&output)), (0, numbers(0, 16, 2))),
            Err(Error::Uninitialised { array: Array::Data(1), index, .. }) => {
                assert_eq!(index, 16 - first as i64);
            }
            Err(error) => panic!("{error}"),
        }
    }
    // Writing the whole later does not initialise a part.
    let part = whole.part(16, 16).unwrap();
    whole.write(&[0; 128]).unwrap();
    assert!(sum.run(&[&output, &part, &part]).is_err());
    // A part that is completely written is initialised; the whole is not.
    let whole = Memory::new(DType::I32, 32).unwrap();
    let part = whole.part(0, 16).unwrap();
    let [x, y] = [0, 1].map(|first| memory_of(&numbers(first, 16, 1)));
    sum.run(&[&part, &x, &y]).unwrap();
    assert!(part.is_initialised() && !whole.is_initialised() && whole.read().is_err());
}
