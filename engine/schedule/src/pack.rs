//! Pass "pack": packs operands of large contractions into panels.
//!
//! Take `sum(x * y)`, where `x` is invariant along an output axis `j`, and `y` is invariant along
//! other output axes, so that each element of `y` is read many times. Then `y` is packed by a
//! `contiguous` of a permuted view, in which a block of `j` is innermost and the reduced axes are
//! next to it. Vector lanes along `j` then read adjacent elements, and a tile of the output reads
//! one panel of `y` after the other. The order of the reduction stays the same.

use gradiff_graph::target::Thresholds;
use gradiff_graph::{Arg, Dims, Op, Pairs, UOp};
use rustc_hash::FxHashMap;

use crate::shape_of;
use crate::tuning::PANEL_WIDTHS;
use crate::views::{Viewed, split};

/// Packs operands and returns the new outputs; `None` if there is nothing to pack.
pub(crate) fn pack(viewed: &Viewed, thresholds: &Thresholds) -> Option<Vec<UOp>> {
    let mut packed: FxHashMap<UOp, UOp> = FxHashMap::default();
    let mut is_changed = false;
    for node in &viewed.order {
        let new = node.with_src(node.src().iter().map(|src| packed[src].clone()));
        let repacked = contraction(node, thresholds).map(|contraction| contraction.apply(&new));
        is_changed |= repacked.is_some();
        packed.insert(node.clone(), repacked.unwrap_or(new));
    }
    is_changed.then(|| viewed.outputs.iter().map(|output| packed[output].clone()).collect())
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
fn is_invariant(operand: &UOp, axis: usize) -> bool {
    let (_, tracker) = split(operand);
    let top = tracker.views().last();
    top.is_some_and(|view| {
        let is_unmasked = view.mask().is_none_or(|mask| mask[axis] == (0, view.shape()[axis]));
        view.strides()[axis] == 0 && is_unmasked
    })
}

/// Returns the best packing of an operand of this reduction, if it is a large contraction.
fn contraction(reduction: &UOp, thresholds: &Thresholds) -> Option<Contraction> {
    let (Op::ReduceAxis, Arg::Reduce(Op::Add, axes)) = (reduction.op(), reduction.arg()) else {
        return None;
    };
    let product = &reduction.src()[0];
    let shape = shape_of(product);
    let count = shape.iter().try_fold(1i64, |count, size| count.checked_mul(*size))?;
    if product.op() != Op::Mul || !product.dtype().is_float() || count < thresholds.pack_products {
        return None;
    }
    let reduced: Vec<usize> = axes.iter().map(|axis| *axis as usize).collect();
    let output_axes = || (0..shape.len()).filter(|axis| !reduced.contains(axis));
    let last = output_axes().rfind(|axis| shape[*axis] != 1);
    let mut best: Option<(bool, Contraction)> = None;
    for (operand, y) in product.src().iter().enumerate() {
        let x = &product.src()[1 - operand];
        let invariant: Vec<usize> = output_axes().filter(|axis| is_invariant(y, *axis)).collect();
        let reuse: i64 = invariant.iter().map(|axis| shape[*axis]).product();
        if reuse < thresholds.pack_reuse {
            continue;
        }
        if is_compact(y, &reduced, thresholds.pack_row_bytes) {
            return None;
        }
        let is_packable = |axis: &usize| !invariant.contains(axis) && is_invariant(x, *axis);
        for axis in output_axes().filter(is_packable) {
            let Some(width) = PANEL_WIDTHS.into_iter().find(|width| shape[axis] % width == 0)
            else {
                continue;
            };
            let is_last = Some(axis) == last;
            if best.as_ref().is_none_or(|(was_last, _)| is_last && !was_last) {
                let (invariant, reduced) = (invariant.clone(), reduced.clone());
                best = Some((is_last, Contraction { operand, axis, width, invariant, reduced }));
            }
        }
    }
    best.map(|(_, contraction)| contraction)
}

/// Returns whether an operand needs no packing: its strides along the reduced axes are small, and
/// it is contiguous along an axis of the output.
fn is_compact(y: &UOp, reduced: &[usize], row_bytes: i64) -> bool {
    let (_, tracker) = split(y);
    let [view] = tracker.views() else { return false };
    let bytes = |axis: &usize| view.strides()[*axis].abs() * y.dtype().size_bytes() as i64;
    let is_contiguous =
        (0..view.shape().len()).any(|axis| !reduced.contains(&axis) && view.strides()[axis] == 1);
    is_contiguous && reduced.iter().all(|axis| bytes(axis) < row_bytes)
}

impl Contraction {
    /// Returns the reduction with its operand packed.
    fn apply(&self, reduction: &UOp) -> UOp {
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
        let permuted = |node: UOp, axes: &[usize]| {
            let axes = Dims::from_vec(axes.iter().map(|axis| *axis as i64).collect());
            UOp::new(Op::Permute, node.dtype(), [node], Arg::Dims(axes))
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
        let mut inverse = vec![0; order.len()];
        order.iter().enumerate().for_each(|(new, old)| inverse[*old] = new);
        let panels = UOp::unary(Op::Contiguous, y.dtype(), permuted(y, &order));
        let full_sizes = split_sizes(shape);
        let y = permuted(panels, &inverse);
        let y = UOp::new(Op::Expand, y.dtype(), [y], Arg::Dims(Dims::from_slice(&full_sizes)));
        let x = reshaped(product.src()[1 - operand].clone(), &full_sizes);
        let factors = if *operand == 0 { [y, x] } else { [x, y] };
        let product = UOp::new(Op::Mul, product.dtype(), factors, Arg::None);
        let axes = Dims::from_vec(reduced.iter().map(|axis| *axis as i64).collect());
        let sum = UOp::new(Op::ReduceAxis, dtype, [product], Arg::Reduce(Op::Add, axes));
        reshaped(sum, shape_of(reduction))
    }
}
