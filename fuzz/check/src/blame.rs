//! Who is to blame? The stages are run one after the other, each by an evaluator that does not
//! ask the later ones; the first whose outputs differ from the oracle's names the guilty room.

use gradiff::UOp;
use gradiff::graph::{Arg, BoundedLinear, Constant, Linear, Op};
use gradiff::kernel::{Context, LINEAR_PASSES, LINEARIZE, PASSES};
use gradiff::rewrite::{Claim, Trace};
use gradiff::view::ShapeTracker;
use gradiff_corpus::{ExprCase, Program, ViewOps};
use gradiff_oracle::Expected;
use gradiff_rules::witness::{Hint, stray, witness};

use crate::exprs::{self, Point, Wrong};
use crate::guilt::{self, Guilt};
use crate::stages::{self, Level, Way};

/// The first stage that disagrees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blame {
    /// The stage: `tensor`, a pass of the schedule or of the kernel, `render`, `run`.
    pub stage: String,
    /// The room it stands in: `tensor`, `view`, `schedule`, `rewrite`, `kernel`, `render` or
    /// `runtime`.
    pub room: String,
    /// What differs there first.
    pub detail: String,
    /// The application of a rule, or the bounds, that the stage went wrong by.
    pub rule: Option<Guilt>,
}

impl std::fmt::Display for Blame {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "stage {} (engine/{}): {}", self.stage, self.room, self.detail)?;
        self.rule.as_ref().map_or(Ok(()), |guilt| write!(f, "\n{}", guilt.story()))
    }
}

/// The first stage at which `program` goes wrong on `backend`; `None` if every stage is right,
/// or if the oracle does not know the program. Panics and refusals of a stage are its guilt.
pub fn blame(program: &Program, backend: &str) -> Option<Blame> {
    blame_in_steps(program, backend, &mut |_, _| {})
}

/// What is told the name and the room of each stage before it is evaluated.
pub(crate) type Began<'a> = &'a mut dyn FnMut(&str, &str);

/// As [`blame`]; `began` is told each stage and its room before it is evaluated. Should the stage
/// never end, or end the process, the last one told is to blame.
pub fn blame_in_steps(program: &Program, backend: &str, began: Began<'_>) -> Option<Blame> {
    began("oracle", "oracle");
    // The evaluators of stages add up one by one; that alone is no stage's fault.
    let expected = gradiff_oracle::evaluate_in_order(program).ok()?;
    let way = crate::engine::way(backend);
    let blame = in_graph(program, &expected, &way, began)
        .or_else(|| in_kernels(program, &expected, &way, began))
        .or_else(|| at_the_end(program, &expected, &way, backend, began))?;
    Some(with_suspect(blame))
}

/// The culprit of a problem, wherever the problem shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suspect {
    /// As in [`Blame`].
    pub stage: &'static str,
    /// As in [`Blame`].
    pub room: &'static str,
    /// Words that say what is wrong there.
    pub detail: String,
}

/// A crate that is known to be guilty of a problem, whatever stage it shows in: the one that has
/// panicked; that of folds, if some fold is wrong, since every stage computes with them; that of
/// the checker, if it refuses kernels that are right; that of the texts that leave out a wrap.
pub fn suspect(problem: &str) -> Option<Suspect> {
    let found = |stage, room, detail| Some(Suspect { stage, room, detail });
    if let Some(room) = crate::panics::room(problem) {
        return found("panic", room, problem.to_string());
    }
    if let Some(detail) = crate::calls::wrong_fold() {
        return found("fold", "graph", detail);
    }
    if problem.contains(crate::linear::NOT_WRAPPED) {
        return found("render", "render", problem.to_string());
    }
    let is_difference = problem.contains(" of output ");
    match is_difference {
        true => None,
        false => crate::kernels::refused().and_then(|detail| found("verify", "graph", detail)),
    }
}

/// The blame, or that of a suspect that its detail leads to.
fn with_suspect(blame: Blame) -> Blame {
    match suspect(&blame.detail) {
        Some(Suspect { stage, room, detail }) => {
            let detail = match detail == blame.detail {
                true => detail,
                false => format!("{} ({detail})", blame.detail),
            };
            Blame { stage: stage.to_string(), room: room.to_string(), detail, rule: None }
        }
        None => blame,
    }
}

