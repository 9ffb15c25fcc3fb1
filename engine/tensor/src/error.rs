//! Errors of tensor calls.

/// The reason why a tensor could not be created, computed or read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The arguments are not valid; the message says which are.
    #[error("{0}")]
    Invalid(String),
    /// The graph could not be divided into kernels.
    #[error(transparent)]
    Schedule(#[from] gradiff_schedule::Error),
    /// A kernel could not be lowered.
    #[error(transparent)]
    Kernel(#[from] gradiff_kernel::Error),
    /// A kernel could not be rendered.
    #[error(transparent)]
    Render(#[from] gradiff_render::Error),
    /// The device failed or refused a kernel.
    #[error(transparent)]
    Runtime(#[from] gradiff_runtime::Error),
}

impl Error {
    /// Returns whether the machine is at fault (its files, compilers, devices and settings), so
    /// that the same call may succeed on another one.
    pub fn is_environment(&self) -> bool {
        matches!(self, Error::Runtime(error) if error.is_environment())
    }
}

/// The error for invalid arguments.
pub(crate) fn invalid<T>(message: impl Into<String>) -> Result<T, Error> {
    Err(Error::Invalid(message.into()))
}
