//! Host memory that all devices share, and the locking that keeps its use sound.
//!
//! Each memory has a lock. A launch locks the memories it reads for reading and those it writes for
//! writing, in the order of addresses, so that launches on other threads wait and never deadlock. A
//! memory may be given for several slots that are only read. A launch that writes a memory which is
//! given for a second slot is refused.
//!
//! A part of a memory is a memory of its own, with its own lock, and shares the bytes until either
//! of the two is written (copy on write). So no write is visible through another memory, and
//! launches need not know which memories share bytes.

use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

use gradiff_graph::{Arg, Buffer, DType, Instruction, Linear, Op};
use smallvec::SmallVec;

use crate::Error;
use crate::pool::Block;
use crate::remote::RemoteCopy;

/// Memory for elements of one dtype, aligned to 64 bytes.
///
/// A memory tracks whether it was written. Only the checked interpreter tracks single elements; any
/// other device that writes a memory counts as writing all of it.
pub struct Memory {
    dtype: DType,
    size_elements: usize,
    data: RwLock<Data>,
}

/// The data that the lock of a memory guards.
pub(crate) struct Data {
    storage: Storage,
    /// The offset of the bytes in the block, a multiple of 64.
    offset_bytes: usize,
    size_bytes: usize,
    written: Written,
    /// The copy on a device.
    pub(crate) remote: Option<RemoteCopy>,
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
enum Written {
    All,
    None,
    Some(Vec<bool>),
}

impl Data {
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

    fn start(&self) -> *const u8 {
        let block = self.storage.block();
        debug_assert!(self.offset_bytes + self.size_bytes <= block.size_bytes());
        // SAFETY: the offset is within the block.
        unsafe { block.as_ptr().add(self.offset_bytes) }
    }

