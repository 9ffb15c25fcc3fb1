//! Sizes with variables against polynomials: maps from products of variables to coefficients of 128
//! bits.
//!
//! Sums, differences, products, quotients and comparisons of drawn sizes, of which some are near
//! the ends of 64 bits, are compared with the values at drawn points and at the corners of the
//! ranges.

use std::collections::BTreeMap;
use std::sync::Arc;

use gradiff::graph::Variable;
use gradiff::graph::sint::SInt;
use gradiff::view::Dim;

use super::Draw;

/// Number of variables of a check.
const VARIABLES: usize = 3;
/// Number of operations of a check.
const OPERATIONS: usize = 12;
/// Number of sizes that operations choose from.
const SIZES: usize = 5;
/// Number of checks before a crate is blamed.
const CHECKS_OF_BLAME: u64 = 400;
/// Number of points besides the corners.
const POINTS: usize = 4;

/// A polynomial: the coefficient of each product of variables, which are given by their numbers in
/// ascending order.
type Polynomial = BTreeMap<Vec<usize>, i128>;

/// A size and the expected polynomial.
#[derive(Clone)]
struct Size {
    found: SInt,
    model: Polynomial,
}

struct Check {
    variables: Vec<Arc<Variable>>,
    /// Values of the variables: all corners of their ranges, then drawn ones.
    points: Vec<Vec<i128>>,
}

/// Draws sizes and checks results and proofs about them.
pub(super) fn sizes(draw: &mut Draw) -> Result<(), String> {
    let check = Check::new(draw);
    let mut sizes: Vec<Size> = (0..VARIABLES).map(|number| check.variable(number)).collect();
    for _ in 0..OPERATIONS {
        if draw.one_in(3) {
            let ends = [i64::MAX, i64::MIN, i64::MAX / 2, 1 << 40, -(1 << 33)];
            let number = match draw.below(6) {
                0 => draw.pick(&ends),
                1 => check.up_to_the_end(draw, &sizes),
                _ => draw.below(13) as i64 - 4,
            };
            let model = nonzero([(Vec::new(), number.into())].into());
            sizes.push(Size { found: SInt::number(number), model });
        }
        let [x, y] = [0, 1].map(|_| sizes[draw.below(sizes.len())].clone());
        let result = check.operation(draw.below(5), &x, &y)?;
        sizes.extend(result);
        if SIZES < sizes.len() {
            sizes.remove(draw.below(sizes.len()));
        }
    }
    Ok(())
}

/// The first wrong size among many drawn ones: if there is one, nothing that has sizes with
/// variables can be judged.
pub(crate) fn wrong_size() -> Option<String> {
    (0..CHECKS_OF_BLAME).find_map(|seed| match crate::catch(|| sizes(&mut Draw::new(seed))) {
        Ok(checked) => checked.err(),
        Err(panic) => Some(panic),
    })
}

/// The polynomial without terms whose coefficient is 0.
fn nonzero(mut polynomial: Polynomial) -> Polynomial {
    polynomial.retain(|_, coefficient| *coefficient != 0);
    polynomial
}

/// `x + y * factor`; `None` beyond 128 bits.
fn sum(x: &Polynomial, y: &Polynomial, factor: i128) -> Option<Polynomial> {
    let mut sum = x.clone();
    for (product, coefficient) in y {
        let entry = sum.entry(product.clone()).or_default();
        *entry = entry.checked_add(coefficient.checked_mul(factor)?)?;
    }
    Some(nonzero(sum))
}

fn product(x: &Polynomial, y: &Polynomial) -> Option<Polynomial> {
    let mut result = Polynomial::new();
    for (left, a) in x {
        for (right, b) in y {
            let mut variables = [&left[..], right].concat();
            variables.sort_unstable();
            let entry = result.entry(variables).or_default();
            *entry = entry.checked_add(a.checked_mul(*b)?)?;
        }
    }
    Some(nonzero(result))
}

/// Returns whether no variable is multiplied with itself.
fn is_linear(polynomial: &Polynomial) -> bool {
    polynomial.keys().all(|product| product.windows(2).all(|pair| pair[0] != pair[1]))
}

/// The value at a point; `None` beyond 128 bits.
fn value(polynomial: &Polynomial, point: &[i128]) -> Option<i128> {
    polynomial.iter().try_fold(0i128, |sum, (product, coefficient)| {
        let term = product.iter().try_fold(*coefficient, |term, v| term.checked_mul(point[*v]));
        sum.checked_add(term?)
    })
}

