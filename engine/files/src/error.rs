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
            // Said by decoders of damaged or unknown data, which is no fault of the system: errors
            // of the system have a number.
            io::ErrorKind::InvalidData
            | io::ErrorKind::InvalidInput
            | io::ErrorKind::Unsupported
            | io::ErrorKind::UnexpectedEof
                if error.raw_os_error().is_none() =>
            {
                Problem::File(error.to_string())
            }
            _ => Problem::Io(error),
        }
    }
}

impl From<ZipError> for Problem {
    fn from(error: ZipError) -> Problem {
        match error {
            // The system refuses to seek to an entry whose offset is larger than any file.
            ZipError::Io(error) if error.kind() == io::ErrorKind::InvalidInput => {
                Problem::File(error.to_string())
            }
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

#[cfg(test)]
mod tests {
    use std::io::{Seek, SeekFrom};

    use super::*;

    /// Numbers of EINVAL, ENOSYS and EOPNOTSUPP, as file systems give them for what they do not do.
    #[test]
    fn errors_of_the_system_are_not_of_the_file() {
        for number in [22, 38, 95] {
            let error = io::Error::from_raw_os_error(number);
            assert!(matches!(Problem::from(error), Problem::Io(_)), "{number}");
        }
        for kind in [io::ErrorKind::InvalidInput, io::ErrorKind::Unsupported] {
            let error = io::Error::new(kind, "damaged");
            assert!(matches!(Problem::from(error), Problem::File(_)), "{kind}");
        }
    }

    #[test]
    fn an_offset_that_no_file_has_is_an_error_of_the_file() {
        let mut file = tempfile::tempfile().expect("a file");
        let error = file.seek(SeekFrom::Start(u64::MAX)).expect_err("it is too far");
        assert!(matches!(Problem::from(ZipError::Io(error)), Problem::File(_)));
    }
}
