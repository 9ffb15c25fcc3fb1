//! The tables of passes, and the two functions that run them: [`PASSES`] map a graph to a graph,
//! `linearize` puts it in order, and [`LINEAR_PASSES`] map the ordered uops.

use gradiff_graph::verify::verify_tree_node;
use gradiff_graph::{Arg, BoundedLinear, Linear, Op, Target, UOp};
use gradiff_rewrite::Trace;
use gradiff_view::View;

use crate::cache_inputs::{self, cache_inputs};
use crate::cached_rows::has_cache;
use crate::cascade::cascade;
use crate::context::{Context, Options};
use crate::error::malformed;
use crate::globals::globals;
use crate::opt::{Strategy, choose_vectors, optimize, to_groups};
use crate::{
    Error, contract, expand, fragments, interleave, legalize, linearize, lower as index,
    merge_loads, name, narrow, pipeline, prefetch, reassociate, scatter, shape, sink, split_axes,
};

/// A row of [`PASSES`] or [`LINEAR_PASSES`].
pub struct Pass<Run> {
    /// The name, as commands and tests give it.
    pub name: &'static str,
    /// The postcondition.
    pub promise: &'static str,
    /// The crate that does its work: `rewrite` if it runs rules, `view` if it changes trackers.
    pub crate_name: &'static str,
    /// Maps a kernel to one that computes the same.
    pub run: Run,
}

