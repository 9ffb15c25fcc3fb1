//! Nodes that a left side may match: variables of several ranges, constants around zero and at the
//! ends of the dtype, and, for rules that depend on nodes below their pattern, sums and quotients.

use gradiff_eval::scalar;
use gradiff_graph::op::OPS;
use gradiff_graph::{Arg, Constant, DType, Op, Sources, UOp};
use gradiff_rewrite::syntax::Pattern;

use super::encode::Type;
use super::typing::Typing;
use crate::leaves::{global, variable};

/// Floats at which rules about floats go wrong, rounded to the dtype.
const FLOATS: [f64; 26] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    2.0,
    3.5,
    -7.25,
    0.1,
    1.0 / 3.0,
    1.5,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::NAN,
    65504.0,
    -65504.0,
    3e38,
    1e300,
    6e-8,
    -6e-8,
    6.1e-5,
    1e-40,
    5e-324,
    2049.0,
    16_777_217.0,
];

/// Constants of a dtype: integers around zero and at its ends, or notable floats.
pub(super) fn constants(dtype: DType) -> Vec<Constant> {
    let mut found: Vec<Constant> = match dtype.int_range() {
        None => FLOATS.iter().map(|value| Constant::float(dtype, *value)).collect(),
        Some((low, high)) => {
            let around_zero = (-8..=8).filter(|value| low <= *value && *value <= high);
            let ends = [low, low + 1, high - 1, high].into_iter().filter(|_| high > 8);
            around_zero.chain(ends).map(|value| Constant::int(dtype, value)).collect()
        }
    };
    let mut seen = Vec::new();
    found.retain(|value| {
        let is_new = !seen.contains(value);
        seen.push(*value);
        is_new
    });
    found
}

/// Variables of a dtype with telling ranges.
pub(super) fn variables(dtype: DType, name: &str) -> Vec<UOp> {
    let end = i64::try_from(dtype.int_range().map_or(0, |(_, high)| high)).unwrap_or(i64::MAX);
    let low = i64::try_from(dtype.int_range().map_or(0, |(low, _)| low)).unwrap_or(0);
    let ranges: Vec<(i64, i64)> = match dtype {
        DType::Bool => vec![(0, 1)],
        _ if dtype.is_unsigned() => vec![(0, 8), (0, end), (end - 5, end), (1, 3), (0, 1), (4, 4)],
        _ if dtype.is_int() => {
            let ends = [(low, end), (end - 7, end), (low, low + 3)];
            [(-8, 8), (0, 8), (-3, 2), (1, 7), (-8, -1), (0, 1)].into_iter().chain(ends).collect()
        }
        _ => vec![(0, 0)],
    };
    ranges.into_iter().map(|range| variable(dtype, name, range)).collect()
}

/// The points at which a variable is tried: all of a small range; ends and evenly spaced ones of a
/// large range.
pub(super) fn points(uop: &UOp) -> Vec<Constant> {
    let Arg::Var(variable) = uop.arg() else { return Vec::new() };
    if uop.dtype().is_float() {
        return constants(uop.dtype());
    }
    let (min, max) = (i128::from(variable.min), i128::from(variable.max));
    let constant = |value| Constant::int(uop.dtype(), value);
    if max - min <= 20 {
        return (min..=max).map(constant).collect();
    }
    let stride = ((max - min) / 24).max(1) | 1;
    let even = (0..=24).map(|number| min + number * stride);
    let notable =
        [0, 1, -1, 2, -2, 5, -7, 8, -8, 100, 127, 128, -128, -129, 255, 256, 32_768, 65_535];
    let wide = [1 << 24, (1 << 24) + 1, 1 << 31, (1 << 32) - 1, 1 << 53, (1 << 53) + 1];
    let ends = [min, min + 1, min + 2, max - 2, max - 1, max];
    let mut values: Vec<i128> = even.chain(notable).chain(wide).chain(ends).collect();
    values.retain(|value| min <= *value && *value <= max);
    values.sort_unstable();
    values.dedup();
    values.into_iter().map(constant).collect()
}

