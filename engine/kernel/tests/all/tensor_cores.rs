//! Matrix products by tensor cores: drawn ones compute the same after each pass, and refusals give
//! the reason.

use gradiff_eval::kernel::interpret;
use gradiff_graph::target::{Groups, Thresholds};
use gradiff_graph::tensor_core::{TENSOR_CORES, TensorCore};
use gradiff_graph::{Arg, Constant, DType, Op, Target, UOp};
use gradiff_kernel::{
    Opt, OptOp, Options, Setting, Strategy, apply, check, draw, heuristic, legal, loops, stages,
};
use gradiff_rewrite::Mode;
use gradiff_view::ShapeTracker;

use crate::common::random::{Random, load, plain, reduce, sink};
use crate::common::{Memories, agrees, linear};

/// Sizes, types and forms of a matrix product.
pub(crate) struct Shape {
    batch: i64,
    pub(crate) rows: i64,
    pub(crate) columns: i64,
    pub(crate) depth: i64,
    dtype: DType,
    /// 0: products are cast to f32, 1: factors are, 2: as 1, with a gate.
    pub(crate) form: usize,
    /// True if A and B are transposed in memory, and whether their first summand is padding.
    is_transposed: [bool; 2],
    is_padded: [bool; 2],
    has_relu: bool,
}

impl Shape {
    pub(crate) fn drawn(random: &mut Random, core: &TensorCore) -> Shape {
        let [m, n, k] = core.sizes.map(|size| {
            let size = size * (1 + random.below(2) as i64);
            if random.one_in(4) { size - 1 } else { size }
        });
        let mut coin = || random.one_in(2);
        Shape {
            is_transposed: [coin(), coin()],
            is_padded: [coin(), coin()],
            has_relu: coin(),
            batch: 1 + i64::from(coin()),
            rows: m,
            columns: n,
            depth: k,
            dtype: core.operand_dtype,
            form: if core.operand_dtype == DType::F32 { 1 } else { random.below(3) },
        }
    }

    /// The kernel, and small integers in its arrays, whose sums are exact in any order.
    pub(crate) fn kernel(&self, random: &mut Random) -> (UOp, Memories) {
        let full = [self.batch, self.rows, self.columns, self.depth];
        let axes = [self.batch, self.rows, self.columns, 1];
        let operand = |matrix: usize| {
            let size = if matrix == 0 { self.rows } else { self.columns };
            let stored = self.depth - i64::from(self.is_padded[matrix]);
            let is_transposed = self.is_transposed[matrix];
            let inner = if is_transposed { [stored, size] } else { [size, stored] };
            let mut tracker = plain(&[self.batch, inner[0], inner[1]]);
            if is_transposed {
                tracker = tracker.permute(&[0, 2, 1]).expect("axes");
            }
            if self.is_padded[matrix] {
                tracker = tracker.pad(&[(0, 0), (0, 0), (1, 0)]).expect("a pad");
            }
            let shape = match matrix {
                0 => [self.batch, size, 1, self.depth],
                _ => [self.batch, 1, size, self.depth],
            };
            let reshaped: ShapeTracker = tracker.reshape(&shape).expect("a shape");
            let count = self.batch * size * stored;
            (load(self.dtype, matrix + 1, count, reshaped.expand(&full).expect("sizes")), count)
        };
        let [(a, a_size), (b, b_size)] = [operand(0), operand(1)];
        let wide = |value: UOp| match self.dtype {
            DType::F32 => value,
            _ => UOp::unary(Op::Cast, DType::F32, value),
        };
        let product = match self.form {
            0 => wide(UOp::binary(Op::Mul, a, b)),
            _ => UOp::binary(Op::Mul, wide(a), wide(b)),
        };
        let product = if self.form == 2 { gated(product, &full) } else { product };
        let mut value = reduce(Op::Add, product, &[3]);
        if self.has_relu {
            let zero = UOp::constant(Constant::zero(DType::F32));
            value = UOp::binary(Op::Max, value, zero);
        }
        let mut array = |count: i64| -> Vec<Option<Constant>> {
            let mut element = || Some(Constant::float(self.dtype, random.below(7) as f64 - 3.0));
            (0..count).map(|_| element()).collect()
        };
        let out = vec![None; (self.batch * self.rows * self.columns) as usize];
        (sink(value, &axes), vec![out, array(a_size), array(b_size)])
    }
}

/// Replaces the first summand by zero.
fn gated(value: UOp, full: &[i64; 4]) -> UOp {
    let indices = UOp::new(Op::Iota, DType::I32, [], Arg::Int(full[3]));
    let tracker = plain(&[1, 1, 1, full[3]]).expand(full).expect("sizes");
    let index = UOp::new(Op::View, DType::I32, [indices], Arg::View(tracker));
    let gate = UOp::binary(Op::CmpLt, UOp::int(DType::I32, 0), index);
    UOp::select(gate, value, UOp::constant(Constant::zero(DType::F32)))
}

