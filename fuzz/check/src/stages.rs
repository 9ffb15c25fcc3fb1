//! The stages a program goes through: each can be printed, and each can be run on its own by
//! evaluators that do not ask the stages after it.

use gradiff::graph::{BoundedLinear, Buffer, Constant};
use gradiff::kernel::{Opt, Strategy, Target, interpret};
use gradiff::render::{LANGUAGES, Language};
use gradiff::rewrite::Trace;
use gradiff::schedule::Schedule;
use gradiff::{Tensor, UOp};
use gradiff_corpus::{Array, Case, Program};
use gradiff_oracle::Expected;
use std::collections::HashMap;

/// Elements of a tensor or of a parameter; `None` is undefined or not written yet.
pub(crate) type Elements = Vec<Option<Constant>>;

/// What `show` can show besides the languages.
const STAGES: [&str; 5] = ["program", "graph", "schedule", "kernel", "uops"];

/// What is to be shown of a case.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shown<'a> {
    /// The stage, or a language.
    pub stage: &'a str,
    /// With these optimisations of each kernel. Without a word on that: in a language, or for a
    /// target, those that the engine chooses; else none.
    pub opts: Option<&'a [Opt]>,
    /// For this target; that of the language, or a plain one, if it is not said.
    pub target: Option<&'a str>,
}

/// One stage of one case as text.
///
/// # Errors
/// An unknown stage or target, a stage that this kind of case has not, a program that the engine
/// or the language refuses, an optimisation that a kernel does not allow.
pub fn show(case: &Case, shown: Shown<'_>) -> Result<String, String> {
    let stage = shown.stage;
    if !STAGES.contains(&stage) && language(stage).is_none() {
        let languages = LANGUAGES.iter().map(|language| language.name);
        let all: Vec<&str> = STAGES.into_iter().chain(languages).collect();
        return Err(format!("no stage is called {stage}; there are: {}", all.join(", ")));
    }
    match (case, stage) {
        (Case::Program(program), "program") => Ok(program.to_string()),
        (Case::Program(program), _) => show_program(program, shown),
        (Case::Views(views), "program") => Ok(views.to_string()),
        (Case::Views(views), "graph") => Ok(format!("{}\n", crate::views::tracker(views)?)),
        (Case::Expr(expr), "program") => Ok(expr.to_string()),
        (Case::Expr(expr), "graph") => {
            let graph = crate::to_uop(expr);
            let simple = gradiff::graph::infix(&gradiff::rewrite::simplify(&graph));
            Ok(format!("{}\n{simple}\n", gradiff::graph::infix(&graph)))
        }
        _ => Err(format!("only programs have the stage {stage}")),
    }
}

fn language(name: &str) -> Option<&'static Language> {
    LANGUAGES.iter().find(|language| language.name == name)
}

pub(crate) fn show_program(program: &Program, shown: Shown<'_>) -> Result<String, String> {
    let outputs = graph(program)?;
    if shown.stage == "graph" {
        let texts = outputs.iter().map(|output| output.uop().to_text());
        return Ok(texts.collect::<Vec<_>>().join("\n"));
    }
    let (plan, way) = planned(&outputs, shown)?;
    let mut text = String::new();
    for (number, item) in plan.items.iter().enumerate() {
        text += &format!("# kernel {number}\n");
        match (shown.stage, language(shown.stage)) {
            (_, Some(language)) => {
                text += &(language.render)(&item.linear).map_err(|error| error.to_string())?;
            }
            ("schedule", _) => text += &item.ast.to_text(),
            ("uops", _) => text += &item.linear.to_string(),
            _ => {
                let stages = passed(&item.ast, &way)?;
                for (pass, graph) in stages.graphs {
                    text += &format!("## {pass}\n{}", graph.to_text());
                }
                for (pass, linear) in stages.linears {
                    text += &format!("## {pass}\n{linear}");
                }
            }
        }
    }
    Ok(text)
}

/// The plan whose kernels are shown, and how they came to be. Planned as a run would, so that
/// names are those of a run.
///
/// # Errors
/// As [`show`].
pub(crate) fn planned(
    outputs: &[Tensor],
    shown: Shown<'_>,
) -> Result<(gradiff::Plan, Way), String> {
    let mut engine = gradiff::Engine::new("interp").map_err(|error| error.to_string())?;
    let language = language(shown.stage);
    let target = shown.target.or(language.map(|language| language.name)).unwrap_or("plain");
    let target = Target::named(target).ok_or_else(|| {
        let all: Vec<&str> = Target::names().collect();
        format!("no target is called {target}; there are: {}", all.join(", "))
    })?;
    engine.set_target(target);
    match shown.opts {
        Some(opts) => engine.kernel.opts = Strategy::Fixed(opts.to_vec()),
        None if shown.target.is_some() || language.is_some() => {}
        None => engine.kernel.opts = Strategy::None,
    }
    let way = Way { schedule: engine.schedule, kernel: engine.kernel.clone(), target };
    let all: Vec<&Tensor> = outputs.iter().collect();
    let plan = engine.plan(&all).map_err(|error| error.to_string())?;
    Ok((plan, way))
}