/// Compound nodes over the variables a and b: typical sums, quotients, gates and chains.
pub(super) fn compounds(dtype: DType) -> Vec<UOp> {
    if dtype == DType::Bool {
        return gates();
    }
    if !dtype.is_int() {
        return variables(dtype, "a");
    }
    let low = if dtype.is_signed() { -4 } else { 0 };
    let mut found = Vec::new();
    let constant = |value: i64| UOp::int(dtype, value);
    let of = |op, x: &UOp, value: i64| UOp::binary(op, x.clone(), constant(value));
    for (first, second) in [((0, 8), (0, 3)), ((low, 7), (0, 1)), ((0, 1), (low, 4))] {
        let a = variable(dtype, "a", first);
        let b = variable(dtype, "b", second);
        found.extend([a.clone(), b.clone()]);
        for factor in [2, 3, 4, 6, -2] {
            let scaled = of(Op::Mul, &a, factor);
            let sum = UOp::binary(Op::Add, scaled.clone(), b.clone());
            let twice = UOp::binary(Op::Add, scaled.clone(), of(Op::Mul, &b, 2));
            found.extend([scaled.clone(), of(Op::Add, &scaled, 1), of(Op::Add, &sum, 5)]);
            found.extend([sum, of(Op::Add, &scaled, factor), twice]);
        }
        for divisor in [2, 3, 4] {
            let (quotient, rest) = (of(Op::FloorDiv, &a, divisor), of(Op::FloorMod, &a, divisor));
            let (cut, left) = (of(Op::CDiv, &a, divisor), of(Op::CMod, &a, divisor));
            found.extend([quotient.clone(), rest, of(Op::Mul, &quotient, divisor), cut.clone()]);
            found.extend([left, of(Op::Mul, &cut, divisor), of(Op::FloorMod, &quotient, 2)]);
            let next = of(Op::FloorDiv, &of(Op::Add, &a, divisor), 2 * divisor);
            found.extend([of(Op::FloorDiv, &a, 2 * divisor), next]);
            found.push(of(Op::Mul, &of(Op::FloorMod, &quotient, 2), divisor));
            found.push(of(Op::CMod, &cut, 2));
            found.push(of(Op::Mul, &of(Op::CDiv, &a, 2 * divisor), 2));
            let third = |number: i64| of(Op::FloorDiv, &of(Op::Add, &a, number), 3);
            found.push(UOp::binary(Op::Add, of(Op::FloorDiv, &a, 3), third(1)));
            found.push(third(2));
        }
        found.extend([UOp::unary(Op::Neg, dtype, a.clone()), UOp::binary(Op::Sub, b, a)]);
    }
    if let Some((low, high)) = dtype.int_range().filter(|_| dtype.is_signed()) {
        let ends = [low, high].map(|end| i64::try_from(end).unwrap_or_default());
        let v = variable(dtype, "v", ends.into());
        for [division, modulo] in [[Op::FloorDiv, Op::FloorMod], [Op::CDiv, Op::CMod]] {
            // The smallest value over -1 wraps.
            let (negative, nested) = (of(division, &v, -1), of(division, &v, -3));
            found.push(of(modulo, &negative, 3));
            found.push(of(Op::Mul, &nested, 3));
            found.push(of(Op::Mul, &of(modulo, &nested, 2), 3));
        }
    }
    found.push(constant(3));
    found
}

fn gates() -> Vec<UOp> {
    let dtype = DType::I8;
    let a = variable(dtype, "a", (0, 8));
    let b = variable(dtype, "b", (0, 3));
    let mut clauses = Vec::new();
    for node in [&a, &b] {
        for limit in [1, 3, 6] {
            let less = UOp::binary(Op::CmpLt, node.clone(), UOp::int(dtype, limit));
            clauses.extend([UOp::not(less.clone()), less]);
        }
    }
    let pairs = clauses.clone();
    for first in pairs.iter().step_by(2) {
        let chain = |second: &UOp| UOp::binary(Op::And, first.clone(), second.clone());
        clauses.extend(pairs.iter().map(chain));
    }
    clauses.push(variable(DType::Bool, "p", (0, 1)));
    clauses
}

/// Nodes for a left side that is a name alone: each elementwise op over constants and variables.
pub(super) fn any_node(dtype: DType) -> Vec<UOp> {
    let mut found = Vec::new();
    for row in OPS.iter().filter(|row| row.op.is_elementwise()) {
        let op = row.op;
        let is_right = row.operands.contains(dtype) && op != Op::Bitcast;
        if is_right && row.arity.0 == row.arity.1 {
            extend_with(&mut found, op, row.arity.0, dtype);
        }
    }
    found
}

