//! From a tensor graph to ordered kernels and their buffers.
