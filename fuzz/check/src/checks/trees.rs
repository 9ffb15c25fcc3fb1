//! Comparison of drawn kernel trees with a naive evaluation, and damaged trees, which must be
//! refused without a panic.
//!
//! Programs have few axes, and their schedule merges most of them. Here trees have up to seventy
//! axes, permuted in each operand so that they do not merge, and up to seventy reductions, more
//! than a kernel may have loops: each pass is tested near its limits. The naive evaluation visits
//! each element of the whole shape and computes addresses by itself.

use std::collections::HashMap;

use gradiff::UOp;
use gradiff::graph::target::{FUNCTIONS, Thresholds};
use gradiff::graph::text::parse_text;
use gradiff::graph::{Arg, Constant, DType, Dims, Global, Instruction, Linear, Op, Target};
use gradiff::kernel::passes::linearize;
use gradiff::kernel::{Error, Options, Strategy, lower, stages};
use gradiff::rewrite::{Mode, Trace};
use gradiff::schedule;
use gradiff::view::ShapeTracker;
use gradiff_eval::kernel::interpret;
use gradiff_eval::{Elements, scalar};

use crate::Crate;
use crate::checks::calls::Draw;
use crate::checks::lowering;

/// Prefix of reports on trees that this file draws.
pub(crate) const PREFIX: &str = "kernel tree";
/// The words that every report of [`check_trees`] begins with.
pub(crate) const SAID: &str = "tree of a kernel";

/// Maximal number of axes of more than one element, which have two elements if they are many.
const LONG_AXES_MAX: usize = 12;
/// Maximal number of elements of the whole shape times reductions.
const ELEMENTS: usize = 1200;
/// Maximal number of additions of a kernel whose sums are broadcast.
const WORK: usize = 100_000;
/// Number of loops that every kernel may have.
pub(crate) const LOOPS: usize = 64;
/// Number of sums of choices for each drawn tree.
const SUMS: usize = 4;
/// Number of trees of any form for each drawn tree.
const NESTS: usize = 2;
/// One tree in this many is followed by two of reductions over as many axes as kernels have loops.
const TURNS_ONE_IN: usize = 8;
/// Number of damaged trees for each drawn one.
const DAMAGED: usize = 3;

/// A reduction: the operands of the product that is summed, and of the product that is added to the
/// sum. The latter is the same, or reads the same arrays in another order.
struct Reduction {
    operands: Vec<Operand>,
    added: Vec<Operand>,
}

/// An operand: the axis of the whole shape for each axis of its array, and its elements. Along the
/// array's axis `padded.0`, there are `padded.1` zeros before them and `padded.2` after them.
#[derive(Clone)]
struct Operand {
    order: Vec<usize>,
    /// True for axes of the array that are reversed.
    flipped: Vec<bool>,
    padded: (usize, usize, usize),
    elements: Vec<f64>,
}

impl Operand {
    /// The sizes of the array, given those of the whole shape.
    fn stored(&self, sizes: &[usize]) -> Vec<usize> {
        let (axis, before, after) = self.padded;
        let mut stored: Vec<usize> = self.order.iter().map(|axis| sizes[*axis]).collect();
        if let Some(size) = stored.get_mut(axis) {
            *size -= before + after;
        }
        stored
    }

    /// The same array, with one axis reversed or two axes replaced.
    fn reordered(&self, sizes: &[usize], draw: &mut Draw) -> Operand {
        let mut reordered = self.clone();
        let [x, y] = [0, 1].map(|_| draw.below(self.order.len()));
        let is_free = |axis: usize| axis != self.padded.0;
        if x != y && sizes[self.order[x]] == sizes[self.order[y]] && is_free(x) && is_free(y) {
            reordered.order.swap(x, y);
        } else {
            reordered.flipped[x] ^= true;
        }
        reordered
    }

