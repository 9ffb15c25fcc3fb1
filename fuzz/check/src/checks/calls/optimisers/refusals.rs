//! Arguments of optimisers and schedules at both sides of their limits: legal ones are taken,
//! others are refused as invalid, and nothing panics.

use gradiff::nn::optim::{
    Adam, AdamW, CosineAnnealingLR, LAMB, LARS, MultiStepLR, Muon, OneCycleLR, Optimizer, RMSprop,
    ReduceLROnPlateau, SGD, StepLR,
};
use gradiff::nn::{clip_grad_norm, clip_grad_value, get_state_dict};
use gradiff::{DType, Error, Tensor};

use super::{numbers, tensor};
use crate::checks::calls::Draw;
use crate::checks::calls::modules::{Attempt, Kind, attempts};

/// Attempts to create an optimiser or a schedule, or to step.
const KINDS: [Kind; 6] = [creation, decays, option, option, schedule, rate];

/// Rates, and whether they are legal: finite in f32, and not negative.
const RATES: [(f64, bool); 8] = [
    (0.5, true),
    (0.0, true),
    (3e38, true),
    (4e38, false),
    (-1e-9, false),
    (-1.0, false),
    (f64::INFINITY, false),
    (f64::NAN, false),
];

/// Options, and whether they are legal: finite, and not negative.
const NUMBERS: [(f64, bool); 6] = [
    (0.5, true),
    (0.0, true),
    (2.0, true),
    (-0.5, false),
    (f64::INFINITY, false),
    (f64::NAN, false),
];

/// Draws some attempts.
pub(in crate::checks::calls) fn refusals(draw: &mut Draw) -> Result<(), String> {
    attempts(draw, &KINDS)
}

/// A parameter for the interpreter.
fn parameter(dtype: DType, shape: &[i64]) -> Result<Tensor, Error> {
    let count = shape.iter().product::<i64>() as usize;
    tensor(dtype, shape, &vec![1.0; count])
}

/// A parameter with a gradient.
fn with_gradient(shape: &[i64]) -> Result<Tensor, Error> {
    let x = parameter(DType::F32, shape)?.requires_grad_(true)?;
    x.mul(2)?.backward_by(&parameter(DType::F32, shape)?)?;
    Ok(x)
}

/// Parameters and the rate of a new optimiser.
fn creation(draw: &mut Draw) -> Result<Attempt, Error> {
    let (lr, is_rate) = draw.pick(&RATES);
    let shapes: [&[i64]; 4] = [&[2, 2], &[3], &[2, 1, 2], &[]];
    let dtypes = [DType::F32, DType::F64, DType::BF16, DType::I32];
    let (mut tensors, mut has_parameter, mut is_flat, mut is_whole) =
        (Vec::new(), false, false, false);
    for _ in 0..draw.below(3) {
        let (shape, is_buffer) = (draw.pick(&shapes), draw.one_in(3));
        let dtype = draw.pick(&dtypes);
        let x = parameter(dtype, shape)?;
        if is_buffer {
            tensors.push(x.requires_grad_(false)?);
            continue;
        }
        tensors.push(x);
        has_parameter = true;
        is_flat |= shape.len() < 2;
        is_whole |= dtype == DType::I32;
    }
    let is_legal = is_rate && has_parameter && !is_whole;
    let said = format!("a new optimiser of {tensors:?} with a rate of {lr}");
    let (name, is_legal, answer) = match draw.below(7) {
        0 => ("SGD", is_legal, SGD::new(tensors, lr).map(drop)),
        1 => ("LARS", is_legal, LARS::new(tensors, lr).map(drop)),
        2 => ("Muon", is_legal && !is_flat, Muon::new(tensors, lr).map(drop)),
        3 => ("RMSprop", is_legal, RMSprop::new(tensors, lr).map(drop)),
        4 => ("Adam", is_legal, Adam::new(tensors, lr).map(drop)),
        5 => ("AdamW", is_legal, AdamW::new(tensors, lr).map(drop)),
        _ => ("LAMB", is_legal, LAMB::new(tensors, lr).map(drop)),
    };
    Ok(Attempt::new(format!("{name}, {said}"), is_legal, answer))
}

