//! Blame: the crate that makes a program wrong. The stages are run one after the other, each by an
//! evaluator that does not use the later ones; the first whose outputs differ from the oracle's
//! names the crate.

pub(crate) mod culprit;

use gradiff::UOp;
use gradiff::graph::{Arg, BoundedLinear, Constant, DType, Linear, Op, Target};
use gradiff::kernel::passes::{Context, LINEAR_PASSES, LINEARIZE, PASSES};
use gradiff::render::LANGUAGES;
use gradiff::rewrite::{Claim, Trace};
use gradiff::view::ShapeTracker;
use gradiff_corpus::{ExprCase, Program, ViewOps};
use gradiff_oracle::Expected;
use gradiff_rules::witness::{Hint, stray, witness};

use crate::checks::exprs::{self, Point, Wrong};
use crate::models::stages::{self, Configuration, Level};
use culprit::Culprit;

/// The first stage that disagrees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blame {
    /// The stage: `tensor`, a pass of the schedule or of the kernel, `render`, `run`.
    pub stage: String,
    /// The crate it belongs to: `tensor`, `view`, `schedule`, `rewrite`, `kernel`, `render` or
    /// `runtime`.
    pub crate_name: String,
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
/// or if the oracle refuses the program. A stage that panics or refuses is wrong.
pub fn blame(program: &Program, backend: &str) -> Option<Blame> {
    blame_in_steps(program, backend, &mut |_, _| {})
}

/// Callback that gets the name and the crate of each stage before it is evaluated.
pub(crate) type Began<'a> = &'a mut dyn FnMut(&str, &str);

/// As [`blame`]; `began` is called with each stage and its crate before the stage is evaluated. If
/// a stage never ends, or ends the process, the stage of the last call is to blame.
pub fn blame_in_steps(program: &Program, backend: &str, began: Began<'_>) -> Option<Blame> {
    began("oracle", "oracle");
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

/// The culprit of a problem, wherever the problem shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suspect {
    /// As in [`Blame`].
    pub stage: &'static str,
    /// As in [`Blame`].
    pub crate_name: &'static str,
    /// A description of what is wrong there.
    pub detail: String,
}

/// A crate that is known to be the culprit of a problem, whatever stage the problem shows in: the
/// crate that panicked; `graph` if some constant fold, interval or size with variables is wrong,
/// since every stage computes with them, or if its checker refuses kernels that are right; `kernel`
/// if a target contradicts itself; `render` if a text leaves out a wrap.
pub fn suspect(problem: &str) -> Option<Suspect> {
    let suspect = |stage, crate_name, detail| Some(Suspect { stage, crate_name, detail });
    if let Some(crate_name) = crate::backends::panics::crate_of(problem) {
        return suspect("panic", crate_name, problem.to_string());
    }
    if let Some(detail) = crate::checks::calls::wrong_fold() {
        return suspect("fold", "graph", detail);
    }
    if let Some(detail) = crate::checks::calls::wrong_interval() {
        return suspect("interval", "graph", detail);
    }
    if let Some(detail) = crate::checks::calls::wrong_size() {
        return suspect("sizes", "graph", detail);
    }
    if problem.contains(crate::backends::translate::SAME_DTYPES) {
        return suspect("dtypes", "graph", problem.to_string());
    }
    if let Some(detail) = crate::checks::calls::wrong_view() {
        return suspect("views", "view", detail);
    }
    if let Some(detail) = wrong_target() {
        return suspect("target", "kernel", detail);
    }
    if problem.contains(gradiff_eval::linear::NOT_WRAPPED) {
        return suspect("render", "render", problem.to_string());
    }
    let is_difference = problem.contains(" of output ");
    match is_difference {
        true => None,
        false => {
            let refused =
                crate::checks::kernels::refused().or_else(crate::checks::calls::wrong_node);
            refused.and_then(|detail| suspect("verify", "graph", detail))
        }
    }
}

/// A target whose vectors have more lanes or bytes than it says.
fn wrong_target() -> Option<String> {
    let wrong = |name: &str, dtype: DType| {
        let vectors = Target::of(name).vectors;
        let lanes = vectors.lanes_of(dtype);
        let bytes = i64::from(vectors.bytes);
        let is_right = match dtype {
            DType::Bool | DType::Void => lanes == 0,
            DType::F16 | DType::BF16 => lanes <= vectors.half_lanes && 2 * lanes <= bytes,
            _ => lanes <= vectors.lanes && lanes * dtype.size_bytes() as i64 <= bytes,
        };
        (!is_right)
            .then(|| format!("{name} claims vectors of {lanes} {dtype}, but has {vectors:?}"))
    };
    Target::names().find_map(|name| DType::ALL.into_iter().find_map(|dtype| wrong(name, dtype)))
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
            Blame {
                stage: stage.to_string(),
                crate_name: crate_name.to_string(),
                detail,
                rule: None,
            }
        }
        _ => blame,
    }
}

