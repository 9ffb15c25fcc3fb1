//! Small expressions over variables of few values, each tried at every point: the bounds of every
//! part hold, simplifying keeps the value, each application of a rule is an equation that holds,
//! and the order of nodes is total.
//!
//! In: draws. Out: the first claim of the engine that a point disproves. This draws what the
//! generator of expressions leaves out: divisors that may be 0, shift amounts that are too large,
//! indices under gates, intervals that end at 0 or at a limit of the type.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

use gradiff::graph::{Arg, Axis, AxisKind, Constant, DType, Dims, Global, Op, UOp, Variable};
use gradiff::rewrite::{Bounds, Options, Step, Trace, bounds, rewrite, symbolic};
use gradiff_eval::point::{Limits, Tape};
use gradiff_eval::scalar;

use crate::checks::calls::Draw;

/// Prefix of this check's reports.
pub(crate) const SAID: &str = "small expression";

/// Maximal number of points of an expression.
const POINTS_MAX: usize = 240;
/// Maximal number of iterations of a range.
const ITERATIONS_MAX: i128 = 6;
/// Number of points at which an application of a rule is tried.
const STEP_POINTS: usize = 8;
/// Maximal number of rule applications for one expression.
const FUEL: u64 = 2_000;
/// Number of seeds whose nodes are compared before a crate is blamed.
const SEEDS_OF_BLAME: u64 = 200;
/// Number of levels of graphs that have two paths from each level to the next.
const LEVELS: usize = 48;

/// Values of variables by name.
type Point = HashMap<String, i128>;

/// Checks the expressions of one seed.
///
/// # Errors
/// A description of what does not hold.
pub(crate) fn check(seed: u64) -> Result<(), String> {
    let report = |problem: String| format!("{SAID}, of seed {seed}: {problem}");
    let draw = &mut Draw::new(seed);
    let checked = if draw.one_in(2) { gated(draw) } else { plain(draw) };
    checked.map_err(report)
}

/// The first of many claims about the order of nodes that does not hold: if there is one, nothing
/// that sorts nodes can be judged.
pub(crate) fn wrong_order() -> Option<String> {
    (0..SEEDS_OF_BLAME).find_map(|seed| {
        let draw = &mut Draw::new(seed);
        let checked = crate::catch(|| {
            let mut parts = Parts::new(draw, DType::I32, &[2, 3, 2]);
            (0..4).for_each(|_| parts.grow(draw));
            ordered(draw, &parts)
        });
        checked.and_then(|checked| checked).err()
    })
}

/// Parts of an expression, each drawn from the parts before it.
struct Parts {
    dtype: DType,
    vars: Vec<UOp>,
    /// Number of ranges of reductions so far.
    range_count: i64,
    ints: Vec<UOp>,
    bools: Vec<UOp>,
}

impl Parts {
    fn new(draw: &mut Draw, dtype: DType, widths: &[usize]) -> Parts {
        let vars: Vec<UOp> = ["a", "b", "c"]
            .iter()
            .zip(widths)
            .map(|(name, width)| variable(draw, name, dtype, *width))
            .collect();
        Parts { dtype, range_count: 0, ints: vars.clone(), vars, bools: Vec::new() }
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
        // Later parts are larger.
        let at = draw.below(self.ints.len()).max(draw.below(self.ints.len()));
        self.ints[at].clone()
    }

    fn bool(&self, draw: &mut Draw) -> UOp {
        if self.bools.is_empty() || draw.one_in(8) {
            return UOp::constant(Constant::bool(draw.one_in(2)));
        }
        self.bools[draw.below(self.bools.len())].clone()
    }

    /// A reduction over one or two ranges of few iterations, or of as many as a variable says.
    fn reduction(&mut self, draw: &mut Draw) -> UOp {
        let mut ranges = Vec::new();
        for _ in 0..1 + draw.below(2) {
            let end = match draw.below(4) {
                0 => self.vars[draw.below(self.vars.len())].clone(),
                _ => UOp::int(self.dtype, draw.below(4) as i64),
            };
            let axis = Arg::Axis(Axis { kind: AxisKind::Loop, number: self.range_count });
            self.range_count += 1;
            ranges.push(UOp::new(Op::Range, self.dtype, [end], axis));
        }
        let mut body = self.int(draw);
        for range in &ranges {
            if !draw.one_in(3) {
                let op = draw.pick(&[Op::Add, Op::Sub, Op::Mul, Op::Max]);
                body = UOp::binary(op, body, range.clone());
            }
        }
        let op = draw.pick(&[Op::Add, Op::Add, Op::Max, Op::Mul]);
        let src = std::iter::once(body).chain(ranges);
        UOp::new(Op::Reduce, self.dtype, src, Arg::Reduce(op, Dims::default()))
    }

