//! After each pass a kernel computes the same as its tree: kernels for typical mistakes of passes.

use gradiff_eval::kernel::interpret;
use gradiff_graph::target::{FUNCTIONS, Vectors};
use gradiff_graph::{Arg, Constant, DType, Linear, Op, Target, UOp};
use gradiff_kernel::{Options, Stages, Strategy, stages};

use crate::common::random::{exp2_times_its_sum, load, plain, reduce, sink};
use crate::common::{Memories, linear};

/// Returns the first stage whose result differs from the tree's: a pass, or `linearize`.
fn first_wrong_stage(ast: &UOp, opts: &[&str], memories: &Memories) -> Option<&'static str> {
    let run = |kernel: &UOp| {
        let mut memories = memories.clone();
        interpret(kernel, &mut memories).map(|()| memories)
    };
    let expected = run(ast);
    assert!(expected.is_ok(), "{expected:?}");
    let opts = opts.iter().map(|opt| opt.parse().expect("an opt")).collect();
    let options = Options { opts: Strategy::Fixed(opts), ..Options::default() };
    let vectors = Vectors { bytes: 32, registers: 16, alu: true, ..Vectors::default() };
    let target = Target { unsupported: FUNCTIONS, unrolls: true, vectors, ..Target::default() };
    let Stages { graphs, linears, .. } = stages(ast, &target, &options).expect("a kernel");
    let is_wrong = |linear: &Linear| {
        let mut found = memories.clone();
        linear::run(linear, &mut found);
        Ok(found) != expected
    };
    let graphs = graphs.iter().map(|(pass, kernel)| (*pass, run(kernel) != expected));
    let linears = linears.iter().map(|(pass, linear)| (*pass, is_wrong(linear)));
    graphs.chain(linears).find(|(_, is_wrong)| *is_wrong).map(|(pass, _)| pass)
}

fn elements(dtype: DType, values: &[i128]) -> Vec<Option<Constant>> {
    values.iter().map(|value| Some(Constant::int(dtype, *value))).collect()
}

