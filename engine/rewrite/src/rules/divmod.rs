//! Division and remainder. Rules of the floor kind are never used for the C kind.

use crate::rule::Claim::*;
use crate::rule::{Rule, Types, row};

const TINYGRAD: &str = "tinygrad symbolic.py";

/// The right side of a rule for an `n` with two values: the line through the results for the lower
/// and for the higher value.
#[rustfmt::skip]
macro_rules! line_through {
    ($low:literal, $high:literal) => {
        concat!(
            "(add (mul n {", $high, " - ", $low, "}) ",
            "{", $low, " - (", $high, " - ", $low, ") * min(n)})"
        )
    };
}

/// Single quotients first, sums last.
#[rustfmt::skip]
pub(super) const DIVMOD: &[Rule] = &[
    row("divmod/floordiv-one", (Types::Ints, Bits),
        "(floordiv x 1)", "x",
        "",
        "1 is the right identity of a division", TINYGRAD),
    row("divmod/floordiv-minus-one", (Types::Ints, Bits),
        "(floordiv x -1)", "(neg x)",
        "fits(-1, x)",
        "both wrap for the smallest integer; signed types only, \
         as -1 of an unsigned type is its largest value", TINYGRAD),
    row("divmod/floordiv-self", (Types::Ints, Refines),
        "(floordiv x x)", "1",
        "",
        "undefined for 0", TINYGRAD),
    row("divmod/floormod-self", (Types::Ints, Refines),
        "(floormod x x)", "0",
        "",
        "undefined for 0", TINYGRAD),
    row("divmod/cdiv-one", (Types::Ints, Bits),
        "(cdiv x 1)", "x",
        "",
        "1 is the right identity of a division", TINYGRAD),
    row("divmod/cdiv-minus-one", (Types::Ints, Bits),
        "(cdiv x -1)", "(neg x)",
        "fits(-1, x)",
        "both wrap for the smallest integer; signed types only, \
         as -1 of an unsigned type is its largest value", TINYGRAD),
    row("divmod/cdiv-self", (Types::Ints, Refines),
        "(cdiv x x)", "1",
        "",
        "undefined for 0", TINYGRAD),
    row("divmod/cmod-self", (Types::Ints, Refines),
        "(cmod x x)", "0",
        "",
        "undefined for 0", TINYGRAD),
    row("divmod/cdiv-to-floor", (Types::Ints, Bits),
        "(cdiv x y)", "(floordiv x y)",
        "min(x) >= 0 && min(y) >= 0",
        "canonical: both divisions agree on numbers that are not negative", TINYGRAD),
    row("divmod/cmod-to-floor", (Types::Ints, Bits),
        "(cmod x y)", "(floormod x y)",
        "min(x) >= 0 && min(y) >= 0",
        "canonical: both divisions agree on numbers that are not negative", TINYGRAD),
    row("divmod/cdiv-of-negative", (Types::Ints, Bits),
        "(cdiv x y)", "(neg (floordiv (neg x) y))",
        "max(x) <= 0 && min(x) < 0 && min(y) > 0 && fits(-min(x), x)",
        "canonical: numbers that are not positive are rounded up", ""),
    row("divmod/cmod-of-negative", (Types::Ints, Bits),
        "(cmod x y)", "(neg (floormod (neg x) y))",
        "max(x) <= 0 && min(x) < 0 && min(y) > 0 && fits(-min(x), x)",
        "canonical: the remainder has the sign of x", ""),
    row("divmod/cmod-in-range", (Types::Ints, Bits),
        "(cmod x y)", "x",
        "max(x) < min(y) && -min(x) < min(y)",
        "the remainder changes nothing", TINYGRAD),
    row("divmod/floormod-in-range", (Types::Ints, Bits),
        "(floormod x y)", "x",
        "min(x) >= 0 && max(x) < min(y)",
        "the remainder changes nothing", TINYGRAD),
    row("divmod/floordiv-nested", (Types::Ints, Bits),
        "(floordiv (floordiv x c0) c1)", "(floordiv x {c0 * c1})",
        "c0 > 0 && c1 > 0 && fits(c0 * c1, x)",
        "floor of floor is one floor", TINYGRAD),
    row("divmod/cdiv-nested", (Types::Ints, Bits),
        "(cdiv (cdiv x c0) c1)", "(cdiv x {c0 * c1})",
        "c0 > 0 && c1 > 0 && fits(c0 * c1, x)",
        "truncation of a truncation is one truncation", TINYGRAD),
    row("divmod/floordiv-nested-add", (Types::Ints, Bits),
        "(floordiv (add (floordiv x c0) c1) c2)", "(floordiv (add x {c0 * c1}) {c0 * c2})",
        "c0 > 0 && c2 > 0 && fits(c0 * c1, x) && fits(c0 * c2, x) && fits(min(x) + c0 * c1, x) \
         && fits(max(x) + c0 * c1, x)",
        "(x//a + d)//b = (x + a*d)//(a*b); nothing may wrap", TINYGRAD),
    row("divmod/floormod-nested", (Types::Ints, Bits),
        "(floormod (floormod x c0) c1)", "(floormod x c1)",
        "c0 > 0 && c1 > 0 && c0 % c1 == 0",
        "c1 divides c0", TINYGRAD),
    row("divmod/cmod-nested", (Types::Ints, Bits),
        "(cmod (cmod x c0) c1)", "(cmod x c1)",
        "c0 > 0 && c1 > 0 && c0 % c1 == 0",
        "c1 divides c0", TINYGRAD),
    row("divmod/floordiv-of-mod", (Types::Ints, Bits),
        "(floordiv (floormod x c0) c1)", "(floormod (floordiv x c1) {c0 // c1})",
        "c0 > 0 && c1 > 0 && c0 % c1 == 0",
        "canonical: divide first, so that quotients can be combined", TINYGRAD),
    row("divmod/floormod-product", (Types::Ints, Bits),
        "(floormod s@(mul x c0) c1)", "(mul (floormod x {c1 // c0}) c0)",
        "c0 > 0 && c1 > 0 && c1 % c0 == 0 && nowrap(s)",
        "a common factor can be taken out of a remainder", TINYGRAD),
    row("divmod/floordiv-negative", (Types::Ints, Bits),
        "(floordiv x c0)", "(floordiv (neg x) {-c0})",
        "c0 < 0 && fits(-c0, x) && fits(-min(x), x)",
        "canonical: constant divisors are positive; the negated numerator must not wrap", TINYGRAD),
    row("divmod/floormod-negative", (Types::Ints, Bits),
        "(floormod x c0)", "(neg (floormod (neg x) {-c0}))",
        "c0 < 0 && fits(-c0, x) && fits(-min(x), x)",
        "canonical: constant divisors are positive; the negated numerator must not wrap", TINYGRAD),
    row("divmod/floormod-one-period", (Types::Ints, Bits),
        "(floormod x c0)", "(add x {-(min(x) // c0) * c0})",
        "min(x) // c0 == max(x) // c0",
        "the quotient is constant", TINYGRAD),
    row("divmod/floordiv-congruent", (Types::Ints, Bits),
        "(floordiv x c0)", "(add w {min(r) // c0})",
        "linear(x) && min(r) // c0 == max(r) // c0",
        "w*c + r, r within one period", TINYGRAD)
        .given("x = w * c0 + r by remainder"),
    row("divmod/floormod-congruent", (Types::Ints, Bits),
        "(floormod x c0)", "(add r {-(min(r) // c0) * c0})",
        "linear(x) && min(r) // c0 == max(r) // c0",
        "w*c + r, r within one period", TINYGRAD)
        .given("x = w * c0 + r by remainder"),
    row("divmod/floordiv-factor", (Types::Ints, Bits),
        "(floordiv x c0)", "(floordiv w {c0 // c1})",
        "c0 > 0 && c1 > 1 && c0 % c1 == 0 && linear(x) && min(r) >= 0 && max(r) < c1",
        "a common factor, and a rest below it", TINYGRAD)
        .given("x = w * c1 + r by factor"),
    row("divmod/floormod-factor", (Types::Ints, Bits),
        "(floormod x c0)", "(add (mul (floormod w {c0 // c1}) c1) r)",
        "c0 > 0 && c1 > 1 && c0 % c1 == 0 && linear(x) && min(r) >= 0 && max(r) < c1",
        "a common factor, and a rest below it", TINYGRAD)
        .given("x = w * c1 + r by factor"),
    row("divmod/floordiv-two-values", (Types::Ints, Bits),
        "(floordiv x c0)",
        line_through!("(min(n) * c1 + c2) // c0", "((min(n) + 1) * c1 + c2) // c0"),
        "linear(x) && max(n) == min(n) + 1",
        "a straight line goes through two values", TINYGRAD)
        .given("x = n * c1 + c2 by affine"),
    row("divmod/floormod-two-values", (Types::Ints, Bits),
        "(floormod x c0)",
        line_through!("(min(n) * c1 + c2) % c0", "((min(n) + 1) * c1 + c2) % c0"),
        "linear(x) && max(n) == min(n) + 1",
        "a straight line goes through two values", TINYGRAD)
        .given("x = n * c1 + c2 by affine"),
    row("divmod/floordiv-multiples", (Types::Ints, Bits),
        "(floordiv x c0)", "(add w (floordiv r c0))",
        "linear(x) && linear(r)",
        "exact multiples can be taken out of the division", TINYGRAD)
        .given("x = w * c0 + r by multiples"),
    row("divmod/floormod-multiples", (Types::Ints, Bits),
        "(floormod x c0)", "(floormod r c0)",
        "linear(x) && linear(r)",
        "exact multiples leave no remainder", TINYGRAD)
        .given("x = w * c0 + r by residue"),
    row("divmod/cdiv-exact", (Types::Ints, Bits),
        "(cdiv x c0)", "w",
        "linear(x)",
        "an exact division does not round", TINYGRAD)
        .given("x = w * c0 by exact"),
    row("divmod/cmod-exact", (Types::Ints, Bits),
        "(cmod x c0)", "0",
        "linear(x)",
        "an exact division has no remainder", TINYGRAD)
        .given("x = w * c0 by exact"),
    row("divmod/cdiv-gcd", (Types::Ints, Bits),
        "(cdiv x c0)", "(cdiv w {c0 // c1})",
        "c0 > 0 && c1 > 1 && c0 % c1 == 0 && linear(x)",
        "a common factor of both operands cancels", TINYGRAD)
        .given("x = w * c1 by gcd"),
    row("divmod/cmod-gcd", (Types::Ints, Bits),
        "(cmod x c0)", "(mul (cmod w {c0 // c1}) c1)",
        "c0 > 0 && c1 > 1 && c0 % c1 == 0 && linear(x)",
        "a common factor of both operands can be taken out", TINYGRAD)
        .given("x = w * c1 by gcd"),
    row("divmod/cdiv-two-values", (Types::Ints, Bits),
        "(cdiv x c0)",
        line_through!("cdiv(min(n) * c1 + c2, c0)", "cdiv((min(n) + 1) * c1 + c2, c0)"),
        "linear(x) && max(n) == min(n) + 1",
        "a straight line goes through two values", TINYGRAD)
        .given("x = n * c1 + c2 by affine"),
    row("divmod/cmod-two-values", (Types::Ints, Bits),
        "(cmod x c0)",
        line_through!("cmod(min(n) * c1 + c2, c0)", "cmod((min(n) + 1) * c1 + c2, c0)"),
        "linear(x) && max(n) == min(n) + 1",
        "a straight line goes through two values", TINYGRAD)
        .given("x = n * c1 + c2 by affine"),
];
