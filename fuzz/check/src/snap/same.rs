//! Whether two linear kernels are one program: the same uops but for their positions, the numbers
//! of ranges and accumulators and the order of what does not depend on each other.
//!
//! Each value gets a number by what it says: op, type, arg, the numbers of its sources, the loop it
//! stands in, and for what reads memory or an accumulator how often that was written before.
//! Kernels are one program if what takes effect does so in the same order with the same numbers and
//! the same values are computed as often.

use std::collections::HashMap;

use gradiff::graph::{Arg, DType, Linear, Op};

/// Whether they are the same program; names of kernels say nothing.
pub(super) fn is_same_program(before: &Linear, after: &Linear) -> bool {
    let mut numbers = HashMap::new();
    read(before, &mut numbers) == read(after, &mut numbers)
}

#[derive(PartialEq, Eq, Hash)]
struct Said {
    op: Op,
    dtype: DType,
    lanes: u8,
    arg: String,
    src: Vec<usize>,
    /// The number of the innermost loop around it; none for what costs nothing.
    within: Option<usize>,
    /// How often the array or accumulators that it reads were written before.
    version: usize,
}

/// What a kernel is up to names.
#[derive(PartialEq, Eq)]
struct Program {
    /// What takes effect, in order.
    effects: Vec<usize>,
    /// The other values, sorted; one that is computed twice stands here twice.
    values: Vec<usize>,
}

fn read(kernel: &Linear, numbers: &mut HashMap<Said, usize>) -> Program {
    let mut program = Program { effects: Vec::new(), values: Vec::new() };
    let mut own: Vec<usize> = Vec::with_capacity(kernel.uops.len());
    let (mut open, mut ranges, mut accumulators) = (Vec::new(), 0, 0);
    let mut writes = Writes { counts: vec![0; kernel.uops.len()] };
    for uop in &kernel.uops {
        if uop.op == Op::EndRange {
            open.pop();
        }
        let arg = match &uop.arg {
            Arg::Axis(axis) => {
                ranges += 1;
                format!("{}{}", ranges - 1, axis.kind.suffix())
            }
            _ if uop.op == Op::DefineAcc => {
                accumulators += 1;
                (accumulators - 1).to_string()
            }
            arg => format!("{arg:?}"),
        };
        let is_free = matches!(uop.op, Op::Const | Op::DefineGlobal | Op::DefineLocal);
        let said = Said {
            op: uop.op,
            dtype: uop.dtype,
            lanes: uop.lanes,
            arg,
            src: uop.src.iter().map(|source| own[*source as usize]).collect(),
            within: if is_free { None } else { open.last().copied() },
            version: writes.before(kernel, uop),
        };
        let next = numbers.len();
        let number = *numbers.entry(said).or_insert(next);
        own.push(number);
        match uop.op {
            Op::Range => open.push(number),
            Op::Store | Op::Assign => writes.add(kernel, uop),
            _ => {}
        }
        match uop.op {
            Op::Range | Op::EndRange | Op::Store | Op::Assign | Op::Barrier | Op::DefineAcc => {
                program.effects.push(number);
            }
            _ if is_free => {}
            _ => program.values.push(number),
        }
    }
    program.values.sort_unstable();
    program
}

/// How often each array and accumulator was written so far, by the position of its definition.
struct Writes {
    counts: Vec<usize>,
}

impl Writes {
    fn add(&mut self, kernel: &Linear, uop: &gradiff::graph::Instruction) {
        let place = array(kernel, uop.src[0]);
        self.counts[place] += 1;
    }

    /// The writes before a load, or before another uop reads accumulators.
    fn before(&self, kernel: &Linear, uop: &gradiff::graph::Instruction) -> usize {
        let of = |source: &u32| match kernel.uops[*source as usize].op {
            Op::Index if uop.op == Op::Load => self.counts[array(kernel, *source)],
            Op::DefineAcc => self.counts[*source as usize],
            _ => 0,
        };
        uop.src.iter().map(of).sum()
    }
}

/// The array of an index; an accumulator is its own.
fn array(kernel: &Linear, position: u32) -> usize {
    let uop = &kernel.uops[position as usize];
    if uop.op == Op::Index { uop.src[0] as usize } else { position as usize }
}
