//! Code that several tests of this crate share: random kernel trees, and checks of linear uops.

pub(crate) mod linear;
pub(crate) mod random;

use gradiff_graph::Constant;

/// The arrays of a kernel by slot.
pub(crate) type Memories = Vec<Vec<Option<Constant>>>;

/// Returns whether `found` agrees with `expected`: the same bits, a zero of either sign, any NaN,
/// or anything if the expected element is undefined.
pub(crate) fn agrees(expected: &Memories, found: &Memories) -> bool {
    let element = |pair: (&Option<Constant>, &Option<Constant>)| match pair {
        (None, _) => true,
        (Some(x), Some(y)) => {
            let is_zero = |x: &Constant| x.to_float() == Some(0.0);
            let is_nan = |x: &Constant| x.to_float().is_some_and(f64::is_nan);
            x == y || (is_zero(x) && is_zero(y)) || (is_nan(x) && is_nan(y))
        }
        (Some(_), None) => false,
    };
    let array = |(x, y): (&Vec<_>, &Vec<_>)| x.len() == y.len() && x.iter().zip(y).all(element);
    expected.len() == found.len() && expected.iter().zip(found).all(array)
}
