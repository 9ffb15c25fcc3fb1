//! Functions of matrices, the last two axes of floats: polynomials, and reflections.
//!
//! The steps are those that the table of methods states. They are written once, over [`Steps`], for
//! elements and for the scalars that derivatives are taken of.

use gradiff_corpus::{DType, ReduceOp, Shape};

use super::Call;
use super::elementwise::{literal, magnitude, require, wide};
use super::norms;
use crate::arithmetic::{self, max};
use crate::cast::cast;
use crate::cell::{Cell, Real, Reason};
use crate::infer::{Check, limit};
use crate::reduce::{SumDepth, reduce};
use crate::value::Value;

/// Steps of a polynomial at most.
const STEPS_MAX: usize = 64;

/// Numbers, and the operations on them, each of which is rounded.
pub(crate) trait Steps {
    /// A number.
    type Number: Copy;
    /// The number as an element.
    fn cell(&self, x: Self::Number) -> Cell;
    /// A number that depends on nothing.
    fn leaf(&mut self, cell: Cell) -> Self::Number;
    /// A number that depends on others in an unknown way.
    fn unknown(&mut self, cell: Cell, sources: &[Self::Number]) -> Self::Number;
    /// The sum of the products of pairs.
    fn terms(&mut self, pairs: &[(Self::Number, Self::Number)]) -> Self::Number;
    /// A quotient.
    fn div(&mut self, x: Self::Number, y: Self::Number) -> Self::Number;
    /// A square root.
    fn sqrt(&mut self, x: Self::Number) -> Self::Number;
}

/// Elements of a dtype.
pub(super) struct Elements {
    dtype: DType,
    sums: SumDepth,
}

/// Returns the element as one that later operations do not reorder.
fn rounded(cell: Cell) -> Cell {
    if let Cell::Real(real) = cell { Cell::Real(real.leaf()) } else { cell }
}

impl Steps for Elements {
    type Number = Cell;

    fn cell(&self, x: Cell) -> Cell {
        x
    }

    fn leaf(&mut self, cell: Cell) -> Cell {
        cell
    }

    fn unknown(&mut self, cell: Cell, _: &[Cell]) -> Cell {
        cell
    }

    fn terms(&mut self, pairs: &[(Cell, Cell)]) -> Cell {
        let product = |(x, y): &(Cell, Cell)| rounded(arithmetic::mul(self.dtype, *x, *y));
        let products: Vec<Cell> = pairs.iter().map(product).collect();
        rounded(reduce(ReduceOp::Sum, self.sums, self.dtype, &products))
    }

    fn div(&mut self, x: Cell, y: Cell) -> Cell {
        arithmetic::div(self.dtype, x, y)
    }

    fn sqrt(&mut self, x: Cell) -> Cell {
        arithmetic::sqrt(self.dtype, x)
    }
}

/// A matrix, in row-major order.
pub(crate) struct Matrix<N> {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) elements: Vec<N>,
}

impl<N: Copy> Matrix<N> {
    fn at(&self, row: usize, column: usize) -> N {
        self.elements[row * self.columns + column]
    }

    fn transposed(&self) -> Matrix<N> {
        let positions = (0..self.columns).flat_map(|c| (0..self.rows).map(move |r| (r, c)));
        let elements = positions.map(|(row, column)| self.at(row, column)).collect();
        Matrix { rows: self.columns, columns: self.rows, elements }
    }

    /// Returns the product with a matrix.
    fn times(&self, s: &mut impl Steps<Number = N>, other: &Matrix<N>) -> Matrix<N> {
        let mut elements = Vec::with_capacity(self.rows * other.columns);
        for row in 0..self.rows {
            for column in 0..other.columns {
                let pair = |i| (self.at(row, i), other.at(i, column));
                let pairs: Vec<(N, N)> = (0..self.columns).map(pair).collect();
                elements.push(s.terms(&pairs));
            }
        }
        Matrix { rows: self.rows, columns: other.columns, elements }
    }

