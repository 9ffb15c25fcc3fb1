//! Every row about reductions, checked: left sides over drawn nodes of 8 and more bits, both sides
//! compared at drawn points wherever the rule fires. Picked loads are checked where kernels are.

use gradiff_graph::{Arg, Constant, DType, Op, Sources, UOp, Variable, evaluate, infix};
use gradiff_rewrite::syntax::ParsedRule;
use gradiff_rewrite::{Claim, Rule, RuleSet};
use rustc_hash::FxHashMap;

use super::CounterExample;

/// Numbers from a seed: splitmix64.
struct Random(u64);

impl Random {
    fn below(&mut self, count: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((bits ^ (bits >> 31)) % count as u64) as usize
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

/// The type of ranges and of what is compared with them.
const INDEX: DType = DType::I8;

fn range(axis: i64, end: i64) -> UOp {
    UOp::new(Op::Range, INDEX, [UOp::int(INDEX, end)], Arg::plain_axis(axis))
}

fn variable(random: &mut Random, dtype: DType) -> UOp {
    let (low, high) = match dtype.int_range() {
        Some((low, high)) => (low as i64, i64::try_from(high).unwrap_or(i64::MAX)),
        None => (0, 0),
    };
    let ends = [(low, low.max(-3).min(low + 140)), (high - 40, high)];
    let (min, max) = match random.below(6) {
        0 | 1 => random.pick(&ends),
        _ => random.pick(&[(low, high), (low.max(-3), 4), (low.max(-20), 30), (0, 9)]),
    };
    let name = format!("v{}", random.below(2));
    UOp::new(Op::DefineVar, dtype, Sources::new(), Arg::Var(Variable { name, min, max }.into()))
}

struct Drawn<'a> {
    random: &'a mut Random,
    ranges: [UOp; 2],
}

impl Drawn<'_> {
    fn node(&mut self, dtype: DType) -> UOp {
        match dtype {
            DType::Bool => self.truth(),
            _ if dtype.is_float() => self.float(dtype),
            _ => self.int(dtype, 2),
        }
    }

    fn int(&mut self, dtype: DType, depth: usize) -> UOp {
        let chosen = self.random.below(if depth == 0 { 3 } else { 7 });
        match chosen {
            0 => UOp::int(dtype, self.random.pick(&[0, 1, 2, 3, 7, 100])),
            1 => variable(self.random, dtype),
            2 | 3 => {
                let range = self.ranges[self.random.pick(&[0, 0, 0, 1])].clone();
                if dtype == INDEX { range } else { UOp::unary(Op::Cast, dtype, range) }
            }
            4 => {
                let factor = UOp::int(dtype, self.random.pick(&[-3, -2, -1, 2, 3, 5]));
                UOp::binary(Op::Mul, self.int(dtype, depth - 1), factor)
            }
            5 => {
                let (x, y) = (self.int(dtype, depth - 1), self.int(dtype, depth - 1));
                UOp::binary(Op::Add, x, y)
            }
            _ => {
                let (x, y) = (self.int(dtype, depth - 1), self.int(dtype, depth - 1));
                UOp::binary(self.random.pick(&[Op::Xor, Op::Max, Op::Mul]), x, y)
            }
        }
    }

    fn float(&mut self, dtype: DType) -> UOp {
        let value = self.random.pick(&[0.0, -0.0, 1.0, 2.5, -7.25, f64::NAN, f64::INFINITY]);
        match self.random.below(3) {
            0 => UOp::constant(Constant::float(dtype, value)),
            1 => UOp::unary(Op::Cast, dtype, self.int(INDEX, 1)),
            _ => variable(self.random, dtype),
        }
    }

    fn truth(&mut self) -> UOp {
        let (x, y) = (self.int(INDEX, 1), self.int(INDEX, 1));
        let op = self.random.pick(&[Op::CmpLt, Op::CmpNe, Op::CmpNe]);
        let truth = UOp::binary(op, x, y);
        match self.random.below(4) {
            0 => UOp::binary(Op::And, truth, UOp::not(self.truth())),
            1 => UOp::not(truth),
            2 => UOp::binary(Op::Or, truth, self.truth()),
            _ => truth,
        }
    }
}

