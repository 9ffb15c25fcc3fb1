//! Zip archives whose entries are disjoint, have distinct names, and are no larger than deflate can
//! make them.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use zip::read::{ArchiveOffset, Config};
use zip::result::ZipError;
use zip::{CompressionMethod, ZipArchive};

use crate::error::{Problem, broken};
use crate::source::{Source, read_exactly};

/// The maximal number of entries.
pub(crate) const MAX_ENTRIES: usize = 1 << 20;

/// The largest ratio of the sizes of data before and after deflate.
const MAX_RATIO: u64 = 1032;

/// An archive that is open for reading.
pub(crate) struct Archive {
    zip: ZipArchive<BufReader<File>>,
    /// The names of the entries, by index.
    pub(crate) names: Vec<String>,
    /// The size of the archive.
    pub(crate) size_bytes: u64,
}

impl Archive {
    /// Opens a file; `note` is for the message if it is no archive.
    pub(crate) fn open(path: &Path, note: &str) -> Result<Archive, Problem> {
        let source = Source::open(path)?;
        let size_bytes = source.size_bytes;
        // The archive begins with the file. Looking for its beginning, the crate takes that of a
        // PyTorch file whose name has 21 letters to be 76 bytes later.
        let config = Config { archive_offset: ArchiveOffset::Known(0) };
        let mut zip = match ZipArchive::with_config(config, BufReader::new(source.file)) {
            Err(error @ ZipError::InvalidArchive(_)) => {
                return broken(format!(
                    "this is no zip archive, or it is broken ({error}); {note}"
                ));
            }
            zip => zip?,
        };
        if MAX_ENTRIES < zip.len() {
            return broken(format!("{} entries; {MAX_ENTRIES} are allowed", zip.len()));
        }
        if zip.has_duplicate_names() || zip.has_overlapping_entries()? {
            return broken("its entries overlap, or two have the same name");
        }
        let mut names = Vec::with_capacity(zip.len());
        for index in 0..zip.len() {
            match zip.name_for_index(index) {
                Some(name) => names.push(name?.into_owned()),
                None => return broken("an entry has no name"),
            }
        }
        Ok(Archive { zip, names, size_bytes })
    }

    /// Calls `read` with an entry, its size, and the number of bytes of it in the file. All of the
    /// entry must be read; then its checksum is compared.
    pub(crate) fn read_with<T>(
        &mut self,
        index: usize,
        read: impl FnOnce(&mut dyn Read, u64, u64) -> Result<T, Problem>,
    ) -> Result<T, Problem> {
        let mut entry = self.zip.by_index(index)?;
        let (size, compressed) = (entry.size(), entry.compressed_size());
        let is_possible = match entry.compression() {
            CompressionMethod::Stored => size == compressed,
            _ => size <= compressed.saturating_mul(MAX_RATIO).saturating_add(MAX_RATIO),
        };
        if !is_possible {
            return broken(format!("{compressed} bytes cannot be {size} bytes compressed"));
        }
        let value = read(&mut entry, size, size.min(compressed))?;
        // The decoder compares the checksum where the data ends.
        if entry.read(&mut [0])? != 0 {
            return broken(format!("an entry has more than its {size} bytes"));
        }
        Ok(value)
    }

    /// Reads an entry of at most `limit_bytes` bytes.
    pub(crate) fn read(&mut self, index: usize, limit_bytes: u64) -> Result<Vec<u8>, Problem> {
        self.read_with(index, |reader, size, present| {
            if limit_bytes < size {
                return broken(format!("an entry of {size} bytes; {limit_bytes} are allowed"));
            }
            read_exactly(reader, size, present)
        })
    }
}
