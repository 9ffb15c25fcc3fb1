//! The locks of a launch.
//!
//! A launch locks the memories it reads for reading and those it writes for writing, in the order
//! of addresses, so that launches on other threads wait and never deadlock. A memory may be given
//! for several slots that are only read. A launch that writes a memory which is given for a second
//! slot is refused.

use std::sync::{RwLockReadGuard, RwLockWriteGuard};

use smallvec::SmallVec;

use crate::Error;
use crate::data::Data;
use crate::memory::Memory;
use crate::remote::RemoteDevice;
use crate::signature::{Parameter, Signature};

/// A lock held for one launch.
pub(crate) enum Guard<'a> {
    Read(RwLockReadGuard<'a, Data>),
    Write(RwLockWriteGuard<'a, Data>),
}

/// The locks of one launch.
pub(crate) struct Locked<'a> {
    /// Each memory once, in the order of addresses.
    pub(crate) guards: SmallVec<[Guard<'a>; 6]>,
    /// For each parameter, its guard.
    pub(crate) guard_of: SmallVec<[usize; 6]>,
}

impl<'a> Locked<'a> {
    /// Checks the memories, given by slot, against the signature and locks them for use on the
    /// host.
    pub(crate) fn new(signature: &Signature, memories: &[&'a Memory]) -> Result<Locked<'a>, Error> {
        Locked::lock_with(signature, memories, |memory, is_written| {
            Ok(match is_written {
                true => Guard::Write(memory.write_lock()?),
                false => Guard::Read(memory.read_lock()?),
            })
        })
    }

    /// As [`Locked::new`], but locks all memories exclusively and does not synchronise them to the
    /// host: for devices with memory of their own.
    pub(crate) fn exclusive(
        signature: &Signature,
        memories: &[&'a Memory],
    ) -> Result<Locked<'a>, Error> {
        Locked::lock_with(signature, memories, |memory, _| {
            Ok(Guard::Write(memory.lock_exclusive()))
        })
    }

    fn lock_with(
        signature: &Signature,
        memories: &[&'a Memory],
        lock: impl Fn(&'a Memory, bool) -> Result<Guard<'a>, Error>,
    ) -> Result<Locked<'a>, Error> {
        let mut used: SmallVec<[(&'a Memory, bool); 6]> = SmallVec::new();
        let refuse = |problem: String| Error::Arguments { kernel: signature.name.clone(), problem };
        for Parameter { slot, dtype, size_elements, is_written, .. } in &signature.parameters {
            let memory = memories.get(*slot).ok_or_else(|| {
                refuse(format!("there is no memory for data{slot}: {} were given", memories.len()))
            })?;
            let is_long_enough =
                usize::try_from(*size_elements).is_ok_and(|size| size <= memory.size_elements());
            if memory.dtype() != *dtype || !is_long_enough {
                return Err(refuse(format!(
                    "data{slot} is {size_elements} x {dtype}, but the memory is {} x {}",
                    memory.size_elements(),
                    memory.dtype()
                )));
            }
            let mut aliases = used.iter().filter(|(earlier, _)| std::ptr::eq(*earlier, *memory));
            if aliases.any(|(_, alias_is_written)| *is_written || *alias_is_written) {
                return Err(refuse(format!(
                    "the memory of data{slot} is given for two slots, one of which is written"
                )));
            }
            used.push((memory, *is_written));
        }
        let address = |number: usize| std::ptr::from_ref(used[number].0).addr();
        let mut order: SmallVec<[usize; 6]> = (0..used.len()).collect();
        order.sort_by_key(|number| address(*number));
        let mut guards = SmallVec::new();
        let mut guard_of: SmallVec<[usize; 6]> = smallvec::smallvec![0; used.len()];
        for (rank, number) in order.iter().enumerate() {
            if rank == 0 || address(order[rank - 1]) != address(*number) {
                let (memory, is_written) = used[*number];
                guards.push(lock(memory, is_written)?);
            }
            guard_of[*number] = guards.len() - 1;
        }
        Ok(Locked { guards, guard_of })
    }

    /// The addresses of the parameters, for machine code, which must not write to parameters that
    /// are locked for reading.
    pub(crate) fn pointers(&mut self) -> SmallVec<[*mut u8; 6]> {
        let guard_pointers: SmallVec<[*mut u8; 6]> = self
            .guards
            .iter_mut()
            .map(|guard| match guard {
                Guard::Read(data) => data.start().cast_mut(),
                Guard::Write(data) => data.start_mut(),
            })
            .collect();
        self.guard_of.iter().map(|guard| guard_pointers[*guard]).collect()
    }

    /// Marks the memories that are locked for writing as written.
    pub(crate) fn mark_written(&mut self) {
        for guard in &mut self.guards {
            if let Guard::Write(data) = guard {
                data.mark_written();
            }
        }
    }
}

/// Checks and locks the memories, copies them to the device and calls `launch` with their handles.
/// If it fails, the bytes that the host has remain those of the memories; those that only the
/// device has may be overwritten in part.
pub(crate) fn run_on(
    device: &dyn RemoteDevice,
    signature: &Signature,
    memories: &[&Memory],
    launch: impl FnOnce(&[usize]) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut locked = Locked::exclusive(signature, memories)?;
    let mut handles: SmallVec<[usize; 6]> = SmallVec::new();
    for (parameter, number) in signature.parameters.iter().zip(&locked.guard_of) {
        let Guard::Write(data) = &mut locked.guards[*number] else {
            unreachable!("all are locked for writing");
        };
        handles.push(data.sync_to_device(device, parameter.dtype, parameter.is_written)?);
    }
    let launched = launch(&handles);
    for (parameter, number) in signature.parameters.iter().zip(&locked.guard_of) {
        if parameter.is_written
            && let Guard::Write(data) = &mut locked.guards[*number]
        {
            match &launched {
                Ok(()) => data.mark_written_on_device(),
                Err(_) => data.mark_damaged_on_device(),
            }
        }
    }
    launched
}
