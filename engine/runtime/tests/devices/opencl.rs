//! OpenCL, where a driver is there: groups, local memory and barriers, and what is refused.

use crate::common::{Builder, ints, memory_of, values_of};
use gradiff_graph::{Arg, AxisKind, DType, Linear, Op};
use gradiff_runtime::{Error, Memory, device};

/// `data0[g] = sum over l of data1[4 * g + l]` for threads l, by local memory and a barrier.
fn grouped_sum(groups: i64, threads: i64) -> Linear {
    let mut b = Builder::default();
    let output = b.global(0, DType::I32, groups);
    let input = b.global(1, DType::I32, groups * threads);
    let local = b.local(0, DType::I32, threads);
    let [zero, one, count] = [0, 1, threads].map(|value| b.int(value));
    let group = b.range_of(AxisKind::Global, groups);
    let thread = b.range_of(AxisKind::Local, threads);
    let row = b.binary(Op::Mul, DType::I32, group, count);
    let index = b.binary(Op::Add, DType::I32, row, thread);
    let value = b.load(input, index, None);
    b.store(local, thread, None, value);
    b.barrier();
    let sum = b.push(Op::DefineAcc, DType::I32, &[zero], Arg::Int(0));
    let step = b.range(threads);
    let value = b.load(local, step, None);
    let next = b.binary(Op::Add, DType::I32, sum, value);
    b.push(Op::Assign, DType::I32, &[sum, next], Arg::None);
    b.end(step);
    let is_first = b.binary(Op::CmpLt, DType::Bool, thread, one);
    b.store(output, group, Some(is_first), sum);
    b.end(thread);
    b.end(group);
    b.verified("r_5_4")
}

#[test]
fn grouped_sums_agree_with_the_checked_interpreter() {
    let input = memory_of(&ints(DType::I32, &(0..80).collect::<Vec<_>>()));
    let kernel = grouped_sum(5, 16);
    let sums = |name: &str| {
        let executable = device(name)?.compile(&[&kernel])?.remove(0);
        let output = Memory::new(DType::I32, 5)?;
        executable.run(&[&output, &input])?;
        Ok(values_of(&output))
    };
    let expected = sums("interp").unwrap();
    assert_eq!(expected[1], gradiff_graph::Constant::int(DType::I32, (16..32).sum()));
    match sums("opencl") {
        Ok(found) => assert_eq!(found, expected),
        Err(error) => assert_is_missing(&error),
    }
}

/// Without a driver there is one line that says so.
fn assert_is_missing(error: &Error) {
    let text = error.to_string();
    assert!(matches!(error, Error::Unavailable { device: "opencl", .. }), "{text}");
    assert!(text.starts_with("device opencl is not available: ") && !text.contains('\n'), "{text}");
}

#[test]
fn groups_beyond_the_limits_are_refused() {
    match device("opencl") {
        Err(error) => assert_is_missing(&error),
        Ok(device) => {
            let groups = device.limits().groups.expect("OpenCL has groups");
            let too_many = grouped_sum(1, groups.threads_max as i64 * 2);
            let refused = device.compile(&[&too_many]);
            assert!(matches!(refused, Err(Error::Launch { .. })), "{:?}", refused.err());
            let good = device.compile(&[&grouped_sum(1, 2), &grouped_sum(2, 3)]).unwrap();
            assert_eq!(good.len(), 2);
        }
    }
}

#[test]
fn what_was_not_computed_is_not_read() {
    let output = Memory::new(DType::I32, 5).unwrap();
    let input = memory_of(&ints(DType::I32, &[1; 80]));
    let kernel = grouped_sum(5, 16);
    let null = device("null").unwrap().compile(&[&kernel]).unwrap().remove(0);
    null.run(&[&output, &input]).unwrap();
    assert!(output.read().unwrap_err().to_string().contains("nothing was ever written"));
    assert!(null.run(&[&input, &output]).is_err(), "the sizes do not fit");
}
