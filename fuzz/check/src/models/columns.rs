//! Columns: one value for each of many points, computed op by op instead of point by point.
//!
//! Values are integers that wrap at the width of their dtype; bools are 1 or 0. They are held as
//! `i32` if all dtypes are i32 or bool, else as `i128`. A value may be undefined (a division by
//! zero, a shift out of range), and so is every value computed from it.

use gradiff::graph::DType;
use gradiff_corpus::ExprBinary;

/// The representation of a value, and arithmetic on it before it is truncated to the width of a
/// dtype.
pub(crate) trait Number: Copy + Default + Ord + From<bool> {
    fn of(value: i128) -> Self;
    fn get(self) -> i128;
    /// The value of the dtype with the same low bits; for bool, 1 if it is not 0.
    fn cut(self, dtype: DType) -> Self;
    fn add(self, y: Self) -> Self;
    fn sub(self, y: Self) -> Self;
    fn mul(self, y: Self) -> Self;
    fn cdiv(self, y: Self) -> Self;
    fn cmod(self, y: Self) -> Self;
    fn floordiv(self, y: Self) -> Self;
    fn floormod(self, y: Self) -> Self;
    fn and(self, y: Self) -> Self;
    fn xor(self, y: Self) -> Self;
    fn shl(self, y: Self) -> Self;
    fn shr(self, y: Self) -> Self;
}

macro_rules! number {
    ($of:ty, $cut:expr) => {
        impl Number for $of {
            fn of(value: i128) -> $of {
                value as $of
            }
            fn get(self) -> i128 {
                self.into()
            }
            fn cut(self, dtype: DType) -> $of {
                $cut(self, dtype)
            }
            fn add(self, y: $of) -> $of {
                self.wrapping_add(y)
            }
            fn sub(self, y: $of) -> $of {
                self.wrapping_sub(y)
            }
            fn mul(self, y: $of) -> $of {
                self.wrapping_mul(y)
            }
            fn cdiv(self, y: $of) -> $of {
                self.wrapping_div(y)
            }
            fn cmod(self, y: $of) -> $of {
                self.wrapping_rem(y)
            }
            fn floordiv(self, y: $of) -> $of {
                let is_above = self.wrapping_rem(y) != 0 && (self < 0) != (y < 0);
                self.wrapping_div(y).wrapping_sub(is_above.into())
            }
            fn floormod(self, y: $of) -> $of {
                let rest = self.wrapping_rem(y);
                if rest != 0 && (rest < 0) != (y < 0) { rest + y } else { rest }
            }
            fn and(self, y: $of) -> $of {
                self & y
            }
            fn xor(self, y: $of) -> $of {
                self ^ y
            }
            fn shl(self, y: $of) -> $of {
                self << y
            }
            fn shr(self, y: $of) -> $of {
                self >> y
            }
        }
    };
}

number!(i32, |value: i32, dtype| if dtype == DType::Bool { (value != 0).into() } else { value });
number!(i128, cut_wide);

fn cut_wide(value: i128, dtype: DType) -> i128 {
    let rest = i128::BITS - gradiff_eval::scalar::bits(dtype);
    match dtype {
        DType::Bool => i128::from(value != 0),
        DType::I8 | DType::I16 | DType::I32 | DType::I64 => value << rest >> rest,
        _ => ((value as u128) << rest >> rest) as i128,
    }
}

/// The values of one expression at all points.
#[derive(Clone, Debug, Default)]
pub(crate) struct Column<T> {
    values: Vec<T>,
    /// True at points without a value; empty if all have one.
    undefined: Vec<bool>,
}

impl<T: Number> Column<T> {
    /// A column that is defined everywhere.
    pub(crate) fn new(values: Vec<T>) -> Column<T> {
        Column { values, undefined: Vec::new() }
    }

    /// The same value at `count` points.
    pub(crate) fn repeated(value: T, count: usize) -> Column<T> {
        Column::new(vec![value; count])
    }

    /// The value at each point; `None` where it is undefined.
    pub(crate) fn from_options(values: impl Iterator<Item = Option<T>>) -> Column<T> {
        let (mut column, mut has_hole) =
            (Column { values: Vec::new(), undefined: Vec::new() }, false);
        for value in values {
            has_hole |= value.is_none();
            column.undefined.push(value.is_none());
            column.values.push(value.unwrap_or_default());
        }
        if !has_hole {
            column.undefined.clear();
        }
        column
    }

