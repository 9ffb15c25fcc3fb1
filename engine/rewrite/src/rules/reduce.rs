//! Reductions over ranges that have a closed form: no loop is left of them.
//!
//! r stands for a range of `size(r)` iterations, from 0 on. A reduction over an empty range is the
//! op's identity, which each row respects. Sums of integers are exact modulo 2^bits, in any order.

use crate::rule::Claim::*;
use crate::rule::{Rule, Types, row};

const TINYGRAD: &str = "tinygrad reduce_collapse";
const LOOP: &str = "tinygrad loop_collapse";

/// A limit on x, clamped to where it still decides: to the values of x and the one above them.
macro_rules! limit {
    ($limit:literal) => {
        concat!("(max (min ", $limit, " {max(x) + 1}) {min(x)})")
    };
}

/// Number of iterations r with `r*c0 + w` below a limit, c0 > 0.
macro_rules! rising {
    ($limit:literal) => {
        concat!("(max (min (floordiv (add (sub ", limit!($limit), " w) {c0 - 1}) c0) {size(r)}) 0)")
    };
}

/// The condition that the arithmetic of `rising!("y")` does not wrap, and r occurs nowhere else.
macro_rules! rising_fits {
    () => {
        "free(y, r) && c0 > 0 && free(w, r) && linear(x) && fits(max(x) + 1, x) \
         && fits(max(x) - min(w) + c0, x) && fits(min(x) - max(w), x) && fits(size(r), x)"
    };
}

/// Number of iterations r with `r*c0 + w` at y or above, c0 < 0.
macro_rules! falling {
    () => {
        concat!("(max (min (floordiv (add (sub w ", limit!("y"), ") {-c0}) {-c0}) {size(r)}) 0)")
    };
}

/// The condition that the arithmetic of `falling!()` does not wrap, and r occurs nowhere else.
macro_rules! falling_fits {
    () => {
        "free(y, r) && c0 < 0 && free(w, r) && linear(x) && fits(max(x) + 1, x) \
         && fits(max(w) - min(x) - c0, x) && fits(min(w) - max(x) - 1, x) && fits(-c0, x) \
         && fits(size(r), x)"
    };
}

