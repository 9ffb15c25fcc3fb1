//! The bytecode compiler of the interpreter.
//!
//! A value of n lanes has n slots, and a vector op becomes n steps; `vectorize` and `lane` are
//! aliases of slots without steps. Launched ranges are loops; in the innermost ones the interpreter
//! sets the current group and thread. In a kernel with barriers or local memory, the nest of local
//! ranges becomes one `Fork`, which runs its body once for each thread.

use gradiff_graph::tensor_core::TensorCore;
use gradiff_graph::{Arg, AxisKind, DType, Instruction, Linear, Local, Op};
use smallvec::SmallVec;

use super::program::{
    Access, Barrier, Counters, Launch, NO_GATE, Product, Program, Step, Transition,
};
use crate::Error;
use crate::scalar;
use crate::signature::Signature;

/// The state of the compiler.
struct Builder<'a> {
    linear: &'a Linear,
    program: Program,
    /// For each uop, the index of its first lane in `lanes`.
    first_lane: Vec<u32>,
    /// The slots of values: of uops, or of the accumulators they assign to.
    lanes: Vec<u32>,
    /// The open ranges, and the steps that opened them.
    open: SmallVec<[(u32, u32); 8]>,
    /// The innermost launched ranges: of groups and of threads.
    innermost: [Option<u32>; 2],
    /// The outermost local range, in a kernel with barriers or local memory.
    fork: Option<u32>,
}

impl Program {
    pub(super) fn new(linear: &Linear) -> Result<Program, Error> {
        let count = linear.uops.len();
        let program = Program {
            signature: Signature::of(linear)?,
            steps: Vec::with_capacity(count),
            slots: Vec::with_capacity(count),
            locals: Vec::new(),
            launch: None,
            barriers: Vec::new(),
        };
        let (first_lane, lanes) = (Vec::with_capacity(count), Vec::with_capacity(count));
        let (open, innermost) = (SmallVec::new(), [None; 2]);
        let mut builder =
            Builder { linear, program, first_lane, lanes, open, innermost, fork: None };
        let launched = builder.launched()?;
        for position in 0..count {
            builder.uop(position)?;
        }
        if let Some((range, _)) = builder.open.last() {
            return Err(builder.malformed(*range as usize, "the loop is never closed"));
        }
        builder.launch(&launched)?;
        Ok(builder.program)
    }
}