    /// The value at a point; `None` if it is undefined there.
    pub(crate) fn at(&self, point: usize) -> Option<T> {
        let is_undefined = self.undefined.get(point).copied().unwrap_or_default();
        (!is_undefined).then(|| self.values[point])
    }

    /// Applies a function to each value.
    pub(crate) fn map(&self, function: impl Fn(T) -> T) -> Column<T> {
        let values = self.values.iter().map(|value| function(*value)).collect();
        Column { values, undefined: self.undefined.clone() }
    }

    /// Combines two columns, point by point.
    fn zip(&self, right: &Column<T>, function: impl Fn(T, T) -> T) -> Column<T> {
        let pairs = self.values.iter().zip(&right.values);
        let values = pairs.map(|(x, y)| function(*x, *y)).collect();
        let undefined = match (self.undefined.is_empty(), right.undefined.is_empty()) {
            (true, _) => right.undefined.clone(),
            (_, true) => self.undefined.clone(),
            _ => self.undefined.iter().zip(&right.undefined).map(|(x, y)| x | y).collect(),
        };
        Column { values, undefined }
    }

    /// As `zip`, but undefined where `is_defined` fails for the second operand.
    fn zip_where(
        &self,
        right: &Column<T>,
        is_defined: impl Fn(T) -> bool,
        function: impl Fn(T, T) -> T,
    ) -> Column<T> {
        let mut column =
            self.zip(right, |x, y| if is_defined(y) { function(x, y) } else { T::default() });
        if !right.values.iter().all(|y| is_defined(*y)) {
            column.undefined.resize(self.values.len(), false);
            let holes = column.undefined.iter_mut().zip(&right.values);
            holes.for_each(|(hole, y)| *hole |= !is_defined(*y));
        }
        column
    }

    /// `x` where this column is true, else `y`; a value that is not chosen may be undefined.
    pub(crate) fn select(&self, x: &Column<T>, y: &Column<T>) -> Column<T> {
        let choices = self.values.iter().zip(x.values.iter().zip(&y.values));
        let values =
            choices.map(|(is_first, (x, y))| if *is_first != T::default() { *x } else { *y });
        let values = values.collect();
        if [self, x, y].iter().all(|column| column.undefined.is_empty()) {
            return Column::new(values);
        }
        let is_hole =
            |column: &Column<T>, point| column.undefined.get(point).copied().unwrap_or_default();
        let undefined = (0..self.values.len()).map(|point| {
            let chosen = if self.values[point] != T::default() { x } else { y };
            is_hole(self, point) || is_hole(chosen, point)
        });
        Column { values, undefined: undefined.collect() }
    }

