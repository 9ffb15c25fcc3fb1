//! Blame: the crate that makes a program wrong. The stages are run one after the other, each by an
//! evaluator that does not use the later ones; the first whose outputs differ from the oracle's
//! names the crate.

mod cases;
pub(crate) mod culprit;
mod stage;
mod suspect;

pub use cases::{blame_expr, blame_views};
pub use stage::{Crate, Stage};
pub use suspect::{Suspect, suspect};

use gradiff::UOp;
use gradiff::graph::verify::verify_kernel;
use gradiff::graph::{Arg, BoundedLinear, Linear, Op};
use gradiff::kernel::passes::{Context, GraphPass, LINEAR_PASSES, LINEARIZE, PASSES};
use gradiff::render::LANGUAGES;
use gradiff::rewrite::{Mode, Trace};
use gradiff::view::ShapeTracker;
use gradiff_corpus::Program;
use gradiff_oracle::Expected;
use gradiff_rules::witness::Hint;

use crate::judge::strict;
use crate::models::stages::{self, Configuration, Level};
use culprit::Culprit;

/// The first stage that disagrees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blame {
    /// The stage.
    pub stage: Stage,
    /// The crate it belongs to.
    pub crate_name: Crate,
    /// The first difference there.
    pub detail: String,
    /// The application of a rule, or the bounds, that made the stage wrong.
    pub rule: Option<Culprit>,
}

impl std::fmt::Display for Blame {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "stage {} (engine/{}): {}", self.stage, self.crate_name, self.detail)?;
        self.rule.as_ref().map_or(Ok(()), |culprit| write!(f, "\n{}", culprit.report()))
    }
}

/// The first stage at which `program` goes wrong on `backend`; `None` if every stage is right,
/// if the oracle refuses the program, or if the backend is a peer. A stage that panics or refuses
/// is wrong.
pub fn blame(program: &Program, backend: &str) -> Option<Blame> {
    blame_in_steps(program, backend, &mut |_, _| {})
}

/// Callback that gets each stage and its crate before the stage is evaluated.
pub(crate) type Began<'a> = &'a mut dyn FnMut(Stage, Crate);

/// As [`blame`]; `began` is called with each stage and its crate before the stage is evaluated. If
/// a stage never ends, or ends the process, the stage of the last call is to blame.
pub fn blame_in_steps(program: &Program, backend: &str, began: Began<'_>) -> Option<Blame> {
    if crate::backends::peer::is_peer(backend) {
        return None;
    }
    began(Stage::Oracle, Crate::Oracle);
    // The evaluators of stages add in order; the error of that is no stage's fault.
    let expected = gradiff_oracle::evaluate_in_order(program).ok()?;
    let configurations = crate::backends::engine::configurations(backend);
    let blame = configurations
        .iter()
        .find_map(|configuration| {
            in_graph(program, &expected, configuration, began)
                .or_else(|| in_kernels(program, &expected, configuration, began))
        })
        .or_else(|| at_the_end(program, &expected, &configurations[0], backend, began))?;
    Some(with_suspect(blame))
}

/// Returns the blame, or that of a suspect to which its detail leads.
fn with_suspect(blame: Blame) -> Blame {
    match suspect(&blame.detail) {
        // The stage at which the same crate shows the mistake says more.
        Some(Suspect { stage, crate_name, detail }) if crate_name != blame.crate_name => {
            let detail = match detail == blame.detail {
                true => detail,
                false => format!("{} ({detail})", blame.detail),
            };
            Blame { stage, crate_name, detail, rule: None }
        }
        _ => blame,
    }
}

/// Blames a stage for what is wrong, without naming a rule.
fn blamed(stage: Stage, crate_name: Crate, detail: String) -> Option<Blame> {
    Some(Blame { stage, crate_name, detail, rule: None })
}

/// Compares the outputs of a stage with the oracle's. Returns the first difference, a panic or a
/// refusal.
fn wrong(
    expected: &[Expected],
    outputs: impl FnOnce() -> Result<Vec<gradiff_eval::Elements>, String>,
) -> Option<String> {
    match crate::catch(outputs).and_then(|outputs| outputs) {
        Ok(outputs) => stages::judge(expected, &outputs),
        Err(problem) => Some(problem),
    }
}

/// Compares the dtypes and shapes of the tensor graph's outputs with those that the oracle infers.
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

