//! Pass "pack": packs operands of large contractions into panels.
//!
//! Take `sum(x * y)`, where `x` is invariant along an output axis `j`, and `y` is invariant along
//! other output axes, so that each element of `y` is read many times. Then `y` is packed by a
//! `contiguous` of a permuted view, in which a block of `j` is innermost and the reduced axes are
//! next to it. Vector lanes along `j` then read adjacent elements, and a tile of the output reads
//! one panel of `y` after the other. The order of the reduction stays the same.
//!
//! Products of 16-bit floats that are summed in f32 become products of f32: their factors are
//! converted once, in the panels and in a copy of `x`, instead of in each iteration.
//!
//! Large operands that a few ops compute from counters, such as masks of triangles, are not packed:
//! the memory of a program does not exceed its arrays by any multiple.

use gradiff_graph::target::Thresholds;
use gradiff_graph::{Arg, DType, Dims, Op, Pairs, UOp};
use gradiff_view::ShapeTracker;
use smallvec::SmallVec;

use crate::tuning::{
    CHEAP_NODES, FAR_STORE, LANES, PADDING_WINDOW, PANEL_ELEMENTS, PANEL_WHOLE, PANEL_WIDTH_MIN,
    PANEL_WIDTHS, PRODUCTS, ROWS_GAIN, SCATTERED_STORE, SHORT_ROW,
};
use crate::views::base_and_tracker;
use crate::{MAX_BUFFER_ELEMENTS, Options, shape_of};

/// Returns the node with its operands packed or padded, given the node before and after its sources
/// were; `None` if there is nothing to pack.
pub(crate) fn pack(node: &UOp, new: &UOp, options: &Options) -> Option<UOp> {
    let thresholds = &options.thresholds;
    if options.wide_products
        && let Some((node, new)) = with_wide_factors(node).zip(with_wide_factors(new))
    {
        let is_large = is_large_contraction(&node, thresholds);
        let packed =
            is_large.then(|| contraction(&node, copyable(&new, thresholds), thresholds)).flatten();
        return packed.map(|contraction| contraction.apply(&new, thresholds));
    }
    // A stored product has no factors after the conversion.
    if [node, new].iter().any(|node| !is_large_contraction(node, thresholds)) {
        return None;
    }
    let copyable = copyable(new, thresholds);
    if let Some(operand) = operand_for_rows(node, copyable, thresholds) {
        return Some(with_rows(new, operand));
    }
    match contraction(node, copyable, thresholds) {
        Some(contraction) => {
            let x = 1 - contraction.operand;
            let is_far = copyable[x] && is_far(&node.src()[0], x, &contraction.reduced, thresholds);
            let rows = is_far.then(|| with_rows(new, x));
            Some(contraction.apply(rows.as_ref().unwrap_or(new), thresholds))
        }
        None => with_padded_operands(new, thresholds),
    }
}

/// Returns for each operand of a contraction whether it may be copied. Its sources show which nodes
/// get a buffer anyway.
fn copyable(reduction: &UOp, thresholds: &Thresholds) -> [bool; 2] {
    let product = &reduction.src()[0];
    let shape = shape_of(product);
    [0, 1].map(|operand: usize| {
        let operand = &product.src()[operand];
        is_copyable(operand, elements(operand, shape), thresholds)
    })
}

/// Returns whether a copy of this many elements of an operand fits in a buffer, and is small or of
/// elements that are not computed again instead.
fn is_copyable(operand: &UOp, elements: i64, thresholds: &Thresholds) -> bool {
    let bytes = elements.saturating_mul(operand.dtype().size_bytes() as i64);
    let is_large = thresholds.large_bytes as i64 <= bytes;
    elements <= MAX_BUFFER_ELEMENTS
        && !(is_large && is_computed_again(&base_and_tracker(operand).0))
}

