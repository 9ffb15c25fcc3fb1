//! Kernel trees of any form: reductions in reductions, parts that several of them share, views that
//! reverse, cut, pad and broadcast their arrays, axes without elements.
//!
//! In: draws. Out: the first tree whose kernel has another value than the tree, which is evaluated
//! here element by element over the whole shape. All values are integers small enough that sums of
//! floats are exact in any order.

use gradiff::UOp;
use gradiff::graph::{Arg, Constant, DType, Dims, Global, Op, Target};
use gradiff::kernel::{Options, lower};
use gradiff::rewrite::Trace;
use gradiff::view::{Error, ShapeTracker};
use gradiff_eval::kernel::interpret;
use gradiff_eval::{Elements, scalar};

use crate::checks::calls::Draw;
use crate::checks::lowering;
use crate::checks::trees::{LOOPS, PREFIX, options, refused, target};

/// Largest absolute value of an element.
const VALUE_MAX: i64 = 1 << 20;
/// Number of elements of the whole shape beyond which further axes have size 2.
const ELEMENTS_MAX: usize = 400;
/// Maximum number of evaluations of leaves by a kernel.
const WORK_MAX: usize = 60_000;
/// Levels of ops of a tree.
const DEPTH: usize = 6;
/// One tree in this many computes the input of a reduction again.
const RECURRING_ONE_IN: usize = 8;
/// Chance of a size without elements, as one in so many trees.
const EMPTY_ONE_IN: usize = 8;

/// A node of the tree with its elements over the whole shape.
#[derive(Clone)]
struct Node {
    uop: UOp,
    elements: Vec<i64>,
    /// Number of leaves that are evaluated for each element.
    work: usize,
}

impl Node {
    fn bound(&self) -> i64 {
        self.elements.iter().map(|element| element.abs()).max().unwrap_or(0)
    }
}

/// A view in which the first elements of an axis follow each other again and again.
#[derive(Clone, Copy)]
struct Repeat {
    axis: usize,
    /// Number of elements of the axis before.
    period: usize,
    /// The element that is the first one.
    start: usize,
    /// True if it is cut from so many repetitions that their indices have 64 bits.
    is_wide: bool,
}

impl Repeat {
    /// Repeats the axis of a tracker until it has `size` elements.
    fn apply(self, tracker: &ShapeTracker, size: usize) -> Result<ShapeTracker, Error> {
        let Repeat { axis, period, start, is_wide } = self;
        let shape = tracker.shape();
        let count = if is_wide { 1 << 31 } else { (start + size).div_ceil(period) as i64 };
        let with = |sizes: &[i64]| [&shape[..axis], sizes, &shape[axis + 1..]].concat();
        let mut kept: Vec<(i64, i64)> = shape.iter().map(|size| (0, *size)).collect();
        kept[axis] = (start as i64, (start + size) as i64);
        tracker
            .reshape(&with(&[1, shape[axis]]))?
            .expand(&with(&[count, shape[axis]]))?
            .reshape(&with(&[count * shape[axis]]))?
            .shrink(&kept)
    }
}

/// A tree that is being drawn.
struct Builder<'a> {
    draw: &'a mut Draw,
    dtype: DType,
    sizes: Vec<usize>,
    /// The elements of each array after the output.
    arrays: Vec<Vec<i64>>,
    /// Nodes that may be used once more.
    nodes: Vec<Node>,
    /// Number of reduced axes of all reductions.
    reduced_count: usize,
}

/// A tree, its arrays before it runs, the arrays that it stores, each with its slot, and the
/// largest number of loops that it may have.
struct Drawn {
    tree: UOp,
    memories: Vec<Elements>,
    results: Vec<(usize, Elements)>,
    loops: usize,
}

/// Draws a tree, lowers it, and compares its kernel with the naive evaluation.
///
/// # Errors
/// The tree and what is wrong with it.
pub(crate) fn check(draw: &mut Draw) -> Result<(), String> {
    let drawn = if draw.one_in(RECURRING_ONE_IN) { recurring(draw) } else { Drawn::draw(draw) };
    let Drawn { tree, memories, results, loops } = drawn;
    judge(&tree, &memories, &results, loops, draw)
        .map_err(|problem| format!("{PREFIX}: {problem} of\n{}", tree.to_text()))
}

