//! Devices with drivers, as far as they are available: groups, local memory and barriers, copies,
//! and refused kernels.

use std::sync::Arc;

use crate::common::{Builder, Expression, elementwise, ints, memory_of, values_of};
use gradiff_graph::{Arg, AxisKind, Constant, DType, Linear, Op, evaluate};
use gradiff_runtime::{Device, Error, Memory, device};
use gradiff_skip::{or_skip, skip};

const DRIVERS: [&str; 3] = ["opencl", "wgpu", "wgpu-core"];

/// `data0[g] = sum over l of data1[4 * g + l]` for threads l, through local memory and a barrier.
fn grouped_sum(groups: i64, threads: i64) -> Linear {
    grouped_sum_of(DType::I32, groups, threads)
}

fn grouped_sum_of(dtype: DType, groups: i64, threads: i64) -> Linear {
    let mut b = Builder::default();
    let output = b.global(0, dtype, groups);
    let input = b.global(1, dtype, groups * threads);
    let local = b.local(0, dtype, threads);
    let (first_end, count) = (b.int(1), b.int(threads));
    let zero = b.constant(Constant::zero(dtype));
    let group = b.range_of(AxisKind::Global, groups);
    let thread = b.range_of(AxisKind::Local, threads);
    let row = b.binary(Op::Mul, DType::I32, group, count);
    let index = b.binary(Op::Add, DType::I32, row, thread);
    let value = b.load(input, index, None);
    b.store(local, thread, None, value);
    b.barrier();
    let sum = b.push(Op::DefineAcc, dtype, &[zero], Arg::Int(0));
    let range = b.range(threads);
    let value = b.load(local, range, None);
    let next = b.binary(Op::Add, dtype, sum, value);
    b.push(Op::Assign, dtype, &[sum, next], Arg::None);
    b.end(range);
    let is_first = b.binary(Op::CmpLt, DType::Bool, thread, first_end);
    b.store(output, group, Some(is_first), sum);
    b.end(thread);
    b.end(group);
    b.verified("r_5_4")
}

#[test]
fn grouped_sums_agree_with_the_checked_interpreter() {
    let devices = available_devices();
    for dtype in [DType::I32, DType::I8, DType::U16, DType::F16] {
        let input = memory_of(&numbers(dtype));
        let kernel = grouped_sum_of(dtype, 5, 16);
        let sums = |name: &str| {
            let executable = device(name)?.compile_checked(&[&kernel])?.remove(0);
            let output = Memory::new(dtype, 5)?;
            executable.run(&[&output, &input])?;
            Ok::<_, Error>(values_of(&output))
        };
        let expected = sums("interp").unwrap();
        let second = numbers(dtype)[16..32].to_vec();
        let add = |x, y| evaluate(Op::Add, dtype, &[x, y]).expect("a sum");
        assert_eq!(Some(expected[1]), second.into_iter().reduce(add), "{dtype}");
        for device in &devices {
            assert_eq!(sums(device.name()).unwrap(), expected, "{dtype} {}", device.name());
        }
    }
}

/// The numbers 0 to 79, whose sums wrap in 8 bits.
fn numbers(dtype: DType) -> Vec<Constant> {
    let number = |value: i32| match dtype.is_float() {
        true => Constant::float(dtype, value.into()),
        false => Constant::int(dtype, value.into()),
    };
    (0..80).map(number).collect()
}

/// The available devices. Each other one is counted as a skip, with the reason.
fn available_devices() -> Vec<Arc<dyn Device>> {
    let mut found = Vec::new();
    for name in DRIVERS {
        match device(name) {
            Ok(device) => found.push(device),
            Err(error) => {
                let text = error.to_string();
                assert!(matches!(error, Error::Unavailable { .. }), "{text}");
                assert!(text.starts_with(&format!("device {name} is not available: ")), "{text}");
                assert!(!text.contains('\n'), "{text}");
                skip(name, &text);
            }
        }
    }
    found
}

/// `data0[i] = data1[i] op data2[i]`
fn binary(op: Op, from: DType, to: DType, count: i64) -> Linear {
    let inputs = [0, 1].map(|number| Expression::Input(number, from));
    let expression = Expression::Apply(op, to, inputs.to_vec());
    elementwise(&format!("E_{count}"), &expression, &[from, from], count)
}

