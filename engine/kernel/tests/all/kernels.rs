//! Handwritten kernels: the expected form after passes and of the linear uops.

use crate::common::linear;
use crate::common::random::{exp2_times_its_sum, global, load, plain, reduce, sink};
use crate::tensor_cores::lowered as before_opts;
use gradiff_eval::kernel::interpret;
use gradiff_graph::target::Vectors;
use gradiff_graph::{
    Arg, BoundedLinear, Constant, DType, Dims, Instruction, Linear, Local, Op, Target, UOp,
};
use gradiff_kernel::passes::{LINEAR_PASSES, LINEARIZE, PASSES};
use gradiff_kernel::{
    Error, Opt, OptOp, Options, Setting, Strategy, check, loops, lower, name, stages,
};
use gradiff_rewrite::{Mode, Trace};
use gradiff_view::ShapeTracker;

fn lowered(ast: &UOp) -> Linear {
    let linear = lower(ast, &Target::default(), &Options::default(), &mut Trace::default());
    let linear = linear.expect("a kernel");
    linear::verify(&linear).expect("a linear kernel");
    linear.into_linear()
}

fn after(pass: &str, ast: &UOp) -> UOp {
    let stages = stages(ast, &Target::default(), &Options::default()).expect("a kernel");
    stages.graphs.into_iter().find(|(name, _)| *name == pass).expect("a pass").1
}

fn contiguous(dtype: DType, slot: usize, shape: &[i64]) -> UOp {
    load(dtype, slot, shape.iter().product(), plain(shape))
}

fn f32s(values: &[f64]) -> Vec<Option<Constant>> {
    values.iter().map(|value| Some(Constant::float(DType::F32, *value))).collect()
}

fn ops(linear: &Linear, op: Op) -> Vec<&Instruction> {
    linear.uops.iter().filter(|uop| uop.op == op).collect()
}

fn position(linear: &Linear, op: Op) -> usize {
    linear.uops.iter().position(|uop| uop.op == op).expect("the op")
}

fn range(axis: i64, end: i64) -> UOp {
    UOp::new(Op::Range, DType::I32, [UOp::int(DType::I32, end)], Arg::plain_axis(axis))
}

fn read(slot: usize, size: i64, index: UOp) -> UOp {
    let address =
        UOp::new(Op::Index, DType::F32, [global(DType::F32, slot, size), index], Arg::None);
    UOp::new(Op::Load, DType::F32, [address], Arg::None)
}

fn reduce_over(op: Op, value: UOp, ranges: &[UOp]) -> UOp {
    let sources = std::iter::once(value.clone()).chain(ranges.iter().cloned());
    UOp::new(Op::Reduce, value.dtype(), sources, Arg::Reduce(op, Dims::new()))
}

fn write(size: i64, index: UOp, value: UOp) -> UOp {
    let target = global(value.dtype(), 0, size);
    let address = UOp::new(Op::Index, value.dtype(), [target, index], Arg::None);
    let store = UOp::new(Op::Store, DType::Void, [address, value], Arg::None);
    UOp::new(Op::Sink, DType::Void, [store], Arg::None)
}

/// Linearizes a graph over ranges and checks the result.
fn linearized(root: &UOp, memories: &[Vec<Option<Constant>>]) -> Linear {
    let linear = gradiff_kernel::passes::linearize(root, "test".to_string()).expect("a kernel");
    linear::verify(&linear).unwrap_or_else(|error| panic!("{error:?}\n{linear}"));
    let (mut expected, mut found) = (memories.to_vec(), memories.to_vec());
    interpret(root, &mut expected).expect("a kernel");
    linear::run(&linear, &mut found);
    assert_eq!(expected, found, "{linear}");
    linear
}

#[test]
fn name_lists_the_loop_sizes() {
    let four = [4, 4];
    let x = contiguous(DType::F32, 1, &four);
    assert_eq!(name(&sink(x.clone(), &four)), "E_4_4");
    assert_eq!(name(&sink(reduce(Op::Add, x.clone(), &[0]), &[1, 4])), "r_4_4");
    let y = contiguous(DType::F32, 1, &[2, 1, 3, 5]);
    assert_eq!(name(&sink(reduce(Op::Add, y, &[0, 3]), &[1, 1, 3, 1])), "r_3_2_5");
    assert_eq!(name(&sink(contiguous(DType::F32, 1, &[]), &[])), "E");
    assert_eq!(lowered(&sink(x, &four)).name, "E_4_4");
}

#[test]
fn shape_contiguous_axes_become_one_loop() {
    let shape = [2, 1, 3, 4];
    let linear = lowered(&sink(contiguous(DType::F32, 1, &shape), &shape));
    let ranges = ops(&linear, Op::Range);
    assert_eq!(ranges.len(), 1, "{linear}");
    assert_eq!(
        linear.uops[ranges[0].src[0] as usize].arg,
        Arg::Const(Constant::int(DType::I32, 24))
    );
}

#[test]
fn shape_transposed_axes_stay_two_loops() {
    let tracker = plain(&[3, 2]).permute(&[1, 0]).expect("a permutation");
    let linear = lowered(&sink(load(DType::F32, 1, 6, tracker), &[2, 3]));
    assert_eq!(ops(&linear, Op::Range).len(), 2, "{linear}");
}

#[test]
fn shape_reduced_axes_come_last_and_merge() {
    let x = contiguous(DType::F32, 1, &[2, 3, 4, 5]);
    let kernel = after("shape", &sink(reduce(Op::Add, x, &[0, 1]), &[1, 1, 4, 5]));
    let node = kernel.toposort().into_iter().find(|node| node.op() == Op::ReduceAxis);
    assert_eq!(node.expect("a reduction").shape(), Some([20, 1].as_slice()));
}

#[test]
fn shape_sum_of_sum_is_one_sum() {
    let x = contiguous(DType::I32, 1, &[2, 3, 4]);
    let ast = sink(reduce(Op::Add, reduce(Op::Add, x, &[2]), &[0]), &[1, 3, 1]);
    let linear = lowered(&ast);
    assert_eq!(ops(&linear, Op::DefineAcc).len(), 1, "{linear}");
    let values: Vec<_> = (0..24).map(|value| Some(Constant::int(DType::I32, value))).collect();
    let (mut expected, mut found) =
        (vec![vec![None; 3], values.clone()], vec![vec![None; 3], values]);
    interpret(&ast, &mut expected).expect("a tree");
    linear::run(&linear, &mut found);
    assert_eq!(expected, found);
}

