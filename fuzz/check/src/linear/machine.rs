//! One thread of a kernel: the values of its uops and where it is.

use gradiff::graph::{Arg, Constant, DType, Instruction, Linear, Op};

use super::arrays::{self, Arrays, Who};
use super::{Counters, Round, Rules};
use crate::scalar;

/// What is known of a kernel before it runs.
pub(super) struct Layout<'a> {
    uops: &'a [Instruction],
    /// Where the lanes of each uop begin among the values of a thread.
    first: Vec<u32>,
    /// How many values a thread has.
    count: usize,
    /// The number of the array that a uop defines.
    arrays: Vec<Option<u16>>,
    /// Of each range: the position after its end.
    after: Vec<u32>,
    /// Of each place where threads meet: the ranges around it.
    around: Vec<Vec<u32>>,
    /// Of each uop: whether texts take it that its integer needs no wrapping. Empty if unchecked.
    pub(super) is_within: Vec<bool>,
    is_checked: bool,
}

impl<'a> Layout<'a> {
    pub(super) fn new(kernel: &'a Linear, rules: Option<&Rules>) -> Result<Layout<'a>, String> {
        let uops = &kernel.uops;
        let (mut first, mut after) = (Vec::with_capacity(uops.len()), vec![0; uops.len()]);
        let (mut around, mut open) = (vec![Vec::new(); uops.len()], Vec::new());
        let mut count = 0;
        for (position, uop) in uops.iter().enumerate() {
            match uop.op {
                // Another name for the variable, whose newest value it is.
                Op::Assign => {
                    first.push(first[uop.src[0] as usize]);
                    continue;
                }
                Op::Range => open.push(position as u32),
                Op::EndRange => {
                    after[uop.src[0] as usize] = position as u32 + 1;
                    open.retain(|range| *range != uop.src[0]);
                }
                Op::Barrier | Op::Wmma => around[position].clone_from(&open),
                _ => {}
            }
            first.push(count);
            count += u32::from(uop.lanes);
        }
        if let Some(range) = open.first() {
            return Err(format!("uop {range}: a loop without end"));
        }
        let (arrays, is_checked) = (arrays::numbers(kernel), rules.is_some());
        let is_within = match is_checked {
            true => gradiff::render::find_wrapping(kernel).into_iter().map(|may| !may).collect(),
            false => Vec::new(),
        };
        let count = count as usize;
        Ok(Layout { uops, first, count, arrays, after, around, is_within, is_checked })
    }
}

/// The place of an access.
#[derive(Clone, Copy)]
enum Address {
    None,
    /// Its gate is shut.
    Shut,
    Element(u16, i64),
}

/// One thread.
pub(super) struct Machine<'a> {
    layout: &'a Layout<'a>,
    values: Vec<Option<Constant>>,
    addresses: Vec<Address>,
    launched: Counters,
    /// Its group and its number in the group.
    pub(super) who: Who,
    /// The uop that it comes to next.
    pub(super) position: usize,
}

