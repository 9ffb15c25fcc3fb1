//! Memories of the device, and copies there and back.

use std::borrow::Cow;
use std::sync::Arc;

use ::wgpu::{self as api, BufferUsages};
use gradiff_graph::DType;

use super::{Opened, Slot};
use crate::Error;
use crate::remote::{self, Place};

/// The device as a place of memory.
pub(super) struct OnDevice<'a>(pub(super) &'a Arc<Opened>);

impl Place for OnDevice<'_> {
    fn number(&self) -> usize {
        Arc::as_ptr(self.0).addr()
    }

    fn allocate(&self, dtype: DType, size_bytes: usize) -> Result<Box<dyn remote::Copy>, Error> {
        let size = size_bytes.div_ceil(dtype.size_bytes()) * self.0.stored_bytes(dtype);
        let usage = BufferUsages::STORAGE | BufferUsages::COPY_SRC | BufferUsages::COPY_DST;
        let work = &mut *self.0.lock();
        let buffer = self.0.buffer(size.next_multiple_of(4), usage)?;
        let free = work.buffers.iter().position(|slot| slot.buffer.is_none());
        let handle = free.unwrap_or(work.buffers.len());
        if handle == work.buffers.len() {
            work.buffers.push(Slot::default());
        }
        work.buffers[handle] = Slot { buffer: Some(buffer), used: None };
        Ok(Box::new(Held { handle, dtype, opened: self.0.clone() }))
    }
}

/// A buffer of the device.
struct Held {
    /// Its place in the list of buffers.
    handle: usize,
    dtype: DType,
    opened: Arc<Opened>,
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
        if work.buffers[self.handle].used == Some(work.number) {
            self.opened.submit(work)?;
        }
        let buffer = work.buffers[self.handle].buffer.as_ref().expect("it is in use");
        self.opened.checked("write_buffer", || self.opened.queue.write_buffer(buffer, 0, &bytes))
    }

    fn download(&self, bytes: &mut [u8]) -> Result<(), Error> {
        let work = &mut *self.opened.lock();
        let from = work.buffers[self.handle].buffer.clone().expect("it is in use");
        let size = from.size();
        let landing = match work.landing.take().filter(|landing| size <= landing.size()) {
            Some(landing) => landing,
            None => {
                let usage = BufferUsages::MAP_READ | BufferUsages::COPY_DST;
                self.opened.buffer((size as usize).next_power_of_two(), usage)?
            }
        };
        let encoder = self.opened.encoder(work);
        encoder.copy_buffer_to_buffer(&from, 0, &landing, 0, size);
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
