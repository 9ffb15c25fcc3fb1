//! The dtype and the shape of a tensor in a file, and the arrangement of its bytes.

use gradiff_graph::DType;
use gradiff_tensor::{MAX_ELEMENTS, Tensor};

use crate::error::{Problem, broken};
use crate::source::reserve;

/// The maximal number of axes.
pub(crate) const MAX_RANK: usize = 64;

/// A dtype and a checked shape.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<i64>,
    pub(crate) size_elements: u64,
}

impl Layout {
    /// Checks the rank and the number of elements.
    pub(crate) fn new(dtype: DType, sizes: &[u64]) -> Result<Layout, Problem> {
        check_rank(sizes.len())?;
        // The limit holds for the sizes that are not 0, as in `Tensor`.
        let nonzero = sizes.iter().filter(|size| **size != 0);
        let product = nonzero.copied().try_fold(1u64, u64::checked_mul);
        let Some(product) = product.filter(|product| *product <= MAX_ELEMENTS as u64) else {
            return broken(format!(
                "its shape {sizes:?} has too many elements; {MAX_ELEMENTS} are allowed"
            ));
        };
        let size_elements = if sizes.contains(&0) { 0 } else { product };
        let shape = sizes.iter().map(|size| *size as i64).collect();
        Ok(Layout { dtype, shape, size_elements })
    }

    /// The size of the data.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.size_elements * self.dtype.size_bytes() as u64
    }

    /// Strides in elements of the row-major arrangement.
    pub(crate) fn row_major(&self) -> Vec<u64> {
        let mut strides = strides_of(self.shape.iter().rev());
        strides.reverse();
        strides
    }

    /// Strides in elements of Fortran's arrangement, whose first axis varies fastest.
    pub(crate) fn column_major(&self) -> Vec<u64> {
        strides_of(self.shape.iter())
    }

    /// Creates the tensor of row-major, little-endian bytes.
    pub(crate) fn tensor(&self, mut bytes: Vec<u8>) -> Result<Tensor, Problem> {
        if self.dtype == DType::Bool {
            bytes.iter_mut().for_each(|byte| *byte = u8::from(*byte != 0));
        }
        Ok(Tensor::from_bytes(self.dtype, &self.shape, &bytes)?)
    }

    /// Copies the elements at `offset + sum(index * stride)`, in elements, to row-major order.
    /// Every address is within `bytes`.
    pub(crate) fn gather(
        &self,
        bytes: &[u8],
        offset: u64,
        strides: &[u64],
    ) -> Result<Vec<u8>, Problem> {
        assert_eq!(strides.len(), self.shape.len(), "each axis has a stride");
        let mut gathered = reserve(self.size_bytes())?;
        let size = self.dtype.size_bytes();
        if self.size_elements == 0 {
            return Ok(gathered);
        }
        let row_major = self.row_major();
        let mut axes = self.shape.iter().zip(strides.iter().zip(&row_major));
        if axes.all(|(size, (stride, dense))| *size == 1 || stride == dense) {
            let start = offset as usize * size;
            gathered.extend_from_slice(&bytes[start..start + self.size_bytes() as usize]);
            return Ok(gathered);
        }
        let mut index = vec![0u64; strides.len()];
        let mut address = offset;
        for _ in 0..self.size_elements {
            let start = address as usize * size;
            gathered.extend_from_slice(&bytes[start..start + size]);
            // The next index, as in an odometer: the last axis varies fastest.
            for axis in (0..index.len()).rev() {
                index[axis] += 1;
                if index[axis] < self.shape[axis] as u64 {
                    address += strides[axis];
                    break;
                }
                index[axis] = 0;
                address -= strides[axis] * (self.shape[axis] as u64 - 1);
            }
        }
        Ok(gathered)
    }
}

/// Checks the number of axes of a tensor that is read, or is to be saved.
pub(crate) fn check_rank(rank: usize) -> Result<(), Problem> {
    if MAX_RANK < rank {
        return broken(format!("{rank} axes; {MAX_RANK} are allowed"));
    }
    Ok(())
}

/// Strides of a dense arrangement of axes, of which the first varies fastest.
fn strides_of<'a>(sizes: impl Iterator<Item = &'a i64>) -> Vec<u64> {
    let mut stride = 1u64;
    sizes
        .map(|size| {
            let before = stride;
            stride *= (*size).max(1) as u64;
            before
        })
        .collect()
}

/// Negates little-endian numbers: the sign bit of floats, integers modulo a power of 2.
pub(crate) fn negate(bytes: &mut [u8], dtype: DType) {
    let size = dtype.size_bytes();
    for element in bytes.chunks_exact_mut(size) {
        if dtype.is_float() {
            element[size - 1] ^= 0x80;
            continue;
        }
        // Two's complement: the complement, plus 1.
        let mut carry = true;
        for byte in element {
            (*byte, carry) = (!*byte).overflowing_add(u8::from(carry));
        }
    }
}

/// Reverses the bytes of each element of `size` bytes.
pub(crate) fn swap_bytes(bytes: &mut [u8], size: usize) {
    if size != 1 {
        bytes.chunks_exact_mut(size).for_each(<[u8]>::reverse);
    }
}
