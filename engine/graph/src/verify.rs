//! The verifier: checks the invariants of nodes and of linear uops.
//!
//! Invariants of nodes ([`verify`]):
//! 1. Every node has the kind of arg and the number of sources that its op takes.
//! 2. Elementwise: operands and result have the same dtype, except that the result of a comparison
//!    and the condition of `where` are bool, and that a cast changes the dtype. Float ops are over
//!    floats, integer ops over integers. A bitcast keeps the size and is not from or to bool.
//! 3. Shapes: those sources of an elementwise op that have a shape, and are not constants, have the
//!    same shape. Axes of movements and reductions are within the rank. A reshape keeps the number
//!    of elements, an expand repeats only axes of size 1, a shrink stays inside its source.
//!    Sources of an elementwise op are not on two devices of different names.
//! 4. Kernel trees: a load or store with a tracker is of a global array; the stored value has its
//!    dtype.
//! 5. Lowered kernels: an index is an integer (i32 or i64) into a global or local array, its gate a
//!    bool. Loads and stores use an index and keep the element type. A load may depend on a
//!    barrier, a store or a value, and a barrier on stores. The end of a range is an integer. A
//!    reduction is over ranges, by add, mul or max. A `wmma` has the operands that its tensor core
//!    takes, then a range.
//! 6. `store`, `sink` and `barrier` are void, `endrange` and `assign` may be; other nodes are not.
//!
//! Invariants of linear uops ([`verify_linear`]):
//! * Sources are before their users, and a value is used inside the loops in which it is defined.
//! * Loops are nested. Launched ranges are outside of all other loops, and no accumulator carries a
//!   value across their iterations.
//! * Lanes agree. The range of a `wmma` is the innermost local range and has one iteration for each
//!   thread of a warp.
//! * There is no op of tensor level, no view and no reduction.

use crate::tensor_core::TensorCore;
use crate::{Arg, AxisKind, DType, Instruction, Linear, Op, Placement, UOp};

/// The violation of an invariant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{location}: {problem}")]
pub struct VerifyError {
    /// The node in one line, or the position of the uop.
    pub location: String,
    /// The violated invariant, and what was found.
    pub problem: String,
}

/// Checks every node below `root`, sources first.
///
/// # Errors
/// The first node that violates an invariant.
pub fn verify(root: &UOp) -> Result<(), VerifyError> {
    for node in root.toposort() {
        let failed = |problem| VerifyError { location: format!("{node:?}"), problem };
        check_arg(&node).and_then(|()| check_node(&node)).map_err(failed)?;
    }
    Ok(())
}

/// Checks a node of a kernel tree like [`verify`], except for shapes: in a tree, axes of size 1 and
/// constants fit any shape.
///
/// # Errors
/// The invariant that the node violates.
pub fn verify_tree_node(node: &UOp) -> Result<(), VerifyError> {
    let check = || match node.op() {
        op if op.is_elementwise() => check_dtypes(node),
        Op::ReduceAxis => check_kept_dtype(node),
        _ => check_node(node),
    };
    let failed = |problem| VerifyError { location: format!("{node:?}"), problem };
    check_arg(node).and_then(|()| check_void(node)).and_then(|()| check()).map_err(failed)
}

/// Returns the problem as an error unless the condition holds.
fn ensure(is_true: bool, problem: impl FnOnce() -> String) -> Result<(), String> {
    if is_true { Ok(()) } else { Err(problem()) }
}

