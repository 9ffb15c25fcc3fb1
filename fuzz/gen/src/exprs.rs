//! Draws bounded integer expressions that are defined for all values of their variables: divisors
//! are never 0, shift amounts are below the width. Half of them never leave the range of their
//! dtypes, the others may wrap. Subexpressions and literals recur, as in index arithmetic: the
//! patterns of most rules contain a term twice.

use gradiff_corpus::{DType, Expr, ExprBinary, ExprCase, ExprUnary, Var};

use crate::Choices;

/// Limits of the expression generator.
#[derive(Clone, Debug, PartialEq)]
pub struct ExprConfig {
    /// Maximum number of variables; at least 1.
    pub max_vars: usize,
    /// Maximum nesting, up to 100; a variable or literal has depth 1.
    pub max_depth: usize,
    /// Largest bound of a variable.
    pub max_var: i64,
    /// Allows negative variables and literals.
    pub negative: bool,
    /// Literals to use; if empty, they are drawn.
    pub literals: Vec<i64>,
    /// Functions to draw from; one whose result may leave the dtype is replaced by its first
    /// source.
    pub ops: Vec<ExprBinary>,
    /// Integer dtypes for every third expression; if empty, all are i32 and nothing wraps.
    pub dtypes: Vec<DType>,
}

impl Default for ExprConfig {
    /// Up to 4 variables below 1000, depth 6, negative numbers, all functions and dtypes.
    fn default() -> ExprConfig {
        ExprConfig {
            max_vars: 4,
            max_depth: 6,
            max_var: 1000,
            negative: true,
            literals: Vec::new(),
            ops: ExprBinary::ALL.to_vec(),
            dtypes: DType::ALL.into_iter().filter(|dtype| dtype.is_int()).collect(),
        }
    }
}

impl ExprConfig {
    /// Literals and functions few enough to enumerate all expressions of this depth (depth 2: 295,
    /// depth 3: 2.3 million, of which 613,000 are distinct).
    pub fn small(max_depth: usize) -> ExprConfig {
        use ExprBinary::*;
        ExprConfig {
            max_vars: 1,
            max_depth,
            max_var: 5,
            negative: true,
            literals: vec![0, 1, 3, -2],
            ops: vec![Add, Mul, FloorDiv, FloorMod, CDiv, CMod, Lt],
            dtypes: Vec::new(),
        }
    }
}

/// Literals besides small ones. Those that a dtype does not have become the nearest that it has.
const LARGE: [i64; 16] = [
    10,
    127,
    12,
    128,
    16,
    255,
    32,
    1 << 15,
    60,
    (1 << 16) - 1,
    64,
    (1 << 31) - 1,
    100,
    1 << 31,
    256,
    i64::MAX,
];

/// Names of variables, in order.
const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

/// An expression and bounds of its value.
#[derive(Clone)]
struct Ranged {
    expr: Expr,
    min: i128,
    max: i128,
}

/// Draws an expression over bounded variables; mostly an integer, sometimes a bool.
///
/// Reads only `choices`, so `Exhaustive` enumerates all expressions of a configuration.
pub fn expr(choices: &mut dyn Choices, config: &ExprConfig) -> ExprCase {
    let is_free = !config.dtypes.is_empty() && config.literals.is_empty();
    let is_typed = is_free && choices.below(3) == 2;
    let main = if is_typed { choices.pick(&config.dtypes) } else { DType::I32 };
    let wraps = is_free && choices.below(2) == 1;
    let count = 1 + choices.below(config.max_vars.clamp(1, NAMES.len()) as u32) as usize;
    let mut vars: Vec<Var> = Vec::with_capacity(count);
    for name in &NAMES[..count] {
        let dtype = match if is_free { choices.below(16) } else { 0 } {
            14 | 15 => DType::Bool,
            11..14 if is_typed => choices.pick(&config.dtypes),
            _ => main,
        };
        vars.push(variable(choices, name, dtype, config));
    }
    let (subexpressions, bools, literals) = Default::default();
    let mut builder = Builder {
        choices,
        config,
        vars: &vars,
        main,
        is_typed,
        is_free,
        wraps,
        subexpressions,
        bools,
        literals,
    };
    let expr = if builder.choices.one_in(8) {
        builder.bool(config.max_depth)
    } else {
        let expr = builder.int(config.max_depth, main).expr;
        *pin_dtype(expr, main, &vars)
    };
    ExprCase { vars, expr }
}

