//! The checked interpreter: runs linear uops as they stand, on any machine, and reports what
//! other devices would pass over: indices out of bounds and reads of what nobody wrote.
//!
//! A kernel becomes a list of steps over 64-bit slots, one slot for each uop; constants lie in
//! their slots from the start. What a step computes is one pure function of `scalar`.

use std::sync::Arc;

use gradiff_graph::{Arg, DType, Instruction, Linear, Op};
use smallvec::SmallVec;

use crate::memory::{Guard, Locked, Memory, Parameter, Signature};
use crate::scalar::{self, Function};
use crate::{Device, Error, Executable};

/// The interpreter as a device; it needs nothing and keeps nothing.
pub(crate) struct Interpreter;

impl Device for Interpreter {
    fn name(&self) -> &'static str {
        "interp"
    }

    fn compile(&self, kernels: &[&Linear]) -> Result<Vec<Arc<dyn Executable>>, Error> {
        let compile = |kernel: &&Linear| {
            let program: Arc<dyn Executable> = Arc::new(Program::new(kernel)?);
            Ok(program)
        };
        kernels.iter().map(compile).collect()
    }

    fn describe(&self) -> String {
        "checked interpreter of linear uops: reports indices out of bounds and reads of elements \
         that were never written"
            .to_string()
    }
}

/// The slot number that stands for "no gate".
const NO_GATE: u32 = u32::MAX;

/// One thing to do. Numbers are those of slots, but for `target`, which is that of a step.
#[derive(Clone, Copy)]
enum Step {
    Alu { function: Function, to: u32, x: u32, y: u32, z: u32 },
    Copy { to: u32, from: u32 },
    Load { to: u32, access: Access },
    Store { from: u32, access: Access },
    Loop { counter: u32, end: u32, target: u32 },
    EndLoop { counter: u32, end: u32, target: u32 },
}

/// An element of a parameter.
#[derive(Clone, Copy)]
struct Access {
    index: u32,
    gate: u32,
    /// Its place among the signature's parameters.
    parameter: u16,
    dtype: DType,
    /// The uop, for messages.
    position: u32,
}

/// A kernel made ready.
struct Program {
    signature: Signature,
    steps: Vec<Step>,
    /// The slots as they are at the start.
    slots: Vec<u64>,
}

/// What `Program::new` knows half-way.
struct Builder<'a> {
    linear: &'a Linear,
    signature: Signature,
    steps: Vec<Step>,
    slots: Vec<u64>,
    /// For each uop the slot of its value: its own, or that of the variable it assigns to.
    slot_of: Vec<u32>,
    /// Steps that opened the loops that are open.
    open: SmallVec<[(u32, u32); 8]>,
}

impl Program {
    fn new(linear: &Linear) -> Result<Program, Error> {
        let count = linear.uops.len();
        let mut builder = Builder {
            linear,
            signature: Signature::of(linear)?,
            steps: Vec::with_capacity(count),
            slots: vec![0; count],
            slot_of: (0..count as u32).collect(),
            open: SmallVec::new(),
        };
        for position in 0..count {
            builder.uop(position)?;
        }
        if let Some((range, _)) = builder.open.last() {
            return Err(builder.malformed(*range as usize, "the loop is never closed"));
        }
        let Builder { signature, steps, slots, .. } = builder;
        Ok(Program { signature, steps, slots })
    }
}

