//! Correctly rounded float ops: add, mul, div, sqrt, max, and comparison. Each returns the set of
//! results that legal computations may have: rounded or kept in higher precision, fused, sums and
//! products in any order.

use std::cmp::Ordering;

use gradiff_corpus::DType;

use crate::cell::{Cell, Chain, Real, Reason};
use crate::format::{Format, format, highest_bit, pow2};

/// Covers the roundings of the f64 arithmetic that computes the bounds.
const SLACK: f64 = 1.0 + pow2(-40);
/// Error of a double-double sum relative to the sum of its terms' magnitudes.
const DOUBLE_DOUBLE: f64 = pow2(-100);
/// Below this, the error term of an f64 product loses digits.
const PRODUCT_FLOOR: f64 = pow2(-960);
/// A factor that takes what is below that far above.
const PRODUCT_SCALE: f64 = pow2(200);

/// Returns the largest relative error of one rounding. It includes that of the oracle itself: f16
/// and bf16 may be rounded to f32 first, and a center in f64 is off by 2^-53.
pub(crate) fn rounding_unit(format: &Format) -> f64 {
    match format.precision {
        53 => format.unit * (1.0 + pow2(-40)),
        24 => format.unit * (1.0 + pow2(-26)),
        _ => format.unit * 1.001,
    }
}

/// Bound of the error of a single rounding, that near zero excepted, of a number whose magnitude is
/// at most `size`: half the distance between numbers of that magnitude.
pub(crate) fn half_ulp(format: &Format, size: f64) -> f64 {
    // The largest power of two up to `size`, or 0 among the subnormal numbers of f64.
    let power = f64::from_bits(size.to_bits() & (0x7ff << 52));
    rounding_unit(format) * power
}

/// Bound of the error of a single rounding of a number whose magnitude is at most `size`.
pub(crate) fn rounding_error(format: &Format, size: f64) -> f64 {
    or_near_zero(format, half_ulp(format, size))
}

/// Bound of the error of a single rounding whose error is `relative`, except near zero. Numbers
/// there are as far from each other as those beside the smallest normal number, so the error is
/// the larger of both. In f64 the center has an error of its own there, too.
fn or_near_zero(format: &Format, relative: f64) -> f64 {
    match format.precision {
        53 => relative + format.floor,
        _ => relative.max(format.floor),
    }
}

/// Returns the largest magnitude of a number with the center `hi + lo` and this radius, rounded up;
/// below `hi` if it is, as the numbers below a power of two are nearer to each other.
pub(crate) fn size_of(hi: f64, lo: f64, radius: f64) -> f64 {
    match radius == 0.0 {
        true if hi * lo < 0.0 => hi.abs().next_down(),
        true => hi.abs(),
        false => (hi.abs() + radius * SLACK).next_up(),
    }
}

/// Returns the result of an op. `real.radius` is the error that it inherits from its sources; its
/// own rounding adds `rounding`, unless the result is `exact`.
pub(crate) fn round_result(format: &Format, real: Real, rounding: f64, exact: bool) -> Cell {
    let inherited = real.radius;
    let size = real.hi.abs();
    if inherited.is_nan() || real.hi.is_nan() {
        return Cell::Unspecified(Reason::Unbounded);
    }
    if size - inherited >= format.overflow && (size < f64::INFINITY || inherited == 0.0) {
        return Cell::Inf { negative: real.hi < 0.0, overflowed: true };
    }
    if size + inherited >= format.overflow {
        return Cell::Unspecified(Reason::Overflow);
    }
    let radius = if exact { 0.0 } else { (inherited + rounding) * SLACK };
    if !radius.is_finite() {
        return Cell::Unspecified(Reason::Unbounded);
    }
    let lo = if real.lo.is_finite() { real.lo } else { 0.0 };
    Cell::Real(Real { radius, lo, ..real })
}

/// Returns the result of a float op that its sources determine alone: one of them is NaN,
/// unspecified or overflowed. With NaN it is NaN, whatever the rest is.
pub(crate) fn propagated(sources: &[Cell]) -> Option<Cell> {
    let overflowed = |cell: &Cell| matches!(cell, Cell::Inf { overflowed: true, .. });
    undefined(sources)
        .or_else(|| sources.iter().any(overflowed).then_some(Cell::Unspecified(Reason::Overflow)))
}

/// As [`propagated`], for an op that knows what an overflowed number gives: that is infinite, or
/// beyond the largest number of its dtype.
pub(crate) fn undefined(sources: &[Cell]) -> Option<Cell> {
    if sources.iter().any(|cell| matches!(cell, Cell::Nan(_))) {
        return Some(Cell::nan());
    }
    sources.iter().find(|cell| matches!(cell, Cell::Unspecified(_))).copied()
}

/// `-x`, exactly.
pub(crate) fn neg(x: Cell) -> Cell {
    match x {
        Cell::Real(x) => {
            let zero_sign = x.zero_sign.map(|negative| !negative);
            Cell::Real(Real { hi: -x.hi, lo: -x.lo, zero_sign, ..x })
        }
        Cell::Inf { negative, overflowed } => Cell::Inf { negative: !negative, overflowed },
        Cell::Nan(_) => Cell::nan(),
        Cell::Int(_) | Cell::Unspecified(_) => x,
    }
}

