//! Names of kernels, as tinygrad gives them.

use gradiff_graph::{Op, UOp};

use crate::extent::Axes;

/// Returns the name of a kernel: `E` for an elementwise one, `r` for one that reduces, then the
/// sizes of its loops as the schedule made them, output axes first and reduced ones last, joined by
/// `_`: `E_4_4`, `r_4_8`. Axes of size 1 are not loops: a kernel of one element is `E`. Axes are
/// named before they are merged, so that the name shows the shape that the user sees.
///
/// A kernel without trackers, which is not a tree, is named `E` or `r` alone.
pub fn name(ast: &UOp) -> String {
    let is_reduce = |node: &UOp| matches!(node.op(), Op::ReduceAxis | Op::Reduce);
    let order = ast.toposort();
    let mut name = String::from(if order.iter().any(is_reduce) { "r" } else { "E" });
    let Ok(axes) = Axes::of(&order) else { return name };
    for axis in axes.order() {
        if axes.sizes[axis] != 1 {
            name.push('_');
            name.push_str(&axes.sizes[axis].to_string());
        }
    }
    name
}
