//! Patterns and templates: the two sides of a rule, parsed from text.
//!
//! The language is described in [`crate::rules`]. Operands match only in the order in which they
//! are written, so matching is a single walk over the pattern, without backtracking.

use gradiff_graph::{Arg, Constant, DType, Dims, Op, Sources, UOp};

use crate::computed::{self, Computed};
use crate::condition::Expr;
use crate::driver::Scope;
use crate::sum::Sum;

/// Maximum number of the names that a rule may bind, `root` included.
pub const MAX_NAMES: usize = 12;

/// The values of a rule's names, by slot: nodes that the left side matched, and sums that an
/// equation bound.
#[derive(Clone, Copy, Default)]
pub(crate) struct Bindings<'a> {
    nodes: [Option<&'a UOp>; MAX_NAMES],
    /// The first slot that an equation binds, and the sums of this slot and of those after it.
    parts: (usize, &'a [Sum]),
}

impl<'a> Bindings<'a> {
    /// Returns these bindings with the sums that an equation bound to slot `first` and those after
    /// it.
    pub(crate) fn with_parts<'b>(&self, first: usize, parts: &'b [Sum]) -> Bindings<'b>
    where
        'a: 'b,
    {
        Bindings { nodes: self.nodes, parts: (first, parts) }
    }

    /// The node that a name stands for, if the left side binds it.
    pub(crate) fn node(&self, slot: usize) -> Option<&'a UOp> {
        self.nodes[slot]
    }

    /// The sum that a name stands for, if an equation binds it.
    pub(crate) fn part(&self, slot: usize) -> Option<&'a Sum> {
        let (first, parts) = self.parts;
        slot.checked_sub(first).and_then(|number| parts.get(number))
    }

    /// The node of a name, built if the name stands for a sum.
    fn build(&self, slot: usize) -> Option<UOp> {
        self.nodes[slot].cloned().or_else(|| self.part(slot).map(Sum::build))
    }

    fn dtype(&self, slot: usize) -> Option<DType> {
        self.nodes[slot].map(UOp::dtype).or_else(|| self.part(slot).map(|sum| sum.dtype))
    }

    /// Binds a name to a node; returns false if it is already bound to another node.
    pub(crate) fn bind(&mut self, slot: usize, uop: &'a UOp) -> bool {
        *self.nodes[slot].get_or_insert(uop) == uop
    }
}

/// The names of a rule. A slot is the index of a name; `root` has slot 0.
pub(crate) struct Slots {
    names: Vec<String>,
    /// True while an equation is parsed, where a name that is not bound yet is bound by its use.
    pub(crate) is_open: bool,
}

impl Slots {
    pub(crate) fn new() -> Slots {
        Slots { names: vec![String::from("root")], is_open: false }
    }

    /// Number of names.
    pub(crate) fn count(&self) -> usize {
        self.names.len()
    }

    /// The name of a slot; empty if there is none.
    pub(crate) fn name(&self, slot: usize) -> &str {
        self.names.get(slot).map_or("", String::as_str)
    }

    /// Returns the slot of a name; a new name gets the next slot.
    pub(crate) fn bind(&mut self, name: &str) -> Result<usize, String> {
        if let Some(slot) = self.names.iter().position(|known| known == name) {
            return Ok(slot);
        }
        if self.names.len() == MAX_NAMES {
            return Err(format!("the rule has more than {} names", MAX_NAMES - 1));
        }
        self.names.push(name.to_owned());
        Ok(self.names.len() - 1)
    }

    /// Returns the slot of a name that the left side or an equation has bound, or binds it if
    /// [`Slots::is_open`].
    pub(crate) fn bound(&mut self, name: &str) -> Result<usize, String> {
        if self.is_open {
            return self.bind(name);
        }
        let slot = self.names.iter().position(|known| known == name);
        slot.ok_or_else(|| format!("{name} is not bound by the left side"))
    }
}

/// The rest of a text, which is read token by token.
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

    /// Reads `token`, which must come next.
    pub(crate) fn expect(&mut self, token: &str) -> Result<(), String> {
        if self.take(token) { Ok(()) } else { Err(format!("expected {token} before {:?}", self.0)) }
    }

    /// Reads a name or an unsigned number.
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

    /// Checks that nothing is left to read.
    pub(crate) fn end(&self) -> Result<(), String> {
        if self.0.is_empty() { Ok(()) } else { Err(format!("{:?} is left over", self.0)) }
    }
}

/// A literal in a rule; it takes the dtype of its context.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Literal {
    /// An integer, which may also stand for a float.
    Int(i64),
    /// A float.
    Float(f64),
    /// A bool.
    Truth(bool),
}

impl Literal {
    /// Returns the literal as a constant of this dtype; a bool literal has dtype bool in any case.
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
    /// Any node, with the slot of its name.
    Any(usize),
    /// Any constant, with the slot of its name.
    Constant(usize),
    /// The constant with this value, of any dtype.
    Literal(Literal),
    /// A node of this op with these sources, and the slot of its name if it has one.
    Node(Op, Vec<Pattern>, Option<usize>),
    /// A reduction by this op of a value over a range: `(reduce.add v r)`. On the left it also
    /// matches a reduction over several ranges, any of which may be r.
    Reduce(Op, Box<[Pattern; 2]>),
    /// Right side: a computed constant of the dtype of its context.
    Value(Expr),
    /// Right side: the result of a Rust function.
    Computed(Computed),
}

