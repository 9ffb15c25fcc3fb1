//! The last table before rendering.

use crate::rule::Claim::*;
use crate::rule::{Rule, Types, row};

const TINYGRAD: &str = "tinygrad symbolic.py";

/// Forms that are better for devices than the canonical one.
#[rustfmt::skip]
pub(super) const LATE: &[Rule] = &[
    row("late/common-sign", (Types::Ints, Bits),
        "(add (neg x) (neg y))", "(neg (add x y))",
        "",
        "two ops instead of three; undone by algebra/sum-neg", ""),
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
    row("late/at-least", (Types::Bool, Bits),
        "(not (cmplt x c0))", "(cmplt {c0 - 1} x)",
        "isint(x) && fits(c0 - 1, x)",
        "one op instead of two; undone by compare/const-left", ""),
    row("late/floordiv-to-c", (Types::Ints, Bits),
        "(floordiv x y)", "(cdiv x y)",
        "min(x) >= 0 && min(y) >= 0",
        "devices divide as C does; undone by divmod/cdiv-to-floor", ""),
    row("late/floormod-to-c", (Types::Ints, Bits),
        "(floormod x y)", "(cmod x y)",
        "min(x) >= 0 && min(y) >= 0",
        "devices divide as C does; undone by divmod/cmod-to-floor", ""),
    row("late/cdiv-of-opposite", (Types::Ints, Bits),
        "(neg (cdiv (neg x) y))", "(cdiv x y)",
        "fits(-1, x) && fits(-min(x), x)",
        "devices divide as C does; undone by divmod/cdiv-of-negative", ""),
    row("late/cmod-of-opposite", (Types::Ints, Bits),
        "(neg (cmod (neg x) y))", "(cmod x y)",
        "fits(-1, x) && fits(-min(x), x)",
        "devices divide as C does; undone by divmod/cmod-of-negative", ""),
    row("late/threefry", (Types::Ints, Bits),
        "(threefry x y)", "@threefry",
        "bits(root) == 64",
        "devices have no such op; late, as sums over its rounds would be opened; computed, \
         as 20 rounds of shared words are no readable pattern", TINYGRAD),
    row("late/low-half-of-pair", (Types::Ints, Bits),
        "(cast (or (shl x 32) s@(cast y)))", "(cast y)",
        "bits(root) <= 32 && isint(root) && isint(y) && bits(y) == 32 && min(y) >= 0",
        "a value that is shifted by 32 has no bit there", TINYGRAD),
    row("late/high-half-of-pair", (Types::Ints, Bits),
        "(shr (or (shl s@(cast x) 32) (cast y)) 32)", "(cast x)",
        "bits(s) == 64 && isint(x) && bits(x) == 32 && min(x) >= 0 \
         && fits(max(x) * 4294967296, s) && isint(y) && bits(y) == 32 && min(y) >= 0",
        "y ends below the bits that are kept; no bit of x becomes a sign", TINYGRAD),
    row("late/word-of-word", (Types::Ints, Bits),
        "(cast s@(cast x))", "(cast x)",
        "isint(x) && isint(root) && bits(s) == 64 && bits(root) <= 32",
        "the low bits of the low bits; casts through 64 bits are left of a pair", TINYGRAD),
    row("late/same-word", (Types::Ints, Bits),
        "(cast x)", "x",
        "same(root, x)",
        "no conversion", TINYGRAD),
];