    /// Adds a part.
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
        let int = match draw.below(13) {
            8 => self.reduction(draw),
            0 => UOp::unary(Neg, dtype, self.int(draw)),
            1 => UOp::select(self.bool(draw), self.int(draw), self.int(draw)),
            2 => {
                let src = [(); 3].map(|()| self.int(draw));
                UOp::new(MulAcc, dtype, src, Arg::None)
            }
            3 => {
                // A cast to another type and back.
                let between =
                    draw.pick(&[DType::I8, DType::U8, DType::I32, DType::U32, DType::I64]);
                let cast = UOp::unary(Op::Cast, between, self.int(draw));
                UOp::unary(Op::Cast, dtype, cast)
            }
            4 => UOp::unary(Op::Cast, dtype, self.bool(draw)),
            5 | 6 => {
                let op = draw.pick(&[CmpLt, CmpLt, CmpNe]);
                let bool = UOp::binary(op, self.int(draw), self.int(draw));
                return self.bools.push(bool);
            }
            7 => {
                let op = draw.pick(&[And, Or, Xor, CmpNe, CmpLt]);
                let bool = match draw.below(4) {
                    0 => UOp::not(self.bool(draw)),
                    1 => UOp::unary(Op::Cast, DType::Bool, self.int(draw)),
                    _ => UOp::binary(op, self.bool(draw), self.bool(draw)),
                };
                return self.bools.push(bool);
            }
            _ => UOp::binary(draw.pick(&ops), self.int(draw), self.int(draw)),
        };
        self.ints.push(int);
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

/// A variable of at most `width` values, which end at 0, begin there, or lie at a limit of the
/// type.
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

/// All points of the variables, up to the limit.
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
    points.truncate(POINTS_MAX);
    points
}

/// A tape of two nodes, and their positions.
fn laid_out(roots: [&UOp; 2]) -> (Tape, [usize; 2]) {
    let tape = Tape::new(&roots, Limits { iterations: ITERATIONS_MAX, ..Limits::default() });
    let positions = roots.map(|root| tape.position(root).expect("a root of the tape"));
    (tape, positions)
}

/// Evaluates the tape where its variables have the values of a point.
fn evaluate(tape: &mut Tape, point: &Point) {
    for leaf in tape.leaves() {
        let node = &tape.nodes()[leaf];
        if let Arg::Var(variable) = node.arg() {
            let value = point.get(&variable.name);
            tape.set(leaf, value.and_then(|value| scalar::int(node.dtype(), *value)));
        }
    }
    tape.run(&|dtype, _, _| scalar::zero(dtype));
}

fn value(node: &UOp, point: &Point) -> Option<Constant> {
    let (mut tape, [position, _]) = laid_out([node, node]);
    evaluate(&mut tape, point);
    tape.value(position).element()
}

/// Draws an expression and checks its bounds, its simplified form and the order of its parts.
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
    let root = match parts.bools.last() {
        Some(bool) if draw.one_in(3) => bool.clone(),
        _ => last,
    };
    let order = root.toposort();
    let points = all_points(&parts.vars);
    let mut known = Bounds::default();
    let claims: Vec<(i128, i128)> = order.iter().map(|node| known.of(node)).collect();
    if bounds(&root) != *claims.last().expect("a root") && order.len() < 64 {
        return Err(format!("bounds of {root:?} depend on earlier queries"));
    }
    let simple = simplified(draw, &root)?;
    let (mut tape, [first, second]) = laid_out([&root, &simple]);
    for point in &points {
        evaluate(&mut tape, point);
        for (node, claim) in order.iter().zip(&claims) {
            let value = tape.position(node).and_then(|position| tape.value(position).element());
            within(node, *claim, value, point)?;
        }
        let Some(expected) = tape.value(first).element() else { continue };
        let found = tape.value(second).element();
        if found != Some(expected) {
            return Err(differ(&root, &simple, point, Some(expected), found));
        }
    }
    let has_range = |node: &UOp| node.toposort().iter().any(|inner| inner.op() == Op::Range);
    let mut ranged = order.iter().zip(&claims).filter(|(node, _)| has_range(node));
    ranged.try_for_each(|(node, claim)| varying(node, *claim, &points))
}