    /// The element at coordinates of the whole shape.
    fn element(&self, at: &[usize], sizes: &[usize]) -> f64 {
        let stored = self.stored(sizes);
        let mut index = 0;
        for (stored_axis, axis) in self.order.iter().enumerate() {
            let is_flipped = self.flipped[stored_axis];
            let mut coordinate = if is_flipped { sizes[*axis] - 1 - at[*axis] } else { at[*axis] };
            if stored_axis == self.padded.0 {
                let inside = self.padded.1..self.padded.1 + stored[stored_axis];
                if !inside.contains(&coordinate) {
                    return 0.0;
                }
                coordinate -= self.padded.1;
            }
            index = index * stored[stored_axis] + coordinate;
        }
        self.elements[index]
    }
}

/// A tree: it stores the sum, over the reductions, of the sum over axes of a product of operands,
/// to which a product is added or not.
struct Drawn {
    sizes: Vec<usize>,
    reduced: Vec<usize>,
    reductions: Vec<Reduction>,
    /// True if the sums are broadcast over the reduced axes again, and a product is added to each.
    is_spread: bool,
    /// True if the first factor of a product is `1 / 2^x`, not `2^x`.
    has_reciprocals: bool,
}

/// Draws trees from a seed, lowers each for a target and compares its result with the naive
/// evaluation; then damages the tree and the graphs that passes make of it.
///
/// # Errors
/// The first tree that is refused, panics or gives a wrong result, as text.
pub fn check_trees(seed: u64, count: u64) -> Result<(), String> {
    (0..count).map(|number| seed.wrapping_add(number)).try_for_each(|seed| {
        check_drawn(&mut Draw::new(seed))
            .map_err(|problem| format!("{SAID}, (check_trees({seed}, 1)): {problem}"))
    })
}

/// The crate to blame for a report of [`check_trees`].
pub fn crate_of_trees(problem: &str) -> Crate {
    if problem.contains(crate::checks::sums::PREFIX) { Crate::Rewrite } else { Crate::Kernel }
}

fn check_drawn(draw: &mut Draw) -> Result<(), String> {
    let drawn = Drawn::draw(draw);
    let tree = drawn.tree();
    let report = |problem: String| format!("{PREFIX}: {problem} of\n{}", tree.to_text());
    check(&drawn, &tree, draw).map_err(report)?;
    (0..SUMS).try_for_each(|_| crate::checks::sums::check(draw))?;
    crate::checks::matmuls::check(draw)?;
    (0..NESTS).try_for_each(|_| crate::checks::nests::check(draw))?;
    crate::checks::gathers::check(draw)?;
    crate::checks::scatters::check(draw)?;
    crate::checks::legality::check(draw)?;
    if draw.one_in(TURNS_ONE_IN) {
        crate::checks::nests::check_turns(draw)?;
        crate::checks::nests::check_many(draw)?;
    }
    crate::checks::legality::check_stage(draw)?;
    crate::checks::gathers::check_undefined(draw)
}

