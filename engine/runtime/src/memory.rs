//! Host memory that all devices share, and the scheme that keeps its use sound.
//!
//! Each memory has a lock. A launch locks what it reads for reading and what it writes for
//! writing, in the order of addresses, so that launches on other threads wait and never deadlock.
//! One memory may stand in several slots that are only read; a memory that is written must not
//! stand in a second slot, and such a launch is refused.
//!
//! A part of a memory is a memory of its own, with its own lock, that has the same bytes until
//! either of the two is written: who writes first takes a copy. So no write is seen through
//! another memory, and launches need not ask which memories are parts of one.

use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

use gradiff_graph::{Arg, Buffer, DType, Instruction, Linear, Op};
use smallvec::SmallVec;

use crate::Error;
use crate::pool::Block;
use crate::remote::Remote;

/// Room for elements of one dtype, aligned to 64 bytes.
///
/// It knows whether somebody has written it. Only the checked interpreter keeps count element by
/// element; after other devices a written memory counts as written throughout.
pub struct Memory {
    dtype: DType,
    size_elements: usize,
    data: RwLock<Data>,
}

/// What the lock of a memory guards.
pub(crate) struct Data {
    storage: Storage,
    /// Where in the block the bytes begin: at a multiple of 64.
    offset_bytes: usize,
    size_bytes: usize,
    written: Written,
    /// The copy on a device.
    pub(crate) remote: Option<Remote>,
}

/// The block that the bytes are in.
enum Storage {
    Own(Block),
    /// Others may have it as well; nobody writes to it.
    Shared(Arc<Block>),
}

impl Storage {
    fn block(&self) -> &Block {
        match self {
            Storage::Own(block) => block,
            Storage::Shared(block) => block,
        }
    }

    /// Takes it out; what stays is of no use.
    fn take(&mut self) -> Storage {
        std::mem::replace(self, Storage::Own(Block::empty()))
    }
}

/// Which elements were written.
enum Written {
    All,
    None,
    Some(Vec<bool>),
}

