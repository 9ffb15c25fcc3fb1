//! Groups, local memory and barriers on the checked interpreter: correct kernels run, errors in
//! others are reported.

use crate::common::{Builder, ints, memory_of, values_of};
use gradiff_graph::{Arg, AxisKind, DType, Linear, Op};
use gradiff_runtime::{Array, Error, Memory, Worker, device};

const GROUPS: i64 = 3;
const THREADS: i64 = 4;

fn run(kernel: &Linear, output: &Memory, inputs: &[&Memory]) -> Result<(), Error> {
    let executable = device("interp")?.compile_checked(&[kernel])?.remove(0);
    let memories: Vec<&Memory> = std::iter::once(output).chain(inputs.iter().copied()).collect();
    executable.run(&memories)
}

/// Errors to put into the grouped sum.
#[derive(Clone, Copy, Default)]
struct Change {
    is_barrier_missing: bool,
    is_output_shared: bool,
    /// True if the local array is too short by one element.
    is_local_short: bool,
    /// True if only the first thread stores to local memory.
    is_local_gated: bool,
}

/// `data0[g] = sum over l, j of data1[24 * g + 6 * l + j]`: each thread stores the sum of 6
/// elements to local memory; after the barrier thread 0 adds these and stores the result.
fn grouped_sum(change: Change) -> Linear {
    let mut b = Builder::default();
    let output = b.global(0, DType::I32, GROUPS);
    let input = b.global(1, DType::I32, GROUPS * THREADS * 6);
    let local = b.local(0, DType::I32, THREADS - i64::from(change.is_local_short));
    let [zero, one, six, size] = [0, 1, 6, 6 * THREADS].map(|value| b.int(value));
    let group = b.range_of(AxisKind::Global, GROUPS);
    let start = b.binary(Op::Mul, DType::I32, group, size);
    let thread = b.range_of(AxisKind::Local, THREADS);
    let row = b.binary(Op::Mul, DType::I32, thread, six);
    let row = b.binary(Op::Add, DType::I32, start, row);
    let sum_over = |b: &mut Builder, array: u32, first: u32, count: i64| {
        let sum = b.push(Op::DefineAcc, DType::I32, &[zero], Arg::Int(0));
        let range = b.range(count);
        let index = b.binary(Op::Add, DType::I32, first, range);
        let value = b.load(array, index, None);
        let next = b.binary(Op::Add, DType::I32, sum, value);
        b.push(Op::Assign, DType::I32, &[sum, next], Arg::None);
        b.end(range);
        sum
    };
    let sum = sum_over(&mut b, input, row, 6);
    let is_first = b.binary(Op::CmpLt, DType::Bool, thread, one);
    b.store(local, thread, change.is_local_gated.then_some(is_first), sum);
    if !change.is_barrier_missing {
        b.barrier();
    }
    let total = sum_over(&mut b, local, zero, THREADS - i64::from(change.is_local_short));
    b.store(output, if change.is_output_shared { zero } else { group }, Some(is_first), total);
    b.end(thread);
    b.end(group);
    b.verified("r_3_4_6")
}

/// Runs the grouped sum of 0, 1, 2, ...
fn sums(change: Change) -> Result<Memory, Error> {
    let numbers: Vec<i128> = (0..i128::from(GROUPS * THREADS * 6)).collect();
    let output = Memory::new(DType::I32, GROUPS as usize)?;
    run(&grouped_sum(change), &output, &[&memory_of(&ints(DType::I32, &numbers))])?;
    Ok(output)
}

fn worker(group: u32, thread: u32) -> Worker {
    Worker { group: Some(group), thread: Some(thread) }
}

#[test]
fn grouped_sum_through_local_memory_is_right() {
    let expected: Vec<i128> =
        (0..i128::from(GROUPS)).map(|group| (24 * group..24 * (group + 1)).sum()).collect();
    assert_eq!(values_of(&sums(Change::default()).unwrap()), ints(DType::I32, &expected));
}

#[test]
fn missing_barrier_is_a_race() {
    match sums(Change { is_barrier_missing: true, ..Change::default() }) {
        Err(Error::Race { array: Array::Local(0), index: 1, first, second, .. }) => {
            assert_eq!((first, second), (worker(0, 0), worker(0, 1)));
        }
        result => panic!("{result:?}"),
    }
}

