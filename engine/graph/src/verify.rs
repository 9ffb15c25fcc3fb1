//! The verifier: what must hold of every node, at every level.
//!
//! Invariants of nodes ([`verify`]):
//! 1. Every node carries the kind of arg that its op takes, and as many sources.
//! 2. Elementwise: operands have one dtype, the result has it too (bool for comparisons); the
//!    condition of `where` is bool; float ops are of floats, integer ops of integers; a bitcast
//!    keeps the size.
//! 3. Shapes: elementwise sources that have a shape have the same one, but for constants; axes of
//!    movements and reductions lie within the rank; a reshape keeps the count; an expand repeats
//!    only axes of size 1; a shrink stays inside.
//! 4. Tree: a load or store at a tracker has a global; the stored value has its dtype.
//! 5. Lowered: an index is an integer (i32 or i64) into a global, its gate bool; loads and stores
//!    go through an index and keep the element type; a range counts to an integer constant or
//!    expression; a reduction folds over ranges with add, mul or max.
//! 6. `store`, `sink`, `endrange` and `assign` of no value are void; what has a value is not.
//!
//! Invariants of linear uops ([`verify_linear`]): sources stand before their users; loops nest; a
//! value is used inside the loops that it was made in; accumulators stand before the loops that
//! change them; there is no tensor-level op, no view and no reduction left.

use crate::{Arg, DType, Linear, Op, UOp};

/// The node, or the uop, at which an invariant is broken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {problem}")]
pub struct VerifyError {
    /// The node in one line, or the position of the uop.
    pub place: String,
    /// Which invariant, with what stands there.
    pub problem: String,
}

/// Checks every node below `root`, sources first.
///
/// # Errors
/// The first node that breaks an invariant.
pub fn verify(root: &UOp) -> Result<(), VerifyError> {
    for node in root.toposort() {
        let failed = |problem| VerifyError { place: format!("{node:?}"), problem };
        check_arg(&node).and_then(|()| check_node(&node)).map_err(failed)?;
    }
    Ok(())
}

fn ensure(is_true: bool, problem: impl FnOnce() -> String) -> Result<(), String> {
    if is_true { Ok(()) } else { Err(problem()) }
}

fn check_arg(node: &UOp) -> Result<(), String> {
    let is_right = match (node.op(), node.arg()) {
        (Op::Const, Arg::Const(value)) => value.dtype() == node.dtype(),
        (Op::Buffer, Arg::Buffer(buffer)) => buffer.dtype() == node.dtype(),
        (Op::DefineGlobal, Arg::Global(global)) => global.size_elements >= 0,
        (Op::DefineVar, Arg::Var(variable)) => variable.min <= variable.max,
        (Op::Iota, Arg::Int(count)) => *count >= 0,
        (Op::Range, Arg::Axis(_)) => true,
        (Op::DefineAcc, Arg::Int(_) | Arg::None) => true,
        (Op::Reshape | Op::Expand | Op::Permute | Op::Flip, Arg::Dims(_)) => true,
        (Op::Pad | Op::Shrink, Arg::Pairs(_)) => true,
        (Op::View, Arg::View(_)) => true,
        (Op::Load | Op::Store, Arg::View(_) | Arg::None) => true,
        (Op::Reduce | Op::ReduceAxis, Arg::Reduce(op, _)) => {
            matches!(op, Op::Add | Op::Mul | Op::Max)
        }
        (op, Arg::None) => op.class() != crate::Class::Leaf && !takes_arg(op),
        _ => false,
    };
    ensure(is_right, || format!("{:?} is no arg of {}", node.arg(), node.op()))
}

fn takes_arg(op: Op) -> bool {
    op.is_movement()
        || matches!(op, Op::DefineGlobal | Op::DefineVar | Op::Range | Op::Reduce | Op::ReduceAxis)
}

fn check_node(node: &UOp) -> Result<(), String> {
    let op = node.op();
    let is_void = node.dtype() == DType::Void;
    let may_be_void = matches!(op, Op::Sink | Op::Store | Op::EndRange | Op::Assign);
    let must_be_void = matches!(op, Op::Sink | Op::Store);
    ensure(is_void <= may_be_void && must_be_void <= is_void, || {
        format!("{op} of {}", node.dtype())
    })?;
    if op.is_elementwise() {
        check_dtypes(node)?;
        return check_shapes(node);
    }
    if op.is_movement() || matches!(op, Op::Contiguous | Op::Detach | Op::ReduceAxis) {
        let source = node.src()[0].dtype();
        ensure(source == node.dtype(), || format!("{op} turns {source} into {}", node.dtype()))?;
        return check_movement(node);
    }
    check_kernel(node)
}

