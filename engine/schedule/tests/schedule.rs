//! How graphs are cut into kernels, and that the kernels compute the same as the graph.

// Helpers of tests are tests, too; the lint does not see it in this kind of crate.
#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use gradiff_graph::target::Thresholds;
use gradiff_graph::{Arg, Buffer, DType, Op, Placement, UOp};
use gradiff_schedule::{Error, Options, PASSES, Parts, Split, constant_of, schedule, stages};

const ALL: [Options; 11] = [
    options(true, true, false, false),
    options(true, false, false, false),
    options(false, true, false, false),
    options(false, false, false, false),
    options(true, true, false, true),
    options(true, false, false, true),
    PACKED,
    SPLIT,
    BLOCKS,
    FEW_ARRAYS,
    GROUPS,
];

/// Fuses as for a device with groups.
const GROUPS: Options =
    Options { shared_rows: true, widens_again: true, ..options(true, true, false, true) };

/// Kernels of few arrays.
const FEW_ARRAYS: Options = Options { arrays_max: 4, ..options(true, true, false, true) };

/// Packs operands of a few elements.
const PACKED: Options =
    Options { thresholds: Thresholds::SMALL, ..options(true, true, true, true) };

/// Splits reductions of a few elements.
const SPLIT: Options = Options {
    split: Split::FewOutputs,
    thresholds: Thresholds::SMALL,
    ..options(true, true, false, false)
};

/// Splits products of a few elements.
const BLOCKS: Options = Options { split: Split::Products, ..PACKED };

const fn options(fuse: bool, merge_views: bool, pack: bool, rows: bool) -> Options {
    let thresholds = Thresholds::USUAL;
    Options {
        fuse,
        merge_views,
        pack,
        rows,
        shared_rows: false,
        split: Split::Never,
        wide_products: true,
        widens_again: false,
        thresholds,
        arrays_max: u32::MAX,
    }
}

/// Checks that the graph takes `kernels` kernels and has the same values under all options and
/// after each pass.
fn check(name: &str, outputs: &[UOp], kernels: usize) {
    let count = check_values(name, outputs);
    assert_eq!(count, kernels, "{name}: kernels");
}

/// Compares values under all options; returns the number of kernels under the default ones.
fn check_values(name: &str, outputs: &[UOp]) -> usize {
    let data = data_for(outputs);
    let expected: Vec<_> = outputs.iter().map(|output| evaluate_graph(output, &data)).collect();
    for options in ALL {
        let scheduled = schedule(outputs, &options).unwrap();
        for (output, requested) in scheduled.outputs.iter().zip(outputs) {
            assert_eq!(output.shape(), requested.shape(), "{name}: shape");
            let is_stored = [output, output.src().first().unwrap_or(output)]
                .iter()
                .any(|node| node.op() == Op::Buffer);
            assert!(is_stored || constant_of(output).is_some(), "{name}: in a buffer");
        }
        assert_eq!(
            run(&scheduled, &data, options.rows),
            expected,
            "{name}: values with {options:?}"
        );
    }
    let options = Options::default();
    let stages: Vec<_> = stages(outputs, &options).map(Result::unwrap).collect();
    assert!(stages.iter().map(|stage| stage.0).eq(PASSES.iter().map(|pass| pass.name)));
    for (stage, graphs) in &stages[..4] {
        let values: Vec<_> = graphs.iter().map(|graph| evaluate_graph(graph, &data)).collect();
        assert_eq!(values, expected, "{name}: values after {stage}");
    }
    schedule(outputs, &Options::default()).unwrap().items.len()
}

/// Checks that the graph takes `kernels` kernels with `rows` and has the same values under all
/// options.
fn check_rows(name: &str, outputs: &[UOp], kernels: usize) {
    check_values(name, outputs);
    let options = Options { rows: true, ..Options::default() };
    let items = schedule(outputs, &options).unwrap().items;
    assert_eq!(items.len(), kernels, "{name}: kernels of rows");
}

/// `(x - max) * sum(x - max)` along an axis.
fn scaled(x: &UOp, axis: i64) -> UOp {
    let shape = x.shape().unwrap().to_vec();
    let shifted = binary(Op::Sub, x, &expand(&reduce(Op::Max, x, &[axis]), &shape));
    binary(Op::Mul, &shifted, &expand(&reduce(Op::Add, &shifted, &[axis]), &shape))
}

fn f32s(shape: &[i64]) -> UOp {
    input(DType::F32, shape)
}

/// The product of two matrices.
fn product(x: &UOp, y: &UOp) -> UOp {
    let [rows, size] = *x.shape().unwrap() else { panic!("a matrix") };
    let columns = y.shape().unwrap()[1];
    let full = [rows, columns, size];
    let x = expand(&reshape(x, &[rows, 1, size]), &full);
    let y = expand(&reshape(&permute(y, &[1, 0]), &[1, columns, size]), &full);
    reshape(&reduce(Op::Add, &binary(Op::Mul, &x, &y), &[2]), &[rows, columns])
}

/// Returns the number of kernels, which may have several reductions each.
fn kernels_of_rows(outputs: &[UOp], shared_rows: bool) -> usize {
    let options = Options { rows: true, shared_rows, ..Options::default() };
    schedule(outputs, &options).unwrap().items.len()
}

/// Repeats the last axis, of size 1, to 4.
fn widened(x: &UOp) -> UOp {
    expand(x, &[4, 4])
}

#[test]
fn elementwise_chain_is_one_kernel() {
    // "(a+4)+3" of the fusion notes: one kernel; two with contiguous between.
    let a = f32s(&[4, 4]);
    check("fused", &[add(&add(&a, 4), 3)], 1);
    check("contiguous", &[add(&contiguous(&add(&a, 4)), 3)], 2);
    let first = add(&a, 4);
    check("both asked for", &[first.clone(), add(&first, 3)], 2);
    check("the same twice", &[first.clone(), first.clone()], 1);
    check("reshaped between", &[add(&reshape(&add(&a, 4), &[16]), 3)], 1);
}

#[test]
fn kernels_have_no_more_arrays_than_is_possible() {
    let inputs: Vec<UOp> = (0..48).map(|_| f32s(&[4])).collect();
    let sum_of = |nodes: &[UOp]| {
        nodes.iter().skip(1).fold(nodes[0].clone(), |sum, node| binary(Op::Add, &sum, node))
    };
    // A chain, a tree, and reductions of rows.
    let chain = sum_of(&inputs);
    let mut tree = inputs.clone();
    while 1 < tree.len() {
        tree = tree.chunks(2).map(sum_of).collect();
    }
    let matrices: Vec<UOp> = (0..12).map(|_| f32s(&[4, 4])).collect();
    let rows = scaled(&sum_of(&matrices), 1);
    // The same arrays again are no more arrays.
    let again = sum_of(&[&inputs[..3], &inputs[..3], &inputs[..3]].concat());
    // The maximum ends a chain, since two kernels use it, and is an array more of the second one.
    let largest = reduce(Op::Max, &matrices[0], &[1]);
    let shifted = binary(Op::Sub, &matrices[0], &widened(&largest));
    let sum = binary(Op::Add, &sum_of(&[&[shifted], &matrices[1..3]].concat()), &matrices[0]);
    let ended = [sum, binary(Op::Mul, &largest, &largest)];
    for (name, outputs) in [
        ("chain", std::slice::from_ref(&chain)),
        ("tree", &tree),
        ("rows", std::slice::from_ref(&rows)),
        ("ended", &ended),
    ] {
        for options in ALL.map(|options| Options { arrays_max: 4, ..options }) {
            let scheduled = schedule(outputs, &options).unwrap();
            let largest = scheduled.items.iter().map(|item| item.buffers.len()).max();
            assert!(largest.is_some_and(|count| count <= 4), "{name}: {largest:?}, {options:?}");
        }
        check_values(name, outputs);
    }
    assert_eq!(schedule(&[again], &FEW_ARRAYS).unwrap().items.len(), 1);
    assert_eq!(schedule(&[chain], &Options::default()).unwrap().items.len(), 1);
}

