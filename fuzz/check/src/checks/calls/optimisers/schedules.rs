//! Schedules of the learning rate, against formulas and loops.

use gradiff::nn::optim::{
    CosineAnnealingLR, LRScheduler, Metric, MultiStepLR, OneCycleLR, Optimizer, ReduceLROnPlateau,
    SGD, StepLR,
};
use gradiff::{Error, Tensor};

use super::agree;
use crate::checks::calls::Draw;

/// Number of steps of a schedule.
const SCHEDULE_STEPS: u64 = 8;

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
            1 => {
                let (first, second) = (count, count + 2);
                match draw.one_in(2) {
                    true => Schedule::Milestones { first, second, gamma },
                    // They need no order.
                    false => Schedule::Milestones { first: second, second: first, gamma },
                }
            }
            2 => Schedule::Cosine { t_max: count, eta_min: draw.pick(&[0.0, 0.125]) },
            _ => {
                let (div, final_div) = (draw.pick(&[4.0, 25.0]), draw.pick(&[2.0, 100.0]));
                let pct_start = draw.pick(&[0.5, 0.3]);
                Schedule::Cycle { max_lr: 2.0, div, final_div, total: 2 + count, pct_start }
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

    /// The rate after so many steps from a first one, which a cycle does not use.
    fn rate(self, base: f64, steps: u64) -> f64 {
        match self {
            Schedule::Step { size, gamma } => {
                base * (1..=steps)
                    .filter(|step| step.is_multiple_of(size))
                    .map(|_| gamma)
                    .product::<f64>()
            }
            Schedule::Milestones { first, second, gamma } => {
                let passed = [first, second].into_iter().filter(|at| *at <= steps);
                base * passed.map(|_| gamma).product::<f64>()
            }
            Schedule::Cosine { t_max, eta_min } => {
                let angle = std::f64::consts::PI * steps as f64 / t_max as f64;
                eta_min + (base - eta_min) * (1.0 + angle.cos()) / 2.0
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
/// ones, which were created for an optimiser of another rate.
pub(in crate::checks::calls) fn schedules(draw: &mut Draw) -> Result<(), String> {
    let problem = |error: Error| error.to_string();
    let sgd = |lr: f64| SGD::new([Tensor::from_slice(&[1], &[0.0f32])?], lr);
    let base = draw.pick(&[1.0, 0.25]);
    let mut optimizer = sgd(base).map_err(problem)?;
    let schedule = Schedule::draw(draw);
    let mut scheduler = schedule.create(&mut optimizer).map_err(problem)?;
    for steps in 0..=SCHEDULE_STEPS {
        if steps == SCHEDULE_STEPS / 2 {
            let mut unused = sgd(0.5).map_err(problem)?;
            let mut next = schedule.create(&mut unused).map_err(problem)?;
            let state = scheduler.state_dict().map_err(problem)?;
            let names: Vec<&str> = state.keys().map(String::as_str).collect();
            let wanted: &[&str] = match schedule {
                Schedule::Cycle { .. } => &["count"],
                _ => &["base", "count"],
            };
            if names != wanted {
                return Err(format!("{schedule:?}: the state has {names:?}, not {wanted:?}"));
            }
            next.load_state_dict(&state).map_err(problem)?;
            scheduler = next;
        }
        // Before the first step, the rate is that of the optimiser, or the first of a cycle.
        if steps != 0 {
            scheduler.step(&mut optimizer).map_err(problem)?;
        }
        let found = [scheduler.lr_after(steps), optimizer.lr().map_err(problem)?];
        let label = format!("{schedule:?} of {base} after {steps} steps");
        agree(&label, &found, &[schedule.rate(base, steps); 2], 1e-6)?;
    }
    if draw.one_in(2) {
        damaged(draw, schedule, &mut *scheduler, base)?;
    }
    plateau(draw)
}

/// Loads a damaged state, which changes nothing.
fn damaged(
    draw: &mut Draw,
    schedule: Schedule,
    scheduler: &mut dyn LRScheduler,
    base: f64,
) -> Result<(), String> {
    let problem = |error: Error| error.to_string();
    let mut state = scheduler.state_dict().map_err(problem)?;
    let names: Vec<String> = state.keys().cloned().collect();
    let name = &names[draw.below(names.len())];
    // Counts are integers, and rates are finite in f32; none is negative.
    let number = match name.as_str() {
        "count" => draw.pick(&[-1.0, 2.5, f64::NAN, 2f64.powi(53) + 2.0]),
        _ => draw.pick(&[-1.0, f64::NAN, f64::INFINITY, 1e39]),
    };
    let kind = draw.below(4);
    let damage = match kind {
        0 => state.remove(name),
        1 => state.insert("unknown".to_string(), state[name].clone()),
        2 => {
            let number = Tensor::from_slice(&[1], &[1.0f32]).map_err(problem)?;
            state.insert(name.clone(), number)
        }
        _ => {
            // Both numbers are there, so that a part of the state may be changed by mistake.
            let count = Tensor::from_slice(&[1], &[1.0f64]).map_err(problem)?;
            state.insert("count".to_string(), count);
            let number = Tensor::from_slice(&[1], &[number]).map_err(problem)?;
            state.insert(name.clone(), number)
        }
    };
    drop(damage);
    let label = format!("{schedule:?}: a state with {name} of {number}, damage {kind}");
    match scheduler.load_state_dict(&state) {
        Err(Error::Invalid(_)) => {}
        answer => return Err(format!("{label}: {answer:?}")),
    }
    let found = [scheduler.lr_after(1), scheduler.lr_after(4)];
    agree(&label, &found, &[schedule.rate(base, 1), schedule.rate(base, 4)], 1e-6)?;
    let count = scheduler.state_dict().and_then(|state| state["count"].item::<f64>());
    agree(&label, &[count.map_err(problem)?], &[SCHEDULE_STEPS as f64], 0.0)
}

/// Draws metrics, and compares the rate with that of a loop that lowers it when the metric was not
/// better for more than `patience` steps.
fn plateau(draw: &mut Draw) -> Result<(), String> {
    let problem = |error: Error| error.to_string();
    let tensor = Tensor::from_slice(&[1], &[0.0f32]).map_err(problem)?;
    let mut optimizer = SGD::new([tensor], 1.0).map_err(problem)?;
    let is_new = draw.one_in(4);
    let metric = draw.pick(&[
        Metric::MinRelative(0.25),
        Metric::MinAbsolute(0.5),
        Metric::MaxRelative(0.25),
        Metric::MaxAbsolute(0.5),
    ]);
    let (factor, patience) = (draw.pick(&[0.5, 0.1]), draw.below(3) as u64);
    // The options of the documentation, or those that are drawn.
    let (metric, factor, patience, rates) = match is_new {
        true => (Metric::MinRelative(1e-4), 0.1, 10, 24),
        false => (metric, factor, patience, SCHEDULE_STEPS),
    };
    let create = || match is_new {
        true => ReduceLROnPlateau::default(),
        false => ReduceLROnPlateau::default().metric(metric).factor(factor).patience(patience),
    };
    let metrics = [1.0, 2.0, 1.25, 1.5, 0.5, 4.0, 0.0, -1.0, f64::NAN];
    // The share of a new one is between the differences of the last numbers.
    let close = [1.0, 1.0, 0.9998, 0.99995, f64::INFINITY];
    let mut scheduler = create();
    let (mut best, mut bad, mut rate): (Option<f64>, u64, f64) = (None, 0, 1.0);
    let mut seen = Vec::new();
    for steps in 1..=rates {
        let current = if is_new { draw.pick(&close) } else { draw.pick(&metrics) };
        seen.push(current);
        let is_better = match (metric, best) {
            // Better than the worst.
            (Metric::MinRelative(_) | Metric::MinAbsolute(_), None) => current < f64::INFINITY,
            (_, None) => f64::NEG_INFINITY < current,
            (Metric::MinRelative(by), Some(best)) => current < best - by * best,
            (Metric::MinAbsolute(by), Some(best)) => current < best - by,
            (Metric::MaxRelative(by), Some(best)) => current > best + by * best,
            (Metric::MaxAbsolute(by), Some(best)) => current > best + by,
        };
        (best, bad) = if is_better { (Some(current), 0) } else { (best, bad + 1) };
        if bad > patience {
            (rate, bad) = (rate * factor, 0);
        }
        if steps == rates / 2 {
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
