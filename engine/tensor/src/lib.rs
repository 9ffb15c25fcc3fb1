//! The lazy Tensor.
