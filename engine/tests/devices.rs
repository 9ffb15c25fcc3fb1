//! Tensors on devices: copies between them, reads without an engine, the default device, and the
//! environment variables that select it, in child processes.

// Clippy does not recognise helpers of integration tests as test code.
#![allow(clippy::unwrap_used)]

use std::process::Command;

use gradiff::graph::{Op, Placement};
use gradiff::runtime::memory_of;
use gradiff::{DType, Engine, Error, Tensor, UOp, default_device, keepdim, realize};

/// The devices that need nothing.
const DEVICES: [&str; 2] = ["interp", "jit"];

fn numbered(shape: &[i64]) -> Tensor {
    let count: i64 = shape.iter().product();
    Tensor::from_slice(shape, &(0..count as i32).collect::<Vec<_>>()).unwrap()
}

fn ints(tensor: &Tensor) -> Vec<i32> {
    tensor.to_vec().unwrap()
}

/// A device other than the default one.
fn elsewhere() -> &'static str {
    DEVICES.into_iter().find(|device| *device != default_device().unwrap()).unwrap()
}

/// Checks a function of tensors of 0, 1, 2, ... on each device, lazy or realised before.
fn check(name: &str, shape: &[i64], function: impl Fn(&Tensor) -> Result<Tensor, Error>) {
    let expected = function(&numbered(shape)).unwrap();
    for (from, to) in [("interp", "jit"), ("jit", "interp"), ("interp", "interp")] {
        let there = numbered(shape).to(from).unwrap();
        let zero = numbered(shape).sub(numbered(shape)).unwrap().to(from).unwrap();
        let realised = there.add(&zero).unwrap();
        realised.realize().unwrap();
        for x in [&there, &there.add(&zero).unwrap(), &realised] {
            let before = function(&x.to(to).unwrap()).unwrap();
            let after = function(x).unwrap().to(to).unwrap();
            for found in [before, after] {
                assert_eq!(found.device().unwrap(), to, "{name}");
                assert_eq!((found.shape(), ints(&found)), (expected.shape(), ints(&expected)));
                assert_eq!(found.device().unwrap(), to, "{name}: reading keeps the device");
            }
        }
    }
}

#[test]
fn copies_have_the_same_elements() {
    check("rank 0", &[], |x| x.add(1));
    check("nothing", &[2, 3], |x| Ok(x.clone()));
    check("reshaped", &[2, 6], |x| x.reshape(&[3, 4]));
    check("permuted", &[2, 3, 4], |x| x.permute(&[2, 0, 1]));
    check("shrunk", &[4, 5], |x| x.shrink(&[(1, 3), (2, 5)]));
    check("rows", &[8, 32], |x| x.shrink(&[(2, 6), (0, 32)]));
    check("padded", &[2, 3], |x| x.pad(&[(1, 0), (0, 2)], 0));
    check("padded with 7", &[2, 3], |x| x.pad(&[(1, 0), (0, 2)], 7));
    check("flipped", &[2, 3], |x| x.flip(&[1]));
    check("expanded", &[1, 3], |x| x.expand(&[4, 3]));
    check("shrunk and expanded", &[4, 3], |x| x.shrink(&[(1, 2), (0, 3)])?.expand(&[5, 3]));
    check("summed", &[3, 4], |x| x.sum(keepdim(1)));
    check("row sums in rows", &[3, 4], |x| x.mul(&x.sum(keepdim(1))?));
    check("with a counter", &[4], |x| x.mul(&Tensor::arange(DType::I32, 5, 2, 4)?));
    check("with a constant", &[4], |x| x.add(&Tensor::full(DType::I32, &[4], 5)?));
    check("a constant", &[4], |x| x.mul(0));
    check("a constant and a counter", &[4], |x| {
        x.mul(0)?.add(&Tensor::arange(DType::I32, 5, 2, 4)?)
    });
    check("padded from nothing", &[0], |x| x.pad(&[(1, 2)], 0)?.add(1));
    check("contiguous", &[2, 3], |x| Ok(x.permute(&[1, 0])?.contiguous()));
    check("gathered", &[4], |x| x.gather(0, &x.flip(&[0])?));
    check("concatenated", &[4], |x| Tensor::cat(&[x, &x.add(1)?, x], 0));
    for shape in [&[0][..], &[3, 0], &[0, 2]] {
        check("no elements", shape, |x| x.add(1));
        check("sum of no elements", shape, |x| x.sum(keepdim(0)));
    }
}

