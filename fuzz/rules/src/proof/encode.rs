//! Both sides of a rule as SMT-LIB terms.
//!
//! Each integer node has a *ring* term: an exact number that is congruent to the node's value
//! modulo 2^bits. Additions, negations, products, choices and left shifts are homomorphisms of the
//! ring of integers modulo 2^bits, so what holds between ring terms over the integers holds between
//! values that wrap. Where the value itself counts (order, division, casts), the node is *read*:
//! either it is an obligation of its own that the ring term lies in the dtype's range
//! ("no overflow"), or the term is wrapped, which needs a dtype of known width.
//!
//! Undefined values of the left side may be assumed not to occur; an undefined value of the right
//! side is any value. A name is any value of its dtype, within its bounds wherever it is defined.
//! [`super::induction`] encodes reductions.

use gradiff_graph::{Constant, DType, Op};
use gradiff_rewrite::Claim;
use gradiff_rewrite::syntax::{Literal, ParsedRule, Pattern, Question, is_constant_name};

use super::induction::Reduction;
use super::lemmas::Finder;
use super::names::Role;
use super::number::{Number, Rounding, Script, Theory};
use super::parsed::{self, says};
use super::typing::Typing;
use super::{Obligation, Unsupported};

/// The dtype of a class of positions in a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    /// An integer type of any width from 8 bits on.
    Any {
        /// True if it has negative values.
        is_signed: bool,
    },
    /// An integer type.
    Int(DType),
    Bool,
    Float(DType),
    /// Bits without meaning.
    Raw(DType),
    Void,
}

impl Type {
    /// The dtype; `None` if it may have any width. That of nodes without a value is void.
    pub(super) fn dtype(self) -> Option<DType> {
        match self {
            Type::Int(dtype) | Type::Float(dtype) | Type::Raw(dtype) => Some(dtype),
            Type::Bool => Some(DType::Bool),
            Type::Void => Some(DType::Void),
            Type::Any { .. } => None,
        }
    }
}

/// A node in SMT-LIB.
#[derive(Clone, Debug)]
pub(super) enum Value {
    /// The ring term, and the value where it is known to be in range.
    Int {
        ring: Number,
        read: Option<Number>,
        class: usize,
    },
    Truth(String),
    Float(String, DType),
    Raw(String, DType),
    /// An array, an index and a gate.
    Address {
        global: String,
        index: Number,
        gate: String,
        class: usize,
    },
}

/// The reading of a node whose ring term may leave the dtype's range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Overflow {
    /// A goal says that it does not.
    Proved,
    /// The term is wrapped.
    Wrapped,
    /// It may then be any value: nothing is known about the names.
    Unknown,
}

/// A goal, under the facts before it.
pub(super) struct Goal {
    pub(super) label: String,
    pub(super) goal: String,
    /// Number of the ordered facts that come before it.
    after: usize,
    /// The terms that it compares, for lemmas.
    terms: Vec<String>,
}

/// A name: its value and its bounds.
#[derive(Clone)]
pub(super) struct Slot {
    pub(super) value: Value,
    pub(super) bounds: Option<[Number; 2]>,
    /// The exact value of a sum that an equation splits, where it is not the value's ring
    /// term.
    pub(super) exact: Option<Number>,
}

/// Encoding of a rule.
pub(super) struct Encoder<'a> {
    pub(super) rule: &'a ParsedRule,
    pub(super) typing: &'a Typing,
    types: &'a [Option<Type>],
    pub(super) script: Script,
    overflow: Overflow,
    pub(super) slots: Vec<Option<Slot>>,
    /// Facts that follow from the condition and the equations.
    pub(super) assumed: Vec<String>,
    /// Facts that are known once the goals before them are proved.
    pub(super) ordered: Vec<String>,
    pub(super) goals: Vec<Goal>,
    /// The condition that the left side is defined.
    pub(super) defined: String,
    /// The number of the next pattern node.
    pub(super) next: usize,
    /// The iterations that are encoded, if the rule is about a reduction.
    pub(super) reduction: Option<Reduction>,
    /// The float terms that are casts of integers, and those integers.
    pub(super) of_ints: Vec<(String, Number)>,
    /// The numbers that are cast to floats, and the dtypes.
    pub(super) nearest: Vec<(String, DType)>,
    /// The float terms that were cast to wider dtypes, and their sources.
    pub(super) widened: Vec<(String, String)>,
    /// The float terms that are cast to integers.
    pub(super) wholes: Vec<String>,
}

