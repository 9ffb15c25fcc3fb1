//! Loops, gates, accumulators, memory, and refused kernels.

use crate::common::{Builder, Expression, elementwise, ints, memory_of, values_of};
use gradiff_graph::{Arg, AxisKind, Constant, DType, Linear, Op};
use gradiff_runtime::{Array, Error, Memory, device, devices};

const DEVICES: [&str; 3] = ["interp", "jit", "c"];

/// Runs the kernel with a new output and the inputs, and returns the output.
fn run(
    name: &str,
    kernel: &Linear,
    count: usize,
    inputs: &[&Memory],
) -> Result<Vec<Constant>, Error> {
    let executable = device(name)?.compile_checked(&[kernel])?.remove(0);
    let output = Memory::new(kernel.globals()[0].1, count)?;
    let memories: Vec<&Memory> = std::iter::once(&output).chain(inputs.iter().copied()).collect();
    executable.run(&memories)?;
    Ok(values_of(&output))
}

fn check(kernel: &Linear, inputs: &[&Memory], expected: &[Constant]) {
    for name in DEVICES {
        let values = run(name, kernel, expected.len(), inputs).expect("the kernel runs");
        assert_eq!(values, expected, "{name}\n{kernel}");
    }
}

/// `data0[i] = sum over j of data1[3 * i + j]`, rows of 3.
fn row_sums(rows: i64) -> Linear {
    let mut b = Builder::default();
    let output = b.global(0, DType::I32, rows);
    let input = b.global(1, DType::I32, rows * 3);
    let three = b.int(3);
    let row = b.range(rows);
    let start = b.int(0);
    let sum = b.push(Op::DefineAcc, DType::I32, &[start], Arg::Int(0));
    let column = b.range(3);
    let scaled = b.binary(Op::Mul, DType::I32, row, three);
    let index = b.binary(Op::Add, DType::I32, scaled, column);
    let value = b.load(input, index, None);
    let next = b.binary(Op::Add, DType::I32, sum, value);
    b.push(Op::Assign, DType::I32, &[sum, next], Arg::None);
    b.end(column);
    b.store(output, row, None, sum);
    b.end(row);
    b.finish("r_2_3")
}

#[test]
fn accumulator_is_reset_for_each_row() {
    let input = memory_of(&ints(DType::I32, &[1, 2, 3, 40, 50, 60]));
    check(&row_sums(2), &[&input], &ints(DType::I32, &[6, 150]));
}

#[test]
fn heavy_kernels_among_light_ones_keep_their_order() {
    let kernels = [row_sums(2), row_sums(60_000), row_sums(3)];
    let kernels: Vec<&Linear> = kernels.iter().collect();
    for name in DEVICES {
        let executables = device(name).unwrap().compile_checked(&kernels).unwrap();
        for (executable, rows) in executables.iter().zip([2usize, 60_000, 3]) {
            let numbers: Vec<i128> = (0..3 * rows as i128).collect();
            let output = Memory::new(DType::I32, rows).unwrap();
            executable.run(&[&output, &memory_of(&ints(DType::I32, &numbers))]).unwrap();
            let sums: Vec<i128> = (0..rows as i128).map(|row| 9 * row + 3).collect();
            assert_eq!(values_of(&output), ints(DType::I32, &sums), "{name} {rows}");
        }
    }
}

#[test]
fn accumulator_reads_as_its_current_value() {
    // Two accumulators exchange values: a Fibonacci number after seven iterations.
    let mut b = Builder::default();
    let output = b.global(0, DType::I32, 1);
    let (zero, one) = (b.int(0), b.int(1));
    let first = b.push(Op::DefineAcc, DType::I32, &[zero], Arg::Int(0));
    let second = b.push(Op::DefineAcc, DType::I32, &[one], Arg::Int(1));
    let range = b.range(7);
    let sum = b.binary(Op::Add, DType::I32, first, second);
    let old = b.binary(Op::Add, DType::I32, second, zero);
    b.push(Op::Assign, DType::I32, &[second, sum], Arg::None);
    b.push(Op::Assign, DType::I32, &[first, old], Arg::None);
    b.end(range);
    b.store(output, zero, None, first);
    check(&b.finish("r_7"), &[], &ints(DType::I32, &[13]));
}

