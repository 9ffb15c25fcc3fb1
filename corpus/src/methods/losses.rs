//! Typing of losses.

use super::reduction::check_float;
use super::{Args, Typed, elementwise};
use crate::{DType, Literal, TensorType};

pub(super) fn cross_entropy(srcs: &[&TensorType], args: Args<'_>) -> Typed {
    let (x, target) = (srcs[0], srcs[1]);
    check_float(x.dtype)?;
    check_smoothing(args.number(0))?;
    let axis = usize::from(x.shape.len() > 1);
    let samples = samples(x, axis)?;
    let is_fit = match target.dtype.is_int() {
        true => target.shape == samples,
        false => target == x,
    };
    match is_fit {
        true => Ok(reduced(x.dtype, samples, args.word(1))),
        false => Err(format!("classes {target:?} of {x:?}")),
    }
}

pub(super) fn sparse_categorical(srcs: &[&TensorType], args: Args<'_>) -> Typed {
    let (x, classes) = (srcs[0], srcs[1]);
    check_float(x.dtype)?;
    check_smoothing(args.number(1))?;
    let samples = samples(x, x.shape.len().saturating_sub(1))?;
    match classes.dtype.is_int() && classes.shape == samples {
        true => Ok(reduced(x.dtype, samples, args.word(2))),
        false => Err(format!("classes {classes:?} of {x:?}")),
    }
}

pub(super) fn nll(srcs: &[&TensorType], args: Args<'_>) -> Typed {
    let (x, classes) = (srcs[0], srcs[1]);
    check_float(x.dtype)?;
    let samples = samples(x, 1)?;
    let is_weight = |weight: &&TensorType| weight.dtype == x.dtype && weight.shape == x.shape[1..2];
    let is_fit = classes.dtype.is_int() && classes.shape == samples;
    match is_fit && srcs.get(2).is_none_or(is_weight) {
        true => Ok(reduced(x.dtype, samples, args.word(1))),
        false => Err(format!("classes and weights {:?} of {x:?}", &srcs[1..])),
    }
}

pub(super) fn binary(srcs: &[&TensorType], args: Args<'_>) -> Typed {
    let TensorType { dtype, shape } = elementwise::floats(srcs, args)?;
    Ok(reduced(dtype, shape, args.word(0)))
}

/// The shape of the samples of x, whose classes are along an axis.
fn samples(x: &TensorType, axis: usize) -> Result<Vec<usize>, String> {
    let mut samples = x.shape.clone();
    match axis < samples.len() {
        true => {
            samples.remove(axis);
            Ok(samples)
        }
        false => Err(format!("{x:?} has no axis {axis} of classes")),
    }
}

fn reduced(dtype: DType, samples: Vec<usize>, reduction: &str) -> TensorType {
    TensorType { dtype, shape: if reduction == "none" { samples } else { Vec::new() } }
}

fn check_smoothing(number: Literal) -> Result<(), String> {
    let is_fit = match number {
        Literal::Bool(_) => false,
        Literal::Int(value) => (0..=1).contains(&value),
        Literal::Float(value) => (0.0..=1.0).contains(&value),
    };
    if is_fit { Ok(()) } else { Err(format!("a label smoothing of {number}: it is 0 to 1")) }
}