impl<'a> Encoder<'a> {
    /// An encoding with nothing but the ranges of the dtypes.
    pub(super) fn new(
        rule: &'a ParsedRule,
        typing: &'a Typing,
        types: &'a [Option<Type>],
        theory: Theory,
        overflow: Overflow,
    ) -> Encoder<'a> {
        let mut encoder = Encoder {
            rule,
            typing,
            types,
            script: Script::new(theory),
            overflow,
            slots: vec![None; rule.name_count()],
            assumed: Vec::new(),
            ordered: Vec::new(),
            goals: Vec::new(),
            defined: String::from("true"),
            next: 0,
            reduction: None,
            of_ints: Vec::new(),
            nearest: Vec::new(),
            widened: Vec::new(),
            wholes: Vec::new(),
        };
        encoder.script.declarations.push(String::from("(declare-sort Global 0)"));
        encoder.declare_ranges();
        encoder
    }

    /// Encodes the whole rule.
    ///
    /// # Errors
    /// The rule has a part without terms.
    pub(super) fn write(
        rule: &'a ParsedRule,
        typing: &'a Typing,
        types: &'a [Option<Type>],
        theory: Theory,
        overflow: Overflow,
    ) -> Result<Encoder<'a>, Unsupported> {
        let mut encoder = Encoder::new(rule, typing, types, theory, overflow);
        encoder.declare_slots(&rule.lhs, Role::Value)?;
        encoder.declare_parts();
        let (left, defined) = encoder.node(&rule.lhs)?;
        encoder.defined = defined;
        let left = encoder.name_root(left)?;
        encoder.equations()?;
        for condition in parsed::conditions(rule) {
            let holds = encoder.condition(condition)?;
            encoder.assumed.push(holds);
        }
        let (right, _) = encoder.node(&rule.rhs)?;
        encoder.compare(&left, &right)?;
        encoder.define_multiples();
        Ok(encoder)
    }

    /// Adds the last goal: the claim.
    pub(super) fn compare(&mut self, left: &Value, right: &Value) -> Result<(), Unsupported> {
        let goal = self.same(left, right)?;
        let terms = [left, right].into_iter().filter_map(ring).map(|ring| ring.text).collect();
        self.goal(String::from("both sides are equal"), goal, terms);
        Ok(())
    }

    /// If the condition says `c0 % c1 == 0`, defines c0 as c1 times the quotient.
    fn define_multiples(&mut self) {
        for condition in parsed::conditions(self.rule) {
            let Some([multiple, divisor]) = parsed::multiple(condition) else { continue };
            let [multiple, divisor] =
                [multiple, divisor].map(|slot| format!("v_{}", self.rule.name(slot)));
            let mut divisions = self.script.divisions.iter();
            let known = divisions.find(|known| {
                known.numerator == multiple
                    && known.divisor == divisor
                    && known.quotient.starts_with("floor")
            });
            if let Some(quotient) = known.map(|known| known.quotient.clone())
                && self.script.theory == Theory::Unbounded
            {
                self.script.define(&multiple, &format!("(* {divisor} {quotient})"));
            }
        }
    }

    pub(super) fn goal(&mut self, label: String, goal: String, terms: Vec<String>) {
        self.goals.push(Goal { label, goal, after: self.ordered.len(), terms });
    }

    /// The obligations; `manner` names the dtypes and the encoding.
    pub(super) fn obligations(&self, manner: &str) -> Vec<Obligation> {
        let equations = [self.assumed.as_slice(), &self.script.facts].concat();
        let has_lemmas =
            self.script.theory == Theory::Unbounded && !self.script.divisions.is_empty();
        let finder = has_lemmas.then(|| Finder::new(&self.script, &equations));
        let obligation = |goal: &Goal| Obligation {
            label: format!("{manner}: {}", goal.label),
            premises: self.premises(goal, finder.as_ref()),
            goal: goal.goal.clone(),
            values: self.values(),
        };
        self.goals.iter().map(obligation).collect()
    }

    /// The premises of a goal.
    fn premises(&self, goal: &Goal, finder: Option<&Finder>) -> String {
        let mut text = String::new();
        for line in &self.script.declarations {
            text += line;
            text.push('\n');
        }
        let lemmas = finder.map(|finder| finder.lemmas(&goal.terms)).unwrap_or_default();
        let facts = self.script.facts.iter().chain(&self.assumed).chain(&lemmas);
        for fact in facts.chain(&self.ordered[..goal.after]).chain([&self.defined]) {
            if fact != "true" {
                text += &format!("(assert {fact})\n");
            }
        }
        // After a push z3 uses its incremental core, which makes use of the lemmas; its tactics for
        // nonlinear integers drop them.
        let has_products = !self.script.divisions.is_empty() || self.reduction.is_some();
        let push =
            if self.script.theory == Theory::Unbounded && has_products { "(push)\n" } else { "" };
        text + push
    }

    /// The names whose values form a counter-example.
    fn values(&self) -> Vec<String> {
        let bound = self.rule.left_names();
        let is_range = |slot: &usize| self.size(*slot).is_ok();
        let names = bound.filter(|slot| {
            !is_range(slot) && matches!(&self.slots[*slot], Some(slot) if is_plain(slot))
        });
        names.map(|slot| format!("v_{}", self.rule.name(slot))).collect()
    }

    pub(super) fn type_of(&self, class: usize) -> Type {
        self.types[class].unwrap_or(Type::Void)
    }

    // Ranges of dtypes.

    fn declare_ranges(&mut self) {
        for class in 0..self.types.len() {
            let Some(Type::Any { is_signed }) = self.types[class] else { continue };
            let half = self.script.declare(&format!("half_{class}"), "Int");
            self.script.fact(format!("(<= 1 {half})"));
            let (low, high) = match is_signed {
                true => (format!("(* (- 128) {half})"), format!("(- (* 128 {half}) 1)")),
                false => (String::from("0"), format!("(- (* 256 {half}) 1)")),
            };
            for (name, value) in [("low", low), ("high", high)] {
                let line = format!("(define-fun {name}_{class} () Int {value})");
                self.script.declarations.push(line);
            }
        }
    }

    /// The smallest and largest value of an integer or bool class.
    pub(super) fn range(&mut self, class: usize) -> Option<[Number; 2]> {
        match self.type_of(class) {
            Type::Any { .. } => {
                let name = |name: &str| Number { text: format!("{name}_{class}"), bits: 0 };
                Some([name("low"), name("high")])
            }
            Type::Int(dtype) => {
                let (low, high) = dtype.int_range()?;
                Some([self.script.literal(low), self.script.literal(high)])
            }
            Type::Bool => Some([self.script.literal(0), self.script.literal(1)]),
            Type::Float(_) | Type::Raw(_) | Type::Void => None,
        }
    }

    /// Number of bits that a value of the class needs, sign included.
    pub(super) fn bits(&self, class: usize) -> u32 {
        match self.type_of(class) {
            Type::Int(dtype) => dtype.bits() + u32::from(dtype.is_unsigned()),
            _ => 0,
        }
    }

    pub(super) fn is_inside(&mut self, number: &Number, class: usize) -> String {
        let Some([low, high]) = self.range(class) else { return String::from("false") };
        let ends = [self.script.at_most(&low, number), self.script.at_most(number, &high)];
        format!("(and {} {})", ends[0], ends[1])
    }

    /// The modulus 2^bits of a class.
    fn modulus(&mut self, class: usize) -> Number {
        match self.type_of(class) {
            Type::Int(dtype) => self.script.literal(1 << dtype.bits()),
            _ => Number { text: format!("(* 256 half_{class})"), bits: 0 },
        }
    }

    /// The term that two numbers are congruent modulo 2^bits.
    pub(super) fn congruent(&mut self, x: &Number, y: &Number, class: usize) -> String {
        if let Type::Int(dtype) = self.type_of(class) {
            return self.script.congruent(x, y, dtype.bits());
        }
        let turns = self.script.fresh("turns");
        let turns = self.script.unknown(&turns, 0);
        let modulus = self.modulus(class);
        format!("(= {} (+ {} (* {} {})))", x.text, y.text, turns.text, modulus.text)
    }

    // Nodes.

    /// The value of a pattern, and the condition that it is defined.
    pub(super) fn node(&mut self, pattern: &Pattern) -> Result<(Value, String), Unsupported> {
        let class = self.typing.node(self.next);
        self.next += 1;
        let always = String::from("true");
        match pattern {
            Pattern::Any(slot) | Pattern::Constant(slot) => {
                let known = self.slots[*slot].clone();
                let known = known.ok_or(Unsupported::new("a name without a value"))?;
                let name = self.rule.name(*slot).to_owned();
                let may_be_undefined = self.has_choice() && !is_constant_name(&name);
                let defined = if may_be_undefined { self.flag(&name) } else { always };
                Ok((known.value, defined))
            }
            Pattern::Literal(literal) => Ok((self.literal(*literal, class)?, always)),
            Pattern::Value(expr) => {
                let (number, defined) = self.number(expr)?;
                match self.reduction {
                    // The rule fires if it can be computed for all iterations, not for some.
                    Some(_) => self.goal(String::from("a number exists"), defined, Vec::new()),
                    None => self.assumed.push(defined),
                }
                Ok((self.constant(number, class)?, always))
            }
            Pattern::Node(op, src, name) => {
                let mut values = Vec::new();
                let mut defined = Vec::new();
                for source in src {
                    let (value, is_defined) = self.node(source)?;
                    values.push(value);
                    defined.push(is_defined);
                }
                let shown = parsed::show(pattern, self.rule);
                let is_exact = name.is_some_and(|slot| says(self.rule, Question::NoWrap, slot));
                if is_exact {
                    for value in &mut values {
                        *value = self.as_read(value, &shown)?;
                    }
                }
                let (value, op_defined) = self.op(*op, &values, class, &shown)?;
                let value = match name {
                    Some(slot) => self.name_node(*slot, value, class, is_exact)?,
                    None => value,
                };
                let defined = match (op, defined.as_slice()) {
                    // The branch that is not taken may be undefined.
                    (Op::Where, [condition, x, y]) => {
                        let test = truth(&values[0])?;
                        both(condition, &choice(&test, x, y))
                    }
                    _ => defined.iter().fold(op_defined, |sum, source| both(&sum, source)),
                };
                Ok((value, defined))
            }
            Pattern::Reduce(op, src) => Ok((self.inner_reduction(*op, src, class)?, always)),
            Pattern::Computed(_) => Err(Unsupported::new("the right side is computed")),
        }
    }

    /// A constant of the class, wrapped to its dtype.
    fn constant(&mut self, number: Number, class: usize) -> Result<Value, Unsupported> {
        match self.type_of(class) {
            Type::Any { .. } | Type::Int(_) => Ok(Value::Int { ring: number, read: None, class }),
            Type::Bool => {
                let zero = self.script.literal(0);
                Ok(Value::Truth(format!("(distinct {} {})", number.text, zero.text)))
            }
            _ => Err(Unsupported::new("a computed constant that is no integer")),
        }
    }

    fn literal(&mut self, literal: Literal, class: usize) -> Result<Value, Unsupported> {
        match (literal, self.type_of(class)) {
            (Literal::Truth(value), Type::Bool) => Ok(Value::Truth(value.to_string())),
            (Literal::Int(value), Type::Bool) => Ok(Value::Truth((value != 0).to_string())),
            (Literal::Int(value), Type::Int(dtype)) => {
                let wrapped = Constant::int(dtype, value.into()).to_int().unwrap_or_default();
                let read = self.script.literal(wrapped);
                Ok(Value::Int { ring: read.clone(), read: Some(read), class })
            }
            (Literal::Int(value), Type::Any { is_signed }) => {
                let ring = self.script.literal(value.into());
                let is_inside = value <= 127 && (0 <= value || is_signed && -128 <= value);
                let read = if is_inside {
                    Some(ring.clone())
                } else if !is_signed && (-256..0).contains(&value) {
                    let modulus = self.modulus(class);
                    Some(self.script.add(&ring, &modulus))
                } else {
                    None
                };
                Ok(Value::Int { ring, read, class })
            }
            (Literal::Float(value), Type::Float(dtype)) => {
                Ok(Value::Float(float_literal(Constant::float(dtype, value)), dtype))
            }
            (Literal::Int(0), Type::Raw(dtype)) => Ok(Value::Raw(raw_zero(dtype), dtype)),
            (Literal::Int(value), Type::Float(dtype)) => {
                Ok(Value::Float(float_literal(Constant::int(dtype, value.into())), dtype))
            }
            _ => Err(Unsupported::new("a constant of another dtype than its position")),
        }
    }

    // Reading.

    /// The value of an integer; `shown` describes it in the goal that it does not overflow.
    pub(super) fn read(&mut self, value: &Value, shown: &str) -> Result<Number, Unsupported> {
        let Value::Int { ring, read, class } = value else {
            return Err(Unsupported::new("an integer op over something else"));
        };
        if let Some(read) = read {
            return Ok(read.clone());
        }
        match (self.overflow, self.type_of(*class)) {
            (Overflow::Wrapped, Type::Int(dtype)) => {
                let range = dtype.int_range().unwrap_or_default();
                Ok(self.script.wrap(ring, range, dtype.bits()))
            }
            (Overflow::Wrapped, _) => Err(Unsupported::new("wrapping needs a width")),
            (Overflow::Unknown, _) => {
                let any = self.script.fresh("any");
                let any = self.script.unknown(&any, 0);
                let inside = self.is_inside(&any, *class);
                self.script.fact(inside);
                let inside = self.is_inside(ring, *class);
                Ok(self.script.choose(&inside, ring, &any))
            }
            (Overflow::Proved, _) => {
                let inside = self.is_inside(ring, *class);
                if !self.ordered.contains(&inside) {
                    let terms = vec![ring.text.clone()];
                    self.goal(format!("no overflow in {shown}"), inside.clone(), terms);
                    self.ordered.push(inside);
                }
                Ok(ring.clone())
            }
        }
    }

    pub(super) fn as_read(&mut self, value: &Value, shown: &str) -> Result<Value, Unsupported> {
        match value {
            Value::Int { class, .. } => {
                let number = self.read(value, shown)?;
                Ok(Value::Int { ring: number.clone(), read: Some(number), class: *class })
            }
            value => Ok(value.clone()),
        }
    }

    pub(super) fn as_number(&mut self, truth: &str) -> Number {
        let [if_true, if_false] = [1, 0].map(|value| self.script.literal(value));
        self.script.choose(truth, &if_true, &if_false)
    }

    // Ops.

    /// An op over values, and the condition that the op itself is defined.
    pub(super) fn op(
        &mut self,
        op: Op,
        src: &[Value],
        class: usize,
        shown: &str,
    ) -> Result<(Value, String), Unsupported> {
        let always = String::from("true");
        let value = match (op, src) {
            (Op::Cast, [Value::Float(text, from)]) => return self.float_cast(text, *from, class),
            (Op::Cast | Op::Bitcast, [x]) => self.cast(op, x, class, shown)?,
            (Op::Where, [test, x, y]) => self.choose(&truth(test)?, x, y)?,
            (Op::Index, _) => self.index(src, shown)?,
            (Op::Load, [Value::Address { global, index, gate, class }]) => {
                self.load(global, index, gate, *class)?
            }
            (_, [Value::Float(..), ..]) => super::floats::op(op, src)?,
            (_, [Value::Truth(x), Value::Truth(y)]) => Value::Truth(truth_op(op, x, y)?),
            (_, [Value::Int { .. }, ..]) => return self.int_op(op, src, class, shown),
            _ => return Err(Unsupported(format!("{op} has no terms"))),
        };
        Ok((value, always))
    }

    pub(super) fn choose(
        &mut self,
        test: &str,
        x: &Value,
        y: &Value,
    ) -> Result<Value, Unsupported> {
        Ok(match (x, y) {
            (
                Value::Int { ring: x, read: first, class },
                Value::Int { ring: y, read: second, .. },
            ) => {
                let read = match (first, second) {
                    (Some(x), Some(y)) => Some(self.script.choose(test, x, y)),
                    _ => None,
                };
                Value::Int { ring: self.script.choose(test, x, y), read, class: *class }
            }
            (Value::Truth(x), Value::Truth(y)) => Value::Truth(choice(test, x, y)),
            (Value::Float(x, dtype), Value::Float(y, _)) => {
                Value::Float(choice(test, x, y), *dtype)
            }
            (Value::Raw(x, dtype), Value::Raw(y, _)) => Value::Raw(choice(test, x, y), *dtype),
            _ => return Err(Unsupported::new("a choice between two kinds")),
        })
    }

    fn int_op(
        &mut self,
        op: Op,
        src: &[Value],
        class: usize,
        shown: &str,
    ) -> Result<(Value, String), Unsupported> {
        let always = String::from("true");
        let rings: Vec<Number> = src.iter().filter_map(ring).collect();
        let sum = match (op, rings.as_slice()) {
            (Op::Neg, [x]) => Some(self.script.neg(x)),
            (Op::Add, [x, y]) => Some(self.script.add(x, y)),
            (Op::Sub, [x, y]) => Some(self.script.sub(x, y)),
            (Op::Mul, [x, y]) => Some(self.script.mul(x, y)),
            (Op::MulAcc, [x, y, z]) => {
                let product = self.script.mul(x, y);
                Some(self.script.add(&product, z))
            }
            _ => None,
        };
        if let Some(ring) = sum {
            return Ok((Value::Int { ring, read: None, class }, always));
        }
        let [first, second] = src else { return Err(Unsupported(format!("{op} has no terms"))) };
        let x = self.read(first, shown)?;
        let y = self.read(second, shown)?;
        let zero = self.script.literal(0);
        let not_zero = format!("(distinct {} {})", y.text, zero.text);
        let inside =
            |number: Number| Value::Int { ring: number.clone(), read: Some(number), class };
        match op {
            Op::FloorDiv | Op::CDiv => {
                let rounding = if op == Op::CDiv { Rounding::Zero } else { Rounding::Floor };
                let [quotient, _] = self.script.divide(rounding, &x, &y);
                // The smallest integer over -1 wraps.
                Ok((Value::Int { ring: quotient, read: None, class }, not_zero))
            }
            Op::FloorMod | Op::CMod => {
                let rounding = if op == Op::CMod { Rounding::Zero } else { Rounding::Floor };
                let [_, rest] = self.script.divide(rounding, &x, &y);
                Ok((inside(rest), not_zero))
            }
            Op::Max | Op::Min => {
                let (small, large) = if op == Op::Max { (&x, &y) } else { (&y, &x) };
                let test = self.script.less(small, large);
                Ok((inside(self.script.choose(&test, &y, &x)), always))
            }
            Op::CmpLt => Ok((Value::Truth(self.script.less(&x, &y)), always)),
            Op::CmpNe => Ok((Value::Truth(format!("(distinct {} {})", x.text, y.text)), always)),
            Op::And => Ok((inside(self.script.bitwise("bvand", &x, &y)?), always)),
            Op::Or => Ok((inside(self.script.bitwise("bvor", &x, &y)?), always)),
            Op::Xor => Ok((inside(self.script.bitwise("bvxor", &x, &y)?), always)),
            Op::Shl | Op::Shr => self.shift(op, &x, &y, class),
            _ => Err(Unsupported(format!("{op} has no terms"))),
        }
    }

    fn shift(
        &mut self,
        op: Op,
        x: &Number,
        y: &Number,
        class: usize,
    ) -> Result<(Value, String), Unsupported> {
        let Type::Int(dtype) = self.type_of(class) else {
            return Err(Unsupported::new("a shift needs a width"));
        };
        let [zero, bits] = [0, dtype.bits().into()].map(|value| self.script.literal(value));
        let inside =
            format!("(and {} {})", self.script.at_most(&zero, y), self.script.less(y, &bits));
        let shifted = self.script.shift(op == Op::Shl, x, y, dtype.bits())?;
        // The result of a shift that is too far is any number.
        let any = self.script.fresh("shifted");
        let any = self.script.unknown(&any, self.bits(class));
        let ring = self.script.choose(&inside, &shifted, &any);
        let read = (op == Op::Shr).then(|| ring.clone());
        Ok((Value::Int { ring, read, class }, inside))
    }

    fn cast(&mut self, op: Op, x: &Value, class: usize, shown: &str) -> Result<Value, Unsupported> {
        let to = self.type_of(class);
        if let (Value::Raw(x, from), Type::Raw(to)) = (x, to) {
            return raw_cast(op, x, *from, to);
        }
        if op == Op::Bitcast {
            return match (x, to) {
                (Value::Float(_, from), Type::Float(to)) if *from == to => Ok(x.clone()),
                (Value::Truth(_), Type::Bool) => Ok(x.clone()),
                _ => Err(Unsupported::new("a bitcast needs raw bits")),
            };
        }
        match (x, to) {
            (Value::Truth(x), Type::Any { .. } | Type::Int(_)) => {
                let number = self.as_number(x);
                Ok(Value::Int { ring: number.clone(), read: Some(number), class })
            }
            (Value::Truth(_), Type::Bool) => Ok(x.clone()),
            (Value::Int { class: from, .. }, Type::Any { .. } | Type::Int(_)) => {
                let is_within = *from == class || is_within(self.type_of(*from), to);
                let number = self.read(x, shown)?;
                let read = is_within.then(|| number.clone());
                Ok(Value::Int { ring: number, read, class })
            }
            (Value::Int { .. }, Type::Bool) => {
                let (number, zero) = (self.read(x, shown)?, self.script.literal(0));
                Ok(Value::Truth(format!("(distinct {} {})", number.text, zero.text)))
            }
            (Value::Int { .. } | Value::Truth(_), Type::Float(dtype)) => {
                self.int_cast(x, dtype, shown)
            }
            _ => Err(Unsupported::new("a cast between these dtypes")),
        }
    }

    fn index(&mut self, src: &[Value], shown: &str) -> Result<Value, Unsupported> {
        let (Some(Value::Address { global, class, .. }), Some(index)) = (src.first(), src.get(1))
        else {
            return Err(Unsupported::new("an index without its array"));
        };
        let gate = match src.get(2) {
            None => String::from("true"),
            Some(gate) => truth(gate)?,
        };
        let index = self.read(index, shown)?;
        Ok(Value::Address { global: global.clone(), index, gate, class: *class })
    }

    /// The content of an address, 0 behind a closed gate.
    fn load(
        &mut self,
        global: &str,
        index: &Number,
        gate: &str,
        class: usize,
    ) -> Result<Value, Unsupported> {
        let kind = self.type_of(class);
        let number = self.script.sort();
        let sort = match kind {
            Type::Any { .. } | Type::Int(_) => number.clone(),
            Type::Bool => String::from("Bool"),
            Type::Float(dtype) => float_sort(dtype),
            Type::Raw(dtype) => format!("(_ BitVec {})", 8 * dtype.size_bytes()),
            Type::Void => return Err(Unsupported::new("a load of nothing")),
        };
        let line = format!("(declare-fun memory_{class} (Global {number}) {sort})");
        if !self.script.declarations.contains(&line) {
            self.script.declarations.push(line);
        }
        let found = format!("(memory_{class} {global} {})", index.text);
        Ok(match kind {
            Type::Bool => Value::Truth(choice(gate, &found, "false")),
            Type::Raw(dtype) => Value::Raw(choice(gate, &found, &raw_zero(dtype)), dtype),
            Type::Float(dtype) => {
                let zero = float_literal(Constant::zero(dtype));
                Value::Float(choice(gate, &found, &zero), dtype)
            }
            _ => {
                let found = Number { text: found, bits: self.bits(class) };
                let inside = self.is_inside(&found, class);
                self.script.fact(inside);
                let zero = self.script.literal(0);
                let value = self.script.choose(gate, &found, &zero);
                Value::Int { ring: value.clone(), read: Some(value), class }
            }
        })
    }

    /// The term that both sides are as the claim says.
    fn same(&mut self, left: &Value, right: &Value) -> Result<String, Unsupported> {
        Ok(match (left, right) {
            (
                Value::Int { ring: x, read: first, class },
                Value::Int { ring: y, read: second, .. },
            ) => match (first, second, self.overflow) {
                (Some(x), Some(y), _) => format!("(= {} {})", x.text, y.text),
                (_, _, Overflow::Proved | Overflow::Unknown) => {
                    format!("(= {} {})", x.text, y.text)
                }
                (_, _, Overflow::Wrapped) => self.congruent(x, y, *class),
            },
            (Value::Truth(x), Value::Truth(y)) | (Value::Raw(x, _), Value::Raw(y, _)) => {
                format!("(= {x} {y})")
            }
            (Value::Float(x, _), Value::Float(y, _)) => match self.rule.row.claim {
                Claim::Bits | Claim::Refines => format!("(= {x} {y})"),
                Claim::Value => format!("(or (= {x} {y}) (fp.eq {x} {y}))"),
                Claim::Ulp(_) | Claim::Finite => {
                    return Err(Unsupported::new("the claim is about exact reals"));
                }
            },
            (
                Value::Address { global, index, gate, .. },
                Value::Address { global: global_y, index: index_y, gate: gate_y, .. },
            ) => format!(
                "(and (= {gate} {gate_y}) (=> {gate} (and (= {global} {global_y}) (= {} {}))))",
                index.text, index_y.text
            ),
            _ => return Err(Unsupported::new("sides of two kinds")),
        })
    }

    /// The term that the value lies in range, without making it a goal.
    pub(super) fn in_range(&mut self, slot: usize) -> Result<String, Unsupported> {
        match self.slots[slot].as_ref().map(|slot| slot.value.clone()) {
            Some(Value::Int { ring, class, .. }) => Ok(self.is_inside(&ring, class)),
            _ => Err(Unsupported::new("a question about something that is no integer")),
        }
    }
}

