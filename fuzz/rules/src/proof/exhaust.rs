//! Rules tried on everything small: constants and variables of [-8, 8] and at the ends of 8-bit
//! types, every dtype for casts, all values of f16 and notable ones of the other floats.
//!
//! Each left side is built, the rule applied as the driver does, and both sides are evaluated point
//! by point. It shares nothing with the solver's terms, so that each checks the other.

use gradiff_eval::point::{Limits, Tape, Value};
use gradiff_eval::scalar;
use gradiff_graph::text::infix;
use gradiff_graph::{Constant, DType, Op, UOp};
use gradiff_rewrite::syntax::{ParsedRule, Pattern, Question, is_constant_name};
use gradiff_rewrite::{Rule, RuleSet};

use super::encode::Type;
use super::instance;
use super::judge::{has_special, is_within_ulps};
use super::typing::{FLOATS, INTS, Kind, Typing};
use super::{parsed, reductions, statics};
use crate::claim::is_as_claimed;
use crate::leaves;

/// Counts of a search that found no difference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Exhausted {
    /// Number of left sides that the rule applied to.
    pub(super) fired: usize,
    /// Number of points at which both sides were evaluated.
    pub(super) points: usize,
    /// True if every combination of the domain was tried; else only evenly spaced ones.
    pub(super) is_complete: bool,
}

/// A point at which a rule breaks its claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CounterExample {
    /// Names and their values.
    pub values: Vec<(String, String)>,
    /// The dtype of the values.
    pub dtype: String,
    /// Both sides as expressions.
    pub sides: [String; 2],
    /// Their values at this point.
    pub results: [String; 2],
}

impl std::fmt::Display for CounterExample {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let values: Vec<String> =
            self.values.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let [left, right] = &self.results;
        let [before, after] = &self.sides;
        write!(f, "false for {} ({}): ", values.join(", "), self.dtype)?;
        write!(f, "{left} became {right}, as {before} became {after}")
    }
}

/// Limit of the points at which one typing of a rule is tried.
const BUDGET: usize = 300_000;

/// Tries the rule on everything small.
///
/// # Errors
/// The first point at which it breaks its claim.
pub(super) fn exhaust(rule: &Rule) -> Result<Exhausted, Box<CounterExample>> {
    exhaust_within(rule, BUDGET)
}

/// Does what [`exhaust`] does, with at most about `budget` points for each typing of the rule. A
/// row that cannot be parsed has never fired.
///
/// # Errors
/// The first point at which the rule breaks its claim.
fn exhaust_within(rule: &Rule, budget: usize) -> Result<Exhausted, Box<CounterExample>> {
    let mut found = Exhausted { is_complete: true, ..Exhausted::default() };
    let Some((rule, set)) = loaded(rule) else { return Ok(Exhausted::default()) };
    if matches!(rule.lhs, Pattern::Reduce(..)) {
        let fired = reductions::check(&rule, &set)?;
        return Ok(Exhausted { fired, points: fired * reductions::POINTS, is_complete: false });
    }
    let (rule, around) = (&rule, gradiff_rewrite::symbolic());
    // A computed right side uses the other rules, too.
    let around = if parsed::is_computed(rule) { &*around } else { &set };
    let typing = Typing::new(rule);
    for types in typings(rule, &typing) {
        for lists in domains(rule, &typing, &types) {
            let domain = Domain { set: around, rule, typing: &typing, types: &types };
            domain.check(&lists, budget, &mut found)?;
        }
    }
    Ok(found)
}

/// Checks the left side with these nodes for its names: a counter-example of the solver. `None` if
/// the sides do not differ.
pub(super) fn replay(
    rule: &Rule,
    types: &[Option<Type>],
    nodes: &[(usize, UOp)],
) -> Option<Box<CounterExample>> {
    let (rule, set) = loaded(rule)?;
    let typing = Typing::new(&rule);
    let domain = Domain { set: &set, rule: &rule, typing: &typing, types };
    let lists: Lists = nodes.iter().map(|(slot, node)| (*slot, vec![node.clone()])).collect();
    domain.check(&lists, 1000, &mut Exhausted::default()).err()
}

/// The row, parsed, and alone in a set; `None` if it does not load.
fn loaded(row: &Rule) -> Option<(ParsedRule, RuleSet)> {
    let set = RuleSet::load(&[&[*row]]).ok()?;
    Some((ParsedRule::new(*row).ok()?, set))
}

/// For each name, the nodes that it is tried with.
type Lists = Vec<(usize, Vec<UOp>)>;

