//! Opts that the loops of a kernel, and what is loaded along them, speak for.
//!
//! On a CPU with vectors: lanes along the loop in which most accesses go to neighbours; then as many
//! vectors side by side as registers hold, so that what is loaded once is used often and folds do
//! not wait for each other. On a device with groups: lanes of a vector, threads of a group along the
//! loops of the output, and groups that share a fold where the output alone has too few steps.

use gradiff_graph::{AxisKind, Op, UOp};
use gradiff_rewrite::Mode;

use super::legal::{Loop, Loops, check, loops};
use super::{Matmul, Opt, OptOp, Setting, apply};
use crate::Error;
use crate::linearize::Free;

/// The opts.
///
/// # Errors
/// Those of [`loops`].
pub fn heuristic(root: &UOp, setting: Setting<'_>) -> Result<Vec<Opt>, Error> {
    let mut chosen = Chosen { root: root.clone(), loops: loops(root)?, opts: Vec::new(), setting };
    match setting.target.groups {
        Some(_) => on_groups(&mut chosen)?,
        None if setting.target.vectors.alu => on_cpu(&mut chosen)?,
        None => {}
    }
    Ok(chosen.opts)
}

/// Vectors side by side in a fold that loads nothing twice.
const SIDE_BY_SIDE: [i64; 4] = [4, 5, 3, 2];
/// Registers that folds may fill: all but what is loaded needs.
const REGISTERS: i64 = 16;

/// Steps of all loops together from which on several threads are worth their start.
const LARGE: i64 = 1 << 18;

fn on_cpu(chosen: &mut Chosen<'_>) -> Result<(), Error> {
    let steps: i64 = chosen.loops.list.iter().map(|one| one.size).fold(1, i64::saturating_mul);
    vectors(chosen)?;
    if LARGE <= steps && 1 < chosen.setting.target.threads {
        threads(chosen)?;
    }
    Ok(())
}

/// Divides an output loop among threads, the outermost one that has enough steps.
fn threads(chosen: &mut Chosen<'_>) -> Result<(), Error> {
    let threads = chosen.setting.target.threads;
    let is_plain = |one: &&Loop| one.axis.kind == AxisKind::Loop && one.is_output;
    let plain: Vec<i64> =
        chosen.loops.list.iter().filter(is_plain).map(|one| one.axis.number).collect();
    // As many as there are, or so many more that none of them waits long for the others.
    let amounts: Vec<i64> =
        std::iter::once(threads).chain((4 * threads..=8 * threads).rev()).collect();
    for number in plain {
        if chosen.add_largest(OptOp::Thread, number, &amounts)?.is_some() {
            break;
        }
    }
    Ok(())
}

/// Lanes, and vectors side by side; in loops that stand by themselves each has its own.
fn vectors(chosen: &mut Chosen<'_>) -> Result<(), Error> {
    let access = Accesses::of(&chosen.root)?;
    let lanes = i64::from(chosen.setting.target.vectors.bytes) / access.widest_bytes;
    let Some(lane) = best_lane(chosen, &access) else { return Ok(()) };
    let along = chosen.loops.list[lane].clone();
    let Some(amount) = divisor(along.size, lanes.min(64)) else { return Ok(()) };
    let is_apart = |one: &&Loop| one.is_apart(&along);
    let (apart, around): (Vec<&Loop>, Vec<&Loop>) = chosen.loops.list.iter().partition(is_apart);
    let has_fold = around.iter().any(|one| one.is_reduced);
    let apart: Vec<Loop> = apart.into_iter().cloned().collect();
    let reused = reused(&chosen.loops, &access, lane).map(|one| one.axis.number);
    let number = along.axis.number;
    chosen.add(OptOp::Upcast, number, amount)?;
    let mut taken = vec![along.clone()];
    for one in apart {
        let is_apart = taken.iter().all(|taken| one.is_apart(taken));
        if is_apart && worth(chosen, &access, &one, one.is_reduced).is_some() {
            chosen.add(OptOp::Upcast, one.axis.number, amount)?;
            if one.is_reduced {
                chosen.add_largest(OptOp::Upcast, one.axis.number, &SIDE_BY_SIDE)?;
            }
            taken.push(one);
        }
    }
    if along.is_reduced {
        chosen.add_largest(OptOp::Upcast, number, &SIDE_BY_SIDE)?;
        return Ok(());
    }
    if !has_fold {
        return Ok(());
    }
    let Some(reused) = reused else {
        chosen.add_largest(OptOp::Upcast, number, &SIDE_BY_SIDE)?;
        return Ok(());
    };
    // A square tile loads least for its multiply-adds.
    let side = chosen.add_largest(OptOp::Upcast, number, &[4, 2])?.unwrap_or(1);
    let most = REGISTERS / side;
    let amounts: Vec<i64> = (2..=most).rev().collect();
    chosen.add_largest(OptOp::Upcast, reused, &amounts)?;
    // What the lanes read stays in the cache while the reused loop goes round.
    chosen.innermost(reused)
}

/// Threads of a group that output loops fill.
const THREADS: i64 = 128;
/// Output steps below which a fold is divided.
const FEW: i64 = 2048;

