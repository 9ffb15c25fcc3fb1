//! The table of passes, and the two ways through it.

use std::hash::{Hash, Hasher};

use gradiff_graph::{Arg, BoundedLinear, Op, UOp, verify_tree_node};
use gradiff_rewrite::Trace;
use gradiff_view::View;
use rustc_hash::FxHasher;

use crate::cascade::cascade;
use crate::error::malformed;
use crate::keep::keep;
use crate::opt::{Strategy, optimize, to_groups};
use crate::{
    Error, Target, contract, expand, fragments, hoist, legalize, linearize, lower as index, name,
    narrow, near, shape,
};

/// What the user may choose about how a kernel is made.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Mode and fuel of the rewriting.
    pub rewrite: gradiff_rewrite::Options,
    /// Which optimisations the kernel gets.
    pub opts: Strategy,
    /// Groups are made smaller, each kernel's in another way drawn from this and from its name.
    pub limits: Option<u64>,
}

/// What a pass may look at besides the kernel, and where it leaves its trace.
pub struct Context<'a> {
    /// The device.
    pub target: Target,
    /// The user's choices.
    pub options: &'a Options,
    /// Which rules fired.
    pub trace: &'a mut Trace,
    /// Whether loops were divided after they were simplified, without any opts.
    pub(crate) is_divided: bool,
}

impl<'a> Context<'a> {
    /// What the passes of this kernel may look at.
    pub fn new(
        ast: &UOp,
        target: &Target,
        options: &'a Options,
        trace: &'a mut Trace,
    ) -> Context<'a> {
        let mut target = *target;
        if let (Some(groups), Some(seed)) = (&mut target.groups, options.limits) {
            let mut hasher = FxHasher::default();
            (name(ast), seed).hash(&mut hasher);
            *groups = groups.smaller(hasher.finish());
        }
        Context { target, options, trace, is_divided: false }
    }
}

