//! Memories against plain lists of bytes, and launches of kernels with memories that do not fit.
//!
//! A memory is made, written, read, cut into parts and copied by kernels, while a model keeps of
//! each byte what it must be. A launch with too few memories, of another dtype, too short, or with
//! the written one twice is refused, and leaves all of them as they were.

use std::sync::Arc;

use gradiff::graph::{
    Arg, Axis, AxisKind, BoundedLinear, Constant, DType, Global, Instruction, Linear, Op,
};
use gradiff::runtime::{Error, Executable, Memory, device};

use super::Draw;
use crate::kernels::{Style, drawn, open};

/// Counts of elements around those at which bytes begin a new line, and large ones, which are
/// mapped from the system and used again.
const COUNTS: [usize; 14] = [0, 1, 2, 3, 5, 7, 15, 16, 17, 32, 33, 64, 100, 129];
const LARGE: [usize; 3] = [131_071, 131_072, 140_000];
/// Memories at a time, and changes of them.
const MEMORIES: usize = 4;
const CHANGES: usize = 8;

/// A memory and its bytes; `None` are those that nobody has written.
struct Kept {
    memory: Memory,
    bytes: Vec<Option<u8>>,
    /// Whether anything was written.
    is_touched: bool,
}

impl Kept {
    fn dtype(&self) -> DType {
        self.memory.dtype()
    }

    fn count(&self) -> usize {
        self.bytes.len() / self.dtype().size_bytes()
    }

    /// What the memory says of itself.
    fn check(&self) -> Result<(), String> {
        let (dtype, count) = (self.dtype(), self.count());
        let said = format!("a memory of {count} {dtype}");
        if self.memory.size_elements() != count {
            return Err(format!("{said} says it has {}", self.memory.size_elements()));
        }
        let is_whole = self.bytes.iter().all(Option::is_some);
        if is_whole && !self.memory.is_initialised() {
            return Err(format!("{said} counts as not written"));
        }
        if !self.is_touched && count != 0 {
            return match self.memory.read() {
                Err(Error::Unwritten { .. }) if !self.memory.is_initialised() => Ok(()),
                other => Err(format!("{said}, never written, is read as {other:?}")),
            };
        }
        let found = self.memory.read().map_err(|error| format!("{said}: {error}"))?;
        let is_right = |(found, wanted): (&u8, &Option<u8>)| match wanted {
            Some(wanted) => found == wanted,
            None => dtype != DType::Bool || *found <= 1,
        };
        let wrong = found.iter().zip(&self.bytes).position(|pair| !is_right(pair));
        match wrong {
            Some(at) => {
                Err(format!("{said}: byte {at} is {}, not {:?}", found[at], self.bytes[at]))
            }
            None if found.len() != self.bytes.len() => {
                Err(format!("{said} is read as {} bytes", found.len()))
            }
            None => Ok(()),
        }
    }
}

/// Changes drawn memories, and checks all of them after each.
pub(super) fn memories(draw: &mut Draw) -> Result<(), String> {
    // One dtype more often than not, so that bytes are copied.
    let dtype = dtype(draw);
    let mut kept: Vec<Kept> = Vec::new();
    for _ in 0..CHANGES {
        let change = draw.below(9);
        let own = if draw.one_in(4) { self::dtype(draw) } else { dtype };
        let said = match change {
            _ if kept.is_empty() => fresh(draw, own, &mut kept)?,
            0 => fresh(draw, own, &mut kept)?,
            1 => given(draw, own, &mut kept)?,
            2 | 3 => written(draw, &mut kept)?,
            4 | 5 => part(draw, &mut kept)?,
            6 => {
                let at = draw.below(kept.len());
                drop(kept.swap_remove(at));
                "one is dropped"
            }
            _ => copied(draw, &mut kept)?,
        };
        if MEMORIES < kept.len() {
            drop(kept.remove(0));
        }
        kept.iter().try_for_each(Kept::check).map_err(|problem| format!("{said}: {problem}"))?;
    }
    Ok(())
}

