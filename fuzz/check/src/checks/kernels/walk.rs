//! The execution of a kernel, one uop after the other, to find the elements that it accesses.
//!
//! In: a kernel that is well formed. Out: the first access that is out of bounds, that depends on
//! undefined values, or that races with another thread of the host. Every range is a plain loop
//! here, and the contents of memory are drawn anew at each load, since a kernel must stay within
//! its arrays whatever memory holds. No intervals are used.

use std::collections::HashMap;

use gradiff::graph::{Arg, AxisKind, Constant, DType, Instruction, Linear, Op};
use gradiff_eval::scalar;

use crate::checks::calls::Draw;

/// Limit of the executed uops.
const FUEL: usize = 20_000;

/// The result of a walk through a kernel.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Safety {
    /// Each access is inside its array, and no two threads race.
    Within,
    /// An access that breaks this, described.
    Breach(String),
    /// Nothing: the kernel takes too long, or has products of matrices.
    Unknown,
}

/// Walks through a kernel; loaded and undefined values follow from the draws.
pub(super) fn walk(kernel: &Linear, draw: &mut Draw) -> Safety {
    if kernel.uops.iter().any(|uop| uop.op == Op::Wmma) {
        return Safety::Unknown;
    }
    let thread = thread_of(kernel);
    let count = kernel.uops.len();
    let mut walk = Walk {
        uops: &kernel.uops,
        draw,
        values: vec![Vec::new(); count],
        addresses: vec![None; count],
        thread,
        accesses: HashMap::new(),
        fuel: FUEL,
    };
    match walk.run(0, count) {
        Ok(()) => Safety::Within,
        Err(Stop::Spent) => Safety::Unknown,
        Err(Stop::Breach(at, problem)) => {
            Safety::Breach(format!("uop {at} ({}): {problem}", kernel.uops[at].op))
        }
    }
}

/// The range whose iterations are executed by threads of the host: the outermost of its kind, if it
/// contains all stores to parameters.
fn thread_of(kernel: &Linear) -> Option<usize> {
    let uops = &kernel.uops;
    let is_thread = |uop: &Instruction| {
        uop.op == Op::Range && matches!(uop.arg, Arg::Axis(axis) if axis.kind == AxisKind::Thread)
    };
    let range = uops.iter().position(is_thread)?;
    let end = uops.iter().position(|uop| uop.op == Op::EndRange && uop.src[0] as usize == range)?;
    let is_global = |store: &Instruction| {
        let index = &uops[store.src[0] as usize];
        uops[index.src[0] as usize].op == Op::DefineGlobal
    };
    let mut stores = uops.iter().enumerate().filter(|(_, uop)| uop.op == Op::Store);
    let is_around = stores.all(|(at, uop)| !is_global(uop) || range < at && at < end);
    is_around.then_some(range)
}

/// The reason why a walk ends early.
enum Stop {
    Spent,
    Breach(usize, String),
}

/// The target of an access.
#[derive(Clone, Copy)]
enum Address {
    /// Its gate is false.
    Gated,
    Element(i128),
    /// It depends on an undefined value.
    Undefined,
}

/// The threads that accessed an element, and those that wrote it.
#[derive(Default)]
struct Accesses {
    accessed_by: Vec<i128>,
    written_by: Vec<i128>,
}

struct Walk<'a> {
    uops: &'a [Instruction],
    draw: &'a mut Draw,
    /// The lanes of each uop; `None` is undefined.
    values: Vec<Vec<Option<Constant>>>,
    addresses: Vec<Option<Address>>,
    /// The range of threads.
    thread: Option<usize>,
    accesses: HashMap<(u32, i128), Accesses>,
    fuel: usize,
}