#[test]
fn lower_padded_load_is_gated() {
    let tracker = plain(&[3]).pad(&[(1, 2)]).expect("a pad");
    let linear = lowered(&sink(load(DType::F32, 1, 3, tracker), &[6]));
    let loads = ops(&linear, Op::Load);
    assert_eq!(linear.uops[loads[0].src[0] as usize].src.len(), 3, "{linear}");
    let mut memories = vec![vec![None; 6], f32s(&[5.0, 6.0, 7.0])];
    linear::run(&linear, &mut memories);
    assert_eq!(memories[0], f32s(&[0.0, 5.0, 6.0, 7.0, 0.0, 0.0]));
}

/// Counts the uops of the kernel that have the type i64.
fn wide_count(linear: &Linear) -> usize {
    linear.uops.iter().filter(|uop| uop.dtype == DType::I64).count()
}

#[test]
fn narrow_loops_are_32_bits_unless_they_count_further() {
    let check = |shape: &[i64], range: DType, is_wide: bool| {
        let tracker = plain(&[1]).reshape(&vec![1; shape.len()]);
        let tracker = tracker.and_then(|tracker| tracker.expand(shape)).expect("an expansion");
        let linear = lowered(&sink(load(DType::F32, 1, 1, tracker), shape));
        assert!(ops(&linear, Op::Range).iter().all(|uop| uop.dtype == range), "{linear}");
        assert_eq!(wide_count(&linear) > 0, is_wide, "{linear}");
    };
    check(&[1 << 20], DType::I32, false);
    check(&[1 << 15, 1 << 15], DType::I32, false);
    check(&[(1 << 31) - 1], DType::I32, false);
    // Merged to one axis of 2^32 and 2^40: a counter that must be wide.
    check(&[1 << 16, 1 << 16], DType::I64, true);
    check(&[1 << 20, 1 << 20], DType::I64, true);
}

#[test]
fn opts_that_round_the_largest_narrow_loop_up_are_refused() {
    // One iteration less than i32 holds, so that none can be added, and three less.
    for (size, is_legal) in [((1i64 << 31) - 1, false), ((1 << 31) - 5, true)] {
        let tracker = plain(&[1]).expand(&[size]).expect("an expansion");
        let root = before_opts(&sink(load(DType::F32, 1, 1, tracker), &[size]));
        let loops = loops(&root).expect("a kernel");
        for op in [OptOp::PadTo, OptOp::Overlap] {
            let opt = Opt { op, axis: 0, amount: 4 };
            let target = Target::default();
            let setting = Setting { mode: Mode::Default, target: &target };
            let answer = check(&loops, opt, setting);
            assert_eq!(answer.is_ok(), is_legal, "{opt} of {size}: {answer:?}");
        }
    }
}

#[test]
fn narrow_transposed_large_store_has_wide_index_and_narrow_loops() {
    let transposed = |rows: i64| {
        let view = plain(&[rows, 1 << 16]).permute(&[1, 0]).expect("a view");
        let zero = UOp::constant(Constant::zero(DType::F32));
        let target = global(DType::F32, 0, rows << 16);
        let store = UOp::new(Op::Store, DType::Void, [target, zero], Arg::View(view));
        lowered(&UOp::new(Op::Sink, DType::Void, [store], Arg::None))
    };
    assert_eq!(wide_count(&transposed(1 << 14)), 0);
    let large = transposed(1 << 17);
    assert!(ops(&large, Op::Range).iter().all(|uop| uop.dtype == DType::I32), "{large}");
    // The row, widened, times its stride of 2^16 and the column: the constant, casts and sum.
    assert_eq!(ops(&large, Op::Mul)[0].dtype, DType::I64, "{large}");
    assert_eq!(ops(&large, Op::Add)[0].dtype, DType::I64, "{large}");
}

#[test]
fn narrow_small_arrays_have_narrow_indices_despite_a_large_one() {
    // out[i, j] = x[j] + y[i] with 2^17 rows of 2^16: only the index of out is wide.
    let (rows, columns) = (1i64 << 17, 1i64 << 16);
    let expanded = |shape: &[i64]| plain(shape).expand(&[rows, columns]).expect("an expansion");
    let x = load(DType::F32, 1, columns, expanded(&[1, columns]));
    let y = load(DType::F32, 2, rows, expanded(&[rows, 1]));
    let linear = lowered(&sink(UOp::binary(Op::Add, x, y), &[rows, columns]));
    let index_types: Vec<DType> =
        ops(&linear, Op::Index).iter().map(|uop| linear.uops[uop.src[1] as usize].dtype).collect();
    assert_eq!(index_types.iter().filter(|dtype| **dtype == DType::I64).count(), 1, "{linear}");
    assert_eq!(index_types.len(), 3);
    assert!(ops(&linear, Op::Range).iter().all(|uop| uop.dtype == DType::I32), "{linear}");
}

#[test]
fn narrow_flipped_view_beyond_i32_reads_the_right_elements() {
    // 3 * 2^30 indices, 2^30 per element: x[(3*2^30 - 1 - i) // 2^30] of a buffer of three
    // elements.
    let count = 3i64 << 30;
    let view = plain(&[3, 1]).expand(&[3, 1 << 30]).expect("an expansion");
    let view = view.reshape(&[count]).and_then(|view| view.flip(&[true])).expect("a view");
    // The end, and both sides of a change of the element.
    let cut = view.shrink(&[(count - 2, count)]).expect("a cut");
    let memories = vec![vec![None; 2], f32s(&[1.0, 2.0, 3.0])];
    let linear = lowered(&sink(load(DType::F32, 1, 3, cut), &[2]));
    let mut found = memories.clone();
    linear::run(&linear, &mut found);
    assert_eq!(found[0], f32s(&[1.0, 1.0]));
    let cut = view.shrink(&[((1 << 30) - 1, (1 << 30) + 1)]).expect("a cut");
    let linear = lowered(&sink(load(DType::F32, 1, 3, cut), &[2]));
    let mut found = memories;
    linear::run(&linear, &mut found);
    assert_eq!(found[0], f32s(&[3.0, 2.0]));
}

