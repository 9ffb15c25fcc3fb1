//! Who is to blame? The stages are run one after the other, each by an evaluator that does not
//! ask the later ones; the first whose outputs differ from the oracle's names the guilty room.

use gradiff::UOp;
use gradiff_corpus::Program;
use gradiff_oracle::Expected;

use crate::stages::{self, Level};

/// The first stage that disagrees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blame {
    /// The stage: `tensor`, a pass of the schedule or of the kernel, `linearize`, `render`, `run`.
    pub stage: String,
    /// The room it stands in: `tensor`, `view`, `schedule`, `rewrite`, `kernel`, `render` or
    /// `runtime`.
    pub room: &'static str,
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
    in_graph(program, &expected)
        .or_else(|| in_kernels(program, &expected))
        .or_else(|| at_the_end(program, &expected, backend))
}

fn guilty(stage: &str, room: &'static str, detail: String) -> Option<Blame> {
    Some(Blame { stage: stage.to_string(), room, detail })
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

/// The tensor graph, and after the passes that keep it one.
fn in_graph(program: &Program, expected: &[Expected]) -> Option<Blame> {
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
        let options = Default::default();
        gradiff::schedule::stages(&graph()?, &options).map_err(|error| error.to_string())
    });
    let passes = match passes.and_then(|passes| passes) {
        Ok(passes) => passes,
        Err(problem) => return guilty("schedule", "schedule", problem),
    };
    for (pass, room) in [("views", "view"), ("realize", "schedule")] {
        let Some((_, outputs)) = passes.iter().find(|(name, _)| *name == pass) else { continue };
        let evaluated = || crate::tensors::evaluate(outputs, &mut stages::contents);
        if let Some(detail) = wrong(expected, evaluated) {
            return guilty(pass, room, detail);
        }
    }
    None
}

/// The kernels after each of their passes, and linear.
fn in_kernels(program: &Program, expected: &[Expected]) -> Option<Blame> {
    let at = |level: &mut Level<'_>| {
        let schedule = stages::scheduled(&stages::graph(program)?)?;
        stages::run(&schedule, level)
    };
    if let Some(detail) = wrong(expected, || at(&mut Level::Graph(0))) {
        return guilty("kernels", "schedule", detail);
    }
    for (number, pass) in gradiff::kernel::PASSES.iter().enumerate() {
        if let Some(detail) = wrong(expected, || at(&mut Level::Graph(number + 1))) {
            let room = if pass.name == "symbolic" { "rewrite" } else { "kernel" };
            return guilty(pass.name, room, detail);
        }
    }
    let detail = wrong(expected, || at(&mut Level::Linear))?;
    guilty("linearize", "kernel", detail)
}

/// All lists of uops are right: the device or its source text is not, or what is around them.
fn at_the_end(program: &Program, expected: &[Expected], backend: &str) -> Option<Blame> {
    let device = backend.split('/').next().unwrap_or(backend);
    let alone = || {
        let schedule = stages::scheduled(&stages::graph(program)?)?;
        stages::run(
            &schedule,
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
