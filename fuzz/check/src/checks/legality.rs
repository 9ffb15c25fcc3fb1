//! The legality of opts against a model, for a kernel of which it is easily said, and at the limit
//! of loops.
//!
//! Drawn sequences, heuristics and searches only take opts that the engine calls legal, so they do
//! not notice an opt that it refuses without need. Here each opt is asked for by name.

use gradiff::UOp;
use gradiff::graph::{Arg, DType, Dims, Op, Target};
use gradiff::kernel::{
    Opt, OptOp, Options, Setting, Strategy, apply, check as check_opt, legal, loops, lower,
};
use gradiff::rewrite::{Mode, Trace};
use gradiff::view::ShapeTracker;

use crate::checks::calls::Draw;
use crate::checks::nests::{array, elements};
use crate::checks::opts::optimizable;
use crate::checks::trees::{LOOPS, PREFIX};

/// Amounts of the opts that are asked for.
const AMOUNTS: [i64; 8] = [0, 1, 2, 3, 4, 5, 7, 8];
/// Largest size of a loop, below the limits of iterations that are upcast, unrolled or threads.
const SIZE_MAX: usize = 24;
/// Most elements of a tile that threads copy to local memory.
const TILE_MAX: usize = 1 << 14;
/// One check in this many is of a kernel with as many loops as possible.
const FULL_ONE_IN: usize = 8;

/// Checks the legality of all opts of small amounts for a kernel that the draw gives.
///
/// # Errors
/// The opt that is legal and must not be, that is illegal though it must be legal, or that is
/// refused without a reason; a legal one that fails.
pub(crate) fn check(draw: &mut Draw) -> Result<(), String> {
    check_table(draw).map_err(|problem| format!("{PREFIX}: legality: {problem}"))?;
    if draw.one_in(FULL_ONE_IN) {
        check_full(draw).map_err(|problem| format!("{PREFIX}: many loops: {problem}"))?;
    }
    Ok(())
}

fn tracker(sizes: [usize; 3]) -> ShapeTracker {
    ShapeTracker::from_shape(&sizes.map(|size| size as i64)).expect("small sizes")
}

/// The kernel tree `out[a, b] = sum over c of x[b, c, a]`, of which no two loops can be merged.
fn sums([a, b, c]: [usize; 3], dtype: DType) -> UOp {
    let permuted = tracker([b, c, a]).permute(&[2, 0, 1]).expect("three axes");
    sums_of(permuted, a * b * c, [a, b], dtype)
}

/// The kernel tree `out[a, b] = sum over c of x[b, c]`, whose iterations of `a` load the same.
fn shared_sums([a, b, c]: [usize; 3], dtype: DType) -> UOp {
    let sizes = [a, b, c].map(|size| size as i64);
    let expanded = tracker([1, b, c]).expand(&sizes).expect("an axis of one element");
    sums_of(expanded, b * c, [a, b], dtype)
}

/// The kernel tree of the sums over the last axis of a view of an array with so many elements.
fn sums_of(view: ShapeTracker, count: usize, [a, b]: [usize; 2], dtype: DType) -> UOp {
    let load = UOp::new(Op::Load, dtype, [array(dtype, 1, count)], Arg::View(view));
    let reduce = Arg::Reduce(Op::Add, Dims::from_slice(&[2]));
    let sum = UOp::new(Op::ReduceAxis, dtype, [load], reduce);
    let stored = [array(dtype, 0, a * b), sum];
    let store = UOp::new(Op::Store, DType::Void, stored, Arg::View(tracker([a, b, 1])));
    UOp::new(Op::Sink, DType::Void, [store], Arg::None)
}

