//! Optimisers and schedules of the learning rate, against loops over f64 after the formulas of
//! their documentation.

use gradiff::nn::optim::{
    Adam, AdamW, CosineAnnealingLR, LAMB, LARS, LRScheduler, Metric, MultiStepLR, Muon, OneCycleLR,
    Optimizer, OptimizerGroup, ReduceLROnPlateau, SGD, StepLR,
};
use gradiff::nn::{get_state_dict, load_state_dict};
use gradiff::{DType, Error, Tensor};

use super::Draw;
use super::modules::{agree, eighths};

/// Number of steps of an optimiser.
const STEPS: usize = 3;
/// Number of steps of a schedule.
const RATES: u64 = 8;
/// The iterations of Newton and Schulz, and their coefficients.
const ITERATIONS: usize = 2;
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

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Sgd,
    Lars,
    Muon,
    Adam,
    AdamW,
    Lamb,
}

#[derive(Clone, Copy, Debug)]
struct Options {
    kind: Kind,
    lr: f64,
    momentum: f64,
    decay: f64,
    is_nesterov: bool,
    is_classic: bool,
    tcoef: f64,
    betas: [f64; 2],
    eps: f64,
}

impl Options {
    fn draw(draw: &mut Draw) -> Options {
        let kinds = [Kind::Sgd, Kind::Lars, Kind::Muon, Kind::Adam, Kind::AdamW, Kind::Lamb];
        let kind = draw.pick(&kinds);
        let decay = draw.pick(&[0.0, 0.25, 0.01]);
        let tcoef = draw.pick(&[0.001, 1.0, 0.0]);
        Options {
            kind,
            lr: draw.pick(&[0.5, 0.25, 0.125]),
            momentum: draw.pick(&[0.9, 0.5, 0.0]),
            decay: if kind == Kind::Adam { 0.0 } else { decay },
            is_nesterov: draw.one_in(2),
            is_classic: kind != Kind::Muon && draw.one_in(2),
            tcoef: if kind == Kind::Lars { tcoef } else { 0.0 },
            betas: draw.pick(&[[0.9, 0.999], [0.5, 0.75], [0.0, 0.0]]),
            eps: draw.pick(&[1e-8, 1e-3]),
        }
    }

