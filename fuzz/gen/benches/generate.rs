//! Cases generated per second on one core: programs of up to 12 statements, view sequences, index
//! expressions.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use gradiff_gen::{Config, ExprConfig, SeedChoices, ViewConfig, expr, program_at, views};

const CASES: u64 = 1_000;

fn generate(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("generate");
    group.throughput(Throughput::Elements(CASES));
    let config = Config::default();
    let mut seed = 0;
    group.bench_function("programs", |bencher| {
        bencher.iter(|| {
            seed += 1;
            (0..CASES).map(|i| program_at(seed, i, &config).program.outputs.len()).sum::<usize>()
        });
    });
    let mut choices = SeedChoices::new(1);
    let config = ViewConfig::default();
    group.bench_function("views", |bencher| {
        bencher.iter(|| (0..CASES).map(|_| views(&mut choices, &config).ops.len()).sum::<usize>());
    });
    let config = ExprConfig::default();
    group.bench_function("exprs", |bencher| {
        bencher.iter(|| (0..CASES).map(|_| expr(&mut choices, &config).vars.len()).sum::<usize>());
    });
    group.finish();
}

criterion_group!(benches, generate);
criterion_main!(benches);
