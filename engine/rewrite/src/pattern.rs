//! Patterns and templates: the two sides of a rule, parsed from text.
//!
//! The language is described in [`crate::rules`]. Operands stand in the order in which they are
//! written: nothing is tried twice, so matching is one walk.

use gradiff_graph::{Arg, Constant, DType, Dims, Op, Sources, UOp};

use crate::computed::{self, Computed};
use crate::condition::Expr;
use crate::driver::Scope;
use crate::sum::Sum;

/// How many names one rule may bind, `root` among them.
pub const MAX_NAMES: usize = 12;

/// What each name stands for: a node that the left side met, or a part that an equation gave.
#[derive(Clone, Copy, Default)]
pub(crate) struct Bindings<'a> {
    nodes: [Option<&'a UOp>; MAX_NAMES],
    /// The parts stand for the slots from the number on.
    parts: (usize, &'a [Sum]),
}

impl<'a> Bindings<'a> {
    /// The same names, and those of an equation from slot `first` on.
    pub(crate) fn with_parts<'b>(&self, first: usize, parts: &'b [Sum]) -> Bindings<'b>
    where
        'a: 'b,
    {
        Bindings { nodes: self.nodes, parts: (first, parts) }
    }

    /// The node that a name stands for, if the left side met it.
    pub(crate) fn node(&self, slot: usize) -> Option<&'a UOp> {
        self.nodes[slot]
    }

    /// The sum that a name stands for, if an equation gave it.
    pub(crate) fn part(&self, slot: usize) -> Option<&'a Sum> {
        let (first, parts) = self.parts;
        slot.checked_sub(first).and_then(|number| parts.get(number))
    }

    /// The node of a name, made if it was a sum before.
    fn build(&self, slot: usize) -> Option<UOp> {
        self.nodes[slot].cloned().or_else(|| self.part(slot).map(Sum::build))
    }

    fn dtype(&self, slot: usize) -> Option<DType> {
        self.nodes[slot].map(UOp::dtype).or_else(|| self.part(slot).map(|sum| sum.dtype))
    }

    /// Lets a name stand for a node; false if it stands for another one already.
    pub(crate) fn bind(&mut self, slot: usize, uop: &'a UOp) -> bool {
        *self.nodes[slot].get_or_insert(uop) == uop
    }
}

/// The names of a rule; `root` is the first.
pub(crate) struct Slots {
    names: Vec<String>,
    /// Whether names that are not bound yet become so when they are used: in equations.
    pub(crate) is_open: bool,
}

impl Slots {
    pub(crate) fn new() -> Slots {
        Slots { names: vec![String::from("root")], is_open: false }
    }

    /// How many names there are.
    pub(crate) fn count(&self) -> usize {
        self.names.len()
    }

    /// The name of a slot; empty if there is none.
    pub(crate) fn name(&self, slot: usize) -> &str {
        self.names.get(slot).map_or("", String::as_str)
    }

    /// The place of a name, made if there is none yet.
    pub(crate) fn bind(&mut self, name: &str) -> Result<usize, String> {
        if let Some(slot) = self.names.iter().position(|known| known == name) {
            return Ok(slot);
        }
        if self.names.len() == MAX_NAMES {
            return Err(format!("more than {} names", MAX_NAMES - 1));
        }
        self.names.push(name.to_owned());
        Ok(self.names.len() - 1)
    }

    /// The place of a name that the left side or an equation binds.
    pub(crate) fn bound(&mut self, name: &str) -> Result<usize, String> {
        if self.is_open {
            return self.bind(name);
        }
        let found = self.names.iter().position(|known| known == name);
        found.ok_or_else(|| format!("{name} is not bound by the left side"))
    }
}

/// Text, read from the front.
pub(crate) struct Lexer<'t>(&'t str);

impl<'t> Lexer<'t> {
    pub(crate) fn new(text: &'t str) -> Lexer<'t> {
        Lexer(text.trim())
    }

    /// Reads `token` if it comes next.
    pub(crate) fn take(&mut self, token: &str) -> bool {
        match self.0.strip_prefix(token) {
            Some(rest) => {
                self.0 = rest.trim_start();
                true
            }
            None => false,
        }
    }

    pub(crate) fn expect(&mut self, token: &str) -> Result<(), String> {
        if self.take(token) { Ok(()) } else { Err(format!("expected {token} before {:?}", self.0)) }
    }

    /// A name or an unsigned number.
    pub(crate) fn word(&mut self) -> Result<&'t str, String> {
        let is_part = |letter: char| letter.is_ascii_alphanumeric() || "_.".contains(letter);
        let end = self.0.find(|letter| !is_part(letter)).unwrap_or(self.0.len());
        if end == 0 {
            return Err(format!("expected a name before {:?}", self.0));
        }
        let (word, rest) = self.0.split_at(end);
        self.0 = rest.trim_start();
        Ok(word)
    }

    pub(crate) fn end(&self) -> Result<(), String> {
        if self.0.is_empty() { Ok(()) } else { Err(format!("{:?} is left over", self.0)) }
    }
}

