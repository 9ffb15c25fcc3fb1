//! The bytes of a memory: on the host, on a device, or on both.
//!
//! Bytes on the host are in a block that parts of a memory may share. They are copied before one of
//! the memories that share them is written (copy on write).
//!
//! A memory has at most one copy, on the device that used it last. The current bytes are on the
//! host, on the device, or on both; each side is updated when it is used, never earlier.

use std::sync::Arc;

use gradiff_graph::DType;

use crate::Error;
use crate::pool::Block;
use crate::remote::{RemoteCopy, RemoteDevice};

/// The data that the lock of a memory guards.
pub(crate) struct Data {
    storage: Storage,
    /// The offset of the bytes in the block, a multiple of 64.
    offset_bytes: usize,
    size_bytes: usize,
    written: Written,
    /// The copy on a device.
    remote: Option<RemoteCopy>,
}

/// The block that holds the bytes.
enum Storage {
    Own(Block),
    /// A block that other memories may share; it is never written.
    Shared(Arc<Block>),
}

impl Storage {
    fn block(&self) -> &Block {
        match self {
            Storage::Own(block) => block,
            Storage::Shared(block) => block,
        }
    }

    /// Takes the storage and leaves an empty block.
    fn take(&mut self) -> Storage {
        std::mem::replace(self, Storage::Own(Block::empty()))
    }
}

/// The elements that were written.
pub(crate) enum Written {
    All,
    None,
    Some(Vec<bool>),
}

impl Data {
    /// Allocates bytes on the host; `None` if there is not enough memory.
    pub(crate) fn new(
        dtype: DType,
        size_bytes: usize,
        written: Written,
        remote: Option<RemoteCopy>,
    ) -> Option<Data> {
        let storage = Storage::Own(new_block(dtype, size_bytes)?);
        Some(Data { storage, offset_bytes: 0, size_bytes, written, remote })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: a block is initialised and has at least `size_bytes` from the start.
        unsafe { std::slice::from_raw_parts(self.start(), self.size_bytes) }
    }

