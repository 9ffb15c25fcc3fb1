//! From a tracker to where an element lies: as expressions of the caller's algebra, or for one
//! given index.

use smallvec::SmallVec;

use crate::{Dim, ShapeTracker, View};

/// What a caller's expressions must be able to say. Division and remainder floor.
pub trait IndexAlgebra {
    /// An integer or truth-valued expression.
    type Expr: Clone;
    /// The integer `value`.
    fn constant(&mut self, value: i64) -> Self::Expr;
    /// `left + right`.
    fn add(&mut self, left: Self::Expr, right: Self::Expr) -> Self::Expr;
    /// `left * right`.
    fn mul(&mut self, left: Self::Expr, right: Self::Expr) -> Self::Expr;
    /// `left // right`, floored; `right` is positive: a constant or a size.
    fn floordiv(&mut self, left: Self::Expr, right: Self::Expr) -> Self::Expr;
    /// `left % right`, from 0 up to `right`, which is positive: a constant or a size.
    fn floormod(&mut self, left: Self::Expr, right: Self::Expr) -> Self::Expr;
    /// `left < right`.
    fn lt(&mut self, left: Self::Expr, right: Self::Expr) -> Self::Expr;
    /// `left >= right`, written `(left < right) != true`.
    fn ge(&mut self, left: Self::Expr, right: Self::Expr) -> Self::Expr;
    /// Both truths.
    fn and(&mut self, left: Self::Expr, right: Self::Expr) -> Self::Expr;
}

/// An algebra that can say the sizes of a tracker.
pub trait DimAlgebra<D: Dim>: IndexAlgebra {
    /// The expression of a size, stride or offset.
    fn dim(&mut self, value: &D) -> Self::Expr;
}

impl<A: IndexAlgebra> DimAlgebra<i64> for A {
    fn dim(&mut self, value: &i64) -> A::Expr {
        self.constant(*value)
    }
}

impl<D: Dim> ShapeTracker<D> {
    /// The buffer index of element `indices`, and the truth of it being real (`None`: always).
    ///
    /// `indices[a]` runs from 0 up to `shape()[a]`. Where the truth is false the index is without
    /// meaning and may leave the buffer: guard the load. Sums run over the axes from left to right,
    /// the offset last.
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
    /// Where element `index` lies in the buffer: `None` if it is padding, or outside the shape.
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
                let truth = algebra.ge(index.clone(), begin);
                valid = Some(both(algebra, valid, truth));
            }
            if *end != self.shape[axis] {
                let end = algebra.dim(end);
                let truth = algebra.lt(index.clone(), end);
                valid = Some(both(algebra, valid, truth));
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
        // What lies outside is not added up: it may not fit.
        match self.mask() {
            None => axes.zip(&self.shape).try_fold(self.offset, |sum, ((at, stride), size)| {
                (0 <= *at && at < size).then(|| sum + at * stride)
            }),
            Some(mask) => axes.zip(mask).try_fold(self.offset, |sum, ((at, stride), pair)| {
                (pair.0 <= *at && *at < pair.1).then(|| sum + at * stride)
            }),
        }
    }

    /// `locate` of the element that is `flat` in row-major order.
    fn locate_flat(&self, flat: i64) -> Option<i64> {
        if self.contiguous {
            return Some(flat);
        }
        let (mut at, mut rest) = (self.offset, flat as u64);
        let mask = self.mask.as_slice();
        for (axis, (size, stride)) in self.shape.iter().zip(&self.strides).enumerate().rev() {
            let size = *size as u64;
            // The outermost needs no remainder: `flat` is below the size.
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

/// Position of the element `flat` on each axis. The outermost needs no remainder: `flat` is below
/// the size.
fn digits<D: Dim, A: DimAlgebra<D>>(
    algebra: &mut A,
    shape: &[D],
    flat: A::Expr,
) -> SmallVec<[A::Expr; 4]> {
    let mut digits: SmallVec<[A::Expr; 4]> = SmallVec::new();
    let mut step = D::number(1);
    for (axis, size) in shape.iter().enumerate().rev() {
        let mut digit = flat.clone();
        if !step.is(1) {
            let step = algebra.dim(&step);
            digit = algebra.floordiv(digit, step);
        }
        if axis != 0 {
            let size = algebra.dim(size);
            digit = algebra.floormod(digit, size);
        }
        digits.push(digit);
        step = step.times(size).expect("the elements were counted when the view was made");
    }
    digits.reverse();
    digits
}
