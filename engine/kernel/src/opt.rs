//! Pass `optimize`: how the steps of each loop are run. Loops are split, padded, exchanged; an
//! optimisation never changes what a kernel computes, but sums of floats may be added in another
//! order.
//!
//! A range `r` of n steps becomes `outer*amount + inner` wherever it stands, so that indices, gates
//! and folds follow by themselves. Which opts are legal is said by [`Loop`]s alone, see [`check`].

use gradiff_graph::fault::{Fault, is_active};
use gradiff_graph::{Arg, Axis, AxisKind, Constant, DType, Op, Sources, UOp};
use gradiff_rewrite::Mode;
use rustc_hash::FxHasher;
use std::hash::{Hash, Hasher};

use crate::error::malformed;
use crate::linearize::identity;
use crate::pass::Context;
use crate::shape::map_nodes;
use crate::{Error, linearize};

/// What is done to a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OptOp {
    /// `amount` steps of an output loop at once, value by value.
    Upcast,
    /// `amount` steps of a reduced loop in a row, without a loop.
    Unroll,
    /// An output loop divided among `amount` threads, a stretch for each.
    Thread,
    /// As many more steps, which do nothing, as make the count a multiple of `amount`.
    PadTo,
    /// The loop and the output loop of number `amount` exchanged.
    Swap,
}

impl OptOp {
    /// All of them.
    pub const ALL: [OptOp; 5] =
        [OptOp::Upcast, OptOp::Unroll, OptOp::Thread, OptOp::PadTo, OptOp::Swap];

    /// Its word.
    pub fn name(self) -> &'static str {
        ["upcast", "unroll", "thread", "padto", "swap"][self as usize]
    }
}

/// One optimisation: what, of which loop (its place in [`loops`]), how much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Opt {
    /// What is done.
    pub op: OptOp,
    /// The place of the loop in [`loops`].
    pub axis: usize,
    /// How much; 0 stands for all steps of the loop.
    pub amount: i64,
}

impl std::fmt::Display for Opt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} {}", self.op.name(), self.axis, self.amount)
    }
}

impl std::str::FromStr for Opt {
    type Err = String;

    fn from_str(text: &str) -> Result<Opt, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let [op, axis, amount] = words.as_slice() else {
            return Err(format!("{text:?} is no opt: an opt is OP AXIS AMOUNT, as in upcast 0 4"));
        };
        let names = OptOp::ALL.map(OptOp::name);
        let found = OptOp::ALL.into_iter().find(|known| known.name() == *op);
        let op = found.ok_or_else(|| format!("no opt is called {op}: {}", names.join(", ")))?;
        let axis = axis.parse().map_err(|error| format!("axis {axis} of {text}: {error}"))?;
        let amount = amount.parse().map_err(|error| format!("amount {amount}: {error}"))?;
        Ok(Opt { op, axis, amount })
    }
}

/// Which opts a kernel gets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Strategy {
    /// None.
    #[default]
    None,
    /// These; a kernel for which one of them is not legal is an error.
    Fixed(Vec<Opt>),
    /// Up to this many legal ones, drawn from the number and the sizes of the loops.
    Drawn {
        /// What is drawn from; kernels with the same loops get the same opts.
        seed: u64,
        /// At most so many.
        most: usize,
    },
}

/// A loop of a lowered kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loop {
    /// The range.
    pub range: UOp,
    /// How its steps are run.
    pub axis: Axis,
    /// How many steps it has.
    pub size: i64,
    /// Whether a fold runs over it.
    pub is_reduced: bool,
    /// Whether a store runs over it.
    pub is_output: bool,
}

/// The loops of a lowered kernel: plain ones first, so that opts change the places of few; among
/// them output loops outermost first, then those that are only reduced.
///
/// # Errors
/// A range without a constant end.
pub fn loops(root: &UOp) -> Result<Vec<Loop>, Error> {
    let order = root.order();
    let reduced: Vec<&UOp> = order
        .iter()
        .filter(|node| node.op() == Op::Reduce)
        .flat_map(|fold| &fold.src()[1..])
        .collect();
    let outputs = linearize::output_ranges(root)?;
    let ranges = order.iter().filter(|node| node.op() == Op::Range);
    let mut found = ranges
        .map(|range| {
            let size = range.src()[0].as_int().and_then(|end| i64::try_from(end).ok());
            let (Some(size), Arg::Axis(axis)) = (size, range.arg()) else {
                return Err(malformed("a range without an end or a number"));
            };
            let is_reduced = reduced.contains(range);
            let is_output = outputs.contains(range);
            Ok(Loop { range: (*range).clone(), axis: *axis, size, is_reduced, is_output })
        })
        .collect::<Result<Vec<Loop>, Error>>()?;
    found.sort_by_key(|one| (one.axis.kind != AxisKind::Loop, !one.is_output, one.axis));
    Ok(found)
}