fn variable(choices: &mut dyn Choices, name: &str, dtype: DType, config: &ExprConfig) -> Var {
    let name = name.to_string();
    if !config.literals.is_empty() {
        return Var { name, dtype, min: 0, max: config.max_var };
    }
    let (low, high) = range(dtype);
    let bound = if choices.one_in(4) { config.max_var } else { config.max_var.min(16) };
    let max = choices.below(bound.clamp(0, i32::MAX as i64) as u32 + 1) as i64;
    let kind = choices.below(if config.dtypes.is_empty() { 8 } else { 10 });
    let (min, max) = match kind {
        7 if config.negative => (-(choices.below(bound as u32 + 1) as i64), max),
        6 => (choices.below(max as u32 + 1) as i64, max),
        9 => (low as i64, high.min(i64::MAX as i128) as i64),
        8 => (high.min(i64::MAX as i128) as i64 - max, high.min(i64::MAX as i128) as i64),
        _ => (0, max),
    };
    let within = |value: i64| i128::from(value).clamp(low, high) as i64;
    Var { name, dtype, min: within(min), max: within(max) }
}

/// Returns the smallest and largest value of a dtype.
fn range(dtype: DType) -> (i128, i128) {
    let bits = 8 * dtype.size_bytes() as u32;
    match dtype {
        DType::Bool => (0, 1),
        _ if dtype.is_signed() => (-(1 << (bits - 1)), (1 << (bits - 1)) - 1),
        _ => (0, (1 << bits) - 1),
    }
}

struct Builder<'a> {
    choices: &'a mut dyn Choices,
    config: &'a ExprConfig,
    vars: &'a [Var],
    /// The dtype of most subexpressions.
    main: DType,
    /// Subexpressions may have other dtypes than `main`.
    is_typed: bool,
    /// Subexpressions may recur.
    is_free: bool,
    /// Integers may wrap.
    wraps: bool,
    /// Small integer subexpressions that may recur, with their dtypes.
    subexpressions: Vec<(DType, Ranged)>,
    /// Small bool subexpressions that may recur.
    bools: Vec<Expr>,
    /// Literals that may recur.
    literals: Vec<i64>,
}

/// Number of subexpressions of each kind that may recur.
const MAX_KEPT: usize = 6;

/// Adds `item` to those that may recur; replaces that at `slot` (modulo the maximum) if there are
/// enough.
fn keep<T>(kept: &mut Vec<T>, item: T, slot: usize) {
    if kept.len() < MAX_KEPT { kept.push(item) } else { kept[slot % MAX_KEPT] = item }
}