#[test]
fn copies_are_updated_after_writes() {
    for device in available_devices() {
        let sum = binary(Op::Add, DType::I32, DType::I32, 3);
        let less = binary(Op::CmpLt, DType::I32, DType::Bool, 3);
        let differ = binary(Op::CmpNe, DType::Bool, DType::Bool, 3);
        let [sum, less, differ] =
            device.compile_checked(&[&sum, &less, &differ]).unwrap().try_into().ok().unwrap();
        let [x, y] = [[1, 2, 3], [3, 2, 1]].map(|values| memory_of(&ints(DType::I32, &values)));
        let [p, q] = [(); 2].map(|()| Memory::new(DType::Bool, 3).unwrap());
        less.run(&[&p, &x, &y]).unwrap();
        // The source of the sum is written after the launch.
        sum.run(&[&y, &x, &x]).unwrap();
        x.write(&[7, 0, 0, 0, 8, 0, 0, 0, 9, 0, 0, 0]).unwrap();
        less.run(&[&q, &x, &y]).unwrap();
        let r = memory_of(&ints(DType::Bool, &[0, 1, 1]));
        differ.run(&[&r, &p, &q]).unwrap();
        assert_eq!(values_of(&y), ints(DType::I32, &[2, 4, 6]), "{}", device.name());
        assert_eq!((p.read().unwrap(), q.read().unwrap()), (vec![1, 0, 0], vec![0, 0, 0]));
        assert_eq!(r.read().unwrap(), [1, 0, 0]);
        r.write(&[0, 5, 1]).unwrap();
        differ.run(&[&q, &p, &r]).unwrap();
        assert_eq!(q.read().unwrap(), [1, 1, 1], "{}", device.name());
        // More launches than are recorded before a submission, and dropped memories.
        for _ in 0..100 {
            let copy = Memory::new(DType::I32, 3).unwrap();
            sum.run(&[&copy, &y, &x]).unwrap();
            sum.run(&[&y, &copy, &x]).unwrap();
        }
        device.wait().unwrap();
        assert_eq!(values_of(&y), ints(DType::I32, &[1402, 1604, 1806]), "{}", device.name());
    }
}

#[test]
fn timed_launch_computes_the_same_within_the_elapsed_time() {
    let names = ["interp", "jit", "c"].map(|name| device(name).unwrap());
    for device in names.into_iter().chain(available_devices()) {
        let sum = binary(Op::Add, DType::I32, DType::I32, 3);
        let sum = device.compile_checked(&[&sum]).unwrap().remove(0);
        let [x, y] = [[1, 2, 3], [3, 2, 1]].map(|values| memory_of(&ints(DType::I32, &values)));
        for expected in [[4, 4, 4], [6, 8, 10]] {
            let output = Memory::new(DType::I32, 3).unwrap();
            let start = std::time::Instant::now();
            let time = device.time(&*sum, &[&output, &x, &y]).unwrap();
            assert!(time <= start.elapsed(), "{}: {time:?}", device.name());
            assert_ne!(time, std::time::Duration::ZERO, "{}", device.name());
            assert_eq!(values_of(&output), ints(DType::I32, &expected), "{}", device.name());
            sum.run(&[&y, &output, &x]).unwrap();
        }
        assert!(device.time(&*sum, &[&x, &x, &y]).is_err(), "{}", device.name());
    }
}

#[test]
fn device_clock_does_not_count_copies() {
    let Some(opencl) = or_skip("opencl", device("opencl")) else { return };
    let sum = binary(Op::Add, DType::I32, DType::I32, 3);
    let sum = opencl.compile_checked(&[&sum]).unwrap().remove(0);
    let output = Memory::new(DType::I32, 3).unwrap();
    let small = memory_of(&ints(DType::I32, &[1, 2, 3]));
    // The first launch initialises the driver.
    sum.run(&[&output, &small, &small]).unwrap();
    // Uploads 256 MiB, of which the kernel reads 12 bytes.
    let large = Memory::from_bytes(DType::I32, &vec![1; 256 << 20]).unwrap();
    let start = std::time::Instant::now();
    let time = opencl.time(&*sum, &[&output, &large, &small]).unwrap();
    let elapsed = start.elapsed();
    assert!(4 * time < elapsed, "{time:?} of {elapsed:?}");
}

#[test]
fn threads_may_share_a_driver() {
    for device in available_devices() {
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let device = &device;
                scope.spawn(move || {
                    let kernel = grouped_sum(3 + thread, 4);
                    let kernel = device.compile_checked(&[&kernel]).unwrap().remove(0);
                    let numbers: Vec<i128> = (0..i128::from(12 + 4 * thread)).collect();
                    let input = memory_of(&ints(DType::I32, &numbers));
                    let output = Memory::new(DType::I32, 3 + thread as usize).unwrap();
                    let sums: Vec<i128> = numbers.chunks(4).map(|four| four.iter().sum()).collect();
                    for _ in 0..20 {
                        kernel.run(&[&output, &input]).unwrap();
                        assert_eq!(values_of(&output), ints(DType::I32, &sums));
                    }
                });
            }
        });
    }
}

