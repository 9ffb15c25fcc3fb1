//! Gates of loads and stores.

use crate::rule::Claim::*;
use crate::rule::{Rule, Types, row};

/// Always open, never open.
#[rustfmt::skip]
pub(super) const MEMORY: &[Rule] = &[
    row("memory/index-always", (Types::Any, Bits),
        "(index g x true)", "(index g x)",
        "",
        "a gate that is always open", ""),
    row("memory/load-never", (Types::Any, Bits),
        "(load (index g x false))", "0",
        "",
        "a load behind a closed gate gives 0", ""),
    row("memory/store-never", (Types::Any, Bits),
        "(sink x)", "@drop_stores",
        "",
        "a store behind a closed gate does nothing; computed, as a sink has any number of sources", ""),
    row("memory/store-never-2", (Types::Any, Bits),
        "(sink x y)", "@drop_stores",
        "",
        "as memory/store-never", ""),
];
