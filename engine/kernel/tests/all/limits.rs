//! Kernels at the limits of expanded ranges, of uops, of a grid, and of stores in place.

use gradiff_graph::{
    Arg, Axis, AxisKind, BoundedLinear, Constant, DType, Global, Instruction, Linear, Op, Target,
    UOp,
};
use gradiff_kernel::passes::{Context, LINEAR_PASSES};
use gradiff_kernel::{Error, Opt, OptOp, Options, Setting, Strategy, apply, lower};
use gradiff_rewrite::{Mode, Trace};

use crate::common::linear;
use crate::common::random::{load, plain, reduce, sink};
use crate::tensor_cores::lowered as before_opts;

fn ints(values: impl IntoIterator<Item = i128>) -> Vec<Option<Constant>> {
    values.into_iter().map(|value| Some(Constant::int(DType::I32, value))).collect()
}

fn with_opts(ast: &UOp, opts: &[&str], target: &str) -> Result<Linear, Error> {
    let opts = opts.iter().map(|opt| opt.parse().expect("an opt")).collect();
    let options = Options { opts: Strategy::Fixed(opts), ..Options::default() };
    let linear = lower(ast, &Target::of(target), &options, &mut Trace::default());
    linear.map(BoundedLinear::into_linear)
}

/// Makes a kernel of so many loops of a kind, each of which stores 0 and 1 to two elements.
fn pairs(count: i64, kind: AxisKind) -> Linear {
    let int = |value: i64| {
        let value = Arg::Const(Constant::int(DType::I32, value.into()));
        Instruction::new(Op::Const, DType::I32, [], value)
    };
    let array = Arg::Global(Global { slot: 0, size_elements: 2 * count });
    let mut uops = vec![Instruction::new(Op::DefineGlobal, DType::I32, [], array), int(2)];
    for pair in 0..count {
        let first = uops.len() as u32;
        let [range, index, address] = [1, 2, 3].map(|next| first + next);
        let axis = Arg::Axis(Axis { kind, number: pair });
        uops.extend([
            int(2 * pair),
            Instruction::new(Op::Range, DType::I32, [1], axis),
            Instruction::new(Op::Add, DType::I32, [first, range], Arg::None),
            Instruction::new(Op::Index, DType::I32, [0, index], Arg::None),
            Instruction::new(Op::Store, DType::Void, [address, range], Arg::None),
            Instruction::new(Op::EndRange, DType::Void, [range], Arg::None),
        ]);
    }
    Linear { name: "pairs".to_owned(), uops }
}

#[test]
fn ranges_beyond_the_sixty_fourth_are_not_expanded() {
    let expand = LINEAR_PASSES.iter().find(|pass| pass.name == "expand").expect("the pass");
    let tree = UOp::new(Op::Sink, DType::Void, [], Arg::None);
    let options = Options::default();
    for kind in [AxisKind::Upcast, AxisKind::Vector, AxisKind::Unroll] {
        for (count, loops) in [(64, 0), (65, 1), (130, 66)] {
            let target = Target::of("vectors");
            let mut trace = Trace::default();
            let context = Context::new(&tree, &target, &options, &mut trace);
            let kernel = (expand.run)(pairs(count, kind), &context).expect("a kernel");
            linear::verify(&kernel).expect("a linear kernel");
            let left = kernel.uops.iter().filter(|uop| uop.op == Op::Range).count();
            assert_eq!(left, loops, "{kind:?}: {kernel}");
            let mut memories = vec![vec![None; 2 * count as usize]];
            linear::run(&kernel, &mut memories);
            let expected = ints((0..2 * count).map(|at| i128::from(at % 2)));
            assert_eq!(memories[0], expected, "{kind:?} of {count}");
        }
    }
}

/// Makes the sum of an array of axes of two elements, none of which can be merged.
fn sum_of_pairs(rank: usize) -> UOp {
    let order: Vec<usize> = (0..rank).rev().collect();
    let view = plain(&vec![2; rank]).permute(&order).expect("a permutation");
    let axes: Vec<i64> = (0..rank as i64).collect();
    sink(reduce(Op::Add, load(DType::I32, 1, 1 << rank, view), &axes), &vec![1; rank])
}

#[test]
fn unrolled_parts_of_cut_loops_are_added_up() {
    // 32 reductions over the last three loops, each of which is unrolled in all of them.
    let opts = [["cut 0 1"; 5].as_slice(), ["unroll 0 0"; 3].as_slice()].concat();
    let kernel = with_opts(&sum_of_pairs(8), &opts, "plain").expect("a kernel");
    let mut memories = vec![vec![None], ints(0..256)];
    linear::run(&kernel, &mut memories);
    assert_eq!(memories[0], ints([255 * 128]));
}

#[test]
fn cuts_of_reduced_loops_are_limited_by_uops() {
    let target = Target::of("plain");
    let setting = Setting { mode: Mode::Default, target: &target };
    let mut root = before_opts(&sum_of_pairs(10));
    // Each cut doubles the number of reductions.
    let cut = Opt { op: OptOp::Cut, axis: 0, amount: 1 };
    let refusal = (0..10).find_map(|_| match apply(&root, cut, setting) {
        Ok(next) => {
            root = next;
            None
        }
        Err(error) => Some(error.to_string()),
    });
    let refusal = refusal.expect("a refusal before there are 1024 reductions");
    assert!(refusal.contains("uops in its reductions, at most 8192 can be copied"), "{refusal}");
}

#[test]
fn unrolled_sums_of_loads_are_limited_by_uops() {
    let sums =
        sink(reduce(Op::Add, load(DType::I32, 1, 1 << 14, plain(&[32, 512])), &[0]), &[1, 512]);
    assert!(with_opts(&sums, &["upcast 0 128", "unroll 1 0"], "plain").is_ok());
    let error =
        with_opts(&sums, &["upcast 0 0", "unroll 0 0"], "plain").expect_err("512 x 32 sums");
    assert!(error.to_string().contains("16384 uops after unrolling"), "{error}");
}

#[test]
fn size_with_a_large_prime_factor_is_a_grid() {
    let size = 65_537 * 64;
    let copy = sink(load(DType::F32, 1, size, plain(&[size])), &[size]);
    let kernel = with_opts(&copy, &[], "wgsl").expect("a kernel");
    let grid: i64 = kernel.launched(AxisKind::Global).iter().map(|(_, count)| count).product();
    assert!((size..size + size / 100).contains(&grid), "{grid} groups");
}

/// Threads may compute the elements of a row in any order, each from all that are stored there.
#[test]
fn array_that_is_stored_is_not_loaded_in_a_reduction() {
    let rows = |slot: usize| {
        let sum = reduce(Op::Add, load(DType::F32, slot, 4, plain(&[2, 2])), &[1]);
        let row = plain(&[2, 1]).expand(&[2, 2]).expect("rows");
        sink(UOp::new(Op::View, DType::F32, [sum], Arg::View(row)), &[2, 2])
    };
    assert!(with_opts(&rows(1), &[], "plain").is_ok());
    let error = with_opts(&rows(0), &[], "plain").expect_err("a load of what is stored");
    assert!(error.to_string().contains("of an array that is stored, in a reduction"), "{error}");
}