fn is_plain(slot: &Slot) -> bool {
    matches!(&slot.value, Value::Int { .. } | Value::Truth(_) | Value::Float(..) | Value::Raw(..))
}

fn ring(value: &Value) -> Option<Number> {
    match value {
        Value::Int { ring, .. } => Some(ring.clone()),
        _ => None,
    }
}

/// Returns whether each value of one integer dtype is a value of the other, as far as is known.
fn is_within(from: Type, to: Type) -> bool {
    match (from, to) {
        (Type::Int(from), Type::Int(to)) => {
            let ranges = from.int_range().zip(to.int_range());
            ranges.is_some_and(|((low, high), (to_low, to_high))| to_low <= low && high <= to_high)
        }
        _ => false,
    }
}

pub(super) fn both(x: &str, y: &str) -> String {
    match (x, y) {
        ("true", term) | (term, "true") => term.to_owned(),
        _ => format!("(and {x} {y})"),
    }
}

pub(super) fn choice(test: &str, x: &str, y: &str) -> String {
    if x == y { x.to_owned() } else { format!("(ite {test} {x} {y})") }
}

/// An op over truth values: bool adds and multiplies as 0 and 1, and the result is "not 0".
fn truth_op(op: Op, x: &str, y: &str) -> Result<String, Unsupported> {
    match op {
        Op::And | Op::Min | Op::Mul => Ok(format!("(and {x} {y})")),
        Op::Or | Op::Max | Op::Add => Ok(format!("(or {x} {y})")),
        Op::Xor | Op::CmpNe | Op::Sub => Ok(format!("(xor {x} {y})")),
        Op::CmpLt => Ok(format!("(and (not {x}) {y})")),
        _ => Err(Unsupported(format!("{op} of truth values has no terms"))),
    }
}