impl Builder<'_> {
    fn malformed(&self, position: usize, problem: &str) -> Error {
        let (kernel, problem) = (self.linear.name.clone(), problem.to_string());
        Error::Malformed { kernel, position, problem }
    }

    fn unsupported(&self, position: usize, dtype: DType) -> Error {
        let (kernel, op) = (self.linear.name.clone(), self.linear.uops[position].op);
        Error::Unsupported { device: "interp", kernel, position, op, dtype }
    }

    /// Returns the launched ranges of groups and of threads, after checking that threads are
    /// independent except for memory and barriers.
    fn launched(&mut self) -> Result<[Vec<(u32, i64)>; 2], Error> {
        let linear = self.linear;
        let is_launched = |uop: &&Instruction| {
            uop.op == Op::Range && matches!(uop.arg, Arg::Axis(axis) if axis.kind.is_launched())
        };
        let launched_count = linear.uops.iter().filter(is_launched).count();
        if launched_count == 0 {
            return Ok(Default::default());
        }
        let of = |kind| linear.launched(kind);
        let groups = [of(AxisKind::Global), of(AxisKind::Thread)].concat();
        let threads = of(AxisKind::Local);
        if groups.len() + threads.len() != launched_count {
            return Err(self.malformed(0, "a launched range must have a constant size"));
        }
        let has_barrier = linear.uops.iter().any(|uop| uop.op == Op::Barrier);
        let is_plain = of(AxisKind::Global).is_empty() && threads.is_empty() && !has_barrier;
        let order: Vec<u32> = groups.iter().chain(&threads).map(|(range, _)| *range).collect();
        match self.check_nest(&order) {
            // A thread range with effects outside of it is a plain loop on every device.
            Err(_) if is_plain => return Ok(Default::default()),
            result => result?,
        }
        let last = |ranges: &[(u32, i64)]| ranges.last().map(|(range, _)| *range);
        self.innermost = [last(&groups), last(&threads)];
        let is_shared = |uop: &Instruction| matches!(uop.op, Op::DefineLocal | Op::Wmma);
        let needs_fork = has_barrier || linear.uops.iter().any(is_shared);
        self.fork = threads.first().filter(|_| needs_fork).map(|(range, _)| *range);
        Ok([groups, threads])
    }

    /// Checks that the launched ranges are one nest, in this order, around all that has an effect.
    fn check_nest(&self, order: &[u32]) -> Result<(), Error> {
        let mut open: Vec<u32> = Vec::new();
        let mut around = vec![0; self.linear.uops.len()];
        for (position, uop) in self.linear.uops.iter().enumerate() {
            let is_launched = order.contains(&(position as u32));
            let inside = open.iter().filter(|range| order.contains(range)).count();
            around[position] = inside;
            let is_nested =
                open.len() == inside && order[inside..].first() == Some(&(position as u32));
            let assigned = uop.src.first().map(|variable| around[*variable as usize]);
            let problem = match uop.op {
                Op::Range if is_launched && !is_nested => {
                    "launched ranges must be nested in the order global, thread, local"
                }
                Op::Store | Op::Barrier if inside < order.len() => {
                    "it is outside of a launched range, so several threads would run it"
                }
                Op::Assign if assigned.is_some_and(|outside| outside < inside) => {
                    "it carries a value between iterations of a launched range"
                }
                Op::Range => {
                    open.push(position as u32);
                    continue;
                }
                Op::EndRange => {
                    open.retain(|range| Some(range) != uop.src.first());
                    continue;
                }
                _ => continue,
            };
            return Err(self.malformed(position, problem));
        }
        Ok(())
    }

    /// Sets the launched ranges of the program.
    fn launch(&mut self, [groups, threads]: &[Vec<(u32, i64)>; 2]) -> Result<(), Error> {
        if groups.is_empty() && threads.is_empty() && self.program.locals.is_empty() {
            return Ok(());
        }
        let too_many = || self.malformed(0, "it has too many groups or threads");
        let counters = |ranges: &[(u32, i64)]| {
            let counter = |(range, size): &(u32, i64)| {
                let size = u32::try_from(*size.max(&0)).map_err(|_| too_many())?;
                Ok::<_, Error>((self.lane(*range, 0), size))
            };
            ranges.iter().map(counter).collect::<Result<Counters, _>>()
        };
        let count = |counters: &Counters| {
            let product = counters.iter().try_fold(1u32, |n, (_, size)| n.checked_mul(*size));
            product.filter(|count| *count < u32::MAX - 1).ok_or_else(too_many)
        };
        let (groups, threads) = (counters(groups)?, counters(threads)?);
        let (group_count, thread_count) = (count(&groups)?, count(&threads)?);
        // The slots of all threads of a group: 1 GiB at most.
        let slot_count = self.program.slots.len() as u64 * u64::from(thread_count);
        if self.fork.is_some() && slot_count > 1 << 27 {
            return Err(self.malformed(0, "a group has more threads than can be emulated"));
        }
        self.program.launch = Some(Launch { groups, threads, group_count, thread_count });
        Ok(())
    }

    /// The slot of a lane of a value.
    fn lane(&self, position: u32, lane: u8) -> u32 {
        self.lanes[(self.first_lane[position as usize] + u32::from(lane)) as usize]
    }

    fn source(&self, uop: &Instruction, number: usize, lane: u8) -> u32 {
        uop.src.get(number).map_or(0, |source| self.lane(*source, lane))
    }

    /// Returns whether a value is that of an accumulator, which may be assigned to later.
    fn is_variable(&self, position: u32) -> bool {
        matches!(self.linear.uops[position as usize].op, Op::DefineAcc | Op::Assign)
    }

    /// Allocates a slot for the next lane of the current uop.
    fn new_slot(&mut self, initial: u64) -> u32 {
        let slot = self.program.slots.len() as u32;
        self.program.slots.push(initial);
        self.lanes.push(slot);
        slot
    }

    /// Makes the next lane an alias of a lane of another value, or a copy if that may change.
    fn alias(&mut self, source: u32, lane: u8) {
        let from = self.lane(source, lane);
        if self.is_variable(source) {
            let to = self.new_slot(0);
            self.program.steps.push(Step::Copy { to, from });
        } else {
            self.lanes.push(from);
        }
    }

    fn uop(&mut self, position: usize) -> Result<(), Error> {
        let linear = self.linear;
        let uop = &linear.uops[position];
        self.first_lane.push(self.lanes.len() as u32);
        match (uop.op, &uop.arg) {
            (Op::Const, Arg::Const(value)) => {
                self.new_slot(scalar::slot(value.dtype(), value.bits()));
            }
            (Op::DefineLocal, Arg::Local(local)) => self.local(position, *local)?,
            (Op::DefineGlobal | Op::Index | Op::Sink, _) => {}
            (Op::DefineAcc, _) => {
                for lane in 0..uop.lanes {
                    let (from, to) = (self.source(uop, 0, lane), self.new_slot(0));
                    self.program.steps.push(Step::Copy { to, from });
                }
            }
            (Op::Assign, _) => {
                for lane in 0..uop.lanes {
                    let (to, from) = (self.source(uop, 0, lane), self.source(uop, 1, lane));
                    self.lanes.push(to);
                    self.program.steps.push(Step::Copy { to, from });
                }
            }
            (Op::Vectorize, _) => {
                for lane in 0..usize::from(uop.lanes) {
                    self.alias(uop.src[lane.min(uop.src.len() - 1)], 0);
                }
            }
            (Op::Lane, Arg::Int(lane)) => self.alias(uop.src[0], *lane as u8),
            (Op::Range, _) => self.open_loop(position),
            (Op::EndRange, _) => self.close_loop(position)?,
            (Op::Barrier, _) => self.barrier(position, None),
            (Op::Wmma, Arg::TensorCore(core)) => self.product(position, core),
            (Op::Load | Op::Store, _) => self.load_or_store(position)?,
            (op, _) if op.is_elementwise() => self.alu(position)?,
            _ => return Err(self.unsupported(position, uop.dtype)),
        }
        Ok(())
    }

    fn alu(&mut self, position: usize) -> Result<(), Error> {
        let linear = self.linear;
        let uop = &linear.uops[position];
        let source = if uop.op == Op::Where { 1 } else { 0 };
        let from = linear.uops[uop.src[source] as usize].dtype;
        let function = scalar::function(uop.op, from, uop.dtype);
        let function = function.ok_or_else(|| self.unsupported(position, from))?;
        for lane in 0..uop.lanes {
            let [x, y, z] = [0, 1, 2].map(|number| self.source(uop, number, lane));
            let to = self.new_slot(0);
            self.program.steps.push(Step::Alu { function, to, x, y, z });
        }
        Ok(())
    }

    fn local(&mut self, position: usize, local: Local) -> Result<(), Error> {
        let locals = &mut self.program.locals;
        let is_possible = 0 <= local.size_elements && local.size_elements <= 1 << 27;
        if locals.iter().any(|known| known.number == local.number) || !is_possible {
            return Err(self.malformed(position, "a local array is defined twice or too large"));
        }
        locals.push(local);
        Ok(())
    }

    fn load_or_store(&mut self, position: usize) -> Result<(), Error> {
        let linear = self.linear;
        let uop = &linear.uops[position];
        let (access, is_local) = self.access(position)?;
        let is_store = uop.op == Op::Store;
        let lanes = if is_store { linear.uops[uop.src[1] as usize].lanes } else { uop.lanes };
        for lane in 0..lanes {
            let access = Access { lane, ..access };
            let slot = if is_store { self.source(uop, 1, lane) } else { self.new_slot(0) };
            self.program.steps.push(match (is_store, is_local) {
                (false, false) => Step::Load { to: slot, access },
                (false, true) => Step::LoadLocal { to: slot, access },
                (true, false) => Step::Store { from: slot, access },
                (true, true) => Step::StoreLocal { from: slot, access },
            });
        }
        Ok(())
    }

    /// The access of the first lane of a load or store, and whether it is to local memory.
    fn access(&self, position: usize) -> Result<(Access, bool), Error> {
        let index = self.linear.uops[position].src[0];
        let address = &self.linear.uops[index as usize];
        let local = match &self.linear.uops[address.src[0] as usize].arg {
            Arg::Local(local) => self.program.locals.iter().position(|known| known == local),
            _ => None,
        };
        let array = local.or_else(|| self.program.signature.parameter_of(self.linear, index));
        let array = array.and_then(|array| u16::try_from(array).ok());
        let access = Access {
            index: self.source(address, 1, 0),
            gate: if address.src.len() == 3 { self.source(address, 2, 0) } else { NO_GATE },
            array: array.ok_or_else(|| self.malformed(position, "no such array"))?,
            dtype: address.dtype,
            lane: 0,
            position: position as u32,
        };
        Ok((access, local.is_some()))
    }

    /// Returns whether a range is a local range that a `Fork` runs.
    fn is_forked(&self, range: u32) -> bool {
        let arg = &self.linear.uops[range as usize].arg;
        self.fork.is_some() && matches!(arg, Arg::Axis(axis) if axis.kind == AxisKind::Local)
    }

    fn open_loop(&mut self, position: usize) {
        let range = position as u32;
        let counter = self.new_slot(0);
        let end = self.source(&self.linear.uops[position], 0, 0);
        let steps = &mut self.program.steps;
        self.open.push((range, steps.len() as u32));
        if self.fork == Some(range) {
            steps.push(Step::Fork { join: 0 });
        }
        if self.is_forked(range) {
            return;
        }
        let steps = &mut self.program.steps;
        steps.push(Step::Loop { counter, end, target: 0 });
        if self.innermost[0] == Some(range) {
            steps.push(Step::Locate(Transition::EnterGroup));
        } else if self.innermost[1] == Some(range) {
            steps.push(Step::Locate(Transition::EnterThread));
        }
    }

    fn close_loop(&mut self, position: usize) -> Result<(), Error> {
        let range = self.linear.uops[position].src[0];
        let Some((_, start)) = self.open.pop().filter(|(open, _)| *open == range) else {
            return Err(self.malformed(position, "it closes a loop that is not the innermost"));
        };
        let is_forked = self.is_forked(range);
        let steps = &mut self.program.steps;
        let here = steps.len() as u32;
        match steps.get_mut(start as usize) {
            Some(Step::Fork { join }) if self.fork == Some(range) => {
                *join = here;
                steps.push(Step::Join);
            }
            _ if is_forked => {}
            Some(Step::Loop { counter, end, target }) => {
                *target = here + 1;
                let (counter, end) = (*counter, *end);
                steps.push(Step::EndLoop { counter, end, target: start + 1 });
            }
            _ => return Err(self.malformed(position, "it closes a uop that is not a loop")),
        }
        if self.innermost[0] == Some(range) {
            self.program.steps.push(Step::Locate(Transition::LeaveGroup));
        } else if self.innermost[1] == Some(range) && !is_forked {
            self.program.steps.push(Step::Locate(Transition::LeaveThread));
        }
        Ok(())
    }

    /// Adds a tensor core product by whole warps: the innermost local range has as many threads,
    /// as [`verify_kernel`](gradiff_graph::verify::verify_kernel) checks.
    fn product(&mut self, position: usize, core: &'static TensorCore) {
        let uop = &self.linear.uops[position];
        let src = [0, 1, 2].map(|matrix| {
            let lanes = 0..core.elements(matrix) as u8;
            lanes.map(|lane| self.source(uop, matrix, lane)).collect()
        });
        let to = (0..uop.lanes).map(|_| self.new_slot(0)).collect();
        self.barrier(position, Some(Product { core, src, to }));
    }

    /// Adds a barrier. Without a `Fork` a group has one thread, and no barrier is needed.
    fn barrier(&mut self, position: usize, product: Option<Product>) {
        if self.fork.is_none() {
            return;
        }
        let around = self.open.iter().filter(|(range, _)| {
            let arg = &self.linear.uops[*range as usize].arg;
            matches!(arg, Arg::Axis(axis) if !axis.kind.is_launched())
        });
        let counters = around.map(|(range, _)| self.lane(*range, 0)).collect();
        let number = self.program.barriers.len() as u32;
        let position = position as u32;
        self.program.barriers.push(Barrier { product, position, counters });
        self.program.steps.push(Step::Barrier { number });
    }
}