#[test]
fn linearize_invariant_load_leaves_the_loop() {
    let (row, column) = (range(0, 4), range(1, 8));
    let index = UOp::binary(
        Op::Add,
        UOp::binary(Op::Mul, row.clone(), UOp::int(DType::I32, 8)),
        column.clone(),
    );
    let value = UOp::binary(Op::Add, read(1, 4, row), read(2, 8, column));
    let memories = [vec![None; 32], f32s(&[1.0, 2.0, 3.0, 4.0]), f32s(&[0.5; 8])];
    let linear = linearized(&write(32, index, value), &memories);
    let column = linear.uops.iter().rposition(|uop| uop.op == Op::Range).expect("a loop");
    assert!(position(&linear, Op::Load) < column, "{linear}");
}

#[test]
fn linearize_reduction_of_the_row_is_outside_the_column_loop() {
    let (row, column, reduced) = (range(0, 2), range(1, 3), range(2, 4));
    let four = UOp::int(DType::I32, 4);
    let index = UOp::binary(Op::Add, UOp::binary(Op::Mul, row.clone(), four), reduced.clone());
    let sum = reduce_over(Op::Add, read(1, 8, index), &[reduced]);
    let three = UOp::int(DType::I32, 3);
    let target = UOp::binary(Op::Add, UOp::binary(Op::Mul, row, three), column.clone());
    let value = UOp::binary(Op::Add, sum, read(2, 3, column));
    let memories =
        [vec![None; 6], f32s(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]), f32s(&[10.0, 20.0, 30.0])];
    let linear = linearized(&write(6, target, value), &memories);
    let depth = |at: usize| {
        let opened = linear.uops[..at].iter().filter(|uop| uop.op == Op::Range).count();
        opened - linear.uops[..at].iter().filter(|uop| uop.op == Op::EndRange).count()
    };
    assert_eq!(depth(position(&linear, Op::DefineAcc)), 1, "{linear}");
    assert_eq!(depth(position(&linear, Op::Assign)), 2, "{linear}");
}

#[test]
fn linearize_two_reductions_over_one_range_have_separate_loops() {
    let range_of_both = range(0, 4);
    let x = read(1, 4, range_of_both.clone());
    let maximum = reduce_over(Op::Max, x.clone(), std::slice::from_ref(&range_of_both));
    let sum = reduce_over(Op::Add, x, &[range_of_both]);
    let memories = [vec![None], f32s(&[3.0, -2.0, 7.0, 1.0])];
    let zero = UOp::int(DType::I32, 0);
    let linear = linearized(&write(1, zero, UOp::binary(Op::Sub, maximum, sum)), &memories);
    assert_eq!(ops(&linear, Op::DefineAcc).len(), 2, "{linear}");
    assert_eq!(ops(&linear, Op::Range).len(), 2, "{linear}");
}

#[test]
fn linearize_reduction_in_a_reduction_over_the_same_range() {
    let (row, column) = (range(0, 2), range(1, 3));
    let three = UOp::int(DType::I32, 3);
    let index = UOp::binary(Op::Add, UOp::binary(Op::Mul, row.clone(), three), column.clone());
    let x = read(1, 6, index);
    let maximum = reduce_over(Op::Max, x.clone(), std::slice::from_ref(&column));
    let scaled = UOp::binary(Op::Sub, x, maximum);
    let memories = [vec![None; 2], f32s(&[3.0, -2.0, 7.0, 1.0, 9.0, 4.0])];
    // First the inner reduction ends before the outer one starts; then both are open at once.
    let sum = reduce_over(Op::Add, scaled.clone(), std::slice::from_ref(&column));
    linearized(&write(2, row.clone(), sum), &memories);
    let total = reduce_over(Op::Add, scaled, &[column, row]);
    let memories = [vec![None; 1], memories[1].clone()];
    let linear = linearized(&write(1, UOp::int(DType::I32, 0), total), &memories);
    assert_eq!(ops(&linear, Op::Range).len(), 3, "{linear}");
}

#[test]
fn linearize_empty_range_accesses_nothing() {
    let empty_range = range(0, 0);
    let empty = write(1, empty_range.clone(), read(1, 0, UOp::int(DType::I32, 0)));
    let linear = gradiff_kernel::passes::linearize(&empty, "t".into()).expect("a kernel");
    linear::run(&linear, &mut vec![vec![None], Vec::new()]);
    let sum = reduce_over(Op::Mul, read(1, 0, UOp::int(DType::I32, 0)), &[empty_range]);
    let linear =
        gradiff_kernel::passes::linearize(&write(1, UOp::int(DType::I32, 0), sum), "t".into());
    let mut memories = vec![vec![None], Vec::new()];
    linear::run(&linear.expect("a kernel"), &mut memories);
    assert_eq!(memories[0], f32s(&[1.0]));
}

#[test]
fn linearize_range_of_one_iteration_runs_once() {
    let single = range(0, 1);
    let sum = reduce_over(Op::Add, read(1, 1, single.clone()), &[single]);
    linearized(&write(1, UOp::int(DType::I32, 0), sum), &[vec![None], f32s(&[4.0])]);
}

#[test]
fn linearize_second_store_sees_the_first() {
    let zero = UOp::int(DType::I32, 0);
    let next =
        UOp::binary(Op::Add, read(0, 1, zero.clone()), UOp::constant(Constant::one(DType::F32)));
    let first = write(1, zero.clone(), next.clone()).src()[0].clone();
    let index = UOp::new(Op::Index, DType::F32, [global(DType::F32, 1, 1), zero], Arg::None);
    let second = UOp::new(Op::Store, DType::Void, [index, next], Arg::None);
    let root = UOp::new(Op::Sink, DType::Void, [first, second], Arg::None);
    let linear = gradiff_kernel::passes::linearize(&root, "t".into()).expect("a kernel");
    let mut memories = vec![f32s(&[1.0]), vec![None]];
    linear::run(&linear, &mut memories);
    assert_eq!(memories, vec![f32s(&[2.0]), f32s(&[3.0])]);
}

