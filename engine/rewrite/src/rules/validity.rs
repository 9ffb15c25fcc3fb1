//! Simplifications of an index by its gate.

use crate::rule::Claim::*;
use crate::rule::{Rule, Types, row};

const TINYGRAD: &str = "tinygrad symbolic.py";

/// Last, when both sides are simple.
#[rustfmt::skip]
pub(super) const VALIDITY: &[Rule] = &[
    row("validity/index", (Types::Any, Refines),
        "(index g x y)", "@valid_index",
        "",
        "an index is used only where its gate is open; computed, \
         as nodes are replaced by their ranges", TINYGRAD),
    row("validity/clauses", (Types::Bool, Bits),
        "(and x y)", "@valid_clauses",
        "",
        "the stronger of two limits of a node implies the other; computed, \
         as clauses may be far apart", TINYGRAD),
];
