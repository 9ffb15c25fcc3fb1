//! Tensors that are parts of a buffer: which ones share its bytes and which ones need a kernel; and
//! that writing a memory changes no other tensor.

// Clippy does not recognise helpers of integration tests as test code.
#![allow(clippy::unwrap_used)]

use gradiff::runtime::memory_of;
use gradiff::{Engine, Error, Tensor, keepdim};
use gradiff_skip::or_skip;

/// 0, 1, 2, ... in rows of 16.
fn rows(count: i64) -> Tensor {
    let numbers: Vec<i32> = (0..16 * count as i32).collect();
    Tensor::from_slice(&[count, 16], &numbers).unwrap()
}

/// Realises a tensor, and returns the number of new kernels and the elements.
fn realize(engine: &Engine, tensor: &Tensor) -> (usize, Vec<i32>) {
    let before = engine.cached_kernel_count();
    engine.realize(&[tensor]).unwrap();
    assert!(tensor.buffer().is_some(), "a realised tensor is in a buffer");
    (engine.cached_kernel_count() - before, tensor.to_vec().unwrap())
}

fn numbers(range: std::ops::Range<i32>) -> Vec<i32> {
    range.collect()
}

#[test]
fn contiguous_parts_need_no_kernel() {
    for device in ["interp", "jit", "c", "null"] {
        let engine = Engine::new(device).unwrap();
        let given = rows(8);
        let check = |make: fn(&Tensor) -> Result<Tensor, Error>, expected: Vec<i32>| {
            assert_eq!(realize(&engine, &make(&given).unwrap()), (0, expected), "{device}");
        };
        check(|x| x.shrink(&[(2, 6), (0, 16)]), numbers(32..96));
        check(|x| Ok(x.shrink(&[(2, 6), (0, 16)])?.contiguous()), numbers(32..96));
        check(|x| x.shrink(&[(0, 7), (0, 16)]), numbers(0..112));
        check(|x| x.reshape(&[4, 32])?.shrink(&[(1, 3), (0, 32)])?.reshape(&[64]), numbers(32..96));
        check(|x| x.shrink(&[(2, 6), (0, 16)])?.shrink(&[(1, 3), (0, 16)]), numbers(48..80));
        // Unaligned or too small: the host copies them.
        check(|x| x.reshape(&[128])?.shrink(&[(3, 120)]), numbers(3..120));
        check(|x| x.shrink(&[(7, 8), (15, 16)]), vec![127]);
        check(|x| x.shrink(&[(7, 8), (3, 7)]), numbers(115..119));
        check(|x| x.shrink(&[(5, 6), (0, 16)])?.permute(&[1, 0]), numbers(80..96));
        check(|x| x.shrink(&[(5, 6), (0, 16)])?.flip(&[0]), numbers(80..96));
    }
}

#[test]
fn other_views_need_a_kernel() {
    let engine = Engine::new("interp").unwrap();
    let given = rows(2);
    let check = |tensor: Result<Tensor, Error>, expected: &[i32]| {
        assert_eq!(realize(&engine, &tensor.unwrap()), (1, expected.to_vec()));
    };
    check(given.shrink(&[(0, 2), (3, 4)]), &[3, 19]);
    check(given.shrink(&[(1, 2), (0, 4)]).unwrap().flip(&[1]), &[19, 18, 17, 16]);
    check(given.shrink(&[(1, 2), (0, 2)]).unwrap().pad(&[(0, 0), (1, 0)], 0), &[0, 16, 17]);
    check(given.shrink(&[(1, 2), (0, 1)]).unwrap().expand(&[3, 1]), &[16; 3]);
    check(given.shrink(&[(0, 2), (0, 2)]).unwrap().permute(&[1, 0]), &[0, 16, 1, 17]);
    check(given.shrink(&[(1, 2), (0, 2)]).unwrap().add(1), &[17, 18]);
    // A tensor without elements is a constant.
    let none = given.shrink(&[(1, 1), (0, 16)]).unwrap();
    engine.realize(&[&none]).unwrap();
    assert_eq!((none.to_vec::<i32>().unwrap().len(), engine.cached_kernel_count()), (0, 6));
}

