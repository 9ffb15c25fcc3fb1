//! The arrays that a kernel accesses: bounds, alignment, unwritten elements, and races.
//!
//! Groups run one after the other and so do the threads of a group, so any two accesses occur in
//! some order. For each element it is enough to keep the last writer and two readers that are not
//! ordered: a write that conflicts with any reader conflicts with one of them.

use gradiff_graph::{Arg, Constant, DType, Linear, Op};

use super::Requirements;
use crate::Elements;

/// A thread that accesses an element, with the number of barriers that its group has passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ThreadId {
    pub(super) group: u32,
    pub(super) thread: u32,
    pub(super) epoch: u32,
}

impl ThreadId {
    /// Returns whether the accesses of two threads are unordered.
    fn is_unordered(self, other: ThreadId) -> bool {
        self.group != other.group || self.epoch == other.epoch && self.thread != other.thread
    }
}

/// The relevant accesses of an element.
#[derive(Clone, Copy, Default)]
struct Accesses {
    writer: Option<ThreadId>,
    readers: [Option<ThreadId>; 2],
}

impl Accesses {
    fn read(&mut self, id: ThreadId) -> Result<(), Conflict> {
        if let Some(writer) = self.writer.filter(|writer| writer.is_unordered(id)) {
            return Err(Conflict { earlier: writer, has_written: true });
        }
        // Accesses that are ordered after this read are also ordered after an earlier one of its
        // group, which it replaces.
        for reader in &mut self.readers {
            if reader.is_none_or(|reader| !reader.is_unordered(id)) {
                *reader = Some(id);
                break;
            }
        }
        Ok(())
    }

    fn write(&mut self, id: ThreadId) -> Result<(), Conflict> {
        if let Some(writer) = self.writer.filter(|writer| writer.is_unordered(id)) {
            return Err(Conflict { earlier: writer, has_written: true });
        }
        let mut readers = self.readers.iter().flatten();
        if let Some(reader) = readers.find(|reader| reader.is_unordered(id)) {
            return Err(Conflict { earlier: *reader, has_written: false });
        }
        self.writer = Some(id);
        Ok(())
    }
}

/// An earlier access that is unordered with the current one.
struct Conflict {
    earlier: ThreadId,
    has_written: bool,
}

/// An array of a kernel.
struct Array {
    /// Its name in texts: `data0`, `local0`.
    name: String,
    /// The slot of a parameter; none for local memory.
    slot: Option<usize>,
    dtype: DType,
    /// Number of elements that the kernel declares; the memory may have more.
    size: usize,
    elements: Elements,
    /// The accesses of each element; empty if the kernel never stores to the array.
    accesses: Vec<Accesses>,
}

/// All arrays of a kernel.
pub(super) struct Arrays<'a> {
    list: Vec<Array>,
    requirements: Option<&'a Requirements>,
    /// A read of a local element that was not written. If another thread writes the element before
    /// the next barrier, it is a race instead.
    unwritten: Option<String>,
}

/// For each uop, the number in [`Arrays`] of the array that it defines.
pub(super) fn numbers(kernel: &Linear) -> Vec<Option<u16>> {
    let mut count = 0;
    let is_definition = |op: Op| matches!(op, Op::DefineGlobal | Op::DefineLocal);
    let mut next = |op: Op| {
        is_definition(op).then(|| {
            count += 1;
            count - 1
        })
    };
    kernel.uops.iter().map(|uop| next(uop.op)).collect()
}

