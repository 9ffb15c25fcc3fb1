//! Axes as arguments: numbers that may be negative, lists of them, all axes; removed or kept.

use crate::Error;
use crate::error::invalid;

/// The axes that a method reduces. A negative number counts from the last axis, which is -1.
///
/// Made from a number, an array or slice of numbers, or `..` for all axes. The axes are removed
/// from the result; with [`keepdim`] they stay, with size 1.
///
/// ```
/// # use gradiff_tensor::{Tensor, keepdim};
/// let x = Tensor::from_slice(&[2, 3], &[3, 1, 2, 6, 5, 4])?;
/// assert_eq!(x.min(-1)?.shape(), [2]);
/// assert_eq!(x.min([0, 1])?.shape(), []);
/// assert_eq!(x.min(keepdim(..))?.shape(), [1, 1]);
/// # Ok::<(), gradiff_tensor::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axes {
    /// The numbers; `None` for all axes.
    numbers: Option<Vec<i64>>,
    keepdim: bool,
}

/// Returns the axes, to be kept with size 1.
pub fn keepdim(axes: impl Into<Axes>) -> Axes {
    Axes { keepdim: true, ..axes.into() }
}

impl From<i64> for Axes {
    fn from(axis: i64) -> Axes {
        Axes::from(&[axis][..])
    }
}

impl<const COUNT: usize> From<[i64; COUNT]> for Axes {
    fn from(axes: [i64; COUNT]) -> Axes {
        Axes::from(&axes[..])
    }
}

impl<const COUNT: usize> From<&[i64; COUNT]> for Axes {
    fn from(axes: &[i64; COUNT]) -> Axes {
        Axes::from(&axes[..])
    }
}

impl From<&[i64]> for Axes {
    fn from(axes: &[i64]) -> Axes {
        Axes { numbers: Some(axes.to_vec()), keepdim: false }
    }
}

impl From<std::ops::RangeFull> for Axes {
    fn from(_: std::ops::RangeFull) -> Axes {
        Axes { numbers: None, keepdim: false }
    }
}

impl Axes {
    /// Returns whether the axes stay, with size 1.
    pub(crate) fn are_kept(&self) -> bool {
        self.keepdim
    }

    /// Returns the axes of a shape, ascending.
    ///
    /// # Errors
    /// If an axis does not exist or appears twice.
    pub(crate) fn resolve(&self, method: &str, shape: &[i64]) -> Result<Vec<usize>, Error> {
        match &self.numbers {
            None => Ok((0..shape.len()).collect()),
            Some(numbers) => {
                let mut axes = resolve_axes(method, numbers, shape)?;
                axes.sort_unstable();
                Ok(axes)
            }
        }
    }
}

/// Returns the axis of a shape that a number means.
///
/// # Errors
/// If there is no such axis.
pub(crate) fn resolve_axis(method: &str, number: i64, shape: &[i64]) -> Result<usize, Error> {
    let rank = shape.len() as i64;
    let axis = if number < 0 { number.saturating_add(rank) } else { number };
    if (0..rank).contains(&axis) {
        return Ok(axis as usize);
    }
    invalid(match rank {
        0 => format!("{method} along axis {number} of a scalar, which has no axis"),
        _ => format!(
            "{method} along axis {number} of shape {shape:?}: axes are {} to {}",
            -rank,
            rank - 1
        ),
    })
}

/// Returns the axes of a shape that these numbers mean, in the same order.
///
/// # Errors
/// If an axis does not exist or appears twice.
pub(crate) fn resolve_axes(
    method: &str,
    numbers: &[i64],
    shape: &[i64],
) -> Result<Vec<usize>, Error> {
    let mut axes = Vec::with_capacity(numbers.len());
    for number in numbers {
        let axis = resolve_axis(method, *number, shape)?;
        if axes.contains(&axis) {
            return invalid(format!(
                "{method} along axes {numbers:?} of shape {shape:?}: axis {axis} appears twice"
            ));
        }
        axes.push(axis);
    }
    Ok(axes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negative_axes_count_from_the_last() {
        let resolve = |axes: Axes| axes.resolve("sum", &[2, 3, 4]).map_err(|why| why.to_string());
        assert_eq!(resolve((-1).into()), Ok(vec![2]));
        assert_eq!(resolve([-1, 0].into()), Ok(vec![0, 2]));
        assert_eq!(resolve((..).into()), Ok(vec![0, 1, 2]));
        assert!(resolve(3.into()).unwrap_err().contains("axes are -3 to 2"));
        assert!(resolve(i64::MIN.into()).is_err());
        assert!(resolve([0, -3].into()).unwrap_err().contains("axis 0 appears twice"));
        assert!(Axes::from(0).resolve("sum", &[]).is_err());
    }
}