#[test]
fn kernels_read_parts_and_parts_of_what_they_computed() {
    for device in ["interp", "jit", "c"] {
        let engine = Engine::new(device).unwrap();
        let doubled = rows(8).mul(2).unwrap();
        assert_eq!(realize(&engine, &doubled).0, 1);
        let half = doubled.shrink(&[(4, 8), (0, 16)]).unwrap().contiguous();
        let expected: Vec<i32> = (64..128).map(|number| 2 * number).collect();
        assert_eq!(realize(&engine, &half), (0, expected.clone()), "{device}");
        let quarter = half.shrink(&[(1, 3), (0, 16)]).unwrap();
        assert_eq!(realize(&engine, &quarter), (0, expected[16..48].to_vec()));
        let more = half.add(1).unwrap();
        let expected: Vec<i32> = expected.iter().map(|number| number + 1).collect();
        assert_eq!(realize(&engine, &more), (1, expected), "{device}");
        // Together with a tensor that must be computed.
        let (low, sum) =
            (doubled.shrink(&[(0, 4), (0, 16)]).unwrap(), half.sum(keepdim([0, 1])).unwrap());
        engine.realize(&[&low, &sum, &low]).unwrap();
        assert_eq!(low.to_vec::<i32>().unwrap()[63], 126);
        assert_eq!(sum.to_vec::<i32>().unwrap(), [2 * (64..128).sum::<i32>()]);
    }
}

/// As in a training loop, where a new kernel for each batch takes longer than the step.
#[test]
fn kernels_do_not_depend_on_where_slices_begin() {
    for device in ["interp", "jit", "c"] {
        let engine = Engine::new(device).unwrap();
        let given = rows(32);
        let flat = given.reshape(&[512]).unwrap();
        let sum = |tensor: Result<Tensor, Error>| {
            let tensor = tensor.and_then(|tensor| tensor.sum(keepdim([0]))).unwrap();
            let (count, sums) = realize(&engine, &tensor);
            (count, sums[0])
        };
        let expected = |range: std::ops::Range<i32>| range.sum::<i32>();
        for (number, first) in [0, 4, 5, 20, 28].into_iter().enumerate() {
            let rows = given.shrink(&[(first, first + 4), (0, 16)]);
            let (count, found) = sum(rows.and_then(|rows| rows.reshape(&[64])));
            let first = 16 * first as i32;
            assert_eq!(found, expected(first..first + 64), "{device}");
            assert_eq!(count, usize::from(number == 0), "{device}: rows from {first}");
        }
        // Not aligned, so copied; a slice of a slice; and two of a buffer in one kernel.
        for (number, first) in [3, 10, 200].into_iter().enumerate() {
            let (count, found) = sum(flat.shrink(&[(first, first + 57)]));
            let numbers = first as i32..first as i32 + 57;
            assert_eq!((count, found), (usize::from(number == 0), expected(numbers)), "{device}");
            let upper = flat.shrink(&[(1, 101)]).unwrap().shrink(&[(first / 4, first / 4 + 41)]);
            let first = first as i32 / 4 + 1;
            let numbers = first..first + 41;
            assert_eq!(sum(upper), (usize::from(number == 0), expected(numbers)), "{device}");
        }
        for (number, first) in [0, 1, 7].into_iter().enumerate() {
            let [low, high] = [first, first + 8].map(|row| given.get(row).unwrap());
            let (count, found) = sum(low.mul(&high));
            let products = (0..16).map(|i| (16 * first + i) * (16 * first + 128 + i));
            assert_eq!((count, found), (usize::from(number == 0), products.sum()), "{device}");
        }
        // Of more than a quarter of a buffer, a kernel reads the buffer.
        for first in [0, 5] {
            let (count, found) = sum(flat.shrink(&[(first, first + 300)]));
            assert_eq!((count, found), (1, expected(first as i32..first as i32 + 300)), "{device}");
        }
    }
}

