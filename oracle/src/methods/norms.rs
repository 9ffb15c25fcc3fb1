//! Bounds of polynomials of matrices by the length of all errors, the root of the sum of their
//! squares. Bounds of single elements grow with the number of terms in each step: they forget that
//! a polynomial that is nearly constant makes errors smaller.
//!
//! A step is the odd polynomial `p(s) = a s + b s^3 + c s^5` of the singular values s of x, and so
//! it is p of the symmetric matrix `[[0, x], [xT, 0]]`. For symmetric matrices with eigenvalues of
//! at most S, the length of `p(y) - p(x)` is at most that of `y - x`, times the largest derivative
//! of p from -S to S. To that come the roundings of the step.

use gradiff_corpus::DType;

use super::matrices::{Matrix, Polynomial};
use crate::arithmetic::rounding_unit;
use crate::cell::{Cell, Real, Reason};
use crate::format::{Format, format, pow2};

/// Covers products of errors, and the roundings of f64.
const SLACK: f64 = 1.1;

/// Returns the elements of a polynomial of x with the bounds that follow from the length of all
/// errors, where these are smaller.
pub(super) fn narrowed(
    dtype: DType,
    polynomial: &Polynomial<Cell>,
    x: &Matrix<Cell>,
    found: Matrix<Cell>,
) -> Matrix<Cell> {
    let Some((centers, radius)) = elements_by_norm(dtype, polynomial, x) else { return found };
    let narrower = |(cell, center): (&Cell, f64)| match cell {
        Cell::Real(real) if real.radius <= radius => *cell,
        Cell::Real(_) | Cell::Unspecified(Reason::Unbounded | Reason::Overflow) => {
            Cell::Real(Real::ball(center, 0.0, radius))
        }
        _ => *cell,
    };
    let elements = found.elements.iter().zip(centers).map(narrower).collect();
    Matrix { elements, ..found }
}

/// Returns the elements, and a bound of the length of all their errors; `None` if nothing is known.
fn elements_by_norm(
    dtype: DType,
    polynomial: &Polynomial<Cell>,
    x: &Matrix<Cell>,
) -> Option<(Vec<f64>, f64)> {
    let format = format(dtype);
    let number = |cell: &Cell| match cell {
        Cell::Real(real) => Some(*real),
        _ => None,
    };
    let reals = x.elements.iter().map(number).collect::<Option<Vec<Real>>>()?;
    let [a, b, c] = &polynomial.factors;
    let odd = Odd { a: number(a)?.hi, b: number(b)?.hi, c: number(c)?.hi };
    let is_tall = x.columns < x.rows;
    let values: Vec<f64> = reals.iter().map(|x| x.hi).collect();
    let values = if is_tall { transposed(&values, x.rows, x.columns) } else { values };
    let error = length(&reals.iter().map(|x| x.radius + x.lo.abs()).collect::<Vec<f64>>());
    let (rows, columns) = (x.rows.min(x.columns), x.rows.max(x.columns));
    let mut state = State { odd, rows, columns, values, error, spectral: 0.0 };
    state.normalize(format, number(&polynomial.eps)?.hi)?;
    for _ in 0..polynomial.steps {
        state.step(format)?;
    }
    let State { values, error, .. } = state;
    let values = if is_tall { transposed(&values, rows, columns) } else { values };
    Some((values, error))
}

/// Returns the length of a vector or matrix.
fn length(values: &[f64]) -> f64 {
    values.iter().map(|x| x * x).sum::<f64>().sqrt()
}

fn transposed(values: &[f64], rows: usize, columns: usize) -> Vec<f64> {
    let positions = (0..columns).flat_map(|column| (0..rows).map(move |row| (row, column)));
    positions.map(|(row, column)| values[row * columns + column]).collect()
}

/// Returns the product of a matrix of so many rows and one whose columns are those of `y`, or its
/// rows if `is_turned`.
fn product(x: &[f64], y: &[f64], rows: usize, is_turned: bool) -> Vec<f64> {
    let inner = x.len() / rows;
    let columns = y.len() / inner;
    let element = |row: usize, column: usize| {
        let at = |i: usize| if is_turned { column * inner + i } else { i * columns + column };
        (0..inner).map(|i| x[row * inner + i] * y[at(i)]).sum::<f64>()
    };
    (0..rows * columns).map(|at| element(at / columns, at % columns)).collect()
}

/// The polynomial `a s + b s^3 + c s^5`.
#[derive(Clone, Copy)]
struct Odd {
    a: f64,
    b: f64,
    c: f64,
}