/// `a + b`.
pub(crate) fn add(dtype: DType, a: Cell, b: Cell) -> Cell {
    let mut additions = if let Cell::Real(a) = a { a.additions() } else { 0 };
    accumulate(dtype, a, b, &mut additions, u32::MAX)
}

/// `a + b` in a reduction in which no term passes through more than `depth_max` additions. In the
/// order of the terms so far, one of `a` passes through `additions`.
pub(crate) fn accumulate(
    dtype: DType,
    a: Cell,
    b: Cell,
    additions: &mut u32,
    depth_max: u32,
) -> Cell {
    match (a, b) {
        (Cell::Real(a), Cell::Real(b)) => add_reals(dtype, a, b, additions, depth_max),
        _ => propagated(&[a, b]).unwrap_or_else(|| match (a, b) {
            (Cell::Inf { negative: x, .. }, Cell::Inf { negative: y, .. }) if x != y => Cell::nan(),
            (Cell::Inf { .. }, _) => a,
            _ => b,
        }),
    }
}

/// Returns the rounded sum and its error, which is exact (Knuth's TwoSum).
fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    let part = sum - a;
    (sum, (a - (sum - part)) + (b - part))
}

/// Bound of the error of a sum of magnitude `size`, whose terms' magnitudes add up to `mass` and
/// each pass through at most `depth` additions. Every addition but the last may have a partial sum
/// as large as `mass`. The last one rounds once what the roundings before may have made larger.
fn sum_budget(format: &Format, depth: u32, mass: f64, size: f64) -> f64 {
    if depth == 0 {
        return 0.0;
    }
    // The standard bound of n roundings: n * unit / (1 - n * unit).
    let part = f64::from(depth - 1) * rounding_unit(format);
    if part >= 0.5 {
        return f64::INFINITY;
    }
    let before = part / (1.0 - part) * mass;
    before + half_ulp(format, size_of(size, 0.0, before))
}

/// Returns whether a partial sum may overflow in some order, with the roundings before it.
pub(crate) fn sum_may_overflow(format: &Format, depth: u32, mass: f64) -> bool {
    // Bounded roundings do not triple the mass.
    4.0 * mass >= format.overflow
        && mass * SLACK + sum_budget(format, depth, mass, mass) >= format.overflow
}

/// Returns the maximum number of additions that a term of a reduction of `count` numbers may pass
/// through: `count - 1` for short sums, at most 256 plus 32 for each doubling from one number on.
/// So an engine must add up partial sums; a single accumulator is too inaccurate for a long sum.
pub(crate) fn reduction_depth(count: u32) -> u32 {
    let doublings = count.max(1).ilog2();
    count.saturating_sub(1).min(256 + 32 * doublings)
}

fn add_reals(dtype: DType, a: Real, b: Real, additions: &mut u32, depth_max: u32) -> Cell {
    let terms_of = |x: &Real| match x.chain {
        Chain::Sum { .. } => x.terms,
        Chain::Leaf | Chain::Product => u32::from(!x.is_zero()),
    };
    let mass_of = |x: &Real| if x.is_sum() { x.mass } else { x.magnitude() };
    let terms = terms_of(&a).saturating_add(terms_of(&b));
    if terms_of(&a) == 0 && terms_of(&b) == 0 {
        return Cell::zero(a.sign().filter(|_| a.sign() == b.sign()));
    }
    let cells = a.cells.saturating_add(b.cells);
    // Adding zero changes at most the sign of a zero, and rounds nothing.
    if terms_of(&a) == 0 || terms_of(&b) == 0 {
        let kept = if terms_of(&a) == 0 { b } else { a };
        if terms_of(&a) == 0 {
            *additions = b.additions();
        }
        return Cell::Real(Real { zero_sign: None, cells, ..kept });
    }
    let format = format(dtype);
    let (hi, error) = two_sum(a.hi, b.hi);
    let (hi, lo) = if dtype == DType::F64 && hi.is_finite() {
        two_sum(hi, error + (a.lo + b.lo))
    } else {
        (hi, 0.0)
    };
    let mass = mass_of(&a) + mass_of(&b);
    let low = a.grid().min(b.grid());
    let exact = a.is_exact()
        && b.is_exact()
        && error == 0.0
        && format.holds(hi)
        && (terms == 2 || format.holds_sums(mass, low.into()));
    let sequential_depth = additions.saturating_add(b.additions()).saturating_add(1).min(terms - 1);
    *additions = sequential_depth;
    let depth = sequential_depth.min(depth_max);
    if terms > 2 && !exact && sum_may_overflow(format, depth, mass) {
        return Cell::Unspecified(Reason::Overflow);
    }
    let radius = a.radius + b.radius;
    let size = size_of(hi, lo, radius);
    // As in a product, the radius of a number that was found not to be negative is another one.
    let spent = |x: &Real| match x.chain {
        Chain::Sum { .. } if x.radius != x.hi.abs() => {
            x.radius.min(sum_budget(format, x.depth, x.mass, x.hi.abs()))
        }
        Chain::Sum { .. } | Chain::Leaf | Chain::Product => 0.0,
    };
    let budget = sum_budget(format, depth, mass, size) - spent(&a) - spent(&b);
    let center_error = if dtype == DType::F64 { DOUBLE_DOUBLE * mass } else { 0.0 };
    // Once the depth is limited, the budget covers the rounding of another addition.
    let min_rounding = if depth < sequential_depth { 0.0 } else { half_ulp(format, size) };
    let rounding = budget.max(min_rounding) + format.floor + center_error;
    // If no term is below 0, no partial sum is, in any order, nor is one rounded below 0.
    let side_of = |x: &Real| match x.chain {
        Chain::Sum { is_aligned: false } => None,
        Chain::Sum { .. } | Chain::Leaf | Chain::Product => x.side(),
    };
    let side = side_of(&a).filter(|side| side_of(&b) == Some(*side));
    let chain = Chain::Sum { is_aligned: side.is_some() };
    let zero_sign = None;
    let real = Real { hi, lo, radius, mass, terms, cells, depth, low, chain, zero_sign };
    on_side(side, round_result(format, real, rounding, exact))
}

