//! Optimisers, against loops over f64 after the formulas of their documentation.

mod clips;
mod refusals;
mod schedules;

use std::collections::BTreeMap;

use gradiff::nn::optim::{Adam, AdamW, LAMB, LARS, Muon, Optimizer, OptimizerGroup, RMSprop, SGD};
use gradiff::nn::{get_state_dict, load_state_dict};
use gradiff::{DType, Error, Tensor};

use super::Draw;
use super::modules::{agree, eighths, numbers};

pub(super) use clips::clipped_gradients;
pub(super) use refusals::refusals;
pub(super) use schedules::schedules;

/// Number of steps of an optimiser.
const STEPS: usize = 3;
/// The coefficients of the iterations of Newton and Schulz.
const COEFFICIENTS: [f64; 3] = [3.4445, -4.775, 2.0315];
/// Dtypes of parameters, and the largest relative error after all steps. In f32, 1 minus a power of
/// 0.999 has few digits.
const DTYPES: [(DType, f64); 5] = [
    (DType::F32, 2e-4),
    (DType::F64, 1e-9),
    (DType::F64, 1e-9),
    (DType::F16, 1e-2),
    (DType::BF16, 8e-2),
];
/// The factor of large values and gradients, whose squares are beyond the range of f16.
const LARGE: f64 = 256.0;
/// The factor of small gradients, whose squares are below the range of f16.
const SMALL: f64 = 1.0 / 1024.0;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Sgd,
    Lars,
    Muon,
    RmsProp,
    Adam,
    AdamW,
    Lamb,
}

impl Kind {
    /// Returns whether updates are scaled by a ratio of norms.
    fn has_ratio(self) -> bool {
        matches!(self, Kind::Lars | Kind::Lamb)
    }
}

#[derive(Clone, Copy, Debug)]
struct Options {
    kind: Kind,
    /// No option is set but the rate.
    is_new: bool,
    lr: f64,
    momentum: f64,
    decay: f64,
    is_nesterov: bool,
    is_classic: bool,
    tcoef: f64,
    iterations: usize,
    betas: [f64; 2],
    alpha: f64,
    eps: f64,
}

impl Options {
    fn draw(draw: &mut Draw) -> Options {
        let kind = draw.pick(&[
            Kind::Sgd,
            Kind::Lars,
            Kind::Lars,
            Kind::Muon,
            Kind::RmsProp,
            Kind::Adam,
            Kind::AdamW,
            Kind::Lamb,
            Kind::Lamb,
        ]);
        let lr = draw.pick(&[0.5, 0.25, 0.125, 0.1]);
        if draw.one_in(5) {
            return Options { lr, ..Options::new(kind) };
        }
        let decay = draw.pick(&[0.0, 0.25, 0.01]);
        let tcoef = draw.pick(&[0.001, 1.0, 1.0, 0.0]);
        let eps = draw.pick(&[1e-8, 1e-3]);
        Options {
            kind,
            is_new: false,
            lr,
            momentum: draw.pick(&[0.9, 0.5, 0.0]),
            decay: if kind == Kind::Adam { 0.0 } else { decay },
            is_nesterov: draw.one_in(2),
            is_classic: kind != Kind::Muon && draw.one_in(2),
            tcoef: if kind == Kind::Lars { tcoef } else { 0.0 },
            iterations: 2,
            betas: draw.pick(&[[0.9, 0.999], [0.5, 0.75], [0.0, 0.0]]),
            alpha: draw.pick(&[0.99, 0.5, 0.0]),
            // Else the sign of a gradient with its decay would count, which may be almost 0.
            eps: if kind == Kind::RmsProp && decay != 0.0 { 0.25 } else { eps },
        }
    }

    /// The options of an optimiser, by its documentation, if none is set.
    fn new(kind: Kind) -> Options {
        let plain = Options {
            kind,
            is_new: true,
            lr: 0.5,
            momentum: 0.0,
            decay: 0.0,
            is_nesterov: false,
            is_classic: false,
            tcoef: 0.0,
            iterations: 5,
            betas: [0.9, 0.999],
            alpha: 0.99,
            eps: 1e-8,
        };
        match kind {
            Kind::Lars => {
                let plain = Options { momentum: 0.9, decay: 1e-4, ..plain };
                Options { is_classic: true, tcoef: 0.001, ..plain }
            }
            Kind::Muon => Options { momentum: 0.95, decay: 0.1, is_nesterov: true, ..plain },
            Kind::AdamW => Options { decay: 0.01, ..plain },
            Kind::Lamb => Options { eps: 1e-6, ..plain },
            Kind::Sgd | Kind::RmsProp | Kind::Adam => plain,
        }
    }

