//! Reductions of a group of elements. A float sum or product may be taken in any order, so the
//! group is checked first for overflows that any order might have.

use gradiff_corpus::{DType, ReduceOp};

use crate::arithmetic::{accumulate, max, mul, reduction_depth, round_result, rounding_unit};
use crate::cell::{Cell, Chain, Real, Reason};
use crate::format::{format, highest_bit};
use crate::infer::{accumulator, reduced};
use crate::integer;

/// The number of additions that a term of a sum may pass through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SumDepth {
    /// At most [`reduction_depth`].
    Cascaded,
    /// All additions: a single accumulator.
    Sequential,
}

/// Reduces `group`, elements of dtype `from`, to an element of dtype `reduced(op, from)`.
pub(crate) fn reduce(op: ReduceOp, sums: SumDepth, from: DType, group: &[Cell]) -> Cell {
    let to = reduced(op, from);
    if let Some(cell) = group.iter().find(|cell| matches!(cell, Cell::Unspecified(_))) {
        return *cell;
    }
    if to.is_float() {
        reduce_floats(op, sums, to, group)
    } else {
        reduce_integers(op, from, to, group)
    }
}

fn reduce_integers(op: ReduceOp, from: DType, to: DType, group: &[Cell]) -> Cell {
    let first = match op {
        ReduceOp::Sum => 0,
        ReduceOp::Prod => 1,
        ReduceOp::Max => integer::value(to, integer::smallest(to)),
    };
    let numbers = group.iter().map(|cell| match cell {
        Cell::Int(bits) => integer::value(from, *bits),
        _ => panic!("{cell:?} is not an integer"),
    });
    // Wrapping at 128 bits does not change the result modulo the dtype's width.
    let number = numbers.fold(first, |total, number| match op {
        ReduceOp::Sum => total.wrapping_add(number),
        ReduceOp::Prod => total.wrapping_mul(number),
        ReduceOp::Max => total.max(number),
    });
    Cell::Int(integer::wrap(to, number))
}

fn reduce_floats(op: ReduceOp, sums: SumDepth, to: DType, group: &[Cell]) -> Cell {
    let wide = accumulator(to);
    let Some((first, rest)) = group.split_first() else {
        return match op {
            ReduceOp::Sum => Cell::zero(None),
            ReduceOp::Prod => Cell::exact(1.0),
            ReduceOp::Max => Cell::infinity(true),
        };
    };
    if op == ReduceOp::Max {
        let largest = rest.iter().fold(*first, |largest, cell| max(largest, *cell));
        return if matches!(largest, Cell::Nan(_)) { Cell::nan() } else { largest };
    }
    if let Some(reason) = overflow_before_infinity(op, wide, group) {
        return Cell::Unspecified(reason);
    }
    // Sums that were rounded to f16 must not be reordered in f32.
    let term = |cell: &Cell| match cell {
        Cell::Real(real) if wide != to => Cell::Real(real.leaf()),
        _ => *cell,
    };
    let (cells, deepest) = group.iter().fold((0u32, 0), |(cells, deepest), cell| match cell {
        Cell::Real(real) if wide == to => {
            (cells.saturating_add(real.cells), real.depth.max(deepest))
        }
        _ => (cells.saturating_add(1), deepest),
    });
    let depth_max = match sums {
        SumDepth::Cascaded => reduction_depth(cells).saturating_add(deepest),
        SumDepth::Sequential => u32::MAX,
    };
    let total = rest.iter().fold(term(first), |total, cell| match op {
        ReduceOp::Sum => accumulate(wide, total, term(cell), depth_max),
        ReduceOp::Prod => mul(wide, total, term(cell)),
        ReduceOp::Max => max(total, *cell),
    });
    // The accumulator may start from the identity: 0 + -0 is 0, and NaN payloads may be lost.
    let total = match total {
        Cell::Real(real) if real.is_zero() && op == ReduceOp::Sum => {
            Cell::Real(Real { sign_free: true, cells, ..real })
        }
        Cell::Real(real) if op == ReduceOp::Sum => Cell::Real(Real { cells, ..real }),
        Cell::Nan(_) => Cell::nan(),
        total => total,
    };
    if wide == to { total } else { narrow(to, total) }
}