#[test]
fn slices_beyond_limits_are_read_in_their_buffer() {
    let engine = Engine::new("jit").unwrap();
    let count = |engine: &Engine, tensor: Result<Tensor, Error>| {
        realize(engine, &tensor.and_then(|tensor| tensor.sum(keepdim([0]))).unwrap()).0
    };
    // A copy of more than a MiB would take longer than it gains; an aligned slice is not copied.
    let large = Tensor::from_slice(&[1 << 22], &vec![1i32; 1 << 22]).unwrap();
    let slice = |first: i64| large.shrink(&[(first, first + (1 << 19))]);
    assert_eq!([16, 160, 1600].map(|first| count(&engine, slice(first))), [1, 0, 0]);
    assert_eq!([17, 161].map(|first| count(&engine, slice(first))), [1, 1]);
    // Four arrays at most in a kernel: two slices, and a view of the buffer for the third.
    let mut engine = Engine::new("jit").unwrap();
    engine.schedule.arrays_max = 4;
    let given = rows(32);
    let sum = |first: i64| {
        let [a, b, c] = [first, first + 8, first + 16].map(|row| given.get(row).unwrap());
        a.add(b)?.add(c)
    };
    let (first, second) = (realize(&engine, &sum(0).unwrap()), realize(&engine, &sum(3).unwrap()));
    assert_eq!((first.1[1], second.1[1]), (3 + 16 * 24, 3 + 16 * 33));
    assert!(1 <= second.0, "the third slice begins somewhere else");
}

#[test]
fn slices_below_other_nodes_are_replaced() {
    for device in ["interp", "jit", "c"] {
        let engine = Engine::new(device).unwrap();
        let weights: Vec<f32> = (0..64).map(|number| number as f32).collect();
        let weights = Tensor::from_slice(&[16, 4], &weights).unwrap();
        let weights = weights.requires_grad_(true).unwrap();
        for (number, row) in [2, 9, 15].into_iter().enumerate() {
            // Above a parameter, below a detached node, and with a gradient.
            let slice = weights.get(row).unwrap();
            let loss = slice.square().unwrap().sum(keepdim([0])).unwrap();
            let gradient = loss.gradient(&[&weights]).unwrap().remove(0);
            let padded = weights.pad(&[(1, 0), (0, 0)], 0).unwrap().get(row + 1).unwrap();
            let detached = slice.detach().add(padded).unwrap();
            let before = engine.cached_kernel_count();
            engine.realize(&[&loss, &detached]).unwrap();
            let is_first = number == 0;
            assert_eq!(is_first, before < engine.cached_kernel_count(), "{device} {row}");
            let first = 4.0 * row as f32;
            let squares: f32 = (0..4).map(|i| (first + i as f32).powi(2)).sum();
            assert_eq!(loss.to_vec::<f32>().unwrap(), [squares]);
            assert_eq!(detached.to_vec::<f32>().unwrap()[3], 2.0 * (first + 3.0));
            let gradient = gradient.to_vec::<f32>().unwrap();
            assert_eq!(gradient[4 * row as usize + 1], 2.0 * (first + 1.0));
            assert_eq!(gradient.iter().filter(|number| **number != 0.0).count(), 4);
        }
    }
}

#[test]
fn slices_are_as_the_buffer_is_when_they_are_computed() {
    for device in ["interp", "jit", "c"] {
        let engine = Engine::new(device).unwrap();
        let given = rows(8);
        let before = given.get(1).unwrap().add(1).unwrap();
        given.assign(given.mul(2).unwrap()).unwrap();
        let after = given.get(1).unwrap().add(1).unwrap();
        engine.realize(&[&before, &after, &given]).unwrap();
        let doubled: Vec<i32> = (16..32).map(|number| 2 * number + 1).collect();
        assert_eq!(before.to_vec::<i32>().unwrap(), numbers(17..33), "{device}");
        assert_eq!(after.to_vec::<i32>().unwrap(), doubled, "{device}");
        // Of the realised result of the assignment.
        let last = given.get(7).unwrap().add(1).unwrap();
        memory_of(&given.buffer().unwrap()).unwrap().write(&[0; 512]).unwrap();
        assert_eq!(realize(&engine, &last).1, [1; 16], "{device}");
    }
}

