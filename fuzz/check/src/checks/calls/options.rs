//! An engine whose options change between plans of the same graph, against new engines that have
//! had their options from the start.
//!
//! In: drawn graphs over the same data. Engines keep kernels and plans: none that was made under
//! other options may be found again. A plan from before a change runs as it was planned.

use gradiff::graph::Target;
use gradiff::graph::target::Thresholds;
use gradiff::kernel::{Strategy, lower};
use gradiff::rewrite::{Mode, Trace};
use gradiff::schedule::Split;
use gradiff::{Engine, Error, Plan, Tensor, keepdim};

use super::Draw;

/// Number of plans of a check.
const PLANS: usize = 3;
/// Maximal number of ops of a graph.
const OPS_MAX: usize = 4;

/// The data that the graphs are over.
struct Data {
    square: Tensor,
    factor: Tensor,
}

impl Data {
    fn new(draw: &mut Draw) -> Result<Data, Error> {
        let size = draw.pick(&[3, 4, 8, 12, 20]);
        let mut tensor = || {
            let number = |_| (draw.below(4000) as f32 - 2000.0) / 37.0;
            let numbers: Vec<f32> = (0..size * size).map(number).collect();
            Tensor::from_slice(&[size, size], &numbers)
        };
        Ok(Data { square: tensor()?, factor: tensor()? })
    }

    /// Returns a new tensor that is computed by these ops.
    fn computed(&self, ops: &[usize]) -> Result<Tensor, Error> {
        let factor = &self.factor;
        ops.iter().try_fold(self.square.clone(), |x, op| match op {
            0 => x.matmul(factor),
            1 => x.mul(factor)?.add(&self.square),
            2 => x.sum(keepdim(1))?.expand(x.shape())?.sub(factor),
            3 => x.transpose(0, 1)?.mul(4),
            4 => x.max(keepdim(0))?.expand(x.shape())?.add(&x),
            5 => x.pad(&[(1, 0), (0, 0)], 0)?.shrink(&[(0, x.shape()[0]), (0, x.shape()[1])]),
            6 => x.mul(factor)?.sum(keepdim(0))?.add(&x),
            _ => x.flip(&[0])?.div(3),
        })
    }
}

/// Changes one of the options that a user may set.
fn change(engine: &mut Engine, draw: &mut Draw) -> Result<(), String> {
    let toggled = draw.one_in(2);
    let (device, target) = (engine.device.target(), &mut engine.target);
    let thresholds = draw.pick(&[Thresholds::SMALL, Thresholds::USUAL]);
    match draw.below(18) {
        0 => {
            let modes = [Mode::Strict, Mode::Default, Mode::Fast];
            engine.kernel.rewrite.mode = draw.pick(&modes);
        }
        1 => engine.kernel.opts = Strategy::None,
        2 => engine.kernel.opts = Strategy::Heuristic,
        3 => engine.kernel.opts = Strategy::Drawn { seed: draw.below(3) as u64, limit: 3 },
        4 => engine.kernel.rewrite.fuel = draw.pick(&[None, Some(0), Some(40)]),
        5 => engine.schedule.fuse = toggled,
        6 => engine.schedule.merge_views = toggled,
        7 => engine.schedule.pack = toggled,
        8 => engine.schedule.rows = toggled,
        9 => engine.schedule.thresholds = thresholds,
        10 => target.thresholds = thresholds,
        11 => target.fma = device.fma && toggled,
        12 => engine.schedule.wide_products = toggled,
        13 => {
            let splits = [Split::Never, Split::FewOutputs, Split::Products];
            engine.schedule.split = draw.pick(&splits);
        }
        14 => engine.schedule.widens_again = toggled,
        15 => engine.schedule.shared_rows = toggled,
        16 => target.vectors = if toggled { device.vectors } else { Target::PLAIN.vectors },
        _ => return set_target(engine, if toggled { device } else { Target::PLAIN }),
    }
    Ok(())
}

/// Sets a target, which chooses some of the options and leaves the others.
fn set_target(engine: &mut Engine, target: Target) -> Result<(), String> {
    let (mut schedule, mut kernel) = (engine.schedule, engine.kernel.clone());
    engine.set_target(target);
    schedule.pack = target.is_vector_cpu();
    schedule.rows = target.is_vector_cpu() || target.groups.is_some();
    schedule.split = match (target.groups.is_some(), target.is_vector_cpu()) {
        (true, _) => Split::FewOutputs,
        (false, true) => Split::Products,
        (false, false) => Split::Never,
    };
    (schedule.shared_rows, schedule.widens_again) =
        (target.groups.is_some(), target.groups.is_some());
    kernel.opts = Strategy::Heuristic;
    let (found, expected) = (
        (engine.target, engine.schedule, format!("{:?}", engine.kernel)),
        (target, schedule, format!("{kernel:?}")),
    );
    let is_right = found == expected;
    is_right.then_some(()).ok_or(format!("set_target gives {found:?}, expected {expected:?}"))
}

