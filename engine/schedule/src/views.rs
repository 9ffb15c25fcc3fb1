//! Pass "views": movement ops become one `View` node over the node that they move.
//!
//! Also settled here, so that no later pass meets them: `Detach` (nothing to do), and `Contiguous`
//! of what is laid out anyway.

use gradiff_graph::{Arg, Buffer, Constant, DType, Op, UOp};
use gradiff_view::{Movement, ShapeTracker};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::{Error, MAX_BUFFER_ELEMENTS, Options, shape_of, size_of};

/// A graph of leaves, elementwise nodes, folds, `Contiguous`, and `View`s over none of their kind.
pub(crate) struct Viewed {
    /// What was asked for: a whole buffer, a forced node, a reshape of one, or a constant that
    /// no view masks.
    pub(crate) outputs: Vec<UOp>,
    /// Nodes that get a buffer because the program or the caller says so.
    pub(crate) forced: FxHashSet<UOp>,
    /// All nodes, sources before users.
    pub(crate) order: Vec<UOp>,
}

/// Folds the movement ops under `outputs`.
pub(crate) fn fold(outputs: &[UOp], options: &Options) -> Result<Viewed, Error> {
    let mut folder = Folder { merge: options.merge_views, ..Folder::default() };
    let roots = UOp::new(Op::Sink, DType::Void, outputs.iter().cloned(), Arg::None);
    for node in roots.toposort() {
        if node != roots {
            let folded = folder.fold_node(&node)?;
            assert_eq!(folded.shape(), node.shape(), "folding keeps the shape of {}", node.op());
            assert_eq!(folded.dtype(), node.dtype(), "folding keeps the dtype of {}", node.op());
            folder.folded.insert(node, folded);
        }
    }
    let outputs: Vec<UOp> =
        outputs.iter().map(|output| folder.output(folder.folded[output].clone())).collect();
    let sink = UOp::new(Op::Sink, DType::Void, outputs.iter().cloned(), Arg::None);
    let mut order = sink.toposort();
    order.pop();
    Ok(Viewed { outputs, forced: folder.forced, order })
}

#[derive(Default)]
struct Folder {
    merge: bool,
    folded: FxHashMap<UOp, UOp>,
    forced: FxHashSet<UOp>,
}

impl Folder {
    fn fold_node(&mut self, node: &UOp) -> Result<UOp, Error> {
        let op = node.op();
        let shape = node.shape().ok_or(Error::NotTensorLevel(op))?;
        check_size(shape)?;
        let source = |index: usize| self.folded[&node.src()[index]].clone();
        match op {
            Op::Buffer | Op::Const | Op::Iota => Ok(node.clone()),
            Op::Detach => Ok(source(0)),
            Op::Contiguous => {
                let folded = source(0);
                Ok(self.laid_out(folded))
            }
            Op::ReduceAxis => match node.arg() {
                Arg::Reduce(_, axes) if axes.is_empty() => Ok(source(0)),
                _ => Ok(node.with_src([source(0)])),
            },
            Op::View => match node.arg() {
                Arg::View(tracker) => {
                    let (base, below) = split(&source(0));
                    Ok(view(base, composed(&below, tracker, self.merge)))
                }
                _ => Err(Error::NotTensorLevel(op)),
            },
            _ if op.is_movement() => {
                let (base, below) = split(&source(0));
                let moved = below.apply(&movement(node)?, self.merge);
                Ok(view(base, moved.map_err(|error| Error::Movement(error.to_string()))?))
            }
            _ if op.is_elementwise() => {
                Ok(node.with_src(node.src().iter().map(|src| self.folded[src].clone())))
            }
            _ => Err(Error::NotTensorLevel(op)),
        }
    }

    /// What stands for an output: constants stand for themselves.
    fn output(&mut self, folded: UOp) -> UOp {
        if constant_under(&folded).is_some() { folded } else { self.laid_out(folded) }
    }

    /// A node that stands for `folded` in a buffer of its own, row-major.
    fn laid_out(&mut self, folded: UOp) -> UOp {
        let (base, tracker) = split(&folded);
        let is_whole = is_reshape(&tracker, &base);
        match base.op() {
            Op::Buffer if is_whole => folded,
            Op::Buffer | Op::Const | Op::Iota => self.force(folded),
            _ if is_whole => {
                self.forced.insert(base);
                folded
            }
            _ => self.force(folded),
        }
    }