/// Returns a sum of products of 16-bit floats, each cast to f32, as the sum of the products of
/// their factors in f32; `None` for other nodes. Views stay above the casts, so that a factor is
/// cast before its elements are repeated.
fn with_wide_factors(reduction: &UOp) -> Option<UOp> {
    let [cast] = reduction.src() else { return None };
    let [product] = cast.src() else { return None };
    let is_half = product.dtype().is_half();
    if (cast.op(), product.op(), cast.dtype()) != (Op::Cast, Op::Mul, DType::F32) || !is_half {
        return None;
    }
    let wide = |factor: &UOp| match factor.op() {
        Op::View => {
            let base = UOp::unary(Op::Cast, DType::F32, factor.src()[0].clone());
            UOp::new(Op::View, DType::F32, [base], factor.arg().clone())
        }
        _ => UOp::unary(Op::Cast, DType::F32, factor.clone()),
    };
    let factors: Vec<UOp> = product.src().iter().map(wide).collect();
    Some(reduction.with_src([UOp::new(Op::Mul, DType::F32, factors, Arg::None)]))
}

/// Returns the number of the operand that is to be copied with the reduced axes innermost: the
/// other operand is contiguous along them, so that vector lanes run along them, and has many more
/// elements than the copy. So have the filters of a convolution of few places.
fn operand_for_rows(
    reduction: &UOp,
    copyable: [bool; 2],
    thresholds: &Thresholds,
) -> Option<usize> {
    let Arg::Reduce(_, axes) = reduction.arg() else { return None };
    let product = &reduction.src()[0];
    let shape = shape_of(product);
    let reduced: Vec<usize> = axes.iter().map(|axis| *axis as usize).collect();
    let row: i64 = reduced.iter().map(|axis| shape[*axis]).product();
    let elements = |operand: &UOp| elements(operand, shape);
    let [x, y] = [0, 1].map(|operand: usize| &product.src()[operand]);
    let fits = |few: &UOp, many: &UOp| {
        let copied = elements(few).saturating_mul(ROWS_GAIN);
        is_contiguous_along(many, &reduced)
            && !is_contiguous_along(few, &reduced)
            && !has_lanes(few, shape, &reduced)
            && copied <= elements(many)
    };
    let is_long = thresholds.pack_row_elements <= row;
    let mut choices = [(0, x, y), (1, y, x)].into_iter();
    let found = choices.find(|(number, few, many)| is_long && copyable[*number] && fits(few, many));
    found.map(|(number, ..)| number)
}

/// Returns whether adjacent output axes of an operand have several vectors together, along which
/// lanes may run.
fn has_lanes(operand: &UOp, shape: &[i64], reduced: &[usize]) -> bool {
    let outputs: Vec<usize> = (0..shape.len()).filter(|axis| !reduced.contains(axis)).collect();
    (0..outputs.len()).any(|first| {
        (first..outputs.len()).any(|last| {
            let axes = &outputs[first..=last];
            let size: i64 = axes.iter().map(|axis| shape[*axis]).product();
            PANEL_WIDTH_MIN <= size && is_contiguous_along(operand, axes)
        })
    })
}

/// Returns the number of elements of an operand, of a product of this shape, without repetitions.
fn elements(operand: &UOp, shape: &[i64]) -> i64 {
    let varying = (0..shape.len()).filter(|axis| !is_invariant(operand, *axis));
    varying.map(|axis| shape[axis]).product()
}

/// Returns whether an operand is read often, is too large for a cache, and has no adjacent elements
/// along its rows or along an axis of the output: a copy of its rows is read faster.
fn is_far(product: &UOp, operand: usize, reduced: &[usize], thresholds: &Thresholds) -> bool {
    let (x, shape) = (&product.src()[operand], shape_of(product));
    let elements = elements(x, shape);
    let reads = shape.iter().product::<i64>() / elements.max(1);
    let bytes = elements.saturating_mul(x.dtype().size_bytes() as i64);
    4 * thresholds.pack_reuse <= reads
        && thresholds.large_bytes as i64 <= 2 * bytes
        && is_scattered(x)
        && !has_lanes(x, shape, reduced)
        && !is_contiguous_along(x, reduced)
}

/// Returns whether rule 2 of `realize` computes a node again rather than store it, as long as no
/// node below it has a buffer for another reason: the end of a short chain without loads.
fn is_computed_again(node: &UOp) -> bool {
    let (mut count, mut pending) = (0, vec![node]);
    while let Some(next) = pending.pop() {
        count += 1;
        let is_stored =
            matches!(next.op(), Op::Buffer | Op::Contiguous | Op::Copy | Op::ReduceAxis);
        if is_stored || CHEAP_NODES < count {
            return false;
        }
        pending.extend(next.src());
    }
    true
}

