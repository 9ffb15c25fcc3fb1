//! Nodes that a rule's left side matches, drawn at random. Constants, variables with all kinds of
//! ranges, and sums of them take the place of its names. Whether the condition holds is left to
//! chance, but the draw favours what conditions require, such as common factors and ranges that
//! start at 0. Reductions run over one range or two; a name that the condition requires to be free
//! of the range mostly is.

use gradiff_eval::scalar;
use gradiff_graph::verify::verify;
use gradiff_graph::{Arg, Constant, DType, Dims, Op, UOp};
use gradiff_rewrite::Rule;
use gradiff_rewrite::syntax::is_constant_name;

use crate::leaves;
use crate::mutate::{Term, pattern_tokens, tokens};

/// A source of random numbers: a call with n gives a number below n.
pub(crate) type Dice<'d> = &'d mut dyn FnMut(u64) -> u64;

/// Draws a node of the form of the rule's left side, whose subject has this dtype (see
/// [`Types`](gradiff_rewrite::Types); the subject of a reduction is the reduction itself). `None`
/// if the left side does not name an op, or if the rule does not apply to the dtype. The same dice
/// give the same node. Floats are loads, integers and bools are made of variables.
pub fn instance(rule: &Rule, subject: DType, dice: &mut dyn FnMut(u64) -> u64) -> Option<UOp> {
    if !rule.types.has(subject) {
        return None;
    }
    // Threefry is an op over 64-bit words.
    if rule.lhs.contains("threefry") && subject != DType::U64 {
        return None;
    }
    let term = Term::read(rule.lhs, &pattern_tokens(rule.lhs), &mut 0)?;
    let factors = [(); 2].map(|()| 2 + dice(7) as i128);
    let (text, named, variables, range) = (rule.lhs, Vec::new(), Vec::new(), None);
    let mut draw = Draw { rule, text, subject, dice, factors, named, variables, range };
    if let Some(op) = term.op_name(rule.lhs).strip_prefix("reduce.") {
        return draw.reduction(&term, Op::from_name(op)?);
    }
    // If an equation says that the root is a sum, mostly draws that sum.
    if let Some(root) = draw.equation("root", subject).filter(|root| root.op() == Op::Add) {
        return Some(root);
    }
    let op = Op::from_name(term.op_name(rule.lhs))?;
    let root = match op {
        Op::Cast | Op::Bitcast => draw.pick(&CAST_DTYPES),
        Op::Store | Op::Sink => DType::Void,
        Op::Index | Op::Load => draw.pick(&[DType::F32, DType::I32]),
        _ if op.is_comparison() => DType::Bool,
        _ => subject,
    };
    draw.node(&term, op, root, Some(subject)).filter(|root| verify(root).is_ok())
}

const CAST_DTYPES: [DType; 8] =
    [DType::I32, DType::I8, DType::U8, DType::I64, DType::Bool, DType::F32, DType::U32, DType::U64];

/// Small numbers, first those that conditions require most often.
const SMALL: [i128; 14] = [2, 3, 4, 1, 6, 8, 0, 5, -1, -2, -3, 7, -8, 10];

const FLOATS: [f64; 14] = [
    1.0,
    2.0,
    0.5,
    -1.0,
    0.0,
    -0.0,
    3.0,
    -0.25,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::NAN,
    1024.0,
    -5.0,
    6.0,
];

