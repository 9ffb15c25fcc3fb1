//! Execution of the steps of a program, from barrier to barrier.

use gradiff_graph::{Constant, DType};
use smallvec::SmallVec;

use super::group::Tracker;
use super::program::{Access, Product, Program, Step};
use super::race::Accessor;
use crate::Error;
use crate::error::Array;
use crate::locked::Guard;
use crate::signature::Parameter;

/// The state of a run besides the slots.
pub(super) struct Run<'a, 'b> {
    pub(super) guards: &'a mut [Guard<'b>],
    pub(super) guard_of: &'a [usize],
    pub(super) tracker: Tracker,
}

/// The position at which a thread has stopped: the step, and the counters of the loops around a
/// barrier.
#[derive(PartialEq)]
struct Stop {
    step: usize,
    counters: SmallVec<[u64; 4]>,
}

impl Program {
    /// Runs the steps from `from` to the next barrier, join or the end, and returns its index. If
    /// `IS_TRACKED`, accesses of elements are compared with those of other threads.
    pub(super) fn execute<const IS_TRACKED: bool>(
        &self,
        run: &mut Run<'_, '_>,
        slots: &mut [u64],
        from: usize,
    ) -> Result<usize, Error> {
        let mut next = from;
        while let Some(step) = self.steps.get(next) {
            next += 1;
            match *step {
                Step::Alu { function, to, x, y, z } => {
                    let [x, y, z] = [x, y, z].map(|slot| slots[slot as usize]);
                    slots[to as usize] = function(x, y, z);
                }
                Step::Copy { to, from } => slots[to as usize] = slots[from as usize],
                Step::Load { to, access } => {
                    slots[to as usize] = self.load::<IS_TRACKED>(run, slots, access)?;
                }
                Step::Store { from, access } => {
                    self.store::<IS_TRACKED>(run, slots, access, slots[from as usize])?;
                }
                Step::Loop { counter, end, target } => {
                    slots[counter as usize] = 0;
                    if slots[end as usize] as i64 <= 0 {
                        next = target as usize;
                    }
                }
                Step::EndLoop { counter, end, target } => {
                    slots[counter as usize] += 1;
                    if slots[counter as usize] < slots[end as usize] {
                        next = target as usize;
                    }
                }
                Step::LoadLocal { to, access } => {
                    slots[to as usize] = self.load_local(&mut run.tracker, slots, access)?;
                }
                Step::StoreLocal { from, access } => {
                    self.store_local(&mut run.tracker, slots, access, slots[from as usize])?;
                }
                Step::Locate(transition) => self.locate(&mut run.tracker, slots, transition),
                Step::Fork { join } => {
                    self.fork(run, slots, next)?;
                    next = join as usize + 1;
                }
                Step::Join | Step::Barrier { .. } => return Ok(next - 1),
            }
        }
        Ok(next)
    }

    #[inline]
    fn load<const IS_TRACKED: bool>(
        &self,
        run: &mut Run<'_, '_>,
        slots: &[u64],
        access: Access,
    ) -> Result<u64, Error> {
        let Parameter { slot, size_elements, .. } = *self.parameter(access);
        let array = || Array::Data(slot);
        let Some(element) = self.element(slots, access, size_elements, array)? else {
            return Ok(0);
        };
        if IS_TRACKED {
            self.check_race(&mut run.tracker, access, element, false)?;
        }
        let data = match &run.guards[run.guard_of[usize::from(access.array)]] {
            Guard::Read(data) => &**data,
            Guard::Write(data) => &**data,
        };
        if !data.is_written(element) {
            return Err(self.uninitialised(access, array(), element, size_elements));
        }
        let bytes = data.bytes();
        Ok(match access.dtype {
            DType::Void => 0,
            DType::Bool | DType::U8 => u64::from(bytes[element]),
            DType::I8 => bytes[element] as i8 as i64 as u64,
            DType::I16 => i16::from_le_bytes(element_bytes(bytes, element)) as i64 as u64,
            DType::U16 | DType::F16 | DType::BF16 => {
                u64::from(u16::from_le_bytes(element_bytes(bytes, element)))
            }
            DType::I32 => i32::from_le_bytes(element_bytes(bytes, element)) as i64 as u64,
            DType::U32 | DType::F32 => u64::from(u32::from_le_bytes(element_bytes(bytes, element))),
            DType::I64 | DType::U64 | DType::F64 => {
                u64::from_le_bytes(element_bytes(bytes, element))
            }
        })
    }

    #[inline]
    fn store<const IS_TRACKED: bool>(
        &self,
        run: &mut Run<'_, '_>,
        slots: &[u64],
        access: Access,
        value: u64,
    ) -> Result<(), Error> {
        let Parameter { slot, size_elements, .. } = *self.parameter(access);
        let array = || Array::Data(slot);
        let Some(element) = self.element(slots, access, size_elements, array)? else {
            return Ok(());
        };
        if IS_TRACKED {
            self.check_race(&mut run.tracker, access, element, true)?;
        }
        let Guard::Write(data) = &mut run.guards[run.guard_of[usize::from(access.array)]] else {
            unreachable!("a parameter that is stored to is locked for writing");
        };
        let (bytes, written) = data.bytes_and_flags_mut();
        let size = access.dtype.size_bytes();
        let target = &mut bytes[element * size..(element + 1) * size];
        match size {
            1 => target[0] = value as u8,
            2 => target.copy_from_slice(&(value as u16).to_le_bytes()),
            4 => target.copy_from_slice(&(value as u32).to_le_bytes()),
            _ => target.copy_from_slice(&value.to_le_bytes()[..size]),
        }
        if let Some(written) = written {
            written[element] = true;
        }
        Ok(())
    }

    /// Runs the steps from `body` in each thread of the group, from barrier to barrier.
    fn fork(&self, run: &mut Run<'_, '_>, slots: &[u64], body: usize) -> Result<(), Error> {
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

/// The bytes of an element of `N` bytes.
fn element_bytes<const N: usize>(bytes: &[u8], element: usize) -> [u8; N] {
    let mut value = [0; N];
    value.copy_from_slice(&bytes[element * N..(element + 1) * N]);
    value
}
