//! Functions of the elements so far along an axis.

use gradiff_corpus::{Args, Method, ValueId};

use super::decisions::shares;
use super::elements::{Elements, wide_cells};
use super::rule::Running;
use super::scalars::{Function, Id};
use super::statistics::{log_of_powers, sum};
use crate::cell::Reason;
use crate::evaluate::get;
use crate::infer::{Check, resolve_axis};
use crate::movement::for_each_index;
use crate::value::Value;

/// Number of elements up to which a sum or extreme refers to all elements so far. A later extreme
/// refers to that before it, which allows an engine more roundings than it needs; a later sum to
/// the elements of its block of so many, and to the sums of the blocks before.
const DIRECT: usize = 64;
/// Number of elements of as many blocks, from which on a sum refers to that before them.
const BLOCKS: usize = DIRECT * DIRECT;

/// Returns what adds up to the sum of the elements so far, at position `at`, which is number
/// `number` of its line. The sums so far are `found`, those of whole blocks `blocks`, each at the
/// position of its last element.
fn summands(
    ids: &[Id],
    (found, blocks): (&[Id], &[Id]),
    (at, number, stride): (usize, usize, usize),
) -> Vec<Id> {
    let before = |count: usize| at - count * stride;
    let in_block = number % DIRECT;
    let elements = (0..=in_block).rev().map(|i| ids[before(i)]);
    let count = number % BLOCKS / DIRECT;
    let sums = (0..count).map(|i| blocks[before(in_block + 1 + i * DIRECT)]);
    let first = (BLOCKS <= number).then(|| found[before(number % BLOCKS + 1)]);
    elements.chain(sums).chain(first).collect()
}

impl Elements<'_> {
    pub(super) fn running(
        &mut self,
        running: Running,
        src: ValueId,
        args: Args<'_>,
        value: &Value,
    ) -> Check<Vec<Id>> {
        let shape = get(self.values, src)?.shape.clone();
        let axis = resolve_axis(args.int(0), shape.len())?;
        let stride: usize = shape[axis + 1..].iter().product();
        let ids = self.ids(src)?;
        let mut cells = wide_cells(value, value.dtype).into_iter();
        let mut found: Vec<Id> = Vec::with_capacity(ids.len());
        // Sums of blocks, at the positions of their last elements.
        let mut blocks: Vec<Id> = Vec::with_capacity(ids.len());
        // Numbers of elements that equal the extreme so far.
        let mut ties: Vec<usize> = Vec::with_capacity(ids.len());
        for_each_index(&shape, |index| {
            let (at, number) = (found.len(), index[axis]);
            let cell = cells.next().expect("the result has the shape of the source");
            let so_far: Vec<Id> = match number < DIRECT || running == Running::Sum {
                true => summands(&ids, (&found[..], &blocks[..]), (at, number, stride)),
                false => vec![found[at - stride], ids[at]],
            };
            let is_block = running == Running::Sum && number % DIRECT == DIRECT - 1;
            blocks.push(match is_block && number + 1 < shape[axis] {
                true => sum(&mut self.scalars, &so_far[..DIRECT]),
                false => Id::ZERO,
            });
            let before = if number < DIRECT { 1 } else { ties[at - stride] };
            let mut tie = 1;
            found.push(match running {
                Running::Sum => self.sum(cell, &so_far),
                Running::Product if number == 0 => self.copy(cell, ids[at]),
                Running::Product => {
                    self.scalars.covered_terms(cell, &[(found[at - stride], ids[at])])
                }
                Running::LogOfPowers if number < DIRECT => {
                    log_of_powers(&mut self.scalars, cell, &so_far)
                }
                Running::LogOfPowers => {
                    let function = Function::Method(Method::LogAddExp);
                    self.scalars.covered_call(cell, function, &so_far)
                }
                Running::Largest | Running::Smallest => {
                    let shares = shares(&self.scalars, &so_far, running == Running::Largest);
                    let shares = weighted(shares, before);
                    tie = shares.iter().filter(|share| matches!(share, Ok(x) if *x > 0.0)).count();
                    if number >= DIRECT && tie == 2 {
                        tie = before + 1;
                    } else if number >= DIRECT && matches!(shares[0], Ok(1.0)) {
                        tie = before;
                    }
                    self.shared(cell, &so_far, shares)
                }
            });
            ties.push(tie.max(1));
        });
        Ok(found)
    }
}

/// Weights two equal elements, the first of which stands for `before` elements.
fn weighted(shares: Vec<Result<f64, Reason>>, before: usize) -> Vec<Result<f64, Reason>> {
    match shares[..] {
        [Ok(first), Ok(second)] if first == second && before > 1 => {
            let count = before as f64 + 1.0;
            vec![Ok(before as f64 / count), Ok(1.0 / count)]
        }
        _ => shares,
    }
}
