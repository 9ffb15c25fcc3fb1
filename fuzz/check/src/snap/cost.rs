//! What a linear kernel costs, counted: no machine is asked.
//!
//! Loads, stores, elementwise ops and barriers count once for each time that they are run, over
//! all threads; a uop of lanes counts once. `work` makes one number of them: an op weighs 1 (8 if
//! it divides or is a root, a power or a transcendental function; 64 for a round of threefry), a
//! load or store 4, a barrier 32, a step of a loop 2; launched ranges take no steps.
//!
//! Registers are how many values are alive at once, constants and parameters not counted, a vector
//! being one; what a loop reads of what lies before it lives as long as the loop.

use gradiff::graph::{Arg, DType, Instruction, Linear, Op};

/// What a kernel costs, or a list of kernels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Loads from parameters and local arrays.
    pub loads: u64,
    /// Stores to parameters and local arrays.
    pub stores: u64,
    /// Elementwise ops.
    pub alu: u64,
    /// Barriers.
    pub barriers: u64,
    /// How many ranges stand in each other, launched ones included.
    pub depth: u64,
    /// Variables that are assigned to.
    pub accumulators: u64,
    /// An estimate of how many values are alive at once.
    pub registers: u64,
    /// One number for the first four and the steps of loops.
    pub work: u64,
    /// Uops that are run.
    pub steps: u64,
}

impl Cost {
    /// Counts a kernel that is well formed.
    ///
    /// # Errors
    /// A range whose count of steps is no constant.
    pub fn of(kernel: &Linear) -> Result<Cost, String> {
        let mut cost = Cost::default();
        // How often the uops inside each open range are run, outermost first.
        let mut times: Vec<u64> = vec![1];
        for (position, uop) in kernel.uops.iter().enumerate() {
            let now = times.last().copied().unwrap_or(1);
            cost.count(uop, now);
            match uop.op {
                Op::Range => {
                    let steps = steps_of(kernel, position)?;
                    times.push(now.saturating_mul(steps));
                    cost.depth = cost.depth.max(times.len() as u64 - 1);
                    if !matches!(uop.arg, Arg::Axis(axis) if axis.kind.is_launched()) {
                        cost.add_work(now.saturating_mul(steps), STEP);
                    }
                }
                Op::EndRange => drop(times.pop()),
                _ => {}
            }
        }
        cost.registers = registers(kernel);
        Ok(cost)
    }

    fn count(&mut self, uop: &Instruction, times: u64) {
        self.steps = self.steps.saturating_add(times);
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

    /// Of two lists of kernels one after the other.
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
            steps: self.steps.saturating_add(other.steps),
        }
    }

    /// What decides between cheaper and dearer: the work, then the depth, then the registers.
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
const STEP: u64 = 2;

fn weight(op: Op) -> u64 {
    match op {
        Op::CDiv | Op::CMod | Op::FloorDiv | Op::FloorMod | Op::FDiv | Op::Recip => 8,
        Op::Sqrt | Op::Exp2 | Op::Log2 | Op::Sin | Op::Pow => 8,
        Op::Threefry => 64,
        _ => 1,
    }
}

/// How many steps the range at `position` takes.
fn steps_of(kernel: &Linear, position: usize) -> Result<u64, String> {
    let end = &kernel.uops[kernel.uops[position].src[0] as usize];
    match end.arg {
        Arg::Const(end) => end.to_int(),
        _ => None,
    }
    .map(|steps| u64::try_from(steps.max(0)).unwrap_or(u64::MAX))
    .ok_or_else(|| format!("uop {position} (range): the count of its steps is no constant"))
}

/// The most values that are alive at once.
fn registers(kernel: &Linear) -> u64 {
    let ends = ends_of_loops(kernel);
    let mut last_use = vec![None; kernel.uops.len()];
    let mut open: Vec<usize> = Vec::new();
    // How many ranges are open where each value is made.
    let mut made_at: Vec<usize> = Vec::with_capacity(kernel.uops.len());
    for (position, uop) in kernel.uops.iter().enumerate() {
        for source in uop.src.iter().map(|source| *source as usize) {
            // The outermost loop around the use that is not around the source.
            let depth = made_at[source] + usize::from(kernel.uops[source].op == Op::Range);
            let until = open.get(depth).map_or(position, |range| ends[*range]);
            last_use[source] = last_use[source].max(Some(until));
        }
        if uop.op == Op::EndRange {
            open.pop();
        }
        made_at.push(open.len());
        if uop.op == Op::Range {
            open.push(position);
        }
    }
    let mut changes = vec![(0u64, 0u64); kernel.uops.len() + 1];
    for (position, uop) in kernel.uops.iter().enumerate().filter(|(_, uop)| is_held(uop)) {
        if let Some(until) = last_use[position] {
            changes[position].0 += 1;
            changes[until].1 += 1;
            debug_assert!(position <= until, "{uop:?} ends before it begins");
        }
    }
    // What dies at a uop makes room for what the uop computes.
    let (mut alive, mut most) = (0, 0);
    for (born, dead) in changes {
        alive = alive + born - dead;
        most = most.max(alive);
    }
    most
}

/// For each range where it ends.
fn ends_of_loops(kernel: &Linear) -> Vec<usize> {
    let mut ends = vec![0; kernel.uops.len()];
    for (position, uop) in kernel.uops.iter().enumerate().filter(|(_, u)| u.op == Op::EndRange) {
        ends[uop.src[0] as usize] = position;
    }
    ends
}

/// Whether the value of a uop takes a register.
fn is_held(uop: &Instruction) -> bool {
    let is_free = matches!(
        uop.op,
        Op::Const | Op::DefineGlobal | Op::DefineLocal | Op::DefineVar | Op::Assign
    );
    !is_free && uop.dtype != DType::Void
}
