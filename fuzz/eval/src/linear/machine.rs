//! A thread of a kernel: the values of its uops and its position.

use gradiff_graph::{Arg, Constant, DType, Instruction, Linear, Op};

use super::arrays::{self, Arrays, ThreadId};
use super::{Counters, Requirements, Round};
use crate::scalar;

/// Facts about a kernel that are found before it runs.
pub(super) struct Layout<'a> {
    uops: &'a [Instruction],
    /// For each uop, the index of its first lane among the values of a thread.
    first: Vec<u32>,
    /// Number of values of a thread.
    count: usize,
    /// For each uop, the number of the array that it defines.
    arrays: Vec<Option<u16>>,
    /// For each range, the position after its end.
    after_end: Vec<u32>,
    /// For each barrier or product, the ranges that contain it.
    enclosing: Vec<Vec<u32>>,
    requirements: Option<&'a Requirements>,
}

impl<'a> Layout<'a> {
    pub(super) fn new(
        kernel: &'a Linear,
        requirements: Option<&'a Requirements>,
    ) -> Result<Layout<'a>, String> {
        let uops = &kernel.uops;
        let (mut first, mut after_end) = (Vec::with_capacity(uops.len()), vec![0; uops.len()]);
        let (mut enclosing, mut open) = (vec![Vec::new(); uops.len()], Vec::new());
        let mut count = 0;
        for (position, uop) in uops.iter().enumerate() {
            match uop.op {
                // An assignment shares the value of its variable.
                Op::Assign => {
                    first.push(first[uop.src[0] as usize]);
                    continue;
                }
                Op::Range => open.push(position as u32),
                Op::EndRange => {
                    after_end[uop.src[0] as usize] = position as u32 + 1;
                    open.retain(|range| *range != uop.src[0]);
                }
                Op::Barrier | Op::Wmma => enclosing[position].clone_from(&open),
                _ => {}
            }
            first.push(count);
            count += u32::from(uop.lanes);
        }
        if let Some(range) = open.first() {
            return Err(format!("uop {range}: a loop without end"));
        }
        let (arrays, count) = (arrays::numbers(kernel), count as usize);
        Ok(Layout { uops, first, count, arrays, after_end, enclosing, requirements })
    }
}

/// The target of an access.
#[derive(Clone, Copy)]
enum Address {
    None,
    /// Its gate is false.
    Gated,
    /// Its gate and its index are undefined.
    Undefined,
    Element(u16, i64),
}

/// The state of a thread.
pub(super) struct Machine<'a> {
    layout: &'a Layout<'a>,
    values: Vec<Option<Constant>>,
    addresses: Vec<Address>,
    launched: Counters,
    /// Its group, its number in the group, and its epoch.
    pub(super) id: ThreadId,
    /// The position of its next uop.
    pub(super) position: usize,
}