/// The dtypes that a rule is tried with: 8-bit integers, or all where it casts.
fn typings(rule: &ParsedRule, typing: &Typing) -> Vec<Vec<Option<Type>>> {
    let asks_width = (0..rule.name_count()).any(|slot| parsed::asks(rule, Question::Bits, slot));
    let ints: &[DType] = if has_cast(&rule.lhs) || asks_width { &INTS } else { &INTS[..2] };
    let mut found = Vec::new();
    for kinds in typing.assignments() {
        let mut partial: Vec<Vec<Option<Type>>> = vec![Vec::new()];
        for kind in kinds {
            let choices: Vec<Option<Type>> = match kind {
                None => vec![None],
                Some(Kind::Int) => ints.iter().map(|dtype| Some(Type::Int(*dtype))).collect(),
                Some(Kind::Float) => FLOATS.map(|dtype| Some(Type::Float(dtype))).to_vec(),
                Some(Kind::Bool) => vec![Some(Type::Bool)],
                Some(Kind::Void) => vec![Some(Type::Void)],
            };
            let extended = partial.iter().flat_map(|types| {
                choices.iter().map(move |choice| [types.as_slice(), &[*choice]].concat())
            });
            partial = extended.collect();
        }
        found.extend(partial);
    }
    let bitcasts = statics::bitcasts(rule, typing);
    let is_possible = |types: &Vec<Option<Type>>| {
        let of_slot = |slot: usize| typing.of_slot(slot).and_then(|class| types[class]);
        statics::is_of_one_size(&bitcasts, types)
            && !parsed::conditions(rule).any(|condition| statics::never(condition, &of_slot))
    };
    found.retain(is_possible);
    found
}

fn has_cast(pattern: &Pattern) -> bool {
    match pattern {
        Pattern::Node(op, src, _) => {
            matches!(op, Op::Cast | Op::Bitcast) || src.iter().any(has_cast)
        }
        _ => false,
    }
}

/// Returns whether a rule depends on nodes below its pattern: its names must then stand for
/// compound nodes.
fn is_deep(rule: &ParsedRule) -> bool {
    let asks = |question| (0..rule.name_count()).any(|slot| parsed::asks(rule, question, slot));
    let is_about_form = asks(Question::Before) || asks(Question::SameOp);
    parsed::is_computed(rule) || rule.given.is_some() || is_about_form
}

fn domains(rule: &ParsedRule, typing: &Typing, types: &[Option<Type>]) -> Vec<Lists> {
    if let Pattern::Any(slot) = rule.lhs {
        let dtypes = [DType::Bool, DType::I8, DType::U8, DType::F16, DType::F32];
        let wanted = typing.of_slot(slot).and_then(|class| types[class]?.dtype());
        let nodes = dtypes.into_iter().filter(|dtype| Some(*dtype) == wanted);
        return vec![vec![(slot, nodes.flat_map(instance::any_node).collect())]];
    }
    let bound = rule.left_names();
    let mut lists = Lists::new();
    let mut inner = Vec::new();
    within_names(&rule.lhs, &mut inner);
    for slot in bound.filter(|slot| !inner.contains(slot)) {
        let name = rule.name(slot);
        let Some(dtype) = typing.of_slot(slot).and_then(|class| types[class]?.dtype()) else {
            return Vec::new();
        };
        let nodes = match role(&rule.lhs, slot) {
            Role::Global => vec![leaves::global(dtype, 0)],
            _ if dtype == DType::Void => instance::stores(),
            _ if is_constant_name(name) => {
                instance::constants(dtype).into_iter().map(UOp::constant).collect()
            }
            _ if is_deep(rule) => {
                let mut nodes = instance::compounds(dtype);
                nodes.extend(instance::variables(dtype, name));
                nodes
            }
            Role::Value => instance::variables(dtype, name),
        };
        lists.push((slot, nodes));
    }
    vec![lists]
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Value,
    Global,
}

fn role(pattern: &Pattern, slot: usize) -> Role {
    match pattern {
        Pattern::Node(Op::Index, src, _) if matches!(src[0], Pattern::Any(any) if any == slot) => {
            Role::Global
        }
        Pattern::Node(_, src, _) => {
            let roles = src.iter().map(|source| role(source, slot));
            roles.into_iter().find(|role| *role != Role::Value).unwrap_or(Role::Value)
        }
        _ => Role::Value,
    }
}

/// The names of compound nodes within the left side.
fn within_names(pattern: &Pattern, found: &mut Vec<usize>) {
    if let Pattern::Node(_, src, name) = pattern {
        found.extend(*name);
        src.iter().for_each(|source| within_names(source, found));
    }
}

struct Domain<'a> {
    set: &'a RuleSet,
    rule: &'a ParsedRule,
    typing: &'a Typing,
    types: &'a [Option<Type>],
}

