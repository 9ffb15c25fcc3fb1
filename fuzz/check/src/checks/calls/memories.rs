//! Memories against plain lists of bytes, and launches of kernels with wrong memories.
//!
//! Memories are made, written, read, cut into parts and copied by kernels, while a model holds the
//! expected value of each byte. A launch with too few memories, with one of another dtype, with one
//! that is too short, or with the written one twice is refused, and leaves all memories unchanged.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use gradiff::graph::{
    Arg, Axis, AxisKind, BoundedLinear, Constant, DType, Global, Instruction, Linear, Op,
};
use gradiff::runtime::{Error, Executable, Memory, device};

use super::Draw;
use crate::backends::refusal::Refusal;
use crate::checks::kernels::{Style, drawn, open};

/// Counts of elements around the ends of cache lines, and large ones, whose memory is mapped from
/// the system and reused.
const COUNTS: [usize; 14] = [0, 1, 2, 3, 5, 7, 15, 16, 17, 32, 33, 64, 100, 129];
const LARGE: [usize; 3] = [131_071, 131_072, 140_000];
/// Number of memories at a time, and of changes of them.
const MEMORIES: usize = 4;
const CHANGES: usize = 8;

/// Alignment of memories in bytes, and the share of a block below which a part of it is copied, as
/// `Memory::part` promises.
const ALIGNMENT: usize = 64;
const SHARED_RATIO: usize = 4;

/// A memory and its model: its bytes, `None` where nothing was written.
struct Modelled {
    memory: Memory,
    bytes: Vec<Option<u8>>,
    /// True if anything was written.
    is_written: bool,
    /// True if it may keep a block of any size.
    is_temporary: bool,
}

impl Modelled {
    fn dtype(&self) -> DType {
        self.memory.dtype()
    }

    fn count(&self) -> usize {
        self.bytes.len() / self.dtype().size_bytes()
    }

    /// Compares the memory with its model.
    fn check(&self) -> Result<(), String> {
        let (dtype, count) = (self.dtype(), self.count());
        let label = format!("a memory of {count} {dtype}");
        if self.memory.size_elements() != count {
            return Err(format!("{label} claims {} elements", self.memory.size_elements()));
        }
        // Blocks are rounded up, by less than to twice their size if they are larger than a line.
        let ((offset, block), size) = (self.memory.block(), self.bytes.len());
        let is_small = block <= (SHARED_RATIO * size).max(ALIGNMENT);
        let is_kept = offset + size <= block && (is_small || self.is_temporary);
        if !offset.is_multiple_of(ALIGNMENT) || !is_kept {
            return Err(format!("{label} is at byte {offset} of a block of {block} bytes"));
        }
        let is_whole = self.bytes.iter().all(Option::is_some);
        if is_whole && !self.memory.is_initialised() {
            return Err(format!("{label}, written as a whole, counts as not initialised"));
        }
        if !self.is_written && count != 0 {
            return match self.memory.read() {
                Err(Error::Unwritten { .. }) if !self.memory.is_initialised() => Ok(()),
                found => Err(format!("{label}, never written, is read as {found:?}")),
            };
        }
        let found = self.memory.read().map_err(|error| format!("{label}: {error}"))?;
        let is_right = |(found, wanted): (&u8, &Option<u8>)| match wanted {
            Some(wanted) => found == wanted,
            None => dtype != DType::Bool || *found <= 1,
        };
        let wrong = found.iter().zip(&self.bytes).position(|pair| !is_right(pair));
        match wrong {
            Some(at) => {
                Err(format!("{label}: byte {at} is {}, expected {:?}", found[at], self.bytes[at]))
            }
            None if found.len() != self.bytes.len() => {
                Err(format!("{label} is read as {} bytes", found.len()))
            }
            None => Ok(()),
        }
    }
}

