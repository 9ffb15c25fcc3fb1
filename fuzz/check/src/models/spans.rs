//! Index expressions evaluated for all elements of a tensor at once.
//!
//! A column is held only over the axes along which it varies: the index on an axis is a few
//! numbers, and a sum over axes grows axis by axis. All values of an evaluation are in one buffer,
//! one after another. They are 32 bits wide and wrap: a tensor has at most 2^24 elements, so only
//! values that padding hides overflow, and sums wrap back.

use std::cell::Cell;
use std::ops::Range;

use gradiff::graph::Variable;
use gradiff::view::IndexAlgebra;

/// A value for every element; true is 1.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Column {
    /// The same value for all elements.
    Number(i32),
    /// A value for every index on some axes.
    Each(Span),
}

/// Values for every index on the axes from `first` up to `end`, in row-major order: `count` values,
/// from `start` on in the buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    first: usize,
    end: usize,
    start: usize,
    count: usize,
}

impl Span {
    fn range(self) -> Range<usize> {
        self.start..self.start + self.count
    }
}

/// An evaluation: the values of variables, the shape, and all values so far.
pub(crate) struct Columns<'a> {
    variable: &'a dyn Fn(&Variable) -> i64,
    shape: Vec<usize>,
    positions: Vec<Column>,
    /// The buffer: values up to `end`, then unused space.
    values: Vec<i32>,
    end: usize,
}

thread_local! {
    /// The buffer of earlier evaluations, reused by the next ones.
    static VALUES: Cell<Vec<i32>> = const { Cell::new(Vec::new()) };
}

impl Drop for Columns<'_> {
    fn drop(&mut self) {
        VALUES.set(std::mem::take(&mut self.values));
    }
}

impl<'a> Columns<'a> {
    pub(crate) fn new(variable: &'a dyn Fn(&Variable) -> i64) -> Columns<'a> {
        let (shape, positions) = (Vec::new(), Vec::new());
        Columns { variable, shape, positions, values: VALUES.take(), end: 0 }
    }

    /// The function that gives the values of variables.
    pub(crate) fn variable(&self) -> &'a dyn Fn(&Variable) -> i64 {
        self.variable
    }

    /// Evaluates the index and validity that `index` computes from the index on each axis, for
    /// every element of a tensor of this shape. The second result is `None` if all elements are
    /// valid.
    pub(crate) fn evaluate(
        &mut self,
        shape: &[usize],
        index: impl FnOnce(&mut Self, &[Column]) -> (Column, Option<Column>),
    ) -> (&[i32], Option<&[i32]>) {
        self.shape.clear();
        self.shape.extend_from_slice(shape);
        self.end = 0;
        // The index on each axis counts from 0, so that all axes start with the same numbers.
        let (start, _, numbers) = self.allocate(shape.iter().copied().max().unwrap_or(0));
        numbers.iter_mut().zip(0..).for_each(|(number, count)| *number = count);
        let mut positions = std::mem::take(&mut self.positions);
        positions.clear();
        let axes = shape.iter().enumerate();
        let spans = axes.map(|(axis, &count)| Span { first: axis, end: axis + 1, start, count });
        positions.extend(spans.map(Column::Each));
        let (index, valid) = index(self, &positions);
        self.positions = positions;
        let (index, valid) = (self.whole(index), valid.map(|valid| self.whole(valid)));
        (&self.values[index], valid.map(|valid| &self.values[valid]))
    }

    /// Allocates `count` values: returns their start, all values so far, and the new ones.
    fn allocate(&mut self, count: usize) -> (usize, &[i32], &mut [i32]) {
        let start = self.end;
        self.end += count;
        if self.values.len() < self.end {
            self.values.resize(self.end.next_power_of_two(), 0);
        }
        let (values, new) = self.values.split_at_mut(start);
        (start, values, &mut new[..count])
    }

    /// The range in the buffer of a column's values for all elements.
    fn whole(&mut self, column: Column) -> Range<usize> {
        let end = self.shape.len();
        match column {
            Column::Each(span) => self.widened(span, 0, end).range(),
            Column::Number(value) => {
                let (start, _, new) = self.allocate(self.shape.iter().product());
                new.fill(value);
                start..start + new.len()
            }
        }
    }

