//! Nodes that a rule's left side matches, drawn at random: constants, variables of all kinds of
//! ranges and sums of them replace its names. The condition holds by chance; the draw favours what
//! conditions require (common factors, ranges that start at 0). Reductions run over one range or
//! two; names that the condition requires to be free of the range mostly are.

use std::sync::Arc;

use gradiff_graph::{Arg, Constant, DType, Dims, Global, Op, UOp, Variable, evaluate, verify};
use gradiff_rewrite::Rule;
use gradiff_rewrite::syntax::is_constant_name;

use crate::mutate::{Term, pattern_tokens, tokens};

/// Source of random numbers, each below its argument.
pub(crate) type Dice<'d> = &'d mut dyn FnMut(u64) -> u64;

/// A node of the shape of the rule's left side whose subject has this dtype (see
/// [`Types`](gradiff_rewrite::Types); the subject of a reduction is the reduction itself). `None`
/// if the rule starts from any op, or does not apply to the dtype. The same dice give the same
/// node. Floats are read from memory, integers and truth values are made of variables.
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
    let (known, variables, range) = (Vec::new(), Vec::new(), None);
    let mut draw = Draw { rule, text: rule.lhs, subject, dice, factors, known, variables, range };
    if let Some(op) = term.op_name(rule.lhs).strip_prefix("reduce.") {
        return draw.reduction(&term, Op::from_name(op)?);
    }
    // The sum of an equation about the root.
    if let Some(root) = draw.equated("root", subject).filter(|root| root.op() == Op::Add) {
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

/// Small numbers, the most often required ones first.
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

struct Draw<'t, 'd> {
    rule: &'t Rule,
    text: &'t str,
    subject: DType,
    dice: Dice<'d>,
    /// Factors of many constants: divisions and their conditions favour multiples.
    factors: [i128; 2],
    /// The nodes of the names.
    known: Vec<(&'t str, UOp)>,
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
        self.named(word, dtype)
    }

    /// The node of a name, drawn now or before.
    fn named(&mut self, word: &'t str, dtype: DType) -> Option<UOp> {
        if let Some((_, node)) = self.known.iter().find(|(name, _)| *name == word) {
            return (node.dtype() == dtype).then(|| node.clone());
        }
        let equated = if is_constant_name(word) { None } else { self.equated(word, dtype) };
        let node = match (equated, self.range.clone()) {
            _ if is_constant_name(word) => UOp::constant(self.constant(dtype)),
            (Some(node), _) => node,
            (None, Some(range)) => self.in_reduction(word, dtype, &range)?,
            _ if self.rule.given.contains("by simplex") && dtype.is_int() => self.plain(dtype),
            (None, None) => self.leaf(dtype),
        };
        self.known.push((word, node.clone()));
        Some(node)
    }

    /// The sum of a name in the row's equations, most of the time; `None` in a reduction.
    fn equated(&mut self, name: &str, dtype: DType) -> Option<UOp> {
        if self.rule.given.is_empty() || !dtype.is_int() || self.range.is_some() {
            return None;
        }
        let given = self.rule.given;
        let words: Vec<&'static str> = tokens(given).into_iter().map(|word| &given[word]).collect();
        let position = words.windows(2).position(|pair| pair == [name, "="])?;
        if self.one_in(4) { None } else { self.total(&words, &mut (position + 2), dtype) }
    }

    /// A sum of an equation, from the word `at` on, which moves behind it. Its terms are in any
    /// order: those that a rule combines are not always neighbours.
    fn total(&mut self, words: &[&'static str], at: &mut usize, dtype: DType) -> Option<UOp> {
        let mut terms = vec![self.product(words, at, dtype)?];
        while let Some(sign @ ("+" | "-")) = words.get(*at).copied() {
            *at += 1;
            let next = self.product(words, at, dtype)?;
            let minus = || UOp::binary(Op::Mul, next.clone(), UOp::int(dtype, -1));
            terms.push(if sign == "-" { minus() } else { next.clone() });
        }
        if 2 < terms.len() && self.one_in(2) {
            let position = (self.dice)(terms.len() as u64) as usize;
            let last = terms.len() - 1;
            terms.swap(position, last);
        }
        terms.into_iter().reduce(|sum, term| UOp::binary(Op::Add, sum, term))
    }

    fn product(&mut self, words: &[&'static str], at: &mut usize, dtype: DType) -> Option<UOp> {
        let mut product = self.operand(words, at, dtype)?;
        loop {
            let op = match words.get(*at).copied() {
                Some("*") => Op::Mul,
                Some("//") => Op::FloorDiv,
                Some("%") => Op::FloorMod,
                _ => return Some(product),
            };
            *at += 1;
            let operand = self.operand(words, at, dtype)?;
            let values = product.as_const().zip(operand.as_const());
            let folded = values.and_then(|(x, y)| evaluate(op, dtype, &[x, y]));
            product = folded.map_or_else(|| UOp::binary(op, product, operand), UOp::constant);
        }
    }

    fn operand(&mut self, words: &[&'static str], at: &mut usize, dtype: DType) -> Option<UOp> {
        let word = words.get(*at).copied()?;
        *at += 1;
        let op = match word {
            "cdiv" => Op::CDiv,
            "cmod" => Op::CMod,
            "(" => {
                let sum = self.total(words, at, dtype)?;
                *at += 1;
                return Some(sum);
            }
            _ if word.parse::<i64>().is_ok() => return Some(UOp::int(dtype, word.parse().ok()?)),
            _ => return self.named(word, dtype),
        };
        *at += 1;
        let dividend = self.total(words, at, dtype)?;
        *at += 1;
        let divisor = self.total(words, at, dtype)?;
        *at += 1;
        Some(UOp::binary(op, dividend, divisor))
    }

    /// A reduction of the subject's dtype over one range, sometimes two, of a narrow or a wide
    /// dtype.
    fn reduction(&mut self, term: &Term, op: Op) -> Option<UOp> {
        let [value, range] = &term.sources[..] else { return None };
        let word = &self.text[range.range.clone()];
        let is_range = self.text[value.range.clone()] == *word;
        let index = self.pick(&[DType::I8, DType::I8, DType::I32, DType::U8]);
        let index = if is_range { self.subject } else { index };
        if !index.is_int() {
            return None;
        }
        let large = self.large_trip_counts();
        let ranges = [0, 1].map(|axis| {
            let trips = self.pick(&[3, 2, 4, 3, 1, 5, 9, 0]);
            // Too many for a witness, but not for rewriting.
            let is_large = index == DType::I32 && !large.is_empty() && self.one_in(4);
            let trips = if is_large { self.pick(&large) } else { trips };
            UOp::new(Op::Range, index, [UOp::int(index, trips)], Arg::plain_axis(axis))
        });
        self.known.push((word, ranges[0].clone()));
        self.range = Some(ranges[0].clone());
        let value = self.term(value, self.subject)?;
        let count = if self.one_in(4) { 2 } else { 1 };
        let src: Vec<UOp> = std::iter::once(value).chain(ranges.into_iter().take(count)).collect();
        let reduction = UOp::new(Op::Reduce, self.subject, src, Arg::Reduce(op, Dims::new()));
        verify(&reduction).is_ok().then_some(reduction)
    }

    /// The numbers in the condition that are too large to be drawn by chance, and their neighbours.
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
        let is_free = format!("free({word}, r)");
        let varies = match self.one_in(8) {
            false if requires(&format!("!{is_free}")) => true,
            false if requires(&is_free) => false,
            _ => self.one_in(2),
        };
        let is_counted = rule.given.starts_with(&format!("{word} = r *"));
        if is_counted && dtype == range.dtype() && !self.one_in(8) {
            return Some(self.counted(range));
        }
        if requires("max(y) <= min(z)") && matches!(word, "y" | "z") && !self.one_in(8) {
            let lowest = if word == "y" { -3 } else { 1 };
            return Some(UOp::int(dtype, lowest + (self.dice)(5) as i64));
        }
        if rule.rhs == "@gather" && dtype == DType::Bool {
            return Some(self.chosen(range));
        }
        if rule.rhs == "@gather" && word == "y" && !self.one_in(8) {
            return Some(UOp::constant(Constant::zero(dtype)));
        }
        if !varies {
            return Some(self.leaf(dtype));
        }
        if dtype == DType::Bool {
            let (count, limit) = (self.counted(range), self.leaf(range.dtype()));
            let op = self.pick(&[Op::CmpLt, Op::CmpLt, Op::CmpNe]);
            return Some(UOp::binary(op, count, limit));
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

    /// The range with a factor, plus a rest that mostly does not vary.
    fn counted(&mut self, range: &UOp) -> UOp {
        let dtype = range.dtype();
        let factor = self.pick(&[1, 2, -1, 3, -2, 1, -3, 5]);
        let scaled = UOp::binary(Op::Mul, range.clone(), UOp::int(dtype, factor));
        let scaled = if factor == 1 { range.clone() } else { scaled };
        let rest = match (self.dice)(9) {
            0 | 1 => return scaled,
            2 | 3 => UOp::constant(self.constant(dtype)),
            // This rest varies.
            4 => UOp::binary(Op::FloorMod, range.clone(), UOp::int(dtype, 2)),
            // Bounds treat its parts as independent.
            5 => {
                let (variable, factor) = (self.variable(dtype), 2 + (self.dice)(5) as i64);
                let part = |factor| UOp::binary(Op::Mul, variable.clone(), UOp::int(dtype, factor));
                UOp::binary(Op::Add, part(factor), part(1 - factor))
            }
            _ => self.variable(dtype),
        };
        UOp::binary(Op::Add, scaled, rest)
    }

    /// A condition that chooses one iteration of the range; sometimes with a further condition.
    fn chosen(&mut self, range: &UOp) -> UOp {
        let iteration = self.leaf(range.dtype());
        let same = UOp::not(UOp::binary(Op::CmpNe, range.clone(), iteration));
        if self.one_in(3) { UOp::binary(Op::And, same, self.leaf(DType::Bool)) } else { same }
    }

    fn node(&mut self, term: &Term, op: Op, dtype: DType, subject: Option<DType>) -> Option<UOp> {
        let operand = match op {
            Op::Index | Op::Load | Op::Store => dtype,
            Op::Sink => DType::Void,
            _ if !op.is_elementwise() => return None,
            _ if subject.is_some() => subject?,
            Op::Cast => self.cast_from(term),
            Op::Bitcast => {
                let same = CAST_DTYPES.iter().filter(|from| from.bits() == dtype.bits());
                let same: Vec<DType> = same.copied().chain([dtype]).collect();
                self.pick(&same)
            }
            _ if op.is_comparison() => self.compared(term),
            _ => dtype,
        };
        let mut sources = Vec::with_capacity(term.sources.len());
        for (position, source) in term.sources.iter().enumerate() {
            sources.push(match (op, position) {
                (Op::Index, 0) => self.global(dtype),
                (Op::Index, 1) => self.term(source, DType::I32)?,
                (Op::Where, 0) | (Op::Index, 2) => self.term(source, DType::Bool)?,
                (Op::Store, _) => self.term(source, DType::F32)?,
                _ => self.term(source, operand)?,
            });
        }
        let may_differ = op.is_comparison() || matches!(op, Op::Cast | Op::Bitcast);
        if !may_differ && dtype != operand {
            return None;
        }
        let node = UOp::new(op, dtype, sources, Arg::None);
        if let Some(name) = term.name.clone() {
            self.known.push((&self.text[name], node.clone()));
        }
        Some(node)
    }

    /// One of two arrays, large enough for small indices.
    fn global(&mut self, dtype: DType) -> UOp {
        let slot = 1 + (self.dice)(2) as usize;
        UOp::new(Op::DefineGlobal, dtype, [], Arg::Global(Global { slot, size_elements: 64 }))
    }

    /// An element of an array, at a constant index.
    fn load(&mut self, dtype: DType) -> UOp {
        let offset = UOp::int(DType::I32, (self.dice)(4) as i64);
        let index = UOp::new(Op::Index, dtype, [self.global(dtype), offset], Arg::None);
        UOp::unary(Op::Load, dtype, index)
    }

    /// A store behind a gate that may be constantly closed.
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
        let known = self.known.iter().find(|(name, _)| *name == word);
        let is_truth = Op::from_name(op).is_some_and(Op::is_comparison) || op == "not";
        match known {
            Some((_, node)) => node.dtype(),
            None if is_truth || self.rule.when.contains(&format!("isbool({word})")) => DType::Bool,
            None => self.pick(&CAST_DTYPES),
        }
    }

    /// The dtype of the operands of a comparison within a left side.
    fn compared(&mut self, term: &Term) -> DType {
        for source in &term.sources {
            let word = &self.text[source.range.clone()];
            let name = source.op_name(self.text);
            if matches!(word, "true" | "false") || matches!(name, "not" | "cmplt" | "cmpne") {
                return DType::Bool;
            }
            if let Some((_, node)) = self.known.iter().find(|(known, _)| *known == word) {
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

    fn leaf(&mut self, dtype: DType) -> UOp {
        match dtype {
            DType::Bool => {
                let limit = self.pick(&SMALL) as i64;
                let known = self.variables.iter().find(|known| known.dtype() == DType::I32);
                let known = known.cloned().filter(|_| (self.dice)(2) == 0);
                let variable = known.unwrap_or_else(|| self.variable(DType::I32));
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
                9 => self.split(dtype),
                10 => self.near(dtype),
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

    /// A chain of the op of the left side, about as long as a condition allows.
    fn chain(&mut self, dtype: DType) -> UOp {
        let op = ["(mul", "(max", "(min"].iter().find(|op| self.text.starts_with(**op));
        let op = op.and_then(|op| Op::from_name(&op[1..])).unwrap_or(Op::Mul);
        let count = 12 + (self.dice)(4);
        let names = (0..=count).map(|number| (format!("w{number}"), (-8, 8)));
        let nodes = names.map(|(name, (min, max))| {
            UOp::new(Op::DefineVar, dtype, [], Arg::Var(Arc::new(Variable { name, min, max })))
        });
        let chain = nodes.reduce(|chain, node| UOp::binary(op, chain, node));
        chain.unwrap_or_else(|| UOp::int(dtype, 1))
    }

    /// A sum of variables with factors, mostly none negative.
    fn plain(&mut self, dtype: DType) -> UOp {
        let count = 2 + (self.dice)(2);
        let terms = (0..count).map(|number| {
            let (min, max) = (self.pick(&[0, 0, 0, -1]), 1 + (self.dice)(9) as i64);
            let min = if dtype.int_range().is_some_and(|(low, _)| low == 0) { 0 } else { min };
            let variable = Variable { name: format!("w{number}"), min, max };
            let node = UOp::new(Op::DefineVar, dtype, [], Arg::Var(Arc::new(variable)));
            let factor = UOp::int(dtype, self.pick(&[1, 2, 3, 5, 8, -1]));
            UOp::binary(Op::Mul, node, factor)
        });
        let terms: Vec<UOp> = terms.collect();
        let sum = terms.into_iter().reduce(|sum, term| UOp::binary(Op::Add, sum, term));
        sum.unwrap_or_else(|| UOp::int(dtype, 0))
    }

    fn quotient(&mut self, dtype: DType) -> UOp {
        let op = self.pick(&[Op::FloorDiv, Op::FloorMod, Op::FloorMod, Op::CDiv, Op::CMod]);
        let variable = self.variable(dtype);
        let divisor = UOp::constant(Constant::int(dtype, self.pick(&[2, 3, 4, 6, 8, 5])));
        UOp::binary(op, variable, divisor)
    }

    /// A quotient and a remainder of the same node, added so that they recombine; or the quotients
    /// of an unrolled sum.
    fn split(&mut self, dtype: DType) -> UOp {
        let [factor, second_factor] =
            self.factors.map(|factor| UOp::constant(Constant::int(dtype, factor)));
        let [division, modulo] = self.pick(&[[Op::FloorDiv, Op::FloorMod], [Op::CDiv, Op::CMod]]);
        let mut base = self.variable(dtype);
        if self.one_in(4) {
            base = UOp::binary(division, base, second_factor.clone());
        }
        if self.one_in(4) {
            let (count, stride) = (2 + (self.dice)(2) as i64, self.pick(&[1, 1, 2, 3]));
            let part = |offset: i64| {
                let shift = UOp::int(dtype, offset * stride);
                let shifted = UOp::binary(Op::Add, base.clone(), shift);
                let shifted = if offset == 0 { base.clone() } else { shifted };
                UOp::binary(division, shifted, UOp::int(dtype, count * stride))
            };
            return (1..count).map(part).fold(part(0), |sum, part| UOp::binary(Op::Add, sum, part));
        }
        let rest = UOp::binary(modulo, base.clone(), factor.clone());
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
        let whole = UOp::binary(Op::Mul, quotient, factor);
        let [first, second] = if self.one_in(2) { [rest, whole] } else { [whole, rest] };
        UOp::binary(Op::Add, first, second)
    }

    /// The node of a known name, combined with a constant.
    fn near(&mut self, dtype: DType) -> UOp {
        let same = self.known.iter().filter(|(_, node)| node.dtype() == dtype);
        let same: Vec<UOp> = same.map(|(_, node)| node.clone()).collect();
        if same.is_empty() {
            return self.variable(dtype);
        }
        let position = (self.dice)(same.len() as u64) as usize;
        let op = self.pick(&[Op::Add, Op::Add, Op::Mul, Op::Max]);
        UOp::binary(op, same[position].clone(), UOp::constant(self.constant(dtype)))
    }

    /// One of at most three variables of a dtype, so that terms have variables in common.
    fn variable(&mut self, dtype: DType) -> UOp {
        let same = self.variables.iter().filter(|variable| variable.dtype() == dtype);
        let same: Vec<UOp> = same.cloned().collect();
        if same.len() == 3 || !same.is_empty() && self.one_in(4) {
            let position = (self.dice)(same.len() as u64) as usize;
            return same[position].clone();
        }
        let (min, max) = self.range(dtype);
        let name = format!("v{}", self.variables.len());
        let variable = Arg::Var(Arc::new(Variable { name, min, max }));
        let node = UOp::new(Op::DefineVar, dtype, [], variable);
        self.variables.push(node.clone());
        node
    }

    /// A range of a variable: from 0 on, across 0, away from 0, the whole range of the dtype, or
    /// one that ends at the ends of the dtype or so near that something small can be added.
    fn range(&mut self, dtype: DType) -> (i64, i64) {
        let (low, high) = dtype.int_range().unwrap_or_default();
        let (low, high) = (low.max(i64::MIN.into()) as i64, high.min(i64::MAX.into()) as i64);
        let (width, gap) = ((self.dice)(13) as i64, (self.dice)(10) as i64);
        let is_two = self.rule.when.contains("max(n) == min(n) + 1") && self.one_in(3);
        let (min, max) = match (self.dice)(17) {
            _ if is_two => (width - 6, width - 5),
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

/// The constant that a word of a left side stands for.
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

    /// Rows that start from any op, or that need other rows.
    const ELSEWHERE: [&str; 3] = ["algebra/fold", "algebra/by-range", "validity/index"];

    /// Random numbers, the same each time, each below its argument.
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
            let dtypes = [DType::I32, DType::U8, DType::I8, DType::Bool, DType::F32];
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

    /// Number of instances of a row that a changed row rewrites differently.
    fn difference_count(name: &str, change: &dyn Fn(&Rule) -> Rule) -> usize {
        let row = gradiff_rewrite::rules::rows()
            .into_iter()
            .find(|row| row.name == name)
            .expect("there is such a row");
        let sets = [row, change(&row)].map(|row| RuleSet::load_unordered(&[&[row]]).unwrap());
        let mut dice = dice();
        let nodes = (0..6000).filter_map(|_| instance(&row, DType::I8, &mut dice));
        let rewritten = |node: &UOp, set: &RuleSet| {
            let options = Options { mode: Mode::Fast, fuel: Some(1) };
            rewrite(node, set, &options, &mut Trace::default())
        };
        nodes.filter(|node| rewritten(node, &sets[0]) != rewritten(node, &sets[1])).count()
    }

    /// The row without one part of its condition.
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
