//! Functions of matrices, which are the last two axes.

use gradiff_graph::DType;

use super::elementwise::wide;
use crate::error::invalid;
use crate::{Error, Scalar, Tensor, keepdim};

/// Maximum number of steps of Newton and Schulz, which converge in some ten.
const MAX_STEPS: usize = 64;
/// Maximum number of reflections, each of which is some kernels.
const MAX_REFLECTIONS: i64 = 4096;

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
        let mut shape = self.shape().to_vec();
        shape[self.rank() - 1] = rows;
        let square = [&vec![1; self.rank() - 2][..], &[rows, rows]].concat();
        let mut q = Tensor::eye(wide(dtype), rows, rows)?.reshape(&square)?.expand(&shape)?;
        if self.size_elements() == 0 {
            return Ok((q.cast(dtype)?, self.clone()));
        }
        let x = self.cast(wide(dtype))?;
        // The factors of a multiple are multiples, whose squares do not overflow.
        let size = x.abs()?.max(keepdim([-2, -1]))?.detach();
        let divisor = size.cmpeq(0)?.where_(&size.ones_like()?, &size)?;
        let divisor = size.isfinite()?.where_(&divisor, f64::NAN)?.contiguous();
        let mut r = x.div(&divisor)?.contiguous();
        for column in 0..rows.min(columns) {
            let (v, w) = r.reflection(column)?;
            r = r.sub(&w.mul(&v.transpose(-2, -1)?.matmul(&r)?)?)?.contiguous();
            q = q.sub(&q.matmul(&v)?.mul(&w.transpose(-2, -1)?)?)?.contiguous();
        }
        Ok((q.cast(dtype)?, r.mul(&divisor)?.triu(0)?.cast(dtype)?))
    }

    /// The columns v and w of the reflection `x - w vT x`, which makes zeros of the elements of a
    /// column below the diagonal.
    fn reflection(&self, column: i64) -> Result<(Tensor, Tensor), Error> {
        let rows_axis = self.rank() - 2;
        let rows = self.shape()[rows_axis];
        let numbers = Tensor::arange(DType::I32, 0, 1, rows)?.reshape(&[rows, 1])?;
        let x = self.range(rows_axis + 1, column, column + 1)?;
        let x = numbers.cmplt(column)?.where_(0, &x)?;
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