/// The condition of a choice or a gate.
fn truth(value: &Value) -> Result<String, Unsupported> {
    match value {
        Value::Truth(text) => Ok(text.clone()),
        Value::Raw(text, dtype @ DType::Bool) => {
            Ok(format!("(distinct {text} {})", raw_zero(*dtype)))
        }
        _ => Err(Unsupported::new("a choice by something that is no truth value")),
    }
}

/// The bits of 0, of each dtype.
fn raw_zero(dtype: DType) -> String {
    format!("(_ bv0 {})", 8 * dtype.size_bytes())
}

/// A bitcast or a cast to the same dtype; a bool is true if its bits are not 0.
fn raw_cast(op: Op, x: &str, from: DType, to: DType) -> Result<Value, Unsupported> {
    if op == Op::Cast && from != to {
        return Err(Unsupported::new("a cast of raw bits"));
    }
    if from.size_bytes() != to.size_bytes() {
        return Err(Unsupported::new("a bitcast between sizes"));
    }
    let bits = 8 * to.size_bytes();
    let text = match to {
        DType::Bool => format!("(ite (= {x} (_ bv0 {bits})) (_ bv0 {bits}) (_ bv1 {bits}))"),
        _ => x.to_owned(),
    };
    Ok(Value::Raw(text, to))
}

