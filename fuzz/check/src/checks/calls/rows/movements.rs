//! Calls that move elements, and calls that make tensors of constants or data.

use gradiff::{Scalar, Tensor};
use gradiff_corpus::{DType, Literal, Shape, TensorType, literal_bits};

use super::{call, legal};
use crate::checks::calls::{Call, Draw, name_of};

pub(super) fn reshape(draw: &mut Draw) -> Call {
    let source = draw.source_type();
    let mut to = draw.odd_shape(&source.shape);
    if draw.one_in(3) {
        to = vec![source.count() as i64];
    }
    let x = draw.tensor(&source);
    let count = source.count() as u128;
    let shape = inferred(&to, count).filter(|shape| shapes_count(shape) == count);
    let expected = shape.map(|shape| TensorType { shape, ..source.clone() });
    call(format!("reshape of {source:?} to {to:?}"), expected, move || x.reshape(&to))
}

/// The shape, if it is legal, with the size of so many elements in place of a single -1.
fn inferred(shape: &[i64], count: u128) -> Option<Shape> {
    let (unknown, known): (Vec<i64>, Vec<i64>) = shape.iter().partition(|size| **size == -1);
    let known = shapes_count(&legal(&known)?);
    let size = match unknown.len() {
        0 => return legal(shape),
        1 if known != 0 && count.is_multiple_of(known) => i64::try_from(count / known).ok()?,
        _ => return None,
    };
    let sizes = shape.iter().map(|known| if *known == -1 { size } else { *known });
    legal(&sizes.collect::<Vec<_>>())
}

pub(super) fn shapes_count(shape: &[usize]) -> u128 {
    if shape.contains(&0) { 0 } else { shape.iter().map(|size| *size as u128).product() }
}

pub(super) fn expand(draw: &mut Draw) -> Call {
    let source = draw.source_type();
    let to = draw.odd_shape(&source.shape);
    let x = draw.tensor(&source);
    // Axes are added before the first; -1 keeps a size.
    let kept = |added: usize| -> Option<Shape> {
        let is_kept = |axis: usize| added <= axis && to[axis] == -1;
        let size = |axis: usize| match is_kept(axis) {
            true => source.shape[axis - added] as i64,
            false => to[axis],
        };
        let shape = legal(&(0..to.len()).map(size).collect::<Vec<_>>())?;
        let mut pairs = shape[added..].iter().zip(&source.shape);
        pairs.all(|(to, from)| to == from || *from == 1).then_some(shape)
    };
    let shape = to.len().checked_sub(source.shape.len()).and_then(kept);
    let expected = shape.map(|shape| TensorType { shape, ..source.clone() });
    call(format!("expand of {source:?} to {to:?}"), expected, move || x.expand(&to))
}

pub(super) fn scalar(literal: &Literal) -> Scalar {
    match literal {
        Literal::Bool(value) => Scalar::Bool(*value),
        Literal::Int(value) => Scalar::Int(*value),
        Literal::Float(value) => Scalar::Float(*value),
    }
}

pub(super) fn pad(draw: &mut Draw) -> Call {
    let source = draw.source_type();
    let rank = source.shape.len() + usize::from(draw.one_in(12));
    let pads: Vec<(i64, i64)> = (0..rank).map(|_| (draw.odd_size(2), draw.odd_size(0))).collect();
    let value = if draw.one_in(3) { draw.literal() } else { zero(source.dtype) };
    let x = draw.tensor(&source);
    let grown = pads.iter().zip(&source.shape).map(|((before, after), size)| {
        let padded = *size as i128 + *before as i128 + *after as i128;
        let is_legal = 0 <= *before && 0 <= *after;
        i64::try_from(padded).ok().filter(|_| is_legal)
    });
    let shape: Option<Vec<i64>> = grown.collect();
    let shape = shape.filter(|_| rank == source.shape.len()).and_then(|shape| legal(&shape));
    let is_representable = literal_bits(source.dtype, &value).is_some();
    let expected =
        shape.filter(|_| is_representable).map(|shape| TensorType { shape, ..source.clone() });
    let label = format!("pad of {source:?} by {pads:?} with {value}");
    call(label, expected, move || x.pad(&pads, scalar(&value)))
}

fn zero(dtype: DType) -> Literal {
    if dtype == DType::Bool { Literal::Bool(false) } else { Literal::Int(0) }
}

pub(super) fn shrink(draw: &mut Draw) -> Call {
    let source = draw.source_type();
    let mut ranges: Vec<(i64, i64)> = Vec::new();
    for size in &source.shape {
        let start = draw.below(size + 1) as i64;
        let end = start + draw.below(size + 1 - start as usize) as i64;
        ranges.push(match draw.below(10) {
            0 => (start - 1, end),
            1 => (start, *size as i64 + 1),
            2 => (end, start),
            3 => (draw.odd_size(start), draw.odd_size(end)),
            _ => (start, end),
        });
    }
    if draw.one_in(12) {
        ranges.push((0, 1));
    }
    let x = draw.tensor(&source);
    let fits = ranges.len() == source.shape.len()
        && ranges.iter().zip(&source.shape).all(|((start, end), size)| {
            0 <= *start && start <= end && *end as i128 <= *size as i128
        });
    let shape = || ranges.iter().map(|(start, end)| (end - start) as usize).collect();
    let expected = fits.then(|| TensorType { dtype: source.dtype, shape: shape() });
    call(format!("shrink of {source:?} to {ranges:?}"), expected, move || x.shrink(&ranges))
}

