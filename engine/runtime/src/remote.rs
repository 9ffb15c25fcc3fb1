//! Memory of devices that do not compute in host memory: copies, made and brought home when they
//! are asked for.
//!
//! A memory has one copy at most, on the device that used it last. The newest bytes are at home,
//! in the copy, or in both; each side is brought up to date when it is used, never earlier.

use gradiff_graph::DType;
use smallvec::SmallVec;

use crate::Error;
use crate::memory::{Data, Guard, Locked, Memory, Signature};

/// A device with memory of its own.
pub(crate) trait Place {
    /// Tells devices apart.
    fn number(&self) -> usize;

    /// Room for so many bytes of elements of a dtype, at least one byte; what they are is open.
    fn allocate(&self, dtype: DType, size_bytes: usize) -> Result<Box<dyn Copy>, Error>;
}

/// Bytes on a device, freed when this goes.
pub(crate) trait Copy: Send + Sync {
    /// The device's `number`.
    fn place(&self) -> usize;
    /// What the device calls it by.
    fn handle(&self) -> usize;
    /// Replaces the bytes on the device.
    fn upload(&mut self, bytes: &[u8]) -> Result<(), Error>;
    /// Waits for what computes the bytes, and copies them.
    fn download(&self, bytes: &mut [u8]) -> Result<(), Error>;
}

/// The copy of a memory.
pub(crate) struct Remote {
    copy: Box<dyn Copy>,
    /// Whether the copy holds what the memory holds.
    is_current: bool,
    /// Whether the bytes at home are old.
    is_newer: bool,
}

impl Data {
    /// Whether the bytes at home are not those of the memory.
    pub(crate) fn is_away(&self) -> bool {
        self.remote.as_ref().is_some_and(|remote| remote.is_newer)
    }

    /// Sees to it that the bytes at home are those of the memory.
    pub(crate) fn bring_home(&mut self, dtype: DType) -> Result<(), Error> {
        if self.is_away() {
            // What others have of the bytes at home stays as it is.
            self.own(dtype, false)?;
        }
        if let Some(mut remote) = self.remote.take_if(|remote| remote.is_newer) {
            let brought = remote.copy.download(self.bytes_mut());
            remote.is_newer = brought.is_err();
            self.remote = Some(remote);
            brought?;
        }
        Ok(())
    }

    /// The bytes at home are about to change.
    pub(crate) fn forget_copy(&mut self) {
        if let Some(remote) = &mut self.remote {
            (remote.is_current, remote.is_newer) = (false, false);
        }
    }

    /// What the device calls the bytes by, which are there then.
    fn send_to(&mut self, place: &dyn Place, dtype: DType) -> Result<usize, Error> {
        if self.remote.as_ref().is_some_and(|remote| remote.copy.place() != place.number()) {
            self.bring_home(dtype)?;
            self.remote = None;
        }
        let mut remote = match self.remote.take() {
            Some(remote) => remote,
            None => {
                let copy = place.allocate(dtype, self.bytes().len().max(1))?;
                Remote { copy, is_current: false, is_newer: false }
            }
        };
        if !remote.is_current && self.is_touched() && !self.bytes().is_empty() {
            remote.copy.upload(self.bytes())?;
        }
        remote.is_current = true;
        let handle = remote.copy.handle();
        self.remote = Some(remote);
        Ok(handle)
    }
}