#[test]
fn lower_chain_of_10000_ops_succeeds() {
    let mut value = contiguous(DType::I32, 1, &[4]);
    for number in 0..10_000 {
        let op = [Op::Max, Op::Xor][number % 2];
        let tracker = plain(&[4]);
        let operand = load(DType::I32, 2 + number % 3, 4, tracker);
        value = UOp::binary(op, value, operand);
    }
    assert!(10_000 < lowered(&sink(value, &[4])).uops.len());
    // A sum whose terms are all reordered.
    let mut value = contiguous(DType::I32, 1, &[4]);
    for number in 0..10_000 {
        let shape = [plain(&[4]), plain(&[1]).expand(&[4]).expect("a value")][number % 2].clone();
        let addend = load(DType::I32, 2 + number % 2, [4, 1][number % 2], shape);
        let addend = UOp::binary(Op::Xor, addend, UOp::int(DType::I32, number as i64));
        value = UOp::binary(Op::Add, value, addend);
    }
    assert!(10_000 < lowered(&sink(value, &[4])).uops.len());
}

#[test]
fn lower_unread_parameter_stays_a_parameter() {
    let x = contiguous(DType::I32, 1, &[4]);
    let y = contiguous(DType::I32, 2, &[4]);
    let never = UOp::constant(Constant::bool(false));
    let linear = lowered(&sink(UOp::select(never, x, y), &[4]));
    let slots: Vec<usize> = linear.globals().iter().map(|(global, _)| global.slot).collect();
    assert_eq!(slots, [0, 1, 2]);
}

/// Counts the additions in the innermost loop, and in the kernel.
fn adds(linear: &Linear) -> (usize, usize) {
    let last = linear.uops.iter().rposition(|uop| uop.op == Op::Range).expect("a loop");
    let count = |uops: &[Instruction]| uops.iter().filter(|uop| uop.op == Op::Add).count();
    (count(&linear.uops[last..]), count(&linear.uops))
}

#[test]
fn reassociate_leaves_one_add_per_index_in_the_innermost_loop() {
    let permuted = plain(&[2, 3, 4, 5]).permute(&[3, 1, 2, 0]).expect("a permutation");
    let ast = sink(load(DType::I32, 1, 120, permuted.clone()), &[5, 3, 4, 2]);
    assert_eq!(adds(&lowered(&ast)), (2, 4), "two indices, each of three terms");
    // Each index of an unrolled iteration has one constant.
    let padded = permuted.pad(&[(0, 0), (1, 1), (0, 0), (1, 1)]).expect("a pad");
    let ast = sink(load(DType::I32, 1, 120, padded), &[5, 5, 4, 4]);
    let opts = Strategy::Fixed(vec!["upcast 2 4".parse().expect("an opt")]);
    let options = Options { opts, ..Options::default() };
    let target = Target::default();
    let linear = lower(&ast, &target, &options, &mut Trace::default()).expect("a kernel");
    assert_eq!(
        adds(&linear).0,
        7,
        "the sum and its constants: four stores and two loads, one of which adds 0"
    );
}

#[test]
fn expand_scalar_stores_have_vector_computation() {
    let transposed = plain(&[16, 16]).permute(&[1, 0]).expect("a permutation");
    let [x, y] = [1, 2].map(|slot| load(DType::F32, slot, 256, transposed.clone()));
    let ast = sink(UOp::binary(Op::Mul, x, y), &[16, 16]);
    let opts = Strategy::Fixed(vec!["upcast 0 16".parse().expect("an opt")]);
    let options = Options { opts, ..Options::default() };
    let target = Target::of("vectors");
    let linear = lower(&ast, &target, &options, &mut Trace::default()).expect("a kernel");
    let lanes = |op, dtype| -> Vec<u8> {
        let uops = ops(&linear, op).into_iter();
        uops.filter(|uop| uop.dtype == dtype).map(|uop| uop.lanes).collect()
    };
    assert_eq!(lanes(Op::Load, DType::F32), [16, 16]);
    assert_eq!(lanes(Op::Mul, DType::F32), [16]);
    assert_eq!(ops(&linear, Op::Store).len(), 16);
}

#[test]
fn expand_rows_of_scalar_accumulators_are_gathered() {
    // 16 lanes of i8 are loaded as a vector, but their sums fit no vector; they are stored in
    // pairs.
    let permuted = plain(&[3, 2, 16]).permute(&[2, 1, 0]).expect("a permutation");
    let wide = UOp::unary(Op::Cast, DType::I32, load(DType::I8, 1, 96, permuted));
    let ast = sink(reduce(Op::Add, wide, &[2]), &[16, 2, 1]);
    let opts = ["upcast 1 2", "upcast 0 16"].map(|opt| opt.parse().expect("an opt"));
    let options = Options { opts: Strategy::Fixed(opts.into()), ..Options::default() };
    let base = Target::of("vectors");
    let target = Target { vectors: Vectors { bytes: 32, ..base.vectors }, ..base };
    let linear = lower(&ast, &target, &options, &mut Trace::default()).expect("a kernel");
    let stored = ops(&linear, Op::Store).into_iter().map(|uop| &linear.uops[uop.src[1] as usize]);
    assert!(stored.map(|value| value.lanes).eq([2; 16]), "{linear}");
    let data = (0..96).map(|value| Some(Constant::int(DType::I8, value))).collect();
    let mut memories = vec![vec![None; 32], data];
    linear::run(&linear, &mut memories);
    let sum = |index: i128| (0..3).map(|k| k * 32 + index % 2 * 16 + index / 2).sum();
    let sums: Vec<_> = (0..32).map(|index| Some(Constant::int(DType::I32, sum(index)))).collect();
    assert_eq!(memories[0], sums, "{linear}");
}