    fn optimizer(&self, tensors: Vec<Tensor>) -> Result<Box<dyn Optimizer>, Error> {
        let Options { lr, momentum, decay, is_nesterov, is_classic, betas: [b1, b2], .. } = *self;
        let optimizer: Box<dyn Optimizer> = match self.kind {
            Kind::Sgd if self.is_new => Box::new(SGD::new(tensors, lr)?),
            Kind::Lars if self.is_new => Box::new(LARS::new(tensors, lr)?),
            Kind::Muon if self.is_new => Box::new(Muon::new(tensors, lr)?),
            Kind::RmsProp if self.is_new => Box::new(RMSprop::new(tensors, lr)?),
            Kind::Adam if self.is_new => Box::new(Adam::new(tensors, lr)?),
            Kind::AdamW if self.is_new => Box::new(AdamW::new(tensors, lr)?),
            Kind::Lamb if self.is_new => Box::new(LAMB::new(tensors, lr)?),
            Kind::Sgd => {
                let sgd = SGD::new(tensors, lr)?.momentum(momentum).weight_decay(decay);
                Box::new(sgd.nesterov(is_nesterov).classic(is_classic))
            }
            Kind::Lars => {
                let lars = LARS::new(tensors, lr)?.momentum(momentum).weight_decay(decay);
                Box::new(lars.nesterov(is_nesterov).classic(is_classic).tcoef(self.tcoef))
            }
            Kind::Muon => {
                let muon = Muon::new(tensors, lr)?.momentum(momentum).weight_decay(decay);
                Box::new(muon.nesterov(is_nesterov).newton_schulz(self.iterations, COEFFICIENTS))
            }
            Kind::RmsProp => {
                let rms = RMSprop::new(tensors, lr)?.alpha(self.alpha)?;
                Box::new(rms.eps(self.eps).weight_decay(decay))
            }
            Kind::Adam => Box::new(Adam::new(tensors, lr)?.betas(b1, b2)?.eps(self.eps)),
            Kind::AdamW => {
                let adam = AdamW::new(tensors, lr)?.betas(b1, b2)?;
                Box::new(adam.eps(self.eps).weight_decay(decay))
            }
            Kind::Lamb => {
                let lamb = LAMB::new(tensors, lr)?.betas(b1, b2)?;
                Box::new(lamb.eps(self.eps).weight_decay(decay))
            }
        };
        Ok(optimizer)
    }

    /// The names of the tensors that are kept for each parameter, and of those that are kept once.
    fn kept(&self) -> [&'static [&'static str]; 2] {
        match self.kind {
            Kind::Sgd | Kind::Lars | Kind::Muon if self.momentum == 0.0 => [&[], &[]],
            Kind::Sgd | Kind::Lars | Kind::Muon => [&["b"], &[]],
            Kind::RmsProp => [&["v"], &[]],
            Kind::Adam | Kind::AdamW | Kind::Lamb => [&["m", "v"], &["b1_t", "b2_t"]],
        }
    }
}

/// The elements of a parameter, and what its optimiser keeps for each.
struct Model {
    options: Options,
    columns: usize,
    steps: i32,
    values: Vec<f64>,
    /// The momenta, or the means of gradients.
    means: Vec<f64>,
    /// The means of squares of gradients.
    squares: Vec<f64>,
}

impl Model {
    fn new(options: Options, columns: usize, values: Vec<f64>) -> Model {
        let zeros = vec![0.0; values.len()];
        Model { options, columns, steps: 0, values, means: zeros.clone(), squares: zeros }
    }

