//! Draws elementary functions and activation functions.

use gradiff_corpus::{Arg, BinaryOp, DType, Literal, Method, ValueId};

use super::floats::{is_exact, is_near, smooth, unknown};
use crate::fact::{self, Fact, Policy};
use crate::programs::Builder;
use crate::sources::Need;
use crate::transfer;

impl Builder<'_> {
    /// Adds an approximated function of one source.
    pub(super) fn draw_function(&mut self, method: Method) -> Option<ValueId> {
        let policy = self.policy;
        if !policy.inexact {
            return None;
        }
        let src = self.pick(|tensor, fact| {
            tensor.dtype.is_float() && (is_exact(fact, policy) || is_allowed(method, fact, policy))
        })?;
        let args = match method {
            Method::Softplus | Method::Celu => vec![self.choices.pick(&[1.0, 0.5, 2.0, 0.3, 7.0])],
            Method::Elu => vec![self.choices.pick(&[1.0, 0.3, 2.0, -0.5, 0.0, 1.67])],
            _ => vec![],
        };
        let fact = fact_of(method, &self.fact(src), self.type_of(src).dtype, policy);
        let args = args.into_iter().map(|value| Arg::Number(Literal::Float(value))).collect();
        Some(self.push_method(method, vec![src], args, fact))
    }

    /// Adds a relu6.
    pub(super) fn draw_relu6(&mut self) -> Option<ValueId> {
        let policy = self.policy;
        let between = |x: &Fact, dtype| {
            let [low, high] = [0.0, 6.0].map(|value| Fact::exact(value, value, 0));
            let fact = transfer::binary(BinaryOp::Max, x, &low, dtype, policy)?;
            transfer::binary(BinaryOp::Min, &fact, &high, dtype, policy)
        };
        let src = self.pick(|tensor, fact| {
            tensor.dtype.is_float() && between(fact, tensor.dtype).is_some()
        })?;
        let fact = between(&self.fact(src), self.type_of(src).dtype)?;
        Some(self.push_method(Method::Relu6, vec![src], vec![], fact))
    }

    /// Adds a leaky relu.
    pub(super) fn draw_leaky_relu(&mut self) -> Option<ValueId> {
        let policy = self.policy;
        let src = self.pick(|tensor, fact| tensor.dtype.is_float() && is_near(fact, policy))?;
        let (dtype, before) = (self.type_of(src).dtype, self.fact(src));
        let slope = self.literal(dtype, Need::Divisor);
        let scaled = fact::of_literal(dtype, &slope);
        let below = transfer::binary(BinaryOp::Mul, &before, &scaled, dtype, policy)?;
        // Where the sign is not known, the error is that of both.
        let fact = Fact { raw: false, err: below.err.max(before.err) * 2.0, ..before.join(&below) };
        let args = vec![Arg::Number(slope)];
        Some(self.push_method(Method::LeakyRelu, vec![src], args, fact))
    }

    /// Adds a function of two sources of floats.
    pub(super) fn draw_logaddexp(&mut self) -> Option<ValueId> {
        let policy = self.policy;
        if !policy.inexact {
            return None;
        }
        let accept = |fact: &Fact| is_exact(fact, policy) || is_near(fact, policy);
        let x = self.pick(|tensor, fact| tensor.dtype.is_float() && accept(fact))?;
        let y = self.float_partner(x, accept)?;
        let dtype = gradiff_corpus::promote(self.type_of(x).dtype, self.type_of(y).dtype);
        Some(self.push_method(Method::LogAddExp, vec![x, y], vec![], unknown(dtype)))
    }
}

/// Returns whether a function is decided for inexact sources. Those with a domain, and the tangent
/// with its poles, take exact ones.
fn is_allowed(method: Method, fact: &Fact, policy: Policy) -> bool {
    let has_domain = matches!(
        method,
        Method::Log
            | Method::Log10
            | Method::Rsqrt
            | Method::Acosh
            | Method::Atanh
            | Method::Asin
            | Method::Acos
            | Method::Tan
    );
    !has_domain && is_near(fact, policy)
}

fn fact_of(method: Method, x: &Fact, dtype: DType, policy: Policy) -> Fact {
    let (range, slope) = match method {
        Method::Sigmoid | Method::HardSigmoid => ((0.0, 1.0), 0.25),
        Method::Tanh | Method::SoftSign | Method::Cos => ((-1.0, 1.0), 1.0),
        Method::Erf => ((-1.0, 1.0), 1.2),
        Method::Atan => ((-1.6, 1.6), 1.0),
        Method::Asinh => ((-x.magnitude(), x.magnitude()), 1.0),
        Method::Silu | Method::Gelu | Method::QuickGelu | Method::Mish => {
            ((-0.4, x.hi.max(0.0)), 1.2)
        }
        Method::HardSwish => ((-0.4, x.hi.max(0.0)), 1.5),
        Method::LogSigmoid => ((x.lo.min(0.0) - 0.7, 0.0), 1.0),
        _ => return unknown(dtype),
    };
    smooth(x, dtype, range, slope, policy)
}