impl Builder<'_> {
    /// Draws an integer of this dtype; leaves are the smallest choices.
    fn int(&mut self, depth: usize, dtype: DType) -> Ranged {
        if depth <= 1 || self.choices.exhausted() {
            return self.leaf(dtype);
        }
        let weights: &[u32] = match (depth >= 3, self.is_free) {
            (true, true) => &[20, 110, 10, 10, if self.is_typed { 16 } else { 2 }, 4],
            (true, false) => &[2, 12, 1, 1],
            _ => &[2, 13, 1],
        };
        let part = match self.choices.weighted(weights) {
            0 => return self.leaf(dtype),
            1 => self.binary(depth, dtype),
            2 => {
                let src = self.int(depth - 1, dtype);
                self.unary(src, dtype)
            }
            3 => self.select(depth, dtype),
            4 => self.cast(depth, dtype),
            _ => self.split(depth, dtype),
        };
        if self.is_free && depth <= 3 {
            let slot = self.subexpressions.len() + depth;
            keep(&mut self.subexpressions, (dtype, part.clone()), slot);
        }
        part
    }

    fn leaf(&mut self, dtype: DType) -> Ranged {
        match self.choices.weighted(if self.is_free { &[9, 3, 2] } else { &[3, 1] }) {
            0 => self.variable(dtype),
            1 => self.literal(dtype),
            _ => {
                let nth = self.choices.below(MAX_KEPT as u32) as usize;
                let kept = self.subexpressions.get(nth).filter(|(kept, _)| *kept == dtype);
                kept.map(|(_, part)| part.clone()).unwrap_or_else(|| self.variable(dtype))
            }
        }
    }

    /// Draws a variable, and casts it if none has this dtype.
    fn variable(&mut self, dtype: DType) -> Ranged {
        let number = self.choices.below(self.vars.len() as u32) as usize;
        let fits = |var: &&Var| var.dtype == dtype;
        let fitting = self.vars.iter().position(|var| fits(&var)).unwrap_or(number);
        let number = if fits(&&self.vars[number]) { number } else { fitting };
        let var = &self.vars[number];
        let part = Ranged { expr: Expr::Var(number), min: var.min.into(), max: var.max.into() };
        if var.dtype == dtype { part } else { cast(part, [var.dtype, dtype], self.vars) }
    }

    fn literal(&mut self, dtype: DType) -> Ranged {
        let value = if self.config.literals.is_empty() {
            let nth = self.choices.below(8) as usize;
            let kept = self.literals.get(nth).copied();
            let new = match nth {
                6 => self.choices.pick(&LARGE),
                _ => self.choices.below(9) as i64,
            };
            let value = kept.unwrap_or(new);
            keep(&mut self.literals, value, value as usize);
            if self.config.negative && self.choices.one_in(4) { -value } else { value }
        } else {
            let nth = self.choices.below(self.config.literals.len() as u32) as usize;
            self.config.literals[nth]
        };
        let (low, high) = range(dtype);
        let value = if dtype.is_signed() { value } else { value.abs() };
        int(i128::from(value).clamp(low, high) as i64)
    }

    /// Returns `expr` if its bounds fit the dtype, or if it may wrap; else `fallback`.
    fn within(
        &mut self,
        dtype: DType,
        (min, max): (i128, i128),
        expr: impl FnOnce() -> Expr,
        fallback: impl FnOnce() -> Ranged,
    ) -> Ranged {
        let (low, high) = range(dtype);
        if low <= min && max <= high {
            return Ranged { expr: expr(), min, max };
        }
        if self.wraps { Ranged { expr: expr(), min: low, max: high } } else { fallback() }
    }

    fn unary(&mut self, src: Ranged, dtype: DType) -> Ranged {
        let (op, bounds) = if self.choices.one_in(4) {
            let ones = if dtype.is_signed() { -1 } else { range(dtype).1 };
            (ExprUnary::Not, (ones - src.max, ones - src.min))
        } else {
            (ExprUnary::Neg, (-src.max, -src.min))
        };
        let expr = Expr::Unary(op, Box::new(src.expr.clone()));
        self.within(dtype, bounds, || expr, || src)
    }

    fn select(&mut self, depth: usize, dtype: DType) -> Ranged {
        let condition = self.bool(depth - 1);
        let yes = self.int(depth - 1, dtype);
        let no = self.int(depth - 1, dtype);
        let (min, max) = (yes.min.min(no.min), yes.max.max(no.max));
        Ranged { expr: Expr::Where(Box::new([condition, yes.expr, no.expr])), min, max }
    }

    /// Draws a cast of an integer of another dtype, or of a bool.
    fn cast(&mut self, depth: usize, dtype: DType) -> Ranged {
        if !self.is_typed || self.choices.one_in(4) {
            let part = Ranged { expr: self.bool(depth - 1), min: 0, max: 1 };
            return cast(part, [DType::Bool, dtype], self.vars);
        }
        let from = self.choices.pick(&self.config.dtypes);
        let part = self.int(depth - 1, from);
        cast(part, [from, dtype], self.vars)
    }

    /// Draws `x % c + x // c * c`, or almost that; or `x // 2 + (x + 1) // 2`, as in unrolled
    /// loops.
    fn split(&mut self, depth: usize, dtype: DType) -> Ranged {
        use ExprBinary::*;
        let x = self.int(depth - 2, dtype);
        if self.choices.one_in(4) {
            let count = 2 + i64::from(self.choices.below(2) == 1);
            let mut sum = self.apply(FloorDiv, dtype, &x, &int(count));
            for offset in 1..count {
                let shifted = self.apply(Add, dtype, &x, &int(offset));
                let quotient = self.apply(FloorDiv, dtype, &shifted, &int(count));
                sum = self.apply(Add, dtype, &sum, &quotient);
            }
            return sum;
        }
        let divisor = self.divisor(1, dtype);
        let factor = if self.choices.one_in(4) { self.literal(dtype) } else { divisor.clone() };
        let (quotient, remainder) = self.choices.pick(&[(FloorDiv, FloorMod), (CDiv, CMod)]);
        let remainder = self.apply(remainder, dtype, &x, &divisor);
        let quotient = self.apply(quotient, dtype, &x, &divisor);
        let product = self.apply(Mul, dtype, &quotient, &factor);
        self.apply(Add, dtype, &remainder, &product)
    }

    /// Returns `x op y`, or `x` if the result may leave the dtype and must not.
    fn apply(&mut self, op: ExprBinary, dtype: DType, x: &Ranged, y: &Ranged) -> Ranged {
        let Some(bounds) = bounds(op, dtype, x, y) else { return x.clone() };
        let expr = || Expr::Binary(op, Box::new(x.expr.clone()), Box::new(y.expr.clone()));
        self.within(dtype, bounds, expr, || x.clone())
    }

    /// Draws a function of two integers, or its first source if the result may leave the dtype and
    /// must not.
    fn binary(&mut self, depth: usize, dtype: DType) -> Ranged {
        let nth = self.choices.below(self.config.ops.len().max(1) as u32) as usize;
        let op = self.config.ops.get(nth).copied().unwrap_or(ExprBinary::Add);
        if op.is_comparison() {
            let inner = self.compared_dtype();
            let inner = if depth < 3 { dtype } else { inner };
            return self.indicator(depth, dtype, inner);
        }
        let left = self.int(depth - 1, dtype);
        let right = match op {
            ExprBinary::Shl | ExprBinary::Shr => self.amount(depth, dtype),
            ExprBinary::FloorDiv | ExprBinary::FloorMod | ExprBinary::CDiv | ExprBinary::CMod => {
                self.divisor(depth, dtype)
            }
            ExprBinary::Mul if self.choices.weighted(&[3, 1]) == 0 => self.literal(dtype),
            _ => self.int(depth - 1, dtype),
        };
        self.apply(op, dtype, &left, &right)
    }

    /// Draws the amount of a shift: mostly a literal up to 8, else any that the dtype allows, the
    /// largest, or the low bits of an integer.
    fn amount(&mut self, depth: usize, dtype: DType) -> Ranged {
        let bits = 8 * dtype.size_bytes() as u32;
        let small = self.choices.below(bits.min(9));
        if small + 1 < bits.min(9) || !self.is_free {
            return int(small.into());
        }
        match self.choices.below(4) {
            0 => int(small.into()),
            1 => int(self.choices.below(bits).into()),
            2 => int(i64::from(bits) - 1),
            _ => {
                let (x, last) = (self.int(depth - 1, dtype), i64::from(bits) - 1);
                let mask = Box::new(Expr::Int(last));
                let expr = Expr::Binary(ExprBinary::And, Box::new(x.expr), mask);
                Ranged { expr, min: 0, max: last.into() }
            }
        }
    }

    /// Draws the dtype of the operands of a comparison.
    fn compared_dtype(&mut self) -> DType {
        let is_other = self.is_typed && self.choices.one_in(4);
        if is_other { self.choices.pick(&self.config.dtypes) } else { self.main }
    }

    /// Draws a comparison as an integer: `where(x < y, x, 0)`.
    fn indicator(&mut self, depth: usize, dtype: DType, inner: DType) -> Ranged {
        let left = self.int(depth - 1, dtype);
        if depth < 3 {
            return left;
        }
        let op = self.comparison();
        let (min, max) = (left.min.min(0), left.max.max(0));
        let test = if inner == dtype {
            let right = self.int(depth - 2, dtype);
            let left = pin_dtype(left.expr.clone(), dtype, self.vars);
            Expr::Binary(op, left, Box::new(right.expr))
        } else {
            let (x, y) = (self.int(depth - 2, inner), self.int(depth - 2, inner));
            Expr::Binary(op, pin_dtype(x.expr, inner, self.vars), Box::new(y.expr))
        };
        Ranged { expr: Expr::Where(Box::new([test, left.expr, Expr::Int(0)])), min, max }
    }

    /// Draws an integer that is never 0, mostly a literal.
    fn divisor(&mut self, depth: usize, dtype: DType) -> Ranged {
        let is_literal = self.choices.weighted(&[7, 1]) == 0 || depth <= 1;
        let divisor = if is_literal { self.literal(dtype) } else { self.int(depth - 1, dtype) };
        if divisor.min > 0 || divisor.max < 0 {
            return divisor;
        }
        let literal = 2 + self.choices.below(if self.config.literals.is_empty() { 14 } else { 1 });
        int(literal as i64)
    }

    fn comparison(&mut self) -> ExprBinary {
        let comparisons = [ExprBinary::Lt, ExprBinary::Ne, ExprBinary::Eq];
        let mut allowed = [ExprBinary::Lt; 3];
        let mut count = 0;
        for op in comparisons.into_iter().filter(|op| self.config.ops.contains(op)) {
            allowed[count] = op;
            count += 1;
        }
        self.choices.pick(&allowed[..count.max(1)])
    }

    /// Draws a bool.
    fn bool(&mut self, depth: usize) -> Expr {
        if depth <= 1 {
            return self.bool_leaf();
        }
        let is_deep = depth >= 3 && self.config.literals.is_empty() && !self.choices.exhausted();
        let kind = if is_deep { self.choices.below(if self.is_free { 12 } else { 8 }) } else { 0 };
        let expr = match kind {
            7 => Expr::Unary(ExprUnary::Not, Box::new(self.bool(depth - 1))),
            5 | 6 => {
                use ExprBinary::*;
                let op = self.choices.pick(&[And, Or, And, Or, Xor, Ne, Eq, Lt]);
                let left = self.bool(depth - 1);
                let right = self.bool(depth - 1);
                Expr::Binary(op, Box::new(left), Box::new(right))
            }
            8 => return self.bool_leaf(),
            11 if self.choices.one_in(2) => {
                // Two bounds of the same value.
                let dtype = self.compared_dtype();
                let value = pin_dtype(self.int(depth - 1, dtype).expr, dtype, self.vars);
                let [x, y] = [(); 2].map(|()| {
                    let bound = Box::new(self.literal(dtype).expr);
                    Box::new(Expr::Binary(ExprBinary::Lt, value.clone(), bound))
                });
                let is_negated = self.choices.one_in(2);
                let y = if is_negated { Box::new(Expr::Unary(ExprUnary::Not, y)) } else { y };
                Expr::Binary(self.choices.pick(&[ExprBinary::Or, ExprBinary::And]), x, y)
            }
            9 if self.choices.one_in(2) => {
                let [c, x, y] = [(); 3].map(|()| self.bool(depth - 1));
                Expr::Where(Box::new([c, x, y]))
            }
            10 if self.choices.one_in(2) => {
                let from = self.compared_dtype();
                let src = self.int(depth - 1, from).expr;
                Expr::Cast(DType::Bool, pin_dtype(src, from, self.vars))
            }
            _ => {
                let op = self.comparison();
                let dtype = if self.is_free { self.compared_dtype() } else { self.main };
                let left = self.int(depth - 1, dtype);
                let is_literal = self.is_free && self.choices.one_in(2);
                let right =
                    if is_literal { self.literal(dtype) } else { self.int(depth - 1, dtype) };
                Expr::Binary(op, pin_dtype(left.expr, dtype, self.vars), Box::new(right.expr))
            }
        };
        if self.is_free && depth <= 3 {
            let slot = self.bools.len() + depth;
            keep(&mut self.bools, expr.clone(), slot);
        }
        expr
    }

    /// Draws a bool variable, an earlier bool or its negation, or a literal.
    fn bool_leaf(&mut self) -> Expr {
        if self.is_free {
            let kind = self.choices.below(4);
            let nth = self.choices.below(MAX_KEPT as u32) as usize;
            let mut vars = (0..self.vars.len()).filter(|var| self.vars[*var].dtype == DType::Bool);
            let kept = match kind {
                1 | 2 => self.bools.get(nth).cloned(),
                _ => None,
            };
            let variable = vars.next().map(Expr::Var).filter(|_| kind != 0);
            if let Some(expr) = kept.or(variable) {
                let is_negated = kind == 2;
                return if is_negated { Expr::Unary(ExprUnary::Not, Box::new(expr)) } else { expr };
            }
        }
        Expr::Bool(self.choices.below(2) == 1)
    }
}

