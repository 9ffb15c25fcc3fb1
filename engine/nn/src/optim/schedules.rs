//! Schedules of the learning rate, after tinygrad's `lr_scheduler`.
//!
//! A schedule counts its steps and sets the rate of an optimiser after each. All but
//! [`ReduceLROnPlateau`] compute it from the rate at their creation and the count.
//!
//! The state of a schedule is numbers, so a schedule is no [`State`](crate::State): `state_dict`
//! returns the numbers as tensors, for a file, and `load_state_dict` sets them. They are those that
//! change or are taken from the optimiser; arguments of the creation are not among them.

use std::collections::BTreeMap;
use std::f64::consts::PI;

use gradiff_tensor::{Error, Tensor};

use super::optimizer::{Optimizer, check_rate};
use crate::functional::invalid;
use crate::load_state_dict;

/// A schedule that depends on the number of steps alone.
pub trait LRScheduler {
    /// Counts a step and sets the rate of the optimiser.
    /// # Errors
    /// If the rate is not finite in f32.
    fn step(&mut self, optimizer: &mut dyn Optimizer) -> Result<(), Error>;

    /// Returns the rate after so many steps.
    fn lr_after(&self, steps: u64) -> f64;

    /// Returns the state by name, each number f64 [1]: the `count` of steps, and the `base` rate
    /// unless it is an argument of the creation. A later process goes on from it and the state of
    /// the optimiser.
    ///
    /// ```
    /// # use gradiff_nn::optim::{LRScheduler, Optimizer, SGD, StepLR};
    /// # use gradiff_nn::{get_state_dict, load_state_dict};
    /// # use gradiff_tensor::{Error, Tensor};
    /// let new = || -> Result<(SGD, StepLR), Error> {
    ///     let optimizer = SGD::new([Tensor::from_slice(&[1], &[0.0f32])?], 1.0)?;
    ///     let schedule = StepLR::new(&optimizer, 1, 0.5)?;
    ///     Ok((optimizer, schedule))
    /// };
    /// let (mut optimizer, mut schedule) = new()?;
    /// schedule.step(&mut optimizer)?;
    /// let (tensors, numbers) = (get_state_dict(&optimizer), schedule.state_dict()?);
    ///
    /// // A later process creates both as before, and loads their states.
    /// let (mut optimizer, mut schedule) = new()?;
    /// load_state_dict(&optimizer, &tensors)?;
    /// schedule.load_state_dict(&numbers)?;
    /// schedule.step(&mut optimizer)?;
    /// assert_eq!(optimizer.lr()?, 0.25);
    /// # Ok::<(), Error>(())
    /// ```
    /// # Errors
    /// If a tensor cannot be created.
    fn state_dict(&self) -> Result<BTreeMap<String, Tensor>, Error>;

    /// Sets the state to that which [`state_dict`](LRScheduler::state_dict) returned. The rate of
    /// the optimiser, which is a part of the optimiser's state, changes with the next step.
    /// # Errors
    /// As [`load_state_dict`](crate::load_state_dict), and if the count is not a count. The
    /// schedule is unchanged then.
    fn load_state_dict(&mut self, tensors: &BTreeMap<String, Tensor>) -> Result<(), Error>;
}

/// Multiplies the rate by `gamma` after each `step_size` steps.
///
/// ```
/// # use gradiff_nn::optim::{LRScheduler, Optimizer, SGD, StepLR};
/// # use gradiff_tensor::Tensor;
/// let mut optimizer = SGD::new([Tensor::from_slice(&[1], &[0.0f32])?], 1.0)?;
/// let mut schedule = StepLR::new(&optimizer, 2, 0.5)?;
/// schedule.step(&mut optimizer)?;
/// assert_eq!(optimizer.lr()?, 1.0);
/// schedule.step(&mut optimizer)?;
/// assert_eq!(optimizer.lr()?, 0.5);
/// # Ok::<(), gradiff_tensor::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct StepLR {
    base: f64,
    step_size: u64,
    gamma: f64,
    count: u64,
}

impl StepLR {
    /// Creates a schedule; 0.1 is a usual `gamma`.
    /// # Errors
    /// If `step_size` is 0, or the rate cannot be read.
    pub fn new(optimizer: &dyn Optimizer, step_size: u64, gamma: f64) -> Result<StepLR, Error> {
        if step_size == 0 {
            return invalid("StepLR with step_size 0: it must be 1 or more");
        }
        Ok(StepLR { base: optimizer.lr()?, step_size, gamma, count: 0 })
    }

    fn rate(&self, steps: u64) -> f64 {
        self.base * self.gamma.powf((steps / self.step_size) as f64)
    }
}

