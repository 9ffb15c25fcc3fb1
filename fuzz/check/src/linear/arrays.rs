//! The arrays that a kernel touches: bounds, alignment, what was written, and races.
//!
//! Groups run one after the other and so do the threads of a group, hence each pair of accesses
//! meets in some order. Of the accesses of an element it is enough to know the last writer and two
//! readers that are not ordered: a write that conflicts with any reader conflicts with one of them.

use gradiff::graph::{Arg, Constant, DType, Linear, Op};

use super::Rules;
use crate::stages::Elements;

/// The thread that accesses an element, and how many barriers its group has passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Who {
    pub(super) group: u32,
    pub(super) thread: u32,
    pub(super) epoch: u32,
}

impl Who {
    /// Whether nothing orders the accesses of the two.
    fn is_unordered(self, other: Who) -> bool {
        self.group != other.group || self.epoch == other.epoch && self.thread != other.thread
    }
}

/// The accesses of one element that matter.
#[derive(Clone, Copy, Default)]
struct Accesses {
    writer: Option<Who>,
    readers: [Option<Who>; 2],
}

impl Accesses {
    fn read(&mut self, who: Who) -> Result<(), Conflict> {
        if let Some(writer) = self.writer.filter(|writer| writer.is_unordered(who)) {
            return Err(Conflict { other: writer, has_written: true });
        }
        // An earlier read of the group is ordered before all that this one is ordered before.
        for reader in &mut self.readers {
            if reader.is_none_or(|reader| !reader.is_unordered(who)) {
                *reader = Some(who);
                break;
            }
        }
        Ok(())
    }

    fn write(&mut self, who: Who) -> Result<(), Conflict> {
        if let Some(writer) = self.writer.filter(|writer| writer.is_unordered(who)) {
            return Err(Conflict { other: writer, has_written: true });
        }
        let mut readers = self.readers.iter().flatten();
        if let Some(reader) = readers.find(|reader| reader.is_unordered(who)) {
            return Err(Conflict { other: *reader, has_written: false });
        }
        self.writer = Some(who);
        Ok(())
    }
}

/// An access that is not ordered against one that is being made.
struct Conflict {
    other: Who,
    has_written: bool,
}

/// One array.
struct Array {
    /// Its name in texts: `data0`, `local0`.
    name: String,
    /// The slot of a parameter; none for local memory.
    slot: Option<usize>,
    dtype: DType,
    /// How many elements the kernel says it has; the memory may have more.
    size: usize,
    elements: Elements,
    /// Of each element; empty if the kernel never stores to the array.
    accesses: Vec<Accesses>,
}

/// All arrays of a kernel.
pub(super) struct Arrays<'a> {
    list: Vec<Array>,
    rules: Option<&'a Rules>,
    /// A read of a local element that was not written. If another thread writes the element before
    /// the next barrier, it is a race instead.
    unwritten: Option<String>,
}

/// The arrays that a kernel defines, by position: of each the number in [`Arrays`].
pub(super) fn numbers(kernel: &Linear) -> Vec<Option<u16>> {
    let mut count = 0;
    let define = |op: Op| matches!(op, Op::DefineGlobal | Op::DefineLocal);
    let mut next = |op: Op| {
        define(op).then(|| {
            count += 1;
            count - 1
        })
    };
    kernel.uops.iter().map(|uop| next(uop.op)).collect()
}

