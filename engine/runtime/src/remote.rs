//! Devices that do not compute in host memory, and their copies of memories.
//!
//! A part of a memory whose bytes are on a device may share them. As on the host, shared bytes are
//! copied, on the device, before one of the memories that share them is written.

use std::sync::Arc;

use gradiff_graph::DType;

use crate::Error;

/// A device with memory of its own.
pub(crate) trait RemoteDevice {
    /// Returns the number that identifies the device.
    fn id(&self) -> usize;

    /// Allocates at least one byte for elements of a dtype; the content is unspecified.
    fn allocate(&self, dtype: DType, size_bytes: usize) -> Result<Box<dyn RemoteBuffer>, Error>;
}

/// Memory on a device, freed when this is dropped.
pub(crate) trait RemoteBuffer: Send + Sync {
    /// Returns the `id` of the device.
    fn device_id(&self) -> usize;
    /// Returns the device's handle of this buffer.
    fn handle(&self) -> usize;
    /// Replaces the bytes on the device.
    fn upload(&mut self, bytes: &[u8]) -> Result<(), Error>;
    /// Waits for pending kernels, and copies the bytes to the host.
    fn download(&self, bytes: &mut [u8]) -> Result<(), Error>;
    /// Returns a buffer that shares some of these bytes; `None` if a buffer of the device cannot
    /// begin at this offset.
    fn part(
        &self,
        offset_bytes: usize,
        size_bytes: usize,
    ) -> Result<Option<Box<dyn RemoteBuffer>>, Error>;
    /// Copies the buffer on the device.
    fn duplicate(&self) -> Result<Box<dyn RemoteBuffer>, Error>;
}

/// The copy of a memory on a device.
pub(crate) struct RemoteCopy {
    pub(crate) buffer: Box<dyn RemoteBuffer>,
    /// True if the bytes on the device are those of the memory.
    pub(crate) is_current: bool,
    /// True if the bytes on the host are out of date.
    pub(crate) is_host_stale: bool,
    /// One reference for each copy that shares these bytes on the device; only their number
    /// matters.
    pub(crate) sharers: Arc<()>,
    /// The size of the allocation that contains the buffer.
    pub(crate) block_bytes: usize,
}

impl RemoteCopy {
    pub(crate) fn new(buffer: Box<dyn RemoteBuffer>, block_bytes: usize) -> RemoteCopy {
        let (is_current, is_host_stale) = (false, false);
        RemoteCopy { buffer, is_current, is_host_stale, sharers: Arc::default(), block_bytes }
    }

