//! Maps output loops to the grid of a launch: at most three dimensions within the size limits.
//!
//! If no grid within the limits has as many iterations as the loops, it gets a few more, which
//! compute elements again and do not store them.

use gradiff_graph::target::{Groups, Thresholds};
use gradiff_graph::{AxisKind, DType, Op, UOp};

use super::loop_info::Loop;
use super::loops::loops;
use super::replace::{Replacement, replace};
use crate::Error;
use crate::nodes::{cast, gated_address, map_nodes, range};

/// Makes the ranges of the kind `Global` fit the grid; if that is impossible, or would take more
/// ranges than a kernel may have, they become plain loops.
pub(super) fn limit(root: &UOp, groups: Groups, thresholds: &Thresholds) -> Result<UOp, Error> {
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
        let added = dims.len().saturating_sub(globals.len());
        added == 0 || loops.check_loop_count(added, thresholds).is_ok()
    };
    let dims = dims_of(&sizes, &fits).or_else(|| rounded_dims(&sizes, groups.counts));
    let Some(dims) = dims.filter(|dims| has_room(dims) && !sizes.contains(&0)) else {
        let plain = |info: &&Loop| Replacement::of_kind(info, AxisKind::Loop);
        return replace(root, &globals.iter().map(plain).collect::<Vec<_>>());
    };
    // The linear index of an iteration, from the counters of the grid; then the counters of the
    // loops from the linear index.
    let narrow = globals[0].range.dtype();
    let [total, count] = [&sizes, &dims].map(|sizes| sizes.iter().product::<i64>());
    let is_exact = narrow.int_range().is_some_and(|(_, max)| i128::from(count) <= max);
    let dtype = if is_exact { narrow } else { DType::I64 };
    let mut linear = UOp::int(dtype, 0);
    for (number, size) in (loops.next_number()..).zip(dims) {
        let counter = cast(range(size, narrow, AxisKind::Global, number), dtype);
        linear = UOp::binary(Op::Add, UOp::binary(Op::Mul, linear, UOp::int(dtype, size)), counter);
    }
    let mut inner_size = total;
    let mut replacements = Vec::new();
    for info in globals {
        inner_size /= info.size;
        let counter = UOp::binary(Op::FloorDiv, linear.clone(), UOp::int(dtype, inner_size));
        let counter = UOp::binary(Op::FloorMod, counter, UOp::int(dtype, info.size));
        replacements.push(Replacement::range(info, cast(counter, info.range.dtype())));
    }
    let root = replace(root, &replacements)?;
    if count == total {
        return Ok(root);
    }
    let is_real = UOp::binary(Op::CmpLt, linear, UOp::int(dtype, total));
    let is_stored = |array: &UOp| root.src().iter().any(|store| store.src()[0].src()[0] == *array);
    map_nodes(&root.toposort(), |old, node| match old.op() {
        // Its elements are not loaded either: other groups change them.
        Op::Index if is_stored(&old.src()[0]) => Ok(gated_address(&node, &is_real)),
        _ => Ok(node),
    })
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

/// Returns the sizes of a grid with as many iterations as the loops or a few more, if one is within
/// the limits, which are those of the innermost dimension first.
fn rounded_dims(sizes: &[i64], [x, y, z]: [i64; 3]) -> Option<Vec<i64>> {
    let total = sizes.iter().try_fold(1i64, |total, size| total.checked_mul(*size))?;
    let rounded_up = |size: i64, count: i64| size / count + i64::from(size % count != 0);
    let outer = rounded_up(total, x);
    let third = rounded_up(outer, y);
    let second = rounded_up(outer, third);
    let first = rounded_up(total, third * second);
    let dims: Vec<i64> = [third, second, first].into_iter().skip_while(|size| *size == 1).collect();
    (third <= z).then_some(dims)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linearize::linearize;
    use gradiff_graph::{Arg, Constant, Global};

    /// Adds 1 to each element of a matrix of zeros, by groups whose counters have a type. Checks
    /// the result and returns the kernel.
    fn counted(sizes: [i64; 2], dtype: DType, counts: [i64; 3]) -> UOp {
        let size_elements: i64 = sizes.iter().product();
        let [row, column] = [(0, sizes[0]), (1, sizes[1])]
            .map(|(number, size)| range(size, dtype, AxisKind::Global, number))
            .map(|counter| cast(counter, DType::I32));
        let index = UOp::binary(Op::Mul, row, UOp::int(DType::I32, sizes[1]));
        let index = UOp::binary(Op::Add, index, column);
        let array = Arg::Global(Global { slot: 0, size_elements });
        let array = UOp::new(Op::DefineGlobal, DType::I32, [], array);
        let address = UOp::new(Op::Index, DType::I32, [array, index], Arg::None);
        let load = UOp::new(Op::Load, DType::I32, [address.clone()], Arg::None);
        let next = UOp::binary(Op::Add, load, UOp::int(DType::I32, 1));
        let store = UOp::new(Op::Store, DType::Void, [address, next], Arg::None);
        let root = UOp::new(Op::Sink, DType::Void, [store], Arg::None);
        let groups = Groups { threads: 1, sizes: [1; 3], counts, local_bytes: 0, element_bytes: 1 };
        let root = limit(&root, groups, &Thresholds::USUAL).expect("a kernel");
        let linear = linearize(&root, "test".to_owned()).expect("a kernel");
        let full = |value| vec![Some(Constant::int(DType::I32, value)); size_elements as usize];
        let mut memories = vec![full(0)];
        gradiff_eval::linear::run(&linear, &mut memories).expect("it keeps within the array");
        assert_eq!(memories, [full(1)], "{sizes:?} in {counts:?}: {linear}");
        root
    }

    /// The sizes of the grid of a kernel.
    fn grid(root: &UOp) -> Vec<i128> {
        let is_global =
            |node: &&UOp| matches!(node.arg(), Arg::Axis(axis) if axis.kind == AxisKind::Global);
        root.toposort().iter().filter(is_global).filter_map(|node| node.src()[0].as_int()).collect()
    }

    #[test]
    fn loops_whose_sizes_have_no_suitable_divisors_are_a_grid() {
        let counts = [5, 4, 3];
        for size in 6..=60 {
            let groups: i128 = grid(&counted([size, 1], DType::I32, counts)).iter().product();
            let size = i128::from(size);
            assert!((size..size + 12).contains(&groups), "{groups} groups for {size}");
        }
        assert!(grid(&counted([61, 1], DType::I32, counts)).is_empty());
    }

    #[test]
    fn linear_index_has_64_bits_where_its_type_would_wrap() {
        let is_wide = |sizes: [i64; 2], counts: [i64; 3]| {
            let root = counted(sizes, DType::I8, counts);
            assert!(!grid(&root).is_empty(), "{sizes:?} in {counts:?}");
            root.toposort().iter().any(|node| node.dtype() == DType::I64)
        };
        // Of 126, 144 and 156 groups.
        assert!(!is_wide([11, 11], [10, 10, 10]));
        assert!(is_wide([13, 11], [12, 12, 12]));
        assert!(is_wide([13, 12], [6, 26, 1]));
    }
}