/// The value of a node, ranges and variables having the values given; `None` if it is undefined.
fn value(node: &UOp, given: &mut FxHashMap<UOp, Constant>) -> Option<Constant> {
    if let Some(known) = node.as_const().or_else(|| given.get(node).copied()) {
        return Some(known);
    }
    if let (Op::Reduce, Arg::Reduce(op, _)) = (node.op(), node.arg()) {
        let dtype = node.dtype();
        let start = match op {
            Op::Add => Constant::zero(dtype),
            Op::Mul => Constant::one(dtype),
            _ => Constant::smallest(dtype),
        };
        return folded(*op, node, &node.src()[1..], start, given);
    }
    if node.op() == Op::Where {
        let chosen = if value(&node.src()[0], given)?.is_true() { 1 } else { 2 };
        return value(&node.src()[chosen], given);
    }
    let src: Option<Vec<Constant>> = node.src().iter().map(|source| value(source, given)).collect();
    evaluate(node.op(), node.dtype(), &src?)
}

/// Trip count of a range.
fn size(range: &UOp) -> Option<i128> {
    range.src().first()?.as_int().map(|end| end.max(0))
}

fn folded(
    op: Op,
    reduction: &UOp,
    ranges: &[UOp],
    start: Constant,
    given: &mut FxHashMap<UOp, Constant>,
) -> Option<Constant> {
    let [range, ranges @ ..] = ranges else {
        return evaluate(op, reduction.dtype(), &[start, value(&reduction.src()[0], given)?]);
    };
    let outer = given.remove(range);
    let mut sum = start;
    for step in 0..size(range)? {
        given.insert(range.clone(), Constant::int(range.dtype(), step));
        sum = folded(op, reduction, ranges, sum, given)?;
    }
    given.remove(range);
    outer.map(|outer| given.insert(range.clone(), outer));
    Some(sum)
}

fn point(random: &mut Random, variable: &UOp) -> Constant {
    let Arg::Var(limits) = variable.arg() else { return Constant::zero(variable.dtype()) };
    if variable.dtype().is_float() {
        let value = random.pick(&[0.0, -0.0, 1.0, 3.5, f64::NAN, f64::NEG_INFINITY, 1e30]);
        return Constant::float(variable.dtype(), value);
    }
    let (min, max) = (i128::from(limits.min), i128::from(limits.max));
    let inside = min + random.below((max - min).min(1 << 20) as usize + 1) as i128;
    Constant::int(variable.dtype(), random.pick(&[min, max, inside, inside, inside]))
}

fn is_as_claimed(claim: Claim, left: Constant, right: Constant) -> bool {
    match (left.to_float(), right.to_float()) {
        (Some(x), Some(y)) if x.is_nan() => y.is_nan(),
        (Some(x), Some(y)) if claim != Claim::Bits => {
            x == y || (x - y).abs() <= 1e-5 * x.abs().max(y.abs())
        }
        _ => left == right,
    }
}

/// The dtype of a name in a rule about results of `dtype`.
fn dtype_of(rule: &Rule, name: &str, dtype: DType) -> DType {
    match name {
        "s" => DType::Bool,
        "x" | "y" | "z" if rule.lhs.contains("cmplt") => INDEX,
        _ => dtype,
    }
}

/// Count of points at which each left side is tried.
pub(super) const POINTS: usize = 6;

