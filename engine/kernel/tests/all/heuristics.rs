//! The opts that the heuristics choose for typical kernels, which must not change their results.

use gradiff_graph::{Constant, DType, Instruction, Op, Target, UOp};
use gradiff_kernel::{Options, Strategy, interpret, stages};
use gradiff_view::ShapeTracker;

use crate::common::random::{load, plain, reduce, sink};
use crate::common::{Memories, agrees, linear};

/// A kernel, the sizes of its arrays, and the target.
struct Case {
    ast: UOp,
    sizes: Vec<usize>,
    target: &'static str,
}

impl Case {
    /// Returns the text of the chosen opts; checks that the kernel computes the same with them.
    fn opts(&self) -> String {
        let (target, mut memories) = (Target::of(self.target), self.memories());
        let options = Options { opts: Strategy::Heuristic, ..Options::default() };
        let stages = stages(&self.ast, &target, &options).expect("a kernel");
        let uops = &stages.linear;
        let root = stages.graphs.iter().take_while(|(pass, _)| *pass != "optimize").last();
        let root = root.map_or(&self.ast, |(_, kernel)| kernel);
        let setting = gradiff_kernel::Setting { mode: options.rewrite.mode, target: &target };
        let opts = gradiff_kernel::heuristic(root, setting).expect("a kernel");
        let mut expected = memories.clone();
        interpret(&self.ast, &mut expected).expect("a kernel");
        linear::verify(uops).unwrap_or_else(|error| panic!("{opts:?}: {error}"));
        linear::run(uops, &mut memories);
        assert!(agrees(&expected, &memories), "{opts:?}\n{uops}");
        opts.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    }

    /// Returns arrays of small integers, whose sums are exact in any order; the output is
    /// undefined.
    fn memories(&self) -> Memories {
        let number = |at: usize| Constant::float(DType::F32, (at * 7 % 5) as f64 - 2.0);
        let array = |size: &usize| (0..*size).map(|at| Some(number(at))).collect();
        let mut memories: Memories = self.sizes.iter().map(array).collect();
        memories[0].fill(None);
        memories
    }
}

/// Makes `sum(x * y)` over the last axis.
fn product(trackers: [ShapeTracker; 2], sizes: [i64; 2], shape: &[i64]) -> UOp {
    let mut slots = (1..).zip(sizes).zip(trackers);
    let mut factor = || {
        let ((slot, size), tracker) = slots.next().expect("two factors");
        load(DType::F32, slot, size, tracker)
    };
    let product = UOp::binary(Op::Mul, factor(), factor());
    let last = shape.len() - 1;
    let sum = reduce(Op::Add, product, &[last as i64]);
    let mut stored = shape.to_vec();
    stored[last] = 1;
    sink(sum, &stored)
}

/// Makes the product of a matrix and a vector.
fn matvec(rows: i64, columns: i64, target: &'static str) -> Case {
    let matrix = plain(&[rows, columns]);
    let vector = plain(&[1, columns]).expand(&[rows, columns]).expect("a row");
    let ast = product([matrix, vector], [rows * columns, columns], &[rows, columns]);
    let sizes = [rows, rows * columns, columns].map(|size| size as usize).to_vec();
    Case { ast, sizes, target }
}

/// Makes a matrix product with a square result.
fn matmul(size: i64, depth: i64, target: &'static str) -> Case {
    let whole = [size, size, depth];
    let left = plain(&[size, 1, depth]).expand(&whole).expect("rows");
    let right = plain(&[1, depth, size]).permute(&[0, 2, 1]).expect("columns");
    let right = right.expand(&whole).expect("columns");
    let ast = product([left, right], [size * depth; 2], &whole);
    let sizes = [size * size, size * depth, size * depth].map(|size| size as usize).to_vec();
    Case { ast, sizes, target }
}

#[test]
fn matvec_shares_rows_among_threads() {
    assert_eq!(matvec(64, 128, "cuda").opts(), "group 1 8, local 0 4, upcast 0 4");
    // Fewer than 16 rows: the reduction is divided among the threads of a group.
    assert_eq!(matvec(10, 128, "cuda").opts(), "grouptop 1 64, local 0 2");
    // 100 columns are not a multiple of 8.
    assert_eq!(matvec(64, 100, "cuda").opts(), "unroll 1 4, local 0 32");
}

#[test]
fn matmul_upcasts_for_reuse() {
    let opts = matmul(128, 24, "cuda").opts();
    assert_eq!(opts, "upcast 1 4, upcast 0 4, unroll 2 4, local 1 32, local 0 4");
    let opts = matmul(128, 24, "wgsl").opts();
    assert_eq!(opts, "upcast 0 4, upcast 1 4, unroll 2 4, local 1 32, local 0 4");
}

#[test]
fn short_gating_loops_are_upcast() {
    let (rows, columns) = (1200, 5);
    let padded = plain(&[rows, 3]).pad(&[(0, 0), (1, 1)]).expect("columns");
    let value = load(DType::F32, 1, rows * 3, padded);
    let ast = sink(value, &[rows, columns]);
    let sizes = [rows * columns, rows * 3].map(|size| size as usize).to_vec();
    let case = Case { ast, sizes, target: "opencl" };
    assert_eq!(case.opts(), "upcast 1 0, local 0 16");
    let options = Options { opts: Strategy::Heuristic, ..Options::default() };
    let stages = stages(&case.ast, &Target::of(case.target), &options).expect("a kernel");
    let uops = &stages.linear;
    // The padding is known in each iteration: neither gates nor gated loads are left.
    let count = |op: Op| uops.uops.iter().filter(|uop| uop.op == op).count();
    assert_eq!([Op::Load, Op::Store, Op::CmpLt, Op::Where].map(count), [3, 5, 0, 0], "{uops}");
}

