//! The language of conditions and computed constants: integers of any dtype as i128, with checked
//! arithmetic. A condition that cannot be computed is false.

use gradiff_graph::{DType, UOp};
use rustc_hash::FxHashSet;

use crate::bounds::Bounds;
use crate::lexer::Lexer;
use crate::names::{Bindings, Slots};
use crate::reduce;
use crate::sum::{Sum, canonical_cmp};
use gradiff_graph::interval::{self, floor_div, floor_rem};

/// A parsed expression.
#[derive(Clone, Debug)]
pub enum Expr {
    /// A number.
    Int(i128),
    /// The value of an integer constant, by the number of its name.
    Slot(usize),
    /// A question about bound nodes, by the numbers of their names; if it is about one node, both
    /// numbers are the same.
    Ask(Question, [usize; 2]),
    /// `!` or `-`.
    Unary(char, Box<Expr>),
    /// Two expressions and the operator between them.
    Binary(Operator, Box<Expr>, Box<Expr>),
    /// True if the value is one of the dtype of a node, which is given by the number of its name.
    Fits(Box<Expr>, usize),
}

/// A question about nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// The smallest value of a node.
    Min,
    /// The largest value of a node.
    Max,
    /// Bits of the dtype.
    Bits,
    /// True if the dtype is an integer type.
    IsInt,
    /// True if the dtype is bool.
    IsBool,
    /// True if two nodes have the same dtype.
    Same,
    /// True if every value of the first node is a value of the second one's dtype.
    Exact,
    /// True if the node's own op never leaves its dtype's range.
    NoWrap,
    /// True if two float constants have the same sign and a sum without rounding or overflow.
    ExactSum,
    /// True if a float constant and its reciprocal are powers of two in the normal range.
    PowerOfTwo,
    /// True if the node's value is its exact sum: the whole sum, read through additions,
    /// subtractions and products with constants, stays in the dtype's range.
    Linear,
    /// True if the first node precedes the second in the canonical order of operands.
    Before,
    /// True if two nodes have the same op.
    SameOp,
    /// Number of operands of a chain of the node's op; 17 stands for more than 16, and for a chain
    /// that contains a part of itself twice or a value that several nodes use.
    Operands,
    /// True if a node, or each node of a sum, does not depend on a range.
    Free,
    /// Trip count of a range; 1 for a constant that replaces a range of one iteration.
    Size,
}

const QUESTIONS: [(&str, Question, usize); 16] = [
    ("min", Question::Min, 1),
    ("max", Question::Max, 1),
    ("bits", Question::Bits, 1),
    ("isint", Question::IsInt, 1),
    ("isbool", Question::IsBool, 1),
    ("same", Question::Same, 2),
    ("exact", Question::Exact, 2),
    ("nowrap", Question::NoWrap, 1),
    ("exactsum", Question::ExactSum, 2),
    ("power2", Question::PowerOfTwo, 1),
    ("free", Question::Free, 2),
    ("size", Question::Size, 1),
    ("linear", Question::Linear, 1),
    ("before", Question::Before, 2),
    ("sameop", Question::SameOp, 2),
    ("operands", Question::Operands, 1),
];

/// An operator between two expressions; truth is 1 or 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// `x || y`.
    Or,
    /// `x && y`.
    And,
    /// `x == y`.
    Equal,
    /// `x != y`.
    NotEqual,
    /// `x <= y`.
    AtMost,
    /// `x >= y`.
    AtLeast,
    /// `x < y`.
    Less,
    /// `x > y`.
    More,
    /// `x + y`.
    Add,
    /// `x - y`.
    Sub,
    /// `x * y`.
    Mul,
    /// `x // y`, rounded down.
    FloorDiv,
    /// `x % y`, with the sign of y.
    FloorMod,
    /// `cdiv(x, y)`, cut toward zero.
    CDiv,
    /// `cmod(x, y)`.
    CMod,
    /// `gcd(x, y)`, not negative.
    Gcd,
}

