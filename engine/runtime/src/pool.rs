//! Allocation of large memories: huge pages, and reuse of freed blocks.
//!
//! Blocks of 128 KiB and more are mapped from the system, those of 2 MiB and more on huge pages if
//! the system has them, since page faults on new 4 KiB pages cost more than most kernels. A freed
//! block is kept and reused for the next allocation of its size, the last freed first. When all
//! kept blocks together exceed the bound, those freed longest ago are unmapped. The bound is 1 GiB,
//! or the environment variable `GRADIFF_POOL_MIB`; with 0 no block is kept.
//!
//! A reused block has its old content, but counts as unwritten. With poison on
//! ([`crate::set_poison`]) new and freed blocks hold patterns instead.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::poison::Quarantine;
use crate::{poison, system};

/// The size from which blocks are mapped; smaller ones come from the global allocator.
const SMALLEST_BYTES: usize = 128 << 10;
/// The default of `GRADIFF_POOL_MIB`.
const MAX_MIB: usize = 1024;

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Chunk([u8; 64]);

/// A block of initialised bytes, aligned to 64.
pub(crate) struct Block(Kind);

enum Kind {
    Small(Vec<Chunk>),
    /// `None` only while it is dropped.
    Large(Option<system::Mapping>),
}

impl Block {
    /// Allocates at least `size_bytes`; `None` if there is not enough memory. Small blocks are
    /// zero, large ones have any content.
    pub(crate) fn new(size_bytes: usize) -> Option<Block> {
        let mut block = Block::allocate(size_bytes)?;
        if poison::is_on() {
            poison::Bytes::bytes_mut(&mut block).fill(poison::FRESH);
        }
        Some(block)
    }

    fn allocate(size_bytes: usize) -> Option<Block> {
        if size_bytes < SMALLEST_BYTES {
            let count = size_bytes.div_ceil(64).max(1);
            let mut chunks = Vec::new();
            chunks.try_reserve_exact(count).ok()?;
            chunks.resize(count, Chunk([0; 64]));
            return Some(Block(Kind::Small(chunks)));
        }
        let unit = if size_bytes < system::HUGE_PAGE { SMALLEST_BYTES } else { system::HUGE_PAGE };
        let size_bytes = size_bytes.checked_next_multiple_of(unit)?;
        let reused = pool().and_then(|pool| lock(pool).take(size_bytes));
        let mapping = reused.or_else(|| system::Mapping::new(size_bytes)).or_else(|| {
            // Out of memory: frees all kept blocks and tries again.
            drop(pool().map(|pool| std::mem::take(&mut lock(pool).free)));
            system::Mapping::new(size_bytes)
        });
        mapping.map(|mapping| Block(Kind::Large(Some(mapping))))
    }

    /// An empty block.
    pub(crate) fn empty() -> Block {
        Block(Kind::Small(Vec::new()))
    }

    /// Allocates a block that begins with a copy of these bytes; `None` if there is not enough
    /// memory.
    pub(crate) fn copy_of(bytes: &[u8]) -> Option<Block> {
        let mut block = Block::new(bytes.len())?;
        // SAFETY: the block is initialised, has this many bytes, and is not shared.
        let copy = unsafe { std::slice::from_raw_parts_mut(block.as_mut_ptr(), bytes.len()) };
        copy.copy_from_slice(bytes);
        Some(block)
    }

    pub(crate) fn size_bytes(&self) -> usize {
        match &self.0 {
            Kind::Small(chunks) => 64 * chunks.len(),
            Kind::Large(mapping) => mapping.as_ref().map_or(0, system::Mapping::size_bytes),
        }
    }