/// `data0[i] = i < 2 ? 0 : data1[i - 2]`, stored only where `i < 5`.
fn gated() -> Linear {
    let mut b = Builder::default();
    let output = b.global(0, DType::I16, 6);
    let input = b.global(1, DType::I16, 3);
    let (two, five) = (b.int(2), b.int(5));
    let range = b.range(6);
    let index = b.binary(Op::Sub, DType::I32, range, two);
    let is_before = b.binary(Op::CmpLt, DType::Bool, range, two);
    let yes = b.constant(Constant::bool(true));
    let is_after = b.binary(Op::CmpNe, DType::Bool, is_before, yes);
    let is_stored = b.binary(Op::CmpLt, DType::Bool, range, five);
    let gate = b.binary(Op::And, DType::Bool, is_after, is_stored);
    let value = b.load(input, index, Some(gate));
    b.store(output, range, Some(is_stored), value);
    b.end(range);
    b.finish("E_6")
}

#[test]
fn false_gate_accesses_no_memory() {
    let input = memory_of(&ints(DType::I16, &[-5, 6, 7]));
    check(&gated(), &[&input], &ints(DType::I16, &[0, 0, -5, 6, 7, 0]));
}

#[test]
fn loop_with_trip_count_0_does_nothing() {
    let kernel = elementwise("E_0", &Expression::Input(0, DType::F64), &[DType::F64], 0);
    let input = Memory::new(DType::F64, 0).unwrap();
    check(&kernel, &[&input], &[]);
}

#[test]
fn unused_slots_are_ignored() {
    let mut b = Builder::default();
    let output = b.global(0, DType::U8, 1);
    let input = b.global(2, DType::U8, 1);
    let zero = b.int(0);
    let value = b.load(input, zero, None);
    b.store(output, zero, None, value);
    let unused = Memory::new(DType::F32, 7).unwrap();
    check(&b.finish("E_1"), &[&unused, &memory_of(&ints(DType::U8, &[9]))], &ints(DType::U8, &[9]));
}

#[test]
fn interp_reports_index_out_of_bounds() {
    let kernel = elementwise("E_4", &Expression::Input(0, DType::I8), &[DType::I8], 4);
    let mut kernel = kernel;
    let last = kernel.uops.iter_mut().find(|uop| uop.op == Op::Const).unwrap();
    last.arg = Arg::Const(Constant::int(DType::I32, 5));
    let input = memory_of(&ints(DType::I8, &[1, 2, 3, 4]));
    match run("interp", &kernel, 4, &[&input]) {
        Err(Error::OutOfBounds { kernel, array, index: 4, size_elements: 4, position }) => {
            assert_eq!(array, Array::Data(1));
            assert_eq!((kernel.as_str(), position), ("E_4", 5));
        }
        result => panic!("{result:?}"),
    }
}

#[test]
fn interp_reports_read_of_unwritten_element() {
    let copy = elementwise("E_4", &Expression::Input(0, DType::I8), &[DType::I8], 4);
    let half = elementwise("E_2", &Expression::Input(0, DType::I8), &[DType::I8], 2);
    let half_written = Memory::new(DType::I8, 4).unwrap();
    let two = memory_of(&ints(DType::I8, &[1, 2]));
    let device = device("interp").unwrap();
    let executables = device.compile_checked(&[&copy, &half]).unwrap();
    executables[1].run(&[&half_written, &two]).unwrap();
    let output = Memory::new(DType::I8, 4).unwrap();
    match executables[0].run(&[&output, &half_written]) {
        Err(Error::Uninitialised { array: Array::Data(1), index: 2, size_elements: 4, .. }) => {}
        result => panic!("{result:?}"),
    }
    half_written.write(&[1, 2, 3, 4]).unwrap();
    executables[0].run(&[&output, &half_written]).unwrap();
}