    fn step(&mut self, gradient: &[f64]) {
        self.steps += 1;
        match self.options.kind {
            Kind::Sgd | Kind::Lars | Kind::Muon => self.descend(gradient),
            Kind::RmsProp => self.divide(gradient),
            Kind::Adam | Kind::AdamW | Kind::Lamb => self.adapt(gradient),
        }
    }

    fn divide(&mut self, gradient: &[f64]) {
        let Options { lr, decay, alpha, eps, .. } = self.options;
        for ((value, square), g) in self.values.iter_mut().zip(&mut self.squares).zip(gradient) {
            let g = g + decay * *value;
            *square = alpha * *square + (1.0 - alpha) * g * g;
            *value -= lr * g / (square.sqrt() + eps);
        }
    }

    fn descend(&mut self, gradient: &[f64]) {
        let Options { kind, lr, momentum, decay, tcoef, .. } = self.options;
        let (p, q) = (norm(&self.values), norm(gradient));
        let has_ratio = tcoef != 0.0 && 0.0 < p && 0.0 < q;
        let ratio = if has_ratio { tcoef * p / (q + decay * p) } else { 1.0 };
        let (early, late) =
            if self.options.is_classic { (lr * ratio, 1.0) } else { (1.0, lr * ratio) };
        let decay_of_gradient = if kind == Kind::Muon { 0.0 } else { decay };
        let mut update = Vec::with_capacity(gradient.len());
        for ((value, mean), g) in self.values.iter().zip(&mut self.means).zip(gradient) {
            let g = (g + decay_of_gradient * value) * early;
            *mean = momentum * *mean + g;
            update.push(match self.options.is_nesterov {
                true => g + momentum * *mean,
                false => *mean,
            });
        }
        if kind == Kind::Muon {
            update = orthogonalized(&update, self.columns, self.options.iterations);
            self.values.iter_mut().for_each(|value| *value *= 1.0 - lr * decay);
        }
        subtract(&mut self.values, &update, late);
    }

    fn adapt(&mut self, gradient: &[f64]) {
        let Options { kind, lr, decay, betas: [b1, b2], eps, .. } = self.options;
        let bias = |beta: f64| 1.0 - beta.powi(self.steps);
        let (mean_bias, square_bias) = (bias(b1), bias(b2));
        let mut update = Vec::with_capacity(gradient.len());
        let moments = self.means.iter_mut().zip(&mut self.squares);
        for ((value, (mean, square)), g) in self.values.iter().zip(moments).zip(gradient) {
            *mean = b1 * *mean + (1.0 - b1) * g;
            *square = b2 * *square + (1.0 - b2) * g * g;
            let root = (*square / square_bias).sqrt() + eps;
            update.push(*mean / mean_bias / root + decay * value);
        }
        let (p, u) = (norm(&self.values), norm(&update));
        let has_ratio = kind == Kind::Lamb && 0.0 < p && 0.0 < u;
        let ratio = if has_ratio { p / u } else { 1.0 };
        subtract(&mut self.values, &update, lr * ratio);
    }
}

fn norm(x: &[f64]) -> f64 {
    x.iter().map(|x| x * x).sum::<f64>().sqrt()
}

fn subtract(values: &mut [f64], update: &[f64], factor: f64) {
    values.iter_mut().zip(update).for_each(|(value, update)| *value -= update * factor);
}

/// The matrix of the update after the iterations `c[0] x + c[1] (x xT) x + c[2] (x xT)^2 x`.
fn orthogonalized(update: &[f64], columns: usize, iterations: usize) -> Vec<f64> {
    let length = norm(update) + 1e-7;
    let mut x: Vec<f64> = update.iter().map(|x| x / length).collect();
    let dot = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>();
    // (x xT) y
    let applied = |x: &[f64], y: &[f64]| -> Vec<f64> {
        let mut found = Vec::with_capacity(y.len());
        for row in x.chunks(columns) {
            let factors: Vec<f64> = x.chunks(columns).map(|second| dot(row, second)).collect();
            for column in 0..columns {
                let elements = y.chunks(columns).map(|row| row[column]);
                found.push(elements.zip(&factors).map(|(y, factor)| y * factor).sum());
            }
        }
        found
    };
    for _ in 0..iterations {
        let (first, second) = (applied(&x, &x), applied(&x, &applied(&x, &x)));
        let terms = x.iter().zip(first).zip(second);
        let [c0, c1, c2] = COEFFICIENTS;
        x = terms.map(|((x, first), second)| c0 * x + c1 * first + c2 * second).collect();
    }
    x
}