    /// The bytes for writing; they must not be shared.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`; `self` is borrowed mutably, and the block is not shared.
        unsafe { std::slice::from_raw_parts_mut(self.start_mut(), self.size_bytes) }
    }

    /// The bytes, and the flags of elements if they are tracked, for writing.
    pub(crate) fn bytes_and_flags_mut(&mut self) -> (&mut [u8], Option<&mut [bool]>) {
        // SAFETY: as in `bytes_mut`; `written` is not part of `storage`.
        let bytes = unsafe { std::slice::from_raw_parts_mut(self.start_mut(), self.size_bytes) };
        match &mut self.written {
            Written::Some(flags) => (bytes, Some(flags)),
            _ => (bytes, None),
        }
    }

    pub(crate) fn start(&self) -> *const u8 {
        let block = self.storage.block();
        debug_assert!(self.offset_bytes + self.size_bytes <= block.size_bytes());
        // SAFETY: the offset is within the block.
        unsafe { block.as_ptr().add(self.offset_bytes) }
    }

    pub(crate) fn start_mut(&mut self) -> *mut u8 {
        let Storage::Own(block) = &mut self.storage else {
            unreachable!("bytes are unshared before they are written")
        };
        debug_assert!(self.offset_bytes + self.size_bytes <= block.size_bytes());
        // SAFETY: as in `start`.
        unsafe { block.as_mut_ptr().add(self.offset_bytes) }
    }

    /// Makes the bytes unshared, before they are written. Copies them if they are shared and
    /// `keeps_content`.
    pub(crate) fn unshare(&mut self, dtype: DType, keeps_content: bool) -> Result<(), Error> {
        if let Storage::Own(_) = self.storage {
            return Ok(());
        }
        let shared = match self.storage.take() {
            Storage::Own(block) => Ok(block),
            Storage::Shared(block) => Arc::try_unwrap(block),
        };
        match shared {
            // No other memory shares the block any more.
            Ok(block) => self.storage = Storage::Own(block),
            Err(shared) => {
                self.storage = Storage::Shared(shared);
                let copies = keeps_content && self.is_any_written();
                let block = match copies {
                    true => Block::copy_of(self.bytes()),
                    false => new_block(dtype, self.size_bytes),
                };
                let block = block.ok_or_else(|| no_memory(dtype, self.size_bytes))?;
                (self.storage, self.offset_bytes) = (Storage::Own(block), 0);
            }
        }
        Ok(())
    }

    /// Returns a part, from an element in range, of bytes that are current on the host; `None` if
    /// there is not enough memory for a copy.
    pub(crate) fn part(
        &mut self,
        dtype: DType,
        first: usize,
        size_elements: usize,
    ) -> Option<Data> {
        let [offset_bytes, size_bytes] = [first, size_elements].map(|n| n * dtype.size_bytes());
        let (storage, offset_bytes) = self.part_of_storage(dtype, offset_bytes, size_bytes)?;
        let written = match &self.written {
            Written::Some(flags) => Written::Some(flags[first..][..size_elements].to_vec()),
            Written::None if size_elements != 0 => Written::None,
            _ => Written::All,
        };
        let mut part = Data { storage, offset_bytes, size_bytes, written, remote: None };
        part.compact_flags();
        Some(part)
    }

    /// The storage of a part of the bytes, and its offset: the shared block, or a copy if the part
    /// is not aligned or too small.
    fn part_of_storage(
        &mut self,
        dtype: DType,
        offset_bytes: usize,
        size_bytes: usize,
    ) -> Option<(Storage, usize)> {
        let start = self.offset_bytes + offset_bytes;
        let is_large = is_worth_sharing(self.storage.block().size_bytes(), size_bytes);
        if !start.is_multiple_of(ALIGNMENT) || !is_large {
            let bytes = &self.bytes()[offset_bytes..][..size_bytes];
            let block = match self.is_any_written() {
                true => Block::copy_of(bytes),
                false => new_block(dtype, size_bytes),
            };
            return block.map(|block| (Storage::Own(block), 0));
        }
        let block = match self.storage.take() {
            Storage::Own(block) => Arc::new(block),
            Storage::Shared(block) => block,
        };
        self.storage = Storage::Shared(block.clone());
        Some((Storage::Shared(block), start))
    }

    /// Returns a part, from an element in range, of bytes that are current on the host and all
    /// written: it shares the block however small it is, or is a copy if it is not aligned. `None`
    /// if the block is not shared yet.
    pub(crate) fn temporary_part(
        &self,
        dtype: DType,
        first: usize,
        size_elements: usize,
    ) -> Result<Option<Data>, Error> {
        let [offset_bytes, size_bytes] = [first, size_elements].map(|n| n * dtype.size_bytes());
        let start = self.offset_bytes + offset_bytes;
        let (storage, offset_bytes) = match &self.storage {
            _ if !start.is_multiple_of(ALIGNMENT) => {
                let block = Block::copy_of(&self.bytes()[offset_bytes..][..size_bytes]);
                (Storage::Own(block.ok_or_else(|| no_memory(dtype, size_bytes))?), 0)
            }
            Storage::Shared(block) => (Storage::Shared(block.clone()), start),
            Storage::Own(_) => return Ok(None),
        };
        let written = Written::All;
        Ok(Some(Data { storage, offset_bytes, size_bytes, written, remote: None }))
    }

    /// Makes the block one that parts can share.
    pub(crate) fn share(&mut self) {
        self.storage = match self.storage.take() {
            Storage::Own(block) => Storage::Shared(Arc::new(block)),
            shared => shared,
        };
    }

    /// Returns the offset of the bytes in the host's block, and its size in bytes.
    pub(crate) fn position_in_block(&self) -> (usize, usize) {
        (self.offset_bytes, self.storage.block().size_bytes())
    }

    /// Returns whether any element was written.
    pub(crate) fn is_any_written(&self) -> bool {
        !matches!(self.written, Written::None)
    }

    /// Returns whether all elements were written.
    pub(crate) fn is_all_written(&self) -> bool {
        matches!(self.written, Written::All)
    }

    pub(crate) fn mark_written(&mut self) {
        self.written = Written::All;
    }

    /// Marks the bytes as written on the device, whose copy is current.
    pub(crate) fn mark_written_on_device(&mut self) {
        self.mark_written();
        if let Some(remote) = &mut self.remote {
            remote.is_host_stale = true;
        }
    }

    /// Marks the device copy as out of date after a launch that failed and may have written a part
    /// of it. If only the device has the bytes, they stay as they are.
    pub(crate) fn mark_damaged_on_device(&mut self) {
        if let Some(remote) = &mut self.remote {
            remote.is_current = remote.is_host_stale;
        }
    }

    /// Returns whether an element was written.
    #[inline]
    pub(crate) fn is_written(&self, element: usize) -> bool {
        match &self.written {
            Written::All => true,
            Written::None => false,
            Written::Some(flags) => flags[element],
        }
    }

    /// Starts to track for each element whether it was written. Unwritten elements become 0.
    pub(crate) fn track_elements(&mut self, dtype: DType) -> Result<(), Error> {
        if matches!(self.written, Written::None) {
            let size_elements = self.size_bytes / dtype.size_bytes().max(1);
            let mut flags = Vec::new();
            let reserved = flags.try_reserve_exact(size_elements);
            reserved.map_err(|_| no_memory(dtype, self.size_bytes))?;
            flags.resize(size_elements, false);
            self.bytes_mut().fill(0);
            self.written = Written::Some(flags);
        }
        Ok(())
    }

    /// Drops the flags of elements if all of them were written, or none.
    pub(crate) fn compact_flags(&mut self) {
        if let Written::Some(flags) = &self.written {
            if flags.iter().all(|flag| *flag) {
                self.written = Written::All;
            } else if flags.iter().all(|flag| !*flag) {
                self.written = Written::None;
            }
        }
    }

    /// Returns a part of the device copy that shares its bytes. `None` if the device does not have
    /// the current bytes, or if a buffer cannot begin at this offset.
    pub(crate) fn remote_part(
        &self,
        offset_bytes: usize,
        size_bytes: usize,
    ) -> Result<Option<RemoteCopy>, Error> {
        let is_current = |remote: &&RemoteCopy| remote.is_current && self.is_all_written();
        let Some(remote) = self.remote.as_ref().filter(is_current) else { return Ok(None) };
        let Some(buffer) = remote.buffer.part(offset_bytes, size_bytes)? else { return Ok(None) };
        let mut part = match is_worth_sharing(remote.block_bytes, size_bytes) {
            true => {
                let sharers = remote.sharers.clone();
                RemoteCopy { sharers, ..RemoteCopy::new(buffer, remote.block_bytes) }
            }
            false => RemoteCopy::new(buffer.duplicate()?, size_bytes),
        };
        (part.is_current, part.is_host_stale) = (true, true);
        Ok(Some(part))
    }

    /// Returns whether only the device has the current bytes.
    pub(crate) fn is_host_stale(&self) -> bool {
        self.remote.as_ref().is_some_and(|remote| remote.is_host_stale)
    }

    /// Copies the bytes to the host unless they are current there.
    pub(crate) fn sync_to_host(&mut self, dtype: DType) -> Result<(), Error> {
        if self.is_host_stale() {
            // Memories that share the host bytes must keep them.
            self.unshare(dtype, false)?;
        }
        if let Some(mut remote) = self.remote.take_if(|remote| remote.is_host_stale) {
            // Some drivers refuse to copy no bytes.
            let downloaded = match self.size_bytes {
                0 => Ok(()),
                _ => remote.buffer.download(self.bytes_mut()),
            };
            remote.is_host_stale = downloaded.is_err();
            if dtype == DType::Bool {
                normalize_bools(self.bytes_mut());
            }
            self.remote = Some(remote);
            downloaded?;
        }
        Ok(())
    }

    /// Marks the device copy as out of date, before the host bytes are written.
    pub(crate) fn invalidate_device_copy(&mut self) {
        if let Some(remote) = &mut self.remote {
            (remote.is_current, remote.is_host_stale) = (false, false);
        }
    }

    /// Copies the bytes to the device unless they are current there, and returns the handle. If a
    /// kernel will write the bytes (`is_written`), the buffer shares them no longer.
    pub(crate) fn sync_to_device(
        &mut self,
        device: &dyn RemoteDevice,
        dtype: DType,
        is_written: bool,
    ) -> Result<usize, Error> {
        if self.remote.as_ref().is_some_and(|remote| remote.buffer.device_id() != device.id()) {
            self.sync_to_host(dtype)?;
            self.remote = None;
        }
        let size_bytes = self.bytes().len();
        // A shared buffer must not be overwritten.
        let is_usable = |remote: &RemoteCopy| remote.is_current || !remote.is_shared();
        let mut remote = match self.remote.take().filter(is_usable) {
            Some(remote) => remote,
            None => RemoteCopy::new(device.allocate(dtype, size_bytes.max(1))?, size_bytes),
        };
        if !remote.is_current && self.is_any_written() && size_bytes != 0 {
            remote.buffer.upload(self.bytes())?;
        } else if is_written && remote.is_shared() {
            match remote.buffer.duplicate() {
                Ok(buffer) => {
                    let is_host_stale = remote.is_host_stale;
                    remote = RemoteCopy { is_host_stale, ..RemoteCopy::new(buffer, size_bytes) };
                }
                Err(error) => {
                    // The device may have the only current bytes.
                    self.remote = Some(remote);
                    return Err(error);
                }
            }
        }
        remote.is_current = true;
        let handle = remote.buffer.handle();
        self.remote = Some(remote);
        Ok(handle)
    }
}

