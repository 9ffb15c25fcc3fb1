//! The cost of a linear kernel, counted without a machine.
//!
//! Loads, stores, elementwise ops and barriers count once for each execution, over all threads; a
//! vector uop counts once. `work` is their weighted sum: an op weighs 1 (8 if it divides or is a
//! root, a power or a transcendental function; 64 for a round of threefry), a load or store 4, a
//! barrier 32, an iteration of a loop 2; iterations of launched ranges cost nothing.
//!
//! Registers are the number of values that are live at once, without constants and parameters; a
//! vector counts once. A value from before a loop that the loop reads is live until its end.

use gradiff::graph::{Arg, DType, Instruction, Linear, Op};

/// The cost of a kernel, or of a list of kernels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Number of loads from parameters and local arrays.
    pub loads: u64,
    /// Number of stores to parameters and local arrays.
    pub stores: u64,
    /// Number of elementwise ops.
    pub alu: u64,
    /// Number of barriers.
    pub barriers: u64,
    /// Greatest number of nested ranges, launched ones included.
    pub depth: u64,
    /// Number of variables that are assigned to.
    pub accumulators: u64,
    /// An estimate of the number of values that are live at once.
    pub registers: u64,
    /// Weighted sum of the first four and of the iterations of loops.
    pub work: u64,
    /// Number of executed uops.
    pub executed_uops: u64,
}

impl Cost {
    /// The cost of a kernel that is well formed.
    ///
    /// # Errors
    /// A range whose trip count is no constant.
    pub fn of(kernel: &Linear) -> Result<Cost, String> {
        let mut cost = Cost::default();
        let times = executions(kernel)?;
        let mut depth: u64 = 0;
        for (position, uop) in kernel.uops.iter().enumerate() {
            cost.count(uop, times[position]);
            match uop.op {
                Op::Range => {
                    depth += 1;
                    cost.depth = cost.depth.max(depth);
                    if !matches!(uop.arg, Arg::Axis(axis) if axis.kind.is_launched()) {
                        cost.add_work(times[position + 1], ITERATION);
                    }
                }
                Op::EndRange => depth -= 1,
                _ => {}
            }
        }
        cost.registers = registers(kernel);
        Ok(cost)
    }

    fn count(&mut self, uop: &Instruction, times: u64) {
        self.executed_uops = self.executed_uops.saturating_add(times);
        let (counter, weight) = match uop.op {
            Op::Load => (&mut self.loads, MEMORY),
            Op::Store => (&mut self.stores, MEMORY),
            Op::Barrier => (&mut self.barriers, BARRIER),
            Op::DefineAcc => {
                self.accumulators += 1;
                return;
            }
            op if op.is_elementwise() || op == Op::Wmma => (&mut self.alu, weight(op)),
            _ => return,
        };
        *counter = counter.saturating_add(times);
        self.add_work(times, weight);
    }

    fn add_work(&mut self, times: u64, weight: u64) {
        self.work = self.work.saturating_add(times.saturating_mul(weight));
    }

    /// The cost of two lists of kernels, one after the other.
    pub fn and(self, other: Cost) -> Cost {
        Cost {
            loads: self.loads.saturating_add(other.loads),
            stores: self.stores.saturating_add(other.stores),
            alu: self.alu.saturating_add(other.alu),
            barriers: self.barriers.saturating_add(other.barriers),
            depth: self.depth.max(other.depth),
            accumulators: self.accumulators.saturating_add(other.accumulators),
            registers: self.registers.max(other.registers),
            work: self.work.saturating_add(other.work),
            executed_uops: self.executed_uops.saturating_add(other.executed_uops),
        }
    }

    /// The numbers by which costs are compared: the work, then the depth, then the registers.
    pub fn rank(&self) -> (u64, u64, u64) {
        (self.work, self.depth, self.registers)
    }