/// Operators that are written as calls with two arguments.
const CALLS: [(&str, Operator); 3] =
    [("cdiv", Operator::CDiv), ("cmod", Operator::CMod), ("gcd", Operator::Gcd)];

/// Infix operators by precedence, loosest first.
const LEVELS: [&[(&str, Operator)]; 5] = [
    &[("||", Operator::Or)],
    &[("&&", Operator::And)],
    &[
        ("==", Operator::Equal),
        ("!=", Operator::NotEqual),
        ("<=", Operator::AtMost),
        (">=", Operator::AtLeast),
        ("<", Operator::Less),
        (">", Operator::More),
    ],
    &[("+", Operator::Add), ("-", Operator::Sub)],
    &[("*", Operator::Mul), ("//", Operator::FloorDiv), ("%", Operator::FloorMod)],
];

impl Expr {
    /// Splits a conjunction into its parts, in order.
    pub(crate) fn conjuncts(self) -> Vec<Expr> {
        match self {
            Expr::Binary(Operator::And, left, right) => {
                let mut parts = left.conjuncts();
                parts.extend(right.conjuncts());
                parts
            }
            condition => vec![condition],
        }
    }

    /// The numbers of the names in it.
    pub(crate) fn slots(&self) -> Vec<usize> {
        match self {
            Expr::Int(_) => Vec::new(),
            Expr::Slot(slot) => vec![*slot],
            Expr::Ask(_, slots) => slots.to_vec(),
            Expr::Unary(_, inner) => inner.slots(),
            Expr::Binary(_, left, right) => [left.slots(), right.slots()].concat(),
            Expr::Fits(inner, slot) => [inner.slots(), vec![*slot]].concat(),
        }
    }

    /// Parses the expression at the front of `lexer`.
    pub(crate) fn parse(lexer: &mut Lexer<'_>, slots: &mut Slots) -> Result<Expr, String> {
        Expr::parse_level(lexer, slots, 0)
    }

    fn parse_level(lexer: &mut Lexer<'_>, slots: &mut Slots, level: usize) -> Result<Expr, String> {
        let Some(operators) = LEVELS.get(level) else { return Expr::parse_unary(lexer, slots) };
        let mut left = Expr::parse_level(lexer, slots, level + 1)?;
        while let Some((_, operator)) = operators.iter().find(|(text, _)| lexer.take(text)) {
            let right = Expr::parse_level(lexer, slots, level + 1)?;
            left = Expr::Binary(*operator, Box::new(left), Box::new(right));
        }
        Ok(left)
    }

    fn parse_unary(lexer: &mut Lexer<'_>, slots: &mut Slots) -> Result<Expr, String> {
        for sign in ['!', '-'] {
            if lexer.take(sign.encode_utf8(&mut [0; 4])) {
                return Ok(Expr::Unary(sign, Box::new(Expr::parse_unary(lexer, slots)?)));
            }
        }
        if lexer.take("(") {
            let inner = Expr::parse(lexer, slots)?;
            lexer.expect(")")?;
            return Ok(inner);
        }
        let word = lexer.word()?;
        if let Ok(value) = word.parse() {
            return Ok(Expr::Int(value));
        }
        if !lexer.take("(") {
            return Ok(Expr::Slot(slots.bound(word)?));
        }
        let parsed = Expr::parse_call(word, lexer, slots)?;
        lexer.expect(")")?;
        Ok(parsed)
    }

    fn parse_call(name: &str, lexer: &mut Lexer<'_>, slots: &mut Slots) -> Result<Expr, String> {
        let call = CALLS.iter().find(|(word, _)| *word == name);
        if name == "fits" || call.is_some() {
            let first = Box::new(Expr::parse(lexer, slots)?);
            lexer.expect(",")?;
            return Ok(match call {
                Some((_, operator)) => {
                    Expr::Binary(*operator, first, Box::new(Expr::parse(lexer, slots)?))
                }
                None => Expr::Fits(first, slots.bound(lexer.word()?)?),
            });
        }
        let row = QUESTIONS.iter().find(|(word, ..)| *word == name);
        let (_, question, arity) = row.ok_or(format!("there is no function {name}"))?;
        let first = slots.bound(lexer.word()?)?;
        let second = if *arity == 2 {
            lexer.expect(",")?;
            slots.bound(lexer.word()?)?
        } else {
            first
        };
        Ok(Expr::Ask(*question, [first, second]))
    }