/// A parameter, and its model.
struct Parameter {
    dtype: DType,
    tolerance: f64,
    shape: Vec<i64>,
    tensor: Tensor,
    model: Model,
}

impl Parameter {
    fn new(
        (dtype, tolerance): (DType, f64),
        shape: &[i64],
        options: Options,
        values: Vec<f64>,
    ) -> Result<Parameter, Error> {
        let tensor = tensor(dtype, shape, &values)?;
        // Axes after the first are taken as one.
        let columns = shape.iter().skip(1).product::<i64>() as usize;
        let model = Model::new(options, columns, values);
        Ok(Parameter { dtype, tolerance, shape: shape.to_vec(), tensor, model })
    }
}

/// Parameters with an optimiser: one, or a wide one and a column.
struct Trained {
    parameters: Vec<Parameter>,
    /// A tensor that the optimiser must not change.
    buffer: Tensor,
    options: Options,
    /// The factors of values and of gradients.
    scales: [f64; 2],
    /// The optimiser is given the first parameter twice.
    is_doubled: bool,
}

/// The numbers of a column, from those of the parameter before it.
fn of_column(numbers: &[f64], count: usize) -> Vec<f64> {
    numbers.iter().take(count).map(|number| 0.25 - number / 2.0).collect()
}

/// Numbers times a factor.
fn scaled(numbers: &[f64], factor: f64) -> Vec<f64> {
    numbers.iter().map(|number| number * factor).collect()
}

impl Trained {
    fn draw(draw: &mut Draw) -> Result<Trained, Error> {
        let options = Options::draw(draw);
        let typed = draw.pick(&DTYPES);
        let shapes: [&[i64]; 8] =
            [&[2, 3], &[3, 2], &[1, 4], &[2, 2], &[1, 3], &[2, 1, 3], &[4], &[]];
        // Muon takes no parameter of fewer than two axes. A scalar may get so near 0 that rounding
        // decides whether it has a ratio.
        let count = match options.kind {
            Kind::Muon => 6,
            kind if kind.has_ratio() => 7,
            _ => 8,
        };
        let shape = draw.pick(&shapes[..count]);
        let mut values = eighths(draw, shape.iter().product::<i64>() as usize);
        // The ratio of a norm of 0 is another one.
        let is_zero = draw.one_in(if options.kind.has_ratio() { 3 } else { 8 });
        if is_zero {
            values.fill(0.0);
        }
        let large = draw.pick(&[1.0, LARGE]);
        let of_gradient = draw.pick(&[1.0, LARGE, SMALL]);
        // Updates are about as large as the values.
        let scales = match options.kind {
            Kind::Sgd | Kind::Lars => [large, large],
            Kind::Lamb if !is_zero => [large, of_gradient],
            _ => [1.0, of_gradient],
        };
        let first = scaled(&values, scales[0]);
        let mut parameters = vec![Parameter::new(typed, shape, options, first)?];
        if let [rows, columns] = *shape
            && rows < columns
        {
            let typed = if draw.one_in(3) { draw.pick(&DTYPES) } else { typed };
            let column = scaled(&of_column(&values, columns as usize), scales[0]);
            parameters.push(Parameter::new(typed, &[columns, 1], options, column)?);
        }
        let buffer = parameters[0].tensor.contiguous().requires_grad_(false)?;
        Ok(Trained { parameters, buffer, options, scales, is_doubled: draw.one_in(4) })
    }

    fn optimizer(&self) -> Result<Box<dyn Optimizer>, Error> {
        let parameters = self.parameters.iter().map(|part| part.tensor.clone());
        let mut tensors: Vec<Tensor> =
            [self.buffer.clone()].into_iter().chain(parameters).collect();
        if self.is_doubled {
            tensors.push(self.parameters[0].tensor.clone());
        }
        self.options.optimizer(tensors)
    }

