//! Room for large memories: huge pages, and reuse of what was freed.
//!
//! Blocks of 128 KiB and more are mapped from the system, those of 2 MiB and more on huge pages
//! where it has them, since taking in fresh pages of 4 KiB costs more than most kernels do. A
//! freed block is kept and given to the next one of its size, the last freed first; when all kept
//! blocks together pass the bound, those freed longest ago go back to the system. The bound is
//! 1 GiB, or what the environment variable `GRADIFF_POOL_MIB` says; 0 keeps nothing.
//!
//! A block that is used again holds what it held. To whom it is given it counts as never written.
//! With poison on ([`crate::set_poison`]) fresh and freed blocks hold patterns instead.

use std::collections::VecDeque;
use std::sync::{Mutex, OnceLock};

use crate::{poison, system};

/// Smaller blocks are left to the allocator of the program.
const SMALLEST_BYTES: usize = 128 << 10;
/// The bound unless `GRADIFF_POOL_MIB` says another.
const MAX_MIB: usize = 1024;

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Chunk([u8; 64]);

/// Bytes at a multiple of 64, all of them initialised.
pub(crate) struct Block(Kind);

enum Kind {
    Small(Vec<Chunk>),
    /// `None` only while it is dropped.
    Large(Option<system::Mapping>),
}

impl Block {
    /// At least so many bytes; `None` if there are not so many. Small blocks are zero, large ones
    /// hold anything.
    pub(crate) fn new(size_bytes: usize) -> Option<Block> {
        let mut block = Block::of_any(size_bytes)?;
        if poison::is_on() {
            poison::Bytes::bytes_mut(&mut block).fill(poison::FRESH);
        }
        Some(block)
    }

    fn of_any(size_bytes: usize) -> Option<Block> {
        if size_bytes < SMALLEST_BYTES {
            let count = size_bytes.div_ceil(64).max(1);
            let mut chunks = Vec::new();
            chunks.try_reserve_exact(count).ok()?;
            chunks.resize(count, Chunk([0; 64]));
            return Some(Block(Kind::Small(chunks)));
        }
        let step = if size_bytes < system::HUGE_PAGE { SMALLEST_BYTES } else { system::HUGE_PAGE };
        let size_bytes = size_bytes.checked_next_multiple_of(step)?;
        let used = pool().and_then(|pool| lock(pool).take(size_bytes));
        let mapping = used.or_else(|| system::Mapping::new(size_bytes)).or_else(|| {
            // What is kept may be what lacks.
            drop(pool().map(|pool| std::mem::take(&mut lock(pool).free)));
            system::Mapping::new(size_bytes)
        });
        mapping.map(|mapping| Block(Kind::Large(Some(mapping))))
    }

    /// A block of no bytes.
    pub(crate) fn empty() -> Block {
        Block(Kind::Small(Vec::new()))
    }

    /// A block that begins with these bytes; `None` if there are not so many.
    pub(crate) fn of(bytes: &[u8]) -> Option<Block> {
        let mut block = Block::new(bytes.len())?;
        // SAFETY: the block is initialised, holds as many bytes, and is nobody else's.
        let room = unsafe { std::slice::from_raw_parts_mut(block.as_mut_ptr(), bytes.len()) };
        room.copy_from_slice(bytes);
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
        // SAFETY: a block is initialised and holds so many bytes; one without has a dangling
        // pointer that is aligned.
        unsafe { std::slice::from_raw_parts(self.as_ptr(), self.size_bytes()) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`; `self` is borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.as_mut_ptr(), self.size_bytes()) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if poison::is_on() && self.size_bytes() != 0 {
            let block = Block(std::mem::replace(&mut self.0, Kind::Small(Vec::new())));
            poison::hold(block).into_iter().for_each(|mut block| block.release());
            return;
        }
        self.release();
    }
}

impl Block {
    /// Gives the bytes back; what stays is an empty block.
    fn release(&mut self) {
        let mut kind = std::mem::replace(&mut self.0, Kind::Small(Vec::new()));
        if let (Kind::Large(mapping), Some(pool)) = (&mut kind, pool())
            && let Some(mapping) = mapping.take()
        {
            // What goes back to the system does so after the lock is open again.
            let _evicted = lock(pool).keep(mapping);
        }
    }
}

/// Freed blocks, those freed longest ago first.
struct Pool {
    free: VecDeque<system::Mapping>,
    max_bytes: usize,
}

impl Pool {
    fn take(&mut self, size_bytes: usize) -> Option<system::Mapping> {
        let last = self.free.iter().rposition(|mapping| mapping.size_bytes() == size_bytes)?;
        self.free.remove(last)
    }

    /// Keeps a block; gives those that are too much.
    fn keep(&mut self, mapping: system::Mapping) -> Vec<system::Mapping> {
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

/// The pool of this process; `None` if nothing is to be kept.
fn pool() -> Option<&'static Mutex<Pool>> {
    static POOL: OnceLock<Mutex<Pool>> = OnceLock::new();
    let pool = POOL.get_or_init(|| {
        // Opening a device has told of a mistake.
        let mib = crate::environment::number("GRADIFF_POOL_MIB").unwrap_or_default();
        let max_bytes = mib.unwrap_or(MAX_MIB).saturating_mul(1 << 20);
        Mutex::new(Pool { free: VecDeque::new(), max_bytes })
    });
    (0 < lock(pool).max_bytes).then_some(pool)
}

/// A list of blocks is never half changed: poison is of no concern.
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
    fn pool_gives_the_last_freed_of_a_size_and_keeps_the_bound() {
        const SIZE: usize = SMALLEST_BYTES;
        let mut pool = Pool { free: VecDeque::new(), max_bytes: 4 * SIZE };
        let [first, second, other] = [mapping(SIZE), mapping(SIZE), mapping(2 * SIZE)];
        let addresses = [first.as_ptr(), second.as_ptr(), other.as_ptr()];
        for mapping in [first, second, other] {
            assert!(pool.keep(mapping).is_empty());
        }
        assert!(pool.take(3 * SIZE).is_none());
        assert_eq!(pool.take(SIZE).unwrap().as_ptr(), addresses[1]);
        let evicted = pool.keep(mapping(2 * SIZE));
        assert_eq!(evicted.iter().map(|one| one.as_ptr()).collect::<Vec<_>>(), addresses[..1]);
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
