//! Operands that threads copy to local memory: drawn products compute the same after each pass, and
//! refusals give the reason.

use gradiff_graph::tensor_core::TENSOR_CORES;
use gradiff_graph::{Arg, DType, Linear, Op, Target, UOp};
use gradiff_kernel::{
    Opt, OptOp, Options, Setting, Strategy, apply, check, draw, legal, loops, lower,
};
use gradiff_rewrite::{Mode, Trace};

use crate::common::random::{Random, load, plain, reduce, sink};
use crate::tensor_cores::{Shape, check_stages, lowered, sequence};

/// Adds an opt that is drawn among the legal ones of a kind; returns whether there is one.
fn add_drawn(
    root: &mut UOp,
    opts: &mut Vec<Opt>,
    random: &mut Random,
    setting: Setting<'_>,
    op: OptOp,
) -> bool {
    let mut choices = legal(root, setting).expect("a kernel");
    choices.retain(|opt| opt.op == op && opt.amount <= 8);
    if choices.is_empty() {
        return false;
    }
    let opt = choices[random.below(choices.len())];
    *root = apply(root, opt, setting).expect("a legal opt");
    opts.push(opt);
    true
}

/// Draws opts of which the last one is `stage`, if that is legal.
fn staged(root: &UOp, random: &mut Random, setting: Setting<'_>) -> Option<Vec<Opt>> {
    let mut root = root.clone();
    let mut opts = Vec::new();
    if random.one_in(2) {
        opts = sequence(&root, random, setting).unwrap_or_default();
        if opts.iter().any(|opt| opt.op == OptOp::Stage) {
            return Some(opts);
        }
        for opt in &opts {
            root = apply(&root, *opt, setting).expect("a legal opt");
        }
    }
    for op in [OptOp::PadTo, OptOp::Local, OptOp::Upcast, OptOp::Unroll, OptOp::Local] {
        if random.below(4) != 0 {
            add_drawn(&mut root, &mut opts, random, setting, op);
        }
    }
    add_drawn(&mut root, &mut opts, random, setting, OptOp::Stage).then_some(opts)
}

#[test]
fn drawn_tiles_preserve_results() {
    let groups = Target::of("groups");
    let targets = [groups, Target { copies_async: false, ..groups }, Target::of("opencl")];
    let (mut count, mut with_cores, mut pipelined) = (0, 0, 0);
    for seed in 0..500 {
        let mut random = Random(seed);
        let target = targets[random.below(3)];
        let setting = Setting { mode: Mode::Default, target: &target };
        let core = &TENSOR_CORES[4 + random.below(3)];
        let mut shape = Shape::drawn(&mut random, core);
        (shape.rows, shape.columns, shape.depth) =
            (2 * shape.rows, 2 * shape.columns, (2 + random.below(4) as i64) * shape.depth);
        shape.form = shape.form.min(1);
        let (ast, memories) = shape.kernel(&mut random);
        let Some(opts) = staged(&lowered(&ast), &mut random, setting) else { continue };
        check_stages(&ast, &memories, &target, &opts);
        let linear = linear(&ast, &target, &opts);
        let has = |op: Op| linear.uops.iter().any(|uop| uop.op == op);
        count += 1;
        with_cores += usize::from(has(Op::Wmma));
        pipelined += usize::from(is_pipelined(&linear));
    }
    assert!(100 < count && 3 < with_cores && 30 < pipelined, "{count} {with_cores} {pipelined}");
}

fn linear(ast: &UOp, target: &Target, opts: &[Opt]) -> Linear {
    let options = Options { opts: Strategy::Fixed(opts.to_vec()), ..Options::default() };
    let lowered = lower(ast, target, &options, &mut Trace::default());
    Linear::clone(&lowered.expect("a kernel"))
}

/// Returns whether tiles are stored before the loop and, under a condition, in it.
fn is_pipelined(linear: &Linear) -> bool {
    let uops = &linear.uops;
    let is_local = |uop: &&gradiff_graph::Instruction| {
        let array = |address: u32| uops[uops[address as usize].src[0] as usize].op;
        uop.op == Op::Store && array(uop.src[0]) == Op::DefineLocal
    };
    let is_gated = |uop: &gradiff_graph::Instruction| uops[uop.src[0] as usize].src.len() == 3;
    let stores: Vec<bool> = uops.iter().filter(is_local).map(is_gated).collect();
    stores.contains(&true) && stores.contains(&false)
}

/// A product of 8x16 by 16x8 matrices.
fn product() -> UOp {
    let full = [8, 8, 16];
    let operand = |slot, shape: [i64; 3]| {
        let size = shape.iter().product();
        load(DType::F32, slot, size, plain(&shape).expand(&full).expect("sizes"))
    };
    let factors = [operand(1, [8, 1, 16]), operand(2, [1, 8, 16])];
    let [x, y] = factors;
    sink(reduce(Op::Add, UOp::binary(Op::Mul, x, y), &[2]), &[8, 8, 1])
}

#[test]
fn threads_copy_each_element_once() {
    let opts: Vec<Opt> = ["local 0 4", "local 1 4", "upcast 0 0", "stage 1 4"]
        .map(|opt| opt.parse().expect("an opt"))
        .to_vec();
    let uops = linear(&product(), &Target::of("opencl"), &opts);
    // Tiles of 8x4 and 4x4 elements, by 16 threads.
    let sizes: Vec<i64> = uops
        .uops
        .iter()
        .filter_map(|uop| match uop.arg {
            Arg::Local(local) => Some(local.size_elements),
            _ => None,
        })
        .collect();
    assert_eq!(sizes, [64, 32], "rows are padded by a vector\n{uops}");
    assert_eq!(uops.uops.iter().filter(|uop| uop.op == Op::Barrier).count(), 2, "{uops}");
}

#[test]
fn stage_refusals_give_the_reason() {
    let target = Target::of("cuda");
    let setting = Setting { mode: Mode::Default, target: &target };
    let refusal = |before: &[&str], opt: &str| {
        let mut root = lowered(&product());
        for opt in before {
            root = apply(&root, opt.parse().expect("an opt"), setting).expect("a legal opt");
        }
        check(&loops(&root).expect("a kernel"), opt.parse().expect("an opt"), setting).unwrap_err()
    };
    for (before, opt, words) in [
        (&[][..], "stage 2 4", "no local loops"),
        (&["local 0 4"], "stage 0 2", "a loop of one reduction"),
        (&["local 0 4"], "stage 2 5", "not a multiple"),
        (&["local 0 4", "group 2 4"], "stage 2 2", "divided among threads"),
        (&["local 0 4", "stage 2 4"], "local 1 4", "are staged"),
    ] {
        let why = refusal(before, opt);
        assert!(why.contains(words), "{opt}: {why}");
    }
    let setting = Setting { target: &Target::of("vectors"), ..setting };
    let root = lowered(&product());
    let stage = "stage 2 4".parse().expect("an opt");
    let why = check(&loops(&root).expect("a kernel"), stage, setting).unwrap_err();
    assert!(why.contains("no groups"), "{why}");
    // None of these opts is drawn for a device without groups.
    let drawn = draw(&root, 1, 6, setting).expect("a kernel");
    assert!(drawn.iter().all(|opt| opt.op != OptOp::Stage));
}
