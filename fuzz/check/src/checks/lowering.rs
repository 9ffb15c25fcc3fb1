//! Lowering of a kernel tree pass by pass, with changes between passes that keep its meaning.
//!
//! In: a tree, the options with which it is lowered, and a comparison of its arrays. Out: the first
//! pass that refuses a kernel or makes one that cannot be linearized, an opt that is refused though
//! it must be legal, or another value. Between passes, ranges get other numbers, two ranges that
//! are never in the same scope become a single range, and all loops that may be expanded are.
//! Lowering itself seldom makes such kernels, which its passes must handle all the same.

use std::collections::HashMap;

use gradiff::UOp;
use gradiff::graph::{Arg, Op, Target};
use gradiff::kernel::passes::{Context, LINEAR_PASSES, LINEARIZE, PASSES, linearize};
use gradiff::kernel::{
    Error, Opt, OptOp, Options, Setting, Strategy, apply, check as check_opt, loops,
};
use gradiff::rewrite::{Mode, Trace};
use gradiff_eval::Elements;

use crate::checks::calls::Draw;
use crate::checks::trees::{LOOPS, reads_back, replaced};

/// Maximal number of nodes of a kernel whose loops are all expanded.
const EXPANDED_NODES_MAX: usize = 120;

/// Lowers a tree with changes that the draw gives, runs the kernel on the memories and compares
/// them. A refusal because of too many loops by the passes that make the tree a kernel of ranges is
/// no problem here.
///
/// # Errors
/// The first pass that panics, that refuses a kernel or has too many loops after it; an opt that is
/// illegal though it must not be; a wrong value.
pub(crate) fn check(
    tree: &UOp,
    target: &Target,
    options: &Options,
    memories: &[Elements],
    compare: &dyn Fn(&[Elements]) -> Result<(), String>,
    draw: &mut Draw,
) -> Result<(), String> {
    reads_back(tree)?;
    let is_expanded = draw.one_in(2);
    let (mut target, mut options) = (*target, options.clone());
    // Short sums are divided as well, if the mode allows it.
    if draw.one_in(2) {
        target.thresholds.accumulator_additions = draw.pick(&[4, 4, 5, 7, 8, 16]);
        options.rewrite.mode = Mode::Default;
    }
    if is_expanded {
        options.opts = Strategy::Fixed(Vec::new());
    }
    let mut trace = Trace::default();
    let mut context = Context::new(tree, &target, &options, &mut trace);
    let setting = Setting { mode: options.rewrite.mode, target: &target };
    let mut root = tree.clone();
    let mut is_loop_nest = false;
    let [collapse, optimize] = [pass("collapse")?, pass("optimize")?];
    for (number, pass) in PASSES.iter().enumerate() {
        if number == optimize {
            check_unrolled(&root)?;
            if is_expanded && root.toposort().len() <= EXPANDED_NODES_MAX {
                root = expanded(&root, setting)?;
            }
        }
        let report =
            |problem: String| format!("after {}: {problem} of\n{}", pass.name, root.to_text());
        let after = crate::catch(|| (pass.run)(&root, &mut context)).map_err(report)?;
        root = match after {
            Ok(after) => after,
            Err(Error::TooManyLoops(_)) if !is_loop_nest => return Ok(()),
            Err(error) => return Err(report(format!("a refusal, {error},"))),
        };
        if number == collapse {
            root = renamed(&root, draw);
        }
        let linear = crate::catch(|| linearize(&root, "nest".to_owned()))?;
        match linear {
            Ok(_) => is_loop_nest = true,
            Err(error) if is_loop_nest => {
                return Err(format!("after {}: {error} in\n{}", pass.name, root.to_text()));
            }
            Err(_) => {}
        }
    }
    if !is_loop_nest {
        return Ok(());
    }
    let report = |problem: String| format!("with changes: {problem}\n{}", root.to_text());
    reads_back(&root).map_err(report)?;
    let mut linear = crate::catch(|| (LINEARIZE.run)(tree, &root))?
        .map_err(|error| report(error.to_string()))?;
    for pass in LINEAR_PASSES {
        linear = crate::catch(|| (pass.run)(linear, &context))?
            .map_err(|error| report(error.to_string()))?;
    }
    let mut found = memories.to_vec();
    gradiff_eval::linear::run(&linear, &mut found)
        .and_then(|()| compare(&found))
        .map_err(|problem| report(format!("{problem}\n{linear}")))
}

