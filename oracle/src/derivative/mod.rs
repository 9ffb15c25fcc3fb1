//! Derivatives, in forward mode: the meaning of `Statement::Gradient`.
//!
//! In: the statements and values up to a gradient. Out: its value, with bounds for engines that
//! compute it in any order, in the dtypes of the values, with formulas of their own. The meanings
//! where a function has no derivative are in oracle/README.md, "Derivatives".
//!
//! `elements` lowers the statements on the way to `scalars`, which refer to the scalars that they
//! are computed from: which, the definitions in `methods` and `movement` say when they are applied
//! to `labels` instead of numbers. `functions` has the derivatives of elementwise functions, as
//! formulas of scalars; `kinks` those of functions that have none at some points. `forward`
//! computes the tangents of all scalars for each direction; they are scalars too, so that a
//! gradient of a gradient needs no rule.
//!
//! A derivative on the way that is infinite, undefined or undecided makes the element unspecified,
//! also where it does not matter, because 0 times infinity may be NaN in reverse mode.

mod activations;
mod contractions;
mod decisions;
mod elementary;
mod elements;
mod forward;
mod functions;
mod kinks;
mod labels;
mod losses;
mod matrices;
mod rule;
mod running;
mod scalars;
mod statistics;

use gradiff_corpus::{DType, Method, Statement, ValueId};

use crate::arithmetic::rounding_unit;
use crate::cast::cast;
use crate::cell::{Cell, Real, Reason};
use crate::evaluate::{for_each_source, get};
use crate::format::format;
use crate::infer::Check;
use crate::reduce::SumDepth;
use crate::value::Value;
use elements::Elements;
use forward::{Direction, Scheme, Shared};
use scalars::WIDE;

/// Covers the roundings of the f64 arithmetic that computes the bounds.
const SLACK: f64 = 1.01;

/// Returns the derivatives of the sum of `of` with respect to each element of `wrt`.
/// `statements` are those before the gradient; the values that `of` depends on must be among
/// `values`.
///
/// # Errors
/// A value is missing, or has no floats.
pub(crate) fn gradient(
    statements: &[Statement],
    values: &[Option<Value>],
    of: ValueId,
    wrt: ValueId,
    sums: SumDepth,
) -> Check<Value> {
    for id in [of, wrt] {
        let dtype = get(values, id)?.dtype;
        if !dtype.is_float() {
            return Err(format!("a gradient of or by {}: only floats have any", dtype.name()));
        }
    }
    let x = get(values, wrt)?;
    let way = Way::new(statements, of, wrt);
    if !way.is_active[of.0 as usize] {
        return Ok(x.map(x.dtype, |_| Cell::zero(None)));
    }
    let precision = way.precision(values);
    let is_gradient = |number: &usize| matches!(statements[*number], Statement::Gradient { .. });
    let mut active = (0..=of.0 as usize).filter(|number| way.is_active[*number]);
    let reads_by_index = active.any(|number| reads_by_index(&statements[number]));
    let scheme = Scheme {
        sums: if reads_by_index { SumDepth::Sequential } else { sums },
        unit: precision.unit,
        overflow: precision.overflow,
        shared: precision.shared,
        is_nested: (0..=of.0 as usize).filter(is_gradient).any(|number| way.is_active[number]),
    };
    let mut elements = Elements::new(statements, values, scheme);
    for number in 0..=of.0 as usize {
        if way.is_active[number] {
            elements.lower(number, way.is_named[number])?;
        }
    }
    let (of, wrt) = (elements.ids(of)?, elements.ids(wrt)?);
    let found = forward::gradient(&mut elements.scalars, &of, &wrt, scheme, false);
    let cells = found.directions.into_iter().map(|direction| match direction {
        Ok(direction) => precision.result(x.dtype, direction, elements.inner_roundings),
        Err(reason) => Cell::Unspecified(reason),
    });
    Ok(Value::new(x.dtype, x.shape.clone(), cells.collect()))
}

/// Returns whether an element of a source may be read by any number of elements, as an index says.
/// Its derivative is the sum of theirs, one after the other.
fn reads_by_index(statement: &Statement) -> bool {
    use Method::{Get, IndexSelect, Interpolate, MaskedSelectSized, NllLoss};
    match statement {
        Statement::Gather { .. } => true,
        Statement::Method { method, .. } => {
            matches!(method, Get | IndexSelect | Interpolate | MaskedSelectSized | NllLoss)
        }
        _ => false,
    }
}

