//! The memory of a launch: bounds, alignment, unwritten bytes, races.

use crate::backends::texts::races::{Accesses, ThreadId};

/// The state space of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Space {
    Global,
    Shared,
}

/// An array and its address.
pub(super) struct Array {
    name: String,
    base: u64,
    pub(super) bytes: Vec<u8>,
    /// Size of a granule, for which accesses are recorded; 0 for an array that is only read.
    granule: usize,
    accesses: Vec<Accesses>,
    /// True if nothing was written before the launch.
    is_fresh: bool,
}

impl Array {
    /// An array at an address; `granule` is 0 if the kernel may only read it.
    pub(super) fn new(
        name: String,
        base: u64,
        bytes: Vec<u8>,
        granule: usize,
        is_fresh: bool,
    ) -> Array {
        let count = if granule == 0 { 0 } else { bytes.len().div_ceil(granule) };
        Array { name, base, bytes, granule, accesses: vec![Accesses::default(); count], is_fresh }
    }

    /// Forgets the contents and the accesses of a group.
    pub(super) fn clear(&mut self) {
        self.bytes.fill(POISON);
        self.accesses.fill(Accesses::default());
    }

    /// Offset of the start of an access in the bytes.
    fn start(&self, address: u64, size: usize) -> Result<usize, String> {
        let start = address.wrapping_sub(self.base);
        let end = start.checked_add(size as u64);
        if end.is_none_or(|end| end > self.bytes.len() as u64) {
            let size_bytes = self.bytes.len();
            let start = start as i64;
            let name = &self.name;
            return Err(format!("{size} bytes at {start} of {name}, which has {size_bytes} bytes"));
        }
        if !address.is_multiple_of(size as u64) {
            return Err(format!(
                "{size} bytes at {start} of {}, which is not a multiple",
                self.name
            ));
        }
        Ok(start as usize)
    }

    fn race(&self, start: usize) -> String {
        format!("a race at byte {start} of {}", self.name)
    }

    fn read(&mut self, start: usize, size: usize, id: ThreadId) -> Result<(), String> {
        if self.granule == 0 {
            return Ok(());
        }
        for number in start / self.granule..(start + size).div_ceil(self.granule) {
            if !self.accesses[number].read(id) {
                return Err(self.race(start));
            }
            if self.is_fresh && !self.accesses[number].is_written() {
                return Err(format!("byte {start} of {} was never written", self.name));
            }
        }
        Ok(())
    }

    fn write(&mut self, start: usize, size: usize, id: ThreadId) -> Result<(), String> {
        if self.granule == 0 {
            return Err(format!("{} is only read by the kernel", self.name));
        }
        for number in start / self.granule..(start + size).div_ceil(self.granule) {
            if !self.accesses[number].write(id) {
                return Err(self.race(start));
            }
        }
        Ok(())
    }
}

/// Distance of an array from the beginning of its 4 GiB, so that addresses a little before it are
/// not in another array.
const LEAD: u64 = 1 << 31;

/// The address of a parameter's array, aligned for every access.
pub(super) fn global_base(number: usize) -> u64 {
    (number as u64 + 1) << 32 | LEAD
}

/// The address of a shared array, which has exactly its declared alignment.
pub(super) fn shared_base(number: usize, alignment: u64) -> u64 {
    1 << 48 | (number as u64) << 32 | LEAD | alignment
}

/// The value of bytes that were never written.
pub(super) const POISON: u8 = 0xa5;

/// All arrays of a launch.
pub(super) struct Memory {
    pub(super) global: Vec<Array>,
    pub(super) shared: Vec<Array>,
}

impl Memory {
    /// The array of an address, by the upper half of the address.
    fn array(&mut self, space: Space, address: u64) -> Result<&mut Array, String> {
        let number = address >> 32;
        let (arrays, number) = match space {
            Space::Global => (&mut self.global, number.checked_sub(1)),
            Space::Shared => (&mut self.shared, number.checked_sub(1 << 16)),
        };
        let array = number.and_then(|number| arrays.get_mut(usize::try_from(number).ok()?));
        array.ok_or_else(|| format!("address {address:#x} is in no array of this space"))
    }

    /// The bytes of a load of `size` bytes; nothing is copied.
    pub(super) fn read(
        &mut self,
        (space, address): (Space, u64),
        size: usize,
        id: ThreadId,
    ) -> Result<&[u8], String> {
        let array = self.array(space, address)?;
        let start = array.start(address, size)?;
        array.read(start, size, id)?;
        Ok(&array.bytes[start..start + size])
    }

    /// The bytes that a store will overwrite.
    pub(super) fn write(
        &mut self,
        (space, address): (Space, u64),
        size: usize,
        id: ThreadId,
    ) -> Result<&mut [u8], String> {
        let array = self.array(space, address)?;
        let start = array.start(address, size)?;
        array.write(start, size, id)?;
        Ok(&mut array.bytes[start..start + size])
    }
}
