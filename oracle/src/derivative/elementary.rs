//! Derivatives of elementary functions.

use gradiff_corpus::{Method, UnaryOp};

use super::scalars::{Function, Id, Scalars};

/// Returns the derivative of a function of x that gives `y`; 0 for those that are constant almost
/// everywhere.
pub(super) fn slope(s: &mut Scalars, method: Method, x: Id, y: Id) -> Id {
    match method {
        Method::Square => s.add(x, x),
        Method::Exp => y,
        Method::Log => s.div(Id::ONE, x),
        Method::Log10 => inverse_of_scaled(s, x, std::f64::consts::LN_10),
        Method::Rsqrt => {
            let half = s.exact(-0.5);
            let quotient = s.div(y, x);
            s.mul(half, quotient)
        }
        Method::Tanh => one_less_square(s, y),
        Method::Cos => {
            let sine = s.call(Function::Unary(UnaryOp::Sin), &[x]);
            s.neg(sine)
        }
        Method::Tan => s.terms(&[(y, y), (Id::ONE, Id::ONE)]),
        Method::Sinh => s.method(Method::Cosh, x),
        Method::Cosh => s.method(Method::Sinh, x),
        Method::Asinh => inverse_root(s, &[(x, x), (Id::ONE, Id::ONE)]),
        Method::Acosh => inverse_root(s, &[(x, x), (Id::MINUS_ONE, Id::ONE)]),
        Method::Asin => {
            let square = s.mul(x, x);
            inverse_root(s, &[(Id::ONE, Id::ONE), (square, Id::MINUS_ONE)])
        }
        Method::Acos => {
            let square = s.mul(x, x);
            let found = inverse_root(s, &[(Id::ONE, Id::ONE), (square, Id::MINUS_ONE)]);
            s.neg(found)
        }
        Method::Atanh => {
            let rest = one_less_square(s, x);
            s.div(Id::ONE, rest)
        }
        Method::Atan => {
            let sum = s.terms(&[(x, x), (Id::ONE, Id::ONE)]);
            s.div(Id::ONE, sum)
        }
        Method::Erf => {
            let scale = s.constant(std::f64::consts::FRAC_2_SQRT_PI);
            let square = s.mul(x, x);
            let exponent = s.neg(square);
            let power = s.method(Method::Exp, exponent);
            s.mul(scale, power)
        }
        _ => Id::ZERO,
    }
}

/// `1 / (x * scale)`.
pub(super) fn inverse_of_scaled(s: &mut Scalars, x: Id, scale: f64) -> Id {
    let scale = s.constant(scale);
    let product = s.mul(x, scale);
    s.div(Id::ONE, product)
}

/// `1 - y * y`.
pub(super) fn one_less_square(s: &mut Scalars, y: Id) -> Id {
    let square = s.mul(y, y);
    s.sub(Id::ONE, square)
}

/// `1 / sqrt(sum of pairs)`.
fn inverse_root(s: &mut Scalars, pairs: &[(Id, Id)]) -> Id {
    let sum = s.terms(pairs);
    let root = s.call(Function::Unary(UnaryOp::Sqrt), &[sum]);
    s.div(Id::ONE, root)
}
