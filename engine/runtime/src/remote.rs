//! Memory of devices that do not compute in host memory: copies, made and brought home when they
//! are asked for.
//!
//! A memory has one copy at most, on the device that used it last. The newest bytes are at home,
//! in the copy, or in both; each side is brought up to date when it is used, never earlier.
//!
//! A part of a memory whose bytes are on a device may be those very bytes. As at home, who writes
//! first takes bytes of its own, on the device.

use std::sync::Arc;

use gradiff_graph::DType;
use smallvec::SmallVec;

use crate::Error;
use crate::memory::{Data, Guard, Locked, Memory, Signature, is_worth_keeping, make_bools};

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
    /// So many of these very bytes from an offset on; `None` if the device lets none begin there.
    fn part(&self, offset_bytes: usize, size_bytes: usize) -> Result<Option<Box<dyn Copy>>, Error>;
    /// Other bytes of the device that hold what these do.
    fn duplicate(&self) -> Result<Box<dyn Copy>, Error>;
}

/// The copy of a memory.
pub(crate) struct Remote {
    copy: Box<dyn Copy>,
    /// Whether the copy holds what the memory holds.
    is_current: bool,
    /// Whether the bytes at home are old.
    is_newer: bool,
    /// Whoever has some of these very bytes holds on to it.
    holders: Arc<()>,
    /// How many bytes are kept for those of the copy.
    block_bytes: usize,
}

impl Remote {
    fn new(copy: Box<dyn Copy>, block_bytes: usize) -> Remote {
        let (is_current, is_newer) = (false, false);
        Remote { copy, is_current, is_newer, holders: Arc::default(), block_bytes }
    }

    fn is_shared(&self) -> bool {
        1 < Arc::strong_count(&self.holders)
    }
}

impl Data {
    /// So many of the bytes from an offset on where a device has them. `None` if none has, or if it
    /// lets no bytes begin there.
    pub(crate) fn remote_part(
        &self,
        offset_bytes: usize,
        size_bytes: usize,
    ) -> Result<Option<Remote>, Error> {
        let is_there = |remote: &&Remote| remote.is_current && self.is_written_throughout();
        let Some(remote) = self.remote.as_ref().filter(is_there) else { return Ok(None) };
        let Some(copy) = remote.copy.part(offset_bytes, size_bytes)? else { return Ok(None) };
        let mut part = match is_worth_keeping(remote.block_bytes, size_bytes) {
            true => {
                Remote { holders: remote.holders.clone(), ..Remote::new(copy, remote.block_bytes) }
            }
            false => Remote::new(copy.duplicate()?, size_bytes),
        };
        (part.is_current, part.is_newer) = (true, true);
        Ok(Some(part))
    }

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
            if dtype == DType::Bool {
                make_bools(self.bytes_mut());
            }
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

