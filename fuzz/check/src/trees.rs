//! Drawn kernel trees against a naive evaluation, and damaged ones, which must be refused without a
//! panic.
//!
//! Programs have few axes, and their schedule merges most of them. Here trees have up to seventy
//! axes, permuted in each operand so that they do not merge, and up to seventy reductions, more
//! than a kernel may have loops: each pass is met near its limits. The naive evaluation visits each
//! element of the whole shape, by its own count of places.

use std::collections::HashMap;

use gradiff::UOp;
use gradiff::graph::{Arg, Constant, DType, Dims, Global, Op, Thresholds};
use gradiff::kernel::{Options, Strategy, Target, interpret, linearize, lower, stages};
use gradiff::rewrite::{Mode, Trace};
use gradiff::schedule;
use gradiff::view::ShapeTracker;

use crate::calls::Draw;
use crate::scalar;
use crate::stages::Elements;

/// The words that reports of this check begin with.
const SAID: &str = "kernel tree";

/// Axes of more than one element, at most: each has two, where there are many.
const LONG_MOST: usize = 12;
/// Elements of the whole shape, at most, times the folds.
const ELEMENTS: usize = 1200;
/// Loops that a kernel may have at least.
const LOOPS: usize = 64;
/// Sums of choices for each drawn tree.
const SUMS: usize = 4;
/// Damaged trees for each drawn one.
const DAMAGED: usize = 3;

/// A reduction: the operands of the product that is summed, and of the product beside the sum, which
/// is the same, or nearly: the arrays are the same, read in another order.
struct Reduction {
    operands: Vec<Operand>,
    beside: Vec<Operand>,
}

/// An operand: which axis of the whole shape each of its own axes is, and its elements. Along axis
/// `padded.0` of its own, `padded.1` zeros stand before them and `padded.2` behind.
#[derive(Clone)]
struct Operand {
    order: Vec<usize>,
    /// Own axes that run backwards.
    flipped: Vec<bool>,
    padded: (usize, usize, usize),
    elements: Vec<f64>,
}

impl Operand {
    /// The sizes of the array, of those of the whole shape.
    fn stored(&self, sizes: &[usize]) -> Vec<usize> {
        let (axis, before, behind) = self.padded;
        let mut stored: Vec<usize> = self.order.iter().map(|axis| sizes[*axis]).collect();
        if let Some(size) = stored.get_mut(axis) {
            *size -= before + behind;
        }
        stored
    }

    /// The same array, backwards along another axis or with two of its axes exchanged.
    fn near(&self, sizes: &[usize], draw: &mut Draw) -> Operand {
        let mut near = self.clone();
        let [x, y] = [0, 1].map(|_| draw.below(self.order.len()));
        let is_free = |own: usize| own != self.padded.0;
        if x != y && sizes[self.order[x]] == sizes[self.order[y]] && is_free(x) && is_free(y) {
            near.order.swap(x, y);
        } else {
            near.flipped[x] ^= true;
        }
        near
    }

    /// The element at coordinates of the whole shape.
    fn element(&self, at: &[usize], sizes: &[usize]) -> f64 {
        let stored = self.stored(sizes);
        let mut index = 0;
        for (own, axis) in self.order.iter().enumerate() {
            let mut place =
                if self.flipped[own] { sizes[*axis] - 1 - at[*axis] } else { at[*axis] };
            if own == self.padded.0 {
                let inside = self.padded.1..self.padded.1 + stored[own];
                if !inside.contains(&place) {
                    return 0.0;
                }
                place -= self.padded.1;
            }
            index = index * stored[own] + place;
        }
        self.elements[index]
    }
}

/// A tree: what is stored is the sum, over the reductions, of the sum over axes of a product of
/// operands, with the product itself beside it or not.
struct Drawn {
    sizes: Vec<usize>,
    reduced: Vec<usize>,
    reductions: Vec<Reduction>,
    /// Whether the sums are spread over the reduced axes again, and each adds its product.
    is_spread: bool,
}

/// Draws trees from a seed, lowers each for a target and compares what it computes with the naive
/// evaluation; damages what passes make of it.
///
/// # Errors
/// The first tree that is refused, panics or computes something else, as text.
pub fn check_trees(seed: u64, count: u64) -> Result<(), String> {
    for number in 0..count {
        let mut draw = Draw::new(seed.wrapping_add(number));
        let drawn = Drawn::draw(&mut draw);
        let tree = drawn.tree();
        let told = |what: String| format!("{SAID}: {what} of\n{}", tree.to_text());
        check(&drawn, &tree, &mut draw).map_err(told)?;
        (0..SUMS).try_for_each(|_| crate::sums::check(&mut draw))?;
    }
    Ok(())
}