impl Odd {
    fn slope(self, square: f64) -> f64 {
        self.a + square * (3.0 * self.b + square * 5.0 * self.c)
    }

    fn value(self, square: f64) -> f64 {
        square.sqrt() * (self.a + square * (self.b + square * self.c))
    }

    /// Returns the largest magnitude of the derivative up to s.
    fn slope_max(self, s: f64) -> f64 {
        let square = s * s;
        let turn = (-0.3 * self.b / self.c).clamp(0.0, square);
        let turn = if turn.is_nan() { 0.0 } else { turn };
        [0.0, turn, square].map(|square| self.slope(square).abs()).into_iter().fold(0.0, f64::max)
    }

    /// Returns the largest magnitude up to s, which is at s or where the derivative is 0.
    fn value_max(self, s: f64) -> f64 {
        let square = s * s;
        let root = (9.0 * self.b * self.b - 20.0 * self.a * self.c).sqrt();
        let ends = [root, -root].map(|root| (root - 3.0 * self.b) / (10.0 * self.c));
        let linear = -self.a / (3.0 * self.b);
        let turns = [ends[0], ends[1], linear].map(|turn| turn.clamp(0.0, square));
        let squares = [square, turns[0], turns[1], turns[2]];
        let known = squares.into_iter().filter(|square| !square.is_nan());
        known.map(|square| self.value(square).abs()).fold(0.0, f64::max)
    }
}

/// A matrix that is no taller than wide.
struct State {
    odd: Odd,
    rows: usize,
    columns: usize,
    values: Vec<f64>,
    /// Bound of the length of the errors of an engine, and of these values themselves.
    error: f64,
    /// Bound of the largest singular value.
    spectral: f64,
}

impl State {
    /// Divides the matrix by its length.
    fn normalize(&mut self, format: &Format, eps: f64) -> Option<()> {
        let unit = rounding_unit(format) + pow2(-53);
        let count = self.values.len() as f64;
        let squares: f64 = self.values.iter().map(|x| x * x).sum();
        let whole = squares.sqrt() + eps;
        // Half the error of the sum of squares, and the roundings of the root and the sum.
        let relative = 0.5 * ((count + 1.0) * unit + count * format.least / squares) + 2.0 * unit;
        let is_known = 0.0 <= eps && relative < 0.01 && self.error < 0.25 * whole;
        if !is_known || 4.0 * squares >= format.overflow || !squares.is_finite() {
            return None;
        }
        self.values.iter_mut().for_each(|x| *x /= whole);
        let size = length(&self.values);
        // Errors change the quotient by themselves and by the length, which they change as much.
        let inherited = 3.0 * self.error / whole;
        self.error = (size * (relative + unit) + count * format.least) * SLACK + inherited;
        self.spectral = size * (1.0 + pow2(-40));
        Some(())
    }

    /// Replaces the matrix by a polynomial of it.
    fn step(&mut self, format: &Format) -> Option<()> {
        let Odd { a, b, c } = self.odd;
        let unit = rounding_unit(format) + pow2(-53);
        let (rows, columns) = (self.rows as f64, self.columns as f64);
        let size = length(&self.values) + self.error;
        let spectral = self.spectral.min(size);
        let reach = spectral + self.error;
        // The error of a sum of so many products, relative to the lengths of the factors.
        let sum = |terms: f64| terms * unit / (1.0 - terms * unit);
        let floors = format.least * columns * columns * (1.0 + b.abs() + c.abs());
        let square_size = reach * size;
        let square = sum(columns) * size * size + floors;
        let fourth_size = reach * reach * square_size;
        let fourth = sum(rows) * square_size * square_size + 2.0 * reach * reach * square + floors;
        let factor_size = b.abs() * square_size + c.abs() * fourth_size;
        let factor = b.abs() * square + c.abs() * fourth + 2.0 * unit * factor_size + floors;
        let product_size = reach * factor_size;
        let term = reach * factor + sum(rows) * factor_size * size + floors;
        let rounding = term + 2.0 * unit * (a.abs() * size + product_size) + floors;
        let largest = a.abs() * size + product_size + factor_size + fourth_size + square_size;
        let is_large = largest.is_nan() || 4.0 * largest >= format.overflow;
        if columns * unit > 0.01 || is_large {
            return None;
        }
        self.error = self.odd.slope_max(reach) * self.error * (1.0 + pow2(-20)) + SLACK * rounding;
        self.spectral = self.odd.value_max(spectral) * (1.0 + pow2(-40));
        self.advance();
        self.error.is_finite().then_some(())
    }