    pub(crate) fn is_shared(&self) -> bool {
        1 < Arc::strong_count(&self.sharers)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::locked::run_on;
    use crate::memory::Memory;
    use crate::signature::{Parameter, Signature};

    /// A device whose memory is a list of vectors. It counts uploads, downloads and duplicates.
    struct Fake {
        id: usize,
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
        /// The first `size` bytes of a handle.
        fn bytes(&mut self, handle: usize, size: usize) -> &mut [u8] {
            &mut self.blocks[handle / BLOCK][handle % BLOCK..][..size]
        }
    }

    /// The handle of a buffer is the number of its block times this, plus its offset in the block.
    const BLOCK: usize = 1000;
    /// The alignment of parts.
    const PART_ALIGNMENT: usize = 4;

    fn refusal(call: &'static str) -> Error {
        Error::Driver { device: "fake", call, why: "as requested".into() }
    }

    struct FakeBuffer {
        device_id: usize,
        handle: usize,
        size: usize,
        state: Arc<Mutex<State>>,
    }

    impl RemoteDevice for Fake {
        fn id(&self) -> usize {
            self.id
        }

        fn allocate(&self, _: DType, size: usize) -> Result<Box<dyn RemoteBuffer>, Error> {
            let mut state = self.state.lock().unwrap();
            state.blocks.push(vec![0xee; size]);
            let handle = (state.blocks.len() - 1) * BLOCK;
            let (device_id, state) = (self.id, self.state.clone());
            Ok(Box::new(FakeBuffer { device_id, handle, size, state }))
        }
    }

    impl RemoteBuffer for FakeBuffer {
        fn device_id(&self) -> usize {
            self.device_id
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
                return Err(refusal("download"));
            }
            state.downloads += 1;
            bytes.copy_from_slice(state.bytes(self.handle, bytes.len()));
            Ok(())
        }

        fn part(&self, offset: usize, size: usize) -> Result<Option<Box<dyn RemoteBuffer>>, Error> {
            let (handle, state) = (self.handle + offset, self.state.clone());
            let device_id = self.device_id;
            let part = || -> Box<dyn RemoteBuffer> {
                Box::new(FakeBuffer { device_id, handle, size, state })
            };
            Ok((handle % BLOCK).is_multiple_of(PART_ALIGNMENT).then(part))
        }

        fn duplicate(&self) -> Result<Box<dyn RemoteBuffer>, Error> {
            let mut state = self.state.lock().unwrap();
            state.duplicates += 1;
            let bytes = state.bytes(self.handle, self.size).to_vec();
            state.blocks.push(bytes);
            let handle = (state.blocks.len() - 1) * BLOCK;
            let (device_id, size, state) = (self.device_id, self.size, self.state.clone());
            Ok(Box::new(FakeBuffer { device_id, handle, size, state }))
        }
    }

    impl Fake {
        fn new(id: usize) -> Fake {
            Fake { id, state: Arc::default() }
        }

        /// Runs the kernel `output[i] = input[i] + 1`.
        fn increment(&self, output: &Memory, input: &Memory) {
            self.increment_first(output.size_elements(), output, input).unwrap();
        }

        /// Runs that kernel, which fails after `count` elements unless these are all.
        fn increment_first(
            &self,
            count: usize,
            output: &Memory,
            input: &Memory,
        ) -> Result<(), Error> {
            let size = output.size_elements();
            let parameter = |slot| Parameter {
                slot,
                dtype: DType::U8,
                size_elements: size as i64,
                is_read: slot != 0,
                is_written: slot == 0,
            };
            let parameters = vec![parameter(0), parameter(1)];
            let signature = Signature { name: "E_2".into(), parameters };
            run_on(self, &signature, &[output, input], |handles| {
                let mut state = self.state.lock().unwrap();
                let sums: Vec<u8> =
                    state.bytes(handles[1], count).iter().map(|byte| byte + 1).collect();
                state.bytes(handles[0], count).copy_from_slice(&sums);
                match count == size {
                    true => Ok(()),
                    false => Err(refusal("launch")),
                }
            })
        }

        /// The numbers of uploads and downloads.
        fn transfers(&self) -> (usize, usize) {
            let state = self.state.lock().unwrap();
            (state.uploads, state.downloads)
        }

        fn duplicates(&self) -> usize {
            self.state.lock().unwrap().duplicates
        }
    }

    #[test]
    fn bytes_are_copied_on_demand() {
        let device = Fake::new(1);
        let first = Memory::from_bytes(DType::U8, &[1, 2]).unwrap();
        let [second, third] = [(); 2].map(|()| Memory::new(DType::U8, 2).unwrap());
        device.increment(&second, &first);
        device.increment(&third, &second);
        assert_eq!(device.transfers(), (1, 0), "results stay on the device");
        assert_eq!(third.read().unwrap(), [3, 4]);
        assert_eq!(third.read().unwrap(), [3, 4]);
        assert_eq!(device.transfers(), (1, 1));
        first.write(&[7, 8]).unwrap();
        device.increment(&second, &first);
        device.increment(&third, &second);
        assert_eq!(third.read().unwrap(), [9, 10]);
        assert_eq!(device.transfers(), (2, 2));
        // Bytes move to another device by way of the host.
        let second_device = Fake::new(2);
        second_device.increment(&first, &third);
        second_device.increment(&second, &first);
        assert_eq!((device.transfers(), second_device.transfers()), ((2, 3), (3, 0)));
        device.increment(&third, &second);
        assert_eq!((device.transfers(), second_device.transfers()), ((4, 3), (3, 1)));
        assert_eq!(third.read().unwrap(), [12, 13]);
    }

