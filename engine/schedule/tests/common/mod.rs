//! Evaluation of schedules and checks of their kernels, and functions to build graphs with.

use std::collections::HashMap;

use gradiff_graph::{Arg, Buffer, Constant, DType, Dims, Op, Pairs, Placement, UOp};
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

pub(crate) fn placement(device: &str) -> Placement {
    Placement::parse(device).unwrap()
}

pub(crate) fn copy(x: &UOp, device: &str) -> UOp {
    with(Op::Copy, x, Arg::Device(placement(device)))
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

/// Evaluates a node of tensor level.
pub(crate) fn evaluate_graph(root: &UOp, data: &Data) -> Vec<Constant> {
    let mut read = |buffer: &Buffer| Ok(data[buffer].iter().copied().map(Some).collect());
    let outputs = gradiff_eval::graph::evaluate(std::slice::from_ref(root), &mut read);
    defined(outputs.unwrap().remove(0))
}

fn defined(elements: gradiff_eval::Elements) -> Vec<Constant> {
    elements.into_iter().map(|element| element.expect("a defined element")).collect()
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
    schedule.outputs.iter().map(|output| evaluate_graph(output, &memory)).collect()
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
    assert!(rows || reductions <= 1, "{reductions} reductions in one kernel");
    let rank = output.shape().len();
    let mut slots = 1;
    for node in root.toposort() {
        match node.arg() {
            Arg::Global(global) => {
                assert!(global.slot <= slots, "slots are numbered by first appearance");
                slots = slots.max(global.slot + 1);
                assert_eq!(buffers[global.slot].size_elements(), global.size_elements);
                assert_eq!(buffers[global.slot].dtype(), node.dtype());
                assert_ne!(global.slot, 0, "the output is not read");
                continue;
            }
            Arg::View(_) | Arg::Reduce(..) => {}
            _ if matches!(node.op(), Op::Const | Op::Iota) => continue,
            _ => {
                assert!(node.op().is_elementwise(), "{} in a kernel", node.op());
                let shapes: Vec<_> = node.src().iter().map(|src| src.shape()).collect();
                assert!(shapes.iter().all(|shape| *shape == node.shape()), "one shape");
            }
        }
        assert_eq!(node.shape().unwrap().len(), rank, "one rank in a kernel");
    }
    assert_eq!(slots, buffers.len(), "every buffer is a parameter");
    assert_eq!(root.shape(), Some(output.shape()), "the value has the shape of the store");
    let read = buffers[1..].iter().map(|buffer| memory[buffer].iter().copied().map(Some).collect());
    let output = vec![None; buffers[0].size_elements() as usize];
    let mut memories: Vec<gradiff_eval::Elements> = std::iter::once(output).chain(read).collect();
    gradiff_eval::kernel::interpret(sink, &mut memories).unwrap();
    defined(memories.remove(0))
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
