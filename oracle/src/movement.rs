//! Movement ops as maps of positions: every function computes, for each index of the result, the
//! position in the source. No strides, no views.

use gradiff_corpus::Shape;

use crate::infer::{Check, check_axes, count, limit, no_axis};

/// Calls `visit` with every index of `shape`, in row-major order.
pub(crate) fn for_each_index(shape: &[usize], mut visit: impl FnMut(&[usize])) {
    let mut index = vec![0; shape.len()];
    for _ in 0..count(shape) {
        visit(&index);
        for axis in (0..shape.len()).rev() {
            index[axis] += 1;
            if index[axis] < shape[axis] {
                break;
            }
            index[axis] = 0;
        }
    }
}

/// Returns the row-major position of an index.
pub(crate) fn position(index: &[usize], shape: &[usize]) -> usize {
    index.iter().zip(shape).fold(0, |position, (index, size)| position * size + index)
}

/// Returns, for every index of `to`, the position in `from` if it is broadcast to `to`, aligned at
/// the last axis.
pub(crate) fn broadcast_positions(from: &[usize], to: &[usize]) -> Vec<usize> {
    let missing = to.len() - from.len();
    gather_positions(from, to, |index, source| {
        for axis in 0..from.len() {
            source[axis] = if from[axis] == 1 { 0 } else { index[axis + missing] };
        }
    })
}

/// Returns, for every index of `to`, the position of the source index that `map` computes.
pub(crate) fn gather_positions(
    from: &[usize],
    to: &[usize],
    mut map: impl FnMut(&[usize], &mut [usize]),
) -> Vec<usize> {
    let mut positions = Vec::with_capacity(count(to));
    let mut source = vec![0; from.len()];
    for_each_index(to, |index| {
        map(index, &mut source);
        positions.push(position(&source, from));
    });
    positions
}

/// Checks a reshape; the positions stay.
pub(crate) fn reshape(from: &[usize], to: &[usize]) -> Check<Shape> {
    let to = limit(to.to_vec())?;
    let (before, after) = (count(from), count(&to));
    if before == after {
        return Ok(to);
    }
    Err(format!("reshape {from:?} to {to:?}: {before} elements cannot become {after}"))
}

/// Axis `i` of the result is axis `axes[i]` of the source.
pub(crate) fn permute(from: &[usize], axes: &[usize]) -> Check<(Shape, Vec<usize>)> {
    let mut sorted = axes.to_vec();
    sorted.sort_unstable();
    if !sorted.iter().copied().eq(0..from.len()) {
        return Err(format!("axes {axes:?} are not a permutation of {} axes", from.len()));
    }
    let to: Shape = axes.iter().map(|&axis| from[axis]).collect();
    let positions = gather_positions(from, &to, |index, source| {
        for (i, &axis) in axes.iter().enumerate() {
            source[axis] = index[i];
        }
    });
    Ok((to, positions))
}

/// Repeats axes of size 1.
pub(crate) fn expand(from: &[usize], to: &[usize]) -> Check<(Shape, Vec<usize>)> {
    let fits = from.len() == to.len() && from.iter().zip(to).all(|(a, b)| a == b || *a == 1);
    if !fits {
        return Err(format!("expand {from:?} to {to:?}: only axes of size 1 can be repeated"));
    }
    let to = limit(to.to_vec())?;
    let positions = broadcast_positions(from, &to);
    Ok((to, positions))
}

/// The shape, and the positions in the source; `None` for an added element.
pub(crate) type Padded = (Shape, Vec<Option<usize>>);

/// Adds elements before and after each axis.
pub(crate) fn pad(from: &[usize], pads: &[(usize, usize)]) -> Check<Padded> {
    if pads.len() != from.len() {
        return Err(format!("{} pads for {} axes", pads.len(), from.len()));
    }
    let size = |(size, &(before, after)): (&usize, &(usize, usize))| {
        let total = size.checked_add(before).and_then(|sum| sum.checked_add(after));
        total.ok_or_else(|| format!("pads {pads:?} of shape {from:?} overflow"))
    };
    let to = limit(from.iter().zip(pads).map(size).collect::<Check<Shape>>()?)?;
    let mut positions = Vec::with_capacity(count(&to));
    let mut source = vec![0; from.len()];
    for_each_index(&to, |index| {
        let mut is_inside = true;
        for axis in 0..from.len() {
            source[axis] = index[axis].wrapping_sub(pads[axis].0);
            is_inside &= source[axis] < from[axis];
        }
        positions.push(is_inside.then(|| position(&source, from)));
    });
    Ok((to, positions))
}

/// Keeps the half-open range of each axis.
pub(crate) fn shrink(from: &[usize], ranges: &[(usize, usize)]) -> Check<(Shape, Vec<usize>)> {
    let fits = ranges.len() == from.len()
        && from.iter().zip(ranges).all(|(&size, &(start, end))| start <= end && end <= size);
    if !fits {
        return Err(format!("ranges {ranges:?} are not within shape {from:?}"));
    }
    let to: Shape = ranges.iter().map(|(start, end)| end - start).collect();
    let positions = gather_positions(from, &to, |index, source| {
        for axis in 0..index.len() {
            source[axis] = index[axis] + ranges[axis].0;
        }
    });
    Ok((to, positions))
}

