//! Patterns and templates: the two sides of a rule, parsed from text.
//!
//! The language is described in [`crate::rules`]. Operands match only in the order in which they
//! are written, so matching is a single walk over the pattern, without backtracking.

use gradiff_graph::{Arg, Constant, DType, Dims, Op, Sources, UOp};

use crate::bounds::Bounds;
use crate::computed::{self, Computed};
use crate::condition::Expr;
use crate::lexer::Lexer;
use crate::names::{Bindings, Slots, is_constant_name};

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
    /// requires. `None` if a constant cannot be computed. A computed side is not built from
    /// bindings: its function is called with the node.
    pub(crate) fn build(
        &self,
        dtype: DType,
        bindings: &Bindings<'_>,
        bounds: &mut Bounds,
    ) -> Option<UOp> {
        match self {
            Pattern::Any(slot) | Pattern::Constant(slot) => bindings.build(*slot),
            Pattern::Literal(literal) => Some(UOp::constant(literal.constant(dtype))),
            Pattern::Value(value) => {
                let value = value.value(bindings, bounds)?;
                Some(UOp::constant(Constant::int(dtype, value)))
            }
            Pattern::Computed(_) => unreachable!("a computed side is a whole side"),
            Pattern::Reduce(op, src) => {
                let [value, range] = &**src;
                let value = value.build(dtype, bindings, bounds)?;
                let src = [value, range.build(DType::I32, bindings, bounds)?];
                Some(UOp::new(Op::Reduce, dtype, src, Arg::Reduce(*op, Dims::new())))
            }
            Pattern::Node(op, src, _) => {
                let operand = self.operand_dtype(dtype, bindings);
                let mut built = Sources::new();
                for (position, source) in src.iter().enumerate() {
                    let is_condition = *op == Op::Where && position == 0;
                    let expected = if is_condition { DType::Bool } else { operand };
                    built.push(source.build(expected, bindings, bounds)?);
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
