//! What a tensor call can refuse.

/// Why a tensor could not be made, computed or read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What was asked is not possible; the message says what is.
    #[error("{0}")]
    Invalid(String),
    /// The graph could not be cut into kernels.
    #[error(transparent)]
    Schedule(#[from] gradiff_schedule::Error),
    /// A kernel could not be lowered.
    #[error(transparent)]
    Kernel(#[from] gradiff_kernel::Error),
    /// A kernel could not be written as source text.
    #[error(transparent)]
    Render(#[from] gradiff_render::Error),
    /// The device refused, or a kernel failed on it.
    #[error(transparent)]
    Runtime(#[from] gradiff_runtime::Error),
}

impl Error {
    /// Returns whether the machine is at fault (its files, compilers, devices and settings), so that
    /// the same call may succeed on another one.
    pub fn is_environment(&self) -> bool {
        matches!(self, Error::Runtime(error) if error.is_environment())
    }
}

/// The error for a call that asks for what is not possible.
pub(crate) fn invalid<T>(message: impl Into<String>) -> Result<T, Error> {
    Err(Error::Invalid(message.into()))
}