impl Walk<'_> {
    fn run(&mut self, begin: usize, end: usize) -> Result<(), Stop> {
        let mut position = begin;
        while position < end {
            self.fuel = self.fuel.checked_sub(1).ok_or(Stop::Spent)?;
            let uop = &self.uops[position];
            if uop.op != Op::Range {
                let found = self.execute(position);
                found.map_err(|problem| Stop::Breach(position, problem))?;
                position += 1;
                continue;
            }
            let is_end =
                |uop: &Instruction| uop.op == Op::EndRange && uop.src[0] == position as u32;
            let after = self.uops.iter().position(is_end).ok_or(Stop::Spent)?;
            let trip_count = self.single(uop.src[0]);
            match trip_count.map(scalar::to_int) {
                // An undefined trip count: one iteration represents any number.
                None => {
                    self.values[position] = vec![None];
                    self.run(position + 1, after)?;
                }
                Some(trip_count) => {
                    for counter in 0..trip_count.unwrap_or(0) {
                        self.values[position] = vec![scalar::int(uop.dtype, counter)];
                        self.run(position + 1, after)?;
                    }
                }
            }
            position = after + 1;
        }
        Ok(())
    }

    /// The position of the value of a uop; assignments share that of their variable.
    fn value_position(&self, source: u32) -> usize {
        let mut at = source as usize;
        while self.uops[at].op == Op::Assign {
            at = self.uops[at].src[0] as usize;
        }
        at
    }

    fn lanes(&self, source: u32) -> &[Option<Constant>] {
        &self.values[self.value_position(source)]
    }

    fn single(&self, source: u32) -> Option<Constant> {
        self.lanes(source).first().copied().flatten()
    }

    fn execute(&mut self, position: usize) -> Result<(), String> {
        let uop = &self.uops[position];
        let count = usize::from(uop.lanes);
        let value = match (uop.op, &uop.arg) {
            (Op::Const, Arg::Const(value)) => vec![Some(*value)],
            (Op::DefineAcc, _) => self.lanes(uop.src[0]).to_vec(),
            (Op::Assign, _) => {
                let variable = self.value_position(uop.src[0]);
                self.values[variable] = self.lanes(uop.src[1]).to_vec();
                return Ok(());
            }
            (Op::Vectorize, _) if uop.src.len() == 1 => vec![self.single(uop.src[0]); count],
            (Op::Vectorize, _) => uop.src.iter().map(|source| self.single(*source)).collect(),
            (Op::Lane, Arg::Int(lane)) => {
                vec![self.lanes(uop.src[0]).get(*lane as usize).copied().flatten()]
            }
            (Op::Index, _) => {
                self.addresses[position] = Some(self.address(uop));
                return Ok(());
            }
            (Op::Load, _) => self.load(uop)?,
            (Op::Store, _) => {
                let lanes = self.lanes(uop.src[1]).len();
                return self.access(uop.src[0], lanes, true).map(drop);
            }
            (op, _) if op.is_elementwise() => {
                (0..count).map(|lane| self.compute(uop, lane)).collect()
            }
            _ => return Ok(()),
        };
        self.values[position] = value;
        Ok(())
    }

    fn address(&self, uop: &Instruction) -> Address {
        let gate = uop.src.get(2).map(|gate| self.single(*gate).map(scalar::is_true));
        match (gate, self.single(uop.src[1]).map(scalar::to_int)) {
            (Some(Some(false)), _) => Address::Gated,
            (Some(None), _) | (_, None | Some(None)) => Address::Undefined,
            (_, Some(Some(element))) => Address::Element(element),
        }
    }

    /// Loads drawn values. Bools are undefined, since a byte may be no bool, and so are the
    /// elements of local arrays, which may never have been written.
    fn load(&mut self, uop: &Instruction) -> Result<Vec<Option<Constant>>, String> {
        let count = usize::from(uop.lanes);
        let is_open = self.access(uop.src[0], count, false)?;
        if !is_open {
            return Ok(vec![Some(scalar::zero(uop.dtype)); count]);
        }
        let array = self.uops[uop.src[0] as usize].src[0];
        let is_defined =
            uop.dtype != DType::Bool && self.uops[array as usize].op == Op::DefineGlobal;
        let lane = |walk: &mut Self| is_defined.then(|| walk.any(uop.dtype));
        Ok((0..count).map(|_| lane(self)).collect())
    }

    /// A value of the type: near a constant of the kernel, or any bits.
    fn any(&mut self, dtype: DType) -> Constant {
        let constants = self.uops.iter().filter_map(|uop| match uop.arg {
            Arg::Const(value) => scalar::to_int(value),
            _ => None,
        });
        let near: Vec<i128> = constants.collect();
        if self.draw.one_in(3) || near.is_empty() {
            return Constant::from_bits(dtype, self.draw.bits());
        }
        let value = self.draw.pick(&near) + self.draw.below(3) as i128 - 1;
        scalar::int(dtype, value).unwrap_or_else(|| scalar::zero(dtype))
    }

    /// Records an access; returns whether its gate is true.
    fn access(&mut self, index: u32, lanes: usize, is_store: bool) -> Result<bool, String> {
        let first = match self.addresses[index as usize] {
            Some(Address::Element(first)) => first,
            Some(Address::Gated) => return Ok(false),
            Some(Address::Undefined) => {
                return Err("it depends on an undefined value".to_string());
            }
            None => return Err("its index was never computed".to_string()),
        };
        let array = self.uops[index as usize].src[0];
        let size = match self.uops[array as usize].arg {
            Arg::Global(global) => i128::from(global.size_elements),
            Arg::Local(local) => i128::from(local.size_elements),
            _ => 0,
        };
        let is_global = self.uops[array as usize].op == Op::DefineGlobal;
        let thread = self.thread.and_then(|range| self.single(range as u32));
        let thread = thread.and_then(scalar::to_int);
        for element in first..first + lanes as i128 {
            if element < 0 || size <= element {
                return Err(format!("element {element} of an array of {size} elements"));
            }
            // Threads have local arrays of their own.
            let Some(thread) = thread.filter(|_| is_global) else { continue };
            let accesses = self.accesses.entry((array, element)).or_default();
            let is_different = |number: &i128| *number != thread;
            let is_race = accesses.written_by.iter().any(is_different)
                || is_store && accesses.accessed_by.iter().any(is_different);
            if is_race {
                return Err(format!("two threads access element {element}"));
            }
            accesses.accessed_by.push(thread);
            if is_store {
                accesses.written_by.push(thread);
            }
            accesses.accessed_by.dedup();
            accesses.written_by.dedup();
        }
        Ok(true)
    }

    /// A lane of an elementwise op; any value where the op is undefined.
    fn compute(&mut self, uop: &Instruction, lane: usize) -> Option<Constant> {
        let source = |number: usize| self.lanes(uop.src[number]).get(lane).copied().flatten();
        if uop.op == Op::Where {
            return source(if scalar::is_true(source(0)?) { 1 } else { 2 });
        }
        let operands: Option<Vec<Constant>> = (0..uop.src.len()).map(source).collect();
        let value = scalar::evaluate(uop.op, uop.dtype, &operands?);
        Some(value.unwrap_or_else(|| self.any(uop.dtype)))
    }
}
