//! Reductions of a group of elements. A float sum or product may be taken in any order, so the
//! group is checked first for overflows that any order might have.

use gradiff_corpus::{DType, ReduceOp};

use crate::arithmetic::{
    accumulate, max, mul, on_side, reduction_depth, round_result, rounding_error, size_of,
    sum_may_overflow,
};
use crate::cell::{Cell, Real, Reason};
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
    let mut running = Running::new(op, sums, from);
    group.iter().for_each(|cell| running.push(*cell));
    running.result()
}

/// A reduction of the elements so far.
pub(crate) struct Running {
    op: ReduceOp,
    sums: SumDepth,
    from: DType,
    to: DType,
    /// An element that is the result, whatever the rest is: NaN, or else one that is unspecified.
    decisive: Option<Cell>,
    /// The result for integers. Wrapping at 128 bits does not change it modulo the dtype's width.
    number: i128,
    /// The result for floats, in the accumulator's dtype.
    total: Option<Cell>,
    has_infinity: bool,
    /// The sum of the magnitudes of the finite elements, and the exponent of the product of those
    /// below 1.
    mass: f64,
    low: i32,
    /// Number of terms of the sum, zeros and those of elements that are sums included.
    cells: u32,
    /// Maximum number of additions that a term of an element passed through.
    deepest: u32,
    /// Maximum number of additions that a term passed through in the order of the elements.
    additions: u32,
}

impl Running {
    /// A reduction of no elements of dtype `from`.
    pub(crate) fn new(op: ReduceOp, sums: SumDepth, from: DType) -> Running {
        let to = reduced(op, from);
        let number = match op {
            ReduceOp::Sum => 0,
            ReduceOp::Prod => 1,
            ReduceOp::Max if to.is_float() => 0,
            ReduceOp::Max => integer::value(to, integer::smallest(to)),
        };
        Running {
            op,
            sums,
            from,
            to,
            decisive: None,
            number,
            total: None,
            has_infinity: false,
            mass: 0.0,
            low: 0,
            cells: 0,
            deepest: 0,
            additions: 0,
        }
    }

    /// Adds an element to the group.
    pub(crate) fn push(&mut self, cell: Cell) {
        match cell {
            Cell::Nan(_) => self.decisive = Some(Cell::nan()),
            Cell::Unspecified(_) => {
                self.decisive.get_or_insert(cell);
            }
            Cell::Int(bits) => {
                let number = integer::value(self.from, bits);
                self.number = match self.op {
                    ReduceOp::Sum => self.number.wrapping_add(number),
                    ReduceOp::Prod => self.number.wrapping_mul(number),
                    ReduceOp::Max => self.number.max(number),
                };
            }
            Cell::Real(_) | Cell::Inf { .. } if self.op == ReduceOp::Max => {
                self.total = Some(self.total.map_or(cell, |total| max(total, cell)));
            }
            Cell::Real(_) | Cell::Inf { .. } => self.push_float(cell),
        }
    }

    /// Adds a term to a sum, or a factor to a product.
    fn push_float(&mut self, cell: Cell) {
        let wide = accumulator(self.to);
        // Sums that were rounded to f16 must not be reordered in f32.
        let cell = match cell {
            Cell::Real(real) if wide != self.to => Cell::Real(real.leaf()),
            cell => cell,
        };
        if let Cell::Real(real) = cell {
            self.cells = self.cells.saturating_add(real.cells);
            self.deepest = self.deepest.max(real.additions());
            self.mass += if real.is_sum() { real.mass } else { real.magnitude() };
            if real.hi != 0.0 {
                self.low = self.low.saturating_add(highest_bit(real.hi).min(0));
            }
        } else {
            self.cells = self.cells.saturating_add(1);
            self.has_infinity = true;
        }
        let depth_max = self.depth_max();
        self.total = Some(match self.total {
            None => {
                self.additions = self.deepest;
                cell
            }
            Some(total) if self.op == ReduceOp::Sum => {
                accumulate(wide, total, cell, &mut self.additions, depth_max)
            }
            Some(total) => mul(wide, total, cell),
        });
    }

    fn depth_max(&self) -> u32 {
        match self.sums {
            SumDepth::Cascaded => reduction_depth(self.cells).saturating_add(self.deepest),
            SumDepth::Sequential => u32::MAX,
        }
    }