fn check_dtypes(node: &UOp) -> Result<(), String> {
    let (op, to) = (node.op(), node.dtype());
    let values = if op == Op::Where { &node.src()[1..] } else { node.src() };
    let from = values[0].dtype();
    ensure(values.iter().all(|value| value.dtype() == from), || format!("{op} of two dtypes"))?;
    ensure(from != DType::Void, || format!("{op} of no value"))?;
    let is_right = match op {
        Op::Cast => true,
        Op::Bitcast => from.size_bytes() == to.size_bytes(),
        Op::Where => to == from && node.src()[0].dtype() == DType::Bool,
        Op::CmpLt | Op::CmpNe => to == DType::Bool,
        Op::Exp2 | Op::Log2 | Op::Sin | Op::Sqrt | Op::Recip | Op::FDiv | Op::Pow => {
            to == from && to.is_float()
        }
        Op::CDiv | Op::CMod | Op::FloorDiv | Op::FloorMod | Op::Shl | Op::Shr => {
            to == from && to.is_int()
        }
        Op::And | Op::Or | Op::Xor => to == from && !to.is_float(),
        Op::Threefry => to == from && to == DType::U64,
        Op::Neg => to == from && to != DType::Bool,
        _ => to == from,
    };
    ensure(is_right, || format!("{op} turns {from} into {to}"))
}

fn check_shapes(node: &UOp) -> Result<(), String> {
    let shaped = node.src().iter().filter(|source| source.op() != Op::Const);
    let mut shapes = shaped.filter_map(|source| source.shape());
    let Some(first) = shapes.next() else { return Ok(()) };
    match shapes.find(|shape| *shape != first) {
        Some(other) => Err(format!("{} of shapes {first:?} and {other:?}", node.op())),
        None => Ok(()),
    }
}

fn check_movement(node: &UOp) -> Result<(), String> {
    let Some(shape) = node.src()[0].shape() else {
        return Err(format!("{} of a source without a shape", node.op()));
    };
    let rank = shape.len();
    let wrong = || format!("{:?} of shape {shape:?}", node);
    let is_below_rank = |axes: &[i64]| {
        axes.iter().all(|axis| 0 <= *axis && *axis < rank as i64)
            && axes.iter().enumerate().all(|(place, axis)| !axes[..place].contains(axis))
    };
    let count = |sizes: &[i64]| sizes.iter().try_fold(1i64, |n, size| n.checked_mul(*size));
    let is_right = match (node.op(), node.arg()) {
        (Op::Reshape, Arg::Dims(to)) => {
            to.iter().all(|size| 0 <= *size) && count(to).is_some() && count(to) == count(shape)
        }
        (Op::Expand, Arg::Dims(to)) => {
            let fits = |(from, to): (&i64, &i64)| from == to || *from == 1 && 0 <= *to;
            to.len() == rank && shape.iter().zip(to).all(fits)
        }
        (Op::Permute, Arg::Dims(axes)) => axes.len() == rank && is_below_rank(axes),
        (Op::Flip, Arg::Dims(axes)) => is_below_rank(axes) && axes.is_sorted(),
        (Op::Pad, Arg::Pairs(pads)) => {
            pads.len() == rank && pads.iter().all(|(before, after)| 0 <= *before && 0 <= *after)
        }
        (Op::Shrink, Arg::Pairs(ranges)) => {
            let fits = |((start, end), size): (&(i64, i64), &i64)| {
                0 <= *start && start <= end && end <= size
            };
            ranges.len() == rank && ranges.iter().zip(shape).all(fits)
        }
        (Op::ReduceAxis, Arg::Reduce(_, axes)) => is_below_rank(axes) && axes.is_sorted(),
        _ => true,
    };
    ensure(is_right, wrong)
}

