//! Draws statistics of floats, powers along an axis, and comparisons within a distance.

use gradiff_corpus::{Arg, DType, Literal, Method, ValueId};

use super::floats::{INFINITIES, is_exact, is_near, smooth, unknown};
use crate::fact::{Fact, Policy};
use crate::programs::Builder;
use crate::shapes;

/// Maximum size of an axis along which powers are added up to each position.
const MAX_RUNNING: usize = 1 << 8;

/// Numbers that often differ by exactly a limit that is drawn.
const NEAR: [f64; 10] = [0.0, 1.0, -1.0, 1.125, 0.875, 1.5, 2.0, -2.0, 3.0, 4.0];

impl Builder<'_> {
    /// Draws a source of floats of at least one axis, if it must have some.
    fn float_source(&mut self, needs_axis: bool) -> Option<ValueId> {
        let policy = self.policy;
        if !policy.inexact {
            return None;
        }
        // Sums and powers of infinities are cases of their own.
        let is_allowed = policy.special && !self.has_focus() && self.has_room(2);
        let has_infinities = is_allowed && self.choices.one_in(2);
        if has_infinities && let Some(dtype) = self.float_dtype() {
            let shape = self.palette.shape(self.choices, self.max_rank, self.limit);
            let is_source = !(needs_axis && shape.is_empty());
            let data = is_source.then(|| self.fresh_listed(dtype, &shape, &INFINITIES));
            if let Some(data) = data.flatten() {
                return Some(data);
            }
        }
        self.pick(|tensor, fact| {
            tensor.dtype.is_float()
                && !(needs_axis && tensor.shape.is_empty())
                && (is_exact(fact, policy) || is_near(fact, policy))
        })
    }

    /// Adds a statistic along axes.
    pub(super) fn draw_statistic(&mut self, method: Method) -> Option<ValueId> {
        let src = self.float_source(false)?;
        let shape = self.type_of(src).shape.clone();
        let axes = shapes::axes(self.choices, shape.len());
        let count: usize = axes.iter().map(|axis| shape[*axis]).product();
        let mut args = vec![Arg::Ints(self.axis_numbers(&axes, shape.len()))];
        args.push(match method {
            Method::LayerNorm => {
                let eps = [1e-5, 1e-5, 1e-12, 1.0, 0.25, 0.0, -0.0, 1e-300];
                Arg::Number(Literal::Float(self.choices.pick(&eps)))
            }
            _ => Arg::Flag(self.choices.one_in(2)),
        });
        if matches!(method, Method::Var | Method::Std) {
            let size = count as i64;
            let corrections = [1, 1, 0, 2, -1, size - 1, size, size + 1, i64::MAX, i64::MIN];
            args.push(Arg::Int(self.choices.pick(&corrections)));
        }
        let (x, dtype) = (self.fact(src), self.type_of(src).dtype);
        let fact = statistic(method, &x, count as f64, dtype, self.policy);
        Some(self.push_method(method, vec![src], args, fact))
    }

    /// Adds shares of powers, or logarithms of their sums, along an axis.
    pub(super) fn draw_powers(&mut self, method: Method) -> Option<ValueId> {
        let src = self.float_source(true)?;
        let shape = self.type_of(src).shape.clone();
        let (axis, number) = self.some_axis(shape.len());
        if method == Method::LogCumSumExp && MAX_RUNNING < shape[axis] {
            return None;
        }
        let (x, dtype) = (self.fact(src), self.type_of(src).dtype);
        let log = (shape[axis].max(1) as f64).ln();
        let (range, slope) = match method {
            Method::LogCumSumExp => ((x.lo, x.hi + log), 1.0),
            Method::LogSoftmax => ((x.lo - x.hi - log, 0.0), 2.0),
            _ => ((0.0, 1.0), 0.5),
        };
        let fact = smooth(&x, dtype, range, slope, self.policy);
        Some(self.push_method(method, vec![src], vec![Arg::Int(number)], fact))
    }

    /// Adds elements along an axis that are divided by their norm.
    pub(super) fn draw_normalized(&mut self) -> Option<ValueId> {
        let src = self.float_source(true)?;
        let (_, number) = self.some_axis(self.type_of(src).shape.len());
        let (x, dtype) = (self.fact(src), self.type_of(src).dtype);
        let p = self.choices.pick(&[2.0, 1.0, 2.0, 3.0, 2.0, 1.5, 4.0, 0.5, 2.5, 0.1]);
        let eps = self.choices.pick(&[1e-12, 0.5, 1e-12, 2.0, 0.0, 1e-5, -0.0, 1.0]);
        // The least divisor.
        let least = x.away.max(eps);
        let fact = match 1.0 / 16.0 <= least {
            true => smooth(&x, dtype, (-1.0, 1.0), 2.0 / least, self.policy),
            false => unknown(dtype),
        };
        let [p, eps] = [p, eps].map(|number| Arg::Number(Literal::Float(number)));
        Some(self.push_method(Method::Normalize, vec![src], vec![p, Arg::Int(number), eps], fact))
    }

    /// Adds a comparison of floats within a distance.
    pub(super) fn draw_is_close(&mut self) -> Option<ValueId> {
        let policy = self.policy;
        let near = if self.choices.one_in(2) { self.listed_pair(&|_| NEAR) } else { None };
        let [x, y] = match near {
            Some(sources) => sources,
            None => {
                let x =
                    self.pick(|tensor, fact| tensor.dtype.is_float() && is_exact(fact, policy))?;
                [x, self.float_partner(x, |fact| is_exact(fact, policy))?]
            }
        };
        let [rtol, atol] = [0, 1].map(|_| {
            let limits = [1e-5, 1e-8, 0.0, 0.5, 1.0, 0.125, -0.25, 2.0];
            Arg::Number(Literal::Float(self.choices.pick(&limits)))
        });
        let args = vec![rtol, atol, Arg::Flag(self.choices.one_in(2))];
        Some(self.push_method(Method::IsClose, vec![x, y], args, Fact::BOOL))
    }
}

fn statistic(method: Method, x: &Fact, count: f64, dtype: DType, policy: Policy) -> Fact {
    if count == 0.0 {
        return unknown(dtype);
    }
    let width = x.hi - x.lo;
    let (range, slope) = match method {
        Method::Mean => ((x.lo, x.hi), 1.0),
        Method::LogSumExp => ((x.lo, x.hi + count.ln()), 1.0),
        Method::LayerNorm => ((-count.sqrt(), count.sqrt()), 16.0),
        Method::Var => ((0.0, width * width), 4.0 * width),
        _ => ((0.0, width), 4.0),
    };
    smooth(x, dtype, range, slope, policy)
}
