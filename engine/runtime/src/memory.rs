//! Memory that all devices share. Each memory has a lock.
//!
//! A part of a memory is a memory of its own, with its own lock, and shares the bytes until either
//! of the two is written. So no write is visible through another memory, and launches need not know
//! which memories share bytes.

use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

use gradiff_graph::{Buffer, DType};

use crate::Error;
use crate::data::{Data, NO_MEMORY, Written, no_memory, normalize_bools};

/// Memory for elements of one dtype, aligned to 64 bytes.
///
/// A memory tracks whether it was written. Only the checked interpreter tracks single elements; any
/// other device that writes a memory counts as writing all of it.
pub struct Memory {
    dtype: DType,
    size_elements: usize,
    data: RwLock<Data>,
}

impl Memory {
    /// Allocates memory for `size_elements` elements, none of them written.
    ///
    /// # Errors
    /// [`Error::Memory`] if there is not enough.
    pub fn new(dtype: DType, size_elements: usize) -> Result<Memory, Error> {
        let refuse = |why: &str| Error::Memory { dtype, size_elements, why: why.to_string() };
        let size_bytes = size_elements
            .checked_mul(dtype.size_bytes())
            .ok_or_else(|| refuse("the size in bytes does not fit 64 bits"))?;
        let written = if size_elements == 0 { Written::All } else { Written::None };
        let data = Data::new(dtype, size_bytes, written, None);
        let data = data.ok_or_else(|| refuse(NO_MEMORY))?;
        Ok(Memory { dtype, size_elements, data: RwLock::new(data) })
    }

    /// Returns `size_elements` elements from `first` as a memory of its own. It shares the bytes
    /// until either of the two is written; writes are never visible through the other. The part is
    /// copied immediately if it does not begin at a multiple of 64 bytes, or is less than a quarter
    /// of the block that it would keep. Bytes on a device stay there if a memory of the device can
    /// begin at the first of them; otherwise they are copied to the host.
    ///
    /// # Errors
    /// [`Error::Memory`] if the elements are out of range or there is not enough memory for a copy;
    /// the error of the device that has the bytes.
    pub fn part(&self, first: usize, size_elements: usize) -> Result<Memory, Error> {
        if let Some(part) = self.part_in_place(first, size_elements)? {
            return Ok(part);
        }
        let mut data = self.lock_exclusive();
        data.sync_to_host(self.dtype)?;
        self.part_on_host(&mut data, first, size_elements)
    }

    /// As [`Memory::part`], but returns `None` if the bytes would have to be copied to the host.
    ///
    /// # Errors
    /// As [`Memory::part`].
    pub fn part_in_place(
        &self,
        first: usize,
        size_elements: usize,
    ) -> Result<Option<Memory>, Error> {
        let dtype = self.dtype;
        self.check_range(first, size_elements)?;
        let [offset_bytes, size_bytes] = [first, size_elements].map(|n| n * dtype.size_bytes());
        let mut data = self.lock_exclusive();
        if size_bytes != 0
            && let Some(remote) = data.remote_part(offset_bytes, size_bytes)?
        {
            let part = Data::new(dtype, size_bytes, Written::All, Some(remote));
            let part = part.ok_or_else(|| no_memory(dtype, size_bytes))?;
            return Ok(Some(Memory { dtype, size_elements, data: RwLock::new(part) }));
        }
        match data.is_host_stale() {
            true => Ok(None),
            false => self.part_on_host(&mut data, first, size_elements).map(Some),
        }
    }

    /// As [`Memory::part`], for a part that is dropped after a few kernels: an aligned one shares
    /// the bytes however small it is. It does not wait for kernels that read this memory, but for
    /// the first part. `on_device` is true for kernels of a device with memory of its own, which
    /// take parts of the bytes that are there. `None` if these bytes, or those on the host, are not
    /// current or not all written, or the part is empty.
    ///
    /// # Errors
    /// As [`Memory::part`].
    pub fn temporary_part(
        &self,
        first: usize,
        size_elements: usize,
        on_device: bool,
    ) -> Result<Option<Memory>, Error> {
        let dtype = self.dtype;
        self.check_range(first, size_elements)?;
        let [offset_bytes, size_bytes] = [first, size_elements].map(|n| n * dtype.size_bytes());
        loop {
            let data = self.lock();
            if size_bytes == 0 || !data.is_all_written() || data.is_host_stale() && !on_device {
                return Ok(None);
            }
            let part = match on_device {
                true => match data.remote_part(offset_bytes, size_bytes)? {
                    Some(remote) => {
                        let part = Data::new(dtype, size_bytes, Written::All, Some(remote));
                        Some(part.ok_or_else(|| no_memory(dtype, size_bytes))?)
                    }
                    None => return Ok(None),
                },
                false => data.temporary_part(dtype, first, size_elements)?,
            };
            if let Some(part) = part {
                return Ok(Some(Memory { dtype, size_elements, data: RwLock::new(part) }));
            }
            drop(data);
            self.lock_exclusive().share();
        }
    }

