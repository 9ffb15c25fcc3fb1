//! Equality of two linear kernels as programs: the same uops up to their positions, the numbers of
//! ranges and accumulators, and the order of independent uops.
//!
//! Each value gets a number that follows from its op, type, arg, the numbers of its sources, the
//! innermost loop around it, and, if it reads memory or an accumulator, the number of writes
//! before. Kernels are the same program if their effects have the same numbers in the same order,
//! and if the same values are computed the same number of times.

use std::collections::HashMap;

use gradiff::graph::{Arg, DType, Linear, Op};

/// Returns whether two kernels are the same program; their names are ignored.
pub(super) fn is_same_program(before: &Linear, after: &Linear) -> bool {
    let mut numbers = HashMap::new();
    read(before, &mut numbers) == read(after, &mut numbers)
}

/// The properties of a uop that determine its number.
#[derive(PartialEq, Eq, Hash)]
struct Key {
    op: Op,
    dtype: DType,
    lanes: u8,
    arg: String,
    src: Vec<usize>,
    /// The number of the innermost loop around it; none for uops that cost nothing.
    within: Option<usize>,
    /// Number of earlier writes to the array or accumulators that it reads.
    version: usize,
}

/// A kernel up to names.
#[derive(PartialEq, Eq)]
struct Program {
    /// The uops with effects, in order.
    effects: Vec<usize>,
    /// The other values, sorted; one that is computed twice occurs twice.
    values: Vec<usize>,
}

fn read(kernel: &Linear, numbers: &mut HashMap<Key, usize>) -> Program {
    let mut program = Program { effects: Vec::new(), values: Vec::new() };
    let mut number_of: Vec<usize> = Vec::with_capacity(kernel.uops.len());
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
        let key = Key {
            op: uop.op,
            dtype: uop.dtype,
            lanes: uop.lanes,
            arg,
            src: uop.src.iter().map(|source| number_of[*source as usize]).collect(),
            within: if is_free { None } else { open.last().copied() },
            version: writes.before(kernel, uop),
        };
        let next = numbers.len();
        let number = *numbers.entry(key).or_insert(next);
        number_of.push(number);
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

/// Number of writes so far to each array and accumulator, by the position of its definition.
struct Writes {
    counts: Vec<usize>,
}

impl Writes {
    fn add(&mut self, kernel: &Linear, uop: &gradiff::graph::Instruction) {
        let definition = array(kernel, uop.src[0]);
        self.counts[definition] += 1;
    }

    /// Number of writes before a load, or before another uop that reads accumulators.
    fn before(&self, kernel: &Linear, uop: &gradiff::graph::Instruction) -> usize {
        let writes = |source: &u32| match kernel.uops[*source as usize].op {
            Op::Index if uop.op == Op::Load => self.counts[array(kernel, *source)],
            Op::DefineAcc => self.counts[*source as usize],
            _ => 0,
        };
        uop.src.iter().map(writes).sum()
    }
}

/// The position of the array of an index, or of an accumulator itself.
fn array(kernel: &Linear, position: u32) -> usize {
    let uop = &kernel.uops[position as usize];
    if uop.op == Op::Index { uop.src[0] as usize } else { position as usize }
}
