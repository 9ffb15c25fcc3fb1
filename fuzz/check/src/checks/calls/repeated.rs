//! Kernel trees whose store names an element twice: they must be refused, since threads may compute
//! the elements in any order.

use std::collections::HashSet;

use gradiff::graph::{Arg, DType, Op, Target, UOp};
use gradiff::kernel::{Options, lower};
use gradiff::rewrite::Trace;
use gradiff::view::{ShapeTracker, View};

use super::Draw;
use crate::checks::trees::global;

/// Draws a view with any strides and stores through it: refused if an element occurs twice. A view
/// that has the strides of a shape, in any order and direction, is accepted.
pub(super) fn stores(draw: &mut Draw) -> Result<(), String> {
    let rank = 1 + draw.below(3);
    let shape: Vec<i64> = (0..rank).map(|_| 1 + draw.below(4) as i64).collect();
    let mut order: Vec<usize> = (0..rank).collect();
    order.rotate_left(draw.below(rank));
    let is_regular = draw.one_in(3);
    let (mut strides, mut inner) = (vec![0; rank], 1);
    for axis in order {
        let stride = if is_regular { inner } else { draw.below(9) as i64 };
        strides[axis] = if draw.one_in(3) { -stride } else { stride };
        inner *= shape[axis];
    }
    let lowest = |(size, stride): (&i64, &i64)| (-stride * (size - 1)).max(0);
    let offset: i64 = shape.iter().zip(&strides).map(lowest).sum();
    let mut addresses = vec![offset];
    for (size, stride) in shape.iter().zip(&strides) {
        let steps = |address: &i64| {
            let address = *address;
            (0..*size).map(move |step| address + step * stride)
        };
        addresses = addresses.iter().flat_map(steps).collect();
    }
    let distinct: HashSet<i64> = addresses.iter().copied().collect();
    let is_repeated = distinct.len() < addresses.len();
    let stored = addresses.iter().max().map_or(0, |last| last + 1);
    let text = |error: gradiff::view::Error| error.to_string();
    let view = View::create(&shape, Some(&strides), offset, None).map_err(text)?;
    let store = ShapeTracker::from_views(&[view]).map_err(text)?;
    let load = ShapeTracker::from_shape(&shape).map_err(text)?;
    let source = global(1, addresses.len());
    let value = UOp::new(Op::Load, DType::F32, [source], Arg::View(load));
    let store_src = [global(0, stored as usize), value];
    let store = UOp::new(Op::Store, DType::Void, store_src, Arg::View(store));
    let tree = UOp::new(Op::Sink, DType::Void, [store], Arg::None);
    let lowered = lower(&tree, &Target::default(), &Options::default(), &mut Trace::default());
    match lowered {
        Ok(_) if is_repeated => {
            Err(format!("elements {addresses:?} are stored, some twice, and it is not refused"))
        }
        Err(error) if is_regular => Err(format!("elements {addresses:?}, each once: {error}")),
        _ => Ok(()),
    }
}