/// Decays of means: those of moments are below 1 in the dtype of each moment.
fn decays(draw: &mut Draw) -> Result<Attempt, Error> {
    // The last number is below 1, and 1 in f32.
    let betas = [0.0, 0.5, 0.999, 1.0, -0.5, f64::NAN, 1.0 - 1e-9];
    let [b1, b2] = [(); 2].map(|()| draw.pick(&betas));
    let types = draw.pick(&[
        [DType::F64, DType::F64],
        [DType::F32, DType::F64],
        [DType::F64, DType::F16],
        [DType::F32, DType::F32],
    ]);
    let is_wide = types == [DType::F64; 2];
    let fits = |beta: f64| {
        let rounded = if is_wide { beta } else { f64::from(beta as f32) };
        (0.0..1.0).contains(&rounded)
    };
    let tensors = [parameter(types[0], &[2])?, parameter(types[1], &[1])?];
    let (name, is_legal, answer) = match draw.below(4) {
        0 => ("Adam", fits(b1) && fits(b2), Adam::new(tensors, 0.5)?.betas(b1, b2).map(drop)),
        1 => ("AdamW", fits(b1) && fits(b2), AdamW::new(tensors, 0.5)?.betas(b1, b2).map(drop)),
        2 => ("LAMB", fits(b1) && fits(b2), LAMB::new(tensors, 0.5)?.betas(b1, b2).map(drop)),
        _ => {
            let is_legal = (0.0..=1.0).contains(&b1);
            ("RMSprop", is_legal, RMSprop::new(tensors, 0.5)?.alpha(b1).map(drop))
        }
    };
    let said = format!("{name} of {types:?} with the decays {b1} and {b2}");
    Ok(Attempt::new(said, is_legal, answer))
}

/// Options that a step refuses, which changes nothing then. A clipped gradient has a limit.
fn option(draw: &mut Draw) -> Result<Attempt, Error> {
    let (number, is_legal) = draw.pick(&NUMBERS);
    let x = with_gradient(&[2, 2])?;
    let new = || [x.clone()];
    let lr = 0.5;
    let (name, mut optimizer): (&str, Box<dyn Optimizer>) = match draw.below(16) {
        0 => ("SGD, momentum", Box::new(SGD::new(new(), lr)?.momentum(number))),
        1 => ("SGD, weight decay", Box::new(SGD::new(new(), lr)?.weight_decay(number))),
        2 => ("LARS, momentum", Box::new(LARS::new(new(), lr)?.momentum(number))),
        3 => ("LARS, weight decay", Box::new(LARS::new(new(), lr)?.weight_decay(number))),
        4 => ("LARS, tcoef", Box::new(LARS::new(new(), lr)?.tcoef(number))),
        5 => ("Muon, momentum", Box::new(Muon::new(new(), lr)?.momentum(number))),
        6 => ("Muon, weight decay", Box::new(Muon::new(new(), lr)?.weight_decay(number))),
        7 => ("RMSprop, eps", Box::new(RMSprop::new(new(), lr)?.eps(number))),
        8 => ("RMSprop, weight decay", Box::new(RMSprop::new(new(), lr)?.weight_decay(number))),
        9 => ("Adam, eps", Box::new(Adam::new(new(), lr)?.eps(number))),
        10 => ("AdamW, eps", Box::new(AdamW::new(new(), lr)?.eps(number))),
        11 => ("AdamW, weight decay", Box::new(AdamW::new(new(), lr)?.weight_decay(number))),
        12 => ("LAMB, eps", Box::new(LAMB::new(new(), lr)?.eps(number))),
        13 => ("LAMB, weight decay", Box::new(LAMB::new(new(), lr)?.weight_decay(number))),
        14 => {
            let answer = clip_grad_norm(&new(), number);
            return Ok(Attempt::new(format!("clip_grad_norm by {number}"), is_legal, answer));
        }
        _ => {
            let answer = clip_grad_value(&new(), number);
            return Ok(Attempt::new(format!("clip_grad_value by {number}"), is_legal, answer));
        }
    };
    let _training = Tensor::train(true);
    let state = |optimizer: &dyn Optimizer| -> Result<Vec<Vec<f64>>, Error> {
        get_state_dict(optimizer).values().map(numbers).collect()
    };
    let before = (!is_legal).then(|| state(&*optimizer)).transpose()?;
    // A legal step is not computed.
    let attempt =
        Attempt::new(format!("a step of {name} {number}"), is_legal, optimizer.schedule_step());
    let is_changed = match before {
        Some(before) => numbers(&x.detach())? != [1.0; 4] || state(&*optimizer)? != before,
        None => false,
    };
    Ok(attempt.with_problem(is_changed, "the parameter or the state is changed"))
}