    /// Computes gradients of a linear function, once or twice.
    fn backward(&mut self, draw: &mut Draw) -> Result<(), Error> {
        let zeros = |part: &Parameter| vec![0.0; part.model.values.len()];
        let mut gradients: Vec<Vec<f64>> = self.parameters.iter().map(zeros).collect();
        let is_zero = draw.one_in(if self.options.kind.has_ratio() { 4 } else { 8 });
        for factor in [2, 1].into_iter().take(1 + draw.below(2)) {
            let mut weights = eighths(draw, gradients[0].len());
            if is_zero {
                weights.fill(0.0);
            }
            let parts = self.parameters.iter().zip(&mut gradients).enumerate();
            for (number, (part, gradient)) in parts {
                let of_part = match number {
                    0 => weights.clone(),
                    _ => of_column(&weights, gradient.len()),
                };
                let of_part = scaled(&of_part, self.scales[1]);
                subtract(gradient, &of_part, -f64::from(factor));
                let tensor = tensor(part.dtype, &part.shape, &of_part)?;
                part.tensor.mul(factor)?.backward_by(&tensor)?;
            }
        }
        let parts = self.parameters.iter_mut().zip(&gradients);
        parts.for_each(|(part, gradient)| part.model.step(gradient));
        Ok(())
    }

    fn label(&self, part: &Parameter) -> String {
        let Trained { options, scales, .. } = self;
        format!("{options:?} of {}{:?}, scales {scales:?}", part.dtype, part.shape)
    }

    /// Compares elements, as parts of the first scale.
    fn compare(
        &self,
        label: &str,
        tolerance: f64,
        found: &Tensor,
        wanted: &[f64],
    ) -> Result<(), String> {
        let found = numbers(found).map_err(|error| format!("{label}: {error}"))?;
        let unit = 1.0 / self.scales[0];
        agree(label, &scaled(&found, unit), &scaled(wanted, unit), tolerance)
    }

    fn check(&self, buffered: &[f64]) -> Result<(), String> {
        for part in &self.parameters {
            let (label, found) = (self.label(part), part.tensor.detach());
            self.compare(&label, part.tolerance, &found, &part.model.values)?;
        }
        let label = format!("buffer of {}", self.label(&self.parameters[0]));
        self.compare(&label, 0.0, &self.buffer, buffered)
    }

    /// Checks the parameters of an optimiser, its rate, and the types of the tensors that it keeps.
    fn check_kept(&self, optimizer: &dyn Optimizer) -> Result<(), String> {
        let label = self.label(&self.parameters[0]);
        let shapes = optimizer.parameters().iter().map(|tensor| tensor.shape().to_vec());
        let (shapes, wanted): (Vec<Vec<i64>>, Vec<&Vec<i64>>) =
            (shapes.collect(), self.parameters.iter().map(|part| &part.shape).collect());
        if shapes.iter().ne(wanted.iter().copied()) {
            return Err(format!("{label}: parameters of {shapes:?}, not {wanted:?}"));
        }
        let is_wide = self.parameters.iter().any(|part| part.dtype == DType::F64);
        let rate = self.parameters[0].model.options.lr;
        let rate = if is_wide { rate } else { f64::from(rate as f32) };
        let found = optimizer.lr().map_err(|error| format!("{label}: {error}"))?;
        if found != rate {
            return Err(format!("{label}: a rate of {found}, not {rate}"));
        }
        let single = if is_wide { DType::F64 } else { DType::F32 };
        let [each, once] = self.options.kept();
        let mut wanted = BTreeMap::from([("lr".to_string(), (single, vec![1]))]);
        wanted.extend(once.iter().map(|name| (name.to_string(), (single, vec![1]))));
        for (number, part) in self.parameters.iter().enumerate() {
            // Those of halves are of f32.
            let wide = if part.dtype == DType::F64 { DType::F64 } else { DType::F32 };
            let named = |name: &&str| (format!("{name}.{number}"), (wide, part.shape.clone()));
            wanted.extend(each.iter().map(named));
        }
        let typed =
            |(name, tensor): (String, Tensor)| (name, (tensor.dtype(), tensor.shape().to_vec()));
        let found: BTreeMap<String, (DType, Vec<i64>)> =
            get_state_dict(optimizer).into_iter().map(typed).collect();
        match found == wanted {
            true => Ok(()),
            false => Err(format!("{label} keeps {found:?}, not {wanted:?}")),
        }
    }
}

