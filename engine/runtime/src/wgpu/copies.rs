//! Memories of the device, and copies there and back.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ::wgpu::{self as api, BufferUsages};
use gradiff_graph::DType;

use super::{Opened, Slot, Work};
use crate::Error;
use crate::remote::{self, Place};

/// The device as a place of memory.
pub(super) struct OnDevice<'a>(pub(super) &'a Arc<Opened>);

impl Place for OnDevice<'_> {
    fn number(&self) -> usize {
        Arc::as_ptr(self.0).addr()
    }

    fn allocate(&self, dtype: DType, size_bytes: usize) -> Result<Box<dyn remote::Copy>, Error> {
        let size = self.0.size_there(dtype, size_bytes);
        let usage = BufferUsages::STORAGE | BufferUsages::COPY_SRC | BufferUsages::COPY_DST;
        let buffer = Some(self.0.buffer(size as usize, usage)?);
        let handle = self.0.lock().keep(Slot { buffer, ..Slot::default() });
        Ok(Box::new(Held { handle, dtype, size_bytes, opened: self.0.clone() }))
    }
}

impl Opened {
    /// How many bytes a memory takes on the device: whole words.
    fn size_there(&self, dtype: DType, size_bytes: usize) -> u64 {
        let count = size_bytes.div_ceil(dtype.size_bytes());
        (count * self.stored_bytes(dtype)).next_multiple_of(4) as u64
    }
}

impl Work {
    /// The place of a buffer that is now in the list.
    fn keep(&mut self, slot: Slot) -> usize {
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
struct Held {
    /// Its place in the list of buffers.
    handle: usize,
    dtype: DType,
    size_bytes: usize,
    opened: Arc<Opened>,
}

impl Held {
    /// Notes down that its bytes are copied to where another buffer begins.
    fn copy_to(&self, work: &mut Work, to: &api::Buffer) {
        let Slot { buffer, offset, used } = work.buffers[self.handle].clone();
        used.store(work.number, Ordering::Relaxed);
        let from = buffer.expect("it is in use");
        let size = self.opened.size_there(self.dtype, self.size_bytes);
        self.opened.encoder(work).copy_buffer_to_buffer(&from, offset, to, 0, size);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // What is noted down keeps its buffers.
        self.opened.lock().buffers[self.handle] = Slot::default();
    }
}

impl remote::Copy for Held {
    fn place(&self) -> usize {
        Arc::as_ptr(&self.opened).addr()
    }

    fn handle(&self) -> usize {
        self.handle
    }

    fn upload(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let stored_bytes = self.opened.stored_bytes(self.dtype);
        let mut bytes = match stored_bytes == self.dtype.size_bytes() {
            true => Cow::Borrowed(bytes),
            false => Cow::Owned(widened(self.dtype, bytes, stored_bytes)),
        };
        if !bytes.len().is_multiple_of(4) {
            let size = bytes.len().next_multiple_of(4);
            bytes.to_mut().resize(size, 0);
        }
        let work = &mut *self.opened.lock();
        // What is written here is there before all that is only noted down.
        if work.buffers[self.handle].used.load(Ordering::Relaxed) == work.number {
            self.opened.submit(work)?;
        }
        let Slot { buffer, offset, .. } = &work.buffers[self.handle];
        let (to, offset) = (buffer.as_ref().expect("it is in use"), *offset);
        let queue = &self.opened.queue;
        self.opened.checked("write_buffer", || queue.write_buffer(to, offset, &bytes))
    }

    fn download(&self, bytes: &mut [u8]) -> Result<(), Error> {
        let work = &mut *self.opened.lock();
        let size = self.opened.size_there(self.dtype, self.size_bytes);
        let landing = match work.landing.take().filter(|landing| size <= landing.size()) {
            Some(landing) => landing,
            None => {
                let usage = BufferUsages::MAP_READ | BufferUsages::COPY_DST;
                self.opened.buffer((size as usize).next_power_of_two(), usage)?
            }
        };
        self.copy_to(work, &landing);
        self.opened.submit(work)?;
        let landed = landing.slice(..size);
        self.opened.checked("map_async", || landed.map_async(api::MapMode::Read, |_| ()))?;
        self.opened.wait()?;
        let view = landed.get_mapped_range().map_err(|error| Error::Driver {
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
        landing.unmap();
        work.landing = Some(landing);
        Ok(())
    }

    fn part(
        &self,
        offset_bytes: usize,
        size_bytes: usize,
    ) -> Result<Option<Box<dyn remote::Copy>>, Error> {
        let first = offset_bytes / self.dtype.size_bytes();
        let further = (first * self.opened.stored_bytes(self.dtype)) as u64;
        let work = &mut *self.opened.lock();
        let mut slot = work.buffers[self.handle].clone();
        slot.offset += further;
        let align = self.opened.limits.min_storage_buffer_offset_alignment;
        if !slot.offset.is_multiple_of(align.into()) {
            return Ok(None);
        }
        let (handle, dtype, opened) = (work.keep(slot), self.dtype, self.opened.clone());
        Ok(Some(Box::new(Held { handle, dtype, size_bytes, opened })))
    }

    fn duplicate(&self) -> Result<Box<dyn remote::Copy>, Error> {
        let made = OnDevice(&self.opened).allocate(self.dtype, self.size_bytes)?;
        let work = &mut *self.opened.lock();
        let Slot { buffer, used, .. } = work.buffers[made.handle()].clone();
        used.store(work.number, Ordering::Relaxed);
        let to = buffer.expect("it was just made");
        self.opened.checked("copy_buffer_to_buffer", || self.copy_to(work, &to))?;
        Ok(made)
    }
}

/// Elements side by side as they lie on the device: integers extended by their sign, others by 0.
fn widened(dtype: DType, bytes: &[u8], stored_bytes: usize) -> Vec<u8> {
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
