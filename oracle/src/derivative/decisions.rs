//! Decisions about scalars: comparisons, signs, and which elements are the extreme of a group. Each
//! is an error where the bounds allow both answers.

use std::cmp::Ordering;

use super::scalars::{Id, Scalars};
use crate::arithmetic::{neg, order};
use crate::cell::{Cell, Reason};

/// Returns whether a number is exactly `value`.
pub(super) fn is_exactly(cell: Cell, value: f64) -> bool {
    matches!(cell, Cell::Real(real) if real.is_exact() && real.hi == value)
}

/// Compares two scalars.
pub(super) fn compare(s: &Scalars, a: Id, b: Id) -> Result<Ordering, Reason> {
    order(s.cell(a), s.cell(b))?.ok_or(Reason::Derivative)
}

/// Returns whether `a` is less than `b`.
pub(super) fn below(s: &Scalars, a: Id, b: Id) -> Result<bool, Reason> {
    decide(s, a, b, |a, b| a < b, || Ok(compare(s, a, b)? == Ordering::Less))
}

/// Returns whether `a` is at most `b`.
pub(super) fn at_most(s: &Scalars, a: Id, b: Id) -> Result<bool, Reason> {
    decide(s, a, b, |a, b| a <= b, || Ok(compare(s, a, b)? != Ordering::Greater))
}

/// Decides a comparison that holds for all numbers within the bounds, or for none; else by `exact`.
fn decide(
    s: &Scalars,
    a: Id,
    b: Id,
    holds: fn(f64, f64) -> bool,
    exact: impl Fn() -> Result<bool, Reason>,
) -> Result<bool, Reason> {
    if let (Cell::Real(a), Cell::Real(b)) = (s.cell(a), s.cell(b)) {
        let always = holds(a.upper(), b.lower());
        let ever = holds(a.lower(), b.upper());
        if always == ever {
            return Ok(always);
        }
    }
    exact()
}

/// 1 between two bounds, else 0.
pub(super) fn strictly_between(s: &Scalars, x: Id, low: Id, high: Id) -> Result<Id, Reason> {
    let is_inside = below(s, low, x)? && below(s, x, high)?;
    Ok(if is_inside { Id::ONE } else { Id::ZERO })
}

/// -1 or 1, as the sign bit says.
pub(super) fn sign_of(cell: Cell) -> Result<f64, Reason> {
    let negative = match cell {
        Cell::Real(real) => real.sign(),
        Cell::Inf { negative, .. } => Some(negative),
        Cell::Unspecified(reason) => return Err(reason),
        Cell::Int(_) | Cell::Nan(_) => return Err(Reason::Derivative),
    };
    match negative {
        Some(true) => Ok(-1.0),
        Some(false) => Ok(1.0),
        None if is_exactly(cell, 0.0) => Err(Reason::ZeroSign),
        None => Err(Reason::Straddle),
    }
}

/// Returns the derivative of the largest element of a group, or of the smallest, with respect to
/// each element. Elements that equal the extreme share it equally.
pub(super) fn shares(s: &Scalars, group: &[Id], is_largest: bool) -> Vec<Result<f64, Reason>> {
    let cells: Vec<Cell> =
        group.iter().map(|id| if is_largest { s.cell(*id) } else { neg(s.cell(*id)) }).collect();
    let undefined = cells.iter().find_map(|cell| match cell {
        Cell::Unspecified(reason) => Some(*reason),
        Cell::Nan(_) => Some(Reason::Derivative),
        _ => None,
    });
    if let Some(reason) = undefined {
        return vec![Err(reason); group.len()];
    }
    let lower = |at: &usize| match cells[*at] {
        Cell::Real(real) => real.lower(),
        Cell::Inf { negative: true, .. } => f64::NEG_INFINITY,
        _ => f64::INFINITY,
    };
    let Some(best) = (0..group.len()).max_by(|a, b| lower(a).total_cmp(&lower(b))) else {
        return Vec::new();
    };
    // An element whose bounds overlap those of the best one may be the extreme.
    let standing = |at: usize| match group[at] == group[best] {
        true => Ok(true),
        false => match order(cells[at], cells[best]) {
            Ok(order) => Ok(order == Some(Ordering::Equal)),
            Err(reason) => Err(reason),
        },
    };
    let standings: Vec<Result<bool, Reason>> = (0..group.len()).map(standing).collect();
    let doubt = standings.iter().find_map(|standing| standing.err());
    let count = standings.iter().filter(|standing| **standing == Ok(true)).count();
    let share = |standing: Result<bool, Reason>| match (standing, doubt) {
        (Ok(false), _) => Ok(0.0),
        (_, Some(reason)) => Err(reason),
        _ => Ok(1.0 / count as f64),
    };
    standings.into_iter().map(share).collect()
}
