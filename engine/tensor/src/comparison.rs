//! Comparisons by PyTorch's names: lt, le, gt, ge, eq, ne. In Rust the operators `<` and `==` have
//! one bool as result, so tensors have methods alone.
//!
//! Operands are promoted as those of [`cmplt`](Tensor::cmplt): u64 beside a signed integer becomes
//! f16, where all numbers from 65,520 on are equal; cast the operands first.

use crate::{Error, Operand, Tensor};

impl Tensor {
    /// `x < y` as bool, false if either is NaN: PyTorch's name of [`cmplt`](Tensor::cmplt). All
    /// dtypes.
    /// # Errors
    /// If shapes do not broadcast.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[3], &[1f32, 2.0, f32::NAN])?;
    /// assert_eq!(x.lt(2)?.to_text()?, "[true, false, false]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn lt(&self, other: impl Into<Operand>) -> Result<Tensor, Error> {
        let (x, y) = self.compared("lt", other.into())?;
        x.cmplt(&y)
    }

    /// `x <= y` as bool, false if either is NaN. All dtypes.
    /// # Errors
    /// If shapes do not broadcast.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[3], &[1f32, 2.0, f32::NAN])?;
    /// assert_eq!(x.le(2)?.to_text()?, "[true, true, false]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn le(&self, other: impl Into<Operand>) -> Result<Tensor, Error> {
        let (x, y) = self.compared("le", other.into())?;
        at_most(&x, &y)
    }

    /// `x > y` as bool, false if either is NaN. All dtypes.
    /// # Errors
    /// If shapes do not broadcast.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[3], &[2f32, 3.0, f32::NAN])?;
    /// assert_eq!(x.gt(2)?.to_text()?, "[false, true, false]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn gt(&self, other: impl Into<Operand>) -> Result<Tensor, Error> {
        let (x, y) = self.compared("gt", other.into())?;
        y.cmplt(&x)
    }

    /// `x >= y` as bool, false if either is NaN. All dtypes.
    /// # Errors
    /// If shapes do not broadcast.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[3], &[1f32, 2.0, f32::NAN])?;
    /// assert_eq!(x.ge(2)?.to_text()?, "[false, true, false]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn ge(&self, other: impl Into<Operand>) -> Result<Tensor, Error> {
        let (x, y) = self.compared("ge", other.into())?;
        at_most(&y, &x)
    }

    /// `x == y` as bool, false if either is NaN: PyTorch's name of [`cmpeq`](Tensor::cmpeq). All
    /// dtypes.
    /// # Errors
    /// If shapes do not broadcast.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[3], &[1f32, 2.0, f32::NAN])?;
    /// assert_eq!(x.eq(2)?.to_text()?, "[false, true, false]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn eq(&self, other: impl Into<Operand>) -> Result<Tensor, Error> {
        let (x, y) = self.compared("eq", other.into())?;
        x.cmpeq(&y)
    }

    /// `x != y` as bool, true if either is NaN: PyTorch's name of [`cmpne`](Tensor::cmpne). All
    /// dtypes.
    /// # Errors
    /// If shapes do not broadcast.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[3], &[1f32, 2.0, f32::NAN])?;
    /// assert_eq!(x.ne(2)?.to_text()?, "[true, false, true]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn ne(&self, other: impl Into<Operand>) -> Result<Tensor, Error> {
        let (x, y) = self.compared("ne", other.into())?;
        x.cmpne(&y)
    }
}

/// Returns `x <= y` of tensors of one dtype. The negation of `y < x` would be true for NaN.
fn at_most(x: &Tensor, y: &Tensor) -> Result<Tensor, Error> {
    match x.dtype().is_float() {
        true => x.cmplt(y)?.or(&x.cmpeq(y)?),
        false => y.cmplt(x)?.not(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Element;

    fn data<T: Element>(shape: &[i64], elements: &[T]) -> Result<Tensor, Error> {
        Tensor::from_slice(shape, elements)?.to("interp")
    }

    /// Checks lt, le, eq, ne, ge and gt of two operands, whose elements are written as 0 and 1.
    fn check<T>(x: &Tensor, y: T, expected: [&str; 6]) -> Result<(), Error>
    where
        T: Into<Operand> + Clone,
    {
        let y = || y.clone();
        let found = [x.lt(y()), x.le(y()), x.eq(y()), x.ne(y()), x.ge(y()), x.gt(y())];
        for (found, (name, expected)) in
            found.into_iter().zip(["lt", "le", "eq", "ne", "ge", "gt"].into_iter().zip(expected))
        {
            let elements = found?.to_vec::<bool>()?;
            let text: String = elements.iter().map(|is| if *is { '1' } else { '0' }).collect();
            assert_eq!(text, expected, "{name}");
        }
        Ok(())
    }

    #[test]
    fn comparisons_with_nan_are_false_but_ne() -> Result<(), Error> {
        let nan = f32::NAN;
        let x = data(&[6], &[1.0, 2.0, 3.0, nan, nan, -0.0])?;
        let y = data(&[6], &[2.0, 2.0, 2.0, 2.0, nan, 0.0])?;
        check(&x, &y, ["100000", "110001", "010001", "101110", "011001", "001000"])?;
        check(&x, 2, ["100001", "110001", "010000", "101111", "011000", "001000"])?;
        check(&x, nan, ["000000", "000000", "000000", "111111", "000000", "000000"])
    }

    #[test]
    fn integers_and_bools_are_compared() -> Result<(), Error> {
        let x = data(&[3], &[i32::MIN, 0, i32::MAX])?;
        check(&x, 0, ["100", "110", "010", "101", "011", "001"])?;
        let (x, y) = (data(&[2], &[false, true])?, data(&[2], &[true, true])?);
        check(&x, &y, ["10", "11", "01", "10", "01", "00"])
    }

    #[test]
    fn operands_are_promoted_and_broadcast() -> Result<(), Error> {
        let (x, y) = (data(&[2, 1], &[1, 2])?, data(&[3], &[1.0f32, 2.0, 3.0])?);
        check(&x, &y, ["011001", "111011", "100010", "011101", "100110", "000100"])?;
        assert_eq!(x.ge(&y)?.shape(), [2, 3]);
        // As i16.
        let (x, y) = (data(&[2], &[-1i8, 1])?, data(&[2], &[255u8, 1])?);
        check(&x, &y, ["10", "11", "01", "10", "01", "00"])?;
        // As f16.
        let x = data(&[3], &[5, u64::MAX, 0])?;
        let y = data(&[3], &[5i64, 1, -1])?;
        check(&x, &y, ["000", "100", "100", "011", "111", "011"])?;
        // A number takes the dtype.
        check(&x, 5, ["001", "101", "100", "011", "110", "010"])
    }

    #[test]
    fn errors_name_the_comparison() -> Result<(), Error> {
        let (x, y) = (data(&[2], &[1, 2])?, data(&[3], &[1, 2, 3])?);
        let found = [x.lt(&y), x.le(&y), x.eq(&y), x.ne(&y), x.ge(&y), x.gt(&y)];
        for (found, name) in found.into_iter().zip(["lt", "le", "eq", "ne", "ge", "gt"]) {
            let error = found.expect_err("the shapes differ").to_string();
            assert!(error.starts_with(&format!("{name} of shapes [2] and [3]")), "{error}");
        }
        assert!(x.gt(1.5).is_err());
        Ok(())
    }
}
