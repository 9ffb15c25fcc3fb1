//! What a list of linear uops means, said slowly: one uop at a time through the scalar meanings,
//! the threads of a group one after the other from barrier to barrier.
//!
//! Products of matrices are put together from what the threads of a warp hold, and taken apart.
//!
//! For blame: it tells a wrong list from a device that runs a right list wrongly.

use std::collections::HashMap;

use gradiff::graph::{Arg, AxisKind, Constant, DType, Instruction, Linear, Op, evaluate};

use crate::stages::Elements;

/// Runs a kernel on its parameters, in the order of their slots.
///
/// # Errors
/// A list that is not well formed, a touch outside an array, an element that two threads write, a
/// barrier that not all threads of a group reach, a loop without an end.
pub(crate) fn run(kernel: &Linear, memories: &mut [Elements]) -> Result<(), String> {
    run_rounded(kernel, memories, &mut |_, value| value)
}

/// What becomes of each value that an elementwise op computes.
pub(crate) type Round<'a> = &'a mut dyn FnMut(Op, Constant) -> Constant;

/// As [`run`], with what each elementwise op computes changed by `round`.
///
/// # Errors
/// As [`run`].
pub(crate) fn run_rounded(
    kernel: &Linear,
    memories: &mut [Elements],
    round: Round<'_>,
) -> Result<(), String> {
    gradiff::graph::verify_linear(kernel).map_err(|error| error.to_string())?;
    let (grid, group) = (steps_of(kernel, AxisKind::Global), steps_of(kernel, AxisKind::Local));
    let (locals, writers) = (HashMap::new(), HashMap::new());
    let mut arrays = Arrays { globals: memories, locals, writers, round };
    for (number, place) in grid.iter().enumerate() {
        arrays.locals.clear();
        let start = |(thread, own): (usize, &Counters)| Machine {
            uops: &kernel.uops,
            values: vec![Value::Nothing; kernel.uops.len()],
            launched: place.iter().chain(own).copied().collect(),
            thread: (number, thread),
            position: 0,
        };
        let mut threads: Vec<Machine<'_>> = group.iter().enumerate().map(start).collect();
        while threads[0].position < kernel.uops.len() {
            for thread in &mut threads {
                thread.run(&mut arrays)?;
            }
            let first = threads[0].position;
            if threads.iter().any(|thread| thread.position != first) {
                return Err(format!("uop {first}: not all threads wait at the barrier before it"));
            }
            if kernel.uops.get(first).is_some_and(|uop| uop.op == Op::Wmma) {
                multiply(&mut threads, &kernel.uops[first])?;
            }
        }
    }
    Ok(())
}

/// A product of matrices by the threads of a group, warp by warp.
fn multiply(threads: &mut [Machine<'_>], uop: &Instruction) -> Result<(), String> {
    let Arg::TensorCore(core) = uop.arg else { return Err("a product of nothing".to_owned()) };
    for warp in threads.chunks_mut(core.threads as usize) {
        if warp.len() as i64 != core.threads {
            return Err(format!("{} threads are no warp of {}", warp.len(), core.threads));
        }
        // The matrices as a whole: A and B from the fragments, C as well.
        let mut whole = [0, 1, 2].map(|_| std::collections::BTreeMap::new());
        for (number, thread) in warp.iter().enumerate() {
            for (matrix, elements) in whole.iter_mut().enumerate() {
                for (element, value) in thread.lanes(uop.src[matrix]).into_iter().enumerate() {
                    elements.insert(core.place(matrix, number, element), value);
                }
            }
        }
        for (number, thread) in warp.iter_mut().enumerate() {
            let sum = |element: usize| {
                let place @ [row, column, _] = core.place(2, number, element);
                let mut sum = whole[2][&place]?.to_float()? as f32;
                for step in 0..core.sizes[2] {
                    let operand = |value: Option<Constant>| {
                        value?.to_float().map(|x| if core.is_tf32 { cut(x) } else { x })
                    };
                    let left = operand(whole[0][&[row, 0, step]])?;
                    let right = operand(whole[1][&[0, column, step]])?;
                    // Products of 24 bits by 24 are exact in f64.
                    sum = (f64::from(sum) + left * right) as f32;
                }
                Some(Constant::float(DType::F32, sum.into()))
            };
            let sums = (0..core.elements(2)).map(sum).collect();
            thread.values[thread.position] = Value::Lanes(sums);
            thread.position += 1;
        }
    }
    Ok(())
}

/// An f32 with 10 bits of fraction, ties away from zero.
fn cut(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let exponent = value.abs().log2().floor().max(-126.0) as i32;
    let unit = 2f64.powi(exponent - 10);
    f64::from(((value / unit).round() * unit) as f32)
}

/// Position and counter of launched ranges.
type Counters = Vec<(usize, i64)>;

/// All steps of the launched ranges of a kind.
fn steps_of(kernel: &Linear, kind: AxisKind) -> Vec<Counters> {
    kernel.launched(kind).into_iter().fold(vec![Vec::new()], |all, (range, count)| {
        let with = |counters: &Counters, counter| {
            counters.iter().copied().chain([(range as usize, counter)]).collect()
        };
        let each = |counters: &Counters| (0..count).map(|c| with(counters, c)).collect::<Vec<_>>();
        all.iter().flat_map(each).collect()
    })
}

/// What a kernel can touch.
struct Arrays<'a> {
    globals: &'a mut [Elements],
    /// By number, for the group that is running.
    locals: HashMap<usize, Elements>,
    /// Group and thread that wrote an element of a parameter.
    writers: HashMap<(usize, usize), (usize, usize)>,
    round: Round<'a>,
}

