//! The stages a program goes through: each can be printed, and each can be run on its own by
//! evaluators that do not ask the stages after it.

use gradiff::graph::{Buffer, Constant};
use gradiff::kernel::{Opt, Strategy, Target, interpret};
use gradiff::schedule::Schedule;
use gradiff::{Tensor, UOp};
use gradiff_corpus::{Array, Case, Program};
use gradiff_oracle::Expected;
use std::collections::HashMap;

/// Elements of a tensor or of a parameter; `None` is undefined or not written yet.
pub(crate) type Elements = Vec<Option<Constant>>;

/// What `show` can show.
pub const STAGES: [&str; 6] = ["program", "graph", "schedule", "kernel", "uops", "c"];

/// One stage of one case as text, the kernels with these optimisations.
///
/// # Errors
/// An unknown stage, a stage that this kind of case has not, a program that the engine refuses, an
/// optimisation that a kernel does not allow.
pub fn show(case: &Case, stage: &str, opts: &[Opt]) -> Result<String, String> {
    if !STAGES.contains(&stage) {
        return Err(format!("no stage is called {stage}; there are: {}", STAGES.join(", ")));
    }
    match (case, stage) {
        (Case::Program(program), "program") => Ok(program.to_string()),
        (Case::Program(program), _) => show_program(program, stage, opts),
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

fn show_program(program: &Program, stage: &str, opts: &[Opt]) -> Result<String, String> {
    let outputs = graph(program)?;
    if stage == "graph" {
        let texts = outputs.iter().map(|output| output.uop().to_text());
        return Ok(texts.collect::<Vec<_>>().join("\n"));
    }
    // Planned as a run would, so that names are those of a run.
    let mut engine = gradiff::Engine::new("interp").map_err(|error| error.to_string())?;
    let mut way = Way::default();
    if !opts.is_empty() {
        way.kernel.opts = Strategy::Fixed(opts.to_vec());
    }
    engine.kernel = way.kernel.clone();
    let all: Vec<&Tensor> = outputs.iter().collect();
    let plan = engine.plan(&all).map_err(|error| error.to_string())?;
    let mut text = String::new();
    for (number, item) in plan.items.iter().enumerate() {
        text += &format!("# kernel {number}\n");
        match stage {
            "schedule" => text += &item.ast.to_text(),
            "uops" => text += &item.linear.to_string(),
            "c" => text += &gradiff::render::c(&item.linear).map_err(|error| error.to_string())?,
            _ => {
                for (pass, graph) in lowered(&item.ast, &way)?.0 {
                    text += &format!("## {pass}\n{}", graph.to_text());
                }
            }
        }
    }
    Ok(text)
}

/// The lazy outputs of a program; `realize` statements are `contiguous` ones here.
pub(crate) fn graph(program: &Program) -> Result<Vec<Tensor>, String> {
    let mut program = program.clone();
    for statement in &mut program.statements {
        if let gradiff_corpus::Statement::Realize { src } = statement {
            *statement = gradiff_corpus::Statement::Contiguous { src: *src };
        }
    }
    crate::translate::outputs(&program, &mut |_| Ok(()))
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

/// A kernel after each pass, and linear.
pub(crate) fn lowered(ast: &UOp, way: &Way) -> Result<gradiff::kernel::Stages, String> {
    gradiff::kernel::stages(ast, &way.target, &way.kernel).map_err(|error| error.to_string())
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
