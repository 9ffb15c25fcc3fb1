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

use crate::backends::translate;

/// A form of a case that can be shown, in the order in which they follow each other.
#[derive(Clone, Copy, Debug)]
pub enum Form {
    /// The case as it is written.
    Program,
    /// The tensor graph, the tracker or the expression.
    Graph,
    /// The trees of the kernels.
    Schedule,
    /// The kernels after each of their passes.
    Kernel,
    /// The linear uops of the kernels.
    Uops,
    /// The text of the kernels in a language.
    Text(&'static Language),
}

impl Form {
    /// The forms of the IR with their names; each language has its own name besides.
    const NAMED: [(Form, &'static str); 5] = [
        (Form::Program, "program"),
        (Form::Graph, "graph"),
        (Form::Schedule, "schedule"),
        (Form::Kernel, "kernel"),
        (Form::Uops, "uops"),
    ];

    /// The names of all forms.
    fn names() -> impl Iterator<Item = &'static str> {
        let languages = LANGUAGES.iter().map(|language| language.name);
        Form::NAMED.iter().map(|row| row.1).chain(languages)
    }

    fn language(self) -> Option<&'static Language> {
        match self {
            Form::Text(language) => Some(language),
            _ => None,
        }
    }
}

impl std::str::FromStr for Form {
    type Err = String;

    fn from_str(name: &str) -> Result<Form, String> {
        let form = Form::NAMED.iter().find(|row| row.1 == name).map(|row| row.0);
        let language = LANGUAGES.iter().find(|language| language.name == name);
        form.or_else(|| language.map(Form::Text)).ok_or_else(|| {
            let names: Vec<&str> = Form::names().collect();
            format!("no stage is called {name}; there are: {}", names.join(", "))
        })
    }
}

/// The choice of what is shown of a case.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a> {
    /// The form.
    pub form: Form,
    /// The optimisations of each kernel. `None`: those that the engine chooses if there is a
    /// language or a target, else none.
    pub opts: Option<&'a [Opt]>,
    /// Name of the target, which may be that of a device. `None`: that of the language, or the
    /// plain target.
    pub target: Option<&'a str>,
}

/// Prints one form of one case.
///
/// # Errors
/// An unknown target, a form that this kind of case does not have, a program that the
/// engine or the language refuses, an optimisation that a kernel does not allow.
pub fn show(case: &Case, shown: Shown<'_>) -> Result<String, String> {
    match (case, shown.form) {
        (Case::Program(program), Form::Program) => Ok(program.to_string()),
        (Case::Program(program), _) => show_program(program, shown),
        (Case::Views(views), Form::Program) => Ok(views.to_string()),
        (Case::Views(views), Form::Graph) => {
            Ok(format!("{}\n", crate::checks::views::tracker(views)?))
        }
        (Case::Expr(expr), Form::Program) => Ok(expr.to_string()),
        (Case::Expr(expr), Form::Graph) => {
            let graph = crate::to_uop(expr);
            let simple = gradiff::graph::text::infix(&gradiff::rewrite::simplify(&graph));
            Ok(format!("{}\n{simple}\n", gradiff::graph::text::infix(&graph)))
        }
        _ => Err("only programs have this stage".to_string()),
    }
}

pub(crate) fn show_program(program: &Program, shown: Shown<'_>) -> Result<String, String> {
    let outputs = graph(program)?;
    if matches!(shown.form, Form::Graph) {
        let texts = outputs.iter().map(|output| output.uop().to_text());
        return Ok(texts.collect::<Vec<_>>().join("\n"));
    }
    let (plan, configuration) = planned(&outputs, shown)?;
    let mut text = String::new();
    for (number, item) in plan.items.iter().enumerate() {
        text += &format!("# kernel {number}\n");
        match shown.form {
            Form::Text(language) => {
                let code = (language.render)(&item.linear).map_err(|error| error.to_string())?;
                text += &code.text;
            }
            Form::Schedule => text += &item.ast.to_text(),
            Form::Uops => text += &item.linear.to_string(),
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
    let language = shown.form.language();
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
    Ok(translate::outputs(&program, &mut |_| Ok(()))?)
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

/// Returns the first difference of these outputs from those that the oracle expects. An element
/// that is undefined, or was never written, is right only if the oracle accepts anything there:
/// both bits of all zeros and bits of all ones.
pub(crate) fn judge(expected: &[Expected], outputs: &[Elements]) -> Option<String> {
    for (number, (expected, elements)) in expected.iter().zip(outputs).enumerate() {
        if elements.len() != expected.shape.iter().product::<usize>() {
            return Some(format!("output {number} has {} elements", elements.len()));
        }
        let is_defined = elements.iter().all(Option::is_some);
        let fills: &[u64] = if is_defined { &[0] } else { &[0, u64::MAX] };
        let dtype = expected.dtype;
        let mismatch = fills.iter().find_map(|fill| {
            let fill = Constant::from_bits(translate::dtype(dtype), *fill).bits();
            let bits = elements.iter().map(|element| element.map_or(fill, Constant::bits));
            let (shape, bits) = (expected.shape.clone(), bits.collect());
            expected.judge(&Array { dtype, shape, bits }).mismatch
        });
        if let Some(mismatch) = mismatch {
            return Some(crate::judge::agree::difference(number, dtype, &mismatch));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use gradiff::DType;

    use super::*;

    #[test]
    fn undefined_elements_are_wrong_where_the_oracle_is_specific() {
        let judged = |text: &str, elements: Elements| {
            let Case::Program(program) = gradiff_corpus::parse(text).expect(text).case else {
                panic!("it is a program")
            };
            judge(&gradiff_oracle::evaluate(&program).expect("it is typed"), &[elements])
        };
        let zero = Some(Constant::bool(false));
        let is_different = "a = input i32[2] iota\nb = cmpne a a\noutput b\n";
        assert_eq!(judged(is_different, vec![zero, zero]), None);
        assert!(judged(is_different, vec![zero, None]).is_some());
        assert!(judged(is_different, vec![zero]).is_some());
        let of_zero = "a = input i32[1] [0]\nb = floordiv a a\noutput b\n";
        assert_eq!(judged(of_zero, vec![None]), None);
        let nan = "a = input f32[1] [nan]\noutput a\n";
        let nan_bits = Some(Constant::from_bits(DType::F32, 0x7fc0_0000));
        assert_eq!(judged(nan, vec![nan_bits]), None);
        assert!(judged(nan, vec![None]).is_some());
    }
}