impl<'a> Machine<'a> {
    pub(super) fn new(layout: &'a Layout<'a>) -> Machine<'a> {
        let (values, addresses) =
            (vec![None; layout.count], vec![Address::None; layout.uops.len()]);
        let (launched, id) = (Counters::new(), ThreadId::default());
        Machine { layout, values, addresses, launched, id, position: 0 }
    }

    /// Restarts as another thread.
    pub(super) fn start(&mut self, launched: Counters, id: ThreadId) {
        (self.launched, self.id, self.position) = (launched, id, 0);
        self.values.fill(None);
        self.addresses.fill(Address::None);
    }

    /// Returns whether it runs under the requirements of a target.
    pub(super) fn is_checked(&self) -> bool {
        self.layout.requirements.is_some()
    }

    /// Runs to the position after the next barrier, to the next product, or to the end.
    pub(super) fn run(&mut self, arrays: &mut Arrays<'_>, round: Round<'_>) -> Result<(), String> {
        let uops = self.layout.uops;
        while self.position < uops.len() && uops[self.position].op != Op::Wmma {
            let is_barrier = uops[self.position].op == Op::Barrier;
            let position = self.position;
            let next = self.execute(position, arrays, round);
            self.position = next
                .map_err(|problem| format!("uop {position} ({}): {problem}", uops[position].op))?;
            if is_barrier {
                self.id.epoch += 1;
                break;
            }
        }
        Ok(())
    }

    /// The position at which it waits for other threads, and the counters of the loops around it.
    pub(super) fn waiting_at(&self) -> (usize, Vec<i128>) {
        let uops = self.layout.uops;
        let is_product = uops.get(self.position).is_some_and(|uop| uop.op == Op::Wmma);
        let at = if is_product { self.position } else { self.position.saturating_sub(1) };
        let ranges = self.layout.enclosing.get(at).into_iter().flatten();
        let loops = ranges.filter(|range| self.counter(**range as usize).is_none());
        let counters = loops.filter_map(|range| self.number(*range)).collect();
        (self.position, counters)
    }

    /// Sets the fragment of a product for this thread, and continues after the product.
    pub(super) fn set_product(&mut self, sums: &[Option<Constant>]) {
        let first = self.layout.first[self.position] as usize;
        self.values[first..first + sums.len()].copy_from_slice(sums);
        self.position += 1;
    }

    fn counter(&self, range: usize) -> Option<i64> {
        self.launched.iter().find(|(launched, _)| *launched == range).map(|(_, counter)| *counter)
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

    /// Executes the uop at `position` and returns the position of the next one.
    fn execute(
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
                    let value = self.compute(position, lane)?;
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

    /// Enters the loop at `range`, or skips it if the counter has reached its end.
    fn enter(&self, range: usize) -> Result<usize, String> {
        let end = self.number(self.layout.uops[range].src[0]);
        let (Some(counter), Some(end)) = (self.number(range as u32), end) else {
            return Err("a loop with an undefined trip count".to_owned());
        };
        Ok(if counter < end { range + 1 } else { self.layout.after_end[range] as usize })
    }

    fn repeat(&mut self, range: usize) -> Result<usize, String> {
        let dtype: DType = self.layout.uops[range].dtype;
        let counter = self.number(range as u32).ok_or("the end of a loop that was not entered")?;
        let first = self.layout.first[range] as usize;
        self.values[first] = scalar::int(dtype, counter + 1);
        self.enter(range)
    }

    fn address(&self, uop: &Instruction, arrays: &Arrays<'_>) -> Result<Address, String> {
        let array = self.layout.arrays[uop.src[0] as usize].ok_or("an index into no array")?;
        if let Some(gate) = uop.src.get(2)
            && self.element(*gate) == Some(scalar::zero(DType::Bool))
        {
            return Ok(Address::Gated);
        }
        let Some(index) = self.number(uop.src[1]) else {
            // Some number is computed there, and the gate decides for it.
            let is_decided = uop.src.get(2).is_none_or(|gate| self.element(*gate).is_some());
            return if is_decided {
                Err("an undefined index".to_owned())
            } else {
                Ok(Address::Undefined)
            };
        };
        let size = arrays.size(array);
        match i64::try_from(index) {
            Ok(index) if 0 <= index && index < size as i64 => Ok(Address::Element(array, index)),
            _ => {
                Err(format!("element {index} of {}, which has {size} elements", arrays.name(array)))
            }
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
                arrays.check_alignment(array, index, count)?;
                for lane in 0..count {
                    self.values[first + lane] = arrays.load(array, index + lane as i64, self.id)?;
                }
            }
            // A load whose gate is false accesses nothing.
            Address::Gated => {
                self.values[first..first + count].fill(Some(scalar::zero(uop.dtype)));
            }
            Address::Undefined => self.values[first..first + count].fill(None),
            Address::None => return Err("it has no address".to_owned()),
        }
        Ok(())
    }

    fn store(&mut self, uop: &Instruction, arrays: &mut Arrays<'_>) -> Result<(), String> {
        match self.addresses[uop.src[0] as usize] {
            Address::Element(array, index) => {
                let values = self.lanes(uop.src[1]);
                arrays.check_alignment(array, index, values.len())?;
                for (lane, value) in values.iter().enumerate() {
                    arrays.store(array, index + lane as i64, *value, self.id)?;
                }
                Ok(())
            }
            Address::Gated => Ok(()),
            Address::Undefined => Err("a store at an undefined index".to_owned()),
            Address::None => Err("it has no address".to_owned()),
        }
    }

    /// A lane of an elementwise op. An undefined value is `None`, or an arbitrary one if checked.
    fn compute(&self, position: usize, lane: usize) -> Result<Option<Constant>, String> {
        let uop = &self.layout.uops[position];
        let source = |number: usize| self.lanes(uop.src[number]).get(lane).copied().flatten();
        let undefined = || self.is_checked().then(|| arbitrary(uop.dtype));
        let mut arguments = [None; 3];
        for (number, argument) in arguments.iter_mut().take(uop.src.len()).enumerate() {
            *argument = source(number);
        }
        let arguments = &arguments[..uop.src.len()];
        let value = scalar::element(uop.op, uop.dtype, arguments);
        let requirements = self.layout.requirements;
        if requirements.is_some_and(|target| target.must_not_overflow[position])
            && uop.dtype.is_int()
            && let Some(arguments) = arguments.iter().copied().collect::<Option<Vec<Constant>>>()
            && let (Some(value), Some(exact)) = (value, exact(uop.op, &arguments))
            && scalar::to_int(value) != Some(exact)
        {
            return Err(format!(
                "{} of {arguments:?} is {exact}, which does not fit in {}, and {NOT_WRAPPED}: \
                 they do not wrap it, and overflow of signed integers is undefined",
                uop.op, uop.dtype
            ));
        }
        Ok(value.or_else(undefined))
    }
}

/// The result of an op of integers before it is wrapped; of a multiply-add whose product exceeds
/// the type, the product.
pub fn exact(op: Op, arguments: &[Constant]) -> Option<i128> {
    let int = |number: usize| scalar::to_int(*arguments.get(number)?);
    match op {
        Op::Neg => Some(-int(0)?),
        Op::Add => Some(int(0)? + int(1)?),
        Op::Sub => Some(int(0)? - int(1)?),
        Op::Mul => int(0)?.checked_mul(int(1)?),
        Op::MulAcc => match int(0)?.checked_mul(int(1)?)? {
            product
                if scalar::int(arguments[0].dtype(), product).and_then(scalar::to_int)
                    != Some(product) =>
            {
                Some(product)
            }
            product => Some(product + int(2)?),
        },
        Op::Shl => int(0)?.checked_mul(1 << u32::try_from(int(1)?).ok().filter(|by| *by < 64)?),
        _ => None,
    }
}

/// The words in reports of an integer that texts do not wrap.
pub const NOT_WRAPPED: &str = "texts assume that it does not overflow";

/// A value that a kernel is unlikely to compute.
fn arbitrary(dtype: DType) -> Constant {
    Constant::from_bits(dtype, 0xa5a5_a5a5_a5a5_a5a5)
}
