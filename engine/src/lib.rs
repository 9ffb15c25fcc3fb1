//! A lazy tensor library and kernel compiler after tinygrad's architecture.
