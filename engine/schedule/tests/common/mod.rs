//! Naive evaluation of tensor graphs and of kernel trees, and functions to build graphs with.

use std::collections::HashMap;

use gradiff_graph::{Arg, Buffer, Constant, DType, Dims, Op, Pairs, UOp, evaluate};
use gradiff_schedule::Schedule;

pub(crate) type Data = HashMap<Buffer, Vec<Constant>>;

/// Makes a tensor of shape `shape` over a new buffer.
pub(crate) fn input(dtype: DType, shape: &[i64]) -> UOp {
    let buffer = Buffer::new(dtype, shape.iter().product());
    reshape(&UOp::new(Op::Buffer, dtype, [], Arg::Buffer(buffer)), shape)
}

fn with(op: Op, x: &UOp, arg: Arg) -> UOp {
    let node = UOp::new(op, x.dtype(), [x.clone()], arg);
    assert!(node.shape().is_some());
    node
}

pub(crate) fn reshape(x: &UOp, shape: &[i64]) -> UOp {
    with(Op::Reshape, x, Arg::Dims(Dims::from_slice(shape)))
}

pub(crate) fn permute(x: &UOp, axes: &[i64]) -> UOp {
    with(Op::Permute, x, Arg::Dims(Dims::from_slice(axes)))
}

pub(crate) fn expand(x: &UOp, shape: &[i64]) -> UOp {
    with(Op::Expand, x, Arg::Dims(Dims::from_slice(shape)))
}

pub(crate) fn flip(x: &UOp, axes: &[i64]) -> UOp {
    with(Op::Flip, x, Arg::Dims(Dims::from_slice(axes)))
}

pub(crate) fn pad(x: &UOp, pads: &[(i64, i64)]) -> UOp {
    with(Op::Pad, x, Arg::Pairs(Pairs::from_slice(pads)))
}

pub(crate) fn shrink(x: &UOp, ranges: &[(i64, i64)]) -> UOp {
    with(Op::Shrink, x, Arg::Pairs(Pairs::from_slice(ranges)))
}

pub(crate) fn reduce(how: Op, x: &UOp, axes: &[i64]) -> UOp {
    with(Op::ReduceAxis, x, Arg::Reduce(how, Dims::from_slice(axes)))
}

pub(crate) fn contiguous(x: &UOp) -> UOp {
    with(Op::Contiguous, x, Arg::None)
}

pub(crate) fn unary(op: Op, x: &UOp) -> UOp {
    with(op, x, Arg::None)
}

pub(crate) fn cast(x: &UOp, dtype: DType) -> UOp {
    UOp::unary(Op::Cast, dtype, x.clone())
}

pub(crate) fn binary(op: Op, x: &UOp, y: &UOp) -> UOp {
    let node = UOp::binary(op, x.clone(), y.clone());
    assert!(node.shape().is_some());
    node
}

/// Makes a constant of the shape and dtype of `x`.
pub(crate) fn like(x: &UOp, value: i64) -> UOp {
    let shape = x.shape().unwrap();
    let scalar = UOp::constant(Constant::int(x.dtype(), i128::from(value)));
    if shape.is_empty() {
        return scalar;
    }
    expand(&reshape(&scalar, &vec![1; shape.len()]), shape)
}

pub(crate) fn add(x: &UOp, value: i64) -> UOp {
    binary(Op::Add, x, &like(x, value))
}

/// Returns all indices of `shape`, in row-major order.
pub(crate) fn indices(shape: &[i64]) -> Vec<Vec<i64>> {
    let mut indices = vec![vec![]];
    for size in shape {
        indices = indices
            .into_iter()
            .flat_map(|index: Vec<i64>| {
                (0..*size).map(move |last| [index.as_slice(), &[last]].concat())
            })
            .collect();
    }
    indices
}

fn flat(shape: &[i64], index: &[i64]) -> usize {
    shape.iter().zip(index).fold(0, |flat, (size, index)| flat * size + index) as usize
}

