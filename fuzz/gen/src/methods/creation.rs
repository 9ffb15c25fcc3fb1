//! Draws methods that create tensors.

use gradiff_corpus::{Arg, DType, Literal, Method, ValueId};

use crate::fact::{self, Fact, ROUGH, mantissa_bits};
use crate::programs::Builder;

/// Maximum number of elements of a drawn axis.
const MAX_COUNT: usize = 20;

impl Builder<'_> {
    /// Adds equidistant numbers.
    pub(super) fn draw_linspace(&mut self) -> Option<ValueId> {
        let dtype = self.drawn_float()?;
        let mut ends = [0.0; 2];
        for end in &mut ends {
            *end = self.choices.pick(&[0.0, 1.0, -1.0, 0.5, 0.1, -3.25, 7.0, 100.0, -0.3, 1000.0]);
        }
        let count = self.count();
        let fact = line_fact(dtype, ends[0], ends[1]);
        let args = vec![
            Arg::DType(dtype),
            Arg::Number(Literal::Float(ends[0])),
            Arg::Number(Literal::Float(ends[1])),
            Arg::Int(count as i64),
        ];
        Some(self.push_method(Method::Linspace, vec![], args, fact))
    }

    /// Adds numbers from a start by a step: up, down, or none.
    pub(super) fn draw_arange(&mut self) -> Option<ValueId> {
        let dtype = self.drawn_float()?;
        let start = self.choices.pick(&[0.0, 1.0, -1.0, 0.5, 0.1, -3.25, 7.0, -0.3]);
        let step = self.choices.pick(&[1.0, 0.5, -1.0, 0.1, -0.3, 2.5, -0.25]);
        let steps = self.count() as f64 - self.choices.pick(&[0.0, 0.5, 0.01]);
        let stop = start + step * steps;
        let count = ((stop - start) / step).ceil().max(0.0);
        if self.limit < count as usize {
            return None;
        }
        let fact = line_fact(dtype, start, start + count * step);
        let [start, stop, step] = [start, stop, step].map(|n| Arg::Number(Literal::Float(n)));
        let args = vec![Arg::DType(dtype), start, stop, step];
        Some(self.push_method(Method::ArangeFloat, vec![], args, fact))
    }

    /// Adds a matrix of zeros and ones.
    pub(super) fn draw_matrix(&mut self, method: Method) -> Option<ValueId> {
        let dtype = self.dtype();
        let rows = self.palette.size(self.choices).min(self.limit);
        let columns = self.palette.size(self.choices).min(self.limit / rows.max(1));
        if self.max_rank < 2 {
            return None;
        }
        let mut args = vec![Arg::DType(dtype), Arg::Int(rows as i64), Arg::Int(columns as i64)];
        if method == Method::Tri {
            args.push(Arg::Int(self.diagonal_offset(rows, columns)));
        }
        Some(self.push_method(method, vec![], args, Fact::exact(0.0, 1.0, 0)))
    }

    fn count(&mut self) -> usize {
        let limit = self.limit.min(MAX_COUNT);
        self.choices.below(limit as u32 + 1) as usize
    }

    /// Draws a float dtype of the configuration if the lane allows results that are rounded.
    fn drawn_float(&mut self) -> Option<DType> {
        let floats = || self.config.dtypes.iter().filter(|dtype| dtype.is_float());
        let count = floats().count();
        if count == 0 || !self.policy.inexact || self.max_rank == 0 {
            return None;
        }
        let nth = self.choices.below(count as u32) as usize;
        floats().nth(nth).copied()
    }
}

/// Fact of rounded numbers from one to another.
fn line_fact(dtype: DType, first: f64, last: f64) -> Fact {
    let size = first.abs().max(last.abs());
    let err = 16.0 * size * fact::power(-mantissa_bits(dtype)) + fact::power(-100);
    let bounds = Fact::exact(first.min(last) - err, first.max(last) + err, ROUGH);
    Fact { err, away: 0.0, ..bounds }
}
