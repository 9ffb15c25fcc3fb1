//! Gradient clipping: by the norm of all gradients together, and by the value of each element.

use std::collections::HashSet;

use gradiff_graph::DType;
use gradiff_tensor::{Error, Tensor};

use super::optimizer::assign;
use crate::functional::check_options;

/// Summand of the norm that gradients are divided by, as PyTorch has it.
const EPS: f64 = 1e-6;

/// Multiplies the gradients of the parameters by `max_norm / (norm + 1e-6)`, if that is below 1,
/// where `norm` is the root of the sum of the squares of all their elements. Returns the norm, a
/// scalar in f64 if a gradient is, else in f32.
///
/// Call it between `backward` and the step of the optimiser. Parameters without a gradient do not
/// count; the norm of none is 0. Nothing is computed: to read the norm, give it to
/// [`step_with`](crate::optim::Optimizer::step_with). If it is infinite, gradients become 0, or NaN
/// where they are infinite; if it is NaN, all of them become NaN.
///
/// ```
/// # use gradiff_nn::clip_grad_norm;
/// # use gradiff_nn::optim::{Optimizer, SGD};
/// # use gradiff_tensor::Tensor;
/// # let _training = Tensor::train(true);
/// let x = Tensor::from_slice(&[2], &[1.0f32, 2.0])?;
/// let mut optimizer = SGD::new([x.clone()], 1.0)?;
/// x.mul(&Tensor::from_slice(&[2], &[3.0f32, 4.0])?)?.sum(0)?.backward()?;
/// let norm = clip_grad_norm(optimizer.parameters(), 2.5)?;
/// optimizer.step_with(&[&norm])?;
/// assert_eq!(norm.item::<f32>()?, 5.0);
/// let found = x.to_vec::<f32>()?;
/// assert!((found[0] + 0.5).abs() < 1e-5 && found[1].abs() < 1e-5);
/// # Ok::<(), gradiff_tensor::Error>(())
/// ```
/// # Errors
/// If `max_norm` is negative or not finite.
pub fn clip_grad_norm(parameters: &[Tensor], max_norm: f64) -> Result<Tensor, Error> {
    check_options("clip_grad_norm", &[("max_norm", max_norm)])?;
    let pairs = gradients(parameters);
    let is_wide = pairs.iter().any(|(_, gradient)| gradient.dtype() == DType::F64);
    let dtype = if is_wide { DType::F64 } else { DType::F32 };
    let mut sum = Tensor::scalar(dtype, 0)?;
    // A device that has the dtype.
    let wide = pairs.iter().find(|(_, gradient)| gradient.dtype() == dtype);
    let Some((first, _)) = wide.or(pairs.first()) else { return Ok(sum) };
    let device = first.device()?;
    let mut values = Vec::with_capacity(pairs.len());
    for (_, gradient) in &pairs {
        // A buffer of its own: the norm and the product would each compute the gradient.
        let value = gradient.detach().contiguous();
        let squares = value.cast(value.dtype().accumulator())?.square()?;
        sum = sum.add(squares.sum(..)?.to(device)?.cast(dtype)?)?;
        values.push(value);
    }
    let norm = sum.sqrt()?.contiguous();
    let factor = Tensor::scalar(dtype, max_norm)?.div(norm.add(EPS)?)?.minimum(1)?;
    for ((parameter, gradient), value) in pairs.iter().zip(values) {
        // Factors of halves are in f32, as the norm may be beyond their range.
        let wide = value.dtype().accumulator();
        let factor = factor.cast(wide)?.to(parameter.device()?)?;
        assign(gradient, &value.cast(wide)?.mul(factor)?)?;
    }
    Ok(norm)
}

/// Replaces the elements of the parameters' gradients that are below `-max_value` by that, and
/// those that are above `max_value` by that. Parameters without a gradient do not count. Nothing
/// is computed.
///
/// ```
/// # use gradiff_nn::clip_grad_value;
/// # use gradiff_tensor::Tensor;
/// let x = Tensor::from_slice(&[2], &[1.0f32, -3.0])?.requires_grad_(true)?;
/// x.square()?.sum(0)?.backward()?;
/// clip_grad_value(&[x.clone()], 5.0)?;
/// assert_eq!(x.grad().expect("it has a gradient").to_text()?, "[2.0, -5.0]");
/// # Ok::<(), gradiff_tensor::Error>(())
/// ```
/// # Errors
/// If `max_value` is negative or not finite.
pub fn clip_grad_value(parameters: &[Tensor], max_value: f64) -> Result<(), Error> {
    check_options("clip_grad_value", &[("max_value", max_value)])?;
    for (_, gradient) in gradients(parameters) {
        assign(&gradient, &gradient.detach().clamp(-max_value, max_value)?)?;
    }
    Ok(())
}

/// Returns the tensors that require a gradient and have it, each once, with their gradients.
fn gradients(tensors: &[Tensor]) -> Vec<(&Tensor, Tensor)> {
    let mut known = HashSet::new();
    let mut pairs = Vec::new();
    for tensor in tensors.iter().filter(|tensor| tensor.requires_grad() == Some(true)) {
        if let Some(gradient) = tensor.grad()
            // A parameter's node is that of no other one.
            && known.insert(tensor.uop())
        {
            pairs.push((tensor, gradient));
        }
    }
    pairs
}