/// Checks invariant 1: the kind of the arg.
fn check_arg(node: &UOp) -> Result<(), String> {
    let is_valid = match (node.op(), node.arg()) {
        (Op::Const, Arg::Const(value)) => value.dtype() == node.dtype(),
        (Op::Buffer, Arg::Buffer(buffer)) => buffer.dtype() == node.dtype(),
        (Op::DefineGlobal, Arg::Global(global)) => global.size_elements >= 0,
        (Op::DefineLocal, Arg::Local(local)) => local.size_elements >= 0,
        (Op::Wmma, Arg::TensorCore(_)) => true,
        (Op::Lane, Arg::Int(lane)) => *lane >= 0,
        (Op::DefineVar, Arg::Var(variable)) => variable.min <= variable.max,
        (Op::Iota, Arg::Int(count)) => *count >= 0,
        (Op::Range, Arg::Axis(_)) => true,
        (Op::DefineAcc, Arg::Int(_) | Arg::None) => true,
        (Op::Reshape | Op::Expand | Op::Permute | Op::Flip, Arg::Dims(_)) => true,
        (Op::Pad | Op::Shrink, Arg::Pairs(_)) => true,
        (Op::View, Arg::View(_)) => true,
        (Op::Load | Op::Store, Arg::View(_) | Arg::None | Arg::Int(_)) => true,
        (Op::Store, Arg::Reduce(op, axes)) => op.row().identity.is_some() && axes.is_empty(),
        (Op::Reduce | Op::ReduceAxis, Arg::Reduce(op, _)) => op.row().identity.is_some(),
        (Op::Copy, Arg::Device(_)) => true,
        (Op::Parameter, Arg::Int(_)) => true,
        (Op::Function, Arg::Name(_)) => true,
        (op, Arg::None) => op.class() != crate::op::Class::Leaf && !takes_arg(op),
        _ => false,
    };
    ensure(is_valid, || format!("{:?} is not an arg of {}", node.arg(), node.op()))
}

/// Returns whether the op requires an arg, among ops that are not leaves.
fn takes_arg(op: Op) -> bool {
    op.is_movement()
        || matches!(
            op,
            Op::DefineGlobal
                | Op::DefineLocal
                | Op::DefineVar
                | Op::Range
                | Op::Reduce
                | Op::ReduceAxis
                | Op::Lane
                | Op::Wmma
                | Op::Copy
                | Op::Parameter
                | Op::Function
        )
}

/// Checks invariant 6: the ops without a value.
fn check_void(node: &UOp) -> Result<(), String> {
    let op = node.op();
    let is_void = node.dtype() == DType::Void;
    let may_be_void = matches!(op, Op::Sink | Op::Store | Op::Barrier | Op::EndRange | Op::Assign);
    let must_be_void = matches!(op, Op::Sink | Op::Store | Op::Barrier);
    // For bools, `<=` is "implies".
    ensure(is_void <= may_be_void && must_be_void <= is_void, || {
        format!("{op} of {}", node.dtype())
    })
}

fn check_node(node: &UOp) -> Result<(), String> {
    let op = node.op();
    check_void(node)?;
    if op.is_elementwise() {
        check_dtypes(node)?;
        check_devices(node)?;
        return check_shapes(node);
    }
    if op.is_movement() || op.is_marker() || op == Op::ReduceAxis {
        check_kept_dtype(node)?;
        let is_shapeless = |source: &&UOp| source.shape().is_none();
        if let Some(source) = node.src().iter().find(is_shapeless) {
            return Err(format!("{op} of {source:?}, which has no shape"));
        }
        return check_movement(node);
    }
    check_kernel(node)
}

/// Checks that the node has the dtype of its source.
fn check_kept_dtype(node: &UOp) -> Result<(), String> {
    let (op, source) = (node.op(), node.src()[0].dtype());
    ensure(source == node.dtype(), || format!("{op} turns {source} into {}", node.dtype()))
}

/// Checks invariant 2.
fn check_dtypes(node: &UOp) -> Result<(), String> {
    let (op, to) = (node.op(), node.dtype());
    let values = if op == Op::Where { &node.src()[1..] } else { node.src() };
    let from = values[0].dtype();
    ensure(values.iter().all(|value| value.dtype() == from), || format!("{op} of two dtypes"))?;
    ensure(from != DType::Void, || format!("{op} of a void node"))?;
    let is_valid = match op {
        Op::Cast => true,
        Op::Bitcast => {
            let is_bool = from == DType::Bool || to == DType::Bool;
            from == to || from.size_bytes() == to.size_bytes() && !is_bool
        }
        Op::Where => to == from && node.src()[0].dtype() == DType::Bool,
        op if op.is_comparison() => to == DType::Bool,
        op => to == from && op.row().operands.contains(from),
    };
    ensure(is_valid, || format!("{op} turns {from} into {to}"))
}