/// A tensor for the interpreter.
fn tensor(dtype: DType, shape: &[i64], values: &[f64]) -> Result<Tensor, Error> {
    Tensor::from_slice(shape, values)?.to("interp")?.cast(dtype)
}

/// Draws optimisers, and compares their parameters after each step with those of a loop. Before the
/// second step, the rate is changed and the state is moved to new optimisers. Some steps are not
/// run. A loss has the value from before the step, whether the step computes it or not.
pub(super) fn match_scalar_loops(draw: &mut Draw) -> Result<(), String> {
    let problem = |error: Error| error.to_string();
    let count = if draw.one_in(6) { 2 } else { 1 };
    let mut trained = Vec::with_capacity(count);
    for _ in 0..count {
        trained.push(Trained::draw(draw).map_err(problem)?);
    }
    let values = |part: &Trained| part.parameters[0].model.values.clone();
    let buffered: Vec<Vec<f64>> = trained.iter().map(values).collect();
    let optimizers = trained.iter().map(Trained::optimizer).collect::<Result<_, _>>();
    let mut group = OptimizerGroup::new(optimizers.map_err(problem)?);
    for (part, optimizer) in trained.iter().zip(&group.optimizers) {
        part.check_kept(&**optimizer).map_err(|problem| format!("new: {problem}"))?;
    }
    let _training = Tensor::train(true);
    for step in 0..STEPS {
        group.zero_grad();
        let before = scaled(&trained[0].parameters[0].model.values, 2.0);
        for (part, slot) in trained.iter_mut().zip(&mut group.optimizers) {
            if step == 1 {
                change(part, slot).map_err(problem)?;
                part.check_kept(&**slot).map_err(|problem| format!("changed: {problem}"))?;
            }
            part.backward(draw).map_err(problem)?;
        }
        let loss = trained[0].parameters[0].tensor.detach().mul(2).map_err(problem)?;
        let (choice, reads_loss) = (draw.below(4), draw.one_in(2));
        let losses = [&loss];
        let losses = if reads_loss { &losses[..] } else { &[] };
        match choice {
            // The values are computed by a later step, or where they are read.
            0 => {
                for optimizer in &mut group.optimizers {
                    optimizer.schedule_step().map_err(problem)?;
                }
            }
            1 => {
                for optimizer in &mut group.optimizers {
                    optimizer.step_with(losses).map_err(problem)?;
                }
            }
            2 => group.step_with(losses).map_err(problem)?,
            _ => group.step().map_err(problem)?,
        }
        for (part, buffered) in trained.iter().zip(&buffered) {
            part.check(buffered).map_err(|problem| format!("step {step}: {problem}"))?;
        }
        if reads_loss {
            let first = &trained[0].parameters[0];
            let label = format!("step {step}: the loss beside {}", trained[0].label(first));
            trained[0].compare(&label, first.tolerance, &loss, &before)?;
        }
    }
    // No training, or no gradient: no step.
    let (mode, reason) = match draw.one_in(2) {
        true => (Some(Tensor::train(false)), "outside of training"),
        false => (None, "without gradients"),
    };
    if mode.is_none() {
        group.zero_grad();
    }
    match group.step() {
        Err(Error::Invalid(_)) => {}
        answer => return Err(format!("a step {reason}: {answer:?}")),
    }
    let unchanged = |(part, buffered): (&Trained, &Vec<f64>)| part.check(buffered);
    let checked = trained.iter().zip(&buffered).try_for_each(unchanged);
    checked.map_err(|problem| format!("after a step {reason}: {problem}"))
}

