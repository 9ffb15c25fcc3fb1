//! Tensors of nodes that a program made by itself, which are checked.

use gradiff_graph::{DType, Op, UOp};

use crate::error::invalid;
use crate::gradient::check_functions;
use crate::placement::check_names;
use crate::tensor::{check_reduced, check_shape};
use crate::{Error, Tensor};

impl Tensor {
    /// Creates a tensor of a node of tensor level.
    ///
    /// # Errors
    /// If [`gradiff_graph::verify::verify`] refuses the node, it has no shape, more than
    /// [`MAX_ELEMENTS`](crate::MAX_ELEMENTS) elements or a node below it of 2^48 or more, a device
    /// in it does not exist, it has a `function` that is not known, or an op in it is of another
    /// level, as a `view` is.
    pub fn from_uop(node: UOp) -> Result<Tensor, Error> {
        let is_tensor = node.dtype() != DType::Void && node.shape().is_some();
        let verified = gradiff_graph::verify::verify(&node).map_err(|error| error.to_string());
        if let Err(why) =
            verified.and_then(|()| is_tensor.then_some(()).ok_or("it has no shape".into()))
        {
            return invalid(format!("a tensor of {node:?}: {why}"));
        }
        let order = node.order();
        if let Some(foreign) = order.iter().find(|node| !is_of_tensors(node.op())) {
            let op = foreign.op();
            return invalid(format!("a tensor of {node:?}: {op} is no op of tensor level"));
        }
        check_names(&order)?;
        check_functions(&order)?;
        check_shape(node.shape().unwrap_or_default())?;
        for node in order {
            check_reduced(node.shape().unwrap_or_default())?;
        }
        Ok(Tensor::from_valid(node))
    }
}

/// Returns whether the graphs of tensors have the op.
fn is_of_tensors(op: Op) -> bool {
    match op {
        Op::Buffer | Op::Const | Op::Iota | Op::ReduceAxis => true,
        // The scheduler makes views of the other movements.
        Op::View => false,
        op => op.is_movement() || op.is_marker() || op.is_elementwise(),
    }
}
