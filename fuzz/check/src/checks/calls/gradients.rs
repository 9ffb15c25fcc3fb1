//! Gradients with respect to computed tensors, against gradients with respect to data.
//!
//! In: a drawn chain y of ops on x, and a drawn function f of y, x or both. The expected gradient
//! with respect to y is that of f with data of the same values in the place of y; that with respect
//! to x has the part that flows through y added. All values are small integers, so floats are exact
//! in any order of summation.

use gradiff::{DType, Engine, Error, Tensor, keepdim};

use super::Draw;

/// Limit of the absolute values of elements: products of two are still exact.
const MAGNITUDE_MAX: f64 = 1e6;
/// Numbers of ops of a chain and of a function.
const CHAIN_MAX: usize = 3;
const FUNCTION_MAX: usize = 4;

/// The number of the op that passes no gradient.
const DETACH: usize = 9;

/// An op on a running value, by number, with an axis or a factor.
type Op = (usize, i64);

fn drawn(draw: &mut Draw, limit: usize) -> Vec<Op> {
    (0..1 + draw.below(limit)).map(|_| (draw.below(9), draw.below(4) as i64)).collect()
}

/// A chain of ops; no gradient passes through some of them, which may be the last one.
fn drawn_chain(draw: &mut Draw) -> Vec<Op> {
    let mut chain = drawn(draw, CHAIN_MAX);
    if draw.one_in(4) {
        let at = draw.below(chain.len() + 1);
        chain.insert(at, (DETACH, 0));
    }
    chain
}

/// Applies an op to the running value; `first` and `second` are operands of its shape.
fn apply(value: &Tensor, op: Op, first: &Tensor, second: &Tensor) -> Result<Tensor, Error> {
    let (kind, number) = op;
    let axis = number % 2;
    match kind {
        0 => value.mul(2 + number),
        1 => value.add(number),
        2 => value.mul(first),
        3 => value.add(second),
        4 => first.sub(value),
        5 => value.flip(&[axis]),
        6 => value.sum(keepdim(axis))?.expand(value.shape()),
        7 => value.relu(),
        DETACH => Ok(value.detach()),
        _ => value.mul(value)?.add(second),
    }
}

/// Returns f(y, x): drawn ops that begin with y, or with x.
fn function(y: &Tensor, x: &Tensor, starts_with_x: bool, ops: &[Op]) -> Result<Tensor, Error> {
    let start = if starts_with_x { x } else { y };
    ops.iter().try_fold(start.clone(), |value, op| apply(&value, *op, y, x))
}

fn elements(tensor: &Tensor) -> Result<Vec<f64>, Error> {
    Engine::new("interp")?.realize(&[tensor])?;
    tensor.to_vec::<f64>()
}

fn sum(x: Option<&Tensor>, y: Option<&Tensor>) -> Result<Option<Vec<f64>>, Error> {
    match (x, y) {
        (Some(x), Some(y)) => elements(&x.add(y)?).map(Some),
        (x, y) => x.or(y).map(elements).transpose(),
    }
}

