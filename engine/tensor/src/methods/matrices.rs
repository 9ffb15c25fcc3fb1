//! Functions of matrices, which are the last two axes.

use gradiff_graph::DType;

use super::elementwise::wide;
use crate::error::invalid;
use crate::{Error, Scalar, Tensor, keepdim};

/// Maximum number of steps of Newton and Schulz, which converge in some ten.
const MAX_STEPS: usize = 64;
/// Maximum number of reflections, each of which is some kernels.
const MAX_REFLECTIONS: i64 = 4096;
/// Maximum number n of singular values; the number of kernels grows with n log n.
const MAX_VALUES: i64 = 256;

impl Tensor {
    /// Brings the singular values of matrices [.., m, n] near 1 (Newton and Schulz): `steps` times
    /// `c[0] x + c[1] (x xT) x + c[2] (x xT)^2 x + ..` with these coefficients, from the matrix
    /// divided by the root of the sum of its squares plus `eps`. f16 and bf16 are computed in f32.
    /// Floats.
    /// # Errors
    /// If the dtype is not a float, there are fewer than two axes or more than 64 steps, `eps` is
    /// negative, or a number is not finite in the dtype that it is computed in.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[2, 2], &[3.0f32, 0.0, 0.0, 4.0])?;
    /// let x = x.newton_schulz(10, &[2.0, -1.5, 0.5], 1e-7)?;
    /// let unit = Tensor::eye(x.dtype(), 2, 2)?;
    /// assert!(x.isclose(&unit, 1e-3, 1e-3, false)?.all(..)?.item::<bool>()?);
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn newton_schulz(
        &self,
        steps: usize,
        coefficients: &[f64],
        eps: f64,
    ) -> Result<Tensor, Error> {
        let [rows, columns] = self.matrix_sizes("newton_schulz")?;
        if MAX_STEPS < steps {
            return invalid(format!("newton_schulz: {steps} steps, at most {MAX_STEPS}"));
        }
        if columns < rows {
            let x = self.transpose(-2, -1)?.newton_schulz(steps, coefficients, eps)?;
            return x.transpose(-2, -1);
        }
        self.compute_in_f32("newton_schulz", |x| {
            for (number, least) in coefficients.iter().map(|c| (*c, f64::MIN)).chain([(eps, 0.0)]) {
                let found = Scalar::from(number).element(x.dtype())?.to_float();
                if !found.is_some_and(|found| least <= found && found.is_finite()) {
                    return invalid(format!(
                        "newton_schulz with {coefficients:?} and eps {eps}: they must be finite, \
                         and eps not negative"
                    ));
                }
            }
            let length = x.square()?.sum(keepdim([-2, -1]))?.sqrt()?.add(eps)?;
            let mut x = x.div(&length)?;
            for _ in 0..steps {
                x = x.contiguous().odd_polynomial(coefficients)?;
            }
            Ok(x)
        })
    }

    /// The sum of the products of coefficients and `(x xT)^i x`.
    fn odd_polynomial(&self, coefficients: &[f64]) -> Result<Tensor, Error> {
        let [first, rest @ ..] = coefficients else { return self.mul(0) };
        let linear = self.mul(*first)?;
        let [second, rest @ ..] = rest else { return Ok(linear) };
        let square = self.matmul(&self.transpose(-2, -1)?)?.contiguous();
        let mut power = square.clone();
        let mut factor = square.mul(*second)?;
        for coefficient in rest {
            power = power.matmul(&square)?;
            factor = factor.add(&power.mul(*coefficient)?)?;
        }
        linear.add(&factor.contiguous().matmul(self)?)
    }

