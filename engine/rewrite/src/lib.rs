//! Rules as rows of data, the matcher, the driver and bounds.
//!
//! In: a node below the tensor level (index arithmetic, loads and stores, elementwise values;
//! constants have no shape there). Out: a node of the same meaning, as far as the rules' claims
//! go. The crate knows nothing of views, kernels or devices.

mod bounds;
mod computed;
mod condition;
mod context;
mod driver;
mod finders;
mod given;
mod legal;
mod legalization;
mod lexer;
mod loaded;
mod names;
mod order;
mod pattern;
mod reduce;
mod rule;
pub mod rules;
mod ruleset;
mod shared;
mod sum;
pub mod syntax;
mod threefry;
mod validity;
mod wide;

use std::sync::Arc;

use gradiff_graph::UOp;
use loaded::Loaded;

pub use bounds::{Bounds, bounds};
pub use driver::{Options, Step, Trace, apply, rewrite};
pub use legal::Legal;
pub use legalization::Legalization;
pub use reduce::{substitute, varying};
pub use rule::{Claim, Mode, Rule, Types};
pub use ruleset::{Error, RuleSet};
pub use threefry::decompose as decompose_threefry;
pub use wide::in_f32;

/// The rules for index arithmetic, gates and elementwise values: constant folding, algebra,
/// comparisons, boolean algebra, div/mod, casts, validity, memory. Loaded once.
pub fn symbolic() -> Arc<RuleSet> {
    loaded::loaded().symbolic
}

/// Replaces the reductions over ranges that have a closed form, and simplifies the result with
/// [`symbolic`]. Returns the same root if there are none.
pub fn collapse(root: &UOp, options: &Options, trace: &mut Trace) -> UOp {
    let Loaded { reduce, collapse, .. } = loaded::loaded();
    let collapsed = rewrite(root, &reduce, options, trace);
    if collapsed == *root { collapsed } else { rewrite(&collapsed, &collapse, options, trace) }
}

/// The last rules before rendering, which [`symbolic`] would undo: `x+y*-1` becomes `x-y`, and a
/// floor division whose operands are not negative becomes a C division, which devices have.
pub fn late() -> Arc<RuleSet> {
    loaded::loaded().late
}

/// Sums of products as multiply-adds, for targets where these are fast. No other table has rules
/// for multiply-adds of floats.
pub fn contract() -> Arc<RuleSet> {
    loaded::loaded().contract
}

/// Rewrites a node with [`symbolic`] and the default options.
pub fn simplify(uop: &UOp) -> UOp {
    rewrite(uop, &symbolic(), &Options::default(), &mut Trace::default())
}