/// Returns the kernel before the pass `optimize`.
pub(crate) fn lowered(ast: &UOp) -> UOp {
    let stages = stages(ast, &Target::default(), &Options::default()).expect("a kernel");
    let found = stages.graphs.into_iter().find(|(pass, _)| *pass == "collapse");
    found.expect("the pass").1
}

/// Draws opts with a `tc` among them, if one is legal: with padding, and other opts before and
/// after.
pub(crate) fn sequence(root: &UOp, random: &mut Random, setting: Setting<'_>) -> Option<Vec<Opt>> {
    let (mut root, mut opts) = (root.clone(), Vec::new());
    let mut add = |root: &mut UOp, opt: Opt| {
        *root = apply(root, opt, setting).expect("a legal opt");
        opts.push(opt);
    };
    if random.one_in(3) {
        for opt in draw(&root, random.next(), 2, setting).expect("a kernel") {
            add(&mut root, opt);
        }
    }
    for axis in 0..loops(&root).expect("a kernel").list.len() {
        for amount in [2, 4, 8, 16] {
            let opt = Opt { op: OptOp::PadTo, axis, amount };
            if random.one_in(2) && check(&loops(&root).expect("a kernel"), opt, setting).is_ok() {
                add(&mut root, opt);
            }
        }
    }
    let mut products = legal(&root, setting).expect("a kernel");
    products.retain(|opt| opt.op == OptOp::Tc);
    if products.is_empty() {
        return None;
    }
    let product = products[random.below(products.len())];
    add(&mut root, product);
    for opt in draw(&root, random.next(), 4, setting).expect("a kernel") {
        add(&mut root, opt);
    }
    Some(opts)
}

/// Checks the kernel under opts after each pass; returns the number of its `wmma` that start from
/// accumulators.
pub(crate) fn check_stages(ast: &UOp, memories: &Memories, target: &Target, opts: &[Opt]) -> usize {
    let run = |kernel: &UOp| {
        let mut memories = memories.clone();
        interpret(kernel, &mut memories).unwrap_or_else(|error| panic!("{opts:?}: {error}"));
        memories
    };
    let expected = run(ast);
    let options = Options { opts: Strategy::Fixed(opts.to_vec()), ..Options::default() };
    let stages = stages(ast, target, &options).expect("a kernel");
    let uops = &stages.linear;
    for (pass, kernel) in &stages.graphs {
        let verified = gradiff_graph::verify::verify(kernel);
        assert!(verified.is_ok(), "{opts:?} after {pass}: {verified:?}");
        assert!(agrees(&expected, &run(kernel)), "{opts:?} after {pass}");
    }
    linear::verify(uops).unwrap_or_else(|error| panic!("{opts:?}: {error}"));
    let mut found = memories.clone();
    linear::run(uops, &mut found);
    assert!(agrees(&expected, &found), "{opts:?}: linear\n{uops}");
    let products = uops.uops.iter().filter(|uop| uop.op == Op::Wmma);
    let accumulating = products.filter(|product| {
        let starts = &uops.uops[product.src[2] as usize];
        starts.src.iter().any(|start| uops.uops[*start as usize].op == Op::DefineAcc)
    });
    accumulating.count()
}

#[test]
fn drawn_matrix_products_preserve_results() {
    let target = Target::of("groups");
    let setting = Setting { mode: Mode::Default, target: &target };
    let (mut counts, mut summed) = (vec![0; TENSOR_CORES.len()], 0);
    for seed in 0..240 {
        let mut random = Random(seed);
        let number = if seed % 6 == 0 { random.below(3) } else { 4 + random.below(3) };
        let core = &TENSOR_CORES[number];
        let (ast, memories) = Shape::drawn(&mut random, core).kernel(&mut random);
        let Some(opts) = sequence(&lowered(&ast), &mut random, setting) else { continue };
        counts[number] += 1;
        summed += check_stages(&ast, &memories, &target, &opts);
    }
    assert!(counts[..3].iter().sum::<i32>() > 10 && summed > 100, "{counts:?} {summed}");
    assert!(counts[4..].iter().all(|count| *count > 20), "{counts:?}");
}

fn square(size: i64, dtype: DType) -> (UOp, Memories) {
    let form = usize::from(dtype == DType::F32);
    let shape = Shape {
        batch: 1,
        rows: size,
        columns: size,
        depth: size,
        dtype,
        form,
        is_transposed: [false; 2],
        is_padded: [false; 2],
        has_relu: false,
    };
    shape.kernel(&mut Random(1))
}

