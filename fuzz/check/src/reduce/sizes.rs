//! Variants of programs with smaller sizes, and without movements.

use gradiff_corpus::{Array, Fill, Program, Statement, TensorType, statement_type};

use super::{DIFFERENT_MAX, replaced};

/// The end of an axis at which elements stay when it becomes shorter.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    First,
    Last,
}

/// Adds programs in which a size is smaller wherever it occurs, or in which an axis is removed from
/// all statements.
pub(super) fn smaller(program: &Program, candidates: &mut Vec<Program>) {
    let mut sizes: Vec<usize> = Vec::new();
    let mut copy = program.clone();
    copy.statements.iter_mut().for_each(|statement| {
        map_sizes(statement, End::First, &mut |size| {
            sizes.push(size);
            size
        });
    });
    sizes.sort_unstable();
    sizes.dedup();
    for from in sizes.into_iter().rev().filter(|size| *size > 1) {
        let mut tried = Vec::new();
        for to in [1, 2, from / 2, from - 1] {
            if to == 0 || from <= to || tried.contains(&to) {
                continue;
            }
            tried.push(to);
            for end in [End::First, End::Last] {
                let mut candidate = program.clone();
                candidate.statements.iter_mut().for_each(|statement| {
                    map_sizes(statement, end, &mut |size| if size == from { to } else { size });
                });
                let candidate = fitted(candidate);
                if candidates.last() != candidate.as_ref() {
                    candidates.extend(candidate);
                }
            }
        }
    }
    for axis in 0..4 {
        let mut candidate = program.clone();
        candidate.statements.iter_mut().for_each(|statement| drop_axis(statement, axis));
        candidates.extend(fitted(candidate));
    }
}

/// Replaces each size in the shapes and ranges of a statement. Of written data, the elements at an
/// end of each axis stay; of seeded data those at the last one, written, if they are few.
fn map_sizes(statement: &mut Statement, end: End, map: &mut dyn FnMut(usize) -> usize) {
    match statement {
        Statement::Input { dtype, shape, fill } => {
            let smaller: Vec<usize> = shape.iter().map(|size| map(*size)).collect();
            let is_written = match fill {
                Fill::Explicit(_) => true,
                Fill::Seeded { .. } => {
                    end == End::Last && smaller.iter().product::<usize>() <= DIFFERENT_MAX
                }
                Fill::Iota => false,
            };
            if is_written && smaller != *shape {
                let data = gradiff_corpus::fill(*dtype, shape, fill);
                *fill = Fill::Explicit(part(&data, &smaller, end));
            }
            *shape = smaller;
        }
        Statement::Const { shape, .. }
        | Statement::Reshape { shape, .. }
        | Statement::Expand { shape, .. } => shape.iter_mut().for_each(|size| *size = map(*size)),
        Statement::Arange { count, .. } => *count = map(*count),
        Statement::Shrink { ranges, .. } => ranges.iter_mut().for_each(|(_, end)| *end = map(*end)),
        _ => {}
    }
}

/// The elements at an end of each axis that is longer than in `shape`, row-major.
fn part(data: &Array, shape: &[usize], end: End) -> Vec<u64> {
    let element = |mut number: usize| {
        let (mut address, mut stride) = (0, 1);
        for (size, whole) in shape.iter().zip(&data.shape).rev() {
            let first = if end == End::Last { whole - size } else { 0 };
            address += (number % size + first) * stride;
            number /= size;
            stride *= whole;
        }
        data.bits[address]
    };
    (0..shape.iter().product()).map(element).collect()
}

/// Repeats or cuts explicit data so that they fit the shape.
fn fit_explicit(shape: &[usize], fill: &mut Fill) {
    if let Fill::Explicit(bits) = fill {
        let count: usize = shape.iter().product();
        if !bits.is_empty() || count == 0 {
            let cycle: Vec<u64> = bits.iter().copied().cycle().take(count).collect();
            *bits = cycle;
        }
    }
}