/// `a * b`.
pub(crate) fn mul(dtype: DType, a: Cell, b: Cell) -> Cell {
    match (a, b) {
        (Cell::Real(a), Cell::Real(b)) => mul_reals(dtype, a, b),
        _ => propagated(&[a, b]).unwrap_or_else(|| match (a, b) {
            (Cell::Inf { negative, .. }, Cell::Real(x))
            | (Cell::Real(x), Cell::Inf { negative, .. }) => scale_infinity(negative, x),
            (Cell::Inf { negative: x, .. }, Cell::Inf { negative: y, .. }) => {
                Cell::infinity(x != y)
            }
            _ => Cell::nan(),
        }),
    }
}

/// Infinity times a finite number.
fn scale_infinity(negative: bool, x: Real) -> Cell {
    if x.is_zero() {
        return Cell::nan();
    }
    match x.sign().filter(|_| !x.may_be_zero()) {
        Some(sign) => Cell::infinity(sign != negative),
        None => Cell::Unspecified(Reason::Straddle),
    }
}

/// Returns whether a number is exactly a power of two, which rounds nothing as a factor or divisor:
/// the roundings of what it scales are scaled with it.
fn is_power_of_two(x: &Real) -> bool {
    x.is_exact() && x.hi.to_bits() & ((1 << 52) - 1) == 0
}

/// Returns the number of roundings of a product, in any order, that a factor accounts for.
fn factors_of(x: &Real) -> u32 {
    if x.chain == Chain::Product { x.terms } else { u32::from(!is_power_of_two(x)) }
}

/// Bound of the rounding of a result of magnitude `size` that is scaled by a power of two. The
/// first part is that of the oracle's own arithmetic.
fn scaled_rounding(format: &Format, size: f64) -> f64 {
    or_near_zero(format, rounding_unit(format) * pow2(-20) * size)
}

/// Returns the number of factors of a product that a rounding near zero may concern: all but 1.
fn near_zero_factors_of(x: &Real) -> u32 {
    let is_unit = x.is_exact() && x.hi.abs() == 1.0;
    if x.chain == Chain::Product { x.depth } else { u32::from(!is_unit) }
}

/// Returns a bound of the factor by which so many roundings, of an engine and of the oracle itself,
/// enlarge a product.
fn growth(format: &Format, terms: u32) -> f64 {
    // (1 + u)^n is at most e^(n * u).
    (2.0 * f64::from(terms) * rounding_unit(format)).exp()
}

/// Bound of the error of the product `x`, if its magnitude is at most `size`, in any order of its
/// factors. The last rounding is one of what the roundings before may have made larger.
fn product_budget(format: &Format, x: &Real, size: f64) -> f64 {
    let relative = match x.terms {
        0 | 1 => 0.0,
        terms => {
            // (1 + u)^n - 1 is at most e^(n * u) - 1.
            let before = (f64::from(terms - 2) * rounding_unit(format)).exp_m1() * size;
            before + half_ulp(format, size_of(size, 0.0, before))
        }
    };
    // Every rounding near zero but the last is multiplied by the factors that are left.
    match x.depth > 2 && i32::from(x.low) <= format.exponent_min {
        true => {
            let near_zero = f64::from(x.depth - 2) * x.mass * growth(format, x.terms);
            relative + format.floor * (1.0 + near_zero)
        }
        false => or_near_zero(format, relative),
    }
}

/// Returns the product of the factors' magnitudes above 1, and the exponent of the product of those
/// below 1.
fn extent_of(x: &Real) -> (f64, i32) {
    if x.chain == Chain::Product {
        return (x.mass, x.low.into());
    }
    let low = if x.hi == 0.0 { 0 } else { highest_bit(x.hi).min(0) };
    (x.magnitude().max(1.0), low)
}

/// Returns the double-double product of two centers, and whether it is exact.
fn mul_centers(dtype: DType, a: Real, b: Real) -> (f64, f64, bool) {
    let hi = a.hi * b.hi;
    let sources_exact = a.is_exact() && b.is_exact();
    if dtype != DType::F64 || a.is_zero() || b.is_zero() || hi.is_infinite() {
        return (hi, 0.0, sources_exact);
    }
    let error = a.hi.mul_add(b.hi, -hi);
    let exact = sources_exact && error == 0.0 && hi.abs() >= PRODUCT_FLOOR;
    let (hi, lo) = two_sum(hi, error + (a.hi * b.lo + a.lo * b.hi));
    (hi, lo, exact)
}

