//! Long sums: how many additions an accumulator takes, and that every element is added once.

use std::collections::HashMap;

use gradiff_eval::kernel::interpret;
use gradiff_graph::target::Thresholds;
use gradiff_graph::{Arg, Constant, DType, Linear, Op, Target, UOp};
use gradiff_kernel::{Options, Strategy, lower};
use gradiff_rewrite::{Mode, Trace};
use gradiff_view::ShapeTracker;

use crate::common::random::{load, plain, reduce, sink};
use crate::common::{Memories, agrees, linear};

/// The most additions of floats into one accumulator from one time it is set to the next.
fn additions(linear: &Linear) -> i128 {
    let mut open: Vec<i128> = Vec::new();
    let mut set_in: HashMap<u32, usize> = HashMap::new();
    let mut counts: HashMap<u32, i128> = HashMap::new();
    for (position, uop) in linear.uops.iter().enumerate() {
        match uop.op {
            Op::Range => {
                let Arg::Const(end) = linear.uops[uop.src[0] as usize].arg else {
                    panic!("a constant end")
                };
                open.push(end.to_int().expect("an integer"));
            }
            Op::EndRange => {
                open.pop();
            }
            Op::DefineAcc if uop.dtype.is_float() => {
                set_in.insert(position as u32, open.len());
            }
            Op::Assign if uop.dtype.is_float() => {
                let around = set_in[&uop.src[0]];
                *counts.entry(uop.src[0]).or_default() += open[around..].iter().product::<i128>();
            }
            _ => {}
        }
    }
    counts.into_values().max().unwrap_or(0)
}

/// The sums of a matrix along its first axis or its last one.
fn sums(rows: i64, columns: i64, axis: i64) -> UOp {
    let shape = [rows, columns];
    let mut stored = shape;
    stored[axis as usize] = 1;
    let data = load(DType::F32, 1, rows * columns, plain(&shape));
    sink(reduce(Op::Add, data, &[axis]), &stored)
}

/// The sum of a matrix whose loops cannot be merged: its elements lie column by column in a larger
/// one.
fn sum_of_part(rows: i64, columns: i64) -> UOp {
    let whole: ShapeTracker = plain(&[columns + 1, rows + 1]);
    let part = whole.shrink(&[(0, columns), (1, rows + 1)]).and_then(|part| part.permute(&[1, 0]));
    let data = load(DType::F32, 1, (rows + 1) * (columns + 1), part.expect("a part"));
    sink(reduce(Op::Add, data, &[0, 1]), &[1, 1])
}

fn strategies() -> Vec<Strategy> {
    let drawn = (0..6).map(|seed| Strategy::Drawn { seed, limit: 4 });
    [Strategy::None, Strategy::Heuristic].into_iter().chain(drawn).collect()
}

#[test]
fn cascade_limits_additions_per_accumulator() {
    let mut long = 0;
    for name in ["loops", "short-vectors", "vectors", "groups", "cuda"] {
        let target = Target::of(name);
        let limit = i128::from(target.thresholds.accumulator_additions);
        for size in [256, 257, 509, 1009, 4096, 4100, 65_537, 1 << 20, 1_000_003, (1 << 28) - 57] {
            let columns = if size > 65_537 { 1 } else { 17 };
            let trees = [sums(size, columns, 0), sums(columns, size, 1), sum_of_part(size, 3)];
            for (tree, opts) in
                trees.iter().flat_map(|tree| strategies().into_iter().map(move |opts| (tree, opts)))
            {
                let options = Options { opts, ..Options::default() };
                let linear = lower(tree, &target, &options, &mut Trace::default());
                let linear = linear.expect("a kernel");
                linear::verify(&linear).expect("a linear kernel");
                let found = additions(&linear);
                assert!(found <= limit, "{found} on {name}, {size}, {options:?}\n{linear}");
                long += usize::from(found > 1);
            }
        }
    }
    assert!(long > 100, "{long}");
}

