//! Comparisons: constants on the right, decisions by ranges and by common factors.

use crate::rule::Claim::*;
use crate::rule::{Rule, Types, row};

const TINYGRAD: &str = "tinygrad symbolic.py";

/// Each rule that moves a term requires that nothing wraps.
#[rustfmt::skip]
pub(super) const COMPARE: &[Rule] = &[
    row("compare/const-left", (Types::Ints, Bits),
        "(cmplt c0 x)", "(not (cmplt x {c0 + 1}))",
        "fits(c0 + 1, x)",
        "canonical: constants are on the right", TINYGRAD),
    row("compare/less-floordiv", (Types::Ints, Bits),
        "(cmplt (floordiv x c0) c1)", "(cmplt x {c1 * c0})",
        "c0 > 0 && fits(c1 * c0, x)",
        "floor(x/c) < d is x < c*d for c > 0, whatever the sign of x", TINYGRAD),
    row("compare/less-cdiv-positive", (Types::Ints, Bits),
        "(cmplt (cdiv x c0) c1)", "(cmplt x {c1 * c0})",
        "c0 > 0 && c1 > 0 && fits(c1 * c0, x)",
        "toward zero is down where the limit is positive", ""),
    row("compare/less-cdiv", (Types::Ints, Bits),
        "(cmplt (cdiv x c0) c1)", "(cmplt x {(c1 - 1) * c0 + 1})",
        "c0 > 0 && c1 <= 0 && fits((c1 - 1) * c0 + 1, x)",
        "toward zero is up where the limit is not positive", ""),
    row("compare/bool-as-int", (Types::Ints, Bits),
        "(cmpne (cast x) 0)", "x",
        "isbool(x)",
        "a truth value as a number is 0 or 1", TINYGRAD),
    row("compare/less-common", (Types::Ints, Bits),
        "(cmplt x y)", "(cmplt a b)",
        "linear(x) && linear(y) && linear(a) && linear(b)",
        "terms of both sides cancel; nothing may wrap", TINYGRAD)
        .given("x = a + s, y = b + s by common"),
    row("compare/less-simplex", (Types::Ints, Bits),
        "(cmplt x c0)", "(cmplt w 1)",
        "0 < c0 && c0 <= c1 && 0 < c2 && linear(x) && min(r) >= 0 && min(t) >= 0",
        "a sum of multiples, none negative, \
         is below the smallest factor only if all are 0", TINYGRAD)
        .given("x = w * c1 + r, x = w * c2 - t by simplex"),
    row("compare/less-factor", (Types::Ints, Bits),
        "(cmplt x c0)", "(cmplt w {-((min(r) - c0) // c1)})",
        "linear(x) && linear(w) && c1 > 0 && (min(r) - c0) // c1 == (max(r) - c0) // c1 \
         && fits(-((min(r) - c0) // c1), x)",
        "w*c + r < d is w < ceil((d - r)/c), if that is the same number for every r", TINYGRAD)
        .given("x = w * c1 + r by scale"),
    row("compare/less-opposite", (Types::Ints, Bits),
        "(cmplt x c0)", "(cmplt {-c0} w)",
        "linear(x) && linear(w) && fits(-c0, x)",
        "canonical: -w < c is -c < w", TINYGRAD)
        .given("x = 0 - w by opposite"),
    row("compare/not-equal-common", (Types::Ints, Bits),
        "(cmpne x y)", "(cmpne a b)",
        "",
        "terms of both sides cancel, also modulo 2^bits", TINYGRAD)
        .given("x = a + s, y = b + s by common"),
    row("compare/not-equal-factor", (Types::Ints, Bits),
        "(cmpne x c0)", "(cmpne w {c0 // c1})",
        "linear(x) && c1 > 1 && c0 % c1 == 0",
        "divide by the common factor; the sum must not wrap", TINYGRAD)
        .given("x = w * c1 by divisor"),
    row("compare/not-equal-factor-never", (Types::Ints, Bits),
        "(cmpne x c0)", "true",
        "linear(x) && c1 > 1 && c0 % c1 != 0",
        "no multiple of c1 is c0", TINYGRAD)
        .given("x = w * c1 by divisor"),
    row("compare/not-equal-opposite", (Types::Ints, Bits),
        "(cmpne x c0)", "(cmpne w {-c0})",
        "",
        "canonical: -w != c is w != -c, also modulo 2^bits", TINYGRAD)
        .given("x = 0 - w by opposite"),
    row("compare/not-equal-order", (Types::Any, Bits),
        "(cmpne x y)", "(cmpne y x)",
        "before(y, x)",
        "canonical: operands in order", TINYGRAD),
];
