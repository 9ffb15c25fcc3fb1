//! The stages that a program passes: each can be printed, and each can be run by evaluators that
//! do not use the stages after it.

use gradiff::graph::{BoundedLinear, Buffer, Constant, Target};
use gradiff::kernel::{Opt, Strategy};
use gradiff::render::{LANGUAGES, Language};
use gradiff::rewrite::Trace;
use gradiff::schedule::Schedule;
use gradiff::{Tensor, UOp};
use gradiff_corpus::{Array, Case, Program};
use gradiff_eval::Elements;
use gradiff_eval::kernel::interpret;
use gradiff_oracle::Expected;
use std::collections::HashMap;

/// Names of the stages that `show` prints, besides the languages.
const STAGES: [&str; 5] = ["program", "graph", "schedule", "kernel", "uops"];

/// The choice of what is shown of a case.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shown<'a> {
    /// Name of the stage or language.
    pub stage: &'a str,
    /// The optimisations of each kernel. `None`: those that the engine chooses if there is a
    /// language or a target, else none.
    pub opts: Option<&'a [Opt]>,
    /// Name of the target, which may be that of a device. `None`: that of the language, or the
    /// plain target.
    pub target: Option<&'a str>,
}

/// Prints one stage of one case.
///
/// # Errors
/// An unknown stage or target, a stage that this kind of case does not have, a program that the
/// engine or the language refuses, an optimisation that a kernel does not allow.
pub fn show(case: &Case, shown: Shown<'_>) -> Result<String, String> {
    let stage = shown.stage;
    if !STAGES.contains(&stage) && language(stage).is_none() {
        let languages = LANGUAGES.iter().map(|language| language.name);
        let names: Vec<&str> = STAGES.into_iter().chain(languages).collect();
        return Err(format!("no stage is called {stage}; there are: {}", names.join(", ")));
    }
    match (case, stage) {
        (Case::Program(program), "program") => Ok(program.to_string()),
        (Case::Program(program), _) => show_program(program, shown),
        (Case::Views(views), "program") => Ok(views.to_string()),
        (Case::Views(views), "graph") => Ok(format!("{}\n", crate::checks::views::tracker(views)?)),
        (Case::Expr(expr), "program") => Ok(expr.to_string()),
        (Case::Expr(expr), "graph") => {
            let graph = crate::to_uop(expr);
            let simple = gradiff::graph::text::infix(&gradiff::rewrite::simplify(&graph));
            Ok(format!("{}\n{simple}\n", gradiff::graph::text::infix(&graph)))
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
    let (plan, configuration) = planned(&outputs, shown)?;
    let mut text = String::new();
    for (number, item) in plan.items.iter().enumerate() {
        text += &format!("# kernel {number}\n");
        match (shown.stage, language(shown.stage)) {
            (_, Some(language)) => {
                let code = (language.render)(&item.linear).map_err(|error| error.to_string())?;
                text += &code.text;
            }
            ("schedule", _) => text += &item.ast.to_text(),
            ("uops", _) => text += &item.linear.to_string(),
            _ => {
                let stages = passed(&item.ast, &configuration)?;
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

/// The plan whose kernels are shown, and its options. It is planned as for a run, so that names
/// are those of a run.
///
/// # Errors
/// As [`show`].
pub(crate) fn planned(
    outputs: &[Tensor],
    shown: Shown<'_>,
) -> Result<(gradiff::Plan, Configuration), String> {
    let mut engine = gradiff::Engine::new("interp").map_err(|error| error.to_string())?;
    let language = language(shown.stage);
    let target = shown.target.or(language.map(|language| language.name)).unwrap_or("plain");
    let target = crate::models::linear::target(target)?;
    engine.set_target(target);
    match shown.opts {
        Some(opts) => engine.kernel.opts = Strategy::Fixed(opts.to_vec()),
        None if shown.target.is_some() || language.is_some() => {}
        None => engine.kernel.opts = Strategy::None,
    }
    let configuration =
        Configuration { schedule: engine.schedule, kernel: engine.kernel.clone(), target };
    let outputs: Vec<&Tensor> = outputs.iter().collect();
    let plan = engine.plan(&outputs).map_err(|error| error.to_string())?;
    Ok((plan, configuration))
}

/// The lazy outputs of a program; `realize` statements are replaced by `contiguous` ones.
pub(crate) fn graph(program: &Program) -> Result<Vec<Tensor>, String> {
    let mut program = program.clone();
    for statement in &mut program.statements {
        if let gradiff_corpus::Statement::Realize { src } = statement {
            *statement = gradiff_corpus::Statement::Contiguous { src: *src };
        }
    }
    Ok(crate::backends::translate::outputs(&program, &mut |_| Ok(()))?)
}

/// The options with which a program is compiled for a device.
#[derive(Clone, Default)]
pub(crate) struct Configuration {
    pub(crate) schedule: gradiff::schedule::Options,
    pub(crate) kernel: gradiff::kernel::Options,
    pub(crate) target: Target,
}

pub(crate) fn scheduled(
    outputs: &[Tensor],
    configuration: &Configuration,
) -> Result<Schedule, String> {
    let roots: Vec<UOp> = outputs.iter().map(Tensor::uop).collect();
    gradiff::schedule::schedule(&roots, &configuration.schedule).map_err(|error| error.to_string())
}

/// Returns a kernel after each of its passes.
pub(crate) fn passed(
    ast: &UOp,
    configuration: &Configuration,
) -> Result<gradiff::kernel::Stages, String> {
    gradiff::kernel::stages(ast, &configuration.target, &configuration.kernel)
        .map_err(|error| error.to_string())
}

/// Returns the linear uops of a kernel.
pub(crate) fn lowered(ast: &UOp, configuration: &Configuration) -> Result<BoundedLinear, String> {
    let (target, options) = (&configuration.target, &configuration.kernel);
    gradiff::kernel::lower(ast, target, options, &mut Trace::default())
        .map_err(|error| error.to_string())
}

/// Runs one kernel, given its tree, on the elements of its parameters.
pub(crate) type RunKernel<'a> = &'a mut dyn FnMut(&UOp, &mut [Elements]) -> Result<(), String>;

/// Transforms a kernel tree into a graph that is not linear yet.
pub(crate) type MakeKernel<'a> = &'a mut dyn FnMut(&UOp) -> Result<UOp, String>;

/// The form in which the kernels of a schedule are run.
pub(crate) enum Level<'a> {
    /// The graph that this makes of the tree, interpreted.
    Graph(MakeKernel<'a>),
    /// Any form, run by this.
    Run(RunKernel<'a>),
}

/// The outputs of a schedule whose kernels are run at this level.
pub(crate) fn run(schedule: &Schedule, level: &mut Level<'_>) -> Result<Vec<Elements>, String> {
    let mut results: HashMap<Buffer, Elements> = HashMap::new();
    for item in &schedule.items {
        let mut memories: Vec<Elements> = Vec::with_capacity(item.buffers.len());
        for buffer in &item.buffers {
            memories.push(match results.get(buffer) {
                Some(elements) => elements.clone(),
                None => contents(buffer)?,
            });
        }
        match level {
            Level::Graph(make) => {
                interpret(&make(&item.ast)?, &mut memories)?;
            }
            Level::Run(run) => run(&item.ast, &mut memories)?,
        }
        let written = memories.swap_remove(0);
        results.insert(item.buffers[0].clone(), written);
    }
    gradiff_eval::graph::evaluate(&schedule.outputs, &mut |buffer| match results.get(buffer) {
        Some(elements) => Ok(elements.clone()),
        None => contents(buffer),
    })
}

/// The elements of a buffer: its data, or nothing yet.
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

/// Returns the first difference of these outputs from those that the oracle expects. Undefined
/// elements are given as 0: the oracle ignores them if they are undefined there too.
pub(crate) fn judge(expected: &[Expected], outputs: &[Elements]) -> Option<String> {
    for (number, (expected, elements)) in expected.iter().zip(outputs).enumerate() {
        let bits = elements.iter().map(|element| element.map_or(0, Constant::bits)).collect();
        let shape = expected.shape.clone();
        let array = Array { dtype: expected.dtype, shape, bits };
        if array.bits.len() != array.shape.iter().product::<usize>() {
            return Some(format!("output {number} has {} elements", array.bits.len()));
        }
        if let Some(mismatch) = expected.judge(&array).mismatch {
            return Some(crate::judge::agree::difference(number, expected.dtype, &mismatch));
        }
    }
    None
}
