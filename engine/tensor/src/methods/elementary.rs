//! Elementary functions and the error function. Near zero they are polynomials, so that no digits
//! cancel; f16 and bf16 are computed in f32. Polynomials interpolate at the zeros of Chebyshev
//! polynomials; their errors are below 2^-26 for f32 and 2^-54 for f64, coefficients included.

use std::f64::consts::{E, FRAC_PI_2, FRAC_PI_4, LN_2, LOG10_2, PI};

use gradiff_graph::DType;

use crate::methods::elementwise::wide;
use crate::{Error, Operand, Tensor};

/// The coefficients of a polynomial, that of the lowest power first, for f32 and f64.
struct Polynomial {
    f32: &'static [f64],
    f64: &'static [f64],
}

/// `(e^x - 1 - x) / x^2` for x from -1 to 1.
const EXP_TAIL: Polynomial = Polynomial {
    f32: &[
        0.5,
        0.16666667,
        0.041666735,
        0.008333339,
        0.0013885397,
        0.00019838102,
        2.5358513e-05,
        2.8062802e-06,
    ],
    f64: &[
        0.5,
        0.16666666666666666,
        0.04166666666666609,
        0.008333333333333299,
        0.0013888888888981404,
        0.00019841269841324198,
        2.4801587246096818e-05,
        2.7557319191381816e-06,
        2.755733506893373e-07,
        2.5052117695907823e-08,
        2.0874435575864273e-09,
        1.6057679623801638e-10,
        1.1639194124150522e-11,
        7.746178593018827e-13,
    ],
};

/// `(atanh(s) - s) / s^3` over s^2, for s up to 1/3.
const ATANH_TAIL: Polynomial = Polynomial {
    f32: &[0.33333334, 0.19999853, 0.1429618, 0.10853282, 0.11612191],
    f64: &[
        0.3333333333333333,
        0.20000000000007292,
        0.14285714283554213,
        0.11111111358730753,
        0.09090894717220357,
        0.07692785056232217,
        0.06657071715247105,
        0.06000540111147463,
        0.04400350306897977,
        0.08082062969887838,
    ],
};

/// `(sinh(x) - x) / x^3` over x^2, for x up to 1.
const SINH_TAIL: Polynomial = Polynomial {
    f32: &[0.16666667, 0.008333339, 0.00019838102, 2.8062802e-06],
    f64: &[
        0.16666666666666666,
        0.008333333333333299,
        0.00019841269841324198,
        2.7557319191381816e-06,
        2.5052117695907823e-08,
        1.6057679623801638e-10,
        7.746178593018827e-13,
    ],
};

/// `(asin(x) - x) / x^3` over x^2, for x up to 1/2.
const ASIN_TAIL: Polynomial = Polynomial {
    f32: &[0.16666666, 0.07500094, 0.0445994, 0.031100674, 0.017149184, 0.033690944],
    f64: &[
        0.16666666666666669,
        0.07499999999998433,
        0.04464285714635561,
        0.030381944138516817,
        0.02237217294274726,
        0.017352392706346254,
        0.013971213196475301,
        0.011479175171049853,
        0.010322829371691055,
        0.005457440499079528,
        0.017401064081047784,
        -0.014852182118030889,
        0.02875805719743414,
    ],
};

/// `(atan(x) - x) / x^3` over x^2, for x up to tan(pi/8).
const ATAN_TAIL: Polynomial = Polynomial {
    f32: &[-0.3333333, 0.19999531, -0.14263614, 0.10740044, -0.06439742],
    f64: &[
        -0.3333333333333333,
        0.19999999999995274,
        -0.14285714284615253,
        0.11111111011143023,
        -0.09090904411480122,
        0.07692179330787255,
        -0.06664457233689582,
        0.05857679331644629,
        -0.050829995883065304,
        0.03916108054158341,
        -0.019090703704012432,
    ],
};