/// Checks invariant 3 for an elementwise op.
fn check_shapes(node: &UOp) -> Result<(), String> {
    let shaped = node.src().iter().filter(|source| source.op() != Op::Const);
    let mut shapes = shaped.filter_map(|source| source.shape());
    let Some(first) = shapes.next() else { return Ok(()) };
    match shapes.find(|shape| *shape != first) {
        Some(second) => Err(format!("{} of shapes {first:?} and {second:?}", node.op())),
        None => Ok(()),
    }
}

/// Checks that the sources of an elementwise op are not on two devices of different names.
fn check_devices(node: &UOp) -> Result<(), String> {
    let mut devices = node.src().iter().filter_map(UOp::device);
    let named = devices.find(|device| **device != Placement::Default);
    let Some(first) = named else { return Ok(()) };
    match devices.find(|device| device.differs_from(first)) {
        Some(second) => Err(format!("{} of sources on {first} and {second}", node.op())),
        None => Ok(()),
    }
}

/// Checks invariant 3 for a movement op or a reduction.
fn check_movement(node: &UOp) -> Result<(), String> {
    let Some(shape) = node.src()[0].shape() else {
        return Err(format!("{} of a source without a shape", node.op()));
    };
    let rank = shape.len();
    let problem = || format!("{:?} of shape {shape:?}", node);
    let are_distinct_axes = |axes: &[i64]| {
        axes.iter().all(|axis| 0 <= *axis && *axis < rank as i64)
            && axes.iter().enumerate().all(|(index, axis)| !axes[..index].contains(axis))
    };
    let count = |sizes: &[i64]| sizes.iter().try_fold(1i64, |n, size| n.checked_mul(*size));
    let is_valid = match (node.op(), node.arg()) {
        (Op::Reshape, Arg::Dims(to)) => {
            to.iter().all(|size| 0 <= *size) && count(to).is_some() && count(to) == count(shape)
        }
        (Op::Expand, Arg::Dims(to)) => {
            let fits = |(from, to): (&i64, &i64)| from == to || *from == 1 && 0 <= *to;
            to.len() == rank && shape.iter().zip(to).all(fits)
        }
        (Op::Permute, Arg::Dims(axes)) => axes.len() == rank && are_distinct_axes(axes),
        (Op::Flip, Arg::Dims(axes)) => are_distinct_axes(axes) && axes.is_sorted(),
        (Op::Pad, Arg::Pairs(pads)) => {
            pads.len() == rank && pads.iter().all(|(before, after)| 0 <= *before && 0 <= *after)
        }
        (Op::Shrink, Arg::Pairs(ranges)) => {
            let fits = |((start, end), size): (&(i64, i64), &i64)| {
                0 <= *start && start <= end && end <= size
            };
            ranges.len() == rank && ranges.iter().zip(shape).all(fits)
        }
        (Op::ReduceAxis, Arg::Reduce(_, axes)) => are_distinct_axes(axes) && axes.is_sorted(),
        _ => true,
    };
    // The sizes of a pad may exceed an i64.
    ensure(is_valid && node.shape().is_some(), problem)
}