/// Checks the tensor graph, as it is and after each pass of the schedule that gives another one.
fn in_graph(
    program: &Program,
    expected: &[Expected],
    configuration: &Configuration,
    began: Began<'_>,
) -> Option<Blame> {
    began(Stage::Tensor, Crate::Tensor);
    if let Some(detail) = wrong_type(program, expected) {
        return blamed(Stage::Tensor, Crate::Tensor, detail);
    }
    let read = &mut stages::contents;
    let graph = || -> Result<Vec<UOp>, String> {
        let outputs = stages::graph(program)?;
        Ok(outputs.iter().map(gradiff::Tensor::uop).collect())
    };
    let evaluated = || gradiff_eval::graph::evaluate(&graph()?, read);
    if let Some(detail) = wrong(expected, evaluated) {
        return blamed(Stage::Tensor, Crate::Tensor, detail);
    }
    began(Stage::Schedule, Crate::Schedule);
    let passes = crate::catch(|| {
        let graph = graph()?;
        let stages = gradiff::schedule::stages(&graph, &configuration.schedule);
        stages.collect::<Result<Vec<_>, _>>().map_err(|error| error.to_string())
    });
    let passes = match passes.and_then(|passes| passes) {
        Ok(passes) => passes,
        Err(problem) => return blamed(Stage::Schedule, Crate::Schedule, problem),
    };
    let rows = passes.iter().zip(gradiff::schedule::PASSES);
    let before_kernels = rows.take_while(|((pass, _), _)| Stage::Pass(pass) != Stage::KERNELS);
    for ((pass, outputs), row) in before_kernels {
        let crate_name = Crate::named(row.crate_name).unwrap_or(Crate::Schedule);
        let evaluated = || gradiff_eval::graph::evaluate(outputs, &mut stages::contents);
        if let Some(detail) = wrong(expected, evaluated) {
            return blamed(Stage::Pass(pass), crate_name, detail);
        }
    }
    None
}

/// The buffers of each kernel, numbered in the order in which they are used first.
fn buffer_uses(schedule: &gradiff::schedule::Schedule) -> Vec<Vec<usize>> {
    let mut known = Vec::new();
    let mut number = |buffer: &gradiff::graph::Buffer| {
        known.iter().position(|found| found == buffer).unwrap_or_else(|| {
            known.push(buffer.clone());
            known.len() - 1
        })
    };
    schedule.items.iter().map(|item| item.buffers.iter().map(&mut number).collect()).collect()
}

/// Checks the kernels after each of their passes, and as linear uops.
fn in_kernels(
    program: &Program,
    expected: &[Expected],
    configuration: &Configuration,
    began: Began<'_>,
) -> Option<Blame> {
    began(Stage::KERNELS, Crate::Schedule);
    let at_level = |configuration: &Configuration, level: &mut Level<'_>| {
        let schedule = stages::scheduled(&stages::graph(program)?, configuration)?;
        stages::run(&schedule, level)
    };
    let tree = &mut |ast: &UOp| Ok(ast.clone());
    if let Some(detail) = wrong(expected, || at_level(configuration, &mut Level::Graph(tree))) {
        // If it is right once views are stacked instead of merged, merging is wrong; but if the
        // buffers are used in another way then, that may have been wrong.
        let mut stacked = configuration.clone();
        stacked.schedule.merge_views = false;
        let uses = |configuration: &Configuration| {
            let graph = stages::graph(program).ok()?;
            Some(buffer_uses(&stages::scheduled(&graph, configuration).ok()?))
        };
        let is_merging = uses(configuration) == uses(&stacked)
            && wrong(expected, || at_level(&stacked, &mut Level::Graph(tree))).is_none();
        return blamed(
            Stage::KERNELS,
            if is_merging { Crate::View } else { Crate::Schedule },
            detail,
        );
    }
    for (number, pass) in PASSES.iter().enumerate() {
        began(Stage::Pass(pass.name), crate_of_pass(pass));
        let make =
            &mut |ast: &UOp| passed(ast, configuration, number, &mut Trace::default(), &mut "");
        if let Some(detail) = wrong(expected, || at_level(configuration, &mut Level::Graph(make))) {
            return in_pass(program, expected, configuration, number, detail);
        }
    }
    if let Some(blame) = endless(program, configuration) {
        return Some(blame);
    }
    let linear_passes = LINEAR_PASSES.iter().map(|pass| pass.name);
    for (number, pass) in [LINEARIZE.name].into_iter().chain(linear_passes).enumerate() {
        began(Stage::Pass(pass), Crate::Kernel);
        let run = &mut |ast: &UOp, memories: &mut [gradiff_eval::Elements]| {
            let linears = stages::passed(ast, configuration)?.linears;
            let kernel = whole_products(&linears, number);
            // A device may refuse what the evaluator takes.
            if number == LINEAR_PASSES.len() {
                verify_kernel(kernel).map_err(|error| error.to_string())?;
            }
            // In strict mode a product must be rounded even if its sum is right.
            if configuration.kernel.rewrite.mode == Mode::Strict {
                strict::check(ast, kernel)?;
            }
            gradiff_eval::linear::run(kernel, memories)
        };
        if let Some(detail) = wrong(expected, || at_level(configuration, &mut Level::Run(run))) {
            return blamed(Stage::Pass(pass), Crate::Kernel, detail);
        }
    }
    None
}