    fn start_mut(&mut self) -> *mut u8 {
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

    /// The storage of a part of the bytes, and its offset: the shared block, or a copy if the part
    /// is not aligned or too small.
    fn part(
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

const NO_MEMORY: &str = "there is not enough memory";

fn no_memory(dtype: DType, size_bytes: usize) -> Error {
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
        let block = new_block(dtype, size_bytes).ok_or_else(|| refuse(NO_MEMORY))?;
        let written = if size_elements == 0 { Written::All } else { Written::None };
        let storage = Storage::Own(block);
        let data = Data { storage, offset_bytes: 0, size_bytes, written, remote: None };
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
        let end = first.checked_add(size_elements).filter(|end| *end <= self.size_elements);
        if end.is_none() {
            let why =
                format!("a part from element {first} exceeds the {} elements", self.size_elements);
            return Err(Error::Memory { dtype, size_elements, why });
        }
        let [offset_bytes, size_bytes] = [first, size_elements].map(|n| n * dtype.size_bytes());
        let mut data = self.lock_exclusive();
        if size_bytes != 0
            && let Some(remote) = data.remote_part(offset_bytes, size_bytes)?
        {
            let block = new_block(dtype, size_bytes).ok_or_else(|| no_memory(dtype, size_bytes))?;
            let (storage, written) = (Storage::Own(block), Written::All);
            let part = Data { storage, offset_bytes: 0, size_bytes, written, remote: Some(remote) };
            return Ok(Some(Memory { dtype, size_elements, data: RwLock::new(part) }));
        }
        match data.is_host_stale() {
            true => Ok(None),
            false => self.part_on_host(&mut data, first, size_elements).map(Some),
        }
    }

    /// A part whose bytes are on the host and in range.
    fn part_on_host(
        &self,
        data: &mut Data,
        first: usize,
        size_elements: usize,
    ) -> Result<Memory, Error> {
        let dtype = self.dtype;
        let [offset_bytes, size_bytes] = [first, size_elements].map(|n| n * dtype.size_bytes());
        let part = data.part(dtype, offset_bytes, size_bytes);
        let (storage, offset_bytes) = part.ok_or_else(|| no_memory(dtype, size_bytes))?;
        let written = match &data.written {
            Written::Some(flags) => Written::Some(flags[first..][..size_elements].to_vec()),
            Written::None if size_elements != 0 => Written::None,
            _ => Written::All,
        };
        let mut part = Data { storage, offset_bytes, size_bytes, written, remote: None };
        part.compact_flags();
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
        if bytes.len() != data.size_bytes {
            let why = format!("{} bytes are needed, {} were given", data.size_bytes, bytes.len());
            let (dtype, size_elements) = (self.dtype, self.size_elements);
            return Err(Error::Memory { dtype, size_elements, why });
        }
        data.unshare(self.dtype, false)?;
        data.invalidate_device_copy();
        data.bytes_mut().copy_from_slice(bytes);
        if self.dtype == DType::Bool {
            normalize_bools(data.bytes_mut());
        }
        data.written = Written::All;
        Ok(())
    }

    // A failed kernel may leave wrong bytes, but never an inconsistent memory, so lock poisoning is
    // ignored.
    fn lock(&self) -> RwLockReadGuard<'_, Data> {
        self.data.read().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn lock_exclusive(&self) -> RwLockWriteGuard<'_, Data> {
        self.data.write().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Locks for reading on the host.
    fn read_lock(&self) -> Result<RwLockReadGuard<'_, Data>, Error> {
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
    fn write_lock(&self) -> Result<RwLockWriteGuard<'_, Data>, Error> {
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

/// A parameter of a kernel.
#[derive(Clone, Debug)]
pub(crate) struct Parameter {
    pub(crate) slot: usize,
    pub(crate) dtype: DType,
    pub(crate) size_elements: i64,
    pub(crate) is_written: bool,
}

/// The name and parameters of a kernel.
#[derive(Clone, Debug)]
pub(crate) struct Signature {
    pub(crate) name: String,
    pub(crate) parameters: Vec<Parameter>,
}

impl Signature {
    /// Reads the parameters off the uops.
    pub(crate) fn of(linear: &Linear) -> Result<Signature, Error> {
        let malformed = |position: usize, problem: &str| Error::Malformed {
            kernel: linear.name.clone(),
            position,
            problem: problem.to_string(),
        };
        let mut parameters: Vec<Parameter> = linear
            .globals()
            .into_iter()
            .map(|(global, dtype)| Parameter {
                slot: global.slot,
                dtype,
                size_elements: global.size_elements,
                is_written: false,
            })
            .collect();
        if parameters.windows(2).any(|pair| pair[0].slot == pair[1].slot) {
            return Err(malformed(0, "a slot is defined twice"));
        }
        for (position, uop) in linear.uops.iter().enumerate() {
            if uop.src.iter().any(|source| *source as usize >= position) {
                return Err(malformed(position, "a source comes after its user"));
            }
            let (min, max) = uop.op.row().arity;
            if uop.src.len() < min || max < uop.src.len() {
                return Err(malformed(position, "wrong number of sources"));
            }
            if uop.op == Op::DefineVar {
                return Err(malformed(position, "integer parameters are not supported yet"));
            }
            if !has_right_lanes(linear, uop) {
                return Err(malformed(position, "its sources have the wrong number of lanes"));
            }
            if uop.op == Op::Index {
                let array = &linear.uops[uop.src[0] as usize];
                let is_array = matches!(array.op, Op::DefineGlobal | Op::DefineLocal);
                if !is_array || array.dtype != uop.dtype {
                    return Err(malformed(position, "an index must be into an array of its dtype"));
                }
            }
            if matches!(uop.op, Op::Load | Op::Store) {
                let index = &linear.uops[uop.src[0] as usize];
                if index.op != Op::Index {
                    return Err(malformed(position, "a load or store must be through an index"));
                }
                let global = match &linear.uops[index.src[0] as usize].arg {
                    Arg::Global(global) => global,
                    Arg::Local(_) => continue,
                    _ => return Err(malformed(position, "an index must be into an array")),
                };
                let parameter = parameters.iter_mut().find(|p| p.slot == global.slot);
                let parameter = parameter.ok_or_else(|| malformed(position, "no such slot"))?;
                parameter.is_written |= uop.op == Op::Store;
            }
        }
        Ok(Signature { name: linear.name.clone(), parameters })
    }

    /// The number of the parameter that an `Index` is into.
    pub(crate) fn parameter_of(&self, linear: &Linear, index: u32) -> Option<usize> {
        let global = linear.uops[index as usize].src.first()?;
        let Arg::Global(global) = &linear.uops[*global as usize].arg else { return None };
        self.parameters.iter().position(|parameter| parameter.slot == global.slot)
    }
}

/// Returns whether the numbers of lanes of a uop and its sources are consistent.
fn has_right_lanes(linear: &Linear, uop: &Instruction) -> bool {
    let lanes = |source: u32| linear.uops[source as usize].lanes;
    let sources_have = |expected: u8| uop.src.iter().all(|source| lanes(*source) == expected);
    let is_consistent = match (uop.op, &uop.arg) {
        (Op::Vectorize, _) => {
            sources_have(1) && (uop.src.len() == 1 || uop.src.len() == usize::from(uop.lanes))
        }
        (Op::Lane, Arg::Int(lane)) => {
            uop.lanes == 1 && (0..i64::from(lanes(uop.src[0]))).contains(lane)
        }
        (Op::DefineAcc, _) => lanes(uop.src[0]) == uop.lanes,
        (Op::Wmma, Arg::TensorCore(core)) => {
            let expected = [0, 1, 2].map(|matrix| core.elements(matrix) as u8);
            let is_consistent = |(source, expected): (&u32, u8)| lanes(*source) == expected;
            uop.lanes == expected[2] && uop.src.iter().zip(expected).all(is_consistent)
        }
        (Op::Load, _) => sources_have(1),
        (Op::Store, _) => uop.lanes == 1 && lanes(uop.src[0]) == 1,
        (op, _) if op == Op::Assign || op.is_elementwise() => sources_have(uop.lanes),
        _ => uop.lanes == 1 && sources_have(1),
    };
    is_consistent && uop.lanes != 0
}

/// A lock held for one launch.
pub(crate) enum Guard<'a> {
    Read(RwLockReadGuard<'a, Data>),
    Write(RwLockWriteGuard<'a, Data>),
}

/// The locks of one launch.
pub(crate) struct Locked<'a> {
    /// Each memory once, in the order of addresses.
    pub(crate) guards: SmallVec<[Guard<'a>; 6]>,
    /// For each parameter, its guard.
    pub(crate) guard_of: SmallVec<[usize; 6]>,
}

impl<'a> Locked<'a> {
    /// Checks the memories, given by slot, against the signature and locks them for use on the
    /// host.
    pub(crate) fn new(signature: &Signature, memories: &[&'a Memory]) -> Result<Locked<'a>, Error> {
        Locked::lock_with(signature, memories, |memory, is_written| {
            Ok(match is_written {
                true => Guard::Write(memory.write_lock()?),
                false => Guard::Read(memory.read_lock()?),
            })
        })
    }

    /// As [`Locked::new`], but locks all memories exclusively and does not synchronise them to the
    /// host: for devices with memory of their own.
    pub(crate) fn exclusive(
        signature: &Signature,
        memories: &[&'a Memory],
    ) -> Result<Locked<'a>, Error> {
        Locked::lock_with(signature, memories, |memory, _| {
            Ok(Guard::Write(memory.lock_exclusive()))
        })
    }

    fn lock_with(
        signature: &Signature,
        memories: &[&'a Memory],
        lock: impl Fn(&'a Memory, bool) -> Result<Guard<'a>, Error>,
    ) -> Result<Locked<'a>, Error> {
        let mut used: SmallVec<[(&'a Memory, bool); 6]> = SmallVec::new();
        let refuse = |problem: String| Error::Arguments { kernel: signature.name.clone(), problem };
        for Parameter { slot, dtype, size_elements, is_written } in &signature.parameters {
            let memory = memories.get(*slot).ok_or_else(|| {
                refuse(format!("there is no memory for data{slot}: {} were given", memories.len()))
            })?;
            let is_long_enough =
                usize::try_from(*size_elements).is_ok_and(|size| size <= memory.size_elements);
            if memory.dtype != *dtype || !is_long_enough {
                return Err(refuse(format!(
                    "data{slot} is {size_elements} x {dtype}, but the memory is {} x {}",
                    memory.size_elements, memory.dtype
                )));
            }
            let mut aliases = used.iter().filter(|(earlier, _)| std::ptr::eq(*earlier, *memory));
            if aliases.any(|(_, alias_is_written)| *is_written || *alias_is_written) {
                return Err(refuse(format!(
                    "the memory of data{slot} is given for two slots, one of which is written"
                )));
            }
            used.push((memory, *is_written));
        }
        let address = |number: usize| std::ptr::from_ref(used[number].0).addr();
        let mut order: SmallVec<[usize; 6]> = (0..used.len()).collect();
        order.sort_by_key(|number| address(*number));
        let mut guards = SmallVec::new();
        let mut guard_of: SmallVec<[usize; 6]> = smallvec::smallvec![0; used.len()];
        for (rank, number) in order.iter().enumerate() {
            if rank == 0 || address(order[rank - 1]) != address(*number) {
                let (memory, is_written) = used[*number];
                guards.push(lock(memory, is_written)?);
            }
            guard_of[*number] = guards.len() - 1;
        }
        Ok(Locked { guards, guard_of })
    }

    /// The addresses of the parameters, for machine code, which must not write to parameters that
    /// are locked for reading.
    pub(crate) fn pointers(&mut self) -> SmallVec<[*mut u8; 6]> {
        let guard_pointers: SmallVec<[*mut u8; 6]> = self
            .guards
            .iter_mut()
            .map(|guard| match guard {
                Guard::Read(data) => data.start().cast_mut(),
                Guard::Write(data) => data.start_mut(),
            })
            .collect();
        self.guard_of.iter().map(|guard| guard_pointers[*guard]).collect()
    }

    /// Marks the memories that are locked for writing as written.
    pub(crate) fn mark_written(&mut self) {
        for guard in &mut self.guards {
            if let Guard::Write(data) = guard {
                data.mark_written();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