/// Multiplies the rate by `gamma` at each milestone.
///
/// ```
/// # use gradiff_nn::optim::{LRScheduler, MultiStepLR, Optimizer, SGD};
/// # use gradiff_tensor::Tensor;
/// let optimizer = SGD::new([Tensor::from_slice(&[1], &[0.0f32])?], 1.0)?;
/// let schedule = MultiStepLR::new(&optimizer, &[3, 5], 0.5)?;
/// assert_eq!([2, 3, 4, 5].map(|steps| schedule.lr_after(steps)), [1.0, 0.5, 0.5, 0.25]);
/// # Ok::<(), gradiff_tensor::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct MultiStepLR {
    base: f64,
    milestones: Vec<u64>,
    gamma: f64,
    count: u64,
}

impl MultiStepLR {
    /// Creates a schedule; 0.1 is a usual `gamma`.
    /// # Errors
    /// If the rate cannot be read.
    pub fn new(
        optimizer: &dyn Optimizer,
        milestones: &[u64],
        gamma: f64,
    ) -> Result<MultiStepLR, Error> {
        let milestones = milestones.to_vec();
        Ok(MultiStepLR { base: optimizer.lr()?, milestones, gamma, count: 0 })
    }

    fn rate(&self, steps: u64) -> f64 {
        let passed = self.milestones.iter().filter(|milestone| **milestone <= steps).count();
        self.base * self.gamma.powf(passed as f64)
    }
}

/// Goes from the rate at the creation to `eta_min` in `t_max` steps, on half a cosine, and back
/// after that.
///
/// ```
/// # use gradiff_nn::optim::{CosineAnnealingLR, LRScheduler, Optimizer, SGD};
/// # use gradiff_tensor::Tensor;
/// let optimizer = SGD::new([Tensor::from_slice(&[1], &[0.0f32])?], 1.0)?;
/// let schedule = CosineAnnealingLR::new(&optimizer, 10, 0.0)?;
/// assert!((schedule.lr_after(5) - 0.5).abs() < 1e-9 && schedule.lr_after(10).abs() < 1e-9);
/// # Ok::<(), gradiff_tensor::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct CosineAnnealingLR {
    base: f64,
    t_max: u64,
    eta_min: f64,
    count: u64,
}

impl CosineAnnealingLR {
    /// Creates a schedule.
    /// # Errors
    /// If `t_max` is 0, or the rate cannot be read.
    pub fn new(
        optimizer: &dyn Optimizer,
        t_max: u64,
        eta_min: f64,
    ) -> Result<CosineAnnealingLR, Error> {
        if t_max == 0 {
            return invalid("CosineAnnealingLR with t_max 0: it must be 1 or more");
        }
        Ok(CosineAnnealingLR { base: optimizer.lr()?, t_max, eta_min, count: 0 })
    }

    fn rate(&self, steps: u64) -> f64 {
        let angle = steps as f64 / self.t_max as f64 * PI;
        self.eta_min + 0.5 * (self.base - self.eta_min) * (1.0 + angle.cos())
    }
}

/// Rises from `max_lr / div_factor` to `max_lr` in the share `pct_start` of the steps, and falls to
/// the first rate divided by `final_div_factor` in the others, on straight lines.
///
/// ```
/// # use gradiff_nn::optim::{LRScheduler, OneCycleLR, Optimizer, SGD};
/// # use gradiff_tensor::Tensor;
/// let mut optimizer = SGD::new([Tensor::from_slice(&[1], &[0.0f32])?], 1.0)?;
/// let schedule = OneCycleLR::new(&mut optimizer, 8.0, 8.0, 2.0, 10, 0.5)?;
/// assert_eq!(optimizer.lr()?, 1.0);
/// assert_eq!([0, 5, 10].map(|steps| schedule.lr_after(steps)), [1.0, 8.0, 0.5]);
/// # Ok::<(), gradiff_tensor::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct OneCycleLR {
    max_lr: f64,
    initial_lr: f64,
    min_lr: f64,
    /// The number of steps up.
    rising: f64,
    /// The number of steps down.
    falling: f64,
    count: u64,
}

impl OneCycleLR {
    /// Creates a schedule, and sets the first rate.
    /// # Errors
    /// If `pct_start` is not above 0 and below 1, there is no step, or a rate is not finite or
    /// negative.
    pub fn new(
        optimizer: &mut dyn Optimizer,
        max_lr: f64,
        div_factor: f64,
        final_div_factor: f64,
        total_steps: u64,
        pct_start: f64,
    ) -> Result<OneCycleLR, Error> {
        if !(0.0 < pct_start && pct_start < 1.0) || total_steps == 0 {
            return invalid(format!(
                "OneCycleLR of {total_steps} steps with pct_start {pct_start}: there must be a \
                 step, and the share must be above 0 and below 1"
            ));
        }
        let initial_lr = max_lr / div_factor;
        let min_lr = initial_lr / final_div_factor;
        let rising = total_steps as f64 * pct_start;
        let falling = total_steps as f64 - rising;
        [max_lr, min_lr].into_iter().try_for_each(check_rate)?;
        let schedule = OneCycleLR { max_lr, initial_lr, min_lr, rising, falling, count: 0 };
        optimizer.set_lr(schedule.rate(0))?;
        Ok(schedule)
    }