/// Count of left sides that the rule applied to.
///
/// # Errors
/// The first point at which the sides differ.
pub(super) fn check(rule: &ParsedRule, set: &RuleSet) -> Result<usize, Box<CounterExample>> {
    let row = rule.row;
    let random = &mut Random(1);
    let mut fired = 0;
    for _ in 0..20_000 {
        let dtype = random.pick(&[DType::I8, DType::U8, DType::I32, DType::F32]);
        let steps = random.pick(&[1, 2, 3, 3, 4, 5, 9, 0]);
        let ranges = [range(0, steps), range(1, random.pick(&[1, 3]))];
        let mut drawn = Drawn { random, ranges: ranges.clone() };
        let nodes: Vec<UOp> = rule
            .left_names()
            .map(|slot| match rule.name(slot) {
                "r" => ranges[0].clone(),
                name if name.starts_with('c') => UOp::int(dtype, drawn.random.pick(&[1, 2, 3, -2])),
                name => drawn.node(dtype_of(&row, name, dtype)),
            })
            .collect();
        let Some(one) = rule.build_left(dtype, &nodes) else { continue };
        if gradiff_graph::verify(&one).is_err() {
            continue;
        }
        // Sometimes a reduction over both ranges.
        let more = random.below(3) == 0;
        let src: Sources = one.src().iter().chain(more.then_some(&ranges[1])).cloned().collect();
        let left = one.with_src(src);
        let Some(right) = rule.apply(&left, set) else { continue };
        fired += 1;
        compare(random, row, &left, &right, &ranges[1])?;
    }
    Ok(fired)
}

fn compare(
    random: &mut Random,
    rule: Rule,
    left: &UOp,
    right: &UOp,
    outer: &UOp,
) -> Result<(), Box<CounterExample>> {
    let variables: Vec<UOp> =
        left.toposort().into_iter().filter(|node| node.op() == Op::DefineVar).collect();
    for step in 0..POINTS as i128 {
        let mut given: FxHashMap<UOp, Constant> = FxHashMap::default();
        given.insert(outer.clone(), Constant::int(INDEX, step % size(outer).unwrap_or(1)));
        given.extend(variables.iter().map(|node| (node.clone(), point(random, node))));
        let Some(expected) = value(left, &mut given) else { continue };
        let found = value(right, &mut given);
        if !found.is_some_and(|found| is_as_claimed(rule.claim, expected, found)) {
            let found = found.map_or(String::from("undefined"), |found| found.to_string());
            return Err(Box::new(CounterExample {
                values: variables
                    .iter()
                    .map(|node| (infix(node), given[node].to_string()))
                    .collect(),
                dtype: left.dtype().to_string(),
                sides: [infix(left), infix(right)],
                results: [expected.to_string(), found],
            }));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proof::exhaust::exhaust;
    use crate::proof::parse_row;
    use gradiff_rewrite::rules::rows;

    #[test]
    fn every_row_keeps_its_claim() {
        let mut problems = Vec::new();
        let of_reductions = |rule: &Rule| rule.name.starts_with("reduce/");
        for rule in rows().into_iter().filter(of_reductions) {
            match exhaust(&rule) {
                Err(problem) => problems.push(format!("{}: {problem}", rule.name)),
                Ok(found) if found.fired < 5 => {
                    problems.push(format!("{} fired {} times", rule.name, found.fired))
                }
                Ok(_) => {}
            }
        }
        assert!(problems.is_empty(), "{}", problems.join("\n"));
    }

    #[test]
    fn check_false_rows_fails() {
        let read = |text| parse_row(text).expect("a row");
        let named = |name: &str| rows().into_iter().find(|rule| rule.name == name).expect("a row");
        let without = |name: &str, part: &str| {
            let rule = named(name);
            assert!(rule.when.contains(part), "{name}");
            let when: &'static str = rule.when.replace(part, "true_of_all").leak();
            Rule { when: when.replace("true_of_all", "0 == 0").leak(), ..rule }
        };
        let rows = [
            read("test/varies any: (reduce.add v r) => (mul v {size(r)}) when isint(v)"),
            read("test/one any: (reduce.max v r) => v when free(v, r)"),
            without("reduce/max-of-sum", "nowrap(s)"),
            without("reduce/max-of-product", "c0 > 0"),
            without("reduce/sum-of-product", "free(y, r)"),
            without("reduce/sum-of-chosen", "free(s, r)"),
            without("reduce/count-below", "fits(max(x) - min(w) + c0, x)"),
            without("reduce/count-below", "fits(max(x) + 1, x)"),
            without("reduce/count-below", "free(w, r)"),
            without("reduce/count-below", "free(v, r)"),
            without("reduce/count-between", "max(y) <= min(z)"),
        ];
        for rule in rows {
            assert!(exhaust(&rule).is_err(), "{} where {}", rule.name, rule.when);
        }
    }
}