impl Domain<'_> {
    /// Builds each left side, applies the rule and compares both sides.
    fn check(
        &self,
        lists: &Lists,
        budget: usize,
        found: &mut Exhausted,
    ) -> Result<(), Box<CounterExample>> {
        let lengths: Vec<usize> = lists.iter().map(|(_, nodes)| nodes.len()).collect();
        let instances = Combinations::new(&lengths, budget / 8);
        found.is_complete &= instances.stride == 1;
        let share = (budget / instances.picked_count().max(1)).max(64);
        for chosen in instances {
            let nodes: Vec<(usize, &UOp)> = lists
                .iter()
                .zip(&chosen)
                .map(|((slot, nodes), pick)| (*slot, &nodes[*pick]))
                .collect();
            let left = instance::build(&self.rule.lhs, self.typing, self.types, &nodes, &mut 0);
            let Some(left) = left else { continue };
            let Some(right) = self.rule.apply(&left, self.set) else { continue };
            found.fired += 1;
            self.compare(&left, &right, &nodes, share, found)?;
        }
        Ok(())
    }

    fn compare(
        &self,
        left: &UOp,
        right: &UOp,
        nodes: &[(usize, &UOp)],
        share: usize,
        found: &mut Exhausted,
    ) -> Result<(), Box<CounterExample>> {
        let is_variable = |node: &UOp| node.op() == Op::DefineVar;
        let free: Vec<UOp> = left.toposort().into_iter().filter(is_variable).collect();
        let [mut before, mut after] = [left, right].map(|side| Side::new(side, &free));
        for lists in points(&free) {
            let lengths: Vec<usize> = lists.iter().map(Vec::len).collect();
            let combinations = Combinations::new(&lengths, share);
            found.is_complete &= combinations.stride == 1;
            for chosen in combinations {
                let point: Vec<Constant> =
                    lists.iter().zip(&chosen).map(|(list, pick)| list[*pick]).collect();
                before.run(&point);
                after.run(&point);
                let (expected, result) = (before.value(), after.value());
                found.points += 1;
                let is_special = || has_special(&before.tape);
                let is_near =
                    |count, x, y| is_within_ulps(&before.tape, left.dtype(), count, (x, y));
                if !is_as_claimed(self.rule.row.claim, expected, result, &is_special, &is_near) {
                    let results = [expected.to_string(), result.to_string()];
                    return Err(self.counter_example(left, right, nodes, &free, &point, results));
                }
            }
        }
        Ok(())
    }

    fn counter_example(
        &self,
        left: &UOp,
        right: &UOp,
        nodes: &[(usize, &UOp)],
        free: &[UOp],
        point: &[Constant],
        results: [String; 2],
    ) -> Box<CounterExample> {
        let name = |variable: &UOp| match variable.arg() {
            gradiff_graph::Arg::Var(variable) => variable.name.clone(),
            _ => String::new(),
        };
        let mut values: Vec<(String, String)> =
            free.iter().zip(point).map(|(node, value)| (name(node), value.to_string())).collect();
        for (slot, node) in nodes {
            if let Some(value) = node.as_const() {
                values.push((self.rule.name(*slot).to_owned(), value.to_string()));
            }
        }
        let subject = free.first().or(nodes.first().map(|(_, node)| *node));
        let dtype = subject.map_or(left.dtype(), UOp::dtype).to_string();
        Box::new(CounterExample { values, dtype, sides: [infix(left), infix(right)], results })
    }
}

/// A side of a rule, and the position of each free variable.
struct Side {
    tape: Tape,
    inputs: Vec<Option<usize>>,
}

impl Side {
    fn new(root: &UOp, free: &[UOp]) -> Side {
        // Addresses are compared wherever they are.
        let tape = Tape::new(&[root], Limits { is_within_arrays: false, ..Limits::default() });
        let inputs = free.iter().map(|variable| tape.position(variable)).collect();
        Side { tape, inputs }
    }

    /// Evaluates the side at a point.
    fn run(&mut self, point: &[Constant]) {
        for (position, value) in self.inputs.iter().zip(point) {
            if let Some(position) = position {
                self.tape.set(*position, Some(*value));
            }
        }
        self.tape.run(&memory);
    }

    fn value(&self) -> &Value {
        self.tape.value(self.tape.nodes().len() - 1)
    }
}

