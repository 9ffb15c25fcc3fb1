//! What the gate of an index says about it.

use crate::rule::Claim::*;
use crate::rule::{Rule, Types, row};

const TINYGRAD: &str = "tinygrad symbolic.py";

/// Last, when both sides are simple.
#[rustfmt::skip]
pub(super) const VALIDITY: &[Rule] = &[
    row("validity/index", (Types::Any, Refines),
        "(index g x y)", "@valid_index",
        "",
        "an index counts only where its gate is open; computed, as it substitutes by ranges", TINYGRAD),
    row("validity/clauses", (Types::Bool, Bits),
        "(and x y)", "@valid_clauses",
        "",
        "of two limits of one node the stronger one is enough; computed, as clauses may stand far apart", TINYGRAD),
];
