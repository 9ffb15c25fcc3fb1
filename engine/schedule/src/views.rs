//! Pass "views": movement ops become one `View` node over their source.
//!
//! It also removes `Contiguous` of nodes that are in a row-major buffer anyway, so that later
//! passes need not handle them. A chain of movements that do not merge gets a buffer after
//! [`MAX_KERNEL_VIEWS`] views.

use gradiff_graph::{Arg, Buffer, Constant, DType, Op, UOp};
use gradiff_view::{Movement, ShapeTracker};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::tuning::MAX_KERNEL_VIEWS;
use crate::{Error, MAX_BUFFER_ELEMENTS, Options, shape_of, size_of};

/// The maximum number of elements of a view, which may be larger than a buffer: a broadcast that is
/// reduced in its kernel is never stored.
pub const MAX_VIEW_ELEMENTS: i64 = (1 << 48) - 1;

/// A graph of leaves, elementwise nodes, reductions, `Contiguous`, and `View`s, whose sources are
/// not views.
#[derive(Default)]
pub(crate) struct Viewed {
    /// The requested nodes: a whole buffer, a forced node, a reshape of one, or a constant that no
    /// view masks.
    pub(crate) outputs: Vec<UOp>,
    /// The nodes that get a buffer because the program or the caller requests it.
    pub(crate) forced: FxHashSet<UOp>,
    /// All nodes, sources before users.
    pub(crate) order: Vec<UOp>,
}

impl Viewed {
    /// Returns the graph after `replace` has replaced some nodes, given each node and the node with
    /// its new sources; `None` if it replaces none. Nodes that must have a buffer still do.
    pub(crate) fn replaced(
        &self,
        options: &Options,
        replace: impl Fn(&UOp, &UOp) -> Option<UOp>,
    ) -> Result<Option<Viewed>, Error> {
        let mut replaced: FxHashMap<UOp, UOp> = FxHashMap::default();
        let mut is_changed = false;
        for node in &self.order {
            let mut new = node.with_src(node.src().iter().map(|src| replaced[src].clone()));
            if let Some(found) = replace(node, &new) {
                (new, is_changed) = (found, true);
            }
            if self.forced.contains(node) && !matches!(node.op(), Op::Contiguous | Op::Copy) {
                new = UOp::unary(Op::Contiguous, new.dtype(), new);
            }
            replaced.insert(node.clone(), new);
        }
        if !is_changed {
            return Ok(None);
        }
        let outputs: Vec<UOp> = self.outputs.iter().map(|out| replaced[out].clone()).collect();
        convert(&outputs, options).map(Some)
    }
}

/// Converts the movement ops under `outputs` to views.
pub(crate) fn convert(outputs: &[UOp], options: &Options) -> Result<Viewed, Error> {
    let mut converter = Converter { merge: options.merge_views, ..Converter::default() };
    let roots = UOp::new(Op::Sink, DType::Void, outputs.iter().cloned(), Arg::None);
    for node in roots.toposort() {
        if node != roots {
            let new = converter.convert_node(&node)?;
            assert_eq!(new.shape(), node.shape(), "converting keeps the shape of {}", node.op());
            assert_eq!(new.dtype(), node.dtype(), "converting keeps the dtype of {}", node.op());
            converter.converted.insert(node, new);
        }
    }
    let outputs: Vec<UOp> = outputs
        .iter()
        .map(|output| converter.output(converter.converted[output].clone()))
        .collect();
    let sink = UOp::new(Op::Sink, DType::Void, outputs.iter().cloned(), Arg::None);
    let mut order = sink.toposort();
    order.pop();
    Ok(Viewed { outputs, forced: converter.forced, order })
}

#[derive(Default)]
struct Converter {
    merge: bool,
    converted: FxHashMap<UOp, UOp>,
    forced: FxHashSet<UOp>,
}

