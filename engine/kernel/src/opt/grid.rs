//! Maps output loops to the grid of a launch: at most three dimensions within the size limits.

use gradiff_graph::target::Groups;
use gradiff_graph::{AxisKind, Op, UOp};

use super::loop_info::Loop;
use super::loops::loops;
use super::replace::{Replacement, replace};
use crate::Error;
use crate::nodes::range;

/// Makes the ranges of the kind `Global` fit the grid; if that is impossible, or would take more
/// ranges than a kernel may have, they become plain loops.
pub(super) fn limit(root: &UOp, groups: Groups) -> Result<UOp, Error> {
    let loops = loops(root)?;
    let mut globals: Vec<&Loop> =
        loops.list.iter().filter(|info| info.axis.kind == AxisKind::Global).collect();
    globals.sort_by_key(|info| info.axis.number);
    let sizes: Vec<i64> = globals.iter().map(|info| info.size).collect();
    let fits = |sizes: &[i64]| {
        let mut dims = sizes.iter().rev().enumerate();
        dims.all(|(dim, size)| groups.counts.get(dim).is_some_and(|limit| size <= limit))
    };
    if fits(&sizes) {
        return Ok(root.clone());
    }
    let has_room = |dims: &Vec<i64>| {
        dims.len() <= globals.len() || loops.check_loop_count(dims.len() - globals.len()).is_ok()
    };
    let Some(dims) = dims_of(&sizes, &fits).filter(has_room) else {
        let plain = |info: &&Loop| Replacement::of_kind(info, AxisKind::Loop);
        return replace(root, &globals.iter().map(plain).collect::<Vec<_>>());
    };
    // The linear index of an iteration, from the counters of the grid; then the counters of the
    // loops from the linear index.
    let dtype = globals[0].range.dtype();
    let mut linear = UOp::int(dtype, 0);
    for (number, size) in (loops.next_number()..).zip(dims) {
        let counter = range(size, dtype, AxisKind::Global, number);
        linear = UOp::binary(Op::Add, UOp::binary(Op::Mul, linear, UOp::int(dtype, size)), counter);
    }
    let mut inner_size: i64 = sizes.iter().product();
    let mut replacements = Vec::new();
    for info in globals {
        inner_size /= info.size;
        let counter = UOp::binary(Op::FloorDiv, linear.clone(), UOp::int(dtype, inner_size));
        let counter = UOp::binary(Op::FloorMod, counter, UOp::int(dtype, info.size));
        replacements.push(Replacement::range(info, counter));
    }
    replace(root, &replacements)
}

/// Returns the sizes of a grid with as many iterations as the loops, if one fits: merges adjacent
/// loops, the smallest first, then splits dimensions that are too large.
fn dims_of(sizes: &[i64], fits: &dyn Fn(&[i64]) -> bool) -> Option<Vec<i64>> {
    let mut dims = sizes.to_vec();
    while 3 < dims.len() {
        let axis = (1..dims.len()).min_by_key(|axis| dims[axis - 1].saturating_mul(dims[*axis]))?;
        dims[axis - 1] = dims[axis - 1].checked_mul(dims.remove(axis))?;
    }
    if fits(&dims) {
        return Some(dims);
    }
    let total = dims.iter().try_fold(1i64, |total, size| total.checked_mul(*size))?;
    let divisors = || (1..=1 << 16).filter(|size| total % size == 0);
    let in_two = divisors().map(|outer| vec![outer, total / outer]).find(|dims| fits(dims));
    in_two.or_else(|| {
        let largest = divisors().next_back()?;
        let rest = total / largest;
        let thirds = (1..=1 << 16).filter(|size| rest % size == 0);
        thirds.map(|size| vec![size, rest / size, largest]).find(|dims| fits(dims))
    })
}
