//! The parameters of a kernel.

use gradiff_graph::{Arg, Op, UOp};

use crate::Error;
use crate::error::malformed;

/// Returns the parameters of a kernel in the order of their slots.
///
/// # Errors
/// If the root is not a sink of stores, or if two parameters have the same slot.
pub(crate) fn globals(root: &UOp) -> Result<Vec<UOp>, Error> {
    if root.op() != Op::Sink || root.src().iter().any(|source| source.op() != Op::Store) {
        return Err(malformed("the root is not a sink of stores"));
    }
    let slot = |node: &UOp| match node.arg() {
        Arg::Global(global) => global.slot,
        _ => usize::MAX,
    };
    let mut globals = root.toposort();
    globals.retain(|node| node.op() == Op::DefineGlobal);
    globals.sort_by_key(slot);
    match globals.windows(2).find(|pair| slot(&pair[0]) == slot(&pair[1])) {
        Some(pair) => Err(malformed(format!("two parameters of slot {}", slot(&pair[0])))),
        None => Ok(globals),
    }
}