fn mul_reals(dtype: DType, a: Real, b: Real) -> Cell {
    let format = format(dtype);
    let (hi, lo, center_exact) = mul_centers(dtype, a, b);
    let radius = a.hi.abs() * b.radius + b.hi.abs() * a.radius + a.radius * b.radius;
    let ((up_a, low_a), (up_b, low_b)) = (extent_of(&a), extent_of(&b));
    let (mass, low) = (up_a * up_b, (low_a + low_b).max(-30_000));
    let is_reorderable = a.chain == Chain::Product || b.chain == Chain::Product;
    let terms = factors_of(&a).saturating_add(factors_of(&b));
    let depth = near_zero_factors_of(&a).saturating_add(near_zero_factors_of(&b));
    let underflows = depth > 2 && low <= format.exponent_min;
    // Zero times any finite number is zero; `reach` is that of the numbers without it.
    let is_zero = a.is_zero() || b.is_zero();
    let exact = is_zero || center_exact && format.holds(hi) && (!underflows || hi == 0.0);
    // Each part of an exact product is exact, unless the product is 0.
    let is_rounded = is_reorderable && (!exact || hi == 0.0);
    let reach = if is_rounded { mass * growth(format, terms) } else { mass };
    if is_reorderable && reach >= format.overflow {
        return Cell::Unspecified(Reason::Overflow);
    }
    let (chain, zero_sign) = (Chain::Product, quotient_sign(&a, &b));
    let low = low as i16;
    let real = Real { hi, lo, radius, mass, terms, cells: 1, depth, low, chain, zero_sign };
    // The bounds of a number that was found not to be negative are not around the product itself:
    // nothing of its radius is known to be that of roundings.
    let spent = |x: &Real, factor: &Real| match x.chain {
        Chain::Product if x.radius != x.hi.abs() => {
            x.radius.min(product_budget(format, x, x.hi.abs())) * factor.hi.abs()
        }
        Chain::Product | Chain::Leaf | Chain::Sum { .. } => 0.0,
    };
    let size = size_of(hi, lo, radius);
    let remaining = product_budget(format, &real, size) - spent(&a, &b) - spent(&b, &a);
    let min_rounding = match factors_of(&a).min(factors_of(&b)) {
        0 => scaled_rounding(format, size),
        _ => rounding_error(format, size),
    };
    let rounding = remaining.max(min_rounding);
    on_side(quotient_side(&a, &b), round_result(format, real, rounding, exact))
}

/// The sign of a product or quotient, also if it is a zero.
fn quotient_sign(a: &Real, b: &Real) -> Option<bool> {
    a.sign().and_then(|x| b.sign().map(|y| x != y))
}

/// The side of 0 that a product or quotient does not leave.
fn quotient_side(a: &Real, b: &Real) -> Option<bool> {
    a.side().and_then(|x| b.side().map(|y| x != y))
}

/// Narrows the bounds of a result to a side of 0, which roundings do not leave.
pub(crate) fn on_side(negative: Option<bool>, x: Cell) -> Cell {
    match negative {
        Some(true) => neg(neg(x).not_negative()),
        Some(false) => x.not_negative(),
        None => x,
    }
}

/// Narrows the bounds of a result to its sign, which roundings keep, also those to zero.
pub(crate) fn with_sign(negative: Option<bool>, x: Cell) -> Cell {
    match negative {
        Some(true) => neg(neg(x).positive()),
        Some(false) => x.positive(),
        None => x,
    }
}

/// `a / b`.
pub(crate) fn div(dtype: DType, a: Cell, b: Cell) -> Cell {
    if let (Cell::Real(a), Cell::Inf { negative, overflowed: true }) = (a, b) {
        return over_overflow(dtype, a, negative);
    }
    if let Some(cell) = propagated(&[a, b]) {
        return cell;
    }
    match (a, b) {
        (Cell::Real(a), Cell::Real(b)) if b.is_zero() => over_zero(a, b),
        (Cell::Real(_), Cell::Real(b)) if b.may_be_zero() => Cell::Unspecified(Reason::Straddle),
        (Cell::Real(a), Cell::Real(b)) => div_reals(dtype, a, b),
        (Cell::Real(a), Cell::Inf { negative, .. }) => {
            Cell::zero(a.sign().map(|sign| sign != negative))
        }
        (Cell::Inf { negative, .. }, Cell::Real(b)) => match b.sign() {
            Some(sign) => Cell::infinity(sign != negative),
            None if b.is_zero() => Cell::Unspecified(Reason::ZeroSign),
            None => Cell::Unspecified(Reason::Straddle),
        },
        _ => Cell::nan(),
    }
}

fn over_zero(a: Real, zero: Real) -> Cell {
    if a.is_zero() {
        return Cell::nan();
    }
    match (a.may_be_zero(), a.sign(), zero.sign()) {
        (true, _, _) | (_, None, _) => Cell::Unspecified(Reason::Straddle),
        (_, _, None) => Cell::Unspecified(Reason::ZeroSign),
        (_, Some(x), Some(y)) => Cell::infinity(x != y),
    }
}

/// `a / b` where `b` overflowed: zero if `b` is infinite, or a small number.
fn over_overflow(dtype: DType, a: Real, is_negative: bool) -> Cell {
    let sign = a.sign().map(|negative| negative != is_negative);
    if a.is_zero() {
        return Cell::zero(sign);
    }
    let format = format(dtype);
    let largest = a.magnitude().min(f64::MAX) / format.overflow.min(f64::MAX);
    let largest = (largest + rounding_error(format, largest)) * SLACK;
    with_sign(sign, Cell::Real(Real::ball(0.0, 0.0, largest)))
}

