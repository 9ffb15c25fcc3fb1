//! Ops that a language or a device does not support, by means of ops that it supports: a table for
//! each [`Legalization`]. A row is applied once to a node, so its right side may have the op of its
//! left side.

use crate::legalization::Legalization;
use crate::rule::Claim::*;
use crate::rule::{Rule, Types, row};

/// The tables, in the order in which they are applied.
pub(crate) const LEGAL: &[(Legalization, &[Rule])] = &[
    (Legalization::Half, HALF),
    (Legalization::MulAcc, MULACC),
    (Legalization::Recip, RECIP),
    (Legalization::Floor, FLOOR),
    (Legalization::Division, DIVISION),
    (Legalization::Shift, SHIFT),
    (Legalization::Maximum, MAXIMUM),
    (Legalization::Narrow, NARROW),
];

#[rustfmt::skip]
const HALF: &[Rule] = &[
    row("half/arithmetic", (Types::Floats, Bits),
        "x", "@in_f32",
        "",
        "f32 has more than twice as many bits; computed, as a pattern names no dtype", "").single(),
];

#[rustfmt::skip]
const MULACC: &[Rule] = &[
    row("mulacc/of-ints", (Types::Ints, Bits),
        "(mulacc x y z)", "(add (mul x y) z)",
        "",
        "both wrap", "").single(),
];

#[rustfmt::skip]
const RECIP: &[Rule] = &[
    row("recip/division", (Types::Floats, Bits),
        "(recip x)", "(fdiv 1.0 x)",
        "",
        "the same division", "").single(),
];

#[rustfmt::skip]
const FLOOR: &[Rule] = &[
    row("floor/div-of-naturals", (Types::Ints, Bits),
        "(floordiv x y)", "(cdiv x y)",
        "min(x) >= 0 && min(y) >= -1",
        "both divisions agree on numbers that are not negative; by -1 there is no remainder",
        "").single(),
    row("floor/mod-of-naturals", (Types::Ints, Bits),
        "(floormod x y)", "(cmod x y)",
        "min(x) >= 0 && min(y) >= -1",
        "as for the quotient", "").single(),
    row("floor/div-by-positive", (Types::Ints, Bits),
        "(floordiv x y)", "(xor (cdiv (xor x (shr x {bits(x) - 1})) y) (shr x {bits(x) - 1}))",
        "min(y) >= 0 && fits(-1, x)",
        "x//y = -1 - (-1-x)//y for negative x; -1-x is the complement of x", "").single(),
    row("floor/mod-by-positive", (Types::Ints, Bits),
        "(floormod x y)", "(add (cmod x y) (and (shr (cmod x y) {bits(x) - 1}) y))",
        "min(y) >= 0 && fits(-1, x)",
        "a negative remainder is one period too low", "").single(),
    row("floor/div", (Types::Ints, Bits),
        "(floordiv x y)",
        "(sub (cdiv x y) (cast (and (cmpne (cmod x y) 0) (cmplt (xor (cmod x y) y) 0))))",
        "",
        "one less if the remainder is not 0 and its sign is not the divisor's", "").single(),
    row("floor/mod", (Types::Ints, Bits),
        "(floormod x y)",
        "(add (cmod x y) \
            (and (neg (cast (and (cmpne (cmod x y) 0) (cmplt (xor (cmod x y) y) 0)))) y))",
        "",
        "of the sign of the divisor", "").single(),
];

#[rustfmt::skip]
const DIVISION: &[Rule] = &[
    row("division/div-by-natural", (Types::Ints, Refines),
        "(cdiv x y)", "(cdiv x (max y 1))",
        "min(y) == 0",
        "undefined for 0", "").single(),
    row("division/mod-by-natural", (Types::Ints, Refines),
        "(cmod x y)", "(cmod x (max y 1))",
        "min(y) == 0",
        "undefined for 0", "").single(),
    row("division/div", (Types::Ints, Refines),
        "(cdiv x y)",
        "(cdiv x (where (and (cmpne y 0) (or (cmpne y -1) (cmpne x (neg x)))) y 1))",
        "min(y) < 0 && max(y) >= -1",
        "undefined for 0; only 0 and the smallest number are their own negations: by 1 as by -1",
        "").single(),
    row("division/mod", (Types::Ints, Refines),
        "(cmod x y)",
        "(cmod x (where (and (cmpne y 0) (or (cmpne y -1) (cmpne x (neg x)))) y 1))",
        "min(y) < 0 && max(y) >= -1",
        "as for the quotient, whose divisor it shares", "").single(),
];

#[rustfmt::skip]
const SHIFT: &[Rule] = &[
    row("shift/left", (Types::Ints, Refines),
        "(shl x y)", "(shl x (and y {bits(x) - 1}))",
        "min(y) < 0 || max(y) >= bits(x)",
        "undefined for other amounts", "").single(),
    row("shift/right", (Types::Ints, Refines),
        "(shr x y)", "(shr x (and y {bits(x) - 1}))",
        "min(y) < 0 || max(y) >= bits(x)",
        "undefined for other amounts", "").single(),
];

#[rustfmt::skip]
const MAXIMUM: &[Rule] = &[
    row("maximum/max", (Types::LongFloats, Bits),
        "(max x y)", "(where (or (cmplt y x) (cmpne x x)) x y)",
        "",
        "a comparison with NaN is false, so y is the result if it is NaN", "").single(),
    row("maximum/min", (Types::LongFloats, Bits),
        "(min x y)", "(where (or (cmplt x y) (cmpne x x)) x y)",
        "",
        "a comparison with NaN is false, so y is the result if it is NaN", "").single(),
];

#[rustfmt::skip]
const NARROW: &[Rule] = &[
    row("narrow/arithmetic", (Types::Ints, Bits),
        "x", "@in_32_bits",
        "",
        "low bits depend on low bits alone; computed, as a pattern names no dtype", "").single(),
];