impl Drawn {
    fn draw(draw: &mut Draw) -> Drawn {
        let (rank, long) = match draw.below(4) {
            0 | 1 => (1 + draw.below(5), 5),
            2 => (LONG_AXES_MAX + draw.below(4), LONG_AXES_MAX),
            _ => (60 + draw.below(10), 6),
        };
        let mut sizes = vec![1; rank];
        for _ in 0..long {
            let axis = draw.below(rank);
            sizes[axis] = if rank <= 5 { 1 + draw.below(4) } else { 2 };
        }
        // Sums that are divided also have sizes without a suitable divisor.
        for _ in 0..if rank <= 5 { draw.below(3) } else { 0 } {
            let rest: usize = sizes.iter().product();
            sizes[draw.below(rank)] = 1 + draw.below((ELEMENTS / rest).clamp(1, 130));
        }
        let is_any = draw.one_in(6);
        let reduced: Vec<usize> = (0..rank).filter(|_| is_any || draw.one_in(2)).collect();
        let count = match draw.below(6) {
            0 => 60 + draw.below(10),
            1 => 2 + draw.below(4),
            _ => 1,
        };
        let whole: usize = sizes.iter().product();
        // Many reductions have few elements.
        if ELEMENTS < whole * count {
            sizes = sizes
                .iter()
                .scan(0, |long, size| {
                    *long += usize::from(1 < *size);
                    Some(if *long <= 4 || count == 1 { *size } else { 1 })
                })
                .collect();
        }
        let operand = |draw: &mut Draw| {
            let mut order: Vec<usize> = (0..rank).collect();
            if !draw.one_in(3) {
                (1..rank).rev().for_each(|at| order.swap(at, draw.below(at + 1)));
            }
            let flipped = (0..rank).map(|_| draw.one_in(4)).collect();
            let axis = draw.below(rank);
            let size = sizes[order[axis]];
            let padded = match draw.one_in(3) && 1 < size {
                true => {
                    let before = draw.below(size);
                    (axis, before, draw.below(size - before))
                }
                false => (axis, 0, 0),
            };
            let mut operand = Operand { order, flipped, padded, elements: Vec::new() };
            let count: usize = operand.stored(&sizes).iter().product();
            operand.elements = (0..count).map(|_| draw.below(4) as f64 - 1.0).collect();
            operand
        };
        let reductions = (0..count).map(|_| {
            let operands: Vec<Operand> = (0..1 + draw.below(2)).map(|_| operand(draw)).collect();
            let mut added = operands.clone();
            if draw.one_in(3) {
                let at = draw.below(added.len());
                added[at] = added[at].reordered(&sizes, draw);
            }
            Reduction { operands, added }
        });
        let reductions = reductions.collect();
        // If a sum is broadcast, each element of the result computes it anew.
        let summed: usize = reduced.iter().map(|axis| sizes[*axis]).product();
        let work = sizes.iter().product::<usize>() * summed * count;
        Drawn {
            reductions,
            reduced,
            is_spread: draw.one_in(2) && work <= WORK,
            has_reciprocals: draw.one_in(4),
            sizes,
        }
    }

    /// The shape of the stored array.
    fn stored(&self) -> Vec<usize> {
        let size = |axis: usize| match !self.is_spread && self.reduced.contains(&axis) {
            true => 1,
            false => self.sizes[axis],
        };
        (0..self.sizes.len()).map(size).collect()
    }

    fn tree(&self) -> UOp {
        let wide = dims(&self.sizes);
        let mut narrow = self.sizes.clone();
        self.reduced.iter().for_each(|axis| narrow[*axis] = 1);
        let load = |operand: &Operand, slot: usize| {
            let shape = operand.stored(&self.sizes);
            let mut back = vec![0; shape.len()];
            operand.order.iter().enumerate().for_each(|(stored, axis)| back[*axis] = stored);
            let (padded, before, after) = operand.padded;
            let amount = |axis| if axis == padded { (before as i64, after as i64) } else { (0, 0) };
            let amounts: Vec<(i64, i64)> = (0..shape.len()).map(amount).collect();
            let tracker = ShapeTracker::from_shape(&dims(&shape)).expect("a small shape");
            let tracker = tracker.pad(&amounts).expect("a small padding");
            let tracker = tracker.flip(&operand.flipped).expect("a flag for each axis");
            let tracker = tracker.permute(&back).expect("an order of all axes");
            let array = global(slot, operand.elements.len());
            UOp::new(Op::Load, DType::F32, [array], Arg::View(tracker))
        };
        let product = |operands: &[Operand], slot: usize| {
            let loads = operands.iter().zip(slot..).map(|(operand, slot)| load(operand, slot));
            let loads: Vec<UOp> = loads.collect();
            let power = UOp::unary(Op::Exp2, DType::F32, loads[0].clone());
            let value = match self.has_reciprocals {
                true => UOp::unary(Op::Recip, DType::F32, power),
                false => power,
            };
            loads[1..].iter().fold(value, |x, y| UOp::binary(Op::Mul, x, y.clone()))
        };
        let mut slot = 1;
        let reduction = |reduction: &Reduction| {
            let value = product(&reduction.operands, slot);
            let added = product(&reduction.added, slot);
            slot += reduction.operands.len();
            if self.reduced.is_empty() {
                return value;
            }
            let axes = self.reduced.iter().map(|axis| *axis as i64).collect();
            let sum =
                UOp::new(Op::ReduceAxis, DType::F32, [value.clone()], Arg::Reduce(Op::Add, axes));
            if !self.is_spread {
                return sum;
            }
            let tracker = ShapeTracker::from_shape(&dims(&narrow)).expect("a small shape");
            let tracker = tracker.expand(&wide).expect("axes of one element");
            let spread = UOp::new(Op::View, DType::F32, [sum], Arg::View(tracker));
            UOp::binary(Op::Add, spread, added)
        };
        let terms: Vec<UOp> = self.reductions.iter().map(reduction).collect();
        let value =
            terms[1..].iter().fold(terms[0].clone(), |x, y| UOp::binary(Op::Add, x, y.clone()));
        let shape = self.stored();
        let tracker = ShapeTracker::from_shape(&dims(&shape)).expect("a small shape");
        let store = [global(0, shape.iter().product()), value];
        let store = UOp::new(Op::Store, DType::Void, store, Arg::View(tracker));
        UOp::new(Op::Sink, DType::Void, [store], Arg::None)
    }

