//! Proofs of rules about reductions over ranges, by induction over the trip count.
//!
//! Let n be the trip count of the range r, and F(k) the reduction over the first k iterations: F(0)
//! is the op's identity, and F(k + 1) is `F(k) op body(k)`. A name that is free of r has a single
//! value. Any other name has, within a reduction, its value in the current iteration; outside of
//! reductions it is any value. P(k) says that the rule holds for the first k iterations, with F(k)
//! for each reduction, and with k for `size(r)` on the right side. So P(n) is the rule. It is
//! proved in cases:
//!
//! - n = 0: P(0) is proved. It may only assume what the condition says about n and constants, since
//!   names need not be defined if there is no iteration.
//! - n > 0: P(1) is proved, and P(k) => P(k + 1) for all 0 < k < n.
//! - If `size(r) == c` is in the condition, P(c) is proved instead, unrolled.
//!
//! P(1) and P(k) => P(k + 1) are about a single iteration each, 0 and k, which are less than n. So
//! they may assume what the rule knows about the whole range: `size(r)` in a condition is n; `min`
//! and `max` are numbers that are the same in all iterations; and what bounds, `nowrap`, `linear`
//! and equations say about a node holds for its value in each iteration below n. The left side is
//! defined if its body is defined in every iteration. What the rule knows for n only, namely that
//! its arithmetic fits and that the numbers on the right can be computed, is a goal for both k and
//! k + 1.
//!
//! In P(k) => P(k + 1), F(k) of the left side is the right side at k, by P(k); reductions on the
//! right are unknowns. Sums and products are exact numbers that are congruent to the values modulo
//! 2^bits, as in all proofs. Where an op needs the value itself, P(k) includes that the number is
//! in the range of the dtype.

use gradiff_graph::{Constant, Op};
use gradiff_rewrite::syntax::{Expr, Operator, ParsedRule, Pattern, Question, is_constant_name};

use super::Unsupported;
use super::encode::{Encoder, Overflow, Slot, Type, Value, both, float_literal, float_sort};
use super::lemmas::cofactors;
use super::names::Role;
use super::number::{Number, Theory};
use super::parsed;
use super::typing::{Typing, count};

/// The iterations that a query is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Iterations {
    /// All iterations of a range with this trip count.
    All(u32),
    /// The first iteration of a range that may have more.
    First,
    /// An iteration after the first.
    Next,
}

/// The state of the encoder of a rule about a reduction.
pub(super) struct Reduction {
    /// The slot of the range.
    range: usize,
    /// The numbers of the iterations that the query is about.
    iterations: Vec<Number>,
    /// The value of `size(r)`: in the condition the trip count of the range, on the right side the
    /// number of iterations that are done.
    size: Number,
    /// The reductions on the right side after the first k iterations, by the number of their node.
    done: Vec<(usize, Value)>,
    /// True while P(k) is encoded, false while P(k + 1) is.
    is_before: bool,
    /// The second value of each name that is not free of the range: the one outside of reductions
    /// while [`Reduction::is_inside`], else the one in the current iteration.
    varying: Vec<(usize, Value)>,
    /// True while a body is encoded, false for what is outside of reductions.
    is_inside: bool,
}

impl Iterations {
    /// Returns the queries that together prove a rule.
    pub(super) fn of(rule: &ParsedRule) -> Vec<Iterations> {
        let has_condition = |matches: &dyn Fn(&Expr, Operator, &Expr) -> bool| {
            parsed::conditions(rule).any(|condition| match condition {
                Expr::Binary(operator, left, right) => matches(left, *operator, right),
                _ => false,
            })
        };
        let is_size = |expr: &Expr| matches!(expr, Expr::Ask(Question::Size, _));
        let requires_size = |count: i128| {
            has_condition(&|left: &Expr, operator, right: &Expr| {
                is_size(left)
                    && operator == Operator::Equal
                    && matches!(right, Expr::Int(c) if *c == count)
            })
        };
        if let Some(count) = (2..=8).find(|count| requires_size((*count).into())) {
            return vec![Iterations::All(count)];
        }
        let is_not_empty = has_condition(&|left, operator, right| {
            matches!(left, Expr::Int(0)) && operator == Operator::Less && is_size(right)
        });
        let induction = [Iterations::First, Iterations::Next];
        match is_not_empty {
            true => induction.to_vec(),
            false => [&[Iterations::All(0)], induction.as_slice()].concat(),
        }
    }