    /// Checks that a part is within the memory.
    fn check_range(&self, first: usize, size_elements: usize) -> Result<(), Error> {
        let end = first.checked_add(size_elements).filter(|end| *end <= self.size_elements);
        if end.is_none() {
            let why =
                format!("a part from element {first} exceeds the {} elements", self.size_elements);
            return Err(Error::Memory { dtype: self.dtype, size_elements, why });
        }
        Ok(())
    }

    /// A part whose bytes are on the host and in range.
    fn part_on_host(
        &self,
        data: &mut Data,
        first: usize,
        size_elements: usize,
    ) -> Result<Memory, Error> {
        let dtype = self.dtype;
        let part = data.part(dtype, first, size_elements);
        let part = part.ok_or_else(|| no_memory(dtype, size_elements * dtype.size_bytes()))?;
        Ok(Memory { dtype, size_elements, data: RwLock::new(part) })
    }

    /// Allocates a memory with a copy of `bytes`, little-endian elements. A byte of bool is true
    /// unless it is 0.
    ///
    /// # Errors
    /// [`Error::Memory`] if the bytes are not a whole number of elements.
    pub fn from_bytes(dtype: DType, bytes: &[u8]) -> Result<Memory, Error> {
        let size_elements = bytes.len() / dtype.size_bytes().max(1);
        let memory = Memory::new(dtype, size_elements)?;
        memory.write(bytes)?;
        Ok(memory)
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The number of elements.
    pub fn size_elements(&self) -> usize {
        self.size_elements
    }

    /// Returns where the elements begin in the host's block that holds them, and the size of this
    /// block, in bytes. The memory keeps the whole block, which other memories may share.
    pub fn block(&self) -> (usize, usize) {
        self.lock().position_in_block()
    }

    /// Returns whether all elements were written.
    pub fn is_initialised(&self) -> bool {
        self.lock().is_all_written()
    }

    /// Reads a copy of the bytes, little-endian.
    ///
    /// # Errors
    /// [`Error::Unwritten`] if nothing was ever written; the error of the device that has the
    /// bytes.
    pub fn read(&self) -> Result<Vec<u8>, Error> {
        let data = self.read_lock()?;
        if data.is_any_written() || self.size_elements == 0 {
            return Ok(data.bytes().to_vec());
        }
        Err(Error::Unwritten { dtype: self.dtype, size_elements: self.size_elements })
    }

    /// Replaces all elements by `bytes`. A byte of bool is true unless it is 0.
    ///
    /// # Errors
    /// [`Error::Memory`] if the size is different.
    pub fn write(&self, bytes: &[u8]) -> Result<(), Error> {
        let mut data = self.lock_exclusive();
        let size_bytes = data.bytes().len();
        if bytes.len() != size_bytes {
            let why = format!("{size_bytes} bytes are needed, {} were given", bytes.len());
            let (dtype, size_elements) = (self.dtype, self.size_elements);
            return Err(Error::Memory { dtype, size_elements, why });
        }
        data.unshare(self.dtype, false)?;
        data.invalidate_device_copy();
        data.bytes_mut().copy_from_slice(bytes);
        if self.dtype == DType::Bool {
            normalize_bools(data.bytes_mut());
        }
        data.mark_written();
        Ok(())
    }

    // A failed kernel may leave wrong bytes, but never an inconsistent memory, so lock poisoning is
    // ignored.
    fn lock(&self) -> RwLockReadGuard<'_, Data> {
        self.data.read().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub(crate) fn lock_exclusive(&self) -> RwLockWriteGuard<'_, Data> {
        self.data.write().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Locks for reading on the host.
    pub(crate) fn read_lock(&self) -> Result<RwLockReadGuard<'_, Data>, Error> {
        loop {
            let data = self.lock();
            if !data.is_host_stale() {
                return Ok(data);
            }
            drop(data);
            self.lock_exclusive().sync_to_host(self.dtype)?;
        }
    }

