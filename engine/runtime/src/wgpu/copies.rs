//! Buffers of the device, uploads and downloads.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ::wgpu::{self as api, BufferUsages};
use gradiff_graph::DType;

use super::opened::{Opened, Slot, Work};
use crate::Error;
use crate::remote::{RemoteBuffer, RemoteDevice};

/// The allocator of device memory.
pub(super) struct OnDevice<'a>(pub(super) &'a Arc<Opened>);

impl RemoteDevice for OnDevice<'_> {
    fn id(&self) -> usize {
        Arc::as_ptr(self.0).addr()
    }

    fn allocate(&self, dtype: DType, size_bytes: usize) -> Result<Box<dyn RemoteBuffer>, Error> {
        let size = self.0.device_bytes(dtype, size_bytes);
        let usage = BufferUsages::STORAGE | BufferUsages::COPY_SRC | BufferUsages::COPY_DST;
        let work = &mut *self.0.lock();
        let buffer = Some(self.0.buffer(work, size, usage)?);
        let handle = work.add(Slot { buffer, ..Slot::default() });
        Ok(Box::new(Buffer { handle, dtype, size_bytes, opened: self.0.clone() }))
    }
}

impl Opened {
    /// The size of a memory on the device: whole words.
    fn device_bytes(&self, dtype: DType, size_bytes: usize) -> u64 {
        let count = size_bytes.div_ceil(dtype.size_bytes());
        (count * self.stored_bytes(dtype)).next_multiple_of(4) as u64
    }
}

impl Work {
    /// Adds a buffer to the list and returns its handle.
    fn add(&mut self, slot: Slot) -> usize {
        let free = self.buffers.iter().position(|slot| slot.buffer.is_none());
        let handle = free.unwrap_or(self.buffers.len());
        if handle == self.buffers.len() {
            self.buffers.push(Slot::default());
        }
        self.buffers[handle] = slot;
        handle
    }
}

/// A buffer of the device, or a part of one.
struct Buffer {
    /// The index in the list of buffers.
    handle: usize,
    dtype: DType,
    size_bytes: usize,
    opened: Arc<Opened>,
}

impl Buffer {
    /// Records a copy of the bytes to the start of another buffer.
    fn copy_to(&self, work: &mut Work, to: &api::Buffer) {
        let Slot { buffer, offset, last_use, .. } = work.buffers[self.handle].clone();
        last_use.store(work.number, Ordering::Relaxed);
        let from = buffer.expect("the buffer is in use");
        let size = self.opened.device_bytes(self.dtype, self.size_bytes);
        self.opened.encoder(work).copy_buffer_to_buffer(&from, offset, to, 0, size);
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // Recorded commands keep their buffers alive.
        self.opened.lock().buffers[self.handle] = Slot::default();
    }
}

impl RemoteBuffer for Buffer {
    fn device_id(&self) -> usize {
        Arc::as_ptr(&self.opened).addr()
    }

    fn handle(&self) -> usize {
        self.handle
    }

    fn upload(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let stored_bytes = self.opened.stored_bytes(self.dtype);
        let mut bytes = match stored_bytes == self.dtype.size_bytes() {
            true => Cow::Borrowed(bytes),
            false => Cow::Owned(widen(self.dtype, bytes, stored_bytes)),
        };
        if !bytes.len().is_multiple_of(4) {
            let size = bytes.len().next_multiple_of(4);
            bytes.to_mut().resize(size, 0);
        }
        let work = &mut *self.opened.lock();
        // The write would take effect before the commands that are recorded but not submitted.
        if work.buffers[self.handle].last_use.load(Ordering::Relaxed) == work.number {
            self.opened.submit(work)?;
        }
        let Slot { buffer, offset, .. } = &work.buffers[self.handle];
        let (to, offset) = (buffer.as_ref().expect("the buffer is in use"), *offset);
        let queue = &self.opened.queue;
        self.opened.checked("write_buffer", || queue.write_buffer(to, offset, &bytes))?;
        work.buffers[self.handle].loss = None;
        Ok(())
    }