/// Values that do not vary, parts that do not vary, counted iterations, gathered iterations.
#[rustfmt::skip]
pub(super) const REDUCE: &[Rule] = &[
    row("reduce/sum-of-same", (Types::Any, Bits),
        "(reduce.add v r)", "(mul v {size(r)})",
        "isint(v) && free(v, r)",
        "n times v, also for n = 0", TINYGRAD),
    row("reduce/sum-of-same-float", (Types::Any, Ulp(1)),
        "(reduce.add v r)", "(mul v {size(r)})",
        "!isint(v) && !isbool(v) && bits(v) >= 32 && 0 < size(r) && size(r) <= 16777216 \
         && free(v, r)",
        "n*v rounded once where the sum rounds n - 1 times; not for n = 0: NaN * 0", TINYGRAD),
    row("reduce/max-of-same", (Types::Any, Bits),
        "(reduce.max v r)", "v",
        "0 < size(r) && free(v, r)",
        "max is idempotent; over an empty range it is the smallest value", TINYGRAD),
    row("reduce/product-of-two", (Types::Any, Bits),
        "(reduce.mul v r)", "(mul v v)",
        "isint(v) && size(r) == 2 && free(v, r)",
        "v^2", TINYGRAD),
    row("reduce/product-of-three", (Types::Any, Bits),
        "(reduce.mul v r)", "(mul (mul v v) v)",
        "isint(v) && size(r) == 3 && free(v, r)",
        "v^3", TINYGRAD),
    row("reduce/product-of-four", (Types::Any, Bits),
        "(reduce.mul v r)", "(mul (mul v v) (mul v v))",
        "isint(v) && size(r) == 4 && free(v, r)",
        "v^4", TINYGRAD),
    row("reduce/sum-of-steps", (Types::Any, Bits),
        "(reduce.add r r)", "{size(r) * (size(r) - 1) // 2}",
        "",
        "0 + 1 + .. + (n-1)", ""),
    row("reduce/sum-of-cast-steps", (Types::Any, Bits),
        "(reduce.add (cast r) r)", "{size(r) * (size(r) - 1) // 2}",
        "isint(root)",
        "0 + 1 + .. + (n-1) modulo 2^bits", ""),
    row("reduce/max-of-steps", (Types::Any, Bits),
        "(reduce.max r r)", "{size(r) - 1}",
        "0 < size(r)",
        "the last iteration", ""),
    row("reduce/max-of-sum", (Types::Any, Bits),
        "(reduce.max s@(add x y) r)", "(add (reduce.max x r) y)",
        "isint(s) && 0 < size(r) && free(y, r) && !free(x, r) && nowrap(s)",
        "the maximum is shifted by y as long as nothing wraps", ""),
    row("reduce/max-of-sum-left", (Types::Any, Bits),
        "(reduce.max s@(add x y) r)", "(add x (reduce.max y r))",
        "isint(s) && 0 < size(r) && free(x, r) && !free(y, r) && nowrap(s)",
        "the maximum is shifted by x as long as nothing wraps", ""),
    row("reduce/max-of-product", (Types::Any, Bits),
        "(reduce.max s@(mul x c0) r)", "(mul (reduce.max x r) c0)",
        "isint(s) && 0 < size(r) && c0 > 0 && nowrap(s)",
        "a positive factor keeps the order as long as nothing wraps", ""),
    row("reduce/sum-of-sum", (Types::Any, Bits),
        "(reduce.add (add x y) r)", "(add (reduce.add x r) (reduce.add y r))",
        "isint(x) && free(y, r) && !free(x, r)",
        "+ is commutative and associative; the second sum collapses", TINYGRAD),
    row("reduce/sum-of-sum-left", (Types::Any, Bits),
        "(reduce.add (add x y) r)", "(add (reduce.add x r) (reduce.add y r))",
        "isint(x) && free(x, r) && !free(y, r)",
        "+ is commutative and associative; the first sum collapses", TINYGRAD),
    row("reduce/sum-of-product", (Types::Any, Bits),
        "(reduce.add (mul x y) r)", "(mul (reduce.add x r) y)",
        "isint(x) && free(y, r) && !free(x, r)",
        "y is a common factor", TINYGRAD),
    row("reduce/sum-of-product-left", (Types::Any, Bits),
        "(reduce.add (mul x y) r)", "(mul x (reduce.add y r))",
        "isint(x) && free(x, r) && !free(y, r)",
        "x is a common factor", TINYGRAD),
    row("reduce/sum-of-masked", (Types::Any, Bits),
        "(reduce.add (mul (cast s) v) r)", "(reduce.add (where s v 0) r)",
        "isbool(s) && isint(v) && !free(s, r)",
        "1*v or 0*v: a choice, whose iterations the next rows count", TINYGRAD),
    row("reduce/sum-of-masked-left", (Types::Any, Bits),
        "(reduce.add (mul v (cast s)) r)", "(reduce.add (where s v 0) r)",
        "isbool(s) && isint(v) && !free(s, r)",
        "v*1 or v*0: a choice, whose iterations the next rows count", TINYGRAD),
    row("reduce/sum-of-chosen", (Types::Any, Bits),
        "(reduce.add (where s v 0) r)", "(where s (reduce.add v r) 0)",
        "isint(v) && free(s, r) && !free(v, r)",
        "all iterations are taken or none", TINYGRAD),
    row("reduce/sum-of-chosen-else", (Types::Any, Bits),
        "(reduce.add (where s 0 v) r)", "(where s 0 (reduce.add v r))",
        "isint(v) && free(s, r) && !free(v, r)",
        "all iterations are taken or none", TINYGRAD),
    row("reduce/max-of-chosen", (Types::Any, Bits),
        "(reduce.max (where s v w) r)", "(where s (reduce.max v r) w)",
        "0 < size(r) && free(s, r) && free(w, r) && !free(v, r)",
        "the same branch in all iterations; the other branch does not vary", ""),
    row("reduce/count-below", (Types::Any, Bits),
        "(reduce.add (where (cmplt x y) v 0) r)",
        concat!("(mul v (cast ", rising!("y"), "))"),
        concat!("isint(v) && free(v, r) && ", rising_fits!()),
        "r*c + w < y holds for the first ceil((y - w)/c) iterations", LOOP)
        .given("x = r * c0 + w by over_range"),
    row("reduce/count-from", (Types::Any, Bits),
        "(reduce.add (where (cmplt x y) 0 v) r)",
        concat!("(mul v (cast (sub {size(r)} ", rising!("y"), ")))"),
        concat!("isint(v) && free(v, r) && ", rising_fits!()),
        "the other iterations of reduce/count-below", LOOP)
        .given("x = r * c0 + w by over_range"),
    row("reduce/count-below-falling", (Types::Any, Bits),
        "(reduce.add (where (cmplt x y) v 0) r)",
        concat!("(mul v (cast (sub {size(r)} ", falling!(), ")))"),
        concat!("isint(v) && free(v, r) && ", falling_fits!()),
        "w - r*c < y fails for the first floor((w - y)/c) + 1 iterations", LOOP)
        .given("x = r * c0 + w by over_range"),
    row("reduce/count-from-falling", (Types::Any, Bits),
        "(reduce.add (where (cmplt x y) 0 v) r)",
        concat!("(mul v (cast ", falling!(), "))"),
        concat!("isint(v) && free(v, r) && ", falling_fits!()),
        "the other iterations of reduce/count-below-falling", LOOP)
        .given("x = r * c0 + w by over_range"),
    row("reduce/count-true-below", (Types::Any, Bits),
        "(reduce.add (cast (cmplt x y)) r)",
        concat!("(cast ", rising!("y"), ")"),
        concat!("isint(root) && ", rising_fits!()),
        "reduce/count-below for a truth value, which is 1 or 0", LOOP)
        .given("x = r * c0 + w by over_range"),
    row("reduce/count-true-from", (Types::Any, Bits),
        "(reduce.add (cast (not (cmplt x y))) r)",
        concat!("(cast (sub {size(r)} ", rising!("y"), "))"),
        concat!("isint(root) && ", rising_fits!()),
        "reduce/count-from for a truth value, which is 1 or 0", LOOP)
        .given("x = r * c0 + w by over_range"),
    row("reduce/count-true-below-falling", (Types::Any, Bits),
        "(reduce.add (cast (cmplt x y)) r)",
        concat!("(cast (sub {size(r)} ", falling!(), "))"),
        concat!("isint(root) && ", falling_fits!()),
        "reduce/count-below-falling for a truth value", LOOP)
        .given("x = r * c0 + w by over_range"),
    row("reduce/count-true-from-falling", (Types::Any, Bits),
        "(reduce.add (cast (not (cmplt x y))) r)",
        concat!("(cast ", falling!(), ")"),
        concat!("isint(root) && ", falling_fits!()),
        "reduce/count-from-falling for a truth value", LOOP)
        .given("x = r * c0 + w by over_range"),
    row("reduce/count-between", (Types::Any, Bits),
        "(reduce.add (where (and (not (cmplt x y)) (cmplt x z)) v 0) r)",
        concat!("(mul v (cast (sub ", rising!("z"), " ", rising!("y"), ")))"),
        concat!("isint(v) && free(v, r) && free(z, r) && max(y) <= min(z) && ", rising_fits!()),
        "iterations below y are also below z: the difference of the counts", LOOP)
        .given("x = r * c0 + w by over_range"),
    row("reduce/count-between-swapped", (Types::Any, Bits),
        "(reduce.add (where (and (cmplt x z) (not (cmplt x y))) v 0) r)",
        concat!("(mul v (cast (sub ", rising!("z"), " ", rising!("y"), ")))"),
        concat!("isint(v) && free(v, r) && free(z, r) && max(y) <= min(z) && ", rising_fits!()),
        "iterations below y are also below z: the difference of the counts", LOOP)
        .given("x = r * c0 + w by over_range"),
    row("reduce/count-below-float", (Types::Any, Ulp(1)),
        "(reduce.add (where (cmplt x y) 1.0 0.0) r)",
        concat!("(cast ", rising!("y"), ")"),
        concat!("!isint(root) && bits(root) >= 32 && size(r) <= 16777216 && ", rising_fits!()),
        "as reduce/count-below: a count up to 2^24 is exact; \
         further ranges may add up to more", LOOP)
        .given("x = r * c0 + w by over_range"),
    row("reduce/count-from-float", (Types::Any, Ulp(1)),
        "(reduce.add (where (cmplt x y) 0.0 1.0) r)",
        concat!("(cast (sub {size(r)} ", rising!("y"), "))"),
        concat!("!isint(root) && bits(root) >= 32 && size(r) <= 16777216 && ", rising_fits!()),
        "as reduce/count-from: a count up to 2^24 is exact; \
         further ranges may add up to more", LOOP)
        .given("x = r * c0 + w by over_range"),
    row("reduce/gather", (Types::Any, Bits),
        "(reduce.add (where s x y) r)", "@gather",
        "isint(root)",
        "at most one iteration is not 0; computed, as its number replaces r in all nodes that \
         depend on r, loads and their gates included", "tinygrad index_collapse"),
    row("reduce/gather-float", (Types::Any, Ulp(1)),
        "(reduce.add (where s x y) r)", "@gather",
        "!isint(root)",
        "as reduce/gather; not Bits: the sum turns -0.0 into 0.0, \
         and other ranges are added in another order", "tinygrad index_collapse"),
];