    pub(crate) fn as_ptr(&self) -> *const u8 {
        match &self.0 {
            Kind::Small(chunks) => chunks.as_ptr().cast(),
            Kind::Large(mapping) => mapping.as_ref().map_or(std::ptr::null(), |m| m.as_ptr()),
        }
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut u8 {
        match &mut self.0 {
            Kind::Small(chunks) => chunks.as_mut_ptr().cast(),
            Kind::Large(mapping) => mapping.as_ref().map_or(std::ptr::null_mut(), |m| m.as_ptr()),
        }
    }
}

impl poison::Bytes for Block {
    fn bytes(&self) -> &[u8] {
        // SAFETY: a block is initialised and has this many bytes; an empty one has an aligned
        // dangling pointer.
        unsafe { std::slice::from_raw_parts(self.as_ptr(), self.size_bytes()) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`; `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.as_mut_ptr(), self.size_bytes()) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if poison::is_on() && self.size_bytes() != 0 {
            let block = Block(std::mem::replace(&mut self.0, Kind::Small(Vec::new())));
            let released = quarantine().add(block);
            released.into_iter().for_each(|mut block| block.release());
            return;
        }
        self.release();
    }
}

impl Block {
    /// Frees the bytes and leaves an empty block.
    fn release(&mut self) {
        let mut kind = std::mem::replace(&mut self.0, Kind::Small(Vec::new()));
        if let (Kind::Large(mapping), Some(pool)) = (&mut kind, pool())
            && let Some(mapping) = mapping.take()
        {
            // Evicted blocks are unmapped after the lock is released.
            let _evicted = lock(pool).put(mapping);
        }
    }
}

/// Checks that freed memory in quarantine was not written since the last call. Without poison there
/// is no quarantine.
///
/// # Errors
/// A message about a byte that was written.
pub fn check_freed() -> Result<(), String> {
    quarantine().check()
}

/// The freed blocks of a process with poison on.
fn quarantine() -> MutexGuard<'static, Quarantine<Block>> {
    static QUARANTINE: Mutex<Quarantine<Block>> = Mutex::new(Quarantine::new());
    QUARANTINE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The freed blocks, oldest first.
struct Pool {
    free: VecDeque<system::Mapping>,
    max_bytes: usize,
}

impl Pool {
    fn take(&mut self, size_bytes: usize) -> Option<system::Mapping> {
        let last = self.free.iter().rposition(|mapping| mapping.size_bytes() == size_bytes)?;
        self.free.remove(last)
    }

    /// Keeps a block, and returns those that exceed the bound.
    fn put(&mut self, mapping: system::Mapping) -> Vec<system::Mapping> {
        self.free.push_back(mapping);
        let mut total: usize = self.free.iter().map(system::Mapping::size_bytes).sum();
        let mut evicted = Vec::new();
        while self.max_bytes < total
            && let Some(oldest) = self.free.pop_front()
        {
            total -= oldest.size_bytes();
            evicted.push(oldest);
        }
        evicted
    }
}

/// The pool of this process; `None` if no blocks are kept.
fn pool() -> Option<&'static Mutex<Pool>> {
    static POOL: OnceLock<Mutex<Pool>> = OnceLock::new();
    let pool = POOL.get_or_init(|| {
        // An invalid value was reported when the device was opened.
        let mib = crate::environment::POOL_MIB.number().unwrap_or_default();
        let max_bytes = mib.unwrap_or(MAX_MIB).saturating_mul(1 << 20);
        Mutex::new(Pool { free: VecDeque::new(), max_bytes })
    });
    (0 < lock(pool).max_bytes).then_some(pool)
}

/// Locks the pool. Lock poisoning is ignored, since the list of blocks is never inconsistent.
fn lock(pool: &Mutex<Pool>) -> std::sync::MutexGuard<'_, Pool> {
    pool.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(size_bytes: usize) -> system::Mapping {
        system::Mapping::new(size_bytes).unwrap()
    }

    #[test]
    fn pool_reuses_the_last_freed_of_a_size_within_the_bound() {
        const SIZE: usize = SMALLEST_BYTES;
        let mut pool = Pool { free: VecDeque::new(), max_bytes: 4 * SIZE };
        let [first, second, larger] = [mapping(SIZE), mapping(SIZE), mapping(2 * SIZE)];
        let addresses = [first.as_ptr(), second.as_ptr(), larger.as_ptr()];
        for mapping in [first, second, larger] {
            assert!(pool.put(mapping).is_empty());
        }
        assert!(pool.take(3 * SIZE).is_none());
        assert_eq!(pool.take(SIZE).unwrap().as_ptr(), addresses[1]);
        let evicted = pool.put(mapping(2 * SIZE));
        assert_eq!(
            evicted.iter().map(|mapping| mapping.as_ptr()).collect::<Vec<_>>(),
            addresses[..1]
        );
        assert_eq!(pool.free.iter().map(system::Mapping::size_bytes).sum::<usize>(), 4 * SIZE);
    }

    #[test]
    fn blocks_are_aligned_and_large_enough() {
        for size_bytes in [0, 1, 65, SMALLEST_BYTES - 1, SMALLEST_BYTES, 3 << 20] {
            let mut block = Block::new(size_bytes).unwrap();
            assert!(size_bytes <= block.size_bytes() && block.as_ptr().addr().is_multiple_of(64));
            let is_huge = system::HUGE_PAGE <= size_bytes;
            assert!(!is_huge || block.as_ptr().addr().is_multiple_of(system::HUGE_PAGE));
            assert_eq!(block.as_ptr(), block.as_mut_ptr().cast_const());
        }
        assert!(Block::new(usize::MAX).is_none());
        assert!(Block::new(1 << 60).is_none());
    }
}
