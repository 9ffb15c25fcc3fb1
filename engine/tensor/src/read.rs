//! Reading tensors: bytes, vectors, nested text, ndarray.

use gradiff_graph::{Constant, DType};
use gradiff_schedule::{MAX_BUFFER_ELEMENTS, constant_of};
use ndarray::{ArrayD, IxDyn};

use crate::device::computed;
use crate::error::invalid;
use crate::tensor::buffer_of;
use crate::{Element, Error, Tensor};

/// The maximal number of elements, or of lists of a tensor without elements, in a text.
const MAX_TEXT_ITEMS: i64 = 1 << 26;

impl Tensor {
    /// Reads the elements: row-major, little endian, bool as 0 and 1. Computes them first on the
    /// tensor's device, unless that or an [`Engine`](crate::Engine) has computed them already.
    /// # Errors
    /// If they cannot be computed, or the tensor is a constant of too large a shape.
    pub fn to_bytes(&self) -> Result<Vec<u8>, Error> {
        // Another thread may assign to the tensor at any time.
        let mut node = self.uop();
        if constant_of(&node).is_none() && buffer_of(&node).is_none() {
            node = computed(&[self])?.remove(0);
        }
        match constant_of(&node) {
            Some(value) => self.repeated_bytes(value),
            None => {
                let buffer = buffer_of(&node).expect("a result is in a buffer or is a constant");
                Ok(gradiff_runtime::memory_of(&buffer)?.read()?)
            }
        }
    }

    /// The bytes of a tensor of this shape whose elements are all `value`.
    fn repeated_bytes(&self, value: Constant) -> Result<Vec<u8>, Error> {
        let elements = self.size_elements();
        let mut bytes = Vec::new();
        let is_small = elements <= MAX_BUFFER_ELEMENTS;
        let size = usize::try_from(elements).unwrap_or(usize::MAX);
        let size_bytes = size.saturating_mul(value.dtype().size_bytes());
        if !is_small || bytes.try_reserve_exact(size_bytes).is_err() {
            return invalid(format!(
                "read of {self:?}: at most {MAX_BUFFER_ELEMENTS} elements can be read, and no more \
                 than fit in memory"
            ));
        }
        let word = value.bits().to_le_bytes();
        let element = &word[..value.dtype().size_bytes()];
        (0..size).for_each(|_| bytes.extend_from_slice(element));
        assert_eq!(bytes.len(), size_bytes, "each element was written");
        Ok(bytes)
    }

    /// Reads the elements, row-major.
    /// # Errors
    /// If T is not the dtype, or they cannot be computed.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>, Error> {
        if T::DTYPE != self.dtype() {
            return invalid(format!("read of {self:?} as {}: cast it first", T::DTYPE));
        }
        let bytes = self.to_bytes()?;
        Ok(bytes.chunks_exact(T::DTYPE.size_bytes()).map(T::from_bytes).collect())
    }

    /// Reads the elements as an array of the same shape.
    /// # Errors
    /// As [`to_vec`](Tensor::to_vec).
    pub fn to_ndarray<T: Element>(&self) -> Result<ArrayD<T>, Error> {
        let sizes: Vec<usize> = self.shape().iter().map(|size| *size as usize).collect();
        let elements = self.to_vec()?;
        ArrayD::from_shape_vec(IxDyn(&sizes), elements)
            .map_err(|error| Error::Invalid(format!("{self:?} as an array: {error}")))
    }

    /// Formats the elements as nested lists, as `[[1, 2], [3, 4]]`; a scalar without brackets.
    /// # Errors
    /// If they cannot be computed, or there are more than 2^26 elements or lists.
    pub fn to_text(&self) -> Result<String, Error> {
        // Without elements, there are lists down to the first axis of size 0.
        let count: i64 = self.shape().iter().take_while(|size| **size != 0).product();
        if MAX_TEXT_ITEMS < count {
            let shape = self.shape();
            return invalid(format!(
                "text of shape {shape:?}: {count} elements or lists, {MAX_TEXT_ITEMS} at most"
            ));
        }
        let bytes = self.to_bytes()?;
        let mut text = String::new();
        let mut elements = bytes.chunks_exact(self.dtype().size_bytes());
        write_nested(&mut text, self.shape(), self.dtype(), &mut elements);
        Ok(text)
    }
}

fn write_nested<'a>(
    text: &mut String,
    shape: &[i64],
    dtype: DType,
    elements: &mut impl Iterator<Item = &'a [u8]>,
) {
    let Some((size, inner)) = shape.split_first() else {
        let bytes = elements.next().expect("as many elements as the shape has");
        let mut bits = [0; 8];
        bits[..bytes.len()].copy_from_slice(bytes);
        text.push_str(&Constant::from_bits(dtype, u64::from_le_bytes(bits)).to_string());
        return;
    };
    text.push('[');
    for index in 0..*size {
        if index != 0 {
            text.push_str(", ");
        }
        write_nested(text, inner, dtype, elements);
    }
    text.push(']');
}
