//! A kernel walked through, one uop after the other, to see which elements it touches.
//!
//! In: a kernel that is well formed. Out: the first access that leaves its array, that depends on
//! what nobody wrote, or that races with another thread of the host. Every range is a plain loop
//! here, and what memory holds is drawn anew at each load, since a kernel must keep within its
//! arrays whatever it holds. Nothing is known of intervals.

use std::collections::HashMap;

use gradiff::graph::{Arg, AxisKind, Constant, DType, Instruction, Linear, Op};

use crate::calls::Draw;
use crate::scalar;

/// Uops that are carried out, at most.
const STEPS_MOST: usize = 20_000;

/// What a walk through a kernel shows.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Seen {
    /// Each access is inside its array, and no two threads meet.
    Within,
    /// One that is not, in words.
    Breach(String),
    /// Nothing: the kernel takes too long, or has products of matrices.
    Unknown,
}

/// Walks through a kernel; what it loads, and what is undefined, follows from the draws.
pub(super) fn walk(kernel: &Linear, draw: &mut Draw) -> Seen {
    if kernel.uops.iter().any(|uop| uop.op == Op::Wmma) {
        return Seen::Unknown;
    }
    let thread = thread_of(kernel);
    let count = kernel.uops.len();
    let mut walk = Walk {
        uops: &kernel.uops,
        draw,
        values: vec![Vec::new(); count],
        addresses: vec![None; count],
        thread,
        touched: HashMap::new(),
        left: STEPS_MOST,
    };
    match walk.run(0, count) {
        Ok(()) => Seen::Within,
        Err(Stop::Spent) => Seen::Unknown,
        Err(Stop::Breach(at, what)) => {
            Seen::Breach(format!("uop {at} ({}): {what}", kernel.uops[at].op))
        }
    }
}

/// The range whose steps are done by threads of the host at once: the outermost of its kind, if it
/// has more than one step and stands around all stores to parameters.
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

/// Why a walk ends early.
enum Stop {
    Spent,
    Breach(usize, String),
}

/// Where an access goes.
#[derive(Clone, Copy)]
enum Address {
    Shut,
    Element(i128),
    /// It depends on what nobody wrote.
    Anywhere,
}

/// Threads that touched an element: one that did, whether another one did, and the same of those
/// that wrote it.
#[derive(Default)]
struct Touched {
    by: Vec<i128>,
    written_by: Vec<i128>,
}

struct Walk<'a> {
    uops: &'a [Instruction],
    draw: &'a mut Draw,
    /// The lanes of each uop; `None` is what nobody wrote.
    values: Vec<Vec<Option<Constant>>>,
    addresses: Vec<Option<Address>>,
    /// The range of threads.
    thread: Option<usize>,
    touched: HashMap<(u32, i128), Touched>,
    left: usize,
}