    /// Returns the sum of two matrices with factors.
    fn plus(
        &self,
        s: &mut impl Steps<Number = N>,
        (factor, other, other_factor): (N, &Matrix<N>, N),
    ) -> Matrix<N> {
        let pairs = self.elements.iter().zip(&other.elements);
        let elements = pairs.map(|(x, y)| s.terms(&[(factor, *x), (other_factor, *y)])).collect();
        Matrix { elements, ..*self }
    }
}

/// The numbers of a polynomial of matrices.
pub(crate) struct Polynomial<N> {
    pub(crate) steps: usize,
    /// The factors of `x`, `(x xT) x`, `(x xT)^2 x`.
    pub(crate) factors: [N; 3],
    pub(crate) eps: N,
}

impl<N> Polynomial<N> {
    /// Reads the arguments; `number` makes a number of an element of the wide dtype.
    ///
    /// # Errors
    /// Numbers that the dtype does not have.
    pub(crate) fn of(
        call: Call<'_>,
        dtype: DType,
        mut number: impl FnMut(Cell) -> N,
    ) -> Check<Polynomial<N>> {
        let steps = usize::try_from(call.args.int(0)).ok().filter(|steps| *steps <= STEPS_MAX);
        let steps = steps.ok_or_else(|| format!("{} steps", call.args.int(0)))?;
        let mut argument = |at| literal(dtype, call, at).map(&mut number);
        let factors = [argument(1)?, argument(2)?, argument(3)?];
        Ok(Polynomial { steps, factors, eps: argument(4)? })
    }

    /// Returns the matrix after the steps.
    pub(crate) fn orthogonalized(&self, s: &mut impl Steps<Number = N>, x: Matrix<N>) -> Matrix<N>
    where
        N: Copy,
    {
        if x.columns < x.rows {
            return self.orthogonalized(s, x.transposed()).transposed();
        }
        let unit = s.leaf(Cell::exact(1.0));
        let squares: Vec<(N, N)> = x.elements.iter().map(|x| (*x, *x)).collect();
        let squares = s.terms(&squares);
        let root = s.sqrt(squares);
        let length = s.terms(&[(root, unit), (self.eps, unit)]);
        let elements = x.elements.iter().map(|x| s.div(*x, length)).collect();
        let mut x = Matrix { elements, ..x };
        let [a, b, c] = self.factors;
        for _ in 0..self.steps {
            let transposed = x.transposed();
            let square = x.times(s, &transposed);
            let fourth = square.times(s, &square);
            let product = square.plus(s, (b, &fourth, c)).times(s, &x);
            x = x.plus(s, (a, &product, unit));
        }
        x
    }
}

/// The factors of a matrix, as far as they are known.
struct Factors<'a, S: Steps> {
    steps: &'a mut S,
    /// The elements of the matrix.
    sources: Vec<S::Number>,
    q: Matrix<S::Number>,
    r: Matrix<S::Number>,
}

impl<S: Steps> Factors<'_, S> {
    /// Makes what the reflections from number `from` on change depend on the matrix in an unknown
    /// way; the elements are those that `cell` makes of them.
    fn forget(&mut self, from: usize, cell: impl Fn(Cell) -> Cell) {
        for row in 0..self.r.rows {
            for column in from..self.q.columns {
                let position = row * self.q.columns + column;
                let found = cell(self.steps.cell(self.q.elements[position]));
                self.q.elements[position] = self.steps.unknown(found, &self.sources);
            }
            for column in 0..if row < from { 0 } else { self.r.columns } {
                let position = row * self.r.columns + column;
                let found = cell(self.steps.cell(self.r.elements[position]));
                self.r.elements[position] = self.steps.unknown(found, &self.sources);
            }
        }
    }

    /// Reflects the columns from number 0 on, each of whose elements is at most 1.
    fn reflect_columns(&mut self) {
        for at in 0..self.r.rows.min(self.r.columns) {
            match reflection(self.steps, &self.r, at) {
                Ok(None) => self.forget(at, |cell| cell),
                Ok(Some(reflection)) => {
                    reflect(self.steps, &mut self.r, at, &reflection);
                    let mut transposed = self.q.transposed();
                    reflect(self.steps, &mut transposed, at, &reflection);
                    self.q = transposed.transposed();
                }
                Err(reason) => return self.forget(at, |_| Cell::Unspecified(reason)),
            }
        }
    }
}

