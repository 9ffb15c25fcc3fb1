//! The table of passes, and the two ways through it.

use gradiff_graph::{Linear, UOp};
use gradiff_rewrite::Trace;

use crate::opt::{Strategy, optimize};
use crate::{Error, expand, legalize, linearize, lower as index, name, narrow, shape};

/// What the device that will run the kernel has. Passes bring the kernel down to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// Arithmetic of f16; without it f16 is computed in f32 and rounded back after each op.
    pub native_f16: bool,
    /// Arithmetic of bf16, likewise.
    pub native_bf16: bool,
    /// `x*y+z` in one op.
    pub mulacc: bool,
    /// `1/x` in one op.
    pub recip: bool,
    /// Steps that run at once or in a row are written out; without it they are loops.
    pub unrolls: bool,
}

impl Default for Target {
    /// A plain CPU: 16-bit floats are only stored, all other ops are there.
    fn default() -> Target {
        Target { native_f16: false, native_bf16: false, mulacc: true, recip: true, unrolls: true }
    }
}

/// What the user may choose about how a kernel is made.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Mode and fuel of the rewriting.
    pub rewrite: gradiff_rewrite::Options,
    /// Which optimisations the kernel gets.
    pub opts: Strategy,
}

/// What a pass may look at besides the kernel, and where it leaves its trace.
pub struct Context<'a> {
    /// The device.
    pub target: &'a Target,
    /// The user's choices.
    pub options: &'a Options,
    /// Which rules fired.
    pub trace: &'a mut Trace,
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
pub const PASSES: [Pass; 9] = [
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
        name: "optimize",
        promise: "loops are split, padded and exchanged as the options say",
        run: optimize,
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
        name: "legalize",
        promise: "only ops and types of arithmetic that the target has",
        run: legalize::legalize,
    },
];

/// Name and promise of the last pass, which leaves the graph: [`Linear`].
pub const LINEARIZE: (&str, &str) =
    ("linearize", "uops in order, each in the outermost loop that knows its sources");

/// The kernel after each of [`PASSES`], with their names, and its linear form.
pub type Stages = (Vec<(&'static str, UOp)>, Linear);

fn symbolic(root: &UOp, ctx: &mut Context<'_>) -> Result<UOp, Error> {
    let rules = &gradiff_rewrite::symbolic();
    Ok(gradiff_rewrite::rewrite(root, rules, &ctx.options.rewrite, ctx.trace))
}

/// Nothing is left to do where nothing was optimised.
fn symbolic_again(root: &UOp, ctx: &mut Context<'_>) -> Result<UOp, Error> {
    if ctx.options.opts == Strategy::None { Ok(root.clone()) } else { symbolic(root, ctx) }
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
/// If `ast` is no kernel tree, has more than 64 loops that cannot be merged, or has indices
/// beyond 64 bits. The count of elements does not matter: nothing is allocated for them.
pub fn lower(
    ast: &UOp,
    target: &Target,
    options: &Options,
    trace: &mut Trace,
) -> Result<Linear, Error> {
    let mut ctx = Context { target, options, trace };
    let mut root = ast.clone();
    for pass in &PASSES {
        root = (pass.run)(&root, &mut ctx)?;
    }
    let linear = linearize::with_globals(&root, &linearize::globals(ast)?, name(ast))?;
    Ok(if target.unrolls { expand::expand(&linear) } else { linear })
}

/// Does what [`lower`] does and keeps the kernel after each pass.
///
/// # Errors
/// Those of [`lower`].
pub fn stages(ast: &UOp, target: &Target, options: &Options) -> Result<Stages, Error> {
    let mut trace = Trace::default();
    let mut ctx = Context { target, options, trace: &mut trace };
    let mut kernels = Vec::with_capacity(PASSES.len());
    let mut root = ast.clone();
    for pass in &PASSES {
        root = (pass.run)(&root, &mut ctx)?;
        kernels.push((pass.name, root.clone()));
    }
    let linear = linearize::with_globals(&root, &linearize::globals(ast)?, name(ast))?;
    Ok((kernels, if target.unrolls { expand::expand(&linear) } else { linear }))
}