    /// The stored array, computed element by element.
    fn naive(&self) -> Vec<f64> {
        let (shape, whole) = (self.stored(), self.sizes.iter().product::<usize>());
        // Coordinates of an element of the whole shape.
        let coordinates = |mut at: usize| -> Vec<usize> {
            let mut coordinates = vec![0; self.sizes.len()];
            for axis in (0..self.sizes.len()).rev() {
                coordinates[axis] = at % self.sizes[axis];
                at /= self.sizes[axis];
            }
            coordinates
        };
        let address = |at: &[usize], shape: &[usize]| {
            at.iter().zip(shape).fold(0, |flat, (at, size)| flat * size + at % size)
        };
        let elements: Vec<Vec<usize>> = (0..whole).map(coordinates).collect();
        let mut narrow = self.sizes.clone();
        self.reduced.iter().for_each(|axis| narrow[*axis] = 1);
        let mut stored = vec![0.0; shape.iter().product()];
        for Reduction { operands, added } in &self.reductions {
            let value = |operands: &[Operand], at: &Vec<usize>| {
                let element = |operand: &Operand| operand.element(at, &self.sizes);
                let sign = if self.has_reciprocals { -1.0 } else { 1.0 };
                let first = (sign * element(&operands[0])).exp2();
                operands[1..].iter().fold(first, |x, y| x * element(y))
            };
            let mut sums = vec![0.0; narrow.iter().product()];
            elements.iter().for_each(|at| sums[address(at, &narrow)] += value(operands, at));
            if self.reduced.is_empty() || !self.is_spread {
                stored.iter_mut().zip(&sums).for_each(|(stored, sum)| *stored += sum);
            } else {
                elements.iter().for_each(|at| {
                    stored[address(at, &shape)] += sums[address(at, &narrow)] + value(added, at)
                });
            }
        }
        stored
    }

    fn memories(&self) -> Vec<Elements> {
        let float = |value: &f64| scalar::float(DType::F32, *value);
        let inputs = self.reductions.iter().flat_map(|reduction| &reduction.operands);
        let inputs = inputs.map(|operand| operand.elements.iter().map(float).collect());
        std::iter::once(vec![None; self.stored().iter().product()]).chain(inputs).collect()
    }

    /// Number of loops if no axes merge.
    fn loops(&self) -> usize {
        let long = self.sizes.iter().filter(|size| 1 < **size).count();
        long * (1 + self.reductions.len())
    }
}

fn dims(shape: &[usize]) -> Dims {
    shape.iter().map(|size| *size as i64).collect()
}

pub(crate) fn global(slot: usize, size: usize) -> UOp {
    let arg = Arg::Global(Global { slot, size_elements: size as i64 });
    UOp::new(Op::DefineGlobal, DType::F32, [], arg)
}

/// Draws a target, and returns the name of that which it is based on.
pub(crate) fn target(draw: &mut Draw) -> (&'static str, Target) {
    let name =
        draw.pick(&["plain", "loops", "vectors", "groups", "short-vectors", "llvm", "ptx", "wgsl"]);
    let mut thresholds = draw.pick(&[Thresholds::USUAL, Thresholds::SMALL]);
    if draw.one_in(2) {
        let additions_max = draw.pick(&[8, 300]);
        thresholds.accumulator_additions = 4 + draw.below(additions_max) as i64;
    }
    let named = Target::of(name);
    let mulacc = !draw.one_in(4);
    let target = Target {
        thresholds,
        mulacc,
        fma: mulacc && named.fma,
        unsupported: if draw.one_in(4) { FUNCTIONS } else { named.unsupported },
        ..named
    };
    (name, target)
}