impl Walk<'_> {
    fn run(&mut self, begin: usize, end: usize) -> Result<(), Stop> {
        let mut position = begin;
        while position < end {
            self.left = self.left.checked_sub(1).ok_or(Stop::Spent)?;
            let uop = &self.uops[position];
            if uop.op != Op::Range {
                let found = self.step(position);
                found.map_err(|what| Stop::Breach(position, what))?;
                position += 1;
                continue;
            }
            let is_end =
                |uop: &Instruction| uop.op == Op::EndRange && uop.src[0] == position as u32;
            let after = self.uops.iter().position(is_end).ok_or(Stop::Spent)?;
            let steps = self.single(uop.src[0]);
            match steps.map(scalar::to_int) {
                // A count that nobody wrote: one step stands for any.
                None => {
                    self.values[position] = vec![None];
                    self.run(position + 1, after)?;
                }
                Some(steps) => {
                    for counter in 0..steps.unwrap_or(0) {
                        self.values[position] = vec![scalar::int(uop.dtype, counter)];
                        self.run(position + 1, after)?;
                    }
                }
            }
            position = after + 1;
        }
        Ok(())
    }

    /// A variable is one value, whoever names it.
    fn home(&self, source: u32) -> usize {
        let mut at = source as usize;
        while self.uops[at].op == Op::Assign {
            at = self.uops[at].src[0] as usize;
        }
        at
    }

    fn lanes(&self, source: u32) -> &[Option<Constant>] {
        &self.values[self.home(source)]
    }

    fn single(&self, source: u32) -> Option<Constant> {
        self.lanes(source).first().copied().flatten()
    }

    fn step(&mut self, position: usize) -> Result<(), String> {
        let uop = &self.uops[position];
        let count = usize::from(uop.lanes);
        let value = match (uop.op, &uop.arg) {
            (Op::Const, Arg::Const(value)) => vec![Some(*value)],
            (Op::DefineAcc, _) => self.lanes(uop.src[0]).to_vec(),
            (Op::Assign, _) => {
                let home = self.home(uop.src[0]);
                self.values[home] = self.lanes(uop.src[1]).to_vec();
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
                return self.touch(uop.src[0], lanes, true).map(drop);
            }
            (op, _) if op.is_elementwise() => {
                (0..count).map(|lane| self.computed(uop, lane)).collect()
            }
            _ => return Ok(()),
        };
        self.values[position] = value;
        Ok(())
    }

    fn address(&self, uop: &Instruction) -> Address {
        let gate = uop.src.get(2).map(|gate| self.single(*gate).map(scalar::is_true));
        match (gate, self.single(uop.src[1]).map(scalar::to_int)) {
            (Some(Some(false)), _) => Address::Shut,
            (Some(None), _) | (_, None | Some(None)) => Address::Anywhere,
            (_, Some(Some(element))) => Address::Element(element),
        }
    }

    /// What an array holds is anybody's choice; a bool there may be no bool, and what is in a local
    /// array may never have been written.
    fn load(&mut self, uop: &Instruction) -> Result<Vec<Option<Constant>>, String> {
        let count = usize::from(uop.lanes);
        let is_open = self.touch(uop.src[0], count, false)?;
        if !is_open {
            return Ok(vec![Some(scalar::zero(uop.dtype)); count]);
        }
        let array = self.uops[uop.src[0] as usize].src[0];
        let is_written =
            uop.dtype != DType::Bool && self.uops[array as usize].op == Op::DefineGlobal;
        let lane = |walk: &mut Self| is_written.then(|| walk.any(uop.dtype));
        Ok((0..count).map(|_| lane(self)).collect())
    }

    /// A value of the type: near a constant of the kernel, or any.
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

    /// Takes note of an access; whether its gate is open.
    fn touch(&mut self, index: u32, lanes: usize, is_store: bool) -> Result<bool, String> {
        let first = match self.addresses[index as usize] {
            Some(Address::Element(first)) => first,
            Some(Address::Shut) => return Ok(false),
            Some(Address::Anywhere) => {
                return Err("it depends on what nobody has written".to_string());
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
                return Err(format!("element {element} of an array of {size}"));
            }
            // Threads have local arrays of their own.
            let Some(thread) = thread.filter(|_| is_global) else { continue };
            let touched = self.touched.entry((array, element)).or_default();
            let is_other = |other: &i128| *other != thread;
            let is_met = touched.written_by.iter().any(is_other)
                || is_store && touched.by.iter().any(is_other);
            if is_met {
                return Err(format!("two threads touch element {element}"));
            }
            touched.by.push(thread);
            if is_store {
                touched.written_by.push(thread);
            }
            touched.by.dedup();
            touched.written_by.dedup();
        }
        Ok(true)
    }

    /// A lane of an elementwise op; of what is undefined, any value.
    fn computed(&mut self, uop: &Instruction, lane: usize) -> Option<Constant> {
        let source = |number: usize| self.lanes(uop.src[number]).get(lane).copied().flatten();
        if uop.op == Op::Where {
            return source(if scalar::is_true(source(0)?) { 1 } else { 2 });
        }
        let operands: Option<Vec<Constant>> = (0..uop.src.len()).map(source).collect();
        let value = scalar::evaluate(uop.op, uop.dtype, &operands?);
        Some(value.unwrap_or_else(|| self.any(uop.dtype)))
    }
}