    /// A memory with the bytes 1 to 8, which only the device has.
    fn memory_on(device: &Fake) -> Memory {
        let input = Memory::from_bytes(DType::U8, &[0, 1, 2, 3, 4, 5, 6, 7]).unwrap();
        let whole = Memory::new(DType::U8, 8).unwrap();
        device.increment(&whole, &input);
        whole
    }

    #[test]
    fn part_shares_bytes_on_the_device() {
        let device = Fake::new(1);
        let whole = memory_on(&device);
        let part = whole.part_in_place(4, 4).unwrap().unwrap();
        let inner = part.part_in_place(0, 2).unwrap().unwrap();
        assert_eq!((device.transfers(), device.duplicates()), ((1, 0), 0));
        assert!(part.is_initialised());
        assert_eq!(part.read().unwrap(), [5, 6, 7, 8]);
        assert_eq!(inner.read().unwrap(), [5, 6]);
        assert_eq!((device.transfers(), device.duplicates()), ((1, 2), 0));
        // A part that is not aligned is copied to the host if necessary.
        assert!(whole.part_in_place(3, 4).unwrap().is_none());
        assert_eq!(device.transfers(), (1, 2));
        assert_eq!(whole.part(3, 4).unwrap().read().unwrap(), [4, 5, 6, 7]);
        assert_eq!(device.transfers(), (1, 3));
        // A small part is duplicated, so that it does not keep the whole memory alive.
        let small = whole.part_in_place(4, 1).unwrap().unwrap();
        assert_eq!((small.read().unwrap(), device.duplicates()), (vec![5], 1));
        assert!(whole.part_in_place(8, 0).unwrap().unwrap().is_initialised());
        assert!(whole.part_in_place(8, 1).is_err());
    }

    #[test]
    fn temporary_parts_are_of_the_bytes_that_a_device_has() {
        let device = Fake::new(1);
        let given = Memory::from_bytes(DType::U8, &[0, 1, 2, 3, 4, 5, 6, 7]).unwrap();
        // They are on the host: a part would be uploaded for each kernel.
        assert!(given.temporary_part(4, 4, true).unwrap().is_none());
        let output = Memory::new(DType::U8, 8).unwrap();
        device.increment(&output, &given);
        for _ in 0..3 {
            let part = given.temporary_part(4, 4, true).unwrap().unwrap();
            device.increment(&Memory::new(DType::U8, 4).unwrap(), &part);
        }
        assert_eq!(device.transfers(), (1, 0));
        // Those that the device alone has are no parts for kernels on the host.
        assert!(output.temporary_part(0, 4, false).unwrap().is_none());
        assert!(output.temporary_part(3, 4, true).unwrap().is_none(), "not aligned");
        assert!(output.temporary_part(0, 0, true).unwrap().is_none());
        assert!(output.temporary_part(8, 1, true).is_err());
        let part = output.temporary_part(4, 4, true).unwrap().unwrap();
        output.write(&[9; 8]).unwrap();
        assert_eq!(part.read().unwrap(), [5, 6, 7, 8]);
    }

