//! Parts of tensors, expressed twice: by the engine's movements, and element by element.
//!
//! In: a computed tensor, and its bytes. Out: a drawn view of it, and the bytes that the view must
//! hold. Many views are contiguous in the tensor's buffer, some only nearly.

use gradiff::{Error, Tensor};

/// Maximal number of movements of a view.
const MOVEMENTS: usize = 4;
/// Number of elements from which on a view is not padded or repeated.
const ELEMENTS_MAX: usize = 256;

/// A view: the tensor, and for each of its elements the element of the whole that it comes from;
/// `None` for padding.
pub(crate) struct Part {
    pub(crate) tensor: Tensor,
    shape: Vec<usize>,
    from: Vec<Option<usize>>,
}

impl Part {
    /// The whole tensor.
    fn whole(tensor: &Tensor) -> Part {
        let shape: Vec<usize> = tensor.shape().iter().map(|size| *size as usize).collect();
        let count: usize = shape.iter().product();
        Part { tensor: tensor.clone(), shape, from: (0..count).map(Some).collect() }
    }

    /// A part of the tensor, by movements that `below` draws: it returns a number below its
    /// argument. If `is_contiguous`, only by movements after which the elements are contiguous.
    ///
    /// # Errors
    /// If the engine refuses a movement: all are legal.
    pub(crate) fn drawn(
        tensor: &Tensor,
        is_contiguous: bool,
        below: &mut dyn FnMut(usize) -> usize,
    ) -> Result<Part, Error> {
        let mut part = Part::whole(tensor);
        for _ in 0..=below(MOVEMENTS) {
            let kind = below(if is_contiguous { 6 } else { 12 });
            part = part.moved(kind, below)?;
        }
        Ok(part)
    }

    fn moved(self, kind: usize, below: &mut dyn FnMut(usize) -> usize) -> Result<Part, Error> {
        let rank = self.shape.len();
        let long = self.shape.iter().position(|size| *size != 1);
        match (kind, long) {
            (0..=2, Some(axis)) => self.shrunk(axis, below),
            (3, _) => {
                let shape = vec![self.from.len()];
                self.reshaped(shape)
            }
            (4, _) => {
                let count = self.from.len();
                let divisor = [2, 3, 4, 5, 1][below(5)];
                let fits = count.is_multiple_of(divisor);
                let shape = vec![count / divisor, divisor];
                if fits { self.reshaped(shape) } else { Ok(self) }
            }
            (5, _) => {
                let tensor = match below(2) {
                    0 => self.tensor.contiguous(),
                    _ => self.tensor.detach(),
                };
                Ok(Part { tensor, ..self })
            }
            (6 | 7, Some(_)) => {
                let axis = below(rank);
                self.shrunk(axis, below)
            }
            (8, _) if rank > 0 => self.flipped(below(rank)),
            (9, _) if rank > 1 => self.swapped(below(rank - 1)),
            (10, _) if rank > 0 && self.from.len() < ELEMENTS_MAX => {
                let axis = below(rank);
                self.padded(axis, [below(2), below(2)])
            }
            (11, _) if self.from.len() < ELEMENTS_MAX => {
                let axis = below(rank + 1);
                self.repeated(axis, 1 + below(2))
            }
            _ => Ok(self),
        }
    }

    /// The view of this shape whose element at `index` is that of `self` at `at(index)`.
    fn with_elements(
        &self,
        tensor: Tensor,
        shape: Vec<usize>,
        at: impl Fn(&[usize]) -> Option<Vec<usize>>,
    ) -> Part {
        let count: usize = shape.iter().product();
        let element = |number: usize| {
            let mut rest = number;
            let mut index = vec![0; shape.len()];
            for axis in (0..shape.len()).rev() {
                index[axis] = rest % shape[axis];
                rest /= shape[axis];
            }
            let source = at(&index)?;
            let pairs = source.iter().zip(&self.shape);
            self.from[pairs.fold(0, |flat, (index, size)| flat * size + index)]
        };
        let from = (0..count).map(element).collect();
        Part { tensor, shape, from }
    }

    fn shrunk(self, axis: usize, below: &mut dyn FnMut(usize) -> usize) -> Result<Part, Error> {
        let size = self.shape[axis];
        let start = below(size + 1);
        let end = start + below(size + 1 - start);
        let (start, end) = if start == end && below(8) != 0 { (0, size) } else { (start, end) };
        let mut ranges: Vec<(i64, i64)> = self.shape.iter().map(|size| (0, *size as i64)).collect();
        ranges[axis] = (start as i64, end as i64);
        let mut shape = self.shape.clone();
        shape[axis] = end - start;
        let at = |index: &[usize]| {
            let mut index = index.to_vec();
            index[axis] += start;
            Some(index)
        };
        Ok(self.with_elements(self.tensor.shrink(&ranges)?, shape, at))
    }

