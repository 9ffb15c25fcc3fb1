//! Random kernel trees: no pass changes the result of the kernel, and neither does linearizing.

use crate::common::{Memories, agrees, linear, random};
use gradiff_eval::kernel::interpret;
use gradiff_graph::Target;
use gradiff_graph::target::{FUNCTIONS, Groups, Vectors};
use gradiff_kernel::{OptOp, Options, Setting, Stages, Strategy, draw, legal, stages};
use gradiff_rewrite::Mode;

const CASES: u64 = 1_500;

fn check(seed: u64, target: &Target, options: &Options) {
    let mut random = random::Random(seed);
    let case = random::case(&mut random);
    let interpreted = |kernel: &gradiff_graph::UOp| -> Memories {
        let mut memories = case.memories.clone();
        if let Err(error) = interpret(kernel, &mut memories) {
            panic!("seed {seed}: {error}\n{}", dump(kernel));
        }
        memories
    };
    let expected = interpreted(&case.ast);
    let Stages { graphs, linears, .. } = stages(&case.ast, target, options)
        .unwrap_or_else(|error| panic!("seed {seed}: {error}\n{}", dump(&case.ast)));
    for (pass, kernel) in &graphs {
        if let Err(error) = gradiff_graph::verify::verify(kernel) {
            panic!("seed {seed}: after {pass}: {error}\n{}", dump(kernel));
        }
        let found = interpreted(kernel);
        assert!(
            agrees(&expected, &found),
            "seed {seed}: after {pass}\n{}\n{}\n{expected:?}\n{found:?}",
            dump(&case.ast),
            dump(kernel)
        );
    }
    for (pass, uops) in &linears {
        if let Err(error) = linear::verify(uops) {
            panic!("seed {seed}: after {pass}: {error}");
        }
        let mut found = case.memories.clone();
        linear::run(uops, &mut found);
        let tree = dump(&case.ast);
        assert!(agrees(&expected, &found), "seed {seed}: after {pass}\n{tree}\n{uops}");
    }
    let again = stages(&case.ast, target, options).expect("a kernel").linears;
    assert_eq!(linears, again, "seed {seed}: not the same twice");
}

/// Returns the limits of a device with few threads and a small grid, different for each seed.
fn groups(seed: u64) -> Groups {
    let size = |shift: u64, bound: u64| (1 + (seed >> shift) % bound) as i64;
    Groups {
        threads: size(0, 32),
        sizes: [size(1, 16), size(2, 8), size(3, 4)],
        counts: [size(4, 64).max(8), size(5, 8), size(6, 4)],
        local_bytes: size(0, 8) * 64,
        element_bytes: 1,
    }
}

fn dump(kernel: &gradiff_graph::UOp) -> String {
    let order = kernel.toposort();
    let number =
        |node: &gradiff_graph::UOp| order.iter().position(|known| known == node).unwrap_or(0);
    let line = |(position, node): (usize, &gradiff_graph::UOp)| {
        let src: Vec<usize> = node.src().iter().map(number).collect();
        format!("{position}: {node:?} {src:?}\n")
    };
    order.iter().enumerate().map(line).collect()
}

#[test]
fn stages_default_mode_preserve_results() {
    (0..CASES).for_each(|seed| check(seed, &Target::default(), &Options::default()));
}

#[test]
fn stages_strict_mode_preserve_results() {
    let mut options = Options::default();
    options.rewrite.mode = Mode::Strict;
    (CASES..CASES + 500).for_each(|seed| check(seed, &Target::default(), &options));
}

#[test]
fn stages_minimal_target_preserve_results() {
    let target = Target { mulacc: false, unsupported: FUNCTIONS, ..Target::default() };
    let mut options = Options::default();
    options.rewrite.fuel = Some(3);
    (2 * CASES..2 * CASES + 500).for_each(|seed| check(seed, &target, &options));
}

