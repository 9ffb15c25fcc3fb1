//! Singular values of matrices, the last two axes of floats, and products of the factors.
//!
//! The values are the largest eigenvalues of the symmetric matrix `[[0, x], [xT, 0]]`, whose
//! eigenvectors are pairs of a left and a right vector; they are found by rotations of rows and
//! columns (Jacobi). Bounds of errors are those of a backward stable computation: relative to the
//! length of the matrix, and proportional to its sizes.

use gradiff_corpus::DType;

use super::Call;
use super::elementwise::wide;
use super::matrices::{Matrix, each_matrix};
use crate::arithmetic::{propagated, rounding_unit};
use crate::cast::cast;
use crate::cell::{Cell, Real, Reason};
use crate::format::{format, pow2};
use crate::infer::Check;
use crate::value::Value;

/// Roundings that each row and each column adds to the error of a result.
const ROUNDINGS: f64 = 8.0;
/// Roundings of f16 and bf16 of each term of a product of factors before their sum is rounded:
/// those of a column, a value and a row, and of two products; and of a product of two columns.
const FACTOR_ROUNDINGS: f64 = 5.0;
const COLUMN_ROUNDINGS: f64 = 3.0;
/// Covers products of these roundings.
const SLACK: f64 = 1.05;
/// Times that all pairs of rows are rotated at most; convergence is quadratic.
const SWEEPS_MAX: usize = 60;
/// Error of a derivative beyond which it is unspecified.
const SLOPE_ERROR_MAX: f64 = 0.25;

/// The singular values of a matrix, the largest first, and their vectors.
pub(crate) struct Singular {
    pub(crate) values: Vec<f64>,
    /// For each value the left vector, followed by the right one; each has the length `0.5.sqrt()`.
    vectors: Vec<Vec<f64>>,
    rows: usize,
    columns: usize,
    /// The root of the sum of the squares of the elements, and of those of their errors.
    length: f64,
    error: f64,
}

impl Singular {
    /// The values of a matrix of finite numbers.
    ///
    /// # Errors
    /// The element that all results consist of otherwise.
    pub(crate) fn of(x: &Matrix<Cell>) -> Result<Singular, Cell> {
        if let Some(cell) = propagated(&x.elements) {
            return Err(cell);
        }
        let real = |cell: &Cell| if let Cell::Real(real) = cell { Some(*real) } else { None };
        let reals: Option<Vec<Real>> = x.elements.iter().map(real).collect();
        // The others are infinities.
        let reals = reals.ok_or(Cell::nan())?;
        let largest = reals.iter().fold(0f64, |largest, x| largest.max(x.hi.abs()));
        let size = if largest == 0.0 { 1.0 } else { largest };
        let root = |f: &dyn Fn(&Real) -> f64| {
            size * reals.iter().map(|x| (f(x) / size).powi(2)).sum::<f64>().sqrt()
        };
        let length = root(&|x| x.hi);
        let error = root(&|x| x.radius + x.lo.abs()) * (1.0 + pow2(-20));
        if !(length + error).is_finite() {
            return Err(Cell::Unspecified(Reason::Overflow));
        }
        let (rows, columns) = (x.rows, x.columns);
        let mut pair = Symmetric::zeros(rows + columns);
        for row in 0..rows {
            for column in 0..columns {
                let element = reals[row * columns + column].hi / size;
                pair.set(row, rows + column, element);
                pair.set(rows + column, row, element);
            }
        }
        let mut found = pair.eigen();
        found.sort_by(|x, y| y.0.total_cmp(&x.0));
        found.truncate(rows.min(columns));
        let (values, vectors) = found.into_iter().unzip();
        let mut found = Singular { values, vectors, rows, columns, length, error };
        found.values.iter_mut().for_each(|value| *value = value.max(0.0) * size);
        Ok(found)
    }

    /// The error of a value, or of an element of the product of the factors, if each operation is
    /// rounded to the dtype.
    fn radius(&self, dtype: DType) -> f64 {
        let length = self.length + self.error;
        self.roundings() * (self.unit(dtype) * length + format(dtype).least)
    }

    /// The error of a sum of as many products as there are values, or rows, whose magnitudes add up
    /// to `mass`, if so many numbers of each product are rounded to `dtype`, which is f16 or bf16;
    /// near zero by an absolute error, of factors up to `mass`.
    fn narrow_radius(&self, dtype: DType, roundings: f64, mass: f64) -> f64 {
        let format = format(dtype);
        if format.precision >= 24 {
            return 0.0;
        }
        let terms = self.rows.max(self.columns) as f64;
        let near_zero = terms * format.least * (1.0 + mass);
        SLACK * roundings * (rounding_unit(format) * mass + near_zero)
    }

    fn roundings(&self) -> f64 {
        ROUNDINGS * (self.rows + self.columns) as f64
    }

