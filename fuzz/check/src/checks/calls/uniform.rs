//! Tensors of equal elements, which are known before anything runs: reductions of them, and ops
//! over one of them and data, against the scalar meanings of this crate.

use gradiff::graph::op::OPS;
use gradiff::graph::{Arg, Constant, DType, Dims, Op, UOp};
use gradiff::{Error, Tensor};
use gradiff_eval::scalar;

use super::Draw;
use super::values::{Wanted, bytes_of, compare, dtypes, special};

/// Sizes of axes; a reduction is over at most the product of three.
const SIZES: [i64; 8] = [1, 2, 3, 4, 5, 7, 8, 0];
const RANK_MAX: usize = 3;

/// A reduction of equal elements, or an op over such a tensor and another one.
pub(super) fn equal_elements(draw: &mut Draw) -> Result<(), String> {
    let dtype = draw.pick(&dtypes());
    let shape: Vec<i64> = (0..1 + draw.below(RANK_MAX)).map(|_| draw.pick(&SIZES)).collect();
    let (label, tensor, wanted) = match draw.one_in(2) {
        true => reduction(draw, dtype, shape)?,
        false => combination(draw, dtype, shape)?,
    };
    compare(draw, &label, &tensor, &wanted)
}

type Case = (String, Tensor, Vec<Wanted>);

/// A small number, or a special one.
fn value(draw: &mut Draw, dtype: DType) -> Constant {
    let small = draw.pick(&[0, 1, -1, 2, 3, -2]);
    match dtype.is_float() {
        _ if draw.one_in(3) => special(draw, dtype),
        true => scalar::float(dtype, f64::from(small)).expect("it is a float's type"),
        false => scalar::int(dtype, i128::from(small)).expect("it is an integer's type"),
    }
}

/// Equal elements as a node: a constant, expanded, at times flipped or padded with itself.
fn uniform(draw: &mut Draw, value: Constant, shape: &[i64]) -> UOp {
    let dtype = value.dtype();
    let dims = |sizes: &[i64]| Arg::Dims(Dims::from_slice(sizes));
    let ones = UOp::new(Op::Reshape, dtype, [UOp::constant(value)], dims(&vec![1; shape.len()]));
    let node = UOp::new(Op::Expand, dtype, [ones], dims(shape));
    match draw.below(4) {
        0 => UOp::new(Op::Flip, dtype, [node], dims(&[0])),
        1 => UOp::new(Op::Detach, dtype, [node], Arg::None),
        2 => UOp::new(Op::Contiguous, dtype, [node], Arg::None),
        _ => node,
    }
}

fn tensor(node: UOp) -> Result<Tensor, String> {
    Tensor::from_uop(node).map_err(|error: Error| error.to_string())
}

fn reduction(draw: &mut Draw, dtype: DType, shape: Vec<i64>) -> Result<Case, String> {
    let op = draw.pick(&[Op::Add, Op::Mul, Op::Max]);
    // Products of these floats are exact, and sums as long as bf16 has an integer of that size. The
    // value of a longer one depends on whether each addition is rounded or the last one only.
    let value = match dtype.is_float() && op != Op::Max {
        true => scalar::float(dtype, draw.pick(&[0.0, 1.0, -1.0])).expect("it is a float's type"),
        false => value(draw, dtype),
    };
    let axes: Vec<i64> = (0..shape.len() as i64).filter(|_| !draw.one_in(3)).collect();
    let source = uniform(draw, value, &shape);
    let node = UOp::new(Op::ReduceAxis, dtype, [source], Arg::Reduce(op, Dims::from_slice(&axes)));
    let count: i64 = axes.iter().map(|axis| shape[*axis as usize]).product();
    let kept = (0..shape.len()).filter(|axis| !axes.contains(&(*axis as i64)));
    let results: i64 = kept.map(|axis| shape[axis]).product();
    let mut result = match count {
        0 => scalar::identity(op, dtype).ok_or("the op has an identity")?,
        _ => value,
    };
    for _ in 1..count {
        result = scalar::evaluate(op, dtype, &[result, value]).ok_or("the op has a value")?;
    }
    let is_exact = dtype != DType::BF16 || op != Op::Add || count <= 1 << 8;
    let wanted = wanted(is_exact.then_some(result));
    let label = format!("{op} of {value:?} over axes {axes:?} of {shape:?}");
    Ok((label, tensor(node)?, vec![wanted; results as usize]))
}

fn combination(draw: &mut Draw, dtype: DType, shape: Vec<i64>) -> Result<Case, String> {
    // What is rounded more than once, or has bounds of its own, is left to programs.
    let is_drawn = |op: Op| {
        let is_approximate = matches!(op, Op::Pow | Op::Threefry | Op::MulAcc);
        let row = op.row();
        op.is_elementwise() && !is_approximate && row.arity.0 >= 2 && row.operands.contains(dtype)
    };
    let ops: Vec<Op> = OPS.iter().map(|row| row.op).filter(|op| is_drawn(*op)).collect();
    let op = draw.pick(&ops);
    let count: i64 = shape.iter().product();
    let arity = op.row().arity.0;
    let known = draw.below(arity);
    let (mut src, mut elements) = (Vec::new(), Vec::new());
    for number in 0..arity {
        let dtype = if op == Op::Where && number == 0 { DType::Bool } else { dtype };
        if number == known || draw.one_in(6) {
            let value = value(draw, dtype);
            src.push(uniform(draw, value, &shape));
            elements.push(vec![value; count as usize]);
        } else {
            let data: Vec<Constant> = (0..count).map(|_| value(draw, dtype)).collect();
            let tensor = Tensor::from_bytes(dtype, &shape, &bytes_of(&data));
            src.push(tensor.map_err(|error| error.to_string())?.uop());
            elements.push(data);
        }
    }
    let is_truth = matches!(op, Op::CmpLt | Op::CmpNe);
    let to = if is_truth { DType::Bool } else { dtype };
    let label = format!("{op} of {elements:?}, number {known} equal elements, in {shape:?}");
    let results = (0..count as usize).map(|at| {
        let operands: Vec<Constant> = elements.iter().map(|elements| elements[at]).collect();
        wanted(scalar::evaluate(op, to, &operands))
    });
    let results = results.collect();
    Ok((label, tensor(UOp::new(op, to, src, Arg::None))?, results))
}

/// The requirement on an element with this value: the bits of an integer, a float but for the sign
/// of a zero and a rounding.
fn wanted(value: Option<Constant>) -> Wanted {
    match value {
        None => Wanted::Free,
        Some(value) => match scalar::to_float(value) {
            Some(number) => Wanted::Near(number, number.abs() * 2f64.powi(-7)),
            None => Wanted::Bits(value),
        },
    }
}
