//! The last table before rendering.

use crate::rule::Claim::*;
use crate::rule::{Rule, Types, row};

/// What devices like better than the canonical form.
#[rustfmt::skip]
pub(super) const LATE: &[Rule] = &[
    row("late/sub", (Types::Ints, Bits),
        "(add x (neg y))", "(sub x y)",
        "",
        "one op instead of two; undone by algebra/sum-sub", ""),
    row("late/sub-first", (Types::Ints, Bits),
        "(add (neg x) y)", "(sub y x)",
        "",
        "one op instead of two; undone by algebra/sum-sub", ""),
    row("late/neg", (Types::Ints, Bits),
        "(mul x -1)", "(neg x)",
        "",
        "undone by algebra/sum-neg", ""),
    row("late/floordiv-to-c", (Types::Ints, Bits),
        "(floordiv x y)", "(cdiv x y)",
        "min(x) >= 0 && min(y) >= 0",
        "devices divide as C does; undone by divmod/cdiv-to-floor", ""),
    row("late/floormod-to-c", (Types::Ints, Bits),
        "(floormod x y)", "(cmod x y)",
        "min(x) >= 0 && min(y) >= 0",
        "devices divide as C does; undone by divmod/cmod-to-floor", ""),
];
