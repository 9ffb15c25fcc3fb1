//! Indices of all kinds beside each other, read and assigned, against a loop over the elements that
//! they select: positions, ranges, new axes, tensors of positions and masks.

use std::ops::Bound;

use gradiff::{DType, Ellipsis, Error, Index, NewAxis, Operand, Tensor, stepped};
use gradiff_eval::scalar;

use super::rows::{self, broadcast};
use super::values::{Wanted, compare, exactly, integers_of};
use super::{Draw, selections};

/// Integers that are positions.
const POSITIONS: [DType; 8] =
    [DType::I64, DType::I32, DType::I16, DType::I8, DType::U8, DType::U16, DType::U32, DType::U64];

/// An axis of the indexed tensor, before tensors of positions are applied.
enum Axis {
    /// A new axis.
    New,
    /// The positions that a range keeps.
    Kept { axis: usize, positions: Vec<usize> },
    /// The tensor of positions of this number.
    Taken { axis: usize, number: usize },
}

/// The positions of a tensor along an axis; `None` for those outside.
struct Positions {
    shape: Vec<usize>,
    elements: Vec<Option<usize>>,
}

/// Indices, and what they select.
#[derive(Default)]
struct Drawn {
    indices: Vec<Index>,
    axes: Vec<Axis>,
    /// Axes that a single position removes, and the position.
    fixed: Vec<(usize, usize)>,
    taken: Vec<Positions>,
}

/// The number of an element in row-major order.
fn flat(index: &[usize], shape: &[usize]) -> usize {
    index.iter().zip(shape).fold(0, |at, (index, size)| at * size + index)
}

/// The element of a tensor of this shape that an index of its broadcast form reads.
fn flat_broadcast(index: &[usize], shape: &[usize]) -> usize {
    let last = &index[index.len() - shape.len()..];
    let within: Vec<usize> =
        last.iter().zip(shape).map(|(at, size)| if *size == 1 { 0 } else { *at }).collect();
    flat(&within, shape)
}

/// The tensor, or another of the same elements that is not computed yet.
fn maybe_lazy(
    draw: &mut Draw,
    x: Result<Tensor, Error>,
    same: fn(&Tensor) -> Result<Tensor, Error>,
) -> Result<Tensor, String> {
    let x = if draw.one_in(3) { x.and_then(|x| same(&x)) } else { x };
    x.map_err(|error| error.to_string())
}

/// A position within an axis, from its end half of the time, of one of three types.
fn position(draw: &mut Draw, size: usize) -> (Index, usize) {
    let at = draw.below(size);
    let from_end = at as i64 - size as i64;
    let index = match draw.below(4) {
        0 => Index::from(at),
        1 => Index::from(from_end as i32),
        2 => Index::from(at as i64),
        _ => Index::from(from_end),
    };
    (index, at)
}

/// A range of Rust or a pair of bounds, and the positions that it keeps.
fn range(draw: &mut Draw, size: usize) -> (Index, Vec<usize>) {
    let (size, step) = (size as i64, draw.pick(&[1, 1, 1, 2, -1, -2, 3, -7]));
    let mut bound = |excluded: usize| {
        let at = draw.below(2 * size as usize + 3) as i64 - size - 1;
        match draw.below(4) {
            0 => Bound::Unbounded,
            kind if kind <= excluded => Bound::Excluded(at),
            _ => Bound::Included(at),
        }
    };
    let (start, stop) = (bound(1), bound(2));
    let index = match (start, stop, step) {
        (Bound::Included(start), Bound::Excluded(stop), 1) => Index::from(start..stop),
        (Bound::Included(start), Bound::Included(stop), 1) => Index::from(start..=stop),
        (Bound::Included(start), Bound::Unbounded, 1) => Index::from(start as i32..),
        (Bound::Unbounded, Bound::Excluded(stop), 1) => Index::from(..stop),
        (Bound::Unbounded, Bound::Included(stop), 1) => Index::from(..=stop as i32),
        (Bound::Unbounded, Bound::Unbounded, 1) => Index::from(..),
        (start, stop, step) => stepped((start, stop), step),
    };
    let sign = i64::signum(step);
    let (low, high) = if step < 0 { (-1, size - 1) } else { (0, size) };
    let (begin, end) = if step < 0 { (high, low) } else { (low, high) };
    let from_start = |at: i64| if at < 0 { at + size } else { at };
    let mut at = match start {
        Bound::Unbounded => begin,
        Bound::Included(at) => from_start(at).clamp(low, high),
        Bound::Excluded(at) => (from_start(at) + sign).clamp(low, high),
    };
    let end = match stop {
        Bound::Unbounded => end,
        Bound::Excluded(at) => from_start(at).clamp(low, high),
        Bound::Included(at) => (from_start(at) + sign).clamp(low, high),
    };
    let mut positions = Vec::new();
    while 0 < (end - at) * sign {
        positions.push(at as usize);
        at += step;
    }
    (index, positions)
}