/// Draws the options with which a tree is lowered.
pub(crate) fn options(draw: &mut Draw) -> Options {
    let mut options = Options::default();
    options.rewrite.mode = draw.pick(&[Mode::Default, Mode::Strict]);
    options.opts = match draw.below(3) {
        0 => Strategy::None,
        1 => Strategy::Heuristic,
        _ => Strategy::Drawn { seed: draw.bits(), limit: 5 },
    };
    options
}

fn check(drawn: &Drawn, tree: &UOp, draw: &mut Draw) -> Result<(), String> {
    let (name, target) = target(draw);
    let options = options(draw);
    let thresholds = target.thresholds;
    let expected = drawn.naive();
    let mut memories = drawn.memories();
    crate::catch(|| interpret(tree, &mut memories))??;
    compare(&memories[0], &expected).map_err(|problem| format!("the tree: {problem}"))?;
    match crate::catch(|| lower(tree, &target, &options, &mut Trace::default()))? {
        Ok(kernel) => {
            check_ops(&kernel, &target).map_err(|op| format!("for {name}: {op}\n{}", *kernel))?;
            let mut memories = drawn.memories();
            gradiff_eval::linear::run(&kernel, &mut memories)?;
            compare(&memories[0], &expected)
                .map_err(|problem| format!("for {name}: {problem}\n{}", *kernel))?;
        }
        Err(error) => refused(&error, drawn.loops()).map_err(|why| format!("for {name}, {why}"))?,
    }
    let judge = |found: &[Elements]| compare(&found[0], &expected);
    lowering::check(tree, &target, &options, &drawn.memories(), &judge, draw)
        .map_err(|problem| format!("for {name}, {problem}"))?;
    let kernels = match stages(tree, &target, &options) {
        Ok(stages) => stages.graphs,
        Err(error) => {
            return refused(&error, drawn.loops()).map_err(|why| format!("for {name}, {why}"));
        }
    };
    if options.rewrite.mode != Mode::Strict {
        let (_, divided) = &kernels[lowering::pass("cascade")?];
        check_additions(divided, &thresholds)?;
    }
    let mut levels: Vec<UOp> = kernels.into_iter().map(|(_, kernel)| kernel).collect();
    levels.push(tree.clone());
    check_mixed(tree, &levels, drawn)?;
    check_unscheduled(&levels, draw)?;
    for _ in 0..DAMAGED {
        check_damaged(&levels, drawn, draw, &target, &options)?;
    }
    Ok(())
}

/// Judges a refusal of a tree that has so many loops if no axes merge. Only one because of too many
/// loops is no fault of the engine.
pub(crate) fn refused(error: &Error, loops: usize) -> Result<(), String> {
    match error {
        Error::TooManyLoops(_) if LOOPS < loops => Ok(()),
        error => Err(format!("it is refused: {error}")),
    }
}

/// Checks that the kernel has only ops that the target supports.
fn check_ops(kernel: &Linear, target: &Target) -> Result<(), String> {
    let is_supported = |uop: &&Instruction| match uop.op {
        Op::MulAcc => target.mulacc,
        op => !target.unsupported.contains(&(op, uop.dtype)),
    };
    match kernel.uops.iter().find(|uop| !is_supported(uop)) {
        Some(uop) => Err(format!("the target does not support {} of {}", uop.op, uop.dtype)),
        None => Ok(()),
    }
}

