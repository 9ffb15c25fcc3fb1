//! Measures evaluation: of small programs, such as `hunt` draws, and of a large one.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use gradiff_corpus::{Case, Program, parse};
use gradiff_oracle::evaluate;

fn program(text: &str) -> Program {
    match parse(text).expect("the bench's text is well-formed").case {
        Case::Program(program) => program,
        _ => panic!("the bench's text is a program"),
    }
}

/// Twelve statements, most of them on 64 elements.
fn small(dtype: &str) -> Program {
    program(&format!(
        "a = input {dtype}[8,8] seeded(1, unit)\nb = input {dtype}[8,1] seeded(2, unit)\n\
         c = add a b\nd = mul c a\ne = permute d axes=[1,0]\nf = sub e c\ng = max f 0.25\n\
         h = pad g [(1,1),(0,0)] 0.0\ni = shrink h [(1,9),(0,8)]\nj = mulacc i i a\n\
         k = sum j axes=[1]\nl = neg k\noutput l"
    ))
}

fn bench(criterion: &mut Criterion) {
    for dtype in ["f32", "f64", "f16"] {
        let program = small(dtype);
        criterion.bench_function(&format!("small {dtype}"), |bencher| {
            bencher.iter(|| evaluate(black_box(&program)));
        });
    }
    let gradient = program(
        "a = input f32[4,8] seeded(1, unit)\nb = input f32[8,32] seeded(2, unit)\n\
         c = matmul a b\nd = tanh c\ne = mul d d\nf = sub e c\ng = sigmoid f\n\
         h = sum g axes=[1]\ni = sub g h\nj = mul i g\nk = exp j\nl = gradient k a\noutput l",
    );
    criterion.bench_function("gradient f32", |bencher| {
        bencher.iter(|| evaluate(black_box(&gradient)));
    });
    let integers = program(
        "a = input i32[8,8] seeded(1, small)\nb = input i32[8,8] seeded(2, positive)\n\
         c = floordiv a b\nd = floormod a b\ne = mul c b\nf = add e d\ng = cmpeq f a\n\
         h = where g c d\ni = shl h 2\nj = xor i a\nk = sum j axes=[0,1]\nl = neg k\noutput l",
    );
    criterion.bench_function("small i32", |bencher| {
        bencher.iter(|| evaluate(black_box(&integers)));
    });
    let large = program(
        "a = input f32[1000,1000] seeded(1, unit)\nb = permute a axes=[1,0]\nc = mul a b\n\
         d = sum c axes=[0,1]\noutput d",
    );
    criterion.bench_function("large f32", |bencher| {
        bencher.iter(|| evaluate(black_box(&large)));
    });
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20);
    targets = bench
}
criterion_main!(benches);