/// `local[l] = l; barrier; x = local[3 - l]; [barrier]; local[l] = x; barrier; data0[l] = local[l]`
fn reversed(has_second_barrier: bool) -> Linear {
    let mut b = Builder::default();
    let output = b.global(0, DType::I32, THREADS);
    let local = b.local(7, DType::I32, THREADS);
    let last = b.int(THREADS - 1);
    let thread = b.range_of(AxisKind::Local, THREADS);
    let mirrored = b.binary(Op::Sub, DType::I32, last, thread);
    b.store(local, thread, None, thread);
    b.barrier();
    let value = b.load(local, mirrored, None);
    if has_second_barrier {
        b.barrier();
    }
    b.store(local, thread, None, value);
    b.barrier();
    let value = b.load(local, thread, None);
    b.store(output, thread, None, value);
    b.end(thread);
    b.verified("E_4")
}

#[test]
fn read_unordered_with_a_later_write_is_a_race() {
    let output = Memory::new(DType::I32, THREADS as usize).unwrap();
    run(&reversed(true), &output, &[]).unwrap();
    assert_eq!(values_of(&output), ints(DType::I32, &[3, 2, 1, 0]));
    let error = run(&reversed(false), &output, &[]).unwrap_err();
    let text = error.to_string();
    match error {
        Error::Race { array, index: 1, first, first_writes, second, second_writes, .. } => {
            assert_eq!((array, first_writes, second_writes), (Array::Local(7), true, false));
            assert_eq!((first, second), (worker(0, 1), worker(0, 2)));
        }
        error => panic!("{error:?}"),
    }
    assert_eq!(
        text,
        "kernel E_4, uop 10: a race: thread 2 of group 0 reads element 1 of local7 (of 4), \
         thread 1 of group 0 writes it; there is no barrier between"
    );
}

#[test]
fn two_groups_that_write_one_element_are_a_race() {
    match sums(Change { is_output_shared: true, ..Change::default() }) {
        Err(Error::Race { kernel, array: Array::Data(0), index: 0, first, second, .. }) => {
            assert_eq!(kernel, "r_3_4_6");
            assert_eq!((first, second), (worker(0, 0), worker(1, 0)));
        }
        result => panic!("{result:?}"),
    }
}

#[test]
fn local_index_out_of_bounds_is_reported() {
    match sums(Change { is_local_short: true, ..Change::default() }) {
        Err(Error::OutOfBounds { array: Array::Local(0), index: 3, size_elements: 3, .. }) => {}
        result => panic!("{result:?}"),
    }
}

#[test]
fn local_memory_is_unwritten_in_each_group() {
    match sums(Change { is_local_gated: true, ..Change::default() }) {
        Err(Error::Uninitialised {
            array: Array::Local(0), index: 1, size_elements: 4, ..
        }) => {}
        result => panic!("{result:?}"),
    }
    // The first group writes local memory, the second one reads it.
    let mut b = Builder::default();
    let output = b.global(0, DType::I32, 2);
    let local = b.local(0, DType::I32, 1);
    let [zero, one] = [0, 1].map(|value| b.int(value));
    let group = b.range_of(AxisKind::Global, 2);
    let is_first = b.binary(Op::CmpLt, DType::Bool, group, one);
    b.store(local, zero, Some(is_first), one);
    let value = b.load(local, zero, None);
    b.store(output, group, None, value);
    b.end(group);
    match run(&b.verified("E_2"), &Memory::new(DType::I32, 2).unwrap(), &[]) {
        Err(Error::Uninitialised {
            array: Array::Local(0), index: 0, size_elements: 1, ..
        }) => {}
        result => panic!("{result:?}"),
    }
}

/// A barrier in a loop of `count` iterations; without it, the trip count is the thread index.
fn barrier_in_loop(count: Option<i64>) -> Linear {
    let mut b = Builder::default();
    let output = b.global(0, DType::I32, THREADS);
    let thread = b.range_of(AxisKind::Local, THREADS);
    let range = match count {
        Some(count) => b.range(count),
        None => b.push(Op::Range, DType::I32, &[thread], Arg::plain_axis(9)),
    };
    b.barrier();
    b.end(range);
    b.store(output, thread, None, thread);
    b.end(thread);
    b.verified("E_4")
}