/// Checks that a value, if there is one, is within the bounds of its node.
fn within(
    node: &UOp,
    (low, high): (i128, i128),
    value: Option<Constant>,
    point: &Point,
) -> Result<(), String> {
    match value.and_then(scalar::to_int) {
        Some(value) if value < low || high < value => {
            let text = gradiff::graph::text::infix(node);
            Err(format!("{text} is {value} at {point:?}, outside its bounds {low} to {high}"))
        }
        _ => Ok(()),
    }
}

/// Checks the bounds of a node that varies along ranges, in iterations of them: the first ones and
/// the last one, in all combinations over a few points.
fn varying(node: &UOp, claim: (i128, i128), points: &[Point]) -> Result<(), String> {
    let (mut tape, [position, _]) = laid_out([node, node]);
    let mut ranges = tape.leaves();
    ranges.retain(|leaf| tape.nodes()[*leaf].op() == Op::Range);
    if ranges.is_empty() {
        return Ok(());
    }
    for (number, point) in points.iter().enumerate() {
        evaluate(&mut tape, point);
        let iterations = |range: &usize| -> Vec<i128> {
            let end = tape.value(tape.src(*range)[0]).element().and_then(scalar::to_int);
            let end = end.unwrap_or(0);
            let first = 0..end.min(ITERATIONS_MAX);
            first.chain((ITERATIONS_MAX < end).then(|| end - 1)).collect()
        };
        let lists: Vec<Vec<i128>> = ranges.iter().map(iterations).collect();
        let count: usize = lists.iter().map(Vec::len).product();
        // As many in all as there are points at most.
        let tried = (POINTS_MAX / points.len()).clamp(1, count.max(1));
        for turn in (0..tried).filter(|_| 0 < count) {
            let mut rest = number * tried + turn;
            for (range, list) in ranges.iter().zip(&lists) {
                let counter = scalar::int(tape.nodes()[*range].dtype(), list[rest % list.len()]);
                tape.set(*range, counter);
                rest /= list.len();
            }
            tape.run(&|dtype, _, _| scalar::zero(dtype));
            within(node, claim, tape.value(position).element(), point)?;
        }
    }
    Ok(())
}

/// Reports that rewriting changed a value.
fn differ(
    from: &UOp,
    to: &UOp,
    point: &Point,
    expected: Option<Constant>,
    found: Option<Constant>,
) -> String {
    let (from, to) = (gradiff::graph::text::infix(from), gradiff::graph::text::infix(to));
    format!("{from} became {to}: {found:?} instead of {expected:?} at {point:?}")
}

/// Simplifies the node and checks that each application is counted, recorded, and an equation that
/// holds.
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
        holds(draw, before, after).map_err(|problem| format!("a step of {rule}: {problem}"))?;
    }
    Ok(simple)
}

/// Checks that two nodes have the same value wherever the first is defined, at some points of their
/// variables, which may differ from the drawn ones.
fn holds(draw: &mut Draw, before: &UOp, after: &UOp) -> Result<(), String> {
    let (mut tape, positions) = laid_out([before, after]);
    let mut variables: HashMap<String, (i64, i64)> = HashMap::new();
    for node in tape.nodes() {
        if let Arg::Var(variable) = node.arg() {
            let limits = (variable.min, variable.max);
            variables.insert(variable.name.clone(), limits);
        }
    }
    let mut names: Vec<(&String, &(i64, i64))> = variables.iter().collect();
    names.sort();
    for number in 0..STEP_POINTS {
        let mut point = Point::new();
        for (name, (min, max)) in &names {
            let last = max.wrapping_sub(*min) as u64;
            let bits = draw.bits();
            let offset = match (number, draw.below(4)) {
                (0, _) => 0,
                (1, _) => last,
                (_, 0) => last.min(bits % 3),
                _ => last.checked_add(1).map_or(bits, |count| bits % count),
            };
            point.insert((*name).clone(), min.wrapping_add(offset as i64).into());
        }
        evaluate(&mut tape, &point);
        let [expected, found] = positions.map(|position| tape.value(position).element());
        if expected.is_some() && found != expected {
            return Err(differ(before, after, &point, expected, found));
        }
    }
    Ok(())
}

