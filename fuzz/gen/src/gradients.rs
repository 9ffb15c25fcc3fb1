//! Draws derivatives of values with respect to values that they are computed from.

use gradiff_corpus::{Statement, ValueId};

use crate::Choices;
use crate::fact::{Fact, ROUGH};
use crate::programs::Builder;

/// Maximum number of elements of a value that derivatives are taken with respect to: the oracle
/// computes the derivatives one by one.
const MAX_DIRECTIONS: usize = 64;

/// Number of attempts at a method that fits the data.
const TRIES: usize = 8;

/// The bound of the derivatives that is assumed, and of their error.
const BOUND: f64 = 1e4;

impl<C: Choices> Builder<'_, C> {
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
        let depends = self.ancestors(of);
        let is_allowed = |number: &usize| {
            let tensor = &self.types[*number];
            let is_small = tensor.count() <= MAX_DIRECTIONS;
            let is_source = *number != of.0 as usize && depends[*number];
            tensor.dtype.is_float() && is_small && (is_any || is_source)
        };
        let allowed: Vec<usize> = (0..self.types.len()).filter(is_allowed).collect();
        if allowed.is_empty() {
            return None;
        }
        // Mostly the first ones: data, from which the longest computations begin.
        let drawn = self.choices.below(allowed.len() as u32) as usize;
        let index = if self.choices.one_in(2) { drawn } else { drawn / 2 };
        let wrt = ValueId(allowed[index] as u32);
        let fact = Fact { grid: ROUGH, err: BOUND, ..Fact::exact(-BOUND, BOUND, 0) };
        Some(self.push(Statement::Gradient { of, wrt }, fact))
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
