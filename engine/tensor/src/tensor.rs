//! The tensor itself: a node of the graph behind one shared cell, and how tensors are created.

use std::sync::{Arc, PoisonError, RwLock};

use gradiff_graph::{Arg, Buffer, Constant, DType, Dims, Op, UOp};

use crate::error::invalid;
use crate::{Element, Error, Scalar};

/// Most elements that a tensor may have; axes of size 0 count as 1 here, so that sums along them
/// and reshapes keep within it too.
pub const MAX_ELEMENTS: i64 = 1 << 40;

/// An array of elements of one dtype, computed when it is needed.
///
/// Calls build a graph; nothing runs before [`realize`](Tensor::realize) or a read. A clone is the
/// same tensor: what one realises, the other has.
#[derive(Clone)]
pub struct Tensor {
    node: Arc<RwLock<UOp>>,
    dtype: DType,
    shape: Arc<[i64]>,
}

impl Tensor {
    /// The tensor that a tensor-level node describes.
    ///
    /// # Errors
    /// If [`gradiff_graph::verify`] refuses the node, it has no shape, or a shape in it passes
    /// [`MAX_ELEMENTS`].
    pub fn from_uop(node: UOp) -> Result<Tensor, Error> {
        let is_tensor = node.dtype() != DType::Void && node.shape().is_some();
        let verified = gradiff_graph::verify(&node).map_err(|error| error.to_string());
        if let Err(why) =
            verified.and_then(|()| is_tensor.then_some(()).ok_or("it has no shape".into()))
        {
            return invalid(format!("a tensor of {node:?}: {why}"));
        }
        for node in node.order() {
            check_shape(node.shape().unwrap_or_default())?;
        }
        Ok(Tensor::of(node))
    }

    /// The same of a node that is known to be one.
    pub(crate) fn of(node: UOp) -> Tensor {
        let shape: Arc<[i64]> = node.shape().expect("a node of tensor level has a shape").into();
        if let Err(error) = check_shape(&shape) {
            panic!("{error}");
        }
        let dtype = node.dtype();
        assert!(dtype != DType::Void, "a tensor has elements");
        Tensor { node: Arc::new(RwLock::new(node)), dtype, shape }
    }

    /// The node that the tensor is now: what it is computed from, or the buffer it is in.
    pub fn uop(&self) -> UOp {
        self.node.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Makes the tensor one that is in a buffer.
    pub(crate) fn rebind(&self, node: UOp) {
        assert_eq!(node.shape(), Some(&*self.shape), "realising keeps the shape");
        assert_eq!(node.dtype(), self.dtype, "realising keeps the dtype");
        *self.node.write().unwrap_or_else(PoisonError::into_inner) = node;
    }

    /// The type of the elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Sizes of the axes, outermost first; `[]` for a scalar.
    pub fn shape(&self) -> &[i64] {
        &self.shape
    }

    /// How many axes there are.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// How many elements there are.
    pub fn size_elements(&self) -> i64 {
        self.shape.iter().product()
    }

    /// The buffer that the tensor is in, row-major, if it has been given, or realised and is not
    /// a [`constant`](Tensor::constant).
    pub fn buffer(&self) -> Option<Buffer> {
        let node = self.uop();
        let under = if node.op() == Op::Reshape { node.src()[0].clone() } else { node };
        match under.arg() {
            Arg::Buffer(buffer) => Some(buffer.clone()),
            _ => None,
        }
    }

    /// The constant that all elements are, where the tensor says so; such a tensor needs no
    /// computing and no buffer.
    pub fn constant(&self) -> Option<Constant> {
        gradiff_schedule::constant_of(&self.uop())
    }

    /// A tensor of the elements in `bytes`: row-major, little endian, bool as 0 and 1.
    /// # Errors
    /// If there are not as many bytes as the shape has, or a size is negative or too large.
    pub fn from_bytes(dtype: DType, shape: &[i64], bytes: &[u8]) -> Result<Tensor, Error> {
        if dtype == DType::Void {
            return invalid("a tensor of void: choose a dtype of data");
        }
        let elements = check_shape(shape)?;
        let wanted = elements as u128 * dtype.size_bytes() as u128;
        if wanted != bytes.len() as u128 {
            return invalid(format!(
                "a tensor {dtype}{shape:?} of {} bytes: it has {wanted} bytes",
                bytes.len()
            ));
        }
        let buffer = Buffer::new(dtype, elements);
        gradiff_runtime::memory_of(&buffer)?.write(bytes)?;
        let node = UOp::new(Op::Buffer, dtype, [], Arg::Buffer(buffer));
        Ok(Tensor::of(reshaped(node, shape)))
    }

    /// A tensor of these elements, row-major.
    /// # Errors
    /// As [`from_bytes`](Tensor::from_bytes).
    pub fn from_slice<T: Element>(shape: &[i64], elements: &[T]) -> Result<Tensor, Error> {
        let mut bytes = Vec::with_capacity(size_of_val(elements));
        elements.iter().for_each(|element| element.push_bytes(&mut bytes));
        Tensor::from_bytes(T::DTYPE, shape, &bytes)
    }

    /// A tensor whose every element is `value`.
    /// # Errors
    /// If the dtype cannot say the value, or a size is negative or too large.
    pub fn full(dtype: DType, shape: &[i64], value: impl Into<Scalar>) -> Result<Tensor, Error> {
        if dtype == DType::Void {
            return invalid("a tensor of void: choose a dtype of data");
        }
        check_shape(shape)?;
        Ok(Tensor::of(filled(value.into().element(dtype)?, shape)))
    }

    /// `start + i * step`, wrapping, for i in 0..count: rank 1, integers only.
    /// # Errors
    /// If the dtype is no integer, or the count is negative or too large.
    pub fn arange(dtype: DType, start: i64, step: i64, count: i64) -> Result<Tensor, Error> {
        if !dtype.is_int() {
            return invalid(format!("arange of {dtype}: integer dtypes only; cast the result"));
        }
        check_shape(&[count])?;
        let iota = UOp::new(Op::Iota, dtype, [], Arg::Int(count));
        let scaled = UOp::binary(Op::Mul, iota.clone(), constant(dtype, step, count));
        let scaled = if step == 1 { iota } else { scaled };
        if start == 0 {
            return Ok(Tensor::of(scaled));
        }
        Ok(Tensor::of(UOp::binary(Op::Add, scaled, constant(dtype, start, count))))
    }
}

impl std::fmt::Debug for Tensor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tensor({}{:?})", self.dtype, self.shape)
    }
}

