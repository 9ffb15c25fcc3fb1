//! The opts that the heuristics choose for typical kernels, which must not change their results.

use gradiff_eval::kernel::interpret;
use gradiff_graph::target::Thresholds;
use gradiff_graph::{Arg, AxisKind, Constant, DType, Instruction, Linear, Op, Target, UOp};
use gradiff_kernel::{Options, Setting, Strategy, check, loops, stages};
use gradiff_rewrite::Mode;
use gradiff_view::{ShapeTracker, View};

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
        self.opts_for(&Target::of(self.target))
    }

    /// The same for a target that need not be a named one.
    fn opts_for(&self, target: &Target) -> String {
        let mut memories = self.memories();
        let options = Options { opts: Strategy::Heuristic, ..Options::default() };
        let stages = stages(&self.ast, target, &options).expect("a kernel");
        let uops = &stages.linear;
        let root = stages.graphs.iter().take_while(|(pass, _)| *pass != "optimize").last();
        let root = root.map_or(&self.ast, |(_, kernel)| kernel);
        let setting = gradiff_kernel::Setting { mode: options.rewrite.mode, target };
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

/// Makes a matrix product.
fn matmul(rows: i64, columns: i64, depth: i64, target: &'static str) -> Case {
    let whole = [rows, columns, depth];
    let left = plain(&[rows, 1, depth]).expand(&whole).expect("rows");
    let right = plain(&[1, depth, columns]).permute(&[0, 2, 1]).expect("columns");
    let right = right.expand(&whole).expect("columns");
    let ast = product([left, right], [rows * depth, columns * depth], &whole);
    let sizes = [rows * columns, rows * depth, columns * depth].map(|size| size as usize).to_vec();
    Case { ast, sizes, target }
}

/// Makes the product of a matrix and a transposed one.
fn dot_products(rows: i64, columns: i64, depth: i64, target: &'static str) -> Case {
    let whole = [rows, columns, depth];
    let left = plain(&[rows, 1, depth]).expand(&whole).expect("rows");
    let right = plain(&[1, columns, depth]).expand(&whole).expect("columns");
    let ast = product([left, right], [rows * depth, columns * depth], &whole);
    let sizes = [rows * columns, rows * depth, columns * depth].map(|size| size as usize).to_vec();
    Case { ast, sizes, target }
}

/// Makes the transposed of a matrix.
fn transposed(rows: i64, columns: i64, target: &'static str) -> Case {
    let value = plain(&[columns, rows]).permute(&[1, 0]).expect("rows");
    let ast = sink(load(DType::F32, 1, rows * columns, value), &[rows, columns]);
    Case { ast, sizes: vec![(rows * columns) as usize; 2], target }
}

/// Makes rows with a column before them and one after.
fn padded(rows: i64, columns: i64, target: &'static str) -> Case {
    let value = plain(&[rows, columns]).pad(&[(0, 0), (1, 1)]).expect("columns");
    let ast = sink(load(DType::F32, 1, rows * columns, value), &[rows, columns + 2]);
    let sizes = [rows * (columns + 2), rows * columns].map(|size| size as usize).to_vec();
    Case { ast, sizes, target }
}

/// Makes the rows of two matrices, one after the other.
fn concatenated(rows: i64, columns: i64, target: &'static str) -> Case {
    let [first, second] = [(1, (0, rows)), (2, (rows, 0))].map(|(slot, padding)| {
        let value = plain(&[rows, columns]).pad(&[padding, (0, 0)]).expect("rows");
        load(DType::F32, slot, rows * columns, value)
    });
    let ast = sink(UOp::binary(Op::Add, first, second), &[2 * rows, columns]);
    let sizes = [2, 1, 1].map(|count| (count * rows * columns) as usize).to_vec();
    Case { ast, sizes, target }
}

/// Makes the sums of all windows of three elements of a row.
fn windows(columns: i64, target: &'static str) -> Case {
    let (window, size) = (3, columns + 2);
    let rows = plain(&[1, size]).expand(&[window, size]).and_then(|x| x.reshape(&[window * size]));
    let rows = rows.and_then(|rows| rows.pad(&[(0, window)])).expect("a rest");
    let value = rows.reshape(&[window, size + 1]).expect("windows");
    let value = value.shrink(&[(0, window), (0, columns)]).and_then(|x| x.permute(&[1, 0]));
    let value = load(DType::F32, 1, size, value.expect("windows"));
    let ast = sink(reduce(Op::Add, value, &[1]), &[columns, 1]);
    Case { ast, sizes: [columns, size].map(|size| size as usize).to_vec(), target }
}

/// Makes rows minus their sums, or the largest of what is the same then, for each row.
fn centered(rows: i64, columns: i64, is_reduced: bool, target: &'static str) -> Case {
    let value = load(DType::F32, 1, rows * columns, plain(&[rows, columns]));
    let wide = plain(&[rows, 1]).expand(&[rows, columns]).expect("rows");
    let sum = reduce(Op::Add, value.clone(), &[1]);
    let sum = UOp::new(Op::View, DType::F32, [sum], Arg::View(wide));
    let centered = UOp::binary(Op::Sub, value, sum);
    let (ast, size) = match is_reduced {
        true => (sink(reduce(Op::Max, centered, &[1]), &[rows, 1]), rows),
        false => (sink(centered, &[rows, columns]), rows * columns),
    };
    Case { ast, sizes: vec![size as usize, (rows * columns) as usize], target }
}

/// Makes the reduction of an array along axes.
fn reduction(op: Op, shape: &[i64], axes: &[i64], target: &'static str) -> Case {
    let size: i64 = shape.iter().product();
    let value = reduce(op, load(DType::F32, 1, size, plain(shape)), axes);
    let mut stored = shape.to_vec();
    axes.iter().for_each(|axis| stored[*axis as usize] = 1);
    let sizes = vec![stored.iter().product::<i64>() as usize, size as usize];
    Case { ast: sink(value, &stored), sizes, target }
}

/// Makes blocks of rows minus the sum of each block, times a weight for each row.
fn centered_blocks(blocks: i64, rows: i64, columns: i64) -> Case {
    let shape = [blocks, rows, columns];
    let size: i64 = shape.iter().product();
    let value = load(DType::F32, 1, size, plain(&shape));
    let wide = plain(&[blocks, 1, 1]).expand(&shape).expect("blocks");
    let sum = reduce(Op::Add, value.clone(), &[1, 2]);
    let sum = UOp::new(Op::View, DType::F32, [sum], Arg::View(wide));
    let weights = plain(&[1, rows, 1]).expand(&shape).expect("rows");
    let weights = load(DType::F32, 2, rows, weights);
    let value = UOp::binary(Op::Mul, UOp::binary(Op::Sub, value, sum), weights);
    let sizes = [size, size, rows].map(|size| size as usize).to_vec();
    Case { ast: sink(value, &shape), sizes, target: "cuda" }
}

/// Makes the sum of the products of pairs of matrices, the second of which are transposed.
fn summed_products(pairs: i64, rows: i64, columns: i64, depth: i64, target: &'static str) -> Case {
    let whole = [pairs, rows, columns, depth];
    let left = plain(&[pairs, rows, 1, depth]).expand(&whole).expect("rows");
    let right = plain(&[pairs, 1, columns, depth]).expand(&whole).expect("columns");
    let [left_size, right_size] = [rows, columns].map(|size| pairs * size * depth);
    let left = load(DType::F32, 1, left_size, left);
    let right = load(DType::F32, 2, right_size, right);
    let sum = reduce(Op::Add, UOp::binary(Op::Mul, left, right), &[0, 3]);
    let sizes = [rows * columns, left_size, right_size].map(|size| size as usize).to_vec();
    Case { ast: sink(sum, &[1, rows, columns, 1]), sizes, target }
}

/// Makes rows times a row.
fn scaled(rows: i64, columns: i64, target: &'static str) -> Case {
    let shape = [rows, columns];
    let row = plain(&[1, columns]).expand(&shape).expect("a row");
    let matrix = load(DType::F32, 1, rows * columns, plain(&shape));
    let value = UOp::binary(Op::Mul, matrix, load(DType::F32, 2, columns, row));
    let sizes = [rows * columns, rows * columns, columns].map(|size| size as usize).to_vec();
    Case { ast: sink(value, &shape), sizes, target }
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

/// Makes the convolution of three images of so many rows and columns, each with windows of 3 x 3
/// elements of its own, `stride` apart.
fn depthwise(rows: i64, columns: i64, stride: i64) -> Case {
    let (images, window) = (3, 3);
    let [height, width] = [rows, columns].map(|size| (size - 1) * stride + window);
    let shape = [images, rows, columns, window, window];
    let strides = [height * width, stride * width, stride, width, 1];
    let views = [&strides, &[window * window, 0, 0, window, 1]];
    let trackers = views.map(|strides| {
        let view = View::create(&shape, Some(strides), 0, None).expect("windows");
        ShapeTracker::from_views(&[view]).expect("a view")
    });
    let sizes = [images * height * width, images * window * window];
    let [image, filter] = [(1, 0), (2, 1)]
        .map(|(slot, index)| load(DType::F32, slot, sizes[index], trackers[index].clone()));
    let sum = reduce(Op::Add, UOp::binary(Op::Mul, image, filter), &[3, 4]);
    let ast = sink(sum, &[images, rows, columns, 1, 1]);
    let sizes = [images * rows * columns, sizes[0], sizes[1]].map(|size| size as usize).to_vec();
    Case { ast, sizes, target: "vectors" }
}

/// Makes the sums of the rows, of so many columns, that name each position.
fn scattered(positions: i64, columns: i64, rows: i64, target: &'static str) -> Case {
    scattered_or([positions, columns, rows], 0.0, target)
}

/// Makes them with a choice between rows and `nothing`.
fn scattered_or([positions, columns, rows]: [i64; 3], nothing: f64, target: &'static str) -> Case {
    let shape = [positions, columns, rows];
    let wide = |tracker: ShapeTracker| tracker.expand(&shape).expect("axes of one element");
    let index = load(DType::F32, 1, rows, wide(plain(&[1, 1, rows])));
    let index = UOp::unary(Op::Cast, DType::I32, index);
    let numbers = UOp::new(Op::Iota, DType::I32, [], Arg::Int(positions));
    let column = Arg::View(wide(plain(&[positions, 1, 1])));
    let numbers = UOp::new(Op::View, DType::I32, [numbers], column);
    let row = plain(&[rows, 1, columns]).permute(&[1, 2, 0]).expect("a permutation");
    let row = load(DType::F32, 2, rows * columns, wide(row));
    let nothing = UOp::constant(Constant::float(DType::F32, nothing));
    let chosen = UOp::select(UOp::binary(Op::CmpNe, numbers, index), nothing, row);
    let ast = sink(reduce(Op::Add, chosen, &[2]), &[positions, columns, 1]);
    let sizes = [positions * columns, rows, rows * columns];
    Case { ast, sizes: sizes.map(|size| size as usize).to_vec(), target }
}

#[test]
fn opts_of_typical_kernels() {
    let table = [
        ("rows are shared among threads", "matvec 64x128", matvec(64, 128, "cuda")),
        ("few rows: threads of a group share a row", "matvec 10x128", matvec(10, 128, "cuda")),
        ("100 is no multiple of 8", "matvec 64x100", matvec(64, 100, "cuda")),
        ("elements share loads", "matmul 128x24x128", matmul(128, 128, 24, "cuda")),
        ("the same", "matmul 128x24x128", matmul(128, 128, 24, "wgsl")),
        ("threads share a row", "centre 8x1024", centered(8, 1024, false, "cuda")),
        ("a row of 1021 is padded", "centre 3x1021", centered(3, 1021, false, "cuda")),
        ("few threads for each row", "centre 24x64", centered(24, 64, false, "wgsl")),
        ("two reductions of a row", "rows 24x64", centered(24, 64, true, "cuda")),
        ("a row is too short", "centre 24x15", centered(24, 15, false, "cuda")),
        ("as vectors where they are loaded", "turn 64x128", transposed(64, 128, "cuda")),
        ("too few for vectors", "turn 12x20", transposed(12, 20, "cuda")),
        ("windows overlap", "windows 8192", windows(8192, "cuda")),
        ("rows fill a group", "pad 40x198", padded(40, 198, "cuda")),
        ("a prime number of threads", "pad 40x225", padded(40, 225, "cuda")),
        ("1031 is padded", "pad 40x1029", padded(40, 1029, "cuda")),
        ("a short gating loop is upcast", "pad 1200x3", padded(1200, 3, "opencl")),
        ("cut at the edges, from the last one on", "pad 3x40", padded(3, 40, "vectors")),
        ("squares of half a cache line", "turn 16x20", transposed(16, 20, "vectors")),
        ("columns of three", "turn 3x20", transposed(3, 20, "vectors")),
        ("two columns are no vector", "pad 3x2", padded(3, 2, "vectors")),
        ("29 of 32 registers, last rows twice", "matmul 64x16x64", matmul(64, 64, 16, "vectors")),
        ("rows and vectors fit", "matmul 96x16x96", matmul(96, 96, 16, "vectors")),
        ("8 rows are twice 4", "matmul 8x8x64", matmul(8, 64, 8, "vectors")),
        ("7 rows: one twice", "matmul 7x8x64", matmul(7, 64, 8, "vectors")),
        (
            "blocks of four vectors, the last shifted",
            "matmul 8x8x509",
            matmul(8, 509, 8, "vectors"),
        ),
        ("blocks of three repeat less", "matmul 8x8x197", matmul(8, 197, 8, "vectors")),
        ("a tile of dot products", "dots 12x8x64", dot_products(12, 8, 64, "vectors")),
        ("eight at once, of a single row", "dots 1x16x64", dot_products(1, 16, 64, "vectors")),
        ("16 lanes, the last 8 twice", "matmul 8x8x24", matmul(8, 24, 8, "vectors")),
        (
            "16 registers: two vectors at once",
            "matmul 64x16x64",
            matmul(64, 64, 16, "short-vectors"),
        ),
        ("lanes stored one by one: 4 rows", "conv 64x24", convolution(24, 64, true)),
        ("gating windows are unrolled", "conv 24x64", convolution(24, 64, false)),
        ("rows share vectors of windows", "depthwise 14x14", depthwise(14, 14, 1)),
        ("windows two apart do not", "depthwise 7x16/2", depthwise(7, 16, 2)),
        ("rows are added where they belong", "scatter 8x64x20", scattered(8, 64, 20, "vectors")),
        ("one element after the other", "scatter 64x1x20", scattered(64, 1, 20, "vectors")),
    ];
    let row = |(why, kernel, case): &(&str, &str, Case)| {
        format!("{kernel:17} {:13} {:57} {why}\n", case.target, case.opts())
    };
    insta::assert_snapshot!(table.iter().map(row).collect::<String>());
}

/// Returns the uops of a kernel with the chosen opts.
fn chosen(case: &Case) -> Linear {
    let options = Options { opts: Strategy::Heuristic, ..Options::default() };
    let stages = stages(&case.ast, &Target::of(case.target), &options).expect("a kernel");
    Linear::clone(&stages.linear)
}

/// Returns the dimensions of the groups and of the threads of a kernel with the chosen opts, the
/// smallest first.
fn launch(case: &Case) -> [Vec<i64>; 2] {
    let uops = chosen(case);
    [AxisKind::Global, AxisKind::Local].map(|kind| {
        let mut sizes: Vec<i64> = uops.launched(kind).iter().map(|(_, size)| *size).collect();
        sizes.sort_unstable();
        sizes
    })
}

/// Returns the number of threads of a kernel with the chosen opts.
fn threads(case: &Case) -> i64 {
    launch(case).concat().iter().product()
}

#[test]
fn elements_are_added_where_they_belong_if_that_takes_less_time() {
    let compares = |case: Case| chosen(&case).uops.iter().any(|uop| uop.op == Op::DefineAcc);
    // Vectors have 16 lanes: four comparisons take longer, of rows or of single elements.
    assert!(compares(scattered(3, 64, 20, "vectors")));
    assert!(!compares(scattered(4, 64, 20, "vectors")));
    assert!(compares(scattered(63, 1, 20, "vectors")));
    assert!(!compares(scattered(64, 1, 20, "vectors")));
    // Threads compare all at once, unless they are too many.
    let columns = 1 << 9;
    assert!(compares(scattered((1 << 12) - 1, columns, 20, "cuda")));
    let case = scattered(1 << 12, columns, 20, "cuda");
    // Each adds four columns.
    assert_eq!(launch(&case), [vec![columns / 4], vec![]]);
    assert!(!compares(case));
}

#[test]
fn long_sums_of_floats_are_added_one_by_one_if_they_ask_for_it() {
    let target = Target::of("vectors");
    let compares = |rows: i64, nothing: f64, mode: Mode| {
        let ast = scattered_or([8, 64, rows], nothing, "vectors").ast;
        let options = Options {
            rewrite: gradiff_rewrite::Options { mode, ..gradiff_rewrite::Options::default() },
            ..Options::default()
        };
        let kernel = stages(&ast, &target, &options).expect("a kernel").linear;
        kernel.uops.iter().any(|uop| uop.op == Op::DefineAcc)
    };
    assert!(!compares(256, 0.0, Mode::Default));
    assert!(compares(257, 0.0, Mode::Default));
    assert!(!compares(257, -0.0, Mode::Default));
    // Strict mode adds all sums in this order.
    assert!(!compares(257, 0.0, Mode::Strict));
    assert!(compares(20, 1.0, Mode::Default));
}

#[test]
fn loops_that_update_the_same_elements_keep_their_order() {
    let case = scattered(8, 64, 20, "vectors");
    let target = Target::of(case.target);
    let stages = stages(&case.ast, &target, &Options::default()).expect("a kernel");
    let (_, root) = stages.graphs.iter().find(|(pass, _)| *pass == "scatter").expect("a pass");
    let loops = loops(root).expect("a kernel");
    let setting = Setting { mode: Mode::Default, target: &target };
    let ordered: Vec<usize> =
        (0..loops.list.len()).filter(|index| loops.list[*index].is_ordered).collect();
    let [rows] = ordered[..] else { panic!("{ordered:?}") };
    assert_eq!(loops.list[rows].size, 20);
    for (op, is_legal) in [("upcast", true), ("local", false), ("thread", false), ("cut", false)] {
        for (index, info) in loops.list.iter().enumerate() {
            let opt = format!("{op} {index} 2").parse().expect("an opt");
            let found = check(&loops, opt, setting);
            let is_expected = is_legal && !info.is_ordered;
            assert_eq!(found.is_ok(), is_expected, "{op} of a loop of {}: {found:?}", info.size);
        }
    }
}

#[test]
fn shared_rows_are_reduced_once() {
    // The rest of the row is in a loop of its own.
    assert_eq!(launch(&centered(8, 2048, false, "cuda")), [vec![8], vec![256]]);
}

#[test]
fn rows_of_several_short_loops_are_shared() {
    // Eight blocks in a group, and a thread for each iteration of the longest loop.
    for (rows, columns, threads) in
        [(12, 12, [8, 12]), (9, 10, [8, 10]), (7, 5, [7, 8]), (4, 4, [4, 8])]
    {
        let case = centered_blocks(16, rows, columns);
        let opts = case.opts();
        assert_eq!(launch(&case), [vec![2], threads.to_vec()], "{opts}");
    }
}

#[test]
fn adjacent_threads_read_adjacent_columns_on_each_device() {
    for target in ["cuda", "opencl", "metal", "wgsl"] {
        let case = reduction(Op::Add, &[64, 64], &[0], target);
        let opts = case.opts();
        assert!(launch(&case)[1].contains(&32), "{target}: {opts}");
    }
}

#[test]
fn reductions_of_odd_sizes_are_padded() {
    let table: [(&[i64], &[i64]); 4] =
        [(&[6, 20, 49], &[0, 2]), (&[67, 40], &[0]), (&[2, 401, 2], &[1]), (&[3, 3136], &[1])];
    for (shape, axes) in table {
        for op in [Op::Add, Op::Max] {
            let opts = reduction(op, shape, axes, "cuda").opts();
            assert!(opts.contains("padto") && opts.contains("group"), "{op} {shape:?}: {opts}");
        }
    }
}

#[test]
fn reductions_of_odd_sizes_occupy_the_device() {
    let table: [(&[i64], &[i64], i64); 7] = [
        (&[32, 512, 49], &[0, 2], 1 << 14),
        (&[8, 64, 3136], &[0, 2], 1 << 14),
        (&[197, 768], &[0], 1 << 13),
        (&[2047, 3072], &[0], 1 << 14),
        (&[2049, 1024], &[0], 1 << 14),
        (&[2, 7919, 2], &[1], 1 << 10),
        (&[100_003, 3], &[0], 3 << 8),
    ];
    for (shape, axes, least) in table {
        let found = threads(&reduction(Op::Add, shape, axes, "cuda"));
        assert!(least <= found, "{shape:?}: {found} threads");
    }
}

#[test]
fn products_of_few_rows_occupy_the_device() {
    type Product = fn(i64, i64, i64, &'static str) -> Case;
    let products: [Product; 2] = [matmul, dot_products];
    for rows in [3, 7, 12, 17, 33, 48] {
        for product in products {
            let found = threads(&product(rows, 1024, 512, "cuda"));
            assert!(1 << 14 <= found, "{rows} rows: {found} threads");
        }
    }
}

#[test]
fn products_of_few_rows_are_divided() {
    let thresholds = Thresholds { group_reduce_elements: 16, ..Thresholds::USUAL };
    let target = Target { thresholds, ..Target::of("cuda") };
    for (case, values) in [
        (matmul(3, 40, 256, "cuda"), "upcast 0 3"),
        (dot_products(3, 40, 256, "cuda"), "upcast 0 3"),
        (dot_products(17, 33, 256, "cuda"), "padto 0 4, upcast 0 10"),
    ] {
        let opts = case.opts_for(&target);
        assert!(opts.starts_with(values) && opts.contains("group"), "{opts}");
    }
}

#[test]
fn warps_divide_the_sum_of_products() {
    let opts = summed_products(8, 16, 16, 16, "cuda-tf32").opts();
    assert!(opts.starts_with("tc") && opts.contains("grouptop 0 4"), "{opts}");
}

#[test]
fn threads_of_a_long_odd_loop_join_those_of_a_short_row() {
    let case = scaled(1031, 7, "cuda");
    let opts = case.opts();
    assert_eq!(launch(&case), [vec![129], vec![7, 8]], "{opts}");
}

#[test]
fn padding_is_known_in_upcast_iterations() {
    let uops = chosen(&padded(1280, 3, "opencl"));
    // Neither gates nor gated loads are left.
    let count = |op: Op| uops.uops.iter().filter(|uop| uop.op == op).count();
    assert_eq!([Op::Load, Op::Store, Op::CmpLt, Op::Where].map(count), [3, 5, 0, 0], "{uops}");
}

#[test]
fn broadcast_scalars_share_a_register() {
    // Each is right before its first use.
    let uops = chosen(&matmul(64, 64, 16, "vectors"));
    let is_single = |at: &usize| uops.uops[*at - 1].op == Op::Load && uops.uops[*at - 1].lanes == 1;
    let vectors = (1..uops.uops.len()).filter(|at| uops.uops[*at].op == Op::Vectorize);
    let splats: Vec<usize> = vectors.filter(is_single).collect();
    let is_used = |at: &usize| uops.uops[*at + 1].src.contains(&(*at as u32));
    assert!(splats.len() == 6 && splats.iter().all(is_used), "{uops}");
}

#[test]
fn windows_share_adjacent_elements() {
    let uops = chosen(&convolution(24, 64, false));
    let single = |uop: &&Instruction| uop.op == Op::Load && uop.lanes == 1;
    let singles: Vec<&Instruction> = uops.uops.iter().filter(single).collect();
    // 6 windows of 3 are 8 adjacent elements; only the first and the last may be outside the row.
    let is_gated = |load: &&&Instruction| uops.uops[load.src[0] as usize].src.len() == 3;
    assert_eq!((singles.len(), singles.iter().filter(is_gated).count()), (8, 2), "{uops}");
}

/// Returns the text of the chosen opts for so many threads, which so many iterations are worth.
fn opts_for_threads(case: &Case, threads: i64, thread_iterations: i64) -> String {
    let thresholds = Thresholds { thread_iterations, ..Thresholds::USUAL };
    case.opts_for(&Target { threads, thresholds, ..Target::of(case.target) })
}

#[test]
fn kernels_are_divided_among_any_number_of_threads() {
    let rows = |count: i64| reduction(Op::Add, &[count, 256], &[1], "vectors");
    for (case, threads, expected) in [
        (scaled(192, 32, "vectors"), 96, "thread 0 96"),
        // Each part of a row would repeat the sum of the row.
        (centered(7, 16 * 96, false, "vectors"), 20, "thread 0 7"),
        // 18 does not divide 200, but a number of parts does that is a few times as large.
        (scaled(200, 16, "vectors"), 18, "thread 0 100"),
        // Fewer rows than threads, or a few more.
        (rows(8), 16, "thread 0 8"),
        (rows(17), 16, "thread 0 17"),
        // Four rounds of 63 parts take less time than two of 21.
        (rows(63), 20, "thread 0 63"),
    ] {
        let opts = opts_for_threads(&case, threads, 32);
        assert!(opts.ends_with(expected), "{threads} threads: {opts}");
    }
}

#[test]
fn iterations_of_separate_loop_nests_are_added_up() {
    // A loop of 256 for the sum of each of four rows, and one for its elements.
    let case = centered(4, 256, false, "vectors");
    let is_divided = |iterations| opts_for_threads(&case, 4, iterations).contains("thread");
    assert_eq!([2048, 2049, 1 << 18].map(is_divided), [true, false, false]);
}

#[test]
fn concatenated_rows_are_divided_among_threads() {
    let case = concatenated(24, 32, "vectors");
    let opts = [1, 2, 4].map(|threads| opts_for_threads(&case, threads, 32));
    assert!(opts[0].contains("cut") && !opts[0].contains("thread"), "{opts:?}");
    assert_eq!(opts[1..], ["upcast 1 16, thread 0 2", "upcast 1 16, thread 0 4"]);
}
