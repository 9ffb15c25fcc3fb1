//! Single values in every lane stand right before what uses them first, and so do their loads; what
//! a variable becomes stands right before it becomes so. The registers of a tile are for its sums.

use gradiff_graph::{Instruction, Linear, Op};
use rustc_hash::FxHashMap;

/// The kernel with such uops moved down, within stretches without loops, stores and barriers.
pub(crate) fn near(linear: Linear) -> Linear {
    let Linear { name, uops } = linear;
    let is_moved = moved(&uops);
    let count = uops.len();
    let mut order =
        Order { old: uops, waits: vec![false; count], places: vec![0; count], new: Vec::new() };
    let mut waiting = Vec::new();
    // Of variables that what waits reads, the last uop that does.
    let mut readers: FxHashMap<u32, usize> = FxHashMap::default();
    for (at, is_moved) in is_moved.into_iter().enumerate() {
        if is_moved {
            order.waits[at] = true;
            waiting.push(at);
            let is_variable = |source: &&u32| order.old[**source as usize].op == Op::DefineAcc;
            let variable = order.old[at].src.iter().find(is_variable).copied();
            let before = variable.and_then(|variable| readers.insert(variable, at));
            before.into_iter().for_each(|before| order.put_waiting(before));
            continue;
        }
        match order.old[at].op {
            op if is_border(op) => waiting.drain(..).for_each(|at| order.put_waiting(at)),
            // Others read what the variable was.
            Op::Assign => {
                let (variable, value) = (order.old[at].src[0], order.old[at].src[1] as usize);
                let reader = readers.remove(&variable).filter(|reader| *reader != value);
                reader.into_iter().for_each(|reader| order.put_waiting(reader));
            }
            _ => {}
        }
        order.put(at);
    }
    Linear { name, uops: order.new }
}

/// Which uops are moved: values in every lane, with the loads that nothing else needs; and what a
/// variable becomes, if no other variable is read for it.
fn moved(uops: &[Instruction]) -> Vec<bool> {
    let mut users = vec![0u32; uops.len()];
    uops.iter().flat_map(|uop| &uop.src).for_each(|source| users[*source as usize] += 1);
    let mut is_moved = vec![false; uops.len()];
    for (at, uop) in uops.iter().enumerate() {
        match (uop.op, uop.src.as_slice()) {
            (Op::Vectorize, [source]) => {
                let source = *source as usize;
                if uops[source].op == Op::Load && users[source] == 1 {
                    (is_moved[source], is_moved[at]) = (true, true);
                }
            }
            (Op::Assign, [variable, value]) => {
                let (made, value) = (&uops[*value as usize], *value as usize);
                let is_other =
                    |source: &u32| source != variable && uops[*source as usize].op == Op::DefineAcc;
                let is_own = made.op.is_elementwise() && users[value] == 1;
                is_moved[value] = is_own && !made.src.iter().any(is_other);
            }
            _ => {}
        }
    }
    is_moved
}

/// Whether what waits has to stand before it: what is loaded, or whether it is, changes there.
fn is_border(op: Op) -> bool {
    matches!(op, Op::Range | Op::EndRange | Op::Store | Op::Barrier)
}

/// The uops in their new order.
struct Order {
    old: Vec<Instruction>,
    /// Which of them wait for their first use.
    waits: Vec<bool>,
    /// Where each of them stands now.
    places: Vec<u32>,
    new: Vec<Instruction>,
}

impl Order {
    /// Puts a uop at the end, behind those of its sources that wait.
    fn put(&mut self, at: usize) {
        let mut uop = self.old[at].clone();
        for source in &mut uop.src {
            self.put_waiting(*source as usize);
            *source = self.places[*source as usize];
        }
        self.places[at] = self.new.len() as u32;
        self.new.push(uop);
    }

    fn put_waiting(&mut self, at: usize) {
        if std::mem::take(&mut self.waits[at]) {
            self.put(at);
        }
    }
}