/// A pass from graph to graph.
pub type GraphPass = Pass<fn(&UOp, &mut Context<'_>) -> Result<UOp, Error>>;

/// Maps a kernel tree and its lowered graph to linear uops.
pub type Linearize = fn(&UOp, &UOp) -> Result<Linear, Error>;

/// A pass from linear uops to linear uops.
pub type LinearPass = Pass<fn(Linear, &Context<'_>) -> Result<Linear, Error>>;

/// The pass that applies opts.
const OPTIMIZE: &str = "optimize";

/// The passes that map a graph to a graph, in order.
pub const PASSES: &[GraphPass] = &[
    Pass {
        name: "split-axes",
        promise: "no axis that reshapes a view, where its sizes before would do",
        crate_name: "view",
        run: split_axes::split_axes,
    },
    Pass {
        name: "shape",
        promise: "no axes of size 1, or that could be merged but rows for threads, reduced last",
        crate_name: "view",
        run: shape::simplify,
    },
    Pass {
        name: "lower",
        promise: "no tracker: loops are ranges, views are index arithmetic, masks are gates",
        crate_name: "kernel",
        run: index::to_indices,
    },
    Pass {
        name: "symbolic",
        promise: "no rule of the table applies, unless fuel ran out",
        crate_name: "rewrite",
        run: symbolic,
    },
    Pass {
        name: "collapse",
        promise: "no reduction with a closed form in the table",
        crate_name: "rewrite",
        run: collapse,
    },
    Pass {
        name: "scatter",
        promise: "no comparisons with each position of the output where updates take less time",
        crate_name: "kernel",
        run: scatter::scatter,
    },
    Pass {
        name: "cache-inputs",
        promise: "inputs of a reduction that a later loop computes again are cached in an array",
        crate_name: "kernel",
        run: cache_inputs,
    },
    Pass {
        name: OPTIMIZE,
        promise: "loops are split, padded and exchanged as the options say",
        crate_name: "kernel",
        run: optimize,
    },
    Pass {
        name: "privatize-rows",
        promise: "upcast iterations cache their rows in parts of the array of their own",
        crate_name: "kernel",
        run: privatize_rows,
    },
    Pass {
        name: "prefetch",
        promise: "loads prefetch and stores bypass the caches where that is faster on the target",
        crate_name: "kernel",
        run: add_prefetches,
    },
    Pass {
        name: "groups",
        promise: "reductions across threads use local memory, output loops form the launch grid",
        crate_name: "kernel",
        run: to_groups,
    },
    Pass {
        name: "cascade",
        promise: "the number of float additions into an accumulator is bounded",
        crate_name: "kernel",
        run: cascade,
    },
    Pass {
        name: "symbolic-again",
        promise: "no rule of the table applies after the optimisations either",
        crate_name: "rewrite",
        run: symbolic_again,
    },
    Pass {
        name: "narrow",
        promise: "64-bit integers only for values that 32 bits may not hold",
        crate_name: "kernel",
        run: narrow::narrow,
    },
    Pass {
        name: "late",
        promise: "subtractions for sums of negatives, truncating divisions, c < x for !(x < c + 1)",
        crate_name: "rewrite",
        run: late,
    },
    Pass {
        name: "reassociate",
        promise: "terms of integer sums are in the order of their loops, constants last",
        crate_name: "kernel",
        run: reassociate::reassociate,
    },
    Pass {
        name: "legalize",
        promise: "only ops and arithmetic types that the target supports",
        crate_name: "kernel",
        run: legalize::legalize,
    },
    Pass {
        name: "vectors",
        promise: "upcast ranges along which accesses are contiguous are of the kind of lanes",
        crate_name: "kernel",
        run: |root, ctx| choose_vectors(root, &ctx.target),
    },
    Pass {
        name: "contract",
        promise: "sums of float products are multiply-adds, if that is allowed and fast",
        crate_name: "rewrite",
        run: |root, ctx| contract::contract(root, &ctx.target, &ctx.options.rewrite, ctx.trace),
    },
];

/// The pass between the two tables. Maps a kernel tree, which has the parameters, and its lowered
/// graph to linear uops.
pub const LINEARIZE: Pass<Linearize> = Pass {
    name: "linearize",
    promise: "uops in order, each in the outermost loop where its sources are known",
    crate_name: "kernel",
    run: |ast, root| linearize::with_globals(root, &globals(ast)?, name(ast)),
};

/// The passes that map linear uops to linear uops, in order.
pub const LINEAR_PASSES: &[LinearPass] = &[
    Pass {
        name: "expand",
        promise: "no upcast or unrolled range: iterations are lanes of vectors or repeated uops",
        crate_name: "kernel",
        run: |linear, ctx| Ok(expand::expand(linear, &ctx.target)),
    },
    Pass {
        name: "fragments",
        promise: "one wmma gives all elements of a matrix product that a thread holds",
        crate_name: "kernel",
        run: |linear, _| fragments::join(linear),
    },
    Pass {
        name: "merge-loads",
        promise: "loads of adjacent elements are loads of vectors, if the target has no others",
        crate_name: "kernel",
        run: |linear, ctx| Ok(merge_loads::merge(linear, &ctx.target)),
    },
    Pass {
        name: "interleave",
        promise: "elements two apart or in reverse order are lanes of vectors, if it can permute",
        crate_name: "kernel",
        run: |linear, ctx| Ok(interleave::interleave(linear, &ctx.target)),
    },
    Pass {
        name: "sink",
        promise: "what is used only after a loop is computed after it, where there are no groups",
        crate_name: "kernel",
        run: |linear, ctx| Ok(sink::sink(linear, &ctx.target)),
    },
    Pass {
        name: "pipeline",
        promise: "copies to local memory run beside the computation, if the target can",
        crate_name: "kernel",
        run: |linear, ctx| Ok(pipeline::pipeline(linear, &ctx.target)),
    },
];

/// A kernel after each pass, by the names of the passes.
pub struct Stages {
    /// The graph after each of [`PASSES`].
    pub graphs: Vec<(&'static str, UOp)>,
    /// The uops after `linearize` and after each of [`LINEAR_PASSES`].
    pub linears: Vec<(&'static str, Linear)>,
    /// The uops after the last pass, as [`lower`] returns them.
    pub linear: BoundedLinear,
}

fn symbolic(root: &UOp, ctx: &mut Context<'_>) -> Result<UOp, Error> {
    let rules = &gradiff_rewrite::symbolic();
    Ok(gradiff_rewrite::rewrite(root, rules, &ctx.options.rewrite, ctx.trace))
}

/// Simplifies again; skipped if no loop was changed since the first time.
fn symbolic_again(root: &UOp, ctx: &mut Context<'_>) -> Result<UOp, Error> {
    let has_opts = ctx.options.opts != Strategy::None || ctx.target.groups.is_some();
    if !has_opts && !ctx.is_divided { Ok(root.clone()) } else { symbolic(root, ctx) }
}

fn privatize_rows(root: &UOp, _ctx: &mut Context<'_>) -> Result<UOp, Error> {
    match has_cache(&root.toposort()) {
        true => cache_inputs::privatize_rows(root),
        false => Ok(root.clone()),
    }
}

fn add_prefetches(root: &UOp, ctx: &mut Context<'_>) -> Result<UOp, Error> {
    match ctx.target.prefetches {
        true => prefetch::add_prefetches(root, ctx.target.thresholds.large_bytes),
        false => Ok(root.clone()),
    }
}

fn collapse(root: &UOp, ctx: &mut Context<'_>) -> Result<UOp, Error> {
    Ok(gradiff_rewrite::collapse(root, &ctx.options.rewrite, ctx.trace))
}

fn late(root: &UOp, ctx: &mut Context<'_>) -> Result<UOp, Error> {
    Ok(gradiff_rewrite::rewrite(root, &gradiff_rewrite::late(), &ctx.options.rewrite, ctx.trace))
}

/// Lowers a kernel tree (`Sink` of `Store`s over trackers) to linear uops. All parameters of the
/// tree are parameters of the result, also those that are no longer read.
///
/// # Errors
/// If `ast` is not a kernel tree, a view in it exceeds its array or stores an element twice, it
/// loads what it stores through another view or in a reduction, it has more than 64 loops that
/// cannot be merged, or an index exceeds 64 bits. The number of elements is not limited: nothing is
/// allocated for them.
pub fn lower(
    ast: &UOp,
    target: &Target,
    options: &Options,
    trace: &mut Trace,
) -> Result<BoundedLinear, Error> {
    check_tree(ast)?;
    let mut ctx = Context::new(ast, target, options, trace);
    let mut root = ast.clone();
    for pass in PASSES {
        root = (pass.run)(&root, &mut ctx)?;
    }
    let mut linear = (LINEARIZE.run)(ast, &root)?;
    for pass in LINEAR_PASSES {
        linear = (pass.run)(linear, &ctx)?;
    }
    Ok(bounded(linear))
}

/// Runs the passes before `optimize`: the result is the kernel whose loops opts change.
///
/// # Errors
/// Those of the passes.
pub fn before_optimize(ast: &UOp, ctx: &mut Context<'_>) -> Result<UOp, Error> {
    let mut passes = PASSES.iter().take_while(|pass| pass.name != OPTIMIZE);
    passes.try_fold(ast.clone(), |root, pass| (pass.run)(&root, ctx))
}

/// Lowers like [`lower`] and returns the kernel after each pass.
///
/// # Errors
/// Those of [`lower`].
pub fn stages(ast: &UOp, target: &Target, options: &Options) -> Result<Stages, Error> {
    check_tree(ast)?;
    let mut trace = Trace::default();
    let mut ctx = Context::new(ast, target, options, &mut trace);
    let mut graphs = Vec::with_capacity(PASSES.len());
    let mut root = ast.clone();
    for pass in PASSES {
        root = (pass.run)(&root, &mut ctx)?;
        graphs.push((pass.name, root.clone()));
    }
    let mut linear = (LINEARIZE.run)(ast, &root)?;
    let mut linears = vec![(LINEARIZE.name, linear.clone())];
    for pass in LINEAR_PASSES {
        linear = (pass.run)(linear, &ctx)?;
        linears.push((pass.name, linear.clone()));
    }
    Ok(Stages { graphs, linears, linear: bounded(linear) })
}

/// Checks that [`verify_tree_node`] accepts each node of a kernel tree, that loads and stores are
/// inside their arrays, and that no element of a stored array is accessed by two elements of the
/// output, since threads may compute these in any order. An element of a reduction is accessed by
/// each element of the output to which its result is broadcast.
fn check_tree(ast: &UOp) -> Result<(), Error> {
    for node in ast.toposort() {
        verify_tree_node(&node).map_err(|error| malformed(error.to_string()))?;
        let (Op::Load | Op::Store, arg) = (node.op(), node.arg()) else { continue };
        let (Arg::View(tracker), Arg::Global(global)) = (arg, node.src()[0].arg()) else {
            return Err(malformed(format!("a {} without a view of an array", node.op())));
        };
        if !tracker.is_inside(&global.size_elements) {
            let (op, size) = (node.op(), global.size_elements);
            return Err(malformed(format!("a {op} at {tracker} of an array of {size} elements")));
        }
        if node.op() == Op::Store && !tracker.views().iter().all(is_injective) {
            return Err(malformed(format!(
                "a store at {tracker} writes an element more than once"
            )));
        }
        // What another store has stored may be loaded through any view: each has its own loops.
        let may_load = |store: &&UOp| {
            node.op() == Op::Load && store.op() == Op::Store && store.src()[0] == node.src()[0]
        };
        for store in ast.src().iter().filter(may_load) {
            let nodes = store.toposort();
            let is_reduced =
                |inner: &UOp| inner.op() == Op::ReduceAxis && inner.toposort().contains(&node);
            let problem = match nodes.contains(&node) {
                true if store.arg() != arg => "stored through another view",
                true if nodes.iter().any(is_reduced) => "stored, in a reduction",
                _ => continue,
            };
            return Err(malformed(format!("a load at {tracker} of an array that is {problem}")));
        }
    }
    Ok(())
}

/// Returns whether the strides prove that no two real elements of a view are the same element of
/// its base: each stride exceeds the largest offset that all smaller ones reach together.
fn is_injective(view: &View) -> bool {
    let sizes = view.shape().iter().enumerate().map(|(axis, size)| match view.mask() {
        Some(mask) => mask[axis].1 - mask[axis].0,
        None => *size,
    });
    let axes = sizes.zip(view.strides()).filter(|(size, _)| 1 < *size);
    let mut axes: Vec<(i128, i128)> =
        axes.map(|(size, stride)| (i128::from(*stride).abs(), i128::from(size))).collect();
    axes.sort_unstable();
    let mut reach = 0i128;
    view.size() == 0
        || axes.iter().all(|(stride, size)| {
            let is_beyond = reach < *stride;
            reach = reach.saturating_add(stride.saturating_mul(size - 1));
            is_beyond
        })
}

/// Promises that a kernel that the passes have lowered keeps within its arrays.
#[allow(unsafe_code, reason = "lowering keeps the promise that devices rely on")]
fn bounded(linear: Linear) -> BoundedLinear {
    if gradiff_rewrite::rules::is_changed() {
        return BoundedLinear::doubted(linear);
    }
    // SAFETY: `check_tree` checked that each view is inside its array and each element is stored
    // once, and `globals` that slots differ. Indices are the formulas of these views, gated where a
    // view is masked or empty. Of the passes, `collapse` and `scatter` alone put a value that may
    // be loaded in place of a counter, and they gate the access so that the value is one of the
    // counter's; the evaluators and the checked interpreter test that. Names consist of letters,
    // digits and underscores.
    unsafe { BoundedLinear::promised(linear) }
}