/// Checks that two nested reductions by one op, whose axes alternate, become one loop. The tree has
/// more axes than a kernel may have loops; it is lowered and does not run.
///
/// # Errors
/// The tree, which has too many loops or is refused.
pub(crate) fn check_turns(draw: &mut Draw) -> Result<(), String> {
    const TERMS: usize = 2;
    let each = LOOPS / TERMS + 1 + draw.below(7);
    let op = draw.pick(&[Op::Add, Op::Max]);
    let term = |number: usize| {
        let axes = number * each..(number + 1) * each;
        let sizes: Vec<i64> =
            (0..TERMS * each).map(|axis| 1 + i64::from(axes.contains(&axis))).collect();
        let tracker = ShapeTracker::from_shape(&sizes).expect("at most 2^39 elements");
        let load = [array(DType::I32, 1 + number, 1 << each)];
        let load = UOp::new(Op::Load, DType::I32, load, Arg::View(tracker));
        let reduced = |value: UOp, turn: usize| {
            let axes = axes.clone().filter(|axis| axis % 2 == turn).map(|axis| axis as i64);
            UOp::new(Op::ReduceAxis, DType::I32, [value], Arg::Reduce(op, axes.collect()))
        };
        reduced(reduced(load, 0), 1)
    };
    let value = UOp::binary(Op::Add, term(0), term(1));
    let tracker = ShapeTracker::from_shape(&[1; TERMS * LOOPS][..TERMS * each]);
    let stored = Arg::View(tracker.expect("a single element"));
    let store = UOp::new(Op::Store, DType::Void, [array(DType::I32, 0, 1), value], stored);
    let tree = UOp::new(Op::Sink, DType::Void, [store], Arg::None);
    let (target, options) = (Target::of("plain"), Options::default());
    let report = |problem: String| format!("{PREFIX}: {problem} of\n{}", tree.to_text());
    let kernel = crate::catch(|| lower(&tree, &target, &options, &mut Trace::default()))
        .map_err(report)?
        .map_err(|error| report(error.to_string()))?;
    let loops = kernel.uops.iter().filter(|uop| uop.op == Op::Range).count();
    let is_merged = loops <= TERMS;
    is_merged
        .then_some(())
        .ok_or_else(|| report(format!("{loops} loops, expected at most {TERMS},")))
}

/// Checks trees of about as many axes as a kernel may have loops, none of which can be merged.
/// Those of no more are lowered and have their value, and larger ones are refused. The leaves are
/// constants, so that no loop is left which a later pass could refuse.
///
/// # Errors
/// The tree, which has another value, is refused, or is not.
pub(crate) fn check_many(draw: &mut Draw) -> Result<(), String> {
    let count = LOOPS - 3 + draw.below(8);
    // A view has fewer than 2^63 elements: the axes are those of two terms, which may share one.
    let cut = count / 2 - 4 + draw.below(9);
    let common = draw.one_in(2).then(|| draw.below(cut));
    let second: Vec<usize> = common.into_iter().chain(cut..count).collect();
    let mut expected = 0;
    let terms = [(0..cut).collect(), second].map(|axes: Vec<usize>| {
        let sizes: Vec<i64> = (0..count).map(|axis| 1 + i64::from(axes.contains(&axis))).collect();
        let tracker = ShapeTracker::from_shape(&vec![1; count]).and_then(|x| x.expand(&sizes));
        let tracker = tracker.expect("at most 2^41 elements");
        let leaf = UOp::constant(constant(DType::I64, 1).expect("a number"));
        let leaf = UOp::new(Op::View, DType::I64, [leaf], Arg::View(tracker));
        let turn = draw.below(2);
        let is_outer = |axis: &usize| Some(*axis) != common && axis % 2 == turn;
        let (outer, inner): (Vec<usize>, Vec<usize>) = axes.into_iter().partition(is_outer);
        let sums_inner = draw.one_in(2);
        expected += 1i64 << if sums_inner { inner.len() } else { outer.len() };
        let reduced = |value: UOp, is_sum: bool, axes: &[usize]| {
            let axes: Dims = axes.iter().map(|axis| *axis as i64).collect();
            let op = if is_sum { Op::Add } else { Op::Max };
            UOp::new(Op::ReduceAxis, DType::I64, [value], Arg::Reduce(op, axes))
        };
        reduced(reduced(leaf, sums_inner, &inner), !sums_inner, &outer)
    });
    let [first, second] = terms;
    let value = UOp::binary(Op::Add, first, second);
    let tracker = ShapeTracker::from_shape(&vec![1; count]).expect("a single element");
    let stored = [array(DType::I64, 0, 1), value];
    let store = UOp::new(Op::Store, DType::Void, stored, Arg::View(tracker));
    let tree = UOp::new(Op::Sink, DType::Void, [store], Arg::None);
    let (target, options) = (Target::of("plain"), Options::default());
    let report = |problem: String| format!("{PREFIX}: {problem} of\n{}", tree.to_text());
    let lowered = crate::catch(|| lower(&tree, &target, &options, &mut Trace::default()));
    match lowered.map_err(report)? {
        Ok(kernel) if count <= LOOPS => {
            let mut found = vec![vec![None]];
            gradiff_eval::linear::run(&kernel, &mut found).map_err(report)?;
            compare(&found[0], &elements(DType::I64, &[expected])).map_err(report)
        }
        Err(gradiff::kernel::Error::TooManyLoops(_)) if LOOPS < count => Ok(()),
        found => {
            let found = found.map(|kernel| kernel.to_string());
            Err(report(format!("{count} axes that cannot be merged: {found:?},")))
        }
    }
}

