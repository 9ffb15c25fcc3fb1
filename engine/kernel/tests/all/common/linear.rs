//! Runs linear uops one by one, as a device would.

use gradiff_graph::{Arg, AxisKind, Constant, Linear, Op, evaluate};

use super::Memories;

/// Slots from here on are arrays that a group shares.
const SHARED: usize = 1 << 16;

#[derive(Clone)]
enum Value {
    None,
    /// The value of each lane.
    Lanes(Vec<Option<Constant>>),
    Array(usize),
    /// Slot and place; no place if it must not be touched.
    Address(usize, Option<i128>),
}

/// Runs the kernel and counts the instructions run: group by group, the threads of a group in turns
/// from barrier to barrier.
pub(crate) fn run(linear: &Linear, memories: &mut Memories) -> usize {
    let launched = |kind| linear.launched(kind);
    let (globals, locals) = (launched(AxisKind::Global), launched(AxisKind::Local));
    let mut steps = 0;
    for group in counters(&globals) {
        let mut shared: Vec<Vec<Option<Constant>>> = Vec::new();
        for uop in &linear.uops {
            if let Arg::Local(local) = &uop.arg {
                shared.push(vec![None; local.size_elements as usize]);
            }
        }
        let threads = counters(&locals).into_iter().map(|thread| Thread {
            own: group.iter().chain(&thread).copied().collect(),
            counter: 0,
            values: vec![Value::None; linear.uops.len()],
        });
        let mut threads: Vec<Thread> = threads.collect();
        while threads.iter().any(|thread| thread.counter < linear.uops.len()) {
            threads
                .iter_mut()
                .for_each(|thread| steps += thread.run(linear, memories, &mut shared));
            let first = threads[0].counter;
            assert!(threads.iter().all(|thread| thread.counter == first), "{linear}");
            multiply(&mut threads, linear);
        }
    }
    steps
}

/// The product of matrices at which all threads of a group are, if there is one.
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

/// All steps of these ranges: position and counter of each.
fn counters(ranges: &[(u32, i64)]) -> Vec<Vec<(usize, i64)>> {
    ranges.iter().fold(vec![Vec::new()], |all, (position, size)| {
        let with = |one: &Vec<(usize, i64)>, counter| {
            one.iter().copied().chain([(*position as usize, counter)]).collect()
        };
        all.iter().flat_map(|one| (0..*size).map(move |counter| with(one, counter))).collect()
    })
}

/// A thread of a group.
struct Thread {
    /// Its launched ranges and their counters.
    own: Vec<(usize, i64)>,
    counter: usize,
    values: Vec<Value>,
}