#[test]
fn writing_a_memory_changes_no_other_tensor() {
    let engine = Engine::new("jit").unwrap();
    let given = rows(8);
    let part = given.shrink(&[(4, 8), (0, 16)]).unwrap().contiguous();
    let inner = part.shrink(&[(0, 2), (0, 16)]).unwrap();
    engine.realize(&[&part]).unwrap();
    engine.realize(&[&inner]).unwrap();
    let write = |tensor: &Tensor| {
        let memory = memory_of(&tensor.buffer().unwrap()).unwrap();
        memory.write(&vec![0; 4 * tensor.size_elements() as usize]).unwrap();
    };
    write(&given);
    assert_eq!(part.to_vec::<i32>().unwrap(), numbers(64..128));
    write(&part);
    assert_eq!(inner.to_vec::<i32>().unwrap(), numbers(64..96));
    // Kernels do not see the writes either.
    let more = inner.add(1).unwrap();
    assert_eq!(realize(&engine, &more), (1, numbers(65..97)));
    assert_eq!(given.to_vec::<i32>().unwrap(), [0; 128]);
}

/// A plan may run again on other data, so it has the kernel that `realize` does not need.
#[test]
fn plan_computes_parts_each_time_it_runs() {
    let engine = Engine::new("interp").unwrap();
    let given = rows(2);
    let part = given.shrink(&[(1, 2), (0, 16)]).unwrap().contiguous();
    let mut plans = [engine.plan(&[&part]).unwrap()];
    assert_eq!(plans[0].kernel_count(), 1);
    engine.compile(&mut plans).unwrap();
    for byte in [1u8, 2] {
        memory_of(&given.buffer().unwrap()).unwrap().write(&[byte; 128]).unwrap();
        engine.run(&plans[0]).unwrap();
        let expected = i32::from_le_bytes([byte; 4]);
        assert_eq!(part.to_vec::<i32>().unwrap(), [expected; 16]);
    }
}

/// Before its plan has run, a tensor has no bytes to share.
#[test]
fn part_of_a_planned_tensor_is_not_shared() {
    let engine = Engine::new("interp").unwrap();
    let planned = rows(2).mul(2).unwrap();
    let mut plans = [engine.plan(&[&planned]).unwrap()];
    engine.compile(&mut plans).unwrap();
    let part = planned.shrink(&[(1, 2), (0, 16)]).unwrap();
    let error = engine.realize(&[&part]).unwrap_err().to_string();
    assert!(error.contains("is read before it is written"), "{error}");
    engine.run(&plans[0]).unwrap();
    let expected: Vec<i32> = (16..32).map(|number| 2 * number).collect();
    assert_eq!(realize(&engine, &part), (0, expected));
}