/// Returns an expression that has this dtype wherever it is used: if integer literals alone decide
/// its dtype, the first of them is cast.
fn pin_dtype(expr: Expr, dtype: DType, vars: &[Var]) -> Box<Expr> {
    let pin = |expr: Box<Expr>| pin_dtype(*expr, dtype, vars);
    Box::new(match expr {
        expr if dtype == DType::I32 || expr.dtype(vars).is_some() => expr,
        Expr::Unary(op, src) => Expr::Unary(op, pin(src)),
        Expr::Binary(op, a, b) => Expr::Binary(op, pin(a), b),
        Expr::Where(parts) => {
            let [condition, yes, no] = *parts;
            Expr::Where(Box::new([condition, *pin(Box::new(yes)), no]))
        }
        leaf => Expr::Cast(dtype, Box::new(leaf)),
    })
}

fn int(value: i64) -> Ranged {
    Ranged { expr: Expr::Int(value), min: value.into(), max: value.into() }
}

/// Casts `part`, which was drawn for `from`, to `to`; its bounds stay if they fit.
fn cast(part: Ranged, [from, to]: [DType; 2], vars: &[Var]) -> Ranged {
    let (low, high) = range(to);
    let fits = low <= part.min && part.max <= high;
    let (min, max) = if fits { (part.min, part.max) } else { (low, high) };
    Ranged { expr: Expr::Cast(to, pin_dtype(part.expr, from, vars)), min, max }
}