/// Reverses axes.
pub(crate) fn flip(from: &[usize], axes: &[usize]) -> Check<Vec<usize>> {
    check_axes(axes, from.len())?;
    Ok(gather_positions(from, from, |index, source| {
        source.copy_from_slice(index);
        for &axis in axes {
            source[axis] = from[axis] - 1 - index[axis];
        }
    }))
}

/// The shape and, for every element of the result, the number of the source and the position in it.
pub(crate) type Joined = (Shape, Vec<(usize, usize)>);

/// Concatenates along an axis.
pub(crate) fn cat(shapes: &[&[usize]], axis: usize) -> Check<Joined> {
    let first = *shapes.first().ok_or("cat needs at least one source")?;
    if axis >= first.len() {
        return Err(no_axis(axis, first.len()));
    }
    let mut to = first.to_vec();
    for shape in &shapes[1..] {
        let fits = shape.len() == first.len()
            && (0..first.len()).all(|i| i == axis || shape[i] == first[i]);
        if !fits {
            return Err(format!(
                "cat of {first:?} and {shape:?} along axis {axis}: all other axes must be equal"
            ));
        }
        to[axis] += shape[axis];
    }
    let to = limit(to)?;
    let mut positions = Vec::with_capacity(count(&to));
    let mut source = vec![0; to.len()];
    for_each_index(&to, |index| {
        source.copy_from_slice(index);
        let mut number = 0;
        while source[axis] >= shapes[number][axis] {
            source[axis] -= shapes[number][axis];
            number += 1;
        }
        positions.push((number, position(&source, shapes[number])));
    });
    Ok((to, positions))
}

/// Returns the shape of a reduction and, for each element of the source, its position in the
/// result.
pub(crate) fn reduce(from: &[usize], axes: &[usize]) -> Check<(Shape, Vec<usize>)> {
    check_axes(axes, from.len())?;
    let mut to = from.to_vec();
    for &axis in axes {
        to[axis] = 1;
    }
    let mut positions = Vec::with_capacity(count(from));
    let mut target = vec![0; from.len()];
    for_each_index(from, |index| {
        target.copy_from_slice(index);
        for &axis in axes {
            target[axis] = 0;
        }
        positions.push(position(&target, &to));
    });
    Ok((to, positions))
}

/// Returns the position in the source of element `index` of a gather, which has the index `at`
/// along `axis`.
pub(crate) fn gathered(from: &[usize], index: &[usize], axis: usize, at: usize) -> usize {
    let source = |(i, size): (usize, &usize)| (if i == axis { at } else { index[i] }, *size);
    from.iter().enumerate().map(source).fold(0, |position, (i, size)| position * size + i)
}

/// Checks the shapes of a gather.
pub(crate) fn check_gather(from: &[usize], index: &[usize], axis: usize) -> Check<()> {
    if axis >= from.len() {
        return Err(no_axis(axis, from.len()));
    }
    let fits =
        from.len() == index.len() && (0..from.len()).all(|i| i == axis || from[i] == index[i]);
    if fits {
        return Ok(());
    }
    Err(format!(
        "gather from {from:?} by an index of {index:?} along axis {axis}: all other axes must be \
         equal"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_follow_the_definitions() {
        assert_eq!(permute(&[2, 3], &[1, 0]), Ok((vec![3, 2], vec![0, 3, 1, 4, 2, 5])));
        assert_eq!(expand(&[2, 1], &[2, 2]), Ok((vec![2, 2], vec![0, 0, 1, 1])));
        assert_eq!(expand(&[1], &[0]), Ok((vec![0], vec![])));
        assert_eq!(pad(&[2], &[(1, 1)]), Ok((vec![4], vec![None, Some(0), Some(1), None])));
        assert_eq!(shrink(&[4], &[(1, 3)]), Ok((vec![2], vec![1, 2])));
        assert_eq!(flip(&[2, 2], &[1]), Ok(vec![1, 0, 3, 2]));
        assert_eq!(cat(&[&[1], &[0], &[2]], 0), Ok((vec![3], vec![(0, 0), (2, 0), (2, 1)])));
        assert_eq!(reduce(&[2, 2], &[0]), Ok((vec![1, 2], vec![0, 1, 0, 1])));
        assert_eq!(reduce(&[0, 2], &[0]), Ok((vec![1, 2], vec![])));
        assert_eq!(permute(&[], &[]), Ok((vec![], vec![0])));
    }

    #[test]
    fn invalid_arguments_are_rejected() {
        assert!(reshape(&[2, 3], &[4, 2]).unwrap_err().contains("6 elements cannot become 8"));
        assert!(permute(&[2, 3], &[0, 0]).is_err());
        assert!(expand(&[2], &[4]).is_err() && expand(&[1], &[1, 1]).is_err());
        assert!(pad(&[1], &[]).is_err() && pad(&[1], &[(usize::MAX, 2)]).is_err());
        assert!(shrink(&[4], &[(1, 5)]).is_err() && shrink(&[4], &[(3, 2)]).is_err());
        assert!(flip(&[2], &[1]).is_err() && flip(&[2, 2], &[1, 0]).is_err());
        assert!(
            cat(&[], 0).is_err() && cat(&[&[]], 0).is_err() && cat(&[&[1], &[1, 1]], 0).is_err()
        );
        assert!(check_gather(&[2, 3], &[3, 3], 1).is_err());
        assert!(check_gather(&[2, 3], &[2, 9], 1).is_ok());
    }
}
