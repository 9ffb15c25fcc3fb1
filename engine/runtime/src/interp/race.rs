//! Race detection: shadow state of the accesses of each element.
//!
//! Groups and the threads of a group run one after the other, so all pairs of accesses are
//! compared. For each element the shadow has the last writer and the readers since the last
//! barrier: one thread, or "several". An unordered write is an error immediately, so there is never
//! a second unordered writer to remember.

use crate::error::Worker;

/// Means several groups or threads.
const SEVERAL: u32 = u32::MAX;

/// The thread of an access, and the epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Accessor {
    /// Numbered from 1; 0 means that there was no access.
    pub(super) group: u32,
    pub(super) thread: u32,
    /// The number of barriers that the group has passed.
    pub(super) epoch: u32,
}

impl Accessor {
    /// The threads that run uops outside of the launched ranges: all of them.
    pub(super) fn outside(groups: u32, threads: u32) -> Accessor {
        let number = |count, first| if count == 1 { first } else { SEVERAL };
        Accessor { group: number(groups, 1), thread: number(threads, 0), epoch: 0 }
    }

    /// The thread, for messages.
    pub(super) fn worker(self) -> Worker {
        Worker {
            group: (self.group != SEVERAL).then(|| self.group - 1),
            thread: (self.thread != SEVERAL).then_some(self.thread),
        }
    }

    /// Returns whether accesses of the two may happen in either order.
    fn is_unordered(self, other: Accessor) -> bool {
        self.group != other.group || self.epoch == other.epoch && self.thread != other.thread
    }

    /// Merges two readers. One of an earlier epoch of the same group may be forgotten.
    fn merge(self, newer: Accessor) -> Accessor {
        if self.group == 0 || self == newer {
            newer
        } else if self.group != newer.group {
            Accessor { group: SEVERAL, thread: SEVERAL, epoch: 0 }
        } else if self.epoch != newer.epoch {
            newer
        } else {
            Accessor { thread: SEVERAL, ..newer }
        }
    }
}

/// The relevant accesses of one element.
#[derive(Clone, Copy, Default)]
pub(super) struct Shadow {
    writer: Accessor,
    reader: Accessor,
}

impl Shadow {
    /// Records an access. If it is unordered with an earlier one, returns the thread of that, and
    /// whether it was a write.
    pub(super) fn record(
        &mut self,
        accessor: Accessor,
        is_write: bool,
    ) -> Option<(Accessor, bool)> {
        if self.writer.group != 0 && self.writer.is_unordered(accessor) {
            return Some((self.writer, true));
        }
        if is_write && self.reader.group != 0 && self.reader.is_unordered(accessor) {
            return Some((self.reader, false));
        }
        if is_write {
            self.writer = accessor;
        } else {
            self.reader = self.reader.merge(accessor);
        }
        None
    }

    /// Forgets the accesses of other groups, since each group has its own local memory.
    pub(super) fn of_group(&mut self, group: u32) -> &mut Shadow {
        if self.writer.group != group {
            self.writer = Accessor::default();
        }
        if self.reader.group != group {
            self.reader = Accessor::default();
        }
        self
    }

    pub(super) fn is_written(&self) -> bool {
        self.writer.group != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records accesses in order, and returns whether the last one races.
    fn races(accesses: &[(u32, u32, u32, bool)]) -> bool {
        let mut shadow = Shadow::default();
        let mut found = None;
        for (position, (group, thread, epoch, is_write)) in accesses.iter().enumerate() {
            let accessor = Accessor { group: *group, thread: *thread, epoch: *epoch };
            found = shadow.record(accessor, *is_write);
            assert!(found.is_none() || position + 1 == accesses.len(), "an earlier access races");
        }
        found.is_some()
    }

    #[test]
    fn record_finds_each_kind_of_race_and_no_other() {
        let (read, write) = (false, true);
        for (first, second, is_race) in
            [(read, read, false), (read, write, true), (write, read, true), (write, write, true)]
        {
            assert_eq!(races(&[(1, 0, 0, first), (1, 1, 0, second)]), is_race);
            assert_eq!(races(&[(1, 0, 0, first), (2, 0, 0, second)]), is_race);
            assert_eq!(races(&[(1, 0, 0, first), (2, 0, 1, second)]), is_race);
            assert!(!races(&[(1, 0, 0, first), (1, 0, 0, second)]));
            assert!(!races(&[(1, 0, 0, first), (1, 1, 1, second)]));
        }
    }

    #[test]
    fn record_remembers_several_readers() {
        let readers = [(1, 0, 0, false), (1, 1, 0, false), (1, 0, 0, false)];
        assert!(races(&[&readers[..], &[(1, 0, 0, true)]].concat()));
        assert!(!races(&[&readers[..], &[(1, 0, 1, true)]].concat()));
        // Readers of two groups, then a reader of one of them in a later epoch.
        let groups = [(1, 0, 0, false), (2, 0, 0, false), (2, 0, 1, false)];
        assert!(races(&[&groups[..], &[(2, 0, 2, true)]].concat()));
        let outside = Accessor::outside(2, 1);
        let mut shadow = Shadow::default();
        assert!(shadow.record(outside, false).is_none());
        assert!(shadow.record(Accessor { group: 1, thread: 0, epoch: 0 }, true).is_some());
    }
}