/// Blames a stage for what is wrong, without naming a rule.
fn blamed(stage: &str, crate_name: &str, detail: String) -> Option<Blame> {
    Some(Blame { stage: stage.to_string(), crate_name: crate_name.to_string(), detail, rule: None })
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
    began("tensor", "tensor");
    if let Some(detail) = wrong_type(program, expected) {
        return blamed("tensor", "tensor", detail);
    }
    let read = &mut stages::contents;
    let graph = || -> Result<Vec<UOp>, String> {
        let outputs = stages::graph(program)?;
        Ok(outputs.iter().map(gradiff::Tensor::uop).collect())
    };
    let evaluated = || gradiff_eval::graph::evaluate(&graph()?, read);
    if let Some(detail) = wrong(expected, evaluated) {
        return blamed("tensor", "tensor", detail);
    }
    began("schedule", "schedule");
    let passes = crate::catch(|| {
        gradiff::schedule::stages(&graph()?, &configuration.schedule)
            .map_err(|error| error.to_string())
    });
    let passes = match passes.and_then(|passes| passes) {
        Ok(passes) => passes,
        Err(problem) => return blamed("schedule", "schedule", problem),
    };
    for (pass, outputs) in passes.iter().take_while(|(pass, _)| *pass != "kernels") {
        let crate_name = if *pass == "views" { "view" } else { "schedule" };
        let evaluated = || gradiff_eval::graph::evaluate(outputs, &mut stages::contents);
        if let Some(detail) = wrong(expected, evaluated) {
            return blamed(pass, crate_name, detail);
        }
    }
    None
}

/// Checks the kernels after each of their passes, and as linear uops.
fn in_kernels(
    program: &Program,
    expected: &[Expected],
    configuration: &Configuration,
    began: Began<'_>,
) -> Option<Blame> {
    began("kernels", "schedule");
    let at_level = |configuration: &Configuration, level: &mut Level<'_>| {
        let schedule = stages::scheduled(&stages::graph(program)?, configuration)?;
        stages::run(&schedule, level)
    };
    let tree = &mut |ast: &UOp| Ok(ast.clone());
    if let Some(detail) = wrong(expected, || at_level(configuration, &mut Level::Graph(tree))) {
        // If it is right once views are stacked instead of merged, merging is wrong.
        let mut stacked = configuration.clone();
        stacked.schedule.merge_views = false;
        let is_merging = wrong(expected, || at_level(&stacked, &mut Level::Graph(tree))).is_none();
        return blamed("kernels", if is_merging { "view" } else { "schedule" }, detail);
    }
    for (number, pass) in PASSES.iter().enumerate() {
        began(pass.name, if is_rules(pass.name) { "rewrite" } else { "kernel" });
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
        began(pass, "kernel");
        let run = &mut |ast: &UOp, memories: &mut [gradiff_eval::Elements]| {
            let linears = stages::passed(ast, configuration)?.linears;
            gradiff_eval::linear::run(whole_products(&linears, number), memories)
        };
        if let Some(detail) = wrong(expected, || at_level(configuration, &mut Level::Run(run))) {
            return blamed(pass, "kernel", detail);
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
) -> &'static str {
    let roots = [graph.clone()];
    let schedule = crate::catch(|| gradiff::schedule::schedule(&roots, &configuration.schedule));
    let Ok(Ok(schedule)) = schedule else { return "schedule" };
    let holds = |level: &mut Level<'_>| {
        let outputs = crate::catch(|| stages::run(&schedule, level)).and_then(|outputs| outputs);
        outputs.is_ok_and(|outputs| is_right(&outputs[0]))
    };
    if !holds(&mut Level::Graph(&mut |ast| Ok(ast.clone()))) {
        return "schedule";
    }
    for (number, pass) in PASSES.iter().enumerate() {
        let make =
            &mut |ast: &UOp| passed(ast, configuration, number, &mut Trace::default(), &mut "");
        if !holds(&mut Level::Graph(make)) {
            return if is_rules(pass.name) { "rewrite" } else { "kernel" };
        }
    }
    let linear = &mut |ast: &UOp, memories: &mut [gradiff_eval::Elements]| {
        let linear = stages::lowered(ast, configuration)?;
        gradiff_eval::linear::run(&linear, memories)
    };
    if holds(&mut Level::Run(linear)) { "runtime" } else { "kernel" }
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

