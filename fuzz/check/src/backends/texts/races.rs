//! Races of a launch: accesses to an element by threads that no barrier orders.

/// A thread during a launch: its group, the number of barriers that the group has passed, and the
/// thread's number, in one word. 0 is no thread.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ThreadId(u64);

const THREAD_BITS: u32 = 11;
const EPOCH_BITS: u32 = 25;
const GROUP_BITS: u32 = 27;

impl ThreadId {
    /// # Errors
    /// A number that is too large for its bits.
    pub(super) fn new(group: u64, epoch: u64, thread: u64) -> Result<ThreadId, String> {
        if group >> GROUP_BITS != 0 || epoch >> EPOCH_BITS != 0 || thread >> THREAD_BITS != 0 {
            return Err(format!("group {group}, barrier {epoch}, thread {thread} are too many"));
        }
        Ok(ThreadId(1 << 63 | (group << EPOCH_BITS | epoch) << THREAD_BITS | thread))
    }

    fn group(self) -> u64 {
        self.0 >> (EPOCH_BITS + THREAD_BITS)
    }

    /// Returns whether accesses of the two threads are unordered.
    fn races(self, other: ThreadId) -> bool {
        let are_threads = self.0 != 0 && other.0 != 0;
        let is_same_epoch = self.0 >> THREAD_BITS == other.0 >> THREAD_BITS;
        are_threads && self != other && (self.group() != other.group() || is_same_epoch)
    }
}

/// The relevant accesses of an element: its last writer and two unordered readers.
#[derive(Clone, Copy, Default)]
pub(super) struct Accesses {
    writer: ThreadId,
    readers: [ThreadId; 2],
}

impl Accesses {
    /// Returns whether a thread has written the element.
    pub(super) fn is_written(&self) -> bool {
        self.writer != ThreadId::default()
    }

    /// Records a read. Returns whether it is ordered with all writes.
    pub(super) fn read(&mut self, id: ThreadId) -> bool {
        // An access that is ordered after this reader is ordered after those before it.
        if let Some(reader) = self.readers.iter_mut().find(|reader| !reader.races(id)) {
            *reader = id;
        }
        !self.writer.races(id)
    }

    /// Records a write. Returns whether it is ordered with all reads and writes.
    pub(super) fn write(&mut self, id: ThreadId) -> bool {
        let is_race = self.writer.races(id) || self.readers.iter().any(|reader| reader.races(id));
        self.writer = id;
        !is_race
    }
}