#[test]
fn cascade_adds_every_element_once() {
    let small = Thresholds::SMALL;
    for name in ["loops", "short-vectors", "vectors", "groups"] {
        for size in (1..40).chain([67, 128, 257]) {
            for tree in [sums(size, 3, 0), sums(2, size, 1), sum_of_part(size, 5)] {
                for opts in strategies() {
                    let target = Target { thresholds: small, ..Target::of(name) };
                    let options = Options { opts, ..Options::default() };
                    let linear = lower(&tree, &target, &options, &mut Trace::default());
                    let linear = linear.expect("a kernel");
                    // Whole numbers, whose sums are exact.
                    let number = |at: i64| Constant::float(DType::F32, (at * at % 509) as f64);
                    let elements = (size + 1) * 6;
                    let data = (0..elements).map(|at| Some(number(at))).collect();
                    let mut expected: Memories = vec![vec![None; 6 * 41 * 8], data];
                    let mut found = expected.clone();
                    interpret(&tree, &mut expected).expect("a kernel");
                    linear::run(&linear, &mut found);
                    assert!(agrees(&expected, &found), "{name}, {size}, {options:?}\n{linear}");
                }
            }
        }
    }
}

#[test]
fn cascade_strict_mode_keeps_the_order() {
    let rewrite = gradiff_rewrite::Options { mode: Mode::Strict, ..Default::default() };
    let options = Options { rewrite, ..Options::default() };
    let tree = sums(5000, 1, 0);
    let lowered = |options| lower(&tree, &Target::of("loops"), options, &mut Trace::default());
    assert_eq!(additions(&lowered(&options).expect("a kernel")), 5000);
    assert!(additions(&lowered(&Options::default()).expect("a kernel")) <= 256);
}

#[test]
fn cascade_leaves_integers_and_maxima() {
    for (op, dtype) in [(Op::Add, DType::I32), (Op::Max, DType::F32), (Op::Mul, DType::F64)] {
        let data = load(dtype, 1, 5000, plain(&[5000]));
        let tree = sink(reduce(op, data, &[0]), &[1]);
        let linear = lower(&tree, &Target::of("loops"), &Options::default(), &mut Trace::default());
        let linear = linear.expect("a kernel");
        let loops = linear.uops.iter().filter(|uop| uop.op == Op::Range).count();
        assert_eq!(loops, 1, "{linear}");
    }
}

/// Two sums, each of which would be split in two, in a kernel with the maximum number of loops.
#[test]
fn cascade_respects_the_limit_of_loops() {
    let mut shape = [2; 32];
    shape[31] = 257;
    let order: Vec<usize> = (0..shape.len()).rev().collect();
    let reversed: Vec<i64> = order.iter().map(|axis| shape[*axis]).collect();
    let count = shape.iter().product();
    let axes: Vec<i64> = (0..shape.len() as i64).collect();
    // No two axes are adjacent in both arrays, so that none are merged into one loop.
    let data = || {
        let reversed = plain(&reversed).permute(&order).expect("all axes");
        let left = load(DType::F32, 1, count, plain(&shape));
        UOp::binary(Op::Add, left, load(DType::F32, 2, count, reversed))
    };
    let squares = reduce(Op::Add, UOp::binary(Op::Mul, data(), data()), &axes);
    let both = UOp::binary(Op::Sub, reduce(Op::Add, data(), &axes), squares);
    let tree = sink(both, &[1; 32]);
    let linear = lower(&tree, &Target::of("loops"), &Options::default(), &mut Trace::default());
    linear::verify(&linear.expect("a kernel")).expect("a linear kernel");
}

/// Many sums over one axis, a loop each: no optimisation makes a loop too many.
#[test]
fn optimisations_respect_the_limit_of_loops() {
    for count in [40, 62, 63, 64] {
        let sum = |slot| reduce(Op::Add, load(DType::F32, slot, 80, plain(&[80])), &[0]);
        let sums = (1..=count).map(sum).reduce(|x, y| UOp::binary(Op::Add, x, y));
        let tree = sink(sums.expect("a sum"), &[1]);
        for name in ["loops", "short-vectors", "vectors", "groups", "ptx", "wgsl"] {
            for opts in strategies() {
                let target = Target { thresholds: Thresholds::SMALL, ..Target::of(name) };
                let options = Options { opts, ..Options::default() };
                let linear = lower(&tree, &target, &options, &mut Trace::default());
                let linear = linear.unwrap_or_else(|error| panic!("{name}, {options:?}: {error}"));
                linear::verify(&linear).expect("a linear kernel");
            }
        }
    }
}
