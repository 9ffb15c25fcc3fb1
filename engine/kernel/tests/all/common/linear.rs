//! Linear uops, run by the evaluator and checked.

use gradiff_graph::{Linear, Op};

use super::Memories;

/// Runs a kernel.
pub(crate) fn run(linear: &Linear, memories: &mut Memories) {
    let run = gradiff_eval::linear::run(linear, memories);
    run.unwrap_or_else(|error| panic!("{error}\n{linear}"));
}

/// Checks the invariants of linear uops: sources come first, loops are nested and closed, values
/// are used in the loops of their definitions only, and there are no ops of other levels.
pub(crate) fn verify(linear: &Linear) -> Result<(), String> {
    gradiff_graph::verify::verify_linear(linear).map_err(|error| format!("{error}\n{linear}"))?;
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