#[test]
fn overlap_is_refused_if_no_iteration_may_be_repeated() {
    let refusal = |ast: &UOp, target: &str, opts: &[&str]| {
        let opts = opts.iter().map(|opt| opt.parse().expect("an opt")).collect();
        let options = Options { opts: Strategy::Fixed(opts), ..Options::default() };
        let lowered = lower(ast, &Target::of(target), &options, &mut Trace::default());
        lowered.map_or_else(|why| why.to_string(), |_| String::new())
    };
    let of_size = |slot, size| {
        let value = load(DType::I32, slot, size, plain(&[size]));
        sink(UOp::unary(Op::Neg, DType::I32, value), &[size])
    };
    let of_slot = |slot| of_size(slot, 7);
    assert_eq!(refusal(&of_slot(1), "plain", &["overlap 0 4", "upcast 0 4"]), "");
    let why = refusal(&of_slot(0), "plain", &["overlap 0 4"]);
    assert!(why.contains("the kernel loads from an array that it stores to"), "{why}");
    let why = refusal(&of_slot(1), "cuda", &["overlap 0 4"]);
    assert!(why.contains("the device has groups"), "{why}");
    for opts in [["overlap 0 4", "thread 0 2"], ["padto 0 2", "overlap 0 3"]] {
        let why = refusal(&of_slot(1), "plain", &[opts[0], opts[1], "thread 0 3"]);
        assert!(why.contains("two threads would store the same element"), "{why}");
    }
    // Of 8 blocks of 4 the last two are in one of 4 parts, but not in one of 8.
    let opts = ["overlap 0 4", "upcast 0 2", "thread 0 4"];
    assert_eq!(refusal(&of_size(1, 31), "plain", &opts), "");
    let why = refusal(&of_size(1, 31), "plain", &["overlap 0 4", "upcast 0 2", "thread 0 8"]);
    assert!(why.contains("two threads would store the same element"), "{why}");
    let of_row = sink(exp2_times_its_sum(2, 7), &[2, 7]);
    let why = refusal(&of_row, "plain", &["overlap 0 4"]);
    assert!(why.contains("2 iterations are not more than 4"), "{why}");
}

#[test]
fn cut_loops_are_in_the_same_outer_loop_unless_a_store_may_be_loaded() {
    let lowered = |slot, opts: &[&str]| {
        let value =
            load(DType::I32, slot, 21, plain(&[3, 7]).flip(&[false, true]).expect("a flip"));
        let ast = sink(UOp::unary(Op::Neg, DType::I32, value), &[3, 7]);
        let opts = opts.iter().map(|opt| opt.parse().expect("an opt")).collect();
        let options = Options { opts: Strategy::Fixed(opts), ..Options::default() };
        lower(&ast, &Target::of("plain"), &options, &mut Trace::default())
    };
    let linear = lowered(1, &["cut 1 3", "thread 0 3"]).expect("a kernel");
    let counts: Vec<i128> = linear
        .uops
        .iter()
        .filter(|uop| uop.op == Op::Range)
        .map(|range| {
            let end = &linear.uops[range.src[0] as usize];
            match end.arg {
                Arg::Const(end) => end.to_int().expect("a count"),
                _ => 0,
            }
        })
        .collect();
    assert_eq!(counts, [3, 3, 4], "{linear:?}");
    for (opts, why) in [
        (["cut 1 0", "cut 1 3"], "0 is not between 1 and 6"),
        (["cut 1 7", "cut 1 3"], "7 is not between 1 and 6"),
        (["cut 1 3", "thread 1 3"], "not each store is in the loop"),
    ] {
        let found = lowered(1, &opts).map_or_else(|why| why.to_string(), |_| String::new());
        assert!(found.contains(why), "{found}");
    }
}

#[test]
fn expand_halves_are_vectors_if_the_target_has_them() {
    let ast = sink(contiguous(DType::F16, 1, &[64]), &[64]);
    let opts = Strategy::Fixed(vec!["upcast 0 4".parse().expect("an opt")]);
    let options = Options { opts, ..Options::default() };
    for (target, lanes) in [("cuda", 4), ("vectors", 4), ("opencl", 1), ("short-vectors", 1)] {
        let target = Target::of(target);
        let linear = lower(&ast, &target, &options, &mut Trace::default()).expect("a kernel");
        assert!(ops(&linear, Op::Load).iter().all(|load| load.lanes == lanes), "{linear}");
    }
}

#[test]
fn expand_lanes_are_limited_by_the_target() {
    for (dtype, amount, of_targets) in [
        (DType::U16, 8, [("cuda", 4), ("metal", 4), ("opencl", 8), ("vectors", 8)]),
        (DType::I8, 16, [("cuda", 4), ("metal", 4), ("opencl", 16), ("short-vectors", 16)]),
        (DType::U8, 4, [("cuda", 4), ("metal", 4), ("opencl", 4), ("ptx", 4)]),
        (DType::F16, 8, [("cuda", 8), ("metal", 4), ("opencl", 1), ("vectors", 8)]),
    ] {
        let ast = sink(contiguous(dtype, 1, &[64]), &[64]);
        let opts = Strategy::Fixed(vec![format!("upcast 0 {amount}").parse().expect("an opt")]);
        let options = Options { opts, ..Options::default() };
        for (name, lanes) in of_targets {
            let target = Target::of(name);
            let linear = lower(&ast, &target, &options, &mut Trace::default()).expect("a kernel");
            let loads = ops(&linear, Op::Load);
            assert!(loads.iter().all(|load| load.lanes == lanes), "{name} {dtype}: {linear}");
        }
    }
}

#[test]
fn reassociate_leaves_sums_of_floats() {
    let [x, y] = [1, 2].map(|slot| load(DType::F32, slot, 6, plain(&[2, 3])));
    let row = load(DType::F32, 3, 1, plain(&[1, 1]).expand(&[2, 3]).expect("a value"));
    let sum = UOp::binary(Op::Add, UOp::binary(Op::Add, x, y), row);
    let ast = sink(sum, &[2, 3]);
    assert_eq!(after("reassociate", &ast), after("late", &ast));
}