/// Removes an axis from the shape and the arguments of a statement, as far as they have it.
fn drop_axis(statement: &mut Statement, axis: usize) {
    fn cut<T>(list: &mut Vec<T>, axis: usize) {
        if axis < list.len() {
            list.remove(axis);
        }
    }
    fn renumber(axes: &mut Vec<usize>, axis: usize) {
        axes.retain(|kept| *kept != axis);
        axes.iter_mut().for_each(|kept| *kept -= usize::from(*kept > axis));
    }
    match statement {
        Statement::Input { shape, fill, .. } => {
            cut(shape, axis);
            fit_explicit(shape, fill);
        }
        Statement::Const { shape, .. }
        | Statement::Reshape { shape, .. }
        | Statement::Expand { shape, .. } => cut(shape, axis),
        Statement::Pad { pads, .. } => cut(pads, axis),
        Statement::Shrink { ranges, .. } => cut(ranges, axis),
        Statement::Permute { axes, .. }
        | Statement::Flip { axes, .. }
        | Statement::Reduce { axes, .. } => renumber(axes, axis),
        Statement::Cat { axis: own_axis, .. } | Statement::Gather { axis: own_axis, .. } => {
            *own_axis -= usize::from(*own_axis > axis);
        }
        _ => {}
    }
}

/// Adds programs in which the users of a movement use its source, whose shape is another one; the
/// movements after it are fitted.
pub(super) fn movements_bypassed(program: &Program, candidates: &mut Vec<Program>) {
    for (number, statement) in program.statements.iter().enumerate().rev() {
        let source = match statement {
            Statement::Reshape { src, .. }
            | Statement::Permute { src, .. }
            | Statement::Expand { src, .. }
            | Statement::Pad { src, .. }
            | Statement::Shrink { src, .. } => *src,
            _ => continue,
        };
        candidates.extend(fitted(replaced(program, number, source)));
    }
}

/// Adds programs in which an axis of an input is shorter; the movements after it are fitted.
pub(super) fn axes_smaller(program: &Program, candidates: &mut Vec<Program>) {
    for (number, statement) in program.statements.iter().enumerate() {
        let Statement::Input { shape, .. } = statement else { continue };
        for (axis, &size) in shape.iter().enumerate() {
            let mut tried = Vec::new();
            for to in [1, 2, size / 2, size.saturating_sub(1)] {
                if to == 0 || size <= to || tried.contains(&to) {
                    continue;
                }
                tried.push(to);
                let mut candidate = program.clone();
                let mut at = 0;
                map_sizes(&mut candidate.statements[number], End::First, &mut |size| {
                    at += 1;
                    if at == axis + 1 { to } else { size }
                });
                candidates.extend(fitted(candidate));
            }
        }
    }
}

/// The program with the arguments of its movements changed to fit the shapes of their sources;
/// `None` if it is not well-typed even so.
fn fitted(mut program: Program) -> Option<Program> {
    let mut types: Vec<TensorType> = Vec::with_capacity(program.statements.len());
    for statement in &mut program.statements {
        fit(statement, &types);
        types.push(statement_type(statement, &types).ok()?);
    }
    Some(program)
}

/// Changes the arguments of a movement to fit the shape of its source.
fn fit(statement: &mut Statement, types: &[TensorType]) {
    match statement {
        Statement::Reshape { src, shape } => {
            let count = types[src.0 as usize].count();
            if shape.iter().product::<usize>() != count && !shape.is_empty() {
                fit_shape(shape, count);
            }
        }
        Statement::Expand { src, shape } => {
            for (size, from) in shape.iter_mut().zip(&types[src.0 as usize].shape) {
                *size = if *from == 1 { *size } else { *from };
            }
        }
        Statement::Shrink { src, ranges } => {
            for ((start, end), size) in ranges.iter_mut().zip(&types[src.0 as usize].shape) {
                // A smaller end may lie before the start: the whole axis is kept then.
                let count = end.checked_sub(*start).unwrap_or(*size).min(*size);
                *start = (*start).min(size - count);
                *end = *start + count;
            }
        }
        _ => {}
    }
}

/// Changes the sizes of a shape so that it has `count` elements. From the last axis on, each keeps
/// the factors that it shares with what is left of the count; the first one takes the rest.
fn fit_shape(shape: &mut [usize], count: usize) {
    let mut rest = count;
    for size in shape.iter_mut().rev() {
        *size = if rest == 0 { *size } else { common_factor(*size, rest) };
        rest /= (*size).max(1);
    }
    shape[0] *= rest;
}

/// The greatest common divisor.
fn common_factor(x: usize, y: usize) -> usize {
    if y == 0 { x } else { common_factor(y, x % y) }
}
