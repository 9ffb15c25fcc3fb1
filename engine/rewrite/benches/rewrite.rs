//! Measures simplification: of index expressions, and of a kernel of some 100 nodes.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use gradiff_graph::{Arg, Constant, DType, Global, Op, UOp};
use gradiff_rewrite::simplify;

fn range(axis: i64, end: i64) -> UOp {
    UOp::new(Op::Range, DType::I32, [UOp::int(DType::I32, end)], Arg::plain_axis(axis))
}

/// The op of a node and a constant.
fn with_constant(op: Op, x: &UOp, y: i64) -> UOp {
    UOp::binary(op, x.clone(), UOp::int(DType::I32, y))
}

fn add(x: UOp, y: UOp) -> UOp {
    UOp::binary(Op::Add, x, y)
}

/// The index of shape (10, 10) after a permute, a reshape and a flattening: 19 nodes.
fn index(r: &UOp) -> UOp {
    let term = |divisor, modulus, factor| {
        let quotient = with_constant(Op::FloorDiv, r, divisor);
        with_constant(Op::Mul, &with_constant(Op::FloorMod, &quotient, modulus), factor)
    };
    add(add(term(20, 5, 2), term(10, 2, 1)), add(term(2, 5, 20), term(1, 2, 10)))
}

/// A sum of gated loads over three ranges.
fn kernel() -> UOp {
    let (i, j, k) = (range(0, 16), range(1, 32), range(2, 8));
    let global = |slot| {
        let global = Global { slot, size_elements: 4096 };
        UOp::new(Op::DefineGlobal, DType::F32, [], Arg::Global(global))
    };
    let row = add(with_constant(Op::Mul, &i, 32), j.clone());
    let flat = add(with_constant(Op::Mul, &row, 8), k.clone());
    let load = |slot, shift: i64| {
        let offset = with_constant(Op::Add, &flat, -shift);
        let is_not_negative = UOp::not(with_constant(Op::CmpLt, &offset, 0));
        let gate = UOp::binary(Op::And, is_not_negative, with_constant(Op::CmpLt, &offset, 4096));
        let axes = [(8, 32, 1), (1, 8, 32), (256, 16, 256)];
        let terms = axes.map(|(divisor, modulus, factor)| {
            let quotient = with_constant(Op::FloorDiv, &offset, divisor);
            with_constant(Op::Mul, &with_constant(Op::FloorMod, &quotient, modulus), factor)
        });
        let [a, b, c] = terms;
        let index =
            UOp::new(Op::Index, DType::F32, [global(slot), add(add(a, b), c), gate], Arg::None);
        UOp::unary(Op::Load, DType::F32, index)
    };
    let values = (1..5).map(|slot| load(slot, slot as i64 * 3));
    let sum = values.reduce(|x, y| UOp::binary(Op::Add, x, y)).expect("four loads");
    let scaled = UOp::binary(Op::Mul, sum, UOp::constant(Constant::one(DType::F32)));
    let reduced = Arg::Reduce(Op::Add, Default::default());
    let total = UOp::new(Op::Reduce, DType::F32, [scaled, k], reduced);
    let position = add(with_constant(Op::Mul, &i, 32), j);
    let address = UOp::new(Op::Index, DType::F32, [global(0), position], Arg::None);
    let store = UOp::new(Op::Store, DType::Void, [address, total], Arg::None);
    UOp::new(Op::Sink, DType::Void, [store], Arg::None)
}

fn benches(criterion: &mut Criterion) {
    let index = index(&range(0, 100));
    let name = format!("simplify index of {} nodes", index.toposort().len());
    criterion.bench_function(&name, |bench| bench.iter(|| simplify(black_box(&index))));
    let simple = simplify(&index);
    let name = format!("simplify simple index of {} nodes", simple.toposort().len());
    criterion.bench_function(&name, |bench| bench.iter(|| simplify(black_box(&simple))));
    let kernel = kernel();
    let name = format!("simplify kernel of {} nodes", kernel.toposort().len());
    criterion.bench_function(&name, |bench| bench.iter(|| simplify(black_box(&kernel))));
}

criterion_group!(rewrite, benches);
criterion_main!(rewrite);