    /// The numbers that are shown, with their names.
    pub fn numbers(&self) -> [(&'static str, u64); 8] {
        [
            ("loads", self.loads),
            ("stores", self.stores),
            ("alu", self.alu),
            ("barriers", self.barriers),
            ("depth", self.depth),
            ("accumulators", self.accumulators),
            ("registers", self.registers),
            ("work", self.work),
        ]
    }
}

const MEMORY: u64 = 4;
const BARRIER: u64 = 32;
const ITERATION: u64 = 2;

fn weight(op: Op) -> u64 {
    match op {
        Op::CDiv | Op::CMod | Op::FloorDiv | Op::FloorMod | Op::FDiv | Op::Recip => 8,
        Op::Sqrt | Op::Exp2 | Op::Log2 | Op::Sin | Op::Pow => 8,
        Op::Threefry => 64,
        _ => 1,
    }
}

/// The number of executions of each uop; the end of a range counts as inside it.
///
/// # Errors
/// A range whose trip count is no constant.
pub(crate) fn executions(kernel: &Linear) -> Result<Vec<u64>, String> {
    let mut times = Vec::with_capacity(kernel.uops.len());
    // Number of executions inside each open range, outermost first.
    let mut open: Vec<u64> = vec![1];
    for (position, uop) in kernel.uops.iter().enumerate() {
        let current = open.last().copied().unwrap_or(1);
        times.push(current);
        match uop.op {
            Op::Range => open.push(current.saturating_mul(trip_count_of(kernel, position)?)),
            Op::EndRange => drop(open.pop()),
            _ => {}
        }
    }
    Ok(times)
}

/// The trip count of the range at `position`.
fn trip_count_of(kernel: &Linear, position: usize) -> Result<u64, String> {
    let end = &kernel.uops[kernel.uops[position].src[0] as usize];
    match end.arg {
        Arg::Const(end) => end.to_int(),
        _ => None,
    }
    .map(|count| u64::try_from(count.max(0)).unwrap_or(u64::MAX))
    .ok_or_else(|| format!("uop {position} (range): its trip count is no constant"))
}

/// Greatest number of values that are live at once.
fn registers(kernel: &Linear) -> u64 {
    let ends = ends_of_loops(kernel);
    let mut last_use = vec![None; kernel.uops.len()];
    let mut open: Vec<usize> = Vec::new();
    // Number of ranges around each value.
    let mut depths: Vec<usize> = Vec::with_capacity(kernel.uops.len());
    for (position, uop) in kernel.uops.iter().enumerate() {
        for source in uop.src.iter().map(|source| *source as usize) {
            // The outermost loop that contains the use but not the source.
            let depth = depths[source] + usize::from(kernel.uops[source].op == Op::Range);
            let until = open.get(depth).map_or(position, |range| ends[*range]);
            last_use[source] = last_use[source].max(Some(until));
        }
        if uop.op == Op::EndRange {
            open.pop();
        }
        depths.push(open.len());
        if uop.op == Op::Range {
            open.push(position);
        }
    }
    let mut changes = vec![(0u64, 0u64); kernel.uops.len() + 1];
    for (position, uop) in kernel.uops.iter().enumerate().filter(|(_, uop)| takes_register(uop)) {
        if let Some(until) = last_use[position] {
            changes[position].0 += 1;
            changes[until].1 += 1;
            debug_assert!(position <= until, "{uop:?} ends before it begins");
        }
    }
    // A uop may reuse the register of a value whose last use it is.
    let (mut live, mut maximum) = (0, 0);
    for (begun, ended) in changes {
        live = live + begun - ended;
        maximum = maximum.max(live);
    }
    maximum
}

/// For each range, the position of its end.
fn ends_of_loops(kernel: &Linear) -> Vec<usize> {
    let mut ends = vec![0; kernel.uops.len()];
    for (position, uop) in kernel.uops.iter().enumerate().filter(|(_, u)| u.op == Op::EndRange) {
        ends[uop.src[0] as usize] = position;
    }
    ends
}

/// Returns whether the value of a uop takes a register.
fn takes_register(uop: &Instruction) -> bool {
    let is_free = matches!(
        uop.op,
        Op::Const | Op::DefineGlobal | Op::DefineLocal | Op::DefineVar | Op::Assign
    );
    !is_free && uop.dtype != DType::Void
}