fn on_groups(chosen: &mut Chosen<'_>) -> Result<(), Error> {
    if on_tensor_cores(chosen)? {
        return Ok(());
    }
    let access = Accesses::of(&chosen.root)?;
    let is_output = |one: &&Loop| one.is_output && !one.is_reduced;
    let outputs: i64 = chosen.loops.list.iter().filter(is_output).map(|one| one.size).product();
    let folded = chosen.loops.list.iter().filter(|one| one.is_reduced && !one.is_output);
    let folded = folded.max_by_key(|one| one.size).map(|one| (one.axis.number, one.size));
    let mut threads = 1;
    if let Some((number, size)) = folded
        && outputs <= FEW
        && 16 <= size
        && let Some(amount) = chosen.add_largest(OptOp::GroupTop, number, &[256, 64, 32, 16])?
    {
        threads = amount;
    }
    let quads = i64::from(chosen.setting.target.vectors.bytes) / access.widest_bytes;
    if 2 <= quads
        && threads == 1
        && let Some(lane) = best_lane(chosen, &access)
        && chosen.loops.list[lane].is_output
    {
        let number = chosen.loops.list[lane].axis.number;
        if let Some(amount) = divisor(chosen.loops.list[lane].size, quads) {
            chosen.add(OptOp::Upcast, number, amount)?;
        }
    }
    let mut inner: Vec<i64> =
        chosen.loops.list.iter().filter(is_output).map(|one| one.axis.number).collect();
    inner.sort_unstable();
    for number in inner.into_iter().rev().take(3) {
        let amounts: Vec<i64> =
            [32, 16, 8, 4, 3, 2].into_iter().filter(|amount| threads * amount <= THREADS).collect();
        threads *= chosen.add_largest(OptOp::Local, number, &amounts)?.unwrap_or(1);
    }
    Ok(())
}

/// The largest product of matrices by tensor cores, if there is one: tiles side by side, so that
/// fragments are used again, and a few warps in a group.
fn on_tensor_cores(chosen: &mut Chosen<'_>) -> Result<bool, Error> {
    let Loops { list, matmuls, .. } = &chosen.loops;
    let mut largest: Vec<[i64; 3]> = matmuls.iter().map(Matmul::numbers).collect();
    largest.sort_by_key(|numbers| {
        let size = |one: &&Loop| numbers.contains(&one.axis.number);
        let steps = list.iter().filter(size).map(|one| one.size);
        std::cmp::Reverse(steps.fold(1, i64::saturating_mul))
    });
    largest.dedup();
    for [row, column, step] in largest {
        let Some(place) = chosen.place(step) else { continue };
        let choices = chosen.loops.choices(place, chosen.setting);
        let is_it = |numbers: &[i64; 3]| *numbers == [row, column, step];
        for amount in choices.iter().enumerate().filter(|(_, own)| is_it(own)).map(|(at, _)| at) {
            if chosen.add(OptOp::Tc, step, amount as i64)? {
                for number in [column, row] {
                    chosen.add_largest(OptOp::Upcast, number, &[4, 2])?;
                }
                chosen.add_largest(OptOp::Local, row, &[4, 2])?;
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// The opts so far, and the kernel as they leave it.
struct Chosen<'a> {
    root: UOp,
    loops: Loops,
    opts: Vec<Opt>,
    setting: Setting<'a>,
}

impl Chosen<'_> {
    /// Adds an opt of the plain loop of this number, if it is legal.
    fn add(&mut self, op: OptOp, number: i64, amount: i64) -> Result<bool, Error> {
        let Some(axis) = self.place(number) else { return Ok(false) };
        let opt = Opt { op, axis, amount };
        if check(&self.loops, opt, self.setting).is_err() {
            return Ok(false);
        }
        self.root = apply(&self.root, opt, self.setting)?;
        self.loops = loops(&self.root)?;
        self.opts.push(opt);
        Ok(true)
    }

    /// Adds the first of these amounts that is legal.
    fn add_largest(
        &mut self,
        op: OptOp,
        number: i64,
        amounts: &[i64],
    ) -> Result<Option<i64>, Error> {
        for amount in amounts {
            if self.add(op, number, *amount)? {
                return Ok(Some(*amount));
            }
        }
        Ok(None)
    }

    fn place(&self, number: i64) -> Option<usize> {
        let is_it = |one: &Loop| one.axis.kind == AxisKind::Loop && one.axis.number == number;
        self.loops.list.iter().position(is_it)
    }

    /// Puts a loop inside of all other loops of the output.
    fn innermost(&mut self, number: i64) -> Result<(), Error> {
        let is_plain = |one: &Loop| one.axis.kind == AxisKind::Loop && one.is_output;
        let last = self.loops.list.iter().rposition(is_plain);
        if let Some(last) = last.filter(|last| self.place(number) != Some(*last)) {
            self.add(OptOp::Swap, number, last as i64)?;
        }
        Ok(())
    }
}

/// The largest power of two up to `most` that divides the size; none below 2.
fn divisor(size: i64, most: i64) -> Option<i64> {
    let powers = std::iter::successors(Some(most), |power| Some(power / 2));
    powers.take_while(|power| 2 <= *power).find(|power| size % power == 0)
}

/// The plain loop along which most accesses go to neighbours.
fn best_lane(chosen: &Chosen<'_>, access: &Accesses) -> Option<usize> {
    let list = &chosen.loops.list;
    let has_fold = list.iter().any(|one| one.is_reduced);
    let worth = |place: usize| {
        let one = &list[place];
        Some((worth(chosen, access, one, has_fold)?, one.is_output, one.axis.number, place))
    };
    (0..list.len()).filter_map(worth).max().map(|best| best.3)
}

/// What lanes along a loop would gain, if anything.
fn worth(chosen: &Chosen<'_>, access: &Accesses, one: &Loop, has_fold: bool) -> Option<i64> {
    let may_fold = chosen.setting.mode != Mode::Strict && chosen.setting.target.groups.is_none();
    let is_right = one.axis.kind == AxisKind::Loop && one.is_output != one.is_reduced;
    if !is_right || one.is_reduced && !may_fold {
        return None;
    }
    let worth: i64 = access.list.iter().map(|access| access.worth(&one.range, has_fold)).sum();
    (0 < worth).then_some(worth)
}

/// An output loop along which vectors are not loaded again, while something else is.
fn reused<'a>(loops: &'a Loops, access: &Accesses, lane: usize) -> Option<&'a Loop> {
    let lane = &loops.list[lane].range;
    let loads = || access.list.iter().filter(|one| !one.is_store);
    let is_reused = |one: &&Loop| {
        let is_right = one.axis.kind == AxisKind::Loop && one.is_output && !one.is_reduced;
        let stays = |load: &Access| load.step(lane) == Some(1) && load.step(&one.range) == Some(0);
        is_right && one.range != *lane && loads().any(stays)
    };
    loops.list.iter().filter(is_reused).max_by_key(|one| one.size)
}