fn extend_with(found: &mut Vec<UOp>, op: Op, arity: usize, dtype: DType) {
    let constants: Vec<UOp> = constants(dtype).into_iter().map(UOp::constant).collect();
    let mut operands: Vec<UOp> =
        constants.iter().step_by(1 + constants.len() / 9).cloned().collect();
    if dtype.is_int() {
        operands.extend([(3, 3), (0, 1), (4, 5)].map(|range| variable(dtype, "a", range)));
    }
    let tests = [true, false].map(|value| UOp::constant(Constant::bool(value)));
    for x in &operands {
        for y in &operands {
            match (op, arity) {
                (Op::Cast, _) => {
                    let to = if x == y { DType::I32 } else { DType::F32 };
                    found.push(UOp::unary(Op::Cast, to, x.clone()));
                }
                (Op::Where, _) => found.extend(
                    tests.iter().map(|test| UOp::select(test.clone(), x.clone(), y.clone())),
                ),
                (_, 1) if x == y => found.push(UOp::unary(op, dtype, x.clone())),
                (_, 2) => found.push(UOp::binary(op, x.clone(), y.clone())),
                // The product of 16-bit floats may be rounded before it is added, or not.
                (Op::MulAcc, _) if dtype.bits() == 16 && !is_exact(x, y) => {}
                (_, 3) => {
                    let src = [x.clone(), y.clone(), operands[0].clone()];
                    found.push(UOp::new(op, dtype, src, Arg::None));
                }
                _ => {}
            }
        }
    }
}

/// Returns whether the product of two floats needs no rounding; true if one is not constant.
fn is_exact(x: &UOp, y: &UOp) -> bool {
    let (Some(x), Some(y)) = (x.as_const(), y.as_const()) else { return true };
    let product = scalar::evaluate(Op::Mul, x.dtype(), &[x, y]).and_then(scalar::to_float);
    match (scalar::to_float(x), scalar::to_float(y), product) {
        (Some(x), Some(y), Some(product)) => product == x * y || product.is_nan(),
        _ => true,
    }
}

/// Stores behind gates that are open, closed or variable.
pub(super) fn stores() -> Vec<UOp> {
    let gates = [
        UOp::constant(Constant::bool(true)),
        UOp::constant(Constant::bool(false)),
        variable(DType::Bool, "p", (0, 1)),
    ];
    let address = |gate: UOp| {
        let src = [global(DType::I8, 0), variable(DType::I8, "a", (0, 8)), gate];
        UOp::new(Op::Index, DType::I8, src, Arg::None)
    };
    let store = |gate: UOp| {
        let value = variable(DType::I8, "b", (0, 3));
        UOp::new(Op::Store, DType::Void, [address(gate), value], Arg::None)
    };
    gates.map(store).to_vec()
}

/// The left side with a node for each name; `None` if an op needs more than its sources.
pub(super) fn build(
    pattern: &Pattern,
    typing: &Typing,
    types: &[Option<Type>],
    nodes: &[(usize, &UOp)],
    next: &mut usize,
) -> Option<UOp> {
    let dtype = types[typing.node(*next)]?.dtype()?;
    *next += 1;
    match pattern {
        Pattern::Any(slot) | Pattern::Constant(slot) => {
            let known = nodes.iter().find(|(known, _)| known == slot);
            known.map(|(_, node)| (*node).clone())
        }
        Pattern::Literal(literal) => Some(UOp::constant(literal.constant(dtype))),
        Pattern::Node(op, src, _) => {
            let is_of_words = *op == Op::Threefry && dtype != DType::U64;
            if is_of_words || matches!(op, Op::Range | Op::Reduce | Op::DefineAcc) {
                return None;
            }
            let mut built = Sources::new();
            for source in src {
                built.push(build(source, typing, types, nodes, next)?);
            }
            Some(UOp::new(*op, dtype, built, Arg::None))
        }
        Pattern::Reduce(..) | Pattern::Value(_) | Pattern::Computed(_) => None,
    }
}