    fn rate(&self, steps: u64) -> f64 {
        let steps = steps as f64;
        let between = |start: f64, end: f64, share: f64| start + (end - start) * share;
        match steps < self.rising {
            true => between(self.initial_lr, self.max_lr, steps / self.rising),
            false => {
                // After the last step the rate stays.
                let share = ((steps - self.rising) / self.falling).min(1.0);
                between(self.max_lr, self.min_lr, share)
            }
        }
    }
}

/// Returns numbers as tensors by name, each f64 [1].
fn saved<const COUNT: usize>(
    numbers: [(&str, f64); COUNT],
) -> Result<BTreeMap<String, Tensor>, Error> {
    let mut tensors = BTreeMap::new();
    for (name, number) in numbers {
        tensors.insert(name.to_string(), Tensor::from_slice(&[1], &[number])?);
    }
    Ok(tensors)
}

/// Returns the numbers of tensors that must have these names.
fn loaded<const COUNT: usize>(
    names: [&str; COUNT],
    tensors: &BTreeMap<String, Tensor>,
) -> Result<[f64; COUNT], Error> {
    let parts = saved(names.map(|name| (name, 0.0)))?;
    load_state_dict(&parts, tensors)?;
    let mut numbers = [0.0; COUNT];
    for (number, name) in numbers.iter_mut().zip(names) {
        *number = parts[name].item::<f64>()?;
    }
    Ok(numbers)
}

/// Returns a number of a state as a count: an integer that f64 represents, 0 or more.
fn whole(name: &str, number: f64) -> Result<u64, Error> {
    let largest = (1u64 << 53) as f64;
    if !(0.0..=largest).contains(&number) || number.fract() != 0.0 {
        return invalid(format!(
            "load_state_dict: {name} is {number}, and must be an integer from 0 to {largest}"
        ));
    }
    Ok(number as u64)
}

/// Implements the trait for schedules with a count and a function `rate` of it; in parentheses the
/// field of the rate at the creation.
macro_rules! schedules {
    ($($schedule:ident($($base:ident)?))*) => {$(
        impl LRScheduler for $schedule {
            fn step(&mut self, optimizer: &mut dyn Optimizer) -> Result<(), Error> {
                self.count += 1;
                optimizer.set_lr(self.rate(self.count))
            }

            fn lr_after(&self, steps: u64) -> f64 {
                self.rate(steps)
            }

            fn state_dict(&self) -> Result<BTreeMap<String, Tensor>, Error> {
                saved([
                    ("count", self.count as f64),
                    $((stringify!($base), self.$base),)?
                ])
            }

            fn load_state_dict(&mut self, tensors: &BTreeMap<String, Tensor>) -> Result<(), Error> {
                let [count, $($base,)?] = loaded(["count", $(stringify!($base),)?], tensors)?;
                $(check_rate($base)?;)?
                self.count = whole("count", count)?;
                $(self.$base = $base;)?
                Ok(())
            }
        }
    )*};
}

schedules! { StepLR(base) MultiStepLR(base) CosineAnnealingLR(base) OneCycleLR() }

/// The change of a metric that [`ReduceLROnPlateau`] takes as better.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Metric {
    /// Lower than the best by this share of it.
    MinRelative(f64),
    /// Lower than the best by this amount.
    MinAbsolute(f64),
    /// Higher than the best by this share of it.
    MaxRelative(f64),
    /// Higher than the best by this amount.
    MaxAbsolute(f64),
}

/// Multiplies the rate by a factor when a metric was not better for more than `patience` steps.
///
/// ```
/// # use gradiff_nn::optim::{Optimizer, ReduceLROnPlateau, SGD};
/// # use gradiff_tensor::Tensor;
/// let mut optimizer = SGD::new([Tensor::from_slice(&[1], &[0.0f32])?], 1.0)?;
/// let mut schedule = ReduceLROnPlateau::default().factor(0.5).patience(1);
/// for loss in [3.0, 2.0, 2.0, 2.0] {
///     schedule.step(&mut optimizer, loss)?;
/// }
/// assert_eq!(optimizer.lr()?, 0.5);
/// # Ok::<(), gradiff_tensor::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct ReduceLROnPlateau {
    metric: Metric,
    factor: f64,
    patience: u64,
    best: Option<f64>,
    bad_steps: u64,
}

