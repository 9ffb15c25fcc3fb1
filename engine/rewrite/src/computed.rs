//! The computed right sides: results that no pattern of fixed shape can express.

use gradiff_graph::{Constant, UOp, evaluate};
use smallvec::SmallVec;

use crate::context::Context;
use crate::reduce;
use crate::threefry;
use crate::validity;
use crate::wide;

/// A right side that is a function of the matched node; it returns `None` if the rule does not
/// apply.
#[derive(Clone, Copy, Debug)]
pub struct Computed(pub(crate) Compute);

pub(crate) type Compute = fn(&UOp, &mut dyn Context) -> Option<UOp>;

/// The names that a rule may use after `@`.
pub(crate) const FUNCTIONS: [(&str, Compute); 8] = [
    ("fold", |uop, _| fold(uop)),
    ("valid_index", validity::index),
    ("valid_clauses", validity::clauses),
    ("gather", |uop, _| reduce::gather(uop)),
    ("threefry", |uop, _| Some(threefry::decompose(uop))),
    ("in_f32", |uop, _| wide::in_f32(uop)),
    ("in_32_bits", wide::in_32_bits),
    ("wide_product", |uop, _| wide::product(uop)),
];

/// Evaluates an op over constants.
fn fold(uop: &UOp) -> Option<UOp> {
    let mut src: SmallVec<[Constant; 3]> = SmallVec::new();
    for source in uop.src() {
        src.push(source.as_const()?);
    }
    evaluate(uop.op(), uop.dtype(), &src).map(UOp::constant)
}
