//! Interprets linear uops one by one, as a device would run them.

use gradiff_graph::{Arg, AxisKind, Constant, Linear, Op, evaluate};

use super::Memories;

/// Slots from here on are local arrays of a group.
const SHARED: usize = 1 << 16;

#[derive(Clone)]
enum Value {
    None,
    /// The value of each lane.
    Lanes(Vec<Option<Constant>>),
    Array(usize),
    /// Slot and index; no index if the gate is closed.
    Address(usize, Option<i128>),
}

/// Runs the kernel, group by group, the threads of a group in turns from barrier to barrier.
/// Returns the number of executed instructions.
pub(crate) fn run(linear: &Linear, memories: &mut Memories) -> usize {
    let launched = |kind| linear.launched(kind);
    let (globals, locals) = (launched(AxisKind::Global), launched(AxisKind::Local));
    let mut executed = 0;
    for group in counters(&globals) {
        let mut shared: Vec<Vec<Option<Constant>>> = Vec::new();
        for uop in &linear.uops {
            if let Arg::Local(local) = &uop.arg {
                shared.push(vec![None; local.size_elements as usize]);
            }
        }
        let threads = counters(&locals).into_iter().map(|thread| Thread {
            launched: group.iter().chain(&thread).copied().collect(),
            counter: 0,
            values: vec![Value::None; linear.uops.len()],
        });
        let mut threads: Vec<Thread> = threads.collect();
        while threads.iter().any(|thread| thread.counter < linear.uops.len()) {
            threads
                .iter_mut()
                .for_each(|thread| executed += thread.run(linear, memories, &mut shared));
            let first = threads[0].counter;
            assert!(threads.iter().all(|thread| thread.counter == first), "{linear}");
            multiply(&mut threads, linear);
        }
    }
    executed
}

/// Executes a matrix product, if all threads of a group have arrived at one.
fn multiply(threads: &mut [Thread], linear: &Linear) {
    let Some(uop) = linear.uops.get(threads[0].counter) else { return };
    let Arg::TensorCore(core) = uop.arg else { return };
    for warp in threads.chunks_exact_mut(core.threads as usize) {
        let element = |matrix: usize, (thread, element): (usize, usize)| {
            let Value::Lanes(lanes) = &warp[thread].values[uop.src[matrix] as usize] else {
                panic!("{} of no element\n{linear}", uop.op)
            };
            lanes[element]?.to_float().map(|value| value as f32)
        };
        let sum = |thread: usize, lane: usize| {
            let sum = core.add((thread, lane), element(2, (thread, lane))?, &element)?;
            Some(Constant::float(uop.dtype, sum.into()))
        };
        let lanes = |thread| (0..core.elements(2)).map(|lane| sum(thread, lane)).collect();
        let results: Vec<Vec<Option<Constant>>> = (0..warp.len()).map(lanes).collect();
        for (thread, result) in warp.iter_mut().zip(results) {
            thread.values[thread.counter] = Value::Lanes(result);
            thread.counter += 1;
        }
    }
}

/// Returns all iterations of these ranges: position and counter of each range.
fn counters(ranges: &[(u32, i64)]) -> Vec<Vec<(usize, i64)>> {
    ranges.iter().fold(vec![Vec::new()], |iterations, (position, size)| {
        let with = |outer: &Vec<(usize, i64)>, counter| {
            outer.iter().copied().chain([(*position as usize, counter)]).collect()
        };
        iterations
            .iter()
            .flat_map(|outer| (0..*size).map(move |counter| with(outer, counter)))
            .collect()
    })
}

/// A thread of a group.
struct Thread {
    /// Its launched ranges and their counters.
    launched: Vec<(usize, i64)>,
    counter: usize,
    values: Vec<Value>,
}

