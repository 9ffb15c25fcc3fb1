//! Methods that create tensors from numbers.

use gradiff_graph::DType;

use crate::error::invalid;
use crate::methods::movement::zero;
use crate::tensor::MAX_ELEMENTS;
use crate::{Error, Scalar, Tensor};

impl Tensor {
    /// Creates a tensor of `count` equidistant numbers: element `i` is
    /// `((count - 1 - i) * start + i * stop) / (count - 1)`, the first and the last are `start` and
    /// `stop` rounded to the dtype. The error is at most 4 roundings of `|start|` and the distance
    /// from it together; in the second half, of the larger of that and the same of `stop`. f16 and
    /// bf16 are computed in f32. Floats.
    /// # Errors
    /// If the dtype is not a float, an end or their difference is not finite in it, or the count is
    /// negative or too large.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// # use gradiff_graph::DType;
    /// let x = Tensor::linspace(DType::F32, 0, 1, 5)?;
    /// assert_eq!(x.to_text()?, "[0.0, 0.25, 0.5, 0.75, 1.0]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn linspace(
        dtype: DType,
        start: impl Into<Scalar>,
        stop: impl Into<Scalar>,
        count: i64,
    ) -> Result<Tensor, Error> {
        check_float("linspace", dtype)?;
        let (start, stop) = (start.into(), stop.into());
        let end = |scalar: Scalar| scalar.element(dtype).map(|end| end.to_float());
        let (Some(a), Some(b)) = (end(start)?, end(stop)?) else {
            return invalid(format!("linspace of {dtype} from {start:?} to {stop:?}"));
        };
        let distance = b - a;
        if !(a.is_finite() && b.is_finite() && distance.abs() <= largest(dtype)) {
            return invalid(format!(
                "linspace of {dtype} from {a} to {b}: the ends and their difference must be finite"
            ));
        }
        let wide = dtype.accumulator();
        if count < 2 {
            return Tensor::full(dtype, &[count], start);
        }
        let last = count - 1;
        let multiples = |positions: &Tensor| multiples(positions, wide, distance, last as f64);
        // From both ends to the middle, so that the ends are exact.
        let from_start = Tensor::arange(DType::I64, 0, 1, count)?;
        let from_stop = Tensor::arange(DType::I64, last, -1, count)?;
        let is_first_half = from_start.cmplt(&from_stop)?;
        let first = multiples(&from_start)?.add(a)?;
        let second = Tensor::full(wide, &[], b)?.sub(multiples(&from_stop)?)?;
        is_first_half.where_(&first, &second)?.cast(dtype)
    }

    /// Creates a tensor of the numbers `start + i * step` for i in
    /// `0..ceil((stop - start) / step)`, which is computed in f64; none if that is negative. The
    /// error is at most 4 roundings of `|start| + |i * step|`; f16 and bf16 are computed in f32.
    /// Floats; for integers see [`arange`](Tensor::arange).
    /// # Errors
    /// If the dtype is not a float, a number is not finite, the step is 0, the numbers are too
    /// large for the dtype or too many.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// # use gradiff_graph::DType;
    /// let x = Tensor::arange_float(DType::F32, 1.0, 0.0, -0.25)?;
    /// assert_eq!(x.to_text()?, "[1.0, 0.75, 0.5, 0.25]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn arange_float(
        dtype: DType,
        start: impl Into<Scalar>,
        stop: impl Into<Scalar>,
        step: impl Into<Scalar>,
    ) -> Result<Tensor, Error> {
        check_float("arange_float", dtype)?;
        let number = |scalar: Scalar| match scalar {
            Scalar::Int(value) => Ok(value as f64),
            Scalar::Float(value) if value.is_finite() => Ok(value),
            scalar => invalid(format!("arange_float with {scalar:?}: it takes finite numbers")),
        };
        let (start, stop) = (number(start.into())?, number(stop.into())?);
        let step = number(step.into())?;
        let count = ((stop - start) / step).ceil().max(0.0);
        let is_finite = start.abs() + count * step.abs() <= largest(dtype);
        if step == 0.0 || !is_finite || MAX_ELEMENTS as f64 <= count {
            return invalid(format!(
                "arange_float of {dtype} from {start} to {stop} by {step}: the step must not be 0, \
                 and the numbers must be finite and fewer than {MAX_ELEMENTS}"
            ));
        }
        let wide = dtype.accumulator();
        let position = Tensor::arange(DType::I64, 0, 1, count as i64)?;
        multiples(&position, wide, step, 1.0)?.add(start)?.cast(dtype)
    }

    /// Creates a matrix of ones on the main diagonal, and zeros; true and false for bool.
    /// # Errors
    /// If a size is negative or too large.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// # use gradiff_graph::DType;
    /// assert_eq!(Tensor::eye(DType::I32, 2, 2)?.to_text()?, "[[1, 0], [0, 1]]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn eye(dtype: DType, rows: i64, columns: i64) -> Result<Tensor, Error> {
        let row = Tensor::arange(DType::I64, 0, 1, rows)?.reshape(&[rows, 1])?;
        row.cmpeq(&Tensor::arange(DType::I64, 0, 1, columns)?)?.cast(dtype)
    }

    /// Creates a matrix of ones where the column is at most `row + diagonal`, and zeros; true and
    /// false for bool.
    /// # Errors
    /// If a size is negative or too large.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// # use gradiff_graph::DType;
    /// assert_eq!(Tensor::tri(DType::I32, 2, 3, 0)?.to_text()?, "[[1, 0, 0], [1, 1, 0]]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn tri(dtype: DType, rows: i64, columns: i64, diagonal: i64) -> Result<Tensor, Error> {
        Tensor::full(DType::Bool, &[rows, columns], true)?.tril(diagonal)?.cast(dtype)
    }

    /// Creates a tensor with the dtype and the shape of `self` whose elements are all `value`.
    /// # Errors
    /// If the dtype cannot represent the value.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[2], &[1, 2])?;
    /// assert_eq!(x.full_like(7)?.to_text()?, "[7, 7]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn full_like(&self, value: impl Into<Scalar>) -> Result<Tensor, Error> {
        Tensor::full(self.dtype(), self.shape(), value)
    }

    /// Creates a tensor of zeros with the dtype and the shape of `self`; false for bool.
    /// # Errors
    /// None for a tensor that exists.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[2], &[true, true])?;
    /// assert_eq!(x.zeros_like()?.to_text()?, "[false, false]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn zeros_like(&self) -> Result<Tensor, Error> {
        self.full_like(zero(self.dtype()))
    }

    /// Creates a tensor of ones with the dtype and the shape of `self`; true for bool.
    /// # Errors
    /// None for a tensor that exists.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[2], &[1.5f32, 2.0])?;
    /// assert_eq!(x.ones_like()?.to_text()?, "[1.0, 1.0]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn ones_like(&self) -> Result<Tensor, Error> {
        Tensor::ones(self.dtype(), self.shape())
    }
}

fn check_float(name: &str, dtype: DType) -> Result<(), Error> {
    match dtype.is_float() {
        true => Ok(()),
        false => invalid(format!("{name} of {dtype}: it makes floats; cast the result")),
    }
}

/// The products of positions and `distance / parts` in a dtype, f32 or f64.
fn multiples(positions: &Tensor, dtype: DType, distance: f64, parts: f64) -> Result<Tensor, Error> {
    let positions = positions.cast(dtype)?;
    let step = distance / parts;
    let least = if dtype == DType::F32 { f64::from(f32::MIN_POSITIVE) } else { f64::MIN_POSITIVE };
    if least <= step.abs() {
        return positions.mul(step);
    }
    // A subnormal step has few digits.
    positions.mul(distance * TINY_SCALE / parts)?.mul(1.0 / TINY_SCALE)
}

/// The power of two by which subnormal steps are scaled.
const TINY_SCALE: f64 = (1u128 << 100) as f64;

/// The largest finite number of a float dtype.
fn largest(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 65504.0,
        DType::BF16 => f64::from(f32::from_bits(0x7f7f_0000)),
        DType::F32 => f64::from(f32::MAX),
        _ => f64::MAX,
    }
}