/// A node that is being drawn.
struct Draw<'t, 'd> {
    rule: &'t Rule,
    /// The text of the rule's left side.
    text: &'t str,
    subject: DType,
    dice: Dice<'d>,
    /// Two numbers of which most constants are multiples, as divisions and their conditions
    /// require.
    factors: [i128; 2],
    /// The names that have a node so far.
    named: Vec<(&'t str, UOp)>,
    /// The variables so far.
    variables: Vec<UOp>,
    /// The range that a reduction runs over.
    range: Option<UOp>,
}

impl<'t> Draw<'t, '_> {
    fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[(self.dice)(items.len() as u64) as usize]
    }

    fn one_in(&mut self, count: u64) -> bool {
        (self.dice)(count) == 0
    }

    /// The node of a term, of this dtype.
    fn term(&mut self, term: &Term, dtype: DType) -> Option<UOp> {
        let word = &self.text[term.range.clone()];
        if term.op.is_some() {
            return match term.op_name(self.text) {
                "not" => Some(UOp::not(self.term(&term.sources[0], DType::Bool)?)),
                name => self.node(term, Op::from_name(name)?, dtype, None),
            };
        }
        if let Some(literal) = literal(word, dtype) {
            return (literal.dtype() == dtype).then(|| UOp::constant(literal));
        }
        self.name(word, dtype)
    }

    /// The node of a name, drawn now or before.
    fn name(&mut self, word: &'t str, dtype: DType) -> Option<UOp> {
        if let Some((_, node)) = self.named.iter().find(|(name, _)| *name == word) {
            return (node.dtype() == dtype).then(|| node.clone());
        }
        let sum = if is_constant_name(word) { None } else { self.equation(word, dtype) };
        let node = match (sum, self.range.clone()) {
            _ if is_constant_name(word) => UOp::constant(self.constant(dtype)),
            (Some(node), _) => node,
            (None, Some(range)) => self.in_reduction(word, dtype, &range)?,
            _ if self.rule.given.contains("by simplex") && dtype.is_int() => {
                self.positive_sum(dtype)
            }
            (None, None) => self.leaf(dtype),
        };
        self.named.push((word, node.clone()));
        Some(node)
    }

    /// The sum that an equation of the rule says a name is. `None` if there is no such equation, in
    /// a reduction, and in one case of four.
    fn equation(&mut self, name: &str, dtype: DType) -> Option<UOp> {
        if self.rule.given.is_empty() || !dtype.is_int() || self.range.is_some() {
            return None;
        }
        let given = self.rule.given;
        let words: Vec<&'static str> = tokens(given).into_iter().map(|word| &given[word]).collect();
        let position = words.windows(2).position(|pair| pair == [name, "="])?;
        if self.one_in(4) { None } else { self.equation_sum(&words, &mut (position + 2), dtype) }
    }

    /// Draws the sum of an equation that begins at the word `at`, and moves `at` behind it. The
    /// terms are in any order, since those that a rule combines are not always adjacent.
    fn equation_sum(
        &mut self,
        words: &[&'static str],
        at: &mut usize,
        dtype: DType,
    ) -> Option<UOp> {
        let mut terms = vec![self.equation_product(words, at, dtype)?];
        while let Some(sign @ ("+" | "-")) = words.get(*at).copied() {
            *at += 1;
            let term = self.equation_product(words, at, dtype)?;
            let negated = || UOp::binary(Op::Mul, term.clone(), UOp::int(dtype, -1));
            terms.push(if sign == "-" { negated() } else { term.clone() });
        }
        if 2 < terms.len() && self.one_in(2) {
            let position = (self.dice)(terms.len() as u64) as usize;
            let last = terms.len() - 1;
            terms.swap(position, last);
        }
        terms.into_iter().reduce(|sum, term| UOp::binary(Op::Add, sum, term))
    }

    /// Draws a term of such a sum, from the word `at` on: a chain of products, quotients and
    /// remainders.
    fn equation_product(
        &mut self,
        words: &[&'static str],
        at: &mut usize,
        dtype: DType,
    ) -> Option<UOp> {
        let mut product = self.equation_operand(words, at, dtype)?;
        loop {
            let op = match words.get(*at).copied() {
                Some("*") => Op::Mul,
                Some("//") => Op::FloorDiv,
                Some("%") => Op::FloorMod,
                _ => return Some(product),
            };
            *at += 1;
            let operand = self.equation_operand(words, at, dtype)?;
            let values = product.as_const().zip(operand.as_const());
            let folded = values.and_then(|(x, y)| scalar::evaluate(op, dtype, &[x, y]));
            product = folded.map_or_else(|| UOp::binary(op, product, operand), UOp::constant);
        }
    }

    /// Draws an operand of such a term, from the word `at` on: a number, a name, a sum in
    /// parentheses, or a truncated division.
    fn equation_operand(
        &mut self,
        words: &[&'static str],
        at: &mut usize,
        dtype: DType,
    ) -> Option<UOp> {
        let word = words.get(*at).copied()?;
        *at += 1;
        let op = match word {
            "cdiv" => Op::CDiv,
            "cmod" => Op::CMod,
            "(" => {
                let sum = self.equation_sum(words, at, dtype)?;
                *at += 1;
                return Some(sum);
            }
            _ if word.parse::<i64>().is_ok() => return Some(UOp::int(dtype, word.parse().ok()?)),
            _ => return self.name(word, dtype),
        };
        *at += 1;
        let dividend = self.equation_sum(words, at, dtype)?;
        *at += 1;
        let divisor = self.equation_sum(words, at, dtype)?;
        *at += 1;
        Some(UOp::binary(op, dividend, divisor))
    }

    /// A reduction of the subject's dtype over one range, or sometimes two. The dtype of the ranges
    /// is narrow or wide.
    fn reduction(&mut self, term: &Term, op: Op) -> Option<UOp> {
        let [value, range] = &term.sources[..] else { return None };
        let word = &self.text[range.range.clone()];
        let is_range_the_value = self.text[value.range.clone()] == *word;
        let range_dtype = self.pick(&[DType::I8, DType::I8, DType::I32, DType::U8]);
        let range_dtype = if is_range_the_value { self.subject } else { range_dtype };
        if !range_dtype.is_int() {
            return None;
        }
        let large = self.large_trip_counts();
        let ranges = [0, 1].map(|axis| {
            let trip_count = self.pick(&[3, 2, 4, 3, 1, 5, 9, 0]);
            // A large trip count is too large to be evaluated, but not to be rewritten.
            let is_large = range_dtype == DType::I32 && !large.is_empty() && self.one_in(4);
            let trip_count = if is_large { self.pick(&large) } else { trip_count };
            let end = UOp::int(range_dtype, trip_count);
            UOp::new(Op::Range, range_dtype, [end], Arg::plain_axis(axis))
        });
        self.named.push((word, ranges[0].clone()));
        self.range = Some(ranges[0].clone());
        let value = self.term(value, self.subject)?;
        let count = if self.one_in(4) { 2 } else { 1 };
        let src: Vec<UOp> = std::iter::once(value).chain(ranges.into_iter().take(count)).collect();
        let reduction = UOp::new(Op::Reduce, self.subject, src, Arg::Reduce(op, Dims::new()));
        verify(&reduction).is_ok().then_some(reduction)
    }

    /// The numbers in the condition that are too large to be drawn by chance, and the numbers next
    /// to them.
    fn large_trip_counts(&self) -> Vec<i64> {
        let words = tokens(self.rule.when).into_iter();
        let numbers = words.filter_map(|word| self.rule.when[word].parse::<i64>().ok());
        let large = numbers.filter(|number| 99 < *number && *number < i64::from(i32::MAX));
        large.flat_map(|number| [number - 1, number, number + 1]).collect()
    }

    /// The node of a name in a reduction, which mostly meets the condition.
    fn in_reduction(&mut self, word: &str, dtype: DType, range: &UOp) -> Option<UOp> {
        let rule = self.rule;
        let requires = |condition: &str| rule.when.contains(condition);
        let free = format!("free({word}, r)");
        let varies = match self.one_in(8) {
            false if requires(&format!("!{free}")) => true,
            false if requires(&free) => false,
            _ => self.one_in(2),
        };
        let is_scaled = rule.given.starts_with(&format!("{word} = r *"));
        if is_scaled && dtype == range.dtype() && !self.one_in(8) {
            return Some(self.scaled_range(range));
        }
        if requires("max(y) <= min(z)") && matches!(word, "y" | "z") && !self.one_in(8) {
            let lowest = if word == "y" { -3 } else { 1 };
            return Some(UOp::int(dtype, lowest + (self.dice)(5) as i64));
        }
        if rule.rhs == "@gather" && dtype == DType::Bool {
            return Some(self.iteration_condition(range));
        }
        if rule.rhs == "@gather" && word == "y" && !self.one_in(8) {
            return Some(UOp::constant(Constant::zero(dtype)));
        }
        if !varies {
            return Some(self.leaf(dtype));
        }
        if dtype == DType::Bool {
            let (scaled, limit) = (self.scaled_range(range), self.leaf(range.dtype()));
            let op = self.pick(&[Op::CmpLt, Op::CmpLt, Op::CmpNe]);
            return Some(UOp::binary(op, scaled, limit));
        }
        let iteration = if dtype == range.dtype() {
            range.clone()
        } else {
            UOp::unary(Op::Cast, dtype, range.clone())
        };
        let operand = self.leaf(dtype);
        Some(match (self.dice)(4) {
            0 => iteration,
            op => UOp::binary([Op::Mul, Op::Add, Op::Mul][op as usize - 1], iteration, operand),
        })
    }

    /// The range times a factor, plus a rest that mostly does not vary.
    fn scaled_range(&mut self, range: &UOp) -> UOp {
        let dtype = range.dtype();
        let factor = self.pick(&[1, 2, -1, 3, -2, 1, -3, 5]);
        let scaled = UOp::binary(Op::Mul, range.clone(), UOp::int(dtype, factor));
        let scaled = if factor == 1 { range.clone() } else { scaled };
        let rest = match (self.dice)(9) {
            0 | 1 => return scaled,
            2 | 3 => UOp::constant(self.constant(dtype)),
            // This rest varies with the range.
            4 => UOp::binary(Op::FloorMod, range.clone(), UOp::int(dtype, 2)),
            // Its value is a variable, but bounds treat the two terms as independent.
            5 => {
                let (variable, factor) = (self.variable(dtype), 2 + (self.dice)(5) as i64);
                let term = |factor| UOp::binary(Op::Mul, variable.clone(), UOp::int(dtype, factor));
                UOp::binary(Op::Add, term(factor), term(1 - factor))
            }
            _ => self.variable(dtype),
        };
        UOp::binary(Op::Add, scaled, rest)
    }

    /// A condition that is true in one iteration of the range; sometimes with a further condition.
    fn iteration_condition(&mut self, range: &UOp) -> UOp {
        let iteration = self.leaf(range.dtype());
        let is_equal = UOp::not(UOp::binary(Op::CmpNe, range.clone(), iteration));
        match self.one_in(3) {
            true => UOp::binary(Op::And, is_equal, self.leaf(DType::Bool)),
            false => is_equal,
        }
    }

    /// The node of a term with this op and dtype. `subject` is the dtype of the operands of the
    /// root.
    fn node(&mut self, term: &Term, op: Op, dtype: DType, subject: Option<DType>) -> Option<UOp> {
        let operand_dtype = match op {
            Op::Index | Op::Load | Op::Store => dtype,
            Op::Sink => DType::Void,
            _ if !op.is_elementwise() => return None,
            _ if subject.is_some() => subject?,
            Op::Cast => self.cast_from(term),
            Op::Bitcast => {
                let as_wide = CAST_DTYPES.iter().filter(|from| from.bits() == dtype.bits());
                let as_wide: Vec<DType> = as_wide.copied().chain([dtype]).collect();
                self.pick(&as_wide)
            }
            _ if op.is_comparison() => self.dtype_of_comparison(term),
            _ => dtype,
        };
        let mut sources = Vec::with_capacity(term.sources.len());
        for (position, source) in term.sources.iter().enumerate() {
            sources.push(match (op, position) {
                (Op::Index, 0) => self.global(dtype),
                (Op::Index, 1) => self.term(source, DType::I32)?,
                (Op::Where, 0) | (Op::Index, 2) => self.term(source, DType::Bool)?,
                (Op::Store, _) => self.term(source, DType::F32)?,
                _ => self.term(source, operand_dtype)?,
            });
        }
        let may_differ = op.is_comparison() || matches!(op, Op::Cast | Op::Bitcast);
        if !may_differ && dtype != operand_dtype {
            return None;
        }
        let node = UOp::new(op, dtype, sources, Arg::None);
        if let Some(name) = term.name.clone() {
            self.named.push((&self.text[name], node.clone()));
        }
        Some(node)
    }

    /// One of two arrays, large enough for small indices.
    fn global(&mut self, dtype: DType) -> UOp {
        let slot = 1 + (self.dice)(2) as usize;
        leaves::global(dtype, slot)
    }

    /// An element of an array, at a constant index.
    fn load(&mut self, dtype: DType) -> UOp {
        let offset = UOp::int(DType::I32, (self.dice)(4) as i64);
        let index = UOp::new(Op::Index, dtype, [self.global(dtype), offset], Arg::None);
        UOp::unary(Op::Load, dtype, index)
    }

    /// A store with a gate, which may be false.
    fn store(&mut self) -> UOp {
        let gate = if self.one_in(2) {
            self.leaf(DType::Bool)
        } else {
            UOp::constant(Constant::bool(false))
        };
        let offset = self.leaf(DType::I32);
        let index =
            UOp::new(Op::Index, DType::F32, [self.global(DType::F32), offset, gate], Arg::None);
        UOp::new(Op::Store, DType::Void, [index, self.load(DType::F32)], Arg::None)
    }

    /// The dtype of the source of a cast.
    fn cast_from(&mut self, term: &Term) -> DType {
        let word = &self.text[term.sources[0].range.clone()];
        let op = term.sources[0].op_name(self.text);
        let named = self.named.iter().find(|(name, _)| *name == word);
        let is_bool = Op::from_name(op).is_some_and(Op::is_comparison) || op == "not";
        match named {
            Some((_, node)) => node.dtype(),
            None if is_bool || self.rule.when.contains(&format!("isbool({word})")) => DType::Bool,
            None => self.pick(&CAST_DTYPES),
        }
    }

    /// The dtype of the operands of a comparison within a left side.
    fn dtype_of_comparison(&mut self, term: &Term) -> DType {
        for source in &term.sources {
            let word = &self.text[source.range.clone()];
            let name = source.op_name(self.text);
            if matches!(word, "true" | "false") || matches!(name, "not" | "cmplt" | "cmpne") {
                return DType::Bool;
            }
            if let Some((_, node)) = self.named.iter().find(|(name, _)| *name == word) {
                return node.dtype();
            }
        }
        match &self.range {
            Some(range) => range.dtype(),
            None if self.subject == DType::Bool => DType::I32,
            None => self.subject,
        }
    }

    fn constant(&mut self, dtype: DType) -> Constant {
        let Some((low, high)) = dtype.int_range() else {
            let value = self.pick(&FLOATS);
            return Constant::float(dtype, value);
        };
        if dtype == DType::Bool {
            return Constant::bool(self.one_in(2));
        }
        if self.rule.given.contains("by simplex") && !self.one_in(4) {
            return Constant::int(dtype, 1);
        }
        let value = match (self.dice)(16) {
            0 => self.pick(&[low, low + 1, high, high - 1]),
            1 => (self.dice)(60) as i128 - 20,
            2..=9 => {
                let [factor, second] = self.factors;
                factor * self.pick(&[1, 1, 1, 2, 3, -1, 0, second])
            }
            _ => self.pick(&SMALL),
        };
        Constant::int(dtype, value)
    }

    /// A node of this dtype for a name that no equation or condition describes.
    fn leaf(&mut self, dtype: DType) -> UOp {
        match dtype {
            DType::Bool => {
                let limit = self.pick(&SMALL) as i64;
                let is_i32 = |variable: &&UOp| variable.dtype() == DType::I32;
                let existing = self.variables.iter().find(is_i32).cloned();
                let existing = existing.filter(|_| (self.dice)(2) == 0);
                let variable = existing.unwrap_or_else(|| self.variable(DType::I32));
                let limit = if self.one_in(2) {
                    UOp::int(DType::I32, limit)
                } else {
                    self.variable(DType::I32)
                };
                UOp::binary(Op::CmpLt, variable, limit)
            }
            DType::Void => self.store(),
            _ if dtype.is_float() => self.load(dtype),
            _ if self.rule.when.contains("operands(root)") && self.one_in(3) => self.chain(dtype),
            _ => match (self.dice)(12) {
                0..4 => self.variable(dtype),
                4..8 => self.sum(dtype),
                8 => self.quotient(dtype),
                9 => self.quotient_and_remainder(dtype),
                10 => self.op_on_name(dtype),
                _ => UOp::constant(self.constant(dtype)),
            },
        }
    }

    /// A sum of variables with factors, and a constant; the factors are often those of the left
    /// side.
    fn sum(&mut self, dtype: DType) -> UOp {
        let mut sum: Option<UOp> = None;
        for _ in 0..1 + (self.dice)(3) {
            let node = if self.one_in(6) { self.quotient(dtype) } else { self.variable(dtype) };
            let factor = UOp::constant(self.constant(dtype));
            let term = if self.one_in(3) { node } else { UOp::binary(Op::Mul, node, factor) };
            sum = Some(sum.map_or(term.clone(), |sum| UOp::binary(Op::Add, sum, term)));
        }
        let constant = UOp::constant(self.constant(dtype));
        let sum = sum.unwrap_or_else(|| constant.clone());
        if self.one_in(2) { UOp::binary(Op::Add, sum, constant) } else { sum }
    }

    /// A chain of the op of the left side, about as long as the condition on `operands(root)`
    /// allows.
    fn chain(&mut self, dtype: DType) -> UOp {
        let op = ["(mul", "(max", "(min"].iter().find(|op| self.text.starts_with(**op));
        let op = op.and_then(|op| Op::from_name(&op[1..])).unwrap_or(Op::Mul);
        let count = 12 + (self.dice)(4);
        let names = (0..=count).map(|number| (format!("w{number}"), (-8, 8)));
        let nodes = names.map(|(name, range)| leaves::variable(dtype, &name, range));
        let chain = nodes.reduce(|chain, node| UOp::binary(op, chain, node));
        chain.unwrap_or_else(|| UOp::int(dtype, 1))
    }

    /// A sum of variables with factors, few of which are negative.
    fn positive_sum(&mut self, dtype: DType) -> UOp {
        let count = 2 + (self.dice)(2);
        let terms = (0..count).map(|number| {
            let (min, max) = (self.pick(&[0, 0, 0, -1]), 1 + (self.dice)(9) as i64);
            let min = if dtype.int_range().is_some_and(|(low, _)| low == 0) { 0 } else { min };
            let node = leaves::variable(dtype, &format!("w{number}"), (min, max));
            let factor = UOp::int(dtype, self.pick(&[1, 2, 3, 5, 8, -1]));
            UOp::binary(Op::Mul, node, factor)
        });
        let terms: Vec<UOp> = terms.collect();
        let sum = terms.into_iter().reduce(|sum, term| UOp::binary(Op::Add, sum, term));
        sum.unwrap_or_else(|| UOp::int(dtype, 0))
    }

    /// A quotient or a remainder of a variable.
    fn quotient(&mut self, dtype: DType) -> UOp {
        let op = self.pick(&[Op::FloorDiv, Op::FloorMod, Op::FloorMod, Op::CDiv, Op::CMod]);
        let variable = self.variable(dtype);
        let divisor = UOp::constant(Constant::int(dtype, self.pick(&[2, 3, 4, 6, 8, 5])));
        UOp::binary(op, variable, divisor)
    }

    /// A sum `q*c + r` of the quotient and the remainder of the same node, which recombine; or a
    /// sum of quotients such as unrolling gives.
    fn quotient_and_remainder(&mut self, dtype: DType) -> UOp {
        let [factor, second_factor] =
            self.factors.map(|factor| UOp::constant(Constant::int(dtype, factor)));
        let [division, modulo] = self.pick(&[[Op::FloorDiv, Op::FloorMod], [Op::CDiv, Op::CMod]]);
        let mut base = self.variable(dtype);
        if self.one_in(4) {
            base = UOp::binary(division, base, second_factor.clone());
        }
        if self.one_in(4) {
            let (count, stride) = (2 + (self.dice)(2) as i64, self.pick(&[1, 1, 2, 3]));
            let quotient = |offset: i64| {
                let shift = UOp::int(dtype, offset * stride);
                let shifted = UOp::binary(Op::Add, base.clone(), shift);
                let shifted = if offset == 0 { base.clone() } else { shifted };
                UOp::binary(division, shifted, UOp::int(dtype, count * stride))
            };
            let further = (1..count).map(quotient);
            return further.fold(quotient(0), |sum, term| UOp::binary(Op::Add, sum, term));
        }
        let remainder = UOp::binary(modulo, base.clone(), factor.clone());
        // The quotient of a quotient may be that of its dividend by the product.
        let mut quotient = match base.src() {
            [inner, _] if self.one_in(2) => {
                let product = self.factors[0] * self.factors[1];
                UOp::binary(division, inner.clone(), UOp::constant(Constant::int(dtype, product)))
            }
            _ => UOp::binary(division, base.clone(), factor.clone()),
        };
        if self.one_in(3) {
            quotient = UOp::binary(modulo, quotient, second_factor);
        }
        let scaled = UOp::binary(Op::Mul, quotient, factor);
        match self.one_in(2) {
            true => UOp::binary(Op::Add, remainder, scaled),
            false => UOp::binary(Op::Add, scaled, remainder),
        }
    }

    /// An op on the node of another name and a constant.
    fn op_on_name(&mut self, dtype: DType) -> UOp {
        let nodes = self.named.iter().map(|(_, node)| node);
        let nodes: Vec<UOp> = nodes.filter(|node| node.dtype() == dtype).cloned().collect();
        if nodes.is_empty() {
            return self.variable(dtype);
        }
        let position = (self.dice)(nodes.len() as u64) as usize;
        let op = self.pick(&[Op::Add, Op::Add, Op::Mul, Op::Max]);
        UOp::binary(op, nodes[position].clone(), UOp::constant(self.constant(dtype)))
    }

    /// One of at most three variables of a dtype, so that terms have variables in common.
    fn variable(&mut self, dtype: DType) -> UOp {
        let existing = self.variables.iter().filter(|variable| variable.dtype() == dtype);
        let existing: Vec<UOp> = existing.cloned().collect();
        if existing.len() == 3 || !existing.is_empty() && self.one_in(4) {
            let position = (self.dice)(existing.len() as u64) as usize;
            return existing[position].clone();
        }
        let interval = self.interval(dtype);
        let node = leaves::variable(dtype, &format!("v{}", self.variables.len()), interval);
        self.variables.push(node.clone());
        node
    }

    /// The smallest and the largest value of a variable. The interval begins at 0, contains 0, lies
    /// away from 0, is the whole range of the dtype, or ends at or near an end of the dtype, so
    /// that a small sum just fits or just wraps.
    fn interval(&mut self, dtype: DType) -> (i64, i64) {
        let (low, high) = dtype.int_range().unwrap_or_default();
        let (low, high) = (low.max(i64::MIN.into()) as i64, high.min(i64::MAX.into()) as i64);
        let (width, gap) = ((self.dice)(13) as i64, (self.dice)(10) as i64);
        let has_two_values = self.rule.when.contains("max(n) == min(n) + 1") && self.one_in(3);
        let (min, max) = match (self.dice)(17) {
            _ if has_two_values => (width - 6, width - 5),
            0..6 => (0, width),
            6..9 => (-width, width / 2),
            9 => (width, 2 * width),
            10 => (-2 * width, -width),
            11 => (high - width, high),
            12 => (high - gap - width, high - gap),
            13 => (low + gap, low + gap + width),
            14 => (low + gap % 3, high - gap),
            // About half of the dtype's range.
            15 => (low / 2 + gap - 5, high / 2 + width - 5),
            _ => (low, high),
        };
        (min.max(low), max.max(low))
    }
}

/// The constant that a word of a left side stands for; `None` if it is a name.
fn literal(word: &str, dtype: DType) -> Option<Constant> {
    match (word, word.parse::<i64>(), word.parse::<f64>()) {
        ("true" | "false", ..) => Some(Constant::bool(word == "true")),
        (_, Ok(value), _) if dtype.is_float() => Some(Constant::float(dtype, value as f64)),
        (_, Ok(value), _) => Some(Constant::int(dtype, value.into())),
        ("inf" | "-inf", _, Ok(value)) => Some(Constant::float(dtype, value)),
        (_, _, Ok(value)) if dtype.is_float() && word.contains('.') => {
            Some(Constant::float(dtype, value))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradiff_rewrite::{Mode, Options, RuleSet, Trace, rewrite};

    /// Rules whose left side names no op, or that fire only after another rule; they have no
    /// instances.
    const ELSEWHERE: [&str; 5] = [
        "algebra/fold",
        "algebra/by-range",
        "validity/index",
        "half/arithmetic",
        "narrow/arithmetic",
    ];

    /// A source of random numbers that is the same for each call.
    fn dice() -> impl FnMut(u64) -> u64 {
        let mut state = 1u64;
        move |count| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % count
        }
    }

    #[test]
    fn instances_match_and_fire_for_all_rows_that_have_some() {
        let mut dice = dice();
        let mut silent = Vec::new();
        let tables = ["reduce/", "late/"];
        let is_symbolic = |rule: &Rule| !tables.iter().any(|table| rule.name.starts_with(table));
        for rule in
            &gradiff_rewrite::rules::rows().into_iter().filter(is_symbolic).collect::<Vec<_>>()
        {
            let set = RuleSet::load(&[&[*rule]]).expect("the row loads");
            let dtypes = [DType::I32, DType::U8, DType::I8, DType::Bool, DType::F16, DType::F32];
            let fired = (0..4000).any(|number| {
                let node = instance(rule, dtypes[number % dtypes.len()], &mut dice);
                let mut trace = Trace::default();
                let options = Options { mode: Mode::Fast, fuel: Some(1) };
                node.inspect(|node| drop(rewrite(node, &set, &options, &mut trace)));
                trace.applied > 0
            });
            if !fired && !ELSEWHERE.iter().any(|name| rule.name.starts_with(name)) {
                silent.push(rule.name);
            }
        }
        assert!(silent.is_empty(), "{silent:?}");
    }

    /// The number of instances of a rule that a change of the rule rewrites in another way.
    fn difference_count(name: &str, change: &dyn Fn(&Rule) -> Rule) -> usize {
        let row = gradiff_rewrite::rules::rows()
            .into_iter()
            .find(|row| row.name == name)
            .expect("there is such a row");
        let sets = [row, change(&row)].map(|row| RuleSet::load_unordered(&[&[row]]).unwrap());
        let mut dice = dice();
        let nodes = (0..6000).filter_map(|_| instance(&row, DType::I8, &mut dice));
        let rewrite_once = |node: &UOp, set: &RuleSet| {
            let options = Options { mode: Mode::Fast, fuel: Some(1) };
            rewrite(node, set, &options, &mut Trace::default())
        };
        nodes.filter(|node| rewrite_once(node, &sets[0]) != rewrite_once(node, &sets[1])).count()
    }

    /// The rule without a part of its condition.
    fn without(row: &Rule, part: &str) -> Rule {
        assert!(row.when.contains(part), "{}", row.when);
        Rule { when: row.when.replace(part, "").leak(), ..*row }
    }

    #[test]
    fn instances_reach_the_ends_of_types() {
        for part in
            [" && fits(max(x) + 1, x)", " && fits(max(x) - min(w) + c0, x)", " && free(w, r)"]
        {
            let count = difference_count("reduce/count-below", &|row| without(row, part));
            assert!(count > 0, "{part}");
        }
    }

    #[test]
    fn instances_meet_rare_conditions() {
        let parts = [
            ("compare/less-simplex", " && min(r) >= 0"),
            ("algebra/recombine-modulo", " && c2 > 0"),
            ("divmod/floormod-negative", " && fits(-min(x), x)"),
            ("reduce/sum-of-chosen", " && !free(v, r)"),
        ];
        for (name, part) in parts {
            let count = difference_count(name, &|row| without(row, part));
            assert!(count > 0, "{name} without{part}");
        }
    }
}