/// Draws a computed tensor and a function of it, and compares the gradients.
pub(super) fn gradients(draw: &mut Draw) -> Result<(), String> {
    let problem = |error: Error| error.to_string();
    let shape = [1 + draw.below(3) as i64, 1 + draw.below(4) as i64];
    let count = (shape[0] * shape[1]) as usize;
    let mut data = || -> Result<Tensor, Error> {
        let numbers: Vec<f64> = (0..count).map(|_| draw.below(7) as f64 - 3.0).collect();
        Tensor::from_slice(&shape, &numbers)
    };
    let (x, weights) = (data().map_err(problem)?, data().map_err(problem)?);
    let (chain, ops) = (drawn_chain(draw), drawn(draw, FUNCTION_MAX));
    let starts_with_x = draw.one_in(4);
    let chained = || chain.iter().try_fold(x.clone(), |y, op| apply(&y, *op, &x, &x));
    let y = chained().map_err(problem)?;
    // A tensor that is marked is found even after it has been realised.
    let is_marked = draw.one_in(3);
    if is_marked {
        y.requires_grad_(true).map_err(problem)?;
    }
    let f = function(&y, &x, starts_with_x, &ops).map_err(problem)?;
    let label = format!(
        "gradients of {ops:?} (from x: {starts_with_x}) of {chain:?} of {shape:?}, marked: \
         {is_marked}"
    );
    // The same computation as y, which is not realised.
    let path = chained().map_err(problem)?;
    let values = elements(&path.contiguous()).map_err(problem)?;
    let leaf = Tensor::from_slice(&shape, &values).map_err(problem)?;
    let same = function(&leaf, &x, starts_with_x, &ops).map_err(problem)?;
    let f_values = elements(&same.contiguous()).map_err(problem)?;
    if values.iter().chain(&f_values).any(|value| MAGNITUDE_MAX < value.abs()) {
        return Ok(());
    }
    // Of tensors that are computed alike, each has the derivatives of all.
    if same.uop().order().contains(&&y.uop()) {
        return Ok(());
    }
    let parts = same.gradients_if_used(&weights, &[&leaf, &x]).map_err(problem)?;
    let [by_leaf, direct] = &parts[..] else { return Err(format!("{label}: {parts:?}")) };
    if by_leaf.is_none() && !starts_with_x {
        return Err(format!("{label}: it begins with a leaf, but has no gradient by it"));
    }
    let through = match by_leaf {
        Some(by_leaf) => path.gradients_if_used(by_leaf, &[&x]).map_err(problem)?.remove(0),
        None => None,
    };
    let total = sum(direct.as_ref(), through.as_ref()).map_err(problem)?;
    let mut by_y = sum(by_leaf.as_ref(), None).map_err(problem)?;
    if draw.one_in(3) {
        let before = y.uop();
        Engine::new("interp").and_then(|engine| engine.realize(&[&y])).map_err(problem)?;
        if y.uop() == x.uop() {
            // It moves no element of x, so that it is x itself now.
            return Ok(());
        }
        if !is_marked && y.uop() != before {
            by_y = None;
        }
    }
    let (targets, expected) = match draw.below(4) {
        0 => (vec![&y], vec![by_y]),
        1 => (vec![&y, &x], vec![by_y, total]),
        2 => (vec![&x, &y], vec![total, by_y]),
        _ => (vec![&y, &x, &y], vec![by_y.clone(), total, by_y]),
    };
    for wrong in [weights.cast(DType::F32), weights.unsqueeze(0), weights.flatten(0, -1)] {
        let wrong = wrong.map_err(problem)?;
        if f.gradients_if_used(&wrong, &targets).is_ok() {
            return Err(format!("{label}: the weights {wrong:?} of {f:?} are not refused"));
        }
    }
    let found = f.gradients_if_used(&weights, &targets).map_err(problem)?;
    let found: Result<Vec<_>, Error> =
        found.iter().map(|gradient| sum(gradient.as_ref(), None)).collect();
    let found = found.map_err(problem)?;
    if found != expected {
        return Err(format!("{label}: {found:?}, expected {expected:?}"));
    }
    // A gradient that is asked for by name is refused if it is none.
    let is_legal = expected.iter().all(Option::is_some);
    match f.gradient_by(&weights, &targets) {
        Ok(_) if is_legal => Ok(()),
        Err(Error::Invalid(message)) if !is_legal && !message.is_empty() => Ok(()),
        answer => Err(format!("{label}: gradient_by gives {answer:?}, expected {expected:?}")),
    }
}

/// Number of actions on two tensors.
const ACTIONS: usize = 6;

/// A tensor of integers as floats, and what it must have: whether it requires a gradient, and the
/// gradient.
struct Parameter {
    tensor: Tensor,
    values: Vec<f64>,
    requires: bool,
    grad: Option<Vec<f64>>,
}

impl Parameter {
    fn draw(draw: &mut Draw, dtype: DType, count: usize) -> Result<Parameter, Error> {
        let values = integers(draw, count);
        let tensor = Tensor::from_slice(&[count as i64], &values)?.cast(dtype)?;
        let requires = !draw.one_in(4);
        tensor.requires_grad_(requires)?;
        Ok(Parameter { tensor, values, requires, grad: None })
    }

    /// Adds these derivatives, if it requires a gradient.
    fn add(&mut self, derivatives: impl Iterator<Item = f64>) {
        if !self.requires {
            return;
        }
        let derivatives: Vec<f64> = derivatives.collect();
        let earlier = self.grad.take().unwrap_or_else(|| vec![0.0; derivatives.len()]);
        self.grad = Some(earlier.iter().zip(derivatives).map(|(x, y)| x + y).collect());
    }

    fn check(&self, label: &str) -> Result<(), String> {
        let found = match self.tensor.grad() {
            Some(grad) if grad.dtype() != self.tensor.dtype() => {
                return Err(format!("{label}: the gradient of {:?} is {grad:?}", self.tensor));
            }
            Some(grad) => grad.cast(DType::F64).and_then(|grad| elements(&grad)).map(Some),
            None => Ok(None),
        };
        let found = found.map_err(|error| format!("{label}: {error}"))?;
        if found != self.grad {
            return Err(format!("{label}: the gradient is {found:?}, not {:?}", self.grad));
        }
        let requires = self.tensor.requires_grad();
        match requires == Some(self.requires) {
            true => Ok(()),
            false => Err(format!("{label}: it requires a gradient: {requires:?}")),
        }
    }
}

