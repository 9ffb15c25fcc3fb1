//! The tensor: a node of the graph in a shared cell; and its constructors.

use std::sync::{Arc, RwLockReadGuard, RwLockWriteGuard};

use gradiff_graph::{Arg, Buffer, Constant, DType, Dims, Op, UOp};
use gradiff_schedule::MAX_VIEW_ELEMENTS;

use crate::error::invalid;
use crate::modes::IS_WITHOUT_GRADIENTS;
use crate::parameters::{detached, keeping_gradients, may_require_gradient, new_parameter};
use crate::state::{Shared, State};
use crate::{Element, Error, Nested, Scalar};

/// The maximal number of elements of a tensor. Axes of size 0 count as 1, so that reductions along
/// them and reshapes stay within the limit too. A method may reduce more elements at once, below
/// 2^48, such as the products of a [`matmul`](Tensor::matmul), none of which is stored.
pub const MAX_ELEMENTS: i64 = 1 << 40;

/// An array of elements of one dtype, computed when it is needed.
///
/// Calls build a graph; nothing runs before [`realize`](Tensor::realize) or a read, which run it on
/// the tensor's [`device`](Tensor::device). A clone is the same tensor: if one is realised, so is
/// the other.
#[derive(Clone)]
pub struct Tensor {
    state: Shared,
    dtype: DType,
    shape: Arc<[i64]>,
}

impl Tensor {
    /// Creates a tensor of a node that is known to be valid.
    pub(crate) fn from_valid(node: UOp) -> Tensor {
        let shape: Arc<[i64]> = node.shape().expect("a node of tensor level has a shape").into();
        if let Err(error) = check_reduced(&shape) {
            panic!("{error}");
        }
        let dtype = node.dtype();
        assert!(dtype != DType::Void, "a tensor has elements");
        Tensor::of_state(Shared::new(without_gradients(node)), dtype, shape)
    }

    /// Creates a tensor that shares this state.
    pub(crate) fn of_state(state: Shared, dtype: DType, shape: Arc<[i64]>) -> Tensor {
        Tensor { state, dtype, shape }
    }

    /// Returns a tensor of the same elements, which an assignment to this one does not change.
    pub(crate) fn unchanged(&self) -> Tensor {
        let node = without_gradients(self.uop());
        Tensor::of_state(Shared::new(node), self.dtype, self.shape.clone())
    }

    /// Returns the state, which the tensor shares with its clones.
    pub(crate) fn shared_state(&self) -> &Shared {
        &self.state
    }

