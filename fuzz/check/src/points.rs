//! Small expressions over variables of few values, each tried at every point: bounds hold of every
//! part, simplifying keeps the value, each application of a rule is an equation that holds, and the
//! order of nodes is one.
//!
//! In: draws. Out: the first claim of the engine that a point disproves. What the generator of
//! expressions leaves out is drawn here: divisors that may be 0, amounts that are too large,
//! indices under gates, intervals that end at 0 or at an end of the type.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

use gradiff::graph::{Arg, Constant, DType, Global, Op, UOp, Variable};
use gradiff::rewrite::{Bounds, Options, Step, Trace, bounds, rewrite, symbolic};

use crate::calls::Draw;
use crate::scalar;

/// The words that reports of this check begin with.
pub(crate) const SAID: &str = "small expression";

/// Points of an expression, at most.
const POINTS_MOST: usize = 240;
/// Points at which an application of a rule is tried, besides corners.
const TRIED: usize = 8;
/// Applications that one expression may take.
const FUEL: u64 = 2_000;
/// Levels of graphs that have two paths from each level to the next.
const LEVELS: usize = 48;

/// Values of variables by name.
type Point = HashMap<String, i128>;

/// Checks the expressions of one seed.
///
/// # Errors
/// What does not hold, in words.
pub(crate) fn check(seed: u64) -> Result<(), String> {
    let said = |what: String| format!("{SAID}, of seed {seed}: {what}");
    let draw = &mut Draw::new(seed);
    let checked = if draw.one_in(2) { gated(draw) } else { plain(draw) };
    checked.map_err(said)
}

/// Parts that are drawn one on top of the other.
struct Parts {
    dtype: DType,
    vars: Vec<UOp>,
    ints: Vec<UOp>,
    truths: Vec<UOp>,
}

impl Parts {
    fn new(draw: &mut Draw, dtype: DType, widths: &[usize]) -> Parts {
        let vars: Vec<UOp> = ["a", "b", "c"]
            .iter()
            .zip(widths)
            .map(|(name, width)| variable(draw, name, dtype, *width))
            .collect();
        Parts { dtype, ints: vars.clone(), vars, truths: Vec::new() }
    }

    fn literal(&self, draw: &mut Draw) -> UOp {
        let (low, high) = range(self.dtype);
        let value = match draw.below(12) {
            0 => low,
            1 => high,
            2 => i128::from(self.dtype.bits()) - 1,
            3 => i128::from(self.dtype.bits()),
            _ => draw.below(13) as i128 - 6,
        };
        UOp::int(self.dtype, value.clamp(low, high) as i64)
    }

    fn int(&self, draw: &mut Draw) -> UOp {
        if draw.one_in(4) {
            return self.literal(draw);
        }
        // Later parts are larger ones.
        let at = draw.below(self.ints.len()).max(draw.below(self.ints.len()));
        self.ints[at].clone()
    }

    fn truth(&self, draw: &mut Draw) -> UOp {
        if self.truths.is_empty() || draw.one_in(8) {
            return UOp::constant(Constant::bool(draw.one_in(2)));
        }
        self.truths[draw.below(self.truths.len())].clone()
    }

    /// One more part.
    fn grow(&mut self, draw: &mut Draw) {
        use Op::{
            Add, And, CDiv, CMod, CmpLt, CmpNe, FloorDiv, FloorMod, Max, Min, Mul, MulAcc, Neg, Or,
            Shl, Shr, Sub, Xor,
        };
        let ops = [
            Add, Sub, Mul, CDiv, CMod, FloorDiv, FloorMod, CDiv, CMod, FloorDiv, FloorMod, Max,
            Min, And, Or, Xor, Shl, Shr,
        ];
        let dtype = self.dtype;
        let made = match draw.below(12) {
            0 => UOp::unary(Neg, dtype, self.int(draw)),
            1 => UOp::select(self.truth(draw), self.int(draw), self.int(draw)),
            2 => {
                let src = [(); 3].map(|()| self.int(draw));
                UOp::new(MulAcc, dtype, src, Arg::None)
            }
            3 => {
                // By way of another type.
                let other = draw.pick(&[DType::I8, DType::U8, DType::I32, DType::U32, DType::I64]);
                let cast = UOp::unary(Op::Cast, other, self.int(draw));
                UOp::unary(Op::Cast, dtype, cast)
            }
            4 => UOp::unary(Op::Cast, dtype, self.truth(draw)),
            5 | 6 => {
                let op = draw.pick(&[CmpLt, CmpLt, CmpNe]);
                let truth = UOp::binary(op, self.int(draw), self.int(draw));
                return self.truths.push(truth);
            }
            7 => {
                let op = draw.pick(&[And, Or, Xor, CmpNe, CmpLt]);
                let truth = match draw.below(4) {
                    0 => UOp::not(self.truth(draw)),
                    1 => UOp::unary(Op::Cast, DType::Bool, self.int(draw)),
                    _ => UOp::binary(op, self.truth(draw), self.truth(draw)),
                };
                return self.truths.push(truth);
            }
            _ => UOp::binary(draw.pick(&ops), self.int(draw), self.int(draw)),
        };
        self.ints.push(made);
    }
}

