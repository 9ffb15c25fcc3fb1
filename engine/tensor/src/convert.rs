//! Tensors of Rust's own data: numbers, arrays, vectors and slices, nested or not, and arrays of
//! `ndarray`.

use half::{bf16, f16};
use ndarray::{ArrayBase, Data, Dimension};

use crate::error::invalid;
use crate::{Element, Error};

/// Data of elements: an element, an array of `ndarray`, or an array, vector or slice of such data.
pub trait Nested {
    /// The type of the elements.
    type Item: Element;

    /// Adds the sizes of the axes, of lists those of the first item.
    fn add_shape(&self, shape: &mut Vec<i64>);

    /// Adds the sizes of the axes of data that there is none of: 0 where the type has no size.
    fn add_empty_shape(shape: &mut Vec<i64>);

    /// Adds the elements, row-major.
    /// # Errors
    /// If a list has another size than the first of its axis.
    fn add_elements(&self, shape: &[i64], elements: &mut Vec<Self::Item>) -> Result<(), Error>;
}

macro_rules! elements {
    ($($rust:ty)*) => {$(
        impl Nested for $rust {
            type Item = $rust;

            fn add_shape(&self, _: &mut Vec<i64>) {}

            fn add_empty_shape(_: &mut Vec<i64>) {}

            fn add_elements(&self, _: &[i64], elements: &mut Vec<$rust>) -> Result<(), Error> {
                elements.push(*self);
                Ok(())
            }
        }
    )*};
}

elements! { bool i8 u8 i16 u16 i32 u32 i64 u64 f16 bf16 f32 f64 }

impl<A: Nested> Nested for [A] {
    type Item = A::Item;

    fn add_shape(&self, shape: &mut Vec<i64>) {
        shape.push(self.len() as i64);
        match self.first() {
            Some(item) => item.add_shape(shape),
            None => A::add_empty_shape(shape),
        }
    }

    fn add_empty_shape(shape: &mut Vec<i64>) {
        shape.push(0);
        A::add_empty_shape(shape);
    }

    fn add_elements(&self, shape: &[i64], elements: &mut Vec<A::Item>) -> Result<(), Error> {
        let (size, inner) = shape.split_first().expect("each list has an axis");
        if self.len() as i64 != *size {
            return invalid(format!(
                "a tensor of nested lists: a list of {} items where the first has {size}",
                self.len()
            ));
        }
        self.iter().try_for_each(|item| item.add_elements(inner, elements))
    }
}

impl<A: Nested, const COUNT: usize> Nested for [A; COUNT] {
    type Item = A::Item;

    fn add_shape(&self, shape: &mut Vec<i64>) {
        self.as_slice().add_shape(shape);
    }

    fn add_empty_shape(shape: &mut Vec<i64>) {
        shape.push(COUNT as i64);
        A::add_empty_shape(shape);
    }

    fn add_elements(&self, shape: &[i64], elements: &mut Vec<A::Item>) -> Result<(), Error> {
        self.as_slice().add_elements(shape, elements)
    }
}

impl<A: Nested> Nested for Vec<A> {
    type Item = A::Item;

    fn add_shape(&self, shape: &mut Vec<i64>) {
        self.as_slice().add_shape(shape);
    }

    fn add_empty_shape(shape: &mut Vec<i64>) {
        <[A]>::add_empty_shape(shape);
    }

    fn add_elements(&self, shape: &[i64], elements: &mut Vec<A::Item>) -> Result<(), Error> {
        self.as_slice().add_elements(shape, elements)
    }
}

impl<A: Nested + ?Sized> Nested for &A {
    type Item = A::Item;

    fn add_shape(&self, shape: &mut Vec<i64>) {
        (*self).add_shape(shape);
    }

    fn add_empty_shape(shape: &mut Vec<i64>) {
        A::add_empty_shape(shape);
    }

    fn add_elements(&self, shape: &[i64], elements: &mut Vec<A::Item>) -> Result<(), Error> {
        (*self).add_elements(shape, elements)
    }
}

/// An array of any layout.
impl<T: Element, S: Data<Elem = T>, D: Dimension> Nested for ArrayBase<S, D> {
    type Item = T;

    fn add_shape(&self, shape: &mut Vec<i64>) {
        shape.extend(self.shape().iter().map(|size| *size as i64));
    }

    fn add_empty_shape(shape: &mut Vec<i64>) {
        shape.extend(vec![0; D::NDIM.unwrap_or(0)]);
    }

    fn add_elements(&self, shape: &[i64], elements: &mut Vec<T>) -> Result<(), Error> {
        if !self.shape().iter().map(|size| *size as i64).eq(shape.iter().copied()) {
            return invalid(format!(
                "a tensor of nested lists: an array of shape {:?} where the first has {shape:?}",
                self.shape()
            ));
        }
        elements.extend(self.iter().copied());
        Ok(())
    }
}