/// Checks that no accumulator of the kernel takes more additions than the thresholds allow, if
/// enough loops are left to divide its sum.
fn check_additions(kernel: &UOp, thresholds: &Thresholds) -> Result<(), String> {
    let size = |range: &UOp| match range.op() {
        Op::Range => range.src()[0].as_int().unwrap_or(1),
        _ => 1,
    };
    let nodes = kernel.toposort();
    // A remainder takes as many loops as the sum has.
    if LOOPS - 8 < nodes.iter().filter(|node| node.op() == Op::Range).count() {
        return Ok(());
    }
    for node in nodes.iter().filter(|node| node.op() == Op::Reduce) {
        let additions: i128 = node.src()[1..].iter().map(size).product();
        if i128::from(thresholds.accumulator_additions) < additions {
            let limit = thresholds.accumulator_additions;
            return Err(format!(
                "an accumulator takes {additions} additions, but at most {limit} are allowed"
            ));
        }
    }
    Ok(())
}

/// Compares sums. Their terms are powers of two with exponents from -2 to 2, times integers: a
/// power of two with an integer exponent is exact, whether `exp2` is a function or a polynomial,
/// whose remainder is 0. Multiples of 1/4 below 2^22 are exact in f32, and so is any order of
/// addition. A term that is left out or added twice changes a sum by 1/4 or more.
fn compare(found: &Elements, expected: &[f64]) -> Result<(), String> {
    for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
        let value = found.and_then(scalar::to_float);
        let is_near = |value: f64| (value - expected).abs() < 0.125;
        if !value.is_some_and(is_near) {
            return Err(format!("element {at} is {value:?}, not {expected}"));
        }
    }
    Ok(())
}

/// The graph with each node replaced for which `change` gives another one.
pub(crate) fn replaced(root: &UOp, change: &dyn Fn(&UOp, &UOp) -> Option<UOp>) -> UOp {
    let mut new: HashMap<UOp, UOp> = HashMap::new();
    for node in root.toposort() {
        let rebuilt = node.with_src(node.src().iter().map(|source| new[source].clone()));
        let rebuilt = change(&node, &rebuilt).unwrap_or(rebuilt);
        new.insert(node, rebuilt);
    }
    new[root].clone()
}

/// Checks that a tree is refused if it reduces, by axes, a value that varies along ranges: seen
/// through a view, that has no meaning.
fn check_mixed(tree: &UOp, levels: &[UOp], drawn: &Drawn) -> Result<(), String> {
    let has = |node: &UOp, op: Op| node.toposort().iter().any(|inner| inner.op() == op);
    let ranged = levels
        .iter()
        .flat_map(UOp::toposort)
        .find(|node| node.op() == Op::Load && has(node, Op::Range) && !has(node, Op::Reduce));
    let is_broadcast = |node: &UOp| node.op() == Op::View && node.src()[0].op() == Op::ReduceAxis;
    let (Some(ranged), true) = (ranged, tree.toposort().iter().any(is_broadcast)) else {
        return Ok(());
    };
    let mixed = replaced(tree, &|old, new| {
        (old.op() == Op::ReduceAxis).then(|| new.with_src([ranged.clone()]))
    });
    let mut memories = drawn.memories();
    match crate::catch(|| interpret(&mixed, &mut memories))? {
        Err(_) => Ok(()),
        Ok(()) => {
            Err(format!("ranges below a reduction of axes are accepted:\n{}", mixed.to_text()))
        }
    }
}

/// Checks that the scheduler refuses a node of a kernel, which is not of the tensor level, and an
/// op over it.
fn check_unscheduled(levels: &[UOp], draw: &mut Draw) -> Result<(), String> {
    let nodes = draw.pick(&levels.iter().collect::<Vec<_>>()).toposort();
    let node = nodes[draw.below(nodes.len())].clone();
    let number = node.dtype().is_float() || node.dtype().is_int();
    let output = match draw.below(3) {
        0 if number => UOp::unary(Op::Neg, node.dtype(), node.clone()),
        1 if number => UOp::binary(Op::Add, node.clone(), node.clone()),
        _ => node.clone(),
    };
    let mut options = schedule::Options::default();
    (options.fuse, options.merge_views) = (draw.one_in(2), draw.one_in(2));
    let scheduled =
        crate::catch(|| schedule::schedule(std::slice::from_ref(&output), &options).is_ok());
    let is_tensor = output.shape().is_some() && output.dtype() != DType::Void;
    let is_accepted = crate::catch(|| gradiff::Tensor::from_uop(output.clone()).is_ok())?;
    if is_accepted && !is_tensor {
        return Err(format!("it is accepted as a tensor:\n{}", output.to_text()));
    }
    match scheduled
        .map_err(|panic| format!("{panic} when it is scheduled:\n{}", output.to_text()))?
    {
        true if !is_tensor => Err(format!("it is scheduled:\n{}", output.to_text())),
        _ => Ok(()),
    }
}