#[test]
fn to_the_same_device_is_the_same_tensor() {
    let here = default_device().unwrap();
    let x = numbered(&[3]);
    assert_eq!((x.device().unwrap(), x.to(here).unwrap().uop()), (here, x.uop()));
    assert_eq!(x.to(&here.to_uppercase()).unwrap().uop(), x.uop());
    for device in DEVICES {
        let there = x.to(device).unwrap();
        assert_eq!(there.to(device).unwrap().uop(), there.uop());
        assert_eq!(there.to(&format!("{device}:0")).unwrap().uop(), there.uop());
        assert_eq!(there.add(1).unwrap().to(device).unwrap().uop().op(), Op::Add);
    }
    // Of a constant, too, if it has been placed.
    let constant = Tensor::full(DType::I32, &[2], 3).unwrap();
    let placed = constant.to(elsewhere()).unwrap();
    assert_eq!((constant.device().unwrap(), placed.device().unwrap()), (here, elsewhere()));
    assert_eq!(placed.to(elsewhere()).unwrap().uop(), placed.uop());
}

#[test]
fn constants_and_counters_go_with_any_device() {
    let constant = Tensor::full(DType::I32, &[2], 3).unwrap();
    let counter = Tensor::arange(DType::I32, 0, 1, 2).unwrap();
    for device in DEVICES {
        let x = numbered(&[2]).to(device).unwrap();
        let sum = constant.add(&counter).unwrap().add(&x).unwrap();
        assert_eq!((sum.device().unwrap(), ints(&sum)), (device, vec![3, 5]));
        // The same once they are computed, whatever computes them.
        for engine in [None, Some(Engine::new("interp").unwrap())] {
            let computed = counter.add(1).unwrap();
            match engine {
                Some(engine) => engine.realize(&[&computed]).unwrap(),
                None => computed.realize().unwrap(),
            }
            let part = computed.shrink(&[(1, 2)]).unwrap();
            part.realize().unwrap();
            assert!(computed.buffer().is_some() && part.buffer().is_some());
            assert_eq!(computed.device().unwrap(), default_device().unwrap());
            let sum = x.add(&computed).unwrap().add(part.expand(&[2]).unwrap()).unwrap();
            assert_eq!((sum.device().unwrap(), ints(&sum)), (device, vec![3, 5]));
            let moved = computed.to(device).unwrap();
            assert_eq!((moved.device().unwrap(), ints(&moved)), (device, vec![1, 2]));
        }
        let placed = constant.to(device).unwrap();
        assert!(placed.constant().is_some(), "a copy of a constant is a constant");
        placed.realize().unwrap();
        assert_eq!((placed.device().unwrap(), placed.buffer().is_none()), (device, true));
        assert_eq!(ints(&placed.add(&x).unwrap()), [3, 4]);
        let moved = placed.flip(&[0]).unwrap().to("jit").unwrap().flip(&[0]).unwrap();
        moved.realize().unwrap();
        assert_eq!((moved.device().unwrap(), ints(&moved)), ("jit", vec![3, 3]));
        let placed = counter.add(1).unwrap().to(device).unwrap();
        placed.realize().unwrap();
        let placement = Placement::Named(device.into());
        assert_eq!(placed.buffer().unwrap().placement(), Some(&placement));
        assert_eq!(ints(&placed.mul(&placed).unwrap()), [1, 4]);
    }
}

