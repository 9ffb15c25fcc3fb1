//! Derivatives of losses: formulas of the elements of each sample, and their reduction.

use gradiff_corpus::{Args, DType, Method, Operand, ValueId};

use super::elements::{Elements, wide_cells};
use super::scalars::{Function, Id, Scalars, WIDE};
use super::statistics::{QUOTIENT, powers, sum};
use crate::cast::cast;
use crate::cell::{Cell, Reason};
use crate::evaluate::get;
use crate::format::format;
use crate::infer::Check;
use crate::methods::Call;
use crate::methods::elementwise::wide;
use crate::methods::losses::{Sample, binary_losses, real, samples};
use crate::methods::statistics::groups;
use crate::value::Value;

/// The losses of samples, and the number or the sum of weights that their mean is divided by.
struct Losses {
    samples: Vec<Id>,
    divisor: Id,
}

impl Elements<'_> {
    /// The elements of losses, reduced.
    pub(super) fn loss(
        &mut self,
        method: Method,
        srcs: &[ValueId],
        args: Args<'_>,
        value: &Value,
    ) -> Check<Vec<Id>> {
        let losses = match method {
            Method::CrossEntropy => self.cross_entropy(srcs, args)?,
            Method::SparseCategoricalCrossEntropy => self.sparse_categorical(srcs, args)?,
            Method::NllLoss => self.negative_log_likelihood(srcs, args)?,
            _ => self.binary_loss(method, srcs, args, value)?,
        };
        let cells = wide_cells(value, value.dtype);
        let reduction = args.word(method.row().parameters.len() - 1);
        if reduction == "none" {
            let copies = losses.samples.iter().zip(cells);
            return Ok(copies.map(|(id, cell)| self.copy(cell, *id)).collect());
        }
        if reduction == "sum" {
            return Ok(vec![self.sum(cells[0], &losses.samples)]);
        }
        let total = sum(&mut self.scalars, &losses.samples);
        Ok(vec![self.scalars.covered_call(cells[0], QUOTIENT, &[total, losses.divisor])])
    }

    fn cross_entropy(&mut self, srcs: &[ValueId], args: Args<'_>) -> Check<Losses> {
        let (x, target) = (get(self.values, srcs[0])?, get(self.values, srcs[1])?);
        let axis = usize::from(x.shape.len() > 1);
        let smoothing = real(args.number(0));
        let ids = self.ids(srcs[0])?;
        let mut found = Vec::new();
        if target.dtype.is_int() {
            for sample in samples(x, axis, target)? {
                found.push(self.loss_of_class(x.dtype, &ids, &sample, smoothing));
            }
        } else {
            let targets = self.ids(srcs[1])?;
            for positions in groups(x, &[axis])? {
                let logs = log_shares(&mut self.scalars, &ids, &positions);
                let rest = constant(&mut self.scalars, x.dtype, 1.0 - smoothing);
                let part = smoothing / positions.len() as f64;
                let part = constant(&mut self.scalars, x.dtype, part);
                let mut terms = Vec::with_capacity(logs.len());
                for (log, at) in logs.into_iter().zip(positions) {
                    let weight = match smoothing == 0.0 {
                        true => targets[at],
                        false => self.scalars.terms(&[(targets[at], rest), (part, Id::ONE)]),
                    };
                    terms.push((self.scalars.neg(log), weight));
                }
                found.push(self.scalars.terms(&terms));
            }
        }
        let divisor = self.scalars.exact(found.len() as f64);
        Ok(Losses { samples: found, divisor })
    }

    fn sparse_categorical(&mut self, srcs: &[ValueId], args: Args<'_>) -> Check<Losses> {
        let (x, classes) = (get(self.values, srcs[0])?, get(self.values, srcs[1])?);
        let ids = self.ids(srcs[0])?;
        let (ignored, smoothing) = (args.int(0), real(args.number(1)));
        let mut found = Vec::new();
        let mut count = 0.0;
        for sample in samples(x, x.shape.len() - 1, classes)? {
            let is_ignored = ignored != -1 && sample.class == Ok(i128::from(ignored));
            // What is on the way to an ignored loss counts as on the way to others.
            let loss = self.loss_of_class(x.dtype, &ids, &sample, smoothing);
            count += if is_ignored { 0.0 } else { 1.0 };
            found.push(if is_ignored { Id::ZERO } else { loss });
        }
        let divisor = self.scalars.exact(count);
        Ok(Losses { samples: found, divisor })
    }

    fn loss_of_class(&mut self, dtype: DType, ids: &[Id], sample: &Sample, smoothing: f64) -> Id {
        if let Err(reason) = sample.class {
            let group: Vec<Id> = sample.positions.iter().map(|at| ids[*at]).collect();
            return self.unknown_of(Cell::Unspecified(reason), reason, &group);
        }
        let s = &mut self.scalars;
        let logs = log_shares(s, ids, &sample.positions);
        let mut terms = Vec::new();
        if let Some(class) = sample.known_class() {
            terms.push((logs[class], constant(s, dtype, smoothing - 1.0)));
        }
        if smoothing != 0.0 {
            let part = constant(s, dtype, -smoothing / logs.len() as f64);
            terms.extend(logs.iter().map(|log| (*log, part)));
        }
        s.terms(&terms)
    }

    fn negative_log_likelihood(&mut self, srcs: &[ValueId], args: Args<'_>) -> Check<Losses> {
        let (x, classes) = (get(self.values, srcs[0])?, get(self.values, srcs[1])?);
        let ids = self.ids(srcs[0])?;
        let weights = match srcs.get(2) {
            Some(weight) => self.ids(*weight)?,
            None => vec![Id::ONE; x.shape[1]].into(),
        };
        let ignored = i128::from(args.int(0));
        let (mut found, mut divisor) = (Vec::new(), Vec::new());
        for sample in samples(x, 1, classes)? {
            let class = sample.known_class().filter(|_| sample.class != Ok(ignored));
            let (loss, weight) = match (sample.class, class) {
                (Err(reason), _) => {
                    let group: Vec<Id> = sample.positions.iter().map(|at| ids[*at]).collect();
                    let sources = [&group[..], &weights[..]].concat();
                    let unknown = self.unknown_of(Cell::Unspecified(reason), reason, &sources);
                    (unknown, unknown)
                }
                (Ok(_), None) => (Id::ZERO, Id::ZERO),
                (Ok(_), Some(class)) => {
                    let negative = self.scalars.neg(weights[class]);
                    let element = ids[sample.positions[class]];
                    (self.scalars.terms(&[(element, negative)]), weights[class])
                }
            };
            found.push(loss);
            divisor.push(weight);
        }
        let divisor = sum(&mut self.scalars, &divisor);
        Ok(Losses { samples: found, divisor })
    }

    fn binary_loss(
        &mut self,
        method: Method,
        srcs: &[ValueId],
        args: Args<'_>,
        value: &Value,
    ) -> Check<Losses> {
        let sources = [get(self.values, srcs[0])?, get(self.values, srcs[1])?];
        let losses = binary_losses(method, Call { srcs: &sources, args, sums: self.scheme.sums })?;
        let operands = [srcs[0], srcs[1]].map(Operand::Value);
        let operands = self.broadcast(&operands, value.dtype, &losses.shape)?;
        let from = wide(losses.dtype);
        let mut found = Vec::with_capacity(losses.cells.len());
        for (at, cell) in losses.cells.iter().enumerate() {
            let cell = cast(from, WIDE, *cell);
            found.push(self.scalars.covered_call(cell, Function::Method(method), &operands.at(at)));
        }
        let divisor = self.scalars.exact(found.len() as f64);
        Ok(Losses { samples: found, divisor })
    }
}

/// The logarithms of the shares of the classes of a sample.
fn log_shares(s: &mut Scalars, ids: &[Id], positions: &[usize]) -> Vec<Id> {
    let group: Vec<Id> = positions.iter().map(|at| ids[*at]).collect();
    let (distances, powers) = powers(s, &group, Id::ONE);
    let sum = sum(s, &powers);
    let log = s.method(Method::Log, sum);
    let share = |distance: &Id| s.terms(&[(*distance, Id::ONE), (log, Id::MINUS_ONE)]);
    distances.iter().map(share).collect()
}

/// A number that an engine rounds to its dtype.
fn constant(s: &mut Scalars, dtype: DType, value: f64) -> Id {
    if !value.is_finite() {
        return s.unspecified(Reason::Derivative);
    }
    if format(wide(dtype)).holds(value) { s.exact(value) } else { s.constant(value) }
}
