//! Groups and their threads: local memory, the current thread, and execution from barrier to
//! barrier.

use gradiff_graph::{Constant, DType, Local};
use smallvec::SmallVec;

use super::build::Product;
use super::race::{Accessor, Shadow};
use super::{Access, Program, Run, Step, Transition};
use crate::Error;
use crate::error::Array;

/// The state of race detection in a launch; empty for a kernel without launched ranges.
#[derive(Default)]
pub(super) struct Tracker {
    /// The current thread.
    current: Accessor,
    /// The threads that run uops outside of the launched ranges.
    outside: Accessor,
    /// For each parameter, the accesses of its elements; empty if it is never written.
    data: Vec<Vec<Shadow>>,
    locals: Vec<LocalMemory>,
    /// The slots of the threads of a group, one after the other.
    threads: Vec<u64>,
    /// The error for a read of an unwritten local element. If another thread writes the element
    /// before the next barrier, it is a race instead.
    unwritten: Option<Error>,
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

/// Multiplies the fragments of the threads of each warp. `threads` are the slots of all threads.
fn multiply(product: &Product, threads: &mut [u64], slot_count: usize) {
    let Product { core, src, to } = product;
    for warp in threads.chunks_exact_mut(core.threads as usize * slot_count) {
        let value = |dtype: DType, slot: usize| {
            Constant::from_bits(dtype, warp[slot]).to_float().map(|value| value as f32)
        };
        let fragment = |matrix: usize, (thread, element): (usize, usize)| {
            value(core.operand_dtype, thread * slot_count + src[matrix][element] as usize)
        };
        let mut results = Vec::with_capacity(core.threads as usize * to.len());
        for (thread, element) in
            (0..core.threads as usize).flat_map(|thread| (0..to.len()).map(move |e| (thread, e)))
        {
            let first_slot = thread * slot_count;
            let start = value(DType::F32, first_slot + src[2][element] as usize);
            let sum = start.and_then(|start| core.add((thread, element), start, &fragment));
            results.push((first_slot + to[element] as usize, sum.unwrap_or(f32::NAN)));
        }
        results.into_iter().for_each(|(slot, sum)| warp[slot] = u64::from(sum.to_bits()));
    }
}

/// The position at which a thread has stopped: the step, and the counters of the loops around a
/// barrier.
#[derive(PartialEq)]
struct Stop {
    step: usize,
    counters: SmallVec<[u64; 4]>,
}

impl Program {
    /// Sets the current group or thread from the counters, or resets it.
    pub(super) fn locate(&self, run: &mut Run<'_, '_>, slots: &[u64], transition: Transition) {
        let Some(launch) = &self.launch else { return };
        let number = |ranges: &[(u32, u32)]| {
            ranges
                .iter()
                .fold(0, |number, (counter, size)| number * size + slots[*counter as usize] as u32)
        };
        let Tracker { current, outside, .. } = &mut run.tracker;
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
        run: &mut Run<'_, '_>,
        access: Access,
        element: usize,
        is_write: bool,
    ) -> Result<(), Error> {
        let Tracker { current, data, .. } = &mut run.tracker;
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
        run: &mut Run<'_, '_>,
        slots: &[u64],
        access: Access,
    ) -> Result<u64, Error> {
        let Local { number, size_elements } = self.locals[usize::from(access.array)];
        let array = || Array::Local(number);
        let Some(element) = self.element(slots, access, size_elements, array)? else {
            return Ok(0);
        };
        let Tracker { current, locals, unwritten, .. } = &mut run.tracker;
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
        run: &mut Run<'_, '_>,
        slots: &[u64],
        access: Access,
        value: u64,
    ) -> Result<(), Error> {
        let Local { number, size_elements } = self.locals[usize::from(access.array)];
        let array = || Array::Local(number);
        let Some(element) = self.element(slots, access, size_elements, array)? else {
            return Ok(());
        };
        let Tracker { current, locals, .. } = &mut run.tracker;
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

    /// Runs the steps from `body` in each thread of the group, from barrier to barrier.
    pub(super) fn fork(
        &self,
        run: &mut Run<'_, '_>,
        slots: &[u64],
        body: usize,
    ) -> Result<(), Error> {
        let Some(launch) = &self.launch else { return Ok(()) };
        let mut threads = std::mem::take(&mut run.tracker.threads);
        threads.clear();
        for thread in 0..launch.thread_count {
            let start = threads.len();
            threads.extend_from_slice(slots);
            let mut remaining = thread;
            for (counter, size) in launch.threads.iter().rev() {
                threads[start + *counter as usize] = u64::from(remaining % size);
                remaining /= size;
            }
        }
        let mut from = body;
        loop {
            let mut first: Option<Stop> = None;
            for (thread, thread_slots) in (0..).zip(threads.chunks_exact_mut(slots.len())) {
                run.tracker.current.thread = thread;
                let stop = match self.execute::<true>(run, thread_slots, from) {
                    Ok(step) => self.stop(step, thread_slots),
                    Err(race @ Error::Race { .. }) => return Err(race),
                    Err(error) => return Err(run.tracker.unwritten.take().unwrap_or(error)),
                };
                match &first {
                    None => first = Some(stop),
                    Some(first) if *first == stop => {}
                    Some(first) => {
                        let waiting = Accessor { thread: 0, ..run.tracker.current };
                        return Err(self.divergent([waiting, run.tracker.current], [first, &stop]));
                    }
                }
            }
            if let Some(error) = run.tracker.unwritten.take() {
                return Err(error);
            }
            match first.map(|stop| (stop.step, self.steps[stop.step])) {
                Some((step, Step::Barrier { number })) => {
                    from = step + 1;
                    match &self.barriers[number as usize].product {
                        Some(product) => multiply(product, &mut threads, slots.len()),
                        None => run.tracker.current.epoch += 1,
                    }
                }
                _ => break,
            }
        }
        run.tracker.current.thread = run.tracker.outside.thread;
        run.tracker.threads = threads;
        Ok(())
    }

    fn stop(&self, step: usize, slots: &[u64]) -> Stop {
        let counters = match self.steps[step] {
            Step::Barrier { number } => {
                let counters = &self.barriers[number as usize].counters;
                counters.iter().map(|counter| slots[*counter as usize]).collect()
            }
            _ => SmallVec::new(),
        };
        Stop { step, counters }
    }

    /// The error for two threads that have stopped at different positions, at least one of which is
    /// a barrier.
    fn divergent(&self, accessors: [Accessor; 2], stops: [&Stop; 2]) -> Error {
        // The thread that waits at a barrier is named first.
        let is_barrier = matches!(self.steps[stops[0].step], Step::Barrier { .. });
        let (waiting, going) = if is_barrier { (0, 1) } else { (1, 0) };
        let (barrier, stop) = (stops[waiting], stops[going]);
        let position = |stop: &Stop| match self.steps[stop.step] {
            Step::Barrier { number } => Some(self.barriers[number as usize].position),
            _ => None,
        };
        let does = match position(stop) {
            None => "is at its end".to_owned(),
            Some(_) if barrier.step == stop.step => {
                "waits there in another iteration of a loop".into()
            }
            Some(position) => format!("waits at uop {position}"),
        };
        Error::DivergentBarrier {
            kernel: self.signature.name.clone(),
            position: position(barrier).unwrap_or_default() as usize,
            waits: accessors[waiting].worker(),
            absent: accessors[going].worker(),
            does,
        }
    }
}