impl Check {
    fn new(draw: &mut Draw) -> Check {
        let mut variable = |number: usize| {
            let min = draw.pick(&[0, 1, 1, 2, -3, -(1i64 << 31)]);
            let width = draw.pick(&[0, 1, 7, 100, 1 << 31, (1 << 40) + 3]);
            Arc::new(Variable { name: format!("v{number}"), min, max: min + width })
        };
        let variables: Vec<Arc<Variable>> = (0..VARIABLES).map(&mut variable).collect();
        let corner = |corner: usize| -> Vec<i128> {
            let end = |(at, v): (usize, &Arc<Variable>)| {
                i128::from(if corner >> at & 1 == 1 { v.max } else { v.min })
            };
            variables.iter().enumerate().map(end).collect()
        };
        let mut points: Vec<Vec<i128>> = (0..1 << VARIABLES).map(corner).collect();
        for _ in 0..POINTS {
            let between = |v: &Arc<Variable>| {
                let width = i128::from(v.max) - i128::from(v.min) + 1;
                i128::from(v.min) + i128::from(draw.bits()) % width
            };
            points.push(variables.iter().map(between).collect());
        }
        Check { variables, points }
    }

    /// Returns the number with which the sum with a size just fits in 64 bits, or just does not.
    fn up_to_the_end(&self, draw: &mut Draw, sizes: &[Size]) -> i64 {
        let (low, high) = sizes[draw.below(sizes.len())].found.range();
        let beyond = draw.below(2) as i128;
        let number = match draw.one_in(2) {
            true => i128::from(i64::MAX) - high + beyond,
            false => i128::from(i64::MIN) - low - beyond,
        };
        i64::try_from(number).unwrap_or(1)
    }

    fn variable(&self, number: usize) -> Size {
        let variable = &self.variables[number];
        let model: Polynomial = match variable.min == variable.max {
            true => [(Vec::new(), variable.min.into())].into(),
            false => [(vec![number], 1)].into(),
        };
        Size { found: SInt::variable(variable.clone()), model: nonzero(model) }
    }

    /// Checks an operation and returns the size that it gives, if any.
    fn operation(&self, number: usize, x: &Size, y: &Size) -> Result<Option<Size>, String> {
        let report =
            |sign: &str, problem: String| format!("({}) {sign} ({}): {problem}", x.found, y.found);
        let (sign, found, model) = match number {
            0 => ("+", x.found.plus(&y.found), sum(&x.model, &y.model, 1)),
            1 => ("-", x.found.minus(&y.found), sum(&x.model, &y.model, -1)),
            2 => ("*", x.found.times(&y.found), product(&x.model, &y.model)),
            3 => {
                self.check_order(x, y).map_err(|problem| report("<=", problem))?;
                return Ok(None);
            }
            _ => {
                self.check_division(x, y).map_err(|problem| report("/", problem))?;
                return Ok(None);
            }
        };
        match (found, model) {
            (Some(found), Some(model)) => {
                let size = Size { found, model };
                self.check(&size).map_err(|problem| report(sign, problem))?;
                Ok(Some(size))
            }
            (None, Some(model)) if self.surely_fits(&[x, y], &model) || self.just_fits(&model) => {
                Err(report(sign, "it is refused though it fits in 64 bits".to_string()))
            }
            (Some(found), None) => Err(report(sign, format!("{found} does not fit in 64 bits"))),
            (None, _) => Ok(None),
        }
    }

    /// Returns whether each term of a polynomial and of its operands is far within 64 bits.
    fn surely_fits(&self, sources: &[&Size], model: &Polynomial) -> bool {
        const FAR: i128 = 1 << 60;
        let is_small = |polynomial: &Polynomial| {
            let term = |(product, coefficient): (&Vec<usize>, &i128)| {
                product.iter().try_fold(coefficient.abs(), |size, number| {
                    let v = &self.variables[*number];
                    size.checked_mul(i128::from(v.min).abs().max(i128::from(v.max).abs()))
                })
            };
            let sizes: Option<Vec<i128>> = polynomial.iter().map(term).collect();
            sizes.is_some_and(|sizes| sizes.iter().all(|size| *size < FAR) && sizes.len() < 8)
        };
        sources.iter().all(|size| is_small(&size.model)) && is_small(model)
    }