/// Checks invariants 4 and 5.
fn check_kernel(node: &UOp) -> Result<(), String> {
    let src = node.src();
    let is_global = |uop: &UOp| uop.op() == Op::DefineGlobal;
    let is_array = |uop: &UOp| matches!(uop.op(), Op::DefineGlobal | Op::DefineLocal);
    let is_index = |uop: &UOp| uop.op() == Op::Index;
    let is_valid = match (node.op(), node.arg()) {
        (Op::Index, _) => {
            let is_gated_by_bool = src.get(2).is_none_or(|gate| gate.dtype() == DType::Bool);
            let is_integer = matches!(src[1].dtype(), DType::I32 | DType::I64);
            is_array(&src[0]) && is_integer && is_gated_by_bool && src[0].dtype() == node.dtype()
        }
        (Op::Load, Arg::View(_)) => is_global(&src[0]) && src[0].dtype() == node.dtype(),
        (Op::Load, _) => {
            // The second source is run before the load: a barrier, a store, or the value of the
            // reduction whose loops contain the stores.
            let is_value =
                |uop: &UOp| uop.dtype() != DType::Void && !is_array(uop) && !is_index(uop);
            let is_dependency =
                |uop: &UOp| matches!(uop.op(), Op::Barrier | Op::Store) || is_value(uop);
            let has_dependency = src.get(1).is_none_or(is_dependency);
            is_index(&src[0]) && src[0].dtype() == node.dtype() && has_dependency
        }
        // Stores, and the loops that they are in.
        (Op::Barrier, _) => src.iter().all(|uop| matches!(uop.op(), Op::Store | Op::Range)),
        (Op::Store, Arg::View(_)) => is_global(&src[0]) && src[0].dtype() == src[1].dtype(),
        (Op::Store, _) => is_index(&src[0]) && src[0].dtype() == src[1].dtype(),
        (Op::Range, _) => src[0].dtype() == node.dtype() && node.dtype().is_int(),
        (Op::Reduce, _) => {
            let are_ranges = src[1..].iter().all(|range| range.op() == Op::Range);
            are_ranges && src[0].dtype() == node.dtype()
        }
        (Op::EndRange, _) => src[0].op() == Op::Range,
        (Op::Wmma, Arg::TensorCore(core)) => has_wmma_operands(node, core),
        (Op::Vectorize, _) => src.iter().all(|uop| uop.dtype() == node.dtype()),
        (Op::DefineAcc | Op::Lane, _) => src[0].dtype() == node.dtype(),
        (Op::Assign, _) => src[0].op() == Op::DefineAcc && src[0].dtype() == src[1].dtype(),
        _ => true,
    };
    let sources = || src.iter().map(|uop| format!("{uop:?}")).collect::<Vec<_>>().join(", ");
    ensure(is_valid, || format!("{} of ({})", node.op(), sources()))
}

/// Returns whether the operands of a `wmma` are those that its tensor core takes: the elements or
/// the vectors of A and B, the accumulator or the index of an element, and the range.
fn has_wmma_operands(node: &UOp, core: &TensorCore) -> bool {
    let [a, b] = [0, 1].map(|matrix| core.elements(matrix));
    let Some((range, operands)) = node.src().split_last() else { return false };
    let Some((last, operands)) = operands.split_last() else { return false };
    let has_count = match last.dtype() {
        DType::F32 => operands.len() == 2,
        dtype => dtype.is_int() && operands.len() == a + b,
    };
    let are_elements = operands.iter().all(|operand| operand.dtype() == core.operand_dtype);
    has_count && are_elements && range.op() == Op::Range && node.dtype() == DType::F32
}

/// Checks that the range of a `wmma` is that of the threads of a warp.
fn check_warp(linear: &Linear, uop: &Instruction) -> Result<(), String> {
    let Arg::TensorCore(core) = uop.arg else { return Ok(()) };
    let expected = uop.src.last().map(|range| (*range, core.threads));
    ensure(linear.launched(AxisKind::Local).last().copied() == expected, || {
        format!("its last source is not the innermost local range, of {} threads", core.threads)
    })
}

