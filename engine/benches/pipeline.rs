//! Graph to linear uops (kernels/s), and whole small programs on each device at hand
//! (programs/s): once with the kernel cache warm, once with every kernel new.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use gradiff::kernel::{Target, lower};
use gradiff::rewrite::Trace;
use gradiff::{DType, Engine, Error, Tensor};

/// Some ten ops: movement, arithmetic, a reduction. `constant` makes its kernels its own.
fn program(constant: i32) -> Result<Tensor, Error> {
    let elements: Vec<i32> = (0..24).collect();
    let a = Tensor::from_slice(&[4, 6], &elements)?;
    let b = a.flip(&[1])?.reshape(&[6, 4])?.permute(&[1, 0])?.add(constant)?;
    let c = b.mul(&a)?.pad(&[(1, 0), (0, 1)], 0)?.max(3)?;
    c.sum(&[1])?.add(&Tensor::arange(DType::I32, 0, 2, 5)?.reshape(&[5, 1])?)
}

fn graph_to_uops(criterion: &mut Criterion) {
    let options = gradiff::schedule::Options::default();
    let count = |constant| {
        let node = program(constant).expect("it is well formed").uop();
        gradiff::schedule::schedule(&[node], &options).expect("it is schedulable").items
    };
    let mut group = criterion.benchmark_group("graph-to-uops");
    group.throughput(Throughput::Elements(count(0).len() as u64));
    let mut constant = 0;
    group.bench_function("kernels", |bencher| {
        bencher.iter(|| {
            constant += 1;
            for item in count(constant) {
                let mut trace = Trace::default();
                let linear = lower(&item.ast, &Target::default(), &Default::default(), &mut trace);
                black_box(linear.expect("it is lowerable"));
            }
        });
    });
    group.finish();
}

fn programs(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("programs");
    group.sample_size(10).throughput(Throughput::Elements(1));
    for row in gradiff::runtime::devices() {
        let Ok(engine) = Engine::new(row.name) else { continue };
        group.bench_function(format!("{}-warm", row.name), |bencher| {
            bencher.iter(|| black_box(program(1).and_then(|made| made.to_bytes(&engine))));
        });
        // A compiler process for every kernel would say more of the compiler than of gradiff.
        if ["c", "opencl"].contains(&row.name) {
            continue;
        }
        let mut constant = 1;
        group.bench_function(format!("{}-new", row.name), |bencher| {
            bencher.iter(|| {
                constant += 1;
                black_box(program(constant).and_then(|made| made.to_bytes(&engine)))
            });
        });
    }
    group.finish();
}

/// 64 rows of 8 picked from 4,096, with the loop over the rows gone and, without any rule, there.
fn gather(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("gather-from-4096-rows");
    group.sample_size(10).throughput(Throughput::Elements(64 * 8));
    for (name, fuel) in [("collapsed", None), ("looped", Some(0))] {
        let mut engine = Engine::new("jit").expect("it needs nothing");
        engine.kernel.rewrite.fuel = fuel;
        let table: Vec<i32> = (0..4096 * 8).collect();
        let table = Tensor::from_slice(&[4096, 8], &table).expect("a table");
        let rows: Vec<i32> = (0..64 * 8).map(|place| place / 8 * 61 % 4096).collect();
        let rows = Tensor::from_slice(&[64, 8], &rows).expect("rows");
        group.bench_function(name, |bencher| {
            bencher.iter(|| black_box(table.gather(0, &rows).and_then(|x| x.to_bytes(&engine))));
        });
    }
    group.finish();
}

criterion_group!(benches, graph_to_uops, programs, gather);
criterion_main!(benches);