impl Default for ReduceLROnPlateau {
    /// Lower by 1e-4 of the best is better; the factor is 0.1, the patience 10.
    fn default() -> ReduceLROnPlateau {
        ReduceLROnPlateau {
            metric: Metric::MinRelative(1e-4),
            factor: 0.1,
            patience: 10,
            best: None,
            bad_steps: 0,
        }
    }
}

impl ReduceLROnPlateau {
    /// Sets the change that is better.
    ///
    /// ```
    /// # use gradiff_nn::optim::{Metric, Optimizer, ReduceLROnPlateau, SGD};
    /// # use gradiff_tensor::Tensor;
    /// let mut optimizer = SGD::new([Tensor::from_slice(&[1], &[0.0f32])?], 1.0)?;
    /// let schedule = ReduceLROnPlateau::default().metric(Metric::MaxAbsolute(0.01));
    /// let mut schedule = schedule.factor(0.5).patience(0);
    /// schedule.step(&mut optimizer, 0.9)?;
    /// schedule.step(&mut optimizer, 0.905)?;
    /// assert_eq!(optimizer.lr()?, 0.5);
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    #[must_use]
    pub fn metric(self, metric: Metric) -> ReduceLROnPlateau {
        ReduceLROnPlateau { metric, ..self }
    }

    /// Sets the factor.
    #[must_use]
    pub fn factor(self, factor: f64) -> ReduceLROnPlateau {
        ReduceLROnPlateau { factor, ..self }
    }

    /// Sets the number of steps that may be no better.
    #[must_use]
    pub fn patience(self, patience: u64) -> ReduceLROnPlateau {
        ReduceLROnPlateau { patience, ..self }
    }

    /// Returns whether the metric is better than the best, or, if there is none, than the worst.
    fn is_better(&self, current: f64) -> bool {
        let Some(best) = self.best else {
            return match self.metric {
                Metric::MinRelative(_) | Metric::MinAbsolute(_) => current < f64::INFINITY,
                Metric::MaxRelative(_) | Metric::MaxAbsolute(_) => f64::NEG_INFINITY < current,
            };
        };
        match self.metric {
            Metric::MinRelative(share) => current < best * (1.0 - share),
            Metric::MinAbsolute(amount) => current < best - amount,
            Metric::MaxRelative(share) => best * (1.0 + share) < current,
            Metric::MaxAbsolute(amount) => best + amount < current,
        }
    }

    /// Takes the metric after a step, and lowers the rate of the optimiser if it is time.
    /// # Errors
    /// If the rate cannot be read, or is not finite in f32.
    pub fn step(&mut self, optimizer: &mut dyn Optimizer, current: f64) -> Result<(), Error> {
        match self.is_better(current) {
            true => (self.best, self.bad_steps) = (Some(current), 0),
            false => self.bad_steps += 1,
        }
        if self.patience < self.bad_steps {
            optimizer.set_lr(optimizer.lr()? * self.factor)?;
            self.bad_steps = 0;
        }
        Ok(())
    }

    /// Returns the state by name, each number f64 [1]: the `best` metric, NaN before there is one,
    /// and the number of `bad_steps` since then or since the rate was lowered. A later process goes
    /// on from it and the state of the optimiser.
    ///
    /// ```
    /// # use gradiff_nn::optim::{Optimizer, ReduceLROnPlateau, SGD};
    /// # use gradiff_tensor::Tensor;
    /// let mut optimizer = SGD::new([Tensor::from_slice(&[1], &[0.0f32])?], 1.0)?;
    /// let mut schedule = ReduceLROnPlateau::default().factor(0.5).patience(1);
    /// schedule.step(&mut optimizer, 2.0)?;
    /// schedule.step(&mut optimizer, 2.0)?;
    /// let mut resumed = ReduceLROnPlateau::default().factor(0.5).patience(1);
    /// resumed.load_state_dict(&schedule.state_dict()?)?;
    /// resumed.step(&mut optimizer, 2.0)?;
    /// assert_eq!(optimizer.lr()?, 0.5);
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    /// # Errors
    /// If a tensor cannot be created.
    pub fn state_dict(&self) -> Result<BTreeMap<String, Tensor>, Error> {
        let best = self.best.unwrap_or(f64::NAN);
        saved([("best", best), ("bad_steps", self.bad_steps as f64)])
    }

    /// Sets the state to that which [`state_dict`](ReduceLROnPlateau::state_dict) returned.
    /// # Errors
    /// As [`LRScheduler::load_state_dict`].
    pub fn load_state_dict(&mut self, tensors: &BTreeMap<String, Tensor>) -> Result<(), Error> {
        let [best, bad_steps] = loaded(["best", "bad_steps"], tensors)?;
        self.bad_steps = whole("bad_steps", bad_steps)?;
        self.best = (!best.is_nan()).then_some(best);
        Ok(())
    }
}