/// Checks the order, the loops and the ops of a linear kernel.
///
/// # Errors
/// The first uop that violates an invariant.
pub fn verify_linear(linear: &Linear) -> Result<(), VerifyError> {
    let mut loops = Loops::default();
    for (position, uop) in linear.uops.iter().enumerate() {
        let location = || format!("uop {position} ({})", uop.op);
        check_op(uop)
            .and_then(|()| loops.check_sources(linear, position))
            .and_then(|()| check_lanes(linear, uop))
            .and_then(|()| check_warp(linear, uop))
            .and_then(|()| loops.advance(linear, position))
            .map_err(|problem| VerifyError { location: location(), problem })?;
    }
    match loops.open.last() {
        Some(range) => Err(VerifyError {
            location: format!("uop {range} (range)"),
            problem: "the loop never ends".to_owned(),
        }),
        None => Ok(()),
    }
}

/// Checks that the op is of the linear level and has the number of sources that it takes.
fn check_op(uop: &Instruction) -> Result<(), String> {
    let (min, max) = uop.op.row().arity;
    ensure((min..=max).contains(&uop.src.len()), || format!("{} sources", uop.src.len()))?;
    ensure(is_linear(uop.op), || "the op is not of the linear level".to_owned())
}

/// The loops around the uops of a linear kernel, up to one of them. A loop is named by the position
/// of its range.
#[derive(Default)]
struct Loops {
    /// The loops that have not ended, the innermost last.
    open: Vec<usize>,
    /// The loops that each uop is in.
    around: Vec<Vec<usize>>,
}

impl Loops {
    /// Checks that the sources of the next uop are before it, and not in loops that have ended. Two
    /// kinds of sources may be: the range that `endrange` ends, and an accumulator, whose last
    /// value is read.
    fn check_sources(&self, linear: &Linear, position: usize) -> Result<(), String> {
        let uop = &linear.uops[position];
        for source in uop.src.iter().map(|source| *source as usize) {
            ensure(source < position, || format!("source {source} is not before it"))?;
            let is_closing = uop.op == Op::EndRange || linear.uops[source].op == Op::DefineAcc;
            let is_visible = self.around[source].iter().all(|range| self.open.contains(range));
            ensure(is_closing || is_visible, || {
                format!("source {source} is in a loop that has ended")
            })?;
        }
        Ok(())
    }

    /// Checks that loops are nested, launched ranges outermost, and that no value is carried across
    /// the iterations of a launched range; then adds the next uop.
    fn advance(&mut self, linear: &Linear, position: usize) -> Result<(), String> {
        let uop = &linear.uops[position];
        let is_loop = |range: &usize| !is_launched(&linear.uops[*range]);
        let problem = match uop.op {
            Op::Assign if self.open.iter().any(|range| carries(linear, uop, *range)) => {
                Some("it carries a value across iterations of a launched range".to_owned())
            }
            Op::Range if is_launched(uop) && self.open.iter().any(is_loop) => {
                Some("a launched range is inside a loop".to_owned())
            }
            Op::Range => {
                self.open.push(position);
                None
            }
            Op::EndRange if self.open.pop() != Some(uop.src[0] as usize) => {
                Some(format!("range {} is not the innermost open one", uop.src[0]))
            }
            _ => None,
        };
        self.around.push(self.open.clone());
        problem.map_or(Ok(()), Err)
    }
}

/// Checks a linear kernel that this process did not make, such as one read from text: does what
/// [`verify_linear`] does, and checks that each uop is a node that [`verify`] accepts and that its
/// sources are of the kinds that the op takes.
///
/// # Errors
/// The first uop that violates an invariant.
pub fn verify_kernel(linear: &Linear) -> Result<(), VerifyError> {
    verify_linear(linear)?;
    let mut nodes: Vec<UOp> = Vec::with_capacity(linear.uops.len());
    for (position, uop) in linear.uops.iter().enumerate() {
        let sources = uop.src.iter().map(|source| nodes[*source as usize].clone());
        let node = UOp::new(uop.op, uop.dtype, sources, uop.arg.clone());
        let location = format!("uop {position} ({})", uop.op);
        let failed = |problem| VerifyError { location, problem };
        let check = || check_sources(linear, uop).and_then(|()| check_arg(&node));
        check().and_then(|()| check_node(&node)).map_err(failed)?;
        nodes.push(node);
    }
    Ok(())
}