impl Data {
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: a block is initialised and holds at least `size_bytes` from the start on.
        unsafe { std::slice::from_raw_parts(self.start(), self.size_bytes) }
    }

    /// The bytes, which are its own.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`; `self` is borrowed alone, and nobody else has the block.
        unsafe { std::slice::from_raw_parts_mut(self.start_mut(), self.size_bytes) }
    }

    /// The bytes and the flags of elements, if they are counted, to be changed together.
    pub(crate) fn parts_mut(&mut self) -> (&mut [u8], Option<&mut [bool]>) {
        // SAFETY: as in `bytes_mut`; `written` is another field than `storage`.
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
            unreachable!("bytes are a memory's own before they are written")
        };
        debug_assert!(self.offset_bytes + self.size_bytes <= block.size_bytes());
        // SAFETY: as in `start`.
        unsafe { block.as_mut_ptr().add(self.offset_bytes) }
    }

    /// Sees to it that nobody else has the bytes, which are about to be written; all of them, if
    /// none is to be kept.
    pub(crate) fn own(&mut self, dtype: DType, keeps: bool) -> Result<(), Error> {
        if let Storage::Own(_) = self.storage {
            return Ok(());
        }
        let shared = match self.storage.take() {
            Storage::Own(block) => Ok(block),
            Storage::Shared(block) => Arc::try_unwrap(block),
        };
        match shared {
            // The others are gone.
            Ok(block) => self.storage = Storage::Own(block),
            Err(shared) => {
                self.storage = Storage::Shared(shared);
                let keeps = keeps && self.is_touched();
                let block =
                    if keeps { Block::of(self.bytes()) } else { fresh(dtype, self.size_bytes) };
                let block = block.ok_or_else(|| no_memory(dtype, self.size_bytes))?;
                (self.storage, self.offset_bytes) = (Storage::Own(block), 0);
            }
        }
        Ok(())
    }

    /// The bytes from an offset on, with the block shared if that may be.
    fn part(
        &mut self,
        dtype: DType,
        offset_bytes: usize,
        size_bytes: usize,
    ) -> Option<(Storage, usize)> {
        let from = self.offset_bytes + offset_bytes;
        let is_large = is_worth_keeping(self.storage.block().size_bytes(), size_bytes);
        if !from.is_multiple_of(ALIGNMENT) || !is_large {
            let bytes = &self.bytes()[offset_bytes..][..size_bytes];
            let block = if self.is_touched() { Block::of(bytes) } else { fresh(dtype, size_bytes) };
            return block.map(|block| (Storage::Own(block), 0));
        }
        let block = match self.storage.take() {
            Storage::Own(block) => Arc::new(block),
            Storage::Shared(block) => block,
        };
        self.storage = Storage::Shared(block.clone());
        Some((Storage::Shared(block), from))
    }

    /// Whether anything was written.
    pub(crate) fn is_touched(&self) -> bool {
        !matches!(self.written, Written::None)
    }

    /// Whether every element was written.
    pub(crate) fn is_written_throughout(&self) -> bool {
        matches!(self.written, Written::All)
    }

    pub(crate) fn mark_written(&mut self) {
        self.written = Written::All;
    }

    /// Whether an element was written.
    #[inline]
    pub(crate) fn is_written(&self, element: usize) -> bool {
        match &self.written {
            Written::All => true,
            Written::None => false,
            Written::Some(flags) => flags[element],
        }
    }

    /// From now on it is known of each element whether it was written. Those that were not are 0.
    pub(crate) fn count(&mut self, dtype: DType) -> Result<(), Error> {
        if matches!(self.written, Written::None) {
            let size_elements = self.size_bytes / dtype.size_bytes().max(1);
            let mut flags = Vec::new();
            let room = flags.try_reserve_exact(size_elements);
            room.map_err(|_| no_memory(dtype, self.size_bytes))?;
            flags.resize(size_elements, false);
            self.bytes_mut().fill(0);
            self.written = Written::Some(flags);
        }
        Ok(())
    }

    /// Drops the flags if every element was written, or none.
    pub(crate) fn settle(&mut self) {
        if let Written::Some(flags) = &self.written {
            if flags.iter().all(|flag| *flag) {
                self.written = Written::All;
            } else if flags.iter().all(|flag| !*flag) {
                self.written = Written::None;
            }
        }
    }
}

/// A block that nobody has written. Its bools are 0 or 1: compilers take that of each bool that they
/// load, and what follows from it for indices.
fn fresh(dtype: DType, size_bytes: usize) -> Option<Block> {
    let mut block = Block::new(size_bytes)?;
    if dtype == DType::Bool {
        // SAFETY: a block is initialised and holds at least so many bytes; it is borrowed alone.
        let bytes = unsafe { std::slice::from_raw_parts_mut(block.as_mut_ptr(), size_bytes) };
        make_bools(bytes);
    }
    Some(block)
}

/// Makes 1 of each byte that is not 0.
pub(crate) fn make_bools(bytes: &mut [u8]) {
    bytes.iter_mut().for_each(|byte| *byte = u8::from(*byte != 0));
}

const NO_MEMORY: &str = "there is not so much memory";

fn no_memory(dtype: DType, size_bytes: usize) -> Error {
    let size_elements = size_bytes / dtype.size_bytes().max(1);
    Error::Memory { dtype, size_elements, why: NO_MEMORY.to_string() }
}

/// Where the bytes of a memory begin, in bytes: kernels load and store vectors from there on.
pub(crate) const ALIGNMENT: usize = 64;

/// A part keeps the whole block. One that is not at least this part of it is copied.
const KEPT_MOST: usize = 4;

/// Whether a part of so many bytes may keep a block of so many.
pub(crate) fn is_worth_keeping(block_bytes: usize, part_bytes: usize) -> bool {
    block_bytes <= part_bytes.saturating_mul(KEPT_MOST)
}