    /// Locks for writing on the host.
    pub(crate) fn write_lock(&self) -> Result<RwLockWriteGuard<'_, Data>, Error> {
        let mut data = self.lock_exclusive();
        data.sync_to_host(self.dtype)?;
        data.unshare(self.dtype, true)?;
        data.invalidate_device_copy();
        Ok(data)
    }
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Memory({} x {})", self.size_elements, self.dtype)
    }
}

/// Returns the memory of a buffer. Allocates it, unwritten, if there is none.
///
/// # Errors
/// [`Error::Memory`] if there is not enough.
pub fn memory_of(buffer: &Buffer) -> Result<Arc<Memory>, Error> {
    if buffer.memory().is_none() {
        let size = usize::try_from(buffer.size_elements()).unwrap_or(usize::MAX);
        let memory = Arc::new(Memory::new(buffer.dtype(), size)?);
        buffer.memory_or_init(|| memory);
    }
    let memory = buffer.memory().expect("just given").clone();
    memory.downcast::<Memory>().map_err(|_| Error::Memory {
        dtype: buffer.dtype(),
        size_elements: usize::try_from(buffer.size_elements()).unwrap_or(0),
        why: "the buffer's memory is not a memory of this crate".into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::ALIGNMENT;

    /// The size of a block that is mapped and reused; the smallest one under Miri, which is slow.
    const LARGE: usize = if cfg!(miri) { 256 << 10 } else { 5 << 20 };

    #[test]
    fn from_bytes_then_read_gives_the_bytes() {
        let memory = Memory::from_bytes(DType::I16, &[1, 2, 3, 4]).unwrap();
        assert_eq!((memory.size_elements(), memory.read().unwrap()), (2, vec![1, 2, 3, 4]));
        assert!(memory.is_initialised());
        assert!(Memory::from_bytes(DType::I16, &[1, 2, 3]).is_err());
        assert_eq!(Memory::from_bytes(DType::Bool, &[0, 2]).unwrap().read().unwrap(), vec![0, 1]);
    }

    #[test]
    fn reused_block_is_unwritten() {
        const SIZE: usize = LARGE;
        let address = |memory: &Memory| memory.lock().bytes().as_ptr();
        let first = Memory::from_bytes(DType::U8, &vec![7; SIZE]).unwrap();
        let first_address = address(&first);
        drop(first);
        let second = Memory::new(DType::U8, SIZE).unwrap();
        assert_eq!(address(&second), first_address);
        assert!(!second.is_initialised());
        assert!(second.read().is_err());
    }

    fn start(memory: &Memory) -> usize {
        memory.lock().bytes().as_ptr().addr()
    }

    fn numbered(size: u8) -> Memory {
        Memory::from_bytes(DType::U8, &(0..size).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn part_shares_bytes_if_aligned_and_large() {
        let whole = numbered(200);
        for (first, size, is_shared) in [
            (0, 200, true),
            (64, 100, true),
            (128, 64, true),
            (128, 63, false),
            (63, 100, false),
            (65, 100, false),
            (64, 0, false),
            (200, 0, false),
        ] {
            let part = whole.part(first, size).unwrap();
            let expected: Vec<u8> = (first as u8..(first + size) as u8).collect();
            assert_eq!((part.size_elements(), part.read().unwrap()), (size, expected));
            assert!(part.is_initialised() && part.dtype() == DType::U8);
            let is_in_place = start(&part) == start(&whole) + first;
            assert_eq!(is_in_place, is_shared, "{size} elements from {first}");
            assert!(start(&part).is_multiple_of(ALIGNMENT));
        }
        // A part of a part, with offsets from the start of the first.
        let part = whole.part(64, 130).unwrap().part(64, 66).unwrap();
        assert_eq!((start(&part), part.read().unwrap()[0]), (start(&whole) + 128, 128));
        // Elements of more than one byte.
        let words = Memory::from_bytes(DType::I32, &numbered(200).read().unwrap()).unwrap();
        let part = words.part(16, 30).unwrap();
        assert_eq!((start(&part), part.read().unwrap()[0]), (start(&words) + 64, 64));
    }

    #[test]
    fn temporary_parts_share_bytes_if_aligned() {
        let whole = numbered(200);
        for (first, size, is_shared) in [(64, 1, true), (128, 72, true), (63, 3, false)] {
            let part = whole.temporary_part(first, size, false).unwrap().unwrap();
            assert_eq!(part.read().unwrap()[0], first as u8);
            assert_eq!(
                (start(&part) == start(&whole) + first, part.size_elements()),
                (is_shared, size)
            );
        }
        // A kernel that reads the memory is not waited for.
        let guard = whole.lock();
        let part = whole.temporary_part(64, 8, false).unwrap().unwrap();
        drop(guard);
        whole.write(&[1; 200]).unwrap();
        assert_eq!(part.read().unwrap()[0], 64);
        assert!(
            Memory::new(DType::U8, 100).unwrap().temporary_part(64, 8, false).unwrap().is_none()
        );
        assert!(whole.temporary_part(199, 2, false).is_err());
    }

    #[test]
    fn unwritten_bools_are_0_or_1() {
        const SIZE: usize = LARGE;
        let is_bool = |memory: &Memory| memory.lock().bytes().iter().all(|byte| *byte <= 1);
        for _ in 0..4 {
            // The freed block is reused.
            drop(Memory::from_bytes(DType::U8, &[0xff; SIZE]).unwrap());
            let whole = Memory::new(DType::Bool, SIZE).unwrap();
            assert!(is_bool(&whole));
            drop(Memory::from_bytes(DType::U8, &[0xff; SIZE / 8]).unwrap());
            assert!(is_bool(&whole.part(1, SIZE / 8).unwrap()));
        }
    }

    #[test]
    fn part_beyond_the_end_is_an_error() {
        let whole = numbered(200);
        for (first, size) in [(0, 201), (200, 1), (201, 0), (1, usize::MAX), (usize::MAX, 1)] {
            let error = whole.part(first, size).unwrap_err().to_string();
            let expected = format!(
                "memory for {size} elements of u8: a part from element {first} exceeds the 200 \
                 elements"
            );
            assert_eq!(error, expected);
        }
    }

    #[test]
    fn write_is_not_visible_through_other_memories() {
        let whole = numbered(128);
        let [first, second] = [0, 64].map(|first| whole.part(first, 64).unwrap());
        let inner = second.part(0, 32).unwrap();
        let numbers = |from: u8, to: u8| (from..to).collect::<Vec<u8>>();
        whole.write(&[200; 128]).unwrap();
        first.write(&[201; 64]).unwrap();
        assert_eq!(second.read().unwrap(), numbers(64, 128));
        second.write(&[202; 64]).unwrap();
        assert_eq!(inner.read().unwrap(), numbers(64, 96));
        assert_eq!(whole.read().unwrap(), [200; 128]);
        assert_eq!(first.read().unwrap(), [201; 64]);
        // The last memory of a block writes in place.
        let address = start(&inner);
        drop((whole, first, second));
        inner.write(&[203; 32]).unwrap();
        assert_eq!((start(&inner), inner.read().unwrap()), (address, vec![203; 32]));
    }

    #[test]
    fn part_outlives_the_whole() {
        const SIZE: usize = LARGE;
        let whole = Memory::from_bytes(DType::U8, &vec![7; SIZE]).unwrap();
        let part = whole.part(SIZE / 2, SIZE / 2).unwrap();
        let address = start(&part);
        drop(whole);
        let unrelated = Memory::from_bytes(DType::U8, &vec![9; SIZE]).unwrap();
        assert_eq!(part.read().unwrap(), vec![7; SIZE / 2]);
        assert_eq!(start(&part), address);
        assert!(!(start(&unrelated)..start(&unrelated) + SIZE).contains(&address));
    }

    #[test]
    fn part_of_unwritten_memory_is_unwritten() {
        let whole = Memory::new(DType::I32, 64).unwrap();
        let part = whole.part(16, 32).unwrap();
        assert!(!part.is_initialised() && part.read().is_err());
        whole.write(&[1; 256]).unwrap();
        assert!(part.read().is_err(), "later writes are not visible");
        assert!(whole.part(0, 0).unwrap().is_initialised());
    }

    #[test]
    fn new_too_large_is_an_error() {
        assert!(Memory::new(DType::F64, usize::MAX / 4).is_err());
        assert!(Memory::new(DType::F64, 1 << 50).is_err());
    }

    #[test]
    fn memory_of_gives_one_memory_for_one_buffer() {
        let buffer = Buffer::new(DType::F32, 3);
        let memory = memory_of(&buffer).unwrap();
        assert!(Arc::ptr_eq(&memory, &memory_of(&buffer).unwrap()));
        assert!(!memory.is_initialised());
        assert!(matches!(memory.read(), Err(Error::Unwritten { size_elements: 3, .. })));
    }
}
