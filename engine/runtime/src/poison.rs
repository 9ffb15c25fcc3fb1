//! A checking mode of memory, for harnesses: fresh and freed bytes hold patterns.
//!
//! Only the checked interpreter knows of each element whether it was written; other devices read
//! what is there. With poison on, fresh memory is full of [`FRESH`], so that an element which no
//! kernel wrote shows as a strange value and not as a likely 0. Freed memory is filled with
//! [`FREED`] and held back for a while: a kernel that still reads it computes strange values, and
//! one that still writes it leaves a trace that [`check_freed`] finds.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// The byte of memory that nobody has written.
pub(crate) const FRESH: u8 = 0xa5;
/// The byte of memory that was freed.
pub(crate) const FREED: u8 = 0x5a;

/// How many freed bytes, and blocks, are held back.
const HELD_BYTES: usize = 1 << 20;
const HELD_BLOCKS: usize = 64;

static IS_ON: AtomicBool = AtomicBool::new(false);
static HELD: Mutex<Held<crate::pool::Block>> = Mutex::new(Held::new());

/// Turns poison on or off, for memory that is made or freed from now on in this process.
pub fn set_poison(is_on: bool) {
    IS_ON.store(is_on, Ordering::Relaxed);
}

pub(crate) fn is_on() -> bool {
    IS_ON.load(Ordering::Relaxed)
}

/// Whether nobody has written to freed memory since the last call. It looks at what is held back;
/// without poison that is nothing.
///
/// # Errors
/// A byte that was written, in words.
pub fn check_freed() -> Result<(), String> {
    lock().check()
}

/// Holds a freed block back; gives those that were held longest and are now too many.
pub(crate) fn hold(block: crate::pool::Block) -> Vec<crate::pool::Block> {
    lock().hold(block)
}

fn lock() -> std::sync::MutexGuard<'static, Held<crate::pool::Block>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bytes that can be filled and looked at.
pub(crate) trait Bytes {
    fn bytes(&self) -> &[u8];
    fn bytes_mut(&mut self) -> &mut [u8];
}

/// Freed blocks, those freed longest ago first.
struct Held<B> {
    blocks: VecDeque<B>,
    /// A byte that was written after it was freed, in a block that is held no more.
    damage: Option<String>,
}

impl<B: Bytes> Held<B> {
    const fn new() -> Held<B> {
        Held { blocks: VecDeque::new(), damage: None }
    }

    fn hold(&mut self, mut block: B) -> Vec<B> {
        block.bytes_mut().fill(FREED);
        self.blocks.push_back(block);
        let mut total: usize = self.blocks.iter().map(|block| block.bytes().len()).sum();
        let mut released = Vec::new();
        while (HELD_BYTES < total || HELD_BLOCKS < self.blocks.len())
            && let Some(oldest) = self.blocks.pop_front()
        {
            total -= oldest.bytes().len();
            self.damage = self.damage.take().or_else(|| damage(oldest.bytes()));
            released.push(oldest);
        }
        released
    }

    fn check(&mut self) -> Result<(), String> {
        for block in &mut self.blocks {
            if let Some(found) = damage(block.bytes()) {
                self.damage.get_or_insert(found);
                block.bytes_mut().fill(FREED);
            }
        }
        self.damage.take().map_or(Ok(()), Err)
    }
}

/// The first byte that is no longer what freed bytes are.
fn damage(bytes: &[u8]) -> Option<String> {
    let at = bytes.iter().position(|byte| *byte != FREED)?;
    let size = bytes.len();
    Some(format!("byte {at} of a block of {size} was written after the block was freed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Bytes for Vec<u8> {
        fn bytes(&self) -> &[u8] {
            self
        }

        fn bytes_mut(&mut self) -> &mut [u8] {
            self
        }
    }

    #[test]
    fn write_after_free_is_found_once() {
        let mut held = Held::new();
        assert!(held.hold(vec![0u8; 64]).is_empty());
        assert!(held.blocks[0].iter().all(|byte| *byte == FREED));
        assert_eq!(held.check(), Ok(()));
        held.blocks[0][7] = 0;
        let expected = "byte 7 of a block of 64 was written after the block was freed";
        assert_eq!(held.check(), Err(expected.to_owned()));
        assert_eq!(held.check(), Ok(()));
    }

    #[test]
    fn write_after_free_is_found_in_what_is_released() {
        let mut held = Held::new();
        held.hold(vec![0u8; HELD_BYTES]);
        held.blocks[0][HELD_BYTES - 1] = 1;
        let released = held.hold(vec![0u8; 64]);
        assert_eq!(released.len(), 1, "the first block is beyond the bound");
        assert_eq!(released[0][0], FREED);
        assert!(held.check().is_err());
        let released: usize = (0..100).map(|_| held.hold(vec![0u8; 1]).len()).sum();
        assert_eq!((released, held.blocks.len()), (101 - HELD_BLOCKS, HELD_BLOCKS));
        assert_eq!(held.check(), Ok(()));
    }
}
