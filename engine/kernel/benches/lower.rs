//! Measures the lowering of a kernel from its tree to linear uops.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use gradiff_graph::{Arg, Constant, DType, Dims, Global, Op, Target, UOp};
use gradiff_kernel::{Options, lower};
use gradiff_rewrite::Trace;
use gradiff_view::ShapeTracker;

/// The tracker of a row-major array.
fn row_major(shape: &[i64]) -> ShapeTracker {
    ShapeTracker::from_shape(shape).expect("a small shape")
}

fn global(slot: usize, size_elements: i64) -> UOp {
    UOp::new(Op::DefineGlobal, DType::F32, [], Arg::Global(Global { slot, size_elements }))
}

fn load(slot: usize, size: i64, tracker: ShapeTracker) -> UOp {
    UOp::new(Op::Load, DType::F32, [global(slot, size)], Arg::View(tracker))
}

/// The tree that stores a value of this shape.
fn sink(value: UOp, shape: &[i64]) -> UOp {
    let array = global(0, shape.iter().product());
    let tracker = Arg::View(row_major(shape));
    let store = UOp::new(Op::Store, DType::Void, [array, value], tracker);
    UOp::new(Op::Sink, DType::Void, [store], Arg::None)
}

/// Two loads, one transposed, and six ops.
fn elementwise() -> UOp {
    let rows = row_major(&[4, 8]);
    let transposed = row_major(&[8, 4]).permute(&[1, 0]).expect("two axes");
    let (x, y) = (load(1, 32, rows.clone()), load(2, 32, transposed));
    let two = UOp::constant(Constant::float(DType::F32, 2.0));
    let two = UOp::new(Op::View, DType::F32, [two], Arg::View(rows));
    let sum = UOp::binary(Op::Add, UOp::binary(Op::Mul, x.clone(), two), y.clone());
    let less = UOp::binary(Op::CmpLt, sum.clone(), x.clone());
    let value = UOp::select(less, UOp::unary(Op::Exp2, DType::F32, x), sum);
    sink(UOp::binary(Op::Max, value, y), &[4, 8])
}

/// A matrix product with one padded operand.
fn matmul() -> UOp {
    let expand = |tracker: ShapeTracker, shape: [i64; 3]| {
        tracker.reshape(&shape).and_then(|tracker| tracker.expand(&[8, 6, 10]))
    };
    let x = row_major(&[8, 8]).pad(&[(0, 0), (1, 1)]).expect("a pad");
    let y = row_major(&[10, 6]).permute(&[1, 0]).expect("two axes");
    let x = load(1, 64, expand(x, [8, 1, 10]).expect("a row"));
    let y = load(2, 60, expand(y, [1, 6, 10]).expect("a column"));
    let arg = Arg::Reduce(Op::Add, Dims::from_slice(&[2]));
    let sum = UOp::new(Op::ReduceAxis, DType::F32, [UOp::binary(Op::Mul, x, y)], arg);
    sink(sum, &[8, 6, 1])
}

fn bench(criterion: &mut Criterion) {
    for (name, ast) in [("elementwise", elementwise()), ("padded matmul", matmul())] {
        let (target, options) = (Target::default(), Options::default());
        criterion.bench_function(&format!("lower {name}"), |bencher| {
            bencher.iter(|| {
                lower(black_box(&ast), &target, &options, &mut Trace::default()).expect("a kernel")
            })
        });
    }
}

criterion_group!(benches, bench);
criterion_main!(benches);