    fn download(&self, bytes: &mut [u8]) -> Result<(), Error> {
        let work = &mut *self.opened.lock();
        work.check(self.handle)?;
        let size = self.opened.device_bytes(self.dtype, self.size_bytes);
        let staging = match work.staging.take().filter(|staging| size <= staging.size()) {
            Some(staging) => staging,
            None => {
                let usage = BufferUsages::MAP_READ | BufferUsages::COPY_DST;
                let size = staging_bytes(size, self.opened.limits.max_buffer_size);
                self.opened.buffer(work, size, usage)?
            }
        };
        self.copy_to(work, &staging);
        self.opened.submit(work)?;
        let mapped = staging.slice(..size);
        self.opened.checked("map_async", || mapped.map_async(api::MapMode::Read, |_| ()))?;
        self.opened.wait()?;
        let view = mapped.get_mapped_range().map_err(|error| Error::Driver {
            device: "wgpu",
            call: "get_mapped_range",
            why: error.to_string(),
        })?;
        let size_bytes = self.dtype.size_bytes();
        let words = view.chunks_exact(self.opened.stored_bytes(self.dtype));
        for (element, word) in bytes.chunks_exact_mut(size_bytes).zip(words) {
            element.copy_from_slice(&word[..size_bytes]);
        }
        drop(view);
        staging.unmap();
        work.staging = Some(staging);
        Ok(())
    }

    fn part(
        &self,
        offset_bytes: usize,
        size_bytes: usize,
    ) -> Result<Option<Box<dyn RemoteBuffer>>, Error> {
        let first = offset_bytes / self.dtype.size_bytes();
        let offset = (first * self.opened.stored_bytes(self.dtype)) as u64;
        let work = &mut *self.opened.lock();
        let mut slot = work.buffers[self.handle].clone();
        slot.offset += offset;
        let align = self.opened.limits.min_storage_buffer_offset_alignment;
        if !slot.offset.is_multiple_of(align.into()) {
            return Ok(None);
        }
        let (handle, dtype, opened) = (work.add(slot), self.dtype, self.opened.clone());
        Ok(Some(Box::new(Buffer { handle, dtype, size_bytes, opened })))
    }

    fn duplicate(&self) -> Result<Box<dyn RemoteBuffer>, Error> {
        let copy = OnDevice(&self.opened).allocate(self.dtype, self.size_bytes)?;
        let work = &mut *self.opened.lock();
        work.check(self.handle)?;
        let Slot { buffer, last_use, last_write, .. } = work.buffers[copy.handle()].clone();
        for last in [last_use, last_write] {
            last.store(work.number, Ordering::Relaxed);
        }
        let to = buffer.expect("the buffer was just created");
        self.opened.checked("copy_buffer_to_buffer", || self.copy_to(work, &to))?;
        Ok(copy)
    }
}

/// The size of a staging buffer for these bytes, which are whole words: a power of two, for reuse,
/// but no more than the words of the largest buffer.
fn staging_bytes(size: u64, max: u64) -> u64 {
    size.checked_next_power_of_two().unwrap_or(max).min(max / 4 * 4).max(size)
}

/// Widens elements to their size on the device: signed integers are sign-extended, others are
/// zero-extended.
fn widen(dtype: DType, bytes: &[u8], stored_bytes: usize) -> Vec<u8> {
    let size_bytes = dtype.size_bytes();
    let elements = bytes.chunks_exact(size_bytes);
    let extended = |element: &[u8]| {
        let is_negative = dtype.is_signed() && element[size_bytes - 1] & 0x80 != 0;
        let mut word = [if is_negative { 0xff } else { 0 }; 8];
        word[..size_bytes].copy_from_slice(element);
        word
    };
    elements.flat_map(|element| extended(element).into_iter().take(stored_bytes)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Results of more than half the largest buffer could not be read where its size is no power of
    /// two.
    #[test]
    fn staging_buffer_fits_the_largest_buffer() {
        let max = (1 << 31) - 1;
        for (size, expected) in [
            (4, 4),
            (12, 16),
            (1 << 30, 1 << 30),
            ((1 << 30) + 4, max - 3),
            (max - 3, max - 3),
            // It is refused when it is created.
            (u64::MAX, u64::MAX),
        ] {
            assert_eq!(staging_bytes(size, max), expected, "{size}");
        }
    }
}