/// A constant written in a rule: it takes the dtype of its surroundings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Literal {
    /// An integer, which may also stand for a float.
    Int(i64),
    /// A float.
    Float(f64),
    /// A truth value.
    Truth(bool),
}

impl Literal {
    /// Returns the constant of this dtype.
    pub fn constant(self, dtype: DType) -> Constant {
        match self {
            Literal::Truth(value) => Constant::bool(value),
            Literal::Float(value) if dtype.is_float() => Constant::float(dtype, value),
            Literal::Float(value) => Constant::int(dtype, value as i128),
            Literal::Int(value) => Constant::int(dtype, value.into()),
        }
    }

    fn matches(self, uop: &UOp) -> bool {
        let Some(value) = uop.as_const() else { return false };
        match self {
            Literal::Truth(_) if value.dtype() != DType::Bool => false,
            Literal::Int(_) if value.dtype() == DType::Bool => false,
            Literal::Float(_) if !value.dtype().is_float() => false,
            _ => value == self.constant(value.dtype()),
        }
    }

    fn parse(word: &str, is_negative: bool) -> Option<Literal> {
        let sign = if is_negative { -1 } else { 1 };
        match word {
            "true" | "false" => Some(Literal::Truth(word == "true")),
            "inf" => Some(Literal::Float(f64::INFINITY * sign as f64)),
            _ => match word.parse::<i64>() {
                Ok(value) => Some(Literal::Int(sign * value)),
                Err(_) => word.parse::<f64>().ok().map(|x| Literal::Float(x * sign as f64)),
            },
        }
    }
}

/// One side of a rule; on the right side constants may be computed.
#[derive(Clone, Debug)]
pub enum Pattern {
    /// Any node; the number of its name.
    Any(usize),
    /// Any constant; the number of its name.
    Constant(usize),
    /// This constant.
    Literal(Literal),
    /// A node of this op; it may have a name, of this number.
    Node(Op, Vec<Pattern>, Option<usize>),
    /// A reduction by this op of a value over one range: `(reduce.add v r)`. On the left it also
    /// matches a reduction over several ranges, of which r is any one.
    Reduce(Op, Box<[Pattern; 2]>),
    /// Right side: a constant of the surrounding dtype.
    Value(Expr),
    /// Right side: what a Rust function says.
    Computed(Computed),
}

impl Pattern {
    /// The left side of a rule.
    pub(crate) fn parse_left(text: &str, slots: &mut Slots) -> Result<Pattern, String> {
        let mut lexer = Lexer::new(text);
        let pattern = Pattern::parse(&mut lexer, slots, true)?;
        lexer.end()?;
        Ok(pattern)
    }

    /// The right side of a rule: every name must be bound.
    pub(crate) fn parse_right(text: &str, slots: &mut Slots) -> Result<Pattern, String> {
        if let Some(name) = text.strip_prefix('@') {
            let found = computed::FUNCTIONS.iter().find(|(known, _)| *known == name);
            let (_, function) = found.ok_or(format!("there is no computed side @{name}"))?;
            return Ok(Pattern::Computed(Computed(*function)));
        }
        let mut lexer = Lexer::new(text);
        let pattern = Pattern::parse(&mut lexer, slots, false)?;
        lexer.end()?;
        Ok(pattern)
    }

    fn parse(lexer: &mut Lexer<'_>, slots: &mut Slots, is_left: bool) -> Result<Pattern, String> {
        if lexer.take("(") {
            return Pattern::parse_node(lexer, slots, is_left, None);
        }
        if lexer.take("{") {
            let value = Expr::parse(lexer, slots)?;
            lexer.expect("}")?;
            return if is_left {
                Err(String::from("a value on the left"))
            } else {
                Ok(Pattern::Value(value))
            };
        }
        let is_negative = lexer.take("-");
        let word = lexer.word()?;
        if let Some(literal) = Literal::parse(word, is_negative) {
            return Ok(Pattern::Literal(literal));
        }
        let slot = if is_left { slots.bind(word)? } else { slots.bound(word)? };
        if is_left && lexer.take("@") {
            lexer.expect("(")?;
            return Pattern::parse_node(lexer, slots, is_left, Some(slot));
        }
        let is_constant = is_constant_name(word);
        Ok(if is_constant { Pattern::Constant(slot) } else { Pattern::Any(slot) })
    }

    fn parse_node(
        lexer: &mut Lexer<'_>,
        slots: &mut Slots,
        is_left: bool,
        name: Option<usize>,
    ) -> Result<Pattern, String> {
        let word = lexer.word()?;
        let mut src = Vec::new();
        while !lexer.take(")") {
            src.push(Pattern::parse(lexer, slots, is_left)?);
        }
        if let Some(name) = word.strip_prefix("reduce.") {
            let op = Op::from_name(name).ok_or(format!("there is no op {name}"))?;
            let pair = <[Pattern; 2]>::try_from(src);
            let pair = pair.map_err(|src| format!("{word} with {} sources", src.len()))?;
            return Ok(Pattern::Reduce(op, Box::new(pair)));
        }
        if word == "not" {
            src.push(Pattern::Literal(Literal::Truth(true)));
            return Ok(Pattern::Node(Op::CmpNe, src, name));
        }
        let op = Op::from_name(word).ok_or(format!("there is no op {word}"))?;
        let (fewest, most) = op.row().arity;
        if src.len() < fewest || most < src.len() {
            return Err(format!("{word} with {} sources", src.len()));
        }
        Ok(Pattern::Node(op, src, name))
    }