#[test]
fn legalize_f16_sum_is_rounded_after_each_op() {
    let x = contiguous(DType::F16, 1, &[1]);
    let y = contiguous(DType::F16, 2, &[1]);
    let once = UOp::binary(Op::Add, x.clone(), y.clone());
    let linear = lowered(&sink(UOp::binary(Op::Add, once, y), &[1]));
    assert!(ops(&linear, Op::Add).iter().all(|uop| uop.dtype == DType::F32), "{linear}");
    // 2048 + 1 is 2048 in f16, twice; in f32 it would be 2050.
    let half = |value: f64| vec![Some(Constant::float(DType::F16, value))];
    let mut memories = vec![vec![None], half(2048.0), half(1.0)];
    linear::run(&linear, &mut memories);
    assert_eq!(memories[0], half(2048.0));
}

#[test]
fn legalize_f16_sum_accumulates_in_f32() {
    let x = contiguous(DType::F16, 1, &[3]);
    let linear = lowered(&sink(reduce(Op::Add, x, &[0]), &[1]));
    assert_eq!(ops(&linear, Op::DefineAcc)[0].dtype, DType::F32, "{linear}");
    let half = |value: f64| Some(Constant::float(DType::F16, value));
    let mut memories = vec![vec![None], vec![half(2048.0), half(1.0), half(1.0)]];
    linear::run(&linear, &mut memories);
    assert_eq!(memories[0], [half(2050.0)]);
}

#[test]
fn products_of_halves_are_rounded_before_they_are_added_in_strict_mode_alone() {
    let [x, y] = [1, 2].map(|slot| contiguous(DType::F16, slot, &[2]));
    let product = UOp::unary(Op::Cast, DType::F32, UOp::binary(Op::Mul, x, y));
    let ast = sink(reduce(Op::Add, product, &[0]), &[1]);
    let half = |value: f64| Some(Constant::float(DType::F16, value));
    let (root, square) = (1.0 + 2f64.powi(-10), 1.0 + 2f64.powi(-9));
    // The square of the root is larger than `square` by 2^-20, and rounds to it.
    let rest = [(Mode::Strict, 0.0), (Mode::Default, 2f64.powi(-20)), (Mode::Fast, 2f64.powi(-20))];
    for (mode, expected) in rest {
        let rewrite = gradiff_rewrite::Options { mode, fuel: None };
        let options = Options { rewrite, ..Options::default() };
        let linear = lower(&ast, &Target::default(), &options, &mut Trace::default());
        let linear = linear.expect("a kernel");
        let mut memories =
            vec![vec![None], vec![half(root), half(-1.0)], vec![half(root), half(square)]];
        linear::run(&linear, &mut memories);
        assert_eq!(memories[0], f32s(&[expected]), "{mode:?}: {linear}");
        let casts = if mode == Mode::Strict { 4 } else { 2 };
        assert_eq!(ops(&linear, Op::Cast).len(), casts, "{mode:?}: {linear}");
    }
}

#[test]
fn legalize_native_f16_stays() {
    let x = contiguous(DType::F16, 1, &[4]);
    let ast = sink(UOp::binary(Op::Add, x.clone(), x), &[4]);
    let target = Target { native_f16: true, ..Target::default() };
    let linear = lower(&ast, &target, &Options::default(), &mut Trace::default());
    let linear = linear.expect("a kernel");
    assert!(ops(&linear, Op::Cast).is_empty(), "{linear}");
}

/// Counts the exp2 uops that are left in a kernel over this many elements.
fn functions_left(dtype: DType, size: i64, name: &str, opts: Strategy) -> usize {
    let x = contiguous(dtype, 1, &[size]);
    let ast = sink(UOp::unary(Op::Exp2, dtype, x), &[size]);
    let options = Options { opts, ..Options::default() };
    let linear = lower(&ast, &Target::of(name), &options, &mut Trace::default());
    ops(&linear.expect("a kernel"), Op::Exp2).len()
}

#[test]
fn legalize_expands_unsupported_functions() {
    for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
        assert_eq!(functions_left(dtype, 64, "wgsl", Strategy::None), 0, "{dtype}");
        assert_eq!(functions_left(dtype, 64, "plain", Strategy::None), 1, "{dtype}");
        // The library has the function for scalars, but not for vectors.
        assert_eq!(functions_left(dtype, 64, "vectors", Strategy::None), 1, "{dtype}");
        assert_eq!(functions_left(dtype, 64, "vectors", Strategy::Heuristic), 0, "{dtype}");
    }
    assert_eq!(functions_left(DType::F32, 64, "ptx", Strategy::None), 1);
    assert_eq!(functions_left(DType::F64, 64, "ptx", Strategy::None), 0);
}

#[test]
fn lower_malformed_kernel_is_an_error() {
    let fails = |ast: &UOp| {
        let found = lower(ast, &Target::default(), &Options::default(), &mut Trace::default());
        matches!(found.expect_err("no kernel"), Error::Malformed(_))
    };
    assert!(fails(&UOp::int(DType::I32, 1)));
    let (x, y) = (contiguous(DType::F32, 1, &[4]), contiguous(DType::F32, 2, &[2, 2]));
    assert!(fails(&sink(UOp::binary(Op::Add, x.clone(), y), &[4])));
    assert!(fails(&sink(UOp::binary(Op::Add, x.clone(), contiguous(DType::F32, 2, &[3])), &[4])));
    assert!(fails(&sink(UOp::binary(Op::Add, x, contiguous(DType::F32, 1, &[1])), &[4])));
}

#[test]
fn interpret_out_of_bounds_is_an_error() {
    let zero = UOp::int(DType::I32, 0);
    let root = write(1, zero, read(1, 2, UOp::int(DType::I32, 2)));
    let found = interpret(&root, &mut [vec![None], f32s(&[1.0, 2.0])]);
    assert_eq!(found, Err(String::from("load element 2 of data1, which has 2")));
}

/// The names in the first column of the table below a heading of the engine's README.
fn documented(heading: &str) -> Vec<&'static str> {
    let text = include_str!("../../../README.md");
    let (_, section) = text.split_once(heading).expect("a section of the page");
    let rows = section.lines().skip_while(|line| !line.starts_with("| `"));
    let rows = rows.take_while(|line| line.starts_with("| `"));
    rows.filter_map(|line| line.split('`').nth(1)).collect()
}