fn check_table(draw: &mut Draw) -> Result<(), String> {
    // The sizes differ, so that they identify the loops. The first one is 1 in some kernels.
    let mut sizes = [0; 3];
    for at in 0..3 {
        while sizes[at] == 0 || sizes[..at].contains(&sizes[at]) {
            sizes[at] = 2 + draw.below(SIZE_MAX - 1);
        }
    }
    if draw.one_in(3) {
        sizes[0] = 1;
    }
    let name = draw.pick(&["plain", "vectors", "groups"]);
    let target = Target::of(name);
    let mode = draw.pick(&[Mode::Default, Mode::Default, Mode::Strict]);
    let setting = Setting { mode, target: &target };
    let root = optimizable(&sums(sizes, DType::F32), target)?;
    let text = |error: gradiff::kernel::Error| error.to_string();
    let found = loops(&root).map_err(text)?;
    let count = found.list.len();
    if count != sizes.iter().filter(|size| 1 < **size).count() {
        return Err(format!("{sizes:?} has {count} loops"));
    }
    let is_sum = |axis: usize| found.list[axis].size == sizes[2] as i64;
    let (in_groups, is_strict) = (target.groups.is_some(), mode == Mode::Strict);
    for axis in 0..=count {
        for (op, amount) in OptOp::ALL.into_iter().flat_map(|op| AMOUNTS.map(|amount| (op, amount)))
        {
            let is_loop = axis < count;
            let size = if is_loop { found.list[axis].size } else { 0 };
            let sums = is_loop && is_sum(axis);
            let parts = if amount == 0 { size } else { amount };
            let divides = 2 <= parts && parts <= size && size % parts == 0;
            let is_rest = 2 <= parts && parts < size && size % parts != 0;
            let expected = match op {
                // They have checks of their own.
                OptOp::Tc | OptOp::Stage => continue,
                OptOp::Upcast => divides && !(sums && is_strict),
                OptOp::Unroll => divides && sums,
                OptOp::Thread => divides && !sums && !in_groups,
                OptOp::PadTo => {
                    let padded = if 1 < parts { (size + parts - 1) / parts * parts } else { size };
                    is_loop && padded != size && padded / 4 < size
                }
                OptOp::Overlap => is_rest && !in_groups,
                OptOp::Cut => (1..size).contains(&amount) && !in_groups && !(sums && is_strict),
                OptOp::Swap => {
                    let second = amount as usize;
                    is_loop && second < count && second != axis && !sums && !is_sum(second)
                }
                OptOp::Local => divides && !sums && in_groups,
                OptOp::Group | OptOp::GroupTop => divides && sums && in_groups && !is_strict,
                OptOp::NoLocals => in_groups,
            };
            let opt = Opt { op, axis, amount };
            let answer = crate::catch(|| check_opt(&found, opt, setting))?;
            let applied = match &answer {
                Ok(()) => crate::catch(|| apply(&root, opt, setting))?.map(drop),
                Err(_) => Ok(()),
            };
            let is_right = match &answer {
                Ok(()) => expected && applied.is_ok(),
                Err(why) => {
                    let reason = why.strip_prefix(&format!("{opt}: "));
                    !expected && reason.is_some_and(|reason| !reason.is_empty())
                }
            };
            if !is_right {
                let expected = if expected { "legal" } else { "illegal" };
                return Err(format!(
                    "{opt} of {sizes:?} for {name} in mode {mode:?}: {answer:?}, {applied:?}, \
                     expected {expected}"
                ));
            }
        }
    }
    Ok(())
}

/// Checks the legality of `stage` for sums whose threads load the same elements, or different ones,
/// and what a kernel with it computes.
///
/// # Errors
/// The opt that is legal and must not be, or the other way round; a wrong sum.
pub(crate) fn check_stage(draw: &mut Draw) -> Result<(), String> {
    check_staged(draw).map_err(|problem| format!("{PREFIX}: stage: {problem}"))
}

fn check_staged(draw: &mut Draw) -> Result<(), String> {
    // The sizes differ, so that they identify the loops.
    let (a, b) = draw.pick(&[(2, 3), (3, 2), (5, 3), (7, 2), (2, 7)]);
    let c = draw.pick(&[4, 6, 8, 9, 12, 16, 20_000]);
    let sizes = [a, b, c];
    let dtype = draw.pick(&[DType::I32, DType::F32, DType::I16]);
    let tree = shared_sums(sizes, dtype);
    let name = draw.pick(&["groups", "opencl", "cuda"]);
    let target = Target::of(name);
    let mode = draw.pick(&[Mode::Default, Mode::Strict]);
    let setting = Setting { mode, target: &target };
    let text = |error: gradiff::kernel::Error| error.to_string();
    let mut root = optimizable(&tree, target)?;
    let axis_of = |root: &UOp, wanted: usize| {
        let list = loops(root).map_err(text)?.list;
        let found = list.iter().position(|info| info.size == wanted as i64);
        found.ok_or_else(|| format!("no loop of {wanted} in {sizes:?}"))
    };
    // Without threads, or where each loads its own elements, nothing is shared.
    let threads = draw.pick(&[Some(a), Some(a), Some(b), None]);
    let mut opts = Vec::new();
    if let Some(size) = threads {
        let opt = Opt { op: OptOp::Local, axis: axis_of(&root, size)?, amount: 0 };
        check_opt(&loops(&root).map_err(text)?, opt, setting)?;
        root = crate::catch(|| apply(&root, opt, setting))?.map_err(text)?;
        opts.push(opt);
    }
    let (summed, found) = (axis_of(&root, c)?, loops(&root).map_err(text)?);
    let mut stages = Vec::new();
    for axis in 0..=found.list.len() {
        for amount in AMOUNTS {
            let divides = amount == 0 || 2 <= amount && c as i64 % amount == 0;
            let is_short = amount != 0 || c <= TILE_MAX;
            let expected = threads == Some(a) && axis == summed && divides && is_short;
            let opt = Opt { op: OptOp::Stage, axis, amount };
            let answer = crate::catch(|| check_opt(&found, opt, setting))?;
            if answer.is_ok() != expected {
                return Err(format!("{opt} after {opts:?} of {sizes:?} for {name}: {answer:?}"));
            }
            stages.extend(expected.then_some(opt));
        }
    }
    let listed = crate::catch(|| legal(&root, setting))?.map_err(text)?;
    let is_listed = |opt: &Opt| listed.contains(opt);
    // Amounts that are all iterations are listed as 0.
    let is_part = |opt: &&Opt| opt.amount != 0 && opt.amount < c as i64;
    if let Some(opt) = stages.iter().filter(is_part).find(|opt| !is_listed(opt)) {
        return Err(format!(
            "{opt} after {opts:?} of {sizes:?} for {name} is legal, but not listed"
        ));
    }
    if stages.is_empty() || TILE_MAX < c {
        return Ok(());
    }
    opts.push(draw.pick(&stages));
    let mut options = Options { opts: Strategy::Fixed(opts.clone()), ..Options::default() };
    options.rewrite.mode = mode;
    let kernel = crate::catch(|| lower(&tree, &target, &options, &mut Trace::default()))?
        .map_err(|error| format!("{opts:?} for {name} of {sizes:?}: {error}"))?;
    let data: Vec<i64> = (0..b * c).map(|_| draw.below(100) as i64 - 50).collect();
    let mut memories = vec![vec![None; a * b], elements(dtype, &data)];
    gradiff_eval::linear::run(&kernel, &mut memories)?;
    let rows: Vec<i64> = data.chunks(c).map(|row| row.iter().sum()).collect();
    let expected = elements(dtype, &rows.repeat(a));
    let is_right = memories[0] == expected;
    is_right.then_some(()).ok_or_else(|| {
        format!("{opts:?} for {name}: the sums are {:?}, expected {expected:?}", memories[0])
    })
}

