//! Assignment in place: of a whole tensor, or of a slice of it.
//!
//! An assignment changes what the tensor and its clones are from then on. What was made of the
//! tensor before keeps the elements as they were, computed or not, since nodes do not change.

use gradiff_graph::DType;

use crate::error::invalid;
use crate::methods::movement::{Steps, steps_of};
use crate::parameters::requires_gradient;
use crate::placement::check_devices;
use crate::tensor::{broadcast, constant_node};
use crate::{Error, Operand, Tensor};

impl Tensor {
    /// Replaces the elements by those of `value`, which is broadcast; a scalar takes the dtype.
    /// Returns the tensor. Nothing is computed; what was made of the tensor before keeps its
    /// elements. Assignments of several threads take effect one after another.
    ///
    /// A parameter stays one. Its value is not computed from others, so `value` may not depend on
    /// parameters: detach them in it. [`detach`](Tensor::detach) gives a new tensor, and an
    /// assignment to that leaves this one as it is.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[2], &[1, 2])?;
    /// let before = x.add(10)?;
    /// x.assign(x.mul(3)?)?;
    /// assert_eq!((x.to_text()?, before.to_text()?), ("[3, 6]".into(), "[11, 12]".into()));
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    /// # Errors
    /// If the value has another dtype, does not broadcast to the shape, is on another device, or
    /// depends on a parameter.
    pub fn assign(&self, value: impl Into<Operand>) -> Result<Tensor, Error> {
        let advice = "detach in the value, as in x.assign(x.detach() * y.detach())?; x.detach() \
                      is a new tensor, and an assignment to it does not change x";
        self.assign_or("assign", value.into(), advice)
    }

    /// [`assign`](Tensor::assign), whose errors name the method, and give the advice if the value
    /// requires a gradient.
    pub(crate) fn assign_or(
        &self,
        method: &str,
        value: Operand,
        advice: &str,
    ) -> Result<Tensor, Error> {
        let value = self.fitted(method, value, self.shape(), advice)?;
        self.update(|_| Ok(value.clone()))?;
        Ok(self.clone())
    }

