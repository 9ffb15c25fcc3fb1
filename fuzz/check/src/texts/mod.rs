//! Interpreters of the source texts that the renderers write.

pub(crate) mod ptx;