/// Cuts the loop of a sum until the kernel has as many loops as it may have, or one or two less.
/// Opts that are legal for it keep the limit, and one of them, on a target without groups, the sum.
fn check_full(draw: &mut Draw) -> Result<(), String> {
    let size = 200 + draw.below(60);
    let dtype = DType::I32;
    let tree = sums([1, 1, size], dtype);
    let text = |error: gradiff::kernel::Error| error.to_string();
    let plain = Target::of("plain");
    let setting = Setting { mode: Mode::Default, target: &plain };
    let (mut root, mut cuts) = (optimizable(&tree, plain)?, Vec::new());
    let wanted = LOOPS - draw.below(3);
    for count in 1..wanted {
        let list = loops(&root).map_err(text)?.list;
        if list.len() != count {
            return Err(format!("{} loops after {cuts:?} of {size}, expected {count}", list.len()));
        }
        let longest = (0..count).max_by_key(|at| list[*at].size).unwrap_or(0);
        // A part of a single iteration is no loop.
        let amount = 2 + draw.below(2) as i64;
        let opt = Opt { op: OptOp::Cut, axis: longest, amount };
        root = crate::catch(|| apply(&root, opt, setting))?.map_err(text)?;
        cuts.push(opt);
    }
    let name = draw.pick(&["plain", "vectors", "groups"]);
    let target = Target::of(name);
    let setting = Setting { mode: Mode::Default, target: &target };
    let opts = crate::catch(|| legal(&root, setting))?.map_err(text)?;
    for opt in opts.iter().filter(|_| draw.one_in(16)) {
        let next = crate::catch(|| apply(&root, *opt, setting))?.map_err(text)?;
        let count = next.toposort().iter().filter(|node| node.op() == Op::Range).count();
        if LOOPS < count {
            return Err(format!("{opt} for {name} gives {count} loops, after {cuts:?} of {size}"));
        }
    }
    if opts.is_empty() || target.groups.is_some() {
        return Ok(());
    }
    let chosen = draw.pick(&opts);
    let fixed = Strategy::Fixed(cuts.iter().copied().chain([chosen]).collect());
    let options = Options { opts: fixed, ..Options::default() };
    let kernel = crate::catch(|| lower(&tree, &target, &options, &mut Trace::default()))?
        .map_err(|error| format!("{chosen} for {name} after {cuts:?} of {size}: {error}"))?;
    let data: Vec<i64> = (0..size).map(|_| draw.below(100) as i64 - 50).collect();
    let mut memories = vec![vec![None], elements(dtype, &data)];
    gradiff_eval::linear::run(&kernel, &mut memories)?;
    let expected = elements(dtype, &[data.iter().sum()]);
    let is_right = memories[0] == expected;
    is_right.then_some(()).ok_or_else(|| {
        format!("{chosen} for {name}: the sum is {:?}, expected {expected:?}", memories[0])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_holds() {
        for seed in 0..400 {
            check_table(&mut Draw::new(seed)).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        }
    }

    #[test]
    fn stage_is_legal_where_threads_share_elements() {
        for seed in 0..200 {
            check_staged(&mut Draw::new(seed)).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        }
    }

    #[test]
    fn opts_of_kernels_with_many_loops_are_legal_or_refused() {
        for seed in 0..12 {
            check_full(&mut Draw::new(seed)).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        }
    }
}