#[test]
fn cpu_tiles_fill_the_registers() {
    // 6 rows of 4 vectors, 4 vectors and a scalar: 29 of 32 registers. The last rows are repeated.
    let opts = matmul(64, 16, "vectors").opts();
    assert_eq!(opts, "overlap 0 6, upcast 0 6, upcast 1 16, upcast 1 4");
    // Broadcast scalars are right before their first use, so that one register holds all of them.
    let options = Options { opts: Strategy::Heuristic, ..Options::default() };
    let case = matmul(64, 16, "vectors");
    let stages = stages(&case.ast, &Target::of("vectors"), &options).expect("a kernel");
    let uops = &stages.linear;
    let is_single = |at: &usize| uops.uops[*at - 1].op == Op::Load && uops.uops[*at - 1].lanes == 1;
    let vectors = (1..uops.uops.len()).filter(|at| uops.uops[*at].op == Op::Vectorize);
    let splats: Vec<usize> = vectors.filter(is_single).collect();
    let is_used = |at: &usize| uops.uops[*at + 1].src.contains(&(*at as u32));
    assert!(splats.len() == 6 && splats.iter().all(is_used), "{uops}");
    let opts = matmul(96, 16, "vectors").opts();
    assert_eq!(opts, "upcast 0 8, upcast 1 16, upcast 1 3, swap 0 1");
    // 8 rows are two times 4; with tiles of 6 rows, 4 of them would be computed twice.
    let rows = |rows, columns| {
        let whole = [rows, columns, 8];
        let left = plain(&[rows, 1, 8]).expand(&whole).expect("rows");
        let right = plain(&[1, 8, columns]).permute(&[0, 2, 1]).expect("columns");
        let right = right.expand(&whole).expect("columns");
        let ast = product([left, right], [rows * 8, columns * 8], &whole);
        let sizes = [rows * columns, rows * 8, columns * 8].map(|size| size as usize).to_vec();
        Case { ast, sizes, target: "vectors" }
    };
    assert_eq!(rows(8, 64).opts(), "upcast 0 4, upcast 1 16, upcast 1 4");
    assert_eq!(rows(7, 64).opts(), "overlap 0 4, upcast 0 4, upcast 1 16, upcast 1 4");
    // 16 registers: two vectors at once.
    let opts = matmul(64, 16, "short-vectors").opts();
    assert_eq!(opts, "overlap 0 6, upcast 0 6, upcast 1 4, upcast 1 2, swap 0 1");
}

/// Makes the convolution of a padded row with filters of size three; transposed, with a row of the
/// result for each filter.
fn convolution(columns: i64, filters: i64, is_transposed: bool) -> Case {
    let window = 3;
    let (padded, period) = (columns + 2, columns + 3);
    let row = plain(&[columns]).pad(&[(1, 1)]).expect("borders");
    let row = row.reshape(&[1, padded]).and_then(|row| row.expand(&[window, padded]));
    let row = row.and_then(|rows| rows.reshape(&[window * padded])).expect("rows");
    let row = row.pad(&[(0, window * period - window * padded)]).expect("a rest");
    let row = row.reshape(&[window, period]).expect("windows");
    let row = row.shrink(&[(0, window), (0, columns)]).expect("windows");
    let row = row.permute(&[1, 0]).and_then(|row| row.reshape(&[columns, 1, window]));
    let whole = [columns, filters, window];
    let row = row.and_then(|row| row.expand(&whole)).expect("windows");
    let filter = plain(&[1, window, filters]).permute(&[0, 2, 1]).expect("filters");
    let filter = filter.expand(&whole).expect("filters");
    let order: &[usize] = if is_transposed { &[1, 0, 2] } else { &[0, 1, 2] };
    let trackers = [row, filter].map(|tracker| tracker.permute(order).expect("three axes"));
    let shape = [whole[order[0]], whole[order[1]], window];
    let ast = product(trackers, [columns, window * filters], &shape);
    let sizes = [columns * filters, columns, window * filters].map(|size| size as usize).to_vec();
    Case { ast, sizes, target: "vectors" }
}

#[test]
fn gating_windows_are_unrolled() {
    // The lanes are stored one by one: 4 rows.
    let opts = convolution(24, 64, true).opts();
    assert_eq!(opts, "upcast 1 4, upcast 0 16, upcast 0 4, unroll 1 0");
    let case = convolution(24, 64, false);
    assert_eq!(case.opts(), "upcast 0 6, upcast 1 16, upcast 1 4, unroll 1 0");
    let options = Options { opts: Strategy::Heuristic, ..Options::default() };
    let stages = stages(&case.ast, &Target::of(case.target), &options).expect("a kernel");
    let uops = &stages.linear;
    let single = |uop: &&Instruction| uop.op == Op::Load && uop.lanes == 1;
    let singles: Vec<&Instruction> = uops.uops.iter().filter(single).collect();
    // 6 windows of 3 are 8 adjacent elements; only the first and the last may be outside the row.
    let is_gated = |load: &&&Instruction| uops.uops[load.src[0] as usize].src.len() == 3;
    assert_eq!((singles.len(), singles.iter().filter(is_gated).count()), (8, 2), "{uops}");
}