impl Converter {
    fn convert_node(&mut self, node: &UOp) -> Result<UOp, Error> {
        let op = node.op();
        let shape = node.shape().ok_or(Error::NotTensorLevel(op))?;
        check_size(shape)?;
        let source = |index: usize| self.converted[&node.src()[index]].clone();
        match op {
            Op::Buffer | Op::Const | Op::Iota => Ok(node.clone()),
            Op::Contiguous => {
                let source = source(0);
                Ok(self.in_buffer(source))
            }
            Op::Copy => {
                let copy = node.with_src([source(0)]);
                self.forced.insert(copy.clone());
                Ok(copy)
            }
            Op::ReduceAxis => Ok(node.with_src([source(0)])),
            Op::View => match node.arg() {
                Arg::View(tracker) => {
                    let (source, merge) = (source(0), self.merge);
                    // Without a view below it, it stays as it is: later passes look at its views.
                    let is_lowest = source.op() != Op::View;
                    self.viewed(source, |below| match is_lowest {
                        true => Ok(tracker.clone()),
                        false => Ok(composed(below, tracker, merge)),
                    })
                }
                _ => Err(Error::NotTensorLevel(op)),
            },
            _ if op.is_movement() => {
                let (source, merge, movement) = (source(0), self.merge, movement(node)?);
                self.viewed(source, |below| {
                    let moved = below.apply(&movement, merge);
                    moved.map_err(|error| Error::Movement(error.to_string()))
                })
            }
            _ if op.is_elementwise() => {
                Ok(node.with_src(node.src().iter().map(|src| self.converted[src].clone())))
            }
            _ => Err(Error::NotTensorLevel(op)),
        }
    }

    /// Makes a view of the base of a converted node, given the tracker for that of the node: of a
    /// buffer with the elements of the node if the tracker has too many views.
    fn viewed(
        &mut self,
        node: UOp,
        tracker_of: impl Fn(&ShapeTracker) -> Result<ShapeTracker, Error>,
    ) -> Result<UOp, Error> {
        let (base, below) = base_and_tracker(&node);
        let tracker = tracker_of(&below)?;
        let is_long = MAX_KERNEL_VIEWS < tracker.views().len() && 1 < below.views().len();
        if is_long && below.size() <= MAX_BUFFER_ELEMENTS {
            let tracker = tracker_of(&plain(below.shape()))?;
            return Ok(view(self.force(node), tracker));
        }
        Ok(view(base, tracker))
    }

    /// Returns an output, in a buffer of its own unless it is a constant.
    fn output(&mut self, node: UOp) -> UOp {
        if constant_under(&node).is_some() { node } else { self.in_buffer(node) }
    }

    /// Returns a node equal to `node` that is in a row-major buffer.
    fn in_buffer(&mut self, node: UOp) -> UOp {
        let (base, tracker) = base_and_tracker(&node);
        let is_whole = is_reshape(&tracker, &base);
        match base.op() {
            Op::Buffer if is_whole => node,
            Op::Buffer | Op::Const | Op::Iota => self.force(node),
            _ if is_whole => {
                self.forced.insert(base);
                node
            }
            _ => self.force(node),
        }
    }

    fn force(&mut self, node: UOp) -> UOp {
        let forced = UOp::unary(Op::Contiguous, node.dtype(), node);
        assert!(forced.shape().is_some(), "a contiguous node has the shape of its source");
        self.forced.insert(forced.clone());
        forced
    }
}

/// Splits a node into the base of a view and the view; other nodes get the plain view.
pub(crate) fn base_and_tracker(node: &UOp) -> (UOp, ShapeTracker) {
    match (node.op(), node.arg()) {
        (Op::View, Arg::View(tracker)) => (node.src()[0].clone(), tracker.clone()),
        _ => (node.clone(), plain(shape_of(node))),
    }
}

/// Returns the constant that all elements of a converted node are equal to, if any.
pub(crate) fn constant_under(node: &UOp) -> Option<Constant> {
    let (base, tracker) = base_and_tracker(node);
    let is_masked = tracker.views().iter().any(|view| view.mask().is_some());
    base.as_const().filter(|_| !is_masked)
}

/// Returns the plain view of a shape, which a pass has checked.
pub(crate) fn plain(shape: &[i64]) -> ShapeTracker {
    ShapeTracker::from_shape(shape).expect("the sizes of a node of this graph were checked")
}

/// Returns the tracker of the view `above` over the view `below`.
pub(crate) fn composed(below: &ShapeTracker, above: &ShapeTracker, merge: bool) -> ShapeTracker {
    let composed = match merge {
        true => below.compose(above),
        false => ShapeTracker::from_views(&[below.views(), above.views()].concat()),
    };
    composed.expect("a view is within its base")
}