    fn force(&mut self, folded: UOp) -> UOp {
        let node = UOp::unary(Op::Contiguous, folded.dtype(), folded);
        assert!(node.shape().is_some(), "a contiguous node has the shape of its source");
        self.forced.insert(node.clone());
        node
    }
}

/// The node below a view, and the view; the whole of the node if there is none.
pub(crate) fn split(node: &UOp) -> (UOp, ShapeTracker) {
    match (node.op(), node.arg()) {
        (Op::View, Arg::View(tracker)) => (node.src()[0].clone(), tracker.clone()),
        _ => (node.clone(), plain(shape_of(node))),
    }
}

/// The constant that all elements of a folded node are; of a node without elements, any.
pub(crate) fn constant_under(folded: &UOp) -> Option<Constant> {
    let (base, tracker) = split(folded);
    let is_masked = tracker.views().iter().any(|view| view.mask().is_some());
    base.as_const().filter(|_| !is_masked)
}

/// The one plain view of a shape, which a pass has checked.
pub(crate) fn plain(shape: &[i64]) -> ShapeTracker {
    ShapeTracker::from_shape(shape).expect("the sizes of a node of this graph were checked")
}

/// What lies where when what `below` shows is looked at through `above`.
pub(crate) fn composed(below: &ShapeTracker, above: &ShapeTracker, merge: bool) -> ShapeTracker {
    let composed = match merge {
        true => below.compose(above),
        false => ShapeTracker::from_views(&[below.views(), above.views()].concat()),
    };
    composed.expect("a view shows elements of what it stands on")
}

/// The buffer of which a node is a part, and the number of the part's first element: a node whose
/// elements, in its order, lie in a row in that buffer. `None` for any other node, and for one
/// without elements.
pub fn part_of(node: &UOp) -> Option<(Buffer, i64)> {
    let mut above = Vec::new();
    let mut below = node;
    while below.op().is_movement() || matches!(below.op(), Op::Contiguous | Op::Detach) {
        above.push(below);
        below = &below.src()[0];
    }
    let Arg::Buffer(buffer) = below.arg() else { return None };
    let mut tracker = ShapeTracker::from_shape(below.shape()?).ok()?;
    for node in above.iter().rev().filter(|node| node.op().is_movement()) {
        tracker = tracker.apply(&movement(node).ok()?, true).ok()?;
    }
    let tracker = tracker.simplify();
    let plain = ShapeTracker::from_shape(tracker.shape()).ok()?;
    let ([view], [in_order]) = (tracker.views(), plain.views()) else { return None };
    let is_part = view.mask().is_none() && view.strides() == in_order.strides();
    (is_part && view.size() != 0).then(|| (buffer.clone(), view.offset()))
}

/// `base` under `tracker`.
fn view(base: UOp, tracker: ShapeTracker) -> UOp {
    assert!(base.op() != Op::View, "views do not stand on views");
    if is_whole(&tracker, shape_of(&base)) {
        return base;
    }
    let node = UOp::new(Op::View, base.dtype(), [base], Arg::View(tracker));
    assert!(node.shape().is_some(), "a view has the shape of its tracker");
    node
}

/// Whether `tracker` is the one plain view of a tensor of this shape.
pub(crate) fn is_whole(tracker: &ShapeTracker, shape: &[i64]) -> bool {
    tracker.views().len() == 1 && tracker.is_contiguous() && tracker.shape() == shape
}

/// Whether the elements under `tracker` are those of `base` in the same order: what reshapes
/// give, whether their views were merged or not.
pub(crate) fn is_reshape(tracker: &ShapeTracker, base: &UOp) -> bool {
    let is_all = tracker.size() == size_of(base);
    is_all
        && tracker.views().iter().all(|view| view.is_contiguous() && view.size() == tracker.size())
}

fn check_size(shape: &[i64]) -> Result<(), Error> {
    // Axes of size 0 count as 1: no reduction of the others may overflow.
    let mut sizes = shape.iter().filter(|size| **size != 0);
    let elements = sizes.try_fold(1i64, |product, size| match *size {
        ..0 => None,
        size => product.checked_mul(size),
    });
    match elements {
        // Views may be larger than buffers: a broadcast that is folded at once is never held.
        Some(elements) if (0..1 << 48).contains(&elements) => Ok(()),
        _ => Err(Error::TooLarge {
            shape: shape.to_vec(),
            elements: elements.unwrap_or(i64::MAX),
            limit: MAX_BUFFER_ELEMENTS,
        }),
    }
}

/// The movement that a node does.
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