    /// Returns whether a polynomial, which is linear in each variable, is within 64 bits at all
    /// corners, so that it is everywhere, and so are its coefficients.
    fn just_fits(&self, model: &Polynomial) -> bool {
        let fits = |value: i128| i64::try_from(value).is_ok();
        let corners = &self.points[..1 << VARIABLES];
        is_linear(model)
            && model.values().all(|coefficient| fits(*coefficient))
            && corners.iter().all(|corner| value(model, corner).is_some_and(fits))
    }

    /// Checks that the size has the values of its model, and a right range.
    fn check(&self, size: &Size) -> Result<(), String> {
        let (low, high) = size.found.range();
        let mut extremes: Option<(i128, i128)> = None;
        for (at, point) in self.points.iter().enumerate() {
            let Some(expected) = value(&size.model, point) else {
                return Err("it does not fit in 128 bits".to_string());
            };
            if i64::try_from(expected).is_err() {
                return Err(format!("it is {expected} at {point:?}, beyond 64 bits"));
            }
            let value_of = |variable: &Variable| {
                let at = self.variables.iter().position(|known| **known == *variable);
                at.and_then(|at| i64::try_from(point[at]).ok()).unwrap_or_default()
            };
            let found = size.found.bind(value_of);
            if i128::from(found) != expected {
                return Err(format!("{} is {found} at {point:?}, expected {expected}", size.found));
            }
            if expected < low || high < expected {
                return Err(format!(
                    "{} has the range {low} to {high}, without {expected}",
                    size.found
                ));
            }
            if at < 1 << VARIABLES {
                let (least, greatest) = extremes.unwrap_or((expected, expected));
                extremes = Some((least.min(expected), greatest.max(expected)));
            }
        }
        if is_linear(&size.model) && extremes != Some((low, high)) {
            return Err(format!(
                "{} has the range {low} to {high}, expected {extremes:?}",
                size.found
            ));
        }
        let number = match size.model.iter().collect::<Vec<_>>()[..] {
            [] => Some(0),
            [(product, number)] if product.is_empty() => i64::try_from(*number).ok(),
            _ => None,
        };
        match size.found.as_number() == number {
            true => Ok(()),
            false => {
                Err(format!("{} is taken as the number {:?}", size.found, size.found.as_number()))
            }
        }
    }

    fn check_order(&self, x: &Size, y: &Size) -> Result<(), String> {
        let is_equal = x.found == y.found;
        if is_equal != (x.model == y.model) {
            return Err(format!("the result of comparing them as equal is {is_equal}"));
        }
        for point in &self.points {
            let Some((a, b)) = value(&x.model, point).zip(value(&y.model, point)) else { continue };
            let is_wrong = x.found.at_most(&y.found) && b < a || x.found.below(&y.found) && b <= a;
            if is_wrong {
                return Err(format!("it counts as proven, but they are {a} and {b}"));
            }
        }
        Ok(())
    }

    fn check_division(&self, x: &Size, y: &Size) -> Result<(), String> {
        // Divisors are positive.
        if !SInt::number(0).below(&y.found) {
            return Ok(());
        }
        if let Some(product) = x.found.times(&y.found) {
            let quotient = product.div_rem(&y.found);
            if quotient != Some((x.found.clone(), SInt::number(0))) {
                return Err(format!("their product divided by the latter gives {quotient:?}"));
            }
        }
        let Some((quotient, remainder)) = x.found.div_rem(&y.found) else {
            let numbers = x.found.as_number().zip(y.found.as_number());
            return numbers.map_or(Ok(()), |_| Err("numbers are not divided".to_string()));
        };
        for point in &self.points {
            let value_of = |size: &SInt| {
                i128::from(size.bind(|variable| {
                    let at = self.variables.iter().position(|known| **known == *variable);
                    at.and_then(|at| i64::try_from(point[at]).ok()).unwrap_or_default()
                }))
            };
            let Some((a, b)) = value(&x.model, point).zip(value(&y.model, point)) else { continue };
            let found = (value_of(&quotient), value_of(&remainder));
            if found != (a.div_euclid(b), a.rem_euclid(b)) {
                return Err(format!(
                    "{a} divided by {b} gives {found:?}: {quotient}, remainder {remainder}"
                ));
            }
        }
        Ok(())
    }
}