/// Replaces one source by another node, of the same level or of any, and checks that every pass
/// refuses the graph or handles it without a panic.
fn check_damaged(
    levels: &[UOp],
    drawn: &Drawn,
    draw: &mut Draw,
    target: &Target,
    options: &Options,
) -> Result<(), String> {
    let root = draw.pick(&levels.iter().collect::<Vec<_>>());
    let donor = if draw.one_in(2) { root } else { draw.pick(&levels.iter().collect::<Vec<_>>()) };
    let (nodes, donors) = (root.toposort(), donor.toposort());
    let spoilt = nodes[draw.below(nodes.len())].clone();
    if spoilt.src().is_empty() {
        return Ok(());
    }
    let number = draw.below(spoilt.src().len());
    let old = spoilt.src()[number].clone();
    let is_like = |node: &&UOp| node.dtype() == old.dtype();
    let alike: Vec<UOp> = donors.iter().filter(is_like).cloned().collect();
    let source = match draw.below(5) {
        // Ends and numbers that are too large for anything of this size.
        0 if old.dtype().is_int() => {
            let huge = draw.pick(&[i64::MAX.into(), i64::MIN.into(), 1i128 << 40, -1, 1 << 31]);
            UOp::constant(Constant::int(old.dtype(), huge))
        }
        // Another array, mostly with as many elements.
        1 if old.op() == Op::DefineGlobal => match old.arg() {
            Arg::Global(array) if !draw.one_in(4) => {
                global(draw.below(3), array.size_elements as usize)
            }
            _ => global(draw.below(3), 1 + draw.below(40)),
        },
        1..=3 if !alike.is_empty() => alike[draw.below(alike.len())].clone(),
        _ => donors[draw.below(donors.len())].clone(),
    };
    let damaged = crate::catch(|| {
        replaced(root, &|old, new| {
            (*old == spoilt).then(|| {
                let mut src: Vec<UOp> = new.src().to_vec();
                src[number] = source.clone();
                new.with_src(src)
            })
        })
    });
    // Building a malformed node may panic.
    let Ok(damaged) = damaged else { return Ok(()) };
    let report = |problem: String| format!("{problem} on the damaged\n{}", damaged.to_text());
    let mut memories = drawn.memories();
    let found = crate::catch(|| interpret(&damaged, &mut memories)).map_err(report)?;
    if found.is_ok() && !reductions_are_over_ranges(&damaged) {
        return Err(report("a reduction over a node that is not a range is accepted".to_string()));
    }
    let lowered = crate::catch(|| lower(&damaged, target, options, &mut Trace::default()));
    if lowered.map_err(report)?.is_ok() && !slots_differ(&damaged) {
        return Err(report("two arrays of one slot are lowered".to_string()));
    }
    crate::catch(|| linearize(&damaged, "damaged".to_owned())).map_err(report)?.ok();
    damaged_text(&damaged.to_text(), draw)
}

/// Checks that the text of a graph without buffers reads back as the same graph.
pub(crate) fn reads_back(graph: &UOp) -> Result<(), String> {
    let text = graph.to_text();
    let problem = match crate::catch(|| parse_text(&text))? {
        Ok(again) if again == *graph => return Ok(()),
        Ok(_) => "another graph".to_string(),
        Err(error) => error.to_string(),
    };
    Err(format!("its text reads back as {problem}"))
}

