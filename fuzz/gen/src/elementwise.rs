//! Draws elementwise statements, conversions and reductions.

use gradiff_corpus::{
    BinaryOp, DType, Literal, Operand, ReduceOp, Shape, Statement, UnaryOp, ValueId, promote,
};

use crate::fact::{self, Fact};
use crate::programs::Builder;
use crate::sources::{Need, Origin, Source};
use crate::{Lane, shapes, transfer};

/// Number of operands that are tried before the op is given up.
const OPERAND_TRIES: usize = 3;

impl Builder<'_> {
    pub(crate) fn unary(&mut self, op: UnaryOp) -> Option<ValueId> {
        let policy = self.policy;
        let fits = |dtype: DType| match op {
            UnaryOp::Neg => dtype != DType::Bool,
            UnaryOp::Not => !dtype.is_float(),
            _ => dtype.is_float(),
        };
        let src = self.pick(|tensor, fact| {
            fits(tensor.dtype) && transfer::unary(op, fact, tensor.dtype, policy).is_some()
        });
        let src = match src {
            Some(src) => src,
            None => self.clamped_positive(op)?,
        };
        let dtype = self.type_of(src).dtype;
        let fact = transfer::unary(op, &self.fact(src), dtype, policy)?;
        Some(self.push(Statement::Unary { op, src }, fact))
    }

    /// Adds a float for which `sqrt`, `log2` and `recip` are defined: `max x 1/2`.
    fn clamped_positive(&mut self, op: UnaryOp) -> Option<ValueId> {
        let needs_positive = matches!(op, UnaryOp::Sqrt | UnaryOp::Log2 | UnaryOp::Recip);
        if !needs_positive || !self.policy.inexact || !self.has_room(2) {
            return None;
        }
        let value =
            self.pick(|tensor, fact| tensor.dtype.is_float() && !fact.special && fact.err < 0.1)?;
        let before = self.fact(value);
        let dtype = self.type_of(value).dtype;
        let half = Fact::exact(0.5, 0.5, -1);
        let fact = transfer::binary(BinaryOp::Max, &before, &half, dtype, self.policy)?;
        transfer::unary(op, &fact, dtype, self.policy)?;
        let srcs = [Operand::Value(value), Operand::Literal(Literal::Float(0.5))];
        Some(self.push(Statement::Binary { op: BinaryOp::Max, srcs }, fact))
    }

    pub(crate) fn binary(&mut self, op: BinaryOp) -> Option<ValueId> {
        let first = self.pick(|tensor, fact| allows(op, tensor.dtype) && may_fit(op, fact))?;
        let tensor = self.type_of(first);
        let (dtype, shape) = (tensor.dtype, tensor.shape.clone());
        let is_division = is_integer_division(op);
        if is_division && self.allows_zero_divisors() {
            return self.guarded_division(op, first);
        }
        let need = match op {
            _ if is_division || op == BinaryOp::Div => Need::Divisor,
            BinaryOp::Shl | BinaryOp::Shr => Need::Amount(8 * dtype.size_bytes() as u32),
            BinaryOp::Pow => Need::Exponent,
            _ => Need::Any,
        };
        for _ in 0..OPERAND_TRIES {
            let Some(second) = self.operand(first, &shape, need) else { continue };
            let first = self.value_source(first);
            let swap = self.choices.below(4) == 3;
            let (x, y) = if swap { (&second, &first) } else { (&first, &second) };
            if let Some(fact) = self.binary_fact(op, x, y) {
                let second = self.admit(second);
                let first = self.admit(first);
                let srcs = if swap { [second, first] } else { [first, second] };
                return Some(self.push(Statement::Binary { op, srcs }, fact));
            }
            if swap && let Some(fact) = self.binary_fact(op, &first, &second) {
                let second = self.admit(second);
                let srcs = [self.admit(first), second];
                return Some(self.push(Statement::Binary { op, srcs }, fact));
            }
        }
        None
    }

    /// Draws whether a division may divide by zero, guarded by a `where`.
    fn allows_zero_divisors(&mut self) -> bool {
        let is_allowed = matches!(self.lane, Lane::Wrap | Lane::NegativeIndex);
        is_allowed && self.has_room(3) && self.choices.one_in(32)
    }

    /// Adds `where (y != 0) (x op y) x`, which selects no undefined element.
    fn guarded_division(&mut self, op: BinaryOp, first: ValueId) -> Option<ValueId> {
        let dividend = self.type_of(first).clone();
        let limit = self.limit;
        let divisor = self.pick(|tensor, _| {
            tensor.dtype == dividend.dtype
                && shapes::broadcast(&dividend.shape, &tensor.shape, limit)
        })?;
        let divisor_fact = Fact { away: 1.0, ..self.fact(divisor) };
        let before = self.fact(first);
        let fact = transfer::binary(op, &before, &divisor_fact, dividend.dtype, self.policy)?;
        let (x, y) = (Operand::Value(first), Operand::Value(divisor));
        let srcs = [y, Operand::Literal(Literal::Int(0))];
        let test = self.push(Statement::Binary { op: BinaryOp::CmpNe, srcs }, Fact::BOOL);
        let poison = Fact { poison: true, ..fact };
        let quotient = self.push(Statement::Binary { op, srcs: [x, y] }, poison);
        let srcs = [Operand::Value(test), Operand::Value(quotient), x];
        Some(self.push(Statement::Where { srcs }, fact.join(&before)))
    }

    /// Returns the fact of `x op y`; `None` if shapes, dtypes or the policy do not allow the op.
    pub(crate) fn binary_fact(&self, op: BinaryOp, x: &Source, y: &Source) -> Option<Fact> {
        if !shapes::broadcast(&x.shape, &y.shape, self.limit) {
            return None;
        }
        let dtype = common_dtype(&[x, y])?;
        if !allows(op, dtype) {
            return None;
        }
        let [x, y] = [self.promoted(x, dtype)?, self.promoted(y, dtype)?];
        transfer::binary(op, &x, &y, dtype, self.policy)
    }

    /// Returns the fact of a source as `dtype`.
    fn promoted(&self, source: &Source, dtype: DType) -> Option<Fact> {
        match source.dtype {
            Some(from) => fact::cast(&source.fact, from, dtype, self.policy),
            None => Some(source.fact),
        }
    }

    /// Adds a `where` that chooses between the operands of a comparison, which is a maximum or
    /// minimum for `cmplt` alone; `None` if there is no comparison.
    fn compared_choice(&mut self) -> Option<ValueId> {
        let compared = |(number, statement): (usize, &Statement)| match statement {
            Statement::Binary { op: BinaryOp::CmpLt | BinaryOp::CmpNe | BinaryOp::CmpEq, srcs } => {
                Some((ValueId(number as u32), *srcs))
            }
            _ => None,
        };
        let comparisons: Vec<_> = self.statements.iter().enumerate().filter_map(compared).collect();
        let number = self.choices.below(comparisons.len().max(1) as u32);
        let (test, [x, y]) = *comparisons.get(number as usize)?;
        let dtype_of = |operand: &Operand| match operand {
            Operand::Value(value) => Some(self.type_of(*value).dtype),
            Operand::Literal(_) => None,
        };
        let literal_dtype = dtype_of(&x).or_else(|| dtype_of(&y))?;
        let [x, y] = [x, y].map(|operand| self.source_of(operand, literal_dtype));
        let dtype = common_dtype(&[&x, &y])?;
        let fact = self.promoted(&x, dtype)?.join(&self.promoted(&y, dtype)?);
        let (x, y) = (self.admit(x), self.admit(y));
        let (yes, no) = if self.choices.one_in(2) { (y, x) } else { (x, y) };
        Some(self.push(Statement::Where { srcs: [Operand::Value(test), yes, no] }, fact))
    }

    pub(crate) fn select(&mut self) -> Option<ValueId> {
        if self.choices.one_in(4)
            && let Some(chosen) = self.compared_choice()
        {
            return Some(chosen);
        }
        let limit = self.limit;
        let first = self.pick(|_, _| true)?;
        let shape = self.type_of(first).shape.clone();
        let condition = self.condition(first, &shape)?;
        let merged = merge(&shape, &condition.shape, limit)?;
        let yes = self.value_source(first);
        for _ in 0..OPERAND_TRIES {
            let Some(no) = self.operand(first, &merged, Need::Any) else { continue };
            let Some(dtype) = common_dtype(&[&yes, &no]) else { continue };
            let has_room = self.has_room(1 + new_count(&no) + new_count(&condition));
            if !has_room || !shapes::broadcast(&merged, &no.shape, limit) {
                continue;
            }
            let facts = (self.promoted(&yes, dtype), self.promoted(&no, dtype));
            let (Some(x), Some(y)) = facts else { continue };
            let swap = self.choices.below(2) == 1;
            let condition = self.admit(condition);
            let no = self.admit(no);
            let yes = self.admit(yes);
            let srcs = if swap { [condition, no, yes] } else { [condition, yes, no] };
            return Some(self.push(Statement::Where { srcs }, x.join(&y)));
        }
        None
    }

    /// Draws bools that broadcast with `shape`: an existing value, a comparison, or new data.
    fn condition(&mut self, value: ValueId, shape: &[usize]) -> Option<Source> {
        let limit = self.limit;
        if self.choices.one_in(48) {
            return Some(self.literal_source(DType::Bool, Need::Any));
        }
        let found = self.pick(|tensor, _| {
            tensor.dtype == DType::Bool && shapes::broadcast(&tensor.shape, shape, limit)
        });
        if let Some(found) = found.filter(|_| self.choices.below(4) < 3) {
            return Some(self.value_source(found));
        }
        let dtype = self.type_of(value).dtype;
        if self.choices.below(4) < 3 && fact::decided(&self.fact(value), self.policy) {
            let op = self.choices.pick(&[BinaryOp::CmpLt, BinaryOp::CmpNe, BinaryOp::CmpEq]);
            let literal = self.literal(dtype, Need::Any);
            let srcs = [Operand::Value(value), Operand::Literal(literal)];
            return Some(Source {
                origin: Origin::New(Statement::Binary { op, srcs }),
                dtype: Some(DType::Bool),
                shape: shape.to_vec(),
                fact: Fact::BOOL,
            });
        }
        self.new_source(DType::Bool, shape, Need::Any)
    }

    pub(crate) fn mulacc(&mut self) -> Option<ValueId> {
        let limit = self.limit;
        let first = self.pick(|tensor, fact| tensor.dtype != DType::Bool && !fact.special)?;
        let shape = self.type_of(first).shape.clone();
        let x = self.value_source(first);
        for _ in 0..OPERAND_TRIES {
            let Some(y) = self.operand(first, &shape, Need::Any) else { continue };
            let Some(merged) = merge(&shape, &y.shape, limit) else { continue };
            let Some(z) = self.operand(first, &merged, Need::Any) else { continue };
            let fits = shapes::broadcast(&merged, &z.shape, limit);
            if !fits || !self.has_room(1 + new_count(&y) + new_count(&z)) {
                continue;
            }
            let Some(dtype) = common_dtype(&[&x, &y, &z]) else { continue };
            let facts = [&x, &y, &z].map(|source| self.promoted(source, dtype));
            let [Some(a), Some(b), Some(c)] = facts else { continue };
            if let Some(fact) = transfer::mulacc(&a, &b, &c, dtype, self.policy) {
                let z = self.admit(z);
                let y = self.admit(y);
                let x = self.admit(x);
                let swap = self.choices.below(4) == 3;
                let srcs = if swap { [y, x, z] } else { [x, y, z] };
                return Some(self.push(Statement::MulAcc { srcs }, fact));
            }
        }
        None
    }

    pub(crate) fn cast(&mut self) -> Option<ValueId> {
        let src = self.pick(|_, _| true)?;
        let from = self.type_of(src).dtype;
        let before = self.fact(src);
        // There and back again.
        let earlier = match &self.statements[src.0 as usize] {
            Statement::Cast { src, .. } => Some(self.type_of(*src).dtype),
            _ => None,
        };
        for _ in 0..OPERAND_TRIES {
            let earlier = earlier.filter(|_| self.choices.one_in(4));
            let dtype = if let Some(earlier) = earlier {
                earlier
            } else if self.choices.below(2) == 0 && !self.config.dtypes.is_empty() {
                let nth = self.choices.below(self.config.dtypes.len() as u32);
                self.config.dtypes[nth as usize]
            } else {
                self.dtype()
            };
            // A cast to the same dtype is drawn rarely.
            if dtype == from && !self.choices.one_in(8) {
                continue;
            }
            if let Some(fact) = fact::cast(&before, from, dtype, self.policy) {
                return Some(self.push(Statement::Cast { src, dtype }, fact));
            }
        }
        None
    }

    pub(crate) fn bitcast(&mut self) -> Option<ValueId> {
        let has_known_bits = |fact: &Fact| fact.err == 0.0 && (fact.raw || !fact.special);
        let src = self.pick(|tensor, fact| tensor.dtype != DType::Bool && has_known_bits(fact))?;
        let from = self.type_of(src).dtype;
        // Bit patterns of integers are NaN, subnormal and extreme as floats.
        let allows_patterns = matches!(self.lane, Lane::Special | Lane::Casts | Lane::Edges);
        let mut fits = [from; 3];
        let mut count = 0;
        for &dtype in &self.config.dtypes {
            let is_legal = dtype != DType::Bool && dtype.size_bytes() == from.size_bytes();
            if is_legal && dtype != from && (allows_patterns || !dtype.is_float()) {
                fits[count.min(2)] = dtype;
                count += 1;
            }
        }
        if count == 0 {
            return None;
        }
        let dtype = self.choices.pick(&fits[..count.min(3)]);
        let before = self.fact(src);
        let keeps_values = from.is_int() && dtype.is_int() && before.lo >= 0.0;
        let fact = match dtype {
            _ if dtype.is_float() => Fact::patterns(dtype),
            _ if keeps_values && before.hi <= fact::range(dtype).1 => before,
            _ => Fact::whole(dtype),
        };
        Some(self.push(Statement::Bitcast { src, dtype }, fact))
    }

    pub(crate) fn reduce(&mut self, op: ReduceOp) -> Option<ValueId> {
        let policy = self.policy;
        // Small choices are plain reductions, to which shrinking leads.
        let special = match (op, self.choices.below(16)) {
            (ReduceOp::Sum, 12..) => self.contraction(),
            (ReduceOp::Sum, 11) => self.padded_constant_sum(),
            (_, 10) => self.function_and_reduction(op),
            (ReduceOp::Max, 9) if policy.special => self.largest_of_infinities(),
            _ => None,
        };
        if special.is_some() {
            return special;
        }
        let src = self.pick(|tensor, fact| {
            let to = reduced_dtype(op, tensor.dtype);
            transfer::reduce(op, fact, 1, tensor.dtype, to, policy).is_some()
        })?;
        let tensor = self.type_of(src);
        let (dtype, shape) = (tensor.dtype, tensor.shape.clone());
        let to = reduced_dtype(op, dtype);
        let before = self.fact(src);
        for attempt in 0..OPERAND_TRIES {
            let axes = self.reduced_axes(&shape, attempt > 0);
            let count = axes.iter().map(|axis| shape[*axis]).product();
            // Reducing an axis of size 0 gives elements where there were none.
            let kept_axes = (0..shape.len()).filter(|axis| !axes.contains(axis));
            if self.limit < kept_axes.map(|axis| shape[axis]).product() {
                continue;
            }
            if let Some(fact) = transfer::reduce(op, &before, count, dtype, to, policy) {
                let reduced = self.push(Statement::Reduce { op, src, axes }, fact);
                // Small choices leave the reduction as it is.
                let is_permuted = 1 < shape.len() && self.has_room(2);
                return match is_permuted && self.choices.below(8) == 7 {
                    true => {
                        let axes = shapes::permutation(self.choices, shape.len());
                        Some(self.push(Statement::Permute { src: reduced, axes }, fact))
                    }
                    false => Some(reduced),
                };
            }
        }
        None
    }

    /// Adds the largest of elements that are hardly more than the identity, -inf.
    fn largest_of_infinities(&mut self) -> Option<ValueId> {
        let dtype = self.float_dtype().filter(|_| self.has_room(2))?;
        let shape = self.palette.shape(self.choices, self.max_rank, self.limit);
        let infinity = f64::NEG_INFINITY;
        let numbers = [infinity, infinity, infinity, infinity, infinity, -fact::largest(dtype)];
        let src = self.fresh_listed(dtype, &shape, &numbers)?;
        let axes = self.reduced_axes(&shape, false);
        let statement = Statement::Reduce { op: ReduceOp::Max, src, axes };
        Some(self.push(statement, Fact { raw: false, ..self.fact(src) }))
    }

    /// Adds a product of new matrices `[m, 1, k]` and `[1, n, k]`, summed over k.
    pub(crate) fn contraction(&mut self) -> Option<ValueId> {
        // Mostly the sizes of small tensor cores.
        let [m, n, k] = [[4, 8], [2, 4], [4, 2]].map(|usual| match self.choices.below(3) {
            2 => self.palette.size(self.choices),
            number => usual[number as usize],
        });
        let dtype = self.dtype();
        if !allows(BinaryOp::Mul, dtype) || !self.has_room(4) || self.max_rank < 3 {
            return None;
        }
        if self.limit < m * n * k || m * n * k == 0 {
            return None;
        }
        let [left, right] = [vec![m, 1, k], vec![1, n, k]].map(|shape| self.fresh(dtype, shape));
        let product = transfer::binary(BinaryOp::Mul, &left.1, &right.1, dtype, self.policy)?;
        let to = reduced_dtype(ReduceOp::Sum, dtype);
        let sum = transfer::reduce(ReduceOp::Sum, &product, k, dtype, to, self.policy)?;
        let srcs = [left, right].map(|(new, fact)| Operand::Value(self.push(new, fact)));
        let src = self.push(Statement::Binary { op: BinaryOp::Mul, srcs }, product);
        Some(self.push(Statement::Reduce { op: ReduceOp::Sum, src, axes: vec![2] }, sum))
    }

    /// Adds an op on a function of a value and on its reduction along the last axis: the pattern
    /// for which kernels cache the reduction's input.
    fn function_and_reduction(&mut self, reduce_op: ReduceOp) -> Option<ValueId> {
        let policy = self.policy;
        let function = |fact: &Fact, dtype| transfer::unary(UnaryOp::Exp2, fact, dtype, policy);
        let fits = |fact: &Fact, dtype: DType| dtype.is_float() && function(fact, dtype).is_some();
        let src = self.pick(|tensor, fact| !tensor.shape.is_empty() && fits(fact, tensor.dtype))?;
        let (dtype, shape) = (self.type_of(src).dtype, self.type_of(src).shape.clone());
        let axis = shape.len() - 1;
        if !self.has_room(3) || shape[axis] == 0 || reduced_dtype(reduce_op, dtype) != dtype {
            return None;
        }
        let value_fact = function(&self.fact(src), dtype)?;
        let reduced_fact =
            transfer::reduce(reduce_op, &value_fact, shape[axis], dtype, dtype, policy)?;
        let op = self.choices.pick(&[BinaryOp::Max, BinaryOp::Mul, BinaryOp::Sub]);
        let fact = transfer::binary(op, &value_fact, &reduced_fact, dtype, policy)?;
        let src = self.push(Statement::Unary { op: UnaryOp::Exp2, src }, value_fact);
        let reduction = Statement::Reduce { op: reduce_op, src, axes: vec![axis] };
        let reduction = self.push(reduction, reduced_fact);
        let srcs = [Operand::Value(src), Operand::Value(reduction)];
        Some(self.push(Statement::Binary { op, srcs }, fact))
    }

    /// Adds the sum of a padded constant: engines turn reductions of masks over ranges into counts.
    fn padded_constant_sum(&mut self) -> Option<ValueId> {
        let (dtype, size) = (self.dtype(), 1 + self.choices.below(4) as usize);
        let pads = [(); 2].map(|()| self.choices.below(3) as usize);
        let count = size + pads[0] + pads[1];
        if dtype == DType::Bool || !self.has_room(3) || self.limit < count {
            return None;
        }
        let zero = if dtype.is_float() { Literal::Float(0.0) } else { Literal::Int(0) };
        let value = self.literal(dtype, Need::Any);
        let fact = fact::of_literal(dtype, &value);
        let padded = fact.join(&Fact { raw: true, ..fact::of_literal(dtype, &zero) });
        let to = reduced_dtype(ReduceOp::Sum, dtype);
        let sum = transfer::reduce(ReduceOp::Sum, &padded, count, dtype, to, self.policy)?;
        let src = self.push(Statement::Const { dtype, shape: vec![size], value }, fact);
        let pads = vec![(pads[0], pads[1])];
        let src = self.push(Statement::Pad { src, pads, value: zero }, padded);
        Some(self.push(Statement::Reduce { op: ReduceOp::Sum, src, axes: vec![0] }, sum))
    }

    /// Draws the axes of a reduction: one, all or any subset; one if `is_single`.
    fn reduced_axes(&mut self, shape: &[usize], is_single: bool) -> Vec<usize> {
        let rank = shape.len();
        if rank == 0 {
            return Vec::new();
        }
        if is_single || self.choices.below(2) == 0 {
            return vec![self.choices.below(rank as u32) as usize];
        }
        if self.choices.below(4) == 3 {
            return (0..rank).collect();
        }
        shapes::axes(self.choices, rank)
    }
}

