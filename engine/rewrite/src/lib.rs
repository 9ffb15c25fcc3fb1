//! Rules as rows of data, the matcher, the driver and bounds.
//!
//! In: a node below the tensor level (index arithmetic, loads and stores, elementwise values;
//! constants have no shape there). Out: a node of the same meaning, as far as the rules' claims
//! go. The room knows nothing of views, kernels or devices.

mod bounds;
mod computed;
mod condition;
mod divmod;
mod driver;
mod pattern;
mod rule;
pub mod rules;
mod ruleset;
#[cfg(test)]
mod soundness;
mod sum;
mod threefry;
mod validity;

use std::sync::OnceLock;

use gradiff_graph::UOp;

pub use bounds::{Bounds, Interval, bounds};
pub use driver::{Options, Step, Trace, rewrite};
pub use rule::{Claim, Mode, Rule, Types};
pub use ruleset::{Error, RuleSet};
pub use threefry::decompose as decompose_threefry;

/// All that index arithmetic, gates and elementwise values need: folding, algebra, comparisons,
/// boolean algebra, div/mod, casts, validity, memory. Loaded once, faults included.
pub fn symbolic() -> &'static RuleSet {
    static SET: OnceLock<RuleSet> = OnceLock::new();
    SET.get_or_init(|| loaded(&rules::SYMBOLIC))
}

/// What is done last, before rendering, and undone by [`symbolic`]: `x+y*-1` becomes `x-y`, and a
/// floor division whose operands are not negative a C division, which devices have.
pub fn late() -> &'static RuleSet {
    static SET: OnceLock<RuleSet> = OnceLock::new();
    SET.get_or_init(|| loaded(&[rules::LATE]))
}

fn loaded(tables: &[&[Rule]]) -> RuleSet {
    let tables = rules::with_faults(tables);
    let tables: Vec<&[Rule]> = tables.iter().map(Vec::as_slice).collect();
    RuleSet::load(&tables).expect("a test loads the tables")
}

/// The node rewritten with [`symbolic`] and the default options.
pub fn simplify(uop: &UOp) -> UOp {
    rewrite(uop, symbolic(), &Options::default(), &mut Trace::default())
}

/// All rules as text, one a line, in the order in which they are tried.
pub fn listing() -> String {
    format!("{}{}", symbolic().listing(), late().listing())
}