    fn reshaped(self, shape: Vec<usize>) -> Result<Part, Error> {
        let sizes: Vec<i64> = shape.iter().map(|size| *size as i64).collect();
        let tensor = self.tensor.reshape(&sizes)?;
        Ok(Part { tensor, shape, from: self.from })
    }

    fn flipped(self, axis: usize) -> Result<Part, Error> {
        let at = |index: &[usize]| {
            let mut index = index.to_vec();
            index[axis] = self.shape[axis] - 1 - index[axis];
            Some(index)
        };
        Ok(self.with_elements(self.tensor.flip(&[axis as i64])?, self.shape.clone(), at))
    }

    fn swapped(self, axis: usize) -> Result<Part, Error> {
        let mut axes: Vec<i64> = (0..self.shape.len() as i64).collect();
        axes.swap(axis, axis + 1);
        let mut shape = self.shape.clone();
        shape.swap(axis, axis + 1);
        let at = |index: &[usize]| {
            let mut index = index.to_vec();
            index.swap(axis, axis + 1);
            Some(index)
        };
        Ok(self.with_elements(self.tensor.permute(&axes)?, shape, at))
    }

    fn padded(self, axis: usize, [before, after]: [usize; 2]) -> Result<Part, Error> {
        let mut pads = vec![(0, 0); self.shape.len()];
        pads[axis] = (before as i64, after as i64);
        let zero = match self.tensor.dtype() {
            gradiff::DType::Bool => gradiff::Scalar::Bool(false),
            _ => gradiff::Scalar::Int(0),
        };
        let mut shape = self.shape.clone();
        shape[axis] += before + after;
        let at = |index: &[usize]| {
            let mut index = index.to_vec();
            index[axis] = index[axis].checked_sub(before).filter(|i| *i < self.shape[axis])?;
            Some(index)
        };
        Ok(self.with_elements(self.tensor.pad(&pads, zero)?, shape, at))
    }

    fn repeated(self, axis: usize, count: usize) -> Result<Part, Error> {
        let mut shape = self.shape.clone();
        shape.insert(axis, 1);
        let mut sizes: Vec<i64> = shape.iter().map(|size| *size as i64).collect();
        let tensor = self.tensor.reshape(&sizes)?;
        sizes[axis] = count as i64;
        shape[axis] = count;
        let at = |index: &[usize]| {
            let mut index = index.to_vec();
            index.remove(axis);
            Some(index)
        };
        Ok(self.with_elements(tensor.expand(&sizes)?, shape, at))
    }

    /// The bytes of the view, if those of the whole tensor are `whole`.
    pub(crate) fn bytes(&self, whole: &[u8]) -> Vec<u8> {
        let size = self.tensor.dtype().size_bytes();
        let padding = vec![0; size];
        let element = |from: &Option<usize>| match from {
            Some(number) => &whole[number * size..(number + 1) * size],
            None => &padding,
        };
        self.from.iter().flat_map(element).copied().collect()
    }

    /// The shape and the elements' numbers in the whole, for reports.
    pub(crate) fn described(&self) -> String {
        format!("{:?} of elements {:?}", self.shape, self.from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(part: &Part) -> Vec<Option<usize>> {
        part.from.clone()
    }

    #[test]
    fn movements_give_the_origin_of_elements() {
        let tensor = || Part::whole(&Tensor::from_slice(&[2, 3], &[0i32; 6]).expect("it is legal"));
        let flipped = tensor().flipped(1).expect("it is legal");
        assert_eq!(numbers(&flipped), [2, 1, 0, 5, 4, 3].map(Some));
        let swapped = tensor().swapped(0).expect("it is legal");
        assert_eq!(
            (swapped.shape.clone(), numbers(&swapped)),
            (vec![3, 2], [0, 3, 1, 4, 2, 5].map(Some).to_vec())
        );
        let padded = tensor().padded(0, [1, 0]).expect("it is legal");
        assert_eq!(numbers(&padded)[..4], [None, None, None, Some(0)]);
        let repeated = tensor().repeated(1, 2).expect("it is legal");
        assert_eq!(numbers(&repeated)[..7], [0, 1, 2, 0, 1, 2, 3].map(Some));
        let cut = tensor().shrunk(1, &mut |bound| bound / 2).expect("it is legal");
        assert_eq!((cut.shape.clone(), numbers(&cut)), (vec![2, 1], [2, 5].map(Some).to_vec()));
        assert_eq!(padded.bytes(&[7; 24])[8..16], [0, 0, 0, 0, 7, 7, 7, 7]);
    }
}
