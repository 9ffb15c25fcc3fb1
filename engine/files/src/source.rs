//! Input: a file of known length. Nothing is allocated for bytes that the file does not have.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use crate::error::{Problem, broken};

/// The maximal length of the name of a tensor.
pub(crate) const MAX_NAME_BYTES: u64 = 4096;

/// A file that is open for reading.
pub(crate) struct Source {
    pub(crate) file: File,
    pub(crate) size_bytes: u64,
}

impl Source {
    /// Opens a regular file.
    pub(crate) fn open(path: &Path) -> Result<Source, Problem> {
        if !std::fs::metadata(path)?.is_file() {
            return broken("this is no regular file");
        }
        let file = File::open(path)?;
        let size_bytes = file.metadata()?.len();
        Ok(Source { file, size_bytes })
    }

    /// Reads bytes at an offset, if the file has as many.
    pub(crate) fn read_at(&mut self, offset: u64, size_bytes: u64) -> Result<Vec<u8>, Problem> {
        if offset.checked_add(size_bytes).is_none_or(|end| self.size_bytes < end) {
            return broken(format!(
                "{size_bytes} bytes at offset {offset} reach beyond the {} bytes of the file",
                self.size_bytes
            ));
        }
        self.file.seek(SeekFrom::Start(offset))?;
        read_exactly(&mut self.file, size_bytes, size_bytes)
    }
}

/// Reads exactly `size_bytes` bytes. Allocates `present_bytes` at once, and more as they arrive.
pub(crate) fn read_exactly(
    reader: &mut dyn Read,
    size_bytes: u64,
    present_bytes: u64,
) -> Result<Vec<u8>, Problem> {
    let mut bytes = reserve(size_bytes.min(present_bytes))?;
    let count = reader.take(size_bytes).read_to_end(&mut bytes)?;
    if count as u64 != size_bytes {
        return broken(format!("it ends after {count} of {size_bytes} bytes"));
    }
    Ok(bytes)
}

/// Allocates an empty vector with memory for `size_bytes` bytes.
pub(crate) fn reserve(size_bytes: u64) -> Result<Vec<u8>, Problem> {
    let mut bytes = Vec::new();
    let size = usize::try_from(size_bytes).unwrap_or(usize::MAX);
    match bytes.try_reserve_exact(size) {
        Ok(()) => Ok(bytes),
        Err(_) => broken(format!("{size_bytes} bytes do not fit in memory")),
    }
}