/// A load or store.
struct Access {
    is_store: bool,
    /// By how much its place grows along each range, if that is known; ranges that are not here do
    /// not matter to it.
    steps: Vec<(UOp, Option<i64>)>,
}

impl Access {
    fn step(&self, range: &UOp) -> Option<i64> {
        let found = self.steps.iter().find(|(known, _)| known == range);
        found.map_or(Some(0), |(_, step)| *step)
    }

    /// What lanes along a range would gain here.
    fn worth(&self, range: &UOp, has_fold: bool) -> i64 {
        match self.step(range) {
            Some(1) => 2,
            Some(0) => 0,
            // What a fold stores it stores once.
            _ if self.is_store && has_fold => -1,
            _ => -3,
        }
    }
}

/// All loads and stores of a kernel.
struct Accesses {
    list: Vec<Access>,
    /// Bytes of the widest value that is loaded, stored or folded.
    widest_bytes: i64,
}

impl Accesses {
    fn of(root: &UOp) -> Result<Accesses, Error> {
        let free = Free::of(root)?;
        let ranges: Vec<UOp> = free.ranges().cloned().collect();
        let is_access = |node: &&UOp| matches!(node.op(), Op::Load | Op::Store);
        let access = |node: &UOp| {
            let index = &node.src()[0];
            let along = ranges.iter().filter(|range| {
                index.src()[1..].iter().any(|part| free.of_node(part) & free.of_node(range) != 0)
            });
            let step = |range: &UOp| {
                let is_gated = index
                    .src()
                    .get(2)
                    .is_some_and(|gate| free.of_node(gate) & free.of_node(range) != 0);
                if is_gated { None } else { step(&index.src()[1], range, &free) }
            };
            let steps = along.map(|range| (range.clone(), step(range))).collect();
            Access { is_store: node.op() == Op::Store, steps }
        };
        let list = free.nodes.iter().filter(is_access).map(access).collect();
        let is_wide = |node: &&UOp| matches!(node.op(), Op::Load | Op::Index | Op::Reduce);
        let sizes = free.nodes.iter().filter(is_wide).map(|node| node.dtype().size_bytes() as i64);
        let widest_bytes = sizes.max().unwrap_or(1).max(1);
        Ok(Accesses { list, widest_bytes })
    }
}

/// By how much an integer grows along a range, if that is the same everywhere.
pub(crate) fn step(node: &UOp, range: &UOp, free: &Free) -> Option<i64> {
    if node == range {
        return Some(1);
    }
    if free.of_node(node) & free.of_node(range) == 0 {
        return Some(0);
    }
    let of = |source: usize| step(&node.src()[source], range, free);
    let constant =
        |source: usize| node.src()[source].as_int().and_then(|value| i64::try_from(value).ok());
    match node.op() {
        Op::Add => of(0)?.checked_add(of(1)?),
        Op::Sub => of(0)?.checked_sub(of(1)?),
        Op::Mul => match (constant(0), constant(1)) {
            (Some(factor), _) => of(1)?.checked_mul(factor),
            (_, Some(factor)) => of(0)?.checked_mul(factor),
            _ => None,
        },
        Op::Cast if node.src()[0].dtype().is_int() => of(0),
        _ => None,
    }
}