impl Builder<'_> {
    fn malformed(&self, position: usize, what: &str) -> Error {
        Error::Malformed { kernel: self.linear.name.clone(), position, what: what.to_string() }
    }

    fn source(&self, uop: &Instruction, number: usize) -> u32 {
        uop.src.get(number).map_or(0, |source| self.slot_of[*source as usize])
    }

    fn uop(&mut self, position: usize) -> Result<(), Error> {
        let uop = &self.linear.uops[position];
        let to = position as u32;
        match (uop.op, &uop.arg) {
            (Op::Const, Arg::Const(value)) => {
                self.slots[position] = scalar::slot(value.dtype(), value.bits());
            }
            (Op::DefineGlobal | Op::Index | Op::Sink, _) => {}
            (Op::DefineAcc, _) => {
                let from = self.source(uop, 0);
                self.steps.push(Step::Copy { to, from });
            }
            (Op::Assign, _) => {
                let (variable, from) = (self.source(uop, 0), self.source(uop, 1));
                self.slot_of[position] = variable;
                self.steps.push(Step::Copy { to: variable, from });
            }
            (Op::Range, _) => {
                self.open.push((to, self.steps.len() as u32));
                let end = self.source(uop, 0);
                self.steps.push(Step::Loop { counter: to, end, target: 0 });
            }
            (Op::EndRange, _) => self.close_loop(position)?,
            (Op::Load, _) => {
                let access = self.access(position)?;
                self.steps.push(Step::Load { to, access });
            }
            (Op::Store, _) => {
                let access = self.access(position)?;
                self.steps.push(Step::Store { from: self.source(uop, 1), access });
            }
            (op, _) if op.is_elementwise() => {
                let source = if op == Op::Where { 1 } else { 0 };
                let from = self.linear.uops[uop.src[source] as usize].dtype;
                let function = scalar::function(op, from, uop.dtype);
                let function = function.ok_or_else(|| self.unsupported(position, from))?;
                let [x, y, z] = [0, 1, 2].map(|number| self.source(uop, number));
                self.steps.push(Step::Alu { function, to, x, y, z });
            }
            _ => return Err(self.unsupported(position, uop.dtype)),
        }
        Ok(())
    }

    fn unsupported(&self, position: usize, dtype: DType) -> Error {
        let (kernel, op) = (self.linear.name.clone(), self.linear.uops[position].op);
        Error::Unsupported { device: "interp", kernel, position, op, dtype }
    }

    fn close_loop(&mut self, position: usize) -> Result<(), Error> {
        let range = self.linear.uops[position].src[0];
        let Some((counter, start)) = self.open.pop().filter(|(counter, _)| *counter == range)
        else {
            return Err(self.malformed(position, "it closes a loop that is not the innermost"));
        };
        let after = self.steps.len() as u32 + 1;
        let Step::Loop { end, target, .. } = &mut self.steps[start as usize] else {
            return Err(self.malformed(position, "it closes what is no loop"));
        };
        *target = after;
        let end = *end;
        self.steps.push(Step::EndLoop { counter, end, target: start + 1 });
        Ok(())
    }

    fn access(&self, position: usize) -> Result<Access, Error> {
        let index = self.linear.uops[position].src[0];
        let address = &self.linear.uops[index as usize];
        let parameter = self.signature.parameter_of(self.linear, index);
        let parameter = parameter.and_then(|parameter| u16::try_from(parameter).ok());
        Ok(Access {
            index: self.source(address, 1),
            gate: if address.src.len() == 3 { self.source(address, 2) } else { NO_GATE },
            parameter: parameter.ok_or_else(|| self.malformed(position, "no such parameter"))?,
            dtype: address.dtype,
            position: position as u32,
        })
    }
}

impl Executable for Program {
    fn run(&self, memories: &[&Memory]) -> Result<(), Error> {
        let mut locked = Locked::new(&self.signature, memories)?;
        let guard_of = locked.guard_of.clone();
        let mut slots = self.slots.clone();
        let result = self.execute(&mut slots, &mut locked.guards, &guard_of);
        for guard in &mut locked.guards {
            if let Guard::Write(data) = guard {
                data.settle();
            }
        }
        result
    }
}