/// Returns the uops after the pass of this number, or after the first later one that has joined the
/// elements of each matrix product: a warp computes them together.
fn whole_products<'a>(linears: &'a [(&'static str, Linear)], number: usize) -> &'a Linear {
    let is_whole =
        |linear: &Linear| linear.uops.iter().all(|uop| uop.op != Op::Wmma || 1 < uop.lanes);
    let mut after = linears[number..].iter().map(|(_, linear)| linear);
    after.find(|linear| is_whole(linear)).unwrap_or(&linears[linears.len() - 1].1)
}

/// The crate that makes a graph wrong under these options, where `is_right` judges its elements;
/// the runtime if all stages before it are right.
pub(crate) fn crate_of_graph(
    graph: &UOp,
    configuration: &Configuration,
    is_right: &dyn Fn(&gradiff_eval::Elements) -> bool,
) -> Crate {
    let roots = [graph.clone()];
    let schedule = crate::catch(|| gradiff::schedule::schedule(&roots, &configuration.schedule));
    let Ok(Ok(schedule)) = schedule else { return Crate::Schedule };
    let holds = |level: &mut Level<'_>| {
        let outputs = crate::catch(|| stages::run(&schedule, level)).and_then(|outputs| outputs);
        outputs.is_ok_and(|outputs| is_right(&outputs[0]))
    };
    if !holds(&mut Level::Graph(&mut |ast| Ok(ast.clone()))) {
        return Crate::Schedule;
    }
    for (number, pass) in PASSES.iter().enumerate() {
        let make =
            &mut |ast: &UOp| passed(ast, configuration, number, &mut Trace::default(), &mut "");
        if !holds(&mut Level::Graph(make)) {
            return crate_of_pass(pass);
        }
    }
    let linear = &mut |ast: &UOp, memories: &mut [gradiff_eval::Elements]| {
        let linear = stages::lowered(ast, configuration)?;
        gradiff_eval::linear::run(&linear, memories)
    };
    if holds(&mut Level::Run(linear)) { Crate::Runtime } else { Crate::Kernel }
}

/// Runs the passes up to and including number `last` over one kernel. `pass` becomes the last one
/// that applied a rule.
pub(crate) fn passed(
    ast: &UOp,
    configuration: &Configuration,
    last: usize,
    trace: &mut Trace,
    pass: &mut &'static str,
) -> Result<UOp, String> {
    let mut ctx = Context::new(ast, &configuration.target, &configuration.kernel, trace);
    let mut root = ast.clone();
    for row in &PASSES[..=last] {
        let (applied, before) = (ctx.trace.applied, *pass);
        // If a rule panics, its pass stays named.
        *pass = row.name;
        root = (row.run)(&root, &mut ctx).map_err(|error| error.to_string())?;
        if ctx.trace.applied == applied {
            *pass = before;
        }
    }
    Ok(root)
}

/// Returns the crate of a kernel pass: `rewrite` if the pass runs rules.
fn crate_of_pass(pass: &GraphPass) -> Crate {
    match Crate::named(pass.crate_name) {
        Some(Crate::Rewrite) => Crate::Rewrite,
        _ => Crate::Kernel,
    }
}

/// Blames a kernel pass whose outputs are wrong; if it runs rules, with the application that made
/// them wrong.
fn in_pass(
    program: &Program,
    expected: &[Expected],
    configuration: &Configuration,
    last: usize,
    detail: String,
) -> Option<Blame> {
    let schedule = stages::scheduled(&stages::graph(program).ok()?, configuration).ok()?;
    let name = PASSES[last].name;
    if crate_of_pass(&PASSES[last]) != Crate::Rewrite {
        let is_view = Crate::named(PASSES[last].crate_name) == Some(Crate::View)
            && schedule.items.iter().any(|item| item.ast.toposort().iter().any(is_misplaced));
        let crate_name = if is_view { Crate::View } else { Crate::Kernel };
        return blamed(Stage::Pass(name), crate_name, detail);
    }
    let mut pass = "";
    let mut run = |fuel: Option<u64>, trace: &mut Trace| {
        let mut configuration = configuration.clone();
        configuration.kernel.rewrite.fuel = fuel;
        let mut make = |ast: &UOp| passed(ast, &configuration, last, trace, &mut pass);
        let outputs = || stages::run(&schedule, &mut Level::Graph(&mut make));
        wrong(expected, outputs).map_or(Ok(()), Err)
    };
    let culprit = culprit::search(&mut run, &Hint::new());
    let mut blame = blamed(Stage::Pass(name), Crate::Rewrite, detail)?;
    match culprit {
        Some(culprit) => blame.rule = Some(Culprit { pass: pass.to_string(), ..culprit }),
        None => blame.detail += "; no single application of a rule makes it so",
    }
    Some(blame)
}

/// Returns whether the node's tracker sends an element elsewhere once its axes of size 1 are
/// dropped or two neighbouring axes are merged, as pass `shape` asks of it.
fn is_misplaced(node: &UOp) -> bool {
    let Arg::View(tracker) = node.arg() else { return false };
    let addresses = |tracker: &ShapeTracker| -> Vec<Option<i64>> {
        let count = tracker.shape().iter().product();
        let index = |mut rest: i64| {
            let mut index = tracker.shape().to_vec();
            for size in index.iter_mut().rev() {
                (*size, rest) = (rest % *size, rest / *size);
            }
            index
        };
        (0..count).map(|element| tracker.locate(&index(element))).collect()
    };
    let long: Vec<i64> = tracker.shape().iter().copied().filter(|size| *size != 1).collect();
    let merged = |axis: usize| {
        let mut shape = long.clone();
        let size = shape.remove(axis + 1);
        shape[axis] *= size;
        shape
    };
    let mut shapes = (1..long.len()).map(|axis| merged(axis - 1)).chain([long.clone()]);
    let expected = addresses(tracker);
    shapes.any(|shape| tracker.reshape(&shape).is_ok_and(|moved| addresses(&moved) != expected))
}

/// Blames a pass whose rules do not terminate on a kernel, although its result is right.
fn endless(program: &Program, configuration: &Configuration) -> Option<Blame> {
    let schedule = stages::scheduled(&stages::graph(program).ok()?, configuration).ok()?;
    for item in &schedule.items {
        let (mut trace, mut pass) = (Trace::with_steps(), "");
        passed(&item.ast, configuration, PASSES.len() - 1, &mut trace, &mut pass).ok()?;
        if culprit::is_endless(&trace) {
            let blame =
                blamed(Stage::Pass(pass), Crate::Rewrite, "rewriting does not end".to_string());
            let rule = culprit::of_endless(&trace);
            let rule = rule.map(|culprit| Culprit { pass: pass.to_string(), ..culprit });
            return blame.map(|blame| Blame { rule, ..blame });
        }
    }
    None
}

/// Blames the device, its source text, or what surrounds the launches: all linear uops are right.
fn at_the_end(
    program: &Program,
    expected: &[Expected],
    configuration: &Configuration,
    backend: &str,
    began: Began<'_>,
) -> Option<Blame> {
    let device = crate::backends::engine::device_of(backend).unwrap_or(backend);
    let (stage, crate_name) = last_stage(device);
    let mut alone = || {
        let schedule = stages::scheduled(&stages::graph(program)?, configuration)?;
        stages::run(
            &schedule,
            &mut Level::Run(&mut |ast, memories| {
                let linear = stages::lowered(ast, configuration)?;
                began(Stage::Render, Crate::Render);
                for language in LANGUAGES {
                    let _ = crate::catch(|| (language.render)(&linear).is_ok());
                }
                began(Stage::Compile, Crate::Runtime);
                crate::backends::engine::run_alone_in_steps(backend, &linear, memories, &mut || {
                    began(stage, crate_name)
                })
            }),
        )
    };
    if let Some(detail) = wrong(expected, &mut alone) {
        let is_text = || {
            // The prelude may panic.
            let text = crate::catch(|| has_compiled_text(program, configuration));
            device == "c" && text.ok().flatten().unwrap_or(false)
        };
        let (stage, crate_name) = match outside_runs(&detail) {
            Some(known) => known,
            // The text compiles by itself, but not by the device.
            None if !detail.contains(" of output ") && is_text() => {
                (Stage::Compile, Crate::Runtime)
            }
            // Such a text stores no truth value; what that gives is up to the compiler.
            None if detail.contains(crate::backends::engine::NO_BOOL) => (stage, crate_name),
            None if device == "c" && is_right_as_text(program, expected, configuration) => {
                (Stage::Compile, Crate::Runtime)
            }
            None => (stage, crate_name),
        };
        return blamed(stage, crate_name, detail);
    }
    began(Stage::Launch, Crate::Runtime);
    // Kernels are right one by one but wrong together: a cache, or memory.
    let backends = crate::backends(&[backend.to_string()]).ok()?;
    let (_, failures) = crate::agree(&[program], &backends);
    let (_, failure) = failures.into_iter().next()?;
    let (stage, crate_name) = outside_runs(&failure.detail).unwrap_or_else(|| {
        let is_right = wrong(expected, || by_hand(program, configuration, device)).is_none();
        // If memories are sound, the fault lies in what the engine does around launches.
        match is_right && crate::checks::calls::check_runtime().is_ok() {
            true => (Stage::Read, Crate::Tensor),
            false => (Stage::Launch, Crate::Runtime),
        }
    });
    blamed(stage, crate_name, failure.detail)
}

/// The stage after the linear uops on a device, and its crate.
pub(crate) fn last_stage(device: &str) -> (Stage, Crate) {
    match device {
        "interp" | "jit" => (Stage::Run, Crate::Runtime),
        // Where uops are evaluated, the kernel breaks a promise.
        crate::backends::engine::UOPS => (Stage::LINEARIZE, Crate::Kernel),
        // The others compile a text. One that runs wrongly or endlessly is the renderer's fault.
        _ => (Stage::Render, Crate::Render),
    }
}

/// Returns whether the texts in C give the right elements if they are compiled without
/// optimisations: then the device compiles them in another way than they rely on.
fn is_right_as_text(
    program: &Program,
    expected: &[Expected],
    configuration: &Configuration,
) -> bool {
    let Ok(texts) = crate::backends::texts::open("c") else { return false };
    let run = &mut |ast: &UOp, memories: &mut [gradiff_eval::Elements]| {
        let linear = stages::lowered(ast, configuration)?;
        let compiled = texts.compile(&[&linear]).map_err(|error| error.to_string())?;
        crate::backends::engine::run_compiled(&*compiled[0], &linear, memories)
    };
    let outputs = || {
        let schedule = stages::scheduled(&stages::graph(program)?, configuration)?;
        stages::run(&schedule, &mut Level::Run(run))
    };
    wrong(expected, outputs).is_none()
}

/// Compiles all kernels at once and runs them on the memories of their buffers, without an engine.
fn by_hand(
    program: &Program,
    configuration: &Configuration,
    device: &str,
) -> Result<Vec<gradiff_eval::Elements>, String> {
    let schedule = stages::scheduled(&stages::graph(program)?, configuration)?;
    let lowered = |item: &gradiff::schedule::Item| stages::lowered(&item.ast, configuration);
    let linears: Vec<BoundedLinear> =
        schedule.items.iter().map(lowered).collect::<Result<_, String>>()?;
    crate::backends::engine::run_in_order(device, &schedule, &linears)?;
    gradiff_eval::graph::evaluate(&schedule.outputs, &mut stages::contents)
}

/// Returns whether a compiler that is asked directly takes the texts in C of all kernels; `None`
/// if there is none.
fn has_compiled_text(program: &Program, configuration: &Configuration) -> Option<bool> {
    let schedule = stages::scheduled(&stages::graph(program).ok()?, configuration).ok()?;
    let mut is_taken = Some(true);
    for item in &schedule.items {
        let linear = stages::lowered(&item.ast, configuration).ok()?;
        is_taken =
            is_taken.filter(|taken| *taken).and_then(|_| crate::backends::texts::is_c(&linear));
    }
    is_taken
}

/// The stage and the crate of a problem that backends find besides running a program, or in texts.
fn outside_runs(detail: &str) -> Option<(Stage, Crate)> {
    if detail.contains(crate::checks::calls::SAID) {
        return Some((Stage::Calls, crate::checks::calls::crate_of_calls(detail)));
    }
    if detail.contains(crate::judge::requested::SAID) {
        return Some((Stage::Schedule, Crate::Schedule));
    }
    if detail.contains(crate::models::linear::NO_TEXT) {
        return Some((Stage::Render, Crate::Render));
    }
    let drawn = [crate::checks::kernels::SAID, crate::checks::points::SAID];
    if drawn.into_iter().any(|said| detail.contains(said)) {
        return Some((Stage::Drawn, crate::checks::kernels::crate_of_kernels(detail)));
    }
    if detail.contains(crate::checks::trees::SAID) {
        return Some((Stage::Drawn, crate::checks::trees::crate_of_trees(detail)));
    }
    detail.contains(crate::checks::listing::PREFIX).then_some((Stage::Text, Crate::Graph))
}