fn dtype(draw: &mut Draw) -> DType {
    let dtypes: Vec<DType> = DType::ALL.into_iter().filter(|one| *one != DType::Void).collect();
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

/// What bytes that are written become: a bool is true unless it is 0.
fn kept_bytes(dtype: DType, bytes: &[u8]) -> Vec<Option<u8>> {
    let kept = |byte: &u8| match dtype {
        DType::Bool => (*byte != 0).into(),
        _ => *byte,
    };
    bytes.iter().map(|byte| Some(kept(byte))).collect()
}

/// Whether a call was refused for the memory.
fn refused<T>(said: &str, found: Result<T, Error>) -> Result<(), String> {
    match found {
        Err(Error::Memory { .. }) => Ok(()),
        Err(error) => Err(format!("{said} is refused with: {error}")),
        Ok(_) => Err(format!("{said} must be refused")),
    }
}

fn fresh(draw: &mut Draw, dtype: DType, kept: &mut Vec<Kept>) -> Result<&'static str, String> {
    if draw.one_in(12) {
        let count = draw.pick(&[usize::MAX, 1 << 60, usize::MAX / 8 + 1]);
        refused(&format!("{count} elements of {dtype}"), Memory::new(dtype, count))?;
    }
    let count = count(draw);
    let memory = Memory::new(dtype, count).map_err(|error| error.to_string())?;
    let bytes = vec![None; count * dtype.size_bytes()];
    kept.push(Kept { memory, bytes, is_touched: false });
    Ok("one is made")
}

fn given(draw: &mut Draw, dtype: DType, kept: &mut Vec<Kept>) -> Result<&'static str, String> {
    let size = count(draw) * dtype.size_bytes();
    let bytes = bytes(draw, size);
    if 1 < dtype.size_bytes() && draw.one_in(3) {
        let longer = [&bytes[..], &[1]].concat();
        refused("a part of an element", Memory::from_bytes(dtype, &longer))?;
    }
    let memory = Memory::from_bytes(dtype, &bytes).map_err(|error| error.to_string())?;
    kept.push(Kept { memory, bytes: kept_bytes(dtype, &bytes), is_touched: true });
    Ok("one is made of bytes")
}

fn written(draw: &mut Draw, kept: &mut [Kept]) -> Result<&'static str, String> {
    let at = draw.below(kept.len());
    let one = &mut kept[at];
    let bytes = bytes(draw, one.bytes.len());
    if draw.one_in(3) {
        let longer = [&bytes[..], &[1]].concat();
        refused("a write of a byte more", one.memory.write(&longer))?;
        if let Some((_, shorter)) = bytes.split_first() {
            refused("a write of a byte less", one.memory.write(shorter))?;
        }
        return Ok("writes are refused");
    }
    one.memory.write(&bytes).map_err(|error| error.to_string())?;
    (one.bytes, one.is_touched) = (kept_bytes(one.dtype(), &bytes), true);
    Ok("one is written")
}

fn part(draw: &mut Draw, kept: &mut Vec<Kept>) -> Result<&'static str, String> {
    let whole = &kept[draw.below(kept.len())];
    let (count, size) = (whole.count(), whole.dtype().size_bytes());
    if draw.one_in(4) {
        for (first, size) in [(0, count + 1), (count, 1), (count + 1, 0), (1, usize::MAX)] {
            let said = format!("a part of {count} elements from {first} on, {size} of them");
            refused(&said, whole.memory.part(first, size))?;
            refused(&said, whole.memory.part_in_place(first, size))?;
        }
    }
    // At multiples of 64 bytes bytes are shared, elsewhere they are copied.
    let step = if draw.one_in(2) { 64usize.div_ceil(size) } else { 1 };
    let first = draw.below(count / step + 1) * step;
    let taken = match draw.below(3) {
        0 => count - first,
        _ => draw.below(count - first + 1),
    };
    let memory = match draw.below(2) {
        0 => whole.memory.part(first, taken),
        _ => whole.memory.part_in_place(first, taken).map(|part| part.expect("it is at home")),
    };
    let memory = memory.map_err(|error| error.to_string())?;
    let bytes = whole.bytes[first * size..][..taken * size].to_vec();
    // Of flags of elements that are all unset none are left.
    let is_touched = whole.is_touched && bytes.iter().any(Option::is_some);
    if is_touched || !whole.is_touched || taken == 0 {
        kept.push(Kept { memory, bytes, is_touched });
    }
    Ok("a part is taken")
}

