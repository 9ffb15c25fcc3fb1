//! Measures how fast cases are judged: programs against the oracle, on two devices; view sequences
//! and expressions against their models. On one thread; elements per second are cases per second.

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use gradiff_check::{agree, backends, check_expr, check_views};
use gradiff_corpus::Program;
use gradiff_gen::{Config, ExprConfig, SeedChoices, ViewConfig, case_seed, program_at};

/// The number of programs that are judged together, as by a worker of a hunt.
const BATCH: u64 = 64;

fn programs(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("programs");
    group.throughput(Throughput::Elements(BATCH)).sample_size(20);
    let config = Config::default();
    for name in ["interp", "jit"] {
        let backends = backends(&[name.to_string()]).expect("this device needs nothing");
        let mut first = 0;
        let mut next_programs = || -> Vec<Program> {
            first += BATCH;
            let program = |index| program_at(1, index, &config).program;
            (first..first + BATCH).map(program).collect()
        };
        group.bench_function(format!("oracle against {name}"), |bencher| {
            bencher.iter_batched(
                &mut next_programs,
                |programs| agree(&programs.iter().collect::<Vec<_>>(), &backends),
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

fn views(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("sweeps");
    group.throughput(Throughput::Elements(1));
    let mut index = 0;
    group.bench_function("views", |bencher| {
        bencher.iter(|| {
            index += 1;
            let mut choices = SeedChoices::new(case_seed(1, index));
            check_views(&gradiff_gen::views(&mut choices, &ViewConfig::default()))
        });
    });
    let mut index = 0;
    group.bench_function("exprs", |bencher| {
        bencher.iter(|| {
            index += 1;
            let mut choices = SeedChoices::new(case_seed(1, index));
            check_expr(&gradiff_gen::expr(&mut choices, &ExprConfig::default()))
        });
    });
    group.finish();
}

criterion_group!(benches, programs, views);
criterion_main!(benches);