/// Draws integers from -3 to 3.
fn integers(draw: &mut Draw, count: usize) -> Vec<f64> {
    (0..count).map(|_| draw.below(7) as f64 - 3.0).collect()
}

/// Draws calls of `backward`, of `backward_by`, with and without `no_grad`, of `zero_grad` and of
/// `requires_grad_` on two tensors, and compares the sums of their gradients with those of loops.
/// All numbers are small integers, which every float type has.
pub(super) fn accumulations(draw: &mut Draw) -> Result<(), String> {
    let problem = |error: Error| error.to_string();
    let dtype = draw.pick(&[DType::F32, DType::F64, DType::F16, DType::BF16]);
    let count = 1 + draw.below(4);
    let mut x = Parameter::draw(draw, dtype, count).map_err(problem)?;
    let mut z = Parameter::draw(draw, dtype, count).map_err(problem)?;
    let mut label = format!("{dtype}[{count}]");
    for _ in 0..ACTIONS {
        let action = draw.below(8);
        let target = if draw.one_in(2) { &mut x } else { &mut z };
        label.push_str(match action {
            0 => ", zero_grad",
            1 => ", requires_grad_",
            2 => ", no_grad",
            3 => ", detach",
            4 | 5 => ", backward_by",
            _ => ", backward",
        });
        match action {
            0 => {
                target.tensor.zero_grad();
                target.grad = None;
            }
            1 => {
                target.requires = !target.requires;
                target.tensor.requires_grad_(target.requires).map_err(problem)?;
            }
            _ => {
                let found = accumulate(draw, action, &mut x, &mut z);
                found.map_err(|problem| format!("{label}: {problem}"))?;
            }
        }
        x.check(&format!("x after {label}"))?;
        z.check(&format!("z after {label}"))?;
    }
    Ok(())
}

/// Computes gradients of `(a * x * z + b * x) * weights`; with action 2 in a time without
/// gradients, and with action 3 not through z.
fn accumulate(
    draw: &mut Draw,
    action: usize,
    x: &mut Parameter,
    z: &mut Parameter,
) -> Result<(), String> {
    let problem = |error: Error| error.to_string();
    let [a, b] = [(); 2].map(|()| draw.pick(&[1i64, -1, 2, -2]));
    let weights = integers(draw, x.values.len());
    let by = Tensor::from_slice(&[weights.len() as i64], &weights);
    let by = by.and_then(|by| by.cast(x.tensor.dtype())).map_err(problem)?;
    let computed = || -> Result<Tensor, Error> {
        let _mode = (action == 2).then(Tensor::no_grad);
        let factor = if action == 3 { z.tensor.detach() } else { z.tensor.clone() };
        x.tensor.mul(&factor)?.mul(a)?.add(x.tensor.mul(b)?)
    };
    let y = computed().map_err(problem)?;
    let reaches_z = z.requires && action != 3;
    let is_reached = action != 2 && (x.requires || reaches_z);
    if y.requires_grad() != is_reached.then_some(true) {
        return Err(format!("the function requires a gradient: {:?}", y.requires_grad()));
    }
    let called = match action {
        4 | 5 => y.backward_by(&by),
        _ => y.mul(&by).and_then(|y| y.sum(..)).and_then(|loss| loss.backward()),
    };
    match called {
        Ok(()) if is_reached => {}
        Err(Error::Invalid(message)) if !is_reached && !message.is_empty() => return Ok(()),
        answer => return Err(format!("it gives {answer:?}, is reached: {is_reached}")),
    }
    let (a, b) = (a as f64, b as f64);
    x.add(weights.iter().zip(&z.values).map(|(weight, z)| weight * (a * z + b)));
    if reaches_z {
        z.add(weights.iter().zip(&x.values).map(|(weight, x)| weight * a * x));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gradients_are_accumulated() {
        for seed in 0..100 {
            accumulations(&mut Draw::new(seed)).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        }
    }

    /// A gradient that is not the sum of those of all calls is noticed.
    #[test]
    fn wrong_sums_are_noticed() {
        let mut draw = Draw::new(0);
        let mut x = Parameter::draw(&mut draw, DType::F32, 2).expect("a tensor");
        x.requires = true;
        x.tensor.requires_grad_(true).expect("it is of floats");
        for factor in [1.0, 2.0] {
            let by = Tensor::from_slice(&[2], &[1.0f32, 3.0]).expect("a tensor");
            x.tensor.backward_by(&by).expect("it requires a gradient");
            x.check("x").expect_err("a gradient is missing");
            x.grad = Some(vec![factor, 3.0 * factor]);
            assert_eq!(x.check("x"), Ok(()));
        }
        x.requires = false;
        x.check("x").expect_err("it requires a gradient");
    }

    #[test]
    fn gradients_of_computed_tensors_are_right() {
        for seed in 0..300 {
            gradients(&mut Draw::new(seed)).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        }
    }
}