impl Memory {
    /// Room for `size_elements` elements, none of them written.
    ///
    /// # Errors
    /// [`Error::Memory`] if there is not so much.
    pub fn new(dtype: DType, size_elements: usize) -> Result<Memory, Error> {
        let refuse = |why: &str| Error::Memory { dtype, size_elements, why: why.to_string() };
        let size_bytes = size_elements
            .checked_mul(dtype.size_bytes())
            .ok_or_else(|| refuse("the size in bytes does not fit 64 bits"))?;
        let block = fresh(dtype, size_bytes).ok_or_else(|| refuse(NO_MEMORY))?;
        let written = if size_elements == 0 { Written::All } else { Written::None };
        let storage = Storage::Own(block);
        let data = Data { storage, offset_bytes: 0, size_bytes, written, remote: None };
        Ok(Memory { dtype, size_elements, data: RwLock::new(data) })
    }

    /// So many elements from `first` on as a memory of its own. It has the same bytes, until
    /// either of the two is written, which the other one never sees. Where the part does not begin
    /// at a multiple of 64 bytes, or has less than a quarter of the memory that it would keep, it
    /// is copied at once. Bytes on a device stay there, if the device lets a memory begin at the
    /// first of them; else they are brought home.
    ///
    /// # Errors
    /// [`Error::Memory`] if there are not so many elements, or a copy finds no room; what a device
    /// says that holds them.
    pub fn part(&self, first: usize, size_elements: usize) -> Result<Memory, Error> {
        if let Some(part) = self.part_in_place(first, size_elements)? {
            return Ok(part);
        }
        let mut data = self.lock_alone();
        data.bring_home(self.dtype)?;
        self.part_at_home(&mut data, first, size_elements)
    }

    /// As [`Memory::part`], but without what would be brought home for it: then there is none.
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
            let why = format!("as a part from element {first} on of {}", self.size_elements);
            return Err(Error::Memory { dtype, size_elements, why });
        }
        let [offset_bytes, size_bytes] = [first, size_elements].map(|n| n * dtype.size_bytes());
        let mut data = self.lock_alone();
        if size_bytes != 0
            && let Some(remote) = data.remote_part(offset_bytes, size_bytes)?
        {
            let block = fresh(dtype, size_bytes).ok_or_else(|| no_memory(dtype, size_bytes))?;
            let (storage, written) = (Storage::Own(block), Written::All);
            let part = Data { storage, offset_bytes: 0, size_bytes, written, remote: Some(remote) };
            return Ok(Some(Memory { dtype, size_elements, data: RwLock::new(part) }));
        }
        match data.is_away() {
            true => Ok(None),
            false => self.part_at_home(&mut data, first, size_elements).map(Some),
        }
    }

    /// A part whose bytes are at home, and which there is.
    fn part_at_home(
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
        part.settle();
        Ok(Memory { dtype, size_elements, data: RwLock::new(part) })
    }

    /// A copy of `bytes`, little-endian elements; a byte of bool is true unless it is 0.
    ///
    /// # Errors
    /// [`Error::Memory`] if the bytes are no whole number of elements.
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

    /// How many elements it holds.
    pub fn size_elements(&self) -> usize {
        self.size_elements
    }

    /// Whether every element was written.
    pub fn is_initialised(&self) -> bool {
        self.lock().is_written_throughout()
    }

    /// A copy of the bytes, little-endian.
    ///
    /// # Errors
    /// [`Error::Unwritten`] if nothing was ever written, and what a device says that holds them.
    pub fn read(&self) -> Result<Vec<u8>, Error> {
        let data = self.read_lock()?;
        if data.is_touched() || self.size_elements == 0 {
            return Ok(data.bytes().to_vec());
        }
        Err(Error::Unwritten { dtype: self.dtype, size_elements: self.size_elements })
    }

    /// Replaces all elements by `bytes`; a byte of bool is true unless it is 0.
    ///
    /// # Errors
    /// [`Error::Memory`] if the size is another one.
    pub fn write(&self, bytes: &[u8]) -> Result<(), Error> {
        let mut data = self.lock_alone();
        if bytes.len() != data.size_bytes {
            let why = format!("it takes {} bytes and {} were given", data.size_bytes, bytes.len());
            let (dtype, size_elements) = (self.dtype, self.size_elements);
            return Err(Error::Memory { dtype, size_elements, why });
        }
        data.own(self.dtype, false)?;
        data.forget_copy();
        data.bytes_mut().copy_from_slice(bytes);
        if self.dtype == DType::Bool {
            make_bools(data.bytes_mut());
        }
        data.written = Written::All;
        Ok(())
    }

    // A kernel that failed leaves bytes behind, never a broken memory: poison is of no concern.
    fn lock(&self) -> RwLockReadGuard<'_, Data> {
        self.data.read().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn lock_alone(&self) -> RwLockWriteGuard<'_, Data> {
        self.data.write().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// For reading at home.
    fn read_lock(&self) -> Result<RwLockReadGuard<'_, Data>, Error> {
        loop {
            let data = self.lock();
            if !data.is_away() {
                return Ok(data);
            }
            drop(data);
            self.lock_alone().bring_home(self.dtype)?;
        }
    }

    /// For writing at home.
    fn write_lock(&self) -> Result<RwLockWriteGuard<'_, Data>, Error> {
        let mut data = self.lock_alone();
        data.bring_home(self.dtype)?;
        data.own(self.dtype, true)?;
        data.forget_copy();
        Ok(data)
    }
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Memory({} x {})", self.size_elements, self.dtype)
    }
}

