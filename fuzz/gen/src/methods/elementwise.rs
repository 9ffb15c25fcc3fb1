//! Draws elementwise functions whose results are exact, or rounded once.

use gradiff_corpus::{Arg, BinaryOp, DType, Method, ValueId, promote};

use super::floats::{is_exact, is_near, unknown};
use crate::fact::{self, Fact, ROUGH, least_exponent, mantissa_bits, power};
use crate::programs::Builder;
use crate::sources::Need;
use crate::{shapes, transfer};

impl Builder<'_> {
    /// Adds an elementwise function of one source.
    pub(super) fn draw_elementwise(&mut self, method: Method) -> Option<ValueId> {
        let policy = self.policy;
        let fact_of = |fact: &Fact, dtype: DType| match method {
            Method::Abs => Some(magnitude(fact, dtype)),
            Method::Sign => is_exact(fact, policy).then(|| sign(fact, dtype)),
            Method::Square => transfer::binary(BinaryOp::Mul, fact, fact, dtype, policy),
            Method::Relu => relu(fact, dtype, policy),
            _ => is_exact(fact, policy).then(|| whole(fact, dtype)),
        };
        let src = self.pick(|tensor, fact| {
            tensor.dtype != DType::Bool && fact_of(fact, tensor.dtype).is_some()
        })?;
        let fact = fact_of(&self.fact(src), self.type_of(src).dtype)?;
        Some(self.push_method(method, vec![src], vec![], fact))
    }

    /// Adds a predicate of floats; now and then of another dtype.
    pub(super) fn draw_predicate(&mut self, method: Method) -> Option<ValueId> {
        let policy = self.policy;
        let any = self.choices.one_in(8);
        let src = self.pick(|tensor, fact| {
            (any || tensor.dtype.is_float()) && (is_near(fact, policy) || is_exact(fact, policy))
        })?;
        Some(self.push_method(method, vec![src], vec![], Fact::BOOL))
    }

    /// Adds a value between two numbers, now and then in the wrong order.
    pub(super) fn draw_clamp(&mut self, method: Method) -> Option<ValueId> {
        let policy = self.policy;
        let needs_float = method == Method::HardTanh;
        let src = self.pick(|tensor, fact| {
            tensor.dtype != DType::Bool
                && (tensor.dtype.is_float() || !needs_float)
                && (policy.special || !fact.special)
        })?;
        let dtype = self.type_of(src).dtype;
        let [min, max] = [0, 1].map(|_| self.literal(dtype, Need::Any));
        let [low, high] = [min, max].map(|literal| fact::of_literal(dtype, &literal));
        let fact = transfer::binary(BinaryOp::Max, &self.fact(src), &low, dtype, policy)?;
        let fact = transfer::binary(BinaryOp::Min, &fact, &high, dtype, policy)?;
        let args = vec![Arg::Number(min), Arg::Number(max)];
        Some(self.push_method(method, vec![src], args, fact))
    }

    /// Adds the magnitude of a value with the sign of another one, whose zeros have a known sign.
    pub(super) fn draw_copysign(&mut self) -> Option<ValueId> {
        let policy = self.policy;
        let x = self.pick(|tensor, fact| {
            tensor.dtype.is_float() && (is_near(fact, policy) || is_exact(fact, policy))
        })?;
        let has_sign =
            |fact: &Fact| (fact.raw && is_exact(fact, policy)) || fact.away > 4.0 * fact.err;
        let y = self.float_partner(x, has_sign)?;
        let dtype = promote(self.type_of(x).dtype, self.type_of(y).dtype);
        let before = fact::cast(&self.fact(x), self.type_of(x).dtype, dtype, policy)?;
        let special = before.special || self.fact(y).special;
        let size = before.magnitude();
        let fact = Fact { lo: -size, hi: size, special, raw: false, ..before };
        Some(self.push_method(Method::CopySign, vec![x, y], vec![], fact))
    }

    /// Adds a remainder of floats; of a division by zero where the lane allows NaN.
    pub(super) fn draw_fmod(&mut self) -> Option<ValueId> {
        let policy = self.policy;
        let small = if self.choices.one_in(4) { self.listed_pair(&near_subnormal) } else { None };
        let [x, y] = match small {
            Some(pair) => pair,
            None => {
                let is_exact = |fact: &Fact| is_exact(fact, policy);
                let x = self.pick(|tensor, fact| tensor.dtype.is_float() && is_exact(fact))?;
                let has_quotient = |fact: &Fact| policy.special || 0.0 < fact.away;
                [x, self.float_partner(x, |fact| is_exact(fact) && has_quotient(fact))?]
            }
        };
        let dtype = promote(self.type_of(x).dtype, self.type_of(y).dtype);
        let [first, second] = [x, y].map(|src| self.fact(src));
        let size = first.magnitude().min(second.magnitude());
        // With an infinite divisor the result is x.
        let size = if second.special { first.magnitude() } else { size };
        let special = first.special || second.special || second.away == 0.0;
        let fact = match dtype == self.type_of(x).dtype {
            true => Fact { special, ..Fact::exact(-size, size, first.grid.min(second.grid)) },
            false => unknown(dtype),
        };
        Some(self.push_method(Method::Fmod, vec![x, y], vec![], fact))
    }

    /// Adds a value that is replaced by a number where a mask is true.
    pub(super) fn draw_masked_fill(&mut self) -> Option<ValueId> {
        let limit = self.limit;
        let x = self.pick(|_, _| true)?;
        let tensor = self.type_of(x).clone();
        let mask = self.pick(|mask, _| {
            mask.dtype == DType::Bool && shapes::broadcast(&mask.shape, &tensor.shape, limit)
        });
        let mask = match mask {
            Some(mask) => mask,
            None => {
                let source = self.new_source(DType::Bool, &tensor.shape, Need::Any)?;
                self.push_source(source)?
            }
        };
        let value = self.literal(tensor.dtype, Need::Any);
        let fact = self.fact(x).join(&fact::of_literal(tensor.dtype, &value));
        let args = vec![Arg::Number(value)];
        Some(self.push_method(Method::MaskedFill, vec![x, mask], args, fact))
    }

    /// Adds a linear interpolation.
    pub(super) fn draw_lerp(&mut self) -> Option<ValueId> {
        let policy = self.policy;
        let x = self.pick(|tensor, fact| tensor.dtype.is_float() && is_near(fact, policy))?;
        let y = self.float_partner(x, |fact| is_near(fact, policy))?;
        let limit = self.limit;
        let [first, second] = [x, y].map(|src| self.type_of(src).clone());
        // The weight is a source that there is: it must fit both.
        let weight = self.pick(|tensor, fact| {
            tensor.dtype.is_float()
                && is_near(fact, policy)
                && fits_all([&first.shape, &second.shape, &tensor.shape], limit)
        })?;
        let dtype = promote(promote(first.dtype, second.dtype), self.type_of(weight).dtype);
        let facts = [x, y, weight]
            .map(|src| fact::cast(&self.fact(src), self.type_of(src).dtype, dtype, policy));
        let fact = lerp(facts, dtype, policy).unwrap_or(unknown(dtype));
        Some(self.push_method(Method::Lerp, vec![x, y, weight], vec![], fact))
    }
}