/// Returns bounds of `left op right` before wrapping; `None` if the result is a bool.
fn bounds(op: ExprBinary, dtype: DType, left: &Ranged, right: &Ranged) -> Option<(i128, i128)> {
    use ExprBinary::*;
    let largest = left.min.abs().max(left.max.abs());
    let divisor = right.min.abs().max(right.max.abs());
    let bounds = match op {
        Add => (left.min + right.min, left.max + right.max),
        Sub => (left.min - right.max, left.max - right.min),
        Mul => {
            let corners = [
                left.min.saturating_mul(right.min),
                left.min.saturating_mul(right.max),
                left.max.saturating_mul(right.min),
                left.max.saturating_mul(right.max),
            ];
            corners.iter().fold((i128::MAX, i128::MIN), |(a, b), c| (a.min(*c), b.max(*c)))
        }
        FloorDiv | CDiv if left.min >= 0 && right.min > 0 => (0, left.max),
        FloorDiv | CDiv if !dtype.is_signed() => range(dtype),
        FloorDiv | CDiv => (-largest, largest),
        FloorMod if right.min > 0 => (0, right.max - 1),
        FloorMod => (1 - divisor, divisor - 1),
        CMod if left.min >= 0 => (0, divisor - 1),
        CMod => (1 - divisor, divisor - 1),
        Max => (left.min.max(right.min), left.max.max(right.max)),
        Min => (left.min.min(right.min), left.max.min(right.max)),
        And | Or | Xor => {
            let bits = largest.max(divisor).max(1) as u64;
            let span = i128::from(u64::MAX >> bits.leading_zeros());
            if left.min >= 0 && right.min >= 0 { (0, span) } else { (-span - 1, span) }
        }
        Shl => {
            let factor = 1_i128 << right.max;
            let (low, high) = (left.min.saturating_mul(factor), left.max.saturating_mul(factor));
            (low.min(left.min), high.max(left.max))
        }
        Shr => (left.min.min(0), left.max.max(0)),
        Lt | Ne | Eq => return None,
    };
    Some(bounds)
}