impl Thread {
    /// Runs to the next barrier or matrix product, or to the end.
    fn run(
        &mut self,
        linear: &Linear,
        memories: &mut Memories,
        shared: &mut [Vec<Option<Constant>>],
    ) -> usize {
        let Thread { launched, counter: at, values } = self;
        let uops = &linear.uops;
        let mut ends = vec![0; uops.len()];
        let ended = uops.iter().enumerate().filter(|(_, uop)| uop.op == Op::EndRange);
        ended.for_each(|(position, uop)| ends[uop.src[0] as usize] = position);
        let (mut counter, mut executed) = (*at, 0);
        while counter < uops.len() {
            let uop = &uops[counter];
            executed += 1;
            let lanes = |source: usize| match &values[uop.src[source] as usize] {
                Value::Lanes(lanes) => lanes.clone(),
                _ => panic!("{} of no element\n{linear}", uop.op),
            };
            let element = |source: usize| lanes(source)[0];
            let scalar = |value: Option<Constant>| Value::Lanes(vec![value]);
            let int =
                |source: usize| element(source).and_then(Constant::to_int).expect("an integer");
            match (uop.op, &uop.arg) {
                (Op::DefineGlobal, Arg::Global(global)) => {
                    values[counter] = Value::Array(global.slot)
                }
                (Op::DefineLocal, _) => {
                    let before = uops[..counter].iter().filter(|uop| uop.op == Op::DefineLocal);
                    values[counter] = Value::Array(SHARED + before.count());
                }
                (Op::Barrier, _) => {
                    *at = counter + 1;
                    return executed;
                }
                (Op::Wmma, _) => {
                    *at = counter;
                    return executed;
                }
                (Op::Range, _) if launched.iter().any(|(range, _)| *range == counter) => {
                    let (_, value) =
                        launched.iter().find(|(range, _)| *range == counter).expect("its counter");
                    values[counter] = scalar(Some(Constant::int(uop.dtype, (*value).into())));
                }
                (Op::EndRange, _)
                    if launched.iter().any(|(range, _)| *range == uop.src[0] as usize) => {}
                (Op::Const, Arg::Const(value)) => values[counter] = scalar(Some(*value)),
                (Op::Range, _) if int(0) <= 0 => counter = ends[counter],
                (Op::Range, _) => values[counter] = scalar(Some(Constant::zero(uop.dtype))),
                (Op::EndRange, _) => {
                    let range = uop.src[0] as usize;
                    let next = int(0) + 1;
                    let Value::Lanes(end) = &values[uops[range].src[0] as usize] else {
                        panic!("a loop without an end")
                    };
                    if next < end[0].and_then(Constant::to_int).expect("an integer") {
                        let next = Constant::int(uops[range].dtype, next);
                        values[range] = scalar(Some(next));
                        counter = range;
                    }
                }
                (Op::Index, _) => {
                    let Value::Array(slot) = values[uop.src[0] as usize] else {
                        panic!("no array\n{linear}")
                    };
                    let is_open = uop.src.len() == 2 || element(2).expect("a gate").is_true();
                    values[counter] = Value::Address(slot, is_open.then(|| int(1)));
                }
                (Op::Load, _) => {
                    let count = usize::from(uop.lanes);
                    values[counter] = Value::Lanes(match values[uop.src[0] as usize] {
                        Value::Address(_, None) => vec![Some(Constant::zero(uop.dtype)); count],
                        Value::Address(slot, Some(index)) => {
                            let index = usize::try_from(index).expect("an index");
                            array(memories, shared, slot)[index..index + count].to_vec()
                        }
                        _ => panic!("no address\n{linear}"),
                    });
                }
                (Op::Store, _) => {
                    if let Value::Address(slot, Some(index)) = values[uop.src[0] as usize] {
                        let index = usize::try_from(index).expect("an index");
                        let stored = lanes(1);
                        array(memories, shared, slot)[index..index + stored.len()]
                            .clone_from_slice(&stored);
                    }
                }
                (Op::DefineAcc, _) => values[counter] = Value::Lanes(lanes(0)),
                (Op::Assign, _) => values[uop.src[0] as usize] = Value::Lanes(lanes(1)),
                (Op::Vectorize, _) => {
                    let count = usize::from(uop.lanes);
                    let of = |lane: usize| element(if uop.src.len() == 1 { 0 } else { lane });
                    values[counter] = Value::Lanes((0..count).map(of).collect());
                }
                (Op::Lane, Arg::Int(lane)) => values[counter] = scalar(lanes(0)[*lane as usize]),
                (op, _) => {
                    let sources: Vec<Vec<Option<Constant>>> =
                        (0..uop.src.len()).map(lanes).collect();
                    let count = usize::from(uop.lanes);
                    let each = (0..count).map(|lane| {
                        let src: Vec<Option<Constant>> = sources.iter().map(|s| s[lane]).collect();
                        if op == Op::Where {
                            return src[0].and_then(|x| src[if x.is_true() { 1 } else { 2 }]);
                        }
                        let src: Option<Vec<Constant>> = src.into_iter().collect();
                        evaluate(op, uop.dtype, &src?)
                    });
                    values[counter] = Value::Lanes(each.collect());
                }
            }
            counter += 1;
        }
        *at = counter;
        executed
    }
}