#[test]
fn operands_on_two_devices_are_refused() {
    let (here, there) = (default_device().unwrap(), elsewhere());
    let (x, y) = (numbered(&[3]), numbered(&[3]).to(there).unwrap());
    let is_small = x.cmplt(2).unwrap();
    let mixed = [
        ("add", x.add(&y)),
        ("floordiv", y.add(1).unwrap().floordiv(x.add(1).unwrap())),
        ("where", is_small.where_(&y, 0)),
        ("where", is_small.to(there).unwrap().where_(&y, &x)),
        ("mulacc", x.mulacc(2, &y)),
        ("cat", Tensor::cat(&[&x, &x, &y], 0)),
        ("gather", x.gather(0, &y)),
        ("mul", x.reshape(&[1, 3]).unwrap().matmul(&y.reshape(&[3, 1]).unwrap())),
    ];
    for (name, result) in mixed {
        let error = result.unwrap_err();
        assert!(matches!(error, Error::Invalid(_)), "{name}: {error:?}");
        let (text, parts) = (error.to_string(), [name, here, there, ".to("]);
        assert!(parts.iter().all(|part| text.contains(part)), "{name}: {text}");
    }
    assert_eq!(ints(&x.to(there).unwrap().add(&y).unwrap()), [0, 2, 4]);
    assert_eq!(ints(&x.add(y.to(here).unwrap()).unwrap()), [0, 2, 4]);
    // A graph that was not made by methods: two names, and a name with the default device.
    let on = |device: &str| numbered(&[3]).to(device).unwrap().uop();
    let named = UOp::binary(Op::Add, on("jit"), on("interp"));
    let with_default = UOp::binary(Op::Add, numbered(&[3]).uop(), on(there));
    let refused = Tensor::from_uop(named).unwrap_err().to_string();
    assert!(refused.contains("jit") && refused.contains("interp"), "{refused}");
    let late = Tensor::from_uop(with_default).unwrap().to_bytes().unwrap_err().to_string();
    assert!(late.contains(here) && late.contains(there), "{late}");
}

#[test]
fn unknown_devices_are_refused() {
    for name in ["", "abacus", "jit:1", "interp ", "default"] {
        let error = numbered(&[2]).to(name).unwrap_err();
        assert!(matches!(error, Error::Invalid(_)), "{error:?}");
        let text = error.to_string();
        assert!(text.contains(&format!("{name:?}")) && text.contains("interp, jit"), "{text}");
    }
    let text = "%0 = buffer i32 #0 2 abacus\n%1 = neg i32 %0\n";
    let node = gradiff::graph::text::parse_text(text).unwrap();
    let error = Tensor::from_uop(node).unwrap_err().to_string();
    assert!(error.contains("no device abacus"), "{error}");
}

#[test]
fn device_that_cannot_be_opened_is_an_error_of_the_read() {
    let Err(expected) = Engine::new("wgpu-core") else {
        println!("wgpu-core is available here");
        return;
    };
    let x = numbered(&[2]).add(1).unwrap().to("wgpu-core").unwrap().add(1).unwrap();
    assert_eq!(x.device().unwrap(), "wgpu-core");
    let before = x.uop();
    for _ in 0..2 {
        assert_eq!(x.to_bytes().unwrap_err().to_string(), expected.to_string());
    }
    assert_eq!(x.uop(), before, "it is unchanged");
    // Copies of data run nothing there.
    assert_eq!(ints(&numbered(&[2]).to("wgpu-core").unwrap().to("jit").unwrap()), [0, 1]);
}