/// Numbers of new schedules.
fn schedule(draw: &mut Draw) -> Result<Attempt, Error> {
    let mut optimizer = SGD::new([parameter(DType::F32, &[1])?], 0.5)?;
    let count = draw.pick(&[0, 0, 1, 5]);
    match draw.below(4) {
        0 => {
            let answer = StepLR::new(&optimizer, count, 0.5);
            Ok(Attempt::new(format!("StepLR of {count}"), 0 < count, answer))
        }
        1 => {
            let answer = CosineAnnealingLR::new(&optimizer, count, 0.0);
            Ok(Attempt::new(format!("CosineAnnealingLR of {count}"), 0 < count, answer))
        }
        2 => {
            // Milestones need not be above 0.
            let answer = MultiStepLR::new(&optimizer, &[count], 0.5);
            Ok(Attempt::new(format!("MultiStepLR of {count}"), true, answer))
        }
        _ => {
            let (max_lr, is_rate) = draw.pick(&RATES);
            let share = draw.pick(&[0.5, 0.25, 1e-9, 0.0, 1.0, -0.5, f64::NAN]);
            let (div, final_div) =
                (draw.pick(&[2.0, 2.0, -2.0, 0.0]), draw.pick(&[2.0, 2.0, -2.0]));
            let is_share = 0.0 < share && share < 1.0;
            // The rates of the ends must be legal, too, as far as there are any: 0 / 0 is none.
            let ends = [max_lr / div, max_lr / div / final_div];
            let is_end = |lr: f64| 0.0 <= lr && (lr as f32).is_finite();
            let is_legal = is_rate && is_share && 0 < count && ends.into_iter().all(is_end);
            let answer = OneCycleLR::new(&mut optimizer, max_lr, div, final_div, count, share);
            let said = format!("OneCycleLR to {max_lr}, {div}, {final_div}, {count}, {share}");
            Ok(Attempt::new(said, is_legal, answer))
        }
    }
}

/// Rates that are set, by a call or by a schedule. Those that are refused leave the rate.
fn rate(draw: &mut Draw) -> Result<Attempt, Error> {
    let dtype = draw.pick(&[DType::F32, DType::F64]);
    let mut optimizer = SGD::new([parameter(dtype, &[1])?], 0.5)?;
    let (lr, is_legal) = draw.pick(&RATES);
    let by_schedule = draw.one_in(3);
    // A metric that is NaN is no better, and the rate is 0.5 before.
    let mut plateau = ReduceLROnPlateau::default().factor(2.0 * lr).patience(0);
    let answer = match by_schedule {
        true => plateau.step(&mut optimizer, f64::NAN),
        false => optimizer.set_lr(lr),
    };
    let rate = match dtype {
        _ if !is_legal => 0.5,
        DType::F64 => lr,
        _ => f64::from(lr as f32),
    };
    let said = format!("a rate of {lr} in {dtype}, by a schedule: {by_schedule}");
    let found = optimizer.lr()?;
    let attempt = Attempt::new(said, is_legal, answer);
    Ok(attempt.with_problem(found != rate, &format!("the rate is {found}, not {rate}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::calls::modules::assert_both;

    #[test]
    fn each_kind_draws_legal_and_illegal_attempts() {
        assert_both(&KINDS);
    }
}