impl Thread {
    /// Goes on to the next barrier or to the end.
    fn run(
        &mut self,
        linear: &Linear,
        memories: &mut Memories,
        shared: &mut [Vec<Option<Constant>>],
    ) -> usize {
        let Thread { own, counter: at, values } = self;
        let uops = &linear.uops;
        let mut ends = vec![0; uops.len()];
        let ended = uops.iter().enumerate().filter(|(_, uop)| uop.op == Op::EndRange);
        ended.for_each(|(position, uop)| ends[uop.src[0] as usize] = position);
        let (mut counter, mut steps) = (*at, 0);
        while counter < uops.len() {
            let uop = &uops[counter];
            steps += 1;
            let lanes = |source: usize| match &values[uop.src[source] as usize] {
                Value::Lanes(lanes) => lanes.clone(),
                _ => panic!("{} of no element\n{linear}", uop.op),
            };
            let element = |source: usize| lanes(source)[0];
            let one = |value: Option<Constant>| Value::Lanes(vec![value]);
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
                    return steps;
                }
                (Op::Wmma, _) => {
                    *at = counter;
                    return steps;
                }
                (Op::Range, _) if own.iter().any(|(range, _)| *range == counter) => {
                    let own = own.iter().find(|(range, _)| *range == counter).expect("its counter");
                    values[counter] = one(Some(Constant::int(uop.dtype, own.1.into())));
                }
                (Op::EndRange, _) if own.iter().any(|(range, _)| *range == uop.src[0] as usize) => {
                }
                (Op::Const, Arg::Const(value)) => values[counter] = one(Some(*value)),
                (Op::Range, _) if int(0) <= 0 => counter = ends[counter],
                (Op::Range, _) => values[counter] = one(Some(Constant::zero(uop.dtype))),
                (Op::EndRange, _) => {
                    let range = uop.src[0] as usize;
                    let next = int(0) + 1;
                    let Value::Lanes(end) = &values[uops[range].src[0] as usize] else {
                        panic!("a loop without an end")
                    };
                    if next < end[0].and_then(Constant::to_int).expect("an integer") {
                        let next = Constant::int(uops[range].dtype, next);
                        values[range] = one(Some(next));
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
                        Value::Address(slot, Some(place)) => {
                            let place = usize::try_from(place).expect("a place");
                            array(memories, shared, slot)[place..place + count].to_vec()
                        }
                        _ => panic!("no address\n{linear}"),
                    });
                }
                (Op::Store, _) => {
                    if let Value::Address(slot, Some(place)) = values[uop.src[0] as usize] {
                        let place = usize::try_from(place).expect("a place");
                        let stored = lanes(1);
                        array(memories, shared, slot)[place..place + stored.len()]
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
                (Op::Lane, Arg::Int(lane)) => values[counter] = one(lanes(0)[*lane as usize]),
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
        steps
    }
}

fn array<'a>(
    memories: &'a mut Memories,
    shared: &'a mut [Vec<Option<Constant>>],
    slot: usize,
) -> &'a mut Vec<Option<Constant>> {
    if slot < SHARED { &mut memories[slot] } else { &mut shared[slot - SHARED] }
}

/// Checks what linear uops promise: sources first, loops nested and closed, values used only in
/// the loops they were made in, nothing of the levels above.
pub(crate) fn verify(linear: &Linear) -> Result<(), String> {
    gradiff_graph::verify_linear(linear).map_err(|error| format!("{error}\n{linear}"))?;
    let uops = &linear.uops;
    let mut open: Vec<usize> = Vec::new();
    let mut made_in: Vec<Vec<usize>> = Vec::new();
    for (position, uop) in uops.iter().enumerate() {
        let fault = |what: &str| Err(format!("{position}: {what}\n{linear}"));
        for source in uop.src.iter().map(|source| *source as usize) {
            match made_in.get(source) {
                None => return fault("a source that comes later"),
                Some(loops) if !open.starts_with(loops) => return fault("a value out of its loop"),
                Some(_) => {}
            }
        }
        let source = |at: usize| uop.src.get(at).map(|source| uops[*source as usize].op);
        made_in.push(open.clone());
        match uop.op {
            Op::Range => {
                open.push(position);
                made_in[position] = open.clone();
            }
            Op::EndRange if open.pop() != Some(uop.src[0] as usize) => {
                return fault("loops that cross");
            }
            Op::EndRange => {}
            Op::DefineAcc => {
                let around: Vec<usize> = uop.src[1..].iter().map(|at| *at as usize).collect();
                let starts = matches!(source(0), Some(Op::Const | Op::Vectorize));
                if !starts || around != open {
                    return fault("a variable without its loops");
                }
            }
            Op::Assign if source(0) != Some(Op::DefineAcc) => return fault("no variable"),
            Op::Load | Op::Store if source(0) != Some(Op::Index) => return fault("no address"),
            Op::Index if !matches!(source(0), Some(Op::DefineGlobal | Op::DefineLocal)) => {
                return fault("no array");
            }
            Op::Assign | Op::Load | Op::Store | Op::Index | Op::Const | Op::DefineGlobal => {}
            Op::Vectorize | Op::Lane | Op::DefineLocal | Op::Barrier | Op::Wmma => {}
            op if op.is_elementwise() => {}
            _ => return fault("an op of a level above"),
        }
    }
    if open.is_empty() { Ok(()) } else { Err(format!("open loops {open:?}\n{linear}")) }
}
