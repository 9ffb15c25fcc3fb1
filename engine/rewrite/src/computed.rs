//! The right sides that are computed: what no pattern of fixed shape can say.

use gradiff_graph::{Constant, Op, Sources, UOp, evaluate};
use smallvec::SmallVec;

use crate::driver::Scope;
use crate::reduce;
use crate::threefry;
use crate::validity;

/// A right side: the node to rewrite; `None` if there is nothing to do.
pub(crate) type Compute = fn(&UOp, &mut Scope<'_>) -> Option<UOp>;

/// The names that a rule may use after `@`.
pub(crate) const FUNCTIONS: [(&str, Compute); 6] = [
    ("fold", fold),
    ("valid_index", validity::index),
    ("valid_clauses", validity::clauses),
    ("drop_stores", drop_stores),
    ("gather", reduce::gather),
    ("threefry", threefry::compute),
];

/// The value of an op over constants.
fn fold(uop: &UOp, _: &mut Scope<'_>) -> Option<UOp> {
    let mut src: SmallVec<[Constant; 3]> = SmallVec::new();
    for source in uop.src() {
        src.push(source.as_const()?);
    }
    evaluate(uop.op(), uop.dtype(), &src).map(UOp::constant)
}

/// A sink without the stores whose gate is never true.
fn drop_stores(uop: &UOp, _: &mut Scope<'_>) -> Option<UOp> {
    let is_idle = |store: &UOp| {
        let gate = (store.op() == Op::Store).then(|| store.src()[0].src().get(2)).flatten();
        gate.is_some_and(|gate| gate.as_const() == Some(Constant::bool(false)))
    };
    if !uop.src().iter().any(is_idle) {
        return None;
    }
    let kept: Sources = uop.src().iter().filter(|source| !is_idle(source)).cloned().collect();
    Some(uop.with_src(kept))
}
