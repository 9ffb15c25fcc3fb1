//! Sums of products as multiply-adds, for targets where these are fast.

use crate::rule::Claim::*;
use crate::rule::{Rule, Types, row};

/// The pass that applies them puts the product that it contracts last.
#[rustfmt::skip]
pub(super) const CONTRACT: &[Rule] = &[
    row("contract/product", (Types::LongFloats, Value),
        "(add z (mul x y))", "(mulacc x y z)",
        "",
        "one op for two; not Bits: a multiply-add may round its product or not", ""),
];
