//! Elements that a mask selects, whose number is not known before the mask is: against a loop.

use gradiff::{Error, Tensor};

use super::Draw;

/// Draws a tensor and a mask, and compares each selection with that of a loop.
pub(super) fn selections(draw: &mut Draw) -> Result<(), String> {
    let shape: Vec<usize> = (0..draw.below(4)).map(|_| draw.below(4)).collect();
    let count: usize = shape.iter().product();
    let elements: Vec<i32> = (0..count).map(|_| draw.below(3) as i32).collect();
    let x = tensor(&shape, &elements)?;
    // A mask that is broadcast: the last axes, some of which are 1.
    let first = draw.below(shape.len() + 1);
    let size = |size: &usize| if draw.one_in(4) { 1 } else { *size };
    let narrow: Vec<usize> = shape[first..].iter().map(size).collect();
    let truths: Vec<bool> = (0..narrow.iter().product()).map(|_| draw.one_in(2)).collect();
    let mask = tensor(&narrow, &truths)?;
    let is_selected = |number: usize| {
        let within = &indices(number, &shape)[first..];
        let at = within.iter().zip(&narrow);
        truths[at.fold(0, |at, (index, size)| at * size + if *size == 1 { 0 } else { *index })]
    };
    let numbers: Vec<usize> = (0..count).filter(|number| is_selected(*number)).collect();
    let selected: Vec<i32> = numbers.iter().map(|number| elements[*number]).collect();
    same("masked_select", x.masked_select(&mask), &[selected.len()], &selected)?;

    let nonzero: Vec<usize> = (0..count).filter(|number| elements[*number] != 0).collect();
    let rows: Vec<i32> = nonzero
        .iter()
        .flat_map(|number| indices(*number, &shape).into_iter().map(|index| index as i32))
        .collect();
    same("nonzero", x.nonzero(), &[nonzero.len(), shape.len()], &rows)?;

    // A mask of the first axes, as an index: it selects blocks.
    let rank = draw.below(shape.len() + 1);
    let (outer, inner) = shape.split_at(rank);
    if outer.is_empty() {
        return Ok(());
    }
    let truths: Vec<bool> = (0..outer.iter().product()).map(|_| draw.one_in(2)).collect();
    // It may be on another device, where it is computed.
    let mask = tensor(outer, &truths)?.to(draw.pick(&["interp", "jit"]));
    let mask = mask.map_err(|error| error.to_string())?;
    let block: usize = inner.iter().product();
    let kept = truths.iter().filter(|truth| **truth).count();
    let is_kept = |number: &usize| truths[number / block];
    let blocks: Vec<i32> = (0..count).filter(is_kept).map(|number| elements[number]).collect();
    same("get", x.get(&mask), &[&[kept], inner].concat(), &blocks)?;
    let replaced: Vec<i32> =
        (0..count).map(|number| if is_kept(&number) { -1 } else { elements[number] }).collect();
    let written = x.contiguous();
    same("set", written.set(&mask, -1), &shape, &replaced)
}

/// Creates a tensor for the interpreter.
fn tensor<T: gradiff::Element>(shape: &[usize], elements: &[T]) -> Result<Tensor, String> {
    let shape: Vec<i64> = shape.iter().map(|size| *size as i64).collect();
    let found = Tensor::from_slice(&shape, elements).and_then(|tensor| tensor.to("interp"));
    found.map_err(|error| error.to_string())
}

/// The index of an element along each axis.
pub(super) fn indices(number: usize, shape: &[usize]) -> Vec<usize> {
    let (mut rest, mut found) = (number, vec![0; shape.len()]);
    for axis in (0..shape.len()).rev() {
        found[axis] = rest % shape[axis];
        rest /= shape[axis];
    }
    found
}

fn same(
    name: &str,
    found: Result<Tensor, Error>,
    shape: &[usize],
    elements: &[i32],
) -> Result<(), String> {
    let found = found.map_err(|error| format!("{name}: {error}"))?;
    let found_shape: Vec<usize> = found.shape().iter().map(|size| *size as usize).collect();
    let read = found.to_vec::<i32>().map_err(|error| format!("{name}: {error}"))?;
    match found_shape == shape && read == elements {
        true => Ok(()),
        false => Err(format!("{name}: {read:?} {found_shape:?}, not {elements:?} {shape:?}")),
    }
}
