//! Errors of reading and writing files.

use std::io;
use std::path::{Path, PathBuf};

use zip::result::ZipError;

/// The reason why a file could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system could not open, read or write the file.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The file as a whole is broken, or is not of the format.
    #[error("{}: {problem}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The problem, and what is allowed.
        problem: String,
    },
    /// A tensor of the file is broken or cannot be represented.
    #[error("{}: tensor {name:?}: {problem}", path.display())]
    Tensor {
        /// The file.
        path: PathBuf,
        /// The name of the tensor; empty where the file has only one.
        name: String,
        /// The problem, and what is allowed.
        problem: String,
    },
}

/// An error whose path is added by the function that knows it.
#[derive(Debug)]
pub(crate) enum Problem {
    Io(io::Error),
    File(String),
    Tensor { name: String, problem: String },
}

impl Problem {
    /// Adds the path.
    pub(crate) fn at(self, path: &Path) -> Error {
        let path = path.to_path_buf();
        match self {
            Problem::Io(source) => Error::Io { path, source },
            Problem::File(problem) => Error::File { path, problem },
            Problem::Tensor { name, problem } => Error::Tensor { path, name, problem },
        }
    }

    /// Adds the name of the tensor that a broken part of the file belongs to.
    pub(crate) fn of_tensor(self, name: &str) -> Problem {
        match self {
            Problem::File(problem) => Problem::Tensor { name: name.to_string(), problem },
            known => known,
        }
    }
}

impl From<io::Error> for Problem {
    fn from(error: io::Error) -> Problem {
        match error.kind() {
            // Said by decoders of damaged or unknown data, which is no fault of the system.
            io::ErrorKind::InvalidData
            | io::ErrorKind::InvalidInput
            | io::ErrorKind::Unsupported
            | io::ErrorKind::UnexpectedEof => Problem::File(error.to_string()),
            _ => Problem::Io(error),
        }
    }
}

impl From<ZipError> for Problem {
    fn from(error: ZipError) -> Problem {
        match error {
            ZipError::Io(error) => error.into(),
            error => Problem::File(error.to_string()),
        }
    }
}

impl From<gradiff_tensor::Error> for Problem {
    fn from(error: gradiff_tensor::Error) -> Problem {
        Problem::File(error.to_string())
    }
}

/// The error for a broken part of a file.
pub(crate) fn broken<T>(problem: impl Into<String>) -> Result<T, Problem> {
    Err(Problem::File(problem.into()))
}