#[test]
fn passes_are_documented_in_order() {
    let graph = PASSES.iter().map(|pass| pass.name);
    let linear = LINEAR_PASSES.iter().map(|pass| pass.name);
    let names: Vec<&str> = graph.chain([LINEARIZE.name]).chain(linear).collect();
    assert_eq!(documented("## Kernel passes"), names, "engine/README.md");
}

#[test]
fn cache_input_that_a_later_loop_computes_again() {
    let tree = sink(exp2_times_its_sum(2, 3), &[2, 3]);
    let linear = lowered(&tree);
    let [array] = ops(&linear, Op::DefineLocal)[..] else { panic!("{linear}") };
    assert_eq!(array.arg, Arg::Local(Local { number: 0, size_elements: 3 }));
    assert_eq!(ops(&linear, Op::Exp2).len(), 1, "{linear}");
    let floats = f32s(&[0.0, 1.0, 2.0, 3.0, 0.0, 0.0]);
    let mut memories = vec![vec![None; 6], floats];
    linear::run(&linear, &mut memories);
    assert_eq!(memories[0], f32s(&[7.0, 14.0, 28.0, 80.0, 10.0, 10.0]));
}

#[test]
fn cache_skips_cheap_values_long_rows_and_groups() {
    let is_cached = |tree: &UOp, target: &Target| {
        let stages = stages(tree, target, &Options::default()).expect("a kernel");
        let (_, kernel) =
            stages.graphs.into_iter().find(|(name, _)| *name == "cache-inputs").expect("a pass");
        kernel.toposort().iter().any(|node| node.op() == Op::DefineLocal)
    };
    let long = |columns| sink(exp2_times_its_sum(2, columns), &[2, columns]);
    let plain_target = Target::default();
    assert!(is_cached(&long(4096), &plain_target));
    assert!(!is_cached(&long(4097), &plain_target));
    assert!(!is_cached(&long(64), &Target::of("groups")));
    let x = contiguous(DType::F32, 1, &[2, 8]);
    let broadcast = plain(&[2, 1]).expand(&[2, 8]).expect("rows");
    let sum = reduce(Op::Add, x.clone(), &[1]);
    let row_sum = UOp::new(Op::View, DType::F32, [sum], Arg::View(broadcast));
    let cheap = sink(UOp::binary(Op::Sub, x, row_sum), &[2, 8]);
    assert!(!is_cached(&cheap, &plain_target));
}

#[test]
fn cache_of_upcast_rows_is_private_and_limited() {
    let tree = sink(exp2_times_its_sum(64, 4096), &[64, 4096]);
    let with = |opt: &str| {
        let opts = Strategy::Fixed(vec![opt.parse().expect("an opt")]);
        let options = Options { opts, ..Options::default() };
        lower(&tree, &Target::default(), &options, &mut Trace::default())
    };
    let linear = with("upcast 0 4").expect("a kernel");
    let [array] = ops(&linear, Op::DefineLocal)[..] else { panic!("{linear}") };
    assert_eq!(array.arg, Arg::Local(Local { number: 0, size_elements: 4 * 4096 }));
    let refused = with("upcast 0 8").expect_err("128 KiB");
    assert!(refused.to_string().contains("8 cached rows take 131072 bytes"), "{refused}");
}

/// Returns the distances of the loads of a kernel that prefetch.
fn prefetch_distances(tree: &UOp) -> Vec<Arg> {
    let target = Target { prefetches: true, ..Target::default() };
    let linear = lower(tree, &target, &Options::default(), &mut Trace::default());
    let linear = linear.expect("a kernel");
    let loads = ops(&linear, Op::Load).into_iter().map(|load| load.arg.clone());
    loads.filter(|arg| *arg != Arg::None).collect()
}

#[test]
fn prefetch_next_row_in_the_loop_that_fills_a_cache() {
    let rows = sink(exp2_times_its_sum(64, 32), &[64, 32]);
    assert_eq!(prefetch_distances(&rows), [Arg::Int(32)]);
    // A single row has no next one, and nothing is cached for a plain sum.
    assert_eq!(prefetch_distances(&sink(exp2_times_its_sum(1, 32), &[1, 32])), []);
    let x = contiguous(DType::F32, 1, &[64, 32]);
    assert_eq!(prefetch_distances(&sink(reduce(Op::Add, x, &[1]), &[64, 1])), []);
}

#[test]
fn prefetch_ahead_in_loops_over_large_arrays() {
    let shape = [1 << 11, 1 << 10];
    let x = contiguous(DType::F32, 1, &shape);
    let doubled = |x: UOp| UOp::binary(Op::Add, x.clone(), x);
    assert_eq!(prefetch_distances(&sink(doubled(x.clone()), &shape)), [Arg::Int(512)]);
    // Backward, if the loop runs backward.
    let flipped = plain(&shape).flip(&[false, true]).expect("a flip");
    let backward = load(DType::F32, 1, 1 << 21, flipped);
    assert_eq!(prefetch_distances(&sink(doubled(backward), &shape)), [Arg::Int(-512)]);
    // No prefetch if the stride exceeds a cache line, if the load is invariant, if the array is
    // small, or if the loop is a reduction.
    let transposed = plain(&[1 << 10, 1 << 11]).permute(&[1, 0]).expect("a permutation");
    assert_eq!(
        prefetch_distances(&sink(doubled(load(DType::F32, 1, 1 << 21, transposed)), &shape)),
        []
    );
    let invariant = plain(&[1 << 11, 1]).expand(&shape).expect("rows of one value");
    assert_eq!(
        prefetch_distances(&sink(doubled(load(DType::F32, 1, 1 << 11, invariant)), &shape)),
        []
    );
    let small = contiguous(DType::F32, 1, &[1 << 10, 1 << 10]);
    assert_eq!(prefetch_distances(&sink(doubled(small), &[1 << 10, 1 << 10])), []);
    assert_eq!(prefetch_distances(&sink(reduce(Op::Add, x, &[1]), &[1 << 11, 1])), []);
}

