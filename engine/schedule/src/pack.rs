//! Pass "pack": operands of large contractions are laid out as panels.
//!
//! In `sum(x * y)` where `x` is the same along an output axis `j` and `y` along others, each
//! element of `y` is read again and again. Lanes along `j` then read neighbours, and a tile of the
//! output one panel of `y` after the other, if `y` is first laid out with a few steps of `j`
//! innermost and the folded axes around them: a `contiguous` of a permuted view. The fold itself
//! keeps its order.

use gradiff_graph::{Arg, Dims, Op, Pairs, Thresholds, UOp};
use rustc_hash::FxHashMap;

use crate::shape_of;
use crate::views::{Viewed, split};

/// Steps of the innermost axis of a panel.
const WIDTHS: [i64; 3] = [64, 32, 16];

/// The outputs with panels; `None` where there is nothing to lay out.
pub(crate) fn pack(viewed: &Viewed, thresholds: &Thresholds) -> Option<Vec<UOp>> {
    let mut packed: FxHashMap<UOp, UOp> = FxHashMap::default();
    let mut is_changed = false;
    for node in &viewed.order {
        let new = node.with_src(node.src().iter().map(|src| packed[src].clone()));
        let panelled = contraction(node, thresholds).map(|contraction| contraction.apply(&new));
        is_changed |= panelled.is_some();
        packed.insert(node.clone(), panelled.unwrap_or(new));
    }
    is_changed.then(|| viewed.outputs.iter().map(|output| packed[output].clone()).collect())
}

/// A fold whose operand `y` is to be laid out.
struct Contraction {
    /// The place of `y` among the factors.
    operand: usize,
    /// The output axis along which `x` does not vary.
    axis: usize,
    width: i64,
    /// The axes along which `y` does not vary.
    same: Vec<usize>,
    folded: Vec<usize>,
}

/// Whether an operand does not vary along an axis.
fn is_same(operand: &UOp, axis: usize) -> bool {
    let (_, tracker) = split(operand);
    let top = tracker.views().last();
    top.is_some_and(|view| {
        let is_unmasked = view.mask().is_none_or(|mask| mask[axis] == (0, view.shape()[axis]));
        view.strides()[axis] == 0 && is_unmasked
    })
}

/// The best way to lay out an operand of this fold, if it is a large contraction.
fn contraction(fold: &UOp, thresholds: &Thresholds) -> Option<Contraction> {
    let (Op::ReduceAxis, Arg::Reduce(Op::Add, axes)) = (fold.op(), fold.arg()) else { return None };
    let product = &fold.src()[0];
    let shape = shape_of(product);
    let count = shape.iter().try_fold(1i64, |count, size| count.checked_mul(*size))?;
    if product.op() != Op::Mul || !product.dtype().is_float() || count < thresholds.pack_products {
        return None;
    }
    let folded: Vec<usize> = axes.iter().map(|axis| *axis as usize).collect();
    let outputs = || (0..shape.len()).filter(|axis| !folded.contains(axis));
    let last = outputs().rfind(|axis| shape[*axis] != 1);
    let mut best: Option<(bool, Contraction)> = None;
    for (operand, y) in product.src().iter().enumerate() {
        let x = &product.src()[1 - operand];
        let same: Vec<usize> = outputs().filter(|axis| is_same(y, *axis)).collect();
        let reuse: i64 = same.iter().map(|axis| shape[*axis]).product();
        if reuse < thresholds.pack_reuse {
            continue;
        }
        if is_near(y, &folded, thresholds.pack_row_bytes) {
            return None;
        }
        for axis in outputs().filter(|axis| !same.contains(axis) && is_same(x, *axis)) {
            let Some(width) = WIDTHS.into_iter().find(|width| shape[axis] % width == 0) else {
                continue;
            };
            let is_last = Some(axis) == last;
            if best.as_ref().is_none_or(|(was_last, _)| is_last && !was_last) {
                let (same, folded) = (same.clone(), folded.clone());
                best = Some((is_last, Contraction { operand, axis, width, same, folded }));
            }
        }
    }
    best.map(|(_, contraction)| contraction)
}

/// Whether what is folded lies near enough as it is, with neighbours along an axis of the output.
fn is_near(y: &UOp, folded: &[usize], row_bytes: i64) -> bool {
    let (_, tracker) = split(y);
    let [view] = tracker.views() else { return false };
    let bytes = |axis: &usize| view.strides()[*axis].abs() * y.dtype().size_bytes() as i64;
    let has_neighbours =
        (0..view.shape().len()).any(|axis| !folded.contains(&axis) && view.strides()[axis] == 1);
    has_neighbours && folded.iter().all(|axis| bytes(axis) < row_bytes)
}

impl Contraction {
    /// The fold, with its operand in panels.
    fn apply(&self, fold: &UOp) -> UOp {
        let product = &fold.src()[0];
        let (shape, dtype) = (shape_of(product), fold.dtype());
        let Contraction { operand, axis, width, same, folded } = self;
        let place = |old: usize| old + usize::from(*axis < old);
        let divided = |shape: &[i64]| {
            let mut sizes = shape.to_vec();
            sizes.splice(axis..=axis, [shape[*axis] / width, *width]);
            sizes
        };
        let reshaped = |node: UOp, sizes: &[i64]| {
            UOp::new(Op::Reshape, node.dtype(), [node], Arg::Dims(Dims::from_slice(sizes)))
        };
        let permuted = |node: UOp, axes: &[usize]| {
            let axes = Dims::from_vec(axes.iter().map(|axis| *axis as i64).collect());
            UOp::new(Op::Permute, node.dtype(), [node], Arg::Dims(axes))
        };
        // One of the equal elements of `y`, then panels, then as it was.
        let y = &product.src()[*operand];
        let mut once = shape.to_vec();
        same.iter().for_each(|axis| once[*axis] = 1);
        let bounds = Arg::Pairs(Pairs::from_vec(once.iter().map(|size| (0, *size)).collect()));
        let y = UOp::new(Op::Shrink, y.dtype(), [y.clone()], bounds);
        let y = reshaped(y, &divided(&once));
        let innermost = axis + 1;
        let folded: Vec<usize> = folded.iter().map(|axis| place(*axis)).collect();
        let others = (0..=shape.len()).filter(|axis| *axis != innermost && !folded.contains(axis));
        let order: Vec<usize> = others.chain(folded.iter().copied()).chain([innermost]).collect();
        let mut back = vec![0; order.len()];
        order.iter().enumerate().for_each(|(new, old)| back[*old] = new);
        let panels = UOp::unary(Op::Contiguous, y.dtype(), permuted(y, &order));
        let whole = divided(shape);
        let y = permuted(panels, &back);
        let y = UOp::new(Op::Expand, y.dtype(), [y], Arg::Dims(Dims::from_slice(&whole)));
        let x = reshaped(product.src()[1 - operand].clone(), &whole);
        let factors = if *operand == 0 { [y, x] } else { [x, y] };
        let product = UOp::new(Op::Mul, product.dtype(), factors, Arg::None);
        let axes = Dims::from_vec(folded.iter().map(|axis| *axis as i64).collect());
        let again = UOp::new(Op::ReduceAxis, dtype, [product], Arg::Reduce(Op::Add, axes));
        reshaped(again, shape_of(fold))
    }
}
