//! Points at which an application of a rule is false. Both nodes are evaluated at many points:
//! variables, ranges and memory hold free values within their bounds, corners first.
//!
//! Undefined values show no difference: where the node before is undefined, the one after may have
//! any value. A node that cannot be evaluated here (a tracker, a loop that is too long) is
//! undefined.

use gradiff_eval::point::{Limits, Tape, Value};
use gradiff_eval::scalar;
use gradiff_graph::text::infix;
use gradiff_graph::{Constant, DType, Op, UOp};
use gradiff_rewrite::{Claim, bounds};
use rustc_hash::FxHashSet;

use crate::claim::is_as_claimed;

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
    difference(before, after, claim, hint, POINTS).as_ref().map(described)
}

/// Does what [`witness`] does, at the points where no node of `before` is infinite or NaN: rules of
/// fast mode assume that.
pub fn finite_witness(before: &UOp, after: &UOp, claim: Claim, hint: &Hint) -> Option<String> {
    compare(before, after, claim, true, hint, POINTS).as_ref().map(described)
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
    compare(before, after, claim, false, hint, points)
}

/// Finds a difference; with `is_finite`, at the points where no node of `before` is infinite or
/// NaN.
fn compare(
    before: &UOp,
    after: &UOp,
    claim: Claim,
    is_finite: bool,
    hint: &Hint,
    points: usize,
) -> Option<Difference> {
    let mut search = Search::new(&[before, after])?;
    let position = |node: &UOp| search.tape.position(node).expect("a node of the tape");
    let nodes: Vec<usize> = before.toposort().iter().map(position).collect();
    let differs = |tape: &Tape| {
        let [x, y] = [before, after].map(|node| value(tape, node));
        let has_special = || !magnitude(tape, &nodes).is_finite();
        let is_near = |count, x: f64, y: f64| is_within_roundings(tape, &nodes, count, (x, y));
        let are_elements = x.element().is_some() && y.element().is_some();
        let is_excused = is_finite && are_elements && has_special();
        !is_excused && !is_as_claimed(claim, x, y, &has_special, &is_near)
    };
    search.run(hint, points, differs).then(|| {
        let results = [before, after].map(|node| value(&search.tape, node).to_string());
        Difference { values: search.point(), results }
    })
}

/// A difference, in words.
fn described(found: &Difference) -> String {
    let [x, y] = &found.results;
    format!("{}: {x} became {y}", words(&found.values))
}

/// The value of a root of the tape.
fn value<'t>(tape: &'t Tape, root: &UOp) -> &'t Value {
    tape.value(tape.position(root).expect("a root of the tape"))
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
    let mut search = Search::new(graphs)?;
    let intervals: Vec<_> = search.tape.nodes().iter().map(bounds).collect();
    let first = |tape: &Tape| {
        let is_out = |(value, (low, high)): (&Value, &(i128, i128))| {
            let value = value.element().and_then(scalar::to_int);
            value.is_some_and(|value| value < *low || *high < value)
        };
        tape.values().iter().zip(&intervals).position(is_out)
    };
    search.run(hint, POINTS, |tape| first(tape).is_some()).then(|| {
        let node = first(&search.tape).expect("the search ended here");
        let value = &search.tape.values()[node];
        let words = format!("{value} for {}", words(&search.point()));
        Stray { node: search.tape.nodes()[node].clone(), words }
    })
}