/// The kernel that copies so many elements from its second array to its first.
fn copy(dtype: DType, count: usize) -> Result<BoundedLinear, String> {
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
    let mut made = opened.compile(&[kernel]).map_err(|error| error.to_string())?;
    Ok(made.remove(0))
}

fn copied(draw: &mut Draw, kept: &mut [Kept]) -> Result<&'static str, String> {
    // The last ones are parts of others most often, and share their bytes.
    let to = kept.len() - 1 - draw.below(kept.len().min(2));
    let alike = |at: &usize| kept[*at].dtype() == kept[to].dtype() && *at != to;
    let sources: Vec<usize> = (0..kept.len()).filter(alike).collect();
    let from = if sources.is_empty() || draw.one_in(6) { to } else { draw.pick(&sources) };
    let dtype = kept[to].dtype();
    let limit = kept[to].count().min(kept[from].count());
    // What is not copied stays as it was.
    let count = if draw.one_in(2) { limit } else { draw.below(limit + 1) };
    if dtype != kept[from].dtype() || LARGE[0] <= count {
        return Ok("none is copied");
    }
    let is_checked = draw.one_in(2);
    let name = if is_checked { "interp" } else { "jit" };
    let copy = compiled(name, &copy(dtype, count)?)?;
    let found = copy.run(&[&kept[to].memory, &kept[from].memory]);
    if to == from {
        return match found {
            Err(Error::Arguments { .. }) => Ok("a copy to itself is refused"),
            found => Err(format!("a copy of a memory to itself on {name} gives {found:?}")),
        };
    }
    let size = count * dtype.size_bytes();
    let taken = kept[from].bytes[..size].to_vec();
    let is_missing = taken.contains(&None);
    match found {
        // Nobody looks at what was not known to be written.
        Err(Error::Uninitialised { .. }) if is_checked && is_missing => {
            let first = taken.iter().position(Option::is_none).unwrap_or(0);
            kept[to].bytes[..first].copy_from_slice(&taken[..first]);
            kept[to].is_touched |= 0 < first;
            return Ok("what was not written is not copied");
        }
        Err(error) => return Err(format!("a copy on {name}: {error}")),
        Ok(()) if is_checked && !kept[from].is_touched && count != 0 => {
            return Err(format!("a copy on {name} takes what nobody has written"));
        }
        Ok(()) => {}
    }
    let one = &mut kept[to];
    one.bytes[..size].copy_from_slice(&taken);
    one.is_touched |= !is_checked || 0 < count;
    Ok("one is copied")
}