/// Returns whether a uop with this op is a value of its dtype, not an address or an effect.
pub(crate) fn is_value(op: Op) -> bool {
    op.is_elementwise()
        || matches!(
            op,
            Op::Const | Op::Range | Op::Load | Op::DefineAcc | Op::Vectorize | Op::Lane | Op::Wmma
        )
}

/// Checks that each source is of a kind that the op takes: neither an address nor an effect is a
/// value.
fn check_sources(linear: &Linear, uop: &Instruction) -> Result<(), String> {
    let op_of = |source: &u32| linear.uops[*source as usize].op;
    let is_array = |op: Op| matches!(op, Op::DefineGlobal | Op::DefineLocal);
    let fits = |number: usize, source: &u32| match (uop.op, number, op_of(source)) {
        (Op::Index, 0, from) => is_array(from),
        (Op::Load | Op::Store, 0, from) => from == Op::Index,
        (Op::Load, 1, Op::Barrier | Op::Store) => true,
        (Op::Barrier, _, from) => from == Op::Store,
        (Op::Assign, 0, from) => from == Op::DefineAcc,
        (Op::EndRange, _, from) => from == Op::Range,
        (Op::Sink, ..) => true,
        (_, _, from) => is_value(from),
    };
    let is_supported = is_value(uop.op)
        || is_array(uop.op)
        || matches!(
            uop.op,
            Op::Index | Op::Store | Op::EndRange | Op::Assign | Op::Barrier | Op::Sink
        );
    if !is_supported || matches!(uop.arg, Arg::View(_) | Arg::Reduce(..)) {
        return Err("the op is not supported in a checked kernel".to_owned());
    }
    match uop.src.iter().enumerate().find(|(number, source)| !fits(*number, source)) {
        Some((_, source)) => Err(format!("source {source} is {}", op_of(source))),
        None => Ok(()),
    }
}

fn is_launched(range: &Instruction) -> bool {
    matches!(range.arg, Arg::Axis(axis) if axis.kind.is_launched())
}

/// Returns whether an accumulator that is defined outside of a launched range is assigned inside
/// it.
fn carries(linear: &Linear, assign: &Instruction, range: usize) -> bool {
    is_launched(&linear.uops[range]) && (assign.src[0] as usize) < range
}

/// Checks that the lanes of a uop and of its sources agree.
fn check_lanes(linear: &Linear, uop: &Instruction) -> Result<(), String> {
    let lanes =
        |number: usize| uop.src.get(number).map_or(1, |source| linear.uops[*source as usize].lanes);
    let all_have = |count: u8| (0..uop.src.len()).all(|number| lanes(number) == count);
    let is_valid = match (uop.op, &uop.arg) {
        (Op::Vectorize, _) => {
            1 < uop.lanes && all_have(1) && [1, uop.lanes.into()].contains(&uop.src.len())
        }
        (Op::Lane, Arg::Int(lane)) => uop.lanes == 1 && *lane < i64::from(lanes(0)),
        (Op::Load, _) => all_have(1),
        (Op::Store, _) => uop.lanes == 1 && lanes(0) == 1,
        (Op::Wmma, Arg::TensorCore(core)) if uop.src.len() == 4 => {
            let count = [0, 1, 2].map(|matrix| core.elements(matrix) as u8);
            [0, 1, 2].map(lanes) == count && uop.lanes == count[2] && lanes(3) == 1
        }
        (Op::DefineAcc, _) => lanes(0) == uop.lanes,
        (Op::Assign, _) => all_have(uop.lanes),
        (op, _) if op.is_elementwise() => all_have(uop.lanes),
        _ => uop.lanes == 1 && all_have(1),
    };
    let source_lanes: Vec<u8> = (0..uop.src.len()).map(lanes).collect();
    ensure(is_valid && uop.lanes != 0, || {
        format!("{} lanes of sources of {source_lanes:?}", uop.lanes)
    })
}

