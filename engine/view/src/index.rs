//! Buffer indices of the elements of a tracker: as expressions of the caller's algebra, or for a
//! given index.

use smallvec::SmallVec;

use crate::{Dim, ShapeTracker, View};

/// The operations of a caller's expressions. Division and remainder round down.
pub trait IndexAlgebra {
    /// An integer or boolean expression.
    type Expr: Clone;
    /// Makes the integer `value`.
    fn constant(&mut self, value: i64) -> Self::Expr;
    /// Makes `left + right`.
    fn add(&mut self, left: Self::Expr, right: Self::Expr) -> Self::Expr;
    /// Makes `left * right`.
    fn mul(&mut self, left: Self::Expr, right: Self::Expr) -> Self::Expr;
    /// Makes `left // right`, rounded down; `right` is positive: a constant or a size.
    fn floordiv(&mut self, left: Self::Expr, right: Self::Expr) -> Self::Expr;
    /// Makes `left % right`, at least 0 and less than `right`, which is positive: a constant or a
    /// size.
    fn floormod(&mut self, left: Self::Expr, right: Self::Expr) -> Self::Expr;
    /// Makes `left < right`.
    fn lt(&mut self, left: Self::Expr, right: Self::Expr) -> Self::Expr;
    /// Makes `left >= right`, as `(left < right) != true`.
    fn ge(&mut self, left: Self::Expr, right: Self::Expr) -> Self::Expr;
    /// Makes the conjunction.
    fn and(&mut self, left: Self::Expr, right: Self::Expr) -> Self::Expr;
}

/// An algebra that can express the sizes of a tracker.
pub trait DimAlgebra<D: Dim>: IndexAlgebra {
    /// Makes the expression of a size, stride or offset.
    fn dim(&mut self, value: &D) -> Self::Expr;
}

impl<A: IndexAlgebra> DimAlgebra<i64> for A {
    fn dim(&mut self, value: &i64) -> A::Expr {
        self.constant(*value)
    }
}

impl<D: Dim> ShapeTracker<D> {
    /// Returns the buffer index of element `indices`, and the condition that it is real (`None`:
    /// always).
    ///
    /// `indices[a]` is at least 0 and less than `shape()[a]`. If the condition is false, the index
    /// is meaningless and may be outside the buffer, so the load must be gated. Sums are over the
    /// axes from left to right, the offset last.
    /// # Panics
    /// Unless there is one index expression per axis.
    pub fn index<A: DimAlgebra<D>>(
        &self,
        algebra: &mut A,
        indices: &[A::Expr],
    ) -> (A::Expr, Option<A::Expr>) {
        let (last, below) = self.views().split_last().expect("a tracker has a view");
        assert!(indices.len() == last.shape.len(), "one index expression per axis");
        let (mut index, mut valid) = last.index(algebra, indices, None);
        for view in below.iter().rev() {
            if view.contiguous {
                continue;
            }
            let view = view.minify();
            let digits = digits(algebra, &view.shape, index);
            (index, valid) = view.index(algebra, &digits, valid);
        }
        (index, valid)
    }
}

impl ShapeTracker {
    /// Returns the buffer index of element `index`; `None` if it is padding, or outside the shape.
    pub fn locate(&self, index: &[i64]) -> Option<i64> {
        let (last, below) = self.views().split_last()?;
        let mut at = last.locate(index)?;
        for view in below.iter().rev() {
            at = view.locate_flat(at)?;
        }
        Some(at)
    }
}

impl<D: Dim> View<D> {
    fn index<A: DimAlgebra<D>>(
        &self,
        algebra: &mut A,
        indices: &[A::Expr],
        mut valid: Option<A::Expr>,
    ) -> (A::Expr, Option<A::Expr>) {
        let mut sum = None;
        for (axis, index) in indices.iter().enumerate() {
            let stride = &self.strides[axis];
            if !stride.is(0) {
                let mut term = index.clone();
                if !stride.is(1) {
                    let stride = algebra.dim(stride);
                    term = algebra.mul(term, stride);
                }
                sum = Some(match sum {
                    None => term,
                    Some(sum) => algebra.add(sum, term),
                });
            }
            let Some((begin, end)) = self.mask.get(axis) else { continue };
            if !begin.is(0) {
                let begin = algebra.dim(begin);
                let condition = algebra.ge(index.clone(), begin);
                valid = Some(both(algebra, valid, condition));
            }
            if *end != self.shape[axis] {
                let end = algebra.dim(end);
                let condition = algebra.lt(index.clone(), end);
                valid = Some(both(algebra, valid, condition));
            }
        }
        let index = match sum {
            None => algebra.dim(&self.offset),
            Some(sum) if self.offset.is(0) => sum,
            Some(sum) => {
                let offset = algebra.dim(&self.offset);
                algebra.add(sum, offset)
            }
        };
        (index, valid)
    }
}

impl View {
    fn locate(&self, index: &[i64]) -> Option<i64> {
        if index.len() != self.shape.len() {
            return None;
        }
        let axes = index.iter().zip(&self.strides);
        // An index outside the shape is not added up, since the sum may overflow.
        match self.mask() {
            None => axes.zip(&self.shape).try_fold(self.offset, |sum, ((at, stride), size)| {
                (0 <= *at && at < size).then(|| sum + at * stride)
            }),
            Some(mask) => axes.zip(mask).try_fold(self.offset, |sum, ((at, stride), pair)| {
                (pair.0 <= *at && *at < pair.1).then(|| sum + at * stride)
            }),
        }
    }

    /// Returns the buffer index of the element that is `flat` in row-major order.
    fn locate_flat(&self, flat: i64) -> Option<i64> {
        if self.contiguous {
            return Some(flat);
        }
        let (mut at, mut rest) = (self.offset, flat as u64);
        let mask = self.mask.as_slice();
        for (axis, (size, stride)) in self.shape.iter().zip(&self.strides).enumerate().rev() {
            let size = *size as u64;
            // The outermost axis needs no remainder, since `flat` is less than the size.
            let (outer, position) = if axis == 0 { (0, rest) } else { (rest / size, rest % size) };
            let position = position as i64;
            if mask.get(axis).is_some_and(|(begin, end)| position < *begin || *end <= position) {
                return None;
            }
            (rest, at) = (outer, at + position * stride);
        }
        Some(at)
    }
}

fn both<A: IndexAlgebra>(algebra: &mut A, left: Option<A::Expr>, right: A::Expr) -> A::Expr {
    match left {
        None => right,
        Some(left) => algebra.and(left, right),
    }
}

/// Returns the index on each axis of the element that is `flat` in row-major order. The outermost
/// axis needs no remainder, since `flat` is less than the size.
fn digits<D: Dim, A: DimAlgebra<D>>(
    algebra: &mut A,
    shape: &[D],
    flat: A::Expr,
) -> SmallVec<[A::Expr; 4]> {
    let mut digits: SmallVec<[A::Expr; 4]> = SmallVec::new();
    let mut stride = D::number(1);
    for (axis, size) in shape.iter().enumerate().rev() {
        let mut digit = flat.clone();
        if !stride.is(1) {
            let stride = algebra.dim(&stride);
            digit = algebra.floordiv(digit, stride);
        }
        if axis != 0 {
            let size = algebra.dim(size);
            digit = algebra.floormod(digit, size);
        }
        digits.push(digit);
        stride = stride.times(size).expect("the elements were counted when the view was made");
    }
    digits.reverse();
    digits
}