/// A drawn kernel is launched with memories that are right, and with some that are not.
pub(super) fn launches(draw: &mut Draw) -> Result<(), String> {
    let name = draw.pick(&["interp", "jit"]);
    let seed = draw.bits();
    let kernel = drawn(seed, &Style::of("jit"))?.kernel;
    let globals = kernel.globals();
    let opened = open(name)?;
    let mut made = opened.compile(&[&kernel]).map_err(|error| error.to_string())?;
    let executable = made.remove(0);
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
    let other = if dtype == DType::U8 { DType::I8 } else { DType::U8 };
    let make = |dtype: DType, count: usize| {
        Memory::from_bytes(dtype, &vec![0; count * dtype.size_bytes()])
            .map_err(|error| error.to_string())
    };
    let wrong = match draw.below(3) {
        0 => make(other, count)?,
        1 => make(dtype, count - 1)?,
        _ => make(dtype, 0)?,
    };
    let before = contents(&memories)?;
    let refuse = |given: &[&Memory], what: &str| match executable.run(given) {
        Err(Error::Arguments { .. }) => Ok(()),
        found => Err(format!("a launch on {name} with {what} gives {found:?}\n{}", &*kernel)),
    };
    let mut given: Vec<&Memory> = memories.iter().collect();
    refuse(&given[..draw.below(given.len())], "too few memories")?;
    given[at] = &wrong;
    refuse(&given, &format!("{wrong:?} as data{at}"))?;
    given[at] = &memories[at];
    // The array of slot 0 is written, the others are read.
    let twin = (1..globals.len()).find(|other| {
        let (global, dtype) = globals[*other];
        dtype == globals[0].1 && global.size_elements as usize <= memories[0].size_elements()
    });
    if let Some(twin) = twin {
        let own = std::mem::replace(&mut given[twin], &memories[0]);
        refuse(&given, &format!("the first memory as data{twin}, too"))?;
        given[twin] = own;
    }
    if contents(&memories)? != before {
        return Err(format!("a launch on {name} that is refused writes\n{}", &*kernel));
    }
    executable.run(&given).map_err(|error| format!("a launch on {name}: {error}"))?;
    let after = contents(&memories)?;
    let shown = globals[0].0.size_elements as usize * globals[0].1.size_bytes();
    match after[1..] == before[1..] && after[0][shown..] == before[0][shown..] {
        true => Ok(()),
        false => Err(format!("a launch on {name} writes more than its array\n{}", &*kernel)),
    }
}

fn contents(memories: &[Memory]) -> Result<Vec<Vec<u8>>, String> {
    memories.iter().map(|memory| memory.read().map_err(|error| error.to_string())).collect()
}

/// A kernel that is launched in very many groups or threads is compiled, or refused; it does not
/// panic, and never runs on arrays that are too short for it.
pub(super) fn launched_often(draw: &mut Draw) -> Result<(), String> {
    const STEPS: [i64; 12] = [
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
    let (kind, steps) = (draw.pick(&kinds), draw.pick(&STEPS));
    let inner = draw.pick(&[1, 1, 2, 1 << 16, 1 << 20]);
    let Some(count) = steps.checked_mul(inner) else { return Ok(()) };
    let number = |value: i64| Arg::Const(Constant::int(DType::I64, value.into()));
    let axis = |number| Arg::Axis(Axis { kind, number });
    let int = DType::I64;
    let size_elements = count;
    // In process all four kinds have a meaning; a second range of threads has none.
    let second = if kind == AxisKind::Thread { AxisKind::Loop } else { kind };
    let uops = vec![
        Instruction::new(
            Op::DefineGlobal,
            DType::U8,
            [],
            Arg::Global(Global { slot: 0, size_elements }),
        ),
        Instruction::new(Op::Const, int, [], number(steps)),
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
    // What is not proven to keep within its array runs nowhere.
    let Ok(kernel) = BoundedLinear::check(linear) else { return Ok(()) };
    let name = draw.pick(&["interp", "jit"]);
    let said = format!("{kind:?} of {steps} and {inner} on {name}");
    let Ok(mut made) = open(name)?.compile(&[&kernel]) else {
        let is_small = count <= 1 << 16;
        return if is_small { Err(format!("{said} is not compiled")) } else { Ok(()) };
    };
    let executable = made.remove(0);
    let room = (count as usize).min(1 << 16);
    let memory = Memory::new(DType::U8, room).map_err(|error| error.to_string())?;
    match executable.run(&[&memory]) {
        Ok(()) if count as usize <= room => {
            let is_full = count == 0 || memory.read().is_ok_and(|b| b.iter().all(|x| *x == 7));
            if is_full { Ok(()) } else { Err(format!("{said} leaves elements out")) }
        }
        Err(Error::Arguments { .. }) if room < count as usize => Ok(()),
        found => Err(format!("{said}, with {room} elements, gives {found:?}")),
    }
}