#[test]
fn graph_is_computed_on_several_devices() {
    let x = numbered(&[4, 8]).to("interp").unwrap();
    let squares = x.mul(&x).unwrap();
    let there = squares.to("jit").unwrap();
    // Under two uses, and with the source used on its device.
    let rows = there.sum(keepdim(1)).unwrap();
    let scaled = there.sub(&rows).unwrap();
    let back = scaled.to("interp").unwrap().add(&squares).unwrap();
    let chain = back.to("jit").unwrap().to("interp").unwrap().to("jit").unwrap();
    realize(&[&back, &rows, &chain, &x, &back]).unwrap();
    let square = |at: i32| at * at;
    let row = |at: i32| (at / 8 * 8..at / 8 * 8 + 8).map(square).sum::<i32>();
    let expected: Vec<i32> = (0..32).map(|at| 2 * square(at) - row(at)).collect();
    assert_eq!(ints(&back), expected);
    assert_eq!(ints(&chain), expected);
    assert_eq!(ints(&rows), [0, 8, 16, 24].map(row));
    let devices = [&back, &rows, &chain, &x].map(|tensor| tensor.device().unwrap());
    assert_eq!(devices, ["interp", "jit", "jit", "interp"]);
    assert!([&back, &rows, &chain, &x].iter().all(|tensor| tensor.buffer().is_some()));
}

#[test]
fn copy_is_not_changed_by_writes_to_its_source() {
    for size in [3, 1000] {
        let x = numbered(&[size]);
        let (there, lazy) =
            (x.to(elsewhere()).unwrap(), x.to(elsewhere()).unwrap().add(0).unwrap());
        there.realize().unwrap();
        let write = |tensor: &Tensor, byte: u8| {
            let memory = memory_of(&tensor.buffer().unwrap()).unwrap();
            memory.write(&vec![byte; 4 * size as usize]).unwrap();
        };
        write(&x, 1);
        assert_eq!(ints(&there), ints(&numbered(&[size])));
        assert_eq!(ints(&lazy), vec![0x0101_0101; size as usize], "a graph reads the new data");
        write(&there, 2);
        assert_eq!(ints(&x), vec![0x0101_0101; size as usize]);
    }
}

#[test]
fn copy_of_a_tensor_whose_plan_has_not_run_is_an_error() {
    let engine = Engine::new("interp").unwrap();
    let planned = numbered(&[2]).add(1).unwrap();
    let mut plans = [engine.plan(&[&planned]).unwrap()];
    engine.compile(&mut plans).unwrap();
    let there = planned.to(elsewhere()).unwrap();
    let error = there.to_bytes().unwrap_err().to_string();
    assert!(error.contains("has not run"), "{error}");
    engine.run(&plans[0]).unwrap();
    assert_eq!(ints(&there), [1, 2]);
}

/// An engine computes everything on its device, and the tensors keep theirs.
#[test]
fn engines_compute_on_their_device() {
    for device in DEVICES {
        let engine = Engine::new(device).unwrap();
        let x = numbered(&[2, 3]);
        let there = x.add(1).unwrap().to("cuda").unwrap();
        let sum = there.sum(keepdim(1)).unwrap();
        let copy = x.to("interp").unwrap();
        let constant = Tensor::full(DType::I32, &[2], 3).unwrap().to("jit").unwrap();
        let counter = Tensor::arange(DType::I32, 0, 1, 3).unwrap().to("jit").unwrap();
        let chain = copy.permute(&[1, 0]).unwrap().to("jit").unwrap().to("interp").unwrap();
        let tensors = [&sum, &copy, &constant, &counter, &there, &chain];
        let devices = tensors.map(|tensor| tensor.device().unwrap());
        engine.realize(&tensors).unwrap();
        assert_eq!(tensors.map(|tensor| tensor.device().unwrap()), devices);
        assert_eq!((ints(&sum), ints(&there)), (vec![6, 15], vec![1, 2, 3, 4, 5, 6]));
        assert_eq!((ints(&copy), ints(&chain)), (vec![0, 1, 2, 3, 4, 5], vec![0, 3, 1, 4, 2, 5]));
        assert_eq!((ints(&constant), ints(&counter)), (vec![3, 3], vec![0, 1, 2]));
        let planned = x.to("jit").unwrap();
        let mut plans = [engine.plan(&[&planned, &planned.neg().unwrap()]).unwrap()];
        engine.compile(&mut plans).unwrap();
        engine.run(&plans[0]).unwrap();
        assert_eq!((plans[0].kernel_count(), ints(&planned)), (2, vec![0, 1, 2, 3, 4, 5]));
        assert_eq!(planned.device().unwrap(), "jit");
    }
}

