//! Points at which an application of a rule is false. Both nodes are evaluated at many points:
//! variables, ranges and memory hold free values within their bounds, corners first.
//!
//! Undefined values show no difference: where the node before is undefined, the one after may have
//! any value. A node that cannot be evaluated here (a tracker, a loop that is too long) is
//! undefined.

use gradiff_graph::{Arg, Constant, DType, Op, UOp, evaluate, infix};
use gradiff_rewrite::{Claim, bounds};
use rustc_hash::{FxHashMap, FxHashSet};

/// Values of variables and ranges that are known to show a difference.
pub type Hint = std::collections::HashMap<UOp, Constant>;

/// Limit of the points at which two nodes are compared.
const POINTS: usize = 500;
/// Values of a float that are tried, those near zero first.
const FLOATS: [f64; 12] =
    [0.0, -0.0, 1.0, -1.0, 0.5, 3.0, -7.25, 1e-3, 3e4, f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
/// Limit of the nodes that two graphs have together.
const NODES: usize = 4_000;
/// Limit of the evaluations of nodes in one search.
const EVALUATIONS: usize = 1 << 20;

/// A point at which `after` is not what `claim` promises for `before`, in words: `x=-9, c=4: 2
/// became 3`. The point of the hint is tried as well. `None` if no point shows a difference.
pub fn witness(before: &UOp, after: &UOp, claim: Claim, hint: &Hint) -> Option<String> {
    difference(before, after, claim, hint, POINTS).map(|found| {
        let [x, y] = &found.results;
        format!("{}: {x} became {y}", words(&found.values))
    })
}

/// A point at which two nodes differ.
pub(crate) struct Difference {
    /// Variables, ranges and elements that were read, with their values.
    pub(crate) values: Vec<(String, String)>,
    /// The values of both nodes.
    pub(crate) results: [String; 2],
}

/// Does what [`witness`] does, with at most `points` points.
pub(crate) fn difference(
    before: &UOp,
    after: &UOp,
    claim: Claim,
    hint: &Hint,
    points: usize,
) -> Option<Difference> {
    let mut machine = Machine::new(&[before, after])?;
    let (before, after) = (machine.positions[before], machine.positions[after]);
    let differs = |machine: &Machine| {
        !is_as_claimed(claim, &machine.values[before], &machine.values[after], || machine.floats())
    };
    machine.search(hint, points, differs).then(|| {
        let results = [before, after].map(|node| machine.values[node].describe());
        Difference { values: machine.point(), results }
    })
}

/// The values of a point, in words.
fn words(values: &[(String, String)]) -> String {
    let words: Vec<String> = values.iter().map(|(name, value)| format!("{name}={value}")).collect();
    if words.is_empty() { "every point".to_string() } else { words.join(", ") }
}

/// A node whose value leaves its bounds.
pub struct Stray {
    /// The innermost such node.
    pub node: UOp,
    /// The point, and the value there, in words.
    pub words: String,
}

/// The innermost node of these graphs whose value leaves its bounds at some point.
pub fn stray(graphs: &[&UOp], hint: &Hint) -> Option<Stray> {
    let mut machine = Machine::new(graphs)?;
    let intervals: Vec<_> = machine.order.iter().map(bounds).collect();
    let first = |machine: &Machine| {
        let is_out = |(value, (low, high)): (&Value, &(i128, i128))| {
            let value = value.element().and_then(Constant::to_int);
            value.is_some_and(|value| value < *low || *high < value)
        };
        machine.values.iter().zip(&intervals).position(is_out)
    };
    machine.search(hint, POINTS, |machine| first(machine).is_some()).then(|| {
        let node = first(&machine).expect("the search ended here");
        let words = format!("{} for {}", machine.values[node].describe(), words(&machine.point()));
        Stray { node: machine.order[node].clone(), words }
    })
}

/// The value of a node at one point.
#[derive(Clone, Debug, PartialEq)]
enum Value {
    Undefined,
    Element(Constant),
    /// A slot and an element of it; `None` behind a closed gate.
    Address(Option<(usize, i128)>),
    /// Stores: slot, element, value; an undefined value may be anything.
    Stores(Vec<(usize, i128, Option<Constant>)>),
}

impl Value {
    fn element(&self) -> Option<Constant> {
        if let Value::Element(value) = self { Some(*value) } else { None }
    }

    fn describe(&self) -> String {
        match self {
            Value::Undefined => "undefined".to_string(),
            Value::Element(value) => value.to_string(),
            Value::Address(None) => "nowhere".to_string(),
            Value::Address(Some((slot, index))) => format!("data{slot}[{index}]"),
            Value::Stores(stores) if stores.is_empty() => "no store".to_string(),
            Value::Stores(stores) => {
                let word = |(slot, index, value): &(usize, i128, Option<Constant>)| {
                    let value = value.map_or("undefined".to_string(), |value| value.to_string());
                    format!("data{slot}[{index}]={value}")
                };
                stores.iter().map(word).collect::<Vec<_>>().join(" ")
            }
        }
    }
}

impl From<Option<Constant>> for Value {
    fn from(value: Option<Constant>) -> Value {
        value.map_or(Value::Undefined, Value::Element)
    }
}

/// Returns whether `after` is as claimed; `floats` are the largest magnitude of any node and the
/// number of roundings.
fn is_as_claimed(
    claim: Claim,
    before: &Value,
    after: &Value,
    floats: impl Fn() -> (f64, f64),
) -> bool {
    let (x, y) = match (before, after) {
        (Value::Undefined, _) => return true,
        (Value::Element(x), Value::Element(y)) => (*x, *y),
        (Value::Stores(x), Value::Stores(y)) => {
            let is_same = |(x, y): (&(usize, i128, Option<Constant>), &(_, _, _))| {
                (x.0, x.1) == (y.0, y.1) && (x.2.is_none() || x.2 == y.2)
            };
            return x.len() == y.len() && x.iter().zip(y).all(is_same);
        }
        _ => return before == after,
    };
    if claim == Claim::Finite && !floats().0.is_finite() {
        return true;
    }
    match (x.to_float(), y.to_float(), claim) {
        (Some(v), Some(w), _) if v.is_nan() && w.is_nan() => true,
        (Some(v), Some(w), Claim::Value) => v == w,
        (Some(v), Some(w), Claim::Ulp(count)) => {
            let unit = match x.dtype() {
                DType::F16 => 2f64.powi(-10),
                DType::BF16 => 2f64.powi(-7),
                DType::F32 => f64::from(f32::EPSILON),
                _ => f64::EPSILON,
            };
            let (largest, roundings) = floats();
            let allowed = (f64::from(count) + roundings) * unit * largest;
            !largest.is_finite() || (v - w).abs() <= allowed
        }
        _ => x == y,
    }
}

/// Graphs laid out in one order, with the values of their nodes at the present point.
struct Machine {
    order: Vec<UOp>,
    positions: FxHashMap<UOp, usize>,
    src: Vec<Vec<usize>>,
    /// The nodes that are computed anew in each iteration of a reduction.
    bodies: FxHashMap<usize, Vec<usize>>,
    /// Variables and free ranges, with the values to try, those near zero first.
    leaves: Vec<(usize, Vec<Constant>)>,
    values: Vec<Value>,
    /// Numbers that occur in the graphs, and numbers near them.
    near: Vec<i128>,
    /// The content of memory is a function of this number and the address.
    salt: u64,
    /// Number of iterations of reductions at this point.
    iterations: usize,
    evaluations_left: usize,
}

impl Machine {
    /// `None` if the graphs are too large.
    fn new(graphs: &[&UOp]) -> Option<Machine> {
        let mut machine = Machine {
            order: Vec::new(),
            positions: FxHashMap::default(),
            src: Vec::new(),
            bodies: FxHashMap::default(),
            leaves: Vec::new(),
            values: Vec::new(),
            near: (-8..=8).collect(),
            salt: 0,
            iterations: 0,
            evaluations_left: EVALUATIONS,
        };
        for node in graphs.iter().flat_map(|graph| graph.toposort()) {
            if machine.positions.contains_key(&node) {
                continue;
            }
            machine.src.push(node.src().iter().map(|source| machine.positions[source]).collect());
            machine.positions.insert(node.clone(), machine.order.len());
            machine.order.push(node);
        }
        if machine.order.len() > NODES {
            return None;
        }
        machine.values = vec![Value::Undefined; machine.order.len()];
        let numbers: FxHashSet<i128> = machine.order.iter().filter_map(UOp::as_int).collect();
        let around = |value: &i128| [*value, value - 1, value + 1, -value, value * 2];
        machine.near.extend(numbers.iter().flat_map(around));
        machine.near.sort_by_key(|value| (value.abs(), *value < 0));
        machine.near.dedup();
        let mut bound = FxHashSet::default();
        for position in 0..machine.order.len() {
            if machine.order[position].op() == Op::Reduce {
                bound.extend(machine.src[position][1..].iter().copied());
                machine.bodies.insert(position, machine.body(position));
            }
        }
        for position in (0..machine.order.len()).filter(|position| !bound.contains(position)) {
            if matches!(machine.order[position].op(), Op::DefineVar | Op::Range) {
                machine.leaves.push((position, machine.candidates(position)));
            }
        }
        Some(machine)
    }

    /// The nodes of a reduction's value that depend on its ranges, in order. An inner reduction
    /// over a range does not depend on it.
    fn body(&self, reduce: usize) -> Vec<usize> {
        let (value, ranges) = (self.src[reduce][0], &self.src[reduce][1..]);
        let inside: Vec<usize> =
            self.order[value].toposort().iter().map(|node| self.positions[node]).collect();
        let mut body = FxHashSet::default();
        for range in ranges {
            let mut varies: FxHashSet<usize> = [*range].into_iter().collect();
            for position in &inside {
                let src = &self.src[*position];
                let is_closed =
                    self.order[*position].op() == Op::Reduce && src[1..].contains(range);
                if !is_closed && src.iter().any(|source| varies.contains(source)) {
                    varies.insert(*position);
                }
            }
            body.extend(varies);
        }
        let mut body: Vec<usize> = body.into_iter().filter(|at| !ranges.contains(at)).collect();
        body.sort_unstable();
        body
    }

    /// The values of a leaf that are tried.
    fn candidates(&self, position: usize) -> Vec<Constant> {
        let leaf = &self.order[position];
        if leaf.dtype().is_float() {
            return FLOATS.iter().map(|value| Constant::float(leaf.dtype(), *value)).collect();
        }
        let (low, high) = bounds(leaf);
        let mut values: Vec<i128> = self.near.clone();
        if high - low < 48 {
            values = (low..=high).collect();
        }
        values.extend([low, low + 1, low / 2 + high / 2, high - 1, high]);
        values.retain(|value| low <= *value && *value <= high);
        values.sort_by_key(|value| (value.unsigned_abs(), *value < 0));
        values.dedup();
        values.into_iter().map(|value| Constant::int(leaf.dtype(), value)).collect()
    }

    /// Evaluates the graphs at one point after another until the test holds; false if it never
    /// does.
    fn search(&mut self, hint: &Hint, points: usize, test: impl Fn(&Machine) -> bool) -> bool {
        let is_memory = self.order.iter().any(|node| node.op() == Op::Load);
        let combinations = self.leaves.iter().try_fold(1usize, |product, (_, values)| {
            product.checked_mul(values.len()).filter(|product| *product <= points)
        });
        let count = combinations.filter(|_| !is_memory).unwrap_or(points);
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        for number in 0..count {
            let mut rest = number;
            for (position, values) in &self.leaves {
                let choice = match combinations {
                    Some(_) => rest % values.len(),
                    // The first points lie near zero.
                    None if number < points / 4 => random(&mut state) % values.len().min(6),
                    None => random(&mut state) % values.len(),
                };
                rest /= values.len();
                self.values[*position] = Value::Element(values[choice]);
            }
            self.salt = number as u64;
            self.run();
            if test(self) {
                return true;
            }
            if self.evaluations_left == 0 {
                return false;
            }
        }
        for (position, _) in self.leaves.iter().filter(|_| !hint.is_empty()) {
            let known = hint.get(&self.order[*position]).copied();
            self.values[*position] = known.into();
        }
        self.run();
        !hint.is_empty() && test(self)
    }

    fn run(&mut self) {
        self.iterations = 0;
        for position in 0..self.order.len() {
            self.compute(position);
        }
    }

    fn compute(&mut self, position: usize) {
        self.evaluations_left = self.evaluations_left.saturating_sub(1);
        if matches!(self.order[position].op(), Op::DefineVar | Op::Range) {
            return;
        }
        self.values[position] = if self.order[position].op() == Op::Reduce {
            self.reduce(position)
        } else {
            self.node(position)
        };
    }

    fn node(&self, position: usize) -> Value {
        let node = &self.order[position];
        let src = |number: usize| &self.values[self.src[position][number]];
        let element = |number: usize| src(number).element();
        let truth = |value| Some(Constant::bool(value));
        match (node.op(), node.arg()) {
            (_, Arg::Const(value)) => Value::Element(*value),
            (Op::Index, _) => self.address(position),
            (Op::Load, Arg::None | Arg::Int(_)) => match src(0) {
                Value::Address(Some((slot, index))) => self.read(node, *slot, *index),
                Value::Address(None) if node.src().len() == 2 => src(1).clone(),
                Value::Address(None) => Value::Element(Constant::zero(node.dtype())),
                _ => Value::Undefined,
            },
            (Op::Store, Arg::None) => match src(0) {
                Value::Address(Some((slot, index))) => {
                    Value::Stores(vec![(*slot, *index, element(1))])
                }
                Value::Address(None) => Value::Stores(Vec::new()),
                _ => Value::Undefined,
            },
            (Op::Sink, _) => {
                let mut joined = Vec::new();
                for number in 0..node.src().len() {
                    let Value::Stores(stores) = src(number) else { return Value::Undefined };
                    joined.extend(stores.iter().copied());
                }
                Value::Stores(joined)
            }
            (Op::Where, _) => match element(0) {
                Some(condition) => src(if condition.is_true() { 1 } else { 2 }).clone(),
                None => Value::Undefined,
            },
            (Op::And, _) if (0..2).any(|n| element(n) == truth(false)) => truth(false).into(),
            (Op::Or, _) if (0..2).any(|n| element(n) == truth(true)) => truth(true).into(),
            (op, _) if op.is_elementwise() => {
                let sources: Option<Vec<Constant>> = (0..node.src().len()).map(element).collect();
                sources.and_then(|sources| evaluate(op, node.dtype(), &sources)).into()
            }
            _ => Value::Undefined,
        }
    }

    fn address(&self, position: usize) -> Value {
        let Arg::Global(global) = self.order[self.src[position][0]].arg() else {
            return Value::Undefined;
        };
        let element = |source: &usize| self.values[*source].element();
        match self.src[position].get(2).map(element) {
            Some(None) => return Value::Undefined,
            Some(Some(gate)) if !gate.is_true() => return Value::Address(None),
            _ => {}
        }
        let index = element(&self.src[position][1]).and_then(Constant::to_int);
        // An address outside of its array is undefined.
        let inside = index.filter(|at| 0 <= *at && *at < i128::from(global.size_elements));
        inside.map_or(Value::Undefined, |index| Value::Address(Some((global.slot, index))))
    }

    /// The content of memory: small numbers and odd ones, the same at each read.
    fn read(&self, node: &UOp, slot: usize, index: i128) -> Value {
        let mut state = (self.salt << 8 | slot as u64) ^ (index as u64).wrapping_mul(0x9e37_79b9);
        (0..3).for_each(|_| {
            random(&mut state);
        });
        let choice = random(&mut state);
        let dtype = node.dtype();
        if dtype.is_float() {
            let value = FLOATS.get(choice % 24).copied();
            let value = value.unwrap_or((choice / 24 % 17) as f64 - 8.0);
            return Value::Element(Constant::float(dtype, value));
        }
        let (low, high) = dtype.int_range().unwrap_or((0, 0));
        let ends = [low, high, low + 1, high - 1];
        let near = self.near[choice / 16 % self.near.len()];
        let value = ends.get(choice % 16).copied().unwrap_or(near).clamp(low, high);
        Value::Element(Constant::int(dtype, value))
    }

    fn reduce(&mut self, position: usize) -> Value {
        let node = self.order[position].clone();
        let Arg::Reduce(op, _) = node.arg() else { return Value::Undefined };
        let ends: Option<Vec<i128>> =
            node.src()[1..].iter().map(|range| range.src().first()?.as_int()).collect();
        let body = self.bodies[&position].clone();
        let trips = ends.as_ref().and_then(|ends| {
            ends.iter().try_fold(1usize, |product, end| {
                product.checked_mul(usize::try_from((*end).max(0)).ok()?)
            })
        });
        let cost = trips.and_then(|trips| trips.checked_mul(body.len() + 1));
        let trips = trips.filter(|_| cost.is_some_and(|cost| cost < self.evaluations_left));
        let (Some(ends), Some(trips)) = (ends, trips) else { return Value::Undefined };
        let mut reduced = match op {
            Op::Mul => Constant::one(node.dtype()),
            Op::Max => Constant::smallest(node.dtype()),
            _ => Constant::zero(node.dtype()),
        };
        self.iterations += trips;
        for iteration in 0..trips {
            let mut rest = iteration as i128;
            for (number, end) in ends.iter().enumerate().rev() {
                let value = Constant::int(node.src()[number + 1].dtype(), rest % end);
                self.values[self.src[position][number + 1]] = Value::Element(value);
                rest /= end;
            }
            body.iter().for_each(|position| self.compute(*position));
            let value = self.values[self.src[position][0]].element();
            match value.and_then(|value| evaluate(*op, node.dtype(), &[reduced, value])) {
                Some(value) => reduced = value,
                None => return Value::Undefined,
            }
        }
        Value::Element(reduced)
    }

    /// The largest magnitude of a float at this point (infinite if there is a NaN), and the number
    /// of roundings.
    fn floats(&self) -> (f64, f64) {
        let floats = self.values.iter().filter_map(|value| value.element()?.to_float());
        let magnitude = |x: f64| if x.is_nan() { f64::INFINITY } else { x.abs() };
        let roundings = self.order.len() + self.iterations;
        (floats.map(magnitude).fold(0.0, f64::max), roundings as f64)
    }

    /// The values of the leaves and of the loaded elements.
    fn point(&self) -> Vec<(String, String)> {
        let value = |position: usize| self.values[position].describe();
        let leaves = self.leaves.iter().map(|(leaf, _)| (infix(&self.order[*leaf]), value(*leaf)));
        let is_read = |position: &usize| {
            self.order[*position].op() == Op::Load
                && matches!(self.values[self.src[*position][0]], Value::Address(Some(_)))
        };
        let loads = (0..self.order.len()).filter(is_read);
        leaves.chain(loads.map(|load| (value(self.src[load][0]), value(load)))).collect()
    }
}

fn random(state: &mut u64) -> usize {
    *state |= 1;
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    (*state >> 16) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the text of the witness; empty if there must be none.
    fn check(before: UOp, after: UOp, claim: Claim, expected: &str) {
        let found = witness(&before, &after, claim, &Hint::new()).unwrap_or_default();
        assert_eq!(found, expected, "{} -> {}", infix(&before), infix(&after));
    }

    fn variable(dtype: DType, min: i64, max: i64) -> UOp {
        let variable = gradiff_graph::Variable { name: "x".to_string(), min, max };
        UOp::new(Op::DefineVar, dtype, [], Arg::Var(std::sync::Arc::new(variable)))
    }

    #[test]
    fn a_false_application_has_a_point_near_zero() {
        let x = variable(DType::I32, -1000, 1000);
        let four = UOp::int(DType::I32, 4);
        let cut = UOp::binary(Op::CDiv, x.clone(), four.clone());
        let floored = UOp::binary(Op::FloorDiv, x.clone(), four.clone());
        check(cut.clone(), floored, Claim::Bits, "x=-1: 0 became -1");
        check(cut.clone(), cut, Claim::Bits, "");
        let far = UOp::binary(Op::CmpLt, x.clone(), UOp::int(DType::I32, 777));
        check(far, UOp::constant(Constant::bool(true)), Claim::Bits, "x=777: false became true");
        // Undefined before: anything after. Undefined after, and not before: false.
        let over_x = UOp::binary(Op::CDiv, four.clone(), x.clone());
        let x_over_x = UOp::binary(Op::CDiv, x.clone(), x.clone());
        check(x_over_x.clone(), UOp::int(DType::I32, 1), Claim::Refines, "");
        check(UOp::int(DType::I32, 1), x_over_x, Claim::Bits, "x=0: 1 became undefined");
        let is_zero = UOp::binary(Op::CmpNe, x, UOp::int(DType::I32, 0));
        let guarded = UOp::select(is_zero, over_x.clone(), four.clone());
        check(guarded, over_x, Claim::Bits, "x=0: 4 became undefined");
    }

    #[test]
    fn floats_are_judged_by_the_claim() {
        let x = variable(DType::F32, 0, 0);
        let float = |value| UOp::constant(Constant::float(DType::F32, value));
        let plus = |x: UOp, y| UOp::binary(Op::Add, x, float(y));
        check(plus(x.clone(), 0.0), x.clone(), Claim::Bits, "x=-0.0: 0.0 became -0.0");
        check(plus(x.clone(), 0.0), x.clone(), Claim::Value, "");
        let twice = plus(plus(x.clone(), 0.1), 0.2);
        check(twice.clone(), plus(x.clone(), 0.3), Claim::Ulp(1), "");
        let found = witness(&twice, &plus(x.clone(), 0.4), Claim::Ulp(1), &Hint::new());
        assert!(found.is_some());
        let times_zero = UOp::binary(Op::Mul, x.clone(), float(0.0));
        let found = witness(&times_zero, &float(0.0), Claim::Value, &Hint::new());
        assert_eq!(found.as_deref(), Some("x=NaN: NaN became 0.0"));
        check(times_zero, float(0.0), Claim::Finite, "x=-0.0: -0.0 became 0.0");
    }

    #[test]
    fn reductions_are_compared_and_keep_their_bounds() {
        let range = UOp::new(Op::Range, DType::I32, [UOp::int(DType::I32, 5)], Arg::plain_axis(0));
        let arg = Arg::Reduce(Op::Add, Default::default());
        let sum = UOp::new(Op::Reduce, DType::I32, [range.clone(), range], arg);
        check(sum.clone(), UOp::int(DType::I32, 10), Claim::Bits, "");
        let wrong = "every point: 10 became 15";
        check(sum.clone(), UOp::int(DType::I32, 15), Claim::Bits, wrong);
        assert!(stray(&[&sum], &Hint::new()).is_none());
    }

    #[test]
    fn adjacent_reductions_over_the_same_range_are_independent() {
        let range = |axis| {
            UOp::new(Op::Range, DType::I32, [UOp::int(DType::I32, 3 + axis)], Arg::plain_axis(axis))
        };
        let (r, q) = (range(0), range(1));
        let reduction = |value: &UOp, ranges: &[&UOp]| {
            let src: Vec<UOp> = [value].iter().chain(ranges).map(|node| (*node).clone()).collect();
            UOp::new(Op::Reduce, DType::I32, src, Arg::Reduce(Op::Add, Default::default()))
        };
        let value = UOp::binary(Op::Add, r.clone(), variable(DType::I32, -5, 5));
        let both = reduction(&value, &[&r, &q]);
        let four = UOp::int(DType::I32, 4);
        let inside = reduction(&UOp::binary(Op::Mul, value.clone(), four.clone()), &[&r]);
        check(both.clone(), inside, Claim::Bits, "");
        check(both, reduction(&reduction(&value, &[&q]), &[&r]), Claim::Bits, "");
    }
}