/// Allocates a block. Its bools are 0 or 1, which compilers assume of each bool that they load, and
/// from which they may conclude that indices are in bounds.
fn new_block(dtype: DType, size_bytes: usize) -> Option<Block> {
    let mut block = Block::new(size_bytes)?;
    if dtype == DType::Bool {
        // SAFETY: a block is initialised and has at least this many bytes; it is borrowed mutably.
        let bytes = unsafe { std::slice::from_raw_parts_mut(block.as_mut_ptr(), size_bytes) };
        normalize_bools(bytes);
    }
    Some(block)
}

/// Changes each byte that is not 0 to 1.
pub(crate) fn normalize_bools(bytes: &mut [u8]) {
    bytes.iter_mut().for_each(|byte| *byte = u8::from(*byte != 0));
}

pub(crate) const NO_MEMORY: &str = "there is not enough memory";

pub(crate) fn no_memory(dtype: DType, size_bytes: usize) -> Error {
    let size_elements = size_bytes / dtype.size_bytes().max(1);
    Error::Memory { dtype, size_elements, why: NO_MEMORY.to_string() }
}

/// The alignment of memories in bytes: kernels load and store vectors.
pub(crate) const ALIGNMENT: usize = 64;

/// A part that shares a block keeps all of it. A part smaller than the block divided by this is
/// copied instead.
const MAX_SHARED_RATIO: usize = 4;

/// Returns whether a part is large enough to share its block.
pub(crate) fn is_worth_sharing(block_bytes: usize, part_bytes: usize) -> bool {
    block_bytes <= part_bytes.saturating_mul(MAX_SHARED_RATIO)
}