    /// Applies an op to two operands of one dtype, integers or bools.
    pub(crate) fn binary(op: ExprBinary, dtype: DType, x: &Column<T>, y: &Column<T>) -> Column<T> {
        let is_divisor = |y| y != T::default();
        let bits = T::of(gradiff_eval::scalar::bits(dtype).into());
        let is_shift = |y| T::default() <= y && y < bits;
        match op {
            ExprBinary::Add => x.zip(y, |x, y| x.add(y).cut(dtype)),
            ExprBinary::Sub => x.zip(y, |x, y| x.sub(y).cut(dtype)),
            ExprBinary::Mul => x.zip(y, |x, y| x.mul(y).cut(dtype)),
            ExprBinary::Max => x.zip(y, T::max),
            ExprBinary::Min => x.zip(y, T::min),
            ExprBinary::Lt => x.zip(y, |x, y| T::from(x < y)),
            ExprBinary::Ne => x.zip(y, |x, y| T::from(x != y)),
            ExprBinary::Eq => x.zip(y, |x, y| T::from(x == y)),
            ExprBinary::And => x.zip(y, T::and),
            ExprBinary::Or => x.zip(y, |x, y| x.xor(y).xor(x.and(y))),
            ExprBinary::Xor => x.zip(y, T::xor),
            ExprBinary::Shl => x.zip_where(y, is_shift, |x, y| x.shl(y).cut(dtype)),
            ExprBinary::Shr => x.zip_where(y, is_shift, T::shr),
            ExprBinary::CDiv => x.zip_where(y, is_divisor, |x, y| x.cdiv(y).cut(dtype)),
            ExprBinary::CMod => x.zip_where(y, is_divisor, T::cmod),
            ExprBinary::FloorDiv => x.zip_where(y, is_divisor, |x, y| x.floordiv(y).cut(dtype)),
            ExprBinary::FloorMod => x.zip_where(y, is_divisor, T::floormod),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_as<T: Number + std::fmt::Debug>(
        op: ExprBinary,
        dtype: DType,
        pairs: &[(i128, i128)],
        expected: &[Option<i128>],
    ) {
        let x = Column::new(pairs.iter().map(|(x, _)| T::of(*x)).collect());
        let y = Column::new(pairs.iter().map(|(_, y)| T::of(*y)).collect());
        let found = Column::binary(op, dtype, &x, &y);
        let found: Vec<_> = (0..pairs.len()).map(|point| found.at(point).map(T::get)).collect();
        assert_eq!(found, expected, "{op:?} of {pairs:?}");
    }

    /// Checks that both representations give the expected values.
    fn check(op: ExprBinary, pairs: &[(i32, i32)], expected: &[Option<i32>]) {
        let pairs: Vec<_> = pairs.iter().map(|(x, y)| (i128::from(*x), i128::from(*y))).collect();
        let expected: Vec<_> = expected.iter().map(|value| value.map(i128::from)).collect();
        check_as::<i32>(op, DType::I32, &pairs, &expected);
        check_as::<i128>(op, DType::I32, &pairs, &expected);
    }

    #[test]
    fn values_wrap_at_their_own_width() {
        use ExprBinary::*;
        let cases = [
            (Add, DType::U8, (200, 100), Some(44)),
            (Sub, DType::U8, (1, 2), Some(255)),
            (Mul, DType::I8, (64, 2), Some(-128)),
            (CDiv, DType::I16, (-32768, -1), Some(-32768)),
            (FloorDiv, DType::U8, (255, 2), Some(127)),
            (Mul, DType::U64, (u64::MAX.into(), u64::MAX.into()), Some(1)),
            (Shr, DType::U64, (u64::MAX.into(), 63), Some(1)),
            (Shl, DType::I8, (3, 7), Some(-128)),
            (Shl, DType::I8, (3, 8), None),
            (Lt, DType::U32, (1, u32::MAX.into()), Some(1)),
        ];
        for (op, dtype, pair, expected) in cases {
            check_as::<i128>(op, dtype, &[pair], &[expected]);
        }
        assert_eq!(256i128.cut(DType::U8), 0);
        assert_eq!(255i128.cut(DType::I8), -1);
        assert_eq!(256i128.cut(DType::Bool), 1);
    }

    #[test]
    fn divisions_floor_and_truncate() {
        let pairs = [(-7, 2), (7, -2), (-8, 2), (1, 0), (i32::MIN, -1)];
        let min = Some(i32::MIN);
        check(ExprBinary::FloorDiv, &pairs, &[Some(-4), Some(-4), Some(-4), None, min]);
        check(ExprBinary::FloorMod, &pairs, &[Some(1), Some(-1), Some(0), None, Some(0)]);
        check(ExprBinary::CDiv, &pairs, &[Some(-3), Some(-3), Some(-4), None, min]);
        check(ExprBinary::CMod, &pairs, &[Some(-1), Some(1), Some(0), None, Some(0)]);
    }

    #[test]
    fn shifts_out_of_range_are_undefined() {
        let pairs = [(3, 31), (-3, 1), (1, 32), (1, -1)];
        check(ExprBinary::Shl, &pairs, &[Some(i32::MIN), Some(-6), None, None]);
        check(ExprBinary::Shr, &pairs, &[Some(0), Some(-2), None, None]);
    }

    #[test]
    fn select_ignores_what_is_not_chosen() {
        let zeros = Column::repeated(0i32, 2);
        let holes = Column::binary(ExprBinary::CDiv, DType::I32, &zeros, &Column::new(vec![0, 1]));
        let ones = Column::repeated(1i32, 2);
        let chosen = ones.select(&ones, &holes);
        assert_eq!([chosen.at(0), chosen.at(1)], [Some(1), Some(1)]);
        let chosen = zeros.select(&ones, &holes);
        assert_eq!([chosen.at(0), chosen.at(1)], [None, Some(0)]);
        let chosen = holes.select(&ones, &ones);
        assert_eq!([chosen.at(0), chosen.at(1)], [None, Some(1)]);
    }
}