/// Returns the factors q [m, m] and r [m, n] of a matrix.
pub(crate) fn factorized<S: Steps>(
    s: &mut S,
    x: Matrix<S::Number>,
) -> (Matrix<S::Number>, Matrix<S::Number>) {
    let (rows, columns) = (x.rows, x.columns);
    let [zero, unit] = [0.0, 1.0].map(|value| s.leaf(Cell::exact(value)));
    let diagonal = |at: usize| if at.is_multiple_of(rows + 1) { unit } else { zero };
    let elements = (0..rows * rows).map(diagonal).collect();
    let q = Matrix { rows, columns: rows, elements };
    let sizes = x.elements.iter().map(|x| magnitude(s.cell(*x)));
    let size = sizes.fold(Cell::exact(0.0), max);
    let mut factors = Factors { sources: x.elements.clone(), steps: s, q, r: x };
    match size {
        Cell::Real(real) if real.is_zero() => factors.forget(0, |cell| cell),
        Cell::Real(real) if real.may_be_zero() => {
            factors.forget(0, |_| Cell::Unspecified(Reason::Straddle));
        }
        Cell::Real(_) => {
            // The factors of a multiple are multiples; the size itself has no derivative.
            let size = factors.steps.leaf(size);
            for x in &mut factors.r.elements {
                *x = factors.steps.div(*x, size);
            }
            factors.reflect_columns();
            for x in &mut factors.r.elements {
                *x = factors.steps.terms(&[(*x, size)]);
            }
        }
        Cell::Unspecified(_) => factors.forget(0, |_| size),
        _ => factors.forget(0, |_| Cell::nan()),
    }
    let Factors { q, mut r, .. } = factors;
    for row in 1..rows {
        r.elements[row * columns..][..row.min(columns)].fill(zero);
    }
    (q, r)
}

/// The vectors v and w of a reflection, which subtracts `w vT x` from x.
type Reflection<N> = (Vec<N>, Vec<N>);

/// Returns the reflection of the column `at`, from its element on the diagonal on; none for zeros.
fn reflection<S: Steps>(
    s: &mut S,
    r: &Matrix<S::Number>,
    at: usize,
) -> Result<Option<Reflection<S::Number>>, Reason> {
    let x: Vec<S::Number> = (at..r.rows).map(|row| r.at(row, at)).collect();
    let squares: Vec<(S::Number, S::Number)> = x.iter().map(|x| (*x, *x)).collect();
    let squares = s.terms(&squares);
    match s.cell(squares) {
        Cell::Real(real) if real.is_zero() => return Ok(None),
        Cell::Real(real) if !real.may_be_zero() => {}
        Cell::Unspecified(reason) => return Err(reason),
        _ => return Err(Reason::Straddle),
    }
    // A zero of either sign is positive.
    let is_negative = match s.cell(x[0]) {
        Cell::Real(real) if 0.0 <= real.lower() => false,
        Cell::Real(real) if real.upper() < 0.0 => true,
        Cell::Real(_) => return Err(Reason::Straddle),
        Cell::Unspecified(reason) => return Err(reason),
        cell => panic!("{cell:?} is not finite, as its square is"),
    };
    let unit = s.leaf(Cell::exact(1.0));
    let sign = s.leaf(Cell::exact(if is_negative { -1.0 } else { 1.0 }));
    let length = s.sqrt(squares);
    let first = s.terms(&[(x[0], unit), (sign, length)]);
    let factor = s.div(first, length);
    let factor = s.terms(&[(sign, factor)]);
    let mut v = vec![unit];
    v.extend(x[1..].iter().map(|x| s.div(*x, first)));
    let w = v.iter().map(|v| s.terms(&[(*v, factor)])).collect();
    Ok(Some((v, w)))
}

