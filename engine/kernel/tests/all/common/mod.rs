//! What several tests of this room need: random kernel trees, a reader of trees that knows
//! nothing of lowering, and one of linear uops.

pub(crate) mod linear;
pub(crate) mod random;
pub(crate) mod tree;

use gradiff_graph::Constant;

/// The arrays of a kernel by slot.
pub(crate) type Memories = Vec<Vec<Option<Constant>>>;

/// Whether `found` is what `expected` asks for: the same bits, or the other zero; anything where
/// the expected element is undefined.
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