/// A tree that adds the sum of `f(a[i], b[i])` over i to each `f(a[p], b[q])`, where p and q are
/// axes of the output. The value may be that of the reduction if p and q are the same axis.
fn recurring(draw: &mut Draw) -> Drawn {
    let dtype = draw.pick(&[DType::F32, DType::I32]);
    let size = 2 + draw.below(7);
    let whole = [size as i64; 3];
    let stored = [whole[0], whole[1], 1];
    let arrays: Vec<Vec<i64>> =
        (0..2).map(|_| (0..size).map(|_| draw.below(7) as i64 - 3).collect()).collect();
    let load = |slot: usize, axis: usize, shape: &[i64]| {
        let mut row = [1; 3];
        row[axis] = size as i64;
        let tracker = ShapeTracker::from_shape(&row).and_then(|row| row.expand(shape));
        let tracker = tracker.expect("the other axes have one element");
        UOp::new(Op::Load, dtype, [array(dtype, slot, size)], Arg::View(tracker))
    };
    // The function, for nodes and for their elements.
    let multiplies: Vec<bool> = (0..1 + draw.below(4)).map(|_| draw.one_in(2)).collect();
    let node = |x: UOp, y: UOp| {
        multiplies.iter().fold(UOp::binary(Op::Add, x.clone(), y.clone()), |value, multiplies| {
            match multiplies {
                true => UOp::binary(Op::Mul, value, y.clone()),
                false => UOp::binary(Op::Add, value, x.clone()),
            }
        })
    };
    let element = |x: i64, y: i64| {
        let next = |value, multiplies: &bool| if *multiplies { value * y } else { value + x };
        multiplies.iter().fold(x + y, next)
    };
    let (p, q) = (draw.below(2), draw.below(2));
    let row = node(load(1, 2, &whole), load(2, 2, &whole));
    let sum = UOp::new(Op::ReduceAxis, dtype, [row], Arg::Reduce(Op::Add, Dims::from_slice(&[2])));
    let again = node(load(1, p, &stored), load(2, q, &stored));
    let value = UOp::binary(Op::Add, again, sum);
    let total: i64 = (0..size).map(|at| element(arrays[0][at], arrays[1][at])).sum();
    let expected = (0..size * size).map(|at| {
        let counters = [at / size, at % size];
        total + element(arrays[0][counters[p]], arrays[1][counters[q]])
    });
    let expected: Vec<i64> = expected.collect();
    let tracker = ShapeTracker::from_shape(&stored).expect("a small shape");
    let store = [array(dtype, 0, size * size), value];
    let store = UOp::new(Op::Store, DType::Void, store, Arg::View(tracker));
    let mut memories = vec![vec![None; size * size]];
    memories.extend(arrays.iter().map(|values| elements(dtype, values)));
    Drawn {
        tree: UOp::new(Op::Sink, DType::Void, [store], Arg::None),
        memories,
        results: vec![(0, elements(dtype, &expected))],
        loops: whole.len(),
    }
}

impl Drawn {
    fn draw(draw: &mut Draw) -> Drawn {
        let rank = 1 + draw.below(4);
        let mut sizes = vec![1; rank];
        for axis in 0..rank {
            let rest: usize = sizes.iter().product();
            let mut size = draw.pick(&[1, 2, 3, 4, 4, 5, 7, 8, 16, 33, 64, 100]);
            // Loops of the same size are more often taken for each other.
            if 0 < axis && draw.one_in(2) {
                size = sizes[axis - 1];
            }
            sizes[axis] = if rest * size <= ELEMENTS_MAX { size } else { 2 };
        }
        if draw.one_in(EMPTY_ONE_IN) {
            sizes[draw.below(rank)] = 0;
        }
        let dtype = draw.pick(&[DType::F32, DType::F32, DType::I32]);
        let (arrays, nodes) = (Vec::new(), Vec::new());
        let mut builder = Builder { draw, dtype, sizes, arrays, nodes, reduced_count: 0 };
        let value = builder.node(DEPTH);
        let (value, stored, expected) = match builder.draw.one_in(2) {
            true => builder.reduced(&value).unwrap_or_else(|| builder.whole(&value)),
            false => builder.whole(&value),
        };
        builder.stores(&value, &stored, expected)
    }
}

