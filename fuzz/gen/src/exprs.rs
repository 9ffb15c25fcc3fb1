//! Draws bounded integer expressions with a meaning everywhere: divisors are never 0, shift
//! amounts lie in 0..32 and no intermediate result leaves the 32-bit integers.

use gradiff_corpus::{Expr, ExprBinary, ExprCase, ExprUnary, Var};

use crate::Choices;

/// Limits of the expression generator.
#[derive(Clone, Debug, PartialEq)]
pub struct ExprConfig {
    /// Variables, at most; at least 1.
    pub max_vars: usize,
    /// Nesting, at most; a variable or literal has depth 1; at most 100.
    pub max_depth: usize,
    /// Largest bound of a variable.
    pub max_var: i64,
    /// Whether variables and literals may be negative.
    pub negative: bool,
    /// Literals to use; if empty, they are drawn.
    pub literals: Vec<i64>,
    /// Functions to draw from; those that do not fit in a place are passed over.
    pub ops: Vec<ExprBinary>,
}

impl Default for ExprConfig {
    /// Up to 4 variables below 1000, depth 6, negative numbers, all functions.
    fn default() -> ExprConfig {
        ExprConfig {
            max_vars: 4,
            max_depth: 6,
            max_var: 1000,
            negative: true,
            literals: Vec::new(),
            ops: ExprBinary::ALL.to_vec(),
        }
    }
}

impl ExprConfig {
    /// Few enough literals and functions that all expressions of this depth can be enumerated
    /// (depth 2: 295, depth 3: 2.3 million, of them 613,000 distinct).
    pub fn small(max_depth: usize) -> ExprConfig {
        use ExprBinary::*;
        ExprConfig {
            max_vars: 1,
            max_depth,
            max_var: 5,
            negative: true,
            literals: vec![0, 1, 3, -2],
            ops: vec![Add, Mul, FloorDiv, FloorMod, CDiv, CMod, Lt],
        }
    }
}

/// Names of variables, in order.
const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

/// An expression and bounds of its value.
struct Ranged {
    expr: Expr,
    min: i64,
    max: i64,
}

/// An expression over bounded variables; an integer mostly, sometimes a truth value.
///
/// Reads only `choices`, so `Exhaustive` enumerates all expressions of a configuration.
pub fn expr<C: Choices>(choices: &mut C, config: &ExprConfig) -> ExprCase {
    let count = 1 + choices.below(config.max_vars.clamp(1, NAMES.len()) as u32) as usize;
    let vars: Vec<Var> =
        NAMES[..count].iter().map(|name| variable(choices, name, config)).collect();
    let mut builder = Builder { choices, config, vars: &vars };
    let expr = if builder.choices.one_in(8) {
        builder.truth(config.max_depth)
    } else {
        builder.int(config.max_depth).expr
    };
    ExprCase { vars, expr }
}

fn variable<C: Choices>(choices: &mut C, name: &str, config: &ExprConfig) -> Var {
    if !config.literals.is_empty() {
        return Var { name: name.to_string(), min: 0, max: config.max_var };
    }
    let bound = if choices.one_in(4) { config.max_var } else { config.max_var.min(16) };
    let max = choices.below(bound.clamp(0, i32::MAX as i64) as u32 + 1) as i64;
    let min = match choices.below(8) {
        7 if config.negative => -(choices.below(bound as u32 + 1) as i64),
        6 => choices.below(max as u32 + 1) as i64,
        _ => 0,
    };
    Var { name: name.to_string(), min, max }
}

struct Builder<'a, C> {
    choices: &'a mut C,
    config: &'a ExprConfig,
    vars: &'a [Var],
}