/// The innermost division or shift of `after` that some point makes undefined, or a division that
/// wraps: devices may trap. Points do not count where several ops of `before` are undefined, as the
/// bounds of an operand leave out undefined values.
pub fn trap(before: &UOp, after: &UOp, hint: &Hint) -> Option<Stray> {
    let mut search = Search::new(&[before, after])?;
    let is_partial = |node: &UOp| {
        matches!(node.op(), Op::CDiv | Op::CMod | Op::FloorDiv | Op::FloorMod | Op::Shl | Op::Shr)
    };
    let partial: Vec<UOp> = before.toposort().into_iter().filter(is_partial).collect();
    let traps = |tape: &Tape, node: &UOp| {
        let element =
            |source: &UOp| tape.values()[tape.position(source)?].element().and_then(scalar::to_int);
        let operand = |number: usize| node.src().get(number).and_then(element);
        let (Some(x), Some(y)) = (operand(0), operand(1)) else { return false };
        let smallest = node.dtype().int_range().map_or(0, |range| range.0);
        match node.op() {
            Op::CDiv | Op::CMod => y == 0 || y == -1 && x == smallest,
            Op::Shl | Op::Shr => !(0..node.dtype().bits().into()).contains(&y),
            _ => false,
        }
    };
    let nodes = after.toposort();
    let first = |tape: &Tape| {
        let undefined = partial.iter().filter(|node| *value(tape, node) == Value::Undefined);
        nodes.iter().find(|node| undefined.clone().nth(1).is_none() && traps(tape, node))
    };
    search.run(hint, POINTS, |tape| first(tape).is_some()).then(|| {
        let node = first(&search.tape).expect("the search ended here").clone();
        Stray { words: format!("undefined for {}", words(&search.point())), node }
    })
}

/// The largest magnitude of a float among these nodes at this point; infinite if there is a NaN.
fn magnitude(tape: &Tape, nodes: &[usize]) -> f64 {
    let values = nodes.iter().map(|node| &tape.values()[*node]);
    let floats = values.filter_map(|value| scalar::to_float(value.element()?));
    let magnitude = |x: f64| if x.is_nan() { f64::INFINITY } else { x.abs() };
    floats.map(magnitude).fold(0.0, f64::max)
}

/// Returns whether two floats differ by at most `count` roundings and those of the graphs, each of
/// the largest float of these nodes, to their shortest type. They are the nodes of the graph
/// before: a NaN, an infinity or a short type of the graph after excuses nothing. Those of the
/// graph before excuse a difference if a rounding may decide them ([`turns_special`]), or if the
/// float before is finite; else it must stay as it is.
fn is_within_roundings(tape: &Tape, nodes: &[usize], count: u32, (x, y): (f64, f64)) -> bool {
    let unit = |node: &usize| match tape.nodes()[*node].dtype() {
        DType::F16 => 2f64.powi(-10),
        DType::BF16 => 2f64.powi(-7),
        DType::F32 => f64::from(f32::EPSILON),
        _ => f64::EPSILON,
    };
    let unit = nodes.iter().map(unit).fold(f64::EPSILON, f64::max);
    let roundings = tape.nodes().len() + tape.iterations();
    let largest = magnitude(tape, nodes);
    let allowed = (f64::from(count) + roundings as f64) * unit * largest;
    if !largest.is_finite() {
        let is_same = x == y || x.is_nan() && y.is_nan();
        return is_same || x.is_finite() || nodes.iter().any(|node| turns_special(tape, *node));
    }
    (x - y).abs() <= allowed
}

/// Returns whether a node is infinite or NaN, and its operands are not: it overflows, has a pole,
/// or is outside of its domain. A rounding or the sign of a zero may decide that, and a wider type
/// or another order need not overflow. The same holds of a quotient by 0, and of reductions, of
/// whose elements only the last is known.
fn turns_special(tape: &Tape, position: usize) -> bool {
    let float = |position: usize| scalar::to_float(tape.values()[position].element()?);
    let is_special = |position: usize| float(position).is_some_and(|x| !x.is_finite());
    let (op, src) = (tape.nodes()[position].op(), tape.src(position));
    let is_over_zero = || op == Op::FDiv && float(src[1]) == Some(0.0);
    let is_new = || is_over_zero() || !src.iter().any(|source| is_special(*source));
    is_special(position) && (op == Op::Reduce || op.is_elementwise() && is_new())
}