/// A tensor of positions along an axis, some from its end, some outside.
fn positions(draw: &mut Draw, size: usize, shape: &[usize]) -> Result<(Tensor, Positions), String> {
    let dtype = draw.pick(&POSITIONS);
    let (low, high) = scalar::range(dtype).expect("it is an integer's type");
    let size = size as i128;
    let (count, mut numbers): (usize, _) = (shape.iter().product(), Vec::new());
    for _ in 0..count {
        let near = draw.below(2 * size as usize + 2) as i128 - size - 1;
        let near = if low == 0 { near.rem_euclid(size + 1) } else { near };
        numbers.push(match draw.below(12) {
            0 => draw.pick(&[low, high, high / 2 + 1]),
            1 => size,
            _ => near,
        });
    }
    let position = |number: &i128| {
        let at = if *number < 0 { number + size } else { *number };
        (0..size).contains(&at).then_some(at as usize)
    };
    let elements = numbers.iter().map(position).collect();
    let tensor = maybe_lazy(draw, integers_of(dtype, shape, &numbers), |x| x.add(0))?;
    Ok((tensor, Positions { shape: shape.to_vec(), elements }))
}

/// A mask of some axes, and the positions along each of them where it is true. If `count` is given,
/// as many are, where there are so many.
fn mask(
    draw: &mut Draw,
    sizes: &[usize],
    count: Option<usize>,
) -> Result<(Tensor, Vec<Positions>), String> {
    let elements: usize = sizes.iter().product();
    let mut truths: Vec<bool> = (0..elements).map(|_| draw.one_in(2)).collect();
    if let Some(count) = count {
        truths.fill(false);
        let first = draw.below(elements.max(1));
        (0..count.min(elements)).for_each(|at| truths[(first + at) % elements] = true);
    }
    let chosen: Vec<usize> = (0..elements).filter(|at| truths[*at]).collect();
    let along = |axis: usize| Positions {
        shape: vec![chosen.len()],
        elements: chosen.iter().map(|at| Some(selections::indices(*at, sizes)[axis])).collect(),
    };
    let tensor = Tensor::from_slice(&rows::sizes(sizes), &truths);
    let tensor = maybe_lazy(draw, tensor, |mask| mask.not()?.not())?;
    Ok((tensor, (0..sizes.len()).map(along).collect()))
}

impl Drawn {
    /// Draws indices of a tensor of this shape.
    fn draw(draw: &mut Draw, shape: &[usize]) -> Result<Drawn, String> {
        let mut drawn = Drawn::default();
        let shapes: [&[usize]; 7] = [&[2], &[3], &[1], &[2, 2], &[1, 3], &[3, 1], &[]];
        let usual = draw.pick(&shapes);
        // Axes from `end` on are left to the ellipsis, or to the end.
        let (mut axis, end) = (0, shape.len() - draw.below(2).min(shape.len().saturating_sub(1)));
        let ellipsis = (!draw.one_in(3)).then(|| draw.below(end + 1));
        let mut is_open = ellipsis.is_some();
        let mut skipped = 0;
        while axis < end || is_open {
            if is_open && ellipsis.is_some_and(|at| at <= axis || axis == end) {
                is_open = false;
                drawn.indices.push(Index::from(Ellipsis));
                skipped = shape.len() - end;
                (axis..axis + skipped).for_each(|axis| drawn.keep_all(axis, shape));
                continue;
            }
            let at = axis + skipped;
            // An axis of size 0 has ranges and masks alone.
            let kind = if shape[at] == 0 { 4 + draw.below(2) } else { draw.below(9) };
            match kind {
                0 if drawn.axes.len() < 4 => {
                    drawn.indices.push(Index::from(NewAxis));
                    drawn.axes.push(Axis::New);
                    continue;
                }
                1 => {
                    let (index, position) = position(draw, shape[at]);
                    drawn.indices.push(index);
                    drawn.fixed.push((at, position));
                }
                2..=4 => {
                    let (index, positions) = range(draw, shape[at]);
                    drawn.indices.push(index);
                    drawn.axes.push(Axis::Kept { axis: at, positions });
                }
                5 | 6 => {
                    // Not over the axes of the ellipsis.
                    let limit = if is_open { ellipsis.unwrap_or(end).max(axis + 1) } else { end };
                    let rank = 1 + draw.below((limit - axis).min(2));
                    let count = usual.last().copied().filter(|_| !draw.one_in(3));
                    let (tensor, found) = mask(draw, &shape[at..at + rank], count)?;
                    drawn.indices.push(Index::from(tensor));
                    for (number, positions) in found.into_iter().enumerate() {
                        drawn.take(at + number, positions);
                    }
                    axis += rank;
                    continue;
                }
                _ => {
                    let shape_of = if draw.one_in(6) { draw.pick(&shapes) } else { usual };
                    let (tensor, found) = positions(draw, shape[at], shape_of)?;
                    drawn.indices.push(Index::from(&tensor));
                    drawn.take(at, found);
                }
            }
            axis += 1;
        }
        if draw.one_in(6) {
            drawn.indices.push(Index::from(NewAxis));
            drawn.axes.push(Axis::New);
        }
        // Axes without an index.
        if ellipsis.is_none() {
            (end..shape.len()).for_each(|axis| drawn.keep_all(axis, shape));
        }
        Ok(drawn)
    }

