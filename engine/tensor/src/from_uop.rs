//! Tensors of nodes that a program made by itself, which are checked.

use gradiff_graph::{DType, UOp};

use crate::error::invalid;
use crate::gradient::check_functions;
use crate::placement::check_names;
use crate::tensor::check_shape;
use crate::{Error, Tensor};

impl Tensor {
    /// Creates a tensor of a node of tensor level.
    ///
    /// # Errors If [`gradiff_graph::verify::verify`] refuses the node, it has no shape, a shape in
    /// it exceeds [`MAX_ELEMENTS`], a device in it does not exist, or it has a
    /// `function` that is not known.
    pub fn from_uop(node: UOp) -> Result<Tensor, Error> {
        let is_tensor = node.dtype() != DType::Void && node.shape().is_some();
        let verified = gradiff_graph::verify::verify(&node).map_err(|error| error.to_string());
        if let Err(why) =
            verified.and_then(|()| is_tensor.then_some(()).ok_or("it has no shape".into()))
        {
            return invalid(format!("a tensor of {node:?}: {why}"));
        }
        let order = node.order();
        check_names(&order)?;
        check_functions(&order)?;
        for node in order {
            check_shape(node.shape().unwrap_or_default())?;
        }
        Ok(Tensor::from_valid(node))
    }
}