/// Returns the buffer and the offset of a node that is a part of a buffer: its elements, in order,
/// are contiguous there. `None` for other nodes, and for nodes without elements.
pub fn part_of(node: &UOp) -> Option<(Buffer, i64)> {
    let mut movements = Vec::new();
    let mut base = node;
    while base.op().is_movement() || base.op().is_marker() {
        movements.push(base);
        base = &base.src()[0];
    }
    let Arg::Buffer(buffer) = base.arg() else { return None };
    let mut tracker = ShapeTracker::from_shape(base.shape()?).ok()?;
    for node in movements.iter().rev().filter(|node| node.op().is_movement()) {
        tracker = tracker.apply(&movement(node).ok()?, true).ok()?;
    }
    let tracker = tracker.simplify();
    let plain = ShapeTracker::from_shape(tracker.shape()).ok()?;
    let ([view], [in_order]) = (tracker.views(), plain.views()) else { return None };
    let is_part = view.mask().is_none() && view.strides() == in_order.strides();
    (is_part && view.size() != 0).then(|| (buffer.clone(), view.offset()))
}

/// Makes a view of `base`, unless it is the plain one.
fn view(base: UOp, tracker: ShapeTracker) -> UOp {
    assert!(base.op() != Op::View, "the base of a view is not a view");
    if is_whole(&tracker, shape_of(&base)) {
        return base;
    }
    let node = UOp::new(Op::View, base.dtype(), [base], Arg::View(tracker));
    assert!(node.shape().is_some(), "a view has the shape of its tracker");
    node
}

/// Returns whether `tracker` is the plain view of a tensor of this shape.
pub(crate) fn is_whole(tracker: &ShapeTracker, shape: &[i64]) -> bool {
    tracker.views().len() == 1 && tracker.is_contiguous() && tracker.shape() == shape
}

/// Returns whether `tracker` has all elements of `base` in the same order, as reshapes have,
/// whether or not their views were merged.
pub(crate) fn is_reshape(tracker: &ShapeTracker, base: &UOp) -> bool {
    let is_all = tracker.size() == size_of(base);
    is_all
        && tracker.views().iter().all(|view| view.is_contiguous() && view.size() == tracker.size())
}

fn check_size(shape: &[i64]) -> Result<(), Error> {
    // Axes of size 0 count as 1, so that a reduction over them does not overflow.
    let mut sizes = shape.iter().filter(|size| **size != 0);
    let elements = sizes.try_fold(1i64, |product, size| match *size {
        ..0 => None,
        size => product.checked_mul(size),
    });
    match elements {
        Some(elements) if (0..=MAX_VIEW_ELEMENTS).contains(&elements) => Ok(()),
        _ => Err(Error::TooLarge {
            shape: shape.to_vec(),
            elements: elements.unwrap_or(i64::MAX),
            limit: MAX_VIEW_ELEMENTS,
        }),
    }
}

/// Returns the movement of a node.
fn movement(node: &UOp) -> Result<Movement, Error> {
    let axes = |dims: &[i64]| -> Vec<usize> {
        dims.iter().map(|axis| usize::try_from(*axis).unwrap_or(usize::MAX)).collect()
    };
    Ok(match (node.op(), node.arg()) {
        (Op::Reshape, Arg::Dims(dims)) => Movement::Reshape(dims.to_vec()),
        (Op::Expand, Arg::Dims(dims)) => Movement::Expand(dims.to_vec()),
        (Op::Permute, Arg::Dims(dims)) => Movement::Permute(axes(dims)),
        (Op::Flip, Arg::Dims(dims)) => {
            let rank = shape_of(node).len();
            Movement::Flip((0..rank).map(|axis| dims.contains(&(axis as i64))).collect())
        }
        (Op::Pad, Arg::Pairs(pairs)) => Movement::Pad(pairs.to_vec()),
        (Op::Shrink, Arg::Pairs(pairs)) => Movement::Shrink(pairs.to_vec()),
        (op, _) => return Err(Error::NotTensorLevel(op)),
    })
}