/// `erf(x)/x - 1` over x^2, for x up to 1.
const ERF_NEAR: Polynomial = Polynomial {
    f32: &[
        0.12837917,
        -0.37612626,
        0.11283594,
        -0.026854211,
        0.0051890872,
        -0.00080168643,
        7.875875e-05,
    ],
    f64: &[
        0.12837916709551256,
        -0.37612638903183543,
        0.11283791670945006,
        -0.02686617064323777,
        0.0052239776071164225,
        -0.0008548325975389692,
        0.00012055294904839707,
        -1.492473690741966e-05,
        1.6447424703317362e-06,
        -1.6208483801871705e-07,
        1.3720064546777686e-08,
        -7.795898827002142e-10,
    ],
};

/// `(1 - erf(x)) * e^(x^2)` over `2 / (2 + x)`, for x from 1 to 6.
const ERF_FAR: Polynomial = Polynomial {
    f32: &[
        -9.565333e-05,
        0.2840149,
        0.26551294,
        0.3270617,
        -0.05984438,
        0.50851583,
        -0.43358657,
        0.10839819,
    ],
    f64: &[
        1.6242284740077591e-07,
        0.2820885729320229,
        0.2822051417376623,
        0.24562975816641905,
        0.185316412975862,
        0.03477897668837144,
        0.19483233899524952,
        -0.6720587822190289,
        1.3907243547276613,
        -2.548579515162772,
        3.3141789939074116,
        -2.808469620081249,
        1.4993273861992589,
        -0.4641503100512702,
        0.06417709956997757,
    ],
};

impl Polynomial {
    /// The value at `x`, which is f32 or f64, by Horner's rule.
    fn at(&self, x: &Tensor) -> Result<Tensor, Error> {
        let coefficients = if x.dtype() == DType::F64 { self.f64 } else { self.f32 };
        let (last, others) = coefficients.split_last().expect("there are coefficients");
        let mut sum = Tensor::full(x.dtype(), &[], *last)?;
        for coefficient in others.iter().rev() {
            sum = sum.mul(x)?.add(*coefficient)?;
        }
        Ok(sum)
    }

    /// `x + x^3 * self(x^2)`: an odd function of slope 1 at 0.
    fn odd(&self, x: &Tensor) -> Result<Tensor, Error> {
        let square = x.mul(x)?;
        x.add(&x.mul(&square.mul(&self.at(&square)?)?)?)
    }
}