/// Draws an index under a gate of comparisons and checks that simplifying keeps the gate's value,
/// and the index's where the gate holds.
fn gated(draw: &mut Draw) -> Result<(), String> {
    let widths = draw.pick(&[[40, 5, 1], [24, 6, 1]]);
    let mut parts = Parts::new(draw, DType::I32, &widths);
    if draw.one_in(3) {
        // The smallest value has no opposite: divisors stay negative.
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
        let sum = UOp::binary(Op::Add, x.clone(), parts.vars[1].clone());
        parts.ints.push(sum);
    }
    parts.ints.extend([rest.clone(), quotient, digit.clone()]);
    for _ in 0..draw.below(4) {
        parts.grow(draw);
    }
    // Compares a part of the index with a limit, mostly near an end of the remainder.
    let clause = |draw: &mut Draw| {
        let at = draw.below(parts.ints.len().min(6));
        let part = if draw.one_in(2) { rest.clone() } else { parts.ints[at].clone() };
        let small = draw.below(9) as i64 - 4;
        let from = draw.pick(&[0, count * size, count * size, small]);
        let limit = from + draw.below(2 * size.unsigned_abs() as usize) as i64 - size.abs();
        let less = UOp::binary(Op::CmpLt, part, literal(limit + i64::from(draw.one_in(2))));
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
        return Err(format!("{node:?} became {simple:?}, which is not an index"));
    }
    let always = Constant::bool(true);
    for point in all_points(&parts.vars) {
        let Some(open) = value(&node.src()[2], &point) else { continue };
        let found = simple.src().get(2).map_or(Some(always), |gate| value(gate, &point));
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

/// Checks that the order of nodes is total, that nodes which are equal otherwise are ordered by
/// their first difference, and that graphs of many paths take no longer.
fn ordered(draw: &mut Draw, parts: &Parts) -> Result<(), String> {
    let any = |draw: &mut Draw| parts.ints[draw.below(parts.ints.len())].clone();
    let [a, b, c] = [(); 3].map(|()| any(draw));
    let compare = |x: &UOp, y: &UOp| x.structural_cmp(y);
    let fail = |problem: &str| Err(format!("order of {a:?}, {b:?}, {c:?}: {problem}"));
    let (forward, backward) = (compare(&a, &b), compare(&b, &a));
    if forward != backward.reverse() || (forward == Ordering::Equal) != (a == b) {
        return fail("not antisymmetric, or equal for different nodes");
    }
    let mut sorted = [&a, &b, &c];
    sorted.sort_by(|x, y| compare(x, y));
    if compare(sorted[0], sorted[2]) == Ordering::Greater {
        return fail("not transitive");
    }
    // Two paths from each level to the next, and a difference at the end alone.
    let doubled = |leaf: &UOp| {
        let twice = |node: UOp| UOp::binary(Op::Add, node.clone(), node);
        (0..LEVELS).fold(leaf.clone(), |node, _| twice(node))
    };
    let pair = |x: UOp, y: &UOp| UOp::binary(Op::Add, x, y.clone());
    let (deep_a, deep_b) = (doubled(&a), doubled(&b));
    let second_differs = [pair(deep_a.clone(), &b), pair(deep_a.clone(), &c)];
    if compare(&second_differs[0], &second_differs[1]) != compare(&b, &c) {
        return fail("not decided by the second source");
    }
    let both_differ = [pair(deep_a.clone(), &c), pair(deep_b.clone(), &b)];
    let expected = compare(&a, &b).then(compare(&c, &b));
    if compare(&deep_a, &deep_b) != compare(&a, &b)
        || compare(&both_differ[0], &both_differ[1]) != expected
    {
        return fail("not decided by the first source");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_nodes_holds() {
        assert_eq!(wrong_order(), None);
    }

    #[test]
    fn bounds_hold_in_all_iterations() {
        let variable = Variable { name: "a".to_string(), min: 0, max: 3 };
        let a = UOp::new(Op::DefineVar, DType::I32, [], Arg::Var(Arc::new(variable)));
        let axis = Arg::Axis(Axis { kind: AxisKind::Loop, number: 0 });
        let range = UOp::new(Op::Range, DType::I32, [a.clone()], axis);
        let product = UOp::binary(Op::Mul, range, UOp::int(DType::I32, 5));
        let points = all_points(&[a]);
        assert_eq!(varying(&product, (0, 10), &points), Ok(()));
        for claim in [(1, 10), (0, 9)] {
            assert!(varying(&product, claim, &points).is_err(), "{claim:?}");
        }
        // Inside the sum alone it varies.
        let src = [product.clone(), product.src()[0].clone()];
        let sum = UOp::new(Op::Reduce, DType::I32, src, Arg::Reduce(Op::Add, Dims::default()));
        assert_eq!(varying(&sum, (0, 0), &points), Ok(()));
    }

    #[test]
    fn claims_about_small_expressions_hold() {
        for seed in 0..4000 {
            check(seed).unwrap_or_else(|problem| panic!("{problem}"));
        }
    }
}