    /// Returns the reduction of the elements so far.
    pub(crate) fn result(&self) -> Cell {
        if let Some(cell) = self.decisive {
            return cell;
        }
        if !self.to.is_float() {
            return Cell::Int(integer::wrap(self.to, self.number));
        }
        match (self.op, self.total) {
            (ReduceOp::Sum, None) => Cell::zero(None),
            (ReduceOp::Prod, None) => Cell::exact(1.0),
            (ReduceOp::Max, None) => Cell::infinity(true),
            (ReduceOp::Max, Some(total)) => total,
            (_, Some(_)) if self.overflows_before_infinity() => Cell::Unspecified(Reason::Overflow),
            (_, Some(total)) => self.narrowed(total),
        }
    }

    /// Returns whether, in some order, finite elements overflow, or underflow to zero, before they
    /// are combined with an infinite one, which then gives NaN.
    fn overflows_before_infinity(&self) -> bool {
        let format = format(accumulator(self.to));
        self.has_infinity
            && match self.op {
                ReduceOp::Sum => {
                    sum_may_overflow(format, self.depth_max().min(self.cells), self.mass)
                }
                ReduceOp::Prod => self.low <= format.exponent_min,
                ReduceOp::Max => false,
            }
    }

    /// Returns a sum or product in the result's dtype. The accumulator may start from the identity:
    /// 0 + -0 is 0.
    fn narrowed(&self, total: Cell) -> Cell {
        let total = match total {
            Cell::Real(real) if self.op == ReduceOp::Sum => {
                Cell::Real(Real { zero_sign: None, cells: self.cells, ..real })
            }
            total => total,
        };
        if accumulator(self.to) == self.to { total } else { narrow(self.to, total) }
    }
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
    let rounding = rounding_error(format, size_of(real.hi, real.lo, real.radius));
    on_side(real.side(), round_result(format, real, rounding, false))
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
    fn roundings_of_other_orders_may_overflow() {
        let overflow = Cell::Unspecified(Reason::Overflow);
        // The first two terms make the largest number; rounded up, the last two make too much.
        let terms = [12_582_911.0 * 2f64.powi(104), 2f64.powi(126), 7.0 * 2f64.powi(100)];
        assert_eq!(floats(ReduceOp::Sum, DType::F32, &terms), overflow);
        let infinite = [&terms[..], &[f64::NEG_INFINITY]].concat();
        assert_eq!(floats(ReduceOp::Sum, DType::F32, &infinite), overflow);
        let factors = [25.0, 12_094_627_905_536.0, f64::from(1.125_4e24f32)];
        assert_eq!(floats(ReduceOp::Prod, DType::F32, &factors), overflow);
        // What no order rounds is as large as numbers can be.
        let largest = f64::from(f32::MAX);
        let terms = [2f64.powi(127), 2f64.powi(126), largest - 1.5 * 2f64.powi(127)];
        assert_eq!(exact(floats(ReduceOp::Sum, DType::F32, &terms)), Some(largest));
    }

    #[test]
    fn each_rounding_near_zero_is_multiplied_by_what_is_left() {
        let small = f32::from_bits(1000);
        let group = [1e30, 0.99951, 0.99951, 0.99951, 0.99951, small];
        let wide: Vec<f64> = group.iter().map(|x| f64::from(*x)).collect();
        let Cell::Real(real) = floats(ReduceOp::Prod, DType::F32, &wide) else {
            panic!("a number")
        };
        // From the back, the small number stays what it is, four times.
        let backwards: f32 = group.iter().rev().product();
        assert_eq!(backwards, small * 1e30);
        assert!((f64::from(backwards) - real.hi).abs() <= real.radius, "{real:?}");
        assert!(real.radius < 1e-14, "{real:?}");
        // Factors of 1 round nothing.
        let Cell::Real(same) = floats(ReduceOp::Prod, DType::F32, &[&wide[..], &[1.0; 9]].concat())
        else {
            panic!("a number")
        };
        assert!(same.radius < 1.5 * real.radius, "{same:?}");
    }

    #[test]
    fn nan_and_mixed_infinities_give_nan() {
        let inf = f64::INFINITY;
        assert!(matches!(floats(ReduceOp::Sum, DType::F32, &[inf, -inf]), Cell::Nan(None)));
        assert!(matches!(floats(ReduceOp::Max, DType::F32, &[1.0, f64::NAN, inf]), Cell::Nan(_)));
        assert!(matches!(floats(ReduceOp::Prod, DType::F16, &[0.0, inf]), Cell::Nan(None)));
        for op in ReduceOp::ALL {
            assert!(matches!(floats(op, DType::F64, &[f64::NAN]), Cell::Nan(None)));
            let group = [Cell::Unspecified(Reason::DivisionByZero), Cell::nan()];
            assert_eq!(reduce(op, SumDepth::Cascaded, DType::F32, &group), Cell::nan());
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