    /// The error of a rounding to the dtype, and of the oracle's own.
    fn unit(&self, dtype: DType) -> f64 {
        rounding_unit(format(dtype)) + pow2(-53)
    }

    /// The derivatives of a value by the elements of the matrix, in row-major order: products of
    /// its vectors. Unspecified where it may be equal to another value, or 0.
    pub(crate) fn slopes(&self, number: usize, dtype: DType) -> Vec<Cell> {
        let value = self.values[number];
        let rest = self.values.iter().enumerate().filter(|(at, _)| *at != number);
        let gap = rest.fold(value, |gap, (_, next)| gap.min((value - next).abs()));
        let error = 8.0 * (self.radius(dtype) + self.error) / gap;
        let (left, right) = self.vectors[number].split_at(self.rows);
        let slope = |x: &f64, y: &f64| match error <= SLOPE_ERROR_MAX {
            true => Cell::Real(Real::ball(2.0 * x * y, 0.0, error)),
            false => Cell::Unspecified(Reason::Straddle),
        };
        left.iter().flat_map(|x| right.iter().map(move |y| slope(x, y))).collect()
    }
}

/// A symmetric matrix.
struct Symmetric {
    size: usize,
    elements: Vec<f64>,
}

impl Symmetric {
    fn zeros(size: usize) -> Symmetric {
        Symmetric { size, elements: vec![0.0; size * size] }
    }

    fn at(&self, row: usize, column: usize) -> f64 {
        self.elements[row * self.size + column]
    }

    fn set(&mut self, row: usize, column: usize, value: f64) {
        self.elements[row * self.size + column] = value;
    }

    /// Rotates two lines of elements, whose first ones and distances are given.
    fn rotate(&mut self, (p, q): (usize, usize), step: usize, (cosine, sine): (f64, f64)) {
        for at in (0..self.size).map(|number| number * step) {
            let (x, y) = (self.elements[p + at], self.elements[q + at]);
            self.elements[p + at] = cosine * x - sine * y;
            self.elements[q + at] = sine * x + cosine * y;
        }
    }

    /// The eigenvalues, each with its vector of length 1.
    fn eigen(mut self) -> Vec<(f64, Vec<f64>)> {
        let size = self.size;
        let mut vectors = Symmetric::zeros(size);
        (0..size).for_each(|at| vectors.set(at, at, 1.0));
        for _ in 0..SWEEPS_MAX {
            let mut is_diagonal = true;
            for p in 0..size {
                for q in p + 1..size {
                    let beside = self.at(p, q);
                    if beside.abs() <= pow2(-60) {
                        continue;
                    }
                    is_diagonal = false;
                    let cotangent = (self.at(q, q) - self.at(p, p)) / (2.0 * beside);
                    let root = cotangent.hypot(1.0);
                    let tangent = 1f64.copysign(cotangent) / (cotangent.abs() + root);
                    let cosine = 1.0 / tangent.hypot(1.0);
                    let rotation = (cosine, cosine * tangent);
                    let rows = (p * size, q * size);
                    self.rotate(rows, 1, rotation);
                    self.rotate((p, q), size, rotation);
                    vectors.rotate(rows, 1, rotation);
                }
            }
            if is_diagonal {
                break;
            }
        }
        let row = |at: usize| vectors.elements[at * size..][..size].to_vec();
        (0..size).map(|at| (self.at(at, at), row(at))).collect()
    }
}

/// A matrix whose elements are all the same.
fn filled(rows: usize, columns: usize, cell: Cell) -> Matrix<Cell> {
    Matrix { rows, columns, elements: vec![cell; rows * columns] }
}

/// The singular values, as a row.
pub(super) fn values(call: Call<'_>) -> Check<Value> {
    let dtype = wide(call.srcs[0].dtype);
    let shape = |rows: usize, columns: usize| (vec![rows.min(columns)], rows.max(columns));
    each_matrix(call, shape, |_, x| {
        let count = x.rows.min(x.columns);
        let singular = match Singular::of(&x) {
            Ok(singular) => singular,
            Err(cell) => return filled(1, count, cell),
        };
        let radius = singular.radius(dtype) + singular.error;
        let number = |value: &f64| Cell::Real(Real::ball(*value, 0.0, radius).not_negative());
        let elements = singular.values.iter().map(number);
        let elements = elements.map(|cell| cast(DType::F64, dtype, cell)).collect();
        Matrix { rows: 1, columns: count, elements }
    })
}