/// Returns the number of statements that the source adds.
fn new_count(source: &Source) -> usize {
    usize::from(matches!(source.origin, Origin::New(_)))
}

/// Returns whether a first source may fit some second one, so that hopeless ones are not tried.
fn may_fit(op: BinaryOp, fact: &Fact) -> bool {
    match op {
        BinaryOp::CmpLt | BinaryOp::CmpNe | BinaryOp::CmpEq => fact.err < 0.01,
        BinaryOp::Pow => fact.lo > 0.0 && fact.hi <= 16.0,
        _ => true,
    }
}

fn is_integer_division(op: BinaryOp) -> bool {
    matches!(op, BinaryOp::CDiv | BinaryOp::CMod | BinaryOp::FloorDiv | BinaryOp::FloorMod)
}

/// Returns whether the op is defined for this (promoted) dtype.
fn allows(op: BinaryOp, dtype: DType) -> bool {
    use BinaryOp::*;
    match op {
        Add | Sub | Mul => dtype != DType::Bool,
        Div | Pow => dtype.is_float(),
        CDiv | CMod | FloorDiv | FloorMod | Shl | Shr => dtype.is_int(),
        Max | Min | CmpLt | CmpNe | CmpEq => true,
        And | Or | Xor => !dtype.is_float(),
        Threefry => dtype == DType::U64,
    }
}