/// Damages the text of a graph: it is refused with a message, or its graph has a text that reads
/// back as the same graph.
pub(crate) fn damaged_text(text: &str, draw: &mut Draw) -> Result<(), String> {
    let mut damaged = crate::checks::listing::damaged(text, draw);
    if draw.one_in(2) {
        // A part of a view or of a buffer, of which most lines have none.
        for (part, others) in VIEW_PARTS.iter().chain(&BUFFER_PARTS) {
            if draw.one_in(3) {
                damaged = damaged.replacen(part, draw.pick(others), 1);
            }
        }
    }
    let report = |problem: String| format!("{problem} at the damaged text\n{damaged}");
    match crate::catch(|| parse_text(&damaged)).map_err(report)? {
        Ok(graph) => {
            let is_sound = |node: &UOp| match node.arg() {
                Arg::Buffer(buffer) => buffer.dtype() != DType::Void && 0 <= buffer.size_elements(),
                _ => true,
            };
            if !graph.toposort().iter().all(is_sound) {
                return Err(report("a buffer that cannot be is read".to_string()));
            }
            // Parsing makes new buffers, so that only the texts are the same.
            let text = graph.to_text();
            let again = crate::catch(|| parse_text(&text)).map_err(report)?;
            if again.as_ref().is_ok_and(|again| again.to_text() == text) {
                return Ok(());
            }
            Err(report(format!("it reads back as {again:?}")))
        }
        Err(error) if error.problem.is_empty() => Err(report("no message".to_string())),
        Err(_) => Ok(()),
    }
}

/// Parts of the text of a buffer, and texts that replace them.
const BUFFER_PARTS: [(&str, &[&str]); 3] = [
    ("#0 ", &["#0 -", "0 ", "#1 ", "#-1 ", "# "]),
    ("buffer f32", &["buffer void"]),
    ("buffer u8", &["buffer void"]),
];

/// Parts of the text of a view, and texts that replace them.
const VIEW_PARTS: [(&str, &[&str]); 6] = [
    ("shape=(", &["shape=", "shape=(3, ", "shap=("]),
    ("strides=(", &["strides=(1, ", "strides=", "strides=(9223372036854775808, "]),
    ("offset=", &["offset=-", "offset=x", "ofset="]),
    (
        "mask=None",
        &["mask=((0, 1),)", "mask=((0, 99),)", "mask=((-1, 1),)", "mask=((2, 1),)", "mask="],
    ),
    ("mask=((0, ", &["mask=((-1, ", "mask=((0, 1), (0, ", "mask=((99, "]),
    ("contiguous=", &["contiguous", "contiguous=x"]),
];

/// Returns whether the arrays of a kernel have different slots.
fn slots_differ(root: &UOp) -> bool {
    let nodes = root.toposort();
    let slots = nodes.iter().filter_map(|node| match node.arg() {
        Arg::Global(array) if node.op() == Op::DefineGlobal => Some(array.slot),
        _ => None,
    });
    let mut slots: Vec<usize> = slots.collect();
    slots.sort_unstable();
    slots.windows(2).all(|pair| pair[0] != pair[1])
}

/// Returns whether each reduction of a kernel is over ranges that differ.
fn reductions_are_over_ranges(root: &UOp) -> bool {
    root.toposort().iter().filter(|node| node.op() == Op::Reduce).all(|node| {
        let ranges = &node.src()[1..];
        let is_new = |(at, range): (usize, &UOp)| !ranges[..at].contains(range);
        ranges.iter().all(|range| range.op() == Op::Range) && ranges.iter().enumerate().all(is_new)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drawn_trees_agree_with_a_naive_evaluation() {
        check_trees(0, 300).unwrap_or_else(|problem| panic!("{problem}"));
    }

    #[test]
    fn a_sum_without_a_term_is_noticed() {
        let float = |value: f64| vec![scalar::float(DType::F32, value)];
        assert_eq!(compare(&float(975.0), &[975.0]), Ok(()));
        for wrong in [974.5, 975.25, f64::NAN] {
            assert!(compare(&float(wrong), &[975.0]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn trees_are_refused_for_too_many_loops_alone() {
        let many = Error::TooManyLoops(LOOPS + 1);
        assert!(refused(&many, LOOPS + 1).is_ok() && refused(&many, LOOPS).is_err());
        assert!(refused(&Error::Malformed("no tracker".to_string()), LOOPS + 1).is_err());
    }
}
