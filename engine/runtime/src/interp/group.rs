//! Groups and their threads: local memory, the current thread, and the accesses so far.

use gradiff_graph::Local;

use super::program::{Access, Program, Transition};
use super::race::{Accessor, Shadow};
use crate::Error;
use crate::error::Array;

/// The state of race detection in a launch; empty for a kernel without launched ranges.
#[derive(Default)]
pub(super) struct Tracker {
    /// The current thread.
    pub(super) current: Accessor,
    /// The threads that run uops outside of the launched ranges.
    pub(super) outside: Accessor,
    /// For each parameter, the accesses of its elements; empty if it is never written.
    data: Vec<Vec<Shadow>>,
    locals: Vec<LocalMemory>,
    /// The slots of the threads of a group, one after the other.
    pub(super) threads: Vec<u64>,
    /// The error for a read of an unwritten local element. If another thread writes the element
    /// before the next barrier, it is a race instead.
    pub(super) unwritten: Option<Error>,
}

/// A local array.
struct LocalMemory {
    slots: Vec<u64>,
    shadows: Vec<Shadow>,
}

impl Tracker {
    pub(super) fn new(program: &Program) -> Tracker {
        let Some(launch) = &program.launch else { return Tracker::default() };
        let outside = Accessor::outside(launch.group_count, launch.thread_count);
        let is_single = launch.group_count == 1 && launch.thread_count == 1;
        let shadows = |count: i64| vec![Shadow::default(); count as usize];
        let data = program.signature.parameters.iter().map(|parameter| {
            shadows(if parameter.is_written && !is_single { parameter.size_elements } else { 0 })
        });
        let local = |local: &Local| LocalMemory {
            slots: vec![0; local.size_elements as usize],
            shadows: shadows(local.size_elements),
        };
        Tracker {
            current: outside,
            outside,
            data: data.collect(),
            locals: program.locals.iter().map(local).collect(),
            threads: Vec::new(),
            unwritten: None,
        }
    }
}

impl Program {
    /// Sets the current group or thread from the counters, or resets it.
    pub(super) fn locate(&self, tracker: &mut Tracker, slots: &[u64], transition: Transition) {
        let Some(launch) = &self.launch else { return };
        let number = |ranges: &[(u32, u32)]| {
            ranges
                .iter()
                .fold(0, |number, (counter, size)| number * size + slots[*counter as usize] as u32)
        };
        let Tracker { current, outside, .. } = tracker;
        match transition {
            Transition::EnterGroup => {
                *current = Accessor { group: 1 + number(&launch.groups), ..*outside }
            }
            Transition::LeaveGroup => *current = *outside,
            Transition::EnterThread => current.thread = number(&launch.threads),
            Transition::LeaveThread => current.thread = outside.thread,
        }
    }

    /// Compares an access of an element of a parameter with those of other threads.
    pub(super) fn check_race(
        &self,
        tracker: &mut Tracker,
        access: Access,
        element: usize,
        is_write: bool,
    ) -> Result<(), Error> {
        let Tracker { current, data, .. } = tracker;
        let Some(shadow) = data[usize::from(access.array)].get_mut(element) else {
            return Ok(());
        };
        let Some(found) = shadow.record(*current, is_write) else { return Ok(()) };
        let parameter = self.parameter(access);
        let array = (Array::Data(parameter.slot), parameter.size_elements);
        Err(self.race(access, array, element, found, (*current, is_write)))
    }

    fn race(
        &self,
        access: Access,
        (array, size_elements): (Array, i64),
        element: usize,
        (first, first_writes): (Accessor, bool),
        (second, second_writes): (Accessor, bool),
    ) -> Error {
        Error::Race {
            kernel: self.signature.name.clone(),
            position: access.position as usize,
            array,
            index: element as i64,
            size_elements,
            first: first.worker(),
            first_writes,
            second: second.worker(),
            second_writes,
        }
    }

    pub(super) fn load_local(
        &self,
        tracker: &mut Tracker,
        slots: &[u64],
        access: Access,
    ) -> Result<u64, Error> {
        let Local { number, size_elements } = self.locals[usize::from(access.array)];
        let array = || Array::Local(number);
        let Some(element) = self.element(slots, access, size_elements, array)? else {
            return Ok(0);
        };
        let Tracker { current, locals, unwritten, .. } = tracker;
        let local = &mut locals[usize::from(access.array)];
        let shadow = local.shadows[element].of_group(current.group);
        let is_written = shadow.is_written();
        if let Some(found) = shadow.record(*current, false) {
            let array = (array(), size_elements);
            return Err(self.race(access, array, element, found, (*current, false)));
        }
        if is_written {
            return Ok(local.slots[element]);
        }
        let error = self.uninitialised(access, array(), element, size_elements);
        if !self.is_forked(*current) {
            return Err(error);
        }
        unwritten.get_or_insert(error);
        Ok(0)
    }

    /// Returns whether a thread is one of several that `fork` runs.
    fn is_forked(&self, current: Accessor) -> bool {
        let count = self.launch.as_ref().map_or(1, |launch| launch.thread_count);
        1 < count && current.thread < count
    }

    pub(super) fn store_local(
        &self,
        tracker: &mut Tracker,
        slots: &[u64],
        access: Access,
        value: u64,
    ) -> Result<(), Error> {
        let Local { number, size_elements } = self.locals[usize::from(access.array)];
        let array = || Array::Local(number);
        let Some(element) = self.element(slots, access, size_elements, array)? else {
            return Ok(());
        };
        let Tracker { current, locals, .. } = tracker;
        let local = &mut locals[usize::from(access.array)];
        if let Some(found) = local.shadows[element].of_group(current.group).record(*current, true) {
            return Err(self.race(
                access,
                (array(), size_elements),
                element,
                found,
                (*current, true),
            ));
        }
        local.slots[element] = value;
        Ok(())
    }
}
