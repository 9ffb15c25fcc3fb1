//! A launch: all groups one after the other, the threads of a group from barrier to barrier.

use super::decode::{Access, Action, Conversion, Program};
use super::memory::{Array, Memory, POISON, Space, global_base, shared_base};
use super::number::{decode, encode, extended, truncated};
use super::warp::{WARP, multiply};
use crate::backends::texts::races::ThreadId;

/// Numbers of groups of the grid and of threads of a group in x, y and z.
#[derive(Clone, Copy, Debug)]
pub(super) struct Launch {
    pub(super) grid: [u32; 3],
    pub(super) group: [u32; 3],
    /// Limit of the instructions that all threads together execute.
    pub(super) instructions_max: u64,
}

/// The bytes of a parameter.
pub(super) struct Argument {
    pub(super) bytes: Vec<u8>,
    /// Size of an element.
    pub(super) element_bytes: usize,
    /// True if the kernel stores to it.
    pub(super) is_stored: bool,
    /// True if nothing was written to it yet.
    pub(super) is_fresh: bool,
}

/// Limit of the threads of a group.
const THREADS_MAX: u64 = 1024;

/// The registers of a thread and its next instruction.
pub(super) struct Thread {
    pub(super) values: Vec<u64>,
    /// For each register, whether it was written.
    pub(super) written: Vec<bool>,
    position: usize,
    state: State,
    number: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Running,
    /// At the barrier of this position.
    Barrier(usize),
    /// At the product of matrices of this position.
    Product(usize),
    Ended,
}

/// Runs a program over its arguments, which hold the results afterwards.
///
/// # Errors
/// A launch that the text does not allow; an error of a thread, with the line.
pub(super) fn launch(
    program: &Program,
    arguments: &mut [Argument],
    launch: &Launch,
) -> Result<(), String> {
    let threads: u64 = launch.group.iter().map(|size| u64::from(*size)).product();
    let limit: u64 = program.threads_max.iter().map(|size| u64::from(*size)).product();
    if threads == 0 || limit.min(THREADS_MAX) < threads {
        return Err(format!("{threads} threads of a group, but .maxntid is {limit}"));
    }
    if program.parameters.len() != arguments.len() {
        let count = program.parameters.len();
        return Err(format!("{count} parameters, but {} arguments", arguments.len()));
    }
    let take = |(number, argument): (usize, &mut Argument)| {
        let granule = if argument.is_stored { argument.element_bytes } else { 0 };
        let (name, base) = (format!("parameter {number}"), global_base(number));
        let bytes = std::mem::take(&mut argument.bytes);
        Array::new(name, base, bytes, granule, argument.is_fresh)
    };
    let global = arguments.iter_mut().enumerate().map(take).collect();
    let shared = program.shared.iter().enumerate().map(|(number, array)| {
        let base = shared_base(number, array.alignment);
        let bytes = vec![POISON; array.size_bytes];
        Array::new(array.name.clone(), base, bytes, program.shared_granule, true)
    });
    let mut machine = Machine {
        program,
        memory: Memory { global, shared: shared.collect() },
        id: ThreadId::default(),
        fuel: launch.instructions_max,
    };
    let result = machine.grid(launch);
    for (argument, array) in arguments.iter_mut().zip(machine.memory.global) {
        argument.bytes = array.bytes;
    }
    result
}

struct Machine<'a> {
    program: &'a Program,
    memory: Memory,
    /// The thread that is running.
    id: ThreadId,
    /// Number of instructions that may still be executed.
    fuel: u64,
}