    /// Returns the label of the query's goals.
    pub(super) fn name(self) -> String {
        match self {
            Iterations::All(0) => String::from("no iteration"),
            Iterations::All(count) => format!("{count} iterations"),
            Iterations::First => String::from("the first iteration"),
            Iterations::Next => String::from("one more iteration"),
        }
    }
}

/// Encodes these iterations of a rule about a reduction.
///
/// # Errors
/// The rule has a part without terms.
pub(super) fn write<'a>(
    rule: &'a ParsedRule,
    typing: &'a Typing,
    types: &'a [Option<Type>],
    iterations: Iterations,
) -> Result<Encoder<'a>, Unsupported> {
    let Pattern::Reduce(op, src) = &rule.lhs else {
        return Err(Unsupported::new("the left side is no reduction"));
    };
    let [body, Pattern::Any(range)] = &**src else {
        return Err(Unsupported::new("a reduction over something that is no name"));
    };
    let is_empty = iterations == Iterations::All(0);
    let overflow = if is_empty { Overflow::Unknown } else { Overflow::Proved };
    let mut encoder = Encoder::new(rule, typing, types, Theory::Unbounded, overflow);
    encoder.declare_range(*range, iterations);
    encoder.declare_slots(body, Role::Value)?;
    encoder.declare_parts();
    encoder.next = 1;
    let (bodies, defined) = encoder.bodies(body)?;
    encoder.defined = defined;
    if !is_empty {
        encoder.equations()?;
    }
    for condition in parsed::conditions(rule) {
        if !is_empty || encoder.is_about_size(condition) {
            let holds = encoder.condition(condition)?;
            encoder.assumed.push(holds);
        }
    }
    encoder.find_varying(*range)?;
    encoder.swap_varying();
    let class = typing.node(0);
    let mut left = match iterations {
        Iterations::Next => {
            let right = encoder.right(true)?;
            encoder.as_hypothesis(right, *op)
        }
        _ => encoder.identity(*op, class)?,
    };
    for body in bodies {
        left = encoder.op(*op, &[left, body], class, "the reduction")?.0;
    }
    let right = encoder.right(false)?;
    if let (Value::Int { ring: x, .. }, Value::Int { ring: y, .. }) = (&left, &right) {
        encoder.ordered.extend(cofactors(&encoder.script, [x, y]));
    }
    encoder.compare(&left, &right)?;
    Ok(encoder)
}

