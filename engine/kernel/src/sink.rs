//! Sinks values to their first use, so that the registers hold the accumulators of a tile.
//!
//! A scalar that is broadcast to a vector, and its load, move down to right before the first use of
//! the vector; the new value of an accumulator moves down to right before its assignment.

use gradiff_graph::{Instruction, Linear, Op};
use rustc_hash::FxHashMap;

/// Moves these uops down, but not past a loop boundary, a store or a barrier.
pub(crate) fn sink_to_use(linear: Linear) -> Linear {
    let Linear { name, uops } = linear;
    let is_sunk = sunk(&uops);
    let count = uops.len();
    let mut order = Order {
        old: uops,
        is_pending: vec![false; count],
        new_positions: vec![0; count],
        new: Vec::new(),
    };
    let mut pending = Vec::new();
    // For each accumulator, the last pending uop that reads it.
    let mut readers: FxHashMap<u32, usize> = FxHashMap::default();
    for (at, is_sunk) in is_sunk.into_iter().enumerate() {
        if is_sunk {
            order.is_pending[at] = true;
            pending.push(at);
            let is_accumulator = |source: &&u32| order.old[**source as usize].op == Op::DefineAcc;
            let accumulator = order.old[at].src.iter().find(is_accumulator).copied();
            let before = accumulator.and_then(|accumulator| readers.insert(accumulator, at));
            before.into_iter().for_each(|before| order.put_pending(before));
            continue;
        }
        match order.old[at].op {
            op if is_barrier(op) => pending.drain(..).for_each(|at| order.put_pending(at)),
            // A reader other than the new value needs the value from before the assignment.
            Op::Assign => {
                let (accumulator, value) = (order.old[at].src[0], order.old[at].src[1] as usize);
                let reader = readers.remove(&accumulator).filter(|reader| *reader != value);
                reader.into_iter().for_each(|reader| order.put_pending(reader));
            }
            _ => {}
        }
        order.put(at);
    }
    Linear { name, uops: order.new }
}

/// Returns for each uop whether it is sunk. A broadcast and its load are, if the load has no other
/// user; so is the new value of an accumulator, if it has no other user and reads no other
/// accumulator.
fn sunk(uops: &[Instruction]) -> Vec<bool> {
    let mut users = vec![0u32; uops.len()];
    uops.iter().flat_map(|uop| &uop.src).for_each(|source| users[*source as usize] += 1);
    let mut is_sunk = vec![false; uops.len()];
    for (at, uop) in uops.iter().enumerate() {
        match (uop.op, uop.src.as_slice()) {
            (Op::Vectorize, [source]) => {
                let source = *source as usize;
                if uops[source].op == Op::Load && users[source] == 1 {
                    (is_sunk[source], is_sunk[at]) = (true, true);
                }
            }
            (Op::Assign, [accumulator, value]) => {
                let value = *value as usize;
                let is_other_accumulator = |source: &u32| {
                    source != accumulator && uops[*source as usize].op == Op::DefineAcc
                };
                let has_one_user = uops[value].op.is_elementwise() && users[value] == 1;
                is_sunk[value] = has_one_user && !uops[value].src.iter().any(is_other_accumulator);
            }
            _ => {}
        }
    }
    is_sunk
}

/// Returns whether pending uops must stay before this op, since it changes memory or begins or ends
/// a loop.
fn is_barrier(op: Op) -> bool {
    matches!(op, Op::Range | Op::EndRange | Op::Store | Op::Barrier)
}

/// The uops in their new order.
struct Order {
    old: Vec<Instruction>,
    /// For each old uop, true while it waits for its first use.
    is_pending: Vec<bool>,
    /// For each old uop, its position in `new`.
    new_positions: Vec<u32>,
    new: Vec<Instruction>,
}

impl Order {
    /// Appends a uop, after those of its sources that are pending.
    fn put(&mut self, at: usize) {
        let mut uop = self.old[at].clone();
        for source in &mut uop.src {
            self.put_pending(*source as usize);
            *source = self.new_positions[*source as usize];
        }
        self.new_positions[at] = self.new.len() as u32;
        self.new.push(uop);
    }

    /// Appends a uop if it is pending.
    fn put_pending(&mut self, at: usize) {
        if std::mem::take(&mut self.is_pending[at]) {
            self.put(at);
        }
    }
}