#[test]
fn kernels_that_wgsl_does_not_support_are_refused() {
    let Some(wgpu) = or_skip("wgpu", device("wgpu")) else { return };
    for dtype in [DType::I64, DType::U64, DType::F64] {
        let core = device("wgpu-core").expect("the same adapter");
        let kernel = binary(Op::Add, dtype, dtype, 3);
        let Err(error) = core.compile_checked(&[&kernel]) else {
            panic!("the core has no {dtype}")
        };
        assert_eq!(error.to_string(), format!("kernel E_3: device wgpu-core has no {dtype}"));
    }
    // Too many arrays, and a too large array.
    let mut b = Builder::default();
    let arrays: Vec<u32> = (0..2000).map(|slot| b.global(slot, DType::I32, 1)).collect();
    let zero = b.int(0);
    b.store(arrays[0], zero, None, zero);
    let Err(error) = wgpu.compile_checked(&[&b.verified("E_2000")]) else {
        panic!("too many arrays")
    };
    assert!(matches!(error, Error::Launch { .. }), "{error}");
    let kernel = binary(Op::Add, DType::I32, DType::I32, 1 << 40);
    let Err(error) = wgpu.compile_checked(&[&kernel]) else { panic!("too large an array") };
    assert!(matches!(error, Error::Launch { .. }), "{error}");
    assert!(wgpu.compile_checked(&[&grouped_sum(1, 2)]).is_ok(), "the device works after errors");
}

#[test]
fn groups_beyond_the_limits_are_refused() {
    for device in available_devices() {
        let groups = device.target().groups.expect("it has groups");
        let too_many = grouped_sum(1, groups.threads + 1);
        let refused = device.compile_checked(&[&too_many]);
        assert!(matches!(refused, Err(Error::Launch { .. })), "{:?}", refused.err());
        let good = device.compile_checked(&[&grouped_sum(1, 2), &grouped_sum(2, 3)]).unwrap();
        assert_eq!(good.len(), 2);
    }
}

/// Drivers did not compile groups without threads.
#[test]
fn launches_without_threads_do_nothing() {
    for device in available_devices() {
        for kind in [AxisKind::Global, AxisKind::Local] {
            let mut b = Builder::default();
            let output = b.global(0, DType::I32, 1);
            let range = b.range_of(kind, 0);
            b.store(output, range, None, range);
            b.end(range);
            let kernel = device.compile_checked(&[&b.verified("E_0")]).unwrap().remove(0);
            let memory = memory_of(&ints(DType::I32, &[7]));
            kernel.run(&[&memory]).unwrap();
            assert_eq!(values_of(&memory), ints(DType::I32, &[7]), "{}", device.name());
        }
    }
}

/// The driver, which knows its own limits, takes a group at the limits that the target states.
#[test]
fn groups_at_the_limits_run() {
    for device in available_devices() {
        let groups = device.target().groups.expect("it has groups");
        let longest = groups.threads.min(groups.sizes[0]);
        let elements = groups.local_bytes / DType::I32.size_bytes() as i64;
        let mut b = Builder::default();
        let output = b.global(0, DType::I32, longest);
        let local = b.local(0, DType::I32, elements);
        let last = b.int(elements - 1);
        let thread = b.range_of(AxisKind::Local, longest);
        let reversed = b.binary(Op::Sub, DType::I32, last, thread);
        b.store(local, reversed, None, thread);
        b.barrier();
        let first = b.int(elements - longest);
        let index = b.binary(Op::Add, DType::I32, first, thread);
        let value = b.load(local, index, None);
        b.store(output, thread, None, value);
        b.end(thread);
        let kernel = device.compile_checked(&[&b.verified("E_limits")]).unwrap().remove(0);
        let memory = Memory::new(DType::I32, longest as usize).unwrap();
        kernel.run(&[&memory]).unwrap();
        let expected: Vec<i128> = (0..i128::from(longest)).rev().collect();
        assert_eq!(values_of(&memory), ints(DType::I32, &expected), "{}", device.name());
    }
}

#[test]
fn memory_is_unwritten_after_a_launch_of_null() {
    let output = Memory::new(DType::I32, 5).unwrap();
    let input = memory_of(&ints(DType::I32, &[1; 80]));
    let kernel = grouped_sum(5, 16);
    let null = device("null").unwrap().compile_checked(&[&kernel]).unwrap().remove(0);
    null.run(&[&output, &input]).unwrap();
    assert!(output.read().unwrap_err().to_string().contains("nothing was ever written"));
    assert!(null.run(&[&input, &output]).is_err(), "the sizes do not fit");
}