fn array<'a>(
    memories: &'a mut Memories,
    shared: &'a mut [Vec<Option<Constant>>],
    slot: usize,
) -> &'a mut Vec<Option<Constant>> {
    if slot < SHARED { &mut memories[slot] } else { &mut shared[slot - SHARED] }
}

/// Checks the invariants of linear uops: sources come first, loops are nested and closed, values
/// are used in the loops of their definitions only, and there are no ops of other levels.
pub(crate) fn verify(linear: &Linear) -> Result<(), String> {
    gradiff_graph::verify_linear(linear).map_err(|error| format!("{error}\n{linear}"))?;
    let uops = &linear.uops;
    let mut open: Vec<usize> = Vec::new();
    let mut loops_of: Vec<Vec<usize>> = Vec::new();
    for (position, uop) in uops.iter().enumerate() {
        let error = |problem: &str| Err(format!("{position}: {problem}\n{linear}"));
        for source in uop.src.iter().map(|source| *source as usize) {
            match loops_of.get(source) {
                None => return error("a source comes later"),
                Some(loops) if !open.starts_with(loops) => {
                    return error("a value is used outside of its loop");
                }
                Some(_) => {}
            }
        }
        let source = |at: usize| uop.src.get(at).map(|source| uops[*source as usize].op);
        loops_of.push(open.clone());
        match uop.op {
            Op::Range => {
                open.push(position);
                loops_of[position] = open.clone();
            }
            Op::EndRange if open.pop() != Some(uop.src[0] as usize) => {
                return error("loops are not nested");
            }
            Op::EndRange => {}
            Op::DefineAcc => {
                let around: Vec<usize> = uop.src[1..].iter().map(|at| *at as usize).collect();
                let is_start = matches!(source(0), Some(Op::Const | Op::Vectorize));
                if !is_start || around != open {
                    return error("an accumulator without its loops");
                }
            }
            Op::Assign if source(0) != Some(Op::DefineAcc) => {
                return error("an assignment to no accumulator");
            }
            Op::Load | Op::Store if source(0) != Some(Op::Index) => {
                return error("an access without an address");
            }
            Op::Index if !matches!(source(0), Some(Op::DefineGlobal | Op::DefineLocal)) => {
                return error("an address without an array");
            }
            Op::Assign | Op::Load | Op::Store | Op::Index | Op::Const | Op::DefineGlobal => {}
            Op::Vectorize | Op::Lane | Op::DefineLocal | Op::Barrier | Op::Wmma => {}
            op if op.is_elementwise() => {}
            _ => return error("an op of another level"),
        }
    }
    if open.is_empty() { Ok(()) } else { Err(format!("open loops {open:?}\n{linear}")) }
}