/// Returns the power of two by which an f64 and its quotient, or root, are multiplied before their
/// product is subtracted from it, so that the difference is no subnormal number.
fn scale_of_rest(x: f64) -> f64 {
    if x.abs() < PRODUCT_FLOOR { PRODUCT_SCALE } else { 1.0 }
}

/// `a / b` where zero is not within the bounds of `b`.
fn div_reals(dtype: DType, a: Real, b: Real) -> Cell {
    let zero_sign = quotient_sign(&a, &b);
    if a.is_zero() {
        return Cell::zero(zero_sign);
    }
    let format = format(dtype);
    let hi = a.hi / b.hi;
    // For narrow formats the product is exact in f64 if the quotient fits the format.
    let (lo, divides) = if dtype == DType::F64 {
        let scale = scale_of_rest(a.hi);
        let (dividend, quotient) = (a.hi * scale, hi * scale);
        let rest = (-quotient).mul_add(b.hi, dividend);
        let lo = (rest + (a.lo * scale - quotient * b.lo)) / b.hi / scale;
        (lo, rest == 0.0)
    } else {
        (0.0, hi * b.hi == a.hi)
    };
    let exact = a.is_exact() && b.is_exact() && divides && format.holds(hi);
    let nearest = b.lower().abs().min(b.upper().abs());
    let inherited = a.radius + hi.abs() * b.radius;
    let radius = if inherited == 0.0 { 0.0 } else { inherited / nearest * SLACK };
    let size = size_of(hi, lo, radius);
    let rounding = match is_power_of_two(&b) {
        true => scaled_rounding(format, size),
        false => rounding_error(format, size),
    };
    let real = Real { zero_sign, ..Real::ball(hi, lo, radius) };
    on_side(quotient_side(&a, &b), round_result(format, real, rounding, exact))
}

/// The square root; NaN below zero, `-0` for `-0`.
pub(crate) fn sqrt(dtype: DType, x: Cell) -> Cell {
    let real = match x {
        Cell::Real(real) => real,
        _ => {
            return propagated(&[x]).unwrap_or(match x {
                Cell::Inf { negative: true, .. } => Cell::nan(),
                _ => x,
            });
        }
    };
    if real.is_zero() {
        return Cell::Real(real.leaf());
    }
    if real.upper() < 0.0 {
        return Cell::nan();
    }
    if real.lower() < 0.0 {
        return Cell::Unspecified(Reason::Straddle);
    }
    let format = format(dtype);
    let hi = real.hi.sqrt();
    let (lo, square) = if dtype == DType::F64 {
        let scale = scale_of_rest(real.hi);
        let (root, square) = (hi * scale, scale * scale);
        let rest = (-root).mul_add(root, real.hi * square);
        let lo = if hi > 0.0 { (rest + real.lo * square) / (2.0 * root) / scale } else { 0.0 };
        (lo, rest == 0.0)
    } else {
        (0.0, hi * hi == real.hi)
    };
    let exact = real.is_exact() && square && format.holds(hi);
    // sqrt(c) - sqrt(c - r) = r / (sqrt(c) + sqrt(c - r)) is the larger of the two deviations.
    let lower = real.lower().max(0.0).sqrt();
    let radius = if real.is_exact() { 0.0 } else { real.radius / (hi + lower) * SLACK };
    let rounding = rounding_error(format, size_of(hi, lo, radius));
    // The root of a zero has its sign.
    let root = Real { zero_sign: real.sign(), ..Real::ball(hi, lo, radius) };
    round_result(format, root, rounding, exact).not_negative()
}

/// `max(a, b)`; NaN if either is.
pub(crate) fn max(a: Cell, b: Cell) -> Cell {
    if let Some(cell) = undefined(&[a, b]) {
        return cell;
    }
    match (a, b) {
        // An overflowed number may be the lesser of two that are infinite, or the greater.
        (Cell::Inf { negative: x, overflowed: p }, Cell::Inf { negative: y, overflowed: q })
            if x == y =>
        {
            Cell::Inf { negative: x, overflowed: p || q }
        }
        (Cell::Inf { negative: false, .. }, _) | (_, Cell::Inf { negative: true, .. }) => leaf(a),
        (Cell::Real(a), Cell::Real(b)) => max_reals(a, b),
        _ => leaf(b),
    }
}

fn leaf(x: Cell) -> Cell {
    if let Cell::Real(real) = x { Cell::Real(real.leaf()) } else { x }
}

fn max_reals(a: Real, b: Real) -> Cell {
    if a.is_exact() && b.is_exact() && a.hi == b.hi {
        let sign = a.sign().filter(|_| a.sign() == b.sign());
        return if a.hi == 0.0 { Cell::zero(sign) } else { Cell::Real(a.leaf()) };
    }
    // A zero within the bounds of the lesser number may be the result, and have another sign.
    let above = |x: Real, below: Real| {
        let zero_sign = x.zero_sign.filter(|_| below.upper() != 0.0);
        Cell::Real(Real { zero_sign, ..x.leaf() })
    };
    if a.lower() >= b.upper() {
        return above(a, b);
    }
    if b.lower() >= a.upper() {
        return above(b, a);
    }
    // Rounding a bound outwards near f64::MAX gives infinity, but the numbers are finite.
    let lower = a.lower().max(b.lower()).max(f64::MIN);
    let upper = a.upper().max(b.upper()).min(f64::MAX);
    within(lower, upper)
}