/// Most steps that run at once, over all loops.
const UPCAST_MOST: i64 = 256;
/// Most steps in a row, over all loops.
const UNROLL_MOST: i64 = 32;
/// Most threads.
const THREAD_MOST: i64 = 64;

/// Whether the opt may be applied to a kernel with these loops.
///
/// # Errors
/// Why not, and what is allowed.
pub fn check(loops: &[Loop], opt: Opt, mode: Mode) -> Result<(), String> {
    let fail = |why: String| Err(format!("{opt}: {why}"));
    let Some(one) = loops.get(opt.axis) else {
        return fail(format!("the kernel has loops 0 to {}", loops.len() as i64 - 1));
    };
    let Loop { axis, size, is_reduced, is_output, .. } = one;
    if axis.kind != AxisKind::Loop {
        return fail(format!("loop {} is split already", opt.axis));
    }
    if opt.op == OptOp::Swap {
        let other = usize::try_from(opt.amount).ok().and_then(|other| loops.get(other));
        let is_right = other.is_some_and(|other| {
            other.is_output && other.axis.kind == AxisKind::Loop && other.axis != *axis
        });
        let is_right = is_right && *is_output;
        return if is_right { Ok(()) } else { fail("swap takes two output loops".to_owned()) };
    }
    let amount = if opt.amount == 0 { *size } else { opt.amount };
    if amount < 2 || *size < 2 {
        return fail(format!("{size} steps by {amount}: both must be 2 or more"));
    }
    if opt.op == OptOp::PadTo {
        let padded = padded_size(*size, amount);
        return match padded {
            _ if padded == *size => fail(format!("{size} is a multiple of {amount}")),
            _ if padded / 4 >= *size => fail(format!("{padded} steps for {size} are too many")),
            _ => Ok(()),
        };
    }
    if size % amount != 0 {
        return fail(format!("{amount} does not divide the {size} steps; see padto"));
    }
    let (wants_output, kind, most) = match opt.op {
        OptOp::Upcast => (true, AxisKind::Upcast, UPCAST_MOST),
        OptOp::Unroll => (false, AxisKind::Unroll, UNROLL_MOST),
        _ => (true, AxisKind::Thread, THREAD_MOST),
    };
    if wants_output && (!is_output || *is_reduced) || !wants_output && (*is_output || !is_reduced) {
        let word = if wants_output { "an output loop" } else { "a reduced loop" };
        return fail(format!("{} takes {word}", opt.op.name()));
    }
    let taken = loops.iter().filter(|other| other.axis.kind == kind).map(|other| other.size);
    let taken: i64 = taken.product();
    if opt.op == OptOp::Thread && 1 < taken {
        return fail("the kernel has threads already".to_owned());
    }
    if most / taken < amount {
        return fail(format!("{taken} x {amount} steps, at most {most} are possible"));
    }
    // In strict mode sums of floats keep their order: only the innermost loop can be unrolled.
    let is_last = loops.iter().all(|other| !other.is_reduced || other.axis <= *axis);
    if opt.op == OptOp::Unroll && mode == Mode::Strict && !is_last {
        return fail("in strict mode only the innermost reduced loop can be unrolled".to_owned());
    }
    Ok(())
}