    fn keep_all(&mut self, axis: usize, shape: &[usize]) {
        self.axes.push(Axis::Kept { axis, positions: (0..shape[axis]).collect() });
    }

    fn take(&mut self, axis: usize, positions: Positions) {
        self.axes.push(Axis::Taken { axis, number: self.taken.len() });
        self.taken.push(positions);
    }

    /// The shape of the selected elements, and the number of each in a tensor of this shape, `None`
    /// outside; `None` if the positions do not broadcast.
    fn selected(&self, shape: &[usize]) -> Option<(Vec<usize>, Vec<Option<usize>>)> {
        let mut shapes = self.taken.iter().map(|positions| &positions.shape);
        let common = shapes.try_fold(Vec::new(), |common, shape| broadcast(&common, shape))?;
        let is_taken = |at: &usize| matches!(self.axes[*at], Axis::Taken { .. });
        let taken: Vec<usize> = (0..self.axes.len()).filter(is_taken).collect();
        let rest: Vec<usize> = (0..self.axes.len()).filter(|at| !is_taken(at)).collect();
        // In the place of the axes if these are next to each other, else first.
        let are_adjacent = taken.windows(2).all(|pair| pair[1] == pair[0] + 1);
        let first = if are_adjacent { taken.first().copied().unwrap_or(0) } else { 0 };
        let size = |at: &usize| match &self.axes[*at] {
            Axis::Kept { positions, .. } => positions.len(),
            _ => 1,
        };
        let sizes = |axes: &[usize]| axes.iter().map(size).collect::<Vec<_>>();
        let found = [sizes(&rest[..first]), common.clone(), sizes(&rest[first..])].concat();
        let element = |number: usize| {
            let index = selections::indices(number, &found);
            let (before, tail) = index.split_at(first);
            let (of_taken, after) = tail.split_at(common.len());
            let mut source = vec![0; shape.len()];
            self.fixed.iter().for_each(|(axis, position)| source[*axis] = *position);
            for (at, index) in rest.iter().zip(before.iter().chain(after)) {
                if let Axis::Kept { axis, positions } = &self.axes[*at] {
                    source[*axis] = positions[*index];
                }
            }
            for at in &taken {
                if let Axis::Taken { axis, number } = self.axes[*at] {
                    let positions = &self.taken[number];
                    source[axis] = positions.elements[flat_broadcast(of_taken, &positions.shape)]?;
                }
            }
            Some(flat(&source, shape))
        };
        let elements = (0..found.iter().product()).map(element).collect();
        Some((found, elements))
    }
}