    pub(crate) fn state(&self) -> RwLockReadGuard<'_, State> {
        self.state.read()
    }

    pub(crate) fn state_mut(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write()
    }

    /// Replaces the node if it still is `before`. Returns whether it was.
    fn exchange(&self, before: &UOp, node: UOp) -> bool {
        let mut state = self.state_mut();
        let is_same = state.node == *before;
        if is_same {
            state.node = node;
        }
        is_same
    }

    /// The node of the tensor: the computation, or the buffer once it is realised.
    pub fn uop(&self) -> UOp {
        self.state().node.clone()
    }

    /// Replaces the node `before` by the realised one, on the same device, unless another thread
    /// has replaced it meanwhile.
    fn rebind(&self, before: &UOp, node: UOp) {
        let node = self.placed_as(before, node);
        let is_kept = before.device().is_none() || node.device() == before.device();
        assert!(is_kept, "realising keeps {:?}, not {:?}", before.device(), node.device());
        self.exchange(before, keeping_gradients(before, node));
    }

    /// Replaces the node by that of another computation, on the same device: of what `change` makes
    /// of the tensor. If another thread has replaced the node meanwhile, its computation is
    /// changed, so that neither change is lost.
    pub(crate) fn update(
        &self,
        change: impl Fn(&Tensor) -> Result<Tensor, Error>,
    ) -> Result<(), Error> {
        loop {
            let (before, requires_grad) = {
                let state = self.state();
                (state.node.clone(), state.requires_grad)
            };
            let current =
                Tensor::of_state(Shared::new(before.clone()), self.dtype, self.shape.clone());
            let node = self.placed_as(&before, change(&current)?.uop());
            let node = match requires_grad {
                Some(true) => new_parameter(node, &self.state),
                _ => node,
            };
            if self.exchange(&before, node) {
                return Ok(());
            }
        }
    }

    /// Returns a node on the device that the tensor is on as `before`.
    fn placed_as(&self, before: &UOp, node: UOp) -> UOp {
        let node = match before.device() {
            Some(device) if node.device().is_none() => {
                let arg = Arg::Device(device.clone());
                with_shape(UOp::new(Op::Copy, self.dtype, [node], arg))
            }
            _ => node,
        };
        assert_eq!(node.shape(), Some(&*self.shape), "a tensor keeps its shape");
        assert_eq!(node.dtype(), self.dtype, "a tensor keeps its dtype");
        node
    }

    /// The type of the elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Sizes of the axes, outermost first; `[]` for a scalar.
    pub fn shape(&self) -> &[i64] {
        &self.shape
    }

    /// The number of axes.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// The number of elements.
    pub fn size_elements(&self) -> i64 {
        self.shape.iter().product()
    }

    /// The buffer that the tensor is in, row-major: if it was created from data, or is realised and
    /// not a [`constant`](Tensor::constant).
    pub fn buffer(&self) -> Option<Buffer> {
        buffer_of(&self.uop())
    }

    /// The value of all elements, if the tensor is a constant. A constant needs no computation and
    /// no buffer.
    pub fn constant(&self) -> Option<Constant> {
        gradiff_schedule::constant_of(&self.uop())
    }

    /// Creates a tensor of the elements in `bytes`, row-major, little endian, bool as 0 and 1, on
    /// the default device.
    /// # Errors
    /// If the number of bytes is not that of the shape, or a size is negative or too large.
    pub fn from_bytes(dtype: DType, shape: &[i64], bytes: &[u8]) -> Result<Tensor, Error> {
        if dtype == DType::Void {
            return invalid("a tensor of void: choose a dtype of data");
        }
        let elements = check_shape(shape)?;
        let size_bytes = elements as u128 * dtype.size_bytes() as u128;
        if size_bytes != bytes.len() as u128 {
            return invalid(format!(
                "a tensor {dtype}{shape:?} from {} bytes: it needs {size_bytes} bytes",
                bytes.len()
            ));
        }
        let buffer = Buffer::new(dtype, elements);
        gradiff_runtime::memory_of(&buffer)?.write(bytes)?;
        let node = UOp::new(Op::Buffer, dtype, [], Arg::Buffer(buffer));
        Ok(Tensor::from_valid(reshape_node(node, shape)))
    }

    /// Creates a tensor of these elements, row-major, on the default device. The dtype is that of
    /// the Rust type: `&[1.0, 2.0]` has elements of f64, `&[1f32, 2.0]` of f32, and `&[1, 2]` of
    /// i32. The elements are data, which the kernels that use them load, so that the same kernels
    /// serve other elements.
    /// # Errors
    /// As [`from_bytes`](Tensor::from_bytes).
    pub fn from_slice<T: Element>(shape: &[i64], elements: &[T]) -> Result<Tensor, Error> {
        let count = check_shape(shape)?;
        if usize::try_from(count) != Ok(elements.len()) {
            return invalid(format!(
                "a tensor {}{shape:?} from {} elements: it needs {count}",
                T::DTYPE,
                elements.len()
            ));
        }
        let mut bytes = Vec::with_capacity(size_of_val(elements));
        elements.iter().for_each(|element| element.push_bytes(&mut bytes));
        Tensor::from_bytes(T::DTYPE, shape, &bytes)
    }

    /// Creates a tensor of a number, or of an array, vector or slice of numbers, nested or not, on
    /// the default device; also of an array of `ndarray`. It has an axis for each level, and the
    /// dtype of the Rust type, as for [`from_slice`](Tensor::from_slice).
    /// # Errors
    /// If a nested list has another size than the first, or as [`from_bytes`](Tensor::from_bytes).
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// assert_eq!(Tensor::new([[1, 2], [3, 4]])?.to_text()?, "[[1, 2], [3, 4]]");
    /// let rows: Vec<Vec<f32>> = (0..2).map(|row| vec![row as f32; 3]).collect();
    /// assert_eq!(Tensor::new(&rows)?.shape(), [2, 3]);
    /// assert_eq!(Tensor::new(true)?.to_text()?, "true");
    /// assert!(Tensor::new(vec![vec![1, 2], vec![3]]).is_err());
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn new<A: Nested>(data: A) -> Result<Tensor, Error> {
        let (mut shape, mut elements) = (Vec::new(), Vec::new());
        data.add_shape(&mut shape);
        data.add_elements(&shape, &mut elements)?;
        Tensor::from_slice(&shape, &elements)
    }

    /// Creates a tensor whose elements are all `value`: a constant, as is a number that is an
    /// operand. Constants are part of the kernels that use them, so that each new value compiles
    /// new kernels. A number that changes from step to step, such as a rate or a temperature, is
    /// faster as data: `Tensor::from_slice(&[], &[rate])`, in the dtype that is wanted.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[2], &[1f32, 2.0])?;
    /// for step in 0..3 {
    ///     // One kernel for all steps. A number as operand would have one for each value.
    ///     let rate = Tensor::from_slice(&[], &[0.5f32.powi(step)])?;
    ///     x.assign(x.mul(&rate)?)?.realize()?;
    /// }
    /// assert_eq!(x.to_text()?, "[0.125, 0.25]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    /// # Errors
    /// If the dtype cannot represent the value, or a size is negative or too large.
    pub fn full(dtype: DType, shape: &[i64], value: impl Into<Scalar>) -> Result<Tensor, Error> {
        if dtype == DType::Void {
            return invalid("a tensor of void: choose a dtype of data");
        }
        check_shape(shape)?;
        Ok(Tensor::from_valid(constant_node(value.into().element(dtype)?, shape)))
    }

    /// Creates a tensor of rank 1 with the elements `start + i * step`, wrapping, for i in
    /// 0..count. Integers.
    /// # Errors
    /// If the dtype is not an integer, or the count is negative or too large.
    pub fn arange(dtype: DType, start: i64, step: i64, count: i64) -> Result<Tensor, Error> {
        if !dtype.is_int() {
            return invalid(format!("arange of {dtype}: integer dtypes only; cast the result"));
        }
        check_shape(&[count])?;
        let iota = UOp::new(Op::Iota, dtype, [], Arg::Int(count));
        let scaled = UOp::binary(Op::Mul, iota.clone(), constant(dtype, step, count));
        let scaled = if step == 1 { iota } else { scaled };
        if start == 0 {
            return Ok(Tensor::from_valid(scaled));
        }
        Ok(Tensor::from_valid(UOp::binary(Op::Add, scaled, constant(dtype, start, count))))
    }
}

