//! Who touched which element: what races are found with.
//!
//! Groups run one after the other and so do the threads of a group, so each pair of touches meets
//! in some order; of the touches of an element it is enough to know the last writer and the
//! readers since the last barrier, one by name or "several". A write that is not ordered against
//! another touch is refused at once, so there is never a second unordered writer to remember.

use crate::error::Worker;

/// Stands for several groups or threads.
const SEVERAL: u32 = u32::MAX;

/// Who is at work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Who {
    /// Numbered from 1; 0 is nobody.
    pub(super) group: u32,
    pub(super) thread: u32,
    /// How many barriers the group has passed.
    pub(super) epoch: u32,
}

impl Who {
    /// Those who run what stands outside of the launched ranges.
    pub(super) fn outside(groups: u32, threads: u32) -> Who {
        let one_or_several = |count, one| if count == 1 { one } else { SEVERAL };
        Who { group: one_or_several(groups, 1), thread: one_or_several(threads, 0), epoch: 0 }
    }

    /// For messages.
    pub(super) fn worker(self) -> Worker {
        Worker {
            group: (self.group != SEVERAL).then(|| self.group - 1),
            thread: (self.thread != SEVERAL).then_some(self.thread),
        }
    }

    /// Whether what the two do may happen in either order.
    fn is_unordered(self, other: Who) -> bool {
        self.group != other.group || self.epoch == other.epoch && self.thread != other.thread
    }

    /// Both, where only one can be remembered: that of an earlier epoch of the group may go.
    fn with(self, newer: Who) -> Who {
        if self.group == 0 || self == newer {
            newer
        } else if self.group != newer.group {
            Who { group: SEVERAL, thread: SEVERAL, epoch: 0 }
        } else if self.epoch != newer.epoch {
            newer
        } else {
            Who { thread: SEVERAL, ..newer }
        }
    }
}

/// The touches of one element that matter.
#[derive(Clone, Copy, Default)]
pub(super) struct Shadow {
    writer: Who,
    reader: Who,
}

impl Shadow {
    /// Notes a touch, or gives who has touched the element in no order with it, and whether they
    /// wrote.
    pub(super) fn touch(&mut self, who: Who, is_write: bool) -> Option<(Who, bool)> {
        if self.writer.group != 0 && self.writer.is_unordered(who) {
            return Some((self.writer, true));
        }
        if is_write && self.reader.group != 0 && self.reader.is_unordered(who) {
            return Some((self.reader, false));
        }
        if is_write {
            self.writer = who;
        } else {
            self.reader = self.reader.with(who);
        }
        None
    }

    /// Forgets what other groups did: an element of local memory is another one in each group.
    pub(super) fn of_group(&mut self, group: u32) -> &mut Shadow {
        if self.writer.group != group {
            self.writer = Who::default();
        }
        if self.reader.group != group {
            self.reader = Who::default();
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

    /// The touches are noted in order; whether the last one races.
    fn races(touches: &[(u32, u32, u32, bool)]) -> bool {
        let mut shadow = Shadow::default();
        let mut found = None;
        for (place, (group, thread, epoch, is_write)) in touches.iter().enumerate() {
            let who = Who { group: *group, thread: *thread, epoch: *epoch };
            found = shadow.touch(who, *is_write);
            assert!(found.is_none() || place + 1 == touches.len(), "an earlier touch races");
        }
        found.is_some()
    }

    #[test]
    fn touch_finds_each_kind_of_race_and_no_other() {
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
    fn touch_remembers_that_several_read() {
        let readers = [(1, 0, 0, false), (1, 1, 0, false), (1, 0, 0, false)];
        assert!(races(&[&readers[..], &[(1, 0, 0, true)]].concat()));
        assert!(!races(&[&readers[..], &[(1, 0, 1, true)]].concat()));
        // Readers of two groups, then those of one of them at a later time.
        let groups = [(1, 0, 0, false), (2, 0, 0, false), (2, 0, 1, false)];
        assert!(races(&[&groups[..], &[(2, 0, 2, true)]].concat()));
        let outside = Who::outside(2, 1);
        let mut shadow = Shadow::default();
        assert!(shadow.touch(outside, false).is_none());
        assert!(shadow.touch(Who { group: 1, thread: 0, epoch: 0 }, true).is_some());
    }
}
