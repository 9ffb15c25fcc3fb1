//! How fast kernels are on this machine, one core, as shares of what the machine can do in the same
//! run: f32 multiply-adds in registers, bytes read, bytes read and written.
//!
//! `cargo bench -p gradiff --bench speed`, or with `-- matmul` a part of it. The device is `c`; the
//! heuristic alone chooses the optimisations. Each figure is the best of its samples.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::Criterion;
use gradiff::graph::{Arg, Axis, AxisKind, Constant, DType, Global, Instruction, Linear, Op};
use gradiff::runtime::Memory;
use gradiff::{Engine, Tensor};

mod common;

use common::convolution;

/// Elements of the large arrays.
const LARGE: i64 = 1 << 24;
/// Multiply-adds of a lane in one run of the kernel of them.
const STEPS: i64 = 1 << 20;
/// Independent vectors of that kernel, of 16 lanes each.
const CHAINS: i64 = 12;

/// Best times by name.
#[derive(Default)]
struct Times(RefCell<BTreeMap<String, f64>>);

impl Times {
    /// Measures `run` with criterion and keeps its best time in seconds.
    fn measure(&self, criterion: &mut Criterion, name: &str, mut run: impl FnMut()) {
        criterion.bench_function(name, |bencher| {
            bencher.iter_custom(|count| {
                let mut total = Duration::ZERO;
                for _ in 0..count {
                    let start = Instant::now();
                    run();
                    let time = start.elapsed();
                    total += time;
                    let mut times = self.0.borrow_mut();
                    let best = times.entry(name.to_owned()).or_insert(f64::MAX);
                    *best = best.min(time.as_secs_f64());
                }
                total
            });
        });
    }

    fn of(&self, name: &str) -> Option<f64> {
        self.0.borrow().get(name).copied()
    }
}

/// Numbers between -0.5 and 0.5.
fn data(shape: &[i64]) -> Tensor {
    let count: i64 = shape.iter().product();
    let number = |at: i64| (at * 7919 % 1000) as f32 / 1000.0 - 0.5;
    let numbers: Vec<f32> = (0..count).map(number).collect();
    Tensor::from_slice(shape, &numbers).expect("so many numbers")
}

/// Chains of multiply-adds that touch no memory until their end.
fn multiply_adds() -> Linear {
    let mut uops: Vec<Instruction> = Vec::new();
    let mut push = |op, dtype, lanes, src: &[u32], arg| {
        uops.push(Instruction { lanes, ..Instruction::new(op, dtype, src.iter().copied(), arg) });
        uops.len() as u32 - 1
    };
    let (f32, i32) = (DType::F32, DType::I32);
    let size_elements = CHAINS * 16;
    let output = Arg::Global(Global { slot: 0, size_elements });
    let output = push(Op::DefineGlobal, f32, 1, &[], output);
    let number = |value: f64| Arg::Const(Constant::float(f32, value));
    let one = push(Op::Const, f32, 1, &[], number(0.999));
    let factor = push(Op::Vectorize, f32, 16, &[one], Arg::None);
    let end = push(Op::Const, i32, 1, &[], Arg::Const(Constant::int(i32, STEPS.into())));
    // Equal chains would be computed once.
    let mut sums = Vec::new();
    for chain in 0..CHAINS {
        let start = push(Op::Const, f32, 1, &[], number(1.0 + chain as f64));
        let start = push(Op::Vectorize, f32, 16, &[start], Arg::None);
        sums.push(push(Op::DefineAcc, f32, 16, &[start], Arg::Int(chain)));
    }
    let axis = Arg::Axis(Axis { kind: AxisKind::Loop, number: 0 });
    let range = push(Op::Range, i32, 1, &[end], axis);
    for sum in &sums {
        let next = push(Op::MulAcc, f32, 16, &[*sum, factor, factor], Arg::None);
        push(Op::Assign, f32, 16, &[*sum, next], Arg::None);
    }
    push(Op::EndRange, DType::Void, 1, &[range], Arg::None);
    for (chain, sum) in sums.iter().enumerate() {
        let place = Arg::Const(Constant::int(i32, 16 * chain as i128));
        let place = push(Op::Const, i32, 1, &[], place);
        let index = push(Op::Index, f32, 1, &[output, place], Arg::None);
        push(Op::Store, DType::Void, 1, &[index, *sum], Arg::None);
    }
    Linear { name: "multiply_adds".to_owned(), uops }
}

