//! The remainder of floats, which is exact: the product of the dividend's fraction and a power of
//! two, modulo the divisor's fraction, in integers.

use gradiff_graph::DType;

use crate::methods::elementwise::wide;
use crate::{Error, Operand, Tensor};

/// The bits of f32 or f64.
struct Layout {
    word: DType,
    mantissa: u32,
    bias: i64,
    /// Bits of the difference of two exponents.
    shift_bits: u32,
}

/// A magnitude as an integer and an exponent: `fraction * 2^(exponent - bias - mantissa)`.
struct Parts {
    /// u64.
    fraction: Tensor,
    /// i32, at least 1.
    exponent: Tensor,
}

impl Layout {
    fn of(dtype: DType) -> Layout {
        let mantissa = dtype.mantissa_bits();
        let shift_bits = dtype.bits() - 1 - mantissa;
        Layout { word: dtype.unsigned(), mantissa, bias: dtype.exponent_bias(), shift_bits }
    }

    fn parts(&self, size: &Tensor) -> Result<Parts, Error> {
        let hidden = 1u64 << self.mantissa;
        let bits = size.bitcast(self.word)?.cast(DType::U64)?;
        let exponent = bits.shr(i64::from(self.mantissa))?;
        let fraction = bits.and(i128::from(hidden - 1))?;
        let hidden = Tensor::full(DType::U64, &[], i128::from(hidden))?;
        let fraction = exponent.cmpeq(0)?.where_(&fraction, &fraction.add(&hidden)?)?;
        Ok(Parts { fraction, exponent: exponent.maximum(1)?.cast(DType::I32)? })
    }

    /// `a * b mod modulus` of u64 below 2^53, or below 2^24 for f32.
    fn multiply(&self, a: &Tensor, b: &Tensor, modulus: &Tensor) -> Result<Tensor, Error> {
        if self.mantissa < 32 {
            return a.mul(b)?.cmod(modulus);
        }
        // Ten bits of b at a time, so that no sum exceeds 64 bits.
        let mut sum = Tensor::full(DType::U64, &[], 0)?;
        for chunk in (0..6).rev() {
            let digits = b.shr(10 * chunk)?.and(1023)?;
            sum = sum.shl(10)?.add(&a.mul(&digits)?)?.cmod(modulus)?;
        }
        Ok(sum)
    }

    /// `2^exponent` of a normal number.
    fn power(&self, exponent: &Tensor, dtype: DType) -> Result<Tensor, Error> {
        exponent.add(self.bias)?.cast(self.word)?.shl(i64::from(self.mantissa))?.bitcast(dtype)
    }
}

impl Tensor {
    /// Remainder of `x / y` with the sign of x, `x - trunc(x / y) * y` without any rounding, as C's
    /// fmod; x where y is infinite, NaN where x is infinite or y is 0. f16 and bf16 are computed in
    /// f32. Floats, promoted and broadcast.
    /// # Errors
    /// If a dtype is not a float, or shapes do not broadcast.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[3], &[5.5f32, -5.5, 1e30])?;
    /// assert_eq!(x.fmod(2)?.to_text()?, "[1.5, -1.5, 0.0]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn fmod(&self, divisor: impl Into<Operand>) -> Result<Tensor, Error> {
        let (x, y) = self.float_pair("fmod", divisor)?;
        let dtype = x.dtype();
        let (x, y) = (x.cast(wide(dtype))?, y.cast(wide(dtype))?);
        let (x_size, y_size) = (x.abs()?, y.abs()?);
        let rest = remainder(&x_size, &y_size)?;
        let rest = x_size.cmplt(&y_size)?.where_(&x_size, &rest)?.with_sign_of(&x)?;
        let is_valid = x.isfinite()?.and(&y.isnan()?.or(&y_size.cmpeq(0)?)?.not()?)?;
        let nan = Tensor::full(x.dtype(), &[], f64::NAN)?;
        is_valid.where_(&rest, &nan)?.as_elementwise_function("fmod", [&x, &y]).cast(dtype)
    }
}

/// The remainder of finite magnitudes, f32 or f64, of which the first one is not the smaller.
fn remainder(x: &Tensor, y: &Tensor) -> Result<Tensor, Error> {
    let layout = Layout::of(x.dtype());
    let (x_parts, y_parts) = (layout.parts(x)?, layout.parts(y)?);
    let modulus = y_parts.fraction.maximum(1)?;
    let shift = x_parts.exponent.sub(&y_parts.exponent)?.maximum(0)?;
    // 2^shift modulo the divisor: squared for each bit of the shift, doubled where it is set.
    let mut power = Tensor::full(DType::U64, &[], 1)?.cmod(&modulus)?;
    for bit in (0..layout.shift_bits).rev() {
        let is_set = shift.shr(i64::from(bit))?.and(1)?.cast(DType::Bool)?;
        let square = layout.multiply(&power, &power, &modulus)?;
        power = is_set.where_(&square.shl(1)?.cmod(&modulus)?, &square)?;
    }
    let fraction = x_parts.fraction.cmod(&modulus)?;
    let rest = layout.multiply(&power, &fraction, &modulus)?.cast(x.dtype())?;
    // The power of two in two factors, neither of which is subnormal.
    let exponent = y_parts.exponent.sub(layout.bias + i64::from(layout.mantissa))?;
    let half = exponent.shr(1)?;
    let factors =
        [layout.power(&half, x.dtype())?, layout.power(&exponent.sub(&half)?, x.dtype())?];
    rest.mul(&factors[0])?.mul(&factors[1])
}