    /// The same values over more axes.
    fn widened(&mut self, span: Span, first: usize, end: usize) -> Span {
        if (span.first, span.end) == (first, end) {
            return span;
        }
        let outer: usize = self.shape[first..span.first].iter().product();
        let inner: usize = self.shape[span.end..end].iter().product();
        if (outer, inner) == (1, 1) {
            return Span { first, end, ..span };
        }
        let row = span.count * inner;
        let (start, values, new) = self.allocate(outer * row);
        for rows in new.chunks_exact_mut(row.max(1)) {
            if inner == 1 {
                rows.copy_from_slice(&values[span.range()]);
                continue;
            }
            let cells = rows.chunks_exact_mut(inner).zip(&values[span.range()]);
            cells.for_each(|(cell, value)| cell.fill(*value));
        }
        Span { first, end, start, count: outer * row }
    }

    /// Applies an op to each value of a column.
    fn map(&mut self, span: Span, op: impl Fn(i32) -> i32) -> Column {
        let (start, values, new) = self.allocate(span.count);
        new.iter_mut().zip(&values[span.range()]).for_each(|(new, value)| *new = op(*value));
        Column::Each(Span { start, ..span })
    }

    /// Combines two columns over the same axes, value by value.
    fn zip(&mut self, x: Span, y: Span, op: impl Fn(i32, i32) -> i32) -> Column {
        let (start, values, new) = self.allocate(x.count);
        let pairs = values[x.range()].iter().zip(&values[y.range()]);
        new.iter_mut().zip(pairs).for_each(|(new, (x, y))| *new = op(*x, *y));
        Column::Each(Span { start, ..x })
    }

    /// Combines each value over some axes with each value over axes further in.
    fn nest(&mut self, outer: Span, inner: Span, op: impl Fn(i32, i32) -> i32) -> Column {
        let outer = self.widened(outer, outer.first, inner.first);
        let count = outer.count * inner.count;
        let (start, values, new) = self.allocate(count);
        let (outer_values, row) = (&values[outer.range()], &values[inner.range()]);
        match row.len() {
            2 => nest_rows::<2>(new, outer_values, row, op),
            3 => nest_rows::<3>(new, outer_values, row, op),
            4 => nest_rows::<4>(new, outer_values, row, op),
            5 => nest_rows::<5>(new, outer_values, row, op),
            _ => {
                let rows = new.chunks_exact_mut(row.len().max(1)).zip(outer_values);
                rows.for_each(|(new, x)| {
                    new.iter_mut().zip(row).for_each(|(new, y)| *new = op(*x, *y));
                });
            }
        }
        Column::Each(Span { first: outer.first, end: inner.end, start, count })
    }

    /// Combines two columns.
    fn combine(&mut self, x: Column, y: Column, op: impl Fn(i32, i32) -> i32) -> Column {
        match (x, y) {
            (Column::Number(x), Column::Number(y)) => Column::Number(op(x, y)),
            (Column::Each(x), Column::Number(y)) => self.map(x, |x| op(x, y)),
            (Column::Number(x), Column::Each(y)) => self.map(y, |y| op(x, y)),
            (Column::Each(x), Column::Each(y)) if x.end <= y.first => self.nest(x, y, op),
            (Column::Each(x), Column::Each(y)) if y.end <= x.first => {
                self.nest(y, x, |y, x| op(x, y))
            }
            (Column::Each(x), Column::Each(y)) => {
                let (first, end) = (x.first.min(y.first), x.end.max(y.end));
                let (x, y) = (self.widened(x, first, end), self.widened(y, first, end));
                self.zip(x, y, op)
            }
        }
    }
}

