//! The checked interpreter: runs linear uops on any machine and reports errors that other devices
//! do not detect: indices out of bounds, reads of unwritten elements, races, divergent barriers.
//!
//! A kernel becomes a list of bytecode steps over 64-bit slots, one slot per lane of each uop;
//! constants are in their slots from the start. A step computes a pure function of `scalar`.
//!
//! A kernel with launched ranges is run group by group and thread by thread, and accesses of an
//! element are compared with those of other threads (`race`). A kernel with barriers is run from
//! barrier to barrier, each thread with slots of its own. A tensor core product synchronises
//! threads as well: each warp multiplies the fragments of its threads. Kernels without launched
//! ranges do not pay for this.

mod build;
mod group;
mod race;

use std::sync::Arc;

use gradiff_graph::verify::verify_kernel;
use gradiff_graph::{BoundedLinear, DType, Linear, Local, Target};

use crate::error::Array;
use crate::memory::{Guard, Locked, Memory, Parameter, Signature};
use crate::scalar::Function;
use crate::{Device, Error, Executable};
use build::{Barrier, Launch};
use group::Tracker;

/// Compiles a kernel that satisfies [`verify_kernel`].
fn compile(kernel: &Linear) -> Result<Arc<dyn Executable>, Error> {
    Ok(Arc::new(Program::new(kernel)?))
}

/// The device `interp`.
pub(crate) struct Interpreter;

impl Device for Interpreter {
    fn name(&self) -> &'static str {
        "interp"
    }

    fn compile(&self, kernels: &[&BoundedLinear]) -> Result<Vec<Arc<dyn Executable>>, Error> {
        kernels.iter().map(|kernel| compile(kernel)).collect()
    }

    /// Takes kernels without a proof of bounds, since each access is checked.
    fn compile_checked(&self, kernels: &[&Linear]) -> Result<Vec<Arc<dyn Executable>>, Error> {
        let verify_and_compile = |kernel: &&Linear| {
            let unproven = |why| Error::Unproven { kernel: kernel.name.clone(), why };
            verify_kernel(kernel).map_err(unproven)?;
            compile(kernel)
        };
        kernels.iter().map(verify_and_compile).collect()
    }

    /// Without vectors and groups, which are emulated more slowly than loops. Kernels for any other
    /// target run as well.
    fn target(&self) -> Target {
        Target::PLAIN
    }

    fn describe(&self) -> String {
        "checked interpreter of linear uops: reports indices out of bounds and reads of elements \
         that were never written, races and barriers in divergent flow"
            .to_string()
    }
}

/// The slot number that means "no gate".
const NO_GATE: u32 = u32::MAX;

/// A bytecode step. `target` and `join` are indices of steps, `number` is that of a barrier; all
/// other numbers are those of slots.
#[derive(Clone, Copy)]
enum Step {
    Alu {
        function: Function,
        to: u32,
        x: u32,
        y: u32,
        z: u32,
    },
    Copy {
        to: u32,
        from: u32,
    },
    Load {
        to: u32,
        access: Access,
    },
    Store {
        from: u32,
        access: Access,
    },
    LoadLocal {
        to: u32,
        access: Access,
    },
    StoreLocal {
        from: u32,
        access: Access,
    },
    Loop {
        counter: u32,
        end: u32,
        target: u32,
    },
    EndLoop {
        counter: u32,
        end: u32,
        target: u32,
    },
    /// Changes the current group or thread.
    Locate(Transition),
    /// Runs the steps up to `join` in each thread of the group.
    Fork {
        join: u32,
    },
    Join,
    Barrier {
        number: u32,
    },
}

/// The beginning or end of an iteration of launched ranges.
#[derive(Clone, Copy)]
enum Transition {
    EnterGroup,
    LeaveGroup,
    EnterThread,
    LeaveThread,
}