/// Lowers a tree and compares the arrays of its kernel after it has run with those expected, each
/// with its slot. It has at most so many loops.
pub(crate) fn judge(
    tree: &UOp,
    memories: &[Elements],
    expected: &[(usize, Elements)],
    loops: usize,
    draw: &mut Draw,
) -> Result<(), String> {
    let (name, target) = target(draw);
    let options = options(draw);
    let mut found = memories.to_vec();
    crate::catch(|| interpret(tree, &mut found))??;
    let compare = |found: &[Elements]| {
        expected.iter().try_for_each(|(slot, expected)| compare(&found[*slot], expected))
    };
    compare(&found).map_err(|problem| format!("the tree: {problem}"))?;
    match crate::catch(|| lower(tree, &target, &options, &mut Trace::default()))? {
        Ok(kernel) => {
            let mut found = memories.to_vec();
            gradiff_eval::linear::run(&kernel, &mut found).and_then(|()| compare(&found)).map_err(
                |problem| {
                    let opts = &options.opts;
                    format!("for {name}, {opts:?}: {problem}\n{}", *kernel)
                },
            )?;
        }
        Err(error) => refused(&error, loops).map_err(|why| format!("for {name}, {why}"))?,
    }
    lowering::check(tree, &target, &options, memories, &compare, draw)
        .map_err(|problem| format!("for {name}, {problem}"))
}

fn compare(found: &Elements, expected: &Elements) -> Result<(), String> {
    let differs = |(found, expected): (&Option<Constant>, &Option<Constant>)| {
        let number = |value| scalar::to_float(value).or(scalar::to_int(value).map(|x| x as f64));
        let values = [found, expected].map(|value| value.and_then(number));
        values[0].is_none() || values[0] != values[1]
    };
    match found.iter().zip(expected).position(differs) {
        Some(at) => Err(format!("element {at} is {:?}, not {:?}", found[at], expected[at])),
        None => Ok(()),
    }
}

pub(crate) fn elements(dtype: DType, values: &[i64]) -> Elements {
    values.iter().map(|value| constant(dtype, *value)).collect()
}

pub(crate) fn constant(dtype: DType, value: i64) -> Option<Constant> {
    match dtype {
        DType::F32 => scalar::float(dtype, value as f64),
        _ => scalar::int(dtype, value.into()),
    }
}

pub(crate) fn array(dtype: DType, slot: usize, count: usize) -> UOp {
    let arg = Arg::Global(Global { slot, size_elements: count as i64 });
    UOp::new(Op::DefineGlobal, dtype, [], arg)
}

/// The coordinates of each element of a shape, in row-major order.
fn coordinates(sizes: &[usize]) -> Vec<Vec<usize>> {
    let mut coordinates = vec![Vec::new()];
    for size in sizes {
        let with = |head: &Vec<usize>| {
            (0..*size).map(|at| [&head[..], &[at]].concat()).collect::<Vec<_>>()
        };
        coordinates = coordinates.iter().flat_map(with).collect();
    }
    coordinates
}

fn position(at: &[usize], sizes: &[usize]) -> usize {
    at.iter().zip(sizes).fold(0, |position, (at, size)| position * size + at)
}

fn dims(sizes: &[usize]) -> Dims {
    sizes.iter().map(|size| *size as i64).collect()
}