/// Checks and locks the memories, sends them to the device and lets it run on their handles.
pub(crate) fn run_on(
    place: &dyn Place,
    signature: &Signature,
    memories: &[&Memory],
    launch: impl FnOnce(&[usize]) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut locked = Locked::alone(signature, memories)?;
    let mut handles: SmallVec<[usize; 6]> = SmallVec::new();
    for (parameter, number) in signature.parameters.iter().zip(&locked.guard_of) {
        let Guard::Write(data) = &mut locked.guards[*number] else {
            unreachable!("all are locked for writing");
        };
        handles.push(data.send_to(place, parameter.dtype)?);
    }
    launch(&handles)?;
    for (parameter, number) in signature.parameters.iter().zip(&locked.guard_of) {
        if parameter.is_written
            && let Guard::Write(data) = &mut locked.guards[*number]
        {
            data.mark_written();
            if let Some(remote) = &mut data.remote {
                remote.is_newer = true;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::memory::Parameter;

    /// A device whose memory is a list of vectors; it counts copies there and back.
    struct Imagined {
        number: usize,
        state: Arc<Mutex<State>>,
    }

    #[derive(Default)]
    struct State {
        blocks: Vec<Vec<u8>>,
        uploads: usize,
        downloads: usize,
        fails: bool,
    }

    struct Held(usize, usize, Arc<Mutex<State>>);

    impl Place for Imagined {
        fn number(&self) -> usize {
            self.number
        }

        fn allocate(&self, _: DType, size_bytes: usize) -> Result<Box<dyn Copy>, Error> {
            let mut state = self.state.lock().unwrap();
            state.blocks.push(vec![0xee; size_bytes]);
            Ok(Box::new(Held(self.number, state.blocks.len() - 1, self.state.clone())))
        }
    }

    impl Copy for Held {
        fn place(&self) -> usize {
            self.0
        }

        fn handle(&self) -> usize {
            self.1
        }

        fn upload(&mut self, bytes: &[u8]) -> Result<(), Error> {
            let mut state = self.2.lock().unwrap();
            state.uploads += 1;
            state.blocks[self.1].copy_from_slice(bytes);
            Ok(())
        }

        fn download(&self, bytes: &mut [u8]) -> Result<(), Error> {
            let mut state = self.2.lock().unwrap();
            if state.fails {
                let (call, why) = ("download", "as was asked".into());
                return Err(Error::Driver { device: "imagined", call, why });
            }
            state.downloads += 1;
            bytes.copy_from_slice(&state.blocks[self.1]);
            Ok(())
        }
    }

    impl Imagined {
        fn new(number: usize) -> Imagined {
            Imagined { number, state: Arc::default() }
        }

        /// data0[i] = data1[i] + 1
        fn increment(&self, output: &Memory, input: &Memory) {
            let parameter = |slot| Parameter {
                slot,
                dtype: DType::U8,
                size_elements: 2,
                is_written: slot == 0,
            };
            let parameters = vec![parameter(0), parameter(1)];
            let signature = Signature { name: "E_2".into(), parameters };
            run_on(self, &signature, &[output, input], |handles| {
                let mut state = self.state.lock().unwrap();
                let sums = state.blocks[handles[1]].iter().map(|byte| byte + 1).collect();
                state.blocks[handles[0]] = sums;
                Ok(())
            })
            .unwrap();
        }

        fn copies(&self) -> (usize, usize) {
            let state = self.state.lock().unwrap();
            (state.uploads, state.downloads)
        }
    }

    #[test]
    fn bytes_travel_when_they_are_asked_for() {
        let device = Imagined::new(1);
        let first = Memory::from_bytes(DType::U8, &[1, 2]).unwrap();
        let [second, third] = [(); 2].map(|()| Memory::new(DType::U8, 2).unwrap());
        device.increment(&second, &first);
        device.increment(&third, &second);
        assert_eq!(device.copies(), (1, 0), "what is computed there stays there");
        assert_eq!(third.read().unwrap(), [3, 4]);
        assert_eq!(third.read().unwrap(), [3, 4]);
        assert_eq!(device.copies(), (1, 1));
        first.write(&[7, 8]).unwrap();
        device.increment(&second, &first);
        device.increment(&third, &second);
        assert_eq!(third.read().unwrap(), [9, 10]);
        assert_eq!(device.copies(), (2, 2));
        // To another device, by way of home.
        let other = Imagined::new(2);
        other.increment(&first, &third);
        other.increment(&second, &first);
        assert_eq!((device.copies(), other.copies()), ((2, 3), (3, 0)));
        device.increment(&third, &second);
        assert_eq!((device.copies(), other.copies()), ((4, 3), (3, 1)));
        assert_eq!(third.read().unwrap(), [12, 13]);
    }

    #[test]
    fn part_keeps_its_bytes_while_the_whole_changes_elsewhere() {
        let device = Imagined::new(1);
        let input = Memory::from_bytes(DType::U8, &[1, 2]).unwrap();
        let whole = Memory::new(DType::U8, 2).unwrap();
        device.increment(&whole, &input);
        assert!(!whole.is_at_home());
        let part = whole.part(0, 2).unwrap();
        assert_eq!(device.copies(), (1, 1), "what only a device has is brought home");
        assert!(part.is_at_home() && !whole.is_at_home());
        // The whole changes on the device, then the part does.
        device.increment(&whole, &part);
        assert_eq!((part.read().unwrap(), whole.read().unwrap()), (vec![2, 3], vec![3, 4]));
        device.increment(&part, &whole);
        assert_eq!((part.read().unwrap(), whole.read().unwrap()), (vec![4, 5], vec![3, 4]));
    }

    #[test]
    fn bytes_that_do_not_come_home_are_asked_for_again() {
        let device = Imagined::new(1);
        let input = Memory::from_bytes(DType::U8, &[1, 2]).unwrap();
        let output = Memory::from_bytes(DType::U8, &[8, 9]).unwrap();
        device.increment(&output, &input);
        device.state.lock().unwrap().fails = true;
        assert!(output.read().is_err());
        assert!(output.read().is_err(), "old bytes are not those of the memory");
        device.state.lock().unwrap().fails = false;
        assert_eq!(output.read().unwrap(), [2, 3]);
    }
}