/// A row of [`PASSES`].
pub struct Pass {
    /// The word by which commands and tests know it.
    pub name: &'static str,
    /// What is true of the kernel after it.
    pub promise: &'static str,
    /// The pass: a kernel to one that computes the same.
    pub run: fn(&UOp, &mut Context<'_>) -> Result<UOp, Error>,
}

/// The passes from node to node, in their order.
pub const PASSES: [Pass; 13] = [
    Pass {
        name: "shape",
        promise: "no axis of size 1, no two axes that could be one, reduced axes last",
        run: shape::simplify,
    },
    Pass {
        name: "lower",
        promise: "no tracker: loops are ranges, places are index arithmetic, masks are gates",
        run: index::to_indices,
    },
    Pass {
        name: "symbolic",
        promise: "no rule of the table applies, unless fuel ran out",
        run: symbolic,
    },
    Pass {
        name: "collapse",
        promise: "no loop whose sum, product or maximum has a closed form",
        run: collapse,
    },
    Pass {
        name: "keep",
        promise: "what a fold computes at some cost and a later loop needs again is kept in an array",
        run: keep,
    },
    Pass {
        name: "optimize",
        promise: "loops are split, padded and exchanged as the options say",
        run: optimize,
    },
    Pass {
        name: "groups",
        promise: "folds among threads go through local memory, loops of the output are launched",
        run: to_groups,
    },
    Pass {
        name: "cascade",
        promise: "no accumulator takes more than a bounded number of additions of floats",
        run: cascade,
    },
    Pass {
        name: "symbolic-again",
        promise: "no rule of the table applies to what the optimiser made",
        run: symbolic_again,
    },
    Pass {
        name: "narrow",
        promise: "64-bit integers only for values that 32 bits may not hold",
        run: narrow::narrow,
    },
    Pass {
        name: "late",
        promise: "subtractions instead of sums of negatives, C's divisions where they will do",
        run: late,
    },
    Pass {
        name: "hoist",
        promise: "sums of integers add up what stands in outer loops first, constants last",
        run: hoist::hoist,
    },
    Pass {
        name: "legalize",
        promise: "only ops and types of arithmetic that the target has",
        run: legalize::legalize,
    },
];

/// Name and promise of the last pass, which leaves the graph: [`BoundedLinear`].
pub const LINEARIZE: (&str, &str) =
    ("linearize", "uops in order, each in the outermost loop that knows its sources");

/// The kernel after each of [`PASSES`], with their names, and its linear form.
pub type Stages = (Vec<(&'static str, UOp)>, BoundedLinear);

fn symbolic(root: &UOp, ctx: &mut Context<'_>) -> Result<UOp, Error> {
    let rules = &gradiff_rewrite::symbolic();
    Ok(gradiff_rewrite::rewrite(root, rules, &ctx.options.rewrite, ctx.trace))
}

/// Nothing is left to do where nothing was optimised.
fn symbolic_again(root: &UOp, ctx: &mut Context<'_>) -> Result<UOp, Error> {
    let has_opts = ctx.options.opts != Strategy::None || ctx.target.groups.is_some();
    if !has_opts && !ctx.is_divided { Ok(root.clone()) } else { symbolic(root, ctx) }
}

fn collapse(root: &UOp, ctx: &mut Context<'_>) -> Result<UOp, Error> {
    Ok(gradiff_rewrite::collapse(root, &ctx.options.rewrite, ctx.trace))
}

fn late(root: &UOp, ctx: &mut Context<'_>) -> Result<UOp, Error> {
    Ok(gradiff_rewrite::rewrite(root, &gradiff_rewrite::late(), &ctx.options.rewrite, ctx.trace))
}

/// Brings a kernel from its tree (`Sink` of `Store`s over trackers) to linear uops. All
/// parameters of the tree are parameters of the result, also those that are no longer read.
///
/// # Errors
/// If `ast` is no kernel tree, a view in it leaves its array or stores an element twice, it has more than 64 loops that cannot
/// be merged, or has indices beyond 64 bits. The count of elements does not matter: nothing is
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
    for pass in &PASSES {
        root = (pass.run)(&root, &mut ctx)?;
    }
    to_linear(ast, &root, target, options)
}

/// Does what [`lower`] does and keeps the kernel after each pass.
///
/// # Errors
/// Those of [`lower`].
pub fn stages(ast: &UOp, target: &Target, options: &Options) -> Result<Stages, Error> {
    check_tree(ast)?;
    let mut trace = Trace::default();
    let mut ctx = Context::new(ast, target, options, &mut trace);
    let mut kernels = Vec::with_capacity(PASSES.len());
    let mut root = ast.clone();
    for pass in &PASSES {
        root = (pass.run)(&root, &mut ctx)?;
        kernels.push((pass.name, root.clone()));
    }
    let linear = to_linear(ast, &root, target, options)?;
    Ok((kernels, linear))
}

/// Checks that each node of a kernel tree is one that [`verify_tree_node`] accepts, that what is
/// loaded and stored is inside its array, and that no two elements of the output touch one element
/// of an array that is stored: threads may share them out.
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
            return Err(malformed(format!("a store at {tracker}, in one place more than once")));
        }
        let is_stored = |store: &&UOp| store.op() == Op::Store && store.src()[0] == node.src()[0];
        let [store] = ast.src() else { continue };
        if Some(store).filter(is_stored).is_some_and(|store| store.arg() != arg) {
            return Err(malformed(format!("a load at {tracker} of an array that is stored")));
        }
    }
    Ok(())
}

/// Returns whether no two real elements of a view are one element of what lies below, as far as the
/// strides tell: each is longer than all shorter ones together reach.
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
            let is_longer = reach < *stride;
            reach = reach.saturating_add(stride.saturating_mul(size - 1));
            is_longer
        })
}

/// The kernel in order, written out.
#[allow(unsafe_code, reason = "lowering keeps the promise that devices rely on")]
fn to_linear(
    ast: &UOp,
    root: &UOp,
    target: &Target,
    options: &Options,
) -> Result<BoundedLinear, Error> {
    let linear = linearize::with_globals(root, &linearize::globals(ast)?, name(ast))?;
    let linear = fragments::join(expand::expand(linear, target))?;
    let linear = contract::contract(linear, target, options.rewrite.mode);
    let linear = if target.vectors.alu { near::near(linear) } else { linear };
    if gradiff_rewrite::rules::is_changed() {
        return Ok(BoundedLinear::doubted(linear));
    }
    // SAFETY: `check_tree` saw that each view is inside its array and each element is stored once, and
    // `globals` that slots differ. Indices are these views' formulas, gated where a view is masked
    // or empty, and each pass keeps the elements that a kernel touches, which the evaluators and the
    // checked interpreter test. Names are made of letters, digits and underscores.
    Ok(unsafe { BoundedLinear::promised(linear) })
}