#[test]
fn memories_that_do_not_fit_are_refused() {
    let kernel = elementwise("E_4", &Expression::Input(0, DType::I8), &[DType::I8], 4);
    let [output, right] = [(); 2].map(|()| memory_of(&ints(DType::I8, &[0; 4])));
    let short = memory_of(&ints(DType::I8, &[0; 3]));
    let wrong_dtype = memory_of(&ints(DType::U8, &[0; 4]));
    for name in DEVICES {
        let executable = device(name).unwrap().compile_checked(&[&kernel]).unwrap().remove(0);
        executable.run(&[&output, &right]).unwrap();
        for memories in [
            vec![&output],
            vec![&output, &short],
            vec![&output, &wrong_dtype],
            vec![&output, &output],
        ] {
            let refused = executable.run(&memories);
            assert!(matches!(refused, Err(Error::Arguments { .. })), "{name} {memories:?}");
        }
    }
}

#[test]
fn memory_may_be_in_two_slots_that_are_read() {
    let [x, y] = [0, 1].map(|number| Expression::Input(number, DType::I32));
    let sum = Expression::Apply(Op::Add, DType::I32, vec![x, y]);
    let kernel = elementwise("E_2", &sum, &[DType::I32, DType::I32], 2);
    let input = memory_of(&ints(DType::I32, &[3, 4]));
    check(&kernel, &[&input, &input], &ints(DType::I32, &[6, 8]));
}

/// `data0[0] = 7`, with local arrays of these numbers and sizes.
fn with_locals(arrays: &[(usize, i64)]) -> Linear {
    let mut b = Builder::default();
    let output = b.global(0, DType::I32, 1);
    for (number, size_elements) in arrays {
        b.local(*number, DType::I32, *size_elements);
    }
    let [zero, seven] = [0, 7].map(|value| b.int(value));
    b.store(output, zero, None, seven);
    Linear { name: "E_1".to_owned(), uops: b.uops }
}

#[test]
fn malformed_kernels_are_errors() {
    let mut open = elementwise("E_4", &Expression::Input(0, DType::I8), &[DType::I8], 4);
    open.uops.pop();
    let mut forward = row_sums(2);
    forward.uops[8].src[0] = 20;
    let mut of_float = elementwise("E_4", &Expression::Input(0, DType::F32), &[DType::F32], 4);
    let store = of_float.uops.len() - 2;
    let load = of_float.uops[store].src[1];
    of_float.uops.insert(store, of_float.uops[load as usize].clone());
    of_float.uops[store].op = Op::Xor;
    of_float.uops[store].src = [load, load].into_iter().collect();
    of_float.uops[store + 1].src[1] = store as u32;
    let twice = with_locals(&[(0, 4), (1, 4), (0, 8)]);
    let [large, negative] = [1 << 40, -1].map(|size| with_locals(&[(0, 4), (1, size)]));
    for name in ["interp", "jit"] {
        for kernel in [&open, &forward, &of_float, &twice, &large, &negative] {
            let refused = device(name).unwrap().compile_checked(&[kernel]);
            assert!(refused.is_err(), "{name}\n{kernel}");
        }
        // The device works after a refused kernel.
        let good = elementwise("E_4", &Expression::Input(0, DType::I8), &[DType::I8], 4);
        device(name).unwrap().compile_checked(&[&good, &with_locals(&[(0, 4), (1, 8)])]).unwrap();
    }
    for kernel in [&forward, &of_float] {
        assert!(device("c").unwrap().compile_checked(&[kernel]).is_err(), "c\n{kernel}");
    }
}