#[test]
fn heuristic_uses_tensor_cores_if_they_fit() {
    for (target, dtype, size, is_used) in [
        ("cuda", DType::F16, 64, true),
        ("cuda", DType::BF16, 32, true),
        ("ptx", DType::F16, 64, true),
        ("cuda", DType::F32, 64, false),
        ("cuda-tf32", DType::F32, 64, true),
        ("cuda", DType::F16, 60, true),
        ("cuda", DType::F16, 12, false),
        ("opencl", DType::F16, 64, false),
    ] {
        let (ast, _) = square(size, dtype);
        let target = Target::of(target);
        let setting = Setting { mode: Mode::Default, target: &target };
        let opts = heuristic(&lowered(&ast), setting).expect("a kernel");
        assert_eq!(opts.iter().any(|opt| opt.op == OptOp::Tc), is_used, "{dtype} {size} {opts:?}");
        if is_used {
            let options = Options { opts: Strategy::Heuristic, ..Options::default() };
            let stages = stages(&ast, &target, &options).expect("a kernel");
            let uops = &stages.linear;
            assert!(uops.uops.iter().any(|uop| uop.op == Op::Wmma), "{uops}");
        }
    }
}

#[test]
fn heuristic_pads_products_for_tensor_cores() {
    let product = |rows: i64, columns: i64| {
        let shape = Shape {
            batch: 1,
            rows,
            columns,
            depth: 64,
            dtype: DType::BF16,
            form: 1,
            is_transposed: [false; 2],
            is_padded: [false; 2],
            has_relu: false,
        };
        shape.kernel(&mut Random(1))
    };
    let chosen = |ast: &UOp, target: &Target| {
        heuristic(&lowered(ast), Setting { mode: Mode::Default, target }).expect("a kernel")
    };
    let pads = |opts: &[Opt]| -> Vec<i64> {
        opts.iter().filter(|opt| opt.op == OptOp::PadTo).map(|opt| opt.amount).collect()
    };
    let cuda = Target::of("cuda");
    let table: [(i64, &[i64]); 8] = [
        (3, &[8]),
        (5, &[8]),
        (8, &[]),
        (9, &[16]),
        (15, &[16]),
        (16, &[]),
        (33, &[16]),
        // An even number of tiles.
        (232, &[64]),
    ];
    for (rows, padded) in table {
        let opts = chosen(&product(rows, 1024).0, &cuda);
        assert!(opts.iter().any(|opt| opt.op == OptOp::Tc), "{rows}: {opts:?}");
        assert_eq!(pads(&opts), padded, "{rows}: {opts:?}");
    }
    let thresholds = Thresholds { group_reduce_elements: 16, ..Thresholds::USUAL };
    let target = Target { thresholds, ..cuda };
    let (ast, memories) = product(5, 64);
    let opts = chosen(&ast, &target);
    assert_eq!(pads(&opts), [8], "{opts:?}");
    check_stages(&ast, &memories, &target, &opts);
}

#[test]
fn tc_refusal_gives_the_reason() {
    let groups = Target::of("groups");
    let few = Groups { threads: 16, ..groups.groups.expect("groups") };
    let few = Target { groups: Some(few), ..groups };
    let (half, single) = (square(32, DType::F16).0, square(32, DType::F32).0);
    let odd = square(24, DType::F16).0;
    let strict = (Mode::Strict, Target::of("cuda"));
    let with = |target: Target| (Mode::Default, target);
    for (ast, (mode, target), opts, problem) in [
        (&half, with(Target::of("opencl")), "tc 2 0", "the device has no tensor cores"),
        (&half, strict, "tc 2 0", "in strict mode products are rounded"),
        (&half, with(Target::of("cuda")), "tc 0 0", "the loop has no matrix product"),
        (&half, with(Target::of("cuda")), "tc 2 6", "there are choices 0 to 5"),
        (&half, with(Target::of("cuda")), "tc 2 1", "m16n8k16_bf16 multiplies bf16, not f16"),
        (&single, with(Target::of("cuda")), "tc 2 0", "m16n8k16_f16 multiplies f16, not f32"),
        (
            &odd,
            with(Target::of("cuda")),
            "tc 2 0",
            "a loop of 24 iterations is not a multiple of 16",
        ),
        (&half, with(few), "tc 2 0", "32 threads in a group, at most 16 are possible"),
        (&half, with(groups), "group 2 2, tc 2 4", "the kernel already has a loop of kind Group"),
        (&half, with(groups), "tc 2 4, tc 2 4", "the loop has no matrix product"),
    ] {
        let setting = Setting { mode, target: &target };
        let opts: Vec<Opt> = opts.split(", ").map(|opt| opt.parse().expect("an opt")).collect();
        let (last, before) = opts.split_last().expect("an opt");
        let root = before.iter().try_fold(lowered(ast), |root, opt| apply(&root, *opt, setting));
        let loops = loops(&root.expect("legal opts")).expect("a kernel");
        let found = check(&loops, *last, setting).expect_err(problem);
        assert!(found.contains(problem), "{found}");
    }
}

#[test]
fn targets_name_existing_tensor_cores() {
    for name in Target::names() {
        for core in Target::of(name).tensor_cores {
            assert!(TensorCore::named(core).is_some(), "{name}: {core}");
        }
    }
}
