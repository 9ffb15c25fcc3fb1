//! Pass `narrow`: computes 64-bit integers in 32 bits where that gives the same value.
//!
//! A kernel with one index beyond 2^31 is lowered with 64-bit indices throughout, so that nothing
//! wraps before it is simplified. Here each 64-bit value that fits 32 bits, and is computed from
//! such values only, is computed in 32 bits again: loop counters, indices of small arrays, and the
//! user's i64 arithmetic with known bounds. Values are widened as late as possible.

use gradiff_graph::{Constant, DType, Op, Sources, UOp};
use gradiff_rewrite::Bounds;
use rustc_hash::FxHashMap;

use crate::Error;
use crate::context::Context;
use crate::error::malformed;

/// Narrows the 64-bit integers of a kernel.
pub(crate) fn narrow(root: &UOp, _ctx: &mut Context<'_>) -> Result<UOp, Error> {
    let order = root.toposort();
    let is_wide = |node: &UOp| node.dtype() == DType::I64 && node.op() != Op::Const;
    if !order.iter().any(is_wide) {
        return Ok(root.clone());
    }
    let mut narrower = Narrower::default();
    for node in &order {
        let forms = narrower.node(node);
        narrower.forms.insert(node.clone(), forms);
    }
    narrower
        .forms
        .remove(root)
        .map(|forms| forms.rebuilt)
        .ok_or_else(|| malformed("an empty graph"))
}

/// The results for one node.
struct Forms {
    /// The node over its new sources, in its own type.
    rebuilt: UOp,
    /// The same values in i32, if they and all that they are computed from fit i32.
    narrow: Option<UOp>,
}

#[derive(Default)]
struct Narrower {
    forms: FxHashMap<UOp, Forms>,
    bounds: Bounds,
}

impl Narrower {
    fn node(&mut self, node: &UOp) -> Forms {
        let narrow = if node.dtype() == DType::I64 { self.narrow(node) } else { None };
        let rebuilt = match &narrow {
            Some(_) if node.op() == Op::Const => node.clone(),
            Some(narrow) => UOp::unary(Op::Cast, DType::I64, narrow.clone()),
            None => self.rebuild(node),
        };
        Forms { rebuilt, narrow }
    }

    /// Returns the 64-bit node in i32, if that gives the same values.
    fn narrow(&mut self, node: &UOp) -> Option<UOp> {
        let fits =
            |(min, max): (i128, i128)| i32::try_from(min).is_ok() && i32::try_from(max).is_ok();
        match (node.op(), node.src()) {
            (Op::Const, _) => {
                let value = node.as_int().filter(|value| fits((*value, *value)))?;
                Some(UOp::constant(Constant::int(DType::I32, value)))
            }
            (Op::Range, [end]) => {
                let end = self.forms[end].narrow.clone()?;
                Some(UOp::new(Op::Range, DType::I32, [end], node.arg().clone()))
            }
            (Op::Cast, [source]) if source.dtype() == DType::I32 => {
                Some(self.forms[source].rebuilt.clone())
            }
            (op, sources) if keeps_values(op) => {
                let narrow = |source: &UOp| match source.dtype() {
                    DType::I64 => self.forms[source].narrow.clone(),
                    _ => Some(self.forms[source].rebuilt.clone()),
                };
                let src: Sources = sources.iter().map(narrow).collect::<Option<_>>()?;
                let is_narrow = fits(self.bounds.of(node));
                is_narrow.then(|| UOp::new(op, DType::I32, src, node.arg().clone()))
            }
            _ => None,
        }
    }

    /// Returns the node over its new sources, in i32 where the op accepts either type.
    fn rebuild(&self, node: &UOp) -> UOp {
        let rebuilt = |source: &UOp| self.forms[source].rebuilt.clone();
        let narrow = |source: &UOp| self.forms[source].narrow.clone();
        let accepts_narrow = match node.op() {
            op if op.is_comparison() => node.src().iter().all(|source| narrow(source).is_some()),
            Op::Cast => true,
            // The index.
            Op::Index => true,
            // The ranges of a reduction or of stores; the element and the range of a product.
            Op::Reduce | Op::Wmma | Op::Barrier => true,
            _ => false,
        };
        if let (Op::Cast, DType::I32, [source]) = (node.op(), node.dtype(), node.src())
            && let Some(narrow) = narrow(source)
        {
            return narrow;
        }
        let is_value = |number: usize| node.op() == Op::Reduce && number == 0;
        node.with_src(node.src().iter().enumerate().map(|(number, source)| {
            let narrow = narrow(source).filter(|_| accepts_narrow && !is_value(number));
            narrow.unwrap_or_else(|| rebuilt(source))
        }))
    }
}

/// Returns whether the op gives the same in 32 bits as in 64 if all its sources and its result fit
/// 32 bits.
fn keeps_values(op: Op) -> bool {
    matches!(
        op,
        Op::Add
            | Op::Sub
            | Op::Mul
            | Op::Neg
            | Op::FloorDiv
            | Op::FloorMod
            | Op::CDiv
            | Op::CMod
            | Op::Max
            | Op::Min
            | Op::Where
    )
}