/// Returns whether a kernel pass runs rules.
fn is_rules(pass: &str) -> bool {
    matches!(pass, "symbolic" | "symbolic-again" | "late" | "contract" | "collapse")
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
    if !is_rules(PASSES[last].name) {
        let is_view = PASSES[last].name == "shape"
            && schedule.items.iter().any(|item| item.ast.toposort().iter().any(is_misplaced));
        return blamed(PASSES[last].name, if is_view { "view" } else { "kernel" }, detail);
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
    let mut blame = blamed(PASSES[last].name, "rewrite", detail)?;
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
            let blame = blamed(pass, "rewrite", "rewriting does not end".to_string());
            let rule = culprit::of_endless(&trace);
            let rule = rule.map(|culprit| Culprit { pass: pass.to_string(), ..culprit });
            return blame.map(|blame| Blame { rule, ..blame });
        }
    }
    None
}

/// Blames what makes an expression wrong; `None` if nothing is wrong with it, or if it is
/// malformed.
pub fn blame_expr(case: &ExprCase) -> Option<Blame> {
    let (detail, culprit, pass) = match crate::catch(|| exprs::examine(case)) {
        Ok(Ok(())) | Ok(Err(Wrong::Malformed(_))) => return None,
        Ok(Err(wrong)) => {
            let (culprit, pass) = of_expr(case, &wrong);
            (wrong.detail(), culprit, pass)
        }
        Err(panic) => (panic, by_fuel(case, None), "symbolic"),
    };
    let mut blame = blamed("symbolic", "rewrite", detail)?;
    match culprit {
        Some(culprit) => blame.rule = Some(Culprit { pass: pass.to_string(), ..culprit }),
        None => blame.detail += "; no single application of a rule makes it so",
    }
    Some(blame)
}

/// The culprit of what is wrong with an expression, and its pass.
fn of_expr(case: &ExprCase, wrong: &Wrong) -> (Option<Culprit>, &'static str) {
    let graph = exprs::to_uop(case);
    let mut trace = Trace::with_steps();
    let simple = exprs::simplified(&graph, None, &mut trace);
    let culprit = match wrong {
        Wrong::Malformed(_) => None,
        Wrong::Value(point, _) => by_fuel(case, Some(point)),
        Wrong::Bounds(point, _) => {
            let hint = hint(case, point);
            stray(&[&graph, &simple], &hint).map(|stray| culprit::of_bounds(&stray))
        }
        Wrong::Endless(_) => culprit::of_endless(&trace),
        Wrong::Again(_) => {
            let once = trace.steps.take().unwrap_or_default();
            let mut again = Trace::with_steps();
            exprs::simplified(&simple, None, &mut again);
            let again = again.steps.unwrap_or_default();
            // A step that makes an unused value wrong is the culprit before any other.
            let runs = [once.as_slice(), again.as_slice()];
            let culprit = runs.iter().find_map(|steps| culprit::first_false(steps, &Hint::new()));
            let fired = again.first().map(culprit::of_step);
            let culprit = culprit.or(fired.map(|culprit| Culprit {
                witness: "fires once more on what was simplified".to_string(),
                ..culprit
            }));
            return (culprit, "symbolic, for the second time");
        }
    };
    (culprit, "symbolic")
}

/// Blames what makes a sequence of movements wrong: the rules if simplifying the index or the
/// validity of its tracker changes a value or does not end, else the views; `None` if nothing is
/// wrong with it.
pub fn blame_views(case: &ViewOps) -> Option<Blame> {
    let nodes = crate::catch(|| {
        let tracker = crate::checks::views::tracker(case).ok()?;
        let indexed =
            [tracker.simplify(), tracker].map(|t| crate::judge::expects::indexed(&t, false));
        Some(indexed.into_iter().flat_map(|(index, valid)| std::iter::once(index).chain(valid)))
    });
    let of_rules = nodes.ok().flatten().and_then(|mut nodes| nodes.find_map(|node| of_node(&node)));
    of_rules.or_else(|| {
        let checked = || crate::check_views(case).and_then(|()| crate::check_symbolic_views(case));
        let problem = crate::catch(checked).and_then(|checked| checked).err()?;
        blamed("views", "view", problem)
    })
}