/// Changes drawn memories, and checks all of them after each change; checks the check of freed
/// memory.
pub(super) fn memories(draw: &mut Draw) -> Result<(), String> {
    if !gradiff::runtime::finds_damage() {
        return Err("a write to freed memory is not found, or a block is not released".to_string());
    }
    // Most memories have the same dtype, so that they can be copied.
    let dtype = dtype(draw);
    let mut pool: Vec<Modelled> = Vec::new();
    for _ in 0..CHANGES {
        let change = draw.below(9);
        let new_dtype = if draw.one_in(4) { self::dtype(draw) } else { dtype };
        let label = match change {
            _ if pool.is_empty() => fresh(draw, new_dtype, &mut pool)?,
            0 => fresh(draw, new_dtype, &mut pool)?,
            1 => from_bytes(draw, new_dtype, &mut pool)?,
            2 | 3 => write(draw, &mut pool)?,
            4 | 5 => take_part(draw, &mut pool)?,
            6 => {
                let at = draw.below(pool.len());
                drop(pool.swap_remove(at));
                "a memory is dropped"
            }
            _ => copy(draw, &mut pool)?,
        };
        if MEMORIES < pool.len() {
            drop(pool.remove(0));
        }
        pool.iter()
            .try_for_each(Modelled::check)
            .map_err(|problem| format!("{label}: {problem}"))?;
    }
    Ok(())
}

fn dtype(draw: &mut Draw) -> DType {
    let dtypes: Vec<DType> = DType::ALL.into_iter().filter(|dtype| *dtype != DType::Void).collect();
    if draw.one_in(3) { DType::Bool } else { draw.pick(&dtypes) }
}

fn count(draw: &mut Draw) -> usize {
    if draw.one_in(24) { draw.pick(&LARGE) } else { draw.pick(&COUNTS) }
}

fn bytes(draw: &mut Draw, count: usize) -> Vec<u8> {
    let mut bits = draw.bits();
    let byte = |_| {
        bits = bits.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (bits >> 40) as u8 & (bits >> 50) as u8
    };
    (0..count).map(byte).collect()
}

/// The bytes of a memory after a write: a bool is true unless its byte is 0.
fn stored_bytes(dtype: DType, bytes: &[u8]) -> Vec<Option<u8>> {
    let stored = |byte: &u8| match dtype {
        DType::Bool => (*byte != 0).into(),
        _ => *byte,
    };
    bytes.iter().map(|byte| Some(stored(byte))).collect()
}

/// Checks that a call was refused for the memory.
fn check_refused<T>(label: &str, found: Result<T, Error>) -> Result<(), String> {
    match found {
        Err(Error::Memory { .. }) => Ok(()),
        Err(error) => Err(format!("{label} is refused with: {error}")),
        Ok(_) => Err(format!("{label} must be refused")),
    }
}

fn fresh(draw: &mut Draw, dtype: DType, pool: &mut Vec<Modelled>) -> Result<&'static str, String> {
    if draw.one_in(12) {
        let count = draw.pick(&[usize::MAX, 1 << 60, usize::MAX / 8 + 1]);
        check_refused(&format!("{count} elements of {dtype}"), Memory::new(dtype, count))?;
    }
    let count = count(draw);
    let memory = Memory::new(dtype, count).map_err(|error| error.to_string())?;
    let bytes = vec![None; count * dtype.size_bytes()];
    pool.push(Modelled { memory, bytes, is_written: false, is_temporary: false });
    Ok("a memory is made")
}

fn from_bytes(
    draw: &mut Draw,
    dtype: DType,
    pool: &mut Vec<Modelled>,
) -> Result<&'static str, String> {
    let size = count(draw) * dtype.size_bytes();
    let bytes = bytes(draw, size);
    if 1 < dtype.size_bytes() && draw.one_in(3) {
        let longer = [&bytes[..], &[1]].concat();
        check_refused("a memory with a part of an element", Memory::from_bytes(dtype, &longer))?;
    }
    let memory = Memory::from_bytes(dtype, &bytes).map_err(|error| error.to_string())?;
    let bytes = stored_bytes(dtype, &bytes);
    pool.push(Modelled { memory, bytes, is_written: true, is_temporary: false });
    Ok("a memory is made of bytes")
}

fn write(draw: &mut Draw, pool: &mut [Modelled]) -> Result<&'static str, String> {
    let at = draw.below(pool.len());
    let target = &mut pool[at];
    let bytes = bytes(draw, target.bytes.len());
    if draw.one_in(3) {
        let longer = [&bytes[..], &[1]].concat();
        check_refused("a write of one byte too many", target.memory.write(&longer))?;
        if let Some((_, shorter)) = bytes.split_first() {
            check_refused("a write of one byte too few", target.memory.write(shorter))?;
        }
        return Ok("writes are refused");
    }
    target.memory.write(&bytes).map_err(|error| error.to_string())?;
    (target.bytes, target.is_written) = (stored_bytes(target.dtype(), &bytes), true);
    Ok("a memory is written")
}