impl Arrays<'_> {
    fn of(&mut self, array: Array) -> &mut Elements {
        match array {
            Array::Global(slot) => &mut self.globals[slot],
            Array::Local(number, size) => {
                self.locals.entry(number).or_insert_with(|| vec![None; size])
            }
        }
    }

    fn write(
        &mut self,
        (array, index): (Array, usize),
        value: Option<Constant>,
        thread: (usize, usize),
    ) -> Result<(), String> {
        if let Array::Global(slot) = array {
            let writer = *self.writers.entry((slot, index)).or_insert(thread);
            if writer != thread {
                return Err(format!("element {index} of data{slot} is written by two threads"));
            }
        }
        let elements = self.of(array);
        let size = elements.len();
        *elements.get_mut(index).ok_or_else(|| format!("element {index} of {size}"))? = value;
        Ok(())
    }
}

#[derive(Clone, Copy, Debug)]
enum Array {
    /// A parameter, by slot.
    Global(usize),
    /// An array of a group: number and size.
    Local(usize, usize),
}

#[derive(Clone, Debug)]
enum Value {
    Nothing,
    /// The element of each lane; `None` if undefined.
    Lanes(Elements),
    /// A place in an array; `None` if its gate is closed.
    Address(Option<(Array, i128)>),
}

/// One thread.
struct Machine<'a> {
    uops: &'a [Instruction],
    values: Vec<Value>,
    launched: Counters,
    /// Its group and its number in the group.
    thread: (usize, usize),
    position: usize,
}

