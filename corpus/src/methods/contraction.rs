//! Typing of sums of products by labels of axes, and of attention.

use super::Args;
use super::reduction::check_float;
use crate::{DType, Shape, TensorType, geometry, promote};

/// Number of labels.
const LABELS: usize = 26;

type Typed = Result<TensorType, String>;

/// The type of a sum of products over labels.
pub(super) fn einsum(srcs: &[&TensorType], args: Args<'_>) -> Typed {
    let (labels, output) = (args.ints(0), args.ints(1));
    let dtype = srcs.iter().map(|src| src.dtype).reduce(promote).ok_or("there is no source")?;
    if dtype == DType::Bool {
        return Err("bool has no products: use `cast` before it".into());
    }
    let axes: Vec<usize> = srcs.iter().flat_map(|src| src.shape.iter().copied()).collect();
    if labels.len() != axes.len() {
        return Err(format!("{} labels for {} axes", labels.len(), axes.len()));
    }
    let mut sizes: [Option<usize>; LABELS] = [None; LABELS];
    for (label, size) in labels.iter().zip(&axes) {
        let slot = usize::try_from(*label).ok().and_then(|label| sizes.get_mut(label));
        let slot = slot.ok_or_else(|| format!("label {label}: labels are 0 to {}", LABELS - 1))?;
        match slot {
            Some(known) if known != size => {
                return Err(format!("label {label} has the sizes {known} and {size}"));
            }
            _ => *slot = Some(*size),
        }
    }
    let mut shape = Shape::new();
    for (number, label) in output.iter().enumerate() {
        let size = usize::try_from(*label).ok().and_then(|label| *sizes.get(label)?);
        match size {
            Some(_) if output[..number].contains(label) => {
                return Err(format!("label {label} is twice in the result"));
            }
            Some(size) => shape.push(size),
            None => return Err(format!("label {label} of the result is in no source")),
        }
    }
    // The products, before they are summed, must not be too many either.
    geometry::check_size(&sizes.into_iter().flatten().collect::<Vec<_>>())?;
    Ok(TensorType { dtype, shape })
}

/// The axes before the last two, and these.
fn matrices(src: &TensorType) -> Result<(&[usize], [usize; 2]), String> {
    match src.shape.split_last_chunk::<2>() {
        Some((outer, last)) => Ok((outer, *last)),
        None => Err(format!("{:?} has fewer than two axes", src.shape)),
    }
}

/// The type of the attention of queries to keys and values, with a mask or without.
pub(super) fn attention(srcs: &[&TensorType], _: Args<'_>) -> Typed {
    let (query, key, value, mask) = match *srcs {
        [query, key, value] => (query, key, value, None),
        [query, key, value, mask] => (query, key, value, Some(mask)),
        _ => return Err(format!("{} sources: it takes 3 or 4", srcs.len())),
    };
    [query, key, value].iter().try_for_each(|src| check_float(src.dtype))?;
    let (outer, [queries, depth]) = matrices(query)?;
    let (key_outer, [keys, key_depth]) = matrices(key)?;
    let (value_outer, [values, width]) = matrices(value)?;
    if depth != key_depth || keys != values || depth == 0 {
        return Err(format!(
            "{:?}, {:?} and {:?} are not [.., l, d], [.., s, d] and [.., s, e] with d above 0",
            query.shape, key.shape, value.shape
        ));
    }
    let mut shape = outer.to_vec();
    geometry::broadcast("queries and keys", &mut shape, key_outer)?;
    let scores = [&shape[..], &[queries, keys]].concat();
    if let Some(mask) = mask {
        if mask.dtype != DType::Bool {
            check_float(mask.dtype)?;
        }
        let mut masked = scores.clone();
        geometry::broadcast("scores and mask", &mut masked, &mask.shape)?;
        if masked != scores {
            return Err(format!("a mask {:?} for the scores {scores:?}", mask.shape));
        }
    }
    // The products, before they are summed, must not be too many either.
    geometry::check_size(&[&scores[..], &[depth]].concat())?;
    geometry::broadcast("scores and values", &mut shape, value_outer)?;
    geometry::check_size(&[&shape[..], &[queries, width, keys]].concat())?;
    shape.extend([queries, width]);
    Ok(TensorType { dtype: promote(promote(query.dtype, key.dtype), value.dtype), shape })
}
