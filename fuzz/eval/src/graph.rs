//! Tensor graphs: every node whole, element by element, by the scalar meanings.

use std::collections::HashMap;
use std::rc::Rc;

use gradiff_graph::{Arg, Buffer, Op, UOp};

use crate::{Elements, scalar};

/// The elements of each output, row-major; `read` gives the elements of a buffer.
///
/// # Errors
/// A node that is not of tensor level.
pub fn evaluate(
    outputs: &[UOp],
    read: &mut dyn FnMut(&Buffer) -> Result<Elements, String>,
) -> Result<Vec<Elements>, String> {
    let mut values: HashMap<UOp, Rc<Elements>> = HashMap::new();
    let mut results = Vec::with_capacity(outputs.len());
    for output in outputs {
        for node in output.value_order() {
            if !values.contains_key(node) {
                let value = match node.arg() {
                    Arg::Buffer(buffer) => Rc::new(read(buffer)?),
                    _ => of_node(node, &values)?,
                };
                values.insert(node.clone(), value);
            }
        }
        results.push(values[output].as_ref().clone());
    }
    Ok(results)
}

fn of_node(node: &UOp, values: &HashMap<UOp, Rc<Elements>>) -> Result<Rc<Elements>, String> {
    let shape = node.shape().ok_or_else(|| format!("{} has no shape", node.op()))?.to_vec();
    let count: i64 = shape.iter().product();
    let source = |position: usize| &values[&node.src()[position]];
    let zero = Some(scalar::zero(node.dtype()));
    let elements: Elements = match (node.op(), node.arg()) {
        (Op::Const, Arg::Const(value)) => vec![Some(*value)],
        (Op::Iota, _) => (0..count).map(|i| scalar::number(node.dtype(), i128::from(i))).collect(),
        (op, _) if op == Op::Reshape || op.is_marker() => return Ok(Rc::clone(source(0))),
        (Op::ReduceAxis, Arg::Reduce(op, _)) => {
            let from = node.src()[0].shape().ok_or("a reduction of a node without shape")?;
            reduced(*op, node, source(0), from, &shape)
        }
        (op, _) if op.is_movement() => {
            let from = node.src()[0].shape().ok_or("a movement of a node without shape")?;
            let address = |index: &[i64]| origin(node, from, index);
            let element = |flat| {
                address(&unravel(flat, &shape)).map_or(zero, |from| source(0)[from as usize])
            };
            (0..count).map(element).collect()
        }
        (op, _) if op.is_elementwise() => {
            let sources: Vec<&Elements> = (0..node.src().len()).map(|i| &**source(i)).collect();
            let mut operands = vec![None; sources.len()];
            let element = |flat: usize| {
                // A constant has a single element.
                let at = |source: &Elements| if source.len() == 1 { 0 } else { flat };
                let elements = sources.iter().map(|source| source[at(source)]);
                operands.iter_mut().zip(elements).for_each(|(operand, x)| *operand = x);
                scalar::element(op, node.dtype(), &operands)
            };
            (0..count as usize).map(element).collect()
        }
        (op, _) => return Err(format!("{op} is not of tensor level")),
    };
    Ok(Rc::new(elements))
}

fn reduced(op: Op, node: &UOp, source: &Elements, from: &[i64], to: &[i64]) -> Elements {
    let dtype = node.dtype();
    let start = scalar::identity(op, dtype);
    let count: i64 = to.iter().product();
    // A reduction of single elements adds nothing: -0.0 stays -0.0.
    if source.len() as i64 == count {
        return source.clone();
    }
    let mut elements = vec![start; count as usize];
    for (flat, value) in source.iter().enumerate() {
        let mut index = unravel(flat as i64, from);
        for (axis, size) in to.iter().enumerate() {
            if *size == 1 {
                index[axis] = 0;
            }
        }
        let reduced = &mut elements[ravel(&index, to) as usize];
        *reduced = match (*reduced, *value) {
            (Some(before), Some(value)) => scalar::reduce(op, before, value),
            _ => None,
        };
    }
    elements
}

/// The flat position in the source, of shape `from`, that a movement brings to `index`.
fn origin(node: &UOp, from: &[i64], index: &[i64]) -> Option<i64> {
    let mut source = vec![0; from.len()];
    match node.arg() {
        Arg::View(tracker) => return tracker.locate(index),
        Arg::Dims(axes) if node.op() == Op::Permute => {
            for (position, axis) in axes.iter().enumerate() {
                source[*axis as usize] = index[position];
            }
        }
        Arg::Dims(axes) if node.op() == Op::Flip => {
            for axis in 0..from.len() {
                let is_flipped = axes.contains(&(axis as i64));
                source[axis] = if is_flipped { from[axis] - 1 - index[axis] } else { index[axis] };
            }
        }
        Arg::Dims(_) => {
            for axis in 0..from.len() {
                source[axis] = if from[axis] == 1 { 0 } else { index[axis] };
            }
        }
        Arg::Pairs(pairs) => {
            for axis in 0..from.len() {
                let first = pairs[axis].0;
                let shift = if node.op() == Op::Pad { -first } else { first };
                source[axis] = index[axis] + shift;
                if source[axis] < 0 || source[axis] >= from[axis] {
                    return None;
                }
            }
        }
        _ => return None,
    }
    Some(ravel(&source, from))
}

fn unravel(mut flat: i64, shape: &[i64]) -> Vec<i64> {
    let mut index = vec![0; shape.len()];
    for axis in (0..shape.len()).rev() {
        index[axis] = flat % shape[axis];
        flat /= shape[axis];
    }
    index
}

fn ravel(index: &[i64], shape: &[i64]) -> i64 {
    index.iter().zip(shape).fold(0, |flat, (i, size)| flat * size + i)
}
