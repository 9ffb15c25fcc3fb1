//! Derivatives of activation functions that have one everywhere.

use gradiff_corpus::Method;

use super::elementary::one_less_square;
use super::scalars::{Id, Scalars};

/// Returns the derivative of a function of x that gives `y`; `None` for other functions. Its
/// argument is `second`.
pub(super) fn slope(
    s: &mut Scalars,
    method: Method,
    x: Id,
    second: Option<Id>,
    y: Id,
) -> Option<Id> {
    Some(match method {
        Method::SoftSign => {
            let size = s.method(Method::Abs, x);
            let whole = s.add(Id::ONE, size);
            let square = s.mul(whole, whole);
            s.div(Id::ONE, square)
        }
        Method::Sigmoid => logistic_slope(s, y),
        Method::Silu => gated(s, x, x, Id::ONE),
        Method::QuickGelu => {
            let scale = s.constant(1.702);
            let argument = s.mul(x, scale);
            gated(s, x, argument, scale)
        }
        Method::Gelu => {
            let scale = s.constant(2.0 * (2.0 / std::f64::consts::PI).sqrt());
            let (cubic, thrice) = (s.constant(0.044715), s.constant(3.0 * 0.044715));
            let square = s.mul(x, x);
            let factor = s.terms(&[(square, cubic), (Id::ONE, Id::ONE)]);
            let product = s.mul(x, factor);
            let argument = s.mul(scale, product);
            let growth = s.terms(&[(square, thrice), (Id::ONE, Id::ONE)]);
            let slope = s.mul(scale, growth);
            gated(s, x, argument, slope)
        }
        Method::Mish => {
            let softplus = s.method(Method::Softplus, x);
            let gate = s.method(Method::Tanh, softplus);
            let slope = one_less_square(s, gate);
            let sigmoid = s.method(Method::Sigmoid, x);
            let scaled = s.mul(x, slope);
            s.terms(&[(gate, Id::ONE), (scaled, sigmoid)])
        }
        Method::Softplus => {
            let scaled = second.map_or(x, |beta| s.mul(x, beta));
            s.method(Method::Sigmoid, scaled)
        }
        Method::LogSigmoid => {
            let sigmoid = s.method(Method::Sigmoid, x);
            s.sub(Id::ONE, sigmoid)
        }
        _ => return None,
    })
}

/// `y * (1 - y)`.
fn logistic_slope(s: &mut Scalars, y: Id) -> Id {
    let rest = s.sub(Id::ONE, y);
    s.mul(y, rest)
}

/// The derivative of `x * sigmoid(argument)`, where `slope` is that of the argument.
fn gated(s: &mut Scalars, x: Id, argument: Id, slope: Id) -> Id {
    let gate = s.method(Method::Sigmoid, argument);
    let change = logistic_slope(s, gate);
    let growth = s.mul(change, slope);
    s.terms(&[(gate, Id::ONE), (x, growth)])
}
