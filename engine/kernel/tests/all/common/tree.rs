//! Interprets a kernel tree, element by element: the reference for the passes.

use gradiff_graph::{Arg, Constant, Op, UOp, evaluate};
use gradiff_view::ShapeTracker;

use super::Memories;

/// Runs a tree. Sizes are those before any reduction.
pub(crate) fn run(sink: &UOp, sizes: &[i64], memories: &mut Memories) {
    for store in sink.src() {
        let Arg::View(tracker) = store.arg() else { panic!("a store of a tree") };
        let slot = slot(&store.src()[0]);
        for counters in indices(tracker.shape()) {
            let value = element(&store.src()[1], &counters, sizes, memories);
            if let Some(index) = tracker.locate(&counters) {
                memories[slot][usize::try_from(index).expect("a place")] = value;
            }
        }
    }
}

fn element(node: &UOp, index: &[i64], sizes: &[i64], memories: &Memories) -> Option<Constant> {
    let zero = Constant::zero(node.dtype());
    match (node.op(), node.arg()) {
        (Op::Const, Arg::Const(value)) => Some(*value),
        (Op::Load, Arg::View(tracker)) => match locate(tracker, index) {
            Some(at) => memories[slot(&node.src()[0])][usize::try_from(at).expect("a place")],
            None => Some(zero),
        },
        (Op::View, _) if node.src()[0].op() == Op::ReduceAxis => {
            element(&node.src()[0], index, sizes, memories)
        }
        (Op::View, Arg::View(tracker)) => {
            match (locate(tracker, index), node.src()[0].as_const()) {
                (None, _) => Some(zero),
                (_, Some(value)) => Some(value),
                (Some(at), None) => Some(Constant::int(node.dtype(), i128::from(at))),
            }
        }
        (Op::ReduceAxis, Arg::Reduce(op, axes)) => {
            let counts: Vec<i64> = axes.iter().map(|axis| sizes[*axis as usize]).collect();
            let mut total = Some(match op {
                Op::Add => zero,
                Op::Mul => Constant::one(node.dtype()),
                _ => Constant::smallest(node.dtype()),
            });
            for counters in indices(&counts) {
                let mut index = index.to_vec();
                axes.iter()
                    .zip(&counters)
                    .for_each(|(axis, counter)| index[*axis as usize] = *counter);
                let value = element(&node.src()[0], &index, sizes, memories);
                total = match (total, value) {
                    (Some(x), Some(y)) => evaluate(*op, node.dtype(), &[x, y]),
                    _ => None,
                };
            }
            total
        }
        (Op::Where, _) => {
            let is_true = element(&node.src()[0], index, sizes, memories)?.is_true();
            element(&node.src()[if is_true { 1 } else { 2 }], index, sizes, memories)
        }
        (op, _) => {
            let src: Option<Vec<Constant>> =
                node.src().iter().map(|src| element(src, index, sizes, memories)).collect();
            evaluate(op, node.dtype(), &src?)
        }
    }
}

fn slot(global: &UOp) -> usize {
    match global.arg() {
        Arg::Global(global) => global.slot,
        other => panic!("memory that is {other:?}"),
    }
}

/// Returns the offset of an element; the index along an axis of size 1 is ignored.
fn locate(tracker: &ShapeTracker, index: &[i64]) -> Option<i64> {
    let pairs = index.iter().zip(tracker.shape());
    let index: Vec<i64> = pairs.map(|(index, size)| if *size == 1 { 0 } else { *index }).collect();
    tracker.locate(&index)
}

/// All indices of a shape, row by row.
pub(crate) fn indices(shape: &[i64]) -> Vec<Vec<i64>> {
    let mut all = vec![Vec::new()];
    for size in shape {
        let longer = |index: Vec<i64>| {
            (0..*size).map(move |last| index.iter().copied().chain([last]).collect())
        };
        all = all.into_iter().flat_map(longer).collect();
    }
    all
}