    /// Replaces the elements at (start, stop, step) along each axis, as [`slice`](Tensor::slice)
    /// selects them, by those of `value`, which is broadcast. Returns the tensor, whose other
    /// elements stay. Otherwise as [`assign`](Tensor::assign).
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[5], &[0, 1, 2, 3, 4])?;
    /// x.assign_slice(&[(0, 5, 2)], 9)?;
    /// assert_eq!(x.to_text()?, "[9, 1, 9, 3, 9]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    /// # Errors
    /// Those of `slice` and of `assign`; if the tensor requires a gradient or depends on a
    /// parameter.
    pub fn assign_slice(
        &self,
        ranges: &[(i64, i64, i64)],
        value: impl Into<Operand>,
    ) -> Result<Tensor, Error> {
        self.check_parts("assign_slice")?;
        let mut steps = steps_of("assign_slice", self.shape(), ranges)?;
        let whole = |size: &i64| Steps { first: 0, count: *size, stride: 1, is_reversed: false };
        steps.extend(self.shape()[ranges.len()..].iter().map(whole));
        let counts: Vec<i64> = steps.iter().map(|steps| steps.count).collect();
        let value = self.assigned("assign_slice", value.into(), &counts)?;
        self.assign_where(&steps, &Tensor::full(DType::Bool, &counts, true)?, &value)
    }

    /// Replaces the elements at these steps along each axis by those of `value` where the mask is
    /// true; both have the sizes of the steps. Returns the tensor.
    pub(crate) fn assign_where(
        &self,
        steps: &[Steps],
        mask: &Tensor,
        value: &Tensor,
    ) -> Result<Tensor, Error> {
        let (mut mask, mut spread) = (mask.clone(), value.clone());
        for (axis, steps) in steps.iter().enumerate() {
            let size = self.shape()[axis];
            mask = mask.spread_along(axis, steps, size)?;
            spread = spread.spread_along(axis, steps, size)?;
        }
        self.update(|current| mask.where_(&spread, current))?;
        Ok(self.clone())
    }

    /// Refuses a tensor that requires a gradient, of which no part can be assigned.
    pub(crate) fn check_parts(&self, method: &str) -> Result<(), Error> {
        if self.requires_grad() != Some(true) {
            return Ok(());
        }
        invalid(format!(
            "{method} of {self:?}: it requires a gradient, which an assignment to a part would \
             cut: put the parts together with stack, cat or where_ to keep it; of a parameter, \
             assign all of it, as in x.assign(mask.where_(y, x.detach())?)?"
        ))
    }

    /// The value in the dtype and shape of an assignment to a part of this tensor.
    pub(crate) fn assigned(
        &self,
        method: &str,
        value: Operand,
        shape: &[i64],
    ) -> Result<Tensor, Error> {
        let advice = "put the parts together with stack, cat or where_ to keep the gradient, or \
                      detach the value";
        self.fitted(method, value, shape, advice)
    }

    /// The value in the dtype of this tensor and a shape. It is an error if the value does not fit,
    /// or requires a gradient: then the message ends with the advice.
    fn fitted(
        &self,
        method: &str,
        value: Operand,
        shape: &[i64],
        advice: &str,
    ) -> Result<Tensor, Error> {
        let value = match value {
            Operand::Tensor(value) => value,
            Operand::Scalar(scalar) => {
                let constant = scalar.element(self.dtype())?;
                Tensor::from_valid(constant_node(constant, shape))
            }
        };
        let missing = shape.len().checked_sub(value.rank());
        let fits = missing.is_some_and(|missing| {
            let mut pairs = value.shape().iter().zip(&shape[missing..]);
            pairs.all(|(from, to)| from == to || *from == 1)
        });
        if value.dtype() != self.dtype() || !fits {
            return invalid(format!(
                "{method} of {value:?} to {}{shape:?}: the dtypes must be equal, and the shape \
                 must broadcast",
                self.dtype()
            ));
        }
        check_devices(method, [self.uop(), value.uop()])?;
        if requires_gradient(&value.uop()) {
            return invalid(format!(
                "{method} of {value:?}: it depends on a tensor that requires a gradient, which an \
                 assignment would cut: {advice}"
            ));
        }
        Ok(Tensor::from_valid(broadcast(value.uop(), shape)))
    }

    /// Spreads the elements along an axis to their positions among `size`; zeros are between.
    fn spread_along(&self, axis: usize, steps: &Steps, size: i64) -> Result<Tensor, Error> {
        let Steps { first, stride, is_reversed, .. } = *steps;
        let source = if is_reversed { self.flipped(&[axis]) } else { self.clone() };
        let apart = source.spread(axis, &[stride])?;
        let length = apart.shape()[axis];
        apart.padded(axis, first, size - first - length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_to_detach_changes_the_tensor() -> Result<(), Error> {
        let w = Tensor::from_slice(&[2], &[1f32, 2.0])?.to("interp")?.requires_grad_(true)?;
        w.mul(&w)?.mul(&w)?.sum(0)?.backward()?;
        let gradient = w.grad().expect("it has a gradient");
        let error = gradient.assign(gradient.mul(2)?).expect_err("it depends on w").to_string();
        assert!(error.contains("x.assign(x.detach() * y.detach())?"), "{error}");
        gradient.assign(gradient.detach() * 2)?;
        let changed = w.grad().expect("it has a gradient");
        assert_eq!(changed.to_text()?, "[6.0, 24.0]");
        // The advice for a part of a parameter.
        let mask = Tensor::from_slice(&[2], &[true, false])?.to("interp")?;
        let error = w.assign_slice(&[(0, 1, 1)], 0).expect_err("a part of w").to_string();
        assert!(error.contains("x.assign(mask.where_(y, x.detach())?)?"), "{error}");
        w.assign(mask.where_(7, w.detach())?)?;
        assert_eq!(w.to_text()?, "[7.0, 2.0]");
        Ok(())
    }
}
