//! The leaves of nodes that a left side matches.

use std::sync::Arc;

use gradiff_graph::{Arg, DType, Global, Op, UOp, Variable};

/// A variable of this range; floats have all values of their dtype.
pub(crate) fn variable(dtype: DType, name: &str, (min, max): (i64, i64)) -> UOp {
    let variable = Variable { name: name.to_owned(), min, max };
    UOp::new(Op::DefineVar, dtype, [], Arg::Var(Arc::new(variable)))
}

/// An array, large enough for small indices.
pub(crate) fn global(dtype: DType, slot: usize) -> UOp {
    UOp::new(Op::DefineGlobal, dtype, [], Arg::Global(Global { slot, size_elements: 64 }))
}