    /// The op a node must have to match; `None` if any may do.
    pub(crate) fn op(&self) -> Option<Op> {
        match self {
            Pattern::Node(op, ..) => Some(*op),
            Pattern::Reduce(..) => Some(Op::Reduce),
            Pattern::Constant(_) | Pattern::Literal(_) => Some(Op::Const),
            _ => None,
        }
    }

    /// Whether `uop` has this shape; binds the names.
    pub(crate) fn matches<'a>(&self, uop: &'a UOp, bound: &mut Bindings<'a>) -> bool {
        match self {
            Pattern::Any(slot) => bound.bind(*slot, uop),
            Pattern::Constant(slot) => uop.op() == Op::Const && bound.bind(*slot, uop),
            Pattern::Literal(literal) => literal.matches(uop),
            Pattern::Node(op, src, name) => {
                uop.op() == *op
                    && uop.src().len() == src.len()
                    && name.is_none_or(|slot| bound.bind(slot, uop))
                    && src.iter().zip(uop.src()).all(|(pattern, uop)| pattern.matches(uop, bound))
            }
            Pattern::Reduce(op, src) => {
                matches!(uop.arg(), Arg::Reduce(of, _) if of == op && uop.op() == Op::Reduce)
                    && uop.src().len() == 2
                    && src.iter().zip(uop.src()).all(|(pattern, uop)| pattern.matches(uop, bound))
            }
            Pattern::Value(_) | Pattern::Computed(_) => false,
        }
    }

    /// The node that the right side says; `dtype` is what is expected here. `None` if a constant
    /// cannot be computed.
    pub(crate) fn build(
        &self,
        dtype: DType,
        bound: &Bindings<'_>,
        scope: &mut Scope<'_>,
    ) -> Option<UOp> {
        match self {
            Pattern::Any(slot) | Pattern::Constant(slot) => bound.build(*slot),
            Pattern::Literal(literal) => Some(UOp::constant(literal.constant(dtype))),
            Pattern::Value(value) => {
                let value = value.value(bound, &mut scope.bounds)?;
                Some(UOp::constant(Constant::int(dtype, value)))
            }
            Pattern::Computed(Computed(function)) => function(bound.node(0)?, scope),
            Pattern::Reduce(op, src) => {
                let [value, range] = &**src;
                let value = value.build(dtype, bound, scope)?;
                let src = [value, range.build(DType::I32, bound, scope)?];
                Some(UOp::new(Op::Reduce, dtype, src, Arg::Reduce(*op, Dims::new())))
            }
            Pattern::Node(op, src, _) => {
                let operand = self.operand_dtype(dtype, bound);
                let mut built = Sources::new();
                for (position, source) in src.iter().enumerate() {
                    let is_condition = *op == Op::Where && position == 0;
                    let expected = if is_condition { DType::Bool } else { operand };
                    built.push(source.build(expected, bound, scope)?);
                }
                Some(UOp::new(*op, dtype, built, Arg::None))
            }
        }
    }

    /// The dtype of a node's operands: its own, but for comparisons and casts.
    fn operand_dtype(&self, dtype: DType, bound: &Bindings<'_>) -> DType {
        match self {
            Pattern::Node(op, src, _) if op.is_comparison() => {
                src.iter().find_map(|source| source.own_dtype(bound)).unwrap_or(DType::Bool)
            }
            Pattern::Node(Op::Cast | Op::Bitcast, src, _) => {
                src[0].own_dtype(bound).unwrap_or(dtype)
            }
            _ => dtype,
        }
    }

    fn own_dtype(&self, bound: &Bindings<'_>) -> Option<DType> {
        match self.dtype_source()? {
            Pattern::Any(slot) | Pattern::Constant(slot) => bound.dtype(*slot),
            _ => Some(DType::Bool),
        }
    }

    /// The part of a right side that says of what dtype it is: a name or a truth value. `None` if
    /// the surroundings do.
    pub fn dtype_source(&self) -> Option<&Pattern> {
        match self {
            Pattern::Any(_) | Pattern::Constant(_) | Pattern::Literal(Literal::Truth(_)) => {
                Some(self)
            }
            Pattern::Node(op, ..) if op.is_comparison() => Some(self),
            Pattern::Node(Op::Cast | Op::Bitcast, ..) => None,
            Pattern::Reduce(_, src) => src[0].dtype_source(),
            Pattern::Node(op, src, _) => {
                let values = if *op == Op::Where { &src[1..] } else { &src[..] };
                values.iter().find_map(Pattern::dtype_source)
            }
            _ => None,
        }
    }
}

/// Returns whether a name stands for constants alone: `c0`, `c1`, ...
pub fn is_constant_name(name: &str) -> bool {
    let rest = name.strip_prefix('c').unwrap_or_default();
    !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit())
}