impl std::fmt::Debug for Tensor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tensor({}{:?})", self.dtype, self.shape)
    }
}

fn constant(dtype: DType, value: i64, count: i64) -> UOp {
    constant_node(Constant::int(dtype, i128::from(value)), &[count])
}

/// Replaces the node of each tensor by its output, if the node still is the one that was computed.
pub(crate) fn rebind(tensors: &[&Tensor], nodes: &[UOp], outputs: &[UOp]) {
    assert_eq!(tensors.len(), outputs.len(), "each tensor has an output");
    let computed = nodes.iter().zip(outputs);
    tensors.iter().zip(computed).for_each(|(tensor, (node, output))| {
        tensor.rebind(node, output.clone());
    });
}

/// Returns the buffer that a node is, reshaped or not.
pub(crate) fn buffer_of(node: &UOp) -> Option<Buffer> {
    let mut node = node;
    while matches!(node.op(), Op::Parameter | Op::Function) {
        node = &node.src()[0];
    }
    let base = if node.op() == Op::Reshape { &node.src()[0] } else { node };
    match base.arg() {
        Arg::Buffer(buffer) => Some(buffer.clone()),
        _ => None,
    }
}

/// A constant broadcast to a shape.
pub(crate) fn constant_node(value: Constant, shape: &[i64]) -> UOp {
    broadcast(UOp::constant(value), shape)
}

/// Reshapes a node.
pub(crate) fn reshape_node(node: UOp, shape: &[i64]) -> UOp {
    if node.shape() == Some(shape) {
        return node;
    }
    with_shape(UOp::new(Op::Reshape, node.dtype(), [node], Arg::Dims(Dims::from_slice(shape))))
}

/// Broadcasts a node: repeats axes of size 1 and inserts axes before the first.
pub(crate) fn broadcast(node: UOp, shape: &[i64]) -> UOp {
    let from = node.shape().expect("a node of tensor level has a shape");
    assert!(from.len() <= shape.len(), "broadcasting adds axes");
    let mut sizes = vec![1; shape.len() - from.len()];
    sizes.extend_from_slice(from);
    let aligned = reshape_node(node, &sizes);
    if sizes == shape {
        return aligned;
    }
    with_shape(UOp::new(Op::Expand, aligned.dtype(), [aligned], Arg::Dims(Dims::from_slice(shape))))
}

/// Returns a new node after inferring its shape. The shapes of its sources are known now; inferring
/// it later would recurse through all of a deep graph.
pub(crate) fn with_shape(node: UOp) -> UOp {
    assert!(node.shape().is_some(), "a node of tensor level has a shape");
    node
}

/// Checks the shape of a tensor and returns the number of its elements.
pub(crate) fn check_shape(shape: &[i64]) -> Result<i64, Error> {
    check_elements("a tensor", shape, MAX_ELEMENTS)
}

/// Returns the node, or within [`Tensor::no_grad`] one of the same value that passes no gradients.
fn without_gradients(node: UOp) -> UOp {
    match IS_WITHOUT_GRADIENTS.get() && may_require_gradient(&node) {
        true => detached(&node),
        false => node,
    }
}

/// Checks the shape of a node that a method reduces at once, as [`check_shape`] does.
pub(crate) fn check_reduced(shape: &[i64]) -> Result<i64, Error> {
    check_elements("a reduction", shape, MAX_VIEW_ELEMENTS)
}

fn check_elements(name: &str, shape: &[i64], limit: i64) -> Result<i64, Error> {
    if let Some(size) = shape.iter().find(|size| **size < 0) {
        return invalid(format!("{name} of shape {shape:?}: the size {size} is negative"));
    }
    let mut sizes = shape.iter().filter(|size| **size != 0);
    let product = sizes.try_fold(1i64, |product, size| product.checked_mul(*size));
    match product.filter(|product| *product <= limit) {
        Some(_) if shape.contains(&0) => Ok(0),
        Some(product) => Ok(product),
        None if shape.contains(&0) => invalid(format!(
            "{name} of shape {shape:?}: the product of the sizes that are not 0 may be {limit} at \
             most"
        )),
        None => invalid(format!("{name} of shape {shape:?}: it may have {limit} elements at most")),
    }
}