/// Evaluates a tensor-level node by the definition of each op.
pub(crate) fn evaluate_graph(root: &UOp, data: &Data) -> Vec<Constant> {
    let mut values: HashMap<UOp, Vec<Constant>> = HashMap::new();
    for node in root.toposort() {
        let shape = node.shape().unwrap().to_vec();
        let src = |index: usize| (&values[&node.src()[index]], node.src()[index].shape().unwrap());
        let zero = Constant::zero(node.dtype());
        let moved = |find: &dyn Fn(&[i64]) -> Option<Vec<i64>>| -> Vec<Constant> {
            let (source, from) = src(0);
            let at =
                |index: Vec<i64>| find(&index).map_or(zero, |index| source[flat(from, &index)]);
            indices(&shape).into_iter().map(at).collect()
        };
        let value = match (node.op(), node.arg()) {
            (Op::Buffer, Arg::Buffer(buffer)) => data[buffer].clone(),
            (Op::Const, Arg::Const(value)) => vec![*value],
            (Op::Iota, Arg::Int(count)) => {
                (0..*count).map(|i| Constant::int(node.dtype(), i.into())).collect()
            }
            (Op::Reshape | Op::Contiguous | Op::Detach, _) => src(0).0.clone(),
            (Op::Permute, Arg::Dims(axes)) => moved(&|index| {
                let mut source = vec![0; index.len()];
                axes.iter().zip(index).for_each(|(axis, i)| source[*axis as usize] = *i);
                Some(source)
            }),
            (Op::Expand, _) => {
                let from = src(0).1.to_vec();
                moved(&|index| {
                    Some(
                        index
                            .iter()
                            .zip(&from)
                            .map(|(i, n)| if *n == 1 { 0 } else { *i })
                            .collect(),
                    )
                })
            }
            (Op::Flip, Arg::Dims(axes)) => moved(&|index| {
                let turn = |(axis, i): (usize, &i64)| {
                    if axes.contains(&(axis as i64)) { shape[axis] - 1 - i } else { *i }
                };
                Some(index.iter().enumerate().map(turn).collect())
            }),
            (Op::Pad, Arg::Pairs(pads)) => {
                let from = src(0).1.to_vec();
                moved(&|index| {
                    let inner = index.iter().zip(pads).map(|(i, (before, _))| i - before);
                    let inner: Vec<i64> = inner.collect();
                    inner.iter().zip(&from).all(|(i, n)| 0 <= *i && i < n).then_some(inner)
                })
            }
            (Op::Shrink, Arg::Pairs(ranges)) => moved(&|index| {
                Some(index.iter().zip(ranges).map(|(i, (from, _))| i + from).collect())
            }),
            (Op::View, Arg::View(tracker)) => {
                let (source, _) = src(0);
                let at =
                    |index: Vec<i64>| tracker.locate(&index).map_or(zero, |i| source[i as usize]);
                indices(&shape).into_iter().map(at).collect()
            }
            (Op::ReduceAxis, Arg::Reduce(how, axes)) => {
                let (source, from) = src(0);
                reduced(*how, axes, source, from, node.dtype())
            }
            _ => {
                let sources: Vec<_> = node.src().iter().map(|src| &values[src]).collect();
                elementwise(&node, &sources)
            }
        };
        assert_eq!(value.len() as i64, shape.iter().product::<i64>(), "{}", node.op());
        values.insert(node, value);
    }
    values.remove(root).unwrap()
}

fn elementwise(node: &UOp, sources: &[&Vec<Constant>]) -> Vec<Constant> {
    (0..sources[0].len())
        .map(|i| {
            let elements: Vec<Constant> = sources.iter().map(|source| source[i]).collect();
            evaluate(node.op(), node.dtype(), &elements)
                .unwrap_or_else(|| panic!("{} of {elements:?} is undefined", node.op()))
        })
        .collect()
}

fn reduced(
    how: Op,
    axes: &[i64],
    source: &[Constant],
    from: &[i64],
    dtype: DType,
) -> Vec<Constant> {
    let mut to = from.to_vec();
    axes.iter().for_each(|axis| to[*axis as usize] = 1);
    // Stated here a second time, so that the schedule is not checked with its own constants.
    let start = match (how, dtype.int_range()) {
        (Op::Mul, None) => Constant::float(dtype, 1.0),
        (Op::Mul, Some(_)) => Constant::from_bits(dtype, 1),
        (Op::Max, None) => Constant::float(dtype, f64::NEG_INFINITY),
        (Op::Max, Some(_)) if dtype.is_signed() => {
            Constant::from_bits(dtype, 1 << (dtype.bits() - 1))
        }
        _ => Constant::from_bits(dtype, 0),
    };
    let mut result = vec![start; to.iter().product::<i64>() as usize];
    for index in indices(from) {
        let at = index.iter().zip(&to).map(|(i, n)| if *n == 1 { 0 } else { *i });
        let at = flat(&to, &at.collect::<Vec<_>>());
        let element = source[flat(from, &index)];
        result[at] = evaluate(how, dtype, &[result[at], element]).unwrap();
    }
    result
}

/// Runs the kernels and returns the outputs; checks the form of the kernels, which have several
/// reductions only with `rows`.
pub(crate) fn run(schedule: &Schedule, data: &Data, rows: bool) -> Vec<Vec<Constant>> {
    let mut memory = data.clone();
    for item in &schedule.items {
        let (written, read) = item.buffers.split_first().unwrap();
        assert!(!read.contains(written), "the written buffer is in one slot");
        let value = run_tree(&item.ast, &item.buffers, &memory, rows);
        assert_eq!(value.len() as i64, item.buffers[0].size_elements());
        memory.insert(item.buffers[0].clone(), value);
    }
    schedule.outputs.iter().map(|output| evaluate_graph_or_empty(output, &memory)).collect()
}

