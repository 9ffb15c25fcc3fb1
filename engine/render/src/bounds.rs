//! Overflow analysis of integers. Most index arithmetic is proven to stay within its type. So a
//! language in which signed overflow is undefined does not need unsigned arithmetic for it.

use gradiff_graph::interval::Interval;
use gradiff_graph::interval::unwrapped;
use gradiff_graph::{Arg, Linear, Op};

/// Returns for each uop whether its signed arithmetic may be undefined: the result, or the product
/// of a multiply-add, may exceed the type, the op may be undefined, or a value that may be negative
/// is shifted left. Also true where no interval is known, as of loads and floats.
pub fn find_wrapping(linear: &Linear) -> Vec<bool> {
    analyse(linear).1
}

/// Returns for each uop an interval that contains its value, if it is an integer.
pub(crate) fn intervals(linear: &Linear) -> Vec<Option<Interval>> {
    analyse(linear).0
}

fn analyse(linear: &Linear) -> (Vec<Option<Interval>>, Vec<bool>) {
    let mut bounds: Vec<Option<Interval>> = Vec::with_capacity(linear.uops.len());
    let mut is_wrapping = Vec::with_capacity(linear.uops.len());
    for uop in &linear.uops {
        let source_bounds =
            |number: usize| bounds.get(*uop.src.get(number)? as usize).copied().flatten();
        let range = uop.dtype.int_range();
        let unwrapped_bounds = match uop.op {
            Op::Vectorize if uop.src.len() == 1 => source_bounds(0),
            op => unwrapped((op, uop.dtype, &uop.arg), &source_bounds),
        };
        let fits = |(low, high): &Interval| range.is_some_and(|r| r.0 <= *low && *high <= r.1);
        let bounds_without_wrap = unwrapped_bounds.filter(fits);
        // The product of a multiply-add may exceed the type though the sum does not.
        let product = || unwrapped((Op::Mul, uop.dtype, &Arg::None), &source_bounds).filter(fits);
        let is_large_product = uop.op == Op::MulAcc && product().is_none();
        // Shifting a negative value left is undefined in C++ before 2020.
        let is_negative_shift =
            uop.op == Op::Shl && source_bounds(0).is_none_or(|(low, _)| low < 0);
        let is_undefined = is_negative_shift || is_large_product;
        is_wrapping.push(bounds_without_wrap.is_none() || is_undefined);
        bounds.push(bounds_without_wrap.or(range));
    }
    (bounds, is_wrapping)
}

#[cfg(test)]
mod tests {
    use gradiff_graph::{Constant, DType, Instruction};

    use super::*;

    /// Checks whether `i op constant`, for i from 0 to `count - 1`, is found to wrap in i32.
    fn check(op: Op, count: i128, constant: i128, expected: bool) {
        let int = |value| Arg::Const(Constant::int(DType::I32, value));
        let row = |op, src: &[u32], arg| Instruction::new(op, DType::I32, src.iter().copied(), arg);
        let uops = vec![
            row(Op::Const, &[], int(count)),
            row(Op::Range, &[0], Arg::plain_axis(0)),
            row(Op::Const, &[], int(constant)),
            row(op, &[1, 2], Arg::None),
        ];
        let linear = Linear { name: "E".into(), uops };
        assert_eq!(find_wrapping(&linear)[3], expected, "{op} of {count} and {constant}");
    }

    #[test]
    fn left_shift_of_possibly_negative_value_wraps() {
        let int = |value| Arg::Const(Constant::int(DType::I32, value));
        let row = |op, src: &[u32], arg| Instruction::new(op, DType::I32, src.iter().copied(), arg);
        let wrapping_of_shift = |offset: i128| {
            let uops = vec![
                row(Op::Const, &[], int(4)),
                row(Op::Range, &[0], Arg::plain_axis(0)),
                row(Op::Const, &[], int(offset)),
                row(Op::Add, &[1, 2], Arg::None),
                row(Op::Const, &[], int(1)),
                row(Op::Shl, &[3, 4], Arg::None),
            ];
            find_wrapping(&Linear { name: "E".into(), uops })
        };
        assert_eq!(wrapping_of_shift(0), [false; 6]);
        assert_eq!(wrapping_of_shift(-1), [false, false, false, false, false, true]);
    }

    #[test]
    fn product_of_a_multiply_add_may_wrap_alone() {
        let int = |value| Arg::Const(Constant::int(DType::I32, value));
        let row = |op, src: &[u32], arg| Instruction::new(op, DType::I32, src.iter().copied(), arg);
        let global = gradiff_graph::Global { slot: 0, size_elements: 1 };
        let uops = vec![
            row(Op::DefineGlobal, &[], Arg::Global(global)),
            row(Op::Const, &[], int(0)),
            row(Op::Index, &[0, 1], Arg::None),
            row(Op::Load, &[2], Arg::None),
            row(Op::Const, &[], int(-1)),
            // -1 * x - 1 fits for each x, but -1 * x does not.
            row(Op::MulAcc, &[4, 3, 4], Arg::None),
            row(Op::MulAcc, &[4, 4, 4], Arg::None),
        ];
        let wrapping = find_wrapping(&Linear { name: "E".into(), uops });
        assert_eq!(wrapping[5..], [true, false]);
    }

    #[test]
    fn op_wraps_exactly_if_its_interval_exceeds_the_type() {
        check(Op::Mul, 1 << 16, 1 << 15, false);
        check(Op::Mul, (1 << 16) + 2, 1 << 15, true);
        check(Op::Add, 1 << 30, 1 << 30, false);
        check(Op::Add, 1 << 30, (1 << 30) + 1, true);
        check(Op::Sub, 2, i128::from(i32::MAX), false);
        check(Op::Shl, 4, 2, false);
        check(Op::Shl, 4, 30, true);
        check(Op::Shl, 4, -1, true);
        check(Op::CMod, 4, 0, true);
    }
}
