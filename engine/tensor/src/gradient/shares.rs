//! The equal shares of a gradient that the elements equal to an extreme have.

use crate::{Error, Tensor};

/// `g / count` in the dtype of `g`. The count is in that of sums, since halves have no large
/// numbers.
pub(crate) fn divided(g: &Tensor, count: &Tensor) -> Result<Tensor, Error> {
    g.cast(count.dtype())?.div(count)?.cast(g.dtype())
}

/// The share where an element has one, else 0, so that no share of another extreme is lost if this
/// one is infinite or NaN.
pub(crate) fn shared(has_share: &Tensor, share: &Tensor) -> Result<Tensor, Error> {
    has_share.where_(share, &Tensor::zeros(share.dtype(), &[])?)
}
