//! Runs linear uops one by one, as a device would.

use gradiff_graph::{Arg, Constant, Linear, Op, evaluate};

use super::Memories;

#[derive(Clone, Copy)]
enum Value {
    None,
    Element(Option<Constant>),
    Array(usize),
    /// Slot and place; no place if it must not be touched.
    Address(usize, Option<i128>),
}

/// Runs the kernel and counts the instructions run.
pub(crate) fn run(linear: &Linear, memories: &mut Memories) -> usize {
    let uops = &linear.uops;
    let mut values = vec![Value::None; uops.len()];
    let mut ends = vec![0; uops.len()];
    let ended = uops.iter().enumerate().filter(|(_, uop)| uop.op == Op::EndRange);
    ended.for_each(|(position, uop)| ends[uop.src[0] as usize] = position);
    let (mut counter, mut steps) = (0, 0);
    while counter < uops.len() {
        let uop = &uops[counter];
        steps += 1;
        let element = |source: usize| match values[uop.src[source] as usize] {
            Value::Element(value) => value,
            _ => panic!("{} of no element\n{linear}", uop.op),
        };
        let int = |source: usize| element(source).and_then(Constant::to_int).expect("an integer");
        match (uop.op, &uop.arg) {
            (Op::DefineGlobal, Arg::Global(global)) => values[counter] = Value::Array(global.slot),
            (Op::Const, Arg::Const(value)) => values[counter] = Value::Element(Some(*value)),
            (Op::Range, _) if int(0) <= 0 => counter = ends[counter],
            (Op::Range, _) => values[counter] = Value::Element(Some(Constant::zero(uop.dtype))),
            (Op::EndRange, _) => {
                let range = uop.src[0] as usize;
                let next = int(0) + 1;
                let Value::Element(Some(end)) = values[uops[range].src[0] as usize] else {
                    panic!("a loop without an end")
                };
                if next < end.to_int().expect("an integer") {
                    let next = Constant::int(uops[range].dtype, next);
                    values[range] = Value::Element(Some(next));
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
                values[counter] = Value::Element(match values[uop.src[0] as usize] {
                    Value::Address(_, None) => Some(Constant::zero(uop.dtype)),
                    Value::Address(slot, Some(place)) => {
                        memories[slot][usize::try_from(place).expect("a place")]
                    }
                    _ => panic!("no address\n{linear}"),
                });
            }
            (Op::Store, _) => {
                if let Value::Address(slot, Some(place)) = values[uop.src[0] as usize] {
                    memories[slot][usize::try_from(place).expect("a place")] = element(1);
                }
            }
            (Op::DefineAcc, _) => values[counter] = Value::Element(element(0)),
            (Op::Assign, _) => values[uop.src[0] as usize] = Value::Element(element(1)),
            (Op::Where, _) => {
                let chosen = element(0).and_then(|x| element(if x.is_true() { 1 } else { 2 }));
                values[counter] = Value::Element(chosen);
            }
            (op, _) => {
                let src: Option<Vec<Constant>> = (0..uop.src.len()).map(element).collect();
                let value = src.and_then(|src| evaluate(op, uop.dtype, &src));
                values[counter] = Value::Element(value);
            }
        }
        counter += 1;
    }
    steps
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
                if source(0) != Some(Op::Const) || around != open {
                    return fault("a variable without its loops");
                }
            }
            Op::Assign if source(0) != Some(Op::DefineAcc) => return fault("no variable"),
            Op::Load | Op::Store if source(0) != Some(Op::Index) => return fault("no address"),
            Op::Index if source(0) != Some(Op::DefineGlobal) => return fault("no array"),
            Op::Assign | Op::Load | Op::Store | Op::Index | Op::Const | Op::DefineGlobal => {}
            op if op.is_elementwise() => {}
            _ => return fault("an op of a level above"),
        }
    }
    if open.is_empty() { Ok(()) } else { Err(format!("open loops {open:?}\n{linear}")) }
}