#[test]
fn upcast_of_functions_is_limited_by_uops() {
    let x = contiguous(DType::F32, 1, &[256]);
    let tree = sink(UOp::unary(Op::Sin, DType::F32, x), &[256]);
    let with = |opt: &str| {
        let opts = Strategy::Fixed(vec![opt.parse().expect("an opt")]);
        let options = Options { opts, ..Options::default() };
        lower(&tree, &Target::default(), &options, &mut Trace::default())
    };
    assert!(with("upcast 0 64").is_ok());
    let refused = with("upcast 0 128").expect_err("128 sines");
    assert!(refused.to_string().contains("11520 uops after unrolling"), "{refused}");
}

#[test]
fn upcast_of_long_computations_is_limited_by_uops() {
    let mut value = contiguous(DType::I32, 1, &[16, 8]);
    for number in 0..100 {
        value =
            UOp::binary([Op::Max, Op::Xor][number % 2], value, UOp::int(DType::I32, number as i64));
    }
    let tree = sink(value, &[16, 8]);
    let transposed = plain(&[8, 16]).permute(&[1, 0]).expect("a permutation");
    let sum =
        UOp::binary(Op::Add, tree.src()[0].src()[1].clone(), load(DType::I32, 2, 128, transposed));
    let tree = sink(sum, &[16, 8]);
    let with = |opts: &[&str]| {
        let opts = opts.iter().map(|opt| opt.parse().expect("an opt")).collect();
        let options = Options { opts: Strategy::Fixed(opts), ..Options::default() };
        lower(&tree, &Target::default(), &options, &mut Trace::default())
    };
    assert!(with(&["upcast 1 8", "upcast 0 8"]).is_ok());
    let refused = with(&["upcast 1 8", "upcast 0 16"]).expect_err("128 iterations");
    assert!(refused.to_string().contains("uops after unrolling, at most 8192"), "{refused}");
}

#[test]
fn view_outside_its_array_is_refused() {
    let refused = |ast: &UOp| {
        let target = Target::default();
        let error = lower(ast, &target, &Options::default(), &mut Trace::default()).unwrap_err();
        assert!(stages(ast, &target, &Options::default()).is_err());
        error.to_string()
    };
    let short = load(DType::F32, 1, 15, plain(&[4, 4]));
    let error = refused(&sink(short.clone(), &[4, 4]));
    assert!(error.contains("of an array of 15 elements"), "{error}");
    // One element before the first.
    let view = gradiff_view::View::create(&[4], Some(&[1]), -1, None).expect("a view");
    let before = ShapeTracker::from_views(&[view]).expect("a tracker");
    let error = refused(&sink(load(DType::F32, 1, 8, before), &[4]));
    assert!(error.contains("of an array of 8 elements"), "{error}");
    let mixed = UOp::new(Op::Neg, DType::F32, [contiguous(DType::I32, 1, &[4, 4])], Arg::None);
    assert!(refused(&sink(mixed, &[4, 4])).contains("neg turns i32 into f32"));
}

/// Output loops may be divided among threads.
#[test]
fn element_accessed_twice_is_refused() {
    let store = |size: i64, tracker: ShapeTracker, value: UOp| {
        let target = global(DType::F32, 0, size);
        let store = UOp::new(Op::Store, DType::Void, [target, value], Arg::View(tracker));
        let tree = UOp::new(Op::Sink, DType::Void, [store], Arg::None);
        let kernel = lower(&tree, &Target::default(), &Options::default(), &mut Trace::default());
        kernel.err().map(|error| error.to_string())
    };
    let refused = |error: Option<String>, problem: &str| {
        assert!(error.as_ref().is_some_and(|error| error.contains(problem)), "{error:?}");
    };
    let value = || contiguous(DType::F32, 1, &[4, 8]);
    let strided = |strides: [i64; 2]| {
        let view = gradiff_view::View::create(&[4, 8], Some(&strides), 0, None).expect("a view");
        ShapeTracker::from_views(&[view]).expect("a tracker")
    };
    for strides in [[0, 1], [8, 0], [7, 1], [1, 1], [2, 3]] {
        refused(store(32, strided(strides), value()), "more than once");
    }
    for strides in [[8, 1], [1, 4], [9, 1], [1, 5]] {
        assert_eq!(store(40, strided(strides), value()), None);
    }
    // The same element is read and written, or another one.
    let flipped = plain(&[4, 8]).flip(&[false, true]).expect("a flip");
    let output = |tracker| load(DType::F32, 0, 32, tracker);
    assert_eq!(store(32, plain(&[4, 8]), output(plain(&[4, 8]))), None);
    refused(store(32, plain(&[4, 8]), output(flipped.clone())), "of an array that is stored");
    // So it is beside another store, which may load what the first one has stored in any order.
    let stores = |first: UOp, second: UOp| {
        let store = |slot: usize, value: UOp| {
            let src = [global(DType::F32, slot, 32), value];
            UOp::new(Op::Store, DType::Void, src, Arg::View(plain(&[4, 8])))
        };
        let tree = UOp::new(Op::Sink, DType::Void, [store(0, first), store(2, second)], Arg::None);
        let kernel = lower(&tree, &Target::default(), &Options::default(), &mut Trace::default());
        kernel.err().map(|error| error.to_string())
    };
    refused(stores(output(flipped.clone()), value()), "of an array that is stored");
    assert_eq!(stores(value(), output(flipped)), None);
    // Eight values for each of four elements.
    refused(store(4, plain(&[4, 1]), value()), "several values");
    assert_eq!(store(4, plain(&[4, 1]), reduce(Op::Add, value(), &[1])), None);
}

#[test]
fn access_of_empty_view_is_gated() {
    for shape in [[4, 0], [0, 4], [0, 0]] {
        let value = |slot| load(DType::F32, slot, 0, plain(&shape));
        let sum = UOp::binary(Op::Add, value(1), value(2));
        let store = UOp::new(
            Op::Store,
            DType::Void,
            [global(DType::F32, 0, 0), sum],
            Arg::View(plain(&shape)),
        );
        let tree = UOp::new(Op::Sink, DType::Void, [store], Arg::None);
        let kernel = lower(&tree, &Target::default(), &Options::default(), &mut Trace::default());
        let kernel = kernel.expect("it is lowered").into_linear();
        assert!(BoundedLinear::check(kernel.clone()).is_ok(), "{kernel}");
    }
}