impl<'a> Machine<'a> {
    pub(super) fn new(layout: &'a Layout<'a>) -> Machine<'a> {
        let (values, addresses) =
            (vec![None; layout.count], vec![Address::None; layout.uops.len()]);
        let (launched, who) = (Counters::new(), Who::default());
        Machine { layout, values, addresses, launched, who, position: 0 }
    }

    /// Begins anew, as another thread.
    pub(super) fn start(&mut self, launched: Counters, who: Who) {
        (self.launched, self.who, self.position) = (launched, who, 0);
        self.values.fill(None);
        self.addresses.fill(Address::None);
    }

    /// Whether it runs under the rules of a target.
    pub(super) fn is_checked(&self) -> bool {
        self.layout.is_checked
    }

    /// Goes on to behind the next barrier, to the next product, or to the end.
    pub(super) fn run(&mut self, arrays: &mut Arrays<'_>, round: Round<'_>) -> Result<(), String> {
        let uops = self.layout.uops;
        while self.position < uops.len() && uops[self.position].op != Op::Wmma {
            let is_barrier = uops[self.position].op == Op::Barrier;
            let position = self.position;
            let next = self.step(position, arrays, round);
            self.position = next
                .map_err(|problem| format!("uop {position} ({}): {problem}", uops[position].op))?;
            if is_barrier {
                self.who.epoch += 1;
                break;
            }
        }
        Ok(())
    }

    /// Where it waits for the others: the position, and the counters of the loops around it.
    pub(super) fn waits(&self) -> (usize, Vec<i128>) {
        let uops = self.layout.uops;
        let is_product = uops.get(self.position).is_some_and(|uop| uop.op == Op::Wmma);
        let at = if is_product { self.position } else { self.position.saturating_sub(1) };
        let ranges = self.layout.around.get(at).into_iter().flatten();
        let loops = ranges.filter(|range| self.counter(**range as usize).is_none());
        let counters = loops.filter_map(|range| self.number(*range)).collect();
        (self.position, counters)
    }

    /// Takes what a product of the warp gives this thread, and goes on behind it.
    pub(super) fn take_product(&mut self, sums: &[Option<Constant>]) {
        let first = self.layout.first[self.position] as usize;
        self.values[first..first + sums.len()].copy_from_slice(sums);
        self.position += 1;
    }

    fn counter(&self, range: usize) -> Option<i64> {
        self.launched.iter().find(|(own, _)| *own == range).map(|(_, counter)| *counter)
    }

    /// The values of the lanes of a uop.
    pub(super) fn lanes(&self, position: u32) -> &[Option<Constant>] {
        let first = self.layout.first[position as usize] as usize;
        &self.values[first..first + usize::from(self.layout.uops[position as usize].lanes)]
    }

    fn element(&self, position: u32) -> Option<Constant> {
        self.values[self.layout.first[position as usize] as usize]
    }

    fn number(&self, position: u32) -> Option<i128> {
        self.element(position).and_then(scalar::to_int)
    }

    /// Carries out the uop at `position` and says which one is next.
    fn step(
        &mut self,
        position: usize,
        arrays: &mut Arrays<'_>,
        round: Round<'_>,
    ) -> Result<usize, String> {
        let uop = &self.layout.uops[position];
        let (next, first) = (position + 1, self.layout.first[position] as usize);
        let count = usize::from(uop.lanes);
        match (uop.op, &uop.arg) {
            (Op::DefineGlobal | Op::DefineLocal | Op::Barrier | Op::Sink, _) => {}
            (Op::Const, Arg::Const(value)) => self.values[first] = Some(*value),
            (Op::Range, _) => {
                let counter = self.counter(position);
                self.values[first] = scalar::int(uop.dtype, counter.unwrap_or(0).into());
                return if counter.is_some() { Ok(next) } else { self.enter(position) };
            }
            (Op::EndRange, _) if self.counter(uop.src[0] as usize).is_some() => {}
            (Op::EndRange, _) => return self.repeat(uop.src[0] as usize),
            (Op::DefineAcc, _) => self.copy(uop.src[0], first, count),
            (Op::Assign, _) => self.copy(uop.src[1], first, count),
            (Op::Vectorize, _) => {
                for lane in 0..count {
                    let source = uop.src[if uop.src.len() == 1 { 0 } else { lane }];
                    self.values[first + lane] = self.element(source);
                }
            }
            (Op::Lane, Arg::Int(lane)) => {
                let lane = self.lanes(uop.src[0]).get(*lane as usize).copied();
                self.values[first] = lane.ok_or("no such lane")?;
            }
            (Op::Index, _) => self.addresses[position] = self.address(uop, arrays)?,
            (Op::Load, _) => self.load(uop, first, arrays)?,
            (Op::Store, _) => self.store(uop, arrays)?,
            (op, _) if op.is_elementwise() => {
                for lane in 0..count {
                    let value = self.computed(position, lane)?;
                    self.values[first + lane] = value.map(|value| round(op, value));
                }
            }
            _ => return Err("not a linear uop".to_owned()),
        }
        Ok(next)
    }

    fn copy(&mut self, source: u32, to: usize, count: usize) {
        let from = self.layout.first[source as usize] as usize;
        self.values.copy_within(from..from + count, to);
    }

    /// Goes into the loop at `range`, or past its end if the counter has reached it.
    fn enter(&self, range: usize) -> Result<usize, String> {
        let end = self.number(self.layout.uops[range].src[0]);
        let (Some(counter), Some(end)) = (self.number(range as u32), end) else {
            return Err("a loop over an unknown count".to_owned());
        };
        Ok(if counter < end { range + 1 } else { self.layout.after[range] as usize })
    }

    fn repeat(&mut self, range: usize) -> Result<usize, String> {
        let dtype: DType = self.layout.uops[range].dtype;
        let counter = self.number(range as u32).ok_or("a loop that was not entered")?;
        let first = self.layout.first[range] as usize;
        self.values[first] = scalar::int(dtype, counter + 1);
        self.enter(range)
    }

    fn address(&self, uop: &Instruction, arrays: &Arrays<'_>) -> Result<Address, String> {
        let array = self.layout.arrays[uop.src[0] as usize].ok_or("an index into no array")?;
        if let Some(gate) = uop.src.get(2)
            && self.element(*gate) == Some(scalar::zero(DType::Bool))
        {
            return Ok(Address::Shut);
        }
        let index = self.number(uop.src[1]).ok_or("an undefined index")?;
        let size = arrays.size(array);
        match i64::try_from(index) {
            Ok(index) if 0 <= index && index < size as i64 => Ok(Address::Element(array, index)),
            _ => Err(format!("element {index} of {}, which has {size}", arrays.name(array))),
        }
    }

    fn load(
        &mut self,
        uop: &Instruction,
        first: usize,
        arrays: &mut Arrays<'_>,
    ) -> Result<(), String> {
        let count = usize::from(uop.lanes);
        match self.addresses[uop.src[0] as usize] {
            Address::Element(array, index) => {
                arrays.check_place(array, index, count)?;
                for lane in 0..count {
                    self.values[first + lane] =
                        arrays.load(array, index + lane as i64, self.who)?;
                }
            }
            // A load behind a shut gate touches nothing.
            Address::Shut => {
                self.values[first..first + count].fill(Some(scalar::zero(uop.dtype)));
            }
            Address::None => return Err("from no address".to_owned()),
        }
        Ok(())
    }

    fn store(&mut self, uop: &Instruction, arrays: &mut Arrays<'_>) -> Result<(), String> {
        match self.addresses[uop.src[0] as usize] {
            Address::Element(array, index) => {
                let values = self.lanes(uop.src[1]);
                arrays.check_place(array, index, values.len())?;
                for (lane, value) in values.iter().enumerate() {
                    arrays.store(array, index + lane as i64, *value, self.who)?;
                }
                Ok(())
            }
            Address::Shut => Ok(()),
            Address::None => Err("to no address".to_owned()),
        }
    }

    /// A lane of an elementwise op. What is undefined is `None`, or any value if checked.
    fn computed(&self, position: usize, lane: usize) -> Result<Option<Constant>, String> {
        let uop = &self.layout.uops[position];
        let source = |number: usize| self.lanes(uop.src[number]).get(lane).copied().flatten();
        let undefined = || self.layout.is_checked.then(|| arbitrary(uop.dtype));
        if uop.op == Op::Where {
            let Some(gate) = source(0) else { return Ok(undefined()) };
            return Ok(source(if scalar::is_true(gate) { 1 } else { 2 }).or_else(undefined));
        }
        let mut arguments = [scalar::zero(DType::Bool); 3];
        for (number, argument) in arguments.iter_mut().take(uop.src.len()).enumerate() {
            match source(number) {
                Some(value) => *argument = value,
                None => return Ok(undefined()),
            }
        }
        let arguments = &arguments[..uop.src.len()];
        let value = scalar::evaluate(uop.op, uop.dtype, arguments);
        if self.layout.is_within.get(position) == Some(&true)
            && uop.dtype.is_int()
            && let (Some(value), Some(exact)) = (value, exact(uop.op, arguments))
            && scalar::to_int(value) != Some(exact)
        {
            return Err(format!(
                "{} of {arguments:?} is {exact}, which {} does not hold, and {NOT_WRAPPED}: \
                 they do not wrap it, and overflow of signed integers is undefined",
                uop.op, uop.dtype
            ));
        }
        Ok(value.or_else(undefined))
    }
}

/// What an op of integers is before it is wrapped.
fn exact(op: Op, arguments: &[Constant]) -> Option<i128> {
    let int = |number: usize| scalar::to_int(*arguments.get(number)?);
    match op {
        Op::Neg => Some(-int(0)?),
        Op::Add => Some(int(0)? + int(1)?),
        Op::Sub => Some(int(0)? - int(1)?),
        Op::Mul => int(0)?.checked_mul(int(1)?),
        Op::Shl => int(0)?.checked_mul(1 << u32::try_from(int(1)?).ok().filter(|by| *by < 64)?),
        _ => None,
    }
}

/// The words that tell of an integer which texts do not wrap.
pub(crate) const NOT_WRAPPED: &str = "texts take it that it does";

/// A value that nothing is likely to compute.
fn arbitrary(dtype: DType) -> Constant {
    Constant::from_bits(dtype, 0xa5a5_a5a5_a5a5_a5a5)
}
