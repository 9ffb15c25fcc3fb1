//! Memories of the device, and copies there and back.

use std::borrow::Cow;
use std::sync::Arc;

use ::wgpu::{self as api, BufferUsages};
use gradiff_graph::DType;

use super::{Opened, Slot, stored_bytes};
use crate::Error;
use crate::remote::{self, Place};

/// The device as a place of memory.
pub(super) struct OnDevice<'a>(pub(super) &'a Arc<Opened>);

impl Place for OnDevice<'_> {
    fn number(&self) -> usize {
        Arc::as_ptr(self.0).addr()
    }

    fn allocate(&self, dtype: DType, size_bytes: usize) -> Result<Box<dyn remote::Copy>, Error> {
        let size = size_bytes.div_ceil(dtype.size_bytes()) * stored_bytes(dtype);
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
        let mut bytes = match self.dtype {
            DType::Bool => Cow::Owned(bytes.iter().flat_map(|byte| [*byte, 0, 0, 0]).collect()),
            _ => Cow::Borrowed(bytes),
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
        match self.dtype {
            DType::Bool => {
                let words = view.chunks_exact(4);
                bytes.iter_mut().zip(words).for_each(|(byte, word)| *byte = word[0]);
            }
            _ => bytes.copy_from_slice(&view[..bytes.len()]),
        }
        drop(view);
        landing.unmap();
        work.landing = Some(landing);
        Ok(())
    }
}