/// The content of an address, by a fixed function that tells addresses apart.
fn memory(dtype: DType, slot: usize, index: i128) -> Constant {
    let mixed = (index as u64 ^ (slot as u64) << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    scalar::number(dtype, mixed.into()).unwrap_or_else(|| scalar::zero(dtype))
}

/// The lists of points for these variables. An f16 variable has all its values; if there are
/// several, each has all values in turn while the others have notable ones.
fn points(free: &[UOp]) -> Vec<Vec<Vec<Constant>>> {
    let f16s = || (0..=u16::MAX).map(|bits| Constant::from_bits(DType::F16, bits.into())).collect();
    let usual: Vec<Vec<Constant>> = free.iter().map(instance::points).collect();
    let halves: Vec<usize> =
        (0..free.len()).filter(|index| free[*index].dtype() == DType::F16).collect();
    if halves.is_empty() {
        return vec![usual];
    }
    let with_all = |index: &usize| {
        let mut lists = usual.clone();
        lists[*index] = f16s();
        lists
    };
    halves.iter().map(with_all).collect()
}

/// All ways to pick an item of each list; every `stride`-th of them if there are too many.
struct Combinations {
    lengths: Vec<usize>,
    total: usize,
    stride: usize,
    next: usize,
}

impl Combinations {
    fn new(lengths: &[usize], limit: usize) -> Combinations {
        let total = lengths.iter().fold(1usize, |total, length| total.saturating_mul(*length));
        let mut stride = if total <= limit.max(1) { 1 } else { (total / limit.max(1)) | 1 };
        // A stride without a common factor with the lengths reaches all combinations of ends.
        while stride > 1 && lengths.iter().any(|length| *length > 1 && gcd(stride, *length) > 1) {
            stride += 2;
        }
        Combinations { lengths: lengths.to_vec(), total, stride, next: 0 }
    }

    fn picked_count(&self) -> usize {
        self.total.div_ceil(self.stride)
    }
}

fn gcd(x: usize, y: usize) -> usize {
    if y == 0 { x } else { gcd(y, x % y) }
}

impl Iterator for Combinations {
    type Item = Vec<usize>;

    fn next(&mut self) -> Option<Vec<usize>> {
        if self.next >= self.total {
            return None;
        }
        let mut index = self.next;
        self.next = self.next.saturating_add(self.stride);
        let pick = |length: &usize| {
            let pick = index % length;
            index /= length;
            pick
        };
        Some(self.lengths.iter().map(pick).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proof::parse_row;
    use gradiff_rewrite::Claim;
    use gradiff_rewrite::rules::rows;
    use rayon::prelude::*;

    #[test]
    fn every_row_keeps_its_claim() {
        let problem = |rule: &Rule| {
            // Sums that an equation can split are rare; f16 needs all values.
            let is_wide = !rule.given.is_empty() || rule.types.are_floats();
            match exhaust_within(rule, if is_wide { BUDGET } else { 20_000 }) {
                Err(example) => Some(format!("{}: {example}", rule.name)),
                Ok(found) if found.fired == 0 => Some(format!("{} never fired", rule.name)),
                Ok(_) => None,
            }
        };
        let problems: Vec<String> = rows().par_iter().filter_map(problem).collect();
        assert!(problems.is_empty(), "{}", problems.join("\n"));
    }

    #[test]
    fn false_rows_are_found_out() {
        for text in [
            "test/wrong-constant: (add (add x c0) c1) => (add x c0)",
            "test/wraps: (cmplt (add x c0) c1) => (cmplt x (sub c1 c0))",
            "test/sign: (cdiv x c0) => (floordiv x c0) when c0 > 0",
            "test/narrow: (cast s@(cast x)) => (cast x) when isint(x)",
            "test/nan floats: (mul x 0.0) => 0.0",
            "test/zero floats: (add x 0.0) => x",
            "test/sqrt floats Ulp(1): (pow x 0.5) => (sqrt x)",
            "test/cube floats: (pow x 3.0) => (mul (mul x x) x)",
            "test/square floats Finite: (sqrt (mul x x)) => x",
            "test/infinite floats Ulp(1): (pow x -1.0) => (where (cmpne x 0.0) (recip x) 0.0)",
        ] {
            assert!(exhaust(&parse_row(text).expect("a row")).is_err(), "{text}");
        }
    }

    #[test]
    fn stronger_claims_of_float_rows_are_found_out() {
        // An input shows why a claim is weaker than Bits. Exceptions are pow, whose library is
        // exact enough in f16, and the larger of two zeros, which is the second one here.
        let starts = ["float/pow-", "float/two-", "float/half-", "float/max-", "float/min-"];
        let is_shown = |rule: &Rule| {
            rule.name.starts_with("float/")
                && rule.claim != Claim::Bits
                && !starts.iter().any(|start| rule.name.starts_with(start))
        };
        let mut shown = 0;
        for rule in rows().into_iter().filter(is_shown) {
            assert!(exhaust(&Rule { claim: Claim::Bits, ..rule }).is_err(), "{}", rule.name);
            shown += 1;
        }
        assert!(shown > 3, "{shown}");
    }
}