/// The number of the pass of this name among [`PASSES`].
///
/// # Errors
/// There is no such pass.
pub(crate) fn pass(name: &str) -> Result<usize, String> {
    let number = PASSES.iter().position(|pass| pass.name == name);
    number.ok_or_else(|| format!("there is no pass {name}"))
}

/// The kernel with all loops upcast or unrolled that may be.
fn expanded(root: &UOp, setting: Setting<'_>) -> Result<UOp, String> {
    let error = |error: gradiff::kernel::Error| error.to_string();
    let mut root = root.clone();
    for axis in 0..loops(&root).map_err(error)?.list.len() {
        for op in [OptOp::Unroll, OptOp::Upcast] {
            let opt = Opt { op, axis, amount: 0 };
            // An opt may move loops in the list.
            if check_opt(&loops(&root).map_err(error)?, opt, setting).is_ok() {
                root = crate::catch(|| apply(&root, opt, setting))?.map_err(error)?;
            }
        }
    }
    Ok(root)
}

/// Checks that each loop of two iterations that only reductions have may be unrolled, if there are
/// few loops and nodes.
fn check_unrolled(root: &UOp) -> Result<(), String> {
    let scopes = Scopes::of(root);
    if LOOPS / 2 < scopes.ranges.len() || EXPANDED_NODES_MAX < root.toposort().len() {
        return Ok(());
    }
    let target = Target::of("plain");
    let setting = Setting { mode: Mode::Default, target: &target };
    let loops = loops(root).map_err(|error| error.to_string())?;
    for (axis, info) in loops.list.iter().enumerate() {
        let bit = scopes.bit(&info.range);
        let is_reduced = scopes.bound & bit != 0 && scopes.stored & bit == 0;
        let opt = Opt { op: OptOp::Unroll, axis, amount: 2 };
        if is_reduced && info.size == 2 {
            check_opt(&loops, opt, setting)
                .map_err(|why| format!("{why}, which must be legal, in\n{}", root.to_text()))?;
        }
    }
    Ok(())
}

/// Sets of ranges (bits) of a kernel with at most 64.
struct Scopes {
    ranges: Vec<UOp>,
    /// The ranges below each reduction, and those that it runs over.
    reductions: Vec<(u64, u64)>,
    /// The ranges that some reduction runs over, and those that some store varies in.
    bound: u64,
    stored: u64,
}

impl Scopes {
    fn of(root: &UOp) -> Scopes {
        let nodes = root.toposort();
        let is_range = |node: &&UOp| node.op() == Op::Range;
        let ranges: Vec<UOp> = nodes.iter().filter(is_range).take(LOOPS).cloned().collect();
        let mut scopes = Scopes { ranges, reductions: Vec::new(), bound: 0, stored: 0 };
        // The ranges that a node varies in, and all below it.
        let mut sets: HashMap<UOp, (u64, u64)> = HashMap::new();
        for node in nodes {
            let join = |from: &[UOp]| {
                from.iter().map(|x| sets[x]).fold((0, 0), |x, y| (x.0 | y.0, x.1 | y.1))
            };
            let set = match node.op() {
                Op::Range => (scopes.bit(&node), scopes.bit(&node)),
                Op::Reduce => {
                    let ((varying, below), over) = (join(&node.src()[..1]), join(&node.src()[1..]));
                    scopes.reductions.push((below, over.0));
                    scopes.bound |= over.0;
                    (varying & !over.0, below | over.1)
                }
                _ => join(node.src()),
            };
            if node.op() == Op::Store {
                scopes.stored |= set.0;
            }
            sets.insert(node, set);
        }
        scopes
    }