/// Combines each value of `outer` with each of a row of `N` values: most rows are short, and a loop
/// over a short row costs more than its body.
fn nest_rows<const N: usize>(
    new: &mut [i32],
    outer: &[i32],
    row: &[i32],
    op: impl Fn(i32, i32) -> i32,
) {
    let (rows, rest) = row.as_chunks::<N>();
    assert!(rows.len() == 1 && rest.is_empty(), "the row has N values");
    let new = new.as_chunks_mut::<N>().0;
    new.iter_mut().zip(outer).for_each(|(new, x)| *new = rows[0].map(|y| op(*x, y)));
}

impl IndexAlgebra for Columns<'_> {
    type Expr = Column;

    fn constant(&mut self, value: i64) -> Column {
        Column::Number(value as i32)
    }

    fn add(&mut self, x: Column, y: Column) -> Column {
        self.combine(x, y, i32::wrapping_add)
    }

    fn mul(&mut self, x: Column, y: Column) -> Column {
        self.combine(x, y, i32::wrapping_mul)
    }

    fn floordiv(&mut self, x: Column, y: Column) -> Column {
        self.combine(x, y, i32::div_euclid)
    }

    fn floormod(&mut self, x: Column, y: Column) -> Column {
        self.combine(x, y, i32::rem_euclid)
    }

    fn lt(&mut self, x: Column, y: Column) -> Column {
        self.combine(x, y, |x, y| i32::from(x < y))
    }

    fn ge(&mut self, x: Column, y: Column) -> Column {
        self.combine(x, y, |x, y| i32::from(x >= y))
    }

    fn and(&mut self, x: Column, y: Column) -> Column {
        self.combine(x, y, |x, y| x & y)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares each operation on every two columns over neighbouring axes with the values computed
    /// element by element.
    #[test]
    fn values_over_some_axes_are_those_of_every_element() {
        let shape = [2, 3, 1, 2];
        let index = |element: i32, axis: usize| -> i32 {
            let inner: usize = shape[axis + 1..].iter().product();
            element / inner as i32 % shape[axis] as i32
        };
        let expected = |axes: &Range<usize>, element| -> i32 {
            axes.clone().fold(3, |sum, axis| sum * 5 + index(element, axis))
        };
        let operand = |columns: &mut Columns, positions: &[Column], axes: &Range<usize>| {
            let mut sum = columns.constant(3);
            for axis in axes.clone() {
                let five = columns.constant(5);
                sum = columns.mul(sum, five);
                sum = columns.add(sum, positions[axis]);
            }
            sum
        };
        let spans: Vec<_> = (0..4).flat_map(|a| (a..5).map(move |b| a..b)).collect();
        type Op = fn(&mut Columns<'static>, Column, Column) -> Column;
        type Plain = fn(i32, i32) -> i32;
        let ops: [(Op, Plain); 5] = [
            (|c, x, y| c.add(x, y), |x, y| x + y),
            (|c, x, y| c.floordiv(x, y), |x, y| x.div_euclid(y)),
            (|c, x, y| c.floormod(x, y), |x, y| x.rem_euclid(y)),
            (|c, x, y| c.lt(x, y), |x, y| (x < y).into()),
            (|c, x, y| c.ge(x, y), |x, y| (x >= y).into()),
        ];
        let mut columns = Columns::new(&|_| 0);
        for (left, right) in spans.iter().flat_map(|x| spans.iter().map(move |y| (x, y))) {
            for (op, plain) in ops {
                let (values, valid) = columns.evaluate(&shape, |columns, positions| {
                    let x = operand(columns, positions, left);
                    let y = operand(columns, positions, right);
                    (op(columns, x, y), None)
                });
                let value = |element| plain(expected(left, element), expected(right, element));
                assert_eq!(values, (0..12).map(value).collect::<Vec<_>>(), "{left:?} {right:?}");
                assert_eq!(valid, None);
            }
        }
    }

    #[test]
    fn a_shape_without_elements_has_no_values() {
        let mut columns = Columns::new(&|_| 0);
        let (values, valid) = columns.evaluate(&[2, 0, 3], |columns, at| {
            let sum = columns.add(at[2], at[0]);
            (columns.add(sum, at[1]), Some(Column::Number(1)))
        });
        assert_eq!((values, valid), (&[][..], Some(&[][..])));
    }
}
