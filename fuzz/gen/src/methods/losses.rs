//! Draws losses: classes that may be out of range or ignored, probabilities, smoothing.

use gradiff_corpus::{
    Arg, DType, Distribution, Fill, Literal, Method, REDUCTIONS, Statement, ValueId,
};

use super::floats::{is_exact, is_near, smooth, unknown};
use crate::fact::{self, Fact};
use crate::programs::Builder;

/// The dtypes of classes.
const INTEGERS: [DType; 8] =
    [DType::I32, DType::I64, DType::U8, DType::I8, DType::U16, DType::I16, DType::U32, DType::U64];

impl Builder<'_> {
    /// Adds a loss of a value whose classes are along an axis.
    pub(super) fn draw_loss_of_classes(&mut self, method: Method) -> Option<ValueId> {
        let policy = self.policy;
        if !policy.inexact || !self.has_room(3) {
            return None;
        }
        let rank = if method == Method::NllLoss { 2 } else { 1 };
        let x = self.pick(|tensor, fact| {
            tensor.dtype.is_float()
                && rank <= tensor.shape.len()
                && (is_exact(fact, policy) || is_near(fact, policy))
        })?;
        let (dtype, shape) = (self.type_of(x).dtype, self.type_of(x).shape.clone());
        let axis = match method {
            Method::SparseCategoricalCrossEntropy => shape.len() - 1,
            _ => usize::from(shape.len() > 1),
        };
        let smoothing = self.choices.pick(&[0.0, 0.0, 0.1, 0.25, 1.0]);
        let smoothing = Arg::Number(Literal::Float(smoothing));
        let ignored = self.choices.pick(&[0, -1, 1, 0, -100, 1, i64::MAX]);
        let reduction = Arg::Word(self.choices.pick(REDUCTIONS));
        let has_probabilities = method == Method::CrossEntropy && self.choices.one_in(3);
        let target = match has_probabilities {
            true => self.fresh_unit(dtype, &shape)?,
            false => {
                let mut samples = shape.clone();
                samples.remove(axis);
                self.classes(&samples, shape[axis])?
            }
        };
        let (srcs, args) = match method {
            Method::CrossEntropy => (vec![x, target], vec![smoothing, reduction]),
            Method::NllLoss => {
                let mut srcs = vec![x, target];
                if !self.choices.one_in(3) {
                    srcs.push(self.fresh_unit(dtype, &shape[1..2])?);
                }
                (srcs, vec![Arg::Int(ignored), reduction])
            }
            _ => (vec![x, target], vec![Arg::Int(ignored), smoothing, reduction]),
        };
        let fact = self.fact(x);
        let size = fact.magnitude() * 2.0 + (shape[axis].max(1) as f64).ln();
        let count = self.type_of(x).count().max(1) as f64;
        let is_quotient = method == Method::NllLoss || shape.contains(&0);
        let fact = match is_quotient {
            true => unknown(dtype),
            false => smooth(&fact, dtype, (-size * count, size * count), 2.0 * count, policy),
        };
        Some(self.push_method(method, srcs, args, fact))
    }

    /// Adds a binary cross entropy with new probabilities.
    pub(super) fn draw_binary_loss(&mut self, method: Method) -> Option<ValueId> {
        let policy = self.policy;
        if !policy.inexact || !self.has_room(4) {
            return None;
        }
        let is_logit = method == Method::BinaryCrossEntropyLogits;
        let dtype = self.dtype();
        let x = self.pick(|tensor, fact| {
            let is_inside = 0.01 <= fact.lo - fact.err && fact.hi + fact.err <= 0.99;
            tensor.dtype.is_float() && is_near(fact, policy) && (is_logit || is_inside)
        });
        let x = match x {
            Some(x) => x,
            None if dtype.is_float() => {
                let shape = vec![1 + self.choices.below(6) as usize];
                let logits = self.fresh_unit(dtype, &shape)?;
                match is_logit {
                    true => logits,
                    false => {
                        let fact = smooth(&self.fact(logits), dtype, (0.2, 0.8), 0.25, policy);
                        self.push_method(Method::Sigmoid, vec![logits], vec![], fact)
                    }
                }
            }
            None => return None,
        };
        let (dtype, shape) = (self.type_of(x).dtype, self.type_of(x).shape.clone());
        let y = self.fresh_unit(dtype, &shape)?;
        let fact = match is_logit && !shape.contains(&0) {
            true => {
                let fact = self.fact(x);
                let count = self.type_of(x).count() as f64;
                let size = (3.0 * fact.magnitude() + 1.0) * count;
                smooth(&fact, dtype, (-size, size), 2.0 * count, policy)
            }
            false => unknown(dtype),
        };
        let reduction = Arg::Word(self.choices.pick(REDUCTIONS));
        Some(self.push_method(method, vec![x, y], vec![reduction], fact))
    }

    /// Adds data from -1 to 1, in fractions or not.
    pub(super) fn fresh_unit(&mut self, dtype: DType, shape: &[usize]) -> Option<ValueId> {
        if !self.has_room(1) {
            return None;
        }
        let distribution = self.choices.pick(&[Distribution::Unit, Distribution::Dyadic]);
        let seed = self.choices.below(1 << 16).into();
        let fill = Fill::Seeded { seed, distribution };
        let statement = Statement::Input { dtype, shape: shape.to_vec(), fill };
        Some(self.push(statement, fact::of_distribution(dtype, distribution)))
    }

    /// Adds classes, mostly in range.
    fn classes(&mut self, samples: &[usize], count: usize) -> Option<ValueId> {
        let dtype = self.choices.pick(&INTEGERS);
        let total: usize = samples.iter().product();
        if 4096 < total {
            return None;
        }
        let number = |this: &mut Self| match this.choices.below(12) {
            0 => count as u64,
            1 => (1 << (8 * dtype.size_bytes() - 1)) - 1,
            _ => this.choices.below(count.clamp(1, 100) as u32).into(),
        };
        let bits: Vec<u64> = (0..total).map(|_| number(self)).collect();
        let fill = Fill::Explicit(bits);
        let statement = Statement::Input { dtype, shape: samples.to_vec(), fill };
        let (_, high) = fact::range(dtype);
        Some(self.push(statement, Fact { raw: true, ..Fact::exact(0.0, high, 0) }))
    }
}