/// Subtracts `w vT x` from the rows of a matrix from `at` on.
fn reflect<S: Steps>(
    s: &mut S,
    x: &mut Matrix<S::Number>,
    at: usize,
    (v, w): &Reflection<S::Number>,
) {
    let [unit, minus_one] = [1.0, -1.0].map(|value| s.leaf(Cell::exact(value)));
    for column in 0..x.columns {
        let pairs: Vec<(S::Number, S::Number)> =
            v.iter().enumerate().map(|(i, v)| (*v, x.at(at + i, column))).collect();
        let dot = s.terms(&pairs);
        for (i, w) in w.iter().enumerate() {
            let product = s.terms(&[(*w, dot)]);
            let position = (at + i) * x.columns + column;
            x.elements[position] = s.terms(&[(x.elements[position], unit), (product, minus_one)]);
        }
    }
}

/// Calls `f` with each matrix of a source of floats, in the wide dtype. `shape` gives the last
/// sizes of the result, and the number of columns that sums of products are computed for.
pub(super) fn each_matrix(
    call: Call<'_>,
    shape: impl Fn(usize, usize) -> (Vec<usize>, usize),
    mut f: impl FnMut(&mut Elements, Matrix<Cell>) -> Matrix<Cell>,
) -> Check<Value> {
    let x = call.srcs[0];
    require(x.dtype.is_float(), x.dtype, "floats")?;
    let [outer @ .., rows, columns] = &x.shape[..] else {
        return Err(format!("{:?} has fewer than two axes", x.shape));
    };
    let dtype = wide(x.dtype);
    let (sizes, width) = shape(*rows, *columns);
    limit([outer, &[*rows, width, *rows.min(columns)]].concat())?;
    let target: Shape = limit([outer, &sizes].concat())?;
    let mut cells = Vec::new();
    let mut steps = Elements { dtype, sums: call.sums };
    for number in 0..outer.iter().product() {
        let first = number * rows * columns;
        let elements = x.cells[first..first + rows * columns].iter();
        let elements = elements.map(|cell| rounded(cast(x.dtype, dtype, *cell))).collect();
        let found = f(&mut steps, Matrix { rows: *rows, columns: *columns, elements });
        cells.extend(found.elements.into_iter().map(|cell| match cell {
            Cell::Real(real) if real.is_zero() => Cell::Real(Real { zero_sign: None, ..real }),
            cell => cast(dtype, x.dtype, cell),
        }));
    }
    Ok(Value::new(x.dtype, target, cells))
}

/// The matrices whose singular values are near 1.
pub(super) fn newton_schulz(call: Call<'_>) -> Check<Value> {
    let polynomial = Polynomial::of(call, wide(call.srcs[0].dtype), |cell| cell)?;
    let shape = |rows, columns| (vec![rows, columns], columns);
    each_matrix(call, shape, |s, x| {
        let source = Matrix { elements: x.elements.clone(), ..x };
        let found = polynomial.orthogonalized(s, x);
        norms::narrowed(s.dtype, &polynomial, &source, found)
    })
}

/// The orthogonal factors.
pub(super) fn orthogonal(call: Call<'_>) -> Check<Value> {
    let shape = |rows: usize, columns| (vec![rows, rows], rows.max(columns));
    each_matrix(call, shape, |s, x| factorized(s, x).0)
}

/// The triangular factors.
pub(super) fn triangular(call: Call<'_>) -> Check<Value> {
    let shape = |rows: usize, columns| (vec![rows, columns], rows.max(columns));
    each_matrix(call, shape, |s, x| factorized(s, x).1)
}