/// Returns the dtype of a reduction's result.
pub(crate) fn reduced_dtype(op: ReduceOp, dtype: DType) -> DType {
    match (op, dtype) {
        (ReduceOp::Max, _) => dtype,
        (_, DType::Bool | DType::I8 | DType::I16) => DType::I32,
        (_, DType::U8 | DType::U16) => DType::U32,
        _ => dtype,
    }
}

/// Returns the promoted dtype of the values among the sources, if the literals fit it.
fn common_dtype(sources: &[&Source]) -> Option<DType> {
    let mut found = None;
    for dtype in sources.iter().filter_map(|source| source.dtype) {
        found = Some(found.map_or(dtype, |before| promote(before, dtype)));
    }
    let dtype = found?;
    // A literal was drawn for the first value's dtype; bool literals fit bool only.
    let literal_fits = |source: &&Source| match source.origin {
        Origin::Literal(Literal::Bool(_)) => dtype == DType::Bool,
        Origin::Literal(Literal::Float(_)) => dtype.is_float(),
        _ => true,
    };
    sources.iter().all(literal_fits).then_some(dtype)
}

/// Returns the shape that both broadcast to, of at most `limit` elements.
fn merge(a: &[usize], b: &[usize], limit: usize) -> Option<Shape> {
    if !shapes::broadcast(a, b, limit) {
        return None;
    }
    let (long, short) = if a.len() < b.len() { (b, a) } else { (a, b) };
    let offset = long.len() - short.len();
    let mut merged = long.to_vec();
    for (size, short_size) in merged[offset..].iter_mut().zip(short) {
        if *size == 1 {
            *size = *short_size;
        }
    }
    Some(merged)
}
