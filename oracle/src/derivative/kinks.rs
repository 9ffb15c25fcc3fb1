//! Derivatives of functions that have none at some points: each row says which number stands for it
//! there.

use std::cmp::Ordering;

use gradiff_corpus::Method;

use super::decisions::{at_most, below, compare, sign_of, strictly_between};
use super::scalars::{Id, Scalars};
use crate::cell::Reason;

/// The factors of `selu`, tinygrad's.
const SELU_GAMMA: f64 = 1.0507;
const SELU_ALPHA: f64 = 1.67326;

/// Returns the derivative with respect to source `number`; `None` for other functions.
pub(super) fn partial(
    s: &mut Scalars,
    method: Method,
    sources: &[Id],
    result: Id,
    number: usize,
) -> Result<Option<Id>, Reason> {
    let x = sources[0];
    let second = sources.get(1).copied().unwrap_or(Id::ZERO);
    Ok(Some(match method {
        // 0 at 0.
        Method::Abs => {
            let sign = sign(s, x)?;
            s.exact(sign)
        }
        // 1 within the bounds and at them.
        Method::Clamp => {
            let is_inside = !(below(s, x, second)? || below(s, sources[2], x)?);
            if is_inside { Id::ONE } else { Id::ZERO }
        }
        // 0 at the bounds.
        Method::HardTanh => strictly_between(s, x, second, sources[2])?,
        Method::Relu6 => {
            let end = s.exact(6.0);
            strictly_between(s, x, Id::ZERO, end)?
        }
        Method::HardSigmoid => {
            let (low, high) = (s.exact(-3.0), s.exact(3.0));
            let inside = strictly_between(s, x, low, high)?;
            let slope = s.constant(1.0 / 6.0);
            if inside == Id::ONE { slope } else { Id::ZERO }
        }
        // At -3 and 3 the derivatives are those beyond.
        Method::HardSwish => {
            let (low, high) = (s.exact(-3.0), s.exact(3.0));
            match (at_most(s, x, low)?, at_most(s, high, x)?) {
                (true, _) => Id::ZERO,
                (_, true) => Id::ONE,
                _ => {
                    let (third, half) = (s.constant(1.0 / 3.0), s.exact(0.5));
                    s.terms(&[(x, third), (half, Id::ONE)])
                }
            }
        }
        // The sign has no derivative.
        Method::CopySign => match number {
            0 => {
                let slope = sign(s, x)? * sign_of(s.cell(second))?;
                s.exact(slope)
            }
            _ => Id::ZERO,
        },
        Method::Fmod => match number {
            0 => Id::ONE,
            _ => {
                let quotient = s.div(x, second);
                let whole = s.method(Method::Trunc, quotient);
                s.neg(whole)
            }
        },
        Method::Relu | Method::LeakyRelu | Method::Elu | Method::Celu | Method::Selu => {
            split(s, method, x, second, result)?
        }
        _ => return Ok(None),
    }))
}

/// The derivatives of functions that are another one above 0. At 0 they are those below.
fn split(s: &mut Scalars, method: Method, x: Id, second: Id, result: Id) -> Result<Id, Reason> {
    let is_above = below(s, Id::ZERO, x)?;
    Ok(match (method, is_above) {
        (Method::Selu, true) => s.constant(SELU_GAMMA),
        (_, true) => Id::ONE,
        (Method::LeakyRelu, _) => second,
        (Method::Elu, _) => s.add(result, second),
        (Method::Celu, _) => {
            let quotient = s.div(result, second);
            s.add(quotient, Id::ONE)
        }
        (Method::Selu, _) => {
            let scale = s.constant(SELU_GAMMA * SELU_ALPHA);
            s.add(result, scale)
        }
        _ => Id::ZERO,
    })
}

/// -1, 0 or 1.
fn sign(s: &Scalars, x: Id) -> Result<f64, Reason> {
    Ok(match compare(s, x, Id::ZERO)? {
        Ordering::Less => -1.0,
        Ordering::Equal => 0.0,
        Ordering::Greater => 1.0,
    })
}