/// Returns whether the elements of an operand along these axes are adjacent, in order.
pub(crate) fn is_contiguous_along(operand: &UOp, axes: &[usize]) -> bool {
    let (_, tracker) = base_and_tracker(operand);
    let [view] = tracker.views() else { return false };
    let mut stride = 1;
    view.mask().is_none()
        && axes.iter().rev().filter(|axis| view.shape()[**axis] != 1).all(|axis| {
            let is_next = view.strides()[*axis] == stride;
            stride *= view.shape()[*axis];
            is_next
        })
}

/// Returns the reduction with a copy of an operand in which the reduced axes are innermost.
fn with_rows(reduction: &UOp, operand: usize) -> UOp {
    let Arg::Reduce(_, axes) = reduction.arg() else { return reduction.clone() };
    let product = &reduction.src()[0];
    let shape = shape_of(product);
    let x = &product.src()[operand];
    let reduced: Vec<usize> = axes.iter().map(|axis| *axis as usize).collect();
    let outer = (0..shape.len()).filter(|axis| !reduced.contains(axis));
    let order: Vec<usize> = outer.chain(reduced.iter().copied()).collect();
    let inverse = inverse(&order);
    let once = |axis: usize| (0, if is_invariant(x, axis) { 1 } else { shape[axis] });
    let bounds = Arg::Pairs((0..shape.len()).map(once).collect());
    let node = |op, source: UOp, arg| UOp::new(op, source.dtype(), [source], arg);
    let rows = permuted(node(Op::Shrink, x.clone(), bounds), &order);
    let rows = permuted(node(Op::Contiguous, rows, Arg::None), &inverse);
    let rows = node(Op::Expand, rows, Arg::Dims(Dims::from_slice(shape)));
    let mut factors = product.src().to_vec();
    factors[operand] = rows;
    reduction.with_src([product.with_src(factors)])
}

/// The permutation that undoes another.
fn inverse(order: &[usize]) -> Vec<usize> {
    let mut inverse = vec![0; order.len()];
    order.iter().enumerate().for_each(|(new, old)| inverse[*old] = new);
    inverse
}

fn permuted(node: UOp, axes: &[usize]) -> UOp {
    let axes = axes.iter().map(|axis| *axis as i64).collect();
    UOp::new(Op::Permute, node.dtype(), [node], Arg::Dims(axes))
}

/// A reduction whose operand `y` is to be packed.
struct Contraction {
    /// The index of `y` among the factors.
    operand: usize,
    /// The output axis along which `x` is invariant.
    axis: usize,
    /// The size of the innermost axis of a panel.
    width: i64,
    /// The axes along which `y` is invariant.
    invariant: Vec<usize>,
    /// The reduced axes.
    reduced: Vec<usize>,
}

/// Returns whether an operand has the same elements at all indices of an axis.
pub(crate) fn is_invariant(operand: &UOp, axis: usize) -> bool {
    let (_, tracker) = base_and_tracker(operand);
    let top = tracker.views().last();
    top.is_some_and(|view| {
        let is_unmasked = view.mask().is_none_or(|mask| mask[axis] == (0, view.shape()[axis]));
        view.strides()[axis] == 0 && is_unmasked
    })
}

/// Returns whether a node is a large sum of products of floats.
fn is_large_contraction(node: &UOp, thresholds: &Thresholds) -> bool {
    let is_sum = matches!(node.arg(), Arg::Reduce(Op::Add, _)) && node.op() == Op::ReduceAxis;
    let Some(product) = node.src().first().filter(|product| is_sum && product.op() == Op::Mul)
    else {
        return false;
    };
    // A constant has no shape.
    let shape = shape_of(product);
    let count = shape.iter().try_fold(1i64, |count, size| count.checked_mul(*size));
    let are_wide = product.src().iter().all(|factor| shape_of(factor) == shape);
    product.dtype().is_float()
        && are_wide
        && count.is_some_and(|count| thresholds.pack_products <= count)
}