/// The memory of a buffer; made, with nothing written, if there was none.
///
/// # Errors
/// [`Error::Memory`] if there is not so much.
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
        why: "the buffer's memory belongs to something else".into(),
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

/// What a kernel asks of its caller.
#[derive(Clone, Debug)]
pub(crate) struct Signature {
    pub(crate) name: String,
    pub(crate) parameters: Vec<Parameter>,
}

impl Signature {
    /// Reads the parameters off the uops.
    pub(crate) fn of(linear: &Linear) -> Result<Signature, Error> {
        let malformed = |position: usize, what: &str| Error::Malformed {
            kernel: linear.name.clone(),
            position,
            what: what.to_string(),
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
            let (fewest, most) = uop.op.row().arity;
            if uop.src.len() < fewest || most < uop.src.len() {
                return Err(malformed(position, "wrong count of sources"));
            }
            if uop.op == Op::DefineVar {
                return Err(malformed(position, "integer parameters cannot be launched yet"));
            }
            if !has_right_lanes(linear, uop) {
                return Err(malformed(position, "the lanes of its sources do not fit"));
            }
            if uop.op == Op::Index {
                let array = &linear.uops[uop.src[0] as usize];
                let is_array = matches!(array.op, Op::DefineGlobal | Op::DefineLocal);
                if !is_array || array.dtype != uop.dtype {
                    return Err(malformed(position, "an index is into an array of its dtype"));
                }
            }
            if matches!(uop.op, Op::Load | Op::Store) {
                let index = &linear.uops[uop.src[0] as usize];
                if index.op != Op::Index {
                    return Err(malformed(position, "an access is through an index"));
                }
                let global = match &linear.uops[index.src[0] as usize].arg {
                    Arg::Global(global) => global,
                    Arg::Local(_) => continue,
                    _ => return Err(malformed(position, "an index is into an array")),
                };
                let parameter = parameters.iter_mut().find(|p| p.slot == global.slot);
                let parameter = parameter.ok_or_else(|| malformed(position, "no such slot"))?;
                parameter.is_written |= uop.op == Op::Store;
            }
        }
        Ok(Signature { name: linear.name.clone(), parameters })
    }

    /// Which parameter an `Index` points into.
    pub(crate) fn parameter_of(&self, linear: &Linear, index: u32) -> Option<usize> {
        let global = linear.uops[index as usize].src.first()?;
        let Arg::Global(global) = &linear.uops[*global as usize].arg else { return None };
        self.parameters.iter().position(|parameter| parameter.slot == global.slot)
    }
}

