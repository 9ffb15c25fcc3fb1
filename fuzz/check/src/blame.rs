//! Who is to blame? The stages are run one after the other, each by an evaluator that does not
//! ask the later ones; the first whose outputs differ from the oracle's names the guilty room.

use gradiff::UOp;
use gradiff_corpus::Program;
use gradiff_oracle::Expected;

use crate::stages::{self, Level, Way};

/// The first stage that disagrees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blame {
    /// The stage: `tensor`, a pass of the schedule or of the kernel, `linearize`, `render`, `run`.
    pub stage: String,
    /// The room it stands in: `tensor`, `view`, `schedule`, `rewrite`, `kernel`, `render` or
    /// `runtime`.
    pub room: String,
    /// What differs there first.
    pub detail: String,
}

impl std::fmt::Display for Blame {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "stage {} (engine/{}): {}", self.stage, self.room, self.detail)
    }
}

/// The first stage at which `program` goes wrong on `backend`; `None` if every stage is right,
/// or if the oracle does not know the program. Panics and refusals of a stage are its guilt.
pub fn blame(program: &Program, backend: &str) -> Option<Blame> {
    let expected = gradiff_oracle::evaluate(program).ok()?;
    let way = crate::engine::way(backend);
    in_graph(program, &expected, &way)
        .or_else(|| in_kernels(program, &expected, &way))
        .or_else(|| at_the_end(program, &expected, &way, backend))
}

fn guilty(stage: &str, room: &str, detail: String) -> Option<Blame> {
    Some(Blame { stage: stage.to_string(), room: room.to_string(), detail })
}

/// The outputs of a stage against the oracle; a panic or refusal is told as well.
fn wrong(
    expected: &[Expected],
    outputs: impl FnOnce() -> Result<Vec<stages::Elements>, String>,
) -> Option<String> {
    match crate::catch(outputs).and_then(|outputs| outputs) {
        Ok(outputs) => stages::judge(expected, &outputs),
        Err(problem) => Some(problem),
    }
}

/// The outputs of the tensor graph have the dtypes and shapes that the oracle infers.
fn wrong_type(program: &Program, expected: &[Expected]) -> Option<String> {
    let outputs = crate::catch(|| stages::graph(program)).and_then(|outputs| outputs).ok()?;
    outputs.iter().zip(expected).find_map(|(output, expected)| {
        let shape: Vec<i64> = expected.shape.iter().map(|size| *size as i64).collect();
        let found = (output.dtype().name(), output.shape());
        let right = (expected.dtype.name(), shape.as_slice());
        (found != right)
            .then(|| format!("{}{:?}, expected {}{:?}", found.0, found.1, right.0, right.1))
    })
}

/// The tensor graph, and after the passes that keep it one.
fn in_graph(program: &Program, expected: &[Expected], way: &Way) -> Option<Blame> {
    if let Some(detail) = wrong_type(program, expected) {
        return guilty("tensor", "tensor", detail);
    }
    let read = &mut stages::contents;
    let graph = || -> Result<Vec<UOp>, String> {
        let outputs = stages::graph(program)?;
        Ok(outputs.iter().map(gradiff::Tensor::uop).collect())
    };
    let evaluated = || crate::tensors::evaluate(&graph()?, read);
    if let Some(detail) = wrong(expected, evaluated) {
        return guilty("tensor", "tensor", detail);
    }
    let passes = crate::catch(|| {
        gradiff::schedule::stages(&graph()?, &way.schedule).map_err(|error| error.to_string())
    });
    let passes = match passes.and_then(|passes| passes) {
        Ok(passes) => passes,
        Err(problem) => return guilty("schedule", "schedule", problem),
    };
    for (pass, outputs) in passes.iter().take_while(|(pass, _)| *pass != "kernels") {
        let room = if *pass == "views" { "view" } else { "schedule" };
        let evaluated = || crate::tensors::evaluate(outputs, &mut stages::contents);
        if let Some(detail) = wrong(expected, evaluated) {
            return guilty(pass, room, detail);
        }
    }
    None
}

/// The kernels after each of their passes, and linear.
fn in_kernels(program: &Program, expected: &[Expected], way: &Way) -> Option<Blame> {
    let with = |way: &Way, level: &mut Level<'_>| {
        let schedule = stages::scheduled(&stages::graph(program)?, way)?;
        stages::run(&schedule, way, level)
    };
    let at = |level: &mut Level<'_>| with(way, level);
    if let Some(detail) = wrong(expected, || at(&mut Level::Graph(0))) {
        // Right as soon as views are stacked instead of merged: merging is wrong.
        let mut stacked = way.clone();
        stacked.schedule.merge_views = false;
        let is_merging = wrong(expected, || with(&stacked, &mut Level::Graph(0))).is_none();
        return guilty("kernels", if is_merging { "view" } else { "schedule" }, detail);
    }
    for (number, pass) in gradiff::kernel::PASSES.iter().enumerate() {
        if let Some(detail) = wrong(expected, || at(&mut Level::Graph(number + 1))) {
            let is_rules = matches!(pass.name, "symbolic" | "late");
            let room = if is_rules { "rewrite" } else { "kernel" };
            return guilty(pass.name, room, detail);
        }
    }
    let detail = wrong(expected, || at(&mut Level::Linear))?;
    guilty("linearize", "kernel", detail)
}

/// All lists of uops are right: the device or its source text is not, or what is around them.
fn at_the_end(program: &Program, expected: &[Expected], way: &Way, backend: &str) -> Option<Blame> {
    let device = backend.split('/').next().unwrap_or(backend);
    let alone = || {
        let schedule = stages::scheduled(&stages::graph(program)?, way)?;
        stages::run(
            &schedule,
            way,
            &mut Level::With(&mut |kernel, memories| {
                crate::engine::run_alone(device, kernel, memories)
            }),
        )
    };
    if let Some(detail) = wrong(expected, alone) {
        let is_text = device == "c";
        return guilty(
            if is_text { "render" } else { "run" },
            if is_text { "render" } else { "runtime" },
            detail,
        );
    }
    // Kernels are right one by one; together they are not: a cache, or memory.
    let backends = crate::backends(&[backend.to_string()]).ok()?;
    let (_, failures) = crate::agree(&[program], &backends);
    let (_, failure) = failures.into_iter().next()?;
    guilty("launch", "runtime", failure.detail)
}
