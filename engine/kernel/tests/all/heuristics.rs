//! What the heuristic chooses for telling kernels, and that they keep what they compute.

use gradiff_graph::{Constant, DType, Op, UOp};
use gradiff_kernel::{Options, Strategy, Target, interpret, stages};
use gradiff_view::ShapeTracker;

use crate::common::random::{load, plain, reduce, sink};
use crate::common::{Memories, agrees, linear};

/// A kernel, how many elements its arrays have, and the target.
struct Case {
    ast: UOp,
    sizes: Vec<usize>,
    target: &'static str,
}

impl Case {
    /// The opts of the heuristic, in words, for a kernel that still computes the same with them.
    fn opts(&self) -> String {
        let (target, mut memories) = (Target::of(self.target), self.memories());
        let options = Options { opts: Strategy::Heuristic, ..Options::default() };
        let (kernels, uops) = stages(&self.ast, &target, &options).expect("a kernel");
        let root = kernels.iter().take_while(|(pass, _)| *pass != "optimize").last();
        let root = root.map_or(&self.ast, |(_, kernel)| kernel);
        let setting = gradiff_kernel::Setting { mode: options.rewrite.mode, target: &target };
        let opts = gradiff_kernel::heuristic(root, setting).expect("a kernel");
        let mut expected = memories.clone();
        interpret(&self.ast, &mut expected).expect("a kernel");
        linear::verify(&uops).unwrap_or_else(|error| panic!("{opts:?}: {error}"));
        linear::run(&uops, &mut memories);
        assert!(agrees(&expected, &memories), "{opts:?}\n{uops}");
        opts.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    }

    /// Small whole numbers, whose sums are exact in any order; nothing in the output.
    fn memories(&self) -> Memories {
        let number = |at: usize| Constant::float(DType::F32, (at * 7 % 5) as f64 - 2.0);
        let array = |size: &usize| (0..*size).map(|at| Some(number(at))).collect();
        let mut memories: Memories = self.sizes.iter().map(array).collect();
        memories[0].fill(None);
        memories
    }
}

/// `sum(x * y)` over the last of the axes.
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

/// A matrix of rows times a vector.
fn matvec(rows: i64, steps: i64, target: &'static str) -> Case {
    let matrix = plain(&[rows, steps]);
    let vector = plain(&[1, steps]).expand(&[rows, steps]).expect("a row");
    let ast = product([matrix, vector], [rows * steps, steps], &[rows, steps]);
    let sizes = [rows, rows * steps, steps].map(|size| size as usize).to_vec();
    Case { ast, sizes, target }
}

/// A product of square matrices.
fn matmul(size: i64, steps: i64, target: &'static str) -> Case {
    let whole = [size, size, steps];
    let left = plain(&[size, 1, steps]).expand(&whole).expect("rows");
    let right = plain(&[1, steps, size]).permute(&[0, 2, 1]).expect("columns");
    let right = right.expand(&whole).expect("columns");
    let ast = product([left, right], [size * steps; 2], &whole);
    let sizes = [size * size, size * steps, size * steps].map(|size| size as usize).to_vec();
    Case { ast, sizes, target }
}

#[test]
fn matvec_shares_rows_among_threads() {
    assert_eq!(matvec(64, 128, "cuda").opts(), "group 1 8, local 0 4, upcast 0 4");
    // No 16 rows: the fold is divided among the threads of a group.
    assert_eq!(matvec(10, 128, "cuda").opts(), "grouptop 1 64, local 0 2");
    // 100 steps are no multiple of 8.
    assert_eq!(matvec(64, 100, "cuda").opts(), "unroll 1 4, local 0 32");
}

#[test]
fn matmul_reads_once_for_many() {
    let opts = matmul(128, 24, "cuda").opts();
    assert_eq!(opts, "upcast 1 4, upcast 0 4, unroll 2 4, local 1 32, local 0 4");
    let opts = matmul(128, 24, "wgsl").opts();
    assert_eq!(opts, "upcast 0 4, upcast 1 4, unroll 2 4, local 1 32, local 0 4");
}

#[test]
fn short_gated_loops_run_in_one_thread() {
    let (rows, columns) = (1200, 5);
    let padded = plain(&[rows, 3]).pad(&[(0, 0), (1, 1)]).expect("columns");
    let value = load(DType::F32, 1, rows * 3, padded);
    let ast = sink(value, &[rows, columns]);
    let sizes = [rows * columns, rows * 3].map(|size| size as usize).to_vec();
    let case = Case { ast, sizes, target: "opencl" };
    assert_eq!(case.opts(), "upcast 1 0, local 0 16");
    let options = Options { opts: Strategy::Heuristic, ..Options::default() };
    let (_, uops) = stages(&case.ast, &Target::of(case.target), &options).expect("a kernel");
    // What is padding is known in each step: no gate is left, and nothing that it stood before.
    let count = |op: Op| uops.uops.iter().filter(|uop| uop.op == op).count();
    assert_eq!([Op::Load, Op::Store, Op::CmpLt, Op::Where].map(count), [3, 5, 0, 0], "{uops}");
}

#[test]
fn cpus_compute_square_tiles() {
    let opts = matmul(64, 16, "vectors").opts();
    assert_eq!(opts, "upcast 1 16, upcast 1 4, upcast 0 4");
}