/// The kernel with the opt applied; not simplified.
///
/// # Errors
/// What [`check`] says, as [`Error::Illegal`]; those of [`loops`].
pub fn apply(root: &UOp, opt: Opt, mode: Mode) -> Result<UOp, Error> {
    let loops = loops(root)?;
    check(&loops, opt, mode).map_err(Error::Illegal)?;
    let one = &loops[opt.axis];
    let amount = if opt.amount == 0 { one.size } else { opt.amount };
    let fresh = 1 + loops.iter().map(|one| one.axis.number).max().unwrap_or(0);
    match opt.op {
        OptOp::Upcast => split(root, one, fresh, (amount, AxisKind::Upcast), false),
        OptOp::Unroll => split(root, one, fresh, (amount, AxisKind::Unroll), false),
        OptOp::Thread => split(root, one, fresh, (amount, AxisKind::Thread), true),
        OptOp::PadTo => pad(root, one, amount),
        OptOp::Swap => {
            let other = &loops[opt.amount as usize];
            let with = |one: &Loop, number| {
                (one.range.clone(), range(one.size, one.range.dtype(), one.axis.kind, number))
            };
            let exchanged = [with(one, other.axis.number), with(other, one.axis.number)];
            replace(root, &exchanged.map(|(range, other)| (range, other.clone(), vec![other])))
        }
    }
}

/// The pass. See the head of this file.
pub(crate) fn optimize(root: &UOp, ctx: &mut Context<'_>) -> Result<UOp, Error> {
    let mode = ctx.options.rewrite.mode;
    match &ctx.options.opts {
        Strategy::None => Ok(root.clone()),
        Strategy::Fixed(opts) => {
            opts.iter().try_fold(root.clone(), |root, opt| apply(&root, *opt, mode))
        }
        Strategy::Drawn { seed, most } => {
            let mut root = root.clone();
            for opt in draw(&root, *seed, *most, mode)? {
                root = apply(&root, opt, mode)?;
            }
            Ok(root)
        }
    }
}

/// The legal opts of a kernel, in order: all amounts that loops of these sizes make sense of.
///
/// # Errors
/// Those of [`loops`].
pub fn legal(root: &UOp, mode: Mode) -> Result<Vec<Opt>, Error> {
    const AMOUNTS: [i64; 9] = [0, 2, 3, 4, 5, 7, 8, 16, 32];
    let loops = loops(root)?;
    let mut found = Vec::new();
    for (axis, op) in (0..loops.len()).flat_map(|axis| OptOp::ALL.map(|op| (axis, op))) {
        let amounts: Vec<i64> = match op {
            OptOp::Swap => (axis as i64 + 1..loops.len() as i64).collect(),
            _ => AMOUNTS.to_vec(),
        };
        let opts = amounts.into_iter().map(|amount| Opt { op, axis, amount });
        found.extend(opts.filter(|opt| check(&loops, *opt, mode).is_ok()));
    }
    Ok(found)
}

/// Up to `most` opts, each legal after those before it.
///
/// # Errors
/// Those of [`loops`].
pub fn draw(root: &UOp, seed: u64, most: usize, mode: Mode) -> Result<Vec<Opt>, Error> {
    let mut hasher = FxHasher::default();
    loops(root)?.iter().for_each(|one| (one.size, one.is_reduced).hash(&mut hasher));
    let mut state = seed ^ hasher.finish();
    let mut dice = |count: usize| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (((mixed >> 32) * count as u64) >> 32) as usize
    };
    let (mut root, mut opts) = (root.clone(), Vec::new());
    for _ in 0..dice(most + 1) {
        let legal = legal(&root, mode)?;
        let is_legal = |op: &OptOp| legal.iter().any(|opt| opt.op == *op);
        let ops: Vec<OptOp> = OptOp::ALL.into_iter().filter(is_legal).collect();
        if ops.is_empty() {
            break;
        }
        let op = ops[dice(ops.len())];
        let some: Vec<Opt> = legal.into_iter().filter(|opt| opt.op == op).collect();
        let opt = some[dice(some.len())];
        root = apply(&root, opt, mode)?;
        opts.push(opt);
    }
    Ok(opts)
}

fn range(size: i64, dtype: DType, kind: AxisKind, number: i64) -> UOp {
    UOp::new(Op::Range, dtype, [UOp::int(dtype, size)], Arg::Axis(Axis { kind, number }))
}