/// Creates a number with these bounds, which are finite.
pub(crate) fn within(lower: f64, upper: f64) -> Cell {
    if lower == 0.0 {
        return Cell::Real(Real::up_to(upper));
    }
    let hi = lower / 2.0 + upper / 2.0;
    let radius = (upper - hi).max(hi - lower).next_up() * SLACK;
    Cell::Real(Real::ball(hi, 0.0, radius))
}

/// Narrows the bounds of a number to what it can be: from `least` to `greatest`.
pub(crate) fn limited(x: Cell, least: f64, greatest: f64) -> Cell {
    match x {
        Cell::Real(real) if real.lower() < least || greatest < real.upper() => {
            within(real.lower().max(least), real.upper().min(greatest))
        }
        cell => cell,
    }
}

/// Compares two floats; `None` if either is NaN. An overflowed number is beyond all finite ones.
///
/// # Errors
/// A source is unspecified, or its bounds do not decide the comparison.
pub(crate) fn order(a: Cell, b: Cell) -> Result<Option<Ordering>, Reason> {
    match undefined(&[a, b]) {
        Some(Cell::Unspecified(reason)) => return Err(reason),
        Some(_) => return Ok(None),
        None => {}
    }
    let infinity = |cell| match cell {
        Cell::Inf { negative: true, .. } => -1,
        Cell::Inf { negative: false, .. } => 1,
        _ => 0,
    };
    match (a, b) {
        (Cell::Real(a), Cell::Real(b)) if a.upper() < b.lower() => Ok(Some(Ordering::Less)),
        (Cell::Real(a), Cell::Real(b)) if b.upper() < a.lower() => Ok(Some(Ordering::Greater)),
        (Cell::Real(a), Cell::Real(b)) if a.is_exact() && b.is_exact() => Ok(Some(Ordering::Equal)),
        (Cell::Real(_), Cell::Real(_)) => Err(Reason::Straddle),
        (Cell::Inf { negative: x, overflowed: p }, Cell::Inf { negative: y, overflowed: q })
            if x == y && (p || q) =>
        {
            Err(Reason::Overflow)
        }
        _ => Ok(Some(infinity(a).cmp(&infinity(b)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the value of an exact number or an infinity.
    fn exact(cell: Cell) -> Option<f64> {
        match cell {
            Cell::Real(real) if real.is_exact() => Some(real.hi),
            Cell::Inf { negative, .. } => {
                Some(if negative { f64::NEG_INFINITY } else { f64::INFINITY })
            }
            _ => None,
        }
    }

    fn cell(value: f64) -> Cell {
        Cell::from_bits(DType::F64, value.to_bits())
    }

    fn radius(cell: Cell) -> f64 {
        match cell {
            Cell::Real(real) => real.radius,
            _ => panic!("{cell:?} is not a finite number"),
        }
    }

    #[test]
    fn exact_results_are_recognised_in_every_format() {
        for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
            assert_eq!(exact(add(dtype, cell(1.5), cell(-4.0))), Some(-2.5));
            assert_eq!(exact(mul(dtype, cell(1.5), cell(-4.0))), Some(-6.0));
            assert_eq!(exact(div(dtype, cell(6.0), cell(-4.0))), Some(-1.5));
            assert_eq!(exact(sqrt(dtype, cell(2.25))), Some(1.5));
            assert_eq!(exact(div(dtype, cell(1.0), cell(3.0))), None);
            assert_eq!(exact(sqrt(dtype, cell(2.0))), None);
            let unit = format(dtype).unit;
            assert_eq!(exact(add(dtype, cell(1.0), cell(unit))), None);
            let third = div(dtype, cell(1.0), cell(3.0));
            // Half the distance of numbers from 1/4 to 1/2.
            assert!(radius(third) < unit * 0.26 && radius(third) >= unit / 4.0);
        }
    }

    #[test]
    fn sums_are_exact_only_if_every_order_is() {
        let big = pow2(24);
        let zero = add(DType::F32, cell(big), cell(-big));
        assert_eq!(exact(zero), Some(0.0));
        assert_eq!(exact(add(DType::F32, zero, cell(1.0))), None);
        assert_eq!(exact(add(DType::F64, zero, cell(1.0))), Some(1.0));
        // -2^24 + 1.5 would be rounded to -2^24 + 2.
        let sum = add(DType::F32, zero, cell(1.5));
        assert!(radius(sum) >= 0.5 && radius(sum) < 8.0);
        let small = add(DType::F32, add(DType::F32, cell(5.0), cell(-5.0)), cell(0.25));
        assert_eq!(exact(small), Some(0.25));
    }

    #[test]
    fn zero_signs_are_kept_or_free() {
        let sign = |cell| match cell {
            Cell::Real(real) if real.is_zero() => real.sign(),
            cell => panic!("{cell:?} is not a zero"),
        };
        let (plus, minus) = (cell(0.0), cell(-0.0));
        for dtype in [DType::F16, DType::F64] {
            assert_eq!(sign(add(dtype, minus, minus)), Some(true));
            assert_eq!(sign(add(dtype, plus, plus)), Some(false));
            assert_eq!(sign(add(dtype, plus, minus)), None);
            assert_eq!(sign(add(dtype, cell(1.0), cell(-1.0))), None);
            assert_eq!(sign(mul(dtype, cell(-2.0), plus)), Some(true));
            assert_eq!(sign(mul(dtype, add(dtype, plus, minus), cell(1.0))), None);
            assert_eq!(sign(div(dtype, minus, cell(3.0))), Some(true));
            assert_eq!(sign(sqrt(dtype, minus)), Some(true));
            assert_eq!(sign(max(plus, minus)), None);
            assert_eq!(sign(div(dtype, cell(1.0), cell(f64::NEG_INFINITY))), Some(true));
            assert_eq!(exact(div(dtype, cell(1.0), minus)), Some(f64::NEG_INFINITY));
            let free = add(dtype, plus, minus);
            assert_eq!(div(dtype, cell(1.0), free), Cell::Unspecified(Reason::ZeroSign));
            assert!(matches!(div(dtype, free, minus), Cell::Nan(None)));
        }
    }

    #[test]
    fn overflow_is_infinite_at_once_and_unspecified_later() {
        for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
            let big = cell(pow2(format(dtype).exponent_max));
            let over = mul(dtype, big, cell(2.0));
            assert_eq!(over, Cell::Inf { negative: false, overflowed: true });
            let back = mul(dtype, over, cell(0.5));
            assert_eq!(back, Cell::Unspecified(Reason::Overflow));
            let truly = div(dtype, cell(1.0), cell(0.0));
            assert_eq!(mul(dtype, truly, cell(-0.5)), Cell::infinity(true));
            assert!(matches!(add(dtype, truly, neg(truly)), Cell::Nan(None)));
            assert!(matches!(mul(dtype, truly, cell(0.0)), Cell::Nan(None)));
        }
    }

    #[test]
    fn overflowed_numbers_are_beyond_the_finite_ones() {
        let (least, largest) = (cell(1.0), cell(65504.0));
        let over = mul(DType::F16, largest, cell(2.0));
        assert_eq!(order(over, largest), Ok(Some(Ordering::Greater)));
        assert_eq!(order(neg(over), Cell::infinity(false)), Ok(Some(Ordering::Less)));
        assert_eq!(order(over, Cell::infinity(false)), Err(Reason::Overflow));
        assert_eq!((max(over, least), max(least, over)), (over, over));
        assert_eq!(
            (exact(max(neg(over), least)), exact(max(least, neg(over)))),
            (Some(1.0), Some(1.0))
        );
        // In f32 it may be infinite, or 131008.
        assert_eq!(max(neg(over), Cell::infinity(true)), neg(over));
        let inverse = div(DType::F16, least, neg(over));
        let Cell::Real(real) = inverse else { panic!("{inverse:?}") };
        assert_eq!((real.upper(), real.sign()), (0.0, Some(true)));
        assert!((-1.6e-5..=-1.0 / 65520.0).contains(&real.lower()), "{real:?}");
    }

    #[test]
    fn zero_times_a_computed_number_is_zero() {
        for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
            let third = div(dtype, cell(1.0), cell(3.0));
            let zero = mul(dtype, neg(third), cell(0.0));
            assert_eq!(exact(zero).map(f64::to_bits), Some((-0.0f64).to_bits()));
            assert_eq!(exact(mul(dtype, mul(dtype, third, third), zero)), Some(0.0));
            assert_eq!(exact(add(dtype, cell(1.0), zero)), Some(1.0));
            assert_eq!(order(zero, cell(0.0)), Ok(Some(Ordering::Equal)));
            // The sign of the difference is unknown, and that of the zero.
            let rest = add(dtype, third, neg(third));
            let Cell::Real(real) = mul(dtype, rest, cell(0.0)) else { panic!("a number") };
            assert!(real.is_sign_free());
        }
    }

    #[test]
    fn sums_products_and_quotients_stay_on_a_side_of_zero() {
        let dtype = DType::F32;
        let third = div(dtype, cell(1.0), cell(3.0));
        let rest = add(dtype, third, cell(-f64::from(1f32 / 3.0)));
        let square = mul(dtype, rest, rest).not_negative();
        let sum = add(dtype, square, square);
        let bounds = |cell| match cell {
            Cell::Real(real) => (real.lower(), real.upper()),
            cell => panic!("{cell:?} is no number"),
        };
        for x in [
            sum,
            add(dtype, add(dtype, cell(1e-40), square), sum),
            mul(dtype, square, square),
            div(dtype, square, third),
            sqrt(dtype, sum),
        ] {
            assert!(0.0 <= bounds(x).0, "{x:?}");
        }
        assert!(bounds(add(dtype, neg(square), neg(sum))).1 <= 0.0);
        // Another order of terms of both signs may round below 0.
        let mixed = add(dtype, add(dtype, cell(1.0), cell(-0.75)), square);
        let Cell::Real(mixed) = mixed else { panic!("{mixed:?}") };
        assert_eq!(mixed.chain, Chain::Sum { is_aligned: false });
    }

    #[test]
    fn the_sign_of_a_zero_that_underflowed_is_known() {
        let tiny = cell(1e-30);
        let sign = |cell| match cell {
            Cell::Real(real) if real.may_be_zero() => real.sign(),
            cell => panic!("{cell:?} is not near zero"),
        };
        let product = mul(DType::F32, tiny, cell(-1e-30));
        assert_eq!(sign(product), Some(true));
        assert_eq!(sign(div(DType::F32, product, cell(-1e10))), Some(false));
        assert_eq!(sign(sqrt(DType::F32, neg(product))), Some(false));
        assert_eq!(sign(add(DType::F32, product, product)), None);
        assert_eq!(sign(max(product, cell(-1.0))), Some(true));
        assert_eq!(sign(max(neg(product), cell(0.0))), None);
        // It may be a zero all the same.
        let (inf, straddle) = (Cell::infinity(false), Cell::Unspecified(Reason::Straddle));
        assert_eq!(mul(DType::F32, product, inf), straddle);
        assert_eq!(div(DType::F32, cell(1.0), product), straddle);
        assert_eq!(div(DType::F32, inf, product), Cell::infinity(true));
    }

    #[test]
    fn a_power_of_two_divides_without_a_rounding() {
        let third = div(DType::F32, cell(1.0), cell(3.0));
        assert!(radius(div(DType::F32, third, cell(4.0))) < 0.2501 * radius(third));
        assert!(radius(div(DType::F32, third, cell(5.0))) > 0.3 * radius(third));
    }

    #[test]
    fn roundings_near_zero_are_half_of_the_least_number() {
        for (dtype, x) in [(DType::F16, 3e-5), (DType::BF16, 3e-39), (DType::F32, 3e-40)] {
            let least = format(dtype).least;
            let third = cell(1.0 / 3.0);
            let halved = div(dtype, cell(5.0 * least), cell(2.0));
            for y in [mul(dtype, cell(x), third), div(dtype, cell(x), third), halved] {
                assert!((0.5 * least..0.501 * least).contains(&radius(y)), "{dtype:?} {y:?}");
            }
        }
    }

    #[test]
    fn products_in_any_order_may_round_more() {
        let tenth = cell(f64::from(0.1f32));
        let twice = mul(DType::F32, tenth, tenth);
        let thrice = mul(DType::F32, twice, tenth);
        let unit = format(DType::F32).unit;
        assert!(radius(twice) < 0.01 * unit * 1.01);
        assert!(radius(thrice) > 0.001 * unit * 1.9 && radius(thrice) < 0.001 * unit * 2.1);
        // 3 * 5 is exact, but 3 * (5 * 0.1) rounds twice.
        let fifteen = mul(DType::F32, cell(3.0), cell(5.0));
        let product = radius(mul(DType::F32, fifteen, tenth));
        assert!(product > unit * 2.4 && product < unit * 2.6);
        // 2 * 3 * 2^-1 is exact in any order.
        let six = mul(DType::F32, cell(2.0), cell(3.0));
        assert_eq!(exact(mul(DType::F32, six, cell(0.5))), Some(3.0));
    }

    #[test]
    fn roundings_are_to_the_nearest_number() {
        // 1/1.1 is 15252014.21 units of 2^-24.
        let quotient = div(DType::F32, cell(1.0), cell(f64::from(1.1f32)));
        let Cell::Real(real) = quotient else { panic!("{quotient:?}") };
        let is_within = |units: f64| (real.lower()..=real.upper()).contains(&(units * pow2(-24)));
        assert!(is_within(15_252_014.0));
        assert!(!is_within(15_252_015.0) && !is_within(15_252_013.0));
    }

    #[test]
    fn sums_of_too_many_roundings_are_unspecified() {
        let doubled = (0..8).fold(cell(1.5), |x, _| add(DType::BF16, x, x));
        assert_eq!(doubled, Cell::Unspecified(Reason::Unbounded));
    }

    #[test]
    fn products_and_quotients_keep_their_sign_near_zero() {
        let tiny = cell(1e-30);
        for (factor, is_negative) in [(tiny, false), (neg(tiny), true)] {
            let x = mul(DType::F32, factor, tiny);
            let Cell::Real(real) = x else { panic!("{x:?}") };
            let inner = if is_negative { real.upper() } else { real.lower() };
            assert_eq!(inner, 0.0);
        }
        let quotient = div(DType::F32, tiny, cell(1e30));
        assert!(matches!(sqrt(DType::F32, quotient), Cell::Real(_)));
    }

    #[test]
    fn max_propagates_nan_and_order_sees_bounds() {
        assert!(matches!(max(cell(f64::NAN), cell(1.0)), Cell::Nan(None)));
        assert_eq!(exact(max(cell(f64::NEG_INFINITY), cell(1.0))), Some(1.0));
        assert_eq!(exact(max(cell(2.0), cell(f64::INFINITY))), Some(f64::INFINITY));
        assert_eq!(order(cell(f64::NAN), cell(1.0)), Ok(None));
        assert_eq!(order(cell(0.0), cell(-0.0)), Ok(Some(Ordering::Equal)));
        let nearly = add(DType::F64, cell(f64::MIN), cell(255.0));
        assert!(matches!(max(nearly, nearly), Cell::Real(real) if real.hi <= -1e308));
        let third = div(DType::F32, cell(1.0), cell(3.0));
        assert_eq!(order(third, cell(0.33)), Ok(Some(Ordering::Greater)));
        assert_eq!(order(third, cell(f64::from(1.0f32 / 3.0))), Err(Reason::Straddle));
        assert_eq!(order(cell(f64::NEG_INFINITY), third), Ok(Some(Ordering::Less)));
    }
}
