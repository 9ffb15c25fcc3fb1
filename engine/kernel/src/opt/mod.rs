//! Pass `optimize`: transforms loops. It splits, pads and interchanges them and decides how their
//! iterations run. The result stays the same, except that floats may be summed in another order.
//!
//! To split a range, `outer*amount + inner` is substituted for it everywhere, so that indices,
//! gates and reductions need no further change. The legality of an opt depends on [`Loops`] and
//! [`Setting`] only; [`check`] decides it.

mod apply;
mod draw;
mod grid;
mod groups;
mod heuristic;
mod legal;
mod limits;
mod loop_info;
mod loops;
mod matmul;
mod ops;
mod replace;
mod stage;
mod tensor_cores;
pub(crate) mod tuning;
mod vectors;

use gradiff_graph::UOp;

use crate::Error;
use crate::context::Context;

pub use apply::apply;
pub use draw::draw;
pub(crate) use groups::to_groups;
pub use heuristic::heuristic;
pub use legal::{check, legal};
pub(crate) use loop_info::Loop;
pub(crate) use loops::Loops;
pub use loops::loops;
pub(crate) use matmul::Matmul;
pub use ops::{Opt, OptOp, Setting, Strategy};
pub(crate) use vectors::choose_vectors;

/// Applies the chosen opts.
pub(crate) fn optimize(root: &UOp, ctx: &mut Context<'_>) -> Result<UOp, Error> {
    let setting = Setting { mode: ctx.options.rewrite.mode, target: &ctx.target };
    let apply_all =
        |opts: &[Opt]| opts.iter().try_fold(root.clone(), |root, opt| apply(&root, *opt, setting));
    match &ctx.options.opts {
        Strategy::None => Ok(root.clone()),
        Strategy::Fixed(opts) => apply_all(opts),
        Strategy::Drawn { seed, limit } => apply_all(&draw(root, *seed, *limit, setting)?),
        Strategy::Heuristic => heuristic::by_heuristic(root, setting),
    }
}
