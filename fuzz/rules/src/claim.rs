//! The judgement whether the value of a node after a rule applied is as the rule claims.

use gradiff_eval::point::Value;
use gradiff_eval::scalar;
use gradiff_rewrite::Claim;

/// Returns whether `after` is as claimed for `before`. Any value is right where the one before is
/// undefined or the claim says nothing. `has_special` says whether a node is NaN or infinite, and
/// `is_near` whether two floats are within this number of ulps.
pub(crate) fn is_as_claimed(
    claim: Claim,
    before: &Value,
    after: &Value,
    has_special: &dyn Fn() -> bool,
    is_near: &dyn Fn(u32, f64, f64) -> bool,
) -> bool {
    match (before, after) {
        (Value::Undefined, _) => true,
        (Value::Element(_), Value::Element(_)) if claim == Claim::Finite && has_special() => true,
        (Value::Element(x), Value::Element(y)) => {
            match (scalar::to_float(*x), scalar::to_float(*y), claim) {
                (Some(x), Some(y), Claim::Ulp(count)) => is_near(count, x, y),
                (Some(x), Some(y), _) if x.is_nan() && y.is_nan() => true,
                (Some(x), Some(y), Claim::Value) => x == y,
                _ => x == y,
            }
        }
        (Value::Stores(before), Value::Stores(after)) => {
            before.len() == after.len()
                && before
                    .iter()
                    .zip(after)
                    .all(|(x, y)| (x.0, x.1) == (y.0, y.1) && (x.2.is_none() || x.2 == y.2))
        }
        _ => before == after,
    }
}