impl Machine<'_> {
    fn grid(&mut self, launch: &Launch) -> Result<(), String> {
        let synchronises = |action: &Action| matches!(action, Action::Barrier | Action::Product(_));
        let has_barriers =
            self.program.code.iter().any(|instruction| synchronises(&instruction.action));
        let count = launch.group.iter().map(|size| u64::from(*size)).product::<u64>();
        let mut threads: Vec<Thread> =
            (0..if has_barriers { count } else { 1 }).map(|_| self.thread()).collect();
        let [groups_x, groups_y, groups_z] = launch.grid.map(u64::from);
        for group in 0..groups_x * groups_y * groups_z {
            for array in &mut self.memory.shared {
                array.clear();
            }
            if has_barriers {
                for (number, thread) in (0..).zip(&mut threads) {
                    self.start(thread, launch, group, number);
                }
                self.group(&mut threads, group)?;
                continue;
            }
            for number in 0..count {
                self.start(&mut threads[0], launch, group, number);
                self.id = ThreadId::new(group, 0, number)?;
                self.run(&mut threads[0])?;
            }
        }
        Ok(())
    }

    fn thread(&self) -> Thread {
        let values = self.program.initial.clone();
        let written = vec![true; values.len()];
        Thread { values, written, position: 0, state: State::Running, number: 0 }
    }

    /// Sets a thread to its initial state.
    fn start(&self, thread: &mut Thread, launch: &Launch, group: u64, number: u64) {
        thread.written[..self.program.declared].fill(false);
        (thread.position, thread.state, thread.number) = (0, State::Running, number);
        let coordinates = |number: u64, sizes: [u32; 3]| {
            let [x, y, _] = sizes.map(u64::from);
            [number % x, number / x % y, number / x / y]
        };
        let words = [
            coordinates(number, launch.group),
            launch.group.map(u64::from),
            coordinates(group, launch.grid),
            launch.grid.map(u64::from),
        ];
        for (register, value) in self.program.special.iter().zip(words.as_flattened()) {
            thread.values[*register as usize] = *value;
        }
    }

    /// Runs the threads of a group until all have ended.
    fn group(&mut self, threads: &mut [Thread], group: u64) -> Result<(), String> {
        let mut epoch = 0;
        loop {
            for thread in threads.iter_mut().filter(|thread| thread.state == State::Running) {
                self.id = ThreadId::new(group, epoch, thread.number)?;
                self.run(thread)?;
            }
            if self.products(threads)? {
                continue;
            }
            let state = threads[0].state;
            if let Some(second) = threads.iter().find(|thread| thread.state != state) {
                return Err(format!(
                    "threads 0 and {} of a group diverge: one {}, the other {}",
                    second.number,
                    self.describe(state),
                    self.describe(second.state)
                ));
            }
            if state == State::Ended {
                return Ok(());
            }
            epoch += 1;
            for thread in threads.iter_mut() {
                thread.state = State::Running;
            }
        }
    }

    fn describe(&self, state: State) -> String {
        let line = |position: usize| self.program.code[position].line;
        match state {
            State::Running => "runs".to_owned(),
            State::Ended => "has ended".to_owned(),
            State::Barrier(at) => format!("waits at the barrier of line {}", line(at)),
            State::Product(at) => format!("waits at the product of line {}", line(at)),
        }
    }

    /// Multiplies the matrices of all warps that wait for a product; returns whether there was one.
    fn products(&self, threads: &mut [Thread]) -> Result<bool, String> {
        let mut is_any = false;
        for warp in threads.chunks_mut(WARP) {
            let product = warp.iter().find(|thread| matches!(thread.state, State::Product(_)));
            let Some(state @ State::Product(at)) = product.map(|thread| thread.state) else {
                continue;
            };
            if warp.len() != WARP {
                return Err(format!("a warp has {} threads", warp.len()));
            }
            if let Some(second) = warp.iter().find(|thread| thread.state != state) {
                return Err(format!(
                    "a thread of a warp {}, but thread {} {}",
                    self.describe(state),
                    second.number,
                    self.describe(second.state)
                ));
            }
            if let Action::Product(product) = &self.program.code[at].action {
                multiply(product, warp).map_err(|problem| self.at(at, problem))?;
            }
            for thread in warp.iter_mut() {
                thread.state = State::Running;
            }
            is_any = true;
        }
        Ok(is_any)
    }

    fn at(&self, position: usize, problem: String) -> String {
        format!("line {}: {problem}", self.program.code[position].line)
    }

    /// Runs a thread to the next barrier, the next product or its end.
    fn run(&mut self, thread: &mut Thread) -> Result<(), String> {
        let program = self.program;
        while let Some(instruction) = program.code.get(thread.position) {
            let position = thread.position;
            thread.position += 1;
            if self.fuel == 0 {
                let problem = "more instructions than the kernel can need: a loop without an end";
                return Err(self.at(position, problem.to_owned()));
            }
            self.fuel -= 1;
            if let Some((register, expected)) = instruction.guard {
                let value = read(program, thread, register);
                if (value.map_err(|problem| self.at(position, problem))? != 0) != expected {
                    continue;
                }
            }
            match &instruction.action {
                Action::Branch(target) => thread.position = *target,
                Action::Barrier => {
                    thread.state = State::Barrier(position);
                    return Ok(());
                }
                Action::Product(_) => {
                    thread.state = State::Product(position);
                    return Ok(());
                }
                Action::Return => {
                    thread.state = State::Ended;
                    return Ok(());
                }
                action => {
                    self.execute(thread, action).map_err(|problem| self.at(position, problem))?
                }
            }
        }
        Err("a thread runs beyond the end of the entry".to_owned())
    }

    fn execute(&mut self, thread: &mut Thread, action: &Action) -> Result<(), String> {
        let program = self.program;
        let (to, value) = match action {
            Action::Compute { apply, to, from: [x, y, z] } => {
                let x = read(program, thread, *x)?;
                (*to, apply([x, read(program, thread, *y)?, read(program, thread, *z)?]))
            }
            Action::Convert { to, from, conversion } => {
                (*to, convert(read(program, thread, *from)?, conversion))
            }
            Action::Pack { to, halves: [low, high], bits } => {
                (*to, read(program, thread, *low)? | read(program, thread, *high)? << bits)
            }
            Action::Parameter { to, number } => (*to, global_base(*number)),
            Action::Load { access, register_bits } => {
                return self.load(thread, access, *register_bits);
            }
            Action::Store(access) => return self.store(thread, access),
            Action::Branch(_) | Action::Barrier | Action::Product(_) | Action::Return => {
                return Ok(());
            }
        };
        write(thread, to, value);
        Ok(())
    }

    fn address(&self, thread: &Thread, access: &Access) -> Result<(Space, u64), String> {
        let base = read(self.program, thread, access.address)?;
        Ok((access.space, base.wrapping_add_signed(access.offset)))
    }

    fn load(
        &mut self,
        thread: &mut Thread,
        access: &Access,
        register_bits: u32,
    ) -> Result<(), String> {
        let (address, size) = (self.address(thread, access)?, access.kind.size_bytes());
        let bytes = self.memory.read(address, size * access.registers.len(), self.id)?;
        for (register, bytes) in access.registers.iter().zip(bytes.chunks_exact(size)) {
            let mut word = [0; 8];
            word[..size].copy_from_slice(bytes);
            let value = extended(u64::from_le_bytes(word), access.kind);
            write(thread, *register, value & (u64::MAX >> (64 - register_bits)));
        }
        Ok(())
    }

    fn store(&mut self, thread: &Thread, access: &Access) -> Result<(), String> {
        let (address, size) = (self.address(thread, access)?, access.kind.size_bytes());
        let bytes = self.memory.write(address, size * access.registers.len(), self.id)?;
        for (register, bytes) in access.registers.iter().zip(bytes.chunks_exact_mut(size)) {
            let value = read(self.program, thread, *register)?;
            bytes.copy_from_slice(&value.to_le_bytes()[..size]);
        }
        Ok(())
    }
}

/// The bits of a register.
fn read(program: &Program, thread: &Thread, register: u32) -> Result<u64, String> {
    let register = register as usize;
    if thread.written[register] {
        return Ok(thread.values[register]);
    }
    let name = program.names.get(register).map_or("a register", String::as_str);
    Err(format!("{name} is read before it is written"))
}

fn write(thread: &mut Thread, register: u32, value: u64) {
    thread.values[register as usize] = value;
    thread.written[register as usize] = true;
}

fn convert(bits: u64, conversion: &Conversion) -> u64 {
    let Conversion { from, to, rounding, register_bits } = *conversion;
    let value = match (from.is_float(), to.is_float()) {
        // Truncated to the result's type and extended by its signedness.
        (false, false) => extended(extended(bits, from), to),
        (true, false) => extended(truncated(decode(bits, from), from, to), to),
        (_, true) => return encode(decode(bits, from), to, rounding),
    };
    value & (u64::MAX >> (64 - register_bits))
}