/// Halves the rate, and replaces the optimiser by a new one with its state.
fn change(part: &mut Trained, slot: &mut Box<dyn Optimizer>) -> Result<(), Error> {
    let rate = part.parameters[0].model.options.lr / 2.0;
    part.parameters.iter_mut().for_each(|part| part.model.options.lr = rate);
    slot.set_lr(rate)?;
    let next = part.optimizer()?;
    load_state_dict(&*next, &get_state_dict(&**slot))?;
    *slot = next;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Some optimisers have two parameters, of different shapes, after a buffer.
    #[test]
    fn a_second_parameter_that_does_not_follow_is_noticed() {
        let drawn = (0..40).map(|seed| Trained::draw(&mut Draw::new(seed)).expect("it is legal"));
        let mut pairs = drawn.filter(|trained| trained.parameters.len() == 2);
        let mut trained = pairs.next().expect("some have two");
        let buffered = trained.parameters[0].model.values.clone();
        let optimizer = trained.optimizer().expect("it is legal");
        let shapes = optimizer.parameters().iter().map(|tensor| tensor.shape().to_vec());
        let shapes: Vec<Vec<i64>> = shapes.collect();
        assert!(shapes.len() == 2 && shapes[0] != shapes[1], "{shapes:?}");
        assert_eq!(trained.check(&buffered), Ok(()));
        trained.parameters[1].model.values[0] += 0.5 * trained.scales[0];
        assert!(trained.check(&buffered).is_err());
    }

    /// A ratio of norms is 1 where one of them is 0.
    #[test]
    fn parameters_of_zeros_are_drawn_and_change() {
        let drawn = (0..80).map(|seed| Trained::draw(&mut Draw::new(seed)).expect("it is legal"));
        let is_zero = |x: &&f64| **x == 0.0;
        let mut zeros = drawn.filter(|trained| {
            let values = &trained.parameters[0].model.values;
            trained.options.kind.has_ratio()
                && values.iter().filter(is_zero).count() == values.len()
        });
        let mut trained = zeros.next().expect("some are zeros");
        let model = &mut trained.parameters[0].model;
        model.step(&vec![1.0; model.values.len()]);
        assert!(model.values.iter().all(|value| *value < 0.0), "{:?}", model.values);
    }

    /// Each option changes the steps, so that an optimiser that ignores it is found.
    #[test]
    fn options_change_steps() {
        let plain = |kind| Options {
            is_new: false,
            lr: 0.5,
            momentum: 0.0,
            decay: 0.0,
            is_nesterov: false,
            is_classic: false,
            tcoef: 0.0,
            iterations: 2,
            betas: [0.5, 0.75],
            alpha: 0.5,
            eps: 1e-8,
            ..Options::new(kind)
        };
        let after = |options: Options| {
            let mut model = Model::new(options, 2, vec![1.0, -2.0, 0.5, 3.0]);
            for gradient in [[0.5, 1.0, -1.0, 2.0], [1.0, -0.25, 0.5, 1.5]] {
                model.options.lr /= 2.0;
                model.step(&gradient);
            }
            model.values
        };
        let momentum = Options { momentum: 0.9, ..plain(Kind::Sgd) };
        let pairs = [
            (plain(Kind::Sgd), momentum),
            (plain(Kind::Sgd), Options { decay: 0.25, ..plain(Kind::Sgd) }),
            (momentum, Options { is_nesterov: true, ..momentum }),
            (momentum, Options { is_classic: true, ..momentum }),
            (plain(Kind::Lars), Options { tcoef: 1.0, ..plain(Kind::Lars) }),
            (plain(Kind::Muon), Options { decay: 0.25, ..plain(Kind::Muon) }),
            (plain(Kind::Muon), Options { iterations: 5, ..plain(Kind::Muon) }),
            (plain(Kind::RmsProp), Options { alpha: 0.99, ..plain(Kind::RmsProp) }),
            (plain(Kind::RmsProp), Options { decay: 0.25, ..plain(Kind::RmsProp) }),
            (plain(Kind::RmsProp), Options { eps: 1e-3, ..plain(Kind::RmsProp) }),
            (plain(Kind::Adam), Options { betas: [0.9, 0.999], ..plain(Kind::Adam) }),
            (plain(Kind::Adam), Options { eps: 1e-3, ..plain(Kind::Adam) }),
            (plain(Kind::AdamW), Options { decay: 0.25, ..plain(Kind::AdamW) }),
            (plain(Kind::AdamW), plain(Kind::Lamb)),
        ];
        for (first, second) in pairs {
            let (x, y) = (after(first), after(second));
            assert!(agree("steps", &x, &y, 1e-5).is_err(), "{first:?} {second:?}: {x:?} {y:?}");
        }
    }
}
