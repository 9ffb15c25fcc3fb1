//! The little language of conditions and computed constants: integers of any dtype as i128, every
//! step checked. What cannot be computed makes the condition false.

use gradiff_graph::{DType, UOp};

use crate::bounds::{self, Bounds, floor_div, floor_rem};
use crate::pattern::{Bindings, Lexer, Slots};
use crate::reduce;
use crate::sum::{Sum, canonical_cmp};

/// A parsed expression.
#[derive(Clone, Debug)]
pub enum Expr {
    /// A number.
    Int(i128),
    /// The value of an integer constant; the number of its name.
    Slot(usize),
    /// A question about bound nodes, by the numbers of their names; twice the same number if it is
    /// about one.
    Ask(Question, [usize; 2]),
    /// `!` or `-`.
    Unary(char, Box<Expr>),
    /// Two expressions and the operator between them.
    Binary(Operator, Box<Expr>, Box<Expr>),
    /// Whether the value lies in the range of the dtype of a node, by the number of its name.
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
    /// Whether the dtype is an integer type.
    IsInt,
    /// Whether the dtype is bool.
    IsBool,
    /// Whether two nodes have one dtype.
    Same,
    /// Whether every value of the first node is a value of the second one's dtype.
    Exact,
    /// Whether the node's own op never leaves its dtype's range.
    NoWrap,
    /// Whether two float constants have one sign and a sum without rounding or overflow.
    ExactSum,
    /// Whether a float constant and its reciprocal are powers of two in the normal range.
    PowerOfTwo,
    /// Whether the node's value is its exact sum: sums, differences and products with constants,
    /// read through as far as they go, stay in the dtype's range as a whole.
    Linear,
    /// Whether the first node stands before the second in the canonical order of operands.
    Before,
    /// Whether two nodes have one op.
    SameOp,
    /// The count of operands of a chain of the node's op; 17 stands for more than 16, and for a
    /// chain that has a part of itself twice.
    Operands,
    /// Whether a node, or each node of a sum, has one value over a range: it is not made from the
    /// range.
    Free,
    /// How many steps a range has; a constant in its place is one step.
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

/// Written as calls of two expressions.
const CALLS: [(&str, Operator); 3] =
    [("cdiv", Operator::CDiv), ("cmod", Operator::CMod), ("gcd", Operator::Gcd)];

/// Loosest first.
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
    /// The parts of a conjunction, in order.
    pub(crate) fn conjuncts(self) -> Vec<Expr> {
        match self {
            Expr::Binary(Operator::And, left, right) => {
                let mut parts = left.conjuncts();
                parts.extend(right.conjuncts());
                parts
            }
            other => vec![other],
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

    /// The expression at the front of `lexer`.
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
        let found = QUESTIONS.iter().find(|(word, ..)| *word == name);
        let (_, question, arity) = found.ok_or(format!("there is no function {name}"))?;
        let first = slots.bound(lexer.word()?)?;
        let second = if *arity == 2 {
            lexer.expect(",")?;
            slots.bound(lexer.word()?)?
        } else {
            first
        };
        Ok(Expr::Ask(*question, [first, second]))
    }

    /// The value; truth is 1 or 0. `None` if it cannot be computed.
    pub(crate) fn value(&self, bound: &Bindings<'_>, known: &mut Bounds) -> Option<i128> {
        match self {
            Expr::Int(value) => Some(*value),
            Expr::Slot(slot) => match bound.node(*slot) {
                Some(node) => node.as_int(),
                None => bound.part(*slot).filter(|sum| sum.terms.is_empty()).map(|s| s.constant),
            },
            Expr::Ask(question, [first, second]) => {
                match (bound.node(*first), bound.node(*second)) {
                    (None, Some(range)) if *question == Question::Free => {
                        let terms = &bound.part(*first)?.terms;
                        Some(i128::from(terms.iter().all(|(node, _)| reduce::is_free(node, range))))
                    }
                    (Some(first), Some(second)) => ask(*question, first, second, known),
                    _ => ask_part(*question, bound.part(*first)?, known),
                }
            }
            Expr::Unary('!', inner) => Some(i128::from(inner.value(bound, known)? == 0)),
            Expr::Unary(_, inner) => inner.value(bound, known)?.checked_neg(),
            Expr::Binary(operator, left, right) => {
                let left = left.value(bound, known)?;
                match (*operator, left) {
                    (Operator::And, 0) => return Some(0),
                    (Operator::Or, 1) => return Some(1),
                    _ => {}
                }
                apply(*operator, left, right.value(bound, known)?)
            }
            Expr::Fits(inner, slot) => {
                let (low, high) = bound.node(*slot)?.dtype().int_range()?;
                let value = inner.value(bound, known)?;
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

/// What can be asked about a part that an equation gave: its exact sum.
fn ask_part(question: Question, part: &Sum, known: &mut Bounds) -> Option<i128> {
    match question {
        Question::Min => part.exact(known).map(|interval| interval.0),
        Question::Max => part.exact(known).map(|interval| interval.1),
        Question::Linear => Some(i128::from(part.interval(known).is_some())),
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

fn ask(question: Question, x: &UOp, y: &UOp, known: &mut Bounds) -> Option<i128> {
    let truth = |value| Some(i128::from(value));
    let is_discrete = x.dtype().int_range().is_some();
    match question {
        Question::Min => is_discrete.then(|| known.of(x).0),
        Question::Max => is_discrete.then(|| known.of(x).1),
        Question::Bits => Some(i128::from(x.dtype().bits())),
        Question::Linear => truth(known.sum(x)?.interval(known).is_some()),
        Question::Before => truth(canonical_cmp(x, y).is_lt()),
        Question::SameOp => truth(x.op() == y.op()),
        Question::Operands => Some(operands(x)),
        Question::IsInt => truth(x.dtype().is_int()),
        Question::IsBool => truth(x.dtype() == DType::Bool),
        Question::Same => truth(x.dtype() == y.dtype()),
        Question::Exact => truth(is_exact(x, y.dtype(), known)),
        Question::NoWrap => {
            let exact = match x.src() {
                [only] => bounds::unary(x.op(), only.dtype(), x.dtype(), known.of(only)),
                [left, right] => {
                    let (left, right) = (known.of(left), known.of(right));
                    bounds::binary(x.op(), x.dtype(), left, right)
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
        Question::Size => reduce::size(x),
        Question::PowerOfTwo => {
            let value = x.as_const()?.to_float()?.abs();
            let is_power = value.is_normal() && value.to_bits() << 12 == 0;
            // Far inside the exponents of f16, the narrowest.
            truth(is_power && (2f64.powi(-14)..=2f64.powi(14)).contains(&value))
        }
    }
}

fn operands(chain: &UOp) -> i128 {
    const MOST: usize = 17;
    let mut pending: smallvec::SmallVec<[&UOp; MOST + 1]> = smallvec::smallvec![chain];
    let mut inner: smallvec::SmallVec<[&UOp; MOST + 1]> = smallvec::SmallVec::new();
    let mut count = 0;
    while let Some(node) = pending.pop() {
        match node.src() {
            [x, y] if node.op() == chain.op() => {
                if inner.contains(&node) {
                    return MOST as i128;
                }
                inner.push(node);
                pending.extend([x, y]);
            }
            _ => count += 1,
        }
        if MOST <= count + pending.len() {
            return MOST as i128;
        }
    }
    count as i128
}

/// Whether each value of `x` is also a value of `dtype`.
fn is_exact(x: &UOp, dtype: DType, known: &mut Bounds) -> bool {
    let mantissa_bits = |dtype| match dtype {
        DType::F16 => 11,
        DType::BF16 => 8,
        DType::F32 => 24,
        _ => 53,
    };
    match (x.dtype().int_range(), dtype.int_range()) {
        (Some(_), Some((low, high))) => {
            let (min, max) = known.of(x);
            low <= min && max <= high
        }
        (Some(_), None) => {
            let (min, max) = known.of(x);
            let most = 1i128 << mantissa_bits(dtype);
            // 65504 is the largest f16; 2^11 is well below it.
            dtype.is_float() && -most <= min && max <= most
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