/// The product of the factors: the matrix. They are computed in the wide dtype; they and what is
/// made of them are rounded to the dtype.
pub(super) fn product(call: Call<'_>) -> Check<Value> {
    let dtype = call.srcs[0].dtype;
    let shape = |rows: usize, columns: usize| (vec![rows, columns], rows.max(columns));
    each_matrix(call, shape, |_, x| {
        let singular = match Singular::of(&x) {
            Ok(singular) => singular,
            Err(cell) => return filled(x.rows, x.columns, cell),
        };
        // A value may exceed the elements.
        if pow2(format(dtype).exponent_max) <= 2.0 * (singular.length + singular.error) {
            return filled(x.rows, x.columns, Cell::Unspecified(Reason::Overflow));
        }
        let radius = match singular.length + singular.error == 0.0 {
            true => 0.0,
            false => {
                let wide = singular.radius(wide(dtype));
                // The terms of an element add up to no more than the largest value.
                let largest = singular.values.first().copied().unwrap_or(0.0);
                let mass = largest + singular.error + wide;
                wide + singular.narrow_radius(dtype, FACTOR_ROUNDINGS, mass)
            }
        };
        let with_error = |cell: &Cell| match cell {
            Cell::Real(real) => Cell::Real(Real::ball(real.hi, real.lo, real.radius + radius)),
            cell => *cell,
        };
        let elements = x.elements.iter().map(with_error).collect();
        Matrix { elements, ..x }
    })
}

/// The products of the columns of u (or of the rows of vt, if `is_right`) with each other.
pub(super) fn gram(call: Call<'_>, is_right: bool) -> Check<Value> {
    let (dtype, is_full) = (call.srcs[0].dtype, call.args.flag(0));
    let size = |rows: usize, columns: usize| match (is_full, is_right) {
        (true, false) => rows,
        (true, true) => columns,
        (false, _) => rows.min(columns),
    };
    let shape = |rows: usize, columns: usize| {
        let size = size(rows, columns);
        (vec![size, size], rows.max(columns))
    };
    each_matrix(call, shape, |_, x| {
        let size = size(x.rows, x.columns);
        let singular = match Singular::of(&x) {
            Ok(singular) => singular,
            Err(cell) => return filled(size, size, cell),
        };
        // The terms of an element add up to no more than the lengths of the columns, which are 1.
        let wide = singular.roundings() * singular.unit(wide(dtype));
        let radius = wide + singular.narrow_radius(dtype, COLUMN_ROUNDINGS, 1.0 + wide);
        let unit = |at: usize| if at.is_multiple_of(size + 1) { 1.0 } else { 0.0 };
        let element = |at| Cell::Real(Real::ball(unit(at), 0.0, radius));
        let elements = (0..size * size).map(element).collect();
        Matrix { rows: size, columns: size, elements }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn singular(rows: usize, columns: usize, elements: &[f64]) -> Singular {
        let elements = elements.iter().map(|x| Cell::exact(*x)).collect();
        let found = Singular::of(&Matrix { rows, columns, elements });
        found.unwrap_or_else(|cell| panic!("{cell:?}"))
    }

    #[test]
    fn values_and_vectors_of_known_matrices() {
        let close = |x: f64, y: f64| assert!((x - y).abs() < 1e-14 * (1.0 + y.abs()), "{x} {y}");
        let found = singular(2, 2, &[3.0, 0.0, 4.0, 5.0]);
        found.values.iter().zip([45f64.sqrt(), 5f64.sqrt()]).for_each(|(x, y)| close(*x, y));
        // Of the largest value (1, 3) / sqrt(10) and (1, 1) / sqrt(2).
        let slopes = found.slopes(0, DType::F64);
        for (slope, y) in slopes.iter().zip([1.0, 1.0, 3.0, 3.0]) {
            let Cell::Real(real) = slope else { panic!("{slope:?}") };
            close(real.hi, y / 20f64.sqrt());
        }
        let found = singular(2, 3, &[0.0, -2.0, 0.0, 1e300, 0.0, 0.0]);
        found.values.iter().zip([1e300, 2.0]).for_each(|(x, y)| {
            assert!((x - y).abs() <= 1e285, "{x} {y}");
        });
        assert_eq!(singular(3, 1, &[0.0; 3]).values, [0.0]);
        assert!(singular(0, 2, &[]).values.is_empty());
    }

    #[test]
    fn factors_of_halves_have_few_narrow_roundings() {
        let (found, unit) = (singular(2, 2, &[3.0, 0.0, 4.0, 5.0]), pow2(-8));
        let radius = found.narrow_radius(DType::BF16, COLUMN_ROUNDINGS, 1.0);
        assert!((3.0 * unit..3.2 * unit).contains(&radius), "{radius}");
        assert_eq!(found.narrow_radius(DType::F32, COLUMN_ROUNDINGS, 1.0), 0.0);
    }

    #[test]
    fn equal_values_have_no_derivative() {
        let found = singular(2, 2, &[1.0, 0.0, 0.0, 1.0]);
        let straddle = Cell::Unspecified(Reason::Straddle);
        assert!(found.slopes(0, DType::F32).iter().all(|slope| *slope == straddle));
        let zero = singular(2, 2, &[1.0, 0.0, 0.0, 0.0]);
        assert!(zero.slopes(1, DType::F32).iter().all(|slope| *slope == straddle));
        assert!(zero.slopes(0, DType::F32).iter().all(|slope| *slope != straddle));
    }
}
