//! Gates of loads and stores.

use crate::rule::Claim::*;
use crate::rule::{Rule, Types, row};

/// Gates that are always open or never open.
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
    row("memory/choice-of-gated-load", (Types::Any, Bits),
        "(where s (load (index g x s)) 0)", "(load (index g x s))",
        "",
        "the load gives 0 where its gate is closed", ""),
    row("memory/choice-of-gated-bits", (Types::Any, Bits),
        "(where s (bitcast (load (index g x s))) 0)", "(bitcast (load (index g x s)))",
        "",
        "the load gives 0, whose bits are all 0, where its gate is closed", ""),
    row("memory/choice-of-gated-cast", (Types::Any, Bits),
        "(where s (cast (load (index g x s))) 0)", "(cast (load (index g x s)))",
        "",
        "the load gives 0, which is 0 in each type, where its gate is closed", ""),
];