fn take_part(draw: &mut Draw, pool: &mut Vec<Modelled>) -> Result<&'static str, String> {
    let whole = &pool[draw.below(pool.len())];
    let (count, size) = (whole.count(), whole.dtype().size_bytes());
    if draw.one_in(4) {
        for (first, size) in [(0, count + 1), (count, 1), (count + 1, 0), (1, usize::MAX)] {
            let label =
                format!("a part of a memory of {count} elements, {size} of them from {first} on");
            check_refused(&label, whole.memory.part(first, size))?;
            check_refused(&label, whole.memory.part_in_place(first, size))?;
        }
    }
    // Parts at multiples of 64 bytes share the bytes, others copy them.
    let alignment = if draw.one_in(2) { 64usize.div_ceil(size) } else { 1 };
    let first = draw.below(count / alignment + 1) * alignment;
    let taken = match draw.below(3) {
        0 => count - first,
        _ => draw.below(count - first + 1),
    };
    let is_temporary = draw.one_in(3);
    let memory = match draw.below(2) {
        _ if is_temporary => {
            let label = "a temporary part of";
            check_refused(label, whole.memory.temporary_part(first, count - first + 1, false))?;
            let is_none = taken == 0 || !whole.memory.is_initialised();
            match (whole.memory.temporary_part(first, taken, false), is_none) {
                (Ok(None), true) => return Ok("there is no temporary part"),
                (Ok(Some(part)), false) => Ok(part),
                (found, _) => return Err(format!("{label} {count} elements is {found:?}")),
            }
        }
        0 => whole.memory.part(first, taken),
        _ => {
            whole.memory.part_in_place(first, taken).map(|part| part.expect("it is in host memory"))
        }
    };
    let memory = memory.map_err(|error| error.to_string())?;
    let (offset, block) = whole.memory.block();
    let is_aligned = (first * size).is_multiple_of(ALIGNMENT);
    if is_temporary && is_aligned && memory.block() != (offset + first * size, block) {
        return Err("an aligned temporary part does not share the bytes".to_string());
    }
    let bytes = whole.bytes[first * size..][..taken * size].to_vec();
    // A part of which no element was written does not count as written, whatever the whole is.
    let is_written = whole.is_written && bytes.iter().any(Option::is_some);
    if is_written || !whole.is_written || taken == 0 {
        pool.push(Modelled { memory, bytes, is_written, is_temporary });
    }
    Ok("a part is taken")
}

/// A kernel that copies `count` elements from its second array to its first.
fn copy_kernel(dtype: DType, count: usize) -> Result<BoundedLinear, String> {
    let global = |slot| Arg::Global(Global { slot, size_elements: count as i64 });
    let axis = Arg::Axis(Axis { kind: AxisKind::Loop, number: 0 });
    let end = Arg::Const(Constant::int(DType::I32, count as i128));
    let uops = vec![
        Instruction::new(Op::DefineGlobal, dtype, [], global(0)),
        Instruction::new(Op::DefineGlobal, dtype, [], global(1)),
        Instruction::new(Op::Const, DType::I32, [], end),
        Instruction::new(Op::Range, DType::I32, [2], axis),
        Instruction::new(Op::Index, dtype, [0, 3], Arg::None),
        Instruction::new(Op::Index, dtype, [1, 3], Arg::None),
        Instruction::new(Op::Load, dtype, [5], Arg::None),
        Instruction::new(Op::Store, DType::Void, [4, 6], Arg::None),
        Instruction::new(Op::EndRange, DType::Void, [3], Arg::None),
    ];
    let linear = Linear { name: "copy".to_owned(), uops };
    BoundedLinear::check(linear).map_err(|error| format!("a copy is refused: {error}"))
}

fn compiled(device_name: &str, kernel: &BoundedLinear) -> Result<Arc<dyn Executable>, String> {
    let opened = device(device_name).map_err(|error| error.to_string())?;
    let mut executables = opened.compile(&[kernel]).map_err(|error| error.to_string())?;
    Ok(executables.remove(0))
}

/// Sizes in bytes of a memory on a device and of the unit of its parts, at any multiple of which a
/// part may begin.
const ON_DEVICE_BYTES: usize = 4096;
const UNIT_BYTES: usize = 512;

/// Kernels that copy a memory of [`ON_DEVICE_BYTES`], and a unit.
type Copies = [Arc<dyn Executable>; 2];