/// Returns the best packing of a copyable operand of a large contraction: of one that is read
/// often, or, if none is, of one with rows so short that the sums of lanes along them would cost
/// more. If none of these has panels, one that is read less often and is nowhere contiguous.
fn contraction(
    reduction: &UOp,
    copyable: [bool; 2],
    thresholds: &Thresholds,
) -> Option<Contraction> {
    let Arg::Reduce(_, axes) = reduction.arg() else { return None };
    let product = &reduction.src()[0];
    let shape = shape_of(product);
    let count: i64 = shape.iter().product();
    let reduced: Vec<usize> = axes.iter().map(|axis| *axis as usize).collect();
    let output_axes = || (0..shape.len()).filter(|axis| !reduced.contains(axis));
    let outputs: i64 = output_axes().map(|axis| shape[axis]).product();
    let rows: i64 = reduced.iter().map(|axis| shape[*axis]).product();
    let mut best: Option<(i64, Contraction)> = None;
    let invariant =
        |y: &UOp| -> Vec<usize> { output_axes().filter(|axis| is_invariant(y, *axis)).collect() };
    let reuse = |y: &UOp| -> i64 { invariant(y).iter().map(|axis| shape[*axis]).product() };
    let is_read_often = |y: &UOp| thresholds.pack_reuse <= reuse(y);
    let is_any_read_often = product.src().iter().any(is_read_often);
    let is_short = |y: &UOp| 1 < reuse(y) && rows <= reuse(y).saturating_mul(SHORT_ROW);
    let is_candidate = |y: &UOp| if is_any_read_often { is_read_often(y) } else { is_short(y) };
    let candidates: SmallVec<[usize; 2]> =
        (0..2).filter(|operand| is_candidate(&product.src()[*operand])).collect();
    let is_compact = |y: &UOp| is_compact(y, &reduced, thresholds.pack_row_bytes);
    if candidates.iter().any(|operand| is_compact(&product.src()[*operand])) {
        return None;
    }
    // Others may be read less often, if they are cheaper, or the only ones with panels.
    let is_less_often = |y: &UOp| thresholds.pack_reuse <= 4 * reuse(y) && !is_compact(y);
    let rest = (0..2).filter(|operand| {
        !candidates.contains(operand)
            && is_any_read_often
            && is_less_often(&product.src()[*operand])
    });
    let rest: SmallVec<[usize; 2]> = rest.collect();
    for operand in candidates.iter().chain(&rest).copied().filter(|operand| copyable[*operand]) {
        if best.is_none() && rest.contains(&operand) && !is_scattered(&product.src()[operand]) {
            break;
        }
        let [y, x] = [&product.src()[operand], &product.src()[1 - operand]];
        let (invariant, reuse) = (invariant(y), reuse(y));
        let is_packable = |axis: &usize| !invariant.contains(axis) && is_invariant(x, *axis);
        for axis in output_axes().filter(is_packable) {
            // Lanes along another axis than the last one are stored one by one.
            let stores = outputs * store_cost(shape, &reduced, axis, thresholds);
            let is_contiguous = is_contiguous_along(y, &[axis]);
            for width in panel_widths(shape[axis], is_contiguous, rows) {
                let padded = (width + LANES - 1) / LANES * LANES;
                let wasted = count / width * (padded - width) / PRODUCTS;
                let cost = count / reuse + stores + wasted;
                if best.as_ref().is_none_or(|(least, _)| cost < *least) {
                    let (invariant, reduced) = (invariant.clone(), reduced.clone());
                    let found = Contraction { operand, axis, width, invariant, reduced };
                    best = Some((cost, found));
                }
            }
        }
    }
    best.map(|(_, contraction)| contraction)
}

/// Returns the cost of storing an element, if lanes run along this axis of the output: 0 along the
/// last one.
fn store_cost(shape: &[i64], reduced: &[usize], axis: usize, thresholds: &Thresholds) -> i64 {
    let after = (axis + 1..shape.len()).filter(|axis| !reduced.contains(axis));
    let sizes: SmallVec<[i64; 8]> =
        after.map(|axis| shape[axis]).filter(|size| *size != 1).collect();
    let distance: i64 = sizes.iter().product();
    match sizes.last() {
        None => 0,
        // Rows of a tile that are next to each other share the cache lines of their lanes.
        Some(last) if *last < LANES / 2 && thresholds.pack_row_bytes <= 4 * distance => FAR_STORE,
        Some(_) => SCATTERED_STORE,
    }
}

