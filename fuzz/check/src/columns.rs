//! Columns: one value for each of many points, computed op by op instead of point by point.
//!
//! Values are 32-bit integers that wrap; truth is 1 or 0. A value may be undefined (a division by
//! zero, a shift out of range), and so is what is computed from it.

use gradiff_corpus::ExprBinary;

/// The values of one expression at all points.
#[derive(Clone, Debug, Default)]
pub(crate) struct Column {
    values: Vec<i32>,
    /// Where there is no value; empty if there is one everywhere.
    undefined: Vec<bool>,
}

impl Column {
    /// Defined everywhere.
    pub(crate) fn new(values: Vec<i32>) -> Column {
        Column { values, undefined: Vec::new() }
    }

    /// The same value at `count` points.
    pub(crate) fn repeated(value: i32, count: usize) -> Column {
        Column::new(vec![value; count])
    }

    /// The value at each point; `None` where it is undefined.
    pub(crate) fn from_options(values: impl Iterator<Item = Option<i32>>) -> Column {
        let (mut column, mut has_hole) = (Column::default(), false);
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
    pub(crate) fn at(&self, point: usize) -> Option<i32> {
        let is_undefined = self.undefined.get(point).copied().unwrap_or_default();
        (!is_undefined).then(|| self.values[point])
    }

    /// Each value changed.
    pub(crate) fn map(&self, function: impl Fn(i32) -> i32) -> Column {
        let values = self.values.iter().map(|value| function(*value)).collect();
        Column { values, undefined: self.undefined.clone() }
    }

    /// Two columns put together, point by point.
    fn zip(&self, other: &Column, function: impl Fn(i32, i32) -> i32) -> Column {
        let pairs = self.values.iter().zip(&other.values);
        let values = pairs.map(|(x, y)| function(*x, *y)).collect();
        let undefined = match (self.undefined.is_empty(), other.undefined.is_empty()) {
            (true, _) => other.undefined.clone(),
            (_, true) => self.undefined.clone(),
            _ => self.undefined.iter().zip(&other.undefined).map(|(x, y)| x | y).collect(),
        };
        Column { values, undefined }
    }

    /// As `zip`, but undefined where `is_good` fails for the second operand.
    fn zip_where(
        &self,
        other: &Column,
        is_good: impl Fn(i32) -> bool,
        function: impl Fn(i32, i32) -> i32,
    ) -> Column {
        let mut column = self.zip(other, |x, y| if is_good(y) { function(x, y) } else { 0 });
        if !other.values.iter().all(|y| is_good(*y)) {
            column.undefined.resize(self.values.len(), false);
            let holes = column.undefined.iter_mut().zip(&other.values);
            holes.for_each(|(hole, y)| *hole |= !is_good(*y));
        }
        column
    }

    /// `x` where this is true, else `y`; what is not chosen does not matter.
    pub(crate) fn select(&self, x: &Column, y: &Column) -> Column {
        let choices = self.values.iter().zip(x.values.iter().zip(&y.values));
        let values = choices.map(|(is_first, (x, y))| if *is_first != 0 { *x } else { *y });
        let values = values.collect();
        let all = [self, x, y];
        if all.iter().all(|column| column.undefined.is_empty()) {
            return Column::new(values);
        }
        let is_hole =
            |column: &Column, point| column.undefined.get(point).copied().unwrap_or_default();
        let undefined = (0..self.values.len()).map(|point| {
            let chosen = if self.values[point] != 0 { x } else { y };
            is_hole(self, point) || is_hole(chosen, point)
        });
        Column { values, undefined: undefined.collect() }
    }

    /// The op of two operands, integers or truths.
    pub(crate) fn binary(op: ExprBinary, x: &Column, y: &Column) -> Column {
        let is_divisor = |y| y != 0;
        let is_shift = |y| (0..32).contains(&y);
        match op {
            ExprBinary::Add => x.zip(y, i32::wrapping_add),
            ExprBinary::Sub => x.zip(y, i32::wrapping_sub),
            ExprBinary::Mul => x.zip(y, i32::wrapping_mul),
            ExprBinary::Max => x.zip(y, i32::max),
            ExprBinary::Min => x.zip(y, i32::min),
            ExprBinary::Lt => x.zip(y, |x, y| i32::from(x < y)),
            ExprBinary::Ne => x.zip(y, |x, y| i32::from(x != y)),
            ExprBinary::Eq => x.zip(y, |x, y| i32::from(x == y)),
            ExprBinary::And => x.zip(y, |x, y| x & y),
            ExprBinary::Or => x.zip(y, |x, y| x | y),
            ExprBinary::Xor => x.zip(y, |x, y| x ^ y),
            ExprBinary::Shl => x.zip_where(y, is_shift, |x, y| x << y),
            ExprBinary::Shr => x.zip_where(y, is_shift, |x, y| x >> y),
            ExprBinary::CDiv => x.zip_where(y, is_divisor, i32::wrapping_div),
            ExprBinary::CMod => x.zip_where(y, is_divisor, i32::wrapping_rem),
            ExprBinary::FloorDiv => x.zip_where(y, is_divisor, floor_quotient),
            ExprBinary::FloorMod => x.zip_where(y, is_divisor, floor_rest),
        }
    }
}

fn floor_quotient(x: i32, y: i32) -> i32 {
    let is_above = x.wrapping_rem(y) != 0 && (x < 0) != (y < 0);
    x.wrapping_div(y).wrapping_sub(i32::from(is_above))
}

fn floor_rest(x: i32, y: i32) -> i32 {
    let rest = x.wrapping_rem(y);
    if rest != 0 && (rest < 0) != (y < 0) { rest + y } else { rest }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(op: ExprBinary, pairs: &[(i32, i32)], expected: &[Option<i32>]) {
        let x = Column::new(pairs.iter().map(|(x, _)| *x).collect());
        let y = Column::new(pairs.iter().map(|(_, y)| *y).collect());
        let found = Column::binary(op, &x, &y);
        let found: Vec<_> = (0..pairs.len()).map(|point| found.at(point)).collect();
        assert_eq!(found, expected, "{op:?} of {pairs:?}");
    }

    #[test]
    fn divisions_floor_and_cut() {
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
        let zeros = Column::repeated(0, 2);
        let holes = Column::binary(ExprBinary::CDiv, &zeros, &Column::new(vec![0, 1]));
        let ones = Column::repeated(1, 2);
        let chosen = ones.select(&ones, &holes);
        assert_eq!([chosen.at(0), chosen.at(1)], [Some(1), Some(1)]);
        let chosen = zeros.select(&ones, &holes);
        assert_eq!([chosen.at(0), chosen.at(1)], [None, Some(0)]);
        let chosen = holes.select(&ones, &ones);
        assert_eq!([chosen.at(0), chosen.at(1)], [None, Some(1)]);
    }
}