    fn advance(&mut self) {
        let Odd { a, b, c } = self.odd;
        let square = product(&self.values, &self.values, self.rows, true);
        let fourth = product(&square, &square, self.rows, false);
        let factor: Vec<f64> = square.iter().zip(&fourth).map(|(x, y)| b * x + c * y).collect();
        let term = product(&factor, &self.values, self.rows, false);
        self.values.iter_mut().zip(term).for_each(|(x, y)| *x = a * *x + y);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FACTORS: [f64; 3] = [3.4445, -4.775, 2.0315];

    /// The product of matrices in f32, rounded after each op.
    fn rounded_product(x: &[f32], y: &[f32], rows: usize, is_turned: bool) -> Vec<f32> {
        let inner = x.len() / rows;
        let columns = y.len() / inner;
        let at = |i: usize, column: usize| {
            if is_turned { column * inner + i } else { i * columns + column }
        };
        let element = |row: usize, column: usize| {
            (0..inner).map(|i| x[row * inner + i] * y[at(i, column)]).sum::<f32>()
        };
        (0..rows * columns).map(|at| element(at / columns, at % columns)).collect()
    }

    fn rounded(values: &[f32], rows: usize, steps: usize) -> Vec<f32> {
        let [a, b, c] = FACTORS.map(|factor| factor as f32);
        let whole = values.iter().map(|x| x * x).sum::<f32>().sqrt() + 1e-7;
        let mut x: Vec<f32> = values.iter().map(|x| x / whole).collect();
        for _ in 0..steps {
            let square = rounded_product(&x, &x, rows, true);
            let fourth = rounded_product(&square, &square, rows, false);
            let factor: Vec<f32> = square.iter().zip(&fourth).map(|(x, y)| b * x + c * y).collect();
            let term = rounded_product(&factor, &x, rows, false);
            x.iter_mut().zip(term).for_each(|(x, y)| *x = a * *x + y);
        }
        x
    }

    fn matrix(values: &[f32], rows: usize) -> Matrix<Cell> {
        let elements = values.iter().map(|x| Cell::exact(f64::from(*x))).collect();
        Matrix { rows, columns: values.len() / rows, elements }
    }

    fn polynomial(steps: usize) -> Polynomial<Cell> {
        let rounded = |x: f64| Cell::exact(f64::from(x as f32));
        Polynomial { steps, factors: FACTORS.map(rounded), eps: rounded(1e-7) }
    }

    #[test]
    fn errors_of_an_engine_are_within_the_bounds_and_these_are_small() {
        let mut state = 1u64;
        let mut next = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 40) as f32 / 8_388_608.0 - 1.0
        };
        for _ in 0..50 {
            let values: Vec<f32> = (0..12).map(|_| next()).collect();
            let (centers, radius) =
                elements_by_norm(DType::F32, &polynomial(5), &matrix(&values, 3)).expect("bounds");
            assert!(radius < 1e-2, "{radius}");
            for (center, found) in centers.iter().zip(rounded(&values, 3, 5)) {
                assert!((f64::from(found) - center).abs() <= radius, "{center} {found} {radius}");
            }
            // The transposed matrix has the transposed result.
            let turned: Vec<f32> = (0..12).map(|at| values[at % 3 * 4 + at / 3]).collect();
            let (turned, _) =
                elements_by_norm(DType::F32, &polynomial(5), &matrix(&turned, 4)).expect("bounds");
            assert_eq!(turned, transposed(&centers, 3, 4));
        }
    }

    #[test]
    fn maxima_of_polynomials_are_at_ends_and_turns() {
        let odd = Odd { a: 3.0, b: -4.0, c: 0.0 };
        // 3s - 4s^3 is 1 at s = 1/2, where its derivative is 0, and -1 at s = 1, where that is -9.
        assert!((odd.value_max(0.9) - 1.0).abs() < 1e-12);
        assert!((odd.slope_max(1.0) - 9.0).abs() < 1e-12);
        assert_eq!(Odd { a: 2.0, b: 0.0, c: 0.0 }.value_max(3.0), 6.0);
        let [a, b, c] = FACTORS;
        let odd = Odd { a, b, c };
        for s in (1..=120).map(|number| f64::from(number) / 100.0) {
            assert!(odd.value(s * s).abs() <= odd.value_max(1.2) * (1.0 + 1e-12));
            assert!(odd.slope(s * s).abs() <= odd.slope_max(1.2) * (1.0 + 1e-12));
        }
    }

    #[test]
    fn nothing_is_known_of_zeros_and_of_what_underflows() {
        for values in [[0.0; 4], [1e-30; 4]] {
            assert!(elements_by_norm(DType::F32, &polynomial(1), &matrix(&values, 2)).is_none());
        }
    }
}