impl Pattern {
    /// Parses the left side of a rule.
    pub(crate) fn parse_left(text: &str, slots: &mut Slots) -> Result<Pattern, String> {
        let mut lexer = Lexer::new(text);
        let pattern = Pattern::parse(&mut lexer, slots, true)?;
        lexer.end()?;
        Ok(pattern)
    }

    /// Parses the right side of a rule: every name must be bound.
    pub(crate) fn parse_right(text: &str, slots: &mut Slots) -> Result<Pattern, String> {
        if let Some(name) = text.strip_prefix('@') {
            let named = computed::FUNCTIONS.iter().find(|(known, _)| *known == name);
            let (_, function) = named.ok_or(format!("there is no computed side @{name}"))?;
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
        let (min, max) = op.row().arity;
        if src.len() < min || max < src.len() {
            return Err(format!("{word} with {} sources", src.len()));
        }
        Ok(Pattern::Node(op, src, name))
    }

    /// The op that a node must have to match; `None` if it may have any.
    pub(crate) fn op(&self) -> Option<Op> {
        match self {
            Pattern::Node(op, ..) => Some(*op),
            Pattern::Reduce(..) => Some(Op::Reduce),
            Pattern::Constant(_) | Pattern::Literal(_) => Some(Op::Const),
            _ => None,
        }
    }

    /// Returns whether `uop` matches this pattern, and binds the names in it.
    pub(crate) fn matches<'a>(&self, uop: &'a UOp, bindings: &mut Bindings<'a>) -> bool {
        match self {
            Pattern::Any(slot) => bindings.bind(*slot, uop),
            Pattern::Constant(slot) => uop.op() == Op::Const && bindings.bind(*slot, uop),
            Pattern::Literal(literal) => literal.matches(uop),
            Pattern::Node(op, src, name) => {
                uop.op() == *op
                    && uop.src().len() == src.len()
                    && name.is_none_or(|slot| bindings.bind(slot, uop))
                    && src
                        .iter()
                        .zip(uop.src())
                        .all(|(pattern, uop)| pattern.matches(uop, bindings))
            }
            Pattern::Reduce(op, src) => {
                matches!(uop.arg(), Arg::Reduce(by, _) if by == op && uop.op() == Op::Reduce)
                    && uop.src().len() == 2
                    && src
                        .iter()
                        .zip(uop.src())
                        .all(|(pattern, uop)| pattern.matches(uop, bindings))
            }
            Pattern::Value(_) | Pattern::Computed(_) => false,
        }
    }

    /// Builds the node of a right side, or of a part of one; `dtype` is the dtype that its context
    /// requires. `None` if a constant cannot be computed.
    pub(crate) fn build(
        &self,
        dtype: DType,
        bindings: &Bindings<'_>,
        scope: &mut Scope<'_>,
    ) -> Option<UOp> {
        match self {
            Pattern::Any(slot) | Pattern::Constant(slot) => bindings.build(*slot),
            Pattern::Literal(literal) => Some(UOp::constant(literal.constant(dtype))),
            Pattern::Value(value) => {
                let value = value.value(bindings, &mut scope.bounds)?;
                Some(UOp::constant(Constant::int(dtype, value)))
            }
            Pattern::Computed(Computed(function)) => function(bindings.node(0)?, scope),
            Pattern::Reduce(op, src) => {
                let [value, range] = &**src;
                let value = value.build(dtype, bindings, scope)?;
                let src = [value, range.build(DType::I32, bindings, scope)?];
                Some(UOp::new(Op::Reduce, dtype, src, Arg::Reduce(*op, Dims::new())))
            }
            Pattern::Node(op, src, _) => {
                let operand = self.operand_dtype(dtype, bindings);
                let mut built = Sources::new();
                for (position, source) in src.iter().enumerate() {
                    let is_condition = *op == Op::Where && position == 0;
                    let expected = if is_condition { DType::Bool } else { operand };
                    built.push(source.build(expected, bindings, scope)?);
                }
                Some(UOp::new(*op, dtype, built, Arg::None))
            }
        }
    }

    /// The dtype of a node's operands: `dtype`, that of the node, unless it is a comparison or a
    /// cast.
    fn operand_dtype(&self, dtype: DType, bindings: &Bindings<'_>) -> DType {
        match self {
            Pattern::Node(op, src, _) if op.is_comparison() => {
                src.iter().find_map(|source| source.bound_dtype(bindings)).unwrap_or(DType::Bool)
            }
            Pattern::Node(Op::Cast | Op::Bitcast, src, _) => {
                src[0].bound_dtype(bindings).unwrap_or(dtype)
            }
            _ => dtype,
        }
    }

    /// The dtype of this part of a right side, if its names determine it.
    fn bound_dtype(&self, bindings: &Bindings<'_>) -> Option<DType> {
        match self.dtype_source()? {
            Pattern::Any(slot) | Pattern::Constant(slot) => bindings.dtype(*slot),
            _ => Some(DType::Bool),
        }
    }

    /// Returns the part that determines the dtype of this part of a right side: a name, a bool or a
    /// comparison. `None` if the context determines the dtype.
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

/// Returns whether a name matches constants only: `c0`, `c1`, ...
pub fn is_constant_name(name: &str) -> bool {
    let rest = name.strip_prefix('c').unwrap_or_default();
    !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit())
}
