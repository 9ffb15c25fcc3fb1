//! Casts: chains that lose nothing become one, and so do products that are rounded before they are
//! widened.

use crate::rule::Claim::*;
use crate::rule::{Rule, Types, row};

const TINYGRAD: &str = "tinygrad symbolic.py";

/// Only casts that keep each value; the last row alone leaves out a rounding.
#[rustfmt::skip]
pub(super) const CAST: &[Rule] = &[
    row("cast/same", (Types::Any, Bits),
        "(cast x)", "x",
        "same(root, x)",
        "no conversion", TINYGRAD),
    row("cast/bitcast-same", (Types::Any, Bits),
        "(bitcast x)", "x",
        "same(root, x)",
        "no conversion", TINYGRAD),
    row("cast/exact-between", (Types::Any, Bits),
        "(cast s@(cast x))", "(cast x)",
        "exact(x, s)",
        "the type in between has each value; an int is then cast directly", TINYGRAD),
    row("cast/narrowing", (Types::Ints, Bits),
        "(cast s@(cast x))", "(cast x)",
        "isint(x) && isint(root) && bits(s) >= bits(root)",
        "the low bits of the low bits", TINYGRAD),
    row("cast/bitcast-bitcast", (Types::Any, Bits),
        "(bitcast s@(bitcast x))", "(bitcast x)",
        "!isbool(s) && !isbool(x)",
        "the bits do not change; a bool keeps one of its eight", TINYGRAD),
    row("cast/product-of-halves", (Types::Floats, Ulp(1)),
        "(cast (mul x y))", "@wide_product",
        "bits(root) == 32 && !isint(root)",
        "f32 has all digits of a product of 16-bit floats, which need not be rounded before it is \
         added, nor overflow; computed, so that constants are widened at once", ""),
];