#[test]
fn threads_read_at_once() {
    for round in 0..20 {
        let shared = numbered(&[64]).add(round).unwrap().to("interp").unwrap();
        let sum = shared.sum(keepdim(0)).unwrap().to("jit").unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (shared, sum) = (&shared, &sum);
                scope.spawn(move || match thread % 2 {
                    0 => assert_eq!(ints(sum), [2016 + 64 * round]),
                    _ => assert_eq!(ints(shared)[63], 63 + round),
                });
            }
        });
        assert_eq!((shared.device().unwrap(), sum.device().unwrap()), ("interp", "jit"));
    }
}

#[test]
fn long_chains_of_copies_are_computed() {
    let devices = DEVICES.into_iter().cycle();
    let chain = devices.take(300).try_fold(numbered(&[2]), |x, device| x.to(device)?.add(1));
    assert_eq!(ints(&chain.unwrap()), [300, 301]);
    let copies = DEVICES.into_iter().cycle().take(2000);
    let chain = copies.into_iter().try_fold(numbered(&[2]), |x, device| x.to(device));
    assert_eq!(ints(&chain.unwrap()), [0, 1]);
}

/// The variable that makes the test [`child`] run.
const IS_CHILD: &str = "GRADIFF_DEVICES_TEST";

/// The test that [`run`] runs in a child process. It reports on stdout.
#[test]
fn child() {
    if std::env::var(IS_CHILD).is_err() {
        return;
    }
    let x = numbered(&[2]).add(1).unwrap();
    let text = x.to_text().unwrap_or_else(|error| error.to_string());
    let device = x.device().unwrap_or("none");
    let there = x.to("interp").and_then(|x| x.mul(2)).and_then(|x| x.to_text());
    // Tensors without a device of their own are computed by any engine.
    let planned = Engine::new("interp").and_then(|engine| engine.plan(&[&x.add(&x)?]));
    let is_there = there.is_ok_and(|text| text == "[2, 4]") && planned.is_ok();
    println!("on {device}: {text}; on interp: {is_there}");
}

/// Runs [`child`] in a process with these variables, and returns its report.
fn run(variables: &[(&str, &str)]) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child", "--nocapture", "--test-threads=1"]).env(IS_CHILD, "1");
    for name in gradiff::runtime::device_names() {
        command.env_remove(name.to_uppercase().replace('-', "_"));
    }
    command.env_remove("BEAM").env_remove("DEBUG").envs(variables.iter().copied());
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}");
    let start = text.find("on ").unwrap();
    text[start..].lines().next().unwrap().to_string()
}

/// S28 "it looks for `{DEVICE}=1` in environment variables"; if there is none, devices are tried in
/// order.
#[test]
fn variables_select_the_default_device() {
    for device in DEVICES {
        let variable = device.to_uppercase();
        let expected = format!("on {device}: [1, 2]; on interp: true");
        assert_eq!(run(&[(&variable, "1")]), expected);
        assert_eq!(run(&[(&variable, "1"), ("C", "0"), ("CUDA", "")]), expected);
    }
    // A device that is there without any variable.
    assert!(["cuda", "c", "jit"].iter().any(|name| run(&[]).starts_with(&format!("on {name}:"))));
    let report = run(&[("NULL", "1")]);
    assert!(report.starts_with("on null: read of 2 x i32: nothing was ever written"), "{report}");
    for (variables, words) in [
        (&[("JIT", "1"), ("INTERP", "1")][..], "on none: INTERP=1 JIT=1: only one device"),
        (&[("JIT", "yes")], "on none: JIT=yes: it must be 1"),
        (&[("JIT", "1"), ("DEBUG", "9")], "on jit: DEBUG=9"),
        (&[("JIT", "1"), ("BEAM", "x")], "on jit: BEAM=x"),
    ] {
        let report = run(variables);
        assert!(report.starts_with(words) && report.ends_with("on interp: false"), "{report}");
    }
}
