//! Input: a file of known length. Nothing is allocated for bytes that the file does not have, and
//! a budget limits the memory of values that take more bytes than the file has for them.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use crate::error::{Problem, broken};

/// The maximal length of the name of a tensor.
pub(crate) const MAX_NAME_BYTES: u64 = 4096;

/// The memory that a file of any size may take.
const FREE_BYTES: u64 = 64 << 20;

/// The memory that a tensor without elements takes, with its entries in maps.
pub(crate) const TENSOR_BYTES: u64 = 1024;

/// The memory of an entry of metadata without the bytes of its key and its value.
pub(crate) const ENTRY_BYTES: u64 = 128;

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

/// Allocates an empty vector with memory for `count` items.
pub(crate) fn reserve<T>(count: u64) -> Result<Vec<T>, Problem> {
    let mut items = Vec::new();
    match items.try_reserve_exact(usize::try_from(count).unwrap_or(usize::MAX)) {
        Ok(()) => Ok(items),
        Err(_) => {
            let size_bytes = count.saturating_mul(size_of::<T>() as u64);
            broken(format!("{size_bytes} bytes do not fit in memory"))
        }
    }
}

/// Appends an item, if there is memory for it.
pub(crate) fn try_push<T>(items: &mut Vec<T>, item: T) -> Result<(), Problem> {
    if items.try_reserve(1).is_err() {
        return broken(format!("{} values and more do not fit in memory", items.len()));
    }
    items.push(item);
    Ok(())
}

/// Checks the length of a name that is read, or is to be saved.
pub(crate) fn check_name(name: &str) -> Result<(), Problem> {
    if MAX_NAME_BYTES < name.len() as u64 {
        return broken(format!("a name of {} bytes; {MAX_NAME_BYTES} are allowed", name.len()));
    }
    Ok(())
}

/// The memory that the values of a file may still take. A byte of a file may stand for a value of
/// many bytes, and a compressed file for many values.
pub(crate) struct Budget {
    left_bytes: u64,
}

impl Budget {
    /// A budget of a fixed number of bytes, and of `factor` times the size of the file.
    pub(crate) fn new(file_bytes: u64, factor: u64) -> Budget {
        let share = file_bytes.saturating_mul(factor);
        Budget { left_bytes: FREE_BYTES.saturating_add(share) }
    }

    /// Takes bytes from the budget. Returns whether it had as many.
    #[must_use]
    pub(crate) fn take(&mut self, size_bytes: u64) -> bool {
        let left = self.left_bytes.checked_sub(size_bytes);
        self.left_bytes = left.unwrap_or(0);
        left.is_some()
    }
}