#[test]
fn tensor_in_a_buffer_takes_no_kernel() {
    let a = f32s(&[4, 4]);
    check("input", std::slice::from_ref(&a), 0);
    check("reshaped input", &[reshape(&a, &[2, 8])], 0);
    check("contiguous input", &[contiguous(&a)], 0);
    check("turned input", &[permute(&a, &[1, 0])], 1);
    check("contiguous twice", &[contiguous(&contiguous(&add(&a, 1)))], 1);
    check("counter", &[UOp::new(Op::Iota, DType::U8, [], Arg::Int(5))], 1);
}

#[test]
fn constants_take_no_kernel() {
    let a = f32s(&[4, 4]);
    let i = input(DType::I8, &[4, 4]);
    let three = like(&i, 3);
    check("constant", &[like(&a, 3)], 0);
    check("scalar constant", &[UOp::int(DType::I32, 3)], 0);
    check("2 + 3", &[binary(Op::Add, &like(&a, 2), &like(&a, 3))], 0);
    check("moved", &[flip(&permute(&shrink(&three, &[(0, 2), (1, 4)]), &[1, 0]), &[0])], 0);
    check("padded by nothing", &[pad(&three, &[(0, 0), (0, 0)])], 0);
    check("zeros padded", &[pad(&like(&a, 0), &[(1, 0), (0, 2)])], 0);
    check("padded", &[pad(&three, &[(1, 0), (0, 0)])], 1);
    check("sum of integers", &[reduce(Op::Add, &like(&i, 100), &[0, 1])], 0);
    check("product of integers", &[reduce(Op::Mul, &three, &[1])], 0);
    check("max of floats", &[reduce(Op::Max, &like(&a, -2), &[0])], 0);
    check("sum of floats", &[reduce(Op::Add, &like(&a, 3), &[0, 1])], 1);
    check("cast", &[cast(&like(&a, 3), DType::I8)], 0);
    check("chosen", &[UOp::select(like(&cast(&a, DType::Bool), 1), three, like(&i, 4))], 0);
    check("in a buffer on demand", &[contiguous(&like(&a, 3))], 1);
    check("beside a kernel", &[like(&a, 3), add(&a, 1)], 1);
}

#[test]
fn copy_takes_a_kernel_unless_its_source_may_be_anywhere() {
    let a = f32s(&[4, 4]);
    let there = copy(&a, "jit");
    check("input", std::slice::from_ref(&there), 1);
    check("turned", &[copy(&permute(&a, &[1, 0]), "jit")], 1);
    check("computed", &[copy(&add(&a, 1), "jit")], 1);
    check("of a reduction", &[copy(&reduce(Op::Add, &a, &[0]), "jit")], 1);
    check("reduced", &[reduce(Op::Add, &copy(&add(&a, 1), "jit"), &[0])], 2);
    check("between", &[add(&copy(&add(&a, 1), "jit"), 2)], 2);
    check("twice", &[copy(&copy(&add(&a, 1), "jit"), "default")], 2);
    check("used twice", &[binary(Op::Mul, &there, &add(&there, 1)), flip(&there, &[0])], 3);
    check("to two devices", &[there.clone(), copy(&a, "interp")], 2);
    check("to the same device", &[copy(&add(&a, 1), "default")], 1);
    check("there already", &[add(&copy(&there, "jit"), 1)], 2);
    // Constants and counters are computed where they are used, but an output keeps its device.
    let counter = UOp::new(Op::Iota, DType::I32, [], Arg::Int(4));
    check("constant", &[copy(&like(&a, 3), "jit")], 0);
    check("with a constant", &[binary(Op::Add, &there, &copy(&like(&a, 3), "jit"))], 2);
    let sum = |device| binary(Op::Add, &copy(&counter, device), &like(&counter, 7));
    check("counter", &[sum("jit")], 1);
    check("counter on two devices", &[sum("jit"), sum("interp")], 2);
    check("no elements", &[copy(&shrink(&a, &[(0, 0), (0, 4)]), "jit")], 0);
    let outputs = [
        (sum("jit"), "jit"),
        (copy(&counter, "interp"), "interp"),
        (copy(&permute(&there, &[1, 0]), "c"), "c"),
        (add(&there, 1), "jit"),
        (add(&a, 1), "default"),
    ];
    for (output, device) in outputs {
        let scheduled = schedule(&[output], &Options::default()).unwrap();
        assert_eq!(scheduled.outputs[0].device(), Some(&placement(device)));
    }
}

/// The name of a device, where the default one is `c`.
fn name_of(placement: &Placement) -> Result<&'static str, Error> {
    let names = ["c", "jit", "interp", "cuda"];
    let named = |name: &str| names.into_iter().find(|known| *known == name).unwrap();
    Ok(match placement {
        Placement::Default => "c",
        Placement::Named(name) => named(name),
    })
}

/// Computes a graph part by part. Checks the values, that no part uses two devices, and that no
/// node is requested twice. Returns the device of each part and the number of its nodes.
fn check_parts(name: &str, outputs: &[UOp]) -> Vec<(&'static str, usize)> {
    let mut memory = data_for(outputs);
    let expected: Vec<_> = outputs.iter().map(|output| evaluate_graph(output, &memory)).collect();
    let mut parts = Parts::new(outputs, name_of).unwrap();
    let mut taken = Vec::new();
    while let Some(part) = parts.take() {
        for node in part.nodes.iter().flat_map(UOp::toposort) {
            if let Arg::Buffer(buffer) = node.arg() {
                let device = buffer.placement().map_or(Ok(part.device), name_of);
                assert_eq!(device, Ok(part.device), "{name}: a buffer");
            }
            if let Arg::Device(target) = node.arg() {
                assert_eq!(name_of(target), Ok(part.device), "{name}: a copy");
            }
        }
        taken.push((part.device, part.nodes.len()));
        let values: Vec<_> = part.nodes.iter().map(|node| evaluate_graph(node, &memory)).collect();
        let mut results = Vec::new();
        for (node, values) in part.nodes.iter().zip(values) {
            let buffer = Buffer::on(node.device().cloned(), node.dtype(), values.len() as i64);
            memory.insert(buffer.clone(), values);
            let node = node.clone();
            let whole = UOp::new(Op::Buffer, node.dtype(), [], Arg::Buffer(buffer));
            results.push(reshape(&whole, node.shape().unwrap()));
        }
        let mut new = Vec::new();
        let new_copies = std::cell::RefCell::new(&mut new);
        let copied = |result: &UOp, target: &Placement| {
            let Arg::Buffer(source) = result.src()[0].arg() else { panic!("a buffer") };
            let buffer = Buffer::on(target.clone(), source.dtype(), source.size_elements());
            new_copies.borrow_mut().push((source.clone(), buffer.clone()));
            let whole = UOp::new(Op::Buffer, source.dtype(), [], Arg::Buffer(buffer));
            Ok::<UOp, Error>(reshape(&whole, result.shape().unwrap()))
        };
        parts.finish(part, results, copied).unwrap();
        for (source, target) in new {
            memory.insert(target, memory[&source].clone());
        }
    }
    let found: Vec<_> =
        parts.outputs().iter().map(|output| evaluate_graph(output, &memory)).collect();
    assert_eq!(found, expected, "{name}: values");
    for (output, requested) in parts.outputs().iter().zip(outputs) {
        assert_eq!(output.shape(), requested.shape(), "{name}: shape");
        if let Some(device) = requested.device() {
            assert_eq!(output.device().map(name_of), Some(name_of(device)), "{name}: device");
        }
    }
    taken
}