/// The copies of elements of this type on a device; `None` if it does not support the type.
fn copies_on(device_name: &str, dtype: DType) -> Result<Option<Copies>, Refusal> {
    static KNOWN: Mutex<Vec<(String, DType, Copies)>> = Mutex::new(Vec::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut rows = known.iter();
    if let Some((_, _, copies)) = rows.find(|row| row.0 == device_name && row.1 == dtype) {
        return Ok(Some(copies.clone()));
    }
    let size = dtype.size_bytes();
    let [whole, unit] = [ON_DEVICE_BYTES / size, UNIT_BYTES / size];
    let kernels = [copy_kernel(dtype, whole)?, copy_kernel(dtype, unit)?];
    let opened = device(device_name)?;
    if kernels.iter().any(|kernel| opened.unsupported(kernel).is_some()) {
        return Ok(None);
    }
    let compiled = opened.compile(&[&kernels[0], &kernels[1]])?;
    let copies = Copies::try_from(compiled).map_err(|_| "two kernels are not two".to_string())?;
    known.push((device_name.to_string(), dtype, copies.clone()));
    Ok(Some(copies))
}

/// Checks parts of a memory whose bytes are on a device with memory of its own, and parts of these:
/// they are read, by the host and by kernels, and written, which no other memory sees.
pub(super) fn parts_on(device_name: &str, draw: &mut Draw) -> Result<(), Refusal> {
    let has_memory = device(device_name)?.has_memory();
    let dtype = draw.pick(&[DType::I32, DType::U8]);
    let Some([copy, copy_unit]) = copies_on(device_name, dtype)? else { return Ok(()) };
    let units = ON_DEVICE_BYTES / UNIT_BYTES;
    let elements = |units: usize| units * UNIT_BYTES / dtype.size_bytes();
    let given_bytes = bytes(draw, ON_DEVICE_BYTES);
    let given = Memory::from_bytes(dtype, &given_bytes)?;
    let whole = Memory::new(dtype, elements(units))?;
    copy.run(&[&whole, &given])?;
    // Each memory with its bytes.
    let mut pool = vec![(whole, given_bytes.clone())];
    for _ in 0..4 {
        let at = if draw.one_in(3) { draw.below(pool.len()) } else { pool.len() - 1 };
        let (memory, known) = &pool[at];
        let units = known.len() / UNIT_BYTES;
        let first = draw.below(units.min(4));
        // Large parts share the bytes, small ones are copied on the device.
        let taken = if draw.one_in(4) { 1 } else { units - first };
        let [begin, count] = [elements(first), elements(taken)];
        let part = match draw.below(4) {
            0 => memory.temporary_part(begin, count, true),
            1 => memory.part(begin, count).map(Some),
            _ => memory.part_in_place(begin, count),
        };
        // A device with memory has the bytes of each part.
        let part = match part? {
            Some(part) => part,
            None if has_memory => return Err(format!("no part from unit {first} on").into()),
            None => continue,
        };
        let known = known[first * UNIT_BYTES..][..taken * UNIT_BYTES].to_vec();
        pool.push((part, known));
    }
    for _ in 0..4 {
        let at = draw.below(pool.len());
        let (memory, known) = &mut pool[at];
        match draw.below(3) {
            0 => check_bytes(at, &memory.read()?, known)?,
            1 => {
                let output = Memory::new(dtype, elements(1))?;
                copy_unit.run(&[&output, &*memory])?;
                check_bytes(at, &output.read()?, &known[..UNIT_BYTES])?;
            }
            _ => {
                copy_unit.run(&[&*memory, &given])?;
                known[..UNIT_BYTES].copy_from_slice(&given_bytes[..UNIT_BYTES]);
            }
        }
    }
    for (at, (memory, known)) in pool.iter().enumerate() {
        check_bytes(at, &memory.read()?, known)?;
    }
    Ok(())
}

fn check_bytes(at: usize, found: &[u8], known: &[u8]) -> Result<(), String> {
    match found == known {
        true => Ok(()),
        false => {
            let wrong = found.iter().zip(known).position(|(found, known)| found != known);
            Err(format!("memory {at} is wrong from byte {wrong:?} of {}", known.len()))
        }
    }
}

fn copy(draw: &mut Draw, pool: &mut [Modelled]) -> Result<&'static str, String> {
    // The last ones are usually parts of others, and share their bytes.
    let to = pool.len() - 1 - draw.below(pool.len().min(2));
    let is_similar = |at: &usize| pool[*at].dtype() == pool[to].dtype() && *at != to;
    let sources: Vec<usize> = (0..pool.len()).filter(is_similar).collect();
    let from = if sources.is_empty() || draw.one_in(6) { to } else { draw.pick(&sources) };
    let dtype = pool[to].dtype();
    let limit = pool[to].count().min(pool[from].count());
    // Elements that are not copied stay unchanged.
    let count = if draw.one_in(2) { limit } else { draw.below(limit + 1) };
    if dtype != pool[from].dtype() || LARGE[0] <= count {
        return Ok("no memory is copied");
    }
    let is_checked = draw.one_in(2);
    let name = if is_checked { "interp" } else { "jit" };
    let copy = compiled(name, &copy_kernel(dtype, count)?)?;
    let found = copy.run(&[&pool[to].memory, &pool[from].memory]);
    if to == from {
        return match found {
            Err(Error::Arguments { .. }) => Ok("a copy to itself is refused"),
            found => Err(format!("a copy of a memory to itself on {name} gives {found:?}")),
        };
    }
    let size = count * dtype.size_bytes();
    let taken = pool[from].bytes[..size].to_vec();
    let is_missing = taken.contains(&None);
    match found {
        // The checked device refuses to read elements that may be unwritten.
        Err(Error::Uninitialised { .. }) if is_checked && is_missing => {
            let first = taken.iter().position(Option::is_none).unwrap_or(0);
            pool[to].bytes[..first].copy_from_slice(&taken[..first]);
            pool[to].is_written |= 0 < first;
            return Ok("unwritten elements are not copied");
        }
        Err(error) => return Err(format!("a copy on {name}: {error}")),
        Ok(()) if is_checked && !pool[from].is_written && count != 0 => {
            return Err(format!("a copy on {name} reads a memory that was never written"));
        }
        Ok(()) => {}
    }
    let target = &mut pool[to];
    target.bytes[..size].copy_from_slice(&taken);
    target.is_written |= !is_checked || 0 < count;
    Ok("a memory is copied")
}