    fn bit(&self, range: &UOp) -> u64 {
        self.ranges.iter().position(|known| known == range).map_or(0, |at| 1 << at)
    }

    /// Returns whether the two ranges are never in the same scope.
    fn are_apart(&self, x: u64, y: u64) -> bool {
        let is_in_both = |(below, over): &(u64, u64)| {
            let both = below | over;
            over & (x | y) != 0 && both & x != 0 && both & y != 0
        };
        self.bound & x != 0
            && self.bound & y != 0
            && self.stored & (x | y) == 0
            && !self.reductions.iter().any(is_in_both)
    }
}

/// The kernel with other numbers of its ranges, and with a single range in place of two of the same
/// size that are never in the same scope.
fn renamed(root: &UOp, draw: &mut Draw) -> UOp {
    let mut root = root.clone();
    for _ in 0..draw.below(3) {
        let scopes = Scopes::of(&root);
        let ranges = &scopes.ranges;
        if ranges.len() < 2 || ranges.len() == LOOPS {
            break;
        }
        let pairs = (0..ranges.len()).flat_map(|x| (0..x).map(move |y| (x, y)));
        let is_possible = |(x, y): &(usize, usize)| {
            ranges[*x].src() == ranges[*y].src() && scopes.are_apart(1 << x, 1 << y)
        };
        let pairs: Vec<(usize, usize)> = pairs.filter(is_possible).collect();
        if pairs.is_empty() {
            break;
        }
        let (x, y) = draw.pick(&pairs);
        let range = |at: usize| ranges[at].clone();
        root = replaced(&root, &|old, _| (*old == range(x)).then(|| range(y)));
    }
    if draw.one_in(4) {
        return root;
    }
    let ranges = Scopes::of(&root).ranges;
    let mut numbers: Vec<i64> = (0..ranges.len() as i64).collect();
    (1..numbers.len()).rev().for_each(|at| numbers.swap(at, draw.below(at + 1)));
    replaced(&root, &|old, _| {
        let at = ranges.iter().position(|range| range == old)?;
        let arg = Arg::plain_axis(numbers[at]);
        Some(UOp::new(Op::Range, old.dtype(), old.src().iter().cloned(), arg))
    })
}

/// Returns whether a pass cached rows of a reduction's input in a kernel of this tree.
#[cfg(test)]
pub(crate) fn caches_rows(tree: &UOp, target: &Target) -> bool {
    let stages = gradiff::kernel::stages(tree, target, &Options::default());
    let graphs = stages.map(|stages| stages.graphs).unwrap_or_default();
    let after = graphs.iter().find(|(pass, _)| *pass == "cache-inputs");
    after.is_some_and(|(_, root)| root.toposort().iter().any(|node| node.op() == Op::DefineLocal))
}

#[cfg(test)]
mod tests {
    use gradiff::graph::DType;
    use gradiff::view::ShapeTracker;

    use super::*;
    use crate::checks::nests::array;

    #[test]
    fn trees_that_a_pass_refuses_are_found() {
        let view = |size: i64| Arg::View(ShapeTracker::from_shape(&[size]).expect("a shape"));
        let load = UOp::new(Op::Load, DType::I32, [array(DType::I32, 1, 3)], view(3));
        let stored = [array(DType::I32, 0, 2), load];
        let store = UOp::new(Op::Store, DType::Void, stored, view(2));
        let tree = UOp::new(Op::Sink, DType::Void, [store], Arg::None);
        let (target, draw) = (Target::of("plain"), &mut Draw::new(0));
        let checked = check(&tree, &target, &Options::default(), &[], &|_| Ok(()), draw);
        let problem = checked.expect_err("its sizes differ");
        assert!(problem.contains("a refusal") && problem.contains("sizes"), "{problem}");
    }

    #[test]
    fn passes_are_found_by_name() {
        assert!(pass("optimize").is_ok() && pass("optimise").is_err());
    }
}