fn guilty(stage: &str, room: &str, detail: String) -> Option<Blame> {
    Some(Blame { stage: stage.to_string(), room: room.to_string(), detail, rule: None })
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
fn in_graph(
    program: &Program,
    expected: &[Expected],
    way: &Way,
    began: Began<'_>,
) -> Option<Blame> {
    began("tensor", "tensor");
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
    began("schedule", "schedule");
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
fn in_kernels(
    program: &Program,
    expected: &[Expected],
    way: &Way,
    began: Began<'_>,
) -> Option<Blame> {
    began("kernels", "schedule");
    let with = |way: &Way, level: &mut Level<'_>| {
        let schedule = stages::scheduled(&stages::graph(program)?, way)?;
        stages::run(&schedule, level)
    };
    let tree = &mut |ast: &UOp| Ok(ast.clone());
    if let Some(detail) = wrong(expected, || with(way, &mut Level::Made(tree))) {
        // Right as soon as views are stacked instead of merged: merging is wrong.
        let mut stacked = way.clone();
        stacked.schedule.merge_views = false;
        let is_merging = wrong(expected, || with(&stacked, &mut Level::Made(tree))).is_none();
        return guilty("kernels", if is_merging { "view" } else { "schedule" }, detail);
    }
    for (number, pass) in PASSES.iter().enumerate() {
        began(pass.name, if is_rules(pass.name) { "rewrite" } else { "kernel" });
        let make = &mut |ast: &UOp| passed(ast, way, number, &mut Trace::default(), &mut "");
        if let Some(detail) = wrong(expected, || with(way, &mut Level::Made(make))) {
            return in_pass(program, expected, way, number, detail);
        }
    }
    if let Some(blame) = without_end(program, way) {
        return Some(blame);
    }
    let linear_passes = LINEAR_PASSES.iter().map(|pass| pass.name);
    for (number, pass) in [LINEARIZE.name].into_iter().chain(linear_passes).enumerate() {
        began(pass, "kernel");
        let run = &mut |ast: &UOp, memories: &mut [stages::Elements]| {
            crate::linear::run(whole_products(&stages::passed(ast, way)?.linears, number), memories)
        };
        if let Some(detail) = wrong(expected, || with(way, &mut Level::With(run))) {
            return guilty(pass, "kernel", detail);
        }
    }
    None
}

/// Returns the uops after the pass of this number, or after the first later one that has joined the
/// elements of each matrix product: a warp computes them together.
fn whole_products<'a>(linears: &'a [(&'static str, Linear)], number: usize) -> &'a Linear {
    let is_whole =
        |linear: &Linear| linear.uops.iter().all(|uop| uop.op != Op::Wmma || 1 < uop.lanes);
    let after = linears[number..].iter().map(|(_, linear)| linear);
    after.clone().find(|linear| is_whole(linear)).unwrap_or(&linears[linears.len() - 1].1)
}

/// The crate in which a graph, whose elements are right, goes wrong under these options; the
/// runtime, if all stages before it are right.
pub(crate) fn room_of_graph(
    graph: &UOp,
    way: &Way,
    is_right: &dyn Fn(&stages::Elements) -> bool,
) -> &'static str {
    let roots = [graph.clone()];
    let schedule = crate::catch(|| gradiff::schedule::schedule(&roots, &way.schedule));
    let Ok(Ok(schedule)) = schedule else { return "schedule" };
    let holds = |level: &mut Level<'_>| {
        let outputs = crate::catch(|| stages::run(&schedule, level)).and_then(|outputs| outputs);
        outputs.is_ok_and(|outputs| is_right(&outputs[0]))
    };
    if !holds(&mut Level::Made(&mut |ast| Ok(ast.clone()))) {
        return "schedule";
    }
    for (number, pass) in PASSES.iter().enumerate() {
        let make = &mut |ast: &UOp| passed(ast, way, number, &mut Trace::default(), &mut "");
        if !holds(&mut Level::Made(make)) {
            return if is_rules(pass.name) { "rewrite" } else { "kernel" };
        }
    }
    let linear = &mut |ast: &UOp, memories: &mut [stages::Elements]| {
        let linear = stages::lowered(ast, way)?;
        crate::linear::run(&linear, memories)
    };
    if holds(&mut Level::With(linear)) { "runtime" } else { "kernel" }
}

/// The passes up to and with `last` over one kernel; `pass` becomes the last one that applied a
/// rule.
pub(crate) fn passed(
    ast: &UOp,
    way: &Way,
    last: usize,
    trace: &mut Trace,
    pass: &mut &'static str,
) -> Result<UOp, String> {
    let mut ctx = Context::new(ast, &way.target, &way.kernel, trace);
    let mut root = ast.clone();
    for row in &PASSES[..=last] {
        let (applied, before) = (ctx.trace.applied, *pass);
        // A rule that panics leaves its pass named.
        *pass = row.name;
        root = (row.run)(&root, &mut ctx).map_err(|error| error.to_string())?;
        if ctx.trace.applied == applied {
            *pass = before;
        }
    }
    Ok(root)
}

/// Whether a kernel pass runs rules.
fn is_rules(pass: &str) -> bool {
    matches!(pass, "symbolic" | "symbolic-again" | "late" | "collapse")
}

/// A kernel pass whose outputs are wrong; if it runs rules, the application that made them so.
fn in_pass(
    program: &Program,
    expected: &[Expected],
    way: &Way,
    last: usize,
    detail: String,
) -> Option<Blame> {
    let schedule = stages::scheduled(&stages::graph(program).ok()?, way).ok()?;
    if !is_rules(PASSES[last].name) {
        let is_view = PASSES[last].name == "shape"
            && schedule.items.iter().any(|item| item.ast.toposort().iter().any(is_misplaced));
        return guilty(PASSES[last].name, if is_view { "view" } else { "kernel" }, detail);
    }
    let mut pass = "";
    let mut run = |fuel: Option<u64>, trace: &mut Trace| {
        let mut way = way.clone();
        way.kernel.rewrite.fuel = fuel;
        let mut make = |ast: &UOp| passed(ast, &way, last, trace, &mut pass);
        let outputs = || stages::run(&schedule, &mut Level::Made(&mut make));
        wrong(expected, outputs).map_or(Ok(()), Err)
    };
    let found = guilt::search(&mut run, &Hint::new());
    let mut blame = guilty(PASSES[last].name, "rewrite", detail)?;
    match found {
        Some(guilt) => blame.rule = Some(Guilt { pass: pass.to_string(), ..guilt }),
        None => blame.detail += "; no single application of a rule makes it so",
    }
    Some(blame)
}

/// Whether the node's tracker sends an element elsewhere once its axes of size 1 are gone or two
/// neighbours are one axis, which is what the pass `shape` asks of it.
fn is_misplaced(node: &UOp) -> bool {
    let Arg::View(tracker) = node.arg() else { return false };
    let places = |tracker: &ShapeTracker| -> Vec<Option<i64>> {
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
    let kept: Vec<i64> = tracker.shape().iter().copied().filter(|size| *size != 1).collect();
    let pair = |axis: usize| {
        let mut shape = kept.clone();
        let size = shape.remove(axis + 1);
        shape[axis] *= size;
        shape
    };
    let mut shapes = (1..kept.len()).map(|axis| pair(axis - 1)).chain([kept.clone()]);
    let expected = places(tracker);
    shapes.any(|shape| tracker.reshape(&shape).is_ok_and(|moved| places(&moved) != expected))
}

/// A pass of a kernel whose rules go on without end, though what comes out is right.
fn without_end(program: &Program, way: &Way) -> Option<Blame> {
    let schedule = stages::scheduled(&stages::graph(program).ok()?, way).ok()?;
    for item in &schedule.items {
        let (mut trace, mut pass) = (Trace::with_steps(), "");
        passed(&item.ast, way, PASSES.len() - 1, &mut trace, &mut pass).ok()?;
        if guilt::is_endless(&trace) {
            let blame = guilty(pass, "rewrite", "rewriting does not end".to_string());
            let rule = guilt::of_endless(&trace);
            let rule = rule.map(|guilt| Guilt { pass: pass.to_string(), ..guilt });
            return blame.map(|blame| Blame { rule, ..blame });
        }
    }
    None
}

/// What an expression goes wrong by; `None` if nothing is wrong with it, or if it is no case.
pub fn blame_expr(case: &ExprCase) -> Option<Blame> {
    let (detail, found, pass) = match crate::catch(|| exprs::examine(case)) {
        Ok(Ok(())) | Ok(Err(Wrong::Malformed(_))) => return None,
        Ok(Err(wrong)) => {
            let (found, pass) = of_expr(case, &wrong);
            (wrong.detail(), found, pass)
        }
        Err(panic) => (panic, by_fuel(case, None), "symbolic"),
    };
    let mut blame = guilty("symbolic", "rewrite", detail)?;
    match found {
        Some(guilt) => blame.rule = Some(Guilt { pass: pass.to_string(), ..guilt }),
        None => blame.detail += "; no single application of a rule makes it so",
    }
    Some(blame)
}

fn of_expr(case: &ExprCase, wrong: &Wrong) -> (Option<Guilt>, &'static str) {
    let graph = exprs::to_uop(case);
    let mut trace = Trace::with_steps();
    let simple = exprs::simplified(&graph, None, &mut trace);
    let guilt = match wrong {
        Wrong::Malformed(_) => None,
        Wrong::Value(point, _) => by_fuel(case, Some(point)),
        Wrong::Bounds(point, _) => {
            let hint = hint(case, point);
            stray(&[&graph, &simple], &hint).map(|stray| guilt::of_bounds(&stray))
        }
        Wrong::Endless(_) => guilt::of_endless(&trace),
        Wrong::Again(_) => {
            let once = trace.steps.take().unwrap_or_default();
            let mut again = Trace::with_steps();
            exprs::simplified(&simple, None, &mut again);
            let again = again.steps.unwrap_or_default();
            // What hides behind a wrong value that nobody asks for is guilty first.
            let is_false = [once.as_slice(), again.as_slice()];
            let guilt = is_false.iter().find_map(|steps| guilt::first_false(steps, &Hint::new()));
            let fired = again.first().map(guilt::of_step);
            let guilt = guilt.or(fired.map(|guilt| Guilt {
                witness: "fires once more on what was simplified".to_string(),
                ..guilt
            }));
            return (guilt, "symbolic, for the second time");
        }
    };
    (guilt, "symbolic")
}

/// What a sequence of movements goes wrong by: the rules where simplifying the index or the
/// validity of its tracker changes a value or does not end, else the views; `None` if nothing is
/// wrong with it.
pub fn blame_views(case: &ViewOps) -> Option<Blame> {
    let nodes = crate::catch(|| {
        let tracker = crate::views::tracker(case).ok()?;
        let rendered = [tracker.simplify(), tracker].map(|t| crate::expects::indexed(&t, false));
        Some(rendered.into_iter().flat_map(|(index, valid)| std::iter::once(index).chain(valid)))
    });
    let of_rules = nodes.ok().flatten().and_then(|mut nodes| nodes.find_map(|node| of_node(&node)));
    of_rules.or_else(|| {
        let problem =
            crate::catch(|| crate::check_views(case)).and_then(|checked| checked).err()?;
        guilty("views", "view", problem)
    })
}

/// Simplifying a node changes its value or does not end.
fn of_node(node: &UOp) -> Option<Blame> {
    let none = Hint::new();
    let mut run = |fuel: Option<u64>, trace: &mut Trace| {
        let simple = crate::catch(|| exprs::simplified(node, fuel, trace))?;
        witness(node, &simple, Claim::Bits, &none).map_or(Ok(()), Err)
    };
    let mut trace = Trace::with_steps();
    let (detail, rule) = match run(None, &mut trace) {
        Err(problem) => (problem, guilt::search(&mut run, &none)),
        Ok(()) if guilt::is_endless(&trace) => {
            ("does not end".to_string(), guilt::of_endless(&trace))
        }
        Ok(()) => return None,
    };
    let detail = format!("simplifying {}: {detail}", guilt::short(node));
    let blame = guilty("symbolic", "rewrite", detail)?;
    Some(Blame { rule: rule.map(|guilt| Guilt { pass: "symbolic".to_string(), ..guilt }), ..blame })
}

fn hint(case: &ExprCase, point: &Point) -> Hint {
    let nodes = exprs::variables(case).into_iter().zip(point);
    nodes.map(|(node, value)| (node.clone(), Constant::int(node.dtype(), *value))).collect()
}

/// The application that makes the expression wrong at this point, or panic if there is none.
fn by_fuel(case: &ExprCase, point: Option<&Point>) -> Option<Guilt> {
    let graph = exprs::to_uop(case);
    let mut run = |fuel: Option<u64>, trace: &mut Trace| {
        let simple = crate::catch(|| exprs::simplified(&graph, fuel, trace))?;
        let is_right = point.is_none_or(|point| exprs::is_right_at(case, &simple, point));
        if is_right { Ok(()) } else { Err("another value".to_string()) }
    };
    guilt::search(&mut run, &point.map(|point| hint(case, point)).unwrap_or_default())
}

/// All lists of uops are right: the device or its source text is not, or what is around them.
fn at_the_end(
    program: &Program,
    expected: &[Expected],
    way: &Way,
    backend: &str,
    began: Began<'_>,
) -> Option<Blame> {
    let device = backend.split('/').next().unwrap_or(backend);
    let (stage, room) = match device {
        // A text that runs wrongly, or without end, is the renderer's; other code is the device's.
        "c" | "cuda" | "opencl" | "text" | "wgpu" => ("render", "render"),
        // Where uops are evaluated, it is the kernel that breaks a promise.
        "uops" => ("linearize", "kernel"),
        _ => ("run", "runtime"),
    };
    let mut alone = || {
        let schedule = stages::scheduled(&stages::graph(program)?, way)?;
        stages::run(
            &schedule,
            &mut Level::With(&mut |ast, memories| {
                let linear = stages::lowered(ast, way)?;
                began("compile", "runtime");
                crate::engine::run_alone_in_steps(backend, &linear, memories, &mut || {
                    began(stage, room)
                })
            }),
        )
    };
    if let Some(detail) = wrong(expected, &mut alone) {
        let is_text = || device == "c" && has_compiled_text(program, way).unwrap_or(false);
        let own = match beside_runs(&detail) {
            Some(own) => own,
            // What is compiled from the text alone is not compiled by the device.
            None if !detail.contains(" of output ") && is_text() => ("compile", "runtime"),
            None => (stage, room),
        };
        return guilty(own.0, own.1, detail);
    }
    began("launch", "runtime");
    // Kernels are right one by one; together they are not: a cache, or memory.
    let backends = crate::backends(&[backend.to_string()]).ok()?;
    let (_, failures) = crate::agree(&[program], &backends);
    let (_, failure) = failures.into_iter().next()?;
    let (stage, room) = beside_runs(&failure.detail).unwrap_or_else(|| {
        let is_right = wrong(expected, || by_hand(program, way, device)).is_none();
        // What is around the launches is the engine's, if memories are sound.
        match is_right && crate::calls::check_runtime().is_ok() {
            true => ("read", "tensor"),
            false => ("launch", "runtime"),
        }
    });
    guilty(stage, room, failure.detail)
}

/// Compiles all kernels in one go and runs them on the memories of their buffers, without an
/// engine.
fn by_hand(program: &Program, way: &Way, device: &str) -> Result<Vec<stages::Elements>, String> {
    let schedule = stages::scheduled(&stages::graph(program)?, way)?;
    let lowered = |item: &gradiff::schedule::Item| stages::lowered(&item.ast, way);
    let linears: Vec<BoundedLinear> =
        schedule.items.iter().map(lowered).collect::<Result<_, String>>()?;
    crate::engine::run_in_order(device, &schedule, &linears)?;
    crate::tensors::evaluate(&schedule.outputs, &mut stages::contents)
}

/// Returns whether a compiler that is asked directly takes the texts in C of all kernels; `None`
/// if there is none.
fn has_compiled_text(program: &Program, way: &Way) -> Option<bool> {
    let schedule = stages::scheduled(&stages::graph(program).ok()?, way).ok()?;
    let mut is_taken = Some(true);
    for item in &schedule.items {
        let linear = stages::lowered(&item.ast, way).ok()?;
        is_taken = is_taken.filter(|taken| *taken).and_then(|_| crate::texts::is_c(&linear));
    }
    is_taken
}

/// The stage and the room of what backends check beside running a program, and of texts.
fn beside_runs(detail: &str) -> Option<(&'static str, &'static str)> {
    if detail.contains(crate::calls::SAID) {
        return Some(("calls", crate::room_of_calls(detail)));
    }
    if detail.contains(crate::linear::NO_TEXT) {
        return Some(("render", "render"));
    }
    if detail.contains(crate::kernels::SAID) {
        return Some(("kernels", crate::room_of_kernels(detail)));
    }
    detail.contains(crate::listing::SAID).then_some(("text", "graph"))
}