/// Launches a drawn kernel with right memories, and with wrong ones.
pub(super) fn launches(draw: &mut Draw) -> Result<(), String> {
    let seed = draw.bits();
    let kernel = drawn(seed, &Style::of("jit"))?.kernel;
    let globals = kernel.globals();
    // A call of a compiler takes long, and not everyone has it.
    let compiler = draw.one_in(24).then(|| open("c").ok()).flatten();
    let (name, opened) = match (compiler, draw.pick(&["interp", "jit"])) {
        (Some(compiler), _) => ("c", compiler),
        (None, name) => (name, open(name)?),
    };
    let mut executables = opened.compile(&[&kernel]).map_err(|error| error.to_string())?;
    let executable = executables.remove(0);
    let mut memories: Vec<Memory> = Vec::new();
    for (global, dtype) in &globals {
        let longer = draw.below(3);
        let size = (global.size_elements as usize + longer) * dtype.size_bytes();
        let memory = Memory::from_bytes(*dtype, &bytes(draw, size));
        memories.push(memory.map_err(|error| error.to_string())?);
    }
    let at = draw.below(globals.len());
    let (global, dtype) = globals[at];
    let count = global.size_elements as usize;
    let wrong_dtype = if dtype == DType::U8 { DType::I8 } else { DType::U8 };
    let make = |dtype: DType, count: usize| {
        Memory::from_bytes(dtype, &vec![0; count * dtype.size_bytes()])
            .map_err(|error| error.to_string())
    };
    let wrong = match draw.below(3) {
        0 => make(wrong_dtype, count)?,
        1 => make(dtype, count - 1)?,
        _ => make(dtype, 0)?,
    };
    let before = contents(&memories)?;
    let check = |arguments: &[&Memory], description: &str| match executable.run(arguments) {
        Err(Error::Arguments { .. }) => Ok(()),
        found => {
            Err(format!("a launch on {name} with {description} gives {found:?}\n{}", &*kernel))
        }
    };
    let mut arguments: Vec<&Memory> = memories.iter().collect();
    check(&arguments[..draw.below(arguments.len())], "too few memories")?;
    arguments[at] = &wrong;
    check(&arguments, &format!("{wrong:?} as data{at}"))?;
    arguments[at] = &memories[at];
    // The array of slot 0 is written, the others are read.
    let alias = (1..globals.len()).find(|slot| {
        let (global, dtype) = globals[*slot];
        dtype == globals[0].1 && global.size_elements as usize <= memories[0].size_elements()
    });
    if let Some(alias) = alias {
        let memory = std::mem::replace(&mut arguments[alias], &memories[0]);
        check(&arguments, &format!("the first memory as data{alias} too"))?;
        arguments[alias] = memory;
    }
    if contents(&memories)? != before {
        return Err(format!("a refused launch on {name} writes\n{}", &*kernel));
    }
    executable.run(&arguments).map_err(|error| format!("a launch on {name}: {error}"))?;
    let after = contents(&memories)?;
    let written = globals[0].0.size_elements as usize * globals[0].1.size_bytes();
    match after[1..] == before[1..] && after[0][written..] == before[0][written..] {
        true => Ok(()),
        false => Err(format!("a launch on {name} writes outside of its array\n{}", &*kernel)),
    }
}