impl<'a> Arrays<'a> {
    /// Takes the elements of the parameters.
    ///
    /// # Errors
    /// A parameter without memory, or with less than the kernel says.
    pub(super) fn new(
        kernel: &Linear,
        memories: &mut [Elements],
        rules: Option<&'a Rules>,
    ) -> Result<Arrays<'a>, String> {
        let stored = |at: usize| {
            kernel.uops.iter().filter(|uop| uop.op == Op::Store).any(|store| {
                let index = &kernel.uops[store.src[0] as usize];
                index.src[0] as usize == at
            })
        };
        let mut list = Vec::new();
        for (position, uop) in kernel.uops.iter().enumerate() {
            let (name, slot, size) = match &uop.arg {
                Arg::Global(global) if uop.op == Op::DefineGlobal => {
                    (format!("data{}", global.slot), Some(global.slot), global.size_elements)
                }
                Arg::Local(local) => (format!("local{}", local.number), None, local.size_elements),
                _ => continue,
            };
            let size = usize::try_from(size).map_err(|_| format!("{name} of {size} elements"))?;
            let elements = match slot {
                None => vec![None; size],
                Some(slot) => {
                    let held = memories.get_mut(slot).map(std::mem::take).unwrap_or_default();
                    if held.len() < size {
                        return Err(format!("{name} has {} elements, not {size}", held.len()));
                    }
                    held
                }
            };
            let count = if stored(position) { size } else { 0 };
            let accesses = vec![Accesses::default(); count];
            list.push(Array { name, slot, dtype: uop.dtype, size, elements, accesses });
        }
        Ok(Arrays { list, rules, unwritten: None })
    }

    /// Puts the elements of the parameters back.
    pub(super) fn give_back(&mut self, memories: &mut [Elements]) {
        for array in &mut self.list {
            if let Some(slot) = array.slot {
                memories[slot] = std::mem::take(&mut array.elements);
            }
        }
    }

    /// Another group is at work: local memory is another one.
    pub(super) fn enter_group(&mut self) {
        for array in self.list.iter_mut().filter(|array| array.slot.is_none()) {
            array.elements.fill(None);
            array.accesses.fill(Accesses::default());
        }
    }

    /// The threads of a group have met.
    ///
    /// # Errors
    /// A read of local memory that was not written.
    pub(super) fn meet(&mut self) -> Result<(), String> {
        self.unwritten.take().map_or(Ok(()), Err)
    }

    /// How many elements an array has.
    pub(super) fn size(&self, array: u16) -> usize {
        self.list[usize::from(array)].size
    }

    /// The name of an array in texts.
    pub(super) fn name(&self, array: u16) -> &str {
        &self.list[usize::from(array)].name
    }

    /// Whether an access of so many lanes from an element on may begin there.
    ///
    /// # Errors
    /// The target asks for a multiple of more bytes.
    pub(super) fn check_place(&self, array: u16, index: i64, lanes: usize) -> Result<(), String> {
        let Array { name, slot, dtype, .. } = &self.list[usize::from(array)];
        let Some(rules) = self.rules.filter(|_| 1 < lanes) else { return Ok(()) };
        let size = dtype.size_bytes() as i64;
        let asked = rules.alignment(size, lanes as i64);
        let address = index * size;
        if address % asked != 0 {
            return Err(format!(
                "{dtype}x{lanes} at element {index} of {name} is at byte {address}, and {} asks \
                 for a multiple of {asked}",
                rules.language
            ));
        }
        let given = if slot.is_some() { rules.global_alignment } else { rules.local_alignment };
        if given % asked != 0 {
            return Err(format!(
                "{dtype}x{lanes} of {name} needs a multiple of {asked} bytes, and the array begins \
                 at one of {given}"
            ));
        }
        Ok(())
    }

    /// The element that a thread loads.
    ///
    /// # Errors
    /// One out of bounds, a race, an element that was never written.
    pub(super) fn load(
        &mut self,
        array: u16,
        index: i64,
        who: Who,
    ) -> Result<Option<Constant>, String> {
        let Array { name, slot, size, elements, accesses, .. } = &mut self.list[usize::from(array)];
        let element = bound(name, index, *size)?;
        if let Some(accesses) = accesses.get_mut(element) {
            accesses.read(who).map_err(|other| race(name, index, who, "reads", other))?;
        }
        let found = elements[element];
        let is_refused = slot.is_none() || self.rules.is_some();
        if found.is_none() && is_refused {
            let problem = format!("element {index} of {name} was not written before it is read");
            if slot.is_some() {
                return Err(problem);
            }
            self.unwritten.get_or_insert(problem);
        }
        Ok(found)
    }

    /// Stores an element.
    ///
    /// # Errors
    /// One out of bounds, a race.
    pub(super) fn store(
        &mut self,
        array: u16,
        index: i64,
        value: Option<Constant>,
        who: Who,
    ) -> Result<(), String> {
        let Array { name, size, elements, accesses, .. } = &mut self.list[usize::from(array)];
        let element = bound(name, index, *size)?;
        if let Some(accesses) = accesses.get_mut(element) {
            accesses.write(who).map_err(|other| race(name, index, who, "writes", other))?;
        }
        elements[element] = value;
        Ok(())
    }

    /// Whether each element of the parameters that are stored to has a value at the end.
    ///
    /// # Errors
    /// One was never written.
    pub(super) fn check_written(&self) -> Result<(), String> {
        for Array { name, slot, size, elements, accesses, .. } in &self.list {
            let gap = elements.iter().take(*size).position(Option::is_none);
            if let (Some(_), Some(gap), false) = (slot, gap, accesses.is_empty()) {
                return Err(format!("element {gap} of {name} is never written"));
            }
        }
        Ok(())
    }
}

fn bound(name: &str, index: i64, size: usize) -> Result<usize, String> {
    let element = usize::try_from(index).ok().filter(|element| *element < size);
    element.ok_or_else(|| format!("element {index} of {name}, which has {size}"))
}

fn race(name: &str, index: i64, who: Who, does: &str, conflict: Conflict) -> String {
    let Conflict { other, has_written } = conflict;
    let did = if has_written { "wrote" } else { "read" };
    format!(
        "race: thread {} of group {} {does} element {index} of {name}, which thread {} of group {} \
         {did}, and nothing orders the two",
        who.thread, who.group, other.thread, other.group
    )
}
