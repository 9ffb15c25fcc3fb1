//! Which integers cannot leave their type: most of what indices are made of. Languages in which
//! signed arithmetic must not overflow need no detour for them.

use gradiff_graph::{Interval, Linear, Op, unwrapped};

/// For each uop: whether it is a sum, product or shift whose value may have to be wrapped, or a
/// shift of what may be negative. The texts take it of all others that signed integers do not leave
/// their type.
pub fn find_wrapping(linear: &Linear) -> Vec<bool> {
    let mut bounds: Vec<Option<Interval>> = Vec::with_capacity(linear.uops.len());
    let mut is_wrapping = Vec::with_capacity(linear.uops.len());
    for uop in &linear.uops {
        let of = |number: usize| bounds.get(*uop.src.get(number)? as usize).copied().flatten();
        let range = uop.dtype.int_range();
        let exact = unwrapped(uop, &of);
        let fits = |(low, high): &Interval| range.is_some_and(|r| r.0 <= *low && *high <= r.1);
        let inside = exact.filter(fits);
        // C++ before 2020 leaves open what a negative value shifted left is.
        let is_negative_shift = uop.op == Op::Shl && of(0).is_none_or(|(low, _)| low < 0);
        is_wrapping.push(inside.is_none() || is_negative_shift);
        bounds.push(inside.or(range));
    }
    is_wrapping
}

#[cfg(test)]
mod tests {
    use gradiff_graph::{Arg, Constant, DType, Instruction};

    use super::*;

    /// Whether `range(steps) op constant` may wrap in i32.
    fn check(op: Op, steps: i128, by: i128, expected: bool) {
        let int = |value| Arg::Const(Constant::int(DType::I32, value));
        let row = |op, src: &[u32], arg| Instruction::new(op, DType::I32, src.iter().copied(), arg);
        let uops = vec![
            row(Op::Const, &[], int(steps)),
            row(Op::Range, &[0], Arg::plain_axis(0)),
            row(Op::Const, &[], int(by)),
            row(op, &[1, 2], Arg::None),
        ];
        let linear = Linear { name: "E".into(), uops };
        assert_eq!(find_wrapping(&linear)[3], expected, "{op} of {steps} and {by}");
    }

    #[test]
    fn a_negative_value_is_shifted_as_unsigned() {
        let int = |value| Arg::Const(Constant::int(DType::I32, value));
        let row = |op, src: &[u32], arg| Instruction::new(op, DType::I32, src.iter().copied(), arg);
        let shifted = |by: i128| {
            let uops = vec![
                row(Op::Const, &[], int(4)),
                row(Op::Range, &[0], Arg::plain_axis(0)),
                row(Op::Const, &[], int(by)),
                row(Op::Add, &[1, 2], Arg::None),
                row(Op::Const, &[], int(1)),
                row(Op::Shl, &[3, 4], Arg::None),
            ];
            find_wrapping(&Linear { name: "E".into(), uops })
        };
        assert_eq!(shifted(0), [false; 6]);
        assert_eq!(shifted(-1), [false, false, false, false, false, true]);
    }

    #[test]
    fn what_fits_does_not_wrap() {
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