/// A search for a point: the graphs, and what is tried.
struct Search {
    tape: Tape,
    /// Variables and free ranges, with the values to try, those near zero first.
    leaves: Vec<(usize, Vec<Constant>)>,
    /// Numbers that occur in the graphs, and numbers near them.
    near: Vec<i128>,
    /// The content of memory is a function of this number and the address.
    salt: u64,
}

impl Search {
    /// `None` if the graphs are too large.
    fn new(graphs: &[&UOp]) -> Option<Search> {
        let limits = Limits { evaluations: EVALUATIONS, ..Limits::default() };
        let tape = Tape::new(graphs, limits);
        if tape.nodes().len() > NODES {
            return None;
        }
        let numbers: FxHashSet<i128> = tape.nodes().iter().filter_map(UOp::as_int).collect();
        let around = |value: &i128| [*value, value - 1, value + 1, -value, value * 2];
        let mut near: Vec<i128> = (-8..=8).collect();
        near.extend(numbers.iter().flat_map(around));
        near.sort_by_key(|value| (value.abs(), *value < 0));
        near.dedup();
        let mut search = Search { tape, leaves: Vec::new(), near, salt: 0 };
        for position in search.tape.leaves() {
            let candidates = search.candidates(&search.tape.nodes()[position]);
            search.leaves.push((position, candidates));
        }
        Some(search)
    }

    /// The values of a leaf that are tried.
    fn candidates(&self, leaf: &UOp) -> Vec<Constant> {
        if leaf.dtype().is_float() {
            return FLOATS.iter().map(|value| float(leaf.dtype(), *value)).collect();
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
        values.into_iter().filter_map(|value| scalar::int(leaf.dtype(), value)).collect()
    }

    /// Evaluates the graphs at one point after another until the test holds; false if it never
    /// does.
    fn run(&mut self, hint: &Hint, points: usize, test: impl Fn(&Tape) -> bool) -> bool {
        let is_memory = self.tape.nodes().iter().any(|node| node.op() == Op::Load);
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
                self.tape.set(*position, Some(values[choice]));
            }
            self.salt = number as u64;
            self.evaluate();
            if test(&self.tape) {
                return true;
            }
            if self.tape.evaluations_left() == 0 {
                return false;
            }
        }
        for (position, _) in self.leaves.iter().filter(|_| !hint.is_empty()) {
            let known = hint.get(&self.tape.nodes()[*position]).copied();
            self.tape.set(*position, known);
        }
        self.evaluate();
        !hint.is_empty() && test(&self.tape)
    }

    fn evaluate(&mut self) {
        let (near, salt) = (&self.near, self.salt);
        self.tape.run(&|dtype, slot, index| read(near, salt, dtype, slot, index));
    }

    /// The values of the leaves and of the loaded elements.
    fn point(&self) -> Vec<(String, String)> {
        let (tape, values) = (&self.tape, self.tape.values());
        let leaves = self.leaves.iter().map(|(leaf, _)| (infix(&tape.nodes()[*leaf]), *leaf));
        let leaves = leaves.map(|(name, leaf)| (name, values[leaf].to_string()));
        let is_read = |position: &usize| {
            tape.nodes()[*position].op() == Op::Load
                && matches!(values[tape.src(*position)[0]], Value::Address(Some(_)))
        };
        let loads = (0..values.len()).filter(is_read);
        let word = |load: usize| (values[tape.src(load)[0]].to_string(), values[load].to_string());
        leaves.chain(loads.map(word)).collect()
    }
}

/// The content of memory: small numbers and odd ones, the same at each read.
fn read(near: &[i128], salt: u64, dtype: DType, slot: usize, index: i128) -> Constant {
    let mut state = (salt << 8 | slot as u64) ^ (index as u64).wrapping_mul(0x9e37_79b9);
    (0..3).for_each(|_| {
        random(&mut state);
    });
    let choice = random(&mut state);
    let Some((low, high)) = scalar::range(dtype) else {
        let value = FLOATS.get(choice % 24).copied();
        return float(dtype, value.unwrap_or((choice / 24 % 17) as f64 - 8.0));
    };
    let ends = [low, high, low + 1, high - 1];
    let near = near[choice / 16 % near.len()];
    let value = ends.get(choice % 16).copied().unwrap_or(near).clamp(low, high);
    scalar::int(dtype, value).expect("the dtype has integers")
}