#[test]
fn graph_is_cut_at_its_copies_between_devices() {
    let a = f32s(&[4, 4]);
    let there = copy(&add(&a, 1), "jit");
    let parts = |name, outputs: &[UOp], expected: &[(&'static str, usize)]| {
        assert_eq!(check_parts(name, outputs), expected, "{name}");
    };
    parts("without copies", &[add(&a, 1), reduce(Op::Add, &a, &[0])], &[("c", 2)]);
    parts("one copy", &[add(&there, 2)], &[("c", 1), ("jit", 1)]);
    parts("an output is copied", &[add(&a, 1), there.clone()], &[("c", 1), ("jit", 1)]);
    let both = binary(Op::Mul, &there, &reduce(Op::Add, &expand(&there, &[4, 4]), &[]));
    parts("used twice", &[both, flip(&there, &[0])], &[("c", 1), ("jit", 2)]);
    let chain = add(&copy(&copy(&there, "interp"), "jit"), 1);
    parts("chain", &[chain], &[("c", 1), ("jit", 1), ("interp", 1), ("jit", 1)]);
    let back = binary(Op::Add, &copy(&add(&there, 2), "default"), &add(&a, 1));
    parts("there and back", &[back], &[("c", 1), ("jit", 1), ("c", 1)]);
    let two = [copy(&add(&a, 1), "jit"), copy(&add(&a, 1), "interp")];
    parts("to two devices", &two, &[("c", 1), ("interp", 1), ("jit", 1)]);
    parts("to the same device", &[copy(&add(&a, 1), "c")], &[("c", 1)]);
    parts("to the default device", &[copy(&add(&a, 1), "default")], &[("c", 1)]);
    // Constants and counters are computed where they are used.
    let counter = UOp::new(Op::Iota, DType::F32, [], Arg::Int(4));
    parts("counter", std::slice::from_ref(&counter), &[("c", 1)]);
    let sum = add(&copy(&add(&counter, 3), "jit"), 1);
    parts("counter there", std::slice::from_ref(&sum), &[("jit", 1)]);
    let first = reshape(&shrink(&there, &[(0, 1), (0, 4)]), &[4]);
    parts("counter with data", &[binary(Op::Add, &first, &sum)], &[("c", 1), ("jit", 1)]);
    parts("scalar", &[copy(&UOp::int(DType::I32, 3), "jit")], &[("jit", 1)]);
    parts("no outputs", &[], &[]);
}

#[test]
fn copy_is_of_the_fewest_elements() {
    let a = f32s(&[4, 6]);
    let row = |x: &UOp| shrink(x, &[(1, 2), (0, 6)]);
    let copied = |source: &UOp| {
        let mut parts = Parts::new(&[copy(source, "jit")], name_of).unwrap();
        let part = parts.take().unwrap();
        assert_eq!((part.device, part.nodes.len()), ("c", 1));
        check_parts("moved", &[copy(source, "jit")]);
        part.nodes[0].clone()
    };
    // Buffers as they are, although the tensor is moved or repeated.
    assert_eq!(copied(&a), a.src()[0]);
    assert_eq!(copied(&pad(&permute(&a, &[1, 0]), &[(1, 0), (0, 2)])), a.src()[0]);
    assert_eq!(copied(&expand(&reshape(&a, &[4, 1, 6]), &[4, 3, 6])), a.src()[0]);
    // A part of a buffer, although more is made of it.
    assert_eq!(copied(&row(&a)), row(&a));
    assert_eq!(copied(&pad(&flip(&row(&a), &[1]), &[(3, 0), (0, 0)])), row(&a));
    // No further than to the node that computes.
    let computed = contiguous(&add(&a, 1));
    assert_eq!(copied(&permute(&computed, &[1, 0])), computed);
}

#[test]
fn operands_on_two_devices_are_refused() {
    let (a, b) = (f32s(&[4]), copy(&f32s(&[4]), "jit"));
    let mixed = binary(Op::Add, &add(&a, 1), &b);
    for output in [mixed.clone(), copy(&mixed, "jit"), add(&contiguous(&mixed), 1)] {
        let error = Parts::new(&[output], name_of).map(|_| ()).unwrap_err();
        let expected = Error::Devices { op: Op::Add, first: "c", second: "jit" };
        assert_eq!(error, expected);
        assert!(error.to_string().contains(".to(\"c\")"), "{error}");
    }
    let chosen = UOp::select(cast(&a, DType::Bool), b.clone(), copy(&a, "interp"));
    assert!(matches!(Parts::new(&[chosen], name_of), Err(Error::Devices { first: "c", .. })));
    check_parts("named and default", &[binary(Op::Add, &a, &copy(&b, "c"))]);
}

#[test]
fn identities_take_no_kernel_and_keep_every_bit() {
    let a = f32s(&[4, 4]);
    let i = input(DType::U16, &[4, 4]);
    let with = |op, x: &UOp, value| binary(op, x, &like(x, value));
    let swapped = |op, x: &UOp, value| binary(op, &like(x, value), x);
    for op in [Op::Add, Op::Sub, Op::Or, Op::Xor, Op::Shl, Op::Shr] {
        check("0 on the right", &[with(op, &i, 0)], 0);
    }
    check("0 on the left", &[swapped(Op::Add, &i, 0)], 0);
    check("0 minus x", &[swapped(Op::Sub, &i, 0)], 1);
    check("0 shifted", &[swapped(Op::Shl, &like(&i, 0), 0)], 0);
    check("times 1", &[with(Op::Mul, &i, 1), swapped(Op::Mul, &a, 1)], 0);
    check("times 0", &[with(Op::Mul, &i, 0), swapped(Op::And, &i, 0)], 0);
    check("floats times 0", &[with(Op::Mul, &a, 0)], 1);
    check("floats plus 0", &[with(Op::Add, &a, 0)], 1);
    check("floats minus 0", &[with(Op::Sub, &a, 0)], 0);
    let condition = like(&binary(Op::CmpLt, &i, &like(&i, 2)), 0);
    check("never chosen", &[UOp::select(condition, add(&i, 1), i.clone())], 0);
    check("known to fold", &[binary(Op::Mul, &add(&i, 3), &with(Op::Mul, &i, 0))], 0);
}

#[test]
fn stacked_views_of_a_reduction_compute_it_once() {
    let a = f32s(&[2, 2]);
    let sum = reduce(Op::Add, &a, &[1]);
    let stacked = reshape(&reshape(&sum, &[1, 2]), &[2]);
    check("along two paths", &[binary(Op::Mul, &stacked, &reshape(&sum, &[2]))], 1);
    let after = add(&stacked, 1);
    let both = binary(Op::Max, &reshape(&after, &[2, 1]), &reshape(&add(&sum, 2), &[2, 1]));
    check("with work between", &[both], 1);
}

#[test]
fn expand_realizes_its_source() {
    let a = f32s(&[4, 1]);
    check("input", &[add(&widened(&a), 1)], 1);
    check("computed", &[add(&widened(&add(&a, 1)), 1)], 2);
    let counted = reshape(&UOp::new(Op::Iota, DType::F32, [], Arg::Int(4)), &[4, 1]);
    check("without loads", &[add(&widened(&add(&counted, 2)), 1)], 1);
}

#[test]
fn pad_fuses_unless_zero_becomes_something_else() {
    let a = f32s(&[2, 2]);
    let pads = [(1, 1), (0, 2)];
    check("safe", &[add(&pad(&add(&a, 4), &pads), 3)], 1);
    check("exp2", &[add(&pad(&unary(Op::Exp2, &a), &pads), 3)], 2);
    check("exp2 after", &[unary(Op::Exp2, &pad(&add(&a, 1), &pads))], 1);
    check("neg is -0.0", &[pad(&unary(Op::Neg, &a), &pads)], 2);
    check("exp2 of a stored one", &[pad(&contiguous(&unary(Op::Exp2, &a)), &pads)], 2);
    let below = binary(Op::CmpLt, &a, &like(&a, 0));
    let not = binary(Op::CmpNe, &below, &like(&below, 1));
    check("comparison", &[pad(&not, &pads)], 1);
    check("pad of a pad", &[pad(&pad(&add(&a, 1), &pads), &pads)], 1);
}

#[test]
fn reduce_fuses_its_elementwise_users() {
    let a = f32s(&[4, 4]);
    let sum = reduce(Op::Add, &a, &[1]);
    check("alone", std::slice::from_ref(&sum), 1);
    check(
        "chain before and after",
        &[add(&reshape(&reduce(Op::Add, &add(&a, 1), &[1]), &[2, 2]), 3)],
        1,
    );
    check("reduce of reduce", &[reduce(Op::Max, &add(&sum, 1), &[0])], 2);
    check("expanded", &[binary(Op::Sub, &a, &widened(&sum))], 2);
    check("two reduces, one sum", &[binary(Op::Add, &sum, &reduce(Op::Max, &a, &[1]))], 2);
    check(
        "permuted",
        &[add(&permute(&reduce(Op::Add, &f32s(&[2, 3, 4]), &[2]), &[1, 0, 2]), 1)],
        2,
    );
    check("shared by two", &[add(&sum, 1), add(&sum, 2)], 3);
    check("shared, joined again", &[binary(Op::Mul, &add(&sum, 1), &add(&sum, 2))], 1);
    check("turned input", &[add(&reduce(Op::Add, &permute(&a, &[1, 0]), &[1]), 1)], 1);
    check("all axes", &[add(&reduce(Op::Mul, &a, &[0, 1]), 1)], 1);
    check("no axes", &[reduce(Op::Add, &a, &[])], 0);
    let addend = f32s(&[2, 2]);
    let joined = binary(Op::Add, &reshape(&sum, &[2, 2]), &permute(&addend, &[1, 0]));
    check("another load at the reduced shape", &[joined], 1);
}

#[test]
fn reductions_of_the_same_rows_share_a_kernel() {
    let a = f32s(&[3, 4]);
    let (sum, maximum) = (reduce(Op::Add, &a, &[1]), reduce(Op::Max, &a, &[1]));
    let wide = |x: &UOp| expand(x, &[3, 4]);
    check_rows("scaled", &[scaled(&a, 1)], 1);
    check_rows("along the first axis", &[scaled(&a, 0)], 3);
    check_rows("last axis of size 1", &[scaled(&f32s(&[3, 4, 1]), 1)], 1);
    check_rows("all axes", &[binary(Op::Sub, &a, &wide(&reduce(Op::Max, &a, &[0, 1])))], 1);
    check_rows("two reductions of a row", &[binary(Op::Add, &sum, &maximum)], 1);
    let twice = reduce(Op::Add, &binary(Op::Sub, &a, &wide(&maximum)), &[1]);
    check_rows("a reduction of a broadcast", std::slice::from_ref(&twice), 1);
    check_rows("and beside the first", &[binary(Op::Add, &twice, &maximum)], 1);
    check_rows("broadcast without its row", &[add(&wide(&sum), 1)], 1);
    let flat = reshape(&sum, &[3]);
    check_rows(
        "broadcast after reshapes",
        &[add(&expand(&reshape(&flat, &[3, 1]), &[3, 4]), 1)],
        1,
    );
    check_rows("broadcast to another size", &[add(&expand(&sum, &[3, 5]), 1)], 2);
    check_rows("broadcast, then transposed", &[add(&permute(&wide(&sum), &[1, 0]), 1)], 2);
    let along_columns = reduce(Op::Add, &binary(Op::Sub, &a, &wide(&sum)), &[0]);
    check_rows("reduced along another axis", &[along_columns], 2);
    check_rows("needed by two", &[add(&sum, 1), binary(Op::Sub, &a, &wide(&sum))], 3);
    let padded = pad(&scaled(&a, 1), &[(0, 0), (1, 1)]);
    check_rows("padded", &[add(&padded, 1)], 2);
    let many = (0..40).fold(a.clone(), |x, _| scaled(&x, 1));
    let options = Options { rows: true, ..Options::default() };
    let items = schedule(&[many], &options).unwrap().items;
    assert_eq!(items.len(), 20, "at most four reductions each");
}

#[test]
fn reduction_of_single_elements_takes_no_kernel() {
    let a = f32s(&[4, 1, 4]);
    for op in [Op::Add, Op::Mul, Op::Max] {
        check("alone", &[reduce(op, &a, &[1])], 0);
    }
    check("with another axis", &[reduce(Op::Add, &a, &[1, 2])], 1);
    let sum = reduce(Op::Add, &add(&a, 1), &[1]);
    check("reduced again", &[reduce(Op::Max, &sum, &[2])], 1);
}

#[test]
fn views_of_a_reduction_are_of_its_source() {
    let c = product(&f32s(&[3, 4]), &f32s(&[4, 2]));
    let turned = permute(&c, &[1, 0]);
    check("transposed", &[add(&turned, 1)], 1);
    check("an output", std::slice::from_ref(&turned), 1);
    check("flipped", &[add(&flip(&c, &[0]), 1)], 1);
    check("shrunk, flipped", &[add(&flip(&shrink(&turned, &[(0, 2), (1, 3)]), &[0, 1]), 1)], 1);
    let row = shrink(&c, &[(1, 2), (0, 2)]);
    check("a row", &[add(&reshape(&row, &[2]), 1)], 1);
    let half = cast(&add(&c, 1), DType::F16);
    check("after elementwise ops", &[add(&permute(&half, &[1, 0]), 1)], 1);
    let largest = reduce(Op::Max, &f32s(&[2, 3, 4]), &[2]);
    check("shrunk maximum", &[add(&shrink(&largest, &[(0, 2), (1, 3), (0, 1)]), 1)], 1);
    check("transposed maximum", &[add(&permute(&largest, &[1, 0, 2]), 1)], 2);
    check("flipped maximum", &[add(&flip(&largest, &[1]), 1)], 2);
    check("used twice", &[add(&turned, 1), add(&c, 2)], 3);
    check("in a buffer", &[add(&permute(&contiguous(&c), &[1, 0]), 1)], 2);
    check("padded", &[add(&pad(&turned, &[(1, 0), (0, 1)]), 1)], 2);
    check("repeated", &[add(&expand(&reshape(&turned, &[2, 1, 3]), &[2, 4, 3]), 1)], 2);
}

#[test]
fn reduction_with_a_value_of_its_rows_is_not_moved() {
    let a = f32s(&[3, 4]);
    let shifted = binary(Op::Sub, &a, &expand(&reduce(Op::Max, &a, &[1]), &[3, 4]));
    let outputs = [add(&shrink(&reduce(Op::Add, &shifted, &[1]), &[(1, 3), (0, 1)]), 1)];
    check_rows("a part of the sums", &outputs, 2);
    let options = Options { rows: true, ..Options::default() };
    let items = schedule(&outputs, &options).unwrap().items;
    let nodes = items[0].ast.toposort();
    assert_eq!(nodes.iter().filter(|node| node.op() == Op::ReduceAxis).count(), 2);
}

#[test]
fn large_products_have_a_kernel_each_on_devices_with_groups() {
    let kernels = |output: UOp| {
        [false, true].map(|shared| kernels_of_rows(std::slice::from_ref(&output), shared))
    };
    let matrix = |rows: i64| product(&f32s(&[rows, 128]), &f32s(&[128, 128]));
    assert_eq!(kernels(binary(Op::Add, &matrix(64), &matrix(64))), [1, 2]);
    assert_eq!(kernels(binary(Op::Mul, &unary(Op::Neg, &matrix(64)), &matrix(64))), [1, 2]);
    // Small ones do not pay for a launch.
    assert_eq!(kernels(binary(Op::Add, &matrix(32), &matrix(32))), [1, 1]);
    // Weights that are read once, row by row, or column by column.
    let row = |weights: &UOp| product(&f32s(&[1, 1024]), weights);
    let [rows, columns] = [(); 2].map(|()| f32s(&[1024, 1024]));
    let rows = permute(&rows, &[1, 0]);
    assert_eq!(kernels(binary(Op::Add, &row(&rows), &row(&rows))), [1, 1]);
    assert_eq!(kernels(binary(Op::Add, &row(&columns), &row(&rows))), [1, 2]);
}

#[test]
fn value_of_each_row_is_stored_rather_than_the_row() {
    let (a, b) = (f32s(&[3, 4]), f32s(&[3, 4]));
    let wide = |x: &UOp| expand(x, &[3, 4]);
    let [sum, largest] = [Op::Add, Op::Max].map(|op| reduce(op, &a, &[1]));
    let shifted = binary(Op::Sub, &a, &wide(&largest));
    // The number of kernels, and the size of what they share.
    let shared = |node: &UOp| {
        let outputs = [cast(node, DType::F64), cast(node, DType::I32)];
        check_values("shared", &outputs);
        let options = Options { rows: true, ..Options::default() };
        let items = schedule(&outputs, &options).unwrap().items;
        (items.len(), items[0].buffers[0].size_elements())
    };
    assert_eq!(shared(&shifted), (3, 3));
    let scaled = wide(&binary(Op::Mul, &sum, &like(&sum, 3)));
    assert_eq!(shared(&binary(Op::Sub, &a, &scaled)), (3, 3));
    // Not if that takes much time, two rows, two values, or more bytes.
    assert_eq!(shared(&unary(Op::Exp2, &shifted)), (3, 12));
    assert_eq!(shared(&binary(Op::Mul, &shifted, &b)), (3, 12));
    assert_eq!(shared(&binary(Op::Mul, &shifted, &wide(&sum))), (3, 12));
    assert_eq!(shared(&binary(Op::CmpLt, &a, &wide(&largest))), (3, 12));
}

#[test]
fn costly_values_of_rows_of_another_kernel_are_computed_once() {
    let (x, y) = (f32s(&[3, 4]), f32s(&[3, 4]));
    let wide = |value: &UOp| expand(value, &[3, 4]);
    let sum = reduce(Op::Add, &x, &[1]);
    let columns = reduce(Op::Max, &binary(Op::Mul, &y, &wide(&sum)), &[0]);
    let scaled = |op: Op| binary(Op::Mul, &x, &wide(&unary(op, &sum)));
    let kernels = |outputs: &[UOp]| [false, true].map(|shared| kernels_of_rows(outputs, shared));
    let costly = [scaled(Op::Exp2), columns.clone()];
    check_values("costly", &costly);
    assert_eq!(kernels(&costly), [3, 4]);
    assert_eq!(kernels(&[scaled(Op::Sqrt), columns.clone()]), [3, 3]);
    // The sum is in the same kernel.
    assert_eq!(kernels(&[scaled(Op::Exp2)]), [1, 1]);
    // A gather computes the value once for each row.
    let counter = UOp::new(Op::Iota, DType::I32, [], Arg::Int(4));
    let counter = wide(&reshape(&counter, &[1, 4]));
    let is_elsewhere = binary(Op::CmpNe, &wide(&input(DType::I32, &[3, 1])), &counter);
    let value = scaled(Op::Exp2);
    let chosen = UOp::select(is_elsewhere, like(&value, 0), value);
    let taken = [reduce(Op::Add, &chosen, &[1]), columns];
    check_values("gathered", &taken);
    assert_eq!(kernels(&taken), [3, 3]);
}

#[test]
fn few_ops_of_a_load_are_repeated_on_devices_with_groups() {
    let kernels = |output: UOp| {
        [false, true].map(|shared| kernels_of_rows(std::slice::from_ref(&output), shared))
    };
    let repeated = |x: &UOp, count: i64| add(&expand(x, &[4, 4, count]), 1);
    let a = f32s(&[4, 4, 1]);
    let relu = binary(Op::Max, &a, &like(&a, 0));
    check_values("repeated", &[repeated(&relu, 2)]);
    assert_eq!(kernels(repeated(&relu, 16)), [2, 1]);
    assert_eq!(kernels(repeated(&relu, 17)), [2, 2]);
    assert_eq!(kernels(repeated(&unary(Op::Exp2, &a), 2)), [2, 2]);
    assert_eq!(kernels(repeated(&binary(Op::Add, &a, &f32s(&[4, 4, 1])), 2)), [2, 2]);
    assert_eq!(kernels(repeated(&reduce(Op::Add, &f32s(&[4, 4, 3]), &[2]), 2)), [2, 2]);
}

#[test]
fn reduce_is_stored_before_a_widening_cast() {
    let a = input(DType::F16, &[4, 4]);
    let narrow = cast(&reduce(Op::Add, &cast(&a, DType::F32), &[1]), DType::F16);
    let wide = cast(&narrow, DType::F32);
    let use_twice = [add(&widened(&wide), 1)];
    check("cast", &use_twice, 2);
    let shared = [add(&wide, 1), add(&wide, 2)];
    let items = schedule(&shared, &Options::default()).unwrap().items;
    assert_eq!(items[0].buffers[0].dtype(), DType::F16, "the narrow value is stored");
    check_values("cast shared", &shared);
}

#[test]
fn matmul_of_inputs_is_one_kernel() {
    let (a, b) = (f32s(&[3, 4]), f32s(&[4, 2]));
    let rows = expand(&reshape(&a, &[3, 1, 4]), &[3, 2, 4]);
    let columns = expand(&reshape(&permute(&b, &[1, 0]), &[1, 2, 4]), &[3, 2, 4]);
    check(
        "matmul",
        &[reshape(&reduce(Op::Add, &binary(Op::Mul, &rows, &columns), &[2]), &[3, 2])],
        1,
    );
}

#[test]
fn few_rows_of_a_product_are_copied_so_that_dot_products_are_contiguous() {
    let kernels = |x: &UOp, y: &UOp| {
        let [size, rows, columns] =
            [x.shape().unwrap()[0], x.shape().unwrap()[1], y.shape().unwrap()[0]];
        let x = expand(&reshape(&permute(x, &[1, 0]), &[rows, 1, size]), &[rows, columns, size]);
        let y = expand(&reshape(y, &[1, columns, size]), &[rows, columns, size]);
        let product = reduce(Op::Add, &binary(Op::Mul, &x, &y), &[2]);
        check_values("product", std::slice::from_ref(&product));
        schedule(&[product], &PACKED).unwrap().items.len()
    };
    // A copy of 2 * 8 elements for 6 * 8; for 5 * 8 they would be too many.
    assert_eq!(kernels(&f32s(&[8, 2]), &f32s(&[6, 8])), 2);
    assert_eq!(kernels(&f32s(&[8, 2]), &f32s(&[5, 8])), 1);
    // Dot products of 3 elements are too short.
    assert_eq!(kernels(&f32s(&[3, 3]), &f32s(&[7, 3])), 1);
}

#[test]
fn places_that_are_adjacent_together_have_lanes() {
    let kernels = |height: i64, width: i64| {
        let (size, columns) = (8, 3 * height * width);
        let full = [columns, height, width, size];
        let places = permute(&f32s(&[size, height, width]), &[1, 2, 0]);
        let places = expand(&reshape(&places, &[1, height, width, size]), &full);
        let weights = expand(&reshape(&f32s(&[columns, size]), &[columns, 1, 1, size]), &full);
        let sum = reduce(Op::Add, &binary(Op::Mul, &places, &weights), &[3]);
        check_values("places", std::slice::from_ref(&sum));
        let thresholds = Thresholds { pack_row_bytes: 2048, ..Thresholds::SMALL };
        schedule(&[sum], &Options { thresholds, ..PACKED }).unwrap().items.len()
    };
    // 30 places are less than two vectors, so that lanes run along the elements of a place.
    assert_eq!([kernels(5, 6), kernels(4, 8), kernels(6, 6)], [2, 1, 1]);
}

#[test]
fn an_operand_whose_panels_waste_lanes_is_not_packed() {
    let panels = |width: i64, large_bytes: u64| {
        let full = [64, 4, width, 256];
        let places = permute(&f32s(&[256, width, 4]), &[2, 1, 0]);
        let places = expand(&reshape(&places, &[1, 4, width, 256]), &full);
        let weights = expand(&reshape(&f32s(&[64, 256]), &[64, 1, 1, 256]), &full);
        let sum = reduce(Op::Add, &binary(Op::Mul, &places, &weights), &[3]);
        let thresholds = Thresholds { large_bytes, ..PACKED.thresholds };
        let items = schedule(&[sum], &Options { thresholds, ..PACKED }).unwrap().items;
        items.iter().map(|item| item.buffers[0].size_elements()).collect::<Vec<_>>()
    };
    let weights = 64 * 256;
    let large = Thresholds::USUAL.large_bytes;
    // 16 places fill a vector, and 15 almost; of 17, half of the lanes are wasted.
    assert_eq!(panels(16, large), [16 * 4 * 256, 64 * 4 * 16]);
    assert_eq!(panels(15, large), [15 * 4 * 256, 64 * 4 * 15]);
    assert_eq!(panels(17, large), [weights, 64 * 4 * 17]);
    // Beside panels of the weights, rows of places that no cache holds are copied as well.
    assert_eq!(panels(17, 128), [17 * 4 * 256, weights, 64 * 4 * 17]);
}

/// The panels of a mask of 66,000 x 66,000 were too large for a buffer, and those of one of 30,000
/// x 30,000 took 3.6 GB.
#[test]
fn large_operand_that_is_computed_from_counters_is_not_packed() {
    let counters = UOp::new(Op::Iota, DType::I32, [], Arg::Int(16));
    let wide = |shape: &[i64]| expand(&reshape(&counters, shape), &[16, 16]);
    let is_above = binary(Op::CmpLt, &wide(&[16, 1]), &wide(&[1, 16]));
    let mask = cast(&is_above, DType::F32);
    let stored = contiguous(&mask);
    let columns = f32s(&[16, 20]);
    let kernels = |mask: &UOp, large_bytes: u64| {
        let product = product(mask, &columns);
        check_values("product", std::slice::from_ref(&product));
        let thresholds = Thresholds { large_bytes, ..PACKED.thresholds };
        schedule(&[product], &Options { thresholds, ..PACKED }).unwrap().items.len()
    };
    // The mask has 1024 bytes. It is packed if it is not large, or in a buffer anyway; beside its
    // panels, rows of the columns are copied that are large.
    let large = Thresholds::USUAL.large_bytes;
    assert_eq!([kernels(&mask, 1024), kernels(&mask, large), kernels(&stored, 1024)], [1, 2, 4]);
    // No buffer has the elements of all windows of an array, of which each begins two elements
    // after the one before.
    let (count, size, length) = (1 << 16, (1 << 16) + 8, 1 << 18);
    let repeated = expand(&reshape(&f32s(&[length]), &[1, length]), &[count + 1, length]);
    let repeated = reshape(&repeated, &[(count + 1) * length]);
    let rows = reshape(&shrink(&repeated, &[(0, count * (length + 2))]), &[count, length + 2]);
    let windows = shrink(&rows, &[(0, count), (0, size)]);
    let sum = product(&windows, &f32s(&[size, 40]));
    assert!(schedule(&[sum], &PACKED).is_ok());
}

#[test]
fn factors_of_packed_halves_are_converted_once() {
    let full = [8, 16, 4];
    let rows = expand(&reshape(&input(DType::BF16, &[8, 4]), &[8, 1, 4]), &full);
    let columns = expand(&reshape(&input(DType::BF16, &[16, 4]), &[1, 16, 4]), &full);
    let products = cast(&binary(Op::Mul, &rows, &columns), DType::F32);
    let sum = reduce(Op::Add, &products, &[2]);
    check_values("product", std::slice::from_ref(&sum));
    let types = |options: Options| -> Vec<Vec<DType>> {
        let items = schedule(std::slice::from_ref(&sum), &options).unwrap().items;
        items.iter().map(|item| item.buffers.iter().map(Buffer::dtype).collect()).collect()
    };
    let (half, wide) = (DType::BF16, DType::F32);
    assert_eq!(types(PACKED), [vec![wide, half], vec![wide, half], vec![wide, wide, wide]]);
    // Rounded products have factors of 16 bits.
    assert_eq!(types(Options { wide_products: false, ..PACKED }), [vec![wide, half, half]]);
}

#[test]
fn shared_rows_are_short() {
    let wide = |sum: &UOp, size: i64| expand(sum, &[3, size]);
    let kernels = |size: i64, shared_rows: bool| {
        let a = f32s(&[3, size]);
        let centred = binary(Op::Sub, &a, &wide(&reduce(Op::Add, &a, &[1]), size));
        let scaled = binary(Op::Mul, &centred, &wide(&reduce(Op::Max, &centred, &[1]), size));
        let options = Options { rows: true, shared_rows, ..Options::default() };
        let options = Options { thresholds: Thresholds::SMALL, ..options };
        schedule(std::slice::from_ref(&scaled), &options).unwrap().items.len()
    };
    let longest = Thresholds::SMALL.shared_row_elements;
    assert_eq!([longest, longest + 1].map(|size| kernels(size, true)), [1, 3]);
    assert_eq!(kernels(longest + 1, false), 1);
}

#[test]
fn halves_are_widened_again_where_they_are_repeated() {
    let full = [8, 16, 4];
    let wide = |shape: &[i64]| cast(&input(DType::BF16, shape), DType::F32);
    let rows = expand(&reshape(&wide(&[8, 4]), &[8, 1, 4]), &full);
    let columns = expand(&reshape(&wide(&[16, 4]), &[1, 16, 4]), &full);
    let sum = reduce(Op::Add, &binary(Op::Mul, &rows, &columns), &[2]);
    check_values("product", std::slice::from_ref(&sum));
    let kernels = |output: &UOp, widens_again: bool| {
        let options = Options { widens_again, ..Options::default() };
        schedule(std::slice::from_ref(output), &options).unwrap().items.len()
    };
    assert_eq!((kernels(&sum, false), kernels(&sum, true)), (3, 1));
    // What is computed is computed once.
    let doubled = binary(Op::Add, &wide(&[8, 4]), &wide(&[8, 4]));
    let doubled = expand(&reshape(&doubled, &[8, 1, 4]), &full);
    let sum = reduce(Op::Add, &binary(Op::Mul, &doubled, &columns), &[2]);
    check_values("product", std::slice::from_ref(&sum));
    assert_eq!((kernels(&sum, false), kernels(&sum, true)), (3, 2));
}

/// Returns the sizes of what the kernels of an output store, in order, after checking its values.
fn sizes_of_results(output: &UOp, options: &Options) -> Vec<i64> {
    check_values("split", std::slice::from_ref(output));
    let items = schedule(std::slice::from_ref(output), options).unwrap().items;
    let mut sizes: Vec<i64> = items.iter().map(|item| item.buffers[0].size_elements()).collect();
    sizes.sort_unstable();
    sizes
}

#[test]
fn reduction_of_a_size_without_divisors_is_split() {
    let sizes = |output: &UOp| sizes_of_results(output, &SPLIT);
    let x = f32s(&[2053]);
    let odd = input(DType::I32, &[2053]);
    let odd = add(&binary(Op::Mul, &odd, &like(&odd, 2)), 1);
    // 684 blocks of 3 elements, and a last element.
    assert_eq!(sizes(&reduce(Op::Add, &x, &[0])), [1, 684]);
    assert_eq!(sizes(&reduce(Op::Max, &add(&x, -9), &[0])), [1, 684]);
    assert_eq!(sizes(&reduce(Op::Mul, &odd, &[0])), [1, 684]);
    // Of three sums, 206 blocks of 5 rows, and a last row.
    assert_eq!(sizes(&reduce(Op::Add, &f32s(&[3, 1031, 2]), &[1, 2])), [3, 3, 3 * 206]);
    // The only divisor gives four blocks, which would leave a device idle.
    assert_eq!(sizes(&reduce(Op::Add, &f32s(&[4 * 1031]), &[0])), [1, 1, 687]);
    assert_eq!(sizes(&reduce(Op::Add, &f32s(&[4096]), &[0])), [1, 1024]);
}

#[test]
fn long_sum_of_products_is_split() {
    let options = Options { pack: false, ..BLOCKS };
    let sizes = |output: &UOp| sizes_of_results(output, &options);
    let product = |[rows, length, columns]: [i64; 3]| {
        let full = [rows, columns, length];
        let x = expand(&reshape(&f32s(&[rows, length]), &[rows, 1, length]), &full);
        let y = expand(&reshape(&f32s(&[columns, length]), &[1, columns, length]), &full);
        reduce(Op::Add, &binary(Op::Mul, &x, &y), &[2])
    };
    assert_eq!(sizes(&product([4, 7, 4])), [16]);
    assert_eq!(sizes(&product([4, 8, 4])), [16, 2 * 16]);
    // Two blocks of four and a last product, which the sum of the blocks is added to.
    assert_eq!(sizes(&product([4, 9, 4])), [16, 2 * 16]);
    // Four blocks of four and the sum of two last products.
    assert_eq!(sizes(&product([4, 18, 4])), [16, 16, 4 * 16]);
    // Results of two blocks would have more elements than the operands.
    assert_eq!(sizes(&product([8, 8, 8])), [64]);
    // Elements that are used once are not read again.
    assert_eq!(sizes(&product([1, 256, 1])), [1]);
    // A maximum of products is not a sum, and a square has its operand once.
    let factor = |shape| expand(&reshape(&f32s(&[4, 16]), shape), &[4, 4, 16]);
    let product = binary(Op::Mul, &factor(&[4, 1, 16]), &factor(&[1, 4, 16]));
    assert_eq!(sizes(&reduce(Op::Max, &product, &[2])), [16]);
}

#[test]
fn split_leaves_the_views_of_other_kernels() {
    // Windows of three of six elements, through copies of all elements in a row.
    let copies = reshape(&expand(&reshape(&f32s(&[6]), &[1, 6]), &[4, 6]), &[24]);
    let windows = shrink(&reshape(&shrink(&copies, &[(0, 21)]), &[3, 7]), &[(0, 3), (0, 4)]);
    let filters = reshape(&f32s(&[5, 3]), &[5, 3, 1]);
    let factors = [reshape(&windows, &[1, 3, 4]), filters].map(|x| expand(&x, &[5, 3, 4]));
    let convolution = reduce(Op::Add, &binary(Op::Mul, &factors[0], &factors[1]), &[1]);
    let factor = |shape| expand(&reshape(&f32s(&[4, 16]), shape), &[4, 4, 16]);
    let product = binary(Op::Mul, &factor(&[4, 1, 16]), &factor(&[1, 4, 16]));
    let product = reduce(Op::Add, &product, &[2]);
    let kernels = |outputs: &[UOp]| -> Vec<UOp> {
        let items = schedule(outputs, &BLOCKS).unwrap().items;
        items.into_iter().map(|item| item.ast).collect()
    };
    let alone = kernels(std::slice::from_ref(&convolution));
    assert_eq!(kernels(&[convolution, product])[..alone.len()], alone);
}

#[test]
fn functions_of_a_reshaped_result_are_one_kernel() {
    // Each node doubles the number of paths, but a kernel has it once.
    let doubled = |x: UOp| binary(Op::Add, &x, &x.clone());
    let inner = (0..12).fold(f32s(&[4, 6]), |x, _| doubled(unary(Op::Sqrt, &x)));
    let outer = (0..12).fold(reshape(&inner, &[4, 1, 6]), |x, step| {
        binary(Op::Mul, &add(&x, step), &unary(Op::Sin, &x))
    });
    check("functions", &[outer], 1);
}

#[test]
fn gather_from_a_long_table_is_a_single_kernel() {
    let options = Options { split: Split::FewOutputs, ..Options::default() };
    // The sum over the last axis of the elements whose index is the counter of an axis.
    let kernels = |size: i64, counted: usize| {
        let full = [4, size];
        let [mut counters, mut indices] = [[1, 1]; 2];
        (counters[counted], indices[1 - counted]) = (full[counted], full[1 - counted]);
        let counter = UOp::new(Op::Iota, DType::I32, [], Arg::Int(full[counted]));
        let counter = expand(&reshape(&counter, &counters), &full);
        let index = expand(&input(DType::I32, &indices), &full);
        let value = expand(&f32s(&[1, size]), &full);
        let is_elsewhere = binary(Op::CmpNe, &index, &counter);
        let chosen = UOp::select(is_elsewhere, like(&value, 0), value);
        schedule(&[reduce(Op::Add, &chosen, &[1])], &options).unwrap().items.len()
    };
    assert_eq!([65_536, 65_537].map(|size| kernels(size, 1)), [1, 1]);
    // A sum of the elements of each of four classes loads them all.
    assert_eq!(kernels(65_536, 0), 2);
}

#[test]
fn rearranged_result_of_several_kernels_is_computed_once() {
    let x = add(&f32s(&[4, 6]), 1);
    let turned = reshape(&permute(&x, &[1, 0]), &[4, 6]);
    let sums = [reduce(Op::Add, &turned, &[1]), reduce(Op::Max, &turned, &[0])];
    check("two reductions", &sums, 3);
    check("one of them", &sums[..1], 1);
    // The products of two vectors are more than a buffer holds.
    let (rows, columns) = (70_000, 70_001);
    let repeated = |shape: &[i64]| expand(&f32s(shape), &[rows, columns]);
    let products = binary(Op::Mul, &repeated(&[rows, 1]), &repeated(&[1, columns]));
    let turned = reshape(&permute(&products, &[1, 0]), &[rows / 2, 2 * columns]);
    let sums = [reduce(Op::Add, &turned, &[0]), reduce(Op::Max, &turned, &[1])];
    let items = schedule(&sums, &Options::default()).unwrap().items;
    assert!(items.iter().all(|item| item.buffers[0].size_elements() <= 2 * columns));
}

#[test]
fn no_elements_no_kernel() {
    let empty = f32s(&[0, 3]);
    check("chain", &[add(&empty, 1)], 0);
    check("sum over nothing", &[reduce(Op::Add, &empty, &[0])], 0);
    check("max over nothing", &[add(&reduce(Op::Max, &empty, &[0]), 1)], 0);
    check("sum beside nothing", &[reduce(Op::Add, &empty, &[1])], 0);
    check("padded", &[add(&pad(&add(&empty, 1), &[(1, 0), (0, 0)]), 2)], 0);
    check("shrunk to nothing", &[shrink(&add(&f32s(&[2, 3]), 1), &[(1, 1), (0, 3)])], 0);
}

#[test]
fn flip_reshape_flip_chain_is_one_kernel() {
    // [[1,2,3],[4,5,6]].flip(1).reshape(3,2).flip(0), fused into an elementwise kernel.
    let a = f32s(&[2, 3]);
    check("chain", &[add(&flip(&reshape(&flip(&add(&a, 1), &[1]), &[3, 2]), &[0]), 1)], 1);
}

#[test]
fn equal_kernels_are_one_node() {
    let chain = || add(&unary(Op::Exp2, &f32s(&[4])), 1);
    let items = schedule(&[chain(), chain()], &Options::default()).unwrap().items;
    assert_eq!(items.len(), 2);
    assert_eq!(items[0].ast, items[1].ast);
    assert_ne!(items[0].buffers, items[1].buffers);
}

#[test]
fn intermediate_buffers_are_reused() {
    let mut x = f32s(&[8]);
    for step in 0..6 {
        x = contiguous(&add(&flip(&x, &[0]), step));
    }
    let scheduled = schedule(&[x.clone()], &Options::default()).unwrap();
    let mut buffers: Vec<_> = scheduled.items.iter().map(|item| &item.buffers[0]).collect();
    buffers.sort();
    buffers.dedup();
    assert_eq!(
        (scheduled.items.len(), buffers.len()),
        (6, 3),
        "the output and two buffers in turns"
    );
    check("chain", &[x], 6);
}

#[test]
fn deep_graphs_have_bounded_kernels_and_no_recursion() {
    let mut chain = f32s(&[2]);
    for _ in 0..10_000 {
        chain = add(&chain, 1);
    }
    let items = schedule(&[chain], &Options::default()).unwrap().items;
    assert!((20..500).contains(&items.len()), "{} kernels", items.len());
    assert!(items.iter().all(|item| item.ast.toposort().len() < 1000));
    // Diamonds without views stay one kernel; with views they are cut, not multiplied.
    let mut doubled = f32s(&[2, 2]);
    for _ in 0..60 {
        doubled = binary(Op::Max, &doubled, &add(&doubled, 1));
    }
    assert_eq!(schedule(&[doubled], &Options::default()).unwrap().items.len(), 1);
    let mut transposed = f32s(&[3, 3]);
    for step in 0..60 {
        let moved =
            if step % 2 == 0 { permute(&transposed, &[1, 0]) } else { flip(&transposed, &[0]) };
        transposed = binary(Op::Max, &transposed, &add(&moved, 1));
    }
    let items = schedule(&[transposed.clone()], &Options::default()).unwrap().items;
    assert!(items.iter().all(|item| item.ast.toposort().len() < 2000));
    check_values("diamonds with views", &[transposed]);
}

/// Most views of an array on top of each other in the kernels of an output.
fn most_views(output: &UOp, options: &Options) -> usize {
    let items = schedule(std::slice::from_ref(output), options).unwrap().items;
    let count = |node: UOp| match node.arg() {
        Arg::View(tracker) => tracker.views().len(),
        _ => 0,
    };
    items.iter().flat_map(|item| item.ast.toposort()).map(count).max().unwrap_or(0)
}

/// To simplify the indices of 150 views that do not merge took two minutes.
#[test]
fn chains_of_movements_have_bounded_views() {
    let moved = |x: &UOp| {
        let x = flip(&reshape(&permute(x, &[1, 0]), &[2, 8]), &[1]);
        let x = reshape(&pad(&reshape(&x, &[4, 4]), &[(1, 0), (0, 1)]), &[25]);
        reshape(&shrink(&x, &[(3, 19)]), &[4, 4])
    };
    let counters = reshape(&UOp::new(Op::Iota, DType::F32, [], Arg::Int(16)), &[4, 4]);
    let wide = |x: &UOp| expand(&reshape(x, &[1, 4, 4]), &[3, 4, 4]);
    let y = f32s(&[4, 4]);
    for (name, start) in [("array", f32s(&[4, 4])), ("counters", counters)] {
        let [mut alone, mut with_ops] = [start.clone(), start];
        for _ in 0..30 {
            alone = moved(&alone);
            with_ops = binary(Op::Max, &moved(&with_ops), &y);
        }
        for output in [alone, with_ops] {
            for options in ALL {
                let views = most_views(&output, &options);
                assert!((8..=16).contains(&views) || !options.fuse, "{name}: {views}, {options:?}");
                assert!(views <= 16, "{name}: {views}, {options:?}");
            }
            check_values(name, &[wide(&output), output]);
        }
    }
}

/// The limit of arrays gave a buffer to a node of a kernel with a product, which two kernels then
/// computed.
#[test]
fn product_is_computed_once_where_arrays_are_few() {
    let (x, y) = (f32s(&[2, 4, 4]), f32s(&[4, 4]));
    let first = reshape(&shrink(&x, &[(0, 1), (0, 4), (0, 4)]), &[4, 4]);
    let product = product(&first, &y);
    let scaled = (0..3).fold(product.clone(), |a, _| binary(Op::Mul, &a, &f32s(&[4, 4])));
    let largest = reshape(&reduce(Op::Max, &x, &[0]), &[4, 4]);
    let sum = binary(Op::Add, &unary(Op::Neg, &binary(Op::Mul, &scaled, &largest)), &product);
    check_values("sum", std::slice::from_ref(&sum));
    for arrays_max in 4..9 {
        let options = Options { arrays_max, ..options(true, true, false, true) };
        let items = schedule(std::slice::from_ref(&sum), &options).unwrap().items;
        let is_sum = |node: &UOp| matches!(node.arg(), Arg::Reduce(Op::Add, _));
        let sums = items.iter().flat_map(|item| item.ast.toposort()).filter(is_sum).count();
        assert_eq!(sums, 1, "{arrays_max} arrays");
        let largest = items.iter().map(|item| item.buffers.len()).max();
        assert!(largest.is_some_and(|count| count <= arrays_max as usize), "{largest:?}");
    }
}

#[test]
fn too_large_graphs_are_refused() {
    let huge = add(&expand(&reshape(&f32s(&[1]), &[1, 1]), &[1 << 20, 1 << 20]), 1);
    let error = schedule(&[huge], &Options::default()).unwrap_err().to_string();
    assert!(error.contains("at most 4294967296 are allowed"), "{error}");
    // The limit of views is larger than that of buffers. Whichever axis is of size 0.
    for sizes in [[0, 1 << 40, 1 << 40], [1 << 40, 0, 1 << 40], [1 << 40, 1 << 40, 0]] {
        let empty = expand(&reshape(&f32s(&[1]), &[1, 1, 1]), &sizes);
        let error = schedule(&[add(&empty, 1)], &Options::default()).unwrap_err().to_string();
        assert!(error.contains("at most 281474976710655 are allowed"), "{sizes:?}: {error}");
    }
    let range = UOp::new(Op::Range, DType::I32, [UOp::int(DType::I32, 3)], Arg::plain_axis(0));
    assert!(schedule(&[range], &Options::default()).is_err());
}

/// Copies a node to the device of another one.
fn copy_like(y: &UOp, x: &UOp) -> UOp {
    copy(y, &x.device().map_or("default".to_string(), Placement::to_string))
}

/// A generator of random graphs of small tensors, in which no op is undefined.
struct Random(u64);

impl Random {
    fn below(&mut self, count: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) % count as u64) as usize
    }

    fn graph(&mut self) -> Vec<UOp> {
        let shape: Vec<i64> = (0..self.below(3) + 1).map(|_| self.below(3) as i64 + 1).collect();
        let mut values = vec![f32s(&shape), f32s(&shape)];
        for _ in 0..self.below(12) + 1 {
            let x = values[self.below(values.len())].clone();
            let next = self.node(&x, &values);
            if next.shape().unwrap().iter().product::<i64>() <= 200 {
                values.push(next);
            }
        }
        let last = values.len() - 1;
        let also = self.below(values.len());
        if self.below(3) == 0 {
            vec![values[last].clone(), values[also].clone()]
        } else {
            vec![values[last].clone()]
        }
    }

    fn node(&mut self, x: &UOp, values: &[UOp]) -> UOp {
        let shape = x.shape().unwrap().to_vec();
        let rank = shape.len();
        match self.below(15) {
            0 => unary(Op::Exp2, &binary(Op::Min, x, &like(x, 5))),
            1 => unary(Op::Neg, x),
            2 => add(x, self.below(5) as i64),
            3 | 4 => {
                let same: Vec<_> = values.iter().filter(|y| y.shape() == x.shape()).collect();
                let y = same[self.below(same.len())].clone();
                let y = if y.device() == x.device() { y } else { copy_like(&y, x) };
                binary([Op::Add, Op::Mul, Op::Max, Op::Sub][self.below(4)], x, &y)
            }
            5 => {
                let mut axes: Vec<i64> = (0..rank as i64).collect();
                axes.rotate_left(self.below(rank));
                permute(x, &axes)
            }
            6 => flip(x, &[self.below(rank) as i64]),
            7 => pad(
                x,
                &(0..rank)
                    .map(|_| (self.below(2) as i64, self.below(2) as i64))
                    .collect::<Vec<_>>(),
            ),
            8 => {
                let ranges = shape.iter().map(|size| {
                    let start = self.below(*size as usize) as i64;
                    (start, start + 1 + self.below((*size - start) as usize) as i64)
                });
                let ranges: Vec<_> = ranges.collect();
                shrink(x, &ranges)
            }
            9 => {
                let to: Vec<i64> = shape
                    .iter()
                    .map(|n| if *n == 1 { self.below(3) as i64 + 1 } else { *n })
                    .collect();
                expand(x, &to)
            }
            10 => {
                let size: i64 = shape.iter().product();
                let factors: Vec<i64> = (1..=size).filter(|n| size % n == 0).collect();
                let first = factors[self.below(factors.len())];
                reshape(x, &[first, size / first])
            }
            11 | 12 => {
                reduce([Op::Add, Op::Max, Op::Mul][self.below(3)], x, &[self.below(rank) as i64])
            }
            13 => copy(x, ["default", "jit", "interp"][self.below(3)]),
            _ => contiguous(x),
        }
    }
}

#[test]
fn random_graphs_have_the_same_values_when_scheduled() {
    for seed in 0..3_000 {
        let outputs = Random(seed).graph();
        check_values(&format!("seed {seed}"), &outputs);
        check_parts(&format!("seed {seed}"), &outputs);
    }
}
