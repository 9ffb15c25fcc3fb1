//! Kernels that read slices of a buffer, at any place in it, and parts of buffers that need no
//! kernel, against lists of elements.

use gradiff::{DType, Engine, Error, Tensor};

use super::Draw;
use super::values::{compare_computed, exactly, integers_of};
use crate::backends::refusal::Refusal;

/// Sizes of the whole in bytes: parts that begin at a multiple of 64 bytes share them.
const WHOLE_BYTES: [usize; 3] = [512, 1024, 4096];
/// Multiples of elements at which slices on another device begin: all its kernels have them as
/// buffers of their own, so that there are few kernels, as its compiler may be slow.
const ALIGNED: usize = 128;
/// Number of kernels for each whole, which read slices of the same sizes elsewhere.
const KERNELS: usize = 3;

/// A tensor, and the number of each of its elements in the whole.
struct Part {
    tensor: Tensor,
    shape: Vec<usize>,
    from: Vec<usize>,
}

impl Part {
    /// The part from an element on along the first axis.
    fn shrunk(&self, first: usize, size: usize) -> Result<Part, Error> {
        let row: usize = self.shape[1..].iter().product();
        let mut ranges: Vec<(i64, i64)> = self.shape.iter().map(|size| (0, *size as i64)).collect();
        ranges[0] = (first as i64, (first + size) as i64);
        let mut shape = self.shape.clone();
        shape[0] = size;
        let from = self.from[first * row..][..size * row].to_vec();
        Ok(Part { tensor: self.tensor.shrink(&ranges)?, shape, from })
    }

    fn reshaped(&self, shape: Vec<usize>) -> Result<Part, Error> {
        let sizes: Vec<i64> = shape.iter().map(|size| *size as i64).collect();
        Ok(Part { tensor: self.tensor.reshape(&sizes)?, shape, from: self.from.clone() })
    }

    /// A column of a matrix, whose elements are not contiguous.
    fn column(&self, number: usize) -> Result<Part, Error> {
        let [rows, columns] = self.shape[..] else { unreachable!("it is a matrix") };
        let ranges = [(0, rows as i64), (number as i64, number as i64 + 1)];
        let from = (0..rows).map(|row| self.from[row * columns + number]).collect();
        Ok(Part { tensor: self.tensor.shrink(&ranges)?.squeeze(1)?, shape: vec![rows], from })
    }
}

/// Draws `count` elements of a part: a slice, one of rows, one of a slice, or a column.
fn slice(
    draw: &mut Draw,
    whole: &Part,
    count: usize,
    (kind, align): (usize, usize),
) -> Result<Part, Error> {
    let size = whole.from.len();
    // At the beginning, aligned or not, or at the end.
    let first = |draw: &mut Draw, size: usize, count: usize| {
        let at = match draw.below(5) {
            0 => size - count,
            1 => draw.below(size - count + 1) / 64 * 64,
            _ => draw.below(size - count + 1),
        };
        at / align * align
    };
    match kind {
        0 => {
            let rows = whole.reshaped(vec![size / count, count])?;
            let first = draw.below(size / count);
            rows.shrunk(first, 1)?.reshaped(vec![count])
        }
        1 => {
            let wide = (2 * count).min(size);
            let at = first(draw, size, wide);
            let wide = whole.shrunk(at, wide)?;
            let at = first(draw, wide.from.len(), count);
            wide.shrunk(at, count)
        }
        2 => {
            let columns = size / count;
            whole.reshaped(vec![count, columns])?.column(draw.below(columns))
        }
        _ => {
            let at = first(draw, size, count);
            whole.shrunk(at, count)
        }
    }
}

/// Draws kernels of slices and parts of a tensor on a device in process.
pub(super) fn slices(draw: &mut Draw) -> Result<(), String> {
    let device = draw.pick(&["interp", "jit"]);
    let dtypes = [DType::I32, DType::F32, DType::U8, DType::I64, DType::F16, DType::I16];
    let dtype = draw.pick(&dtypes);
    let size_bytes = draw.pick(&WHOLE_BYTES[..2]);
    Ok(check(draw, device, (dtype, size_bytes, 1))?)
}

