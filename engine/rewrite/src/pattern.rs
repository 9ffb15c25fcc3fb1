//! Patterns and templates: the two sides of a rule, parsed from text.
//!
//! The language is told in [`crate::rules`]. Operands stand in the order in which they are written:
//! nothing is tried twice, so matching is one walk.

use gradiff_graph::{Arg, Constant, DType, Op, Sources, UOp};

use crate::bounds::Bounds;
use crate::computed::{self, Compute};
use crate::condition::Expr;

/// How many names one rule may bind, `root` among them.
pub(crate) const SLOTS: usize = 10;
/// What each name stands for.
pub(crate) type Bindings<'a> = [Option<&'a UOp>; SLOTS];

/// The names of a rule; `root` is the first.
pub(crate) struct Slots(Vec<String>);

impl Slots {
    pub(crate) fn new() -> Slots {
        Slots(vec![String::from("root")])
    }

    /// The name of a slot; empty if there is none.
    #[cfg(test)]
    pub(crate) fn name(&self, slot: usize) -> &str {
        self.0.get(slot).map_or("", String::as_str)
    }

    fn bind(&mut self, name: &str) -> Result<usize, String> {
        if let Some(slot) = self.0.iter().position(|known| known == name) {
            return Ok(slot);
        }
        if self.0.len() == SLOTS {
            return Err(format!("more than {} names", SLOTS - 1));
        }
        self.0.push(name.to_owned());
        Ok(self.0.len() - 1)
    }

    /// The place of a name that the left side binds.
    pub(crate) fn bound(&self, name: &str) -> Result<usize, String> {
        let found = self.0.iter().position(|known| known == name);
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
pub(crate) enum Literal {
    Int(i64),
    Float(f64),
    Truth(bool),
}

impl Literal {
    fn constant(self, dtype: DType) -> Constant {
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
pub(crate) enum Pattern {
    /// Any node.
    Any(usize),
    /// Any constant.
    Constant(usize),
    Literal(Literal),
    /// A node of this op; it may have a name.
    Node(Op, Vec<Pattern>, Option<usize>),
    /// Right side: a constant of the surrounding dtype.
    Value(Expr),
    /// Right side: what a Rust function says.
    Computed(Compute),
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
            return Ok(Pattern::Computed(*function));
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
        let rest = word.strip_prefix('c').unwrap_or_default();
        let is_constant = !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit());
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
            Pattern::Constant(_) | Pattern::Literal(_) => Some(Op::Const),
            _ => None,
        }
    }

    /// Whether `uop` has this shape; binds the names.
    pub(crate) fn matches<'a>(&self, uop: &'a UOp, bound: &mut Bindings<'a>) -> bool {
        match self {
            Pattern::Any(slot) => bind(bound, *slot, uop),
            Pattern::Constant(slot) => uop.op() == Op::Const && bind(bound, *slot, uop),
            Pattern::Literal(literal) => literal.matches(uop),
            Pattern::Node(op, src, name) => {
                uop.op() == *op
                    && uop.src().len() == src.len()
                    && name.is_none_or(|slot| bind(bound, slot, uop))
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
        known: &mut Bounds,
    ) -> Option<UOp> {
        match self {
            Pattern::Any(slot) | Pattern::Constant(slot) => bound[*slot].cloned(),
            Pattern::Literal(literal) => Some(UOp::constant(literal.constant(dtype))),
            Pattern::Value(value) => {
                let value = value.value(bound, known)?;
                Some(UOp::constant(Constant::int(dtype, value)))
            }
            Pattern::Computed(function) => function(bound[0]?, known),
            Pattern::Node(op, src, _) => {
                let operand = self.operand_dtype(dtype, bound);
                let mut built = Sources::new();
                for (position, source) in src.iter().enumerate() {
                    let is_condition = *op == Op::Where && position == 0;
                    let expected = if is_condition { DType::Bool } else { operand };
                    built.push(source.build(expected, bound, known)?);
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
            _ => dtype,
        }
    }

    fn own_dtype(&self, bound: &Bindings<'_>) -> Option<DType> {
        match self {
            Pattern::Any(slot) | Pattern::Constant(slot) => bound[*slot].map(UOp::dtype),
            Pattern::Literal(Literal::Truth(_)) => Some(DType::Bool),
            Pattern::Node(op, ..) if op.is_comparison() => Some(DType::Bool),
            Pattern::Node(op, src, _) => {
                let values = if *op == Op::Where { &src[1..] } else { &src[..] };
                values.iter().find_map(|source| source.own_dtype(bound))
            }
            _ => None,
        }
    }
}

fn bind<'a>(bound: &mut Bindings<'a>, slot: usize, uop: &'a UOp) -> bool {
    match bound[slot] {
        Some(known) => known == uop,
        None => {
            bound[slot] = Some(uop);
            true
        }
    }
}