#[test]
fn concurrent_launches_are_serialised() {
    let kernel = row_sums(2);
    for name in DEVICES {
        let executable = device(name).unwrap().compile_checked(&[&kernel]).unwrap().remove(0);
        let input = memory_of(&ints(DType::I32, &[1, 2, 3, 40, 50, 60]));
        let output = Memory::new(DType::I32, 2).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        executable.run(&[&output, &input]).unwrap();
                    }
                });
            }
        });
        assert_eq!(values_of(&output), ints(DType::I32, &[6, 150]));
    }
}

/// `data0[i * 1000 + j] = data1[i * 1000 + j] + i`, where i is a thread range.
fn threaded(count: i64) -> Linear {
    let mut b = Builder::default();
    let output = b.global(0, DType::I32, count * 1000);
    let input = b.global(1, DType::I32, count * 1000);
    let width = b.int(1000);
    let row = b.range_of(AxisKind::Thread, count);
    let start = b.binary(Op::Mul, DType::I32, row, width);
    let column = b.range(1000);
    let index = b.binary(Op::Add, DType::I32, start, column);
    let value = b.load(input, index, None);
    let sum = b.binary(Op::Add, DType::I32, value, row);
    b.store(output, index, None, sum);
    b.end(column);
    b.end(row);
    b.verified("E_t_1000")
}

#[test]
fn all_iterations_of_a_thread_range_run() {
    let kernels = [threaded(7), threaded(64), threaded(1)];
    let kernels: Vec<&Linear> = kernels.iter().collect();
    for name in DEVICES {
        let executables = device(name).unwrap().compile_checked(&kernels).unwrap();
        for (executable, count) in executables.iter().zip([7i128, 64, 1]) {
            let numbers: Vec<i128> = (0..1000 * count).collect();
            let input = memory_of(&ints(DType::I32, &numbers));
            let output = Memory::new(DType::I32, numbers.len()).unwrap();
            executable.run(&[&output, &input]).unwrap();
            let sums: Vec<i128> = numbers.iter().map(|number| number + number / 1000).collect();
            assert_eq!(values_of(&output), ints(DType::I32, &sums), "{name} {count}");
        }
    }
}

#[test]
fn store_after_a_thread_range_runs_once_and_last() {
    // data0[i] = i in a thread range, then data0[1] = 5: not a function of an iteration.
    let mut b = Builder::default();
    let output = b.global(0, DType::I32, 4);
    let (index, five) = (b.int(1), b.int(5));
    let range = b.range_of(AxisKind::Thread, 4);
    b.store(output, range, None, range);
    b.end(range);
    b.store(output, index, None, five);
    check(&b.verified("E_4"), &[], &ints(DType::I32, &[0, 5, 2, 3]));
}

#[test]
fn devices_are_listed_and_unknown_ones_refused() {
    let rows = devices();
    let names: Vec<&str> = rows.iter().map(|row| row.name).collect();
    let (_, page) = include_str!("../../../README.md").split_once("## Devices").expect("a section");
    let table = page.lines().skip_while(|line| !line.starts_with("| `"));
    let cells = table.map_while(|line| line.strip_prefix("| ")?.split_once(" | ")).map(|row| row.0);
    let documented: Vec<&str> =
        cells.flat_map(|cell| cell.split(", ").map(|name| name.trim_matches('`'))).collect();
    assert_eq!(documented, names, "engine/README.md");
    assert!(rows[0].status.is_ok());
    let Err(error) = device("gpu") else { panic!("there is no such device") };
    let names = names.join(", ");
    assert_eq!(error.to_string(), format!("there is no device `gpu`; devices are {names}"));
}

/// Also run by the processes that the next test starts.
#[test]
fn c_kernel_runs() {
    let input = memory_of(&ints(DType::I32, &[1, 2, 3, 40, 50, 60]));
    let values = run("c", &row_sums(2), 2, &[&input]).unwrap();
    assert_eq!(values, ints(DType::I32, &[6, 150]));
}