/// Returns kernels by the mistake that they detect, with opts and memories.
fn kernels() -> Vec<(&'static str, UOp, &'static [&'static str], Memories)> {
    let row = load(DType::I32, 1, 3, plain(&[3]));
    let maximum = sink(reduce(Op::Max, row, &[0]), &[1]);
    let padded = plain(&[3]).pad(&[(1, 1)]).expect("a pad");
    let padded = sink(load(DType::I32, 1, 3, padded), &[5]);
    let bytes = UOp::unary(Op::Cast, DType::I32, load(DType::I8, 1, 3, plain(&[3])));
    let total = sink(reduce(Op::Add, bytes, &[0]), &[1]);
    let third = UOp::constant(Constant::float(DType::BF16, 1.0 / 3.0));
    let third = UOp::binary(Op::Mul, load(DType::BF16, 1, 3, plain(&[3])), third);
    let rows = load(DType::I32, 1, 6, plain(&[2, 3]));
    let sums = sink(reduce(Op::Add, rows, &[1]), &[2, 1]);
    let ints = |values: &[i128]| elements(DType::I32, values);
    let sum = reduce(Op::Add, load(DType::I32, 1, 3, plain(&[3])), &[0]);
    let broadcast = Arg::View(plain(&[1]).expand(&[3]).expect("a row"));
    let centered = UOp::new(Op::View, DType::I32, [sum], broadcast);
    let centered = UOp::binary(Op::Sub, load(DType::I32, 1, 3, plain(&[3])), centered);
    let centered = sink(centered, &[3]);
    let centered_data = vec![vec![None; 3], ints(&[1, 2, 4])];
    let copy = sink(load(DType::I32, 1, 6, plain(&[6])), &[6]);
    let six = vec![vec![None; 6], ints(&[1, 2, 3, 4, 5, 6])];
    let edged = plain(&[6]).shrink(&[(0, 5)]).and_then(|row| row.pad(&[(0, 1)])).expect("an edge");
    let total_of_six = sink(reduce(Op::Add, load(DType::I32, 1, 6, plain(&[6])), &[0]), &[1]);
    let one_of_six = vec![vec![None], ints(&[1, 2, 3, 4, 5, 6])];
    let edged = sink(load(DType::I32, 1, 6, edged), &[6]);
    let pairs = vec![vec![None; 2], ints(&[1, 2, 3, 4, 5, 6])];
    let negative = vec![vec![None], ints(&[-3, -2, -5])];
    let function = |op| sink(UOp::unary(op, DType::F32, load(DType::F32, 1, 3, plain(&[3]))), &[3]);
    let floats = |values: [f32; 3]| {
        let float = |value: f32| Some(Constant::float(DType::F32, value.into()));
        vec![vec![None; 3], values.map(float).to_vec()]
    };
    let cached = sink(exp2_times_its_sum(2, 3), &[2, 3]);
    let powers = [1.0, 3.0, 2.0, 0.0, 5.0, 4.0];
    let powers = powers.map(|value| Some(Constant::float(DType::F32, value))).to_vec();
    let transposed = plain(&[2, 3]).permute(&[1, 0]).expect("a permutation");
    let transposed = sink(load(DType::I32, 1, 6, transposed), &[3, 2]);
    let interleaved = plain(&[2, 4]).permute(&[1, 0]).expect("a permutation");
    let interleaved = sink(load(DType::I32, 1, 8, interleaved), &[4, 2]);
    let eight = vec![vec![None; 8], ints(&[1, 2, 3, 4, 5, 6, 7, 8])];
    let cut = plain(&[2, 4]).shrink(&[(0, 2), (1, 4)]).expect("a part");
    let cut = sink(load(DType::I32, 1, 8, cut), &[2, 3]);
    let cut_data = vec![vec![None; 6], ints(&[1, 2, 3, 4, 5, 6, 7, 8])];
    vec![
        ("reassociate-term-lost", transposed, &[], six.clone()),
        ("expand-constant-forgotten", cut, &["upcast 1 3"], cut_data),
        ("expand-choice-turned", maximum.clone(), &["padto 0 4", "upcast 0 4"], negative.clone()),
        ("cache-upcast-shared", cached, &["upcast 0 2"], vec![vec![None; 6], powers]),
        ("sin-reduction-short", function(Op::Sin), &[], floats([3.0, 100.0, 1e10])),
        ("exp2-coefficient", function(Op::Exp2), &[], floats([0.5, 0.25, 0.75])),
        ("log2-scale-forgotten", function(Op::Log2), &[], floats([1e-45, 7.17465e-43, 2.0])),
        ("lower-reduce-identity", maximum.clone(), &[], negative.clone()),
        ("lower-rows-share-range", centered, &[], centered_data),
        ("lower-gate-lost", padded, &[], vec![vec![None; 5], ints(&[7, 8, 9])]),
        (
            "lower-accumulator-narrow",
            total,
            &[],
            vec![vec![None], elements(DType::I8, &[100, 100, 100])],
        ),
        (
            "legalize-bf16-truncates",
            sink(third, &[3]),
            &[],
            vec![vec![None; 3], elements(DType::BF16, &[5, 7, 11])],
        ),
        ("linearize-accumulator-not-reset", sums.clone(), &[], pairs.clone()),
        ("opt-split-stride", copy.clone(), &["upcast 0 3"], six.clone()),
        ("opt-overlap-short", copy.clone(), &["overlap 0 4"], six.clone()),
        ("opt-overlap-counts-twice", total_of_six, &["overlap 0 4"], one_of_six),
        ("rows-turned", interleaved, &["upcast 1 2", "upcast 0 4"], eight),
        ("interval-loop-short", edged, &["upcast 0 2"], six.clone()),
        ("opt-cut-short", copy.clone(), &["cut 0 2", "upcast 0 2"], six.clone()),
        ("opt-pad-gate-lost", copy, &["padto 0 4"], six),
        ("opt-pad-fold-wrong", maximum, &["padto 0 4"], negative),
        ("expand-remainder-lost", sums.clone(), &["unroll 1 3"], pairs.clone()),
        ("expand-accumulator-shared", sums, &["upcast 0 2"], pairs),
    ]
}

#[test]
fn each_pass_keeps_what_a_kernel_computes() {
    for (name, ast, opts, memories) in kernels() {
        assert_eq!(first_wrong_stage(&ast, opts, &memories), None, "{name}");
    }
}

/// Eight threads pass their elements on by a local array, twice. They stored the second time while
/// others still read, as in a loop over groups that was cut in two parts.
#[test]
fn stores_to_a_local_array_wait_for_its_readers() {
    let text = "\
%0 = define_global f32 data0 8
%1 = define_global f32 data1 8
%2 = define_local f32 local0 8
%3 = const i32 8
%4 = range i32 %3 1l
%5 = const i32 7
%6 = const i32 -1
%7 = mul i32 %4 %6
%8 = add i32 %7 %5
%9 = index f32 %1 %4
%10 = load f32 %9
%11 = index f32 %2 %4
%12 = store void %11 %10
%13 = barrier void %12
%14 = index f32 %2 %8
%15 = load f32 %14 %13
%16 = exp2 f32 %15
%17 = store void %11 %16
%18 = barrier void %17
%19 = load f32 %14 %18
%20 = index f32 %0 %4
%21 = store void %20 %19
%22 = sink void %21
";
    let root = gradiff_graph::text::parse_text(text).expect("a graph");
    let linear = gradiff_kernel::passes::linearize(&root, "twice".to_string()).expect("a kernel");
    let is_local = |address: u32| {
        let array = linear.uops[address as usize].src[0];
        linear.uops[array as usize].op == Op::DefineLocal
    };
    let accesses: Vec<Op> = linear
        .uops
        .iter()
        .filter(|uop| match uop.op {
            Op::Load | Op::Store => is_local(uop.src[0]),
            op => op == Op::Barrier,
        })
        .map(|uop| uop.op)
        .collect();
    let part = [Op::Store, Op::Barrier, Op::Load];
    assert_eq!(accesses, [&part[..], &[Op::Barrier], &part].concat(), "{linear}");
}
