//! A checking mode of memory, for harnesses: new and freed bytes hold patterns.
//!
//! Only the checked interpreter knows whether an element was written. With poison on, new memory is
//! filled with [`FRESH`], so that an element that no kernel wrote has an unlikely value instead of
//! a likely 0. Freed memory is filled with [`FREED`] and kept in quarantine for a while: a kernel
//! that still reads it computes unlikely values, and [`check_freed`](crate::check_freed)
//! finds writes to it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

/// The byte that fills new memory.
pub(crate) const FRESH: u8 = 0xa5;
/// The byte that fills freed memory.
pub(crate) const FREED: u8 = 0x5a;

/// The maximal size of the quarantine in bytes, and in blocks.
const QUARANTINE_BYTES: usize = 1 << 20;
const QUARANTINE_BLOCKS: usize = 64;

static IS_ON: AtomicBool = AtomicBool::new(false);

/// Turns poison on or off, for memory that is allocated or freed from now on in this process.
pub fn set_poison(is_on: bool) {
    IS_ON.store(is_on, Ordering::Relaxed);
}

pub(crate) fn is_on() -> bool {
    IS_ON.load(Ordering::Relaxed)
}

/// Access to the bytes of a block.
pub(crate) trait Bytes {
    fn bytes(&self) -> &[u8];
    fn bytes_mut(&mut self) -> &mut [u8];
}

/// Freed blocks, oldest first.
pub(crate) struct Quarantine<B> {
    blocks: VecDeque<B>,
    /// A message about a byte that was written after it was freed, in a block that is no longer in
    /// quarantine.
    damage: Option<String>,
}

impl<B: Bytes> Quarantine<B> {
    pub(crate) const fn new() -> Quarantine<B> {
        Quarantine { blocks: VecDeque::new(), damage: None }
    }

    /// Puts a freed block in quarantine, and returns the oldest blocks if they exceed the bounds.
    pub(crate) fn add(&mut self, mut block: B) -> Vec<B> {
        block.bytes_mut().fill(FREED);
        self.blocks.push_back(block);
        let mut total: usize = self.blocks.iter().map(|block| block.bytes().len()).sum();
        let mut released = Vec::new();
        while (QUARANTINE_BYTES < total || QUARANTINE_BLOCKS < self.blocks.len())
            && let Some(oldest) = self.blocks.pop_front()
        {
            total -= oldest.bytes().len();
            self.damage = self.damage.take().or_else(|| damage(oldest.bytes()));
            released.push(oldest);
        }
        released
    }

    /// Checks that no block was written since the last call.
    pub(crate) fn check(&mut self) -> Result<(), String> {
        for block in &mut self.blocks {
            if let Some(found) = damage(block.bytes()) {
                self.damage.get_or_insert(found);
                block.bytes_mut().fill(FREED);
            }
        }
        self.damage.take().map_or(Ok(()), Err)
    }
}

impl Bytes for Vec<u8> {
    fn bytes(&self) -> &[u8] {
        self
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        self
    }
}

/// Returns whether a write after free is found, and found once, in a quarantine of its own: without
/// that, [`check_freed`](crate::check_freed) proves nothing.
pub fn finds_damage() -> bool {
    let mut quarantine = Quarantine::new();
    let is_clean = quarantine.add(vec![0; 64]).is_empty() && quarantine.check().is_ok();
    let mut is_found = |index: usize, added: usize| {
        quarantine.blocks[0][index] = 0;
        let released = (0..added).map(|_| quarantine.add(vec![0; 64]).len()).sum::<usize>();
        let is_released = released == (added + 1).saturating_sub(QUARANTINE_BLOCKS);
        is_released && quarantine.check().is_err() && quarantine.check().is_ok()
    };
    // The second time, the damaged block is released before the check.
    is_clean && is_found(7, 0) && is_found(63, QUARANTINE_BLOCKS)
}

/// Describes the first byte that is not [`FREED`].
fn damage(bytes: &[u8]) -> Option<String> {
    let index = bytes.iter().position(|byte| *byte != FREED)?;
    let size = bytes.len();
    Some(format!("byte {index} of a block of {size} was written after the block was freed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_found() {
        assert!(finds_damage());
    }

    #[test]
    fn write_after_free_is_found_once() {
        let mut quarantine = Quarantine::new();
        assert!(quarantine.add(vec![0u8; 64]).is_empty());
        assert!(quarantine.blocks[0].iter().all(|byte| *byte == FREED));
        assert_eq!(quarantine.check(), Ok(()));
        quarantine.blocks[0][7] = 0;
        let expected = "byte 7 of a block of 64 was written after the block was freed";
        assert_eq!(quarantine.check(), Err(expected.to_owned()));
        assert_eq!(quarantine.check(), Ok(()));
    }

    #[test]
    fn write_after_free_is_found_in_released_blocks() {
        let mut quarantine = Quarantine::new();
        quarantine.add(vec![0u8; QUARANTINE_BYTES]);
        quarantine.blocks[0][QUARANTINE_BYTES - 1] = 1;
        let released = quarantine.add(vec![0u8; 64]);
        assert_eq!(released.len(), 1, "the first block is beyond the bound");
        assert_eq!(released[0][0], FREED);
        assert!(quarantine.check().is_err());
        let released: usize = (0..100).map(|_| quarantine.add(vec![0u8; 1]).len()).sum();
        assert_eq!(
            (released, quarantine.blocks.len()),
            (101 - QUARANTINE_BLOCKS, QUARANTINE_BLOCKS)
        );
        assert_eq!(quarantine.check(), Ok(()));
    }
}