fn evaluate_graph_or_empty(output: &UOp, memory: &Data) -> Vec<Constant> {
    if output.shape().unwrap().contains(&0) {
        return Vec::new();
    }
    evaluate_graph(output, memory)
}

/// Evaluates a kernel tree; checks the invariants that lowering relies on.
fn run_tree(sink: &UOp, buffers: &[Buffer], memory: &Data, rows: bool) -> Vec<Constant> {
    assert_eq!(sink.op(), Op::Sink);
    let store = &sink.src()[0];
    assert_eq!(store.op(), Op::Store);
    let Arg::View(output) = store.arg() else { panic!("a store has a tracker") };
    assert!(output.is_contiguous());
    let root = &store.src()[1];
    let reductions = sink.toposort().iter().filter(|node| node.op() == Op::ReduceAxis).count();
    assert!(rows || reductions <= 1, "{reductions} folds in one kernel");
    let rank = output.shape().len();
    let mut slots = 1;
    let mut values: HashMap<UOp, Vec<Constant>> = HashMap::new();
    for node in root.toposort() {
        if matches!(node.op(), Op::Const | Op::Iota) {
            continue;
        }
        let value = match (node.op(), node.arg()) {
            (Op::DefineGlobal, Arg::Global(global)) => {
                assert!(global.slot <= slots, "slots are numbered by first appearance");
                slots = slots.max(global.slot + 1);
                assert_eq!(buffers[global.slot].size_elements(), global.size_elements);
                assert_eq!(buffers[global.slot].dtype(), node.dtype());
                assert_ne!(global.slot, 0, "the output is not read");
                memory[&buffers[global.slot]].clone()
            }
            (Op::Load, Arg::View(tracker)) => {
                let source = &values[&node.src()[0]];
                viewed(tracker, node.dtype(), &|i| source[i as usize])
            }
            (Op::View, Arg::View(tracker)) if values.contains_key(&node.src()[0]) => {
                let source = &values[&node.src()[0]];
                viewed(tracker, node.dtype(), &|i| source[i as usize])
            }
            (Op::View, Arg::View(tracker)) => match node.src()[0].arg() {
                Arg::Const(value) => viewed(tracker, node.dtype(), &|_| *value),
                Arg::Int(_) => {
                    viewed(tracker, node.dtype(), &|i| Constant::int(node.dtype(), i.into()))
                }
                arg => panic!("a view of {arg:?}"),
            },
            (Op::ReduceAxis, Arg::Reduce(how, axes)) => {
                let from = node.src()[0].shape().unwrap();
                reduced(*how, axes, &values[&node.src()[0]], from, node.dtype())
            }
            _ => {
                assert!(node.op().is_elementwise(), "{} in a kernel", node.op());
                let sources: Vec<_> = node.src().iter().map(|src| &values[src]).collect();
                let shapes: Vec<_> = node.src().iter().map(|src| src.shape()).collect();
                assert!(shapes.iter().all(|shape| *shape == node.shape()), "one shape");
                elementwise(&node, &sources)
            }
        };
        if node.op() != Op::DefineGlobal {
            assert_eq!(node.shape().unwrap().len(), rank, "one rank in a kernel");
        }
        values.insert(node, value);
    }
    assert_eq!(slots, buffers.len(), "every buffer is a parameter");
    assert_eq!(root.shape(), Some(output.shape()), "the value has the shape of the store");
    values.remove(root).unwrap()
}

fn viewed(
    tracker: &gradiff_view::ShapeTracker,
    dtype: DType,
    at: &dyn Fn(i64) -> Constant,
) -> Vec<Constant> {
    let zero = Constant::zero(dtype);
    let indices = indices(tracker.shape()).into_iter();
    indices.map(|index| tracker.locate(&index).map_or(zero, at)).collect()
}

/// Makes arrays of small numbers for every buffer under `outputs`.
pub(crate) fn data_for(outputs: &[UOp]) -> Data {
    let mut data = Data::new();
    let mut seed = 7u64;
    for node in outputs.iter().flat_map(UOp::toposort) {
        if let Arg::Buffer(buffer) = node.arg() {
            let dtype = buffer.dtype();
            let elements = (0..buffer.size_elements()).map(|_| {
                seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                Constant::int(dtype, i128::from(seed >> 33) % 9 - 4)
            });
            data.entry(buffer.clone()).or_insert_with(|| elements.collect());
        }
    }
    data
}