/// Adds to `is_needed` the values that the value of a statement depends on.
pub(crate) fn mark_ancestors(statements: &[Statement], of: ValueId, is_needed: &mut [bool]) {
    if let Some(is_needed) = is_needed.get_mut(of.0 as usize) {
        *is_needed = true;
    }
    for number in (0..statements.len()).rev().filter(|number| *number <= of.0 as usize) {
        if is_needed[number] {
            sources(&statements[number]).into_iter().for_each(|source| {
                if let Some(is_needed) = is_needed.get_mut(source.0 as usize) {
                    *is_needed = true;
                }
            });
        }
    }
}

fn sources(statement: &Statement) -> Vec<ValueId> {
    let mut sources = Vec::new();
    for_each_source(statement, |source| sources.push(source));
    sources
}

/// The statements between a value and another one.
struct Way {
    /// The statements that `of` depends on and that depend on `wrt`, or on the like of a gradient
    /// among them.
    is_active: Vec<bool>,
    /// True if derivatives are taken with respect to the value.
    is_named: Vec<bool>,
}

/// The precision of an engine on the way.
struct Precision {
    unit: f64,
    floor: f64,
    overflow: f64,
    /// The numbers that all dtypes have.
    shared: Shared,
}

impl Way {
    fn new(statements: &[Statement], of: ValueId, wrt: ValueId) -> Way {
        let mut is_ancestor = vec![false; statements.len()];
        mark_ancestors(statements, of, &mut is_ancestor);
        let mut is_named = vec![false; statements.len()];
        is_named[wrt.0 as usize] = true;
        for (statement, is_ancestor) in statements.iter().zip(&is_ancestor) {
            if let (Statement::Gradient { wrt, .. }, true) = (statement, is_ancestor) {
                is_named[wrt.0 as usize] = true;
            }
        }
        let mut is_active = is_named.clone();
        for (number, statement) in statements.iter().enumerate() {
            is_active[number] |= sources(statement).iter().any(|id| is_active[id.0 as usize]);
        }
        is_active.iter_mut().zip(&is_ancestor).for_each(|(active, ancestor)| *active &= ancestor);
        Way { is_active, is_named }
    }

    /// Returns the least precision among the dtypes on the way.
    fn precision(&self, values: &[Option<Value>]) -> Precision {
        let dtypes = values
            .iter()
            .zip(&self.is_active)
            .filter(|(_, is_active)| **is_active)
            .filter_map(|(value, _)| Some(value.as_ref()?.dtype))
            .filter(|dtype| dtype.is_float());
        let shared = Shared { precision: 53, grid_min: -1074, exponent_end: 1024 };
        let mut least = Precision { unit: 0.0, floor: 0.0, overflow: f64::INFINITY, shared };
        for format in dtypes.map(format) {
            let shared = &mut least.shared;
            shared.precision = shared.precision.min(format.precision);
            shared.grid_min = shared.grid_min.max(format.quantum_min());
            shared.exponent_end = shared.exponent_end.min(format.exponent_max + 1);
            least.unit = least.unit.max(rounding_unit(format));
            least.floor = least.floor.max(format.least);
            least.overflow = least.overflow.min(format.overflow);
        }
        least
    }
}

impl Precision {
    /// Returns the element of a gradient, of whose gradients on the way so many roundings remain.
    fn result(&self, dtype: DType, direction: Direction, inner_roundings: f64) -> Cell {
        let real = match direction.cell {
            Some(Cell::Real(real)) => real,
            Some(_) => return Cell::Unspecified(Reason::Derivative),
            None => return Cell::zero(None),
        };
        if real.is_zero() && direction.mass == 0.0 && direction.error == 0.0 {
            return Cell::zero(None);
        }
        if direction.is_exact && real.is_exact() {
            let cell = if real.hi == 0.0 { Cell::zero(None) } else { Cell::exact(real.hi) };
            return cast(WIDE, dtype, cell);
        }
        // The standard bound of so many roundings.
        let part = (direction.roundings + inner_roundings + 1.0) * self.unit;
        if part >= 0.5 {
            return Cell::Unspecified(Reason::Unbounded);
        }
        let rounding = (part * direction.mass + self.unit * direction.error) / (1.0 - part) * SLACK;
        let radius = real.radius + rounding + self.floor * direction.floors * SLACK;
        if !radius.is_finite() {
            return Cell::Unspecified(Reason::Unbounded);
        }
        match cast(WIDE, dtype, Cell::Real(Real::ball(real.hi, real.lo, radius))) {
            Cell::Real(real) => Cell::Real(Real { zero_sign: None, ..real }),
            cell => cell,
        }
    }
}