impl Builder<'_> {
    /// The tree that stores a value of this shape: it may add the value to the array that it
    /// stores, and a second store may load the sum again.
    fn stores(&mut self, value: &UOp, stored: &Dims, values: Vec<i64>) -> Drawn {
        let (dtype, count) = (self.dtype, values.len());
        let tracker = ShapeTracker::from_shape(stored).expect("a small shape");
        let sum = || {
            let load = [array(dtype, 0, count)];
            let load = UOp::new(Op::Load, dtype, load, Arg::View(tracker.clone()));
            UOp::binary(Op::Add, load, value.clone())
        };
        let store = |slot: usize, value: UOp| {
            let src = [array(dtype, slot, count), value];
            UOp::new(Op::Store, DType::Void, src, Arg::View(tracker.clone()))
        };
        let (mut output, mut first, mut expected) =
            (vec![None; count], value.clone(), values.clone());
        if self.draw.one_in(3) {
            let before: Vec<i64> = (0..count).map(|_| self.draw.below(7) as i64 - 2).collect();
            expected.iter_mut().zip(&before).for_each(|(sum, before)| *sum += before);
            (output, first) = (elements(dtype, &before), sum());
        }
        let inputs = self.arrays.iter().map(|array| elements(dtype, array));
        let mut memories: Vec<Elements> = std::iter::once(output).chain(inputs).collect();
        let mut results = vec![(0, elements(dtype, &expected))];
        let mut stores = vec![store(0, first)];
        if self.draw.one_in(3) {
            let slot = memories.len();
            stores.push(store(slot, sum()));
            let sums: Vec<i64> = expected.iter().zip(&values).map(|(x, y)| x + y).collect();
            results.push((slot, elements(dtype, &sums)));
            memories.push(vec![None; count]);
        }
        let tree = UOp::new(Op::Sink, DType::Void, stores, Arg::None);
        let long = self.sizes.iter().filter(|size| 1 < **size).count();
        Drawn { tree, memories, results, loops: long + 2 * self.reduced_count }
    }

    /// A node of at most so many levels, which may be used once more.
    fn node(&mut self, depth: usize) -> Node {
        if depth == 0 || self.draw.one_in(8) {
            return self.leaf();
        }
        if !self.nodes.is_empty() && self.draw.one_in(3) {
            return self.nodes[self.draw.below(self.nodes.len())].clone();
        }
        let node = match self.draw.below(5) {
            0 | 1 => {
                let value = self.node(depth - 1);
                self.spread(&value).unwrap_or(value)
            }
            2 => {
                let value = self.node(depth - 1);
                let elements = value.elements.iter().map(|element| -element).collect();
                let uop = UOp::unary(Op::Neg, self.dtype, value.uop.clone());
                Node { uop, elements, work: value.work }
            }
            _ => {
                let (x, y) = (self.node(depth - 1), self.node(depth - 1));
                self.binary(&x, &y)
            }
        };
        let count: usize = self.sizes.iter().product();
        if WORK_MAX < count * node.work {
            return self.leaf();
        }
        self.nodes.push(node.clone());
        node
    }

    fn binary(&mut self, x: &Node, y: &Node) -> Node {
        let (bound_x, bound_y) = (x.bound(), y.bound());
        let op = match self.draw.below(4) {
            0 | 1 if bound_x * bound_y <= VALUE_MAX => Op::Mul,
            0..=2 if bound_x + bound_y <= VALUE_MAX => Op::Add,
            _ => Op::Max,
        };
        let apply = |(x, y): (&i64, &i64)| match op {
            Op::Mul => x * y,
            Op::Add => x + y,
            _ => *x.max(y),
        };
        let elements = x.elements.iter().zip(&y.elements).map(apply).collect();
        Node { uop: UOp::binary(op, x.uop.clone(), y.uop.clone()), elements, work: x.work + y.work }
    }

    /// A repetition of an axis, in some leaves.
    fn repeat(&mut self) -> Option<Repeat> {
        let axis = self.draw.below(self.sizes.len());
        if self.sizes[axis] < 2 || !self.draw.one_in(6) {
            return None;
        }
        let period = 1 + self.draw.below(self.sizes[axis] - 1);
        let start = self.draw.below(period);
        Some(Repeat { axis, period, start, is_wide: self.draw.one_in(2) })
    }

    /// A load of a new array, seen through a view that permutes, reverses, cuts, pads and
    /// broadcasts it, and through another view that repeats an axis; sometimes nothing of it is
    /// left.
    fn leaf(&mut self) -> Node {
        let rank = self.sizes.len();
        let mut order: Vec<usize> = (0..rank).collect();
        (1..rank).rev().for_each(|at| order.swap(at, self.draw.below(at + 1)));
        let flipped: Vec<bool> = (0..rank).map(|_| self.draw.one_in(4)).collect();
        let (mut cut, mut padded) = (vec![(0, 0); rank], vec![(0, 0); rank]);
        // Sizes of the array, of its view before padding, and before broadcasting.
        let (mut base, mut seen, mut shape) = (vec![0; rank], vec![0; rank], self.sizes.clone());
        let repeat = self.repeat();
        if let Some(Repeat { axis, period, .. }) = repeat {
            shape[axis] = period;
        }
        for axis in 0..rank {
            if self.draw.one_in(4) && repeat.is_none_or(|repeat| repeat.axis != axis) {
                shape[axis] = 1;
            }
            if self.draw.one_in(4) {
                let before = self.draw.below(shape[axis] + 1);
                padded[axis] = (before, self.draw.below(shape[axis] - before + 1));
            }
            seen[axis] = shape[axis] - padded[axis].0 - padded[axis].1;
            if self.draw.one_in(6) {
                cut[axis] = (self.draw.below(3), self.draw.below(3));
            }
            base[axis] = seen[axis] + cut[axis].0 + cut[axis].1;
        }
        let stored: Vec<usize> = order.iter().map(|axis| base[*axis]).collect();
        let count: usize = stored.iter().product();
        let values: Vec<i64> = (0..count).map(|_| self.draw.below(7) as i64 - 2).collect();
        let mut back = vec![0; rank];
        order.iter().enumerate().for_each(|(at, axis)| back[*axis] = at);
        let pairs = |pairs: &[(usize, usize)]| -> Vec<(i64, i64)> {
            pairs.iter().map(|(x, y)| (*x as i64, *y as i64)).collect()
        };
        let kept: Vec<(usize, usize)> =
            (0..rank).map(|axis| (cut[axis].0, cut[axis].0 + seen[axis])).collect();
        let tracker = ShapeTracker::from_shape(&dims(&stored))
            .and_then(|tracker| tracker.permute(&back))
            .and_then(|tracker| tracker.flip(&flipped))
            .and_then(|tracker| tracker.shrink(&pairs(&kept)))
            .and_then(|tracker| tracker.pad(&pairs(&padded)))
            .and_then(|tracker| match repeat {
                Some(repeat) => repeat.apply(&tracker, self.sizes[repeat.axis]),
                None => Ok(tracker),
            })
            .and_then(|tracker| tracker.expand(&dims(&self.sizes)))
            .expect("legal movements of a small shape");
        let element = |at: &Vec<usize>| {
            let mut from = vec![0; rank];
            for axis in 0..rank {
                let at = match repeat {
                    Some(repeat) if repeat.axis == axis => {
                        (repeat.start + at[axis]) % repeat.period
                    }
                    _ if shape[axis] == 1 && self.sizes[axis] != 1 => 0,
                    _ => at[axis],
                };
                let at = at.checked_sub(padded[axis].0).filter(|at| *at < seen[axis])?;
                let at = at + cut[axis].0;
                from[axis] = if flipped[axis] { base[axis] - 1 - at } else { at };
            }
            let from: Vec<usize> = order.iter().map(|axis| from[*axis]).collect();
            Some(values[position(&from, &stored)])
        };
        let elements = coordinates(&self.sizes).iter().map(|at| element(at).unwrap_or(0)).collect();
        let slot = 1 + self.arrays.len();
        let load = [array(self.dtype, slot, count)];
        let uop = UOp::new(Op::Load, self.dtype, load, Arg::View(tracker));
        self.arrays.push(values);
        let node = Node { uop, elements, work: 1 };
        self.nodes.push(node.clone());
        node
    }

    /// The value over its own shape.
    fn whole(&self, value: &Node) -> (UOp, Dims, Vec<i64>) {
        (value.uop.clone(), dims(&self.sizes), value.elements.clone())
    }

    /// A reduction of the value over drawn axes, or one directly over another, with its shape and
    /// elements; `None` if these could be too large, or if there is no axis to reduce.
    fn reduced(&mut self, value: &Node) -> Option<(UOp, Dims, Vec<i64>)> {
        let whole = self.sizes.clone();
        let mut found = self.reduction(&value.uop, &whole, &value.elements)?;
        while self.draw.one_in(5) {
            let Some(next) = self.reduction(&found.0, &found.1, &found.2) else { break };
            found = next;
        }
        Some((found.0, dims(&found.1), found.2))
    }

    /// A reduction of a value of these sizes and elements over drawn axes.
    fn reduction(
        &mut self,
        value: &UOp,
        sizes: &[usize],
        elements: &[i64],
    ) -> Option<(UOp, Vec<usize>, Vec<i64>)> {
        let is_reduced = |axis: &usize| sizes[*axis] == 0 || self.draw.one_in(2);
        let axes: Vec<usize> = (0..sizes.len()).filter(is_reduced).collect();
        let count: usize = axes.iter().map(|axis| sizes[*axis]).product();
        let is_sum = !self.draw.one_in(3) || count == 0;
        let bound = elements.iter().map(|x| x.abs()).max().unwrap_or(0);
        if axes.is_empty() || is_sum && VALUE_MAX < bound * count as i64 {
            return None;
        }
        let mut narrow = sizes.to_vec();
        axes.iter().for_each(|axis| narrow[*axis] = 1);
        let start = if is_sum { 0 } else { i64::MIN };
        let mut reduced = vec![start; narrow.iter().product()];
        for (at, element) in coordinates(sizes).iter().zip(elements) {
            let at: Vec<usize> = at.iter().zip(&narrow).map(|(at, size)| at % size).collect();
            let sum = &mut reduced[position(&at, &narrow)];
            *sum = if is_sum { *sum + element } else { *element.max(sum) };
        }
        self.reduced_count += axes.len();
        let op = if is_sum { Op::Add } else { Op::Max };
        let axes = axes.iter().map(|axis| *axis as i64).collect();
        let arg = Arg::Reduce(op, axes);
        let uop = UOp::new(Op::ReduceAxis, self.dtype, [value.clone()], arg);
        Some((uop, narrow, reduced))
    }

    /// A reduction that is broadcast over the whole shape again.
    fn spread(&mut self, value: &Node) -> Option<Node> {
        let (uop, narrow, elements) = self.reduced(value)?;
        let tracker = ShapeTracker::from_shape(&narrow).expect("a small shape");
        let tracker = tracker.expand(&dims(&self.sizes)).expect("axes of one element");
        let uop = UOp::new(Op::View, self.dtype, [uop], Arg::View(tracker));
        let narrow: Vec<usize> = narrow.iter().map(|size| *size as usize).collect();
        let from = |at: &Vec<usize>| -> i64 {
            let at: Vec<usize> = at.iter().zip(&narrow).map(|(at, size)| at % size).collect();
            elements[position(&at, &narrow)]
        };
        let whole: usize = self.sizes.iter().product();
        let count = whole.max(1) / narrow.iter().product::<usize>().max(1);
        let elements = coordinates(&self.sizes).iter().map(from).collect();
        Some(Node { uop, elements, work: count * value.work + 1 })
    }
}