#[test]
fn concurrent_c_processes_share_one_cache() {
    let directory = tempfile::tempdir().unwrap();
    let start = || {
        std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "kernels::c_kernel_runs"])
            .env("GRADIFF_CACHE_DIR", directory.path())
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap()
    };
    let children: Vec<_> = (0..3).map(|_| start()).collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let is_entry = |entry: &std::fs::DirEntry| entry.path().extension().is_some_and(|e| e == "so");
    let listing = std::fs::read_dir(directory.path()).unwrap().flatten();
    assert_eq!(listing.filter(is_entry).count(), 1);
}

#[cfg(unix)]
#[test]
fn c_cache_writable_by_others_is_not_used_and_no_files_are_left() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let [shared, temporary] = ["shared", "temporary"].map(|name| directory.path().join(name));
    // The leftover of a process that was killed.
    let leftover = temporary.join("gradiff-private-0123456789abcdef");
    std::fs::create_dir_all(&leftover).unwrap();
    std::fs::write(leftover.join("claim"), "").unwrap();
    std::fs::set_permissions(leftover.join("claim"), PermissionsExt::from_mode(0o600)).unwrap();
    // A folder of the user's, which has no claim, and is as old as a leftover without it may be.
    let notes = temporary.join("gradiff-private-notes");
    std::fs::create_dir(&notes).unwrap();
    let time = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
    std::fs::File::open(&notes).unwrap().set_modified(time).unwrap();
    std::fs::create_dir(&shared).unwrap();
    std::fs::set_permissions(&shared, PermissionsExt::from_mode(0o777)).unwrap();
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kernels::c_kernel_runs", "--nocapture"])
        .env("GRADIFF_CACHE_DIR", &shared)
        .env("TMPDIR", &temporary)
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    for part in ["cannot use the cache directory", "mode 777", "this process alone"] {
        assert!(stderr.contains(part), "{stderr}");
    }
    for (folder, expected) in [(&shared, None), (&temporary, Some(notes))] {
        let files: Vec<_> = std::fs::read_dir(folder).unwrap().flatten().collect();
        let paths: Vec<_> = files.iter().map(|file| file.path()).collect();
        assert_eq!(paths, Vec::from_iter(expected));
    }
}

/// A regression test: devices `c` and `jit` ran this kernel, which reads and writes out of bounds.
#[test]
fn text_with_accesses_out_of_bounds_is_refused() {
    let text = |index: &str, size: &str| {
        format!(
            "kernel E\n0 define_global i32 [] data0 {size}\n1 const i64 [] {index}\n2 const i32 [] \
             7\n3 index i32 [0, 1]\n4 store void [3, 2]\n"
        )
    };
    let parsed = |text: &str| gradiff_graph::text::parse_linears(text).unwrap().remove(0);
    let out_of_bounds = parsed(&text("123456789123456", "1"));
    let in_bounds = parsed(&text("0", "1"));
    for name in ["jit", "c", "null"] {
        let device = device(name).unwrap();
        let Err(error) = device.compile_checked(&[&in_bounds, &out_of_bounds]) else {
            panic!("{name} ran it")
        };
        let text = error.to_string();
        for part in ["kernel E: uop 4 (store)", "123456789123456", "the array has 1"] {
            assert!(text.contains(part), "{text}");
        }
        let output = Memory::new(DType::I32, 1).unwrap();
        device.compile_checked(&[&in_bounds]).unwrap()[0].run(&[&output]).unwrap();
        if name != "null" {
            assert_eq!(output.read().unwrap(), 7i32.to_le_bytes());
        }
    }
    // The interpreter reports the access when it runs.
    let output = Memory::new(DType::I32, 1).unwrap();
    let kernel = device("interp").unwrap().compile_checked(&[&out_of_bounds]).unwrap().remove(0);
    assert!(matches!(kernel.run(&[&output]), Err(Error::OutOfBounds { .. })));
}