/// Returns whether an operand has no axis along which many elements are adjacent.
fn is_scattered(y: &UOp) -> bool {
    let (_, tracker) = base_and_tracker(y);
    let [view] = tracker.views() else { return false };
    let mut axes = view.strides().iter().zip(view.shape());
    !axes.any(|(stride, size)| stride.abs() == 1 && PANEL_WIDTH_MIN <= *size)
}

/// Returns the sizes that the innermost axis of panels may have: divisors of the size of an axis,
/// or all of it. Narrow panels of what is contiguous anyway are worse than its rows.
fn panel_widths(size: i64, is_contiguous: bool, rows: i64) -> SmallVec<[i64; 4]> {
    let divisor = PANEL_WIDTHS.into_iter().find(|width| size % width == 0);
    if is_contiguous {
        return divisor.filter(|width| PANEL_WIDTH_MIN.min(size) <= *width).into_iter().collect();
    }
    if divisor.is_some_and(|width| PANEL_WIDTH_MIN <= width) {
        return divisor.into_iter().collect();
    }
    let is_near = PANEL_WHOLE.contains(&size) || size.saturating_mul(rows) <= PANEL_ELEMENTS;
    let is_whole = divisor.is_none() && PANEL_WHOLE.start <= size && is_near;
    let whole = is_whole.then_some(size);
    let wide = (PANEL_WIDTH_MIN + 1..PANEL_WIDTHS[0]).filter(|width| size % width == 0);
    divisor.into_iter().chain(whole).chain(wide).collect()
}

/// Returns whether an operand needs no packing: its strides along the reduced axes are small, and
/// it is contiguous along an axis of the output.
fn is_compact(y: &UOp, reduced: &[usize], row_bytes: i64) -> bool {
    let (_, tracker) = base_and_tracker(y);
    let [view] = tracker.views() else { return false };
    let bytes = |axis: &usize| view.strides()[*axis].abs() * y.dtype().size_bytes() as i64;
    let is_contiguous =
        (0..view.shape().len()).any(|axis| !reduced.contains(&axis) && view.strides()[axis] == 1);
    is_contiguous && reduced.iter().all(|axis| bytes(axis) < row_bytes)
}

/// Returns an operand that reads from a copy that includes its padding, so that its loads need no
/// gates; `None` if it has no padding, or the elements of the copy would not be read often.
fn with_padding(operand: &UOp, thresholds: &Thresholds) -> Option<UOp> {
    let (base, tracker) = base_and_tracker(operand);
    let at = tracker.views().iter().rposition(|view| view.mask().is_some())?;
    let (below, above) = tracker.views().split_at(at + 1);
    let view = &below[at];
    let whole: Vec<(i64, i64)> = view.shape().iter().map(|size| (0, *size)).collect();
    // The copy has elements that the view repeats once.
    let is_repeated = |axis: usize| {
        view.strides()[axis] == 0 && view.mask().is_none_or(|m| m[axis] == whole[axis])
    };
    let bounds = |axis: usize| (0, if is_repeated(axis) { 1 } else { whole[axis].1 });
    let bounds: Vec<(i64, i64)> = (0..whole.len()).map(bounds).collect();
    let sizes: Vec<i64> = bounds.iter().map(|(_, size)| *size).collect();
    let elements = sizes.iter().product::<i64>();
    let is_read_often = 0 < elements && thresholds.padding_reuse <= tracker.size() / elements;
    if !is_read_often || !is_copyable(operand, elements, thresholds) {
        return None;
    }
    let copied = ShapeTracker::from_views(below).ok()?.shrink(&bounds).ok()?;
    let repeated = ShapeTracker::from_shape(&sizes).ok()?.expand(view.shape()).ok()?;
    let above = ShapeTracker::from_views(&[repeated.views(), above].concat()).ok()?;
    let viewed = |base: UOp, tracker| UOp::new(Op::View, base.dtype(), [base], Arg::View(tracker));
    let copy = UOp::unary(Op::Contiguous, base.dtype(), viewed(base, copied));
    Some(viewed(copy, above))
}