fn constant(dtype: DType, value: i64, count: i64) -> UOp {
    filled(Constant::int(dtype, i128::from(value)), &[count])
}

/// The constant under every index of `shape`.
pub(crate) fn filled(value: Constant, shape: &[i64]) -> UOp {
    broadcast(UOp::constant(value), shape)
}

/// `node` under other sizes of the same product.
pub(crate) fn reshaped(node: UOp, shape: &[i64]) -> UOp {
    if node.shape() == Some(shape) {
        return node;
    }
    made(UOp::new(Op::Reshape, node.dtype(), [node], Arg::Dims(Dims::from_slice(shape))))
}

/// `node` repeated along axes of size 1, and along new ones before its first.
pub(crate) fn broadcast(node: UOp, shape: &[i64]) -> UOp {
    let own = node.shape().expect("a node of tensor level has a shape");
    assert!(own.len() <= shape.len(), "broadcasting adds axes");
    let mut sizes = vec![1; shape.len() - own.len()];
    sizes.extend_from_slice(own);
    let aligned = reshaped(node, &sizes);
    if sizes == shape {
        return aligned;
    }
    made(UOp::new(Op::Expand, aligned.dtype(), [aligned], Arg::Dims(Dims::from_slice(shape))))
}

/// A new node. Its shape is found now, while that of its sources is known: in deep graphs a later
/// question would go down all the way.
pub(crate) fn made(node: UOp) -> UOp {
    assert!(node.shape().is_some(), "a node of tensor level has a shape");
    node
}

/// How many elements a shape has.
pub(crate) fn check_shape(shape: &[i64]) -> Result<i64, Error> {
    if let Some(size) = shape.iter().find(|size| **size < 0) {
        return invalid(format!("a tensor of shape {shape:?}: {size} is no size; 0 or more"));
    }
    let mut sizes = shape.iter().filter(|size| **size != 0);
    let product = sizes.try_fold(1i64, |product, size| product.checked_mul(*size));
    match product.filter(|product| *product <= MAX_ELEMENTS) {
        Some(_) if shape.contains(&0) => Ok(0),
        Some(product) => Ok(product),
        None if shape.contains(&0) => invalid(format!(
            "a tensor of shape {shape:?}: the sizes that are not 0 may have a product of \
             {MAX_ELEMENTS} at most"
        )),
        None => invalid(format!(
            "a tensor of shape {shape:?}: it may have {MAX_ELEMENTS} elements at most"
        )),
    }
}