/// Draws a tensor and indices, and compares what `get` gives and what `set` changes with a loop.
pub(super) fn indices(draw: &mut Draw) -> Result<(), String> {
    let rank = draw.pick(&[1, 2, 3, 1, 2, 3, 3, 0]);
    let size = |_| if draw.one_in(24) { 0 } else { 1 + draw.below(4) };
    let shape: Vec<usize> = (0..rank).map(size).collect();
    let dtype = draw.pick(&[DType::I32, DType::F32, DType::F32, DType::U8, DType::I64, DType::F16]);
    let mut numbers: Vec<i128> = (1..=shape.iter().product::<usize>() as i128).collect();
    let x = maybe_lazy(draw, integers_of(dtype, &shape, &numbers), |x| x.add(0))?;
    if rank != 0 && draw.one_in(8) {
        refusals(draw, &x, &shape).map_err(|error| format!("{dtype}{shape:?}: {error}"))?;
        let label = format!("{dtype}{shape:?} after refusals");
        return compare(draw, &label, &x, &exactly(dtype, &numbers));
    }
    let drawn = Drawn::draw(draw, &shape)?;
    let label = format!("of {dtype}{shape:?} at {:?}", drawn.indices);
    let indices = || drawn.indices.clone();
    let Some((found, elements)) = drawn.selected(&shape) else {
        for (name, answer) in [("get", x.get(indices())), ("set", x.set(indices(), 0))] {
            match answer {
                Err(Error::Invalid(message)) if !message.is_empty() => {}
                answer => return Err(format!("{name} {label} gives {answer:?}, not a refusal")),
            }
        }
        return Ok(());
    };
    match draw.below(4) {
        0 if dtype == DType::F32 && !elements.is_empty() => {
            gradient(draw, &label, &x, &drawn, (&found, &elements))
        }
        0 | 1 => {
            let part = x.get(indices()).map_err(|error| format!("get {label}: {error:?}"))?;
            if part.shape() != rows::sizes(&found) || part.dtype() != dtype {
                return Err(format!("get {label} gives {part:?}, expected {dtype}{found:?}"));
            }
            let selected: Vec<i128> =
                elements.iter().map(|at| at.map_or(0, |at| numbers[at])).collect();
            compare(draw, &format!("get {label}"), &part, &exactly(dtype, &selected))
        }
        _ => {
            let mut labels = vec![set(draw, &x, &drawn, (&found, &elements), &mut numbers)?];
            if draw.one_in(3) {
                let drawn = Drawn::draw(draw, &shape)?;
                if let Some((found, elements)) = drawn.selected(&shape) {
                    labels.push(set(draw, &x, &drawn, (&found, &elements), &mut numbers)?);
                }
            }
            let label = format!("{dtype}{shape:?} after {labels:?}");
            compare(draw, &label, &x, &exactly(dtype, &numbers))
        }
    }
}

/// Assigns to the selected elements a number, drawn ones, or each itself plus 1; returns the call.
fn set(
    draw: &mut Draw,
    x: &Tensor,
    drawn: &Drawn,
    (found, elements): (&[usize], &[Option<usize>]),
    numbers: &mut [i128],
) -> Result<String, String> {
    let indices = || drawn.indices.clone();
    let problem = |error: Error| format!("values of {:?}: {error:?}", drawn.indices);
    let (value, shape, values) = match draw.below(5) {
        0 => (Operand::from(99), Vec::new(), vec![99]),
        1 => {
            let next = |at: &Option<usize>| at.map_or(1, |at| numbers[at] + 1);
            let value = x.get(indices()).and_then(|x| x.add(1)).map_err(problem)?;
            (Operand::from(value), found.to_vec(), elements.iter().map(next).collect())
        }
        _ => {
            // The shape of the elements, or one that is broadcast to it.
            let skipped = if draw.one_in(3) { draw.below(found.len() + 1) } else { 0 };
            let size = |size: &usize| if draw.one_in(5) { 1 } else { *size };
            let shape: Vec<usize> = found[skipped..].iter().map(size).collect();
            let count: usize = shape.iter().product();
            let values: Vec<i128> = (0..count as i128).map(|at| 100 + at).collect();
            let value = integers_of(x.dtype(), &shape, &values).map_err(problem)?;
            (Operand::from(value), shape, values)
        }
    };
    let label = format!("set at {:?} to {values:?} as {shape:?}", drawn.indices);
    let answer = x.set(indices(), value).map_err(|error| format!("{label}: {error:?}"))?;
    for (number, at) in elements.iter().enumerate() {
        let Some(at) = at else { continue };
        numbers[*at] = values[flat_broadcast(&selections::indices(number, found), &shape)];
    }
    match answer.uop() == x.uop() {
        true => Ok(label),
        false => Err(format!("{label} gives {answer:?} and changes {x:?}")),
    }
}