    #[test]
    fn write_does_not_change_memories_that_share_bytes() {
        let device = Fake::new(1);
        let whole = memory_on(&device);
        let upper = whole.part_in_place(4, 4).unwrap().unwrap();
        let lower = whole.part_in_place(0, 4).unwrap().unwrap();
        // The upper part is written on the device, the whole memory on the host.
        device.increment(&upper, &lower);
        assert_eq!(device.duplicates(), 1, "the upper part shares no bytes now");
        whole.write(&[9; 8]).unwrap();
        assert_eq!(lower.read().unwrap(), [1, 2, 3, 4]);
        assert_eq!(upper.read().unwrap(), [2, 3, 4, 5]);
        // Bytes written on the host are uploaded to a new buffer.
        let wide = Memory::new(DType::U8, 8).unwrap();
        device.increment(&wide, &whole);
        assert_eq!((wide.read().unwrap(), whole.read().unwrap()), (vec![10; 8], vec![9; 8]));
        assert_eq!(lower.read().unwrap(), [1, 2, 3, 4]);
        // A buffer that shares no bytes any more is written in place.
        let before = device.duplicates();
        device.increment(&lower, &upper);
        assert_eq!((lower.read().unwrap(), device.duplicates()), (vec![3, 4, 5, 6], before));
    }

    #[test]
    fn part_of_memory_after_a_failed_launch_is_unwritten() {
        let (device, whole) = (Fake::new(1), Memory::new(DType::U8, 8).unwrap());
        let (slot, dtype, size_elements) = (0, DType::U8, 8);
        let (is_read, is_written) = (false, true);
        let parameters = vec![Parameter { slot, dtype, size_elements, is_read, is_written }];
        let signature = Signature { name: "E_8".into(), parameters };
        assert!(run_on(&device, &signature, &[&whole], |_| Err(refusal("launch"))).is_err());
        let part = whole.part_in_place(4, 4).unwrap().unwrap();
        assert!(!part.is_initialised() && part.read().is_err());
    }

    #[test]
    fn part_moves_to_another_device_by_way_of_the_host() {
        let (device, second_device) = (Fake::new(1), Fake::new(2));
        let part = memory_on(&device).part_in_place(4, 4).unwrap().unwrap();
        let output = Memory::new(DType::U8, 4).unwrap();
        second_device.increment(&output, &part);
        assert_eq!(output.read().unwrap(), [6, 7, 8, 9]);
        assert_eq!(part.read().unwrap(), [5, 6, 7, 8]);
        assert_eq!((device.transfers(), second_device.transfers()), ((1, 1), (1, 1)));
    }

    #[test]
    fn failed_launch_does_not_change_memories() {
        let device = Fake::new(1);
        let input = Memory::from_bytes(DType::U8, &[1, 2]).unwrap();
        let output = Memory::from_bytes(DType::U8, &[7, 8]).unwrap();
        let next = Memory::new(DType::U8, 2).unwrap();
        assert!(device.increment_first(1, &output, &input).is_err());
        device.increment(&next, &output);
        assert_eq!((output.read().unwrap(), next.read().unwrap()), (vec![7, 8], vec![8, 9]));
        // If only the device has the bytes, what is left of them is copied to the host.
        device.increment(&output, &input);
        assert!(device.increment_first(1, &output, &next).is_err());
        assert_eq!(output.read().unwrap(), [9, 3]);
    }

    #[test]
    fn empty_memory_is_not_copied() {
        let device = Fake::new(1);
        let [output, input] = [(); 2].map(|()| Memory::new(DType::U8, 0).unwrap());
        device.increment(&output, &input);
        assert!(output.read().unwrap().is_empty());
        assert_eq!(device.transfers(), (0, 0));
    }

    #[test]
    fn failed_download_is_repeated() {
        let device = Fake::new(1);
        let input = Memory::from_bytes(DType::U8, &[1, 2]).unwrap();
        let output = Memory::from_bytes(DType::U8, &[8, 9]).unwrap();
        device.increment(&output, &input);
        device.state.lock().unwrap().fails = true;
        assert!(output.read().is_err());
        assert!(output.read().is_err(), "the stale bytes are not returned");
        device.state.lock().unwrap().fails = false;
        assert_eq!(output.read().unwrap(), [2, 3]);
    }
}