/// Numbers of a float type that are subnormal, or next to those.
fn near_subnormal(dtype: DType) -> [f64; 10] {
    let normal = power(mantissa_bits(dtype) - 1);
    [1.0, 2.0, 3.0, 5.0, 6.0, -3.0, normal - 1.0, normal, normal + 1.0, 3.0 * normal]
        .map(|units| units * power(least_exponent(dtype)))
}

fn lerp(facts: [Option<Fact>; 3], dtype: DType, policy: fact::Policy) -> Option<Fact> {
    let [x, y, weight] = [facts[0]?, facts[1]?, facts[2]?];
    let part = transfer::binary(BinaryOp::Sub, &y, &x, dtype, policy)?;
    let part = transfer::binary(BinaryOp::Mul, &part, &weight, dtype, policy)?;
    transfer::binary(BinaryOp::Add, &x, &part, dtype, policy)
}

/// Returns whether three shapes broadcast to one of at most `limit` elements.
fn fits_all(shapes: [&[usize]; 3], limit: usize) -> bool {
    let [a, b, c] = shapes;
    let size = |shape: &[usize], rank: usize, axis: usize| {
        (axis + shape.len()).checked_sub(rank).map_or(1, |axis| shape[axis])
    };
    let rank = a.len().max(b.len());
    let merged: Vec<usize> = (0..rank)
        .map(|axis| match size(a, rank, axis) {
            1 => size(b, rank, axis),
            size => size,
        })
        .collect();
    shapes::broadcast(a, b, limit) && shapes::broadcast(&merged, c, limit)
}

fn magnitude(x: &Fact, dtype: DType) -> Fact {
    if !dtype.is_float() && x.lo <= fact::range(dtype).0 {
        // The smallest integer has no magnitude.
        return Fact::whole(dtype);
    }
    let low = if x.lo <= 0.0 && 0.0 <= x.hi { 0.0 } else { x.lo.abs().min(x.hi.abs()) };
    Fact { lo: low, hi: x.magnitude(), raw: false, ..*x }
}

fn sign(x: &Fact, dtype: DType) -> Fact {
    let low = if dtype.is_float() || dtype.is_signed() { -1.0 } else { 0.0 };
    Fact { special: x.special, ..Fact::exact(low, 1.0, 0) }
}

fn relu(x: &Fact, dtype: DType, policy: fact::Policy) -> Option<Fact> {
    transfer::binary(BinaryOp::Max, x, &Fact::exact(0.0, 0.0, 0), dtype, policy)
}

fn whole(x: &Fact, dtype: DType) -> Fact {
    if !dtype.is_float() {
        return *x;
    }
    let grid = if x.grid == ROUGH { 0 } else { x.grid.max(0) };
    Fact { special: x.special, ..Fact::exact(x.lo.floor(), x.hi.ceil(), grid) }
}