    /// Computes the value; truth is 1 or 0. `None` if it cannot be computed.
    pub(crate) fn value(&self, bindings: &Bindings<'_>, bounds: &mut Bounds) -> Option<i128> {
        match self {
            Expr::Int(value) => Some(*value),
            Expr::Slot(slot) => match bindings.node(*slot) {
                Some(node) => node.as_int(),
                None => bindings.part(*slot).filter(|sum| sum.terms.is_empty()).map(|s| s.constant),
            },
            Expr::Ask(question, [first, second]) => {
                match (bindings.node(*first), bindings.node(*second)) {
                    (None, Some(range)) if *question == Question::Free => {
                        let terms = &bindings.part(*first)?.terms;
                        Some(i128::from(terms.iter().all(|(node, _)| reduce::is_free(node, range))))
                    }
                    (Some(first), Some(second)) => ask(*question, first, second, bounds),
                    _ => ask_part(*question, bindings.part(*first)?, bounds),
                }
            }
            Expr::Unary('!', inner) => Some(i128::from(inner.value(bindings, bounds)? == 0)),
            Expr::Unary(_, inner) => inner.value(bindings, bounds)?.checked_neg(),
            Expr::Binary(operator, left, right) => {
                let left = left.value(bindings, bounds)?;
                match (*operator, left) {
                    (Operator::And, 0) => return Some(0),
                    (Operator::Or, 1) => return Some(1),
                    _ => {}
                }
                apply(*operator, left, right.value(bindings, bounds)?)
            }
            Expr::Fits(inner, slot) => {
                let (low, high) = bindings.node(*slot)?.dtype().int_range()?;
                let value = inner.value(bindings, bounds)?;
                Some(i128::from(low <= value && value <= high))
            }
        }
    }
}

fn apply(operator: Operator, x: i128, y: i128) -> Option<i128> {
    let truth = |value| Some(i128::from(value));
    match operator {
        Operator::Or => truth(x != 0 || y != 0),
        Operator::And => truth(x != 0 && y != 0),
        Operator::Equal => truth(x == y),
        Operator::NotEqual => truth(x != y),
        Operator::Less => truth(x < y),
        Operator::AtMost => truth(x <= y),
        Operator::More => truth(x > y),
        Operator::AtLeast => truth(x >= y),
        Operator::Add => x.checked_add(y),
        Operator::Sub => x.checked_sub(y),
        Operator::Mul => x.checked_mul(y),
        Operator::FloorDiv => (y != 0).then(|| floor_div(x, y)),
        Operator::FloorMod => (y != 0).then(|| floor_rem(x, y)),
        Operator::CDiv => x.checked_div(y),
        Operator::CMod => x.checked_rem(y),
        Operator::Gcd => Some(gcd(x, y)),
    }
}

/// Answers a question about the exact sum of a name that an equation binds.
fn ask_part(question: Question, part: &Sum, bounds: &mut Bounds) -> Option<i128> {
    match question {
        Question::Min => bounds.of_exact_sum(part).map(|interval| interval.0),
        Question::Max => bounds.of_exact_sum(part).map(|interval| interval.1),
        Question::Linear => Some(i128::from(bounds.of_sum(part).is_some())),
        _ => None,
    }
}

/// The greatest common divisor, not negative; that of 0 and 0 is 0.
pub(crate) fn gcd(x: i128, y: i128) -> i128 {
    let (mut x, mut y) = (x.abs(), y.abs());
    while y != 0 {
        (x, y) = (y, x % y);
    }
    x
}