/// An access of an element of an array.
#[derive(Clone, Copy)]
struct Access {
    index: u32,
    gate: u32,
    /// The number of the parameter, or of the local array.
    array: u16,
    dtype: DType,
    /// The lane of a vector access, which is added to the index.
    lane: u8,
    /// The uop, for messages.
    position: u32,
}

/// A compiled kernel.
struct Program {
    signature: Signature,
    steps: Vec<Step>,
    /// The initial values of the slots.
    slots: Vec<u64>,
    locals: Vec<Local>,
    /// The launched ranges, if there are groups, threads or local arrays.
    launch: Option<Launch>,
    barriers: Vec<Barrier>,
}

/// The state of a run besides the slots.
struct Run<'a, 'b> {
    guards: &'a mut [Guard<'b>],
    guard_of: &'a [usize],
    tracker: Tracker,
}

impl Executable for Program {
    fn run(&self, memories: &[&Memory]) -> Result<(), Error> {
        let mut locked = Locked::new(&self.signature, memories)?;
        let guard_of = locked.guard_of.clone();
        for (parameter, guard) in self.signature.parameters.iter().zip(&guard_of) {
            if let Guard::Write(data) = &mut locked.guards[*guard] {
                data.track_elements(parameter.dtype)?;
            }
        }
        let mut slots = self.slots.clone();
        let tracker = Tracker::new(self);
        let mut run = Run { guards: &mut locked.guards, guard_of: &guard_of, tracker };
        let result = match self.launch {
            None => self.execute::<false>(&mut run, &mut slots, 0),
            Some(_) => self.execute::<true>(&mut run, &mut slots, 0),
        };
        for guard in &mut locked.guards {
            if let Guard::Write(data) = guard {
                data.compact_flags();
            }
        }
        result.map(drop)
    }
}

impl Program {
    /// Runs the steps from `from` to the next barrier, join or the end, and returns its index. If
    /// `IS_TRACKED`, accesses of elements are compared with those of other threads.
    fn execute<const IS_TRACKED: bool>(
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
                    slots[to as usize] = self.load_local(run, slots, access)?;
                }
                Step::StoreLocal { from, access } => {
                    self.store_local(run, slots, access, slots[from as usize])?;
                }
                Step::Locate(transition) => self.locate(run, slots, transition),
                Step::Fork { join } => {
                    self.fork(run, slots, next)?;
                    next = join as usize + 1;
                }
                Step::Join | Step::Barrier { .. } => return Ok(next - 1),
            }
        }
        Ok(next)
    }

    /// The index of the accessed element, after a bounds check; `None` if the gate is false.
    #[inline]
    fn element(
        &self,
        slots: &[u64],
        access: Access,
        size_elements: i64,
        array: impl Fn() -> Array,
    ) -> Result<Option<usize>, Error> {
        if access.gate != NO_GATE && slots[access.gate as usize] == 0 {
            return Ok(None);
        }
        let index = (slots[access.index as usize] as i64).wrapping_add(i64::from(access.lane));
        if 0 <= index && index < size_elements {
            return Ok(Some(index as usize));
        }
        let (kernel, position) = (self.signature.name.clone(), access.position as usize);
        Err(Error::OutOfBounds { kernel, position, array: array(), index, size_elements })
    }

    fn parameter(&self, access: Access) -> &Parameter {
        &self.signature.parameters[usize::from(access.array)]
    }

    fn uninitialised(
        &self,
        access: Access,
        array: Array,
        element: usize,
        size_elements: i64,
    ) -> Error {
        let (kernel, position) = (self.signature.name.clone(), access.position as usize);
        Error::Uninitialised { kernel, position, array, index: element as i64, size_elements }
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
            self.check_race(run, access, element, false)?;
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
            self.check_race(run, access, element, true)?;
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
}

/// The bytes of an element of `N` bytes.
fn element_bytes<const N: usize>(bytes: &[u8], element: usize) -> [u8; N] {
    let mut value = [0; N];
    value.copy_from_slice(&bytes[element * N..(element + 1) * N]);
    value
}