/// A new engine with the options of this one.
fn renewed(engine: &Engine) -> Result<Engine, Error> {
    let mut new = Engine::new(engine.device.name())?;
    (new.target, new.schedule) = (engine.target, engine.schedule);
    new.kernel = engine.kernel.clone();
    new.beam = engine.beam;
    Ok(new)
}

/// The trees, the uops and the opts of a plan.
fn text_of(plan: &Plan) -> String {
    let item = |item: &gradiff::PlannedKernel| {
        format!("{}\n{}\n{:?} {}\n", item.ast, *item.linear, item.opts, item.is_endless)
    };
    plan.items.iter().map(item).collect()
}

/// Checks that each kernel of the plan is lowered with the options of the engine.
fn check_lowered(engine: &Engine, plan: &Plan) -> Result<(), String> {
    plan.items.iter().try_for_each(|item| {
        let lowered = lower(&item.ast, &engine.target, &engine.kernel, &mut Trace::default());
        let lowered = lowered.map_err(|error| error.to_string())?;
        let is_same = lowered.uops == item.linear.uops;
        is_same
            .then_some(())
            .ok_or_else(|| format!("{} is planned, expected {lowered}", item.linear))
    })
}

/// A plan that waits to run, with its result.
struct Waiting {
    plan: [Plan; 1],
    tensor: Tensor,
    expected: Vec<u8>,
    label: String,
}

impl Waiting {
    fn finish(self, engine: &Engine) -> Result<(), String> {
        let Waiting { mut plan, tensor, expected, label } = self;
        let failed = |error: Error| format!("{label}: {error}");
        engine.compile(&mut plan).map_err(failed)?;
        engine.run(&plan[0]).map_err(failed)?;
        let found = tensor.to_bytes().map_err(failed)?;
        let is_right = found == expected;
        is_right.then_some(()).ok_or_else(|| {
            format!("{label}: elements are {found:?}, those of a new engine {expected:?}")
        })
    }
}

/// Plans drawn graphs with one engine, whose options change before each plan.
pub(super) fn options(draw: &mut Draw) -> Result<(), String> {
    let problem = |error: Error| error.to_string();
    let data = Data::new(draw).map_err(problem)?;
    let mut graph =
        || -> Vec<usize> { (0..1 + draw.below(OPS_MAX)).map(|_| draw.below(8)).collect() };
    let graphs = [graph(), graph()];
    let mut engine = Engine::new(draw.pick(&["interp", "jit"])).map_err(problem)?;
    engine.beam = 0;
    let mut waiting: Vec<Waiting> = Vec::new();
    for _ in 0..PLANS {
        for _ in 0..draw.below(3) {
            change(&mut engine, draw)?;
        }
        let ops = &graphs[usize::from(draw.one_in(4))];
        let label = format!(
            "{ops:?} of {:?} on {} with {:?}, {:?}, {:?}",
            data.square.shape(),
            engine.device.name(),
            engine.schedule,
            engine.kernel,
            engine.target
        );
        let failed = |error: Error| format!("{label}: {error}");
        let new = renewed(&engine).map_err(problem)?;
        let (tensor, same) =
            (data.computed(ops).map_err(failed)?, data.computed(ops).map_err(failed)?);
        let plan = engine.plan(&[&tensor]).map_err(failed)?;
        let mut expected = [new.plan(&[&same]).map_err(failed)?];
        let texts = [text_of(&plan), text_of(&expected[0])];
        if texts[0] != texts[1] {
            return Err(format!("{label}: planned {}\na new engine plans {}", texts[0], texts[1]));
        }
        check_lowered(&engine, &plan).map_err(|problem| format!("{label}: {problem}"))?;
        new.compile(&mut expected).map_err(failed)?;
        new.run(&expected[0]).map_err(failed)?;
        let expected = same.to_bytes().map_err(failed)?;
        waiting.push(Waiting { plan: [plan], tensor, expected, label });
        if draw.one_in(2) {
            waiting.drain(..).try_for_each(|waiting| waiting.finish(&engine))?;
        }
    }
    waiting.into_iter().try_for_each(|waiting| waiting.finish(&engine))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_follow_the_options() {
        for seed in 0..200 {
            options(&mut Draw::new(seed)).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        }
    }
}