#[test]
fn barrier_in_divergent_flow_is_an_error() {
    let output = Memory::new(DType::I32, THREADS as usize).unwrap();
    run(&barrier_in_loop(Some(3)), &output, &[]).unwrap();
    assert_eq!(values_of(&output), ints(DType::I32, &[0, 1, 2, 3]));
    match run(&barrier_in_loop(None), &output, &[]) {
        Err(Error::DivergentBarrier { kernel, position: 4, waits, absent, does }) => {
            assert_eq!(kernel, "E_4");
            assert_eq!((waits, absent), (worker(0, 1), worker(0, 0)));
            assert_eq!(does, "is at its end");
        }
        result => panic!("{result:?}"),
    }
}

#[test]
fn barrier_in_different_iterations_is_an_error() {
    // Two nested loops around a barrier, with 1 x 2 and 2 x 1 iterations: both threads reach the
    // same number of barriers.
    let mut b = Builder::default();
    let output = b.global(0, DType::I32, 2);
    let (increment, two) = (b.int(1), b.int(2));
    let thread = b.range_of(AxisKind::Local, 2);
    let outer_end = b.binary(Op::Add, DType::I32, thread, increment);
    let inner_end = b.binary(Op::Sub, DType::I32, two, thread);
    let outer = b.push(Op::Range, DType::I32, &[outer_end], Arg::plain_axis(8));
    let inner = b.push(Op::Range, DType::I32, &[inner_end], Arg::plain_axis(9));
    b.barrier();
    b.end(inner);
    b.end(outer);
    b.store(output, thread, None, thread);
    b.end(thread);
    match run(&b.verified("E_2"), &Memory::new(DType::I32, 2).unwrap(), &[]) {
        Err(Error::DivergentBarrier { waits, absent, does, .. }) => {
            assert_eq!((waits, absent), (worker(0, 0), worker(0, 1)));
            assert_eq!(does, "waits there in another iteration of a loop");
        }
        result => panic!("{result:?}"),
    }
}

/// `data0[i / divisor] = 1` for 8 iterations of a range of this kind.
fn stores(kind: AxisKind, divisor: i64) -> Result<(), Error> {
    let mut b = Builder::default();
    let output = b.global(0, DType::I32, 8);
    let (value, divisor) = (b.int(1), b.int(divisor));
    let range = b.range_of(kind, 8);
    let index = b.binary(Op::CDiv, DType::I32, range, divisor);
    b.store(output, index, None, value);
    b.end(range);
    run(&b.verified("E_8"), &Memory::new(DType::I32, 8)?, &[])
}

#[test]
fn two_writes_of_equal_values_are_a_race() {
    for (kind, first, second) in [
        (AxisKind::Global, worker(0, 0), worker(1, 0)),
        (AxisKind::Thread, worker(0, 0), worker(1, 0)),
        (AxisKind::Local, worker(0, 0), worker(0, 1)),
    ] {
        stores(kind, 1).unwrap();
        match stores(kind, 2) {
            Err(Error::Race { index: 0, first: found_first, second: found_second, .. }) => {
                assert_eq!((found_first, found_second), (first, second), "{kind:?}");
            }
            result => panic!("{kind:?} {result:?}"),
        }
    }
    stores(AxisKind::Loop, 2).unwrap();
}

#[test]
fn load_outside_of_launched_ranges_is_by_all_threads() {
    // data0[i] = data0[0] + 1 for 4 iterations, with the load before them: iteration 0 overwrites
    // the loaded element.
    let kernel = |kind| {
        let mut b = Builder::default();
        let output = b.global(0, DType::I32, 4);
        let (zero, one) = (b.int(0), b.int(1));
        let value = b.load(output, zero, None);
        let sum = b.binary(Op::Add, DType::I32, value, one);
        let range = b.range_of(kind, 4);
        b.store(output, range, None, sum);
        b.end(range);
        b.verified("E_4")
    };
    let output = memory_of(&ints(DType::I32, &[5; 4]));
    run(&kernel(AxisKind::Loop), &output, &[]).unwrap();
    assert_eq!(values_of(&output), ints(DType::I32, &[6; 4]));
    let global = run(&kernel(AxisKind::Global), &output, &[]).unwrap_err().to_string();
    assert!(global.contains("more than one group reads it"), "{global}");
    let local = run(&kernel(AxisKind::Local), &output, &[]).unwrap_err().to_string();
    assert!(local.contains("more than one thread of group 0 reads it"), "{local}");
}