/// The lazy outputs of a program; `realize` statements are `contiguous` ones here.
pub(crate) fn graph(program: &Program) -> Result<Vec<Tensor>, String> {
    let mut program = program.clone();
    for statement in &mut program.statements {
        if let gradiff_corpus::Statement::Realize { src } = statement {
            *statement = gradiff_corpus::Statement::Contiguous { src: *src };
        }
    }
    Ok(crate::translate::outputs(&program, &mut |_| Ok(()))?)
}

/// The options under which a program is brought to a device.
#[derive(Clone, Default)]
pub(crate) struct Way {
    pub(crate) schedule: gradiff::schedule::Options,
    pub(crate) kernel: gradiff::kernel::Options,
    pub(crate) target: Target,
}

pub(crate) fn scheduled(outputs: &[Tensor], way: &Way) -> Result<Schedule, String> {
    let roots: Vec<UOp> = outputs.iter().map(Tensor::uop).collect();
    gradiff::schedule::schedule(&roots, &way.schedule).map_err(|error| error.to_string())
}

/// Returns a kernel after each of its passes.
pub(crate) fn passed(ast: &UOp, way: &Way) -> Result<gradiff::kernel::Stages, String> {
    gradiff::kernel::stages(ast, &way.target, &way.kernel).map_err(|error| error.to_string())
}

/// Returns the linear uops of a kernel.
pub(crate) fn lowered(ast: &UOp, way: &Way) -> Result<BoundedLinear, String> {
    let trace = &mut Trace::default();
    gradiff::kernel::lower(ast, &way.target, &way.kernel, trace).map_err(|error| error.to_string())
}

/// Runs one kernel, given its tree, on the elements of its parameters.
pub(crate) type RunKernel<'a> = &'a mut dyn FnMut(&UOp, &mut [Elements]) -> Result<(), String>;

/// Brings a kernel tree to some level before linear uops.
pub(crate) type MakeKernel<'a> = &'a mut dyn FnMut(&UOp) -> Result<UOp, String>;

/// How the kernels of a schedule are run.
pub(crate) enum Level<'a> {
    /// As what this makes of the tree.
    Made(MakeKernel<'a>),
    /// By something else.
    With(RunKernel<'a>),
}

/// The outputs of a schedule whose kernels are run at this level.
pub(crate) fn run(schedule: &Schedule, level: &mut Level<'_>) -> Result<Vec<Elements>, String> {
    let mut held: HashMap<Buffer, Elements> = HashMap::new();
    for item in &schedule.items {
        let mut memories: Vec<Elements> = Vec::with_capacity(item.buffers.len());
        for buffer in &item.buffers {
            memories.push(match held.get(buffer) {
                Some(elements) => elements.clone(),
                None => contents(buffer)?,
            });
        }
        match level {
            Level::Made(make) => {
                interpret(&make(&item.ast)?, &mut memories).map_err(|e| e.to_string())?;
            }
            Level::With(run) => run(&item.ast, &mut memories)?,
        }
        let written = memories.swap_remove(0);
        held.insert(item.buffers[0].clone(), written);
    }
    crate::tensors::evaluate(&schedule.outputs, &mut |buffer| match held.get(buffer) {
        Some(elements) => Ok(elements.clone()),
        None => contents(buffer),
    })
}

/// What a buffer holds: its data, or nothing yet.
pub(crate) fn contents(buffer: &Buffer) -> Result<Elements, String> {
    let count = buffer.size_elements() as usize;
    if buffer.memory().is_none() {
        return Ok(vec![None; count]);
    }
    let memory = gradiff::runtime::memory_of(buffer).map_err(|error| error.to_string())?;
    let bytes = match memory.read() {
        Ok(bytes) => bytes,
        Err(gradiff::runtime::Error::Unwritten { .. }) => return Ok(vec![None; count]),
        Err(error) => return Err(error.to_string()),
    };
    let size = buffer.dtype().size_bytes();
    let element = |bytes: &[u8]| {
        let mut word = [0; 8];
        word[..size].copy_from_slice(bytes);
        Some(Constant::from_bits(buffer.dtype(), u64::from_le_bytes(word)))
    };
    Ok(bytes.chunks_exact(size).map(element).collect())
}

/// Whether these outputs are what the oracle expects; if not, the first difference. What is
/// undefined here is given as 0: the oracle does not look at it if it is undefined there too.
pub(crate) fn judge(expected: &[Expected], outputs: &[Elements]) -> Option<String> {
    for (number, (expected, elements)) in expected.iter().zip(outputs).enumerate() {
        let bits = elements.iter().map(|element| element.map_or(0, Constant::bits)).collect();
        let shape = expected.shape.clone();
        let array = Array { dtype: expected.dtype, shape, bits };
        if array.bits.len() != array.shape.iter().product::<usize>() {
            return Some(format!("output {number} has {} elements", array.bits.len()));
        }
        if let Some(mismatch) = expected.judge(&array).mismatch {
            return Some(crate::agree::difference(number, expected.dtype, &mismatch));
        }
    }
    None
}