#[cfg(test)]
mod tests {
    use gradiff::graph::Target;
    use gradiff::graph::target::Thresholds;
    use gradiff::graph::text::parse_text;
    use gradiff::kernel::{Opt, Options, Setting, Strategy, apply, legal, stages};
    use gradiff::rewrite::Mode;

    use super::*;

    /// Trees that were judged wrongly: the mistake, their text with short views (see [`text`]), the
    /// elements of the array that is read, and those of the output.
    const FINDINGS: [(&str, &str, &[i64], &[i64]); 3] = [
        (
            "refused, as the order of its axes changes",
            "%0 = define_global i32 data0 12\n\
             %1 = define_global i32 data1 12\n\
             %2 = load i32 %1 of (2, 3, 2) by (6, 2, 1)\n\
             %3 = reduce_axis i32 %2 add [2]\n\
             %4 = view i32 %3 of (2, 3, 2) by (3, 1, 0)\n\
             %5 = reduce_axis i32 %4 add [0, 2]\n\
             %6 = view i32 %5 of (2, 3, 2) by (0, 1, 0)\n\
             %7 = store void %0 %6 of (2, 3, 2) by (6, 2, 1)\n\
             %8 = sink void %7\n",
            &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11],
            &[28, 28, 44, 44, 60, 60, 28, 28, 44, 44, 60, 60],
        ),
        (
            "refused, as it has no elements to reduce",
            "%0 = define_global i32 data0 4\n\
             %1 = define_global i32 data1 0\n\
             %2 = load i32 %1 of (0, 4) by (0, 0)\n\
             %3 = reduce_axis i32 %2 add [0]\n\
             %4 = view i32 %3 of (0, 4) by (0, 0)\n\
             %5 = reduce_axis i32 %4 add [0]\n\
             %6 = store void %0 %5 of (1, 4) by (0, 1)\n\
             %7 = sink void %6\n",
            &[],
            &[0, 0, 0, 0],
        ),
        (
            "wrong, as a value of the inner loop was cached in a row of the outer one",
            "%0 = define_global i32 data0 6\n\
             %1 = define_global i32 data1 6\n\
             %2 = load i32 %1 of (2, 3) by (3, 1)\n\
             %3 = reduce_axis i32 %2 max [1]\n\
             %4 = view i32 %3 of (2, 3) by (1, 0)\n\
             %5 = reduce_axis i32 %4 max [0]\n\
             %6 = view i32 %5 of (2, 3) by (0, 1)\n\
             %7 = add i32 %4 %6\n\
             %8 = store void %0 %7 of (2, 3) by (3, 1)\n\
             %9 = sink void %8\n",
            &[5, 1, 2, 7, 0, 3],
            &[12, 12, 12, 14, 14, 14],
        ),
    ];

    /// The text of a tree whose views are written as `of SHAPE by STRIDES`.
    fn text(short: &str) -> String {
        let line = |line: &str| match line.split_once(" of ") {
            Some((head, view)) => {
                let (shape, strides) = view.split_once(" by ").expect("a shape and strides");
                format!(
                    "{head} ShapeTracker(views=(View(shape={shape}, strides={strides}, offset=0, \
                     mask=None, contiguous=False),))\n"
                )
            }
            None => format!("{line}\n"),
        };
        short.lines().map(line).collect()
    }

    #[test]
    fn trees_of_many_axes_are_lowered_or_refused() {
        for seed in 0..200 {
            check_many(&mut Draw::new(seed)).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
            check_turns(&mut Draw::new(seed)).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        }
    }

    #[test]
    fn findings_are_right() {
        for (description, short, input, expected) in FINDINGS {
            let tree = parse_text(&text(short)).expect("it is well formed");
            let memories = [vec![None; expected.len()], elements(DType::I32, input)];
            let expected = [(0, elements(DType::I32, expected))];
            for seed in 0..400 {
                judge(&tree, &memories, &expected, 0, &mut Draw::new(seed))
                    .unwrap_or_else(|problem| panic!("{description}: {problem}"));
            }
        }
    }

    #[test]
    fn every_pair_of_opts_of_a_kernel_in_place_keeps_its_values() {
        const SIZE: usize = 8;
        let shape = |size: usize| ShapeTracker::from_shape(&dims(&[size])).expect("a small shape");
        let load = |slot: usize| {
            let array = [array(DType::F32, slot, SIZE)];
            UOp::new(Op::Load, DType::F32, array, Arg::View(shape(SIZE)))
        };
        let max = Arg::Reduce(Op::Max, [0].into_iter().collect());
        let max = UOp::new(Op::ReduceAxis, DType::F32, [load(1)], max);
        let spread = shape(1).expand(&dims(&[SIZE])).expect("an axis of one element");
        let spread = UOp::new(Op::View, DType::F32, [max], Arg::View(spread));
        let value = UOp::binary(Op::Add, spread, load(0));
        let store = [array(DType::F32, 0, SIZE), value];
        let store = UOp::new(Op::Store, DType::Void, store, Arg::View(shape(SIZE)));
        let tree = UOp::new(Op::Sink, DType::Void, [store], Arg::None);
        let values: Vec<i64> = (0..SIZE as i64).collect();
        let expected: Vec<i64> = values.iter().map(|value| value + SIZE as i64 - 1).collect();
        for name in ["plain", "vectors", "groups"] {
            let target = Target::of(name);
            let setting = Setting { mode: Mode::Default, target: &target };
            let plain = stages(&tree, &Target::of("plain"), &Options::default()).expect("a kernel");
            let is_before = |(pass, _): &&(&str, UOp)| *pass == "cache-inputs";
            let (_, root) = plain.graphs.iter().find(is_before).expect("the pass");
            for first in legal(root, setting).expect("loops") {
                let root = apply(root, first, setting).expect("the opt is legal");
                let second = legal(&root, setting).expect("loops").into_iter().map(Some);
                for opts in second.chain([None]).map(|second| [Some(first), second]) {
                    let opts: Vec<Opt> = opts.into_iter().flatten().collect();
                    let strategy = Strategy::Fixed(opts.clone());
                    let options = Options { opts: strategy, ..Options::default() };
                    let kernel = lower(&tree, &target, &options, &mut Trace::default());
                    let kernel = kernel.expect("the opts are legal");
                    let mut found = vec![elements(DType::F32, &values); 2];
                    gradiff_eval::linear::run(&kernel, &mut found)
                        .and_then(|()| compare(&found[0], &elements(DType::F32, &expected)))
                        .unwrap_or_else(|why| panic!("for {name}, {opts:?}: {why}"));
                }
            }
        }
    }

    #[test]
    fn recurring_rows_are_computed() {
        let draw = &mut Draw::new(1);
        for _ in 0..400 {
            let Drawn { tree, memories, results, loops } = recurring(draw);
            judge(&tree, &memories, &results, loops, draw)
                .unwrap_or_else(|why| panic!("{why} of\n{}", tree.to_text()));
        }
    }

    #[test]
    fn many_drawn_trees_compute_a_row_again() {
        let target = Target { thresholds: Thresholds::SMALL, ..Target::of("plain") };
        let is_cached = |seed: &u64| {
            let drawn = Drawn::draw(&mut Draw::new(*seed));
            lowering::caches_rows(&drawn.tree, &target)
        };
        let count = (0..400).filter(is_cached).count();
        assert!(10 < count, "{count} of 400 trees have cached rows");
    }
}