fn ask(question: Question, x: &UOp, y: &UOp, bounds: &mut Bounds) -> Option<i128> {
    let truth = |value| Some(i128::from(value));
    let is_discrete = x.dtype().int_range().is_some();
    match question {
        Question::Min => is_discrete.then(|| bounds.of(x).0),
        Question::Max => is_discrete.then(|| bounds.of(x).1),
        Question::Bits => Some(i128::from(x.dtype().bits())),
        Question::Linear => {
            let sum = bounds.sum(x)?;
            truth(bounds.of_sum(&sum).is_some())
        }
        Question::Before => truth(canonical_cmp(x, y).is_lt()),
        Question::SameOp => truth(x.op() == y.op()),
        Question::Operands => Some(operands(x, &bounds.shared)),
        Question::IsInt => truth(x.dtype().is_int()),
        Question::IsBool => truth(x.dtype() == DType::Bool),
        Question::Same => truth(x.dtype() == y.dtype()),
        Question::Exact => truth(is_exact(x, y.dtype(), bounds)),
        Question::NoWrap => {
            let exact = match x.src() {
                [only] => interval::unary(x.op(), only.dtype(), x.dtype(), bounds.of(only)),
                [left, right] => {
                    let (left, right) = (bounds.of(left), bounds.of(right));
                    interval::binary(x.op(), x.dtype(), left, right)
                }
                _ => None,
            };
            let (low, high) = x.dtype().int_range()?;
            exact.and_then(|(min, max)| truth(low <= min && max <= high))
        }
        Question::ExactSum => {
            let (left, right) = (x.as_const()?, y.as_const()?);
            let sum = gradiff_graph::evaluate(gradiff_graph::Op::Add, x.dtype(), &[left, right])?;
            let (left, right, sum) = (left.to_float()?, right.to_float()?, sum.to_float()?);
            // With one sign and a finite sum, both differences are exact if the sum is.
            let is_exact = sum - left == right && sum - right == left;
            truth(sum.is_finite() && left * right > 0.0 && is_exact)
        }
        Question::Free => truth(reduce::is_free(x, y)),
        Question::Size => reduce::trip_count(x),
        Question::PowerOfTwo => {
            let value = x.as_const()?.to_float()?.abs();
            let is_power = value.is_normal() && value.to_bits() << 12 == 0;
            // Far inside the exponents of f16, the narrowest.
            truth(is_power && (2f64.powi(-14)..=2f64.powi(14)).contains(&value))
        }
    }
}

fn operands(chain: &UOp, shared: &FxHashSet<UOp>) -> i128 {
    const LIMIT: usize = 17;
    let mut pending: smallvec::SmallVec<[&UOp; LIMIT + 1]> = smallvec::smallvec![chain];
    let mut inner: smallvec::SmallVec<[&UOp; LIMIT + 1]> = smallvec::SmallVec::new();
    let mut count = 0;
    while let Some(node) = pending.pop() {
        match node.src() {
            [x, y] if node.op() == chain.op() => {
                if inner.contains(&node) || node != chain && shared.contains(node) {
                    return LIMIT as i128;
                }
                inner.push(node);
                pending.extend([x, y]);
            }
            _ => count += 1,
        }
        if LIMIT <= count + pending.len() {
            return LIMIT as i128;
        }
    }
    count as i128
}

/// Returns whether each value of `x` is also a value of `dtype`.
fn is_exact(x: &UOp, dtype: DType, bounds: &mut Bounds) -> bool {
    match (x.dtype().int_range(), dtype.int_range()) {
        (Some(_), Some((low, high))) => {
            let (min, max) = bounds.of(x);
            low <= min && max <= high
        }
        (Some(_), None) => {
            let (min, max) = bounds.of(x);
            let limit = 1i128 << (dtype.mantissa_bits() + 1);
            // 65504 is the largest f16; 2^11 is well below it.
            dtype.is_float() && -limit <= min && max <= limit
        }
        (None, None) => {
            let wider = [
                (DType::F16, DType::F32),
                (DType::BF16, DType::F32),
                (DType::F16, DType::F64),
                (DType::BF16, DType::F64),
                (DType::F32, DType::F64),
            ];
            x.dtype() == dtype || wider.contains(&(x.dtype(), dtype))
        }
        (None, Some(_)) => false,
    }
}