/// Smallest and largest value of a type.
fn range(dtype: DType) -> (i128, i128) {
    let bits = scalar::bits(dtype);
    match dtype {
        DType::I8 | DType::I16 | DType::I32 | DType::I64 => {
            (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
        }
        _ => (0, (1 << bits) - 1),
    }
}

/// A variable of so many values at most, which end at 0, begin there, or lie at an end of the type.
fn variable(draw: &mut Draw, name: &str, dtype: DType, width: usize) -> UOp {
    let (low, high) = range(dtype);
    let last = draw.below(width) as i128;
    let first = match draw.below(8) {
        0 | 1 => 0,
        2 => -last,
        3 => -last - 1,
        4 => low,
        5 => high - last,
        6 => 1,
        _ => -(draw.below(width) as i128),
    };
    let highest = i128::from(i64::MAX);
    let min = first.clamp(low, high.min(highest) - last) as i64;
    let variable = Variable { name: name.to_string(), min, max: min + last as i64 };
    UOp::new(Op::DefineVar, dtype, [], Arg::Var(Arc::new(variable)))
}

/// All points of the variables.
fn all_points(vars: &[UOp]) -> Vec<Point> {
    let mut points = vec![Point::new()];
    for var in vars {
        let Arg::Var(variable) = var.arg() else { continue };
        let with = |point: &Point| {
            let set = |value: i64| {
                let mut point = point.clone();
                point.insert(variable.name.clone(), value.into());
                point
            };
            (variable.min..=variable.max).map(set).collect::<Vec<Point>>()
        };
        points = points.iter().flat_map(with).collect();
    }
    points.truncate(POINTS_MOST);
    points
}

/// The value of each node at a point, by its place in the order; `None` where it has none.
fn values(order: &[UOp], point: &Point) -> Vec<Option<Constant>> {
    let places: HashMap<&UOp, usize> = order.iter().zip(0..).collect();
    let mut values: Vec<Option<Constant>> = Vec::with_capacity(order.len());
    for node in order {
        let source =
            |number: usize| node.src().get(number).and_then(|source| values[places[source]]);
        let value = match (node.op(), node.arg()) {
            (Op::Const, Arg::Const(value)) => Some(*value),
            (Op::DefineVar, Arg::Var(variable)) => {
                point.get(&variable.name).and_then(|value| scalar::int(node.dtype(), *value))
            }
            (Op::Where, _) => source(0)
                .and_then(|condition| source(if scalar::is_true(condition) { 1 } else { 2 })),
            (op, _) if op.is_elementwise() => {
                let operands: Option<Vec<Constant>> = (0..node.src().len()).map(source).collect();
                operands.and_then(|operands| scalar::evaluate(op, node.dtype(), &operands))
            }
            _ => None,
        };
        values.push(value);
    }
    values
}

fn value(node: &UOp, point: &Point) -> Option<Constant> {
    values(&node.toposort(), point).pop().flatten()
}

/// A part is drawn, then its bounds, its simplified form and its order beside others are checked.
fn plain(draw: &mut Draw) -> Result<(), String> {
    let types = [
        DType::I32,
        DType::I32,
        DType::I8,
        DType::U8,
        DType::I16,
        DType::U16,
        DType::U32,
        DType::I64,
        DType::U64,
    ];
    let dtype = draw.pick(&types);
    let count = 1 + draw.below(3);
    let mut parts = Parts::new(draw, dtype, &[6, 6, 5][..count]);
    for _ in 0..2 + draw.below(9) {
        parts.grow(draw);
    }
    ordered(draw, &parts)?;
    let last = parts.ints.last().cloned().expect("a variable");
    let root = match parts.truths.last() {
        Some(truth) if draw.one_in(3) => truth.clone(),
        _ => last,
    };
    let order = root.toposort();
    let points = all_points(&parts.vars);
    let mut known = Bounds::default();
    let claims: Vec<(i128, i128)> = order.iter().map(|node| known.of(node)).collect();
    if bounds(&root) != *claims.last().expect("a root") && order.len() < 64 {
        return Err(format!("bounds of {root:?} depend on what was asked before"));
    }
    let simple = simplified(draw, &root)?;
    for point in &points {
        let values = values(&order, point);
        for ((node, value), (low, high)) in order.iter().zip(&values).zip(&claims) {
            let Some(value) = value.and_then(scalar::to_int) else { continue };
            if value < *low || *high < value {
                let text = gradiff::graph::infix(node);
                return Err(format!("{text} is {value} at {point:?}, not among {low} to {high}"));
            }
        }
        let Some(expected) = values.last().copied().flatten() else { continue };
        let found = value(&simple, point);
        if found != Some(expected) {
            return Err(differ(&root, &simple, point, Some(expected), found));
        }
    }
    Ok(())
}

fn differ(
    from: &UOp,
    to: &UOp,
    point: &Point,
    expected: Option<Constant>,
    found: Option<Constant>,
) -> String {
    let (from, to) = (gradiff::graph::infix(from), gradiff::graph::infix(to));
    format!("{from} became {to}: {found:?} instead of {expected:?} at {point:?}")
}

/// The simplified node. Each application is counted, kept, and an equation that holds.
fn simplified(draw: &mut Draw, root: &UOp) -> Result<UOp, String> {
    let options = Options { fuel: Some(FUEL), ..Options::default() };
    let mut trace = Trace::with_steps();
    let simple = rewrite(root, &symbolic(), &options, &mut trace);
    let steps = trace.steps.as_deref().ok_or("a trace with steps keeps none")?;
    let counted: u64 = trace.counts.values().sum();
    if steps.len() as u64 != trace.applied || counted != trace.applied {
        return Err(format!(
            "{} steps of {} applications, {counted} by rule",
            steps.len(),
            trace.applied
        ));
    }
    if simple != *root && steps.is_empty() {
        return Err(format!("{root:?} became {simple:?} by no step"));
    }
    for Step { rule, before, after, .. } in steps {
        if before == after {
            return Err(format!("a step of {rule} changes nothing"));
        }
        holds(draw, before, after).map_err(|what| format!("a step of {rule}: {what}"))?;
    }
    Ok(simple)
}

/// Whether two nodes have one value wherever the first has one: at some points of the variables
/// that are in them, which may be other ones than those that were drawn.
fn holds(draw: &mut Draw, before: &UOp, after: &UOp) -> Result<(), String> {
    let orders = [before.toposort(), after.toposort()];
    let mut variables: HashMap<String, (i64, i64)> = HashMap::new();
    for node in orders.iter().flatten() {
        if let Arg::Var(variable) = node.arg() {
            let limits = (variable.min, variable.max);
            variables.insert(variable.name.clone(), limits);
        }
    }
    let mut names: Vec<(&String, &(i64, i64))> = variables.iter().collect();
    names.sort();
    for number in 0..TRIED {
        let mut point = Point::new();
        for (name, (min, max)) in &names {
            let last = max.wrapping_sub(*min) as u64;
            let bits = draw.bits();
            let step = match (number, draw.below(4)) {
                (0, _) => 0,
                (1, _) => last,
                (_, 0) => last.min(bits % 3),
                _ => last.checked_add(1).map_or(bits, |of| bits % of),
            };
            point.insert((*name).clone(), min.wrapping_add(step as i64).into());
        }
        let [expected, found] = [0, 1].map(|at| values(&orders[at], &point).pop().flatten());
        if expected.is_some() && found != expected {
            return Err(differ(before, after, &point, expected, found));
        }
    }
    Ok(())
}

/// An index under a gate of limits: what comes out has the gate's value, and the index's where the
/// gate holds.
fn gated(draw: &mut Draw) -> Result<(), String> {
    let widths = draw.pick(&[[40, 5, 1], [24, 6, 1]]);
    let mut parts = Parts::new(draw, DType::I32, &widths);
    if draw.one_in(3) {
        // Of values without an opposite, divisors stay negative.
        let (low, last) = (i64::from(i32::MIN), draw.below(40) as i64);
        let variable = Variable { name: "a".to_string(), min: low, max: low + last };
        parts.vars[0] = UOp::new(Op::DefineVar, DType::I32, [], Arg::Var(Arc::new(variable)));
        parts.ints[0] = parts.vars[0].clone();
    }
    let x = parts.vars[0].clone();
    let signed = |draw: &mut Draw, value: i64| if draw.one_in(2) { -value } else { value };
    let count = 2 + draw.below(3) as i64;
    let size = 2 + draw.below(4) as i64;
    let [count, size] = [count, size].map(|value| signed(draw, value));
    let literal = |value: i64| UOp::int(DType::I32, value);
    let rest = UOp::binary(Op::FloorMod, x.clone(), literal(count * size));
    let quotient = UOp::binary(Op::FloorDiv, x.clone(), literal(size));
    let digit = UOp::binary(Op::FloorMod, quotient.clone(), literal(count));
    if draw.one_in(3) {
        let own = UOp::binary(Op::Add, x.clone(), parts.vars[1].clone());
        parts.ints.push(own);
    }
    parts.ints.extend([rest.clone(), quotient, digit.clone()]);
    for _ in 0..draw.below(4) {
        parts.grow(draw);
    }
    // Limits of parts that the index is made of, mostly near an end of the remainder.
    let clause = |draw: &mut Draw| {
        let at = draw.below(parts.ints.len().min(6));
        let of = if draw.one_in(2) { rest.clone() } else { parts.ints[at].clone() };
        let other = draw.below(9) as i64 - 4;
        let from = draw.pick(&[0, count * size, count * size, other]);
        let limit = from + draw.below(2 * size.unsigned_abs() as usize) as i64 - size.abs();
        let less = UOp::binary(Op::CmpLt, of, literal(limit + i64::from(draw.one_in(2))));
        if draw.one_in(2) { UOp::not(less) } else { less }
    };
    let clauses: Vec<UOp> = (0..1 + draw.below(3)).map(|_| clause(draw)).collect();
    let gate = clauses.into_iter().reduce(|x, y| UOp::binary(Op::And, x, y)).expect("a clause");
    let index = if draw.one_in(2) { parts.int(draw) } else { digit };
    let index = match draw.below(3) {
        0 => UOp::binary(Op::Add, index, parts.vars[1].clone()),
        1 => UOp::binary(Op::FloorDiv, index, literal(2)),
        _ => index,
    };
    let arg = Arg::Global(Global { slot: 0, size_elements: 1 << 20 });
    let array = UOp::new(Op::DefineGlobal, DType::F32, [], arg);
    let node = UOp::new(Op::Index, DType::F32, [array, index, gate], Arg::None);
    let simple = simplified(draw, &node)?;
    if simple.op() != Op::Index {
        return Err(format!("{node:?} became {simple:?}, which is no index"));
    }
    let yes = Constant::bool(true);
    for point in all_points(&parts.vars) {
        let Some(open) = value(&node.src()[2], &point) else { continue };
        let found = simple.src().get(2).map_or(Some(yes), |gate| value(gate, &point));
        if found != Some(open) {
            return Err(format!("the gate: {}", differ(&node, &simple, &point, Some(open), found)));
        }
        let [expected, found] = [&node, &simple].map(|node| value(&node.src()[1], &point));
        if scalar::is_true(open) && expected.is_some() && found != expected {
            return Err(differ(&node, &simple, &point, expected, found));
        }
    }
    Ok(())
}

/// The order of nodes is total, depends on the first difference of those that say the same besides,
/// and takes no longer for graphs of many paths.
fn ordered(draw: &mut Draw, parts: &Parts) -> Result<(), String> {
    let any = |draw: &mut Draw| parts.ints[draw.below(parts.ints.len())].clone();
    let [a, b, c] = [(); 3].map(|()| any(draw));
    let of = |x: &UOp, y: &UOp| x.structural_cmp(y);
    let says = |what: &str| Err(format!("order of {a:?}, {b:?}, {c:?}: {what}"));
    if of(&a, &b) != of(&b, &a).reverse() || (of(&a, &b) == Ordering::Equal) != (a == b) {
        return says("not of two");
    }
    let mut sorted = [&a, &b, &c];
    sorted.sort_by(|x, y| of(x, y));
    if of(sorted[0], sorted[2]) == Ordering::Greater {
        return says("not of three");
    }
    // Two paths from each level to the next, and a difference at the end alone.
    let doubled = |leaf: &UOp| {
        let twice = |node: UOp| UOp::binary(Op::Add, node.clone(), node);
        (0..LEVELS).fold(leaf.clone(), |node, _| twice(node))
    };
    let pair = |x: UOp, y: &UOp| UOp::binary(Op::Add, x, y.clone());
    let (deep, other) = (doubled(&a), doubled(&b));
    let behind = [pair(deep.clone(), &b), pair(deep.clone(), &c)];
    if of(&behind[0], &behind[1]) != of(&b, &c) {
        return says("not of what comes second");
    }
    let before = [pair(deep.clone(), &c), pair(other.clone(), &b)];
    let expected = of(&a, &b).then(of(&c, &b));
    if of(&deep, &other) != of(&a, &b) || of(&before[0], &before[1]) != expected {
        return says("not of what comes first");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_expressions_are_what_the_engine_says() {
        for seed in 0..4000 {
            check(seed).unwrap_or_else(|what| panic!("{what}"));
        }
    }
}