fn contents(memories: &[Memory]) -> Result<Vec<Vec<u8>>, String> {
    memories.iter().map(|memory| memory.read().map_err(|error| error.to_string())).collect()
}

/// Number of threads of a long launch: odd, so that some thread of the host is the last. Number of
/// iterations of each, which take about a millisecond: no caller waits so long by chance.
const LONG_THREADS: usize = 5;
const LONG_ITERATIONS: i64 = 1 << 18;
/// The step of a linear congruential generator: a compiler cannot shorten a loop of it.
const STEP: (u32, u32) = (1_664_525, 1_013_904_223);

/// A kernel in which each thread takes many steps from its number on, and stores the last value.
fn long_kernel() -> Result<BoundedLinear, String> {
    let int = |dtype, value: i128| {
        Instruction::new(Op::Const, dtype, [], Arg::Const(Constant::int(dtype, value)))
    };
    let axis = |kind, number| Arg::Axis(Axis { kind, number });
    let output = Arg::Global(Global { slot: 0, size_elements: LONG_THREADS as i64 });
    let uops = vec![
        Instruction::new(Op::DefineGlobal, DType::U32, [], output),
        int(DType::I32, LONG_THREADS as i128),
        int(DType::I32, LONG_ITERATIONS.into()),
        int(DType::U32, STEP.0.into()),
        int(DType::U32, STEP.1.into()),
        Instruction::new(Op::Range, DType::I32, [1], axis(AxisKind::Thread, 0)),
        Instruction::new(Op::Cast, DType::U32, [5], Arg::None),
        Instruction::new(Op::DefineAcc, DType::U32, [6, 5], Arg::Int(0)),
        Instruction::new(Op::Range, DType::I32, [2], axis(AxisKind::Loop, 1)),
        Instruction::new(Op::Mul, DType::U32, [7, 3], Arg::None),
        Instruction::new(Op::Add, DType::U32, [9, 4], Arg::None),
        Instruction::new(Op::Assign, DType::U32, [7, 10], Arg::None),
        Instruction::new(Op::EndRange, DType::Void, [8], Arg::None),
        Instruction::new(Op::Index, DType::U32, [0, 5], Arg::None),
        Instruction::new(Op::Store, DType::Void, [13, 7], Arg::None),
        Instruction::new(Op::EndRange, DType::Void, [5], Arg::None),
    ];
    let linear = Linear { name: "long".to_owned(), uops };
    BoundedLinear::check(linear).map_err(|error| format!("a long kernel is refused: {error}"))
}

/// The element that a thread of [`long_kernel`] stores.
fn last_step(thread: usize) -> u32 {
    let step = |value: u32, _| value.wrapping_mul(STEP.0).wrapping_add(STEP.1);
    (0..LONG_ITERATIONS).fold(thread as u32, step)
}

/// Checks that a launch whose threads take long is over when it returns.
pub(super) fn long_launches(_: &mut Draw) -> Result<(), String> {
    static EXPECTED: OnceLock<Vec<u32>> = OnceLock::new();
    let expected = EXPECTED.get_or_init(|| (0..LONG_THREADS).map(last_step).collect());
    // Only this device has threads. Without a compiler it is not here.
    let Ok(opened) = open("c") else { return Ok(()) };
    let kernel = long_kernel()?;
    let executable = opened.compile(&[&kernel]).map_err(|error| error.to_string())?.remove(0);
    let memory = Memory::from_bytes(DType::U32, &[0; 4 * LONG_THREADS]);
    let memory = memory.map_err(|error| error.to_string())?;
    executable.run(&[&memory]).map_err(|error| format!("a long launch on c: {error}"))?;
    let bytes = memory.read().map_err(|error| error.to_string())?;
    let words = bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().expect("4")));
    let found: Vec<u32> = words.collect();
    match found == *expected {
        true => Ok(()),
        false => Err(format!("a long launch on c returns with {found:?}, expected {expected:?}")),
    }
}