    /// The factors q [.., m, m] and r [.., m, n] of matrices [.., m, n]: q is orthogonal, r is 0
    /// below the diagonal, and `q r` is the matrix. q is the product of Householder's reflections,
    /// so the elements on the diagonal of r have the sign opposite to that of what is reflected;
    /// a column of zeros is not reflected. NaN for a matrix with an element that is not finite. f16
    /// and bf16 are computed in f32. Floats.
    ///
    /// The gradient takes the signs as constants; it has no meaning if a column was not reflected.
    /// # Errors
    /// If the dtype is not a float, there are fewer than two axes, or more than 4096 reflections.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[2, 2], &[3.0f32, 1.0, 4.0, 2.0])?;
    /// let (q, r) = x.qr()?;
    /// assert!(q.matmul(&r)?.isclose(&x, 1e-5, 1e-5, false)?.all(..)?.item::<bool>()?);
    /// assert_eq!(r.mul(10)?.round()?.to_text()?, "[[-50.0, -22.0], [0.0, -4.0]]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn qr(&self) -> Result<(Tensor, Tensor), Error> {
        let [rows, columns] = self.matrix_sizes("qr")?;
        if MAX_REFLECTIONS < rows.min(columns) {
            return invalid(format!(
                "qr of {:?}: {} reflections, at most {MAX_REFLECTIONS}",
                self.shape(),
                rows.min(columns)
            ));
        }
        let dtype = self.dtype();
        let mut q = self.unit_matrices(wide(dtype), rows, rows)?;
        if self.size_elements() == 0 {
            return Ok((q.cast(dtype)?, self.unchanged()));
        }
        // The factors of a multiple are multiples, whose squares do not overflow.
        let x = self.cast(wide(dtype))?;
        let divisor = x.largest_magnitudes()?;
        let mut r = x.div(&divisor)?.contiguous();
        for column in 0..rows.min(columns) {
            let (v, w) = r.reflection(column)?;
            r = r.sub(&w.mul(&v.transpose(-2, -1)?.matmul(&r)?)?)?.contiguous();
            q = q.sub(&q.matmul(&v)?.mul(&w.transpose(-2, -1)?)?)?.contiguous();
        }
        Ok((q.cast(dtype)?, r.mul(&divisor)?.triu(0)?.cast(dtype)?))
    }

    /// The factors u, s and vt of matrices [.., m, n], their singular value decomposition:
    /// `u diag(s) vt` is the matrix, the columns of u and the rows of vt are orthogonal and of
    /// length 1, and s [.., min(m, n)] are the singular values, from the largest on. u is
    /// [.., m, m] and vt [.., n, n] if `full_matrices`; if not, they have min(m, n) columns and
    /// rows. It is not defined which of the possible u and vt these are: a column and its row may
    /// both have the other sign. NaN for a matrix with an element that is not finite. f16 and bf16
    /// are computed in f32. Floats.
    ///
    /// The values are differentiated; u and vt are constants for gradients. With m >= n, a matrix
    /// [m, m] is computed in either case.
    /// # Errors
    /// If the dtype is not a float, or there are fewer than two axes, more than 256 values, or too
    /// many elements for a square matrix of the longer side.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[2, 2], &[3.0f32, 0.0, 4.0, 5.0])?;
    /// let (u, s, vt) = x.svd(true)?;
    /// assert_eq!(s.square()?.round()?.to_text()?, "[45.0, 5.0]");
    /// assert!(u.mul(&s)?.matmul(&vt)?.isclose(&x, 1e-5, 1e-5, false)?.all(..)?.item::<bool>()?);
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn svd(&self, full_matrices: bool) -> Result<(Tensor, Tensor, Tensor), Error> {
        let [rows, columns] = self.matrix_sizes("svd")?;
        let (count, rank, dtype) = (rows.min(columns), self.rank(), self.dtype());
        if MAX_VALUES < count {
            return invalid(format!(
                "svd of {:?}: {count} singular values, at most {MAX_VALUES}",
                self.shape()
            ));
        }
        if rows < columns {
            let (u, values, vt) = self.transpose(-2, -1)?.svd(full_matrices)?;
            return Ok((vt.transpose(-2, -1)?, values, u.transpose(-2, -1)?));
        }
        let kept = if full_matrices { rows } else { count };
        if self.size_elements() == 0 {
            let u = self.unit_matrices(dtype, rows, kept)?;
            let values = Tensor::zeros(dtype, &[&self.shape()[..rank - 2], &[count]].concat())?;
            return Ok((u, values, self.unit_matrices(dtype, columns, columns)?));
        }
        let x = self.cast(wide(dtype))?;
        let divisor = x.largest_magnitudes()?;
        let x = x.div(&divisor)?.contiguous();
        // Columns of different lengths converge fast if the longest come first. What is triangular
        // converges faster, and transposed faster still: if x is q r, and rT w is qs s with
        // orthogonal columns, then q w s qsT is x.
        let order = x.abs()?.max(keepdim(-2))?.argsort(-1, true)?.contiguous();
        let position = order.argsort(-1, false)?.transpose(-2, -1)?.contiguous();
        // Squares of what is far below the error of the largest element would underflow.
        let least = if x.dtype() == DType::F64 { 2f64.powi(-60) } else { 2f64.powi(-30) };
        let cut = |x: &Tensor| x.abs()?.cmplt(least)?.where_(0, x);
        let (q, r) = cut(&x.detach())?.gather(-1, &order.expand(x.shape())?)?.contiguous().qr()?;
        let lower = r.range(rank - 2, 0, count)?.transpose(-2, -1)?;
        let (columns_of, rotations) = lower.with_orthogonal_columns()?;
        // Those of length near 0 are not orthogonal to the others, but their reflections are.
        let (right, diagonal) = cut(&columns_of)?.contiguous().qr()?;
        let diagonal = diagonal.diagonal(0, -2, -1)?.contiguous();
        let ones = diagonal.ones_like()?;
        let signs = diagonal.cmplt(0)?.where_(&ones.neg()?, &ones)?.unsqueeze(-2)?;
        // A matrix that is not finite has no finite factor.
        let nan = divisor.mul(0)?;
        let right = right.mul(&signs)?.add(&nan)?.contiguous();
        let right = right.gather(-2, &position.expand(right.shape())?)?.contiguous();
        let rotated = q.range(rank - 1, 0, count)?.matmul(&rotations)?.add(&nan)?.contiguous();
        let values = diagonal.abs()?.cummin(-1)?;
        // By each element, a value has the derivative of the product of its vectors.
        let first_order = rotated.mul(&x.matmul(&right)?)?.sum(-2)?;
        let values = values.add(&first_order.sub(first_order.detach())?)?;
        let values = values.mul(&divisor.squeeze(-1)?)?;
        let u = match kept == count {
            true => rotated,
            false => Tensor::cat(&[&rotated, &q.range(rank - 1, count, kept)?.add(&nan)?], -1)?,
        };
        let vt = right.transpose(-2, -1)?;
        Ok((u.cast(dtype)?, values.cast(dtype)?, vt.cast(dtype)?))
    }

    /// Rotates pairs of columns of square matrices until all are orthogonal (Jacobi, one-sided),
    /// and brings them in order, the longest first. Returns the columns and the rotations, by which
    /// the matrices are multiplied.
    fn with_orthogonal_columns(&self) -> Result<(Tensor, Tensor), Error> {
        let (rank, count) = (self.rank(), self.shape()[self.rank() - 1]);
        let unit = self.unit_matrices(self.dtype(), count, count)?;
        let both = Tensor::cat(&[self, &unit], -2)?;
        // Each round rotates column i of the first half with column i of the second half.
        let half = (count + 1) / 2;
        let mut shape = both.shape().to_vec();
        shape[rank - 1] = 2 * half;
        let mut both = both.pad_to(&shape)?.contiguous();
        for _ in 0..sweeps(count) * (2 * half - 1) {
            let [x, y] = both.rotated_pairs(count)?;
            // Each column but the first takes the next place, around the circle of both halves.
            both = match half {
                1 => Tensor::cat(&[&x, &y], -1)?,
                _ => {
                    let [first, x] = [x.range(rank - 1, 0, 1)?, x.range(rank - 1, 1, half)?];
                    let [second, y] = [y.range(rank - 1, 0, 1)?, y.range(rank - 1, 1, half)?];
                    let last = x.range(rank - 1, half - 2, half - 1)?;
                    let x = x.range(rank - 1, 0, half - 2)?;
                    Tensor::cat(&[&first, &second, &x, &y, &last], -1)?
                }
            }
            .contiguous();
        }
        let both = both.range(rank - 1, 0, count)?;
        let lengths = both.range(rank - 2, 0, count)?.square()?.sum(keepdim(-2))?;
        let order = lengths.argsort(-1, true)?.expand(both.shape())?;
        let both = both.gather(-1, &order)?.contiguous();
        Ok((both.range(rank - 2, 0, count)?, both.range(rank - 2, count, 2 * count)?))
    }

    /// Both halves of the columns, after each pair is rotated so that the first `count` elements of
    /// its columns are orthogonal.
    fn rotated_pairs(&self, count: i64) -> Result<[Tensor; 2], Error> {
        let (rank, half) = (self.rank(), self.shape()[self.rank() - 1] / 2);
        let x = self.range(rank - 1, 0, half)?;
        let y = self.range(rank - 1, half, 2 * half)?;
        let [upper_x, upper_y] = [x.range(rank - 2, 0, count)?, y.range(rank - 2, 0, count)?];
        let sum = |x: Tensor| x.sum(keepdim(-2));
        let dot = sum(upper_x.mul(&upper_y)?)?;
        let difference = sum(upper_y.square()?)?.sub(&sum(upper_x.square()?)?)?;
        let cotangent = difference.div(&dot.add(&dot)?)?;
        let ones = dot.ones_like()?;
        let sign = cotangent.cmplt(0)?.where_(&ones.neg()?, &ones)?;
        // The smaller of the two angles.
        let root = cotangent.square()?.add(1)?.sqrt()?;
        let tangent = sign.div(&cotangent.abs()?.add(&root)?)?;
        let tangent = dot.cmpeq(0)?.where_(0, &tangent)?.contiguous();
        let cosine = tangent.square()?.add(1)?.rsqrt()?.contiguous();
        let sine = cosine.mul(&tangent)?;
        let rotated_x = cosine.mul(&x)?.sub(&sine.mul(&y)?)?;
        let rotated_y = sine.mul(&x)?.add(&cosine.mul(&y)?)?;
        Ok([rotated_x, rotated_y])
    }

    /// Matrices with ones on the diagonal and zeros elsewhere, one for each of the matrices.
    fn unit_matrices(&self, dtype: DType, rows: i64, columns: i64) -> Result<Tensor, Error> {
        let outer = &self.shape()[..self.rank() - 2];
        let single = [&vec![1; outer.len()][..], &[rows, columns]].concat();
        let unit = Tensor::eye(dtype, rows, columns)?.reshape(&single)?;
        unit.expand(&[outer, &[rows, columns]].concat())
    }

    /// The largest magnitude of each of the matrices, 1 for zeros, NaN if an element is not finite.
    fn largest_magnitudes(&self) -> Result<Tensor, Error> {
        let size = self.abs()?.max(keepdim([-2, -1]))?.detach();
        let divisor = size.cmpeq(0)?.where_(&size.ones_like()?, &size)?;
        Ok(size.isfinite()?.where_(&divisor, f64::NAN)?.contiguous())
    }

    /// The columns v and w of the reflection `x - w vT x`, which makes zeros of the elements of a
    /// column below the diagonal.
    fn reflection(&self, column: i64) -> Result<(Tensor, Tensor), Error> {
        let rows_axis = self.rank() - 2;
        let rows = self.shape()[rows_axis];
        let numbers = Tensor::arange(DType::I32, 0, 1, rows)?.reshape(&[rows, 1])?;
        let x = self.range(rows_axis + 1, column, column + 1)?;
        let x = numbers.cmplt(column)?.where_(0, &x)?;
        // A column far below the largest element has squares that underflow. A multiple of it has
        // the same reflection.
        let scale = x.abs()?.max(keepdim(-2))?.detach();
        let scale = scale.cmpeq(0)?.where_(&scale.ones_like()?, &scale)?;
        let x = x.div(&scale)?;
        let squares = x.square()?.sum(keepdim(-2))?;
        let is_zero = squares.cmpeq(0)?;
        let length = is_zero.where_(&squares.ones_like()?, &squares)?.sqrt()?;
        let first = x.range(rows_axis, column, column + 1)?;
        let ones = first.ones_like()?;
        let sign = first.cmplt(0)?.where_(&ones.neg()?, &ones)?;
        let first = first.add(&sign.mul(&length)?)?;
        let factor = is_zero.where_(0, &sign.mul(&first.div(&length)?)?)?;
        let v = numbers.cmpeq(column)?.where_(1, &x.div(&first)?)?;
        let w = v.mul(&factor)?;
        Ok((v.contiguous(), w.contiguous()))
    }

    /// The numbers of rows and columns of the matrices.
    fn matrix_sizes(&self, method: &str) -> Result<[i64; 2], Error> {
        match self.shape().last_chunk::<2>() {
            Some(sizes) if self.dtype().is_float() => Ok(*sizes),
            Some(_) => invalid(format!(
                "{method} of {}: it takes floats; cast the tensor first",
                self.dtype()
            )),
            None => invalid(format!("{method} of {:?}: it takes two axes or more", self.shape())),
        }
    }
}

/// The number of times that each pair of so many columns is rotated. Convergence is quadratic if
/// the columns are in order.
fn sweeps(count: i64) -> i64 {
    match count {
        ..=1 => 0,
        2 => 2,
        _ => 4 + i64::from(count.ilog2()),
    }
}