#[test]
fn stores_and_sums_across_threads_are_refused() {
    let store_outside = |kind| {
        let mut b = Builder::default();
        let output = b.global(0, DType::I32, 4);
        let (zero, one) = (b.int(0), b.int(1));
        let range = b.range_of(kind, 4);
        b.store(output, range, None, one);
        b.end(range);
        b.store(output, zero, None, one);
        b.verified("E_4")
    };
    let output = Memory::new(DType::I32, 4).unwrap();
    for kind in [AxisKind::Global, AxisKind::Local] {
        let refused = run(&store_outside(kind), &output, &[]);
        assert!(matches!(refused, Err(Error::Malformed { position: 9, .. })), "{refused:?}");
    }
    // Host threads are joined before the store.
    run(&store_outside(AxisKind::Thread), &output, &[]).unwrap();
    let mut b = Builder::default();
    let output_array = b.global(0, DType::I32, 4);
    let zero = b.int(0);
    let sum = b.push(Op::DefineAcc, DType::I32, &[zero], Arg::Int(0));
    let range = b.range_of(AxisKind::Local, 4);
    let next = b.binary(Op::Add, DType::I32, sum, range);
    let sum = b.push(Op::Assign, DType::I32, &[sum, next], Arg::None);
    b.store(output_array, range, None, sum);
    b.end(range);
    let kernel = b.finish("r_4");
    let wrong = gradiff_graph::verify::verify_linear(&kernel).expect_err("a sum across threads");
    assert!(wrong.location.starts_with("uop 6 "), "{wrong}");
    match run(&kernel, &output, &[]) {
        Err(Error::Unproven { why, .. }) => assert_eq!(why, wrong),
        refused => panic!("{refused:?}"),
    }
}

#[test]
fn grid_indices_of_several_dimensions_are_right() {
    // data0[i] = i for i = ((g0 * 2 + g1) * 3 + l0) * 2 + l1.
    let mut b = Builder::default();
    let output = b.global(0, DType::I32, 36);
    let local = b.local(0, DType::I32, 6);
    let sizes =
        [(AxisKind::Global, 3), (AxisKind::Global, 2), (AxisKind::Local, 3), (AxisKind::Local, 2)];
    let counts: Vec<u32> = sizes.iter().map(|(_, size)| b.int(*size)).collect();
    let ranges: Vec<u32> = sizes.iter().map(|(kind, size)| b.range_of(*kind, *size)).collect();
    let number = |b: &mut Builder, dimensions: &[usize]| {
        dimensions.iter().fold(None, |number: Option<u32>, dimension| {
            let size = counts[*dimension];
            let scaled = number.map(|number| b.binary(Op::Mul, DType::I32, number, size));
            let range = ranges[*dimension];
            Some(scaled.map_or(range, |scaled| b.binary(Op::Add, DType::I32, scaled, range)))
        })
    };
    let index = number(&mut b, &[0, 1, 2, 3]).unwrap();
    let thread = number(&mut b, &[2, 3]).unwrap();
    b.store(local, thread, None, index);
    b.barrier();
    let value = b.load(local, thread, None);
    b.store(output, index, None, value);
    ranges.iter().rev().for_each(|range| b.end(*range));
    let memory = Memory::new(DType::I32, 36).unwrap();
    run(&b.verified("E_3_2_3_2"), &memory, &[]).unwrap();
    assert_eq!(values_of(&memory), ints(DType::I32, &(0..36).collect::<Vec<_>>()));
}

#[test]
fn jit_refuses_barriers_and_loops_over_other_groups() {
    let jit = device("jit").unwrap();
    for kernel in [reversed(true), grouped_sum(Change::default())] {
        let Err(error) = jit.compile_checked(&[&kernel]) else { panic!("jit has no groups") };
        assert!(error.to_string().ends_with("and jit runs no groups of threads"), "{error}");
    }
    for kind in [AxisKind::Global, AxisKind::Thread, AxisKind::Local] {
        let mut b = Builder::default();
        let output = b.global(0, DType::I32, 4);
        let range = b.range_of(kind, 4);
        b.store(output, range, None, range);
        b.end(range);
        let memory = Memory::new(DType::I32, 4).unwrap();
        jit.compile_checked(&[&b.verified("E_4")]).unwrap()[0].run(&[&memory]).unwrap();
        assert_eq!(values_of(&memory), ints(DType::I32, &[0, 1, 2, 3]), "{kind:?}");
    }
}