impl Drawn {
    fn draw(draw: &mut Draw) -> Drawn {
        let (rank, long) = match draw.below(4) {
            0 | 1 => (1 + draw.below(5), 5),
            2 => (LONG_MOST + draw.below(4), LONG_MOST),
            _ => (60 + draw.below(10), 6),
        };
        let mut sizes = vec![1; rank];
        for _ in 0..long {
            let axis = draw.below(rank);
            sizes[axis] = if rank <= 5 { 1 + draw.below(4) } else { 2 };
        }
        // Sums that are divided have sizes without a suitable divisor as well.
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
        // Many folds are of few elements.
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
            let mut beside = operands.clone();
            if draw.one_in(3) {
                let at = draw.below(beside.len());
                beside[at] = beside[at].near(&sizes, draw);
            }
            Reduction { operands, beside }
        });
        let reductions = reductions.collect();
        Drawn { reductions, reduced, is_spread: draw.one_in(2), sizes }
    }

    /// The shape of what is stored.
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
            operand.order.iter().enumerate().for_each(|(own, axis)| back[*axis] = own);
            let (padded, before, behind) = operand.padded;
            let amount =
                |axis| if axis == padded { (before as i64, behind as i64) } else { (0, 0) };
            let amounts: Vec<(i64, i64)> = (0..shape.len()).map(amount).collect();
            let tracker = ShapeTracker::from_shape(&dims(&shape)).expect("a small shape");
            let tracker = tracker.pad(&amounts).expect("a few more");
            let tracker = tracker.flip(&operand.flipped).expect("a flag for each axis");
            let tracker = tracker.permute(&back).expect("an order of all axes");
            let array = global(slot, operand.elements.len());
            UOp::new(Op::Load, DType::F32, [array], Arg::View(tracker))
        };
        let product = |operands: &[Operand], slot: usize| {
            let loads = operands.iter().zip(slot..).map(|(operand, slot)| load(operand, slot));
            let loads: Vec<UOp> = loads.collect();
            let value = UOp::unary(Op::Exp2, DType::F32, loads[0].clone());
            loads[1..].iter().fold(value, |x, y| UOp::binary(Op::Mul, x, y.clone()))
        };
        let mut slot = 1;
        let reduction = |reduction: &Reduction| {
            let value = product(&reduction.operands, slot);
            let beside = product(&reduction.beside, slot);
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
            UOp::binary(Op::Add, spread, beside)
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

    /// What is stored, element by element.
    fn naive(&self) -> Vec<f64> {
        let (shape, whole) = (self.stored(), self.sizes.iter().product::<usize>());
        // Coordinates of an element of the whole shape.
        let coordinates = |mut at: usize| -> Vec<usize> {
            let mut found = vec![0; self.sizes.len()];
            for axis in (0..self.sizes.len()).rev() {
                found[axis] = at % self.sizes[axis];
                at /= self.sizes[axis];
            }
            found
        };
        let place = |at: &[usize], shape: &[usize]| {
            at.iter().zip(shape).fold(0, |place, (at, size)| place * size + at % size)
        };
        let all: Vec<Vec<usize>> = (0..whole).map(coordinates).collect();
        let mut narrow = self.sizes.clone();
        self.reduced.iter().for_each(|axis| narrow[*axis] = 1);
        let mut stored = vec![0.0; shape.iter().product()];
        for Reduction { operands, beside } in &self.reductions {
            let value = |operands: &[Operand], at: &Vec<usize>| {
                let of = |operand: &Operand| operand.element(at, &self.sizes);
                operands[1..].iter().fold(of(&operands[0]).exp2(), |x, y| x * of(y))
            };
            let mut sums = vec![0.0; narrow.iter().product()];
            all.iter().for_each(|at| sums[place(at, &narrow)] += value(operands, at));
            if self.reduced.is_empty() || !self.is_spread {
                stored.iter_mut().zip(&sums).for_each(|(stored, sum)| *stored += sum);
            } else {
                all.iter().for_each(|at| {
                    stored[place(at, &shape)] += sums[place(at, &narrow)] + value(beside, at)
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

    /// Loops at most, if no axes merge.
    fn loops(&self) -> usize {
        let long = self.sizes.iter().filter(|size| 1 < **size).count();
        long * (1 + self.reductions.len())
    }
}

fn dims(shape: &[usize]) -> Dims {
    shape.iter().map(|size| *size as i64).collect()
}

fn global(slot: usize, size: usize) -> UOp {
    let arg = Arg::Global(Global { slot, size_elements: size as i64 });
    UOp::new(Op::DefineGlobal, DType::F32, [], arg)
}

fn check(drawn: &Drawn, tree: &UOp, draw: &mut Draw) -> Result<(), String> {
    let name = draw.pick(&["plain", "loops", "vectors", "groups", "jit", "llvm", "ptx", "wgsl"]);
    let mut thresholds = draw.pick(&[Thresholds::USUAL, Thresholds::SMALL]);
    if draw.one_in(2) {
        thresholds.accumulator_additions = 4 + draw.below(300) as i64;
    }
    let target = Target { thresholds, ..Target::of(name) };
    let mut options = Options::default();
    options.rewrite.mode = draw.pick(&[Mode::Default, Mode::Strict]);
    options.opts = match draw.below(3) {
        0 => Strategy::None,
        1 => Strategy::Heuristic,
        _ => Strategy::Drawn { seed: draw.bits(), limit: 5 },
    };
    let expected = drawn.naive();
    let mut memories = drawn.memories();
    crate::catch(|| interpret(tree, &mut memories))?.map_err(|error| error.to_string())?;
    compare(&memories[0], &expected).map_err(|what| format!("the tree: {what}"))?;
    match crate::catch(|| lower(tree, &target, &options, &mut Trace::default()))? {
        Ok(kernel) => {
            let mut memories = drawn.memories();
            crate::linear::run(&kernel, &mut memories)?;
            compare(&memories[0], &expected)
                .map_err(|what| format!("for {name}: {what}\n{}", *kernel))?;
        }
        // A limit of loops is no fault of the engine.
        Err(_) if LOOPS < drawn.loops() => {}
        Err(error) => return Err(format!("for {name}: it is refused: {error}")),
    }
    let Ok(stages) = stages(tree, &target, &options) else { return Ok(()) };
    let kernels = stages.graphs;
    if options.rewrite.mode != Mode::Strict {
        let after = kernels.iter().skip_while(|(stage, _)| *stage != "cascade");
        after.take(1).try_for_each(|(_, kernel)| bounded(kernel, &thresholds))?;
    }
    let mut levels: Vec<UOp> = kernels.into_iter().map(|(_, kernel)| kernel).collect();
    levels.push(tree.clone());
    mixed(tree, &levels, drawn)?;
    unscheduled(&levels, draw)?;
    for _ in 0..DAMAGED {
        damaged(&levels, drawn, draw, &target, &options)?;
    }
    Ok(())
}

/// No accumulator of the kernel takes more additions than the thresholds say, if there are loops
/// left by which its sum could be divided.
fn bounded(kernel: &UOp, thresholds: &Thresholds) -> Result<(), String> {
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
            return Err(format!("an accumulator takes {additions} additions, not {limit}"));
        }
    }
    Ok(())
}

/// Sums of a few thousand small numbers, whatever their order.
fn compare(found: &Elements, expected: &[f64]) -> Result<(), String> {
    for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
        let value = found.and_then(scalar::to_float);
        let near = |value: f64| (value - expected).abs() <= 1e-3 * (1.0 + expected.abs());
        if !value.is_some_and(near) {
            return Err(format!("element {at} is {value:?}, not {expected}"));
        }
    }
    Ok(())
}

/// The graph with each node exchanged that `change` has another one for.
fn exchanged(root: &UOp, change: &dyn Fn(&UOp, &UOp) -> Option<UOp>) -> UOp {
    let mut new: HashMap<UOp, UOp> = HashMap::new();
    for node in root.toposort() {
        let with = node.with_src(node.src().iter().map(|source| new[source].clone()));
        let with = change(&node, &with).unwrap_or(with);
        new.insert(node, with);
    }
    new[root].clone()
}

/// A reduction of what varies along ranges is no tree: where it is seen through a view, it has no
/// meaning.
fn mixed(tree: &UOp, levels: &[UOp], drawn: &Drawn) -> Result<(), String> {
    let has = |node: &UOp, op: Op| node.toposort().iter().any(|inner| inner.op() == op);
    let ranged = levels
        .iter()
        .flat_map(UOp::toposort)
        .find(|node| node.op() == Op::Load && has(node, Op::Range) && !has(node, Op::Reduce));
    let is_fold = |node: &UOp| node.op() == Op::View && node.src()[0].op() == Op::ReduceAxis;
    let (Some(ranged), true) = (ranged, tree.toposort().iter().any(is_fold)) else { return Ok(()) };
    let mixed = exchanged(tree, &|old, new| {
        (old.op() == Op::ReduceAxis).then(|| new.with_src([ranged.clone()]))
    });
    let mut memories = drawn.memories();
    match crate::catch(|| interpret(&mixed, &mut memories))? {
        Err(_) => Ok(()),
        Ok(()) => {
            Err(format!("ranges below a reduction of axes have a meaning:\n{}", mixed.to_text()))
        }
    }
}

/// A node of a kernel is none of the tensor level: the scheduler refuses it, or what is made of it.
fn unscheduled(levels: &[UOp], draw: &mut Draw) -> Result<(), String> {
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
    let taken = crate::catch(|| gradiff::Tensor::from_uop(output.clone()).is_ok())?;
    if taken && !is_tensor {
        return Err(format!("it is taken for a tensor:\n{}", output.to_text()));
    }
    match scheduled
        .map_err(|panic| format!("{panic} where it is scheduled:\n{}", output.to_text()))?
    {
        true if !is_tensor => Err(format!("it is scheduled:\n{}", output.to_text())),
        _ => Ok(()),
    }
}

/// One source is another node, of the same level or of any.
fn damaged(
    levels: &[UOp],
    drawn: &Drawn,
    draw: &mut Draw,
    target: &Target,
    options: &Options,
) -> Result<(), String> {
    let root = draw.pick(&levels.iter().collect::<Vec<_>>());
    let other = if draw.one_in(2) { root } else { draw.pick(&levels.iter().collect::<Vec<_>>()) };
    let (nodes, others) = (root.toposort(), other.toposort());
    let spoilt = nodes[draw.below(nodes.len())].clone();
    if spoilt.src().is_empty() {
        return Ok(());
    }
    let number = draw.below(spoilt.src().len());
    let old = spoilt.src()[number].clone();
    let is_like = |node: &&UOp| node.dtype() == old.dtype();
    let alike: Vec<UOp> = others.iter().filter(is_like).cloned().collect();
    let source = match draw.below(5) {
        // Ends and numbers that nothing of this size has.
        0 if old.dtype().is_int() => {
            let huge = draw.pick(&[i64::MAX.into(), i64::MIN.into(), 1i128 << 40, -1, 1 << 31]);
            UOp::constant(Constant::int(old.dtype(), huge))
        }
        // An array in the place of another one, mostly with as many elements.
        1 if old.op() == Op::DefineGlobal => match old.arg() {
            Arg::Global(array) if !draw.one_in(4) => {
                global(draw.below(3), array.size_elements as usize)
            }
            _ => global(draw.below(3), 1 + draw.below(40)),
        },
        1..=3 if !alike.is_empty() => alike[draw.below(alike.len())].clone(),
        _ => others[draw.below(others.len())].clone(),
    };
    let built = crate::catch(|| {
        exchanged(root, &|old, new| {
            (*old == spoilt).then(|| {
                let mut src: Vec<UOp> = new.src().to_vec();
                src[number] = source.clone();
                new.with_src(src)
            })
        })
    });
    // A node that is none is refused where it is made.
    let Ok(built) = built else { return Ok(()) };
    let told = |problem: String| format!("{problem} on the damaged\n{}", built.to_text());
    let mut memories = drawn.memories();
    let found = crate::catch(|| interpret(&built, &mut memories)).map_err(told)?;
    if found.is_ok() && !reductions_are_over_ranges(&built) {
        return Err(told("a reduction over what is no range has a meaning".to_string()));
    }
    let lowered = crate::catch(|| lower(&built, target, options, &mut Trace::default()));
    if lowered.map_err(told)?.is_ok() && !slots_differ(&built) {
        return Err(told("two arrays of one slot are lowered".to_string()));
    }
    crate::catch(|| linearize(&built, "damaged".to_owned())).map_err(told)?.ok();
    Ok(())
}

/// Whether the arrays of a kernel have slots of their own.
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

/// Whether each reduction of a kernel is over ranges, each of them once.
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
    fn drawn_trees_mean_what_a_naive_evaluation_says() {
        check_trees(0, 600).unwrap_or_else(|problem| panic!("{problem}"));
    }
}