impl Machine<'_> {
    /// Goes on to behind the next barrier, or to the end.
    fn run(&mut self, arrays: &mut Arrays<'_>) -> Result<(), String> {
        while self.position < self.uops.len() && self.uops[self.position].op != Op::Wmma {
            let is_barrier = self.uops[self.position].op == Op::Barrier;
            self.position = self.step(self.position, arrays)?;
            if is_barrier {
                break;
            }
        }
        Ok(())
    }

    fn counter(&self, range: usize) -> Option<i64> {
        self.launched.iter().find(|(own, _)| *own == range).map(|(_, counter)| *counter)
    }

    /// Carries out the uop at `position` and says which one is next.
    fn step(&mut self, position: usize, arrays: &mut Arrays<'_>) -> Result<usize, String> {
        let uop = &self.uops[position];
        let next = position + 1;
        let at = |problem: String| format!("uop {position} ({}): {problem}", uop.op);
        let count = usize::from(uop.lanes);
        let value = match (uop.op, &uop.arg) {
            (Op::DefineGlobal | Op::DefineLocal | Op::Barrier | Op::Sink, _) => Value::Nothing,
            (Op::Const, Arg::Const(value)) => Value::Lanes(vec![Some(*value)]),
            (Op::Range, _) => {
                let counter = self.counter(position);
                let start = Constant::int(uop.dtype, counter.unwrap_or(0).into());
                self.values[position] = Value::Lanes(vec![Some(start)]);
                return if counter.is_some() { Ok(next) } else { self.enter(position) };
            }
            (Op::EndRange, _) if self.counter(uop.src[0] as usize).is_some() => Value::Nothing,
            (Op::EndRange, _) => return self.repeat(uop.src[0] as usize),
            (Op::DefineAcc, _) => Value::Lanes(self.lanes(uop.src[0])),
            (Op::Assign, _) => {
                let value = Value::Lanes(self.lanes(uop.src[1]));
                self.values[uop.src[0] as usize] = value.clone();
                value
            }
            (Op::Vectorize, _) => {
                let source = |lane: usize| uop.src[if uop.src.len() == 1 { 0 } else { lane }];
                Value::Lanes((0..count).map(|lane| self.element(source(lane))).collect())
            }
            (Op::Lane, Arg::Int(lane)) => {
                let lane = self.lanes(uop.src[0]).get(*lane as usize).copied();
                Value::Lanes(vec![lane.ok_or_else(|| at("no such lane".to_owned()))?])
            }
            (Op::Index, _) => Value::Address(self.address(uop, arrays).map_err(at)?),
            (Op::Load, _) => {
                let loaded = (0..count).map(|lane| self.load(uop, lane, arrays));
                Value::Lanes(loaded.collect::<Result<_, String>>().map_err(at)?)
            }
            (Op::Store, _) => {
                self.store(uop, arrays).map_err(at)?;
                Value::Nothing
            }
            (op, _) if op.is_elementwise() => {
                let sources: Vec<Elements> = uop.src.iter().map(|at| self.lanes(*at)).collect();
                let mut round = |value| (arrays.round)(op, value);
                let lanes = (0..count).map(|lane| element(uop, &sources, lane));
                Value::Lanes(lanes.map(|value| value.map(&mut round)).collect())
            }
            _ => return Err(at("not a linear uop".to_string())),
        };
        self.values[position] = value;
        Ok(next)
    }

    fn lanes(&self, position: u32) -> Elements {
        match &self.values[position as usize] {
            Value::Lanes(lanes) => lanes.clone(),
            _ => vec![None; usize::from(self.uops[position as usize].lanes)],
        }
    }

    fn element(&self, position: u32) -> Option<Constant> {
        match &self.values[position as usize] {
            Value::Lanes(lanes) => lanes[0],
            _ => None,
        }
    }

    fn number(&self, position: u32) -> Option<i128> {
        self.element(position).and_then(Constant::to_int)
    }

    /// Goes into the loop at `range`, or past its end if the counter has reached it.
    fn enter(&self, range: usize) -> Result<usize, String> {
        let (Some(counter), Some(end)) =
            (self.number(range as u32), self.number(self.uops[range].src[0]))
        else {
            return Err(format!("uop {range}: a loop over an unknown count"));
        };
        if counter < end {
            return Ok(range + 1);
        }
        let is_end = |uop: &Instruction| uop.op == Op::EndRange && uop.src[0] as usize == range;
        let offset = self.uops[range..].iter().position(is_end);
        offset.map(|offset| range + offset + 1).ok_or(format!("uop {range}: a loop without end"))
    }

    fn repeat(&mut self, range: usize) -> Result<usize, String> {
        let dtype: DType = self.uops[range].dtype;
        let counter = self.number(range as u32).ok_or("a loop that was not entered")?;
        self.values[range] = Value::Lanes(vec![Some(Constant::int(dtype, counter + 1))]);
        self.enter(range)
    }

    fn address(
        &self,
        uop: &Instruction,
        arrays: &mut Arrays<'_>,
    ) -> Result<Option<(Array, i128)>, String> {
        let array = match &self.uops[uop.src[0] as usize].arg {
            Arg::Global(global) => Array::Global(global.slot),
            Arg::Local(local) => Array::Local(local.number, local.size_elements as usize),
            _ => return Err("an index into no array".to_string()),
        };
        if let Some(gate) = uop.src.get(2)
            && self.element(*gate) == Some(Constant::bool(false))
        {
            return Ok(None);
        }
        let index = self.number(uop.src[1]).ok_or("an undefined index")?;
        let size = arrays.of(array).len();
        if index < 0 || index >= size as i128 {
            return Err(format!("element {index} of {array:?}, which has {size}"));
        }
        Ok(Some((array, index)))
    }

    fn load(
        &self,
        uop: &Instruction,
        lane: usize,
        arrays: &mut Arrays<'_>,
    ) -> Result<Option<Constant>, String> {
        match self.values[uop.src[0] as usize] {
            Value::Address(Some((array, index))) => {
                let elements = arrays.of(array);
                let index = index as usize + lane;
                let size = elements.len();
                let found = elements.get(index).copied();
                let found = found.ok_or_else(|| format!("element {index} of {size}"))?;
                if found.is_none() && matches!(array, Array::Local(..)) {
                    return Err(format!("element {index} of {array:?} was not written"));
                }
                Ok(found)
            }
            Value::Address(None) => Ok(Some(Constant::zero(uop.dtype))),
            _ => Err("a load from no address".to_string()),
        }
    }

    fn store(&self, uop: &Instruction, arrays: &mut Arrays<'_>) -> Result<(), String> {
        match self.values[uop.src[0] as usize] {
            Value::Address(Some((array, index))) => {
                for (lane, value) in self.lanes(uop.src[1]).into_iter().enumerate() {
                    arrays.write((array, index as usize + lane), value, self.thread)?;
                }
                Ok(())
            }
            Value::Address(None) => Ok(()),
            _ => Err("a store to no address".to_string()),
        }
    }
}

/// A lane of an elementwise op.
fn element(uop: &Instruction, sources: &[Elements], lane: usize) -> Option<Constant> {
    let source = |number: usize| sources[number].get(lane).copied().flatten();
    if uop.op == Op::Where {
        return source(if source(0)?.is_true() { 1 } else { 2 });
    }
    let values: Option<Vec<Constant>> = (0..sources.len()).map(source).collect();
    evaluate(uop.op, uop.dtype, &values?)
}