/// Exponent and mantissa bits (the hidden one included) of a float dtype.
pub(super) fn float_shape(dtype: DType) -> (u32, u32) {
    match dtype {
        DType::F16 => (5, 11),
        DType::BF16 => (8, 8),
        DType::F32 => (8, 24),
        _ => (11, 53),
    }
}

pub(super) fn float_sort(dtype: DType) -> String {
    let (exponent, mantissa) = float_shape(dtype);
    format!("(_ FloatingPoint {exponent} {mantissa})")
}

pub(super) fn float_literal(value: Constant) -> String {
    let (exponent, mantissa) = float_shape(value.dtype());
    let bits = value.dtype().bits();
    format!("((_ to_fp {exponent} {mantissa}) (_ bv{} {bits}))", value.bits())
}

#[cfg(test)]
mod tests {
    use crate::proof::{obligations, parse_row};

    #[test]
    fn literals_below_a_signed_byte_are_asked_for_overflow() {
        // i8 wraps -200 to 56, i16 does not.
        let row = parse_row("test/wraps: (cmplt (max x -200) 56) => false").expect("a row");
        let obligations = obligations(&row).expect("it has terms");
        let labels = obligations.iter().map(|obligation| obligation.label.as_str());
        let asked = labels.filter(|label| label.contains("no overflow in (max x"));
        let asked: Vec<&str> = asked.filter(|label| !label.contains("unsigned")).collect();
        assert_eq!(asked.len(), 1, "{asked:?}");
    }
}