/// What the machine can do: seconds by name.
fn limits(criterion: &mut Criterion, times: &Times, engine: &Engine) {
    let kernel = engine.device.compile(&[&multiply_adds()]).expect("a kernel").remove(0);
    let output = Memory::new(DType::F32, CHAINS as usize * 16).expect("memory");
    times.measure(criterion, "limit multiply-adds", || kernel.run(&[&output]).expect("a run"));
    let [x, y] = [0.5f32, 0.25].map(|value| vec![value; LARGE as usize]);
    let mut z = vec![0.0f32; LARGE as usize];
    times.measure(criterion, "limit read", || {
        let mut sums = [0.0f32; 64];
        for part in black_box(&x).chunks_exact(64) {
            sums.iter_mut().zip(part).for_each(|(sum, value)| *sum += value);
        }
        black_box(sums);
    });
    times.measure(criterion, "limit read and write", || {
        for ((z, x), y) in black_box(&mut z).iter_mut().zip(&x).zip(&y) {
            *z = x + 3.0 * y;
        }
    });
}

/// A kernel's work, and the limit that it is held against.
struct Work {
    name: String,
    make: Box<dyn Fn() -> Result<Tensor, gradiff::Error>>,
    need: Need,
}

enum Need {
    /// So many multiply-adds.
    MultiplyAdds(f64),
    /// So many bytes read.
    Read(f64),
    /// So many bytes read and written.
    Moved(f64),
}

impl Need {
    /// The seconds that the machine would need at its limit.
    fn least(&self, times: &Times) -> Option<f64> {
        let elements = LARGE as f64;
        let (limit, at_limit, wanted) = match self {
            Need::MultiplyAdds(count) => {
                ("limit multiply-adds", (STEPS * CHAINS * 16) as f64, *count)
            }
            Need::Read(bytes) => ("limit read", 4.0 * elements, *bytes),
            Need::Moved(bytes) => ("limit read and write", 12.0 * elements, *bytes),
        };
        Some(times.of(limit)? * wanted / at_limit)
    }
}

fn works() -> Vec<Work> {
    let mut works = Vec::new();
    let mut add = |name: &str, need, make: Box<dyn Fn() -> Result<Tensor, gradiff::Error>>| {
        works.push(Work { name: name.to_owned(), make, need });
    };
    for size in [512i64, 1024, 2048] {
        let (x, y) = (data(&[size, size]), data(&[size, size]));
        let need = Need::MultiplyAdds((size * size * size) as f64);
        add(&format!("matmul {size}"), need, Box::new(move || x.matmul(&y)));
    }
    let (images, weights) = (data(&[8, 64, 56, 56]), data(&[64, 64, 3, 3]));
    let need = Need::MultiplyAdds((8 * 64 * 56 * 56 * 64 * 9) as f64);
    add("convolution 3x3", need, Box::new(move || convolution(&images, &weights, 1)));
    let large = LARGE as f64;
    let [x, y, z] = [(); 3].map(|()| data(&[LARGE]));
    let fused = move || x.mul(&y)?.add(&z)?.relu()?.exp2();
    add("elementwise 16M", Need::Moved(16.0 * large), Box::new(fused));
    let x = data(&[LARGE]);
    add("sum 16M", Need::Read(4.0 * large), Box::new(move || x.sum(&[0])));
    let x = data(&[4096, 1024]);
    let bytes = 8.0 * 4096.0 * 1024.0;
    add("softmax 4096x1024", Need::Moved(bytes), Box::new(move || x.softmax(1)));
    works
}

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(2))
        .configure_from_args();
    let engine = Engine::new("c").expect("a C compiler");
    let times = Times::default();
    limits(&mut criterion, &times, &engine);
    let works = works();
    for work in &works {
        let result = (work.make)().expect("shapes that fit");
        let mut plan = [engine.plan(&[&result]).expect("a plan")];
        engine.compile(&mut plan).expect("kernels that compile");
        times.measure(&mut criterion, &work.name, || engine.run(&plan[0]).expect("a run"));
    }
    criterion.final_summary();
    println!("\n{:22} {:>10} {:>10} {:>7}", "", "ms", "least ms", "share");
    for work in &works {
        if let (Some(time), Some(least)) = (times.of(&work.name), work.need.least(&times)) {
            let (name, share) = (&work.name, 100.0 * least / time);
            println!("{name:22} {:10.3} {:10.3} {share:6.0}%", time * 1e3, least * 1e3);
        }
    }
}