/// `r` as two ranges: `outer*amount + inner` with a new inner one; with a new outer one (`is_outer`)
/// that has `amount` steps itself.
fn split(
    root: &UOp,
    one: &Loop,
    fresh: i64,
    (amount, kind): (i64, AxisKind),
    is_outer: bool,
) -> Result<UOp, Error> {
    let (dtype, rest) = (one.range.dtype(), one.size / amount);
    let new = range(amount, dtype, kind, fresh);
    if rest == 1 {
        return replace(root, &[(one.range.clone(), new.clone(), vec![new])]);
    }
    let old = range(rest, dtype, one.axis.kind, one.axis.number);
    let (outer, inner, mut count) =
        if is_outer { (&new, &old, rest) } else { (&old, &new, amount) };
    // fault: opt-split-stride
    if is_active(Fault::OptSplitStride) {
        count = one.size / count;
    }
    let scaled = UOp::binary(Op::Mul, outer.clone(), UOp::int(dtype, count));
    let value = UOp::binary(Op::Add, scaled, inner.clone());
    replace(root, &[(one.range.clone(), value, vec![old.clone(), new])])
}

/// Puts values in the place of ranges; folds over a range run over those that the last part lists,
/// unrolled ones innermost.
fn replace(root: &UOp, by: &[(UOp, UOp, Vec<UOp>)]) -> Result<UOp, Error> {
    let order = root.toposort();
    map_nodes(&order, |old, node| {
        if let Some((_, value, _)) = by.iter().find(|(range, ..)| range == old) {
            return Ok(value.clone());
        }
        if old.op() != Op::Reduce {
            return Ok(node);
        }
        let ranges = old.src()[1..].iter().zip(&node.src()[1..]);
        let mut ranges: Vec<UOp> = ranges
            .flat_map(|(old, new)| match by.iter().find(|(range, ..)| range == old) {
                Some((.., ranges)) => ranges.clone(),
                None => vec![new.clone()],
            })
            .collect();
        ranges.sort_by_key(
            |range| matches!(range.arg(), Arg::Axis(axis) if axis.kind == AxisKind::Unroll),
        );
        let src: Sources = std::iter::once(node.src()[0].clone()).chain(ranges).collect();
        Ok(UOp::new(Op::Reduce, node.dtype(), src, node.arg().clone()))
    })
}

/// The least multiple of `amount` that is not below the size; the largest number if there is none.
fn padded_size(size: i64, amount: i64) -> i64 {
    size.checked_add(amount - 1).map_or(i64::MAX, |most| most / amount * amount)
}

/// The range with more steps: what they load is behind a gate, what they store as well, and what
/// they add to a fold is the fold's identity.
fn pad(root: &UOp, one: &Loop, amount: i64) -> Result<UOp, Error> {
    let dtype = one.range.dtype();
    let longer = range(padded_size(one.size, amount), dtype, one.axis.kind, one.axis.number);
    let is_real = UOp::binary(Op::CmpLt, longer.clone(), UOp::int(dtype, one.size));
    let root = replace(root, &[(one.range.clone(), longer.clone(), vec![longer.clone()])])?;
    let order = root.toposort();
    let varying = gradiff_rewrite::varying(&root, &longer);
    let stores = order.iter().filter(|node| node.op() == Op::Store);
    let targets: Vec<&UOp> = stores.map(|store| &store.src()[0]).collect();
    map_nodes(&order, |old, node| match (old.op(), old.arg()) {
        // fault: opt-pad-gate-lost
        (Op::Index, _) if targets.contains(&old) && is_active(Fault::OptPadGateLost) => Ok(node),
        (Op::Index, _) if varying.contains(old) => {
            let gate = match node.src().get(2) {
                Some(gate) => UOp::binary(Op::And, is_real.clone(), gate.clone()),
                None => is_real.clone(),
            };
            let src = [node.src()[0].clone(), node.src()[1].clone(), gate];
            Ok(node.with_src(src))
        }
        (Op::Reduce, Arg::Reduce(op, _)) if old.src()[1..].contains(&longer) => {
            let mut identity = identity(*op, node.dtype())?;
            // fault: opt-pad-fold-wrong
            if is_active(Fault::OptPadFoldWrong) {
                identity = Constant::zero(node.dtype());
            }
            let mut src: Sources = node.src().iter().cloned().collect();
            src[0] = UOp::select(is_real.clone(), src[0].clone(), UOp::constant(identity));
            Ok(node.with_src(src))
        }
        _ => Ok(node),
    })
}
