//! Draws derivatives of values with respect to values that they are computed from.

use gradiff_corpus::{
    Arg, BinaryOp, Distribution, Literal, Method, Operand, Statement, TensorType, ValueId,
};

use crate::fact::{Fact, ROUGH};
use crate::programs::Builder;

/// Maximum number of elements of a value that derivatives are taken with respect to: the oracle
/// computes the derivatives one by one.
const MAX_DIRECTIONS: usize = 64;

/// Number of attempts at a method that fits the data.
const TRIES: usize = 8;

/// The bound of the derivatives that is assumed, and of their error.
const BOUND: f64 = 1e4;

impl Builder<'_> {
    /// Adds the derivatives of a value with respect to another, mostly one that it is computed
    /// from. Returns `None` if there are none of floats.
    pub(crate) fn gradient(&mut self) -> Option<ValueId> {
        // Mostly the last value, of which a function was just added.
        let last = self.types.len().checked_sub(1)?;
        let is_float = self.types[last].dtype.is_float() && !self.facts[last].poison;
        let is_last = is_float && !self.choices.one_in(3);
        let of = match is_last {
            true => ValueId(last as u32),
            false => self.pick(|tensor, _| tensor.dtype.is_float())?,
        };
        let is_any = self.choices.one_in(24);
        let allowed = self.directions(of, is_any);
        if allowed.is_empty() {
            return None;
        }
        // Mostly the first ones: data, from which the longest computations begin.
        let drawn = self.choices.below(allowed.len() as u32) as usize;
        let index = if self.choices.one_in(2) { drawn } else { drawn / 2 };
        let wrt = ValueId(allowed[index] as u32);
        Some(self.push_gradient(of, wrt))
    }

    fn push_gradient(&mut self, of: ValueId, wrt: ValueId) -> ValueId {
        self.push(Statement::Gradient { of, wrt }, assumed())
    }

    /// Returns the values of floats and few elements that derivatives of this value are taken with
    /// respect to: those that it is computed from, or any.
    fn directions(&self, of: ValueId, is_any: bool) -> Vec<usize> {
        let depends = self.ancestors(of);
        let is_allowed = |number: &usize| {
            let tensor = &self.types[*number];
            let is_small = tensor.count() <= MAX_DIRECTIONS;
            let is_source = *number != of.0 as usize && depends[*number];
            tensor.dtype.is_float() && is_small && (is_any || is_source)
        };
        (0..self.types.len()).filter(is_allowed).collect()
    }

    /// Returns the derivatives of the program, each with its value and with the value that it is
    /// taken with respect to.
    pub(crate) fn gradients(&self) -> Vec<(ValueId, ValueId, ValueId)> {
        let gradient = |(number, statement): (usize, &Statement)| match statement {
            Statement::Gradient { of, wrt } => Some((ValueId(number as u32), *of, *wrt)),
            _ => None,
        };
        self.statements.iter().enumerate().filter_map(gradient).collect()
    }

    /// Adds one or two more derivatives of the value whose derivatives were taken last, or of its
    /// product with new data.
    pub(crate) fn more_gradients(&mut self) -> Option<ValueId> {
        let (_, of, wrt) = self.gradients().pop()?;
        let is_weighted = self.choices.one_in(2);
        let of = if is_weighted { self.weighted(of) } else { of };
        let mut allowed = self.directions(of, false);
        allowed.retain(|number| is_weighted || *number != wrt.0 as usize);
        let mut found = None;
        for _ in 0..1 + self.choices.below(2) {
            if !allowed.is_empty() {
                let index = self.choices.below(allowed.len() as u32) as usize;
                let wrt = ValueId(allowed.remove(index) as u32);
                found = Some(self.push_gradient(of, wrt));
            }
        }
        found
    }

    /// Adds the product of a value and new data of its type.
    fn weighted(&mut self, value: ValueId) -> ValueId {
        let TensorType { dtype, shape } = self.type_of(value).clone();
        let (statement, fact) = self.fresh(dtype, shape);
        let weights = self.push(statement, fact);
        let srcs = [value, weights].map(Operand::Value);
        self.push(Statement::Binary { op: BinaryOp::Mul, srcs }, assumed())
    }

    /// Adds a step of training for each value that derivatives are taken with respect to, sometimes
    /// more derivatives before them.
    pub(crate) fn training_steps(&mut self) -> Option<ValueId> {
        if self.choices.one_in(2) {
            self.more_gradients()?;
        }
        let mut parameters = Vec::new();
        let mut found = None;
        for (gradient, _, parameter) in self.gradients() {
            if !parameters.contains(&parameter) && self.has_room(3) {
                parameters.push(parameter);
                found = Some(self.training_step(gradient, parameter));
            }
        }
        found
    }

    /// Moves a value against its derivatives, and sometimes uses both once more.
    fn training_step(&mut self, gradient: ValueId, parameter: ValueId) -> ValueId {
        let fact = self.fact(gradient);
        let rate = Literal::Float(self.choices.pick(&[0.5, 0.1, 0.25, 2.0]));
        let srcs = [Operand::Value(gradient), Operand::Literal(rate)];
        let step = self.push(Statement::Binary { op: BinaryOp::Mul, srcs }, fact);
        let srcs = [parameter, step].map(Operand::Value);
        let value = self.push(Statement::Binary { op: BinaryOp::Sub, srcs }, fact);
        let (method, srcs) = (Method::Assign, vec![parameter, value]);
        let moved = self.push(Statement::Method { method, srcs, args: Vec::new() }, fact);
        if !self.has_room(1) || !self.choices.one_in(2) {
            return moved;
        }
        let srcs = [moved, gradient].map(Operand::Value);
        self.push(Statement::Binary { op: BinaryOp::Add, srcs }, fact)
    }

    /// Adds derivatives of a function along an axis that engines compute in parts, with respect to
    /// more elements than other derivatives.
    pub(crate) fn long_gradient(&mut self) -> Option<ValueId> {
        self.raise_limit(1 << 9)?;
        let dtype = self.float_dtype()?;
        let size = 200 + self.choices.below(110) as usize;
        let shape = if self.choices.one_in(3) { vec![3, size / 3] } else { vec![size] };
        let distribution = self.choices.pick(&[Distribution::Small, Distribution::Unit]);
        let (statement, fact) = self.seeded(dtype, shape, distribution);
        let src = self.push(statement, fact);
        let (axis, axes, flag) = (Arg::Int(-1), Arg::Ints(vec![-1]), Arg::Flag(true));
        let (method, args) = match self.choices.below(8) {
            0 => (Method::Cumsum, vec![axis]),
            1 => (Method::Cumprod, vec![axis]),
            2 => (Method::Cummax, vec![axis]),
            3 => (Method::LogCumSumExp, vec![axis]),
            4 => (Method::Softmax, vec![axis]),
            5 => (Method::Sort, vec![axis, flag]),
            6 => (Method::LogSumExp, vec![axes, flag]),
            _ => (Method::Var, vec![axes, flag, Arg::Int(1)]),
        };
        let value = self.push(Statement::Method { method, srcs: vec![src], args }, assumed());
        let srcs = [Operand::Value(value); 2];
        let square = self.push(Statement::Binary { op: BinaryOp::Mul, srcs }, assumed());
        Some(self.push_gradient(square, src))
    }

    /// Adds data and a method of it, if there is room. Returns the number of statements.
    pub(crate) fn method_of_data(&mut self) -> usize {
        if self.has_room(2) {
            self.add_data();
            let _ = (0..TRIES).find_map(|_| self.method());
        }
        self.statements.len()
    }

    /// Returns for each value whether it is this one, or this one is computed from it.
    fn ancestors(&self, of: ValueId) -> Vec<bool> {
        let mut found = vec![false; self.statements.len()];
        found[of.0 as usize] = true;
        for number in (0..self.statements.len()).rev() {
            if found[number] {
                self.statements[number].for_each_source(|source| found[source.0 as usize] = true);
            }
        }
        found
    }
}

/// Fact of floats that are assumed to be bounded.
fn assumed() -> Fact {
    Fact { grid: ROUGH, err: BOUND, ..Fact::exact(-BOUND, BOUND, 0) }
}