/// Blames a rule if simplifying the node changes its value or does not end.
fn of_node(node: &UOp) -> Option<Blame> {
    let no_hint = Hint::new();
    let mut run = |fuel: Option<u64>, trace: &mut Trace| {
        let simple = crate::catch(|| exprs::simplified(node, fuel, trace))?;
        witness(node, &simple, Claim::Bits, &no_hint).map_or(Ok(()), Err)
    };
    let mut trace = Trace::with_steps();
    let (detail, rule) = match run(None, &mut trace) {
        Err(problem) => (problem, culprit::search(&mut run, &no_hint)),
        Ok(()) if culprit::is_endless(&trace) => {
            ("does not end".to_string(), culprit::of_endless(&trace))
        }
        Ok(()) => return None,
    };
    let detail = format!("simplifying {}: {detail}", culprit::short(node));
    let blame = blamed("symbolic", "rewrite", detail)?;
    Some(Blame {
        rule: rule.map(|culprit| Culprit { pass: "symbolic".to_string(), ..culprit }),
        ..blame
    })
}

/// The point as values of the expression's variable nodes.
fn hint(case: &ExprCase, point: &Point) -> Hint {
    let nodes = exprs::variables(case).into_iter().zip(point);
    nodes.map(|(node, value)| (node.clone(), Constant::int(node.dtype(), *value))).collect()
}

/// Finds by fuel the application that makes the expression wrong at this point; that makes it
/// panic if there is no point.
fn by_fuel(case: &ExprCase, point: Option<&Point>) -> Option<Culprit> {
    let graph = exprs::to_uop(case);
    let mut run = |fuel: Option<u64>, trace: &mut Trace| {
        let simple = crate::catch(|| exprs::simplified(&graph, fuel, trace))?;
        let is_right = point.is_none_or(|point| exprs::is_right_at(case, &simple, point));
        if is_right { Ok(()) } else { Err("another value".to_string()) }
    };
    culprit::search(&mut run, &point.map(|point| hint(case, point)).unwrap_or_default())
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
                began("render", "render");
                for language in LANGUAGES {
                    let _ = crate::catch(|| (language.render)(&linear).is_ok());
                }
                began("compile", "runtime");
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
        let (stage, crate_name) = match beside_runs(&detail) {
            Some(known) => known,
            // The text compiles by itself, but not by the device.
            None if !detail.contains(" of output ") && is_text() => ("compile", "runtime"),
            None => (stage, crate_name),
        };
        return blamed(stage, crate_name, detail);
    }
    began("launch", "runtime");
    // Kernels are right one by one but wrong together: a cache, or memory.
    let backends = crate::backends(&[backend.to_string()]).ok()?;
    let (_, failures) = crate::agree(&[program], &backends);
    let (_, failure) = failures.into_iter().next()?;
    let (stage, crate_name) = beside_runs(&failure.detail).unwrap_or_else(|| {
        let is_right = wrong(expected, || by_hand(program, configuration, device)).is_none();
        // If memories are sound, the fault lies in what the engine does around launches.
        match is_right && crate::checks::calls::check_runtime().is_ok() {
            true => ("read", "tensor"),
            false => ("launch", "runtime"),
        }
    });
    blamed(stage, crate_name, failure.detail)
}

/// The stage after the linear uops on a device, and its crate.
pub(crate) fn last_stage(device: &str) -> (&'static str, &'static str) {
    match device {
        "interp" | "jit" => ("run", "runtime"),
        // Where uops are evaluated, the kernel breaks a promise.
        crate::backends::engine::UOPS => ("linearize", "kernel"),
        // The others compile a text. One that runs wrongly or endlessly is the renderer's fault.
        _ => ("render", "render"),
    }
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
fn beside_runs(detail: &str) -> Option<(&'static str, &'static str)> {
    if detail.contains(crate::checks::calls::SAID) {
        return Some(("calls", crate::crate_of_calls(detail)));
    }
    if detail.contains(crate::models::linear::NO_TEXT) {
        return Some(("render", "render"));
    }
    if detail.contains(crate::checks::kernels::SAID) {
        return Some(("kernels", crate::crate_of_kernels(detail)));
    }
    detail.contains(crate::checks::listing::PREFIX).then_some(("text", "graph"))
}