/// A part of a memory on a device shares its bytes; an unaligned part is copied by a kernel of the
/// device.
#[test]
fn parts_of_device_memory_stay_on_the_device() {
    for device in ["opencl", "wgpu", "wgpu-core"] {
        let Some(engine) = or_skip(device, Engine::new(device)) else { continue };
        let doubled = rows(32).mul(2).unwrap();
        engine.realize(&[&doubled]).unwrap();
        let twice = |range: std::ops::Range<i32>| range.map(|number| 2 * number).collect();
        let part = doubled.shrink(&[(16, 32), (0, 16)]).unwrap();
        assert_eq!(realize(&engine, &part), (0, twice(256..512)), "{device}");
        let odd = doubled.reshape(&[512]).unwrap().shrink(&[(257, 512)]).unwrap();
        assert_eq!(realize(&engine, &odd), (1, twice(257..512)), "{device}");
        // Kernels read the part and the whole on the device.
        let sum = part.add(doubled.shrink(&[(0, 16), (0, 16)]).unwrap()).unwrap();
        let expected: Vec<i32> = (0..256).map(|number| 4 * number + 512).collect();
        assert_eq!(realize(&engine, &sum), (1, expected), "{device}");
        // A small part is copied. Writing the whole does not change its parts.
        let small = doubled.shrink(&[(16, 17), (0, 16)]).unwrap();
        assert_eq!(realize(&engine, &small), (0, twice(256..272)), "{device}");
        let memory = memory_of(&doubled.buffer().unwrap()).unwrap();
        memory.write(&[1; 2048]).unwrap();
        assert_eq!(part.to_vec::<i32>().unwrap(), twice(256..512), "{device}");
        assert_eq!(small.to_vec::<i32>().unwrap(), twice(256..272), "{device}");
        let given = rows(8).shrink(&[(4, 8), (0, 16)]).unwrap();
        assert_eq!(realize(&engine, &given), (0, numbers(64..128)), "{device}");
    }
}

/// Random numbers from a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: i64) -> i64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) % bound as u64) as i64
    }

    /// Applies a random movement, or `contiguous`.
    fn apply_movement(&mut self, tensor: &Tensor) -> Tensor {
        let shape = tensor.shape().to_vec();
        let moved = match self.below(7) {
            0..3 => {
                let mut bounds = |size: i64| {
                    let start = self.below(size);
                    (start, start + 1 + self.below(size - start))
                };
                let is_outer = |axis: usize| shape[..axis].iter().all(|size| *size == 1);
                let bounds: Vec<(i64, i64)> = (0..shape.len())
                    .map(|axis| if is_outer(axis) { bounds(shape[axis]) } else { (0, shape[axis]) })
                    .collect();
                tensor.shrink(&bounds)
            }
            3 => {
                let size = tensor.size_elements();
                let inner =
                    (1..=size).filter(|inner| size % inner == 0).nth(self.below(2) as usize);
                let inner = inner.unwrap_or(1);
                tensor.reshape(&[size / inner, 1, inner])
            }
            4 => tensor.permute(&(0..shape.len() as i64).rev().collect::<Vec<_>>()),
            5 => tensor.flip(&[self.below(shape.len() as i64)]),
            _ => Ok(tensor.contiguous()),
        };
        moved.unwrap()
    }
}

/// Computes a tensor by a plan, with a kernel of its own.
fn compute_by_plan(engine: &Engine, tensor: &Tensor) -> Vec<i32> {
    let mut plans = [engine.plan(&[tensor]).unwrap()];
    engine.compile(&mut plans).unwrap();
    engine.run(&plans[0]).unwrap();
    tensor.to_vec().unwrap()
}

#[test]
fn parts_agree_with_kernels() {
    let engine = Engine::new("interp").unwrap();
    let mut dice = Dice(1);
    let mut part_count = 0;
    for case in 0..400 {
        let sizes = [1 + dice.below(5), 1 + dice.below(5), 1 + dice.below(40)];
        let numbers: Vec<i32> = (0..sizes.iter().product::<i64>() as i32).collect();
        let mut moved = Tensor::from_slice(&sizes, &numbers).unwrap();
        for _ in 0..1 + dice.below(4) {
            moved = dice.apply_movement(&moved);
        }
        part_count += usize::from(gradiff::schedule::part_of(&moved.uop()).is_some());
        let expected = compute_by_plan(&engine, &Tensor::from_uop(moved.uop()).unwrap());
        let (_, found) = realize(&engine, &moved);
        assert_eq!(found, expected, "case {case}: {:?} of {sizes:?}", moved.shape());
    }
    assert!((100..350).contains(&part_count), "{part_count} of 400 are parts");
}
