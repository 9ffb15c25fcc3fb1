//! Sums of products whose formulas have `...`, the axes of which are broadcast, against loops.
//!
//! Statements of programs give each axis a label of its own size, so none has such axes.

use gradiff::{Error, Tensor};

use super::Draw;

/// The letters of a matrix product: rows, sums, columns.
const LETTERS: [char; 3] = ['i', 'j', 'k'];

/// An operand: its letters, with the axes of `...` before number `at` of them.
struct Operand {
    letters: [usize; 2],
    at: usize,
    batch: Vec<usize>,
}

impl Operand {
    /// Draws an operand of the last axes of a batch, some of which are 1.
    fn draw(draw: &mut Draw, mut letters: [usize; 2], batch: &[usize]) -> Operand {
        if draw.one_in(2) {
            letters.reverse();
        }
        let first = draw.below(batch.len() + 1);
        let size = |size: &usize| if draw.one_in(3) { 1 } else { *size };
        let batch = batch[first..].iter().map(size).collect();
        Operand { letters, at: draw.below(3), batch }
    }

    fn term(&self) -> String {
        let letters: String = self.letters.iter().map(|letter| LETTERS[*letter]).collect();
        format!("{}...{}", &letters[..self.at], &letters[self.at..])
    }

    fn shape(&self, sizes: [usize; 3]) -> Vec<usize> {
        let (before, after) = self.letters.split_at(self.at);
        let sizes = |letters: &[usize]| -> Vec<usize> {
            letters.iter().map(|letter| sizes[*letter]).collect()
        };
        [sizes(before), self.batch.clone(), sizes(after)].concat()
    }

    /// The number of the element at these coordinates.
    fn position(&self, coordinates: [usize; 3], batch: &[usize], sizes: [usize; 3]) -> usize {
        let within = &batch[batch.len() - self.batch.len()..];
        let within = within.iter().zip(&self.batch);
        let within: Vec<usize> =
            within.map(|(index, size)| if *size == 1 { 0 } else { *index }).collect();
        let named = |letters: &[usize]| -> Vec<usize> {
            letters.iter().map(|letter| coordinates[*letter]).collect()
        };
        let (before, after) = self.letters.split_at(self.at);
        let index = [named(before), within, named(after)].concat();
        let shape = self.shape(sizes);
        index.iter().zip(shape).fold(0, |position, (index, size)| position * size + index)
    }
}

/// Draws two operands, and compares their products with those of loops. Batches that do not
/// broadcast must be refused.
pub(super) fn batches(draw: &mut Draw) -> Result<(), String> {
    let batch: Vec<usize> = (0..draw.below(4)).map(|_| 1 + draw.below(3)).collect();
    let sizes = [0; 3].map(|_| 1 + draw.below(3));
    let mut operands = [[0, 1], [1, 2]].map(|letters| Operand::draw(draw, letters, &batch));
    let rank = operands.iter().map(|operand| operand.batch.len()).max().unwrap_or(0);
    let size_at = |operand: &Operand, axis: usize| {
        (operand.batch.len() + axis).checked_sub(rank).map_or(1, |at| operand.batch[at])
    };
    // An axis that both have, of another size in one of them.
    let is_damaged = draw.one_in(6)
        && (0..rank).any(|axis| {
            let is_wide = operands.iter().all(|operand| 1 < size_at(operand, axis));
            if is_wide {
                let at = operands[0].batch.len() + axis - rank;
                operands[0].batch[at] += 1;
            }
            is_wide
        });
    let result = Operand {
        letters: if draw.one_in(2) { [0, 2] } else { [2, 0] },
        at: draw.below(3),
        batch: (0..rank)
            .map(|axis| size_at(&operands[0], axis).max(size_at(&operands[1], axis)))
            .collect(),
    };
    let formula = format!("{},{}->{}", operands[0].term(), operands[1].term(), result.term());
    let tensors = operands.each_ref().map(|operand| {
        let shape = operand.shape(sizes);
        let elements: Vec<i32> = (0..shape.iter().product::<usize>() as i32).collect();
        let shape: Vec<i64> = shape.iter().map(|size| *size as i64).collect();
        Tensor::from_slice(&shape, &elements).and_then(|tensor| tensor.to("interp"))
    });
    let [x, y] = tensors.map(|tensor| tensor.map_err(|error| error.to_string()));
    let (x, y) = (x?, y?);
    let said = format!("einsum {formula:?} of {x:?} and {y:?}");
    let found = match (Tensor::einsum(&formula, &[&x, &y]), is_damaged) {
        (Ok(found), false) => found,
        (Err(Error::Invalid(_)), true) => return Ok(()),
        (Ok(_), true) => return Err(format!("{said}: it must be refused")),
        (Err(error), _) => return Err(format!("{said}: {error}")),
    };
    let shape = result.shape(sizes);
    let mut expected = vec![0; shape.iter().product()];
    for number in 0..result.batch.iter().product::<usize>() {
        let mut rest = number;
        let mut index = vec![0; rank];
        for axis in (0..rank).rev() {
            index[axis] = rest % result.batch[axis];
            rest /= result.batch[axis];
        }
        for at in 0..sizes.iter().product::<usize>() {
            let [i, j, k] = [at / (sizes[1] * sizes[2]), at / sizes[2] % sizes[1], at % sizes[2]];
            let [x, y, sum] = [&operands[0], &operands[1], &result]
                .map(|operand| operand.position([i, j, k], &index, sizes));
            expected[sum] += (x * y) as i32;
        }
    }
    let found_shape: Vec<usize> = found.shape().iter().map(|size| *size as usize).collect();
    let elements = found.to_vec::<i32>().map_err(|error| format!("{said}: {error}"))?;
    match found_shape == shape && elements == expected {
        true => Ok(()),
        false => Err(format!("{said}: {elements:?} {found_shape:?}, not {expected:?} {shape:?}")),
    }
}
