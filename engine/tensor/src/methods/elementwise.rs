//! Elementwise functions whose results are exact, or rounded once. Signs and classes of floats are
//! read from their bits, so that they hold in every mode.

use gradiff_graph::DType;

use crate::error::invalid;
use crate::promotion::promote;
use crate::{Error, Operand, Scalar, Tensor};

/// The bits of a float dtype.
struct Layout {
    /// The unsigned integers of the same width.
    word: DType,
    /// The signed integers that hold every float whose magnitude is below `whole`.
    int: DType,
    /// All bits but the sign.
    magnitude: u64,
    /// The bits of infinity.
    infinity: u64,
    /// The magnitude from which on every float is an integer.
    whole: f64,
}

impl Layout {
    fn of(dtype: DType) -> Layout {
        let (word, int) = (dtype.unsigned(), wide(dtype).signed());
        let mantissa = dtype.mantissa_bits();
        let magnitude = (1 << (dtype.bits() - 1)) - 1;
        let infinity = magnitude >> mantissa << mantissa;
        Layout { word, int, magnitude, infinity, whole: f64::from(mantissa).exp2() }
    }
}

impl Tensor {
    /// `|x|`; +0 for a zero of either sign, wrapping for the smallest integer. Integers and floats.
    /// # Errors
    /// If the dtype is bool.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[3], &[-1.5f32, 0.0, 2.0])?;
    /// assert_eq!(x.abs()?.to_text()?, "[1.5, 0.0, 2.0]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn abs(&self) -> Result<Tensor, Error> {
        check_number("abs", self)?;
        match self.dtype() {
            dtype if dtype.is_float() => {
                Ok(self.magnitude_bits()?.bitcast(dtype)?.as_function("abs", &[self]))
            }
            _ => self.cmplt(0)?.where_(&self.neg()?, self),
        }
    }

    /// -1, 0 or 1 as x is negative, zero or positive; NaN for NaN. Integers and floats.
    /// # Errors
    /// If the dtype is bool.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[3], &[-7, 0, 3])?;
    /// assert_eq!(x.sign()?.to_text()?, "[-1, 0, 1]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn sign(&self) -> Result<Tensor, Error> {
        check_number("sign", self)?;
        let units = |sign: i64| Tensor::full(self.dtype(), &[], sign);
        if self.dtype().int_range().is_some_and(|(low, _)| low == 0) {
            return self.minimum(1);
        }
        // The magnitude of what is neither negative nor positive: +0, or NaN.
        let not_negative =
            Tensor::full(self.dtype(), &[], 0)?.cmplt(self)?.where_(&units(1)?, &self.abs()?)?;
        Ok(self.cmplt(0)?.where_(&units(-1)?, &not_negative)?.detach())
    }

    /// `x * x`; integers wrap. Integers and floats.
    /// # Errors
    /// If the dtype is bool.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[2], &[-3, 4])?;
    /// assert_eq!(x.square()?.to_text()?, "[9, 16]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn square(&self) -> Result<Tensor, Error> {
        self.mul(self)
    }

    /// The lesser of `max` and the greater of `x` and `min`, which is `max` if `max < min`; NaN if
    /// any of the three is NaN. Integers and floats.
    /// # Errors
    /// If the dtype is bool, or cannot represent a bound.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[3], &[-3, 1, 9])?;
    /// assert_eq!(x.clamp(0, 5)?.to_text()?, "[0, 1, 5]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn clamp(&self, min: impl Into<Scalar>, max: impl Into<Scalar>) -> Result<Tensor, Error> {
        check_number("clamp", self)?;
        let [min, max] = [min.into(), max.into()].map(|bound| Tensor::scalar(self.dtype(), bound));
        let (min, max) = (min?, max?);
        let value = self.maximum(&min)?.minimum(&max)?;
        Ok(value.as_function("clamp", &[self, &min, &max]))
    }

    /// The integer nearest to x in the direction of 0, as a float with the sign of x; infinities
    /// stay. Integers, which stay, and floats.
    /// # Errors
    /// If the dtype is bool.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[3], &[-1.5f32, 0.5, 2.75])?;
    /// assert_eq!(x.trunc()?.to_text()?, "[-1.0, 0.0, 2.0]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn trunc(&self) -> Result<Tensor, Error> {
        self.to_whole("trunc", |_, truncated| Ok(truncated.clone()))
    }

    /// The largest integer that is at most x, as a float; a zero has the sign of x, infinities
    /// stay. Integers, which stay, and floats.
    /// # Errors
    /// If the dtype is bool.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[3], &[-1.5f32, 0.5, 2.0])?;
    /// assert_eq!(x.floor()?.to_text()?, "[-2.0, 0.0, 2.0]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn floor(&self) -> Result<Tensor, Error> {
        self.to_whole("floor", |x, truncated| {
            x.cmplt(truncated)?.where_(&truncated.sub(1)?, truncated)
        })
    }

    /// The smallest integer that is at least x, as a float; a zero has the sign of x, infinities
    /// stay. Integers, which stay, and floats.
    /// # Errors
    /// If the dtype is bool.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[3], &[-1.5f32, 0.5, 2.0])?;
    /// assert_eq!(x.ceil()?.to_text()?, "[-1.0, 1.0, 2.0]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn ceil(&self) -> Result<Tensor, Error> {
        self.to_whole("ceil", |x, truncated| {
            truncated.cmplt(x)?.where_(&truncated.add(1)?, truncated)
        })
    }

    /// The integer nearest to x, the even one of two, as a float; a zero has the sign of x,
    /// infinities stay. Integers, which stay, and floats.
    /// # Errors
    /// If the dtype is bool.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[4], &[0.5f32, 1.5, 2.5, -2.75])?;
    /// assert_eq!(x.round()?.to_text()?, "[0.0, 2.0, 2.0, -3.0]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn round(&self) -> Result<Tensor, Error> {
        self.to_whole("round", |x, truncated| {
            // The difference is exact. Where x is not below 2^mantissa, it is 0, or NaN.
            let fraction = x.sub(truncated)?.abs()?;
            let int = Layout::of(x.dtype()).int;
            let is_odd = x.cast(int)?.and(1)?.cast(DType::Bool)?;
            let is_tie_to_odd = fraction.cmpeq(0.5)?.and(&is_odd)?;
            let half = Tensor::full(x.dtype(), &[], 0.5)?;
            let is_up = half.cmplt(&fraction)?.or(&is_tie_to_odd)?;
            let size = truncated.abs()?;
            is_up.where_(&size.add(1)?, &size)?.with_sign_of(x)
        })
    }

    /// Returns whether x is NaN, as bool; false for integers and bool. All dtypes.
    /// # Errors
    /// Never, as yet: a `Result` as of all methods.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[3], &[1.0, f32::NAN, f32::INFINITY])?;
    /// assert_eq!(x.isnan()?.to_text()?, "[false, true, false]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn isnan(&self) -> Result<Tensor, Error> {
        self.by_class(false, |bits, infinity| infinity.cmplt(bits))
    }

    /// Returns whether x is an infinity of either sign, as bool; false for integers and bool. All
    /// dtypes.
    /// # Errors
    /// Never, as yet: a `Result` as of all methods.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[3], &[1.0, f32::NAN, f32::NEG_INFINITY])?;
    /// assert_eq!(x.isinf()?.to_text()?, "[false, false, true]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn isinf(&self) -> Result<Tensor, Error> {
        self.by_class(false, |bits, infinity| bits.cmpeq(infinity))
    }

    /// Returns whether x is neither NaN nor an infinity, as bool; true for integers and bool. All
    /// dtypes.
    /// # Errors
    /// Never, as yet: a `Result` as of all methods.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[3], &[1.0, f32::NAN, f32::INFINITY])?;
    /// assert_eq!(x.isfinite()?.to_text()?, "[true, false, false]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn isfinite(&self) -> Result<Tensor, Error> {
        self.by_class(true, |bits, infinity| bits.cmplt(infinity))
    }

    /// The magnitude of x with the sign of y, also that of a zero; NaN if either is NaN. Floats,
    /// promoted and broadcast.
    /// # Errors
    /// If a dtype is not a float, or shapes do not broadcast.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[2], &[1.5f32, -2.0])?;
    /// assert_eq!(x.copysign(-0.0)?.to_text()?, "[-1.5, -2.0]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn copysign(&self, sign: impl Into<Operand>) -> Result<Tensor, Error> {
        let (x, y) = self.float_pair("copysign", sign)?;
        Ok(y.isnan()?
            .where_(&y, &x.with_sign_of(&y)?)?
            .as_elementwise_function("copysign", [&x, &y]))
    }

    /// `value` where `mask` is true, else x. `mask` is bool and is broadcast with x. All dtypes.
    /// # Errors
    /// If the mask is not bool, shapes do not broadcast, or the dtype cannot represent the value.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[2], &[1, 2])?;
    /// let mask = Tensor::from_slice(&[2], &[true, false])?;
    /// assert_eq!(x.masked_fill(&mask, 0)?.to_text()?, "[0, 2]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn masked_fill(&self, mask: &Tensor, value: impl Into<Scalar>) -> Result<Tensor, Error> {
        mask.where_(value.into(), self)
    }

    /// `x + (end - x) * weight`; f16 and bf16 are computed in f32. Floats, promoted and broadcast.
    /// # Errors
    /// If a dtype is not a float, or shapes do not broadcast.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let (x, end) = (Tensor::from_slice(&[1], &[1f32])?, Tensor::from_slice(&[1], &[3f32])?);
    /// assert_eq!(x.lerp(&end, 0.25)?.to_text()?, "[1.5]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn lerp(
        &self,
        end: impl Into<Operand>,
        weight: impl Into<Operand>,
    ) -> Result<Tensor, Error> {
        let (x, end) = self.float_pair("lerp", end)?;
        let (x, weight) = x.float_pair("lerp", weight)?;
        let dtype = x.dtype();
        let [x, end, weight] = [x, end, weight].map(|operand| operand.cast(wide(dtype)));
        let x = x?;
        x.add(&end?.sub(&x)?.mul(&weight?)?)?.cast(dtype)
    }

    /// Returns whether `|x - y| <= atol + rtol * |y|`, as bool: for finite x and y; infinities are
    /// close to equal ones, NaN to NaN if `equal_nan`. tinygrad's `rtol` is 1e-5, its `atol` 1e-8.
    /// f16 and bf16 are compared in f32. Floats, promoted and broadcast.
    /// # Errors
    /// If a dtype is not a float, or shapes do not broadcast.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[3], &[1f32, 1.1, f32::NAN])?;
    /// let y = Tensor::from_slice(&[3], &[1.000001f32, 1.0, f32::NAN])?;
    /// assert_eq!(x.isclose(&y, 1e-5, 1e-8, false)?.to_text()?, "[true, false, false]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn isclose(
        &self,
        reference: impl Into<Operand>,
        rtol: impl Into<Scalar>,
        atol: impl Into<Scalar>,
        equal_nan: bool,
    ) -> Result<Tensor, Error> {
        let (x, y) = self.float_pair("isclose", reference)?;
        let dtype = wide(x.dtype());
        let (x, y) = (x.cast(dtype)?, y.cast(dtype)?);
        let limit = y.abs()?.mul(rtol.into())?.add(atol.into())?;
        let distance = x.sub(&y)?.abs()?;
        let is_near = distance.cmplt(&limit)?.or(&distance.cmpeq(&limit)?)?;
        let is_finite = x.isfinite()?.and(&y.isfinite()?)?;
        let is_infinite = x.isinf()?.and(&x.cmpeq(&y)?)?;
        let is_close = is_finite.and(&is_near)?.or(&is_infinite)?;
        match equal_nan {
            true => is_close.or(&x.isnan()?.and(&y.isnan()?)?),
            false => Ok(is_close),
        }
    }

    /// Reads whether all elements are close, as [`isclose`](Tensor::isclose) says; true of none.
    /// # Errors
    /// Those of [`isclose`](Tensor::isclose), and if the elements cannot be computed.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::new([1f32, 2.0])?;
    /// assert!(x.allclose(&Tensor::new([1.000001f32, 2.0])?, 1e-5, 1e-8, false)?);
    /// assert!(!x.allclose(x.add(0.1)?, 1e-5, 1e-8, false)?);
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn allclose(
        &self,
        reference: impl Into<Operand>,
        rtol: impl Into<Scalar>,
        atol: impl Into<Scalar>,
        equal_nan: bool,
    ) -> Result<bool, Error> {
        self.isclose(reference, rtol, atol, equal_nan)?.all(..)?.item()
    }

    /// Promotes two operands of floats. Each keeps its shape.
    /// # Errors
    /// If a dtype is not a float.
    pub(crate) fn float_pair(
        &self,
        name: &str,
        second: impl Into<Operand>,
    ) -> Result<(Tensor, Tensor), Error> {
        let second = match second.into() {
            Operand::Tensor(tensor) => tensor,
            Operand::Scalar(scalar) => Tensor::full(self.dtype(), &[], scalar)?,
        };
        let (x, y) = (self.dtype(), second.dtype());
        if !x.is_float() || !y.is_float() {
            return invalid(format!("{name} of {x} and {y}: it takes floats; cast the tensors"));
        }
        let dtype = promote(x, y);
        Ok((self.cast(dtype)?, second.cast(dtype)?))
    }

    /// The magnitude of `self` with the sign of `sign`, two floats of the same dtype.
    pub(crate) fn with_sign_of(&self, sign: &Tensor) -> Result<Tensor, Error> {
        let Layout { word, magnitude, .. } = Layout::of(self.dtype());
        let sign = sign.bitcast(word)?.and(i128::from(magnitude + 1))?;
        self.magnitude_bits()?.or(&sign)?.bitcast(self.dtype())
    }

    /// The bits of a float without its sign, as unsigned integers.
    fn magnitude_bits(&self) -> Result<Tensor, Error> {
        let Layout { word, magnitude, .. } = Layout::of(self.dtype());
        self.bitcast(word)?.and(i128::from(magnitude))
    }

    /// Classifies floats by their bits without sign and those of infinity; `integers` is the result
    /// for other dtypes.
    fn by_class(
        &self,
        integers: bool,
        class: impl Fn(&Tensor, &Tensor) -> Result<Tensor, Error>,
    ) -> Result<Tensor, Error> {
        if !self.dtype().is_float() {
            return Tensor::full(DType::Bool, self.shape(), integers);
        }
        let Layout { word, infinity, .. } = Layout::of(self.dtype());
        class(&self.magnitude_bits()?, &Tensor::full(word, &[], i128::from(infinity))?)
    }

    /// Rounds floats to integers: `f` of x and the truncated x. 16-bit floats are rounded in f32.
    fn to_whole(
        &self,
        name: &str,
        f: impl Fn(&Tensor, &Tensor) -> Result<Tensor, Error>,
    ) -> Result<Tensor, Error> {
        check_number(name, self)?;
        if !self.dtype().is_float() {
            return Ok(self.unchanged());
        }
        self.compute_in_f32(name, |x| {
            let Layout { int, whole, .. } = Layout::of(x.dtype());
            // Numbers that no integer can hold have no fraction; their casts are not used.
            let truncated = x.cast(int)?.cast(x.dtype())?.with_sign_of(x)?;
            Ok(f(x, &x.abs()?.cmplt(whole)?.where_(&truncated, x)?)?.detach())
        })
    }
}

/// Refuses bool.
fn check_number(name: &str, x: &Tensor) -> Result<(), Error> {
    match x.dtype() {
        DType::Bool => {
            invalid(format!("{name} of bool: it takes integers and floats; cast the tensor"))
        }
        _ => Ok(()),
    }
}

/// The dtype in which functions of floats are computed.
pub(crate) fn wide(dtype: DType) -> DType {
    if dtype == DType::F64 { DType::F64 } else { DType::F32 }
}