pub(super) fn full(draw: &mut Draw) -> Call {
    let (dtype, shape) = (draw.dtype_or_void(), draw.shape());
    let (shape, value) = (draw.odd_shape(&shape), draw.literal());
    let is_representable = |dtype: &DType| literal_bits(*dtype, &value).is_some();
    let expected = dtype.filter(is_representable).zip(legal(&shape));
    let expected = expected.map(|(dtype, shape)| TensorType { dtype, shape });
    let label = format!("full of {dtype:?} {shape:?} with {value}");
    call(label, expected, move || Tensor::full(name_of(dtype), &shape, scalar(&value)))
}

pub(super) fn zeros(draw: &mut Draw) -> Call {
    let (dtype, shape) = (draw.dtype_or_void(), draw.shape());
    let shape = draw.odd_shape(&shape);
    let expected = dtype.zip(legal(&shape)).map(|(dtype, shape)| TensorType { dtype, shape });
    let make = draw.pick(&[Tensor::zeros, Tensor::ones]);
    let label = format!("zeros or ones of {dtype:?} {shape:?}");
    call(label, expected, move || make(name_of(dtype), &shape))
}

pub(super) fn arange(draw: &mut Draw) -> Call {
    let dtype = draw.dtype_or_void();
    let count = draw.odd_size(3);
    let ends = [0, 1, -1, i64::MIN, i64::MAX];
    let (start, step) = (draw.pick(&ends), draw.pick(&ends));
    let expected = dtype.filter(|dtype| dtype.is_int()).zip(legal(&[count]));
    let expected = expected.map(|(dtype, shape)| TensorType { dtype, shape });
    let label = format!("arange of {dtype:?} from {start} by {step}, {count} of them");
    call(label, expected, move || Tensor::arange(name_of(dtype), start, step, count))
}

pub(super) fn from_bytes(draw: &mut Draw) -> Call {
    let (source, dtype) = (draw.source_type(), draw.dtype_or_void());
    let shape = draw.odd_shape(&source.shape);
    let size = source.count() * dtype.map_or(0, |dtype| dtype.size_bytes());
    let size = if draw.one_in(4) { size + 1 } else { size };
    let fits = |(dtype, shape): &(DType, Shape)| {
        shapes_count(shape) * dtype.size_bytes() as u128 == size as u128
    };
    let expected = dtype.zip(legal(&shape)).filter(fits);
    let expected = expected.map(|(dtype, shape)| TensorType { dtype, shape });
    let label = format!("from_bytes of {dtype:?} {shape:?}, {size} bytes");
    call(label, expected, move || Tensor::from_bytes(name_of(dtype), &shape, &vec![0; size]))
}

pub(super) fn from_slice(draw: &mut Draw) -> Call {
    let source = draw.source_type();
    let shape = draw.odd_shape(&source.shape);
    let count = source.count();
    let expected = legal(&shape).filter(|shape| shapes_count(shape) == count as u128);
    let expected = expected.map(|shape| TensorType { dtype: DType::I16, shape });
    let label = format!("from_slice of {shape:?}, {count} elements");
    call(label, expected, move || Tensor::from_slice(&shape, &vec![1i16; count]))
}

pub(super) fn transpose(draw: &mut Draw) -> Call {
    let source = draw.source_type();
    let (x, rank) = (draw.tensor(&source), source.shape.len());
    let ((number0, axis0), (number1, axis1)) = (draw.axis_number(rank), draw.axis_number(rank));
    let mut shape = source.shape.clone();
    let expected = axis0.zip(axis1).map(|(axis0, axis1)| {
        shape.swap(axis0, axis1);
        TensorType { shape, ..source.clone() }
    });
    let label = format!("transpose of {source:?}, axes {number0} and {number1}");
    call(label, expected, move || x.transpose(number0, number1))
}

pub(super) fn squeeze(draw: &mut Draw) -> Call {
    let source = draw.source_type();
    let x = draw.tensor(&source);
    let (number, axis) = draw.axis_number(source.shape.len());
    let mut shape = source.shape.clone();
    let expected = axis.filter(|axis| shape[*axis] == 1).map(|axis| {
        shape.remove(axis);
        TensorType { shape, ..source.clone() }
    });
    call(format!("squeeze of {source:?}, axis {number}"), expected, move || x.squeeze(number))
}

pub(super) fn unsqueeze(draw: &mut Draw) -> Call {
    let source = draw.source_type();
    let x = draw.tensor(&source);
    let (number, axis) = draw.axis_number(source.shape.len() + 1);
    let mut shape = source.shape.clone();
    let expected = axis.map(|axis| {
        shape.insert(axis, 1);
        TensorType { shape, ..source.clone() }
    });
    call(format!("unsqueeze of {source:?}, axis {number}"), expected, move || x.unsqueeze(number))
}