/// Checks that illegal indices are refused, and values that do not fit.
fn refusals(draw: &mut Draw, x: &Tensor, shape: &[usize]) -> Result<(), String> {
    let problem = |error: Error| error.to_string();
    let size = shape[0];
    let longer = [&[size + 1][..], &shape[1..]].concat();
    let truths =
        |shape: &[usize]| Tensor::full(DType::Bool, &rows::sizes(shape), true).map(Index::from);
    let illegal: Vec<Index> = match draw.below(10) {
        0 => vec![Index::from(usize::MAX)],
        1 => vec![Index::from(draw.pick(&[i64::MIN, i64::MAX, -(size as i64) - 1, size as i64]))],
        2 => vec![stepped(.., 0)],
        3 => vec![Index::from(Ellipsis), Index::from(NewAxis), Index::from(Ellipsis)],
        4 => vec![Index::from(0); shape.len() + 1],
        5 => vec![Index::from(..); shape.len() + 1],
        6 => vec![Tensor::zeros(DType::F32, &[1]).map(Index::from).map_err(problem)?],
        7 => vec![truths(&[]).map_err(problem)?],
        8 => vec![truths(&longer).map_err(problem)?],
        _ => vec![truths(&[shape, &[1]].concat()).map_err(problem)?],
    };
    // More elements than there are along the last axis, or another type.
    let last = shape[shape.len() - 1] as i64;
    let wrong = match draw.below(2) {
        0 => Tensor::zeros(x.dtype(), &[last + 2]),
        _ => Tensor::zeros(DType::I16, &[1]),
    };
    let before = x.uop();
    let answers = [
        ("get", x.get(illegal.clone())),
        ("set", x.set(illegal.clone(), 1)),
        ("set of a wrong value", x.set(Index::from(Ellipsis), &wrong.map_err(problem)?)),
    ];
    for (name, answer) in answers {
        match answer {
            Err(Error::Invalid(message)) if !message.is_empty() => {}
            answer => return Err(format!("{name} at {illegal:?} gives {answer:?}, not a refusal")),
        }
    }
    match x.uop() == before {
        true => Ok(()),
        false => Err(format!("a refused set at {illegal:?} changes the tensor")),
    }
}

/// Checks the gradient with respect to the source: the sum of the weights of all places where an
/// element is selected.
fn gradient(
    draw: &mut Draw,
    label: &str,
    x: &Tensor,
    drawn: &Drawn,
    (found, elements): (&[usize], &[Option<usize>]),
) -> Result<(), String> {
    let problem = |error: Error| format!("gradient of get {label}: {error:?}");
    let numbers: Vec<i128> = (0..elements.len() as i128).map(|at| at % 7 - 2).collect();
    let weights = integers_of(DType::F32, found, &numbers).map_err(problem)?;
    let part = x.get(drawn.indices.clone()).map_err(problem)?;
    let gradient = part.gradient_by(&weights, &[x]).map_err(problem)?.remove(0);
    let mut sums = vec![0; x.size_elements() as usize];
    for (at, weight) in elements.iter().zip(&numbers) {
        at.iter().for_each(|at| sums[*at] += weight);
    }
    let wanted: Vec<Wanted> = sums.iter().map(|sum| Wanted::Near(*sum as f64, 0.0)).collect();
    compare(draw, &format!("gradient of get {label}"), &gradient, &wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_match_loops() {
        for seed in 0..300 {
            indices(&mut Draw::new(seed)).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        }
    }

    #[test]
    fn masks_are_drawn_before_positions() {
        let is_drawn = |seed: &u64| {
            let drawn = Drawn::draw(&mut Draw::new(*seed), &[3, 2, 4]).expect("it is drawn");
            let is_of = |index: &Index, is_mask: bool| match index {
                Index::Elements(tensor) => (tensor.dtype() == DType::Bool) == is_mask,
                _ => false,
            };
            let mask = drawn.indices.iter().position(|index| is_of(index, true));
            let positions = drawn.indices.iter().rposition(|index| is_of(index, false));
            mask.is_some_and(|mask| positions.is_some_and(|positions| mask < positions))
                && drawn.selected(&[3, 2, 4]).is_some()
        };
        let count = (0..1000).filter(is_drawn).count();
        assert!(20 < count, "{count} of 1000");
    }
}