impl Tensor {
    /// Logarithm to base 10, within 3 ulps; f16 and bf16 are computed in f32. -inf for zeros, NaN
    /// below. Floats.
    /// # Errors
    /// If the dtype is not a float.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[2], &[0f32, 1.0])?;
    /// assert_eq!(x.log10()?.to_text()?, "[-inf, 0.0]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn log10(&self) -> Result<Tensor, Error> {
        self.compute_in_f32("log10", |x| x.log2()?.mul(LOG10_2))
    }

    /// `1 / sqrt(x)`, both rounded; f16 and bf16 are computed in f32. An infinity with the sign of
    /// a zero, NaN below. Floats.
    /// # Errors
    /// If the dtype is not a float.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[3], &[4f32, 0.0, -0.0])?;
    /// assert_eq!(x.rsqrt()?.to_text()?, "[0.5, inf, -inf]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn rsqrt(&self) -> Result<Tensor, Error> {
        self.compute_in_f32("rsqrt", |x| x.sqrt()?.recip())
    }

    /// Cosine of x in radians, within 6 ulps of 1; f16 and bf16 are computed in f32. NaN for
    /// infinities. Floats.
    /// # Errors
    /// If the dtype is not a float.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[2], &[0.0, f32::INFINITY])?;
    /// assert_eq!(x.cos()?.to_text()?, "[1.0, NaN]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn cos(&self) -> Result<Tensor, Error> {
        self.compute_in_f32("cos", |x| {
            // Half of x is exact, so large x lose nothing, as they do in pi/2 - x.
            let half = x.mul(0.5)?.sin()?;
            half.mul(&half)?.mul(-2)?.add(1)
        })
    }

    /// Tangent of x in radians, the quotient of [`sin`](Tensor::sin) and [`cos`](Tensor::cos); f16
    /// and bf16 are computed in f32. NaN for infinities. Floats.
    /// # Errors
    /// If the dtype is not a float.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[2], &[0.0, f32::INFINITY])?;
    /// assert_eq!(x.tan()?.to_text()?, "[0.0, NaN]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn tan(&self) -> Result<Tensor, Error> {
        self.compute_in_f32("tan", |x| x.sin()?.div(&x.cos()?))
    }

    /// Hyperbolic sine, within 4 ulps; f16 and bf16 are computed in f32. Floats.
    /// # Errors
    /// If the dtype is not a float.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[3], &[-0.0, 1e-30f32, 1e4])?;
    /// assert_eq!(x.sinh()?.to_text()?, "[-0.0, 1e-30, inf]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn sinh(&self) -> Result<Tensor, Error> {
        self.compute_in_f32("sinh", |x| {
            let size = x.abs()?;
            let (half_power, half_inverse) = size.half_powers()?;
            let far = half_power.sub(&half_inverse)?.with_sign_of(x)?;
            size.cmplt(1)?.where_(&SINH_TAIL.odd(x)?, &far)
        })
    }

    /// Hyperbolic cosine, within 4 ulps; f16 and bf16 are computed in f32. Floats.
    /// # Errors
    /// If the dtype is not a float.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[2], &[0f32, -1e4])?;
    /// assert_eq!(x.cosh()?.to_text()?, "[1.0, inf]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn cosh(&self) -> Result<Tensor, Error> {
        self.compute_in_f32("cosh", |x| {
            let (half_power, half_inverse) = x.abs()?.half_powers()?;
            half_power.add(&half_inverse)
        })
    }

    /// `e^x / 2`, which overflows only where the half does, and `e^-x / 2`, of numbers that are not
    /// negative. The second is too small above 80, where it does not change the sum of both.
    fn half_powers(&self) -> Result<(Tensor, Tensor), Error> {
        let is_large = Tensor::full(self.dtype(), &[], 80)?.cmplt(self)?;
        let power = is_large.where_(&self.sub(1)?, self)?.exp()?;
        let scale = Tensor::full(self.dtype(), &[], E / 2.0)?;
        let half = Tensor::full(self.dtype(), &[], 0.5)?;
        Ok((power.mul(&is_large.where_(&scale, &half)?)?, half.div(&power)?))
    }

    /// Hyperbolic tangent, within 4 ulps; f16 and bf16 are computed in f32. Floats.
    /// # Errors
    /// If the dtype is not a float.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[3], &[-0.0, 1e-30f32, -1e4])?;
    /// assert_eq!(x.tanh()?.to_text()?, "[-0.0, 1e-30, -1.0]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn tanh(&self) -> Result<Tensor, Error> {
        self.compute_in_f32("tanh", |x| {
            let less_one = x.abs()?.mul(-2)?.power_less_one()?;
            less_one.div(&less_one.add(2)?)?.with_sign_of(x)
        })
    }

    /// `e^x - 1` within 3 ulps, of f32 or f64.
    pub(crate) fn power_less_one(&self) -> Result<Tensor, Error> {
        let near = self.add(&self.mul(self)?.mul(&EXP_TAIL.at(self)?)?)?;
        self.abs()?.cmplt(1)?.where_(&near, &self.exp()?.sub(1)?)
    }

    /// `log(1 + x)` for x from 0 to 1, of f32 or f64.
    pub(crate) fn log_of_one_and(&self) -> Result<Tensor, Error> {
        // log((1 + s)/(1 - s)) = 2 atanh(s).
        ATANH_TAIL.odd(&self.div(&self.add(2)?)?)?.mul(2)
    }

    /// Inverse of [`sinh`](Tensor::sinh), within 5 ulps; f16 and bf16 are computed in f32. Floats.
    /// # Errors
    /// If the dtype is not a float.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[2], &[-0.0, 1e-30f32])?;
    /// assert_eq!(x.asinh()?.to_text()?, "[-0.0, 1e-30]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn asinh(&self) -> Result<Tensor, Error> {
        self.compute_in_f32("asinh", |x| {
            // x + sqrt(x^2 + 1) - 1, without a difference.
            let size = x.abs()?;
            let square = size.mul(&size)?;
            let rest = square.div(&square.add(1)?.sqrt()?.add(1)?)?;
            size.inverse_hyperbolic(&size.add(&rest)?)?.with_sign_of(x)
        })
    }

    /// Inverse of [`cosh`](Tensor::cosh) that is not negative, within 5 ulps; f16 and bf16 are
    /// computed in f32. NaN below 1. Floats.
    /// # Errors
    /// If the dtype is not a float.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[2], &[1f32, 0.5])?;
    /// assert_eq!(x.acosh()?.to_text()?, "[0.0, NaN]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn acosh(&self) -> Result<Tensor, Error> {
        self.compute_in_f32("acosh", |x| {
            // x + sqrt(x^2 - 1) - 1, without a difference but the exact one of x and 1.
            let above = x.sub(1)?;
            let root = above.mul(&above.add(2)?)?.sqrt()?;
            let nan = Tensor::full(x.dtype(), &[], f64::NAN)?;
            x.cmplt(1)?.where_(&nan, &x.inverse_hyperbolic(&above.add(&root)?)?)
        })
    }

    /// `log(1 + rest)` for a rest that is not negative; where x is so large that the logarithm is
    /// that of 2x and the rest may overflow, `log(x) + log(2)`.
    fn inverse_hyperbolic(&self, rest: &Tensor) -> Result<Tensor, Error> {
        let limit = if self.dtype() == DType::F64 { 1u64 << 28 } else { 1 << 13 };
        let is_large = Tensor::full(self.dtype(), &[], limit)?.cmplt(self)?;
        let zero = Tensor::full(self.dtype(), &[], 0)?;
        let far = is_large.where_(self, &rest.add(1)?)?.log()?;
        let far = far.add(&is_large.where_(LN_2, &zero)?)?;
        rest.cmplt(1)?.where_(&rest.log_of_one_and()?, &far)
    }

    /// Inverse of [`tanh`](Tensor::tanh), within 5 ulps; f16 and bf16 are computed in f32.
    /// Infinities for -1 and 1, NaN beyond. Floats.
    /// # Errors
    /// If the dtype is not a float.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[3], &[-1.0, 1e-30f32, 2.0])?;
    /// assert_eq!(x.atanh()?.to_text()?, "[-inf, 1e-30, NaN]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn atanh(&self) -> Result<Tensor, Error> {
        self.compute_in_f32("atanh", |x| {
            let size = x.abs()?;
            let ratio = size.add(1)?.div(&size.neg()?.add(1)?)?;
            let far = ratio.log()?.mul(0.5)?.with_sign_of(x)?;
            size.cmplt(1.0 / 3.0)?.where_(&ATANH_TAIL.odd(x)?, &far)
        })
    }

    /// Inverse of the sine from -pi/2 to pi/2, within 4 ulps; f16 and bf16 are computed in f32. NaN
    /// beyond -1 and 1. Floats.
    /// # Errors
    /// If the dtype is not a float.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[3], &[-0.0, 1e-30f32, 2.0])?;
    /// assert_eq!(x.asin()?.to_text()?, "[-0.0, 1e-30, NaN]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn asin(&self) -> Result<Tensor, Error> {
        self.compute_in_f32("asin", |x| {
            let far = x.twice_asin_of_half()?.mul(-1)?.add(FRAC_PI_2)?.with_sign_of(x)?;
            x.abs()?.cmplt(0.5)?.where_(&ASIN_TAIL.odd(x)?, &far)
        })
    }

    /// Inverse of the cosine from 0 to pi, within 4 ulps; f16 and bf16 are computed in f32. NaN
    /// beyond -1 and 1. Floats.
    /// # Errors
    /// If the dtype is not a float.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[2], &[1f32, 2.0])?;
    /// assert_eq!(x.acos()?.to_text()?, "[0.0, NaN]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn acos(&self) -> Result<Tensor, Error> {
        self.compute_in_f32("acos", |x| {
            let near = ASIN_TAIL.odd(x)?.mul(-1)?.add(FRAC_PI_2)?;
            let far = x.twice_asin_of_half()?;
            let far = x.cmplt(0)?.where_(&far.mul(-1)?.add(PI)?, &far)?;
            x.abs()?.cmplt(0.5)?.where_(&near, &far)
        })
    }

    /// `2 * asin(sqrt((1 - |x|) / 2))`, the inverse of the cosine of magnitudes from 1/2 to 1.
    fn twice_asin_of_half(&self) -> Result<Tensor, Error> {
        let rest = self.abs()?.neg()?.add(1)?;
        ASIN_TAIL.odd(&rest.mul(0.5)?.sqrt()?)?.mul(2)
    }

    /// Inverse of the tangent from -pi/2 to pi/2, within 4 ulps; f16 and bf16 are computed in f32.
    /// Floats.
    /// # Errors
    /// If the dtype is not a float.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[2], &[-0.0, 1e-30f32])?;
    /// assert_eq!(x.atan()?.to_text()?, "[-0.0, 1e-30]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn atan(&self) -> Result<Tensor, Error> {
        self.compute_in_f32("atan", |x| {
            // atan(x) = pi/4 + atan((x - 1)/(x + 1)) = pi/2 - atan(1/x).
            let size = x.abs()?;
            let [zero, one] = [0, 1].map(|number| Tensor::full(x.dtype(), &[], number));
            let (zero, one) = (zero?, one?);
            let root = std::f64::consts::SQRT_2;
            let is_middle = Tensor::full(x.dtype(), &[], root - 1.0)?.cmplt(&size)?;
            let is_far = Tensor::full(x.dtype(), &[], root + 1.0)?.cmplt(&size)?;
            let over = is_middle.where_(&size.sub(1)?, &size)?;
            let over = is_far.where_(-1, &over)?;
            let under = is_middle.where_(&size.add(1)?, &one)?;
            let under = is_far.where_(&size, &under)?;
            let start = is_middle.where_(FRAC_PI_4, &zero)?;
            let start = is_far.where_(FRAC_PI_2, &start)?;
            start.add(&ATAN_TAIL.odd(&over.div(&under)?)?)?.with_sign_of(x)
        })
    }

    /// Error function, `2/sqrt(pi)` times the integral of `e^(-t^2)` from 0 to x, within 4 ulps;
    /// f16 and bf16 are computed in f32. Floats.
    /// # Errors
    /// If the dtype is not a float.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[3], &[-0.0, 10f32, -1e30])?;
    /// assert_eq!(x.erf()?.to_text()?, "[-0.0, 1.0, -1.0]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn erf(&self) -> Result<Tensor, Error> {
        self.compute_in_f32("erf", |x| {
            let square = x.mul(x)?;
            let near = x.add(&x.mul(&ERF_NEAR.at(&square)?)?)?;
            let size = x.abs()?;
            let argument = size.add(2)?.recip()?.mul(2)?;
            let rest = square.neg()?.exp()?.mul(&ERF_FAR.at(&argument)?)?;
            let far = rest.mul(-1)?.add(1)?.with_sign_of(x)?;
            size.cmplt(1)?.where_(&near, &far)
        })
    }

    /// `log(e^x + e^y)`, within 4 ulps of the largest of its magnitude, those of x and y, and 1;
    /// f16 and bf16 are computed in f32. Floats, promoted and broadcast.
    /// # Errors
    /// If a dtype is not a float, or shapes do not broadcast.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[2], &[1e4f32, f32::NEG_INFINITY])?;
    /// assert_eq!(x.logaddexp(f32::NEG_INFINITY)?.to_text()?, "[10000.0, -inf]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn logaddexp(&self, other: impl Into<Operand>) -> Result<Tensor, Error> {
        let (x, y) = self.float_pair("logaddexp", other)?;
        let dtype = x.dtype();
        let (x, y) = (x.cast(wide(dtype))?, y.cast(wide(dtype))?);
        let larger = x.maximum(&y)?;
        let rest = x.sub(&y)?.abs()?.neg()?.exp()?.log_of_one_and()?;
        // The difference of equal infinities is NaN.
        let rest = x.cmpeq(&y)?.where_(LN_2, &rest)?;
        let value = larger.add(&rest)?;
        value.as_elementwise_function("logaddexp", [&x, &y]).cast(dtype)
    }
}
