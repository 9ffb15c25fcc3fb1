//! Pass `narrow`: 64 bits only where 32 do not do.
//!
//! A kernel with one place beyond 2^31 is lowered with 64-bit indices throughout, so that nothing
//! wraps before it is simplified. Here each 64-bit value that is made of 32-bit ones, and is one
//! itself, is computed in 32 bits again: loop counters, places in small arrays, and what users
//! compute in i64 with known limits. A wide value is widened as late as possible.

use gradiff_graph::{Constant, DType, Op, Sources, UOp};
use gradiff_rewrite::Bounds;
use rustc_hash::FxHashMap;

use crate::Error;
use crate::error::malformed;
use crate::pass::Context;

/// The pass. See the head of this file.
pub(crate) fn narrow(root: &UOp, _ctx: &mut Context<'_>) -> Result<UOp, Error> {
    let order = root.toposort();
    let is_wide = |node: &UOp| node.dtype() == DType::I64 && node.op() != Op::Const;
    if !order.iter().any(is_wide) {
        return Ok(root.clone());
    }
    let mut narrowing = Narrowing::default();
    for node in &order {
        let made = narrowing.node(node);
        narrowing.made.insert(node.clone(), made);
    }
    narrowing.made.remove(root).map(|made| made.own).ok_or_else(|| malformed("an empty graph"))
}

/// What a node became.
struct Made {
    /// The node in its own type.
    own: UOp,
    /// The same values in i32, if they are values of i32 and nothing they are made of is wider.
    narrow: Option<UOp>,
}

#[derive(Default)]
struct Narrowing {
    made: FxHashMap<UOp, Made>,
    bounds: Bounds,
}

impl Narrowing {
    fn node(&mut self, node: &UOp) -> Made {
        let narrow = if node.dtype() == DType::I64 { self.narrowed(node) } else { None };
        let own = match &narrow {
            Some(_) if node.op() == Op::Const => node.clone(),
            Some(narrow) => UOp::unary(Op::Cast, DType::I64, narrow.clone()),
            None => self.rebuilt(node),
        };
        Made { own, narrow }
    }

    /// The 64-bit node in i32.
    fn narrowed(&mut self, node: &UOp) -> Option<UOp> {
        let fits =
            |(min, max): (i128, i128)| i32::try_from(min).is_ok() && i32::try_from(max).is_ok();
        match (node.op(), node.src()) {
            (Op::Const, _) => {
                let value = node.as_int().filter(|value| fits((*value, *value)))?;
                Some(UOp::constant(Constant::int(DType::I32, value)))
            }
            (Op::Range, [end]) => {
                let end = self.made[end].narrow.clone()?;
                Some(UOp::new(Op::Range, DType::I32, [end], node.arg().clone()))
            }
            (Op::Cast, [source]) if source.dtype() == DType::I32 => {
                Some(self.made[source].own.clone())
            }
            (op, sources) if keeps_values(op) => {
                let narrow = |source: &UOp| match source.dtype() {
                    DType::I64 => self.made[source].narrow.clone(),
                    _ => Some(self.made[source].own.clone()),
                };
                let src: Sources = sources.iter().map(narrow).collect::<Option<_>>()?;
                let is_narrow = fits(self.bounds.of(node));
                is_narrow.then(|| UOp::new(op, DType::I32, src, node.arg().clone()))
            }
            _ => None,
        }
    }

    /// The node over its new sources, narrow ones where their type does not matter to it.
    fn rebuilt(&self, node: &UOp) -> UOp {
        let own = |source: &UOp| self.made[source].own.clone();
        let narrow = |source: &UOp| self.made[source].narrow.clone();
        let takes_narrow = match node.op() {
            op if op.is_comparison() => node.src().iter().all(|source| narrow(source).is_some()),
            Op::Cast => true,
            // The place in an array.
            Op::Index => true,
            // The ranges of a fold, the element and the range of a product.
            Op::Reduce | Op::Wmma => true,
            _ => false,
        };
        if let (Op::Cast, DType::I32, [source]) = (node.op(), node.dtype(), node.src())
            && let Some(narrow) = narrow(source)
        {
            return narrow;
        }
        let is_value = |number: usize| node.op() == Op::Reduce && number == 0;
        node.with_src(node.src().iter().enumerate().map(|(number, source)| {
            let narrow = narrow(source).filter(|_| takes_narrow && !is_value(number));
            narrow.unwrap_or_else(|| own(source))
        }))
    }
}

/// Whether the op gives in 32 bits what it gives in 64 if all its sources and its result are values
/// of 32 bits.
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