impl Encoder<'_> {
    /// Declares n and the iterations of the query. The end of a range is a constant of its dtype.
    fn declare_range(&mut self, range: usize, iterations: Iterations) {
        let class = self.typing.of_slot(range).unwrap_or_default();
        let size = self.script.unknown("size_r", 0);
        let inside = self.is_inside(&size, class);
        self.script.fact(inside);
        let [zero, one] = [0, 1].map(|value| self.script.literal(value));
        self.script.fact(self.script.at_most(&zero, &size));
        let iterations = match iterations {
            Iterations::All(count) => {
                self.script.fact(format!("(= {} {count})", size.text));
                (0..count).map(|iteration| self.script.literal(iteration.into())).collect()
            }
            Iterations::First => {
                self.script.fact(self.script.at_most(&one, &size));
                vec![zero]
            }
            Iterations::Next => {
                let iteration = self.script.unknown("step_r", 0);
                self.script.fact(self.script.at_most(&one, &iteration));
                self.script.fact(self.script.less(&iteration, &size));
                vec![iteration]
            }
        };
        self.reduction = Some(Reduction {
            range,
            iterations,
            size,
            done: Vec::new(),
            is_before: false,
            varying: Vec::new(),
            is_inside: true,
        });
        let outside = self.script.unknown("outer_r", 0);
        self.slots[range] = Some(Slot { value: exact(outside, class), bounds: None, exact: None });
    }

    /// Returns the values of a body in each iteration, and the condition that all of them are
    /// defined.
    fn bodies(&mut self, body: &Pattern) -> Result<(Vec<Value>, String), Unsupported> {
        let Some(reduction) = &self.reduction else {
            return Err(Unsupported::new("a reduction over a range"));
        };
        let (range, first) = (reduction.range, self.next);
        let iterations = reduction.iterations.clone();
        let class = self.typing.of_slot(range).unwrap_or_default();
        let (mut values, mut defined) = (Vec::new(), String::from("true"));
        for iteration in iterations {
            if let Some(slot) = &mut self.slots[range] {
                slot.value = exact(iteration, class);
            }
            self.next = first;
            let (value, is_defined) = self.node(body)?;
            values.push(value);
            defined = both(&defined, &is_defined);
        }
        self.next = first + count(body) + 1;
        Ok((values, defined))
    }

    /// Declares the arbitrary values that names that are not free of the range have outside of
    /// reductions.
    fn find_varying(&mut self, range: usize) -> Result<(), Unsupported> {
        for slot in 1..self.slots.len() {
            let Some(value) = self.slots[slot].as_ref().map(|slot| slot.value.clone()) else {
                continue;
            };
            if self.is_free(slot) {
                continue;
            }
            let name = self.script.fresh("outside");
            let outside = match value {
                Value::Int { class, .. } => exact(self.script.unknown(&name, 0), class),
                Value::Truth(_) => Value::Truth(self.script.declare(&name, "Bool")),
                Value::Float(_, dtype) => {
                    Value::Float(self.script.declare(&name, &float_sort(dtype)), dtype)
                }
                _ => return Err(Unsupported::new("an address within a reduction")),
            };
            let Some(reduction) = &mut self.reduction else { continue };
            if slot != range && reduction.iterations.len() > 1 {
                return Err(Unsupported::new("unrolled iterations that differ"));
            }
            reduction.varying.push((slot, outside));
        }
        Ok(())
    }

    /// Goes into a reduction or out of it: swaps the two values of each name in
    /// [`Reduction::varying`].
    fn swap_varying(&mut self) {
        let Some(reduction) = &mut self.reduction else { return };
        reduction.is_inside = !reduction.is_inside;
        for (slot, value) in &mut reduction.varying {
            if let Some(slot) = &mut self.slots[*slot] {
                std::mem::swap(&mut slot.value, value);
            }
        }
    }

    /// Returns the right side after the iterations of the query, or before the last of them.
    fn right(&mut self, is_before: bool) -> Result<Value, Unsupported> {
        let (rule, one) = (self.rule, self.script.literal(1));
        let Some(reduction) = &mut self.reduction else {
            return Err(Unsupported::new("no reduction"));
        };
        reduction.is_before = is_before;
        reduction.size = match reduction.iterations.last() {
            None => self.script.literal(0),
            Some(iteration) if is_before => iteration.clone(),
            Some(iteration) => self.script.add(iteration, &one),
        };
        self.next = count(&rule.lhs);
        Ok(self.node(&rule.rhs)?.0)
    }

    /// Returns a reduction on the right side.
    pub(super) fn inner_reduction(
        &mut self,
        op: Op,
        [body, range]: &[Pattern; 2],
        class: usize,
    ) -> Result<Value, Unsupported> {
        let node = self.next;
        let is_known = |reduction: &&mut Reduction| {
            !reduction.is_inside && matches!(range, Pattern::Any(slot) if *slot == reduction.range)
        };
        let Some(reduction) = self.reduction.as_mut().filter(is_known) else {
            return Err(Unsupported::new("a reduction over another range"));
        };
        if reduction.is_before {
            let value = self.unknown_reduction(op, class)?;
            self.next = node + count(body) + 1;
            self.reduction
                .iter_mut()
                .for_each(|reduction| reduction.done.push((node, value.clone())));
            return Ok(value);
        }
        let done = reduction.done.iter().find(|(known, _)| *known == node).map(|(_, v)| v.clone());
        let start = done.map_or_else(|| self.identity(op, class), Ok)?;
        self.swap_varying();
        let (bodies, _) = self.bodies(body)?;
        self.swap_varying();
        bodies
            .into_iter()
            .try_fold(start, |sum, body| Ok(self.op(op, &[sum, body], class, "a reduction")?.0))
    }

    /// Declares a reduction on the right side after the first k iterations.
    fn unknown_reduction(&mut self, op: Op, class: usize) -> Result<Value, Unsupported> {
        let name = self.script.fresh("fold");
        Ok(match self.type_of(class) {
            Type::Any { .. } => {
                let ring = self.script.unknown(&name, 0);
                self.as_hypothesis(Value::Int { ring, read: None, class }, op)
            }
            Type::Bool => Value::Truth(self.script.declare(&name, "Bool")),
            Type::Float(dtype) => {
                Value::Float(self.script.declare(&name, &float_sort(dtype)), dtype)
            }
            _ => return Err(Unsupported::new("a reduction of this dtype")),
        })
    }

    /// Returns the value of a reduction at k. If the op needs the value itself, the number is
    /// assumed to be in the range of the dtype.
    fn as_hypothesis(&mut self, value: Value, op: Op) -> Value {
        match value {
            Value::Int { ring, class, .. } if !matches!(op, Op::Add | Op::Mul) => {
                let inside = self.is_inside(&ring, class);
                self.assumed.push(inside);
                exact(ring, class)
            }
            value => value,
        }
    }

    /// Returns the value of a reduction without iterations.
    fn identity(&mut self, op: Op, class: usize) -> Result<Value, Unsupported> {
        let unknown = || Unsupported(format!("a reduction by {op} has no terms"));
        let is_one = match op {
            Op::Add | Op::Max => false,
            Op::Mul => true,
            _ => return Err(unknown()),
        };
        Ok(match self.type_of(class) {
            Type::Any { .. } if op == Op::Max => {
                let [low, _] = self.range(class).ok_or_else(unknown)?;
                exact(low, class)
            }
            Type::Any { .. } => exact(self.script.literal(is_one.into()), class),
            Type::Bool => Value::Truth(is_one.to_string()),
            Type::Float(dtype) => {
                let constant = match op {
                    Op::Add => Constant::zero(dtype),
                    Op::Mul => Constant::one(dtype),
                    _ => Constant::smallest(dtype),
                };
                Value::Float(float_literal(constant), dtype)
            }
            _ => return Err(unknown()),
        })
    }

    // Conditions.

    /// Returns the value of `size(r)`.
    pub(super) fn size(&self, range: usize) -> Result<Number, Unsupported> {
        let reduction = self.reduction.as_ref().filter(|reduction| reduction.range == range);
        reduction
            .map(|reduction| reduction.size.clone())
            .ok_or(Unsupported::new("the size of another range"))
    }

    /// Returns whether a name is free of the range: it is a constant, or the condition says so.
    pub(super) fn is_free(&self, slot: usize) -> bool {
        let Some(reduction) = &self.reduction else { return false };
        let names = [slot, reduction.range];
        let is_statement =
            |part: &Expr| matches!(part, Expr::Ask(Question::Free, slots) if *slots == names);
        is_constant_name(self.rule.name(slot)) || parsed::conditions(self.rule).any(is_statement)
    }

    /// Returns whether a condition is about the trip count and constants alone.
    fn is_about_size(&self, condition: &Expr) -> bool {
        let Some(reduction) = &self.reduction else { return false };
        let is_constant = |slot: &usize| is_constant_name(self.rule.name(*slot));
        parsed::names(condition).iter().all(|slot| *slot == reduction.range || is_constant(slot))
    }
}

/// The value that is this number, which is in the range of the dtype.
fn exact(number: Number, class: usize) -> Value {
    Value::Int { ring: number.clone(), read: Some(number), class }
}