impl Program {
    fn execute(
        &self,
        slots: &mut [u64],
        guards: &mut [Guard<'_>],
        guard_of: &[usize],
    ) -> Result<(), Error> {
        let mut next = 0;
        while let Some(step) = self.steps.get(next) {
            next += 1;
            match *step {
                Step::Alu { function, to, x, y, z } => {
                    let [x, y, z] = [x, y, z].map(|slot| slots[slot as usize]);
                    slots[to as usize] = function(x, y, z);
                }
                Step::Copy { to, from } => slots[to as usize] = slots[from as usize],
                Step::Load { to, access } => {
                    let guard = &guards[guard_of[usize::from(access.parameter)]];
                    slots[to as usize] = self.load(slots, guard, access)?;
                }
                Step::Store { from, access } => {
                    let guard = &mut guards[guard_of[usize::from(access.parameter)]];
                    self.store(slots, guard, access, slots[from as usize])?;
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
            }
        }
        Ok(())
    }

    /// The element that an access touches, if it is within bounds; `None` if the gate is shut.
    #[inline]
    fn element(&self, slots: &[u64], access: Access) -> Result<Option<usize>, Error> {
        if access.gate != NO_GATE && slots[access.gate as usize] == 0 {
            return Ok(None);
        }
        let index = slots[access.index as usize] as i64;
        let size_elements = self.parameter(access).size_elements;
        if 0 <= index && index < size_elements {
            return Ok(Some(index as usize));
        }
        Err(Error::OutOfBounds {
            kernel: self.signature.name.clone(),
            position: access.position as usize,
            slot: self.parameter(access).slot,
            index,
            size_elements,
        })
    }

    fn parameter(&self, access: Access) -> &Parameter {
        &self.signature.parameters[usize::from(access.parameter)]
    }

    #[inline]
    fn load(&self, slots: &[u64], guard: &Guard<'_>, access: Access) -> Result<u64, Error> {
        let Some(element) = self.element(slots, access)? else { return Ok(0) };
        let data = match guard {
            Guard::Read(data) => &**data,
            Guard::Write(data) => &**data,
        };
        if data.written.as_ref().is_some_and(|written| !written[element]) {
            return Err(Error::Uninitialised {
                kernel: self.signature.name.clone(),
                position: access.position as usize,
                slot: self.parameter(access).slot,
                index: element as i64,
                size_elements: self.parameter(access).size_elements,
            });
        }
        let bytes = data.bytes();
        Ok(match access.dtype {
            DType::Void => 0,
            DType::Bool | DType::U8 => u64::from(bytes[element]),
            DType::I8 => bytes[element] as i8 as i64 as u64,
            DType::I16 => i16::from_le_bytes(at(bytes, element)) as i64 as u64,
            DType::U16 | DType::F16 | DType::BF16 => {
                u64::from(u16::from_le_bytes(at(bytes, element)))
            }
            DType::I32 => i32::from_le_bytes(at(bytes, element)) as i64 as u64,
            DType::U32 | DType::F32 => u64::from(u32::from_le_bytes(at(bytes, element))),
            DType::I64 | DType::U64 | DType::F64 => u64::from_le_bytes(at(bytes, element)),
        })
    }

    #[inline]
    fn store(
        &self,
        slots: &[u64],
        guard: &mut Guard<'_>,
        access: Access,
        value: u64,
    ) -> Result<(), Error> {
        let Some(element) = self.element(slots, access)? else { return Ok(()) };
        let Guard::Write(data) = guard else {
            unreachable!("a parameter that is stored to is locked for writing");
        };
        let (bytes, written) = data.parts_mut();
        let size = access.dtype.size_bytes();
        let place = &mut bytes[element * size..(element + 1) * size];
        match size {
            1 => place[0] = value as u8,
            2 => place.copy_from_slice(&(value as u16).to_le_bytes()),
            4 => place.copy_from_slice(&(value as u32).to_le_bytes()),
            _ => place.copy_from_slice(&value.to_le_bytes()[..size]),
        }
        if let Some(written) = written {
            written[element] = true;
        }
        Ok(())
    }
}

/// Element number `element` of `N` bytes.
fn at<const N: usize>(bytes: &[u8], element: usize) -> [u8; N] {
    let mut value = [0; N];
    value.copy_from_slice(&bytes[element * N..(element + 1) * N]);
    value
}