#[test]
fn drawn_opts_preserve_results() {
    for seed in 3 * CASES..4 * CASES {
        let opts = Strategy::Drawn { seed, limit: 6 };
        let mut options = Options { opts, ..Options::default() };
        if seed % 4 == 0 {
            options.rewrite.mode = Mode::Strict;
        }
        let target = match seed % 3 {
            0 if seed % 2 == 0 => Target::default(),
            0 => Target { groups: Some(groups(seed)), ..Target::of("opencl") },
            1 => Target { unrolls: false, ..Target::default() },
            _ => {
                let bytes = 16 << (seed / 3 % 3);
                let (alu, aligned) = (seed / 9 % 4 != 0, seed / 36 % 4 == 0);
                let permutes = seed / 18 % 2 == 0;
                let half_lanes = if seed / 72 % 2 == 0 { 64 } else { 0 };
                let bool_lanes = if seed / 7 % 2 == 0 { 64 } else { 0 };
                let lanes = 4 << (seed / 144 % 3 * 2);
                let vectors = Vectors {
                    bytes,
                    registers: 16,
                    alu,
                    permutes,
                    aligned,
                    lanes,
                    half_lanes,
                    bool_lanes,
                    unsupported: FUNCTIONS,
                };
                Target { vectors, fma: seed % 2 == 0, ..Target::default() }
            }
        };
        check(seed, &target, &options);
    }
}

#[test]
fn drawn_opts_cover_every_op() {
    let mut counts = [0; OptOp::ALL.len()];
    for seed in 3 * CASES..4 * CASES {
        let case = random::case(&mut random::Random(seed));
        let stages = stages(&case.ast, &Target::default(), &Options::default()).expect("a kernel");
        let lowered =
            &stages.graphs.iter().find(|(pass, _)| *pass == "collapse").expect("the pass").1;
        for target in [Target::of("opencl"), Target::default()] {
            let setting = Setting { mode: Mode::Default, target: &target };
            assert!(legal(lowered, setting).is_ok());
            for opt in draw(lowered, seed, 6, setting).expect("a lowered kernel") {
                counts[opt.op as usize] += 1;
            }
        }
    }
    // Few of these kernels are matrix products; `tensor_cores.rs` and `stage.rs` draw
    // those.
    let least = |op: OptOp| match op {
        OptOp::Tc | OptOp::Stage => 0,
        _ => 100,
    };
    let reached = |op: OptOp| least(op) <= counts[op as usize];
    assert!(OptOp::ALL.into_iter().all(reached), "{counts:?}");
}

#[test]
fn case_generator_covers_every_feature() {
    let (mut reduces, mut masks, mut nests, mut iotas, mut ranks) = (0, 0, 0, 0, [0; 5]);
    let mut broadcasts = 0;
    for seed in 0..500 {
        let case = random::case(&mut random::Random(seed));
        let order = case.ast.toposort();
        ranks[case.sizes.len()] += 1;
        let is = |op| order.iter().any(|node| node.op() == op);
        reduces += usize::from(is(gradiff_graph::Op::ReduceAxis));
        iotas += usize::from(is(gradiff_graph::Op::Iota));
        let is_broadcast = |node: &gradiff_graph::UOp| {
            node.op() == gradiff_graph::Op::View
                && node.src()[0].op() == gradiff_graph::Op::ReduceAxis
        };
        broadcasts += usize::from(order.iter().any(is_broadcast));
        let views = order.iter().filter_map(|node| match node.arg() {
            gradiff_graph::Arg::View(tracker) => Some(tracker),
            _ => None,
        });
        for tracker in views {
            nests += usize::from(tracker.views().len() > 1);
            masks += usize::from(tracker.views().iter().any(|view| view.mask().is_some()));
        }
    }
    for count in [reduces, masks, nests, iotas, broadcasts].into_iter().chain(ranks) {
        assert!(20 < count, "{reduces} {masks} {nests} {iotas} {broadcasts} {ranks:?}");
    }
}