/// Whether a uop has the lanes that follow from its sources.
fn has_right_lanes(linear: &Linear, uop: &Instruction) -> bool {
    let lanes = |source: u32| linear.uops[source as usize].lanes;
    let all = |wanted: u8| uop.src.iter().all(|source| lanes(*source) == wanted);
    let is_right = match (uop.op, &uop.arg) {
        (Op::Vectorize, _) => {
            all(1) && (uop.src.len() == 1 || uop.src.len() == usize::from(uop.lanes))
        }
        (Op::Lane, Arg::Int(lane)) => {
            uop.lanes == 1 && (0..i64::from(lanes(uop.src[0]))).contains(lane)
        }
        (Op::DefineAcc, _) => lanes(uop.src[0]) == uop.lanes,
        (Op::Wmma, Arg::TensorCore(core)) => {
            let wanted = [0, 1, 2].map(|matrix| core.elements(matrix) as u8);
            let is_right = |(source, wanted): (&u32, u8)| lanes(*source) == wanted;
            uop.lanes == wanted[2] && uop.src.iter().zip(wanted).all(is_right)
        }
        (Op::Load, _) => all(1),
        (Op::Store, _) => uop.lanes == 1 && lanes(uop.src[0]) == 1,
        (op, _) if op == Op::Assign || op.is_elementwise() => all(uop.lanes),
        _ => uop.lanes == 1 && all(1),
    };
    is_right && uop.lanes != 0
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
    /// Checks the memories, given by slot, against the signature and locks them, for use at home.
    pub(crate) fn new(signature: &Signature, memories: &[&'a Memory]) -> Result<Locked<'a>, Error> {
        Locked::with(signature, memories, |memory, is_written| {
            Ok(match is_written {
                true => Guard::Write(memory.write_lock()?),
                false => Guard::Read(memory.read_lock()?),
            })
        })
    }

    /// The same for a device that computes elsewhere: nobody else has them, wherever they are.
    pub(crate) fn alone(
        signature: &Signature,
        memories: &[&'a Memory],
    ) -> Result<Locked<'a>, Error> {
        Locked::with(signature, memories, |memory, _| Ok(Guard::Write(memory.lock_alone())))
    }

    fn with(
        signature: &Signature,
        memories: &[&'a Memory],
        lock: impl Fn(&'a Memory, bool) -> Result<Guard<'a>, Error>,
    ) -> Result<Locked<'a>, Error> {
        let mut used: SmallVec<[(&'a Memory, bool); 6]> = SmallVec::new();
        let refuse = |what: String| Error::Arguments { kernel: signature.name.clone(), what };
        for Parameter { slot, dtype, size_elements, is_written } in &signature.parameters {
            let memory = memories.get(*slot).ok_or_else(|| {
                refuse(format!("data{slot} is not among the {} memories given", memories.len()))
            })?;
            let is_long_enough =
                usize::try_from(*size_elements).is_ok_and(|size| size <= memory.size_elements);
            if memory.dtype != *dtype || !is_long_enough {
                return Err(refuse(format!(
                    "data{slot} is {size_elements} x {dtype} and the memory given is {} x {}",
                    memory.size_elements, memory.dtype
                )));
            }
            let mut others = used.iter().filter(|(other, _)| std::ptr::eq(*other, *memory));
            if others.any(|(_, other_is_written)| *is_written || *other_is_written) {
                return Err(refuse(format!(
                    "the memory of data{slot} stands in two slots, one of which is written"
                )));
            }
            used.push((memory, *is_written));
        }
        let address = |number: usize| std::ptr::from_ref(used[number].0).addr();
        let mut order: SmallVec<[usize; 6]> = (0..used.len()).collect();
        order.sort_by_key(|number| address(*number));
        let mut guards = SmallVec::new();
        let mut guard_of: SmallVec<[usize; 6]> = smallvec::smallvec![0; used.len()];
        for (place, number) in order.iter().enumerate() {
            if place == 0 || address(order[place - 1]) != address(*number) {
                let (memory, is_written) = used[*number];
                guards.push(lock(memory, is_written)?);
            }
            guard_of[*number] = guards.len() - 1;
        }
        Ok(Locked { guards, guard_of })
    }

    /// The addresses of the parameters, for machine code. Those that are only read must not be
    /// written through.
    pub(crate) fn pointers(&mut self) -> SmallVec<[*mut u8; 6]> {
        let of_guard: SmallVec<[*mut u8; 6]> = self
            .guards
            .iter_mut()
            .map(|guard| match guard {
                Guard::Read(data) => data.start().cast_mut(),
                Guard::Write(data) => data.start_mut(),
            })
            .collect();
        self.guard_of.iter().map(|guard| of_guard[*guard]).collect()
    }

    /// Counts everything that was open for writing as written.
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

    /// Bytes that are mapped and used again; the fewest such where each takes its time.
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
    fn used_again_counts_as_never_written() {
        const SIZE: usize = LARGE;
        let address = |memory: &Memory| memory.lock().bytes().as_ptr();
        let first = Memory::from_bytes(DType::U8, &vec![7; SIZE]).unwrap();
        let place = address(&first);
        drop(first);
        let second = Memory::new(DType::U8, SIZE).unwrap();
        assert_eq!(address(&second), place);
        assert!(!second.is_initialised());
        assert!(second.read().is_err());
    }

    fn start(memory: &Memory) -> usize {
        memory.lock().bytes().as_ptr().addr()
    }

    fn counted(size: u8) -> Memory {
        Memory::from_bytes(DType::U8, &(0..size).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn part_has_the_elements_and_no_copy_where_it_may() {
        let whole = counted(200);
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
            let is_there = start(&part) == start(&whole) + first;
            assert_eq!(is_there, is_shared, "{size} elements from {first} on");
            assert!(start(&part).is_multiple_of(ALIGNMENT));
        }
        // Of a part, counted from its own start.
        let part = whole.part(64, 130).unwrap().part(64, 66).unwrap();
        assert_eq!((start(&part), part.read().unwrap()[0]), (start(&whole) + 128, 128));
        // Elements are not bytes.
        let words = Memory::from_bytes(DType::I32, &counted(200).read().unwrap()).unwrap();
        let part = words.part(16, 30).unwrap();
        assert_eq!((start(&part), part.read().unwrap()[0]), (start(&words) + 64, 64));
    }

    #[test]
    fn bools_that_nobody_wrote_are_0_or_1() {
        const SIZE: usize = LARGE;
        let is_bool = |memory: &Memory| memory.lock().bytes().iter().all(|byte| *byte <= 1);
        for _ in 0..4 {
            // What was freed is used again.
            drop(Memory::from_bytes(DType::U8, &[0xff; SIZE]).unwrap());
            let whole = Memory::new(DType::Bool, SIZE).unwrap();
            assert!(is_bool(&whole));
            drop(Memory::from_bytes(DType::U8, &[0xff; SIZE / 8]).unwrap());
            assert!(is_bool(&whole.part(1, SIZE / 8).unwrap()));
        }
    }

    #[test]
    fn part_beyond_the_end_is_an_error() {
        let whole = counted(200);
        for (first, size) in [(0, 201), (200, 1), (201, 0), (1, usize::MAX), (usize::MAX, 1)] {
            let error = whole.part(first, size).unwrap_err().to_string();
            let expected = format!(
                "memory for {size} elements of u8: as a part from element {first} on of 200"
            );
            assert_eq!(error, expected);
        }
    }

    #[test]
    fn write_is_seen_by_who_was_written_alone() {
        let whole = counted(128);
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
        // Who is left alone writes in place.
        let place = start(&inner);
        drop((whole, first, second));
        inner.write(&[203; 32]).unwrap();
        assert_eq!((start(&inner), inner.read().unwrap()), (place, vec![203; 32]));
    }

    #[test]
    fn part_outlives_the_whole() {
        const SIZE: usize = LARGE;
        let whole = Memory::from_bytes(DType::U8, &vec![7; SIZE]).unwrap();
        let part = whole.part(SIZE / 2, SIZE / 2).unwrap();
        let place = start(&part);
        drop(whole);
        let other = Memory::from_bytes(DType::U8, &vec![9; SIZE]).unwrap();
        assert_eq!(part.read().unwrap(), vec![7; SIZE / 2]);
        assert_eq!(start(&part), place);
        assert!(!(start(&other)..start(&other) + SIZE).contains(&place));
    }

    #[test]
    fn part_of_what_was_never_written_is_as_unwritten() {
        let whole = Memory::new(DType::I32, 64).unwrap();
        let part = whole.part(16, 32).unwrap();
        assert!(!part.is_initialised() && part.read().is_err());
        whole.write(&[1; 256]).unwrap();
        assert!(part.read().is_err(), "what is written later is not seen");
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