/// Returns `Overflow` if, in some order, finite elements overflow, or underflow to zero, before
/// they are combined with an infinite one, which then gives NaN.
fn overflow_before_infinity(op: ReduceOp, wide: DType, group: &[Cell]) -> Option<Reason> {
    if !group.iter().any(|cell| matches!(cell, Cell::Inf { .. })) {
        return None;
    }
    let format = format(wide);
    let reals = group.iter().filter_map(|cell| match cell {
        Cell::Real(real) => Some(real),
        _ => None,
    });
    let is_possible = match op {
        ReduceOp::Sum => {
            let mass: f64 = reals
                .map(|real| if real.chain == Chain::Sum { real.mass } else { real.magnitude() })
                .sum();
            mass >= format.overflow
        }
        ReduceOp::Prod => {
            let low: i32 = reals
                .filter(|real| real.hi != 0.0)
                .map(|real| highest_bit(real.hi).min(0))
                .fold(0, i32::saturating_add);
            low <= format.exponent_min
        }
        ReduceOp::Max => false,
    };
    is_possible.then_some(Reason::Overflow)
}

/// Rounds an accumulator to the result's dtype. Unlike a cast, a kernel may omit this rounding.
fn narrow(to: DType, total: Cell) -> Cell {
    let format = format(to);
    let real = match total {
        Cell::Real(real) => real.leaf(),
        total => return total,
    };
    if real.is_exact() && format.holds(real.hi) {
        return Cell::Real(real);
    }
    let rounding = rounding_unit(format) * real.magnitude() + format.floor;
    round_result(format, real, rounding, false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(op: ReduceOp, dtype: DType, values: &[f64]) -> Cell {
        let group: Vec<_> =
            values.iter().map(|v| Cell::from_bits(DType::F64, v.to_bits())).collect();
        reduce(op, SumDepth::Cascaded, dtype, &group)
    }

    fn exact(cell: Cell) -> Option<f64> {
        match cell {
            Cell::Real(real) if real.is_exact() => Some(real.hi),
            Cell::Inf { negative, .. } => {
                Some(if negative { f64::NEG_INFINITY } else { f64::INFINITY })
            }
            _ => None,
        }
    }

    #[test]
    fn integers_wrap_at_the_accumulator() {
        let integers = |op, dtype, bits: &[u64]| {
            let group: Vec<_> = bits.iter().map(|bits| Cell::Int(*bits)).collect();
            reduce(op, SumDepth::Cascaded, dtype, &group)
        };
        assert_eq!(integers(ReduceOp::Sum, DType::I8, &[0x80, 0x80]), Cell::Int(0xffff_ff00));
        assert_eq!(integers(ReduceOp::Sum, DType::U8, &[255, 255]), Cell::Int(510));
        assert_eq!(integers(ReduceOp::Sum, DType::Bool, &[1, 1, 1]), Cell::Int(3));
        assert_eq!(
            integers(ReduceOp::Prod, DType::U16, &[65535, 65535, 2]),
            Cell::Int(0xfffc_0002)
        );
        assert_eq!(integers(ReduceOp::Sum, DType::U64, &[u64::MAX, 2]), Cell::Int(1));
        assert_eq!(integers(ReduceOp::Max, DType::I8, &[]), Cell::Int(0x80));
        assert_eq!(integers(ReduceOp::Max, DType::Bool, &[0, 1]), Cell::Int(1));
        assert_eq!(integers(ReduceOp::Max, DType::I16, &[0xffff, 0x8000]), Cell::Int(0xffff));
        assert_eq!(integers(ReduceOp::Prod, DType::Bool, &[]), Cell::Int(1));
    }

    #[test]
    fn empty_group_gives_the_identity() {
        assert_eq!(exact(floats(ReduceOp::Sum, DType::F16, &[])), Some(0.0));
        assert_eq!(exact(floats(ReduceOp::Prod, DType::F64, &[])), Some(1.0));
        assert_eq!(exact(floats(ReduceOp::Max, DType::F32, &[])), Some(f64::NEG_INFINITY));
    }

    #[test]
    fn sums_are_exact_if_every_order_is_exact() {
        let many = vec![0.125; 1000];
        assert_eq!(exact(floats(ReduceOp::Sum, DType::F32, &many)), Some(125.0));
        assert_eq!(exact(floats(ReduceOp::Sum, DType::F16, &many)), Some(125.0));
        // 2049 needs 12 bits: exact in the f32 accumulator, then rounded to f16.
        let Cell::Real(real) = floats(ReduceOp::Sum, DType::F16, &[2048.0, 0.5, 0.5]) else {
            panic!("a number")
        };
        assert_eq!(real.hi, 2049.0);
        assert!(1.0 <= real.radius && real.radius < 1.01);
        let cancel = [2f64.powi(24), 1.0, -(2f64.powi(24))];
        assert_eq!(exact(floats(ReduceOp::Sum, DType::F32, &cancel)), None);
        assert_eq!(exact(floats(ReduceOp::Sum, DType::F64, &cancel)), Some(1.0));
    }

    /// Returns the sums with a single accumulator, and with partial sums of 128 numbers each.
    fn sequential_and_cascaded_sums(values: &[f32]) -> (f64, f64) {
        let mut parts = values.to_vec();
        while parts.len() > 1 {
            parts = parts.chunks(128).map(|part| part.iter().sum()).collect();
        }
        (f64::from(values.iter().sum::<f32>()), f64::from(parts[0]))
    }

    #[test]
    fn a_long_sum_with_a_single_accumulator_is_wrong() {
        let values = vec![0.1f32; 1 << 20];
        let (sequential, cascaded) = sequential_and_cascaded_sums(&values);
        let wide: Vec<f64> = values.iter().map(|value| f64::from(*value)).collect();
        let Cell::Real(real) = floats(ReduceOp::Sum, DType::F32, &wide) else { panic!("a number") };
        assert!((cascaded - real.hi).abs() <= real.radius, "{cascaded} of {real:?}");
        assert!((sequential - real.hi).abs() > real.radius, "{sequential} of {real:?}");
        // A sum of the sums of rows has the depth of the rows, too.
        let row = floats(ReduceOp::Sum, DType::F32, &wide[..1 << 10]);
        let Cell::Real(rows) =
            reduce(ReduceOp::Sum, SumDepth::Cascaded, DType::F32, &vec![row; 1 << 10])
        else {
            panic!("a number")
        };
        assert!(real.radius <= rows.radius && rows.radius < 2.0 * real.radius, "{rows:?}");
    }

    #[test]
    fn a_short_sum_may_have_a_single_accumulator() {
        let Cell::Real(real) = floats(ReduceOp::Sum, DType::F32, &[0.1; 256]) else {
            panic!("a number")
        };
        assert_eq!(real.depth, 255);
        assert_eq!(reduction_depth(1 << 20), 256 + 32 * 20);
    }

    #[test]
    fn overflow_in_some_order_is_unspecified() {
        let big = f64::from(f32::MAX);
        let overflow = Cell::Unspecified(Reason::Overflow);
        assert_eq!(floats(ReduceOp::Sum, DType::F32, &[big, -big, big]), overflow);
        assert_eq!(floats(ReduceOp::Prod, DType::F32, &[big, 0.0, big]), overflow);
        assert_eq!(floats(ReduceOp::Sum, DType::F32, &[f64::INFINITY, -big, -big]), overflow);
        assert_eq!(floats(ReduceOp::Prod, DType::F32, &[f64::INFINITY, 1e-40, 1e-40]), overflow);
        let fine = floats(ReduceOp::Sum, DType::F32, &[f64::INFINITY, 1.0, -3.0]);
        assert_eq!(exact(fine), Some(f64::INFINITY));
        let f16 = floats(ReduceOp::Sum, DType::F16, &[60000.0, 60000.0, -60000.0]);
        assert_eq!(exact(f16), Some(60000.0));
        let over = floats(ReduceOp::Sum, DType::F16, &[60000.0, 60000.0]);
        assert_eq!(exact(over), Some(f64::INFINITY));
    }

    #[test]
    fn nan_and_mixed_infinities_give_nan() {
        let inf = f64::INFINITY;
        assert!(matches!(floats(ReduceOp::Sum, DType::F32, &[inf, -inf]), Cell::Nan(None)));
        assert!(matches!(floats(ReduceOp::Max, DType::F32, &[1.0, f64::NAN, inf]), Cell::Nan(_)));
        assert!(matches!(floats(ReduceOp::Prod, DType::F16, &[0.0, inf]), Cell::Nan(None)));
        for op in ReduceOp::ALL {
            assert!(matches!(floats(op, DType::F64, &[f64::NAN]), Cell::Nan(None)));
        }
    }

    #[test]
    fn a_sum_of_a_zero_may_include_the_identity() {
        assert_eq!(floats(ReduceOp::Sum, DType::F32, &[-0.0]), Cell::zero(None));
        assert_eq!(
            exact(floats(ReduceOp::Prod, DType::F32, &[-0.0])).map(f64::to_bits),
            Some(1 << 63)
        );
    }
}