impl<C: Choices> Builder<'_, C> {
    /// An integer; leaves are the smallest choices.
    fn int(&mut self, depth: usize) -> Ranged {
        if depth <= 1 || self.choices.exhausted() {
            return self.leaf();
        }
        let weights: &[u32] = if depth >= 3 { &[2, 12, 1, 1] } else { &[2, 13, 1] };
        match self.choices.weighted(weights) {
            0 => self.leaf(),
            1 => self.binary(depth),
            2 => {
                let src = self.int(depth - 1);
                self.unary(src)
            }
            _ => self.select(depth),
        }
    }

    fn leaf(&mut self) -> Ranged {
        if self.choices.weighted(&[3, 1]) == 0 {
            let number = self.choices.below(self.vars.len() as u32) as usize;
            let var = &self.vars[number];
            return Ranged { expr: Expr::Var(number), min: var.min, max: var.max };
        }
        self.literal()
    }

    fn literal(&mut self) -> Ranged {
        let value = if self.config.literals.is_empty() {
            let small =
                self.choices.pick(&[0, 1, 2, 3, 4, 5, 7, 8, 10, 12, 16, 32, 60, 64, 100, 256]);
            if self.config.negative && self.choices.one_in(8) { -small } else { small }
        } else {
            let nth = self.choices.below(self.config.literals.len() as u32) as usize;
            self.config.literals[nth]
        };
        int(value)
    }

    fn unary(&mut self, src: Ranged) -> Ranged {
        let (op, min, max) = if self.choices.one_in(4) {
            (ExprUnary::Not, -1 - src.max, -1 - src.min)
        } else {
            (ExprUnary::Neg, -src.max, -src.min)
        };
        if max > i32::MAX as i64 {
            return src;
        }
        Ranged { expr: Expr::Unary(op, Box::new(src.expr)), min, max }
    }

    fn select(&mut self, depth: usize) -> Ranged {
        let condition = self.truth(depth - 1);
        let yes = self.int(depth - 1);
        let no = self.int(depth - 1);
        let (min, max) = (yes.min.min(no.min), yes.max.max(no.max));
        Ranged { expr: Expr::Where(Box::new([condition, yes.expr, no.expr])), min, max }
    }

    /// A function of two integers; if its result would leave the 32-bit integers, its left source.
    fn binary(&mut self, depth: usize) -> Ranged {
        let nth = self.choices.below(self.config.ops.len().max(1) as u32) as usize;
        let op = self.config.ops.get(nth).copied().unwrap_or(ExprBinary::Add);
        let left = self.int(depth - 1);
        let right = match op {
            ExprBinary::Shl | ExprBinary::Shr => int(self.choices.below(9) as i64),
            ExprBinary::FloorDiv | ExprBinary::FloorMod | ExprBinary::CDiv | ExprBinary::CMod => {
                self.divisor(depth)
            }
            ExprBinary::Mul if self.choices.weighted(&[3, 1]) == 0 => self.literal(),
            ExprBinary::Lt | ExprBinary::Ne | ExprBinary::Eq => return self.indicator(left, depth),
            _ => self.int(depth - 1),
        };
        match bounds(op, &left, &right) {
            Some((min, max)) => {
                let expr = Expr::Binary(op, Box::new(left.expr), Box::new(right.expr));
                Ranged { expr, min, max }
            }
            None => left,
        }
    }

    /// A comparison as an integer: `where(x < y, 1, 0)` or a choice of the source.
    fn indicator(&mut self, left: Ranged, depth: usize) -> Ranged {
        if depth < 3 {
            return left;
        }
        let op = self.comparison();
        let right = self.int(depth - 2);
        let (min, max) = (left.min.min(0), left.max.max(0));
        let test = Expr::Binary(op, Box::new(left.expr.clone()), Box::new(right.expr));
        Ranged { expr: Expr::Where(Box::new([test, left.expr, Expr::Int(0)])), min, max }
    }

    /// An integer that is never 0: a literal mostly.
    fn divisor(&mut self, depth: usize) -> Ranged {
        let any =
            if self.choices.weighted(&[7, 1]) == 0 { self.literal() } else { self.int(depth - 1) };
        if any.min > 0 || any.max < 0 {
            return any;
        }
        let literal = 2 + self.choices.below(if self.config.literals.is_empty() { 14 } else { 1 });
        int(literal as i64)
    }

    fn comparison(&mut self) -> ExprBinary {
        let all = [ExprBinary::Lt, ExprBinary::Ne, ExprBinary::Eq];
        let mut allowed = [ExprBinary::Lt; 3];
        let mut count = 0;
        for op in all.into_iter().filter(|op| self.config.ops.contains(op)) {
            allowed[count] = op;
            count += 1;
        }
        self.choices.pick(&allowed[..count.max(1)])
    }

    /// A truth value.
    fn truth(&mut self, depth: usize) -> Expr {
        if depth <= 1 {
            return Expr::Bool(self.choices.below(2) == 1);
        }
        let deep = depth >= 3 && self.config.literals.is_empty() && !self.choices.exhausted();
        let kind = if deep { self.choices.below(8) } else { 0 };
        match kind {
            7 => Expr::Unary(ExprUnary::Not, Box::new(self.truth(depth - 1))),
            5 | 6 => {
                use ExprBinary::*;
                let op = self.choices.pick(&[And, Or, Xor, Ne, Eq]);
                let left = self.truth(depth - 1);
                let right = self.truth(depth - 1);
                Expr::Binary(op, Box::new(left), Box::new(right))
            }
            _ => {
                let op = self.comparison();
                let left = self.int(depth - 1);
                let right = self.int(depth - 1);
                Expr::Binary(op, Box::new(left.expr), Box::new(right.expr))
            }
        }
    }
}

fn int(value: i64) -> Ranged {
    Ranged { expr: Expr::Int(value), min: value, max: value }
}

/// Bounds of `left op right`, unless it may leave the 32-bit integers.
fn bounds(op: ExprBinary, left: &Ranged, right: &Ranged) -> Option<(i64, i64)> {
    use ExprBinary::*;
    let largest = left.min.abs().max(left.max.abs());
    let divisor = right.min.abs().max(right.max.abs());
    let (min, max) = match op {
        Add => (left.min + right.min, left.max + right.max),
        Sub => (left.min - right.max, left.max - right.min),
        Mul => {
            let corners = [
                left.min * right.min,
                left.min * right.max,
                left.max * right.min,
                left.max * right.max,
            ];
            corners.iter().fold((i64::MAX, i64::MIN), |(a, b), c| (a.min(*c), b.max(*c)))
        }
        FloorDiv | CDiv if left.min >= 0 && right.min > 0 => (0, left.max),
        FloorDiv | CDiv => (-largest, largest),
        FloorMod if right.min > 0 => (0, right.max - 1),
        FloorMod => (1 - divisor, divisor - 1),
        CMod if left.min >= 0 => (0, divisor - 1),
        CMod => (1 - divisor, divisor - 1),
        Max => (left.min.max(right.min), left.max.max(right.max)),
        Min => (left.min.min(right.min), left.max.min(right.max)),
        And | Or | Xor => {
            let bits = largest.max(divisor).max(1) as u64;
            let span = (u64::MAX >> bits.leading_zeros()) as i64;
            if left.min >= 0 && right.min >= 0 { (0, span) } else { (-span - 1, span) }
        }
        Shl => (left.min << right.max, left.max << right.max),
        Shr => (left.min.min(0), left.max.max(0)),
        Lt | Ne | Eq => return None,
    };
    let (min, max) = if op == Shl { (min.min(left.min), max.max(left.max)) } else { (min, max) };
    let fits = i32::MIN as i64 <= min && max <= i32::MAX as i64;
    fits.then_some((min, max))
}