impl<'a> Arrays<'a> {
    /// Takes the elements of the parameters out of `memories`.
    ///
    /// # Errors
    /// A parameter without memory, or with fewer elements than the kernel declares.
    pub(super) fn new(
        kernel: &Linear,
        memories: &mut [Elements],
        requirements: Option<&'a Requirements>,
    ) -> Result<Arrays<'a>, String> {
        let is_stored = |at: usize| {
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
                    let elements = memories.get_mut(slot).map(std::mem::take).unwrap_or_default();
                    if elements.len() < size {
                        return Err(format!(
                            "{name} has {} elements, expected {size}",
                            elements.len()
                        ));
                    }
                    elements
                }
            };
            let count = if is_stored(position) { size } else { 0 };
            let accesses = vec![Accesses::default(); count];
            list.push(Array { name, slot, dtype: uop.dtype, size, elements, accesses });
        }
        Ok(Arrays { list, requirements, unwritten: None })
    }

    /// Puts the elements of the parameters back.
    pub(super) fn return_memories(&mut self, memories: &mut [Elements]) {
        for array in &mut self.list {
            if let Some(slot) = array.slot {
                memories[slot] = std::mem::take(&mut array.elements);
            }
        }
    }

    /// Begins another group, with local memory of its own.
    pub(super) fn enter_group(&mut self) {
        for array in self.list.iter_mut().filter(|array| array.slot.is_none()) {
            array.elements.fill(None);
            array.accesses.fill(Accesses::default());
        }
    }

    /// Ends an epoch: all threads of a group have reached a barrier or their end.
    ///
    /// # Errors
    /// A read of local memory that was not written.
    pub(super) fn synchronise(&mut self) -> Result<(), String> {
        self.unwritten.take().map_or(Ok(()), Err)
    }

    /// Number of elements of an array.
    pub(super) fn size(&self, array: u16) -> usize {
        self.list[usize::from(array)].size
    }

    /// The name of an array in texts.
    pub(super) fn name(&self, array: u16) -> &str {
        &self.list[usize::from(array)].name
    }

    /// Checks the alignment of an access of `lanes` elements from `index` on.
    ///
    /// # Errors
    /// The target requires a greater alignment.
    pub(super) fn check_alignment(
        &self,
        array: u16,
        index: i64,
        lanes: usize,
    ) -> Result<(), String> {
        let Array { name, slot, dtype, .. } = &self.list[usize::from(array)];
        let Some(requirements) = self.requirements.filter(|_| 1 < lanes) else { return Ok(()) };
        let size = dtype.size_bytes() as i64;
        let required = requirements.alignment.bytes(size, lanes as i64);
        let address = index * size;
        if address % required != 0 {
            return Err(format!(
                "{dtype}x{lanes} at element {index} of {name} is at byte {address}, but {} \
                 requires a multiple of {required}",
                requirements.language
            ));
        }
        let alignment = match slot {
            Some(_) => requirements.global_alignment,
            None => requirements.local_alignment,
        };
        if alignment % required != 0 {
            return Err(format!(
                "{dtype}x{lanes} of {name} requires a multiple of {required} bytes, but the array \
                 is aligned to {alignment}"
            ));
        }
        Ok(())
    }

    /// The element that a thread loads.
    ///
    /// # Errors
    /// An index out of bounds, a race, an element that was never written.
    pub(super) fn load(
        &mut self,
        array: u16,
        index: i64,
        id: ThreadId,
    ) -> Result<Option<Constant>, String> {
        let Array { name, slot, size, elements, accesses, .. } = &mut self.list[usize::from(array)];
        let element = bound(name, index, *size)?;
        if let Some(accesses) = accesses.get_mut(element) {
            accesses.read(id).map_err(|conflict| race(name, index, id, "reads", conflict))?;
        }
        let found = elements[element];
        let is_unwritten = match slot {
            // A written element may be undefined.
            None => accesses.get(element).is_none_or(|accesses| accesses.writer.is_none()),
            Some(_) => found.is_none() && self.requirements.is_some(),
        };
        if is_unwritten {
            let problem = format!("element {index} of {name} is read before it is written");
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
    /// An index out of bounds, a race.
    pub(super) fn store(
        &mut self,
        array: u16,
        index: i64,
        value: Option<Constant>,
        id: ThreadId,
    ) -> Result<(), String> {
        let Array { name, size, elements, accesses, .. } = &mut self.list[usize::from(array)];
        let element = bound(name, index, *size)?;
        if let Some(accesses) = accesses.get_mut(element) {
            accesses.write(id).map_err(|conflict| race(name, index, id, "writes", conflict))?;
        }
        elements[element] = value;
        Ok(())
    }

    /// Checks that each element of the parameters that are stored to has a value at the end.
    ///
    /// # Errors
    /// An element that was never written.
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
    element.ok_or_else(|| format!("element {index} of {name}, which has {size} elements"))
}

fn race(name: &str, index: i64, id: ThreadId, verb: &str, conflict: Conflict) -> String {
    let Conflict { earlier, has_written } = conflict;
    let earlier_verb = if has_written { "wrote" } else { "read" };
    format!(
        "race: thread {} of group {} {verb} element {index} of {name}, which thread {} of group {} \
         {earlier_verb}, and the two accesses are unordered",
        id.thread, id.group, earlier.thread, earlier.group
    )
}
