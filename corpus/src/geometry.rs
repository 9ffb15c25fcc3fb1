//! The shapes of movement operations; shared by programs and view sequences.
//!
//! Each function checks all its arguments, and returns the new shape or a message with numbers.

use crate::{MAX_ELEMENTS, MAX_RANK, Shape};

/// Returns the number of elements of `shape`.
///
/// # Errors
/// More than [`MAX_RANK`] axes, or a product (without the axes of size 0) over [`MAX_ELEMENTS`].
pub(crate) fn check_size(shape: &[usize]) -> Result<usize, String> {
    if MAX_RANK < shape.len() {
        return Err(format!("{} axes, at most {MAX_RANK} are allowed", shape.len()));
    }
    let mut count = 1usize;
    for size in shape.iter().filter(|size| **size != 0) {
        count = count.saturating_mul(*size);
    }
    if MAX_ELEMENTS < count {
        return Err(format!("shape {shape:?} is too large, at most {MAX_ELEMENTS} elements"));
    }
    Ok(if shape.contains(&0) { 0 } else { count })
}

fn check_rank(op: &str, shape: &[usize], given: usize) -> Result<(), String> {
    if shape.len() == given {
        return Ok(());
    }
    Err(format!("{op} of shape {shape:?}: {given} entries for {} axes", shape.len()))
}

/// Checks that `axes` are axes of `shape`, ascending and without repeats.
pub(crate) fn check_axes(op: &str, shape: &[usize], axes: &[usize]) -> Result<(), String> {
    let ascending = axes.windows(2).all(|pair| pair[0] < pair[1]);
    if ascending && axes.last().is_none_or(|last| *last < shape.len()) {
        return Ok(());
    }
    let rank = shape.len();
    Err(format!("{op} over axes {axes:?} of rank {rank}: they must ascend and be below the rank"))
}

pub(crate) fn reshape(from: &[usize], to: &[usize]) -> Result<Shape, String> {
    let after = check_size(to)?;
    let before = check_size(from)?;
    if before != after {
        return Err(format!("reshape {from:?} to {to:?}: {before} elements cannot become {after}"));
    }
    Ok(to.to_vec())
}

pub(crate) fn permute(from: &[usize], axes: &[usize]) -> Result<Shape, String> {
    check_rank("permute", from, axes.len())?;
    check_size(from)?;
    let mut seen = 0u64;
    for axis in axes {
        if from.len() <= *axis || seen & (1 << axis) != 0 {
            return Err(format!(
                "permute by {axes:?}: each axis below {} must appear once",
                from.len()
            ));
        }
        seen |= 1 << axis;
    }
    Ok(axes.iter().map(|axis| from[*axis]).collect())
}

pub(crate) fn expand(from: &[usize], to: &[usize]) -> Result<Shape, String> {
    check_rank("expand", from, to.len())?;
    check_size(to)?;
    if from.iter().zip(to).any(|(from, to)| from != to && *from != 1) {
        return Err(format!("expand {from:?} to {to:?}: only axes of size 1 can be repeated"));
    }
    Ok(to.to_vec())
}

pub(crate) fn pad(from: &[usize], pads: &[(usize, usize)]) -> Result<Shape, String> {
    check_rank("pad", from, pads.len())?;
    let sum = |size: usize, (before, after): (usize, usize)| {
        size.saturating_add(before).saturating_add(after)
    };
    let to: Shape = from.iter().zip(pads).map(|(size, pad)| sum(*size, *pad)).collect();
    check_size(&to)?;
    Ok(to)
}

pub(crate) fn shrink(from: &[usize], ranges: &[(usize, usize)]) -> Result<Shape, String> {
    check_rank("shrink", from, ranges.len())?;
    for (size, (start, end)) in from.iter().zip(ranges) {
        if end < start || size < end {
            return Err(format!(
                "shrink of an axis of size {size} to ({start},{end}): 0 <= start <= end <= size"
            ));
        }
    }
    Ok(ranges.iter().map(|(start, end)| end - start).collect())
}

pub(crate) fn flip(from: &[usize], axes: &[usize]) -> Result<Shape, String> {
    check_axes("flip", from, axes)?;
    Ok(from.to_vec())
}

/// Replaces `out` by the shape that `out` and `next` broadcast to, by NumPy's rules.
pub(crate) fn broadcast(op: &str, out: &mut Shape, next: &[usize]) -> Result<(), String> {
    let common = out.len().min(next.len());
    let fits = (1..=common).all(|i| {
        let (a, b) = (out[out.len() - i], next[next.len() - i]);
        a == b || a == 1 || b == 1
    });
    if !fits {
        return Err(format!("{op}: shapes {out:?} and {next:?} do not broadcast"));
    }
    if out.len() < next.len() {
        let missing = next.len() - out.len();
        out.splice(0..0, next[..missing].iter().copied());
    }
    let offset = out.len() - next.len();
    for (size, next) in out[offset..].iter_mut().zip(next) {
        if *size == 1 {
            *size = *next;
        }
    }
    Ok(())
}
