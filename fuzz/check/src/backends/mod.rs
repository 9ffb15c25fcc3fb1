//! Everything that can run a program: the engine's devices in each configuration, sessions that use
//! the library as applications do, and texts of languages run on this machine.

pub(crate) mod backend;
pub(crate) mod engine;
pub(crate) mod exchange;
pub(crate) mod methods;
pub(crate) mod panics;
pub(crate) mod peer;
pub(crate) mod refusal;
pub(crate) mod session;
pub(crate) mod texts;
pub(crate) mod translate;