    fn optimizer(&self, tensors: Vec<Tensor>) -> Result<Box<dyn Optimizer>, Error> {
        let Options { lr, momentum, decay, is_nesterov, is_classic, betas: [b1, b2], .. } = *self;
        let optimizer: Box<dyn Optimizer> = match self.kind {
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
                Box::new(muon.nesterov(is_nesterov).newton_schulz(ITERATIONS, COEFFICIENTS))
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
            Kind::Adam | Kind::AdamW | Kind::Lamb => self.adapt(gradient),
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
            update = orthogonalized(&update, self.columns);
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
fn orthogonalized(update: &[f64], columns: usize) -> Vec<f64> {
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
    for _ in 0..ITERATIONS {
        let (first, second) = (applied(&x, &x), applied(&x, &applied(&x, &x)));
        let terms = x.iter().zip(first).zip(second);
        let [c0, c1, c2] = COEFFICIENTS;
        x = terms.map(|((x, first), second)| c0 * x + c1 * first + c2 * second).collect();
    }
    x
}

/// A parameter, and its model.
struct Parameter {
    shape: [i64; 2],
    tensor: Tensor,
    model: Model,
}

impl Parameter {
    fn new(
        dtype: DType,
        shape: [i64; 2],
        options: Options,
        values: Vec<f64>,
    ) -> Result<Parameter, Error> {
        let tensor = tensor(dtype, &shape, &values)?;
        Ok(Parameter { shape, tensor, model: Model::new(options, shape[1] as usize, values) })
    }
}

/// Parameters with an optimiser: one, or a wide one and a column.
struct Trained {
    dtype: DType,
    tolerance: f64,
    parameters: Vec<Parameter>,
    /// A tensor that the optimiser must not change.
    buffer: Tensor,
    options: Options,
}

/// The numbers of a column, from those of the parameter before it.
fn of_column(numbers: &[f64], count: usize) -> Vec<f64> {
    numbers.iter().take(count).map(|number| 0.25 - number / 2.0).collect()
}

impl Trained {
    fn draw(draw: &mut Draw) -> Result<Trained, Error> {
        let options = Options::draw(draw);
        let (dtype, tolerance) = draw.pick(&DTYPES);
        let shape = draw.pick(&[[2, 3], [3, 2], [1, 4], [2, 2]]);
        let values = eighths(draw, (shape[0] * shape[1]) as usize);
        let column = of_column(&values, shape[1] as usize);
        let mut parameters = vec![Parameter::new(dtype, shape, options, values)?];
        if shape[0] < shape[1] {
            parameters.push(Parameter::new(dtype, [shape[1], 1], options, column)?);
        }
        let buffer = parameters[0].tensor.contiguous().requires_grad_(false)?;
        Ok(Trained { dtype, tolerance, parameters, buffer, options })
    }

    fn optimizer(&self) -> Result<Box<dyn Optimizer>, Error> {
        let parameters = self.parameters.iter().map(|part| part.tensor.clone());
        self.options.optimizer([self.buffer.clone()].into_iter().chain(parameters).collect())
    }

    /// Computes gradients of a linear function, once or twice.
    fn backward(&mut self, draw: &mut Draw) -> Result<(), Error> {
        let zeros = |part: &Parameter| vec![0.0; part.model.values.len()];
        let mut gradients: Vec<Vec<f64>> = self.parameters.iter().map(zeros).collect();
        for factor in [2, 1].into_iter().take(1 + draw.below(2)) {
            let mut weights = eighths(draw, gradients[0].len());
            for (part, gradient) in self.parameters.iter().zip(&mut gradients) {
                subtract(gradient, &weights, -f64::from(factor));
                let tensor = tensor(self.dtype, &part.shape, &weights)?;
                part.tensor.mul(factor)?.backward_by(&tensor)?;
                weights = of_column(&weights, part.shape[1] as usize);
            }
        }
        let parts = self.parameters.iter_mut().zip(&gradients);
        parts.for_each(|(part, gradient)| part.model.step(gradient));
        Ok(())
    }

    fn check(&self, buffered: &[f64]) -> Result<(), String> {
        let label = format!("{:?} of {}", self.options, self.dtype);
        let read = |tensor: &Tensor| tensor.detach().cast(DType::F64)?.to_vec::<f64>();
        for Parameter { shape, tensor, model } in &self.parameters {
            let label = format!("{label}{shape:?}");
            let found = read(tensor).map_err(|error| format!("{label}: {error}"))?;
            agree(&label, &found, &model.values, self.tolerance)?;
        }
        let found = read(&self.buffer).map_err(|error| format!("{label}: {error}"))?;
        agree(&format!("buffer of {label}"), &found, buffered, 0.0)
    }
}

/// A tensor for the interpreter.
fn tensor(dtype: DType, shape: &[i64], values: &[f64]) -> Result<Tensor, Error> {
    Tensor::from_slice(shape, values)?.to("interp")?.cast(dtype)
}

/// Draws optimisers, and compares their parameters after each step with those of a loop. Before the
/// second step, the rate is changed and the state is moved to new optimisers. Some steps are not
/// run.
pub(super) fn match_scalar_loops(draw: &mut Draw) -> Result<(), String> {
    let problem = |error: Error| error.to_string();
    let count = if draw.one_in(3) { 2 } else { 1 };
    let mut trained = Vec::with_capacity(count);
    for _ in 0..count {
        trained.push(Trained::draw(draw).map_err(problem)?);
    }
    let values = |part: &Trained| part.parameters[0].model.values.clone();
    let buffered: Vec<Vec<f64>> = trained.iter().map(values).collect();
    let optimizers = trained.iter().map(Trained::optimizer).collect::<Result<_, _>>();
    let mut group = OptimizerGroup::new(optimizers.map_err(problem)?);
    let _training = Tensor::train(true);
    for step in 0..STEPS {
        group.zero_grad();
        for (part, slot) in trained.iter_mut().zip(&mut group.optimizers) {
            if step == 1 {
                change(part, slot).map_err(problem)?;
            }
            part.backward(draw).map_err(problem)?;
        }
        let stepped = match draw.one_in(4) {
            // The values are computed by a later step, or where they are read.
            true => group.optimizers.iter_mut().try_for_each(|x| x.schedule_step().map(drop)),
            false => group.step(),
        };
        stepped.map_err(problem)?;
        for (part, buffered) in trained.iter().zip(&buffered) {
            part.check(buffered).map_err(|problem| format!("step {step}: {problem}"))?;
        }
    }
    // No gradient, no step.
    group.zero_grad();
    match group.step() {
        Err(Error::Invalid(_)) => Ok(()),
        answer => Err(format!("a step without gradients: {answer:?}")),
    }
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

/// A schedule that depends on the number of steps alone.
#[derive(Clone, Copy, Debug)]
enum Schedule {
    Step { size: u64, gamma: f64 },
    Milestones { first: u64, second: u64, gamma: f64 },
    Cosine { t_max: u64, eta_min: f64 },
    Cycle { max_lr: f64, div: f64, final_div: f64, total: u64, pct_start: f64 },
}

impl Schedule {
    fn draw(draw: &mut Draw) -> Schedule {
        let gamma = draw.pick(&[0.5, 0.1, 2.0]);
        let count = 1 + draw.below(5) as u64;
        match draw.below(4) {
            0 => Schedule::Step { size: count, gamma },
            1 => Schedule::Milestones { first: count, second: count + 2, gamma },
            2 => Schedule::Cosine { t_max: count, eta_min: draw.pick(&[0.0, 0.125]) },
            _ => {
                let (div, final_div) = (draw.pick(&[4.0, 25.0]), draw.pick(&[2.0, 100.0]));
                let pct_start = draw.pick(&[0.5, 0.3]);
                Schedule::Cycle { max_lr: 1.0, div, final_div, total: 2 + count, pct_start }
            }
        }
    }

    fn create(self, optimizer: &mut SGD) -> Result<Box<dyn LRScheduler>, Error> {
        let scheduler: Box<dyn LRScheduler> = match self {
            Schedule::Step { size, gamma } => Box::new(StepLR::new(optimizer, size, gamma)?),
            Schedule::Milestones { first, second, gamma } => {
                Box::new(MultiStepLR::new(optimizer, &[first, second], gamma)?)
            }
            Schedule::Cosine { t_max, eta_min } => {
                Box::new(CosineAnnealingLR::new(optimizer, t_max, eta_min)?)
            }
            Schedule::Cycle { max_lr, div, final_div, total, pct_start } => {
                Box::new(OneCycleLR::new(optimizer, max_lr, div, final_div, total, pct_start)?)
            }
        };
        Ok(scheduler)
    }

    /// The rate after so many steps from a first one of 1.
    fn rate(self, steps: u64) -> f64 {
        match self {
            Schedule::Step { size, gamma } => {
                (1..=steps).filter(|step| step.is_multiple_of(size)).map(|_| gamma).product()
            }
            Schedule::Milestones { first, second, gamma } => {
                [first, second].iter().filter(|at| **at <= steps).map(|_| gamma).product()
            }
            Schedule::Cosine { t_max, eta_min } => {
                let angle = std::f64::consts::PI * steps as f64 / t_max as f64;
                eta_min + (1.0 - eta_min) * (1.0 + angle.cos()) / 2.0
            }
            Schedule::Cycle { max_lr, div, final_div, total, pct_start } => {
                let (low, last) = (max_lr / div, max_lr / div / final_div);
                let (rising, total) = (total as f64 * pct_start, total as f64);
                match steps as f64 {
                    steps if steps < rising => low + (max_lr - low) * steps / rising,
                    steps if total <= steps => last,
                    steps => max_lr + (last - max_lr) * (steps - rising) / (total - rising),
                }
            }
        }
    }
}

/// Draws schedules, and compares their rates with formulas. Midway their state is moved to new
/// ones.
pub(super) fn schedules(draw: &mut Draw) -> Result<(), String> {
    let problem = |error: Error| error.to_string();
    let sgd = || SGD::new([Tensor::from_slice(&[1], &[0.0f32])?], 1.0);
    let mut optimizer = sgd().map_err(problem)?;
    let schedule = Schedule::draw(draw);
    let mut scheduler = schedule.create(&mut optimizer).map_err(problem)?;
    for steps in 1..=RATES {
        if steps == RATES / 2 {
            let mut unused = sgd().map_err(problem)?;
            let mut next = schedule.create(&mut unused).map_err(problem)?;
            let state = scheduler.state_dict().map_err(problem)?;
            next.load_state_dict(&state).map_err(problem)?;
            scheduler = next;
        }
        scheduler.step(&mut optimizer).map_err(problem)?;
        let found = [scheduler.lr_after(steps), optimizer.lr().map_err(problem)?];
        let label = format!("{schedule:?} after {steps} steps");
        agree(&label, &found, &[schedule.rate(steps); 2], 1e-6)?;
    }
    plateau(draw)
}

/// Draws metrics, and compares the rate with that of a loop that lowers it when the metric was not
/// better for more than `patience` steps.
fn plateau(draw: &mut Draw) -> Result<(), String> {
    let problem = |error: Error| error.to_string();
    let tensor = Tensor::from_slice(&[1], &[0.0f32]).map_err(problem)?;
    let mut optimizer = SGD::new([tensor], 1.0).map_err(problem)?;
    let metric = draw.pick(&[
        Metric::MinRelative(0.25),
        Metric::MinAbsolute(0.5),
        Metric::MaxRelative(0.25),
        Metric::MaxAbsolute(0.5),
    ]);
    let (factor, patience) = (draw.pick(&[0.5, 0.1]), draw.below(3) as u64);
    let create = || ReduceLROnPlateau::default().metric(metric).factor(factor).patience(patience);
    let mut scheduler = create();
    let (mut best, mut bad, mut rate): (Option<f64>, u64, f64) = (None, 0, 1.0);
    let mut seen = Vec::new();
    for steps in 1..=RATES {
        let current = draw.pick(&[1.0, 2.0, 1.25, 1.5, 0.5, 4.0, f64::NAN]);
        seen.push(current);
        let is_better = match (metric, best) {
            (_, None) => !current.is_nan(),
            (Metric::MinRelative(by), Some(best)) => current < best - by * best,
            (Metric::MinAbsolute(by), Some(best)) => current < best - by,
            (Metric::MaxRelative(by), Some(best)) => current > best + by * best,
            (Metric::MaxAbsolute(by), Some(best)) => current > best + by,
        };
        (best, bad) = if is_better { (Some(current), 0) } else { (best, bad + 1) };
        if bad > patience {
            (rate, bad) = (rate * factor, 0);
        }
        if steps == RATES / 2 {
            let mut next = create();
            let state = scheduler.state_dict().map_err(problem)?;
            next.load_state_dict(&state).map_err(problem)?;
            scheduler = next;
        }
        scheduler.step(&mut optimizer, current).map_err(problem)?;
        let found = optimizer.lr().map_err(problem)?;
        let label = format!("{metric:?}, factor {factor}, patience {patience}, of {seen:?}");
        agree(&label, &[found], &[rate], 1e-6)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn optimisers_match_loops() {
        for seed in 0..60 {
            let checked = match_scalar_loops(&mut Draw::new(seed));
            checked.unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        }
    }

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
        trained.parameters[1].model.values[0] += 0.5;
        assert!(trained.check(&buffered).is_err());
    }

    #[test]
    fn schedules_match_formulas() {
        for seed in 0..100 {
            schedules(&mut Draw::new(seed)).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        }
    }

    /// Each option changes the steps, so that an optimiser that ignores it is found.
    #[test]
    fn options_change_steps() {
        let plain = |kind| Options {
            kind,
            lr: 0.5,
            momentum: 0.0,
            decay: 0.0,
            is_nesterov: false,
            is_classic: false,
            tcoef: 0.0,
            betas: [0.5, 0.75],
            eps: 1e-8,
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