fn is_linear(op: Op) -> bool {
    let is_tensor_level = matches!(op, Op::Buffer | Op::Iota) || op.is_marker();
    !op.is_movement() && !is_tensor_level && !matches!(op, Op::Reduce | Op::ReduceAxis)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::parse_text;
    use crate::{Buffer, Dims};
    use smallvec::smallvec;

    fn check(text: &str, problem: Option<&str>) {
        let found = verify(&parse_text(text).expect("it parses")).err();
        match (problem, &found) {
            (None, None) => {}
            (Some(problem), Some(error)) if error.to_string().contains(problem) => {}
            _ => panic!("{text}: {found:?}"),
        }
    }

    #[test]
    fn verify_accepts_and_refuses() {
        let data = "%0 = buffer f32 #0 6\n";
        check(&format!("{data}%1 = reshape f32 %0 [2, 3]"), None);
        check(&format!("{data}%1 = reshape f32 %0 [2, 4]"), Some("[2, 4] of shape [6]"));
        check(&format!("{data}%1 = expand f32 %0 [7]"), Some("of shape [6]"));
        check(&format!("{data}%1 = permute f32 %0 [1]"), Some("of shape [6]"));
        check(&format!("{data}%1 = shrink f32 %0 [(2, 7)]"), Some("of shape [6]"));
        check(&format!("{data}%1 = pad f32 %0 [(2, 7)]"), None);
        let pad = format!("{data}%1 = pad f32 %0 [({0}, {0})]\n", i64::MAX);
        check(&pad, Some("of shape [6]"));
        check(&format!("{pad}%2 = add f32 %0 %1"), Some("of shape [6]"));
        check(&format!("{data}%1 = reduce_axis f32 %0 add [0]"), None);
        check(&format!("{data}%1 = reduce_axis f32 %0 sub [0]"), Some("is not an arg"));
        check(&format!("{data}%1 = cmplt f32 %0 %0"), Some("turns f32 into f32"));
        check(&format!("{data}%1 = xor f32 %0 %0"), Some("turns f32 into f32"));
        check(&format!("{data}%1 = bitcast f64 %0"), Some("turns f32 into f64"));
        check(&format!("{data}%1 = load f32 %0"), Some("load of (buffer:f32"));
        let sum = "%1 = buffer f32 #1 5\n%2 = add f32 %0 %1";
        check(&format!("{data}{sum}"), Some("shapes [6] and [5]"));
        let there = format!("{data}%1 = buffer f32 #1 6 jit\n%2 = copy f32 %0 jit\n");
        check(&format!("{there}%3 = add f32 %1 %2"), None);
        check(&format!("{there}%3 = copy f32 %1 c\n%4 = add f32 %0 %3"), None);
        check(&format!("{there}%3 = copy f32 %1 c\n%4 = add f32 %2 %3"), Some("on jit and c"));
        check(&format!("{there}%3 = copy i32 %1 c"), Some("turns f32 into i32"));
        let index = "%0 = define_global f32 data0 4\n%1 = const i32 2\n";
        check(&format!("{index}%2 = index f32 %0 %1\n%3 = load f32 %2"), None);
        check(&format!("{index}%2 = index f32 %0 %1 %1"), Some("index of"));
        check(&format!("{index}%2 = add i32 %1 %0"), Some("two dtypes"));
    }

    #[test]
    fn verify_checks_groups() {
        let head = "%0 = define_local f32 local0 4\n%1 = const i32 4\n%2 = range i32 %1 0l\n\
                    %3 = index f32 %0 %2\n%4 = const f32 1\n%5 = store void %3 %4\n";
        check(&format!("{head}%6 = barrier void %5\n%7 = load f32 %3 %6"), None);
        check(&format!("{head}%6 = load f32 %3 %5"), None);
        check(&format!("{head}%6 = load f32 %3 %3"), Some("load of"));
        check(&format!("{head}%6 = barrier void %4"), Some("barrier of"));
        check(&format!("{head}%6 = barrier f32 %5"), Some("barrier of f32"));
    }

    #[test]
    fn verify_linear_checks_lanes_and_launched_ranges() {
        let row = |op, src: &[u32], arg| Instruction::new(op, DType::I32, src.iter().copied(), arg);
        let four = Arg::Const(crate::Constant::int(DType::I32, 4));
        let axis = |kind| Arg::Axis(crate::Axis { kind, number: 0 });
        let good = vec![
            row(Op::Const, &[], four),
            row(Op::Range, &[0], axis(crate::AxisKind::Local)),
            row(Op::Range, &[0], axis(crate::AxisKind::Loop)),
            Instruction { lanes: 4, ..row(Op::Vectorize, &[2], Arg::None) },
            Instruction { lanes: 4, ..row(Op::Add, &[3, 3], Arg::None) },
            row(Op::Lane, &[4], Arg::Int(3)),
            row(Op::EndRange, &[2], Arg::None),
            row(Op::EndRange, &[1], Arg::None),
        ];
        let broken = |change: &dyn Fn(&mut Vec<Instruction>)| {
            let mut uops = good.clone();
            change(&mut uops);
            verify_linear(&Linear { name: "E_4".to_owned(), uops }).is_err()
        };
        assert!(!broken(&|_| ()));
        assert!(broken(&|uops| uops[4].lanes = 2));
        assert!(broken(&|uops| uops[5].arg = Arg::Int(4)));
        assert!(broken(&|uops| uops[3].src = smallvec![2, 2]));
        assert!(broken(&|uops| {
            uops[1].arg = axis(crate::AxisKind::Loop);
            uops[2].arg = axis(crate::AxisKind::Local);
        }));
        // `launched` is called while later uops are not verified yet.
        let source = vec![row(Op::Range, &[9], axis(crate::AxisKind::Local))];
        let linear = Linear { name: "E_4".to_owned(), uops: source };
        assert_eq!(linear.launched(crate::AxisKind::Local), []);
    }

    #[test]
    fn verify_refuses_a_buffer_of_another_dtype() {
        let buffer = Arg::Buffer(Buffer::new(DType::I32, 3));
        assert!(verify(&UOp::new(Op::Buffer, DType::F32, [], buffer)).is_err());
        let flip = Arg::Dims(Dims::from_slice(&[0]));
        let constant = UOp::int(DType::I32, 3);
        assert!(verify(&UOp::new(Op::Flip, DType::I32, [constant], flip)).is_err());
    }

    #[test]
    fn verify_linear_checks_loops() {
        let uop = |op, src: &[u32], arg| Instruction::new(op, DType::I32, src.iter().copied(), arg);
        let three = Arg::Const(crate::Constant::int(DType::I32, 3));
        let good = vec![
            uop(Op::Const, &[], three.clone()),
            uop(Op::Range, &[0], Arg::plain_axis(0)),
            uop(Op::Add, &[1, 0], Arg::None),
            uop(Op::EndRange, &[1], Arg::None),
        ];
        let linear = |uops: &[Instruction]| Linear { name: "E_3".to_owned(), uops: uops.to_vec() };
        assert_eq!(verify_linear(&linear(&good)), Ok(()));
        assert!(verify_linear(&linear(&good[..3])).is_err());
        let mut used_outside = good.clone();
        used_outside.push(uop(Op::Neg, &[2], Arg::None));
        assert!(verify_linear(&linear(&used_outside)).is_err());
        let mut early = good.clone();
        early[2].src = smallvec![3, 0];
        assert!(verify_linear(&linear(&early)).is_err());
    }
}