/// Checks that a kernel that is launched in very many groups or threads is compiled or refused,
/// does not panic, and never runs on arrays that are too short for it.
pub(super) fn launched_often(draw: &mut Draw) -> Result<(), String> {
    const TRIP_COUNTS: [i64; 12] = [
        0,
        1,
        2,
        65_536,
        1 << 27,
        (1 << 28) + 1,
        (1 << 31) - 1,
        1 << 31,
        (1 << 32) - 2,
        (1 << 32) - 1,
        1 << 32,
        1 << 40,
    ];
    let kinds = [AxisKind::Global, AxisKind::Local, AxisKind::Thread, AxisKind::Loop];
    let (kind, outer) = (draw.pick(&kinds), draw.pick(&TRIP_COUNTS));
    let inner = draw.pick(&[1, 1, 2, 1 << 16, 1 << 20]);
    let Some(count) = outer.checked_mul(inner) else { return Ok(()) };
    let number = |value: i64| Arg::Const(Constant::int(DType::I64, value.into()));
    let axis = |number| Arg::Axis(Axis { kind, number });
    let int = DType::I64;
    let size_elements = count;
    // Devices in process support all four kinds, but only one range of threads.
    let second = if kind == AxisKind::Thread { AxisKind::Loop } else { kind };
    let uops = vec![
        Instruction::new(
            Op::DefineGlobal,
            DType::U8,
            [],
            Arg::Global(Global { slot: 0, size_elements }),
        ),
        Instruction::new(Op::Const, int, [], number(outer)),
        Instruction::new(Op::Const, int, [], number(inner)),
        Instruction::new(Op::Const, DType::U8, [], Arg::Const(Constant::int(DType::U8, 7))),
        Instruction::new(Op::Range, int, [1], axis(0)),
        Instruction::new(Op::Range, int, [2], Arg::Axis(Axis { kind: second, number: 1 })),
        Instruction::new(Op::Mul, int, [4, 2], Arg::None),
        Instruction::new(Op::Add, int, [6, 5], Arg::None),
        Instruction::new(Op::Index, DType::U8, [0, 7], Arg::None),
        Instruction::new(Op::Store, DType::Void, [8, 3], Arg::None),
        Instruction::new(Op::EndRange, DType::Void, [5], Arg::None),
        Instruction::new(Op::EndRange, DType::Void, [4], Arg::None),
    ];
    let linear = Linear { name: "often".to_owned(), uops };
    // A kernel that is not proven to stay within its array does not run.
    let Ok(kernel) = BoundedLinear::check(linear) else { return Ok(()) };
    let name = draw.pick(&["interp", "jit"]);
    let label = format!("{kind:?} ranges of {outer} and {inner} on {name}");
    let Ok(mut executables) = open(name)?.compile(&[&kernel]) else {
        let is_small = count <= 1 << 16;
        return if is_small { Err(format!("{label} are not compiled")) } else { Ok(()) };
    };
    let executable = executables.remove(0);
    let size = (count as usize).min(1 << 16);
    let memory = Memory::new(DType::U8, size).map_err(|error| error.to_string())?;
    match executable.run(&[&memory]) {
        Ok(()) if count as usize <= size => {
            let is_full = count == 0 || memory.read().is_ok_and(|b| b.iter().all(|x| *x == 7));
            if is_full { Ok(()) } else { Err(format!("{label} leave elements out")) }
        }
        Err(Error::Arguments { .. }) if size < count as usize => Ok(()),
        found => Err(format!("{label}, with {size} elements, give {found:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_parts_have_their_bytes() {
        for name in ["jit", "opencl"] {
            if gradiff_skip::or_skip(name, device(name)).is_none() {
                continue;
            }
            for seed in 0..60 {
                let checked = parts_on(name, &mut Draw::new(seed));
                checked.unwrap_or_else(|why| panic!("{name}, seed {seed}: {why:?}"));
            }
        }
    }
}