/// Returns a reduction whose operands read from copies that include their padding.
fn with_padded_operands(reduction: &UOp, thresholds: &Thresholds) -> Option<UOp> {
    let product = &reduction.src()[0];
    let padded: Vec<Option<UOp>> =
        product.src().iter().map(|src| with_padding(src, thresholds)).collect();
    padded.iter().any(Option::is_some).then(|| {
        let factors = padded.into_iter().zip(product.src());
        let factors = factors.map(|(copy, plain)| copy.unwrap_or_else(|| plain.clone()));
        reduction.with_src([product.with_src(factors)])
    })
}

impl Contraction {
    /// Returns whether the other operand `x` is read in short windows along the longest axis that
    /// reuses `y`, the last one as in convolutions: a tile unrolls these windows, so that its rows
    /// share loads and few gates are left.
    fn shares_windows(&self, x: &UOp) -> bool {
        let (_, tracker) = base_and_tracker(x);
        let shape = tracker.shape();
        let rows = self.invariant.iter().max_by_key(|axis| shape[**axis]);
        let last = self.invariant.iter().rfind(|axis| shape[**axis] != 1);
        let window = self.reduced.last().map_or(1, |axis| shape[*axis]);
        1 < tracker.views().len() && rows == last && (2..=PADDING_WINDOW).contains(&window)
    }

    /// Returns the reduction with its operand packed.
    fn apply(&self, reduction: &UOp, thresholds: &Thresholds) -> UOp {
        let product = &reduction.src()[0];
        let (shape, dtype) = (shape_of(product), reduction.dtype());
        let Contraction { operand, axis, width, invariant, reduced } = self;
        let after_split = |old: usize| old + usize::from(*axis < old);
        let split_sizes = |shape: &[i64]| {
            let mut sizes = shape.to_vec();
            sizes.splice(axis..=axis, [shape[*axis] / width, *width]);
            sizes
        };
        let reshaped = |node: UOp, sizes: &[i64]| {
            UOp::new(Op::Reshape, node.dtype(), [node], Arg::Dims(Dims::from_slice(sizes)))
        };
        // Removes the repetition of elements from `y`, packs it, and restores the order of its
        // axes.
        let y = &product.src()[*operand];
        let mut sizes = shape.to_vec();
        invariant.iter().for_each(|axis| sizes[*axis] = 1);
        let bounds = Arg::Pairs(Pairs::from_vec(sizes.iter().map(|size| (0, *size)).collect()));
        let y = UOp::new(Op::Shrink, y.dtype(), [y.clone()], bounds);
        let y = reshaped(y, &split_sizes(&sizes));
        let innermost = axis + 1;
        let reduced: Vec<usize> = reduced.iter().map(|axis| after_split(*axis)).collect();
        let outer = (0..=shape.len()).filter(|axis| *axis != innermost && !reduced.contains(axis));
        let order: Vec<usize> = outer.chain(reduced.iter().copied()).chain([innermost]).collect();
        let inverse = inverse(&order);
        let panels = UOp::unary(Op::Contiguous, y.dtype(), permuted(y, &order));
        let full_sizes = split_sizes(shape);
        let y = permuted(panels, &inverse);
        let y = UOp::new(Op::Expand, y.dtype(), [y], Arg::Dims(Dims::from_slice(&full_sizes)));
        let x = &product.src()[1 - operand];
        let copied = if self.shares_windows(x) { None } else { with_padding(x, thresholds) };
        let x = reshaped(copied.unwrap_or_else(|| x.clone()), &full_sizes);
        let factors = if *operand == 0 { [y, x] } else { [x, y] };
        let product = UOp::new(Op::Mul, product.dtype(), factors, Arg::None);
        let axes = Dims::from_vec(reduced.iter().map(|axis| *axis as i64).collect());
        let sum = UOp::new(Op::ReduceAxis, dtype, [product], Arg::Reduce(Op::Add, axes));
        reshaped(sum, shape_of(reduction))
    }
}