fn float(dtype: DType, value: f64) -> Constant {
    scalar::float(dtype, value).expect("the dtype has floats")
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
    use gradiff_graph::Arg;

    /// Checks the text of the witness; empty if there must be none.
    fn check(before: UOp, after: UOp, claim: Claim, expected: &str) {
        let found = witness(&before, &after, claim, &Hint::new()).unwrap_or_default();
        assert_eq!(found, expected, "{} -> {}", infix(&before), infix(&after));
    }

    fn variable(dtype: DType, min: i64, max: i64) -> UOp {
        crate::leaves::variable(dtype, "x", (min, max))
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
        let half = UOp::unary(Op::Cast, DType::F16, x.clone());
        let wide = |x: UOp| UOp::unary(Op::Cast, DType::F32, x);
        let square = |x: UOp| UOp::binary(Op::Mul, x.clone(), x);
        let [rounded, exact] = [wide(square(half.clone())), square(wide(half))];
        check(rounded.clone(), exact.clone(), Claim::Ulp(1), "");
        assert!(witness(&rounded, &exact, Claim::Bits, &Hint::new()).is_some());
        let times_zero = UOp::binary(Op::Mul, x.clone(), float(0.0));
        let found = witness(&times_zero, &float(0.0), Claim::Value, &Hint::new());
        assert_eq!(found.as_deref(), Some("x=NaN: NaN became 0.0"));
        check(times_zero, float(0.0), Claim::Finite, "x=-0.0: -0.0 became 0.0");
    }

    #[test]
    fn special_values_and_short_types_after_excuse_nothing() {
        let x = variable(DType::F32, 0, 0);
        let zero = UOp::binary(Op::Sub, x.clone(), x.clone());
        let quotient = UOp::binary(Op::FDiv, x.clone(), zero);
        check(x.clone(), quotient.clone(), Claim::Ulp(1), "x=0.0: 0.0 became NaN");
        check(x.clone(), quotient, Claim::Finite, "x=0.0: 0.0 became NaN");
        let half = UOp::unary(Op::Cast, DType::F16, x.clone());
        let rounded = UOp::unary(Op::Cast, DType::F32, half);
        assert!(witness(&x, &rounded, Claim::Ulp(1), &Hint::new()).is_some());
    }

    #[test]
    fn special_values_before_stay_unless_a_rounding_decides_them() {
        let x = variable(DType::F32, 0, 0);
        let float = |value| UOp::constant(Constant::float(DType::F32, value));
        let power = UOp::binary(Op::Pow, x.clone(), float(0.5));
        let root = UOp::unary(Op::Sqrt, DType::F32, x.clone());
        let found = witness(&power, &root, Claim::Ulp(1), &Hint::new());
        assert!(found.is_some_and(|words| words.ends_with("inf became NaN")));
        assert_eq!(finite_witness(&power, &root, Claim::Ulp(1), &Hint::new()), None);
        // The largest float is multiplied in another order, a pole has another sign.
        let scaled = |x: &UOp, by: f64| UOp::binary(Op::Mul, x.clone(), float(by));
        let large = scaled(&scaled(&x, 1e38), 1e-38);
        check(large, scaled(&x, 1e38 * 1e-38), Claim::Ulp(4), "");
        let recip = |x: UOp| UOp::unary(Op::Recip, DType::F32, x);
        let zero = UOp::binary(Op::Add, x.clone(), float(0.0));
        check(recip(zero), recip(x), Claim::Ulp(1), "");
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