/// Draws the same on a device with memory of its own.
pub(super) fn slices_on(device: &str, draw: &mut Draw) -> Result<(), Refusal> {
    check(draw, device, (DType::I32, WHOLE_BYTES[2], ALIGNED))
}

/// Checks a whole of this dtype and size in bytes, of which parts begin at multiples of `align`.
fn check(
    draw: &mut Draw,
    device: &str,
    (dtype, size_bytes, align): (DType, usize, usize),
) -> Result<(), Refusal> {
    let size = size_bytes / dtype.size_bytes();
    // All neighbours differ, and sums of two are numbers of the type.
    let mut numbers: Vec<i128> = (0..size as i128).map(|at| at * 7 % 61).collect();
    let mut whole = integers_of(dtype, &[size], &numbers)?.to(device)?;
    let is_computed = align != 1 || draw.one_in(2);
    if is_computed {
        // Then the device has the bytes.
        whole = whole.add(1)?;
        numbers.iter_mut().for_each(|number| *number += 1);
    }
    whole.realize().map_err(Refusal::of_call)?;
    let whole = Part { tensor: whole, shape: vec![size], from: (0..size).collect() };
    let engine = Engine::new(device)?;
    let check = |label: &str, tensor: &Tensor, numbers: &[i128]| {
        let label = format!("{label} of {dtype}[{size}], computed: {is_computed}");
        compare_computed(&engine, &label, tensor, &exactly(dtype, numbers))
    };
    let values = |part: &Part| part.from.iter().map(|at| numbers[*at]).collect::<Vec<i128>>();

    // A part of a part of a part, each computed before the next is taken.
    let mut parts: Vec<Part> = Vec::new();
    for _ in 0..3 {
        let last = parts.last().unwrap_or(&whole);
        let known = last.from.len();
        let first = draw.below(known / 3) / 16 * 16 / align * align;
        let is_cut = align == 1 && draw.one_in(3);
        let taken = known - first - if is_cut { 3 } else { 0 };
        let part = last.shrunk(first, taken)?;
        part.tensor.realize().map_err(Refusal::of_call)?;
        parts.push(part);
    }

    // Kernels of slices of the whole or a part, of the same sizes each time.
    let count = size / if align == 1 { draw.pick(&[4, 8, 16]) } else { 8 };
    let kinds = [draw.below(5), draw.below(5)];
    let is_of_part = draw.one_in(3);
    let is_flipped = draw.one_in(3);
    for _ in 0..KERNELS {
        let source = if is_of_part { &parts[0] } else { &whole };
        let of_source = |draw: &mut Draw, kind: usize| {
            let is_even = source.from.len().is_multiple_of(count);
            let kind = if is_even && (align == 1 || kind != 2) { kind } else { 3 };
            slice(draw, source, count, (kind, align))
        };
        let (x, y) = (of_source(draw, kinds[0])?, of_source(draw, kinds[1])?);
        let (mut second, mut addends) = (y.tensor.clone(), values(&y));
        if is_flipped {
            second = second.flip(&[0])?;
            addends.reverse();
        }
        let sum = x.tensor.add(&second)?;
        let wanted: Vec<i128> = values(&x).iter().zip(&addends).map(|(x, y)| x + y).collect();
        if draw.one_in(3) {
            // Together with a part that needs no kernel.
            gradiff::realize(&[&sum, &x.tensor]).map_err(Refusal::of_call)?;
            check("a slice", &x.tensor, &values(&x))?;
        }
        let label = format!("the sum of slices {kinds:?} at {} and {}", x.from[0], y.from[0]);
        check(&label, &sum, &wanted)?;
    }
    for (number, part) in parts.iter().enumerate() {
        check(&format!("part {number}"), &part.tensor, &values(part))?;
    }
    check("the whole", &whole.tensor, &values(&whole))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_and_parts_have_their_elements() {
        for seed in 0..150 {
            slices(&mut Draw::new(seed)).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        }
        slices_on("jit", &mut Draw::new(0)).expect("slices of a long buffer");
    }
}
