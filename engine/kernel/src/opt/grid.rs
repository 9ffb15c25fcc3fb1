//! Output loops as the grid of a launch: at most three dimensions, none of them too large.

use gradiff_graph::{AxisKind, Op, UOp};

use super::apply::{Replaced, range, replace};
use super::legal::{Loop, loops};
use crate::Error;
use crate::target::Groups;

/// The kernel with ranges of the kind `Global` that fit the grid. Loops that do not fit become
/// plain ones.
pub(super) fn limit(root: &UOp, groups: Groups) -> Result<UOp, Error> {
    let loops = loops(root)?;
    let mut globals: Vec<&Loop> =
        loops.list.iter().filter(|one| one.axis.kind == AxisKind::Global).collect();
    globals.sort_by_key(|one| one.axis.number);
    let sizes: Vec<i64> = globals.iter().map(|one| one.size).collect();
    let fits = |sizes: &[i64]| {
        let mut dims = sizes.iter().rev().enumerate();
        dims.all(|(dim, size)| groups.counts.get(dim).is_some_and(|most| size <= most))
    };
    if fits(&sizes) {
        return Ok(root.clone());
    }
    let Some(dims) = dims_of(&sizes, &fits) else {
        let plain = |one: &&Loop| super::apply::of_kind(one, AxisKind::Loop);
        return replace(root, &globals.iter().map(plain).collect::<Vec<_>>());
    };
    // The number of a step over all loops, from the counters of the grid and to those of the loops.
    let dtype = globals[0].range.dtype();
    let mut step = UOp::int(dtype, 0);
    for (number, size) in (loops.fresh()..).zip(dims) {
        let counter = range(size, dtype, AxisKind::Global, number);
        step = UOp::binary(Op::Add, UOp::binary(Op::Mul, step, UOp::int(dtype, size)), counter);
    }
    let mut inner: i64 = sizes.iter().product();
    let mut by = Vec::new();
    for one in globals {
        inner /= one.size;
        let counter = UOp::binary(Op::FloorDiv, step.clone(), UOp::int(dtype, inner));
        let counter = UOp::binary(Op::FloorMod, counter, UOp::int(dtype, one.size));
        by.push(Replaced::by(one, counter));
    }
    replace(root, &by)
}

/// Sizes of a grid with as many steps as the loops, if there is one that fits: neighbours are
/// joined, the smallest first; then what is too large is divided.
fn dims_of(sizes: &[i64], fits: &dyn Fn(&[i64]) -> bool) -> Option<Vec<i64>> {
    let mut dims = sizes.to_vec();
    while 3 < dims.len() {
        let at = (1..dims.len()).min_by_key(|at| dims[at - 1].saturating_mul(dims[*at]))?;
        dims[at - 1] = dims[at - 1].checked_mul(dims.remove(at))?;
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