fn check_kernel(node: &UOp) -> Result<(), String> {
    let src = node.src();
    let is_global = |uop: &UOp| uop.op() == Op::DefineGlobal;
    let is_index = |uop: &UOp| uop.op() == Op::Index;
    let is_right = match (node.op(), node.arg()) {
        (Op::Index, _) => {
            let gate = src.get(2).is_none_or(|gate| gate.dtype() == DType::Bool);
            let is_position = matches!(src[1].dtype(), DType::I32 | DType::I64);
            is_global(&src[0]) && is_position && gate && src[0].dtype() == node.dtype()
        }
        (Op::Load, Arg::View(_)) => is_global(&src[0]) && src[0].dtype() == node.dtype(),
        (Op::Load, _) => is_index(&src[0]) && src[0].dtype() == node.dtype(),
        (Op::Store, Arg::View(_)) => is_global(&src[0]) && src[0].dtype() == src[1].dtype(),
        (Op::Store, _) => is_index(&src[0]) && src[0].dtype() == src[1].dtype(),
        (Op::Range, _) => src[0].dtype() == node.dtype() && node.dtype().is_int(),
        (Op::Reduce, _) => {
            let are_ranges = src[1..].iter().all(|range| range.op() == Op::Range);
            are_ranges && src[0].dtype() == node.dtype()
        }
        (Op::EndRange, _) => src[0].op() == Op::Range,
        (Op::DefineAcc, _) => src[0].dtype() == node.dtype(),
        (Op::Assign, _) => src[0].op() == Op::DefineAcc && src[0].dtype() == src[1].dtype(),
        _ => true,
    };
    let sources = || src.iter().map(|uop| format!("{uop:?}")).collect::<Vec<_>>().join(", ");
    ensure(is_right, || format!("{} of ({})", node.op(), sources()))
}

/// Checks the order, the loops and the ops of a linear kernel.
///
/// # Errors
/// The first uop that breaks an invariant.
pub fn verify_linear(linear: &Linear) -> Result<(), VerifyError> {
    let mut open: Vec<usize> = Vec::new();
    // The loops that each uop was made in.
    let mut made_in: Vec<Vec<usize>> = Vec::with_capacity(linear.uops.len());
    for (position, uop) in linear.uops.iter().enumerate() {
        let place = || format!("uop {position} ({})", uop.op);
        let fail = |problem: String| Err(VerifyError { place: place(), problem });
        let (fewest, most) = uop.op.row().arity;
        if uop.src.len() < fewest || most < uop.src.len() {
            return fail(format!("{} sources", uop.src.len()));
        }
        if !is_linear(uop.op) {
            return fail("the op does not belong into a linear kernel".to_owned());
        }
        for source in &uop.src {
            let source = *source as usize;
            if position <= source {
                return fail(format!("source {source} does not stand before it"));
            }
            let is_closing = uop.op == Op::EndRange || linear.uops[source].op == Op::DefineAcc;
            let is_visible = made_in[source].iter().all(|range| open.contains(range));
            if !is_closing && !is_visible {
                return fail(format!("source {source} was made in a loop that has ended"));
            }
        }
        match uop.op {
            Op::Range => open.push(position),
            Op::EndRange if open.pop() != Some(uop.src[0] as usize) => {
                return fail(format!("range {} is not the innermost open one", uop.src[0]));
            }
            _ => {}
        }
        made_in.push(open.clone());
    }
    match open.last() {
        Some(range) => Err(VerifyError {
            place: format!("uop {range} (range)"),
            problem: "the loop never ends".to_owned(),
        }),
        None => Ok(()),
    }
}

fn is_linear(op: Op) -> bool {
    let is_tensor_level = matches!(op, Op::Buffer | Op::Iota | Op::Contiguous | Op::Detach);
    !op.is_movement() && !is_tensor_level && !matches!(op, Op::Reduce | Op::ReduceAxis)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Buffer, Dims, Instruction, parse_text};
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
        check(&format!("{data}%1 = reduce_axis f32 %0 add [0]"), None);
        check(&format!("{data}%1 = reduce_axis f32 %0 sub [0]"), Some("is no arg"));
        check(&format!("{data}%1 = cmplt f32 %0 %0"), Some("turns f32 into f32"));
        check(&format!("{data}%1 = xor f32 %0 %0"), Some("turns f32 into f32"));
        check(&format!("{data}%1 = bitcast f64 %0"), Some("turns f32 into f64"));
        check(&format!("{data}%1 = load f32 %0"), Some("load of (buffer:f32"));
        let other = "%1 = buffer f32 #1 5\n%2 = add f32 %0 %1";
        check(&format!("{data}{other}"), Some("shapes [6] and [5]"));
        let index = "%0 = define_global f32 data0 4\n%1 = const i32 2\n";
        check(&format!("{index}%2 = index f32 %0 %1\n%3 = load f32 %2"), None);
        check(&format!("{index}%2 = index f32 %0 %1 %1"), Some("index of"));
        check(&format!("{index}%2 = add i32 %1 %0"), Some("two dtypes"));
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
    fn verify_linear_knows_loops() {
        let uop = |op, src: &[u32], arg| Instruction {
            op,
            dtype: DType::I32,
            src: src.iter().copied().collect(),
            arg,
        };
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