    /// What the device calls the bytes by, which are there then; its own, if they will be written.
    fn send_to(
        &mut self,
        place: &dyn Place,
        dtype: DType,
        is_written: bool,
    ) -> Result<usize, Error> {
        if self.remote.as_ref().is_some_and(|remote| remote.copy.place() != place.number()) {
            self.bring_home(dtype)?;
            self.remote = None;
        }
        let size_bytes = self.bytes().len();
        // What others have as well stays as it is.
        let is_own = |remote: &Remote| remote.is_current || !remote.is_shared();
        let mut remote = match self.remote.take().filter(is_own) {
            Some(remote) => remote,
            None => Remote::new(place.allocate(dtype, size_bytes.max(1))?, size_bytes),
        };
        if !remote.is_current && self.is_touched() && size_bytes != 0 {
            remote.copy.upload(self.bytes())?;
        } else if is_written && remote.is_shared() {
            match remote.copy.duplicate() {
                Ok(copy) => {
                    let is_newer = remote.is_newer;
                    remote = Remote { is_newer, ..Remote::new(copy, size_bytes) };
                }
                Err(error) => {
                    // It may be all there is.
                    self.remote = Some(remote);
                    return Err(error);
                }
            }
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
        handles.push(data.send_to(place, parameter.dtype, parameter.is_written)?);
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
    use std::sync::Mutex;

    use super::*;
    use crate::memory::Parameter;

    /// A device whose memory is a list of vectors; it counts copies there, back and within.
    struct Imagined {
        number: usize,
        state: Arc<Mutex<State>>,
    }

    #[derive(Default)]
    struct State {
        blocks: Vec<Vec<u8>>,
        uploads: usize,
        downloads: usize,
        duplicates: usize,
        fails: bool,
    }

    impl State {
        /// So many of the bytes of a handle.
        fn bytes(&mut self, handle: usize, size: usize) -> &mut [u8] {
            &mut self.blocks[handle / FAR][handle % FAR..][..size]
        }
    }

    /// A handle is the number of a block times this, and a place in it.
    const FAR: usize = 1000;
    /// Where parts may begin.
    const STEP: usize = 4;

    struct Held {
        place: usize,
        handle: usize,
        size: usize,
        state: Arc<Mutex<State>>,
    }

    impl Place for Imagined {
        fn number(&self) -> usize {
            self.number
        }

        fn allocate(&self, _: DType, size: usize) -> Result<Box<dyn Copy>, Error> {
            let mut state = self.state.lock().unwrap();
            state.blocks.push(vec![0xee; size]);
            let handle = (state.blocks.len() - 1) * FAR;
            Ok(Box::new(Held { place: self.number, handle, size, state: self.state.clone() }))
        }
    }

    impl Copy for Held {
        fn place(&self) -> usize {
            self.place
        }

        fn handle(&self) -> usize {
            self.handle
        }

        fn upload(&mut self, bytes: &[u8]) -> Result<(), Error> {
            let mut state = self.state.lock().unwrap();
            state.uploads += 1;
            state.bytes(self.handle, bytes.len()).copy_from_slice(bytes);
            Ok(())
        }

        fn download(&self, bytes: &mut [u8]) -> Result<(), Error> {
            let mut state = self.state.lock().unwrap();
            if state.fails {
                let (call, why) = ("download", "as was asked".into());
                return Err(Error::Driver { device: "imagined", call, why });
            }
            state.downloads += 1;
            bytes.copy_from_slice(state.bytes(self.handle, bytes.len()));
            Ok(())
        }

        fn part(&self, offset: usize, size: usize) -> Result<Option<Box<dyn Copy>>, Error> {
            let (handle, state) = (self.handle + offset, self.state.clone());
            let part =
                || -> Box<dyn Copy> { Box::new(Held { place: self.place, handle, size, state }) };
            Ok((handle % FAR).is_multiple_of(STEP).then(part))
        }

        fn duplicate(&self) -> Result<Box<dyn Copy>, Error> {
            let mut state = self.state.lock().unwrap();
            state.duplicates += 1;
            let bytes = state.bytes(self.handle, self.size).to_vec();
            state.blocks.push(bytes);
            let handle = (state.blocks.len() - 1) * FAR;
            let (place, size, state) = (self.place, self.size, self.state.clone());
            Ok(Box::new(Held { place, handle, size, state }))
        }
    }

    impl Imagined {
        fn new(number: usize) -> Imagined {
            Imagined { number, state: Arc::default() }
        }

        /// data0[i] = data1[i] + 1
        fn increment(&self, output: &Memory, input: &Memory) {
            let size = output.size_elements();
            let parameter = |slot| Parameter {
                slot,
                dtype: DType::U8,
                size_elements: size as i64,
                is_written: slot == 0,
            };
            let parameters = vec![parameter(0), parameter(1)];
            let signature = Signature { name: "E_2".into(), parameters };
            run_on(self, &signature, &[output, input], |handles| {
                let mut state = self.state.lock().unwrap();
                let sums: Vec<u8> =
                    state.bytes(handles[1], size).iter().map(|byte| byte + 1).collect();
                state.bytes(handles[0], size).copy_from_slice(&sums);
                Ok(())
            })
            .unwrap();
        }

        fn copies(&self) -> (usize, usize) {
            let state = self.state.lock().unwrap();
            (state.uploads, state.downloads)
        }

        fn duplicates(&self) -> usize {
            self.state.lock().unwrap().duplicates
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

    /// A memory whose bytes, 1 to 8, only the device has.
    fn away(device: &Imagined) -> Memory {
        let input = Memory::from_bytes(DType::U8, &[0, 1, 2, 3, 4, 5, 6, 7]).unwrap();
        let whole = Memory::new(DType::U8, 8).unwrap();
        device.increment(&whole, &input);
        whole
    }

    #[test]
    fn part_is_where_the_device_has_it() {
        let device = Imagined::new(1);
        let whole = away(&device);
        let part = whole.part_in_place(4, 4).unwrap().unwrap();
        let inner = part.part_in_place(0, 2).unwrap().unwrap();
        assert_eq!((device.copies(), device.duplicates()), ((1, 0), 0));
        assert!(part.is_initialised());
        assert_eq!(part.read().unwrap(), [5, 6, 7, 8]);
        assert_eq!(inner.read().unwrap(), [5, 6]);
        assert_eq!((device.copies(), device.duplicates()), ((1, 2), 0));
        // Where the device lets none begin, it is brought home if it must be.
        assert!(whole.part_in_place(3, 4).unwrap().is_none());
        assert_eq!(device.copies(), (1, 2));
        assert_eq!(whole.part(3, 4).unwrap().read().unwrap(), [4, 5, 6, 7]);
        assert_eq!(device.copies(), (1, 3));
        // A small one does not keep the whole.
        let small = whole.part_in_place(4, 1).unwrap().unwrap();
        assert_eq!((small.read().unwrap(), device.duplicates()), (vec![5], 1));
        assert!(whole.part_in_place(8, 0).unwrap().unwrap().is_initialised());
        assert!(whole.part_in_place(8, 1).is_err());
    }

    #[test]
    fn part_and_whole_each_keep_their_bytes_while_the_other_changes() {
        let device = Imagined::new(1);
        let whole = away(&device);
        let part = whole.part_in_place(4, 4).unwrap().unwrap();
        let other = whole.part_in_place(0, 4).unwrap().unwrap();
        // The part changes on the device, the whole at home.
        device.increment(&part, &other);
        assert_eq!(device.duplicates(), 1, "it has bytes of its own now");
        whole.write(&[9; 8]).unwrap();
        assert_eq!(other.read().unwrap(), [1, 2, 3, 4]);
        assert_eq!(part.read().unwrap(), [2, 3, 4, 5]);
        // What was written at home goes to bytes of its own.
        let wide = Memory::new(DType::U8, 8).unwrap();
        device.increment(&wide, &whole);
        assert_eq!((wide.read().unwrap(), whole.read().unwrap()), (vec![10; 8], vec![9; 8]));
        assert_eq!(other.read().unwrap(), [1, 2, 3, 4]);
        // Who is left alone writes in place.
        let before = device.duplicates();
        device.increment(&other, &part);
        assert_eq!((other.read().unwrap(), device.duplicates()), (vec![3, 4, 5, 6], before));
    }

    #[test]
    fn part_of_what_a_launch_did_not_write_is_as_unwritten() {
        let (device, whole) = (Imagined::new(1), Memory::new(DType::U8, 8).unwrap());
        let (slot, dtype, size_elements, is_written) = (0, DType::U8, 8, true);
        let parameters = vec![Parameter { slot, dtype, size_elements, is_written }];
        let signature = Signature { name: "E_8".into(), parameters };
        let refused =
            || Err(Error::Driver { device: "imagined", call: "launch", why: "no".into() });
        assert!(run_on(&device, &signature, &[&whole], |_| refused()).is_err());
        let part = whole.part_in_place(4, 4).unwrap().unwrap();
        assert!(!part.is_initialised() && part.read().is_err());
    }

    #[test]
    fn part_goes_to_another_device_by_way_of_home() {
        let (device, other) = (Imagined::new(1), Imagined::new(2));
        let part = away(&device).part_in_place(4, 4).unwrap().unwrap();
        let output = Memory::new(DType::U8, 4).unwrap();
        other.increment(&output, &part);
        assert_eq!(output.read().unwrap(), [6, 7, 8, 9]);
        assert_eq!(part.read().unwrap(), [5, 6, 7, 8]);
        assert_eq!((device.copies(), other.copies()), ((1, 1), (1, 1)));
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
